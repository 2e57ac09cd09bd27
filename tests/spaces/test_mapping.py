"""Data specs: valid ones, errors of invalid ones, flattening, nesting, predicates."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from layoutkit import (
    CompositeSpace,
    Conv2DSpace,
    DataError,
    DataSpecsMapping,
    IndexSpace,
    LayoutkitError,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSpace,
    is_flat_source,
    is_flat_space,
    is_flat_specs,
)

VECTORS = VectorSpace(32 * 32 * 3)
IMAGES = Conv2DSpace((32, 32), 3, ("b", "c", 0, 1))
TARGETS = VectorSpace(10)
THREE = CompositeSpace((VECTORS, VECTORS, VECTORS))
F, T, N = "features", "targets", NullSpace()

# ---- the document's examples -------------------------------------------------------------

RIGHT = [
    (VECTORS, F, 1),
    (IMAGES, F, 1),
    (TARGETS, T, 1),
    (CompositeSpace((VECTORS, TARGETS)), (F, T), 2),
    (CompositeSpace((TARGETS, IMAGES)), (T, F), 2),
    (CompositeSpace((VECTORS, VECTORS, VECTORS, TARGETS)), (F, F, F, T), 2),
    (CompositeSpace((THREE, TARGETS)), ((F, F, F), T), 2),
    (N, "", 0),
    (CompositeSpace((VECTORS,)), (F,), 1),
    (CompositeSpace((VECTORS, N)), [F, ""], 1),
    (CompositeSpace(()), (), 0),
]


@pytest.mark.parametrize(("space", "source", "unique"), RIGHT)
def test_right_specs(space, source, unique):
    assert DataSpecsMapping((space, source)).n_unique_specs == unique
    assert DataSpecsMapping([space, source]).n_unique_specs == unique


PAIR = CompositeSpace((VECTORS, IMAGES))
FOUR = CompositeSpace((VECTORS, VECTORS, VECTORS, TARGETS))
WRONG = [
    (PAIR, F, SpaceError, r"has 2 components.*write \('features', 'features'\)"),
    (CompositeSpace((VECTORS,)), F, SpaceError, r"has 1 component, .*write \('features',\)"),
    (FOUR, ((F, F, F), T), ShapeError, "has 2 parts.*has 4 components"),
    (CompositeSpace((THREE, TARGETS)), (F, F, F, T), ShapeError, "has 4 parts.*has 2 components"),
    # Mismatches one level down.
    (CompositeSpace((TARGETS, PAIR)), (T, F), SpaceError, r"component \[1\]: .*2 components"),
    (CompositeSpace((TARGETS, PAIR)), (T, (F,)), ShapeError, r"component \[1\]: .*1 parts"),
    # A string is not a sequence of sources; a tuple needs all of its sources.
    (PAIR, "xy", SpaceError, "has 2 components"),
    (CompositeSpace((TARGETS, PAIR)), (T, "xy"), SpaceError, r"component \[1\]: "),
    (VECTORS, (F,), SpaceError, "single space.*write 'features'"),
    (VECTORS, (F, F), SpaceError, "single space"),
    (VECTORS, [F], SpaceError, "single space"),
    (VECTORS, None, SpaceError, "it must be a str"),
    (VECTORS, 3, SpaceError, "it must be a str"),
    (PAIR, (F, 3), SpaceError, r"component \[1\]: .*it must be a str"),
    (PAIR, None, SpaceError, "has 2 components"),
    (VECTORS, "", SpaceError, "NullSpace"),
    (N, F, SpaceError, "NullSpace"),
    (CompositeSpace((N, VECTORS)), (F, F), SpaceError, r"component \[0\]: .*NullSpace"),
    (N, None, SpaceError, "it must be a str"),
    # Not a space, or space and source swapped.
    (F, VECTORS, SpaceError, "swap"),
    ((F, T), PAIR, SpaceError, "swap"),
    (F, F, SpaceError, "is not a Space"),
    ((VECTORS, TARGETS), (F, T), SpaceError, "is not a Space"),
    (VectorSpace, F, SpaceError, "is not a Space"),
]


@pytest.mark.parametrize(("space", "source", "error", "words"), WRONG)
def test_wrong_specs_are_refused_at_once(space, source, error, words):
    for ask in (DataSpecsMapping, is_flat_specs):
        with pytest.raises(error, match=words):
            ask((space, source))


@pytest.mark.parametrize("specs", [None, 3, VECTORS, (VECTORS,), (VECTORS, F, F), "ab", ()])
def test_specs_are_a_pair(specs):
    for ask in (DataSpecsMapping, is_flat_specs):
        with pytest.raises(SpaceError, match="pair"):
            ask(specs)


def test_a_space_that_the_data_do_not_fit_fails_with_the_first_batch():
    """The document's first wrong example, (target space, "features"), is unknown before a batch."""
    assert DataSpecsMapping((TARGETS, F)).n_unique_specs == 1
    with pytest.raises(ShapeError, match=r"dim\) is 3072, not 10"):
        TARGETS.validate(np.zeros((4, 3072), "f4"))


