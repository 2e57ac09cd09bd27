"""Objects that contain an array: NumPy's protocols, buffers, and lists of arrays."""

import array
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    Converter,
    DataView,
    DtypeError,
    ImageView,
    ShapeError,
    accumulate,
    convert,
)
from layoutkit.data import ArrayProvider
from tests.helpers.reference import reference_convert

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
PLANES = reference_convert(IMAGES, "bhwc->bchw")


class Interface:
    """An object with `__array_interface__` only."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


class Method:
    """An object that makes an array in `__array__`, such as a file."""

    def __init__(self, values, error=None):
        self.values = values
        self.error = error
        self.asked = 0
        self.shape = values.shape
        self.dtype = values.dtype

    def __array__(self, dtype=None, copy=None):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.values.copy()


KINDS = [Interface, Method, memoryview, lambda x: memoryview(x).toreadonly()]


@pytest.mark.parametrize("kind", KINDS, ids=["interface", "method", "memoryview", "readonly"])
def test_what_holds_an_array_becomes_numpys(kind):
    x = kind(IMAGES)
    y = convert(x, "bhwc->bchw", dtype="float32", scale=2)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, PLANES * np.float32(2))
    grad = Converter("bhwc->bchw", scale=3).backward(np.ones(PLANES.shape, "f4"), like=x)
    np.testing.assert_array_equal(grad, np.full(IMAGES.shape, 3, "f4"))
    total = accumulate([(kind(IMAGES), "bhwc"), (PLANES, "bchw")], "bchw")
    np.testing.assert_array_equal(total, PLANES + PLANES)
    assert Converter("bhwc->bchw").plan(x).target.shape == PLANES.shape


@pytest.mark.parametrize("kind", KINDS, ids=["interface", "method", "memoryview", "readonly"])
def test_views_hold_the_array_itself(kind):
    view = ImageView("bhwc", kind(IMAGES))
    assert type(view.input) is np.ndarray
    np.testing.assert_array_equal(view.forward_get("bchw"), PLANES)
    np.testing.assert_array_equal(view.index([1, 0]).input, IMAGES[::-1])
    np.testing.assert_array_equal(view.sub(1, 2, copy=False).input, IMAGES[1:])


def test_providers_take_them():
    provider = ArrayProvider(memoryview(IMAGES), batch_size=2, layout="bhwc")
    batch = next(iter(provider))
    np.testing.assert_array_equal(provider.get(batch, "data").forward_get("bchw"), PLANES)
    with pytest.raises(ArgumentError, match="not a NumPy array"):  # only a copy would be written
        provider.load_data(batch, [Method(np.zeros_like(IMAGES))])


def test_memory_that_is_given_is_shared_and_where_nothing_moves_it_is_the_result():
    for x in (Interface(IMAGES), memoryview(IMAGES)):
        assert np.shares_memory(convert(x, "bhwc->bhwc"), IMAGES)
        assert np.shares_memory(convert(x, "bhwc->b(hwc)"), IMAGES)
        assert not np.shares_memory(convert(x, "bhwc->bhwc", copy=True), IMAGES)


def test_shapes_are_told_without_reading():
    x = Method(IMAGES)
    assert Converter("bhwc->bchw").spec_of(x).shape == IMAGES.shape
    assert x.asked == 0
    convert(x, "bhwc->bchw")
    assert x.asked == 1


@pytest.mark.parametrize(
    ("buffer", "wanted"),
    [
        (b"abcdef", np.frombuffer(b"abcdef", np.uint8)),
        (bytearray(b"abcdef"), np.frombuffer(b"abcdef", np.uint8)),
        (array.array("d", range(6)), np.arange(6.0)),
        (array.array("h", range(6)), np.arange(6, dtype=np.int16)),
        (memoryview(np.arange(12, dtype=">i4"))[::2], np.arange(0, 12, 2, dtype=np.int32)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_buffers_have_the_dtype_that_they_say(buffer, wanted):
    y = convert(buffer, "(ab)->ba", a=2)
    assert y.dtype == wanted.dtype
    np.testing.assert_array_equal(y, wanted.reshape(2, 3).T)


# ---- out= --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [bytearray, lambda n: memoryview(bytearray(n)), lambda n: array.array("B", bytes(n)),
     lambda n: mmap.mmap(-1, n), lambda n: Interface(np.zeros(n, np.uint8))],
    ids=["bytearray", "memoryview", "array", "mmap", "interface"],
)  # fmt: skip
def test_memory_is_written(make):
    out = make(IMAGES.size)
    assert convert(IMAGES, "bhwc->(bchw)", out=out) is out
    np.testing.assert_array_equal(convert(out, "a->a")[: IMAGES.size], PLANES.reshape(-1))
    assert accumulate([(IMAGES, "bhwc"), (memoryview(IMAGES), "bhwc")], "(bchw)", out=out) is out
    np.testing.assert_array_equal(convert(out, "a->a")[: IMAGES.size], (PLANES * 2).reshape(-1))


def test_what_is_written_would_be_lost_or_is_not_allowed():
    out = Method(np.zeros_like(PLANES))
    with pytest.raises(ArgumentError, match=r"memory cannot be written from here; .*out\[\.\.\.\]"):
        convert(IMAGES, "bhwc->bchw", out=out)
    with pytest.raises(ArgumentError, match="memory cannot be written"):
        convert(IMAGES, "bhwc->bchw", out=[np.zeros_like(PLANES)])
    with pytest.raises(ArgumentError, match="out is read-only"):
        convert(IMAGES, "bhwc->(bchw)", out=bytes(120))
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        convert(IMAGES, "bhwc->bchw", out=memoryview(IMAGES.reshape(2, 3, 4, 5)))
    with pytest.raises(ShapeError, match="out has shape"):
        convert(IMAGES, "bhwc->bchw", out=bytearray(120))
    assert out.asked == 0


# ---- lists -------------------------------------------------------------------------------


@given(st.integers(1, 4), st.sampled_from(["u1", "f4", ">i2", "?"]), st.sampled_from([list, tuple]))
def test_lists_of_equal_arrays_are_a_batch(count, dtype, kind):
    arrays = [(IMAGES[n % 2] * (n + 1)).astype(dtype) for n in range(count)]
    y = convert(kind(arrays), "bhwc->bchw")
    np.testing.assert_array_equal(y, reference_convert(np.stack(arrays), "bhwc->bchw"))
    same = convert(kind(arrays), "bhwc->bhwc")
    np.testing.assert_array_equal(same, np.stack(arrays))
    assert not any(np.shares_memory(same, item) for item in arrays)


def test_lists_of_what_holds_arrays():
    y = convert([Interface(IMAGES[0]), memoryview(IMAGES[1])], "bhwc->bchw")
    np.testing.assert_array_equal(y, PLANES)
    with pytest.raises(ArgumentError, match="array is a list"):  # views treat lists as components
        DataView("bhwc", list(IMAGES))


def test_unequal_arrays_are_told_apart():
    odd = [IMAGES[0], IMAGES[1], IMAGES[1, :2]]
    with pytest.raises(
        ShapeError,
        match=r"arrays of x are stacked, but item 2 has shape \(2, 5, 3\) and item 0 \(4, 5, 3\); "
        r"first make them one size, by a call layoutkit\.collate\(",
    ):
        convert(odd, "bhwc->bchw")
    with pytest.raises(DtypeError, match="item 1 has dtype float32 and item 0 uint8"):
        convert([IMAGES[0], IMAGES[1].astype("f4")], "bhwc->bchw")
    with pytest.raises(ArgumentError, match="item 1 of x is None, not a NumPy array"):
        convert([IMAGES[0], None], "bhwc->bchw")
    with pytest.raises(ArgumentError, match="item 1 of x is a masked array"):
        convert([IMAGES[0], np.ma.array(IMAGES[1])], "bhwc->bchw")


def test_lists_of_a_library_become_its_arrays():
    torch = pytest.importorskip("torch", reason="a list of tensors needs torch")
    y = convert([torch.from_numpy(item) for item in IMAGES], "bhwc->bchw")
    assert type(y) is torch.Tensor
    np.testing.assert_array_equal(y.numpy(), PLANES)
    x = torch.ones(4, 5, 3, requires_grad=True)
    convert([x, 2 * x], "bhwc->bchw", scale=3).sum().backward()
    assert bool((x.grad == 9).all())
    total = accumulate([([x, x], "bhwc"), (torch.zeros(2, 3, 4, 5), "bchw")], "bchw")
    assert total.requires_grad
    with pytest.raises(ArgumentError, match="part 1 requires a gradient"):
        accumulate([(IMAGES, "bhwc"), ([x, x], "bhwc")], "bchw")
    with pytest.raises(ShapeError, match="give one shape"):
        convert([x, x[:2]], "bhwc->bchw")


def test_lists_of_traced_arrays():
    jax = pytest.importorskip("jax", reason="a list of traced arrays needs jax")
    y = jax.jit(lambda parts: convert(parts, "bhwc->bchw"))(list(IMAGES))
    np.testing.assert_array_equal(np.asarray(y), PLANES)


# ---- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [[], [1, 2], [[1], [2]], [b"ab", b"cd"], (None,)], ids=repr)
def test_lists_of_what_is_no_array(x):
    with pytest.raises(ArgumentError, match=f"x is a {type(x).__name__}, not a NumPy array"):
        convert(x, "ab->ba")


def test_what_cannot_be_read_says_why():
    with pytest.raises(ArgumentError, match=r"cannot be accessed.*\(no data here\)"):
        convert(Method(IMAGES, RuntimeError("no data here")), "bhwc->bchw")
    with pytest.raises(OSError, match="disk"):
        convert(Method(IMAGES, OSError("disk")), "bhwc->bchw")
    with pytest.raises(DtypeError, match="elements of dtype object cannot be moved"):
        convert(Method(np.array(["a", None])), "b->b")


def test_masks_are_not_lost_on_the_way():
    class Masked(Method):
        def __array__(self, dtype=None, copy=None):
            return np.ma.array([1, 2], mask=[0, 1])

    with pytest.raises(ArgumentError, match="masked array"):
        convert(Masked(IMAGES), "b->b")
