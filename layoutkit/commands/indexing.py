"""`layoutkit index`: the `.idx` of a RecordIO file, which says where its records begin.

Knows the file whole or damaged; how heads are found is known by `layoutkit.data`.
"""

from __future__ import annotations

from pathlib import Path

from ..atomic import replacing
from ..data.reading.ranges import RangeFile
from ..data.reading.recordframes import FrameError, span_at
from ..data.reading.recordheads import walked
from ..errors import ArgumentError, DataError
from .destinations import check_destination
from .printing import printable

__all__ = ["make_index"]


def make_index(path: Path) -> None:
    """Write the index beside a file; DataError, and nothing is written, where it is damaged."""
    if not path.is_file():
        raise ArgumentError(f"{path}: no such file; check the path")
    if path.suffix == ".idx":
        raise ArgumentError(f"{path}: is an index already; give the .rec that it is of")
    target = path.with_suffix(".idx")
    check_destination([str(path)], target, ".idx")
    with RangeFile(str(path)) as file:
        offsets, lengths = walked(file)
        broken = (lengths < 0) | (offsets + lengths > file.size)
        if broken.any():
            raise _damaged(file, int(offsets[broken][0]))
    with replacing(target) as written:
        written.writelines(b"%d\t%d\n" % line for line in enumerate(offsets.tolist()))
    print(f"written: {printable(target)}, {len(offsets)} records")


def _damaged(file: RangeFile, offset: int) -> DataError:
    """What is wrong at a place."""
    try:
        end = offset + span_at(file, offset)
    except FrameError as error:
        return error
    if end <= file.size:
        return DataError(f"{file.url}: the record at byte {offset} is damaged")
    return DataError(
        f"{file.url} is cut: it ends after {file.size} bytes, inside the record that begins at "
        f"byte {offset}"
    )
