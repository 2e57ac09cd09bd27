"""The model of an H100 in `cuda_model`: whether launches keep its memory busy. No GPU is used.

The model counts what a launch issues, asks for and touches; `python tests/helpers/cuda_model.py`
prints it for every row of the benchmark.
"""

import re
from dataclasses import replace
from unittest.mock import patch

import cuda_shim
import numpy as np
import pytest
from any_shapes import coverage_rows
from cuda_model import (
    RESIZES,
    WINDOWS,
    cost,
    cost_of,
    cost_of_executed,
    cost_of_windows,
    costs_of_options,
    rounds_of,
    throughput,
    wavefronts,
)
from cuda_moves import launch_of, placed, planned
from nvrtc import Compiled, needs_nvdisasm, needs_nvrtc

from layoutkit.bench.device import device_rows
from layoutkit.kernels.cuda import launch as launches
from layoutkit.kernels.cuda import tiling

pytestmark = [pytest.mark.budget(4), cuda_shim.needs_compiler, needs_nvrtc, needs_nvdisasm]

ROWS = [row for row in device_rows() if row.group == "shapes" or row.sizes[-1] in (5, 17)]
ROWS += [row for row in device_rows(quick=True) if row.group in ("pairs", "fused")]
# Sums of more parts are as these, for longer.
ROWS += [row for row in device_rows() if row.group == "accumulate" and len(row.sources) <= 4]

# Planes of odd sizes, and rows that begin anywhere, beyond what is measured.
ODD = [
    ("bhwc->bchw", (512, 7, 7, 64), "uint8"), ("bchw->bhwc", (64, 14, 14, 512), "int16"),
    ("bhwc->bchw", (64, 299, 299, 128), "uint8"), ("bchw->bhwc", (16, 299, 299, 512), "uint8"),
    ("bhwc->bchw", (64, 225, 225, 128), "float32"), ("bhwc->bchw", (64, 230, 230, 64), "uint8"),
    ("bhwc->chwb", (1365, 56, 56, 67), "uint8"), ("bhwc->cbhw", (64, 5, 1025, 705), "int16"),
    ("bhwc->cbhw", (64, 5, 1025, 705), "float64"), ("bhwc->bhcw", (64, 16, 257, 1025), "int16"),
    ("bhwc->bhcw", (64, 48, 197, 197), "int16"),
]  # fmt: skip
ROWS += [
    replace(ROWS[0], sources=(pattern[:4],), target=pattern[6:], sizes=sizes, dtype=dtype,
            to_dtype=dtype)
    for pattern, sizes, dtype in ODD
]  # fmt: skip


FLOOR = 0.9
# Rows that are predicted to be slower: a floor that holds, and the cause.
SLOWER = {
    r"uint8 .*1025, 705": (0.68, "two words are read for one at any address; pages"),
    r"int16 .*257, 1025": (0.65, "the same, and registers for six blocks only"),
    r"int16 .*1025, 705": (0.68, "a word of edge in each tile, registers for five blocks"),
    r"int16 .*197, 197": (0.67, "ends of short rows, item by item"),
    r"uint8 .*299, 299, (128|512)": (0.8, "edges, and sectors that two tiles share"),
    r"(uint8|int16) .*2(25, 225|30, 230), 64": (0.83, "the same; four rounds of loads"),
    r"float32 .*14, 14, 1024": (0.88, "pages: rows of 784 bytes"),
    r"chwb uint8 .*32, 32, 3": (0.84, "pages: 128 bytes of each row on both sides"),
    r"chwb uint8 .*56, 56, 67": (0.73, "pages, and rows that begin anywhere"),
    r"\+chwb.*float32": (0.84, "pages: 64 bytes of each row"),
    r"\+chwb.*bfloat16": (0.76, "the same; three blocks; 16-bit items in the tile"),
    r"uint8 .*(22[35], 225|299, 299), 3": (0.84, "single bytes of shared memory"),
    r"(uint8|int16) .*(7, 7|14, 14), ": (0.76, "single items of shared memory, rounds of loads"),
}


def floor_of(row):
    """Return the share that a row must be predicted to reach."""
    return next((least for name, (least, _) in SLOWER.items() if re.search(name, row.name)), FLOOR)


@pytest.mark.budget(2)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_predicted_share(row):
    _, cost = cost_of(row)
    assert cost.share >= floor_of(row), cost


@pytest.mark.parametrize(
    "row", [row for row in device_rows() if row.kind == "options"], ids=lambda row: row.name
)
def test_predicted_share_of_options(row):
    """Test the launches of padding, channels and bounds; borders pass through shared memory."""
    for launch, predicted in costs_of_options(row):
        assert predicted.share >= (0.8 if launch.family == "transpose" else FLOOR), predicted


