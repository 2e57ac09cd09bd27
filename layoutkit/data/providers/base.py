"""`BaseProvider`: names and shapes, order, tails, partitions, loops and states of all providers.

A subclass passes its columns, which supply rows. Also: batches made ahead on threads
(`prefetch_map`), and the keywords of MXNet's iterators, accepted under their own names
(`translate_mxnet_kwargs`); unknown keywords are errors.
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

from ..._utils.random import make_key, permute_index
from ..._utils.validation import check_bool, check_choice, check_int
from ...errors import DataError
from ...memory import Array
from ...views import DataView
from ..errors import check_has_records, no_such_argument
from ..iteration import EpochIterator, Epochs
from ..sources.base import Partition
from . import protocol
from .protocol import Named

T = TypeVar("T")


def prefetch_map(
    make: Callable[[int], T], numbers: Iterable[int], prefetch: int, num_workers: int = 1
) -> Iterator[T]:
    """Yield make(number) for each number, in order; threads run up to `prefetch` calls ahead.

    With prefetch=0 the calls run in the caller's thread, on demand. An error is raised in place of
    its result. The threads end after the last number, or when the generator is closed.
    """
    if not prefetch:
        yield from map(make, numbers)
        return
    futures: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(num_workers, thread_name_prefix="layoutkit-ahead")
    try:
        for number in numbers:
            futures.append(pool.submit(make, number))
            if len(futures) > prefetch:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


_Self = TypeVar("_Self", bound="BaseProvider")
_TAILS = ("pad", "wrap", "drop")
_MAX_ROWS = 1 << 48  # addresses have no more bits
_UNPARTITIONED = Partition(0, 1)
_POSITIONS_AT_ONCE = 8192  # positions of an epoch whose samples are computed at once


class Column(Protocol):
    """A named array of a provider, which supplies rows."""

    @property
    def name(self) -> str:
        """The name in batches."""

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a batch with this number of rows."""

    def rows(self, positions: Array, count: int) -> Array:
        """Return a copy of the rows at these positions of the whole source, converted for a batch.

        Rows from `count` on are padding, and their positions are ignored.
        """

    def view(self, rows: Array) -> DataView:
        """Return the View of a batch of rows, without copying."""

    def close(self) -> None:
        """Close files."""


@dataclass(frozen=True)
class ProviderBatch:
    """A batch of a provider: `count` valid rows, then padding.

    `dropped` are (record, position, error) of records of this batch that could not be read.
    """

    count: int
    data: tuple[DataView, ...]
    label: tuple[DataView, ...]
    dropped: Sequence[Any] = ()

    @property
    def input(self) -> DataView:
        """The first View of the data."""
        return self.data[0]

    @property
    def target(self) -> DataView | Any:
        """The first View of the labels; None without labels."""
        return self.label[0] if self.label else None


