"""Spaces and Views: `space.view(batch)`, and results and gradients by space."""

import pickle

import numpy as np
import pytest
import scipy.sparse

from layoutkit import (
    BackwardError,
    CompositeSpace,
    Conv2DSpace,
    DataSpecsMapping,
    DtypeError,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
)
from layoutkit.spaces.views import base_as_batch, in_base_layout, space_of, view_for_layout
from layoutkit.views import ClassView, DataView, ImageView, ListView, SequenceView
from tests.helpers.spaces_of import AXES, assert_batches_equal, random_batch

VECTORS, N = VectorSpace(24), NullSpace()
LABELS = np.array([[0, 2], [3, 3], [1, 0]])


# ---- the view of a batch -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "kind", "layout"),
    [(VECTORS, DataView, "bf")]
    + [(Conv2DSpace((2, 3), 4, axes), ImageView, None) for axes in AXES],
)  # fmt: skip
def test_the_view_holds_the_batch_itself(space, kind, layout):
    batch = random_batch(space, 5)
    view = space.view(batch)
    assert type(view) is kind
    assert view.input is batch
    assert view.layout == (layout or space.layout)
    assert len(view) == 5


def test_labels_are_classes():
    view = IndexSpace(4, 2).view(LABELS)
    assert type(view) is ClassView
    assert view.input is LABELS
    np.testing.assert_array_equal(
        view.many_hot(), IndexSpace(4, 2).format_as(LABELS, VectorSpace(4))
    )


def test_sequences_are_a_batch_of_one():
    for space in (VectorSequenceSpace(3), IndexSequenceSpace(4, 3)):
        batch = np.zeros((7, 3), space.dtype)
        view = space.view(batch)
        assert type(view) is SequenceView
        assert len(view) == 1
        assert np.shares_memory(view.input, batch)
        assert view.input.shape == (1, 7, 3)


def test_sparse_vectors_are_written_out():
    matrix = scipy.sparse.random(5, 24, 0.3, format="csr", dtype="f4", rng=0)
    view = VectorSpace(24, sparse=True).view(matrix)
    assert type(view) is DataView
    np.testing.assert_array_equal(view.input, matrix.toarray())


def test_composites_are_lists_of_views():
    space = CompositeSpace((VECTORS, CompositeSpace((IndexSpace(4, 2), Conv2DSpace((2, 3), 1)))))
    batch = (random_batch(VECTORS, 3), (LABELS, np.zeros((3, 2, 3, 1), "f4")))
    view = space.view(batch)
    assert type(view) is ListView
    assert len(view) == 3
    assert view.input[0] is batch[0]
    assert view.input[1][0] is LABELS


def test_null_has_no_view():
    assert N.view(None) is None
    assert CompositeSpace((N, CompositeSpace((N,)))).view((None, (None,))) is None
    view = CompositeSpace((N, VECTORS)).view((None, random_batch(VECTORS, 3)))
    assert type(view) is ListView
    assert len(view) == 3


def test_a_wrong_batch_gets_no_view():
    with pytest.raises(ShapeError, match="is 25, not 24"):
        VECTORS.view(np.zeros((5, 25)))
    with pytest.raises(ShapeError, match="labels 0 to 3"):
        IndexSpace(4, 2).view(LABELS + 1)


# ---- results by space --------------------------------------------------------------------


@pytest.mark.budget(1)
@pytest.mark.parametrize("axes", AXES)
def test_a_result_by_space_equals_format_as(axes):
    space = Conv2DSpace((2, 3), 4, axes)
    batch = random_batch(space, 5)
    view = space.view(batch)
    for other in (VECTORS, Conv2DSpace((2, 3), 4, "chwb"), VectorSpace(24, dtype="float16")):
        assert_batches_equal(view.forward_get(other), space.format_as(batch, other))
        assert view.forward_get(other) is view.forward_get(other)


def test_a_vector_is_by_rows_columns_channels_unlike_bf():
    space = Conv2DSpace((2, 3), 4, "bchw")
    batch = random_batch(space, 5)
    view = space.view(batch)
    by_space, by_layout = view.forward_get(VECTORS), view.forward_get("bf")
    assert by_layout.tolist() == batch.reshape(5, -1).tolist()
    assert by_space.tolist() == batch.transpose(0, 2, 3, 1).reshape(5, -1).tolist()


