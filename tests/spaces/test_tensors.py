"""Spaces on batches of JAX and PyTorch: equal to NumPy's, with gradients, and without data."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

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

pytestmark = pytest.mark.budget(8)

IMAGES, VECTORS, N = Conv2DSpace((2, 3), 4, "chwb"), VectorSpace(24), NullSpace()
PAIR = CompositeSpace((Conv2DSpace((2, 3), 3, "wbch"), CompositeSpace((N, VectorSpace(6)))))
LABELS = np.array([[0, 2], [3, 3], [1, 0]])


def mapped(function, batch):
    if isinstance(batch, tuple):
        return tuple(mapped(function, part) for part in batch)
    return None if batch is None else function(batch)


def flat(batch):
    if isinstance(batch, tuple):
        return [leaf for part in batch for leaf in flat(part)]
    return [] if batch is None else [batch]


def jax_library():
    """Return JAX; its calls are traced."""
    jax = pytest.importorskip("jax", reason="symbolic batches of JAX need jax")
    return SimpleNamespace(
        kind=jax.Array,
        array=lambda x: jax.numpy.asarray(x.astype("int32") if x.dtype == "int64" else x),
        numpy=np.asarray,
        symbol=lambda shape, dtype="float32": jax.ShapeDtypeStruct(shape, dtype),
        run=lambda call, batch: jax.jit(call)(batch),
        gradient=lambda loss, batch: jax.grad(lambda x: sum(loss(x)))(batch),
        vmap=jax.vmap,
    )


def torch_library():
    torch = pytest.importorskip("torch", reason="symbolic batches of PyTorch need torch")

    def gradient(loss, batch):
        for leaf in flat(batch):
            leaf.requires_grad_()
        sum(loss(batch)).backward()
        return mapped(lambda x: x.grad, batch)

    def symbol(shape, dtype="float32"):
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")

    return SimpleNamespace(
        kind=torch.Tensor,
        array=torch.tensor,
        numpy=lambda x: x.detach().contiguous().numpy(),
        symbol=symbol,
        run=lambda call, batch: call(batch),
        gradient=gradient,
        vmap=torch.func.vmap,
    )


LIBRARIES = {"jax": jax_library, "torch": torch_library}


@pytest.fixture(params=LIBRARIES)
def name(request):
    return request.param


@pytest.fixture
def library(name):
    return LIBRARIES[name]()


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="symbolic batches of JAX need jax")


OF_JAX = pytest.mark.parametrize("name", ["jax"])


@pytest.fixture
def assert_same(library):
    """Return a check that a batch equals a NumPy batch: nesting, shapes, dtypes, elements."""

    def check(got, expected):
        assert mapped(lambda _: 0, got) == mapped(lambda _: 0, expected)
        for one, other in zip(flat(got), flat(expected), strict=True):
            assert isinstance(one, library.kind)
            array = library.numpy(one)
            assert (array.shape, array.dtype) == (other.shape, other.dtype)
            np.testing.assert_array_equal(array, other)

    return check


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
def test_results_equal_those_of_numpy(library, assert_same, space, other):
    batch = random_batch(space, 5)
    expected = space.format_as(batch, other)
    tensors = mapped(library.array, batch)
    assert_same(space.format_as(tensors, other), expected)
    assert_same(library.run(lambda x: space.format_as(x, other), tensors), expected)
    undone = space.undo_format_as(expected, other)
    back = library.run(lambda y: space.undo_format_as(y, other), mapped(library.array, expected))
    assert_same(back, undone)


@pytest.mark.parametrize(("space", "other"), WAYS)
def test_shapes_alone_give_shapes(name, library, space, other):
    expected = flat(space.format_as(random_batch(space, 5), other))
    symbolic = space.make_symbolic_batch(5, framework=name)
    result = space.format_as(symbolic, other)
    for one, array in zip(flat(result), expected, strict=True):
        like = library.symbol(array.shape, str(array.dtype))
        assert (type(one), one.shape, one.dtype) == (type(like), like.shape, like.dtype)
        assert getattr(one, "device", None) == getattr(like, "device", None)  # "meta" of torch
    back = space.undo_format_as(result, other)
    assert [(x.shape, x.dtype) for x in flat(back)] == [(x.shape, x.dtype) for x in flat(symbolic)]


@pytest.mark.parametrize(("space", "other"), [(IMAGES, VECTORS), (PAIR, VECTORS), (VECTORS, PAIR)])
def test_gradients_are_in_the_space_of_the_batch(library, assert_same, space, other):
    """The gradient of <weights, format(x)> is undo_format(weights)."""
    weights = random_batch(other, 5, seed=1)
    pairs = mapped(library.array, weights)

    def products(x):
        y = space.format_as(x, other)
        return [(a * b).sum() for a, b in zip(flat(y), flat(pairs), strict=True)]

    gradient = library.gradient(products, mapped(library.array, random_batch(space, 5)))
    assert_same(gradient, space.undo_format_as(weights, other))


@pytest.mark.parametrize("dim", [4, 8])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint16"])
def test_one_hot(library, assert_same, dim, dtype):
    labels = LABELS.astype(dtype)
    for space, other in (
        (IndexSpace(4, 2, dtype), VectorSpace(dim)),
        (IndexSpace(4, 2, dtype), VectorSpace(dim, dtype="float16")),
        (IndexSequenceSpace(4, 2, dtype), VectorSequenceSpace(dim)),
        (IndexSpace(4, 2, dtype), VectorSpace(dim, dtype=None)),
    ):
        expected = space.format_as(labels, other)
        result = library.run(lambda x, s=space, o=other: s.format_as(x, o), library.array(labels))
        assert_same(result, expected)
        symbol = library.symbol(labels.shape, "int32" if dtype == "int64" else dtype)
        assert space.format_as(symbol, other).shape == expected.shape


def test_one_hot_inside_a_composite(library, assert_same):
    space = CompositeSpace((VECTORS, CompositeSpace((IndexSpace(4, 2), N))))
    other = CompositeSpace((IMAGES, CompositeSpace((VectorSpace(8), N))))
    batch = (random_batch(VECTORS, 3), (LABELS, None))
    result = library.run(lambda x: space.format_as(x, other), mapped(library.array, batch))
    assert_same(result, space.format_as(batch, other))


# ---- symbolic batches ------------------------------------------------------------------------


def test_symbolic_batches_of_nested_spaces(name, library):
    nested = CompositeSpace((N, CompositeSpace((VECTORS, IndexSpace(4, 2, "int8")))))
    for dtype, expected in [(None, "float32"), ((None, ("float16", None)), "float16")]:
        batch = nested.make_symbolic_batch(5, dtype=dtype, framework=name)
        likes = library.symbol((5, 24), expected), library.symbol((5, 2), "int8")
        assert [mapped(lambda _: 0, batch)] == [(None, (0, 0))]
        assert [(x.shape, x.dtype) for x in flat(batch)] == [(x.shape, x.dtype) for x in likes]
        nested.validate(batch)
        assert nested.batch_size(batch) == 5
    assert IMAGES.make_symbolic_batch(framework=name).shape == (4, 2, 3, 1)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32"])
def test_symbolic_labels_are_of_the_spaces_dtype(name, library, dtype):
    for space, shape in (
        (IndexSpace(4, 2, dtype), (1, 2)),
        (IndexSequenceSpace(4, 2, dtype), (1, 2)),
    ):
        labels = space.make_symbolic_batch(framework=name)
        assert (labels.shape, labels.dtype) == (shape, library.symbol((), dtype).dtype)
        space.validate(labels)


# ---- checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "shapes", "error", "words"),
    [(VECTORS, (5, 25), ShapeError, "is 25, not 24"),
     (VECTORS, (24,), ShapeError, "rank is 1"),
     (VectorSpace(3, dtype="int32"), (5, 3), DtypeError, "float32"),
     (IndexSpace(4, 2), (5, 2), DtypeError, "integers"),
     (PAIR, ((3, 5, 3, 2), (None, (4, 6))), ShapeError, r"\[0\] has 5 samples, \[1\]\[1\] has 4"),
     (PAIR, ((3, 5, 3, 3), (None, (5, 6))), ShapeError, r"component \[0\]: .*rows\) is 3, not 2"),
     (N, (), SpaceError, "holds no data"),
     (VectorSpace(3, sparse=True), (5, 3), SpaceError, "scipy")],
)  # fmt: skip
def test_what_is_static_is_checked(library, space, shapes, error, words):
    def symbols(part):
        if part is None or all(isinstance(size, int) for size in part):
            return None if part is None else library.symbol(part)
        return tuple(symbols(inner) for inner in part)

    batch = symbols(shapes)
    for call in (space.validate, lambda x: space.format_as(x, space)):
        with pytest.raises(error, match=words):
            call(batch)


def test_arrays_of_two_libraries_are_refused(name, library):
    batch = (library.symbol((3, 5, 3, 2)), (None, np.zeros((5, 6))))
    with pytest.raises(SpaceError, match=f"of {name}, but .* of NumPy"):
        PAIR.validate(batch)


def test_dtypes_that_the_library_lacks(name, library):
    x = library.array(np.zeros((2, 24), "float32"))
    for dtype in ("datetime64[s]", "longdouble"):
        with pytest.raises(DtypeError, match=f"{name} has no dtype"):
            VectorSpace(3, dtype=dtype).make_symbolic_batch(framework=name)
    with pytest.raises(DtypeError, match=f"{name} has no dtype"):
        VECTORS.format_as(x, VectorSpace(24, dtype="longdouble"))
    with pytest.raises(SpaceError, match=r"scipy\.sparse"):
        VECTORS.format_as(x, VectorSpace(24, sparse=True))
    with pytest.raises(DtypeError, match="same_kind"):
        VECTORS.format_as(x, VectorSpace(24, dtype="int32"))


# ---- casts -----------------------------------------------------------------------------------

ODD = np.array([[0.5, 1.5, 2.5, -0.5, -7.3, 300.7, np.nan, np.inf, -np.inf, 1e12]], "float32")
INTEGERS = np.array([[-300, -1, 0, 200, 70000]], "int32")
HALVES = np.clip(ODD, -6e4, 6e4).astype("float16")
SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32"]
CASTS = [
    *[(x, dtype, "saturate") for x in (ODD, HALVES, INTEGERS) for dtype in (*SIGNED, *UNSIGNED)],
    # C does not define other casts of floats.
    *[(ODD[:, :6], dtype, "unsafe") for dtype in (*SIGNED, "uint8", "bool")],
]
LACKS = {"jax": {"int64"}, "torch": {"uint16", "uint32"}}  # 64 bits by default; saturated casts


@pytest.mark.budget(8)
@pytest.mark.parametrize(("x", "dtype", "casting"), CASTS)
def test_casts_equal_those_of_numpy(name, library, assert_same, x, dtype, casting):
    if dtype in LACKS[name]:
        pytest.skip(f"{name} does not cast to {dtype}")
    space = VectorSpace(x.shape[1], dtype=str(x.dtype) if x.dtype.kind == "i" else "float32")
    other = VectorSpace(x.shape[1], dtype=dtype)
    expected = space.format_as(x, other, casting=casting)
    assert_same(space.format_as(library.array(x), other, casting=casting), expected)


# ---- more ------------------------------------------------------------------------------------


def test_vmap(library, assert_same):
    many = random_batch(VectorSpace(24), 15).reshape(3, 5, 24)
    result = library.vmap(lambda x: VECTORS.format_as(x, IMAGES))(library.array(many))
    assert_same(result[1], VECTORS.format_as(many[1], IMAGES))


def test_mappings_take_tensors(library):
    mapping = DataSpecsMapping((CompositeSpace((VECTORS, VECTORS)), ("x", "x")))
    x, equal, other = (library.array(np.full((5, 24), n, "float32")) for n in (1, 1, 0))
    assert mapping.flatten((x, x)) is x
    assert mapping.flatten((x, equal)) is x
    assert mapping.nest(x)[1] is x
    assert library.run(lambda x: mapping.flatten((x, x)), x).shape == (5, 24)
    for second in (other, library.symbol((5, 24)), np.ones((5, 24), "float32")):
        with pytest.raises(DataError, match="values differ"):
            mapping.flatten((x, second))


def test_a_library_is_not_loaded_before_it_is_asked_for(name, library):
    code = f"""
