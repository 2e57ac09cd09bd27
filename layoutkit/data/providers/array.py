"""`ArrayProvider`: batches of arrays in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Never

import numpy as np

from ..._utils.pickling import UncachedState
from ..._utils.validation import show
from ...backends.dispatch import as_array
from ...backends.indexing import take
from ...converter import Converter
from ...errors import DataError, DtypeError
from ...layout.parsing import parse_layout, with_batch_axis
from ...memory import Array, in_native_order
from ...normalize import find_normalization
from ...spaces.views import view_for_layout
from ...spec import can_cast
from ..errors import reject_unknown
from ..labels import check_missing, fill_missing
from ..loader.batch import ViewFactory, check_convert, default_layout, result_layout
from .base import BaseProvider, pad_rows


@dataclass(frozen=True)
class Field(UncachedState):
    """A named array of a provider: its source, conversion and padding.

    source       an array; in a subclass, the file that contains it
    sizes        the shape of the source
    axis         of samples in the source
    layout       of batches, after the conversion
    filling      the padding, in the dtype of batches
    converter    converts rows; None: they are copied
    """

    name: str
    source: Any
    sizes: tuple[int, ...]
    axis: int
    layout: str
    filling: Array
    converter: Converter | None = None

    @cached_property
    def _array(self) -> Array:
        return self.source

    @cached_property
    def _batch_axis(self) -> int:
        return parse_layout(self.layout).groups.index("b")

    @cached_property
    def view(self) -> ViewFactory:
        """The function that makes the View of a batch of rows."""
        return ViewFactory(self.layout, self.name)

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.sizes[self.axis])

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a batch with this number of rows."""
        shape = (*self.sizes[: self.axis], rows, *self.sizes[self.axis + 1 :])
        return shape if self.converter is None else self.converter.target_shape(shape)

    def rows(self, numbers: Array, total: int) -> Array:
        """Return the rows with these numbers, converted for a batch, padded to `total` rows."""
        return pad_rows(self._read(numbers), self._batch_axis, total, self.filling)

    def close(self) -> None:
        """Close the file of a subclass; the caller owns an array."""

    def _read(self, numbers: Array) -> Array:
        """Return a converted copy of the rows with these numbers."""
        array = self._array
        if self.converter is None:
            return in_native_order(take(array, self.axis, numbers))
        rows: Array = self.converter(_select(array, self.axis, numbers))
        return rows.copy() if np.may_share_memory(rows, array) else rows


def _select(array: Array, axis: int, numbers: Array) -> Array:
    """Return rows of an array: a strided view if they are evenly spaced, else a copy."""
    if len(numbers) > 1:
        steps = np.diff(numbers)
        step = int(steps[0])
        if step > 0 and (steps == step).all():
            evenly = slice(int(numbers[0]), int(numbers[-1]) + 1, step)
            return array[(slice(None),) * axis + (evenly,)]
    return take(array, axis, numbers)


def label_field(name: str, labels: Array) -> Field:
    """Return the field of labels, one or several numbers per sample, which are padded with 0."""
    layout = "b" if labels.ndim == 1 else "bf"
    return Field(name, labels, labels.shape, 0, layout, np.zeros((), labels.dtype))


def make_field(
    name: str,
    array: Any,
    layouts: Mapping[str, Any],
    padding: Any,
    converts: Mapping[str, Any] | None,
    constants: Mapping[str, Any] | None = None,
) -> Field:
    """Return the field of an array; raise an error for invalid options."""
    memory = as_array(array, name)
    layout, converter = layouts.get(name), (converts or {}).get(name)
    formula_arguments = {
        name: value for name, value in (constants or {}).items() if value is not None
    }
    formula = find_normalization(**formula_arguments)
    if converter is not None:
        check_convert(converter, layout)
        if formula is not None:
            raise DataError(f"pass either convert or {', '.join(formula_arguments)}, not both")
        layout = str(converter.options.pattern.source) if layout is None else layout
    layout = default_layout(memory.shape, name) if layout is None else layout
    layout = str(with_batch_axis(parse_layout(layout)))
    view_for_layout(layout, memory, None)  # raises if they do not fit
    axis = parse_layout(layout).groups.index("b")
    dtype = memory.dtype
    if formula is not None:
        converter = Converter(f"{layout}->{layout}", **formula.keywords())
    if converter is not None:
        dtype = converter.infer_spec(converter.spec_of(memory)).dtype
        layout = result_layout(converter)
    number = padding.get(name, 0) if isinstance(padding, Mapping) else padding
    filling = _filling(number, dtype, name)
    return Field(name, memory, memory.shape, axis, layout, filling, converter)


def _filling(number: Any, dtype: np.dtype[Any], name: str) -> Array:
    """Return the padding in the dtype of the array; raise DtypeError if it does not fit."""
    plain = isinstance(number, int | float | complex | np.number | np.bool_)
    if plain and number == 0:
        return np.zeros((), dtype)
    fits = plain and can_cast(np.min_scalar_type(number), dtype, "same_kind")
    if fits:
        with suppress(OverflowError):
            return np.full((), number, dtype)
    raise DtypeError(
        f"padding={show(number)} is not a value of {name}, whose dtype is {dtype}; give one that is"
    )


