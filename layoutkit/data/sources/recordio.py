"""RecordIO files: frames of image records, or of arbitrary bytes; and their `.idx` and `.lst`.

Record offsets come from an `.idx` or a scan of the heads, lengths from the heads, and labels from
the headers of image records or a `.lst`.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..io.filesystem import exists, open_binary
from ..io.image_record import HEADER, unpack_image
from ..io.reader import RangeFile, gather_bytes
from ..io.recordio import (
    HEAD,
    LENGTH,
    FrameError,
    Spans,
    record_span,
    scan_records,
    spans_at,
    unpack_frames,
)
from ..labels import Missing, NumberLabels, remove_missing, whole_number
from .base import Partition
from .ranged import (
    RangedIndex,
    RecordColumns,
    Versions,
    concatenated_ranges,
    expand_shards,
    number_files,
    open_part,
)

_NO_LINES = "the .idx has no lines; write it with `layoutkit index`, or remove it"
_NEWLINE, _SPACE, _ZERO = b"\n 0"
_DIGITS = 18  # maximum digits of an offset, so that it fits int64
_MAX_LINE = 1 << 20  # bytes
_BLOCK = 1 << 18  # bytes of text whose arrays fit the CPU cache


def read_offsets(path: str) -> Array:
    """Return the second column of an `.idx`, int64, in the order of its lines.

    Raises DataError for a line that is not a key, whitespace and a number of bytes.
    """
    offsets = [np.zeros(0, np.int64)]
    lines = 0
    rest = b""
    with open_binary(path) as file:
        while block := file.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                offsets.append(_offsets(path, rest + block[:cut], lines))
                lines += (rest + block[:cut]).count(b"\n")
            rest = block[cut:] if cut else rest + block
            if len(rest) > _MAX_LINE:
                raise DataError(f"{path}, line {lines + 1} has more than {_MAX_LINE} bytes")
    offsets.append(_offsets(path, rest + b"\n", lines))
    return np.concatenate(offsets)


def _offsets(path: str, text: bytes, lines: int) -> Array:
    """Return the offsets of complete lines; `lines` other lines precede them in the file."""
    data = np.frombuffer(b"\n" + text, np.uint8)
    white = data <= _SPACE
    edges = np.flatnonzero(white[1:] != white[:-1]) + 1
    ends = np.flatnonzero(data == _NEWLINE)[1:]
    starts = edges[::2]
    stops = edges[1::2]
    words = np.diff(np.searchsorted(starts, ends), prepend=0)
    wrong = np.flatnonzero((words != 2) & (words != 0))
    if not len(wrong):
        offsets, wrong = _numbers(data, starts[1::2], stops[1::2])
        wrong = np.flatnonzero(words)[wrong]
    if len(wrong):
        row = int(wrong[0])
        line = text.split(b"\n")[row][:80].decode(errors="replace")
        raise DataError(
            f"{path}, line {lines + row + 1}: {line!r} is not a line of an index: a key, "
            "a tab and a number of bytes"
        )
    return offsets


def _numbers(data: Array, starts: Array, stops: Array) -> tuple[Array, Array]:
    """Parse the numbers in these ranges; return them, and the rows that are not numbers."""
    widths = stops - starts
    numbers = np.zeros(len(starts), np.int64)
    good = widths <= _DIGITS
    narrow = int(widths.min(initial=_DIGITS))
    for digit in range(min(int(widths.max(initial=0)), _DIGITS)):
        rows = slice(None) if digit < narrow else np.flatnonzero(widths > digit)
        values = data[starts[rows] + digit] - np.uint8(_ZERO)  # below "0" it wraps around
        good[rows] &= values <= 9
        numbers[rows] = 10 * numbers[rows] + values
    return numbers, np.flatnonzero(~good)


class ImageList(NamedTuple):
    """The lines of a `.lst`: an id, labels, and a path each.

    widths, values      the number of labels per line, and all labels
    """

    ids: Array
    widths: Array
    values: Array
    paths: list[str]


def read_image_list(path: str) -> ImageList:
    """Read a `.lst`: id, one label or more, and a path per line, separated by tabs.

    Raises DataError for an invalid line, and for an id that an earlier line has.
    """
    ids: dict[int, int] = {}  # and their lines
    widths: list[int] = []
    values: list[float] = []
    paths: list[str] = []
    with open_binary(path) as file:
        for number, line in enumerate(file, 1):
            try:
                cells = line.decode("utf-8-sig" if number == 1 else "utf-8").strip().split("\t")
                if cells == [""]:
                    continue
                if len(cells) < 3:
                    raise ValueError(f"{len(cells)} columns; it has an id, labels and a path")
                id_ = _id(cells[0])
                if ids.setdefault(id_, number) != number:
                    raise ValueError(
                        f"line {ids[id_]} has the id {id_}, too; give each line its own"
                    )
                labels = [_label(cell) for cell in cells[1:-1]]
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
            widths.append(len(labels))
            values += labels
            paths.append(cells[-1])
    array: Any = np.array(values, np.float32)
    return ImageList(np.array([*ids], np.uint64), np.array(widths, np.int64), array, paths)


def _id(cell: str) -> int:
    number = whole_number(cell)
    if number is None or not 0 <= number < 1 << 64:
        raise ValueError(f"{cell!r} is not an id; it must be a whole number")
    return number


def _label(cell: str) -> float:
    try:
        if "_" in cell:  # float() accepts underscores
            raise ValueError
        return float(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is not a label; it must be a number") from None


def open_record_file(
    path: str,
    kind: str,
    partition: Partition,
    index: str | None = None,
    list: str | None = None,  # the keyword of `open_index`
    missing: Missing = "error",
) -> RangedIndex:
    """Open a RecordIO file, or several by wildcards or braces."""
    files = expand_shards(path)
    if index is not None and len(files) > 1:
        raise DataError(f"{path} is {len(files)} files, and index={index} is of one; omit it")
    if list is not None and kind != "image":
        raise DataError(f"list={list} is for image records; kind={kind!r} has no ids")
    load = partial(_columns, files, kind, index, list, missing)
    unwrap = _unwrap_image if kind == "image" else unpack_frames
    return RangedIndex(kind, files, partition, load, unwrap, _record_error)


def _columns(
    files: list[str],
    kind: str,
    index: str | None,
    lst: str | None,
    missing: Missing,
    versions: Versions,
) -> RecordColumns:
    labels = None if lst is None else (lst, _by_id(read_image_list(lst)))
    parts = [_part(file, kind, index, labels, versions) for file in files]
    spans = Spans(*map(np.concatenate, zip(*(part.spans for part in parts), strict=True)))
    file = number_files([len(part.spans.offsets) for part in parts])
    if kind == "raw":
        return RecordColumns(files, file, *spans, found=_NO_LINES)
    kept = np.concatenate([part.kept for part in parts])
    widths = np.concatenate([part.widths[part.kept] for part in parts])
    widths, values, unlabeled = remove_missing(widths, np.concatenate([p.values for p in parts]))
    numbers = NumberLabels(widths, values)
    names, codes = numbers.classes()
    positions = None if kept.all() else np.flatnonzero(kept)
    if positions is not None:
        spans = Spans(*(column[kept] for column in spans))
        file = None if file is None else file[kept]
    skipped = len(kept) - int(kept.sum())
    content = f"the images of all {skipped} records are empty" if skipped else _NO_LINES
    columns = RecordColumns(
        files, file, *spans, positions, names, codes, numbers, unlabeled, skipped, content
    )
    return columns.labeled(missing, partial(_describe_unlabeled, columns))


def _describe_unlabeled(columns: RecordColumns, row: int) -> str:
    path = columns.files[0 if columns.file is None else columns.file[row]]
    return f"{path}: the record at byte {columns.offsets[row]} has no label: it is NaN"


class _Part(NamedTuple):
    """The records of one file; `kept` marks nonempty and unreadable ones; `values` is for them."""

    spans: Spans
    kept: Any
    widths: Any
    values: Any


def _part(path: str, kind: str, index: str | None, labels: Any, versions: Versions) -> _Part:
    with open_part(path, versions) as file:
        idx_path = index if index is not None else _default_idx(path)
        width = HEAD + (HEADER if kind == "image" else 0)
        if idx_path is None:
            spans = scan_records(file)
            heads = None if kind == "raw" else gather_bytes(file, spans.offsets, width)
        else:
            offsets = read_offsets(idx_path)
            heads = gather_bytes(file, offsets, width)
            spans = spans_at(file, offsets, heads)
        if heads is None or kind == "raw":
            return _Part(spans, None, None, None)
        return _label_part(file, spans, heads, labels)


def _default_idx(path: str) -> str | None:
    """Return the `.idx` next to a file, if it exists."""
    idx_path = os.path.splitext(path)[0] + ".idx"
    return idx_path if exists(idx_path) else None


# ---- Labels -----------------------------------------------------------------------------------


_HEADER = np.dtype([("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")])


def _label_part(file: RangeFile, spans: Spans, heads: Array, image_list: Any) -> _Part:
    """Return a file's part with the labels of its image headers, or of a list if there is one."""
    words = heads[:, 4:HEAD].copy().view("<u4")[:, 0]
    sizes = (words & LENGTH).astype(np.int64)  # of the first part, if there are several
    headers = heads[:, HEAD:].copy().view(_HEADER)[:, 0]
    ids = headers["id"].copy()
    flags = headers["flag"].astype(np.int64)
    readable = (spans.lengths >= 0) & (spans.offsets + HEAD + HEADER + 4 * flags <= file.size)
    plain = readable & (sizes >= HEADER + 4 * flags)
    one_part = words >> 29 == 0
    kept = ~(plain & one_part & (sizes == HEADER + 4 * flags))
    widths = np.where(plain, np.maximum(flags, 1), 0)
    odd = _split_headers(file, spans, np.flatnonzero(readable & ~one_part & ~plain))
    for row, (labels, number, empty) in odd.items():
        widths[row] = len(labels)
        ids[row] = number
        kept[row] = not empty
    if image_list is not None:
        return _by_list(file.url, spans, ids, kept, widths > 0, image_list)
    starts = np.cumsum(widths) - widths
    values = np.zeros(int(widths.sum()), np.float32)
    single = plain & (flags == 0)
    values[starts[single]] = headers["label"][single]
    for width in np.unique(flags[plain & (flags > 0)]).tolist():
        rows = np.flatnonzero(plain & (flags == width))
        rest = gather_bytes(file, spans.offsets[rows] + HEAD + HEADER, 4 * width).view("<f4")
        values[starts[rows][:, None] + np.arange(width)] = rest
    for row, (labels, *_) in odd.items():
        values[starts[row] : starts[row] + len(labels)] = labels
    if not kept.all():
        values = values[np.repeat(kept, widths)]
    return _Part(spans, kept, widths, values)


