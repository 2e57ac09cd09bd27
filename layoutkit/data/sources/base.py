"""Index, the base class of all sources: a sequence of records, also by label, and its selections.

Also partitions of a source, and the policy for file names in a table. A table may come from an
untrusted author, and file systems of fsspec do more than read: chains of them unpack, cache and
render templates. So by default a cell may only name files at the table's own scheme or on web
servers; other schemes have to be allowed by the caller.
"""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from html import escape
from itertools import accumulate, islice
from numbers import Integral
from typing import Any, NamedTuple, Never, overload

import numpy as np

from ..._utils.indexing import normalize_index, normalize_indices, normalize_slice
from ..._utils.pickling import UncachedState
from ..._utils.random import make_key, permute_index
from ..._utils.spelling import CuresForAttributes
from ..._utils.validation import check_bool, check_int, show
from ...errors import DataError
from ...memory import Array
from ..errors import OutOfRange, check_has_records, reject_unknown
from ..io.filesystem import is_url
from ..io.reader import Reader
from ..io.responses import FileVersion
from ..records import Label, Record


class Partition(NamedTuple):
    """Part `part` of `parts`: records part, part + parts, part + 2 parts, ... of the source."""

    part: int
    parts: int

    @property
    def rows(self) -> slice:
        """The records of this partition, as a slice of the source."""
        return slice(self.part, None, self.parts)

    def __str__(self) -> str:
        return f"{self.part} of {self.parts}"

    def count(self, total: int) -> int:
        """Return the number of records in this partition of a source of `total` records."""
        return len(range(self.part, total, self.parts))

    def place(self, number: Any) -> Any:
        """Return the source's number of record `number` of this partition; also for arrays."""
        return self.part + number * self.parts


class Groups(NamedTuple):
    """Record numbers by group: group g is `members[starts[g] : starts[g] + counts[g]]`."""

    members: Array
    starts: Any
    counts: Any


def group_by_code(codes: Array, number: int) -> Groups:
    """Return the ascending positions of 0, 1, .. number-1 in `codes`; -1 is in no group."""
    members = np.argsort(codes, kind="stable")
    counts = np.bincount(codes[codes >= 0], minlength=number)
    return Groups(members[np.count_nonzero(codes < 0) :], np.cumsum(counts) - counts, counts)


