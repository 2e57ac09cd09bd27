"""`Sample`: data that is read when it is called, and its fields as attributes.

Knows fields, layouts and locks; where elements lie is known by the stores.

Fields as attributes.

Knows names; what the data is, and how it is selected from, is known by `sample.py`.

What a Sample is made of, found from what a user gives: data, fields, layout, meta, lock.

Knows what each part may be. Samples themselves are not known here: `cls` is whichever class, Sample
or Dataset, the parts are for.

Layouts of Samples: checked, by default, after a selection, and the View that they stand for.

Knows letters and keys; arrays only to make Views of them.

From a source, as users give it, to a store or to a mapping of sources.

Knows what a user may give; formats of files are known by `formats.py`.
"""

from __future__ import annotations

import inspect
import operator
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import prod
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ..._utils import fork
from ..._utils.validation import as_flag, kind_text
from ...backends.dispatch import adapter_of, as_array
from ...errors import DataError, LayoutkitError, ShapeError
from ...layout.parsing import Layout, parse_layout
from ...memory import Array
from ..errors import NoLength, NoSuchField
from ..formats import is_frame, open_arrays, rows_of
from ..io.npy import StoredArray
from .indexing import kinds_of, spelled_out
from .stores import (
    ArraySource,
    FileSource,
    Length,
    LikeSource,
    Rows,
    Source,
    Store,
    Window,
    as_user_error,
    equal,
)
from .stream import Infinite, Stream

UNSAID = "?"  # the default of a Dataset whose rank is not known before it is read

_DEFAULTS = {1: "b", 2: "bf"}


@fork.once
def viewing() -> ModuleType:
    """The table of layouts and Views; here, as most samples are never viewed."""
    from ...spaces import views

    return views


def checked(layout: Any, rank: int | None, dataset: bool) -> str:
    """A layout without blanks, for data of a rank (None: not known).

    Raises PatternError, ShapeError, or DataError where that of a Dataset does not begin with b.
    """
    parsed = parse_layout(layout)
    if rank is not None and parsed.ndim != rank:
        raise ShapeError(
            f"layout {parsed} has {parsed.ndim} axes, but the data has {rank}; name each once"
        )
    if dataset and parsed.groups[0] != "b":
        raise DataError(
            f"layout {parsed} of a Dataset begins with {parsed.groups[0]}; its first axis counts "
            "samples and is b"
        )
    return str(parsed)


def default(rank: int, dataset: bool) -> str | None:
    """The layout of a Dataset, or of a sample of one, of which nothing was said."""
    found = _DEFAULTS.get(rank if dataset else rank + 1)
    return found if dataset or found is None else found[1:]


def after(layout: Any, key: Any) -> Any:
    """The layout of what a key selects; of a mapping, that of each field.

    >>> import numpy as np
    >>> after("bhwc", 3), after("bhwc", np.s_[:5, 0]), after("bhwc", np.s_[:, [0, 1]])
    ('hwc', 'bwc', None)
    >>> after("bhwc", np.s_[..., 0]), after("bhwc", np.s_[0, ..., :2])
    ('bhw', 'hwc')
    """
    if isinstance(layout, Mapping):
        return {name: after(inner, key) for name, inner in layout.items()}
    if layout is None:
        return None
    kinds = kinds_of(key)
    if layout == UNSAID:
        return UNSAID if len(kinds) == 1 and kinds[0] != "other" else None
    groups = parse_layout(layout).groups if layout else ()
    if "other" in kinds:
        kinds = kinds_of(spelled_out(key, len(groups)))
    if "other" in kinds or "list" in kinds[1:]:
        return None
    kinds += ("slice",) * (len(groups) - len(kinds))
    pairs = zip(groups, kinds, strict=False)
    return str(Layout(tuple(group for group, kind in pairs if kind != "int")))


def batch_layout(layout: str | None) -> str:
    """The layout; DataError for one without b, of which there is no View."""
    if not layout or "b" not in parse_layout(layout).groups:
        raise DataError(
            f"data in layout {layout} is no batch, and Views are; give a layout with b, such as "
            "layout='bhwc', or take d[i:j] in place of d[i]"
        )
    return layout


_TAKES = (
    "arrays, what has shape, dtype and [], paths of files of arrays, mappings of names to these, "
    "and lists of arrays"
)
_ALSO = (
    "; a Dataset also what has [i] and no length, iterables, and functions that give an iterator"
)


