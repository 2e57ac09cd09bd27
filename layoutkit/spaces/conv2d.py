"""`Conv2DSpace`: images, with their four axes in any order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from ..errors import PatternError, ShapeError
from ..notation import parse_layout
from .arrayspace import ArraySpace
from .checks import Axis, checked_size

__all__ = ["Conv2DSpace"]

_LETTERS: dict[str | int, str] = {"b": "b", 0: "h", 1: "w", "c": "c"}
_NAMES = {letter: name for name, letter in _LETTERS.items()}
_RULE = 'axes are "b", 0 (rows), 1 (columns) and "c" in any order, or text such as "bhwc"'


@dataclass(frozen=True, repr=False)
class Conv2DSpace(ArraySpace):
    """Images of `shape` (rows, columns) and `num_channels` channels.

    >>> space = Conv2DSpace((32, 48), num_channels=3, axes=("b", "c", 0, 1))
    >>> space
    Conv2DSpace(shape=(32, 48), num_channels=3, axes=('b', 'c', 0, 1), dtype="float32")
    >>> space.get_origin_batch(8).shape
    (8, 3, 32, 48)
    >>> space == Conv2DSpace((32, 48), 3, "bchw")
    True

    As vectors the numbers are always in the order (rows, columns, channels), whatever the
    axes, so that going through a VectorSpace never scrambles an image.

    Parameters
    ----------
    shape : (rows, columns), whatever the axes
    num_channels : int
    axes : the order of "b", 0 (rows), 1 (columns), "c", outermost first; or a layout ("bhwc")
    dtype : dtype or None
        None: any.
    """

    shape: tuple[int, int]
    num_channels: int
    axes: Any = ("b", 0, 1, "c")
    dtype: Any = "float32"

    family = "conv2d"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _checked_shape(self.shape))
        object.__setattr__(self, "axes", _checked_axes(self.axes))
        self._set_sizes("num_channels")
        self._set_dtype()

    def __repr__(self) -> str:
        return self._text("shape", "num_channels", "axes")

    @cached_property
    def layout(self) -> str:
        """The axes as layoutkit writes them: `bhwc`, `bchw`, ..."""
        return "".join(_LETTERS[axis] for axis in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the axes h, w and c."""
        return {"h": self.shape[0], "w": self.shape[1], "c": self.num_channels}

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return self._axes_of(self.layout)

    def _axes_of(self, layout: Iterable[str]) -> tuple[Axis, ...]:
        known = {
            "b": Axis("batch", None),
            "h": Axis("rows", self.shape[0]),
            "w": Axis("columns", self.shape[1]),
            "c": Axis("channels", self.num_channels),
        }
        return tuple(known[letter] for letter in layout)

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 2 and shape[1] == self.get_total_dimension():
            return f"flat images are a batch of VectorSpace({shape[1]}), whose format_as opens them"
        for layout in permutations("bhwc"):
            wanted = [axis.size for axis in self._axes_of(layout)]
            if len(shape) == 4 and all(w in (None, s) for w, s in zip(wanted, shape, strict=True)):
                axes = tuple(_NAMES[letter] for letter in layout)
                return f"it would fit axes={axes}: say so in the space, or convert the batch"
        return ""


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        rows, columns = shape
    except (TypeError, ValueError):
        raise ShapeError(f"shape={shape!r}; it is a pair (rows, columns)") from None
    return checked_size("rows", rows), checked_size("columns", columns)


def _checked_axes(axes: Any) -> tuple[str | int, ...]:
    if isinstance(axes, str):
        letters = _read_axes(axes)
    elif isinstance(axes, list | tuple):
        letters = tuple(_letter(axis) for axis in axes)
    else:
        raise PatternError(f"axes={axes!r}; {_RULE}")
    if sorted(letters) != sorted(_NAMES):
        raise PatternError(f"axes={axes!r} are not all four axes, each once; {_RULE}")
    return tuple(_NAMES[letter] for letter in letters)


def _read_axes(text: str) -> tuple[str, ...]:
    try:
        return parse_layout(text).groups
    except PatternError as error:
        raise PatternError(f"{error}\n{_RULE}") from None


def _letter(axis: Any) -> str:
    # In a dict 0, 0.0 and False are one key.
    plain = isinstance(axis, str | int | np.integer) and not isinstance(axis, bool)
    if not plain or axis not in _LETTERS:
        raise PatternError(f"{axis!r} is no axis of images; {_RULE}")
    return _LETTERS[axis]
