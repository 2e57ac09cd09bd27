"""CUDA kernels, run on the CPU under sanitizers, against the slow reference and the CPU's sums.

Compiling a variant takes a third of a second, so cases share variants: sizes are multiples of 16 or
odd, and the few shifts of addresses allow words of 16 bytes or only single items.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutkit import ArraySpec, Converter
from layoutkit.accumulation import Accumulator
from layoutkit.kernels.cuda import launch as launch_module
from layoutkit.kernels.cuda import policy, tiling
from layoutkit.kernels.cuda.launch import CudaLaunch, prepare, source
from layoutkit.kernels.cuda.policy import CHUNK, THREADS
from layoutkit.planning.loops import Loop
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import BF16, LAYINGS, assert_same, laid, random_array
from tests.helpers.cuda_moves import (
    address,
    converted,
    copied,
    placed,
    planned,
    planned_sum,
    prepared,
    summed,
    whole_only,
)
from tests.helpers.cuda_shim import ORDERS
from tests.helpers.reference import reference_convert, reference_sum

pytestmark = [pytest.mark.budget(1), cuda_shim.needs_compiler]
quick = settings(
    deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
RNG = np.random.default_rng(0)
ITEMS = {"u1": 1, "u2": 2, "u4": 4, "f8": 8, "c16": 16}


def numbers(shape, dtype):
    """Return small integers, which every dtype holds; complex numbers have two."""
    real, imaginary = RNG.integers(0, 120, (2, *np.atleast_1d(shape)))
    return (real + 1j * imaginary if np.dtype(dtype).kind == "c" else real).astype(dtype)


POISONS = (0x00, 0xA5, 0xFF)


def compare(*cases):
    """Check conversions (x, pattern, keywords) in each order, with different shared memory."""
    runs = [prepared(x, pattern, **keywords) for x, pattern, keywords in cases]
    for run, (x, pattern, keywords) in zip(runs, cases, strict=True):
        asked = {name: value for name, value in keywords.items() if name != "shift"}
        wanted = reference_convert(x, pattern, **asked)
        for order, poison in zip(ORDERS, POISONS, strict=True):
            assert_same(run(order=order, poison=poison, seed=3), wanted)


# ---- pure moves --------------------------------------------------------------------------

EDGES = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ITEMS)
def test_tile_edges(dtype):
    """Test lengths near the edges of words and tiles, on both axes of a transpose."""
    whole = random_array(RNG, (2, 257, 257), dtype)
    pairs = [*zip(EDGES, EDGES[3:] + EDGES[:3], strict=True), (255, 17), (256, 64), (31, 257)]
    arrays = [copied(whole[:, :n, :m], 0) for n, m in pairs]
    runs = [prepared(x, "bnm->bmn") for x in arrays]
    for x, run, (n, m) in zip(arrays, runs, pairs, strict=True):
        assert_same(run(order=ORDERS[n % 3], seed=m), x.transpose(0, 2, 1).copy())


IMAGES = ("bhwc->bchw", "bchw->bhwc", "bhwc->chwb", "chwb->bchw")


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ITEMS)
def test_images(dtype):
    sizes = dict(zip("bhwc", (17, 3, 9, 32), strict=True))
    shapes = [[sizes[a] for a in pattern[:4]] for pattern in IMAGES]
    arrays = [copied(random_array(RNG, shape, dtype), 0) for shape in shapes]
    compare(*[(x, pattern, {}) for x, pattern in zip(arrays, IMAGES, strict=True)])


@pytest.mark.parametrize(
    ("dtype", "channels"),
    [("u1", 2), ("u1", 3), ("u1", 4), ("u2", 3), ("u4", 2), ("u4", 3), ("f8", 4), ("c16", 3)],
)
@pytest.mark.parametrize("pattern", ["bpc->bcp", "bcp->bpc"])
def test_few_channels(pattern, dtype, channels):
    """Test chunks of pixels that end before, at and after the end of the array."""
    item = ITEMS[dtype]
    chunk = THREADS * max(1, 4 // item) * CHUNK[item]
    cases = []
    for pixels in (17, chunk - 1, chunk, chunk + 1):
        sizes = {"b": 2, "p": pixels, "c": channels}
        shape = [sizes[a] for a in pattern[:3]]
        cases.append((copied(random_array(RNG, shape, dtype), 0), pattern, {}))
    compare(*cases)


# Shapes whose tiles are narrow, or of several turns of an outer loop, and lines of pixels.
FILLED = [
    ("bpc->bcp", (2, 300, 48), "u4"), ("bcp->bpc", (2, 48, 300), "u4"),
    ("bpc->bcp", (2, 301, 8), "u1"), ("bcp->bpc", (2, 64, 1003), "u1"),
    ("bij->bji", (100, 8, 8), "u4"), ("bij->bji", (100, 16, 16), "u1"),
    ("bij->bji", (100, 4, 4), "u4"), ("bij->bji", (100, 5, 7), "u4"),
    ("abij->baji", (3, 5, 20, 24), "u4"), ("bpc->bcp", (2, 304, 6), "f8"),
    ("bpc->bcp", (2, 300, 5), "u4"), ("bpc->bcp", (2, 1030, 17), "u1"),
    ("bcp->bpc", (2, 5, 301), "u1"), ("bcp->bpc", (3, 17, 259), "u2"),
    ("bpc->bcp", (3, 49, 64), "u2"), ("bcp->bpc", (3, 64, 49), "u2"),
    ("bpc->bcp", (7, 81, 3), "u1"), ("bcp->bpc", (7, 3, 64), "u1"),
]  # fmt: skip


@pytest.mark.budget(0)
@pytest.mark.parametrize("shift", [0, 1])
def test_tiles_of_large_arrays_in_small(shift, monkeypatch):
    """Test small arrays with the tiles of large ones, whose shape is chosen to be filled best."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    cases = []
    for pattern, shape, dtype in FILLED:
        item = np.dtype(dtype).itemsize
        x = copied(random_array(RNG, shape, dtype), shift * item)
        cases.append((x, pattern, {"shift": 3 * shift * item}))
    compare(*cases)


