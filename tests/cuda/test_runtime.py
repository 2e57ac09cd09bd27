"""The runtime with a fake CuPy that accepts only the arguments of the real one."""

from types import SimpleNamespace

import numpy as np
import pytest
from arrays_of import BF16
from cuda_shim import needs_compiler
from fake_cuda import values_of

from layoutkit import Converter, accumulate, convert
from layoutkit.cuda.cupy_runtime import CupyRuntime
from reference import reference_convert

pytestmark = needs_compiler

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}


@pytest.mark.parametrize("ordinal", [0, 1])
def test_conversions_and_sums(gpu, ordinal):
    x = gpu.array(IMAGES, ordinal)
    y = convert(x, "bhwc->bchw", **FORMULA)
    wanted = reference_convert(IMAGES, "bhwc->bchw", **{**FORMULA, "dtype": np.dtype("f4")})
    total = accumulate([(y, "bchw")] * 17, "bhwc")
    np.testing.assert_allclose(values_of(total), 17 * wanted.transpose(0, 2, 3, 1), 1e-5, 1e-4)
    np.testing.assert_allclose(y.memory, wanted, rtol=1e-5, atol=1e-5)
    assert y.ordinal == total.ordinal == ordinal
    assert [name for name, _ in gpu.cupy.launched] == [f"main {ordinal}"] * 3


def test_two_gpus_by_turns(gpu):
    """Kernels and constants are of their device; so are streams and memory."""
    converter = Converter("bhwc->bchw", **FORMULA)
    results = [converter(gpu.array(IMAGES, n)) for n in (0, 1, 0, 1)]
    first, *others = (values_of(y) for y in results)
    assert len(gpu.loaded) == 2
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_sums_on_two_gpus_by_turns(gpu):
    for n in (0, 1, 0, 1):
        x = gpu.array(IMAGES.astype("f4"), n)
        total = accumulate([(x, "bhwc"), (x, "bhwc")], "bchw")
        assert total.ordinal == n
        np.testing.assert_array_equal(values_of(total), 2.0 * IMAGES.transpose(0, 3, 1, 2))
    assert [name for name, _ in gpu.cupy.launched] == ["main 0", "main 1"] * 2


def test_other_constants_are_other_kernels(gpu):
    x = gpu.array(IMAGES)
    for scale in (1.0, 2.0, 3.0):
        y = convert(x, "bhwc->bchw", dtype="f4", scale=scale)
        np.testing.assert_allclose(values_of(y), scale * IMAGES.transpose(0, 3, 1, 2), rtol=1e-6)
    assert len(gpu.loaded) == 1


def test_constants_go_up_without_waiting_for_anybody(gpu):
    convert(gpu.array(IMAGES), "bhwc->bchw", dtype="f4", scale=4.0)
    assert gpu.host_waits
    assert "main 0" not in gpu.host_waits


def test_streams_of_others_are_kept_and_not_for_ever(gpu):
    streams = [gpu.runtime.stream_at(0x9000 + 16 * (n % 100)) for n in range(200)]
    assert [stream.ptr for stream in streams[:100]] == [0x9000 + 16 * n for n in range(100)]
    assert gpu.runtime.stream_at(streams[-1].ptr) is streams[-1]
    assert len(gpu.runtime._foreign) <= 64


@pytest.mark.parametrize("dtype", ["?", "i2", "f8", "c16", BF16], ids=str)
def test_batches_cross(gpu, dtype):
    x = IMAGES.astype(dtype)
    up = Converter("bhwc->bchw", device="cuda:1")
    for _ in range(3):
        y = up(x)
    np.testing.assert_array_equal(values_of(y), x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(convert(y, "bchw->bhwc", device="cpu"), x)


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize(("source", "target"), [("f4", "i4"), (BF16, "c8"), ("c8", "f2")], ids=str)
def test_casts_that_are_the_librarys(gpu, source, target, ordinal):
    x = IMAGES.astype(source)
    stream = gpu.new_stream(ordinal)
    with gpu.using(stream, ordinal):
        y = convert(gpu.array(x, ordinal), "bhwc->bchw", dtype=target, casting="unsafe")
    stream.synchronize()
    np.testing.assert_array_equal(y.memory, x.real.transpose(0, 3, 1, 2).astype(target))
    assert {where for where, what in gpu.log if what in ("kernel", "cast")} == {"other"}


def test_the_current_stream_is_launched_on(gpu):
    converter, x = Converter("bhwc->bchw"), gpu.array(IMAGES)
    theirs = gpu.new_stream(0, "theirs")
    foreign = SimpleNamespace(__cuda_stream__=lambda: (0, theirs.ptr))
    with gpu.cupy.cuda.Stream.from_external(foreign):
        converter(x)
    converter(x)
    theirs.synchronize()  # before the memory of x goes back to another stream
    assert [name for name, _ in gpu.cupy.launched] == ["theirs", "main 0"]
    assert [each.family for each in gpu.loaded] == ["lines"]


def test_a_kernel_that_does_not_compile_leaves_no_lock_behind(gpu, monkeypatch):
    x = gpu.array(IMAGES)
    with monkeypatch.context() as broken:
        broken.setattr(gpu.cupy, "RawModule", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            convert(x, "bhwc->bchw")
        with pytest.raises(ZeroDivisionError):
            convert(IMAGES, "bhwc->bchw", device="cuda")
    for _ in range(3):
        y = convert(IMAGES, "bhwc->bchw", device="cuda")
        np.testing.assert_array_equal(values_of(y), IMAGES.transpose(0, 3, 1, 2))


def test_what_the_real_cupy_takes_without_a_driver():
    """Streams of others, memory of others, and blocks of arguments."""
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    runtime = CupyRuntime.__new__(CupyRuntime)
    runtime.cupy, runtime._foreign = cupy, {}
    assert runtime.stream_at(0x77).ptr == 0x77
    assert not runtime.is_capturing(cupy.cuda.Stream.null)
    for dtype in ("f4", "c16", BF16, [("a", "u1"), ("b", "<f2")]):
        x = runtime.wrap(4096, (3, 4), (-64, 16), np.dtype(dtype), 1, owner=IMAGES)
        assert (x.data.ptr, x.strides, int(x.data.device_id)) == (4096, (-64, 16), 1)
        assert x.dtype == np.dtype(dtype)
    for name in ("memcpyHostToDevice", "memcpyDeviceToHost", "memcpyDefault"):
        assert isinstance(getattr(cupy.cuda.runtime, name), int)
