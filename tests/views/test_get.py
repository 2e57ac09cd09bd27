"""Put once, get in any layout and dtype: values, identity, aliasing and caching."""

import copy
import pickle

import ml_dtypes  # noqa: F401  (makes NumPy know names such as "bfloat16")
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import layoutkit
from layoutkit import (
    ArgumentError,
    ClassView,
    Converter,
    DataView,
    DeviceError,
    DtypeError,
    ImageView,
    ListView,
    PatternError,
    SequenceView,
    ShapeError,
    ViewError,
)
from tests.helpers.arrays_of import BF16, LAYINGS, assert_same, laid, random_array
from tests.helpers.children import python
from tests.helpers.reference import reference_convert
from tests.helpers.views_state import check_error

pytestmark = pytest.mark.budget(4)

RNG = np.random.default_rng(0)
IMAGES = RNG.random((8, 3, 4, 2))


# ---- values ------------------------------------------------------------------------------

EXAMPLES = [
    (ImageView, "bhwc", (8, 3, 3, 1), ["bhwc", "bchw", "chwb", "bf", "b(chw)", "(bh)wc", "cf"]),
    (ImageView, "bchw", (8, 3, 5, 4), ["bhwc", "bchw", "chwb", "bf", "fb", "bcf"]),
    (ImageView, "chwb", (3, 5, 4, 8), ["bhwc", "bchw", "chwb", "bf", "wchb"]),
    (ImageView, "bdhwc", (2, 3, 4, 5, 2), ["bdhwc", "bcdhw", "bf", "cdhwb"]),
    (ImageView, "bcdhw", (2, 3, 4, 5, 2), ["bdhwc", "bcdhw", "bf"]),
    (ImageView, "bhw", (4, 5, 6), ["bhwc", "bchw", "chwb", "bdhwc", "bf", "hwb"]),
    (ImageView, "bdhwc", (2, 1, 4, 5, 3), ["bhwc", "bchw"]),
    (ImageView, "bhwc", (4, 1, 1, 1), ["b", "bf"]),
    (SequenceView, "bwc", (8, 2, 5), ["bwc", "bcw", "bf", "wcb"]),
    (SequenceView, "wbc", (2, 8, 5), ["bwc", "bcw", "bf"]),
    (SequenceView, "cwb", (5, 2, 8), ["bwc", "bcw", "bf"]),
    (DataView, "bf", (8, 10), ["bf", "fb", "(bf)"]),
    (DataView, "fb", (10, 8), ["bf", "fb"]),
    (DataView, "bf", (8, 1), ["b", "bf"]),
    (DataView, "b", (8,), ["b", "bf"]),
    (DataView, "b", (0,), ["b", "bf"]),
    (DataView, "bxyz", (2, 3, 4, 5), ["bf", "zyxb", "b(zx)y"]),
    (DataView, "b", (8,), ["b", "bf"]),
    (ClassView, "b", (8,), ["b", "bt"]),
    (ClassView, "bt", (8, 1), ["b", "bt", "tb"]),
    (ClassView, "tb", (3, 8), ["bt", "tb"]),
]


@pytest.mark.parametrize(("kind", "base", "shape", "layouts"), EXAMPLES)
def test_every_result_has_the_values_of_the_reference(kind, base, shape, layouts):
    for dtype in ("f8", "f4", "u1"):
        x = random_array(RNG, shape, "u1").astype(dtype)
        view = kind(base, x)
        for layout in layouts:
            for wanted in (None, "f8") if dtype != "u1" else (None,):
                got = view.forward_get(layout, wanted)
                requested = reference_convert(x, f"{base}->{layout}", dtype=wanted)
                assert_same(got, requested)
                assert got.flags.c_contiguous
                assert_same(view.converter(layout, wanted)(x), requested)


FOLDED = [
    ("b(hwc)", (4, 18), ["bf", "(hwc)b", "b(hwc)"], {"h": 18, "w": 1, "c": 1}),
    ("(hw)bc", (6, 4, 3), ["b(hw)c", "cb(hw)", "bf"], {"h": 6, "w": 1}),
    ("bt(hw)", (2, 3, 6), ["bf", "(hw)tb", "b(hw)t"], {"h": 6, "w": 1}),
]


