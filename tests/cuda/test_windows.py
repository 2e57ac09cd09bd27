"""The kernel that collates, under sanitizers, compared with the definition in NumPy."""

import numpy as np
import pytest

from layoutkit import collate
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import BF16, assert_same, random_array
from tests.helpers.cuda_moves import (
    collated,
    packed,
    placed,
    planned_collate,
    planned_in_place,
    together,
)
from tests.helpers.reference import reference_convert
from tests.helpers.resizing import window as resized_window

pytestmark = [pytest.mark.budget(3), cuda_shim.needs_compiler]

RNG = np.random.default_rng(0)


def cut(x, sizes, starts, flips, fill, channels, channel):
    """Return the window of a sample, element by element along each axis."""
    fill = np.asarray(fill, x.dtype)
    if channels is not None:
        x = x.take(channels, channel)
        fill = fill[list(channels)] if fill.ndim else fill
    if fill.ndim:
        fill = fill.reshape([-1 if axis == channel else 1 for axis in range(x.ndim)])
    for axis, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        positions = np.arange(start, start + size)
        inside = (positions >= 0) & (positions < x.shape[axis])
        x = x.take(positions.clip(0, x.shape[axis] - 1), axis)
        x = np.where(inside.reshape([-1 if a == axis else 1 for a in range(x.ndim)]), x, fill)
    return np.flip(x, [axis for axis, flag in enumerate(flips) if flag])


def cropped(samples, pattern, *, offset=None, flip=None, fill=0, channels=None, **options):
    """Return the batch by the definition; `options` are window sizes and keywords of `convert`."""
    left = pattern.partition("->")[0]
    axes = {name: axis for axis, name in enumerate(left)}
    windows = []
    for number, x in enumerate(samples):
        shape = list(x.shape)
        if channels is not None:
            shape[axes["c"]] = len(channels)
        sizes = [options.get(name, n) for name, n in zip(left, shape, strict=True)]
        starts = [round((n - size) / 2) for n, size in zip(shape, sizes, strict=True)]
        for name, values in (offset or {}).items():
            starts[axes[name]] = values[number]
        flips = [bool((flip or {}).get(name, [0] * len(samples))[number]) for name in left]
        windows.append(cut(x, sizes, starts, flips, fill, channels, axes.get("c")))
    keywords = {name: value for name, value in options.items() if name not in axes}
    return reference_convert(np.stack(windows), f"b{pattern}", **keywords)


def samples_of(shapes, dtype="u1"):
    if np.dtype(dtype).kind == "c":
        return [random_array(RNG, shape, dtype) for shape in shapes]
    return [RNG.integers(0, 100, shape).astype(dtype) for shape in shapes]


PHOTOS = [(20, 37, 3), (33, 41, 3), (18, 70, 3)]
EXACT = {"mean": [0.5, 1.5, 2.5], "std": [0.25, 0.5, 1.0]}  # results are exact with any rounding
FLIPS = {"w": [True, False, True], "h": [False, True, True]}
OUTSIDE = {"h": [-3, 20, 17], "w": [30, -5, 2]}
CASES = {
    "center": {},
    "offset": {"offset": {"h": [0, 16, 1], "w": [4, 7, 37]}},
    "flip": {"flip": FLIPS},
    "channels": {"channels": (2, 0, 0, 1), "flip": {"c": [True, False, True]}},
    "reversed channels": {"channels": (2, 1, 0)},
    "one channel twice": {"channels": (1, 1)},
    "fill": {"fill": 7, "offset": OUTSIDE, "flip": FLIPS},
    "fill of channels": {"fill": (1, 2, 3), "offset": OUTSIDE, "channels": (1, 2)},
    "far outside": {"fill": 5, "offset": {"h": [-100, 100, 0], "w": [0, 0, -100]}},
}
CALL = ("offset", "flip")


def check(samples, pattern, case, how=None, shift=0, **options):
    call = {name: case[name] for name in CALL if name in case}
    fixed = {name: case[name] for name in case if name not in CALL}
    found = collated(samples, pattern, how=how, shift=shift, call=call, **fixed, **options)
    assert_same(found, cropped(samples, pattern, **case, **options))


