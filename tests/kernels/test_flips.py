"""Arrays that are reversed along their innermost axes: kernels reverse whole registers."""

import numpy as np
import pytest

from layoutkit import Converter
from tests.helpers.arrays_of import BF16, assert_same, random_array
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(2)

RNG = np.random.default_rng(0)
FORMULA = {"dtype": "float32", "scale": 0.5, "mean": 3.0}


def backward(shape, dtype, axes):
    """Return a contiguous array with some axes reversed."""
    x = random_array(RNG, shape, dtype)
    return x[tuple(slice(None, None, -1) if a in axes else slice(None) for a in range(x.ndim))]


@pytest.mark.parametrize("dtype", ["u1", "u2", BF16, "f4", "f8", "c8"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("width", [1, 7, 16, 33, 130])
def test_pixels_are_turned_around(dtype, channels, width):
    for axes in [(2,), (1, 2), (2, 3), (3,)]:
        x = backward((2, 3, width, channels), dtype, axes)
        for pattern in ("bhwc->bhwc", "bhwc->bchw", "bhwc->bcwh"):
            assert_same(Converter(pattern, copy=True)(x), reference_convert(x, pattern))


@pytest.mark.parametrize("size", [40, 400])  # plain stores, and streaming stores
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_formulas_and_large_results(size, channels):
    x = backward((3, size, size + 24, channels), "u1", (2,))
    packed = np.ascontiguousarray(x)
    each = {**FORMULA, "mean": tuple(range(channels))}
    asked = {1: ({}, FORMULA), 3: ({}, FORMULA, each), 4: ({}, each)}
    for pattern in ("bhwc->bhwc", "bhwc->bchw"):
        for keywords in asked[channels] if size == 40 or channels == 3 else ({},):
            to = Converter(pattern, **keywords)
            assert_same(to(x), to(packed))


@pytest.mark.parametrize(
    ("pattern", "channels", "kernel"),
    [
        ("bhwc->bhwc", 3, "flip"),
        ("bhwc->bhwc", 4, "flip"),
        ("bhwc->bchw", 3, "flipsplit"),
        ("bhwc->bchw", 4, "flipsplit"),
        ("bhwc->bhwc", 64, "copy"),
    ],
)
def test_which_kernel_it_is(pattern, channels, kernel):
    plan = Converter(pattern).plan(backward((2, 9, 64, channels), "u1", (2,)))
    assert plan.kernel == kernel
    assert kernel in str(plan)


@pytest.mark.parametrize("backward_along", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("width", [20, 33, 100, 224])  # pixels of a line: partial and whole vectors
def test_lines_with_gaps_follow_each_other_in_large_results(width, channels, backward_along):
    count = (1 << 20) // (97 * width * channels) + 1
    x = backward((count, 97, width + 3, channels), "u1", backward_along)[:, :, 1:-2]
    for keywords in ({}, FORMULA)[: 2 if channels == 3 else 1]:  # each needs another kernel
        to = Converter("bhwc->bchw", **keywords)
        assert to.plan(x).kernel.endswith("split")
        assert_same(to(x), to(np.ascontiguousarray(x)))


@pytest.mark.budget(0, all=5)
@pytest.mark.parametrize("dtype", ["u2", "f8", "c16"])
@pytest.mark.parametrize("selection", [(2, 1, 0), (3, 0, 1), (0, 2, 3), (3, 1), (3, 2, 1, 0)])
def test_channels_are_selected(dtype, selection):
    x = random_array(RNG, (3, 33, 4), dtype)
    for pixels in (x, x[:, ::-1]):
        result = Converter("bwc->bwc", channels=selection)(pixels)
        assert_same(result, np.ascontiguousarray(pixels[..., list(selection)]))
