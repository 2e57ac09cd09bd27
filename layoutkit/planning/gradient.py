"""The ways back of a conversion, as the patterns and keywords of others.

The inverse takes a result back to x, and undoes its formula; the gradient's way takes the gradient
of a result to that of x, and only scales.

The way back of gradients: which Converter brings one from the result's layout to that of x.

Knows what was asked of the conversion, and of arrays their shape, dtype and device. The class of
Converters is handed in, as it stands on this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils import fork
from .._utils.cache import Cache, remember
from ..errors import ArgumentError, DtypeError, ShapeError
from ..layout.pattern import Move
from ..normalize import Bounds
from ..spec import ArraySpec, DType, as_dtype, kind_of
from .channels import Picks, turned
from .options import Task

if TYPE_CHECKING:
    from ..converter import Converter


def inverse(task: Task, dtype: Any) -> tuple[str, dict[str, Any]]:
    """The pattern and keywords of what makes x of a result, in `dtype` if given, saturating."""
    keywords: dict[str, Any] = dict(_sizes_of_source(task, task.sizes))
    formula, order = task.formula, None if task.channels is None else turned(task.channels)
    if formula is not None and formula.scales:
        inverted = formula.inverted()
        keywords |= (inverted if order is None else inverted.reordered(order)).keywords()
    if dtype is not None:
        keywords |= {"dtype": as_dtype(dtype), "casting": "saturate"}
    elif task.casting != "same_kind":
        keywords["casting"] = task.casting
    if task.channels is not None:
        keywords["channels"] = order
        if order is None:
            raise ArgumentError(
                f"channels={task.channels} are not 0 to {len(task.channels) - 1}, each once, after "
                "which x is not known; there is no inverse"
            )
    for name in ("copy", "threads"):
        if getattr(task, name) is not None:
            keywords[name] = getattr(task, name)
    return task.pattern.reversed().text, keywords


def folded(task: Task, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those of these sizes that the way of the gradient has to know; never that of the batch."""
    folds = {axis for group in task.pattern.target.named if len(group) > 1 for axis in group}
    return {axis: size for axis, size in _sizes_of_source(task, sizes).items() if axis in folds}


def gradient(
    task: Task, known: Mapping[str, int], dtype: DType | None, device: str | None
) -> tuple[str, dict[str, Any]]:
    """The pattern and keywords of what takes gradients to an x of a dtype, of these folds.

    To the channels of x that are taken, where these are not all of them, each once.
    """
    keywords: dict[str, Any] = {"dtype": dtype, "device": device, "threads": task.threads, **known}
    keywords["copy"] = None if device else task.copy
    formula = task.formula
    if task.channels is not None:
        keywords["channels"] = order = turned(task.channels)
        formula = formula.reordered(order) if formula is not None and order else formula
    if formula is not None and formula.scales:
        keywords |= {"scale": formula.scale, **formula.along("std")}
    return task.pattern.reversed().text, keywords