@pytest.mark.budget(1, all=18)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("pattern", "keywords"),
    [
        ("hwc->bchw", {"dtype": "f4"}), ("hwc->bhwc", {}), ("hwc->chwb", {"dtype": "f4"}),
        ("hwc->bchw", {"dtype": "u1"}), ("hwc->chwb", {"dtype": BF16}), ("hwc->wbch", {}),
    ],
)  # fmt: skip
def test_windows_by_the_definition(name, pattern, keywords):
    case = CASES[name]
    formula = EXACT if keywords.get("dtype") == "f4" and "channels" not in case else {}
    for order in cuda_shim.ORDERS:
        how = {"order": order, "poison": 0xFF, "seed": 3}
        check(samples_of(PHOTOS), pattern, case, how, 3, h=17, w=33, **keywords, **formula)


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
@pytest.mark.parametrize("shift", [0, 1, 2, 8])
def test_items_at_any_address(dtype, shift):
    check(samples_of(PHOTOS, dtype), "hwc->bchw", {}, None, shift, h=16, w=32)


@pytest.mark.parametrize(("shift", "step"), [(1, 0), (0, 1)])
def test_items_of_the_second_sample_are_unaligned(shift, step):
    """Test a sample whose address or row stride is not a multiple of the item size."""
    samples = samples_of([(9, 12, 3)] * 2, "f4")
    raw = placed((2 * 9 * 148,), "u1")
    views = [
        np.ndarray(x.shape, x.dtype, raw, 9 * 148 * n + n * shift, (144 + n * step, 12, 4))
        for n, x in enumerate(samples)
    ]
    for view, x in zip(views, samples, strict=True):
        view[...] = x
    launch, out, sources, shifts = planned_in_place(raw, views, "hwc->bchw", h=7, w=8)
    cuda_shim.run(launch, out, sources, shifts=shifts)
    assert_same(out, cropped(samples, "hwc->bchw", h=7, w=8))


@pytest.mark.budget(1, all=12)
@pytest.mark.parametrize("width", [1, 2, 63, 64, 65, 255, 256, 257, 513])
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->bhwc", "hwc->chwb", "chw->bchw"])
def test_widths_about_the_length_of_a_tile(width, pattern):
    shape = (3, 9, width + 2) if pattern[0] == "c" else (9, width + 2, 3)
    check(samples_of([shape] * 2), pattern, {"offset": {"w": [0, 2]}}, w=width)


@pytest.mark.parametrize("count", [1, 63, 64, 65])
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_samples_about_the_lines_of_a_tile(count, dtype):
    check(samples_of([(9, 11, 3)] * count), "hwc->chwb", {}, h=8, w=7, dtype=dtype)


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("pattern", "shape", "sizes"),
    [
        ("hw->bwh", (12, 17), {"h": 9, "w": 17}), ("f->fb", (40,), {"f": 33}),
        ("thwc->btchw", (3, 8, 9, 2), {"h": 5, "t": 2}), ("wch->bhwc", (12, 3, 9), {"w": 7}),
        ("hwc->bchw", (9, 12, 64), {"h": 8}), ("hwc->bhwc", (9, 12, 9), {"w": 8}),
        ("hwc->cwhb", (5, 1, 1), {"h": 3}), ("vxyzuc->bczyxvu", (2, 3, 2, 5, 3, 2), {"z": 3}),
    ],
)  # fmt: skip
def test_any_number_of_axes(pattern, shape, sizes):
    for dtype in ("u2", "f8"):
        check(samples_of([shape] * 5, dtype), pattern, {}, **sizes)


@pytest.mark.parametrize("channels", [3, 12])
def test_values_of_channels_that_stay_side_by_side(channels):
    """Test fill values and coefficients that differ between the items of a word."""
    values = tuple(range(1, channels + 1))
    case = {"fill": values, "offset": {"h": [-2, 3], "w": [4, -3]}}
    samples = samples_of([(9, 11, channels)] * 2)
    check(samples, "hwc->bhwc", case, h=8, w=12, dtype="f4", mean=values)


@pytest.mark.budget(0)
def test_strides_of_samples_and_of_the_output():
    raw, (x,) = together([RNG.integers(0, 100, (20, 31, 3), np.uint8)], 5)
    for view in (x[::-1], x[:, ::-2], x[..., ::-1], x.transpose(1, 0, 2), x[:, 3:20]):
        for step in (1, 2, -1):
            out = np.zeros((2, 3, 13, 30), "f4")[..., ::step][..., :12]
            options = {"h": 13, "w": 12, "dtype": "f4"}
            launch, _, sources, shifts = planned_in_place(
                raw, [view, view], "hwc->bchw", out, **options
            )
            cuda_shim.run(launch, out, sources, shifts=shifts)
            np.testing.assert_array_equal(out, cropped([view, view], "hwc->bchw", **options))


