"""The result of `Dataset.iterator`: batches of fields in the requested spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..._utils.validation import show
from ...collator import Collator
from ...errors import DataError
from ...memory import Array
from ...spaces import DataSpecsMapping, Space, VectorSpace
from ...spaces.convert import Rearrange, find_conversion
from ...spaces.views import space_for_layout
from ...spec import dtype_kind
from ..errors import check_has_records
from ..loader.arrays import ArrayLoop, array_config
from ..loader.batch import Batch
from ..loader.config import LoaderConfig
from ..samplers import sampler
from .sample import Sample, store_of


class DatasetIterator(ArrayLoop[Any]):
    """Batches of a Dataset's fields, epoch by epoch; created by `Dataset.iterator`.

    A batch has its own memory: it is never modified later, and writing to it does not change the
    Dataset.
    """

    def __init__(self, dataset: Sample, data_specs: Any, mode: str, order: Mapping[str, Any]):
        self._mapping = DataSpecsMapping(data_specs)
        pairs = self._mapping.specs_to_index
        self._fields = [FieldInSpace(dataset, source, space) for space, source in pairs]
        lengths = {field.source: field.length for field in self._fields}
        count = _common_length(lengths) if lengths else len(dataset)
        check_has_records(count, "the Dataset", "its length is 0")
        if order["batch_size"] is None and order["num_batches"] is None:
            raise DataError("batch_size and num_batches are both missing; give one of them")
        self._sampler = sampler(mode, count, **order)
        super().__init__(self._sampler.epoch)

    @property
    def num_batches(self) -> int:
        """The number of batches in an epoch."""
        return len(self._sampler.batches())

    @property
    def num_examples(self) -> int:
        """The number of samples in an epoch; a sample that is drawn twice counts twice."""
        return len(self._sampler)

    def _identity(self) -> dict[str, int | str]:
        return self._sampler.plan.identity

    def _end(self, epoch: int) -> int | None:
        return self._sampler.order(epoch).size

    def _make_config(self) -> LoaderConfig:
        read = partial(_read_fields, self._fields)
        return array_config(self._sampler, read, self._sampler.batch_size or 1)

    def _split(self, pending: Any) -> list[tuple[Batch, int]]:
        index = np.arange(pending.start, pending.start + pending.num_taken)
        batch = Batch(pending.input, None, index, list, [], pending.stats, None)
        return [(batch, pending.start + len(index))]

    def _item(self, batch: Batch) -> Any:
        return self._mapping.nest(batch.input)


def _read_fields(fields: Sequence[FieldInSpace], positions: Array) -> tuple[Any, ...]:
    return tuple(field.batch(positions) for field in fields)


class FieldInSpace:
    """A field whose rows become batches of a space."""

    def __init__(self, dataset: Sample, source: str, space: Space) -> None:
        self.source = source
        self._space = space
        self._field = _find_field(dataset, source)
        length = self._field._length()
        if not isinstance(length, int):
            raise DataError(f"field {source} has no length; iterator() needs a finite field")
        self.length = length
        self._field_space = _field_space_of(self._field, source, space)
        empty = np.empty((0, *self._field._shape()[1:]), store_of(self._field).dtype)
        self._format(empty)  # raises now if the field does not fit the space
        self._collator = self._make_collator(_as_matrix(empty))

    def batch(self, positions: Array) -> Any:
        """Return the rows at these positions as a batch of the space."""
        store = store_of(self._field)
        rows = None if self._collator is None else store.backing_array()
        if rows is None or self._collator is None:
            return self._format(store.take(positions))
        return self._collator(_as_matrix(rows), indices=positions)

    def _format(self, rows: Array) -> Any:
        return self._field_space.format_as(_as_matrix(rows), self._space)

    def _make_collator(self, empty: Array) -> Collator | None:
        """Return a Collator that makes batches in one pass, or None if rows need validation."""
        move = find_conversion(self._field_space, self._space, "same_kind", False)
        if self._field_space.family not in ("vector", "array") or type(move) is not Rearrange:
            return None
        return move.of_rows(empty.shape, empty.dtype)


def _as_matrix(rows: Array) -> Array:
    return rows[:, None] if rows.ndim == 1 else rows


def _find_field(dataset: Sample, source: str) -> Sample:
    """Return the field that a source names; raise DataError if there is none."""
    field: Sample = dataset
    for name in source.split("."):
        fields = dict(field._iter_fields())
        if name not in fields:
            names = ", ".join(fields) or "none; give the Dataset a mapping of names to arrays"
            raise DataError(f"source {show(source)} is not a field: {name!r} is not among {names}")
        field = fields[name]
    return field


def _field_space_of(field: Sample, source: str, target: Space) -> Space:
    """Return the space of a field's rows, by its layout; raise DataError if there is none."""
    layout = field._layout()
    if layout is None:
        raise DataError(
            f"field {source} has no layout, which decides its space; give the Dataset "
            f"layout={{{show(source)}: ...}}, such as 'bhwc'"
        )
    one_number = layout == "b" and isinstance(target, VectorSpace) and target.dim == 1
    is_label = dtype_kind(field._store().dtype) in "ui" and not one_number
    count = _label_count(field, target) if is_label else None
    # None for the first axis: the length of a Dataset is not a batch size.
    space: Space | None = space_for_layout(layout, (None, *field._shape()[1:]), count)
    if space is None:
        raise DataError(
            f"field {source} in layout {layout} is not a batch of any space; "
            "spaces hold images (b, h, w and c in any order), "
            "vectors (bf), labels (integers in b or bt) or numbers (b)"
        )
    return space


def _label_count(field: Sample, target: Any) -> int:
    """Return the number of labels: from the field's classes, else from the target space."""
    classes = field._meta().get("classes")
    if classes is None:
        return int(getattr(target, "max_labels", getattr(target, "dim", 1)))
    return classes if isinstance(classes, int) else len(classes)


def _common_length(lengths: dict[str, int]) -> int:
    """Return the number of samples, which all sources must share."""
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"the sources have different numbers of samples: {counts}")
    return next(iter(lengths.values()))
