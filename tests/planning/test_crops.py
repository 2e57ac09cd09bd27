"""Random crops: the distributions of torchvision and MXNet, from counter-based numbers."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from layoutkit import Collator, collate
from layoutkit.data import sampled_batcher
from layoutkit.images.augment import geometry
from layoutkit.images.augment.random import ImageRng
from layoutkit.planning.batch.random import CropAxes, SourcePositions, parse_crops
from tests.helpers.arrays_of import assert_same

MANY = 1500
SHAPES = [(224, 224), (375, 500), (1080, 1920), (640, 480), (10, 1000), (1000, 10), (2, 3), (1, 1)]
BOUNDS = [
    {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)},
    {"scale": (0.3, 1.0), "ratio": (1.0, 1.0)},
    {"scale": (1.0, 1.0), "ratio": (3 / 4, 4 / 3)},
    {"scale": (0.01, 0.05), "ratio": (0.25, 1.5)},
]


def drawn(shape, bounds, seed=0, count=MANY, layout="hwc"):
    """Return the windows (top, left, height, width) that a Collator draws for images of a shape."""
    axis_indices = {name: layout.index(name) for name in layout}
    axes = CropAxes(f"{layout}->bchw", axis_indices, {n: 8 for n in layout if n != "c"}, True)
    options = parse_crops(axes, None, None, bounds, seed)
    sizes = dict(zip("hwc", (*shape, 3), strict=True))
    shapes = np.tile([sizes[name] for name in layout], (count, 1))
    args = options.prepare(axes).draw(shapes, SourcePositions(np.arange(count)), 0)
    return np.stack([args.offset["h"], args.offset["w"], args.crop["h"], args.crop["w"]], 1)


def by_torchvision(rng, shape, bounds):
    """Return a window by the procedure of torchvision.transforms.RandomResizedCrop.get_params."""
    height, width = shape
    low, high = bounds["ratio"]
    for _ in range(10):
        area = height * width * rng.uniform(*bounds["scale"])
        ratio = math.exp(rng.uniform(math.log(low), math.log(high)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    return central(shape, bounds["ratio"])


def central(shape, ratio):
    """Return torchvision's window if no try fits, of one row or column at least."""
    height, width = h, w = shape
    if width / height < min(ratio):
        h = round(width / min(ratio))
    elif width / height > max(ratio):
        w = round(height * max(ratio))
    h, w = max(h, 1), max(w, 1)
    return (height - h) // 2, (width - w) // 2, h, w


def by_mxnet(rng, shape, options):
    """Return a window by the procedure of MXNet's image_aug_default.cc, but for its fallback."""
    height, width = shape
    for _ in range(10):
        area = height * width * rng.uniform(options.min_random_area, options.max_random_area)
        ratio = rng.uniform(*options.ratios)
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if rng.random() > 0.5:
            h, w = w, h
        if 0 < h <= height and 0 < w <= width:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    return central(shape, (options.width / options.height,) * 2)


def assert_one_distribution(windows, others, shape):
    """Compare means of several properties, and the windows that occur often."""
    for name, values in properties(shape).items():
        found, expected = values(windows), values(others)
        spread = np.hypot(found.std(), expected.std()) / math.sqrt(len(found))
        assert abs(found.mean() - expected.mean()) <= 4.5 * spread + 1e-12, name
    counts = [Counter(map(tuple, part.tolist())) for part in (windows, others)]
    for window, number in (counts[0] + counts[1]).most_common(5):
        first, second = (count[window] for count in counts)
        assert abs(first - second) <= 4.5 * math.sqrt(number) + 1, window


