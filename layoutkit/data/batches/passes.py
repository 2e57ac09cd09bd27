"""One pass over an epoch: batches are begun ahead, completed in any order, handed out in order.

Knows places in the epoch, and what is under way. Results are judged and joined by drafts, and
threads are the crew's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ...views import DataView
from .batch import Batch, Dropped
from .crew import Crew, finish
from .drafts import Draft
from .feeds import Numbers
from .settings import Settings

__all__ = ["Pass"]


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
