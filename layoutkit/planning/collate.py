"""The checked options of a Collator, and the plan of a batch of windows.

A window is the crop of a sample that goes into the batch. The pattern of the options converts the
stacked windows: it has the sample axis on both sides. `resolve_crops` reads the arguments of one
call: `offset=`, `flip=` and `indices=`.

A `BatchLayout` describes a batch of a number of windows of one size and dtype: the conversion of
one window, the memory layout of the batch, and the conversion of the whole batch afterwards, if
any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from .._utils import late
from .._utils.validation import as_int, type_name
from ..errors import ArgumentError, DtypeError, ShapeError
from ..layout.parsing import Layout
from ..layout.pattern import (
    Pattern,
    Permutation,
    axis_name,
)
from ..memory import Array, contiguous_strides
from ..normalize import CHANNEL
from ..spec import CPU, DType
from .centering import centered_start
from .crops import RANDOM, CropArgs, DrawnByAxis
from .keywords import sizes_dict, sizes_text
from .loops import byte_strides
from .padding import Padding
from .plan import Part, Plan, SupportsFloat16, make_single_plan
from .resize import Placements, ResizeOptions, place_samples
from .samples import SampleAxes

if TYPE_CHECKING:
    from ..options import CollateOptions, ConvertOptions


def check_same_rank_and_dtype(facts: Sequence[tuple[tuple[int, ...], DType]]) -> None:
    """Raise unless all samples, of these shapes and dtypes, have one rank and dtype."""
    shape, dtype = facts[0]
    for number, (other_shape, other_dtype) in enumerate(facts):
        if other_dtype != dtype:
            raise DtypeError(
                f"sample {number} has dtype {other_dtype}, but sample 0 has {dtype}; give "
                "samples of one dtype"
            )
        if len(other_shape) != len(shape):
            raise ShapeError(
                f"sample {number} has {len(other_shape)} axes, but sample 0 has {len(shape)}; give "
                "samples of one rank"
            )


_FAR = 1 << 60  # elements; sums of two still fit 64 bits


class CropPlacement(NamedTuple):
    """The start of each window in its sample, and its reversed axes: one row per sample."""

    starts: Array
    flips: Array


def normalize_indices(indices: Any, count: int) -> Array:
    """Return `indices` along the sample axis counted from 0; None selects all.

    Raises
    ------
    ArgumentError
        They are not a flat list or array of whole numbers.
    ShapeError
        An index is out of range.
    """
    if indices is None:
        return np.arange(count)
    numbers = _as_int_array(indices)
    if numbers is None or numbers.ndim != 1:
        raise _argument_error("indices", indices, "one list or array of whole numbers")
    wrong = np.flatnonzero((numbers < -count) | (numbers >= count))
    if wrong.size:
        pos = int(wrong[0])
        raise ShapeError(
            f"indices[{pos}] is {numbers[pos]}, but the array has {count} samples; give "
            f"indices from {-count} to {count - 1}"
        )
    return np.where(numbers < 0, numbers + count, numbers)


PerSampleArgs: TypeAlias = dict[int, Array]


def parse_offset_and_flip(
    options: CollateOptions, places: Mapping[str, int], args: CropArgs, count: int
) -> tuple[PerSampleArgs, PerSampleArgs]:
    """Return `offset` and `flip` of one call; see `parse_per_sample`."""
    if args.crop is not None:
        raise ArgumentError(
            f"crop={args.crop!r} is the part of a sample that is resized; give resize= too, or the "
            f"size of windows by axis, as in {sizes_text(args.crop)}"
        )
    if args.offset is args.flip is None:
        return {}, {}
    movable = places
    if options.channels is not None:
        movable = {name: axis for name, axis in places.items() if name != CHANNEL}
    return (
        parse_per_sample("offset", args.offset, movable, count),
        parse_per_sample("flip", args.flip, places, count),
    )


def parse_per_sample(
    arg_name: str, value: Any, places: Mapping[str, int], count: int
) -> PerSampleArgs:
    """Return the argument `crop`, `offset` or `flip` of one call as int64 arrays by axis.

    An array has one value, or one per sample. Axes that are not named are omitted. `places` are the
    axes that may be named.

    Raises
    ------
    ArgumentError
        The argument is malformed, or names an axis that samples do not have.
    ShapeError
        The number of values is not `count`.
    """
    if value is None:
        return {}
    if type(value) is DrawnByAxis:
        return {places[name]: values for name, values in value.items()}
    if isinstance(value, str) and value == RANDOM:
        raise ArgumentError(
            f'{arg_name}="random" is an option of a Collator: Collator(..., {arg_name}="random")'
        )
    by_axis = {value: True} if arg_name == "flip" and isinstance(value, str) else value
    if not isinstance(by_axis, Mapping):
        forms = {
            "flip": 'an axis, such as "w", or a dict, such as {"w": [True, False]}',
            "offset": 'a dict, such as {"h": 0, "w": [4, 7]}',
            "crop": f"a dict, such as {sizes_dict(value)}",
        }
        raise ArgumentError(f"{arg_name}={value!r}; it must be {forms[arg_name]}")
    parse = _parse_flags if arg_name == "flip" else _parse_positions
    return {
        _crop_axis(arg_name, value, name, places): parse(f"{arg_name}[{name!r}]", values, count)
        for name, values in by_axis.items()
    }


def resolve_crops(
    options: CollateOptions,
    axes: SampleAxes,
    shapes: Array,
    window: Array,
    args: CropArgs,
    count: int,
) -> CropPlacement:
    """Return the start and flips of every window; axes without an offset are center-cropped."""
    offsets, flips = parse_offset_and_flip(options, axes.places(), args, count)
    centered = centered_start(shapes - window, options.center)
    begins = np.array(np.broadcast_to(centered, (count, len(window))))
    flags = np.zeros((count, len(window)), bool)
    for axis, values in offsets.items():
        begins[:, axis] = np.clip(values, -_FAR, _FAR)
    for axis, values in flips.items():
        flags[:, axis] = values
    return CropPlacement(begins, flags)


def place_resized(
    options: CollateOptions, axes: SampleAxes, shapes: Array, args: CropArgs
) -> tuple[list[int], Placements]:
    """Return the indices of the resized axes, and the placement of samples of `shapes` along them.

    Raises ShapeError or ArgumentError if a crop does not fit its sample; see `place_samples`.
    """
    resize = options.resize
    if resize is None:
        raise RuntimeError("samples are not resized")
    indices = [i for i, name in enumerate(axes.cropped_names) if name is not None]
    names = tuple(name for name in axes.cropped_names if name is not None)
    columns = {name: i for i, name in enumerate(names)}
    count = len(shapes)
    return indices, place_samples(
        resize,
        names,
        shapes[:, indices],
        tuple(options.convert.sizes[name] for name in names),
        parse_per_sample("crop", args.crop, columns, count),
        parse_per_sample("offset", args.offset, columns, count),
        options.fill is not None or resize.fit == "pad",
        options.center,
    )


def _crop_axis(arg_name: str, value: Any, name: Any, places: Mapping[str, int]) -> int:
    axis = places.get(axis_name(name)) if isinstance(name, str) else None
    if axis is None:
        raise ArgumentError(
            f"{arg_name}={value!r}, but samples cannot be cropped or flipped along "
            f"{name!r}; the axes are {', '.join(places)}"
        )
    return axis


def _parse_positions(arg_name: str, value: Any, count: int) -> Array:
    if type(value) is np.ndarray and value.dtype == np.int64 and value.shape == (count,):
        return value if value.flags.aligned else value.copy()
    number = as_int(value)
    if number is None or abs(number) <= _FAR:
        numbers = _as_int_array(value) if number is None else np.array(number, np.int64)
        if numbers is not None and numbers.ndim <= 1:
            _check_count(arg_name, numbers, count)
            return numbers
    raise _argument_error(arg_name, value, "a whole number, or one for each sample")


def _parse_flags(arg_name: str, value: Any, count: int) -> Array:
    if value is True or value is False:
        return np.array(value, np.int64)
    flags = _as_array(value)
    if flags is None:
        raise _argument_error(arg_name, value, "a bool, or one for each sample")
    flags = flags.astype(bool) if flags.shape == (0,) else flags
    if flags.dtype.kind != "b" or flags.ndim > 1:
        raise _argument_error(arg_name, value, "a bool, or one for each sample")
    _check_count(arg_name, flags, count)
    return flags.astype(np.int64)


def _check_count(arg_name: str, values: Array, count: int) -> None:
    if values.ndim and len(values) != count:
        raise ShapeError(
            f"{arg_name} has {len(values)} values for {count} samples; give one "
            "for each, or one for all"
        )


def _as_array(values: Any) -> Array | None:
    """Return an array of `values`, or None if they cannot be read as one."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: abstract tensors
        return None


