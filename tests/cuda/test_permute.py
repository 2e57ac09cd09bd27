"""The CUDA kernel that moves boxes of any loops, and the choice of the boxes."""

from itertools import pairwise, product
from math import gcd, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit.kernels.cuda import launch
from layoutkit.kernels.cuda.boxes import find_box
from layoutkit.kernels.cuda.policy import MOST_BOX_BYTES, SECTOR, THREADS, WORD
from layoutkit.planning.loops import Loop
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import BF16, assert_same, random_array
from tests.helpers.cuda_moves import by_boxes, copied, planned, prepared
from tests.helpers.cuda_shim import ORDERS
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), cuda_shim.needs_compiler]
RNG = np.random.default_rng(0)


def check(x, pattern, lengths=(), word=None, **keywords):
    """Convert by boxes, in every order of threads; return the macros of the kernel."""
    wanted = reference_convert(x, pattern, **keywords)
    with by_boxes(lengths, word):
        [(made, _, _)] = planned(x, pattern, **keywords)[1]
        assert made.family == "permute"
        for order in ORDERS:
            assert_same(prepared(x, pattern, **keywords)(order=order), wanted)
    return dict(made.defines)


def numbers(shape, dtype="u1", shift=0):
    return copied(RNG.integers(0, 120, shape).astype(dtype), shift)


# Runs of one loop, of several, of loops that are shorter than a word, and boxes in one piece.
SHAPES = [
    ("ab->ba", (300, 201)), ("uvxw->uvwx", (9, 31, 35, 38)), ("abcd->dbac", (7, 33, 19, 5)),
    ("abcd->cadb", (13, 29, 31, 7)), ("abcde->eacdb", (40, 3, 21, 2, 59)), ("abc->cab", (90, 7, 3)),
    ("abcdef->badcfe", (3, 5, 2, 7, 3, 11)), ("abcd->acdb", (5, 17, 19, 3)),
    ("abcd->badc", (700, 2, 3, 2)), ("abc->bca", (2, 3, 1000)),
]  # fmt: skip
CASTS = [("u1", {}), ("u2", {}), ("u4", {}), ("f8", {}), ("c16", {}),
         ("u1", {"dtype": "f4", "scale": 0.5}), ("f8", {"dtype": "f2"}), ("i2", {"dtype": "i4"}),
         ("f4", {"dtype": "u1", "casting": "saturate", "scale": 2.0})]  # fmt: skip


@pytest.mark.budget(2, all=20)
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(("dtype", "keywords"), CASTS)
@pytest.mark.parametrize(("pattern", "shape"), SHAPES)
def test_any_order_of_loops(pattern, shape, dtype, keywords, shift):
    sizes = np.dtype(dtype).itemsize, np.dtype(keywords.get("dtype", dtype)).itemsize
    check(numbers(shape, dtype, shift * max(sizes)), pattern, **keywords)


@pytest.mark.budget(0)
@pytest.mark.parametrize("axis", "abcd")
@pytest.mark.parametrize("pattern", ["abcd->cadb", "abcd->dbac", "abcd->badc"])
def test_coefficients_along_any_axis(pattern, axis):
    sizes = dict(zip("abcd", (9, 13, 31, 6), strict=True))
    formula = {"mean": {axis: list(range(sizes[axis]))}, "std": {axis: [2.0] * sizes[axis]}}
    x = numbers((*sizes.values(),))
    check(x, pattern, dtype="f4", **formula)
    check(x, pattern, dtype=BF16, clip=(9, 90), **formula)


