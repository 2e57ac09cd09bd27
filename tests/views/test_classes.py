"""Labels: indices from 0, the primary class first, one-hot and many-hot."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    ArraySpec,
    ClassView,
    DataError,
    DtypeError,
    ShapeError,
    ViewError,
    accumulate,
)
from layoutkit.views.classview import FirstColumn
from tests.helpers.arrays_of import BF16, LAYINGS, assert_same, laid
from tests.helpers.reference import reference_convert
from tests.helpers.views_state import check_error, state

pytestmark = pytest.mark.budget(6)

NAMES = ["cat", "dog", "emu", "fox"]
ONE = np.array([3, 0, 2, 3, 0, 1, 2, 0])
TWO = np.array([[3, 1], [2, 0], [1, 2], [2, 2]])
RNG = np.random.default_rng(0)


# ---- results -----------------------------------------------------------------------------


def test_one_label_a_sample():
    view = ClassView("b", ONE, NAMES)
    assert view.forward_get("b") is ONE
    assert_same(view.forward_get("bt"), ONE.reshape(8, 1))
    assert np.shares_memory(view.forward_get("bt"), ONE)
    assert_same(view.forward_get("bt", "f4"), ONE.reshape(8, 1).astype("f4"))


@pytest.mark.parametrize("how", LAYINGS)
def test_the_first_column_is_the_primary_class(how):
    for layout, x in (("bt", laid(TWO.copy(), how)), ("tb", laid(TWO.T.copy(), how))):
        x = np.asarray(x)
        first = (x[:, 0] if layout == "bt" else x[0]).copy()
        for dtype in (None, "f8", "i2"):
            view = ClassView(layout, x)
            got = view.forward_get("b", dtype)
            assert_same(got, first.astype(dtype or x.dtype))
            assert got.flags.c_contiguous
            assert view.forward_get("b", dtype) is got
            assert_same(view.forward_get("bt"), np.ascontiguousarray(x if layout == "bt" else x.T))


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_the_first_columns_converter(columns):
    x = RNG.random((6, columns))
    for layout, base in (("bt", x), ("tb", x.T.copy())):
        view = ClassView(layout, base)
        first = view.b()
        assert_same(first(base), x[:, 0].copy())
        out = np.zeros(6)
        assert first(base, out) is out
        assert_same(out, x[:, 0].copy())
        assert view.b("f4")(base).dtype == np.float32
        grad = RNG.random(6)
        wanted = np.zeros((6, columns))
        wanted[:, 0] = grad
        wanted = wanted if layout == "bt" else wanted.T.copy()
        assert_same(first.backward(grad), wanted)
        assert_same(first.backward(grad.astype("f4"), like=base), wanted.astype("f4").astype("f8"))
        spec = ArraySpec(layout, base.shape, "f4")
        assert_same(first.backward(grad, like=spec), wanted.astype("f4"))
        full = np.full(base.shape, 7.0)
        assert first.backward(grad, out=full) is full
        assert_same(full, wanted)
        integers = np.zeros(base.shape, int)
        assert_same(first.backward(grad, like=integers), wanted)
        more = x[:4] if layout == "bt" else base[:, :4]
        assert_same(first(more), x[:4, 0].copy())  # any number of samples


def test_misuse_of_the_first_columns_converter():
    first = ClassView("bt", TWO).b()
    grad = np.ones(4)
    full = np.full((4, 2), 7.0)
    shut = np.full((4, 2), 7.0)
    shut.flags.writeable = False
    for call, error, words in (
        (lambda: first(ONE), ShapeError, "rank 2"),
        (lambda: first([1]), ArgumentError, "x is a list"),
        (lambda: first(np.zeros((4, 0), int)), ShapeError, "no first column"),
        (lambda: first(TWO, full[:, 0]), DtypeError, "out has dtype float64"),
        (lambda: first(TWO, TWO[:, 1]), ArgumentError, "out shares memory with x"),
        (
            lambda: first.backward(np.ones(4, int)),
            DtypeError,
            "give a gradient of a floating dtype",
        ),
        (lambda: first.backward([1.0]), ArgumentError, "grad is a list"),
        (lambda: first.backward(np.ones((4, 1))), ShapeError, "rank 1"),
        (lambda: first.backward(grad, like=TWO[:3]), ShapeError, "pass the gradient of that"),
        (lambda: first.backward(grad, like=grad), ShapeError, "rank 2"),
        (lambda: first.backward(np.ones(3), out=full), ShapeError, "out has shape"),
        (lambda: first.backward(grad, out=shut), ArgumentError, "read-only"),
        (lambda: first.backward(full[:, 0], out=full), ArgumentError, "shares memory with grad"),
        (lambda: first.backward(grad, out=np.zeros((4, 2), int)), DtypeError, "not allowed"),
        (
            lambda: first.backward(grad, like=full, out=np.zeros((4, 2), "f4")),
            DtypeError,
            "out has dtype float32",
        ),
        (lambda: FirstColumn("bt", columns=0), ShapeError, "give every sample a class"),
    ):
        with check_error(error, words):
            call()
    assert (full == 7).all()
    assert (shut == 7).all()


def test_the_primary_class_of_a_column_that_stands_alone():
    """Layouts with other axes use an ordinary Converter."""
    view = ClassView("bt", TWO[:, :1].copy())
    assert view.forward_get("b").tolist() == [3, 2, 1, 2]
    assert ClassView("bwt", TWO.reshape(4, 1, 2)).forward_get("bt").tolist() == TWO.tolist()
    with check_error(ShapeError, "would be lost"):
        ClassView("bwt", TWO.reshape(4, 1, 2)).forward_get("b")


# ---- gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bt", "tb"])
def test_the_gradient_goes_to_the_first_column(layout):
    x = np.ones((4, 3)) if layout == "bt" else np.ones((3, 4))
    view = ClassView(layout, x)
    grad = RNG.random(4)
    view.forward_get("b")
    view.backward_put("b", grad)
    wanted = reference_convert(np.pad(grad[:, None], ((0, 0), (0, 2))), f"bt->{layout}")
    assert_same(view.backward_get(), wanted)
    view.backward_put("b", grad)
    assert_same(view.backward_get(), 2 * wanted)


def test_the_gradient_of_integer_labels():
    view = ClassView("bt", TWO)
    view.forward_get("b"), view.forward_get("b", "f4")
    view.backward_put("b", np.ones(4, "f4"))
    assert_same(view.backward_get(), np.pad(np.ones((4, 1), "f4"), ((0, 0), (0, 1))))
    view.backward_put("b", np.ones(4, "f8"))
    assert view.backward_get().dtype == np.float64


@pytest.mark.budget(0)
@settings(derandomize=True, database=None)
@given(
    st.lists(st.sampled_from(["b", "bt", "tb"]), min_size=2, max_size=6),
    st.sampled_from(["bt", "tb"]),
    st.lists(st.sampled_from(["f4", "f8"]), min_size=6, max_size=6),
    st.sampled_from([1, 2, 9]),  # of 3 and 4 there are kernels more
    st.integers(0, 9),
)
def test_sums_of_both_are_exact_from_left_to_right(layouts, base, dtypes, columns, seed):
    """Column 0 is the sum of all gradients, the others the sum of the full ones."""
    rng = np.random.default_rng(seed)
    x = np.zeros((5, columns) if base == "bt" else (columns, 5), "f4")
    view = ClassView(base, x)
    wanted = None
    precise = "f8" if "f8" in dtypes[: len(layouts)] else "f4"
    for layout, dtype in zip(layouts, dtypes, strict=False):
        shape = view.forward_get(layout, dtype).shape
        grad = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 6)).astype(dtype)
        view.backward_put(layout, grad)
        part = np.zeros((5, columns), precise)
        if layout == "b":
            part[:, 0] = grad
        else:
            part[...] = grad if layout == "bt" else grad.T
        wanted = part if wanted is None else wanted + part
    total = view.backward_get()
    np.testing.assert_array_equal(total if base == "bt" else total.T, wanted.astype("f4"))
    assert total.dtype == np.float32


def test_a_sum_of_first_columns_only():
    view = ClassView("bt", np.zeros((4, 2)))
    grads = [RNG.random(4) for _ in range(3)]
    view.forward_get("b")
    for grad in grads:
        view.backward_put("b", grad)
    assert_same(view.backward_get()[:, 0].copy(), accumulate([(g, "b") for g in grads], "b"))
    assert (view.backward_get()[:, 1] == 0).all()


# ---- one-hot and many-hot ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "?", BF16, "i8", "c8"])
@pytest.mark.parametrize("labels", ["i1", "u1", "i8", "u8", ">i4"])
def test_hot_arrays(dtype, labels):
    for layout, x in (("bt", TWO), ("tb", TWO.T), ("b", ONE)):
        view = ClassView(layout, x.astype(labels), NAMES)
        one = np.zeros((len(view), 4))
        many = np.zeros((len(view), 4))
        for start in range(len(view)):
            ranks = x[:, start] if layout == "tb" else np.atleast_1d(x[start])
            one[start, ranks[0]] = 1
            many[start, list(ranks)] = 1
        assert_same(view.one_hot(dtype), one.astype(dtype))
        assert_same(view.many_hot(dtype), many.astype(dtype))
    assert view.one_hot().dtype == view.many_hot().dtype == np.float32


def test_hot_arrays_change_nothing_and_nobody_shares_them():
    view = ClassView("bt", TWO, 4)
    before = state(view)
    first = view.one_hot()
    first[...] = 9
    assert set(view.one_hot().ravel()) == set(view.many_hot().ravel()) == {0, 1}
    assert state(view) == before


def test_bool_labels_and_no_samples():
    view = ClassView("b", np.array([True, False]), 2)
    assert view.one_hot("u1").tolist() == [[0, 1], [1, 0]]
    empty = ClassView("bt", np.zeros((0, 2), int), 3)
    assert empty.one_hot().shape == empty.many_hot().shape == (0, 3)
    none = ClassView("bt", np.zeros((2, 0), int), 3)
    assert none.many_hot("u1").tolist() == [[0, 0, 0], [0, 0, 0]]
    with check_error(ShapeError, "give every sample a class", none):
        none.one_hot()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0, 4, 9]), "label 4 of sample 1.* is not one of 4 classes; .* from 0 to 3"),
        (np.array([0, 1, -1]), "label -1 of sample 2.* is not one of 4 classes"),
        (np.array([2**63], "u8"), "label 9223372036854775808 of sample 0"),
    ],
)
def test_labels_out_of_range(labels, words):
    view = ClassView("b", labels, 4)
    for make in (view.one_hot, view.many_hot):
        with check_error(DataError, words, view):
            make()


def test_places_of_labels_out_of_range():
    labels = TWO.copy()
    labels[2, 1] = 7
    view = ClassView("bt", labels, NAMES)
    with check_error(DataError, "label 7 of sample 2, column 1 is not one of 4 classes", view):
        view.many_hot()
    assert view.one_hot().sum() == 4  # the primary classes are all in order


def test_hot_arrays_that_are_refused():
    view = ClassView("b", ONE)
    with check_error(ViewError, "has no classes; set view.classes", view):
        view.one_hot()
    for labels in (ONE.astype("f4"), ONE.astype("c8"), ONE.astype("M8[s]")):
        floating = ClassView("b", labels, 4)
        with check_error(DtypeError, "give ranks into classes, which are integers", floating):
            floating.one_hot()
    named = ClassView("b", ONE, NAMES)
    for dtype, words in (("M8[s]", "make numbers"), ("no", "is not a dtype"), (None, "None")):
        with check_error(DtypeError, words, named):
            named.many_hot(dtype)
    with check_error(ViewError, "holds no batch yet"):
        ClassView(classes=3).one_hot()


# ---- classes -----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [NAMES, tuple(NAMES), range(4), 4, np.int8(4), np.arange(4)])
def test_classes_are_kept_and_carried_along(classes):
    view = ClassView("bt", TWO, classes)
    out = ClassView("bt", TWO[:1], 2)
    parts = [view.index([0]), view.sub(0, 1), view.sub(0, 1, copy=False), *view.batches(3)]
    parts += [view.sub(1, 2, out=out), view.index([1], out=ClassView())]
    view.flush()
    for part in (view, *parts):
        assert part.classes is classes
        assert part.one_hot().shape[1] == 4
    view.forward_put("b", ONE)
    view.replace("bt", ONE[:2].reshape(2, 1))
    assert view.classes is classes
    ClassView("bt", TWO).sub(0, 1, out=out)
    assert out.classes is None


@pytest.mark.parametrize(
    "classes", ["abcd", "", b"ab", 0, -1, [], (), 4.0, True, {1, 2}, np.array(3.0)]
)
def test_classes_that_are_none(classes):
    with pytest.raises(ArgumentError, match="give a sequence of at least one class"):
        ClassView("b", ONE, classes)
    view = ClassView("b", ONE, NAMES)
    with check_error(ArgumentError, "classes is", view):
        view.classes = classes
    view.classes = None
    assert view.classes is None


# ---- replace -----------------------------------------------------------------------------


def test_replacing_the_only_column():
    for layout in ("bt", "tb"):
        view = ClassView(layout, np.ones((3, 1) if layout == "bt" else (1, 3)))
        view.replace("b", np.array([5.0, 6, 7, 8]))
        assert view.forward_get("b").tolist() == [5, 6, 7, 8]
        assert view.input.shape == ((4, 1) if layout == "bt" else (1, 4))


def test_replacing_one_of_several_columns():
    """The original set the other columns to zero."""
    view = ClassView("bt", TWO, NAMES)
    with check_error(ShapeError, "b has the first column only", view):
        view.replace("b", np.zeros(4, int))
    view.replace("tb", TWO.T[:, :2])
    assert view.input.tolist() == TWO[:2].tolist()
    one = ClassView("b", ONE)
    one.replace("bt", ONE.reshape(8, 1))
    assert one.input.tolist() == ONE.tolist()
    with check_error(ShapeError, "would be lost", one):
        one.replace("bt", TWO)
