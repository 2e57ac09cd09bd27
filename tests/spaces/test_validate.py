"""`validate`: valid batches, and errors with the place, axis, expected, found and the fix."""

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

from layoutkit import (
    CompositeSpace,
    Conv2DSpace,
    DtypeError,
    IndexSequenceSpace,
    IndexSpace,
    LayoutkitError,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
)
from tests.helpers.spaces_of import random_batch

IMAGES = Conv2DSpace((5, 6), 3, "bchw")
DEEP = CompositeSpace(
    (VectorSpace(3), CompositeSpace((NullSpace(), IMAGES, CompositeSpace((IndexSpace(4, 2),)))))
)


def check_error(space, batch, error):
    """Return the error message of validate; format_as and batch_size must raise the same one."""
    with pytest.raises(error) as found:
        space.validate(batch)
    for ask in (
        lambda: space.format_as(batch, space),
        lambda: space.undo_format_as(batch, space),
        lambda: space.batch_size(batch),
    ):
        with pytest.raises(error) as again:
            ask()
        assert str(again.value) == str(found.value)
    return str(found.value)


# ---- valid batches -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 4])
def test_right_batches(n):
    for space in (VectorSpace(3), VectorSpace(3, sparse=True), IMAGES, IndexSpace(4, 2), DEEP):
        batch = space.get_origin_batch(n)
        assert space.validate(batch) is None
        assert space.batch_size(batch) == n


def test_batch_sizes_leave_out_what_has_none():
    time = VectorSequenceSpace(2)
    assert NullSpace().batch_size(None) == 0
    assert CompositeSpace(()).batch_size(()) == 0
    assert CompositeSpace((NullSpace(),)).batch_size((None,)) == 0
    for steps in (0, 1, 7):
        assert time.batch_size(np.zeros((steps, 2))) == 1
        assert CompositeSpace((NullSpace(), time)).batch_size((None, np.zeros((steps, 2)))) == 1
        both = CompositeSpace((time, VectorSpace(3), time))
        batch = (np.zeros((steps, 2)), np.zeros((5, 3)), np.zeros((2, 2)))
        assert both.batch_size(batch) == 5


def test_the_batch_axis_is_where_the_space_says():
    assert Conv2DSpace((5, 6), 3, "chwb").batch_size(np.zeros((3, 5, 6, 9))) == 9
    assert Conv2DSpace((5, 6), 3, "hbwc").batch_size(np.zeros((5, 9, 6, 3))) == 9


def test_any_sparse_format_is_a_sparse_batch():
    space = VectorSpace(3, sparse=True)
    for form in ("csr", "csc", "coo", "lil", "dok"):
        for make, shape in ((scipy.sparse.random, (4, 3)), (scipy.sparse.random_array, ((4, 3),))):
            batch = make(*shape, density=0.5, format=form, dtype="float32")
            assert space.batch_size(batch) == 4


def test_odd_arrays_are_batches():
    big = np.zeros((4, 6), ">f4")[::-1, ::2]
    big.flags.writeable = False
    for batch in (big, np.zeros((4, 3)).view(np.recarray)):
        assert VectorSpace(3).validate(batch) is None
        assert VectorSpace(3).batch_size(batch) == 4


def test_validate_changes_nothing():
    images = random_batch(IMAGES, 4)
    before = images.tobytes()
    DEEP.validate(deep(images=images))
    assert images.tobytes() == before


# ---- shapes ------------------------------------------------------------------------------


def test_a_wrong_width_is_said_with_both_sizes():
    found = check_error(VectorSpace(10), np.zeros((4, 3072)), ShapeError)
    assert "accepts (batch, dim=10)" in found
    assert "has shape (4, 3072)" in found
    assert "axis 1 (dim) is 3072, not 10" in found


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [((9, 4, 5, 6), ["axis 1 (channels) is 4, not 3"]),
     ((9, 3, 4, 6), ["axis 2 (rows) is 4, not 5"]),
     ((9, 3, 5, 7), ["axis 3 (columns) is 7, not 6"]),
     ((9, 1, 1, 1), ["channels) is 1, not 3", "rows) is 1, not 5", "columns) is 1, not 6"]),
     ((9, 3, 5), ["rank is 3, not 4"]), ((), ["rank is 0, not 4"]), ((9, 91), ["rank is 2"])],
)  # fmt: skip
def test_axes_of_images_are_named(shape, wrong):
    found = check_error(IMAGES, np.zeros(shape), ShapeError)
    assert "(batch, channels=3, rows=5, columns=6)" in found
    assert f"has shape {shape}" in found
    for part in wrong:
        assert part in found


