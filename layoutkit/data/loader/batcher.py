"""`Batcher`: records got, processed and put together, batch after batch.

Knows epochs, states and threads' lives. What a batch is made of is known by `passes.py` and the
modules below it.

One pass over an epoch: batches are begun ahead, completed in any order, handed out in order.

Knows places in the epoch, and what is under way. Results are judged and joined by drafts, and
threads are the crew's.

Where a Batcher is: a position, and the numbers that move with it.

Knows what is counted; what is handed out is not known here.

What somebody who watches a loop is told: a line for each record left out, and a bar.

Knows settings and what was left out; how batches come about is not known here.

An epoch that loses every record ends with an error, not with batches of nothing.

Single records may fail, and are left out. Where all do, the mistake is in what was asked for, and
who looped over empty batches would find out far from where it is. Knows batches and their places.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ...views import DataView
from ..errors import NoLength
from ..io.reader import Reader
from ..iteration import EpochIterator, Epochs
from ..samplers.orders import Order
from .batch import Batch, Dropped
from .chunk import Numbers, name_of, words_of
from .config import Settings
from .pending import Draft
from .worker_pool import Crew, finish


class Pass:
    """Batches of an epoch from a place on.

    With `refill` a batch begins where the one before ended, which is known when that is complete;
    otherwise where the sampler's batch begins, so that several are under way at once.
    """

    def __init__(
        self,
        settings: Settings,
        crew: Crew | None,
        epoch: int,
        place: int,
        marks: Mapping[str, Any],
    ) -> None:
        self._settings, self._crew, self._epoch = settings, crew, epoch
        first = settings.feeds[0]
        self.orders = [
            feed.order(epoch, marks if marks and feed is first and feed.in_parts else None)
            for feed in settings.feeds
        ]
        self.rest: list[Dropped] = []  # left out behind the last batch
        self._place = place
        self._begun = self._handed = marks.get("batch", 0)
        self._drafts: deque[Draft] = deque()
        self._latest: Draft | None = None
        self._planning = threading.Lock()
        self._over = False
        self._failure: BaseException | None = None

    @property
    def size(self) -> int | None:
        """Records in the epoch, where that is known."""
        limit = self._settings.limit
        return self.orders[0].size if limit is None else limit * self._settings.batch_size

    def __enter__(self) -> Pass:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave alone what is under way."""
        self._over = True
        for draft in tuple(self._drafts):
            draft.cancelled = True

    def next(self) -> tuple[Batch, int] | None:
        """The next batch and the place behind it; None at the epoch's end."""
        began = perf_counter()
        if self._crew is not None:
            self._crew.check_process()
        self._begin_batches(asked=1)
        if not self._drafts:
            if self._failure is not None:
                raise self._failure
            return None
        draft = self._drafts[0]
        finish(draft, self._crew)
        draft.stats["wait"] = perf_counter() - began
        batch, place = self._batch(draft), self._behind(draft)
        with self._planning:
            self._drafts.popleft()
            self._handed += 1
        if self._settings.refill and not batch.count:
            self.rest = batch.dropped
            return None
        self._begin_batches()
        return batch, place

    def _begin_batches(self, asked: int = 0) -> None:
        """Begin as many batches as may be under way."""
        ahead = 0 if self._crew is None else self._settings.prefetch
        with self._planning:
            while not self._over and self._begun < self._handed + max(ahead, asked):
                if self._settings.refill and self._latest and not self._latest.ready:
                    return
                try:
                    self._begin()
                except Exception as error:  # it belongs behind the batches that come before
                    self._failure, self._over = error, True

    def _begin(self) -> None:
        settings = self._settings
        if settings.shard is None and self._begun == settings.limit:
            self._over = True
            return
        start = self._place
        if settings.refill and self._latest:
            start = self._latest.start + self._latest.taken
        stop = start + settings.batch_size if settings.refill else self.orders[0].cut(start)
        if settings.shard is not None:
            start, stop = settings.shard.own(start, self.size or 0, settings.batch_size, self._full)
        numbers = self._take(start, stop)
        if not len(numbers[0]):
            self._over = True
            return
        dims = settings.dims(self._begun)
        refill = self._refill if settings.refill else None
        draft = self._latest = Draft(settings.work, start, numbers, dims, refill, self._epoch)
        self._place = self._behind(draft)
        self._begun += 1
        self._drafts.append(draft)
        if self._crew is not None:
            draft.after = self._begin_batches if settings.refill else None
            self._crew.submit(draft)

    @property
    def _full(self) -> bool:
        """Whether the kind makes no short batch."""
        plan = self._settings.feeds[0].sampler.plan
        return bool(plan.even or plan.draws)

    def _behind(self, draft: Draft) -> int:
        """The place behind a batch, and behind those of other ranks that belong to its step."""
        shard, taken = self._settings.shard, draft.taken
        return draft.start + taken if shard is None else shard.behind(draft.start, taken)

    def _refill(self, place: int, missing: int, dry: int) -> Sequence[Numbers]:
        """The records behind a batch that has some missing."""
        count = self._settings.feeds[0].sampler.plan.count
        if self._settings.draws and dry >= count:
            raise DataError(
                f"none of {dry} records drawn one after the other could be used, and there are "
                f"{count}; see the log of layoutkit.data for why"
            )
        with self._planning:
            return self._take(place, place + missing)

    def _take(self, start: int, stop: int) -> list[Numbers]:
        """The records in places start .. stop-1, of each source."""
        feeds = self._settings.feeds
        found = [
            feed.take(order, start, stop) for feed, order in zip(feeds, self.orders, strict=True)
        ]
        for number, numbers in enumerate(found):
            if len(numbers) < len(found[0]):
                raise DataError(
                    f"source {number} ends after {start + len(numbers)} records, before the first "
                    "one; give sources of as many records, or a sampler that draws"
                )
        return found

    # -- from a draft to a batch -----------------------------------------------------------

    def _batch(self, draft: Draft) -> Batch:
        feed = self._settings.feeds[0]
        rows = draft.kept()
        kept = draft.chosen(rows)
        names = sorted(draft.failed)
        left_out = feed.records(draft.chosen(np.array(names, np.int64))) if names else []
        dropped = [
            (record, draft.start + row, draft.failed[row])
            for record, row in zip(left_out, names, strict=True)
        ]
        return Batch(
            self._input(draft.input),
            self._target(draft.target, kept),
            draft.start + rows,
            lambda: feed.records(kept),
            dropped,
            draft.stats,
        )

    def _input(self, array: Any) -> DataView | None:
        if array is None:
            return None
        return self._settings.viewers.input(array() if callable(array) else array)

    def _target(self, given: Array | None, kept: Numbers) -> DataView | None:
        """What the processor gave, else the source: targets, or ranks of labels."""
        feed, viewers = self._settings.feeds[0], self._settings.viewers
        if given is None:
            given = feed.targets(kept)
        if given is not None:
            return viewers.target(given)
        ranks = feed.ranks(kept)
        return None if ranks is None else viewers.labels(ranks)


