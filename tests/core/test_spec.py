"""Specs, dtypes by name, and the casting rule."""

import itertools
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from layoutkit.errors import ArgumentError, DeviceError, DtypeError, PatternError, ShapeError
from layoutkit.spec import (
    CASTINGS,
    ArraySpec,
    as_dtype,
    can_cast,
    check_cast,
    check_supported_dtype,
    dtype_kind,
)
from tests.helpers.reference import reference_convert

NUMERIC = [np.dtype(char) for char in "?bhilqBHILQefdgFDG"]
ML_FLOATS = [
    np.dtype(getattr(ml_dtypes, name))
    for name in dir(ml_dtypes)
    if name.startswith(("float", "bfloat"))
]
STRUCTURED = np.dtype([("a", "<i4"), ("b", "<f8", (2,))])
DATES = np.dtype("datetime64[s]")


# --- ArraySpec ------------------------------------------------------------------------


def test_spec_keeps_one_form():
    spec = ArraySpec("b (h w) (c)", [np.int64(2), 12, 3], ">f4")
    assert spec == ArraySpec("b(hw)c", (2, 12, 3), np.float32, "cpu")
    assert hash(spec) == hash(ArraySpec("b(hw)c", (2, 12, 3), "float32"))
    assert (spec.axes, spec.shape, spec.device) == ("b(hw)c", (2, 12, 3), "cpu")
    assert spec.dtype.isnative
    assert [type(size) for size in spec.shape] == [int, int, int]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            ArraySpec("bchw", (64, 3, 224, 224), "float32"),
            "float32 bchw (64, 3, 224, 224) on cpu",
        ),
        (ArraySpec("b(hwc)", (2, 12), "bfloat16", "cuda:1"), "bfloat16 b(hwc) (2, 12) on cuda:1"),
        (ArraySpec("b", (5,), "M8[s]"), "datetime64[s] b (5,) on cpu"),
    ],
    ids=["plain", "bfloat16-on-gpu", "dates"],
)
def test_spec_prints_as_people_say_it(spec, text):
    assert str(spec) == text


@pytest.mark.parametrize(
    ("shape", "dtype", "size", "nbytes"),
    [
        ((2, 3), "float64", 6, 48),
        ((2, 3), "bfloat16", 6, 12),
        ((2, 3), "float8_e4m3fn", 6, 6),
        ((0, 3), "float64", 0, 0),
        ((2**31, 2**33), "complex128", 2**64, 2**68),
    ],
    ids=["float64", "bfloat16", "float8", "empty", "beyond-64-bits"],
)
def test_spec_size_and_bytes(shape, dtype, size, nbytes):
    spec = ArraySpec("bc", shape, dtype)
    assert (spec.size, spec.nbytes) == (size, nbytes)


def test_spec_is_frozen_and_replace_checks_again():
    spec = ArraySpec("bc", (2, 3), "float32")
    with pytest.raises(FrozenInstanceError):
        spec.shape = (1,)
    assert replace(spec, axes="c b").axes == "cb"
    with pytest.raises(ShapeError):
        replace(spec, shape=(2, 3, 4))


BAD_SPECS = [
    pytest.param(("b?", (2, 3), "f4"), PatternError, ["'?' is not an axis"], id="layout"),
    pytest.param((3, (2, 3), "f4"), PatternError, ["not 3 (int)"], id="layout-no-text"),
    pytest.param(
        ("bhwc", (2, 3), "f4"), ShapeError, ["4 axes (b, h, w, c)", "(2, 3) has 2"], id="rank"
    ),
    pytest.param(("bc", (2, -3), "f4"), ShapeError, ["axis 1 is -3"], id="negative"),
    pytest.param(("bc", (2, 3.5), "f4"), ShapeError, ["axis 1 is 3.5"], id="float"),
    pytest.param(("b", 3, "f4"), ShapeError, ["tuple of ints"], id="bare-shape"),
    pytest.param(("b", (3,), "float99"), DtypeError, ["'float99'", "bfloat16"], id="dtype"),
    pytest.param(("b", (3,), object), DtypeError, ["object"], id="object"),
    pytest.param(("b", (3,), "f4", 0), DeviceError, ["device=0", '"cuda:0"'], id="device"),
]


