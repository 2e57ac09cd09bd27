"""Windows that are moved by position, beside NumPy's indexing."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import Collator, convert
from layoutkit.kernels.cpu import collate_launch, launch

from ..helpers.arrays_of import COMPLEX32, LAYINGS, MOVED, assert_same, laid, random_array

DTYPES = [*MOVED, *COMPLEX32, ml_dtypes.float8_e4m3fn, "complex64", "bool", "int8", "float64"]
LEFTS = ["hw", "hwc", "chw", "wch", "thwc", "hcw"]
SIZES = st.integers(1, 9)


def positions(size, window, begin, extent, is_flipped):
    """Return the index in a sample of each position of a window; out of range: it is filled."""
    index = begin + (2 * np.arange(window) + 1) * extent // (2 * window)
    index[(index < 0) | (index >= size)] = size
    return index[::-1] if is_flipped else index


def window_of(x, axes, fill, channel):
    """Return the window of a sample whose axes have the given indices; `fill` by channel."""
    is_outside = np.zeros([len(index) for index in axes], bool)
    for axis, (index, size) in enumerate(zip(axes, x.shape, strict=True)):
        is_outside |= (index == size).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    inside = x[np.ix_(*(np.minimum(i, n - 1) for i, n in zip(axes, x.shape, strict=True)))]
    if fill is None:
        return inside
    if channel >= 0:
        fill = fill[axes[channel]].reshape([-1 if a == channel else 1 for a in range(x.ndim)])
    return np.where(is_outside, fill, inside)


@st.composite
def cases(draw):
    """Return options of a Collator, the arguments of a call, samples, and their windows."""
    left = draw(st.sampled_from(LEFTS))
    count = draw(st.integers(1, 3))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    is_filled = dtype.names is None and dtype.kind not in "Mm"
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    resize = draw(st.sampled_from(["nearest", None] if is_filled else ["nearest"]))
    channels = draw(st.sampled_from([None, (0, 0, 1), (2, 0, 3)])) if "c" in left else None
    options = {x: draw(SIZES | st.sampled_from([1, 40])) for x in "hw"}
    common = {x: draw(st.integers(1, 5)) for x in "ct"}
    common["c"] = common["c"] if channels is None else 1 + max(channels)
    fill = rng.integers(0, 2, common["c"] if "c" in left else 1)
    flip = {x: rng.random(count) < 0.5 for x in draw(st.sets(st.sampled_from(left)))}
    call = {"flip": flip}
    if is_filled:
        call["offset"] = {x: rng.integers(-3, 6, count) for x in "hw"}
        options["fill"] = tuple(fill.tolist())
    if is_filled and resize:
        call["crop"] = {x: rng.integers(1, 9, count) for x in "hw"}
    samples, windows = [], []
    for i in range(count):
        shape = [common.get(x) or draw(SIZES) for x in left]
        x = laid(random_array(rng, shape, dtype), draw(st.sampled_from(LAYINGS)))
        axes = []
        for name, size in zip(left, shape, strict=True):
            window = options.get(name, size)
            begin = call["offset"][name][i] if is_filled and name in "hw" else 0
            extent = call["crop"][name][i] if "crop" in call and name in "hw" else size
            is_flipped = name in flip and flip[name][i]
            index = positions(size, window, begin, extent if resize else window, is_flipped)
            if name == "c" and channels is not None:
                index = np.array(channels)[:: -1 if is_flipped else 1]
            axes.append(index)
        samples.append(x)
        values = fill.astype(dtype) if is_filled else None
        windows.append(window_of(x, axes, values, left.find("c")))
    options |= {"resize": resize, "channels": channels}
    return left, options, call, samples, np.stack(windows)


@pytest.mark.budget(0)
@pytest.mark.parametrize("box_bytes", [1, 64, 1 << 15])
@given(case=cases(), data=st.data())
def test_windows_equal_indexing(case, data, box_bytes):
    left, options, call, samples, windows = case
    right = "".join(data.draw(st.permutations("b" + left)))
    threads = data.draw(st.sampled_from([1, 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collate_launch, "BOX_BYTES", box_bytes)
        patch.setattr(collate_launch, "RUN", data.draw(st.sampled_from([1, 8, 2048])))
        patch.setattr(launch, "STREAM_BYTES", data.draw(st.sampled_from([0, 1 << 40])))
        collator = Collator(f"{left}->{right}", **options, threads=threads)
        made = collator(samples, **call)
        again = collator(samples, **call, out=np.empty_like(made))
    expected = windows.transpose([("b" + left).index(x) for x in right])
    assert_same(made, np.ascontiguousarray(expected).astype(made.dtype, copy=False))
    assert_same(again, made)


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float32", "bool"])
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->bhwc"])
def test_moved_windows_are_converted_in_the_same_pass(pattern, dtype):
    x = np.random.default_rng(0).integers(0, 2, (90, 70, 3)).astype(dtype)
    index = [positions(n, m, 0, n, False) for n, m in ((90, 200), (70, 150))]
    formula = {"dtype": "float32", "scale": 0.5, "mean": (1, 2, 3), "std": (1, 2, 4)}
    made = Collator(pattern, h=200, w=150, resize="nearest", **formula)([x, x])
    windows = np.stack([x[np.ix_(*index)]] * 2)
    assert_same(made, convert(windows, f"b{pattern}", **formula))


@pytest.mark.parametrize(("size", "threads"), [(1, 1), (7, 2), (4099, 1), (4099, 2)])
def test_long_axes_are_cut_into_boxes(size, threads):
    x = np.arange(3 * size).reshape(size, 3)
    for pattern in ("tc->btc", "tc->bct"):
        made = Collator(pattern, t=10_000, resize="nearest", threads=threads)([x])
        expected = x[positions(size, 10_000, 0, size, False)]
        assert_same(made[0], expected.T if pattern == "tc->bct" else expected)


def test_samples_of_other_sizes_have_other_positions():
    collator = Collator("hw->bhw", h=5, w=4, resize="nearest")
    for shape in ((10, 9), (10, 9), (3, 9), (10, 9)):
        x = np.arange(shape[0] * shape[1]).reshape(shape)
        rows, columns = (positions(n, m, 0, n, False) for n, m in zip(shape, (5, 4), strict=True))
        assert_same(collator([x])[0], x[rows][:, columns])
