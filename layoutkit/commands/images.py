"""Pictures as a batch: uint8, layout `bhwc`, three channels red, green, blue.

Knows which files are meant, of which size they are and which are left out. How one is read and
fitted is known by `layoutkit.pictures`.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import buffers
from ..data.formats import PICTURES
from ..errors import ArgumentError, DataError, ShapeError
from ..pictures import Decoder, read
from ..pictures.decoding import pillow, upright_size
from .npyfiles import NpyFile
from .printing import as_options, printable
from .windows import Crop

__all__ = ["ImageBatch", "Pictures", "allowing", "find_images", "named", "open_images"]

_AT_ONCE = 64  # pictures that are decoded before they are written, where bad ones are left out
_LOOKED_AT = 10_000  # files below a folder, to find out whether there are pictures among them


@dataclass(frozen=True)
class Pictures:
    """How pictures become a batch.

    size : (height, width) of all; without it all must be of one size
    how, fill : as `pictures.fit` takes them
    skip_bad : leave out what cannot be read, and say so
    max_pixels : of one picture; by default Pillow's limit
    crop, flip : the window of every picture, and whether it is mirrored then
    """

    size: tuple[int, int] | None = None
    how: str | None = None
    fill: float | Sequence[float] | None = None
    skip_bad: bool = False
    max_pixels: int | None = None
    crop: Crop | None = None
    flip: bool = False

    @property
    def options(self) -> list[str]:
        """The options that were given, as the command line calls them."""
        given = {
            "--resize": self.size,
            "--fit": self.how,
            "--fill": self.fill,
            "--skip-bad": self.skip_bad or None,
            "--max-pixels": self.max_pixels,
        }
        return [name for name, value in given.items() if value is not None]

    def decoder(self, how: str) -> Decoder | None:
        """What decodes pictures into the size; None without one. `how` is the default."""
        if self.size is None:
            for name in {"--fit", "--fill"} & {*self.options}:
                raise ArgumentError(f"{name}: says how pictures become one size; give --resize HxW")
            return None
        way = self.how or how
        if self.fill is not None and way != "pad":
            raise ArgumentError("--fill: is what lies beside a picture; give --fit pad, too")
        return Decoder(self.size, way, 0 if self.fill is None else self.fill)


@dataclass(frozen=True)
class ImageBatch:
    """Pictures of one size, decoded when they are read."""

    paths: Sequence[Path]
    height: int
    width: int
    decoder: Decoder | None
    pool: ThreadPoolExecutor
    crop: Crop | None = None

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
        numbers = range(len(self.paths)) if axis is None else range(start, stop)
        batch = buffers.empty((len(numbers), *self.shape[1:]), np.uint8)
        # Decoders let go of the interpreter lock, so threads do help.
        for _ in self.pool.map(self._decode_into, numbers, batch):
            pass
        return batch

    def decoded(self, number: int) -> NDArray[Any]:
        """The pixels of one picture."""
        path = self.paths[number]
        pixels = read(path) if self.decoder is None else self.decoder(path)
        if self.crop is not None:
            try:
                return self.crop.of_picture(pixels, number)
            except ShapeError as error:
                raise ShapeError(f"{path}: {error}") from None
        if pixels.shape != self.shape[1:]:
            raise _unequal(path, pixels.shape[:2], self.paths[0], (self.height, self.width))
        return pixels

    def _decode_into(self, number: int, pixels: NDArray[Any]) -> None:
        pixels[...] = self.decoded(number)


# ---- which pictures ----------------------------------------------------------------------


def find_images(sources: Sequence[str]) -> tuple[list[Path], int]:
    """The pictures that folders, globs and files name, and how many others were left out.

    Those of a folder or a glob are in name order. Hidden files and those without a picture's
    suffix are left out; a single file that is named by itself is always taken. A folder or a glob
    without any picture is an ArgumentError.
    """
    if len(sources) == 1 and Path(sources[0]).is_file():
        return [Path(sources[0])], 0
    named_by = {source: _named_by(source) for source in sources}
    found = [name for source in sources for name in named_by[source] if _is_picture(name)]
    for source, names in named_by.items():
        # A file without a picture's suffix is skipped, as a glob of the shell may have named it.
        if not any(map(_is_picture, names)) and not (found and Path(source).is_file()):
            looked = ", ".join(sorted(PICTURES))
            raise ArgumentError(
                f"{source}: no pictures there (looked for {looked}){_below(source)}"
            )
    return found, sum(len(named_by[source]) for source in sources) - len(found)


def named(sources: Sequence[str]) -> str:
    """What messages call all sources together."""
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"


def _named_by(source: str) -> list[Path]:
    """The files that one word of the command line means; ArgumentError for none."""
    path = Path(source)
    if path.is_file():
        return [path]
    # A glob as the shell reads it may begin anywhere, which Path.glob does not allow.
    matches = glob(source, recursive=True)  # noqa: PTH207
    names = path.iterdir() if path.is_dir() else map(Path, matches)
    found = sorted(name for name in names if not name.is_dir())
    if not found and not path.is_dir():
        raise ArgumentError(f"{source}: no such file or folder, nor a glob that matches any file")
    return found


def _is_picture(path: Path) -> bool:
    named_so = path.suffix.lower() in PICTURES and not path.name.startswith(".")
    # What is there but no file, such as a pipe, would be waited for.
    return named_so and (path.is_file() or not path.exists())


def _below(source: str) -> str:
    """What to say where a folder's pictures are in the folders in it."""
    if any(map(_is_picture, islice(Path(source).rglob("*"), _LOOKED_AT))):
        every = f"{source.rstrip('/')}/**/*"
        return f"; there are some in its sub-folders: give '{every}', in quotes"
    return ""


