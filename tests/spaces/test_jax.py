"""Spaces on batches of JAX: traced, differentiated, and abstract."""

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
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
)
from tests.helpers.children import python
from tests.helpers.spaces_of import AXES, random_batch

pytestmark = pytest.mark.budget(4)

IMAGES, VECTORS, N = Conv2DSpace((2, 3), 4, "chwb"), VectorSpace(24), NullSpace()
PAIR = CompositeSpace((Conv2DSpace((2, 3), 3, "wbch"), CompositeSpace((N, VectorSpace(6)))))
LABELS = np.array([[0, 2], [3, 3], [1, 0]])
struct = jax.ShapeDtypeStruct


def traced(batch):
    return jax.tree.map(jnp.asarray, batch)


def assert_same(got, wanted):
    """Check that a batch of JAX equals a NumPy batch: nesting, shapes, dtypes, elements."""
    flat, tree = jax.tree.flatten(got)
    wanted, wanted_tree = jax.tree.flatten(wanted)
    assert tree == wanted_tree
    for one, other in zip(flat, wanted, strict=True):
        assert isinstance(one, jax.Array)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(np.asarray(one), other)


WAYS = [
    *[(Conv2DSpace((2, 3), 4, axes), VECTORS) for axes in AXES],
    *[(VECTORS, Conv2DSpace((2, 3), 4, axes)) for axes in AXES],
    (IMAGES, Conv2DSpace((2, 3), 4, "bchw", "float16")),
    (VECTORS, VectorSpace(24, dtype=None)),
    (PAIR, VECTORS),
    (VECTORS, PAIR),
    (PAIR, CompositeSpace((VectorSpace(18), CompositeSpace((N, Conv2DSpace((2, 3), 1)))))),
    (CompositeSpace((N, VECTORS)), VECTORS),
]


@pytest.mark.parametrize(("space", "other"), WAYS)
def test_traced_equals_numeric(space, other):
    batch = random_batch(space, 5)
    wanted = space.format_as(batch, other)
    assert_same(space.format_as(traced(batch), other), wanted)
    assert_same(jax.jit(lambda x: space.format_as(x, other))(traced(batch)), wanted)
    undone = space.undo_format_as(wanted, other)
    assert_same(jax.jit(lambda y: space.undo_format_as(y, other))(traced(wanted)), undone)


@pytest.mark.parametrize(("space", "other"), WAYS)
def test_shapes_alone_give_shapes(space, other):
    wanted = space.format_as(random_batch(space, 5), other)
    found = space.format_as(space.make_symbolic_batch(5), other)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), found) == jax.tree.map(
        lambda x: (x.shape, x.dtype), wanted
    )
    assert all(isinstance(leaf, struct) for leaf in jax.tree.leaves(found))
    back = space.undo_format_as(found, other)
    assert back == space.make_symbolic_batch(5)


@pytest.mark.parametrize(("space", "other"), [(IMAGES, VECTORS), (PAIR, VECTORS), (VECTORS, PAIR)])
def test_gradients_come_back_in_the_space_of_the_batch(space, other):
    """The gradient of <weights, format(x)> is undo_format(weights)."""
    batch, weights = random_batch(space, 5), random_batch(other, 5, seed=1)

    def loss(x):
        y = space.format_as(x, other)
        pairs = zip(jax.tree.leaves(y), jax.tree.leaves(weights), strict=True)
        return sum(jnp.vdot(a, b) for a, b in pairs)

    assert_same(jax.grad(loss)(traced(batch)), space.undo_format_as(weights, other))


@pytest.mark.parametrize("dim", [4, 8])
def test_one_hot(dim):
    for space, other in (
        (IndexSpace(4, 2), VectorSpace(dim)),
        (IndexSpace(4, 2, "int8"), VectorSpace(dim, dtype="float16")),
        (IndexSequenceSpace(4, 2), VectorSequenceSpace(dim)),
        (IndexSpace(4, 2), VectorSpace(dim, dtype=None)),
    ):
        labels = LABELS.astype(space.dtype)
        wanted = space.format_as(labels, other)
        assert_same(
            jax.jit(lambda x, s=space, o=other: s.format_as(x, o))(labels_of(labels)), wanted
        )


def labels_of(labels):
    return jnp.asarray(labels.astype("int32") if labels.dtype == "int64" else labels)


def test_one_hot_inside_a_composite():
    space = CompositeSpace((VECTORS, CompositeSpace((IndexSpace(4, 2), N))))
    other = CompositeSpace((IMAGES, CompositeSpace((VectorSpace(8), N))))
    batch = (random_batch(VECTORS, 3), (LABELS, None))
    wanted = space.format_as(batch, other)
    symbolic = traced((batch[0], (LABELS.astype("int32"), None)))
    assert_same(jax.jit(lambda x: space.format_as(x, other))(symbolic), wanted)


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
    nested = CompositeSpace((N, CompositeSpace((VECTORS, IndexSpace(4, 2, "int8")))))
    wanted = (None, (struct((5, 24), "float16"), struct((5, 2), "int8")))
    assert nested.make_symbolic_batch(5, dtype=(None, ("float16", None))) == wanted


def test_symbolic_labels_are_of_the_spaces_dtype():
    """Symbolic labels once were always 64-bit integers, and labels of sequences were floats."""
    for dtype in ("int8", "uint16", "int32"):
        assert IndexSpace(4, 2, dtype).make_symbolic_batch(3) == struct((3, 2), dtype)
        made = IndexSequenceSpace(4, 2, dtype).make_symbolic_batch()
        assert made.dtype == dtype
        IndexSequenceSpace(4, 2, dtype).validate(made)


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


