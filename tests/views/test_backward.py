"""Gradients: valid puts, values and dtypes of the sum, and finite differences."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    BackwardError,
    ClassView,
    DataView,
    DtypeError,
    ImageView,
    PatternError,
    SequenceView,
    accumulate,
)
from tests.helpers.arrays_of import BF16, assert_same, laid
from tests.helpers.reference import reference_convert
from tests.helpers.views_state import check_error

pytestmark = pytest.mark.budget(3)

RNG = np.random.default_rng(0)
SHAPE = (8, 3, 4, 2)
X = RNG.standard_normal(SHAPE)
LAYOUTS = ["bhwc", "bchw", "chwb", "b(hwc)", "(chw)b"]


def consumed(x, layouts, dtypes, base="bhwc", kind=ImageView):
    """Return a view of x, results in layouts and dtypes, and a gradient for each."""
    view = kind(base, x)
    grads = []
    for layout, dtype in zip(layouts, dtypes, strict=True):
        y = view.forward_get(layout, dtype)
        grads.append(RNG.standard_normal(y.shape).astype(y.dtype))
    return view, grads


def brought_back(grad, layout, base="bhwc"):
    """Return the gradient of a batch of SHAPE in the base's layout, by the reference."""
    sizes = dict(zip("hwc", SHAPE[1:], strict=True))
    folded = {letter: size for letter, size in sizes.items() if "(" in layout}
    return reference_convert(grad, f"{layout}->{base}", **folded)


# ---- one gradient ------------------------------------------------------------------------


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [*itertools.product(LAYOUTS, ["f8", "f4"]), ("bhwc", "f2"), ("bhwc", BF16), ("bchw", "f2")],
)
def test_one_gradient_is_moved_and_cast(layout, dtype):
    view, (grad,) = consumed(X, [layout], [dtype])
    view.backward_put(layout, grad)
    total = view.backward_get()
    assert_same(total, brought_back(grad, layout).astype("f8"))
    assert view.backward_get() is total
    assert view.backward_get("b h w c") is total
    assert view.backward_get("bhwc", "float64") is total


def test_a_gradient_of_the_base_comes_back_itself():
    view = ImageView("bhwc", X)
    grad = np.ones(SHAPE)
    view.backward_put("bhwc", grad)  # without a get
    assert view.backward_get() is grad
    other = ImageView("bhwc", X)
    other.backward_put(None, grad)
    assert other.backward_get() is grad


def test_a_fold_of_a_gradient_is_not_copied():
    view, (grad,) = consumed(X, ["bf"], [None])
    view.backward_put("bf", grad)
    assert np.shares_memory(view.backward_get(), grad)


def test_a_gradient_is_put_by_reference():
    view, (grad,) = consumed(X, ["bchw"], [None])
    view.backward_put("bchw", grad)
    grad[...] = 3
    assert (view.backward_get() == 3).all()


@pytest.mark.parametrize("how", ["fortran", "backward", "sliced", "unaligned", "readonly"])
def test_gradients_of_any_strides(how):
    for layouts in (["bchw"], ["bhwc"], ["bchw", "bf"]):
        view, grads = consumed(X, layouts, [None] * len(layouts))
        wanted = 0
        for layout, grad in zip(layouts, grads, strict=True):
            wanted += brought_back(grad, "b(hwc)" if layout == "bf" else layout)
        for layout, grad in zip(layouts, grads, strict=True):
            view.backward_put(layout, laid(grad, how))
        np.testing.assert_array_equal(view.backward_get(), wanted)


# ---- sums --------------------------------------------------------------------------------


@pytest.mark.parametrize("layouts", list(itertools.permutations(LAYOUTS, 3)))
def test_gradients_are_added_from_left_to_right(layouts):
    x = X.astype("f4")
    view, grads = consumed(x, layouts, [None] * 3)
    grads = [grad * 10**number for number, grad in enumerate(grads)]
    for layout, grad in zip(layouts, grads, strict=True):
        view.backward_put(layout, grad)
    first, second, third = (brought_back(g, n) for g, n in zip(grads, layouts, strict=True))
    assert_same(view.backward_get(), (first + second) + third)


def test_every_put_counts_and_a_later_one_adds():
    view, (grad,) = consumed(X, ["bchw"], [None])
    back = brought_back(grad, "bchw")
    for number in range(1, 5):
        view.backward_put("bchw", grad)
        total = view.backward_get()
        np.testing.assert_allclose(total, number * back)
        assert view.backward_get() is total
    np.testing.assert_allclose(view.backward_get(dtype="f4"), 4 * back, rtol=1e-6)
    assert view.backward_get(dtype="f4") is view.backward_get(dtype=np.float32)


