"""Raw records per second: records of 1 kB in random order, in batches of 256 (`--loaders`).

    layoutkit, .npy             rows of a file of NumPy
    layoutkit, .rec             records of equal length, as rows of an array
    layoutkit, .rec, ragged     as one array and offsets, as records of any length
    layoutkit, .tfrecord        with its checksums, as rows of an array
    torch, .npy                 a DataLoader of a memory map, by lists of indices
    ArrayRecord                 `__getitems__` of a batch of random indices; no workers
    ArrayRecord, by record      a record at a time, as a DataLoader's dataset does; no workers
    WebDataset                  a tar, in order, with a shuffle buffer of 1,000 records

All files are in the page cache. ArrayRecord and WebDataset deliver lists of bytes.
"""

from __future__ import annotations

import io
import struct
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..data import open_index, sampled_batcher
from ..data.io import crc32c
from ..data.recordio import RecordWriter
from .photos import Array
from .protocol import Budget, Variant, measure

RECORD_BYTES = 1000
BATCH = 256
WORKERS = (0, 1, 2)

Epoch = Callable[[], Iterable[Any]]  # an iterable of batches: sequences of records


@dataclass(frozen=True)
class RecordFiles:
    """Records as rows in memory and in files."""

    rows: Array
    folder: Path

    def __post_init__(self) -> None:
        np.save(self.path("npy"), self.rows)
        with RecordWriter(self.path("rec")) as writer:
            for row in self.rows:
                writer.write(row.tobytes())

    @cached_property
    def has_tfrecord(self) -> bool:
        """True if there is a TFRecord file; to write one needs a library for checksums."""
        crc = crc32c.library()
        if crc is None:
            return False
        with Path(self.path("tfrecord")).open("wb") as file:
            for row in self.rows:
                data = row.tobytes()
                length = struct.pack("<QI", len(data), crc32c.masked_of_length(len(data)))
                file.write(length + data + struct.pack("<I", crc32c.masked(crc(data))))
        return True

    def path(self, suffix: str) -> str:
        """Return the path of the file with this suffix."""
        return str(self.folder / f"records.{suffix}")


def _torch_epoch(files: RecordFiles, workers: int) -> Epoch:
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    rows: Any = np.load(files.path("npy"), mmap_mode="r")
    order = BatchSampler(RandomSampler(rows), BATCH, drop_last=False)
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(rows, sampler=order, batch_size=None, **options)
    return lambda: loader


def _array_record_epoch(files: RecordFiles, workers: int, by_record: bool) -> Epoch | None:
    from array_record.python import array_record_data_source, array_record_module

    if workers:
        return None
    path = files.path("array_record")
    if not Path(path).exists():
        writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
        for row in files.rows:
            writer.write(row.tobytes())
        writer.close()
    source = array_record_data_source.ArrayRecordDataSource(path)
    seeds = iter(range(1_000_000))

    def epoch() -> Iterator[Any]:
        order = np.random.default_rng(next(seeds)).permutation(len(files.rows)).tolist()
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            if by_record:
                yield [source[number] for number in numbers]
            else:
                yield source.__getitems__(numbers)

    return epoch


def _webdataset_epoch(files: RecordFiles, workers: int) -> Epoch | None:
    import webdataset

    if workers:  # one tar is read by one process
        return None
    path = files.path("tar")
    if not Path(path).exists():
        with tarfile.open(path, "w") as archive:
            for number, row in enumerate(files.rows):
                entry = tarfile.TarInfo(f"{number:06}.bin")
                entry.size = len(row)
                archive.addfile(entry, io.BytesIO(row.tobytes()))
    records = webdataset.WebDataset(path, shardshuffle=False).shuffle(1000).to_tuple("bin")
    return lambda: records.batched(BATCH, collation_fn=_first_fields)


def _first_fields(records: list[tuple[bytes]]) -> list[bytes]:
    return [data for (data,) in records]


def _layoutkit_epoch(files: RecordFiles, workers: int, suffix: str, stack: ExitStack) -> Epoch:
    options: dict[str, Any] = {"batch_size": BATCH, "sampler": "shuffle", "num_workers": workers}
    if suffix == "ragged":
        options["collate"] = "ragged"
    elif suffix != "npy":
        options |= {"input_dims": (RECORD_BYTES,), "dtype": "uint8"}
    kind = "raw" if suffix in ("rec", "ragged") else None
    source = open_index(files.path("rec" if suffix == "ragged" else suffix), kind=kind)
    batches: Any = stack.enter_context(sampled_batcher(source, **options))
    if suffix == "ragged":
        return lambda: (batch.input for batch in batches)
    return lambda: (batch.input.input for batch in batches)


def epochs(files: RecordFiles, workers: int, stack: ExitStack) -> dict[str, Epoch]:
    """Return an epoch of each variant; torch is first, to fork before threads are started."""
    peers: dict[str, Callable[[], Epoch | None]] = {
        "torch, .npy": partial(_torch_epoch, files, workers),
        "ArrayRecord": partial(_array_record_epoch, files, workers, False),
        "ArrayRecord, by record": partial(_array_record_epoch, files, workers, True),
        "WebDataset": partial(_webdataset_epoch, files, workers),
    }
    result: dict[str, Epoch] = {}
    for name, make in peers.items():
        try:
            epoch = make()
        except ImportError:
            continue
        if epoch is not None:
            result[name] = epoch
    kinds = {".npy": "npy", ".rec": "rec", ".rec, ragged": "ragged", ".tfrecord": "tfrecord"}
    for kind, suffix in kinds.items():
        if suffix == "tfrecord" and not files.has_tfrecord:
            continue
        result[f"layoutkit, {kind}"] = _layoutkit_epoch(files, workers, suffix, stack)
    return result


def check(name: str, epoch: Epoch, rows: Array) -> None:
    """Exit with an error unless an epoch has every record once."""
    records = np.array(
        [np.frombuffer(bytes(record), np.uint8) for batch in epoch() for record in batch]
    )
    if records.shape != rows.shape or not np.array_equal(_in_order(records), _in_order(rows)):
        sys.exit(f"{name}: an epoch does not have every record once")


def _in_order(rows: Array) -> Array:
    """Return rows in the order of their first 8 bytes, which differ."""
    order: Array = np.argsort(np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel())
    return rows[order]


def print_records(folder: Path, count: int, rounds: int) -> None:
    """Measure and print the table of raw records."""
    rows = np.random.default_rng(0).integers(0, 256, (count, RECORD_BYTES), np.uint8)
    files = RecordFiles(rows, folder)
    print(f"{count:,} records of {RECORD_BYTES} bytes, batches of {BATCH}, {rounds} rounds")
    print(f"{'workers':7}  {'':24}{'records/s':>11}")
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    for workers in WORKERS:
        with ExitStack() as stack:
            by_name = epochs(files, workers, stack)
            for name, epoch in by_name.items():
                check(name, epoch, rows)
            variants = [Variant(name, [partial(_run_through, by_name[name])]) for name in by_name]
            times = measure(variants, budget)
        for name in sorted(times, key=lambda name: times[name].median):
            print(f"{workers:7}  {name:24}{count / times[name].median:11,.0f}", flush=True)


def _run_through(epoch: Epoch) -> None:
    for _ in epoch():
        pass
