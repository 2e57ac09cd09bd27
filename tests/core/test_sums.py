"""Fused sums: loop nests, tiles, kernels, threads; test_accumulate has the public contract."""

import itertools
import threading
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import accumulate, buffers, get_num_threads, set_num_threads
from layoutkit.accumulation import Accumulator
from layoutkit.kernels.cpu import accumulate_launch, launch
from layoutkit.layout.pattern import parse_pattern
from layoutkit.memory import contiguous_strides
from layoutkit.planning.loops import SumLoop, fuse_loops
from tests.helpers.arrays_of import BF16, LAYINGS, assert_same, laid
from tests.helpers.reference import reference_convert, reference_sum

pytestmark = pytest.mark.budget(4)

RNG = np.random.default_rng(0)


@pytest.fixture
def tiny_tiles(monkeypatch):
    """Make tiles so small that small arrays have many tiles; the last ones overlap."""
    monkeypatch.setattr(accumulate_launch, "l2_cache_bytes", lambda: 1 << 13)
    monkeypatch.setattr(accumulate_launch, "ROWS_BYTES", 512)
    monkeypatch.setattr(accumulate_launch, "PIECE_BYTES", 64)


def values(shape, dtype):
    """Return numbers of very different magnitudes, so that another order of addition is visible."""
    numbers = RNG.standard_normal(shape) * 10.0 ** RNG.integers(-3, 4, shape)
    return numbers.astype("f4").astype(dtype)


# ---- against the reference ---------------------------------------------------------------

SIZES = {"b": 5, "h": 6, "w": 7, "c": 33}
MOST = 1 << 16  # numbers in each part of a random sum; tiny tiles make many of them
# The dtypes of the parts. Every dtype needs more kernels for every move, so the other dtypes are
# added only without moves, in kernels/test_dtypes.py. Parts of mixed dtypes are contiguous and have
# no axis of size 2, 3 or 4, so that few moves are combined with casts.
MIXED = [["f4"], ["f4", BF16], ["f4", "f8"]]


@st.composite
def random_sums(draw):
    letters = draw(st.sampled_from(["bhwc", "bwc", "bc", "b"]))
    mixed = draw(st.sampled_from(MIXED))
    plain = len(mixed) == 1
    sizes = st.sampled_from([1, 2, 3, 16, 33, 70] if plain else [1, 5, 16, 33, 70])
    size = {letter: draw(sizes) for letter in letters}
    while prod(size.values()) > MOST:
        size[max(size, key=size.get)] = 3 if plain else 5
    layouts = st.permutations(letters).map("".join)
    dtypes = st.sampled_from(mixed)
    how = st.sampled_from(LAYINGS if plain else LAYINGS[:1])
    parts = draw(st.lists(st.tuples(layouts, dtypes), min_size=1, max_size=16))
    return size, draw(layouts), parts, draw(dtypes), draw(how)


@pytest.mark.budget(0)
@given(random_sums())
def test_any_layouts_and_dtypes(tiny_tiles_always, case):
    size, layout, parts, result, how = case
    arrays = [
        (laid(values([size[letter] for letter in of], dtype), how), of) for of, dtype in parts
    ]
    computed = "f8" if "f8" in [dtype for _, dtype in parts] + [result] else "f4"
    assert_same(
        accumulate(arrays, layout, dtype=result),
        reference_sum(arrays, layout, computed, result)
        if len(parts) > 1
        else reference_convert(arrays[0][0], f"{arrays[0][1]}->{layout}", dtype=np.dtype(result)),
    )


@pytest.fixture(scope="module")
def tiny_tiles_always():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulate_launch, "l2_cache_bytes", lambda: 1 << 13)
        patch.setattr(accumulate_launch, "ROWS_BYTES", 512)
        patch.setattr(accumulate_launch, "PIECE_BYTES", 64)
        yield


