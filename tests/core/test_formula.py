"""Casts over full ranges, bit by bit, and the formula, in ulps of long double."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from layoutkit import Converter, DtypeError, convert, plan
from layoutkit.planning.select import MAX_TABLE
from layoutkit.spec import can_cast
from tests.helpers.arrays_of import BF16, COMPLEX32, LAYINGS, assert_same, laid, random_array
from tests.helpers.every_value import assert_cast, every_value, numpys, thinned
from tests.helpers.reference import reference_convert
from tests.helpers.streaming import stream_rows

pytestmark = pytest.mark.budget(3)

NAMES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
KERNEL = [np.dtype(name) for name in NAMES] + [BF16]
FLOATS = [d for d in KERNEL if d.kind in "fV"]
F4 = np.dtype("f4")
# NumPy casts floats to integers. Of the casts that kernels make, one of each kind is tested here,
# and every dtype in some; kernels/test_numeric.py tests all of them.
SORTS = {
    "?": "i4",
    "i1": "u8",
    "i2": "f2",
    "u2": "i4",
    "i4": "?",
    "i8": "u1",
    "u8": "f8",
    "f8": "f2",
}
CASTS = {
    source: [
        target
        for target in KERNEL
        if (source in FLOATS and target.kind in "iu")
        or F4 in (source, target)
        or target == SORTS.get(source.str[1:])
    ]
    for source in KERNEL
}
OTHERS = [
    np.dtype(d)
    for d in (
        ">i4",
        ">f4",
        ">f8",
        "g",
        "c8",
        "c16",
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3b11fnuz,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.float4_e2m1fn,
        *COMPLEX32,
    )
]


@pytest.mark.budget(1)
@pytest.mark.parametrize("source", CASTS, ids=str)
def test_casts_are_numpys(source):
    x = every_value(source)
    for target in CASTS[source]:
        assert_cast(convert(x, "b->b", dtype=target, casting="unsafe"), numpys(x, target))


@pytest.mark.parametrize("pair", ["f4 u1", "f8 u8", "bfloat16 i1", "i8 i4"])
def test_saturating_casts_are_exact(pair):
    source, target = map(np.dtype, pair.split())
    x = thinned(every_value(source))
    y = convert(x, "b->b", dtype=target, casting="saturate")
    np.testing.assert_array_equal(y, reference_convert(x, "b->b", dtype=target, casting="saturate"))


@pytest.mark.parametrize("source", OTHERS, ids=str)
@pytest.mark.parametrize("casting", ["unsafe", "saturate"])
@pytest.mark.filterwarnings("error")
def test_dtypes_that_kernels_do_not_know(source, casting):
    """Neither warnings nor errors of NumPy reach the user."""
    x = every_value(source)[:3000]
    if source.kind == "c" and casting == "unsafe":
        x = x[abs(x) < 100]  # larger values: undefined in C and NumPy
    for target in [*KERNEL, *(dtype.newbyteorder("=") for dtype in OTHERS)]:
        if not can_cast(source, target, casting):  # complex to real
            continue
        y = convert(x, "b->b", dtype=target, casting=casting)
        assert y.dtype == target
        if np.can_cast(source, target, "unsafe") and "complex32" not in (source.name, target.name):
            small = target.name in ("int4", "uint4")
            if small and casting == "saturate":
                continue
            wanted = reference_convert(x, "b->b", dtype=y.dtype, casting=casting)
            (np.testing.assert_array_equal if y.dtype.kind in "biu" else assert_like)(y, wanted)


@pytest.mark.parametrize("source", ["c8", "c16", ">c8", ">c16", *COMPLEX32], ids=str)
@pytest.mark.filterwarnings("error")
def test_a_complex_number_is_false_if_both_parts_are_zero(source):
    """Unsafe casts to other real dtypes keep the real part."""
    x = np.array([0, complex(-0.0, -0.0), 1j, -0.5j, 2, 3 + 4j, complex(0, np.nan)], "c8")
    x = x.astype(source)
    truth = convert(x, "b->b", dtype="bool", casting="unsafe")
    assert truth.tolist() == [False, False, True, True, True, True, True]
    real = convert(x, "b->b", dtype="int16", casting="unsafe")
    assert real.tolist() == [0, 0, 0, 0, 2, 3, 0]
    for target in ("bool", "int16", "float32"):
        with pytest.raises(DtypeError, match='use casting="unsafe"'):
            convert(x, "b->b", dtype=target, casting="saturate")


def assert_like(got, wanted):
    wide = "c16" if got.dtype.kind in "cW" else "g"
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.astype(wide), wanted.astype(wide))


@pytest.mark.parametrize("target", ["int4", "uint4"])
def test_saturate_clips_to_half_a_byte(target):
    x = np.array([-100.0, -8.5, -8, -0.5, 0.5, 1.5, 7, 7.4, 8, 15.5, 99, np.nan, np.inf])
    low, high = (-8, 7) if target == "int4" else (0, 15)
    wanted = np.clip(np.nan_to_num(np.rint(x), posinf=99), low, high)
    for values in (x, x.astype("f4")):
        y = convert(values, "b->b", dtype=target, casting="saturate")
        np.testing.assert_array_equal(y.astype("f8"), wanted)


def test_saturate_knows_the_last_bits_of_long_double():
    if np.finfo("g").nmant < 63:
        pytest.skip("long double is float64 here")
    x = np.array([2**63 - 1, 2**63, -(2**63), 2**62 + 1, 0], "g")
    x[4] = np.nextafter(np.longdouble(0.5), 1)
    y = convert(x, "b->b", dtype="i8", casting="saturate")
    assert y.tolist() == [2**63 - 1, 2**63 - 1, -(2**63), 2**62 + 1, 1]


FEW, MANY = (2, 9, 8, 3), (3, 33, 5, 20)  # shapes with few and with many channels


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("pair", "shapes"),
    [(("f4", BF16), [FEW]), (("f4", "f2"), [MANY]), (("u1", "f4"), [FEW, MANY])],
    ids=str,
)
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bchw->bhwc", "bhwc->chwb"])
def test_casts_while_moving(pair, shapes, pattern):
    source, target = map(np.dtype, pair)
    for shape, how in itertools.product(shapes, LAYINGS[2:]):
        x = random_array(np.random.default_rng(0), shape, "u1").astype("f4").astype(source)
        x = laid(x * source.type(1.37) if source.kind == "f" else x, how)
        assert_same(convert(x, pattern, dtype=target), reference_convert(x, pattern, dtype=target))


# --- the formula --------------------------------------------------------------------------

MEAN = (0.485, -3.25, 1e-3, 700.0, 0.0)
STD = (0.229, 12.5, -0.01, 3.0, 1e4)


def check_formula(x, pattern, dtype=None, out=None, scale=1 / 255, **sizes):
    """Check that the error is at most 3 ulp of the larger term plus the target's rounding."""
    count = dict(zip("bchwd", (0, sizes.pop("channels")), strict=False))["c"]
    mean, std = (np.resize(values, count).tolist() for values in (MEAN, STD))
    constants = {"scale": scale, "mean": mean, "std": std, **sizes}
    y = convert(x, pattern, dtype=dtype, out=out, **constants)
    exact = reference_convert(x, pattern, dtype=np.longdouble, **constants)
    term = abs(reference_convert(np.zeros_like(x), pattern, dtype=np.longdouble, **constants))
    scaled = reference_convert(x, pattern, dtype=np.longdouble, scale=scale, std=std, **sizes)
    wide = y.dtype == np.float64 or x.dtype == np.float64
    computed = np.finfo("f8" if wide else "f4")
    bound = 3 * np.longdouble(computed.eps) * np.maximum(abs(scaled), term) + computed.tiny
    if y.dtype.itemsize < 4:
        info = ml_dtypes.finfo(y.dtype)
        bound += abs(exact) * float(info.eps) + float(info.smallest_subnormal)
    assert (abs(y.astype("g") - exact) <= bound).all()
    return y


