"""A model of an H200: whether launches would keep its memory busy. Nothing here was measured.

`cuda_model` counts what a launch issues, asks for and touches; `python tests/helpers/cuda_model.py`
prints it for every row of the benchmark.
"""

from dataclasses import replace

import cuda_shim
import pytest
from cuda_model import cost_of, cost_of_windows
from nvrtc import needs_nvdisasm, needs_nvrtc

from layoutkit.bench.device import device_rows

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
    ("bhwc->cbhw", (64, 5, 1025, 705), "float64"),
]  # fmt: skip
ROWS += [
    replace(ROWS[0], sources=(pattern[:4],), target=pattern[6:], sizes=sizes, dtype=dtype,
            to_dtype=dtype)
    for pattern, sizes, dtype in ODD
]  # fmt: skip


@pytest.mark.budget(2)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_would_be_as_fast_as_memory(row):
    _, cost = cost_of(row)
    assert cost.share >= 0.4, cost


# Instructions limit the others; docs/gpu.md has their shares.
@pytest.mark.parametrize(
    ("to", "dtype", "share"),
    [("bchw", "float32", 0.7), ("chwb", "float32", 0.6), ("bchw", "bfloat16", 0.5)],
)
def test_windows_would_be_collated_at_the_speed_of_memory(to, dtype, share):
    _, cost = cost_of_windows(to, dtype)
    assert cost.share >= share, cost
    assert cost.memory <= 1.1, cost  # every byte is read and written about once
