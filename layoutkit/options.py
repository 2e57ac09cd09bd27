"""The checked options of a Converter and of a Collator, and their stored form.

`to_dict` returns a dict of JSON values: kind and version of the stored form, the pattern, the sizes
of axes and the keywords that are not the defaults. Numbers keep their bits; NaN and infinity, which
JSON lacks, are text. Pickles, graphs and files of options consist of these dicts.

`fingerprint` is the hash of a normal form, in which numbers replace the names of axes, so that
options that differ only in names or in spelling have equal fingerprints.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Unpack, get_type_hints

import numpy as np

from ._utils.indexing import normalize_indices
from ._utils.validation import as_int, check_bool, check_choice, check_int, shorten, show, type_name
from .errors import ArgumentError, DtypeError, PatternError, ShapeError
from .layout.parsing import Layout, parse_layout, with_batch_axis
from .layout.pattern import Pattern, Permutation, as_size, check_rank, parse_pattern
from .memory import Array
from .normalize import CHANNEL, Normalization, Traced, make_normalization
from .planning.batch.random import NO_CROPS, CropAxes, CropOptions, parse_crops
from .planning.batch.samples import LONGEST, SampleAxes, find_packed, make_sample_axes
from .planning.centering import CENTERINGS, DEFAULT_CENTERING
from .planning.channels import ChannelSelection, parse_channels, resolve_selection
from .planning.fitting import MAX_SIDE
from .planning.keywords import (
    CollateKeywords,
    ConvertKeywords,
    WindowKeywords,
    check_sizes,
    collect_keywords,
    format_sizes,
)
from .planning.padding import Padding, fill_values, parse_padding
from .planning.resize import RESIZE_DEFAULTS, ResizeOptions, parse_resize
from .spec import (
    ArraySpec,
    DType,
    as_result_dtype,
    check_cast,
    check_casting,
    check_supported_dtype,
    dtype_kind,
    normalize_device,
)

MAX_THREADS = 256  # of a conversion
VERSION = 1  # of the stored form
NUMERICS = 1  # part of fingerprints: raised when equal options make results of other bits

_NO_SIZES: Mapping[str, int] = MappingProxyType({})
_TYPE_NAMES = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "an object",
}  # fmt: skip
_PER_CHANNEL = {"mean", "std", "fill", "channels"}


@dataclass(frozen=True, slots=True, eq=False)
class ConvertOptions:
    """The checked options of a conversion."""

    pattern: Pattern
    sizes: Mapping[str, int]  # of axes in folds, by name
    dtype: DType | None = None  # of the result; None: of `out` or of x, see `target_dtype`
    formula: Normalization | None = None  # scale, mean, std and clip; None: values do not change
    casting: str = "same_kind"  # one of CASTINGS
    device: str | None = None  # of the result, "cpu" or "cuda:0"; None: of x
    copy: bool | None = None  # True: new memory, False: a view of x, None: a view if possible
    memory: Layout | None = None  # the axes of new memory; None: as in the pattern
    threads: int | None = None  # the maximum number; None: of `set_num_threads`
    padding: Padding | None = None  # pad_to, pad_before, fill and center
    channels: tuple[int, ...] | None = None  # of x, in result order; None: all
    # The result is a part of a large array, so streaming stores write it, as they would write that
    # array. Not an argument: the code that makes the large array sets it.
    is_part: bool = False

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        keywords = collect_keywords(self, _CONVERT_DEFAULTS)
        if self.dtype is not None and self.dtype.fields is None:
            keywords["dtype"] = str(self.dtype)  # a structured dtype has no name to parse
        if self.memory is not None:
            keywords["memory"] = str(self.memory)
        return keywords

    def to_dict(self) -> dict[str, Any]:
        """Return these options in the stored form, a dict of JSON values."""
        pattern = self.pattern
        parsed = parse_pattern(pattern.text, self.sizes)
        text = pattern.text if parsed == pattern else str(pattern)  # of a derived conversion
        return _make_stored("converter", text, self.sizes, self.keywords())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ConvertOptions:
        """Return the options that `to_dict` stored; raise ArgumentError for a wrong key."""
        pattern, sizes, keywords = _read_stored(data, "converter", ConvertKeywords)
        return parse_options(pattern, sizes, **keywords)

    @property
    def fingerprint(self) -> str:
        """The hash of these options, equal in every process and for every spelling."""
        return hash_form(self.normal_form())

    def normal_form(self, *, keeps_names: bool = False) -> dict[str, Any]:
        """Return the normal form, JSON values that are equal for equal fingerprints."""
        return _make_normal_form(self, self.keywords(), _number_axes(self.pattern, keeps_names))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.pattern, self.formula, self.casting, self.channels))

    def _key(self) -> tuple[Any, ...]:
        return self.pattern, self.sizes, self.keywords(), self.is_part

    @property
    def is_composed(self) -> bool:
        """True if `memory=` or `pad_to=` makes this more than one conversion: see `plan.py`."""
        return self.memory is not None or self.padding is not None

    def check_spec(self, spec: ArraySpec) -> None:
        """Raise PatternError unless the spec has the layout of the left side."""
        expanded = self.pattern.expand_ellipsis(len(spec.shape))
        sides = (self.pattern.left, self.pattern.source, expanded.left, expanded.source)
        if spec.axes not in map(str, sides):
            raise PatternError(
                f'the spec is of layout {spec.axes}, but "{self.pattern.text}" converts '
                f"{self.pattern.left}; give a spec of that layout"
            )

    def infer_result(
        self, shape: tuple[int, ...], source: DType, out: Any = None
    ) -> tuple[Permutation, ChannelSelection | None, DType]:
        """Return the resolved move, the channel selection and the result's dtype.

        Sizes may be symbolic while a framework traces. Raises an error if an array of this shape
        and dtype cannot be converted.
        """
        move, selection = self.select_channels(shape)
        check_supported_dtype(source)
        target = self.target_dtype(source, out)
        self._check_casts(source, target)
        return move, selection, target

    def _check_casts(self, source: DType, target: DType) -> None:
        """Raise DtypeError unless `casting` allows the casts to and from the computed dtype.

        The cast to the default dtype of a result, float32 for a formula of integers, is always
        allowed.
        """
        if self.formula is None:
            return check_cast(source, target, self.casting)
        self.formula.check_clip(source)
        self.formula.check_scale(source)
        computed = self.formula.computed_dtype(source, target)
        check_cast(source, computed, self.casting)
        if self.dtype is None and target == self.target_dtype(source, None):
            return None
        try:
            check_cast(computed, target, self.casting)
        except DtypeError as error:
            if computed == source:
                raise
            raise DtypeError(
                f"the formula of {source} x is computed in {computed}, but {error}; or give "
                f'dtype="{computed}"'
            ) from None

    def select_channels(
        self, shape: tuple[int, ...]
    ) -> tuple[Permutation, ChannelSelection | None]:
        """Return the move of an x of `shape`, and its channel selection (None: identity)."""
        if self.channels is None:
            return self.pattern.resolve(shape, self.sizes), None
        return resolve_selection(self.pattern, self.channels, shape, self.sizes)

    def refuse_copy(
        self, shape: tuple[int, ...], strides: tuple[int, ...], source: DType, devices: Any
    ) -> None:
        """Raise the ArgumentError of a conversion with copy=False that cannot be a view."""
        route = "" if devices[0] == devices[1] else f" from {devices[0]} to {devices[1]}"
        raise ArgumentError(
            f'copy=False, but "{self.pattern.text}" has to move bytes of a {source} array '
            f"of shape {shape} and strides {strides}{route}; allow a copy (copy=None)"
        )

    def target_dtype(self, source: DType, out: Any) -> DType:
        """Return the result's dtype: the option's, out's, or x's (scaled integers: float32)."""
        if out is not None:
            if self.dtype is not None and out.dtype.newbyteorder("=") != self.dtype:
                raise DtypeError(
                    f"out has dtype {out.dtype}, but dtype={self.dtype} was given; make them equal"
                )
            check_supported_dtype(out.dtype)
            return out.dtype
        if self.dtype is not None:
            return self.dtype
        formula = self.formula
        if (
            formula is not None
            and dtype_kind(source) in "bui"
            and not formula.preserves_dtype(source)
        ):
            return np.dtype(np.float32)
        return source if source.isnative else source.newbyteorder("=")


def parse_options(
    pattern: str, sizes: Mapping[str, int] = _NO_SIZES, **keywords: Unpack[ConvertKeywords]
) -> ConvertOptions:
    """Return the checked options of user arguments. Does not check that the device exists."""
    return _parse_conversion(parse_pattern(pattern, sizes), sizes, **keywords)


def _parse_conversion(
    parsed: Pattern, sizes: Mapping[str, int], **keywords: Unpack[ConvertKeywords]
) -> ConvertOptions:
    casting = keywords.get("casting", "same_kind")
    check_casting(casting)
    dtype, device = keywords.get("dtype"), keywords.get("device")
    padding = parse_padding(
        keywords.get("pad_to"),
        keywords.get("pad_before"),
        keywords.get("fill"),
        keywords.get("center", DEFAULT_CENTERING),
    )
    if padding is not None and keywords.get("copy") is False:
        raise ArgumentError(
            "copy=False cannot be combined with pad_to=, which always allocates; remove one of them"
        )
    return ConvertOptions(
        pattern=parsed,
        dtype=None if dtype is None else as_result_dtype(dtype),
        formula=make_normalization(
            keywords.get("scale"), keywords.get("mean"), keywords.get("std"), keywords.get("clip")
        ),
        casting=casting,
        device=None if device is None else normalize_device(device),
        copy=_parse_copy(keywords.get("copy")),
        sizes=_parse_sizes(parsed, check_sizes("convert", parsed, sizes)),
        memory=_parse_memory(keywords.get("memory"), parsed),
        threads=_parse_threads(keywords.get("threads")),
        padding=padding,
        channels=parse_channels(keywords.get("channels"), parsed),
    )


def parse_call(pattern: str, arguments: Mapping[str, Any]) -> ConvertOptions:
    """Return the checked options of keywords and sizes of axes in one mapping."""
    names = ConvertKeywords.__annotations__
    keywords: Any = {n: value for n, value in arguments.items() if n in names}
    sizes = {n: value for n, value in arguments.items() if n not in keywords}
    return parse_options(pattern, sizes, **keywords)


def _parse_sizes(pattern: Pattern, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes as ints, or as symbols while traced; raise ShapeError for other values."""
    try:
        return {name: as_size(name, size) for name, size in sizes.items()}
    except ShapeError as error:
        raise ShapeError(f'"{pattern.text}": {error}') from None


