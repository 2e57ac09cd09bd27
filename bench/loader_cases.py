"""The tables of `--loaders`: files that are generated, and the loaders that read them.

images      JPEGs of mixed sizes become random resized crops of 224, half of them mirrored,
            normalized, as float32 `bchw`, in random order. layoutkit reads a folder, a .rec, tars,
            a Parquet table, and a mixture of two halves of the folder; torch, grain and DALI the
            folder, WebDataset the tars in order with a shuffle buffer. DALI decodes only the crops;
            the others use layoutkit's decoder (simplejpeg, or else Pillow) and torchvision's v2
            transforms, or Pillow's without torchvision. "decoding": JPEGs in memory, and nothing
            else; "resizing": also a Collator that resizes each batch
whole,      the same folder without random crops: whole images, and central crops. "first epoch" and
center      "later epochs" keep decoded images by cache="ram"
records     1 kB of bytes each, in random order. layoutkit reads a .npy, a .rec as rows and as
            ragged records, and a .tfrecord with its checksums; torch a memory map by lists of
            indices; ArrayRecord `__getitems__` of a batch, or one record at a time as a dataset
            does; WebDataset a tar in order with a shuffle buffer. The last two have no workers and
            deliver lists of bytes
table       64 floats each. A csv has their positions in one file: a getter reads bytes, and a
            processor converts them. torch's dataset calls the same two functions
array       the same as rows of an array in memory, and as a mixture of its halves
MNIST       images of MNIST's size in an idx file, normalized, compared with a streaming pass over
            as many bytes ("limit") and one conversion of all images ("convert")

"torch, by batches" is a DataLoader with a BatchSampler as `sampler`, whose dataset accepts lists of
indices, which is less known but faster. All files are in the page cache.
"""

from __future__ import annotations

import io
import os
import random
import struct
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..collator import Collator
from ..converter import Converter
from ..data import MNISTProvider, mix, open_index, sampled_batcher
from ..data.io import crc32c
from ..data.recordio import RecordWriter
from ..images.reading import decode_pixels
from . import photos
from .host import Array, Call, limit_pass, streaming_is_faster
from .rows import MEAN, SCALE, STD

Epoch = Callable[[], Iterable[Any]]  # an iterable of batches
Loader = Callable[[int, ExitStack], Epoch | None]  # of a number of workers; None: not supported

CROP = 224
# The options of a Collator by the kind of crops.
CROPS: dict[str, dict[str, Any]] = {
    "random": {"crop": "random", "flip": "random"},
    "whole": {},
    "center": {"fit": "cover"},
}
RECORD_BYTES = 1000
WIDTH = 64  # floats of a record
SIDE = 28


def _no_baselines(workers: int, stack: ExitStack) -> dict[str, Call]:
    return {}


@dataclass(frozen=True)
class LoaderCase:
    """One table: records in files, and the loaders that read them."""

    title: str
    unit: str
    count: int  # of records
    workers: Sequence[int]
    loaders: Mapping[str, Loader]  # torch first, to fork processes before threads are started
    check: Callable[[str, Epoch], None]  # exits unless an epoch has every record once
    shares: Sequence[str] = ()  # names of lines whose speed the others are compared with
    baselines: Callable[[int, ExitStack], dict[str, Call]] = field(default=_no_baselines)
    missing: list[str] = field(default_factory=list)  # loaders whose libraries are not installed

    def epochs(self, workers: int, stack: ExitStack) -> dict[str, Epoch]:
        """Return a checked epoch of each loader that is installed."""
        epochs: dict[str, Epoch] = {}
        for name, make in self.loaders.items():
            try:
                epoch = make(workers, stack)
            except ImportError:
                if name not in self.missing:
                    self.missing.append(name)
                continue
            if epoch is not None:
                self.check(name, epoch)
                epochs[name] = epoch
        return epochs


def loader_cases(quick: bool) -> Iterator[Callable[[Path], LoaderCase]]:
    """Yield functions that write the files of a table into a folder."""
    for crops in CROPS:
        yield partial(image_case, 200 if quick else 1_000, crops=crops)
    yield partial(record_case, 10_000 if quick else 100_000)
    for kind in ("table", "array"):
        yield partial(float_case, kind, 10_000 if quick else 100_000)
    yield partial(mnist_case, 6_000 if quick else 60_000)


def layoutkit_epoch(
    source: Any, options: dict[str, Any], read: Callable[[Any], Any], workers: int, stack: ExitStack
) -> Epoch:
    """Return an epoch of a Batcher, whose batches `read` accesses."""
    batches = stack.enter_context(sampled_batcher(source, num_workers=workers, **options))
    return lambda: map(read, batches)