# Rows at any address, on either side or both, in several tiles of which some have no edges.
ANYWHERE = [
    ("bpc->bcp", (1, 601, 64), "u1"), ("bcp->bpc", (1, 64, 801), "u1"),
    ("bij->bji", (1, 261, 603), "u1"), ("bij->bji", (1, 231, 227), "u4"),
    ("bwhc->chwb", (141, 2, 3, 67), "u2"),
]  # fmt: skip


@pytest.mark.budget(0)
@pytest.mark.parametrize("shift", [0, 9])
def test_rows_that_begin_anywhere(shift, monkeypatch):
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    monkeypatch.setattr(launch_module, "find_box", lambda *nest: None)
    cases = []
    for pattern, shape, dtype in ANYWHERE:
        item = np.dtype(dtype).itemsize
        x = copied(random_array(RNG, shape, dtype), shift * item)
        cases.append((x, pattern, {"shift": 3 * shift * item}))
        launch = planned(*cases[-1][:2], **cases[-1][2])[1][0][0]
        defined = dict(launch.defines)
        assert "1" in (defined["LOAD_SHIFTED"], defined["STORE_SHIFTED"]), launch
    compare(*cases)


def check_edges(values, shift, side):
    """Transpose and compare; `side` names the array that has gaps after rows, or is reversed."""
    x, (n, m), dtype = copied(values, shift), values.shape[1:], values.dtype
    room = placed((len(values), m, n + 5 * (side == "out with gaps")), dtype, 15 * shift % 16)
    if side == "x with gaps":
        x = copied(np.pad(values, ((0, 0), (0, 0), (0, 3))), shift)[..., :m]
    elif side == "x backwards":
        x = copied(values[::-1, ::-1], shift)[::-1, ::-1]
    before, out = room.copy(), room[..., :n]
    converted(x, "bij->bji", out, how={"order": ORDERS[shift % 3]})
    assert_same(np.ascontiguousarray(out), np.ascontiguousarray(values.transpose(0, 2, 1)))
    assert_same(room[..., n:], before[..., n:])


# Rows and runs near the multiples of a tile of bytes (128 by 128, of which 16 are shared).
SIZES = [(127, 129), (128, 128), (129, 127), (111 + 112, 255), (224, 257), (225, 256), (239, 130),
         (240, 144), (241, 145)]  # fmt: skip


@pytest.mark.budget(0)
@pytest.mark.parametrize("side", ["x backwards", "x with gaps", "out with gaps"])
@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_edges_of_rows_that_begin_anywhere(dtype, side, monkeypatch):
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    for shift in range(0, 16, ITEMS[dtype]):
        n, m = SIZES[(shift + (side == "x backwards")) % len(SIZES)]
        check_edges(random_array(RNG, (2, n, m), dtype), shift, side)


def test_whole_tiles_read_nothing_behind_the_last_row():
    x = copied(random_array(RNG, (1, 256, 256), "u1"), 9)
    launch = dict(planned(x, "bij->bji")[1][0][0].defines)
    assert launch["LOAD_SHIFTED"] == "1"
    assert 256 % int(launch["TILE_ROWS"]) == 256 % int(launch["TILE_RUN"]) == 0
    compare((x, "bij->bji", {}))


SMALL = {"bpc->bcp": (131, 252, 3), "bcp->bpc": (131, 3, 252)}


@pytest.mark.parametrize("keywords", [{}, {"dtype": "f4", "mean": [1.0, 2.0, 3.0]}])
@pytest.mark.parametrize("pattern", SMALL)
def test_chunks_of_pixels_span_small_images(pattern, keywords, monkeypatch):
    """Test that groups of 4 pixels end where images do, with a last chunk that is not full."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    monkeypatch.setattr(launch_module, "find_box", lambda *nest: None)
    x = copied(numbers(SMALL[pattern], "u1"), 0)
    _, [(launch, _, _)] = planned(x, pattern, **keywords)
    assert launch.family == "interleave"
    assert ("PIXELS_LOOPS", "2") in launch.defines
    compare((x, pattern, keywords))


def test_coefficients_along_small_images(monkeypatch):
    """Test constants along pixels and along images, which are one axis of the kernel."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    cases = []
    for pattern, shape, dtype, letter in (
        ("bpc->bcp", (131, 252, 3), "u1", "p"), ("bpc->bcp", (131, 252, 3), "u1", "b"),
        ("bcp->bpc", (131, 3, 251), "f4", "b"),  # words of two images
    ):  # fmt: skip
        x = copied(numbers(shape, dtype), 0)
        mean = [*range(x.shape[pattern.index(letter)])]
        keywords = {"dtype": "f4", "mean": {letter: mean}, "std": {letter: [1.0] * len(mean)}}
        _, [(launch, _, _)] = planned(x, pattern, **keywords)
        assert launch.family == "interleave"
        assert ("PIXELS_LOOPS", "2") in launch.defines
        cases.append((x, pattern, keywords))
    compare(*cases)


