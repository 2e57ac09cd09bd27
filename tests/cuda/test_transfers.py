"""Transfers between the CPU and a GPU: the bytes that are copied, their order, and the waits."""

import gc
import os
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    BackwardError,
    ClassView,
    Converter,
    DataView,
    DeviceError,
    DtypeError,
    ImageView,
    ShapeError,
    buffers,
    convert,
    show_config,
    warmup,
)
from layoutkit.cuda import transfers
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.cuda.program import DevicePrograms
from tests.helpers.arrays_of import BF16, LAYINGS, ODD, UNALIGNED, assert_same, laid, random_array
from tests.helpers.children import python
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import FakeArray, values_of
from tests.helpers.fake_gpus import PINNED, Mark
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), needs_compiler]

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}


def check_result(got, wanted):
    assert isinstance(got, FakeArray)
    assert_same(values_of(got), wanted)


def sent(monkeypatch):
    """Return a list that gets the number of bytes of every later copy to a device."""
    sizes, copy = [], CupyRuntime.copy_in
    monkeypatch.setattr(
        CupyRuntime,
        "copy_in",
        lambda self, address, host, stream: (
            sizes.append(host.nbytes) or copy(self, address, host, stream)
        ),
    )
    return sizes


# ---- up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", LAYINGS)
def test_arrays_of_any_memory_go_up(gpu, how):
    x = laid(IMAGES.copy(), how)
    y = convert(x, "bhwc->bchw", device="cuda:1", **FORMULA)
    assert y.ordinal == 1
    wanted = reference_convert(x, "bhwc->bchw", **{**FORMULA, "dtype": np.dtype("f4")})
    np.testing.assert_allclose(values_of(y), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dtype", ["?", "u1", "i2", "f2", "f8", "c8", "c16", ">i4", ">f8", BF16, ODD]
)
def test_every_dtype_that_cupy_has_goes_up(gpu, dtype):
    x = random_array(np.random.default_rng(1), (3, 5, 4), dtype)
    native = x.dtype if x.dtype.fields else x.dtype.newbyteorder("=")
    check_result(
        convert(x, "bwc->bcw", device="cuda"), x.transpose(0, 2, 1).astype(native, order="C")
    )


def test_bytes_go_up_as_they_are(gpu, monkeypatch):
    convert(IMAGES, "bhwc->bchw", device="cuda", **FORMULA)  # uploads the constants, too
    sizes = sent(monkeypatch)
    convert(IMAGES, "bhwc->bchw", device="cuda", **FORMULA)
    assert sizes == [IMAGES.nbytes]
    # Fortran order has no gaps either; every second column has.
    convert(np.asfortranarray(IMAGES), "bhwc->bchw", device="cuda")
    convert(IMAGES[:, :, ::2], "bhwc->bchw", device="cuda")
    assert sizes[1:] == [IMAGES.nbytes, IMAGES[:, :, ::2].nbytes]


def test_what_only_the_cpu_can_cast_is_cast_there(gpu):
    x = np.linspace(-3, 300, 24).reshape(2, 3, 4)
    for dtype, keywords in [
        (ml_dtypes.float8_e5m2, {"dtype": "f4"}),
        (ml_dtypes.float8_e4m3fn, {"mean": 1, "dtype": "f2"}),
        (np.longdouble, {"dtype": "f4"}),
        (np.longdouble, {"dtype": "u1", "casting": "saturate"}),
        (">f4", {"dtype": "i2", "casting": "unsafe"}),
    ]:
        given = x.astype(dtype)
        check_result(
            convert(given, "bwc->bcw", device="cuda", **keywords),
            convert(given, "bwc->bcw", **keywords),
        )


