"""Spaces on batches of JAX: widths, traced errors and export. test_tensors.py has the rest."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tests of symbolic batches in JAX need jax")

import jax.numpy as jnp

from layoutkit import (
    ArgumentError,
    CompositeSpace,
    Conv2DSpace,
    DataError,
    DataSpecsMapping,
    DtypeError,
    IndexSpace,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
)
from tests.helpers.children import python
from tests.helpers.spaces_of import random_batch

pytestmark = pytest.mark.budget(4)

IMAGES, VECTORS, N = Conv2DSpace((2, 3), 4, "chwb"), VectorSpace(24), NullSpace()
struct = jax.ShapeDtypeStruct


def assert_same(result, expected):
    assert isinstance(result, jax.Array)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_labels_beyond_the_classes_of_a_narrow_dtype():
    labels = np.array([[100], [127]], "int8")
    wanted = IndexSpace(300, 1).format_as(labels, VectorSpace(300))
    assert_same(IndexSpace(300, 1).format_as(jnp.asarray(labels), VectorSpace(300)), wanted)


# ---- symbolic batches --------------------------------------------------------------------


def test_symbolic_batches():
    assert VECTORS.make_symbolic_batch(framework="jax") == struct((1, 24), "float32")
    assert IMAGES.make_symbolic_batch(7) == struct((4, 2, 3, 7), "float32")
    assert VECTORS.make_symbolic_batch(0, dtype="bfloat16") == struct((0, 24), "bfloat16")
    assert N.make_symbolic_batch(5) is None


def test_sequences_are_made_one_step_long():
    nested = CompositeSpace((VECTORS, VectorSequenceSpace(3)))
    made = nested.make_symbolic_batch(5)
    assert made[1] == struct((1, 3), "float32")
    assert nested.batch_size(made) == 5


def test_widths_are_those_that_jax_allows():
    assert VECTORS.make_symbolic_batch(dtype="float64").dtype == np.float32
    assert IndexSpace(4, 2).make_symbolic_batch().dtype == np.int32
    wide = IMAGES.with_dtype("float64")
    assert VECTORS.format_as(jnp.zeros((2, 24)), wide).dtype == np.float32
    code = """
import jax, warnings
warnings.simplefilter("error")
jax.config.update("jax_enable_x64", True)
from layoutkit import VectorSpace, IndexSpace
wide = VectorSpace(3, dtype="float64")
print(wide.make_symbolic_batch().dtype, IndexSpace(4, 2).make_symbolic_batch().dtype)
print(VectorSpace(3).format_as(VectorSpace(3).make_symbolic_batch(), wide).dtype)
"""
    assert python(code).split() == ["float64", "int64", "float64"]


def test_no_warning_of_widths():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = VECTORS.format_as(jnp.zeros((2, 24)), IMAGES.with_dtype("float64"))
        reals = VectorSpace(3, dtype="complex64").format_as(
            jnp.zeros((2, 3), "complex64"), VectorSpace(3), casting="unsafe"
        )
    assert (images.dtype, reals.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("framework", ["theano", None, 3])
def test_frameworks_have_names(framework):
    with pytest.raises(ArgumentError, match='"jax" or "torch"'):
        VECTORS.make_symbolic_batch(framework=framework)


def test_what_has_no_symbolic_batch():
    with pytest.raises(SpaceError, match="dense"):
        VectorSpace(3, sparse=True).make_symbolic_batch()
    with pytest.raises(DtypeError, match=r"component \[0\]: .*pass one"):
        CompositeSpace((VectorSpace(3, dtype=None),)).make_symbolic_batch()
    for dtype in ("datetime64[s]", "longdouble"):
        with pytest.raises(DtypeError, match="jax has no dtype"):
            VectorSpace(3, dtype=dtype).make_symbolic_batch()
    for n in (-1, 1.0, True):
        with pytest.raises(ShapeError, match="batch_size"):
            VECTORS.make_symbolic_batch(n)


# ---- checks ------------------------------------------------------------------------------


def test_it_is_checked_while_tracing():
    with pytest.raises(ShapeError, match="is 25, not 24"):
        jax.jit(lambda x: VECTORS.format_as(x, IMAGES))(jnp.zeros((5, 25)))


def test_keys_of_random_generators_are_no_numbers():
    with pytest.raises(DtypeError):
        VectorSpace(3, dtype=None).validate(jax.random.split(jax.random.key(0), (2, 3)))


def test_casts_saturate_at_the_width_that_there_is():
    other = VectorSpace(2, dtype="int64")
    found = VectorSpace(2).format_as(jnp.array([[1e20, -1e20]]), other, casting="saturate")
    assert_same(found, np.array([[2**31 - 1, -(2**31)]], "int32"))


# ---- more of JAX -------------------------------------------------------------------------


def test_batch_sizes_may_be_unknown():
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(lambda x: VECTORS.format_as(x, IMAGES)))(
        struct((n, 24), "float32")
    )
    (out,) = exported.out_avals
    assert out.shape[:3] == (4, 2, 3)
    batch = random_batch(VECTORS, 5)
    assert_same(exported.call(jnp.asarray(batch)), VECTORS.format_as(batch, IMAGES))


def test_traced_values_of_a_mapping_differ():
    mapping = DataSpecsMapping((CompositeSpace((VECTORS, VECTORS)), ("x", "x")))

    def both(x, y):
        return mapping.flatten((x, y))

    x = jnp.ones((5, 24))
    with pytest.raises(DataError, match="values differ"):
        jax.jit(both)(x, x)
