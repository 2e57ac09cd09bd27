"""`BaseProvider`: a loop over batches of a fixed number of rows, whose arrays have names.

A subclass passes its columns, which supply rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..._utils.random import make_key, permutation_array, permute_index
from ..._utils.validation import check_bool, check_choice, check_int
from ...buffers import empty
from ...errors import DataError
from ...memory import Array
from ...views import DataView
from ..errors import check_has_records
from ..loader.arrays import ArrayLoop, array_config
from ..loader.config import LoaderConfig
from ..loader.epoch_pass import Position
from ..samplers import Sampler
from ..samplers.orders import MAX_LOOKAHEAD, Order, SamplingPlan, ceil_div
from ..samplers.sampling import Kind
from ..sources.base import Partition
from . import protocol
from .protocol import Named

_TAILS = ("pad", "wrap", "drop")
_MAX_ROWS = 1 << 48  # addresses have no more bits
_UNPARTITIONED = Partition(0, 1)


class Column(Protocol):
    """A named array of a provider, which supplies rows."""

    @property
    def name(self) -> str:
        """The name in batches."""

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a batch with this number of rows."""

    def rows(self, numbers: Array, total: int) -> Array:
        """Return the rows with these numbers, converted for a batch, and padding up to `total`."""

    @property
    def view(self) -> Callable[[Array], DataView]:
        """The function that makes the View of a batch of rows, without copying."""

    def close(self) -> None:
        """Close files."""


@dataclass(frozen=True)
class ProviderBatch:
    """A batch of a provider: `count` valid rows, then padding.

    `dropped` are (record, position, error) of records of this batch that could not be read;
    `stats` are the seconds of its stages, as of a Batch.
    """

    count: int
    data: tuple[DataView, ...]
    label: tuple[DataView, ...]
    dropped: Sequence[Any] = ()
    stats: Mapping[str, float] = field(default_factory=dict)

    @property
    def input(self) -> DataView:
        """The first View of the data."""
        return self.data[0]

    @property
    def target(self) -> DataView | Any:
        """The first View of the labels; None without labels."""
        return self.label[0] if self.label else None


# ---- Order -------------------------------------------------------------------------------------


class Cut(NamedTuple):
    """The way a ProviderOrder cuts a source: its part, and the tail of batches of `size` rows."""

    size: int
    tail: str
    partition: Partition


