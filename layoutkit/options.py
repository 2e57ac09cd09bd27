"""The checked options of a Converter and of a Collator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ._utils.validation import as_int, check_choice
from .errors import ArgumentError, DtypeError, PatternError, ShapeError
from .layout.parsing import Layout, parse_layout
from .layout.pattern import Pattern, Permutation, check_rank, parse_pattern
from .normalize import CHANNEL, Normalization, make_normalization
from .planning.batch.random import NO_CROPS, CropAxes, CropOptions, parse_crops
from .planning.batch.samples import SampleAxes, axes_of_samples
from .planning.centering import CENTERINGS, DEFAULT_CENTERING
from .planning.channels import ChannelSelection, parse_channels, resolve_selection
from .planning.keywords import check_sizes
from .planning.padding import Padding, fill_values, parse_padding
from .planning.resize import MAX_SIDE, ResizeOptions, parse_resize
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


@dataclass(frozen=True, slots=True, eq=False)
class ConvertOptions:
    """The checked options of a conversion."""

    pattern: Pattern
    dtype: DType | None  # of the result; None: of `out` or of x, see `target_dtype`
    formula: Normalization | None  # scale, mean, std and clip; None: values do not change
    casting: str  # one of CASTINGS
    device: str | None  # of the result, "cpu" or "cuda:0"; None: of x
    copy: bool | None  # True: new memory, False: a view of x, None: a view if possible
    sizes: Mapping[str, int]  # of axes in folds, by name
    memory: Layout | None = None  # the axes of new memory; None: as in the pattern
    threads: int | None = None  # the maximum number; None: of `set_num_threads`
    padding: Padding | None = None  # pad_to, pad_before, fill and center
    channels: tuple[int, ...] | None = None  # of x, in result order; None: all
    # The result is a part of a large array, so it is written past the caches as that array would
    # be. Set by the code that makes the large array; no argument.
    is_part: bool = False

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        keywords: dict[str, Any] = {}
        if self.dtype is not None:
            # The name of a structured dtype cannot be parsed back.
            keywords["dtype"] = str(self.dtype) if self.dtype.fields is None else self.dtype
        if self.formula is not None:
            keywords |= self.formula.keywords()
        if self.casting != "same_kind":
            keywords["casting"] = self.casting
        if self.device is not None:
            keywords["device"] = self.device
        if self.copy is not None:
            keywords["copy"] = self.copy
        if self.memory is not None:
            keywords["memory"] = str(self.memory)
        if self.threads is not None:
            keywords["threads"] = self.threads
        if self.padding is not None:
            keywords |= self.padding.keywords()
        if self.channels is not None:
            keywords["channels"] = self.channels
        return {**keywords, **self.sizes}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.as_key() == other.as_key()

    def __hash__(self) -> int:
        return hash(self.as_key())

    def as_key(self) -> tuple[Any, ...]:
        """Return a hashable tuple of all options, equal for equal options."""
        # Wrapped in a tuple because in NumPy np.dtype("float64") == None is True.
        dtype = None if self.dtype is None else (self.dtype,)
        typed_sizes = [(name, type(size), size) for name, size in sorted(self.sizes.items())]
        others = [getattr(self, f.name) for f in fields(self) if f.name not in ("dtype", "sizes")]
        return (dtype, *typed_sizes, *others)

    @property
    def is_composed(self) -> bool:
        """True if `memory=` or `pad_to=` makes this more than one conversion: see `plan.py`."""
        return self.memory is not None or self.padding is not None

    def check_spec(self, spec: ArraySpec) -> None:
        """Raise PatternError unless the spec has the layout that is converted."""
        expanded = self.pattern.completed(len(spec.shape))
        sides = (self.pattern.left, self.pattern.source, expanded.left, expanded.source)
        if spec.axes not in map(str, sides):
            raise PatternError(
                f'the spec is of layout {spec.axes}, but "{self.pattern.text}" converts '
                f"{self.pattern.left}; give a spec of that layout"
            )

    def check_and_infer_dtype(
        self, shape: tuple[int, ...], source: DType, out: Any = None
    ) -> tuple[Permutation, DType]:
        """Return the resolved move and the result's dtype for an array of this shape and dtype.

        Sizes may be symbolic while a framework traces. Raises an error if such an array cannot be
        converted.
        """
        move, _, target = self.resolve(shape, source, out)
        return move, target

    def resolve(
        self, shape: tuple[int, ...], source: DType, out: Any = None
    ) -> tuple[Permutation, ChannelSelection | None, DType]:
        """Return the resolved move, the channel selection and the result's dtype.

        Raises an error if such an array cannot be converted.
        """
        move, selection = self.select_channels(shape)
        check_supported_dtype(source)
        target = self.target_dtype(source, out)
        self._check_casts(source, target)
        return move, selection, target

    def _check_casts(self, source: DType, target: DType) -> None:
        """Raise DtypeError unless `casting` allows the casts to and from the computed dtype.

        The default dtype of a result is always allowed: float32 for a formula of integers.
        """
        if self.formula is None:
            return check_cast(source, target, self.casting)
        self.formula.check_clip(source)
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
        way = "" if devices[0] == devices[1] else f" from {devices[0]} to {devices[1]}"
        raise ArgumentError(
            f'copy=False, but "{self.pattern.text}" has to move bytes of a {source} array '
            f"of shape {shape} and strides {strides}{way}; allow a copy (copy=None)"
        )

    def target_dtype(self, source: DType, out: Any) -> DType:
        """Return the result's dtype: the option's, out's, or x's (scaled integers: float32)."""
        if out is not None:
            if self.dtype is not None and out.dtype.newbyteorder("=") != self.dtype:
                raise DtypeError(
                    f"out has dtype {out.dtype}, but dtype={self.dtype} was given; make them equal"
                )
            check_supported_dtype(out.dtype)
            out_dtype: DType = out.dtype
            return out_dtype
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
    pattern: str,
    *,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    device: Any = None,
    copy: Any = None,
    memory: Any = None,
    threads: Any = None,
    pad_to: Any = None,
    pad_before: Any = None,
    fill: Any = None,
    center: Any = DEFAULT_CENTERING,
    channels: Any = None,
    **sizes: int,
) -> ConvertOptions:
    """Return the checked options of user arguments. Does not check that the device exists."""
    check_casting(casting)
    parsed = parse_pattern(pattern, sizes)
    target_dtype = None if dtype is None else as_result_dtype(dtype)
    formula = make_normalization(scale, mean, std, clip)
    canonical_device = None if device is None else normalize_device(device)
    padding = parse_padding(pad_to, pad_before, fill, center)
    if padding is not None and copy is False:
        raise ArgumentError(
            "copy=False cannot be combined with pad_to=, which always allocates; remove one of them"
        )
    return ConvertOptions(
        parsed,
        target_dtype,
        formula,
        casting,
        canonical_device,
        _parse_copy(copy),
        check_sizes("convert", parsed, sizes),
        _parse_memory(memory, parsed),
        _parse_threads(threads),
        padding,
        parse_channels(channels, parsed),
    )


def _parse_copy(copy: Any) -> bool | None:
    """Return `copy`; raise ArgumentError unless it is None, True or False."""
    if copy is None or copy is True or copy is False:
        return copy
    raise ArgumentError(f"copy={copy!r}; it must be None, True or False")


def _parse_memory(memory: Any, pattern: Pattern) -> Layout | None:
    """Return the layout of new memory; raise PatternError unless it has the result's axes."""
    if memory is None:
        return None
    if str(memory).removeprefix("torch.").startswith("channels_last"):
        raise PatternError(
            f"memory={memory!r} is a PyTorch memory format; name the axes in memory order, such "
            'as memory="bhwc" for a result of bchw'
        )
    layout = parse_layout(memory)
    right = pattern.right
    groups = dict(zip(right.named, right.groups, strict=True))
    if sorted(layout.named) != sorted(groups):
        axes = ", ".join(map(" ".join, groups))
        raise PatternError(
            f'memory="{memory}" is not an order of the axes of {right}, which are {axes}; name '
            "each of them once"
        )
    return Layout(tuple(groups[names] for names in layout.named), right.names)


