"""The division of work into blocks: every block shape, also shapes for large arrays only.

Streaming is forced on by lowering its limit, so that small arrays run the kernels of large ones.
"""

import numpy as np
import pytest

from layoutkit import Converter, convert, plan
from layoutkit.kernels.cpu import caches, launch, tiling
from layoutkit.kernels.cpu import params as words
from layoutkit.kernels.cpu.params import HEAD, LANE, LINE, MAX_LOOPS, SCRATCH
from layoutkit.kernels.cpu.tiling import TILINGS
from layoutkit.planning.epilogue import Epilogue
from layoutkit.planning.loops import Loop
from layoutkit.planning.select import MAX_OUTER, KernelChoice
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(3)


def numbers(shape, dtype):
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


CASES = [
    # axes around one tile, two tiles, and one more or less
    *[("xy->yx", (m, n)) for m in (15, 16, 17, 33, 63, 64, 65, 129) for n in (4, 31, 64, 130)],
    # every number of rows that the last tile of a direct transpose stores
    *[("xy->yx", (64, n)) for n in (5, 6, 7, 9, 18, 19, 21)],
    # rows that are stored as one, of up to 2 KB
    *[("bpc->bcp", (3, p, c)) for p in (199, 299, 501, 513) for c in (5, 16, 21)],
    *[("bpc->bcp", (3, p, c)) for p in (1023, 1025, 2001) for c in (16, 33)],
    # copies of runs in the order of the source: one and several loops of rows, and a remainder
    *[("abc->bac", (a, b, c)) for a in (5, 70) for b in (2, 3, 16) for c in (256, 300, 1024)],
    ("abcd->cabd", (3, 5, 4, 256)),
    # few channels, more and fewer pixels than a register holds
    *[("bpc->bcp", (3, p, c)) for p in (5, 15, 16, 17, 64, 65, 1000) for c in (2, 3, 4)],
    *[("bcp->bpc", (3, c, p)) for p in (5, 15, 16, 17, 64, 65, 1000) for c in (2, 3, 4)],
    # channel counts that fill no register, and batches that fill no line
    *[("bhwc->bchw", (2, 9, 7, c)) for c in (5, 12, 17, 31, 33)],
    *[("bchw->bhwc", (2, c, 9, 7)) for c in (5, 12, 17, 31, 33)],
    *[("bhwc->chwb", (b, 5, 7, c)) for b in (3, 17, 64, 255) for c in (3, 5, 17)],
    *[("chwb->bhwc", (c, 5, 7, b)) for b in (3, 17, 64, 255) for c in (3, 5, 17)],
    # short rows and runs that are both lengthened by the axis between them
    *[("bhwc->chwb", (b, h, 5, c)) for b in (64, 128, 192) for c in (64, 80) for h in (1, 4, 5)],
    ("bwc->cwb", (64, 100, 64)),
    # short runs that are joined, and runs that are too many or too long to be joined
    *[("abcd->bacd", (a, b, 3, 7)) for a in (1, 5, 400) for b in (2, 3, 300)],
    *[("abcd->cbad", (3, 5, c, d)) for c in (2, 28) for d in (3, 17, 24, 31, 64, 129, 700)],
    *[("abcde->badce", (2, 3, c, d, 24)) for c in (3, 28) for d in (4, 700)],
    # several blocks along rows that begin within cache lines
    *[("bpc->bcp", (2, p, c)) for p in (1409, 5001) for c in (2, 4, 7, 33)],
    # steps that are multiples of a page
    ("xy->yx", (64, 1024)),
    ("bwc->cwb", (64, 4, 1024)),
]


@pytest.mark.budget(1, all=150)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(("pattern", "shape"), CASES, ids=lambda case: str(case))
@pytest.mark.usefixtures("streaming")
def test_every_block_shape_is_right(pattern, shape, dtype):
    x = numbers(shape, dtype)
    np.testing.assert_array_equal(Converter(pattern)(x), reference_convert(x, pattern))


