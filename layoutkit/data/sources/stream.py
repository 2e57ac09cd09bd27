"""Streams: iterators, and functions that return one, whose records can only be read in order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import GeneratorType
from typing import Any, Never
from weakref import WeakSet

from ..._utils.errors import describe_error
from ..._utils.validation import describe_type, type_name
from ...errors import DataError
from ..errors import NoLength, check_has_records
from ..formats import FIELD_PAIRS
from ..io.reader import Reader
from ..records import Record
from .base import Index, Partition
from .items import split_item

# The generators that a stream has begun to read, of all streams: none can begin again.
_BEGUN: WeakSet[Any] = WeakSet()


class StreamIndex(Index):
    """The records of an iterator: each is read once, in order, and their number is unknown.

    A partition has one record of each round of `parts` records. A round that is not complete at
    the end is omitted, so that all partitions have equally many records.
    """

    gives_targets = True
    reads_in_order = True
    shuffle_size = 0  # records in the buffer from which records are drawn; 0: none, in order

    def __init__(self, source: Any, kind: str, partition: Partition) -> None:
        super().__init__(kind, None, (), None)
        self._source = source
        self._partition = partition
        self._is_begun = False

    def __len__(self) -> Never:
        raise NoLength(
            "the number of records of a stream is not known before it is read; count them in a "
            "loop, or give list(source), which keeps all of them in memory, as the source"
        )

    def __bool__(self) -> bool:
        return True  # not the length, which is unknown

    @property
    def selection(self) -> str:
        """The partition, and the size of the buffer in 16 digits."""
        shuffled = f", shuffle {self.shuffle_size:016x}" if self.shuffle_size else ""
        return f"{super().selection}{shuffled}"

    def record(self, number: int) -> Never:
        """Raise DataError: a stream cannot read one of its records."""
        raise DataError(
            f"a stream is read in order, so record {number} cannot be read alone; give "
            "list(source), which keeps all records in memory, as the source"
        )

    def with_options(self, shuffle_size: int, partition: Partition | None) -> StreamIndex:
        """Return the stream with a buffer and, if one is given, with another partition."""
        stream = copy.copy(self)
        stream.shuffle_size = shuffle_size
        stream._partition = partition or self._partition
        return stream

    def read(self) -> Iterator[Record]:
        """Yield the records of this partition from the beginning of the stream.

        Raises DataError if the stream has none, if a record cannot be read, or if it is an
        iterator that has been read before.
        """
        part, parts = self._partition
        records = self._number_items()
        is_empty = True
        while len(complete := [*islice(records, parts)]) == parts:
            is_empty = False
            yield complete[part]
        if is_empty:
            check_has_records(0, "the stream", self._describe_end(parts))

    def _number_items(self) -> Iterator[Record]:
        items = self._begin()
        number = 0
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            except Exception as error:
                raise DataError(
                    f"record {number} of the stream could not be read: {describe_error(error)}"
                ) from error
            yield Record(position=number, array=item)
            number += 1

    def _begin(self) -> Iterator[Any]:
        try:
            items = self._iterate()
        except DataError:
            raise
        except Exception as error:
            is_function = callable(self._source)
            fix = "; its function is called without arguments, for each epoch" * is_function
            raise DataError(
                f"the stream could not be begun: {describe_error(error)}{fix}"
            ) from error
        is_read = items is self._source and self._is_begun
        if is_read or (isinstance(items, GeneratorType) and items in _BEGUN):
            raise DataError(
                f"the source is {self._describe(items)}, which can be read once and has been; give "
                "a function that returns a new iterator for each epoch: "
                "sampled_batcher(lambda: read_records(path), ...)"
            )
        self._is_begun = True
        if isinstance(items, GeneratorType):
            _BEGUN.add(items)
        return items

    def _iterate(self) -> Iterator[Any]:
        """Return an iterator over the items; raise DataError if a function returned none."""
        if isinstance(self._source, Iterator):
            return self._source
        items = self._source() if callable(self._source) else self._source
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise DataError(
                f"the source is {self._describe(items)}; it must return an iterator over records, "
                "such as a generator"
            )
        return iter(items)

    def _describe(self, items: Any) -> str:
        """Return the text that names items, and the function that returned them."""
        origin = "" if items is self._source else "a function that returned "
        return f"{origin}{describe_type(items)}"

    def _describe_end(self, parts: int) -> str:
        """Return the text about an iterator that ended before each partition had a record."""
        if parts > 1:
            return "its iterator ended before the first one of each partition"
        if isinstance(self._source, Iterator):
            return "its iterator is at its end"
        return (
            "the iterator that its function returned is at its end; return a new one for each epoch"
        )

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads an item: its data, (data, target), or its fields."""
        return _split_record

    def __repr__(self) -> str:
        return f"<stream of {type_name(self._source)}>"


def _split_record(record: Record) -> Any:
    item = record.array
    if isinstance(item, Mapping) and not any({*item} <= {x, y} for x, y in FIELD_PAIRS):
        return item
    return split_item(item, {}, "yield one or two")


def is_stream(source: Any) -> bool:
    """Return True for an iterator, an iterable without length, or a function."""
    if isinstance(source, type) or hasattr(source, "__array__") or hasattr(source, "dtype"):
        return False
    if isinstance(source, Iterator):
        return True
    return not hasattr(source, "__len__") and (hasattr(source, "__iter__") or callable(source))