def _argument_error(arg_name: str, value: Any, expected: str) -> ArgumentError:
    """Return the error for an invalid argument, which may be a traced or device array."""
    first = next(iter(value), None) if isinstance(value, list | tuple) else value
    if not hasattr(first, "dtype") or _as_array(first) is not None:
        return ArgumentError(f"{arg_name} is {value!r}; give {expected}")
    return ArgumentError(
        f"{arg_name} is a {type_name(first)}, whose numbers cannot be read: it is on "
        "another device, or is abstract while a function is compiled. Give numbers or lists of "
        "them, and make batches outside of compiled functions if the numbers change between calls"
    )


def _as_int_array(values: Any) -> Array | None:
    """Return an array of ints, or None for anything else."""
    numbers = _as_array(values)
    if numbers is None:
        return None
    if numbers.size == 0 and isinstance(values, list | tuple | range):
        return numbers.astype(np.int64)
    listed = isinstance(values, list | tuple)
    if numbers.dtype.kind not in "iu" or (listed and any(isinstance(v, bool) for v in values)):
        return None
    return (
        numbers.astype(np.int64) if numbers.dtype.kind == "i" or (numbers <= _FAR).all() else None
    )


def check_windows_inside(
    axes: SampleAxes, begins: Array, shapes: Array, window: tuple[int, ...], outside: Array
) -> None:
    """Raise ShapeError if a window reaches outside of its sample, as `outside` marks."""
    for number, axis in np.argwhere(outside).tolist():
        begin, size = (a[number if len(a) > 1 else 0, axis] for a in (begins, shapes))
        name = axes.sample.named[axis][0]
        raise ShapeError(
            f"sample {number} has size {size} along {name}, but its window of {window[axis]} goes "
            f"from {begin} to {begin + window[axis]}; give another offset or size, or fill=0 to pad"
        )


