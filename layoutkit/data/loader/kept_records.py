"""`KeptRecords`: the records of a source that a RamCache keeps, read and decoded.

Each record has a rank, a random permutation of its number, and the records of the lowest ranks are
kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..._utils import fork
from ..._utils.random import make_key, permute_index, unpermute_index
from ..io.ram_cache import EncodedValue, RamCache, encode

_SAMPLE = 128  # records that are read to estimate the size of all
_MOST_SAMPLED = 256 << 20  # bytes of them in memory; others are read again
_RANKS = make_key("kept records")


class KeptRecords:
    """The records of one source that a RamCache keeps.

    Parameters
    ----------
    source, count : int
        The position of the source among the sources of the cache, and its number of records.
    copies : bool
        Return copies, which a function of the caller may modify.
    """

    def __init__(self, cache: RamCache, source: int, count: int, copies: bool) -> None:
        self.hits = 0  # reads from the cache in the latest loop
        self._cache = cache
        self._source = source
        self._count = count
        self._copies = copies
        # Until their number is decided, the records that were read, by number.
        self._sample: dict[int, EncodedValue] = {}
        self._num_sampled = 0  # bytes of them
        self.reinit()
        fork.reinit_after_fork(self)

    def reinit(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def read(self, number: int) -> Any:
        """Return the data of a record; None if it is not kept."""
        value = self._cache.read(self._source, number, self._copies)
        if value is not None:
            with self._lock:
                self.hits += 1
        return value

    def keep(self, number: int, value: Any, is_new: bool) -> None:
        """Keep the data of a record, if its rank is low enough.

        is_new : no one else uses the memory of the data, as a function `get` may do.
        """
        num_kept = self._cache.num_kept
        if num_kept is None:
            self._add_to_sample(number, encode(value), is_new)
        elif permute_index(_RANKS, number, self._count) < num_kept:
            self._cache.write(self._source, number, encode(value))

    def _add_to_sample(self, number: int, value: EncodedValue, is_new: bool) -> None:
        with self._lock:
            self._num_sampled += value.num_bytes
            if self._num_sampled > _MOST_SAMPLED:
                self._sample[number] = value.without_parts()
            else:
                self._sample[number] = value if is_new else value.copy()

    def sampled_numbers(self) -> list[int]:
        """Return the numbers of the records of the lowest ranks, in order."""
        ranks = range(min(_SAMPLE, self._count))
        return [unpermute_index(_RANKS, rank, self._count) for rank in ranks]

    def take_sample(self) -> list[EncodedValue | None]:
        """Return the records of the lowest ranks, None for those that could not be read."""
        sample, self._sample = self._sample, {}
        return [sample.get(number) for number in self.sampled_numbers()]

    def keep_sample(self, sample: Sequence[EncodedValue | None]) -> None:
        """Keep these records of the lowest ranks."""
        for number, value in zip(self.sampled_numbers(), sample, strict=False):
            if value is not None and value.parts:
                self._cache.write(self._source, number, value)
