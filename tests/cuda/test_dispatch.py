"""Conversions and sums on a GPU: the real kernels and dispatch on a fake device."""

import gc
import itertools
import weakref
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import layoutkit
from layoutkit import (
    ArgumentError,
    ArraySpec,
    Converter,
    DeviceError,
    DtypeError,
    ShapeError,
    accumulate,
    convert,
    plan,
)
from layoutkit.backends.cupy import CUPY
from layoutkit.backends.gradients import mask_clipped_grad, scatter_channel_grad
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.planning.select import KERNELS, explain_kernel
from tests.helpers.arrays_of import BF16, LAYINGS, MOVED, UNALIGNED, assert_same, laid, random_array
from tests.helpers.cuda_moves import copied
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import FakeArray, values_of
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), needs_compiler]

IMAGES = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)
PATTERNS = ["bhwc->bchw", "bchw->bhwc", "bhwc->chwb", "bhwc->wbch", "bhwc->b(hwc)", "bhwc->b(chw)"]
# The dtypes in MOVED that CuPy has.
DEVICE_DTYPES = [d for d in MOVED if d.isnative and d.kind not in "Mm" and "float8" not in d.name]


def check_result(got, wanted):
    assert isinstance(got, FakeArray)
    assert_same(values_of(got), wanted)


# ---- conversions -------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
def test_arrays_are_moved(gpu, pattern):
    x = gpu.array(IMAGES)
    check_result(convert(x, pattern), reference_convert(IMAGES, pattern))
    np.testing.assert_array_equal(x.memory, IMAGES)


@pytest.mark.parametrize("dtype", DEVICE_DTYPES, ids=str)
def test_every_dtype_is_moved(gpu, dtype):
    x = random_array(np.random.default_rng(1), (3, 5, 4), dtype)
    check_result(convert(gpu.array(x), "bwc->bcw"), np.ascontiguousarray(x.transpose(0, 2, 1)))


@pytest.mark.parametrize("how", [how for how in LAYINGS if how != "readonly"])
@pytest.mark.parametrize("keywords", [{}, {"scale": 2.0, "mean": (1, 2, 3)}])
def test_memory_may_lie_in_any_way(gpu, how, keywords):
    x = laid(random_array(np.random.default_rng(2), (2, 4, 5, 3), "u1").astype("f4"), how)
    wanted = reference_convert(x, "bhwc->bchw", **keywords)
    got = convert(gpu.array(x), "bhwc->bchw", **keywords)
    np.testing.assert_allclose(values_of(got), wanted, rtol=1e-6, atol=1e-5)


def test_the_step_of_an_axis_of_one_place_does_not_matter(gpu):
    """Test an axis of size 1 with a stride that is not a multiple of the item size."""
    x = np.lib.stride_tricks.as_strided(np.arange(60, dtype="f4"), (1, 60), (241, 4))
    check_result(convert(gpu.array(x), "bf->fb", scale=2.0), 2 * x.T.copy())
    assert gpu.launches() == 1