@pytest.mark.budget(1)
@pytest.mark.parametrize(("base", "shape", "layouts", "sizes"), FOLDED)
def test_a_fold_of_the_base_stays_together(base, shape, layouts, sizes):
    x = RNG.random(shape)
    view = DataView(base, x)
    for layout in layouts:
        got = view.forward_get(layout)
        assert_same(got, reference_convert(x, f"{base}->{layout}", **sizes))
        view.backward_put(layout, got)
        assert_same(view.converter(layout).backward(got), x)
    np.testing.assert_allclose(view.backward_get(), len(layouts) * x)
    with check_error(PatternError, "the sizes inside a fold are not known", view):
        view.forward_get("".join(sorted(set(base) - set("()"))))


@pytest.mark.budget(2)
@pytest.mark.parametrize("how", LAYINGS)
def test_bases_of_any_strides(how):
    x = laid(IMAGES.copy(), how)
    was = x.copy()
    view = ImageView("bhwc", x)
    assert view.forward_get() is x
    for layout in ("bchw", "chwb", "bf"):
        assert_same(view.forward_get(layout), reference_convert(was, f"bhwc->{layout}"))
        assert_same(
            view.forward_get(layout, "f4"), reference_convert(was, f"bhwc->{layout}", dtype="f4")
        )
    np.testing.assert_array_equal(x, was)


@settings(derandomize=True, database=None)
@given(
    st.permutations("bhwc"),
    st.permutations("bhwc"),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.sampled_from(["u1", "?", "i2", "f2", "f4", "f8", "c8", BF16, ">f4"]),
    st.sampled_from([None, "f4", "f8", "c16", "bfloat16"]),
    st.integers(0, 4),
    st.sampled_from(LAYINGS[:4]),
)
def test_any_base_into_any_layout_and_dtype(base, target, shape, source, dtype, fold, how):
    base = "".join(base)
    target = "".join(target)
    if 4 - fold > 1 and "b" not in target[fold:]:
        target = f"{target[:fold]}({target[fold:]})"
    x = laid(random_array(RNG, shape, "u1").astype(source), how)
    view = DataView(base, x)
    try:
        converter = Converter(f"{base}->{target}", dtype=dtype)
        wanted = converter(x)
    except DtypeError:
        with check_error(DtypeError, "is not allowed by casting", view):
            view.forward_get(target, dtype)
        return
    got = view.forward_get(target, dtype)
    if target == base and dtype is None:
        assert got is x
        return
    assert_same(got, wanted)
    reference = reference_convert(x, f"{base}->{target}", dtype=dtype and np.dtype(dtype))
    np.testing.assert_array_equal(got, reference)


# ---- identity ----------------------------------------------------------------------------


def test_the_base_is_what_was_put():
    for x in (IMAGES, IMAGES[::2, ::-1], IMAGES.astype(">f8"), np.asfortranarray(IMAGES)):
        view = ImageView("bhwc", x)
        assert view.input is x
        assert view.forward_get() is x
        assert view.forward_get("bhwc") is x
        assert view.forward_get("b h w c", x.dtype) is x
        assert (view.layout, view.dtype, view.device, len(view)) == ("bhwc", x.dtype, "cpu", len(x))


def test_a_base_of_foreign_byte_order_is_got_in_native_order_where_that_is_asked():
    x = IMAGES.astype(">f4")
    view = ImageView("bhwc", x)
    native = view.forward_get("bhwc", "f4")
    assert_same(native, IMAGES.astype("f4"))
    assert view.forward_get(None, ">f4") is x
    assert view.forward_get("bchw") is view.forward_get("bchw", "f4")


def test_subclasses_of_arrays_are_kept_as_they_are(tmp_path):
    IMAGES.tofile(tmp_path / "x")
    x = np.memmap(tmp_path / "x", "f8", "r", shape=IMAGES.shape)
    view = ImageView("bhwc", x)
    assert view.forward_get() is x
    assert_same(view.forward_get("bchw"), IMAGES.transpose(0, 3, 1, 2).copy())


def test_a_repeated_get_is_one_object_however_it_is_asked():
    view = ImageView("bhwc", IMAGES)
    first = view.forward_get("bchw", "float32")
    for layout in ("bchw", "b c h w", " bchw", "b(c)hw", np.str_("bchw")):
        for dtype in ("float32", "f4", np.float32, np.dtype("f4"), "<f4"):
            for device in (None, "cpu"):
                assert view.forward_get(layout, dtype, device) is first
    flat = view.forward_get("bf")
    assert view.forward_get("b(hwc)") is flat
    assert view.forward_get("b(hwc)", "float64") is flat
    assert view.forward_get("b(chw)") is not flat
    assert view.forward_get("bchw") is not first