@pytest.mark.parametrize(
    ("pattern", "width", "steps"),
    [("hwc->bchw", 16, (385, 128, 16, 1)), ("hwc->bhwc", 33, (896, 112, 3, 1))],
)
def test_gaps_of_the_output_are_not_written(pattern, width, steps):
    """Test samples that begin at any address, and rows that end within a word."""
    samples = samples_of([(9, 40, 3)] * 3)
    wanted = cropped(samples, pattern, h=8, w=width)
    room = placed((3 * steps[0],), "u1")
    expected = room.copy()
    np.lib.stride_tricks.as_strided(expected, wanted.shape, steps)[...] = wanted
    out = np.lib.stride_tricks.as_strided(room, wanted.shape, steps)
    launch, _, sources, shifts = planned_collate(samples, pattern, out, h=8, w=width)
    cuda_shim.run(launch, out, sources, shifts=shifts)
    assert_same(room, expected)


# ---- resized -----------------------------------------------------------------------------


def resized(samples, axes, name, sizes, **call):
    windows = [
        resized_window(x, dict(zip(axes, sizes, strict=True)), name, **call) for x in samples
    ]
    return np.stack(windows)


@pytest.mark.budget(1, all=25)
@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic", "lanczos", "area"])
@pytest.mark.parametrize(
    ("shape", "size"),
    [((20, 31, 3), (17, 65)), ((300, 40, 3), (10, 64)), ((7, 1100, 3), (5, 36)),
     ((1, 1, 3), (4, 5)), ((40, 50, 3), (1, 1))],
)  # fmt: skip
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->bhwc", "hwc->chwb"])
def test_resized_windows_by_the_definition(name, shape, size, pattern):
    samples = samples_of([shape, shape])
    keywords = {"h": size[0], "w": size[1], "resize": name, "dtype": "f4"}
    wanted = reference_convert(resized(samples, (0, 1), name, size), f"b{pattern}")
    for order in ("reverse", "random"):
        found = collated(
            samples, pattern, how={"order": order, "poison": 0xFF}, shift=1, **keywords
        )
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3)


@pytest.mark.budget(0)
def test_sums_do_not_depend_on_the_tile():
    """Test that all bits are equal in all layouts, alone and beside other samples."""
    samples = samples_of([(50, 700, 3), (31, 44, 3)])
    keywords = {"h": 9, "w": 66, "resize": "bicubic", "dtype": "f4"}
    planes = collated(samples, "hwc->bchw", **keywords)
    pixels = collated(samples, "hwc->bhwc", **keywords)
    beside = collated(samples[1:] * 17, "hwc->chwb", **keywords)
    assert_same(pixels.transpose(0, 3, 1, 2).copy(), planes)
    assert_same(beside[..., 16].copy(), planes[1])


@pytest.mark.parametrize(
    ("axis", "shape", "size"), [(0, (12, 31, 3), (7, 33)), (1, (3, 1500, 3), (2, 9))]
)
def test_sums_over_reversed_axes_read_only_the_items_of_a_sample(axis, shape, size):
    """Test that words begin within the sample, and that long reversed rows have none."""
    values = samples_of([shape], "f4")[0]
    wanted = reference_convert(resized([values], (0, 1), "bilinear", size), "bhwc->bchw")
    for shift in (0, 4, 8, 12):
        raw, (x,) = together([np.flip(values, axis)], shift)
        launch, out, sources, shifts = planned_in_place(
            raw, [np.flip(x, axis)], "hwc->bchw", h=size[0], w=size[1], resize="bilinear"
        )
        cuda_shim.run(launch, out, sources, shifts=shifts)
        np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-3)


@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_sums_over_several_reversed_axes_read_only_the_items_of_a_sample(axes):
    """Test steps of mixed signs: the first and the last tap are not at the ends of their items."""
    raw = placed((6, 8, 21), np.uint8)
    raw[...] = RNG.integers(0, 256, raw.shape)
    sample = np.flip(raw, axes)
    sizes = {"t": 3, "h": 4, "w": 9, "resize": "area"}
    launch, out, sources, shifts = planned_in_place(raw, [sample], "thw->bthw", **sizes)
    cuda_shim.run(launch, out, sources, shifts=shifts)
    expected = collate([sample], "thw->bthw", **sizes)
    np.testing.assert_allclose(out.astype(int), expected.astype(int), rtol=0, atol=1)


