"""The sum of gradients: order, dtypes, layouts and memory."""

import itertools

import numpy as np
import pytest

from layoutkit import ShapeError, accumulate, accumulation
from tests.helpers.arrays_of import BF16, LAYINGS, assert_same, laid
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(5)

RNG = np.random.default_rng(0)
G = [RNG.standard_normal((2, 3, 4, 5)).astype("f4") * 10**n for n in range(4)]  # bchw
LAYOUTS = ["bchw", "bhwc", "chwb", "b(chw)"]
SIZES = {"c": 3, "h": 4, "w": 5}


def parts_of(arrays, layouts):
    return [
        (reference_convert(g, f"bchw->{layout}"), layout)
        for g, layout in zip(arrays, layouts, strict=True)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_from_left_to_right(layout):
    for layouts in (LAYOUTS, LAYOUTS[::-1], ["bchw"] * 4):
        total = accumulate(parts_of(G, layouts), layout, **SIZES)
        wanted = ((G[0] + G[1]) + G[2]) + G[3]
        assert_same(total, reference_convert(wanted, f"bchw->{layout}"))


def test_equal_calls_give_equal_bits():
    parts = [(g, "bchw") for g in G]
    assert_same(accumulate(parts, "bhwc"), accumulate(parts, "bhwc"))


@pytest.mark.parametrize("how", LAYINGS)
def test_parts_of_any_strides(how):
    total = accumulate([(laid(G[0].copy(), how), "bchw"), (G[1], "bchw")], "bhwc")
    wanted = np.asarray(laid(G[0].copy(), how)) + G[1]
    np.testing.assert_array_equal(total, wanted.transpose(0, 2, 3, 1))


def test_f_stands_for_the_axes_of_the_sum():
    flat = G[0].reshape(2, 60)
    total = accumulate([(flat, "b(chw)"), (G[1], "bchw")], "bchw", h=4, w=5)
    np.testing.assert_array_equal(total, G[0] + G[1])
    back = accumulate([(flat, "bf"), (G[1], "bchw")], "bchw", f=60, h=4, w=5)
    np.testing.assert_array_equal(back, total)


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("dtypes", "wanted"),
    [
        (["f4"], "f4"),
        (["f2", "f4"], "f4"),
        (["f4", "f8"], "f8"),
        ([BF16, BF16], BF16),
        ([BF16, "f2"], "f4"),
        ([BF16, "i8"], "f8"),
        ([BF16, "u1"], BF16),
        ([BF16, "f8"], "f8"),
        (["i1", "u1"], "i2"),
        (["u8", "i8"], "f8"),
        (["f4", "c8"], "c8"),
        ([BF16, "c8"], "c8"),
        ([">f4"], "f4"),
        ([">i2", "i2"], "i2"),
        (["f8", "c8"], "c16"),
        (["float8_e5m2"], "float8_e5m2"),
    ],
)
def test_promotion(dtypes, wanted):
    arrays = [np.arange(6).reshape(2, 3).astype(d) for d in dtypes]
    for order in itertools.permutations(arrays):
        total = accumulate([(a, "bc") for a in order], "bc")
        assert_same(total, (np.arange(6).reshape(2, 3) * len(dtypes)).astype(wanted))


def test_narrow_floats_are_added_in_float32():
    parts = [(np.full(3, v, BF16), "b") for v in (256, 1, 1, 1, 1)]
    assert accumulate(parts, "b").astype("f4").tolist() == [260, 260, 260]  # not 256
    assert accumulate(parts, "b", dtype="f2").tolist() == [260, 260, 260]


def test_what_is_added_in_float64():
    big = np.full(2, 2.0**24, "f4")
    one = np.ones(2, "f4")
    assert accumulate([(big, "b"), (one, "b")], "b").tolist() == [2.0**24] * 2
    assert accumulate([(big, "b"), (one, "b")], "b", dtype="f8").tolist() == [2.0**24 + 1] * 2
    complex_ = accumulate([(big.astype("c8"), "b"), (one, "b")], "b", dtype="c16")
    assert complex_.tolist() == [2.0**24 + 1] * 2


@pytest.mark.budget(1)
@pytest.mark.parametrize("source", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_wide_integers_are_added_in_float64(source, dtype):
    big = np.full(2, 2**31 - 1, source)
    parts = [(big, "b"), (np.full(2, -(2.0**31), "f4").astype(dtype), "b")]
    for pairs in (parts, parts[::-1]):
        assert accumulate(pairs, "b", dtype=dtype).tolist() == [-1, -1]


@pytest.mark.budget(0)
def test_integers_wrap_as_numpys_do():
    for name in ("i1", "u1", "i8", "u8"):
        top = np.full(2, np.iinfo(name).max, name)
        with np.errstate(all="ignore"):
            assert_same(accumulate([(top, "b"), (top, "b")], "b"), top + top)
    wide = accumulate([(np.full(2, 200, "u1"), "b")] * 2, "b", dtype="u2")
    assert wide.tolist() == [400, 400]


def test_the_sum_has_its_own_memory():
    total = accumulate([(G[0], "bchw")], "bchw")
    assert not np.shares_memory(total, G[0])
    assert_same(total, G[0])


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", ">f4"])
@pytest.mark.parametrize("how", ["plain", "backward", "sliced", "unaligned"])
def test_out(dtype, how):
    out = laid(np.zeros((2, 4, 5, 3), dtype), how)
    assert accumulate([(G[0], "bchw"), (G[1], "bchw")], "bhwc", out=out) is out
    wanted = (G[0].astype("f8") + G[1]) if dtype == "f8" else G[0] + G[1]
    np.testing.assert_array_equal(out, wanted.transpose(0, 2, 3, 1).astype(dtype))


def test_parts_are_not_written():
    before = [g.copy() for g in G]
    accumulate([(g, "bchw") for g in G], "bchw")[...] = 0
    for g, was in zip(G, before, strict=True):
        np.testing.assert_array_equal(g, was)


def test_iterators_and_empty_arrays():
    assert accumulate(((g, "bchw") for g in G), "bhwc").shape == (2, 4, 5, 3)
    assert accumulate([(np.zeros((0, 3)), "bc")] * 2, "cb").shape == (3, 0)


def test_a_training_loop_plans_its_sums_once():
    parts = [(np.ones((2, 3, 4), "f4"), "bcw"), (np.ones((2, 4, 3), "f4"), "bwc")]
    accumulate(parts, "bcw")
    before = accumulation._cached.cache_info().misses
    accumulate(parts, "bcw")
    assert accumulation._cached.cache_info().misses == before


def test_a_number_of_arrays_that_is_none_of_its_layouts():
    """Raise for a wrong number of arrays, also after a sum of the right number was cached."""
    add = accumulation.Accumulator(("b",), "b")
    a = np.ones(3)
    b = np.full(3, 2.0)
    out = np.empty(3)
    assert add([a], out) is out
    for arrays, to in (([a, b], None), ([], None), ([], out)):
        with pytest.raises(ShapeError, match=f"{len(arrays)} arrays for 1 layouts"):
            add(arrays, to)
    both = accumulation.Accumulator(("b", "b"), "b")
    assert both([a, b], out) is out
    with pytest.raises(ShapeError, match="3 arrays for 2 layouts"):
        both([a, b, a])
