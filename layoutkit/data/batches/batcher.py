"""`Batcher`: records got, processed and put together, batch after batch.

Knows epochs, states and threads' lives. What a batch is made of is known by `passes.py` and the
modules below it.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from typing import Any

from ...errors import DataError
from ..epochs import EpochIterator, Epochs
from ..protocolerrors import NoLength
from ..reading.reader import Reader
from .batch import Batch
from .crew import Crew
from .losses import handed_out
from .passes import Pass
from .places import Place, place_of
from .progress import bar_of, warn
from .settings import Settings

__all__ = ["Batcher"]


class Batcher(Epochs[Batch]):
    """Batches, epoch by epoch; made by `sampled_batcher`.

    `for batch in batcher` is an epoch of `len(batcher)` batches, or fewer with `refill`, and
    `state_dict()` names the place behind the batch handed out last. Threads start with the first
    loop and end with `close()`, or the `with` block.
    """

    def __init__(self, settings: Settings, epoch: int) -> None:
        super().__init__(epoch)
        self._settings = settings
        self._crew: Crew | None = None
        self._closed = False
        self._position: int = Place()
        weakref.finalize(self, Reader.close, settings.reader)

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch, at most where `refill`; None while there are parts to open."""
        settings, order = self._settings, self._settings.feeds[0].order(self._epoch)
        if settings.shard is not None:
            plan = order.plan
            end = self._end(self._epoch) or 0
            return settings.shard.steps(end, settings.batch_size, plan.even or plan.draws)
        return order.num_batches if settings.limit is None else settings.limit

    def __len__(self) -> int:
        number = self.num_batches
        if number is None:
            raise NoLength("the number of batches is not known until every part is opened")
        return number

    def __repr__(self) -> str:
        name, size, number = type(self).__name__, self._settings.batch_size, self.num_batches
        batches = "batches" if number is None else f"{number} batches"
        return f"<{name} of {batches} of {size}, epoch {self._epoch}>"

    def __bool__(self) -> bool:
        return True  # also where an epoch has no batches

    @property
    def dropped(self) -> int:
        """Records left out so far in the epoch that the latest loop is or was in."""
        return place_of(self._position).dropped

    def reset(self) -> None:
        """Go back to the start of this epoch; the loop under way is over."""
        self.set_epoch(self._epoch)

    def close(self) -> None:
        """End the threads and wait for them; loops are over for good.

        A call that does not return cannot be stopped: its thread is not waited for any longer
        than some seconds, and ends when the call does.
        """
        self._closed = True
        self._settings.reader.close()
        if self._crew is not None:
            self._crew.end()
        self._go(self._epoch, self._position)
        if self._crew is not None:
            self._crew.close()

    def __reduce__(self) -> Any:
        raise DataError(
            "a Batcher has threads and connections, which cannot be copied or sent to another "
            "process; call sampled_batcher there, in each with shard='auto'"
        )

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> EpochIterator[Batch]:
        if self._closed:
            raise DataError("this Batcher is closed; make a new one with sampled_batcher")
        return super().__iter__()

    def _go(self, epoch: int, position: int, *, loaded: bool = False) -> None:
        """As any loop; what was left out is known until the next one begins to count."""
        place = position if isinstance(position, Place) else Place(position, dropped=self.dropped)
        super()._go(epoch, place, loaded=loaded)

    def _steps(self, epoch: int, position: int) -> Generator[tuple[Batch, int], None, Place]:
        place = place_of(position) if position else Place()
        marks = {**self._marks(place), "position": position} if position else {}
        run = Pass(self._settings, self._hands(), epoch, position, marks)
        with run, bar_of(self._settings, run.size, position) as bar:
            for batch, behind in handed_out(run, from_start=not position):
                before, place = place, place.behind(batch, behind, run.orders[0])
                # Whatever may be interrupted comes first: the state is that before this batch yet.
                warn(batch.dropped)
                if bar is not None:
                    bar.update(place - before)
                    bar.set_postfix(dropped=place.dropped, refresh=False)
                yield batch, place
            warn(run.rest)
        return Place(0, dropped=place.dropped + len(run.rest))

    def _hands(self) -> Crew | None:
        """The threads, started if there are none in this process; None without threads."""
        settings = self._settings
        if settings.num_workers == 0:
            return None
        if self._crew is None or not self._crew.serves:
            crew = Crew(settings.num_workers, settings.work.timeout)
            weakref.finalize(self, Crew.end, crew)
            self._crew = crew
            crew.begin()
        return self._crew

    def _identity(self) -> dict[str, int | str]:
        return self._settings.identity

    def _free(self, position: int) -> tuple[str, ...]:
        free = super()._free(position)
        return (*free, "batch_size") if self._settings.resizes else free

    def _records(self) -> int:
        return int(self._settings.feeds[0].sampler.plan.count)

    def _end(self, epoch: int) -> int | None:
        settings = self._settings
        if settings.limit is None:
            return settings.feeds[0].order(epoch).size
        return None if settings.refill else settings.limit * settings.batch_size

    def _marks(self, position: int) -> dict[str, int]:
        place = place_of(position) if position else Place()
        # A state of shards is the same on all of them, and each has left out other records.
        dropped = place.dropped if self._settings.shard is None else 0
        counted = {"batch": place.batches, "dropped": dropped}
        return {**counted, **self._part_marks(place)}

    def _part_marks(self, place: Place) -> dict[str, int]:
        """What lets a place in part files be found without opening those before it."""
        if not self._settings.feeds[0].in_parts:
            return {}
        return {"part": 0, "part_start": 0} if place.order is None else place.order.marks(place)

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> Place:
        feed = self._settings.feeds[0]
        order = feed.order(epoch, state) if feed.in_parts else None  # wrong marks are found now
        return Place(position, state["batch"], state["dropped"], order)
