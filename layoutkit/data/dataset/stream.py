"""Data without a length; its elements are those of `elements.py`.

Infinite    an object with `__getitem__(i)` and no end
Stream      what can only be iterated
Run         several of their elements, stacked

Elements of data without a length: each is read when it is needed, and once.

Knows one element at a time.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..._utils.validation import kind_text
from ...errors import DataError, ShapeError
from ...memory import Array
from ...spec import DType
from ..errors import OutOfRange
from .indexing import Selection, expand, kinds_of, place_of
from .stores import ArraySource, Length, Store, Window


class Loaded:
    """What a call gives, called when it is needed first."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._call, self._args = call, args

    @cached_property
    def value(self) -> Any:
        """The element: an array or a mapping."""
        return self._call(*self._args)

    def __getstate__(self) -> dict[str, Any]:
        return {"_call": self._call, "_args": self._args}


class Element(Store):
    """An element, a field of it that `path` leads to, and what `keys` select of that."""

    def __init__(self, loaded: Loaded, path: Sequence[str] = (), keys: Sequence[Any] = ()) -> None:
        self._loaded, self._path, self._keys = loaded, tuple(path), tuple(keys)

    def length(self) -> Length:
        """The size of the first axis."""
        return self._window.length()

    @property
    def shape(self) -> tuple[int, ...]:
        """Reads the element."""
        return self._window.shape

    @property
    def dtype(self) -> DType:
        """Reads the element."""
        return self._window.dtype

    def read(self, locked: bool) -> Any:
        """The element; read-only, since it is its source's."""
        return self._window.read(True)

    def select(self, key: Any) -> Store:
        """A part of the element, which is not read for it."""
        parts = tuple(
            part.copy() if isinstance(part, list | np.ndarray) else part
            for part in (key if isinstance(key, tuple) else (key,))
        )
        return Element(self._loaded, self._path, (*self._keys, parts))

    def fields(self) -> dict[str, Store]:
        """The fields of an element that is a mapping."""
        value = self._value()
        if self._keys or not isinstance(value, Mapping):
            return {}
        return {name: Element(self._loaded, (*self._path, name)) for name in value}

    def _value(self) -> Any:
        value = self._loaded.value
        for name in self._path:
            if not isinstance(value, Mapping) or name not in value:
                found = f"fields {list(value)}" if isinstance(value, Mapping) else "no fields"
                raise DataError(f"an element has no field {name!r}; it has {found}")
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
                f"an element is a {kind_text(value)}, which is no array; elements are arrays, "
                "or mappings of names to arrays"
            )
        window: Store = Window(ArraySource(array))
        for key in self._keys:
            window = window.select(key)
        return window

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_window"}

    def __str__(self) -> str:
        return "an element of a Dataset without length"