def open_store(source: Any, dataset: bool, write: bool = False) -> Store | Mapping[str, Any]:
    """The store of a source, or a mapping of names to sources; DataError where it is neither.

    write : bool     whether a file is to be written to, if that is possible
    """
    if isinstance(source, Mapping):
        return source
    if isinstance(source, ArraySource | LikeSource):  # of a file
        return Window(source)
    if isinstance(source, str | os.PathLike):
        found = open_arrays(os.fspath(source))
        if isinstance(found, Mapping):
            return {name: _of_file(array, write) for name, array in found.items()}
        return Window(_of_file(found, write))
    array = _array(source)
    if array is not None:
        return Window(array)
    if isinstance(source, list | tuple):
        return Rows([_row(row, at) for at, row in enumerate(source)])
    store = _without_length(source) if dataset else None
    if store is None:
        raise DataError(f"a {kind_text(source)} is no source; a Sample takes {_TAKES}{_ALSO}")
    return store


def _of_file(found: Any, write: bool) -> Source:
    """The source of what a reader gave; what it copied into memory is not to be written to."""
    if isinstance(found, StoredArray):
        return FileSource.of(found, write)
    source = _array(found if hasattr(found, "shape") else np.asarray(found))
    if not isinstance(source, ArraySource):
        return source  # type: ignore[return-value]  # as it has a shape
    array = source.array.view()
    array.flags.writeable = False
    return ArraySource(array)


def _array(source: Any) -> Source | None:
    """What is an array or like one; None for everything else."""
    if isinstance(source, np.generic):
        source = np.asarray(source)
        source.flags.writeable = False  # a scalar cannot be written to
    if is_frame(source):
        source = rows_of(source, "source").view()
        source.flags.writeable = False  # a copy, or what pandas believes to know
    if isinstance(source, np.ndarray) or adapter_of(source) is not None:
        try:
            return ArraySource(as_array(source, "source"))
        except LayoutkitError as error:  # a masked array, or one on another device
            raise DataError(str(error)) from error
    like = all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__"))
    return LikeSource(source) if like and not isinstance(source, type) else None


def _row(row: Any, at: int) -> Store:
    found = _array(row)
    if found is None:
        raise DataError(
            f"item {at} of the list is a {kind_text(row)}; a list has an array for each "
            "sample: pass numpy.asarray(source) for numbers"
        )
    return Window(found)


def _without_length(source: Any) -> Store | None:
    if isinstance(source, Iterator):
        raise DataError(
            f"a {kind_text(source)} can be iterated only once; give the function that makes "
            "it, or a list"
        )
    if isinstance(source, bytes | bytearray):
        return None
    is_type = isinstance(source, type)
    if hasattr(source, "__getitem__") and not hasattr(source, "__len__") and not is_type:
        return Infinite(source)
    if isinstance(source, Iterable) or (hasattr(source, "__getitem__") and not is_type):
        return Stream(partial(iter, source))
    return Stream(partial(_begun, source)) if callable(source) and _callable(source) else None


def _callable(source: Callable[..., Any]) -> bool:
    """Whether it takes no arguments; DataError where it needs some."""
    try:
        inspect.signature(source).bind()
    except TypeError:
        raise DataError(
            f"{source!r} needs arguments; give a function without any, that returns an iterator"
        ) from None
    except ValueError:  # built in, without a signature
        pass
    return True


def _begun(source: Callable[[], Any]) -> Iterator[Any]:
    """The iterator that a function gives; DataError where it gives something else."""
    found = source()
    if not isinstance(found, Iterable):
        raise DataError(f"{source!r} gave a {kind_text(found)}; it has to give an iterator")
    return iter(found)


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
        layout = UNSAID if said.layout is None else _checked_nest(said.layout)
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
        return checked(layout, store.rank, dataset)
    return default(store.rank, True) if dataset and store.is_array else None


def _checked_nest(layout: Any) -> Any:
    """The layout of what is not read yet, or a mapping of them."""
    if isinstance(layout, Mapping):
        return {name: _checked_nest(inner) for name, inner in layout.items()}
    return checked(layout, None, True)


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
            said = layout.get(name, UNSAID), self._info.get(name, {})
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


