"""Tar archives in the layout of WebDataset: adjacent members with one key form a sample.

The key of a member is its path up to the first dot of the base name; the rest is its suffix:
`cats/0001.jpg` and `cats/0001.cls`. Members are located once; from then on a record is a byte
range, so that archives can be read in any order. Parts of a sample that are not adjacent are an
error, as each part would be a sample without image or label.
"""

from __future__ import annotations

import io
import json
import tarfile
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import repeat
from posixpath import dirname, join, normpath
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...images.suffixes import DECODERS, PILLOW_SUFFIXES
from ..io.filesystem import local_path
from ..io.reader import RangeFile
from ..labels import LabelColumns, Missing, check_columns, label_columns, parse_label
from .base import Partition
from .ranged import (
    RangedIndex,
    RecordColumns,
    Versions,
    check_uncompressed,
    expand_shards,
    open_part,
)

# In order of preference: the usual ones, then the others that Pillow decodes.
_PREFERRED = ("jpg", "jpeg", "png", "webp", "npy")
_IMAGES = (*_PREFERRED, *sorted(PILLOW_SUFFIXES - {*_PREFERRED}))
_MAX_LINKS = 40  # from a link to a file, as in Linux
_MAX_LABEL = 1 << 24  # bytes of a member that is a label, and of an extended header
_MAX_READS = 200  # between two members: a hundred extended headers
_MAX_MEMBER = 1 << 62  # bytes, so that offsets fit int64
_BUFFER = 1 << 13  # bytes read with a header of a local archive: enough to include a label


def open_tar(
    path: str,
    kind: str,
    partition: Partition,
    columns: Mapping[str, Any] | None = None,
    missing: Missing = "error",
) -> RangedIndex:
    """Open a tar archive, or several by wildcards or braces."""
    spec = _parse_columns(columns)
    files = expand_shards(path)
    load = partial(_columns, files, spec, missing)
    return RangedIndex(kind, files, partition, load, _unchanged, _record_error)


# ---- Columns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ColumnSpec:
    """The suffixes of the members that are a sample's image and label.

    image       in order of preference
    has_others  True if the suffixes of other packages are images, too, in order of their names
    label       None: `cls`, or else `txt`
    key         the key of the label in a JSON member
    """

    image: tuple[str, ...]
    has_others: bool
    label: str | None
    key: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return ("cls", "txt") if self.label is None else (self.label,)

    def rank(self, suffix: str) -> tuple[int, str] | None:
        """Return the place of an image's suffix in the order of preference; None for others."""
        if suffix in self.image:
            return self.image.index(suffix), suffix
        is_other = self.has_others and suffix not in self.labels and suffix in DECODERS
        return (len(self.image), suffix) if is_other else None

    def value(self, suffix: str, data: bytes) -> Any:
        """Return the label in a member; ValueError if there is none."""
        text = data.decode().strip()
        if self.key is not None:
            value = json.loads(text)
            if not isinstance(value, dict) or self.key not in value:
                raise ValueError(f"it has no {self.key!r}")
            return value[self.key]
        return parse_label(text) if suffix == "cls" else text


def _parse_columns(columns: Any) -> _ColumnSpec:
    """Return the spec for the `columns` option; DataError if it is invalid."""
    columns = check_columns(columns)
    images = columns.get("image", _IMAGES)
    label = columns.get("label")
    images = tuple(images) if isinstance(images, list | tuple) else (images,)
    for suffix in (*images, "cls" if label is None else label):
        if not isinstance(suffix, str) or not suffix:
            raise DataError(f"columns has {suffix!r}, which is not a suffix; give one as in 'jpg'")
    suffixes = tuple(suffix.lstrip(".").lower() for suffix in images)
    has_others = "image" not in columns
    if label is None:
        return _ColumnSpec(suffixes, has_others, None)
    suffix, _, key = label.lstrip(".").partition(":")
    if key and suffix != "json":
        raise DataError(f"columns has the label {label!r}; a key belongs to json, as in 'json:key'")
    if suffix == "json" and not key:
        raise DataError(f"columns has the label {label!r}; say which key, as in 'json:label'")
    return _ColumnSpec(suffixes, has_others, suffix.lower(), key or None)


# ---- Samples ----------------------------------------------------------------------------------


