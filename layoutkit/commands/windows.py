"""Windows of pictures: `--crop` and `--flip`, of files of arrays and of pictures alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import buffers
from ..axes import parse_pattern
from ..errors import ArgumentError, ShapeError
from ..memory import Array

if TYPE_CHECKING:
    from .streaming import SlabSource

__all__ = ["Crop", "windowed"]

_BATCH, _HEIGHT, _WIDTH = ("b", "n", "batch"), ("h", "height"), ("w", "width")


@dataclass(frozen=True)
class Crop:
    """A window of every picture.

    size : (height, width)
    corner : (top, left), None: in the middle, unless there is a seed
    seed : where it is drawn from, with the number of the picture
    """

    size: tuple[int, int]
    corner: tuple[int, int] | None = None
    seed: int | None = None

    def begin(self, number: int, height: int, width: int) -> tuple[int, int]:
        """Where the window of a picture of a size begins; ShapeError where it does not fit."""
        rest = height - self.size[0], width - self.size[1]
        begins = self.corner or (0, 0)
        if any(space < at for space, at in zip(rest, begins, strict=True)):
            shown = "" if self.corner is None else f" at {begins[0]},{begins[1]}"
            raise ShapeError(
                f"--crop {self.size[0]}x{self.size[1]}{shown} reaches beyond a picture of "
                f"{height}x{width} (height x width); give a smaller window, or --resize pictures "
                "before"
            )
        if self.seed is not None:
            draw = np.random.default_rng([self.seed, number])
            return tuple(int(draw.integers(0, space + 1)) for space in rest)  # type: ignore[return-value]
        return begins if self.corner is not None else (rest[0] // 2, rest[1] // 2)

    def of_picture(self, pixels: Array, number: int) -> Array:
        """The window of one picture, whose first axes are height and width."""
        top, left = self.begin(number, *pixels.shape[:2])
        return pixels[top : top + self.size[0], left : left + self.size[1]]


def windowed(source: SlabSource, pattern: str, crop: Crop | None, flip: bool) -> SlabSource:
    """The same source with its pictures cropped, and then flipped along the width.

    Raises
    ------
    ArgumentError
        Its pictures have no height and width along axes of their own.
    ShapeError
        The window does not fit.
    """
    if crop is None and not flip:
        return source
    left = parse_pattern(pattern).left
    names = [group[0] if len(group) == 1 else "" for group in left.named]
    if left.is_open:
        at = names.index("...")
        names[at : at + 1] = [""] * (len(source.shape) - len(names) + 1)
    found = [next((n for n in names if n in may), None) for may in (_HEIGHT, _WIDTH, _BATCH)]
    if (crop is not None and found[0] is None) or found[1] is None:
        option, axes = ("--flip", "w") if crop is None else ("--crop", "h and w")
        raise ArgumentError(
            f"{option}: on the left of {pattern} there are no axes {axes} of their own; name them, "
            "as in bhwc->bchw"
        )
    if len(names) != len(source.shape):
        return source  # which the conversion refuses
    places = [None if name is None else names.index(name) for name in found]
    return _Windows(source, crop, flip, *places)


class _Windows:
    """A source of which every picture is a window."""

    def __init__(
        self, source: SlabSource, crop: Crop | None, flip: bool, height: int | None,
        width: int | None, batch: int | None,
    ) -> None:  # fmt: skip
        self._source, self._crop, self._flip = source, crop, flip
        self._height, self._width, self._batch = height or 0, width or 0, batch
        shape = list(source.shape)
        if crop is not None:
            crop.begin(0, shape[self._height], shape[self._width])  # for what it raises
            shape[self._height], shape[self._width] = crop.size
        self.shape, self.dtype = tuple(shape), source.dtype

    def read(self, axis: int | None, start: int, stop: int) -> Array:
        """Everything between two positions of the batch; the whole if `axis` is None."""
        slab = self._source.read(axis, start, stop)
        crop, first = self._crop, 0 if axis is None else start
        if crop is None:
            pass
        elif crop.seed is None or self._batch is None:
            slab = slab[self._window(crop, 0, slab)]
        else:
            slab = self._apart(crop, first, slab)
        turned: list[Any] = [slice(None)] * slab.ndim
        turned[self._width] = slice(None, None, -1 if self._flip else 1)
        found: Array = slab[tuple(turned)]
        return found

    def _window(self, crop: Crop, number: int, slab: Array) -> tuple[slice, ...]:
        begins = crop.begin(number, slab.shape[self._height], slab.shape[self._width])
        window = [slice(None)] * slab.ndim
        for at, begin, size in zip((self._height, self._width), begins, crop.size, strict=True):
            window[at] = slice(begin, begin + size)
        return tuple(window)

    def _apart(self, crop: Crop, first: int, slab: Array) -> Array:
        """The windows of pictures of which each has its own."""
        batch = self._batch or 0
        shape = list(slab.shape)
        shape[self._height], shape[self._width] = crop.size
        made = buffers.empty(tuple(shape), slab.dtype)
        for number in range(slab.shape[batch]):
            one = (slice(None),) * batch + (slice(number, number + 1),)
            made[one] = slab[one][self._window(crop, first + number, slab)]
        return made