def test_labels_are_got_one_hot():
    view = IndexSpace(4, 2).view(LABELS)
    for dim in (4, 8):
        wanted = IndexSpace(4, 2).format_as(LABELS, VectorSpace(dim))
        assert_batches_equal(view.forward_get(VectorSpace(dim)), wanted)


def test_a_composite_is_got_by_a_composite():
    space = CompositeSpace((Conv2DSpace((2, 3), 4), CompositeSpace((IndexSpace(4, 2),))))
    other = CompositeSpace((VECTORS, CompositeSpace((VectorSpace(8),))))
    batch = (random_batch(space.components[0], 3), (LABELS,))
    assert_batches_equal(space.view(batch).forward_get(other), space.format_as(batch, other))


def test_what_never_converts_is_not_got():
    with pytest.raises(SpaceError):
        VECTORS.view(random_batch(VECTORS, 3)).forward_get(IndexSpace(24, 1))
    with pytest.raises(SpaceError):
        VECTORS.view(random_batch(VECTORS, 3)).forward_get(VectorSpace(23))


# ---- gradients by space ------------------------------------------------------------------


def test_gradients_of_spaces_and_layouts_are_summed():
    space = Conv2DSpace((2, 3), 4, "bchw")
    view = space.view(random_batch(space, 5))
    other = Conv2DSpace((2, 3), 4, "chwb")
    flat, images = random_batch(VECTORS, 5, seed=1), random_batch(other, 5, seed=2)
    view.forward_get(VECTORS), view.forward_get("chwb")
    view.backward_put(VECTORS, flat)
    view.backward_put("chwb", images)
    wanted = space.undo_format_as(flat, VECTORS) + space.undo_format_as(images, other)
    assert_batches_equal(view.backward_get(), wanted)


def test_a_gradient_of_a_space_that_was_not_got():
    view = VECTORS.view(random_batch(VECTORS, 5))
    with pytest.raises(BackwardError):
        view.backward_put(Conv2DSpace((2, 3), 4), np.zeros((5, 2, 3, 4), "f4"))


# ---- data specs --------------------------------------------------------------------------


def test_views_are_flattened_and_nested_as_they_are():
    space = CompositeSpace((VECTORS, CompositeSpace((N, VECTORS, IndexSpace(4, 2)))))
    mapping = DataSpecsMapping((space, ("x", ("", "x", "y"))))
    vectors = VECTORS.view(random_batch(VECTORS, 3))
    labels = IndexSpace(4, 2).view(LABELS)
    flat = mapping.flatten((vectors, (None, vectors, labels)))
    assert flat[0] is vectors
    assert flat[1] is labels
    nested = mapping.nest(flat)
    assert nested[1][1] is vectors
    assert nested[1][2] is labels


# ---- conversions that are more than a layout ---------------------------------------------


def test_vectors_are_got_as_images_and_their_gradients_come_back():
    images = Conv2DSpace((2, 3), 4, "bchw")
    batch, grad = random_batch(VECTORS, 5), random_batch(images, 5, seed=1)
    view = VECTORS.view(batch)
    assert_batches_equal(view.forward_get(images), VECTORS.format_as(batch, images))
    assert view.forward_get(images) is view.forward_get(images)
    view.backward_put(images, grad)
    view.backward_put("bf", batch)
    assert_batches_equal(view.backward_get(), VECTORS.undo_format_as(grad, images) + batch)
    view.forward_put("bf", batch.copy())
    with pytest.raises(BackwardError, match="no result of this batch matches it"):
        view.backward_put(images, grad)


def test_integer_vectors_take_floating_gradients():
    images = Conv2DSpace((2, 3), 4, "bchw", dtype=None)
    view = VectorSpace(24, dtype="uint8").view(np.arange(120, dtype="u1").reshape(5, 24))
    assert view.forward_get(images).dtype == np.uint8
    grad = np.linspace(0, 1, 120, dtype="f4").reshape(5, 4, 2, 3)
    view.backward_put(images, grad)
    assert_batches_equal(view.backward_get(), grad.transpose(0, 2, 3, 1).reshape(5, 24).copy())