@dataclass
class _Samples:
    """The image locations and labels of samples, one entry each."""

    files: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    labels: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)  # used if no sample has the first label suffix
    names: list[str] = field(default_factory=list)  # of the members that are images
    without_image: list[_Piece] = field(default_factory=list)
    dotted: set[str] = field(default_factory=set)  # suffixes with dots of samples with an image
    suffixes: Counter[str] = field(default_factory=Counter)  # of all members; "" for none
    errors: dict[int, str] = field(default_factory=dict)  # clauses about members that are no labels


@dataclass
class _Sample:
    """The image and label members of one sample."""

    key: str
    names: dict[str, str] = field(default_factory=dict)  # of the members, by suffix
    image: tuple[tuple[int, str], int, int] | None = None  # rank of the suffix, offset, size
    labels: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # a clause about a member that is no label
    broken: bool = False


class _Piece(NamedTuple):
    """Adjacent members with one key: a sample, or a part of one in an archive that is not sorted.

    file : int       the archive
    name : str       a member
    """

    file: int
    name: str
    has_image: bool
    has_label: bool


def _columns(
    files: list[str], spec: _ColumnSpec, missing: Missing, versions: Versions
) -> RecordColumns:
    samples = _Samples()
    skipped = array("q")
    position = 0
    for number, path in enumerate(files):
        for sample in _samples(path, spec, versions, samples.suffixes):
            if sample.image is None:
                name = _example(sample, spec)
                samples.without_image.append(_Piece(number, name, False, bool(sample.labels)))
            if sample.image is None or not sample.image[2]:
                skipped.append(position)
            else:
                _add(samples, number, sample, spec)
            position += 1
    _check_adjacent(samples, files)
    _check_dots(samples, files, spec)
    positions = None
    if skipped:
        positions = np.delete(np.arange(position), np.frombuffer(skipped, np.int64))
    column = np.array(samples.files, np.int32) if len(files) > 1 else None
    offsets = np.array(samples.offsets, np.int64)
    lengths = np.array(samples.lengths, np.int64)
    labels = _labels(samples, files, spec)
    content = _describe_members(samples.suffixes)
    columns = RecordColumns(
        files, column, offsets, lengths, positions, *labels, len(skipped), content
    )
    return columns.labeled(missing, partial(_describe_unlabeled, samples, files))


def _example(sample: _Sample, spec: _ColumnSpec) -> str:
    """Return the name of a member for errors: an image whose name has dots, a label, or any."""
    suffixes = sorted(
        sample.names,
        key=lambda suffix: (not _is_dotted_image(suffix, spec), suffix not in sample.labels),
    )
    return sample.names[suffixes[0]]


def _is_dotted_image(suffix: str, spec: _ColumnSpec) -> bool:
    """Return True for a suffix such as 01.05.jpg."""
    return "." in suffix and spec.rank(suffix.rpartition(".")[2]) is not None


def _add(samples: _Samples, number: int, sample: _Sample, spec: _ColumnSpec) -> None:
    (_, image), offset, size = sample.image or ((0, ""), 0, 0)
    first, *rest = spec.labels
    samples.files.append(number)
    samples.offsets.append(offset)
    samples.lengths.append(-1 if sample.broken else size)
    if sample.error:
        samples.errors[len(samples.labels)] = sample.error
    samples.labels.append(sample.labels.get(first))
    samples.names.append(sample.names.get(image, ""))
    samples.dotted.update(suffix for suffix in sample.names if "." in suffix)
    if rest:
        samples.others.append(sample.labels.get(rest[0]))


def _check_adjacent(samples: _Samples, files: list[str]) -> None:
    """Raise DataError if a sample is in several pieces, and one lacks what another one has."""
    has_label = [*map(_is_any, samples.labels, samples.others or repeat(None))]
    if not samples.without_image and all(has_label) | (not any(has_label)):
        return
    first: dict[tuple[int | None, str], _Piece] = {}
    pieces = map(_Piece, samples.files, samples.names, repeat(True), has_label)
    for piece in (*pieces, *samples.without_image):
        key, _ = _key_and_suffix(piece.name)
        other = first.setdefault((piece.file, key), piece)
        if other[2:] != piece[2:] and other.has_image | piece.has_image:
            raise _order_error(other, piece, files)
        if piece.has_image != piece.has_label:  # archives may have equal keys
            other = first.setdefault((None, key), piece)
            if other.has_image != piece.has_image:
                raise _order_error(other, piece, files)


