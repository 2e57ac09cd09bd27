"""The state of one batch of a view: the array that was put, the results got from it, its gradients.

A put creates a new state, so nothing outlives its batch, and two threads that get at the same time
never mix an old base with new results. A state does not know which view holds it.

Under torch.compile a view holds a `CompiledBatch`, and its gets are conversions in the graph. The
caches of a view are not needed in a graph, which is traced once, and torch.compile would trace them
too. A view that leaves the graph creates its full state at the next use.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from .. import _compile
from .._utils.validation import check_bool
from ..backends.inspection import ArrayInfo, inspect_array, slice_samples, take_samples
from ..buffers import empty
from ..errors import ArgumentError, BackwardError, DtypeError
from ..memory import Array
from ..normalize import Normalization
from ..spec import CPU, DType, as_dtype, as_result_dtype, dtype_kind
from .plans import DEFAULT_OPTIONS, Conversion, ConversionCache, ConversionOptions

ConversionGradient = tuple[Conversion, Any]


class BatchState:
    """The state of a view of one array between two puts.

    Attributes
    ----------
    input : array
        The base as it was put.
    array : ArrayInfo
        The base as a plain NumPy array, or its address and strides if it is on a GPU.
    plans : ConversionCache
        Kept from batch to batch.
    results : dict
        Results by the arguments of the request; a view looks here first.
    by_conversion : dict
        Results by conversion; gradients may be put for these.
    by_target : dict
        Results for targets other than a layout and dtype.
    gradients : list
        (conversion, gradient), in the order in which they were put.
    """

    __slots__ = (
        "_totals",
        "array",
        "by_conversion",
        "by_target",
        "gradients",
        "input",
        "plans",
        "results",
    )

    def __init__(self, base: Any, array: Any, plans: ConversionCache) -> None:
        self.input = base
        self.array = array
        self.plans = plans
        self.results: dict[Any, Any] = {}
        self.by_conversion: dict[Conversion, Any] = {}
        self.by_target: dict[Any, Any] = {}
        self.gradients: list[ConversionGradient] = []
        self._totals: dict[DType | None, Any] = {}

    def get(
        self, layout: Any, dtype: Any, device: Any, options: ConversionOptions = DEFAULT_OPTIONS
    ) -> Any:
        """Return the base in a layout and dtype; made once, however the request is spelled."""
        conversion = self.plans.find(layout, dtype, device, options)
        result = self.by_conversion.get(conversion)
        if result is None:
            new = self.input if conversion is self.plans.base else conversion.converter(self.source)
            result = self.by_conversion.setdefault(conversion, new)
        request = (
            (layout, dtype, device)
            if options is DEFAULT_OPTIONS
            else (layout, dtype, device, options)
        )
        self.remember(request, result)
        return result

    @property
    def source(self) -> Any:
        """The array to convert: the base, as a plain array if it is NumPy's."""
        return self.array if isinstance(self.input, np.ndarray) else self.input

    def remember(self, request: tuple[Any, ...], result: Any) -> None:
        """Cache a result by the arguments of its request."""
        try:  # noqa: SIM105  (contextlib.suppress is slower than the rest of the method)
            self.results[request] = result
        except TypeError:  # not hashable
            pass

    def to_base_layout(self, layout: Any, array: Any) -> Any:
        """Return an array converted to the base's layout, in its own dtype; a view if possible."""
        plain, _ = inspect_array(array, "array")
        converter = self.plans.back(layout)
        return (
            array
            if converter is None
            else converter(plain if isinstance(array, np.ndarray) else array)
        )

    # -- samples ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.array.shape[self.plans.batch_axis])

    def take_samples(self, positions: Array) -> Any:
        """Return copies of the samples at validated positions."""
        return take_samples(self.source, self.plans.batch_axis, positions)

    def part(self, window: range, copy: bool) -> Any:
        """Return the samples of a window: copies, or a view of the base."""
        bounds = slice(window.start, window.stop)
        samples = slice_samples(self.source, self.plans.batch_axis, bounds)
        if not check_bool("copy", copy, ArgumentError):
            return samples
        plain = isinstance(samples, np.ndarray)  # the copy keeps the byte order
        return self.plans.copied(samples, empty(samples.shape, samples.dtype) if plain else None)

    # -- gradients -------------------------------------------------------------------------

    def check_gradient(
        self, layout: Any, grad: Any, formula: Normalization | None = None
    ) -> ConversionGradient:
        """Return the conversion that a gradient belongs to, or raise BackwardError.

        With a formula, only a result computed with it matches. Without one, all matching results
        must have been computed with one formula. Integer results match any floating dtype, unless
        a result has the dtype of the gradient.
        """
        name = self.plans.name_of(layout)
        (array, device) = inspect_array(grad, "grad")
        kind = dtype_kind(array.dtype)
        described = (array, device)
        if kind not in "fc":
            self._refuse(name, described, "give a gradient of a floating dtype")
        if kind == "c" and dtype_kind(self.plans.native) == "f":
            self._refuse(name, described, f"complex gradients do not add up to {self.plans.native}")
        dtype = as_dtype(array.dtype)
        matching = [
            conversion
            for conversion in (*self.by_conversion, self.plans.base)
            if conversion.layout == name
            and conversion.device == device
            and conversion.accepts(dtype)
            if formula is None or conversion.has(formula)
        ]
        matching = [item for item in matching if as_dtype(item.dtype) == dtype] or matching
        if not matching:
            self._refuse(name, described, "no result of this batch matches it")
        if (
            len({conversion.formula for conversion in matching if conversion in self.by_conversion})
            > 1
        ):
            self._refuse(
                name,
                described,
                "several formulas fit; say which by the same keywords, scale=1 for none",
            )
        conversion = matching[0]
        shape = self._shape(matching[0])
        if array.shape != shape:
            self._refuse(name, described, f"expected shape {shape}")
        return conversion, grad

    def add(self, gradient: ConversionGradient) -> None:
        """Add a validated gradient."""
        self.gradients.append(gradient)
        self._totals = {}

    def check_sum_dtype(self, layout: Any, dtype: Any) -> DType | None:
        """Return the dtype of the sum, None for the parts' dtype; raise if there is no sum."""
        plans = self.plans
        if plans.name_of(layout) != plans.layout:
            raise BackwardError(
                f"gradients add up in the base's layout, {plans.layout}, not in {layout}; omit "
                "the layout and convert the sum"
            )
        if not self.gradients:
            raise BackwardError("no gradient was put in this batch; call backward_put first")
        if dtype is None:
            return plans.gradient_dtype
        sum_dtype = as_result_dtype(dtype)
        if dtype_kind(sum_dtype) not in "fc":
            raise DtypeError(f"dtype is {sum_dtype}; give a floating dtype for a sum of gradients")
        return sum_dtype

    def gradient_sum(self, dtype: DType | None) -> Any:
        """Return the sum of the gradients in a validated dtype; made once."""
        totals = self._totals
        result = totals.get(dtype)
        if result is None:
            new = self.plans.gradient_sum(self.gradients, self.source, dtype)
            result = totals[dtype] = totals.setdefault(new.dtype, new)
        return result

    def _shape(self, conversion: Conversion) -> tuple[int, ...]:
        return tuple(self.by_conversion.get(conversion, self.array).shape)

    def _refuse(self, name: str, described: tuple[ArrayInfo, str], reason: str) -> NoReturn:
        base = self.plans.base
        (grad, device) = described
        where = "" if device == CPU else f" on {device}"
        other_conversions = [
            f"{conversion} {self._shape(conversion)}"
            for conversion in self.by_conversion
            if conversion is not base
        ]
        conversions = ", ".join([f"{base} {self.array.shape} (the base)", *other_conversions])
        raise BackwardError(
            f"a gradient of dtype {grad.dtype} and shape {grad.shape}{where} was put as {name}: "
            f"{reason}; this batch has returned {conversions}; call forward_get for the layout "
            "that the gradient belongs to first"
        )


class NestedBatchState(NamedTuple):
    """The states of all arrays of a ListView, valid until one of them begins a new batch."""

    parts: list[BatchState]
    by_target: dict[Any, Any]  # results for targets that join all arrays


class CompiledBatch:
    """A base and its layout under torch.compile, whose full state does not exist yet."""

    def __init__(self, layout: str, base: Any) -> None:
        self.layout = layout
        self.input = base
        self.results: dict[Any, Any] = {}


def get(batch: Any, layout: Any, dtype: Any, device: Any, **options: Any) -> Any:
    """Return the base in a layout and dtype as a conversion in the graph of torch.compile."""
    base_layout = batch.layout if isinstance(batch, CompiledBatch) else batch.plans.layout
    if layout is None and dtype is None and device is None and not options:
        return batch.input
    pattern = f"{base_layout}->{base_layout if layout is None else layout}"
    keywords = {"dtype": dtype, "device": device, **options}
    return _compile.graph.insert_convert(batch.input, pattern, None, {}, keywords)
