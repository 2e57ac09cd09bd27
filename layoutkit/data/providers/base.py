"""What all providers do alike: names and shapes, order, tails and parts, loops and states.

Knows columns by what they promise here; where their rows come from only the columns know.

What comes next, made by threads before somebody asks.

Knows functions of a number; what they make is not known here.

What providers of files are asked for in one way: parts, names, and the keywords of MXNet.

Its iterators' keywords are taken as they are, where they have a meaning here; what nobody has is an
error. Knows names and values; what they do is not known here.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..._utils.validation import as_count, as_flag, as_word
from ...errors import DataError
from ...memory import Array
from ...views import DataView
from ..errors import no_such_argument
from ..iteration import EpochIterator, Epochs
from ..random import key_of, shuffled
from ..sources.base import Partition
from . import protocol
from .protocol import Named

T = TypeVar("T")


def prefetch_map(
    make: Callable[[int], T], numbers: Iterable[int], prefetch: int, num_workers: int = 1
) -> Iterator[T]:
    """make(number) for each number, in their order, of which `prefetch` are made beforehand.

    Without `prefetch` the caller makes each one when it asks. An error comes where its result
    would have come. Threads end with the last number, or when the generator is closed.
    """
    if not prefetch:
        yield from map(make, numbers)
        return
    made: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(num_workers, thread_name_prefix="layoutkit-ahead")
    try:
        for number in numbers:
            made.append(pool.submit(make, number))
            if len(made) > prefetch:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


_Self = TypeVar("_Self", bound="BaseProvider")
_TAILS = ("pad", "wrap", "drop")
_MOST_ROWS = 1 << 48  # of whatever; addresses have no more bits
_WHOLE = Partition(0, 1)
_PLACES = 8192  # whose order is computed at once


class Column(Protocol):
    """One name of a provider, and the rows that it has."""

    @property
    def name(self) -> str:
        """What it is called in batches."""

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of a batch of so many rows."""

    def rows(self, positions: Array, count: int) -> Array:
        """Rows at positions of the whole source, as batches have them, in memory of their own.

        Those from `count` on are filled, and their positions not looked at.
        """

    def view(self, rows: Array) -> DataView:
        """The View of a batch of rows, which is not copied."""

    def close(self) -> None:
        """Let go of files."""


@dataclass(frozen=True)
class ProviderBatch:
    """A batch of a provider: `count` real rows, then padding.

    `dropped` are (record, place, error) of records that were to be in it and could not be read.
    """

    count: int
    data: tuple[DataView, ...]
    label: tuple[DataView, ...]
    dropped: Sequence[Any] = ()

    @property
    def input(self) -> DataView:
        """The first data."""
        return self.data[0]

    @property
    def target(self) -> DataView | None:
        """The first label, None where there are no labels."""
        return self.label[0] if self.label else None