def _sizes_of_source(task: Task, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that the opposite pattern can use: those of x's unfolded axes."""
    there = {name for group in task.pattern.source.named for name in group}
    return {name: size for name, size in sizes.items() if name in there}


Facts = tuple[tuple[int, ...], DType, str]  # the shape, dtype and device of an array

_KEY_BYTES = 512  # of what says how a gradient and x look


class Backs:
    """The Converters of gradients of one conversion, kept by what gradient and x look like."""

    def __init__(self, task: Task, converter: type[Converter]) -> None:
        self._task, self._converter = task, converter
        self._made: dict[Any, Converter] = {}  # by dtype, device and the sizes of folds
        self._found: Cache[Converter] = Cache()  # the same by what a gradient and x look like

    def find(self, grad: Facts, source: Facts | None, fresh: bool) -> Converter:
        """The Converter of such a gradient to x, which is as `source` says.

        `fresh`: whether there is no output of the caller, whose dtype would count.

        Raises
        ------
        DtypeError, ShapeError
            It is no gradient of the result for such an x.
        """
        key = (grad, source, fresh)
        found = self._found.get(key)
        return found or remember(self._found, key, self._find(*key), _KEY_BYTES)

    def _find(self, grad: Facts, source: Facts | None, fresh: bool) -> Converter:
        shape, dtype, device = grad
        if kind_of(dtype) not in "fc":
            raise DtypeError(f"grad has dtype {dtype}; a gradient is floating")
        task = self._task
        if source is None:
            found = self._make(task.sizes, as_dtype(dtype) if fresh else None, None)
            _check_opened(task, found, shape)
            return found
        move = task.picked(source[0])[0]
        _check_shape(task, shape, move.target_shape, source[0])
        sizes = move.named_sizes
        place = None if device == source[2] else source[2]
        wanted = as_dtype(source[1] if kind_of(source[1]) in "fc" else dtype)
        return self._make(sizes, wanted, place)

    def _make(self, sizes: Mapping[str, int], dtype: DType | None, device: str | None) -> Converter:
        """The Converter of gradients to an x of these sizes and dtype; for any batch size."""
        known = folded(self._task, sizes)
        key = (tuple(known.items()), dtype, device)
        back = self._made.get(key)
        if back is None:
            pattern, keywords = gradient(self._task, known, dtype, device)
            back = remember(self._made, key, self._converter(pattern, **keywords))
        return back


def window_of_gradient(task: Task, grad: Any, facts: Facts, source: Facts | None) -> Any:
    """The gradient of x alone, of one for a result that is larger than x.

    Raises
    ------
    ArgumentError
        What x looks like is not known.
    ShapeError
        It is no gradient of the result for such an x.
    """
    if source is None:
        raise ArgumentError(
            f'"{task.pattern.text}" with into= has results of one size for an x of any; say which '
            "it was: backward(grad, like=x)"
        )
    with fork.making:
        from .plan import place_of  # late: `import layoutkit` stays light

    place = place_of(task, source[0])
    _check_shape(task, facts[0], place.shape, source[0])
    return grad.reshape(place.full)[place.window]


def taken(task: Task) -> Task:
    """The conversion of an x that has those channels alone that are taken."""
    return task._replace(channels=None)


def spread_of(task: Task, grad: Facts, source: Facts | None) -> tuple[Facts, Move, Picks] | None:
    """What is the gradient of channels that are not all of x, each once; None where they are.

    The first is what the gradient of these alone is like: several of one channel are summed, in
    32 bits at least.

    Raises ArgumentError where the channels of x are not known.
    """
    if task.channels is None:
        return None
    if source is None:
        if turned(task.channels) is None:
            raise ArgumentError(
                f"channels={task.channels} are taken from an x of any number of channels; say "
                "which it was: backward(grad, like=x)"
            )
        return None
    move, picks = task.picked(source[0])
    if picks is None or picks.is_permutation:
        return None
    dtype = source[1] if kind_of(source[1]) in "fc" else grad[1]
    if dtype.itemsize < np.dtype(np.float32).itemsize:
        dtype = np.dtype(np.float32)
    return (move.source_shape, dtype, source[2]), move, picks


def known_clip(task: Task, like: Any) -> Bounds | None:
    """The window of clip, None for none; ArgumentError unless x is there to be looked at."""
    if task.formula is None or task.formula.clip is None:
        return None
    if like is None or isinstance(like, ArraySpec):
        raise ArgumentError(
            "the gradient under clip depends on the values of x, which like= does not give; pass "
            "backward(grad, like=x)"
        )
    return task.formula.clip


def _check_opened(task: Task, back: Converter, shape: tuple[int, ...]) -> None:
    """Raise where the sizes of folds are not known or do not fit, and say where to give them."""
    folds = any(len(group) > 1 for group in task.pattern.target.groups)
    try:
        back.target_shape(shape)
    except ShapeError as error:
        if not folds or len(shape) != task.pattern.target.ndim:
            raise
        raise ShapeError(f"{error} to the Converter, or pass backward(grad, like=x)") from None


def _check_shape(
    task: Task, shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...]
) -> None:
    if shape != target:
        raise ShapeError(
            f'grad has shape {shape}, but "{task.pattern.text}" makes {target} of {source}; pass '
            "the gradient of that result"
        )
