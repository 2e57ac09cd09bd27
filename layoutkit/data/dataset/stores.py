"""What a Sample keeps: data that can be selected from, read and written, and is not read before.

    Window    a selection of a source
    Rows      a list of arrays

Those of datasets that have no length are in `unbounded.py`, mini-batches in `minibatches.py`.

Knows nothing of fields, layouts and Samples.

What holds the elements: a NumPy array, a file, or anything that is indexed like an array.

A source knows its shape, and reads and writes what selectors select (see `selections.py`). It
is never copied, and what is not selected is never read.

Knows nothing of keys as users write them.

Arrays in files: mapped into memory, or read, when they are selected from.

Knows when a file is mapped and who may write to it; formats are the business of `reading/`.

What is written, and what is compared.

Knows arrays; where they go is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..._utils.validation import kind_text
from ...backends.dispatch import adapter_of, as_array
from ...backends.indexing import take
from ...errors import DataError, DtypeError, LayoutkitError, ShapeError
from ...layout.pattern import as_shape
from ...memory import Array
from ...spec import DType, as_dtype, can_cast, kind_of
from ..errors import NoLength, OutOfRange
from ..formats import explained
from ..io.npy import StoredArray
from .indexing import Selection, Selector, expand, field_names, kinds_of, place_of


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


_NUMERIC = "buifc"


def as_elements(value: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """A number or array as it is written to `shape` elements of `dtype`: cast, to be broadcast.

    Raises
    ------
    DtypeError
        The cast is not of the same kind, or an int does not fit. Plain numbers take the dtype
        that they are written to, as with NumPy.
    ShapeError
        It does not broadcast to the shape.
    """
    array = _number(value, dtype) if type(value) in (bool, int, float, complex) else _array(value)
    if not _can_cast(array.dtype, dtype):
        raise DtypeError(
            f"a value of dtype {array.dtype} is written to data of {dtype}, and that is no cast of "
            f'the same kind; cast it first: value.astype("{dtype}")'
        )
    if not _broadcasts(array.shape, shape):
        raise ShapeError(
            f"a value of shape {array.shape} is written to data of shape {shape}; give one that "
            "NumPy broadcasts to it"
        )
    surplus = max(array.ndim - len(shape), 0)
    return array.reshape(array.shape[surplus:]).astype(dtype, copy=False)


def equal(a: Any, b: Any) -> bool:
    """Whether two arrays have one shape and equal elements, or two lists of them do."""
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    try:
        return np.array_equal(a, b)
    except TypeError:  # of dtypes that NumPy does not compare, such as dates and structures
        return False


@contextmanager
def as_user_error(name: str, data: Any, value: Any) -> Iterator[None]:
    """What NumPy raises for an operator, as errors of this project."""
    try:
        yield
    except LayoutkitError:
        raise
    except (TypeError, OverflowError) as error:
        raise DtypeError(f"{name} of {data} and {value!r}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"{name} of {data} and a {kind_text(value)}: {error}") from None


def _number(value: Any, dtype: DType) -> Array:
    """A plain number: of the dtype if that is of its kind, as NumPy has it."""
    kind = {bool: "b", int: "i", float: "f", complex: "c"}[type(value)]
    found = kind_of(dtype)
    fits = found in _NUMERIC and _NUMERIC.index("u" if kind == "i" else kind) <= _NUMERIC.index(
        found
    )
    if not fits:
        return np.asarray(value)
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise DtypeError(
            f"{value} is out of the range of {dtype}; write a number that fits"
        ) from None


def _array(value: Any) -> Array:
    if adapter_of(value) is not None:
        return as_array(value, "the value")
    try:
        return np.asarray(value)
    except ValueError:  # nested lists of different lengths
        raise ShapeError("the value is no array; rows of different lengths are none") from None


def _can_cast(source: DType, target: DType) -> bool:
    if kind_of(source) in _NUMERIC and kind_of(target) in _NUMERIC:
        return can_cast(source, target, "same_kind")
    return np.can_cast(source, target, "same_kind")


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """As NumPy's assignment does: further axes in front may have size 1."""
    surplus = max(len(shape) - len(target), 0)
    pairs = zip(reversed(shape[surplus:]), reversed(target), strict=False)
    return all(size == 1 for size in shape[:surplus]) and all(a in (1, b) for a, b in pairs)


Length = int | float | None  # math.inf: no end; None: unknown, to be iterated only


