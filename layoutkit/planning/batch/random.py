"""The options that place windows in samples: fixed values, and values drawn for each sample.

A random value depends only on the seed, the epoch and the position of the sample in its whole
source: threads, partitions, batches and resuming make no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ..._utils.cache import MAX_KEPT
from ..._utils.random import as_fractions, hash64, limit_bits, make_key
from ..._utils.spelling import find_similar
from ..._utils.validation import as_int, show
from ...errors import ArgumentError
from ...layout.pattern import axis_name
from ...memory import Array
from ...normalize import CHANNEL
from ..centering import centered_start
from ..fitting import (
    DRAWS_PER_TRY,
    EXCHANGE,
    LEFT,
    RATIO,
    SHARE,
    TOP,
    TRIES,
    interpolate,
    round_half_even,
)
from ..keywords import collect_keywords, format_sizes, format_sizes_as_dict
from .arguments import RANDOM, WIDTHS, CropArgs, DrawnByAxis

# The counters of the draws of a crop, for all tries or (the last one) within a try.
_FIRSTS = np.arange(0, TRIES * DRAWS_PER_TRY, DRAWS_PER_TRY, dtype=np.uint64)
_EXCHANGES = _FIRSTS + np.uint64(EXCHANGE)
_SHARES_AND_RATIOS = np.concatenate([_FIRSTS + np.uint64(SHARE), _FIRSTS + np.uint64(RATIO)])
_PLACES = np.array([TOP, LEFT])


class SourcePositions(NamedTuple):
    """Positions of samples in the whole source: numbers and, for part files, file names."""

    numbers: Array
    files: list[str] | None = None


class RandomCrop(NamedTuple):
    """The distribution of random crops, by default as torchvision's RandomResizedCrop.

    scale            bounds of the crop's share of the area, which is drawn uniformly
    ratio            bounds of its aspect ratio (width / height)
    is_log           True: the logarithm of the ratio is uniform; False: the ratio is, as in MXNet
    exchanges        True: the sides of half of the crops are exchanged, as in MXNet
    fallback_ratio   bounds of the ratio of the central crop; None: `ratio`
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    is_log: bool = True
    exchanges: bool = False
    fallback_ratio: tuple[float, float] | None = None

    def draw(self, sizes: Array, draw: Callable[[Array], Array]) -> tuple[Array, Array]:
        """Return the first positions and the sizes of crops, both int64 (samples, 2).

        The first of TRIES crops that is inside the sample is used; if none is, the largest
        central crop whose aspect ratio is within the bounds. As in torchvision, the margin after a
        central crop is the larger one if the margins differ.

        sizes : int64 (samples, 2)    heights and widths
        draw : function of counters, uint64 (n,) or (samples, n), below TRIES * DRAWS_PER_TRY
            Returns a number in [0, 1) for each sample and counter, float64 (samples, n).
        """
        sides = self._draw_sides(sizes, draw)
        fits = (sides > 0) & (sides <= sizes.T[..., None])
        fits = fits[0] & fits[1]
        rows, first = np.arange(len(sizes)), fits.argmax(1)  # 0 if no try fits
        extents = sides[:, rows, first].T.astype(np.int64)
        counters = first[:, None] * DRAWS_PER_TRY + _PLACES
        offsets = (draw(counters.astype(np.uint64)) * (sizes - extents + 1)).astype(np.int64)
        (central,) = (~fits[rows, first]).nonzero()
        if central.size:
            offsets[central], extents[central] = self.find_central(sizes[central])
        return offsets, extents

    @property
    def ratio_bounds(self) -> tuple[float, float]:
        """The bounds between which the ratio, or its logarithm, is uniform."""
        low, high = self.ratio
        return (math.log(low), math.log(high)) if self.is_log else (low, high)

    def _draw_sides(self, sizes: Array, draw: Callable[[Array], Array]) -> Array:
        """Return the heights and widths of all tries, float64 (2, samples, TRIES)."""
        shares, ratio = draw(_SHARES_AND_RATIOS).reshape(-1, 2, TRIES).transpose(1, 0, 2)
        area = sizes[:, :1] * sizes[:, 1:] * interpolate(*self.scale, shares)
        ratio = interpolate(*self.ratio_bounds, ratio)
        ratio = np.exp(ratio) if self.is_log else ratio
        sides = round_half_even(np.sqrt(np.stack([area / ratio, area * ratio])))
        if self.exchanges:
            sides = np.where(draw(_EXCHANGES) >= 0.5, sides[::-1], sides)
        return sides

    def find_central(self, sizes: Array) -> tuple[Array, Array]:
        """Return the first positions and the sizes of central crops of samples of `sizes`."""
        low, high = self.fallback_ratio or self.ratio
        height, width = np.maximum(sizes, 1).T
        rows = np.where(width / height < low, np.rint(width / low), height)
        columns = np.where(width / height > high, np.rint(height * high), width)
        extents = np.minimum(np.maximum(np.stack([rows, columns], 1), 1), sizes)
        return centered_start(sizes - extents, "floor"), extents