@pytest.mark.budget(1, all=6)
@pytest.mark.parametrize("itemsize", [2, 8, 16])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->chwb", "bchw->bhwc"])
@pytest.mark.usefixtures("streaming")
def test_other_item_sizes(pattern, itemsize):
    dtype = {2: "uint16", 8: "float64", 16: "complex128"}[itemsize]
    for shape in ((17, 9, 7, 5), (32, 3, 5, 64)):
        x = numbers(shape, dtype)
        np.testing.assert_array_equal(Converter(pattern)(x), reference_convert(x, pattern))


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8, 60, 64])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->chwb", "chwb->bhwc", "bhwc->bhwc"])
@pytest.mark.usefixtures("streaming")
def test_outputs_that_begin_anywhere(pattern, offset):
    """Outputs that begin within a cache line must not be streamed, which needs whole lines."""
    x = numbers((32, 5, 7, 3), np.float32)
    expected = reference_convert(x, pattern)
    raw = np.full(expected.nbytes + 192, 77, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    out = raw[start : start + expected.nbytes].view(np.float32).reshape(expected.shape)
    assert Converter(pattern)(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert (raw[:start] == 77).all()
    assert (raw[start + expected.nbytes :] == 77).all()


@pytest.mark.parametrize(("channels", "width", "batch"), [(40, 5, 64), (7, 3, 33), (100, 9, 40)])
@pytest.mark.parametrize("pattern", ["bcw->cwb", "bcw->wcb"])
def test_coefficients_follow_the_blocks_of_a_fused_axis(pattern, channels, width, batch):
    """Fuse channels with an inner axis: later blocks once used the means of the first block."""
    x = np.random.default_rng(0).random((batch, channels, width), dtype=np.float32)
    means = np.arange(channels) / 10
    result = convert(x, pattern, mean=means)
    expected = reference_convert(x, pattern, mean=means)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.budget(1)
@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(
    ("pattern", "shape"),
    [("bhwc->bhwc", (5, 9, 7, 3)), ("bchw->bhwc", (5, 3, 9, 70)), ("bhwc->bchw", (5, 9, 70, 3)),
     ("bchw->bhwc", (5, 20, 9, 7)), ("bhwc->chwb", (70, 9, 7, 3)), ("bwc->wbc", (4, 5, 300)),
     ("chwb->bhwc", (3, 9, 7, 70)), ("chwb->bhwc", (7, 5, 9, 64))],
)  # fmt: skip
def test_per_channel_constants_in_every_role(pattern, shape):
    """Test coefficients of an outer loop, of rows, along a run, and repeated along a run."""
    x = numbers(shape, np.uint8)
    channels = shape[pattern.index("c")]
    mean = np.arange(channels) / 3
    std = 1 + np.arange(channels) / 7
    keywords = {"scale": 0.5, "mean": mean, "std": std}
    expected = reference_convert(x, pattern, **keywords)
    np.testing.assert_allclose(convert(x, pattern, **keywords), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("pattern", "shape", "dtype", "rows"),
    [
        ("bhwc->chwb", (64, 56, 56, 64), "u1", 128),  # two pixels of 64 channels
        ("bhwc->chwb", (64, 56, 56, 32), "u1", 128),
        ("bhwc->chwb", (64, 56, 56, 64), "f4", 64),  # 256 bytes as they are
        ("bhwc->chwb", (128, 56, 56, 64), "u1", 64),
        ("bhwc->hcwb", (64, 56, 56, 64), "u1", 128),
        ("bhwc->cwhb", (64, 56, 56, 64), "u1", 64),  # no axis is next to both
        ("bhwc->bchw", (64, 56, 56, 64), "u1", 64),
    ],
)
def test_short_rows_and_runs_are_lengthened_together(pattern, shape, dtype, rows):
    found = plan(pattern, shape, dtype)
    cutter = TILINGS[found.choice.kernel](found.choice, found.epilogue, LINE, True)
    assert cutter.axes()[1].block == rows


@pytest.mark.parametrize("shape", [(999, 640), (1301, 640), (2001, 640), (1301, 5, 17)])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
def test_blocks_of_short_runs_fill_a_lane(shape, dtype):
    """Move no block item by item, because the scratch area holds few of its long rows."""
    pattern = "xy->yx" if len(shape) == 2 else "xyz->zyx"
    planned = plan(pattern, shape, dtype)
    tiling = TILINGS[planned.choice.kernel](planned.choice, planned.epilogue, 1, True)
    _, rows = tiling.axes()
    assert rows.block >= LANE // np.dtype(dtype).itemsize


def test_tables_of_fused_runs_are_short():
    planned = plan("bhwc->chwb", (2, 70, 71, 3), "u1")
    assert len(launch.prepare(planned.choice, planned.epilogue, LINE).params) < 1 << 13


def is_streamed(pattern, shape, dtype):
    planned = plan(pattern, shape, dtype)
    spec = launch.prepare(planned.choice, planned.epilogue, LINE).spec
    return spec.literals[-1] == 1


def test_runs_of_one_cache_line_are_streamed():
    assert is_streamed("bhwc->chwb", (64, 56, 56, 64), "u1")
    assert is_streamed("bhwc->chwb", (16, 112, 112, 64), "f4")
    assert not is_streamed("bhwc->chwb", (63, 112, 112, 64), "u1")  # 63 bytes


@pytest.mark.parametrize("single_lines", [False, True])
def test_sizes_that_are_streamed(monkeypatch, single_lines):
    """Stream transposes earlier than other kernels, on CPUs that stream single cache lines."""
    monkeypatch.setattr(launch, "STREAM_BYTES", 8 << 20)
    monkeypatch.setattr(launch, "streams_single_lines", lambda: single_lines)
    assert is_streamed("xy->yx", (1024, 1024), "u1") == single_lines
    assert is_streamed("xy->yx", (2050, 2050), "u1") == single_lines
    assert not is_streamed("xy->yx", (2000, 2000), "u1")  # rows are no full lines
    assert not is_streamed("bhwc->bchw", (64, 128, 128, 3), "u1")
    assert not is_streamed("bhwc->bchw", (64, 128, 128, 5), "u1")
    assert is_streamed("bhwc->bchw", (64, 256, 256, 5), "u1")


def test_parameter_block_holds_all_loops():
    """Two fused axes may be split again: their loops need room in addition to all outer loops."""
    assert MAX_LOOPS >= MAX_OUTER + 4
    outer = tuple(Loop(2, 1 << (24 + i), 1 << (24 + i)) for i in range(MAX_OUTER))
    run = (Loop(9, 1000, 4 * 31), Loop(31, 40000, 4))
    rows = (Loop(9, 4 * 31, 1 << 20), Loop(31, 4, 1 << 14))
    choice = KernelChoice("transpose", 0, run, rows, outer, 4, 4)
    prepared = launch.prepare(choice, Epilogue("f4", "f4"), 64)
    words = np.frombuffer(prepared.params[: 8 * HEAD], np.int64)
    assert words[0] <= MAX_LOOPS
    assert prepared.units == np.prod(words[1 : 1 + 4 * words[0] : 4])


@pytest.mark.parametrize(
    "items", [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (1, 8), (8, 1), (4, 2)]
)
def test_staged_blocks_fit_the_scratch_area(items):
    """Test the widest rows and the longest last blocks that the planner can make."""
    names = {1: "u1", 2: "u2", 4: "f4", 8: "f8", 16: "u8"}
    source, target = items
    for rows_count in (1, 31, 32, 33, 63, 95, 200):
        for run_count in (1, 31, 33, 127, 255, 1000):
            run = (Loop(7, 1 << 20, target * run_count), Loop(run_count, 1 << 12, target))
            rows = (Loop(7, source * rows_count, 1 << 26), Loop(rows_count, source, 1 << 24))
            choice = KernelChoice("transpose", 0, run, rows, (), source, target)
            epilogue = Epilogue(names[source], names[target])
            cutter = TILINGS["transpose"](choice, epilogue, 64, stream=False)
            run_axis, rows_axis = cutter.axes()
            assert cutter.pitch(run_axis.longest_block) * rows_axis.longest_block <= SCRATCH


@pytest.fixture
def no_tables(monkeypatch):
    """Replace tables of offsets by zeros, because computing them would take most of the time."""
    monkeypatch.setattr(tiling, "loop_offsets", lambda loops, side, count: (0,) * count)
    monkeypatch.setattr(tiling, "loop_offsets", lambda loops, side, count: (0,) * count)


@pytest.mark.budget(0)
@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("item", ["i1", "f2", "f4", "f8", "f8 pairs"])
def test_every_part_that_is_added_fits_the_scratch_area(item):
    """Test all rows and runs up to two blocks: the last block may be nearly twice as long."""
    size = 16 if item == "f8 pairs" else int(item[1])
    name = item.split()[0]
    for rows_count in range(1, 2 * tiling.ADDED_ROWS + 1):
        run_count = 1
        longest = 1
        while run_count <= 2 * longest:
            run = Loop(run_count, 1 << 12, 8)
            rows = Loop(rows_count, size, 1 << 20)
            choice = KernelChoice("transpose", 0, (run,), (rows,), (), size, 8)
            cutter = TILINGS["transpose"](choice, Epilogue(name, "f8", add=True), 64, False)
            run_axis, rows_axis = cutter.axes()
            nbytes = cutter.pitch(run_axis.longest_block) * rows_axis.longest_block
            assert cutter.direct or nbytes <= SCRATCH
            # Steps of one up to the block length for many rows; blocks of few rows fill the area.
            run_count = run_count + 1 + run_count // 512
            longest = max(longest, run_axis.block)


# Sizes of blocks in bytes that were measured to be fast: of the run for direct blocks, of all rows
# for staged blocks.
MEASURED = {
    ("copy", False): 32768,
    ("transpose", False): 1024,
    ("split", False): 4096,
    ("merge", False): 1280,
    ("cast", True): 32768,
    ("transpose", True): 14336,
    ("split", True): 2880,
    ("merge", True): 2880,
}


@pytest.mark.budget(32)
@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("item", [1, 2, 4, 8])
@pytest.mark.parametrize(("kernel", "staged"), MEASURED)
def test_blocks_have_about_the_measured_size(kernel, staged, item):
    long = Loop(100_000, item, item)
    loops = {
        # Powers of two, since a remainder lengthens the last block, which has to fit, too.
        "transpose": ((Loop(1024, 1 << 20, item),), (Loop(1024, item, 1 << 20),)),
        "split": ((Loop(100_000, 3 * item, item),), (Loop(3, item, 1 << 20),)),
        "merge": ((Loop(100_000, item, 3 * item), Loop(3, 1 << 20, item)), ()),
    }
    run, rows = loops.get(kernel, ((long,), ()))
    channels = 3 if kernel in ("split", "merge") else 0
    name = {1: "u1", 2: "u2", 4: "f4", 8: "f8"}[item]
    epilogue = Epilogue(name, name) if staged else None
    choice = KernelChoice(kernel, channels, run, rows, (), item, item)
    cutter = TILINGS[kernel](choice, epilogue, 64, stream=False)
    run_axis, rows_axis = cutter.axes()
    nbytes = run_axis.block * item * (rows_axis.block if staged else 1)
    nbytes *= 3 if staged and kernel == "merge" else 1
    assert MEASURED[kernel, staged] / 2 <= nbytes < 2 * MEASURED[kernel, staged]


@pytest.mark.parametrize(
    ("pattern", "shape", "dtype", "staged", "expected"),
    [
        ("xy->yx", (4000, 4000), "float32", False, True),
        ("xy->yx", (4001, 4001), "float32", True, True),
        ("bhwc->bchw", (32, 56, 56, 64), "float32", False, True),  # x is read in order
        ("bhwc->bchw", (32, 57, 57, 15), "float32", True, True),
        ("bhwc->bchw", (32, 56, 56, 15), "float32", False, False),  # several positions per line
        ("xy->yx", (4095, 16384), "float32", True, True),
        ("bhwc->chwb", (255, 32, 32, 64), "float32", True, False),  # positions are 256 KiB apart
        ("bwc->cwb", (256, 512, 64), "float32", False, False),  # 128 KiB
        ("bwhc->chwb", (64, 30, 40, 50), "float32", False, True),
        ("bwhc->chwb", (64, 64, 64, 32), "float32", False, False),
    ],
)
def test_large_sources_are_prefetched(pattern, shape, dtype, staged, expected):
    choice = plan(pattern, shape, dtype).choice
    blocks = TILINGS[choice.kernel](choice, None, 16 if staged else LINE, stream=True)
    assert blocks.staged == staged
    assert blocks.can_prefetch() == expected


@pytest.mark.parametrize(("share", "expected"), [(1, 1), (0, 0)])
def test_sources_that_fit_a_cache_are_not_prefetched(share, expected):
    choice = plan("xy->yx", (64, 4000), "float32").choice
    prepared = launch.prepare(choice, None, LINE, True, share * caches.l2_cache_bytes())
    assert np.frombuffer(prepared.params, np.int64, words.WORDS)[words.PREFETCH] == expected


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("lines", [1, 2, 3, 4])
def test_direct_tiles_are_full_cache_lines(lines, dtype):
    """A line that is streamed in parts, or stored twice, costs more than a line of memory."""
    pixels = lines * LINE // np.dtype(dtype).itemsize
    choice = plan("bpc->bcp", (4000, pixels, 40), dtype).choice
    blocks = TILINGS[choice.kernel](choice, None, LINE, stream=True)
    lanes, depth, *_ = map(int, blocks.literal().split("x"))
    stored = lanes * depth * LANE
    assert (blocks.direct, stored % LINE, lines * LINE % stored) == (True, 0, 0)


@pytest.mark.parametrize(
    ("shape", "offsets"),
    [
        ((1000, 16, 256), range(0, 4096, 256)),
        ((1000, 3, 512), range(0, 1536, 512)),
        ((2, 1000, 256), range(0, 16384, 256)),
    ],
)
def test_copies_read_neighbors_in_the_source(shape, offsets):
    choice = plan("abc->bac", shape, "uint8").choice
    blocks = TILINGS[choice.kernel](choice, None, LINE, stream=True)
    _, rows = blocks.axes()
    assert blocks.row_offsets(rows, 0)[: len(offsets)] == tuple(offsets)


def test_blocks_of_transposes_follow_the_source():
    choice = plan("zyxwvu->uvwxyz", (28, 15, 15, 15, 5, 32), "float32").choice
    blocks = TILINGS[choice.kernel](choice, None, LINE, stream=True)
    steps = [loop.src for loop in blocks.outer_loops()]
    assert steps == sorted(steps, reverse=True) != [loop.src for loop in choice.outer]