class Infinite(Store):
    """What an object gives for 0, 1, 2, ... without end."""

    unbounded = True
    _instead = "select some of it, such as d[0:100]"

    def __init__(self, items: Any, path: Sequence[str] = (), first: Loaded | None = None) -> None:
        self._items, self._path = items, tuple(path)
        self._first = first or Loaded(operator.getitem, items, 0)

    def length(self) -> float:
        """No end."""
        return math.inf

    @property
    def rank(self) -> int:
        """One more than that of the first element."""
        return 1 + self.element(0).rank

    def element(self, at: int) -> Element:
        """The element at a place."""
        loaded = self._first if at == 0 else Loaded(operator.getitem, self._items, at)
        return Element(loaded, self._path)

    def select(self, key: Any) -> Store:
        """An element or a run of elements."""
        parts = key if isinstance(key, tuple) else (key,)
        kind = kinds_of(parts)[0]
        if kind == "int":
            element = self.element(self.counted(parts[0]))
            return element.select(parts[1:]) if len(parts) > 1 else element
        if kind != "slice" or len(parts) > 1:
            raise OutOfRange(f"an infinite Dataset takes d[i] and d[i:j], not the key {key!r}")
        return Run(self, self.run(parts[0]))

    def steps(self) -> Iterator[Store]:
        """One after the other, without end."""
        return map(self.element, itertools.count())

    def fields(self) -> dict[str, Store]:
        """Those of the first element."""
        names = self.element(0).fields()
        return {name: Infinite(self._items, (*self._path, name), self._first) for name in names}

    def counted(self, at: Any) -> int:
        """An index that does not count from the end."""
        if kinds_of(at) != ("int",):
            raise OutOfRange(f"an infinite Dataset takes d[i] and d[i:j], not the key {at!r}")
        number = operator.index(at[0] if isinstance(at, tuple) else at)
        if number < 0:
            raise OutOfRange(f"index {at} counts from the end, and this Dataset is infinite")
        return number

    def run(self, part: Any) -> range:
        """The places of a slice."""
        if kinds_of(part) != ("slice",):
            raise OutOfRange(f"an infinite Dataset takes d[i] and d[i:j], not the key {part!r}")
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
    """What can only be iterated: `begin` gives an iterator at its start."""

    unbounded = True
    _instead = "it can only be iterated"

    def __init__(self, begin: Callable[[], Iterable[Any]], path: Sequence[str] = ()) -> None:
        self._begin, self._path = begin, tuple(path)

    def length(self) -> None:
        """Not known."""

    @property
    def rank(self) -> int:
        """One more than that of the first element."""
        return 1 + self._first().rank

    def select(self, key: Any) -> Store:
        """Refused."""
        raise OutOfRange("this Dataset can only be iterated; it does not take d[...]")

    def steps(self) -> Iterator[Element]:
        """A fresh loop over the elements."""
        return (Element(Loaded(_itself, x), self._path) for x in self._begin())

    def fields(self) -> dict[str, Store]:
        """Those of the first element."""
        return {name: Stream(self._begin, (*self._path, name)) for name in self._first().fields()}

    def _first(self) -> Element:
        for element in self.steps():
            return element
        raise DataError("this Dataset has no elements, so what they look like is not known")

    def __str__(self) -> str:
        return "a Dataset that can only be iterated"


class Held:
    """Elements that were iterated."""

    def __init__(self, elements: Sequence[Store]) -> None:
        self._elements = elements

    def element(self, at: int) -> Store:
        """The one at a place."""
        return self._elements[at]

    def fields(self) -> dict[str, Held]:
        """The fields of the first, of all of them."""
        names = self._elements[0].fields()
        return {name: Held([x.fields()[name] for x in self._elements]) for name in names}


class Run(Store):
    """Elements at some places, stacked along a new first axis when they are read."""

    def __init__(self, elements: Infinite | Held, places: range | Array) -> None:
        self._elements, self._places = elements, places

    def length(self) -> int:
        """How many there are."""
        return len(self._places)

    @property
    def shape(self) -> tuple[int, ...]:
        """Reads one element."""
        return (len(self._places), *self._example().shape)

    @property
    def dtype(self) -> DType:
        """Reads one element."""
        return self._example().dtype

    def read(self, locked: bool) -> Any:
        """All of them, in new memory."""
        found = [np.asarray(self._elements.element(int(at)).read(True)) for at in self._places]
        if not found:
            return np.empty(self.shape, self.dtype)
        shapes = {array.shape for array in found}
        if len(shapes) > 1:
            raise ShapeError(
                f"elements of shapes {sorted(shapes)} cannot be stacked; take them one by one"
            )
        return np.stack(found)

    def select(self, key: Any) -> Store:
        """An element, or some of them; nothing else is read."""
        parts = key if isinstance(key, tuple) else (key,)
        kind = kinds_of(parts)[0]
        if kind == "int":
            (at,) = expand(parts[0], (len(self._places),))
            element = self._elements.element(int(self._places[place_of(at, len(self._places))]))  # type: ignore[arg-type]
            return element.select(parts[1:]) if len(parts) > 1 else element
        if len(parts) == 1 and kind in ("slice", "list"):
            places = Selection((self._places,), (), (len(self._places),)).select(key)
            return Run(self._elements, places.selectors[0])  # type: ignore[arg-type]  # no int
        return Element(Loaded(self.read, False)).select(key)

    def fields(self) -> dict[str, Store]:
        """The fields of the elements."""
        fields: Any = self._elements.fields()
        return {name: Run(field, self._places) for name, field in fields.items()}

    def _example(self) -> Store:
        return self._elements.element(int(self._places[0]) if len(self._places) else 0)

    def __str__(self) -> str:
        return f"{len(self._places)} elements"


def _itself(x: Any) -> Any:
    return x
