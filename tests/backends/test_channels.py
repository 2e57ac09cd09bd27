"""`channels=` with arrays of other libraries: memory, graphs and names."""

import numpy as np
import pytest

from layoutkit import Collator, Converter, convert

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 5, 40, 4)).astype(np.float32)
ORDERS = [(2, 1, 0), (2, 1, 0, 3), (0, 0), (3,), (0, 2, 1)]


def made(order):
    """Return a Converter, its result, a gradient of the result and the gradient of x."""
    to = Converter("bhwc->bchw", channels=order, scale=0.5, std=tuple(range(1, 1 + len(order))))
    y = to(X)
    grad = RNG.standard_normal(y.shape).astype(np.float32)
    return to, y, grad, to.backward(grad, like=X)


@pytest.mark.parametrize("order", ORDERS)
def test_tensors(order):
    torch = pytest.importorskip("torch")
    to, y, grad, back = made(order)
    x = torch.from_numpy(X).clone().requires_grad_()
    result = to(x)
    np.testing.assert_allclose(result.detach().numpy(), y)
    (first,) = torch.autograd.grad(result, x, torch.from_numpy(grad), create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), back, rtol=1e-6)
    # Second-order gradients, and torch.func, for which layoutkit uses torch operations.
    seed = torch.from_numpy(grad).requires_grad_()
    (first,) = torch.autograd.grad(to(x), x, seed, create_graph=True)
    (second,) = torch.autograd.grad(first, seed, torch.from_numpy(X))
    np.testing.assert_allclose(second.numpy(), y, rtol=1e-6)
    total = torch.func.grad(lambda x: (to(x) * torch.from_numpy(grad)).sum())(x.detach())
    np.testing.assert_allclose(total.numpy(), back, rtol=1e-6)


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 0), (0, 2, 1)])
def test_tensors_that_are_traced(order):
    proxy = pytest.importorskip("torch.fx.experimental.proxy_tensor")
    torch = pytest.importorskip("torch")
    to, y, grad, back = made(order)
    x = torch.from_numpy(X)
    graph = proxy.make_fx(to)(x)
    assert "layoutkit.convert" in graph.code
    np.testing.assert_allclose(graph(x).numpy(), y)

    def gradient(x):
        return torch.autograd.grad(to(x), x, torch.from_numpy(grad))[0]

    graph = proxy.make_fx(gradient)(x.clone().requires_grad_())
    result = graph(x.clone().requires_grad_())
    np.testing.assert_allclose(result.detach().numpy(), back, rtol=1e-6)
    larger = {"channels": order, "pad_to": {"h": 8}, "fill": [1, 2, 3, 4]}
    graph = proxy.make_fx(lambda x: convert(x, "bhwc->bchw", **larger))(x)
    np.testing.assert_array_equal(graph(x).numpy(), convert(X, "bhwc->bchw", **larger))


@pytest.mark.parametrize("order", ORDERS)
def test_arrays_of_jax(order):
    jax = pytest.importorskip("jax")
    to, y, grad, back = made(order)
    x = jax.numpy.asarray(X)
    np.testing.assert_allclose(to(x), y)
    np.testing.assert_allclose(jax.jit(to)(x), y, rtol=1e-6)
    np.testing.assert_allclose(to.backward(jax.numpy.asarray(grad), like=x), back, rtol=1e-6)
    result = jax.grad(lambda x: (to(x) * grad).sum())(x)
    np.testing.assert_allclose(result, back, rtol=1e-6)


def test_names_and_coordinates_of_xarray():
    xarray = pytest.importorskip("xarray")
    x = xarray.DataArray(X, dims=("time", "y", "x", "band"), coords={"band": ["b", "g", "r", "i"]})
    result = convert(x, "bhwc->bchw", channels=(2, 1, 0))
    assert list(result.band.values) == ["r", "g", "b"]
    assert result.dims == ("time", "band", "y", "x")
    np.testing.assert_array_equal(result, X[..., [2, 1, 0]].transpose(0, 3, 1, 2))
    assert "band" not in convert(x, "bhwc->bf", channels=(2, 1, 0)).coords


def test_a_collator_shares_it():
    photos = [RNG.integers(0, 256, (h, w, c), np.uint8) for h, w, c in [(9, 50, 3), (8, 60, 4)]]
    for order in [(2, 1, 0), (0, 2, 1), (1, 1), (2,)]:
        for pattern in ("hwc->bchw", "hwc->bhwc"):
            to = Collator(pattern, h=8, w=40, channels=order, fill=[1, 2, 3])
            expected = np.stack([photo[:8, :40][..., list(order)] for photo in photos])
            expected[1] = expected[1, :, ::-1]
            result = to(photos, offset={"h": 0, "w": 0}, flip={"w": [False, True]})
            np.testing.assert_array_equal(result, convert(expected, "b" + pattern))
            turned = to(photos, offset={"h": 0, "w": 0}, flip={"c": True})
            plain = np.stack([photo[:8, :40][..., list(order[::-1])] for photo in photos])
            np.testing.assert_array_equal(turned, convert(plain, "b" + pattern))
