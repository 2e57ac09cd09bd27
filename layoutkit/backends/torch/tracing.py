"""Conversions of traced tensors, and the tests for them.

torch.compile, make_fx, FakeTensor and meta tensors need the shape and dtype of a result now and
run the operation later: they get a custom operator that runs our kernels (`ops.py`). Custom
operators do not work under torch.func, forward-mode AD, torch.jit.trace, torch.export and ONNX
(whose programs run without layoutkit), and with DTensor and other classes that intercept every
operation: there a conversion consists of torch operations.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..._utils import fork
from ...errors import ArgumentError, DeviceError, ShapeError
from ...memory import as_numpy
from ...options import split_sizes
from ...spec import CPU
from .. import symbolic
from .symbolic import library, pause_jit_trace

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...options import ConvertOptions
    from ..windows import Windows

_torch: Any = import_module("torch")
_functorch: Any = _torch._C._functorch
_count_dispatch_modes = _torch._C._len_torch_dispatch_stack
_jit_state = _torch._C._get_tracing_state
_forward_ad: Any = import_module("torch.autograd.forward_ad")
_own_dispatch = _torch.Tensor.__torch_dispatch__
_FAKES = "torch._subclasses"  # FakeTensor and FunctionalTensor, which hold no data themselves


# ---- tests -------------------------------------------------------------------------------


def has_active_dispatch_mode() -> bool:
    """Return True if a mode of this thread intercepts operations on any tensor."""
    return (
        bool(_count_dispatch_modes()) or _jit_state() is not None or _forward_ad._current_level >= 0
    )


def is_traced(x: Any) -> bool:
    """Return True if a tensor has no data, or operations on it are intercepted."""
    return (
        has_active_dispatch_mode()
        or type(x).__torch_dispatch__ is not _own_dispatch
        or _is_batched(x)
        or x.device.type == "meta"
    )


def _needs_torch_operations(tensors: Sequence[Any]) -> bool:
    """Return True if custom operators do not work for these tensors."""
    onnx = sys.modules.get("torch.onnx")
    return (
        _jit_state() is not None
        or _forward_ad._current_level >= 0
        or _torch.compiler.is_exporting()
        or (onnx is not None and onnx.is_in_onnx_export())
        or any(map(_is_wrapped, tensors))
    )


def _is_wrapped(x: Any) -> bool:
    """Return True if torch.func, or a class that is not a fake tensor, wraps the tensor."""
    has_dispatch = type(x).__torch_dispatch__ is not _own_dispatch
    is_fake = type(x).__module__.startswith(_FAKES)
    return (has_dispatch and not is_fake) or _is_batched(x)


def _is_batched(x: Any) -> bool:
    """Return True if torch.func or the batched gradients of torch.autograd wrap the tensor."""
    # Gradients with is_grads_batched=True have an older class than torch.func's.
    return bool(_functorch.is_functorch_wrapped_tensor(x) or _functorch.is_legacy_batchedtensor(x))


# ---- conversions and sums ----------------------------------------------------------------


def convert_traced(options: ConvertOptions, x: Any, out: Any) -> Any:
    """Return the conversion of `x`, validated by shape and dtype."""
    namespace = library()
    _check_dense(x, "x")
    move, _, target = options.infer_result(
        sizes_of(x), namespace.dtype(x), None if out is None else _OutputInfo(out)
    )
    namespace.check(target)
    if out is not None:
        return _write_out(out, _convert_to_new_memory(replace(options, dtype=target), x))
    is_unchanged = (
        target == namespace.dtype(x)
        and options.formula is None
        and _target_device(options, x) is None
    )
    is_unchanged = is_unchanged and options.select_channels(sizes_of(x))[1] is None
    view = (
        namespace.view(x, move, options.sizes)
        if is_unchanged and options.copy is not True
        else None
    )
    if options.copy is False and view is None:
        options.refuse_copy(move.source_shape, tuple(x.stride()), namespace.dtype(x), (CPU, CPU))
    return _convert_to_new_memory(options, x) if view is None else view


def sum_traced(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """Return `accumulator(parts, out)`."""
    namespace = library()
    like = next(part for part in parts if isinstance(part, _torch.Tensor))
    tensors = [_as_tensor(part, like) for part in parts]
    for ordinal, tensor in enumerate(tensors):
        _check_dense(tensor, f"part {ordinal}")
        if tensor.device != tensors[0].device:
            raise DeviceError(
                f"part 0 is on {tensors[0].device}, but part {ordinal} is on {tensor.device}; "
                "bring all to one device first"
            )
    if _needs_torch_operations(tensors):
        inspected = [(sizes_of(tensor), namespace.dtype(tensor)) for tensor in tensors]
        total = symbolic.sum_symbolic(accumulator, tensors, inspected, namespace).contiguous()
    else:
        total = _ops().accumulate(tensors, *accumulator.graph_args)
    return total if out is None else _write_out(out, total)


def stack_traced(windows: Windows, samples: Sequence[Any]) -> Any:
    """Return the stacked windows of samples by a custom operator; None: it does not work."""
    if len({x.is_cuda for x in samples}) > 1 or _needs_torch_operations(samples):
        return None
    return _ops().stack_windows(list(samples), windows.text)


def _as_tensor(part: Any, like: Any) -> Any:
    """Return a part of a sum as a tensor; a NumPy array becomes a constant."""
    if isinstance(part, _torch.Tensor):
        return part
    with pause_jit_trace():
        return _torch.as_tensor(as_numpy(part, "a part"), device=like.device)


def _convert_to_new_memory(options: ConvertOptions, x: Any) -> Any:
    """Return the result in new memory, by a custom operator or in torch operations."""
    is_constant = options.formula is None or not options.formula.is_traced
    if is_constant and not _needs_torch_operations([x]):
        return _ops().convert(x, *split_sizes(options.to_dict()))
    result = symbolic.convert_symbolic(options, x, library())
    device = _target_device(options, x)
    result = result.contiguous() if device is None else result.to(device).contiguous()
    return result.clone() if options.copy is True else result


def _write_out(out: Any, result: Any) -> Any:
    """Return the caller's output with the result written to it."""
    if result.device.type == "meta" and out.device.type != "meta":
        raise DeviceError(
            f"x is on meta and holds no data, but out is on {out.device}; give x data"
        )
    if tuple(out.shape) != tuple(result.shape):
        raise ShapeError(
            f"out has shape {tuple(out.shape)}, "
            f"but the result has {tuple(result.shape)}; give that shape"
        )
    return out.copy_(result)


def _target_device(options: ConvertOptions, x: Any) -> str | None:
    """Return the device of the result, or None if it equals x's."""
    if options.device is None or _torch.device(options.device) == x.device:
        return None
    return options.device


def sizes_of(x: Any) -> tuple[Any, ...]:
    """Return the sizes of a tensor as ints; torch.jit would give tensors."""
    with pause_jit_trace():
        return tuple(x.shape)


class _OutputInfo:
    """The dtype of the caller's output, as NumPy's."""

    def __init__(self, out: Any) -> None:
        if not isinstance(out, _torch.Tensor):
            raise ArgumentError("out is not a tensor, but the result is; pass a torch.Tensor")
        self.dtype = library().dtype(out)


def _check_dense(x: Any, arg_name: str) -> None:
    if x.layout is not _torch.strided:
        raise ArgumentError(f"{arg_name} is of {x.layout}, not dense; pass {arg_name}.to_dense()")


@fork.run_once
def _ops() -> Any:
    from . import ops  # late: the import registers the operators

    return ops
