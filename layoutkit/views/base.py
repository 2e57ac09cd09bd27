"""What all views can do, whether they hold one array or several.

Forms: what may stand in the place of a layout and knows itself how a batch is brought into it.

A layout is text, and a view reads it. Anything else that a view is asked for is a `ViewTarget`, and the
view asks IT: this knows of no form but its methods, and nothing of what forms are made of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeGuard

import numpy as np

from ..backends.indexing import check_batch_size
from ..errors import ArgumentError
from .plans import DEFAULT_OPTIONS, ConversionOptions

if TYPE_CHECKING:
    from .batch import Gradient


class View(ABC):
    """A batch: put in one layout, got in others, its gradients brought back and summed."""

    @abstractmethod
    def forward_put(self, layout: Any, array: Any) -> None:
        """Begin a batch."""

    @abstractmethod
    def forward_get(self, layout: Any = None, dtype: Any = None, device: Any = None) -> Any:
        """The batch in a layout and dtype."""

    @abstractmethod
    def backward_put(self, layout: Any, grad: Any) -> None:
        """Add a gradient of the batch."""

    @abstractmethod
    def backward_get(self, layout: Any = None, dtype: Any = None) -> Any:
        """The sum of all gradients."""

    @abstractmethod
    def index(self, indices: Any, out: Any = None) -> Self:
        """The samples at `indices`."""

    @abstractmethod
    def sub(self, start: Any, stop: Any, out: Any = None, copy: bool = True) -> Self:
        """The samples from `start` to before `stop`."""

    @abstractmethod
    def replace(self, layout: Any, array: Any) -> None:
        """Replace the base by an array in another layout."""

    @abstractmethod
    def flush(self) -> None:
        """Forget plans, results and gradients, but not the base."""

    @abstractmethod
    def converter(self, layout: Any, dtype: Any = None) -> Any:
        """The Converter of a getting."""

    @property
    @abstractmethod
    def batch(self) -> Any:
        """What is held from one put to the next; ViewError where nothing was put."""

    @property
    @abstractmethod
    def input(self) -> Any:
        """The base."""

    @property
    @abstractmethod
    def layout(self) -> Any:
        """The base's layout."""

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """The base's dtype."""

    @property
    @abstractmethod
    def shape(self) -> Any:
        """The base's shape."""

    @property
    @abstractmethod
    def device(self) -> Any:
        """Where the base is."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def forward(self, layout: Any = None, array_or_dtype: Any = None) -> Any:
        """`forward_put` for an array, `forward_get` for a dtype or nothing."""
        if _is_dtype(array_or_dtype):
            return self.forward_get(layout, array_or_dtype)
        return self.forward_put(layout, array_or_dtype)

    def backward(self, layout: Any = None, grad_or_dtype: Any = None) -> Any:
        """`backward_put` for a gradient, `backward_get` for a dtype or nothing."""
        if _is_dtype(grad_or_dtype):
            return self.backward_get(layout, grad_or_dtype)
        return self.backward_put(layout, grad_or_dtype)

    def batches(self, batch_size: int) -> Iterator[Self]:
        """Windows of `batch_size` samples each, in order; the last may be shorter.

        They are windows on the base of now, whatever is put later: nothing is copied, and what
        is written into them is written into it. Raises ViewError, ArgumentError.
        """
        count, size = len(self), check_batch_size(batch_size)
        whole = self.sub(0, count, copy=False)
        return (whole.sub(at, at + size, copy=False) for at in range(0, count, size))


def _is_dtype(value: Any) -> bool:
    """Whether a value, or the first leaf of a nest of them, names a dtype rather than data."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return value is None or isinstance(value, str | type | np.dtype)


class ViewTarget(Protocol):
    """What a view can be got in, and takes gradients of, besides its layouts."""

    def check_from(self, view: View, dtype: Any, device: Any) -> None:
        """Raise what `get_from` would, before anything is made."""

    def get_from(self, view: View, dtype: Any, device: Any) -> Any:
        """The view's batch in this form; made once a batch."""

    def gradients_for(self, view: View, grad: Any) -> list[Gradient]:
        """What a gradient in this form is to each array of the view; raises if it is to none."""


def is_view_target(layout: Any) -> TypeGuard[ViewTarget]:
    """Whether what stands in the place of a layout is a form."""
    # Text is asked for most. Of the type, since a class of forms has these names too and is none.
    return not isinstance(layout, str) and hasattr(type(layout), "gradients_for")


def check_default_options(form: ViewTarget, how: ConversionOptions) -> None:
    """Raise ArgumentError where of a form more is asked than that."""
    if how != DEFAULT_OPTIONS:
        raise ArgumentError(
            f"scale, mean, std, clip and memory are for layouts, and {form!r} is none; get the "
            "layout with them and put that into a view of its own"
        )


def check_get(view: Any, layout: Any, dtype: Any, device: Any) -> None:
    """Raise what a get from a view of one array would, before anything is made."""
    if is_view_target(layout):
        layout.check_from(view, dtype, device)
    else:
        view.batch.plans.find(layout, dtype, device)


def gradient_for(view: Any, layout: Any, grad: Any, formula: Any = None) -> Gradient:
    """The gradient of a view of one array, checked."""
    if not is_view_target(layout):
        return view.batch.check_gradient(layout, grad, formula)  # type: ignore[no-any-return]
    check_default_options(layout, ConversionOptions(formula))
    [found] = layout.gradients_for(view, grad)
    return found
