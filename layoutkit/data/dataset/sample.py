"""`Sample`: data that is read when it is called, and its fields as attributes.

The module opens the source (`open_source`), validates options and field names (`make_state`),
derives layouts of selections (`layout_after`), and defines `Sample` itself.
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
from typing import Any, ClassVar, NamedTuple, Never, Self

import numpy as np

from ..._utils import fork
from ..._utils.validation import check_bool, describe_type, show
from ...backends.dispatch import as_array, get_adapter
from ...errors import DataError, LayoutkitError, ShapeError
from ...layout.parsing import Layout, parse_layout, with_batch_axis
from ...memory import Array
from ..errors import NoLength, NoSuchField, reject_unknown
from ..formats import FIELD_PAIRS, frame_to_array, is_dataframe, open_arrays
from ..io.npy import StoredArray
from ..labels import Missing, check_missing, fill_missing
from .array_sources import ArrayLikeSource, ArraySource, FileSource, Source
from .indexing import expand_ellipsis, key_types
from .stores import Length, Rows, SelectionStore, Store
from .stream import Infinite, Stream
from .values import equal, translate_numpy_errors

UNKNOWN_LAYOUT = "?"  # the default of a Dataset whose rank is unknown until it is read

_DEFAULTS = {1: "b", 2: "bf"}


@fork.run_once
def view_module() -> ModuleType:
    """Import the table of layouts and Views; lazily, since most samples are never viewed."""
    from ...spaces import views

    return views


def check_sample_layout(layout: Any, rank: int | None, dataset: bool) -> str:
    """Return the layout without blanks, checked against the rank (None if it is unknown).

    Raises PatternError, ShapeError, or DataError if the layout of a Dataset does not begin with b.
    """
    parsed = parse_layout(layout)
    if dataset:
        parsed = with_batch_axis(parsed)
    if rank is not None and parsed.ndim != rank:
        raise ShapeError(
            f"layout {parsed} has {parsed.ndim} axes, but the data has {rank}; name each once"
        )
    if dataset and parsed.groups[0] != "b":
        raise DataError(
            f"layout {parsed} of a Dataset begins with {parsed.groups[0]}; "
            "its first axis counts samples and is b"
        )
    return str(parsed)


def default_sample_layout(rank: int, dataset: bool) -> str | None:
    """Return the default layout of a Dataset, or of one of its samples."""
    layout = _DEFAULTS.get(rank if dataset else rank + 1)
    return layout if dataset or layout is None else layout[1:]


def layout_after(layout: Any, key: Any) -> Any:
    """Return the layout of the selection `key`; for a mapping of layouts, of each field.

    >>> import numpy as np
    >>> [layout_after("bhwc", key) for key in (3, np.s_[:5, 0], np.s_[:, [0, 1]])]
    ['hwc', 'bwc', None]
    >>> layout_after("bhwc", np.s_[..., 0]), layout_after("bhwc", np.s_[0, ..., :2])
    ('bhw', 'hwc')
    """
    if isinstance(layout, Mapping):
        return {name: layout_after(inner, key) for name, inner in layout.items()}
    if layout is None:
        return None
    kinds = key_types(key)
    if layout == UNKNOWN_LAYOUT:
        return UNKNOWN_LAYOUT if len(kinds) == 1 and kinds[0] != "other" else None
    groups = parse_layout(layout).groups if layout else ()
    if "other" in kinds:
        kinds = key_types(expand_ellipsis(key, len(groups)))
    if "other" in kinds or "list" in kinds[1:]:
        return None
    kinds += ("slice",) * (len(groups) - len(kinds))
    pairs = zip(groups, kinds, strict=False)
    return str(Layout(tuple(group for group, kind in pairs if kind != "int")))


def batch_layout(layout: str | None) -> str:
    """Return the layout; raise DataError for one without b, which no View supports."""
    if not layout or "b" not in parse_layout(layout).groups:
        raise DataError(
            f"data in layout {layout} is not a batch, which a View needs; give a layout with b, "
            "such as layout='bhwc', or use d[i:j] in place of d[i]"
        )
    return layout


_SOURCES = (
    "arrays, objects with shape, dtype and [], paths of files of arrays, mappings of names to "
    "these, and lists of arrays"
)
_DATASET_SOURCES = (
    "; a Dataset also accepts objects with [i] and no length, "
    "iterables, and functions that return an iterator"
)


def open_source(source: Any, dataset: bool, write: bool = False) -> Store | Mapping[str, Any]:
    """Return the store of a source, or the mapping of names to sources that it is.

    `write` opens a file for writing, if its format allows it. Raises DataError for an unsupported
    source.
    """
    if isinstance(source, Mapping):
        return source
    if isinstance(source, ArraySource | ArrayLikeSource):  # of a file
        return SelectionStore(source)
    if isinstance(source, str | os.PathLike):
        arrays = open_arrays(os.fspath(source))
        if not isinstance(arrays, Mapping | list | tuple) and not hasattr(arrays, "shape"):
            raise DataError(
                f"{source} has records, which layoutkit.data.open_index opens, and no arrays, "
                "which a Sample or a Dataset needs"
            )
        if isinstance(arrays, Mapping):
            return {name: _file_source(array, write) for name, array in arrays.items()}
        return SelectionStore(_file_source(arrays, write))
    array = _as_source(source)
    if array is not None:
        return SelectionStore(array)
    if isinstance(source, list | tuple):
        return Rows([_row_store(row, index) for index, row in enumerate(source)])
    store = _open_stream(source) if dataset else None
    if store is None:
        raise DataError(
            f"{describe_type(source)} is not a source; a Sample accepts "
            f"{_SOURCES}{_DATASET_SOURCES}"
        )
    return store


def _file_source(array_or_list: Any, write: bool) -> Source:
    """Return the source of a reader's result; an array that it copied to memory is read-only."""
    if isinstance(array_or_list, StoredArray):
        return FileSource.of(array_or_list, write)
    source = _as_source(
        array_or_list if hasattr(array_or_list, "shape") else np.asarray(array_or_list)
    )
    if not isinstance(source, ArraySource):
        return source  # type: ignore[return-value]  # as it has a shape
    array = source.array.view()
    array.flags.writeable = False
    return ArraySource(array)