def _parse_copy(copy: Any) -> bool | None:
    """Return `copy`; raise ArgumentError unless it is None, True or False."""
    if copy is None or copy is True or copy is False:
        return copy
    raise ArgumentError(f"copy={show(copy)}; it must be None, True or False")


def _find_memory_cure(layout: Layout, right: Layout) -> str:
    """Return what to give in place of "nhwc" of a result of bchw, or NumPy's "F" and "C"."""
    meant = str(with_batch_axis(layout))
    if str(layout) == "c":
        return "omit it for C order"
    if str(layout) == "f":
        meant = str(Layout(right.groups[::-1], right.names))
    is_order = sorted(meant) == sorted(str(right))
    return f'did you mean memory="{meant}"?' if is_order else "name each of them once"


def _parse_memory(memory: Any, pattern: Pattern) -> Layout | None:
    """Return the layout of new memory; raise PatternError unless it has the result's axes."""
    if memory is None:
        return None
    if str(memory).removeprefix("torch.").startswith("channels_last"):
        raise PatternError(
            f"memory={show(memory)} is a PyTorch memory format; name the axes in memory order, "
            'such as memory="bhwc" for a result of bchw'
        )
    layout = parse_layout(memory)
    right = pattern.right
    groups = dict(zip(right.named, right.groups, strict=True))
    if sorted(layout.named) != sorted(groups):
        axes = ", ".join(map(" ".join, groups))
        raise PatternError(
            f'memory="{memory}" is not an order of the axes of {right}, which are {axes}; '
            f"{_find_memory_cure(layout, right)}"
        )
    return Layout(tuple(groups[names] for names in layout.named), right.names)


