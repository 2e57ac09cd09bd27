"""The records of each step that belong to one of several processes that share an order.

The order covers all records, whatever the number of processes. A step consumes `batch_size` records
per process from the end of the previous step on, the first ones for rank 0. A state therefore
stores only a position in the order, and any number of processes can resume from it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._utils.validation import check_int, show
from ...errors import DataError
from ..samplers import Sampler
from ..sources import Index


class Shard(NamedTuple):
    """The rank of this process among `world` processes, counted from 0."""

    rank: int
    world: int

    def own_range(self, position: int, total: int, size: int, full: bool) -> tuple[int, int]:
        """Return this rank's (start, stop) in the step that begins at `position`.

        All ranks get equally many records. The last step divides the remaining records, unless
        batches must be `full`; if fewer records than ranks remain, they are omitted.
        """
        count = min(size, max(0, total - position) // self.world)
        if full and count < size:
            count = 0
        start = position + self.rank * count
        return start, start + count

    def advance(self, start: int, taken: int) -> int:
        """Return the end of the step in which this rank took `taken` records from `start` on."""
        return start + (self.world - self.rank) * taken

    def num_steps(self, end: int, size: int, full: bool) -> int:
        """Return the number of steps of an epoch of `end` records."""
        full_steps, remainder = divmod(end, size * self.world)
        return full_steps + (remainder >= self.world and not full)


def parse_shard(value: Any) -> Shard | None:
    """Return the Shard for `shard=(rank, world)`, "auto" or None; raise DataError otherwise."""
    if value is None:
        return None
    if isinstance(value, str) and value == "auto":
        return _detect_shard()
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DataError(f'shard={show(value)}; it must be (rank, world), "auto" or None')
    world = check_int("the world of shard", value[1], 1)
    rank = check_int("the rank of shard", value[0])
    if rank >= world:
        raise DataError(f"shard=({rank}, {world}); ranks count from 0, so {world - 1} is the last")
    return Shard(rank, world)


def check_shardable(indexes: Sequence[Index], samplers: Sequence[Sampler], refill: bool) -> None:
    """Raise DataError if ranks would get different numbers of batches, or a record twice."""
    for index, sampler in zip(indexes, samplers, strict=True):
        kind, base = sampler.plan.kind, sampler.plan.base
        if index.partition.parts > 1:
            raise DataError(
                f"shard= divides a complete source, but this is partition {index.partition}; give "
                "the source itself"
            )
        if kind.startswith("part-"):
            raise DataError(
                "shard= needs the number of records, which part files reveal only when they are "
                "opened; give each rank its files: open_index(..., partition=, partitions=)"
            )
        if base == "even_sequences" or (base.startswith("batchwise") and not sampler.plan.even):
            raise DataError(
                f"shard= divides batches of equal size, which {kind} does not make; give "
                "even-batchwise-shuffled-sequential, shuffle or sequential"
            )
    if refill:
        raise DataError(
            "refill=True would make ranks continue at different positions; omit it with shard="
        )


def _detect_shard() -> Shard:
    rank, world = _rank_from_torch() or _rank_from_jax() or _rank_from_environment() or (0, 1)
    data = sys.modules.get("torch.utils.data")
    worker = data and data.get_worker_info()
    if not worker:
        return Shard(rank, world)
    # DataLoader returns a batch of each worker in turn, so batches of one turn are neighbors.
    return Shard(worker.id * world + rank, world * worker.num_workers)


def _rank_from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _rank_from_jax() -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()


def _rank_from_environment() -> tuple[int, int] | None:
    values = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE")]
    if values == [None, None]:
        return None
    try:
        rank, world = (int(value or "") for value in values)
    except ValueError:
        raise DataError(
            f'shard="auto", and RANK={values[0]} and WORLD_SIZE={values[1]} are not two numbers; '
            "set both, or give shard=(rank, world)"
        ) from None
    return tuple(parse_shard((rank, world)) or ())  # type: ignore[return-value]
