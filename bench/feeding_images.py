"""Batches of JPEGs from a .rec: the images of `python -m layoutkit.bench.feeding`.

Images of 500 x 375 with the spectrum of photographs, quality 90, become random crops of 224, half
of them mirrored, normalised, as float32 `bchw` in batches of 64:

    decoding alone      threads that decode the JPEGs, which are in memory, and nothing else
    read and decoded    threads that also read each record before decoding it
    layoutkit           an ImageRecordProvider, with as many threads
    torch               a DataLoader with as many processes: torchvision's decode_jpeg, and v2
                        transforms on each image (RandomCrop, flip, ToDtype, Normalize)
    DALI                its pipeline on the CPU with as many threads, from the same .rec and .idx

A share is relative to decoding alone. Every variant has to deliver every image first; variants
that are not installed are omitted. `python -m layoutkit.bench.feeding_images` prints only this
table.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data import ImageRecordProvider
from ..data.io.image_record import pack_image, unpack_image
from ..data.recordio import RecordWriter, read_records
from ..images.decode import decode_pixels
from .host import set_passive_wait_policy
from .protocol import Budget, Variant, measure, paired_ratio

Array = npt.NDArray[Any]
Epoch = Callable[[], Any]  # an iterable of (data, labels)

SIZE = (375, 500)
CROP = 224
BATCH = 64
QUALITY = 90
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
ALONE = "decoding alone"
READ = "read and decoded"
OURS = "layoutkit"
_BASES = 16  # all images are shifted copies of these


def make_photo(seed: int) -> Array:
    """Return noise with equal power in every octave, as in photographs, grey with some colour."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    height, width = SIZE
    image = np.zeros((height, width, 3), np.float32)
    side = 4
    while side <= width:
        for strength, channels in ((17.0, slice(None)), (5.0, slice(0, 1)), (5.0, slice(2, 3))):
            small = rng.normal(0, strength, (side * 3 // 4, side)).astype(np.float32)
            enlarged = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
            image[..., channels] += np.asarray(enlarged)[..., None]
        side *= 2
    return np.clip(image + 118, 0, 255).astype(np.uint8)


def write_photos(count: int, folder: Path) -> Path:
    """Write a .rec of `count` JPEGs, with its .idx; the labels are their indices."""
    from PIL import Image

    bases = [make_photo(seed) for seed in range(min(count, _BASES))]
    rng = np.random.default_rng(0)
    path = folder / "photos.rec"
    with RecordWriter(path) as writer:
        for number in range(count):
            shift = rng.integers(0, SIZE)
            pixels = np.roll(bases[number % len(bases)], shift, axis=(0, 1))
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
            writer.write(pack_image(file.getvalue(), number, id=number))
    return path


# ---- Variants --------------------------------------------------------------------------------


def decode_alone(files: Sequence[bytes], pool: ThreadPoolExecutor, workers: int) -> None:
    """Decode all files, a share on each thread."""

    def share(first: int) -> None:
        for data in files[first::workers]:
            decode_pixels(data)

    list(pool.map(share, range(workers)))


def read_and_decode(path: Path, pool: ThreadPoolExecutor, workers: int) -> None:
    """Read and decode all records of a .rec, a share on each thread."""
    offsets = _offsets(path)
    spans = [(begin, end - begin) for begin, end in pairwise(offsets)]
    with path.open("rb") as file:

        def share(first: int) -> None:
            for begin, length in spans[first::workers]:
                decode_pixels(unpack_image(os.pread(file.fileno(), length, begin)[8:])[1])

        list(pool.map(share, range(workers)))


class RecDataset:
    """A torch dataset of the images of a .rec, cropped, mirrored and normalised."""

    def __init__(self, path: Path) -> None:
        from torchvision.transforms import v2

        self.path = path
        self.offsets = _offsets(path)
        self.transform: Any = _torch_transforms(v2)
        self.file: int | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> Any:
        import torch
        from torchvision.io import decode_jpeg

        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        begin, end = self.offsets[number : number + 2]
        header, data = unpack_image(os.pread(self.file, end - begin, begin)[8:])
        pixels = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return self.transform(pixels), header.labels[0]


def _torch_transforms(v2: Any) -> Any:
    import torch

    mean = [m / 255 for m in MEAN]
    std = [s / 255 for s in STD]
    crop = v2.RandomCrop(CROP)
    flip = v2.RandomHorizontalFlip()
    return v2.Compose([crop, flip, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])


def _offsets(path: Path) -> list[int]:
    lines = path.with_suffix(".idx").read_text().splitlines()
    return [int(line.split()[1]) for line in lines] + [path.stat().st_size]


def _make_torch_epoch(path: Path, workers: int) -> Epoch | None:
    try:
        from torch.utils.data import DataLoader

        dataset: Any = RecDataset(path)
    except ImportError:
        return None
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, **options)
    return lambda: iter(loader)


def _layoutkit_call(path: Path, workers: int, stack: ExitStack) -> Epoch:
    provider = ImageRecordProvider(
        path,
        (3, CROP, CROP),
        batch_size=BATCH,
        num_workers=workers,
        shuffle=True,
        rand_crop=True,
        rand_mirror=True,
        mean=MEAN,
        std=STD,
    )
    stack.enter_context(provider)
    return lambda: (
        (batch.input.input[: batch.count], batch.label[0].input[: batch.count])
        for batch in provider
    )


def _make_dali_epoch(path: Path, workers: int) -> Epoch | None:
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError:
        return None

    def graph() -> Any:
        files, labels = fn.readers.mxnet(
            path=[str(path)],
            index_path=[str(path.with_suffix(".idx"))],
            random_shuffle=True,
            name="photos",
            pad_last_batch=False,
        )
        images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
        crop_position = {f"crop_pos_{axis}": fn.random.uniform(range=(0, 1)) for axis in "xy"}
        normalised = fn.crop_mirror_normalize(
            images,
            crop=(CROP, CROP),
            mirror=fn.random.coin_flip(),
            mean=list(MEAN),
            std=list(STD),
            output_layout="CHW",
            dtype=types.FLOAT,
            **crop_position,
        )
        return normalised, labels

    options = {"batch_size": BATCH, "num_threads": workers, "device_id": None, "seed": 0}
    pipeline: Any = pipeline_def(**options)(graph)()
    pipeline.build()
    total = pipeline.epoch_size("photos")

    def epoch() -> Any:
        for first in range(0, total, BATCH):
            data, labels = pipeline.run()
            count = min(BATCH, total - first)
            yield data.as_array()[:count], labels.as_array()[:count]

    return epoch


def epochs(path: Path, workers: int, stack: ExitStack) -> dict[str, Epoch]:
    """Return an epoch of each variant; torch's first, which forks before threads are started."""
    candidates = {
        "torch": _make_torch_epoch(path, workers),
        "DALI": _make_dali_epoch(path, workers),
    }
    available = {name: epoch for name, epoch in candidates.items() if epoch is not None}
    return {**available, OURS: _layoutkit_call(path, workers, stack)}


# ---- Measuring -------------------------------------------------------------------------------


def check(name: str, epoch: Epoch, count: int) -> None:
    """Exit with an error unless an epoch has every image once, in the expected shape."""
    labels = []
    shapes = set()
    for x, y in epoch():
        shapes.add(np.asarray(x).shape[1:])
        labels += np.asarray(y).ravel().astype(int).tolist()
    # DALI fills its last batch from the next epoch, so some of its images may come later.
    is_complete = sorted(labels) == list(range(count)) or name == "DALI"
    if shapes != {(3, CROP, CROP)} or len(labels) != count or not is_complete:
        sys.exit(f"{name}: an epoch does not have every image once")


def run_through(epoch: Epoch) -> None:
    """Iterate over every batch of an epoch."""
    for _ in epoch():
        pass


def print_table(folder: Path, count: int, rounds: int, workers: int = 2) -> None:
    """Measure and print the table."""
    path = write_photos(count, folder)
    files = [unpack_image(payload)[1] for payload in read_records(path)]
    size = sum(map(len, files)) / count
    with ExitStack() as stack:
        by_name = epochs(path, workers, stack)
        for name, epoch in by_name.items():
            check(name, epoch, count)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        variants = [
            Variant(ALONE, [partial(decode_alone, files, pool, workers)]),
            Variant(READ, [partial(read_and_decode, path, pool, workers)]),
        ]
        variants += [Variant(name, [partial(run_through, by_name[name])]) for name in by_name]
        budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
        times = measure(variants, budget)
    print(
        f"\n{count:,} JPEGs of {SIZE[1]} x {SIZE[0]}, {size / 1000:.0f} kB each, batches of "
        f"{BATCH}, {workers} threads or processes, {rounds} rounds"
    )
    print(f"{'':18}{'images/s':>12}{'share':>7}")
    for name, taken in times.items():
        share = f"{paired_ratio(times[ALONE], taken):.2f}"
        print(f"{name:18}{count / taken.median:12,.0f}{share:>7}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; return 0, or exit with an error if a variant misses images."""
    parser = argparse.ArgumentParser(prog="python -m layoutkit.bench.feeding_images")
    parser.add_argument("--photos", type=int, default=2_000, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    options = parser.parse_args(argv)
    print(set_passive_wait_policy())
    with tempfile.TemporaryDirectory() as folder:
        print_table(Path(folder), options.photos, options.rounds, options.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
