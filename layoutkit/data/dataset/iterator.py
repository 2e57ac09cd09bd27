"""What `Dataset.iterator` returns: batches of fields, in the spaces that are asked for.

Knows fields, samplers and Spaces by their public names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...collator import Collator
from ...errors import DataError
from ...memory import Array
from ...spaces import DataSpecsMapping, Space, VectorSpace
from ...spaces.convert import Rearrange, route
from ...spaces.views import space_in
from ...spec import kind_of
from ..iteration import Epochs
from ..samplers import sampler
from .sample import Sample, store_of

__all__ = ["DatasetIterator"]


class DatasetIterator(Epochs[Any]):
    """Batches of a Dataset's fields, epoch by epoch; made by `Dataset.iterator`.

    A batch is in memory of its own: it is never written to again, and to write to it does not
    change the Dataset.
    """

    def __init__(self, dataset: Sample, data_specs: Any, mode: str, order: Mapping[str, Any]):
        self._mapping = DataSpecsMapping(data_specs)
        pairs = self._mapping.specs_to_index
        self._fields = [FieldInSpace(dataset, source, space) for space, source in pairs]
        lengths = {field.source: field.length for field in self._fields}
        count = _common(lengths) if lengths else len(dataset)
        if order["batch_size"] is None and order["num_batches"] is None:
            raise DataError("batch_size and num_batches are both missing; give one of them")
        self._sampler = sampler(mode, count, **order)
        super().__init__(self._sampler.epoch)

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return len(self._sampler.batches())

    @property
    def num_examples(self) -> int:
        """Samples in an epoch; one that is drawn twice counts twice."""
        return len(self._sampler)

    def _identity(self) -> dict[str, int | str]:
        return self._sampler.plan.identity

    def _records(self) -> int:
        return self._sampler.plan.count

    def _end(self, epoch: int) -> int | None:
        return self._sampler.order(epoch).size

    def _steps(self, epoch: int, position: int) -> Iterator[tuple[Any, int]]:
        for places, behind in self._sampler.order(epoch).batches(position):
            values = tuple(field.batch(places) for field in self._fields)
            yield self._mapping.nest(values), behind


class FieldInSpace:
    """A field whose rows become batches of a space."""

    def __init__(self, dataset: Sample, source: str, space: Space) -> None:
        self.source, self._asked = source, space
        self._field = _found(dataset, source)
        length = self._field._length()
        if not isinstance(length, int):
            raise DataError(f"field {source} has no length, and only finite ones have an order")
        self.length = length
        self._own = _space_of(self._field, source, space)
        nothing = np.empty((0, *self._field._shape()[1:]), store_of(self._field).dtype)
        self._formatted(nothing)  # whatever does not fit is said now
        self._collator = self._of_rows(_with_columns(nothing))

    def batch(self, places: Array) -> Any:
        """The rows in these places as a batch of the space."""
        store = store_of(self._field)
        lying = None if self._collator is None else store.lying()
        if lying is None or self._collator is None:
            return self._formatted(store.take(places))
        return self._collator(_with_columns(lying), indices=places)

    def _formatted(self, rows: Array) -> Any:
        return self._own.format_as(_with_columns(rows), self._asked)

    def _of_rows(self, nothing: Array) -> Collator | None:
        """What makes batches of rows in one pass, where no row has to be looked at."""
        move = route(self._own, self._asked, "same_kind", False)
        if self._own.family not in ("vector", "conv2d") or type(move) is not Rearrange:
            return None
        return move.of_rows(nothing.shape, nothing.dtype)


def _with_columns(rows: Array) -> Array:
    return rows[:, None] if rows.ndim == 1 else rows


def _found(dataset: Sample, source: str) -> Sample:
    """The field that a source names; DataError where there is none."""
    field: Sample = dataset
    for name in source.split("."):
        fields = dict(field._iter_fields())
        if name not in fields:
            names = ", ".join(fields) or "none; give the Dataset a mapping of names to arrays"
            raise DataError(f"source {source!r} is no field: {name!r} is not among {names}")
        field = fields[name]
    return field


def _space_of(field: Sample, source: str, asked: Space) -> Space:
    """The space that a field's rows are a batch of, by its layout; DataError where none is."""
    layout = field._layout()
    if layout is None:
        raise DataError(
            f"field {source} has no layout, so what it is is not known; give the Dataset "
            f"layout={{{source!r}: ...}}, such as 'bhwc'"
        )
    one_number = layout == "b" and isinstance(asked, VectorSpace) and asked.dim == 1
    is_label = kind_of(field._store().dtype) in "ui" and not one_number
    count = _label_count(field, asked) if is_label else None
    # Without its length, as that of a Dataset is no size of a batch.
    found: Space | None = space_in(layout, (None, *field._shape()[1:]), count)
    if found is None:
        raise DataError(
            f"field {source} in layout {layout} is a batch of no space; images (b, h, w and c in "
            "any order), vectors (bf), labels (integers in b or bt) and numbers (b) are"
        )
    return found


def _label_count(field: Sample, asked: Any) -> int:
    """How many labels there are: by the field's classes, else as many as are asked for."""
    classes = field._meta().get("classes")
    if classes is None:
        return int(getattr(asked, "max_labels", getattr(asked, "dim", 1)))
    return classes if isinstance(classes, int) else len(classes)


def _common(lengths: dict[str, int]) -> int:
    """The number of samples that all sources have."""
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"the sources have different numbers of samples: {found}")
    return next(iter(lengths.values()))
