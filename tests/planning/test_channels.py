"""`channels=`: the result equals a conversion of the selected channels, in any order."""

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import ArraySpec, Converter, convert, plan
from layoutkit.errors import ArgumentError, PatternError, ShapeError
from layoutkit.planning.loops import Loop, SourcePixel, find_source_pixel
from tests.helpers.arrays_of import BF16, assert_same, random_array
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(2)

RNG = np.random.default_rng(0)
SIZES = {"b": 2, "h": 5, "w": 40}
ORDERS = [(0,), (2,), (0, 0, 0), (2, 1, 0), (0, 2, 1), (1, 2), (2, 0), (0, 1, 2), (2, 1, 0, 0)]
# If the channels stay innermost, each order needs a kernel: repeated, reversed, fewer, more.
SHUFFLED = {3: [(0,), (0, 0, 0), (2, 1, 0), (1, 2), (2, 1, 0, 0)], 4: [(2,), (0, 2, 1), (2, 0)]}
FORMULA = {"dtype": "float32", "scale": 0.5, "std": (1.0, 2.0, 4.0)}


def array(layout, channels, dtype="u1"):
    sizes = SIZES | {"c": channels}
    return random_array(RNG, tuple(sizes[axis] for axis in layout), dtype)


def taken(x, layout, order):
    return np.ascontiguousarray(np.take(x, order, layout.index("c")))


@pytest.mark.budget(1)
@pytest.mark.parametrize("channels", [3, 4, 6])
@pytest.mark.parametrize(
    "pattern", ["bhwc->bchw", "bchw->bhwc", "bhwc->bhwc", "bchw->bchw", "chwb->bhwc", "bhwc->bf"]
)
def test_it_is_the_conversion_of_these_channels(pattern, channels):
    left = pattern.partition("-")[0]
    x = array(left, channels)
    orders = SHUFFLED.get(channels, ORDERS) if pattern == "bhwc->bhwc" else ORDERS
    for order in [*orders, tuple(range(channels)), tuple(range(channels))[::-1]]:
        few = taken(x, left, order)
        assert_same(convert(x, pattern, channels=order), reference_convert(few, pattern))
        if order in [(2, 1, 0), (0, 1, 2)]:  # each order needs another kernel for a formula
            to = Converter(pattern, channels=order, **FORMULA)
            assert_same(to(x), convert(few, pattern, **FORMULA))
            backward = to(x[:, :, ::-1]), convert(few[:, :, ::-1], pattern, **FORMULA)
            assert_same(*backward)
            assert_same(to(np.asfortranarray(x)), to(x))


SHUFFLES = [(3, (2, 1, 0)), (4, (2, 1, 0, 3)), (4, (2, 0)), (2, (1, 0, 0, 1))]


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("dtype", "shuffles"),
    [("u1", SHUFFLES), ("u2", SHUFFLES[::3]), (BF16, SHUFFLES[::3]), ("f4", SHUFFLES[:2]),
     ("f8", SHUFFLES[1:3]), ("c16", SHUFFLES[2:])],
)  # fmt: skip
@pytest.mark.parametrize("width", [3, 33, 130])
def test_pixels_are_shuffled_in_registers(dtype, shuffles, width):
    for channels, order in shuffles:
        x = random_array(RNG, (2, 3, width, channels), dtype)
        most = dtype == "u1" or order == shuffles[-1][1]  # reversed pixels need other kernels
        backward = [x[:, :, ::-1]] if most else []
        for seen in (x, *backward, x[:, ::-1], x[:, :, 1:]):
            expected = reference_convert(np.ascontiguousarray(seen[..., list(order)]), "bhwc->bhwc")
            assert_same(convert(seen, "bhwc->bhwc", channels=order), expected)