NO_WINDOWS: Mapping[str, Array] = {}


class Draws(NamedTuple):
    """The values that are drawn for each sample of a batch: offsets, flips, then a crop."""

    keys: Array  # (values, 1 or samples) uint64; a random crop has one, the last
    positions: Array  # (samples,) int64, in the source
    offsets: list[tuple[int, int]]  # for each: the axis of a sample, and the size of the window
    flips: int  # the number of axes along which windows are flipped
    crop: RandomCrop | None
    sides: list[int]  # the vertical and the horizontal axis of a random crop


def draw_values(draws: Draws, shapes: Array) -> Array:
    """Return the drawn values of samples of `shapes` (samples, axes), int64 (values, samples).

    A flip is 0 or 1. The four rows of a random crop are its first positions and its sizes, vertical
    and horizontal. This definition decides; `layoutkit/placement.py` calls a faster kernel.
    """
    words = hash64(draws.keys, draws.positions.astype(np.uint64))
    count = len(draws.offsets)
    rows = [words[count : count + draws.flips] & np.uint64(1)]
    if draws.offsets:
        axes, windows = np.array(draws.offsets).T
        spare = (shapes[:, axes] - windows).T
        counts = (np.abs(spare) + 1).astype(np.uint64)
        firsts = limit_bits(words[:count], draws.keys[:count], counts)
        # Windows that are larger than their samples begin before them.
        rows.insert(0, firsts.astype(np.int64) + np.minimum(spare, 0))
    if draws.crop is not None:
        crops = draws.crop.draw(
            shapes[:, draws.sides],
            lambda counters: as_fractions(hash64(words[-1][:, None], counters)),
        )
        rows += [columns.T for columns in crops]
    return np.concatenate([row.astype(np.int64) for row in rows])


class CropAxes(NamedTuple):
    """The axes of samples along which windows can be placed."""

    text: str  # the pattern, for errors
    axis_indices: Mapping[str, int]  # the index in a sample of each axis, by name
    sizes: Mapping[str, int]  # of windows, by name; other axes have no window
    resized: bool  # True if samples are resized to these sizes
    packed: tuple[str, ...] = ()  # axes along which windows may differ, with or without a size

    @property
    def placed(self) -> list[str]:
        """The names of the axes along which samples have windows."""
        return [*dict.fromkeys((*self.sizes, *(self.packed if self.resized else ())))]

    @property
    def sides(self) -> list[str]:
        """The vertical and the horizontal axis of random crops, if these are two axes."""
        names = self.placed
        if len(names) != 2:  # such as the images of videos of any length
            names = [name for name in names if name not in self.packed]
        return sorted(names, key=WIDTHS.__contains__)


