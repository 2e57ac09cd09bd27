"""`python -m layoutkit.bench.feeding`: records per second, beside torch's DataLoader.

Two sources of small records of 64 floats, each in a new random order every epoch:

    table       a csv of 100,000 places in one file; a getter reads the bytes, a processor makes
                them an array. torch: a map-style dataset that calls the same two, default collate.
                The getter's own time is in both columns, so a dearer one brings them together
    array       an array of 100,000 rows. torch: a map-style dataset of its rows, default collate

For the array there is a second way with torch, which few know: a BatchSampler as `sampler`, and a
dataset that takes lists of numbers. It is shown, too, as it is the better one.

A sample is an epoch; variants take turns (see protocol.py). torch's worker processes and our
threads are started before anything counts and stay. Before that, every variant has to deliver
every record once. Without torch the table has our own columns only.

Pictures of MNIST, beside what memory allows, have a table of their own (feeding_mnist.py),
and so have JPEGs, beside decoding alone (feeding_images.py).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data import Index, Record, open_index, sampled_batcher
from . import feeding_images, feeding_mnist
from .host import set_passive_wait_policy
from .protocol import Budget, Times, Variant, measure, paired_ratio

Array = npt.NDArray[Any]
Epoch = Callable[[], Iterator[Any]]

WIDTH = 64
WORKERS = (0, 1, 2)
OURS = "layoutkit"
TORCH = "torch"
BY_BATCHES = "torch, by batches"


# ---- The same for both: where records lie, how they are read ---------------------------------


def make_records(count: int) -> Array:
    """Rows of random floats; the first of each is its number."""
    rows = np.random.default_rng(0).random((count, WIDTH), np.float32)
    rows[:, 0] = np.arange(count)
    return rows


def write_table(rows: Array, folder: Path) -> Path:
    """All rows in one file, and a csv that says where in it each one is."""
    rows.tofile(folder / "records.bin")
    size = rows[0].nbytes
    lines = [f"records.bin,{number * size},{size}" for number in range(len(rows))]
    table = folder / "records.csv"
    table.write_text("\n".join(["filename,offset,length", *lines]) + "\n")
    return table


@cache
def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def read(record: Record) -> bytes:
    """The bytes of a record; the file stays open, so that little of the time is the getter's."""
    at: Any = record  # of a table, which says where in the file each one is
    return os.pread(_opened(at.url), at.length, at.offset)


def decode(data: bytes, out: Any = None) -> Array:
    """The bytes as an array."""
    return np.frombuffer(data, np.float32)


# ---- Epochs ----------------------------------------------------------------------------------


def ours(stack: ExitStack, workers: int, batch_size: int, source: Any, **how: Any) -> Epoch:
    """Epochs of a Batcher."""
    how |= {"batch_size": batch_size, "sampler": "permutation", "num_workers": workers}
    batches: Any = stack.enter_context(sampled_batcher(source, **how))
    return lambda: (batch.input.forward_get("bf") for batch in batches)


class TableDataset:
    """What torch calls a map-style dataset: records by number."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> Array:
        return decode(read(self.index[number]))


class ArrayDataset:
    """The rows of an array, by number or by a list of numbers."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: Any) -> Array:
        found: Array = self.rows[number]
        return found


def torchs(dataset: Any, workers: int, batch_size: int) -> Epoch:
    """Epochs of a DataLoader."""
    from torch.utils.data import DataLoader

    stay = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, **stay)
    return lambda: iter(loader)


def torchs_by_batches(dataset: Any, workers: int, batch_size: int) -> Epoch:
    """Epochs of a DataLoader whose dataset is asked for whole batches."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    stay = {"num_workers": workers, "persistent_workers": workers > 0}
    order = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
    loader = DataLoader(dataset, sampler=order, batch_size=None, **stay)
    return lambda: iter(loader)


def epochs(
    stack: ExitStack, kind: str, table: Path, rows: Array, workers: int, batch_size: int
) -> dict[str, Epoch]:
    """What is compared, torch's first: its processes are forked before our threads run."""
    found = {}
    if kind == "table":
        index = open_index(table)
        if _has_torch():
            found[TORCH] = torchs(TableDataset(index), workers, batch_size)
        how = {"get": read, "processor": decode}
        found[OURS] = ours(stack, workers, batch_size, index, **how)
        return found
    if _has_torch():
        found[TORCH] = torchs(ArrayDataset(rows), workers, batch_size)
        found[BY_BATCHES] = torchs_by_batches(ArrayDataset(rows), workers, batch_size)
    found[OURS] = ours(stack, workers, batch_size, {"x": rows})
    return found


def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


# ---- Measuring -------------------------------------------------------------------------------


def check(name: str, epoch: Epoch, rows: Array) -> None:
    """Stop unless an epoch has every record once."""
    got = np.concatenate([np.asarray(batch) for batch in epoch()])
    if not np.array_equal(got[np.argsort(got[:, 0])], rows):
        sys.exit(f"{name}: an epoch does not have every record once")


def run_through(epoch: Epoch) -> None:
    """Take every batch of an epoch."""
    for _ in epoch():
        pass


def measured(
    kind: str, table: Path, rows: Array, workers: int, batch_size: int, rounds: int
) -> dict[str, Times]:
    """Times of an epoch, by variant."""
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    with ExitStack() as stack:
        found = epochs(stack, kind, table, rows, workers, batch_size)
        for name, epoch in found.items():
            check(name, epoch, rows)
        variants = [Variant(name, [partial(run_through, epoch)]) for name, epoch in found.items()]
        return measure(variants, budget)


def line(kind: str, workers: int, count: int, times: dict[str, Times]) -> str:
    """A line of the table: records per second, and how many times torch's that is."""
    cells = [f"{kind:8}{workers:7}"]
    for name in (OURS, TORCH, BY_BATCHES):
        speed = f"{count / times[name].median:,.0f}" if name in times else ""
        ratio = f"x{paired_ratio(times[name], times[OURS]):.1f}" if name in times else ""
        cells.append(f"{speed:>18}" + ("" if name == OURS else f"{ratio:>7}"))
    return "".join(cells).rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; exit code 0, or 1 where a variant misses records."""
    parser = argparse.ArgumentParser(prog="python -m layoutkit.bench.feeding")
    parser.add_argument("--records", type=int, default=100_000, metavar="N")
    parser.add_argument("--pictures", type=int, default=60_000, metavar="N")
    parser.add_argument("--photos", type=int, default=2_000, metavar="N")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    given = parser.parse_args(argv)
    rows = make_records(given.records)
    print(set_passive_wait_policy())
    print(
        f"{given.records:,} records of {WIDTH} floats, batches of {given.batch_size}: records/s, "
        f"medians of {given.rounds} rounds; x: layoutkit is so many times faster"
    )
    print(f"{'source':8}{'workers':>7}{OURS:>18}{TORCH:>18}{'':7}{BY_BATCHES:>18}")
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(rows, Path(folder))
        for kind in ("table", "array"):
            for workers in WORKERS:
                times = measured(kind, table, rows, workers, given.batch_size, given.rounds)
                print(line(kind, workers, given.records, times), flush=True)
        feeding_mnist.main(Path(folder), given.pictures, given.rounds)
        if find_spec("PIL") is not None:
            feeding_images.table(Path(folder), given.photos, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