@pytest.mark.budget(1)
@pytest.mark.parametrize("channels", [1, 3, 4, 16])
@pytest.mark.parametrize(
    "pattern",
    [
        "bhwc->bchw",
        "bchw->bhwc",
        "bhwc->bhwc",
        "bchw->bchw",
        "bhwc->chwb",
        "chwb->bhwc",
        "cbhw->cbhw",
        "bhwc->b(hwc)",
        "bhcw->bw(ch)",
    ],
)
def test_formula_wherever_c_is(pattern, channels):
    left = pattern.partition("->")[0]
    for b, h, w in ((2, 3, 5), (2, 17, 16)):
        shape = [{"b": b, "h": h, "w": w, "c": channels}[letter] for letter in left]
        x = random_array(np.random.default_rng(0), shape, "u1")
        for how in ("plain", "backward", "sliced"):
            check_formula(laid(x.copy(), how), pattern, channels=channels)


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    "pair", [("f2", "f4"), ("i8", "f8"), ("f4", "f2"), ("?", "f4"), (BF16, BF16)], ids=str
)
def test_formula_of_other_dtypes(pair):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if pair[0] == "?" else 100, (2, 7, 9, 3)).astype(pair[0])
    for how in ("plain", "unaligned", "zero"):
        check_formula(laid(x.copy(), how), "bhwc->bchw", pair[1], channels=3)


