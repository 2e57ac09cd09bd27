"""Indices and slices: every caller accepts the same ones, and refuses others in the same words."""

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    Collator,
    CompositeSpace,
    DataView,
    ListView,
    ShapeError,
    VectorSpace,
    collate,
)
from layoutkit.data import Dataset, Ragged, open_index
from layoutkit.data.errors import OutOfRange

COUNT = 6
X = np.arange(2.0 * COUNT).reshape(COUNT, 2)
SPACES = [VectorSpace(2 * n + 1) for n in range(COUNT)]  # 2 n is the first number of row n
ROWS = [X[n, : 1 + n % 2] for n in range(COUNT)]  # of two lengths
INDEX = open_index({"x": X, "y": ["label"] * COUNT})


class Endless:
    def __getitem__(self, n):
        return X[n % COUNT]


def restrict(indices):
    parts = CompositeSpace(SPACES).restrict(indices)
    parts = parts.components if isinstance(parts, CompositeSpace) else [parts]
    return [part.dim - 1 for part in parts]


# By caller: a function of one index that returns the first number of row i.
ONE = {
    "Dataset": lambda i: Dataset(X)[i]()[0],
    "Dataset of a Dataset": lambda i: Dataset(np.repeat(X, 2, 0))[::2][i]()[0],
    "Dataset of rows": lambda i: Dataset(ROWS)[i]()[0],
    "Dataset without a length": lambda i: Dataset(Endless())[:COUNT][i]()[0],
    "Index": lambda i: INDEX[i].array[0],
    "Index of a label": lambda i: INDEX.item_at(i, "label").array[0],
    "Ragged": lambda i: Ragged.of(ROWS)[i][0],
    "restrict": lambda i: restrict([i])[0],
}
# By caller: a function of a list or array of indices that returns the first numbers of the rows.
MANY = {
    "collate": lambda rows: collate(X, "bf->bf", indices=rows)[:, 0],
    "random Collator": lambda rows: Collator("bf->bf", f=2, offset="random")(X, indices=rows)[:, 0],
    "DataView": lambda rows: DataView("bf", X).index(rows).input[:, 0],
    "ListView": lambda rows: ListView([DataView("bf", X)]).index(rows).input[0][:, 0],
    "Dataset": lambda rows: Dataset(X)[rows]()[:, 0],
    "Dataset of a Dataset": lambda rows: Dataset(np.repeat(X, 2, 0))[::2][rows]()[:, 0],
    "Dataset of rows": lambda rows: [row()[0] for row in Dataset(ROWS)[rows]],
}
ERRORS = {"collate": ShapeError, "random Collator": ShapeError, "DataView": ShapeError,
          "ListView": ShapeError, "restrict": ShapeError}  # fmt: skip
WRONG_TYPE = (ArgumentError, OutOfRange, ShapeError)


@pytest.mark.parametrize("number", range(-COUNT, COUNT))
@pytest.mark.parametrize("kind", [int, np.int8, np.int64, np.uint64, np.array])
def test_an_index(number, kind):
    if number < 0 and kind is np.uint64:
        return
    for caller, get in ONE.items():
        assert get(kind(number)) == X[number, 0], caller


@pytest.mark.parametrize("number", [COUNT, -COUNT - 1, 2**63, -(2**63), 2**64 - 1, 10**30])
def test_an_index_out_of_range(number):
    for caller, get in ONE.items():
        words = rf"index {number} is out of range: there are 6 \w.*; give -6 to 5$"
        with pytest.raises(ERRORS.get(caller, OutOfRange), match=words):
            get(number)