def test_words_that_cannot_be_keys():
    x = np.zeros((4, 3), [("a", "u1"), ("b", "f4")])
    view = DataView("bf", x)
    first = view.forward_get("fb", [("a", "u1"), ("b", "f4")])
    assert view.forward_get("fb", [("a", "u1"), ("b", "f4")]) is first
    assert view.forward_get("bf", [("a", "u1"), ("b", "f4")]) is x
    with check_error(PatternError, "a layout is text", view):
        view.forward_get(["bf"])


def test_what_does_not_move_shares_memory_and_the_rest_does_not():
    x = IMAGES.copy()
    view = ImageView("bhwc", x)
    assert np.shares_memory(view.forward_get("bf"), x)
    for layout, dtype in (("bchw", None), ("chwb", None), ("bf", "f4"), (None, "f4")):
        assert not np.shares_memory(view.forward_get(layout, dtype), x)
    strided = ImageView("bhwc", x[:, ::2])
    assert not np.shares_memory(strided.forward_get("bf"), x)
    x.flags.writeable = False
    assert not ImageView("bhwc", x).forward_get("bf").flags.writeable


def test_edits_of_a_result_stay_when_another_dtype_is_asked():
    """The original converted the layout again for every dtype, and edits were lost."""
    view = ImageView("bhwc", IMAGES)
    planes = view.forward_get("bchw")
    planes[...] = 7
    view.forward_get("bchw", "f4")
    assert view.forward_get("bchw") is planes
    assert (planes == 7).all()


def test_a_result_of_an_earlier_batch_is_never_written():
    """The original returned one output buffer for every batch."""
    view = ImageView()
    held = []
    for number in range(5):
        view.forward_put("bhwc", np.full((8, 3, 4, 2), number, "f4"))
        held.append([view.forward_get("bchw"), view.forward_get("bf", "f8")])
    for number, results in enumerate(held):
        assert all((result == number).all() for result in results)


def test_a_new_put_drops_results():
    view = ImageView("bhwc", IMAGES)
    before = view.forward_get("bchw"), view.forward_get("bf"), view.forward_get()
    other = IMAGES + 1
    view.forward_put("bhwc", other)
    after = view.forward_get("bchw"), view.forward_get("bf"), view.forward_get()
    assert after[2] is other
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new, old + 1)


# ---- forward, and the names of results -----------------------------------------------------


def test_forward_is_put_or_get():
    view = ImageView()
    assert view.forward("bhwc", IMAGES) is None
    assert view.forward() is IMAGES
    assert view.forward("bhwc") is IMAGES
    assert view.forward("bchw") is view.forward_get("bchw")
    for dtype in ("f4", np.float32, np.dtype("f4")):
        assert view.forward("bchw", dtype) is view.forward_get("bchw", "f4")
    with check_error(ArgumentError, "array is a list", view):
        view.forward("bhwc", [1.0, 2.0])


def test_named_results_are_converters():
    image = ImageView("bhwc", IMAGES)
    volume = ImageView("bdhwc", IMAGES[:, None])
    sequence = SequenceView("bwc", IMAGES[:, 0])
    data = DataView("bf", IMAGES[:, 0, :1, 0])
    for view, names in (
        (image, ["bhwc", "bchw", "chwb", "bf"]),
        (volume, ["bdhwc", "bcdhw", "bf"]),
        (sequence, ["bwc", "bcw", "bf"]),
        (data, ["b", "bf"]),
        (ClassView("tb", np.zeros((2, 5))), ["bt"]),
    ):
        for name in names:
            converter = getattr(view, name)()
            assert isinstance(converter, Converter)
            assert converter is view.converter(name)
            wanted = view.forward_get(name)
            np.testing.assert_array_equal(converter(view.input), wanted)
            grad = RNG.random(wanted.shape)
            back = converter.backward(grad)  # of a fold too: the sizes are known
            assert back.shape == view.input.shape
            np.testing.assert_array_equal(converter(back), grad)
            assert getattr(view, name)("f4")(view.input).dtype == np.float32


