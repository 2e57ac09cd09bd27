"""`Conversion`: one way in which a base can be got, and what takes it there and back.

How a base becomes what is asked of it: one `Conversion` for each layout and dtype.

`ConversionCache` is all of them for one kind of base: its layout, its dtype and the sizes of its axes,
but not how many samples it has. It knows no batch, so it is kept from batch to batch and shared
by the views of samples and windows that are made of a view: a training loop plans once.

Text such as "bf" or "b c h w" and dtypes in any spelling are resolved here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from .._utils.cache import remember
from ..accumulation import Accumulator
from ..converter import Converter
from ..cuda.runtime import check_device
from ..errors import DtypeError, PatternError
from ..layout.parsing import Layout, identity, parse_layout
from ..layout.pattern import check_rank, parse_pattern
from ..memory import Array
from ..normalize import Formula, computed_dtype
from ..spec import CPU, ArraySpec, DType, as_dtype, can_cast, check_cast, check_movable, kind_of

if TYPE_CHECKING:
    from ..backends.inspection import ArrayInfo
    from ..planning.plan import Plan


class ConversionOptions(NamedTuple):
    """What is asked of a getting beside layout, dtype and device."""

    formula: Formula | None = None
    memory: str | None = None  # the order of the axes in memory, where it is another


DEFAULT_OPTIONS = ConversionOptions()


class ConverterLike(Protocol):
    """What takes a base to a getting and gradients back: a Converter, or what calls like one."""

    def __call__(self, x: Any, out: Any = None) -> Any:
        """The base in the getting's layout and dtype."""

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """A gradient in the base's layout."""

    def inverse(self) -> Converter:
        """What takes data in the getting's layout back to the base's."""

    def plan(self, x: Any) -> Plan:
        """How a base would be moved."""


@dataclass(frozen=True, eq=False, slots=True)
class Conversion:
    """A layout, dtype and device that a base can be got in, and what takes it there.

    There is one of a kind in its `ConversionCache`, so identity is equality.
    """

    layout: str
    dtype: DType
    converter: ConverterLike
    device: str = CPU
    how: ConversionOptions = DEFAULT_OPTIONS

    def takes(self, dtype: DType) -> bool:
        """Whether a floating gradient of this dtype can belong to it."""
        return dtype == as_dtype(self.dtype) or kind_of(self.dtype) in "bui"

    @property
    def formula(self) -> Formula | None:
        """The formula that it was computed with."""
        return self.how.formula

    def has(self, formula: Formula) -> bool:
        """Whether it was got with a formula; one that changes nothing is none."""
        return self.formula == formula or (self.formula is None and formula == Formula())

    @property
    def is_clipped(self) -> bool:
        """Whether gradients depend on the base."""
        return self.formula is not None and self.formula.clip is not None

    def back(self, grad: Any, like: ArraySpec, base: Any) -> Any:
        """A gradient in the base's layout and, unless that is an integer's, in `like`'s dtype."""
        if not self.is_clipped:
            return self.converter.backward(grad, like=like)
        found = self.converter.backward(grad, like=base)
        if as_dtype(found.dtype) == like.dtype:
            return found
        return Converter(identity(len(like.shape)), dtype=like.dtype)(found)

    def __str__(self) -> str:
        where = "" if self.device == CPU else f" on {self.device}"
        shown: dict[str, Any] = {} if self.formula is None else self.formula.keywords()
        shown |= {} if self.how.memory is None else {"memory": self.how.memory}
        words = "".join(f" {name}={value}" for name, value in shown.items())
        return f"{self.layout} {self.dtype}{where}{words}"


_BATCH = "b"