def _is_any(*values: Any) -> bool:
    return any(value is not None for value in values)


def _order_error(first: _Piece, second: _Piece, files: list[str]) -> DataError:
    """Return the error for two members of one sample that are not adjacent."""
    path = files[first.file]
    names = f"the members {first.name!r} and {second.name!r}"
    cure = "unpack the archive and pack it sorted"
    if first.file != second.file:
        names = f"the members {first.name!r} and, in {files[second.file]}, {second.name!r}"
        cure = "unpack the archives into one folder and pack it sorted"
    return DataError(
        f"{path}: {names} belong to one sample but are not adjacent, so it would lose its image or "
        f"label; {cure}: tar --sort=name -cf sorted.tar -C FOLDER ."
    )


def _check_dots(samples: _Samples, files: list[str], spec: _ColumnSpec) -> None:
    """Raise DataError for an image whose name has a dot before the suffix.

    A suffix with dots that other samples have next to their image, such as seg.png, is an
    additional member, which may lack an image.
    """
    for piece in samples.without_image:
        suffix = _key_and_suffix(piece.name)[1]
        if _is_dotted_image(suffix, spec) and suffix not in samples.dotted:
            raise DataError(
                f"{files[piece.file]}: the member {piece.name!r} is not the image of a sample, as "
                f"the key ends at the first dot of the file name and its suffix is {suffix!r}; "
                f"replace the dots in file names, or give open_index(source, "
                f"columns={{'image': {suffix!r}}})"
            )


def _describe_members(suffixes: Counter[str]) -> str:
    """Return the text about the members of archives in which no sample has an image."""
    if not suffixes:
        return "no files are in it"
    counts = [f"{suffix or 'none'} ({count})" for suffix, count in suffixes.most_common(10)]
    rest = ", ..." if len(suffixes) > 10 else ""
    return (
        f"no member with content has the suffix of an image; the suffixes are {', '.join(counts)}"
        f"{rest}; select others, as in open_index(source, columns={{'image': 'SUFFIX'}})"
    )


def _labels(samples: _Samples, files: list[str], spec: _ColumnSpec) -> LabelColumns:
    values = samples.labels
    if samples.others and all(value is None for value in values):
        values = samples.others
    try:
        columns = label_columns(values, spec.label is not None or bool(samples.errors))
    except ValueError as error:
        index, text = error.args
        raise DataError(f"{_name(samples, files, index)}: the label {text}") from error
    if columns.unlabeled is None:
        return columns
    readable = np.array(samples.lengths, np.int64) >= 0  # reading others is an error by itself
    return columns._replace(unlabeled=columns.unlabeled & readable)


def _name(samples: _Samples, files: list[str], index: int) -> str:
    key, _ = _key_and_suffix(samples.names[index])
    return f"{files[samples.files[index]]}, sample {key}"


def _describe_unlabeled(samples: _Samples, files: list[str], index: int) -> str:
    return samples.errors.get(index) or f"{_name(samples, files, index)} has no label"


def _samples(
    path: str, spec: _ColumnSpec, versions: Versions, suffixes: Counter[str]
) -> Iterator[_Sample]:
    sample: _Sample | None = None
    with open_part(path, versions) as file:
        stream = _ArchiveStream(file, _BUFFER if local_path(path) is not None else file.max_gap)
        links = _Links(file)
        for member, offset in _members(stream, file):
            if member is None:
                yield from [] if sample is None else [sample]
                yield _Sample("", image=((0, ""), offset, 1), broken=True)
                return
            key, suffix = _key_and_suffix(member.name)
            suffixes[suffix] += 1
            if not key:
                continue
            if sample is None or sample.key != key or suffix in sample.names:
                yield from [] if sample is None else [sample]
                sample = _Sample(key)
            sample.names[suffix] = member.name
            if suffix in spec.labels or spec.rank(suffix) is not None:
                _take(sample, suffix, links.resolve(member), stream, spec, path)
    if sample is not None:
        yield sample


