"""The executor of CUDA kernels on the CPU: it runs correct kernels and finds planted bugs."""

import struct

import numpy as np
import pytest

from layoutkit.kernels.cuda.launch import CudaLaunch
from tests.helpers import cuda_shim
from tests.helpers.cuda_moves import copied, placed
from tests.helpers.cuda_shim import ORDERS, KernelError

pytestmark = [pytest.mark.budget(4), cuda_shim.needs_compiler]

ROWS, COLUMNS = 33, 65
TILED = """
struct Params { long long rows, columns; };
struct Pointers { unsigned char *dst; const unsigned char *coefficients, *src; };

template <class Item>
__device__ __forceinline__ void move(const Params &p, const Item *src, Item *dst) {
    __shared__ __align__(16) Item tile[16][17];
    int across = (p.columns + 15) / 16;
    int row = blockIdx.x / across * 16, column = blockIdx.x % across * 16;
    int i = threadIdx.x / 16, j = threadIdx.x % 16;
    if (row + i < p.rows && column + j < p.columns)
        tile[i][j] = src[(row + i) * p.columns + column + j];
    __syncthreads();
    if (column + i < p.columns && row + j < p.rows)
        dst[(column + i) * p.rows + row + j] = tile[j][i];
}

extern "C" __global__ void __launch_bounds__(256) tiled(const Params params,
                                                        const Pointers pointers) {
    move((const unsigned *)pointers.src, (unsigned *)pointers.dst);
}
""".replace("move((", "move(params, (")


def transposed(change=None, **how):
    """Return (result, expected result) of a small transpose, with `change` in its source."""
    text = TILED
    if change is not None:
        assert text.count(change[0]) == 1
        text = text.replace(*change)
    x = copied(np.arange(ROWS * COLUMNS, dtype=np.uint32).reshape(ROWS, COLUMNS) + 1, 0)
    y = placed(x.T.shape, x.dtype)
    launch = CudaLaunch("tiled", (), struct.pack("2q", ROWS, COLUMNS), 3 * 5, 256)
    cuda_shim.run(launch, y, [x], text=text, **how)
    return y, x.T


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["checked", "threads"])
def test_a_right_kernel_is_right_in_any_order(mode, order):
    np.testing.assert_array_equal(*transposed(mode=mode, order=order, seed=7))


STORED = "tile[i][j] = src"
WRONG = {
    "reads behind the source": ("row + i < p.rows &&", "row + i <= p.rows &&", "heap-buffer"),
    "writes behind the output": ("&& row + j < p.rows", "", "heap-buffer"),
    "an index beyond its row of shared memory": (STORED, "tile[i][j + 3] = src", "out of bounds"),
    "a word that is not aligned": (
        STORED, "*(uint2 *)&tile[i][j | 1] = uint2(); " + STORED, "misaligned"
    ),
    "a pointer beyond shared memory": (
        STORED, "((volatile unsigned *)tile)[i * 17 + j + 20] = 0; " + STORED, "error|overflow"
    ),
    "a float that no integer holds": (
        STORED, "p.rows == (int)(1e20f * (i + 1)) ? 0 : " + STORED, "outside the range"
    ),
    "a barrier for some": (
        "__syncthreads();", "if (j) __syncthreads();", "thread 0 is at line -1, thread 1 at line 13"
    ),
    "two barriers for one": (
        "__syncthreads();", "if (j)\n__syncthreads();\nelse\n__syncthreads();", "divergence"
    ),
    "a return before the barrier": (
        "__syncthreads();", "if (row + i >= p.rows) return; __syncthreads();", "divergence"
    ),
}  # fmt: skip


@pytest.mark.budget(1)
@pytest.mark.parametrize("what", WRONG)
def test_sanitizers_report(what):
    before, after, message = WRONG[what]
    with pytest.raises(KernelError, match=message):
        transposed((before, after))


def test_threads_that_no_barrier_orders_are_a_race():
    with pytest.raises(KernelError, match=r"(?s)data race.*tiled.cu"):
        transposed(("__syncthreads();", ""), mode="threads")


def is_right(change, **how):
    y, wanted = transposed(change, **how)
    return np.array_equal(y, wanted)


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_shows_in_every_order(order):
    assert not is_right(("__syncthreads();", ""), order=order)


def test_what_depends_on_the_order_shows_in_another():
    """Test threads that read a value of thread 0 without a barrier."""
    line = "int i = threadIdx.x / 16"
    early = "__shared__ int first; if (!threadIdx.x) first = 0; int i = first + threadIdx.x / 16"
    assert is_right((line, early), order="forward")
    with pytest.raises(KernelError, match="out of bounds"):
        is_right((line, early), order="reverse")


@pytest.mark.parametrize("poison", [0x00, 0xA5])
def test_shared_memory_that_was_never_written_shows(poison):
    """Test that shared memory does not keep the values of the block before."""
    assert not is_right((STORED, "if (i != 3) " + STORED), poison=poison)


def test_a_worker_goes_on_after_a_fault():
    with pytest.raises(KernelError):
        transposed(("row + i < p.rows &&", "row + i <= p.rows &&"))
    np.testing.assert_array_equal(*transposed())


def test_memory_before_and_between_arrays_is_watched():
    x = copied(np.arange(ROWS * COLUMNS, dtype=np.uint32).reshape(ROWS, COLUMNS), 16)
    y = placed(x.T.shape, x.dtype, 64)
    launch = CudaLaunch("tiled", (), struct.pack("2q", ROWS, COLUMNS), 3 * 5, 256)
    for before in ("src[", "dst["):
        text = TILED.replace(before, before + "-1 + ")
        with pytest.raises(KernelError, match="AddressSanitizer"):
            cuda_shim.run(launch, y, [x], text=text)


def test_parameters_of_another_size_are_refused():
    x = copied(np.zeros((4, 4), np.uint32), 0)
    launch = CudaLaunch("tiled", (), struct.pack("q", 4), 1, 256)
    with pytest.raises(KernelError, match=r"8 bytes of parameters and 3 pointers, but .*16, 24"):
        cuda_shim.run(launch, placed((4, 4), x.dtype), [x], text=TILED)
