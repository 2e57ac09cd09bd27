"""`Batch`: what a Batcher hands out.

Knows what it holds; how it came about is not known here.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from ...errors import DataError
from ...memory import Array
from ...views import DataView
from ..records import Label, Record
from .chunks import words_of

__all__ = ["Batch", "Dropped"]

Dropped = tuple[Record, int, BaseException | None]


class Batch:
    """Real records, in the epoch's order: `count` rows, without padding.

    A batch is a pair as well: `for x, y in batches` takes input and target apart. The memory of the
    views is the batch's own: it is not used again while anything of it is held.

    Attributes
    ----------
    input : View or None
        The records' arrays; None where there is none and no shape is known.
    target : View or None
        Labels as ranks into the index's labels, or what there is as target.
    count : int
        Rows.
    index : int64 array
        Each row's place in the epoch's order.
    item : list of Record
        Each row's record, of the first source.
    label : list
        Each row's label, None for a record without.
    dropped : list
        (record, place, error) of those left out; no error for a refusal.
    stats : dict
        Seconds in "get" and "process", summed over threads, and in "wait".
    """

    def __init__(
        self,
        input: DataView | None,  # noqa: A002  # the attribute's name
        target: DataView | None,
        index: Array,
        records: Callable[[], list[Record]],
        dropped: list[Dropped],
        stats: dict[str, float],
    ) -> None:
        self.input, self.target = input, target
        self.count = len(index)
        self.index = index
        self.dropped = dropped
        self.stats = stats
        self._records = records

    @cached_property
    def item(self) -> list[Record]:
        """Each row's record, of the first source."""
        return self._records()

    @property
    def label(self) -> list[Label | None]:
        """Each row's label, None for a record without."""
        return [record.label for record in self.item]

    def __iter__(self) -> Iterator[DataView | None]:
        return iter((self.input, self.target))

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for a queue between processes; it waits for ever for what does not pickle."""
        dropped = [(record, place, _portable(error)) for record, place, error in self.dropped]
        return {**self.__dict__, "item": self.item, "dropped": dropped, "_records": None}

    def __repr__(self) -> str:
        dropped = f", {len(self.dropped)} dropped" if self.dropped else ""
        return f"<batch of {self.count}{dropped}: {self.input!r}, {self.target!r}>"


def _portable(error: BaseException | None) -> BaseException | None:
    """The error itself, or its words where it does not go through a pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return DataError(words_of(error)) if error is not None else None
    return error
