"""Numbers from data that become addresses: nothing is read or written outside of an array."""

import numpy as np
import pytest
import scipy.sparse

from layoutkit import (
    ClassView,
    CompositeSpace,
    DataView,
    IndexSequenceSpace,
    IndexSpace,
    LayoutkitError,
    ShapeError,
    VectorSpace,
    collate,
)
from layoutkit.backends.indexing import take

SPACE = VectorSpace(4, sparse=True)
DENSE = np.array([[1, 0, 2, 0], [0, 0, 0, 3], [4, 5, 0, 0]], np.float32)
FORMATS = ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"]
# Indices just outside, where a write would hit other data, and far outside of mapped memory.
OUTSIDE = [-1, 4, 1 << 30, -(1 << 31), (1 << 31) - 1]


def matrix(kind):
    return scipy.sparse.csr_matrix(DENSE).asformat(kind)


def check_errors(batch):
    """Check that every method that accepts a batch raises for this one."""
    pair = CompositeSpace((VectorSpace(1), SPACE)), (np.zeros((3, 1), np.float32), batch)
    for run in (
        lambda: SPACE.validate(batch),
        lambda: SPACE.format_as(batch, VectorSpace(4)),
        lambda: SPACE.format_as(batch, SPACE.with_dtype("float64")),
        lambda: VectorSpace(4).undo_format_as(batch, SPACE),
        lambda: SPACE.view(batch),
        lambda: pair[0].format_as(pair[1], VectorSpace(5)),
    ):
        with pytest.raises(ShapeError, match="is invalid"):
            run()


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_right_stays_right(kind):
    np.testing.assert_array_equal(SPACE.format_as(matrix(kind), VectorSpace(4)), DENSE)
    SPACE.validate(scipy.sparse.random(0, 4, format="csr", dtype="f4").asformat(kind))


def test_blocks_that_are_not_square():
    batch = scipy.sparse.bsr_matrix(DENSE, blocksize=(3, 2))
    np.testing.assert_array_equal(SPACE.format_as(batch, VectorSpace(4)), DENSE)
    batch.indices[-1] = 2
    check_errors(batch)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_indices_outside(kind, outside):
    batch = matrix(kind)
    batch.indices[-1] = outside
    check_errors(batch)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_indptr_outside(kind, place, outside):
    batch = matrix(kind)
    batch.indptr[place] = outside + 4 if outside == 4 else outside
    check_errors(batch)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_arrays_that_do_not_belong_together(kind):
    for change in (
        lambda x: setattr(x, "indptr", x.indptr[:-1]),
        lambda x: setattr(x, "indices", x.indices[:1]),
        lambda x: setattr(x, "data", x.data[:1]),
        lambda x: setattr(x, "indices", x.indices.astype("f4")),
        lambda x: setattr(x, "indptr", x.indptr.astype(object)),
    ):
        batch = matrix(kind)
        change(batch)
        check_errors(batch)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("axis", ["row", "col"])
def test_coordinates_outside(axis, outside):
    batch = matrix("coo")
    getattr(batch, axis)[1] = outside
    check_errors(batch)
    short = matrix("coo")
    short.data = short.data[:-1]
    check_errors(short)


def test_lists_keys_and_diagonals():
    batch = matrix("lil")
    batch.rows[1] = [1 << 30]
    check_errors(batch)
    batch = matrix("lil")
    batch.data[0] = [1.0] * 50
    check_errors(batch)
    for key in ((0, 4), (3, 0), (0, -1), (-1, 0)):
        batch = matrix("dok")
        assert batch.shape == (3, 4)
        batch._dict[key] = np.float32(1)
        check_errors(batch)
    batch = matrix("dia")
    batch.offsets[0] = -(1 << 31)
    check_errors(batch)
    batch = matrix("dia")
    batch.offsets = batch.offsets[:-1]
    check_errors(batch)
    batch = matrix("dia")
    batch.offsets = batch.offsets + 0.5
    check_errors(batch)


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u8"])
@pytest.mark.parametrize("outside", [-1, 4, 127, 1 << 30, -(1 << 63), (1 << 64) - 1])
def test_labels_indices_and_windows(dtype, outside):
    info = np.iinfo(dtype)
    if not info.min <= outside <= info.max:
        pytest.skip("no number of this dtype")
    labels = np.array([[0], [outside]], dtype)
    for space in (IndexSpace(4, 1, None), IndexSequenceSpace(4, 1, None)):
        for target in (VectorSpace(4), VectorSpace(4, sparse=True)):
            with pytest.raises(LayoutkitError):
                space.format_as(labels, target)
    view = ClassView("bt", labels, 4)
    for make in (view.one_hot, view.many_hot):
        with pytest.raises(LayoutkitError):
            make()
    if outside != -1:  # -1 is the last sample, as in Python's lists
        with pytest.raises(ShapeError, match="out of range"):
            DataView("bf", np.zeros((4, 2))).index(labels[:, 0])
    with pytest.raises(LayoutkitError):
        collate([DENSE.repeat(2, axis=0)[:5]], "hw->bhw", h=2, offset={"h": labels[1]})


def test_rows_are_taken_from_inside_whatever_is_asked():
    """Callers check positions, but even unchecked positions stay inside of the array."""
    found = take(DENSE, 0, np.array([1 << 40, -(1 << 40)]))
    np.testing.assert_array_equal(found, DENSE[[2, 0]])