def test_flatten_and_nest_as_documented():
    source = (F, (F, T))
    space = CompositeSpace((VECTORS, CompositeSpace((IMAGES, TARGETS))))
    mapping = DataSpecsMapping((space, source))
    assert mapping.spec_mapping == (0, (1, 2))
    assert mapping.flatten(source) == (F, F, T)
    assert mapping.flatten(space) == CompositeSpace((VECTORS, IMAGES, TARGETS))
    assert mapping.nest((F, F, T)) == source
    assert mapping.nest(CompositeSpace((VECTORS, IMAGES, TARGETS))) == space
    assert mapping.nest((1, 2, 3)) == (1, (2, 3))
    assert mapping.nest([1, 2, 3]) == (1, (2, 3))


def test_repetitions_are_merged_as_documented():
    source = ((F, T), (F, T))
    both = CompositeSpace((VECTORS, TARGETS))
    mapping = DataSpecsMapping((CompositeSpace((both, both)), source))
    assert mapping.spec_mapping == ((0, 1), (0, 1))
    assert mapping.flatten(source) == (F, T)
    assert mapping.flatten(CompositeSpace((both, both))) == both
    assert mapping.nest((1, 2)) == ((1, 2), (1, 2))
    assert mapping.specs_to_index == {(VECTORS, F): 0, (TARGETS, T): 1}


# ---- identity of specs -------------------------------------------------------------------


def test_specs_are_merged_when_space_and_source_are_equal():
    again = Conv2DSpace([32, 32], 3, "bchw", np.float32)
    other = Conv2DSpace((32, 32), 3, "bhwc")
    wide = IMAGES.with_dtype("float64")
    space = CompositeSpace((IMAGES, again, other, wide, IMAGES))
    mapping = DataSpecsMapping((space, (F, F, F, F, T)))
    assert mapping.spec_mapping == (0, 0, 1, 2, 3)


def test_the_order_is_depth_first():
    a, b, c, d = (VectorSpace(n) for n in range(1, 5))
    space = CompositeSpace((CompositeSpace((a, CompositeSpace((b,)))), c, CompositeSpace((d, a))))
    mapping = DataSpecsMapping((space, (("s", ("s",)), "s", ("s", "s"))))
    assert mapping.spec_mapping == ((0, (1,)), 2, (3, 0))
    assert mapping.flatten(space).components == (a, b, c, d)


# ---- one, none, null ---------------------------------------------------------------------


def test_one_spec_comes_bare():
    mapping = DataSpecsMapping((VECTORS, F))
    assert mapping.flatten(VECTORS) == VECTORS
    assert mapping.flatten(F) == F
    assert mapping.flatten(5) == 5
    assert mapping.flatten(5, return_tuple=True) == (5,)
    assert mapping.flatten(VECTORS, return_tuple=True) == (VECTORS,)
    assert mapping.nest(5) == 5
    assert mapping.nest((5,)) == 5
    assert mapping.nest(VECTORS) == VECTORS


