"""Files of any size through a conversion, a chunk of the batch at a time.

A chunk is a range of axis `b`. It is read through a memory map (or decoded from pictures),
converted into memory that every chunk uses again, written, and let go, so the resident memory
is about the size of a chunk. A pattern that has no `b` of its own on both sides goes in one
piece.
"""

import errno
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ..atomic import replacing, resolved
from ..axes import parse_pattern
from ..converter import Converter
from ..errors import ArgumentError, DtypeError, ShapeError
from ..spec import ArraySpec
from .npyfiles import NpyFile, create_npy
from .printing import printable

__all__ = ["FileJob", "SlabSource", "convert_to_file"]

# Input and output of one chunk together: large against the last cache, so that threads and
# streaming stores pay, and small against the memory of any machine.
_CHUNK_BYTES = 64 << 20

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class SlabSource(Protocol):
    """What a conversion reads: an array of which slabs can be fetched."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """Everything between two positions of one axis; the whole if `axis` is None."""


@dataclass(frozen=True)
class FileJob:
    """What to do to the source: the pattern, `Converter`'s keywords, and how to go about it."""

    pattern: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    chunk: int | None = None
    quiet: bool = False

    def converter(self, *, whole: bool = True) -> Converter:
        """The conversion of the whole source, or of a chunk of it: there `b` has another size."""
        sizes = {axis: size for axis, size in self.sizes.items() if whole or axis != "b"}
        keywords = {**self.options, **sizes}
        return Converter(self.pattern, **keywords)


def convert_to_file(source: SlabSource, name: str, destination: Path, job: FileJob) -> None:
    """Convert `source`, called `name` in errors, into the `.npy` file `destination`.

    The file appears when it is complete; after any error or interruption it is as it was.
    """
    began = time.perf_counter()
    with _naming(name):
        result = _result(source, job)
    with replacing(destination) as file:
        target = _create(file, result, destination)
        with _naming(name):
            _convert_chunks(source, target, job)
    if not job.quiet:
        _report(name, source, destination, target, time.perf_counter() - began)


def _result(source: SlabSource, job: FileJob) -> ArraySpec:
    converter = job.converter()
    axes = parse_pattern(job.pattern).left
    return converter.resolve(ArraySpec(str(axes), source.shape, source.dtype))


def _create(file: BinaryIO, result: ArraySpec, destination: Path) -> NpyFile:
    try:
        return create_npy(file, result.shape, result.dtype)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        nbytes = math.prod(result.shape) * result.dtype.itemsize
        free = shutil.disk_usage(resolved(destination).parent).free
        message = (
            f"{destination}: no room for {_megabytes(nbytes)} ({error.strerror}; "
            f"{_megabytes(free)} free there); make room or write it elsewhere"
        )
        raise ArgumentError(message) from error


def _convert_chunks(source: SlabSource, target: NpyFile, job: FileJob) -> None:
    left, right = _batch_axes(job.pattern)
    converter = job.converter(whole=left is None)
    for start, stop in _chunks(source, target, left, job):
        target.write(right, start, stop, converter(source.read(left, start, stop)))


def _batch_axes(pattern: str) -> tuple[int, int] | tuple[None, None]:
    """Where `b` is in the source and in the result, if it is an axis of its own in both."""
    parsed = parse_pattern(pattern)
    left, right = parsed.source.groups, parsed.target.groups
    if "b" in left and "b" in right:
        return left.index("b"), right.index("b")
    return None, None


def _chunks(
    source: SlabSource, target: NpyFile, axis: int | None, job: FileJob
) -> Iterator[tuple[int, int]]:
    """The ranges of `b` to convert, with a progress bar over them."""
    from tqdm import tqdm  # not needed to refuse a request

    samples = 1 if axis is None else source.shape[axis]
    size = max(1, job.chunk or _default_chunk(source, target, samples))
    with tqdm(total=samples, unit="sample", disable=job.quiet, file=sys.stderr) as bar:
        for start in range(0, samples, size):
            stop = min(start + size, samples)
            yield start, stop
            bar.update(stop - start)


def _default_chunk(source: SlabSource, target: NpyFile, samples: int) -> int:
    return _CHUNK_BYTES * samples // max(1, _nbytes(source) + _nbytes(target))


def _nbytes(array: SlabSource | NpyFile) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the source's name before what the library says about its array."""
    try:
        yield
    except (ShapeError, DtypeError) as error:
        raise type(error)(f"{name}: {error}") from error


def _report(
    name: str, source: SlabSource, destination: Path, target: NpyFile, seconds: float
) -> None:
    nbytes = _nbytes(source) + _nbytes(target)
    print(
        f"{printable(name)} {source.shape} {source.dtype} -> {printable(destination)} "
        f"{target.shape} {target.dtype}: "
        f"{_megabytes(nbytes)} in {seconds:.2f} s, {nbytes / 1e9 / seconds:.2f} GB/s",
        file=sys.stderr,
    )


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
