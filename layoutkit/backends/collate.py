"""Windows of samples in the words of their library, one after the other.

For samples that a library records or traces. What a conversion makes of the stacked windows is then
recorded as any other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..memory import Array
from ..planning.collate import Cut, Windows, check_inside, cut, of_channels, pixel_of, positions
from .base import Adapter
from .dispatch import whose
from .registry import backend_of, library_of
from .symbolic import Symbolic


def leader_of(samples: Sequence[Any]) -> tuple[Adapter, Any, bool]:
    """Whose words are spoken: that of the first sample, or of the first that is recorded.

    With it this sample, and whether windows are said in these words.
    """
    adapters = [whose(sample) for sample in samples]
    for adapter, sample in zip(adapters, samples, strict=True):
        if adapter.is_recorded(sample):
            return adapter, sample, True
    return adapters[0], samples[0], False


def plain_memory(samples: Sequence[Any]) -> list[Array] | None:
    """The memory of samples, where their library has a quick way to it; else None."""
    quick = getattr(backend_of(samples[0]), "memory_of", None)
    found: list[Array] | None = None if quick is None else quick(samples)
    return found


def stacked(
    asked: Windows, samples: Sequence[Any], indices: Any, offset: Any, flip: Any, like: Any
) -> Any:
    """The windows of samples as one array of the library of `like`."""
    adapter, at = whose(like), 0
    if asked.whole:
        shape = adapter.facts(like, "x")[0]
        asked.check_whole(shape)
        axes = asked.completed(len(shape) - 1)
        at = axes.pattern.source.groups.index(asked.letter)
        count = shape[at]
        samples = [
            samples[0][(slice(None),) * at + (int(row),)] for row in positions(indices, count)
        ]
        if not samples:
            raise ArgumentError("indices is empty, and samples are recorded; give one")
    samples = [_to_library(sample, adapter, like, n) for n, sample in enumerate(samples)]
    axes = asked.completed(len(samples[0].shape))
    shapes = np.array([adapter.facts(sample, "a sample")[0] for sample in samples], np.int64)
    window = axes.window(asked, shapes)
    kept = of_channels(asked, axes, shapes)
    found = cut(asked, axes, kept, np.array(window), offset, flip, len(samples))
    outside = (found.begins < 0) | (found.begins + np.array(window) > kept)
    pixel = pixel_of(asked, axes, window, adapter.facts(like, "sample 0")[1])
    if asked.fill is None:
        check_inside(axes, found.begins, kept, window, outside)
    channel = axes.places().get("c")
    words = _SymbolicWindows(adapter, like, pixel, channel)
    rows_of = (np.broadcast_to(each, shapes.shape) for each in found)
    made = [
        words.window(sample, sizes, window, Cut(*each), asked.channels)
        for sample, sizes, *each in zip(samples, kept.tolist(), *rows_of, strict=True)
    ]
    return words.xp.stack(made, at)


def _to_library(sample: Any, adapter: Adapter, like: Any, number: int) -> Any:
    """A sample as an array of the library of another."""
    if type(whose(sample)) is type(adapter) or library_of(sample) is library_of(like):
        return sample
    return adapter.leave(whose(sample).arrive(sample, f"sample {number}"), like)


class _SymbolicWindows:
    """What NumPy's functions are called in a library, whose arrays know its slices."""

    def __init__(self, adapter: Adapter, like: Any, pixel: Array, channel: int | None) -> None:
        library = library_of(like)
        package = type(like).__module__.partition(".")[0]
        self.xp: Any = getattr(library, "xp", sys.modules[package])
        self.adapter, self.like, self.pixel, self.channel = adapter, like, pixel, channel

    def window(
        self, x: Any, sizes: list[int], window: tuple[int, ...], found: Cut,
        channels: tuple[int, ...] | None,
    ) -> Any:  # fmt: skip
        """One window of one sample, of which these channels have these sizes."""
        if channels is not None and self.channel is not None:
            x = x[(slice(None),) * self.channel + (np.array(channels),)]
        begins = found.begins.tolist()
        spans = zip(begins, window, sizes, strict=True)
        inside = [(min(n, max(0, b)), max(0, min(n, b + w))) for b, w, n in spans]
        x = x[tuple(slice(*span) for span in inside)]
        shape = [stop - start for start, stop in inside]
        befores = [min(w, max(0, -b)) for b, w in zip(begins, window, strict=True)]
        for axis in sorted(range(len(window)), key=lambda axis: axis == self.channel):
            before = befores[axis]
            after = window[axis] - before - shape[axis]
            place = 0 if self.channel is None else befores[self.channel]
            if axis == self.channel:
                parts = [(0, before), x, (window[axis] - after, after)]
            else:
                parts = [(place, before), x, (place, after)]
            if before or after:
                x = self._joined(parts, axis, shape)
            shape[axis] = window[axis]
        turned = tuple(np.flatnonzero(found.flips).tolist())
        return self.xp.flip(x, turned) if turned else x

    def _constant(self, values: Array) -> Any:
        """A few numbers as an array where samples are."""
        library = library_of(self.like)
        if isinstance(library, Symbolic):
            return library.constant(values, self.like)
        return self.adapter.leave(values, self.like)

    def _joined(self, parts: list[Any], axis: int, inside: list[int]) -> Any:
        """An array with what is outside before and after it: first channels, and counts."""
        for side in (0, 2):
            channel, count = parts[side]
            shape = [*inside[:axis], count, *inside[axis + 1 :]]
            pixel = self.pixel
            if len(pixel) > 1 and self.channel is not None:
                pixel = pixel[channel : channel + shape[self.channel]]
            spread = [1] * len(shape)
            if self.channel is not None:
                spread[self.channel] = len(pixel)
            parts[side] = self.xp.broadcast_to(self._constant(pixel.reshape(spread)), shape)
        return self.xp.concatenate(parts, axis)
