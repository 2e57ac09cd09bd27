"""`BatcherCache`: the cache of a Batcher, and the number of records that it keeps.

The number is decided before the first batch: records of the lowest ranks, which are kept in any
case, are read for their sizes. So every run, process and resumed loop keeps the same records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...memory import Array
from ..io.ram_cache import RamCache
from .chunk import RecordPipeline, RecordSource
from .kept_records import KeptRecords
from .pending import PendingBatch
from .worker_pool import WorkerPool, wait_or_run

_DEVIATIONS = 3  # standard errors added to the mean size, so that the kept records fit


@dataclass(frozen=True)
class BatcherCache:
    """The cache of a Batcher, and the records of each of its sources that it keeps."""

    cache: RamCache
    records: tuple[KeptRecords | None, ...]  # by source; None: its records are in memory already
    is_own: bool  # no other Batcher uses the cache, so it is closed with this one

    @property
    def hits(self) -> int:
        """The number of records that the latest loop read from the cache."""
        return sum(records.hits for records in self.records if records is not None)

    def begin_loop(self, pipeline: RecordPipeline, pool: WorkerPool | None, epoch: int) -> None:
        """Count hits from 0; before the first loop, decide the number of records to keep."""
        pairs = zip(pipeline.sources, self.records, strict=True)
        kept = {records: source for source, records in pairs if records is not None}
        for records in kept:
            records.hits = 0
        if self.cache.num_kept is not None:
            return
        for records, source in kept.items():
            _read_records(source, records.sampled_numbers(), pipeline, pool, epoch)
        samples = [records.take_sample() for records in kept]
        sizes = np.zeros(max(map(len, samples)), np.int64)
        for sample in samples:
            sizes[: len(sample)] += [value.num_bytes if value else 0 for value in sample]
        count = max(len(source) for source in kept.values())
        num_kept = self.cache.num_kept = estimate_num_kept(sizes, count, self.cache.free_bytes)
        for records, sample in zip(kept, samples, strict=True):
            records.keep_sample(sample[:num_kept])


def estimate_num_kept(sizes: Array, count: int, room: int) -> int:
    """Return how many of `count` records fit into `room` bytes.

    sizes : (n,) int64    of the first n records in bytes, 0 for records that could not be read
    """
    ends = np.cumsum(sizes)
    num_fit = int(np.searchsorted(ends, room, side="right"))
    known = sizes[sizes > 0]
    if num_fit < len(sizes) or len(sizes) == count or not len(known):
        return num_fit if len(known) else count
    size = known.mean() + _DEVIATIONS * known.std() / math.sqrt(len(known))
    return min(count, num_fit + int((room - ends[-1]) / size))


def _read_records(
    source: RecordSource,
    numbers: Sequence[int],
    pipeline: RecordPipeline,
    pool: WorkerPool | None,
    epoch: int,
) -> None:
    """Read records on the threads of the pool, as the records of a batch that refuses them all."""
    reading = replace(
        pipeline, sources=(source,), processor=_refuse, collate_step=None, strict=False
    )
    pending = PendingBatch(reading, 0, [np.array(numbers, np.int64)], None, epoch=epoch)
    if pool is not None:
        pool.submit(pending)
    wait_or_run(pending, pool)


def _refuse(value: Any, out: Any) -> None:
    return None
