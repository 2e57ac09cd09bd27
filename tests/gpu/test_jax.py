"""Arrays of JAX on a GPU: shared without a copy, in order with JAX's work, never modified."""

import os

import numpy as np
import pytest

from layoutkit import Converter, accumulate, convert
from tests.helpers.arrays_of import BF16

# JAX shares the GPU with CuPy; by default JAX would reserve three quarters of the memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax = pytest.importorskip("jax", reason="needs JAX")
jnp = jax.numpy
if jax.default_backend() != "gpu":
    pytest.skip("this JAX was installed without CUDA", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("machine")

IMAGES = np.random.default_rng(0).random((8, 30, 31, 5), np.float32)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int32", BF16], ids=str)
def test_arrays_become_arrays(dtype):
    x = jnp.asarray(IMAGES * 100).astype(dtype)
    y = convert(x, "bhwc->bchw")
    assert isinstance(y, jax.Array)
    assert (y.devices(), y.dtype) == (x.devices(), x.dtype)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x).transpose(0, 3, 1, 2))
    down = convert(y, "bchw->bhwc", device="cpu")
    np.testing.assert_array_equal(np.asarray(down), np.asarray(x))


def test_nothing_is_moved_where_nothing_has_to_be():
    x = jnp.asarray(IMAGES)
    assert convert(x, "bhwc->bhwc") is x
    flat = convert(x, "bhwc->b(hwc)")
    assert flat.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


def test_work_is_ordered_with_that_of_jax():
    """Test the order: JAX has streams of its own, and frees an array with its last reference."""
    converter = Converter("bhwc->bchw", scale=2)

    @jax.jit
    def grow(x):
        return jax.lax.fori_loop(0, 300, lambda _, y: y + 1, x)

    x = jnp.tile(jnp.asarray(IMAGES), (64, 1, 1, 1))
    wanted = 2 * (np.asarray(grow(x))).transpose(0, 3, 1, 2)
    for _ in range(20):
        y = converter(grow(x))
        noise = grow(x * 0)
        np.testing.assert_array_equal(np.asarray(y * 1), wanted)
        del noise, y


def test_sums_and_gradients():
    x = jnp.asarray(IMAGES)
    total = accumulate([(x, "bhwc"), (convert(x, "bhwc->bchw"), "bchw")], "bhwc")
    np.testing.assert_array_equal(np.asarray(total), 2 * IMAGES)
    grad = jax.grad(lambda x: convert(x, "bhwc->bchw", scale=3).sum())(x)
    np.testing.assert_array_equal(np.asarray(grad), np.full(IMAGES.shape, 3, np.float32))