def _as_source(source: Any) -> Source | None:
    """Return the source of an array or array-like; None for any other object."""
    if isinstance(source, np.generic):
        source = np.asarray(source)
        source.flags.writeable = False  # a scalar cannot be written to
    if is_dataframe(source):
        source = frame_to_array(source, "source").view()
        source.flags.writeable = False  # a copy, or memory that pandas assumes to be constant
    if isinstance(source, np.ndarray) or get_adapter(source) is not None:
        try:
            return ArraySource(as_array(source, "source"))
        except LayoutkitError as error:  # a masked array, or one on another device
            raise DataError(str(error)) from error
    like = all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__"))
    return ArrayLikeSource(source) if like and not isinstance(source, type) else None


def _row_store(row: Any, index: int) -> Store:
    source = _as_source(row)
    if source is None:
        raise DataError(
            f"item {index} of the list is {describe_type(row)}; a list holds one array for each "
            "sample: pass numpy.asarray(source) for numbers"
        )
    return SelectionStore(source)


def _open_stream(source: Any) -> Store | None:
    if isinstance(source, Iterator):
        raise DataError(
            f"{describe_type(source)} can be iterated only once; "
            "give a function that returns it, or a list"
        )
    if isinstance(source, bytes | bytearray):
        return None
    is_type = isinstance(source, type)
    if hasattr(source, "__getitem__") and not hasattr(source, "__len__") and not is_type:
        return Infinite(source)
    if isinstance(source, Iterable):
        return Stream(partial(iter, source))
    if hasattr(source, "__getitem__") and not is_type:
        return Stream(partial(_iter_items, source))
    return (
        Stream(partial(_start_iterator, source))
        if callable(source) and _check_no_arguments(source)
        else None
    )


