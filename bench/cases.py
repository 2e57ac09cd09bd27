"""Prepare a row for timing: sets of buffers, variants, and the expected result.

Before a variant is timed, its result is compared with a simple reference: moves must be equal bit
for bit, formulas and sums up to rounding. Of very large rows only the beginning, the middle and the
end of the first axis are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..collator import collate
from ..spec import as_dtype
from .entries import Buffers, Entry, entries
from .host import Array, Device
from .peers import Peer
from .protocol import Variant
from .rows import Row

LIMIT = "limit"
# All sets of buffers together exceed most last-level caches, unless that needs too many sets.
SPAN_BYTES = 256 << 20
FEWEST_SETS = 3
MOST_SETS = 16
# Relative tolerance for rounding. The absolute one is 1e-5, as results are of the order of 1.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-7}


@dataclass
class Case:
    """Variants to measure; names of variants with wrong results; error messages of failed ones."""

    row: Row
    variants: list[Variant]
    wrong: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def prepare(
    row: Row, peers: Sequence[Peer], fresh_peers: bool, device: Device | None = None
) -> Case:
    """Make buffers and variants; exclude variants that fail or whose result is wrong."""
    device = device or Device()
    values = _random_sources(row)
    sets = _make_buffers(row, values, device)
    checker = _ResultChecker(row, values, device)
    case = Case(row, [])
    if row.kind != "call":
        sources = [buffers.sources for buffers in sets]
        outs = [buffers.out for buffers in sets]
        limits = device.limits(row, sources, outs)
        case.variants.append(device.variant(LIMIT, limits, spin_seconds=0.0, replay=False))
    for entry in entries(row, peers, fresh_peers):
        try:
            _add_variant(case, entry, sets, checker, device)
        # Any error of any library: it becomes a line of the report, and the others are timed.
        except Exception as error:
            case.failed[entry.name] = f"{type(error).__name__}: {error}"
    return case


def _add_variant(
    case: Case, entry: Entry, sets: Sequence[Buffers], checker: _ResultChecker, device: Device
) -> None:
    calls = [call for buffers in sets if (call := entry.make(buffers)) is not None]
    if not calls:
        return
    replay = entry.writes and case.row.kind != "call"
    variant = device.variant(entry.name, calls, entry.spin_seconds, replay)
    if entry.writes:
        result: Any = sets[0].out
        result.view(np.uint8).fill(0xA5)  # so that the result of an earlier variant cannot pass
        variant.calls[0]()  # the call that will be timed
    else:
        result = calls[0]()
    if checker(result):
        case.variants.append(variant)
    else:
        case.wrong.append(entry.name)


class _ResultChecker:
    """A comparison with the expected result, computed from private copies of the sources."""

    def __init__(self, row: Row, values: Sequence[Array], device: Device) -> None:
        self._row = row
        self._device = device
        pairs = list(zip(values, row.sources, strict=True))
        self._expected = [
            (part, reference(row, [_part(row, array, layout, part) for array, layout in pairs]))
            for part in _compared_parts(row, device.compared_bytes)
        ]

    def __call__(self, result: Any) -> bool:
        row = self._row
        if tuple(result.shape) != row.result_shape:
            return False
        return all(
            is_right(row, self._device.on_host(_part(row, result, row.target, part)), expected)
            for part, expected in self._expected
        )


def _compared_parts(row: Row, most: int) -> list[slice]:
    """Return the parts of the first axis to compare: all, or both ends and the middle.

    `most`: bytes read and written above which only parts are compared.
    """
    if row.bytes_read + row.bytes_written <= most:
        return [slice(None)]
    (count,) = row.shape(_first_letter(row))
    edge = max(1, count * most // (row.bytes_read + row.bytes_written) // 12)
    middle = count // 2
    return [slice(edge), slice(middle, middle + edge), slice(count - edge, count)]


def _first_letter(row: Row) -> str:
    """Return the first axis that is longer than 1."""
    return next((letter for letter in row.letters if row.shape(letter) != (1,)), row.letters[0])


def _part(row: Row, array: Any, layout: str, part: slice) -> Any:
    if part == slice(None):
        return array
    first = _first_letter(row)
    return array[tuple(part if letter == first else slice(None) for letter in layout)]


def reference(row: Row, sources: Sequence[Array]) -> Array:
    """Return the expected result of simple NumPy code, or of layoutkit on the CPU for a resize."""
    if "resize" in dict(row.options):
        keywords = row.keywords | {"dtype": "float32"}
        return collate(sources[0], row.pattern, **keywords)
    if row.options:
        sources = [_with_options(row, sources[0])]
    pairs = zip(row.sources, sources, strict=True)
    views = [source.transpose(row.order(layout)) for layout, source in pairs]
    if row.kind == "accumulate":
        return np.sum([view.astype(np.float64) for view in views], axis=0).astype(np.float32)
    if row.formula:
        scale, mean, std = (np.array(row.formula[key]) for key in ("scale", "mean", "std"))
        # Move the channels last, so that NumPy broadcasts one value per channel.
        order = row.order(row.sources[0])
        pixels = np.moveaxis(sources[0], row.sources[0].index("c"), -1)
        result: Array = np.moveaxis((pixels * scale - mean) / std, -1, row.sources[0].index("c"))
        return result.transpose(order).astype(np.float32, order="C")
    return views[0].astype(row.to_dtype, order="C")


def _with_options(row: Row, x: Array) -> Array:
    """Apply the options to x: select channels, crop the window, pad, and clip to the bounds."""
    options = dict(row.options)
    layout = row.sources[0]
    if "channels" in options:
        x = x.take(options["channels"], layout.index("c"))
    sizes = dict(zip(row.target, row.result_shape, strict=True))
    for axis, letter in enumerate(layout):
        spare = 0 if letter == "b" else x.shape[axis] - sizes[letter]
        before = round(abs(spare) / 2)  # of a centered part, rounded half to even
        if spare >= 0:
            x = x.take(range(before, before + x.shape[axis] - spare), axis)
        else:
            sides = before, -spare - before
            x = np.pad(x, [sides if other == axis else (0, 0) for other in range(x.ndim)])
    return x.clip(*options["clip"]) if "clip" in options else x


def is_right(row: Row, result: object, expected: Array) -> bool:
    """Compare moves bit for bit, formulas and sums with a tolerance for rounding."""
    array = _as_numpy(result)
    if array.dtype.name == "bfloat16" == row.to_dtype:
        array = array.astype(np.float32)
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        return False
    if row.is_exact:
        return np.array_equal(array, expected)
    bound = np.abs(expected)
    bound *= TOLERANCE[row.to_dtype] * len(
        row.sources
    )  # sums in bfloat16 are rounded after each addition
    bound += 1e-5
    return bool((np.abs(array - expected) <= bound).all())


def _as_numpy(result: Any) -> Array:
    if "bfloat16" in str(getattr(result, "dtype", "")) and hasattr(result, "float"):
        result = (
            result.float().numpy().astype(as_dtype("bfloat16"))
        )  # torch cannot convert bfloat16 to NumPy
    return np.asarray(result)


def _random_sources(row: Row) -> list[Array]:
    random = np.random.default_rng(0)
    return [_random_array(random, row.shape(layout), row.dtype) for layout in row.sources]


def _random_array(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if as_dtype(dtype).kind not in "ui":
        return random.random(shape, np.float32).astype(as_dtype(dtype))
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _make_buffers(row: Row, values: Sequence[Array], device: Device) -> list[Buffers]:
    count = max(FEWEST_SETS, min(MOST_SETS, SPAN_BYTES // row.traffic))
    source_device: Device = Device() if row.kind == "upload" else device
    return [
        Buffers([source_device.array(x) for x in values], _make_output(row, device))
        for _ in range(count)
    ]


def _make_output(row: Row, device: Device) -> Array | None:
    if row.kind in ("upload", "download"):
        return None
    return device.empty(row.result_shape, as_dtype(row.to_dtype))
