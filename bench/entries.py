"""Who takes part in a row: layoutkit's calls, and those of the other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import layoutkit

from .host import Array, Call
from .peers import Peer
from .rows import Row

OURS = "layoutkit"
FRESH = "layoutkit, fresh"


@dataclass(frozen=True)
class Buffers:
    """The arrays of one turn. `out` is None where only new memory makes sense."""

    sources: list[Array]
    out: Array | None


Calls = Callable[[Sequence[Buffers]], list[Call]]


@dataclass(frozen=True)
class Entry:
    """A variant to be: how to make a call for each set of buffers, or none at all."""

    name: str
    make: Calls
    writes: bool = False  # into the set's output
    lingers: float = 0.0


def entries(row: Row, peers: Sequence[Peer], fresh_peers: bool) -> Iterator[Entry]:
    """All that a row is timed with, layoutkit first; nothing is made yet."""
    if row.kind in ("upload", "download"):
        yield Entry(OURS, partial(_transfers, row))
        for peer in peers:
            yield Entry(peer.name, _each(_peer_fresh, peer, row), lingers=peer.lingers)
        return
    yield Entry(OURS, _each(_ours, row), writes=True)
    yield Entry(FRESH, _each(_ours_fresh, row))
    if row.kind == "call":
        yield Entry("Converter", _each(_converter, row), writes=True)
        for name, make in _VIEWS.items():
            yield Entry(name, _each(make, row))
    for peer in peers:
        yield Entry(peer.name, _each(_peer_into, peer, row), True, peer.lingers)
        if fresh_peers:
            fresh = _each(_peer_fresh, peer, row)
            yield Entry(f"{peer.name}, fresh", fresh, lingers=peer.lingers)


def _each(make: Callable[..., Call | None], *arguments: Any) -> Calls:
    """Make one call for each set of buffers."""

    def calls(sets: Sequence[Buffers]) -> list[Call]:
        made = [make(*arguments, buffers) for buffers in sets]
        return [call for call in made if call is not None]

    return calls


def _peer_into(peer: Peer, row: Row, buffers: Buffers) -> Call | None:
    return None if buffers.out is None else peer.into(row, buffers.sources, buffers.out)


def _peer_fresh(peer: Peer, row: Row, buffers: Buffers) -> Call | None:
    return peer.fresh(row, buffers.sources)


def _ours(row: Row, buffers: Buffers) -> Call:
    return _call_of_ours(row, buffers.sources, buffers.out)


def _ours_fresh(row: Row, buffers: Buffers) -> Call:
    return _call_of_ours(row, buffers.sources, None)


def _call_of_ours(row: Row, sources: Sequence[Array], out: Array | None) -> Call:
    if row.kind == "accumulate":
        parts = list(zip(sources, row.sources, strict=True))
        return partial(layoutkit.accumulate, parts, row.target, out=out)
    keywords: dict[str, Any] = dict(row.formula)
    if row.formula:
        keywords["dtype"] = row.to_dtype
    return partial(layoutkit.convert, sources[0], row.pattern, out=out, **keywords)


def _converter(row: Row, buffers: Buffers) -> Call:
    converter = layoutkit.Converter(row.pattern)
    return lambda: converter(buffers.sources[0], out=buffers.out)


def _transfers(row: Row, sets: Sequence[Buffers]) -> list[Call]:
    """One Converter for all batches, so that copying one overlaps with the work on the last."""
    device = "cuda" if row.kind == "upload" else "cpu"
    converter = layoutkit.Converter(row.pattern, dtype=row.to_dtype, device=device, **row.formula)
    return [partial(converter, buffers.sources[0]) for buffers in sets]


def _cached_get(row: Row, buffers: Buffers) -> Call:
    view = layoutkit.ImageView(row.sources[0], buffers.sources[0])
    view.forward_get(row.target)
    return lambda: view.forward_get(row.target)


def _put_and_get(row: Row, buffers: Buffers) -> Call:
    view = layoutkit.ImageView()
    (source,) = row.sources
    array = buffers.sources[0]

    def call() -> object:
        view.forward_put(source, array)
        return view.forward_get(row.target)

    return call


def _there_and_back(row: Row, buffers: Buffers) -> Call:
    """Two consumers: what was got comes back as a gradient, beside one of the base's layout."""
    view = layoutkit.ImageView()
    (source,) = row.sources
    array = buffers.sources[0]

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