@pytest.mark.parametrize("how", UNALIGNED)
@pytest.mark.parametrize("keywords", [{}, {"dtype": "f4"}, {"scale": 2.0}, {"dtype": "c8"}])
def test_unaligned_outputs_on_a_gpu_are_written(gpu, how, keywords):
    x = IMAGES.astype("i2")
    expected = convert(x, "bhwc->bchw", **keywords)
    out = gpu.array(laid(np.zeros_like(expected), how))
    assert convert(x, "bhwc->bchw", out=out, device="cuda", **keywords) is out
    np.testing.assert_array_equal(values_of(out), expected)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_large_arrays_go_up_in_pieces(gpu, monkeypatch, extra):
    monkeypatch.setattr(transfers, "STAGING_BYTES", 1 << 12)
    sizes = sent(monkeypatch)
    x = np.arange(2 * 4096 + extra, dtype=np.uint8).reshape(1, -1)
    check_result(convert(x, "bf->fb", device="cuda"), np.ascontiguousarray(x.T))
    assert sum(sizes) == x.nbytes
    assert max(sizes) <= 1 << 12


@pytest.mark.parametrize("how", LAYINGS)
@pytest.mark.parametrize("dtype", ["u1", ">i2"])
@pytest.mark.parametrize("nbytes", [1, 50, 128])
def test_pieces_of_any_size_and_memory_that_lies_in_any_way(gpu, monkeypatch, how, dtype, nbytes):
    monkeypatch.setattr(transfers, "STAGING_BYTES", nbytes)
    x = laid(IMAGES.astype(dtype), how)
    y = convert(x, "bhwc->bchw", device="cuda")
    native = x.astype(x.dtype.newbyteorder("="))
    check_result(y, reference_convert(native, "bhwc->bchw"))
    np.testing.assert_array_equal(convert(y, "bchw->bhwc", device="cpu"), x)


@pytest.mark.parametrize("how", LAYINGS)
def test_a_piece_fills_its_own_bytes_and_no_others(gpu, monkeypatch, how):
    monkeypatch.setattr(transfers, "STAGING_BYTES", 100)  # three of the four rows of an image
    x = laid(IMAGES.astype(">i2"), how)
    programs = DevicePrograms(Converter("bhwc->bchw", device="cuda").options)
    plan, at = transfers.HostToDevicePlan(programs, x, None), 0
    whole = np.zeros(plan.nbytes, np.uint8)
    for start, end, fill in plan.pieces(x):
        assert start == at < end <= start + 100
        room = np.full(end - start + 256, 0xEE, np.uint8)
        fill(room[: end - start])
        assert (room[end - start :] == 0xEE).all()
        whole[start:end], at = room[: end - start], end
    assert at == plan.nbytes
    sent = np.lib.stride_tricks.as_strided(whole.view("i2"), x.shape, plan.strides)
    np.testing.assert_array_equal(sent, x)


def test_page_locked_memory_is_bounded_and_given_back(gpu, monkeypatch):
    monkeypatch.setattr(transfers, "STAGING_BYTES", 1 << 10)
    images = np.concatenate([IMAGES] * 100)  # 12 pieces
    up, down = Converter("bhwc->bchw", device="cuda:1"), Converter("bchw->bhwc", device="cpu")
    results = []
    for _ in range(5):
        y = up(images)
        results.append(down(y))
        assert gpu.gpus.held(PINNED) == 2 * transfers.PIECES << 10
    held = gpu.gpus.held(1)
    buffers.clear()
    assert gpu.gpus.held(PINNED) == 0
    assert gpu.gpus.held(1) < held - images.nbytes  # the blocks of the last two batches are free
    assert all(np.array_equal(each, images) for each in results)  # results do not use freed memory
    check_result(up(images), reference_convert(images, "bhwc->bchw"))


def test_memory_is_given_back_when_the_copies_are_done(gpu):
    """Test that no memory is freed that a kernel or a copy has still to read."""
    converter = Converter("bhwc->bchw", device="cuda")
    results = [converter(IMAGES + n) for n in range(3)]
    buffers.clear()
    gpu.check()
    for n, y in enumerate(results):
        check_result(y, reference_convert(IMAGES + n, "bhwc->bchw"))


