"""Labels of records, for every source: names of columns, missing labels, classes and targets.

`find_columns`      the columns of a table that contain files or images, and labels
`select_labeled`   the records to keep if some have no label
`order_classes`     the order of classes, which numbers them
`rank_classes`      the classes of labels; numbers that are not whole are targets instead
`read_labels`       the labels of an array or list
`label_columns`     the labels of a container, one or several per record

Sources read values and call these functions, which make all decisions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import show
from ..errors import DataError
from ..memory import Array
from .formats import is_image_name
from .records import Label

# ---- Names of columns ---------------------------------------------------------------------------

FILE_COLUMNS = ("filename", "file_name", "file", "path", "filepath", "image")
_LABEL_COLUMN = re.compile(r"label[0-9]*")
CLASS_COLUMN = "class"  # of labels, if no column is called label


class Columns(NamedTuple):
    """The positions of the columns of a table that a source reads."""

    image: int  # of files, or of the images themselves
    labels: tuple[int, ...]


def is_label_column(name: str) -> bool:
    """Return True for "label", also with digits at its end."""
    return _LABEL_COLUMN.fullmatch(name) is not None


def check_columns(columns: Any) -> Mapping[str, Any]:
    """Return the `columns` option as a mapping; raise DataError for keys but image and label."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not {*columns} <= {"image", "label"}:
        raise DataError(
            f"columns={show(columns)}; it is a mapping of image, label or both to the names of "
            "columns, as in {'image': 'path', 'label': 'class'}, or, of a .tar, to suffixes"
        )
    return columns


def find_columns(
    names: Iterable[Any],
    columns: Any,
    source: str,
    *,
    known: Sequence[str] = (),
    content: Sequence[str] | None = None,
) -> Columns:
    """Return the columns of files (or images) and of labels.

    Parameters
    ----------
    names : the names of all columns
    columns : the option of `open_index`, which overrides the rules
    source : the name of the table in messages
    known : names of further columns that the source reads
    content : the columns that can contain files or images, by default all

    Raises
    ------
    DataError
        The names do not identify these columns, or a name other than that of labels occurs twice.
    """
    texts = [str(name).strip() for name in names]
    options = check_columns(columns)
    shown = f"found {', '.join(texts) or 'none'}"
    reasons: dict[str, str] = {}  # by the key of `columns` that says which column it is
    image = options.get("image")
    if not image:
        candidates = [name for name in texts if content is None or name in content]
        image = _find_file_column(candidates, reasons)
    if "label" in options:
        labels = as_names(options["label"])
    else:
        labels = _find_label_columns(texts, (image, *known), reasons)
    if reasons:
        cure = {"image": image, "label": labels[0] if labels else None}
        cure = {**options, **{key: cure[key] for key in reasons}}
        raise DataError(
            f"{source} has {' and '.join(reasons.values())}; {shown}; say which it is: "
            f"open_index(source, columns={cure}){', or None for no labels' * ('label' in reasons)}"
        )
    for name in (image, *labels, *(name for name in known if name in texts)):
        number = texts.count(name)
        if not number or (number > 1 and name not in labels):
            raise DataError(
                f"{source} has {number or 'no'} column{'s' * (number > 1)} "
                f"{name!r}, but it needs one; {shown}"
            )
    places = [place for place, name in enumerate(texts) if name in labels]
    return Columns(texts.index(image), tuple(places))


def as_names(label: Any) -> tuple[Any, ...]:
    """Return the names of the columns of labels that `columns` has: one, a list of them or None."""
    if label is None:
        return ()
    return tuple(label) if isinstance(label, list | tuple) else (label,)


# Names that a column of files or of labels may have in other tables.
_LIKE_FILES = re.compile("file|path|image|img|photo|pixel", re.IGNORECASE)
_LIKE_LABELS = re.compile("label|class|target|categor", re.IGNORECASE)


def _find_file_column(names: Sequence[str], reasons: dict[str, str]) -> str:
    """Return the column of files; if the names do not tell, add the reason, and return a guess."""
    candidates = [name for name in names if name in FILE_COLUMNS]
    if len({*candidates}) == 1:
        return candidates[0]
    count = "several columns" if candidates else "no column"
    reasons["image"] = f"{count} of files ({', '.join(FILE_COLUMNS)})"
    return next(iter(candidates or filter(_LIKE_FILES.search, names)), (*names, "...")[0])