class BatchLayout(NamedTuple):
    """The memory of a batch of windows of one size, and the conversion of a window into it.

    options     the conversion of one window, to memory in which every letter is an axis
    plan        the plan of the conversion of all stacked windows
    window      the sizes of a window
    shape, dtype, strides    of the memory, which is the batch unless there is a `post_conversion`
    step        the stride of the sample axis in that memory
    sample_region      the shape and strides of one window in that memory
    post_conversion    the conversion of the memory to the batch, None if it is the batch
    """

    options: ConvertOptions
    plan: Plan
    window: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    step: int
    sample_region: Part
    post_conversion: ConvertOptions | None


class Collation(NamedTuple):
    """The plan of a batch, for `print`; `plans` has the plan of each kind of windows."""

    layout: BatchLayout
    samples: int
    plans: tuple[Plan, ...]
    resize: ResizeOptions | None = None

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        plan = self.layout.plan
        html: str = late.load("drawing").notebook_html(str(self), plan.pattern, plan.move)
        return html

    def __str__(self) -> str:
        plan = self.layout.plan
        post_conversion = self.layout.post_conversion
        lines = [f"{plan.pattern}: {plan.source} -> {plan.target}"]
        kinds = Counter(window_plan.kernel for window_plan in self.plans)
        shown = ", ".join(f"{kernel} ({count})" for kernel, count in kinds.items())
        kinds_text = f"{len(self.plans)} kind{'s' if len(self.plans) != 1 else ''}"
        lines.append(f"  samples   {self.samples}, in {kinds_text} of windows: {shown}")
        if self.resize is not None:
            shown = ", ".join(f"{k}={v!r}" for k, v in self.resize.keywords().items())
            lines.append(f"  resize    {shown}: rows, then columns of blocks, as float32")
        if post_conversion is not None:
            lines.append("  before    windows are gathered as they are, and converted as one batch")
        lines += str(plan).splitlines()[1:]
        return "\n".join(lines)


def make_batch_layout(
    options: CollateOptions,
    axes: SampleAxes,
    count: int,
    window: tuple[int, ...],
    source: DType,
    out: Any,
    has_half: SupportsFloat16,
) -> BatchLayout:
    """Return the memory layout of a batch.

    Raises what converting the stacked windows would raise.
    """
    convert = options.convert
    pattern = axes.pattern
    if options.fill is not None:
        fill_array_of(options, axes, window, source)  # raises its errors
    sizes = list(window)
    sizes.insert(pattern.source.groups.index(options.letter), count)
    shape = tuple(sizes)
    move = pattern.resolve(shape, convert.sizes)
    batch_options = replace(convert, pattern=pattern)
    plan = make_single_plan(
        batch_options, shape, contiguous_strides(shape, source), source, CPU, out, has_half
    )
    target = plan.target.shape
    dtype = plan.target.dtype
    strides = contiguous_strides(target, dtype) if out is None else tuple(out.strides)
    steps = byte_strides(move.target.groups, move.target_axes, move.target_sizes, strides)
    strides_by_letter = dict(zip(move.target_axes, steps, strict=True))
    if _needs_post_conversion(options, move, plan, strides_by_letter):
        return _unconverted_layout(options, axes, move, plan, window, source)
    sample = _sample_pattern(axes, move, options.letter, move.target_axes)
    one = replace(convert, pattern=sample, sizes=_folded_sizes(axes, move), device=None)
    part = _window_part(move, options.letter, move.target_axes, strides_by_letter, dtype)
    return BatchLayout(
        one, plan, window, target, dtype, strides, strides_by_letter[options.letter], part, None
    )


