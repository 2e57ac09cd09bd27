"""Files of any size through a conversion, a chunk of the batch at a time.

A chunk is a range of axis `b`, which may be the outermost of a fold, or of another axis where those
would be scattered over a file in shorter runs. It is read (or decoded from pictures) while the one
before is converted and written, and memory is used again for every second chunk, so no more than
about two are resident. A pattern in which `b` is inside of a fold goes in one piece.

Windows of pictures: `--crop` and `--flip`, of files of arrays and of pictures alike.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import buffers
from ..converter import Converter
from ..errors import ArgumentError, DtypeError, ShapeError
from ..layout.pattern import FEATURE, parse_pattern
from ..memory import Array
from ..spec import ArraySpec, DType, can_cast, integer_bounds, kind_of
from .outputs import Destination, NpyFile, create_result, open_destination
from .printing import escape_controls, format_bytes

# Input and output of one chunk together: large against the last cache, so that threads and
# streaming stores pay, and small against the memory of any machine.
_CHUNK_BYTES = 64 << 20

# The same where every chunk is one run of both files, and nothing is gained by more: memory that is
# touched first takes longer than what is done in it. 257 MB of bhwc took 1.6 times as long by 64.
_RUN_BYTES = 16 << 20

# Runs of a file beyond this are as good as longer ones.
_LONG_RUN = 64 << 10

_PER_CHANNEL_OPTIONS = {"mean", "std", "channels"}
_BATCH_NAMES = ("b", "n", "batch")  # what its axis is called


class SlabSource(Protocol):
    """What a conversion reads: an array of which slabs can be fetched."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """Everything between two positions of one axis; the whole if `axis` is None."""


@dataclass(frozen=True)
class FileJob:
    """What to do to the source: the pattern, `Converter`'s keywords, and how to go about it."""

    pattern: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    chunk: int | None = None
    quiet: bool = False

    def converter(self) -> Converter:
        """The conversion of the whole source."""
        return self.part_converter(self.sizes)

    def part_converter(self, sizes: Mapping[str, int]) -> Converter:
        """The conversion of a part, in which axes of folds have other sizes."""
        keywords = {**self.options, **sizes}
        return Converter(self.pattern, **keywords)


def convert_to_file(source: SlabSource, name: str, destination: Destination, job: FileJob) -> None:
    """Convert `source`, called `name` in errors, into the `.npy` file `destination`.

    The file appears when it is complete; after any error or interruption it is as it was.
    """
    began = time.perf_counter()
    with _name_in_errors(name):
        result = _result(source, job)
    with open_destination(destination) as file:
        target = create_result(file, result, destination)
        with _name_in_errors(name):
            _convert_chunks(source, target, name, job)
    if not job.quiet:
        _report(name, source, destination, target, time.perf_counter() - began)


def _result(source: SlabSource, job: FileJob) -> ArraySpec:
    converter = job.converter()
    axes = parse_pattern(job.pattern).left
    result = converter.resolve(ArraySpec(str(axes), source.shape, source.dtype))
    if "casting" not in job.options:
        fix = "say what becomes of them: --casting saturate (clipped), or same_kind (wrapped)"
        check_sign(source.dtype, result.dtype, fix)
    return result


def check_sign(source: DType, result: DType, fix: str) -> None:
    """Refuse integers with a sign that have no room for those without one.

    To NumPy's same_kind that is a cast like others, and 200 becomes -56 without a word.
    """
    if kind_of(source) == "u" and kind_of(result) == "i" and not can_cast(source, result, "safe"):
        raise DtypeError(
            f"{source} to {result} makes negative numbers of those above "
            f"{integer_bounds(result)[1]}; {fix}"
        )