class CropOptions(NamedTuple):
    """The checked options `offset`, `flip` and `crop`: pairs of an axis and a value, or RANDOM."""

    offset: tuple[tuple[str, Any], ...] = ()
    flip: tuple[tuple[str, Any], ...] = ()
    crop: tuple[tuple[str, int], ...] | RandomCrop = ()
    seed: int | None = None  # None: of the loop that calls the Collator, else 0

    @property
    def random_args(self) -> list[str]:
        """The names of the arguments that are drawn."""
        is_drawn = {
            "offset": any(value == RANDOM for _, value in self.offset),
            "flip": any(value == RANDOM for _, value in self.flip),
            "crop": isinstance(self.crop, RandomCrop),
        }
        return [name for name, drawn in is_drawn.items() if drawn]

    @property
    def is_random(self) -> bool:
        """True if an argument is drawn."""
        return bool(self.random_args)

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        keywords = collect_keywords(self, self._field_defaults)
        if isinstance(self.crop, RandomCrop):
            keywords["crop"] = {"scale": self.crop.scale, "ratio": self.crop.ratio}
        return keywords

    def without(self, args: CropArgs) -> CropOptions:
        """Return the options that the arguments of a call do not replace."""
        return CropOptions(
            self.offset if args.offset is None else (),
            self.flip if args.flip is None else (),
            self.crop if args.crop is None else (),
            self.seed,
        )

    def fixed(self) -> CropArgs:
        """Return fixed options as the arguments of a call; values that are drawn are omitted."""
        crops = () if isinstance(self.crop, RandomCrop) else self.crop
        offset, flip, crop = (
            {name: value for name, value in pairs if value != RANDOM} or None
            for pairs in (self.offset, self.flip, crops)
        )
        return CropArgs(offset, flip, crop)

    def prepare(self, axes: CropAxes) -> PreparedDraws:
        """Return what does not depend on a call: the values to draw, and the fixed ones."""
        random_crop = self.crop if isinstance(self.crop, RandomCrop) else None
        crop = () if isinstance(self.crop, RandomCrop) else self.crop
        offsets = [name for name, value in self.offset if value == RANDOM]
        flips = [name for name, value in self.flip if value == RANDOM]
        purposes: tuple[tuple[str, ...], ...]
        purposes = *zip(repeat("offset"), offsets), *zip(repeat("flip"), flips)
        if random_crop is not None:
            purposes += (("crop",),)
        fixed = []
        for pairs in (self.offset, self.flip, crop):
            values = {name: 0 if value == RANDOM else value for name, value in pairs}
            fixed.append({name: np.array(value, np.int64) for name, value in values.items()})
        sizes = {**axes.sizes, **dict(crop)}
        return PreparedDraws(
            axes.axis_indices,
            self.seed or 0,
            purposes,
            offsets,
            {name: sizes[name] for name in offsets if name in sizes},
            flips,
            random_crop,
            [] if random_crop is None else axes.sides,
            *fixed,
        )


class PreparedDraws(NamedTuple):
    """The options that place windows in samples of one rank, prepared for all calls."""

    axis_indices: Mapping[str, int]  # the index in a sample of each axis, by name
    seed: int
    purposes: tuple[tuple[str, ...], ...]  # of each drawn value, for its key
    offsets: list[str]  # the axes along which the start of a window is drawn
    sizes: dict[str, int]  # of windows along `offsets`, unless only calls have them
    flips: list[str]  # the axes along which flips are drawn
    random_crop: RandomCrop | None
    sides: list[str]  # the vertical and the horizontal axis of a random crop
    # Fixed values by axis, and 0 where a value is drawn.
    offset: dict[str, Array]
    flip: dict[str, Array]
    crop: dict[str, Array]

    def draw(
        self,
        shapes: Array,
        positions: SourcePositions,
        epoch: int | str,
        draw_values: Callable[[Draws, Array], Array] = draw_values,
        windows: Mapping[str, Array] = NO_WINDOWS,
    ) -> CropArgs:
        """Return the options as the arguments of a call, with random values for each sample.

        `shapes` has the shape of each sample as a row. `windows` has the sizes of the windows, or
        of the parts that are resized, by axis, if they are arguments of the call: one size, or one
        per sample.
        """
        stage = self.seed, epoch
        if positions.files is None:
            keys = _make_keys(self.purposes, stage)
        else:
            keys = _make_file_keys(self.purposes, stage, positions.files)
        index, offsets, flips, sides = self.axis_indices, self.offsets, self.flips, self.sides
        sizes = self.sizes
        if windows:  # offsets are drawn from the positions that windows of size 0 would have
            sizes = sizes | dict.fromkeys(windows, 0)
            shapes = shapes.copy()
            for name, window in windows.items():
                shapes[:, index[name]] -= window
        draws = Draws(
            keys,
            positions.numbers,
            [(index[name], sizes[name]) for name in offsets],
            len(flips),
            self.random_crop,
            [index[name] for name in sides],
        )
        offset, flip, crop = map(DrawnByAxis, (self.offset, self.flip, self.crop))
        values = iter(draw_values(draws, shapes))
        for by_axis, names in ((offset, offsets), (flip, flips), (offset, sides), (crop, sides)):
            by_axis.update(zip(names, values, strict=False))
        return CropArgs(offset or None, flip or None, crop or None)


NO_CROPS = CropOptions()


def as_positions(positions: Any) -> SourcePositions:
    """Return `positions` as SourcePositions; raise ArgumentError unless they are integers."""
    if isinstance(positions, SourcePositions):
        return positions
    try:
        numbers = np.asarray(positions)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        raise ArgumentError(f"positions={show(positions)}; it must be a list of whole numbers")
    return SourcePositions(numbers.astype(np.int64))


