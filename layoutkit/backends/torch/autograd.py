"""Conversions in the graph of PyTorch: `Converter.backward` is their backward.

Imported with the first tensor that requires a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...spec import kind_of

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...converter import Converter

_torch: Any = import_module("torch")


class _RecordedFunction(_torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """`run(tensors)`, whose gradient for tensor n is `back(grad, n)`."""

    @staticmethod
    def forward(run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
        return run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.back = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        grad = grad.resolve_conj().resolve_neg()
        needed = ctx.needs_input_grad[2:]
        return None, None, *(ctx.back(grad, n) if need else None for n, need in enumerate(needed))


def convert_with_gradient(converter: Converter, x: Any) -> Any:
    """The converted tensor, whose gradient goes back through `converter.backward`."""
    back = _backward(converter, x)
    return _RecordedFunction.apply(
        lambda tensors: converter(tensors[0]), lambda grad, _: back(grad), x
    )


def sum_with_gradient(accumulator: Accumulator, parts: Sequence[Any]) -> Any:
    """The sum, whose gradient goes back to every tensor in its own layout."""
    ways = [_backward(*pair) for pair in zip(accumulator.converters(), parts, strict=True)]
    return _RecordedFunction.apply(accumulator, lambda grad, n: ways[n](grad), *parts)


def _clipped_backward(converter: Converter, x: Any) -> Callable[[Any], Any]:
    """The gradient of an `x` that is clipped, which has to be what it was then."""
    kept, version = x.detach(), x._version

    def back(grad: Any) -> Any:
        if kept._version != version:
            raise RuntimeError(
                "x was changed in place since it was converted with clip, whose gradient needs it; "
                "convert x.clone()"
            )
        return converter.backward(grad, like=kept)

    return back


def _backward(converter: Converter, x: Any) -> Callable[[Any], Any]:
    """The gradient of `x`, of which no more than shape and dtype is kept, where that is enough."""
    spec: Any = converter.spec_of(x)
    is_real = kind_of(spec.dtype) != "c"
    formula = converter.task.formula
    if formula is not None and formula.clip is not None:
        return _clipped_backward(converter, x)

    def back(grad: Any) -> Any:
        grad = grad.real if is_real and grad.is_complex() else grad
        return converter.backward(grad, like=spec)

    return back
