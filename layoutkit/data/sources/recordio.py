"""RecordIO files: frames of image records, or of bytes that mean nothing here.

Where records begin says an `.idx`, or a walk from head to head; how long they are, their heads;
their labels, the headers of image records, or a `.lst`.

Knows which files belong together, and columns; frames, headers and lists are read elsewhere.

The text files beside a RecordIO file: `.idx`, where records begin, and `.lst`, their labels.

Knows lines and columns; the files that they speak of are not opened.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..io.filesystem import exists, local_path, open_binary, parent_folder
from ..io.image_record import HEADER, unpack_image
from ..io.reader import RangeFile, gather_bytes
from ..io.recordio import HEAD, LENGTH, FrameError, Spans, span_at, spans_at, unframed, walked
from .base import Partition
from .ranged import Columns, NumberLabels, RangedIndex, shards_of, spread

_NEWLINE, _SPACE, _ZERO = b"\n 0"
_DIGITS = 18  # of an offset: what int64 holds whatever they are
_LONGEST = 1 << 20  # bytes of a line
_BLOCK = 1 << 18  # bytes of text whose arrays stay in the cache


def offsets_in(path: str) -> Array:
    """The second column of an `.idx`, int64, in the order of its lines.

    Raises DataError with the line that is not a key, whitespace and a number of bytes.
    """
    found, lines, rest = [np.zeros(0, np.int64)], 0, b""
    with open_binary(path) as file:
        while block := file.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                found.append(_offsets(path, rest + block[:cut], lines))
                lines += (rest + block[:cut]).count(b"\n")
            rest = block[cut:] if cut else rest + block
            if len(rest) > _LONGEST:
                raise DataError(f"{path}, line {lines + 1} has more than {_LONGEST} bytes")
    found.append(_offsets(path, rest + b"\n", lines))
    return np.concatenate(found)


def _offsets(path: str, text: bytes, lines: int) -> Array:
    """Those of whole lines, before which there are `lines` others."""
    data = np.frombuffer(b"\n" + text, np.uint8)
    white = data <= _SPACE
    edges = np.flatnonzero(white[1:] != white[:-1]) + 1
    ends = np.flatnonzero(data == _NEWLINE)[1:]
    starts, behind = edges[::2], edges[1::2]
    words = np.diff(np.searchsorted(starts, ends), prepend=0)
    wrong = np.flatnonzero((words != 2) & (words != 0))
    if not len(wrong):
        offsets, wrong = _numbers(data, starts[1::2], behind[1::2])
        wrong = np.flatnonzero(words)[wrong]
    if len(wrong):
        row = int(wrong[0])
        line = text.split(b"\n")[row][:80].decode(errors="replace")
        raise DataError(
            f"{path}, line {lines + row + 1}: {line!r} is no key, tab and number of bytes, as a "
            "line of an index is"
        )
    return offsets


def _numbers(data: Array, starts: Array, behind: Array) -> tuple[Array, Array]:
    """The numbers that stand between these places, and the rows in which none does."""
    widths = behind - starts
    numbers = np.zeros(len(starts), np.int64)
    good = widths <= _DIGITS
    narrow = int(widths.min(initial=_DIGITS))
    for digit in range(min(int(widths.max(initial=0)), _DIGITS)):
        rows = slice(None) if digit < narrow else np.flatnonzero(widths > digit)
        values = data[starts[rows] + digit] - np.uint8(_ZERO)  # below "0" it wraps around
        good[rows] &= values <= 9
        numbers[rows] = 10 * numbers[rows] + values
    return numbers, np.flatnonzero(~good)


class Listed(NamedTuple):
    """The lines of a `.lst`: of each an id, its labels, and a path.

    widths, values      how many labels each line has, and all of them
    """

    ids: Array
    widths: Array
    values: Array
    paths: list[str]


def read_list(path: str) -> Listed:
    """The lines of a `.lst`: id, one label or more, a path, with tabs between them.

    Raises DataError with the line that is none.
    """
    ids: list[int] = []
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
                ids.append(_id(cells[0]))
                found = [_label(cell) for cell in cells[1:-1]]
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
            widths.append(len(found))
            values += found
            paths.append(cells[-1])
    labels: Any = np.array(values, np.float32)
    return Listed(np.array(ids, np.uint64), np.array(widths, np.int64), labels, paths)


def _id(cell: str) -> int:
    digits = cell.strip()
    if not (digits.isascii() and digits.isdigit()) or int(digits) >> 64:
        raise ValueError(f"{cell!r} is no id; it is a whole number")
    return int(digits)


def _label(cell: str) -> float:
    try:
        if "_" in cell:  # which Python takes in numbers
            raise ValueError
        return float(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is no label; it is a number") from None


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
    found = RangedIndex(kind, parent_folder(files[0]), partition, load, unwrap, _explained)
    if all(local_path(file) is not None for file in files):
        len(found)  # what is wrong with them is raised here
    return found


def _columns(files: list[str], kind: str, index: str | None, lst: str | None) -> Columns:
    list_files = None if lst is None else (lst, _by_id(read_list(lst)))
    parts = [_part(file, kind, index, list_files) for file in files]
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


def _part(path: str, kind: str, index: str | None, list_files: Any) -> _Part:
    with RangeFile(path) as file:
        beside = index if index is not None else _beside(path)
        width = HEAD + (HEADER if kind == "image" else 0)
        if beside is None:
            spans = walked(file)
            heads = None if kind == "raw" else gather_bytes(file, spans.offsets, width)
        else:
            offsets = offsets_in(beside)
            heads = gather_bytes(file, offsets, width)
            spans = spans_at(file, offsets, heads)
        if heads is None or kind == "raw":
            return _Part(spans, None, None, None)
        return _labelled(file, spans, heads, list_files)


def _beside(path: str) -> str | None:
    """The `.idx` beside a file, where there is one."""
    found = os.path.splitext(path)[0] + ".idx"  # noqa: PTH122 - URLs, too
    return found if exists(found) else None


# ---- Labels -----------------------------------------------------------------------------------


_HEADER = np.dtype([("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")])


def _labelled(file: RangeFile, spans: Spans, heads: Array, list_files: Any) -> _Part:
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
    if list_files is not None:
        return _by_list(file.url, spans, ids, kept, widths > 0, list_files)
    starts = np.cumsum(widths) - widths
    values = np.zeros(int(widths.sum()), np.float32)
    single = plain & (flags == 0)
    values[starts[single]] = headers["label"][single]
    for width in np.unique(flags[plain & (flags > 0)]).tolist():
        rows = np.flatnonzero(plain & (flags == width))
        found = gather_bytes(file, spans.offsets[rows] + HEAD + HEADER, 4 * width).view("<f4")
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


def _by_id(list_files: Listed) -> Listed:
    """The lines of a list by rising id; of several with one id the last."""
    order = np.argsort(list_files.ids, kind="stable")
    ids = list_files.ids[order]
    last = np.ones(len(ids), bool)
    last[:-1] = ids[1:] != ids[:-1]
    order = order[last]
    starts = (np.cumsum(list_files.widths) - list_files.widths)[order]
    values = list_files.values[spread(starts, list_files.widths[order])]
    return Listed(list_files.ids[order], list_files.widths[order], values, [])


def _by_list(url: str, spans: Spans, ids: Array, kept: Any, known: Any, list_files: Any) -> _Part:
    """The labels that a list has for records with these ids."""
    path, lines = list_files
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
