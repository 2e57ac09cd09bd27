"""Pictures as a batch: uint8, layout `bhwc`, three channels red, green, blue.

Pillow decodes them (`pip install "layoutkit[images]"`); it is loaded for the first one. The
picture is turned as its EXIF orientation says, an alpha channel is dropped, grey, palette and CMYK
become RGB, and 16-bit grey is scaled to 8 bits.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import buffers
from ..data.formats import PICTURES
from ..errors import ArgumentError, LayoutkitError, ShapeError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "ORIENTATION",
    "SIDEWAYS",
    "ImageBatch",
    "find_images",
    "open_images",
    "pillow",
    "suspecting_bombs",
    "to_rgb",
    "upright",
]

ORIENTATION = 0x0112  # the EXIF tag
SIDEWAYS = range(5, 9)  # its values that swap height and width
_MAX_16_BIT = 65535


@dataclass(frozen=True)
class ImageBatch:
    """Pictures of one size, decoded when they are read."""

    paths: Sequence[Path]
    height: int
    width: int
    resize: bool
    pool: ThreadPoolExecutor

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of pictures, height, width, 3)."""
        return len(self.paths), self.height, self.width, 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always uint8."""
        return np.dtype(np.uint8)

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """Decode a range of the pictures (all of them if `axis` is None)."""
        paths = self.paths if axis is None else self.paths[start:stop]
        batch = buffers.empty((len(paths), *self.shape[1:]), np.uint8)
        # Pillow lets go of the interpreter lock while it decodes, so threads do help.
        for _ in self.pool.map(self._decode_into, paths, batch):
            pass
        return batch

    def _decode_into(self, path: Path, pixels: NDArray[Any]) -> None:
        with _naming(path), _open(path) as image:
            picture = to_rgb(upright(image))
        if self.resize:
            picture = _resized(picture, self.height, self.width)
        if picture.size != (self.width, self.height):
            raise _unequal(path, picture.size, self.paths[0], (self.width, self.height))
        pixels[...] = np.asarray(picture)


def find_images(source: str) -> tuple[list[Path], int]:
    """The pictures of a folder, glob or file name in name order, and how many others were left out.

    Hidden files and those without a picture's suffix are left out; a file that is named by
    itself is always taken.
    """
    path = Path(source)
    if path.is_file():
        return [path], 0
    # A glob as the shell reads it may begin anywhere, which Path.glob does not allow.
    matches = glob(source, recursive=True)  # noqa: PTH207
    names = path.iterdir() if path.is_dir() else map(Path, matches)
    found = sorted(name for name in names if not name.is_dir())
    if not found and not path.is_dir():
        raise ArgumentError(f"{source}: no such file or folder, nor a glob that matches any file")
    pictures = [name for name in found if _is_picture(name)]
    if not pictures:
        message = f"{source}: no pictures there (looked for {', '.join(sorted(PICTURES))})"
        raise ArgumentError(message)
    return pictures, len(found) - len(pictures)


@contextmanager
def open_images(paths: Sequence[Path], resize: tuple[int, int] | None) -> Iterator[ImageBatch]:
    """Pictures as one batch; `resize` is (height, width), without it all must be of one size.

    Sizes are compared from the pictures' headers before any of them is decoded.
    """
    pool = ThreadPoolExecutor(os.cpu_count())
    with suspecting_bombs():
        try:
            height, width = resize or _common_size(paths)
            yield ImageBatch(paths, height, width, resize is not None, pool)
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def suspecting_bombs() -> Iterator[None]:
    """Let a picture that Pillow suspects to be a decompression bomb be an error."""
    bomb = pillow().DecompressionBombWarning
    with warnings.catch_warnings():
        warnings.simplefilter("error", bomb)
        yield


def _is_picture(path: Path) -> bool:
    named_so = path.suffix.lower() in PICTURES and not path.name.startswith(".")
    # What is there but no file, such as a pipe, would be waited for.
    return named_so and (path.is_file() or not path.exists())


def pillow() -> Any:
    """The module `PIL.Image`; an ArgumentError where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        message = 'pictures need Pillow, which is not installed: pip install "layoutkit[images]"'
        raise ArgumentError(message) from error
    return Image


def _open(path: Path) -> "Image":
    image: Image = pillow().open(path)
    return image


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into an error that names the picture."""
    try:
        yield
    except (LayoutkitError, MemoryError):
        raise
    # Decoders raise OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error and
    # more on damaged files; there is no common base class to catch.
    except Exception as error:
        message = f"{path}: cannot be read as a picture ({error}); mend it or take it away"
        raise ArgumentError(message) from error


def _common_size(paths: Sequence[Path]) -> tuple[int, int]:
    first = _upright_size(paths[0])
    for path in paths[1:]:
        size = _upright_size(path)
        if size != first:
            raise _unequal(path, size, paths[0], first)
    return first[1], first[0]


def _upright_size(path: Path) -> tuple[int, int]:
    with _naming(path), _open(path) as image:
        width, height = image.size
        sideways = image.getexif().get(ORIENTATION) in SIDEWAYS
    return (height, width) if sideways else (width, height)


def _unequal(
    path: Path, size: tuple[int, int], first: Path, expected: tuple[int, int]
) -> ShapeError:
    return ShapeError(
        f"{path}: {size[1]}x{size[0]} (height x width), but {first} is "
        f"{expected[1]}x{expected[0]}; one batch needs one size: give --resize HxW"
    )


def upright(image: "Image") -> "Image":
    """The picture as its EXIF orientation says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def to_rgb(image: "Image") -> "Image":
    """The picture in red, green and blue; ValueError where grey values do not fit 16 bits."""
    if image.mode == "F" or image.mode.startswith("I"):
        image = _eight_bit_grey(image)
    # Alpha is dropped; Pillow would warn of that where a palette carries it.
    image.info.pop("transparency", None)
    return image.convert("RGB")


def _eight_bit_grey(image: "Image") -> "Image":
    """Scale 0..65535 to 0..255 (Pillow itself would clip at 255)."""
    values = np.asarray(image)
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > _MAX_16_BIT:
        raise ValueError(f"grey values outside 0..{_MAX_16_BIT}; save it with 8 or 16 bits")
    scaled = np.rint(values / np.float32(_MAX_16_BIT / 255))
    grey: Image = pillow().fromarray(scaled.astype(np.uint8))
    return grey


def _resized(image: "Image", height: int, width: int) -> "Image":
    # Pillow's bilinear filter widens with the scale, so shrinking does not alias.
    return image.resize((width, height), pillow().Resampling.BILINEAR)
