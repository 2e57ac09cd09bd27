"""Labels of records, for every source: names of columns, missing labels, classes and targets.

`find_columns`      which columns of a table contain files or images, and which labels
`select_labelled`   the records that are kept if some have no label
`order_classes`     the order, and so the numbers, of classes
`rank_classes`      the classes of labels; numbers that are not whole are targets instead
`read_labels`       the labels of an array or list

Sources read values and call these functions; they decide nothing themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..memory import Array
from .records import Label

# ---- Names of columns ---------------------------------------------------------------------------

FILE_COLUMNS = ("filename", "file_name", "file", "path", "filepath", "image")
_LABEL_COLUMN = re.compile(r"label[0-9]*")


class Columns(NamedTuple):
    """The positions of the columns of a table that a source reads."""

    image: int  # of files, or of the images themselves
    labels: tuple[int, ...]


def is_label_column(name: str) -> bool:
    """Return True for label and label with digits."""
    return _LABEL_COLUMN.fullmatch(name) is not None


def check_columns(columns: Any) -> Mapping[str, Any]:
    """Return the `columns` option as a mapping; raise DataError if it has other keys."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not {*columns} <= {"image", "label"}:
        raise DataError(
            f"columns={columns!r}; it is a mapping of image, label or both to the names of "
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
        The names do not tell which columns these are, or a name other than that of labels occurs
        twice.
    """
    texts = [str(name).strip() for name in names]
    options = check_columns(columns)
    shown = f"found {', '.join(texts) or 'none'}"
    image = options.get("image") or _find_file_column(
        [name for name in texts if content is None or name in content], source, shown
    )
    if "label" in options:
        labels = _as_names(options["label"])
    else:
        labels = _find_label_columns(texts, (image, *known), source, shown)
    for name in (image, *labels, *(name for name in known if name in texts)):
        number = texts.count(name)
        if not number or (number > 1 and name not in labels):
            raise DataError(
                f"{source} has {number or 'no'} column{'s' * (number > 1)} "
                f"{name!r}, but it needs one; {shown}"
            )
    places = [place for place, name in enumerate(texts) if name in labels]
    return Columns(texts.index(image), tuple(places))


def _as_names(label: Any) -> tuple[Any, ...]:
    if label is None:
        return ()
    return tuple(label) if isinstance(label, list | tuple) else (label,)


def _find_file_column(names: Sequence[str], source: str, shown: str) -> str:
    candidates = [name for name in names if name in FILE_COLUMNS]
    if len({*candidates}) != 1:
        count = "several columns" if candidates else "no column"
        raise DataError(
            f"{source} has {count} of files ({', '.join(FILE_COLUMNS)}); {shown}; say which it is: "
            f"columns={{'image': {(candidates or [*names, '...'])[0]!r}}}"
        )
    return candidates[0]


def _find_label_columns(
    names: Sequence[str], others: Sequence[str], source: str, shown: str
) -> tuple[str, ...]:
    """Return the names `label` and `label<digits>`; raise DataError for similar or only others."""
    rest = [name for name in names if name not in others]
    labels = tuple(filter(is_label_column, rest))
    similar = [n for n in rest if n.lower().startswith("label") and n not in labels]
    if similar or (rest and not labels):
        example = (similar or rest)[0]
        reason = (
            f"the column {example!r}, which is neither label nor label1, label2, ..."
            if similar
            else "no column label"
        )
        raise DataError(
            f"{source} has {reason}; {shown}; say which columns are labels: "
            f"columns={{'label': {example!r}}}, or None for no labels"
        )
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
        f'missing={missing!r}; it is "error", "drop" to omit records without a label, or -1 for '
        "their target"
    )


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, NaT, pandas.NA and empty text, which are no labels."""
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


def select_labelled(
    without: Array | None, missing: Missing, describe: Callable[[int], str]
) -> Array | None:
    """Return the numbers of the records to keep; None for all of them.

    Parameters
    ----------
    without : (n,) bool, optional
        True for records that have no label; None if the source has no labels at all.
    missing : the option, as `check_missing` returns it
    describe : function
        Returns a clause about a record, such as "x.csv, line 3 has no label".

    Raises
    ------
    DataError
        A record has no label and `missing` is "error", or no record has one and it is "drop".
    """
    if missing == -1 or without is None or not without.any():
        return None
    count = int(without.sum())
    first = describe(int(without.argmax()))
    if missing == "error":
        raise DataError(
            f"{first} ({count} of {len(without)} records have none); give "
            'missing="drop" to omit such records, or missing=-1 to keep them with the target -1'
        )
    if count == len(without):
        raise DataError(
            f'{first}, nor has any other of {count} records, so missing="drop" would omit all; '
            "give missing=-1, or a source with labels"
        )
    return np.flatnonzero(~without)


def fill_missing(
    values: Any, missing: Any, describe: Callable[[int], str]
) -> tuple[Any, Array | None]:
    """Return numbers with -1 in place of missing ones, and the records to keep (None: all).

    Values other than an array of one axis are returned unchanged, as are those without gaps.

    Raises
    ------
    DataError
        As `select_labelled`; or `missing` is -1, but the values are text.
    """
    option = check_missing(missing)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind not in [*"fOUT"] or len(values.shape) != 1:
        return values, None
    gaps = np.isnan(values) if kind == "f" else np.array([*map(is_missing, values.tolist())], bool)
    if not gaps.any():
        return values, None
    kept = select_labelled(gaps, option, describe)
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


# ---- Classes ------------------------------------------------------------------------------------

# Longer ones are names: Python refuses to read more than 4,300 digits.
_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBER_TYPES = (int, float, Decimal, np.integer, np.floating, np.bool_)


def order_classes(names: Iterable[Label]) -> list[Label]:
    """Return the distinct names in the order of their numbers as classes.

    Whole numbers, also as text, are in the order of numbers, equal ones ("07", "7") by text. If any
    name is not a whole number, all are in the order of text.

    >>> order_classes(["10", "9", "07", "7"]), order_classes(["10", "9", "cat"])
    (['07', '7', '9', '10'], ['10', '9', 'cat'])
    """
    distinct = list(dict.fromkeys(names))
    numbers = [_whole_number(name) for name in distinct]
    if None in numbers:
        return sorted(distinct, key=_text)
    keyed: list[Any] = sorted(zip(numbers, map(_text, distinct), distinct, strict=True))
    return [name for _, _, name in keyed]


def rank_classes(
    distinct: Sequence[Any], is_untyped: bool = False
) -> tuple[list[Label], Array] | None:
    """Return the classes in order and the rank of each value; None if the values are targets.

    Numbers are classes if all are whole, else targets. Text is classes; if it is untyped, as the
    cells of a csv file are, it is targets where every value is the text of a number, but not every
    one of a whole number. Numbers beside text become text.
    """
    if all(isinstance(value, _NUMBER_TYPES) for value in distinct):
        if not all(isinstance(v, int) or float(v).is_integer() for v in distinct):
            return None
        labels: list[Any] = [v if isinstance(v, bool) else int(v) for v in distinct]
    elif all(isinstance(value, str | bytes) for value in distinct):
        if is_untyped and _are_fractions(distinct):
            return None
        labels = [str(value) if isinstance(value, str) else value for value in distinct]
    else:
        labels = [_text(value) for value in distinct]
    names = order_classes(labels)
    ranks = {name: rank for rank, name in enumerate(names)}
    return names, np.array([ranks[label] for label in labels], np.int64)


def parse_label(text: str) -> int | float | str:
    """Return the number that a text is, or the text."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text) if _whole_number(text) is None or "." in text else int(text)
    return text


def _are_fractions(texts: Sequence[Any]) -> bool:
    """Return True if all texts are numbers, and one is not whole."""
    return all(_NUMBER.fullmatch(_text(text).strip()) for text in texts) and any(
        _whole_number(text) is None for text in texts
    )


def _whole_number(name: Any) -> int | None:
    """Return the value of a whole number or of its text; None for other names."""
    if isinstance(name, int):
        return int(name)
    text = _text(name).strip()
    return int(text.partition(".")[0]) if _WHOLE.fullmatch(text) else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# ---- Arrays and lists ---------------------------------------------------------------------------


class Labels(NamedTuple):
    """The labels of records: classes, or targets of another kind."""

    names: list[Label]  # the classes in order
    codes: Array | None = None  # (n,) int64: the rank of each record's class, -1 without a label
    targets: Any = None  # (n, ...): -1 without a label
    without: Array | None = None  # (n,) bool: True without a label; None if every record has one

    def chosen(self, rows: Any) -> Labels:
        """Return the labels of some records."""
        columns = (None if column is None else column[rows] for column in self[1:3])
        return Labels(self.names, *columns)


def column_values(column: Any) -> Any:
    """Return the values of a column of a data frame, or of an extension array, as array or list."""
    null_count = getattr(column, "null_count", None)
    if callable(null_count) and null_count():  # polars, whose arrays have floats in place of ints
        return column.to_list()
    return np.asarray(column.to_numpy())


def read_labels(values: Any, name: str, is_untyped: bool = False) -> Labels:
    """Return the labels in an array with one axis or a list of single values.

    A complete array of a floating, complex or boolean dtype contains targets, as its dtype says.

    Raises
    ------
    DataError
        A value cannot be a label. `name` is the name of the values in the message.
    """
    kind = values.dtype.kind if isinstance(values, np.ndarray) else "O"
    if kind in "fbc":
        without = np.isnan(values)
        if not without.any():
            return Labels([], None, values)
        present: Any = values[~without]
        if kind == "c" or not (present == np.floor(present)).all():
            return Labels([], None, np.where(without, -1, values).astype(values.dtype), without)
        distinct, inverse = np.unique(present, return_inverse=True)
    elif kind in "iuUSM":
        distinct, inverse = np.unique(values, return_inverse=True)
        gaps = np.array([*map(is_missing, distinct)], bool)
        without = gaps[inverse]
        distinct = distinct[~gaps]
        inverse = (np.cumsum(~gaps) - 1)[inverse[~without]]
    else:
        return _read_objects(list(values), name, is_untyped)
    # Items of NumPy for dates, as `tolist` makes numbers of them.
    items = [*distinct] if kind == "M" else distinct.tolist()
    return _classes(items, inverse, without, is_untyped)


def _read_objects(values: list[Any], name: str, is_untyped: bool) -> Labels:
    without = np.fromiter(map(is_missing, values), bool, len(values))
    present = [value for value, gap in zip(values, without.tolist(), strict=True) if not gap]
    codes: dict[Any, int] = {}
    try:
        inverse = [codes.setdefault(value, len(codes)) for value in present]
    except TypeError:  # a list or dict has no hash
        raise DataError(
            f"{name} is not an array of numbers or strings: it has rows of several values whose "
            "numbers differ, or other objects; give one label, or equally many numbers, per record"
        ) from None
    return _classes([*codes], np.array(inverse, np.int64), without, is_untyped)


def _classes(distinct: list[Any], inverse: Any, without: Array, is_untyped: bool) -> Labels:
    """Return labels from distinct values and the position in them of each label that is there."""
    mask = without if without.any() else None
    ranked = rank_classes(distinct, is_untyped)
    if ranked is None:
        targets = np.full(len(without), -1, np.float32)
        targets[~without] = np.array([*map(float, distinct)], np.float32)[inverse]
        return Labels([], None, targets, mask)
    names, ranks = ranked
    codes = np.full(len(without), -1, np.int64)
    codes[~without] = ranks[inverse]
    return Labels(names, codes, None, mask)
