"""Open the sources of `layoutkit convert`: one array file, or image files as one batch.

File formats are read by `layoutkit.data.formats`, images by `layoutkit.images`. An image batch is
uint8 in layout `bhwc`, with the channels red, green and blue, or what `--mode` says.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import buffers
from .._utils.errors import as_data_errors, describe_error
from .._utils.validation import escape_controls
from ..backends.dispatch import as_array
from ..data.formats import FORMATS, format_reader, is_array_name, is_image_name
from ..data.io.filesystem import expand_pattern
from ..data.io.npy import StoredArray
from ..data.io.zarr import is_store, open_store
from ..errors import ArgumentError, DataError, LayoutkitError, PatternError, ShapeError
from ..images import Decoder, Reader
from ..images.reading import CHANNELS, is_recognized, pillow, upright_size
from ..images.suffixes import image_suffixes
from ..layout.pattern import Pattern, parse_pattern
from ..memory import Array
from ..planning.centering import DEFAULT_CENTERING
from .crop import Crop
from .outputs import NpyFile, is_npy, open_npy
from .printing import keywords_to_options
from .streaming import FileJob, SlabSource, apply_windows

_BYTE = np.dtype(np.uint8)
_IMAGES_AT_ONCE = 64  # images that are decoded in parallel before they are written (--skip-bad)
_MAX_FILES_SEARCHED = 10_000  # for images in sub-folders, which an error message mentions


@dataclass(frozen=True)
class ImageOptions:
    """Options for reading images as a batch.

    size : (height, width) of all images; None: the size that all image files share
    fit, fill, short_side : as for `layoutkit.images.fit`
    filter : the filter that resizes; None: bilinear
    skip_bad : skip images that cannot be read, with a message
    max_pixels : limit for one image; default: Pillow's limit
    crop, flip : the window of every image, and whether the window is mirrored left to right
    center : how `fit` and a centered crop round half of an odd difference; None: "round"
    background : the color under transparent pixels; None: alpha is dropped
    mode, to_srgb : as for `layoutkit.images.read`; None: "rgb"
    """

    size: tuple[int, int] | None = None
    fit: str | None = None
    fill: float | Sequence[float] | None = None
    short_side: int | None = None
    filter: str | None = None
    skip_bad: bool = False
    max_pixels: int | None = None
    crop: Crop | None = None
    flip: bool = False
    center: str | None = None
    background: tuple[int, ...] | None = None
    mode: str | None = None
    to_srgb: bool = False

    @property
    def layout(self) -> str:
        """The layout of a batch of images: class numbers have no channels."""
        return "bhw" if self.mode == "index" else "bhwc"

    @property
    def reading(self) -> dict[str, Any]:
        """The keyword arguments of `layoutkit.images.read`."""
        mode = self.mode or "rgb"
        return {"mode": mode, "background": self.background, "to_srgb": self.to_srgb}

    @property
    def options(self) -> list[str]:
        """The options that were passed, by their command-line names."""
        values = {
            "--resize": self.size,
            "--fit": self.fit,
            "--fill": self.fill,
            "--short-side": self.short_side,
            "--filter": self.filter,
            "--skip-bad": self.skip_bad or None,
            "--max-pixels": self.max_pixels,
            "--center": None if self._has_centered_crop else self.center,
            "--background": self.background,
            "--mode": self.mode,
            "--to-srgb": self.to_srgb or None,
        }
        return [name for name, value in values.items() if value is not None]

    @property
    def _has_centered_crop(self) -> bool:
        return self.crop is not None and self.crop.is_centered

    def decoder(self, default_fit: str) -> Decoder | None:
        """Return a decoder that resizes images to `size`, or None without a size."""
        if self.size is None:
            resized = {"--fit", "--fill", "--short-side", "--filter", "--center"}
            for name in sorted(resized & {*self.options}):
                raise ArgumentError(
                    f"{name}: applies only to resized images; give --resize HxW, too"
                )
            return None
        if self.fit is not None and self.short_side is not None:
            raise ArgumentError("--fit and --short-side both say how images are scaled; remove one")
        fit = self.fit or ("cover" if self.short_side is not None else default_fit)
        if self.fill is not None and fit != "pad":
            raise ArgumentError("--fill: applies only to padded images; give --fit pad, too")
        if self.mode == "unchanged":
            raise ArgumentError(
                "--mode unchanged: keeps the channels of each file, and images are resized to one "
                "shape; give another --mode"
            )
        resize = self.filter or ("nearest" if self.mode == "index" else "bilinear")
        if self.mode == "index" and resize != "nearest":
            raise ArgumentError(
                f"--filter {resize}: would average class numbers; give --filter nearest"
            )
        center = self.center or DEFAULT_CENTERING
        if fit == "stretch" and self.center is not None:
            if not self._has_centered_crop:
                raise ArgumentError(
                    "--center: nothing is centered; give --fit cover, --fit pad, --short-side or "
                    "--crop HxW, or omit it"
                )
            center = DEFAULT_CENTERING  # of the crop only
        return Decoder(
            self.size,
            fit,
            self.fill,
            short_side=self.short_side,
            resize=resize,
            center=center,
            **self.reading,
        )

    @property
    def reader(self) -> Reader:
        """The reader of images of any size."""
        return Reader(**self.reading)


@dataclass(frozen=True)
class ImageBatch:
    """A batch of image files of one size, decoded when slabs of the batch are read."""

    paths: Sequence[Path]
    height: int
    width: int
    decode_file: Decoder | Reader
    pool: ThreadPoolExecutor
    crop: Crop | None = None
    channels: tuple[int, ...] = (3,)  # the last axis; () without one, for class numbers
    dtype: np.dtype[Any] = _BYTE

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the batch: (number of images, height, width, channels)."""
        return len(self.paths), self.height, self.width, *self.channels

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        indices = range(len(self.paths)) if axis is None else range(start, stop)
        batch = buffers.empty((len(indices), *self.shape[1:]), self.dtype)
        # Decoders release the GIL, so threads decode in parallel.
        for _ in self.pool.map(self._decode_into, indices, batch):
            pass
        return batch

    def decode(self, index: int) -> NDArray[Any]:
        path = self.paths[index]
        pixels = self.decode_file(path)
        if (pixels.shape[2:], pixels.dtype) != (self.channels, self.dtype):
            raise ShapeError(
                f"{path}: has {_describe_pixels(pixels.shape[2:], pixels.dtype)}, but the first "
                f"image has {_describe_pixels(self.channels, self.dtype)}; a batch has one kind of "
                "pixels: give another --mode"
            )
        if self.crop is not None:
            try:
                return self.crop.crop_image(pixels, index)
            except ShapeError as error:
                raise ShapeError(f"{path}: {error}") from None
        if pixels.shape != self.shape[1:]:
            raise _size_error(path, pixels.shape[:2], self.paths[0], (self.height, self.width))
        return pixels

    def _decode_into(self, index: int, pixels: NDArray[Any]) -> None:
        pixels[...] = self.decode(index)


