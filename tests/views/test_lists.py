"""ListView: several views as one batch; a call changes all of them or none."""

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    BackwardError,
    ClassView,
    Converter,
    DataView,
    DtypeError,
    ImageView,
    ListView,
    PatternError,
    SequenceView,
    ShapeError,
    ViewError,
)
from tests.helpers.arrays_of import assert_same
from tests.helpers.views_state import check_error, state

RNG = np.random.default_rng(0)
IMAGES = RNG.random((5, 3, 4, 2))
WORDS = RNG.random((5, 2, 6))
LABELS = np.array([[0, 1], [2, 1], [1, 1], [0, 0], [2, 2]])
LAYOUTS = ("bhwc", ("bwc", "bt"))
ARRAYS = (IMAGES, (WORDS, LABELS))


def nested():
    """Return a ListView of images and a nested list of sentences and labels, with a batch."""
    view = ListView([ImageView(), ListView([SequenceView(), ClassView(classes=3)])])
    view.forward_put(LAYOUTS, ARRAYS)
    return view


# ---- forward and backward ------------------------------------------------------------------


def test_arrays_and_results_nest_as_the_components_do():
    view = nested()
    assert view.input[0] is IMAGES
    assert view.input[1][0] is WORDS
    assert view.input[1][1] is LABELS
    assert view.layout == LAYOUTS
    assert view.dtype == (IMAGES.dtype, (WORDS.dtype, LABELS.dtype))
    assert (view.device, len(view)) == ("cpu", 5)
    images, (words, labels) = view.forward_get(("bchw", ("bf", "b")), ("f4", (None, "i4")))
    assert_same(images, IMAGES.transpose(0, 3, 1, 2).astype("f4"))
    assert_same(words, WORDS.reshape(5, 12))
    assert_same(labels, LABELS[:, 0].astype("i4"))
    assert isinstance(view.forward_get(), tuple)
    assert isinstance(view.forward_get()[1], tuple)


def test_one_layout_or_dtype_is_for_all_below():
    view = nested()
    images, (words, labels) = view.forward_get("bf", ["f4", "f8"])
    assert [y.shape for y in (images, words, labels)] == [(5, 24), (5, 12), (5, 2)]
    assert [y.dtype for y in (images, words, labels)] == [np.float32, np.float64, np.float64]
    pair = ListView([DataView(), DataView()])
    pair.forward_put("bf", [WORDS[0], WORDS[1]])
    assert pair.layout == ("bf", "bf")
    assert pair.forward_get("fb")[1].shape == (6, 2)


def test_results_are_those_of_the_components():
    view = nested()
    first = view.forward_get("bf")
    image, pair = view.components
    assert view.forward_get("b f")[0] is first[0]
    assert image.forward_get("bf") is first[0]
    assert pair.components[0].forward_get("b(wc)") is first[1][0]
    image.forward_put("bhwc", IMAGES + 1)  # on its own
    assert view.forward_get("bf")[0] is not first[0]
    assert view.forward_get("bf")[1][0] is first[1][0]


def test_converters_nest():
    image, (words, labels) = nested().converter(("bchw", ("bcw", "b")), "f8")
    assert (image.pattern, words.pattern) == ("bhwc->bchw", "bwc->bcw")
    assert isinstance(image, Converter)
    assert labels(LABELS).tolist() == [0, 2, 1, 0, 2]


def test_gradients_of_all_components():
    view = nested()
    got = view.forward_get(("bchw", ("bf", "b")), "f8")
    for _ in range(2):
        view.backward_put(("bchw", ("bf", "b")), (got[0], (got[1][0], np.ones(5))))
    view.backward_put(None, [IMAGES, [WORDS, np.zeros((5, 2))]])
    images, (words, labels) = view.backward_get()
    np.testing.assert_allclose(images, 3 * IMAGES)
    np.testing.assert_allclose(words, 3 * WORDS)
    assert labels.tolist() == [[2, 0]] * 5
    assert view.backward_get(LAYOUTS)[1][0] is words
    assert [y.dtype for y in view.backward_get(None, ("f4", "f2"))[1]] == [np.float16] * 2