class Index(CuresForAttributes, UncachedState, Sequence[Record]):
    """A source of records: their order and their labels.

    Returned by `open_index`. A sequence of `Record`: numbers count from 0, negative ones from the
    end. A slice, and a list or array of numbers, gives an Index of these records (a subset), which
    is a source like any other.

    `records`, `rows`, `ranks` and `targets` read many records at once, as columns; they accept an
    int64 array of nonnegative numbers.

    Attributes
    ----------
    kind : str
        "csv", "tsv", "directory", "files", "items", "parts", "tensor", "zarr" or the kind of a
        container.
    url_prefix : str
        The prefix of relative file names; None for arrays.
    labels : list
        The labels of all partitions, also those without records in this one, in order: whole
        numbers, also as text, as numbers, other names as text; the `classes` of a file of arrays
        in their own order.
    label_index : dict
        The rank of each label in `labels`.
    partition : (part, parts)
        The part of the source's records that this index contains.
    skipped : int
        The number of records of the whole source that are omitted, such as those without a label
        if `missing="drop"`.
    """

    skipped = 0  # records of the whole source that are omitted
    in_memory = False  # True if the records are rows of a NumPy array
    # Records in a chunk, and the number of chunks to shuffle together; None: not in chunks.
    chunk_window: tuple[int, int] | None = None
    differing_shapes: tuple[Any, Any] | None = None  # two shapes of records, if known to differ
    has_images = False  # True if the records are image files, whatever their names are
    has_image_lists = False  # True if records with images are lists of them
    reads_in_order = False  # True if records have no numbers, as lines of part files and streams
    gives_targets = False  # True if what `getter` returns may be (data, target)
    target_classes: Sequence[
        str
    ] = ()  # the names of the classes that such targets number, if known
    _partition = Partition(0, 1)

    def __init__(
        self, kind: str, url_prefix: str | None, labels: Sequence[Label], codes: Array | None
    ) -> None:
        self.kind = kind
        self.url_prefix = url_prefix
        self.labels = list(labels)
        self.label_index = {label: rank for rank, label in enumerate(labels)}
        self._codes = codes  # the rank of each record's label, -1 if it has no label

    @property
    def partition(self) -> Partition:
        """The part of the source's records that this index contains: (part, parts)."""
        return self._partition

    @property
    def selection(self) -> str:
        """The text by which states recognize the part of the source that this index contains."""
        return str(self.partition)

    def places(self, numbers: Array) -> Array:
        """Return the positions of these records in the whole source."""
        return self._partition.place(numbers)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def record(self, number: int) -> Record:
        """Return the record of a valid number: `item_at` without checks."""

    def records(self, numbers: Array) -> list[Record]:
        """Return the records of valid numbers."""
        return [self.record(number) for number in numbers.tolist()]

    def rows(self, numbers: Array) -> Array:
        """Return the arrays of these records, copied into one; only if they are `in_memory`."""
        raise DataError(f"the records of a {self.kind} index are not rows of an array")

    def array_rows(self, numbers: Array) -> tuple[Array, Array]:
        """Return an array, and these records' rows in it; only if they are `in_memory`."""
        raise DataError(f"the records of a {self.kind} index are not rows of an array")

    def ranks(self, numbers: Array) -> Array | None:
        """Return the ranks of the records' labels, -1 for no label; None without any labels."""
        if self._codes is None:
            return None
        return self._codes[numbers]

    def _label_at(self, number: int) -> tuple[Label | None, tuple[Label, ...]]:
        """Return the label of a record, and all of its labels."""
        code = -1 if self._codes is None else int(self._codes[number])
        return (None, ()) if code < 0 else (self.labels[code], (self.labels[code],))

    def _labels_at(self, numbers: Array) -> list[Label | None]:
        """Return the label of each of these records."""
        if self._codes is None:
            return [None] * len(numbers)
        names = [*self.labels, None]
        return [names[code] for code in self._codes[numbers].tolist()]

    def targets(self, numbers: Array) -> Array | None:
        """Return the source's targets of these records, other than labels; or None."""
        return None

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a record's array or bytes through a Reader."""
        return reader.get

    def file_version(self, url: str) -> FileVersion | None:
        """Return the version that a remote file had when its records were located, if known."""
        return None

    def members(self, label: Label) -> Array:
        """Return the numbers of the records with a label; DataError if the label is unknown."""
        rank = self._rank(label)
        start = self.groups.starts[rank]
        return self.groups.members[start : start + self.groups.counts[rank]]

    @cached_property
    def groups(self) -> Groups:
        """The records of each label."""
        codes = np.full(len(self), -1) if self._codes is None else self._codes
        return group_by_code(codes, len(self.labels))

    def item_count(self, label: Label | None = None) -> int:
        """Return the number of records in this partition, with a label if one is given.

        Raises
        ------
        DataError
            No partition of the source has this label.
        """
        if label is None:
            return len(self)
        return int(self.groups.counts[self._rank(label)])

    def item_at(self, i: int, label: Label | None = None) -> Record:
        """Return record number i, or the i-th of the records with a label, in index order.

        Raises
        ------
        DataError
            There is no such record (an IndexError, too) or no such label.
        """
        if label is None:
            return self.record(normalize_index(i, len(self), "records", OutOfRange))
        members = self.members(label)
        noun = f"records with label {show(label)}"
        return self.record(int(members[normalize_index(i, len(members), noun, OutOfRange)]))

    @overload
    def __getitem__(self, i: int) -> Record: ...

    @overload
    def __getitem__(self, i: slice | Sequence[int] | Array) -> Index: ...

    def __getitem__(self, i: int | slice | Sequence[int] | Array) -> Record | Index:
        if isinstance(i, slice):
            part = normalize_slice(i, len(self), OutOfRange)
            return self._select(np.arange(part.start, part.stop, part.step))
        if (isinstance(i, Sequence) and not isinstance(i, str)) or np.ndim(i):
            return self._select(normalize_indices(i, len(self), "records", OutOfRange))
        return self.item_at(i)  # type: ignore[arg-type]  # an int, or else an error

    def split(
        self, *fractions: float, seed: int = 0, stratify: bool = False, **unknown: Never
    ) -> tuple[Index, ...]:
        """Divide the records at random into parts, such as for training and validation.

        >>> from layoutkit.data import open_index
        >>> index = open_index({"x": range(10), "y": ["cat", "dog"] * 5})
        >>> training, validation = index.split(0.8, seed=0, stratify=True)
        >>> len(training), [record.label for record in validation]
        (8, ['cat', 'dog'])

        Parameters
        ----------
        fractions : float
            The sizes of the parts, relative to the number of records. A last part has the rest, if
            there is one: ``split(0.8)`` returns two parts, ``split(0.8, 0.1)`` three.
        seed : int
            The parts depend on the seed and the number of records only, and on the labels if
            `stratify`.
        stratify : bool
            Give each part the same share of every label, to within one record.

        Returns
        -------
        tuple of Index
            The parts. Each has the `labels` of the whole index, and its records in their order.

        Raises
        ------
        DataError
            An argument is invalid, a part would have no records, or the index has no labels to
            stratify by.
        """
        if unknown:
            reject_unknown(Index.split, unknown, _SPLIT_CURES)
        order = self._shuffle(seed, stratify)
        parts = []
        for size in _part_sizes(fractions, len(self)):
            # Evenly spaced in an order that is sorted by label.
            chosen = (2 * np.arange(size) + 1) * len(order) // (2 * size)
            parts.append(self._select(np.sort(order[chosen])))
            order = np.delete(order, chosen)
        return tuple(parts)

    def folds(
        self, count: int, *, seed: int = 0, stratify: bool = False
    ) -> list[tuple[Index, Index]]:
        """Return `count` pairs (training, validation) for cross-validation (k-fold).

        Each record is in the validation part of one pair, and in the training parts of all others.
        `seed` and `stratify` are as of `split`.

        Raises
        ------
        DataError
            There are fewer records than folds, or an argument is invalid.
        """
        number = check_int("count", count, 2)
        if number > len(self):
            raise DataError(f"count={number}, but there are {len(self)} records; give fewer folds")
        order = self._shuffle(seed, stratify)
        parts = [np.s_[first::number] for first in range(number)]
        return [
            (self._select(np.sort(np.delete(order, part))), self._select(np.sort(order[part])))
            for part in parts
        ]

    def _select(self, numbers: Array, classes: Sequence[Label] | None = None) -> Index:
        """Return the index of these records, with other numbers of their classes if given."""
        return SelectedIndex(self, numbers, classes)

    def _shuffle(self, seed: int, stratify: bool) -> Array:
        """Return the numbers of all records in random order; sorted by label if `stratify`."""
        count = len(self)
        check_has_records(count, repr(self), "there is nothing to divide")
        key = make_key("split", check_int("seed", seed, None))
        order: Array = permute_index(key, np.arange(count, dtype=np.uint64), count).astype(np.int64)
        if not check_bool("stratify", stratify):
            return order
        ranks = self.ranks(order) if self.labels else None
        if ranks is None:
            raise DataError(f"stratify=True needs a label of each record, but {self!r} has none")
        return order[np.argsort(ranks, kind="stable")]

    def _repr_html_(self) -> str:
        shown = "\n".join(repr(record) for record in islice(self, 5))
        rest = "\n..." if len(self) > 5 else ""
        return f"<pre>{escape(repr(self))}\n{escape(shown)}{rest}</pre>"

    def __repr__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"<{self.kind} index of {len(self)} records, {len(self.labels)} labels{skipped}>"

    def _rank(self, label: Any) -> int:
        try:
            return self.label_index[label]
        except (KeyError, TypeError):
            raise DataError(
                f"no label {show(label)}; there are {label_list(self.labels)}"
            ) from None


