"""Tensors that stand for data: which they are, and conversions of them.

torch.compile, make_fx, FakeTensor and meta tensors want to know of an operation its shape and dtype
now, and to run it later: they are given an operator that carries our kernels (`torch_operators`).
Where an operator of ours has no place (torch.func, forward-mode AD, torch.jit.trace, torch.export
and ONNX, whose programs run without us, DTensor and other classes that see every operation), a
conversion is said in torch's own words.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..._utils import fork
from ...errors import ArgumentError, DeviceError, ShapeError
from ...memory import as_numpy
from ...spec import CPU
from .. import symbolic
from .symbolic import library, pause_jit_trace, told

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...planning.options import Task

_torch: Any = import_module("torch")
_functorch: Any = _torch._C._functorch
_count_dispatch_modes, _jit_state = (
    _torch._C._len_torch_dispatch_stack,
    _torch._C._get_tracing_state,
)
_forward_ad: Any = import_module("torch.autograd.forward_ad")
_own_dispatch = _torch.Tensor.__torch_dispatch__
_FAKES = "torch._subclasses"  # FakeTensor and FunctionalTensor, which hold no data themselves


# ---- which they are ----------------------------------------------------------------------


def has_active_dispatch_mode() -> bool:
    """Whether anything looks on at operations of this thread, whatever the tensor."""
    return (
        bool(_count_dispatch_modes()) or _jit_state() is not None or _forward_ad._current_level >= 0
    )


def is_traced(x: Any) -> bool:
    """Whether a tensor stands for data, or what happens to it is looked at."""
    return (
        has_active_dispatch_mode()
        or type(x).__torch_dispatch__ is not _own_dispatch
        or _functorch.is_functorch_wrapped_tensor(x)
        or x.device.type == "meta"
    )


def _needs_torch_operations(tensors: Sequence[Any]) -> bool:
    """Whether a conversion of these has to be said in torch's words."""
    onnx = sys.modules.get("torch.onnx")
    return (
        _jit_state() is not None
        or _forward_ad._current_level >= 0
        or _torch.compiler.is_exporting()
        or (onnx is not None and onnx.is_in_onnx_export())
        or any(map(_is_wrapped, tensors))
    )


def _is_wrapped(x: Any) -> bool:
    """Whether a class that is no fake, or torch.func, is around the data of a tensor."""
    other = type(x).__torch_dispatch__ is not _own_dispatch
    fake = type(x).__module__.startswith(_FAKES)
    return (other and not fake) or bool(_functorch.is_functorch_wrapped_tensor(x))


# ---- what becomes of them ----------------------------------------------------------------


def convert_traced(task: Task, x: Any, out: Any) -> Any:
    """What a task makes of `x`; judged as any other conversion, by shape and dtype."""
    words = library()
    _check_dense(x, "x")
    move, target = task.judge(sizes_of(x), words.dtype(x), None if out is None else _Like(out))
    words.check(target)
    if out is not None:
        return _written(out, _moved(task._replace(dtype=target), x))
    stays = target == words.dtype(x) and task.formula is None and _place(task, x) is None
    stays = stays and task.picked(sizes_of(x))[1] is None
    view = words.view(x, move, task.sizes) if stays and task.copy is not True else None
    if task.copy is False and view is None:
        task.refuse_copy(move.source_shape, tuple(x.stride()), words.dtype(x), (CPU, CPU))
    return _moved(task, x) if view is None else view


def sum_traced(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """What `accumulator(parts, out)` is."""
    words = library()
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
        facts = [(sizes_of(tensor), words.dtype(tensor)) for tensor in tensors]
        total = symbolic.sum_symbolic(accumulator, tensors, facts, words).contiguous()
    else:
        total = _ops().accumulate(tensors, *accumulator.words)
    return total if out is None else _written(out, total)


def _as_tensor(part: Any, like: Any) -> Any:
    """A part of a sum; of NumPy a constant."""
    if isinstance(part, _torch.Tensor):
        return part
    with pause_jit_trace():
        return _torch.as_tensor(as_numpy(part, "a part"), device=like.device)


def _moved(task: Task, x: Any) -> Any:
    """The result in memory of its own, by an operator or in torch's words."""
    is_told = task.formula is None or not task.formula.is_traced
    if is_told and not _needs_torch_operations([x]):
        sizes = list(task.sizes.values())
        return _ops().convert(x, str(task.pattern), told(task), list(task.sizes), sizes)
    y = symbolic.convert_symbolic(task, x, library())
    place = _place(task, x)
    y = y.contiguous() if place is None else y.to(place).contiguous()
    return y.clone() if task.copy is True else y


def _written(out: Any, result: Any) -> Any:
    """The caller's output, with the result in it."""
    if result.device.type == "meta" and out.device.type != "meta":
        raise DeviceError(
            f"x is on meta and holds no data, but out is on {out.device}; give x data"
        )
    if tuple(out.shape) != tuple(result.shape):
        raise ShapeError(
            f"out has shape {tuple(out.shape)}, but the result has {tuple(result.shape)}; give "
            "that shape"
        )
    return out.copy_(result)


def _place(task: Task, x: Any) -> str | None:
    """Where the result is to be, if that is not where x is."""
    if task.device is None or _torch.device(task.device) == x.device:
        return None
    return task.device


def sizes_of(x: Any) -> tuple[Any, ...]:
    """The sizes of a tensor as numbers; torch.jit would have tensors of them."""
    with pause_jit_trace():
        return tuple(x.shape)


class _Like:
    """Shape and dtype of the caller's output, in NumPy's words."""

    def __init__(self, out: Any) -> None:
        if not isinstance(out, _torch.Tensor):
            raise ArgumentError("out is no tensor, but the result is one; pass a torch.Tensor")
        self.dtype = library().dtype(out)


def _check_dense(x: Any, what: str) -> None:
    if x.layout is not _torch.strided:
        raise ArgumentError(f"{what} is of {x.layout}, not dense; pass {what}.to_dense()")


@fork.once
def _ops() -> Any:
    from . import ops  # which registers them

    return ops
