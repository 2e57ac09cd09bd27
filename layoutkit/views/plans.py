"""The conversions of a base to other layouts, dtypes and devices, planned once and cached.

A `ConversionCache` holds the conversions of one base layout, dtype and sample shape; the number of
samples may vary. It holds no batch, so it is kept from batch to batch and shared by views of
samples and windows made from a view: a training loop plans once.

Spellings of layouts, such as "bf" or "b c h w", and of dtypes are resolved only here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from .._utils.cache import cache_put
from ..accumulation import Accumulator
from ..converter import Converter
from ..cuda.runtime import check_device
from ..errors import DtypeError, PatternError
from ..layout.parsing import Layout, identity_pattern, parse_layout, require_text, with_batch_axis
from ..layout.pattern import check_rank, parse_pattern
from ..memory import Array
from ..normalize import Normalization
from ..spec import (
    CPU,
    ArraySpec,
    DType,
    as_dtype,
    as_result_dtype,
    can_cast,
    check_cast,
    check_supported_dtype,
    dtype_kind,
)

if TYPE_CHECKING:
    from ..backends.inspection import ArrayInfo
    from ..planning.plan import Plan


class ConversionOptions(NamedTuple):
    """The options of a conversion besides layout, dtype and device."""

    formula: Normalization | None = None
    memory: str | None = None  # the order of the axes in memory, if it differs from the layout


DEFAULT_OPTIONS = ConversionOptions()


class ConverterLike(Protocol):
    """The protocol of a Converter: it converts a base, and gradients back."""

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Return the base in the conversion's layout and dtype."""

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """Return a gradient in the base's layout."""

    def inverse(self) -> Converter:
        """Return the Converter from the conversion's layout to the base's."""

    def plan(self, x: Any) -> Plan:
        """Return the plan of the conversion of a base."""


@dataclass(frozen=True, eq=False, slots=True)
class Conversion:
    """A conversion of a base to a layout, dtype and device.

    A `ConversionCache` holds equal conversions once, so they are compared by identity.
    """

    layout: str
    dtype: DType
    converter: ConverterLike
    device: str = CPU
    options: ConversionOptions = DEFAULT_OPTIONS

    def accepts(self, dtype: DType) -> bool:
        """Return True if a floating gradient of this dtype can belong to the conversion."""
        return dtype == as_dtype(self.dtype) or dtype_kind(self.dtype) in "bui"

    @property
    def formula(self) -> Normalization | None:
        """The formula that the result is computed with, or None."""
        return self.options.formula

    def has(self, formula: Normalization) -> bool:
        """Return True if the conversion has an equal formula; the identity formula equals None."""
        return self.formula == formula or (self.formula is None and formula == Normalization())

    @property
    def is_clipped(self) -> bool:
        """True if gradients depend on the values of the base."""
        return self.formula is not None and self.formula.clip is not None

    def back(self, grad: Any, like: ArraySpec, base: Any) -> Any:
        """Return a gradient in the base's layout and, for a floating base, in `like`'s dtype."""
        if not self.is_clipped:
            return self.converter.backward(grad, like=like)
        grad_base = self.converter.backward(grad, like=base)
        if as_dtype(grad_base.dtype) == like.dtype:
            return grad_base
        return Converter(identity_pattern(len(like.shape)), dtype=like.dtype)(grad_base)

    def __str__(self) -> str:
        location = "" if self.device == CPU else f" on {self.device}"
        options: dict[str, Any] = {} if self.formula is None else self.formula.keywords()
        options |= {} if self.options.memory is None else {"memory": self.options.memory}
        text = "".join(f" {name}={value}" for name, value in options.items())
        return f"{self.layout} {self.dtype}{location}{text}"


_BATCH = "b"