class ProviderOrder(Order):
    """The samples of a part of the source, and with tail="wrap" the first ones again at the end."""

    first_lookahead = MAX_LOOKAHEAD  # most loops go through the whole epoch

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._cut: Cut = plan.material
        if self._cut.partition != _UNPARTITIONED:
            # With one key for all parts, adjacent samples of the source would have equal positions.
            self.key = make_key(plan.base, plan.seed, epoch, plan.partition)

    @property
    def size(self) -> int:
        count, size = self.plan.count, self._cut.size
        if self._cut.tail == "pad":
            return count
        return (ceil_div(count, size) if self._cut.tail == "wrap" else count // size) * size

    @property
    def num_batches(self) -> int:
        """The number of batches; the plan's batches may be groups of them."""
        return ceil_div(self.size, self._cut.size)

    def _numbers(self, positions: Array) -> Array:
        if self._cut.tail == "wrap":
            positions = positions % np.uint64(self.plan.count)
        if self.plan.kind == "permutation":
            positions = self._permute(positions)
        if self._cut.partition == _UNPARTITIONED:
            return positions
        return self._cut.partition.place(positions)

    def _permute(self, positions: Array) -> Array:
        """Return the samples of this part at these positions of an epoch."""
        return permute_index(self.key, positions, self.plan.count)


class TableOrder(ProviderOrder):
    """A ProviderOrder with the permutation of a whole epoch in a table, 8 bytes per sample."""

    def _permute(self, positions: Array) -> Array:
        return self._table[positions]

    @cached_property
    def _table(self) -> Array:
        return permutation_array(self.key, self.plan.count)


# ---- Batches -----------------------------------------------------------------------------------


def _read_columns(columns: Sequence[Column], size: int, numbers: Array) -> list[Array]:
    """Return the rows of all columns with these numbers, padded to batches of `size` rows."""
    total = ceil_div(len(numbers), size) * size
    return [column.rows(numbers, total) for column in columns]


def pad_rows(rows: Array, axis: int, total: int, filling: Any) -> Array:
    """Return rows along an axis followed by padding; the rows themselves if there is none."""
    count = rows.shape[axis]
    if count == total:
        return rows
    padded = empty((*rows.shape[:axis], total, *rows.shape[axis + 1 :]), rows.dtype)
    before = (slice(None),) * axis
    padded[(*before, slice(count))] = rows
    padded[(*before, slice(count, None))] = filling
    return padded


class BaseProvider(ArrayLoop[ProviderBatch]):
    """The base of providers: batches of `batch_size` consecutive samples of an epoch.

    `for batch in provider` is an epoch, and `state_dict()` is a position in it: see the guide on
    order and resuming. Every batch has its own memory. `close()`, or a `with` block, releases
    files and threads.
    """

    _yields_empty = False
    _order: type[ProviderOrder] = ProviderOrder
    _partition: Partition | None = None

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
        self._data = tuple(data)
        self._label = tuple(label)
        self._columns = (*self._data, *self._label)
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
        super().__init__()

    # -- names, shapes and counts ----------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """The number of rows of every batch."""
        return self._size

    @property
    def num_batches(self) -> int:
        """The number of batches of an epoch."""
        return self._epoch_order.num_batches

    @property
    def unvisited(self) -> int:
        """The number of samples that an epoch omits."""
        return max(0, self._samples - self._epoch_order.size)

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
        names = [column.name for column in self._columns]
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

    def close(self) -> None:
        """Release files and threads, and end all loops; later loops raise DataError."""
        super().close()
        for column in self._columns:
            column.close()

    def _make_sampler(self) -> Sampler:
        partition = self._partition or _UNPARTITIONED
        plan = SamplingPlan(
            kind="permutation" if self._shuffle else "linear",
            base="provider",
            seed=self._seed,
            count=self._samples,
            batch_size=self._size * self._group_size(),
            members=self._kept,
            material=Cut(self._size, self._tail, partition),
            partition=str(partition),
        )
        return Sampler(Kind("provider", self._order), plan, 0)

    def _group_size(self) -> int:
        """Return the number of batches made in one pass, which share memory.

        A reference to one keeps all of it alive. Above 1, all columns must begin with axis b.
        """
        return 1

    def _make_config(self) -> LoaderConfig:
        read = partial(_read_columns, self._columns, self._size)
        return array_config(self._make_sampler(), read, self._size, self._prefetch)

    @property
    def _epoch_order(self) -> ProviderOrder:
        order: Any = self._config.sources[0].order(self._epoch)
        return order

    def _split(self, pending: Any) -> list[tuple[ProviderBatch, int]]:
        size, num_data = self._size, len(self._data)
        end = pending.start + pending.num_taken
        batches = []
        for start in range(pending.start, end, size):
            views = []
            for column, rows in zip(self._columns, pending.input, strict=True):
                first = start - pending.start
                is_group = pending.num_taken > size
                views.append(column.view(rows[first : first + size] if is_group else rows))
            data, label = tuple(views[:num_data]), tuple(views[num_data:])
            count = min(size, self._samples - start)
            batch = ProviderBatch(count, data, label, stats=pending.stats)
            batches.append((batch, min(start + size, end)))
        return batches

    # -- states ----------------------------------------------------------------------------

    def _identity(self) -> dict[str, int | str]:
        kind = "permutation" if self._shuffle else "linear"
        parts = {} if self._partition is None else {"partition": str(self._partition)}
        batching: dict[str, int | str] = {"batch_size": self._size, "tail": self._tail}
        return {"kind": kind, "seed": self._seed, **batching, **parts}

    def _end(self, epoch: int) -> int:
        return self.num_batches

    def _resume_info(self, position: Position) -> dict[str, int | str]:
        # States count batches, positions of the loop count samples.
        return {"position": ceil_div(position.place, self._size)}

    def _take(self, epoch: int, place: int, state: Mapping[str, Any]) -> Position:
        start = min(place * self._size, self._epoch_order.size)
        return Position(start, dropped=state.get("dropped", 0))