def test_no_elements_and_one(gpu):
    y = convert(np.zeros((0, 4, 5, 3), "u1"), "bhwc->bchw", device="cuda", dtype="f4")
    assert (y.shape, y.dtype, gpu.log) == ((0, 3, 4, 5), np.float32, [])
    check_result(convert(np.full((1, 1), 7, ">i2"), "bt->b", device="cuda"), np.full(1, 7, "i2"))


def test_the_output_on_the_gpu_is_written(gpu):
    out = gpu.array(np.zeros((2, 3, 4, 5), "f4")[..., ::-1])
    assert convert(IMAGES, "bhwc->bchw", device="cuda", out=out) is out
    np.testing.assert_array_equal(values_of(out), IMAGES.transpose(0, 3, 1, 2))


def test_outputs_there_lie_in_any_way_by_turns(gpu):
    converter = Converter("bhwc->bchw", dtype="f4", device="cuda")
    wanted = IMAGES.transpose(0, 3, 1, 2)
    for how in ("plain", "fortran", "backward", "plain"):
        out = gpu.array(laid(np.zeros(wanted.shape, "f4"), how))
        converter(IMAGES, out)
        np.testing.assert_array_equal(values_of(out), wanted)
        check_result(converter(IMAGES), wanted.astype("f4"))


def test_nothing_is_shared_with_the_callers_array(gpu):
    x = IMAGES.copy()
    y = convert(x, "bhwc->bhwc", device="cuda")
    x[:] = 0
    check_result(y, IMAGES)
    with pytest.raises(ArgumentError, match="from cpu to cuda:0; allow a copy"):
        convert(x, "bhwc->bhwc", device="cuda", copy=False)


# ---- order -------------------------------------------------------------------------------


def test_a_loop_of_batches_is_right_and_waits_only_for_its_own_piece(gpu):
    converter = Converter("bhwc->bchw", dtype="f4", device="cuda")
    batches = [np.full((2, 4, 5, 3), n, np.uint8) for n in range(9)]
    results = []
    for n, batch in enumerate(batches):
        results.append(converter(batch))
        batch[:] = 255  # the caller may write to a batch once the call returns
        assert len(gpu.host_waits) == max(0, n + 1 - transfers.PIECES)
    assert [int(np.unique(values_of(y)).item()) for y in results] == list(range(9))


def test_copies_go_on_beside_the_kernels(gpu):
    """Test that a copy waits only for the kernel before the last one, whose block it reuses."""
    converter = Converter("bhwc->bchw", dtype="f4", device="cuda")
    results = [converter(IMAGES + n) for n in range(3)]
    works = _history(transfers.find_staging(0).copies.queue.last) + _history(gpu.stream(0).last)
    copies, kernels = (
        sorted({w for w in works if w.name == name}, key=lambda w: len(_history(w)))
        for name in ("copy in", "kernel")
    )
    assert (len(copies), len(kernels)) == (3, 3)
    for number, kernel in enumerate([[], [], kernels[:1]]):
        copies[number].finish()
        assert [each for each in kernels if each.done] == kernel
    where = [stream for stream, what in gpu.log if what in ("copy in", "kernel")]
    assert where == ["copies 0", "main 0"] * 3
    del results


def _history(work):
    found, waiting = [], [work]
    while waiting:
        work = waiting.pop()
        if work not in found:
            found.append(work)
            waiting += work.after
    return found


def _loop():
    """Return whether a Converter transfers seven batches of growing and equal sizes correctly."""
    converter = Converter("bhwc->bchw", dtype="f4", device="cuda")
    sizes = (2, 3, 3, 2, 3, 3, 4, 4, 2, 3, 3)
    results = [converter(np.full((b, 4, 5, 3), b * 16 + n, np.uint8)) for n, b in enumerate(sizes)]
    return all(
        (values_of(y) == b * 16 + n).all()
        for n, (y, b) in enumerate(zip(results, sizes, strict=True))
    )