def test_forward_and_backward_look_at_the_first_leaf():
    view = nested()
    assert view.forward(LAYOUTS, [IMAGES, [WORDS, LABELS]]) is None
    assert view.forward()[0] is IMAGES
    assert view.forward("bf", ("f4", None))[0].dtype == np.float32
    assert view.forward("bf", (None, "f4"))[1][0].dtype == np.float32
    assert view.backward(None, (IMAGES, (WORDS, np.ones((5, 2))))) is None
    assert view.backward()[0] is IMAGES
    assert view.backward(LAYOUTS, ("f4", None))[0].dtype == np.float32


# ---- samples -----------------------------------------------------------------------------


def assert_samples(part, rows):
    assert (type(part), len(part)) == (ListView, len(IMAGES[rows]))
    assert_same(part.input[0].copy(), IMAGES[rows].copy())
    assert_same(part.input[1][0].copy(), WORDS[rows].copy())
    assert_same(part.input[1][1].copy(), LABELS[rows].copy())
    image, pair = part.components
    kinds = [type(v) for v in (image, pair, *pair.components)]
    assert kinds == [ImageView, ListView, SequenceView, ClassView]
    assert pair.components[1].classes == 3


def test_index_and_sub():
    view = nested()
    assert_samples(view.index([4, 0, -1]), [4, 0, -1])
    assert_samples(view.sub(1, 99), slice(1, 99))
    assert_samples(view.sub(-3, -1), slice(-3, -1))
    window = view.sub(1, 3, copy=False)
    assert_samples(window, slice(1, 3))
    for part, full, shared in (
        (window, view, True), (view.sub(1, 3), view, False), (view.index([1]), view, False),
    ):  # fmt: skip
        assert np.shares_memory(part.input[0], full.input[0]) is shared
        assert np.shares_memory(part.input[1][1], full.input[1][1]) is shared


def test_batches():
    view = nested()
    parts = list(view.batches(2))
    assert [len(part) for part in parts] == [2, 2, 1]
    for start, part in zip((0, 2, 4), parts, strict=True):
        assert_samples(part, slice(start, start + 2))
    with check_error(ArgumentError, "batch_size=0", view):
        view.batches(0)


def test_out():
    view = nested()
    out = nested()
    plans = [leaf._batch.plans for leaf in out._leaves]
    held = out.input[0].copy()
    assert view.index([3, 1], out=out) is out
    assert_samples(out, [3, 1])
    assert view.sub(0, 2, out, copy=False) is out
    assert_samples(out, slice(0, 2))
    assert view.index([4], out=out) is out
    assert [leaf._batch.plans for leaf in out._leaves] == plans
    assert_same(IMAGES, held)
    empty = ListView([ImageView(), ListView([SequenceView(), ClassView()])])
    assert_samples(view.sub(1, 2, out=empty), slice(1, 2))


def test_outs_that_are_refused():
    view = nested()
    other = nested()
    image, pair = other.components
    flat = ListView([ImageView(), SequenceView(), ClassView()])
    short = ListView([ImageView(), ListView([SequenceView()])])
    kinds = ListView([ImageView(), ListView([ClassView(), SequenceView()])])
    swapped = ListView([ListView([SequenceView(), ClassView()]), ImageView()])
    planes = ListView([ImageView("bchw", IMAGES), ListView([SequenceView(), ClassView()])])
    shared = ListView([ImageView(), view.components[1]])
    for out, words in (
        (view, "component of this view"), (shared, "component of this view"),
        (flat, "nest otherwise"), (short, "equal components"), (swapped, "nest otherwise"),
        (kinds, r"component \[1\]\[0\]: out is a ClassView"), (image, "equal components"),
        (planes, r"component \[0\]: out is in layout bchw"), (IMAGES, "equal components"),
        (pair, "equal components"),
    ):  # fmt: skip
        seen = [out] if isinstance(out, ListView) else []
        with check_error(ViewError, words, view, *seen):
            view.index([0], out=out)
        with check_error(ViewError, words, view, *seen):
            view.sub(0, 1, out=out)


# ---- replace, input, flush -----------------------------------------------------------------