def test_gradients_are_not_written():
    view, grads = consumed(X, ["bchw", "bf"], [None, "f4"])
    before = [grad.copy() for grad in grads]
    view.backward_put("bchw", grads[0])
    view.backward_put("bf", grads[1])
    view.backward_get()[...] = 0
    for grad, was in zip(grads, before, strict=True):
        assert_same(grad, was)


BEGINNINGS = {
    "put": lambda view: view.forward_put("bhwc", X),
    "flush": lambda view: view.flush(),
    "replace": lambda view: view.replace("bhwc", X),
    "replace a fold": lambda view: view.replace("bf", X.reshape(8, 24)),
    "input": lambda view: setattr(view, "input", X),
    "sub": lambda view: ImageView("bhwc", X).sub(0, 8, out=view),
    "index": lambda view: ImageView("bhwc", X).index(range(8), out=view),
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_new_batch_begins_without_gradients_and_results(begin):
    view, (grad,) = consumed(X, ["bchw"], [None])
    view.backward_put("bchw", grad)
    view.backward_get()
    begin(view)
    np.testing.assert_array_equal(view.forward_get(), X)
    with check_error(BackwardError, "no gradient was put", view):
        view.backward_get()
    with check_error(BackwardError, "no result of this batch matches it", view):
        view.backward_put("bchw", grad)


def test_sums_of_batches_of_other_sizes():
    """A bug of the original: a stale accumulator had the shape of the first batch."""
    view = ImageView()
    for shape in ((8, 3, 4, 2), (3, 3, 4, 2), (3, 4, 3, 2), (1, 1, 1, 72), (8, 3, 4, 2)):
        for dtype in ("f4", "f8"):
            view.forward_put("bhwc", np.zeros(shape, dtype))
            for layout in ("bchw", "bf"):
                view.backward_put(layout, np.ones_like(view.forward_get(layout)))
            assert_same(view.backward_get(), np.full(shape, 2, dtype))


def test_the_first_get_may_ask_for_another_dtype():
    """A bug of the original: after such a get the base's dtype took no gradient."""
    view = ImageView("bhwc", X)
    view.forward_get("bchw", "f4")
    planes = view.forward_get("bchw")
    view.backward_put("bchw", planes)
    view.backward_put("bchw", planes.astype("f4"))
    np.testing.assert_allclose(view.backward_get(), 2 * X, rtol=1e-6)


def test_an_earlier_sum_is_never_written():
    view = ImageView()
    held = []
    for number in range(4):
        view.forward_put("bhwc", X)
        for layout in ("bchw", "chwb"):
            view.backward_put(layout, np.full_like(view.forward_get(layout), number))
        held.append(view.backward_get())
    for number, total in enumerate(held):
        assert (total == 2 * number).all()


# ---- dtypes ------------------------------------------------------------------------------


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("base", "dtypes", "wanted"),
    [
        ("f8", ["f8", "f4"], "f8"), ("f4", ["f4", "f8"], "f4"), ("f2", ["f4", "f4"], "f2"),
        (BF16, ["f4", "f8", BF16], BF16), ("u1", ["f4", "f4"], "f4"), ("i8", ["f4", "f8"], "f8"),
        ("u1", [BF16, "f2"], "f4"), ("?", ["f2", "f2"], "f2"), ("c8", ["c8", "c16"], "c8"),
        (">f4", ["f4", "f8"], "f4"), ("u1", [BF16], BF16), ("u1", ["c8", "f4"], "c8"),
    ],
)  # fmt: skip
def test_dtype_of_the_sum(base, dtypes, wanted):
    x = np.ones(SHAPE, base)
    view, grads = consumed(x, ["b(hwc)"] * len(dtypes), dtypes)
    for grad in grads:
        view.backward_put("b(hwc)", np.ones_like(grad))
    total = view.backward_get()
    assert_same(total, np.full(SHAPE, len(dtypes)).astype(wanted))
    assert view.backward_get(dtype=wanted) is total


@pytest.mark.budget(12)
@pytest.mark.parametrize("order", [*itertools.permutations([None, "f8", "f4"])])
@pytest.mark.parametrize("base", ["u1", "f4"])
def test_sums_of_several_dtypes_in_any_order(base, order):
    x = np.zeros(SHAPE, base)
    view = ImageView("bhwc", x)
    grads = [RNG.standard_normal(view.forward_get("bchw", "f4").shape).astype("f4")] * 2
    for grad in grads:
        view.backward_put("bchw", grad)
    wanted = brought_back(grads[0], "bchw") * 2
    for dtype in order:
        total = view.backward_get(dtype=dtype)
        assert total.dtype == (dtype or "f4")
        np.testing.assert_array_equal(total, wanted)


