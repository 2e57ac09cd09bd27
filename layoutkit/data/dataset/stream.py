"""Stores without a length. Each element is read when it is needed, and once.

Infinite            an object with `__getitem__(i)` and no end
Stream              an iterable
Element             one element of either
ElementStack        several elements, stacked
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..._utils.indexing import normalize_index
from ..._utils.validation import describe_type
from ...errors import DataError, ShapeError
from ...memory import Array
from ...spec import DType
from ..errors import OutOfRange
from .array_sources import ArraySource
from .indexing import Selection, expand, key_types
from .stores import Length, SelectionStore, Store


class LazyValue:
    """The result of a call, evaluated at the first access and cached."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._call = call
        self._args = args

    @cached_property
    def value(self) -> Any:
        """The element: an array or a mapping."""
        return self._call(*self._args)

    def __getstate__(self) -> dict[str, Any]:
        return {"_call": self._call, "_args": self._args}


class Element(Store):
    """An element, or the field of it at `path`, with the selections `keys` applied."""

    def __init__(
        self, loaded: LazyValue, path: Sequence[str] = (), keys: Sequence[Any] = ()
    ) -> None:
        self._loaded = loaded
        self._path = tuple(path)
        self._keys = tuple(keys)

    def length(self) -> Length:
        return self._window.length()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the element, which is read."""
        return self._window.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the element, which is read."""
        return self._window.dtype

    def read(self, locked: bool) -> Any:
        """Return the element; read-only, since the source owns it."""
        return self._window.read(True)

    def select(self, key: Any) -> Store:
        """Return a selection of the element, without reading it."""
        parts = tuple(
            part.copy() if isinstance(part, list | np.ndarray) else part
            for part in (key if isinstance(key, tuple) else (key,))
        )
        return Element(self._loaded, self._path, (*self._keys, parts))

    def fields(self) -> dict[str, Store]:
        value = self._value()
        if self._keys or not isinstance(value, Mapping):
            return {}
        return {name: Element(self._loaded, (*self._path, name)) for name in value}

    def _value(self) -> Any:
        value = self._loaded.value
        for name in self._path:
            if not isinstance(value, Mapping) or name not in value:
                fields_text = f"fields {list(value)}" if isinstance(value, Mapping) else "no fields"
                raise DataError(f"an element has no field {name!r}; it has {fields_text}")
            value = value[name]
        return value

    @cached_property
    def _window(self) -> Store:
        value = self._value()
        while isinstance(value, Mapping):
            value = next(iter(value.values()))
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.array(None)
        if array.dtype.hasobject:
            raise DataError(
                f"an element is {describe_type(value)}, which is not an array; elements must be "
                "arrays, or mappings of names to arrays"
            )
        window: Store = SelectionStore(ArraySource(array))
        for key in self._keys:
            window = window.select(key)
        return window

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_window"}

    def __str__(self) -> str:
        return "an element of a Dataset without length"


class Infinite(Store):
    """The items 0, 1, 2, ... of an object without end."""

    unbounded = True
    _instead = "select some of it, such as d[0:100]"

    def __init__(
        self, items: Any, path: Sequence[str] = (), first: LazyValue | None = None
    ) -> None:
        self._items = items
        self._path = tuple(path)
        self._first = first or LazyValue(operator.getitem, items, 0)

    def length(self) -> float:
        """Return infinity."""
        return math.inf

    @property
    def rank(self) -> int:
        """One more than the rank of the first element."""
        return 1 + self.element(0).rank

    def element(self, index: int) -> Element:
        loaded = self._first if index == 0 else LazyValue(operator.getitem, self._items, index)
        return Element(loaded, self._path)

    def select(self, key: Any) -> Store:
        parts = key if isinstance(key, tuple) else (key,)
        key_type = key_types(parts)[0]
        if key_type == "int":
            element = self.element(self.non_negative_index(parts[0]))
            return element.select(parts[1:]) if len(parts) > 1 else element
        if key_type != "slice" or len(parts) > 1:
            raise OutOfRange(f"an infinite Dataset accepts d[i] and d[i:j], not the key {key!r}")
        return ElementStack(self, self.slice_range(parts[0]))

    def iter_elements(self) -> Iterator[Store]:
        """Return an endless iterator over the elements."""
        return map(self.element, itertools.count())

    def fields(self) -> dict[str, Store]:
        names = self.element(0).fields()
        return {name: Infinite(self._items, (*self._path, name), self._first) for name in names}

    def non_negative_index(self, index: Any) -> int:
        """Return the key as a non-negative int; raise OutOfRange for any other key."""
        if key_types(index) != ("int",):
            raise OutOfRange(f"an infinite Dataset accepts d[i] and d[i:j], not the key {index!r}")
        number = operator.index(index[0] if isinstance(index, tuple) else index)
        if number < 0:
            raise OutOfRange(f"index {index} counts from the end, and this Dataset is infinite")
        return number

    def slice_range(self, part: Any) -> range:
        """Return the indices of a slice."""
        if key_types(part) != ("slice",):
            raise OutOfRange(f"an infinite Dataset accepts d[i] and d[i:j], not the key {part!r}")
        (checked,) = expand(part, (0,))
        start, stop, step = checked.start or 0, checked.stop, checked.step  # type: ignore[union-attr]
        if stop is None or start < 0 or stop < 0 or (step is not None and step < 0):
            raise OutOfRange(
                f"{part} counts from the end, and this Dataset is infinite; give d[i:j]"
            )
        return range(start, stop, 1 if step is None else step)

    def __str__(self) -> str:
        return "an infinite Dataset"


