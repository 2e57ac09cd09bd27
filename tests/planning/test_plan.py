"""The kernel, bytes and text of plans, and the loops that they are made from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutkit import ArgumentError, ArraySpec, Converter, ShapeError, convert
from layoutkit.converter import plan
from layoutkit.planning.loops import Loop, canonicalize_loops
from layoutkit.planning.select import MAX_OUTER, MAX_TABLE, select_row

KERNELS = [
    ("bhwc->bhwc", (2, 4, 4, 3), "f4", {}, "view"),
    ("bhwc->bf", (2, 4, 4, 3), "f4", {}, "view"),
    ("bhwc->bchw", (2, 4, 4, 1), "f4", {}, "view"),
    ("bhwc->bchw", (0, 4, 4, 3), "f4", {"dtype": "f8"}, "empty"),
    ("bhwc->bhwc", (2, 4, 4, 3), "f4", {"copy": True}, "copy"),
    ("bhwc->hbwc", (4, 8, 8, 64), "f4", {}, "copy"),
    ("bhwc->bhwc", (2, 4, 4, 3), "f4", {"dtype": "f2"}, "cast"),
    ("bhwc->bhwc", (2, 4, 4, 3), "u1", {"mean": [1, 2, 3]}, "cast"),
    ("bhwc->bchw", (2, 224, 224, 3), "u1", {}, "split"),
    ("bhwc->bchw", (2, 224, 224, 3), "u1", {"dtype": "f4", "std": 2}, "split"),
    ("bchw->bhwc", (2, 3, 224, 224), "f4", {}, "merge"),
    ("bhwc->bchw", (2, 56, 56, 64), "f4", {}, "transpose"),
    ("bchw->chwb", (64, 3, 32, 32), "f4", {}, "transpose"),
    ("bhwc->chwb", (64, 56, 56, 64), "f4", {}, "transpose"),
    ("ab->ba", (2, 2), "u1", {}, "gather"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "shape", "dtype", "keywords", "kernel"), KERNELS)
def test_kernels(pattern, shape, dtype, keywords, kernel):
    found = plan(pattern, shape, dtype, **keywords)
    assert found.kernel == kernel
    assert kernel in str(found)
    moved = 0 if kernel in ("view", "empty") else found.source.nbytes + found.target.nbytes
    assert found.bytes_moved == moved


def test_the_plan_in_words():
    text = str(plan("bhwc->bchw", (64, 224, 224, 3), "uint8", dtype="float32", mean=[1, 2, 3]))
    why = "few channels, side by side in x and apart in the result: whole registers are sorted"
    assert text.splitlines() == [
        "bhwc->bchw: uint8 bhwc (64, 224, 224, 3) on cpu -> float32 bchw (64, 3, 224, 224) on cpu",
        f"  kernel    split: {why}",
        "  work      64 x 50176 pixels of 3 channels, taken apart, 1 byte each",
        "  formula   (x * scale - mean) / std in float32, as it passes",
        "  memory    9,633,792 bytes read, 38,535,168 written",
    ]


@pytest.mark.parametrize(
    ("dtype", "keywords", "words"),
    [
        (
            "f4",
            {"dtype": "u1", "casting": "unsafe"},
            "after     NumPy writes the float32 result",
        ),
        ("f4", {"dtype": "u1", "casting": "saturate"}, "as it passes, saturating"),
        ("float8_e5m2", {"scale": 2, "dtype": "f4"}, "before    NumPy casts x to float32"),
        ("f8", {"scale": 2, "dtype": "f4"}, "in float64"),
        ("f4", {"scale": 1e-45}, "in float64"),
        ("f4", {"copy": True}, "a run of 6 items, 4 bytes each"),
        ("f4", {}, "nothing is read or written"),
    ],
)
def test_stages_in_words(dtype, keywords, words):
    assert words in str(plan("bc->bc", (2, 3), dtype, **keywords))


def test_plans_of_arrays_and_specs_agree():
    x = np.zeros((2, 4, 5, 3), "u1")
    converter = Converter("bhwc->bchw", dtype="f4")
    spec = ArraySpec("bhwc", x.shape, x.dtype)
    assert str(converter.plan(x)) == str(converter.plan(spec))
    assert str(converter.plan(spec)) == str(plan("bhwc->bchw", [2, 4, 5, 3], "u1", dtype="f4"))


def test_a_plan_needs_no_memory():
    found = plan("bc->cb", (10**15, 10**3), "f8")
    assert found.bytes_moved == 16 * 10**18
    assert found.target.shape == (10**3, 10**15)


def test_offsets_beyond_two_billion_are_whole():
    found = plan("bc->cb", (2**33, 8), "f4")
    assert {loop.src for loop in (*found.choice.run, *found.choice.rows)} == {32, 4}
    assert max(loop.dst for loop in found.choice.rows) == 2**35


def test_strides_decide():
    x = np.zeros((2, 4, 5, 3), "f4")
    converter = Converter("bhwc->bhwc")
    assert converter.plan(x).kernel == "view"
    assert converter.plan(x[:, ::-1]).kernel in ("copy", "gather")
    assert converter.plan(x[..., ::2]).kernel == "gather"
    planes = np.zeros((2, 3, 64, 64), "f4").transpose(0, 2, 3, 1)
    assert converter.plan(planes).kernel == "merge"
    assert Converter("bhwc->bchw").plan(planes).kernel == "view"


# --- loops ------------------------------------------------------------------------------------


def visits(loops, src=0, dst=0):
    """Return {output offset: (source offset, coefficient)} of all elements."""
    places = {dst: (src, 0)}
    for loop in loops:
        places = {
            d + i * loop.dst: (s + i * loop.src, k + i * loop.coef_stride)
            for d, (s, k) in places.items()
            for i in range(loop.count)
        }
    return places


def random_loops(counts, order, signs, item):
    """Return loops of a permuted, contiguous output; some source steps are negative or zero."""
    steps, step = {}, item
    for at in reversed(range(len(counts))):
        steps[at], step = step, step * counts[at]
    outs, step = {}, item
    for at in reversed(order):
        outs[at], step = step, step * counts[at]
    return [Loop(n, steps[at] * signs[at], outs[at]) for at, n in enumerate(counts)]


some_loops = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(1, 4), min_size=n, max_size=n),
        st.permutations(range(n)),
        st.lists(st.sampled_from([1, 1, 1, -1, 0]), min_size=n, max_size=n),
    )
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(some_loops, st.sampled_from([1, 2, 4, 8]))
def test_canonical_loops_visit_the_same_places(loops, item):
    loops = random_loops(*loops, item)
    found = canonicalize_loops(loops, item, pure=False)
    assert visits(found.loops, found.src_offset, found.dst_offset) == visits(loops)
    assert all(loop.count > 1 for loop in found.loops)
    assert [abs(loop.dst) for loop in found.loops] == sorted(
        (abs(loop.dst) for loop in found.loops), reverse=True
    )
    again = canonicalize_loops(found.loops, item, pure=False)
    assert again.loops == found.loops


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(some_loops, st.sampled_from([1, 2, 4, 8]))
def test_a_choice_has_every_loop_once(loops, item):
    for pure in (True, False):
        found = canonicalize_loops(random_loops(*loops, item), item, pure=pure)
        choice = select_row(found, item, pure=pure)
        parts = [*choice.outer, *choice.host_loops, *choice.rows, *choice.run]
        wanted = found.loops or (Loop(1, choice.source_item, choice.target_item),)
        assert sorted(parts) == sorted(wanted)
        assert len(choice.outer) <= MAX_OUTER


def test_neighbours_fuse():
    for pattern, shape in [("bhwc->bchw", (2, 4, 5, 16)), ("bwc->bcw", (2, 20, 16)),
                           ("bchw->bhwc", (2, 16, 4, 5))]:  # fmt: skip
        assert len(plan(pattern, shape).loops.loops) == 3
    assert len(plan("bchw->chwb", (9, 3, 4, 5)).loops.loops) == 2
    assert len(plan("bhwc->chwb", (9, 4, 5, 16)).loops.loops) == 3
    assert len(plan("bhwc->bhwc", (2, 4, 5, 16), copy=True).loops.loops) == 1


def test_axes_of_one_do_not_count():
    assert plan("bhwc->bchw", (1, 1, 20, 16)).loops == plan("wc->cw", (20, 16)).loops


@pytest.mark.parametrize(("bytes_", "item"), [(1, 1), (3, 1), (6, 2), (12, 4), (24, 8), (48, 16)])
def test_items_of_odd_sizes_are_moved_in_pieces(bytes_, item):
    found = canonicalize_loops(
        [Loop(5, bytes_, bytes_ * 7), Loop(7, bytes_ * 5, bytes_)], bytes_, pure=True
    )
    assert found.item == item


def test_short_contiguous_runs_are_one_item():
    found = plan("abc->bac", (50, 60, 4), "u1")
    assert found.loops.item == 4
    assert plan("abc->bac", (50, 60, 4), "u1", dtype="i2").loops.item == 1


def test_coefficients_that_are_met_backwards():
    x = np.arange(12, dtype="f4").reshape(1, 4, 3)
    for y in (x[..., ::-1], x[:, ::-1, ::-1]):
        got = convert(y, "bwc->bcw", mean=[1, 2, 3])
        np.testing.assert_array_equal(got, (y - np.array([1, 2, 3], "f4")).transpose(0, 2, 1))


@pytest.mark.parametrize("rank", [MAX_OUTER + 1, MAX_OUTER + 2, 16])
def test_loops_that_are_too_many_for_a_kernel(rank):
    loops = random_loops([2] * rank, tuple(reversed(range(rank))), [1] * rank, 4)
    choice = select_row(canonicalize_loops(loops, 4, pure=True), 4, pure=True)
    assert len(choice.outer) <= MAX_OUTER
    assert choice.count * 2 ** len(choice.host_loops) == 2**rank


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_repeated_coefficients_fit_a_table(around):
    channels = MAX_TABLE + around
    found = plan("bwc->bwc", (2, 9, channels), "f4", mean=[0.0] * channels)
    assert len(found.choice.run) == (2 if around <= 0 else 1)


def test_a_plan_is_of_a_shape():
    with pytest.raises(ShapeError, match=r"not an array of them; give its .shape"):
        plan("bhwc->bchw", np.zeros((2, 4, 5, 3)))
    assert plan("bc->cb", np.array([2, 3])).bytes_moved == 2 * 2 * 3 * 4


@pytest.mark.parametrize("surplus", [-1, 0, 1, 2])
def test_kernels_have_at_most_eight_outer_loops_and_the_caller_runs_the_rest(surplus):
    outer = "abcdefghijkl"[: MAX_OUTER + surplus]
    sizes = (2,) * len(outer)
    choice = plan(f"{outer}z->{outer[::-1]}z", (*sizes, 64), "f4").choice
    assert len(choice.outer) == min(MAX_OUTER, len(outer))
    assert len(choice.host_loops) == max(0, surplus)


def test_an_empty_array_has_countable_sizes():
    side = 1 << 29
    for shape in [(0, side, side - 1), (1, side, side)]:
        plan("bhw->b(hw)", shape, "u1")
    with pytest.raises(ShapeError, match="too large for any array"):
        plan("bhw->b(hw)", (0, side, side), "u1")


def test_a_refused_copy_names_devices_only_if_there_are_two():
    x = np.zeros((2, 3), np.uint8)
    with pytest.raises(ArgumentError, match=r"and strides \(3, 1\); allow a copy"):
        convert(x, "bc->cb", dtype="float32", copy=False)
