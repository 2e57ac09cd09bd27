"""Arrays in blocks that are computed elsewhere and later: a conversion of each of them.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. What lies
inside of a fold, and channels that are taken, have to be in one chunk and are made so, with a
warning, since bytes move between workers then. Whatever is wrong is said when the graph is built.

Where blocks are computed, a conversion has one thread: those that there are work on other blocks.

What is the same for all libraries of such arrays is here; each has a file with the few words in
which it says it.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from ..accumulation import Accumulator
from ..converter import Converter
from ..errors import ArgumentError
from ..layout.pattern import Move
from ..planning.chunked import ChunkedPlan, Chunks, Rechunked, along, cuts_of, folded, of_chunks
from ..spec import DType
from .base import Adapter
from .dispatch import as_array

if TYPE_CHECKING:
    from ..planning.plan import Plan

# What plans are told of instead of who runs the conversion.
_rechunk_log: ContextVar[list[Rechunked] | None] = ContextVar("noted", default=None)


class BlockwiseJob(NamedTuple):
    """What is computed of blocks, and how the results lie.

    name, said      what it is: two of one array that say the same are one
    function        takes a block of every array, and `words` as keywords
    axes            of the result; those that the first array has, too, count its blocks
    chunks          of the result, along those of its axes that are not as they were
    """

    name: str
    said: tuple[str, ...]
    function: Callable[..., Any]
    words: Mapping[str, Any]
    axes: tuple[Hashable, ...]
    chunks: Mapping[Hashable, Chunks]
    dtype: DType


class ChunkedAdapter(Adapter):
    """Lazy in, lazy out."""

    library = ""  # what messages call it
    compute_sizes_call = ""  # what makes sizes known that are not
    store_call = ""  # how a result is written to an output
    is_traced = pads_input = True
    warning: type[Warning] = UserWarning

    # -- what each library says in its words -----------------------------------------------

    @abstractmethod
    def is_instance(self, x: Any) -> bool:
        """Whether it is an array of the library."""

    @abstractmethod
    def as_lazy(self, array: Any, like: Any) -> Any:
        """An array of NumPy as one of the library."""

    @abstractmethod
    def rechunk(self, x: Any, chunks: tuple[Chunks, ...]) -> Any:
        """The same array in these chunks."""

    @abstractmethod
    def converter_blocks(
        self, ways: tuple[Converter, ...], like: Any
    ) -> tuple[Any, dict[str, Any]]:
        """An array of as many blocks, each of which says which way, and keywords beside it."""

    @abstractmethod
    def compute_blockwise(
        self, job: BlockwiseJob, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]
    ) -> Any:
        """What a job makes of arrays, of each of which the axes are named."""

    @abstractmethod
    def count_tasks(self, result: Any, x: Any) -> int:
        """How many tasks the graph of a result has beside those of x."""

    # -- what is the same for all ----------------------------------------------------------

    def arrive(self, x: Any, what: str) -> Any:
        """Raise: to read it is to compute all of it, which should not happen unasked."""
        raise ArgumentError(
            f"{what} is a {self.library} array, whose data is computed elsewhere and later; pass "
            f"{what}.compute()"
        )

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, as the library knows them."""
        if any(isnan(size) for size in x.shape):
            raise ArgumentError(
                f"{what} is a {self.library} array of shape {x.shape}, whose chunks are not known "
                f"before it is computed; call {what}.{self.compute_sizes_call} first"
            )
        return x.shape, x.dtype

    def is_recorded(self, x: Any) -> bool:
        """Yes: it is a graph."""
        return True

    def plan(self, converter: Converter, x: Any) -> Plan:
        """That of the whole and, by the graph that a conversion would be, of its chunks."""
        whole = converter.plan(converter.spec_of(x))
        token = _rechunk_log.set([])
        try:
            graph = converter(x)
            moved = tuple(_rechunk_log.get() or ())
        finally:
            _rechunk_log.reset(token)
        return ChunkedPlan.of(whole, (x.chunks, graph.chunks), self.count_tasks(graph, x), moved)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of every chunk."""
        self._refuse(out)
        if converter.is_away:
            raise ArgumentError(
                f"x is a {self.library} array; leave device= away, and convert in its workers"
            )
        plan, task = converter.plan(converter.spec_of(x)), converter.task
        if plan.kernel == "view" and plan.source.axes == plan.target.axes:
            return x
        move, picks = task.picked(x.shape)
        whole = move if picks is None else picks.whole(move)
        cuts = self.allowed_chunks(cuts_of(whole, x.chunks, {picks.letter} if picks else set()))
        x = self._with_chunks(x, whole, cuts, task.pattern.text)
        after = cuts if picks is None else cuts | {picks.letter: (len(picks.order),)}
        ours, varied = of_chunks(task, whole, cuts), along(task.formula, whole, cuts)
        left, right = (
            tuple(group[0] for group in side.groups) for side in (move.source, move.target)
        )
        way = Converter.of_task(ours)
        pairs, words = [(x, left)], {"way": way}
        if varied is not None:
            ways = tuple(Converter.of_task(ours._replace(formula=f)) for f in varied.formulas)
            numbers, words = self.converter_blocks(ways, x)
            pairs.append((numbers, (varied.letter,)))
        job = BlockwiseJob(
            "convert",
            (repr(way), str(move.source), str(move.target), repr(varied)),
            _converted,
            words,
            right,
            dict(zip(right, folded(move.target, move, after), strict=True)),
            plan.target.dtype,
        )
        return self.compute_blockwise(job, pairs)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum of every chunk: parts in the layout of the sum first, which are then one grid."""
        self._refuse(out)
        like = next(part for part in parts if self.is_instance(part))
        lazy = [self._lazy(part, like, f"part {at}") for at, part in enumerate(parts)]
        shapes, dtypes = [part.shape for part in lazy], [part.dtype for part in lazy]
        moves, dtype = accumulator.resolve(shapes, tuple(dtypes))
        moved = [way(part) for way, part in zip(accumulator.converters(), lazy, strict=True)]
        axes = tuple(range(len(moves[0].target_shape)))
        said, words = (str(dtype),), {"to": str(dtype)}
        job = BlockwiseJob("accumulate", said, _summed, words, axes, {}, dtype)
        return self.compute_blockwise(job, [(part, axes) for part in moved])

    def allowed_chunks(self, cuts: dict[str, Chunks]) -> dict[str, Chunks]:
        """The chunks that the library can have instead of these, which are as few or fewer."""
        return cuts

    def _with_chunks(self, x: Any, move: Move, cuts: Mapping[str, Chunks], text: str) -> Any:
        """x in the chunks that a conversion can take, with a warning where these are others."""
        wanted = folded(move.source, move, cuts)
        if wanted == x.chunks:
            return x
        pairs = zip(move.source.groups, x.chunks, wanted, strict=True)
        names = [" ".join(map(move.source.name, group)) for group, old, new in pairs if old != new]
        moved, noted = Rechunked(tuple(names), x.nbytes, wanted), _rechunk_log.get()
        if noted is not None:
            noted.append(moved)
        else:
            warnings.warn(f'"{text}" needs {moved}', self.warning, stacklevel=2)
        return self.rechunk(x, wanted)

    def _lazy(self, part: Any, like: Any, what: str) -> Any:
        """A part of a sum as an array of the library."""
        if not self.is_instance(part):
            return self.as_lazy(as_array(part, what), like)
        self.facts(part, what)
        return part

    def _refuse(self, out: Any) -> None:
        if out is not None:
            raise ArgumentError(
                f"out= is given, but x is a {self.library} array, which is computed later; leave "
                f"out= away, and store the result: {self.store_call}"
            )


def _converted(block: Any, way: Any, ways: tuple[Converter, ...] = ()) -> Any:
    """The result of a chunk; one that came along axes which are gone is in lists.

    way : Converter, or an array of one or of its number among `ways`
    """
    while isinstance(block, list):
        block = block[0]
    found: Any = way if isinstance(way, Converter) else way.item()
    return _known(ways[found] if ways else found)(block)


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