def test_replace_and_input():
    view = nested()
    images, (words, labels) = view.forward_get(("bchw", ("bf", "bt")))
    view.replace(("bchw", ("bf", "tb")), (images[:4] * 2, (words[1:], labels[1:].T)))
    np.testing.assert_array_equal(view.input[0], IMAGES[:4] * 2)
    np.testing.assert_array_equal(view.input[1][0], WORDS[1:])
    np.testing.assert_array_equal(view.input[1][1], LABELS[1:])
    assert view.layout == LAYOUTS
    view.input = ARRAYS
    assert_samples(view, slice(None))


def test_flush():
    view = nested()
    before = view.forward_get("bf")
    view.backward_put("bf", (before[0], (before[1][0], np.ones((5, 2)))))
    view.flush()
    assert_samples(view, slice(None))
    assert view.forward_get("bf")[0] is not before[0]
    with check_error(BackwardError, r"component \[0\]: no gradient", view):
        view.backward_get()


# ---- all or none -------------------------------------------------------------------------

FLOATS = LABELS.astype("f8")


@pytest.mark.parametrize(
    ("layouts", "arrays", "error", "words"),
    [
        (LAYOUTS, (IMAGES,), ShapeError, "arrays: 1 given for 2 components"),
        (LAYOUTS, (IMAGES, (WORDS, LABELS), IMAGES), ShapeError, "arrays: 3 given for 2"),
        (LAYOUTS, (IMAGES, (WORDS,)), ShapeError, "arrays: 1 given for 2 components"),
        (LAYOUTS, (IMAGES, WORDS), ShapeError, "arrays: a ndarray given for 2 components"),
        (LAYOUTS, IMAGES, ShapeError, "arrays: a ndarray given"),
        (LAYOUTS, None, ShapeError, "arrays: a NoneType given"),
        (LAYOUTS, iter(ARRAYS), ShapeError, "arrays: a tuple_iterator given"),
        (("bhwc",), ARRAYS, ShapeError, "layouts: 1 given for 2"),
        (("bhwc", ("bwc", "bt", "b")), ARRAYS, ShapeError, "layouts: 3 given for 2"),
        (LAYOUTS, (IMAGES, (WORDS, LABELS[:4])), ShapeError, "the arrays have 5, 5, 4 samples"),
        (LAYOUTS, (IMAGES, (WORDS, None)), ArgumentError, r"component \[1\]\[1\]: array is None"),
        (LAYOUTS, (IMAGES, (WORDS, [LABELS])), ArgumentError, r"\[1\]\[1\]: array is a list"),
        (LAYOUTS, (IMAGES, (WORDS, LABELS[0])), ShapeError, r"component \[1\]\[1\]: layout bt"),
        ("bhwc", ARRAYS, ShapeError, r"component \[1\]\[0\]: layout bhwc"),
        (("bhwc", "bx!"), ARRAYS, PatternError, r"component \[1\]\[0\]: cannot read"),
        (("bhwc", ("bwc", ["bt"])), ARRAYS, PatternError, "a layout is text"),
        (LAYOUTS, (IMAGES, (WORDS, FLOATS.astype(object))), DtypeError, "cannot be moved"),
    ],
)
def test_puts_that_are_refused_change_no_component(layouts, arrays, error, words):
    full = nested()
    full.forward_get("bf")
    empty = ListView([ImageView(), ListView([SequenceView(), ClassView()])])
    for view in (full, empty):
        with check_error(error, words, view):
            view.forward_put(layouts, arrays)
    error = PatternError if layouts == "bhwc" else error  # a layout that no bwc can become
    with check_error(error, "component|given|samples", full):
        full.replace(layouts, arrays)


def test_gets_that_are_refused_get_nothing():
    view = nested()
    for layouts, dtypes, error, words in (
        (("bchw", ("bcw", "bcw")), None, PatternError, r"component \[1\]\[1\]: a base in bt"),
        (("bchw", "b"), None, ShapeError, r"component \[1\]\[0\]: "),
        ("bf", ("f4", ("f4", "u1")), DtypeError, r"component \[1\]\[1\]: int64 to uint8"),
        (("bchw", ("bcw",)), None, ShapeError, "layouts: 1 given for 2"),
        ("bf", ("f4",), ShapeError, "dtypes: 1 given for 2"),
    ):
        with check_error(error, words, view):
            view.forward_get(layouts, dtypes)
        with check_error(error, words, view):
            view.converter(layouts, dtypes)


