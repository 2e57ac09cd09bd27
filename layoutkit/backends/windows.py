"""The windows of a batch as a linear map that kernels execute, with its transpose.

A library that records operations needs the gradient of a batch. Kernels stack the windows, cropped
without a conversion or resized as floats. The stack is then converted, by an operation that has its
own gradient. The transposed map resizes the gradients of windows, by transposed taps. The text of
the map is stored in graphs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..cpu.program import supports_float16
from ..cpu.windows import compute_sample_gradients, stack_windows
from ..cuda import windows as on_gpu
from ..cuda.memory import DeviceAdapter, DeviceArray, DeviceArrays
from ..memory import Array
from ..normalize import CHANNEL
from ..options import CollateOptions, parse_collate_options
from ..planning.batch.arguments import CropArgs
from ..planning.batch.layout import fill_array_of
from ..planning.batch.placement import (
    Placements,
    place,
    placements_as_lists,
    placements_from_lists,
)
from ..planning.batch.samples import LONGEST
from ..planning.batch.weights import choose_summed_dtype, moves_items
from ..planning.epilogue import is_supported_dtype
from ..planning.resize import ResizeOptions
from ..spec import DType, as_dtype, dtype_kind

_LETTERS = "hwadegijklmnopqrstuvxyz"  # names of axes 0, 1, ...; b is the batch, c channels


@dataclass(frozen=True)
class Windows:
    """The map from samples to their stacked windows; its fields are JSON values."""

    dtype: str  # of samples
    shapes: list[list[int]]  # of each sample
    channel: int | None  # the axis of channels in a sample
    sizes: dict[str, int | str]  # of windows, or "longest", by letter: see `choose_letters`
    keywords: dict[str, Any]  # of the Collator that stacks the windows
    placed: dict[str, Any]  # the placements of the samples, as lists, with letters of axes
    axis: int | None = None  # the axis of samples in one array; None: separate arrays

    @classmethod
    def of(cls, options: CollateOptions, shapes: Array, dtype: DType, args: CropArgs) -> Windows:
        """Return the windows of samples of `shapes` (samples, axes), with all of their channels.

        Raises the errors of a call of the Collator.
        """
        axes = options.find_sample_axes(shapes.shape[1])
        placements = place(options, axes, axes.window(shapes), shapes, args)
        if axes.channels is not None:  # the stacked windows have all of them
            axes = replace(axes, channels=None)
            placements = place(options, axes, axes.window(shapes), shapes, args)
        channel = axes.axis_indices.get(CHANNEL)
        letters = choose_letters(shapes.shape[1], channel)
        placed = placements_as_lists(replace(placements, axes=tuple(letters)))
        sizes: dict[str, int | str] = {
            letters[axis]: axes.sizes.get(name, LONGEST) for name, axis in axes.cropped.items()
        }
        if axes.sides is not None:  # the placements have the sizes of the scaled samples
            sizes |= {letters[axis]: placements.window[axis] for axis in axes.longest_axes}
        keywords = make_keywords(options, letters, shapes, dtype)
        return cls(dtype.name, shapes.tolist(), channel, sizes, keywords, placed)

    @classmethod
    def from_text(cls, text: str) -> Windows:
        """Return the windows that `text` describes."""
        return cls(**json.loads(text))

    @property
    def text(self) -> str:
        """The description as JSON."""
        return json.dumps(asdict(self))

    def append_axis(self, size: int) -> Windows:
        """Return the windows of samples with one more axis of this size, which is not cropped."""
        shapes = [[*shape, size] for shape in self.shapes]
        name = choose_letters(len(shapes[0]), self.channel)[-1]
        placed = placements_as_lists(self.placements.append_whole_axis(name, size))
        return replace(self, shapes=shapes, placed=placed)

    def without_fill(self) -> Windows:
        """Return the linear part of the map, which has zeros outside of samples."""
        if "fill" not in self.keywords:
            return self
        return replace(self, keywords={**self.keywords, "fill": 0})

    @cached_property
    def options(self) -> CollateOptions:
        """The options of the Collator that stacks the windows."""
        letters = choose_letters(len(self.shapes[0]), self.channel)
        return parse_collate_options(f"{letters}->b{letters}", self.sizes, **self.keywords)

    @property
    def resize(self) -> ResizeOptions | None:
        """The options of resizing; None: samples are only cropped."""
        return self.options.resize

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the stacked windows."""
        axes = self.options.find_sample_axes(len(self.shapes[0]))
        return len(self.shapes), *axes.window(np.array(self.shapes, np.int64))

    @cached_property
    def fill(self) -> Array:
        """The fill values in the dtype of samples: one, or one for each channel of a window."""
        axes = self.options.find_sample_axes(len(self.shapes[0]))
        return fill_array_of(self.options, axes, self.shape[1:], as_dtype(self.dtype))

    @cached_property
    def placements(self) -> Placements:
        """The placements of the samples in their windows."""
        return placements_from_lists(self.placed)

    @cached_property
    def placed_axes(self) -> list[int]:
        """The axes along which windows differ from samples."""
        placements = self.placements
        differs = (placements.begins != 0) | (placements.lengths != placements.window)
        differs |= placements.flips
        differs[:, placements.resized] = True
        return np.flatnonzero(differs.any(0)).tolist()

    @property
    def window_dtype(self) -> DType:
        """The dtype of the stacked windows."""
        return as_dtype(self.keywords.get("dtype", self.dtype))

    @property
    def is_averaged(self) -> bool:
        """True if windows are averages, in the dtype `window_dtype` of floats."""
        return "dtype" in self.keywords

    @property
    def has_kernels(self) -> bool:
        """True if kernels execute the map, and its transpose if samples are floats."""
        dtype = as_dtype(self.dtype)
        is_float = dtype_kind(dtype) == "f" and dtype.itemsize > 1
        has_gradient = is_float and is_supported_dtype(dtype, supports_float16)
        return dtype_kind(dtype) in "iub" or has_gradient

    @cached_property
    def groups(self) -> dict[tuple[int, ...], list[int]]:
        """The numbers of the samples of each shape, a group."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, shape in enumerate(self.shapes):
            groups.setdefault(tuple(shape), []).append(number)
        return groups

    @property
    def stack_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the gradients of samples: a stack for each group, or the one array."""
        axis = self.axis or 0
        groups = self.groups.items()
        return [(*shape[:axis], len(numbers), *shape[axis:]) for shape, numbers in groups]

    def split(self, stacks: list[Any]) -> list[Any]:
        """Return the gradients of samples from the stacks of all groups, or the one array."""
        if self.axis is not None:
            return list(stacks)
        parts: dict[int, Any] = {}
        for numbers, stack in zip(self.groups.values(), stacks, strict=True):
            parts |= {number: stack[row] for row, number in enumerate(numbers)}
        return [parts[number] for number in range(len(parts))]

    def stack(self, samples: list[Array]) -> Array:
        """Return the stacked windows of samples, a list of arrays or of the one array."""
        args = CropArgs(placements=self.placements)
        return stack_windows(self.options, samples, self.axis, self.shape, args)

    def stack_on_gpu(self, samples: DeviceArrays, adapter: DeviceAdapter) -> DeviceArray:
        """Return the stacked windows of samples on a GPU, made by one launch."""
        return on_gpu.stack_windows(self.options, samples, self.placements, adapter)

    def transposed_on_gpu(self, grad: DeviceArray, adapter: DeviceAdapter) -> list[DeviceArray]:
        """Return the gradients of samples, a stack for each group, made by a launch for each."""
        return [
            on_gpu.compute_sample_gradients(
                grad,
                numbers,
                as_dtype(self.dtype),
                self.resize,
                self.placements,
                self.placed_axes,
                adapter,
            )
            for numbers in self.groups.values()
        ]

    def transposed(self, grad: Array) -> list[Array]:
        """Return the gradients of samples, a stack for each group, from the gradient of windows."""
        target, threads = as_dtype(self.dtype), self.keywords.get("threads")
        stacks = (
            compute_sample_gradients(
                grad, numbers, target, self.resize, self.placements, self.placed_axes, threads
            )
            for numbers in self.groups.values()
        )
        return [np.moveaxis(stack, 0, self.axis or 0) for stack in stacks]


def make_keywords(
    options: CollateOptions, letters: str, shapes: Array, dtype: DType
) -> dict[str, Any]:
    """Return the keywords of the Collator that stacks the windows, without defaults."""
    keywords: dict[str, Any] = {}
    fill = (0,) if options.fill is None and options.fills else options.fill
    if fill is not None and options.channels is not None and len(fill) > 1:
        count = int(shapes[0, letters.index("c")])  # `fill` may have fewer or more values
        fill = (*fill, *[0] * count)[:count]
    if fill is not None:
        keywords["fill"] = fill if len(fill) > 1 else fill[0]
    if options.convert.threads is not None:
        keywords["threads"] = options.convert.threads
    resize = options.resize
    if resize is None:
        return keywords
    keywords |= ResizeOptions(resize.filter, resize.antialias).keywords()
    if not moves_items(resize, dtype, supports_float16):
        keywords["dtype"] = choose_summed_dtype(dtype).name
    return keywords


def choose_letters(ndim: int, channel: int | None) -> str:
    """Return the letters of the axes of a sample; the axis `channel` is c."""
    return "".join("c" if axis == channel else _LETTERS[axis] for axis in range(ndim))
