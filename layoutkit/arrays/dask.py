"""Arrays of dask: a conversion of each chunk, which is computed elsewhere and later.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. What lies
inside of a fold, and channels that are taken, have to be in one chunk and are made so, with a
warning, since bytes move between workers then. Whatever is wrong is said when the graph is built.

In the threads of dask a conversion has one thread: those that there are work on other chunks.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from ..accumulation import Accumulator
from ..axes import Move
from ..converter import Converter
from ..errors import ArgumentError
from ..memory import Array
from ..planning.chunked import (
    Along,
    ChunkedPlan,
    Chunks,
    Rechunked,
    along,
    cuts_of,
    folded,
    of_chunks,
)
from ..spec import DType
from .base import Adapter
from .owners import as_array

if TYPE_CHECKING:
    from ..planning.composed import Larger
    from ..planning.plan import Plan
    from ..planning.task import Task

__all__ = ["adapter_for"]

# What plans are told of instead of who runs the conversion.
_noted: ContextVar[list[Rechunked] | None] = ContextVar("noted", default=None)


class Dask(Adapter):
    """Lazy in, lazy out."""

    is_traced = makes_larger = True

    def arrive(self, x: Any, what: str) -> Any:
        """Raise: to read it is to compute all of it, which should not happen unasked."""
        raise ArgumentError(
            f"{what} is a dask array, whose data is computed elsewhere and later; pass "
            f"{what}.compute()"
        )

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, as dask knows them."""
        if any(isnan(size) for size in x.shape):
            raise ArgumentError(
                f"{what} is a dask array of shape {x.shape}, whose chunks are not known before it "
                f"is computed; call {what}.compute_chunk_sizes() first"
            )
        return x.shape, x.dtype

    def permuted(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        return x.transpose(order)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Samples at positions, lazily."""
        return _dask().take(x, positions, axis=axis)

    def enlarged(self, x: Any, found: Larger) -> Any:
        """A larger x, with all folds taken apart, in whole chunks along the axes that grow."""
        da, sides = _dask(), zip(found.window, found.full, strict=True)
        widths = [(inside.start, size - inside.stop) for inside, size in sides]
        grown = {at: -1 for at, width in enumerate(widths) if width != (0, 0)}
        x = x.reshape(found.sizes)
        there = da.pad(da.ones(x.shape, dtype=bool, chunks=x.chunks), widths, constant_values=False)
        padded = da.where(there, da.pad(x, widths), found.fill.astype(x.dtype))
        return padded.rechunk(grown)

    def plan(self, converter: Converter, x: Any) -> Plan:
        """That of the whole and, by the graph that a conversion would be, of its chunks."""
        whole = converter.plan(converter.spec_of(x))
        token = _noted.set([])
        try:
            graph = converter(x)
            moved = tuple(_noted.get() or ())
        finally:
            _noted.reset(token)
        added = [graph.dask.layers[name] for name in graph.dask.layers.keys() - x.dask.layers]
        return ChunkedPlan.of(whole, (x.chunks, graph.chunks), sum(map(len, added)), moved)

    def is_recorded(self, x: Any) -> bool:
        """Yes: it is a graph."""
        return True

    def record(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of every chunk."""
        _refuse(out)
        if converter.is_away:
            raise ArgumentError("x is a dask array; leave device= away, and convert in its workers")
        plan, task = converter.plan(converter.spec_of(x)), converter.task
        if plan.kernel == "view" and plan.source.axes == plan.target.axes:
            return x
        move, picks = task.picked(x.shape)
        whole = move if picks is None else picks.whole(move)
        cuts = cuts_of(whole, x.chunks, {picks.letter} if picks else set())
        x = _rechunked(x, whole, cuts, task.pattern.text)
        after = cuts if picks is None else cuts | {picks.letter: (len(picks.order),)}
        ours = of_chunks(task, whole, cuts)
        return _blocks(ours, x, move, after, plan.target.dtype, along(task.formula, whole, cuts))

    def record_sum(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum of every chunk: parts in the layout of the sum first, which are then one grid."""
        _refuse(out)
        da = _dask()
        lazy = [_lazy(part, f"part {at}") for at, part in enumerate(parts)]
        shapes, dtypes = [part.shape for part in lazy], [part.dtype for part in lazy]
        moves, dtype = accumulator.resolve(shapes, tuple(dtypes))
        moved = [way(part) for way, part in zip(accumulator.converters(), lazy, strict=True)]
        axes = tuple(range(len(moves[0].target_shape)))
        pairs = [each for part in moved for each in (part, axes)]
        name = f"accumulate-{_token(str(dtype), *(part.name for part in moved))}"
        meta = da.utils.meta_from_array(moved[0]._meta, len(axes), dtype)
        return da.blockwise(_summed, axes, *pairs, name=name, dtype=dtype, meta=meta, to=str(dtype))


def _rechunked(x: Any, move: Move, cuts: Mapping[str, Chunks], text: str) -> Any:
    """x in the chunks that a conversion can take, with a warning where these are others."""
    wanted = folded(move.source, move, cuts)
    if wanted == x.chunks:
        return x
    pairs = zip(move.source.groups, x.chunks, wanted, strict=True)
    names = [" ".join(map(move.source.name, group)) for group, old, new in pairs if old != new]
    moved, noted = Rechunked(tuple(names), x.nbytes, wanted), _noted.get()
    if noted is not None:
        noted.append(moved)
    else:
        warnings.warn(f'"{text}" needs {moved}', _dask().PerformanceWarning, stacklevel=2)
    return x.rechunk(wanted)


def _blocks(
    task: Task, x: Any, move: Move, cuts: Mapping[str, Chunks], dtype: DType, varied: Along | None
) -> Any:
    """The conversion of every chunk, by the letter that each axis begins with."""
    da = _dask()
    left, right = ([group[0] for group in side.groups] for side in (move.source, move.target))
    after = dict(zip(right, folded(move.target, move, cuts), strict=True))
    converter = Converter.of_task(task)
    said = repr(converter), str(move.source), str(move.target), repr(varied), str(dtype)
    more: tuple[Any, ...] = ()
    if varied is not None:
        ways = np.array([Converter.of_task(task._replace(formula=f)) for f in varied.formulas])
        name = f"ways-{_token(*said)}"
        more = da.from_array(ways, chunks=1, name=name, asarray=False), (varied.letter,)
    return da.blockwise(
        _converted, tuple(right), x, tuple(left), *more, name=f"convert-{_token(x.name, *said)}",
        new_axes={letter: after[letter][0] for letter in right if letter not in left},
        adjust_chunks={letter: after[letter] for letter in right if letter in left},
        dtype=dtype, meta=da.utils.meta_from_array(x._meta, len(right), dtype),
        align_arrays=False, **({} if more else {"way": converter}),
    )  # fmt: skip


def _converted(block: Any, way: Any) -> Any:
    """The result of a chunk; one that came along axes which are gone is in lists."""
    while isinstance(block, list):
        block = block[0]
    if isinstance(way, np.ndarray):
        way = way.item()
    return _known(way)(block)


def _summed(*blocks: Any, to: str) -> Any:
    return _sum_of(len(blocks), blocks[0].ndim, to)(list(blocks))


@lru_cache(maxsize=256)
def _known(way: Converter) -> Converter:
    """The first of equal Converters, so that a worker plans once and not for every chunk."""
    return way


@lru_cache(maxsize=256)
def _sum_of(count: int, ndim: int, to: str) -> Accumulator:
    layout = "abcdeghijklmnopqrstuvwxyz"[:ndim]
    found = Accumulator((layout,) * count, layout, dtype=to)
    found.threads = 1
    return found


def _lazy(part: Any, what: str) -> Any:
    """A part of a sum as a dask array."""
    if adapter_for(part) is not None:
        _ADAPTER.facts(part, what)
        return part
    return _dask().from_array(as_array(part, what))


def _refuse(out: Any) -> None:
    if out is not None:
        raise ArgumentError(
            "out= is given, but x is a dask array, which is computed later; leave out= away, and "
            "store the result: da.store(convert(x, ...), out)"
        )


def _token(*words: str) -> str:
    return str(sys.modules["dask.base"].tokenize(*words))


def _dask() -> Any:
    return sys.modules["dask.array"]


_ADAPTER = Dask()


def adapter_for(x: Any) -> Adapter | None:
    """The adapter of an array; None for what is none."""
    da = sys.modules.get("dask.array")
    return _ADAPTER if da is not None and isinstance(x, da.Array) else None
