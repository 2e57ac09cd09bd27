"""What all views can do, whether they hold one array or several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from ..arrays.rows import as_batch_size

__all__ = ["View"]


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
        count, size = len(self), as_batch_size(batch_size)
        whole = self.sub(0, count, copy=False)
        return (whole.sub(at, at + size, copy=False) for at in range(0, count, size))


def _is_dtype(value: Any) -> bool:
    """Whether a value, or the first leaf of a nest of them, names a dtype rather than data."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return value is None or isinstance(value, str | type | np.dtype)
