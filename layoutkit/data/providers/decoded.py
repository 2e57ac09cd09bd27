"""Batches of records that threads decode, in rows of one shape: what is under way, and in order.

Knows drafts and crews, which know threads; what a record becomes is its caller's business.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...memory import Array
from ..batches.chunks import Work
from ..batches.crew import Crew, finish
from ..batches.drafts import Draft

__all__ = ["Decoded", "Hands", "Run"]


# Some pictures. To draw a chunk and to hand it over takes a tenth of a picture's time, as decoders
# leave nothing else in the cache.
_CHUNK_SECONDS = 8e-3


class Decoded(NamedTuple):
    """The records of a batch that could be decoded.

    numbers   the records of the batch
    rows      what they became, one after the other
    targets   and what the processor said of each besides
    kept      which of the batch's rows these are
    dropped   (record, row, error) of the others
    """

    numbers: Array
    rows: Array
    targets: Any
    kept: Array
    dropped: Sequence[Any]


class Hands:
    """So many threads, started when they are needed and ended by `close`; none for 0."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._crew: Crew | None = None

    def crew(self) -> Crew | None:
        """The threads of this process."""
        if self._number and (self._crew is None or not self._crew.serves):
            crew = Crew(self._number, None, _CHUNK_SECONDS)
            weakref.finalize(self, Crew.end, crew)
            self._crew = crew
            crew.begin()
        return self._crew

    def close(self) -> None:
        """End the threads and wait for them."""
        if self._crew is not None:
            self._crew.close()


class Run:
    """Batches of an epoch from a place on, some of them begun ahead.

    Parameters
    ----------
    work : Work
        What is done to each record, of one Feed.
    dims : tuple of int
        The shape of what a record becomes.
    crew : Crew, optional
        Who does it; None: the caller, when it asks.
    prefetch : int
        Batches that are begun ahead of the one asked for.
    """

    def __init__(self, work: Work, dims: tuple[int, ...], crew: Crew | None, prefetch: int) -> None:
        self._work, self._dims, self._crew = work, dims, crew
        self._ahead = prefetch if crew is not None else 0

    def batches(self, numbers: Iterator[Array]) -> Iterator[Decoded]:
        """What becomes of the records of these numbers, batch by batch, in their order."""
        begun: deque[Draft] = deque()
        try:
            for some in numbers:
                begun.append(self._begun(some))
                if len(begun) > self._ahead:
                    yield self._done(begun.popleft())
            while begun:
                yield self._done(begun.popleft())
        finally:
            for draft in begun:
                draft.cancelled = True

    def _begun(self, numbers: Array) -> Draft:
        draft = Draft(self._work, 0, [numbers], self._dims)
        if self._crew is not None:
            self._crew.check_process()
            self._crew.submit(draft)
        return draft

    def _done(self, draft: Draft) -> Decoded:
        finish(draft, self._crew)
        failed = sorted(draft.failed)
        numbers = draft.numbers[0]
        records = self._work.feeds[0].records(numbers[failed]) if failed else []
        errors = [draft.failed[row] for row in failed]
        dropped = list(zip(records, failed, errors, strict=True))
        rows: Any = draft.input
        return Decoded(numbers, rows, draft.target, draft.kept(), dropped)
