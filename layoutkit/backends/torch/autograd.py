"""Conversions as nodes of the autograd graph; `Converter.backward` is their backward.

This module is imported for the first tensor that requires a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...spec import ArraySpec, dtype_kind

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...converter import Converter

_torch: Any = import_module("torch")


class _RecordedFunction(_torch.autograd.Function):
    """The autograd function `run(tensors)`; the gradient for tensor n is `backward_fn(grad, n)`."""

    @staticmethod
    def forward(
        ctx: Any, run: Callable[..., Any], backward_fn: Callable[..., Any], *tensors: Any
    ) -> Any:
        ctx.back = backward_fn
        return run(tensors)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        grad = grad.resolve_conj().resolve_neg()
        needed = ctx.needs_input_grad[2:]
        return None, None, *(ctx.back(grad, n) if need else None for n, need in enumerate(needed))


class _TransformableFunction(_torch.autograd.Function):
    """The autograd function for torch.func, which requires `setup_context`.

    It is used only there: torch inspects the signature of its `forward` in each call, which doubles
    the number of Python calls.
    """

    @staticmethod
    def forward(run: Callable[..., Any], backward_fn: Callable[..., Any], *tensors: Any) -> Any:
        return run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.back = inputs[1]

    backward = _RecordedFunction.backward


def _apply(run: Callable[..., Any], backward_fn: Callable[..., Any], *tensors: Any) -> Any:
    """Return `run(tensors)`, recorded with the gradient `backward_fn(grad, n)` for tensor n."""
    active = _torch._C._are_functorch_transforms_active()
    function = _TransformableFunction if active else _RecordedFunction
    return function.apply(run, backward_fn, *tensors)


def convert_with_gradient(converter: Converter, x: Any, spec: ArraySpec) -> Any:
    """Return the converted tensor, whose gradient flows through `converter.backward`."""
    backward_fn = _backward(converter, x, spec)
    # The tensor is detached, so that the fast path of plain tensors converts it.
    return _apply(
        lambda tensors: converter(tensors[0].detach()), lambda grad, _: backward_fn(grad), x
    )


def sum_with_gradient(accumulator: Accumulator, parts: Sequence[Any]) -> Any:
    """Return the sum, whose backward returns the gradient of each part in the part's layout."""
    pairs = zip(accumulator.converters(), parts, strict=True)
    backwards = [_backward(converter, x, converter.spec_of(x)) for converter, x in pairs]
    return _apply(accumulator, lambda grad, n: backwards[n](grad), *parts)


def _clipped_backward(converter: Converter, x: Any) -> Callable[[Any], Any]:
    """Return the backward of a conversion with clip; it raises if x was changed in place."""
    detached = x.detach()
    version = x._version

    def backward_fn(grad: Any) -> Any:
        if detached._version != version:
            raise RuntimeError(
                "x was changed in place after a conversion with clip, whose gradient depends on x; "
                "convert x.clone()"
            )
        return converter.backward(grad, like=detached)

    return backward_fn


def _backward(converter: Converter, x: Any, spec: ArraySpec) -> Callable[[Any], Any]:
    """Return the backward of a conversion of x; it keeps the data of x alive only for clip."""
    is_real = dtype_kind(spec.dtype) != "c"
    formula = converter.options.formula
    if formula is not None and formula.clip is not None:
        return _clipped_backward(converter, x)

    def backward_fn(grad: Any) -> Any:
        grad = grad.real if is_real and grad.is_complex() else grad
        return converter.backward(grad, like=spec)

    return backward_fn