@pytest.mark.parametrize("itemsize", [3, 6, 12, 24])
@pytest.mark.parametrize("pattern", ["bhwc->bhwc", "bhwc->bchw", "bchw->bhwc"])
def test_channels_of_structs_of_any_size(pattern, itemsize):
    """No register holds a whole number of these items."""
    layout = pattern.partition("-")[0]
    record = np.dtype([("field", "u1", itemsize)])
    x = array(layout, 3, f"V{itemsize}").view(record)
    for order in [(2, 1, 0), (1, 0), (2, 0, 0, 1)]:
        for seen in (x, x[:, :, ::-1], x[..., ::-1]):
            expected = reference_convert(taken(seen, layout, order), pattern)
            assert convert(seen, pattern, channels=order).tobytes() == expected.tobytes()


@pytest.mark.budget(1)
@pytest.mark.parametrize("width", [224, 200])  # rows of whole cache lines, and other rows
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->bhwc"])
def test_large_results_go_past_the_caches(pattern, width):
    x = random_array(RNG, (9, 224, width, 4), "u1")
    for order in [(2, 1, 0), (0, 1, 2), (2, 1, 0, 3)][: 3 if width == 224 else 1]:
        backward = [x[:, :, ::-1]] if order != (0, 1, 2) else []
        for seen in (x, *backward):
            few = np.ascontiguousarray(seen[..., list(order)])
            assert_same(convert(seen, pattern, channels=order), convert(few, pattern))


@pytest.mark.budget(0)
@given(
    count=st.integers(1, 7),
    data=st.data(),
    pattern=st.sampled_from(["bhwc->bchw", "bchw->bhwc", "b(hwc)->bhwc", "bwch->(bh)wc"]),
)
def test_any_order_of_any_number(count, data, pattern):
    order = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6))
    left = "bhwc" if "(hwc)" in pattern else pattern.partition("-")[0]
    x = array(left, count)
    few, sizes = taken(x, left, order), {}
    if "(hwc)" in pattern:
        x, few = x.reshape(2, -1), few.reshape(2, -1)
        sizes = {"h": SIZES["h"], "w": SIZES["w"]}
    assert_same(convert(x, pattern, channels=order, **sizes), convert(few, pattern, **sizes))


def test_one_channel_may_be_dropped():
    x = array("bhwc", 3)
    assert_same(convert(x, "bhwc->bhw", channels=(1,)), np.ascontiguousarray(x[..., 1]))


def test_nothing_moves_where_all_are_taken_in_their_order():
    x = array("bhwc", 3)
    assert convert(x, "bhwc->bhwc", channels=(0, 1, 2)) is x
    with pytest.raises(ArgumentError, match="copy=False"):
        convert(x, "bhwc->bhwc", channels=(2, 1, 0), copy=False)
    assert convert(x[..., :0, :], "bhwc->bchw", channels=(2, 1, 0)).shape == (2, 3, 5, 0)


@pytest.mark.budget(0)
@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1), (1, 1)])
def test_beside_other_keywords(order):
    x = array("bhwc", 3)
    few = taken(x, "bhwc", order)
    out = np.empty((2, len(order), 5, 40), np.float32)
    assert convert(x, "bhwc->bchw", channels=order, dtype="float32", out=out) is out
    assert_same(out, convert(few, "bhwc->bchw", dtype="float32"))
    made = convert(x, "bhwc->bchw", channels=order, memory="bhwc", threads=2)
    assert made.strides[1] == 1
    assert_same(np.ascontiguousarray(made), convert(few, "bhwc->bchw"))
    larger = {"pad_to": {"h": 8, "w": 48}}
    assert_same(
        convert(x, "bhwc->bchw", channels=order, fill=[7, 8, 9], **larger),
        convert(few, "bhwc->bchw", fill=[7 + at for at in order], **larger),
    )
    swapped = x.astype(">f8")
    assert_same(
        convert(swapped, "bhwc->bchw", channels=order, dtype="int16", casting="unsafe"),
        convert(few, "bhwc->bchw").astype("int16"),
    )


