"""Order and lifetime where two libraries, two streams or a CUDA graph meet."""

import ctypes
import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from layoutkit import Converter, DeviceError, ShapeError, accumulate, collate, convert
from layoutkit.cuda import streams
from tests.helpers.arrays_of import laid
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import FakeArray, values_of
from tests.helpers.reference import reference_convert

pytestmark = needs_compiler

IMAGES = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)


class Foreign:
    """An array of a library with the CUDA array interface and a stream of its own."""

    def __init__(self, array, stream):
        self.array, self.stream = array, stream

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, "stream": self.stream.ptr}


class Dlpack:
    """An array of a library that exports its memory by DLPack."""

    def __init__(self, array, stream):
        self.memory, self.ordinal, self.stream = array.memory, array.ordinal, stream
        self.asked = []

    def __dlpack_device__(self):
        return 2, self.ordinal

    def __dlpack__(self, *, stream):
        self.asked.append(stream)
        return


def made_on(gpu, stream, values, how=Foreign):
    """Return an array that a stream of its library will fill with values."""
    array = gpu.array(np.zeros_like(values))
    block = gpu.gpus.block_of(array.data.ptr)
    stream.queue.put("made", lambda: np.copyto(array.memory, values), [block])
    return how(array, stream) if how else array


# ---- sums of two libraries ---------------------------------------------------------------


@pytest.fixture
def torchs(gpu, monkeypatch):
    """Yield torch on the fake GPU, with a stream of its own."""
    from tests.helpers import fake_torch as found

    yield found.FakeTorch(gpu, monkeypatch)
    for queue in (*gpu.gpus.main, *gpu.gpus.queues.values()):
        queue.synchronize()  # before the arrays of the test are freed