def _describe_pixels(channels: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    count = "".join(f"{number} channels of " for number in channels)
    return f"{count}{dtype}"


# ---- find images -------------------------------------------------------------------------


def find_images(sources: Sequence[str]) -> tuple[list[Path], int]:
    """Return the image files in `sources` (folders, globs, files), and the number of other files.

    The images of a folder or glob are sorted by name. Hidden files and files without an image
    suffix are skipped, except for a file that is the only source. Raises ArgumentError for a folder
    or glob without images.
    """
    if len(sources) == 1 and Path(sources[0]).is_file():
        return [Path(sources[0])], 0
    files_of = {source: _expand_source(source) for source in sources}
    images = [path for source in sources for path in files_of[source] if _is_image(path)]
    for source, paths in files_of.items():
        # A file without an image suffix is skipped: the shell may have expanded a glob to it.
        if not any(map(_is_image, paths)) and not (images and Path(source).is_file()):
            suffixes = ", ".join(image_suffixes())
            raise ArgumentError(
                f"{source}: no images found (suffixes {suffixes}){_subfolder_hint(source)}"
            )
    return images, sum(len(files_of[source]) for source in sources) - len(images)


def sources_label(sources: Sequence[str]) -> str:
    """Return one name for all sources, for messages."""
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"


def _expand_source(source: str) -> list[Path]:
    """Return the files of a folder, glob or file; raise ArgumentError if no path matches."""
    path = Path(source)
    paths = path.iterdir() if path.is_dir() else map(Path, expand_pattern(source))
    files = sorted(file for file in paths if not file.is_dir())
    if not files and not path.is_dir():
        raise ArgumentError(f"{source}: no such file or folder, and no file matches it as a glob")
    return files


def _is_image(path: Path) -> bool:
    has_image_name = is_image_name(path.name) and not path.name.startswith(".")
    # Exclude pipes and devices, on which reading would block.
    return has_image_name and (path.is_file() or not path.exists())


def _subfolder_hint(source: str) -> str:
    """Return a hint for an error message if sub-folders contain images, else an empty text."""
    if any(map(_is_image, islice(Path(source).rglob("*"), _MAX_FILES_SEARCHED))):
        pattern = f"{source.rstrip('/')}/**/*"
        return f"; its sub-folders contain images: give '{pattern}', in quotes"
    return ""


# ---- read images -------------------------------------------------------------------------


@contextmanager
def open_images(
    paths: Sequence[Path], decoder: Decoder | None, image_options: ImageOptions, folder: Path
) -> Iterator[ImageBatch | NpyFile]:
    """Open images as one batch; without a decoder, all must have one size.

    Sizes are read from the image headers and compared before any image is decoded. With `skip_bad`,
    the number of valid images is known only after all are decoded, so their pixels are stored in an
    unnamed temporary file in `folder`.
    """
    pool = ThreadPoolExecutor(os.cpu_count())
    with pixel_limit(image_options.max_pixels):
        try:
            if image_options.crop is not None:
                height, width = image_options.crop.size
            elif decoder is None:
                paths, (height, width) = _check_one_size(paths, image_options.skip_bad)
            else:
                height, width = decoder.size
            decode_file = decoder or image_options.reader
            batch = ImageBatch(paths, height, width, decode_file, pool, image_options.crop)
            if image_options.mode is not None:
                batch = _with_pixels_of_mode(batch, image_options)
            if not image_options.skip_bad:
                yield batch
                return
            with TemporaryFile(dir=folder) as file:
                try:
                    array = _decode_valid(batch, file)
                except OSError as error:  # the temporary file has no name to report
                    raise OSError(error.errno, error.strerror, str(folder)) from error
                yield array
        finally:
            pool.shutdown(cancel_futures=True)


def _with_pixels_of_mode(batch: ImageBatch, image_options: ImageOptions) -> ImageBatch:
    """Return the batch with the channels and dtype of the mode, or else of its first image."""
    mode = image_options.mode or "rgb"
    if mode in CHANNELS:
        return replace(batch, channels=(CHANNELS[mode],))
    skips = image_options.skip_bad
    decode = _return_errors(batch.decode_file) if skips else batch.decode_file
    for path in batch.paths:
        if not isinstance(pixels := decode(path), Exception):
            return replace(batch, channels=pixels.shape[2:], dtype=pixels.dtype)
    return batch  # without valid images, which an error says later


def _decode_valid(batch: ImageBatch, file: Any) -> NpyFile:
    """Decode the readable images into `file`; raise DataError if no image is readable."""
    count = 0
    for first in range(0, len(batch.paths), _IMAGES_AT_ONCE):
        paths = batch.paths[first : first + _IMAGES_AT_ONCE]
        indices = range(first, first + len(paths))
        for _, pixels in _report_errors(
            paths, batch.pool.map(_return_errors(batch.decode), indices)
        ):
            file.write(np.ascontiguousarray(pixels).data)
            count += 1
    file.flush()
    if not count:
        raise _all_failed_error(len(batch.paths))
    return NpyFile(file, 0, (count, *batch.shape[1:]), batch.dtype)


def _check_one_size(paths: Sequence[Path], skip_bad: bool) -> tuple[list[Path], tuple[int, int]]:
    """Return the readable images and their size; raise ShapeError if sizes differ."""
    size_of = _return_errors(upright_size) if skip_bad else upright_size
    sizes = dict(_report_errors(paths, map(size_of, paths)))
    if not sizes:
        raise _all_failed_error(len(paths))
    first, expected = next(iter(sizes.items()))
    for path, size in sizes.items():
        if size != expected:
            raise _size_error(path, size, first, expected)
    return [path for path in paths if path in sizes], expected


def _return_errors(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a wrapper of `function` that returns the error of an unreadable file."""

    def attempt(source: Any) -> Any:
        try:
            return function(source)
        except (DataError, OSError) as error:
            return error

    return attempt


def _report_errors(paths: Iterable[Path], results: Iterable[Any]) -> Iterator[tuple[Path, Any]]:
    """Yield (path, result) for each result that is not an error; print the errors."""
    for path, result in zip(paths, results, strict=True):
        if isinstance(result, Exception):
            reason = f"{path}: {result.strerror}" if isinstance(result, OSError) else result
            print(
                f"layoutkit: left out {escape_controls(keywords_to_options(str(reason)))}",
                file=sys.stderr,
            )
        else:
            yield path, result


def _all_failed_error(count: int) -> DataError:
    return DataError(f"none of {count} images can be read; see the messages above")


def _size_error(
    path: Path, size: tuple[int, ...], first: Path, expected: tuple[int, int]
) -> ShapeError:
    return ShapeError(
        f"{path}: {size[0]}x{size[1]} (height x width), but {first} is "
        f"{expected[0]}x{expected[1]}; a batch has one image size: give --resize HxW, or --crop HxW"
    )


@contextmanager
def pixel_limit(max_pixels: int | None) -> Iterator[None]:
    """Set Pillow's limit of pixels per image within the block; None keeps the limit."""
    module = pillow()
    limit = module.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        # For the images that Pillow warns about, `layoutkit.images` raises an error.
        warnings.simplefilter("ignore", module.DecompressionBombWarning)
        if max_pixels is not None:
            module.MAX_IMAGE_PIXELS = max_pixels
        try:
            yield
        finally:
            module.MAX_IMAGE_PIXELS = limit


# The accepted names of each axis of a batch of images.
_IMAGE_AXES = (("b", "n", "batch"), ("h", "height"), ("w", "width"), ("c", "channel", "channels"))


@contextmanager
def open_source(
    sources: Sequence[str], job: FileJob, image_options: ImageOptions, folder: Path
) -> Iterator[SlabSource]:
    """Open `sources`: one array file (a `.npy` is recognized by its content), or images.

    folder : the folder of temporary files
    """
    pattern = parse_pattern(job.pattern, job.sizes)
    arrays = [source for source in sources if _is_array(source)]
    if not arrays:
        if len(sources) == 1:
            _check_format(sources[0], image_options.max_pixels)
        _check_pattern(pattern, image_options.layout)
        decoder = image_options.decoder("stretch")
        paths, skipped = find_images(sources)
        if skipped and not job.quiet:
            label = escape_controls(sources_label(sources))
            print(f"{label}: files skipped that are not images: {skipped}", file=sys.stderr)
        with open_images(paths, decoder, image_options, folder) as batch:
            yield apply_windows(batch, pattern, None, image_options.flip)
        return
    if len(sources) > 1:
        raise ArgumentError(
            f"{arrays[0]}: is an array file, but several SRC must all be images; convert each "
            "array file by itself"
        )
    for option in image_options.options:
        raise ArgumentError(f"{option}: applies to images, but {arrays[0]} is an array; omit it")
    with _open_array(arrays[0]) as array:
        try:
            source = apply_windows(array, pattern, image_options.crop, image_options.flip)
        except ShapeError as error:
            raise ShapeError(f"{arrays[0]}: {error}") from None
        yield source


def _is_array(source: str) -> bool:
    """Return True for an array file; raise ArgumentError for "-", a pipe or a device."""
    path = Path(source)
    if source == "-" or (path.exists() and not (path.is_file() or path.is_dir())):
        # Reading from a pipe may block, and a pipe cannot be read at an offset.
        raise ArgumentError(f"{source}: is not a regular file; write its data into one first")
    return is_store(source) or is_array_name(source) or (path.is_file() and is_npy(path))


def _check_format(source: str, max_pixels: int | None) -> None:
    """Raise ArgumentError for a file without an image suffix whose format is unknown."""
    path = Path(source)
    if not path.is_file() or _is_image(path):
        return
    if not _is_recognized(path, max_pixels):
        raise ArgumentError(
            f"{source}: is neither an image nor a supported array file; supported are "
            f"{', '.join(f'.{name}' for name, row in FORMATS.rows.items() if row.read)}"
        )


def _is_recognized(path: Path, max_pixels: int | None) -> bool:
    with pixel_limit(max_pixels):
        try:
            return is_recognized(path)
        except Exception:  # damaged or too large, which decoding reports
            return True


@dataclass(frozen=True)
class LoadedArray:
    """An array in memory, or memory-mapped, whose slabs are slices."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self, axis: int | None, start: int, stop: int) -> Array:
        """Return the slab `start:stop` along one axis; the whole array if `axis` is None."""
        if axis is None:
            return self.array
        return self.array[(*[slice(None)] * axis, slice(start, stop))]


@dataclass(frozen=True)
class ZarrSource:
    """An array in a zarr store, which is read by slabs."""

    array: Any
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self, axis: int | None, start: int, stop: int) -> Any:
        """Return the slab `start:stop` along one axis; the whole array if `axis` is None."""
        window = () if axis is None else (*[slice(None)] * axis, slice(start, stop))
        with as_data_errors(self.name):
            return np.asarray(self.array[(*window, ...)])


@contextmanager
def _open_array(source: str) -> Iterator[SlabSource]:
    """Open an array file; an uncompressed array is read by slabs, any other is loaded."""
    if is_store(source):
        yield ZarrSource(open_store(source), source)
        return
    content = _single_array(_read_array(source), source)
    if not isinstance(content, StoredArray):
        yield LoadedArray(as_array(content, source))
    elif content.offset is not None:
        with open_npy(content) as array:
            yield array
    else:
        yield LoadedArray(content.loaded())


def _read_array(source: str) -> Any:
    """Return the content of an array file; raise ArgumentError if its reader fails."""
    try:
        return format_reader(source)(source)
    except (LayoutkitError, OSError, MemoryError):
        raise
    except Exception as error:
        raise ArgumentError(
            f"{source}: cannot be read ({describe_error(error)}); the file is damaged, or "
            "its suffix does not match its format"
        ) from error


def _single_array(arrays: Any, source: str) -> Any:
    if not isinstance(arrays, Mapping):
        return arrays
    if len(arrays) != 1:
        names = ", ".join(arrays) or "none"
        raise ArgumentError(
            f"{source}: contains {len(arrays)} arrays ({names}); give a file of one array, such as "
            "one written by numpy.save"
        )
    return next(iter(arrays.values()))


def _check_pattern(pattern: Pattern, layout: str) -> None:
    axes = pattern.left.named
    expected = _IMAGE_AXES[: len(layout)]
    matches = [
        len(names) == 1 and names[0] in allowed
        for names, allowed in zip(axes, expected, strict=False)
    ]
    if len(axes) != len(expected) or not all(matches):
        meaning = "batch, height, width" + (", channel" if "c" in layout else "")
        raise PatternError(
            f"{pattern.text}: images are read as {layout} ({meaning}); "
            f"begin the pattern with {layout}->"
        )
