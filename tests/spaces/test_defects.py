"""Regression tests for defects of the library that these spaces come from.

Tests for defects of symbolic batches are in test_tensors.py and test_jax.py.
"""

import numpy as np
import pytest
import scipy.sparse

from layoutkit import (
    CompositeSpace,
    Conv2DSpace,
    DataSpecsMapping,
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
from tests.helpers.spaces_of import assert_batches_equal

NULL = NullSpace()
WITH_NULL = CompositeSpace((NULL, VectorSpace(3), CompositeSpace((NULL,))))


def test_images_of_equal_totals_are_not_mistaken_for_each_other():
    images = Conv2DSpace((2, 3), 4)
    for other in (Conv2DSpace((3, 2), 4), Conv2DSpace((2, 2), 6), Conv2DSpace((4, 3), 2)):
        assert other.get_total_dimension() == images.get_total_dimension()
        with pytest.raises(SpaceError):
            images.format_as(images.get_origin_batch(1), other)
        with pytest.raises(SpaceError):
            images.undo_format_as(other.get_origin_batch(1), other)


def test_axes_are_looked_at_when_the_space_is_made():
    for axes in ("bc01", ("b", "b", 0, 1), ("b", "c", "0", "1"), ("b", 0, 1, 2)):
        with pytest.raises(LayoutkitError):
            Conv2DSpace((2, 3), 4, axes)


def test_null_inside_a_composite_is_no_obstacle():
    batch = (None, np.ones((5, 3), "f4"), (None,))
    assert WITH_NULL.batch_size(batch) == 5
    assert WITH_NULL.get_total_dimension() == 3
    assert WITH_NULL.get_origin_batch(2)[0] is None
    assert WITH_NULL.format_as(batch, WITH_NULL)[1] is batch[1]
    assert WITH_NULL.format_as(batch, VectorSpace(3)).tolist() == batch[1].tolist()
    assert WITH_NULL.undo_format_as(batch[1], VectorSpace(3))[2] == (None,)
    assert NULL.format_as(None, NULL) is None


def test_labels_are_in_range():
    for label in (4, -1):
        for other in (VectorSpace(4), VectorSpace(4, sparse=True)):
            with pytest.raises(ShapeError, match="labels 0 to 3"):
                IndexSpace(4, 1).format_as(np.array([[label]]), other)
        with pytest.raises(ShapeError, match="labels 0 to 3"):
            IndexSpace(4, 1).validate(np.array([[label]]))


def test_a_label_that_is_there_twice_counts_once_sparse_too():
    for sparse in (False, True):
        hot = IndexSpace(4, 2).format_as(np.array([[1, 1]]), VectorSpace(4, sparse))
        assert (hot.toarray() if sparse else hot).tolist() == [[0, 1, 0, 0]]
    assert hot.nnz == 1


def test_one_hot_works_inside_composites():
    space = CompositeSpace((VectorSpace(3), IndexSpace(4, 1)))
    other = CompositeSpace((VectorSpace(3), VectorSpace(4)))
    assert space.get_total_dimension() != other.get_total_dimension()
    result = space.format_as((np.zeros((1, 3)), np.array([[2]])), other)
    assert result[1].tolist() == [[0, 0, 1, 0]]


def test_labels_in_a_composite_are_not_taken_for_numbers():
    space = CompositeSpace((VectorSpace(3), IndexSpace(1, 1)))
    with pytest.raises(SpaceError, match=r"component \[1\]"):
        space.format_as((np.zeros((1, 3)), np.array([[0]])), VectorSpace(4))


def test_equal_sequence_spaces_are_one_spec():
    space = CompositeSpace((VectorSequenceSpace(3), VectorSequenceSpace(3)))
    assert DataSpecsMapping((space, ("x", "x"))).n_unique_specs == 1
    assert hash(IndexSequenceSpace(3, 1)) == hash(IndexSequenceSpace(3, 1))


def test_sequences_raise_what_they_cannot_do():
    for space in (VectorSequenceSpace(3), IndexSequenceSpace(3, 1)):
        with pytest.raises(SpaceError):
            space.get_total_dimension()
        with pytest.raises(ShapeError, match="batch_size=2"):
            space.make_symbolic_batch(2)


def test_sequences_may_be_in_composites_that_convert():
    space = CompositeSpace((VectorSequenceSpace(3), VectorSpace(4)))
    other = CompositeSpace((VectorSequenceSpace(3), Conv2DSpace((2, 2), 1)))
    result = space.format_as((np.zeros((9, 3), "f4"), np.zeros((2, 4), "f4")), other)
    assert [part.shape for part in result] == [(9, 3), (2, 2, 2, 1)]


def test_dense_vectors_are_never_a_matrix_class():
    matrix = scipy.sparse.csr_matrix([[1.0, 0]])
    for dtype in (None, "float64", "float32"):
        result = VectorSpace(2, True, None).format_as(matrix, VectorSpace(2, dtype=dtype))
        assert type(result) is np.ndarray


def test_dtypes_of_composites_are_never_ignored():
    assert WITH_NULL.with_dtype(np.dtype("float64")).dtype == (None, np.float64, (None,))
    assert WITH_NULL.with_dtype(np.float64).dtype == (None, np.float64, (None,))
    for wrong in (5, "no such", ["float64"] * 3):
        with pytest.raises(DtypeError, match=r"component \[1\]"):
            WITH_NULL.with_dtype(wrong)


def test_a_composite_does_not_change_with_what_it_was_made_of():
    parts = [VectorSpace(3), NULL]
    space = CompositeSpace(parts)
    parts.append(NULL)
    assert len(space.components) == 2
    space.with_dtype("float64")
    assert space.components[0].dtype == np.float32


def test_vectors_have_one_order_whoever_made_them():
    """Vectors are (rows, columns, channels); the original's datasets had channels first."""
    counted = np.arange(12, dtype="f4").reshape(1, 12)
    for axes in ("bhwc", "bchw", "chwb"):
        images = VectorSpace(12).format_as(counted, Conv2DSpace((2, 3), 2, axes))
        at = {"b": 0, "h": 1, "w": 2, "c": 1}
        assert images[tuple(at[letter] for letter in axes)] == (1 * 3 + 2) * 2 + 1


def test_a_space_with_null_is_nested():
    mapping = DataSpecsMapping((WITH_NULL, ("", "x", ("",))))
    assert mapping.nest(VectorSpace(3)) == WITH_NULL
    assert mapping.nest(CompositeSpace((VectorSpace(3),))) == WITH_NULL


def test_the_letters_of_a_source_are_no_sources():
    pair = CompositeSpace((VectorSpace(3), VectorSpace(4)))
    mapping = DataSpecsMapping((pair, ("x", "y")))
    with pytest.raises(SpaceError, match="str"):
        mapping.nest("xy")
    with pytest.raises(SpaceError, match="str"):
        mapping.flatten("xy")


def test_nothing_is_lost_in_a_flat_result():
    """`flatten` of two specs returns a tuple; the original returned None for some input."""
    pair = CompositeSpace((VectorSpace(3), VectorSpace(4)))
    assert DataSpecsMapping((pair, ("x", "y"))).flatten(["x", "y"]) == ("x", "y")


def test_arrays_in_merged_places_are_compared_whole():
    pair = CompositeSpace((VectorSpace(2), VectorSpace(2)))
    mapping = DataSpecsMapping((pair, ("x", "x")))
    first = np.array([[1.0, 2.0]])
    assert mapping.flatten((first, first.copy())) is first


def test_components_of_different_batch_sizes_are_no_batch():
    pair = CompositeSpace((VectorSpace(3), VectorSpace(4)))
    with pytest.raises(ShapeError, match="batch sizes differ"):
        pair.validate((np.zeros((4, 3)), np.zeros((5, 4))))


def test_undo_finds_its_way_without_the_original_object():
    """The original walked back a graph, and failed on arrays that `format_as` had not made."""
    images = Conv2DSpace((2, 3), 4, "bchw")
    made_elsewhere = np.arange(48, dtype="f4").reshape(2, 24)
    back = images.undo_format_as(made_elsewhere, VectorSpace(24))
    assert_batches_equal(images.format_as(back, VectorSpace(24)), made_elsewhere)
    for space in (IndexSpace(4, 2), IndexSequenceSpace(4, 2)):
        labels = np.array([[0, 3]])
        assert space.undo_format_as(labels, space).tolist() == [[0, 3]]
    sequence = VectorSequenceSpace(3)
    assert sequence.undo_format_as(np.ones((2, 3)), sequence.with_dtype("f8")).dtype == np.float32
