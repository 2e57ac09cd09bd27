"""The variants of a row: the calls of layoutkit, and of the other libraries."""

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
    """The arrays of one call. `out` is None for calls that allocate their result."""

    sources: list[Array]
    out: Array | None


Calls = Callable[[Sequence[Buffers]], list[Call]]


@dataclass(frozen=True)
class Entry:
    """A variant to build: `make` returns one call for each set of buffers, or no calls."""

    name: str
    make: Calls
    writes: bool = False  # into the set's output
    spin_seconds: float = 0.0


def entries(row: Row, peers: Sequence[Peer], fresh_peers: bool) -> Iterator[Entry]:
    """Yield all variants of a row, layoutkit first; no calls are made yet."""
    if row.kind in ("upload", "download"):
        yield Entry(OURS, partial(_transfer_calls, row))
        for peer in peers:
            yield Entry(
                peer.name, _for_each_set(_peer_fresh, peer, row), spin_seconds=peer.spin_seconds
            )
        return
    yield Entry(OURS, _for_each_set(_layoutkit_call, row), writes=True)
    yield Entry(FRESH, _for_each_set(_layoutkit_fresh, row))
    if row.kind == "call":
        yield Entry("Converter", _for_each_set(_converter, row), writes=True)
        for name, make in _VIEW_CALLS.items():
            yield Entry(name, _for_each_set(make, row))
    for peer in () if row.options else peers:  # peers do not know options
        yield Entry(peer.name, _for_each_set(_peer_into, peer, row), True, peer.spin_seconds)
        if fresh_peers:
            fresh = _for_each_set(_peer_fresh, peer, row)
            yield Entry(f"{peer.name}, fresh", fresh, spin_seconds=peer.spin_seconds)


def _for_each_set(make: Callable[..., Call | None], *arguments: Any) -> Calls:
    """Return a function that makes one call for each set of buffers."""

    def calls(sets: Sequence[Buffers]) -> list[Call]:
        result = [make(*arguments, buffers) for buffers in sets]
        return [call for call in result if call is not None]

    return calls


def _peer_into(peer: Peer, row: Row, buffers: Buffers) -> Call | None:
    return None if buffers.out is None else peer.into(row, buffers.sources, buffers.out)


def _peer_fresh(peer: Peer, row: Row, buffers: Buffers) -> Call | None:
    return peer.fresh(row, buffers.sources)


def _layoutkit_call(row: Row, buffers: Buffers) -> Call:
    return _make_layoutkit_call(row, buffers.sources, buffers.out)


def _layoutkit_fresh(row: Row, buffers: Buffers) -> Call:
    return _make_layoutkit_call(row, buffers.sources, None)


def _make_layoutkit_call(row: Row, sources: Sequence[Array], out: Array | None) -> Call:
    if row.kind == "accumulate":
        parts = list(zip(sources, row.sources, strict=True))
        return partial(layoutkit.accumulate, parts, row.target, out=out)
    function = layoutkit.collate if row.kind == "collate" else layoutkit.convert
    return partial(function, sources[0], row.pattern, out=out, **row.keywords)


def _converter(row: Row, buffers: Buffers) -> Call:
    converter = layoutkit.Converter(row.pattern)
    return lambda: converter(buffers.sources[0], out=buffers.out)


def _transfer_calls(row: Row, sets: Sequence[Buffers]) -> list[Call]:
    """Use one Converter for all batches, so that a copy overlaps with the previous conversion."""
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


def _gradients_summed(row: Row, buffers: Buffers) -> Call:
    """Sum two gradients: the returned result, and one in the base's layout."""
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


_VIEW_CALLS = {
    "View, cached get": _cached_get,
    "View, put and get": _put_and_get,
    "View, two gradients summed": _gradients_summed,
}