def test_bf_follows_the_order_of_the_base():
    """The order of features is the base's, outermost axis first."""
    planes = IMAGES.transpose(0, 3, 1, 2).copy()
    last = IMAGES.transpose(3, 1, 2, 0).copy()
    assert_same(ImageView("bhwc", IMAGES).forward_get("bf"), IMAGES.reshape(8, -1))
    assert_same(ImageView("bchw", planes).forward_get("bf"), planes.reshape(8, -1))
    assert_same(ImageView("chwb", last).forward_get("bf"), planes.reshape(8, -1))
    for layout, x in (("bhwc", IMAGES), ("bchw", planes), ("chwb", last)):
        assert_same(ImageView(layout, x).forward_get("b(hwc)"), IMAGES.reshape(8, -1))


# ---- caches across batches -----------------------------------------------------------------


def kept(view):
    return view._batch.plans


def test_the_batch_size_may_change_and_nothing_is_planned_again():
    view = ImageView("bhwc", IMAGES)
    view.forward_get("bchw", "f4"), view.forward_get("bf")
    converters = view.bchw("f4"), view.bf()
    for count in (8, 3, 1, 0, 8):
        x = RNG.random((count, 3, 4, 2))
        view.forward_put("b h w c", x)
        assert_same(view.forward_get("bf"), x.reshape(count, 24))
        assert_same(view.forward_get("bchw", "f4"), x.transpose(0, 3, 1, 2).astype("f4"))
        assert (view.bchw("f4"), view.bf()) == converters


def test_children_share_plans():
    view = ImageView("bhwc", IMAGES)
    for child in (view.sub(0, 4), view.sub(0, 4, copy=False), view.index([1, 2])):
        assert kept(child) is kept(view)
        assert kept(next(child.batches(2))) is kept(view)
        assert child.bchw() is view.bchw()
    child.flush()
    assert kept(child) is not kept(view)


def test_another_dtype_in_the_same_layout():
    """A bug of the original: the old dtype's converters were used on the new base."""
    view = DataView("bf", np.ones((4, 3), "f8"))
    view.forward_get("bf", "f4"), view.forward_get("fb")
    view.forward_put("bf", np.full((4, 3), 2, "f4"))
    assert view.forward_get("bf", "f8").dtype == np.float64
    assert view.forward_get("fb").dtype == np.float32
    assert view.forward_get("bf") is view.input
    assert (view.forward_get("bf", "f8") == 2).all()
    view.backward_put("bf", np.ones((4, 3), "f4"))
    assert view.backward_get().dtype == np.float32


def test_another_sample_size_in_the_same_layout():
    """A bug of the original: `bf` had the features of the first batch."""
    view = ImageView("bhwc", np.ones((2, 2, 2, 1)))
    assert view.forward_get("bf").shape == (2, 4)
    view.forward_put("bhwc", np.ones((4, 1, 1, 1)))
    assert view.forward_get("bf").shape == (4, 1)
    assert view.forward_get("b").shape == (4,)
    view.forward_put("bhwc", np.ones((4, 5, 3, 2)))
    assert view.forward_get("bf").shape == (4, 30)
    assert view.bf().backward(np.ones((7, 30))).shape == (7, 5, 3, 2)


def test_another_base_layout():
    view = ImageView("bhwc", IMAGES)
    view.forward_get("bf")
    view.forward_put("bchw", IMAGES)
    assert_same(view.forward_get("bhwc"), IMAGES.transpose(0, 2, 3, 1).copy())
    view.forward_put("bf", IMAGES.reshape(8, 24))
    assert view.layout == "bf"
    with check_error(PatternError, "a base in bf cannot become bhwc", view):
        view.forward_get("bhwc")


def test_plans_do_not_grow_without_end():
    view = DataView("bf", np.ones((4, 3), "f4"))
    for number in range(1500):
        view.forward_get("f" + " " * number + "b")
    assert len(kept(view)._aliases) <= 512
    assert len(kept(view)._names) <= 512
    assert len(view._batch.by_conversion) == 1


def test_views_are_loaded_when_the_first_is_named():
    first = """
import sys, layoutkit
print("layoutkit.views" in sys.modules, "ImageView" in dir(layoutkit))
from layoutkit import ImageView
print(ImageView is layoutkit.views.ImageView is layoutkit.ImageView)
print(hasattr(layoutkit, "nonsense"))
"""
    assert python(first).split() == ["False", "True", "True", "False"]
    assert all(hasattr(layoutkit, name) for name in layoutkit.__all__)


