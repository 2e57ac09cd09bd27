"""Parquet files: a column of images or arrays, and one of labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..io.parquet import (
    ParquetShard,
    RowGroups,
    content_kind,
    infer_folder_type,
    open_shard,
    read_class_names,
    read_column,
    read_image_columns,
)
from ..io.reader import Reader
from ..labels import (
    CLASS_COLUMN,
    FILE_COLUMNS,
    LabelColumns,
    Missing,
    as_names,
    check_columns,
    find_columns,
    is_label_column,
    is_missing,
    label_columns,
    rank_classes,
)
from ..records import Label, Record
from .base import Partition
from .ranged import RangedIndex, RecordColumns, Versions, expand_shards, number_files


def open_parquet(
    path: str,
    kind: str,
    partition: Partition,
    columns: Mapping[str, Any] | None = None,
    missing: Missing = "error",
) -> RangedIndex:
    """Open a Parquet file, or several by wildcards or braces."""
    return ParquetIndex(kind, expand_shards(path), partition, columns, missing)


class ParquetIndex(RangedIndex):
    """Rows of Parquet files. Only pyarrow knows their location, so records have no offset."""

    _pickled_caches = RangedIndex._pickled_caches | {"_shards", "_found", "_starts"}

    def __init__(
        self,
        kind: str,
        files: list[str],
        partition: Partition,
        columns: Mapping[str, Any] | None,
        missing: Missing,
    ) -> None:
        self._files = files
        self._given_columns = check_columns(columns)
        self._missing = missing
        self._row_labels: dict[int, tuple[Label, ...]] = {}  # of rows that may have several
        super().__init__(kind, files, partition, self._columns, _no_byte_range, _no_byte_range)

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a row's bytes or array; row groups are cached."""
        number = self._found[0].image_number
        return partial(self._row, RowGroups(self._field.name, reader, number))

    @property
    def has_images(self) -> bool:  # type: ignore[override]
        return content_kind(self._field.type) in ("bytes", "images")

    @property
    def has_image_lists(self) -> bool:  # type: ignore[override]
        return content_kind(self._field.type) == "images" and self._found[0].image_number is None

    def _extents(self, numbers: Array) -> tuple[Any, Any]:
        return repeat(None), repeat(None)

    @cached_property
    def _shards(self) -> list[ParquetShard]:
        return [open_shard(file) for file in self._files]

    @cached_property
    def _found(self) -> list[ParquetColumns]:
        """The columns of each file; all have records of one type."""
        shards = self._shards
        positions = [_find(shard, self._given_columns) for shard in shards]
        first = shards[0].schema.field(positions[0].image)
        for shard, columns in zip(shards, positions, strict=True):
            own = shard.schema.field(columns.image)
            if own != first:
                raise DataError(
                    f"{shard.url}: {own.name} is {own.type}, "
                    f"but {first.name} is {first.type} in {shards[0].url}"
                )
        return positions

    @property
    def _field(self) -> Any:
        return self._shards[0].schema.field(self._found[0].image)

    @cached_property
    def _starts(self) -> Array:
        """The first row of each file in the whole source, and the number of rows."""
        return np.cumsum([0, *(shard.rows for shard in self._shards)])

    def _columns(self, versions: Versions) -> RecordColumns:
        shards = self._shards
        count = int(self._starts[-1])
        file = number_files([shard.rows for shard in shards])
        rows, labels = self._labels()
        if rows is not None and labels.codes is not None:
            count = len(rows)
            names: dict[int, tuple[Label, ...]] = {}
            for row, code in zip(rows.tolist(), labels.codes.tolist(), strict=True):
                names[row] = (*names.get(row, ()), *labels.names[code : code + 1])
            self._row_labels = names
            file = None if file is None else file[rows]
        unknown = np.broadcast_to(np.int64(-1), count)
        columns = RecordColumns(self._files, file, unknown, unknown, rows, *labels)
        columns = columns._replace(found="the number of rows is 0")
        return columns.labeled(self._missing, partial(self._describe_unlabeled, rows))

    def _labels_of(self, numbers: Array, classes: list[Label | None]) -> list[tuple[Any, ...]]:
        positions = self._data_columns.positions
        if not self._row_labels or positions is None:
            return super()._labels_of(numbers, classes)
        return [self._row_labels[row] for row in positions[numbers].tolist()]

    def _labels(self) -> tuple[Array | None, LabelColumns]:
        """Return the row of each record, None if it is a record's number, and the labels."""
        names = [own.labels for own in self._found]
        if not any(names):
            return None, LabelColumns()
        if len({*map(len, names)}) > 1:
            raise DataError(
                f"{self._files[0]} and the files after it differ in their columns of labels; give "
                "files of one schema, or open_index(source, columns={'label': ...})"
            )
        columns = [self._label_values(own) for own in zip(*names, strict=True)]
        classes = [known for _, known in columns]
        rows = None
        if len(columns) == 1:
            flat = columns[0][0]
        else:
            rows, flat = _records_of_rows([*zip(*(values for values, _ in columns), strict=True)])
        try:
            labels = label_columns(flat, is_labeled=True)
        except ValueError as error:
            place, text = error.args
            shard, row = self._locate(place if rows is None else rows[place])
            raise DataError(f"{shard.url}, row {row}: in {names[0][0]}, {text}") from error
        if classes[0] is None or any(known != classes[0] for known in classes):
            return rows, labels
        return rows, _name_classes(labels, classes[0])

    def _label_values(self, names: Sequence[str]) -> tuple[list[Any], list[str] | None]:
        """Return the values of a column of labels, which has a name in each file, and its classes.

        The classes are None if the files declare none. Raise DataError if files differ in them.
        """
        pairs = [*zip(self._shards, names, strict=True)]
        in_folders = [(shard, name) for shard, name in pairs if name not in shard.schema.names]
        as_type = infer_folder_type([shard.folders[name] for shard, name in in_folders])
        classes = [read_class_names(shard, name) for shard, name in pairs]
        for (shard, name), own in zip(pairs, classes, strict=True):
            if own != classes[0]:
                raise DataError(
                    f"{shard.url} declares other classes of {name} than {self._shards[0].url} "
                    "(ClassLabel); open them one by one, or write them with the same features"
                )
        values: list[Any] = []
        for shard, name in pairs:
            if (shard, name) in in_folders:
                text = shard.folders[name]
                values += [None if text is None else as_type(text)] * shard.rows
            elif classes[0] is None:
                values += read_column(shard, name)
            else:
                values += _check_numbers(read_column(shard, name), classes[0], shard, name)
        return values, classes[0]

    def _describe_unlabeled(self, rows: Array | None, number: int) -> str:
        shard, row = self._locate(number if rows is None else int(rows[number]))
        return f"{shard.url}, row {row} has no label"

    def _row(self, groups: RowGroups, record: Record) -> Any:
        return groups.row(*self._locate(record.position or 0))

    def _locate(self, row: int) -> tuple[ParquetShard, int]:
        """Return the file of a row of the whole source, and the row's number in the file."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._shards[number], row - int(self._starts[number])


def _records_of_rows(rows: list[tuple[Any, ...]]) -> tuple[Array | None, list[Any]]:
    """Return the row and label of each record of rows with several labels: one for each label.

    Labels that are no classes are the target of their row: the rows are then None.
    """
    present = [[value for value in row if not is_missing(value)] for row in rows]
    if rank_classes([*{value for row in present for value in row}]) is None:
        return None, [list(row) if own else None for row, own in zip(rows, present, strict=True)]
    labels = [own or [None] for own in present]
    numbers = np.repeat(np.arange(len(rows)), [*map(len, labels)])
    return numbers, [label for own in labels for label in own]


def _check_numbers(
    values: list[Any], classes: list[str], shard: ParquetShard, column: str
) -> list[int | None]:
    """Return the numbers of classes, None for -1, which `datasets` writes where a label is missing.

    Raise DataError if a number is not of a class.
    """
    for row, value in enumerate(values):
        if value is not None and not -1 <= value < len(classes):
            raise DataError(
                f"{shard.url}, row {row}: in {column}, {value} is not the number of one of the "
                f"{len(classes)} classes that the file declares (ClassLabel)"
            )
    return [None if value == -1 else value for value in values]


def _name_classes(labels: LabelColumns, classes: list[str]) -> LabelColumns:
    """Return numbers of classes as labels with their names; all classes keep their numbers."""
    numbers = np.array([*labels.names, -1], np.int32)
    return LabelColumns(classes, numbers[labels.codes], None, labels.unlabeled)


class ParquetColumns(NamedTuple):
    """The columns of a file that are read."""

    image: int  # the position in its schema
    labels: tuple[str, ...]  # the names, also of folders
    image_number: int | None  # of the image in each list; None: no lists, or all images


def _find(shard: ParquetShard, chosen: Mapping[str, Any]) -> ParquetColumns:
    """Return the columns of records and labels; raise DataError if one cannot hold records."""
    schema = shard.schema
    content = [field.name for field in schema if content_kind(field.type) is not None]
    has_file_column = any(name in FILE_COLUMNS for name in content)
    if "image" not in chosen and not has_file_column:
        declared = [name for name in read_image_columns(shard) if name in content]
        chosen = {**chosen, "image": declared[0]} if len(declared) == 1 else chosen
    number = None
    match = _NUMBERED.fullmatch(str(chosen.get("image")))
    if match is not None and match[0] not in schema.names:
        number = int(match[2])
        chosen = {**chosen, "image": match[1]}
    named = as_names(chosen.get("label"))
    names = [
        name
        for name in shard.names
        if name in schema.names or name in named or is_label_column(name) or name == CLASS_COLUMN
    ]
    positions = find_columns(names, chosen, shard.url, content=content if has_file_column else None)
    field = schema.field(positions.image)
    kind = content_kind(field.type)
    if number is not None and kind != "images":
        raise DataError(
            f"{shard.url}: {field.name} is {field.type}, which is no list of images; omit "
            f"the :{number}"
        )
    if kind is None:
        raise DataError(
            f"{shard.url}: {field.name} is {field.type}; records are of bytes, of a struct with "
            "bytes, or of lists of a fixed size; where a column has the paths of files, open the "
            "data frame: open_index(pandas.read_parquet(...))"
        )
    return ParquetColumns(positions.image, tuple(names[i] for i in positions.labels), number)


_NUMBERED = re.compile("(.+):(-?[0-9]{1,9})", re.DOTALL)  # an image of a list, as images:0


def _no_byte_range(*_: Any) -> Any:
    raise DataError("a row of a Parquet file is not a range of bytes")
