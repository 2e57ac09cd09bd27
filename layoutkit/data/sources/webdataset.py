"""Tar archives in the layout of WebDataset: adjacent members with one key form a sample.

The key of a member is its path up to the first dot of the base name; the rest is the name of its
column: `cats/0001.jpg` and `cats/0001.cls`. Members are located once; from then on a record is a
byte range, so that archives can be read in any order.
"""

from __future__ import annotations

import io
import json
import tarfile
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...errors import DataError
from ..io.filesystem import local_path, parent_folder
from ..io.reader import RangeFile
from .base import Partition
from .ranged import LabelColumns, RangedIndex, RecordColumns, Versions, expand_shards, label_columns

IMAGE_SUFFIXES = ("jpg", "jpeg", "png", "webp", "npy")
_MAX_LABEL = 1 << 24  # bytes of a member that is a label, and of an extended header
_MAX_READS = 200  # between two members: a hundred extended headers
_MAX_MEMBER = 1 << 62  # bytes, so that offsets fit int64
_BUFFER = 1 << 13  # bytes read with a header of a local archive: enough to include a label
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
}


def open_tar(
    path: str, kind: str, partition: Partition, columns: Mapping[str, Any] | None = None
) -> RangedIndex:
    """Open a tar archive, or several by wildcards or braces."""
    spec = _parse_columns(columns)
    files = expand_shards(path)
    load = partial(_columns, files, spec)
    index = RangedIndex(kind, parent_folder(files[0]), partition, load, _unchanged, _record_error)
    if all(local_path(file) is not None for file in files):
        len(index)  # loads local files now, so that their errors are raised here
    return index