@pytest.mark.parametrize(("arguments", "error_type", "parts"), BAD_SPECS)
def test_bad_spec_names_the_part(arguments, error_type, parts):
    with pytest.raises(error_type) as error:
        ArraySpec(*arguments)
    assert [part for part in parts if part not in str(error.value)] == []


# --- dtypes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        ("float32", np.dtype(np.float32)),
        (np.uint8, np.dtype("u1")),
        (int, np.dtype(np.int64)),
        (">f8", np.dtype("f8")),
        (np.dtype(">i2"), np.dtype("i2")),
        ("bfloat16", np.dtype(ml_dtypes.bfloat16)),
        (ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)),
        ("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2)),
        ("int4", np.dtype(ml_dtypes.int4)),
        (np.dtype([("a", ">i4")]), np.dtype([("a", "=i4")])),
        ("datetime64[ns]", np.dtype("M8[ns]")),
    ],
    ids=str,
)
def test_as_dtype_is_native(given_dtype, expected):
    dtype = as_dtype(given_dtype)
    assert isinstance(dtype, np.dtype)
    assert dtype == expected
    assert dtype.isnative


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("bfloat16 ", "bfloat16"),
        ("FLOAT32", "float32"),
        ("i32", "int32"),
        ("torch.half", "float16"),
    ],
)
def test_dtypes_of_other_libraries(wrong, meant):
    with pytest.raises(DtypeError, match=f'did you mean "{meant}"'):
        as_dtype(wrong)


@pytest.mark.parametrize(
    "wrong", [None, "float99", "", "finfo", "f4,(", 3, 2.5, [1], b"\xff"], ids=repr
)
def test_what_is_no_dtype_is_named(wrong):
    with pytest.raises(DtypeError, match="is not a dtype; give one of bool, ints") as error:
        as_dtype(wrong)
    assert repr(wrong) in str(error.value)


@pytest.mark.parametrize(
    "dtype",
    [*NUMERIC, *ML_FLOATS, STRUCTURED, DATES, *map(np.dtype, ("m8", ">f4", "U5", "S5", "V8"))],
    ids=str,
)
def test_movable(dtype):
    moved = reference_convert(np.zeros((2, 3), dtype), "ab->ba")
    check_supported_dtype(dtype)
    assert moved.shape == (3, 2)


UNMOVABLE = [
    pytest.param(np.dtype(object), id="object"),
    pytest.param(np.dtype("U0"), id="str-of-no-length"),
    pytest.param(np.dtype("S"), id="bytes-of-no-length"),
    pytest.param(np.dtype("V0"), id="void-of-no-length"),
    pytest.param(np.dtypes.StringDType(), id="string"),
    pytest.param(np.dtype([("a", "i4"), ("b", object)]), id="object-field"),
    pytest.param(np.dtype(("f4", (3,))), id="subarray"),
    pytest.param(np.dtype(([("a", "i4")], (3,))), id="subarray-of-structured"),
]


@pytest.mark.parametrize("dtype", UNMOVABLE)
def test_unmovable_says_what_is_accepted(dtype):
    with pytest.raises(DtypeError) as error:
        check_supported_dtype(dtype)
    assert f"dtype {dtype} cannot be moved" in str(error.value)
    assert "structured" in str(error.value)


@pytest.mark.parametrize("dtype", [*NUMERIC, DATES, np.dtype("m8"), STRUCTURED], ids=str)
def test_kind_is_numpys(dtype):
    assert dtype_kind(dtype) == dtype.kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bfloat16", "f"),
        ("float8_e5m2", "f"),
        ("float8_e4m3fn", "f"),
        ("int4", "i"),
        ("uint4", "u"),
    ],
)
def test_kind_of_ml_dtypes(name, kind):
    assert dtype_kind(as_dtype(name)) == kind


