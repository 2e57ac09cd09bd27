"""Impossible requests raise one clear error of layoutkit, never an error of NumPy."""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import layoutkit
from layoutkit import (
    ArgumentError,
    CompositeSpace,
    Conv2DSpace,
    IndexSpace,
    LayoutkitError,
    ListView,
    ShapeError,
    VectorSpace,
    accumulate,
    convert,
)

EMPTY = np.zeros((0, 3), np.float32)
HUGE = np.broadcast_to(np.uint8(1), (1 << 31, 1 << 31))


@pytest.mark.parametrize("pattern", ["(hb)c->bhc", "(hb)c->hbc", "(hb)c->cbh", "(hb)c->c(bh)"])
@pytest.mark.parametrize("size", [1 << 58, 1 << 62, 1 << 63, 1 << 70])
def test_sizes_beside_nothing(pattern, size):
    """NumPy limits the other axes of an empty array: "array is too big", or "Maximum allowed"."""
    for run in (
        lambda: convert(EMPTY, pattern, h=size, b=0),
        lambda: layoutkit.plan(pattern, (0, 3), h=size, b=0),
        lambda: layoutkit.Converter(pattern, h=size, b=0)(EMPTY),
        lambda: accumulate([(EMPTY, "(hb)c")], pattern.split("->")[1], h=size, b=0),
    ):
        with pytest.raises(ShapeError, match=f"h is {size}, too large for any array"):
            run()
    assert convert(EMPTY, pattern, h=1 << 40, b=0).size == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_results_beyond_any_memory(dtype):
    for run in (
        lambda: convert(HUGE, "ab->ba", dtype=dtype, copy=True),
        lambda: accumulate([(HUGE, "ab"), (HUGE, "ba")], "ba", dtype="int64"),
        lambda: IndexSpace(1 << 62, 1).format_as(np.zeros((3, 1), int), VectorSpace(1 << 62)),
    ):
        with pytest.raises(MemoryError, match=r"cannot allocate \d+ bytes"):
            run()


@pytest.mark.parametrize(
    "space",
    [VectorSpace(1 << 62), VectorSpace(1 << 70), Conv2DSpace((1 << 31, 1 << 31), 4, "bchw")]
    + [CompositeSpace((VectorSpace(3), VectorSpace(1 << 62))), VectorSpace(1 << 62, sparse=True)],
    ids=str,
)
def test_origins_beyond_any_memory(space):
    for run in (space.get_origin, lambda: space.get_origin_batch(8)):
        with pytest.raises(ShapeError, match="does not fit into memory; ask for"):
            run()


@pytest.mark.parametrize("nothing", [np.array(0.0), np.float32(1), 3, None])
def test_arrays_that_are_no_sequence(nothing):
    with pytest.raises(ArgumentError, match="give "):
        accumulate(nothing, "b")
    with pytest.raises(ArgumentError, match="give a list of views"):
        ListView(nothing)


@pytest.mark.parametrize("copy", [np.array([1, 2]), np.array(1), [1, 2], 1, "no"], ids=repr)
def test_copy_is_a_flag(copy):
    for run in (convert, lambda x, pattern, copy: layoutkit.Converter(pattern, copy=copy)(x)):
        with pytest.raises(ArgumentError, match="it must be None, True or False"):
            run(EMPTY, "bc->cb", copy=copy)


class Strange:
    """An object that is neither a number, nor text, nor a sequence."""


ODD = [
    None, True, -1, 2**31, 2**63, 10**400, 1.5, float("nan"), 1j, "", "x", b"x", [], [1, 2, 3],
    [[1]], [None], (1, 2), {}, {"c": 1}, {"h": 2**63}, {"h": 1.5}, {"c": [1, 2, 3]}, {1: 2},
    {"h": None}, {1}, Strange(), Strange, np.array(1), np.array([1, 2, 3]), np.array([]),
    np.array([[1.0]]), np.array(["a"]), np.array([None]), np.array(1 + 2j), np.float32("nan"),
    np.datetime64("2000"),
    np.void(b"abc"), np.ma.array([1, 2], mask=[0, 1]), Fraction(1, 3), Decimal("NaN"), range(3),
    slice(1), ..., memoryview(b"abc"), np.dtype("O"),
]  # fmt: skip
X = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
PADDED = {"pad_to": {"h": 9, "w": 9}}
RESIZED = {"resize": "bilinear", "h": 2, "w": 2}
CONVERT = {
    "dtype": {}, "scale": {}, "mean": {}, "std": {}, "clip": {}, "casting": {}, "out": {}, "h": {},
    "device": {}, "copy": {}, "memory": {}, "threads": {}, "pad_to": {}, "channels": {},
    "pad_before": PADDED, "fill": PADDED, "center": PADDED,
}  # fmt: skip
COLLATE = {
    "h": {"w": 2}, "resize": {"h": 2, "w": 2}, "fill": {"h": 8, "w": 8}, "fit": RESIZED,
    "pad_before": {**RESIZED, "fit": "pad"}, "crop": RESIZED, "antialias": RESIZED,
    "short_side": RESIZED, "center": RESIZED, "offset": {"h": 1, "w": 1}, "flip": {"h": 1, "w": 1},
    "out": {}, "channels": {}, "key": {}, "seed": {}, "dtype": {}, "mean": {}, "memory": {},
    "threads": {}, "device": {},
}  # fmt: skip