class Sample(HasFields):
    """Data that is read when it is called, selected from lazily, and written through.

    >>> sample = Sample({"input": np.arange(6.0), "target": np.array([1, 0])})
    >>> sample.input[2:4]()
    array([2., 3.])
    >>> sample.input[2:4] = 0                       # every selection is a window
    >>> sample.input += 1
    >>> sample.input()
    array([1., 2., 1., 1., 5., 6.])

    Its methods begin with `_`, so that all other names are free for fields.

    Raises DataError for what is no source or no field name, PatternError and ShapeError for a
    layout that does not fit.

    Parameters
    ----------
    source
        An array, or what has `shape`, `dtype` and `[]`; a path of a file of arrays, such as
        `.npy` (mapped) or `.npz` (a field for each); a mapping of names to sources, whose own data
        is that of its first field; a list of arrays; a Sample. Nothing is copied, and nothing is
        read before it is needed, but files that cannot be mapped.
    fields : mapping of names to keys, optional
        Windows on the own data: `{"x": np.s_[:, 0]}`. They may overlap.
    layout : str, or mapping by field name for a mapping, optional
    meta : mapping, or mapping by field name for a mapping, optional
        Anything worth knowing; `classes` are those of labels.
    read_only : bool, optional
        None: as the source is; files are read-only. False lets what is written to a `.npy` file
        land in it, and is a DataError for what cannot be written to. What is derived inherits it.
    """

    __slots__ = ()

    _is_dataset: ClassVar[bool] = False
    # To NumPy a Sample is no operand: `array == sample` is for the Sample to answer.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        source: Any,
        *,
        fields: Mapping[str, Any] | None = None,
        layout: Any = None,
        meta: Mapping[str, Any] | None = None,
        read_only: bool | None = None,
    ) -> None:
        check_mapping("meta", meta)
        check_mapping("fields", fields)
        cls, said = type(self), said_of(layout, meta, read_only)
        is_sample = isinstance(source, Sample)
        self._set(source._parts_as(cls, said) if is_sample else parts_of(cls, source, said))
        if fields:
            object.__setattr__(self, "_named", self._with_windows(fields))

    # -- data ------------------------------------------------------------------------------

    def __call__(self) -> Any:
        """The data: NumPy's view of the source where there is one, else a new array.

        A list of arrays for a list, a scalar for one element. A view can be written to unless
        the Sample is read-only, and so can what an array-like gives.
        """
        return self._store().read(self._is_locked())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self()
        if isinstance(found, list) and len({array.shape for array in found}) > 1:
            self._shape()  # which a list has none of
        return np.array(found, dtype, copy=copy)

    def __getitem__(self, key: Any) -> Sample:
        store, layout = self._store().select(key), self._layout_after(key)
        said = layout if isinstance(layout, str) and layout != UNSAID else None
        return Sample._of(Parts(store, {}, said, {}, self._is_locked()))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_writable()
        store = self._store().select(key)
        # `sample[key] += v` writes in its second step, and then sets what it has written.
        if not (isinstance(value, Sample) and value._store().same(store)):
            Sample._of(Parts(store, {}, locked=self._is_locked()))._write(value)

    def _write(self, value: Any) -> None:
        """Write a number, an array or a Sample's data; it is broadcast, and cast same_kind.

        Raises
        ------
        DataError
            The Sample is read-only.
        ShapeError, DtypeError
            The value does not broadcast, or does not cast. Nothing is written.
        """
        self._check_writable()
        self._store().write(_plain(value))

    def __len__(self) -> int:
        length = self._store().length()
        if not isinstance(length, int):
            what = "can only be iterated" if length is None else "is infinite"
            raise NoLength(f"this {type(self).__name__} {what}, so it has no length")
        return length

    def __iter__(self) -> Iterator[Sample]:
        length = len(self)  # now, and not with the first step
        return (self[at] for at in range(length))

    def _length(self) -> Length:
        """The number of elements: an int, math.inf without end, None where it is not known."""
        return self._store().length()

    def _shape(self) -> tuple[int, ...]:
        """The shape of the data; DataError where it has none, as a list of arrays."""
        return self._store().shape

    def _size(self) -> int:
        """How many elements the data has: the product of its shape."""
        return prod(self._shape())

    def _layout(self) -> str | None:
        """The layout of the data, such as "bhwc"; None where it is not known."""
        lead = self._lead()
        if lead is not self:
            return lead._layout()
        if self._store().blocked:
            return None
        if self._lay == UNSAID or isinstance(self._lay, Mapping):
            first = self._first_found()
            if first is not None:
                return first._layout()
            return default(self._store().rank, self._is_dataset)
        return self._lay  # type: ignore[no-any-return]

    def _meta(self) -> dict[str, Any]:
        """What is known about the data, such as `classes`."""
        lead = self._lead()
        first = self._first_found() if lead is self and self._info else None
        if lead is self and first is None:
            return dict(self._info)
        return (lead if first is None else first)._meta()

    def _first_found(self) -> Sample | None:
        """The first field of what only its elements know, of which an element is read."""
        return next((self._fields()[name] for name in self._store().fields()), None)

    def _view(self) -> Any:
        """The data as a View: of images, sequences, labels (classes: those of meta), or others.

        It shares memory with the source where `()` does. DataError where the layout has no b.
        """
        layout = batch_layout(self._layout())
        if not self._store().is_array:
            self._shape()  # which a list has none of
        return viewing().view_in(layout, self(), self._meta().get("classes"))

    # -- comparing and computing -----------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and equal(self(), other())

    def __iadd__(self, value: Any) -> Self:
        return self._change(operator.add, value)

    def __isub__(self, value: Any) -> Self:
        return self._change(operator.sub, value)

    def __imul__(self, value: Any) -> Self:
        return self._change(operator.mul, value)

    def __itruediv__(self, value: Any) -> Self:
        return self._change(operator.truediv, value)

    def _change(self, change: Callable[[Any, Any], Any], value: Any) -> Self:
        """Write what an operator makes of the data and a value."""
        self._check_writable()
        with as_user_error(change.__name__, self._store(), value):
            self._store().update(change, _plain(value))
        return self

    def _with_windows(self, windows: Mapping[str, Any]) -> dict[str, Sample]:
        """The fields, and windows on the own data by their keys."""
        named = dict(self._fields())
        for name, key in windows.items():
            check_name(name)
            if name in named:
                raise DataError(f"field {name!r} is there twice; give each name once")
            named[name] = self._as_field(self[key])
        return named

    # -- inside ----------------------------------------------------------------------------

    def _parts_as(self, cls: type[Sample], said: Said) -> Parts:
        """The parts of another Sample of the same data, of which something is said anew."""
        if said.read_only is False and not self._writable():
            raise DataError("read_only=False, but the Sample is read-only; copy its data first")
        locked = self._locked or bool(said.read_only)
        if self._own is None:
            return parts_of_mapping(cls, self._fields(), said._replace(read_only=locked or None))
        named = self._named
        if named is not None:
            named = {name: cls(field, read_only=locked or None) for name, field in named.items()}
        meta = self._info if said.meta is None else dict(said.meta)
        return Parts(self._own, named, self._layout_as(cls, said.layout), meta, locked)

    def _layout_as(self, cls: type[Sample], layout: Any) -> Any:
        """The layout of another Sample of the same data: as said, else as here if it can be."""
        if layout is not None:
            return layout_of(self._store(), layout, cls._is_dataset)
        if self._is_dataset or not cls._is_dataset:
            return self._lay
        known = self._layout() or ""
        return layout_of(self._store(), known if known.startswith("b") else None, True)

    def _layout_after(self, key: Any) -> Any:
        """The layout of what a key selects; mini-batches keep that of what they are cut of."""
        lead = self._lead()
        if not lead._store().blocked:
            return after(lead._lay, key)
        return lead._lay if kinds_of(key) in (("int",), ("slice",), ("list",)) else None

    def _kept_meta(self) -> Mapping[str, Any]:
        """The meta as it is kept: for a mapping, by its first field."""
        return self._lead()._info

    def _lead(self) -> Sample:
        """The Sample whose data this one's is: itself, or its first field."""
        return self if self._own is not None else next(iter(self._fields().values()))._lead()

    def _store(self) -> Store:
        return self._lead()._own  # type: ignore[return-value]

    def _is_locked(self) -> bool:
        return self._locked or self._lead()._locked

    def _writable(self) -> bool:
        return not self._is_locked() and self._store().writable

    def _check_writable(self) -> None:
        if not self._writable():
            name = type(self).__name__
            raise DataError(
                f"this {name} is read-only: {self._store()}; write to a copy, such as "
                f"{name}(numpy.array(sample()))"
            )

    def __reduce__(self) -> Any:
        own = Parts(self._own, self._named, self._lay, self._info, self._locked)
        return _restored, (type(self), own)

    def __repr__(self) -> str:
        named = self._found if self._named is None else self._named
        names = f"; fields: {', '.join(named)}" if named else ""
        return f"<{type(self).__name__}: {self._store()}{names}>"


def store_of(sample: Sample) -> Store:
    """What holds a Sample's data; a function, as all names of a Sample are free for fields."""
    return sample._store()


def _restored(cls: type[Sample], own: Parts) -> Sample:
    return cls._of(own)


def _plain(value: Any) -> Any:
    """A Sample's data, and everything else as it is."""
    return value() if isinstance(value, Sample) else value
