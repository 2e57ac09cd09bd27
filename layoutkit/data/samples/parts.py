"""What a Sample is made of, found from what a user gives: data, fields, layout, meta, lock.

Knows what each part may be. Samples themselves are not known here: `cls` is whichever class, Sample
or Dataset, the parts are for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...checks import as_flag, kind_text
from ...errors import DataError
from . import layouts
from .opening import open_store
from .stores import Store

__all__ = [
    "Parts",
    "Said",
    "check_mapping",
    "check_name",
    "layout_of",
    "parts_of",
    "parts_of_mapping",
    "said_of",
]


class Parts(NamedTuple):
    """The parts of a Sample.

    Attributes
    ----------
    own : Store or None
        Its data; None where that is the data of its first field.
    named : dict or None
        Its fields by name; None where the store says which there are.
    layout : str, None, UNSAID, or a mapping of these where the store says which fields there are
    meta : mapping
    locked : bool
        Whether it is read-only, whatever its data is.
    """

    own: Store | None
    named: dict[str, Any] | None
    layout: Any = None
    meta: Mapping[str, Any] = {}
    locked: bool = False


class Said(NamedTuple):
    """What a user says about a source."""

    layout: Any
    meta: Any
    read_only: bool | None


def said_of(layout: Any, meta: Any, read_only: Any) -> Said:
    """What was said, where `read_only` is a flag or nothing."""
    return Said(layout, meta, None if read_only is None else as_flag("read_only", read_only))


def parts_of(cls: type[Any], source: Any, said: Said) -> Parts:
    """The parts of a Sample of a source that is none itself."""
    dataset = cls._is_dataset
    opened = open_store(source, dataset, said.read_only is False)
    if isinstance(opened, Mapping):
        return parts_of_mapping(cls, opened, said)
    if said.read_only is False and not opened.writable:
        raise DataError(
            f"read_only=False, but {opened} cannot be written to; copy it first, or put it into a "
            ".npy file, which is written through"
        )
    if opened.unbounded:
        layout = layouts.UNSAID if said.layout is None else _checked_nest(said.layout)
        return Parts(opened, None, layout, dict(said.meta or {}), True)
    layout = layout_of(opened, said.layout, dataset)
    return Parts(opened, {}, layout, dict(said.meta or {}), bool(said.read_only))


def check_name(name: Any) -> None:
    """DataError for what cannot be the name of a field."""
    if not isinstance(name, str) or not name.isidentifier() or name[0] == "_" or name == "iterator":
        raise DataError(
            f"{name!r} is no name of a field; use an identifier that does not begin with '_' and "
            "is not 'iterator'"
        )
    readable = unicodedata.normalize("NFKC", name)
    if name != readable:
        raise DataError(f"Python reads the name {name!r} as {readable!r}; name the field that")


def check_mapping(what: str, value: Any) -> None:
    """DataError for what is neither a mapping nor None."""
    if value is not None and not isinstance(value, Mapping):
        raise DataError(f"{what} is a {kind_text(value)}; give a mapping by name")


def parts_of_mapping(cls: type[Any], sources: Mapping[str, Any], said: Said) -> Parts:
    """The parts of a Sample whose fields are those of a mapping; DataError for a wrong name."""
    if not sources:
        raise DataError("the mapping is empty; its first field is the data, so give one")
    for what, value in (("layout", said.layout), ("meta", said.meta)):
        _check_names(what, value, sources)
    for name in sources:
        check_name(name)
    layout, meta = said.layout or {}, said.meta or {}
    named = {
        name: cls(source, layout=layout.get(name), meta=meta.get(name), read_only=said.read_only)
        for name, source in sources.items()
    }
    return Parts(None, named, locked=bool(said.read_only))


def _check_names(what: str, said: Any, sources: Mapping[str, Any]) -> None:
    """Raise unless layout or meta of a mapping is a mapping by names of its fields."""
    if said is not None and not isinstance(said, Mapping):
        raise DataError(f"{what} of a mapping is a mapping by field name, not {said!r}")
    unknown = [name for name in said or () if name not in sources]
    if unknown:
        raise DataError(
            f"{what} is given for {unknown}, which are no fields; there are: "
            f"{', '.join(map(str, sources))}"
        )


def layout_of(store: Store, layout: Any, dataset: bool) -> str | None:
    """The layout that was said, or the default."""
    if dataset and store.extent() is None:
        raise DataError("a Dataset has samples along its first axis, and this has no axes")
    if isinstance(layout, Mapping):
        raise DataError("layout is a mapping, but the data has no names; give one, such as 'bf'")
    if layout is not None:
        return layouts.checked(layout, store.rank, dataset)
    return layouts.default(store.rank, True) if dataset and store.is_array else None


def _checked_nest(layout: Any) -> Any:
    """The layout of what is not read yet, or a mapping of them."""
    if isinstance(layout, Mapping):
        return {name: _checked_nest(inner) for name, inner in layout.items()}
    return layouts.checked(layout, None, True)
