"""What holds the elements: a NumPy array, a file, or anything that is indexed like an array.

A source knows its shape, and reads and writes what selectors select (see `selections.py`). It
is never copied, and what is not selected is never read.

Knows nothing of keys as users write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...axes import as_shape
from ...checks import kind_text
from ...errors import DataError
from ...memory import Array
from ...spec import DType, as_dtype
from .selections import Selection, Selector

__all__ = ["ArraySource", "LikeSource", "Source"]


class Source(Protocol):
    """Where elements are."""

    shape: tuple[int, ...]
    dtype: DType
    writable: bool

    def read(self, selection: Selection) -> Array:
        """What is selected: the source's own memory where that is possible."""

    def write(self, selection: Selection, value: Array) -> None:
        """Write a value that was checked to what is selected."""

    def fields(self, names: Any) -> Source:
        """The source of some fields of a structured dtype."""

    def same(self, other: Source) -> bool:
        """Whether both are the same memory."""


class ArraySource:
    """A NumPy array."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.writable = array.flags.writeable

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self.writable:  # which an array forgets when it is pickled
            self.array = self.array.view()
            self.array.flags.writeable = False

    def read(self, selection: Selection) -> Array:
        """A window, or a copy where there is an array of indices."""
        window, key = self._at(selection.selectors)
        found = window if key is None else window[key]
        for parts in selection.rest:
            found = np.asarray(found[parts])
        return found

    def write(self, selection: Selection, value: Array) -> None:
        """Write through to the array."""
        window, key = self._at(selection.selectors)
        if selection.rest:
            places = list(selection.places())
            if key is not None:
                places[len(key) - 1] = key[-1][places[len(key) - 1]]
            window = _with_axis(window)
            key = tuple(places)
        if key is None:
            window[...] = value  # NumPy sees to what overlaps
        else:
            window[key] = value.copy() if np.may_share_memory(window, value) else value

    def fields(self, names: Any) -> Source:
        """The fields' own memory."""
        return ArraySource(self.array[names])

    def same(self, other: Source) -> bool:
        """Whether both are one memory, seen in one way."""
        if not isinstance(other, ArraySource):
            return False
        a, b = self.array, other.array
        return a is b or a.__array_interface__ == b.__array_interface__

    def _at(self, selectors: Sequence[Selector]) -> tuple[Array, Any]:
        """A window of all but the array of indices, and the key that this is in the window."""
        key = tuple(_as_key(selector) for selector in selectors)
        window = self.array[(*key, ...)]
        kept = [selector for selector in selectors if not isinstance(selector, int)]
        for axis, selector in enumerate(kept):
            if isinstance(selector, np.ndarray):
                return window, (slice(None),) * axis + (selector,)
        return window, None


class LikeSource:
    """What has a shape, a dtype and square brackets, such as a dataset in an HDF5 file.

    It is asked for no more than most of these know: ints, slices that go forward, and one list
    of increasing indices; never an int beside a list, which they understand in two ways.
    """

    def __init__(self, like: Any) -> None:
        self.like = like
        self.shape = as_shape(like.shape)
        self.dtype = as_dtype(like.dtype)
        self.writable = hasattr(type(like), "__setitem__")

    def read(self, selection: Selection) -> Array:
        """What is selected, and little else, in the order in which it was asked."""
        if not selection.rest:
            return self._read(selection.selectors)
        selectors, places = selection.narrowed()
        return np.asarray(_with_axis(self._read(selectors))[places])

    def write(self, selection: Selection, value: Array) -> None:
        """Write what is selected in one go; with what is around it where that is no key."""
        if not selection.rest:
            self._write(selection.selectors, value)
            return
        selectors, places = selection.narrowed()
        found = np.array(self._read(selectors))
        _with_axis(found)[places] = value
        self._write(selectors, found)

    def fields(self, names: Any) -> Source:
        """Not of these: they differ in how they name fields."""
        raise DataError(
            f"fields of a {kind_text(self.like)} are not selected by {names!r}; read the data "
            "first: sample()[...]"
        )

    def same(self, other: Source) -> bool:
        """Whether both are one object."""
        return isinstance(other, LikeSource) and self.like is other.like

    def _read(self, selectors: Sequence[Selector]) -> Array:
        box = _Box(selectors, self.shape)
        found = np.asarray(self.like[box.key])
        if found.size != box.size:
            raise DataError(
                f"a {kind_text(self.like)} of shape {self.shape} gave shape {found.shape} for "
                f"{box.key!r}; it has to take keys as NumPy does"
            )
        return box.arranged(found)

    def _write(self, selectors: Sequence[Selector], value: Array) -> None:
        box = _Box(selectors, self.shape)
        self.like[box.key] = box.boxed(np.broadcast_to(value, box.shape))


