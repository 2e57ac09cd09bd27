"""Tensors of PyTorch on a GPU: torch's real code on CPU tensors whose device is a fake GPU."""

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    Collator,
    Converter,
    DataError,
    DeviceError,
    DtypeError,
    ImageView,
    ShapeError,
    accumulate,
    convert,
)
from layoutkit.data import sampled_batcher
from tests.helpers import fake_torch
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import values_of

torch, here = fake_torch.torch, fake_torch.here

from layoutkit.backends.torch.tensors import TorchCudaAdapter
from layoutkit.torch import Collator as TorchCollator
from layoutkit.torch import feed

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def there(gpu, monkeypatch):
    """Return a copier of tensors to the fake GPU, where all work runs at once, as torch's does."""
    gpu.eager = True
    return fake_torch.FakeTorch(gpu, monkeypatch).there


IMAGES = torch.rand(2, 4, 5, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "float8_e5m2"])
def test_tensors_are_converted_on_torchs_stream(gpu, dtype, there):
    x = IMAGES.to(getattr(torch, dtype))
    y = convert(there(x), "bhwc->bchw")
    assert (here(y).dtype, y.is_contiguous()) == (x.dtype, True)
    assert torch.equal(here(y).view(torch.uint8), convert(x, "bhwc->bchw").view(torch.uint8))
    assert {where for where, _ in gpu.log} == {"torch"}
    assert gpu.host_waits == []


CASTS = [
    ("uint8", "bfloat16", {"scale": 1 / 255, "mean": (0.1, 0.2, 0.3)}),
    ("float8_e4m3fn", "float32", {}),
    ("float32", "float8_e4m3fn", {}),
    ("float8_e4m3fn", "int8", {"casting": "saturate"}),
    ("float32", "uint8", {"casting": "unsafe"}),
    ("complex64", "float32", {"casting": "unsafe"}),
]


@pytest.mark.parametrize(("source", "target", "keywords"), CASTS)
def test_dtypes_change_on_the_way(gpu, source, target, keywords, there):
    x = (IMAGES * 100).to(getattr(torch, source))
    y = here(convert(there(x), "bhwc->bchw", dtype=target, **keywords))
    wanted = convert(x, "bhwc->bchw", dtype=target, **keywords)
    assert y.dtype == wanted.dtype
    torch.testing.assert_close(y.double(), wanted.double(), rtol=1e-2, atol=1e-5)


def test_nothing_is_moved_where_nothing_has_to_be(gpu, there):
    x = there(IMAGES)
    assert convert(x, "bhwc->bhwc") is x
    assert convert(x, "bhwc->b(hwc)").data_ptr() == x.data_ptr()
    last = there(IMAGES.permute(0, 3, 1, 2))  # as torch's channels_last
    assert convert(last, "bchw->bhwc").data_ptr() == last.data_ptr()


def test_outputs(gpu, there):
    x, out = there(IMAGES), there(torch.zeros(2, 3, 4, 5))
    version = out._version
    assert convert(x, "bhwc->bchw", out=out) is out
    assert torch.equal(here(out), IMAGES.permute(0, 3, 1, 2))
    assert out._version > version
    for wrong, error, words in [
        (torch.zeros(2, 3, 4, 5), DeviceError, r"x is on cuda:0, but out.*is on cpu"),
        (gpu.array(np.zeros((2, 3, 4, 5), "f4")), ArgumentError, "the result is an array of torch"),
        (out.requires_grad_(), ArgumentError, "out requires a gradient"),
        (there(IMAGES)[:, :3], ShapeError, "out has shape"),
    ]:
        with pytest.raises(error, match=words):
            convert(x, "bhwc->bchw", out=wrong)
    with pytest.raises(DtypeError, match="torch has no dtype"):
        convert(x, "bhwc->bchw", dtype=np.longdouble)


