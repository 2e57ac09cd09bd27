"""Transposes with a side shorter than a 16-byte lane, and short contiguous runs."""

from itertools import product

import numpy as np
import pytest

from layoutkit import Converter, plan
from layoutkit.kernels.cpu.tiling import JOINED_BYTES
from layoutkit.memory import contiguous_strides
from tests.helpers.guarded import guarded, why_not
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(2)

LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 129, 1000)  # around a lane and a register
SIDES = [(1, side) for side in (2, 5, 7, 8, 9, 15)] + [(2, 5), (2, 7), (4, 3), (8, 3)]
RUNS = (2, 3, 5, 7, 9, 15, 17, 24, 31, 33, 48, 63, 65, 96, 127, 130, 511, 513)
CASTS = {1: "float32", 2: "float32", 4: "float64", 8: "float32"}
DTYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "float64"}


def values(shape, dtype):
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def check(pattern, shape, source_dtype, **options):
    """Convert between guard pages, with x at the end and at the beginning of its pages."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    x = values(shape, source_dtype)
    wanted = reference_convert(x, pattern, **options)
    for at_end in (True, False):
        _, source = guarded(shape, source_dtype, x.strides, at_end=at_end)
        steps = contiguous_strides(wanted.shape, wanted.dtype)
        room, out = guarded(wanted.shape, wanted.dtype, steps, at_end=at_end, slack=0)
        source[...] = x
        before = room.pages.copy()
        Converter(pattern, **options)(source, out=out)
        np.testing.assert_array_equal(out, wanted)
        beside = before.copy()
        room.twin(beside, out)[...] = wanted
        np.testing.assert_array_equal(room.pages, beside)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("item", "side"), SIDES, ids=str)
@pytest.mark.usefixtures("streaming")
def test_moves_with_a_short_side(item, side, length):
    check("bpc->bcp", (3, length, side), DTYPES[item])
    check("bcp->bpc", (3, side, length), DTYPES[item])


@pytest.mark.budget(0, all=8)
@pytest.mark.parametrize("length", [17, 65, 1000])
@pytest.mark.parametrize(("item", "side"), SIDES, ids=str)
@pytest.mark.usefixtures("streaming")
def test_casts_with_a_short_side(item, side, length):
    check("bpc->bcp", (2, length, side), DTYPES[item], dtype=CASTS[item])
    check("bcp->bpc", (2, side, length), DTYPES[item], dtype=CASTS[item])


@pytest.mark.budget(0)
@pytest.mark.parametrize("nbytes", RUNS)
@pytest.mark.usefixtures("streaming")
def test_runs_of_every_length(nbytes):
    check("abn->ban", (5, 7, nbytes), "uint8")
    check("abn->ban", (70, 3, nbytes), "uint8", dtype="float32")
    check("abcn->cban", (3, 4, 5, nbytes), "int16")


@pytest.mark.budget(0)
@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.usefixtures("streaming")
def test_runs_that_fill_a_block_of_joined_rows(count):
    """Test run lengths near JOINED_BYTES, at which a block has different loops over its rows."""
    casts = [("float32", "float32"), ("float32", "float64"), ("float64", "float16")]
    for (dtype, target), off in product(casts, (-1, 0, 1)):
        largest = max(np.dtype(dtype).itemsize, np.dtype(target).itemsize)
        length = JOINED_BYTES // largest // count + off
        check("bch->cbh", (count, 3, length), dtype, dtype=target, scale=2.0)
        check("bch->cbh", (count, 70, length), dtype, dtype=target, scale=2.0)


@pytest.mark.usefixtures("streaming")
def test_rows_with_gaps_and_reversed_rows():
    """The memory of x ends with the row at the highest address, which may be any row."""
    x = values((40, 70, 24), "uint8")
    for part in (x[:, :, :7], x[::-1, :, 5:12], x[:, ::-1, :7], x[..., 17:]):
        wanted = reference_convert(part, "abc->acb")
        np.testing.assert_array_equal(Converter("abc->acb")(part), wanted)
        wanted = reference_convert(part, "abc->bac")
        np.testing.assert_array_equal(Converter("abc->bac")(part), wanted)


@pytest.mark.budget(0, all=5)
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.usefixtures("streaming")
def test_patches_to_rows_and_back(dtype, channels):
    """Lines of patches are a part of a lane, half of one, or longer."""
    item = np.dtype(dtype).itemsize
    for lane, off in product((8, 16, 32), (-1, 0, 1)):
        side = max(lane // item + off, 1)
        sizes = {"p": 5, "q": side}
        for options in ({}, {"dtype": "float32", "scale": 0.5}):
            image, rows = (10, 3 * side, channels), (6, 5 * side * channels)
            check("(hp)(wq)c->(hw)(cpq)", image, dtype, **sizes, **options)
            back = sizes | {"h": 2, "c": channels} | options
            check("(hw)(cpq)->(hp)(wq)c", rows, dtype, **back)


@pytest.mark.usefixtures("streaming")
def test_patches_of_overlapping_reversed_and_repeated_lines():
    """A line is read to the end of a lane only if the next one is at higher addresses."""
    if why_not():
        pytest.skip(why_not())
    for step, at_end in product((9, 26, 27, 28, 48, -27, -9, 0), (True, False)):
        _, memory = guarded((20, 9, 3), "uint8", (step, 3, 1), at_end=at_end)
        memory[...] = values(memory.shape, "uint8")
        for x in (memory, memory[:, ::-1]):
            wanted = reference_convert(np.array(x), "(hp)qc->h(cpq)", p=10)
            np.testing.assert_array_equal(Converter("(hp)qc->h(cpq)", p=10)(x), wanted)


@pytest.mark.parametrize(
    ("pattern", "shape", "kernel"),
    [
        ("bhwc->bchw", (2, 30, 30, 13), "transpose"),
        ("bchw->bhwc", (2, 5, 30, 30), "transpose"),
        ("abn->ban", (50, 60, 24), "copy"),
        ("abcdef->fedcba", (4, 7, 15, 3, 5, 6), "transpose"),
        ("abc->cba", (17, 100, 5), "transpose"),
    ],
)
def test_none_of_these_is_moved_item_by_item(pattern, shape, kernel):
    assert plan(pattern, shape, "uint8").kernel == kernel


@pytest.mark.parametrize(
    ("side", "channels", "kernel"),
    [(14, 3, "merge"), (8, 4, "merge"), (7, 3, "gather"), (15, 5, "gather"), (16, 5, "transpose")],
)
def test_pixels_of_patches_are_not_stored_one_by_one(side, channels, kernel):
    """A transpose of all pixels of a patch stored runs of few bytes, in 20 times the time."""
    sizes = {"p": side, "q": side, "c": channels, "h": 6}
    choice = plan("(hw)(cpq)->(hp)(wq)c", (36, channels * side**2), "uint8", **sizes).choice
    assert choice.kernel == kernel
    assert len(choice.rows) <= 1


def test_a_loop_that_fits_both_sides_lengthens_the_shorter_one():
    """Without the shared loop, the rows are long enough, but the run has only 3 items."""
    choice = plan("uvwxyz->uzywxv", (2, 3, 7, 19, 6, 4), "float32").choice
    sides = [np.prod([loop.count for loop in side]) for side in (choice.rows, choice.run)]
    assert sides == [24, 399]


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    "strides", [(104, 2, 0), (-104, 2, 0), (104, -2, 2), (2, 104, 40)], ids=str
)
@pytest.mark.usefixtures("streaming")
def test_positions_that_do_not_lie_in_order_end_with_the_memory(strides):
    """The last position of a tile is not always the farthest one in memory."""
    if why_not():
        pytest.skip(why_not())
    for shape, pattern, sizes in [
        ((5, 20, 3), "a(bh)w->hwab", {"b": 5, "h": 4}),
        ((9, 20, 3), "a(bh)w->hwba", {"b": 10, "h": 2}),
    ]:
        _, x = guarded(shape, "int16", strides, at_end=True)
        memory = np.lib.array_utils.byte_bounds(x)
        x[...] = values(shape, "int16")
        assert (memory[1] - memory[0]) % 2 == 0
        wanted = reference_convert(np.array(x), pattern, **sizes)
        np.testing.assert_array_equal(Converter(pattern, **sizes)(x), wanted)


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("pattern", "shape", "axis"),
    [
        ("cbz->czb", (1, 100, 63), "b"),
        ("abn->ban", (70, 90, 24), "n"),
        ("bchw->bhwc", (2, 5, 40, 41), "c"),
        ("bchw->bhwc", (2, 37, 40, 41), "c"),
        ("bhwc->bhwc", (2, 40, 41, 7), "c"),
    ],
)
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.usefixtures("streaming")
def test_constants_that_repeat_along_a_run(pattern, shape, axis, repeats):
    """The constants of positions beyond the end of a block belong to the next block."""
    x = values(shape, "float64")
    if repeats:
        x = np.broadcast_to(x[..., :1], shape)
    left, right = pattern.split("->")
    mean = np.arange(shape[left.index(axis)], dtype=float)
    steps = [-1 if letter == axis else 1 for letter in left]
    wanted = (x - mean.reshape(steps)).transpose([left.index(letter) for letter in right])
    result = Converter(pattern, mean={axis: mean.tolist()})(x)
    np.testing.assert_array_equal(result, wanted)
