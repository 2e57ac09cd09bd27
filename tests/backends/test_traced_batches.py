"""Collation of traced samples: in graphs of torch.compile, exported, and under jax.jit."""

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, collate
from tests.helpers.arrays_of import assert_same

RNG = np.random.default_rng(0)
PAIR = [RNG.integers(0, 256, shape, np.uint8) for shape in [(9, 11, 3), (8, 10, 3)]]
FLOATS = [x.astype(np.float32) for x in PAIR]
ASKED = {"h": 6, "w": 8, "fill": (1, 2, 3), "scale": 1 / 255, "mean": (0.4, 0.5, 0.6)}
SAID = {"offset": {"h": [-1, 4], "w": -2}, "flip": {"w": [True, False], "h": True}}
TO = Collator("hwc->bchw", **ASKED)
SWAPPED = Collator("hwc->chwb", channels=(2, 0, 0), dtype="float32", **ASKED)
ROWS = Collator("bhwc->bchw", h=4, w=5, dtype="float32", scale=1 / 255)


def both(a, b):
    return TO([a, b], **SAID)


def swapped(a, b):
    return SWAPPED((a, b), **SAID)


def called(a, b):
    return collate([a, b], "hwc->bchw", **ASKED, **SAID)


def rows(a, b):
    return ROWS(b[None].repeat(3, 1, 1, 1), indices=[2, -3, 0], offset={"h": [0, 4, 1]}, flip="w")


FUNCTIONS = [both, swapped, called, rows]
SAY_SO = "offset.'h'. is a .*, whose numbers cannot be read.*outside of compiled functions"


# ---- PyTorch -----------------------------------------------------------------------------


@pytest.fixture
def torch():
    result = pytest.importorskip("torch", reason="PyTorch is not installed")
    result.compiler.reset()
    return result


def followed(torch, function, fullgraph=True):
    return torch.compile(function, fullgraph=fullgraph, backend="aot_eager")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_as_one_graph(torch, function):
    tensors = [*map(torch.from_numpy, PAIR)]
    wanted = function(*tensors)
    compiled = followed(torch, lambda a, b: function(a, b) * 1)
    assert torch.equal(compiled(*tensors), wanted)
    larger = [torch.from_numpy(np.pad(x, ((2, 0), (0, 1), (0, 0)))) for x in PAIR]
    assert torch.equal(compiled(*larger), function(*larger))
    exported = torch.export.export(module_of(torch, function), tuple(tensors))
    torch.testing.assert_close(exported.module()(*tensors), wanted)  # consists of torch operations


def module_of(torch, function):
    class Module(torch.nn.Module):
        def forward(self, a, b):
            return function(a, b)

    return Module()


def test_compiled_gradients_and_out(torch):
    plain = [torch.from_numpy(x).requires_grad_() for x in FLOATS]
    both(*plain).square().sum().backward()
    compiled = [torch.from_numpy(x).requires_grad_() for x in FLOATS]
    followed(torch, both)(*compiled).square().sum().backward()
    for one, other in zip(plain, compiled, strict=True):
        assert torch.equal(one.grad, other.grad)
    out = torch.zeros(2, 3, 6, 8)
    tensors = [*map(torch.from_numpy, PAIR)]
    followed(torch, lambda a, b, out: TO([a, b], out=out, **SAID))(*tensors, out)
    assert torch.equal(out, both(*tensors))


@pytest.mark.parametrize("indices", [None, [2, 0, 2]])
@pytest.mark.parametrize("options", [{"fill": 0, "w": 14}, {"w": 5, "resize": "bicubic"}])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_of_parts_of_one_array(torch, dtype, options, indices):
    """Compare them with the gradients of separate samples, eager and compiled, and of both."""
    images = torch.from_numpy(RNG.random((3, 9, 11, 3))).to(getattr(torch, dtype))
    parts = [image.clone().requires_grad_() for image in images]
    single = Collator("hwc->bchw", h=6, **options)
    expected = single([parts[i] for i in indices or range(3)], flip="w")
    direction = torch.from_numpy(RNG.random(expected.shape)).to(expected.dtype).requires_grad_()
    gradients = torch.autograd.grad(expected, parts, direction.detach(), allow_unused=True)
    zeros = torch.zeros_like(images[0])
    gradients = torch.stack([zeros if grad is None else grad for grad in gradients])
    whole = Collator("hbwc->bchw", h=6, **options)
    x = images.movedim(0, 1).clone().requires_grad_()
    for run in (whole, followed(torch, lambda x, **crops: whole(x, **crops))):
        made = run(x, indices=indices, flip="w")
        assert torch.equal(made, expected)
        is_eager = run is whole
        (gradient,) = torch.autograd.grad(made, x, direction, create_graph=is_eager)
        torch.testing.assert_close(gradient.detach().movedim(1, 0), gradients)
        if is_eager:  # the gradient is linear, and its transpose the batch itself
            (back,) = torch.autograd.grad(gradient, direction, x.detach())
            torch.testing.assert_close(back, made.detach())