def test_labels_take_no_gradient():
    view = IndexSpace(4, 2).view(LABELS)
    hot = view.forward_get(VectorSpace(4))
    with pytest.raises(BackwardError, match="does not convert"):
        view.backward_put(VectorSpace(4), hot)
    with pytest.raises(BackwardError, match="no gradient was put"):
        view.backward_get()


def test_labels_of_one_column_and_of_columns_first():
    wanted = IndexSpace(4, 2).format_as(LABELS, VectorSpace(8))
    assert_batches_equal(ClassView("tb", LABELS.T, 4).forward_get(VectorSpace(8)), wanted)
    first = ClassView("b", LABELS[:, 0], 4).forward_get(VectorSpace(4))
    assert_batches_equal(first, IndexSpace(4, 1).format_as(LABELS[:, :1], VectorSpace(4)))


def test_sequences_are_got_and_take_gradients():
    space, batch = VectorSequenceSpace(3), np.arange(21, dtype="f4").reshape(7, 3)
    view, half = space.view(batch), VectorSequenceSpace(3, "float16")
    got = view.forward_get(half)
    assert_batches_equal(got, space.format_as(batch, half))
    view.backward_put(half, got)
    assert_batches_equal(view.backward_get(), batch[None])
    labels = IndexSequenceSpace(5, 2)
    words = np.array([[0, 4], [3, 3]])
    wanted = labels.format_as(words, VectorSequenceSpace(10))
    assert_batches_equal(labels.view(words).forward_get(VectorSequenceSpace(10)), wanted)


def both(seed=0):
    space = CompositeSpace((Conv2DSpace((2, 3), 4, "bchw"), CompositeSpace((VECTORS, N))))
    return space, random_batch(space, 3, seed=seed)


def test_a_list_is_got_joined_and_its_gradient_taken_apart():
    space, batch = both()
    joined = VectorSpace(48)
    view = space.view(batch)
    got = view.forward_get(joined)
    assert_batches_equal(got, space.format_as(batch, joined))
    assert view.forward_get(joined) is got
    grad = random_batch(joined, 3, seed=2)
    view.backward_put(joined, grad)
    images, (vectors, _) = space.undo_format_as(grad, joined)
    assert_batches_equal(view.backward_get(), (images, (vectors,)))
    view.components[0].forward_put("bchw", batch[0].copy())
    assert view.forward_get(joined) is not got


def test_null_components_are_none_in_what_is_got():
    space, batch = both()
    other = CompositeSpace((VECTORS, CompositeSpace((VECTORS, N))))
    view = space.view(batch)
    got = view.forward_get(other)
    assert got[1][1] is None
    assert_batches_equal(got, space.format_as(batch, other))
    view.backward_put(other, got)
    wanted = space.undo_format_as(got, other)
    assert_batches_equal(view.backward_get(), (wanted[0], (wanted[1][0],)))


@pytest.mark.parametrize(
    "other",
    [CompositeSpace((VECTORS,)), CompositeSpace((VECTORS, VECTORS)), VectorSpace(47)],
)
def test_a_space_that_nests_otherwise_is_refused(other):
    space, batch = both()
    with pytest.raises(SpaceError):
        space.view(batch).forward_get(other)


def test_another_dtype_than_the_spaces():
    view = VECTORS.view(random_batch(VECTORS, 5))
    assert view.forward_get(VECTORS, "float64").dtype == np.float64
    assert view.forward_get(Conv2DSpace((2, 3), 4), "float64").dtype == np.float64


def test_a_base_that_is_a_batch_of_no_space():
    with pytest.raises(SpaceError, match="is a batch of no space"):
        DataView("bx", np.zeros((2, 3))).forward_get(VectorSpace(3))
    with pytest.raises(SpaceError, match="is a batch of no space"):
        ClassView("bt", LABELS).forward_get(VectorSpace(4))


# ---- the one table of layouts, Views and spaces ------------------------------------------

ROUND = [
    *[Conv2DSpace((2, 3), 4, axes, None) for axes in AXES],
    VectorSpace(24, dtype=None),
    IndexSpace(4, 2, None),
    VectorSequenceSpace(3, None),
    IndexSequenceSpace(4, 2, None),
]


