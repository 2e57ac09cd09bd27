"""The adapter of dask arrays: lazy arrays in chunks, converted chunk by chunk.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. Axes
inside a fold and the channel axis under `channels=` must be in one chunk; they are rechunked with
a warning, since rechunking moves bytes between workers. Errors are raised when the graph is built.

A conversion of a chunk uses one thread, because the other cores work on other chunks.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..accumulation import Accumulator
from ..converter import Converter
from ..errors import ArgumentError
from ..layout.pattern import Permutation
from ..memory import Array
from ..normalize import CHANNEL
from ..planning.chunked import (
    ChunkedPlan,
    Chunks,
    Rechunked,
    cut_constants,
    find_required_chunks,
    folded_chunks,
    make_chunk_options,
)
from ..spec import CPU, ArraySpec, DType
from .base import Adapter
from .dispatch import as_array

if TYPE_CHECKING:
    from ..options import ConvertOptions
    from ..planning.plan import PaddedSource, Plan

# While set, rechunking is appended to this list, for a plan, and no warning is issued.
_rechunk_log: ContextVar[list[Rechunked] | None] = ContextVar("noted", default=None)


class BlockwiseJob(NamedTuple):
    """A blockwise computation; jobs on one array with equal name and identity are the same job."""

    name: str
    identity: tuple[str, ...]
    function: Callable[..., Any]  # called with a block of every array, and `kwargs` as keywords
    kwargs: Mapping[str, Any]
    axes: tuple[Hashable, ...]  # of the result; axes of the first array number its blocks
    chunks: Mapping[Hashable, Chunks]  # of the result, where they differ from the first array's
    dtype: DType

    def __call__(self, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]) -> Any:
        """Return the lazy result for arrays, each paired with the names of its axes."""
        da = _dask()
        (x, first_axes) = pairs[0]
        token = _token(*self.identity, *(array.name for array, _ in pairs))
        return da.blockwise(
            self.function,
            self.axes,
            *(argument for pair in pairs for argument in pair),
            name=f"{self.name}-{token}",
            new_axes={axis: self.chunks[axis][0] for axis in self.axes if axis not in first_axes},
            adjust_chunks={
                axis: sizes for axis, sizes in self.chunks.items() if axis in first_axes
            },
            dtype=self.dtype,
            meta=da.utils.meta_from_array(x._meta, len(self.axes), self.dtype),
            align_arrays=not self.chunks,
            **self.kwargs,
        )


class Dask(Adapter):
    """The adapter of dask arrays: lazy arrays in, lazy arrays out."""

    is_traced = pads_input = True

    # -- in and out ------------------------------------------------------------------------

    def to_numpy(self, x: Any, arg_name: str) -> Any:
        """Raise ArgumentError: reading x would compute all of it, unrequested."""
        raise ArgumentError(
            f"{arg_name} is a dask array, whose data is computed elsewhere and later; "
            f"pass {arg_name}.compute()"
        )

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype, or raise if a chunk size is unknown."""
        if any(isnan(size) for size in x.shape):
            raise ArgumentError(
                f"{arg_name} is a dask array of shape {x.shape}, whose chunks are not known before "
                f"it is computed; call {arg_name}.compute_chunk_sizes() first"
            )
        return x.shape, x.dtype

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        return x.transpose(order)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        return _dask().take(x, positions, axis=axis)

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        da = _dask()
        regions = zip(padding.window, padding.full, strict=True)
        widths = [(region.start, size - region.stop) for region, size in regions]
        chunks = {axis: -1 for axis, width in enumerate(widths) if width != (0, 0)}
        x = x.reshape(padding.sizes)
        mask = da.pad(da.ones(x.shape, dtype=bool, chunks=x.chunks), widths, constant_values=False)
        padded = da.where(mask, da.pad(x, widths), padding.fill.astype(x.dtype))
        return padded.rechunk(chunks)

    # -- the graph -------------------------------------------------------------------------

    def is_recorded(self, x: Any) -> bool:
        """Return True: the array is a graph."""
        return True

    def plan(self, converter: Converter, x: Any) -> Plan:
        plan = converter.plan(converter.spec_of(x))
        token = _rechunk_log.set([])
        try:
            graph = converter(x)
            moved = tuple(_rechunk_log.get() or ())
        finally:
            _rechunk_log.reset(token)
        return ChunkedPlan.of(plan, (x.chunks, graph.chunks), _count_tasks(graph, x), moved)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        _refuse(out)
        if converter.targets_gpu:
            raise ArgumentError("x is a dask array; omit device=, and convert in its workers")
        options = converter.options
        chunks = self._known_chunks(options, x)
        shape = tuple(map(sum, chunks))
        plan = converter.plan(ArraySpec.of(options.pattern.left, shape, x.dtype, CPU))
        if plan.kernel == "view" and plan.source.axes == plan.target.axes:
            return x
        move, picks = options.select_channels(shape)
        full_move = move if picks is None else picks.with_all_channels(move)
        cuts = find_required_chunks(full_move, chunks, {picks.letter} if picks else set())
        x = _with_chunks(x, chunks, full_move, cuts, options.pattern.text)
        result_cuts = cuts if picks is None else cuts | {picks.letter: (len(picks.order),)}
        source_axes, target_axes = (
            tuple(group[0] for group in side.groups) for side in (move.source, move.target)
        )
        unknown = {axis for axis, size in zip(source_axes, x.shape, strict=True) if isnan(size)}
        result_chunks = folded_chunks(move.target, move, result_cuts)
        blocks, keywords, identity = _chunk_converters(options, full_move, cuts)
        job = BlockwiseJob(
            "convert",
            (identity[0], str(move.source), str(move.target), identity[1]),
            _convert_chunk,
            keywords,
            target_axes,
            {
                axis: sizes
                for axis, sizes in zip(target_axes, result_chunks, strict=True)
                if axis not in unknown
            },
            plan.target.dtype,
        )
        return job([(x, source_axes), *blocks])

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """Return the lazy sum of every chunk; parts are first converted to its layout."""
        _refuse(out)
        lazy = [self._lazy(part, f"part {index}") for index, part in enumerate(parts)]
        shapes = [part.shape for part in lazy]
        moves, dtype = accumulator.infer_result(shapes, tuple(part.dtype for part in lazy))
        moved = [
            converter(part) for converter, part in zip(accumulator.converters(), lazy, strict=True)
        ]
        axes = tuple(range(len(moves[0].target_shape)))
        job = BlockwiseJob(
            "accumulate", (str(dtype),), _sum_chunks, {"to": str(dtype)}, axes, {}, dtype
        )
        return job([(part, axes) for part in moved])

    def _known_chunks(self, options: ConvertOptions, x: Any) -> tuple[Chunks, ...]:
        """Return the chunks of x, with 1 for each unknown size along axes that are only moved.

        Raises ArgumentError if the conversion needs an unknown size.
        """
        pattern = options.pattern.expand_ellipsis(x.ndim)
        needed = set(options.sizes) | ({CHANNEL} if options.channels is not None else set())
        if options.formula is not None and options.formula.per_channel:
            needed.add(options.formula.axis)
        # The plan raises if the ranks differ.
        for group, chunks in zip(pattern.source.groups, x.chunks, strict=False):
            is_moved = len(group) == 1 and group in pattern.target.groups
            is_needed = not is_moved or pattern.source.name(group[0]) in needed
            if is_needed and any(map(isnan, chunks)):
                self.inspect(x, "x")  # raises
        return tuple(tuple(1 if isnan(size) else size for size in sizes) for sizes in x.chunks)

    def _lazy(self, part: Any, arg_name: str) -> Any:
        if adapter_for(part) is None:
            return _dask().from_array(as_array(part, arg_name))
        self.inspect(part, arg_name)
        return part