def _needs_post_conversion(
    options: CollateOptions, move: Permutation, plan: Plan, steps: dict[str, int]
) -> bool:
    """Return whether converting windows one by one is impossible or slow."""
    formula = options.convert.formula
    letter = options.letter
    if (
        plan.before is not None
        or plan.after is not None
        or options.convert.device not in (None, CPU)
    ):
        return True
    if formula is not None and formula.per_channel and formula.letter(move) == letter:
        return True
    sizes = dict(zip(move.target_axes, move.target_sizes, strict=True))
    nearest = min((abs(step) for axis, step in steps.items() if sizes[axis] > 1), default=0)
    return sizes[letter] > 1 and abs(steps[letter]) == nearest


def _unconverted_layout(
    options: CollateOptions,
    axes: SampleAxes,
    move: Permutation,
    plan: Plan,
    window: tuple[int, ...],
    source: DType,
) -> BatchLayout:
    """Return the layout of unconverted windows, whose stack is converted afterwards."""
    size = dict(zip(move.axes, move.sizes, strict=True))
    letters = options.letter + axes.sample.letters
    shape = tuple(size[letter] for letter in letters)
    strides = contiguous_strides(shape, source)
    strides_by_letter = dict(zip(letters, strides, strict=True))
    sample = _sample_pattern(axes, move, options.letter, letters)
    plain = replace(
        options.convert,
        pattern=sample,
        dtype=None,
        formula=None,
        casting="same_kind",
        device=None,
        sizes=_folded_sizes(axes, move),
    )
    names = move.source.names + move.target.names
    stacked = Pattern(Layout(tuple(letters), names), axes.pattern.target, axes.pattern.text)
    post_conversion = replace(options.convert, pattern=stacked, sizes={})
    part = _window_part(move, options.letter, letters, strides_by_letter, source)
    return BatchLayout(
        plain, plan, window, shape, source, strides, strides[0], part, post_conversion
    )


def _window_part(
    move: Permutation, letter: str, letters: str, steps: dict[str, int], dtype: DType
) -> Part:
    """Return the shape and strides of one window in memory with these axes."""
    sizes = dict(zip(move.axes + move.target_axes, move.sizes + move.target_sizes, strict=True))
    sample_letters = [axis for axis in letters if axis != letter]
    return Part(
        tuple(sizes[x] for x in sample_letters), tuple(steps[x] for x in sample_letters), dtype
    )


def _sample_pattern(axes: SampleAxes, move: Permutation, letter: str, letters: Any) -> Pattern:
    """Return the conversion of one window to memory in which every letter is an axis."""
    names = move.source.names + move.target.names
    unfolded = Layout(tuple(axis for axis in letters if axis != letter), names)
    return Pattern(Layout(axes.sample.groups, names), unfolded, axes.pattern.text)


def _folded_sizes(axes: SampleAxes, move: Permutation) -> dict[str, int]:
    """Return the sizes of the axes that samples fold, by name."""
    folded = "".join(group for group in axes.sample.groups if len(group) > 1)
    sizes = zip(move.axes, move.sizes, strict=True)
    return {move.source.name(axis): size for axis, size in sizes if axis in folded}


def fill_array_of(
    options: CollateOptions, axes: SampleAxes, window: tuple[int, ...], source: DType
) -> Array:
    """Return the fill values in the dtype of samples: one, or one per channel of a window."""
    values = options.fill or (0,)
    padding = Padding((), (), values)
    if options.channels is not None:
        if len(values) > 1 and max(options.channels) >= len(values):
            raise ShapeError(
                f"fill has {len(values)} values, but channels has {max(options.channels)}, counted "
                "from 0; give one for each channel of a sample"
            )
        pixel = padding.pixel(source, len(values))
        return pixel[list(options.channels)] if len(values) > 1 else pixel
    sizes = zip(axes.sample.named, window, strict=True)
    channel_sizes = [size for names, size in sizes if names == (CHANNEL,)]
    folded = CHANNEL in map(axes.sample.name, axes.sample.letters) and not channel_sizes
    return padding.pixel(
        source, channel_sizes[0] if channel_sizes else len(values) if folded else None
    )
