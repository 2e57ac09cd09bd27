"""An epoch that loses every record ends with an error, not with batches of nothing.

Single records may fail, and are left out. Where all do, the mistake is in what was asked for, and
who looped over empty batches would find out far from where it is. Knows batches and their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import DataError
from .batch import Batch, Dropped
from .chunks import name_of, words_of
from .passes import Pass
from .progress import warn

__all__ = ["handed_out"]

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
