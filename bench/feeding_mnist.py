"""Epochs of MNIST compared with the memory limit: the last table of `layoutkit.bench.feeding`.

As many images of 28 x 28 random bytes as MNIST has, in an idx file, become normalised float32
`bchw` in batches of 128:

    limit               the streaming pass of host.py over as many bytes
    convert             all images in one conversion, into an existing array
    in order, shuffled  an epoch of an MNISTProvider, with access to the arrays of every batch
    torch               a DataLoader over images, which are normalised one by one
    torch, by batches   a DataLoader whose dataset accepts lists of indices and normalises batches

The share is the time of the limit divided by the time of the variant. Every variant is checked
first: an epoch must have every image once.
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


def write_mnist(count: int, folder: Path) -> tuple[Path, Path]:
    """Write idx files of random images and of labels, the first pixel of each image."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE), np.uint8)
    paths = folder / "images.idx3-ubyte", folder / "labels.idx1-ubyte"
    for path, array in zip(paths, (pixels, pixels[:, 0, 0]), strict=True):
        sizes = np.array(array.shape, ">u4").tobytes()
        path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())
    return paths


class MnistDataset:
    """A torch dataset: images by index, or batches of images by lists of indices."""

    def __init__(self, pixels: Array) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: Any) -> Any:
        import torch

        images = torch.from_numpy(self.pixels[number])
        return images.to(torch.float32).mul_(SCALE)


def epochs(image: Path, label: Path, pixels: Array) -> dict[str, Epoch]:
    """Return, by variant name, a function that iterates over the arrays of an epoch."""

    def read_batches(provider: MNISTProvider) -> Any:
        for batch in provider:
            (x,) = provider.get_data(batch)
            (y,) = provider.get_label(batch)
            yield x.input[: batch.count], y.input[: batch.count]

    result: dict[str, Epoch] = {}
    for name, shuffle in (("in order", False), ("shuffled", True)):
        provider = MNISTProvider(image, label, batch_size=BATCH, shuffle=shuffle, scale=SCALE)
        result[name] = partial(read_batches, provider)
    try:
        from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
    except ImportError:
        return result
    dataset: Any = MnistDataset(pixels)
    batch_sampler = BatchSampler(SequentialSampler(dataset), BATCH, drop_last=False)
    loader = DataLoader(dataset, batch_size=BATCH)
    batch_loader = DataLoader(dataset, sampler=batch_sampler, batch_size=None)
    result["torch"] = lambda: ((batch,) for batch in loader)
    result["torch, by batches"] = lambda: ((batch,) for batch in batch_loader)
    return result


def check(name: str, epoch: Epoch, expected: Array) -> None:
    """Exit with an error unless an epoch has every image once."""
    images = np.concatenate([np.asarray(x).reshape(-1, *expected.shape[1:]) for x, *_ in epoch()])
    sums = [np.sort(array.sum((1, 2, 3), np.float64)) for array in (images, expected)]
    if images.shape != expected.shape or not np.allclose(sums[0], sums[1]):
        sys.exit(f"{name}: an epoch does not have every image once")


def run_through(epoch: Epoch) -> None:
    """Iterate over every batch of an epoch."""
    for _ in epoch():
        pass


def main(folder: Path, count: int, rounds: int) -> None:
    """Measure and print the table."""
    image, label = write_mnist(count, folder)
    pixels = np.fromfile(image, np.uint8, offset=16).reshape(count, 1, SIDE, SIDE)
    converter = Converter("bchw->bchw", dtype="float32", scale=SCALE)
    target = converter(pixels)
    by_name = epochs(image, label, pixels)
    for name, epoch in by_name.items():
        check(name, epoch, target)
    limit = limit_pass([pixels], target, streaming_is_faster([pixels], target))
    variants = [Variant(LIMIT, [limit]), Variant("convert", [partial(converter, pixels, target)])]
    variants += [Variant(name, [partial(run_through, epoch)]) for name, epoch in by_name.items()]
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    times = measure(variants, budget)
    print(f"\n{count:,} images of MNIST's size, batches of {BATCH}, {rounds} rounds")
    print(f"{'':18}{'ms an epoch':>12}{'share':>7}")
    for name, epoch_times in times.items():
        share = f"{paired_ratio(times[LIMIT], epoch_times):.2f}"
        print(f"{name:18}{epoch_times.median * 1e3:12.1f}{share:>7}", flush=True)
