"""Packed batches: samples of different sizes, one after the other along the first axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._utils.indexing import as_int_array
from ..._utils.validation import show
from ...errors import ArgumentError, ShapeError
from ...layout.pattern import MAX_ELEMENTS, Pattern, Permutation
from ...memory import Array, row_bytes
from ...normalize import CHANNEL
from ..fitting import MAX_SIDE, scale_sides
from ..resize import ResizeOptions
from .arguments import CropArgs, PerSampleArgs, parse_offset_and_flip, parse_per_sample
from .placement import match_placements
from .samples import SampleAxes

if TYPE_CHECKING:
    from ...options import CollateOptions

MAX_RESOLVED = 1024  # windows whose moves are kept; a larger batch keeps all of its own
MAX_ASPECT_RATIO = 200  # of images whose sizes are chosen, as in transformers' smart_resize


class Packed(NamedTuple):
    """Samples of different sizes in one array, one after the other along its first axis.

    Attributes
    ----------
    data : array
        All samples, an array of the library of the samples.
    sizes : int64 array (samples, axes)
        The size of each sample along the axes of the first fold that differ, in its order.
    offsets : int64 array (samples + 1,)
        Sample i is `data[offsets[i] : offsets[i + 1]]`; in attention, the cumulative lengths
        (`cu_seqlens`) of variable-length sequences.
    """

    data: Any
    sizes: Array
    offsets: Array

    def split(self) -> list[Any]:
        """Return the samples: views of `data`.

        >>> import numpy as np
        >>> from layoutkit import collate
        >>> clips = [np.zeros((3, 8)), np.zeros((5, 8))]
        >>> packed = collate(clips, "tf->(bt)f")
        >>> packed.data.shape, packed.offsets.tolist()
        ((8, 8), [0, 3, 8])
        >>> [clip.shape for clip in packed.split()]
        [(3, 8), (5, 8)]
        """
        return [self.data[first:last] for first, last in pairwise(self.offsets.tolist())]


class PackedLayout(NamedTuple):
    """The windows of the samples of a packed batch, and their places in it."""

    windows: Array  # (samples, axes) int64: the shape of each window
    keys: list[bytes]  # the bytes of each window's shape, by which caches find windows
    moves: list[Permutation]  # of each window, with a batch axis of size 1
    sizes: Array  # (samples, differing axes) int64
    offsets: Array  # (samples + 1,) int64
    shape: tuple[int, ...]  # of the batch


def lay_out_samples(
    options: CollateOptions, axes: SampleAxes, shapes: Array, targets: Array | None
) -> PackedLayout:
    """Return the layout of a packed batch.

    shapes     (samples, axes) int64
    targets    (samples, resizable axes) int64, the sizes of windows along these axes; None: the
               sizes of the samples

    Raises ShapeError if a sample does not fit the pattern, or if no memory holds the batch.
    """
    windows: Array = np.empty(shapes.shape, np.int64)
    windows[:] = axes.window(shapes)
    selected = axes.select_channels(shapes)
    for axis in axes.packed_axes:
        windows[:, axis] = selected[:, axis]
    if targets is not None:
        windows[:, [*axes.resizable.values()]] = targets
    sizes_of_options = tuple(options.convert.sizes.items())
    resolve = _make_resolver(axes.pattern, axes.packed, options.letter, sizes_of_options)
    keys = row_bytes(windows)
    try:
        moves, numbers = resolve(keys)
    except ShapeError as error:
        cure = f"; multiple={axes.patch_side} alone chooses such sizes"
        if options.resize is None:
            option = f'resize="bicubic", multiple={axes.patch_side}'
            cure = "" if targets is not None else f"; {option} resizes samples to such sizes"
        raise ShapeError(f"{error}{cure}") from None
    offsets = np.zeros(len(keys) + 1, np.int64)
    numbers[:, 0].cumsum(out=offsets[1:])
    rows, rest = offsets.item(-1), moves[0].target_shape[1:]
    if max(rows, 1) * prod([size or 1 for size in rest]) >= MAX_ELEMENTS:
        raise ShapeError(
            f'"{axes.pattern.text}" packs {len(keys)} samples to shape {(rows, *rest)}, which '
            "no memory holds; give fewer or smaller samples"
        )
    return PackedLayout(windows, keys, moves, numbers[:, 1:].copy(), offsets, (rows, *rest))


class _Resolved(NamedTuple):
    """The windows that a `_Resolver` has resolved."""

    places: dict[bytes, int]  # of each window in the following
    moves: list[Permutation]
    numbers: Array  # (windows, 1 + letters) int64: rows in the batch, and sizes along the letters


class _Resolver:
    """A function of the shapes of windows that keeps its results."""

    def __init__(
        self, pattern: Pattern, letters: str, batch_letter: str, sizes: dict[str, int]
    ) -> None:
        self._pattern = pattern
        self._letters = letters
        self._axis = pattern.source.groups.index(batch_letter)
        self._sizes = sizes
        self._known = self._empty = _Resolved({}, [], np.empty((0, 1 + len(letters)), np.int64))

    def __call__(self, windows: list[bytes]) -> tuple[list[Permutation], Array]:
        """Return the move of each window, with a batch axis of size 1, and its numbers.

        windows    the shape of each window, as bytes of int64

        Numbers are int64 (windows, 1 + letters): the rows of a window in the batch, and its sizes
        along the letters. Raises ShapeError, with the number of the first window that does not fit
        the pattern.
        """
        known = self._known
        try:
            places = [known.places[window] for window in windows]
        except KeyError:
            known = self._known = self._resolve(known, windows)
            places = [known.places[window] for window in windows]
        return [known.moves[place] for place in places], known.numbers.take(places, 0)

    def _resolve(self, known: _Resolved, windows: list[bytes]) -> _Resolved:
        """Return `known` with these windows, or only these if there would be too many."""
        if len({*known.places, *windows}) > MAX_RESOLVED:
            known = self._empty
        places, moves, rows = {**known.places}, [*known.moves], []
        for number, window in enumerate(windows):
            if window in places:
                continue
            shape = np.frombuffer(window, np.int64).tolist()
            shape.insert(self._axis, 1)
            try:
                move = self._pattern.resolve(shape, self._sizes)
            except ShapeError as error:
                raise ShapeError(f"sample {number}, with b=1: {error}") from None
            by_letter = dict(zip(move.target_axes, move.target_sizes, strict=True))
            places[window] = len(moves)
            moves.append(move)
            rows.append([move.target_shape[0], *[by_letter[letter] for letter in self._letters]])
        return _Resolved(places, moves, np.concatenate([known.numbers, np.array(rows, np.int64)]))


@lru_cache(maxsize=32)
def _make_resolver(
    pattern: Pattern, letters: str, batch_letter: str, sizes: tuple[tuple[str, int], ...]
) -> _Resolver:
    return _Resolver(pattern, letters, batch_letter, dict(sizes))


def packs_constants(options: CollateOptions, axes: SampleAxes) -> bool:
    """Return True if samples may differ along the channels or the axis of the constants."""
    formula = options.convert.formula
    constants_axis = formula.axis if formula is not None and formula.per_channel else CHANNEL
    return bool({CHANNEL, constants_axis} & {*axes.packed_names})


def parse_packed_args(
    options: CollateOptions, axes: SampleAxes, shapes: Array, args: CropArgs
) -> tuple[dict[str, PerSampleArgs], Array | None]:
    """Return the arguments `offset`, `flip` and `crop` of a call by axis, and the chosen sizes.

    Sizes are int64 (samples, resizable axes); None: windows have the sizes of their samples.
    """
    count, resize = len(shapes), options.resize
    placed = axes.cropped | axes.resizable
    resized = [*axes.resizable.values()]
    if args.placements is not None:
        placements = match_placements(options, axes, axes.select_channels(shapes), args)
        columns = placed.values()
        fields = {"offset": placements.begins}
        if resize is not None:
            fields["crop"] = placements.sizes
        by_axis = {name: {n: values[:, n] for n in columns} for name, values in fields.items()}
        flips = placements.flips.astype(np.int64)
        by_axis["flip"] = {n: flips[:, n] for n in axes.axis_indices.values()}
        return by_axis, placements.scaled[:, resized]
    if resize is None:
        offset, flip = parse_offset_and_flip(axes, args, count)
        return {"offset": offset, "flip": flip}, parse_size(options, axes, count, args.size)
    parsed = {
        "offset": parse_per_sample("offset", args.offset, placed, count),
        "flip": parse_per_sample("flip", args.flip, axes.axis_indices, count),
        "crop": parse_per_sample("crop", args.crop, placed, count),
    }
    extents = shapes.copy()
    for axis, values in parsed["crop"].items():
        extents[:, axis] = values
    sizes = parse_size(options, axes, count, args.size)
    return parsed, _choose_sizes(resize, axes, extents[:, resized]) if sizes is None else sizes


def _choose_sizes(resize: ResizeOptions, axes: SampleAxes, extents: Array) -> Array:
    """Return the sizes to which samples are resized, int64 (samples, resizable axes).

    extents    (samples, resizable axes) int64, the sizes of the samples, or of their crops

    Raises ArgumentError or ShapeError if no option chooses them, or if it cannot.
    """
    names = [*axes.resizable]
    if resize.short_side is not None:
        return _check_sizes(names, scale_sides(extents, resize.short_side, resize.max_side))
    if resize.multiple is None:
        pair = ", ".join([str(8 * axes.patch_side)] * len(names))
        raise ArgumentError(
            f"resize={resize.filter!r} needs the sizes of the resized samples: give "
            f"size=({pair}), one per sample, or multiple={axes.patch_side} to choose them"
        )
    return _choose_multiples(resize, names, extents)


def parse_size(options: CollateOptions, axes: SampleAxes, count: int, size: Any) -> Array | None:
    """Return the sizes of windows in pixels, int64 (samples, resizable axes); None: none are given.

    size    the argument of the call: one size for all samples, or one per sample; None: the option

    Raises ArgumentError or ShapeError if they are malformed.
    """
    size = options.size if size is None else size
    if size is None:
        return None
    names = [*axes.resizable]
    numbers = as_int_array(size)
    expected = f"{len(names)} whole numbers ({', '.join(names)}) for all samples, or per sample"
    if numbers is None or numbers.dtype.kind != "i" or numbers.shape[-1:] != (len(names),):
        raise ArgumentError(f"size={show(size)}; it must be {expected}")
    if numbers.ndim > 2 or (numbers.ndim == 2 and len(numbers) != count):
        raise ShapeError(f"size has shape {numbers.shape} for {count} samples; give {expected}")
    return _check_sizes(names, np.broadcast_to(numbers, (count, len(names))).astype(np.int64))


def _check_sizes(names: Sequence[str], rows: Array) -> Array:
    """Return the sizes of windows unchanged; raise ShapeError for one that is not possible."""
    for number, axis in zip(*((rows < 1) | (rows > MAX_SIDE)).nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} has size={rows[number, axis]} along {names[axis]}; give sizes "
            f"from 1 to {MAX_SIDE}"
        )
    return rows


def _choose_multiples(resize: ResizeOptions, names: Sequence[str], extents: Array) -> Array:
    if len(names) != 2:
        raise ArgumentError(
            f"multiple={resize.multiple} chooses the height and width of images, but the axes that "
            f"differ are {', '.join(names)}; give size="
        )
    pairs = enumerate(extents.tolist())
    chosen = [_choose_pair(resize, names, number, *pair) for number, pair in pairs]
    return np.array(chosen, np.int64)


def _choose_pair(
    resize: ResizeOptions, names: Sequence[str], number: int, height: int, width: int
) -> tuple[int, int]:
    """Return the size of an image as transformers' Qwen2-VL processor chooses it (smart_resize).

    Both sides are the nearest multiples; if their area is out of bounds, the image is scaled to the
    bound first, and sides are rounded inwards.
    """
    short, long = sorted((height, width))
    if not 1 <= long <= MAX_ASPECT_RATIO * short:
        raise ShapeError(
            f"sample {number} has sizes {names[0]}={height} and {names[1]}={width}, of an aspect "
            f"ratio above {MAX_ASPECT_RATIO}; crop it, or give size="
        )
    step = resize.multiple or 1
    lowest = step * step if resize.min_pixels is None else resize.min_pixels
    rows, columns = round(height / step) * step, round(width / step) * step
    if resize.max_pixels is not None and rows * columns > resize.max_pixels:
        scale = math.sqrt(height * width / resize.max_pixels)
        rows = max(step, math.floor(height / scale / step) * step)
        columns = max(step, math.floor(width / scale / step) * step)
    elif rows * columns < lowest:
        scale = math.sqrt(lowest / (height * width))
        rows = math.ceil(height * scale / step) * step
        columns = math.ceil(width * scale / step) * step
    return rows, columns
