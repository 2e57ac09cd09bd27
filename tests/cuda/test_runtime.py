"""The runtime with a fake CuPy that accepts only the arguments of the real one."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace

import numpy as np
import pytest

from layoutkit import Converter, accumulate, convert
from layoutkit.cuda import cupy_runtime, driver, transfers
from layoutkit.cuda import runtime as the_one
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.cuda.runtime import runtime
from tests.helpers.arrays_of import BF16, laid
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import values_of
from tests.helpers.reference import reference_convert

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


@pytest.fixture
def slow(monkeypatch):
    """Return a function that slows down a function of an object and returns a list of its calls."""

    def make_slow(owner, name):
        calls, function = [], getattr(owner, name)

        def slowly(*args, **keywords):
            calls.append(name)
            time.sleep(0.02)  # the other threads wait for the lock meanwhile
            return function(*args, **keywords)

        monkeypatch.setattr(owner, name, slowly)
        return calls

    return make_slow


def in_threads(work):
    with ThreadPoolExecutor(8) as executor:
        return list(executor.map(work, range(8)))


def test_threads_compile_a_kernel_and_upload_its_constants_once(gpu, slow):
    compiled, uploaded = slow(cupy_runtime, "compile_kernel"), slow(CupyRuntime, "_upload")
    converter = Converter("bhwc->bchw", **FORMULA)
    x = gpu.array(IMAGES)
    launches = []
    run = CupyRuntime.load_function

    def noted(runtime, launch, ordinal):
        launches.append((launch, ordinal))
        return run(runtime, launch, ordinal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CupyRuntime, "load_function", noted)
        converter(x)
    assert len(compiled) == len(launches) == 1
    compiled.clear()
    uploaded.clear()
    fresh = runtime()
    fresh.functions.clear()
    functions = in_threads(lambda _: fresh.load_function(*launches[0]))
    addresses = in_threads(lambda _: fresh.constants(b"other constants", 0))
    assert len({id(function) for function in functions}) == len(set(addresses)) == 1
    assert (len(compiled), len(uploaded)) == (1, 1)


def test_threads_create_one_runtime(gpu, slow, monkeypatch):
    monkeypatch.setattr(the_one, "process_runtime", None)
    created = slow(CupyRuntime, "__init__")
    runtimes = in_threads(lambda _: runtime())
    assert len(created) == len({id(each) for each in runtimes}) == 1


def test_threads_share_the_staging_buffers_of_a_gpu(gpu, slow):
    made = slow(transfers.PinnedStaging, "_start")
    staging = in_threads(lambda _: transfers.find_staging(1))
    assert len(made) == len({id(each) for each in staging}) == 1


def test_threads_load_the_driver_once(slow, monkeypatch):
    monkeypatch.setattr(driver, "exchange_capture_mode", None)
    loaded = slow(driver, "_load_exchange_function")
    in_threads(lambda _: driver.load_exchange_function())
    assert len(loaded) == 1


def test_threads_upload_and_download_one_after_the_other(gpu, slow, monkeypatch):
    """Test staging buffers that concurrent copies would overwrite; downloads have no kernel."""
    monkeypatch.setattr(transfers, "STAGING_BYTES", 64)
    gpu.eager = True
    slow(transfers.StagingBuffer, "free")
    arrays = [IMAGES + np.uint8(number) for number in range(8)]
    there = in_threads(lambda n: convert(arrays[n], "bhwc->bchw", device="cuda"))
    back = in_threads(lambda n: convert(there[n], "bchw->bchw", device="cpu"))
    for array, found in zip(arrays, back, strict=True):
        np.testing.assert_array_equal(found, array.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("current", [0, 1])
def test_two_gpus_by_turns(gpu, current):
    """Test that each device has its own kernels, constants, streams and memory."""
    converter = Converter("bhwc->bchw", **FORMULA)
    with gpu.on(current):
        results = [converter(gpu.array(IMAGES, n)) for n in (0, 1, 0, 1)]
    assert [y.ordinal for y in results] == [0, 1, 0, 1]
    first, *others = (values_of(y) for y in results)
    assert len(gpu.loaded) == 2
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("lies", ["plain", "unaligned"])
def test_sums_on_two_gpus_by_turns(gpu, lies, current):
    for n in (0, 1, 0, 1):
        x = gpu.array(laid(IMAGES.astype("f4"), lies), n)
        with gpu.on(current):
            total = accumulate([(x, "bhwc"), (x, "bhwc")], "bchw")
        assert total.ordinal == n
        np.testing.assert_array_equal(values_of(total), 2.0 * IMAGES.transpose(0, 3, 1, 2))
    assert [name for name, _ in groupby(gpu.cupy.launched, itemgetter(0))] == [
        "main 0", "main 1"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize(
    "options", [{"channels": (2, 0, 1)}, {"pad_to": {"h": 8}, "device": "cpu"}], ids=str
)
def test_the_library_copies_on_the_gpu_of_the_array(gpu, options, current):
    wanted = convert(IMAGES, "bhwc->bchw", **options)
    for n in (0, 1):
        with gpu.on(current):
            y = convert(gpu.array(IMAGES, n), "bhwc->bchw", **options)
        np.testing.assert_array_equal(y if "device" in options else values_of(y), wanted)


@pytest.mark.parametrize("current", [0, 1])
def test_memory_of_no_device_is_used_on_the_current_one(gpu, monkeypatch, current):
    """Test host memory, which a GPU can read on some systems but which has no device."""
    for number in (-1, -2):
        attributes = SimpleNamespace(device=number)
        monkeypatch.setattr(
            gpu.cupy.cuda.runtime, "pointerGetAttributes", lambda _, found=attributes: found
        )
        with gpu.on(current):
            assert gpu.runtime.device_of(0x1000) == current


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
    streams = [gpu.runtime.wrap_stream(0x9000 + 16 * (n % 100)) for n in range(200)]
    assert [stream.ptr for stream in streams[:100]] == [0x9000 + 16 * n for n in range(100)]
    assert gpu.runtime.wrap_stream(streams[-1].ptr) is streams[-1]
    assert len(gpu.runtime.foreign_streams) <= 64


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


@pytest.mark.parametrize(("source", "target"), [("f4", "i4"), (BF16, "c8"), ("c8", "f2")], ids=str)
def test_casts_that_are_the_librarys_are_of_aligned_memory(gpu, source, target):
    x = IMAGES.astype(source)
    out = gpu.array(laid(np.zeros((2, 3, 4, 5), target), "unaligned"))
    convert(gpu.array(laid(x, "unaligned")), "bhwc->bchw", out=out, casting="unsafe")
    np.testing.assert_array_equal(values_of(out), x.real.transpose(0, 3, 1, 2).astype(target))


def test_the_current_stream_is_launched_on(gpu):
    converter, x = Converter("bhwc->bchw"), gpu.array(IMAGES)
    theirs = gpu.new_stream(0, "theirs")
    foreign = SimpleNamespace(__cuda_stream__=lambda: (0, theirs.ptr))
    with gpu.cupy.cuda.Stream.from_external(foreign):
        converter(x)
    converter(x)
    theirs.synchronize()  # before x is freed on another stream
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
    """Test streams and memory of other libraries, and the constants of copies."""
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    runtime = CupyRuntime.__new__(CupyRuntime)
    runtime.cupy, runtime.foreign_streams = cupy, {}
    assert runtime.wrap_stream(0x77).ptr == 0x77
    assert not runtime.is_capturing(cupy.cuda.Stream.null)
    for dtype in ("f4", "c16", BF16, [("a", "u1"), ("b", "<f2")]):
        x = runtime.wrap(4096, (3, 4), (-64, 16), np.dtype(dtype), 1, owner=IMAGES)
        assert (x.data.ptr, x.strides, int(x.data.device_id)) == (4096, (-64, 16), 1)
        assert x.dtype == np.dtype(dtype)
    for name in ("memcpyHostToDevice", "memcpyDeviceToHost", "memcpyDefault"):
        assert isinstance(getattr(cupy.cuda.runtime, name), int)


@pytest.mark.skipif(not hasattr(signal, "siginterrupt"), reason="Windows restarts no system calls")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_wait_after_a_compilation(number):
    """Test it with a compiler that changes the handlers as NVRTC does."""

    def get_function(name):
        signal.siginterrupt(number, False)
        return SimpleNamespace(num_regs=32, kernel=name)

    cupy = SimpleNamespace(RawModule=lambda **keywords: SimpleNamespace(get_function=get_function))
    cupy.cuda = SimpleNamespace(compiler=SimpleNamespace(CompileException=ValueError))
    before = signal.signal(number, signal.default_int_handler)
    assert driver.compile_kernel(cupy, "", (), "move") == "move"
    lock = threading.Lock()
    lock.acquire()
    interrupt = signal.pthread_kill, (threading.main_thread().ident, number)
    timers = [threading.Timer(0.1, *interrupt), threading.Timer(2, lock.release)]
    for timer in timers:
        timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    signal.signal(number, before)
    assert time.monotonic() - began < 1.5
    timers[1].cancel()
