"""index, sub, batches, out, replace, input and flush: copies and shared memory."""

import itertools

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    BackwardError,
    ClassView,
    DataView,
    DtypeError,
    ImageView,
    PatternError,
    SequenceView,
    ShapeError,
    ViewError,
    buffers,
)
from tests.helpers.arrays_of import BF16, LAYINGS, ODD, assert_same, laid, random_array
from tests.helpers.views_state import check_error

pytestmark = pytest.mark.budget(12)

RNG = np.random.default_rng(0)
X = RNG.random((6, 3, 4, 2))
BASES = {"bhwc": (0, 1, 2, 3), "bchw": (0, 3, 1, 2), "chwb": (3, 1, 2, 0), "hbwc": (1, 0, 2, 3)}


def base_of(layout, x=X):
    return x.transpose(BASES[layout]).copy()


def axis_of(layout):
    return layout.index("b")


# ---- index -------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", BASES)
@pytest.mark.parametrize("indices", [[0], [5, 0, 3], [2, 2, 2], [-1, -6], [], range(6), (1, 4)])
@pytest.mark.parametrize("how", LAYINGS)
def test_index_takes_samples_as_numpy_does(layout, indices, how):
    x = laid(base_of(layout), how)
    view = ImageView(layout, x)
    part = view.index(indices)
    wanted = np.take(x, np.array(list(indices), int), axis=axis_of(layout))
    assert_same(part.input, wanted)
    assert part.input.flags.c_contiguous
    assert not np.shares_memory(part.input, x)
    assert (type(part), part.layout, len(part)) == (ImageView, layout, len(indices))


@pytest.mark.parametrize("dtype", ["?", "u1", "f2", BF16, "c16", ">i4", "M8[s]", ODD])
def test_index_and_sub_of_any_dtype(dtype):
    x = random_array(RNG, (6, 5), dtype)
    for base in (x, x[::-1, ::2]):
        view = DataView("bf", base)
        assert_same(view.index([3, -1, 3]).input, base[[3, -1, 3]].copy())
        assert_same(view.sub(1, 4).input, base[1:4].copy())
        assert view.sub(1, 4).dtype == x.dtype


@pytest.mark.parametrize(
    ("indices", "error", "words"),
    [([0, -7], ShapeError, "index -7"), ([0.0], ArgumentError, "give one list or array")],
)
def test_indices_that_are_refused(indices, error, words):
    view = ImageView("bhwc", X)
    out = ImageView("bhwc", X[:2])
    with check_error(error, words, view, out):
        view.index(indices)
    with check_error(error, words, view, out):
        view.index(indices, out=out)


def test_index_of_an_empty_view():
    assert DataView("bf", np.zeros((0, 3))).index([]).input.shape == (0, 3)


# ---- sub ---------------------------------------------------------------------------------

ENDS = [None, 0, 2, 5, 6, 9, -1, -4, -9]


@pytest.mark.parametrize("layout", BASES)
def test_sub_clips_as_slices_do(layout):
    x = base_of(layout)
    view = ImageView(layout, x)
    for start, stop in itertools.product(ENDS, ENDS):
        wanted = x[(slice(None),) * axis_of(layout) + (slice(start, stop),)]
        own = view.sub(start, stop)
        window = view.sub(start, stop, copy=False)
        assert_same(own.input, wanted.copy())
        assert own.input.flags.c_contiguous
        assert not np.shares_memory(own.input, x)
        assert_same(window.input.copy(), wanted.copy())
        assert wanted.size == 0 or np.shares_memory(window.input, x)
        assert (len(own), len(window)) == (len(range(6)[start:stop]),) * 2


@pytest.mark.parametrize("how", LAYINGS)
def test_sub_of_any_strides(how):
    x = laid(X.copy(), how)
    assert_same(ImageView("bhwc", x).sub(1, 5).input, x[1:5].copy())


