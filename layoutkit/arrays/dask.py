"""Arrays of dask: a conversion of each chunk, which is computed elsewhere and later.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. What lies
inside of a fold, and channels that are taken, have to be in one chunk and are made so, with a
warning, since bytes move between workers then. Whatever is wrong is said when the graph is built.

In the threads of dask a conversion has one thread: those that there are work on other chunks.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isnan, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..accumulation import Accumulator
from ..axes import Layout, Move
from ..converter import Converter
from ..errors import ArgumentError
from ..formulas import Formula
from ..memory import Array
from ..spec import DType
from .base import Adapter

if TYPE_CHECKING:
    from ..planning.composed import Larger
    from ..planning.task import Task

__all__ = ["adapter_for"]

Chunks = tuple[int, ...]


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

    def is_recorded(self, x: Any) -> bool:
        """Yes: it is a graph."""
        return True

    def record(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of every chunk."""
        _refuse(out)
        if converter.is_away:
            raise ArgumentError("x is a dask array; leave device= away, and convert in its workers")
        result = converter.plan(converter.spec_of(x)).target
        task = converter.task
        move, picks = task.picked(x.shape)
        whole = move if picks is None else picks.whole(move)
        cuts = _cuts(whole, x.chunks, {picks.letter} if picks else set())
        x = _rechunked(x, whole, cuts, task.pattern.text)
        after = cuts if picks is None else cuts | {picks.letter: (len(picks.order),)}
        ours = _of_chunks(task, whole, cuts)
        return _blocks(ours, x, move, after, result.dtype, _along(task.formula, whole, cuts))

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


def _cuts(move: Move, chunks: Sequence[Chunks], whole: set[str]) -> dict[str, Chunks]:
    """The chunks of every axis of x, taken apart, as they have to be; `whole` are in one."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    inside = {letter for group in move.target.groups for letter in group[1:]} | whole
    cuts: dict[str, Chunks] = {letter: (size,) for letter, size in sizes.items()}
    for group, found in zip(move.source.groups, chunks, strict=True):
        rest = prod(sizes[letter] for letter in group[1:])
        if group[0] not in inside and rest:
            cuts[group[0]] = _counted(found, rest)
    return cuts


def _counted(chunks: Chunks, rest: int) -> Chunks:
    """Chunks in units of `rest`: those that divide one grow to its end."""
    ends, place = [0], 0
    for size in chunks:
        place += size
        end = -(-place // rest)
        if end > ends[-1]:
            ends.append(end)
    return tuple(b - a for a, b in itertools.pairwise(ends)) or (0,)


def _folded(layout: Layout, move: Move, cuts: Mapping[str, Chunks]) -> tuple[Chunks, ...]:
    """The chunks along every axis of a side, as folded as it is."""
    found = []
    for group in layout.groups:
        rest = prod(sum(cuts.get(letter, (1,))) for letter in group[1:])
        found.append(tuple(size * rest for size in cuts.get(group[0], (1,))))
    return tuple(found)


def _rechunked(x: Any, move: Move, cuts: Mapping[str, Chunks], text: str) -> Any:
    """x in the chunks that a conversion can take, with a warning where these are others."""
    wanted = _folded(move.source, move, cuts)
    if wanted == x.chunks:
        return x
    pairs = zip(move.source.groups, x.chunks, wanted, strict=True)
    names = [" ".join(map(move.source.name, group)) for group, old, new in pairs if old != new]
    warnings.warn(
        f'"{text}" needs other chunks along {", ".join(names)}: {x.nbytes:,} bytes are put '
        f"together anew; rechunk to {wanted} where x is made, or leave these axes whole",
        _dask().PerformanceWarning,
        stacklevel=2,
    )
    return x.rechunk(wanted)


class _Along(NamedTuple):
    """The constants of a formula where its axis is in several chunks."""

    letter: str
    formulas: tuple[Formula, ...]


def _along(formula: Formula | None, move: Move, cuts: Mapping[str, Chunks]) -> _Along | None:
    letter = None if formula is None else formula.letter(move)
    if formula is None or letter is None or len(cuts.get(letter, ())) < 2:
        return None
    if not formula.per_channel:
        return None
    ends = np.cumsum((0, *cuts[letter])).tolist()
    parts = []
    for start, stop in itertools.pairwise(ends):
        cut: dict[str, Any] = {
            name: value[start:stop]
            for name in ("mean", "std")
            if isinstance(value := getattr(formula, name), tuple)
        }
        parts.append(replace(formula, **cut))
    return _Along(letter, tuple(parts))


def _of_chunks(task: Task, move: Move, cuts: Mapping[str, Chunks]) -> Task:
    """The conversion of a chunk, whose sizes are its own along axes in several."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    known = {
        move.source.name(letter): sizes[letter]
        for group in move.source.groups
        if len(group) > 1
        for letter in group
        if letter != group[0] or len(cuts[letter]) == 1
    }
    return task._replace(sizes=known, device=None, threads=task.threads or 1)


def _blocks(
    task: Task, x: Any, move: Move, cuts: Mapping[str, Chunks], dtype: DType, along: _Along | None
) -> Any:
    """The conversion of every chunk, by the letter that each axis begins with."""
    da = _dask()
    left, right = ([group[0] for group in side.groups] for side in (move.source, move.target))
    after = dict(zip(right, _folded(move.target, move, cuts), strict=True))
    converter = Converter.of_task(task)
    said = repr(converter), str(move.source), str(move.target), repr(along), str(dtype)
    more: tuple[Any, ...] = ()
    if along is not None:
        ways = np.array([Converter.of_task(task._replace(formula=f)) for f in along.formulas])
        name = f"ways-{_token(*said)}"
        more = da.from_array(ways, chunks=1, name=name, asarray=False), (along.letter,)
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
    from .adapters import as_array  # late: it finds this file

    array = as_array(part, what)
    return _dask().from_array(array)


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