CASTS = [
    ("u1", "f4", {"scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}),
    ("f4", "f2", {}),
    ("f4", "u1", {"casting": "saturate"}),
    ("f4", "i2", {"casting": "unsafe"}),
    ("f4", "f4", {"scale": 1 / 3, "std": 1e-60}),
    ("i4", "f8", {}),
    ("c8", "f4", {"casting": "unsafe"}),
    ("c8", "c16", {}),
    ("c16", "i4", {"casting": "unsafe"}),
    ("f4", BF16, {"mean": 0.5}),
    (BF16, "c8", {}),
    (BF16, "i4", {"casting": "unsafe"}),
]


@pytest.mark.parametrize(("source", "target", "keywords"), CASTS)
def test_dtypes_change_on_the_way(gpu, source, target, keywords):
    numbers = np.random.default_rng(3).normal(0, 90, (2, 3, 4, 3))
    x = (numbers if np.dtype(source).kind in "fc" else numbers.clip(0, 200)).astype(source)
    got = values_of(convert(gpu.array(x), "bhwc->bchw", dtype=target, **keywords))
    wanted = convert(x, "bhwc->bchw", dtype=target, **keywords)
    assert got.dtype == wanted.dtype
    close = {"rtol": 1e-2 if target == BF16 else 1e-6, "atol": 1e-5}
    np.testing.assert_allclose(got.astype("c16"), wanted.astype("c16"), **close)


@pytest.mark.parametrize("how", ["plain", "sliced", "backward", "fortran", "pages", *UNALIGNED])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_the_callers_output_is_written(gpu, how, dtype):
    room = gpu.array(laid(np.zeros((2, 3, 4, 5), dtype), how))
    convert_images = Converter("bhwc->bchw")
    for images in (IMAGES, 2 * IMAGES):
        assert convert_images(gpu.array(images), room) is room
        np.testing.assert_array_equal(
            values_of(room), reference_convert(images, "bhwc->bchw", dtype=dtype)
        )


def test_nothing_is_moved_where_nothing_has_to_be(gpu):
    x = gpu.array(IMAGES)
    assert convert(x, "bhwc->bhwc") is x
    flat = convert(x, "bhwc->b(hwc)")
    assert flat.data.ptr == x.data.ptr
    assert convert(x, "bhwc->b(hwc)", copy=False).data.ptr == x.data.ptr
    assert convert(x, "bhwc->bhwc", copy=True).data.ptr != x.data.ptr
    with pytest.raises(ArgumentError, match="copy=False"):
        convert(x, "bhwc->bchw", copy=False)


def test_arrays_without_elements(gpu):
    for shape in [(0, 4, 5, 3), (2, 0, 5, 3)]:
        y = convert(gpu.array(np.zeros(shape, "f4")), "bhwc->bchw", dtype="f8", mean=1)
        assert (y.shape, y.dtype) == ((shape[0], 3, shape[1], 5), np.float64)
    assert gpu.launches() == 0


def test_more_loops_than_a_kernel_has(gpu):
    names = "abcdeghijklmnopq"
    x = np.arange(2 ** len(names), dtype=np.uint32).reshape((2,) * len(names))
    pattern = f"{names}->{names[::-1]}"
    check_result(convert(gpu.array(x), pattern), np.ascontiguousarray(x.transpose()))
    assert gpu.launches() > 1


def test_a_program_is_made_once_for_arrays_that_lie_alike(gpu):
    converter = Converter("bhwc->bchw", mean=(1, 2, 3))
    for _ in range(3):
        converter(gpu.array(IMAGES))
    assert len(gpu.loaded) == 1
    converter(gpu.array(laid(IMAGES, "unaligned")))
    assert gpu.launches() == 5  # one copies the unaligned elements to aligned memory


def test_elements_of_which_only_the_first_is_aligned(gpu):
    """Test unaligned elements, as in a column of packed records: kernels get an aligned copy."""
    room = np.zeros(IMAGES.shape, [("number", "f4"), ("flag", "u1")])
    room["number"] = IMAGES
    x, plain = gpu.array(room["number"]), gpu.array(IMAGES)
    check_result(
        convert(x, "bhwc->bchw", scale=2.0), reference_convert(IMAGES, "bhwc->bchw", scale=2.0)
    )
    assert gpu.launches() == 2  # one copies the elements to aligned memory
    out = gpu.array(np.zeros((2, 3, 4, 5), room.dtype)["number"])
    convert(plain, "bhwc->bchw", scale=2.0, out=out)
    assert gpu.launches() == 4
    np.testing.assert_array_equal(
        values_of(out), reference_convert(IMAGES, "bhwc->bchw", scale=2.0)
    )
    check_result(accumulate([(x, "bhwc"), (plain, "bhwc")], "bhwc"), 2 * IMAGES)
    assert gpu.launches() == 6


def test_work_goes_on_the_current_stream_and_is_not_waited_for(gpu):
    stream, x = gpu.new_stream(0), gpu.array(IMAGES)
    with gpu.using(stream):
        y = convert(x, "bhwc->bchw", dtype="f8")
        z = accumulate([(y, "bchw"), (x, "bhwc")], "chwb")
    assert {where for where, _ in gpu.log} == {"other"}
    assert gpu.host_waits == []
    assert (np.unique(z.memory.view(np.uint8)) == 0xA5).all()
    stream.synchronize()
    np.testing.assert_allclose(z.memory, 2.0 * IMAGES.transpose(3, 1, 2, 0), rtol=1e-6)


def test_each_gpu_runs_its_own(gpu):
    converter = Converter("bhwc->bchw")
    for number in (0, 1):
        y = converter(gpu.array(IMAGES, number))
        assert y.ordinal == number
        assert gpu.log[-1] == (f"main {number}", "kernel")
        check_result(y, reference_convert(IMAGES, "bhwc->bchw"))


def test_a_graph_is_captured_of_what_is_warm(gpu):
    converter, x = Converter("bhwc->bchw", mean=1), gpu.array(IMAGES)
    with gpu.capturing():
        with pytest.raises(DeviceError, match="call it once"):
            converter(x)
        with pytest.raises(DeviceError, match="call it once"):
            accumulate([(x, "bhwc"), (x, "bhwc")], "bchw")
    assert gpu.launches() == 0
    converter(x)
    layoutkit.warmup("bhwc->chwb", IMAGES.shape, mean=2, device="cuda")
    waits = len(gpu.host_waits)  # one for the constants of each formula
    with gpu.capturing() as graph:
        with pytest.raises(DeviceError, match="call it once"):
            convert(x, "bhwc->bchw", mean=3)  # the kernel is loaded, but its constants are not
        y = converter(x)
        z = convert(x, "bhwc->chwb", mean=2)
    assert gpu.launches() == 1
    assert len(gpu.host_waits) == waits
    graph[0].launch(gpu.stream(0))
    check_result(y, reference_convert(IMAGES, "bhwc->bchw", mean=1))
    check_result(z, reference_convert(IMAGES, "bhwc->chwb", mean=2))


@pytest.mark.parametrize("size", [4, 0])
def test_a_capture_refuses_padding_before_it_uploads_fill_values(gpu, size):
    converter = Converter("bhwc->bchw", pad_to={"h": 8}, fill=5)
    x = gpu.array(IMAGES[:, :size])
    with gpu.capturing(), pytest.raises(DeviceError, match="call it once"):
        converter(x)
    assert gpu.host_waits == gpu.log == []
    converter(x)
    with gpu.capturing() as graph:
        y = converter(x)
    graph[0].launch(gpu.stream(0))
    check_result(y, convert(x.memory, "bhwc->bchw", pad_to={"h": 8}, fill=5))


def test_what_is_warm_on_one_gpu_is_not_on_another(gpu):
    plain, formula = Converter("bhwc->bchw"), Converter("bhwc->bchw", mean=1)
    for converter in (plain, formula):
        converter(gpu.array(IMAGES))
    x = gpu.array(IMAGES, 1)
    with gpu.capturing(1), pytest.raises(DeviceError, match="call it once"):
        plain(x)
    convert(x, "bhwc->bchw", mean=2)
    with gpu.capturing(1), pytest.raises(DeviceError, match="call it once"):
        formula(x)  # the kernel is loaded, but its constants are not
    check_result(formula(x), reference_convert(IMAGES, "bhwc->bchw", mean=1))


# ---- gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize("ordinal", [0, 1])
def test_what_cupy_does_for_gradients_is_done_where_they_are(gpu, monkeypatch, ordinal):
    """Test that the device of the gradient is current, as CuPy allocates on the current device."""
    did = []

    def work(*_, **__):
        did.append(gpu.runtime.current())
        return gradient

    kind = type("ndarray", (), {"__module__": "cupy", "data": SimpleNamespace(device_id=ordinal)})
    for name in ("__lt__", "__gt__", "__or__", "__add__", "reshape", "astype", "__getitem__"):
        setattr(kind, name, work)
    for name in ("stack", "where", "zeros_like"):
        monkeypatch.setattr(gpu.cupy, name, work, raising=False)
    monkeypatch.setattr(gpu.cupy, "__name__", "cupy", raising=False)
    gradient = kind()
    picks = SimpleNamespace(axis=lambda move: 1, order=(0, 0), count=2, shape=(4, 2))
    scatter_channel_grad(gradient, SimpleNamespace(sizes=(4, 2)), picks, np.dtype("f4"))
    mask_clipped_grad(gradient, gradient, (0, 1))
    assert set(did) == {ordinal}


def test_gradients_go_back_to_where_x_is(gpu):
    converter = Converter("bhwc->b(chw)", dtype="f4", scale=2.0)
    x, grad = IMAGES.astype("f8"), np.ones((2, 60), "f4")
    wanted = converter.backward(grad, like=x)
    on_gpu, on_cpu = gpu.array(x), converter.spec_of(x)
    assert converter.spec_of(on_gpu).device == "cuda:0"
    check_result(converter.backward(gpu.array(grad), like=on_gpu), wanted)
    check_result(converter.backward(grad, like=converter.spec_of(on_gpu)), wanted)
    back = converter.backward(gpu.array(grad), like=on_cpu)
    assert type(back) is np.ndarray
    np.testing.assert_array_equal(back, wanted)


def test_what_was_brought_to_a_gpu_comes_back_as_a_gradient(gpu):
    converter = Converter("bhwc->bchw", dtype="f4", scale=0.5, device="cuda:1")
    y = converter(IMAGES)
    back = converter.backward(gpu.array(np.ones(y.shape, "f4"), 1), like=IMAGES)
    np.testing.assert_array_equal(back, np.full(IMAGES.shape, 0.5, "f4"))


# ---- sums --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 40])
def test_sums_of_many_parts(gpu, count):
    rng = np.random.default_rng(count)
    layouts = list(itertools.islice(itertools.cycle(["bchw", "bhwc", "chwb"]), count))
    shapes = {"bchw": (2, 3, 4, 5), "bhwc": (2, 4, 5, 3), "chwb": (3, 4, 5, 2)}
    parts = [rng.normal(size=shapes[name]).astype("f4") for name in layouts]
    pairs = list(zip(parts, layouts, strict=True))
    wanted = accumulate(pairs, "bhwc")
    on_gpu = [(gpu.array(part), name) for part, name in pairs]
    check_result(accumulate(on_gpu, "bhwc"), wanted)
    out = gpu.array(laid(np.zeros((2, 4, 5, 3), "f8"), "sliced"))
    assert accumulate(on_gpu, "bhwc", out=out) is out
    np.testing.assert_allclose(values_of(out), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [17, 33])
def test_sums_of_many_short_floats_are_rounded_once(gpu, count):
    """Test that chained launches pass the sum in the accumulation dtype."""
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(8, 16)).astype(BF16), "bc") for _ in range(count)]
    wanted = accumulate(parts, "bc")
    first = accumulate(parts[:16], "bc")
    assert not np.array_equal(wanted, accumulate([(first, "bc"), *parts[16:]], "bc"))
    check_result(accumulate([(gpu.array(part), name) for part, name in parts], "bc"), wanted)


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtypes", [("f4", "f8"), ("f2", BF16), ("i4", "i1"), ("c8", "f4")])
def test_sums_of_several_dtypes(gpu, dtypes):
    parts = [(np.arange(-12, 12).reshape(2, 3, 4).astype(dtype), "bcw") for dtype in dtypes]
    wanted = accumulate(parts, "bwc")
    check_result(accumulate([(gpu.array(part), name) for part, name in parts], "bwc"), wanted)


