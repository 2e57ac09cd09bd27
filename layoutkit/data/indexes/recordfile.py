"""RecordIO files: frames of image records, or of bytes that mean nothing here.

Where records begin says an `.idx`, or a walk from head to head; how long they are, their heads;
their labels, the headers of image records, or a `.lst`.

Knows which files belong together, and columns; frames, headers and lists are read elsewhere.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..reading.imagerecords import HEADER, unpack_image
from ..reading.ranges import RangeFile, gathered
from ..reading.recordframes import HEAD, LENGTH, FrameError, span_at, unframed
from ..reading.recordheads import Spans, spans_at, walked
from ..reading.urls import exists, folder_of, local_path
from .listfiles import Listed, offsets_in, read_list
from .numberlabels import NumberLabels, spread
from .partition import Partition
from .ranged import Columns, RangedIndex
from .shards import shards_of

__all__ = ["open_record_file"]


def open_record_file(
    path: str,
    kind: str,
    partition: Partition,
    index: str | None = None,
    list: str | None = None,  # noqa: A002  # as `open_index` has it
) -> RangedIndex:
    """The index of a RecordIO file, or of several by wildcards or braces."""
    files = shards_of(path)
    if index is not None and len(files) > 1:
        raise DataError(f"{path} is {len(files)} files, and index={index} is of one; leave it out")
    if list is not None and kind != "image":
        raise DataError(f"list={list} is for image records; kind={kind!r} has no ids")
    load = partial(_columns, files, kind, index, list)
    unwrap = _picture if kind == "image" else unframed
    found = RangedIndex(kind, folder_of(files[0]), partition, load, unwrap, _explained)
    if all(local_path(file) is not None for file in files):
        len(found)  # what is wrong with them is raised here
    return found


def _columns(files: list[str], kind: str, index: str | None, lst: str | None) -> Columns:
    listed = None if lst is None else (lst, _by_id(read_list(lst)))
    parts = [_part(file, kind, index, listed) for file in files]
    columns = zip(*(part.spans for part in parts), strict=True)
    spans = Spans(*(np.concatenate(column) for column in columns))
    counts = [len(part.spans.offsets) for part in parts]
    file = None if len(files) == 1 else np.repeat(np.arange(len(files), dtype=np.int32), counts)
    if kind == "raw":
        return Columns(files, file, *spans)
    kept = np.concatenate([part.kept for part in parts])
    numbers = NumberLabels(
        np.concatenate([part.widths[part.kept] for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
    names, codes = numbers.classes()
    positions = None if kept.all() else np.flatnonzero(kept)
    if positions is not None:
        spans = Spans(*(column[kept] for column in spans))
        file = None if file is None else file[kept]
    skipped = len(kept) - int(kept.sum())
    return Columns(files, file, *spans, positions, names, codes, numbers, skipped)


class _Part(NamedTuple):
    """The records of one file; `kept` has pictures, or cannot be read, and `values` are theirs."""

    spans: Spans
    kept: Any
    widths: Any
    values: Any


def _part(path: str, kind: str, index: str | None, listed: Any) -> _Part:
    with RangeFile(path) as file:
        beside = index if index is not None else _beside(path)
        width = HEAD + (HEADER if kind == "image" else 0)
        if beside is None:
            spans = walked(file)
            heads = None if kind == "raw" else gathered(file, spans.offsets, width)
        else:
            offsets = offsets_in(beside)
            heads = gathered(file, offsets, width)
            spans = spans_at(file, offsets, heads)
        if heads is None or kind == "raw":
            return _Part(spans, None, None, None)
        return _labelled(file, spans, heads, listed)


def _beside(path: str) -> str | None:
    """The `.idx` beside a file, where there is one."""
    found = os.path.splitext(path)[0] + ".idx"  # noqa: PTH122 - URLs, too
    return found if exists(found) else None


# ---- Labels -----------------------------------------------------------------------------------


_HEADER = np.dtype([("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")])


def _labelled(file: RangeFile, spans: Spans, heads: Array, listed: Any) -> _Part:
    """The labels of image records, by their heads; those of a list win."""
    words = heads[:, 4:HEAD].copy().view("<u4")[:, 0]
    sizes = (words & LENGTH).astype(np.int64)  # of the first part, where there are several
    headers = heads[:, HEAD:].copy().view(_HEADER)[:, 0]
    ids, flags = headers["id"].copy(), headers["flag"].astype(np.int64)
    there = (spans.lengths >= 0) & (spans.offsets + HEAD + HEADER + 4 * flags <= file.size)
    plain = there & (sizes >= HEADER + 4 * flags)
    alone = words >> 29 == 0
    kept = ~(plain & alone & (sizes == HEADER + 4 * flags))
    widths = np.where(plain, np.maximum(flags, 1), 0)
    odd = _odd(file, spans, np.flatnonzero(there & ~alone & ~plain))
    for row, (labels, number, empty) in odd.items():
        widths[row], ids[row], kept[row] = len(labels), number, not empty
    if listed is not None:
        return _by_list(file.url, spans, ids, kept, widths > 0, listed)
    starts = np.cumsum(widths) - widths
    values = np.zeros(int(widths.sum()), np.float32)
    single = plain & (flags == 0)
    values[starts[single]] = headers["label"][single]
    for width in np.unique(flags[plain & (flags > 0)]).tolist():
        rows = np.flatnonzero(plain & (flags == width))
        found = gathered(file, spans.offsets[rows] + HEAD + HEADER, 4 * width).view("<f4")
        values[starts[rows][:, None] + np.arange(width)] = found
    for row, (labels, *_) in odd.items():
        values[starts[row] : starts[row] + len(labels)] = labels
    if not kept.all():
        values = values[np.repeat(kept, widths)]
    return _Part(spans, kept, widths, values)


def _odd(file: RangeFile, spans: Spans, rows: Array) -> dict[int, tuple[Any, int, bool]]:
    """(labels, id, whether it is empty) of records whose headers lie in several parts."""
    found = {}
    for row in rows.tolist():
        try:
            payload = unframed(file.read_at(int(spans.offsets[row]), int(spans.lengths[row])))
            header, data = unpack_image(payload)
        except DataError:  # which is said when it is read
            continue
        found[row] = (header.labels, header.id, not data)
    return found


def _by_id(listed: Listed) -> Listed:
    """The lines of a list by rising id; of several with one id the last."""
    order = np.argsort(listed.ids, kind="stable")
    ids = listed.ids[order]
    last = np.ones(len(ids), bool)
    last[:-1] = ids[1:] != ids[:-1]
    order = order[last]
    starts = (np.cumsum(listed.widths) - listed.widths)[order]
    values = listed.values[spread(starts, listed.widths[order])]
    return Listed(listed.ids[order], listed.widths[order], values, [])


def _by_list(url: str, spans: Spans, ids: Array, kept: Any, known: Any, listed: Any) -> _Part:
    """The labels that a list has for records with these ids."""
    path, lines = listed
    rows = np.flatnonzero(known & kept)
    places = np.minimum(np.searchsorted(lines.ids, ids[rows]), max(len(lines.ids) - 1, 0))
    missing = rows if not len(lines.ids) else rows[lines.ids[places] != ids[rows]]
    if len(missing):
        row = int(missing[0])
        raise DataError(
            f"{path} has no line with the id {ids[row]}, which the record at byte "
            f"{spans.offsets[row]} of {url} has"
        )
    widths = np.zeros(len(ids), np.int64)
    widths[rows] = lines.widths[places]
    starts = (np.cumsum(lines.widths) - lines.widths)[places]
    return _Part(spans, kept, widths, lines.values[spread(starts, widths[rows])])


# ---- Records ----------------------------------------------------------------------------------


def _picture(data: bytes, url: str, offset: int) -> bytes:
    """The picture's own bytes in the frames of an image record."""
    payload = unframed(data, url, offset)
    try:
        return unpack_image(payload)[1]
    except DataError as error:
        raise DataError(f"{url}, the record at byte {offset}: {error}") from error


def _explained(url: str, offset: int) -> DataError:
    """What is wrong with a place where no record can be read."""
    try:
        with RangeFile(url) as file:
            span_at(file, offset)
    except FrameError as error:
        return error
    return DataError(
        f"{url}: the record at byte {offset} is damaged: its length leads behind the next one"
    )
