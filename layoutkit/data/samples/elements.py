"""Elements of data without a length: each is read when it is needed, and once.

Knows one element at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...checks import kind_text
from ...errors import DataError
from ...spec import DType
from .sources import ArraySource
from .stores import Length, Store, Window

__all__ = ["Element", "Loaded"]


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