def strided(x, how):
    """Return an array like x with gaps, reversed or repeated."""
    memory = numbers([n + 3 for n in x.shape], x.dtype)
    if how == "gaps":
        return memory[tuple(slice(1, n + 1) for n in x.shape)]
    if how == "every other":
        return numbers((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    return x[::-1] if how == "backwards" else np.broadcast_to(x[:1], x.shape)


@pytest.mark.budget(2, all=15)
@pytest.mark.parametrize("how", ["gaps", "every other", "backwards", "repeated"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize(("pattern", "shape"), SHAPES[:5])
def test_sources_with_gaps(pattern, shape, dtype, how):
    x = strided(numbers(shape, dtype), how)
    wanted = reference_convert(x, pattern)
    with by_boxes():
        assert_same(prepared(x, pattern)(), wanted)


@pytest.mark.budget(0)
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("words", [1, 2, 8])
def test_rows_and_runs_of_whole_words(words, more):
    check(numbers((19, WORD * words + more, 3)), "abc->acb")
    check(numbers((19, 3, SECTOR * words + more)), "abc->acb")


@pytest.mark.budget(2, all=10)
@pytest.mark.parametrize("word", [2, 4, 8, 16])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 9, 15, 16, 17])
def test_innermost_loops_shorter_than_a_word(count, word):
    """Test words with items of one, two or more iterations of the next outer loop."""
    assert check(numbers((count, 20, 21)), "abc->bca", word=word)["WORD"] == str(word)


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("word", [1, 4, 16])
def test_loops_that_boxes_divide(word, more):
    """Test loops that are divided by 512, also with one item in the last run."""
    x = numbers((3, 1024 + more, 70), shift=5)
    assert check(x, "abc->acb", lengths=(512,), word=word)["COUNTS"] == "70,512"


@pytest.mark.budget(0)
@pytest.mark.parametrize("shape", [(9, 31, 35), (2, 70, 300)])
def test_barriers_order_all_accesses(shape):
    x = numbers(shape)
    with by_boxes():
        got = prepared(x, "abc->acb")(mode="threads", poison=0)
    assert_same(got, reference_convert(x, "abc->acb"))


@st.composite
def conversions(draw):
    """Draw a shape, a pattern and a dtype."""
    rank = draw(st.integers(2, 5))
    shape = draw(st.lists(st.integers(1, 40), min_size=rank, max_size=rank))
    while prod(shape) > 60_000:
        shape[shape.index(max(shape))] //= 2
    axes = "abcde"[:rank]
    target = "".join(draw(st.permutations(axes)))
    dtype, keywords = draw(st.sampled_from(CASTS))
    return f"{axes}->{target}", shape, dtype, keywords


@pytest.mark.budget(0)
@given(conversions(), st.integers(0, 3))
def test_shapes_that_nobody_chose(conversion, shift):
    pattern, shape, dtype, keywords = conversion
    sizes = np.dtype(dtype).itemsize, np.dtype(keywords.get("dtype", dtype)).itemsize
    x = random_array(RNG, tuple(shape), dtype)
    x = copied(np.where(np.isfinite(x), x, 0).astype(dtype) if x.dtype.kind in "fc" else x,
               shift * max(sizes))  # fmt: skip
    with by_boxes():
        assert_same(prepared(x, pattern, **keywords)(), reference_convert(x, pattern, **keywords))


# ---- the choice of boxes -----------------------------------------------------------------


@st.composite
def nests(draw):
    """Draw the loops of a conversion without gaps, the sizes of items and both addresses."""
    counts = draw(st.lists(st.integers(2, 300), min_size=2, max_size=5))
    items = draw(st.sampled_from([(1, 1), (2, 2), (4, 4), (8, 8), (1, 4), (8, 2), (16, 16)]))
    order = draw(st.permutations(range(len(counts))))
    src = [prod(counts[i + 1 :]) * items[0] for i in range(len(counts))]
    dst = {axis: prod(counts[j] for j in order[i + 1 :]) * items[1] for i, axis in enumerate(order)}
    nest = [Loop(counts[axis], src[axis], dst[axis]) for axis in order]
    addresses = tuple(draw(st.integers(0, 15)) * item % 16 for item in items)
    return nest, items, addresses


@pytest.mark.budget(0)
@given(nests())
def test_boxes_are_what_the_kernel_expects(case):
    nest, items, addresses = case
    box = find_box(nest, items, addresses)
    loops = list(zip(box.loops, box.counts, box.slots, box.in_row, strict=True))
    assert all(a.dst > b.dst for a, b in pairwise(box.loops))
    assert all(1 <= count <= n.count for n, count, _, _ in loops)
    # Rows and runs are contiguous, and only their outermost loops are divided.
    row = sorted((n.src, count) for n, count, _, is_row in loops if is_row)
    run = [(n.dst, count) for n, count, _, _ in reversed(loops[-box.run_loops :])]
    for part, item in ((row, items[0]), (run, items[1])):
        assert part[0][0] == item
        assert all(step * count == after for (step, count), (after, _) in pairwise(part))
    assert box.loops[box.row_end].src == row[-1][0]
    divided = {n for n, count, _, _ in loops if count < n.count}
    assert divided <= {box.loops[box.row_end], box.loops[-box.run_loops]}
    # Words of different rows do not overlap, and rows have their layout in device memory.
    assert all(slot == n.src for n, _, slot, is_row in loops if is_row)
    assert all((slot - n.src) % WORD == 0 for n, _, slot, _ in loops)
    row_bytes = row[-1][0] * row[-1][1]
    steps = [range(0, count * slot, slot) for _, count, slot, is_row in loops if not is_row]
    starts = sorted(map(sum, product(*steps)))
    gap = WORD - min(WORD, box.alignment[0])
    assert all(b - a >= row_bytes + 2 * gap for a, b in pairwise(starts))
    assert starts[-1] + row_bytes + 2 * gap <= box.shared <= MOST_BOX_BYTES
    # All addresses of rows and runs have the alignment that the box declares.
    for side, inside, alignment in (
        (0, [n for n, _, _, is_row in loops if is_row], box.alignment[0]),
        (1, box.loops[-box.run_loops :], box.alignment[1]),
    ):
        steps = [n.steps[side] for n in nest if n not in inside]
        steps += [n.steps[side] * c for n, c, _, _ in loops if n in inside and c < n.count]
        assert gcd(SECTOR, addresses[side], *steps) % alignment == 0
    assert box.word * max(items) <= WORD
    assert THREADS % box.group == 0
    assert box.group * box.word * items[1] >= SECTOR  # threads that write together


def test_estimates_prefer_full_boxes_without_conflicts():
    """Test 32 rows of bytes, whose columns would be in one bank if rows were contiguous."""
    box = find_box([Loop(4096, 1, 32), Loop(32, 4096, 1)], (1, 1), (0, 0))
    assert box.share > 0.7
    least = find_box([Loop(5, 7, 3), Loop(3, 1, 15)], (1, 1), (0, 0))
    assert least is None or least.share < box.share


FAMILIES = [
    ("uvwx->uvxw", (128, 31, 35, 38), "u1", "permute"),  # matrices in one piece on both sides
    ("uvwx->uvxw", (16, 31, 35, 38), "u1", "lines"),  # the same, but a small array
    ("uvwx->wuxv", (1000, 959, 2, 2), "u2", "permute"),  # two axes of channels in another order
    ("bwc->bcw", (64, 256, 256), "u1", "transpose"),  # words of full width on both sides
    ("bpc->bcp", (64, 65536, 3), "u1", "interleave"),
    ("bpc->bcp", (16, 65521, 11), "f4", "transpose"),  # channels at any address
    ("abc->bac", (600, 50, 168), "u1", "gather"),  # runs that stay contiguous
]


@pytest.mark.parametrize(("pattern", "shape", "dtype", "family"), FAMILIES)
def test_the_family_of_a_conversion(pattern, shape, dtype, family):
    [(made, _, _)] = planned(np.empty(shape, dtype), pattern)[1]
    assert made.family == family


def test_channels_in_any_order_are_not_a_loop_of_a_box():
    x = np.empty((16, 65521, 11), "f4")
    [(made, _, _)] = planned(x, "bpc->bcp", channels=(3, 7, 5))[1]
    assert made.family != "permute"


def test_as_many_blocks_as_a_grid_has(monkeypatch):
    """Test that a tensor with more boxes than a grid has blocks gets no launch."""
    bytes_at_zero = launch.Side(1, 0)
    with by_boxes():
        plan, [(made, _, _)] = planned(np.empty((64, 31, 35, 38), "u1"), "uvwx->uvxw")
        sides = bytes_at_zero, bytes_at_zero
        monkeypatch.setattr(launch, "MAX_COUNT", made.grid + 1)
        assert launch.make_permute(plan.choice, *sides, None) == made
        monkeypatch.setattr(launch, "MAX_COUNT", made.grid)
        assert launch.make_permute(plan.choice, *sides, None) is None
