"""Every pattern, dtype and kind of memory on a GPU, against the slow reference and the CPU."""

import ctypes
import itertools

import cupy
import numpy as np
import pytest

from layoutkit import accumulate, convert, plan
from tests.helpers.arrays_of import BF16, ODD, assert_same, laid, random_array
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.usefixtures("machine")

RNG = np.random.default_rng(0)
LAYOUTS = ["".join(order) for order in itertools.permutations("bhwc") if order[0] in "bc"]
IMAGE_PATTERNS = [f"{a}->{b}" for a, b in itertools.permutations(LAYOUTS, 2)]
SHAPES = [(2, 3, 5, 4), (8, 28, 28, 64), (4, 30, 31, 3), (33, 7, 9, 130), (64, 56, 56, 1)]
DTYPES = ["?", "u1", "i2", "f2", "f4", "f8", "c8", "c16", BF16, ODD]


def on_gpu(x):
    """Return a CuPy array with the values, strides and alignment of x."""
    low, high = np.lib.array_utils.byte_bounds(x)
    raw = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
    shift = low % 16
    room = cupy.empty(high - low + 16, np.uint8)
    room[shift : shift + high - low] = cupy.asarray(raw)
    begin = x.__array_interface__["data"][0] - low + shift
    return cupy.ndarray(x.shape, x.dtype, room.data + begin, x.strides)


def check_result(got, wanted):
    assert isinstance(got, cupy.ndarray)
    assert got.flags.c_contiguous
    assert_same(got.get(), wanted)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
def test_layouts_of_images(shape, dtype):
    for pattern in IMAGE_PATTERNS:
        left, right = pattern.split("->")
        sizes = dict(zip("bhwc", shape, strict=True))
        x = random_array(RNG, tuple(sizes[a] for a in left), dtype)
        wanted = np.ascontiguousarray(x.transpose([left.index(a) for a in right]))
        check_result(convert(cupy.asarray(x), pattern), wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bchw->chwb", "bhwc->b(chw)", "bhwc->wbch"])
def test_every_dtype(dtype, pattern):
    x = random_array(RNG, (5, 17, 19, 6), dtype)
    check_result(convert(on_gpu(x), pattern), convert(x, pattern))


@pytest.mark.parametrize("how", ["fortran", "backward", "sliced", "unaligned", "pages", "zero"])
@pytest.mark.parametrize("keywords", [{}, {"scale": 0.5, "mean": (1, 2, 3)}])
def test_memory_may_lie_in_any_way(how, keywords):
    x = laid(RNG.integers(0, 9, (3, 20, 21, 3)).astype("f4"), how)
    got = convert(on_gpu(x), "bhwc->bchw", **keywords).get()
    np.testing.assert_array_equal(got, reference_convert(x, "bhwc->bchw", **keywords))


@pytest.mark.parametrize("target", ["f2", BF16, "f4", "f8", "i4", "u1", "c8"])
@pytest.mark.parametrize("source", ["?", "u1", "i4", "f2", BF16, "f4", "f8"])
def test_every_cast(source, target):
    casting = "saturate" if np.dtype(target).kind in "ui" else "unsafe"
    x = RNG.normal(40, 20, (3, 20, 21, 40))
    x = (x > 40 if source == "?" else np.abs(x)).astype(source)
    for pattern in ("bhwc->bchw", "bhwc->bhwc"):
        wanted = convert(x, pattern, dtype=target, casting=casting, copy=True)
        check_result(
            convert(cupy.asarray(x), pattern, dtype=target, casting=casting, copy=True), wanted
        )


@pytest.mark.parametrize("dtype", ["f2", BF16, "f4", "f8"])
@pytest.mark.parametrize("shape", [(3, 30, 31, 3), (4, 28, 28, 64)])
def test_the_formula(shape, dtype):
    x = RNG.integers(0, 256, shape, np.uint8)
    per = np.linspace(0.1, 0.9, shape[-1])
    keywords = {"scale": 1 / 255, "mean": tuple(per), "std": tuple(per + 1)}
    got = convert(cupy.asarray(x), "bhwc->bchw", dtype=dtype, **keywords).get().astype("f8")
    wanted = reference_convert(x, "bhwc->bchw", dtype=np.dtype("f8"), **keywords)
    unit = {"f2": 2**-11, "f4": 2**-23, "f8": 2**-52}.get(dtype, 2**-8)
    assert (np.abs(got - wanted) <= 4 * unit * (1 + np.abs(wanted))).all()


@pytest.mark.parametrize("how", ["plain", "sliced", "backward", "unaligned"])
def test_the_callers_output(how):
    x = RNG.random((3, 20, 21, 5), np.float32)
    for dtype in ("f4", "f8", "c8"):
        out = on_gpu(laid(np.zeros((3, 5, 20, 21), dtype), how))
        assert convert(cupy.asarray(x), "bhwc->bchw", out=out) is out
        np.testing.assert_array_equal(out.get(), x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", BF16, "i4", "c8"])
@pytest.mark.parametrize("count", [2, 4, 17, 40])
def test_sums(count, dtype):
    shapes = {"bchw": (8, 5, 14, 15), "bhwc": (8, 14, 15, 5), "chwb": (5, 14, 15, 8)}
    layouts = list(itertools.islice(itertools.cycle(shapes), count))
    parts = [(RNG.normal(0, 9, shapes[name]).astype(dtype), name) for name in layouts]
    there = [(cupy.asarray(part), name) for part, name in parts]
    check_result(accumulate(there, "bhwc"), accumulate(parts, "bhwc"))


def test_plans_are_those_of_the_cpu():
    for device in ("cpu", "cuda"):
        found = plan("bhwc->bchw", (64, 224, 224, 3), "uint8", dtype="f4", device=device)
        assert (found.kernel, found.bytes_moved) == ("split", 48168960)


def test_the_second_gpu():
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    x = RNG.random((3, 20, 21, 5), np.float32)
    y = convert(x, "bhwc->bchw", device="cuda:1")
    assert y.device.id == 1
    check_result(y, convert(x, "bhwc->bchw"))