def test_gradients_pass_through(gpu, there):
    x = there(IMAGES).requires_grad_()
    y = convert(x, "bhwc->b(chw)", scale=2.0, std=(1.0, 2.0, 4.0))
    (grad,) = torch.autograd.grad(y, x, there(torch.ones(2, 60)))
    wanted = torch.tensor([2.0, 1.0, 0.5]).expand(2, 4, 5, 3)
    torch.testing.assert_close(here(grad), wanted)


def test_gradients_come_back_over_the_bus(gpu, there):
    x = IMAGES.clone().requires_grad_()
    y = convert(x, "bhwc->bchw", scale=2.0, device="cuda")
    assert torch.equal(here(y), 2 * IMAGES.permute(0, 3, 1, 2))
    y.backward(there(torch.ones(2, 3, 4, 5)))
    assert type(x.grad) is torch.Tensor
    assert torch.equal(x.grad, torch.full_like(IMAGES, 2.0))
    assert gpu.launches("copy out") == 1
    down = there(IMAGES).requires_grad_()
    y = convert(down, "bhwc->bhwc", device="cpu")
    (grad,) = torch.autograd.grad(y, down, torch.ones(2, 4, 5, 3))
    assert torch.equal(here(grad), torch.ones(2, 4, 5, 3))


def test_tensors_cross_and_stay_tensors(gpu, there):
    for dtype in ("uint8", "bfloat16", "float8_e4m3fn"):
        x = (IMAGES * 50).to(getattr(torch, dtype))
        up = convert(x, "bhwc->bchw", device="cuda")
        down = convert(up, "bchw->bhwc", device="cpu")
        assert type(down) is torch.Tensor
        assert torch.equal(down.view(torch.uint8), x.view(torch.uint8))
    with pytest.raises(DeviceError, match="x is on cpu, but out is on cuda:0"):
        convert(IMAGES, "bhwc->bhwc", out=there(IMAGES))


def test_sums(gpu, there):
    x, y = there(IMAGES).requires_grad_(), there(IMAGES.permute(0, 3, 1, 2))
    total = accumulate([(x, "bhwc"), (y, "bchw")], "chwb")
    assert torch.equal(here(total), 2 * IMAGES.permute(3, 1, 2, 0))
    (grad,) = torch.autograd.grad(total, x, there(torch.ones(3, 4, 5, 2)))
    assert torch.equal(here(grad), torch.ones(2, 4, 5, 3))
    with pytest.raises(DeviceError, match=r"part 0 is on cuda:0, but part 1.*is on cpu"):
        accumulate([(there(IMAGES), "bhwc"), (IMAGES, "bhwc")], "bhwc")


def test_one_array_of_cupy_among_tensors(gpu, there):
    total = accumulate([(gpu.array(IMAGES.numpy()), "bhwc"), (there(IMAGES), "bhwc")], "bhwc")
    np.testing.assert_array_equal(values_of(total), 2 * IMAGES.numpy())


def test_gradients_of_torch_for_a_view(gpu, there):
    view = ImageView("bhwc", IMAGES.numpy())
    view.forward_get("bchw", device="cuda")
    view.backward_put("bchw", there(torch.ones(2, 3, 4, 5)))
    np.testing.assert_array_equal(view.backward_get(), np.ones((2, 4, 5, 3), "f4"))


def test_sparse_and_conjugated_tensors_are_refused(gpu, there):
    conjugated = there(IMAGES.to(torch.complex64)).conj()
    with pytest.raises(ArgumentError, match="conj bit"):
        Converter("bhwc->bchw")(conjugated)


# ---- batches of a loader ---------------------------------------------------------------------


def test_a_collator_makes_tensors_on_a_gpu_of_arrays():
    images = np.random.default_rng(0).integers(0, 256, (4, 9, 8, 3), np.uint8)
    options = {"h": 5, "w": 6, "resize": "bilinear", "dtype": "bfloat16", "scale": 1 / 255}
    expected = TorchCollator("hwc->bchw", **options)(list(images))
    collator = TorchCollator("hwc->bchw", **options, device="cuda")
    (batch,) = sampled_batcher(images, batch_size=4, collate=collator)
    for x in (collator(list(images)), batch.input):
        assert torch.equal(here(x), expected)