@pytest.mark.parametrize("source", [">f4", ">i2", "g", ml_dtypes.float8_e5m2], ids=str)
def test_formula_of_dtypes_that_kernels_do_not_know(source):
    x = np.arange(60).reshape(1, 4, 5, 3).astype(source)
    check_formula(x, "bhwc->bchw", "f4", channels=3)
    out = np.zeros((1, 3, 4, 5), ">f4")
    check_formula(x, "bhwc->bchw", out=out, channels=3)


def test_folded_channels():
    x = np.arange(2 * 60, dtype="u1").reshape(2, 60)
    check_formula(x, "bf->bchw", channels=3, h=4, w=5, c=3)
    check_formula(x, "b(chw)->bhwc", "f4", channels=3, h=4, w=5, c=3)
    check_formula(x, "b(hwc)->bhwc", "f4", channels=3, h=4, w=5, c=3)


def test_channels_that_only_one_side_has():
    x = np.arange(6, dtype="f4").reshape(2, 3, 1)
    y = convert(x, "bwc->bw", mean=[1.0], std=[2.0])
    np.testing.assert_array_equal(y, (x[..., 0] - 1) / 2)
    np.testing.assert_array_equal(convert(y, "bw->bcw", mean=[1.0])[:, 0], y - 1)


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_about_the_longest_run_of_coefficients(around):
    channels = MAX_TABLE + around
    x = np.arange(6 * channels, dtype="u2").reshape(2, 3, channels)
    check_formula(x, "bwc->bwc", channels=channels)
    check_formula(x, "bwc->bcw", channels=channels)


