"""`ArrayLoop`: loops over arrays that read each batch by one call with its record numbers.

Reading records one by one, as `RecordChunk` does, would take longer than copying the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ...memory import Array
from ..io.reader import Reader
from ..samplers import Sampler
from .chunk import RecordPipeline, RecordSource
from .config import LoaderConfig
from .epoch_pass import EpochPass, Position
from .epochs import EpochLength
from .loop import B, BatchLoop
from .pending import STAGES, Pending


class NumberSource(RecordSource):
    """A source whose records are their own numbers; `read` returns the rows of many records."""

    def __init__(self, sampler: Sampler, read: Callable[[Array], Any]) -> None:
        self.sampler, self.read = sampler, read
        self.in_parts = self.gives_targets = False
        self.direct, self.get = True, None


def array_config(
    sampler: Sampler, read: Callable[[Array], Any], batch_size: int, prefetch: int = 0
) -> LoaderConfig:
    """Return the configuration of a loop over arrays; a thread reads `prefetch` batches ahead.

    `read` must not refer to the object that runs the loop: the reference cycle would keep the files
    of that object open.
    """
    sources = (NumberSource(sampler, read),)
    return LoaderConfig(
        sources=sources,
        pipeline=RecordPipeline(sources, None, None, None, False),
        reader=Reader(),
        length=EpochLength(batch_size),
        prefetch=prefetch,
        num_workers=min(1, prefetch),
    )


class ReadBatch(Pending):
    """A batch that one call reads, in the thread that completes it. Its only chunk is itself."""

    is_fully_drawn = True

    def __init__(self, read: Callable[[Array], Any], start: int, numbers: Array) -> None:
        self._read, self.start, self.numbers = read, start, numbers
        self.num_taken = self.count = len(numbers)
        self.stats = dict.fromkeys(STAGES, 0.0)

    def take_chunk(self, limit: int) -> ReadBatch:
        return self

    def run(self) -> None:
        """Do nothing: `finalize` reads all records."""

    def commit(self, chunk: ReadBatch) -> bool:
        return True

    def finalize(self) -> bool:
        start = perf_counter()
        try:
            self.input = self._read(self.numbers)
        except BaseException as error:
            self.error = error
        self.stats["get"] = perf_counter() - start
        return True


class _ArrayPass(EpochPass):
    """The batches of an epoch of arrays."""

    def _make_pending(self, place: int) -> ReadBatch | None:
        source: Any = self._config.sources[0]
        order = self.orders[0]
        numbers = order.numbers_in(place, order.cut(place))
        return ReadBatch(source.read, place, numbers) if len(numbers) else None


class ArrayLoop(BatchLoop[B]):
    """A BatchLoop over arrays; a subclass makes the batches from the rows of a read.

    A pickle contains the position, but neither threads nor the loop in progress.
    """

    def __init__(self, epoch: int = 0) -> None:
        super().__init__(self._make_config(), epoch)

    @abstractmethod
    def _make_config(self) -> LoaderConfig:
        """Return the configuration of the loop; also called after unpickling."""

    def _begin_pass(self, epoch: int, position: Position) -> EpochPass:
        return _ArrayPass(self._config, self._worker_pool(), epoch, position)

    def __getstate__(self) -> dict[str, Any]:
        position = Position(self._position.place, dropped=self.dropped)
        own = {"_config": None, "_pool": None, "_stats": None, "_position": position}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._config = self._make_config()