# ---- Columns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ColumnSpec:
    """The suffixes of the members that are a sample's image and label.

    image    in order of preference
    label      None: `cls`, or else `txt`
    key        the key of the label in a JSON member
    """

    image: tuple[str, ...]
    label: str | None
    key: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The suffixes of members that are read for labels."""
        return ("cls", "txt") if self.label is None else (self.label,)

    def value(self, suffix: str, data: bytes) -> Any:
        """Return the label in a member; ValueError if there is none."""
        text = data.decode().strip()
        if self.key is not None:
            value = json.loads(text)
            if not isinstance(value, dict) or self.key not in value:
                raise ValueError(f"it has no {self.key!r}")
            return value[self.key]
        return int(text) if suffix == "cls" else text


def _parse_columns(columns: Any) -> _ColumnSpec:
    """Return the spec for the `columns` option; DataError if it is invalid."""
    if columns is None:
        return _ColumnSpec(IMAGE_SUFFIXES, None)
    if not isinstance(columns, Mapping) or not {*columns} <= {"image", "label"}:
        raise DataError(
            f"columns={columns!r}; it is a mapping of image, label or both to suffixes of members, "
            "as in {'image': ('jpg', 'png'), 'label': 'cls'}"
        )
    images = columns.get("image", IMAGE_SUFFIXES)
    label = columns.get("label")
    images = tuple(images) if isinstance(images, list | tuple) else (images,)
    for suffix in (*images, "cls" if label is None else label):
        if not isinstance(suffix, str) or not suffix:
            raise DataError(f"columns has {suffix!r}, which is not a suffix; give one as in 'jpg'")
    suffixes = tuple(suffix.lstrip(".").lower() for suffix in images)
    if label is None:
        return _ColumnSpec(suffixes, None)
    suffix, _, key = label.lstrip(".").partition(":")
    if key and suffix != "json":
        raise DataError(f"columns has the label {label!r}; a key belongs to json, as in 'json:key'")
    if suffix == "json" and not key:
        raise DataError(f"columns has the label {label!r}; say which key, as in 'json:label'")
    return _ColumnSpec(suffixes, suffix.lower(), key or None)


# ---- Samples ----------------------------------------------------------------------------------


@dataclass
class _Samples:
    """The image locations and labels of samples, one entry each."""

    files: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    labels: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)  # used if no sample has the first label suffix
    keys: list[str] = field(default_factory=list)


@dataclass
class _Sample:
    """The image and label members of one sample."""

    key: str
    suffixes: set[str] = field(default_factory=set)
    image: tuple[int, int, int] | None = None  # rank of the suffix, offset, size
    labels: dict[str, Any] = field(default_factory=dict)
    broken: bool = False


def _columns(files: list[str], spec: _ColumnSpec, versions: Versions) -> RecordColumns:
    samples = _Samples()
    skipped = array("q")
    position = 0
    for number, path in enumerate(files):
        for sample in _samples(path, spec, versions):
            if sample.image is None or not sample.image[2]:
                skipped.append(position)
            else:
                _add(samples, number, sample, spec)
            position += 1
    positions = None
    if skipped:
        positions = np.delete(np.arange(position), np.frombuffer(skipped, np.int64))
    column = np.array(samples.files, np.int32) if len(files) > 1 else None
    offsets = np.array(samples.offsets, np.int64)
    lengths = np.array(samples.lengths, np.int64)
    labels = _labels(samples, files, spec)
    return RecordColumns(files, column, offsets, lengths, positions, *labels, len(skipped))


def _add(samples: _Samples, number: int, sample: _Sample, spec: _ColumnSpec) -> None:
    _, offset, size = sample.image or (0, 0, 0)
    first, *rest = spec.labels
    samples.files.append(number)
    samples.offsets.append(offset)
    samples.lengths.append(-1 if sample.broken else size)
    samples.labels.append(sample.labels.get(first))
    samples.keys.append(sample.key)
    if rest:
        samples.others.append(sample.labels.get(rest[0]))


def _labels(samples: _Samples, files: list[str], spec: _ColumnSpec) -> LabelColumns:
    values = samples.labels
    if samples.others and all(value is None for value in values):
        values = samples.others
    try:
        return label_columns(values)
    except ValueError as error:
        index, text = error.args
        location = f"{files[samples.files[index]]}, sample {samples.keys[index]}"
        raise DataError(f"{location}: the label {text}") from error


def _samples(path: str, spec: _ColumnSpec, versions: Versions) -> Iterator[_Sample]:
    """Yield the samples of an archive."""
    sample: _Sample | None = None
    with RangeFile(path) as file:
        file.note_version(versions)
        _check_uncompressed(file)
        stream = _ArchiveStream(file, _BUFFER if local_path(path) is not None else file.max_gap)
        for member, offset in _members(stream, file):
            if member is None:
                yield from [] if sample is None else [sample]
                yield _Sample("", image=(0, offset, 1), broken=True)
                return
            key, suffix = _key_and_suffix(member.name)
            if not key:
                continue
            if sample is None or sample.key != key or suffix in sample.suffixes:
                yield from [] if sample is None else [sample]
                sample = _Sample(key)
            _take(sample, suffix, member, stream, spec, path)
    if sample is not None:
        yield sample


def _take(
    sample: _Sample,
    suffix: str,
    member: tarfile.TarInfo,
    stream: _ArchiveStream,
    spec: _ColumnSpec,
    path: str,
) -> None:
    """Add a member to its sample, if it is an image or a label."""
    sample.suffixes.add(suffix)
    if suffix in spec.image:
        rank = spec.image.index(suffix)
        if sample.image is None or rank < sample.image[0]:
            sample.image = rank, member.offset_data, member.size
            sample.broken |= member.issparse()
    elif suffix in spec.labels:
        name = f"{path}, {member.name}"
        if member.size > _MAX_LABEL:
            raise DataError(
                f"{name}: {member.size} bytes are not a label; the maximum is {_MAX_LABEL}"
            )
        stream.seek(member.offset_data)
        data = stream.read(member.size)
        if len(data) < member.size:
            sample.broken = True
            return
        try:
            sample.labels[suffix] = spec.value(suffix, data)
        except (ValueError, RecursionError) as error:  # RecursionError: deeply nested JSON
            raise DataError(f"{name} is not a label: {error}") from error


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
    """Yield (member, offset) of the files in an archive; (None, offset) at an unreadable one.

    tarfile accepts negative sizes, which lead it back to an earlier member.
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
                if member.isreg():
                    yield member, member.offset_data
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        if not end:
            raise DataError(f"{file.url} is not a tar archive: {error}") from error
    # An archive ends with zeros, or its last member; tarfile takes unreadable data for the end.
    if any(file.read_at(end, tarfile.BLOCKSIZE)):
        yield None, end


def _key_and_suffix(name: str) -> tuple[str, str]:
    """Return the key and the suffix of a member; an empty key if it belongs to no sample."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return (folder + slash + stem, suffix.lower()) if stem and dot else ("", "")


def _check_uncompressed(file: RangeFile) -> None:
    """Raise DataError for a compressed archive, as its members are not byte ranges."""
    head = file.read_at(0, 8)
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise DataError(
                f"{file.url} is compressed ({name}), so that members cannot be read one by one; "
                "unpack it to a plain .tar; compression makes images hardly smaller"
            )


def _unchanged(data: bytes, url: str, offset: int) -> bytes:
    return data


def _record_error(url: str, offset: int) -> DataError:
    return DataError(
        f"{url}: no member that can be read lies at byte {offset}; the archive is truncated or "
        "damaged there, or the member is sparse"
    )
