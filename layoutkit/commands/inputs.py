"""Where the command line reads from: a `.npy` file, or pictures that become one batch."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..axes import parse_pattern
from ..errors import ArgumentError, PatternError
from .images import find_images, open_images
from .npyfiles import is_npy, open_npy
from .streaming import FileJob, SlabSource

__all__ = ["check_destination", "open_source"]

_PICTURES = ("b", "h", "w", "c")


def check_destination(source: str, destination: Path, suffix: str = ".npy") -> None:
    """Refuse a destination that could not be written in the end, before any work is done."""
    if destination.suffix != suffix:
        message = f"{destination}: the result is a {suffix} file; name it {destination}{suffix}"
        raise ArgumentError(message)
    folder = destination.resolve().parent
    if not folder.is_dir():
        raise ArgumentError(f"{destination}: there is no folder {folder}; create it first")
    if not destination.exists():
        return
    if not destination.is_file():
        raise ArgumentError(f"{destination}: is not a file; choose another name")
    if not os.access(destination, os.W_OK):
        raise ArgumentError(f"{destination}: is write-protected; choose another name")
    if Path(source).exists() and destination.samefile(source):
        raise ArgumentError(f"{destination}: is the source itself; choose another name")


@contextmanager
def open_source(
    source: str, job: FileJob, resize: tuple[int, int] | None = None
) -> Iterator[SlabSource]:
    """Open what `source` names: a `.npy` file by its content, anything else as pictures."""
    path = Path(source)
    if path.suffix == ".npy" or (path.is_file() and is_npy(path)):
        if resize:
            raise ArgumentError(
                f"--resize: is for pictures, and {source} is an array; leave it out"
            )
        with open_npy(path) as array:
            yield array
    else:
        _check_pattern(job.pattern)
        paths, others = find_images(source)
        if others and not job.quiet:
            print(f"{source}: files skipped as no pictures: {others}", file=sys.stderr)
        with open_images(paths, resize) as batch:
            yield batch


def _check_pattern(pattern: str) -> None:
    if parse_pattern(pattern).left.groups != _PICTURES:
        message = (
            f"{pattern}: pictures are read as bhwc (batch, height, width, channel); "
            "begin the pattern with bhwc->"
        )
        raise PatternError(message)
