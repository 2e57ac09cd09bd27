"""What does things on GPUs, with a CuPy that takes only what the real one takes."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import strict_cupy
from arrays_of import BF16
from cuda_shim import needs_compiler
from fake_cuda import replace

from layoutkit import Converter, DeviceError, accumulate, convert
from layoutkit.kernels.cuda.runtime import CupyRuntime
from reference import reference_convert

pytestmark = needs_compiler

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}


@pytest.fixture
def cupy(monkeypatch):
    module = strict_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", module)  # already for the runtime to find
    replace(monkeypatch, module, CupyRuntime())
    return module


def there(cupy, values, ordinal=0):
    """A CuPy array of these values."""
    with cupy.cuda.Device(ordinal):
        array = cupy.empty(values.shape, values.dtype)
    array.memory[...] = values
    return array


@pytest.mark.parametrize("ordinal", [0, 1])
def test_conversions_and_sums(cupy, ordinal):
    x = there(cupy, IMAGES, ordinal)
    y = convert(x, "bhwc->bchw", **FORMULA)
    wanted = reference_convert(IMAGES, "bhwc->bchw", **{**FORMULA, "dtype": np.dtype("f4")})
    np.testing.assert_allclose(y.memory, wanted, rtol=1e-5, atol=1e-5)
    total = accumulate([(y, "bchw")] * 17, "bhwc")
    np.testing.assert_allclose(total.memory, 17 * wanted.transpose(0, 2, 3, 1), 1e-5, 1e-4)
    assert y.data.device_id == total.data.device_id == ordinal
    assert cupy.log == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["?", "i2", "f8", "c16", BF16], ids=str)
def test_batches_cross(cupy, dtype):
    x = IMAGES.astype(dtype)
    up = Converter("bhwc->bchw", device="cuda:1")
    for _ in range(3):
        y = up(x)
    np.testing.assert_array_equal(y.memory, x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(convert(y, "bchw->bhwc", device="cpu"), x)


@pytest.mark.parametrize(("source", "target"), [("f4", "i4"), (BF16, "c8"), ("c8", "f2")], ids=str)
def test_casts_that_are_the_librarys(cupy, source, target, monkeypatch):
    monkeypatch.setattr(
        strict_cupy.Array, "real", property(lambda x: strict_cupy.Array(x.memory.real, 0)),
        raising=False,
    )  # fmt: skip
    x = IMAGES.astype(source)
    y = convert(there(cupy, x), "bhwc->bchw", dtype=target, casting="unsafe")
    np.testing.assert_array_equal(y.memory, x.real.transpose(0, 3, 1, 2).astype(target))


def test_the_current_stream_is_launched_on(cupy):
    converter, x = Converter("bhwc->bchw"), there(cupy, IMAGES)
    stream = cupy.cuda.Stream.from_external(SimpleNamespace(__cuda_stream__=lambda: (0, 0x77)))
    with stream:
        converter(x)
    converter(x)
    assert cupy.log == [0x77, 0]
    assert cupy.compiled == ["lines"]


def test_what_is_warm_is_captured_and_nothing_else(cupy):
    warm, x = Converter("bhwc->bchw", **FORMULA), there(cupy, IMAGES)
    warm(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.capturing.add(stream.ptr)
    with stream:
        warm(x)
        with pytest.raises(DeviceError, match="call it once"):
            convert(x, "bhwc->wbch")
        with pytest.raises(DeviceError, match="captured"):
            convert(IMAGES, "bhwc->bchw", device="cuda")
    assert cupy.log == [0, stream.ptr]


def test_a_kernel_that_does_not_compile_leaves_no_lock_behind(cupy, monkeypatch):
    x = there(cupy, IMAGES)
    with monkeypatch.context() as broken:
        broken.setattr(cupy, "RawModule", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            convert(x, "bhwc->bchw")
        with pytest.raises(ZeroDivisionError):
            convert(IMAGES, "bhwc->bchw", device="cuda")
    for _ in range(3):
        y = convert(IMAGES, "bhwc->bchw", device="cuda")
        np.testing.assert_array_equal(y.memory, IMAGES.transpose(0, 3, 1, 2))


def test_what_the_real_cupy_takes_without_a_driver():
    """Streams of others, memory of others, and blocks of arguments."""
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    runtime = CupyRuntime.__new__(CupyRuntime)
    runtime.cupy = cupy
    assert runtime.stream_at(0x77).ptr == 0x77
    assert not runtime.is_capturing(cupy.cuda.Stream.null)
    for dtype in ("f4", "c16", BF16, [("a", "u1"), ("b", "<f2")]):
        x = runtime.wrap(4096, (3, 4), (-64, 16), np.dtype(dtype), 1, owner=IMAGES)
        assert (x.data.ptr, x.strides, int(x.data.device_id)) == (4096, (-64, 16), 1)
        assert x.dtype == np.dtype(dtype)
    for name in ("memcpyHostToDevice", "memcpyDeviceToHost", "memcpyDefault"):
        assert isinstance(getattr(cupy.cuda.runtime, name), int)