def _parse_threads(threads: Any) -> int | None:
    """Return `threads` as an int or None; raise ArgumentError for anything else."""
    count = None if threads is None else as_int(threads)
    if threads is not None and (count is None or not 1 <= count <= MAX_THREADS):
        raise ArgumentError(
            f"threads={threads!r}; give a whole number from 1 to {MAX_THREADS}, or None for the "
            "number of set_num_threads"
        )
    return count


_SAMPLES = ("b", "batch")  # the names of the sample axis


@dataclass(frozen=True, slots=True, eq=False)
class CollateOptions:
    """The checked options of a Collator."""

    convert: ConvertOptions  # of the stacked windows; its sizes are the windows', too
    letter: str  # of the axis of samples
    whole: bool  # samples are one array that has the axis of samples
    fill: tuple[float, ...] | None  # values outside of samples; None: windows must be inside
    channels: tuple[int, ...] | None  # of samples, in result order; None: all
    resize: ResizeOptions | None = None  # to the size of windows; None: samples are cropped
    crops: CropOptions = NO_CROPS  # where windows are, unless a call has offset, flip or crop
    key: int | str | None = None  # the item that is collated; None: the first that fits
    center: str = DEFAULT_CENTERING  # one of CENTERINGS, for windows without an offset

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        keywords: dict[str, Any] = {}
        if self.fill is not None:
            keywords["fill"] = self.fill if len(self.fill) > 1 else self.fill[0]
        if self.channels is not None:
            keywords["channels"] = self.channels
        if self.resize is not None:
            keywords |= self.resize.keywords()
        if self.key is not None:
            keywords["key"] = self.key
        if self.center != DEFAULT_CENTERING:
            keywords["center"] = self.center
        return keywords | self.crops.keywords() | self.convert.keywords()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.as_key() == other.as_key()

    def __hash__(self) -> int:
        return hash(self.as_key())

    def as_key(self) -> tuple[Any, ...]:
        """Return a hashable tuple of all options, equal for equal options."""
        return tuple(
            self.convert.as_key() if f.name == "convert" else getattr(self, f.name)
            for f in fields(self)
        )

    def check_batch_rank(self, shape: tuple[int, ...]) -> None:
        """Raise ShapeError unless an array of all samples has the rank of the left side."""
        pattern = self.convert.pattern
        try:
            check_rank(pattern.left, shape)
        except ShapeError as error:
            raise ShapeError(f'"{pattern.text}" on shape {shape}: {error}') from None

    def completed(self, ndim: int, shape: tuple[int, ...] | None = None) -> SampleAxes:
        """Return the axes of samples of rank `ndim`; `shape`: of a sample, for errors."""
        pattern = self.convert.pattern
        sizes = tuple(sorted(self.convert.sizes.items()))
        try:
            return axes_of_samples(pattern, pattern.text, self.letter, ndim, sizes, self.channels)
        except ShapeError as error:
            kind = f"rank {ndim}" if shape is None else f"shape {shape}"
            raise ShapeError(f'"{pattern.text}" on samples of {kind}: {error}') from None

    def crop_axes(self, ndim: int) -> CropAxes:
        """Return the axes along which windows of samples of rank `ndim` can be placed."""
        axes = self.completed(ndim)
        places = axes.places()
        if self.channels is not None:
            del places[CHANNEL]
        sizes = {name: self.convert.sizes[name] for name in axes.cropped_names if name in places}
        return CropAxes(self.convert.pattern.text, places, sizes, self.resize is not None)