def test_import_leaves_ml_dtypes_alone_until_a_name_needs_it():
    code = (
        "import sys, layoutkit.spec as spec\n"
        "spec.ArraySpec('b', (1,), 'float32')\n"
        "print('ml_dtypes' in sys.modules, end=' ')\n"
        "spec.as_dtype('bfloat16')\n"
        "print('ml_dtypes' in sys.modules)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["False", "True"], "")


# --- casting --------------------------------------------------------------------------


@pytest.mark.parametrize("casting", ["safe", "same_kind", "unsafe"])
def test_between_numpys_numbers_the_words_are_numpys(casting):
    pairs = list(itertools.product(NUMERIC, repeat=2))
    wrong = [
        (str(source), str(target))
        for source, target in pairs
        if can_cast(source, target, casting) != np.can_cast(source, target, casting)
    ]
    assert wrong == []


def test_any_floating_to_any_floating_is_same_kind():
    floats = [np.dtype(char) for char in "efd"] + ML_FLOATS
    assert len(floats) > 8
    assert all(can_cast(a, b, "same_kind") for a, b in itertools.product(floats, repeat=2))


CASTS = [
    ("float32", "bfloat16", "safe", False),
    ("bfloat16", "float32", "safe", True),
    ("bfloat16", "float16", "safe", False),
    ("float16", "bfloat16", "safe", False),
    ("uint8", "bfloat16", "safe", True),
    ("uint8", "float8_e4m3fn", "safe", False),
    ("int8", "float8_e5m2", "safe", False),
    ("bool", "float8_e5m2", "safe", True),
    ("float8_e5m2", "float32", "safe", True),
    ("float8_e5m2", "float8_e5m2", "safe", True),
    ("int64", "bfloat16", "same_kind", True),
    ("bool", "bfloat16", "same_kind", True),
    ("bfloat16", "int64", "same_kind", False),
    ("bfloat16", "complex64", "same_kind", True),
    ("complex64", "bfloat16", "same_kind", False),
    ("bfloat16", "uint8", "saturate", True),
    ("float32", "uint8", "saturate", True),
    ("int64", "uint8", "saturate", True),
    ("complex64", "uint8", "saturate", False),
    ("complex64", "float32", "saturate", False),
    ("complex64", "bool", "saturate", False),
    ("complex64", "complex128", "saturate", True),
    ("float32", "bool", "saturate", True),
    ("float32", "float16", "saturate", True),
    ("bfloat16", "bool", "unsafe", True),
    (">f4", "f4", "safe", True),
    (">M8[s]", "<M8[s]", "safe", True),
]


@pytest.mark.parametrize(("source", "target", "casting", "allowed"), CASTS)
def test_cast_table(source, target, casting, allowed):
    source = np.dtype(source) if source.startswith(">") else as_dtype(source)
    assert can_cast(source, as_dtype(target), casting) is allowed


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (DATES, np.dtype("datetime64[ms]")),
        (DATES, np.dtype("int64")),
        (np.dtype("int64"), DATES),
        (np.dtype("m8[s]"), np.dtype("int64")),
        (np.dtype("int32"), np.dtype("m8[s]")),
        (STRUCTURED, np.dtype([("a", "<i8"), ("b", "<f8", (2,))])),
        (STRUCTURED, np.dtype("float32")),
        (np.dtype("float32"), STRUCTURED),
        (DATES, STRUCTURED),
    ],
    ids=str,
)
def test_dates_and_structured_are_never_cast(source, target, casting):
    assert not can_cast(source, target, casting)
    with pytest.raises(DtypeError, match="only moved, never cast") as error:
        check_cast(source, target, casting)
    assert str(source) in str(error.value)
    assert str(target) in str(error.value)


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("dtype", [*NUMERIC, *ML_FLOATS, DATES, STRUCTURED], ids=str)
def test_a_move_is_no_cast(dtype, casting):
    check_cast(dtype, dtype, casting)
    assert can_cast(dtype.newbyteorder("S"), dtype, casting) is True


