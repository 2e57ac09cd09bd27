"""What is measured on a GPU: the rows of the CPU with larger batches, and what only a GPU has.

A GPU moves some TB in a second and has tens of MB of second-level cache. So every array has
256 MB or more, by a larger batch; a sample is then some tenths of a millisecond at least, and
what is left in the cache of one set of buffers is no help for the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..spec import as_dtype
from .rows import Row, all_rows

__all__ = ["LEAST_BYTES", "device_rows", "shapes"]

LEAST_BYTES = 256 << 20
BATCH = (256, 224, 224, 3)  # what a data loader hands over at once: 38.5 MB


def device_rows(quick: bool = False) -> list[Row]:
    """All rows for a GPU, in the order of the table. `quick` as in `all_rows`."""
    own = [*shapes()][: 2 if quick else None]
    return [*map(_for_device, all_rows(quick)), *own, _huge(), *_transfers()]


def _for_device(row: Row) -> Row:
    if row.kind == "call":
        return row
    asked = row.group in ("pairs", "fused") or row.at_least is not None
    return replace(row, sizes=_grown(row), at_least=_at_least(row) if asked else None)


def _grown(row: Row) -> tuple[int, ...]:
    """Sizes with a larger batch; of a batch of 1, or without one, the next axis is longer."""
    place = 0 if row.sizes[0] > 1 else 1
    item = min(as_dtype(dtype).itemsize for dtype in (row.dtype, row.to_dtype))
    factor = -(-LEAST_BYTES // (prod(row.sizes) * item))
    # Rows have to begin at addresses as even, or as odd, as they did.
    factor = factor | 1 if row.sizes[place] % 2 else 1 << (factor - 1).bit_length()
    return (*row.sizes[:place], factor * row.sizes[place], *row.sizes[place + 1 :])


def _at_least(row: Row) -> float:
    """The share of a device copy's speed that a row must reach."""
    if row.sizes[-1] <= 4:
        return 0.75
    return 0.90 if as_dtype(row.dtype).itemsize >= 4 else 0.80


def shapes() -> Iterator[Row]:
    """Shapes that fill tiles badly: few channels, odd images and rows, small matrices; and NHWC."""
    for channels in (8, 16, 32, 48):
        yield _shape("bhwc->bchw", (64, 112, 112, channels), "float32")
        yield _shape("bchw->bhwc", (64, 112, 112, channels), "float32")
    yield _shape("bhwc->bchw", (64, 224, 224, 8), "uint8")
    for dtype in ("float32", "int16"):
        for size, channels in ((7, 2048), (14, 1024)):
            yield _shape("bhwc->bchw", (256, size, size, channels), dtype)
            yield _shape("bchw->bhwc", (256, size, size, channels), dtype)
    for size in (225, 299):
        yield _shape("bhwc->bchw", (256, size, size, 3), "uint8")
        yield _shape("bchw->bhwc", (256, size, size, 3), "uint8")
        yield _shape("bhwc->bchw", (256, size, size, 3), "uint8", "float32")
    for dtype in ("uint8", "int16"):
        yield _shape("bhwc->bchw", (64, 225, 225, 64), dtype)
        yield _shape("bchw->bhwc", (64, 225, 225, 64), dtype)
    yield _shape("bhw->bwh", (64, 1025, 705), "uint8")
    for to_dtype in ("float32", "bfloat16"):
        yield _shape("bhwc->bhwc", (256, 224, 224, 3), "uint8", to_dtype)
    for size in (4, 8, 16, 32):
        yield _shape("bhw->bwh", (1 << 20, size, size), "float32")


def _shape(pattern: str, sizes: tuple[int, ...], dtype: str, to_dtype: str = "") -> Row:
    source, target = pattern.split("->")
    kind, letters = "fused" if to_dtype else "move", "bhwc"[: len(source)]
    row = Row("shapes", kind, (source,), target, letters, sizes, dtype, to_dtype or dtype)
    return replace(row, sizes=_grown(row), at_least=_at_least(row))


def _huge() -> Row:
    """More elements than 32 bits with a sign can count."""
    sizes = (14_400, 224, 224, 3)
    return Row("huge", "move", ("bhwc",), "bchw", "bhwc", sizes, "uint8", "uint8", 0.75)


def _transfers() -> Iterator[Row]:
    """Batches on their way in, normalised on the GPU, and on their way out."""
    names = ("bhwc",), "bchw", "bhwc"
    yield Row("host to device", "upload", *names, BATCH, "uint8", "float32")
    names = ("bchw",), "bhwc", "bhwc"
    yield Row("device to host", "download", *names, BATCH, "uint8", "uint8")
