"""One batch of a view: the array that was put, what was got of it, the gradients that came back.

A put begins a new one, so nothing of a batch can outlive it, and two threads that get at once
never mix an old base with new results. It knows no view: which one holds it, or whether any does.

A batch of a view that torch.compile follows: its gettings are conversions in a graph.

What a view keeps from get to get and from batch to batch would be followed too, and is of no use in
a graph, which is made once. A view that comes out of one makes it up when it is asked next.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from .._compile import call_in_graph
from ..backends.inspection import ArrayInfo, seen, slice_samples, take_samples
from ..buffers import empty
from ..errors import BackwardError, DtypeError
from ..memory import Array
from ..normalize import Formula
from ..spec import CPU, DType, as_dtype, kind_of
from .plans import DEFAULT_OPTIONS, Conversion, ConversionCache, ConversionOptions

Gradient = tuple[Conversion, Any]


class BatchState:
    """What a view of one array holds from one put to the next.

    Attributes
    ----------
    input : array
        The base as it was put.
    array : Seen
        The same as a plain NumPy array; of a base on a GPU, where it lies.
    plans : Gettings
        Kept from batch to batch.
    results : dict
        By the words in which they were asked; a view looks here first.
    got : dict
        The same by getting: what gradients may come back for.
    by_form : dict
        What was got in a form that is more than a layout and a dtype.
    gradients : list
        (getting, gradient), in the order in which they were put.
    """

    __slots__ = (
        "_totals",
        "array",
        "by_conversion",
        "by_form",
        "gradients",
        "input",
        "plans",
        "results",
    )

    def __init__(self, given: Any, array: Any, plans: ConversionCache) -> None:
        self.input, self.array, self.plans = given, array, plans
        self.results: dict[Any, Any] = {}
        self.by_conversion: dict[Conversion, Any] = {}
        self.by_form: dict[Any, Any] = {}
        self.gradients: list[Gradient] = []
        self._totals: dict[DType | None, Any] = {}

    def get(
        self, layout: Any, dtype: Any, device: Any, how: ConversionOptions = DEFAULT_OPTIONS
    ) -> Any:
        """The base in a layout and dtype; made once, whatever words it is asked in."""
        getting = self.plans.find(layout, dtype, device, how)
        found = self.by_conversion.get(getting)
        if found is None:
            made = self.input if getting is self.plans.base else getting.converter(self.source)
            found = self.by_conversion.setdefault(getting, made)
        words = (layout, dtype, device) if how is DEFAULT_OPTIONS else (layout, dtype, device, how)
        self.remember(words, found)
        return found

    @property
    def source(self) -> Any:
        """What is converted: the base, a plain array if it is NumPy's."""
        return self.array if isinstance(self.input, np.ndarray) else self.input

    def remember(self, words: tuple[Any, ...], found: Any) -> None:
        """Answer the same words with the same result from now on."""
        try:  # noqa: SIM105  (a context manager would take longer than all the rest)
            self.results[words] = found
        except TypeError:  # not hashable
            pass

    def to_base_layout(self, layout: Any, array: Any) -> Any:
        """An array in another layout in the base's; in its own dtype, shared where it can be."""
        found, _ = seen(array, "array")
        back = self.plans.back(layout)
        return array if back is None else back(found if isinstance(array, np.ndarray) else array)

    # -- samples ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.array.shape[self.plans.batch_axis])

    def take_samples(self, positions: Array) -> Any:
        """Copies of the samples at positions that exist."""
        return take_samples(self.source, self.plans.batch_axis, positions)

    def part(self, places: slice, copy: bool) -> Any:
        """The samples of a window: copies of them, or the base's own memory."""
        samples = slice_samples(self.source, self.plans.batch_axis, places)
        if not copy:
            return samples
        plain = isinstance(samples, np.ndarray)  # its byte order stays
        return self.plans.copied(samples, empty(samples.shape, samples.dtype) if plain else None)

    # -- gradients -------------------------------------------------------------------------

    def check_gradient(self, layout: Any, grad: Any, formula: Formula | None = None) -> Gradient:
        """The getting that a gradient belongs to; BackwardError where that is not one.

        With a formula it is what was got with that; without, all that fit were got with the same.
        """
        name, (array, device) = self.plans.name_of(layout), seen(grad, "grad")
        kind, looks = kind_of(array.dtype), (array, device)
        if kind not in "fc":
            self._refuse(name, looks, "a gradient is floating")
        if kind == "c" and kind_of(self.plans.native) == "f":
            self._refuse(name, looks, f"complex gradients do not add up to {self.plans.native}")
        dtype = as_dtype(array.dtype)
        found = [
            getting
            for getting in (*self.by_conversion, self.plans.base)
            if getting.layout == name and getting.device == device and getting.takes(dtype)
            if formula is None or getting.has(formula)
        ]
        if not found:
            self._refuse(name, looks, "it belongs to no getting of this batch")
        if len({getting.formula for getting in found if getting in self.by_conversion}) > 1:
            self._refuse(
                name, looks,
                "several formulas fit; say which by the same keywords, scale=1 for none",
            )  # fmt: skip
        getting, shape = found[0], self._shape(found[0])
        if array.shape != shape:
            self._refuse(name, looks, f"its shape is to be {shape}")
        return getting, grad

    def add(self, gradient: Gradient) -> None:
        """Add a gradient that was checked."""
        self.gradients.append(gradient)
        self._totals = {}

    def check_sum_dtype(self, layout: Any, dtype: Any) -> DType | None:
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

    def gradient_sum(self, dtype: DType | None) -> Any:
        """The sum of the gradients in a dtype that was checked; made once."""
        totals = self._totals
        found = totals.get(dtype)
        if found is None:
            made = self.plans.gradient_sum(self.gradients, self.source, dtype)
            found = totals[dtype] = totals.setdefault(made.dtype, made)
        return found

    def _shape(self, getting: Conversion) -> tuple[int, ...]:
        return tuple(self.by_conversion.get(getting, self.array).shape)

    def _refuse(self, name: str, looks: tuple[ArrayInfo, str], why: str) -> NoReturn:
        base, (grad, device) = self.plans.base, looks
        where = "" if device == CPU else f" on {device}"
        others = [
            f"{getting} {self._shape(getting)}"
            for getting in self.by_conversion
            if getting is not base
        ]
        gettings = ", ".join([f"{base} {self.array.shape} (the base)", *others])
        raise BackwardError(
            f"a gradient of dtype {grad.dtype} and shape {grad.shape}{where} was put as {name}: "
            f"{why}; the gettings of this batch are {gettings}; get what a gradient is for before "
            "putting it"
        )


class NestedBatchState(NamedTuple):
    """What a view of several arrays holds, as long as all of them are the same batches."""

    parts: list[BatchState]
    by_form: dict[Any, Any]  # what was got of all of them in one form


class CompiledBatch:
    """A base and its layout, which nobody has looked at yet."""

    def __init__(self, layout: str, given: Any) -> None:
        self.layout, self.input = layout, given
        self.results: dict[Any, Any] = {}


def get(batch: Any, layout: Any, dtype: Any, device: Any, **how: Any) -> Any:
    """The base in a layout and dtype, with the keywords of a formula or memory, in the graph."""
    base = batch.layout if isinstance(batch, CompiledBatch) else batch.plans.layout
    if layout is None and dtype is None and device is None and not how:
        return batch.input
    pattern = f"{base}->{base if layout is None else layout}"
    return call_in_graph(batch.input, pattern, None, {}, dtype=dtype, device=device, **how)
