"""Convert arrays of any size, one chunk of the batch at a time.

A chunk is a range along one axis: along the batch axis `b`, which may be the outermost axis of a
fold, or along another axis if its chunks are longer contiguous runs of the files, or if a sample is
larger than a chunk. A thread reads the next chunk of an array file while a chunk is converted and
written. Memory is reused, so about two chunks are in memory at once. If no axis is outermost in
its group on both sides, the array is one chunk.

`apply_windows` implements `--flip`, and `--crop` for array files.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import buffers
from .._utils.errors import prefix_errors
from .._utils.validation import escape_controls
from ..converter import Converter
from ..errors import ArgumentError, DtypeError, ShapeError
from ..layout.pattern import FEATURE, Pattern
from ..memory import Array
from ..spec import CPU, ArraySpec, DType, can_cast, dtype_kind, integer_bounds
from .crop import Crop
from .outputs import Destination, NpyFile, create_result, open_destination
from .printing import format_bytes

# Input and output bytes of one chunk: larger than the last-level cache, so that threads and
# streaming stores pay off, and small compared with the memory of any machine.
CHUNK_BYTES = 64 << 20

# Bytes of a chunk that is contiguous in both files. Larger chunks are slower, as the page faults of
# new memory take longer than the conversion: 257 MB of bhwc took 1.6 times as long with 64 MiB.
RUN_BYTES = 16 << 20

# Bytes; longer contiguous runs of a file are not faster to read or write.
LONG_RUN = 64 << 10

_PER_CHANNEL_OPTIONS = {"mean", "std", "channels", "fill"}
_BATCH_NAMES = ("b", "n", "batch")  # accepted names of the batch axis


class SlabSource(Protocol):
    """An input array that is read by slabs; a slab is a range along one axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """Return the slab `start:stop` along one axis; the whole array if `axis` is None."""


@dataclass(frozen=True)
class FileJob:
    """A conversion to run: the pattern, the keywords of `Converter`, and the streaming options."""

    pattern: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    chunk: int | None = None
    quiet: bool = False

    def converter(self) -> Converter:
        """Return the converter of the whole source."""
        return self.part_converter(self.sizes)

    def part_converter(self, sizes: Mapping[str, int]) -> Converter:
        """Return the converter of a slab of the source, whose folded axes have `sizes`."""
        keywords = {**self.options, **sizes}
        return Converter(self.pattern, **keywords)


def convert_to_file(source: SlabSource, name: str, destination: Destination, job: FileJob) -> None:
    """Convert `source`, called `name` in errors, into the `.npy` file `destination`.

    The destination is replaced when the new file is complete; an error leaves it unchanged.
    """
    start_time = time.perf_counter()
    with prefix_errors(f"{name}: ", ShapeError, DtypeError):
        result = _resolve_result(source, job)
    with open_destination(destination) as file:
        target = create_result(file, result, destination)
        with prefix_errors(f"{name}: ", ShapeError, DtypeError):
            convert_chunks(source, target, name, job)
    if not job.quiet:
        _report(name, source, destination, target, time.perf_counter() - start_time)


def _resolve_result(source: SlabSource, job: FileJob) -> ArraySpec:
    converter = job.converter()
    axes = converter.options.pattern.left
    result = converter.infer_spec(ArraySpec.of(axes, source.shape, source.dtype, CPU))
    if "casting" not in job.options:
        fix = "choose --casting saturate (clip) or same_kind (wrap)"
        check_sign(source.dtype, result.dtype, fix)
    return result


def check_sign(source: DType, result: DType, fix: str) -> None:
    """Raise DtypeError if an unsigned dtype is converted to a signed one that is too small.

    NumPy's same_kind allows this cast, which changes 200 to -56 without an error.
    """
    if (
        dtype_kind(source) == "u"
        and dtype_kind(result) == "i"
        and not can_cast(source, result, "safe")
    ):
        raise DtypeError(
            f"{source} to {result} would make values above "
            f"{integer_bounds(result)[1]} negative; {fix}"
        )


