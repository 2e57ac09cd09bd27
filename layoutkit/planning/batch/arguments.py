"""The arguments of one call of a Collator: `offset=`, `flip=` and `crop=`, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..._utils.indexing import as_array, as_int_array, make_argument_error
from ..._utils.validation import as_int, show
from ...errors import ArgumentError, ShapeError
from ...layout.pattern import axis_name
from ...memory import Array
from ..fitting import FAR
from ..keywords import format_sizes, format_sizes_as_dict

if TYPE_CHECKING:
    from .samples import SampleAxes

HEIGHTS = ("h", "height")  # names of the vertical axis of images
WIDTHS = ("w", "width")  # and of the horizontal one, which flip="random" flips
RANDOM = "random"  # marks a value that is drawn for each sample


class DrawnByAxis(dict[str, Any]):
    """Drawn values by axis: int64 arrays of one value, or one per sample; not checked again."""


class CropArgs(NamedTuple):
    """The arguments of one call that place windows.

    Values of the caller are unchecked; values that a Collator draws are DrawnByAxis.
    """

    offset: Any = None
    flip: Any = None
    crop: Any = None  # the size of the part that is resized; None: the whole sample
    size: Any = None  # of the windows of a packed batch, along the axes that may differ
    placements: Any = None  # the Placements, in place of the others

    def fill_none(self, others: CropArgs) -> CropArgs:
        """Return these arguments, with the values of `others` in place of None."""
        if self.offset is self.flip is self.crop is None:
            return others if self.size is None else others._replace(size=self.size)
        pairs = zip(self, others, strict=True)
        return CropArgs(*(other if own is None else own for own, other in pairs))

    def list_axes(self) -> list[str]:
        """Return the names of the axes that these arguments name."""
        values = [[x] if isinstance(x, str) else x for x in self[:3] if x is not None]
        return [axis_name(name) for value in values for name in value]


PerSampleArgs: TypeAlias = dict[int, Array]  # by index of the axis: one value, or one per sample


def parse_offset_and_flip(
    axes: SampleAxes, args: CropArgs, count: int
) -> tuple[PerSampleArgs, PerSampleArgs]:
    """Return `offset` and `flip` of one call; see `parse_per_sample`."""
    if args.crop is not None:
        raise ArgumentError(
            f"crop={show(args.crop)} is the part of a sample that is resized; give resize= too, or "
            f"the size of windows by axis, as in {format_sizes(args.crop)}"
        )
    if args.offset is args.flip is None:
        return {}, {}
    return (
        parse_per_sample("offset", args.offset, axes.offset_axes, count),
        parse_per_sample("flip", args.flip, axes.axis_indices, count),
    )


def parse_per_sample(
    arg_name: str, value: Any, axis_indices: Mapping[str, int], count: int
) -> PerSampleArgs:
    """Return the argument `crop`, `offset` or `flip` of one call as int64 arrays by axis.

    An array has one value, or one per sample. Axes that the argument does not name are omitted.
    `axis_indices` has the index of each axis that it may name.

    Raises
    ------
    ArgumentError
        The argument is malformed, or names an axis that samples do not have.
    ShapeError
        The number of values is not `count`.
    """
    if value is None:
        return {}
    if type(value) is DrawnByAxis:
        return dict(zip(map(axis_indices.__getitem__, value), value.values(), strict=True))
    if isinstance(value, str) and value == RANDOM:
        raise ArgumentError(
            f'{arg_name}="random" is an option of a Collator: Collator(..., {arg_name}="random")'
        )
    by_axis = {value: True} if arg_name == "flip" and isinstance(value, str) else value
    if not isinstance(by_axis, Mapping):
        forms = {
            "flip": 'an axis, such as "w", or a dict, such as {"w": [True, False]}',
            "offset": 'a dict, such as {"h": 0, "w": [4, 7]}',
            "crop": f"a dict, such as {format_sizes_as_dict(value)}",
        }
        raise ArgumentError(f"{arg_name}={show(value)}; it must be {forms[arg_name]}")
    parse = _parse_flags if arg_name == "flip" else _parse_positions
    return {
        _crop_axis(arg_name, value, name, axis_indices): parse(
            f"{arg_name}[{name!r}]", values, count
        )
        for name, values in by_axis.items()
    }


def _crop_axis(arg_name: str, value: Any, name: Any, axis_indices: Mapping[str, int]) -> int:
    axis = axis_indices.get(axis_name(name)) if isinstance(name, str) else None
    if axis is None:
        raise ArgumentError(
            f"{arg_name}={show(value)}, but windows have no {arg_name} along {show(name)}; "
            f"the axes are {', '.join(axis_indices)}"
        )
    return axis


def _parse_positions(arg_name: str, value: Any, count: int) -> Array:
    if type(value) is np.ndarray and value.dtype == np.int64 and value.shape == (count,):
        return value if value.flags.aligned else value.copy()
    number = as_int(value)
    if number is None or abs(number) <= FAR:  # larger ones are errors
        numbers = as_int_array(value) if number is None else np.array(number, np.int64)
        if numbers is not None and numbers.ndim <= 1 and numbers.dtype.kind == "i":
            _check_count(arg_name, numbers, count)
            return numbers
    raise make_argument_error(arg_name, value, "a whole number, or one for each sample")


def _parse_flags(arg_name: str, value: Any, count: int) -> Array:
    if value is True or value is False:
        return np.array(value, np.int64)
    flags = as_array(value)
    if flags is None:
        raise make_argument_error(arg_name, value, "a bool, or one for each sample")
    flags = flags.astype(bool) if flags.shape == (0,) else flags
    if flags.dtype.kind != "b" or flags.ndim > 1:
        raise make_argument_error(arg_name, value, "a bool, or one for each sample")
    _check_count(arg_name, flags, count)
    return flags.astype(np.int64)


def _check_count(arg_name: str, values: Array, count: int) -> None:
    if values.ndim and len(values) != count:
        raise ShapeError(
            f"{arg_name} has {len(values)} values for {count} samples; give one "
            "for each, or one for all"
        )