_SPLIT_CURES = dict.fromkeys(
    ("fraction", "frac", "lengths", "sizes", "test_size", "train_size", "val_size"),
    "give the share of each part without a name, that of the training first, as in split(0.8)",
) | dict.fromkeys(("generator", "random_state"), "give seed=")


def _part_sizes(fractions: Sequence[float], count: int) -> list[int]:
    """Return the number of records of each part of a split; DataError if one would be 0."""
    shown = ", ".join(map(repr, fractions))
    is_valid = fractions and all(isinstance(x, float | int) and 0 < x < 1 for x in fractions)
    if not is_valid or sum(fractions) > 1 + _ROUNDING:
        raise DataError(
            f"split({shown}); the sizes are fractions between 0 and 1, and their sum is at "
            "most 1, as in split(0.8); for numbers of records, give a slice: index[:100]"
        )
    is_complete = sum(fractions) > 1 - _ROUNDING
    ends = [*accumulate(fractions), 1.0]
    if is_complete:
        del ends[-2]
    sizes = np.diff([0, *(round(end * count) for end in ends)]).tolist()
    if 0 in sizes:
        raise DataError(
            f"split({shown}) of {count} records gives a part without records; give other sizes"
        )
    return sizes


_ROUNDING = 1e-9  # of a sum of fractions, such as 0.8 + 0.1 + 0.1


