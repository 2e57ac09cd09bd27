"""`python -m layoutkit.bench.feeding`: records per second, compared with torch's DataLoader.

Two sources of small records of 64 floats, each in a new random order every epoch:

    table       a csv with 100,000 positions in one file; a getter reads the bytes, a processor
                converts them to an array. torch: a map-style dataset that calls the same two
                functions, default collate. Both columns include the time of the getter, so a
                slower getter makes the columns more similar
    array       an array of 100,000 rows. torch: a map-style dataset of its rows, default collate

A further column for the array is torch with a BatchSampler as `sampler` and a dataset that accepts
lists of indices, which is less known but faster.

A sample is an epoch; variants take turns (see protocol.py). torch's worker processes and
layoutkit's threads are started before the measurement and stay alive. Every variant is checked
first: an epoch must have every record once. Without torch the table has layoutkit's columns only.

A further table has images of MNIST's size, compared with the memory limit
(feeding_mnist.py). `layoutkit bench --loaders` reads files of other formats.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data import Index, Record, open_index, sampled_batcher
from . import feeding_mnist
from .host import set_passive_wait_policy
from .protocol import Budget, Times, Variant, measure, paired_ratio

Array = npt.NDArray[Any]
Epoch = Callable[[], Iterator[Any]]

WIDTH = 64
WORKERS = (0, 1, 2)
OURS = "layoutkit"
TORCH = "torch"
BY_BATCHES = "torch, by batches"


# ---- Records ---------------------------------------------------------------------------------


def make_records(count: int) -> Array:
    """Return rows of random floats; the first value of each row is its index."""
    rows = np.random.default_rng(0).random((count, WIDTH), np.float32)
    rows[:, 0] = np.arange(count)
    return rows


def write_table(rows: Array, folder: Path) -> Path:
    """Write all rows into one file and their positions into a csv; return the csv's path."""
    rows.tofile(folder / "records.bin")
    size = rows[0].nbytes
    lines = [f"records.bin,{number * size},{size}" for number in range(len(rows))]
    table = folder / "records.csv"
    table.write_text("\n".join(["filename,offset,length", *lines]) + "\n")
    return table


@cache
def _open_cached(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def read(record: Record) -> bytes:
    """Read the bytes of a record; the file stays open, so that the getter takes little time."""
    table_record: Any = record  # with the position in the file
    return os.pread(_open_cached(table_record.url), table_record.length, table_record.offset)


def decode(data: bytes, out: Any = None) -> Array:
    """Return an array that shares the memory of the bytes."""
    return np.frombuffer(data, np.float32)


# ---- Epochs ----------------------------------------------------------------------------------


def layoutkit_epoch(
    stack: ExitStack, workers: int, batch_size: int, source: Any, **options: Any
) -> Epoch:
    """Return a function that iterates over an epoch of a Batcher."""
    options |= {"batch_size": batch_size, "sampler": "permutation", "num_workers": workers}
    batches: Any = stack.enter_context(sampled_batcher(source, **options))
    return lambda: (batch.input.forward_get("bf") for batch in batches)


class TableDataset:
    """A map-style dataset of torch over the records of an index."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> Array:
        return decode(read(self.index[number]))


class ArrayDataset:
    """A map-style dataset of the rows of an array, by index or by a list of indices."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: Any) -> Array:
        row: Array = self.rows[number]
        return row


def torch_epoch(dataset: Any, workers: int, batch_size: int) -> Epoch:
    """Return a function that iterates over an epoch of a DataLoader."""
    from torch.utils.data import DataLoader

    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, **options)
    return lambda: iter(loader)


def torch_batched_epoch(dataset: Any, workers: int, batch_size: int) -> Epoch:
    """Return a function that iterates over an epoch of a DataLoader of whole batches."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    options = {"num_workers": workers, "persistent_workers": workers > 0}
    order = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
    loader = DataLoader(dataset, sampler=order, batch_size=None, **options)
    return lambda: iter(loader)


def epochs(
    stack: ExitStack, source: str, table: Path, rows: Array, workers: int, batch_size: int
) -> dict[str, Epoch]:
    """Return the epoch of each variant; torch is first, to fork processes before threads start."""
    by_name = {}
    if source == "table":
        index = open_index(table)
        if _has_torch():
            by_name[TORCH] = torch_epoch(TableDataset(index), workers, batch_size)
        options = {"get": read, "processor": decode}
        by_name[OURS] = layoutkit_epoch(stack, workers, batch_size, index, **options)
        return by_name
    if _has_torch():
        by_name[TORCH] = torch_epoch(ArrayDataset(rows), workers, batch_size)
        by_name[BY_BATCHES] = torch_batched_epoch(ArrayDataset(rows), workers, batch_size)
    by_name[OURS] = layoutkit_epoch(stack, workers, batch_size, {"x": rows})
    return by_name


def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


# ---- Measuring -------------------------------------------------------------------------------


def check(name: str, epoch: Epoch, rows: Array) -> None:
    """Exit with an error unless an epoch has every record once."""
    records = np.concatenate([np.asarray(batch) for batch in epoch()])
    if not np.array_equal(records[np.argsort(records[:, 0])], rows):
        sys.exit(f"{name}: an epoch does not have every record once")


def run_through(epoch: Epoch) -> None:
    """Iterate over every batch of an epoch."""
    for _ in epoch():
        pass


def measure_epochs(
    source: str, table: Path, rows: Array, workers: int, batch_size: int, rounds: int
) -> dict[str, Times]:
    """Return the times of an epoch by variant name."""
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    with ExitStack() as stack:
        by_name = epochs(stack, source, table, rows, workers, batch_size)
        for name, epoch in by_name.items():
            check(name, epoch, rows)
        variants = [Variant(name, [partial(run_through, epoch)]) for name, epoch in by_name.items()]
        return measure(variants, budget)


def format_line(source: str, workers: int, count: int, times: dict[str, Times]) -> str:
    """Return a line of the table: records per second, and the ratios to torch."""
    cells = [f"{source:8}{workers:7}"]
    for name in (OURS, TORCH, BY_BATCHES):
        speed = f"{count / times[name].median:,.0f}" if name in times else ""
        ratio = f"x{paired_ratio(times[name], times[OURS]):.1f}" if name in times else ""
        cells.append(f"{speed:>18}" + ("" if name == OURS else f"{ratio:>7}"))
    return "".join(cells).rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; return 0, or exit with an error if a variant misses records."""
    parser = argparse.ArgumentParser(prog="python -m layoutkit.bench.feeding")
    parser.add_argument("--records", type=int, default=100_000, metavar="N")
    parser.add_argument("--images", type=int, default=60_000, metavar="N")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    options = parser.parse_args(argv)
    rows = make_records(options.records)
    print(set_passive_wait_policy())
    print(
        f"{options.records:,} records of {WIDTH} floats, batches of {options.batch_size}: "
        f"records/s, medians of {options.rounds} rounds; x: how many times faster layoutkit is"
    )
    print(f"{'source':8}{'workers':>7}{OURS:>18}{TORCH:>18}{'':7}{BY_BATCHES:>18}")
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(rows, Path(folder))
        for source in ("table", "array"):
            for workers in WORKERS:
                times = measure_epochs(
                    source, table, rows, workers, options.batch_size, options.rounds
                )
                print(format_line(source, workers, options.records, times), flush=True)
        feeding_mnist.main(Path(folder), options.images, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