def test_sums_that_no_one_nest_of_loops_fits(gpu):
    """Test 24 elements as 4 by 6 and as 6 by 4, for which no common loops have constant strides."""
    x, y = np.arange(24, dtype="f4").reshape(4, 6), np.ones((6, 4), "f4")
    parts = [(x, "xy"), (y, "uv"), (x.ravel(), "f")]
    check_result(
        accumulate([(gpu.array(p), name) for p, name in parts], "f"), accumulate(parts, "f")
    )


@pytest.mark.parametrize("how", ["backward", "sliced", "fortran", *UNALIGNED])
@pytest.mark.parametrize("count", [1, 2, 17])
def test_sums_of_memory_that_lies_in_any_way(gpu, how, count):
    part = laid(np.arange(24, dtype="f4").reshape(2, 3, 4), how)
    parts = [(part, "bcw"), (np.ones((4, 3, 2), "f4"), "wcb"), *[(part, "bcw")] * 15][:count]
    wanted = accumulate(parts, "bwc")
    on_gpu = [(gpu.array(each), name) for each, name in parts]
    check_result(accumulate(on_gpu, "bwc"), wanted)
    out = gpu.array(laid(np.zeros((2, 4, 3), "f4"), how))
    accumulate(on_gpu, "bwc", out=out)
    np.testing.assert_array_equal(values_of(out), wanted)