def test_what_is_added_in_float64():
    big = np.full(SHAPE, 2.0**24, "f4")
    one = np.ones(SHAPE, "f4")
    view = ImageView("bhwc", big)
    for grad in (big, one, -big):
        view.backward_put("bhwc", grad)
    assert (view.backward_get() == 0).all()  # as float32 adds
    assert (view.backward_get(dtype="f8") == 1).all()
    view.forward_get("bhwc", "f8")
    view.backward_put("bhwc", np.zeros(SHAPE))  # something in the sum is float64
    assert_same(view.backward_get(), one)
    narrow = ImageView("bhwc", big.astype(BF16))
    for value in (256, 1, 1, 1, 1):
        narrow.backward_put("bhwc", np.full(SHAPE, value, BF16))
    assert (narrow.backward_get() == 260).all()  # bfloat16 alone would stay at 256


@pytest.mark.budget(0)
def test_an_integer_result_takes_any_floating_gradient():
    view = ImageView("bhwc", np.ones(SHAPE, "u1"))
    view.forward_get("bchw")
    for dtype in ("f4", "f2", BF16):
        view.backward_put("bchw", np.ones((8, 2, 3, 4), dtype))
        view.backward_put("bhwc", np.ones(SHAPE, dtype))
    assert_same(view.backward_get(), np.full(SHAPE, 6, "f4"))
    with check_error(DtypeError, "give a floating dtype for a sum of gradients", view):
        view.backward_get(dtype="u1")


def test_dtypes_that_do_not_hold_the_sum():
    for count in (1, 2):
        view, (grad,) = consumed(X.astype("c8"), ["bchw"], [None])
        for _ in range(count):
            view.backward_put("bchw", grad)
        with check_error(DtypeError, "complex", view):
            view.backward_get(dtype="f8")
        for dtype, words in (("i4", "floating"), ("?", "floating"), ("no", "is not a dtype")):
            with check_error(DtypeError, words, view):
                view.backward_get(None, dtype)
        assert view.backward_get().dtype == np.complex64


# ---- correctness of gradients --------------------------------------------------------------

KINDS = [
    (ImageView, "bhwc", (3, 2, 4, 2), ["bhwc", "bchw", "chwb", "bf", "b(chw)", "(bw)ch"]),
    (ImageView, "chwb", (2, 2, 4, 3), ["bhwc", "bchw", "bf"]),
    (ImageView, "bhw", (3, 2, 4), ["bhwc", "bchw", "bf"]),
    (ImageView, "bdhwc", (2, 2, 3, 2, 2), ["bcdhw", "bf"]),
    (SequenceView, "bwc", (3, 2, 5), ["bcw", "bf", "cwb"]),
    (DataView, "fb", (5, 3), ["bf", "fb"]),
    (DataView, "bf", (5, 1), ["b", "bf"]),
    (DataView, "b", (5,), ["b", "bf"]),
    (ClassView, "bt", (5, 3), ["b", "bt", "tb"]),
    (ClassView, "tb", (3, 5), ["b", "bt"]),
    (ClassView, "b", (5,), ["b", "bt"]),
]