def test_the_fix_is_said_where_it_can_be_guessed():
    assert "reshape(-1, 1)" in check_error(VectorSpace(1), np.zeros(5), ShapeError)
    assert "reshape(-1, 1)" in check_error(IndexSpace(3, 1), np.zeros(5, int), ShapeError)
    assert "reshape(1, -1)" in check_error(VectorSpace(5), np.zeros(5), ShapeError)
    assert "Conv2DSpace" in check_error(VectorSpace(90), np.zeros((2, 5, 6, 3)), ShapeError)
    assert "VectorSpace(90)" in check_error(IMAGES, np.zeros((2, 90)), ShapeError)
    assert "axes=('b', 0, 1, 'c')" in check_error(IMAGES, np.zeros((9, 5, 6, 3)), ShapeError)
    assert "axes=('c', 0, 1, 'b')" in check_error(IMAGES, np.zeros((3, 5, 6, 9)), ShapeError)


@pytest.mark.parametrize("shape", [(5,), (), (5, 4), (5, 3, 1)])
def test_other_matrices(shape):
    for space in (VectorSpace(3), VectorSequenceSpace(3)):
        check_error(space, np.zeros(shape), ShapeError)
    for space in (IndexSpace(9, 3), IndexSequenceSpace(9, 3)):
        check_error(space, np.zeros(shape, int), ShapeError)
    assert "time" in check_error(VectorSequenceSpace(3), np.zeros((5, 4)), ShapeError)


def test_a_sparse_width():
    found = check_error(VectorSpace(3, sparse=True), scipy.sparse.csr_matrix((5, 4)), ShapeError)
    assert "axis 1 (dim) is 4, not 3" in found


# ---- kinds of batches --------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 5, 2.5, "x", [[1.0, 2, 3]], (np.zeros((2, 3)),), {}, int])
def test_what_is_no_array(batch):
    for space in (VectorSpace(3), IMAGES, IndexSpace(3, 3), VectorSequenceSpace(3)):
        check_error(space, batch, SpaceError)
    check_error(VectorSpace(3, sparse=True), batch, SpaceError)


def test_what_to_do_with_it():
    assert "numpy.asarray" in check_error(VectorSpace(3), [[1, 2, 3]], SpaceError)
    assert "CompositeSpace" in check_error(VectorSpace(3), (np.zeros((1, 3)),), SpaceError)
    masked = np.ma.masked_array(np.zeros((1, 3)))
    assert "filled" in check_error(VectorSpace(3), masked, SpaceError)


def test_dense_and_sparse_are_kept_apart():
    dense, matrix = np.zeros((4, 3), "f4"), scipy.sparse.csr_matrix((4, 3), dtype="f4")
    assert "is dense" in check_error(VectorSpace(3), matrix, SpaceError)
    assert "csr_matrix(batch)" in check_error(VectorSpace(3, sparse=True), dense, SpaceError)
    assert "is dense" in check_error(IndexSpace(3, 3), matrix, SpaceError)


@pytest.mark.parametrize("batch", [0, (), np.zeros((2, 3)), "", False])
def test_null_takes_none_only(batch):
    check_error(NullSpace(), batch, SpaceError)


# ---- dtypes ------------------------------------------------------------------------------

