"""Batches from space to space: the table of conversions, values, dtypes, memory, and back."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse

import layoutkit
from layoutkit import (
    ArgumentError,
    CompositeSpace,
    Conv2DSpace,
    DtypeError,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
    buffers,
    convert,
)
from layoutkit.spaces import base
from layoutkit.spaces import convert as moves
from tests.helpers.arrays_of import BF16, LAYINGS, laid
from tests.helpers.spaces_of import AXES, assert_batches_equal, random_batch, rows

pytestmark = pytest.mark.budget(3)

V, SV, C = VectorSpace(24), VectorSpace(24, sparse=True), Conv2DSpace((2, 3), 4, "bchw")
INDEX, VS, IS, N = (
    IndexSpace(24, 1),
    VectorSequenceSpace(24),
    IndexSequenceSpace(24, 1),
    NullSpace(),
)
CS = CompositeSpace((Conv2DSpace((2, 3), 3, "chwb"), CompositeSpace((N, VectorSpace(6)))))
KINDS = {"V": V, "sparse V": SV, "C": C, "I": INDEX, "VS": VS, "IS": IS, "CS": CS, "N": N}

# Rows: source. Columns: target, in the order of KINDS. All spaces with a size have 24 numbers.
TABLE = {
    "V": "yes yes yes no no no yes no",
    "sparse V": "yes yes no no no no no no",  # CS: its images are dense
    "C": "yes yes yes no no no no no",
    "I": "yes yes no yes no no no no",
    "VS": "no no no no yes no no no",
    "IS": "no no no no yes yes no no",
    "CS": "yes yes no no no no yes no",
    "N": "no no no no no no no yes",
}
CELLS = [
    (a, b, word == "yes")
    for a, line in TABLE.items()
    for b, word in zip(KINDS, line.split(), strict=True)
]


def batch_of(space, n=5):
    """Return a batch of any space, including sequences."""
    if space is VS:
        return np.arange(n * 24, dtype="f4").reshape(n, 24)
    if space is IS or space is INDEX:
        return np.arange(n)[:, None] % 24
    return random_batch(space, n)


@pytest.mark.parametrize(("source", "target", "converts"), CELLS)
def test_every_cell_of_the_table(source, target, converts):
    space, other = KINDS[source], KINDS[target]
    batch = batch_of(space)
    if converts:
        result = space.format_as(batch, other)
        other.validate(result)
        if source not in ("I", "IS", "VS", "N"):
            np.testing.assert_array_equal(rows(other, result), rows(space, batch))
    else:
        with pytest.raises(SpaceError, match="does not convert into"):
            space.format_as(batch, other)


@pytest.mark.parametrize(
    ("space", "other"),
    [(V, VectorSpace(23)), (V, Conv2DSpace((2, 3), 3)), (C, VectorSpace(23)), (C, VectorSpace(25)),
     (C, Conv2DSpace((3, 2), 4)), (C, Conv2DSpace((2, 2), 6)), (C, Conv2DSpace((2, 3), 5)),
     (C, Conv2DSpace((4, 3), 2, "bchw")), (V, CompositeSpace((V, V))), (CS, VectorSpace(23)),
     (CS, CompositeSpace((CS.components[0], VectorSpace(6)))), (CS, CompositeSpace((CS,))),
     (CompositeSpace((VectorSpace(6), V)), CompositeSpace((VectorSpace(6), CompositeSpace((V,))))),
     (CompositeSpace((V,)), VectorSpace(23)), (N, V), (V, N), (N, CompositeSpace(())),
     (CompositeSpace((N,)), N), (IndexSpace(4, 2), VectorSpace(2)),
     (IndexSpace(4, 2), VectorSpace(16)), (IndexSpace(4, 2), IndexSpace(4, 3)),
     (IndexSpace(4, 2), IndexSpace(5, 2)), (IndexSequenceSpace(4, 2), VectorSequenceSpace(2)),
     (IndexSequenceSpace(4, 2), IndexSequenceSpace(5, 2)), (VS, VectorSequenceSpace(3)),
     (CompositeSpace(()), CompositeSpace((N,)))],
)  # fmt: skip
def test_sizes_and_nestings_that_never_convert(space, other):
    batch = np.zeros((3, 24)) if space is VS else None
    if batch is None:
        sequence = isinstance(space, IndexSequenceSpace)
        batch = np.zeros((3, 2), int) if sequence else space.get_origin_batch(3)
    with pytest.raises(SpaceError, match=r"does not convert into|cannot be part of"):
        space.format_as(batch, other)


def test_messages_name_both_spaces_and_the_reason():
    with pytest.raises(SpaceError, match=r"24 numbers in the first and 23 in the second"):
        V.format_as(np.zeros((1, 24)), VectorSpace(23))
    with pytest.raises(SpaceError, match="which labels they came from"):
        V.format_as(np.zeros((1, 24)), INDEX)
    with pytest.raises(SpaceError, match=r"dim 4 \(which labels are there\) or 8"):
        IndexSpace(4, 2).format_as(np.zeros((1, 2), int), VectorSpace(5))
    with pytest.raises(SpaceError, match="they have to be equal"):
        C.format_as(C.get_origin_batch(1), Conv2DSpace((3, 2), 4))
    left = CompositeSpace((V, CompositeSpace((N, C))))
    right = CompositeSpace((V, CompositeSpace((N, VectorSpace(23)))))
    with pytest.raises(SpaceError, match=r"component \[1\]\[1\]: .*24 numbers"):
        left.format_as(left.get_origin_batch(1), right)


@pytest.mark.parametrize("other", [None, 3, VectorSpace, np.zeros((2, 24))])
def test_the_other_space_is_a_space(other):
    for ask in (V.format_as, V.undo_format_as):
        with pytest.raises(SpaceError, match="pass a Space"):
            ask(np.zeros((2, 24)), other)


# ---- vectors and images ------------------------------------------------------------------


@pytest.mark.parametrize("axes", AXES)
def test_vectors_lie_by_rows_columns_channels_whatever_the_axes(axes):
    images, vectors = Conv2DSpace((2, 3), 4, axes), VectorSpace(24)
    batch = random_batch(images, 5)
    flat = images.format_as(batch, vectors)
    np.testing.assert_array_equal(flat, rows(images, batch))
    assert_batches_equal(vectors.format_as(flat, images), batch)
    assert_batches_equal(images.undo_format_as(flat, vectors), batch)


def test_values_that_were_measured_on_the_original():
    images, vectors = Conv2DSpace((2, 3), 2, ("b", "c", 0, 1)), VectorSpace(12)
    counted = np.arange(12, dtype="f4")
    opened = vectors.format_as(counted.reshape(1, 12), images)
    assert opened.tolist() == [[[[0, 2, 4], [6, 8, 10]], [[1, 3, 5], [7, 9, 11]]]]
    flat = images.format_as(counted.reshape(1, 2, 2, 3), vectors)
    assert flat.tolist() == [[0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]]


@pytest.mark.parametrize(("axes", "other"), list(itertools.product(AXES, AXES)))
def test_axes_to_axes(axes, other):
    source, target = Conv2DSpace((2, 3), 4, axes), Conv2DSpace((2, 3), 4, other)
    batch = random_batch(source, 5)
    result = source.format_as(batch, target)
    wanted = batch.transpose([axes.index(axis) for axis in other])
    assert_batches_equal(result, np.ascontiguousarray(wanted))
    assert result.flags.c_contiguous
    assert_batches_equal(source.undo_format_as(result, target), batch)


@pytest.mark.parametrize("how", LAYINGS)
def test_batches_laid_in_memory_in_any_way(how):
    values = random_batch(C, 6)
    batch = laid(values.copy(), how)
    before = batch.tobytes()
    flat = C.format_as(batch, V)
    np.testing.assert_array_equal(flat, rows(C, np.asarray(batch)))
    assert batch.tobytes() == before


@pytest.mark.parametrize("n", [0, 1, 300])
def test_batches_of_all_sizes(n):
    batch = random_batch(CS, n)
    flat = CS.format_as(batch, V)
    assert flat.shape == (n, 24)
    np.testing.assert_array_equal(flat, rows(CS, batch))
    assert_batches_equal(CS.undo_format_as(flat, V), batch)


# ---- dtypes ------------------------------------------------------------------------------

NAMES = ["bool", "uint8", "int8", "int32", "float16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_the_dtype_table(source, target):
    """The batch's own dtype is cast directly to the target's, by same_kind."""
    images, vectors = C.with_dtype(None), V.with_dtype(target)
    # Each pair needs a kernel, so only pairs with float32 have rows; empty batches need no kernel.
    count = 3 if "float32" in (source, target) else 0
    batch = (random_batch(C, count) % 2).astype(source)
    if np.can_cast(source, target, "same_kind"):
        result = images.format_as(batch, vectors)
        assert_batches_equal(result, rows(C, batch).astype(target))
    else:
        with pytest.raises(DtypeError, match="same_kind"):
            images.format_as(batch, vectors)


def test_there_is_no_dtype_in_between():
    """A float64 batch of a float32 space keeps what float32 would lose."""
    batch = np.array([[1 + 2.0**-40]])
    assert VectorSpace(1).format_as(batch, VectorSpace(1, dtype="float64"))[0, 0] == batch[0, 0]
    labels = np.array([[2**24 + 1]])
    assert VectorSpace(1).format_as(labels, VectorSpace(1, dtype="int64"))[0, 0] == 2**24 + 1


@pytest.mark.parametrize(
    ("casting", "wanted"), [("unsafe", [0, 1, 2, 44]), ("saturate", [0, 2, 2, 255])]
)
def test_casting_is_as_in_convert(casting, wanted):
    space, other = VectorSpace(4), VectorSpace(4, dtype="uint8")
    batch = np.array([[0.5, 1.5, 2.5, 300.7]], "f4")
    assert space.format_as(batch, other, casting=casting).tolist() == [wanted]
    with pytest.raises(DtypeError, match="saturate"):
        space.format_as(batch, other)


def test_casting_safe_and_no_casting():
    with pytest.raises(DtypeError, match="safe"):
        V.format_as(np.zeros((2, 24)), V, casting="safe")
    assert V.format_as(np.zeros((2, 24), "f2"), V, casting="safe").dtype == np.float32
    for casting in ("no such", None, 3, ["safe"]):
        with pytest.raises(ArgumentError, match="casting"):
            V.format_as(np.zeros((2, 24)), V, casting=casting)
        with pytest.raises(ArgumentError, match="casting"):
            N.format_as(None, N, casting=casting)


def test_casting_errors_name_the_component_before_anything_is_converted(monkeypatch):
    other = CompositeSpace((CS.components[0], CompositeSpace((N, VectorSpace(6, dtype="int8")))))
    batch = random_batch(CS, 3)
    calls = []
    monkeypatch.setattr(moves.Rearrange, "run", lambda *arguments: calls.append(arguments))
    with pytest.raises(DtypeError, match=r"component \[1\]\[1\]: float32 to int8"):
        CS.format_as(batch, other)
    with pytest.raises(DtypeError, match=r"component \[0\]: float32 to int8"):
        CS.format_as(batch, V.with_dtype("int8"))
    with pytest.raises(DtypeError, match=r"component \[0\]: float32 to int8"):
        V.format_as(np.zeros((2, 24), "f4"), CompositeSpace((V.with_dtype("int8"),)))
    assert calls == []


def test_complex_is_never_cut_off_silently():
    batch = np.zeros((2, 24), "complex64")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DtypeError):
            V.with_dtype("complex64").format_as(batch, V)
        assert V.with_dtype(None).format_as(batch, V, casting="unsafe").dtype == np.float32


def test_a_space_without_a_dtype_keeps_what_comes():
    batch = random_batch(C, 3).astype(BF16)
    assert C.format_as(batch, V.with_dtype(None)).dtype == BF16
    swapped = random_batch(C, 3).astype(">f4")
    result = C.format_as(swapped, V.with_dtype(None))
    assert result.dtype.isnative
    np.testing.assert_array_equal(result, rows(C, swapped))


def test_swapped_bytes_are_joined_in_native_order():
    images, (_, vectors) = random_batch(CS, 3)
    swapped = (images.astype(">f4"), (None, vectors.astype(">f4")))
    result = CS.with_dtype(None).format_as(swapped, V.with_dtype(None))
    assert_batches_equal(result, rows(CS, (images, (None, vectors))))
    assert result.dtype.isnative


def test_dates_and_structures_are_moved():
    dates = np.arange(48).reshape(2, 24).astype("M8[s]")
    result = V.with_dtype(None).format_as(dates, C.with_dtype(None))
    np.testing.assert_array_equal(rows(C, result), dates)


def test_vectors_without_a_dtype_need_components_of_one():
    agnostic = CS.with_dtype(None)
    images, (_, vectors) = random_batch(CS, 3)
    result = agnostic.format_as((images, (None, vectors)), V.with_dtype(None))
    assert result.dtype == np.float32
    with pytest.raises(DtypeError, match=r"\[0\] has dtype float32, but \[1\]\[1\] has float64"):
        agnostic.format_as((images, (None, vectors.astype("f8"))), V.with_dtype(None))
    result = agnostic.format_as((images, (None, vectors.astype("f8"))), V)
    np.testing.assert_array_equal(result, rows(CS, (images, (None, vectors))))


# ---- labels ------------------------------------------------------------------------------

LABELS = np.array([[0, 2], [3, 3], [1, 0]])
MERGED = [[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]]
BLOCKS = [[1, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0, 0, 0]]


@pytest.mark.parametrize(("dim", "wanted"), [(4, MERGED), (8, BLOCKS)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "uint8", "int64", "complex64", BF16])
@pytest.mark.parametrize("labels", ["int64", "uint8", ">i4", "uint64"])
def test_one_hot(dim, wanted, dtype, labels):
    space = IndexSpace(4, 2, labels)
    result = space.format_as(LABELS.astype(labels), VectorSpace(dim, dtype=dtype))
    assert_batches_equal(result, np.array(wanted).astype(dtype))
    sequence = IndexSequenceSpace(4, 2, labels)
    result = sequence.format_as(LABELS.astype(labels), VectorSequenceSpace(dim, dtype))
    assert_batches_equal(result, np.array(wanted).astype(dtype))


@pytest.mark.parametrize(("dim", "wanted"), [(4, MERGED), (8, BLOCKS)])
def test_sparse_one_hot(dim, wanted):
    result = IndexSpace(4, 2).format_as(LABELS, VectorSpace(dim, sparse=True))
    assert result.format == "csr"
    assert result.has_canonical_format
    assert_batches_equal(result.toarray(), np.array(wanted, "f4"))


def test_one_hot_vectors_of_no_dtype_are_float32():
    for sparse in (False, True):
        result = IndexSpace(4, 2).format_as(LABELS, VectorSpace(4, sparse, None))
        assert result.dtype == np.float32
    with pytest.raises(DtypeError, match="numbers"):
        IndexSpace(4, 2).format_as(LABELS, VectorSpace(4, dtype="M8[s]"))


def test_one_label_and_one_class():
    assert IndexSpace(1, 2).format_as(np.zeros((2, 2), int), VectorSpace(1)).tolist() == [[1], [1]]
    assert IndexSpace(3, 1).format_as(np.array([[2]]), VectorSpace(3)).tolist() == [[0, 0, 1]]
    assert IndexSpace(3, 1).format_as(np.zeros((0, 1), int), VectorSpace(3)).shape == (0, 3)


def test_one_hot_inside_composites():
    space = CompositeSpace((V, CompositeSpace((IndexSpace(4, 2), N)), IndexSpace(4, 2)))
    other = CompositeSpace((C, CompositeSpace((VectorSpace(8), N)), VectorSpace(4, sparse=True)))
    result = space.format_as((random_batch(V, 3), (LABELS, None), LABELS), other)
    other.validate(result)
    assert result[1][0].tolist() == BLOCKS
    assert result[2].toarray().tolist() == MERGED


def test_labels_to_labels():
    batch = LABELS.astype("uint8")
    assert_batches_equal(IndexSpace(4, 2).format_as(batch, IndexSpace(4, 2)), LABELS)
    assert IndexSpace(4, 2, None).format_as(batch, IndexSpace(4, 2, None)) is batch
    with pytest.raises(DtypeError, match="int64 to uint8"):
        IndexSpace(4, 2).format_as(LABELS, IndexSpace(4, 2, "uint8"))
    narrow = IndexSpace(4, 2).format_as(LABELS, IndexSpace(4, 2, "uint8"), casting="unsafe")
    assert_batches_equal(narrow, batch)


def test_labels_are_not_changed_by_one_hot():
    batch = LABELS.astype(np.intp)
    before = batch.copy()
    IndexSpace(4, 2).format_as(batch, VectorSpace(8))
    np.testing.assert_array_equal(batch, before)


# ---- sequences ---------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_sequences_of_any_length(steps):
    batch = np.arange(steps * 3, dtype="f4").reshape(steps, 3)
    result = VectorSequenceSpace(3).format_as(batch, VectorSequenceSpace(3, "f8"))
    assert_batches_equal(result, batch.astype("f8"))
    labels = np.arange(steps)[:, None] % 4
    hot = IndexSequenceSpace(4, 1).format_as(labels, VectorSequenceSpace(4))
    assert_batches_equal(hot, np.eye(4, dtype="f4")[labels[:, 0]])


def test_sequences_in_composites_need_not_be_as_long():
    space = CompositeSpace((V, CompositeSpace((IndexSequenceSpace(4, 1), VS)), N))
    other = CompositeSpace((C, CompositeSpace((VectorSequenceSpace(4), VS)), N))
    batch = (random_batch(V, 3), (np.zeros((5, 1), int), np.zeros((2, 24), "f4")), None)
    result = space.format_as(batch, other)
    assert other.batch_size(result) == 3
    assert result[1][0].tolist() == [[1, 0, 0, 0]] * 5


@pytest.mark.parametrize("inside", [INDEX, VS, IS])
def test_labels_and_sequences_are_no_part_of_vectors(inside):
    space = CompositeSpace((VectorSpace(23), CompositeSpace((inside,))))
    batch = (np.zeros((3, 23)), (batch_of(inside, 3),))
    with pytest.raises(SpaceError, match=r"component \[1\]\[0\]: .* cannot be part of a vector"):
        space.format_as(batch, V)
    with pytest.raises(SpaceError, match=r"component \[1\]\[0\]: .* cannot be part of a vector"):
        V.format_as(np.zeros((3, 24)), space)


# ---- sparse ------------------------------------------------------------------------------


def test_dense_and_sparse_vectors():
    batch = np.array([[0, 1.5, 0], [2, 0, 0]], "f4")
    dense, sparse = VectorSpace(3), VectorSpace(3, sparse=True)
    matrix = dense.format_as(batch, sparse)
    assert matrix.format == "csr"
    assert matrix.nnz == 2
    assert_batches_equal(sparse.format_as(matrix, dense), batch)
    back = sparse.format_as(matrix, VectorSpace(3, dtype=None))
    assert type(back) is np.ndarray
    assert_batches_equal(back, batch)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("make", [scipy.sparse.random, scipy.sparse.random_array])
def test_what_becomes_sparse_is_csr(form, make):
    shape = (5, 24) if make is scipy.sparse.random_array else 5
    more = {} if make is scipy.sparse.random_array else {"n": 24}
    matrix = make(shape, **more, density=0.3, format=form, dtype="f4", rng=3)
    before = matrix.toarray()
    for dtype in ("float32", "float64", None):
        result = SV.format_as(matrix, SV.with_dtype(dtype))
        assert result.format == "csr"
        assert result.dtype == (dtype or "float32")
        assert isinstance(result, scipy.sparse.sparray) == isinstance(matrix, scipy.sparse.sparray)
        np.testing.assert_array_equal(result.toarray(), before)
    np.testing.assert_array_equal(SV.format_as(matrix, V), before)
    np.testing.assert_array_equal(matrix.toarray(), before)


def test_a_cast_sparse_matrix_is_of_its_own():
    matrix = scipy.sparse.csr_matrix(([1.0, 2.0], [1, 0], [0, 2]), shape=(1, 3), dtype="f8")
    assert not matrix.has_sorted_indices
    space = VectorSpace(3, sparse=True)
    result = space.format_as(matrix, space)
    result.sort_indices()
    assert matrix.toarray().tolist() == [[2, 1, 0]]
    assert result.toarray().tolist() == [[2, 1, 0]]
    assert space.format_as(result, space) is result


def test_sparse_composites():
    space = CompositeSpace((VectorSpace(4, True), CompositeSpace((Conv2DSpace((1, 2), 3), N))))
    batch = random_batch(space, 5)
    for other in (VectorSpace(10), VectorSpace(10, sparse=True)):
        result = space.format_as(batch, other)
        np.testing.assert_array_equal(rows(other, result), rows(space, batch))
        assert_batches_equal(space.undo_format_as(result, other), batch)
    assert space.format_as(batch, VectorSpace(10, sparse=True)).format == "csr"
    vectors = random_batch(VectorSpace(10), 5)
    split = VectorSpace(10).format_as(vectors, space)
    assert split[0].format == "csr"
    np.testing.assert_array_equal(rows(space, split), vectors)


@pytest.mark.parametrize("form", ["csr", "coo", "dok"])
def test_sparse_vectors_of_any_format_are_split(form):
    space = CompositeSpace((VectorSpace(20, sparse=True), CompositeSpace((N, VectorSpace(4)))))
    matrix = random_batch(SV, 5).asformat(form)
    split = SV.format_as(matrix, space)
    assert split[0].format == "csr"
    np.testing.assert_array_equal(rows(space, split), matrix.toarray())


def test_sparse_vectors_become_images_only_on_the_way_back():
    batch = random_batch(C, 3)
    matrix = C.format_as(batch, SV)
    with pytest.raises(SpaceError, match="make it dense first"):
        SV.format_as(matrix, C)
    assert_batches_equal(C.undo_format_as(matrix, SV), batch)
    half = CompositeSpace((VectorSpace(12), Conv2DSpace((2, 3), 2)))
    with pytest.raises(SpaceError, match=r"component \[1\]: .*dense first"):
        SV.format_as(matrix, half)


def test_sparse_dtypes_that_scipy_lacks():
    batch = np.zeros((2, 24), "f2")
    with pytest.raises(DtypeError, match=r"scipy\.sparse"):
        V.format_as(batch, SV.with_dtype(None))
    assert V.format_as(batch, SV).dtype == np.float32
    matrix = V.format_as(np.full((2, 24), 0.5), SV)
    assert SV.format_as(matrix, V.with_dtype("bfloat16")).dtype == BF16
    rounded = SV.format_as(matrix * 3, SV.with_dtype("int8"), casting="saturate")
    assert rounded.toarray().tolist() == [[2] * 24] * 2


# ---- undo_format_as ----------------------------------------------------------------------


# Each pair needs two kernels.
@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("here", "there"),
    [
        *[("float32", there) for there in ("float64", "float16", "uint8", "complex64")],
        *[("int32", there) for there in ("float64", "int64", "complex64")],
        *[("uint8", there) for there in ("float32", "float64", "bool")],
    ],
)
def test_undo_restores_layout_and_dtype_whatever_the_cast(here, there):
    space, other = C.with_dtype(here), V.with_dtype(there)
    batch = (random_batch(C, 3) % 2).astype(here)
    result = space.format_as(batch, other, casting="unsafe")
    assert result.dtype == there
    assert_batches_equal(space.undo_format_as(result, other), batch)


def test_undo_checks_that_the_batch_is_of_the_other_space():
    with pytest.raises(ShapeError, match="VectorSpace"):
        C.undo_format_as(np.zeros((2, 25)), V)
    with pytest.raises(ShapeError, match="VectorSpace"):
        C.undo_format_as(C.get_origin_batch(2), V)


def test_undo_finds_no_labels():
    with pytest.raises(SpaceError, match="which labels they came from"):
        IndexSpace(4, 2).undo_format_as(np.zeros((1, 4)), VectorSpace(4))
    assert VectorSpace(4).undo_format_as(LABELS, IndexSpace(4, 2)).tolist() == MERGED


def test_nothing_is_done_and_undone():
    assert N.format_as(None, N) is None
    assert N.undo_format_as(None, N) is None
    nested = CompositeSpace((N, CompositeSpace((N, N))))
    assert nested.format_as((None, (None, None)), nested) == (None, (None, None))
    assert CompositeSpace(()).format_as((), CompositeSpace(())) == ()


# ---- memory and cost ---------------------------------------------------------------------


def test_what_need_not_move_is_not_copied():
    vectors, images = random_batch(V, 5), random_batch(Conv2DSpace((2, 3), 4), 5)
    assert V.format_as(vectors, V) is vectors
    assert C.format_as(C.get_origin_batch(1), C).shape == (1, 4, 2, 3)
    flat = Conv2DSpace((2, 3), 4).format_as(images, V)
    assert np.shares_memory(flat, images)
    alone = CompositeSpace((V,))
    assert alone.format_as((vectors,), alone)[0] is vectors
    assert np.shares_memory(alone.format_as((vectors,), V), vectors)


def test_what_moves_is_in_memory_of_its_own():
    batch = random_batch(C, 5)
    kept = batch.copy()
    for other in (V, Conv2DSpace((2, 3), 4, "chwb"), C.with_dtype("f8")):
        result = C.format_as(batch, other)
        assert not np.shares_memory(result, batch)
        result[...] = -1
    pair = random_batch(CS, 5)
    joined = CS.format_as(pair, V)
    joined[...] = -1
    np.testing.assert_array_equal(batch, kept)
    assert pair[0].min() >= 0


def test_results_are_pooled():
    batch = random_batch(CS, 64)
    for _ in range(3):
        CS.format_as(batch, V)
    before = buffers.stats()
    for _ in range(5):
        CS.format_as(batch, V)
        C.format_as(C.get_origin_batch(64), V)
    after = buffers.stats()
    assert after["hits"] - before["hits"] >= 9
    assert after["misses"] - before["misses"] <= 1


def test_results_are_those_of_convert():
    batch = random_batch(C, 64)
    wanted = convert(batch, "bchw->b(hwc)", dtype="float64")
    assert_batches_equal(C.format_as(batch, V.with_dtype("float64")), wanted)


def test_a_batch_is_checked_once(monkeypatch):
    seen = []
    original = base.Space._validated_leaves
    monkeypatch.setattr(
        base.Space,
        "_validated_leaves",
        lambda self, batch: seen.append(self) or original(self, batch),
    )
    CS.format_as(random_batch(CS, 3), V)
    assert seen == [CS]
    seen.clear()
    CS.undo_format_as(random_batch(V, 3), V)
    assert seen == [V]


def test_converters_are_kept(monkeypatch):
    made = []
    original = moves.Converter
    monkeypatch.setattr(moves, "Converter", lambda *a, **k: made.append(a) or original(*a, **k))
    space = CompositeSpace((Conv2DSpace((3, 7), 5, "wbch"), VectorSpace(11)))
    other = VectorSpace(116)
    batch = random_batch(space, 3)
    first = space.format_as(batch, other)
    assert len(made) == 2
    again = CompositeSpace((Conv2DSpace((3, 7), 5, "wbch"), VectorSpace(11)))
    assert_batches_equal(again.format_as(batch, VectorSpace(116)), first)
    assert len(made) == 2


def test_a_pair_that_never_converts_stays_refused():
    for _ in range(3):
        with pytest.raises(SpaceError):
            V.format_as(np.zeros((2, 24)), VectorSpace(23))


def test_threads_may_share_spaces():
    from concurrent.futures import ThreadPoolExecutor

    batch = random_batch(CS, 200)
    wanted = rows(CS, batch)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: CS.format_as(batch, V), range(40)))
    for result in results:
        np.testing.assert_array_equal(result, wanted)


def test_the_package_has_its_name():
    assert layoutkit.VectorSpace is VectorSpace