class Place(int):
    """A position in an epoch, and what was counted up to it: one object, so that they agree.

    batches : int    handed out in this epoch
    dropped : int    records left out
    order : Order    of part files: it knows where the file begins that the position is in
    """

    batches: int
    dropped: int
    order: Order | None

    def __new__(  # noqa: D102  # the class says it
        cls, position: int = 0, batches: int = 0, dropped: int = 0, order: Order | None = None
    ) -> Place:
        place = super().__new__(cls, position)
        place.batches, place.dropped, place.order = batches, dropped, order
        return place

    def behind(self, batch: Batch, position: int, order: Order) -> Place:
        """The place behind one more batch."""
        return Place(position, self.batches + 1, self.dropped + len(batch.dropped), order)


def place_of(position: int) -> Place:
    """The place that a position of a Batcher is; a Place, but for a moment while it is made."""
    return position if isinstance(position, Place) else Place(position)


_log = logging.getLogger("layoutkit.data")


def warn(dropped: Sequence[Any]) -> None:
    """Log a line for each record that was left out."""
    for record, _, error in dropped:
        why = "refused" if error is None else words_of(error)
        _log.warning("left out %s: %s", name_of(record), why)


def bar_of(settings: Settings, total: int | None, position: int) -> Any:
    """The progress bar, or None, in a `with` block."""
    if not settings.progress:
        return nullcontext()
    from tqdm import tqdm  # loaded where a bar is shown

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread beside ours

    return Bar(total=total, initial=position, unit="record")


_ENOUGH = 16  # records that fail one after the other, from the first on, are no accident
_SHOWN = 3


def handed_out(run: Pass, from_start: bool) -> Iterator[tuple[Batch, int]]:
    """Batches and the places behind them, of a loop that begins an epoch or goes on in one.

    From an epoch's start, batches without any row wait for one that has some. A DataError, if
    none comes: when whole batches of 16 records failed, or at the epoch's end. Records that a
    processor refused were left out on purpose, and are no reason.
    """
    waiting: list[tuple[Batch, int]] = []
    lost: list[Dropped] = []
    while (handed := run.next()) is not None:
        batch = handed[0]
        if from_start and _is_lost(batch):
            waiting.append(handed)
            lost += batch.dropped
            if len(lost) >= _ENOUGH:
                warn(lost)
                raise _nothing(lost, "first ")
            continue
        from_start = False
        yield from waiting
        waiting.clear()
        yield handed
    if from_start:
        lost += run.rest
        if lost and all(error is not None for _, _, error in lost):
            warn(lost)
            raise _nothing(lost)
        yield from waiting


def _is_lost(batch: Batch) -> bool:
    return not batch.count and all(error is not None for _, _, error in batch.dropped)


def _nothing(lost: Sequence[Dropped], first: str = "") -> DataError:
    """Each reason once, with the first record that it is the reason for."""
    reasons: dict[str, list[str]] = {}
    for record, _, error in lost:
        if error is not None:
            reasons.setdefault(words_of(error), []).append(name_of(record))
    shown = [_told(why, names) for why, names in list(reasons.items())[:_SHOWN]]
    count = (
        "the only record cannot"
        if len(lost) == 1
        else f"none of the {first}{len(lost)} records can"
    )
    return DataError(f"{count} be used. {'. '.join(shown)}")


def _told(why: str, names: Sequence[str]) -> str:
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{others}: {why}"


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
