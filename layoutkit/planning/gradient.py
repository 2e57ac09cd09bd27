"""The conversions that compute inverses and gradients (vector-Jacobian products).

`inverse_arguments` converts a result back to x and undoes the formula. `gradient_arguments`
converts the gradient of a result to the gradient of x, which only scales. `GradientConverters`
caches the Converters of gradients; its caller passes the Converter class, because
`layoutkit.converter` imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils import fork
from .._utils.cache import Cache, cache_put
from ..errors import ArgumentError, DtypeError, ShapeError
from ..layout.pattern import Permutation
from ..normalize import CHANNEL, Bounds
from ..spec import ArraySpec, DType, as_dtype, as_result_dtype, dtype_kind
from .channels import ChannelSelection, inverse_permutation
from .options import ConvertOptions

if TYPE_CHECKING:
    from ..converter import Converter


def inverse_arguments(task: ConvertOptions, dtype: Any) -> tuple[str, dict[str, Any]]:
    """Return pattern and keywords of the inverse, which saturates to `dtype` if that is given."""
    if task.padding is not None:
        raise ArgumentError(
            f"pad_to={dict(task.padding.sizes)} makes one size of any size of x, so x cannot be "
            "found in a result and there is no inverse; invert a Converter without pad_to=, and "
            "crop its result"
        )
    if task.pattern.folds_ellipsis:
        raise ArgumentError(
            f'"{task.pattern.text}" folds "...", any number of axes, so there is no inverse; name '
            "these axes"
        )
    keywords: dict[str, Any] = dict(_sizes_of_source(task, task.sizes))
    formula = task.formula
    order = None if task.channels is None else inverse_permutation(task.channels)
    if formula is not None and formula.scales:
        inverted = formula.inverse()
        keywords |= (inverted if order is None else inverted.with_channel_order(order)).keywords()
    if dtype is not None:
        keywords |= {"dtype": as_result_dtype(dtype), "casting": "saturate"}
    elif task.casting != "same_kind":
        keywords["casting"] = task.casting
    if task.channels is not None:
        keywords["channels"] = order
        if order is None:
            raise ArgumentError(
                f"channels={task.channels} is not a permutation of 0 to {len(task.channels) - 1}, "
                "so there is no inverse"
            )
    for name in ("copy", "threads"):
        if getattr(task, name) is not None:
            keywords[name] = getattr(task, name)
    return task.pattern.reversed().text, keywords


def without_folded_ellipsis(task: ConvertOptions, ndim: int) -> ConvertOptions:
    """Return the conversion of an x of rank `ndim` with names for a folded `...`, to reverse it."""
    if not task.pattern.folds_ellipsis:
        return task
    return task._replace(pattern=task.pattern.with_named_ellipsis(ndim))


def folded_sizes(task: ConvertOptions, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that the gradient's conversion needs; never the batch size."""
    folds = {axis for group in task.pattern.target.named if len(group) > 1 for axis in group}
    return {axis: size for axis, size in _sizes_of_source(task, sizes).items() if axis in folds}


def gradient_arguments(
    task: ConvertOptions, known: Mapping[str, int], dtype: DType | None, device: str | None
) -> tuple[str, dict[str, Any]]:
    """Return pattern and keywords of the conversion from the result's gradient to that of x.

    `known` has the sizes of folded axes; `dtype` and `device` are those of the gradient of x. If
    the selected channels are not a permutation, the gradient is that of the selected channels only.
    """
    keywords: dict[str, Any] = {"dtype": dtype, "device": device, "threads": task.threads, **known}
    keywords["copy"] = None if device else task.copy
    formula = task.formula
    if task.channels is not None:
        keywords["channels"] = order = inverse_permutation(task.channels)
        formula = formula.with_channel_order(order) if formula is not None and order else formula
    if formula is not None and formula.scales:
        keywords |= {"scale": formula.scale, **formula.along("std")}
    return task.pattern.reversed().text, keywords