@pytest.mark.parametrize(
    ("space", "batch", "error", "words"),
    [(VECTORS, struct((5, 25), "float32"), ShapeError, "is 25, not 24"),
     (VECTORS, struct((24,), "float32"), ShapeError, "rank is 1"),
     (VECTORS, struct((5, 24), "complex64"), DtypeError, "complex64"),
     (IndexSpace(4, 2), struct((5, 2), "float32"), DtypeError, "integers"),
     (PAIR, (struct((3, 5, 3, 2), "float32"), (None, struct((4, 6), "float32"))), ShapeError,
      r"\[0\] has 5 samples, \[1\]\[1\] has 4"),
     (PAIR, (struct((3, 5, 3, 3), "float32"), (None, struct((5, 6), "float32"))), ShapeError,
      r"component \[0\]: .*rows\) is 3, not 2"),
     (N, struct((), "float32"), SpaceError, "holds no data"),
     (VectorSpace(3, sparse=True), struct((5, 3), "float32"), SpaceError, "scipy"),
     (PAIR, (np.zeros((3, 5, 3, 2)), (None, struct((5, 6), "float32"))), SpaceError,
      "of NumPy, but .* of jax")],
)  # fmt: skip
def test_what_is_static_is_checked(space, batch, error, words):
    with pytest.raises(error, match=words):
        space.validate(batch)


def test_it_is_checked_while_tracing():
    with pytest.raises(ShapeError, match="is 25, not 24"):
        jax.jit(lambda x: VECTORS.format_as(x, IMAGES))(jnp.zeros((5, 25)))


def test_keys_of_random_generators_are_no_numbers():
    with pytest.raises(DtypeError):
        VectorSpace(3, dtype=None).validate(jax.random.split(jax.random.key(0), (2, 3)))


def test_dtypes_that_jax_lacks():
    with pytest.raises(DtypeError, match="jax has no dtype"):
        VECTORS.format_as(jnp.zeros((2, 24)), VectorSpace(24, dtype="longdouble"))
    with pytest.raises(SpaceError, match=r"scipy\.sparse"):
        VECTORS.format_as(jnp.zeros((2, 24)), VectorSpace(24, sparse=True))
    with pytest.raises(DtypeError, match="same_kind"):
        VECTORS.format_as(jnp.zeros((2, 24)), VectorSpace(24, dtype="int32"))


ODD = np.array([[0.5, 1.5, 2.5, -0.5, -7.3, 300.7, np.nan, np.inf, -np.inf, 1e12]], "float32")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint32"])
def test_saturating_casts_equal_numeric_ones(dtype):
    for source in ("float32", "float16"):
        x = ODD.astype(source) if source == "float32" else np.clip(ODD, -6e4, 6e4).astype(source)
        other = VectorSpace(10, dtype=dtype)
        wanted = VectorSpace(10).format_as(x, other, casting="saturate")
        assert_same(VectorSpace(10).format_as(jnp.asarray(x), other, casting="saturate"), wanted)


def test_casts_saturate_at_the_width_that_there_is():
    other = VectorSpace(2, dtype="int64")
    found = VectorSpace(2).format_as(jnp.array([[1e20, -1e20]]), other, casting="saturate")
    assert_same(found, np.array([[2**31 - 1, -(2**31)]], "int32"))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint32", "bool"])
def test_unsafe_casts_equal_numeric_ones_where_c_defines_them(dtype):
    other = VectorSpace(6, dtype=dtype)
    wanted = VectorSpace(6).format_as(ODD[:, :6], other, casting="unsafe")
    found = VectorSpace(6).format_as(jnp.asarray(ODD[:, :6]), other, casting="unsafe")
    assert_same(found, wanted)


def test_integers_saturate_to_integers():
    x = np.array([[-300, -1, 0, 200, 70000]], "int32")
    space = VectorSpace(5, dtype="int32")
    for dtype in ("uint8", "int8", "uint16", "uint32"):
        other = VectorSpace(5, dtype=dtype)
        wanted = space.format_as(x, other, casting="saturate")
        assert_same(space.format_as(jnp.asarray(x), other, casting="saturate"), wanted)


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


def test_vmap():
    many = random_batch(VectorSpace(24), 15).reshape(3, 5, 24)
    found = jax.vmap(lambda x: VECTORS.format_as(x, IMAGES))(jnp.asarray(many))
    assert_same(found[1], VECTORS.format_as(many[1], IMAGES))


def test_mappings_take_traced_data():
    mapping = DataSpecsMapping((CompositeSpace((VECTORS, VECTORS)), ("x", "x")))

    def both(x, y):
        return mapping.flatten((x, y))

    x = jnp.ones((5, 24))
    assert mapping.flatten((x, x)) is x
    assert mapping.flatten((x, jnp.ones((5, 24)))) is x
    assert jax.jit(lambda x: mapping.flatten((x, x)))(x).shape == (5, 24)
    with pytest.raises(DataError, match="values differ"):
        mapping.flatten((x, jnp.zeros((5, 24))))
    with pytest.raises(DataError, match="values differ"):
        jax.jit(both)(x, x)


def test_jax_is_not_loaded_before_it_is_asked_for():
    code = """
import sys
from layoutkit import VectorSpace
before = "jax" in sys.modules
VectorSpace(3).make_symbolic_batch(framework="jax")
print(before, "jax" in sys.modules, "torch" in sys.modules)
"""
    assert python(code) == "False True False\n"
