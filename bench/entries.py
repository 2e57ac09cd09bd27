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
    """The arrays of one call."""

    sources: list[Array]
    out: Any  # an array; None for rows whose calls allocate their result


@dataclass(frozen=True)
class Entry:
    """A variant to build."""

    name: str
    make: Callable[[Buffers], Call | None]  # the call of a set of buffers; None: not supported
    writes: bool = False  # into the set's output
    spin_seconds: float = 0.0


def entries(row: Row, peers: Sequence[Peer], fresh_peers: bool) -> Iterator[Entry]:
    """Yield all variants of a row, layoutkit first; no calls are made yet."""
    if row.kind in ("upload", "download"):
        yield Entry(OURS, _transfer(row))
        for peer in peers:
            yield _fresh_entry(peer.name, row, peer)
        return
    yield Entry(OURS, lambda buffers: _layoutkit(row, buffers.sources, buffers.out), writes=True)
    yield Entry(FRESH, lambda buffers: _layoutkit(row, buffers.sources, None))
    if row.kind == "call":
        yield Entry("Converter", partial(_converter, row), writes=True)
        yield Entry("View, cached get", partial(_cached_get, row))
        yield Entry("View, put and get", partial(_put_and_get, row))
        yield Entry("View, two gradients summed", partial(_gradients_summed, row))
    for peer in () if row.options else peers:  # peers do not know options
        yield Entry(peer.name, partial(_peer_into, row, peer), True, peer.spin_seconds)
        if fresh_peers:
            yield _fresh_entry(f"{peer.name}, fresh", row, peer)


def _fresh_entry(name: str, row: Row, peer: Peer) -> Entry:
    return Entry(
        name, lambda buffers: peer.fresh(row, buffers.sources), spin_seconds=peer.spin_seconds
    )


def _peer_into(row: Row, peer: Peer, buffers: Buffers) -> Call | None:
    return peer.into(row, buffers.sources, buffers.out)


def _layoutkit(row: Row, sources: Sequence[Array], out: Array | None) -> Call:
    if row.kind == "accumulate":
        parts = list(zip(sources, row.sources, strict=True))
        return partial(layoutkit.accumulate, parts, row.target, out=out)
    function: Any = layoutkit.collate if row.kind == "collate" else layoutkit.convert
    return partial(function, sources[0], row.pattern, out=out, **row.keywords)


def _converter(row: Row, buffers: Buffers) -> Call:
    converter = layoutkit.Converter(row.pattern)
    return lambda: converter(buffers.sources[0], out=buffers.out)


def _transfer(row: Row) -> Callable[[Buffers], Call]:
    """Use one Converter for all batches, so that a copy overlaps with the previous conversion."""
    device = "cuda" if row.kind == "upload" else "cpu"
    converter = layoutkit.Converter(row.pattern, dtype=row.to_dtype, device=device, **row.formula)
    return lambda buffers: partial(converter, buffers.sources[0])


def _cached_get(row: Row, buffers: Buffers) -> Call:
    view = layoutkit.ImageView(row.sources[0], buffers.sources[0])
    view.forward_get(row.target)
    return lambda: view.forward_get(row.target)


def _put_and_get(row: Row, buffers: Buffers) -> Call:
    view = layoutkit.ImageView()

    def call() -> object:
        view.forward_put(row.sources[0], buffers.sources[0])
        return view.forward_get(row.target)

    return call


def _gradients_summed(row: Row, buffers: Buffers) -> Call:
    """Sum two gradients: the returned result, and one in the base's layout."""
    view = layoutkit.ImageView()
    source, array = row.sources[0], buffers.sources[0]

    def call() -> object:
        view.forward_put(source, array)
        result = view.forward_get(row.target)
        view.backward_put(row.target, result)
        view.backward_put(source, array)
        view.backward_get()
        return result

    return call
