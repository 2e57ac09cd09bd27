"""The View base class, and the protocol of targets that can be requested in place of a layout.

A layout is text, which views parse. Anything else that a batch is requested in, such as a Space, is
a `ViewTarget`: views call its methods and know nothing else about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeGuard

import numpy as np

from .._utils.spelling import CuresForAttributes
from .._utils.validation import check_int, show
from ..errors import ArgumentError
from .plans import DEFAULT_OPTIONS, ConversionOptions

if TYPE_CHECKING:
    from .batch import ConversionGradient


class View(CuresForAttributes, ABC):
    """A batch that is put in one layout, got in others, and whose gradients are summed."""

    layout: Any  # of the base
    input: Any  # the base

    @abstractmethod
    def forward_put(self, layout: Any, array: Any) -> None: ...

    @abstractmethod
    def forward_get(self, layout: Any = None, dtype: Any = None, device: Any = None) -> Any: ...

    @abstractmethod
    def backward_put(self, layout: Any, grad: Any) -> None: ...

    @abstractmethod
    def backward_get(self, layout: Any = None, dtype: Any = None) -> Any: ...

    @abstractmethod
    def sub(self, start: Any, stop: Any, out: Any = None, copy: bool = True) -> Self: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def forward(self, layout: Any = None, array_or_dtype: Any = None) -> Any:
        """Call `forward_put` for an array, `forward_get` for a dtype or None."""
        if _is_dtype(array_or_dtype):
            return self.forward_get(layout, array_or_dtype)
        return self.forward_put(layout, array_or_dtype)

    def backward(self, layout: Any = None, grad_or_dtype: Any = None) -> Any:
        """Call `backward_put` for a gradient, `backward_get` for a dtype or None."""
        if _is_dtype(grad_or_dtype):
            return self.backward_get(layout, grad_or_dtype)
        return self.backward_put(layout, grad_or_dtype)

    def batches(self, batch_size: int) -> Iterator[Self]:
        """Return an iterator over windows of `batch_size` samples; the last may be shorter.

        The windows are views of the current base, whatever is put later: nothing is copied, and
        writing to a window writes to the base. Raises ViewError, ArgumentError.
        """
        count = len(self)
        size = check_int("batch_size", batch_size, 1, ArgumentError)
        view = self.sub(0, count, copy=False)
        return (view.sub(start, start + size, copy=False) for start in range(0, count, size))


def _is_dtype(value: Any) -> bool:
    """Return True if a value, or the first leaf of a nest, is a dtype (or None) and not data."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return value is None or isinstance(value, str | type | np.dtype)


class ViewTarget(Protocol):
    """A target of `forward_get` and `backward_put` other than a layout, such as a Space."""

    def check_from(self, view: View, dtype: Any, device: Any) -> None:
        """Raise the error that `get_from` would raise, before anything is converted."""

    def get_from(self, view: View, dtype: Any, device: Any) -> Any:
        """Return the view's batch in this target; called once a batch."""

    def gradients_for(self, view: View, grad: Any) -> list[ConversionGradient]:
        """Return the gradient of each array of the view, or raise if the target has none."""


def is_view_target(layout: Any) -> TypeGuard[ViewTarget]:
    """Return True if the layout argument is a target."""
    # Text is the most frequent case. The type is tested, since a class of targets is not a target.
    return not isinstance(layout, str) and hasattr(type(layout), "gradients_for")


def check_default_options(target: ViewTarget, options: ConversionOptions) -> None:
    """Raise ArgumentError if options of a layout are used with a target."""
    if options != DEFAULT_OPTIONS:
        raise ArgumentError(
            f"scale, mean, std, clip and memory are for layouts, and {show(target)} is not one; "
            "get a layout with them, and put the result into a new view"
        )


def check_get(view: Any, layout: Any, dtype: Any, device: Any) -> None:
    """Raise the error that a get from a view of one array would raise, before any conversion."""
    if is_view_target(layout):
        layout.check_from(view, dtype, device)
    else:
        view.batch.plans.find(layout, dtype, device)


def gradient_for(view: Any, layout: Any, grad: Any, formula: Any = None) -> ConversionGradient:
    """Return the validated gradient of a view of one array."""
    if not is_view_target(layout):
        return view.batch.check_gradient(layout, grad, formula)
    check_default_options(layout, ConversionOptions(formula))
    [gradient] = layout.gradients_for(view, grad)
    return gradient