def _parse_threads(threads: Any) -> int | None:
    """Return `threads` as an int or None, which is the number of `set_num_threads`."""
    return None if threads is None else check_int("threads", threads, 1, ArgumentError, MAX_THREADS)


_SAMPLE_AXES = ("b", "batch", "n")  # names of the axis of samples, the first that is there


@dataclass(frozen=True, slots=True, eq=False)
class CollateOptions:
    """The checked options of a Collator."""

    letter: str  # of the axis of samples
    is_one_array: bool  # True: samples are one array, which has the axis of samples
    fill: tuple[float, ...] | None = None  # values outside of samples; None: windows are inside
    channels: tuple[int, ...] | None = None  # of samples, in result order; None: all
    resize: ResizeOptions | None = None  # to the size of windows; None: samples are cropped
    size: tuple[int, ...] | None = None  # of packed windows, along the axes that may differ
    key: int | str | None = None  # the item that is collated; None: the first that fits
    center: str = DEFAULT_CENTERING  # one of CENTERINGS, for windows without an offset
    crops: CropOptions = NO_CROPS  # place windows, unless a call has offset, flip or crop
    longest: tuple[str, ...] = ()  # names of the axes of a sample that are padded to the longest
    lengths: bool = False  # True: a batch is Padded, with the sizes of samples padded at their end
    # Letters of axes that may differ between samples, in the order of the first fold of the batch.
    packed: str = ""
    convert: ConvertOptions = field(kw_only=True)  # of the stacked windows, and their `sizes`

    @property
    def may_fill(self) -> bool:
        """True if windows with a size may reach outside of samples: with `fill=`, or fit "pad"."""
        return self.fill is not None or (self.resize is not None and self.resize.fit == "pad")

    @property
    def fills(self) -> bool:
        """True if there are values for positions outside of samples, also of "longest" axes."""
        return self.may_fill or bool(self.longest)

    @property
    def default_fill(self) -> float:
        """The value of positions without a pixel, without `fill=`: 0, or the ignored value."""
        resize = self.resize
        if resize is None or resize.ignore is None or self.fills:
            return 0
        return resize.ignore

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of windows and of folded axes, by name; "longest" for padded axes."""
        return {**self.convert.sizes, **dict.fromkeys(self.longest, LONGEST)}

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        return collect_keywords(self, _COLLATE_DEFAULTS)

    def to_dict(self) -> dict[str, Any]:
        """Return these options in the stored form, a dict of JSON values."""
        return _make_stored("collator", self.convert.pattern.text, self.sizes, self.keywords())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CollateOptions:
        """Return the options that `to_dict` stored; raise ArgumentError for a wrong key."""
        pattern, sizes, keywords = _read_stored(data, "collator", CollateKeywords)
        return parse_collate_options(pattern, sizes, **keywords)

    @property
    def fingerprint(self) -> str:
        """The hash of these options, equal in every process and for every spelling."""
        return hash_form(self.normal_form())

    def normal_form(self, *, keeps_names: bool = False) -> dict[str, Any]:
        """Return the normal form, JSON values that are equal for equal fingerprints."""
        # Draws depend on the names of axes.
        names = _number_axes(self.convert.pattern, keeps_names or self.crops.is_random)
        form = _make_normal_form(self.convert, self.keywords(), names)
        if not self.crops.seed:  # None draws as 0 does
            form.pop("seed", None)
        form["sizes"] |= {names[name]: LONGEST for name in self.longest}
        letter = self.convert.pattern.left.name(self.letter)
        return {**form, "samples": names[letter], "whole": self.is_one_array}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.convert, self.fill, self.channels, self.resize, self.crops.seed))

    def _key(self) -> tuple[Any, ...]:
        return self.convert, self.is_one_array, self.longest, self.keywords()

    def select_samples(self, shape: tuple[int, ...], indices: Any) -> tuple[SampleAxes, int, Array]:
        """Return the axes of samples of one array, its sample axis, and the selected positions.

        `indices=None` selects all. Raises ShapeError unless the array has the rank of the left
        side, and the errors of `normalize_indices`.
        """
        pattern = self.convert.pattern
        try:
            check_rank(pattern.left, shape)
        except ShapeError as error:
            raise ShapeError(f'"{pattern.text}" on shape {shape}: {error}') from None
        axes = self.find_sample_axes(len(shape) - 1)
        axis = axes.pattern.source.groups.index(self.letter)
        count = shape[axis]
        if indices is None:
            return axes, axis, np.arange(count)
        return axes, axis, normalize_indices(indices, count, "samples")

    def find_sample_axes(self, ndim: int, shape: tuple[int, ...] | None = None) -> SampleAxes:
        """Return the axes of samples of rank `ndim`; errors print `shape`, of a sample."""
        pattern = self.convert.pattern
        sizes = tuple(sorted(self.convert.sizes.items()))
        try:
            return make_sample_axes(
                pattern,
                pattern.text,
                self.letter,
                ndim,
                sizes,
                self.channels,
                self.longest,
                self.packed,
                self._padded_sides,
            )
        except ShapeError as error:
            kind = f"rank {ndim}" if shape is None else f"shape {shape}"
            raise ShapeError(f'"{pattern.text}" on samples of {kind}: {error}') from None

    @property
    def _padded_sides(self) -> tuple[int, int | None] | None:
        """The sides to which samples are scaled before they are padded to the longest one."""
        resize = self.resize
        if resize is None or resize.short_side is None or not self.longest:
            return None
        is_sized = not {*self.convert.sizes}.isdisjoint(_find_single_axes(self.convert.pattern))
        return None if is_sized else (resize.short_side, resize.max_side)

    def find_batch_shape(self, shapes: Array) -> tuple[int, ...]:
        """Return the shape of the batch of samples of `shapes` (samples, axes)."""
        axes = self.find_sample_axes(shapes.shape[1])
        stacked = [*axes.window(shapes)]
        stacked.insert(axes.pattern.source.groups.index(self.letter), len(shapes))
        return axes.pattern.resolve(tuple(stacked), self.convert.sizes).target_shape

    def crop_axes(self, ndim: int) -> CropAxes:
        """Return the axes along which windows of samples of rank `ndim` can be placed."""
        axes = self.find_sample_axes(ndim)
        selects = self.channels is not None
        named = axes.axis_indices.items()
        indices = {name: axis for name, axis in named if not (selects and name == CHANNEL)}
        sizes = {name: axes.sizes[name] for name in axes.resized if name in indices}
        sizes |= zip(axes.resizable, self.size or (), strict=False)  # a call checks their number
        text, is_resized = self.convert.pattern.text, self.resize is not None
        return CropAxes(text, indices, sizes, is_resized, tuple(axes.resizable))


_NEUTRAL = {"scale": 1.0, "mean": 0.0, "std": 1.0}  # constants that change nothing


def format_keywords(keywords: Mapping[str, Any]) -> list[str]:
    """Return keyword arguments as text, without constants that change nothing beside others.

    >>> format_keywords({"dtype": "float32", "scale": 0.5, "mean": 0.0, "std": 1.0})
    ["dtype='float32'", 'scale=0.5']
    """
    neutral = {n for n in keywords.keys() & _NEUTRAL.keys() if keywords[n] == _NEUTRAL[n]}
    if neutral == {*_NEUTRAL}:  # the formula makes floats of integers
        neutral.remove("scale")
    return [f"{name}={show(value)}" for name, value in keywords.items() if name not in neutral]


# Fields that are no keywords.
_NOT_KEYWORDS = {"pattern", "sizes", "is_part", "letter", "is_one_array", "longest", "packed"}
_CONVERT_DEFAULTS, _COLLATE_DEFAULTS = (
    {field.name: field.default for field in fields(cls) if field.name not in _NOT_KEYWORDS}
    for cls in (ConvertOptions, CollateOptions)
)


def parse_collate_options(
    pattern: str, sizes: Mapping[str, Any] = _NO_SIZES, **keywords: Unpack[CollateKeywords]
) -> CollateOptions:
    """Return the checked options of user arguments.

    Raises
    ------
    PatternError
        There is no sample axis on the right, or it is part of a fold on the left.
    ArgumentError
        Another argument is malformed.
    """
    parsed = parse_pattern(pattern, sizes)
    by_axis = check_sizes("Collator", parsed, sizes)
    padded = {name for name, size in by_axis.items() if isinstance(size, str) and size == LONGEST}
    sizes = {n: _parse_window_size(n, size) for n, size in by_axis.items() if n not in padded}
    names = WindowKeywords.__annotations__
    shared: Any = {name: value for name, value in keywords.items() if name in names}
    convert = _parse_conversion(parsed, sizes, **shared)
    stacked, letter, is_one_array = _stack_pattern(parsed)
    longest = _parse_longest(stacked, letter, padded, sizes.keys(), keywords)
    fill = keywords.get("fill")
    if fill is None and longest and sizes.keys().isdisjoint(_find_single_axes(stacked)):
        fill = 0  # no other axis has windows, which are padded only if the caller gives `fill`
    key = keywords.get("key")
    center = keywords.get("center", DEFAULT_CENTERING)
    check_key(key)
    fill_numbers = None if fill is None else fill_values(fill)
    channel_order = _parse_sample_channels(keywords.get("channels"), stacked, by_axis)
    options_of_resize = {n: value for n, value in keywords.items() if n in RESIZE_DEFAULTS}
    resizing = parse_resize(keywords.get("resize"), **options_of_resize)
    packed = "" if is_one_array else find_packed(stacked, letter, by_axis)
    size = _parse_packed_size(keywords.get("size"), resizing, stacked, packed)
    if packed and keywords.get("lengths"):
        raise ArgumentError(
            f'lengths=True, but "{parsed.text}" packs samples, whose sizes are a part of every '
            "batch; omit lengths"
        )
    if packed:
        _check_packed(stacked, packed, convert, resizing, longest)
    if resizing is not None:
        _check_resized_axes(convert, resizing, packed, longest)
    _check_center(center, stacked, convert)
    options = CollateOptions(
        convert=replace(convert, pattern=stacked),
        letter=letter,
        is_one_array=is_one_array,
        fill=fill_numbers,
        channels=channel_order,
        resize=resizing,
        size=size,
        key=key,
        center=center,
        longest=longest,
        lengths=keywords.get("lengths", False),
        packed=packed,
    )
    offset = keywords.get("offset")
    flip = keywords.get("flip")
    crop = keywords.get("crop")
    seed = keywords.get("seed")
    if (seed is None or as_int(seed) == 0) and offset is flip is crop is None:
        return options
    crop_axes = options.crop_axes(stacked.left.ndim - 1)
    return replace(options, crops=parse_crops(crop_axes, offset, flip, crop, seed))


def check_key(key: Any) -> None:
    """Raise ArgumentError unless a key is the name or number of an item of a sample, or None."""
    if key is not None and not isinstance(key, int | str):
        raise ArgumentError(
            f'key={show(key)}; give the name or number of one item, as in key="image"; for several '
            "items, give each a Collator, as in FieldCollator({'image': ..., 'mask': ...})"
        )


def _find_single_axes(pattern: Pattern) -> list[str]:
    """Return the names of the axes of the left side that are not folded."""
    return [names[0] for names in pattern.source.named if len(names) == 1]


def _check_center(center: Any, pattern: Pattern, options: ConvertOptions) -> None:
    """Raise unless `center` is one of CENTERINGS, and is the default if no window is centered."""
    check_choice("center", center, CENTERINGS, ArgumentError)
    if center != DEFAULT_CENTERING and not {*_find_single_axes(pattern)} & {*options.sizes}:
        raise ArgumentError(
            f'center={show(center)}, but "{pattern.text}" has no window that could be centered; '
            "give its size, as in h=224, w=224, or omit center"
        )


def _parse_window_size(name: str, size: Any) -> int:
    """Return a size as an int; raise ShapeError unless it is a whole number that fits 64 bits."""
    number = as_int(size)
    if number is None or not 0 <= number < 1 << 63:
        raise ShapeError(
            f'{name}={show(size)}; a size is an int >= 0, of at most 63 bits, or "{LONGEST}"'
        )
    return number


def _parse_longest(
    pattern: Pattern,
    letter: str,
    names: Collection[str],
    sizes: Set[str],
    keywords: CollateKeywords,
) -> tuple[str, ...]:
    """Return the names of the axes that are padded to the longest sample, in the sample's order.

    `pattern` is the pattern of the stacked windows, in which `letter` is the axis of samples;
    `sizes` are the names of the axes with a size.
    """
    axes = [name for name in _find_single_axes(pattern) if name != pattern.source.name(letter)]
    offset = keywords.get("offset")
    is_random = isinstance(offset, str) and sizes.isdisjoint(axes)  # along no other axis
    for name in names:
        if name not in axes:
            raise ArgumentError(
                f'{name}="{LONGEST}" pads an axis of a sample, but {name} is not an axis of its '
                f'own on the left of "{pattern.text}"; reshape samples whose axes are folded'
            )
        if is_random or (isinstance(offset, Mapping) and name in offset):
            omitted = "offset" if is_random else f"{name} in offset"
            raise ArgumentError(
                f'offset={show(offset)} with {name}="{LONGEST}", whose windows begin where samples '
                f"do; omit {omitted}, or give a size, as in {name}=100"
            )
    check_bool("lengths", keywords.get("lengths", False), ArgumentError)
    has_windows = keywords.get("resize") is None and not sizes.isdisjoint(axes)
    if keywords.get("lengths") and not names and not has_windows:
        raise ArgumentError(
            "lengths=True returns the sizes along axes that are padded at their end; give one, as "
            f'in t="{LONGEST}", or, without resize=, as in t=200, offset={{"t": 0}}, fill=0'
        )
    return tuple(name for name in axes if name in names)


def _check_packed(
    pattern: Pattern,
    packed: str,
    options: ConvertOptions,
    resize: ResizeOptions | None,
    longest: tuple[str, ...],
) -> None:
    """Raise unless the sizes of samples of a packed batch follow from their shapes."""
    for group in pattern.source.groups:
        names = [pattern.source.name(x) for x in group]
        lacking = [name for name in names if name not in options.sizes]
        if {*group} & {*packed} and len(lacking) > 1:
            raise ShapeError(
                f'"{pattern.text}" folds {", ".join(lacking)} on the left, and one size of a fold '
                f"can be inferred; give all but one, as in {lacking[-1]}=14"
            )
    if longest:
        raise ArgumentError(
            f'{longest[0]}="{LONGEST}" pads samples, but "{pattern.text}" packs them; give '
            "sizes to all axes that are folded with b, or pad in a second call"
        )
    for name, value in (("device", options.device), ("memory", options.memory)):
        if value is not None:
            raise ArgumentError(
                f'{name}={str(value)!r}, but "{pattern.text}" packs samples of different sizes, on '
                f"their own device; omit {name}, and convert the data of the result"
            )
    if resize is not None and resize.fit != "stretch":
        raise ArgumentError(
            f'fit={resize.fit!r} scales samples to windows of one size, but "{pattern.text}" packs '
            "samples of different sizes; give size=, multiple= or short_side="
        )


# A cure for patterns that fold all axes of images on the left.
_PACK_PATCHES = 'pack patches, as in p=16, q=16, size=(224, 224) of "(hp)(wq)c->(bhw)(pqc)"'


def _find_image_axes(pattern: Pattern) -> list[str]:
    """Return the names of the axes of samples that are neither folded nor channels."""
    return [n for n in _find_single_axes(pattern) if n not in (*_SAMPLE_AXES, CHANNEL)]


def _parse_packed_size(
    size: Any, resize: ResizeOptions | None, pattern: Pattern, packed: str
) -> tuple[int, ...] | None:
    """Return the size of the windows of a packed batch as ints; raise ArgumentError for others."""
    multiple = None if resize is None else resize.multiple
    if not packed and (size is not None or multiple is not None):
        name = "multiple" if size is None else "size"
        cure = _PACK_PATCHES
        if _find_image_axes(pattern):
            cure = f"give the size of windows by axis, as in {format_sizes(size)}"
        raise ArgumentError(
            f"{name}= is for samples of different sizes, which a pattern packs, as in "
            f'"hwc->(bhw)c"; {cure}'
        )
    side = None if resize is None or not packed else resize.short_side
    chosen = {"size": size, "multiple": multiple, "short_side": side}
    choices = [f"{name}={show(value)}" for name, value in chosen.items() if value is not None]
    if len(choices) > 1:
        raise ArgumentError(f"{' and '.join(choices)} choose the sizes of samples; keep one")
    if size is None:
        return None
    sides = size if isinstance(size, list | tuple) else [size]
    checked = tuple(as_int(side) or 0 for side in sides)
    if not checked or not all(1 <= side <= MAX_SIDE for side in checked):
        raise ArgumentError(
            f"size={show(size)}; a Collator has one size for all samples, as in size=(224, 224); "
            "give one per sample to its call"
        )
    return checked


def _check_resized_axes(
    options: ConvertOptions, resize: ResizeOptions, packed: str, longest: tuple[str, ...]
) -> None:
    """Raise unless an axis that can be resized has a size, and channels have no size."""
    single = _find_single_axes(options.pattern)
    if CHANNEL in single and CHANNEL in options.sizes:
        raise ArgumentError(
            f"c={options.sizes[CHANNEL]} with resize=: channels are not resized; select some by "
            "channels=(0, 1, 2)"
        )
    is_scaled = bool(packed) or (bool(longest) and resize.short_side is not None)
    if not is_scaled and not any(name in options.sizes for name in single):
        axes = _find_image_axes(options.pattern)
        cure = 'give one, as in Collator("hwc->bchw", h=224, w=224)' if axes else _PACK_PATCHES
        if longest:
            cure = f'give short_side=224 too, to which axes of size "{LONGEST}" are scaled'
        elif resize.short_side is not None:
            sizes = (f"{name}={resize.short_side}" for name in axes)
            padded = (f'{name}="{LONGEST}"' for name in axes)
            cure = f"give {', '.join(sizes)} to crop after it, or {', '.join(padded)} to pad"
        raise ArgumentError(
            f'resize= without a size of the result along an axis of "{options.pattern.left}" '
            f"that is not folded; {cure}"
        )
    for name in single:
        size = as_int(options.sizes.get(name))
        if size is not None and size > MAX_SIDE:
            raise ArgumentError(
                f"{name}={size} with resize=; samples are resized to at most {MAX_SIDE} positions"
            )


def _stack_pattern(pattern: Pattern) -> tuple[Pattern, str, bool]:
    """Return the pattern of the stacked windows, the sample letter, and True if x has it."""
    left, right = pattern.left, pattern.right
    letter_of = {right.name(letter): letter for letter in right.letters}
    letters = [letter_of[name] for name in _SAMPLE_AXES if name in letter_of]
    if not letters:
        raise PatternError(
            f'"{pattern.text}" has no axis of samples on the right; name it b, as in "hwc->bchw"'
        )
    letter = letters[0]
    if letter in left.groups:
        return pattern, letter, True
    if letter in left.letters:
        raise PatternError(
            f'"{pattern.text}" folds {left.name(letter)}, the axis of samples, on the left; '
            "reshape the array so that it is an axis of its own"
        )
    names = tuple(pair for pair in right.names if pair[0] == letter)
    stacked = Layout((letter, *left.groups), names + left.names)
    return Pattern(stacked, right, pattern.text), letter, False


def _parse_sample_channels(
    channels: Any, pattern: Pattern, sizes: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """Return the channels as plain ints; raise unless samples have a channel axis of its own."""
    numbers = parse_channels(channels, pattern)
    if numbers is None:
        return None
    if (CHANNEL,) not in pattern.source.named:
        raise PatternError(
            f'channels={show(channels)}, but on the left of "{pattern.text}" there is no axis c '
            "of its own; name it c"
        )
    if CHANNEL in sizes:
        raise ArgumentError(
            f"channels={show(channels)} and c={sizes[CHANNEL]!r} both select channels; remove c"
        )
    return numbers


# ---- the stored form ---------------------------------------------------------------------


def _make_stored(
    kind: str, pattern: str, sizes: Mapping[str, int], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stored form of options."""
    data: dict[str, Any] = {"kind": kind, "version": VERSION, "pattern": pattern}
    if sizes:
        data["sizes"] = dict(sizes)
    return data | {name: _as_json(name, value) for name, value in keywords.items()}


