"""Epochs of MNIST beside what memory allows, the last table of `python -m layoutkit.bench.feeding`.

As many pictures of 28 x 28 random bytes as MNIST has, in an idx file, become normalised float32
`bchw` in batches of 128:

    limit               the pass of limit.py that reads and writes as many bytes, in one array
    convert             all pictures in one conversion, into an array that is there
    in order, shuffled  an epoch of an MNISTProvider, with a look at the arrays of every batch
    torch               a DataLoader over pictures, each of which is normalised by itself
    torch, by batches   one whose dataset takes lists of numbers, and normalises batches

A share is that of the limit. Every variant has to deliver every picture first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..converter import Converter
from ..data import MNISTProvider
from .host import limit_pass, streaming_is_faster
from .protocol import Budget, Variant, measure, paired_ratio

Array = npt.NDArray[Any]
Epoch = Callable[[], Any]

SIDE = 28
BATCH = 128
SCALE = 1 / 255
LIMIT = "limit"


def write_pictures(count: int, folder: Path) -> tuple[Path, Path]:
    """idx files of random pictures, and of labels that are the first pixel of each."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE), np.uint8)
    paths = folder / "images.idx3-ubyte", folder / "labels.idx1-ubyte"
    for path, array in zip(paths, (pixels, pixels[:, 0, 0]), strict=True):
        sizes = np.array(array.shape, ">u4").tobytes()
        path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())
    return paths


class Pictures:
    """A dataset of torch's: pictures by number, or batches of them by lists of numbers."""

    def __init__(self, pixels: Array) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: Any) -> Any:
        import torch

        found = torch.from_numpy(self.pixels[number])
        return found.to(torch.float32).mul_(SCALE)


def epochs(image: Path, label: Path, pixels: Array) -> dict[str, Epoch]:
    """An epoch of each feeder: an iterable of arrays."""

    def looked_at(provider: MNISTProvider) -> Any:
        for batch in provider:
            (x,) = provider.get_data(batch)
            (y,) = provider.get_label(batch)
            yield x.input[: batch.count], y.input[: batch.count]

    found: dict[str, Epoch] = {}
    for name, shuffle in (("in order", False), ("shuffled", True)):
        provider = MNISTProvider(image, label, batch_size=BATCH, shuffle=shuffle, scale=SCALE)
        found[name] = partial(looked_at, provider)
    try:
        from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
    except ImportError:
        return found
    data: Any = Pictures(pixels)
    by_batches = BatchSampler(SequentialSampler(data), BATCH, drop_last=False)
    singly = DataLoader(data, batch_size=BATCH)
    batches = DataLoader(data, sampler=by_batches, batch_size=None)
    found["torch"] = lambda: ((batch,) for batch in singly)
    found["torch, by batches"] = lambda: ((batch,) for batch in batches)
    return found


def check(name: str, epoch: Epoch, wanted: Array) -> None:
    """Stop unless an epoch has every picture once."""
    got = np.concatenate([np.asarray(x).reshape(-1, *wanted.shape[1:]) for x, *_ in epoch()])
    sums = [np.sort(each.sum((1, 2, 3), np.float64)) for each in (got, wanted)]
    if got.shape != wanted.shape or not np.allclose(sums[0], sums[1]):
        sys.exit(f"{name}: an epoch does not have every picture once")


def run_through(epoch: Epoch) -> None:
    """Take every batch of an epoch."""
    for _ in epoch():
        pass


def main(folder: Path, count: int, rounds: int) -> None:
    """Measure and print the table."""
    image, label = write_pictures(count, folder)
    pixels = np.fromfile(image, np.uint8, offset=16).reshape(count, 1, SIDE, SIDE)
    planes = Converter("bchw->bchw", dtype="float32", scale=SCALE)
    target = planes(pixels)
    found = epochs(image, label, pixels)
    for name, epoch in found.items():
        check(name, epoch, target)
    limit = limit_pass([pixels], target, streaming_is_faster([pixels], target))
    variants = [Variant(LIMIT, [limit]), Variant("convert", [partial(planes, pixels, target)])]
    variants += [Variant(name, [partial(run_through, epoch)]) for name, epoch in found.items()]
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    times = measure(variants, budget)
    print(f"\n{count:,} pictures of MNIST's size, batches of {BATCH}, {rounds} rounds")
    print(f"{'':18}{'ms an epoch':>12}{'share':>7}")
    for name, taken in times.items():
        share = f"{paired_ratio(times[LIMIT], taken):.2f}"
        print(f"{name:18}{taken.median * 1e3:12.1f}{share:>7}", flush=True)
