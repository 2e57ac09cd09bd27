"""Rows of a streamed output that share cache lines, which a thread stores once."""

from itertools import product

import numpy as np
import pytest

import layoutkit
from layoutkit import Converter
from layoutkit.kernels.cpu import launch, tiling
from layoutkit.kernels.cpu.params import LINE
from layoutkit.threads import pool
from tests.helpers.reference import reference_convert
from tests.helpers.streaming import stream_rows

SPLIT, MERGE = "b(hp)(wq)c->b(hw)(cpq)", "b(hw)(cpq)->b(hp)(wq)c"
PIXELS = "b(hp)(wq)c->b(hw)(pqc)"
NORMALIZED = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.25, 1), "std": (0.5, 2, 1)}


@pytest.fixture(autouse=True)
def _streamed(monkeypatch):
    """Stream rows of any length, in chunks of a few blocks on two threads."""
    stream_rows(monkeypatch)
    monkeypatch.setattr(tiling, "SHORTEST_JOINED", dict.fromkeys(tiling.SHORTEST_JOINED, 1))
    monkeypatch.setattr(launch, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(pool, "SERIAL_BYTES", 0)
    before = layoutkit.get_num_threads()
    layoutkit.set_num_threads(2)
    yield
    layoutkit.set_num_threads(before)


def check(pattern, shape, source, offset, gap=0, **options):
    """Convert to an output that begins `offset` items after a line, with gaps between its rows."""
    x = np.random.default_rng(0).integers(0, 100, shape).astype(source)
    wanted = reference_convert(x, pattern, **options)
    items = wanted.size // wanted.shape[-1] * (wanted.shape[-1] + gap)
    raw = np.full(items * wanted.itemsize + 4 * LINE, 77, np.uint8)
    first = -raw.ctypes.data % LINE + LINE + offset * wanted.itemsize
    memory = raw[first : first + items * wanted.itemsize].view(wanted.dtype)
    rows = memory.reshape(*wanted.shape[:-1], -1)
    out = rows[..., : wanted.shape[-1]]
    Converter(pattern, **options)(x, out=out)
    np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-6)
    assert (raw[:first] == 77).all()
    assert (raw[first + memory.nbytes :] == 77).all()
    assert (rows[..., wanted.shape[-1] :].view(np.uint8) == 77).all()


@pytest.mark.budget(2)
@pytest.mark.parametrize(
    ("source", "options"),
    [("uint8", NORMALIZED), ("uint8", {}), ("float32", {}), ("uint8", {"dtype": "float16"}),
     ("int16", {"dtype": "uint8", "casting": "saturate"}), ("float64", {"dtype": "float32"}),
     ("float64", {"dtype": "uint8", "casting": "unsafe"})],
    ids=str,
)  # fmt: skip
def test_patches_of_any_length(source, options):
    """Rows are shorter than a line, about one line, and several lines, and begin anywhere."""
    sizes = [(1, 1), (1, 3), (2, 5), (3, 7), (4, 4), (8, 24), (14, 14), (1, 63), (1, 65)]
    for p, q in sizes:
        for offset in (0, 1, 7):
            check(SPLIT, (2, 3 * p, 4 * q, 3), source, offset, p=p, q=q, **options)


@pytest.mark.budget(1)
@pytest.mark.parametrize("pattern", [PIXELS, MERGE])
@pytest.mark.parametrize("options", [{"dtype": "float32"}, {}], ids=str)
def test_runs_of_pixels_of_any_length(pattern, options):
    for p, q, offset in product((1, 3, 14), (1, 5, 14, 21), (0, 1, 15)):
        sizes = {"p": p, "q": q}
        shape = (2, 3 * p, 4 * q, 3)
        if pattern == MERGE:
            sizes |= {"h": 3, "c": 3}
            shape = (2, 12, 3 * p * q)
        check(pattern, shape, "uint8", offset, **sizes, **options)


@pytest.mark.parametrize("gap", [1, 8, 16])
def test_rows_with_gaps_are_not_joined(gap):
    for p, q in [(2, 5), (14, 14), (4, 4)]:
        for offset in (0, 1, 7):
            check(SPLIT, (2, 3 * p, 4 * q, 3), "uint8", offset, gap, p=p, q=q, **NORMALIZED)


def test_a_block_that_cannot_be_joined():
    """A row of more bytes than the scratch area of a block is divided at lines."""
    for side in (40, 60):
        check(SPLIT, (1, 2 * side, 2 * side, 3), "uint8", 1, p=side, q=side, **NORMALIZED)
        check(SPLIT, (1, 2 * side, 2 * side, 3), "float32", 1, p=side, q=side)


def is_streamed(side, source, dtype):
    """Return whether patches of 8 images of 16 x 16 patches are streamed."""
    shape = (8, 16 * side, 16 * side, 3)
    planned = layoutkit.plan(SPLIT, shape, source, dtype=dtype, p=side, q=side)
    return launch.prepare(planned.choice, planned.epilogue, LINE, stream=True).spec.literals[-1]


def test_which_patches_are_streamed(monkeypatch):
    monkeypatch.undo()
    sides = (2, 3, 4, 7, 14, 16)
    assert [is_streamed(side, "float32", "float32") for side in sides] == [0, 0, 0, 0, 1, 1]
    assert is_streamed(14, "uint8", "float32")
    assert [is_streamed(side, "uint8", "uint8") for side in (14, 28)] == [0, 1]
    assert not is_streamed(14, "float64", "float64")  # a block has less than a row
