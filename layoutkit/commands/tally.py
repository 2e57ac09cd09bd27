"""Where the time of making batches goes.

Knows the clock and the stats of batches; knows nothing of what is done in a stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from ..data import Batch
from .printing import printable

__all__ = ["Tally"]


class Tally:
    """What came, and the seconds that each stage took.

    threads : bool      records are got and decoded on threads, beside the other stages; their
                        seconds are summed up, and can be more than have passed
    """

    def __init__(self, threads: bool) -> None:
        self.threads = threads
        self.batches = self.records = 0
        self.seconds = {"get": 0.0, "decode, resize": 0.0, "wait": 0.0, "convert": 0.0}
        self.elapsed = 0.0
        self.first_batch = ""

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Count the seconds of the block."""
        began = perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - began

    def add(self, batch: Batch) -> None:
        """Count a batch, with what its stats say."""
        get, process, wait = (batch.stats[name] for name in ("get", "process", "wait"))
        self.batches += 1
        self.records += batch.count
        self.seconds["get"] += get
        self.seconds["decode, resize"] += process
        # Without threads, whoever waits for a batch makes it.
        self.seconds["wait"] += wait if self.threads else max(0.0, wait - get - process)

    def report(self, name: str, dropped: int) -> None:
        """Print it as a table."""
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        records = "1 record" if self.records == 1 else f"{self.records} records"
        print(f"{printable(name)}: {records} in {batches}, {dropped} left out")
        print(f"first batch: {self.first_batch}")
        print(f"{self.records / self.elapsed:,.0f} records/s in {self.elapsed:.2f} s\n")
        print(f"{'stage':16}{'seconds':>9}{'share':>8}")
        for stage, seconds in self.seconds.items():
            beside = self.threads and stage in ("get", "decode, resize")
            where = "   on threads" if beside else ""
            print(f"{stage:16}{seconds:9.3f}{seconds / self.elapsed:8.0%}{where}")