import sys
from layoutkit import VectorSpace
before = "{name}" in sys.modules
VectorSpace(3).make_symbolic_batch(framework="{name}")
print(before, *[other for other in ("jax", "torch") if other in sys.modules])
"""
    assert python(code) == f"False {name}\n"


# ---- JAX: widths, traced errors and export ---------------------------------------------------


@OF_JAX
def test_labels_beyond_the_classes_of_a_narrow_dtype(assert_same, jax):
    labels = np.array([[100], [127]], "int8")
    wanted = IndexSpace(300, 1).format_as(labels, VectorSpace(300))
    assert_same(IndexSpace(300, 1).format_as(jax.numpy.asarray(labels), VectorSpace(300)), wanted)


def test_symbolic_batches(jax):
    struct = jax.ShapeDtypeStruct
    assert VECTORS.make_symbolic_batch(framework="jax") == struct((1, 24), "float32")
    assert IMAGES.make_symbolic_batch(7) == struct((4, 2, 3, 7), "float32")
    assert VECTORS.make_symbolic_batch(0, dtype="bfloat16") == struct((0, 24), "bfloat16")
    assert N.make_symbolic_batch(5) is None


def test_sequences_are_made_one_step_long(jax):
    nested = CompositeSpace((VECTORS, VectorSequenceSpace(3)))
    made = nested.make_symbolic_batch(5)
    assert made[1] == jax.ShapeDtypeStruct((1, 3), "float32")
    assert nested.batch_size(made) == 5


def test_widths_are_those_that_jax_allows(jax):
    assert VECTORS.make_symbolic_batch(dtype="float64").dtype == np.float32
    assert IndexSpace(4, 2).make_symbolic_batch().dtype == np.int32
    wide = IMAGES.with_dtype("float64")
    assert VECTORS.format_as(jax.numpy.zeros((2, 24)), wide).dtype == np.float32
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


def test_no_warning_of_widths(jax):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = VECTORS.format_as(jax.numpy.zeros((2, 24)), IMAGES.with_dtype("float64"))
        reals = VectorSpace(3, dtype="complex64").format_as(
            jax.numpy.zeros((2, 3), "complex64"), VectorSpace(3), casting="unsafe"
        )
    assert (images.dtype, reals.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("framework", ["theano", None, 3])
def test_frameworks_have_names(framework):
    with pytest.raises(ArgumentError, match='"jax" or "torch"'):
        VECTORS.make_symbolic_batch(framework=framework)


def test_what_has_no_symbolic_batch(jax):
    with pytest.raises(SpaceError, match="dense"):
        VectorSpace(3, sparse=True).make_symbolic_batch()
    with pytest.raises(DtypeError, match=r"component \[0\]: .*pass one"):
        CompositeSpace((VectorSpace(3, dtype=None),)).make_symbolic_batch()
    for n in (-1, 1.0, True):
        with pytest.raises(ShapeError, match="batch_size"):
            VECTORS.make_symbolic_batch(n)


def test_it_is_checked_while_tracing(jax):
    with pytest.raises(ShapeError, match="is 25, not 24"):
        jax.jit(lambda x: VECTORS.format_as(x, IMAGES))(jax.numpy.zeros((5, 25)))


def test_keys_of_random_generators_are_no_numbers(jax):
    with pytest.raises(DtypeError):
        VectorSpace(3, dtype=None).validate(jax.random.split(jax.random.key(0), (2, 3)))


@OF_JAX
def test_casts_saturate_at_the_width_that_there_is(assert_same, jax):
    other = VectorSpace(2, dtype="int64")
    found = VectorSpace(2).format_as(jax.numpy.array([[1e20, -1e20]]), other, casting="saturate")
    assert_same(found, np.array([[2**31 - 1, -(2**31)]], "int32"))


@OF_JAX
def test_batch_sizes_may_be_unknown(assert_same, jax):
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(lambda x: VECTORS.format_as(x, IMAGES)))(
        jax.ShapeDtypeStruct((n, 24), "float32")
    )
    (out,) = exported.out_avals
    assert out.shape[:3] == (4, 2, 3)
    batch = random_batch(VECTORS, 5)
    assert_same(exported.call(jax.numpy.asarray(batch)), VECTORS.format_as(batch, IMAGES))


def test_traced_values_of_a_mapping_differ(jax):
    mapping = DataSpecsMapping((CompositeSpace((VECTORS, VECTORS)), ("x", "x")))

    def both(x, y):
        return mapping.flatten((x, y))

    x = jax.numpy.ones((5, 24))
    with pytest.raises(DataError, match="values differ"):
        jax.jit(both)(x, x)