@pytest.mark.parametrize("layout", ["bhwc", "bchw", "chwb", "b(hwc)", "b(chw)", "(bhw)c"])
def test_folds_on_either_side(tiny_tiles, layout):
    base = values([5, 6, 7, 33], "f4")
    layouts = ["bhwc", "b(hwc)", "chwb", "(bhw)c", "c(whb)", "bchw", "(chw)b"]
    parts = [(reference_convert(base * n, f"bhwc->{of}"), of) for n, of in enumerate(layouts, 1)]
    assert_same(
        accumulate(parts, layout, **SIZES), reference_sum(parts, layout, "f4", "f4", **SIZES)
    )


@pytest.mark.budget(0)
@pytest.mark.parametrize("shape", [(16, 112, 7, 100), (8, 120, 14, 100), (32, 104, 28, 100)])
def test_parts_whose_last_block_of_rows_is_long(shape):
    """A last block of up to 127 rows did not fit the scratch area, which once raised an error."""
    b, c, h, w = shape
    parts = [(np.ones(shape, BF16), "bchw"), (values((b, h, w, c), BF16), "bhwc")]
    assert_same(accumulate(parts, "bchw"), reference_sum(parts, "bchw", "f4", BF16))


@pytest.mark.budget(1, all=70)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i8"])
@pytest.mark.parametrize("channels", [3, 15, 16, 17, 32, 48, 50])
@pytest.mark.parametrize("pixels", [(1, 3), (2, 2), (1, 7), (4, 4), (5, 13)])
def test_transposes_around_full_tiles(tiny_tiles, dtype, channels, pixels):
    """Full tiles of floats are added to the output in registers, others in the scratch area."""
    size = dict(zip("bhwc", (16, *pixels, channels), strict=True))
    layouts = ["bhwc", "bchw", "chwb", "bchw"]
    parts = [(values([size[a] for a in of], "f4").astype(dtype), of) for of in layouts]
    expected = sum_from_left([reference_convert(x, f"{of}->bhwc") for x, of in parts])
    assert_same(accumulate(parts, "bhwc"), expected)


def sum_from_left(arrays):
    """Return the sum of arrays, added one after the other."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


@pytest.mark.budget(1)
@pytest.mark.parametrize("shape", [(64, 4, 8, 16), (70, 5, 7, 40), (2, 9, 31, 64)])
@pytest.mark.parametrize("dtype", ["f4", BF16])
def test_large_parts_whose_next_block_is_prefetched(tiny_tiles, monkeypatch, shape, dtype):
    monkeypatch.setattr(launch, "l2_cache_bytes", lambda: 0)
    size = dict(zip("bhwc", shape, strict=True))
    parts = [
        (values([size[letter] for letter in of], dtype), of) for of in ("bchw", "chwb", "bhwc")
    ]
    assert_same(accumulate(parts, "bhwc"), reference_sum(parts, "bhwc", "f4", dtype))


def test_an_axis_that_only_other_parts_split():
    """The pieces of the axis have a stride that is a multiple of the axis' own stride."""
    x = values((3, 2, 4), "f4")
    flat = values((2, 12), "f4")
    wanted = x.transpose(1, 0, 2).reshape(2, 12) + flat
    assert_same(accumulate([(x, "wbh"), (flat, "bf")], "bf"), wanted)
    turned = flat[:, ::-1] + x.transpose(1, 0, 2).reshape(2, 12)
    assert_same(accumulate([(flat[:, ::-1], "bf"), (x, "wbh")], "bf"), turned)


