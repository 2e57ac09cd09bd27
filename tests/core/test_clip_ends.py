"""The ends of windows of values: `clip` and a formula give exactly 0 and 1 there."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import collate, convert

BOUNDS = st.tuples(st.integers(-30_000, 30_000), st.integers(1, 60_000)).map(
    lambda pair: (pair[0], min(sum(pair), 32_767))
)
# Constants of a window, and the results at its lower and upper bound.
FORMS = {
    "mean": lambda low, high: ({"mean": low, "std": high - low}, [0, 1]),
    "scale": lambda low, high: ({"scale": 0.5, "mean": low / 2, "std": (high - low) / 2}, [0, 1]),
    "falling": lambda low, high: ({"mean": high, "std": low - high}, [1, 0]),
    "symmetric": lambda low, high: ({"mean": (low + high) / 2, "std": (high - low) / 2}, [-1, 1]),
}
ROUNDING = {"float32": 0, "float64": 0, "float16": 2**-11, "bfloat16": 2**-8}


@pytest.mark.budget(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ROUNDING)
@given(bounds=BOUNDS)
def test_the_ends_of_a_window_are_exact(dtype, form, bounds):
    low, high = bounds
    constants, ends = FORMS[form](low, high)
    x = np.array([low, high, -32_768, 32_767, (low + high) // 2], np.int16)
    exact = (np.float64(x[4]) * constants.get("scale", 1) - constants["mean"]) / constants["std"]
    error = 2**-22 * max(2, *(abs(n) / (high - low) * 2 for n in bounds)) + ROUNDING[dtype]
    name = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    for source in (x, x.astype(np.float32)):
        result = convert(source[:, None], "bf->fb", clip=bounds, dtype=name, **constants)[0]
        assert result[:4].tolist() == ends * 2
        assert abs(float(result[4]) - exact) <= error


def test_a_window_with_one_bound_has_one_exact_end():
    x = np.array([[-5.0, 0.7, 3.0, np.inf, -np.inf, np.nan]], np.float32)
    low = convert(x, "bf->fb", clip=(0.7, None), mean=0.7, std=0.3).ravel()
    high = convert(x, "bf->fb", clip=(None, 0.7), mean=0.4, std=0.3).ravel()
    np.testing.assert_array_equal(low[[0, 1, 3, 4, 5]], [0, 0, np.inf, 0, np.nan])
    np.testing.assert_array_equal(high[1:], [1, 1, 1, -np.inf, np.nan])


def test_resized_windows_have_exact_ends():
    scans = [np.full((8, 9, 1), value, np.int16) for value in (-2000, 3000)]
    batch = collate(
        scans, "hwc->bchw", h=4, w=4, resize="bilinear", clip=(-1000, 400), mean=-1000, std=1400
    )
    np.testing.assert_array_equal(batch[:, 0, 0, 0], [0, 1])


def test_traced_windows_have_exact_ends_and_gradients_at_them():
    jax = pytest.importorskip("jax")
    keywords = {"clip": (1000, 2000), "mean": 1000, "std": 1000}
    x = np.array([[900, 1000, 1500, 2000, 2100]], np.float32)
    window = jax.jit(lambda x: convert(x, "bf->fb", **keywords))
    np.testing.assert_array_equal(np.delete(window(x).ravel(), 2), [0, 0, 1, 1])
    slopes = jax.grad(lambda x: window(x).sum())(x).ravel()
    np.testing.assert_allclose(slopes, [0, 0.001, 0.001, 0.001, 0], rtol=1e-6)
