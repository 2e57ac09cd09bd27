"""Batches of spaces, and the expected results of `format_as`, computed element by element."""

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

from layoutkit import CompositeSpace, Conv2DSpace, NullSpace, VectorSpace

AXES = [("b", 0, 1, "c"), ("b", "c", 0, 1), ("c", 0, 1, "b"), (1, "b", "c", 0), (0, "c", "b", 1)]


def random_batch(space, n, seed=0):
    """Return a batch of small integers, which are exact in every dtype of the tests."""
    rng = np.random.default_rng(seed)
    return _filled(space.get_origin_batch(n), rng)


def _filled(batch, rng):
    if isinstance(batch, tuple):
        return tuple(_filled(part, rng) for part in batch)
    if batch is None:
        return None
    values = rng.integers(0, 100, batch.shape).astype(batch.dtype)
    return type(batch)(values) if scipy.sparse.issparse(batch) else values


def rows(space, batch):
    """Return a matrix of the batch's numbers with one row per sample, filled index by index."""
    if isinstance(space, NullSpace):
        return None
    if isinstance(space, CompositeSpace):
        found = [rows(s, b) for s, b in zip(space.components, batch, strict=True)]
        found = [matrix for matrix in found if matrix is not None]
        return np.concatenate(found, axis=1) if found else None
    if isinstance(space, Conv2DSpace):
        return _image_rows(space, batch)
    return batch.toarray() if scipy.sparse.issparse(batch) else batch


def _image_rows(space, batch):
    (height, width), channels = space.shape, space.num_channels
    n = batch.shape[space.axes.index("b")]
    matrix = np.empty((n, height * width * channels), batch.dtype)
    for b, r, k, c in np.ndindex(n, height, width, channels):
        place = {"b": b, 0: r, 1: k, "c": c}
        value = batch[tuple(place[axis] for axis in space.axes)]
        matrix[b, (r * width + k) * channels + c] = value
    return matrix


def assert_batches_equal(got, wanted):
    """Assert that two batches are equal in nesting, type, shape, dtype and every element."""
    assert type(got) is type(wanted)
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_batches_equal(one, other)
    elif scipy.sparse.issparse(wanted):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        assert (got != wanted).nnz == 0
    elif wanted is not None:
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(got, wanted)


def leaves(dtypes=("float32",), sparse=False):
    """Return a strategy for vector and image spaces."""
    sizes = st.integers(1, 4)
    dtype = st.sampled_from(dtypes)
    vectors = st.builds(VectorSpace, sizes, st.just(False), dtype)
    images = st.builds(
        Conv2DSpace, st.tuples(sizes, sizes), sizes, st.permutations(("b", 0, 1, "c")), dtype
    )
    found = vectors | images
    if sparse:
        found |= st.builds(VectorSpace, sizes, st.just(True), dtype)
    return found


def trees(dtypes=("float32",), sparse=False):
    """Return a strategy for composites of vector, image and null spaces, up to three deep."""
    inner = leaves(dtypes, sparse) | st.builds(NullSpace)
    return st.recursive(
        st.lists(inner, min_size=1, max_size=3).map(CompositeSpace),
        lambda deeper: st.lists(inner | deeper, min_size=1, max_size=3).map(CompositeSpace),
        max_leaves=6,
    )


def relaid(space, draw):
    """Return a space of the same nesting and sizes, with new leaves where others are possible."""
    if isinstance(space, CompositeSpace):
        return CompositeSpace([relaid(part, draw) for part in space.components])
    if isinstance(space, Conv2DSpace):
        axes = draw(st.permutations(("b", 0, 1, "c")))
        images = Conv2DSpace(space.shape, space.num_channels, axes, space.dtype)
        vectors = VectorSpace(space.get_total_dimension(), dtype=space.dtype)
        return draw(st.sampled_from([images, vectors]))
    return space