def test_sums_of_memory_that_begins_elsewhere(gpu, monkeypatch):
    """Test that a sum has a kernel for each power of two that divides its addresses."""
    widths, load = [], CupyRuntime.load

    def loaded(self, launch, ordinal):
        widths.append(dict(launch.defines)["WIDTHS"])
        return load(self, launch, ordinal)

    monkeypatch.setattr(CupyRuntime, "load", loaded)
    values = np.arange(32.0, dtype="f4").reshape(4, 8)
    for part, out in ((0, 0), (4, 0), (0, 4), (0, 0), (12, 0), (0, 12), (16, 16)):
        parts = [(gpu.array(copied(values, part)), "bc"), (gpu.array(copied(values.T, 0)), "cb")]
        total = gpu.array(copied(values, out))
        accumulate(parts, "bc", out=total)
        np.testing.assert_array_equal(values_of(total), 2 * values)
    assert widths == ["2", "3", "3"]


# ---- what is refused ---------------------------------------------------------------------


def test_outputs_that_are_refused_are_not_written(gpu):
    x = gpu.array(IMAGES)
    right = np.full((2, 3, 4, 5), 7, "f4")
    wrong = [
        (gpu.array(right[:1]), {}, ShapeError, "out has shape"),
        (gpu.array(right), {"dtype": "f8"}, DtypeError, "out has dtype float32"),
        (gpu.array(right, 1), {}, DeviceError, "x is on cuda:0, but out is on cuda:1"),
        (right.copy(), {}, DeviceError, "x is on cuda:0, but out.*is on cpu"),
    ]
    for out, keywords, error, words in wrong:
        with pytest.raises(error, match=words):
            convert(x, "bhwc->bchw", out=out, **keywords)
        memory = out if isinstance(out, np.ndarray) else out.memory
        assert (memory == 7).all()
    with pytest.raises(DeviceError, match="x is on cpu, but out is on cuda:0"):
        convert(IMAGES, "bhwc->bchw", out=gpu.array(right))
    assert gpu.log == []


