"""A row made ready to be timed: sets of buffers, variants, and the right answer.

Nothing is timed before its result was compared with an obvious reference: moves must be equal
bit for bit, formulas and sums up to rounding. Of very large rows the first, the middle and the
last samples are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..spec import as_dtype
from .entries import FRESH, OURS, Buffers, Entry, entries
from .host import Array, Device, Host
from .peers import Peer
from .protocol import Variant
from .rows import Row

LIMIT = "limit"
# Sets of buffers together are larger than most last-level caches, unless that takes too many.
SPAN_BYTES = 256 << 20
FEWEST_SETS = 3
MOST_SETS = 16
# Above this only a part of a row is compared: NumPy would need longer than all the timing.
COMPARED_BYTES = 1 << 30
# Relative tolerance where rounding is allowed; absolute, 1e-5: results are of the order of 1.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-7}


@dataclass
class Case:
    """Variants to measure; names of those that gave a wrong result; why others gave none."""

    row: Row
    variants: list[Variant]
    wrong: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def prepare(
    row: Row, peers: Sequence[Peer], fresh_peers: bool, device: Device | None = None
) -> Case:
    """Make buffers and variants; leave out variants that fail or whose result is wrong."""
    device = device or Host()
    values = _values(row)
    sets = _sets(row, values, device)
    right = _Right(row, values, device)
    case = Case(row, [])
    if row.kind != "call":
        sources = [one.sources for one in sets]
        outs = [one.out for one in sets]
        limits = device.limits(row, sources, outs)
        case.variants.append(device.variant(LIMIT, limits, lingers=0.0, replay=True))
    for entry in entries(row, peers, fresh_peers):
        try:
            _add(case, entry, sets, right, device)
        # Of whatever library: one that fails is a line of the report, and the others are timed.
        except Exception as error:
            case.failed[entry.name] = f"{type(error).__name__}: {error}"
    return case


def _add(case: Case, entry: Entry, sets: Sequence[Buffers], right: _Right, device: Device) -> None:
    calls = entry.make(sets)
    if not calls:
        return
    replay = entry.writes and case.row.kind != "call"
    variant = device.variant(entry.name, calls, entry.lingers, replay)
    if entry.writes:
        result: Any = sets[0].out
        result.view(np.uint8).fill(0xA5)  # so that nobody is right by what was there before
        variant.calls[0]()  # what will be timed
    else:
        result = calls[0]()
    if right(result):
        case.variants.append(variant)
    else:
        case.wrong.append(entry.name)


class _Right:
    """Says whether a result is right, from copies of the sources that nobody else has."""

    def __init__(self, row: Row, values: Sequence[Array], device: Device) -> None:
        self._row = row
        self._device = device
        pairs = list(zip(values, row.sources, strict=True))
        self._expected = [
            (part, reference(row, [_samples(array, layout, part) for array, layout in pairs]))
            for part in _parts(row)
        ]

    def __call__(self, result: Any) -> bool:
        row = self._row
        if tuple(result.shape) != row.shape(row.target):
            return False
        return all(
            is_right(row, self._device.on_host(_samples(result, row.target, part)), expected)
            for part, expected in self._expected
        )


def _parts(row: Row) -> list[slice]:
    """The samples to compare: all, or a few from either end and from the middle."""
    if "b" not in row.letters or row.bytes_read + row.bytes_written <= COMPARED_BYTES:
        return [slice(None)]
    (count,) = row.shape("b")
    few = max(1, count * COMPARED_BYTES // (row.bytes_read + row.bytes_written) // 12)
    middle = count // 2
    return [slice(few), slice(middle, middle + few), slice(count - few, count)]


def _samples(array: Any, layout: str, part: slice) -> Any:
    if part == slice(None):
        return array
    return array[tuple(part if letter == "b" else slice(None) for letter in layout)]


def reference(row: Row, sources: Sequence[Array]) -> Array:
    """The right answer, computed without haste."""
    pairs = zip(row.sources, sources, strict=True)
    views = [source.transpose(row.order(layout)) for layout, source in pairs]
    if row.kind == "accumulate":
        total: Array = np.sum([view.astype(np.float64) for view in views], axis=0)
        return total.astype(np.float32)
    if row.formula:
        scale, mean, std = (np.array(row.formula[key]) for key in ("scale", "mean", "std"))
        # Channels last, where NumPy broadcasts one value for each of them.
        result: Array = (sources[0] * scale - mean) / std
        return result.transpose(row.order(row.sources[0])).astype(np.float32, order="C")
    return np.ascontiguousarray(views[0])


def is_right(row: Row, result: object, expected: Array) -> bool:
    """Compare: moves bit for bit, formulas and sums with a tolerance for rounding."""
    array = _as_numpy(result)
    if array.dtype.name == "bfloat16" == row.to_dtype:
        array = array.astype(np.float32)
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        return False
    if row.is_exact:
        return np.array_equal(array, expected)
    bound = np.abs(expected)
    bound *= TOLERANCE[row.to_dtype] * len(row.sources)  # who adds in bfloat16 rounds each time
    bound += 1e-5
    return bool((np.abs(array - expected) <= bound).all())


def _as_numpy(result: Any) -> Array:
    if "bfloat16" in str(getattr(result, "dtype", "")) and hasattr(result, "float"):
        result = result.float().numpy().astype(as_dtype("bfloat16"))  # torch's adapter lacks it
    return np.asarray(result)


def _values(row: Row) -> list[Array]:
    random = np.random.default_rng(0)
    return [_random(random, row.shape(layout), row.dtype) for layout in row.sources]


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype in ("float32", "bfloat16"):
        return random.random(shape, np.float32).astype(as_dtype(dtype))
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _sets(row: Row, values: Sequence[Array], device: Device) -> list[Buffers]:
    count = max(FEWEST_SETS, min(MOST_SETS, SPAN_BYTES // row.traffic))
    place: Device = Host() if row.kind == "upload" else device
    return [Buffers([place.array(x) for x in values], _output(row, device)) for _ in range(count)]


def _output(row: Row, device: Device) -> Array | None:
    if row.kind in ("upload", "download"):
        return None
    return device.empty(row.shape(row.target), as_dtype(row.to_dtype))
