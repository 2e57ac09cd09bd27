"""Which records of every step are whose, where several processes share one order.

The order is that of all records, whatever the number of processes. A step takes `batch_size`
records for each of them from the place where the one before ended, rank 0 the first ones. So a
place in the order is all that a state has to say, and any number of processes goes on from it.

Knows places and numbers; records and orders are not known here.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ..._utils.validation import as_count, as_flag
from ...errors import DataError
from ..samplers import Sampler
from ..sources import Index

__all__ = ["Shard", "check_shared", "shard_of"]


class Shard(NamedTuple):
    """One of `world` processes, counted from 0."""

    rank: int
    world: int

    def own(self, place: int, end: int, size: int, full: bool) -> tuple[int, int]:
        """Its places in the step that begins at `place`: as many as those of any other rank.

        The last step shares out what is left, unless batches have to be `full`; fewer records than
        ranks are left out.
        """
        each = min(size, max(0, end - place) // self.world)
        if full and each < size:
            each = 0
        start = place + self.rank * each
        return start, start + each

    def behind(self, start: int, taken: int) -> int:
        """The place behind the step of which this rank had `taken` records from `start` on."""
        return start + (self.world - self.rank) * taken

    def steps(self, end: int, size: int, full: bool) -> int:
        """The steps of an epoch of `end` records."""
        whole, rest = divmod(end, size * self.world)
        return whole + (rest >= self.world and not full)


def shard_of(given: Any) -> Shard | None:
    """The shard of `shard=(rank, world)`, "auto" or None; DataError for what is none."""
    if given is None:
        return None
    if isinstance(given, str) and given == "auto":
        return _found()
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DataError(f'shard={given!r}; it is (rank, world), "auto" or None')
    world = as_count("the world of shard", given[1], 1)
    rank = as_count("the rank of shard", given[0])
    if rank >= world:
        raise DataError(f"shard=({rank}, {world}); ranks count from 0, so {world - 1} is the last")
    return Shard(rank, world)


def check_shared(indexes: list[Index], samplers: list[Sampler], refill: Any) -> None:
    """DataError where ranks would get different numbers of batches, or other records twice."""
    for index, each in zip(indexes, samplers, strict=True):
        kind, base = each.plan.kind, each.plan.base
        if index.partition.parts > 1:
            raise DataError(
                f"shard= shares out a whole source, and this is partition {index.partition}; give "
                "the source itself"
            )
        if kind.startswith("part-"):
            raise DataError(
                "shard= needs to know how many records there are, and part files say it when they "
                "are opened; give each rank its files: open_index(..., partition=, partitions=)"
            )
        if base == "even_sequences" or (base.startswith("batchwise") and not each.plan.even):
            raise DataError(
                f"shard= shares out batches of one size, which {kind} does not make; give "
                "even_batchwise_shuffled_sequential, shuffle or linear"
            )
    if as_flag("refill", refill):
        raise DataError("refill=True would let ranks go on from different places; leave it away")


def _found() -> Shard:
    """What the surroundings say: torch.distributed, JAX, the environment; and DataLoader's."""
    rank, world = _of_torch() or _of_jax() or _of_environment() or (0, 1)
    data = sys.modules.get("torch.utils.data")
    worker = data and data.get_worker_info()
    if not worker:
        return Shard(rank, world)
    # DataLoader takes a batch of each worker in turn, so that those of one turn are neighbours.
    return Shard(worker.id * world + rank, world * worker.num_workers)


def _of_torch() -> tuple[int, int] | None:
    found = sys.modules.get("torch.distributed")
    if found is None or not (found.is_available() and found.is_initialized()):
        return None
    return found.get_rank(), found.get_world_size()


def _of_jax() -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()


def _of_environment() -> tuple[int, int] | None:
    words = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE")]
    if words == [None, None]:
        return None
    try:
        rank, world = (int(word or "") for word in words)
    except ValueError:
        raise DataError(
            f'shard="auto", and RANK={words[0]} and WORLD_SIZE={words[1]} are no two numbers; set '
            "both, or give shard=(rank, world)"
        ) from None
    return tuple(shard_of((rank, world)) or ())  # type: ignore[return-value]