def test_an_output_that_overlaps_x_is_refused(gpu):
    room = gpu.array(np.arange(48.0).reshape(2, 2, 12))
    x = room[:, 0]
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        convert(x, "bw->wb", out=room[:, 0].transpose())
    assert convert(x, "bw->bw", out=room[:, 1]) is not None  # interleaved, but without overlap
    np.testing.assert_array_equal(values_of(room[:, 1]), np.arange(48.0).reshape(2, 2, 12)[:, 0])
    with pytest.raises(ArgumentError, match="out shares memory with part 1"):
        accumulate([(room[:, 1], "bw"), (x, "bw")], "bw", out=x)
    unaligned = gpu.array(laid(np.ones((2, 12)), "unaligned"))
    launches = gpu.launches()
    with pytest.raises(ArgumentError, match="out shares memory with part 0"):
        accumulate([(unaligned, "bw"), (x, "bw")], "bw", out=unaligned)
    assert gpu.launches() == launches  # no part was copied before


def test_parts_on_several_devices_are_refused(gpu):
    x = gpu.array(IMAGES)
    for parts, words in [
        ([x, IMAGES], "part 0 is on cuda:0, but part 1, a numpy.ndarray, is on cpu"),
        ([IMAGES, x], "part 0 is on cpu, but part 1.*is on cuda:0"),
        ([x, gpu.array(IMAGES, 1)], "part 0 is on cuda:0, but part 1.*is on cuda:1"),
    ]:
        with pytest.raises(DeviceError, match=words):
            accumulate([(part, "bhwc") for part in parts], "bchw")
    with pytest.raises(DeviceError, match="part 0 is on cpu, but out is on cuda:0"):
        accumulate([(IMAGES, "bhwc")] * 2, "bhwc", out=x)
    with pytest.raises(DeviceError, match=r"part 0 is on cuda:0, but out.*is on cpu"):
        accumulate([(x, "bhwc")] * 2, "bhwc", out=IMAGES.copy())


def test_an_array_on_another_gpu_than_asked_is_refused(gpu):
    with pytest.raises(DeviceError, match="x is on cuda:0, but device= is on cuda:1"):
        convert(gpu.array(IMAGES), "bhwc->bchw", device="cuda:1")