def test_gradients_that_are_refused_change_no_component():
    view = nested()
    view.forward_get("bf", "f8")
    flat = np.ones((5, 24))
    words = np.ones((5, 12))
    labels = np.ones((5, 2))
    for layouts, grads, error, message in (
        ("bf", (flat, (words, labels[:4])), BackwardError, r"component \[1\]\[1\]: a gradient"),
        ("bf", (flat, (words.astype("f4"), labels)), BackwardError, r"component \[1\]\[0\]: "),
        (("bf", ("bcw", "bt")), (flat, (WORDS, labels)), BackwardError, r"\[1\]\[0\]: a grad"),
        ("bf", (flat, (words,)), ShapeError, "gradients: 1 given"),
        ("bf", flat, ShapeError, "gradients: a ndarray given"),
        (("bf",), (flat, (words, labels)), ShapeError, "layouts: 1 given"),
        ("bf", (flat, (words, None)), ArgumentError, "grad is None"),
    ):
        with check_error(error, message, view):
            view.backward_put(layouts, grads)
    view.components[0].backward_put("bf", flat)
    with check_error(BackwardError, r"component \[1\]\[0\]: no gradient", view):
        view.backward_get()
    view.components[1].backward_put("bf", (words, labels))
    assert view.backward_get()[0].shape == IMAGES.shape
    with check_error(BackwardError, r"component \[0\]: gradients add up in the base's", view):
        view.backward_get("bf")
    with check_error(DtypeError, "floating", view):
        view.backward_get(None, "i4")


def test_samples_that_are_refused():
    view = nested()
    out = nested()
    for call, error, words in (
        (lambda: view.index([5], out=out), ShapeError, "index 5 at position 0"),
        (lambda: view.index([0.5], out=out), ArgumentError, "whole numbers"),
        (lambda: view.sub("a", 1, out=out), ArgumentError, "start is"),
    ):
        with check_error(error, words, view, out):
            call()


# ---- how it is made ----------------------------------------------------------------------


def test_components():
    first = ImageView()
    second = ClassView()
    assert ListView(v for v in (first, second)).components == (first, second)
    for components, words in (
        ([], "at least one"), (3, "at least one"), ([first, IMAGES], "is a ndarray; give views"),
        ([first, [second]], r"component \[1\] is a list"), ([first, first], "twice"),
        ([first, ListView([second, ListView([first])])], "twice"),
    ):  # fmt: skip
        with check_error(ArgumentError, words, first, second):
            ListView(components)


def test_components_of_different_lengths():
    long = DataView("b", np.ones(5))
    short = DataView("b", np.ones(2))
    with check_error(ShapeError, "the components have 5, 2 samples", long, short):
        ListView([long, short])
    view = ListView([long, DataView()])
    view.components[1].forward_put("b", np.ones(3))
    for use in (len, lambda v: v.index([0]), lambda v: v.sub(0, 1), lambda v: v.batches(2)):
        with check_error(ShapeError, "the components have 5, 3 samples", view):
            use(view)
    assert "(3,)" in repr(view)
    view.forward_put("b", (np.ones(4), np.ones(4)))
    assert len(view) == 4


def test_before_the_first_put():
    view = ListView([ImageView("bhwc", IMAGES), ListView([ClassView()])])
    for use in (
        view.forward_get, view.backward_get, view.flush, view.__len__, lambda: view.index([0]),
        lambda: view.sub(0, 1), lambda: view.batches(1), lambda: view.input, lambda: view.layout,
        lambda: view.dtype, lambda: view.device, lambda: view.converter("bf"),
        lambda: view.replace("bf", (IMAGES, (LABELS,))),
        lambda: view.backward_put("bhwc", (IMAGES, (LABELS,))),
    ):  # fmt: skip
        with check_error(ViewError, "ClassView holds no batch yet", view):
            use()
    assert state(view)[1] == [[None, None, {}]]


def test_a_state_that_was_pickled_before_components_were_kept_as_a_nest():
    components = nested().components
    leaves = (components[0], *components[1].components)
    view = ListView.__new__(ListView)
    view.__setstate__({"_components": components, "_leaves": leaves, "_joined": ([], {})})
    assert view.layout == LAYOUTS
    assert view.forward_get("bf")[1][0].shape == (5, 12)
    assert len(view.batch.parts) == 3