class ArrayProvider(BaseProvider):
    """A provider of batches of `batch_size` consecutive samples of arrays.

    >>> import numpy as np
    >>> provider = ArrayProvider(np.arange(10.0).reshape(5, 2), np.arange(5), batch_size=2)
    >>> provider.provide_data, provider.provide_label
    ([('data', (2, 2))], [('label', (2,))])
    >>> for batch in provider:
    ...     print(batch.count, provider.get(batch, "label").input)
    2 [0 1]
    2 [2 3]
    1 [4 0]

    `for batch in provider` is an epoch, and `state_dict()` is a position in it: see the guide on
    order and resuming.

    Parameters
    ----------
    data, label : array or mapping of name -> array
        All with the same number of samples along axis b; of any dtype. Arrays alone are called
        "data" and "label". They are held by reference, and batches are copies.
    batch_size : int, optional
        By default all samples.
    shuffle : bool
        A new order each epoch, the same for all arrays, a function of `seed` and the epoch alone.
    padding : number or mapping of name -> number
        The value that fills the last batch with `tail="pad"`.
    tail : str
        The handling of a short last batch: "pad" fills it up, "wrap" repeats the epoch's first
        samples, "drop" omits it (`unvisited` samples).
    layout : str or mapping of name -> str, optional
        The layout of the data; by default `b` and `bf`.
    convert : Converter or mapping of name -> Converter, optional
        Converts each batch: of all data, or of the named arrays.
    scale, mean, std, clip : optional
        In place of `convert`, the formula of its keywords, of all data in their layouts.
    missing : "error", "drop" or -1
        The handling of samples whose label (of one axis) is NaN, None or the like: an error,
        omitted and counted in `skipped`, or with the label -1.

    Raises
    ------
    DataError, PatternError, ShapeError, DtypeError, ArgumentError
        Numbers of samples differ, or a name, tail or layout is invalid. Raised at once.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        padding: Any = 0,
        tail: str = "pad",
        layout: Any = None,
        convert: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
        missing: str | int = "error",
        **unknown: Never,
    ) -> None:
        reject_unknown(ArrayProvider, unknown)
        arrays, labels = _as_named(data, "data"), _as_named(label, "label")
        labels, kept = _fill_missing(labels, missing)
        if convert is not None and not isinstance(convert, Mapping):
            convert = dict.fromkeys(arrays, convert)
        _check_names(arrays, labels, layout=layout, padding=padding, convert=convert)
        constants = {"scale": scale, "mean": mean, "std": std, "clip": clip}
        layouts = layout if isinstance(layout, Mapping) else dict.fromkeys(arrays, layout)
        fields = [
            make_field(*item, layouts, padding, convert, constants) for item in arrays.items()
        ]
        targets = [make_field(*item, layouts, padding, convert) for item in labels.items()]
        super().__init__(
            fields, targets, _common_length(fields + targets),
            batch_size=batch_size, shuffle=shuffle, seed=seed, tail=tail, kept=kept,
        )  # fmt: skip


def _fill_missing(labels: Mapping[str, Any], missing: Any) -> tuple[dict[str, Any], Array | None]:
    """Return the labels with -1 for missing ones, and the samples that have all (None: all)."""
    check_missing(missing)
    filled: dict[str, Any] = {}
    kept = None
    for name, label in labels.items():
        describe = partial("sample {1} of {0} has no label".format, name)
        values = label.to_numpy() if hasattr(label, "to_numpy") else label
        if isinstance(values, list | tuple):
            values = (
                np.array(values, object) if any(v is None for v in values) else np.asarray(values)
            )
        filled[name], own = fill_missing(values, missing, describe)
        if filled[name] is values:
            filled[name] = label  # of any library
        if own is not None:
            kept = own if kept is None else np.intersect1d(kept, own)
    return filled, kept


def _as_named(arrays: Any, name: str) -> dict[str, Any]:
    """Return arrays by name; a single array gets the default name."""
    if arrays is None and name == "label":
        return {}
    if not isinstance(arrays, Mapping):
        return {name: arrays}
    wrong = [key for key in arrays if not isinstance(key, str)]
    if wrong or (name == "data" and not arrays):
        raise DataError(
            f"{name} has the names {list(arrays)!r}; give at least one, all of them str"
        )
    return dict(arrays)


def _check_names(data: Mapping[str, Any], label: Mapping[str, Any], **options: Any) -> None:
    """Raise DataError for a name that is both data and label, or an option of no array."""
    both = sorted(data.keys() & label.keys())
    if both:
        raise DataError(f"{both[0]!r} is both data and label; give them different names")
    for arg_name, option in options.items():
        unknown = (
            [n for n in option if n not in data and n not in label]
            if isinstance(option, Mapping)
            else []
        )
        if unknown:
            names = ", ".join(map(repr, [*data, *label]))
            raise DataError(
                f"{arg_name} names {unknown[0]!r}, but the arrays are {names}; name one of them"
            )


def _common_length(fields: Sequence[Field]) -> int:
    """Return the number of samples, which all fields must share."""
    first = fields[0]
    for field in fields:
        if field.samples != first.samples:
            raise DataError(
                f"{first.name} has {first.samples} samples, but {field.name} has {field.samples} "
                "along axis b; give as many of each"
            )
    return first.samples