def _convert_chunks(source: SlabSource, target: NpyFile, name: str, job: FileJob) -> None:
    """Convert along one axis, with a progress bar over the samples where somebody sees it.

    A thread reads the next chunk of a file while this one is converted and written. Pictures have
    threads of their own, which an interruption should not have to wait for.
    """
    from tqdm import tqdm  # not needed to refuse a request

    walk = _StreamAxes(job, source.shape)
    axis = _choose_axis(source, target, walk, job)
    left, right = walk.places[axis] if axis else (_NO_AXIS, _NO_AXIS)
    samples = walk.sizes[walk.batch] if walk.batch else 1
    length = walk.sizes[axis] if axis else 1
    in_runs = isinstance(source, NpyFile) and not (
        source.is_scattered(left.axis) or target.is_scattered(right.axis)
    )
    nbytes = _RUN_BYTES if in_runs else _CHUNK_BYTES
    size = max(1, job.chunk or _positions_for(source, target, length, nbytes))
    converter = job.part_converter(walk.sizes_without(axis))
    coming: Future[NDArray[Any]] | None = None
    # In a file of a log each step would be a line.
    unseen = job.quiet or not sys.stderr.isatty()
    label = escape_controls(Path(name).name)
    bar = tqdm(total=samples, desc=label, unit="sample", disable=unseen, file=sys.stderr)
    began = time.perf_counter()
    with bar, ThreadPoolExecutor(1) as reader:
        for start in range(0, length, size):
            stop = min(start + size, length)
            slab = coming.result() if coming else source.read(*left.slab(start, stop))
            if stop < length and isinstance(source, NpyFile):
                coming = reader.submit(source.read, *left.slab(stop, min(stop + size, length)))
            target.write(*right.slab(start, stop), converter(slab))
            del slab  # before the next one
            done = (_nbytes(source) + _nbytes(target)) * stop / length
            bar.set_postfix_str(_format_rate(done, time.perf_counter() - began), refresh=False)
            bar.update(samples * stop // length - samples * start // length)


def _choose_axis(
    source: SlabSource, target: NpyFile, walk: _StreamAxes, job: FileJob
) -> str | None:
    """The axis along which to convert: the batch's, unless slabs of another lie in longer runs.

    A run that is short against a page of the file is paid with a whole page, in every slab again.
    None where the batch is inside of a fold.
    """
    batch = walk.batch
    places = walk.places
    if batch is None or job.chunk or not isinstance(source, NpyFile):
        return batch

    def shortest_run(name: str) -> int:
        left, right = places[name]
        count = _positions_for(source, target, walk.sizes[name], _CHUNK_BYTES)
        if count == 0 and name != batch:  # a single position would be more than a chunk
            return 0
        return min(left.run_bytes(source, max(1, count)), right.run_bytes(target, max(1, count)))

    # What is said of channels is said of all of them, and so every slab needs them all.
    others = places.keys() - ({"c"} if _PER_CHANNEL_OPTIONS & job.options.keys() else set())
    names = [batch, *sorted(others - {batch})]
    return max(names, key=lambda name: min(shortest_run(name), _LONG_RUN))


class _AxisPosition(NamedTuple):
    """Where an axis is: which one of an array, of which `step` positions are one of its own."""

    axis: int | None
    step: int = 1

    def slab(self, start: int, stop: int) -> tuple[int | None, int, int]:
        """A range of positions as files know it."""
        return self.axis, start * self.step, stop * self.step

    def run_bytes(self, file: NpyFile, count: int) -> int:
        """How many bytes lie side by side in so many positions."""
        return file.run_bytes(self.axis or 0, count * self.step)


_NO_AXIS = _AxisPosition(None)


class _StreamAxes:
    """The axes along which a source can be cut into parts that are converted by themselves.

    batch : that of the batch, if it is among them
    places : where they are, in the source and in the result
    sizes : of all axes
    """

    def __init__(self, job: FileJob, shape: tuple[int, ...]) -> None:
        move, picks = job.converter().task.picked(shape)
        whole = move if picks is None else picks.whole(move)
        self.sizes = dict(zip(whole.axes, whole.sizes, strict=True))
        left = _outermost(move.source.groups, self.sizes)
        right = _outermost(move.target.groups, dict(zip(move.axes, move.sizes, strict=True)))
        both = [axis for axis in left if axis in right and axis != FEATURE]
        self.batch = next((axis for axis in both if move.source.name(axis) in _BATCH_NAMES), None)
        # Of others in folds, parts are no better: each is a stripe of every position of the batch.
        self.places = {
            axis: (left[axis], right[axis])
            for axis in both
            if axis == self.batch or left[axis].step == right[axis].step == 1
        }
        self._given = job.sizes
        self._folds = [group for group in move.source.groups if len(group) > 1]
        self._record_name = move.source.name

    def sizes_without(self, axis: str | None) -> dict[str, int]:
        """The sizes of folds that a part of an axis has, too."""
        if axis is None:
            return dict(self._given)
        fold = next((group for group in self._folds if axis in group), "")
        rest = {self._record_name(other): self.sizes[other] for other in fold}
        known = {**self._given, **rest}
        return {name: size for name, size in known.items() if name != self._record_name(axis)}


def _outermost(groups: Sequence[str], sizes: Mapping[str, int]) -> dict[str, _AxisPosition]:
    """The axes that are outermost in theirs: an axis of its own is, with steps of 1."""
    return {
        group[0]: _AxisPosition(at, math.prod(sizes.get(axis, 1) for axis in group[1:]))
        for at, group in enumerate(groups)
        if group
    }


def _positions_for(source: SlabSource, target: NpyFile, length: int, nbytes: int) -> int:
    """How many positions of an axis are so many bytes of both."""
    return nbytes * length // max(1, _nbytes(source) + _nbytes(target))


def _nbytes(array: SlabSource | NpyFile) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


@contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
    """Put the source's name before what the library says about its array."""
    try:
        yield
    except (ShapeError, DtypeError) as error:
        raise type(error)(f"{name}: {error}") from error


def _report(
    name: str, source: SlabSource, destination: Destination, target: NpyFile, seconds: float
) -> None:
    nbytes = _nbytes(source) + _nbytes(target)
    large = nbytes > _CHUNK_BYTES  # below, the time is that of beginning
    print(
        f"{escape_controls(name)} {source.shape} {source.dtype} -> {escape_controls(destination)} "
        f"{target.shape} {target.dtype}: "
        f"{format_bytes(nbytes)} in {seconds:.2f} s"
        + (f", {_format_rate(nbytes, seconds)}" if large else ""),
        file=sys.stderr,
    )


def _format_rate(nbytes: float, seconds: float) -> str:
    return f"{nbytes / 1e9 / max(seconds, 1e-9):.2f} GB/s"


_BATCH_NAMES = ("b", "n", "batch")
_HEIGHT = ("h", "height")
_WIDTH = ("w", "width")


@dataclass(frozen=True)
class Crop:
    """A window of every picture.

    size : (height, width)
    offset : (top, left), None: in the middle, unless there is a seed
    seed : where it is drawn from, with the number of the picture
    """

    size: tuple[int, int]
    offset: tuple[int, int] | None = None
    seed: int | None = None

    def begin(self, number: int, height: int, width: int) -> tuple[int, int]:
        """Where the window of a picture of a size begins; ShapeError where it does not fit."""
        rest = height - self.size[0], width - self.size[1]
        begins = self.offset or (0, 0)
        if any(space < at for space, at in zip(rest, begins, strict=True)):
            shown = "" if self.offset is None else f" at {begins[0]},{begins[1]}"
            raise ShapeError(
                f"--crop {self.size[0]}x{self.size[1]}{shown} reaches beyond a picture of "
                f"{height}x{width} (height x width); give a smaller window, or --resize pictures "
                "before"
            )
        if self.seed is not None:
            draw = np.random.default_rng([self.seed, number])
            return tuple(int(draw.integers(0, space + 1)) for space in rest)  # type: ignore[return-value]
        return begins if self.offset is not None else (rest[0] // 2, rest[1] // 2)

    def crop_image(self, pixels: Array, number: int) -> Array:
        """The window of one picture, whose first axes are height and width."""
        top, left = self.begin(number, *pixels.shape[:2])
        return pixels[top : top + self.size[0], left : left + self.size[1]]


def apply_windows(source: SlabSource, pattern: str, crop: Crop | None, flip: bool) -> SlabSource:
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
    found = [next((n for n in names if n in may), None) for may in (_HEIGHT, _WIDTH, _BATCH_NAMES)]
    if (crop is not None and found[0] is None) or found[1] is None:
        option, axes = ("--flip", "w") if crop is None else ("--crop", "h and w")
        raise ArgumentError(
            f"{option}: on the left of {pattern} there are no axes {axes} of their own; name them, "
            "as in bhwc->bchw"
        )
    if len(names) != len(source.shape):
        return source  # which the conversion refuses
    places = [None if name is None else names.index(name) for name in found]
    return _WindowedSource(source, crop, flip, *places)


class _WindowedSource:
    """A source of which every picture is a window."""

    def __init__(
        self, source: SlabSource, crop: Crop | None, flip: bool, height: int | None,
        width: int | None, batch: int | None,
    ) -> None:  # fmt: skip
        self._source = source
        self._crop = crop
        self._flip = flip
        self._height = height or 0
        self._width = width or 0
        self._batch = batch
        shape = list(source.shape)
        if crop is not None:
            crop.begin(0, shape[self._height], shape[self._width])  # for what it raises
            shape[self._height], shape[self._width] = crop.size
        self.shape = tuple(shape)
        self.dtype = source.dtype

    def read(self, axis: int | None, start: int, stop: int) -> Array:
        """Everything between two positions of the batch; the whole if `axis` is None."""
        slab = self._source.read(axis, start, stop)
        crop = self._crop
        first = 0 if axis is None else start
        if crop is None:
            pass
        elif crop.seed is None or self._batch is None:
            slab = slab[self._window(crop, 0, slab)]
        else:
            slab = self._crop_each_image(crop, first, slab)
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

    def _crop_each_image(self, crop: Crop, first: int, slab: Array) -> Array:
        """The windows of pictures of which each has its own."""
        batch = self._batch or 0
        shape = list(slab.shape)
        shape[self._height], shape[self._width] = crop.size
        made = buffers.empty(tuple(shape), slab.dtype)
        for number in range(slab.shape[batch]):
            one = (slice(None),) * batch + (slice(number, number + 1),)
            made[one] = slab[one][self._window(crop, first + number, slab)]
        return made