def test_compiled_in_an_order_of_memory(torch):
    def laid(a, b):
        return collate([a, b], "hwc->bchw", h=6, w=8, memory="bhwc")

    tensors = [*map(torch.from_numpy, PAIR)]
    batch = followed(torch, laid)(*tensors)
    assert torch.equal(batch, laid(*tensors))
    assert batch.stride() == laid(*tensors).stride() == (144, 1, 24, 3)


def test_padded_channels_have_their_fill_values(torch):
    wider = Collator("hwc->bchw", h=10, w=12, c=4, fill=(1, 2, 3, 4))
    offset = {"h": [-1, 0], "c": [-1, -2]}
    tensors = [torch.from_numpy(x).requires_grad_() for x in FLOATS]
    assert_same(wider(tensors, offset=offset).detach().numpy(), wider(FLOATS, offset=offset))


def test_compiled_with_numbers_that_change(torch):
    compiled = followed(torch, lambda a, b, top: TO([a, b], offset={"h": [top, top + 1]}) * 1)
    tensors = [*map(torch.from_numpy, PAIR)]
    for top in (0, 2, 1):
        assert torch.equal(compiled(*tensors, top), TO(tensors, offset={"h": [top, top + 1]}))
    wrong = followed(torch, lambda a, b, top: TO([a, b], offset={"h": top}) * 1)
    with pytest.raises(Exception, match=SAY_SO):
        wrong(*tensors, torch.tensor([0, 1]))


def test_equal_collators_share_a_compiled_function(torch):
    compiled = followed(torch, lambda to, a, b: to([a, b], **SAID))
    tensors = [*map(torch.from_numpy, PAIR)]
    for _ in range(12):  # more often than torch recompiles one function
        assert torch.equal(compiled(Collator("hwc->bchw", **ASKED), *tensors), both(*tensors))


def test_a_compiled_function_that_breaks_in_two(torch):
    def program(a, b):
        print(end="")
        return TO([a, b], **SAID) * 1

    tensors = [*map(torch.from_numpy, PAIR)]
    assert torch.equal(followed(torch, program, fullgraph=False)(*tensors), both(*tensors))


def test_arrays_of_numpy_in_a_compiled_function(torch):
    stack = np.stack([PAIR[0]] * 3)
    for function, arrays in [
        (lambda a, b: TO([a, b], **SAID), PAIR),
        (lambda a, b: collate((a, b), "hwc->bhwc", h=5, w=5), PAIR),
        (lambda x: ROWS(x, indices=[2, 0]), [stack]),
    ]:
        result = followed(torch, function)(*arrays)
        assert type(result) is np.ndarray
        assert_same(result, function(*arrays))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_ways_of_torch_to_trace(torch, function):
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors = [*map(torch.from_numpy, PAIR)]
    wanted = function(*tensors)
    assert torch.equal(make_fx(function)(*tensors)(*tensors), wanted)
    torch.testing.assert_close(torch.jit.trace(function, tuple(tensors))(*tensors), wanted)
    assert function(*[x.to("meta") for x in tensors]).shape == wanted.shape
    a, b = map(torch.from_numpy, FLOATS)
    mapped = torch.func.vmap(function, (0, None))(torch.stack([a, a + 1]), b)
    torch.testing.assert_close(mapped[1], function(a + 1, b))
    got = torch.func.grad(lambda a, b: function(a, b).sum(), (0, 1))(a, b)
    tensors = [a.requires_grad_(), b.requires_grad_()]
    kept = torch.autograd.grad(function(*tensors).sum(), tensors, materialize_grads=True)
    assert all(map(torch.equal, got, kept))


# ---- JAX ---------------------------------------------------------------------------------


def test_jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    arrays = [*map(jax.numpy.asarray, PAIR)]
    for function in (both, swapped, called):
        wanted = np.asarray(function(*PAIR))
        np.testing.assert_allclose(jax.jit(function)(*arrays), wanted, rtol=1e-5, atol=1e-6)
        shape = jax.eval_shape(function, *arrays)
        assert (shape.shape, shape.dtype) == (wanted.shape, wanted.dtype)
    stack = np.stack([PAIR[0]] * 3)
    wanted = ROWS(stack, indices=[2, 0])
    result = jax.jit(lambda x: ROWS(x, indices=[2, 0]))(stack)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    assert_same(np.asarray(ROWS(jax.numpy.asarray(stack), indices=jax.numpy.array([2, 0]))), wanted)
    with pytest.raises(ArgumentError, match=SAY_SO):
        jax.jit(lambda a, b, n: TO([a, b], offset={"h": n}))(*arrays, jax.numpy.array([0, 1]))
    with pytest.raises(ArgumentError, match=r"flip\['h'\] is a .*, whose numbers"):
        jax.jit(lambda a, b, n: TO([a, b], flip={"h": [n, n]}))(*arrays, True)
    with pytest.raises(ArgumentError, match=r"indices is a .*, whose numbers"):
        jax.jit(lambda x, n: ROWS(x, indices=n))(stack, jax.numpy.array([0, 1]))
