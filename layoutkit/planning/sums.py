"""The plan of a sum: its loops, what is done to each part before, and what is written.

Parts whose dtype kernels do not know (float8, foreign byte orders, reals among complex numbers)
are first cast. Where no one nest of loops fits all parts (`nests`), each is first brought into
the output's layout. Everything else is one pass over memory. Pure: no array is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ..axes import Move
from ..converter import Converter
from ..spec import DType, kind_of
from .epilogue import Operand, is_known, kernel_name
from .loops import Nest, SumLoop, nest
from .plan import contiguous

__all__ = ["Layout", "Request", "Stage", "lay_out", "operand"]


@dataclass(frozen=True)
class Stage:
    """What is done to a part before it is added: a cast, and with a `move` a conversion."""

    dtype: DType
    move: Move | None = None

    def converter(self) -> Converter:
        """What moves a part, in any order of dtypes."""
        if self.move is None:
            raise RuntimeError("a stage that only casts has no converter")
        sizes = dict(zip(self.move.axes, self.move.sizes, strict=True))
        pattern = f"{self.move.source}->{self.move.target}"
        return Converter(pattern, dtype=self.dtype, casting="unsafe", **sizes)  # type: ignore[arg-type]


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


def lay_out(request: Request, has_half: Callable[[], bool], most: int) -> Layout:
    """Decide what kernels sum, in at most `most` loops, and what is done before and after."""
    cast = [not _adds(dtype, request.computed, has_half) for dtype in request.dtypes]
    dtypes, strides = list(request.dtypes), list(request.strides)
    stages: list[Stage | None] = [None] * len(cast)
    for part in [part for part, needed in enumerate(cast) if needed]:
        dtypes[part], stages[part] = request.computed, Stage(request.computed)
        strides[part] = contiguous(request.moves[part].source_shape, request.computed)
    written = (
        request.result
        if _finishes(request.computed, request.result, has_half)
        else request.computed
    )
    in_place = written == request.result and _runs(request)
    out = request.out_strides if in_place else None
    out = contiguous(request.shape, written) if out is None else out
    found = nest(request.moves, strides, out)
    if found is None or len(found.loops) > most:
        return _rearranged(request, written)
    return Layout(found, tuple(dtypes), tuple(stages), written, in_place)


def _rearranged(request: Request, written: DType) -> Layout:
    """Every part is first converted to contiguous memory in the layout of the sum."""
    computed, parts = request.computed, len(request.moves)
    loop = SumLoop(prod(request.shape), written.itemsize, (computed.itemsize,) * parts)
    stages = tuple(Stage(computed, move) for move in request.moves)
    in_place = request.out_strides is None and written == request.result
    return Layout(Nest((loop,), 0, (0,) * parts), (computed,) * parts, stages, written, in_place)


def _adds(dtype: DType, computed: DType, has_half: Callable[[], bool]) -> bool:
    """Whether a kernel adds parts of this dtype."""
    if kind_of(computed) == "c":
        return dtype == computed and dtype.isnative
    return is_known(dtype, has_half)


def _finishes(computed: DType, result: DType, has_half: Callable[[], bool]) -> bool:
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


def operand(dtype: DType) -> Operand:
    """What kernels see of a dtype; complex numbers are added as pairs."""
    if dtype.kind == "c":
        return Operand(dtype.itemsize, f"f{dtype.itemsize // 2}")
    return Operand(dtype.itemsize, kernel_name(dtype))
