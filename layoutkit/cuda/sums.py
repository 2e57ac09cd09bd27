"""A sum made ready to run on a GPU, what `layoutkit.cpu.sums` is for the CPU.

One launch adds up to `MAX_PARTS` arrays. More are added in turns, each beginning with what the one
before has summed, in the dtype that sums are computed in: the result is that of one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..caching import remember
from ..converter import Converter
from ..devices import runtime
from ..kernels.cuda.launch import MAX_PARTS
from ..kernels.cuda.tiles import MAX_AXES, prepare_sum
from ..planning.loops import SumLoop
from ..planning.sums import Layout, Request, Stage, lay_out, operand
from ..spec import DType, kind_of
from .memory import DeviceArray, check_writable
from .program import aligned, cast, cast_into, check_warm, has_half
from .program import run as convert

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..arrays.cupy import CudaAdapter

__all__ = ["run"]


def run(
    accumulator: Accumulator,
    arrays: Sequence[DeviceArray],
    out: DeviceArray | None,
    adapter: CudaAdapter,
) -> Any:
    """The library's array of the sum; `out`'s where that is given."""
    ordinal = arrays[0].ordinal
    arrays = [array if array.is_aligned else aligned(array, adapter) for array in arrays]
    key: tuple[Any, ...] = (ordinal, *((a.shape, a.strides, a.dtype) for a in arrays))
    if out is not None:
        key += (out.shape, out.strides, out.dtype)
    kept = accumulator.device_sums
    ready = kept.get(key) or remember(kept, key, _plan(accumulator, arrays, out))
    if out is not None:
        for at, array in enumerate(arrays):
            check_writable(array, out, f"part {at}")
    if isinstance(ready, Converter):
        return convert(ready, arrays[0], out, adapter)
    adapter.check(ready.result)
    with runtime().on(ordinal):
        return ready(arrays, out, adapter)


def _plan(
    accumulator: Accumulator, arrays: Sequence[DeviceArray], out: DeviceArray | None
) -> Converter | DeviceSum:
    planned = accumulator.plan(arrays, out)
    return planned if isinstance(planned, Converter) else DeviceSum(planned, arrays[0].ordinal)


class DeviceSum:
    """What an `Accumulator` keeps for arrays of these shapes, strides and dtypes on one GPU."""

    def __init__(self, request: Request, ordinal: int) -> None:
        self._request, self._ordinal = request, ordinal
        self.result = request.result
        self._chained = len(request.moves) > MAX_PARTS
        self._kernels: dict[int, Any] = {}  # by the first part of their turn
        self._empty = 0 in request.shape
        if not self._empty:
            # Turns write memory without gaps, of which each item has its place in every dtype.
            alone = replace(request, out_strides=None) if self._chained else request
            most = MAX_AXES - (kind_of(request.computed) == "c")
            self._layout = lay_out(alone, has_half, most)

    def __call__(
        self, arrays: Sequence[DeviceArray], out: DeviceArray | None, adapter: CudaAdapter
    ) -> Any:
        """Sum the arrays into `out` or a new array; return the library's array."""
        shape, layout = self._request.shape, None if self._empty else self._layout
        final = out or adapter.empty(shape, self.result, self._ordinal)
        if layout is None:
            return final.owner
        in_place = layout.in_place and final.is_aligned and not (self._chained and out)
        total = final if in_place else adapter.empty(shape, layout.written, self._ordinal)
        pairs = zip(arrays, layout.stages, strict=True)
        parts = [self._staged(array, stage, adapter) for array, stage in pairs]
        self._add(layout, parts, total, adapter)
        if total is not final:
            cast_into(final, total, adapter)
        return final.owner

    def _staged(self, array: DeviceArray, stage: Stage | None, adapter: CudaAdapter) -> DeviceArray:
        """A part as the kernel takes it."""
        if stage is None:
            return array
        if stage.move is None:
            return cast(array, stage.dtype, adapter)
        return adapter.located(convert(stage.converter(), array, None, adapter))

    def _add(
        self, layout: Layout, parts: list[DeviceArray], total: DeviceArray, adapter: CudaAdapter
    ) -> None:
        """Launch once for each turn: all parts, or so many at a time as a launch adds."""
        stream, computed = adapter.stream(self._ordinal), self._request.computed
        sum_so_far: DeviceArray | None = None
        at = 0
        while at < len(parts):
            end = min(len(parts), at + MAX_PARTS - (sum_so_far is not None))
            is_last = end == len(parts)
            made = total if is_last else adapter.empty(total.shape, computed, self._ordinal)
            kernel = self._kernels.get(at) or self._load(layout, at, end, is_last, stream)
            sources = [] if sum_so_far is None else [sum_so_far.address]
            offsets = layout.nest.src_offsets[at:end]
            sources += [p.address + o for p, o in zip(parts[at:end], offsets, strict=True)]
            runtime().launch(kernel, [made.address + layout.nest.dst_offset, *sources], stream)
            sum_so_far, at = made, end

    def _load(self, layout: Layout, at: int, end: int, is_last: bool, stream: Any) -> Any:
        computed = self._request.computed
        written = layout.written if is_last else computed
        loops = [self._place(loop, layout, written, at, end) for loop in layout.nest.loops]
        dtypes = ([computed] if at else []) + list(layout.dtypes[at:end])
        sides = operand(computed), operand(written)
        launch = prepare_sum(loops, [operand(dtype) for dtype in dtypes], *sides)
        check_warm(launch, self._ordinal, stream, "a sum")
        return self._kernels.setdefault(at, runtime().load(launch, self._ordinal))

    def _place(self, loop: SumLoop, layout: Layout, written: DType, at: int, end: int) -> SumLoop:
        """A loop of one turn: its output, what was summed before, and its own parts."""
        if not self._chained:
            return loop
        item, computed = layout.written.itemsize, self._request.computed.itemsize
        before = (loop.dst // item * computed,) if at else ()
        srcs = (*before, *loop.srcs[at:end])
        return SumLoop(loop.count, loop.dst // item * written.itemsize, srcs)
