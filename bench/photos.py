"""Generated photographs as files: JPEGs with the spectrum of photographs, of mixed sizes.

The loader benchmarks read them from a folder, a .rec, tars or a Parquet table.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.recordio import RecordWriter, pack_image

Array = npt.NDArray[Any]

MIN_SIZE, MAX_SIZE = (300, 380), (480, 560)
QUALITY = 90
CLASSES = 10
_BASES = 8  # all images are parts of these, shifted


def make_photo(seed: int) -> Array:
    """Return noise with equal power in every octave, as in photographs, gray with some color."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    height, width = MAX_SIZE
    image = np.zeros((height, width, 3), np.float32)
    side = 4
    while side <= width:
        for strength, channels in ((17.0, slice(None)), (5.0, slice(0, 1)), (5.0, slice(2, 3))):
            small = rng.normal(0, strength, (side * 3 // 4, side)).astype(np.float32)
            enlarged = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
            image[..., channels] += np.asarray(enlarged)[..., None]
        side *= 2
    return np.clip(image + 118, 0, 255).astype(np.uint8)


def make_jpegs(count: int) -> Iterator[bytes]:
    """Yield `count` JPEGs; number n is of class `n % CLASSES`."""
    from PIL import Image

    bases = [make_photo(seed) for seed in range(min(count, _BASES))]
    rng = np.random.default_rng(0)
    for number in range(count):
        height, width = rng.integers(MIN_SIZE, np.array(MAX_SIZE) + 1)
        shifted = np.roll(bases[number % len(bases)], rng.integers(0, MAX_SIZE), axis=(0, 1))
        file = io.BytesIO()
        Image.fromarray(shifted[:height, :width]).save(file, "JPEG", quality=QUALITY)
        yield file.getvalue()


def write_rec(jpegs: Sequence[bytes], folder: Path) -> Path:
    """Write a .rec with its .idx; the labels are the classes."""
    path = folder / "photos.rec"
    with RecordWriter(path) as writer:
        for number, data in enumerate(jpegs):
            writer.write(pack_image(data, number % CLASSES, id=number))
    return path


def write_folder(jpegs: Sequence[bytes], folder: Path) -> Path:
    """Write a file for each JPEG, in a folder for each class."""
    path = folder / "photos"
    for number, data in enumerate(jpegs):
        file = path / f"{number % CLASSES}" / f"{number:06}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return path


def write_tars(jpegs: Sequence[bytes], folder: Path, count: int = 4) -> list[Path]:
    """Write `count` tars of pairs of files, a JPEG and its class as text."""
    paths = [folder / f"photos-{number}.tar" for number in range(count)]
    for first, path in enumerate(paths):
        with tarfile.open(path, "w") as archive:
            for number in range(first, len(jpegs), count):
                for suffix, data in ("jpg", jpegs[number]), ("cls", b"%d" % (number % CLASSES)):
                    entry = tarfile.TarInfo(f"{number:06}.{suffix}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
    return paths


def write_parquet(jpegs: Sequence[bytes], folder: Path) -> Path | None:
    """Write a table with the columns `image` and `label`; return None without pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return None
    path = folder / "photos.parquet"
    labels = [number % CLASSES for number in range(len(jpegs))]
    parquet.write_table(pa.table({"image": jpegs, "label": labels}), path, row_group_size=100)
    return path