@pytest.mark.parametrize(
    "kinds", [("cupy", "torch"), ("torch", "cupy"), ("torch", "foreign"), ("cupy", "foreign"),
              ("foreign", "torch")],
    ids=" and ".join,
)  # fmt: skip
def test_a_sum_waits_for_the_work_of_both_libraries(gpu, torchs, kinds):
    ours, theirs = gpu.new_stream(0, "ours"), gpu.new_stream(0, "theirs")
    make = {
        "cupy": lambda: made_on(gpu, ours, IMAGES, None),
        "torch": lambda: torchs.made(IMAGES),
        "foreign": lambda: made_on(gpu, theirs, IMAGES),
    }
    with gpu.using(ours):
        parts = [(make[kind](), "bhwc") for kind in kinds]
        z = accumulate(parts, "bchw")
        assert gpu.host_waits == []
        got = values_of(z) if isinstance(z, FakeArray) else torchs.values_of(z)
        np.testing.assert_array_equal(got, 2 * IMAGES.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("leader", ["cupy", "torch"])
def test_parts_of_another_library_are_held_until_they_were_read(gpu, torchs, leader):
    """Test that foreign parts are kept alive: their library could reuse freed memory at once."""
    theirs = gpu.new_stream(0, "theirs")
    first, second = gpu.array(IMAGES), torchs.made(IMAGES)
    if leader == "torch":
        first, second = second, first
    third = made_on(gpu, theirs, IMAGES)
    alive = [weakref.ref(second), weakref.ref(third)]
    z = accumulate([(part, "bhwc") for part in (first, second, third)], "bchw")
    del second, third
    gc.collect()
    assert all(part() is not None for part in alive)
    gpu.stream(0).synchronize()
    torchs.stream.synchronize()
    accumulate([(first, "bhwc"), (made_on(gpu, theirs, IMAGES), "bhwc")], "bchw")
    gc.collect()
    assert [part() for part in alive] == [None, None]
    del z


def test_all_arrays_of_a_sum_of_one_foreign_library_are_held(gpu):
    theirs = gpu.new_stream(0, "theirs")
    arrays = [made_on(gpu, theirs, values) for values in (IMAGES, IMAGES, np.zeros_like(IMAGES))]
    alive = [weakref.ref(x) for x in arrays]
    accumulate([(x, "bhwc") for x in arrays[:2]], "bhwc", out=arrays[2])
    del arrays
    gc.collect()
    assert all(x() is not None for x in alive)


@pytest.mark.parametrize("kinds", [("cupy", "torch"), ("torch", "cupy"), ("cupy", "foreign")])
def test_other_libraries_wait_for_a_sum_before_they_write_to_its_parts(gpu, torchs, kinds):
    ours, theirs = gpu.new_stream(0, "ours"), gpu.new_stream(0, "theirs")
    with gpu.using(ours):
        make = {
            "cupy": lambda: (gpu.array(IMAGES), ours),
            "torch": lambda: (torchs.made(IMAGES), torchs.stream),
            "foreign": lambda: (made_on(gpu, theirs, IMAGES), ours),  # imported on our stream
        }
        parts, streams_of_parts = zip(*(make[kind]() for kind in kinds), strict=True)
        z = accumulate([(part, "bhwc") for part in parts], "bchw")
        second, stream = parts[1], streams_of_parts[1]
        address = second.data_ptr() if kinds[1] == "torch" else second.array.data.ptr if (
            kinds[1] == "foreign") else second.data.ptr  # fmt: skip
        overwrite = lambda: ctypes.memset(address, 0, IMAGES.nbytes)
        stream.queue.put("overwrite", overwrite, [gpu.gpus.block_of(address)])
        stream.queue.synchronize()  # waits for their stream only
        got = values_of(z) if isinstance(z, FakeArray) else torchs.values_of(z)
        np.testing.assert_array_equal(got, 2 * IMAGES.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("way", ["first", "repeated", "sum"])
def test_torchs_default_stream_while_cupys_current_stream_is_another(gpu, monkeypatch, way):
    from tests.helpers import fake_torch as found

    torchs = found.FakeTorch(gpu, monkeypatch, on_default=True)
    converter = Converter("bhwc->bchw", scale=2.0)
    if way == "repeated":
        converter(torchs.made(IMAGES))
    with gpu.using(gpu.new_stream(0, "ours")):
        x = torchs.made(IMAGES)
        z = accumulate([(x, "bhwc")] * 2, "bchw") if way == "sum" else converter(x)
        assert {name for name, _ in gpu.cupy.launched} == {"main 0"}
        np.testing.assert_array_equal(torchs.values_of(z), 2 * IMAGES.transpose(0, 3, 1, 2))


# 1 is the legacy default stream, and 2 the default stream of the thread.
@pytest.mark.parametrize(("pointer", "ours"), [(1, "ours"), (2, "ours"), (2, "main 0")])
def test_default_streams_of_other_libraries_are_waited_for(gpu, pointer, ours):
    theirs = gpu.numbered_stream(pointer)
    converter = Converter("bhwc->bchw")
    with gpu.using(gpu.new_stream(0, ours) if ours == "ours" else gpu.default_stream()):
        for _ in range(2):
            x = made_on(gpu, theirs, IMAGES)
            np.testing.assert_array_equal(values_of(converter(x)), IMAGES.transpose(0, 3, 1, 2))
        assert {name for name, _ in gpu.cupy.launched} == {ours}
    with gpu.capturing(), pytest.raises(DeviceError, match="x belongs to a library with a stream"):
        converter(made_on(gpu, theirs, IMAGES))


def test_one_stream_of_two_libraries_needs_no_event(gpu):
    x = gpu.array(IMAGES)
    for default in (0, 1):  # both are names of the default stream
        y = Foreign(gpu.array(IMAGES), SimpleNamespace(ptr=default))
        accumulate([(x, "bhwc"), (y, "bhwc")], "bchw")
    assert gpu.launches("record") == 2  # after the kernels, to keep foreign arrays alive


# ---- batches -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kinds", [("cupy",) * 2, ("torch",) * 2, ("foreign",) * 2, ("cupy", "torch"),
              ("torch", "cupy"), ("torch", "foreign"), ("cupy", "foreign")],
    ids=" and ".join,
)  # fmt: skip
def test_a_batch_waits_for_the_work_of_the_libraries_of_its_samples(gpu, torchs, kinds):
    ours, theirs = gpu.new_stream(0, "ours"), gpu.new_stream(0, "theirs")
    make = {
        "cupy": lambda x: made_on(gpu, ours, x, None),
        "torch": torchs.made,
        "foreign": lambda x: made_on(gpu, theirs, x),
    }
    with gpu.using(ours):
        samples = [make[kind](image) for kind, image in zip(kinds, IMAGES, strict=True)]
        z = collate(samples, "hwc->bchw")
        got = values_of(z) if isinstance(z, FakeArray) else torchs.values_of(z)
        np.testing.assert_array_equal(got, IMAGES.transpose(0, 3, 1, 2))


def test_samples_of_a_second_library_are_held_until_they_were_read(gpu, torchs):
    theirs = gpu.new_stream(0, "theirs")
    samples = [gpu.array(IMAGES[0]), made_on(gpu, theirs, IMAGES[1]), torchs.made(IMAGES[0])]
    alive = [weakref.ref(x) for x in samples[1:]]
    collate(samples, "hwc->bchw")
    del samples
    gc.collect()
    assert all(x() is not None for x in alive)


