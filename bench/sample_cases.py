"""The lines of `--collate` and `--resize`: samples, the batch that they become, and the calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..memory import Array
from .rows import MEAN, SCALE, STD

Turn = Mapping[str, Any]  # the keywords of one call: offset, crop, flip, indices

FORMULA = {"dtype": "float32", "scale": SCALE, "mean": MEAN, "std": STD}
SIZE = 224
PATCH = 14
PATCHES = {"p": PATCH, "q": PATCH}
TURNS = 8  # sets of crops and flips, used in rotation


class Part(NamedTuple):
    """The part of a sample that is inside its window."""

    pixels: Array  # (h, w, c)
    is_flipped: bool
    borders: tuple[int, int, int, int]  # that fill the result: top, bottom, left, right


@dataclass(frozen=True)
class SampleCase:
    """One line of the table: samples, the batch that they become, and the calls."""

    name: str
    to: str  # layout of the batch
    samples: Any  # a list of arrays (h, w, c), or an array (b, h, w, c)
    keywords: Mapping[str, Any]  # of the Collator
    turns: Sequence[Turn] = field(default=({},))
    at_least: float | None = None  # share of the limit
    most_us: float | None = None  # microseconds of a call
    box: tuple[int, int, int, int] | None = None  # of a letterbox: top, left, height, width

    @property
    def pattern(self) -> str:
        """The pattern for `Collator`."""
        return f"{'hwc' if isinstance(self.samples, list) else 'bhwc'}->{self.to}"

    @property
    def size(self) -> tuple[int, int]:
        """The height and width of a result."""
        height, width = self.samples[0].shape[:2]
        return self.keywords.get("h", height), self.keywords.get("w", width)

    @property
    def image_size(self) -> tuple[int, int]:
        """The height and width that a sample is resized to, without the border of a letterbox."""
        return self.size if self.box is None else self.box[2:]

    @property
    def is_normalized(self) -> bool:
        """True if the formula is applied."""
        return "scale" in self.keywords

    def parts(self, turn: Turn) -> Iterator[Part]:
        """Yield the part of each sample that is in its window."""
        for number, index in enumerate(turn.get("indices", range(len(self.samples)))):
            sample = self.samples[index]
            rows, columns = (self._span(turn, number, sample, axis) for axis in (0, 1))
            pixels = sample[max(0, rows.start) : rows.stop, max(0, columns.start) : columns.stop]
            height, width = self.image_size if "resize" in self.keywords else pixels.shape[:2]
            top, left = (-rows.start, -columns.start) if self.box is None else self.box[:2]
            top, left = max(0, top), max(0, left)
            borders = (top, self.size[0] - top - height, left, self.size[1] - left - width)
            is_flipped = "flip" in turn and bool(turn["flip"]["w"][number])
            yield Part(pixels, is_flipped, borders)

    def _span(self, turn: Turn, number: int, sample: Array, axis: int) -> slice:
        """Return the window of a sample along an axis; it may begin before the sample."""
        if "offset" not in turn:
            return slice(0, sample.shape[axis])
        first = int(turn["offset"]["hw"[axis]][number])
        length = turn["crop"]["hw"[axis]][number] if "crop" in turn else self.size[axis]
        return slice(first, first + int(length))


@dataclass(frozen=True)
class PackedCase(SampleCase):
    """One line of images of different sizes that become patches, the rows of a packed batch."""

    @property
    def pattern(self) -> str:
        """The pattern for `Collator`."""
        return f"(hp)(wq)c->{self.to}"


# ---- the lines -----------------------------------------------------------------------------


def collate_cases() -> Iterator[SampleCase]:
    """Yield all lines of `--collate`."""
    rng = np.random.default_rng(0)
    photos = random_images(rng, 64, 256, 256)
    turns = [random_windows(rng, photos) for _ in range(TURNS)]
    window = {"h": SIZE, "w": SIZE}
    description = "64 images 256x256, windows 224x224, half flipped"
    for to, dtype, least in (
        ("bchw", "float32", 0.8), ("bchw", "bfloat16", 0.6), ("bchw", "uint8", 0.6),
        ("bhwc", "float32", None), ("chwb", "float32", 0.45),
    ):  # fmt: skip
        formula = {} if dtype == "uint8" else {**FORMULA, "dtype": dtype}
        name = f"{description} -> {dtype} {to}"
        yield SampleCase(name, to, photos, window | formula, turns, least)
    photos = [random_images(rng, 1, int(h), int(w))[0] for h, w in rng.integers(200, 300, (64, 2))]
    turns = [random_windows(rng, photos) for _ in range(TURNS)]
    name = "64 images of 64 sizes, filled at some borders -> float32 bchw"
    yield SampleCase(name, "bchw", photos, {**window, **FORMULA, "fill": 114}, turns, 0.7)
    images = rng.integers(0, 256, (8192, 64, 64, 3), np.uint8)
    turns = [{"indices": rng.integers(0, len(images), 256)} for _ in range(TURNS)]
    name = "256 rows of (8192, 64, 64, 3) -> float32 bchw"
    yield SampleCase(name, "bchw", images, FORMULA, turns, 0.7)
    tiny = random_images(rng, 8, 32, 32)
    yield SampleCase("8 images 32x32 -> float32 bchw", "bchw", tiny, FORMULA, most_us=12)
    sides = rng.integers(14, 22, (64, 2)) * PATCH
    photos = [random_images(rng, 1, int(h), int(w))[0] for h, w in sides]
    for formula in ({}, FORMULA):
        name = f"64 images of 64 sizes -> {formula.get('dtype', 'uint8')} patches 14x14, packed"
        yield PackedCase(name, "(bhw)(cpq)", photos, PATCHES | formula, at_least=0.6)


def resize_cases() -> Iterator[SampleCase]:
    """Yield all lines of `--resize`."""
    rng = np.random.default_rng(0)
    photos = random_images(rng, 64, 375, 500)
    turns = [random_crops(rng, photos) for _ in range(TURNS)]
    small = {**FORMULA, "h": SIZE, "w": SIZE, "resize": "bilinear"}
    yield SampleCase("64 random crops of 500x375 -> 224x224", "bchw", photos, small, turns)
    image = random_images(rng, 1, 1080, 1920)
    letterbox = small | {"h": 640, "w": 640, "fit": "pad", "fill": 114}
    box = (140, 0, 360, 640)
    yield SampleCase("1080p -> 640x640, letterbox", "bchw", image, letterbox, box=box)
    yield SampleCase("1080p -> 224x224", "bchw", image, small)
    large = random_images(rng, 1, 2160, 3840)
    half = {"h": 1080, "w": 1920, "resize": "bilinear"}
    yield SampleCase("4K -> 1080p uint8 bhwc", "bhwc", large, half)
    images = random_images(rng, 16, 224, 224)
    larger = small | {"h": 384, "w": 384, "resize": "bicubic"}
    yield SampleCase("16 images 224x224 -> 384x384, bicubic", "bchw", images, larger)
    video = random_images(rng, 32, 720, 1280)
    bicubic = small | {"resize": "bicubic"}
    yield SampleCase("32 frames of 720p -> 224x224, bicubic", "bchw", video, bicubic)
    bands = [rng.integers(0, 4096, (512, 512, 12), np.uint16) for _ in range(8)]
    tile = {"h": 256, "w": 256, "resize": "bilinear"}
    photos = [random_images(rng, 1, int(h), int(w))[0] for h, w in rng.integers(200, 300, (64, 2))]
    chosen = PATCHES | FORMULA | {"resize": "bicubic", "multiple": 2 * PATCH}
    name = "64 images of 64 sizes -> patches 14x14, bicubic, packed"
    yield PackedCase(name, "(bhw)(cpq)", photos, chosen)
    yield SampleCase("8 tiles 512x512 of 12 bands, uint16 -> 256x256", "bchw", bands, tile)


def random_images(rng: np.random.Generator, count: int, height: int, width: int) -> list[Array]:
    """Return images of random bytes."""
    return [rng.integers(0, 256, (height, width, 3), np.uint8) for _ in range(count)]


def random_windows(rng: np.random.Generator, photos: Sequence[Array]) -> Turn:
    """Return random offsets inside or around the samples, and flips for half of the samples."""
    spans = np.array([photo.shape[:2] for photo in photos]) - SIZE
    corners = np.sign(spans) * rng.integers(0, np.abs(spans) + 1)
    flip = {"w": rng.random(len(photos)) < 0.5}
    return {"offset": {"h": corners[:, 0], "w": corners[:, 1]}, "flip": flip}


def random_crops(rng: np.random.Generator, photos: Sequence[Array]) -> Turn:
    """Return crops of a tenth of the area to all of it, as for training."""
    sizes = np.array([photo.shape[:2] for photo in photos])
    sides = np.sqrt(rng.uniform(0.1, 1, (len(photos), 1)))
    sides = sides * np.exp(rng.uniform(-0.15, 0.15, (1, 2)))
    extents = np.maximum(1, (sizes * sides.clip(0, 1)).astype(np.int64))
    corners = rng.integers(0, sizes - extents + 1)
    return {
        name: {"h": values[:, 0], "w": values[:, 1]}
        for name, values in (("offset", corners), ("crop", extents))
    }
