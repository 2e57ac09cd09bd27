"""The way back of gradients: which Converter brings one from the result's layout to that of x.

Knows what was asked of the conversion, and of arrays their shape, dtype and device. The class of
Converters is handed in, as it stands on this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .caching import Cache, remember
from .errors import DtypeError, ShapeError
from .planning.task import Task
from .spec import DType, as_dtype, kind_of

if TYPE_CHECKING:
    from .converter import Converter

__all__ = ["Backs", "Facts", "sizes_of_source", "way_back"]

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
            return self._make(task.sizes, as_dtype(dtype) if fresh else None, None)
        move = task.pattern.resolve(source[0], task.sizes)
        if shape != move.target_shape:
            raise ShapeError(
                f'grad has shape {shape}, but "{task.pattern.text}" makes '
                f"{move.target_shape} of {source[0]}; pass the gradient of that result"
            )
        sizes = dict(zip(move.axes, move.sizes, strict=True))
        place = None if device == source[2] else source[2]
        wanted = as_dtype(source[1] if kind_of(source[1]) in "fc" else dtype)
        return self._make(sizes, wanted, place)

    def _make(self, sizes: Mapping[str, int], dtype: DType | None, device: str | None) -> Converter:
        """The Converter of gradients to an x of these sizes and dtype; for any batch size."""
        pattern, keywords, known = way_back(self._task, sizes, dtype, device)
        key = (tuple(known.items()), dtype, device)
        back = self._made.get(key)
        return back or remember(self._made, key, self._converter(pattern, **keywords, **known))


def way_back(
    task: Task, sizes: Mapping[str, int], dtype: DType | None, device: str | None
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The pattern, keywords and sizes of folds that bring gradients back, for any batch size."""
    formula = task.formula
    folded = {axis for group in task.pattern.target.groups if len(group) > 1 for axis in group}
    known = {
        letter: size for letter, size in sizes_of_source(task, sizes).items() if letter in folded
    }
    keywords = {
        "dtype": dtype,
        "scale": formula and formula.scale,
        "std": formula and formula.std,
        "device": device,
        "copy": None if device else task.copy,
    }
    return task.pattern.reversed().text, keywords, known


def sizes_of_source(task: Task, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The sizes that the opposite pattern can use: those of x's unfolded axes."""
    letters = task.pattern.source.letters
    return {letter: size for letter, size in sizes.items() if letter in letters}
