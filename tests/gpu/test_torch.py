"""Tensors of PyTorch on a GPU: streams, autograd, graphs, memory."""

import numpy as np
import pytest

from layoutkit import Converter, accumulate, convert

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.usefixtures("machine")
cuda = torch.device("cuda", 0)
DTYPES = ["uint8", "float16", "bfloat16", "float32", "float64", "complex64", "bool", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_become_tensors(dtype):
    x = (torch.rand(4, 30, 31, 5) * 3).to(getattr(torch, dtype))
    y = convert(x.to(cuda), "bhwc->bchw")
    assert (y.device, y.dtype, y.is_contiguous()) == (cuda, x.dtype, True)
    wanted = convert(x, "bhwc->bchw").view(torch.uint8)
    assert torch.equal(y.cpu().view(torch.uint8), wanted)
    up = convert(x, "bhwc->bchw", device="cuda")
    assert torch.equal(up.cpu().view(torch.uint8), wanted)
    down = convert(up, "bchw->bhwc", device="cpu")
    assert torch.equal(down.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("casting", ["unsafe", "saturate"])
def test_casts_that_torch_finishes(casting):
    x = torch.rand(4, 6, 7, 5) * 100
    for source, target in [("float8_e4m3fn", "float32"), ("float32", "float8_e4m3fn"),
                           ("complex64", "float32"), ("float32", "int16")]:  # fmt: skip
        if source == "complex64" and casting == "saturate":
            continue  # refused
        given = x.to(getattr(torch, source))
        got = convert(given.to(cuda), "bhwc->bchw", dtype=target, casting=casting)
        wanted = convert(given, "bhwc->bchw", dtype=target, casting=casting)
        assert torch.equal(got.cpu().view(torch.uint8), wanted.view(torch.uint8))


def test_nothing_is_moved_where_nothing_has_to_be():
    x = torch.rand(4, 5, 30, 31, device=cuda).to(memory_format=torch.channels_last)
    y = convert(x, "bchw->bhwc")
    assert y.data_ptr() == x.data_ptr()


def test_work_goes_on_torchs_current_stream():
    converter, x = Converter("bhwc->bchw", dtype="float32"), torch.rand(64, 99, 99, 8, device=cuda)
    converter(x.double())
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        y = converter(x.double() * 2)
    assert not stream.query()
    stream.synchronize()
    assert torch.equal(y, (x * 2).permute(0, 3, 1, 2))


def test_gradients_pass_through():
    x = torch.rand(2, 3, 4, 3, device=cuda, dtype=torch.float64, requires_grad=True)
    convert_it = Converter("bhwc->b(chw)", scale=2, mean=(1, 2, 3), std=(4, 5, 6))
    assert torch.autograd.gradcheck(convert_it, (x,))
    y = torch.rand(2, 3, 3, 4, device=cuda, dtype=torch.float64, requires_grad=True)
    add = lambda x, y: accumulate([(x, "bhwc"), (y, "bchw")], "chwb")
    assert torch.autograd.gradcheck(add, (x, y))
    here = torch.rand(2, 3, 4, 3, requires_grad=True)
    convert(here, "bhwc->bchw", scale=2, device="cuda").sum().backward()
    assert torch.equal(here.grad, torch.full((2, 3, 4, 3), 2.0))


def test_a_graph_of_torch():
    converter, x = Converter("bhwc->bchw", scale=2), torch.rand(8, 30, 31, 5, device=cuda)
    converter(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = converter(x)
    x.copy_(torch.rand(8, 30, 31, 5))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * x.permute(0, 3, 1, 2))


def test_a_graph_of_a_backward_pass():
    """Autograd's thread launches its first kernel during the capture."""
    converter = Converter("bhwc->bchw", scale=2)
    x = torch.rand(8, 30, 31, 5, device=cuda, requires_grad=True)

    def step():
        (converter(x) * 3).sum().backward()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # the documented way to prepare a capture
        step()
    torch.cuda.current_stream().wait_stream(side)
    x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    x.grad.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x.grad, torch.full_like(x, 6.0))


@pytest.mark.parametrize("call", ["first", "repeated", "sum"])
def test_torchs_default_stream_while_cupys_current_stream_is_another(call):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    converter, x = Converter("bhwc->bchw", dtype="float32"), torch.zeros(64, 99, 99, 8, device=cuda)
    expected = torch.ones_like(x).permute(0, 3, 1, 2)

    def convert_or_add():
        if call == "sum":
            return accumulate([(x, "bhwc"), (x, "bhwc")], "bchw") / 2
        return converter(x.double())

    if call != "first":
        convert_or_add()
    torch.cuda.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as other:
        torch.cuda._sleep(200_000_000)
        x.fill_(1)  # on the default stream, behind the sleep
        y = convert_or_add()
    assert other.done  # nothing was launched on CuPy's stream
    torch.cuda.synchronize()
    assert torch.equal(y, expected)


def test_memory_of_results_is_torchs():
    converter, x = Converter("bhwc->bchw", dtype="float64"), torch.rand(8, 30, 31, 5, device=cuda)
    converter(x)
    before = torch.cuda.memory_allocated()
    y = converter(x)
    assert torch.cuda.memory_allocated() - before >= y.numel() * 8
    np.testing.assert_array_equal(y.cpu().numpy(), x.cpu().double().permute(0, 3, 1, 2).numpy())


@pytest.mark.parametrize("leader", ["torch", "cupy"])
def test_a_sum_waits_for_the_work_of_both_libraries(leader):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    tensor, array = torch.zeros(64, 99, 99, 8, device=cuda), cupy.zeros((64, 99, 99, 8), np.float32)
    accumulate([(tensor, "bhwc"), (array, "bhwc")], "bchw")
    accumulate([(array, "bhwc"), (tensor, "bhwc")], "bchw")
    torch.cuda.synchronize()
    theirs, ours = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    with torch.cuda.stream(theirs), ours:
        torch.cuda._sleep(200_000_000)
        tensor.fill_(1)
        array.fill(2)
        parts = [(tensor, "bhwc"), (array, "bhwc")]
        total = accumulate(parts if leader == "torch" else parts[::-1], "bchw")
    theirs.synchronize()
    ours.synchronize()
    assert (float(total.min()), float(total.max())) == (3.0, 3.0)
