"""`Dataset`: a Sample whose first axis counts samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ..._utils import fork
from ..._utils.validation import check_int
from ...errors import DataError, ShapeError
from .indexing import key_types
from .minibatches import make_blocks
from .sample import Sample, SampleState, store_of

if TYPE_CHECKING:
    from .iterator import DatasetIterator


class Dataset(Sample):
    """A Sample whose first axis counts samples, with more ways to select and to iterate.

    >>> import numpy as np
    >>> dataset = Dataset({"input": np.arange(12.0).reshape(6, 2), "target": np.arange(6)})
    >>> dataset[4].input(), dataset[4].target()
    (array([8., 9.]), np.int64(4))
    >>> [len(batch) for batch in dataset._minibatches(4)]
    [4, 2]

    The parameters equal those in `Sample`. The source may also be infinite (an object with
    `__getitem__(i)`, and neither length nor shape), or sequential (an iterable, or a function
    without arguments that returns a fresh iterator). The elements of the source are then arrays, or
    mappings of names to arrays, and it is read-only.

    A layout begins with `b`; the default for one and two axes is `b` and `bf`.
    """

    __slots__ = ()

    _is_dataset: ClassVar[bool] = True

    def __getitem__(self, key: Any) -> Sample:
        first, *more = key_types(key)
        if first not in ("int", "slice", "list"):
            return super().__getitem__(key)
        blocked = self._store().blocked
        if more and first == "int" and blocked:
            return self[key[0]][key[1:]]
        cls: type[Sample] = Sample if first == "int" and not blocked else Dataset
        layout = self._layout_after(key)
        locked = self._is_locked()
        if more:
            layout_option = layout if isinstance(layout, str) else None
            return cls._of(SampleState(self._store().select(key), {}, layout_option, {}, locked))
        fields = None if self._fields_by_name is None else self._selected_fields(key)
        if self._own_store is None:
            return cls._of(SampleState(None, fields, locked=self._locked))
        return cls._of(
            SampleState(self._own_store.select(key), fields, layout, self._meta_option, locked)
        )

    def __iter__(self) -> Iterator[Sample]:
        length = self._length()
        if length is None:
            return self._iterate_stream()
        indices = itertools.count() if length == math.inf else range(int(length))
        return (self[i] for i in indices)

    def _width(self) -> int:
        """Return the length of the samples, `_shape()[1]`; raise ShapeError for one axis."""
        shape = self._shape()
        if len(shape) < 2:
            raise ShapeError(f"data of shape {shape} has no second axis, so it has no width")
        return shape[1]

    def _minibatches(self, batch_size: int) -> Dataset:
        """Return the Dataset of runs of `batch_size` samples each; the last may be short.

        Its samples are Datasets: `d._minibatches(5)[2]` is `d[10:15]`. Raises DataError if
        `batch_size` is not an int of at least 1.
        """
        size = check_int("batch_size", batch_size, 1)
        store = None if self._own_store is None else make_blocks(self._own_store, size)
        fields = self._fields_by_name
        if fields is not None:
            fields = {name: field._minibatches(size) for name, field in fields.items()}
        return Dataset._of(
            SampleState(store, fields, self._layout_option, self._meta_option, self._locked)
        )

    def iterator(
        self,
        data_specs: Any,
        *,
        mode: str = "sequential",
        batch_size: int | None = None,
        num_batches: int | None = None,
        seed: int = 0,
        epoch: int = 0,
    ) -> DatasetIterator:
        """Return an iterable over batches of fields in the requested spaces, epoch by epoch.

        >>> import numpy as np
        >>> from layoutkit import CompositeSpace, IndexSpace, VectorSpace
        >>> dataset = Dataset({"input": np.ones((5, 2)), "target": np.array([0, 1, 2, 1, 0])})
        >>> specs = CompositeSpace((VectorSpace(2), VectorSpace(3))), ("input", "target")
        >>> for x, y in dataset.iterator(specs, batch_size=3):
        ...     print(x.shape, y.shape)
        (3, 2) (3, 3)
        (2, 2) (2, 3)

        Parameters
        ----------
        data_specs : (space, source)
            As for `DataSpecsMapping`. A source is a field's name; `input.x1` is nested. Its layout
            decides what it holds: images, vectors (bf), labels (integers in b or bt), or one
            number per sample (b).
        mode : str
            A kind of `sampler` that does not need labels: "sequential", "shuffle", ...
        batch_size, num_batches : int, at least one of them
        seed, epoch : int
            The random order is a function of both.

        Returns
        -------
        iterable
            Each batch is nested as `source` is, in memory of its own. The iterable has
            `num_batches`, `num_examples`, `epoch`, `set_epoch`, `state_dict` and `load_state_dict`.

        Raises
        ------
        DataError
            The Dataset is not finite, a source is not a field or has no layout, or the mode is
            unknown.
        SpaceError, ShapeError, DtypeError
            Space and source are not nested alike, or a field cannot be converted to its space.
        """
        # A lazy import: selections do not need Spaces and samplers, which take a while to load.
        with fork.init_lock:
            from .iterator import DatasetIterator

        order = {"batch_size": batch_size, "num_batches": num_batches, "seed": seed}
        return DatasetIterator(self, data_specs, mode, {**order, "epoch": epoch})

    def _selected_fields(self, key: Any) -> dict[str, Sample]:
        """Return the selection of each field that has as many samples as this Dataset."""
        num_samples = self._store().num_samples()
        fields = self._fields().items()
        return {
            name: field[key]
            for name, field in fields
            if store_of(field).num_samples() == num_samples
        }

    def _iterate_stream(self) -> Iterator[Sample]:
        """Return an iterator over the samples of a stream, in step with its fields."""
        if self._fields_by_name is None:
            return (self._stream_sample(store) for store in self._store().iter_elements())
        iterators: dict[str, Iterator[Any]] = (
            {} if self._own_store is None else {"": self._own_store.iter_elements()}
        )
        streams = {n: iter(f) for n, f in self._fields_by_name.items() if f._length() is None}
        return self._iterate_fields(iterators | streams)

    def _iterate_fields(self, iterators: dict[str, Iterator[Any]]) -> Iterator[Sample]:
        """Yield the samples of a store (named "") and of fields that can only be iterated."""
        while True:
            samples = {name: next(iterator, None) for name, iterator in iterators.items()}
            ended = [name for name, iterator in samples.items() if iterator is None]
            if len(ended) == len(samples):
                return
            if ended:
                name = f"field {ended[0]}" if ended[0] else "the Dataset itself"
                raise DataError(f"{name} has fewer samples than its other fields")
            yield self._stream_sample(samples.pop("", None), samples)

    def _stream_sample(self, store: Any, fields: Any = None) -> Sample:
        cls: type[Sample] = Dataset if self._store().blocked else Sample
        meta = self._kept_meta()
        locked = self._is_locked()
        return cls._of(SampleState(store, fields, self._layout_after(0), meta, locked))

    def _as_field(self, sample: Sample) -> Sample:
        return sample if isinstance(sample, Dataset) else Dataset(sample)
