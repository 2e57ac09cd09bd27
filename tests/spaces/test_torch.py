"""Spaces on tensors of PyTorch: what NumPy and JAX lack. test_tensors.py has the rest."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="tests of tensors need torch")

from layoutkit import Conv2DSpace, DtypeError, SpaceError, VectorSpace

IMAGES, VECTORS = Conv2DSpace((2, 3), 4, "chwb"), VectorSpace(24)


def test_gradients_pass_through_undo():
    y = torch.ones((5, 24), requires_grad=True)
    IMAGES.undo_format_as(y, VECTORS).sum().backward()
    assert y.grad.tolist() == torch.ones((5, 24)).tolist()


def test_bfloat16():
    x = torch.arange(48, dtype=torch.bfloat16).reshape(2, 24)
    images = VECTORS.format_as(x, IMAGES.with_dtype("bfloat16"))
    assert images.dtype == torch.bfloat16
    expected = VECTORS.format_as(x.float().numpy(), IMAGES)
    np.testing.assert_array_equal(images.float().numpy(), expected)


def test_sparse_tensors_are_refused():
    for call in (VECTORS.validate, lambda x: VECTORS.format_as(x, VECTORS)):
        with pytest.raises(SpaceError, match="is dense"):
            call(torch.zeros(5, 24).to_sparse())


def test_complex_numbers_lose_their_imaginary_part_only_when_asked():
    x = torch.tensor([[1 + 2j, 3 - 4j]])
    space, real = VectorSpace(2, dtype="complex64"), VectorSpace(2)
    with pytest.raises(DtypeError, match="same_kind"):
        space.format_as(x, real)
    assert space.format_as(x, real, casting="unsafe").tolist() == [[1, 3]]


def test_parameters_are_tensors():
    images = VECTORS.format_as(torch.nn.Parameter(torch.ones(2, 24)), IMAGES)
    assert images.requires_grad
    assert images.shape == (4, 2, 3, 2)


def test_strided_tensors():
    x = torch.arange(2 * 48, dtype=torch.float32).reshape(2, 48)[:, ::2]
    for space in (VECTORS, IMAGES):
        result = VECTORS.format_as(x, space)
        assert result.is_contiguous()
        np.testing.assert_array_equal(result.numpy(), VECTORS.format_as(x.numpy(), space))
