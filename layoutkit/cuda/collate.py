"""Gather windows of samples on a GPU into one array, to be converted as one batch.

`layoutkit.cpu.collate` is the CPU's counterpart. A window is an address and strides, and is copied
by the kernels of conversions, with one launch per piece. Everything is asynchronous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from ..layout.parsing import identity
from ..memory import Array
from ..normalize import CHANNEL
from ..planning.collate import (
    Axes,
    Windows,
    check_alike,
    check_inside,
    cut,
    of_channels,
    pixel_of,
    positions,
)
from ..planning.options import make_task
from ..planning.padding import Place
from .memory import DeviceAdapter, DeviceArray, check_same_device, check_writable
from .program import DevicePrograms
from .runtime import runtime
from .transfers import sent


class DeviceGathering:
    """The GPU programs of a Collator: gathers windows of samples into one array."""

    def __init__(self, asked: Windows) -> None:
        self._asked = asked
        self._programs: dict[int, DevicePrograms] = {}  # by rank

    def __call__(
        self,
        arrays: Sequence[DeviceArray],
        indices: Any,
        offset: Any,
        flip: Any,
        out: DeviceArray | None,
        adapter: DeviceAdapter,
    ) -> DeviceArray:
        """Return the windows in one array, with the sample axis at its index in the pattern."""
        asked = self._asked
        first = arrays[0]
        for number, array in enumerate(arrays):
            name = "x" if asked.whole else f"sample {number}"
            check_same_device(first, "x" if asked.whole else "sample 0", array.device, name)
            if out is not None:
                check_writable(array, out, name)
        check_alike([(array.shape, array.dtype) for array in arrays])
        samples, axes, at = self._samples(arrays, indices)
        shapes = np.array([each.shape for each in (samples or arrays)], np.int64)
        if not samples:
            shapes = np.delete(shapes, at, axis=1)
        window = axes.window(asked, shapes)
        sizes = of_channels(asked, axes, shapes)
        found = cut(asked, axes, sizes, np.array(window), offset, flip, len(samples))
        outside = (found.begins < 0) | (found.begins + np.array(window) > sizes)
        pixel = pixel_of(asked, axes, window, first.dtype)
        if asked.fill is None:
            check_inside(axes, found.begins, sizes, window, outside)
        adapter.check(first.dtype)
        made = adapter.empty((*window[:at], len(samples), *window[at:]), first.dtype, first.ordinal)
        if not made.size:
            return made
        rows_of = (np.broadcast_to(each, (len(samples), len(window))) for each in (*found, sizes))
        with runtime().on(made.ordinal):
            paint = self._paint(pixel, axes, made, adapter) if outside.any() else None
            for number, (sample, *each) in enumerate(zip(samples, *rows_of, strict=True)):
                begins, flips, of = (row.tolist() for row in each)
                to = _turned(_without(made, at, number), flips)
                for source, place in self._pieces(axes, sample, begins, of, window, paint):
                    self._move(source, _part(to, place), adapter)
        return made

    def _samples(
        self, arrays: Sequence[DeviceArray], indices: Any
    ) -> tuple[list[DeviceArray], Axes, int]:
        """Return the selected samples, their axes, and the index of the sample axis."""
        asked = self._asked
        first = arrays[0]
        if not asked.whole:
            return [*arrays], asked.completed(len(first.shape)), 0
        asked.check_whole(first.shape)
        axes = asked.completed(len(first.shape) - 1)
        at = axes.pattern.source.groups.index(asked.letter)
        found = positions(indices, first.shape[at]).tolist()
        return [_without(first, at, row) for row in found], axes, at

    def _paint(
        self, pixel: Array, axes: Axes, made: DeviceArray, adapter: DeviceAdapter
    ) -> DeviceArray:
        """Return the fill values on the GPU, broadcast with stride 0."""
        there = adapter.located(sent(pixel, made.device, adapter))
        ndim = len(axes.sample.groups)
        channel = axes.places().get(CHANNEL)
        strides = [0] * ndim
        if len(pixel) > 1 and channel is not None:
            strides[channel] = pixel.itemsize
        return replace(there, shape=(1,) * ndim, strides=tuple(strides))

    def _pieces(
        self,
        axes: Axes,
        sample: DeviceArray,
        begins: list[int],
        sizes: list[int],
        window: tuple[int, ...],
        paint: DeviceArray | None,
    ) -> Iterator[tuple[DeviceArray, tuple[slice, ...]]]:
        """Yield (source, region of the window) for the inside and for the padding around it."""
        spans = zip(begins, sizes, window, strict=True)
        ends = [(min(max(-b, 0), w), min(max(n - b, 0), w)) for b, n, w in spans]
        inside = tuple(slice(start, max(start, stop)) for start, stop in ends)
        of = tuple(slice(p.start + b, p.stop + b) for p, b in zip(inside, begins, strict=True))
        if self._asked.channels is None:
            yield _part(sample, of), inside
        else:
            channel = axes.places()[CHANNEL]
            for first, apart, place in _runs(self._asked.channels):
                taken = _stepped(sample, channel, first, apart)
                some = (*of[:channel], slice(0, place.stop - place.start), *of[channel + 1 :])
                yield _part(taken, some), (*inside[:channel], place, *inside[channel + 1 :])
        if paint is not None:
            for border in Place(window, window, inside).borders():
                yield _part(paint, border), border

    def _move(self, source: DeviceArray, to: DeviceArray, adapter: DeviceAdapter) -> None:
        """Copy a piece on the stream of the adapter."""
        if not to.size:
            return
        if not to.shape:
            source, to = (replace(each, shape=(1,), strides=(0,)) for each in (source, to))
        ndim = len(to.shape)
        programs = self._programs.get(ndim)
        if programs is None:
            task = make_task(identity(ndim), copy=True)
            programs = self._programs.setdefault(ndim, DevicePrograms(task))
        programs.find(source, to)(source, to, adapter)


def _without(array: DeviceArray, at: int, number: int) -> DeviceArray:
    """Return the array at one index of an axis, without that axis."""
    shape, strides = (side[:at] + side[at + 1 :] for side in (array.shape, array.strides))
    address = array.address + number * array.strides[at]
    return replace(array, address=address, shape=shape, strides=strides)


def _part(array: DeviceArray, window: tuple[slice, ...]) -> DeviceArray:
    """Return a region of an array; slices must have both ends."""
    pairs = zip(window, array.strides, strict=True)
    address = array.address + sum(part.start * step for part, step in pairs)
    return replace(array, address=address, shape=tuple(p.stop - p.start for p in window))


def _turned(array: DeviceArray, flips: list[bool]) -> DeviceArray:
    """Return the array with some axes reversed."""
    facts = list(zip(array.shape, array.strides, flips, strict=True))
    address = array.address + sum((size - 1) * step for size, step, turned in facts if turned)
    strides = tuple(-step if turned else step for _, step, turned in facts)
    return replace(array, address=address, strides=strides)


def _runs(channels: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """Yield runs of evenly spaced channels: start, step, and their slice of the result."""
    start = 0
    while start < len(channels):
        rest = channels[start:]
        apart = rest[1] - rest[0] if len(rest) > 1 else 1
        even = takewhile(lambda n: rest[n] == rest[0] + n * apart, range(len(rest)))  # noqa: B023
        stop = start + sum(1 for _ in even)
        yield rest[0], apart, slice(start, stop)
        start = stop


def _stepped(array: DeviceArray, at: int, first: int, apart: int) -> DeviceArray:
    """Return the array with one axis starting at `first`, with a step of `apart`."""
    step = array.strides[at]
    strides = (*array.strides[:at], step * apart, *array.strides[at + 1 :])
    return replace(array, address=array.address + first * step, strides=strides)