class ConversionCache:
    """Everything that is kept for bases of one layout, dtype and sample shape.

    `own` are the layouts that the kind of view has names for: these may add or drop axes of
    size 1. Methods may be called from several threads at once.
    """

    def __init__(
        self, own: tuple[str, ...], layout: str, array: ArrayInfo, device: str = CPU
    ) -> None:
        parsed = parse_layout(layout)
        if _BATCH not in parsed.groups:
            raise PatternError(
                f"layout {parsed} has no batch axis of its own, which a view needs; name one "
                "axis b, such as bhwc, and leave it outside of parentheses"
            )
        _check_letters(parsed)
        check_rank(parsed, array.shape)
        check_movable(array.dtype)
        self.layout, self.dtype, self.native = str(parsed), array.dtype, as_dtype(array.dtype)
        self.device = device
        self.batch_axis = parsed.groups.index(_BATCH)
        self._named_layouts, self._shape, self._parsed = own, array.shape, parsed
        self._sizes = _sizes(parsed, array.shape)
        self._names: dict[str, str] = {}
        self._aliases: dict[tuple[Any, ...], Conversion] = {}
        self._gettings: dict[tuple[str, DType, str, ConversionOptions], Conversion] = {}
        self._backs: dict[str, Converter] = {}
        self._sums: dict[tuple[tuple[str, ...], DType | None], Accumulator] = {}
        own_way = self._converter(self.layout, self.native)
        self.base = Conversion(self.layout, self.dtype, own_way, device)
        self._copier = self._converter(self.layout, None, copy=True)

    def fits(self, layout: str, array: ArrayInfo, device: str = CPU) -> bool:
        """Whether a base in this layout is of the kind that this was made for."""
        # The type first: an array in place of the layout would compare by elements.
        same = type(layout) is str and layout == self.layout
        if not same and str(parse_layout(layout)) != self.layout:
            return False
        shape, kept, at = array.shape, self._shape, self.batch_axis
        return (
            len(shape) == len(kept)
            and shape[at + 1 :] == kept[at + 1 :]
            and shape[:at] == kept[:at]
            and array.dtype == self.dtype
            and device == self.device
        )

    # -- what is asked ---------------------------------------------------------------------

    def find(
        self, layout: Any, dtype: Any, device: Any, how: ConversionOptions = DEFAULT_OPTIONS
    ) -> Conversion:
        """The getting of a layout, dtype and device in any spelling; None is the base's.

        By default what a formula makes of integers is float32.

        Raises
        ------
        PatternError, ShapeError
            The base cannot become the layout, or not with its sizes.
        DtypeError, DeviceError
            The cast is not allowed under "same_kind", or there is no such device.
        """
        if device is not None:
            device = check_device(device)  # now: "cuda" is the current one, which may change
        key: tuple[Any, ...] | None = (layout, dtype, device, how)
        try:
            found = self._aliases.get(key)  # type: ignore[arg-type]
        except TypeError:  # not hashable, such as a structured dtype in a list
            found = key = None
        if found is None:
            found = self._resolve(layout, dtype, device, how)
            if key is not None:
                remember(self._aliases, key, found)
        return found

    def name_of(self, layout: Any) -> str:
        """A layout with blanks left out and `f` spelled out; PatternError if it cannot be read."""
        if layout is None:
            return self.layout
        name = self._names.get(layout) if type(layout) is str else None
        if name is None:
            asked = parse_layout(layout)
            _check_letters(asked)
            name = str(parse_pattern(f"{self.layout}->{asked}").target)
            remember(self._names, layout, name)
        return name

    def back(self, layout: Any) -> Converter | None:
        """The way from a layout to the base's, None where they are one."""
        getting = self.find(layout, None, None)
        if getting is self.base:
            return None
        found = self._backs.get(getting.layout)
        return found or remember(self._backs, getting.layout, getting.converter.inverse())

    def copied(self, samples: Any, out: Array | None) -> Any:
        """A copy of samples of the base's kind, in `out` if it is given."""
        return self._copier(samples, out)

    def _resolve(self, layout: Any, dtype: Any, device: Any, how: ConversionOptions) -> Conversion:
        formula, place, name = how.formula, device or self.device, self.name_of(layout)
        wanted = self._default(formula) if dtype is None else as_dtype(dtype)
        own = place == self.device and name == self.layout and how == DEFAULT_OPTIONS
        if own and self._is_base_dtype(dtype, wanted):
            return self.base
        key = name, wanted, place, how
        found = self._gettings.get(key)
        if found is None:
            check_movable(wanted)
            plain = formula is None or formula.keeps(self.dtype, wanted)
            computed = self.dtype if plain else computed_dtype(self.dtype, wanted)
            self._check_cast(computed, wanted, name)
            getting = Conversion(name, wanted, self._mover(*key), place, how)
            found = remember(self._gettings, key, getting)
        return found

    def _check_cast(self, source: DType, target: DType, name: str) -> None:
        """Raise DtypeError unless "same_kind" allows it; other rules are for `convert`."""
        if can_cast(source, target, "same_kind") or not can_cast(source, target, "saturate"):
            return check_cast(source, target, "same_kind")
        raise DtypeError(
            f'{source} to {target} is not allowed by casting="same_kind", and views have no other; '
            f'use convert(view.input, "{self.layout}->{name}", dtype="{target}", '
            'casting="saturate")'
        )

    def _default(self, formula: Formula | None) -> DType:
        """The dtype of a getting for which none is asked."""
        if formula is None or kind_of(self.native) not in "bui" or formula.keeps(self.dtype):
            return self.native
        return np.dtype(np.float32)

    def _is_base_dtype(self, dtype: Any, wanted: DType) -> bool:
        """Whether a dtype, `wanted` in native byte order, is the base's, byte order included."""
        if dtype is None or wanted != self.native:
            return dtype is None
        return self.dtype.isnative or np.dtype(dtype) == self.dtype

    # -- how it is made --------------------------------------------------------------------

    def _mover(self, name: str, dtype: DType, device: str, how: ConversionOptions) -> ConverterLike:
        """What takes the base to a layout, or the error that says why nothing can."""
        pattern = parse_pattern(f"{self.layout}->{name}")
        same = set(pattern.target.letters) == set(self._parsed.letters)
        unfolds = pattern.source != self._parsed or not self._keeps_folds(pattern.target)
        if unfolds or not (same or name in self._named_layouts):
            raise PatternError(self._why_not(name, unfolds))
        converter = self._converter(name, dtype, device=device, how=how)
        converter.target_shape(self._shape)  # raises where only the sizes forbid it
        return converter

    def _converter(
        self, name: str, dtype: DType | None, copy: bool | None = None, device: str | None = None,
        how: ConversionOptions = DEFAULT_OPTIONS,
    ) -> Converter:  # fmt: skip
        keywords: dict[str, Any] = self._folded(name)
        keywords |= {} if how.formula is None else how.formula.keywords()
        keywords["memory"] = how.memory
        place = None if device == self.device else device
        return Converter(f"{self.layout}->{name}", dtype=dtype, device=place, copy=copy, **keywords)

    def _folded(self, *names: str) -> dict[str, Any]:
        """The sizes of all axes that only the base or only one of these layouts folds."""
        folds = {group for group in self._parsed.groups if len(group) > 1}
        letters: set[str] = set()
        for name in names:
            others = {group for group in parse_layout(name).groups if len(group) > 1}
            letters.update(*(folds ^ others))
        return {letter: size for letter, size in self._sizes.items() if letter in letters}

    def _keeps_folds(self, target: Layout) -> bool:
        """Whether every fold of the base stays together, or goes altogether."""
        folds = [group for group in self._parsed.groups if len(group) > 1]
        whole = "|".join(target.groups)
        return all(fold in whole or not set(fold) & set(whole) for fold in folds)

    def _why_not(self, name: str, unfolds: bool) -> str:
        axes = ", ".join(self._parsed.groups)
        why = "the sizes inside a fold are not known" if unfolds else "its axes are others"
        own = ", ".join(self._named_layouts)
        return (
            f"a base in {self.layout} cannot become {name}: {why}; it can become its own axes "
            f"({axes}) in any order and fold, and, adding and dropping axes of size 1, {own}; "
            "put the batch in its most expanded layout"
        )

    # -- gradients -------------------------------------------------------------------------

    @property
    def gradient_dtype(self) -> DType | None:
        """The dtype of a sum of gradients: the base's if floating, else None, that of the sum."""
        return self.native if kind_of(self.native) in "fc" else None

    def gradient_sum(
        self, parts: list[tuple[Conversion, Any]], base: Any, dtype: DType | None
    ) -> Any:
        """The sum, in the base's layout, of (getting, gradient) pairs, from left to right."""
        parts = [(getting, self._at_base(getting, grad)) for getting, grad in parts]
        shape = tuple(base.shape)
        if len(parts) == 1:
            getting, grad = parts[0]
            wanted = dtype or (self.native if kind_of(self.native) in "fc" else grad.dtype)
            like = ArraySpec(self.layout, shape, as_dtype(wanted), self.device)
            return getting.back(grad, like, base)
        moved = [self._summable(getting, grad, base) for getting, grad in parts]
        names = tuple(name for name, _ in moved)
        return self._accumulator(names, dtype)([grad for _, grad in moved])

    def _at_base(self, getting: Conversion, grad: Any) -> Any:
        """A gradient where the base is, in the layout and dtype in which it was put."""
        if getting.device == self.device:
            return grad
        return Converter(identity(len(grad.shape)), device=self.device)(grad)

    def _summable(self, getting: Conversion, grad: Any, base: Any) -> tuple[str, Any]:
        """A gradient and its layout, as a sum can take it: one that is only moved."""
        if isinstance(getting.converter, Converter) and getting.formula is None:
            return getting.layout, grad
        spec = ArraySpec(self.layout, tuple(base.shape), as_dtype(grad.dtype), self.device)
        return self.layout, getting.back(grad, spec, base)

    def _accumulator(self, names: tuple[str, ...], dtype: DType | None) -> Accumulator:
        found = self._sums.get((names, dtype))
        if found is None:
            sizes = self._folded(*names)
            made = Accumulator(names, self.layout, dtype=dtype, **sizes)
            found = remember(self._sums, (names, dtype), made)
        return found


def _check_letters(layout: Layout) -> None:
    """Raise PatternError for names and `...`: views compare layouts letter by letter."""
    if layout.names or layout.is_open:
        raise PatternError(
            f"layout {layout} of a view is one letter an axis, such as bhwc; names and ... are for "
            "patterns of convert and Converter"
        )


def _sizes(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
    """The size of every axis but b.

    How a fold of the base divides is not known and does not matter, as it never comes apart:
    its first axis has all of it.
    """
    sizes: dict[str, int] = {}
    for group, size in zip(layout.groups, shape, strict=True):
        if group != _BATCH:
            sizes |= {group[0]: size} | dict.fromkeys(group[1:], 1)
    return sizes