# Instructions or table entries limit the others; docs/gpu.md has their shares.
@pytest.mark.parametrize(
    ("row", "share"),
    [
        (WINDOWS[0], 0.8),
        (WINDOWS[3], 0.7),
        (WINDOWS[6], 0.62),
        (WINDOWS[1], 0.65),
        (WINDOWS[9], 0.7),
    ],
)
def test_windows_would_be_collated_at_the_speed_of_memory(row, share):
    cost = cost_of_windows(*row)
    assert cost.share >= share, cost
    assert cost.memory <= 1.15, cost  # every byte is read and written about once; pages


# Instructions and rounds of loads limit resizes; docs/gpu.md has the shares.
@pytest.mark.budget(2)
@pytest.mark.parametrize(
    ("row", "share"),
    [
        (RESIZES[0], 0.38),
        (RESIZES[3], 0.21),
        (RESIZES[5], 0.3),
        (RESIZES[6], 0.38),
        (RESIZES[8], 0.38),
    ],
)
def test_predicted_share_of_resizes(row, share):
    assert cost_of_windows(*row).share >= share


@pytest.mark.budget(2)
@pytest.mark.parametrize(
    ("pattern", "shape", "item"),
    [
        ("bhwc->bchw", (64, 56, 56, 64), "f4"), ("bhwc->bchw", (512, 32, 32, 3), "u1"),
        ("bhwc->chwb", (512, 32, 32, 3), "u1"),
    ],
)  # fmt: skip
def test_executed_code_costs_what_is_counted_in_it(pattern, shape, item):
    """Test that both ways agree on kernels without loops.

    Instructions differ by a tenth: one way omits branches that no thread takes.
    """
    x = placed(shape, item)
    _, [(launch, out, shifts)] = planned(x, pattern)
    counted = cost(launch, out, [x], shifts)
    executed = cost_of_executed(launch, out, [x], shifts, x.nbytes)
    assert (executed.rounds, executed.blocks) == (counted.rounds, counted.blocks)
    assert executed.memory == pytest.approx(counted.memory, rel=0.01)
    assert executed.pipe == pytest.approx(counted.pipe, rel=0.01)
    assert executed.issue == pytest.approx(counted.issue, rel=0.15)


ANY_FLOOR = 0.7  # of any shape; docs/gpu.md has the rows of a larger sample that are below it


@pytest.mark.budget(2)
@pytest.mark.parametrize("row", [*coverage_rows(16, 0)], ids=lambda row: row.name)
def test_predicted_share_of_any_shape(row):
    _, cost = cost_of(row)
    assert cost.share >= ANY_FLOOR, cost


@pytest.mark.parametrize(
    ("pattern", "shape", "dtype", "to"),
    [
        ("uvwxyz->yzuwxv", (4465, 2, 83, 10, 2, 5), "float32", "float64"),
        ("bchw->bhwc", (512, 8, 306, 306), "uint8", "float32"),
        ("uvwxy->uvyxw", (6669, 1, 2, 757, 4), "float64", "float64"),
    ],
)
def test_padded_tile_fits_shared_memory(pattern, shape, dtype, to):
    """Test tiles as narrow as a short axis, whose rows are padded to the unit of the banks."""
    keywords = {} if dtype == to else {"dtype": to, "scale": 2}
    with patch.dict(launches._MAKERS, dict.fromkeys(launches._MAKERS, (launches._transpose_any,))):
        tiles = launch_of(pattern, shape, dtype, **keywords)
    shared = int(re.search(r"(\d+) bytes smem", Compiled(tiles, 90).log)[1])
    assert tiles.family == "transpose"
    assert shared <= tiling.PADDED_BYTES


def test_throughput_of_a_network():
    """Test one customer, which meets no queue, and so many that one resource is always busy."""
    assert throughput(1, 0.5, (1.0, 0.3)) == pytest.approx(1 / 1.8)
    assert throughput(2, 0.0, (1.0, 1.0)) == pytest.approx(
        2 / 3
    )  # the other is there half the time
    assert throughput(200, 0.5, (2.0, 0.3)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("step", "size", "waves", "ideal"),
    [(4, 4, 1, 1), (128, 4, 32, 1), (1, 1, 1, 1), (8, 4, 2, 1), (16, 16, 4, 4), (32, 16, 8, 4),
     (8, 8, 2, 2), (0, 4, 1, 1)],
)  # fmt: skip
def test_conflicts_of_banks(step, size, waves, ideal):
    lanes = np.arange(32)
    sizes = np.full(32, size)
    assert wavefronts(np.zeros(32, int), lanes, 4096 + lanes * step, sizes) == (waves, ideal)


def test_rounds_of_loads():
    """Test loads that arrive together, a second round, and loads that are pending at a barrier."""
    code = [
        ("LDG.E.128", "R4, desc[UR4][R2.64]"), ("LDG.E", "R8, desc[UR4][R2.64+0x10]"),
        ("STS.128", "[R0], R4"), ("STS", "[R0+0x10], R8"),
    ]  # fmt: skip
    barrier = [("BAR.SYNC.DEFER_BLOCKING", "0x0")]
    assert rounds_of(code, 8) == (1, 8)
    assert rounds_of(code + barrier + code, 8) == (2, 1)
    assert rounds_of(code[:3] + barrier + code[3:], 8) == (1, 2)