def test_without_any_one_of_the_waits_batches_are_harmed(gpu, monkeypatch):
    assert _loop()
    with monkeypatch.context() as broken:
        broken.setattr(Mark, "synchronize", lambda self: None)  # refills before the copy has read
        assert not _loop()
    assert _loop()
    gpu.check()
    wait = Mark.hold_back
    for name in ("main 0", "copies 0"):  # the kernel waits for its bytes; the copy for the kernel
        with monkeypatch.context() as broken:
            broken.setattr(
                Mark,
                "hold_back",
                lambda self, to, name=name: None if to.name == name else wait(self, to),
            )
            assert not _loop()
        gpu.gpus.violations.clear()  # blocks were freed before they were read
        assert _loop()


def test_many_threads_send_at_once(gpu):
    gpu.eager = True  # deferred work of the fake cannot be finished by several threads
    converter, wrong = Converter("bhwc->bchw", dtype="f4", device="cuda"), []

    def send(n):
        for _ in range(20):
            y = converter(np.full((3, 4, 5, 3), n, np.uint8))
            if not (y.memory == n).all():
                wrong.append(n)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_many_threads_fetch_at_once(gpu, monkeypatch):
    """Test that a download owns all staging buffers until it has read their contents."""
    monkeypatch.setattr(transfers, "STAGING_BYTES", 64)
    gpu.eager = True
    there, got, threads = [gpu.array(np.full(700, n, np.uint8)) for n in range(2)], {}, []
    copy_out, meet = CupyRuntime.copy_out, threading.Event()

    def begun(*args):
        """Start the second download while the first one is between two pieces."""
        copy_out(*args)
        if len(threads) == 1:
            threads.append(threading.Thread(target=fetch, args=(1,)))
            threads[1].start()
            meet.wait(0.2)  # times out if the second download waits for the first
        elif threading.current_thread() is threads[1]:
            meet.set()

    def fetch(n):
        got[n] = convert(there[n], "b->b", device="cpu")

    monkeypatch.setattr(CupyRuntime, "copy_out", begun)
    threads.append(threading.Thread(target=fetch, args=(0,)))
    threads[0].start()
    threads[0].join()
    threads[1].join()
    for n in range(2):
        np.testing.assert_array_equal(got[n], np.full(700, n))


def test_a_call_that_fails_leaves_the_ring_in_order(gpu, monkeypatch):
    converter = Converter("bhwc->bchw", dtype="f4", device="cuda")
    converter(IMAGES)
    with monkeypatch.context() as broken:
        broken.setattr(CupyRuntime, "launch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            converter(IMAGES)
    assert _loop()


def test_memory_that_runs_out_leaves_the_ring_in_order(gpu, monkeypatch):
    converter = Converter("bhwc->bchw", device="cuda")
    converter(IMAGES[:1])
    full = lambda *_: (_ for _ in ()).throw(MemoryError("it is full"))
    for place, name in ((CupyRuntime, "empty"), (CupyRuntime, "pinned")):
        with monkeypatch.context() as broken:
            broken.setattr(place, name, full)
            for _ in range(2 * transfers.PIECES):
                with pytest.raises(MemoryError):
                    converter(IMAGES)
        if name == "empty":
            check_result(converter(IMAGES), reference_convert(IMAGES, "bhwc->bchw"))
            buffers.clear()
    for _ in range(2 * transfers.PIECES):
        check_result(converter(IMAGES), reference_convert(IMAGES, "bhwc->bchw"))


def test_a_transfer_is_no_part_of_a_graph(gpu):
    converter, x = Converter("bhwc->bchw", device="cuda"), gpu.array(IMAGES)
    converter(IMAGES)
    with gpu.capturing():
        for cross in (lambda: converter(IMAGES), lambda: convert(x, "bhwc->bchw", device="cpu")):
            with pytest.raises(DeviceError, match="while a CUDA graph is captured"):
                cross()


# ---- down --------------------------------------------------------------------------------


@pytest.mark.parametrize("keywords", [{}, FORMULA, {"dtype": "f8"}])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->bhwc", "bhwc->b(hwc)"])
def test_results_come_down(gpu, pattern, keywords):
    x = gpu.array(IMAGES)
    y = convert(x, pattern, device="cpu", **keywords)
    assert type(y) is np.ndarray
    wanted = convert(IMAGES, pattern, **keywords)
    assert y.dtype == wanted.dtype
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)
    y[:] = 0
    np.testing.assert_array_equal(x.memory, IMAGES)
    assert gpu.host_waits.count("event") == 1  # besides the waits for the constants of a formula