def convert_chunks(source: SlabSource, target: NpyFile, name: str, job: FileJob) -> None:
    """Convert the source in chunks along one axis, with a progress bar on a terminal.

    A thread reads the next chunk of an array file while a chunk is converted and written. Images
    are not decoded ahead, because an interrupt would wait for their decoders.
    """
    from tqdm import tqdm  # a slow import, which invalid arguments do not need

    axes = StreamAxes(job, source.shape)
    axis = choose_axis(source, target, axes, job)
    left, right = axes.positions[axis] if axis else (_NO_AXIS, _NO_AXIS)
    samples = axes.sizes[axes.batch] if axes.batch else 1
    length = axes.sizes[axis] if axis else 1
    one_run_per_chunk = isinstance(source, NpyFile) and not (
        source.is_scattered(left.axis) or target.is_scattered(right.axis)
    )
    nbytes = RUN_BYTES if one_run_per_chunk else CHUNK_BYTES
    size = max(1, job.chunk or _indices_per_chunk(source, target, length, nbytes))
    converter = job.part_converter(axes.sizes_without(axis))
    next_slab: Future[NDArray[Any]] | None = None
    # In a log file, each update of the bar would be a line.
    hide_bar = job.quiet or not sys.stderr.isatty()
    label = escape_controls(Path(name).name)
    bar = tqdm(total=samples, desc=label, unit="sample", disable=hide_bar, file=sys.stderr)
    start_time = time.perf_counter()
    with bar, ThreadPoolExecutor(1) as reader:
        for start in range(0, length, size):
            stop = min(start + size, length)
            slab = next_slab.result() if next_slab else source.read(*left.slab(start, stop))
            if stop < length and isinstance(source, NpyFile):
                next_slab = reader.submit(source.read, *left.slab(stop, min(stop + size, length)))
            target.write(*right.slab(start, stop), converter(slab))
            del slab  # release its memory before the next one is read
            done_bytes = (_nbytes(source) + _nbytes(target)) * stop / length
            bar.set_postfix_str(
                _format_rate(done_bytes, time.perf_counter() - start_time), refresh=False
            )
            bar.update(samples * stop // length - samples * start // length)


def choose_axis(source: SlabSource, target: NpyFile, axes: StreamAxes, job: FileJob) -> str | None:
    """Return the axis of the chunks: the batch axis, or one with longer contiguous runs.

    A run that is shorter than a page of the file costs a full page in every slab. Returns None if
    the source cannot be split.
    """
    batch = axes.batch
    if job.chunk or not isinstance(source, NpyFile):
        return batch

    def rank(name: str) -> tuple[bool, int]:
        """Sort axes with an index that fits into a chunk first, then the longest runs."""
        left, right = axes.positions[name]
        count = _indices_per_chunk(source, target, axes.sizes[name], CHUNK_BYTES)
        if count == 0:
            return False, axes.sizes[name]
        run = min(left.run_bytes(source, count), right.run_bytes(target, count))
        return True, min(run, LONG_RUN)

    # Per-channel options have one value for each channel, so a slab must have all channels.
    candidates = set(axes.positions)
    if _PER_CHANNEL_OPTIONS & job.options.keys():
        candidates.discard("c")
    names = sorted(candidates, key=lambda name: (name != batch, name))
    return max(names, key=rank, default=batch)


class _AxisPosition(NamedTuple):
    """The array axis of a pattern axis, whose indices are `step` array indices apart."""

    axis: int | None
    step: int = 1

    def slab(self, start: int, stop: int) -> tuple[int | None, int, int]:
        """Return a range of indices of the pattern axis as (axis, start, stop) of the array."""
        return self.axis, start * self.step, stop * self.step

    def run_bytes(self, file: NpyFile, count: int) -> int:
        """Return the contiguous bytes in `count` indices of the pattern axis."""
        return file.run_bytes(self.axis or 0, count * self.step)


_NO_AXIS = _AxisPosition(None)


class StreamAxes:
    """The axes along which a source can be split into slabs that are converted separately.

    batch : the batch axis, or None if the source cannot be split along it
    positions : the positions of each such axis in the source and in the result
    sizes : the sizes of all axes
    """

    def __init__(self, job: FileJob, shape: tuple[int, ...]) -> None:
        move, selection = job.converter().options.select_channels(shape)
        full_move = move if selection is None else selection.with_all_channels(move)
        self.sizes = dict(zip(full_move.axes, full_move.sizes, strict=True))
        padded = {*(job.options.get("pad_to") or ()), *(job.options.get("pad_before") or ())}
        left = _outermost(move.source.groups, self.sizes)
        right = _outermost(move.target.groups, dict(zip(move.axes, move.sizes, strict=True)))
        common = [
            axis
            for axis in left
            if axis in right and axis != FEATURE and move.source.name(axis) not in padded
        ]
        self.batch = next((axis for axis in common if move.source.name(axis) in _BATCH_NAMES), None)
        # Splitting other folded axes has no advantage: each slab has a part of every sample.
        self.positions = {
            axis: (left[axis], right[axis])
            for axis in common
            if axis == self.batch or left[axis].step == right[axis].step == 1
        }
        self._sizes = job.sizes
        self._folds = [group for group in move.source.groups if len(group) > 1]
        self._axis_name = move.source.name

    def sizes_without(self, axis: str | None) -> dict[str, int]:
        """Return the fold sizes of a slab along `axis`."""
        if axis is None:
            return dict(self._sizes)
        fold = next((group for group in self._folds if axis in group), "")
        fold_sizes = {self._axis_name(letter): self.sizes[letter] for letter in fold}
        known = {**self._sizes, **fold_sizes}
        return {name: size for name, size in known.items() if name != self._axis_name(axis)}


def _outermost(groups: Sequence[str], sizes: Mapping[str, int]) -> dict[str, _AxisPosition]:
    """Return the outermost axis of each group with its position; an unfolded axis has step 1."""
    return {
        group[0]: _AxisPosition(index, math.prod(sizes.get(axis, 1) for axis in group[1:]))
        for index, group in enumerate(groups)
        if group
    }


def _indices_per_chunk(source: SlabSource, target: NpyFile, length: int, nbytes: int) -> int:
    """Return the number of indices of an axis whose input and output have `nbytes` bytes."""
    return nbytes * length // max(1, _nbytes(source) + _nbytes(target))


def _nbytes(array: SlabSource | NpyFile) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _report(
    name: str, source: SlabSource, destination: Destination, target: NpyFile, seconds: float
) -> None:
    nbytes = _nbytes(source) + _nbytes(target)
    is_large = nbytes > CHUNK_BYTES  # otherwise the startup time dominates
    print(
        f"{escape_controls(name)} {source.shape} {source.dtype} -> {escape_controls(destination)} "
        f"{target.shape} {target.dtype}: "
        f"{format_bytes(nbytes)} in {seconds:.2f} s"
        + (f", {_format_rate(nbytes, seconds)}" if is_large else ""),
        file=sys.stderr,
    )


def _format_rate(nbytes: float, seconds: float) -> str:
    return f"{nbytes / 1e9 / max(seconds, 1e-9):.2f} GB/s"


_HEIGHT_NAMES = ("h", "height")
_WIDTH_NAMES = ("w", "width")


def apply_windows(
    source: SlabSource, pattern: Pattern, crop: Crop | None, flip: bool
) -> SlabSource:
    """Return `source` with its images cropped, and then flipped along the width.

    Raises
    ------
    ArgumentError
        The images do not have height and width as separate axes.
    ShapeError
        The window does not fit.
    """
    if crop is None and not flip:
        return source
    left = pattern.left
    names = [group[0] if len(group) == 1 else "" for group in left.named]
    if left.has_ellipsis:
        dots = names.index("...")
        names[dots : dots + 1] = [""] * (len(source.shape) - len(names) + 1)
    axis_names = [
        next((n for n in names if n in allowed), None)
        for allowed in (_HEIGHT_NAMES, _WIDTH_NAMES, _BATCH_NAMES)
    ]
    if (crop is not None and axis_names[0] is None) or axis_names[1] is None:
        option, axes = ("--flip", "w") if crop is None else ("--crop", "h and w")
        raise ArgumentError(
            f"{option}: the left side of {pattern.text} has no "
            f"separate axes {axes}; name them, as in bhwc->bchw"
        )
    if len(names) != len(source.shape):
        return source  # the conversion raises an error for this rank
    indices = [None if name is None else names.index(name) for name in axis_names]
    return _WindowedSource(source, crop, flip, *indices)


class _WindowedSource:
    """A source whose images are crops or flips of another source's images."""

    def __init__(
        self,
        source: SlabSource,
        crop: Crop | None,
        flip: bool,
        height: int | None,
        width: int | None,
        batch: int | None,
    ) -> None:
        self._source = source
        self._crop = crop
        self._flip = flip
        self._height = height or 0
        self._width = width or 0
        self._batch = batch
        shape = list(source.shape)
        if crop is not None:
            # Raises ShapeError if the window does not fit.
            crop.offset_for(0, shape[self._height], shape[self._width])
            shape[self._height], shape[self._width] = crop.size
        self.shape = tuple(shape)
        self.dtype = source.dtype

    def read(self, axis: int | None, start: int, stop: int) -> Array:
        """Return the slab `start:stop` along one axis; the whole array if `axis` is None."""
        slab = self._source.read(axis, start, stop)
        crop = self._crop
        first = 0 if axis is None else start
        if crop is None:
            pass
        elif crop.seed is None or self._batch is None:
            slab = slab[self._window(crop, 0, slab)]
        else:
            slab = self._crop_each_image(crop, first, slab)
        index: list[Any] = [slice(None)] * slab.ndim
        index[self._width] = slice(None, None, -1 if self._flip else 1)
        return slab[tuple(index)]

    def _window(self, crop: Crop, number: int, slab: Array) -> tuple[slice, ...]:
        offsets = crop.offset_for(number, slab.shape[self._height], slab.shape[self._width])
        window = [slice(None)] * slab.ndim
        for axis, offset, size in zip((self._height, self._width), offsets, crop.size, strict=True):
            window[axis] = slice(offset, offset + size)
        return tuple(window)

    def _crop_each_image(self, crop: Crop, first: int, slab: Array) -> Array:
        batch = self._batch or 0
        shape = list(slab.shape)
        shape[self._height], shape[self._width] = crop.size
        result = buffers.empty(tuple(shape), slab.dtype)
        for number in range(slab.shape[batch]):
            index = (slice(None),) * batch + (slice(number, number + 1),)
            result[index] = slab[index][self._window(crop, first + number, slab)]
        return result
