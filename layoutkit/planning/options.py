"""The checked options of a Converter, and the plan for an array of given shape and strides.

No array is read or written: planning uses the shape, strides, dtype and device of x and of `out`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import as_int
from ..errors import ArgumentError, DtypeError, PatternError, ShapeError
from ..layout.parsing import Layout, parse_layout
from ..layout.pattern import Pattern, Permutation, parse_pattern
from ..normalize import Normalization, make_normalization
from ..spec import (
    ArraySpec,
    DType,
    as_result_dtype,
    check_cast,
    check_casting,
    check_supported_dtype,
    dtype_kind,
    normalize_device,
)
from .centering import DEFAULT_CENTERING
from .channels import ChannelSelection, parse_channels, resolve_selection
from .keywords import check_sizes
from .padding import Padding, parse_padding

MAX_THREADS = 256  # of a conversion


class ConvertOptions(NamedTuple):
    """The checked arguments of a conversion. `device` None: the device of x.

    is_part : bool    the result is a part of a large array, so it is written past the caches as
                      that array would be; set by the code that makes the large array, no argument
    """

    pattern: Pattern
    dtype: DType | None
    formula: Normalization | None
    casting: str
    device: str | None
    copy: bool | None
    sizes: dict[str, int]
    memory: Layout | None = None
    threads: int | None = None
    padding: Padding | None = None
    channels: tuple[int, ...] | None = None  # of x, in result order; None: all
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
        return keywords | self.sizes

    def as_key(self) -> tuple[Any, ...]:
        """Return a hashable tuple of all options, equal for equal options."""
        # Wrapped in a tuple because in NumPy np.dtype("float64") == None is True.
        dtype = None if self.dtype is None else (self.dtype,)
        typed_sizes = [(name, type(size), size) for name, size in sorted(self.sizes.items())]
        hashable = {**self._asdict(), "dtype": dtype, "sizes": tuple(typed_sizes)}
        return tuple(hashable.values())

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


def check_out(out: Any, shape: tuple[int, ...], description: str) -> None:
    """Raise unless `out` has the result's shape and no two of its elements overlap."""
    if out.shape != shape:
        raise ShapeError(
            f"out has shape {out.shape}, but {description} makes {shape}; give that shape"
        )
    extent = out.dtype.itemsize
    for stride, count in sorted(zip(map(abs, out.strides), out.shape, strict=True)):
        if count > 1:
            if stride < extent and 0 not in out.shape:
                raise ArgumentError(
                    f"out of shape {out.shape} and strides {out.strides} may have overlapping "
                    "elements; give an out whose elements do not overlap"
                )
            extent += stride * (count - 1)


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
