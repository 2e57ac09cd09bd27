"""`--loaders`: images per second from files to batches, compared with other data loaders.

JPEGs of mixed sizes become random resized crops of 224, half of them mirrored, normalized, as
float32 `bchw` in batches of 64, in random order:

    decoding alone      threads that decode JPEGs that are in memory, and nothing else
    and resizing        the same, and a Collator that resizes each batch of them: all the work
    layoutkit           a folder, a .rec, tars, a Parquet table; threads
    torch               a DataLoader of a folder, worker processes
    grain               a MapDataset of a folder, reading threads
    WebDataset          tars, read in order with a shuffle buffer, in a DataLoader
    DALI                its pipeline on the CPU, of a folder; it decodes only the crops

torch, grain and WebDataset use layoutkit's decoder (simplejpeg, or else Pillow) and torchvision's
v2 transforms. A share is relative to decoding alone with as many threads; "of work" is relative to
decoding and resizing. 0 workers: the thread of the loop does all work. A second table has raw
records (see loader_records.py).

Variants take turns (see protocol.py); a sample is an epoch. Every variant has to deliver every
image first. Variants whose libraries are not installed are omitted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import Collator
from ..data import sampled_batcher
from ..images.decode import decode_pixels
from . import photos
from .host import set_passive_wait_policy
from .protocol import Budget, Variant, measure, paired_ratio

Epoch = Callable[[], Iterable[Any]]  # an iterable of (images, classes)

CROP = 224
BATCH = 64
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
WORKERS = (0, 1, 2, 4)
ALONE = "decoding alone"
WORK = "and resizing"


@dataclass(frozen=True)
class Files:
    """A set of JPEGs in memory and in files of all kinds. `table` is None without pyarrow."""

    jpegs: Sequence[bytes]
    folder: Path
    rec: Path
    tars: Sequence[Path]
    table: Path | None

    @classmethod
    def write(cls, count: int, folder: Path) -> Files:
        """Write the files of `count` JPEGs."""
        jpegs = list(photos.make_jpegs(count))
        return cls(
            jpegs,
            photos.write_folder(jpegs, folder),
            photos.write_rec(jpegs, folder),
            photos.write_tars(jpegs, folder),
            photos.write_parquet(jpegs, folder),
        )

    def listed(self) -> list[tuple[Path, int]]:
        """Return the files of the folder with their classes."""
        return [(path, int(path.parent.name)) for path in sorted(self.folder.glob("*/*.jpg"))]


# ---- variants ----------------------------------------------------------------------------


def decode_alone(jpegs: Sequence[bytes], pool: ThreadPoolExecutor | None, threads: int) -> None:
    """Decode all JPEGs, on the threads of a pool or on this one."""

    def share(first: int) -> None:
        for data in jpegs[first::threads]:
            decode_pixels(data)

    if pool is None:
        share(0)
    else:
        list(pool.map(share, range(threads)))


def decode_and_resize(
    jpegs: Sequence[bytes], pool: ThreadPoolExecutor | None, threads: int, views: Collator
) -> None:
    """Decode all JPEGs and collate them in batches, on the threads of a pool or on this one."""
    rng = np.random.default_rng(0)
    sides = np.sqrt(rng.uniform(0.08, 1.0, len(jpegs)))  # random areas, as random crops have

    def collate(first: int) -> None:
        images = [decode_pixels(data).array for data in jpegs[first : first + BATCH]]
        shapes = np.array([image.shape[:2] for image in images])
        crops = np.maximum(1, shapes * sides[first : first + BATCH, None]).astype(int)
        views(images, crop={"h": crops[:, 0], "w": crops[:, 1]})

    def share(number: int) -> None:
        for first in range(number * BATCH, len(jpegs), threads * BATCH):
            collate(first)

    if pool is None:
        share(0)
    else:
        list(pool.map(share, range(threads)))


def make_views() -> Collator:
    """Return the Collator of decoded images."""
    return Collator(
        "hwc->bchw", h=CROP, w=CROP, resize="bilinear", dtype="float32", scale=1 / 255, mean=MEAN,
        std=STD,
    )  # fmt: skip


def layoutkit_epoch(source: Any, workers: int, stack: ExitStack) -> Epoch:
    """Return an epoch of a Batcher."""
    batches = stack.enter_context(
        sampled_batcher(
            source, batch_size=BATCH, sampler="shuffle", num_workers=workers,
            collate=make_views(), crop="random", flip="random",
        )
    )  # fmt: skip
    return lambda: ((batch.input.forward_get("bchw"), batch.label) for batch in batches)


class _Transform:
    """A JPEG as a tensor, cropped, resized, mirrored and normalized by torchvision."""

    def __init__(self) -> None:
        import torch
        from torchvision.transforms import v2

        steps: list[Any] = [v2.RandomResizedCrop(CROP, antialias=True), v2.RandomHorizontalFlip()]
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        self._steps: Any = v2.Compose(steps)

    def __call__(self, data: bytes) -> Any:
        import torch

        return self._steps(torch.from_numpy(decode_pixels(data).array).permute(2, 0, 1))


class _FolderDataset:
    """A map-style dataset of torch, or a source of grain: the images of a folder."""

    def __init__(self, listed: Sequence[tuple[Path, int]]) -> None:
        self._listed = listed
        self._transform = _Transform()

    def __len__(self) -> int:
        return len(self._listed)

    def __getitem__(self, number: int) -> Any:
        path, number_of_class = self._listed[number]
        return self._transform(path.read_bytes()), number_of_class


def torch_epoch(files: Files, workers: int) -> Epoch:
    """Return an epoch of a DataLoader."""
    from torch.utils.data import DataLoader

    dataset: Any = _FolderDataset(files.listed())
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, **options)
    return lambda: loader


def grain_epoch(files: Files, workers: int) -> Epoch:
    """Return an epoch of grain, in the order of another seed each time."""
    import grain

    images: Any = _FolderDataset(files.listed())
    seeds = iter(range(1_000_000))
    options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=2 * BATCH * (workers > 0))

    def epoch() -> Iterator[Any]:
        order = grain.MapDataset.source(range(len(images))).seed(next(seeds)).shuffle()
        records = order.map(lambda number: _as_arrays(*images[number]))
        yield from records.to_iter_dataset(options).batch(BATCH, drop_remainder=False)

    return epoch


def _as_arrays(image: Any, number_of_class: int) -> tuple[Any, int]:
    return image.numpy(), number_of_class


def webdataset_epoch(files: Files, workers: int) -> Epoch:
    """Return an epoch of the tars, each read by one worker."""
    import webdataset
    from torch.utils.data import DataLoader

    dataset = (
        webdataset.WebDataset(
            [str(path) for path in files.tars], shardshuffle=len(files.tars), empty_check=False
        )
        .shuffle(100)
        .to_tuple("jpg", "cls")
        .map_tuple(_Transform(), int)
        .batched(BATCH)
    )
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader: Any = DataLoader(dataset, batch_size=None, **options)
    return lambda: loader


def dali_epoch(files: Files, workers: int) -> Epoch | None:
    """Return an epoch of a pipeline of DALI; None for 0 workers: DALI always has threads."""
    from nvidia.dali import fn, pipeline_def, types

    if not workers:
        return None

    def graph() -> Any:
        encoded, classes = fn.readers.file(
            file_root=str(files.folder), random_shuffle=True, name="photos", pad_last_batch=False
        )
        crops = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=(0.08, 1.0)
        )
        resized = fn.resize(crops, size=(CROP, CROP), interp_type=types.INTERP_LINEAR)
        normalized = fn.crop_mirror_normalize(
            resized,
            mirror=fn.random.coin_flip(),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            output_layout="CHW",
            dtype=types.FLOAT,
        )
        return normalized, classes

    options = {"batch_size": BATCH, "num_threads": workers, "device_id": None, "seed": 0}
    pipeline: Any = pipeline_def(**options)(graph)()
    pipeline.build()

    def epoch() -> Iterator[Any]:
        for first in range(0, len(files.jpegs), BATCH):
            images, classes = pipeline.run()
            count = min(BATCH, len(files.jpegs) - first)
            yield images.as_array()[:count], classes.as_array()[:count]

    return epoch


PEERS = {
    "torch": torch_epoch,
    "WebDataset": webdataset_epoch,
    "grain": grain_epoch,
    "DALI": dali_epoch,
}


def epochs(files: Files, workers: int, stack: ExitStack) -> dict[str, Epoch]:
    """Return an epoch of each variant; torch is first, to fork before threads are started."""
    result: dict[str, Epoch] = {}
    for name, make in PEERS.items():
        try:
            epoch = make(files, workers)
        except ImportError:
            continue
        if epoch is not None:
            check(name, epoch, len(files.jpegs))
            result[name] = epoch
    tars = [str(path) for path in files.tars]
    sources = {"folder": files.folder, ".rec": files.rec, "tars": tars, "Parquet": files.table}
    for kind, source in sources.items():
        if source is not None:
            name = f"layoutkit, {kind}"
            result[name] = layoutkit_epoch(_as_source(source), workers, stack)
            check(name, result[name], len(files.jpegs))
    return result


def _as_source(source: Any) -> Any:
    """Return several files as one source, by a wildcard."""
    return str(Path(source[0]).parent / "photos-*.tar") if isinstance(source, list) else source


# ---- measuring ---------------------------------------------------------------------------


def check(name: str, epoch: Epoch, count: int) -> None:
    """Exit with an error unless an epoch has as many images of each class as were written."""
    classes: list[int] = []
    shapes = set()
    for images, labels in epoch():
        shapes.add(np.asarray(images).shape[1:])
        classes += [int(label) for label in np.asarray(labels).ravel()]
    expected = sorted(number % photos.CLASSES for number in range(count))
    # DALI fills its last batch from the next epoch, so some images may come later.
    is_complete = sorted(classes) == expected or (name == "DALI" and len(classes) == count)
    if shapes != {(3, CROP, CROP)} or not is_complete:
        sys.exit(f"{name}: an epoch does not have every image once, as 3 x {CROP} x {CROP}")


def run_through(epoch: Epoch) -> None:
    """Iterate over every batch of an epoch."""
    for _ in epoch():
        pass


def print_images(files: Files, rounds: int) -> None:
    """Measure and print the table of images."""
    count = len(files.jpegs)
    kilobytes = sum(map(len, files.jpegs)) / count / 1000
    print(
        f"{count:,} JPEGs of about {kilobytes:.0f} kB -> {CROP} x {CROP}, batches of {BATCH}, "
        f"{rounds} rounds; share: of decoding alone, and of decoding and resizing"
    )
    print(f"{'workers':7}  {'':20}{'images/s':>10}{'share':>7}{'of work':>9}")
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    for workers in WORKERS:
        with ExitStack() as stack:
            by_name = epochs(files, workers, stack)
            pool = stack.enter_context(ThreadPoolExecutor(workers)) if workers else None
            work = (files.jpegs, pool, max(1, workers))
            variants = [
                Variant(ALONE, [partial(decode_alone, *work)]),
                Variant(WORK, [partial(decode_and_resize, *work, make_views())]),
            ]
            variants += [Variant(name, [partial(run_through, by_name[name])]) for name in by_name]
            times = measure(variants, budget)
        loaders = sorted(by_name, key=lambda name: times[name].median)
        for name in (ALONE, WORK, *loaders):
            rate = count / times[name].median
            share, of_work = (paired_ratio(times[base], times[name]) for base in (ALONE, WORK))
            print(f"{workers:7}  {name:20}{rate:10,.0f}{share:7.2f}{of_work:9.2f}", flush=True)


def run_loaders(quick: bool) -> int:
    """Measure and print both tables; return 0, or exit with an error if images are missing."""
    from .loader_records import print_records

    print(set_passive_wait_policy())
    with tempfile.TemporaryDirectory() as folder:
        print_images(Files.write(200 if quick else 1_000, Path(folder)), 1 if quick else 5)
    print()
    with tempfile.TemporaryDirectory() as folder:
        print_records(Path(folder), 10_000 if quick else 100_000, 1 if quick else 5)
    return 0
