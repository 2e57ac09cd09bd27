"""Views of the arrays of one batch after the other."""

from __future__ import annotations

from typing import Any

from ...errors import PatternError
from ...memory import Array
from ...views import DataView
from ..samples.layouts import as_view

__all__ = ["Viewer", "default_layout"]


class Viewer:
    """Views of one array after the other, chosen by axes and dtype.

    Exists because what is planned for one batch is right for the next: planning anew takes 30 us,
    and once more in every layout that is asked for.
    """

    def __init__(self, layout: str | None, what: str, classes: Any = None) -> None:
        self._layout, self._what, self._classes = layout, what, classes
        self._kept: DataView | None = None  # holds no rows, so no memory of a batch

    def __call__(self, array: Array) -> DataView:
        """The array, by reference, as a new View."""
        kept = self._kept
        if kept is None or kept.dtype != array.dtype or kept.input.shape[1:] != array.shape[1:]:
            layout = self._layout or default_layout(array.ndim, self._what)
            view: DataView = as_view(layout, array, self._classes)
            self._kept = view.sub(0, 0)
            return view
        return kept.of_same_kind(array)


def default_layout(ndim: int, what: str) -> str:
    """`b` for one axis and `bf` for two; PatternError for others, which have to be named."""
    if ndim not in (1, 2):
        raise PatternError(
            f"{what} has {ndim} axes, and only one (b) and two (bf) have a layout of their own; "
            'say what they are, as in layout="bhwc"'
        )
    return "b" if ndim == 1 else "bf"
