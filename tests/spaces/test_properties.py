"""Properties of random composites: conversion and back, and conversion through a third space."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutkit import CompositeSpace, DataSpecsMapping, NullSpace, VectorSpace, is_flat_specs
from tests.helpers.spaces_of import assert_batches_equal, leaves, random_batch, relaid, rows, trees

quick = settings(
    deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
NS = st.sampled_from([0, 1, 2, 7])
WIDE = {"float32": "float64", "uint8": "int32", "int32": "float64"}


def joined(space, dtype="float32", sparse=False):
    return VectorSpace(space.get_total_dimension(), sparse, dtype)


@quick
@given(trees(("float32", "uint8"), sparse=True), NS, st.booleans(), st.integers(0, 9))
def test_join_and_undo_is_the_identity(space, n, sparse, seed):
    if not space.get_total_dimension():
        return
    batch = random_batch(space, n, seed)
    other = joined(space, "float32", sparse)
    result = space.format_as(batch, other)
    other.validate(result)
    np.testing.assert_array_equal(rows(other, result), rows(space, batch))
    assert_batches_equal(space.undo_format_as(result, other), batch)


@quick
@given(trees(), NS, st.integers(0, 9))
def test_split_and_undo_is_the_identity(space, n, seed):
    if not space.get_total_dimension():
        return
    vectors = joined(space)
    batch = random_batch(vectors, n, seed)
    result = vectors.format_as(batch, space)
    space.validate(result)
    np.testing.assert_array_equal(rows(space, result), batch)
    assert_batches_equal(vectors.undo_format_as(result, space), batch)


@pytest.mark.budget(0)
@quick
@given(trees(("float32", "uint8", "int32")), st.data(), NS)
def test_leaf_by_leaf_and_undo_is_the_identity(space, data, n):
    other = widened(relaid(space, data.draw))
    batch = random_batch(space, n)
    result = space.format_as(batch, other)
    other.validate(result)
    if space.get_total_dimension():
        np.testing.assert_array_equal(rows(other, result), rows(space, batch))
    assert_batches_equal(space.undo_format_as(result, other), batch)


@quick
@given(trees(), st.data(), NS)
def test_by_way_of_a_third_space(space, data, n):
    """Check that a -> b -> c equals a -> c, through other axes and through vectors."""
    other, last = relaid(space, data.draw), relaid(space, data.draw)
    batch = random_batch(space, n)
    direct = space.format_as(batch, last)
    assert_batches_equal(other.format_as(space.format_as(batch, other), last), direct)
    if space.get_total_dimension():
        vectors = joined(space)
        through = vectors.format_as(space.format_as(batch, vectors), last)
        assert_batches_equal(through, direct)


@quick
@given(leaves(), st.data(), NS)
def test_single_spaces_by_way_of_a_third(space, data, n):
    vectors = joined(space)
    last = relaid(space, data.draw)
    batch = random_batch(space, n)
    through = vectors.format_as(space.format_as(batch, vectors), last)
    assert_batches_equal(through, space.format_as(batch, last))


@quick
@given(trees(("float32", "int32")), NS)
def test_what_a_space_says_of_itself(space, n):
    batch = space.get_origin_batch(n)
    space.validate(batch)
    arrays = list(walk(space, batch))
    assert space.batch_size(batch) == (n if arrays else 0)
    assert sum(np.prod(origin.shape) for _, origin in walk(space, space.get_origin())) == (
        space.get_total_dimension()
    )
    assert hash(space) == hash(CompositeSpace(space.components))


@quick
@given(trees(), st.data(), st.integers(1, 5))
def test_a_wrong_component_is_named(space, data, n):
    """Make one leaf of a right batch wrong: the message begins with its path."""
    batch = space.get_origin_batch(n)
    places = list(paths(space))
    path = data.draw(st.sampled_from(places))
    broken = replaced(batch, path, np.zeros((n, 99)))
    with pytest.raises((ValueError, TypeError)) as found:
        space.validate(broken)
    where = "".join(f"[{index}]" for index in path)
    assert str(found.value).startswith(f"component {where}: ")


@quick
@given(trees(), st.data())
def test_mappings_flatten_and_nest(space, data):
    names = st.sampled_from(["a", "b", "c"])
    source = named(space, lambda: data.draw(names))
    mapping = DataSpecsMapping((space, source))
    pairs = list(dict.fromkeys(zip(leaves_of(space), leaves_of(source), strict=True)))
    pairs = [pair for pair in pairs if pair[1]]
    assert mapping.n_unique_specs == len(pairs)
    assert mapping.flatten(space, return_tuple=True) == tuple(pair[0] for pair in pairs)
    assert mapping.flatten(source, return_tuple=True) == tuple(pair[1] for pair in pairs)
    assert mapping.nest(CompositeSpace(mapping.flatten(space, return_tuple=True))) == space
    values = tuple(object() for _ in pairs)
    nested = mapping.nest(values)
    again = mapping.flatten(nested, return_tuple=True)
    assert all(a is b for a, b in zip(again, values, strict=True))
    specs = mapping.flatten(space), mapping.flatten(source)
    assert not pairs or is_flat_specs(specs)


# ---- trees -------------------------------------------------------------------------------


def widened(space):
    if isinstance(space, CompositeSpace):
        return CompositeSpace([widened(part) for part in space.components])
    return space if isinstance(space, NullSpace) else space.with_dtype(WIDE[str(space.dtype)])


def walk(space, batch):
    """Yield (space, array) of every leaf that holds data."""
    if isinstance(space, CompositeSpace):
        for part, inner in zip(space.components, batch, strict=True):
            yield from walk(part, inner)
    elif not isinstance(space, NullSpace):
        yield space, batch


def paths(space, path=()):
    if isinstance(space, CompositeSpace):
        for index, part in enumerate(space.components):
            yield from paths(part, (*path, index))
    else:
        yield path


def replaced(batch, path, value):
    if not path:
        return value
    return tuple(
        replaced(part, path[1:], value) if index == path[0] else part
        for index, part in enumerate(batch)
    )


def named(space, name):
    if isinstance(space, CompositeSpace):
        return tuple(named(part, name) for part in space.components)
    return "" if isinstance(space, NullSpace) else name()


def leaves_of(tree):
    parts = tree.components if isinstance(tree, CompositeSpace) else tree
    if isinstance(parts, tuple):
        return [leaf for part in parts for leaf in leaves_of(part)]
    return [tree]