def _as_json(name: str, value: Any) -> Any:
    """Return the value of an option as a JSON value; raise ArgumentError for a traced constant."""
    if isinstance(value, Traced):
        raise ArgumentError(f"{name} is {value}, so it has no values to store; give numbers")
    if isinstance(value, Mapping):
        return {axis: _as_json(name, item) for axis, item in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(name, item) for item in value]
    if isinstance(value, np.dtype):
        return str(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read_stored(
    data: Mapping[str, Any], kind: str, declared: Any
) -> tuple[str, dict[str, int], Any]:
    """Return the pattern, the sizes and the keywords of stored options."""
    if not isinstance(data, Mapping):
        raise ArgumentError(f"options are {type_name(data)}; give the dict that to_dict() returns")
    if data.get("kind") != kind:
        raise ArgumentError(f'kind is {data.get("kind")!r}; a {kind} is made of the kind "{kind}"')
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise ArgumentError(
            f"version is {data.get('version')!r}, but this layoutkit reads options of version "
            f"{VERSION}; write them again, by to_dict() of the Converter or Collator"
        )
    types = _read_stored_types(declared)
    known = {"kind": (str,), "version": (int,), "pattern": (str,), "sizes": (dict,), **types}
    for key, value in data.items():
        if key not in known:
            raise ArgumentError(f"{key} is not an option; the options are {', '.join(known)}")
        if type(value) not in known[key]:
            expected = " or ".join(_TYPE_NAMES[type_] for type_ in known[key])
            raise ArgumentError(f"{key} is {show(value)}; it must be {expected}")
    if "pattern" not in data:
        raise ArgumentError('pattern is missing; give one, such as "bhwc->bchw"')
    keywords = {name: value for name, value in data.items() if name in types}
    if "dtype" in data:
        keywords["dtype"] = _read_dtype(data["dtype"])
    for name in ("fill", "ignore"):
        if name in data:
            keywords[name] = _read_numbers(name, data[name])
    return data["pattern"], data.get("sizes", {}), keywords


@cache
def _read_stored_types(declared: Any) -> dict[str, tuple[type, ...]]:
    """Return the types of stored values, by keyword."""
    hints = get_type_hints(declared, include_extras=True)
    return {name: hint.__metadata__ for name, hint in hints.items()}


def _read_dtype(text: str) -> Any:
    """Return a dtype or its name; the text of a structured dtype is a Python literal."""
    if text[:1] not in ("[", "{"):
        return text
    try:
        return np.dtype(ast.literal_eval(text))
    except (SyntaxError, TypeError, ValueError):
        raise ArgumentError(f"dtype is {shorten(text, 60)}, which is not a dtype") from None


def _read_numbers(name: str, value: Any) -> Any:
    """Return the numbers of an option; NaN and infinity are text."""
    if isinstance(value, list):
        return [_read_numbers(name, item) for item in value]
    if isinstance(value, str):
        if value not in ("nan", "inf", "-inf"):
            raise ArgumentError(f'{name} is {show(value)}; give numbers, or "nan", "inf" or "-inf"')
        return float(value)
    return value


def split_sizes(data: Mapping[str, Any]) -> tuple[str, list[str], list[int]]:
    """Return stored options without sizes as JSON, and the names and sizes of axes.

    Graphs contain these values, and sizes may be symbols there. `join_sizes` is the inverse.
    """
    import json  # late: `import layoutkit` stays fast

    sizes = data.get("sizes", {})
    others = {key: value for key, value in data.items() if key != "sizes"}
    return json.dumps(others), list(sizes), list(sizes.values())


def join_sizes(options: str, names: Iterable[str], sizes: Iterable[int]) -> dict[str, Any]:
    """Return the stored options that `split_sizes` has split."""
    import json

    return {**json.loads(options), "sizes": dict(zip(names, sizes, strict=True))}


# ---- the fingerprint ---------------------------------------------------------------------


def _number_axes(pattern: Pattern, keeps_names: bool) -> dict[str, str]:
    """Return a number, as text, for the name of each axis, in the order of source, then target.

    With `keeps_names`, return the name itself.
    """
    groups = (*pattern.source.named, *pattern.target.named)
    names = dict.fromkeys(name for group in groups for name in group)
    return {n: n if keeps_names or n in ("...", "1") else str(i) for i, n in enumerate(names)}


def _make_normal_form(
    options: ConvertOptions, keywords: dict[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the pattern, the sizes and keywords as JSON values, with axes renamed by `names`."""
    pattern = options.pattern
    sides = [
        [[names[name] for name in group] for group in side.named]
        for side in (pattern.source, pattern.target)
    ]
    form: dict[str, Any] = {**keywords, "pattern": sides, "sizes": options.sizes}
    if options.memory is not None:
        form["memory"] = [[names.get(n, n) for n in group] for group in options.memory.named]
    for name in _PER_CHANNEL & form.keys():
        if isinstance(form[name], tuple):
            form[name] = {CHANNEL: form[name]}
    for name, value in form.items():
        if isinstance(value, Mapping):
            form[name] = {names.get(axis, axis): item for axis, item in value.items()}
    return {name: _with_whole_numbers(_as_json(name, value)) for name, value in form.items()}


def hash_form(form: Mapping[str, Any]) -> str:
    """Return the hash of JSON values and of the version of the numerics."""
    import json  # late: `import layoutkit` stays fast

    text = json.dumps([NUMERICS, form], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _with_whole_numbers(value: Any) -> Any:
    """Return data with ints in place of equal floats, because 1 and 1.0 are equal options."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def options_from_dict(data: Any) -> ConvertOptions | CollateOptions:
    """Return the options of a Converter or of a Collator, by the kind of the stored form."""
    is_batch = isinstance(data, Mapping) and data.get("kind") == "collator"
    return CollateOptions.from_dict(data) if is_batch else ConvertOptions.from_dict(data)


# ---- differences -------------------------------------------------------------------------

_DEFAULTS = {  # of options that are not None by default
    "antialias": True,
    "casting": "same_kind",
    "center": "round",
    "fit": "stretch",
    "seed": 0,
}
_LABELS = {
    "resize": "filter (resize)",
    "center": "centering (center)",
    "pattern": "order of axes (pattern)",
    "casting": "rounding (casting)",
    **{name: f"constant {name}" for name in ("scale", "mean", "std", "clip", "fill")},
}


def list_differences(
    one: ConvertOptions | CollateOptions, other: ConvertOptions | CollateOptions
) -> list[tuple[str, str, str]]:
    """Return a label, and the values of both, for each option that differs."""
    keeps_names = any(
        isinstance(options, CollateOptions) and options.crops.is_random for options in (one, other)
    )
    forms = [options.normal_form(keeps_names=keeps_names) for options in (one, other)]
    stored = one.to_dict(), other.to_dict()
    names = [name for name in forms[0] | forms[1] if forms[0].get(name) != forms[1].get(name)]
    of_pattern = {"samples", "whole"}  # follow from the pattern
    names = ["pattern" if name in of_pattern else name for name in names]
    return [
        (_LABELS.get(name, name), _option_text(name, stored[0]), _option_text(name, stored[1]))
        for name in dict.fromkeys(names)
    ]


def _option_text(name: str, data: dict[str, Any]) -> str:
    """Return the value of an option as text."""
    import json

    value = data.get(name, _DEFAULTS.get(name))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
