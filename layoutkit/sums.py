"""A sum made ready to run: machine code, tiles, and what has to be done before and after.

Parts whose dtype kernels do not know (float8, foreign byte orders, reals among complex numbers)
are first cast by NumPy. Where no one nest of loops fits all parts (`nests`), each is first brought
into the output's layout. Everything else is one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from .arrays import Array, address
from .axes import Move
from .buffers import empty, empty_with_address
from .casts import cast_into
from .converter import Converter
from .kernels.cpu.tiles import MAX_NEST, Summation, prepare_sum
from .kernels.cpu.words import LINE
from .kernels.finish import Operand
from .nests import Nest, Place, nest
from .plans import contiguous, is_known, kernel_name
from .programs import has_half
from .spec import DType, kind_of
from .threads import Job, get_num_threads

__all__ = ["Request", "Sum"]

Stage = Callable[[Array], Array]


@dataclass(frozen=True)
class Request:
    """Everything that decides how a sum runs, checked before.

    `moves` lead from each part to the output. `out_strides` None: new contiguous memory.
    """

    moves: tuple[Move, ...]
    dtypes: tuple[DType, ...]
    strides: tuple[tuple[int, ...], ...]
    computed: DType
    result: DType
    out_strides: tuple[int, ...] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return self.moves[0].target_shape


@dataclass(frozen=True)
class Layout:
    """What the kernel sums: loops, dtypes of the parts, and what is done to each before.

    `written` is the dtype of the memory that it writes, the caller's output if `in_place`.
    """

    nest: Nest
    dtypes: tuple[DType, ...]
    stages: tuple[Stage | None, ...]
    written: DType
    in_place: bool


@dataclass(frozen=True)
class _Ready:
    """A sum for one alignment of the output."""

    job: Job
    area: int
    summation: Summation = field(repr=False)  # owns what the job's parameters point to


class Sum:
    """What an `Accumulator` keeps for arrays of these shapes, strides and dtypes.

    Safe to call from many threads: it is not changed, except that jobs are added.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._empty = 0 in request.shape
        self._jobs: dict[int, _Ready] = {}  # by the alignment of the output
        if not self._empty:
            self._layout = _lay_out(request)

    def __call__(self, arrays: Sequence[Array], out: Array | None) -> Array:
        """Sum the arrays into `out` or new memory."""
        final = empty(self._request.shape, self._request.result) if out is None else out
        if self._empty:
            return final
        layout = self._layout
        total = final if layout.in_place else empty(self._request.shape, layout.written)
        pairs = zip(arrays, layout.stages, strict=True)
        self._run([array if stage is None else stage(array) for array, stage in pairs], total)
        if total is not final:
            cast_into(final, total)
        return final

    def _run(self, parts: Sequence[Array], total: Array) -> None:
        nest = self._layout.nest
        dst = address(total) + nest.dst_offset
        alignment = min(dst & -dst, LINE)
        ready = self._jobs.get(alignment) or self._prepare(alignment)
        count = 1 if ready.job.small else min(get_num_threads(), ready.job.units)
        areas, first = empty_with_address((count * ready.area,), np.dtype(np.uint8))
        sources = map(int.__add__, map(address, parts), nest.src_offsets)
        call = np.array([*sources, first, ready.area, count, *[0] * count], np.int64)
        ready.job.run(address(call), dst)
        del areas  # lent until here

    def _prepare(self, alignment: int) -> _Ready:
        """Make the job; of two threads that do so at once, one wins, and both are right."""
        layout, computed = self._layout, self._request.computed
        parts = [_operand(dtype) for dtype in layout.dtypes]
        sides = _operand(computed), _operand(layout.written)
        summation = prepare_sum(layout.nest.loops, parts, *sides, alignment)
        item = sum(dtype.itemsize for dtype in (*layout.dtypes, layout.written))
        job = Job(
            summation.kernel, summation.params, summation.units, summation.grain,
            item * prod(self._request.shape),
        )  # fmt: skip
        return self._jobs.setdefault(alignment, _Ready(job, summation.area, summation))


# ---- planning ----------------------------------------------------------------------------


def _lay_out(request: Request) -> Layout:
    """Decide what the kernel sums, and what NumPy does before and after."""
    cast = [not _adds(dtype, request.computed) for dtype in request.dtypes]
    dtypes, strides = list(request.dtypes), list(request.strides)
    stages: list[Stage | None] = [None] * len(cast)
    for part in [part for part, needed in enumerate(cast) if needed]:
        dtypes[part], stages[part] = request.computed, _caster(request.computed)
        strides[part] = contiguous(request.moves[part].source_shape, request.computed)
    written = request.result if _finishes(request.computed, request.result) else request.computed
    in_place = written == request.result and _runs(request)
    out = request.out_strides if in_place else None
    out = contiguous(request.shape, written) if out is None else out
    found = nest(request.moves, strides, out)
    if found is None or len(found.loops) > MAX_NEST:
        return _rearranged(request, written)
    return Layout(found, tuple(dtypes), tuple(stages), written, in_place)


def _rearranged(request: Request, written: DType) -> Layout:
    """Every part is first converted to contiguous memory in the layout of the sum."""
    computed, parts = request.computed, len(request.moves)
    loop = Place(prod(request.shape), written.itemsize, (computed.itemsize,) * parts)
    stages = tuple(_mover(move, computed) for move in request.moves)
    in_place = request.out_strides is None and written == request.result
    return Layout(Nest((loop,), 0, (0,) * parts), (computed,) * parts, stages, written, in_place)


def _caster(computed: DType) -> Stage:
    def cast(array: Array) -> Array:
        values = empty(array.shape, computed)
        cast_into(values, array)
        return values

    return cast


def _mover(move: Move, computed: DType) -> Stage:
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    pattern = f"{move.source}->{move.target}"
    return Converter(pattern, dtype=computed, casting="unsafe", **sizes)  # type: ignore[arg-type]


def _adds(dtype: DType, computed: DType) -> bool:
    """Whether a kernel adds parts of this dtype."""
    if kind_of(computed) == "c":
        return dtype == computed and dtype.isnative
    return is_known(dtype, has_half)


def _finishes(computed: DType, result: DType) -> bool:
    """Whether a kernel writes the computed sum as `result`."""
    if computed == result:
        return result.isnative
    same_kind = (kind_of(computed) == "f") == (kind_of(result) == "f")
    return kind_of(computed) != "c" and same_kind and is_known(result, has_half)


def _runs(request: Request) -> bool:
    """Whether the caller's output can be written in contiguous runs."""
    if request.out_strides is None:
        return True
    pairs = zip(request.out_strides, request.shape, strict=True)
    steps = [abs(step) for step, count in pairs if count != 1]
    return not steps or min(steps) == request.result.itemsize


def _operand(dtype: DType) -> Operand:
    """What kernels see of a dtype; complex numbers are added as pairs."""
    if dtype.kind == "c":
        return Operand(dtype.itemsize, f"f{dtype.itemsize // 2}")
    return Operand(dtype.itemsize, kernel_name(dtype))