def _iter_items(source: Any) -> Iterator[Any]:
    """Yield the items up to the length: not every object with `[i]` raises an IndexError there."""
    return (source[number] for number in range(len(source)))


def _check_no_arguments(source: Callable[..., Any]) -> bool:
    """Return True for a function without required arguments; raise DataError for others."""
    try:
        inspect.signature(source).bind()
    except TypeError:
        raise DataError(
            f"{show(source)} needs arguments; give a function without any that returns an iterator"
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return True


def _start_iterator(source: Callable[[], Any]) -> Iterator[Any]:
    """Return the iterator that `source()` returns; raise DataError for any other result."""
    iterator = source()
    if not isinstance(iterator, Iterable):
        raise DataError(
            f"{show(source)} returned {describe_type(iterator)}; it must return an iterator"
        )
    return iter(iterator)


class SampleState(NamedTuple):
    """The state of a Sample.

    Attributes
    ----------
    own_store : Store or None
        The data; None if the first field has the data.
    fields : dict or None
        The fields by name; None if the store defines the fields.
    layout : str, None, UNKNOWN_LAYOUT, or a mapping of these if the store defines the fields
    meta : mapping
    locked : bool
        True if the Sample is read-only even though its data may be writable.
    """

    own_store: Store | None
    fields: dict[str, Any] | None
    layout: Any = None
    meta: Mapping[str, Any] = {}
    locked: bool = False


class SourceOptions(NamedTuple):
    """The options that a user passes with a source."""

    layout: Any
    meta: Any
    read_only: bool | None
    missing: Missing


def source_options(layout: Any, meta: Any, read_only: Any, missing: Any) -> SourceOptions:
    """Return the options, after checking `read_only` and `missing`."""
    read_only = None if read_only is None else check_bool("read_only", read_only)
    return SourceOptions(layout, meta, read_only, check_missing(missing))


def make_state(cls: type[Any], source: Any, options: SourceOptions) -> SampleState:
    """Return the state of a Sample of `source`, which is not itself a Sample."""
    dataset = cls._is_dataset
    opened = open_source(source, dataset, options.read_only is False)
    if isinstance(opened, Mapping):
        return make_mapping_state(cls, opened, options)
    if options.read_only is False and not opened.writable:
        raise DataError(
            f"read_only=False, but {opened} cannot be written to; copy it first, or store it in "
            "a .npy file, which supports writing"
        )
    if opened.unbounded:
        layout = UNKNOWN_LAYOUT if options.layout is None else _check_nested_layout(options.layout)
        return SampleState(opened, None, layout, dict(options.meta or {}), True)
    layout = layout_of(opened, options.layout, dataset)
    return SampleState(opened, {}, layout, dict(options.meta or {}), bool(options.read_only))


def check_name(name: Any) -> None:
    """Raise DataError if `name` cannot be the name of a field."""
    if not isinstance(name, str) or not name.isidentifier() or name[0] == "_" or name == "iterator":
        raise DataError(
            f"{name!r} is not a valid field name; use an identifier that does not begin with '_' "
            "and is not 'iterator'"
        )
    readable = unicodedata.normalize("NFKC", name)
    if name != readable:
        raise DataError(f"Python reads the name {name!r} as {readable!r}; name the field that")


def check_mapping(arg_name: str, value: Any) -> None:
    """Raise DataError if `value` is neither a mapping nor None."""
    if value is not None and not isinstance(value, Mapping):
        raise DataError(f"{arg_name} is {describe_type(value)}; give a mapping by name")


def make_mapping_state(
    cls: type[Any], sources: Mapping[str, Any], options: SourceOptions
) -> SampleState:
    """Return the state of a Sample with a field for each item of a mapping."""
    if not sources:
        raise DataError("the mapping is empty; its first field has the data, so give at least one")
    for arg_name, value in (("layout", options.layout), ("meta", options.meta)):
        _check_names(arg_name, value, sources)
    for name in sources:
        check_name(name)
    layout = options.layout or {}
    meta = options.meta or {}
    kept = None
    if cls._is_dataset:
        sources, kept = _fill_targets(sources, options.missing)
    fields = {
        name: cls(source, layout=layout.get(name), meta=meta.get(name), read_only=options.read_only)
        for name, source in sources.items()
    }
    if cls._is_dataset:
        _check_pairs(fields)
    if kept is not None:
        count = store_of(fields[next(iter(fields))]).num_samples()
        rows = kept.tolist()
        fields = {
            name: field[rows] if store_of(field).num_samples() == count else field
            for name, field in fields.items()
        }
    return SampleState(None, fields, locked=bool(options.read_only))


def _fill_targets(
    sources: Mapping[str, Any], missing: Missing
) -> tuple[Mapping[str, Any], Array | None]:
    """Return the sources with -1 for missing targets, and the samples to keep (None: all).

    Targets in memory are checked here, those in files when their labels are read.
    """
    for pair in FIELD_PAIRS:
        if {*pair} <= {*sources}:
            target = sources[pair[1]]
            values = target.to_numpy() if is_dataframe(target) else target
            if not isinstance(values, np.ndarray):
                continue
            describe = "sample {} of the Dataset has no target".format
            filled, kept = fill_missing(values, missing, describe)
            return (sources if filled is values else {**sources, pair[1]: filled}), kept
    return sources, None


def _check_pairs(fields: Mapping[str, Sample]) -> None:
    """Raise DataError if an input and its target have different numbers of samples."""
    for pair in FIELD_PAIRS:
        counts = [store_of(fields[name]).num_samples() for name in pair if name in fields]
        if len(set(counts)) > 1 and all(isinstance(count, int) for count in counts):
            raise DataError(
                f"{pair[1]} has {counts[1]} rows, but {pair[0]} has {counts[0]}; give one target "
                "for each sample, or rename a field that is something else"
            )


def _check_names(arg_name: str, value: Any, sources: Mapping[str, Any]) -> None:
    """Raise unless layout or meta of a mapping is itself a mapping keyed by field names."""
    if value is not None and not isinstance(value, Mapping):
        raise DataError(
            f"{arg_name} of a mapping must be a mapping by field name, not {show(value)}"
        )
    unknown = [name for name in value or () if name not in sources]
    if unknown:
        raise DataError(
            f"{arg_name} is given for {unknown}, which are not fields; the fields are: "
            f"{', '.join(map(str, sources))}"
        )


def layout_of(store: Store, layout: Any, dataset: bool) -> str | None:
    """Return the validated layout option, or the default."""
    if dataset and store.num_samples() is None:
        raise DataError("a Dataset has samples along its first axis, but this data has no axes")
    if isinstance(layout, Mapping):
        raise DataError(
            "layout is a mapping, but the data has no named fields; give one layout, such as 'bf'"
        )
    if layout is not None:
        return check_sample_layout(layout, store.rank, dataset)
    return default_sample_layout(store.rank, True) if dataset and store.is_array else None


def _check_nested_layout(layout: Any) -> Any:
    """Return the checked layout, or mapping of layouts, of data that is not read yet."""
    if isinstance(layout, Mapping):
        return {name: _check_nested_layout(inner) for name, inner in layout.items()}
    return check_sample_layout(layout, None, True)


class Sample:
    """Data that is read when it is called, selected from lazily, and written through.

    >>> sample = Sample({"input": np.arange(6.0), "target": np.array([1, 0])})
    >>> sample.input[2:4]()
    array([2., 3.])
    >>> sample.input[2:4] = 0                       # every selection is a view
    >>> sample.input += 1
    >>> sample.input()
    array([1., 2., 1., 1., 5., 6.])

    Its methods begin with `_`, so that all other names are free for fields.

    Raises DataError for an unsupported source or an invalid field name, PatternError and
    ShapeError for a layout that does not match the data.

    Parameters
    ----------
    source
        An array, or an object with `shape`, `dtype` and `[]`; a path of a file of arrays, such as
        `.npy` (memory-mapped) or `.npz` (a field for each array); a mapping of names to sources,
        whose first field is the data; a list of arrays; a Sample. Nothing is copied, and
        nothing is read before it is needed, except files that cannot be mapped.
    fields : mapping of names to keys, optional
        Views of the data: `{"x": np.s_[:, 0]}`. They may overlap.
    layout : str, or mapping by field name for a mapping, optional
    meta : mapping, or mapping by field name for a mapping, optional
        Metadata of any kind; `classes` are the classes of labels.
    read_only : bool, optional
        By default, as the source; files are read-only. False makes a `.npy` file writable, and
        raises DataError for a source that cannot be written to. Selections inherit it.
    missing : "error", "drop" or -1
        Of a Dataset of a mapping: the handling of samples whose target (or y), an array of one
        axis in memory, is NaN, None or the like: an error, omitted, or with the target -1.
    """

    __slots__ = (
        "__weakref__",
        "_element_fields",
        "_fields_by_name",
        "_layout_option",
        "_locked",
        "_meta_option",
        "_own_store",
    )

    _own_store: Store | None
    _fields_by_name: dict[str, Any] | None
    _element_fields: dict[str, Any] | None  # that the store defines, once they were looked up
    _layout_option: Any
    _meta_option: Mapping[str, Any]
    _locked: bool

    _is_dataset: ClassVar[bool] = False
    # NumPy must not treat a Sample as an operand: Sample.__eq__ handles `array == sample`.
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
        missing: str | int = "error",
        **unknown: Never,
    ) -> None:
        reject_unknown(type(self), unknown)
        check_mapping("meta", meta)
        check_mapping("fields", fields)
        cls = type(self)
        options = source_options(layout, meta, read_only, missing)
        if missing != "error" and not (cls._is_dataset and isinstance(source, Mapping)):
            raise DataError(
                f"missing={show(missing)} is for a Dataset of a mapping of an input and a target "
                "in memory; for others give it to open_index or sampled_batcher"
            )
        is_sample = isinstance(source, Sample)
        self._set(source._state_as(cls, options) if is_sample else make_state(cls, source, options))
        if fields:
            object.__setattr__(self, "_fields_by_name", self._with_windows(fields))

    # -- fields ----------------------------------------------------------------------------

    @classmethod
    def _of(cls, state: SampleState) -> Self:
        sample = cls.__new__(cls)
        sample._set(state)
        return sample

    def _set(self, state: SampleState) -> None:
        names = ("_own_store", "_fields_by_name", "_layout_option", "_meta_option", "_locked")
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_element_fields", None)

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
        if isinstance(value, Sample):
            object.__setattr__(self, "_fields_by_name", {**fields, name: self._as_field(value)})
        elif name in fields:
            fields[name]._write(value)
        else:
            raise self._no_field(name, "; to add a field, assign a Sample")

    def __delattr__(self, name: str) -> None:
        raise NoSuchField(f"{name!r} cannot be deleted: a {type(self).__name__} keeps its fields")

    def _iter_fields(self) -> Iterator[tuple[str, Any]]:
        """Return an iterator over (name, Sample) of each field, in the order of declaration."""
        return iter(self._fields().items())

    def _fields(self) -> dict[str, Any]:
        if self._fields_by_name is not None:
            return self._fields_by_name
        if self._element_fields is None:
            object.__setattr__(self, "_element_fields", self._find_fields())
        return self._element_fields  # type: ignore[return-value]

    def _find_fields(self) -> dict[str, Any]:
        """Return the fields that the elements define, each with its part of layout and meta."""
        layout = self._layout_option if isinstance(self._layout_option, Mapping) else {}
        fields: dict[str, Any] = {}
        for name, store in self._store().fields().items():
            field_options = layout.get(name, UNKNOWN_LAYOUT), self._meta_option.get(name, {})
            fields[name] = type(self)._of(SampleState(store, None, *field_options, self._locked))
        return fields

    def _as_field(self, sample: Any) -> Any:
        """Return the Sample as a field of this class: unchanged."""
        return sample

    def _no_field(self, name: str, fix: str = "") -> NoSuchField:
        names = ", ".join(self._fields())
        listed = f"the fields are: {names}" if names else "it has no fields; name some by fields="
        return NoSuchField(f"there is no field {name!r}; {listed}{fix}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields()]

    # -- data ------------------------------------------------------------------------------

    def __call__(self) -> Any:
        """Return the data: a NumPy view of the source if possible, else a new array.

        A list of arrays for a list, a scalar for one element. A view, or an array returned by an
        array-like, is writable unless the Sample is read-only.
        """
        return self._store().read(self._is_locked())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        data = self()
        if isinstance(data, list) and len({array.shape for array in data}) > 1:
            self._shape()  # raises: a list does not have a shape
        return np.array(data, dtype, copy=copy)

    def __getitem__(self, key: Any) -> Sample:
        store = self._store().select(key)
        layout = self._layout_after(key)
        layout_option = layout if isinstance(layout, str) and layout != UNKNOWN_LAYOUT else None
        return Sample._of(SampleState(store, {}, layout_option, {}, self._is_locked()))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_writable()
        store = self._store().select(key)
        # `sample[key] += v` writes in its second step, then assigns the result to itself here.
        if not (isinstance(value, Sample) and value._store().is_same(store)):
            Sample._of(SampleState(store, {}, locked=self._is_locked()))._write(value)

    def _write(self, value: Any) -> None:
        """Write a number, an array or a Sample's data, broadcast and cast with "same_kind".

        Raises
        ------
        DataError
            The Sample is read-only.
        ShapeError, DtypeError
            The value cannot be broadcast or cast. Nothing is written.
        """
        self._check_writable()
        self._store().write(_as_value(value))

    def __len__(self) -> int:
        length = self._store().length()
        if not isinstance(length, int):
            reason = "can only be iterated" if length is None else "is infinite"
            raise NoLength(f"this {type(self).__name__} {reason}, so it has no length")
        return length

    def __iter__(self) -> Iterator[Sample]:
        length = len(self)  # raises now rather than at the first step
        return (self[i] for i in range(length))

    def _length(self) -> Length:
        """Return the number of elements: an int, math.inf if endless, None if unknown."""
        return self._store().length()

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of the data; raise DataError for a list of arrays, which has none."""
        return self._store().shape

    def _size(self) -> int:
        """Return the number of elements of the data: the product of its shape."""
        return prod(self._shape())

    def _layout(self) -> str | None:
        """Return the layout of the data, such as "bhwc"; None if it is unknown."""
        owner = self._data_owner()
        if owner is not self:
            return owner._layout()
        if self._store().blocked:
            return None
        if self._layout_option == UNKNOWN_LAYOUT or isinstance(self._layout_option, Mapping):
            first = self._first_element_field()
            if first is not None:
                return first._layout()
            return default_sample_layout(self._store().rank, self._is_dataset)
        return self._layout_option

    def _meta(self) -> dict[str, Any]:
        owner = self._data_owner()
        first = self._first_element_field() if owner is self and self._meta_option else None
        if owner is self and first is None:
            return dict(self._meta_option)
        return (owner if first is None else first)._meta()

    def _first_element_field(self) -> Sample | None:
        """Return the first field that the elements define; this reads an element."""
        return next((self._fields()[name] for name in self._store().fields()), None)

    def _view(self) -> Any:
        """Return the data as a View of images, sequences, labels (with meta's classes) or others.

        It shares memory with the source if `()` does. Raises DataError if the layout has no b.
        """
        layout = batch_layout(self._layout())
        if not self._store().is_array:
            self._shape()  # raises: a list does not have a shape
        return view_module().view_for_layout(layout, self(), self._meta().get("classes"))

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
        """Write the result of an operator on the data and a value."""
        self._check_writable()
        with translate_numpy_errors(change.__name__, self._store(), value):
            self._store().update(change, _as_value(value))
        return self

    def _with_windows(self, windows: Mapping[str, Any]) -> dict[str, Sample]:
        """Return the fields, extended by views of the data given as keys."""
        fields = dict(self._fields())
        for name, key in windows.items():
            check_name(name)
            if name in fields:
                raise DataError(f"field {name!r} is defined twice; give each name once")
            fields[name] = self._as_field(self[key])
        return fields

    # -- inside ----------------------------------------------------------------------------

    def _state_as(self, cls: type[Sample], options: SourceOptions) -> SampleState:
        """Return the state of another Sample of this data, with some options replaced."""
        if options.read_only is False and not self._writable():
            raise DataError("read_only=False, but the Sample is read-only; copy its data first")
        locked = self._locked or bool(options.read_only)
        if self._own_store is None:
            return make_mapping_state(
                cls, self._fields(), options._replace(read_only=locked or None)
            )
        fields = self._fields_by_name
        if fields is not None:
            fields = {name: cls(field, read_only=locked or None) for name, field in fields.items()}
        meta = self._meta_option if options.meta is None else dict(options.meta)
        return SampleState(
            self._own_store, fields, self._layout_as(cls, options.layout), meta, locked
        )

    def _layout_as(self, cls: type[Sample], layout: Any) -> Any:
        """Return the layout of another Sample of this data: as passed, else as here if valid."""
        if layout is not None:
            return layout_of(self._store(), layout, cls._is_dataset)
        if self._is_dataset or not cls._is_dataset:
            return self._layout_option
        known = self._layout() or ""
        return layout_of(self._store(), known if known.startswith("b") else None, True)

    def _layout_after(self, key: Any) -> Any:
        """Return the layout of a selection; mini-batches keep the layout of their samples."""
        owner = self._data_owner()
        if not owner._store().blocked:
            return layout_after(owner._layout_option, key)
        return owner._layout_option if key_types(key) in (("int",), ("slice",), ("list",)) else None

    def _kept_meta(self) -> Mapping[str, Any]:
        """Return the stored metadata: for a mapping, its first field's."""
        return self._data_owner()._meta_option

    def _data_owner(self) -> Sample:
        """Return the Sample that holds the data: itself, or its first field."""
        return (
            self
            if self._own_store is not None
            else next(iter(self._fields().values()))._data_owner()
        )

    def _store(self) -> Store:
        return self._data_owner()._own_store  # type: ignore[return-value]

    def _is_locked(self) -> bool:
        return self._locked or self._data_owner()._locked

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
        state = SampleState(
            self._own_store,
            self._fields_by_name,
            self._layout_option,
            self._meta_option,
            self._locked,
        )
        return _from_state, (type(self), state)

    def __repr__(self) -> str:
        fields = self._element_fields if self._fields_by_name is None else self._fields_by_name
        names = f"; fields: {', '.join(fields)}" if fields else ""
        return f"<{type(self).__name__}: {self._store()}{names}>"


def store_of(sample: Sample) -> Store:
    """Return the store of a Sample; a function, since the names of a Sample are free for fields."""
    return sample._store()


def _from_state(cls: type[Sample], state: SampleState) -> Sample:
    return cls._of(state)


def _as_value(value: Any) -> Any:
    """Return the data of a Sample, and any other value unchanged."""
    return value() if isinstance(value, Sample) else value