class Stream(Store):
    """Data that can only be iterated: `begin` returns an iterator at its start."""

    unbounded = True
    _instead = "it can only be iterated"

    def __init__(self, begin: Callable[[], Iterable[Any]], path: Sequence[str] = ()) -> None:
        self._begin = begin
        self._path = tuple(path)

    def length(self) -> None:
        """Return None: the length is unknown."""

    @property
    def rank(self) -> int:
        """One more than the rank of the first element."""
        return 1 + self._first().rank

    def select(self, key: Any) -> Store:
        """Raise OutOfRange: a stream does not support keys."""
        raise OutOfRange("this Dataset can only be iterated; it does not support d[...]")

    def iter_elements(self) -> Iterator[Element]:
        return (Element(LazyValue(_identity_of, x), self._path) for x in self._begin())

    def fields(self) -> dict[str, Store]:
        return {name: Stream(self._begin, (*self._path, name)) for name in self._first().fields()}

    def _first(self) -> Element:
        for element in self.iter_elements():
            return element
        raise DataError("this Dataset has no elements, so their shape and dtype are unknown")

    def __str__(self) -> str:
        return "a Dataset that can only be iterated"


class BufferedElements:
    """Elements that were read from an iterator."""

    def __init__(self, elements: Sequence[Store]) -> None:
        self._elements = elements

    def element(self, index: int) -> Store:
        return self._elements[index]

    def fields(self) -> dict[str, BufferedElements]:
        names = self._elements[0].fields()
        return {
            name: BufferedElements([x.fields()[name] for x in self._elements]) for name in names
        }


class ElementStack(Store):
    """Elements at some positions, stacked along a new first axis when they are read."""

    def __init__(self, elements: Infinite | BufferedElements, positions: range | Array) -> None:
        self._elements = elements
        self._positions = positions

    def length(self) -> int:
        return len(self._positions)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the stack; this reads one element."""
        return (len(self._positions), *self._example().shape)

    @property
    def dtype(self) -> DType:
        """The dtype of the elements; this reads one element."""
        return self._example().dtype

    def read(self, locked: bool) -> Any:
        arrays = [np.asarray(self._elements.element(int(i)).read(True)) for i in self._positions]
        if not arrays:
            return np.empty(self.shape, self.dtype)
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1:
            raise ShapeError(
                f"elements of shapes {sorted(shapes)} cannot be stacked; read them one by one"
            )
        return np.stack(arrays)

    def select(self, key: Any) -> Store:
        """Return an element, or some of them; no other elements are read."""
        parts = key if isinstance(key, tuple) else (key,)
        key_type = key_types(parts)[0]
        if key_type == "int":
            (i,) = expand(parts[0], (len(self._positions),))
            index = normalize_index(i, len(self._positions), "elements", OutOfRange)
            element = self._elements.element(int(self._positions[index]))
            return element.select(parts[1:]) if len(parts) > 1 else element
        if len(parts) == 1 and key_type in ("slice", "list"):
            positions = Selection((self._positions,), (), (len(self._positions),)).select(key)
            return ElementStack(self._elements, positions.selectors[0])  # type: ignore[arg-type]  # no int
        return Element(LazyValue(self.read, False)).select(key)

    def fields(self) -> dict[str, Store]:
        fields: Any = self._elements.fields()
        return {name: ElementStack(field, self._positions) for name, field in fields.items()}

    def _example(self) -> Store:
        return self._elements.element(int(self._positions[0]) if len(self._positions) else 0)

    def __str__(self) -> str:
        return f"{len(self._positions)} elements"


def _identity_of(x: Any) -> Any:
    return x