def parse_collate_options(
    pattern: str,
    *,
    fill: Any,
    channels: Any,
    resize: Any = None,
    antialias: Any = True,
    fit: Any = "stretch",
    short_side: Any = None,
    pad_before: Any = None,
    offset: Any = None,
    flip: Any = None,
    crop: Any = None,
    seed: Any = 0,
    key: Any = None,
    center: Any = DEFAULT_CENTERING,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    device: Any = None,
    memory: Any = None,
    threads: Any = None,
    **sizes: int,
) -> CollateOptions:
    """Return the checked options of user arguments.

    Raises
    ------
    PatternError
        There is no sample axis on the right, or it is part of a fold on the left.
    ArgumentError
        Another argument is malformed.
    """
    check_sizes("Collator", parse_pattern(pattern, sizes), sizes)
    sizes = {name: _window_size(name, size) for name, size in sizes.items()}
    convert = parse_options(
        pattern,
        dtype=dtype,
        scale=scale,
        mean=mean,
        std=std,
        clip=clip,
        casting=casting,
        device=device,
        memory=memory,
        threads=threads,
        **sizes,
    )
    stacked, letter, is_whole = _stack_pattern(convert.pattern)
    if key is not None and not isinstance(key, int | str):
        raise ArgumentError(
            f'key={key!r}; give the name or number of one item, as in key="image", and make a '
            "second Collator for another one"
        )
    fill_numbers = None if fill is None else fill_values(fill)
    channel_order = _parse_sample_channels(channels, stacked, convert)
    resizing = parse_resize(resize, antialias, fit, short_side, pad_before)
    if resizing is not None:
        _check_resized_axes(convert)
    _check_center(center, stacked, convert)
    options = CollateOptions(
        replace(convert, pattern=stacked),
        letter,
        is_whole,
        fill_numbers,
        channel_order,
        resizing,
        key=key,
        center=center,
    )
    if as_int(seed) == 0 and offset is flip is crop is None:
        return options
    crop_axes = options.crop_axes(stacked.left.ndim - 1)
    return replace(options, crops=parse_crops(crop_axes, offset, flip, crop, seed))


