"""`mix`: several sources in one loop, in fixed shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from numbers import Integral
from typing import Any

import numpy as np

from ..._utils.random import make_key
from ..._utils.validation import as_fraction, check_choice, type_name
from ...buffers import empty
from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..io.reader import Reader
from ..io.responses import FileVersion
from ..records import Label, Record
from .base import Index, label_list

# What happens at the end of a source: the epoch ends, the source begins again, or the others go on.
ENDS = ("stop", "repeat", "drop")
# The sum of shares, at most. Products of a remainder and a share then fit 64 bits; larger sums are
# rounded, which is half a record in 2^32.
_MAX_SUM = 1 << 31
# The positions of the records of source k, which decide their random crops, begin at k << 40.
_PLACE_BITS = 40


class MixedIndex(Index):
    """The records of several sources, one source after the other, and their shares in an order."""

    def __init__(
        self, sources: Sequence[Index], shares: Sequence[int], on_end: str, labels: Sequence[Label]
    ) -> None:
        self.sources = tuple(sources)
        self.shares = tuple(shares)  # whole numbers in proportion to the weights
        self.on_end = on_end
        self.sizes = np.array([len(source) for source in sources])
        self.starts = np.cumsum(self.sizes) - self.sizes  # the numbers of their first records
        codes = [source.ranks(np.arange(len(source))) for source in sources]
        own = np.concatenate([c for c in codes if c is not None]) if labels else None
        super().__init__("mixture", None, labels, own)
        self.has_images = any(source.has_images for source in sources)
        self.has_image_lists = any(source.has_image_lists for source in sources)
        self.gives_targets = sources[0].gives_targets
        if all(source.target_classes == sources[0].target_classes for source in sources):
            self.target_classes = sources[0].target_classes
        self.skipped = sum(source.skipped for source in sources)
        self.in_memory = _have_equal_rows(sources)
        self._partition = max((source.partition for source in sources), key=lambda part: part.parts)

    @property
    def selection(self) -> str:
        """The partition, and a hash of the sources' selections and shares."""
        parts = [
            f"{source.selection}: {len(source)} x {share}"
            for source, share in zip(self.sources, self.shares, strict=True)
        ]
        return f"{self.partition}, mixture {make_key(self.on_end, *parts):016x}"

    def locate(self, numbers: Any) -> tuple[Any, Any]:
        """Return the source of each record, and its number there; also for one number."""
        source = np.searchsorted(self.starts, numbers, side="right") - 1
        return source, numbers - self.starts[source]

    def places(self, numbers: Array) -> Array:
        """Return positions that are different in all sources."""

        def find(number: int, own: Array) -> Array:
            return (number << _PLACE_BITS) + self.sources[number].places(own)

        return self._gather(numbers, find)

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def record(self, number: int) -> Record:
        """Return the record of a valid number, whose position is its number in the mixture."""
        source, own = self.locate(number)
        return self.sources[source].record(int(own))._replace(position=number)

    def records(self, numbers: Array) -> list[Record]:
        """Return these records, reading each source once."""
        records: list[Any] = [None] * len(numbers)
        for source, places, own in self._split(numbers):
            own_records = self.sources[source].records(own)
            positions = numbers[places].tolist()
            for place, position, record in zip(
                places.tolist(), positions, own_records, strict=True
            ):
                records[place] = record._replace(position=position)
        return records

    def rows(self, numbers: Array) -> Array:
        return self._gather(numbers, lambda source, own: self.sources[source].rows(own))

    def array_rows(self, numbers: Array) -> tuple[Array, Array]:
        return self.rows(numbers), np.arange(len(numbers))

    def targets(self, numbers: Array) -> Array | None:
        """Return the sources' targets of these records, other than labels; or None."""
        if self.sources[0].targets(np.arange(1)) is None:
            return None
        return self._gather(numbers, lambda number, own: self.sources[number].targets(own))

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a record as its source does."""
        getters = [source.getter(reader) for source in self.sources]

        def get(record: Record) -> Any:
            if record.array is not None:
                return record.array
            source, own = self.locate(record.position)
            return getters[source](self.sources[source].record(int(own)))

        return get

    def file_version(self, url: str) -> FileVersion | None:
        versions = (source.file_version(url) for source in self.sources)
        return next((version for version in versions if version is not None), None)

    def _gather(self, numbers: Array, read: Callable[[int, Array], Any]) -> Array:
        """Return `read(source, numbers in it)` of all sources, in the order of `numbers`."""
        rows: Any = None
        for source, places, own in self._split(numbers):
            part = read(source, own)
            if rows is None:
                rows = empty((len(numbers), *part.shape[1:]), part.dtype)
            rows[places] = part
        return rows

    def _split(self, numbers: Array) -> Iterator[tuple[int, Array, Array]]:
        """Yield a source, the places in `numbers` of its records, and their numbers in it."""
        sources, own = self.locate(numbers)
        for source in np.unique(sources).tolist() or [0]:
            places = np.flatnonzero(sources == source)
            yield source, places, own[places]

    def _select(self, numbers: Array, classes: Sequence[Label] | None = None) -> Index:
        raise DataError(
            "a mixture cannot be divided or numbered; select records, and number classes, of its "
            "sources: mix([(a[:1000], 0.7), (b, 0.3)])"
        )

    def __repr__(self) -> str:
        total = sum(self.shares)
        parts = ", ".join(
            f"{share / total:.3g} of {source!r}"
            for source, share in zip(self.sources, self.shares, strict=True)
        )
        return f"<mixture of {parts}>"


def _have_equal_rows(sources: Sequence[Index]) -> bool:
    """Return True if all records are rows of arrays in memory, of one shape and dtype."""
    if not all(source.in_memory for source in sources):
        return False
    first = np.zeros(1, np.int64)
    arrays = [source.array_rows(first)[0] for source in sources]
    return len({(array.shape[1:], array.dtype) for array in arrays}) == 1


def mix_indexes(pairs: Any, on_end: Any, open_source: Callable[[Any], Index]) -> MixedIndex:
    """Return the mixture of pairs (source, weight); raise DataError if they do not fit."""
    check_choice("on_end", on_end, ENDS)
    if isinstance(pairs, Mapping | str) or not isinstance(pairs, Iterable):
        raise DataError(f"sources is a {type_name(pairs)}; {_EXAMPLE}")
    sources, weights = [], []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"source {number} is no pair of a source and its weight; {_EXAMPLE}")
        sources.append(open_source(pair[0]))
        weights.append(_read_weight(pair[1], number))
    if not sources:
        raise DataError(f"there are no sources; {_EXAMPLE}")
    for number, source in enumerate(sources):
        _check_source(source, number)
    labels = sources[0].labels
    for number, source in enumerate(sources[1:], 1):
        _check_labels(sources[0], source, number)
    return MixedIndex(sources, _find_shares(weights), on_end, labels)


_EXAMPLE = "give a list of pairs: mix([(photos, 0.7), (drawings, 0.3)])"


def _read_weight(weight: Any, number: int) -> Fraction:
    exact = as_fraction(weight)
    if exact is None or exact <= 0:
        raise DataError(
            f"the weight of source {number} is {weight!r}; it must be a finite number above 0"
        )
    # 0.7 is 7/10, as it is written.
    return exact if isinstance(weight, Integral | Fraction) else Fraction(repr(float(weight)))


def _find_shares(weights: Sequence[Fraction]) -> list[int]:
    """Return whole numbers in proportion to the weights, rounded if their sum is too large."""
    scale = lcm(*(weight.denominator for weight in weights))
    shares = [int(weight * scale) for weight in weights]
    shares = [share // gcd(*shares) for share in shares]
    total = sum(shares)
    if total <= _MAX_SUM:
        return shares
    return [max(1, round(Fraction(share * _MAX_SUM, total))) for share in shares]


def _check_source(source: Index, number: int) -> None:
    if source.reads_in_order:
        raise DataError(
            f"source {number} is {source!r}, whose number of records is not known before they are "
            "read; mix sources with an index of their records"
        )
    if isinstance(source, MixedIndex):
        raise DataError(f"source {number} is a mixture; give one list of all its sources")
    check_has_records(len(source), f"source {number}", f"it is {source!r}; omit it")


def _check_labels(first: Index, other: Index, number: int) -> None:
    """Raise DataError unless both sources have equal classes, or targets of one shape and dtype."""
    if first.labels != other.labels:
        every = [*dict.fromkeys([*first.labels, *other.labels])]
        fix = (
            f"number both in one way: open_index(source, classes=[{label_list(every)}])"
            if first.labels and other.labels
            else "give labels to all sources or to none"
        )
        raise DataError(
            f"source 0 has the labels {label_list(first.labels)}, but source {number} has "
            f"{label_list(other.labels)}; {fix}"
        )
    targets = [_describe_targets(source) for source in (first, other)]
    if targets[0] != targets[1]:
        raise DataError(
            f"source 0 has {targets[0]}, but source {number} has {targets[1]}; give targets of one "
            "shape and dtype to all sources"
        )


def _describe_targets(source: Index) -> str:
    if source.gives_targets:
        return "items, which may be pairs (data, target)"
    target = source.targets(np.arange(1))
    return "no targets" if target is None else f"targets {target.dtype} {target.shape[1:]}"