def test_strided_arrays_and_outputs_come_down(gpu):
    x = gpu.array(laid(IMAGES.copy(), "sliced"))
    np.testing.assert_array_equal(convert(x, "bhwc->bhwc", device="cpu"), IMAGES)
    plain = [np.zeros((2, 3, 4, 5), dtype) for dtype in ("f4", "u1", ">f4")]
    for out in (*plain, plain[0][..., ::-1], laid(plain[2], "unaligned")):
        assert convert(x, "bhwc->bchw", device="cpu", out=out) is out
        np.testing.assert_array_equal(out, IMAGES.transpose(0, 3, 1, 2))
    with pytest.raises(ArgumentError, match="from cuda:0 to cpu; allow a copy"):
        convert(x, "bhwc->bhwc", device="cpu", copy=False)


def test_outputs_that_are_refused_are_not_written(gpu):
    x, there = gpu.array(IMAGES), gpu.array(np.full((2, 3, 4, 5), 7, "u1"))
    with pytest.raises(DeviceError, match='device="cpu", but out is on cuda:0'):
        convert(x, "bhwc->bchw", device="cpu", out=there)
    with pytest.raises(DeviceError, match="the result is on cuda:1, but out is on cuda:0"):
        convert(IMAGES, "bhwc->bchw", device="cuda:1", out=there)
    here = np.full((2, 3, 4, 5), 7, "u1")
    with pytest.raises(DeviceError, match=r"the result is on cuda:0, but out, a numpy\.ndarray"):
        convert(IMAGES, "bhwc->bchw", device="cuda", out=here)
    with pytest.raises(ShapeError, match="out has shape"):
        convert(x, "bhwc->bchw", device="cpu", out=here[:1])
    here.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        convert(x, "bhwc->bchw", device="cpu", out=here)
    assert (there.memory == 7).all()
    assert (here == 7).all()
    assert gpu.log == []


# ---- views -------------------------------------------------------------------------------


def test_a_view_is_got_on_a_gpu(gpu):
    view = ImageView("bhwc", IMAGES)
    y = view.forward_get("bchw", "f4", device="cuda")
    check_result(y, IMAGES.transpose(0, 3, 1, 2).astype("f4", order="C"))
    for words in [("bchw", "f4", "cuda:0"), ("b c h w", np.float32, "cuda")]:
        assert view.forward_get(*words) is y
    assert view.forward_get("bchw", "f4") is not y
    assert view.forward_get("bchw", "f4", "cuda:1").ordinal == 1
    assert isinstance(view.forward_get(device="cuda"), FakeArray)
    assert view.forward_get() is IMAGES
    assert view.device == "cpu"