def _take(
    sample: _Sample,
    suffix: str,
    extent: _Extent,
    stream: _ArchiveStream,
    spec: _ColumnSpec,
    path: str,
) -> None:
    """Add an image or a label to its sample."""
    if (rank := spec.rank(suffix)) is not None:
        if sample.image is None or rank < sample.image[0]:
            sample.image = rank, extent.offset, extent.size
            sample.broken |= not extent.is_whole
        return
    name = f"{path}, {sample.names[suffix]}"
    if extent.size > _MAX_LABEL:
        sample.error = f"{name} is not a label: it has {extent.size} bytes"
        return
    stream.seek(extent.offset)
    data = stream.read(extent.size)
    if len(data) < extent.size or not extent.is_whole:
        sample.broken = True
        return
    try:
        sample.labels[suffix] = spec.value(suffix, data)
    except (ValueError, RecursionError) as error:  # RecursionError: deeply nested JSON
        sample.error = f"{name} is not a label: {error}"


# ---- Members ----------------------------------------------------------------------------------


class _Extent(NamedTuple):
    """The bytes of a member; `is_whole` is False if they cannot be read as one range."""

    offset: int
    size: int
    is_whole: bool


class _Links:
    """The files that links point to. The first link causes a second pass over the headers."""

    def __init__(self, file: RangeFile) -> None:
        self._file = file

    def resolve(self, member: tarfile.TarInfo) -> _Extent:
        entry: _Extent | str | None = _entry(member)
        for _ in range(_MAX_LINKS):
            if isinstance(entry, _Extent):
                return entry
            entry = self._entries.get(entry or "")
        # The target is missing or leads back. A size of 1: an empty image would be skipped.
        return _Extent(member.offset, 1, False)

    @cached_property
    def _entries(self) -> dict[str, _Extent | str]:
        """The extent of each file by normalized name; of a link, the name of its target."""
        with RangeFile(self._file.url, version=self._file.version) as file:
            pairs = _members(_ArchiveStream(file, file.max_gap), file)
            return {normpath(member.name): _entry(member) for member, _ in pairs if member}


def _entry(member: tarfile.TarInfo) -> _Extent | str:
    """Return the extent of a file, or the normalized name of the target of a link."""
    if member.isreg():
        return _Extent(member.offset_data, member.size, not member.issparse())
    # The target of a hard link is a member; of a symbolic link, a path relative to its folder.
    folder = "" if member.islnk() else dirname(member.name)
    return normpath(join(folder, member.linkname))


class _ArchiveStream(io.BufferedReader):
    """A stream that refuses reads of headers that are too large, or too many for one member."""

    reads = 0  # since the last member

    def read(self, size: int | None = -1, /) -> bytes:
        """Return `size` bytes; raise tarfile.ReadError beyond the limits."""
        self.reads += 1
        if size is None or not 0 <= size <= _MAX_LABEL or self.reads > _MAX_READS:
            raise tarfile.ReadError("the headers of a member are too large")
        return super().read(size)


def _members(stream: _ArchiveStream, file: RangeFile) -> Iterator[tuple[Any, int]]:
    """Yield (member, offset) of the files and links in an archive.

    (None, offset) ends it where a member cannot be read. tarfile accepts negative sizes, which lead
    it back to an earlier member.
    """
    end = 0
    try:
        with tarfile.open(fileobj=stream, mode="r:", errorlevel=2) as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # else it keeps them all
                stream.reads = 0
                if not 0 <= member.size < _MAX_MEMBER or not end < archive.offset < _MAX_MEMBER:
                    raise tarfile.ReadError(f"a member has {member.size} bytes")
                end = archive.offset
                if member.isreg() or member.islnk() or member.issym():
                    yield member, member.offset_data
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        if not end:
            check_uncompressed(file)
            raise DataError(f"{file.url} is not a tar archive: {error}") from error
    # An archive ends with zeros, or its last member; tarfile treats unreadable data as the end.
    if any(file.read_at(end, tarfile.BLOCKSIZE)):
        yield None, end


def _key_and_suffix(name: str) -> tuple[str, str]:
    """Return the key and the suffix of a member; an empty key if it belongs to no sample."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return (folder + slash + stem, suffix.lower()) if stem and dot else ("", "")


def _unchanged(data: bytes, url: str, offset: int) -> bytes:
    return data


def _record_error(url: str, offset: int) -> DataError:
    return DataError(
        f"{url}: no member that can be read is at byte {offset}; the archive is truncated or "
        "damaged there, or the member is sparse or a link to no file of the archive"
    )
