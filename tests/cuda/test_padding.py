"""`pad_to=` on a GPU: one conversion into a region of the result, and a kernel per border."""

import sys

import numpy as np
import pytest

from layoutkit import Converter, convert, warmup
from layoutkit.backends.cupy import CUPY
from layoutkit.cuda.runtime import runtime
from tests.helpers.arrays_of import UNALIGNED, laid
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import values_of

pytestmark = [pytest.mark.budget(3), needs_compiler]

RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (2, 5, 7, 3), np.uint8)
NORMALIZED = {"dtype": "float32", "scale": 1 / 255, "mean": (0.1, 0.2, 0.3), "std": 0.5}


@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->bhwc", "bhwc->chwb", "bhwc->b(chw)"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fill": 114},
        {"fill": (1, 2, 3)},
        {"fill": (1, 2, 3), **NORMALIZED},
        {"pad_before": {"h": 0, "w": 4}, "fill": 7, "dtype": "float16"},
        {"fill": 3, "clip": (5, 100), "dtype": "float32"},
    ],
)
def test_a_padded_result_is_that_of_the_cpu(gpu, pattern, options):
    pad_to = {"h": 8, "w": 12}
    expected = convert(IMAGES, pattern, pad_to=pad_to, **options)
    x = gpu.array(IMAGES)
    converter = Converter(pattern, pad_to=pad_to, **options)
    for _ in range(2):
        result = values_of(converter(x))
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
    out = gpu.array(np.zeros_like(expected))
    assert converter(x, out) is out
    np.testing.assert_array_equal(values_of(out), expected)


@pytest.mark.parametrize("how", UNALIGNED)
def test_an_unaligned_output_is_padded(gpu, how):
    options = {"pad_to": {"h": 8}, "dtype": "float32", "scale": 2.0, "fill": 3}
    expected = convert(IMAGES, "bhwc->bchw", **options)
    out = gpu.array(laid(np.zeros_like(expected), how))
    convert(gpu.array(IMAGES), "bhwc->bchw", out=out, **options)
    np.testing.assert_array_equal(values_of(out), expected)


@pytest.mark.parametrize("dtype", ["uint8", "complex64"])
def test_a_cast_of_the_library_writes_the_inner_region(gpu, dtype):
    x = IMAGES.astype(np.float32)
    options = {"pad_to": {"h": 8, "w": 12}, "dtype": dtype, "casting": "unsafe", "fill": 3}
    expected = convert(x, "bhwc->bchw", **options)
    np.testing.assert_array_equal(
        values_of(convert(gpu.array(x), "bhwc->bchw", **options)), expected
    )
    for how in ("plain", "fortran", *UNALIGNED):
        out = gpu.array(laid(np.zeros_like(expected), how))
        convert(gpu.array(x), "bhwc->bchw", out=out, **options)
        np.testing.assert_array_equal(values_of(out), expected)


def test_a_strided_output_is_padded(gpu):
    expected = convert(IMAGES, "bhwc->bchw", pad_to={"h": 8, "w": 9}, fill=5)
    memory = gpu.array(np.zeros((8, 9, 2, 3), np.uint8))
    out = memory.transpose(2, 3, 0, 1)
    convert(gpu.array(IMAGES), "bhwc->bchw", pad_to={"h": 8, "w": 9}, fill=5, out=out)
    np.testing.assert_array_equal(values_of(out), expected)


def test_a_warm_call_plans_nothing(gpu):
    converter = Converter("bhwc->bchw", pad_to={"h": 8}, **NORMALIZED)
    x = gpu.array(IMAGES)
    for _ in range(3):
        converter(x)
    calls = []

    def count(frame, event, arg):
        path = frame.f_code.co_filename
        if event == "call" and ("/layoutkit/" in path or "/kernels/" in path):
            calls.append(f"{path.rpartition('/')[2]}:{frame.f_code.co_name}")

    sys.setprofile(count)
    try:
        converter(x)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 60, calls
    assert not any(":make_" in call or ":plan_" in call for call in calls), calls


def test_warmup_loads_every_kernel_of_a_padded_conversion(gpu):
    options = {"pad_to": {"h": 8, "w": 12}, "scale": 1 / 255}
    warmup("bhwc->bchw", IMAGES.shape, "uint8", dtype="f4", device="cuda", **options)
    loaded = len(runtime().functions)
    convert(gpu.array(IMAGES), "bhwc->bchw", dtype="f4", **options)
    assert len(runtime().functions) == loaded > 1


@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->bhwc", "bhwc->chwb", "bhwc->b(chw)"])
def test_selected_channels_are_padded(gpu, pattern):
    options = {"channels": (2, 0), "pad_to": {"h": 8, "w": 12}, "fill": 9}
    expected = convert(IMAGES, pattern, **options)
    converter = Converter(pattern, **options)
    x = gpu.array(IMAGES)
    for _ in range(2):
        np.testing.assert_array_equal(values_of(converter(x)), expected)
    out = gpu.array(np.zeros_like(expected))
    assert converter(x, out) is out
    np.testing.assert_array_equal(values_of(out), expected)


@pytest.mark.parametrize(
    "options", [{}, {"fill": (1, 2, 3)}, {"dtype": "float32", "clip": (9, 90)}]
)
@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1)])
def test_selected_channels_are_padded_without_a_copy(gpu, monkeypatch, order, options):
    """Test that there is one launch for x and one for each border."""
    monkeypatch.setattr(type(CUPY), "take", None)
    monkeypatch.setattr(type(CUPY), "padded", None)
    keywords = {"pad_to": {"h": 8, "w": 12}, "channels": order, **options}
    expected = convert(IMAGES, "bhwc->bchw", **keywords)
    gpu.cupy.launched.clear()
    result = convert(gpu.array(IMAGES), "bhwc->bchw", **keywords)
    np.testing.assert_array_equal(values_of(result), expected)
    assert len(gpu.cupy.launched) == 5