@pytest.mark.parametrize("index", [0.0, True, np.True_, "1", None, 1j, np.float32(1)])
def test_an_index_that_is_not_an_int(index):
    for caller, get in ONE.items():
        if "Dataset" not in caller:  # which has more kinds of keys
            with pytest.raises(WRONG_TYPE, match="is not a whole number"):
                get(index)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [0, -1, 5, -6, 2, 2],
        range(4, -1, -2),
        [np.int64(1), np.uint8(2)],
        *(np.array([5, 1, 1], dtype) for dtype in ("i1", "u1", ">i4", "i8", "u8")),
        np.array([5, 9, -1, 9])[::2],
        np.array([], int),
    ],
    ids=repr,
)
def test_indices(rows):
    given = np.array(rows, copy=True)
    for caller, get in MANY.items():
        assert [*get(rows)] == [X[n, 0] for n in rows], caller
    assert np.array_equal(rows, given)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 6], "index 6 at position 1"),
        ([-7], "index -7 at position 0"),
        ([2**63], "index 9223372036854775808 at position 0"),
        (np.array([0, 2**64 - 1], "u8"), "index 18446744073709551615 at position 1"),
        (np.array([-(2**63)]), "index -9223372036854775808 at position 0"),
        (np.array([100, 99], "i1"), "index 100 at position 0"),
    ],
)
def test_indices_out_of_range(rows, words):
    for caller, get in MANY.items():
        message = f"{words} is out of range: there are 6 \\w+; give -6 to 5$"
        with pytest.raises(ERRORS.get(caller, OutOfRange), match=message):
            get(rows)


def test_a_tuple_of_indices():
    for caller, get in MANY.items():
        if "Dataset" not in caller:  # whose key has an index for each axis
            assert [*get((3, -3))] == [X[3, 0]] * 2, caller


def test_indices_of_nothing():
    for get in (lambda i: DataView("bf", X[:0]).index([i]), lambda i: Dataset(X[:0])[i]):
        with pytest.raises((ShapeError, OutOfRange), match=r"out of range: there are no \w+$"):
            get(0)


@pytest.mark.parametrize(
    "rows",
    [[0.0], np.zeros(1), ["1"], "all", [None], {1, 2}, [[0], [1, 2]], [1, True], [10**30],
     [0, np.True_], np.array([1.5]), np.ma.zeros(2, int), np.array(["a"])],
    ids=repr,
)  # fmt: skip
def test_indices_that_are_not_ints(rows):
    for caller, get in MANY.items():
        if "Dataset" not in caller:
            with pytest.raises(ArgumentError, match=r"give one list or array of whole numbers"):
                get(rows)
        elif not isinstance(rows, np.ma.MaskedArray):  # whose mask Datasets ignore
            with pytest.raises(OutOfRange):
                get(rows)


@pytest.mark.parametrize("rows", [[[0, 1]], 3, np.zeros((2, 2), int), np.int64(1)], ids=repr)
def test_indices_of_other_ranks(rows):
    for caller, get in MANY.items():
        if "Dataset" not in caller:
            with pytest.raises(ArgumentError, match=r"give one list or array of whole numbers"):
                get(rows)


def test_masks():
    mask = np.arange(COUNT) % 2 == 1
    for caller, get in MANY.items():
        if "Dataset" in caller:
            assert [*get(mask)] == [*X[mask, 0]]
            assert [*get(mask.tolist())] == [*X[mask, 0]]
            continue
        for rows in (mask, mask.tolist()):
            with pytest.raises(ArgumentError, match=r"of a mask: numpy.flatnonzero"):
                get(rows)


SLICES = {
    "DataView": lambda a, b: DataView("bf", X).sub(a, b).input[:, 0],
    "ListView": lambda a, b: ListView([DataView("bf", X)]).sub(a, b).input[0][:, 0],
    "Dataset": lambda a, b: Dataset(X)[a:b]()[:, 0],
    "Dataset of rows": lambda a, b: [row()[0] for row in Dataset(ROWS)[a:b]],
    "Index": lambda a, b: [record.array[0] for record in INDEX[a:b]],
}
ENDS = [None, 0, 2, 6, 9, -1, -9, np.int8(3), np.uint64(2), 10**30]


@pytest.mark.parametrize("caller", SLICES)
def test_slices(caller):
    for start in ENDS:
        for stop in ENDS:
            assert [*SLICES[caller](start, stop)] == [*X[start:stop, 0]]


@pytest.mark.parametrize("bound", [1.0, "1", True, np.True_, [1], X])
@pytest.mark.parametrize("caller", SLICES)
def test_slices_that_are_refused(caller, bound):
    for name, bounds in (("start", (bound, 3)), ("stop", (0, bound))):
        with pytest.raises(
            (ArgumentError, OutOfRange), match=f"(?s){name} is .*; give an int or None"
        ):
            SLICES[caller](*bounds)


def test_steps_that_are_refused():
    for step in (0, 0.5, "1", False):
        for sequence in (INDEX, Dataset(X), Dataset(ROWS)):
            with pytest.raises(OutOfRange, match=r"step is .*; give an int or None"):
                sequence[::step]