def test_a_window_writes_to_its_parent_and_a_copy_does_not():
    x = np.zeros((6, 3))
    view = DataView("bf", x)
    view.sub(1, 3).input[...] = 7
    assert (x == 0).all()
    view.sub(1, 3, copy=False).input[...] = 7
    assert (x[1:3] == 7).all()
    window = view.sub(1, 3, copy=False)
    assert window.sub(0, 1).index([0]).input.tolist() == [[7, 7, 7]]


def test_the_numbers_of_sub_that_are_refused():
    view = ImageView("bhwc", X)
    out = ImageView()
    for bad in (1.0, "1", True, np.True_, [1], X):
        with check_error(ArgumentError, "start is", view, out):
            view.sub(bad, 3, out=out)
        with check_error(ArgumentError, "stop is", view, out):
            view.sub(0, bad, copy=False)
    assert len(view.sub(np.int8(1), np.uint64(3))) == 2


# ---- out ---------------------------------------------------------------------------------


def test_out_is_put_anew_and_returned():
    view = ImageView("bhwc", X)
    out = ImageView("bhwc", X[:1] + 1)
    out.forward_get("bchw")
    planner = out.bchw()
    assert view.index([4, 2], out=out) is out
    assert_same(out.input, X[[4, 2]])
    assert_same(out.forward_get("bchw"), X[[4, 2]].transpose(0, 3, 1, 2).copy())
    assert view.sub(0, 5, out=out) is out
    assert_same(out.input, X[:5])
    assert view.sub(2, 3, out=out, copy=False) is out
    assert np.shares_memory(out.input, X)
    assert out.bchw() is planner  # it keeps its plans


def test_an_empty_out_shares_plans_and_one_of_another_dtype_takes_them():
    view = ImageView("bhwc", X)
    for out in (ImageView(), ImageView("bhwc", X.astype("f4")), ImageView("bhwc", X[:, :2])):
        view.sub(0, 2, out=out)
        assert out.bchw() is view.bchw()
        assert out.forward_get("bf").dtype == X.dtype
        assert_same(out.forward_get("bf"), X[:2].reshape(2, 24))


@pytest.mark.parametrize("take", ["sub", "index"])
def test_out_never_writes_through_a_window(take):
    """A bug of the original: a window that was filled again changed its parent."""
    parent = np.arange(1.0, 9).reshape(4, 2)
    view = DataView("bf", parent)
    window = view.sub(0, 2, copy=False)
    held = window.input
    again = view.sub(2, 4, out=window) if take == "sub" else view.index([2, 3], out=window)
    assert again is window
    assert window.input.tolist() == [[5, 6], [7, 8]]
    assert parent.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert held.tolist() == [[1, 2], [3, 4]]


def test_what_anyone_holds_of_outs_last_batch_is_never_written():
    view = ImageView("bhwc", X)
    out = ImageView()
    held = []
    for start in range(5):
        view.sub(start, start + 2, out=out)
        held.append((start, out.input, out.forward_get("bf"), out.forward_get("bchw")))
    view.index([0], out=out)
    for start, base, flat, planes in held:
        assert_same(base, X[start : start + 2])
        assert_same(flat, X[start : start + 2].reshape(2, -1))
        assert_same(planes, X[start : start + 2].transpose(0, 3, 1, 2).copy())


def test_results_and_gradients_of_out_are_dropped():
    view = ImageView("bhwc", X)
    out = ImageView("bhwc", X[:2])
    old = out.forward_get("bf")
    out.backward_put("bf", old)
    view.sub(0, 2, out=out)
    with check_error(BackwardError, "no gradient", out):
        out.backward_get()
    assert out.forward_get("bf") is not old