def test_dtypes_that_cupy_has_not(gpu):
    x = gpu.array(IMAGES)
    for dtype in (ml_dtypes.float8_e4m3fn, np.longdouble):
        with pytest.raises(DtypeError, match="CuPy has no arrays of dtype"):
            convert(x, "bhwc->bchw", dtype=dtype)
    with pytest.raises(DtypeError, match=r'x\.view\("u8"\)'):
        convert(np.zeros(3, "M8[s]"), "b->b", device="cuda")


# ---- other libraries ---------------------------------------------------------------------


class Interface:
    """An array that has only the CUDA array interface."""

    def __init__(self, array, **changed):
        self.array = array
        self.__dict__["changed"] = changed

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.changed}


def test_any_array_with_the_cuda_array_interface(gpu):
    x = Interface(gpu.array(IMAGES))
    check_result(convert(x, "bhwc->bchw"), reference_convert(IMAGES, "bhwc->bchw"))
    assert convert(x, "bhwc->b(hwc)").data.ptr == x.array.data.ptr
    out = Interface(gpu.array(np.zeros((2, 3, 4, 5), "f4")))
    assert convert(x, "bhwc->bchw", out=out) is out
    check_result(out.array, reference_convert(IMAGES, "bhwc->bchw"))


@pytest.mark.parametrize("how", ["fortran", "backward", "sliced", "zero"])
def test_arrays_of_the_interface_lie_in_any_way(gpu, how):
    x = laid(IMAGES, how)
    check_result(convert(Interface(gpu.array(x)), "bhwc->bchw"), reference_convert(x, "bhwc->bchw"))
    out = gpu.array(laid(np.zeros((2, 3, 4, 5), "f4"), "fortran"))
    convert(gpu.array(x), "bhwc->bchw", out=out)
    convert(Interface(gpu.array(x)), "bhwc->bchw", out=Interface(out))
    np.testing.assert_array_equal(values_of(out), reference_convert(x, "bhwc->bchw"))


def test_arrays_of_others_are_held_until_they_were_read(gpu):
    """Test that foreign arrays are kept alive: their library could reuse freed memory at once."""
    x, out = Interface(gpu.array(IMAGES)), Interface(gpu.array(np.zeros((2, 3, 4, 5), "f4")))
    alive = [weakref.ref(x), weakref.ref(out)]
    convert(x, "bhwc->bchw", out=out)
    accumulate([(x, "bhwc"), (x, "bhwc")], "bchw")
    del x, out
    gc.collect()
    assert all(array() is not None for array in alive)
    gpu.stream(0).synchronize()
    convert(Interface(gpu.array(IMAGES)), "bhwc->bchw")
    gc.collect()
    assert [array() for array in alive] == [None, None]


def test_results_are_handed_over_on_their_own_device(gpu):
    """Test that the device is current during from_dlpack: CuPy exports on its current stream."""
    current = []

    class Standard(Interface):
        def __array_namespace__(self):
            take = lambda array: current.append(gpu.runtime.current()) or array
            return SimpleNamespace(from_dlpack=take)

    convert(Standard(gpu.array(IMAGES, 1)), "bhwc->bchw")
    assert current == [1]


def test_larger_results_are_of_the_library_of_x_too(gpu):
    """Test the type of a padded result, and that x is kept alive until the kernel has read it."""

    class Standard(Interface):
        def __array_namespace__(self):
            return SimpleNamespace(from_dlpack=Standard)

    x = Standard(gpu.array(IMAGES, 1))
    alive = weakref.ref(x)
    y = convert(x, "bhwc->bchw", pad_to={"h": 9}, fill=2)
    del x
    gc.collect()
    assert alive() is not None
    assert type(y) is Standard
    check_result(y.array, convert(IMAGES, "bhwc->bchw", pad_to={"h": 9}, fill=2))


def test_while_a_graph_is_captured_nothing_is_recorded_but_the_work(gpu):
    x, out = Interface(gpu.array(IMAGES)), Interface(gpu.array(np.zeros((2, 3, 4, 5), "f4")))
    converter = Converter("bhwc->bchw")
    converter(x, out)
    before = gpu.launches("record")
    with gpu.capturing() as graph:
        converter(x, out)
    assert gpu.launches("record") == before
    assert [name for name, _, _ in graph[0].nodes] == ["kernel"]