def _find_label_columns(
    names: Sequence[str], others: Sequence[str], reasons: dict[str, str]
) -> tuple[str, ...]:
    """Return the names `label` and `label<digits>`, or `class` where there are none.

    If there are similar names, or other columns only, add the reason, and return a guess.
    """
    rest = [name for name in names if name not in others]
    labels = tuple(filter(is_label_column, rest))
    if not labels and CLASS_COLUMN in rest:
        labels = (CLASS_COLUMN,)
    similar = [n for n in rest if n.lower().startswith("label") and n not in labels]
    if similar:
        reasons["label"] = (
            f"the column {similar[0]!r}, which is neither label nor label1, label2, ..."
        )
        return (similar[0],)
    if rest and not labels:
        reasons["label"] = "no column label or class"
        return (next(filter(_LIKE_LABELS.search, rest), rest[0]),)
    return labels


# ---- Missing labels -----------------------------------------------------------------------------

Missing = str | int


def check_missing(missing: Any) -> Missing:
    """Return the `missing` option: "error", "drop" or -1; raise DataError for anything else."""
    is_whole = isinstance(missing, int | np.integer) and not isinstance(missing, bool)
    if is_whole and missing == -1:
        return -1
    if isinstance(missing, str) and missing in ("error", "drop"):
        return missing
    raise DataError(
        f'missing={show(missing)}; it is "error", "drop" to omit records without a label, or -1 '
        "for their target"
    )


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, NaT, pandas.NA, empty text, and lists of only these."""
    if value is None:
        return True
    if isinstance(value, str | bytes):
        return not value.strip() or value.strip().lower() in ("nan", b"nan")
    if isinstance(value, list | tuple):
        return bool(value) and all(map(is_missing, value))
    if isinstance(value, np.ndarray):
        return False
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True


def select_labeled(
    unlabeled: Array | None, missing: Missing, describe: Callable[[int], str]
) -> Array | None:
    """Return the numbers of the records to keep; None for all of them.

    Parameters
    ----------
    unlabeled : (n,) bool, optional
        True for records that have no label; None: omit no record.
    missing : the option, as `check_missing` returns it
    describe : function
        Returns a clause about a record, such as "x.csv, line 3 has no label".

    Raises
    ------
    DataError
        A record has no label and `missing` is "error", or no record has one and it is "drop".
    """
    if missing == -1 or unlabeled is None or not unlabeled.any():
        return None
    count = int(unlabeled.sum())
    first = describe(int(unlabeled.argmax()))
    if missing == "error":
        raise DataError(
            f"{first} ({count} of {len(unlabeled)} records have none); give "
            'missing="drop" to omit such records, or missing=-1 to keep them with the target -1'
        )
    if count == len(unlabeled):
        raise DataError(
            f'{first}, nor has any other of {count} records, so missing="drop" would omit all; '
            "give missing=-1, or a source with labels"
        )
    return np.flatnonzero(~unlabeled)


def fill_missing(
    values: Any, missing: Any, describe: Callable[[int], str]
) -> tuple[Any, Array | None]:
    """Return numbers with -1 in place of missing ones, and the records to keep (None: all).

    Values are returned unchanged if they are not an array of one axis, or if none is missing.

    Raises
    ------
    DataError
        `missing` does not allow the missing labels (see `select_labeled`), or is -1 for text.
    """
    option = check_missing(missing)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind not in [*"fOUT"] or len(values.shape) != 1:
        return values, None
    gaps = np.isnan(values) if kind == "f" else np.array([*map(is_missing, values.tolist())], bool)
    if not gaps.any():
        return values, None
    kept = select_labeled(gaps, option, describe)
    if kind == "f":
        return np.where(gaps, -1, values).astype(values.dtype), kept
    present = values[~gaps]
    if any(isinstance(value, str | bytes) for value in present):
        if kept is None:
            raise DataError(
                f"{describe(int(gaps.argmax()))}, and text has no -1: give missing=-1 to "
                'open_index or sampled_batcher, which number classes, or missing="drop" here'
            )
        return values, kept
    numbers = np.full(len(values), -1, np.array(present.tolist()).dtype)
    numbers[~gaps] = present
    return numbers, kept


def fill_targets(present: Array, unlabeled: Array) -> Array:
    """Return the targets of all records: -1 if unlabeled, else the next row of `present`."""
    targets = np.full((len(unlabeled), *present.shape[1:]), -1, present.dtype)
    targets[~unlabeled] = present
    return targets


# ---- Classes ------------------------------------------------------------------------------------

# Python refuses to read more than 4,300 digits.
_DIGITS = re.compile(r"[+-]?[0-9]{1,1000}(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# The dtype of targets from text, cells or containers; arrays keep their dtype.
TARGET_DTYPE = np.dtype(np.float32)
_NUMBER_TYPES = (int, float, Decimal, np.integer, np.floating, np.bool_)
_FLOAT_LIMIT = 2.0**63  # whole floats are below it, so that they fit int64


def whole_number(value: Any) -> int | None:
    """Return the integer that equals a number, or the number in a text; None for other values.

    >>> [whole_number(value) for value in (3.0, "03", "3e0", 2**70, 2.0**63, "3.5", "cat")]
    [3, 3, 3, 1180591620717411303424, None, None, None]
    """
    if isinstance(value, str | bytes):
        text = _text(value).strip()
        if _DIGITS.fullmatch(text):
            return int(text.partition(".")[0])
        value = float(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, int | np.integer):
        return int(value)
    is_whole = (
        isinstance(value, _NUMBER_TYPES)
        and -_FLOAT_LIMIT <= value < _FLOAT_LIMIT
        and value % 1 == 0
    )
    return int(value) if is_whole else None


def are_whole(values: Array) -> Any:
    """Return a mask of the floats that have a `whole_number`."""
    in_range = (values >= -_FLOAT_LIMIT) & (values < _FLOAT_LIMIT)
    return in_range & (values == np.floor(values))


def order_classes(names: Iterable[Label]) -> list[Label]:
    """Return the distinct names in the order of their numbers as classes.

    Whole numbers, also as text, are in numeric order, and equal numbers ("07", "7") in the order of
    their text. If any name is not a whole number, all are in the order of text.

    >>> order_classes(["10", "9", "07", "7"]), order_classes(["10", "9", "cat"])
    (['07', '7', '9', '10'], ['10', '9', 'cat'])
    """
    distinct = list(dict.fromkeys(names))
    numbers = [whole_number(name) for name in distinct]
    if None in numbers:
        return sorted(distinct, key=_text)
    keyed: list[Any] = sorted(zip(numbers, map(_text, distinct), distinct, strict=True))
    return [name for _, _, name in keyed]


def rank_classes(
    distinct: Sequence[Any], is_untyped: bool = False
) -> tuple[list[Label], Array] | None:
    """Return the classes in order and the rank of each value; None if the values are targets.

    Numbers are classes if all are whole, else targets. Text is classes; but untyped text, as in the
    cells of a csv file, is targets if every value is a number and one is not whole. Numbers mixed
    with text become text.

    Raises DataError if all are names of images, which are fields of a record and no classes.
    """
    if distinct and all(isinstance(x, str | os.PathLike) and _is_image(x) for x in distinct):
        raise DataError(
            f"the labels are names of images, such as {show(distinct[0])}; to read them, give "
            "sampled_batcher a source and a Collator for each field: sources {'image': paths, "
            "'mask': paths} and collate={'image': Collator(...), 'mask': Collator(...)}; for "
            "classes of these names, remove their suffix"
        )
    if all(isinstance(value, _NUMBER_TYPES) for value in distinct):
        labels: list[Any] = [v if isinstance(v, bool) else whole_number(v) for v in distinct]
        if None in labels:
            return None
    elif all(isinstance(value, str | bytes) for value in distinct):
        if is_untyped and _are_fractions(distinct):
            return None
        labels = [str(value) if isinstance(value, str) else value for value in distinct]
    else:
        labels = [_text(value) for value in distinct]
    names = order_classes(labels)
    ranks = {name: rank for rank, name in enumerate(names)}
    return names, np.array([ranks[label] for label in labels], np.int64)


def _is_image(path: Any) -> bool:
    return is_image_name(os.fspath(path))


def parse_label(text: str) -> int | float | str:
    """Return the number that a text represents; other text without spaces at its ends."""
    text = text.strip()
    number = whole_number(text)
    if number is None and _NUMBER.fullmatch(text):
        return float(text)
    return text if number is None else number


def _are_fractions(texts: Sequence[Any]) -> bool:
    """Return True if all texts are numbers, and at least one is not whole."""
    return all(_NUMBER.fullmatch(_text(text).strip()) for text in texts) and any(
        whole_number(text) is None for text in texts
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# ---- Arrays and lists ---------------------------------------------------------------------------


class Labels(NamedTuple):
    """The labels of records: classes, or targets of another kind."""

    names: list[Label]  # the classes in order
    codes: Array | None = None  # (n,) int64: the rank of each record's class, -1 without a label
    targets: Any = None  # (n, ...): -1 without a label
    unlabeled: Array | None = None  # (n,) bool: True without a label; None if every record has one

    def select(
        self, missing: Missing, describe: Callable[[int], str]
    ) -> tuple[Array | None, Labels]:
        """Return the numbers of the records to keep (None: all), and their labels.

        Raise DataError as `select_labeled` does.
        """
        kept = select_labeled(self.unlabeled, missing, describe)
        if kept is None:
            return None, self
        columns = (None if column is None else column[kept] for column in self[1:3])
        return kept, Labels(self.names, *columns)


def column_values(column: Any) -> Any:
    """Return the values of a column of a data frame, or of an extension array."""
    null_count = getattr(column, "null_count", None)
    if callable(null_count) and null_count():  # polars, whose arrays have floats in place of ints
        return column.to_list()
    return np.asarray(column.to_numpy())


def read_labels(values: Any, name: str, is_untyped: bool = False) -> Labels:
    """Return the labels in an array with one axis or a list of single values.

    An array of a floating, complex or boolean dtype contains targets, unless labels are missing and
    the others are whole. So does a list of bools only.

    Raises
    ------
    DataError
        A value cannot be a label. `name` is the name of the values in the message.
    """
    kind = values.dtype.kind if isinstance(values, np.ndarray) else "O"
    if kind in "fbc":
        unlabeled = np.isnan(values)
        if not unlabeled.any():
            return Labels([], None, values)
        present: Any = values[~unlabeled]
        if kind == "c" or not are_whole(present).all():
            targets = np.where(unlabeled, -1, values).astype(values.dtype)
            return Labels([], None, targets, unlabeled)
        distinct, inverse = np.unique(present, return_inverse=True)
    elif kind in "iuUSM":
        distinct, inverse = np.unique(values, return_inverse=True)
        gaps = np.array([*map(is_missing, distinct)], bool)
        unlabeled = gaps[inverse]
        distinct = distinct[~gaps]
        inverse = (np.cumsum(~gaps) - 1)[inverse[~unlabeled]]
    else:
        return _read_objects(list(values), name, is_untyped)
    # Dates stay NumPy items, because `tolist` would return ints.
    items = [*distinct] if kind == "M" else distinct.tolist()
    return _classes(items, inverse, unlabeled, is_untyped)


def _read_objects(values: list[Any], name: str, is_untyped: bool) -> Labels:
    unlabeled = np.fromiter(map(is_missing, values), bool, len(values))
    present = [value for value, gap in zip(values, unlabeled.tolist(), strict=True) if not gap]
    if values and all(isinstance(value, bool | np.bool_) for value in values):
        return Labels([], None, np.array(values))
    codes: dict[Any, int] = {}
    try:
        inverse = [codes.setdefault(value, len(codes)) for value in present]
    except TypeError:  # a list or dict has no hash
        raise DataError(
            f"{name} is not an array of numbers or strings: it contains rows of different "
            "lengths, or other objects; give one label, or an equal number of values, per record"
        ) from None
    return _classes([*codes], np.array(inverse, np.int64), unlabeled, is_untyped)


def _classes(distinct: list[Any], inverse: Any, unlabeled: Array, is_untyped: bool) -> Labels:
    """Return labels from distinct values, and the index in them of each label that is present."""
    mask = unlabeled if unlabeled.any() else None
    ranked = rank_classes(distinct, is_untyped)
    if ranked is None:
        present = np.array([*map(float, distinct)], TARGET_DTYPE)[inverse]
        return Labels([], None, fill_targets(present, unlabeled), mask)
    names, ranks = ranked
    codes = np.full(len(unlabeled), -1, np.int64)
    codes[~unlabeled] = ranks[inverse]
    return Labels(names, codes, None, mask)


# ---- Labels of containers -----------------------------------------------------------------------


class NumberLabels:
    """The numeric labels of n records as float32, stored without offsets if possible.

    width : int or None     labels per record, ignoring records without labels; None if it varies
    are_classes : bool      True if all labels are integers, at most one per record
    """

    def __init__(self, widths: Array, values: Array) -> None:
        """Store labels: `widths` has the number for each record, `values` all labels in order."""
        positive = widths[widths > 0]
        self._starts: Array | None = None
        self.width: int | None = int(positive[0]) if len(positive) else 0
        if (positive != self.width).any():
            self.width = None
            self._starts = np.concatenate(([0], np.cumsum(widths, dtype=np.int64)))
        self.are_classes = self.width in (0, 1) and bool(are_whole(values).all())
        self._unlabeled: frozenset[int] = frozenset()
        if self.width and len(positive) < len(widths):  # a record without labels has a row of NaN
            self._unlabeled = frozenset(np.flatnonzero(widths == 0).tolist())
            rows = np.full((len(widths), self.width), np.nan, TARGET_DTYPE)
            rows[widths > 0] = values.reshape(-1, self.width)
            values = rows
        self._values = np.ascontiguousarray(values, TARGET_DTYPE)
        if self.width is not None:
            self._values = self._values.reshape(len(widths), self.width)

    def fill_missing(self, number: float) -> None:
        """Set the label of records without labels."""
        if self._unlabeled:
            self._values[sorted(self._unlabeled)] = number

    def chosen(self, rows: slice | Array) -> NumberLabels:
        """Return the labels of some records; `width` and `are_classes` stay as for all records."""
        part = object.__new__(NumberLabels)
        part.width = self.width
        part.are_classes = self.are_classes
        part._starts = None
        part._unlabeled = frozenset()
        if self._starts is None:
            part._values = self._values[rows].copy()
            if self._unlabeled:
                places = enumerate(np.arange(len(self._values))[rows].tolist())
                part._unlabeled = frozenset(n for n, place in places if place in self._unlabeled)
            return part
        starts = self._starts[:-1][rows]
        widths = np.diff(self._starts)[rows]
        part._starts = np.concatenate(([0], np.cumsum(widths)))
        first: Array = np.repeat(starts - part._starts[:-1], widths)
        part._values = self._values[first + np.arange(len(first))]
        return part

    def rows(self, numbers: Array) -> Array:
        """Return float32 (n,), or (n, width) for more than one label; NaN for missing labels.

        Raises DataError if the number of labels varies.
        """
        if self._starts is not None:
            raise DataError(
                "records have different numbers of labels, so the labels are not an array"
            )
        rows: Array = self._values[numbers]
        return rows[:, 0] if self.width == 1 else rows

    def tuples(self, numbers: Array) -> list[tuple[float, ...]]:
        """Return the labels of records as tuples."""
        if self._starts is None:
            tuples = [*map(tuple, self._values[numbers].tolist())]
            if self._unlabeled:
                pairs = zip(numbers.tolist(), tuples, strict=True)
                return [() if number in self._unlabeled else row for number, row in pairs]
            return tuples
        ends = zip(self._starts[numbers].tolist(), self._starts[numbers + 1].tolist(), strict=True)
        return [tuple(self._values[start:end].tolist()) for start, end in ends]

    def classes(self) -> tuple[list[int], Array]:
        """Return the sorted integral labels of records with one label, and each record's rank.

        The rank is -1 for records with no label, several, or one that is not integral.
        """
        values = self._single()
        integral = are_whole(values)
        codes = np.full(len(values), -1, np.int32)
        labels, codes[integral] = rank_whole_numbers(values[integral].astype(np.int64))
        return labels, codes

    def _single(self) -> Any:
        """Return the label of each record that has one; NaN for other records."""
        if self.width == 1:
            return self._values[:, 0]
        if self._starts is None:
            return np.full(len(self._values), np.nan, TARGET_DTYPE)
        values = np.full(len(self._starts) - 1, np.nan, TARGET_DTYPE)
        single = np.flatnonzero(np.diff(self._starts) == 1)
        values[single] = self._values[self._starts[single]]
        return values


def rank_whole_numbers(numbers: Array) -> tuple[list[int], Array]:
    """Return the sorted unique numbers, and the rank of each number."""
    low = int(numbers.min(initial=0))
    high = int(numbers.max(initial=0))
    if high - low > 4 * len(numbers):
        labels, codes = np.unique(numbers, return_inverse=True)
        return labels.tolist(), codes
    # Several times faster than sorting.
    present = np.zeros(high - low + 1, bool)
    present[numbers - low] = True
    return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[numbers - low]


_EXACT = 1 << 24  # float32 represents every integer up to this one


class LabelColumns(NamedTuple):
    """The columns of `RecordColumns` about labels."""

    names: Sequence[Label] = ()  # the classes in order
    codes: Array | None = None  # (n,) int32: the rank of each record's class, or -1
    numbers: NumberLabels | None = None  # if labels are numbers
    unlabeled: Array | None = None  # (n,) bool; None if the source has no labels


def label_columns(values: Sequence[Any], is_labeled: bool = False) -> LabelColumns:
    """Return the label columns; `values` has a number, text, a list of numbers or None per record.

    If all are None, every record is unlabeled if the source `is_labeled`, else the source has no
    labels.

    Raises ValueError(position, text) for the first value that is not a label, and for mixed lists
    and single labels.
    """
    missing = np.fromiter(map(is_missing, values), bool, len(values))
    present = np.flatnonzero(~missing).tolist()
    if not present:
        codes = np.full(len(values), -1, np.int32)
        return LabelColumns((), codes, None, missing) if is_labeled else LabelColumns()
    are_lists = isinstance(values[present[0]], list)
    for place in present:
        value = values[place]
        if isinstance(value, dict) or (isinstance(value, list) and not _are_numbers(value)):
            raise ValueError(
                place, f"{show(value)} is not a label; it must be a number, a word or numbers"
            )
        if isinstance(value, list) is not are_lists:
            noun = "list of numbers" if are_lists else "single label"
            raise ValueError(place, f"{show(value)} is not a {noun}, as the labels before it are")
    if are_lists:
        rows = [values[place] for place in present]
        widths = np.zeros(len(values), np.int64)
        widths[present] = [*map(len, rows)]
        numbers = NumberLabels(widths, np.array([x for row in rows for x in row], TARGET_DTYPE))
        return LabelColumns(*numbers.classes(), numbers, missing)
    names, ranks, targets, _ = read_labels(values, "the labels")
    if ranks is None:
        flat = targets[present]
    elif all(isinstance(name, int) and abs(name) <= _EXACT for name in names):
        flat = np.array(names, TARGET_DTYPE)[ranks[present]]
    else:
        return LabelColumns(names, ranks.astype(np.int32), None, missing)
    numbers = NumberLabels((~missing).astype(np.int64), flat)
    return LabelColumns(*numbers.classes(), numbers, missing)


def _are_numbers(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, _NUMBER_TYPES) for value in values)


def remove_missing(widths: Array, values: Array) -> tuple[Array, Array, Array | None]:
    """Return widths and values without labels of records that have only NaN; also their mask."""
    gaps = np.isnan(values)
    if not gaps.any():
        return widths, values, None
    row_of = np.repeat(np.arange(len(widths)), widths)
    unlabeled = (widths > 0) & (np.bincount(row_of[gaps], minlength=len(widths)) == widths)
    return np.where(unlabeled, 0, widths), values[~unlabeled[row_of]], unlabeled