REFUSED = [
    ("float32", "uint8", "same_kind", ['"saturate"', '"unsafe"', "half to even"], '"safe"'),
    ("bfloat16", "int32", "same_kind", ['"saturate"', '"unsafe"'], '"safe"'),
    ("int64", "uint8", "same_kind", ['"saturate"', '"unsafe"'], '"safe"'),
    ("complex64", "float32", "same_kind", ['"unsafe" (as NumPy\'s astype)'], '"saturate"'),
    ("complex64", "float32", "saturate", ['"unsafe"'], "clipped"),
    ("complex64", "uint8", "same_kind", ['"unsafe" (cut off and wrapped'], '"saturate"'),
    ("float64", "bool", "same_kind", ['"unsafe"'], "clipped"),
    ("float64", "float32", "safe", ['"same_kind"', '"unsafe"'], '"saturate"'),
    ("float64", "int8", "safe", ['"saturate"', '"unsafe"'], '"same_kind"'),
]


@pytest.mark.parametrize(("source", "target", "casting", "named", "unnamed"), REFUSED)
def test_refused_cast_names_the_words_that_would_do(source, target, casting, named, unnamed):
    with pytest.raises(DtypeError) as error:
        check_cast(as_dtype(source), as_dtype(target), casting)
    message = str(error.value)
    assert message.startswith(f'{source} to {target} is not allowed by casting="{casting}"')
    assert [word for word in named if word not in message] == []
    assert unnamed not in message


@pytest.mark.parametrize("word", ["no", "equiv", "SAFE", "", None, 3, ["safe"]], ids=repr)
@pytest.mark.parametrize("check", [can_cast, check_cast])
def test_unknown_casting_lists_the_four(check, word):
    with pytest.raises(ArgumentError) as error:
        check(np.dtype("f4"), np.dtype("f4"), word)
    assert repr(word) in str(error.value)
    assert "'safe', 'same_kind', 'unsafe', 'saturate'" in str(error.value)


FLOATS = [np.dtype("f2"), np.dtype("f4"), *ML_FLOATS]
ONE_BYTE = [np.dtype("i1"), np.dtype("u1"), *(d for d in ML_FLOATS if d.itemsize == 1)]
SAFE_PAIRS = [
    (source, target)
    for source, target in itertools.product(ONE_BYTE, FLOATS)
    if source != target and can_cast(source, target, "safe")
]


@pytest.mark.parametrize(("source", "target"), SAFE_PAIRS, ids=str)
def test_safe_to_a_float_loses_no_byte(source, target):
    stored_bits = 4 if source.name.startswith("float4") else 6 if "6_" in source.name else 8
    x = np.arange(2**stored_bits, dtype=np.uint8).view(source)
    np.testing.assert_array_equal(x.astype(target).astype("f8"), x.astype("f8"))


@pytest.mark.parametrize("target", ["int2", "uint2", "int4", "uint4", "int8", "uint64"])
def test_no_float_is_safe_to_an_integer(target):
    floats = [np.dtype(char) for char in "efdF"] + ML_FLOATS
    assert [str(x) for x in floats if can_cast(x, as_dtype(target), "safe")] == []


# --- the reference itself -------------------------------------------------------------


def test_reference_saturates_as_promised():
    x = np.array([0.5, 1.5, 2.5, -1, 255.5, 1e30, -np.inf, np.inf, np.nan])
    y = reference_convert(x, "a->a", dtype="uint8", casting="saturate")
    assert y.tolist() == [0, 2, 2, 0, 255, 255, 0, 255, 0]


@pytest.mark.parametrize("target", ["int64", "uint64", "int8"])
def test_reference_saturates_exactly_at_the_ends(target):
    info = np.iinfo(target)
    below_2_63 = float(2**63 - 1024)
    x = np.array([2.0**63, 2.0**64, -(2.0**63), below_2_63])
    y = reference_convert(x, "a->a", dtype=target, casting="saturate")
    exact = [2**63, 2**64, -(2**63), 2**63 - 1024]
    assert y.tolist() == [min(max(value, int(info.min)), int(info.max)) for value in exact]


def test_reference_formula_by_hand():
    x = np.array([[[[0, 255], [51, 102]]]], np.uint8)
    y = reference_convert(x, "bhwc->bchw", scale=1 / 51, mean=[1, 2], std=[2, 4])
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, [[[[-0.5, 0.0]], [[0.75, 0.0]]]], atol=1e-7)
