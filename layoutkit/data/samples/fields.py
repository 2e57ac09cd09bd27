"""Fields as attributes.

Knows names; what the data is, and how it is selected from, is known by `sample.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from ..protocolerrors import NoSuchField
from . import layouts
from .parts import Parts, check_name
from .stores import Store

__all__ = ["HasFields"]


class HasFields:
    """What a Sample is besides its data: names of further Samples. `Parts` says what its parts are.

    Attributes
    ----------
    _found : dict or None
        The fields that the store said there are, once it was asked.
    """

    __slots__ = ("__weakref__", "_found", "_info", "_lay", "_locked", "_named", "_own")

    _own: Store | None
    _named: dict[str, Any] | None
    _found: dict[str, Any] | None
    _lay: Any
    _info: Mapping[str, Any]
    _locked: bool

    @classmethod
    def _of(cls, parts: Parts) -> Self:
        """One of parts that were checked."""
        made = cls.__new__(cls)
        made._set(parts)
        return made

    def _set(self, parts: Parts) -> None:
        names = ("_own", "_named", "_lay", "_info", "_locked")
        for name, value in zip(names, parts, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_found", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise NoSuchField(f"a {type(self).__name__} has no attribute {name!r}")
        fields = self._fields()
        if name not in fields:
            raise self._no_field(name)
        return fields[name]

    def __setattr__(self, name: str, value: Any) -> None:
        check_name(name)
        fields = self._fields()
        if isinstance(value, HasFields):
            object.__setattr__(self, "_named", {**fields, name: self._as_field(value)})
        elif name in fields:
            fields[name]._write(value)
        else:
            raise self._no_field(name, "; only a Sample adds one")

    def __delattr__(self, name: str) -> None:
        raise NoSuchField(f"{name!r} cannot be deleted: a {type(self).__name__} keeps its fields")

    def _iter_fields(self) -> Iterator[tuple[str, Any]]:
        """(name, Sample) of each field, in the order of declaration."""
        return iter(self._fields().items())

    def _fields(self) -> dict[str, Any]:
        if self._named is not None:
            return self._named
        if self._found is None:
            object.__setattr__(self, "_found", self._find_fields())
        return self._found  # type: ignore[return-value]

    def _find_fields(self) -> dict[str, Any]:
        """The fields of what only its elements know, each with its part of layout and meta."""
        layout = self._lay if isinstance(self._lay, Mapping) else {}
        found: dict[str, Any] = {}
        for name, store in self._store().fields().items():
            said = layout.get(name, layouts.UNSAID), self._info.get(name, {})
            found[name] = type(self)._of(Parts(store, None, *said, self._locked))
        return found

    def _as_field(self, sample: Any) -> Any:
        """What a Sample is as a field of this: itself."""
        return sample

    def _no_field(self, name: str, fix: str = "") -> NoSuchField:
        names = ", ".join(self._fields()) or "none"
        return NoSuchField(f"there is no field {name!r}; the fields are: {names}{fix}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields()]