def assert_own_error(run):
    """Assert that a call returns, or raises an error of layoutkit, or that memory is too small."""
    with suppress(LayoutkitError, MemoryError):
        run()


@pytest.mark.parametrize("name", CONVERT)
def test_odd_arguments_of_conversions(name):
    for value in ODD:
        keywords = {**CONVERT[name], name: value}
        assert_own_error(lambda k=keywords: convert(X, "bhwc->bchw", **k))
        if name != "out":
            assert_own_error(lambda k=keywords: layoutkit.plan("bhwc->bchw", X.shape, "u1", **k))
            assert_own_error(lambda k=keywords: layoutkit.Converter("bhwc->bchw", **k))


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("name", COLLATE)
def test_odd_arguments_of_collations(name):
    for value in ODD:
        keywords = {**COLLATE[name], name: value}
        assert_own_error(lambda k=keywords: layoutkit.collate([X[0], X[0]], "hwc->bchw", **k))


def test_odd_arrays_layouts_and_sums():
    for odd in ODD:
        for run in (
            lambda v: convert(v, "bhwc->bchw"),
            lambda v: convert(X, v),
            lambda v: layoutkit.plan("bc->cb", v),
            lambda v: layoutkit.plan("bc->cb", (2, v)),
            lambda v: layoutkit.plan("bc->cb", (2, 3), v),
            lambda v: accumulate(v, "bc"),
            lambda v: accumulate([v], "bc"),
            lambda v: accumulate([(v, "bc")], "bc"),
            lambda v: accumulate([(np.ones((2, 3)), v)], "bc"),
            lambda v: accumulate([(np.ones((2, 3)), "bc")], v),
            lambda v: accumulate([(np.ones((2, 3)), "bc")], "bc", dtype=v),
            lambda v: accumulate([(np.ones((2, 3)), "bc")], "bc", out=v),
            lambda v: accumulate([(np.ones((2, 6)), "b(ch)")], "bch", c=v),
            lambda v: layoutkit.ArraySpec(v, (2, 3), "f4"),
            lambda v: layoutkit.ArraySpec("bc", v, "f4"),
            lambda v: layoutkit.ArraySpec("bc", (2, 3), v),
            lambda v: layoutkit.Converter("bc->cb").backward(v),
            lambda v: layoutkit.Converter("bc->cb").backward(np.ones((3, 2), "f4"), like=v),
            lambda v: layoutkit.Converter("bc->cb").inverse(v),
            lambda v: layoutkit.collate(v, "hwc->bchw"),
            lambda v: layoutkit.collate([X[0], v], "hwc->bchw"),
            lambda v: layoutkit.collate(X, "bhwc->bchw", indices=v),
        ):
            assert_own_error(lambda run=run, v=odd: run(v))


@pytest.mark.parametrize("side", [2**31, 2**55, 2**61, 2**63, 10**400])
def test_a_short_side_has_a_limit(side):
    with pytest.raises(ArgumentError, match="a whole number from 1 to 2147483647"):
        layoutkit.Collator("hwc->bchw", **RESIZED, short_side=side)


class Clearing:
    """An argument that empties the list of samples while it is read."""

    def __init__(self, samples, value):
        self.samples, self.value = samples, value

    def __array__(self, *args, **keywords):
        self.samples.clear()
        return np.array(self.value)


@pytest.mark.parametrize("resize", [None, "nearest", "bilinear"])
def test_an_argument_that_changes_the_list_of_samples(resize):
    collator = layoutkit.Collator("hwc->bchw", h=2, w=2, resize=resize, fill=0)
    name, value = ("offset", [0, 0]) if resize is None else ("crop", [2, 2])
    wanted = collator([X[0], X[0]], **{name: {"w": value}})
    samples = [X[0].copy(), X[0].copy()]
    y = collator(samples, **{name: {"w": Clearing(samples, value)}})
    assert samples == []
    np.testing.assert_array_equal(y, wanted)
