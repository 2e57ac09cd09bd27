"""The arrays of an `ArrayProvider`: their rows, what fills them up, what they become."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...arrays.adapters import as_array
from ...arrays.rows import take
from ...axes import parse_layout
from ...converter import Converter
from ...errors import DtypeError
from ...formulas import formula_of
from ...memory import Array
from ...spaces.viewing import view_in
from ...spec import can_cast
from ...views import DataView
from ..batches.preparing import check_convert, converter_in, result_layout
from ..batches.viewers import Viewer, default_layout

__all__ = ["Field", "field_of"]


@dataclass(frozen=True)
class Field:
    """One array: its name, its samples along the batch axis, and what fills rows without any.

    `converter` makes what is provided of its rows; `layout` and `filling` are of the result.
    """

    name: str
    layout: str
    axis: int
    array: Array
    filling: Array
    converter: Converter | None = None  # also of pickles of earlier versions, which had none

    @cached_property
    def _into(self) -> int:
        """Where the batch axis is in what is provided."""
        return parse_layout(self.layout).groups.index("b")

    @property
    def samples(self) -> int:
        """How many there are."""
        return int(self.array.shape[self.axis])

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of a batch of so many rows."""
        shape = self.array.shape[: self.axis] + (rows,) + self.array.shape[self.axis + 1 :]
        return shape if self.converter is None else self.converter.target_shape(shape)

    def rows(self, positions: Array, count: int) -> Array:
        """Rows at positions, in memory of their own; those from `count` on are filled."""
        if self.converter is None:
            rows = take(self.array, self.axis, positions)
        else:
            rows = self.converter(self._picked(positions))
            if np.may_share_memory(rows, self.array):  # of a conversion that moves nothing
                rows = rows.copy()
        if count < len(positions):
            rows[(slice(None),) * self._into + (slice(count, None),)] = self.filling
        return rows

    def view(self, rows: Array) -> DataView:
        """The View of a batch of rows."""
        return self._viewer(rows)

    def _picked(self, positions: Array) -> Array:
        """Rows to be converted: where they lie if they are evenly apart, else copied together."""
        if len(positions) > 1:
            steps = np.diff(positions)
            step = int(steps[0])
            if step > 0 and (steps == step).all():
                evenly = slice(int(positions[0]), int(positions[-1]) + 1, step)
                found: Array = self.array[(slice(None),) * self.axis + (evenly,)]
                return found
        return take(self.array, self.axis, positions)

    @cached_property
    def _viewer(self) -> Viewer:
        return Viewer(self.layout, self.name)

    def close(self) -> None:
        """Nothing: whose the array is knows when it goes."""


def field_of(
    name: str,
    array: Any,
    layouts: Mapping[str, Any],
    padding: Any,
    converts: Mapping[str, Any] | None,
    constants: Mapping[str, Any] | None = None,
) -> Field:
    """The field of an array, or the error that says what is wrong with it."""
    memory, constants = as_array(array, name), dict(constants or {})
    layout, convert = layouts.get(name), (converts or {}).get(name)
    check_convert(convert, layout, constants)
    if layout is None and convert is not None:
        layout = str(convert.task.pattern.source)
    layout = default_layout(memory.ndim, name) if layout is None else layout
    view_in(layout, memory, None)  # says what is wrong with them
    axis = parse_layout(layout).groups.index("b")
    converter, dtype = None, memory.dtype
    if convert is not None or formula_of(**constants) is not None:
        converter = converter_in(layout, convert, constants)
        dtype = converter.resolve(converter.spec_of(memory)).dtype
        layout = result_layout(converter)
    number = padding.get(name, 0) if isinstance(padding, Mapping) else padding
    return Field(name, layout, axis, memory, _filling(number, dtype, name), converter)


def _filling(number: Any, dtype: np.dtype[Any], name: str) -> Array:
    """The padding in the dtype of its array; DtypeError where it cannot be."""
    plain = isinstance(number, int | float | complex | np.number | np.bool_)
    if plain and number == 0:
        return np.zeros((), dtype)
    fits = plain and can_cast(np.min_scalar_type(number), dtype, "same_kind")
    if fits:
        with suppress(OverflowError):
            return np.full((), number, dtype)
    raise DtypeError(
        f"padding={number!r} is no value of {name}, whose dtype is {dtype}; give one that is"
    )