@pytest.mark.parametrize("space", ROUND, ids=repr)
def test_a_view_is_a_batch_of_the_space_that_it_was_made_of(space):
    if space.family == "index":
        batch = LABELS
    elif space.family.endswith("sequence"):
        batch = np.array([[0, 2, 1], [3, 3, 1]])[:, : space.dim]
    else:
        batch = random_batch(space.with_dtype("float32"), 5).astype("f8")
    view = space.view(batch)
    assert space_of(view) == space
    np.testing.assert_array_equal(base_as_batch(view), batch)
    np.testing.assert_array_equal(in_base_layout(view, base_as_batch(view)), view.input)
    for part in (view.sub(0, 1), view.index([0]), pickle.loads(pickle.dumps(view))):
        assert space_of(part) == space
    other = CompositeSpace((space, CompositeSpace((space, N))))
    nested = other.view((batch, (batch.copy(), None)))
    assert space_of(nested) == CompositeSpace((space, CompositeSpace((space,))))


@pytest.mark.parametrize(
    ("layout", "dtype", "kind"),
    [
        ("b", "f4", DataView), ("b", "i4", ClassView), ("bt", "u1", ClassView),
        ("bt", "f4", DataView), ("tb", "i8", ClassView), ("bf", "i4", DataView),
        ("bhwc", "u1", ImageView), ("bhw", "f4", ImageView), ("bcdhw", "f4", ImageView),
        ("bwc", "f4", SequenceView), ("bcw", "i4", SequenceView), ("bx", "f4", DataView),
        ("b(hwc)", "f4", DataView), ("b t", "?", DataView),
    ],
)  # fmt: skip
def test_the_view_of_a_layout(layout, dtype, kind):
    shape = [2] * len(layout.replace("(hwc)", "f").replace(" ", ""))
    array = np.zeros(shape, dtype)
    view = view_for_layout(layout, array, ["cat", "dog"])
    assert type(view) is kind
    assert view.input is array
    assert getattr(view, "classes", None) == (["cat", "dog"] if kind is ClassView else None)


def test_numbers_are_vectors_of_one():
    numbers = np.arange(3, dtype="f4")
    view = DataView("b", numbers)
    assert view.forward_get(VectorSpace(1)).tolist() == [[0], [1], [2]]
    view.backward_put(VectorSpace(1), np.ones((3, 1), "f4"))
    assert view.backward_get().tolist() == [1, 1, 1]
    images = view.forward_get(Conv2DSpace((1, 1), 1))
    view.backward_put(Conv2DSpace((1, 1), 1), images)
    assert view.backward_get().tolist() == [1, 2, 3]
    with pytest.raises(SpaceError, match="ClassView in b is a batch of no space"):
        ClassView("b", np.arange(3)).forward_get(VectorSpace(1))


def test_a_dtype_that_no_cast_allows_is_found_before_any_component_is_got():
    space, batch = both()
    view = space.view(batch)
    with pytest.raises(DtypeError, match=r"component \[1\]\[0\]"):
        view.forward_get(CompositeSpace((VECTORS, CompositeSpace((VECTORS.with_dtype("int8"), N)))))
    assert not view.components[0].batch.by_conversion


def test_what_was_got_of_all_components_stays_out_of_pickles():
    space, batch = both()
    view = space.view(batch)
    got = view.forward_get(VectorSpace(48))
    size = len(pickle.dumps(space.view(batch)))
    again = pickle.loads(pickle.dumps(view))
    assert len(pickle.dumps(view)) == size
    assert_batches_equal(again.forward_get(VectorSpace(48)), got)
    with pytest.raises(BackwardError, match="no result of this batch matches it"):
        pickle.loads(pickle.dumps(view)).backward_put(VectorSpace(48), got)


def test_the_line_of_a_view_names_the_space():
    view = VECTORS.view(random_batch(VECTORS, 5))
    view.forward_get(Conv2DSpace((2, 3), 4))
    assert "got Conv2DSpace(shape=(2, 3), num_channels=4" in repr(view)
    assert "<td>format_as</td>" in view._repr_html_()
    view.forward_get(CompositeSpace((VectorSpace(20), VectorSpace(4))))
    assert "CompositeSpace" in view._repr_html_()
