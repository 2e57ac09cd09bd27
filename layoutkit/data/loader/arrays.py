"""`ArrayLoop`: loops over arrays that read each batch by one call with its record numbers.

Reading records one by one, as `RecordChunk` does, would take longer than copying the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ...memory import Array
from ...planning.batch.random import SourcePositions
from ..io.reader import Reader
from ..samplers import Sampler
from .batcher import B, BatchLoop, EpochPass, Position
from .chunk import RecordPipeline, RecordSource
from .collate import BatchStep
from .config import LoaderConfig
from .epochs import EpochLength
from .pending import PendingBatch
from .signature import RunSpec

_NO_ROWS = np.empty((1, 0), np.uint8)  # in place of the source, whose rows have equal specs


class NumberSource(RecordSource):
    """A source whose records are their own numbers, in the order of a sampler."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.in_parts = self.gives_targets = False
        self.direct, self.get = True, None

    @property
    def source_array(self) -> Array:
        """An array without elements, because records are read by their numbers only."""
        return _NO_ROWS

    def positions(self, numbers: Any) -> SourcePositions:
        """Return the numbers as positions in the whole source."""
        return SourcePositions(numbers)


@dataclass(frozen=True)
class ReadStep(BatchStep):
    """The step that makes a batch by one call of `read` with the numbers of all its records."""

    read: Callable[[Array], Any]

    @property
    def is_deferred(self) -> bool:
        """False: any thread can read."""
        return False

    def spec_key(self, x: Array) -> None:
        """Return None: all records have one spec."""

    def sample_spec(self, x: Array, common: Any) -> None:
        """Return None: all records have one spec."""

    def batch(self, samples: Sequence[Array], positions: SourcePositions, epoch: int) -> Any:
        return self.read(positions.numbers)

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Any:
        return self.read(rows)


def array_config(
    sampler: Sampler, read: Callable[[Array], Any], batch_size: int, prefetch: int = 0
) -> LoaderConfig:
    """Return the configuration of a loop over arrays; a thread reads `prefetch` batches ahead.

    `read` must not refer to the object that runs the loop: the reference cycle would keep the files
    of that object open.
    """
    sources = (NumberSource(sampler),)
    return LoaderConfig(
        sources=sources,
        pipeline=RecordPipeline(sources, None, None, None, False, ReadStep(read)),
        reader=Reader(),
        length=EpochLength(batch_size),
        prefetch=prefetch,
        num_workers=min(1, prefetch),
    )


class ReadBatch(NamedTuple):
    """The records that the caller's thread has read, with the fields of a PendingBatch."""

    start: int  # the position of the first record
    num_taken: int  # the number of records
    input: Any
    stats: dict[str, float]  # seconds by stage


class _ArrayPass(EpochPass):
    """The batches of an epoch; a PendingBatch or ReadBatch can contain several."""

    def __init__(self, loop: ArrayLoop[Any], epoch: int, position: Position) -> None:
        super().__init__(loop._config_of(epoch), loop._worker_pool(), epoch, position, {})
        self.run = loop._run
        self._split = loop._split
        self._ready: deque[tuple[Any, int]] = deque()
        step = self._config.pipeline.collate_step
        self._read = step.read if isinstance(step, ReadStep) and self._pool is None else None

    def next(self) -> tuple[Any, int] | None:
        """Return the next batch and its end position; None at the epoch's end."""
        if not self._ready:
            batches = self._wait_for_next() if self._read is None else self._read_next(self._read)
            self._ready.extend(batches)
        return self._ready.popleft() if self._ready else None

    def _wait_for_next(self) -> Sequence[tuple[Any, int]]:
        """Return the next batches, which the worker threads have read."""
        item: Any = super().next()  # its first part is the result of `_batch`
        return () if item is None else item[0]

    def _read_next(self, read: Callable[[Array], Any]) -> Sequence[tuple[Any, int]]:
        """Read the next batches in the caller's thread, without timeouts."""
        begin = perf_counter()
        (order,), start = self.orders, self._place
        numbers = order.numbers_in(start, order.cut(start))
        count = len(numbers)
        if not count:
            return ()
        self._place = start + count
        rows = read(numbers)
        stats = {"get": perf_counter() - begin, "process": 0.0, "collate": 0.0, "wait": 0.0}
        return self._split(ReadBatch(start, count, rows, stats))

    def _batch(self, pending: PendingBatch) -> Any:
        return self._split(pending)


class ArrayLoop(BatchLoop[B]):
    """A BatchLoop over arrays; a subclass makes the batches from the rows of a read.

    A pickle contains the position, but neither threads nor the loop in progress.
    """

    # Complete before the first batch: records have no specs to compare, and no targets.
    _run = RunSpec((), target=False)

    def __init__(self, epoch: int = 0) -> None:
        super().__init__(self._make_config(), epoch)

    @abstractmethod
    def _make_config(self) -> LoaderConfig:
        """Return the configuration of the loop; also called after unpickling."""

    @abstractmethod
    def _split(self, pending: Any) -> Sequence[tuple[Any, int]]:
        """Return batches, with their end positions, of a complete PendingBatch or a ReadBatch."""

    def _config_of(self, epoch: int) -> LoaderConfig:
        return self._config

    def _begin_pass(self, epoch: int, position: Position) -> EpochPass:
        return _ArrayPass(self, epoch, position)

    def __getstate__(self) -> dict[str, Any]:
        position = Position(self._position.place, dropped=self.dropped)
        own = {"_config": None, "_pool": None, "_stats": None, "_position": position}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._config = self._make_config()
