"""`Sample`: data that is read when it is called, and its fields as attributes.

Knows fields, layouts and locks; where elements lie is known by the stores.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..protocolerrors import NoLength
from . import layouts, parts
from .fields import HasFields
from .keys import kinds_of
from .parts import Parts, Said, check_mapping, check_name, said_of
from .stores import Length, Store
from .values import as_user_error, equal

__all__ = ["Sample", "store_of"]


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
        self._set(source._parts_as(cls, said) if is_sample else parts.parts_of(cls, source, said))
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
        said = layout if isinstance(layout, str) and layout != layouts.UNSAID else None
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
        if self._lay == layouts.UNSAID or isinstance(self._lay, Mapping):
            first = self._first_found()
            if first is not None:
                return first._layout()
            return layouts.default(self._store().rank, self._is_dataset)
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
        layout = layouts.batch_layout(self._layout())
        if not self._store().is_array:
            self._shape()  # which a list has none of
        return layouts.viewing().view_in(layout, self(), self._meta().get("classes"))

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
            return parts.parts_of_mapping(
                cls, self._fields(), said._replace(read_only=locked or None)
            )
        named = self._named
        if named is not None:
            named = {name: cls(field, read_only=locked or None) for name, field in named.items()}
        meta = self._info if said.meta is None else dict(said.meta)
        return Parts(self._own, named, self._layout_as(cls, said.layout), meta, locked)

    def _layout_as(self, cls: type[Sample], layout: Any) -> Any:
        """The layout of another Sample of the same data: as said, else as here if it can be."""
        if layout is not None:
            return parts.layout_of(self._store(), layout, cls._is_dataset)
        if self._is_dataset or not cls._is_dataset:
            return self._lay
        known = self._layout() or ""
        return parts.layout_of(self._store(), known if known.startswith("b") else None, True)

    def _layout_after(self, key: Any) -> Any:
        """The layout of what a key selects; mini-batches keep that of what they are cut of."""
        lead = self._lead()
        if not lead._store().blocked:
            return layouts.after(lead._lay, key)
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