def test_streamed_formula(monkeypatch):
    stream_rows(monkeypatch, 256)
    x = random_array(np.random.default_rng(0), (2, 33, 9, 3), "u1")
    for offset in (0, 4, 60):
        raw = np.full(2 * 33 * 9 * 3 + 64, 7, "f4")
        out = raw[offset // 4 :][: x.size].reshape(2, 3, 33, 9)
        y = Converter("bhwc->bchw", dtype="f4", mean=[1, 2, 3])(x, out)
        wanted = x.transpose(0, 3, 1, 2) - np.array([1, 2, 3], "f4").reshape(3, 1, 1)
        np.testing.assert_array_equal(y, wanted)
        assert (raw[: offset // 4] == 7).all()
        assert (raw[offset // 4 + x.size :] == 7).all()


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda v: np.array(v, ">f8")])
def test_forms_of_constants(make):
    x = np.arange(12, dtype="u1").reshape(1, 2, 2, 3)
    y = convert(x, "bhwc->bchw", mean=make([1.0, 2.0, 3.0]), std=make([1.0, 2.0, 4.0]))
    wanted = (x - np.array([1, 2, 3])) / np.array([1, 2, 4])
    np.testing.assert_array_equal(y, wanted.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("make", [int, float, np.float32, np.float16, np.int8, np.array, BF16.type])
def test_forms_of_numbers(make):
    x = np.arange(12, dtype="u1")
    y = convert(x, "b->b", scale=make(2), mean=make(3), std=make(4))
    np.testing.assert_array_equal(y, (x * 2.0 - 3) / 4)
    assert y.dtype == np.float32


def test_result_dtypes():
    for source, asked, wanted in [
        ("u1", None, "f4"),
        ("?", None, "f4"),
        ("i8", None, "f4"),
        ("f2", None, "f2"),
        ("f8", None, "f8"),
        ("f4", "f8", "f8"),
        ("f8", "f4", "f4"),
        (BF16, None, BF16),
    ]:
        y = convert(np.ones(0, source), "b->b", scale=2, dtype=asked)  # without a kernel
        assert y.dtype == np.dtype(wanted)


def test_formula_saturates_to_integers():
    x = np.array([-1, 0, 0.5, 1.5, 2.5, 300, np.nan, np.inf], "f4")
    y = convert(x, "b->b", dtype="u1", scale=1, casting="saturate")
    assert y.tolist() == [0, 0, 0, 2, 2, 255, 0, 255]
    out = np.zeros((8, 2), "u1")[:, 0]
    assert convert(x, "b->b", scale=1, casting="saturate", out=out).tolist() == y.tolist()
    small = convert(x, "b->b", dtype="uint4", scale=1, casting="saturate")
    assert small.astype(int).tolist() == [0, 0, 0, 2, 2, 15, 0, 15]


def test_unsafe_formula_truncates_as_numpy_does():
    x = np.array([-1.7, 0.5, 2.9, 99.99], "f4")
    assert convert(x, "b->b", dtype="i4", scale=1, casting="unsafe").tolist() == [-1, 0, 2, 99]


@pytest.mark.parametrize(
    ("scale", "mean", "std"), [(1e39, 1e39, 1e38), (1e-44, 0, 1), (1e-20, 1, 1e25)]
)
def test_constants_that_float32_cannot_hold(scale, mean, std):
    """0 times a factor beyond float32 is 0, not NaN, and a tiny factor keeps its digits."""
    x = np.array([0, 1, -2, 1e-10, 1e30, 3e38], "f4")
    y = convert(x, "b->b", scale=scale, mean=mean, std=std)
    with np.errstate(all="ignore"):
        wanted = ((x.astype("g") * scale - mean) / std).astype("f4")
    np.testing.assert_allclose(y, wanted, rtol=4e-7, atol=1e-44)


def test_empty_arrays_take_a_formula():
    assert convert(np.zeros((0, 2, 2, 3), "u1"), "bhwc->bchw", mean=[1, 2, 3]).dtype == np.float32


WIDE = ["i4", "u4", "i8", "u8", "f8", ">i8", ">f8"]
BASES = [2**24, 2**31 - 64, 1_700_000_000, 2**53 - 64]


def exact_formula(x, scale=1, mean=0, std=1, clip=(-math.inf, math.inf)):
    """Return the formula of one row, in fractions; `mean` has one number per item."""
    clipped = [min(max(Fraction(float(v)), clip[0]), clip[1]) for v in x]
    means = mean if isinstance(mean, list) else [mean] * len(x)
    exact = [(v * Fraction(scale) - m) / Fraction(std) for v, m in zip(clipped, means, strict=True)]
    return np.array([float(value) for value in exact])


def around(base, source):
    """Return 24 numbers from `base` on, exact in `source`, and the formulas to test on them."""
    x = (base + np.arange(24)).astype(source)
    formulas = [
        {"mean": base},
        {"scale": 0.5, "mean": base / 2, "std": 7},
        {"mean": [base + i for i in range(24)], "clip": (base + 3, base + 19)},
    ]
    return x, formulas


@pytest.mark.budget(1)
@pytest.mark.parametrize("source", WIDE)
def test_formulas_of_wide_sources_keep_every_digit(source):
    """Compute differences that only float64 represents, by kernels and by NumPy."""
    for base in BASES:
        if np.dtype(source).kind not in "iu" or base + 24 <= np.iinfo(source).max:
            x, formulas = around(base, source)
            for keywords in formulas:
                wanted = exact_formula(x, **keywords)
                tolerance = 1e-6 * abs(wanted).max() + 2.0**-50 * base / keywords.get("std", 1)
                for dtype in ("f4", "f8", None):
                    y = convert(x[None], "bc->cb", dtype=dtype, **keywords)
                    assert y.dtype == (dtype or ("f8" if "f8" in source else "f4"))
                    assert abs(y[:, 0] - wanted).max() <= tolerance, (base, keywords, dtype)


@pytest.mark.parametrize("source", ["?", "i2", "u2", "f4", "f2", BF16, "int4"], ids=str)
def test_formulas_of_narrow_sources_are_computed_in_float32(source):
    text = str(plan("b->b", (3,), source, scale=2))
    assert "in float32, as it passes" in text
    assert "in float64, as it passes" in str(plan("b->b", (3,), source, scale=2, dtype="f8"))


@pytest.mark.parametrize("source", [*WIDE, "i2", "f4", "g"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_safe_formula_has_only_safe_casts(source, dtype):
    """Test the cast to the computed dtype, and the cast of the result."""
    x = np.arange(3).astype(source)
    computed = "f4" if source in ("i2", "f4") and dtype == "f4" else "f8"
    if source != "g" and computed in ("f4", dtype):
        assert convert(x, "b->b", mean=1, dtype=dtype, casting="safe").tolist() == [-1, 0, 1]
        return
    with pytest.raises(DtypeError, match="float64") as error:
        convert(x, "b->b", mean=1, dtype=dtype, casting="safe")
    if source[-2:] not in ("f8", "g"):
        assert 'or give dtype="float64"' in str(error.value)


@pytest.mark.parametrize("source", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("has_out", [False, True])
def test_a_safe_formula_accepts_the_default_dtype_of_its_result(source, has_out):
    x = np.array([1_700_000_000, 1_700_000_060], source)
    out = np.empty(2, np.float32) if has_out else None
    y = convert(x, "b->b", mean=1.7e9, casting="safe", out=out)
    assert y.dtype == np.float32
    assert y.tolist() == [0, 60]