@pytest.mark.budget(0)
def test_axes_of_two_loops_with_gaps(monkeypatch):
    """Test inner loops that are not whole words and do not begin at multiples of a word."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    monkeypatch.setattr(launch_module, "find_box", lambda *nest: None)
    cases = []
    for extra in (1, 2):  # items after the 64 of each b
        room = copied(random_array(RNG, (24, 20, 64 + extra), "u1"), 0)
        x = np.lib.stride_tricks.as_strided(room, (24, 20, 8, 8), (*room.strides[:2], 8, 1))
        cases.append((x, None))
        x = copied(random_array(RNG, (24, 20, 8, 8), "u1"), 0)
        cases.append((x, placed((20, 24, 8, 8 + extra), "u1")[..., :8]))
    for x, out in cases:
        kinds = dict(planned(x, "abij->baji", out)[1][0][0].defines)
        assert kinds["ROWS_LOOPS"] == kinds["RUN_LOOPS"] == "3"
    x = copied(random_array(RNG, (11, 12, 12, 16), "u1"), 0)
    cases.append((x, placed((12, 11, 16, 16), "u1")[..., :12]))
    runs = [prepared(x, "abij->baji", out) for x, out in cases]
    for run, (x, _) in zip(runs, cases, strict=True):
        assert_same(np.ascontiguousarray(run()), np.ascontiguousarray(x.transpose(1, 0, 3, 2)))


@pytest.mark.budget(1, all=10)
@pytest.mark.parametrize("words", [5, 6, 7, 9, 13, 19, 29, 31, 32, 33])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "f8"])
def test_short_rows_of_any_number_of_words(dtype, words, monkeypatch):
    """Test threads that share the words of a row; threads beyond the last row read nothing."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    makers = {"transpose": launch_module.make_transpose, "gather": launch_module.make_transpose_any}
    for name, make in makers.items():  # for some, other kernels would be faster
        monkeypatch.setitem(launch_module.MAKERS, name, (make,))
    items = words * max(1, 4 // np.dtype(dtype).itemsize)
    x = copied(random_array(RNG, (100, 4, 3, items), dtype), 0)
    [(launch, _, _)] = planned(x, "abcd->bdac")[1]
    assert launch.family == "transpose"
    compare((x, "abcd->bdac", {}), (x, "abcd->bdac", {"dtype": "f4"}))


@pytest.mark.parametrize("count", [7, 8, 9])
def test_a_loop_that_follows_both_axes_lengthens_the_shorter(count):
    """Test a source with 32 contiguous bytes; the output has 4 for each iteration of the run."""
    both, rows, run = Loop(100, 32, 4 * count), Loop(16, 2, 5600), Loop(count, 3200, 4)
    outer = [both, Loop(1 << 20, 44800, 89600)]
    axes = tiling.fit_axes([rows], [run], outer, 2)
    loops = [axis.loops for axis in axes]
    assert loops == ([(rows,), (both, run)] if count < 8 else [(both, rows), (run,)])
    assert both not in outer


@pytest.mark.parametrize("word", [4, 8, 16])
def test_tiles_with_rows_that_begin_within_a_sector_are_long(word):
    """Test rows at multiples of a word: tiles of partial rows would access more sectors."""
    rows, run = (
        tiling.TileAxis((loop,)) for loop in (Loop(220, 1, 1 << 20), Loop(1 << 20, 220, 1))
    )
    tall, _ = tiling.choose_tile(rows, run, 1, (1, 1), (word, 16), (False, True))
    assert (tall >= 220) == (word < 16)


def test_axes_that_are_fused_have_less_than_2_31_places():
    """Test that fused axes fit 31 bits, as kernels divide their indices by them."""
    rows, run = (Loop(3, 1, 7, 0),), (Loop(7, 3, 1, 0),)
    for high in (Loop(2**30, 3 * 7, 3 * 7, 0), Loop(2**30, 3, 21, 0), Loop(2**30, 99, 7, 0)):
        for axis in tiling.fit_axes(rows, run, [high], 1):
            assert len(axis.loops) == 1 or axis.count < 2**31
    keywords = {"dtype": "f4", "mean": MEAN}
    plan = Converter("bpc->bpc", **keywords).plan(ArraySpec("bpc", (1, 2**30, 3), "u1"))
    assert dict(prepare(plan.choice, plan.epilogue, 0, 0).defines)["PERIOD"] == "0"


def test_casts_of_rows_that_begin_anywhere(monkeypatch):
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    each = {"dtype": "f4", "mean": {"i": MEAN * 75}, "std": {"i": STD * 75}}
    cases = [
        ((1, 225, 331), "u1", each), ((1, 225, 331), "u1", {"dtype": "f8"}),
        ((1, 231, 227), "f4", {"dtype": BF16}),
    ]  # fmt: skip
    compare(*[(copied(numbers(shape, dtype), 4), "bij->bji", keywords)
              for shape, dtype, keywords in cases])  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "shape", "room"),
    [("bwc->bcw", (2, 13, 32), (2, 32, 16)), ("bwc->bcw", (1, 1030, 3), (1, 3, 1040))],
)
def test_a_formula_reads_no_constants_behind_the_last(pattern, shape, room):
    """Test that only existing items of a row's partial last word have a constant."""
    x = copied(numbers(shape, "u1"), 0)
    width = shape[1]
    out = placed(room, "f4")[..., :width]
    formula = {"dtype": "f4", "mean": {"w": [*range(width)]}, "std": {"w": [1.0] * width}}
    wanted = reference_convert(x, pattern, **formula)
    assert_same(np.ascontiguousarray(converted(x, pattern, out, **formula)), wanted)