def test_one_spec_in_a_composite():
    space = CompositeSpace((VECTORS,))
    mapping = DataSpecsMapping((space, (F,)))
    assert mapping.flatten(space) == VECTORS
    assert mapping.flatten((5,)) == 5
    assert mapping.nest(5) == (5,)
    assert mapping.nest("features") == (F,)
    assert mapping.nest(VECTORS) == space
    assert mapping.nest(space) == space
    array = np.zeros((4, 3072))
    assert mapping.nest(array)[0] is array


def test_null_is_kept_as_none():
    space = CompositeSpace((N, VECTORS))
    mapping = DataSpecsMapping((space, ("", F)))
    assert mapping.spec_mapping == (None, 0)
    assert mapping.nest((5,)) == (None, 5)
    assert mapping.flatten((None, 7)) == 7
    assert mapping.flatten(("", F)) == F
    assert mapping.flatten(space) == VECTORS
    assert mapping.nest(VECTORS) == space
    assert mapping.nest(CompositeSpace((VECTORS,))) == space


def test_null_alone():
    mapping = DataSpecsMapping((N, ""))
    assert mapping.flatten(N) == CompositeSpace(())
    assert mapping.flatten("") == ()
    assert mapping.flatten(None) == ()
    assert mapping.nest(()) is None
    assert mapping.nest(CompositeSpace(())) == N


def test_nothing_at_all():
    mapping = DataSpecsMapping((CompositeSpace(()), ()))
    assert mapping.flatten(CompositeSpace(())) == CompositeSpace(())
    assert mapping.flatten(()) == ()
    assert mapping.nest(()) == ()


# ---- data --------------------------------------------------------------------------------

NESTED = DataSpecsMapping(
    (CompositeSpace((VECTORS, CompositeSpace((IMAGES, N, VECTORS)))), (F, (F, "", F)))
)


def test_data_keep_their_identity():
    a, b = np.zeros((4, 3072)), np.zeros((4, 3, 32, 32))
    flat = NESTED.flatten((a, (b, None, a)))
    assert flat[0] is a
    assert flat[1] is b
    nested = NESTED.nest(flat)
    assert nested[0] is a
    assert nested[1][0] is b
    assert nested[1][1] is None
    assert nested[1][2] is a
    assert NESTED.flatten([a, [b, None, a]])[1] is b


def test_merged_places_may_hold_equal_values():
    nan = np.array([[np.nan, 1.0]])
    equal = [
        (1, 1), ("x", "x"), (nan, nan.copy()), (VectorSpace(3), VectorSpace(3)),
        (np.zeros((2, 3), "i4"), np.zeros((2, 3), "i4")),
        (scipy.sparse.csr_matrix([[1.0, 0]]), scipy.sparse.csr_matrix([[1.0, 0]])),
    ]  # fmt: skip
    for first, second in equal:
        assert NESTED.flatten((first, (0, None, second)))[0] is first


def test_merged_places_may_not_differ():
    different = [
        (1, 2), (1, True), (1, 1.0), ("x", "y"), (np.zeros((2, 3)), np.ones((2, 3))),
        (np.zeros((2, 3)), np.zeros((3, 2))), (np.zeros(3), np.zeros(3, "f4")),
        (np.zeros(3), 0.0), (VectorSpace(3), VectorSpace(4)),
        (scipy.sparse.csr_matrix([[1.0, 0]]), scipy.sparse.csr_matrix([[1.0, 2]])),
        (np.zeros((1, 2)), scipy.sparse.csr_matrix((1, 2))),
    ]  # fmt: skip
    for first, second in different:
        with pytest.raises(DataError, match=r"component \[1\]\[2\]: \[0\] and \[1\]\[2\]"):
            NESTED.flatten((first, (0, None, second)))


def test_a_value_of_the_whole_specs_is_named_the_batch():
    mapping = DataSpecsMapping((VECTORS, F))
    with pytest.raises(SpaceError, match="single space here, but the value is a tuple"):
        mapping.flatten((5,))


