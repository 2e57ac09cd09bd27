"""Views of the arrays of one batch after the other.

Knows layouts and Views; knows nothing of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...converter import Converter
from ...errors import PatternError
from ...memory import Array
from ...spaces.viewing import view_in
from ...views import DataView
from .preparing import converter_in, result_layout

_NO_CONSTANTS: Mapping[str, Any] = MappingProxyType({})

__all__ = ["Viewer", "default_layout"]


class Viewer:
    """Views of one array after the other, chosen by axes and dtype.

    Exists because what is planned for one batch is right for the next: planning anew takes 30 us,
    and once more in every layout that is asked for.
    """

    def __init__(
        self, layout: str | None, what: str, classes: Any = None, *,
        convert: Any = None, constants: Mapping[str, Any] = _NO_CONSTANTS,
    ) -> None:  # fmt: skip
        self._layout, self._what, self._classes = layout, what, classes
        self._convert, self._constants = convert, dict(constants)
        self._converter: Converter | None = None
        self._kept: DataView | None = None  # holds no rows, so no memory of a batch
        self._kind: Any = None  # of arrays that have views like it

    def __call__(self, array: Array) -> DataView:
        """The array, by reference or as it is converted, as a new View."""
        if self._convert is not None or self._constants:
            array = self._prepared(array)
        kept, kind = self._kept, (array.dtype, array.shape[1:])
        if kept is None or kind != self._kind:
            layout = self._layout or default_layout(array.ndim, self._what)
            view: DataView = view_in(layout, array, self._classes)
            self._kept, self._kind = view.sub(0, 0), kind
            return view
        return kept.of_same_kind(array)

    def _prepared(self, array: Array) -> Array:
        """What is made of an array of the batch, whose view is then in another layout."""
        if self._converter is None:
            layout = self._layout or default_layout(array.ndim, self._what)
            self._converter = converter_in(layout, self._convert, self._constants)
            self._layout = result_layout(self._converter)
        found: Array = self._converter(array)
        return found


def default_layout(ndim: int, what: str) -> str:
    """`b` for one axis and `bf` for two; PatternError for others, which have to be named."""
    if ndim not in (1, 2):
        raise PatternError(
            f"{what} has {ndim} axes, and only one (b) and two (bf) have a layout of their own; "
            'say what they are, as in layout="bhwc"'
        )
    return "b" if ndim == 1 else "bf"