class SelectedIndex(Index):
    """Some records of another index in any order, or all with other numbers of their classes."""

    def __init__(
        self, whole: Index, numbers: Array, classes: Sequence[Label] | None = None
    ) -> None:
        labels = whole.labels if classes is None else classes
        new_ranks = {label: rank for rank, label in enumerate(labels)}
        self._whole = whole
        self._numbers = numbers  # (n,) int64, of records of `whole`
        self._classes = classes
        # By the rank in `whole`; the last one is of -1, records without a label.
        self._ranks = np.array([*(new_ranks[label] for label in whole.labels), -1])
        codes = whole._codes
        own = None if codes is None else self._ranks[codes[numbers]]
        super().__init__(whole.kind, whole.url_prefix, labels, own)
        self._partition = whole._partition
        self.gives_targets = whole.gives_targets
        self.target_classes = whole.target_classes
        self.in_memory = whole.in_memory
        self.has_images = whole.has_images
        self.has_image_lists = whole.has_image_lists
        self.skipped = whole.skipped

    @cached_property
    def selection(self) -> str:
        """The partition and, unless all records are selected in order, a hash of their numbers."""
        if np.array_equal(self._numbers, np.arange(len(self._whole))):
            return self._whole.selection
        return f"{self._whole.selection}, selection {hash_numbers(self._numbers)}"

    def places(self, numbers: Array) -> Array:
        return self._whole.places(self._numbers[numbers])

    def __len__(self) -> int:
        return len(self._numbers)

    def record(self, number: int) -> Record:
        return self._whole.record(int(self._numbers[number]))

    def records(self, numbers: Array) -> list[Record]:
        """Return these records, with their positions in the whole index."""
        return self._whole.records(self._numbers[numbers])

    def rows(self, numbers: Array) -> Array:
        return self._whole.rows(self._numbers[numbers])

    def array_rows(self, numbers: Array) -> tuple[Array, Array]:
        return self._whole.array_rows(self._numbers[numbers])

    def ranks(self, numbers: Array) -> Array | None:
        ranks = self._whole.ranks(self._numbers[numbers])
        return None if ranks is None else self._ranks[ranks]

    def targets(self, numbers: Array) -> Array | None:
        return self._whole.targets(self._numbers[numbers])

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return the function of the whole index that reads a record."""
        return self._whole.getter(reader)

    def file_version(self, url: str) -> FileVersion | None:
        return self._whole.file_version(url)

    def _select(self, numbers: Array, classes: Sequence[Label] | None = None) -> Index:
        return SelectedIndex(self._whole, self._numbers[numbers], classes or self._classes)


def hash_numbers(numbers: Array) -> str:
    """Return 16 hexadecimal digits of int64 numbers, equal on every machine."""
    return hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=8).hexdigest()


def number_classes(index: Index, classes: Any) -> Index:
    """Return the index with these classes in this order; DataError if it has another label."""
    names = classes.tolist() if isinstance(classes, np.ndarray) else classes
    is_list = isinstance(names, Sequence) and not isinstance(names, str | bytes)
    names = [*names] if is_list and all(isinstance(name, str | Integral) for name in names) else []
    if not names or len({*names}) < len(names):
        raise DataError(
            f"classes={show(classes)}; it is a list of different texts or whole numbers, the "
            "labels in the order that numbers them"
        )
    if not index.labels:
        raise DataError(f"classes= numbers labels, but {index!r} has none; omit it")
    unknown = [label for label in index.labels if label not in names]
    if unknown:
        raise DataError(
            f"the source has the label {unknown[0]!r}, which is not in classes=: "
            f"{label_list(names)}; add {label_list(unknown)}, or correct the labels"
        )
    return index._select(np.arange(len(index)), names)


def label_list(labels: Sequence[Any]) -> str:
    """Return the first ten labels as text for a message."""
    shown = ", ".join(map(repr, labels[:10]))
    return (shown + (", ..." if len(labels) > 10 else "")) or "none"


_LOCAL = "file"
_WEB = ("http", "https")


class NamePolicy:
    """The rules for the file names that the cells of a table may contain.

    Parameters
    ----------
    index : str
        The path or URL of the table, whose scheme is always allowed.
    schemes : tuple of str
        Other schemes that are allowed; "file" for local files.
    """

    def __init__(self, index: str, schemes: tuple[str, ...]) -> None:
        self._own = _scheme_of(index)
        self._allowed = tuple(dict.fromkeys((self._own, *_WEB, *schemes)))

    def check(self, name: str) -> None:
        """Raise ValueError if a file name is not allowed."""
        if is_url(name):
            self._check_scheme(name, _scheme_of(name))
        elif name.startswith("/") or os.path.isabs(name):  # as `join_path` decides
            self._check_scheme(name, _LOCAL)
        if "::" in name and (is_url(name) or self._own != _LOCAL):
            raise ValueError(f"{name!r} chains file systems (::), which an index may not")

    def check_prefix(self, prefix: str) -> None:
        """Raise ValueError if a prefix of names is not allowed: a URL's relative one is local."""
        self._check_scheme(prefix, _scheme_of(prefix))
        if is_url(prefix) and "::" in prefix:
            raise ValueError(f"{prefix!r} chains file systems (::), which an index may not")

    def _check_scheme(self, name: str, scheme: str) -> None:
        if scheme in self._allowed:
            return
        target = "a local file" if scheme == _LOCAL else f"a file at {scheme}://"
        raise ValueError(
            f"{name!r} names {target}, and an index of this kind names {', '.join(self._allowed)}; "
            f"open_index(..., schemes=({scheme!r},)) allows it"
        )


def check_schemes(schemes: Any) -> tuple[str, ...]:
    """Return the allowed schemes as a tuple; DataError unless they are words."""
    if not isinstance(schemes, tuple | list | set | frozenset) or not all(
        isinstance(scheme, str) and scheme and "://" not in scheme for scheme in schemes
    ):
        raise DataError(
            f"schemes={show(schemes)}; they must be a tuple of words, as in ('file', 's3')"
        )
    return tuple(schemes)


def _scheme_of(path: str) -> str:
    """Return the scheme of a path or URL; for a chain, the last one, where the files are."""
    return path.partition("://")[0].rpartition("::")[2] if is_url(path) else _LOCAL
