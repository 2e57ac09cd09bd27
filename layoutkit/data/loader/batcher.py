"""`Batcher`: batches of the records of sources, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..._utils.spelling import CuresForAttributes
from ..._utils.validation import check_int
from ...errors import DataError
from ...memory import Array, in_native_order
from ..errors import NoLength
from ..sources import StreamIndex
from .batch import Batch, LoaderStats
from .chunk import Numbers
from .collate import FieldBatch
from .epoch_pass import EpochPass, Position
from .loop import BatchLoop
from .pending import PendingBatch
from .signature import RunSpec
from .worker_pool import wait_or_run


def find_input_layouts(batcher: Batcher) -> dict[Any, str | None]:
    """Return the layout of each array of an input, by field or number; None: it is not known."""
    inputs = batcher._config.factories.inputs
    named = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return {name: factory.result_layout for name, factory in named}


class Batcher(CuresForAttributes, BatchLoop[Batch]):
    """An iterable over batches, epoch by epoch; created by `sampled_batcher`.

    `for batch in batcher` is an epoch of `len(batcher)` batches, or fewer with `refill`.
    `state_dict()` is the position after the batch yielded last. Threads start with the first loop
    and end with `close()`, or the `with` block.
    """

    @property
    def num_batches(self) -> int | None:
        """The (with `refill`, largest) number of batches in an epoch; None until parts are open."""
        return self._config.length.num_batches(self._config.sources[0].order(self._epoch))

    def __len__(self) -> int:
        number = self.num_batches
        if number is None:
            is_stream = isinstance(self._config.sources[0].index, StreamIndex)
            raise NoLength(
                "a stream has no number of batches before it is read; give num_batches=, or count "
                "the batches of a loop"
                if is_stream
                else "the number of batches is not known until every part is opened"
            )
        return number

    def __repr__(self) -> str:
        name, size, number = type(self).__name__, self._config.length.batch_size, self.num_batches
        batches = "batches" if number is None else f"{number} batches"
        return f"<{name} of {batches} of {size}, epoch {self._epoch}>"

    def __bool__(self) -> bool:
        return True  # even if an epoch has no batches

    def stats(self) -> LoaderStats:
        """Return where the time of the latest loop went; `print` shows it as a table."""
        cache = self._config.cache
        if cache is None:
            return replace(self._stats)
        records, num_bytes, limit = cache.cache.use
        return replace(
            self._stats,
            cache_hits=cache.hits,
            cache_records=records,
            cache_bytes=num_bytes,
            cache_limit=limit,
        )

    def repeated(self, count: int | None = None) -> Iterator[Batch]:
        """Yield the first batch of the epoch again and again, `count` times or as in an epoch.

        A loop over it takes as long as one whose batches need no time. It ends the current loop.
        """
        epoch = self._epoch
        loop = iter(self)
        batch = next(loop)
        loop.close()
        self.set_epoch(epoch)
        for _ in range(len(self) if count is None else check_int("count", count)):
            yield batch

    def __reduce__(self) -> Any:
        raise DataError(
            "a Batcher has threads and connections, which cannot be copied or sent to another "
            "process; call sampled_batcher in each process, with shard='auto'"
        )

    def close(self) -> None:
        """End the threads, wait for them, and end all loops for good; free a cache of its own.

        A call that does not return cannot be stopped: `close` waits a few seconds for its thread,
        which ends when the call returns.
        """
        super().close()
        cache = self._config.cache
        if cache is not None and cache.is_own:
            cache.cache.close()

    def _begin_pass(self, epoch: int, position: Position) -> EpochPass:
        cache = self._config.cache
        if cache is not None:
            cache.begin_loop(self._read_sample)
        return super()._begin_pass(epoch, position)

    def _read_sample(self, source: int, numbers: list[int]) -> None:
        """Read records on the threads, as the records of a batch that refuses all of them."""
        pipeline = replace(
            self._config.pipeline,
            sources=(self._config.sources[source],),
            processor=_refuse,
            collate_step=None,
            row_decoder=None,
            strict=False,
        )
        pending = PendingBatch(pipeline, 0, [np.array(numbers, np.int64)], None)
        pool = self._worker_pool()
        if pool is not None:
            pool.submit(pending)
        wait_or_run(pending, pool)

    # -- from a pending batch to a batch ---------------------------------------------------

    def _split(self, pending: PendingBatch) -> list[tuple[Batch, int]]:
        source = self._config.sources[0]
        rows = pending.kept_indices()
        numbers = pending.records_at(rows)
        arrays = pending.input() if callable(pending.input) else pending.input
        batch = Batch(
            self._make_input(arrays),
            self._make_target(pending.target, numbers),
            pending.start + rows,
            lambda: source.records(numbers),
            pending.dropped(),
            pending.stats,
            arrays.placements if isinstance(arrays, FieldBatch) else None,
        )
        return [(batch, self._config.length.end_of(pending.start, pending.num_taken))]

    def _make_input(self, arrays: Any) -> Any:
        """Return the Views of a batch's arrays, or arrays of the framework; None for None."""
        make = self._config.factories.inputs
        if isinstance(arrays, FieldBatch):
            return {name: make[name](array) for name, array in arrays.arrays.items()}
        if type(arrays) is tuple:  # of several Collators; Padded and Packed are named tuples
            return tuple([make(array) for make, array in zip(make, arrays, strict=True)])
        return None if arrays is None else make[0](arrays)

    def _make_target(self, targets: Array | None, numbers: Numbers) -> Any:
        """Return the processor's targets, else the source's, else the ranks of labels."""
        index: Any = self._config.sources[0].index
        factories = self._config.factories
        if targets is None:
            targets = index.targets(numbers)
        if targets is not None:
            return factories.target(in_native_order(targets))
        ranks = index.ranks(numbers)
        return None if ranks is None else factories.labels(ranks)

    # -- states ----------------------------------------------------------------------------

    def _identity(self) -> dict[str, int | str]:
        return self._config.identity

    def _free(self, place: int) -> tuple[str, ...]:
        free = super()._free(place)
        return (*free, "batch_size") if self._config.allows_other_batch_size else free

    def _end(self, epoch: int) -> int | None:
        return self._config.length.last_position(self._config.sources[0].order(epoch))

    def _is_complete(self) -> bool:
        order = self._config.sources[0].order(self._epoch)
        position = self._position
        return self._config.length.is_complete(order, position.place, position.batches)

    _extra_keys = ("spec", "options")

    def _resume_info(self, position: Position) -> dict[str, int | str]:
        position = position.at_start()
        # The state is equal on all shards, but each of them drops other records.
        dropped = position.dropped if self._config.length.shard is None else 0
        counted = {"batch": position.batches, "dropped": dropped}
        spec = {"spec": position.run.to_text()} if position.run.target is not None else {}
        return {**counted, **self._part_position(position), **spec, **self._config.pixels.state}

    def _part_position(self, position: Position) -> dict[str, int]:
        """Return the values that locate a position in part files without opening earlier files."""
        if not self._config.sources[0].in_parts:
            return {}
        if position.order is None:
            return {"part": 0, "part_start": 0}
        return position.order.marks(position.place)

    def _take(self, epoch: int, place: int, state: Mapping[str, Any]) -> Position:
        self._config.pixels.check_state(state)
        source = self._config.sources[0]
        order = source.order(epoch, state) if source.in_parts else None  # raises for invalid marks
        run = RunSpec.from_text(state["spec"]) if "spec" in state else RunSpec()
        return Position(place, state["batch"], state["dropped"], order, run)


def _refuse(value: Any, out: Any) -> None:
    """Refuse a record, which is read for the cache only."""