class Photos(ImageView):
    """A user's subclass whose `__init__` takes other arguments."""

    def __init__(self, name):
        super().__init__()
        self.name = name


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (X, "out is a ndarray; give another ImageView"),
        (3, "out is a int"),
        (DataView(), "out is a DataView"),
        (SequenceView(), "out is a SequenceView"),
        (Photos("a"), "out is a Photos"),
        (ImageView("bchw", X), "out is in layout bchw, this view in bhwc"),
        (ImageView("bhw", X[..., 0]), "out is in layout bhw,"),
    ],
)
def test_outs_that_are_refused(out, words):
    view = ImageView("bhwc", X)
    seen = [out] if isinstance(out, DataView) else []
    for use in (
        lambda: view.index([0], out=out),
        lambda: view.sub(0, 1, out),
        lambda: view.sub(0, 1, out=out, copy=False),
    ):
        with check_error(ViewError, words, view, *seen):
            use()
    with check_error(ViewError, "out is the view itself", view):
        view.sub(0, 1, out=view)
    with check_error(ViewError, "out is the view itself", view):
        view.index([0], out=view)


def test_a_users_own_class():
    view = Photos("holiday")
    view.forward_put("bhwc", X)
    parts = [view.sub(0, 2), view.index([1]), *view.batches(4)]
    assert [type(part) for part in parts] == [Photos] * 4
    assert_same(parts[-1].forward_get("bf"), X[4:].reshape(2, -1))


# ---- batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", BASES)
@pytest.mark.parametrize("size", [1, 2, 4, 5, 6, 7, 10**20])
def test_batches_are_windows_and_none_is_lost(layout, size):
    x = base_of(layout)
    view = ImageView(layout, x)
    windows = list(view.batches(size))
    assert [len(w) for w in windows] == [
        len(range(6)[start : start + size]) for start in range(0, 6, size)
    ]
    assert len({id(w) for w in windows}) == len(windows)
    assert all(np.shares_memory(w.input, x) for w in windows)
    np.testing.assert_array_equal(np.concatenate([w.input for w in windows], axis_of(layout)), x)


def test_sixty_five_samples_in_batches_of_sixty_four():
    """The original dropped the last sample and repeated the first batch."""
    view = DataView("b", np.arange(65))
    assert [w.input.tolist() for w in view.batches(64)] == [list(range(64)), [64]]
    assert list(DataView("b", np.zeros(0)).batches(3)) == []