class ConversionCache:
    """The conversions of bases with one layout, dtype and sample shape.

    `named_layouts` are the layouts that the class of the view has methods for; a conversion to
    these may insert or remove axes of size 1. Methods are thread-safe.
    """

    def __init__(
        self, named_layouts: tuple[str, ...], layout: str, array: ArrayInfo, device: str = CPU
    ) -> None:
        parsed = _view_layout(layout)
        if _BATCH not in parsed.groups:
            raise PatternError(
                f"layout {parsed} has no batch axis of its own, which a view needs; name one "
                "axis b or n, such as bhwc, and leave it outside of parentheses"
            )
        check_rank(parsed, array.shape)
        check_supported_dtype(array.dtype)
        self.layout = str(parsed)
        self.dtype = array.dtype
        self.native = as_dtype(array.dtype)
        self.device = device
        self.batch_axis = parsed.groups.index(_BATCH)
        self._named_layouts = named_layouts
        self._shape = array.shape
        self._parsed = parsed
        self._sizes = _sizes(parsed, array.shape)
        self._names: dict[str, str] = {}
        self._aliases: dict[tuple[Any, ...], Conversion] = {}
        self._conversions: dict[tuple[str, DType, str, ConversionOptions], Conversion] = {}
        self._backs: dict[str, Converter] = {}
        self._sums: dict[tuple[tuple[str, ...], DType | None], Accumulator] = {}
        identity_converter = self._converter(self.layout, self.native)
        self.base = Conversion(self.layout, self.dtype, identity_converter, device)
        self._copier = self._converter(self.layout, None, copy=True)

    def fits(self, layout: str, array: ArrayInfo, device: str = CPU) -> bool:
        """Return True if a base in this layout can use the cache."""
        # The type is tested first: an array given as the layout would compare elementwise.
        same_layout = type(layout) is str and layout == self.layout
        if not same_layout and str(_view_layout(layout)) != self.layout:
            return False
        shape = array.shape
        kept = self._shape
        batch_axis = self.batch_axis
        return (
            len(shape) == len(kept)
            and shape[batch_axis + 1 :] == kept[batch_axis + 1 :]
            and shape[:batch_axis] == kept[:batch_axis]
            and array.dtype == self.dtype
            and device == self.device
        )

    # -- lookup ----------------------------------------------------------------------------

    def find(
        self, layout: Any, dtype: Any, device: Any, options: ConversionOptions = DEFAULT_OPTIONS
    ) -> Conversion:
        """Return the conversion to a layout, dtype and device in any spelling; None is the base's.

        The default dtype of a formula on integers is float32.

        Raises
        ------
        PatternError, ShapeError
            The base cannot become the layout, or not with its sizes.
        DtypeError, DeviceError
            The cast is not allowed under "same_kind", or there is no such device.
        """
        if device is not None:
            device = check_device(
                device
            )  # resolved now: "cuda" is the current device, which may change
        key: tuple[Any, ...] | None = (layout, dtype, device, options)
        try:
            conversion = self._aliases.get(key)  # type: ignore[arg-type]
        except TypeError:  # not hashable, such as a structured dtype in a list
            conversion = key = None
        if conversion is None:
            conversion = self._find_conversion(layout, dtype, device, options)
            if key is not None:
                cache_put(self._aliases, key, conversion)
        return conversion

    def name_of(self, layout: Any) -> str:
        """Return the canonical spelling of a layout; raise PatternError if it is invalid."""
        if layout is None:
            return self.layout
        name = self._names.get(layout) if type(layout) is str else None
        if name is None:
            parsed = _view_layout(layout)
            name = str(parse_pattern(f"{self.layout}->{parsed}").target)
            cache_put(self._names, layout, name)
        return name

    def back(self, layout: Any) -> Converter | None:
        """Return the Converter from a layout to the base's, or None if they are equal."""
        conversion = self.find(layout, None, None)
        if conversion is self.base:
            return None
        converter = self._backs.get(conversion.layout)
        return converter or cache_put(
            self._backs, conversion.layout, conversion.converter.inverse()
        )

    def copied(self, samples: Any, out: Array | None) -> Any:
        """Return a copy of samples of the base, in `out` if it is given."""
        return self._copier(samples, out)

    def _find_conversion(
        self, layout: Any, dtype: Any, device: Any, options: ConversionOptions
    ) -> Conversion:
        formula = options.formula
        if options.memory is not None:
            require_text(options.memory, "memory", self.layout)
        target_device = device or self.device
        name = self.name_of(layout)
        target_dtype = self._default(formula) if dtype is None else as_dtype(dtype)
        is_base_layout = (
            target_device == self.device and name == self.layout and options == DEFAULT_OPTIONS
        )
        if is_base_layout and self._is_base_dtype(dtype, target_dtype):
            return self.base
        if dtype is not None:
            target_dtype = as_result_dtype(dtype)
        key = name, target_dtype, target_device, options
        conversion = self._conversions.get(key)
        if conversion is None:
            computed = self.dtype
            if formula is not None:
                computed = formula.computed_dtype(computed, target_dtype)
            self._check_cast(computed, target_dtype, name)
            new = Conversion(name, target_dtype, self._mover(*key), target_device, options)
            conversion = cache_put(self._conversions, key, new)
        return conversion

    def _check_cast(self, source: DType, target: DType, name: str) -> None:
        """Raise DtypeError unless "same_kind" allows the cast, the only rule of views."""
        if can_cast(source, target, "same_kind") or not can_cast(source, target, "unsafe"):
            return check_cast(source, target, "same_kind")
        to_integer = dtype_kind(target) in "ui" and can_cast(source, target, "saturate")
        rule = "saturate" if to_integer else "unsafe"
        raise DtypeError(
            f'{source} to {target} is not allowed by casting="same_kind", and views have no other; '
            f'use convert(view.input, "{self.layout}->{name}", dtype="{target}", '
            f'casting="{rule}")'
        )

    def _default(self, formula: Normalization | None) -> DType:
        if (
            formula is None
            or dtype_kind(self.native) not in "bui"
            or formula.preserves_dtype(self.dtype)
        ):
            return self.native
        return np.dtype(np.float32)

    def _is_base_dtype(self, dtype: Any, target_dtype: DType) -> bool:
        """Return True if a dtype is the base's, also in byte order.

        `target_dtype` is `dtype` in native byte order.
        """
        if dtype is None or target_dtype != self.native:
            return dtype is None
        return self.dtype.isnative or np.dtype(dtype) == self.dtype

    # -- construction ----------------------------------------------------------------------

    def _mover(
        self, name: str, dtype: DType, device: str, options: ConversionOptions
    ) -> ConverterLike:
        """Return the converter from the base to a layout, or raise why there is none."""
        pattern = parse_pattern(f"{self.layout}->{name}")
        same_letters = set(pattern.target.letters) == set(self._parsed.letters)
        unfolds = pattern.source != self._parsed or not self._keeps_folds(pattern.target)
        if unfolds or not (same_letters or name in self._named_layouts):
            raise PatternError(self._why_not(name, unfolds))
        converter = self._converter(name, dtype, device=device, options=options)
        converter.target_shape(self._shape)  # raises if only the sizes forbid it
        return converter

    def _converter(
        self,
        name: str,
        dtype: DType | None,
        copy: bool | None = None,
        device: str | None = None,
        options: ConversionOptions = DEFAULT_OPTIONS,
    ) -> Converter:
        keywords: dict[str, Any] = self._folded(name)
        keywords |= {} if options.formula is None else options.formula.keywords()
        keywords["memory"] = options.memory
        target_device = None if device == self.device else device
        return Converter(
            f"{self.layout}->{name}", dtype=dtype, device=target_device, copy=copy, **keywords
        )

    def _folded(self, *names: str) -> dict[str, Any]:
        """Return the sizes of all axes that only the base or only one of these layouts folds."""
        folds = {group for group in self._parsed.groups if len(group) > 1}
        letters: set[str] = set()
        for name in names:
            other_folds = {group for group in parse_layout(name).groups if len(group) > 1}
            letters.update(*(folds ^ other_folds))
        return {letter: size for letter, size in self._sizes.items() if letter in letters}

    def _keeps_folds(self, target: Layout) -> bool:
        """Return True if every fold of the base is kept contiguous, or removed altogether."""
        folds = [group for group in self._parsed.groups if len(group) > 1]
        joined_groups = "|".join(target.groups)
        return all(fold in joined_groups or not set(fold) & set(joined_groups) for fold in folds)

    def _why_not(self, name: str, unfolds: bool) -> str:
        axes = ", ".join(self._parsed.groups)
        reason = "the sizes inside a fold are not known" if unfolds else "its axes are others"
        named_layouts = ", ".join(self._named_layouts)
        return (
            f"a base in {self.layout} cannot become {name}: {reason}; it can become its own axes "
            f"({axes}) in any order and fold, and, adding and dropping axes of size 1, "
            f"{named_layouts}; put the batch in its most expanded layout"
        )

    # -- gradients -------------------------------------------------------------------------

    @property
    def gradient_dtype(self) -> DType | None:
        """The dtype of a gradient sum: the base's if floating, else None for the parts' dtype."""
        return self.native if dtype_kind(self.native) in "fc" else None

    def gradient_sum(
        self, parts: list[tuple[Conversion, Any]], base: Any, dtype: DType | None
    ) -> Any:
        """Return the sum of (conversion, gradient) pairs, in order, in the base's layout."""
        parts = [(conversion, self._at_base(conversion, grad)) for conversion, grad in parts]
        shape = tuple(base.shape)
        if len(parts) == 1:
            conversion, grad = parts[0]
            sum_dtype = dtype or (self.native if dtype_kind(self.native) in "fc" else grad.dtype)
            like = ArraySpec(self.layout, shape, as_dtype(sum_dtype), self.device)
            return conversion.back(grad, like, base)
        summable = [self._summable(conversion, grad, base) for conversion, grad in parts]
        names = tuple(name for name, _ in summable)
        return self._accumulator(names, dtype)([grad for _, grad in summable])

    def _at_base(self, conversion: Conversion, grad: Any) -> Any:
        """Return a gradient on the base's device, in its own layout and dtype."""
        if conversion.device == self.device:
            return grad
        return Converter(identity_pattern(len(grad.shape)), device=self.device)(grad)

    def _summable(self, conversion: Conversion, grad: Any, base: Any) -> tuple[str, Any]:
        """Return a layout and a gradient in it that an Accumulator can sum without a formula."""
        if isinstance(conversion.converter, Converter) and conversion.formula is None:
            return conversion.layout, grad
        spec = ArraySpec(self.layout, tuple(base.shape), as_dtype(grad.dtype), self.device)
        return self.layout, conversion.back(grad, spec, base)

    def _accumulator(self, names: tuple[str, ...], dtype: DType | None) -> Accumulator:
        accumulator = self._sums.get((names, dtype))
        if accumulator is None:
            sizes = self._folded(*names)
            new = Accumulator(names, self.layout, dtype=dtype, **sizes)
            accumulator = cache_put(self._sums, (names, dtype), new)
        return accumulator


def _view_layout(text: str) -> Layout:
    """Parse a layout of a view, in which the batch axis may also be called n.

    Raises PatternError for axis names and `...`: views compare layouts letter by letter.
    """
    layout = parse_layout(text)
    if layout.names or layout.has_ellipsis:
        raise PatternError(
            f"layout {layout} of a view is one letter an axis, such as bhwc; names and ... are for "
            "patterns of convert and Converter"
        )
    return with_batch_axis(layout)


def _sizes(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
    """Return the size of every axis but b.

    The sizes inside a fold of the base are unknown and not needed, as it is never unfolded: its
    first axis gets the whole size.
    """
    sizes: dict[str, int] = {}
    for group, size in zip(layout.groups, shape, strict=True):
        if group != _BATCH:
            sizes |= {group[0]: size} | dict.fromkeys(group[1:], 1)
    return sizes