# ---- gradients and inverses --------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "order"),
    [
        *product(["bhwc->bchw", "bchw->bhwc"], [(0,), (2, 1, 0), (0, 2, 1), (0, 0, 2), (2, 2)]),
        *product(["bhwc->bf"], [(0,), (0, 2, 1), (0, 0, 2)]),
    ],
)
def test_gradients_of_channels_are_summed(pattern, order):
    left = pattern.partition("-")[0]
    x = array(left, 3, "f4")
    std = tuple(float(1 + n) for n in range(len(order)))
    to = Converter(pattern, channels=order, scale=0.5, std=std)
    grad = random_array(RNG, to(x).shape, "f4")
    few = taken(x, left, order)
    back = Converter(pattern, scale=0.5, std=std).backward(grad, like=few)
    expected = np.zeros_like(x)
    axis = left.index("c")
    for place, channel in enumerate(order):
        np.moveaxis(expected, axis, 0)[channel] += np.moveaxis(back, axis, 0)[place]
    np.testing.assert_allclose(to.backward(grad, like=x), expected, rtol=1e-6)
    out = np.empty_like(x)
    assert to.backward(grad, like=x, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_gradients_know_clip_windows_and_small_floats():
    x = array("bhwc", 3, "f4")
    to = Converter("bhwc->bchw", channels=(1, 1), clip=(0, None), pad_to={"h": 8})
    grad = RNG.standard_normal(to(x).shape).astype(np.float32)
    inside = grad[:, :, 2:7].sum(axis=1)
    expected = np.zeros_like(x)
    expected[..., 1] = np.where(x[..., 1] < 0, 0, inside)
    np.testing.assert_allclose(to.backward(grad, like=x), expected, rtol=1e-6)
    ones = np.full((1, 1000, 1, 1), 0.001, BF16)
    summed = Converter("bhwc->bchw", channels=(0,) * 1000).backward(
        ones.reshape(1, 1000, 1, 1), like=np.zeros((1, 1, 1, 1), BF16)
    )
    assert summed.dtype == BF16  # summed in float32: a bfloat16 sum would stop at 0.25
    assert float(summed.item()) == pytest.approx(1, rel=0.01)


def test_the_inverse_takes_them_back():
    x = array("bhwc", 3)
    for order in [(2, 1, 0), (1, 2, 0)]:
        mean = (0.1, 0.2, 0.3)
        to = Converter("bhwc->bchw", channels=order, scale=1 / 255, mean=mean, std=mean)
        assert_same(to.inverse("uint8")(to(x)), x)
    folded = Converter("bhwc->bf", channels=(1, 2, 0), h=5, w=40, c=3)
    assert_same(folded.inverse()(folded(x)), x)
    with pytest.raises(ArgumentError, match=r"not a permutation.*no inverse"):
        Converter("bhwc->bchw", channels=(0, 0, 0)).inverse()


# ---- arguments ---------------------------------------------------------------------------


def test_it_is_part_of_what_a_converter_is():
    to = Converter("bhwc->bchw", channels=[2, 1, 0])
    assert to.keywords == {"channels": (2, 1, 0)}
    assert to == Converter("bhwc->bchw", channels=np.array([2, 1, 0])) != Converter("bhwc->bchw")
    assert repr(to) == 'Converter("bhwc->bchw", channels=(2, 1, 0))'
    assert to == pickle.loads(pickle.dumps(to)) == copy.deepcopy(to)
    assert to.target_shape((2, 4, 5, 4)) == (2, 3, 4, 5)
    spec = ArraySpec("bhwc", (2, 4, 5, 4), "uint8")
    assert to.infer_spec(spec).shape == (2, 3, 4, 5)


def test_a_plan_says_it():
    shape = (64, 224, 224, 4)
    found = plan("bhwc->bchw", shape, "uint8", channels=(2, 1, 0), dtype="float32")
    assert found.kernel == "split"
    assert "channels  (2, 1, 0) of 4" in str(found)
    assert found.source.shape == shape
    assert plan("bhwc->bhwc", shape, "uint8", channels=(2, 1, 0)).kernel == "shuffle"
    assert plan("bchw->bhwc", (2, 4, 9, 9), channels=(2, 1, 0, 3)).kernel == "merge"
    first = plan("bhwc->bchw", (2, 9, 9, 64), channels=(5, 1, 2))
    assert "before    NumPy copies these channels" in str(first)
    on_gpu = plan("bhwc->bchw", shape, "uint8", channels=(0, 2, 1), device="cuda")
    assert on_gpu.kernel == "split"
    assert "before" not in str(on_gpu)


@pytest.mark.parametrize("channels", [(), (-1,), (0, -1), (1.5,), ("a",), "rgb", 2, (True,), [[0]]])
def test_what_is_no_list_of_channels(channels):
    with pytest.raises(ArgumentError, match=r"channels=.*in the order of the result"):
        Converter("bhwc->bchw", channels=channels)


def test_what_does_not_fit_x():
    x = array("bhwc", 3)
    with pytest.raises(ShapeError, match="selects channel 3, but x has the channels 0 to 2"):
        convert(x, "bhwc->bchw", channels=(0, 3))
    with pytest.raises(ShapeError, match="selects channel 3, but x has the channels 0 to 2"):
        convert(x.reshape(2, -1), "b(hwc)->bchw", h=5, w=40, channels=(0, 3))
    with pytest.raises(ShapeError, match="c=4 was given, but axis c has size 3"):
        convert(x, "bhwc->bchw", channels=(0, 1), c=4)
    with pytest.raises(PatternError, match="there is no axis c"):
        convert(x, "bhwk->bkhw", channels=(0,))
    with pytest.raises(ShapeError, match="mean has 3 values and axis c has size 1"):
        convert(x, "bhwc->bchw", channels=(0,), mean=(1, 2, 3))
    with pytest.raises(ShapeError, match="fill has 2 values, but axis c has size 3"):
        convert(x, "bhwc->bchw", channels=(0, 1), pad_to={"h": 9}, fill=(1, 2))
    with pytest.raises(ShapeError, match="axes"):
        convert(x[0], "bhwc->bchw", channels=(0,))
    with pytest.raises(ArgumentError, match="like=x"):
        Converter("bhwc->bchw", channels=(0, 0)).backward(np.ones((2, 2, 5, 40), np.float32))


@pytest.mark.budget(4)
@pytest.mark.parametrize("order", [(2, 0), (2, 1, 0)])
@pytest.mark.parametrize("more", [-1, 1])
def test_the_number_of_constants_is_checked_in_both_directions(order, more):
    x = array("bhwc", 3, "f4")
    count = len(order) + more
    to = Converter("bhwc->bchw", channels=order, std=[2.0] * count)
    words = f"std has {count} values and axis c has size {len(order)}"
    with pytest.raises(ShapeError, match=words):
        to(x)
    with pytest.raises(ShapeError, match=words):
        to.backward(np.ones((2, len(order), 5, 40), np.float32), like=x)


@pytest.mark.budget(4)
@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("axis", "hc")
def test_gradients_of_a_cycle_of_channels_with_constants(order, axis):
    """A cycle is not its own inverse; constants along an axis as long as c keep their order."""
    x = random_array(RNG, (2, 3, 4, 3), "f4")
    std = [1.0, 2.0, 4.0]
    to = Converter("bhwc->bchw", channels=order, std={axis: std})
    grad = random_array(RNG, (2, 3, 3, 4), "f4")
    scaled = grad / np.array(std, "f4").reshape([-1 if name == axis else 1 for name in "bchw"])
    expected = np.zeros_like(x)
    expected[..., list(order)] = scaled.transpose(0, 2, 3, 1)
    for options in ({}, {"like": x}):
        np.testing.assert_allclose(to.backward(grad, **options), expected, rtol=1e-6)
    back = to.inverse()(to(x))
    np.testing.assert_allclose(back, x, rtol=1e-5)


def test_pixels_that_are_far_apart_have_few_positions():
    """Only channels have positions, not all items that would fit between two pixels."""
    apart = 1 << 62
    assert find_source_pixel(Loop(3, 4, 4), Loop(5, apart, 12), 4) == SourcePixel(
        apart // 4, (0, 1, 2)
    )
    assert find_source_pixel(Loop(3, 4, 4), Loop(5, 12, 12), 4) == SourcePixel(3)
