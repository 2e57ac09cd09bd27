"""Stores of mini-batches: each element is a run of consecutive elements of another store."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._utils.indexing import normalize_index
from ...errors import DataError
from ...memory import Array
from ...spec import DType
from ..errors import OutOfRange
from .indexing import Selection, expand, key_types
from .stores import Length, Store
from .stream import BufferedElements, ElementStack, Infinite, Stream
from .values import as_elements


def make_blocks(store: Store, size: int) -> Store:
    """Return a store of mini-batches of `size` elements; the last one may be shorter."""
    if isinstance(store, Infinite):
        return InfiniteBlocks(store, size)
    if isinstance(store, Stream):
        return StreamBlocks(store, size)
    length = store.length()
    if not isinstance(length, int):
        raise DataError(f"{store} without length cannot be split into mini-batches again")
    return Blocks(store, size, range(-(-length // size)))


class _AnyBlocks(Store):
    """The base class of stores of mini-batches."""

    blocked = True
    _instead = "select the mini-batches one by one"

    def __init__(self, store: Any, size: int) -> None:
        self.store = store
        self.size = size
        self.unbounded = store.unbounded

    def num_samples(self) -> Length:
        return self.store.num_samples()

    @property
    def rank(self) -> int:
        """One more than the rank of the store."""
        return int(1 + self.store.rank)

    def fields(self) -> dict[str, Store]:
        fields = self.store.fields().items()
        return {name: type(self)(field, self.size) for name, field in fields}

    def __str__(self) -> str:
        return f"mini-batches of {self.size}"


class Blocks(_AnyBlocks):
    """Mini-batches of a store with a length; `order` lists their numbers."""

    def __init__(self, store: Store, size: int, order: range | Array) -> None:
        super().__init__(store, size)
        self.order = order

    def length(self) -> int:
        return len(self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (mini-batches, size, ...), even if the last mini-batch is shorter."""
        return (len(self.order), self.size, *self.store.shape[1:])

    @property
    def dtype(self) -> DType:
        return self.store.dtype

    @property
    def writable(self) -> bool:  # type: ignore[override]
        return bool(self.store.writable)

    def read(self, locked: bool) -> Any:
        samples = self._samples().read(locked)
        if isinstance(samples, list):
            self._cannot("are not an array")
        return samples.reshape(self.shape)

    def write(self, value: Any) -> None:
        samples = self._samples()
        shape = self.shape
        elements = np.broadcast_to(as_elements(value, self.dtype, shape), shape)
        samples.write(elements.reshape(shape[0] * self.size, *shape[2:]))

    def select(self, key: Any) -> Store:
        """Return one or several mini-batches; keys of several parts select as from `read()`."""
        parts = key if isinstance(key, tuple) else (key,)
        first, *rest = key_types(parts)
        if first == "int":
            block = self._block(parts[0])
            return block.select(parts[1:]) if rest else block
        if first in ("slice", "list") and "list" not in rest:
            blocks = Blocks(self.store, self.size, self._select_order(parts[0]))
            return blocks._grid().select((slice(None), *parts[1:])) if rest else blocks
        return self._grid().select(key)

    def iter_elements(self) -> Iterator[Store]:
        return map(self._block, range(len(self.order)))

    def fields(self) -> dict[str, Store]:
        """Return the mini-batches of the store's fields, in the order of these mini-batches."""
        fields = self.store.fields().items()
        return {name: Blocks(field, self.size, self.order) for name, field in fields}

    def is_same(self, other: Store) -> bool:
        if not isinstance(other, Blocks) or self.size != other.size:
            return False
        return self.store.is_same(other.store) and np.array_equal(self.order, other.order)

    def _block(self, key: Any) -> Store:
        (part,) = expand(key, (len(self.order),))
        number = int(self.order[normalize_index(part, len(self.order), "mini-batches", OutOfRange)])
        return self.store.select(slice(number * self.size, (number + 1) * self.size))

    def _select_order(self, part: Any) -> Any:
        return Selection((self.order,), (), (len(self.order),)).select(part).selectors[0]

    def _samples(self) -> Store:
        """Return the samples of all mini-batches; raise DataError if a mini-batch is shorter."""
        length = self.store.length()
        numbers = np.asarray(self.order, np.intp)
        short = numbers[(numbers + 1) * self.size > length]
        if short.size:
            raise DataError(
                f"mini-batch {short[0]} has fewer than {self.size} samples, so the mini-batches "
                "are not a single array; select them one by one, or omit the shorter one"
            )
        if isinstance(self.order, range) and self.order.step == 1:
            run = slice(self.order.start * self.size, self.order.stop * self.size)
            return self.store.select(run)
        positions = numbers[:, None] * self.size + np.arange(self.size)
        return self.store.select(positions.ravel())

    def _grid(self) -> Store:
        """Return the samples of all mini-batches, with a leading axis for the mini-batches."""
        count = len(self.order)
        return self._samples().select(np.arange(count * self.size).reshape(count, self.size))


class InfiniteBlocks(_AnyBlocks):
    """Mini-batches of an infinite store."""

    def length(self) -> float:
        """Return infinity."""
        return math.inf

    def select(self, key: Any) -> Store:
        if key_types(key) == ("slice",):
            numbers = self.store.slice_range(key)
            stop = numbers[-1] + 1 if numbers else 1
            return Blocks(self.store.select(slice(0, stop * self.size)), self.size, numbers)
        number = self.store.non_negative_index(key)
        return self.store.select(slice(number * self.size, (number + 1) * self.size))

    def iter_elements(self) -> Iterator[Store]:
        """Return an endless iterator over the mini-batches."""
        return map(self.select, itertools.count())


class StreamBlocks(_AnyBlocks):
    """Mini-batches of data that can only be iterated."""

    def length(self) -> None:
        """Return None: the length is unknown."""

    def select(self, key: Any) -> Store:
        """Raise OutOfRange: a stream does not support keys."""
        return self.store.select(key)

    def iter_elements(self) -> Iterator[Store]:
        """Yield the mini-batches; the last one may be shorter."""
        elements = self.store.iter_elements()
        while block := list(itertools.islice(elements, self.size)):
            yield ElementStack(BufferedElements(block), range(len(block)))