def _single_axes(pattern: Pattern) -> list[str]:
    """Return the names of the axes of samples that are not folded."""
    return [names[0] for names in pattern.source.named if len(names) == 1]


def _check_center(center: Any, pattern: Pattern, options: ConvertOptions) -> None:
    """Raise unless `center` is a rule, and there is a window that another rule may move."""
    check_choice("center", center, CENTERINGS, ArgumentError)
    if center != DEFAULT_CENTERING and not {*_single_axes(pattern)} & {*options.sizes}:
        raise ArgumentError(
            f'center={center!r}, but "{pattern.text}" has no window that could be centered; give '
            "its size, as in h=224, w=224, or omit center"
        )


def _window_size(name: str, size: Any) -> int:
    """Return a size as an int; raise ShapeError unless it is a whole number that fits 64 bits."""
    number = as_int(size)
    if number is None or not 0 <= number < 1 << 63:
        raise ShapeError(f"{name}={size!r}; a size is an int >= 0, of at most 63 bits")
    return number


def _check_resized_axes(options: ConvertOptions) -> None:
    """Raise unless there is a size for an axis that can be resized, and none for channels."""
    single = _single_axes(options.pattern)
    if CHANNEL in single and CHANNEL in options.sizes:
        raise ArgumentError(
            f"c={options.sizes[CHANNEL]} with resize=: channels are not resized; select some by "
            "channels=(0, 1, 2)"
        )
    if not any(name in options.sizes for name in single):
        raise ArgumentError(
            f'resize= without a size of the result along an axis of "{options.pattern.left}" '
            "that is not folded; give one, as in h=224, w=224"
        )
    for name in single:
        size = as_int(options.sizes.get(name))
        if size is not None and size > MAX_SIDE:
            raise ArgumentError(
                f"{name}={size} with resize=; samples are resized to at most {MAX_SIDE} positions"
            )


def _stack_pattern(pattern: Pattern) -> tuple[Pattern, str, bool]:
    """Return the pattern of the stacked windows, the sample letter, and whether x has it."""
    left, right = pattern.left, pattern.right
    letters = [letter for letter in right.letters if right.name(letter) in _SAMPLES]
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
    channels: Any, pattern: Pattern, options: ConvertOptions
) -> tuple[int, ...] | None:
    """Return the channels as plain ints; raise unless samples have a channel axis of its own."""
    numbers = parse_channels(channels, pattern)
    if numbers is None:
        return None
    if (CHANNEL,) not in pattern.source.named:
        raise PatternError(
            f'channels={channels!r}, but on the left of "{pattern.text}" there is no axis c '
            "of its own; name it c"
        )
    if CHANNEL in options.sizes:
        raise ArgumentError(
            f"channels={channels!r} and c={options.sizes[CHANNEL]} both select channels; remove c"
        )
    return numbers