def _first_epoch(
    source: Any, options: dict[str, Any], read: Callable[[Any], Any], workers: int, stack: ExitStack
) -> Epoch:
    """Return an epoch of a new Batcher, which is the first one of its cache."""

    def epoch() -> Iterator[Any]:
        with sampled_batcher(source, num_workers=workers, **options) as batches:
            yield from map(read, batches)

    return epoch


def torch_epoch(
    dataset: Any, batch: int, workers: int, stack: ExitStack, by_batches: bool = False
) -> Epoch:
    """Return an epoch of a DataLoader in random order; `by_batches` requests lists of indices."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    if by_batches:
        order = BatchSampler(RandomSampler(dataset), batch, drop_last=False)
        options |= {"sampler": order, "batch_size": None}
    else:
        options |= {"batch_size": batch, "shuffle": True}
    loader = DataLoader(dataset, **options)
    return lambda: loader


class MapDataset:
    """A dataset of torch, or a source of grain: a function of the number of a record.

    The function must be picklable for worker processes.
    """

    def __init__(self, count: int, get: Callable[[Any], Any]) -> None:
        self.count = count
        self.get = get

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: Any) -> Any:
        return self.get(number)


def check_records(rows: Iterable[Any], name: str, epoch: Epoch) -> None:
    """Exit with an error unless an epoch has every record once."""
    if sorted(_as_bytes(x) for batch in epoch() for x in batch) != sorted(map(_as_bytes, rows)):
        sys.exit(f"{name}: an epoch does not have every record once")


def _as_bytes(record: Any) -> bytes:
    return record if isinstance(record, bytes) else np.asarray(record).tobytes()


# ---- images --------------------------------------------------------------------------------


def image_case(count: int, folder: Path, batch: int = 64, crops: str = "random") -> LoaderCase:
    """Write `count` JPEGs into files of all kinds; into a folder only, unless crops are random."""
    jpegs = list(photos.make_jpegs(count))
    images = photos.write_folder(jpegs, folder)
    views = make_views(**CROPS[crops])
    options: dict[str, Any] = {"batch_size": batch, "sampler": "shuffle", "collate": views}
    dataset = partial(_image_dataset, images, crops)
    loaders: dict[str, Loader] = {
        "torch": lambda workers, stack: torch_epoch(dataset(), batch, workers, stack),
        "grain": partial(_grain_images, dataset, batch),
    }
    sources: dict[str, Any] = {"folder": images}
    if crops == "random":
        tars = [str(path) for path in photos.write_tars(jpegs, folder)]
        loaders["WebDataset"] = partial(_webdataset_images, tars, batch)
        loaders["DALI"] = partial(_dali_images, images, count, batch)
        halves = [open_index(images)[first::2] for first in range(2)]
        sources |= {
            ".rec": photos.write_rec(jpegs, folder),
            "tars": str(folder / "photos-*.tar"),
            "Parquet": photos.write_parquet(jpegs, folder),  # None without pyarrow
            "mixture": mix([(half, 1) for half in halves], on_end="drop"),
        }
    for kind, source in sources.items():
        if source is not None:
            loaders[f"layoutkit, {kind}"] = partial(
                layoutkit_epoch, source, options, _read_image_batch
            )
    if crops != "random":
        cached = (images, options | {"cache": "ram"}, _read_image_batch)
        loaders["layoutkit, first epoch"] = partial(_first_epoch, *cached)
        loaders["layoutkit, later epochs"] = partial(layoutkit_epoch, *cached)
    kilobytes = sum(map(len, jpegs)) / count / 1000
    files = f"{count:,} JPEGs of about {kilobytes:.0f} kB"
    return LoaderCase(
        f"{files}, {crops} -> {CROP} x {CROP}, batches of {batch}",
        "images",
        count,
        (0, 1, 2, 4) if crops == "random" else (0, 1, 2),
        loaders,
        partial(check_images, count),
        ("decoding", "resizing"),
        partial(_image_baselines, jpegs, batch),
    )


def _read_image_batch(batch: Any) -> tuple[Any, Any]:
    return batch.input.forward_get("bchw"), batch.label


def make_views(**draws: Any) -> Collator:
    """Return the Collator of decoded images, with these crops and flips."""
    formula: dict[str, Any] = {"dtype": "float32", "scale": SCALE, "mean": MEAN, "std": STD}
    return Collator("hwc->bchw", h=CROP, w=CROP, resize="bilinear", **formula, **draws)


def check_images(count: int, name: str, epoch: Epoch) -> None:
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


def _image_baselines(
    jpegs: Sequence[bytes], batch: int, workers: int, stack: ExitStack
) -> dict[str, Call]:
    """Return calls that decode all images, and decode and resize them, on threads."""
    threads = max(1, workers)
    views = make_views()
    # Random areas, as random crops have.
    sides = np.sqrt(np.random.default_rng(0).uniform(0.08, 1.0, len(jpegs)))

    def decode(number: int) -> None:
        for data in jpegs[number::threads]:
            decode_pixels(data)

    def resize(number: int) -> None:
        for first in range(number * batch, len(jpegs), threads * batch):
            images = [decode_pixels(data).array for data in jpegs[first : first + batch]]
            shapes = np.array([image.shape[:2] for image in images])
            crops = np.maximum(1, shapes * sides[first : first + batch, None]).astype(int)
            views(images, crop={"h": crops[:, 0], "w": crops[:, 1]})

    if not workers:
        return {"decoding": partial(decode, 0), "resizing": partial(resize, 0)}
    pool = stack.enter_context(ThreadPoolExecutor(workers))
    return {
        "decoding": lambda: [*pool.map(decode, range(threads))],
        "resizing": lambda: [*pool.map(resize, range(threads))],
    }


def _make_transform(crops: str = "random") -> Callable[[bytes], Any]:
    """Return torchvision's steps from a JPEG to a tensor, or Pillow's if that is missing."""
    import torch

    try:
        from torchvision.transforms import v2
    except ImportError:
        return partial(_transform_with_pillow, crops)
    steps: list[Any] = {
        "random": [v2.RandomResizedCrop(CROP, antialias=True), v2.RandomHorizontalFlip()],
        "whole": [v2.Resize((CROP, CROP), antialias=True)],
        "center": [v2.Resize(CROP, antialias=True), v2.CenterCrop(CROP)],
    }[crops]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return partial(_transform, v2.Compose(steps))


def _transform_with_pillow(crops: str, data: bytes) -> Any:
    import torch
    from PIL import Image

    pixels = decode_pixels(data).array
    height, width = pixels.shape[:2]
    h, w = height, width
    if crops == "random":
        h, w = (max(1, int(side * random.uniform(0.08, 1) ** 0.5)) for side in (height, width))
    elif crops == "center":
        h = w = min(height, width)
    share = random.random() if crops == "random" else 0.5
    x, y = int((width - w) * share), int((height - h) * share)
    image = Image.fromarray(pixels).resize(
        (CROP, CROP), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h)
    )
    if crops == "random" and random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().mul_(SCALE)
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return tensor.sub_(mean).div_(std)


def _transform(steps: Any, data: bytes) -> Any:
    import torch

    return steps(torch.from_numpy(decode_pixels(data).array).permute(2, 0, 1))


def _image_dataset(folder: Path, crops: str) -> MapDataset:
    paths = sorted(folder.glob("*/*.jpg"))
    return MapDataset(len(paths), partial(_read_image, paths, _make_transform(crops)))


def _read_image(paths: Sequence[Path], transform: Any, number: int) -> tuple[Any, int]:
    path = paths[number]
    return transform(path.read_bytes()), int(path.parent.name)


def _webdataset_images(tars: list[str], batch: int, workers: int, stack: ExitStack) -> Epoch:
    import webdataset
    from torch.utils.data import DataLoader

    records = webdataset.WebDataset(tars, shardshuffle=len(tars), empty_check=False).shuffle(100)
    dataset = records.to_tuple("jpg", "cls").map_tuple(_make_transform(), int).batched(batch)
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader: Any = DataLoader(dataset, batch_size=None, **options)
    return lambda: loader


def _grain_images(
    dataset: Callable[[], MapDataset], batch: int, workers: int, stack: ExitStack
) -> Epoch:
    """Return an epoch of grain, in the order of another seed each time."""
    import grain

    images = dataset()
    seeds = iter(range(1_000_000))
    options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=2 * batch * (workers > 0))

    def read(number: int) -> tuple[Array, int]:
        image, label = images[number]
        return image.numpy(), label

    def epoch() -> Iterator[Any]:
        order = grain.MapDataset.source(range(len(images))).seed(next(seeds)).shuffle()
        records = order.map(read).to_iter_dataset(options)
        yield from records.batch(batch, drop_remainder=False)

    return epoch


def _dali_images(
    folder: Path, count: int, batch: int, workers: int, stack: ExitStack
) -> Epoch | None:
    """Return an epoch of a pipeline of DALI; None for 0 workers: DALI always has threads."""
    from nvidia.dali import fn, pipeline_def, types

    if not workers:
        return None

    def graph() -> Any:
        encoded, classes = fn.readers.file(
            file_root=str(folder), random_shuffle=True, name="photos", pad_last_batch=False
        )
        crops = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=(0.08, 1.0)
        )
        resized = fn.resize(crops, size=(CROP, CROP), interp_type=types.INTERP_LINEAR)
        mean, std = (np.divide(values, SCALE).tolist() for values in (MEAN, STD))
        options = {"mirror": fn.random.coin_flip(), "output_layout": "CHW", "dtype": types.FLOAT}
        return fn.crop_mirror_normalize(resized, mean=mean, std=std, **options), classes

    options = {"batch_size": batch, "num_threads": workers, "device_id": None, "seed": 0}
    pipeline: Any = pipeline_def(**options)(graph)()
    pipeline.build()

    def epoch() -> Iterator[Any]:
        for first in range(0, count, batch):
            images, classes = pipeline.run()
            rows = min(batch, count - first)
            yield images.as_array()[:rows], classes.as_array()[:rows]

    return epoch


# ---- raw records ---------------------------------------------------------------------------


def record_case(count: int, folder: Path, batch: int = 256) -> LoaderCase:
    """Write `count` records of random bytes into files of all kinds."""
    rows = np.random.default_rng(0).integers(0, 256, (count, RECORD_BYTES), np.uint8)
    records = [row.tobytes() for row in rows]
    np.save(folder / "records.npy", rows)
    with RecordWriter(folder / "records.rec") as writer:
        for record in records:
            writer.write(record)
    mapped = np.load(folder / "records.npy", mmap_mode="r")
    loaders: dict[str, Loader] = {
        "torch, .npy": partial(torch_epoch, mapped, batch, by_batches=True),
        "ArrayRecord": partial(_array_record_epoch, records, folder, batch, False),
        "ArrayRecord, by record": partial(_array_record_epoch, records, folder, batch, True),
        "WebDataset": partial(_webdataset_records, records, folder, batch),
    }
    options = {"batch_size": batch, "sampler": "shuffle"}
    as_rows = options | {"input_dims": (RECORD_BYTES,), "dtype": "uint8"}
    sources: list[tuple[str, str, dict[str, Any]]] = [
        (".npy", "npy", options),
        (".rec", "rec", as_rows),
        (".rec, ragged", "rec", options | {"collate": "ragged"}),
    ]
    if _write_tfrecord(records, folder / "records.tfrecord"):
        sources.append((".tfrecord", "tfrecord", as_rows))
    for name, suffix, keywords in sources:
        kind = "raw" if suffix == "rec" else None
        index = open_index(str(folder / f"records.{suffix}"), kind=kind)
        is_ragged = "collate" in keywords
        loaders[f"layoutkit, {name}"] = partial(
            layoutkit_epoch, index, keywords, attrgetter("input" if is_ragged else "input.input")
        )
    title = f"{count:,} records of {RECORD_BYTES} bytes, batches of {batch}"
    check = partial(check_records, records)
    return LoaderCase(title, "records", count, (0, 1, 2), loaders, check)


def _write_tfrecord(records: Sequence[bytes], path: Path) -> bool:
    """Write a TFRecord file; return False without a library for checksums."""
    crc = crc32c.library()
    if crc is None:
        return False
    with path.open("wb") as file:
        for data in records:
            length = struct.pack("<QI", len(data), crc32c.masked_of_length(len(data)))
            file.write(length + data + struct.pack("<I", crc32c.masked(crc(data))))
    return True


def _array_record_epoch(
    records: Sequence[bytes],
    folder: Path,
    batch: int,
    by_record: bool,
    workers: int,
    stack: ExitStack,
) -> Epoch | None:
    from array_record.python import array_record_data_source, array_record_module

    if workers:
        return None
    path = folder / "records.array_record"
    if not path.exists():
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
    source = array_record_data_source.ArrayRecordDataSource(str(path))
    read = (lambda numbers: [source[n] for n in numbers]) if by_record else source.__getitems__
    seeds = iter(range(1_000_000))

    def epoch() -> Iterator[Any]:
        order = np.random.default_rng(next(seeds)).permutation(len(records)).tolist()
        return (read(order[first : first + batch]) for first in range(0, len(order), batch))

    return epoch


def _webdataset_records(
    records: Sequence[bytes], folder: Path, batch: int, workers: int, stack: ExitStack
) -> Epoch | None:
    import webdataset

    if workers:  # one tar is read by one process
        return None
    path = folder / "records.tar"
    with tarfile.open(path, "w") as archive:
        for number, record in enumerate(records):
            entry = tarfile.TarInfo(f"{number:06}.bin")
            entry.size = len(record)
            archive.addfile(entry, io.BytesIO(record))
    dataset = webdataset.WebDataset(str(path), shardshuffle=False).shuffle(1000).to_tuple("bin")
    return lambda: dataset.batched(batch, collation_fn=lambda rows: [data for (data,) in rows])


# ---- rows of floats ------------------------------------------------------------------------


def float_case(kind: str, count: int, folder: Path, batch: int = 256) -> LoaderCase:
    """Return rows of random floats in a "table" of positions in a file, or in an "array"."""
    rows = np.random.default_rng(0).random((count, WIDTH), np.float32)
    options: dict[str, Any] = {"batch_size": batch, "sampler": "permutation"}
    source: Any = {"x": rows}
    loaders: dict[str, Loader] = {}
    if kind == "table":
        source = index = open_index(write_table(rows, folder))
        options |= {"get": read, "processor": decode}
        dataset = MapDataset(count, partial(_read_row, index))
        loaders["torch"] = partial(torch_epoch, dataset, batch)
    else:
        loaders["torch"] = partial(torch_epoch, rows, batch)
        loaders["torch, by batches"] = partial(torch_epoch, rows, batch, by_batches=True)

    def get_rows(batch: Any) -> Array:
        rows: Array = batch.input.forward_get("bf")
        return rows

    loaders["layoutkit"] = partial(layoutkit_epoch, source, options, get_rows)
    if kind == "array":
        mixture = mix([(rows[first::2], 1) for first in range(2)], on_end="drop")
        mixed = options | {"sampler": "shuffle"}
        loaders["layoutkit, mixture"] = partial(layoutkit_epoch, mixture, mixed, get_rows)
    title = f"{kind}: {count:,} records of {WIDTH} floats, batches of {batch}"
    check = partial(check_records, rows)
    return LoaderCase(title, "records", count, (0, 1, 2), loaders, check, ("layoutkit",))


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


def read(record: Any) -> bytes:
    """Read the bytes of a record; the file stays open, so that the getter takes little time."""
    return os.pread(_open_cached(record.url), record.length, record.offset)


def decode(data: bytes, out: Any = None) -> Array:
    """Return an array that shares the memory of the bytes."""
    return np.frombuffer(data, np.float32)


def _read_row(index: Any, number: int) -> Array:
    return decode(read(index[number]))


# ---- images of MNIST's size ----------------------------------------------------------------


def mnist_case(count: int, folder: Path, batch: int = 128) -> LoaderCase:
    """Write idx files of random images and of labels, the first pixel of each image."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 1, SIDE, SIDE), np.uint8)
    paths = folder / "images.idx3-ubyte", folder / "labels.idx1-ubyte"
    for path, array in zip(paths, (pixels[:, 0], pixels[:, 0, 0, 0]), strict=True):
        sizes = np.array(array.shape, ">u4").tobytes()
        path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())
    converter = Converter("bchw->bchw", dtype="float32", scale=SCALE)
    target = converter(pixels)
    check = partial(check_records, target.copy())  # the limit writes to target

    dataset = MapDataset(count, partial(_normalize, pixels))
    loaders: dict[str, Loader] = {
        "torch": partial(torch_epoch, dataset, batch),
        "torch, by batches": partial(torch_epoch, dataset, batch, by_batches=True),
    }
    for name, shuffle in (("layoutkit, in order", False), ("layoutkit, shuffled", True)):
        provider = MNISTProvider(*paths, batch_size=batch, shuffle=shuffle, scale=SCALE)
        loaders[name] = partial(_provider_epoch, provider)
    limit = limit_pass([pixels], target, streaming_is_faster([pixels], target))
    return LoaderCase(
        f"{count:,} images of MNIST's size, batches of {batch}",
        "images",
        count,
        (0,),
        loaders,
        check,
        ("limit",),
        lambda workers, stack: {"limit": limit, "convert": partial(converter, pixels, target)},
    )


def _normalize(pixels: Array, numbers: Any) -> Any:
    import torch

    return torch.from_numpy(pixels[numbers]).float().mul_(SCALE)


def _provider_epoch(provider: MNISTProvider, workers: int, stack: ExitStack) -> Epoch:
    """Return an epoch that accesses the images and the labels of every batch."""

    def epoch() -> Iterator[Array]:
        for batch in provider:
            (x,) = provider.get_data(batch)
            (y,) = provider.get_label(batch)
            _ = y.input
            yield x.input[: batch.count]

    return epoch
