"""`layoutkit pack`: labelled pictures become RecordIO files, with their `.idx` and `.lst`.

Knows which pictures, in which order, and what is written; how pictures are decoded and how records
are framed is known elsewhere.

`layoutkit index`: the `.idx` of a RecordIO file, which says where its records begin.

Knows the file whole or damaged; how heads are found is known by `layoutkit.data`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._utils.files import replacing, resolved
from ..data import open_index, sampler
from ..data.formats import PICTURES, suffix_of
from ..data.io.image_record import pack_image
from ..data.io.reader import RangeFile
from ..data.io.recordio import FrameError, span_at, walked
from ..data.recordio import RecordWriter
from ..data.sources.recordio import read_list
from ..errors import ArgumentError, DataError
from ..images import fit, read
from ..images.decode import pillow
from ..memory import Array
from .inputs import allowing
from .outputs import check_destination
from .printing import as_options, printable

_QUALITIES = {"jpg": range(1, 101), "png": range(10), "npy": range(0)}
_QUALITY = 95  # of jpg
_AT_ONCE = 64  # pictures that are under way before the first of them is written
_MOST_PARTS = 256  # as all parts are open until the last picture is written
_MOST_WORKERS = 4
_SHOWN = 20  # labels in the summary


@dataclass(frozen=True)
class PackRequest:
    """What the command was asked for.

    resize         what the shorter edge becomes
    quality        of jpg 1 .. 100; of png 0 .. 9, how much time compression takes
    pass_through   the files as they are, instead of all that
    """

    source: str
    target: Path
    list_only: bool = False
    resize: int | None = None
    quality: int | None = None
    encoding: str | None = None
    pass_through: bool = False
    shuffle: bool = False
    seed: int = 0
    parts: int = 1
    workers: int | None = None
    max_pixels: int | None = None

    def check(self) -> None:
        """ArgumentError for options that do not fit together."""
        for name in ("resize", "quality", "encoding"):
            if self.pass_through and getattr(self, name) is not None:
                raise ArgumentError(f"--{name}: --pass-through packs files as they are; give one")
        encoding = self.encoding or "jpg"
        if self.quality is not None and self.quality not in _QUALITIES[encoding]:
            ends = _QUALITIES[encoding]
            known = f"of {encoding} it is {ends[0]} to {ends[-1]}" if ends else "npy has none"
            raise ArgumentError(f"--quality {self.quality}: {known}")
        if self.parts > _MOST_PARTS:
            raise ArgumentError(f"--parts {self.parts}: the most is {_MOST_PARTS}")
        if self.seed and not self.shuffle:
            raise ArgumentError("--seed: is of --shuffle; give both")
        for target in self.targets:
            check_destination([self.source], target, ".rec")

    @property
    def targets(self) -> list[Path]:
        """The files that are written, without their `.idx` and `.lst`."""
        if self.parts == 1:
            return [self.target]
        return [self.target.with_suffix(f".part{part:03}.rec") for part in range(self.parts)]


class Picture(NamedTuple):
    """A picture to be packed; `id` is that of a list, else None."""

    path: Path
    labels: Sequence[float]
    id: int | None = None


def pack(request: PackRequest) -> None:
    """Write the files, which appear together when all is written, and say what is in them.

    Raises ArgumentError before anything is read, and DataError where no picture can be read.
    """
    request.check()
    pictures, names = _pictures(request)
    if request.shuffle:
        order = sampler("permutation", len(pictures), seed=request.seed)
        pictures = [pictures[place] for place in order]
    packed = 0
    with ExitStack() as files:
        shares = [_Share(target, request, files) for target in request.targets]
        for place, picture, payload in _payloads(pictures, request):
            number = packed if picture.id is None else picture.id
            shares[place * request.parts // len(pictures)].add(picture, number, payload)
            packed += 1
        if not packed:
            raise DataError(f"{request.source}: none of {len(pictures)} pictures can be read")
        for share in shares:
            share.write_list()
    for share in shares:
        print(f"written: {printable(share.written)}, {share.count} pictures")
    if names:
        shown = ", ".join(f"{rank} {name}" for rank, name in enumerate(names[:_SHOWN]))
        print(f"labels: {printable(shown)}{', ...' if len(names) > _SHOWN else ''}")


class _Share:
    """One of the files, and the list of what is in it."""

    def __init__(self, target: Path, request: PackRequest, files: ExitStack) -> None:
        self.count = 0
        self._lines: list[str] = []
        self._folder = resolved(target).parent
        self._list: Any = None
        path = target.with_suffix(".lst")
        # A list that is packed under its own name stays as it is.
        if not (path.exists() and path.samefile(request.source)):
            self._list = files.enter_context(replacing(path))
        self._writer = None if request.list_only else files.enter_context(RecordWriter(target))
        self.written = path if request.list_only else target

    def add(self, picture: Picture, number: int, payload: bytes) -> None:
        """Append a picture."""
        labels = [*map(float, picture.labels)]
        if self._writer is not None:
            label = labels[0] if len(labels) == 1 else labels
            self._writer.write(pack_image(payload, label, number), number)
        path = os.path.relpath(resolved(picture.path), self._folder)
        self._lines.append("\t".join([str(number), *map(_number, labels), path]) + "\n")
        self.count += 1

    def write_list(self) -> None:
        """Write the lines of all that were appended."""
        if self._list is not None:
            self._list.writelines(line.encode() for line in self._lines)


# ---- Pictures ---------------------------------------------------------------------------------


def _pictures(request: PackRequest) -> tuple[list[Picture], list[Any]]:
    """What is to be packed, in order, and the names of labels that are ranks."""
    source = Path(request.source)
    if source.is_dir():
        pictures, names = _in_folders(request.source)
    elif source.is_file() and suffix_of(request.source) == ".lst":
        pictures, names = _in_list(request.source), []
    elif source.exists():
        raise ArgumentError(f"{source}: is neither a folder of labelled folders nor a .lst")
    else:
        raise ArgumentError(f"{source}: no such folder or file; check the path")
    if not pictures:
        raise ArgumentError(
            f"{source}: there are no pictures, or none that lie in labelled folders"
        )
    return pictures, names


def _in_folders(source: str) -> tuple[list[Picture], list[Any]]:
    """The pictures in the sub-folders, whose ranks are the labels."""
    index = open_index(source)
    records = [record for record in index if suffix_of(record.url) in PICTURES]
    if len(records) < len(index):
        others = len(index) - len(records)
        print(f"{printable(source)}: files skipped as no pictures: {others}", file=sys.stderr)
    for record in records:
        if record.label is None:
            _leave_out(f"{record.url}: it lies in no labelled folder")
    # Labels of folders without pictures have no number.
    names = sorted({record.label for record in records if record.label is not None})
    ranks = {name: rank for rank, name in enumerate(names)}
    found = [record for record in records if record.label is not None]
    return [Picture(Path(record.url), [ranks[record.label]]) for record in found], names


def _in_list(source: str) -> list[Picture]:
    """The pictures that a `.lst` names, relative to its folder."""
    lines = read_list(source)
    values = np.split(lines.values, np.cumsum(lines.widths)[:-1]) if len(lines.widths) else []
    rows = zip(lines.paths, values, lines.ids.tolist(), strict=True)
    return [Picture(Path(source).parent / path, labels.tolist(), own) for path, labels, own in rows]


def _payloads(
    pictures: Sequence[Picture], request: PackRequest
) -> Iterator[tuple[int, Picture, bytes]]:
    """(place, picture, what is packed of it) of those that can be read, in order."""
    from tqdm import tqdm  # not needed to refuse a request

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = request.workers or min(_MOST_WORKERS, cpus)
    bar = tqdm(total=len(pictures), unit="picture", disable=not sys.stderr.isatty())
    with allowing(request.max_pixels), bar, ThreadPoolExecutor(workers) as pool:
        for first in range(0, len(pictures), _AT_ONCE):
            some = pictures[first : first + _AT_ONCE]
            found = pool.map(lambda picture: _tried(picture, request), some)
            for place, (picture, payload) in enumerate(zip(some, found, strict=True), first):
                bar.update()
                if isinstance(payload, Exception):
                    why = getattr(payload, "strerror", None)
                    _leave_out(f"{picture.path}: {why}" if why else str(payload))
                else:
                    yield place, picture, payload


def _tried(picture: Picture, request: PackRequest) -> bytes | Exception:
    """What is packed of a picture, or why it cannot be read."""
    try:
        if any(letter in str(picture.path) for letter in "\t\n\r"):
            raise DataError(f"{picture.path}: a list has no room for tabs and newlines in names")
        if request.list_only:
            return b""
        pixels = read(picture.path)
        return picture.path.read_bytes() if request.pass_through else _encoded(pixels, request)
    except (DataError, OSError) as error:
        return error


def _encoded(pixels: Array, request: PackRequest) -> bytes:
    """The file of a picture, resized where that was asked for."""
    if request.resize is not None:
        pixels = fit(pixels, _shorter_edge(pixels.shape, request.resize), "stretch")
    file = io.BytesIO()
    if request.encoding == "npy":
        np.save(file, pixels)
    elif request.encoding == "png":
        level = 6 if request.quality is None else request.quality
        pillow().fromarray(pixels).save(file, "PNG", compress_level=level)
    else:
        quality = _QUALITY if request.quality is None else request.quality
        pillow().fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _shorter_edge(shape: Sequence[int], edge: int) -> tuple[int, int]:
    """Height and width of a picture whose shorter edge is to be this."""
    height, width = shape[:2]
    if height <= width:
        return edge, max(edge, edge * width // height)
    return max(edge, edge * height // width), edge


def _number(value: float) -> str:
    """A label in as few digits as float32 needs."""
    return str(int(value)) if value.is_integer() else str(np.float32(value))


def _leave_out(why: str) -> None:
    from tqdm import tqdm

    tqdm.write(f"layoutkit: left out {printable(as_options(why))}", file=sys.stderr)


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
