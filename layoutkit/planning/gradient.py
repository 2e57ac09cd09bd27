"""The conversions that compute inverses and gradients (vector-Jacobian products).

`make_inverse_arguments` converts a result back to x and undoes the formula.
`make_gradient_arguments` converts the gradient of a result to the gradient of x, which only scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils import fork
from ..errors import ArgumentError, ShapeError
from ..layout.pattern import Permutation
from ..normalize import CHANNEL, Bounds
from ..spec import ArraySpec, DType, as_result_dtype, dtype_kind
from .channels import ChannelSelection, invert_permutation

if TYPE_CHECKING:
    from ..options import ConvertOptions


def make_inverse_arguments(options: ConvertOptions, dtype: Any) -> tuple[str, dict[str, Any]]:
    """Return pattern and keywords of the inverse, which saturates to `dtype` if that is given."""
    if options.padding is not None:
        raise ArgumentError(
            f"pad_to={dict(options.padding.sizes)} makes one size of any size of x, "
            "so x cannot be found in a result and there is no inverse; "
            "invert a Converter without pad_to=, and crop its result"
        )
    if options.pattern.folds_ellipsis:
        raise ArgumentError(
            f'"{options.pattern.text}" folds "...", any number of axes, so there is no inverse; '
            "name these axes"
        )
    keywords: dict[str, Any] = dict(_find_sizes_of_source(options, options.sizes))
    formula = options.formula
    order = None if options.channels is None else invert_permutation(options.channels)
    if formula is not None and formula.scales:
        inverted = formula.inverse()
        keywords |= (inverted if order is None else inverted.with_channel_order(order)).keywords()
    if dtype is not None:
        keywords |= {"dtype": as_result_dtype(dtype), "casting": "saturate"}
    elif options.casting != "same_kind":
        keywords["casting"] = options.casting
    if options.channels is not None:
        keywords["channels"] = order
        if order is None:
            raise ArgumentError(
                f"channels={options.channels} is not a permutation of 0 to "
                f"{len(options.channels) - 1}, so there is no inverse"
            )
    for name in ("copy", "threads"):
        if getattr(options, name) is not None:
            keywords[name] = getattr(options, name)
    return options.pattern.reversed().text, keywords


def without_folded_ellipsis(options: ConvertOptions, ndim: int) -> ConvertOptions:
    """Return the conversion of an x of rank `ndim` with names for a folded `...`, to reverse it."""
    if not options.pattern.folds_ellipsis:
        return options
    return replace(options, pattern=options.pattern.with_named_ellipsis(ndim))


def find_folded_sizes(options: ConvertOptions, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that the gradient's conversion needs; never the batch size."""
    folds = {axis for group in options.pattern.target.named if len(group) > 1 for axis in group}
    return {
        axis: size for axis, size in _find_sizes_of_source(options, sizes).items() if axis in folds
    }


def make_gradient_arguments(
    options: ConvertOptions, known: Mapping[str, int], dtype: DType | None, device: str | None
) -> tuple[str, dict[str, Any]]:
    """Return pattern and keywords of the conversion from the result's gradient to x's gradient.

    `known` has the sizes of folded axes; `dtype` and `device` belong to the gradient of x. If
    the selected channels are not a permutation, the gradient has the selected channels only.
    """
    keywords: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "threads": options.threads,
        **known,
    }
    keywords["copy"] = None if device else options.copy
    formula = options.formula
    if options.channels is not None:
        keywords["channels"] = order = invert_permutation(options.channels)
        formula = formula.with_channel_order(order) if formula is not None and order else formula
    if formula is not None and formula.scales:
        keywords |= {"scale": formula.scale, **formula.along("std")}
    return options.pattern.reversed().text, keywords


def _find_sizes_of_source(options: ConvertOptions, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that the reversed pattern can use: sizes of axes of x."""
    names = {name for group in options.pattern.source.named for name in group}
    return {name: size for name, size in sizes.items() if name in names}


ArrayInfo = tuple[tuple[int, ...], DType, str]  # the shape, dtype and device of an array


def crop_gradient(
    options: ConvertOptions, grad: Any, grad_info: ArrayInfo, source: ArrayInfo | None
) -> Any:
    """Return the part of a padded result's gradient that belongs to x.

    Raises
    ------
    ArgumentError
        `source` is None.
    ShapeError
        `grad` does not have the shape of the result for such an x.
    """
    if source is None:
        raise ArgumentError(
            f'"{options.pattern.text}" with pad_to= has one result size for any size of x; pass x: '
            "backward(grad, like=x)"
        )
    with fork.init_lock:
        from .plan import resolve_padding  # late: `import layoutkit` stays fast

    region = resolve_padding(options, source[0])
    check_shape(options, grad_info[0], region.shape, source[0])
    return grad.reshape(region.full)[region.window]


def without_channels(options: ConvertOptions) -> ConvertOptions:
    """Return the conversion of an x that has only the selected channels."""
    if options.channels is None or CHANNEL not in options.sizes:
        return replace(options, channels=None)
    return replace(options, channels=None, sizes={**options.sizes, CHANNEL: len(options.channels)})


def make_channel_scatter(
    options: ConvertOptions, grad: ArrayInfo, source: ArrayInfo | None
) -> tuple[ArrayInfo, Permutation, ChannelSelection] | None:
    """Return how to scatter the gradient of selected channels; None if they are a permutation.

    Returns the ArrayInfo of the gradient of the selected channels, the move, and the selection. The
    dtype has at least 32 bits, as gradients of a channel that is selected several times are summed.

    Raises ArgumentError if the channels of x are unknown.
    """
    if options.channels is None:
        return None
    if source is None:
        if invert_permutation(options.channels) is None:
            raise ArgumentError(
                f"channels={options.channels} selects from an x of any number of channels; pass x: "
                "backward(grad, like=x)"
            )
        return None
    move, picks = options.select_channels(source[0])
    if picks is None or picks.is_permutation:
        return None
    dtype = source[1] if dtype_kind(source[1]) in "fc" else grad[1]
    if dtype.itemsize < np.dtype(np.float32).itemsize:
        dtype = np.dtype(np.float32)
    return (move.source_shape, dtype, source[2]), move, picks


def find_clip_bounds(options: ConvertOptions, like: Any) -> Bounds | None:
    """Return the bounds of clip, or None; raise ArgumentError if the values of x are not given."""
    if options.formula is None or options.formula.clip is None:
        return None
    if like is None or isinstance(like, ArraySpec):
        raise ArgumentError(
            "the gradient under clip depends on the values of x, which like= does not give; pass "
            "backward(grad, like=x)"
        )
    return options.formula.clip


def check_shape(
    options: ConvertOptions,
    shape: tuple[int, ...],
    target: tuple[int, ...],
    source: tuple[int, ...],
) -> None:
    """Raise ShapeError unless a gradient has the shape of the result for x of shape `source`."""
    if shape != target:
        raise ShapeError(
            f'grad has shape {shape}, but "{options.pattern.text}" makes {target} of {source}; '
            "pass the gradient of that result"
        )