def test_gradients_of_a_gpu_are_summed_where_the_base_is(gpu):
    base = IMAGES.astype("f4")
    rng = np.random.default_rng(5)
    on_cpu, on_gpu = rng.normal(size=(2, 2, 3, 4, 5)).astype("f4")
    flat = rng.normal(size=(2, 60)).astype("f4")
    view, other = ImageView("bhwc", base), ImageView("bhwc", base)
    for each, device in ((view, "cuda"), (other, None)):
        each.forward_get("bchw")
        each.forward_get("bchw", device=device)
        each.forward_get("bf", device=device)
    other.backward_put("bchw", on_gpu)
    view.backward_put("bchw", gpu.array(on_gpu))
    np.testing.assert_array_equal(view.backward_get(), other.backward_get())
    for each, wrap in ((view, gpu.array), (other, lambda x: x)):
        each.backward_put("bchw", on_cpu)
        each.backward_put("bf", wrap(flat))
    total = view.backward_get()
    assert type(total) is np.ndarray
    np.testing.assert_array_equal(total, other.backward_get())


def test_gradients_of_another_device_belong_to_nothing(gpu):
    view = ImageView("bhwc", IMAGES.astype("f4"))
    grad = np.ones((2, 3, 4, 5), "f4")
    view.forward_get("bchw", device="cuda")
    for wrong in (grad, gpu.array(grad, 1)):
        with pytest.raises(BackwardError, match=r"bchw float32 on cuda:0 \(2, 3, 4, 5\)"):
            view.backward_put("bchw", wrong)
    with pytest.raises(BackwardError, match="on cuda:0 was put as bhwc"):
        view.backward_put("bhwc", gpu.array(IMAGES.astype("f4")))
    with pytest.raises(BackwardError, match="no gradient was put"):
        view.backward_get()


def test_labels_and_lists_on_a_gpu(gpu):
    view = ClassView("bt", np.array([[3, 1], [2, 0]], "i4"), 4)
    check_result(view.forward_get("b", device="cuda"), np.array([3, 2], "i4"))
    view.backward_put("b", gpu.array(np.array([0.5, 0.25], "f4")))
    np.testing.assert_array_equal(view.backward_get(), [[0.5, 0], [0.25, 0]])
    grown = DataView("bf", np.ones((2, 3)))
    with pytest.raises(DeviceError, match="machine has 2 GPUs"):
        grown.forward_get("bf", None, "cuda:2")


# ---- process -----------------------------------------------------------------------------


def test_config_and_warmup(gpu, capsys):
    show_config()
    assert "cuda       Fake, Fake; driver for CUDA 13.0, CuPy 14.2.0" in capsys.readouterr().out
    names = warmup("bhwc->bchw", (8, 16, 16, 3), "uint8", dtype="f4", device="cuda:1")
    assert len(names) == 1
    assert len(gpu.loaded) == 1
    assert names[0].startswith("cuda:1 interleave")
    assert len(warmup(device="cuda")) >= 4


FORKING = """
import os, sys
import numpy as np
import pytest
from tests.helpers.fake_cuda import install, values_of
from layoutkit import DeviceError, ImageView, convert

gpu = install(pytest.MonkeyPatch())
x = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
y = convert(x, "bhwc->bchw", device="cuda")
if os.fork() == 0:
    assert convert(x, "bhwc->bchw").shape == (2, 3, 2, 2)
    for cross in (
        lambda: convert(x, "bhwc->bchw", device="cuda"),
        lambda: convert(y, "bchw->bhwc"),
        lambda: ImageView("bhwc", x).forward_get("bchw", device="cuda"),
    ):
        with pytest.raises(DeviceError, match="forked from one that uses CUDA"):
            cross()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
np.testing.assert_array_equal(values_of(y), x.transpose(0, 3, 1, 2))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_stays_on_the_cpu():
    python(FORKING, PYTHONPATH=Path(__file__).parents[2])


def test_dtypes_that_do_not_cross(gpu):
    for x in (np.zeros((2, 3), "M8[s]"), np.zeros((2, 3), ml_dtypes.float8_e4m3fn)):
        with pytest.raises(DtypeError, match="CuPy has no arrays of dtype"):
            convert(x, "bf->fb", device="cuda")
    gc.collect()
    assert gpu.log == []