@pytest.mark.budget(0)
def test_casts_and_formulas_of_lines(monkeypatch):
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    formula = {"dtype": "f4", "mean": MEAN, "std": STD}
    cases = [
        ("bpc->bcp", (2, 3003, 3), "u1", formula), ("bcp->bpc", (2, 3, 3003), "u1", formula),
        ("bpc->bcp", (9, 25, 3), "u1", {**formula, "dtype": BF16}),
        ("bcp->bpc", (9, 3, 25), "f4", {"dtype": "u1", "casting": "saturate"}),
        ("bpc->bcp", (2, 303, 6), "f4", {"dtype": BF16}),
    ]  # fmt: skip
    compare(*[(copied(numbers(shape, dtype), 0), pattern, keywords)
              for pattern, shape, dtype, keywords in cases])  # fmt: skip


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(
    ("pattern", "shape", "keywords", "families"),
    [
        ("bpxy->byxp", (2, 1031, 3, 2), {}, ("gather", "permute")),
        (
            "bpxy->byxp",
            (2, 1031, 3, 2),
            {"dtype": "f4", "mean": {"x": [1, 2, 3]}},
            ("gather", "permute"),
        ),
        (
            "bpxy->byxp",
            (2, 1031, 3, 2),
            {"dtype": "f4", "mean": {"y": [1, 2]}},
            ("gather", "permute"),
        ),
        ("byxp->bpxy", (2, 2, 3, 515), {}, ("gather", "permute")),
    ],
)
def test_channels_of_two_axes_in_another_order(
    pattern, shape, keywords, families, shift, monkeypatch
):
    """Test planes in another order than the channels of a pixel, in small and in large arrays."""
    x = copied(numbers(shape, "u1"), shift)
    for few, family in zip((policy.FEW_TILES, 0), families, strict=True):
        monkeypatch.setattr(policy, "FEW_TILES", few)
        assert planned(x, pattern, **keywords)[1][0][0].family == family
        compare((x, pattern, {"shift": 4 * shift, **keywords}))


@pytest.mark.budget(0)
@pytest.mark.parametrize("shift", [0, 1])
def test_channels_that_stay_side_by_side(shift):
    """Test runs with periodic coefficients, over several blocks, words and partial words."""
    cases = []
    for shape, dtype, target in [
        ((2, 3003, 3), "u1", "f4"), ((2, 4099, 3), "u1", BF16), ((5, 333, 6), "f4", "f2"),
        ((2, 1500, 24), "u1", "f4"), ((1, 2, 3), "u1", "f4"),
    ]:  # fmt: skip
        times = shape[-1] // 3
        keywords = {"dtype": target, "mean": MEAN * times, "std": STD * times}
        x = copied(numbers(shape, dtype), shift * np.dtype(dtype).itemsize)
        cases.append((x, "bpc->bpc", keywords))
    compare(*cases)


@pytest.mark.parametrize("side", ["x", "out"])
def test_channels_that_stay_with_gaps_between_pixels(side):
    keywords = {"dtype": "f4", "mean": MEAN, "std": STD}
    values = numbers((2, 41, 3), "f4")
    x, out = copied(values, 0), placed((2, 41, 4), "f4")[..., :3]
    if side == "x":
        x = copied(np.pad(values, ((0, 0), (0, 0), (0, 1))), 0)[..., :3]
        out = None
    found = np.ascontiguousarray(converted(x, "bpc->bpc", out, **keywords))
    assert_same(found, reference_convert(values, "bpc->bpc", **keywords))


RUNS = (1, 3, 4, 16, 255, 256, 257, 1023, 1024, 1025)


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ["u1", "u4", "c16"])
def test_copies_of_runs(dtype):
    arrays = [copied(random_array(RNG, (3, 5, run), dtype), 0) for run in RUNS]
    compare(*[(x, "abc->bac", {}) for x in arrays], *[(x[::-1], "abc->abc", {}) for x in arrays])


@pytest.mark.parametrize("dtype", ["u1", "u4", "c16"])
@pytest.mark.parametrize("pattern", ["bhw->bwh", "bhw->bhw", "bwc->bcw"])
def test_any_address(pattern, dtype):
    """Test that kernels assume no alignment and write nothing around the output."""
    values = random_array(RNG, (2, 48, 3) if "c" in pattern else (2, 48, 80), dtype)
    wanted = reference_convert(values, pattern)
    runs = []
    for here, there in [(0, 0), (1, 0), (2, 8), (4, 4), (0, 12)]:
        room = placed((values.nbytes + 32,), "u1")
        out = room[there : there + values.nbytes].view(dtype).reshape(wanted.shape)
        runs.append((prepared(copied(values, here), pattern, out), room, there))
    for run, room, there in runs:
        assert_same(run(), wanted)
        assert (room[:there] == 0x77).all()
        assert (room[there + values.nbytes :] == 0x77).all()


@pytest.mark.parametrize("dtype", ["u1", "u4", "c16"])
def test_rows_with_gaps(dtype):
    """Test aligned rows with a partial last word, on either side; gaps keep their values."""
    for shape in ((80, 77), (33, 65), (16, 15)):
        room = copied(random_array(RNG, (shape[0], 96), dtype), 0)
        x = room[:, : shape[1]]
        compare((x, "bc->cb", {}), (x, "bc->bc", {}))
        whole = placed((shape[1], 96), dtype)
        before = whole.copy()
        assert_same(converted(x, "bc->cb", whole[:, : shape[0]]), x.T)
        assert_same(whole[:, shape[0] :], before[:, shape[0] :])