def _with_axis(array: Array) -> Array:
    """The array; a single element as an array of one."""
    return array if array.ndim else array.reshape(1)


class _Box:
    """Selectors as a key of ints, forward slices and one increasing list, and the way back.

    `shape` is that of what is selected; `size` the number of elements that the key gives.
    """

    def __init__(self, selectors: Sequence[Selector], shape: tuple[int, ...]) -> None:
        self._listed = any(isinstance(selector, np.ndarray) for selector in selectors)
        self._steps = [self._step(selector) for selector in selectors]
        self._wide = tuple(1 if isinstance(s, int) else len(s) for s in selectors)
        self.shape = tuple(len(s) for s in selectors if not isinstance(s, int))
        self.size = prod(step.size for step in self._steps)
        key = [step.part for step in self._steps]
        while len(key) > 1 and isinstance(selectors[len(key) - 1], range):
            if selectors[len(key) - 1] != range(shape[len(key) - 1]):
                break
            key.pop()  # all of the last axes goes without saying
        self.key = key[0] if len(key) == 1 else tuple(key)

    def arranged(self, found: Array) -> Array:
        """What the key gave, in the order and shape that the selectors ask for."""
        found = found.reshape([step.size for step in self._steps])
        for axis, step in enumerate(self._steps):
            if step.order is not None:
                found = found[(slice(None),) * axis + (step.order,)]
        return found.reshape(self.shape)

    def boxed(self, value: Array) -> Array:
        """A value of the selection's shape as the key takes it; of repeats the last counts."""
        value = value.reshape(self._wide)
        for axis, step in enumerate(self._steps):
            if step.back is not None:
                value = value[(slice(None),) * axis + (step.back,)]
        kept = [step.size for step in self._steps if not isinstance(step.part, int)]
        return np.ascontiguousarray(value).reshape(kept)

    def _step(self, selector: Selector) -> _AxisKey:
        if isinstance(selector, int):
            return _AxisKey(slice(selector, selector + 1) if self._listed else selector, 1)
        if isinstance(selector, range):
            if selector.step > 0 or not selector:
                return _AxisKey(_as_key(selector), len(selector))
            backward = slice(None, None, -1)
            return _AxisKey(_as_key(selector[::-1]), len(selector), backward, backward)
        unique, order = np.unique(selector, return_inverse=True)
        last = np.zeros(len(unique), np.intp)
        last[order] = np.arange(len(selector))
        return _AxisKey(unique, len(unique), order, last)


class _AxisKey(NamedTuple):
    """One axis of a key: its part, how much it gives, the order of that, and the way back."""

    part: Any
    size: int
    order: Any = None
    back: Any = None


def _as_key(selector: Selector) -> Any:
    """A selector as NumPy takes it; all of an axis instead of an array of indices."""
    if isinstance(selector, range):
        if not selector:
            return slice(0, 0)
        stop = selector.stop if selector.stop >= 0 else None
        step = None if selector.step == 1 else selector.step
        return slice(selector.start, stop, step)
    return slice(None) if isinstance(selector, np.ndarray) else selector
