"""`Dataset`: a Sample whose first axis counts samples.

Knows samples, fields and layouts; where elements lie is known by the stores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ..._utils import fork
from ..._utils.validation import as_count
from ...errors import DataError, ShapeError
from .indexing import kinds_of
from .minibatches import blocks_of
from .sample import Parts, Sample, store_of

if TYPE_CHECKING:
    from .iterator import DatasetIterator

__all__ = ["Dataset"]


class Dataset(Sample):
    """Samples along the first axis: a Sample, with a few more ways to select and to iterate.

    >>> import numpy as np
    >>> dataset = Dataset({"input": np.arange(12.0).reshape(6, 2), "target": np.arange(6)})
    >>> dataset[4].input(), dataset[4].target()
    (array([8., 9.]), np.int64(4))
    >>> [len(batch) for batch in dataset._minibatches(4)]
    [4, 2]

    Parameters are those of `Sample`. The source may also be infinite (an object with
    `__getitem__(i)`, and neither length nor shape), or give its samples in order only (an
    iterable, or a function without arguments that gives a fresh iterator); its elements are
    arrays, or mappings of names to arrays, and it is read-only.

    A layout begins with `b`; by default it is `b` or `bf` for one and two axes.
    """

    __slots__ = ()

    _is_dataset: ClassVar[bool] = True

    def __getitem__(self, key: Any) -> Sample:
        first, *more = kinds_of(key)
        if first not in ("int", "slice", "list"):
            return super().__getitem__(key)
        blocked = self._store().blocked
        if more and first == "int" and blocked:
            return self[key[0]][key[1:]]
        cls = Sample if first == "int" and not blocked else Dataset
        layout, locked = self._layout_after(key), self._is_locked()
        if more:
            said = layout if isinstance(layout, str) else None
            return cls._of(Parts(self._store().select(key), {}, said, {}, locked))
        named = None if self._named is None else self._selected_fields(key)
        if self._own is None:
            return cls._of(Parts(None, named, locked=self._locked))
        return cls._of(Parts(self._own.select(key), named, layout, self._info, locked))

    def __iter__(self) -> Iterator[Sample]:
        length = self._length()
        if length is None:
            return self._stepped()
        places = itertools.count() if length == math.inf else range(int(length))
        return (self[at] for at in places)

    def _width(self) -> int:
        """The length of the samples: `_shape()[1]`; ShapeError where they have none."""
        shape = self._shape()
        if len(shape) < 2:
            raise ShapeError(f"data of shape {shape} has no second axis, so it has no width")
        return shape[1]

    def _minibatches(self, batch_size: int) -> Dataset:
        """The Dataset of runs of `batch_size` samples each; the last may be short.

        Its samples are Datasets: `d._minibatches(5)[2]` is `d[10:15]`. DataError for a batch
        size that is no whole number of at least 1.
        """
        size = as_count("batch_size", batch_size, 1)
        own = None if self._own is None else blocks_of(self._own, size)
        named = self._named
        if named is not None:
            named = {name: field._minibatches(size) for name, field in named.items()}
        return Dataset._of(Parts(own, named, self._lay, self._info, self._locked))

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
        """Batches of fields in the spaces that are asked for, epoch by epoch.

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
            What `DataSpecsMapping` takes. A source is a field's name; `input.x1` is nested. Its
            layout says what it is: images, vectors (bf), labels (integers in b or bt), or one
            number a sample (b).
        mode : str
            A kind of `sampler` that needs no labels: "sequential", "shuffled_sequential", ...
        batch_size, num_batches : int, at least one of them
        seed, epoch : int
            Of a random order.

        Returns
        -------
        iterable
            Each batch is nested as `source` is, in memory of its own. It has `num_batches`,
            `num_examples`, `epoch`, `set_epoch`, `state_dict` and `load_state_dict`.

        Raises
        ------
        DataError
            The Dataset is not finite, a source is no field or has no layout, the mode is unknown.
        SpaceError, ShapeError, DtypeError
            Space and source are not nested alike, or a field never becomes what is asked.
        """
        # Here, as who only selects needs no Spaces and no samplers, which take a while to load.
        with fork.making:
            from .iterator import DatasetIterator

        order = {"batch_size": batch_size, "num_batches": num_batches, "seed": seed}
        return DatasetIterator(self, data_specs, mode, {**order, "epoch": epoch})

    def _selected_fields(self, key: Any) -> dict[str, Sample]:
        """What a key selects of the fields that have as many samples as this."""
        extent = self._store().extent()
        fields = self._fields().items()
        return {name: field[key] for name, field in fields if store_of(field).extent() == extent}

    def _stepped(self) -> Iterator[Sample]:
        """The samples of what can only be iterated; its fields step by step with it."""
        if self._named is None:
            return (self._step(store) for store in self._store().steps())
        steps: dict[str, Iterator[Any]] = {} if self._own is None else {"": self._own.steps()}
        named = {n: iter(f) for n, f in self._named.items() if f._length() is None}
        return self._together(steps | named)

    def _together(self, steps: dict[str, Iterator[Any]]) -> Iterator[Sample]:
        """Samples of a store (named "") and of fields that can only be iterated."""
        while True:
            found = {name: next(each, None) for name, each in steps.items()}
            ended = [name for name, each in found.items() if each is None]
            if len(ended) == len(found):
                return
            if ended:
                name = f"field {ended[0]}" if ended[0] else "the Dataset itself"
                raise DataError(f"{name} has fewer samples than its other fields")
            yield self._step(found.pop("", None), found)

    def _step(self, store: Any, named: Any = None) -> Sample:
        """A sample, or a mini-batch, of what can only be iterated."""
        cls = Dataset if self._store().blocked else Sample
        meta, locked = self._kept_meta(), self._is_locked()
        return cls._of(Parts(store, named, self._layout_after(0), meta, locked))

    def _as_field(self, sample: Sample) -> Sample:
        """A Dataset; of a Sample, the Dataset of its data."""
        return sample if isinstance(sample, Dataset) else Dataset(sample)