def properties(shape):
    height, width = shape
    return {
        "area": lambda x: x[:, 2] * x[:, 3] / (height * width),
        "log of the ratio": lambda x: np.log(x[:, 3] / x[:, 2]),
        "full height": lambda x: x[:, 2] == height,
        "full width": lambda x: x[:, 3] == width,
        "at the top": lambda x: x[:, 0] == 0,
        "at the right": lambda x: x[:, 1] + x[:, 3] == width,
        "vertical center": lambda x: (x[:, 0] + x[:, 2] / 2) / height,
        "square of the horizontal center": lambda x: ((x[:, 1] + x[:, 3] / 2) / width) ** 2,
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_random_crops_have_the_distribution_of_torchvision(shape, bounds):
    rng = random.Random(3)
    expected = np.array([by_torchvision(rng, shape, bounds) for _ in range(MANY)])
    assert_one_distribution(drawn(shape, bounds), expected, shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_area_and_ratio_are_within_their_bounds_up_to_rounding(shape, bounds):
    windows = drawn(shape, bounds)
    tops, lefts, heights, widths = windows.T
    assert windows[:, 2:].min() >= 1
    assert windows[:, :2].min() >= 0
    assert ((tops + heights <= shape[0]) & (lefts + widths <= shape[1])).all()
    (small, large), (low, high) = bounds["scale"], bounds["ratio"]
    area = shape[0] * shape[1]
    is_inside = (
        ((heights + 0.5) * (widths + 0.5) >= small * area * (1 - 1e-9))
        & ((heights - 0.5) * (widths - 0.5) <= large * area * (1 + 1e-9))
        & ((widths + 0.5) / (heights - 0.5) >= low * (1 - 1e-9))
        & ((widths - 0.5) / (heights + 0.5) <= high * (1 + 1e-9))
    )
    assert is_inside.mean() == 1 or {*map(tuple, windows[~is_inside].tolist())} == {
        central(shape, bounds["ratio"])
    }


@pytest.mark.parametrize(
    ("shape", "bounds", "expected"),
    [
        ((10, 1000), {}, (0, 493, 10, 13)),
        ((1000, 10), {}, (493, 0, 13, 10)),
        ((11, 1000), {"ratio": (2, 3)}, (0, 483, 11, 33)),
        ((1000, 7), {"ratio": (0.1, 0.2)}, (465, 0, 70, 7)),
        ((1, 1000), {"ratio": (0.1, 0.2)}, (0, 499, 1, 1)),
        ((30, 40), {"scale": (1, 1), "ratio": (1, 1)}, (0, 5, 30, 30)),
        ((40, 31), {"scale": (1, 1), "ratio": (2, 2)}, (12, 0, 16, 31)),
        ((40, 31), {"scale": (1, 1), "ratio": (0.9, 0.9)}, (3, 0, 34, 31)),
    ],
)
def test_without_a_crop_that_fits_the_largest_central_one_is_taken(shape, bounds, expected):
    """Compare with the values that torchvision computes."""
    windows = drawn(shape, {**BOUNDS[0], **bounds}, count=20)
    assert {*map(tuple, windows.tolist())} == {expected}


def test_the_sides_follow_the_names_of_the_axes():
    bounds = {"scale": (0.2, 0.6), "ratio": (1.5, 2)}
    expected = drawn((60, 80), bounds, count=50)
    for layout in ("whc", "chw", "cwh"):
        assert_same(drawn((60, 80), bounds, count=50, layout=layout), expected)


def test_the_values_of_a_seed_are_fixed():
    assert drawn((375, 500), BOUNDS[0], seed=5, count=3).tolist() == GOLDEN
    options = geometry.Options((3, 8, 8), random_resized_crop=True, min_random_area=0.1)
    window = geometry.random_resized_window(options, ImageRng(5, 0, 2), 375, 500)
    assert list(window) == GOLDEN_OF_MXNET


GOLDEN = [[132, 198, 216, 227], [121, 21, 160, 164], [0, 52, 320, 328]]
GOLDEN_OF_MXNET = [3, 108, 339, 339]


def test_collators_batchers_and_calls_have_the_same_crops():
    images = np.random.default_rng(0).integers(0, 256, (6, 20, 34, 3), np.uint8)
    options = {"h": 9, "w": 7, "resize": "bilinear"}
    top, left, height, width = drawn((20, 34), BOUNDS[3], 2, 6).T
    crops = {"crop": {"h": height, "w": width}, "offset": {"h": top, "w": left}}
    expected = collate(list(images), "hwc->bchw", **options, **crops)
    own = Collator("hwc->bchw", **options, crop=BOUNDS[3], seed=2)
    assert_same(own(list(images), positions=range(6)), expected)
    unseeded = Collator("hwc->bchw", **options, crop=BOUNDS[3])
    with sampled_batcher(images, batch_size=6, collate=unseeded, seed=2) as batches:
        assert_same(next(iter(batches)).input.input, expected)


@pytest.mark.parametrize("shape", [(224, 224), (375, 500), (10, 1000), (1, 1)])
@pytest.mark.parametrize("ratios", [(3 / 4, 4 / 3), (0.5, 1.0), (1.0, 1.0)])
def test_random_resized_crops_have_the_distribution_of_mxnet(shape, ratios):
    options = geometry.Options(
        (3, 30, 20), random_resized_crop=True, min_random_area=0.08,
        min_aspect_ratio=ratios[0], max_aspect_ratio=ratios[1],
    )  # fmt: skip
    rng = random.Random(4)
    expected = np.array([by_mxnet(rng, shape, options) for _ in range(MANY)])
    found = np.array(
        [geometry.random_resized_window(options, ImageRng(1, 0, n), *shape) for n in range(MANY)]
    )
    assert_one_distribution(found, expected, shape)


def test_random_crops_have_the_bounds_of_torchvision_by_default():
    sample = np.arange(40 * 50, dtype=np.uint8).reshape(40, 50)
    explicit = {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
    batches = [
        Collator("hw->bhw", h=8, w=8, resize="nearest", crop=crop)([sample] * 20, epoch=1)
        for crop in ("random", {}, explicit)
    ]
    np.testing.assert_array_equal(batches[0], batches[2])
    np.testing.assert_array_equal(batches[1], batches[2])