def test_a_batch_of_plain_tensors_is_read_at_once(there, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 8, 3), np.uint8)
    samples = [there(torch.from_numpy(x)) for x in images]
    samples[1] = there(torch.from_numpy(images[1]).mT).mT  # of other strides
    collator = Collator("hwc->bchw", h=5, w=6, dtype="float32", scale=1 / 255)
    expected = torch.from_numpy(collator(list(images)))
    one_by_one = []
    read = TorchCudaAdapter.device_array
    monkeypatch.setattr(
        TorchCudaAdapter,
        "device_array",
        lambda self, x, name: one_by_one.append(name) or read(self, x, name),
    )
    assert torch.equal(here(collator(samples)), expected)
    assert one_by_one == ["the result"]
    conjugated = [x.to(torch.complex64).conj() for x in samples]
    with pytest.raises(ArgumentError, match="sample 0 has its conj bit set"):
        Collator("hwc->bchw", h=5, w=6)(conjugated)


@pytest.mark.parametrize("pattern", ["w->bw", "wc->(bw)c"])
def test_objects_of_torch_that_are_not_tensors_are_reported(pattern):
    modules = [torch.nn.Linear(2, 2)] * 2
    with pytest.raises(ArgumentError, match=r"sample 0 is a torch\.nn\.modules\.linear\.Linear"):
        Collator(pattern)(modules)


@pytest.mark.parametrize("number", [0, 2])
def test_one_sample_that_is_not_plain_is_reported(there, number):
    images = torch.zeros(3, 4, 5, 3)
    samples = [there(x) for x in images]
    samples[number] = images[number]
    where = "sample 2 is a torch.Tensor on cpu" if number else "sample 1"
    with pytest.raises((ArgumentError, DeviceError), match=where):
        Collator("hwc->bchw")(samples)


def test_batches_of_tensors_are_converted_on_a_gpu():
    rows = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    planes = Converter("bhwc->bchw", dtype="bfloat16", scale=1 / 255, device="cuda")
    (batch,) = sampled_batcher(rows, batch_size=2, layout="bhwc", convert=planes, framework="torch")
    expected = convert(torch.from_numpy(rows), "bhwc->bchw", dtype="bfloat16", scale=1 / 255)
    assert torch.equal(here(batch.input), expected)


WRONG_STEPS = [
    ("torch", "collate", "give a layoutkit.torch.Collator, or omit device="),
    ("numpy", "convert", 'give framework="torch", or omit device='),
    ("jax", "convert", 'give framework="torch", or omit device='),
]


@pytest.mark.parametrize(("framework", "name", "fix"), WRONG_STEPS)
def test_arrays_of_cupy_are_refused_before_a_batch(framework, name, fix):
    is_collator = name == "collate"
    pattern = "hwc->bchw" if is_collator else "bhwc->bchw"
    step = (Collator if is_collator else Converter)(pattern, device="cuda")
    with pytest.raises(DataError, match=fix):
        sampled_batcher(np.zeros((2, 4, 5, 3)), batch_size=2, framework=framework, **{name: step})


def test_feed_to_a_gpu_does_not_advance_the_state():
    """A state of the Batcher is the one after the batch that `feed` yielded."""
    rows = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
    planes = convert(rows, "bhwc->bchw")
    with sampled_batcher(rows, batch_size=2, layout="bhwc") as batches:
        for number, batch in enumerate(feed(batches, "bhwc->bchw", device="cuda")):
            np.testing.assert_array_equal(here(batch.input), planes[2 * number : 2 * number + 2])
            assert batches.state_dict()["batch"] == number + 1