@pytest.mark.budget(0)
@settings(derandomize=True, database=None)
@given(st.sampled_from(KINDS), st.data())
def test_inner_products_are_kept(kinds, data):
    """<g, Jx> = <J'g, x>, summed over consumers; exact, since the values are integers."""
    kind, base, shape, layouts = kinds
    requested = data.draw(st.lists(st.sampled_from(layouts), min_size=1, max_size=4))
    dtypes = data.draw(
        st.lists(
            st.sampled_from([None, "f4", "f8"]), min_size=len(requested), max_size=len(requested)
        )
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(-9, 10, shape).astype("f8")
    view = kind(base, x)
    product = 0
    for layout, dtype in zip(requested, dtypes, strict=True):
        y = view.forward_get(layout, dtype)
        grad = rng.integers(-9, 10, y.shape).astype(y.dtype)
        view.backward_put(layout, grad)
        product += (grad.astype("f8") * y).sum()
    total = view.backward_get()
    assert (total.shape, total.dtype) == (x.shape, x.dtype)
    assert (total * x).sum() == product


@pytest.mark.parametrize(("kind", "base", "shape", "layouts"), KINDS)
def test_finite_differences_through_the_forward(kind, base, shape, layouts):
    """The loss of all consumers changes with every element of the base as the gradient says."""
    x = RNG.standard_normal(shape)
    weights = [RNG.standard_normal(kind(base, x).forward_get(n).shape) for n in layouts]

    def loss(values):
        view = kind(base, values)
        gots = [view.forward_get(layout) for layout in layouts]
        return sum((w * got**2).sum() for w, got in zip(weights, gots, strict=True)), gots, view

    _, gots, view = loss(x)
    for layout, weight, got in zip(layouts, weights, gots, strict=True):
        view.backward_put(layout, 2 * weight * got)
    total = view.backward_get()
    step = 1e-5
    for place in np.ndindex(shape):
        ahead = x.copy()
        behind = x.copy()
        ahead[place] += step
        behind[place] -= step
        slope = (loss(ahead)[0] - loss(behind)[0]) / (2 * step)
        assert abs(slope - total[place]) < 1e-6 * max(1, abs(slope))


@pytest.mark.budget(0)
def test_the_sum_is_what_accumulate_makes():
    view, grads = consumed(X.astype("f4"), LAYOUTS, ["f4", "f8", "f2", None, "f4"])
    for layout, grad in zip(LAYOUTS, grads, strict=True):
        view.backward_put(layout, grad)
    sizes = dict(zip("hwc", SHAPE[1:], strict=True))
    parts = list(zip(grads, LAYOUTS, strict=True))
    assert_same(view.backward_get(), accumulate(parts, "bhwc", dtype="f4", **sizes))


# ---- misuse --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "grad", "error", "words"),
    [
        ("chwb", np.ones((2, 3, 4, 8)), BackwardError, "no result of this batch matches it"),
        ("bchw", np.ones((8, 2, 3, 4)), BackwardError, "bchw float32 .8, 2, 3, 4."),
        ("bhwc", np.ones(SHAPE, "f4"), BackwardError, "bhwc float64 .8, 3, 4, 2. .the base."),
        ("b(chw)", np.ones((8, 24)), BackwardError, "no result of this batch matches it"),
        ("bhw", np.ones((8, 3, 4)), BackwardError, "no result of this batch matches it"),
        ("bhwcx", np.ones((8, 3, 4, 2, 1)), BackwardError, "no result of this batch matches it"),
        ("bf", np.ones((7, 24)), BackwardError, r"expected shape \(8, 24\)"),
        ("bf", np.ones((8, 3, 4, 2)), BackwardError, r"expected shape \(8, 24\)"),
        ("bhwc", np.ones((8, 3, 4, 1)), BackwardError, "expected shape"),
        ("bf", np.ones((8, 24), int), BackwardError, "give a gradient of a floating dtype"),
        ("bf", np.ones((8, 24), bool), BackwardError, "give a gradient of a floating dtype"),
        ("bf", np.ones((8, 24), object), BackwardError, "give a gradient of a floating dtype"),
        ("bf", np.ones((8, 24), "M8[s]"), BackwardError, "give a gradient of a floating dtype"),
        ("bf", np.ones((8, 24), complex), BackwardError, "complex gradients do not add up"),
        ("bf!", np.ones((8, 24)), PatternError, "is not an axis"),
        (3, np.ones((8, 24)), PatternError, "a layout is text"),
        ("bf", [1.0], ArgumentError, "grad is a list"),
        ("bf", None, ArgumentError, "grad is None"),
        ("bf", np.ma.ones((8, 24)), ArgumentError, "masked"),
    ],
)
def test_gradients_that_are_refused(layout, grad, error, words):
    view = ImageView("bhwc", X)
    view.forward_get("bchw", "f4"), view.forward_get("bf")
    with check_error(error, words, view):
        view.backward_put(layout, grad)
    view.backward_put("bf", np.ones((8, 24)))
    total = view.backward_get()
    with check_error(error, words, view):
        view.backward_put(layout, grad)
    assert view.backward_get() is total
    assert (total == 1).all()


def test_sums_that_are_refused():
    view = ImageView("bhwc", X)
    planes = view.forward_get("bchw")
    with check_error(BackwardError, "no gradient was put in this batch", view):
        view.backward_get()
    view.backward_put("bchw", planes)
    for layout in ("bchw", "bf", "b(hwc)", "z", "b"):
        with check_error(BackwardError, "gradients add up in the base's layout, bhwc", view):
            view.backward_get(layout)
    with check_error(PatternError, "twice", view):
        view.backward_get("bb")
    np.testing.assert_array_equal(view.backward_get("b(h)wc"), X)


def test_dates_have_no_gradient():
    view = DataView("bf", np.zeros((4, 3), "M8[s]"))
    view.forward_get("fb")
    for layout, shape in (("bf", (4, 3)), ("fb", (3, 4))):
        with check_error(BackwardError, "no result of this batch matches it", view):
            view.backward_put(layout, np.ones(shape))


def test_backward_is_put_or_get():
    view = ImageView("bhwc", X)
    grad = np.ones(SHAPE)
    assert view.backward("bhwc", grad) is None
    assert view.backward() is grad
    assert view.backward("bhwc") is grad
    assert view.backward("bhwc", "f8") is grad
    assert view.backward(None, np.float32).dtype == np.float32
    with check_error(ArgumentError, "grad is a list", view):
        view.backward("bhwc", [1.0])