# ---- their pixels ------------------------------------------------------------------------


@contextmanager
def open_images(
    paths: Sequence[Path], decoder: Decoder | None, pictures: Pictures, folder: Path
) -> Iterator[ImageBatch | NpyFile]:
    """Pictures as one batch; where no decoder fits them, all must be of one size.

    Sizes are compared from the pictures' headers before any of them is decoded. Where bad ones are
    left out, how many are good is known when all are decoded: their pixels wait in an unnamed file
    in `folder`.
    """
    pool = ThreadPoolExecutor(os.cpu_count())
    with allowing(pictures.max_pixels):
        try:
            if pictures.crop is not None:
                height, width = pictures.crop.size
            elif decoder is None:
                paths, (height, width) = _of_one_size(paths, pictures.skip_bad)
            else:
                height, width = decoder.size
            batch = ImageBatch(paths, height, width, decoder, pool, pictures.crop)
            if not pictures.skip_bad:
                yield batch
                return
            with TemporaryFile(dir=folder) as file:
                try:
                    found = _without_bad(batch, file)
                except OSError as error:  # of a file that has no name to say
                    raise OSError(error.errno, error.strerror, str(folder)) from error
                yield found
        finally:
            pool.shutdown(cancel_futures=True)


def _without_bad(batch: ImageBatch, file: Any) -> NpyFile:
    """The pictures that can be read, decoded into a file; DataError where none can."""
    count = 0
    for first in range(0, len(batch.paths), _AT_ONCE):
        paths = batch.paths[first : first + _AT_ONCE]
        numbers = range(first, first + len(paths))
        for _, found in _good(paths, batch.pool.map(_tried(batch.decoded), numbers)):
            file.write(np.ascontiguousarray(found).data)
            count += 1
    file.flush()
    if not count:
        raise _none_left(len(batch.paths))
    return NpyFile(file, 0, (count, *batch.shape[1:]), batch.dtype)


def _of_one_size(paths: Sequence[Path], skip_bad: bool) -> tuple[list[Path], tuple[int, int]]:
    """The pictures, and the one size that their headers name."""
    size_of = _tried(upright_size) if skip_bad else upright_size
    sizes = dict(_good(paths, map(size_of, paths)))
    if not sizes:
        raise _none_left(len(paths))
    first, expected = next(iter(sizes.items()))
    for path, size in sizes.items():
        if size != expected:
            raise _unequal(path, size, first, expected)
    return [path for path in paths if path in sizes], expected


def _tried(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same function, which gives the error of what cannot be read."""

    def attempt(source: Any) -> Any:
        try:
            return decode(source)
        except (DataError, OSError) as error:
            return error

    return attempt


def _good(paths: Iterable[Path], found: Iterable[Any]) -> Iterator[tuple[Path, Any]]:
    """What was found for each path, without errors, which are said."""
    for path, each in zip(paths, found, strict=True):
        if isinstance(each, Exception):
            why = f"{path}: {each.strerror}" if isinstance(each, OSError) else each
            print(f"layoutkit: left out {printable(as_options(str(why)))}", file=sys.stderr)
        else:
            yield path, each


def _none_left(count: int) -> DataError:
    return DataError(f"none of {count} pictures can be read; what is wrong with each stands above")


def _unequal(
    path: Path, size: tuple[int, ...], first: Path, expected: tuple[int, int]
) -> ShapeError:
    return ShapeError(
        f"{path}: {size[0]}x{size[1]} (height x width), but {first} is "
        f"{expected[0]}x{expected[1]}; one batch needs one size: give --resize HxW, or --crop HxW"
    )


@contextmanager
def allowing(max_pixels: int | None) -> Iterator[None]:
    """Let Pillow take pictures of so many pixels, on purpose; None leaves its limit."""
    module = pillow()
    limit = module.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        # It warns of what is an error here, which says more.
        warnings.simplefilter("ignore", module.DecompressionBombWarning)
        if max_pixels is not None:
            module.MAX_IMAGE_PIXELS = max_pixels
        try:
            yield
        finally:
            module.MAX_IMAGE_PIXELS = limit
