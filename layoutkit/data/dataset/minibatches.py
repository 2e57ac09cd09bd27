"""Mini-batches of a store: themselves a store, whose elements are runs of the other's.

Knows stores; fields and layouts are not known here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ...spec import DType
from .indexing import Selection, expand, kinds_of, place_of
from .stores import Length, Store, as_elements
from .stream import Held, Infinite, Run, Stream

__all__ = ["blocks_of"]


def blocks_of(store: Store, size: int) -> Store:
    """The mini-batches of `size` elements each; the last may be short."""
    if isinstance(store, Infinite):
        return InfiniteBlocks(store, size)
    if isinstance(store, Stream):
        return StreamBlocks(store, size)
    length = store.length()
    if not isinstance(length, int):
        raise DataError(f"{store} without length have no mini-batches of their own")
    return Blocks(store, size, range(-(-length // size)))


class _AnyBlocks(Store):
    """What all mini-batches have in common."""

    blocked = True
    _instead = "take the mini-batches one by one"

    def __init__(self, store: Any, size: int) -> None:
        self.store, self.size = store, size
        self.unbounded = store.unbounded

    def extent(self) -> Length:
        """That of the store, so that only fields of as many samples are cut alike."""
        return self.store.extent()  # type: ignore[no-any-return]

    @property
    def rank(self) -> int:
        """One more than the store's."""
        return int(1 + self.store.rank)

    def fields(self) -> dict[str, Store]:
        """The mini-batches of the store's fields."""
        fields = self.store.fields().items()
        return {name: type(self)(field, self.size) for name, field in fields}

    def __str__(self) -> str:
        return f"mini-batches of {self.size}"


class Blocks(_AnyBlocks):
    """Those of a store with a length; `order` says which of them."""

    def __init__(self, store: Store, size: int, order: range | Array) -> None:
        super().__init__(store, size)
        self.order = order

    def length(self) -> int:
        """The number of mini-batches."""
        return len(self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """(mini-batches, size, ...), also where the last of them is short."""
        return (len(self.order), self.size, *self.store.shape[1:])

    @property
    def dtype(self) -> DType:
        """The store's."""
        return self.store.dtype  # type: ignore[no-any-return]

    @property
    def writable(self) -> bool:  # type: ignore[override]
        """Whether the store is."""
        return bool(self.store.writable)

    def read(self, locked: bool) -> Any:
        """All mini-batches in one array."""
        found = self._samples().read(locked)
        if isinstance(found, list):
            self._cannot("are no array")
        return found.reshape(self.shape)

    def write(self, value: Any) -> None:
        """Write through to the store."""
        samples, shape = self._samples(), self.shape
        elements = np.broadcast_to(as_elements(value, self.dtype, shape), shape)
        samples.write(elements.reshape(shape[0] * self.size, *shape[2:]))

    def select(self, key: Any) -> Store:
        """A mini-batch, or some of them; with further keys what NumPy selects of `read()`."""
        parts = key if isinstance(key, tuple) else (key,)
        first, *others = kinds_of(parts)
        if first == "int":
            block = self._block(parts[0])
            return block.select(parts[1:]) if others else block
        if first in ("slice", "list") and "list" not in others:
            chosen = Blocks(self.store, self.size, self._ordered(parts[0]))
            return chosen._grid().select((slice(None), *parts[1:])) if others else chosen
        return self._grid().select(key)

    def steps(self) -> Iterator[Store]:
        """The mini-batches."""
        return map(self._block, range(len(self.order)))

    def fields(self) -> dict[str, Store]:
        """The mini-batches of the store's fields, in the same order."""
        fields = self.store.fields().items()
        return {name: Blocks(field, self.size, self.order) for name, field in fields}

    def same(self, other: Store) -> bool:
        """Whether they are the same mini-batches."""
        if not isinstance(other, Blocks) or self.size != other.size:
            return False
        return self.store.same(other.store) and np.array_equal(self.order, other.order)

    def _block(self, at: Any) -> Store:
        """The mini-batch at a place in the order."""
        (part,) = expand(at, (len(self.order),))
        number = int(self.order[place_of(part, len(self.order))])  # type: ignore[arg-type]
        return self.store.select(slice(number * self.size, (number + 1) * self.size))  # type: ignore[no-any-return]

    def _ordered(self, part: Any) -> Any:
        """The order of some of the mini-batches."""
        return Selection((self.order,), (), (len(self.order),)).select(part).selectors[0]

    def _samples(self) -> Store:
        """The samples of all mini-batches; DataError where one of them is short."""
        length = self.store.length()
        numbers = np.asarray(self.order, np.intp)
        short = numbers[(numbers + 1) * self.size > length]
        if short.size:
            raise DataError(
                f"mini-batch {short[0]} has less than {self.size} samples, so the mini-batches are "
                "no single array; take them one by one, or leave that one out"
            )
        if isinstance(self.order, range) and self.order.step == 1:
            run = slice(self.order.start * self.size, self.order.stop * self.size)
            return self.store.select(run)  # type: ignore[no-any-return]
        places = numbers[:, None] * self.size + np.arange(self.size)
        return self.store.select(places.ravel())  # type: ignore[no-any-return]

    def _grid(self) -> Store:
        """The samples of all mini-batches, with an axis for the mini-batches in front."""
        count = len(self.order)
        return self._samples().select(np.arange(count * self.size).reshape(count, self.size))


class InfiniteBlocks(_AnyBlocks):
    """Those of an infinite store."""

    def length(self) -> float:
        """No end."""
        return math.inf

    def select(self, key: Any) -> Store:
        """A mini-batch, or some of them."""
        if kinds_of(key) == ("slice",):
            numbers = self.store.run(key)
            stop = numbers[-1] + 1 if numbers else 1
            return Blocks(self.store.select(slice(0, stop * self.size)), self.size, numbers)
        number = self.store.counted(key)
        return self.store.select(slice(number * self.size, (number + 1) * self.size))  # type: ignore[no-any-return]

    def steps(self) -> Iterator[Store]:
        """The mini-batches, without end."""
        return map(self.select, itertools.count())


class StreamBlocks(_AnyBlocks):
    """Those of what can only be iterated."""

    def length(self) -> None:
        """Not known."""

    def select(self, key: Any) -> Store:
        """Refused."""
        return self.store.select(key)  # type: ignore[no-any-return]

    def steps(self) -> Iterator[Store]:
        """The mini-batches; the last may be short."""
        steps = self.store.steps()
        while chunk := list(itertools.islice(steps, self.size)):
            yield Run(Held(chunk), range(len(chunk)))