def test_samples_of_another_library_are_held_until_they_were_read(gpu):
    theirs = gpu.new_stream(0, "theirs")
    samples = [made_on(gpu, theirs, image) for image in IMAGES]
    alive = [weakref.ref(x) for x in samples]
    collate(samples, "hwc->bchw")
    del samples
    gc.collect()
    assert all(x() is not None for x in alive)
    gpu.stream(0).synchronize()
    convert(made_on(gpu, theirs, IMAGES), "bhwc->bchw")  # releases the arrays whose work is done
    gc.collect()
    assert [x() for x in alive] == [None, None]


# ---- lifetime ----------------------------------------------------------------------------


def test_what_a_failed_call_has_launched_still_holds_its_arrays(gpu, monkeypatch):
    theirs = gpu.new_stream(0, "theirs")
    x = made_on(gpu, theirs, IMAGES)
    alive = weakref.ref(x)
    with monkeypatch.context() as broken:
        broken.setattr(type(gpu.runtime), "cast_into", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            convert(x, "bhwc->bchw", dtype="i4", casting="unsafe")
    del x
    gc.collect()
    assert alive() is not None
    assert gpu.launches() == 1


def test_a_failed_call_still_holds_the_array_that_it_has_padded(gpu):
    x = made_on(gpu, gpu.new_stream(0, "theirs"), IMAGES)
    alive = weakref.ref(x)
    with pytest.raises(ShapeError, match="out has shape"):
        convert(x, "bhwc->bchw", pad_to={"h": 8}, device="cpu", out=np.zeros(1, "f4"))
    del x
    gc.collect()
    assert alive() is not None


def test_a_finaliser_may_convert(gpu):
    """Test that a finalizer may convert while arrays are released, without a deadlock."""
    theirs, called = gpu.new_stream(0, "theirs"), []

    class Dying(Foreign):
        def __del__(self):
            convert(Foreign(gpu.array(IMAGES), theirs), "bhwc->bchw")
            called.append(len(streams.kept_alive))

    convert(Dying(gpu.array(IMAGES), theirs), "bhwc->bchw")
    gpu.stream(0).synchronize()
    done = threading.Thread(
        target=lambda: convert(Foreign(gpu.array(IMAGES), theirs), "bhwc->bchw"), daemon=True
    )
    done.start()
    done.join(20)
    assert not done.is_alive()
    assert called


def test_holding_asks_only_as_one_may_while_others_capture(gpu):
    """Test that events are queried in relaxed mode: otherwise a query ends another capture."""
    theirs = gpu.new_stream(0, "theirs")
    converter = Converter("bhwc->bchw")
    x = Foreign(gpu.array(IMAGES), theirs)
    converter(x)
    other = gpu.new_stream(0, "captured elsewhere")
    other.begin_capture(mode=0)  # as torch does: no thread may query events
    converter(x)
    other.end_capture()
    assert gpu.gpus.mode.capture == 0  # the previous mode is restored


# ---- graphs ------------------------------------------------------------------------------

OWN = {  # conversions that need temporaries: keywords, strides of x, strides of out
    "gaps in out": ({"dtype": "f8"}, "plain", "unaligned"),
    "unaligned x": ({"scale": 2.0}, "unaligned", "plain"),
    "unaligned out": ({"scale": 2.0}, "plain", "unaligned"),
    "unsafe": ({"dtype": "i4", "casting": "unsafe"}, "plain", "plain"),
}


@pytest.mark.budget(1)
@pytest.mark.parametrize("what", OWN)
def test_memory_of_a_captured_conversion_stays_its_own(gpu, what):
    keywords, x_lies, out_lies = OWN[what]
    x = gpu.array(laid(IMAGES, x_lies))
    dtype = np.dtype(keywords.get("dtype", "f4"))
    out = gpu.array(laid(np.zeros((2, 3, 4, 5), dtype), out_lies))
    converter = Converter("bhwc->bchw", **keywords)
    captured_and_replayed(gpu, lambda: converter(x, out))
    wanted = reference_convert(IMAGES, "bhwc->bchw", **{**keywords, "dtype": dtype})
    np.testing.assert_array_equal(values_of(out), wanted)


@pytest.mark.parametrize("count", [2, 17])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_memory_of_a_captured_sum_stays_its_own(gpu, count, dtype):
    parts = [(gpu.array(laid(IMAGES, "unaligned")), "bhwc")] * count
    out = gpu.array(laid(np.zeros((2, 3, 4, 5), dtype), "unaligned"))
    captured_and_replayed(gpu, lambda: accumulate(parts, "bchw", out=out))
    np.testing.assert_allclose(values_of(out), count * IMAGES.transpose(0, 3, 1, 2), rtol=1e-6)


def test_constants_of_a_captured_conversion_are_kept(gpu):
    x, out = gpu.array(IMAGES), gpu.array(np.zeros((2, 3, 4, 5), "f4"))
    captured_and_replayed(
        gpu,
        lambda: convert(x, "bhwc->bchw", scale=2.0, out=out),
        lambda: [convert(x, "bhwc->bchw", scale=3.0 + n) for n in range(200)],
    )
    np.testing.assert_array_equal(values_of(out), 2 * IMAGES.transpose(0, 3, 1, 2))


def captured_and_replayed(gpu, call, meanwhile=lambda: None):
    """Call, capture a call, run `meanwhile`, overwrite freed memory, and replay the graph."""
    call()
    with gpu.capturing() as graph:
        call()
    meanwhile()
    gc.collect()
    others = [gpu.array(np.full(4096, 7, np.uint8)) for _ in range(40)]
    graph[0].launch(gpu.stream(0))
    gpu.stream(0).synchronize()
    for other in others:
        assert (other.memory == 7).all()


@pytest.mark.parametrize("how", [Foreign, Dlpack])
def test_arrays_of_others_are_refused_before_a_capture_is_lost(gpu, how):
    theirs, ours = gpu.new_stream(0, "theirs"), gpu.array(IMAGES)
    x = how(gpu.array(IMAGES), theirs)
    converter = Converter("bhwc->bchw")
    converter(x)
    accumulate([(ours, "bhwc"), (x, "bhwc")], "bchw")
    log = list(gpu.log)
    with gpu.capturing() as graph:
        with pytest.raises(DeviceError, match="x belongs to a library with a stream of its own"):
            converter(x)
        with pytest.raises(DeviceError, match="part 1 belongs to a library with a stream"):
            accumulate([(ours, "bhwc"), (x, "bhwc")], "bchw")
        converter(ours)
    assert [name for name, _, _ in graph[0].nodes] == ["kernel"]
    assert gpu.log == log


def test_a_part_of_torch_is_refused_while_cupy_captures(gpu, torchs):
    x, y = gpu.array(IMAGES), torchs.made(IMAGES)
    with gpu.capturing() as graph:
        for parts in ((x, y), (y, x)):
            with pytest.raises(DeviceError, match="part 1 belongs to a library"):
                accumulate([(part, "bhwc") for part in parts], "bchw")
    assert graph[0].nodes == []


def test_what_others_capture_is_not_waited_for(gpu):
    """Test that a captured stream is refused: a wait would add our stream to its graph."""
    theirs = gpu.new_stream(0, "theirs")
    x = Foreign(gpu.array(IMAGES), theirs)
    theirs.begin_capture()
    with pytest.raises(DeviceError, match="x belongs to a library with a stream of its own"):
        convert(x, "bhwc->bchw")
    theirs.end_capture()


def test_results_are_not_handed_over_in_a_capture(gpu):
    """Test an array whose library would wait for our stream, which invalidates the capture."""

    class Standard(Foreign):
        def __array_namespace__(self):
            return SimpleNamespace(from_dlpack=lambda array: 1 / 0)

    converter, x = Converter("bhwc->bchw"), gpu.array(IMAGES)
    converter(x)
    with gpu.capturing(), pytest.raises(DeviceError, match="x belongs to a library"):
        converter(Standard(x, SimpleNamespace(ptr=0)))


def test_the_default_stream_of_a_thread_can_be_captured(gpu):
    """Test the per-thread stream, as CUDA refuses to capture only the legacy default stream."""
    stream = gpu.numbered_stream(2)
    stream.begin_capture()
    assert gpu.runtime.is_capturing(stream)
    stream.end_capture()
    assert not gpu.runtime.is_capturing(stream)


def test_casts_that_are_the_librarys_are_warm_before_a_capture(gpu):
    x = gpu.array(IMAGES)
    casts = [Converter("bhwc->bchw", dtype=dtype, casting="unsafe") for dtype in ("i4", "i2")]
    convert(x, "bhwc->bchw")
    casts[0](x)
    with gpu.capturing():
        casts[0](x)
        with pytest.raises(DeviceError, match="cast from float32 to int16, which is CuPy's"):
            casts[1](x)
    elsewhere = gpu.array(IMAGES, 1)
    convert(elsewhere, "bhwc->bchw")
    with gpu.capturing(1), pytest.raises(DeviceError, match="cast from float32 to int32, which"):
        casts[0](elsewhere)