class BaseProvider(Epochs[ProviderBatch]):
    """Batches of `batch_size` rows of some columns, each an epoch's next samples.

    `for batch in provider` is an epoch, and `state_dict()` is a place in it: see the guide on
    order and resuming. Every batch has memory of its own. `close()`, or a `with` block, lets go of
    files and threads.
    """

    # As pickles of earlier versions have it, which are of arrays.
    _partition: Partition | None = None
    _prefetch = 0
    _closed = False
    # Batches that are made in one pass, more than 1 only where all columns begin with axis b. Who
    # holds one of them holds the memory of all.
    _together = 1
    _kept: tuple[int, int, Array] | None = None

    def __init__(
        self,
        data: Sequence[Column],
        label: Sequence[Column],
        samples: int,
        *,
        batch_size: Any,
        shuffle: Any,
        seed: Any,
        tail: Any,
        partition: Partition | None = None,
        prefetch: Any = 0,
    ) -> None:
        """`samples` are those of the whole source; batch_size=None is all that are here."""
        super().__init__(0)
        self._data, self._label = tuple(data), tuple(label)
        self._partition = partition
        self._samples = (partition or _WHOLE).count(samples)
        all_here = batch_size is None
        self._size = self._samples if all_here else as_count("batch_size", batch_size, 1)
        if self._size > _MOST_ROWS:
            raise DataError(f"batch_size={self._size}; no memory holds more than {_MOST_ROWS} rows")
        self._shuffle, self._tail = as_flag("shuffle", shuffle), as_word("tail", tail, _TAILS)
        self._seed = as_count("seed", seed, None)
        self._prefetch = as_count("prefetch", prefetch)

    # -- what it provides ------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """The rows of every batch."""
        return self._size

    @property
    def num_batches(self) -> int:
        """The batches of an epoch."""
        whole, rest = divmod(self._samples, self._size) if self._samples else (0, 0)
        return whole + (rest > 0 and self._tail != "drop")

    @property
    def unvisited(self) -> int:
        """The samples that an epoch leaves out."""
        return max(0, self._samples - self.num_batches * self._size)

    @property
    def dropped(self) -> int:
        """Samples left out so far in this epoch because they could not be read."""
        return 0

    @property
    def provide_data(self) -> Named:
        """(name, shape) of the data of every batch."""
        return [(column.name, column.shape(self._size)) for column in self._data]

    @property
    def provide_label(self) -> Named:
        """(name, shape) of the labels of every batch."""
        return [(column.name, column.shape(self._size)) for column in self._label]

    # -- what is in a batch ----------------------------------------------------------------

    def count_samples(self, batch: ProviderBatch) -> int:
        """How many rows of the batch are real; they are the first ones."""
        return batch.count

    def get_data(self, batch: ProviderBatch) -> list[DataView]:
        """The data as Views, in the order of `provide_data`."""
        return list(batch.data)

    def get_label(self, batch: ProviderBatch) -> list[DataView]:
        """The labels as Views, in the order of `provide_label`."""
        return list(batch.label)

    def get(self, batch: ProviderBatch, name: str) -> DataView:
        """The View of a name, of the data or of the labels; DataError where there is none."""
        names = [column.name for column in self._data + self._label]
        return protocol.get_named(names, batch.data + batch.label, name)

    def load_data(self, batch: ProviderBatch, targets: Sequence[Any]) -> None:
        """Copy the data into arrays: `targets[k]` takes the k-th data.

        It is an array for the whole batch, or a list of (slice, array), each of which takes the
        slice's rows along axis b, in the data's layout, padding included. Casts are "same_kind".
        Raises DataError, ShapeError and DtypeError before anything is written.
        """
        protocol.load(self.provide_data, batch.data, targets)

    def load_label(self, batch: ProviderBatch, targets: Sequence[Any]) -> None:
        """Copy the labels into arrays, as `load_data` does the data."""
        protocol.load(self.provide_label, batch.label, targets)

    # -- loops -----------------------------------------------------------------------------

    def reset(self) -> None:
        """Go back to the start of this epoch; the loop under way is over."""
        self.set_epoch(self._epoch)

    def close(self) -> None:
        """Let go of files and threads; loops are over for good."""
        self._closed = True
        self._go(self._epoch, self._position)
        for column in self._data + self._label:
            column.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> EpochIterator[ProviderBatch]:
        if self._closed:
            raise DataError(f"this {type(self).__name__} is closed; make a new one")
        return super().__iter__()

    def _steps(self, epoch: int, position: int) -> Iterator[tuple[ProviderBatch, int]]:
        """In groups that begin where the epoch does, and what is asked for of the first one."""
        together = self._together

        def made(start: int) -> list[ProviderBatch]:
            begin = max(start, position)
            return self._batches(epoch, begin, min(start + together, self.num_batches))

        starts = range(position // together * together, self.num_batches, together)
        number = position
        for batches in prefetch_map(made, starts, self._prefetch):
            for batch in batches:
                number += 1
                yield batch, number

    def _batches(self, epoch: int, start: int, stop: int) -> list[ProviderBatch]:
        """Batches start .. stop-1 of an epoch, made in one pass."""
        positions = self._positions(epoch, start, stop)
        number = stop - start
        counts = [min(self._size, self._samples - at * self._size) for at in range(start, stop)]
        filled = sum(counts) if self._tail == "pad" else len(positions)
        data, label = (
            [self._cut(column, column.rows(positions, filled), number) for column in columns]
            for columns in (self._data, self._label)
        )
        return [
            ProviderBatch(count, tuple(d[at] for d in data), tuple(y[at] for y in label))
            for at, count in enumerate(counts)
        ]

    def _cut(self, column: Column, rows: Array, number: int) -> list[DataView]:
        """The Views of batches that lie one after the other, along the first axis."""
        if number == 1:
            return [column.view(rows)]
        size = self._size
        return [column.view(rows[at : at + size]) for at in range(0, number * size, size)]

    # -- order -----------------------------------------------------------------------------

    def _positions(self, epoch: int, start: int, stop: int) -> Array:
        """The place in the whole source of each row of batches start .. stop-1, which are one
        group. Computed for many batches at once, as a place then takes a tenth of the time."""
        size, many = self._size, self._batches_ordered_at_once()
        first = start // many * many
        if self._kept is None or self._kept[:2] != (epoch, first):
            last = min(first + many, self.num_batches)
            self._kept = epoch, first, self._ordered(epoch, first * size, last * size)
        return self._kept[2][(start - first) * size : (stop - first) * size]

    def _ordered(self, epoch: int, start: int, stop: int) -> Array:
        """Which samples of the whole source stand in places of an epoch, wrapped at its end."""
        places = np.arange(start, stop, dtype=np.uint64)
        if stop > self._samples:
            places %= self._samples
        if self._shuffle:
            places = self._shuffled(epoch, places)
        found: Array = places.view(np.int64)
        return found if self._partition in (None, _WHOLE) else self._partition.place(found)

    def _batches_ordered_at_once(self) -> int:
        """A multiple of the batches in a group."""
        return max(1, _PLACES // (self._size * self._together)) * self._together

    def _shuffled(self, epoch: int, places: Array) -> Array:
        """Which of the samples here stand in these places."""
        return shuffled(self._key(epoch), places, self._samples)  # type: ignore[no-any-return]

    def _key(self, epoch: int) -> int:
        """Of the epoch's order; parts differ, or neighbours of the source would stay together."""
        parts = () if self._partition in (None, _WHOLE) else (str(self._partition),)
        return key_of("provider", self._seed, epoch, *parts)

    # -- states ----------------------------------------------------------------------------

    def _identity(self) -> dict[str, int | str]:
        kind = "permutation" if self._shuffle else "linear"
        parts = {} if self._partition is None else {"partition": str(self._partition)}
        cut: dict[str, int | str] = {"batch_size": self._size, "tail": self._tail}
        return {"kind": kind, "seed": self._seed, **cut, **parts}

    def _records(self) -> int:
        return self._samples

    def _end(self, epoch: int) -> int:
        return self.num_batches

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": None}


_log = logging.getLogger("layoutkit.data")


class _Word(NamedTuple):
    ours: str
    meant: Callable[[str, Any], Any]


def _tail(name: str, value: Any) -> str:
    return "wrap" if as_flag(name, value) else "pad"


def _not(name: str, value: Any) -> bool:
    return not as_flag(name, value)


_WORDS = {
    "round_batch": _Word("tail", _tail),
    "preprocess_threads": _Word("num_workers", as_count),
    "prefetch_buffer": _Word("prefetch", as_count),
    "verbose": _Word("verbose", as_flag),
    "silent": _Word("verbose", _not),
}
_ALWAYS = ("verbose",)  # said in these words only, as what it does is a line in a log


def translate_mxnet_kwargs(
    provider: type, others: Mapping[str, Any], **given: Any
) -> tuple[bool, dict[str, Any]]:
    """Whether to log what was opened, and the arguments `given` as `others` change them.

    `others` are the keywords that the constructor of `provider` does not name.

    Raises
    ------
    DataError, TypeError
        An unknown keyword, with the nearest one there is; one that contradicts what is given.
    """
    parameters = inspect.signature(provider).parameters
    own = [name for name, each in parameters.items() if each.kind != each.VAR_KEYWORD]
    words = {name: word for name, word in _WORDS.items() if word.ours in (*own, *_ALWAYS)}
    said = dict(given)
    whose: dict[str, str] = {}
    for name, value in others.items():
        if name not in words:
            raise no_such_argument(provider.__name__, name, [*own, *words])
        ours, meant = words[name]
        found = meant(name, value)
        before = said.get(ours, found)
        untouched = ours in parameters and before == parameters[ours].default
        if before != found and not (untouched and ours not in whose):
            other = whose.get(ours, f"{ours}={before!r}")
            raise DataError(f"{other} and {name}={value!r} contradict each other; give one")
        said[ours], whose[ours] = found, f"{name}={value!r}"
    return bool(said.pop("verbose", True)), said


def as_partition(part_index: Any, num_parts: Any) -> Partition:
    """Records part_index, part_index + num_parts, ...; DataError where there is no such part."""
    parts = as_count("num_parts", num_parts, 1)
    part = as_count("part_index", part_index)
    if part >= parts:
        raise DataError(f"part_index={part}; of num_parts={parts} the last one is {parts - 1}")
    return Partition(part, parts)


def check_names(data_name: Any, label_name: Any) -> None:
    """DataError unless both are names (that of the label may be None), and not the same."""
    for what, name in (("data_name", data_name), ("label_name", label_name)):
        if not isinstance(name, str) and (name is not None or what == "data_name"):
            raise DataError(f"{what}={name!r}; a name is a str")
    if data_name == label_name:
        raise DataError(f"{data_name!r} is both data and label; give them different names")


def log_opened(verbose: bool, text: str, *numbers: Any) -> None:
    """A line about what was opened, for those who listen to `layoutkit.data`."""
    if verbose:
        _log.info(text, *numbers)
