"""Adapters of torch tensors, concrete or traced, and a fast path for plain CPU tensors.

tensors.py     tensors that hold data: their memory, dtypes and autograd state
autograd.py    conversions as nodes of the autograd graph
tracing.py     conversions of traced tensors
ops.py         custom operators that run the kernels in traced graphs
symbolic.py    operations in torch itself, which it can trace and differentiate
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ... import accumulation
from ...converter import FAST_PATHS
from ...errors import ArgumentError, DeviceError
from ...memory import Array
from ...spec import CPU, device_name
from ..base import Adapter
from ..cupy import convert_cached, sum_cached
from .symbolic import Torch, library
from .tensors import TensorMixin, check_no_out, cuda_adapter, find_concrete_adapter
from .tracing import (
    convert_traced,
    has_active_dispatch_mode,
    is_traced,
    sizes_of,
    stack_traced,
    sum_traced,
)

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...converter import Converter
    from ...planning.plan import PaddedSource
    from ...spec import DType
    from ..windows import Windows

_torch: Any = import_module("torch")


class TracedTensors(TensorMixin, Adapter):
    """The adapter of tensors without data, or differentiated by torch.func."""

    is_traced = pads_input = True

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        windows = zip(reversed(padding.window), reversed(padding.full), strict=True)
        edges = [edge for part, size in windows for edge in (part.start, size - part.stop)]
        pad = _torch.nn.functional.pad
        mask = pad(_torch.ones(padding.sizes, dtype=_torch.bool, device=x.device), edges)
        fill = self.namespace.constant(padding.fill, x)
        return _torch.where(mask, pad(x.reshape(padding.sizes), edges), fill)

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype; sizes are ints also under torch.jit, which would give tensors."""
        return sizes_of(x), self.namespace.dtype(x)

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Raise: a traced tensor has no memory to read."""
        if x.device.type == "meta":
            raise DeviceError(f"{arg_name} is on meta and holds no data; pass a tensor on the CPU")
        raise ArgumentError(
            f"{arg_name} is traced by torch and holds no data that could be read; call this "
            "outside of torch.compile, torch.export, torch.func and torch.jit.trace"
        )

    def device(self, x: Any, arg_name: str) -> str:
        return device_name(x.device.index or 0) if x.device.type == "cuda" else CPU

    def is_recorded(self, x: Any) -> bool:
        return isinstance(x, _torch.Tensor) and is_traced(x)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        self._check_grad(x, out, "x")
        return convert_traced(converter.options, x, out)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        for ordinal, part in enumerate(parts):
            self._check_grad(part, out, f"part {ordinal}")
        return sum_traced(accumulator, parts, out)

    def _check_grad(self, x: Any, out: Any, arg_name: str) -> None:
        if out is not None and super().is_recorded(x):
            check_no_out(out, arg_name)
        if out is not None and super().is_recorded(out):
            self.check_out(out)


def adapter_for(x: Any) -> Adapter | None:
    """Return the adapter of a tensor, or None for other objects."""
    if not isinstance(x, _torch.Tensor):
        return None
    return _traced() if is_traced(x) else find_concrete_adapter(x)


def library_of(x: Any) -> Torch | None:
    """Return the namespace of torch for tensors, or None for other objects."""
    return library() if isinstance(x, _torch.Tensor) else None


def stack_recorded(windows: Windows, samples: Sequence[Any]) -> Any:
    """Return the stacked windows by a custom operator, or None if torch operations are needed."""
    return stack_traced(windows, samples)


@lru_cache(maxsize=1)
def _traced() -> TracedTensors:
    return TracedTensors(library())


# ---- plain tensors -----------------------------------------------------------------------


def memory_of(tensors: Sequence[Any]) -> Sequence[Any] | None:
    """Return the memory of plain tensors, on the CPU or on GPUs; None if that is not possible."""
    if not all(isinstance(x, _torch.Tensor) for x in tensors):
        return None
    if not tensors[0].is_cuda:
        return view_as_numpy(tensors)
    return None if any(map(is_traced, tensors)) else cuda_adapter().memory_of(tensors)


def view_as_numpy(tensors: Sequence[Any]) -> list[Array] | None:
    """Return NumPy views of plain CPU tensors, or None if that is not possible."""
    if {*map(type, tensors)} != {_torch.Tensor} or has_active_dispatch_mode():
        return None
    try:
        return [x.numpy() for x in tensors]
    except (RuntimeError, TypeError):  # one has no plain memory, or a dtype that NumPy lacks
        return None


def _convert(converter: Converter, x: Any, out: Any) -> Any:
    """Return `converter(x, out)` for a plain tensor without observers, else NotImplemented."""
    if x.is_cuda and not is_traced(x):
        return convert_cached(cuda_adapter(), converter, x, out)
    if out is not None or converter.targets_gpu or not x.is_cpu or has_active_dispatch_mode():
        return NotImplemented
    if x.requires_grad:
        is_eager = _torch.is_grad_enabled() and not is_traced(x)
        if converter.options.memory is not None or not is_eager:
            return NotImplemented
        return find_concrete_adapter(x).convert_recorded(converter, x, None)
    try:
        array = x.numpy()
    except (RuntimeError, TypeError):  # it has no plain memory, or a dtype that NumPy lacks
        return NotImplemented
    try:
        result = converter(array)
    except ArgumentError:
        if converter.options.formula is not None and converter.options.formula.is_traced:
            return NotImplemented
        raise
    if result is array:
        return x
    try:
        return _torch.from_numpy(result)
    except TypeError:  # a dtype that torch.from_numpy does not support
        return find_concrete_adapter(x).from_numpy(result, x)


def _accumulate(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """Return `accumulator(parts, out)` for plain tensors on a GPU, else NotImplemented."""
    if not all(isinstance(x, _torch.Tensor) and x.is_cuda and not is_traced(x) for x in parts):
        return NotImplemented
    return sum_cached(cuda_adapter(), accumulator, parts, out)


FAST_PATHS[id(_torch.Tensor)] = _convert
accumulation.FAST_PATHS[id(_torch.Tensor)] = _accumulate