NAMES = ["bool", "uint8", "int8", "int64", "float16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("held", NAMES)
@pytest.mark.parametrize("given", NAMES)
def test_the_dtype_rule_is_numpys_same_kind(given, held):
    space, batch = VectorSpace(3, dtype=held), np.zeros((2, 3), given)
    if np.can_cast(given, held, "same_kind"):
        assert space.validate(batch) is None
        assert space.format_as(batch[:0], space).dtype == held  # without a kernel
    else:
        found = check_error(space, batch, DtypeError)
        assert given in found
        assert held in found


def test_the_rule_knows_bfloat16():
    narrow = np.zeros((2, 3), ml_dtypes.bfloat16)
    VectorSpace(3).validate(narrow)
    VectorSpace(3, dtype="bfloat16").validate(np.zeros((2, 3)))
    check_error(VectorSpace(3, dtype="int32"), narrow, DtypeError)


@pytest.mark.parametrize("dtype", [*NAMES, "datetime64[s]", "i4,f4"])
def test_a_space_without_a_dtype_takes_any(dtype):
    batch = np.zeros((2, 3), dtype)
    assert VectorSpace(3, dtype=None).format_as(batch, VectorSpace(3, dtype=None)) is batch


def test_what_cannot_be_moved_is_refused():
    batch = np.zeros((2, 3), object)
    for space in (VectorSpace(3), VectorSpace(3, dtype=None), VectorSequenceSpace(3)):
        check_error(space, batch, DtypeError)


@pytest.mark.parametrize("dtype", ["U3", "S1", "V4"])
def test_text_is_of_a_space_without_a_dtype(dtype):
    batch = np.zeros((2, 3), dtype)
    for space in (VectorSpace(3), VectorSequenceSpace(3)):
        check_error(space, batch, DtypeError)
    VectorSpace(3, dtype=None).validate(batch)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
def test_labels_that_are_no_integers(dtype):
    batch = np.zeros((2, 3), np.dtype(dtype) if dtype != "bfloat16" else ml_dtypes.bfloat16)
    for held in ("int64", None):
        for make in (IndexSpace, IndexSequenceSpace):
            assert "int" in check_error(make(5, 3, held), batch, DtypeError)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint64", ">i2", "int64"])
def test_labels_of_all_integer_dtypes(dtype):
    for space in (IndexSpace(2, 3), IndexSpace(2, 3, None)):
        assert space.validate(np.ones((2, 3), dtype)) is None
        assert space.batch_size(np.ones((2, 3), dtype)) == 2
        with pytest.raises(ShapeError, match="accepts labels 0 to 0"):
            IndexSpace(1, 3, space.dtype).validate(np.ones((2, 3), dtype))


# ---- labels ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [4, 100, -1, -(2**40)])
def test_the_first_label_that_is_none_is_named_with_its_place(bad):
    batch = np.array([[0, 1], [3, 2], [1, bad], [bad, 7]])
    for space in (IndexSpace(4, 2), IndexSequenceSpace(4, 2), IndexSpace(4, 2, None)):
        found = check_error(space, batch, ShapeError)
        assert "labels 0 to 3" in found
        assert f"has {bad} at [2, 1]" in found


def test_labels_at_the_limits():
    IndexSpace(4, 2).validate(np.array([[0, 3]]))
    IndexSpace(4, 2).validate(np.zeros((0, 2), int))
    IndexSpace(256, 1).validate(np.array([[255]], "uint8"))
    check_error(IndexSpace(255, 1), np.array([[255]], "uint8"), ShapeError)
    check_error(IndexSpace(1, 1), np.array([[True]]), ShapeError)
    check_error(IndexSpace(4, 1), np.array([[2**64 - 1]], "uint64"), ShapeError)


def test_the_place_of_a_label_in_a_sequence_is_a_time():
    found = check_error(IndexSequenceSpace(4, 1), np.array([[0], [9]]), ShapeError)
    assert "time 1" in found


# ---- composites --------------------------------------------------------------------------


def deep(vectors=None, images=None, labels=None, null=None):
    """Return a batch of DEEP with some components replaced."""
    right = DEEP.get_origin_batch(4)
    return (
        right[0] if vectors is None else vectors,
        (null, right[1][1] if images is None else images, ((right[1][2][0] if labels is None
         else labels),)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "error", "start"),
    [(deep(vectors=np.zeros((4, 5))), ShapeError, "component [0]: VectorSpace"),
     (deep(images=np.zeros((4, 3, 5, 7))), ShapeError, "component [1][1]: Conv2DSpace"),
     (deep(images=None, labels=np.zeros((4, 2))), DtypeError, "component [1][2][0]: IndexSpace"),
     (deep(labels=np.full((4, 2), 9)), ShapeError, "component [1][2][0]: IndexSpace"),
     (deep(null=0), SpaceError, "component [1][0]: NullSpace"),
     (deep(images=[1]), SpaceError, "component [1][1]: Conv2DSpace"),
     ((deep()[0], deep()[1][:2]), ShapeError, "component [1]: a composite of 3"),
     ((deep()[0], list(deep()[1])), SpaceError, "component [1]: a composite of 3"),
     ((deep()[0],), ShapeError, "a composite of 2"), (list(deep()), SpaceError, "a composite of 2"),
     (deep()[0], SpaceError, "a composite of 2"), (None, SpaceError, "a composite of 2")],
)  # fmt: skip
def test_the_path_of_what_is_wrong(batch, error, start):
    assert check_error(DEEP, batch, error).startswith(start)


def test_batch_sizes_that_differ():
    found = check_error(DEEP, deep(labels=np.zeros((3, 2), int)), ShapeError)
    assert "[0] has 4 samples" in found
    assert "[1][2][0] has 3" in found
    images = Conv2DSpace((2, 3), 4, "chwb")
    pair = CompositeSpace((images, VectorSpace(3)))
    found = check_error(pair, (np.zeros((4, 2, 3, 7)), np.zeros((4, 3))), ShapeError)
    assert "[0] has 7 samples" in found


def test_errors_are_python_errors_too():
    for space, batch, builtin in (
        (VectorSpace(3), np.zeros((4, 4)), ValueError),
        (VectorSpace(3, dtype="int8"), np.zeros((4, 3)), TypeError),
        (VectorSpace(3), None, TypeError),
    ):
        with pytest.raises(builtin) as found:
            space.validate(batch)
        assert isinstance(found.value, LayoutkitError)
        assert found.value.__cause__ is None
