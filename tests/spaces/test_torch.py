"""Spaces on tensors of PyTorch: on the CPU, on the meta device, with gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="tests of symbolic batches in PyTorch need torch")

from layoutkit import (
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


def mapped(function, batch):
    if isinstance(batch, tuple):
        return tuple(mapped(function, part) for part in batch)
    return None if batch is None else function(batch)


def flat(batch):
    if isinstance(batch, tuple):
        return [leaf for part in batch for leaf in flat(part)]
    return [] if batch is None else [batch]


def tensors(batch, grad=False):
    return mapped(lambda x: torch.tensor(x, requires_grad=grad), batch)


def assert_same(got, wanted):
    """Check that a batch of tensors equals a NumPy batch: nesting, shapes, dtypes, elements."""
    if isinstance(wanted, tuple):
        assert type(got) is tuple
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_same(one, other)
    elif wanted is None:
        assert got is None
    else:
        assert isinstance(got, torch.Tensor)
        assert got.is_contiguous()
        found = got.detach().numpy()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(found, wanted)


WAYS = [
    *[(Conv2DSpace((2, 3), 4, axes), VECTORS) for axes in AXES],
    *[(VECTORS, Conv2DSpace((2, 3), 4, axes)) for axes in AXES],
    (IMAGES, Conv2DSpace((2, 3), 4, "bchw", "float64")),
    (VECTORS, VectorSpace(24, dtype=None)),
    (PAIR, VECTORS),
    (VECTORS, PAIR),
    (PAIR, CompositeSpace((VectorSpace(18), CompositeSpace((N, Conv2DSpace((2, 3), 1)))))),
    (CompositeSpace((N, VECTORS)), VECTORS),
]


@pytest.mark.parametrize(("space", "other"), WAYS)
def test_tensors_equal_numbers(space, other):
    batch = random_batch(space, 5)
    wanted = space.format_as(batch, other)
    assert_same(space.format_as(tensors(batch), other), wanted)
    undone = space.undo_format_as(wanted, other)
    assert_same(space.undo_format_as(tensors(wanted), other), undone)


@pytest.mark.parametrize(("space", "other"), WAYS)
def test_meta_tensors_stay_there(space, other):
    wanted = space.format_as(random_batch(space, 5), other)
    made = space.make_symbolic_batch(5, framework="torch")
    found = space.format_as(made, other)
    for one, number in zip(flat(found), flat(wanted), strict=True):
        assert one.device.type == "meta"
        assert one.shape == number.shape
        assert str(one.dtype) == f"torch.{number.dtype}"
    back = space.undo_format_as(found, other)
    assert [(x.shape, x.dtype) for x in flat(back)] == [(x.shape, x.dtype) for x in flat(made)]


@pytest.mark.parametrize(("space", "other"), [(IMAGES, VECTORS), (PAIR, VECTORS), (VECTORS, PAIR)])
def test_gradients_come_back_in_the_space_of_the_batch(space, other):
    """The gradient of <weights, format(x)> is undo_format(weights)."""
    batch = tensors(random_batch(space, 5), grad=True)
    weights = random_batch(other, 5, seed=1)
    y = space.format_as(batch, other)
    pairs = zip(flat(y), flat(tensors(weights)), strict=True)
    sum((a * b).sum() for a, b in pairs).backward()
    wanted = space.undo_format_as(weights, other)
    for x, grad in zip(flat(batch), flat(wanted), strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), grad)


def test_gradients_pass_through_undo():
    y = torch.ones((5, 24), requires_grad=True)
    IMAGES.undo_format_as(y, VECTORS).sum().backward()
    assert y.grad.tolist() == torch.ones((5, 24)).tolist()


@pytest.mark.parametrize("dim", [4, 8])
@pytest.mark.parametrize("labels", ["int64", "uint8", "uint16"])
def test_one_hot(dim, labels):
    for space, other in (
        (IndexSpace(4, 2, labels), VectorSpace(dim)),
        (IndexSpace(4, 2, labels), VectorSpace(dim, dtype="float16")),
        (IndexSequenceSpace(4, 2, labels), VectorSequenceSpace(dim)),
        (IndexSpace(4, 2, labels), VectorSpace(dim, dtype=None)),
    ):
        x = LABELS.astype(labels)
        assert_same(space.format_as(torch.tensor(x), other), space.format_as(x, other))
        meta = space.format_as(torch.tensor(x, device="meta"), other)
        assert meta.shape == (3, dim)


def test_one_hot_inside_a_composite():
    space = CompositeSpace((VECTORS, CompositeSpace((IndexSpace(4, 2), N))))
    other = CompositeSpace((IMAGES, CompositeSpace((VectorSpace(8), N))))
    batch = (random_batch(VECTORS, 3), (LABELS, None))
    assert_same(space.format_as(tensors(batch), other), space.format_as(batch, other))


def test_bfloat16():
    x = torch.arange(48, dtype=torch.bfloat16).reshape(2, 24)
    found = VECTORS.format_as(x, IMAGES.with_dtype("bfloat16"))
    assert found.dtype == torch.bfloat16
    wanted = VECTORS.format_as(x.float().numpy(), IMAGES)
    np.testing.assert_array_equal(found.float().numpy(), wanted)


# ---- symbolic batches --------------------------------------------------------------------


def test_symbolic_batches_are_on_the_meta_device():
    nested = CompositeSpace((N, CompositeSpace((VECTORS, IndexSpace(4, 2)))))
    made = nested.make_symbolic_batch(5, framework="torch")
    assert made[0] is None
    assert [x.device.type for x in flat(made)] == ["meta", "meta"]
    assert [tuple(x.shape) for x in flat(made)] == [(5, 24), (5, 2)]
    assert [x.dtype for x in flat(made)] == [torch.float32, torch.int64]
    nested.validate(made)
    assert nested.batch_size(made) == 5
    narrow = nested.make_symbolic_batch(5, dtype=(None, ("float16", "int8")), framework="torch")
    assert [x.dtype for x in flat(narrow)] == [torch.float16, torch.int8]
    assert IMAGES.make_symbolic_batch(framework="torch").shape == (4, 2, 3, 1)


def test_symbolic_labels_of_sequences():
    made = IndexSequenceSpace(4, 2, "int32").make_symbolic_batch(framework="torch")
    assert (tuple(made.shape), made.dtype) == ((1, 2), torch.int32)
    IndexSequenceSpace(4, 2, "int32").validate(made)


# ---- checks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "batch", "error", "words"),
    [(VECTORS, torch.zeros(5, 25), ShapeError, "is 25, not 24"),
     (VECTORS, torch.zeros(24), ShapeError, "rank is 1"),
     (VectorSpace(3, dtype="int32"), torch.zeros(5, 3), DtypeError, "float32"),
     (IndexSpace(4, 2), torch.zeros(5, 2), DtypeError, "integers"),
     (PAIR, (torch.zeros(3, 5, 3, 2), (None, torch.zeros(4, 6))), ShapeError,
      r"\[0\] has 5 samples, \[1\]\[1\] has 4"),
     (VECTORS, torch.zeros(5, 24).to_sparse(), SpaceError, "is dense"),
     (VectorSpace(3, sparse=True), torch.zeros(5, 3), SpaceError, r"scipy\.sparse"),
     (PAIR, (torch.zeros(3, 5, 3, 2), (None, np.zeros((5, 6)))), SpaceError,
      "of torch, but .* of NumPy")],
)  # fmt: skip
def test_what_is_static_is_checked(space, batch, error, words):
    with pytest.raises(error, match=words):
        space.validate(batch)
    with pytest.raises(error, match=words):
        space.format_as(batch, space)


def test_what_torch_lacks():
    x = torch.zeros(2, 24)
    with pytest.raises(DtypeError, match="torch has no dtype"):
        VECTORS.format_as(x, VectorSpace(24, dtype="longdouble"))
    with pytest.raises(DtypeError, match="torch has no dtype"):
        VectorSpace(24, dtype="datetime64[s]").make_symbolic_batch(framework="torch")
    with pytest.raises(SpaceError, match=r"scipy\.sparse"):
        VECTORS.format_as(x, VectorSpace(24, sparse=True))
    with pytest.raises(DtypeError, match="same_kind"):
        VECTORS.format_as(x, VectorSpace(24, dtype="int32"))


ODD = np.array([[0.5, 1.5, 2.5, -0.5, -7.3, 300.7, np.nan, np.inf, -np.inf, 1e12]], "float32")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_saturating_casts_equal_numeric_ones(dtype):
    for source in ("float32", "float16"):
        x = ODD if source == "float32" else np.clip(ODD, -6e4, 6e4).astype(source)
        other = VectorSpace(10, dtype=dtype)
        wanted = VectorSpace(10).format_as(x, other, casting="saturate")
        assert_same(VectorSpace(10).format_as(torch.tensor(x), other, casting="saturate"), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_unsafe_casts_equal_numeric_ones_where_c_defines_them(dtype):
    other = VectorSpace(6, dtype=dtype)
    wanted = VectorSpace(6).format_as(ODD[:, :6], other, casting="unsafe")
    found = VectorSpace(6).format_as(torch.tensor(ODD[:, :6]), other, casting="unsafe")
    assert_same(found, wanted)


def test_integers_saturate_to_integers():
    x = np.array([[-300, -1, 0, 200, 70000]], "int32")
    space = VectorSpace(5, dtype="int32")
    for dtype in ("uint8", "int8", "int16"):
        other = VectorSpace(5, dtype=dtype)
        wanted = space.format_as(x, other, casting="saturate")
        assert_same(space.format_as(torch.tensor(x), other, casting="saturate"), wanted)


def test_complex_numbers_lose_their_imaginary_part_only_when_asked():
    x = torch.tensor([[1 + 2j, 3 - 4j]])
    space, real = VectorSpace(2, dtype="complex64"), VectorSpace(2)
    with pytest.raises(DtypeError, match="same_kind"):
        space.format_as(x, real)
    assert space.format_as(x, real, casting="unsafe").tolist() == [[1, 3]]


# ---- more of PyTorch ---------------------------------------------------------------------


def test_parameters_are_tensors():
    found = VECTORS.format_as(torch.nn.Parameter(torch.ones(2, 24)), IMAGES)
    assert found.requires_grad
    assert found.shape == (4, 2, 3, 2)


def test_strided_tensors():
    x = torch.arange(2 * 48, dtype=torch.float32).reshape(2, 48)[:, ::2]
    assert_same(VECTORS.format_as(x, VECTORS), x.numpy())
    assert_same(VECTORS.format_as(x, IMAGES), VECTORS.format_as(x.numpy(), IMAGES))


def test_vmap():
    many = random_batch(VectorSpace(24), 15).reshape(3, 5, 24)
    found = torch.func.vmap(lambda x: VECTORS.format_as(x, IMAGES))(torch.tensor(many))
    assert_same(found[1].contiguous(), VECTORS.format_as(many[1], IMAGES))


def test_mappings_take_tensors():
    mapping = DataSpecsMapping((CompositeSpace((VECTORS, VECTORS)), ("x", "x")))
    x = torch.ones((5, 24), requires_grad=True)
    assert mapping.flatten((x, x)) is x
    assert mapping.flatten((x, torch.ones(5, 24))) is x
    assert mapping.nest(x)[1] is x
    meta = torch.ones((5, 24), device="meta")
    assert mapping.flatten((meta, meta)) is meta
    for other in (torch.zeros(5, 24), torch.ones((5, 24), device="meta"), np.ones((5, 24), "f4")):
        with pytest.raises(DataError, match="values differ"):
            mapping.flatten((x, other))


def test_torch_is_not_loaded_before_it_is_asked_for():
    code = """
import sys
from layoutkit import VectorSpace
before = "torch" in sys.modules
VectorSpace(3).make_symbolic_batch(framework="torch")
print(before, "torch" in sys.modules, "jax" in sys.modules)
"""
    assert python(code) == "False True False\n"