# ---- copies and other processes ------------------------------------------------------------


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
)
def test_copies_begin_a_batch_of_their_own(again):
    view = ClassView("bt", np.array([[1, 2], [0, 3]]), ["a", "b", "c", "d"])
    view.forward_get("b", "f4")
    view.backward_put("b", np.ones(2, "f4"))
    other = again(view)
    np.testing.assert_array_equal(other.input, view.input)
    assert (other.layout, other.classes, type(other)) == ("bt", view.classes, ClassView)
    with check_error(layoutkit.BackwardError, "no gradient was put", other):
        other.backward_get()
    other.forward_get("b", "f4")
    other.backward_put("b", np.zeros(2, "f4"))
    assert len(view._batch.gradients) == 1
    with check_error(ViewError, "no batch", again(ImageView())):
        again(ImageView()).forward_get()
    nested = again(ListView([view, ListView([ImageView("bhwc", IMAGES[:2])])]))
    np.testing.assert_array_equal(nested.forward_get()[1][0], IMAGES[:2])


# ---- misuse --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "base", "shape", "layout", "error", "words"),
    [
        (ImageView, "bhwc", (2, 3, 4, 2), "bhw", PatternError, "its own axes .b, h, w, c."),
        (ImageView, "bhwc", (2, 3, 4, 2), "bhwcx", PatternError, "cannot become bhwcx"),
        (ImageView, "bhwc", (2, 3, 4, 2), "bdhwc2", PatternError, "'2' is not an axis"),
        (ImageView, "bf", (2, 24), "bhwc", PatternError, "bf, bhwc, bchw, chwb, bdhwc, bcdhw"),
        (ImageView, "b(hwc)", (2, 24), "bhwc", PatternError, "inside a fold are not known"),
        (ImageView, "b(hwc)", (2, 24), "b(chw)", PatternError, "inside a fold are not known"),
        (ImageView, "b(hwc)", (2, 24), "b", ShapeError, "would be lost"),
        (ImageView, "bdhwc", (2, 3, 4, 5, 2), "bhwc", ShapeError, "axis d of size 3"),
        (ImageView, "bhwc", (2, 3, 4, 2), "b", ShapeError, "would be lost"),
        (SequenceView, "bwc", (2, 3, 4), "bhwc", PatternError, "cannot become bhwc"),
        (SequenceView, "bhwc", (2, 3, 4, 2), "bwc", ShapeError, "axis h of size 3"),
        (SequenceView, "bf", (2, 3), "bwc", PatternError, "put the batch in its most expanded"),
        (DataView, "bf", (2, 3), "b", ShapeError, "axis f of size 3"),
        (DataView, "bf", (2, 3), "bt", PatternError, "cannot become bt"),
        (DataView, "b", (2,), "bt", PatternError, "cannot become bt"),
        (DataView, "bf", (2, 3), "", PatternError, "without axes"),
        (DataView, "bf", (2, 3), "bf->fb", PatternError, '"->" in a layout'),
        (DataView, "bf", (2, 3), "bb", PatternError, "twice"),
        (DataView, "bf", (2, 3), "default", PatternError, "cannot become|twice"),
        (DataView, "bf", (2, 3), 3, PatternError, "a layout is text"),
        (ClassView, "b", (2,), "bf", PatternError, "cannot become bf"),
        (ClassView, "bt", (2, 0), "b", ShapeError, "no first column"),
        (ClassView, "tb", (0, 2), "b", ShapeError, "no first column"),
    ],
)
def test_layouts_that_the_base_cannot_become(kind, base, shape, layout, error, words):
    view = kind(base, np.zeros(shape))
    for ask in (view.forward_get, view.converter, lambda name: view.replace(name, np.zeros(2))):
        with check_error(error, words, view):
            ask(layout)
    assert view.forward_get() is view.input


def test_dtypes_and_devices_that_are_refused():
    view = ImageView("bhwc", IMAGES)
    for dtype in ("u1", "i8", "M8[s]", "?"):
        with check_error(DtypeError, "is not allowed by casting", view):
            view.forward_get("bchw", dtype)
        with check_error(DtypeError, "is not allowed by casting", view):
            view.converter(None, dtype)
    for dtype in ("nonsense", "O", "S3", 7, ">f4"):
        with check_error(DtypeError, "is not a dtype|cannot be moved|only moved|byte order", view):
            view.forward_get("bhwc", dtype)
    for device in ("cuda:x", "gpu", 3):
        with check_error(DeviceError, "is not a device", view):
            view.forward_get("bhwc", None, device)
    assert ImageView("bhwc", IMAGES.astype("M8[s]")).forward_get("bchw").dtype == "M8[s]"