@pytest.mark.parametrize(
    ("value", "words"),
    [(5, "composite of 2 .*an int"), ((1,), "composite of 2 .*has 1"), ((1, 2, 3), "has 3"),
     ("ab", "composite of 2 .*a str"), ((1, "abc"), r"component \[1\]: .*composite of 3"),
     (np.zeros((2, 4)), "composite of 2 .*ndarray"), ((1, (2, None)), r"component \[1\]: .*has 2"),
     ((1, (2, 0, 1)), r"component \[1\]\[1\]: .*NullSpace"), ((1, (None, None, 1)), r"\[1\]\[0\]"),
     ((1, ((2,), None, 1)), r"component \[1\]\[0\]: .*single space"),
     (((1,), (2, None, 1)), r"component \[0\]: .*single space"),
     ((1, (2, (), 1)), r"component \[1\]\[1\]: .*NullSpace"), (None, "composite of 2 .*None"),
     (CompositeSpace((VECTORS, VECTORS)), r"component \[1\]: .*composite of 3"),
     ((1, (N, None, 1)), r"component \[1\]\[0\]: .*single space")],
)  # fmt: skip
def test_flatten_refuses_what_is_nested_otherwise(value, words):
    with pytest.raises((SpaceError, ShapeError), match=words):
        NESTED.flatten(value)


@pytest.mark.parametrize(
    ("flat", "words"),
    [((1,), "given 1 values"), ((1, 2, 3), "given 3"), (5, "needs a tuple of 2"),
     (None, "None"),
     ("ab", "a str"), (np.zeros((2, 3)), "ndarray"), (VECTORS, "VectorSpace"), ((), "given 0"),
     (CompositeSpace((VECTORS,)), "given 1")],
)  # fmt: skip
def test_nest_refuses_what_does_not_count(flat, words):
    with pytest.raises((SpaceError, ShapeError), match=words):
        NESTED.nest(flat)


def test_a_mapping_of_one_spec_takes_no_other_number():
    mapping = DataSpecsMapping((VECTORS, F))
    for flat in ((), (1, 2), CompositeSpace(())):
        with pytest.raises(ShapeError, match="1 different"):
            mapping.nest(flat)


def test_batches_go_the_whole_way():
    """Nested specs -> flat request -> flat batch -> nested batch, as training code does it."""
    space = CompositeSpace((VECTORS, CompositeSpace((N, VECTORS, IndexSpace(10, 1)))))
    mapping = DataSpecsMapping((space, (F, ("", F, T))))
    flat_space = CompositeSpace(mapping.flatten(space, return_tuple=True))
    batch = flat_space.get_origin_batch(7)
    nested = mapping.nest(batch)
    space.validate(nested)
    assert nested[0] is nested[1][1]
    assert all(a is b for a, b in zip(mapping.flatten(nested), batch, strict=True))


# ---- predicates --------------------------------------------------------------------------


def test_flat_spaces():
    deep = CompositeSpace((VECTORS, CompositeSpace(())))
    for space in (VECTORS, N, CompositeSpace(()), PAIR, CompositeSpace((N, VECTORS))):
        assert is_flat_space(space) is True
    assert is_flat_space(deep) is False
    for other in ("features", (VECTORS,), None, VectorSpace):
        with pytest.raises(SpaceError, match="not a space"):
            is_flat_space(other)


def test_flat_sources():
    for source in ("features", "", ("a", "b"), ["a"], ()):
        assert is_flat_source(source) is True
    for source in (("a", ("b",)), ["a", []], ((),)):
        assert is_flat_source(source) is False
    for other in (None, 3, VECTORS, {"a"}):
        with pytest.raises(SpaceError, match="not a source"):
            is_flat_source(other)
    with pytest.raises(SpaceError, match=r"component \[1\]\[0\]: .*not a source"):
        is_flat_source(("a", (3,)))


def test_flat_specs():
    assert is_flat_specs((VECTORS, F)) is True
    assert is_flat_specs((PAIR, (F, F))) is True
    assert is_flat_specs((CompositeSpace((PAIR,)), ((F, F),))) is False


def test_everything_refused_is_an_error_of_this_library():
    for (space, source, *_), ask in itertools.product(WRONG, (DataSpecsMapping, is_flat_specs)):
        with pytest.raises(LayoutkitError):
            ask((space, source))