@pytest.mark.parametrize("rank", [9, 13])
def test_many_axes_that_do_not_fuse(rank):
    letters = "abcdefghijklm"[:rank]
    x = random_array(RNG, (2,) * rank, "u2")
    target = letters[::2][::-1] + letters[1::2]
    assert_same(
        converted(x, f"{letters}->{target}"), x.transpose([letters.index(a) for a in target]).copy()
    )


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("abc->acb", (2**31, 3, 3)), ("abc->acb", (2**31 - 1, 3, 3)),
        ("abcde->cabed", (2**30, 2, 3, 2, 5)), ("abc->cba", (2, 2**31, 3)),
        ("ab->ba", (2**31 + 1, 3)), ("ab->ba", (3, 2**32 + 1)), ("ab->ba", (50021, 43037)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["u1", "f4", "c16"])
def test_more_turns_than_a_launch_counts(pattern, shape, dtype):
    """Test that loops of any length have a launch, which needs too much memory to run here."""
    plan = Converter(pattern, copy=True).plan(ArraySpec(pattern.split("->")[0], shape, dtype))
    assert 0 < prepare(plan.choice, None, 0, 0).grid < 2**31


def test_a_launch_has_fewer_than_2_31_blocks():
    assert CudaLaunch("gather", (), b"", 2**31 - 1).grid == 2**31 - 1
    with pytest.raises(RuntimeError, match="2147483648 thread blocks"):
        CudaLaunch("gather", (), b"", 2**31)


@pytest.mark.parametrize(("pattern", "shape"), [("bc->cb", (65, 70)), ("bpc->bcp", (3, 40, 3))])
def test_rows_that_are_far_apart(pattern, shape):
    """Test offsets beyond 2**32 bytes; only the pages that are written use memory."""
    step = 2**32 // (shape[0] - 1) // 64 * 64 + 128
    try:
        room = np.zeros(step * shape[0], np.uint8)
    except MemoryError:
        pytest.skip("needs 4 GiB of addresses")
    x = np.lib.stride_tricks.as_strided(
        room.view(np.uint32), shape, (step, *np.zeros(shape[1:], np.uint32).strides)
    )
    x[...] = random_array(RNG, shape, "u4")
    _, [(launch, out, (dst, src))] = planned(x, pattern)
    cuda_shim.launch(launch, [address(out) + dst, 0, address(x) + src])
    assert_same(out, reference_convert(x, pattern))


@st.composite
def moves(draw):
    """Draw (pattern, shape): up to five axes in another order, of few elements."""
    letters = draw(st.permutations("abchw"))[: draw(st.integers(1, 5))]
    sizes, room = {}, 1 << 13
    for letter in draw(st.permutations(letters)):
        few = [n for n in (1, 2, 3, 15, 16, 17, 33, 64, 65, 129, 1023) if n <= room]
        sizes[letter] = draw(st.sampled_from(few))
        room //= sizes[letter]
    target = draw(st.permutations(letters))
    return f"{''.join(letters)}->{''.join(target)}", tuple(sizes[a] for a in letters)


HOW = st.fixed_dictionaries(
    {"order": st.sampled_from(ORDERS), "seed": st.integers(0, 99),
     "poison": st.sampled_from([0x00, 0xA5])}
)  # fmt: skip


@pytest.mark.budget(0)
@quick
@given(moves(), st.sampled_from(["u1", "u2", "u4", "c16"]), st.sampled_from(LAYINGS), HOW)
def test_any_move(move, dtype, laying, how):
    pattern, shape = move
    x = laid(random_array(np.random.default_rng(how["seed"]), shape, dtype), laying)
    assert_same(converted(x, pattern, how=how), reference_convert(x, pattern))


@pytest.mark.budget(0)
@quick
@given(moves(), st.sampled_from(["u1", "u2", "u4"]), st.sampled_from(LAYINGS), HOW)
def test_any_move_in_tiles_of_large_arrays(move, dtype, laying, how):
    pattern, shape = move
    x = laid(random_array(np.random.default_rng(how["seed"]), shape, dtype), laying)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "FEW_TILES", 0)
        assert_same(converted(x, pattern, how=how), reference_convert(x, pattern))


OUTS = ("plain", "fortran", "backward", "unaligned", "pages")


@quick
@given(moves(), st.sampled_from(["u1", "f4"]), st.sampled_from(OUTS), HOW)
def test_any_output(move, dtype, laying, how):
    pattern, shape = move
    x = copied(random_array(np.random.default_rng(how["seed"]), shape, dtype), 0)
    wanted = reference_convert(x, pattern)
    out = laid(np.zeros(wanted.shape, dtype), laying)
    around = out.base.copy() if laying == "pages" else None
    plan, _ = planned(x, pattern, out)
    if plan.after is None:
        converted(x, pattern, out, how=how)
        assert_same(out, wanted)
    if around is not None:
        out[...] = 0
        np.testing.assert_array_equal(out.base, around)


# ---- casts and the formula ---------------------------------------------------------------

CASTS = [("u1", "f4"), ("f4", BF16), (BF16, "f4"), ("f4", "f2"), ("f2", "f4"), ("f8", "f4"),
         ("u1", BF16), ("i8", "f8"), ("?", "f4")]  # fmt: skip
SHAPES = {
    "bwc->bcw": [(2, 33, 65), (1, 129, 65), (2, 257, 3)],
    "bcw->bwc": [(3, 3, 257), (2, 65, 17)],
    "bwc->bwc": [(2, 33, 9), (1, 5, 1025)],
}