def test_rows_outside_of_a_sample_are_not_those_of_another_channel():
    samples = samples_of([(3, 9, 40)])
    keywords = {"h": 6, "w": 20, "resize": "bilinear", "fill": 3, "dtype": "f4"}
    call = {"crop": {"h": 13}, "offset": {"h": -2}}
    found = collated(samples, "chw->bchw", call=call, **keywords)
    expected = collate(samples, "chw->bchw", **call, **keywords)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)


@pytest.mark.budget(1)
@pytest.mark.parametrize("axes", ["t", "h", "w", "th", "tw", "thw"])
def test_any_axes_are_resized(axes):
    samples = samples_of([(7, 20, 31), (9, 12, 33)] if len(axes) == 3 else [(7, 20, 31)] * 2, "f4")
    sizes = [5, 9, 12][: len(axes)]
    keywords = dict(zip(axes, sizes, strict=True))
    wanted = resized(samples, ["thw".index(axis) for axis in axes], "bilinear", sizes)
    found = collated(samples, "thw->bthw", resize="bilinear", **keywords)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3)


# ---- packed, and without ignored items ------------------------------------------------------

PATCHES = "(hp)(wq)c->(bhw)(cpq)"
PACKINGS = {
    "rows": ("twc->(bt)wc", {}, {}),
    "patches": (
        PATCHES,
        {"p": 2, "q": 3, "dtype": "f4", **EXACT},
        {"flip": {"w": [True, False, True]}},
    ),
    "pixels": ("hwc->(bhw)c", {"resize": "bilinear"}, {"size": [(3, 40), (11, 5), (3, 40)]}),
    "merged": (
        "(hmp)(wnq)c->(bhwmn)(pqc)",
        {"m": 2, "n": 2, "p": 3, "q": 2, "resize": "bicubic", "dtype": "f4"},
        {"size": [(12, 36), (24, 4), (12, 36)], "flip": "w"},
    ),
    "nearest": (
        PATCHES,
        {"p": 2, "q": 3, "resize": "nearest"},
        {"size": [(2, 33), (10, 3), (2, 33)]},
    ),
    "ignored": ("hwc->(bhw)c", {"resize": "area", "ignore": 7, "dtype": "f4"}, {"size": (5, 9)}),
}


@pytest.mark.budget(1)
@pytest.mark.parametrize("name", PACKINGS)
def test_packed_windows_are_those_of_the_cpu(name):
    pattern, keywords, call = PACKINGS[name]
    first, second = [(12, 36, 3), (8, 42, 3)] if "t" not in pattern else [(5, 9, 3), (2, 9, 3)]
    samples = samples_of([first, second, first])  # windows of one size are described once
    expected = collate(samples, pattern, **keywords, **call).data
    for order in cuda_shim.ORDERS:
        how = {"order": order, "poison": 0xFF}
        assert_same(packed(samples, pattern, how=how, shift=1, call=call, **keywords), expected)
    assert_same(packed(samples, pattern, how={"mode": "threads"}, call=call, **keywords), expected)


# ---- threads -----------------------------------------------------------------------------


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("shapes", "keywords"),
    [
        ([(12, 40, 3)] * 3, {"h": 9, "w": 32, "dtype": "f4"}),
        ([(12, 900, 3)] * 2, {"h": 9, "w": 20, "resize": "area"}),
    ],
)
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->chwb"])
def test_barriers_order_all_accesses(shapes, keywords, pattern):
    samples = samples_of(shapes)
    wanted = collated(samples, pattern, **keywords)
    assert_same(collated(samples, pattern, how={"mode": "threads"}, **keywords), wanted)


@pytest.mark.budget(0)
def test_only_the_items_of_a_sample_are_read():
    """Test lines that end with partial words; the sanitizer watches both ends of the memory."""
    for shift in range(16):
        check(samples_of([(1, 37, 3)]), "hwc->bchw", {}, None, shift, w=37)
        check(samples_of([(1, 99, 3)]), "hwc->bchw", {}, None, shift, w=99)  # two words a thread
        check(samples_of([(3, 5, 3)]), "hwc->chwb", {}, None, shift, h=3)


def test_a_launch_does_not_depend_on_the_sizes_of_samples():
    """Test that crops of photos of any size run one kernel."""
    one, other = (
        planned_collate(samples_of([shape] * 2), "hwc->bchw", h=9, w=16, resize="bilinear")[0]
        for shape in [(20, 37, 3), (333, 41, 3)]
    )
    assert one.defines == other.defines