def _sizes_of_source(task: ConvertOptions, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that the reversed pattern can use: sizes of axes of x."""
    names = {name for group in task.pattern.source.named for name in group}
    return {name: size for name, size in sizes.items() if name in names}


ArrayInfo = tuple[tuple[int, ...], DType, str]  # the shape, dtype and device of an array

_KEY_BYTES = 512  # of a cache key


class GradientConverters:
    """The Converters of the gradients of one conversion, cached by the gradient and x."""

    def __init__(self, task: ConvertOptions, converter: type[Converter]) -> None:
        self._task, self._converter = task, converter
        self._made: dict[Any, Converter] = {}  # by dtype, device and the sizes of folds
        self._found: Cache[Converter] = Cache()  # by the facts of gradient and x

    def find(self, grad: ArrayInfo, source: ArrayInfo | None, fresh: bool) -> Converter:
        """Return the Converter from a gradient like `grad` to an x like `source`.

        `fresh`: the caller gives no output, whose dtype would decide the dtype of the result.

        Raises
        ------
        DtypeError, ShapeError
            `grad` does not match the result of the conversion for such an x.
        """
        key = (grad, source, fresh)
        converter = self._found.get(key)
        return converter or cache_put(self._found, key, self._find(*key), _KEY_BYTES)

    def _find(self, grad: ArrayInfo, source: ArrayInfo | None, fresh: bool) -> Converter:
        shape, dtype, device = grad
        if dtype_kind(dtype) not in "fc":
            raise DtypeError(f"grad has dtype {dtype}; a gradient is floating")
        task = self._task
        if source is None:
            if task.pattern.folds_ellipsis:
                raise ArgumentError(
                    f'"{task.pattern.text}" folds "...", any number of axes; pass x: '
                    "backward(grad, like=x)"
                )
            converter = self._make(task, task.sizes, as_dtype(dtype) if fresh else None, None)
            _check_folded_sizes(task, converter, shape)
            return converter
        task = without_folded_ellipsis(task, len(source[0]))
        move = task.select_channels(source[0])[0]
        _check_shape(task, shape, move.target_shape, source[0])
        sizes = move.named_sizes
        target_device = None if device == source[2] else source[2]
        target_dtype = as_dtype(source[1] if dtype_kind(source[1]) in "fc" else dtype)
        return self._make(task, sizes, target_dtype, target_device)

    def _make(
        self,
        task: ConvertOptions,
        sizes: Mapping[str, int],
        dtype: DType | None,
        device: str | None,
    ) -> Converter:
        """Return the Converter of gradients to an x of these sizes and dtype, of any batch size."""
        known = folded_sizes(task, sizes)
        key = (tuple(known.items()), dtype, device)
        back = self._made.get(key)
        if back is None:
            pattern, keywords = gradient_arguments(task, known, dtype, device)
            back = cache_put(self._made, key, self._converter(pattern, **keywords))
        return back


def crop_gradient(
    task: ConvertOptions, grad: Any, facts: ArrayInfo, source: ArrayInfo | None
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
            f'"{task.pattern.text}" with pad_to= has one result size for any size of x; pass x: '
            "backward(grad, like=x)"
        )
    with fork.init_lock:
        from .plan import resolve_padding  # late: `import layoutkit` stays fast

    region = resolve_padding(task, source[0])
    _check_shape(task, facts[0], region.shape, source[0])
    return grad.reshape(region.full)[region.window]


def without_channels(task: ConvertOptions) -> ConvertOptions:
    """Return the conversion of an x that has only the selected channels."""
    if task.channels is None or CHANNEL not in task.sizes:
        return task._replace(channels=None)
    return task._replace(channels=None, sizes={**task.sizes, CHANNEL: len(task.channels)})


def channel_scatter(
    task: ConvertOptions, grad: ArrayInfo, source: ArrayInfo | None
) -> tuple[ArrayInfo, Permutation, ChannelSelection] | None:
    """Return how to scatter the gradient of selected channels; None if they are a permutation.

    Returns the facts of the gradient of the selected channels, the move, and the selection. The
    dtype has at least 32 bits, as gradients of a channel that is selected several times are summed.

    Raises ArgumentError if the channels of x are unknown.
    """
    if task.channels is None:
        return None
    if source is None:
        if inverse_permutation(task.channels) is None:
            raise ArgumentError(
                f"channels={task.channels} selects from an x of any number of channels; pass x: "
                "backward(grad, like=x)"
            )
        return None
    move, picks = task.select_channels(source[0])
    if picks is None or picks.is_permutation:
        return None
    dtype = source[1] if dtype_kind(source[1]) in "fc" else grad[1]
    if dtype.itemsize < np.dtype(np.float32).itemsize:
        dtype = np.dtype(np.float32)
    return (move.source_shape, dtype, source[2]), move, picks


def clip_bounds(task: ConvertOptions, like: Any) -> Bounds | None:
    """Return the bounds of clip, or None; raise ArgumentError if the values of x are not given."""
    if task.formula is None or task.formula.clip is None:
        return None
    if like is None or isinstance(like, ArraySpec):
        raise ArgumentError(
            "the gradient under clip depends on the values of x, which like= does not give; pass "
            "backward(grad, like=x)"
        )
    return task.formula.clip


def _check_folded_sizes(task: ConvertOptions, back: Converter, shape: tuple[int, ...]) -> None:
    """Raise ShapeError, with a fix, if sizes of folded axes are unknown or do not fit."""
    folds = any(len(group) > 1 for group in task.pattern.target.groups)
    try:
        back.target_shape(shape)
    except ShapeError as error:
        if not folds or len(shape) != task.pattern.target.ndim:
            raise
        raise ShapeError(f"{error} to the Converter, or pass backward(grad, like=x)") from None


def _check_shape(
    task: ConvertOptions, shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...]
) -> None:
    if shape != target:
        raise ShapeError(
            f'grad has shape {shape}, but "{task.pattern.text}" makes {target} of {source}; pass '
            "the gradient of that result"
        )