def test_batches_are_of_the_base_of_the_call():
    view = DataView("b", np.arange(6))
    windows = view.batches(2)
    first = next(windows)
    view.forward_put("b", np.zeros(1))
    assert [w.input.tolist() for w in (first, *windows)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("size", [0, -1, 1.0, "2", None, True, [1]])
def test_batch_sizes_that_are_refused_at_once(size):
    view = ImageView("bhwc", X)
    with check_error(ArgumentError, "batch_size=", view):
        view.batches(size)


def test_preprocessing_window_by_window():
    """Get, compute and replace in windows, and write the result to its source."""
    x = X.copy()
    view = ImageView("bhwc", x)
    for window in view.batches(4):
        flat = window.forward_get("bf")
        window.replace("bf", flat - flat.mean(axis=1, keepdims=True))
        assert_same(window.forward_get("bchw"), window.input.transpose(0, 3, 1, 2).copy())
        assert abs(window.input.mean(axis=(1, 2, 3))).max() < 1e-15
    assert_same(x, X)


# ---- replace, input, flush -----------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("layout", ["bhwc", "bchw", "chwb", "bf", "b(chw)", "(wc)bh"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
@pytest.mark.parametrize("samples", [6, 3, 9])
def test_replace_brings_an_array_back(base, layout, dtype, samples):
    view = ImageView(base, base_of(base))
    other = random_array(RNG, (samples, 3, 4, 2), "u1").astype(dtype)
    values = ImageView(base, base_of(base, other)).forward_get(layout)
    view.replace(layout, values)  # without a get
    assert_same(np.ascontiguousarray(view.input), base_of(base, other))
    assert (view.layout, view.dtype, len(view)) == (base, np.dtype(dtype), samples)
    assert_same(np.ascontiguousarray(view.forward_get(layout)), values)


def test_replace_of_other_sizes_where_nothing_is_folded():
    view = ImageView("bhwc", X)
    view.replace("bchw", np.ones((2, 5, 7, 3)))
    assert view.input.shape == (2, 7, 3, 5)
    view.replace("b h w c", np.ones((1, 2, 2, 2)))
    assert view.forward_get("bf").shape == (1, 8)
    flat = DataView("bf", np.ones((4, 3)))
    flat.replace("bf", np.ones((2, 9)))
    assert flat.input.shape == (2, 9)
    flat.replace("fb", np.ones((7, 3)))
    assert flat.input.shape == (3, 7)
    DataView("b(hw)", np.ones((4, 6))).replace("(hw)b", np.ones((9, 2)))


def test_replace_in_the_base_layout_is_by_reference():
    view = ImageView("bhwc", X)
    other = X[::2, ::-1]
    view.replace("bhwc", other)
    assert view.input is other


def test_replace_leaves_the_old_base_alone_and_does_not_add_gradients():
    x = X.copy()
    view = ImageView("bhwc", x)
    planes = view.forward_get("bchw")
    view.backward_put("bchw", np.ones_like(planes))
    view.replace("bchw", planes * 2)
    assert_same(view.input, X * 2)
    assert_same(x, X)
    with check_error(BackwardError, "no gradient", view):
        view.backward_get()


def test_added_and_dropped_axes_are_replaced():
    for kind, base, shape, layout, values in (
        (DataView, "bf", (4, 1), "b", (7,)),
        (DataView, "b", (4,), "bf", (7, 1)),
        (ImageView, "bhw", (4, 2, 3), "bchw", (7, 1, 2, 3)),
        (ImageView, "bhwc", (4, 1, 1, 1), "b", (7,)),
    ):
        view = kind(base, np.zeros(shape))
        view.replace(layout, np.ones(values))
        assert_same(view.input, np.ones((7, *shape[1:])))


@pytest.mark.parametrize(
    ("layout", "array", "error", "words"),
    [
        ("bf", np.ones((6, 25)), ShapeError, "correct one of the sizes"),
        ("bf", np.ones((6, 3, 8)), ShapeError, "rank 2"),
        ("bhwc", np.ones((6, 24)), ShapeError, "rank 4"),
        ("b", np.ones(6), ShapeError, "would be lost"),
        ("bhw", np.ones((6, 3, 4)), PatternError, "cannot become bhw"),
        ("bf!", np.ones((6, 24)), PatternError, "is not an axis"),
        ("bf", np.ones((6, 24), object), DtypeError, "cannot be moved"),
        ("bf", [1.0], ArgumentError, "array is a list"),
    ],
)
def test_replacements_that_are_refused(layout, array, error, words):
    view = ImageView("bhwc", X)
    view.backward_put("bf", view.forward_get("bf"))
    view.backward_get()
    with check_error(error, words, view):
        view.replace(layout, array)


def test_input_is_put_in_the_layout_of_the_base():
    view = ImageView("bhwc", X)
    other = X[:2].astype("f4")
    old = view.forward_get("bf")
    view.input = other
    assert view.input is other
    assert view.forward_get() is other
    assert view.forward_get("bf") is not old
    assert_same(view.forward_get("bf"), other.reshape(2, 24))
    for bad, error in ((X[0], ShapeError), ([1], ArgumentError), (X.astype(object), DtypeError)):
        with check_error(error, "axes|list|cannot be moved", view):
            view.input = bad


def test_flush_keeps_the_base_and_plans_anew():
    view = ImageView("bhwc", X)
    planes = view.forward_get("bchw")
    planner = view.bchw()
    view.flush()
    assert view.forward_get() is X
    again = view.forward_get("bchw")
    assert again is not planes
    assert_same(again, planes)
    assert view.bchw() is not planner


def test_copies_come_from_the_pool():
    view = ClassView("b", np.arange(1000))
    for make in (lambda: view.sub(0, 900), lambda: view.index(range(900)), lambda: view.one_hot()):
        before = buffers.stats()["held"]
        view.classes = 1000
        held = make()
        assert buffers.stats()["held"] > before
        del held
        assert buffers.stats()["held"] == before
