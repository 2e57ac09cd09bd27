"""Where the command line reads from: a file of one array, or pictures that become one batch.

Knows which kind a source is; formats are known by `data/formats.py`, pictures by `images.py`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.adapters import as_array
from ..axes import parse_pattern
from ..data.formats import ARRAYS, reader_of, suffix_of
from ..data.reading.npy import StoredArray
from ..data.reading.zarrstores import is_store, open_store
from ..errors import ArgumentError, LayoutkitError, PatternError, ShapeError
from ..memory import Array
from .images import Pictures, find_images, named, open_images
from .npyfiles import is_npy, open_npy
from .printing import printable
from .streaming import FileJob, SlabSource
from .windows import windowed

__all__ = ["open_source"]

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
