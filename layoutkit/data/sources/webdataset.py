"""Tar archives in the layout of WebDataset: neighbouring members with one key are a sample.

The key of a member is its path up to the first dot of the base name, what follows says which
column it is: `cats/0001.jpg` and `cats/0001.cls`. Where members lie is found once; a record is a
range of bytes then, so that archives are read in any order.

Knows members and columns; what is in a picture is not known here.
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
from .ranged import Columns, Labelled, RangedIndex, labelled, shards_of

__all__ = ["open_tar"]

PICTURE = ("jpg", "jpeg", "png", "webp", "npy")
_MOST_LABEL = 1 << 24  # bytes of a member that is a label
_NEAR = 1 << 13  # bytes that are read with a header of a local archive: a label is among them
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
}


def open_tar(
    path: str, kind: str, partition: Partition, columns: Mapping[str, Any] | None = None
) -> RangedIndex:
    """The index of a tar archive, or of several by wildcards or braces."""
    wanted = _wanted(columns)
    files = shards_of(path)
    load = partial(_columns, files, wanted)
    found = RangedIndex(kind, parent_folder(files[0]), partition, load, _as_it_is, _explained)
    if all(local_path(file) is not None for file in files):
        len(found)  # what is wrong with them is raised here
    return found


# ---- Columns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wanted:
    """Which members of a sample are its picture and its label, by their suffixes.

    picture    the first that there is
    label      None: `cls`, or else `txt`
    key        the key of a label in a member that is JSON
    """

    picture: tuple[str, ...]
    label: str | None
    key: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The suffixes of members that are read for labels."""
        return ("cls", "txt") if self.label is None else (self.label,)

    def value(self, suffix: str, data: bytes) -> Any:
        """The label that a member is; ValueError where it is none."""
        text = data.decode().strip()
        if self.key is not None:
            found = json.loads(text)
            if not isinstance(found, dict) or self.key not in found:
                raise ValueError(f"it has no {self.key!r}")
            return found[self.key]
        return int(text) if suffix == "cls" else text


def _wanted(columns: Any) -> _Wanted:
    """What `columns` asks for; DataError where it makes no sense."""
    if columns is None:
        return _Wanted(PICTURE, None)
    if not isinstance(columns, Mapping) or not {*columns} <= {"image", "label"}:
        raise DataError(
            f"columns={columns!r}; it is a mapping of image, label or both to suffixes of members, "
            "as in {'image': ('jpg', 'png'), 'label': 'cls'}"
        )
    pictures, label = columns.get("image", PICTURE), columns.get("label")
    pictures = tuple(pictures) if isinstance(pictures, list | tuple) else (pictures,)
    for suffix in (*pictures, "cls" if label is None else label):
        if not isinstance(suffix, str) or not suffix:
            raise DataError(f"columns has {suffix!r}, which is no suffix; give one as in 'jpg'")
    words = tuple(suffix.lstrip(".").lower() for suffix in pictures)
    if label is None:
        return _Wanted(words, None)
    suffix, _, key = label.lstrip(".").partition(":")
    if key and suffix != "json":
        raise DataError(f"columns has the label {label!r}; a key belongs to json, as in 'json:key'")
    if suffix == "json" and not key:
        raise DataError(f"columns has the label {label!r}; say which key, as in 'json:label'")
    return _Wanted(words, suffix.lower(), key or None)


# ---- Samples ----------------------------------------------------------------------------------


@dataclass
class _Samples:
    """What was found of samples, one entry each."""

    files: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    labels: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)  # those that count if nobody has the first
    keys: list[str] = field(default_factory=list)


@dataclass
class _Sample:
    """The members of one sample that are wanted."""

    key: str
    suffixes: set[str] = field(default_factory=set)
    picture: tuple[int, int, int] | None = None  # which suffix, offset, size
    labels: dict[str, Any] = field(default_factory=dict)
    broken: bool = False


def _columns(files: list[str], wanted: _Wanted) -> Columns:
    found, skipped = _Samples(), array("q")
    position = 0
    for number, path in enumerate(files):
        for sample in _samples(path, wanted):
            if sample.picture is None or not sample.picture[2]:
                skipped.append(position)
            else:
                _add(found, number, sample, wanted)
            position += 1
    positions = None
    if skipped:
        positions = np.delete(np.arange(position), np.frombuffer(skipped, np.int64))
    column = np.array(found.files, np.int32) if len(files) > 1 else None
    offsets, lengths = np.array(found.offsets, np.int64), np.array(found.lengths, np.int64)
    labels = _labels(found, files, wanted)
    return Columns(files, column, offsets, lengths, positions, *labels, len(skipped))


