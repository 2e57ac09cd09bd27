"""One batch of a view: the array that was put, what was got of it, the gradients that came back.

A put begins a new one, so nothing of a batch can outlive it, and two threads that get at once
never mix an old base with new results.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..arrays import Array, as_numpy
from ..buffers import empty
from ..devices import CPU
from ..errors import BackwardError, DtypeError
from ..spec import DType, as_dtype, kind_of
from .gettings import Getting, Gettings
from .rows import take

__all__ = ["Batch", "Gradient"]

Gradient = tuple[Getting, Any]


class _Facts(NamedTuple):
    """What a gradient looks like, wherever it is."""

    shape: tuple[int, ...]
    dtype: DType
    device: str

    @classmethod
    def of(cls, grad: Any) -> _Facts:
        """Those of an array of NumPy, or of any library on a GPU."""
        from ..interop import device_bridge_of

        bridge = None if isinstance(grad, np.ndarray) else device_bridge_of(grad)
        if bridge is not None:
            return cls(*bridge.facts(grad, "grad"), bridge.device(grad, "grad"))
        array = as_numpy(grad, "grad")
        return cls(array.shape, array.dtype, CPU)


class Batch:
    """What a view holds from one put to the next.

    Attributes
    ----------
    input, array : array
        The base as it was put, and as a plain NumPy array.
    plans : Gettings
        Kept from batch to batch.
    results : dict
        By the words in which they were asked; a view looks here first.
    got : dict
        The same by getting: what gradients may come back for.
    by_space : dict
        What was got by a space that is more than a layout and a dtype.
    gradients : list
        (getting, gradient), in the order in which they were put.
    """

    __slots__ = ("_totals", "array", "by_space", "got", "gradients", "input", "plans", "results")

    def __init__(self, given: Any, array: Array, plans: Gettings) -> None:
        self.input, self.array, self.plans = given, array, plans
        self.results: dict[Any, Any] = {}
        self.got: dict[Getting, Any] = {}
        self.by_space: dict[Any, Any] = {}
        self.gradients: list[Gradient] = []
        self._totals: dict[DType | None, Any] = {}

    def get(self, layout: Any, dtype: Any, device: Any) -> Any:
        """The base in a layout and dtype; made once, whatever words it is asked in."""
        getting = self.plans.find(layout, dtype, device)
        found = self.got.get(getting)
        if found is None:
            made = self.input if getting is self.plans.base else getting.mover(self.array)
            found = self.got.setdefault(getting, made)
        self.remember(layout, dtype, device, found)
        return found

    def remember(self, layout: Any, dtype: Any, device: Any, found: Any) -> None:
        """Answer the same words with the same result from now on."""
        try:  # noqa: SIM105  (a context manager would take longer than all the rest)
            self.results[layout, dtype, device] = found
        except TypeError:  # not hashable
            pass

    # -- samples ---------------------------------------------------------------------------

    def picked(self, positions: Array) -> Array:
        """Copies of the samples at positions that exist."""
        return take(self.array, self.plans.batch_axis, positions)

    def part(self, window: slice, copy: bool) -> Array:
        """The samples of a window: copies of them, or the base's own memory."""
        samples: Array = self.array[(slice(None),) * self.plans.batch_axis + (window,)]
        return self.plans.copied(samples, empty(samples.shape, samples.dtype)) if copy else samples

    # -- gradients -------------------------------------------------------------------------

    def check_gradient(self, layout: Any, grad: Any) -> Gradient:
        """The getting that a gradient belongs to; BackwardError where there is none."""
        name, array = self.plans.name_of(layout), _Facts.of(grad)
        kind = kind_of(array.dtype)
        if kind not in "fc":
            self._refuse(name, array, "a gradient is floating")
        if kind == "c" and kind_of(self.plans.native) == "f":
            self._refuse(name, array, f"complex gradients do not add up to {self.plans.native}")
        dtype = as_dtype(array.dtype)
        for getting in (self.plans.base, *self.got):
            same = getting.layout == name and getting.device == array.device
            if same and getting.takes(dtype):
                shape = self._shape(getting)
                if array.shape != shape:
                    self._refuse(name, array, f"its shape is to be {shape}")
                return getting, grad
        return self._refuse(name, array, "it belongs to no getting of this batch")

    def add(self, gradient: Gradient) -> None:
        """Add a gradient that was checked."""
        self.gradients.append(gradient)
        self._totals = {}

    def check_total(self, layout: Any, dtype: Any) -> DType | None:
        """The dtype of the sum, None for that of its parts; raises unless there is one."""
        plans = self.plans
        if plans.name_of(layout) != plans.layout:
            raise BackwardError(
                f"gradients add up in the base's layout, {plans.layout}, not in {layout}; leave "
                "the layout out and convert the sum"
            )
        if not self.gradients:
            raise BackwardError("no gradient was put in this batch; call backward_put first")
        if dtype is None:
            return plans.gradient_dtype
        wanted = as_dtype(dtype)
        if kind_of(wanted) not in "fc":
            raise DtypeError(f"dtype is {wanted}; a sum of gradients is floating")
        return wanted

    def total(self, dtype: DType | None) -> Any:
        """The sum of the gradients in a dtype that was checked; made once."""
        totals = self._totals
        found = totals.get(dtype)
        if found is None:
            made = self.plans.total(self.gradients, self.array, dtype)
            found = totals[dtype] = totals.setdefault(made.dtype, made)
        return found

    def _shape(self, getting: Getting) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.got.get(getting, self.array).shape
        return shape

    def _refuse(self, name: str, grad: _Facts, why: str) -> NoReturn:
        base = self.plans.base
        where = "" if grad.device == CPU else f" on {grad.device}"
        others = [
            f"{getting} {self._shape(getting)}" for getting in self.got if getting is not base
        ]
        gettings = ", ".join([f"{base} {self.array.shape} (the base)", *others])
        raise BackwardError(
            f"a gradient of dtype {grad.dtype} and shape {grad.shape}{where} was put as {name}: "
            f"{why}; the gettings of this batch are {gettings}; get what a gradient is for before "
            "putting it"
        )