@pytest.mark.budget(2, all=3)
@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
def test_casts(source, target):
    cases = [(pattern, shape) for pattern, shapes in SHAPES.items() for shape in shapes]
    compare(*[(copied(numbers(shape, source), 0), pattern, {"dtype": target})
              for pattern, shape in cases])  # fmt: skip


@pytest.mark.parametrize("target", ["u1", "i2", "i8"])
def test_saturating_casts(target):
    x = (RNG.standard_normal((2, 65, 33)) * 300).astype("f4")
    x[0, 0, :8] = [0.5, 1.5, -0.5, 2.5, 1e30, -1e30, np.nan, -np.inf]
    keywords = {"dtype": target, "casting": "saturate"}
    compare((x, "bwc->bcw", keywords), (x, "bwc->bwc", keywords))


# Constants with which results are exact with any rounding, so all bits are compared.
MEAN, STD = [0.5, 0.25, 0.75], [0.5, 0.25, 0.125]
NORMALIZED = ("bhwc->bchw", "bchw->bhwc", "bhwc->bhwc", "bhwc->chwb", "bhwc->bwhc")


@pytest.mark.parametrize(
    ("target", "channels", "patterns"),
    [("f4", 3, NORMALIZED), ("f4", 36, NORMALIZED), (BF16, 3, NORMALIZED[:2]),
     ("f8", 36, NORMALIZED[:2])],
    ids=str,
)  # fmt: skip
def test_a_formula_with_coefficients_of_each_channel(patterns, target, channels):
    sizes = {"b": 5, "h": 9, "w": 11, "c": channels}
    keywords = {"dtype": target, "mean": MEAN * (channels // 3), "std": STD * (channels // 3)}
    arrays = [copied(numbers([sizes[a] for a in pattern[:4]], "u1"), 0) for pattern in patterns]
    compare(*[(x, pattern, keywords) for x, pattern in zip(arrays, patterns, strict=True)])


def test_a_formula_of_backward_channels_and_of_one_pair():
    x = copied(numbers((2, 33, 3), "u1"), 0)[:, :, ::-1]
    formulas = ({"mean": MEAN, "std": STD}, {"mean": 0.5, "std": 0.25}, {"scale": 0.5})
    compare(*[(x, pattern, {"dtype": "f4", **formula})
              for pattern in ("bwc->bcw", "bwc->bwc") for formula in formulas])  # fmt: skip


def test_a_formula_in_float64_is_rounded_once():
    """Test values that float32 would round to a tie, which rounds to the other neighbor."""
    values = [1 + k * 2.0**-10 + 2.0**-11 + d * 2.0**-40 for k in range(8) for d in (-1, 1)]
    x = copied(np.resize(values, (1, 64, 3)) + 1, 0)
    expected = (x - 1).astype("f2").transpose(0, 2, 1)
    for pattern, wanted in (("bwc->bcw", expected), ("bwc->bwc", expected.transpose(0, 2, 1))):
        assert_same(converted(x, pattern, dtype="f2", mean=1.0), np.ascontiguousarray(wanted))


@pytest.mark.budget(0)
@pytest.mark.parametrize("source", ["i4", "u4", "i8", "u8"])
def test_a_formula_of_wide_integers_is_computed_in_float64(source):
    top = 2**31 - 1
    x = copied((top - np.arange(66)).reshape(2, 11, 3).astype(source), 0)
    formulas = {"mean": [top, top - 1, top - 2]}, {"mean": top, "clip": (top - 50, top - 5)}
    for target in ("f4", BF16):
        compare(*[(x, pattern, {"dtype": target, **formula})
                  for pattern in ("bwc->bcw", "bwc->bwc") for formula in formulas])  # fmt: skip


@pytest.mark.parametrize("axis", ["b", "h", "w"])
def test_a_formula_along_other_axes(axis):
    sizes = {"b": 5, "h": 9, "w": 12, "c": 3}
    constants = np.resize(MEAN, sizes[axis]).tolist(), np.resize(STD, sizes[axis]).tolist()
    keywords = {
        "dtype": "f4",
        **dict(zip(("mean", "std"), ({axis: v} for v in constants), strict=True)),
    }
    arrays = [copied(numbers([sizes[a] for a in pattern[:4]], "u1"), 0) for pattern in NORMALIZED]
    compare(*[(x, pattern, keywords) for x, pattern in zip(arrays, NORMALIZED, strict=True)])


@pytest.mark.budget(1, all=6)
@pytest.mark.parametrize("source", ["u1", "i2", "f2", BF16, "f4", "f8"], ids=str)
@pytest.mark.parametrize("clip", [(3, 40), (None, 7), (20, None)])
def test_a_clip(source, clip):
    """Test a clip alone, where integers stay integers, and before a formula."""
    x = copied(numbers((2, 33, 3), source), 0)
    formula = {"dtype": "f8" if source == "f8" else "f4", "mean": MEAN, "std": STD}
    compare(*[(x, pattern, {"clip": clip, **keywords})
              for pattern in ("bwc->bcw", "bwc->bwc") for keywords in ({}, formula)])  # fmt: skip


def test_a_clip_leaves_nan_and_takes_infinities():
    x = copied(numbers((1, 64, 3), "f4"), 0)
    x[0, :3, 0] = [np.nan, np.inf, -np.inf]
    compare((x, "bwc->bcw", {"clip": (-2, 5.5)}), (x, "bwc->bcw", {"clip": (-2, 5.5), "mean": 1}))


def test_a_saturating_formula():
    x = copied(numbers((2, 33, 3), "f4"), 0)
    keywords = {"dtype": "u1", "casting": "saturate", "scale": 4.0, "mean": [9.0, 100.0, 200.0]}
    compare((x, "bwc->bcw", keywords))


@pytest.mark.budget(0)
def test_sides_of_a_cast_on_any_of_its_addresses():
    values = numbers((2, 48, 64), "u2")
    compare(*[(copied(values, here), pattern, {"dtype": "f4", "shift": there})
              for here, there in [(0, 0), (2, 4), (8, 8)]
              for pattern in ("bwc->bcw", "bwc->bwc")])  # fmt: skip


# ---- sums --------------------------------------------------------------------------------


def spread(shape, dtype):
    """Return numbers of very different magnitudes, whose sum depends on the order."""
    values = RNG.standard_normal(shape) * 10.0 ** RNG.integers(-3, 4, shape)
    return values.astype("f4").astype(dtype)


def wanted_sum(parts, layout, **keywords):
    asked = Accumulator(tuple(of for _, of in parts), layout, **keywords)
    request = asked.plan([part for part, _ in parts], None)
    return reference_sum(parts, layout, request.computed, request.result)


def compare_sums(parts, layout, **keywords):
    assert_same(summed(parts, layout, **keywords), wanted_sum(parts, layout, **keywords))


@pytest.mark.budget(2)
@pytest.mark.parametrize("layout", ["bhwc", "bchw", "chwb", "b(hwc)"])
@pytest.mark.parametrize("order", ORDERS)
def test_sums_of_many_layouts(layout, order):
    sizes = {"b": 5, "h": 6, "w": 7, "c": 33}
    parts = [(spread([sizes[a] for a in of], "f4"), of) for of in ("bhwc", "bchw", "chwb", "whcb")]
    got = summed(parts, layout, how={"order": order, "poison": 0xFF})
    assert_same(got, wanted_sum(parts, layout))


@pytest.mark.budget(0)
@pytest.mark.parametrize("result", ["f2", BF16, "f4", "f8"], ids=str)
def test_sums_of_many_dtypes(result):
    sizes = {"b": 5, "w": 42, "c": 33}
    parts = [
        (spread([sizes[a] for a in of], dtype), of)
        for of, dtype in zip(("bwc", "bcw", "cwb", "wbc"), ("f2", BF16, "f4", "f8"), strict=True)
    ]
    compare_sums(parts, "bwc", dtype=result)
    compare_sums(parts[:3], "bcw", dtype=result)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "c8", "c16"])
