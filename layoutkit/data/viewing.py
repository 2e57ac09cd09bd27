"""Which View an array is, by its layout and dtype."""

from __future__ import annotations

from typing import Any

from ..arrays import Array
from ..axes import parse_layout
from ..errors import PatternError
from ..spec import kind_of
from ..views import ClassView, DataView, ImageView, SequenceView

__all__ = ["Viewer", "default_layout", "view_of"]

_IMAGES = {"bhwc", "bchw", "chwb", "bdhwc", "bcdhw"}
_SEQUENCES = {"bwc", "bcw"}


def view_of(layout: str, array: Array, classes: Any = None) -> DataView:
    """The array, by reference, as the View that its layout and dtype call for.

    >>> import numpy as np
    >>> view_of("bhwc", np.zeros((8, 32, 32, 3), np.uint8))
    ImageView(bhwc (8, 32, 32, 3) uint8)
    >>> view_of("b", np.array([2, 0, 1]), classes=["cat", "dog", "emu"])
    ClassView(b (3,) int64; 3 classes)

    Integers in b or bt are labels, with `classes` where they are known. Raises what the View's
    `forward_put` does.
    """
    name = str(parse_layout(layout))
    if name in _IMAGES:
        return ImageView(layout, array)
    if name in _SEQUENCES:
        return SequenceView(layout, array)
    if name in ("b", "bt") and kind_of(array.dtype) in "iu":
        return ClassView(layout, array, classes)
    return DataView(layout, array)


class Viewer:
    """Views of one array after the other, each as `view_of` gives it.

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
            view = view_of(layout, array, self._classes)
            self._kept = view.sub(0, 0)
            return view
        return kept._fill(None, array)


def default_layout(ndim: int, what: str) -> str:
    """`b` for one axis and `bf` for two; PatternError for others, which have to be named."""
    if ndim not in (1, 2):
        raise PatternError(
            f"{what} has {ndim} axes, and only one (b) and two (bf) have a layout of their own; "
            'say what they are, as in layout="bhwc"'
        )
    return "b" if ndim == 1 else "bf"