class Store:
    """Data behind a Sample. What a kind of data cannot do is a DataError."""

    writable = False
    blocked = False  # whether its elements are Datasets: mini-batches
    unbounded = False  # whether it has no length, and is known only from its elements
    is_array = True  # whether all of it can be one array

    def length(self) -> Length:
        """How many elements the first axis has."""
        raise NotImplementedError

    def extent(self) -> Length:
        """How many samples there are: of mini-batches, those in all of them."""
        return self.length()

    @property
    def rank(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data."""
        self._cannot("has no shape")

    @property
    def dtype(self) -> DType:
        """The dtype of the data."""
        self._cannot("has no dtype")

    def read(self, locked: bool) -> Any:
        """The data; where it is the source's own memory, read-only if `locked`."""
        self._cannot("cannot be read as a whole")

    def write(self, value: Any) -> None:
        """Write a number or array; raises before anything is written."""
        self._cannot("is read-only")

    def update(self, change: Callable[[Any, Any], Any], value: Any) -> None:
        """Write what `change` makes of the data and a value."""
        self.write(change(np.asarray(self.read(True)), value))

    def select(self, key: Any) -> Store:
        """What a key selects."""
        raise NotImplementedError

    def lying(self) -> Array | None:
        """The array in the source's memory that the elements are rows of, if there is one."""
        return None

    def take(self, places: Array) -> Array:
        """The elements at some places, in memory of their own."""
        found = np.asarray(self.select(places).read(True))
        return found if found.flags.owndata else found.copy()

    def steps(self) -> Iterator[Store]:
        """The elements, one after the other."""
        length = self.length()
        return (self.select(at) for at in range(int(length or 0)))

    def fields(self) -> dict[str, Store]:
        """The fields that the data itself has; may read an element."""
        return {}

    def same(self, other: Store) -> bool:
        """Whether both are the same elements in the same memory."""
        return False

    def _cannot(self, what: str) -> NoReturn:
        raise DataError(f"{self} {what}; {self._instead}")

    _instead = "select the part that you need"


class Window(Store):
    """A selection of a source."""

    def __init__(self, source: Source, selection: Selection | None = None) -> None:
        self.source = source
        self.selection = Selection.whole(source.shape) if selection is None else selection

    def length(self) -> int:
        """The size of the first axis; DataError (also a TypeError) without one."""
        if not self.shape:
            raise NoLength("a single element has no length; it is of shape ()")
        return self.shape[0]

    def extent(self) -> Length:
        """The same, or None without an axis."""
        return self.shape[0] if self.shape else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Known without reading."""
        return self.selection.shape

    @property
    def dtype(self) -> DType:
        """The source's."""
        return self.source.dtype

    @property
    def writable(self) -> bool:  # type: ignore[override]
        """Whether the source is."""
        return self.source.writable

    def read(self, locked: bool) -> Any:
        """A view of the source where NumPy has one; a scalar for one element."""
        found = self.source.read(self.selection)
        if found.ndim == 0:
            return found[()]
        lent = found.base is not None
        if not isinstance(self.source, ArraySource):
            # What is like an array may give its own memory, though no base says so.
            lent, locked = True, locked or not self.source.writable
        if locked and lent:
            found = found.view()
            found.flags.writeable = False
        return found

    def write(self, value: Any) -> None:
        """Write through to the source."""
        self.source.write(self.selection, as_elements(value, self.dtype, self.shape))

    def select(self, key: Any) -> Store:
        """Another window on the same source."""
        names = field_names(key)
        if names is None:
            return Window(self.source, self.selection.select(key))
        if not set([names] if isinstance(names, str) else names) <= set(self.dtype.names or ()):
            raise OutOfRange(f"data of {self.dtype} has no fields {names!r}; select by position")
        source = self.source.fields(names)
        return Window(source, self.selection.with_axes(source.shape[len(self.source.shape) :]))

    def lying(self) -> Array | None:
        """The view of an array that the elements are."""
        listed = any(isinstance(selector, np.ndarray) for selector in self.selection.selectors)
        if listed or self.selection.rest or not isinstance(self.source, ArraySource):
            return None
        found: Array = self.read(True)
        return found

    def take(self, places: Array) -> Array:
        """The elements at some places; of a view, in pooled memory."""
        found = self.lying()
        return super().take(places) if found is None else take(found, 0, places)

    def same(self, other: Store) -> bool:
        """Whether both are the same selection of the same memory."""
        same = isinstance(other, Window) and self.source.same(other.source)
        return same and self.selection.same(other.selection)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"data of shape {self.shape} and {self.dtype}"


class Rows(Store):
    """A list of arrays, which may differ in length."""

    is_array = False
    _instead = "its data is a list; use len(), or select a row"

    def __init__(self, rows: Sequence[Store]) -> None:
        self.rows = list(rows)

    def length(self) -> int:
        """The number of arrays."""
        return len(self.rows)

    @property
    def rank(self) -> int:
        """One more than that of the rows, where they agree."""
        ranks = {row.rank for row in self.rows}
        return 1 + ranks.pop() if len(ranks) == 1 else 0

    @property
    def writable(self) -> bool:  # type: ignore[override]
        """Whether all rows are."""
        return all(row.writable for row in self.rows)

    def read(self, locked: bool) -> Any:
        """A list of what the rows are."""
        return [row.read(locked) for row in self.rows]

    def write(self, value: Any) -> None:
        """A number for all rows, or a list with something for each."""
        pairs = self._pairs(value)
        # Copies, since what is written to one row may be a view of another.
        found = [as_elements(part, row.dtype, row.shape).copy() for row, part in pairs]
        for row, part in zip(self.rows, found, strict=True):
            row.write(part)

    def update(self, change: Callable[[Any, Any], Any], value: Any) -> None:
        """The same, for what is computed."""
        self.write([change(row.read(True), part) for row, part in self._pairs(value)])

    def select(self, key: Any) -> Store:
        """A row, or a list of some; `rows[i, j]` is `rows[i][j]`."""
        parts = key if isinstance(key, tuple) else (key,)
        first = kinds_of(parts)[0]
        if len(parts) > 1 and first == "int":
            return self.select(parts[0]).select(parts[1:])
        if len(parts) > 1 or first == "other":
            raise OutOfRange(
                f"{self} does not take the key {key!r}; its rows may differ in length: give an "
                "int, a slice, a list or a mask, or select within a row"
            )
        (part,) = expand(parts, (len(self.rows),))
        if isinstance(part, int):
            return self.rows[place_of(part, len(self.rows))]
        if isinstance(part, slice):
            return Rows(self.rows[part])
        return Rows([self.rows[place_of(int(at), len(self.rows))] for at in part])  # type: ignore[union-attr]

    def same(self, other: Store) -> bool:
        """Whether they are the same rows."""
        if not isinstance(other, Rows) or len(self.rows) != len(other.rows):
            return False
        return all(a.same(b) for a, b in zip(self.rows, other.rows, strict=True))

    def _pairs(self, value: Any) -> list[tuple[Store, Any]]:
        """Each row and what is written to it."""
        if not isinstance(value, list | tuple):
            value = [value] * len(self.rows)
        if len(value) != len(self.rows):
            raise DataError(
                f"{len(value)} values are written to {self}; give one for each row, or a number"
            )
        return list(zip(self.rows, value, strict=True))

    def __str__(self) -> str:
        return f"a list of {len(self.rows)} arrays"


class FileSource(ArraySource):
    """An array in a `.npy` file, or in a member of a `.npz` archive.

    It is mapped into memory: a read touches what is selected, and what is written, where that was
    asked for, lands in the file. A compressed member is read whole, and kept, when something of it
    is selected first. Members are never written to.

    Raises DataError where the file cannot be opened, or cannot be written to and is to be.
    """

    def __init__(self, path: Path, member: str | None = None, writable: bool = False) -> None:
        with explained(str(path)):
            self._keep(StoredArray(path, member), writable)

    @classmethod
    def of(cls, stored: StoredArray, writable: bool) -> FileSource:
        """The source of an array whose header has been read."""
        source = cls.__new__(cls)
        source._keep(stored, writable)
        return source

    @cached_property
    def array(self) -> Array:  # type: ignore[override]
        """The array, mapped where that is possible."""
        with explained(str(self.stored.path)):
            array = self.stored.mapped(self.writable)
        array.flags.writeable = self.writable
        return array

    def same(self, other: Any) -> bool:
        """Whether both are one array of one file."""
        ours = (self.stored.path, self.stored.member)
        return isinstance(other, FileSource) and ours == (other.stored.path, other.stored.member)

    def _keep(self, stored: StoredArray, writable: bool) -> None:
        self.stored, self.shape, self.dtype = stored, stored.shape, stored.dtype
        self.writable = writable and stored.member is None
        if self.writable:
            self.array  # noqa: B018 - what cannot be written to is to be known now

    def __reduce__(self) -> Any:
        return FileSource, (self.stored.path, self.stored.member, self.writable)
