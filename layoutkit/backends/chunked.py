"""The adapter base class for arrays in chunks that are computed lazily: one conversion per chunk.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. Axes
inside a fold and the channel axis under `channels=` must be in one chunk; they are rechunked with
a warning, since rechunking moves bytes between workers. Errors are raised when the graph is built.

A conversion of a chunk uses one thread, because the other cores work on other chunks.

The code common to all chunked libraries is here; dask.py and cubed.py hold each library's calls.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from ..accumulation import Accumulator
from ..converter import Converter
from ..errors import ArgumentError
from ..layout.pattern import Permutation
from ..normalize import CHANNEL
from ..planning.chunked import (
    ChunkedPlan,
    Chunks,
    Rechunked,
    chunk_constants,
    folded_chunks,
    options_of_chunk,
    required_chunks,
)
from ..spec import CPU, ArraySpec, DType
from .base import Adapter
from .dispatch import as_array

if TYPE_CHECKING:
    from ..options import ConvertOptions
    from ..planning.plan import Plan

# While set, rechunking is appended to this list, for a plan, and no warning is issued.
_rechunk_log: ContextVar[list[Rechunked] | None] = ContextVar("noted", default=None)


class BlockwiseJob(NamedTuple):
    """A blockwise computation, and the axes and chunks of its result.

    name, identity  jobs on one array with equal name and identity are the same job
    function        called with a block of every array, and `kwargs` as keywords
    axes            of the result; those that the first array also has number its blocks
    chunks          of the result, along those axes whose chunks are not the first array's
    """

    name: str
    identity: tuple[str, ...]
    function: Callable[..., Any]
    kwargs: Mapping[str, Any]
    axes: tuple[Hashable, ...]
    chunks: Mapping[Hashable, Chunks]
    dtype: DType


class ChunkedAdapter(Adapter):
    """The adapter of lazy chunked arrays: lazy arrays in, lazy arrays out."""

    library = ""  # the name in messages
    compute_sizes_call = ""  # the method that computes unknown chunk sizes
    store_call = ""  # the call that writes a result to an output
    is_traced = pads_input = True
    warning: type[Warning] = UserWarning

    # -- implemented by each library -------------------------------------------------------

    @abstractmethod
    def is_instance(self, x: Any) -> bool:
        """Return True if x is an array of the library."""

    @abstractmethod
    def as_lazy(self, array: Any, like: Any) -> Any:
        """Return a NumPy array as an array of the library."""

    @abstractmethod
    def rechunk(self, x: Any, chunks: tuple[Chunks, ...]) -> Any:
        """Return x in the given chunks."""

    @abstractmethod
    def converter_blocks(
        self, converters: tuple[Converter, ...], like: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Return an array with one block a converter, and keywords for the job's function."""

    @abstractmethod
    def compute_blockwise(
        self, job: BlockwiseJob, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]
    ) -> Any:
        """Return the lazy result of a job on arrays, each paired with the names of its axes."""

    @abstractmethod
    def count_tasks(self, result: Any, x: Any) -> int:
        """Return the number of tasks that the graph of a result has in addition to x's."""

    # -- common to all libraries -----------------------------------------------------------

    def to_numpy(self, x: Any, arg_name: str) -> Any:
        """Raise ArgumentError: reading x would compute all of it, unrequested."""
        raise ArgumentError(
            f"{arg_name} is a {self.library} array, whose data is computed elsewhere and later; "
            f"pass {arg_name}.compute()"
        )

    def facts(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype, or raise if a chunk size is unknown."""
        if any(isnan(size) for size in x.shape):
            raise ArgumentError(
                f"{arg_name} is a {self.library} array of shape {x.shape}, whose chunks are not "
                f"known before it is computed; call {arg_name}.{self.compute_sizes_call} first"
            )
        return x.shape, x.dtype

    def is_recorded(self, x: Any) -> bool:
        """Return True: the array is a graph."""
        return True

    def plan(self, converter: Converter, x: Any) -> Plan:
        """Return the plan of the array, with the chunks and tasks of its graph."""
        plan = converter.plan(converter.spec_of(x))
        token = _rechunk_log.set([])
        try:
            graph = converter(x)
            moved = tuple(_rechunk_log.get() or ())
        finally:
            _rechunk_log.reset(token)
        return ChunkedPlan.of(plan, (x.chunks, graph.chunks), self.count_tasks(graph, x), moved)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """Return the lazy conversion of every chunk."""
        self._refuse(out)
        if converter.targets_gpu:
            raise ArgumentError(
                f"x is a {self.library} array; omit device=, and convert in its workers"
            )
        options = converter.options
        chunks = self._known_chunks(options, x)
        shape = tuple(map(sum, chunks))
        plan = converter.plan(ArraySpec.of(options.pattern.left, shape, x.dtype, CPU))
        if plan.kernel == "view" and plan.source.axes == plan.target.axes:
            return x
        move, picks = options.select_channels(shape)
        full_move = move if picks is None else picks.whole(move)
        cuts = self.allowed_chunks(
            required_chunks(full_move, chunks, {picks.letter} if picks else set())
        )
        x = self._with_chunks(x, chunks, full_move, cuts, options.pattern.text)
        result_cuts = cuts if picks is None else cuts | {picks.letter: (len(picks.order),)}
        chunk_options = options_of_chunk(options, full_move, cuts)
        varied_constants = chunk_constants(options.formula, full_move, cuts)
        source_axes, target_axes = (
            tuple(group[0] for group in side.groups) for side in (move.source, move.target)
        )
        unknown = {axis for axis, size in zip(source_axes, x.shape, strict=True) if isnan(size)}
        converter_of_chunk = Converter.from_options(chunk_options)
        pairs = [(x, source_axes)]
        kwargs = {"converter": converter_of_chunk}
        if varied_constants is not None:
            varied_converters = tuple(
                Converter.from_options(replace(chunk_options, formula=f))
                for f in varied_constants.formulas
            )
            numbers, kwargs = self.converter_blocks(varied_converters, x)
            pairs.append((numbers, (varied_constants.letter,)))
        job = BlockwiseJob(
            "convert",
            (repr(converter_of_chunk), str(move.source), str(move.target), repr(varied_constants)),
            _convert_chunk,
            kwargs,
            target_axes,
            {
                axis: sizes
                for axis, sizes in zip(
                    target_axes, folded_chunks(move.target, move, result_cuts), strict=True
                )
                if axis not in unknown
            },
            plan.target.dtype,
        )
        return self.compute_blockwise(job, pairs)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """Return the lazy sum of every chunk; parts are first converted to its layout."""
        self._refuse(out)
        like = next(part for part in parts if self.is_instance(part))
        lazy = [self._lazy(part, like, f"part {index}") for index, part in enumerate(parts)]
        shapes = [part.shape for part in lazy]
        dtypes = [part.dtype for part in lazy]
        moves, dtype = accumulator.resolve(shapes, tuple(dtypes))
        moved = [
            converter(part) for converter, part in zip(accumulator.converters(), lazy, strict=True)
        ]
        axes = tuple(range(len(moves[0].target_shape)))
        identity = (str(dtype),)
        kwargs = {"to": str(dtype)}
        job = BlockwiseJob("accumulate", identity, _sum_chunks, kwargs, axes, {}, dtype)
        return self.compute_blockwise(job, [(part, axes) for part in moved])

    def allowed_chunks(self, cuts: dict[str, Chunks]) -> dict[str, Chunks]:
        """Return chunks that the library supports instead of `cuts`: the same number or fewer."""
        return cuts

    def _known_chunks(self, options: ConvertOptions, x: Any) -> tuple[Chunks, ...]:
        """Return the chunks of x, with 1 for each unknown size along axes that are only moved.

        Raises ArgumentError if the conversion needs an unknown size.
        """
        pattern = options.pattern.completed(x.ndim)
        needed = set(options.sizes) | ({CHANNEL} if options.channels is not None else set())
        if options.formula is not None and options.formula.per_channel:
            needed.add(options.formula.axis)
        # The plan raises if the ranks differ.
        for group, chunks in zip(pattern.source.groups, x.chunks, strict=False):
            is_moved = len(group) == 1 and group in pattern.target.groups
            is_needed = not is_moved or pattern.source.name(group[0]) in needed
            if is_needed and any(map(isnan, chunks)):
                self.facts(x, "x")  # raises
        return tuple(tuple(1 if isnan(size) else size for size in sizes) for sizes in x.chunks)

    def _with_chunks(
        self,
        x: Any,
        given: tuple[Chunks, ...],
        move: Permutation,
        cuts: Mapping[str, Chunks],
        text: str,
    ) -> Any:
        """Return x, of the `given` chunks, in those that are needed; warn if it is rechunked."""
        chunks = folded_chunks(move.source, move, cuts)
        if chunks == given:
            return x
        pairs = zip(move.source.groups, given, chunks, strict=True)
        axis_names = [
            " ".join(map(move.source.name, group)) for group, old, new in pairs if old != new
        ]
        # Unknown sizes stay unknown: these axes keep their chunks.
        chunks = tuple(
            old if new == known else new
            for old, known, new in zip(x.chunks, given, chunks, strict=True)
        )
        rechunked = Rechunked(tuple(axis_names), x.nbytes, chunks)
        log = _rechunk_log.get()
        if log is not None:
            log.append(rechunked)
        else:
            warnings.warn(f'"{text}" needs {rechunked}', self.warning, stacklevel=2)
        return self.rechunk(x, chunks)

    def _lazy(self, part: Any, like: Any, arg_name: str) -> Any:
        """Return a part of a sum as an array of the library."""
        if not self.is_instance(part):
            return self.as_lazy(as_array(part, arg_name), like)
        self.facts(part, arg_name)
        return part

    def _refuse(self, out: Any) -> None:
        if out is not None:
            raise ArgumentError(
                f"out= is given, but x is a {self.library} array, which is computed later; omit "
                f"out=, and store the result: {self.store_call}"
            )


def _convert_chunk(block: Any, converter: Any, converters: tuple[Converter, ...] = ()) -> Any:
    """Return the converted chunk; a chunk whose axes were contracted arrives in nested lists.

    converter : a Converter, or an array with a Converter or its index in `converters`
    """
    while isinstance(block, list):
        block = block[0]
    selected: Any = converter if isinstance(converter, Converter) else converter.item()
    return _first_equal(converters[selected] if converters else selected)(block)


def _sum_chunks(*blocks: Any, to: str) -> Any:
    return _accumulator(len(blocks), blocks[0].ndim, to)(list(blocks))


@lru_cache(maxsize=256)
def _first_equal(converter: Converter) -> Converter:
    """Return the first of equal Converters, so that a worker plans once, not once a chunk."""
    return converter


@lru_cache(maxsize=256)
def _accumulator(count: int, ndim: int, to: str) -> Accumulator:
    layout = "abcdeghijklmnopqrstuvwxyz"[:ndim]
    accumulator = Accumulator((layout,) * count, layout, dtype=to)
    accumulator.threads = 1
    return accumulator
