"""The table of the dtypes that kernels support, and the modules that have to agree with it."""

import re

import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir

from layoutkit import accumulate, convert
from layoutkit.kernels.cpu import casts
from layoutkit.kernels.cuda.accumulate import CODES
from layoutkit.kernels.cuda.launch import source
from layoutkit.planning.epilogue import DTYPES, is_supported_dtype, kernel_dtype_name
from layoutkit.spec import as_dtype, dtype_kind

pytestmark = pytest.mark.budget(3)

ROWS = DTYPES.values()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_the_library_says(row):
    dtype = as_dtype(row.library)
    assert (row.item, row.kind) == (dtype.itemsize, dtype_kind(dtype))
    assert kernel_dtype_name(dtype) == row.name
    assert is_supported_dtype(dtype, lambda: True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_vectors_of_a_cpu_have_the_bytes_of_the_table(row):
    bits = {ir.HalfType(): 16, ir.FloatType(): 32, ir.DoubleType(): 64}
    element_type = casts.element_type(row.name)
    assert 8 * row.item == (
        element_type.width if isinstance(element_type, ir.IntType) else bits[element_type]
    )


@pytest.mark.budget(1)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_casts_to_and_from_every_dtype_are_numpys(row):
    """Check every dtype, also a new one: a table without matching casts must not store garbage."""
    dtype = as_dtype(row.library)
    last = 0.25 if row.kind == "f" else 17
    floats = np.tile(np.array([0, 1, 3, 100, last], "f4"), (40, 1))
    items = floats.astype(dtype)
    for found, expected in [
        (convert(floats, "ab->ab", dtype=dtype, casting="unsafe"), items),
        (convert(items, "ab->ab", dtype="f4"), items.astype("f4")),
    ]:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.astype("f8"), expected.astype("f8"))
    if row.kind != "b":
        total = accumulate([(items, "ab"), (items, "ab")], "ab")
        np.testing.assert_array_equal(total.astype("f8"), (items + items).astype("f8"))


@pytest.mark.budget(0)
@pytest.mark.parametrize("name", ["i1", "u2", "i4", "f8"])
def test_items_of_every_size_are_cast_and_added_while_they_move(name):
    items = np.tile(np.array([0, 1, 3, 100, 17], name), (40, 1))
    np.testing.assert_array_equal(convert(items, "ab->ba", dtype="f4"), items.astype("f4").T)
    total = accumulate([(items, "ab"), (items[:, ::-1], "ab")], "ab")
    np.testing.assert_array_equal(total, items + items[:, ::-1])


@pytest.mark.parametrize("count", [31, 64, 1000])
@pytest.mark.parametrize("kind", ["any", "subnormal", "a few subnormal", "nan"])
def test_bfloat16_is_rounded_to_even_whatever_the_bits_are(kind, count):
    """Test subnormals too, which hardware could treat as zero, alone and among other values."""
    rng = np.random.default_rng(count)
    bits = rng.integers(0, 2**32, count, np.uint32)
    few = rng.random(count) < 0.01
    small = bits & np.uint32(0x807FFFFF)
    wrong = bits | np.uint32(0x7F800000)
    bits = {"any": bits, "subnormal": small, "nan": wrong}.get(kind, np.where(few, small, bits))
    odd = bits >> 16 & 1
    rounded = (bits.astype(np.uint64) + 0x7FFF + odd >> 16).astype(np.uint16)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    expected = np.where(is_nan, (bits | 0x400000) >> 16, rounded)
    found = convert(bits.view("f4"), "a->a", dtype="bfloat16")
    np.testing.assert_array_equal(found.view(np.uint16), expected)


@pytest.mark.parametrize("source", ["f4", "f2", "bfloat16", "f8"])
@pytest.mark.parametrize("channels", [None, 3])
def test_a_formula_keeps_nan_whatever_its_payload_is(source, channels):
    """Rounding a payload of all ones to bfloat16 must not carry into the sign."""
    dtype = as_dtype(source)
    x = np.ones((64, 3), dtype)
    bits = x.view(f"u{dtype.itemsize}")
    all_ones = np.iinfo(bits.dtype).max
    bits[::7] = all_ones
    bits[3::7] = all_ones >> 1
    bits[5::7] = 1  # the smallest subnormal; doubled, it selects another way of rounding
    std = 0.5 if channels is None else [0.5] * channels
    converted = convert(x, "bc->bc", dtype="bfloat16", std=std)
    np.testing.assert_array_equal(np.isnan(converted), np.isnan(x))


def test_a_gpu_has_every_dtype_and_numbers_those_that_it_adds():
    text = source("accumulate")
    for name in DTYPES:
        assert re.search(rf"^struct {name} : ", text, re.MULTILINE), name
    numbered = re.findall(r"EACH\((\w+), (\d+)\)", text)
    assert {name: int(code) for name, code in numbered} == CODES
    assert DTYPES.keys() - CODES.keys() == {"b1"}


@pytest.mark.parametrize("dtype", ["float8_e5m2", "complex64", ">f4", "m8[s]", "V3", "int4"])
def test_others_are_not_known(dtype):
    dtype = as_dtype(dtype) if dtype[0] != ">" else np.dtype(dtype)
    assert not is_supported_dtype(dtype, lambda: True)


def test_float16_is_known_where_the_hardware_has_it():
    assert is_supported_dtype(np.dtype(np.float16), lambda: True)
    assert not is_supported_dtype(np.dtype(np.float16), lambda: False)


def test_bfloat16_of_the_other_byte_order_is_cast_by_numpy():
    """Kernels once read such bytes as if they had the machine's own byte order."""
    native = np.array([1, -2.5, 3e38, 0], ml_dtypes.bfloat16)
    other = native.view(np.uint16).byteswap().view(native.dtype.newbyteorder())
    np.testing.assert_array_equal(convert(other, "b->b", dtype="f4"), native.astype("f4"))