@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_stream_of_the_interface_is_waited_for_on_the_device(gpu, ordinal):
    theirs = gpu.new_stream(ordinal)
    array = gpu.array(np.zeros_like(IMAGES), ordinal)
    theirs.queue.put("made", lambda: np.copyto(array.memory, IMAGES))
    y = convert(Interface(array, stream=theirs.ptr), "bhwc->bchw")
    assert gpu.host_waits == []
    check_result(y, reference_convert(IMAGES, "bhwc->bchw"))


def test_read_only_and_masked_arrays_of_the_interface(gpu):
    out = gpu.array(np.zeros((2, 3, 4, 5), "f4"))
    readonly = Interface(out, data=(out.data.ptr, True))
    with pytest.raises(ArgumentError, match="out is read-only"):
        convert(Interface(gpu.array(IMAGES)), "bhwc->bchw", out=readonly)
    with pytest.raises(ArgumentError, match="mask"):
        convert(Interface(out, mask=out), "bhwc->bchw")
    assert not out.memory.any()


def test_read_only_arrays_that_come_by_dlpack(gpu):
    """Test read-only arrays of a dtype that the array interface cannot express."""

    class Bits(Interface):
        memory = property(lambda self: self.array.memory)
        ordinal = property(lambda self: self.array.ordinal)

        def __dlpack__(self, *, stream):
            return

    x = IMAGES.astype(BF16)
    outs = [gpu.array(np.zeros((2, 3, 4, 5), BF16)) for _ in range(2)]
    raw, ro = (Bits(out, typestr="|V2", data=(out.data.ptr, n == 1)) for n, out in enumerate(outs))
    convert(Bits(gpu.array(x), typestr="|V2"), "bhwc->bchw", out=raw)
    check_result(outs[0], x.transpose(0, 3, 1, 2).copy())
    with pytest.raises(ArgumentError, match="out is read-only"):
        convert(Bits(gpu.array(x), typestr="|V2"), "bhwc->bchw", out=ro)
    assert not outs[1].memory.view("u2").any()


# ---- plans and their descriptions --------------------------------------------------------


def test_plans_say_where_they_run(gpu):
    spec = ArraySpec("bhwc", (8, 32, 32, 3), "uint8", "cuda:1")
    found = Converter("bhwc->bchw", dtype="f4").plan(spec)
    assert (found.kernel, found.target.device) == ("split", "cuda:1")
    assert "on cuda:1" in str(found)
    assert Converter("bhwc->bchw").plan(gpu.array(IMAGES)).source.device == "cuda:0"
    crossing = plan("bhwc->bchw", (8, 32, 32, 3), "uint8", device="cuda")
    assert "uint8 bchw (8, 3, 32, 32) on cuda:0" in str(crossing)
    assert "upload    24,576 bytes" in str(crossing)


def test_every_kernel_has_its_words_on_a_gpu():
    for row in KERNELS:
        words = explain_kernel(row.name, on_a_gpu=False), explain_kernel(row.name, on_a_gpu=True)
        assert all(words)
        # Reasons that mention CPU registers do not apply to a GPU.
        assert "register" not in words[1]


@pytest.mark.parametrize(
    ("pattern", "order"),
    [
        *itertools.product(["bhwc->bchw", "bchw->bhwc"], [(2, 1, 0), (0, 2, 1), (0, 0), (1,)]),
        *itertools.product(["bhwc->bhwc"], [(2, 1, 0), (1,), (0, 2, 1)]),
        ("bchw->bchw", (0, 2, 1)),
    ],
)
def test_channels_are_taken_there(gpu, monkeypatch, pattern, order):
    monkeypatch.setattr(type(CUPY), "take", None)  # CuPy does not copy the channels first
    x = np.ascontiguousarray(IMAGES if pattern.startswith("bhwc") else IMAGES.transpose(0, 3, 1, 2))
    keywords = {"channels": order, "scale": 0.5, "mean": tuple(range(len(order)))}
    expected = convert(x, pattern, **keywords)
    check_result(convert(gpu.array(x), pattern, **keywords), expected)
    check_result(convert(x, pattern, device="cuda", **keywords), expected)
    larger = {"channels": order, "pad_to": {"h": 9}, "fill": (1, 2, 3)}
    for ordinal in (0, 1):  # with device 0 as the current one
        y = convert(gpu.array(x, ordinal), pattern, **larger)
        assert y.ordinal == ordinal
        check_result(y, convert(x, pattern, **larger))