def test_sums_of_integers_and_complex_numbers(dtype):
    sizes = {"b": 5, "w": 42, "c": 17}
    parts = [(numbers([sizes[a] for a in of], dtype), of) for of in ("bwc", "cwb", "bcw")]
    compare_sums(parts, "bcw")


@pytest.mark.parametrize("count", [2, 15, 16])
def test_sums_of_many_parts(count):
    parts = [(spread((33, 65), "f4"), "bc") for _ in range(count - 1)]
    compare_sums([*parts, (spread((65, 33), "f4"), "cb")], "bc")


@pytest.mark.parametrize("size", [1, 31, 32, 33, 255, 256, 257])
def test_sums_about_the_edges_of_boxes(size):
    compare_sums([(spread((size, 70), "f4"), "bc"), (spread((70, size), "f4"), "cb")], "bc")


@pytest.mark.budget(0)
def test_sums_of_whole_words_in_many_boxes():
    """Test words of 16 bytes in boxes that are full, partial or empty."""
    sizes = {"b": 40, "w": 100, "c": 36}
    for dtype in ("f4", BF16, "u1"):
        parts = [
            (spread([sizes[a] for a in of], "f4").astype(dtype), of)
            for of in ("bwc", "cwb", "bcw", "bwc", "cbw")
        ]
        compare_sums([(copied(part, 0), of) for part, of in parts], "bwc")


# The lengths of a box by dtypes, for parts in three layouts (see `kernels/cuda/accumulate.py`).
BOXES = {
    (BF16,): (16, 16, 32), ("f4",): (16, 16, 16), ("f8",): (16, 8, 16), ("i2",): (16, 16, 16),
    ("u1",): (16, 16, 16), (BF16, "f2"): (16, 16, 32), ("i4", "i2"): (16, 16, 16),
}  # fmt: skip


@pytest.mark.budget(1, all=10)
@pytest.mark.parametrize("more", [-1, 0, 1], ids=["below", "at", "above"])
@pytest.mark.parametrize("is_wide", [True, False], ids=["words", "items"])
@pytest.mark.parametrize("dtypes", BOXES, ids=str)
def test_sums_in_three_layouts_about_the_edges_of_boxes(dtypes, is_wide, more):
    """Test twice the lengths of a box, and one word of 16 bytes or one item less and more."""
    step = 16 // min(np.dtype(dtype).itemsize for dtype in dtypes) if is_wide else 1
    lengths = [2 * length + more * step for length in BOXES[dtypes]]
    sizes = dict(zip("bwc", lengths, strict=True))
    layouts = "bwc", "cwb", "bcw", "wcb", "cbw"
    parts = [
        (copied(spread([sizes[axis] for axis in layout], "f4").astype(dtype), 0), layout)
        for layout, dtype in zip(layouts, (dtypes * 5)[:5], strict=True)
    ]
    launch = planned_sum(parts, "bwc")[0]
    assert dict(launch.defines)["WIDTHS"] == "2" or not is_wide
    assert (launch.grid == 8) if more == 0 else (launch.grid > 8) == (more > 0)
    compare_sums(parts, "bwc")
    if more == 0:  # no box uses the code for partial boxes
        how = {"text": whole_only(source("accumulate"))}
        assert_same(summed(parts, "bwc", how=how), wanted_sum(parts, "bwc"))