@pytest.mark.parametrize(
    ("layout", "array", "error", "words"),
    [
        ("hwc", np.zeros((2, 3, 4)), PatternError, "no batch axis of its own"),
        ("(bh)wc", np.zeros((2, 3, 4)), PatternError, "no batch axis of its own"),
        ("b!", np.zeros((2, 3)), PatternError, "not an axis"),
        (None, np.zeros((2, 3)), PatternError, "a layout is text"),
        (np.zeros(2), np.zeros((2, 3)), PatternError, "a layout is text"),
        ("bhwc", np.zeros((2, 3)), ShapeError, "rank 4"),
        ("bhwc", np.zeros((2, 3, 4, 5, 6)), ShapeError, "rank 4"),
        ("b", np.array(3.0), ShapeError, "rank 1"),
        ("b", np.array(["a"], object), DtypeError, "cannot be moved"),
        ("b", [1.0, 2.0], ArgumentError, r"numpy.asarray\(array\)"),
        ("b", None, ArgumentError, "array is None"),
        (np.zeros(2), "b", ArgumentError, "array is a str"),
        ("b", np.ma.zeros(3), ArgumentError, "masked"),
    ],
)
def test_puts_that_are_refused(layout, array, error, words):
    full = ImageView("bhwc", IMAGES)
    empty = ImageView()
    full.forward_get("bf")
    full.backward_put("bf", np.ones((8, 24)))
    full.backward_get()
    for view in (full, empty):
        with check_error(error, words, view):
            view.forward_put(layout, array)
    np.testing.assert_array_equal(full.backward_get(), np.ones(IMAGES.shape))


def test_a_base_of_too_few_axes_after_one_that_was_right():
    """Without the last axis, b, all sizes of a sample are equal."""
    view = DataView("fb", np.zeros((3, 5)))
    with check_error(ShapeError, "rank 2", view):
        view.forward_put("fb", np.zeros(3))


def test_half_a_constructor_call():
    for arguments in (("bhwc",), ("bhwc", None), (None, IMAGES)):
        with pytest.raises(ArgumentError, match="is missing"):
            ImageView(*arguments)


G = np.zeros(2)
USES = {
    "forward_get": lambda view: view.forward_get(),
    "forward": lambda view: view.forward("bf", "f4"),
    "nonsense": lambda view: view.forward_get("!", "nonsense"),
    "backward_put": lambda view: view.backward_put("b", G),
    "backward_get": lambda view: view.backward_get(),
    "index": lambda view: view.index([0]),
    "sub": lambda view: view.sub(0, 1),
    "replace": lambda view: view.replace("b", G),
    "batches": lambda view: view.batches(2),
    "flush": lambda view: view.flush(),
    "input": lambda view: view.input,
    "set input": lambda view: setattr(view, "input", G),
    "layout": lambda view: view.layout,
    "dtype": lambda view: view.dtype,
    "device": lambda view: view.device,
    "len": len,
    "converter": lambda view: view.converter("b"),
    "bf": lambda view: view.bf(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("kind", [DataView, ImageView, SequenceView, ClassView])
def test_anything_before_the_first_put(kind, use):
    view = kind()
    with check_error(ViewError, "holds no batch yet", view):
        use(view)
    view.forward_put("b", G)
    assert view.forward_get() is G


def test_the_batch_axis_may_be_called_n():
    x = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    view = ImageView("NHWC", x)
    planes = view.forward_get("NCHW", "float32")
    np.testing.assert_array_equal(planes, x.transpose(0, 3, 1, 2))
    assert planes is view.forward_get("bchw", "float32")
    np.testing.assert_array_equal(view.forward_get("(nhw)c"), x.reshape(-1, 3))
    view.backward_put("nchw", np.ones_like(planes))
    assert view.backward_get().shape == x.shape
    view.forward_put("nhwc", x[:1])
    assert view.forward_get("NHWC").shape == (1, 4, 5, 3)
    with pytest.raises(PatternError, match="name one axis b or n"):
        ImageView("chw", x[0])


@pytest.mark.parametrize(
    ("source", "target", "rule"),
    [("f4", "u1", "saturate"), ("f4", "bool", "unsafe"), ("c8", "f4", "unsafe")],
)
def test_refused_casts_name_the_rule_of_convert_that_allows_them(source, target, rule):
    view = DataView("bc", np.zeros((2, 3), source))
    with pytest.raises(DtypeError, match=f'views have no other; use convert.*casting="{rule}"'):
        view.forward_get("bc", target)