@lru_cache(maxsize=MAX_KEPT)
def _make_keys(purposes: tuple[tuple[str, ...], ...], stage: tuple[int, int | str]) -> Array:
    """Return a read-only key for each purpose, uint64 (purposes, 1); `stage` is seed and epoch."""
    keys = np.array([[make_key(*purpose, *stage)] for purpose in purposes], np.uint64)
    keys.flags.writeable = False
    return keys


def _make_file_keys(
    purposes: tuple[tuple[str, ...], ...], stage: tuple[int, int | str], files: list[str]
) -> Array:
    """Return a key for each purpose and sample, uint64, of samples of several files."""
    by_file = [
        {file: make_key(*purpose, *stage, file) for file in {*files}} for purpose in purposes
    ]
    return np.array([[*map(keys.__getitem__, files)] for keys in by_file], np.uint64)


def parse_crops(axes: CropAxes, offset: Any, flip: Any, crop: Any, seed: Any) -> CropOptions:
    """Return the checked options.

    Raises ArgumentError if one is malformed, or has no axis to apply to.
    """
    number = as_int(seed)
    if number is None and seed is not None:
        raise ArgumentError(f"seed={show(seed)}; it must be a whole number")
    crops = _parse_crop(crop, axes)
    offsets = _parse_offset(offset, axes, crops)
    return CropOptions(offsets, _parse_flip(flip, axes), crops, number)


def _parse_crop(crop: Any, axes: CropAxes) -> tuple[tuple[str, int], ...] | RandomCrop:
    if crop is None:
        return ()
    if not axes.resized:
        window = "size=(224, 224)" if axes.packed else format_sizes(crop)
        raise ArgumentError(
            f"crop={show(crop)} is a part of samples that is resized; give resize= as well, or "
            f'windows of one size, {window}, offset="random"'
        )
    if isinstance(crop, Mapping) and {*map(axis_name, crop)} & {*axes.placed}:
        pairs = _parse_by_axis("crop", crop, axes.placed).items()
        return tuple((name, _parse_extent(name, value)) for name, value in pairs)
    if len(axes.sides) != 2:
        part = ", ".join(f'"{name}": 200' for name in axes.packed)
        cure = f'crop={{{part}}}, offset="random"' if part else "h= and w="
        raise ArgumentError(
            f"crop={show(crop)} draws parts of images, which are resized along two axes, but "
            f'"{axes.text}" has sizes along {", ".join(axes.placed) or "no axis"}; give {cure}'
        )
    if not isinstance(crop, Mapping):
        sizes = f"a dict of scale and ratio, or sizes by axis, such as {format_sizes_as_dict(crop)}"
        _check_random("crop", crop, sizes)
        return RandomCrop()
    return _parse_bounds(crop)


def _parse_extent(name: str, value: Any) -> int:
    number = as_int(value)
    if number is None or number < 1:
        raise ArgumentError(
            f"crop[{name!r}] is {show(value)}; "
            "give a whole number of at least 1, or one per sample to a call"
        )
    return number


def _parse_bounds(crop: Mapping[str, Any]) -> RandomCrop:
    default = RandomCrop()
    bounds = {"scale": default.scale, "ratio": default.ratio}
    for name, pair in crop.items():
        low, high = pair if isinstance(pair, list | tuple) and len(pair) == 2 else (0, 0)
        are_numbers = all(isinstance(n, int | float) for n in (low, high))
        if name not in bounds or not are_numbers or not 0 < low <= high < math.inf:
            raise ArgumentError(
                f"crop={show(crop)}; give bounds, the lower one first: scale=(0.08, 1), the share "
                "of the area, and ratio=(3/4, 4/3), width / height; or sizes by axis, as in "
                '{"h": 200, "w": 200}'
            )
        bounds[name] = float(low), float(high)
    if bounds["scale"][1] > 1:
        raise ArgumentError(f"crop={show(crop)}: scale is a share of the area, of at most 1")
    return RandomCrop(bounds["scale"], bounds["ratio"])


def _parse_offset(option: Any, axes: CropAxes, crop: Any) -> tuple[tuple[str, Any], ...]:
    """Return the offset by axis; "random" alone applies to each axis that has a window."""
    if isinstance(crop, RandomCrop):
        if option is not None:
            raise ArgumentError(
                f"offset={show(option)}, but random crops have random offsets; omit it"
            )
        return ()
    cropped = [name for name, _ in crop] if axes.resized else axes.placed
    offsets: dict[str, Any]
    if isinstance(option, str) and option == RANDOM:
        offsets = dict.fromkeys(cropped, RANDOM)
    else:
        offsets = _parse_by_axis("offset", option, axes.axis_indices)
    for name, value in offsets.items():
        number = as_int(value)
        if number is not None:
            offsets[name] = number
            continue
        _check_random(f"offset[{name!r}]", value, "or a whole number")
        offsets[name] = RANDOM
    lacking = [name for name, value in offsets.items() if value == RANDOM and name not in cropped]
    if lacking or (option is not None and not offsets):
        others = axes.placed
        if not axes.resized:
            others = [name for name in axes.axis_indices if name != CHANNEL] or ["h", "w"]
        raise _make_no_window_error(option, axes, lacking or others)
    return tuple(offsets.items())