def _chunk_converters(
    options: ConvertOptions, move: Permutation, cuts: dict[str, Chunks]
) -> tuple[list[tuple[Any, tuple[Hashable, ...]]], dict[str, Any], tuple[str, str]]:
    """Return the arrays and keywords of a job with which chunks are converted, and their identity.

    If chunks differ in their constants, their Converters are an array of the job, in chunks of one
    Converter; else the one Converter is a keyword.
    """
    options = make_chunk_options(options, move, cuts)
    varied = cut_constants(options.formula, move, cuts)
    converter = Converter.from_options(options)
    identity = repr(converter), repr(varied)
    if varied is None:
        return [], {"converter": converter}, identity
    converters = [Converter.from_options(replace(options, formula=f)) for f in varied.formulas]
    name = f"ways-{_token(*map(repr, converters))}"
    blocks = _dask().from_array(np.array(converters), chunks=1, name=name, asarray=False)
    return [(blocks, (varied.letter,))], {}, identity


def _with_chunks(
    x: Any, given: tuple[Chunks, ...], move: Permutation, cuts: Mapping[str, Chunks], text: str
) -> Any:
    """Return x in the chunks that the conversion needs; warn if its `given` chunks differ."""
    chunks = folded_chunks(move.source, move, cuts)
    if chunks == given:
        return x
    pairs = zip(move.source.groups, given, chunks, strict=True)
    axis_names = [" ".join(map(move.source.name, group)) for group, old, new in pairs if old != new]
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
        warnings.warn(f'"{text}" needs {rechunked}', _dask().PerformanceWarning, stacklevel=2)
    return x.rechunk(chunks)


def _count_tasks(result: Any, x: Any) -> int:
    layers = result.dask.layers
    return sum(len(layers[name]) for name in layers.keys() - x.dask.layers)


def _refuse(out: Any) -> None:
    if out is not None:
        raise ArgumentError(
            "out= is given, but x is a dask array, which is computed later; omit out=, and store "
            "the result: da.store(convert(x, ...), out)"
        )


def _convert_chunk(block: Any, converter: Any) -> Any:
    """Return the converted chunk; a chunk whose axes were contracted arrives in nested lists.

    converter : a Converter, or an array with a Converter
    """
    while isinstance(block, list):
        block = block[0]
    selected = converter if isinstance(converter, Converter) else converter.item()
    return first_equal(selected)(block)


def _sum_chunks(*blocks: Any, to: str) -> Any:
    return _accumulator(len(blocks), blocks[0].ndim, to)(list(blocks))


@lru_cache(maxsize=256)
def first_equal(converter: Converter) -> Converter:
    """Return the first of equal Converters, so that a worker plans once, not once a chunk."""
    return converter


@lru_cache(maxsize=256)
def _accumulator(count: int, ndim: int, to: str) -> Accumulator:
    layout = "abcdeghijklmnopqrstuvwxyz"[:ndim]
    accumulator = Accumulator((layout,) * count, layout, dtype=to)
    accumulator.threads = 1
    return accumulator


def _token(*texts: str) -> str:
    return str(sys.modules["dask.base"].tokenize(*texts))


def array_namespace(x: Any) -> Any:
    """Return the module of the functions of dask arrays."""
    return _dask()


def _dask() -> Any:
    return sys.modules["dask.array"]


_ADAPTER = Dask()


def adapter_for(x: Any) -> Adapter | None:
    """Return the adapter of a dask array, or None for other objects."""
    da = sys.modules.get("dask.array")
    return _ADAPTER if da is not None and isinstance(x, da.Array) else None