def test_folds_that_share_no_nest():
    """Fold 24 elements as 4 by 6 and as 6 by 4, through which no common loop can step."""
    x = values([4, 6], "f4")
    y = values([6, 4], "f4")
    moves = [parse_pattern("xy->(xy)").resolve((4, 6)), parse_pattern("xy->(xy)").resolve((6, 4))]
    assert (
        fuse_loops(
            moves, [contiguous_strides((4, 6), x.dtype), contiguous_strides((6, 4), x.dtype)], (4,)
        )
        is None
    )
    total = accumulate([(x, "xy"), (y, "uv"), (x.ravel(), "f")], "f")
    np.testing.assert_array_equal(total, x.ravel() + y.ravel() + x.ravel())


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_integers_in_any_layout(tiny_tiles, dtype):
    info = np.iinfo(dtype)
    parts = [
        (RNG.integers(info.min, info.max, [SIZES[a] for a in of], dtype, endpoint=True), of)
        for of in ("bhwc", "chwb", "bchw")
    ]
    computed = "u8" if dtype[0] == "u" else "i8"
    assert_same(accumulate(parts, "bhwc"), reference_sum(parts, "bhwc", computed, dtype))
    mixed = [
        *parts,
        (np.full((33,), 7, "u1" if dtype[0] == "u" else "i1")[None, None, None], "bhwc"),
    ]
    with pytest.raises(ValueError, match="gradients of one array have one shape"):
        accumulate(mixed, "bhwc")


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers(tiny_tiles, dtype):
    parts = [
        (values([SIZES[a] for a in of], "f4") + 1j * values([SIZES[a] for a in of], dtype), of)
        for of in ("bhwc", "chwb", "bchw")
    ]
    parts = [(x.astype(dtype), of) for x, of in parts] + [(values([5, 6, 7, 33], "f4"), "bhwc")]
    assert_same(accumulate(parts, "bchw"), reference_sum(parts, "bchw", dtype, dtype))


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtype", [">f4", "float8_e5m2", ">i2"])
def test_dtypes_that_kernels_do_not_know(dtype):
    parts = [(values([SIZES[a] for a in of], dtype), of) for of in ("bhwc", "chwb", "bchw")]
    computed = "i8" if dtype == ">i2" else "f4"
    wanted = reference_sum(parts, "chwb", computed, np.dtype(dtype).newbyteorder("="))
    assert_same(accumulate(parts, "chwb"), wanted)


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        ("f4", "plain"),
        ("f4", "backward"),
        ("f4", "sliced"),
        ("f4", "unaligned"),
        ("f4", "pages"),
        ("f4", "fortran"),
        (BF16, "plain"),
        (BF16, "sliced"),
        ("f8", "plain"),
    ],
)
def test_outputs_of_any_strides(tiny_tiles, how, dtype):
    parts = [(values([SIZES[a] for a in of], "f4"), of) for of in ("bchw", "chwb", "bhwc")]
    out = laid(np.zeros((5, 6, 7, 33), dtype), how)
    assert accumulate(parts, "bhwc", out=out) is out
    computed = "f8" if dtype == "f8" else "f4"
    assert_same(np.array(out), reference_sum(parts, "bhwc", computed, dtype))