def _make_no_window_error(option: Any, axes: CropAxes, names: Sequence[str]) -> ArgumentError:
    listed = ", ".join(names)
    if axes.resized:
        crop = ", ".join(f'"{name}": 200' for name in names)
        return ArgumentError(
            f'offset={show(option)} draws the start of a crop, but Collator("{axes.text}") resizes '
            f"all of {listed}; give the size of the crop too, as in crop={{{crop}}}, or "
            'crop="random" for random parts of images'
        )
    sizes = ", ".join(f"{name}=224" for name in names)
    if axes.packed:
        sizes = f"size=({', '.join(['224'] * len(axes.packed))})"
        listed = ", ".join(axes.packed)
    return ArgumentError(
        f'offset={show(option)} draws the start of a window, but Collator("{axes.text}") has no '
        f"window along {listed}; give the Collator window sizes, as in {sizes}"
    )


def _parse_flip(option: Any, axes: CropAxes) -> tuple[tuple[str, Any], ...]:
    if isinstance(option, str) and option == RANDOM:
        option = {name: RANDOM for name in axes.axis_indices if name in WIDTHS}
        if not option:
            axis = next((name for name in axes.axis_indices if name != CHANNEL), CHANNEL)
            raise ArgumentError(
                f'flip="random" flips along w, but "{axes.text}" has no such axis; name one '
                f'of {", ".join(axes.axis_indices) or "its own"}, as in flip={{"{axis}": "random"}}'
            )
    if isinstance(option, str) and axis_name(option) in axes.axis_indices:
        option = {option: True}
    flips = _parse_by_axis("flip", option, axes.axis_indices)
    for name, value in flips.items():
        if isinstance(value, bool | np.bool_):
            flips[name] = bool(value)
        else:
            _check_random(f"flip[{name!r}]", value, "or True or False")
            flips[name] = RANDOM
    return tuple(flips.items())


def _parse_by_axis(arg_name: str, option: Any, names: Collection[str]) -> dict[str, Any]:
    if option is None:
        return {}
    if isinstance(option, str):
        axes = f"an axis ({', '.join(names)}), " if arg_name == "flip" else ""
        _check_random(arg_name, option, f"{axes}or a dict by axis")
    if not isinstance(option, Mapping):
        axis = 'an axis such as "w", ' if arg_name == "flip" else ""
        raise ArgumentError(
            f'{arg_name}={show(option)}; it must be {axis}"random", or a dict such as {{"w": '
            f'"random"}}'
        )
    by_axis = {axis_name(name): value for name, value in option.items()}
    for name in by_axis:
        if name not in names:
            raise ArgumentError(
                f"{arg_name}={show(option)}, but {name!r} is not an axis of windows; their axes "
                f"are {', '.join(names)}"
            )
    return by_axis


# Names of flips in other libraries.
_FLIPS = {
    **dict.fromkeys(("horizontal", "lr", "hflip", "left-right"), '; did you mean "w"?'),
    **dict.fromkeys(("vertical", "ud", "vflip", "up-down"), '; did you mean "h"?'),
    **dict.fromkeys(("hw", "both"), '; give {"h": True, "w": True} for both'),
}


def _check_random(arg_name: str, value: Any, alternatives: str) -> None:
    if isinstance(value, str) and value == RANDOM:
        return
    hint = _find_hint(arg_name, value)
    raise ArgumentError(f'{arg_name} is {show(value)}; it must be "random", {alternatives}{hint}')


def _find_hint(arg_name: str, value: Any) -> str:
    """Return what another library's word, or a typo, means in place of "random"; "" if unknown."""
    name = value.lower() if isinstance(value, str) else ""
    if find_similar(name, [RANDOM, "rand"]):
        return f'; did you mean "{RANDOM}"?'
    if name in ("center", "centre", "middle") and arg_name == "crop":
        return '; resize="bilinear", fit="cover" resizes a centered crop without it'
    if name in ("center", "centre", "middle"):
        return "; omit it: windows are centered by default"
    return _FLIPS.get(name, "") if arg_name == "flip" else ""
