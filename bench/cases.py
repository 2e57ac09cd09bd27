"""A row made ready to be timed: sets of buffers, variants, and the right answer.

Nothing is timed before its result was compared with an obvious reference: moves must be equal
bit for bit, formulas and sums up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import layoutkit
from layoutkit.buffers import empty
from layoutkit.spec import as_dtype

from .peers import Peer
from .protocol import Variant
from .rows import Row

__all__ = ["FRESH", "LIMIT", "OURS", "Case", "prepare"]

Array = npt.NDArray[Any]
Call = Callable[[], object]

OURS, FRESH, LIMIT = "layoutkit", "layoutkit, fresh", "limit"
# Sets of buffers together are larger than most last-level caches, unless that takes too many.
SPAN_BYTES = 256 << 20
FEWEST_SETS, MOST_SETS = 3, 16
# Relative tolerance where rounding is allowed; absolute, 1e-5: results are of the order of 1.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-7}


@dataclass
class Case:
    """Variants to measure, and the names of those that gave a wrong result."""

    row: Row
    variants: list[Variant]
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Buffers:
    sources: list[Array]
    out: Array


def prepare(row: Row, peers: Sequence[Peer], fresh_peers: bool) -> Case:
    """Make buffers and variants; leave out variants whose result is wrong."""
    sets = _sets(row)
    case = Case(row, [])
    expected = reference(row, sets[0].sources)
    for variant, out in _variants(row, sets, peers, fresh_peers):
        if out is not None:
            out.view(np.uint8).fill(0xA5)  # so that nobody is right by what was there before
        result = variant.calls[0]()
        if is_right(row, result if out is None else out, expected):
            case.variants.append(variant)
        else:
            case.wrong.append(variant.name)
    if row.kind != "call":
        case.variants.insert(0, Variant(LIMIT, _limits(sets)))
    return case


def reference(row: Row, sources: Sequence[Array]) -> Array:
    """The right answer, computed without haste."""
    pairs = zip(row.sources, sources, strict=True)
    views = [source.transpose(row.order(layout)) for layout, source in pairs]
    if row.kind == "accumulate":
        total: Array = np.sum([view.astype(np.float64) for view in views], axis=0)
        return total.astype(np.float32)
    if row.kind == "fused":
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
    if row.kind in ("move", "call"):
        return np.array_equal(array, expected)
    bound = np.abs(expected)
    bound *= TOLERANCE[row.to_dtype] * len(row.sources)  # who adds in bfloat16 rounds each time
    bound += 1e-5
    return bool((np.abs(array - expected) <= bound).all())


def _as_numpy(result: Any) -> Array:
    if "bfloat16" in str(getattr(result, "dtype", "")) and hasattr(result, "float"):
        result = result.float().numpy().astype(as_dtype("bfloat16"))  # torch's bridge lacks it
    return np.asarray(result)


def _sets(row: Row) -> list[_Buffers]:
    count = SPAN_BYTES // (row.bytes_read + row.bytes_written)
    count = max(FEWEST_SETS, min(MOST_SETS, count))
    random = np.random.default_rng(0)
    first = [_values(random, row.shape(layout), row.dtype) for layout in row.sources]
    return [_Buffers([x.copy() for x in first], _output(row)) for _ in range(count)]


def _values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype in ("float32", "bfloat16"):
        return random.random(shape, np.float32).astype(as_dtype(dtype))
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _output(row: Row) -> Array:
    """An output whose pages have been touched."""
    out = empty(row.shape(row.target), as_dtype(row.to_dtype))
    out.view(np.uint8).fill(0)
    return out


_Entry = tuple[Variant, Array | None]  # a variant, and what its first call writes into


def _variants(
    row: Row, sets: Sequence[_Buffers], peers: Sequence[Peer], fresh_peers: bool
) -> list[_Entry]:
    first = sets[0].out
    ours = [_ours(row, buffers.sources, buffers.out) for buffers in sets]
    fresh = [_ours(row, buffers.sources, None) for buffers in sets]
    entries: list[_Entry] = [(Variant(OURS, ours), first), (Variant(FRESH, fresh), None)]
    if row.kind == "call":
        entries.append((Variant("Converter", [_converter(row, b) for b in sets]), first))
        for name, make in _VIEWS.items():
            entries.append((Variant(name, [make(row, b) for b in sets]), None))
    for peer in peers:
        calls = _calls([peer.into(row, buffers.sources, buffers.out) for buffers in sets])
        entries.append((Variant(peer.name, calls, peer.lingers), first))
        if fresh_peers:
            calls = _calls([peer.fresh(row, buffers.sources) for buffers in sets])
            entries.append((Variant(f"{peer.name}, fresh", calls, peer.lingers), None))
    return [entry for entry in entries if entry[0].calls]


def _calls(calls: Sequence[Call | None]) -> list[Call]:
    return [call for call in calls if call is not None]


def _ours(row: Row, sources: Sequence[Array], out: Array | None) -> Call:
    if row.kind == "accumulate":
        parts = list(zip(sources, row.sources, strict=True))
        return partial(layoutkit.accumulate, parts, row.target, out=out)
    keywords: dict[str, Any] = dict(row.formula)
    if row.kind == "fused":
        keywords["dtype"] = row.to_dtype
    return partial(layoutkit.convert, sources[0], row.pattern, out=out, **keywords)


def _converter(row: Row, buffers: _Buffers) -> Call:
    converter = layoutkit.Converter(row.pattern)
    return lambda: converter(buffers.sources[0], out=buffers.out)


def _cached_get(row: Row, buffers: _Buffers) -> Call:
    view = layoutkit.ImageView(row.sources[0], buffers.sources[0])
    view.forward_get(row.target)
    return lambda: view.forward_get(row.target)


def _put_and_get(row: Row, buffers: _Buffers) -> Call:
    view, (source,), array = layoutkit.ImageView(), row.sources, buffers.sources[0]

    def call() -> object:
        view.forward_put(source, array)
        return view.forward_get(row.target)

    return call


def _there_and_back(row: Row, buffers: _Buffers) -> Call:
    """Two consumers: what was got comes back as a gradient, beside one of the base's layout."""
    view, (source,), array = layoutkit.ImageView(), row.sources, buffers.sources[0]

    def call() -> object:
        view.forward_put(source, array)
        result = view.forward_get(row.target)
        view.backward_put(row.target, result)
        view.backward_put(source, array)
        view.backward_get()
        return result

    return call


_VIEWS = {
    "View, cached get": _cached_get,
    "View, put and get": _put_and_get,
    "View, two gradients summed": _there_and_back,
}


def _limits(sets: Sequence[_Buffers]) -> list[Call]:
    from .limit import limit_pass, streaming_is_faster

    streaming = streaming_is_faster(sets[0].sources, sets[0].out)
    return [limit_pass(buffers.sources, buffers.out, streaming) for buffers in sets]
