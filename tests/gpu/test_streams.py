"""Streams, graphs, transfers that overlap, and arrays of more than 2**31 elements."""

import threading
import time

import cupy
import numpy as np
import pytest

from layoutkit import Converter, DeviceError, accumulate, buffers, convert

pytestmark = pytest.mark.usefixtures("machine")

IMAGES = np.random.default_rng(0).integers(0, 256, (64, 224, 224, 3), np.uint8)
FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}

SPIN = cupy.RawKernel(
    r"""
    __device__ long long now() {
        long long nanoseconds;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
        return nanoseconds;
    }
    extern "C" __global__ void spin(long long nanoseconds) {
        long long begin = now();
        while (now() - begin < nanoseconds) {}
    }
    """,
    "spin",
)


def spin(stream, milliseconds):
    """Keep a stream busy, whatever the clock rate."""
    with stream:
        SPIN((1,), (1,), (np.int64(milliseconds * 1_000_000),))


def test_work_goes_on_the_current_stream_and_nothing_is_waited_for():
    converter, x = Converter("bhwc->bchw", **FORMULA), cupy.asarray(IMAGES)
    wanted = converter(x).get()
    accumulate([(converter(x), "bchw")] * 2, "bhwc")
    stream = cupy.cuda.Stream(non_blocking=True)
    spin(stream, 1)
    stream.synchronize()
    cupy.cuda.Device().synchronize()
    spin(stream, 200)
    began = time.perf_counter()
    with stream:
        y = converter(x)
        accumulate([(y, "bchw")] * 2, "bhwc")
    assert time.perf_counter() - began < 0.1
    assert not stream.done
    np.testing.assert_array_equal(y.get(stream=stream), wanted)


def test_a_cuda_graph_is_captured_and_replayed():
    converter = Converter("bhwc->bchw", **FORMULA)
    x, out = cupy.asarray(IMAGES), cupy.empty((64, 3, 224, 224), np.float32)
    total = cupy.empty((64, 224, 224, 3), np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        cold = Converter("bhwc->chwb", mean=(7, 8, 9), dtype="f4")
        converter(x, out)
        accumulate([(out, "bchw")] * 3, "bhwc", out=total)
        stream.begin_capture()
        with pytest.raises(DeviceError, match="call it once on such arrays"):
            cold(x)
        converter(x, out)
        accumulate([(out, "bchw")] * 3, "bhwc", out=total)
        inside = converter(x)
        graph = stream.end_capture()
        for turn in (1, 2):
            x[:] = cupy.asarray(IMAGES[::-1] if turn == 1 else IMAGES)
            graph.launch(stream)
            stream.synchronize()
            wanted = converter(x).get()
            np.testing.assert_array_equal(out.get(), wanted)
            np.testing.assert_array_equal(inside.get(), wanted)
            np.testing.assert_array_equal(
                total.get(), convert(wanted * np.float32(3), "bchw->bhwc")
            )


def test_memory_of_a_captured_conversion_stays_its_own():
    """Test that arrays made after a capture do not get the memory of the graph's temporaries."""
    x = cupy.asarray(IMAGES[:8]).astype(np.float32)
    out = cupy.empty((8, 3, 224, 224), np.int32)
    converter = Converter("bhwc->bchw", dtype="i4", casting="unsafe")  # with a temporary of float32
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        converter(x, out)
        stream.begin_capture()
        converter(x, out)
        graph = stream.end_capture()
        others = [cupy.full(out.shape, 7, np.float32) for _ in range(8)]
        out[:] = 0
        graph.launch(stream)
        stream.synchronize()
    assert all((other == 7).all() for other in others)
    np.testing.assert_array_equal(out.get(), IMAGES[:8].transpose(0, 3, 1, 2))


def test_page_locked_memory_is_bounded_and_given_back():
    pool = cupy.get_default_pinned_memory_pool()
    pool.free_all_blocks()
    up = Converter("bhwc->bchw", device="cuda")
    results = [convert(up(IMAGES), "bchw->bhwc", device="cpu") for _ in range(20)]
    buffers.clear()
    assert pool.n_free_blocks() == 0
    for each in results:
        np.testing.assert_array_equal(each, IMAGES)


@pytest.mark.parametrize("layout", ["plain", "strided"])
def test_batches_go_up_and_come_down_unharmed(layout):
    converter = Converter("bhwc->bchw", **FORMULA, device="cuda")
    here = Converter("bhwc->bchw", **FORMULA)
    batches = [np.roll(IMAGES, n, axis=0)[: 40 + 8 * (n % 4)] for n in range(12)]
    if layout == "strided":
        batches = [batch[:, ::2, ::-1] for batch in batches]
    copies = [batch.copy() for batch in batches]
    results = []
    for batch in copies:
        results.append(converter(batch))
        batch[:] = 0  # the caller may write to it again
    for batch, y in zip(batches, results, strict=True):
        np.testing.assert_allclose(y.get(), here(batch), rtol=1e-6, atol=1e-6)
        down = convert(y, "bchw->bhwc", device="cpu")
        np.testing.assert_array_equal(down, convert(y, "bchw->bhwc").get())


def test_copies_overlap_kernels():
    """Test that transfers and kernels of equal length overlap."""
    converter = Converter("bhwc->bchw", **FORMULA, device="cuda")
    images = np.concatenate([IMAGES] * 4)  # 38.5 MB, so that a transfer takes a millisecond
    stream = cupy.cuda.Stream(non_blocking=True)

    def loop(milliseconds, transfers=True):
        stream.synchronize()
        began = time.perf_counter()
        with stream:
            for _ in range(10):
                if transfers:
                    converter(images)
                if milliseconds:
                    spin(stream, milliseconds)
        stream.synchronize()
        return time.perf_counter() - began

    loop(1)
    alone = min(loop(0) for _ in range(3))
    length = max(1, round(alone * 100))  # as long as a transfer
    kernels = min(loop(length, transfers=False) for _ in range(3))
    both = min(loop(length) for _ in range(3))
    times = f"{alone * 1e3:.1f} ms, ten kernels {kernels * 1e3:.1f} ms, both {both * 1e3:.1f} ms"
    print(f"ten transfers {times}")
    # On a host that other programs use, filling the page-locked memory may take most of the time.
    assert both < 0.95 * (alone + kernels)


def test_four_threads_convert_on_four_streams():
    converter = Converter("bhwc->bchw", **FORMULA, device="cuda")
    expected = Converter("bhwc->bchw", **FORMULA)(IMAGES[:8])
    results, errors = {}, []

    def work(number):
        try:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                for turn in range(20):
                    batch = np.roll(IMAGES[:8], number + turn, axis=0)
                    result = converter(batch)
                    batch[:] = 0  # the caller may write to it again
                    results[number, turn] = result.get(stream=stream)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(results) == 80
    for (number, turn), result in results.items():
        np.testing.assert_allclose(
            result, np.roll(expected, number + turn, axis=0), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_more_than_2_to_the_31_elements(dtype):
    rows, columns = 50_021, 43_037  # 2.15e9 elements, no power of two in either
    x = cupy.arange(rows * columns, dtype=np.uint32).astype(dtype).reshape(rows, columns)
    y = convert(x, "bf->fb")
    for begin in range(0, columns, 4096):
        assert (y[begin : begin + 4096] == x[:, begin : begin + 4096].T).all()
    del y
    same = convert(x, "bf->bf", copy=True)
    assert (same[-100:] == x[-100:]).all()
    del x, same
    cupy.get_default_memory_pool().free_all_blocks()