class BaseProvider(Epochs[ProviderBatch]):
    """The base of providers: batches of `batch_size` consecutive samples of an epoch.

    `for batch in provider` is an epoch, and `state_dict()` is a position in it: see the guide on
    order and resuming. Every batch has its own memory. `close()`, or a `with` block, releases
    files and threads.
    """

    _partition: Partition | None = None
    _prefetch = 0
    _closed = False
    # The number of batches made in one pass; above 1 only if all columns begin with axis b. The
    # batches of a group share memory, so a reference to one keeps all of it alive.
    _group_size = 1
    # Epoch, first batch and positions of the batches ordered last.
    _cached_positions: tuple[int, int, Array] | None = None

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
        kept: Array | None = None,
    ) -> None:
        """Validate the options.

        `samples`: size of the source; `kept`: its samples with a label, None for all;
        batch_size=None: a batch of all.
        """
        super().__init__(0)
        self._data = tuple(data)
        self._label = tuple(label)
        self._partition = partition
        check_has_records(samples, type(self).__name__, "axis b of its arrays has size 0")
        self._kept = kept
        self._skipped = 0 if kept is None else samples - len(kept)
        self._samples = (partition or _UNPARTITIONED).count(samples - self._skipped)
        self._size = self._samples if batch_size is None else check_int("batch_size", batch_size, 1)
        if self._size > _MAX_ROWS:
            raise DataError(
                f"batch_size={self._size}; memory cannot hold more than {_MAX_ROWS} rows"
            )
        self._shuffle = check_bool("shuffle", shuffle)
        self._tail = check_choice("tail", tail, _TAILS)
        self._seed = check_int("seed", seed, None)
        self._prefetch = check_int("prefetch", prefetch)

    # -- names, shapes and counts ----------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """The number of rows of every batch."""
        return self._size

    @property
    def num_batches(self) -> int:
        """The number of batches of an epoch."""
        full, remainder = divmod(self._samples, self._size) if self._samples else (0, 0)
        return full + (remainder > 0 and self._tail != "drop")

    @property
    def unvisited(self) -> int:
        """The number of samples that an epoch omits."""
        return max(0, self._samples - self.num_batches * self._size)

    @property
    def dropped(self) -> int:
        """The number of samples dropped so far in this epoch because they could not be read."""
        return 0

    @property
    def skipped(self) -> int:
        """The number of samples of the source that are omitted, such as those without a label."""
        return self._skipped

    @property
    def provide_data(self) -> Named:
        """The (name, shape) of each data array of every batch."""
        return [(column.name, column.shape(self._size)) for column in self._data]

    @property
    def provide_label(self) -> Named:
        """The (name, shape) of each label array of every batch."""
        return [(column.name, column.shape(self._size)) for column in self._label]

    # -- contents of a batch ---------------------------------------------------------------

    def count_samples(self, batch: ProviderBatch) -> int:
        """Return the number of valid rows of the batch, which come first."""
        return batch.count

    def get_data(self, batch: ProviderBatch) -> list[DataView]:
        """Return the data as Views, in the order of `provide_data`."""
        return list(batch.data)

    def get_label(self, batch: ProviderBatch) -> list[DataView]:
        """Return the labels as Views, in the order of `provide_label`."""
        return list(batch.label)

    def get(self, batch: ProviderBatch, name: str) -> DataView:
        """Return the data or label View with this name; raise DataError for an unknown name."""
        names = [column.name for column in self._data + self._label]
        return protocol.find_view(names, batch.data + batch.label, name)

    def load_data(self, batch: ProviderBatch, targets: Sequence[Any]) -> None:
        """Copy the data into arrays: the k-th data array into `targets[k]`.

        A target is an array for the complete batch, or a list of (slice, array); each array
        receives the slice's rows along axis b, in the data's layout, including padding. Casts are
        "same_kind". Raises DataError, ShapeError and DtypeError before anything is written.
        """
        protocol.copy_to_targets(self.provide_data, batch.data, targets)

    def load_label(self, batch: ProviderBatch, targets: Sequence[Any]) -> None:
        """Copy the labels into arrays: the k-th label array into `targets[k]`, see `load_data`."""
        protocol.copy_to_targets(self.provide_label, batch.label, targets)

    # -- loops -----------------------------------------------------------------------------

    def reset(self) -> None:
        """Go back to the start of this epoch; this ends the current loop."""
        self.set_epoch(self._epoch)

    def close(self) -> None:
        """Release files and threads, and end all loops; later loops raise DataError."""
        self._closed = True
        self._seek(self._epoch, self._position)
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
        """Yield (batch, next position); groups of batches are aligned to the epoch's start."""
        group_size = self._group_size

        def make_group(start: int) -> list[ProviderBatch]:
            begin = max(start, position)
            return self._batches(epoch, begin, min(start + group_size, self.num_batches))

        starts = range(position // group_size * group_size, self.num_batches, group_size)
        number = position
        for batches in prefetch_map(make_group, starts, self._prefetch):
            for batch in batches:
                number += 1
                yield batch, number

    def _batches(self, epoch: int, start: int, stop: int) -> list[ProviderBatch]:
        """Return batches start .. stop-1 of an epoch, made in one pass."""
        positions = self._positions(epoch, start, stop)
        num_batches = stop - start
        counts = [min(self._size, self._samples - i * self._size) for i in range(start, stop)]
        num_filled = sum(counts) if self._tail == "pad" else len(positions)
        data, label = (
            [
                self._split_views(column, column.rows(positions, num_filled), num_batches)
                for column in columns
            ]
            for columns in (self._data, self._label)
        )
        return [
            ProviderBatch(count, tuple(d[i] for d in data), tuple(y[i] for y in label))
            for i, count in enumerate(counts)
        ]

    def _split_views(self, column: Column, rows: Array, num_batches: int) -> list[DataView]:
        """Return the Views of consecutive batches along the first axis of `rows`."""
        if num_batches == 1:
            return [column.view(rows)]
        size = self._size
        starts = range(0, num_batches * size, size)
        return [column.view(rows[start : start + size]) for start in starts]

    # -- order -----------------------------------------------------------------------------

    def _positions(self, epoch: int, start: int, stop: int) -> Array:
        """Return the position in the whole source of each row of batches start .. stop-1.

        The batches are part of one group. The order of many batches is computed at once and cached,
        which takes a tenth of the time per position.
        """
        size = self._size
        num_batches = self._batches_ordered_at_once()
        first = start // num_batches * num_batches
        cached = self._cached_positions
        if cached is None or cached[:2] != (epoch, first):
            last = min(first + num_batches, self.num_batches)
            cached = epoch, first, self._compute_positions(epoch, first * size, last * size)
            self._cached_positions = cached
        return cached[2][(start - first) * size : (stop - first) * size]

    def _compute_positions(self, epoch: int, start: int, stop: int) -> Array:
        """Return the positions in the whole source of positions of an epoch, wrapped at its end."""
        positions = np.arange(start, stop, dtype=np.uint64)
        if stop > self._samples:
            positions %= self._samples
        if self._shuffle:
            positions = self._permute(epoch, positions)
        result: Array = positions.view(np.int64)
        if self._partition not in (None, _UNPARTITIONED):
            result = self._partition.place(result)
        return result if self._kept is None else self._kept[result]

    def _batches_ordered_at_once(self) -> int:
        """Return the number of batches to order at once, a multiple of the group size."""
        return max(1, _POSITIONS_AT_ONCE // (self._size * self._group_size)) * self._group_size

    def _permute(self, epoch: int, positions: Array) -> Array:
        """Return the samples of this partition at these positions of an epoch."""
        return permute_index(self._key(epoch), positions, self._samples)  # type: ignore[no-any-return]

    def _key(self, epoch: int) -> int:
        """Return the hash key of the order.

        With one key for all partitions, adjacent samples of the source would have equal positions.
        """
        parts = () if self._partition in (None, _UNPARTITIONED) else (str(self._partition),)
        return make_key("provider", self._seed, epoch, *parts)

    # -- states ----------------------------------------------------------------------------

    def _identity(self) -> dict[str, int | str]:
        kind = "permutation" if self._shuffle else "linear"
        parts = {} if self._partition is None else {"partition": str(self._partition)}
        batching: dict[str, int | str] = {"batch_size": self._size, "tail": self._tail}
        return {"kind": kind, "seed": self._seed, **batching, **parts}

    def _records(self) -> int:
        return self._samples

    def _end(self, epoch: int) -> int:
        return self.num_batches

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached_positions": None}


_log = logging.getLogger("layoutkit.data")


class _Keyword(NamedTuple):
    target: str
    parse: Callable[[str, Any], Any]


def _parse_round_batch(name: str, value: Any) -> str:
    return "wrap" if check_bool(name, value) else "pad"


def _parse_silent(name: str, value: Any) -> bool:
    return not check_bool(name, value)


_MXNET_KEYWORDS = {
    "round_batch": _Keyword("tail", _parse_round_batch),
    "preprocess_threads": _Keyword("num_workers", check_int),
    "prefetch_buffer": _Keyword("prefetch", check_int),
    "verbose": _Keyword("verbose", check_bool),
    "silent": _Keyword("verbose", _parse_silent),
}
_MXNET_ONLY = ("verbose",)  # arguments that only MXNet keywords set


def translate_mxnet_kwargs(
    provider: type, mxnet_kwargs: Mapping[str, Any], **arguments: Any
) -> tuple[bool, dict[str, Any]]:
    """Return the `verbose` flag, and the arguments updated by MXNet keywords.

    `mxnet_kwargs` are the keywords that the constructor of `provider` does not name.

    Raises
    ------
    DataError, TypeError
        A keyword is unknown (the message suggests the most similar one) or contradicts an argument.
    """
    parameters = inspect.signature(provider).parameters
    own_names = [
        name for name, parameter in parameters.items() if parameter.kind != parameter.VAR_KEYWORD
    ]
    keywords = {
        name: keyword
        for name, keyword in _MXNET_KEYWORDS.items()
        if keyword.target in (*own_names, *_MXNET_ONLY)
    }
    merged = dict(arguments)
    origin: dict[str, str] = {}
    for name, value in mxnet_kwargs.items():
        if name not in keywords:
            raise no_such_argument(provider.__name__, name, [*own_names, *keywords])
        target, parse = keywords[name]
        parsed = parse(name, value)
        current = merged.get(target, parsed)
        is_default = target in parameters and current == parameters[target].default
        if current != parsed and not (is_default and target not in origin):
            other = origin.get(target, f"{target}={current!r}")
            raise DataError(f"{other} and {name}={value!r} contradict each other; give one")
        merged[target] = parsed
        origin[target] = f"{name}={value!r}"
    return bool(merged.pop("verbose", True)), merged


def as_partition(part_index: Any, num_parts: Any) -> Partition:
    """Return the partition of records part_index, part_index + num_parts, ..."""
    parts = check_int("num_parts", num_parts, 1)
    part = check_int("part_index", part_index)
    if part >= parts:
        raise DataError(f"part_index={part}; with num_parts={parts} the last part is {parts - 1}")
    return Partition(part, parts)


def check_array_names(data_name: Any, label_name: Any) -> None:
    """Raise DataError unless both arguments are different names; `label_name` may be None."""
    for arg_name, name in (("data_name", data_name), ("label_name", label_name)):
        if not isinstance(name, str) and (name is not None or arg_name == "data_name"):
            raise DataError(f"{arg_name}={name!r}; a name must be a str")
    if data_name == label_name:
        raise DataError(f"{data_name!r} is both data and label; give them different names")


def log_opened(verbose: bool, text: str, *numbers: Any) -> None:
    """Log a line about an opened source to the logger `layoutkit.data`."""
    if verbose:
        _log.info(text, *numbers)
