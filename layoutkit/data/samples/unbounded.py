"""Data without a length; its elements are those of `elements.py`.

Infinite    an object with `__getitem__(i)` and no end
Stream      what can only be iterated
Run         several of their elements, stacked
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import DataError, ShapeError
from ...memory import Array
from ...spec import DType
from ..protocolerrors import OutOfRange
from .elements import Element, Loaded
from .keys import expand, kinds_of, place_of
from .selections import Selection
from .stores import Store

__all__ = ["Held", "Infinite", "Run", "Stream"]


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