@pytest.mark.parametrize("dtype", [BF16, "f4", "f8", "c8"], ids=str)
def test_sums_of_negative_zeros_and_of_special_values(dtype):
    """Test that sums begin with the first part, not with zero."""
    special = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1.0], "f4").astype(dtype)
    first, second = (part.ravel() for part in np.meshgrid(special, special))
    parts = [(np.full((8, 12), -0.0, "f4").astype(dtype), "bc") for _ in range(2)]
    with np.errstate(invalid="ignore"):
        compare_sums(parts, "bc")
        compare_sums([(part.reshape(3, 12), "bc") for part in (first, second)], "bc")
    assert np.signbit(summed(parts, "bc").real.astype("f4")).all()


@pytest.mark.parametrize("dtype", ["u1", BF16, "f4", "f8", "c16"], ids=str)
def test_parameters_of_the_largest_sum_fit_a_launch(dtype):
    """Test that 16 parts and 8 axes, in words of any length, fit 4 KB with the addresses."""
    for count in (2, 4):
        parts = [
            (placed((count,) * 8, dtype), "abcdefgh"[at:] + "abcdefgh"[:at]) for at in range(8)
        ]
        launch = planned_sum(parts * 2, "abcdefgh")[0]
        assert dict(launch.defines)["AXES"] == "8"
        assert len(launch.params) + 8 * launch.pointers <= 4096


@pytest.mark.parametrize("shift", [0, 4, 8])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_sums_where_one_array_begins_elsewhere(which, shift):
    """Test that words of 16 bytes are accessed only at multiples of 16 bytes."""
    parts = [(copied(spread(shape, "f4"), shift * (at == which)), of)
             for at, (shape, of) in enumerate([((36, 72), "bc"), ((72, 36), "cb")])]  # fmt: skip
    out = placed((36, 72), "f4", shift * (which == 2))
    got = summed(parts, "bc", out=out)
    assert_same(got, wanted_sum(parts, "bc"))
    defines = dict(planned_sum(parts, "bc", out)[0].defines)
    words = defines["PER_WORD"], defines["WIDTHS"]
    assert words == {0: ("4", "2"), 4: ("4", "3"), 8: ("2", "2")}[shift]


@pytest.mark.parametrize("which", [0, 1])
def test_sums_where_one_array_has_gaps_between_items(which):
    """Test items that do not form words, although all arrays begin at multiples of 16 bytes."""
    parts = [
        (copied(spread(shape, "f4"), 0), of) for shape, of in [((36, 72), "bc"), ((72, 36), "cb")]
    ]
    values, of = parts[which]
    spaced = placed((*values.shape, 2), "f4")[..., 0]
    spaced[...] = values
    parts[which] = (spaced, of)
    compare_sums(parts, "bc")


@pytest.mark.parametrize("laying", [how for how in LAYINGS if how != "unaligned"])
def test_sums_of_any_strides(laying):
    parts = [(laid(spread((5, 6, 33), "f4"), laying), "bwc"), (spread((33, 6, 5), "f4"), "cwb")]
    compare_sums(parts, "wbc")
    out = laid(np.zeros((6, 5, 33), "f4"), "pages" if laying == "pages" else "backward")
    summed(parts, "wbc", out=out)
    assert_same(out, wanted_sum(parts, "wbc"))


# ---- no access is unordered --------------------------------------------------------------


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ["u1", "u4"])
@pytest.mark.parametrize("pattern", ["bwc->bcw", "bcw->bwc"])
def test_threads_do_not_race(pattern, dtype):
    """Test transposes and few channels, with two blocks one after the other."""
    for shape in ((1, 33, 140), (2, 3, 40), (2, 40, 3)):
        x = copied(random_array(RNG, shape, dtype), 0)
        got = converted(x, pattern, how={"mode": "threads", "order": "random"})
        assert_same(got, reference_convert(x, pattern))


@pytest.mark.parametrize("other", ["f4", "f2"])
def test_threads_of_a_sum_do_not_race(other):
    """Test sums with two tiles, and sums of several dtypes, whose parts share one tile."""
    first = "f4" if other == "f4" else BF16
    parts = [(spread((24, 70), first), "bc"), (spread((70, 24), other), "cb")]
    parts += [(spread((70, 24), first), "cb"), *parts]
    assert_same(summed(parts, "bc", how={"mode": "threads"}), wanted_sum(parts, "bc"))


def test_every_family_has_run():
    """Test that the tests above select the kernels they are written for."""
    chosen = {
        pattern: planned(copied(numbers(shape, dtype), 0), pattern)[1][0][0].family
        for pattern, shape, dtype in [
            ("bc->cb", (64, 64), "u4"),
            ("bpc->bcp", (2, 64, 3), "u4"),
            ("ba->ba", (3, 65), "u4"),
            ("bcp->bpc", (2, 3, 65), "u4"),
            ("abc->bac", (3, 5, 15), "u2"),
        ]
    }
    assert chosen == {
        "bc->cb": "transpose",
        "bpc->bcp": "interleave",
        "ba->ba": "gather",
        "bcp->bpc": "lines",
        "abc->bac": "runs",
    }