def _add(found: _Samples, number: int, sample: _Sample, wanted: _Wanted) -> None:
    _, offset, size = sample.picture or (0, 0, 0)
    first, *rest = wanted.labels
    found.files.append(number)
    found.offsets.append(offset)
    found.lengths.append(-1 if sample.broken else size)
    found.labels.append(sample.labels.get(first))
    found.keys.append(sample.key)
    if rest:
        found.others.append(sample.labels.get(rest[0]))


def _labels(found: _Samples, files: list[str], wanted: _Wanted) -> Labelled:
    values = found.labels
    if found.others and all(value is None for value in values):
        values = found.others
    try:
        return labelled(values)
    except ValueError as error:
        place, words = error.args
        where = f"{files[found.files[place]]}, sample {found.keys[place]}"
        raise DataError(f"{where}: the label {words}") from error


def _samples(path: str, wanted: _Wanted) -> Iterator[_Sample]:
    """The samples of an archive, one after the other."""
    sample: _Sample | None = None
    with RangeFile(path) as file:
        _check_plain(file)
        near = io.BufferedReader(file, _NEAR if local_path(path) is not None else file.max_gap)
        for member, at in _members(near, file):
            if member is None:
                yield from [] if sample is None else [sample]
                yield _Sample("", picture=(0, at, 1), broken=True)
                return
            key, suffix = _named(member.name)
            if not key:
                continue
            if sample is None or sample.key != key or suffix in sample.suffixes:
                yield from [] if sample is None else [sample]
                sample = _Sample(key)
            _take(sample, suffix, member, near, wanted, path)
    if sample is not None:
        yield sample


def _take(
    sample: _Sample, suffix: str, member: tarfile.TarInfo, near: Any, wanted: _Wanted, path: str
) -> None:
    """Keep of a member what is wanted."""
    sample.suffixes.add(suffix)
    if suffix in wanted.picture:
        rank = wanted.picture.index(suffix)
        if sample.picture is None or rank < sample.picture[0]:
            sample.picture = rank, member.offset_data, member.size
            sample.broken |= member.issparse()
    elif suffix in wanted.labels:
        where = f"{path}, {member.name}"
        if member.size > _MOST_LABEL:
            raise DataError(f"{where}: {member.size} bytes are no label; the most is {_MOST_LABEL}")
        near.seek(member.offset_data)
        data = near.read(member.size)
        if len(data) < member.size:
            sample.broken = True
            return
        try:
            sample.labels[suffix] = wanted.value(suffix, data)
        except (ValueError, RecursionError) as error:  # RecursionError: JSON in JSON in JSON
            raise DataError(f"{where} is no label: {error}") from error


def _members(near: Any, file: RangeFile) -> Iterator[tuple[Any, int]]:
    """(member, offset) of the files in an archive; (None, offset) where one cannot be read."""
    at = 0
    try:
        with tarfile.open(fileobj=near, mode="r:", errorlevel=2) as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # else it keeps them all
                at = archive.offset
                if member.isreg():
                    yield member, member.offset_data
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        if not at:
            raise DataError(f"{file.url} is no tar archive: {error}") from error
    # It ends with zeros, or with its last member; tarfile takes whatever it cannot read for an end.
    if any(file.read_at(at, tarfile.BLOCKSIZE)):
        yield None, at


def _named(name: str) -> tuple[str, str]:
    """The key and the suffix of a member; no key where it is of no sample."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return (folder + slash + stem, suffix.lower()) if stem and dot else ("", "")


def _check_plain(file: RangeFile) -> None:
    """DataError for an archive that is compressed, as its members are no ranges of bytes."""
    head = file.read_at(0, 8)
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise DataError(
                f"{file.url} is compressed ({name}), so that members cannot be read one by one; "
                "unpack it to a plain .tar, as pictures hardly become smaller anyway"
            )


def _as_it_is(data: bytes, url: str, offset: int) -> bytes:
    return data


def _explained(url: str, offset: int) -> DataError:
    return DataError(
        f"{url}: no member that can be read lies at byte {offset}; the archive is cut or damaged "
        "there, or the member is sparse"
    )
