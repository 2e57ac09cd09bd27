"""Whose tensors of PyTorch are: with memory, or standing for data. The quick way of plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ... import accumulation
from ...converter import shortcuts
from ...errors import ArgumentError, DeviceError
from ...memory import Array
from ...spec import CPU, name_of
from ..base import Adapter
from ..cupy import convert_cached, sum_cached
from .symbolic import Torch, library
from .tensors import TensorMixin, adapter_of_memory, check_no_out, cuda_adapter
from .tracing import convert_traced, has_active_dispatch_mode, is_traced, sizes_of, sum_traced

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...converter import Converter
    from ...planning.plan import Larger
    from ...spec import DType

_torch: Any = import_module("torch")


class TracedTensors(TensorMixin, Adapter):
    """Tensors that stand for data, or are differentiated by torch.func."""

    is_traced = pads_input = True

    def padded(self, x: Any, found: Larger) -> Any:
        """A larger x, with all folds taken apart."""
        windows = zip(reversed(found.window), reversed(found.full), strict=True)
        edges = [edge for part, size in windows for edge in (part.start, size - part.stop)]
        pad = _torch.nn.functional.pad
        inside = pad(_torch.ones(found.sizes, dtype=_torch.bool, device=x.device), edges)
        fill = self.words.constant(found.fill, x)
        return _torch.where(inside, pad(x.reshape(found.sizes), edges), fill)

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, as numbers where torch.jit would have tensors of them."""
        return sizes_of(x), self.words.dtype(x)

    def arrive(self, x: Any, what: str) -> Array:
        """Raise: there is no memory."""
        if x.device.type == "meta":
            raise DeviceError(f"{what} is on meta and holds no data; pass a tensor on the CPU")
        raise ArgumentError(
            f"{what} is traced by torch and holds no data that could be read; call this outside of "
            "torch.compile, torch.export, torch.func and torch.jit.trace"
        )

    def device(self, x: Any, what: str) -> str:
        """Where the data will be."""
        return name_of(x.device.index or 0) if x.device.type == "cuda" else CPU

    def is_recorded(self, x: Any) -> bool:
        """Whether it is such a tensor."""
        return isinstance(x, _torch.Tensor) and is_traced(x)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter` makes of it, as an operator or in torch's words."""
        self._check_grad(x, out, "x")
        return convert_traced(converter.task, x, out)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum, likewise."""
        for ordinal, part in enumerate(parts):
            self._check_grad(part, out, f"part {ordinal}")
        return sum_traced(accumulator, parts, out)

    def _check_grad(self, x: Any, out: Any, what: str) -> None:
        if out is not None and super().is_recorded(x):
            check_no_out(out, what)
        if out is not None and super().is_recorded(out):
            self.check_out(out)


def adapter_for(x: Any) -> Adapter | None:
    """The adapter of a tensor."""
    if not isinstance(x, _torch.Tensor):
        return None
    return _traced() if is_traced(x) else adapter_of_memory(x)


def library_of(x: Any) -> Torch | None:
    """Torch's words, for tensors."""
    return library() if isinstance(x, _torch.Tensor) else None


@lru_cache(maxsize=1)
def _traced() -> TracedTensors:
    return TracedTensors(library())


# ---- plain tensors -----------------------------------------------------------------------


def memory_of(tensors: Sequence[Any]) -> list[Array] | None:
    """The memory of tensors on the CPU; None where one is no such tensor, or is looked at."""
    if {*map(type, tensors)} != {_torch.Tensor} or has_active_dispatch_mode():
        return None
    try:
        return [x.numpy() for x in tensors]
    except (RuntimeError, TypeError):  # one has no plain memory, or no dtype of NumPy's
        return None


def _convert(converter: Converter, x: Any, out: Any) -> Any:
    """`converter(x, out)` of a plain tensor that nobody looks at; else NotImplemented."""
    if x.is_cuda and not is_traced(x):
        return convert_cached(cuda_adapter(), converter, x, out)
    if (
        out is not None
        or converter.is_away
        or not x.is_cpu
        or x.requires_grad
        or has_active_dispatch_mode()
    ):
        return NotImplemented
    try:
        array = x.numpy()
    except (RuntimeError, TypeError):  # it has no plain memory, or no dtype of NumPy's
        return NotImplemented
    try:
        result = converter(array)
    except ArgumentError:
        if converter.task.formula is not None and converter.task.formula.is_traced:
            return NotImplemented
        raise
    if result is array:
        return x
    try:
        return _torch.from_numpy(result)
    except TypeError:  # no dtype of NumPy's
        return adapter_of_memory(x).leave(result, x)


def _accumulate(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """`accumulator(parts, out)` of plain tensors on a GPU; else NotImplemented."""
    if not all(isinstance(x, _torch.Tensor) and x.is_cuda and not is_traced(x) for x in parts):
        return NotImplemented
    return sum_cached(cuda_adapter(), accumulator, parts, out)


shortcuts[id(_torch.Tensor)] = _convert
accumulation.shortcuts[id(_torch.Tensor)] = _accumulate