def test_special_values():
    edge = np.array([np.inf, -np.inf, np.nan, -0.0, 3e38, 1e-45], "f4")
    pairs = list(itertools.product(edge, edge))
    x, y = (np.array(column, "f4").reshape(6, 6) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        wanted = x + y.T
    total = accumulate([(x, "bc"), (y, "cb")], "bc")
    np.testing.assert_array_equal(total, wanted)
    np.testing.assert_array_equal(np.signbit(total[total == 0]), np.signbit(wanted[wanted == 0]))


def test_more_axes_than_a_kernel_takes():
    shape = (2,) * 12
    x = values(shape, "f4")
    letters = "abcdefghijkl"
    swapped = "badcfehgjilk"
    parts = [(x, letters), (reference_convert(x, f"{letters}->{swapped}"), swapped)]
    np.testing.assert_array_equal(accumulate(parts, letters), x + x)
    out = np.zeros((2,) * 11 + (4,), "f4")[..., ::2]
    np.testing.assert_array_equal(accumulate(parts, letters, out=out), x + x)


# ---- large sums, threads, memory ---------------------------------------------------------


def large():
    size = {"b": 48, "h": 20, "w": 17, "c": 40}
    layouts = ("bchw", "chwb", "bhwc", "bchw")
    return [(values([size[a] for a in of], "f4"), of) for of in layouts]


def test_equal_bits_on_any_number_of_threads():
    parts = large()
    wanted = reference_sum(parts, "bhwc", "f4", "f4")
    before = get_num_threads()
    try:
        for threads in (1, 2, 3, 7):
            set_num_threads(threads)
            assert_same(accumulate(parts, "bhwc"), wanted)
    finally:
        set_num_threads(before)


def test_many_threads_sum_at_once():
    parts = large()
    wrong = []
    wanted = reference_sum(parts, "bhwc", "f4", "f4")

    def work():
        for _ in range(5):
            wrong.append(not np.array_equal(accumulate(parts, "bhwc"), wanted))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 30


def test_nothing_around_the_output_is_written():
    parts = [(values([SIZES[a] for a in of], "f4"), of) for of in ("bchw", "chwb", "bhwc")]
    room = np.full((7, 8, 9, 40), 77.0, "f4")
    out = room[1:6, 1:7, 1:8, 3:36]
    accumulate(parts, "bhwc", out=out)
    np.testing.assert_array_equal(out, reference_sum(parts, "bhwc", "f4", "f4"))
    out[...] = 77.0
    assert (room == 77.0).all()


def test_a_loop_of_sums_allocates_nothing():
    parts = large()
    add = Accumulator(tuple(of for _, of in parts), "bhwc")
    arrays = [x for x, _ in parts]
    total = add(arrays)
    del total
    before = buffers.stats()["misses"]
    for _ in range(5):
        total = add(arrays)
        del total
    assert buffers.stats()["misses"] == before


def test_no_temporary_of_the_size_of_a_part():
    """A sum of sixteen parts in three layouts allocates no temporary memory except tiles."""
    parts = large() * 4
    buffers.clear()
    held = buffers.stats()["held"]
    total = accumulate(parts, "bhwc")
    stats = buffers.stats()
    lent = stats["held"] - held + stats["idle"] - total.nbytes
    assert lent < 0.5 * total.nbytes + get_num_threads() * accumulate_launch.l2_cache_bytes()
    assert_same(total, reference_sum(parts, "bhwc", "f4", "f4"))


# ---- nests and tiles ---------------------------------------------------------------------


def resolved(patterns, shapes):
    return [parse_pattern(p).resolve(s) for p, s in zip(patterns, shapes, strict=True)]


def test_parts_in_the_layout_of_the_sum_are_one_loop():
    moves = resolved(["bhwc->bhwc"] * 2, [(2, 3, 4, 5)] * 2)
    steps = contiguous_strides((2, 3, 4, 5), np.dtype("f4"))
    assert fuse_loops(moves, [steps] * 2, steps).loops == (SumLoop(120, 4, (4, 4)),)


def test_a_backward_output_is_walked_forwards():
    moves = resolved(["b->b"] * 2, [(5,)] * 2)
    found = fuse_loops(moves, [(4,), (-4,)], (-4,))
    assert (found.loops, found.dst_offset) == ((SumLoop(5, 4, (-4, 4)),), -16)
    assert found.src_offsets == (16, -16)


@given(
    st.lists(st.sampled_from([1, 3, 16, 17, 64, 100, 3136, 50000]), min_size=1, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.sampled_from([4, 8]),
    st.sampled_from([2, 4, 8]),
)
def test_tiles_fit_and_cover(counts, near, item, out_item):
    loops = []
    step = item
    for count in reversed(counts):
        loops.insert(0, (count, step))
        step *= count
    places = [
        SumLoop(count, step, tuple(4 if at == n % len(counts) else 4096 for n in near))
        for at, (count, step) in enumerate(loops)
    ]
    tile = accumulate_launch.tile_lengths(places, [4] * len(near), item, out_item)
    assert all(1 <= n <= loop.count for n, loop in zip(tile, places, strict=True))
    # Rounding tiles to whole registers may lengthen each axis by less than half.
    assert np.prod(tile) * item <= 1.5 ** len(tile) * max(
        accumulate_launch.l2_cache_bytes() / 2, accumulate_launch.ROWS_BYTES
    )
    for n, loop in zip(tile, places, strict=True):
        starts = [min(i * n, loop.count - n) for i in range(-(-loop.count // n))]
        covered = np.zeros(loop.count, bool)
        for start in starts:
            covered[start : start + n] = True
        assert covered.all()