def _split_headers(file: RangeFile, spans: Spans, rows: Array) -> dict[int, tuple[Any, int, bool]]:
    """Return (labels, id, is_empty) of records whose header is split over several parts."""
    result = {}
    for row in rows.tolist():
        try:
            payload = unpack_frames(file.read_at(int(spans.offsets[row]), int(spans.lengths[row])))
            header, data = unpack_image(payload)
        except DataError:  # reading the record raises it again
            continue
        result[row] = (header.labels, header.id, not data)
    return result


def _by_id(lines: ImageList) -> ImageList:
    order = np.argsort(lines.ids, kind="stable")
    starts = (np.cumsum(lines.widths) - lines.widths)[order]
    values = lines.values[concatenated_ranges(starts, lines.widths[order])]
    return ImageList(lines.ids[order], lines.widths[order], values, [])


def _by_list(url: str, spans: Spans, ids: Array, kept: Any, has_id: Any, image_list: Any) -> _Part:
    """Return a file's part with the labels that a list has for the ids of its records."""
    path, lines = image_list
    rows = np.flatnonzero(has_id & kept)
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
    return _Part(spans, kept, widths, lines.values[concatenated_ranges(starts, widths[rows])])


# ---- Records ----------------------------------------------------------------------------------


def _unwrap_image(data: bytes, url: str, offset: int) -> bytes:
    payload = unpack_frames(data, url, offset)
    try:
        return unpack_image(payload)[1]
    except DataError as error:
        raise DataError(f"{url}, the record at byte {offset}: {error}") from error


def _record_error(url: str, offset: int) -> DataError:
    """Return the error for a position where no record can be read."""
    try:
        with RangeFile(url) as file:
            record_span(file, offset)
    except FrameError as error:
        return error
    return DataError(
        f"{url}: the record at byte {offset} is damaged: its length points past the next record"
    )
