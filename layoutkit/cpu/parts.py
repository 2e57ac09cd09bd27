"""Samples as memory, and windows of them that are copied before they are converted.

Most windows are converted where they lie. Those that reach outside of their samples are completed
first, and so are some that lie as none before: a plan costs as much as many copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..buffers import empty
from ..constants import CHANNEL
from ..memory import Array, address, addresses
from ..planning.canvas import Place, of_paint
from ..planning.frames import pixel_of
from ..planning.windows import Axes, Windows, check_alike
from ..spec import DType

__all__ = ["Sources", "completed", "of_rows", "of_samples"]


class Sources(NamedTuple):
    """Samples as memory.

    forms        shape and strides of each sample, or one pair where all are alike
    addresses    of every sample
    arrays       the samples, with those that lie in one array along its first axis
    """

    dtype: DType
    forms: list[tuple[tuple[int, ...], tuple[int, ...]]]
    addresses: Array
    arrays: Sequence[Array] | Array
    picked: Array | None = None  # which of the arrays are samples; None: all in turn

    @property
    def alike(self) -> Any:
        """A key of shape and strides where all samples have them; None where they do not."""
        return self.forms[0] if len(self.forms) == 1 else None

    def rows(self) -> tuple[Array, Array]:
        """Shapes and strides, a row for each form."""
        both = np.array(self.forms, np.int64)
        return both[:, 0], both[:, 1]

    def sample(self, number: int) -> Array:
        """One of the samples."""
        found: Array = self.arrays[number if self.picked is None else self.picked[number]]
        return found


def of_samples(arrays: Sequence[Array]) -> Sources:
    """Samples that are arrays of their own; raises unless they are of one rank and dtype."""
    at = np.array(addresses(arrays), np.int64)
    facts = [(array.shape, array.strides, array.dtype) for array in arrays]
    shape, strides, dtype = facts[0]
    if facts.count(facts[0]) == len(facts):
        return Sources(dtype, [(shape, strides)], at, arrays)
    check_alike([(other, kind) for other, _, kind in facts])
    return Sources(dtype, [fact[:2] for fact in facts], at, arrays)


def of_rows(array: Array, axis: int, rows: Array) -> Sources:
    """Samples at proven positions of one array."""
    array = np.moveaxis(array, axis, 0) if axis else array
    at = address(array) + rows * array.strides[0]
    return Sources(array.dtype, [(array.shape[1:], array.strides[1:])], at, array, rows)


def completed(
    asked: Windows, axes: Axes, window: tuple[int, ...], sources: Sources, begins: Array,
    numbers: Array,
) -> Array:  # fmt: skip
    """Copies of the windows of some samples, with what is outside of them filled in."""
    made = empty((len(numbers), *window), sources.dtype)
    pixel = pixel_of(asked, axes, window, sources.dtype)
    channel = axes.places().get(CHANNEL)
    spread = [len(pixel) if at == channel else 1 for at in range(len(window))]
    # Long runs: NumPy copies them at the speed of memory, and pixels at a tenth of it.
    near = [1 if at < len(window) - 2 else size for at, size in enumerate(window)]
    near = [max(pair) for pair in zip(near, spread, strict=True)]
    paint = np.array(np.broadcast_to(pixel.reshape(spread), near))
    for to, number in zip(made, numbers.tolist(), strict=True):
        x, begin = sources.sample(number), begins[number if len(begins) > 1 else 0].tolist()
        if asked.channels is not None and channel is not None:
            x = x[(slice(None),) * channel + (list(asked.channels),)]
        _complete(to, x, begin, paint)
    return made


def _complete(to: Array, x: Array, begin: Sequence[int], paint: Array) -> None:
    """Write one window: what is inside of the sample, and what is around that."""
    spans = zip(begin, x.shape, to.shape, strict=True)
    starts = [(min(max(-b, 0), w), min(max(n - b, 0), w)) for b, n, w in spans]
    inside = tuple(slice(first, max(first, last)) for first, last in starts)
    to[inside] = x[
        tuple(slice(p.start + b, p.stop + b) for p, b in zip(inside, begin, strict=True))
    ]
    for border in Place(to.shape, to.shape, inside).borders():
        to[border] = paint[of_paint(paint, border)]
