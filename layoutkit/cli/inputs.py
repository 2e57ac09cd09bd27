"""Where the command line reads from: a file of one array, or pictures that become one batch.

Knows which kind a source is; formats are known by `data/formats.py`, pictures by `images.py`.

Pictures as a batch: uint8, layout `bhwc`, three channels red, green, blue.

Knows which files are meant, of which size they are and which are left out. How one is read and
fitted is known by `layoutkit.images`.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ..backends.dispatch import as_array
from ..data.formats import ARRAYS, PICTURES, reader_of, suffix_of
from ..data.io.npy import StoredArray
from ..data.io.zarr import is_store, open_store
from ..errors import ArgumentError, DataError, LayoutkitError, PatternError, ShapeError
from ..images import Decoder, read
from ..images.decode import pillow, upright_size
from ..layout.pattern import parse_pattern
from ..memory import Array
from .outputs import NpyFile, is_npy, open_npy
from .printing import as_options, printable
from .streaming import Crop, FileJob, SlabSource, windowed

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


# What the axes of pictures may be called.
_PICTURES = (("b", "n", "batch"), ("h", "height"), ("w", "width"), ("c", "channel", "channels"))


@contextmanager
def open_source(
    sources: Sequence[str], job: FileJob, pictures: Pictures, folder: Path
) -> Iterator[SlabSource]:
    """Open what `sources` name: a file of one array, `.npy` by its content, else pictures.

    folder : for what has to wait until it is written
    """
    arrays = [source for source in sources if _is_array(source)]
    if not arrays:
        _check_pattern(job.pattern)
        decoder = pictures.decoder("stretch")
        paths, others = find_images(sources)
        if others and not job.quiet:
            name = printable(named(sources))
            print(f"{name}: files skipped as no pictures: {others}", file=sys.stderr)
        with open_images(paths, decoder, pictures, folder) as batch:
            yield windowed(batch, job.pattern, None, pictures.flip)
        return
    if len(sources) > 1:
        raise ArgumentError(
            f"{arrays[0]}: is an array, and several SRC are pictures of one batch; convert a file "
            "of an array by itself"
        )
    for option in pictures.options:
        raise ArgumentError(f"{option}: is for pictures, and {arrays[0]} is an array; leave it out")
    with _open_array(arrays[0]) as array:
        try:
            source = windowed(array, job.pattern, pictures.crop, pictures.flip)
        except ShapeError as error:
            raise ShapeError(f"{arrays[0]}: {error}") from None
        yield source


def _is_array(source: str) -> bool:
    """Whether a source is a file of an array; ArgumentError where it is no file at all."""
    path = Path(source)
    if source == "-" or (path.exists() and not (path.is_file() or path.is_dir())):
        # A pipe would be waited for, and cannot be read in any order.
        raise ArgumentError(f"{source}: is no file; write what comes from it into one first")
    return is_store(source) or suffix_of(source) in ARRAYS or (path.is_file() and is_npy(path))


@dataclass(frozen=True)
class LoadedArray:
    """An array in memory, or mapped to it, whose slabs are windows."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.array.dtype

    def read(self, axis: int | None, start: int, stop: int) -> Array:
        """Everything between two positions of one axis; the whole if `axis` is None."""
        if axis is None:
            return self.array
        part: Array = self.array[(*[slice(None)] * axis, slice(start, stop))]
        return part


@dataclass(frozen=True)
class ZarrSource:
    """An array in a zarr store, of which slabs are read."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        found: np.dtype[Any] = self.array.dtype
        return found

    def read(self, axis: int | None, start: int, stop: int) -> Any:
        """Everything between two positions of one axis; the whole if `axis` is None."""
        window = () if axis is None else (*[slice(None)] * axis, slice(start, stop))
        return np.asarray(self.array[(*window, ...)])


@contextmanager
def _open_array(source: str) -> Iterator[SlabSource]:
    """The array of a file, slab by slab where it lies there as it is; OSError for no file."""
    if is_store(source):
        yield ZarrSource(open_store(source))
        return
    found = _only_one(_loaded(source), source)
    if not isinstance(found, StoredArray):
        yield LoadedArray(as_array(found, source))
    elif found.offset is not None:
        with open_npy(found) as array:
            yield array
    else:
        yield LoadedArray(found.loaded())


def _loaded(source: str) -> Any:
    """What the reader of its suffix gives; an ArgumentError for whatever one of them raises."""
    try:
        return reader_of(source)(source)
    except (LayoutkitError, OSError, MemoryError):
        raise
    except Exception as error:
        raise ArgumentError(
            f"{source}: cannot be read ({type(error).__name__}: {error}); it is damaged, or its "
            "suffix is that of another format"
        ) from error


def _only_one(found: Any, source: str) -> Any:
    if not isinstance(found, Mapping):
        return found
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise ArgumentError(
            f"{source}: holds {len(found)} arrays ({names}); give a file of one, as numpy.save "
            "writes it"
        )
    return next(iter(found.values()))


def _check_pattern(pattern: str) -> None:
    axes = parse_pattern(pattern).left.named
    known = [
        len(names) == 1 and names[0] in may for names, may in zip(axes, _PICTURES, strict=False)
    ]
    if len(axes) != len(_PICTURES) or not all(known):
        message = (
            f"{pattern}: pictures are read as bhwc (batch, height, width, channel); "
            "begin the pattern with bhwc->"
        )
        raise PatternError(message)
