"""The fast path of repeated conversions and sums, and the calls that use the normal path."""

import itertools

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, DeviceError, DtypeError, ShapeError, convert
from layoutkit.accumulation import FAST_PATHS as SUM_PATHS
from layoutkit.accumulation import Accumulator
from layoutkit.backends import dispatch
from layoutkit.converter import FAST_PATHS
from layoutkit.cuda import streams
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.kernels.cuda.launch import prepare
from tests.helpers.arrays_of import laid
from tests.helpers.cuda_moves import copied
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import values_of
from tests.helpers.reference import reference_convert

pytestmark = needs_compiler

IMAGES = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)
WANTED = reference_convert(IMAGES, "bhwc->bchw", scale=2)
KEYWORDS = [{}, {"scale": 2.0}, {"dtype": "f2"}]


@pytest.fixture
def long_ways(monkeypatch):
    """Count the calls that took the normal path."""
    taken, way = [], dispatch.dispatch_conversion
    monkeypatch.setattr(
        dispatch, "dispatch_conversion", lambda *args: taken.append(args[0]) or way(*args)
    )
    return taken


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("keywords", KEYWORDS, ids=str)
def test_what_came_before_is_quick(gpu, long_ways, keywords, ordinal):
    converter = Converter("bhwc->bchw", **keywords)
    for turn in range(3):
        x = IMAGES + np.float32(turn)
        wanted = reference_convert(x, "bhwc->bchw", **keywords)
        out = gpu.array(np.zeros(wanted.shape, wanted.dtype), ordinal)
        stream = gpu.new_stream(ordinal, f"turn {turn}")
        with gpu.using(stream, ordinal):
            there = gpu.array(x, ordinal)
            y = converter(there)
        before = len(gpu.log)
        assert converter(there, out) is out
        assert y.ordinal == ordinal
        assert (y.shape, y.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(values_of(out), wanted)
        stream.synchronize()
        np.testing.assert_array_equal(y.memory, wanted)
        assert gpu.log[before:][0] == (f"main {ordinal}", "kernel")
        assert (f"turn {turn}", "kernel") in gpu.log
    assert len(long_ways) == 2


def test_memory_that_lies_otherwise_goes_another_way(gpu):
    """Test arrays of one shape and dtype on both GPUs with one Converter."""
    converter, layouts = (
        Converter("bhwc->bchw", scale=2.0),
        ("plain", "fortran", "backward", "sliced"),
    )
    for turn in range(2):
        cases = [*zip(layouts, layouts[::-1], (0, 1) * 2, strict=True), ("plain", "plain", 1)]
        for x_lies, out_lies, number in [*(("plain", way, 0) for way in layouts), *cases]:
            x = gpu.array(laid(IMAGES + turn, x_lies), number)
            out = gpu.array(laid(np.zeros(WANTED.shape, "f4"), out_lies), number)
            for _ in range(2):
                values_of(out)[...] = 0
                converter(x, out)
                np.testing.assert_array_equal(values_of(out), WANTED + 2 * turn)
                np.testing.assert_array_equal(values_of(converter(x)), WANTED + 2 * turn)


def test_arrays_of_another_dtype_go_another_way(gpu):
    """Test dtypes of one item size."""
    converter, kinds = Converter("bhwc->bchw"), ("f4", "i4", "u4") * 2
    for kind in kinds:
        x = (IMAGES * 100).astype(kind)
        y, out = converter(gpu.array(x)), gpu.array(np.zeros(WANTED.shape, kind))
        assert y.dtype == kind
        np.testing.assert_array_equal(values_of(y), x.transpose(0, 3, 1, 2))
        assert converter(gpu.array(x), out) is out
    with pytest.raises(DtypeError, match="float32 to uint32"):
        converter(gpu.array(IMAGES), out)


@pytest.mark.parametrize("keywords", [{}, {"scale": 2.0}], ids=str)
def test_memory_that_begins_anywhere(gpu, keywords, monkeypatch):
    """Test that both addresses select the kernel, as their alignment decides its words."""
    launched, launch = [], CupyRuntime.launch
    monkeypatch.setattr(
        CupyRuntime,
        "launch",
        lambda self, kernel, pointers, stream: (
            launched.append((kernel.launch, pointers)) or launch(self, kernel, pointers, stream)
        ),
    )
    converter = Converter("bhwc->bchw", **keywords)
    wanted = reference_convert(IMAGES, "bhwc->bchw", **keywords)
    for x_at, out_at in [(0, 0), (4, 0), (0, 4), (8, 12), (1, 0), (0, 2), (0, 0), (4, 0)]:
        room = gpu.array(np.zeros(IMAGES.nbytes * 2 + 64, np.uint8))
        begin = x_at, IMAGES.nbytes + 32 + out_at
        x, out = (room[at : at + IMAGES.nbytes] for at in begin)
        x, out = (each._like(each.memory.view("f4").reshape(shape)) for each, shape in
                  ((x, IMAGES.shape), (out, WANTED.shape)))  # fmt: skip
        x.memory[...] = IMAGES
        launched.clear()
        assert converter(x, out) is out
        np.testing.assert_array_equal(values_of(out), wanted)
        if len(launched) == 1:
            (found, (y, source)), plan = launched[0], converter.plan(x)
            assert found == prepare(plan.choice, plan.epilogue, source, y)


def test_outputs_that_overlap_or_lie_otherwise_are_still_refused(gpu, long_ways):
    # (n - 1) * 8 is a multiple of 16: kernels are loaded for arrays that share one element.
    converter, n = Converter("bf->fb"), 15
    room = gpu.array(np.arange(4.0 * n + 1))
    at = lambda begin: room[begin : begin + n].reshape(3, 5)
    to = lambda begin: room[begin : begin + n].reshape(5, 3)
    converter(at(0), to(2 * n))
    converter(at(0), to(2 * n + 1))
    converter(at(1), to(2 * n))
    converter(at(1), to(2 * n + 1))
    for begin in (1, 2, n - 2, n - 1, n):
        assert converter(at(n), to(0)) is not None
        if begin < n:
            with pytest.raises(ArgumentError, match="out shares memory with x"):
                converter(at(begin), to(0))
            with pytest.raises(ArgumentError, match="out shares memory with x"):
                converter(at(0), to(begin))
    taken = len(long_ways)
    converter(at(n), to(0))  # arrays that begin where the other ends
    converter(at(0), to(n))
    assert len(long_ways) == taken
    with pytest.raises(ShapeError, match="out has shape"):
        converter(at(0), at(n))
    with pytest.raises(DtypeError, match="float64 to int16 is not allowed"):
        converter(at(0), gpu.array(np.zeros((5, 3), "i2")))
    with pytest.raises(DeviceError, match="x is on cuda:0, but out is on cuda:1"):
        converter(at(0), gpu.array(np.zeros((5, 3)), 1))


def test_backward_memory_overlaps_where_it_lies(gpu, long_ways):
    """Test overlaps of a reversed array, whose memory is below its address."""
    converter, n = Converter("bf->fb"), 12
    room = gpu.array(np.arange(64.0))
    x = lambda at: room[at : at + n].reshape(3, 4)[::-1, ::-1]
    to = lambda at: room[at : at + n].reshape(4, 3)
    for begin, end in itertools.product((0, 1), (2 * n, 2 * n + 1)):  # for words of each alignment
        converter(x(begin), to(end))
    for begin in (n + 1, n + 2, 2 * n, 3 * n - 2, 3 * n - 1):
        with pytest.raises(ArgumentError, match="out shares memory"):
            converter(x(begin), to(2 * n))
    taken = len(long_ways)
    for begin in (n, 3 * n):
        converter(x(begin), to(2 * n))
        np.testing.assert_array_equal(values_of(to(2 * n)), x(begin).memory.T)
    assert len(long_ways) == taken


def test_quick_ways_are_captured_and_others_are_not_taken(gpu, long_ways):
    converter, x = Converter("bhwc->bchw", scale=2.0), gpu.array(IMAGES)
    out = gpu.array(np.zeros_like(WANTED))
    converter(x, out)
    with gpu.capturing() as graph:
        converter(x, out)
    assert len(long_ways) == 1
    graph[0].launch(gpu.stream(0))
    np.testing.assert_array_equal(values_of(out), WANTED)
    assert not streams.captured


def test_what_takes_more_than_a_kernel_has_no_quick_way(gpu, long_ways):
    x = gpu.array(IMAGES)
    unsafe = Converter("bhwc->bchw", dtype="i4", casting="unsafe")
    same, view = Converter("bhwc->bhwc"), Converter("bhwc->b(hwc)")
    for _ in range(2):
        np.testing.assert_array_equal(
            values_of(unsafe(x)), IMAGES.astype("i4").transpose(0, 3, 1, 2)
        )
        assert same(x) is x
        assert view(x).data.ptr == x.data.ptr
        assert Converter("bhwc->bchw")(gpu.array(np.zeros((0, 4, 5, 3)))).shape == (0, 3, 4, 5)
    assert len(long_ways) == 8


def test_tensors_of_two_gpus_have_their_own(gpu, long_ways, monkeypatch):
    from tests.helpers import fake_torch as fakes

    torch, found = fakes.torch, fakes.FakeTorch(gpu, monkeypatch)
    gpu.eager = True
    convert(torch.zeros(2, 3), "bf->fb")  # registers the class
    for kind in fakes.KINDS:
        monkeypatch.setitem(FAST_PATHS, id(kind), FAST_PATHS[id(torch.Tensor)])
    long_ways.clear()
    converter = Converter("bhwc->bchw", scale=2.0)
    for ordinal in (0, 1, 0, 1):
        y = converter(found.there(torch.from_numpy(IMAGES), ordinal))
        assert type(y) is fakes.KINDS[ordinal]
        np.testing.assert_array_equal(fakes.here(y).numpy(), WANTED)
    assert len(long_ways) == 2
    turned, x = Converter("bhwc->bchw"), torch.from_numpy(IMAGES)
    for dtype in (torch.float32, torch.int32) * 2:
        out = found.there(torch.zeros(WANTED.shape, dtype=dtype))
        assert turned(found.there(x.to(dtype))).dtype is dtype
        assert turned(found.there(x.to(dtype)), out) is out
    with pytest.raises(DtypeError, match="float32 to int32"):
        turned(found.there(x), out)


def test_tensors_have_one_too(gpu, long_ways, monkeypatch):
    from tests.helpers import fake_torch as fakes

    torch, found = fakes.torch, fakes.FakeTorch(gpu, monkeypatch)
    gpu.eager = True
    convert(torch.zeros(2, 3), "bf->fb")  # registers the class
    long_ways.clear()
    monkeypatch.setitem(FAST_PATHS, id(fakes.Cuda), FAST_PATHS[id(torch.Tensor)])
    x = torch.from_numpy(laid(IMAGES, "plain"))
    converter = Converter("bhwc->bchw", scale=2.0)
    out = found.there(torch.zeros(2, 3, 4, 5))
    for _ in range(3):
        version = out._version
        assert converter(found.there(x), out) is out
        assert out._version > version
        y = converter(found.there(x))
        for each in (out, y):
            np.testing.assert_array_equal(fakes.here(each).numpy(), WANTED)
        assert len(long_ways) == 2
    assert {where for where, what in gpu.log if what == "kernel"} == {"torch"}
    other = torch.from_numpy(laid(IMAGES, "fortran"))
    lying = found.there(torch.zeros(5, 4, 3, 2)).permute(3, 2, 1, 0)
    for each in (x, other, x):  # of one shape and dtype
        for to in (out, lying, out):
            assert converter(found.there(each), to) is to
            np.testing.assert_array_equal(found.values_of(to), WANTED)
        np.testing.assert_array_equal(found.values_of(converter(found.there(each))), WANTED)
        np.testing.assert_array_equal(found.values_of(converter(found.there(each)[1:])), WANTED[1:])
    y = converter(found.there(x).requires_grad_())
    assert y.requires_grad
    turned = Converter("bhwc->bchw")
    for _ in range(2):
        turned(found.there(x.to(torch.complex64)))
    with pytest.raises(ArgumentError, match="conj bit"):
        turned(found.there(x.to(torch.complex64)).conj())
    plain = Converter("bhwc->bchw")
    for _ in range(2):
        plain(found.there(x))
    with pytest.raises(ArgumentError, match="neg bit"):
        plain(torch._neg_view(found.there(x)))
    with pytest.raises(ArgumentError, match="out requires a gradient"):
        converter(found.there(x), out.requires_grad_())
    z = torch.func.vmap(lambda one: converter(one[None])[0])(x)
    np.testing.assert_array_equal(z.numpy(), WANTED)


# ---- sums --------------------------------------------------------------------------------


@pytest.fixture
def long_sums(monkeypatch):
    """Count the sums that took the normal path."""
    taken, way = [], dispatch.dispatch_sum
    monkeypatch.setattr(dispatch, "dispatch_sum", lambda *args: taken.append(args[0]) or way(*args))
    return taken


def in_both(values):
    """Return equal values as parts in two layouts."""
    return [(values, "bhwc"), (np.ascontiguousarray(values.transpose(0, 3, 1, 2)), "bchw")]


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_sums_that_came_before_are_quick(gpu, long_sums, dtype, ordinal):
    add = Accumulator(("bhwc", "bchw"), "bhwc")
    for turn in range(3):
        values = (IMAGES * 99 + turn).astype(dtype)
        parts = [gpu.array(part, ordinal) for part, _ in in_both(values)]
        out = gpu.array(np.zeros_like(values), ordinal)
        stream = gpu.new_stream(ordinal, f"turn {turn}")
        with gpu.using(stream, ordinal):
            total = add(parts)
        assert add(parts, out) is out
        assert (total.ordinal, total.dtype) == (ordinal, values.dtype)
        np.testing.assert_array_equal(values_of(out), 2 * values)
        stream.synchronize()
        np.testing.assert_array_equal(total.memory, 2 * values)
        assert (f"turn {turn}", "kernel") in gpu.log
    assert len(long_sums) == 2


def test_sums_of_memory_that_lies_otherwise_go_another_way(gpu):
    add, lies = Accumulator(("bhwc", "bchw"), "bhwc"), ("plain", "fortran", "sliced", "unaligned")
    cases = [*itertools.product(lies, lies, ["plain"]), *((how, how, how) for how in lies)]
    for turn in range(2):
        (x, _), (y, _) = in_both(IMAGES + turn)
        for first, second, to in cases:
            parts = [gpu.array(laid(x, first)), gpu.array(laid(y, second))]
            out = gpu.array(laid(np.zeros_like(x), to))
            for _ in range(2):
                values_of(out)[...] = 0
                add(parts, out)
                np.testing.assert_array_equal(values_of(out), 2 * x)
                np.testing.assert_array_equal(values_of(add(parts)), 2 * x)


def test_a_sum_is_quick_only_for_alignments_that_came_before(gpu, long_sums):
    add, out = Accumulator(("bhwc", "bhwc"), "bhwc"), gpu.array(np.zeros_like(IMAGES))
    for long, shift in enumerate((0, 8), 1):
        part = gpu.array(copied(IMAGES, shift))
        for _ in range(2):
            add([part] * 2, out)
            np.testing.assert_array_equal(values_of(out), 2 * IMAGES)
        assert len(long_sums) == long


@pytest.mark.parametrize("lies", list(itertools.product(["plain", "backward"], repeat=2)))
def test_quick_ways_begin_where_backward_memory_does(gpu, long_ways, long_sums, lies):
    """Test arrays whose first and last bytes are equally aligned, so addresses alone look alike."""
    values = np.arange(21, dtype="f4").reshape(3, 7)
    turned = values.T.copy()
    x, other = gpu.array(laid(values, lies[0])), gpu.array(laid(turned, lies[0]))
    to = gpu.array(laid(np.zeros((7, 3), "f4"), lies[1]))
    converter, add = Converter("bf->fb", scale=2.0), Accumulator(("bf", "fb"), "fb")
    for call in (lambda: converter(x, to), lambda: add([x, other], to)):
        for _ in range(3):
            values_of(to)[...] = 0
            call()
            np.testing.assert_array_equal(values_of(to), 2 * turned)
    assert len(long_ways) == len(long_sums) == 1


def test_sums_that_are_not_one_kernel_have_no_quick_way(gpu, long_sums):
    """Test sums of one part, of more parts than a launch adds, or with an unsupported cast."""
    x = IMAGES[:, :, :, 0].copy()
    for count, dtype in ((1, "f4"), (17, "f4"), (2, "c8")):
        add = Accumulator(("bhw",) * count, "bhw", dtype=dtype)
        parts = [gpu.array(x)] * count
        for _ in range(3):
            np.testing.assert_allclose(values_of(add(parts)), count * x, rtol=1e-6)
    assert len(long_sums) == 9


def test_outputs_of_sums_that_overlap_are_still_refused(gpu, long_sums):
    # (n - 1) * 8 is a multiple of 16: kernels are loaded for arrays that share one element.
    add, n = Accumulator(("bf", "fb"), "bf"), 15
    room = gpu.array(np.arange(6.0 * n))
    at = lambda begin: room[begin : begin + n].reshape(3, 5)
    other = gpu.array(np.zeros((5, 3)))
    for begin, end in itertools.product((0, 1), (2 * n, 2 * n + 1)):
        add([at(begin), other], at(end))
        add([at(4 * n), at(begin).reshape(5, 3)], at(end))
    for begin in (n + 1, n + 2, 2 * n - 2, 2 * n + 2, 3 * n - 2, 3 * n - 1):
        with pytest.raises(ArgumentError, match="out shares memory with part 0"):
            add([at(begin), other], at(2 * n))
    taken = len(long_sums)
    for begin in (n, 3 * n):  # parts that end where out begins, or begin where out ends
        add([at(begin), other], at(2 * n))
    assert len(long_sums) == taken
    for begin in (n + 1, n + 2, 3 * n - 2, 3 * n - 1):
        with pytest.raises(ArgumentError, match="out shares memory with part 1"):
            add([at(4 * n), at(begin).reshape(5, 3)], at(2 * n))


class Foreign:
    """An array with the CUDA array interface."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


def test_parts_of_several_libraries_take_the_long_way(gpu, long_sums):
    add = Accumulator(("bhwc", "bchw"), "bhwc")
    (x, _), (y, _) = in_both(IMAGES)
    for _ in range(3):
        total = add([gpu.array(x), Foreign(gpu.array(y))])
        np.testing.assert_array_equal(values_of(total), 2 * x)
    assert len(long_sums) == 3


def test_sums_of_tensors_have_one_too(gpu, long_sums, monkeypatch):
    from tests.helpers import fake_torch as fakes

    torch, found = fakes.torch, fakes.FakeTorch(gpu, monkeypatch)
    gpu.eager = True
    convert(torch.zeros(2, 3), "bf->fb")  # registers the class
    monkeypatch.setitem(SUM_PATHS, id(fakes.Cuda), SUM_PATHS[id(torch.Tensor)])
    add = Accumulator(("bhwc", "bchw"), "bhwc")
    parts = [found.there(torch.from_numpy(part)) for part, _ in in_both(IMAGES)]
    out = found.there(torch.zeros(IMAGES.shape))
    for _ in range(3):
        version = out._version
        assert add(parts, out) is out
        assert out._version > version
        for each in (out, add(parts)):
            np.testing.assert_array_equal(fakes.here(each).numpy(), 2 * IMAGES)
    assert len(long_sums) == 2
    assert add([parts[0].requires_grad_(), parts[1]]).requires_grad
    assert len(long_sums) > 2
    with pytest.raises(ArgumentError, match="out requires a gradient"):
        add([parts[0].detach(), parts[1]], out.requires_grad_())
