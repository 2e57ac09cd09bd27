"""Arrays of any library with DLPack, as input and output; no library needs to be installed."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, DeviceError, DtypeError, accumulate, convert
from tests.helpers.children import python
from tests.helpers.reference import reference_convert

IMAGES = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)


class Exporter:
    """An array of a library that is not registered."""

    def __init__(self, array, device=(1, 0)):
        self.array = array
        self.device = device

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.device


class Standard(Exporter):
    """An array of a library that follows the array API standard."""

    def __array_namespace__(self, api_version=None):
        return Namespace


class Namespace:
    @staticmethod
    def from_dlpack(x):
        return Standard(np.from_dlpack(x))


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("keywords", [{}, {"dtype": "float16"}, {"scale": 2, "mean": (1, 2, 3)}])
def test_a_numpy_array_comes_out(keywords):
    wanted = reference_convert(IMAGES, "bhwc->bchw", **keywords)
    for run in (
        Converter("bhwc->bchw", **keywords),
        lambda x: convert(x, "bhwc->bchw", **keywords),
    ):
        y = run(Exporter(IMAGES))
        assert type(y) is np.ndarray
        assert y.dtype == wanted.dtype
        np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


def test_an_array_of_a_standard_library_comes_out_in_the_same_memory(monkeypatch):
    created = []
    call = Converter.__call__
    monkeypatch.setattr(
        Converter,
        "__call__",
        lambda self, x, out=None: created.append(call(self, x, out)) or created[-1],
    )
    y = convert(Standard(IMAGES), "bhwc->bchw")
    assert type(y) is Standard
    assert address(y.array) == address(created[0])
    np.testing.assert_array_equal(y.array, reference_convert(IMAGES, "bhwc->bchw"))
    x = Standard(IMAGES)
    assert convert(x, "bhwc->bhwc") is x


def test_nothing_is_copied_and_read_only_memory_is_not_written():
    array = IMAGES.copy()
    array.setflags(write=False)
    y = convert(Exporter(array), "bhwc->b(hwc)")
    assert address(y) == address(array)
    assert not y.flags.writeable
    with pytest.raises(ArgumentError, match="out is read-only"):
        convert(Standard(IMAGES + 1), "bhwc->bhwc", out=Standard(array))
    np.testing.assert_array_equal(array, IMAGES)


def test_the_result_keeps_the_exporters_memory():
    y = convert(Exporter(IMAGES.copy()), "bhwc->b(hwc)")
    further = [np.zeros_like(IMAGES) for _ in range(8)]
    np.testing.assert_array_equal(y, IMAGES.reshape(2, -1))
    assert len(further) == 8


@pytest.mark.parametrize("kind", [lambda array: array, Exporter, Standard])
def test_out(kind):
    memory = np.zeros((2, 3, 4, 5), np.float32)
    out = kind(memory)
    assert convert(Exporter(IMAGES), "bhwc->bchw", out=out) is out
    np.testing.assert_array_equal(memory, reference_convert(IMAGES, "bhwc->bchw"))


def test_backward_and_sums():
    converter = Converter("bhwc->bchw", std=2)
    grad = np.ones((2, 3, 4, 5), np.float32)
    got = converter.backward(Exporter(grad), like=Exporter(IMAGES))
    np.testing.assert_array_equal(got, np.full((2, 4, 5, 3), 0.5, np.float32))
    parts = [(Standard(IMAGES), "bhwc"), (grad, "bchw")]
    total = accumulate(parts, "bhwc")
    assert type(total) is Standard
    np.testing.assert_array_equal(total.array, IMAGES + 1)
    assert type(accumulate(parts[::-1], "bhwc")) is np.ndarray
    assert converter.plan(Exporter(IMAGES)).source.shape == IMAGES.shape


@pytest.mark.parametrize(
    ("device", "name"), [((7, 1), "vulkan:1"), ((99, 0), "DLPack device 99:0")]
)
def test_another_device_is_named(device, name):
    x = Exporter(IMAGES, device)
    for run in (Converter("bhwc->bchw"), lambda x: accumulate([(x, "bhwc")], "bchw")):
        with pytest.raises(DeviceError, match=f"is on {name}.*move it to the CPU"):
            run(x)


def test_pinned_memory_is_memory_of_the_cpu():
    np.testing.assert_array_equal(convert(Exporter(IMAGES, (3, 0)), "bhwc->bhwc"), IMAGES)


# ---- dtypes that NumPy's DLPack lacks ----------------------------------------------------

CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}  # fmt: skip
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NEW_CAPSULE = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))


class Bits:
    """An array of another library, whose capsules are made by hand, as in dlpack.h."""

    def __init__(self, array, code, bits, *, lanes=1, versioned=False):
        self.array = array
        self.dtype_word = code | bits << 8 | lanes << 16
        self.versioned = versioned
        self.deleted = 0
        self.deleter = DELETER(self.count)
        self.kept = []

    def count(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, **keywords):
        if keywords and not self.versioned:  # an exporter of the first version of DLPack
            raise TypeError("unexpected keywords")
        items = self.array.itemsize
        sizes = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        strides = (ctypes.c_int64 * self.array.ndim)(*(s // items for s in self.array.strides))
        # data; device type and number; rank and dtype; sizes; strides; offset of the first byte
        tensor = [self.array.ctypes.data, 1, self.array.ndim | self.dtype_word << 32]
        tensor += [ctypes.addressof(sizes), ctypes.addressof(strides), 0]
        deleter = ctypes.cast(self.deleter, ctypes.c_void_p).value
        words = [1, 0, deleter, 0, *tensor] if self.versioned else [*tensor, 0, deleter]
        memory = (ctypes.c_uint64 * len(words))(*words)
        self.kept += [memory, sizes, strides]
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return NEW_CAPSULE(ctypes.addressof(memory), name, None)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", CODES)
def test_dtypes_that_numpys_dlpack_lacks(name, versioned):
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = (IMAGES * 9).astype(dtype)
    exporter = Bits(x, CODES[name], 8 * dtype.itemsize, versioned=versioned)
    y = convert(exporter, "bhwc->bchw")
    assert y.dtype == dtype
    bits = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(y.view(bits), x.transpose(0, 3, 1, 2).view(bits))
    assert exporter.deleted == 1  # NumPy consumes one capsule of a call and refuses the other
    kept = convert(exporter, "bhwc->b(hwc)")
    assert address(kept) == address(x)
    assert exporter.deleted == 1
    del kept
    assert exporter.deleted == 2
    floats = convert(exporter, "bhwc->bchw", dtype="float32", casting="unsafe")
    np.testing.assert_array_equal(floats, x.astype("f4").transpose(0, 3, 1, 2))
    if versioned:
        out = Bits(np.zeros_like(y), CODES[name], 8 * dtype.itemsize, versioned=True)
        assert convert(exporter, "bhwc->bchw", out=out) is out
        np.testing.assert_array_equal(out.array.view(bits), y.view(bits))


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("code", "bits", "lanes"),
    [(0, 4, 1), (1, 4, 1), (1, 2, 1), (17, 4, 1), (17, 4, 2), (15, 6, 1), (4, 16, 2), (4, 8, 1)],
)
def test_packed_items_are_refused(code, bits, lanes, versioned):
    x = np.zeros((2, 4, 6, 2), np.uint8)
    with pytest.raises(ArgumentError, match=r"the memory of x.*pass a numpy\.ndarray"):
        convert(Bits(x, code, bits, lanes=lanes, versioned=versioned), "bhwc->bchw")


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_these_dtypes_go_in_and_out_by_dlpack_alone(name):
    torch = pytest.importorskip("torch", reason="a library that has these dtypes")

    class Library:
        from_dlpack = staticmethod(lambda x: Tensor(torch.from_dlpack(x)))

    class Tensor(Exporter):
        def __array_namespace__(self, api_version=None):
            return Library

    x = torch.rand(2, 4, 5, 3).to(getattr(torch, name))
    for y in (
        convert(Tensor(x), "bhwc->bchw"),
        convert(Tensor(x.float()), "bhwc->bchw", dtype=name),
    ):
        assert type(y) is Tensor
        assert y.array.dtype is x.dtype
        assert torch.equal(y.array.float(), x.float().permute(0, 3, 1, 2))


def test_what_dlpack_does_not_carry():
    with pytest.raises(ArgumentError, match="the memory of x"):
        convert(Exporter(IMAGES.astype(ml_dtypes.bfloat16)), "bhwc->bchw")
    with pytest.raises(DtypeError, match="cannot contain the result of dtype bfloat16"):
        convert(Standard(IMAGES), "bhwc->bchw", dtype="bfloat16")


def test_no_library_is_imported_to_recognize_an_array():
    # Compiles the kernels if they are not cached: Numba imports scipy.
    x = np.zeros((2, 3), np.float32)
    convert(x, "bc->cb")
    accumulate([(x, "bc")], "cb")
    result = """
import sys
import numpy as np
import layoutkit

class Exporter:
    def __dlpack__(self, **keywords):
        return np.zeros((2, 3), np.float32).__dlpack__(**keywords)
    def __dlpack_device__(self):
        return 1, 0

Other = type("Tensor", (Exporter,), {"__module__": "torch"})
for x in (Exporter(), Other()):
    layoutkit.convert(x, "bc->cb")
    layoutkit.accumulate([(x, "bc")], "cb")
print(sorted({"jax", "torch", "scipy"} & set(sys.modules)))
"""
    assert python(result) == "[]\n"


def test_numpy_arrays_load_no_adapter():
    result = """
import sys
import numpy as np
import layoutkit

converter = layoutkit.Converter("bc->cb")
x = np.zeros((2, 3), np.float32)
converter.backward(converter(x), like=x)
layoutkit.accumulate([(x, "bc"), (x, "bc")], "cb")
print("layoutkit.backends.dispatch" in sys.modules)
"""
    assert python(result) == "False\n"
