"""Options of an Augmenter, compared with a slow and simple reference."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import augmented

pytest.importorskip("PIL")
cv2 = pytest.importorskip("cv2")

from layoutkit import ArgumentError, DtypeError, LayoutkitError, PatternError, ShapeError, convert
from layoutkit.images import Augmenter, read
from layoutkit.images.augment import color, geometry
from layoutkit.images.augment.random import ImageRng, Slot
from tests.helpers.photographs import encoded, noise

pytestmark = pytest.mark.budget(4)

PHOTO = noise(0, 9, 12, 3)
RAMP = np.arange(16, dtype=np.uint8).reshape(4, 4)
COLORS = np.stack([RAMP, RAMP + 100, RAMP + 200], axis=-1)


def planes(pixels, shape=None, **options):
    """Return the pixels that an Augmenter makes, as uint8 planes."""
    shape = shape or (pixels.shape[2], *pixels.shape[:2])
    return Augmenter(shape, dtype="uint8", **options)(pixels)


# ---- the numbers of MXNet's iterator ----------------------------------------------------------


def test_the_formula():
    options = {"mean": (10, 20, 30), "std": (2, 4, 5), "scale": 0.5}
    found = Augmenter((3, 4, 4), **options)(COLORS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0, 0], [-2.5, -2.25, -2, -1.75])
    np.testing.assert_allclose(found[1, 0], [10, 10.125, 10.25, 10.375])
    np.testing.assert_allclose(found[2, 0], [17, 17.1, 17.2, 17.3], rtol=1e-6)
    singly = {"mean_r": 10, "mean_g": 20, "mean_b": 30, "std_r": 2, "std_g": 4, "std_b": 5}
    again = Augmenter((3, 4, 4), **singly, scale=0.5)(COLORS)
    np.testing.assert_array_equal(again, found)


def test_mirror_pad_and_scale():
    assert planes(COLORS, mirror=True)[0, 0].tolist() == [3, 2, 1, 0]
    padded = planes(COLORS, (3, 6, 6), pad=1, fill_value=9)
    assert padded[0, :2].tolist() == [[9] * 6, [9, 0, 1, 2, 3, 9]]
    y, x = np.mgrid[:7, :8]
    tens = (10 * y + x).astype(np.uint8)[..., None]
    half = planes(tens, (1, 3, 4), min_random_scale=0.5, max_random_scale=0.5)
    assert half[0].tolist() == [[0, 2, 4, 6], [20, 22, 24, 26], [40, 42, 44, 46]]


@pytest.mark.budget(0)
def test_bytes_are_rounded_half_to_even_and_cut_off():
    pixel = np.array([[[3, 103, 203]]], np.uint8)
    means = {"mean": (128, 127.5, 128)}
    assert Augmenter((3, 1, 1), dtype="int8", **means)(pixel).ravel().tolist() == [-125, -24, 75]
    assert Augmenter((3, 1, 1), dtype="int8")(pixel).ravel().tolist() == [3, 103, 127]
    assert Augmenter((3, 1, 1), dtype="uint8", **means)(pixel).ravel().tolist() == [0, 0, 75]
    halves = Augmenter((3, 1, 1), dtype="uint8", scale=0.5)
    assert halves(pixel).ravel().tolist() == [2, 52, 102]  # 1.5, 51.5, 101.5


@pytest.mark.parametrize("angle", [90, 180, 270, -90, 450, 0])
def test_quarters_are_exact_and_turn_the_sides(angle):
    turned = np.rot90(PHOTO, angle // 90)
    found = planes(PHOTO, (3, *turned.shape[:2]), rotate=angle)
    np.testing.assert_array_equal(found.transpose(1, 2, 0), turned)


def test_gray_is_what_pillow_makes():
    data = encoded(np.array([[[0, 100, 200]]], np.uint8))
    assert Augmenter((1, 1, 1))(data).tolist() == [[[82]]]


# ---- geometry ---------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 12), st.booleans(), st.integers(0, 99))
def test_a_crop_is_a_window_of_the_image(height, width, is_mirrored, position):
    augment = Augmenter((3, height, width), dtype="uint8", rand_crop=True, mirror=is_mirrored)
    found = augment(PHOTO, position=position).transpose(1, 2, 0)
    found = found[:, ::-1] if is_mirrored else found
    tops, lefts = range(10 - height), range(13 - width)
    windows = [PHOTO[y : y + height, x : x + width] for y in tops for x in lefts]
    assert any(np.array_equal(found, window) for window in windows)


def test_crops_that_are_not_random():
    middle = planes(PHOTO, (3, 4, 5))
    np.testing.assert_array_equal(middle.transpose(1, 2, 0), PHOTO[2:6, 3:8])
    corner = planes(PHOTO, (3, 4, 5), crop_y_start=1, crop_x_start=7)
    np.testing.assert_array_equal(corner.transpose(1, 2, 0), PHOTO[1:5, 7:12])
    row = planes(PHOTO, (3, 4, 5), crop_y_start=5, crop_x_start=-1)
    np.testing.assert_array_equal(row.transpose(1, 2, 0), PHOTO[5:9, 3:8])


@given(st.integers(0, 3), st.integers(0, 20), st.booleans())
def test_a_crop_of_a_padded_image(pad, position, with_colors):
    height, width = 9 + pad, 10 + pad
    options = {"rand_crop": True, "pad": pad, "fill": (1, 2, 3), "brightness": 0.5 * with_colors}
    found = planes(PHOTO, (3, height, width), **options)
    augment = Augmenter((3, height, width), dtype="uint8", **options)
    found = augment(PHOTO, position=position).transpose(1, 2, 0)
    whole = np.empty((9 + 2 * pad, 12 + 2 * pad, 3), np.uint8)
    whole[...] = (1, 2, 3)
    whole[pad : pad + 9, pad : pad + 12] = PHOTO
    rng = ImageRng(0, 0, position)
    if with_colors:
        whole = augmented.adjust_brightness(whole, rng.uniform(Slot.BRIGHTNESS, 0.5, 1.5))
    windows = [
        whole[y : y + height, x : x + width]
        for y in range(whole.shape[0] - height + 1)
        for x in range(whole.shape[1] - width + 1)
    ]
    assert any(np.array_equal(found, window) for window in windows)


@pytest.mark.parametrize(("shorter", "size"), [(6, (6, 8)), (18, (18, 24)), (5, (5, 6))])
def test_the_shorter_side_is_resized(shorter, size):
    gray = noise(1, 9, 12, 1)
    found = planes(gray, (1, *size), resize=shorter)[0]
    np.testing.assert_allclose(found, augmented.resize(gray[..., 0], *size), atol=1)
    upright = planes(gray.swapaxes(0, 1), (1, *size[::-1]), resize=shorter)[0]
    np.testing.assert_allclose(upright.T, found, atol=1)


@given(
    st.integers(-359, 359).filter(lambda angle: angle % 90),
    st.floats(-0.5, 0.5),
    st.floats(0.5, 1.6),
    st.floats(0.6, 1.6),
    st.sampled_from([(0, 1e10), (10, 1e10), (0, 8.0)]),
)
def test_warps(angle, shear, scale, ratio, limits):
    smooth = np.add.outer(np.arange(9) * 9, np.arange(12) * 7).astype(np.uint8)
    options = geometry.Options(
        (1, 1, 1), rotate=angle, max_shear_ratio=1, min_random_scale=scale,
        max_random_scale=scale, min_aspect_ratio=ratio, max_aspect_ratio=ratio,
        min_img_size=limits[0], max_img_size=limits[1],
    )  # fmt: skip

    class Fixed(ImageRng):
        def uniform(self, use, low, high):
            return shear if use == Slot.SHEAR else super().uniform(use, low, high)

    canvas = geometry.random_warp(options, Fixed(0, 0, 0), 9, 12)
    found = geometry.warp_affine(smooth[..., None], canvas, 1, (255,))[..., 0]
    size = [min(max(limits[0], scale * side), limits[1]) for side in (9, 12)]
    expected = augmented.warp(smooth, angle, shear, scale, ratio, size, 255)
    assert found.shape == expected.shape == (int(size[0]), int(size[1]))
    # OpenCV rounds positions to 1/32 of a pixel, which at the edge of the image changes 255 / 32.
    assert np.mean(np.abs(found - expected)) < 3
    np.testing.assert_allclose(found, expected, atol=26)


def test_limits_of_the_canvas_cut_and_extend_and_do_not_scale():
    cut = planes(PHOTO, (3, 5, 5), max_img_size=5)
    np.testing.assert_array_equal(cut.transpose(1, 2, 0), PHOTO[2:7, 4:9])
    wide = planes(PHOTO, (3, 11, 12), min_img_size=11, fill=(7, 8, 9)).transpose(1, 2, 0)
    np.testing.assert_array_equal(wide[1:10], PHOTO)
    assert wide[0, 0].tolist() == wide[10, 11].tolist() == [7, 8, 9]


def test_random_resized_crops_are_windows_of_the_asked_area_and_ratio():
    options = geometry.Options(
        (3, 8, 8), random_resized_crop=True, min_random_area=0.1, max_random_area=0.5,
        min_aspect_ratio=0.75, max_aspect_ratio=4 / 3,
    )  # fmt: skip
    areas, ratios = [], []
    for position in range(400):
        window = geometry.random_resized_window(options, ImageRng(0, 0, position), 300, 400)
        assert 0 <= window.top <= 300 - window.height
        assert 0 <= window.left <= 400 - window.width
        areas.append(window.height * window.width / 120_000)
        ratios.append(window.width / window.height)
    assert 0.099 < min(areas) < 0.13
    assert 0.47 < max(areas) < 0.501
    assert abs(np.mean(areas) - 0.3) < 0.02
    assert 0.74 < min(ratios) < 0.78
    assert 1.28 < max(ratios) < 1.34
    narrow = geometry.random_resized_window(options, ImageRng(0, 0, 0), 10, 1000)
    assert (narrow.height, narrow.width, narrow.left) == (10, 10, 495)


def test_random_resized_crop_resizes_its_window():
    augment = Augmenter((1, 5, 6), dtype="uint8", random_resized_crop=True, min_random_area=0.3)
    gray = noise(2, 20, 30, 1)
    for position in range(5):
        window = geometry.random_resized_window(augment, ImageRng(0, 0, position), 20, 30)
        part = window.extract(gray, (0,))[..., 0]
        found = augment(gray, position=position)[0]
        np.testing.assert_allclose(found, augmented.resize(part, 5, 6), atol=1)


def test_random_resized_crops_include_the_padding():
    """Compare with an image that is padded before, as MXNet does."""
    options = {"dtype": "uint8", "random_resized_crop": True, "min_random_area": 0.3, "fill": 9}
    pixels = noise(2, 20, 30, 3)
    padded = np.full((28, 38, 3), 9, np.uint8)
    padded[4:-4, 4:-4] = pixels
    for position in range(5):
        found = Augmenter((3, 5, 6), pad=4, **options)(pixels, position=position)
        expected = Augmenter((3, 5, 6), **options)(padded, position=position)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("limits", [(36, 50, 50), (2, 0, 3), (180, 255, 255)])
def test_changes_of_hue_lightness_and_saturation_are_drawn_like_mxnet(limits):
    rng = np.random.default_rng(0)
    found = np.array([color.random_shifts(ImageRng(0, 0, n), limits) for n in range(6000)])
    for column, limit in zip(found.T, limits, strict=True):
        u1, u2 = rng.random((2, 6000))
        expected = np.trunc((u1 + 4 * u2) / 5 * 2 * limit - limit)
        grid = np.linspace(-limit, limit, 9)
        shares = [(values[:, None] <= grid).mean(0) for values in (column, expected)]
        assert np.abs(shares[0] - shares[1]).max() < 2 * 1.95 / np.sqrt(6000)
        assert abs(column).max() <= limit
    assert np.abs(np.corrcoef(found[:, [0, 2]].T)[0, 1]) < 0.08


def test_square_crops_of_random_size_are_resized():
    augment = Augmenter((1, 4, 4), dtype="uint8", min_crop_size=3, max_crop_size=7)
    gray = noise(3, 9, 12, 1)
    sides = set()
    for position in range(30):
        side = ImageRng(0, 0, position).integer(Slot.SIDE, 3, 7)
        sides.add(side)
        top, left = (9 - side) // 2, (12 - side) // 2
        part = gray[top : top + side, left : left + side, 0]
        found = augment(gray, position=position)[0]
        np.testing.assert_allclose(found, augmented.resize(part, 4, 4), atol=1)
    assert sides == {3, 4, 5, 6, 7}


def test_methods_are_those_of_opencv():
    for method in range(5):
        found = planes(PHOTO, (3, 6, 8), resize=6, inter_method=method)
        expected = cv2.resize(PHOTO, (8, 6), interpolation=method)
        np.testing.assert_array_equal(found.transpose(1, 2, 0), expected)
    rng = ImageRng(0, 0, 0)
    sizes = [(18, 24), (6, 8), (18, 8), (9, 24), (9, 8), (6, 24), (6, 12)]
    found = [geometry.interpolation_for(9, rng, (9, 12), size) for size in sizes]
    assert found == [2, 3, 1, 1, 1, 1, 1]
    random = [ImageRng(0, 0, each) for each in range(60)]
    drawn = {geometry.interpolation_for(10, rng, (9, 12), (18, 24)) for rng in random}
    assert drawn == {0, 1, 2, 3, 4}


# ---- colors ----------------------------------------------------------------------------------


@given(
    st.floats(0, 2), st.sampled_from(["adjust_brightness", "adjust_contrast", "adjust_saturation"])
)
def test_factors_of_colors(factor, name):
    found = getattr(color, name)(PHOTO, factor)
    expected = getattr(augmented, name)(PHOTO, factor)
    off = np.abs(found.astype(int) - expected)
    assert off.max() <= 1  # float32 and float64 may round differently near a half
    assert np.mean(off > 0) < 0.02


def test_noise_of_principal_components():
    numbers = (0.3, -0.5, 1.0)
    np.testing.assert_array_equal(
        color.add_pca_noise(PHOTO, numbers), augmented.add_pca_noise(PHOTO, numbers)
    )


def test_no_random_number_is_used_twice(monkeypatch):
    word = ImageRng.word
    used = []
    monkeypatch.setattr(ImageRng, "word", lambda self, slot: used.append(slot) or word(self, slot))
    planes(
        noise(5, 20, 30, 3), (3, 4, 4), rand_crop=True, rand_mirror=True, min_crop_size=3,
        max_crop_size=6, inter_method=1, max_rotate_angle=9, max_shear_ratio=0.1,
        min_random_scale=0.9, max_aspect_ratio=0.1, brightness=0.1, contrast=0.1, saturation=0.1,
        random_h=9, random_l=9, random_s=9, pca_noise=1, max_random_contrast=0.1,
        max_random_illumination=0.1,
    )  # fmt: skip
    assert len(used) == len(set(used)) == 26


@pytest.mark.parametrize("change", [(30, 0, 0), (-100, 0, 0), (0, 20, 0), (0, 0, -40), (9, -9, 9)])
def test_hue_lightness_and_saturation(change):
    found = color.shift_hls(PHOTO, *change).astype(int)
    expected = augmented.shift_hls(PHOTO, *change)
    # Hue in 180 steps and two roundings of 8 bits.
    assert np.percentile(np.abs(found - expected), 95) <= 6


def test_hue_goes_round():
    red = np.array([[[255, 0, 0]]], np.uint8)
    np.testing.assert_allclose(color.shift_hls(red, -60, 0, 0), [[[0, 0, 255]]], atol=1)
    np.testing.assert_allclose(color.shift_hls(red, 60, 0, 0), [[[0, 255, 0]]], atol=1)


def test_alpha_keeps_its_values():
    four = noise(4, 5, 6, 4)
    options = {"brightness": 1, "contrast": 1, "saturation": 1, "random_l": 90, "pca_noise": 1}
    found = planes(four, **options)
    np.testing.assert_array_equal(found[3], four[..., 3])
    assert (found[:3] != four[..., :3].transpose(2, 0, 1)).mean() > 0.5


def test_steps_of_color_come_in_all_orders():
    augment = Augmenter((3, 9, 12), dtype="uint8", brightness=0.9, contrast=0.9, saturation=0.9)
    orders = set()
    for position in range(40):
        rng = ImageRng(0, 0, position)
        factors = [
            rng.uniform(use, 0.1, 1.9) for use in (Slot.BRIGHTNESS, Slot.CONTRAST, Slot.SATURATION)
        ]
        found = augment(PHOTO, position=position).transpose(1, 2, 0)
        for order in color.STEP_ORDERS:
            expected = PHOTO
            for step in order:
                change = (color.adjust_brightness, color.adjust_contrast, color.adjust_saturation)[
                    step
                ]
                expected = change(expected, factors[step])
            if np.array_equal(expected, found):
                orders.add(order)
    assert orders == set(color.STEP_ORDERS)


# ---- the last pass ----------------------------------------------------------------------------


@pytest.mark.budget(2)
@pytest.mark.parametrize("layout", ["chw", "hwc", "(hwc)", "cwh"])
@pytest.mark.parametrize("varies", [False, True])
def test_layouts_and_the_formula(layout, varies):
    k = {"max_random_contrast": 0.3, "max_random_illumination": 9.0} if varies else {}
    constants = {"mean": (1.0, 20.0, 3.5), "std": (4.0, 2.0, 8.0), "scale": 0.25}
    augment = Augmenter((3, 9, 12), layout=layout, mirror=True, **constants, **k)
    found = augment(PHOTO, epoch=2, position=5)
    rng = ImageRng(0, 2, 5)
    gain = rng.uniform(Slot.GAIN, 0.7, 1.3) if varies else 1
    lift = rng.uniform(Slot.LIFT, -9, 9) if varies else 0
    expected = augmented.formula(PHOTO[:, ::-1], k=gain, i=lift, **constants)
    order = {"chw": (0, 1, 2), "hwc": (1, 2, 0), "(hwc)": (1, 2, 0), "cwh": (0, 2, 1)}[layout]
    expected = expected.transpose(order).reshape(found.shape)
    assert found.shape == augment.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "uint8", "int8"])
@pytest.mark.parametrize("varies", [False, True])
def test_dtypes(dtype, varies):
    k = {"max_random_contrast": 0.3} if varies else {}
    k |= {"layout": "hwc", "mean": 100, "std": 2}  # kernels without moves compile fast
    augment = Augmenter((3, 9, 12), dtype=dtype, **k)
    exact = Augmenter((3, 9, 12), dtype="float64", **k)(PHOTO)
    found = augment(PHOTO)
    assert found.dtype.name == dtype
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        expected = np.clip(np.rint(exact), info.min, info.max)
        np.testing.assert_array_equal(found, expected)
    else:
        tolerance = {"float64": 1e-12, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
        np.testing.assert_allclose(found.astype(float), exact, rtol=tolerance)


@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_the_mean_image_is_that_of_the_unmirrored_image(layout):
    mean = noise(5, 3, 9, 12).astype(np.float32)
    augment = Augmenter((3, 9, 12), layout=layout, mean_img=mean, mirror=True, mean=50, scale=2)
    found = augment(PHOTO)
    found = found.transpose(2, 0, 1) if layout == "hwc" else found
    expected = augmented.formula(PHOTO, mean=mean, scale=2)[:, :, ::-1]
    np.testing.assert_allclose(found, expected)


@pytest.mark.budget(0)
def test_out_is_filled_and_returned():
    for options in ({}, {"max_random_contrast": 0.5}, {"dtype": "uint8", "scale": 0.5}):
        augment = Augmenter((3, 4, 4), rand_crop=True, rand_mirror=True, **options)
        out = np.zeros(augment.shape, augment.dtype)
        assert augment(PHOTO, out, position=3) is out
        np.testing.assert_array_equal(out, augment(PHOTO, position=3))
        assert out.any()


def test_images_of_many_widths():
    augment = Augmenter((3, 4, 4), mirror=True)
    for width in range(4, 90):
        pixels = noise(width, 5, width, 3)
        left = (width - 4) // 2
        expected = pixels[0:4, left : left + 4][:, ::-1].transpose(2, 0, 1)
        np.testing.assert_array_equal(augment(pixels), expected)


def test_rows_of_a_batch_have_the_bits_of_convert():
    """Rows of a batch are stored past the caches, which must not change their values."""
    augment = Augmenter((3, 64, 64), mean=(9, 8, 7), std=3)
    pixels = noise(7, 64, 64, 3)
    batch = np.zeros((3, 3, 64, 64), np.float32)
    augment(pixels, batch[1])
    expected = convert(pixels, "hwc->chw", dtype="float32", mean=(9, 8, 7), std=(3, 3, 3))
    np.testing.assert_array_equal(batch[1], expected)
    assert not batch[[0, 2]].any()


@pytest.mark.budget(0)
def test_jpegs_much_larger_than_they_are_to_be_are_decoded_at_a_fraction():
    smooth = cv2.resize(noise(8, 6, 8, 3), (800, 600), interpolation=cv2.INTER_CUBIC)
    data = encoded(smooth, "JPEG", quality=95)
    augment = Augmenter((3, 60, 80), dtype="uint8", resize=60)
    found = augment(data).astype(int)
    whole = augment(read(data)).astype(int)  # decoded in full size
    assert np.abs(found - whole).max() <= 4
    assert (found != whole).any()
    ragged = Augmenter((3, 61, 81), dtype="uint8", resize=61)  # 81.3 wide, from the file's 800
    assert ragged(data).shape == (3, 61, 81)


def test_pickles_make_the_same():
    augment = Augmenter((3, 5, 5), rand_crop=True, random_h=20, max_random_contrast=0.2, seed=9)
    again = pickle.loads(pickle.dumps(augment))
    np.testing.assert_array_equal(again(PHOTO, position=4), augment(PHOTO, position=4))


@pytest.mark.parametrize(
    "options",
    [
        {"random_resized_crop": True, "min_random_area": 0.1, "rand_mirror": True},
        {"min_crop_size": 4, "max_crop_size": 18, "rand_crop": True},
        {"resize": 16, "inter_method": 10, "max_rotate_angle": 40, "max_random_scale": 2},
        {"brightness": 0.5, "random_h": 40, "pca_noise": 9, "max_random_contrast": 0.5},
    ],
)
def test_what_is_not_random(options):
    augment = Augmenter((3, 8, 14), mean=9, **options).unaugmented()
    images = [augment(noise(6, 20, 30, 3), epoch=n, position=n) for n in range(4)]
    for image in images:
        np.testing.assert_array_equal(image, images[0])
        assert image.dtype == np.uint8


# ---- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data_shape": (2, 4, 4)}, "1, 3 or 4 channels"),
        ({"data_shape": 224}, r"\(channels, height, width\)"),
        ({"data_shape": (1, 4, 4), "random_h": 3}, "1 channel"),
        ({"data_shape": (1, 4, 4), "pca_noise": 0.1}, "1 channel"),
        ({"max_crop_size": 5}, "pass both"),
        ({"min_crop_size": 6, "max_crop_size": 5}, "above"),
        ({"min_random_scale": 2}, "above max_random_scale"),
        ({"min_random_scale": 0}, "above 0"),
        ({"max_aspect_ratio": 1.5}, "min_aspect_ratio"),
        ({"random_resized_crop": True, "rand_crop": True}, "combined with rand_crop"),
        ({"random_resized_crop": True, "rotate": 5}, "combined with rotate"),
        ({"inter_method": 5}, "Lanczos"),
        ({"fill_value": 256}, "at most 255"),
        ({"fill": (1, 2)}, "for 3 channels"),
        ({"mean": 3, "mean_g": 4}, "mean and mean_g"),
        ({"mean": float("nan")}, "finite"),
        ({"std_b": 0}, "other than 0"),
        ({"scale": 0}, "other than 0"),
        ({"brightness": 1.1}, "at most 1"),
        ({"rand_crop": 1}, "True or False"),
        ({"pad": -1}, "at least 0"),
        ({"max_pixels": 0}, "at least 1"),
        ({"seed": 0.5}, "whole number"),
        ({"mean_img": "mean.bin"}, "array of numbers"),
        ({"layout": "bchw"}, "h, w and c"),
    ],
)
def test_arguments(options, words):
    with pytest.raises(ArgumentError, match=words):
        Augmenter(**{"data_shape": (3, 4, 4), **options})


def test_other_errors():
    with pytest.raises(DtypeError, match="int32 is not supported"):
        Augmenter((3, 4, 4), dtype="int32")
    with pytest.raises(ShapeError, match=r"mean_img has shape \(3, 4, 5\)"):
        Augmenter((3, 4, 4), mean_img=np.zeros((3, 4, 5)))
    with pytest.raises(ShapeError, match="9x12 before the crop, smaller than 10x10"):
        planes(PHOTO, (3, 10, 10))
    with pytest.raises(ShapeError, match="crop_y_start=6"):
        planes(PHOTO, (3, 4, 4), crop_y_start=6)
    with pytest.raises(ShapeError, match="no pixels left"):
        planes(PHOTO, (3, 4, 4), min_random_scale=0.01, max_random_scale=0.01)
    with pytest.raises(LayoutkitError, match="uint8"):
        Augmenter((3, 4, 4))(PHOTO.astype(np.float32))
    with pytest.raises(PatternError):
        Augmenter((3, 4, 4), layout="(hwc")


def test_a_missing_opencv_is_said_at_once(monkeypatch):
    monkeypatch.setattr(geometry, "opencv", lambda: None)
    Augmenter((3, 4, 4), rand_crop=True, brightness=0.2, rotate=90, pad=3)
    for options in ({"resize": 5}, {"rotate": 45}, {"random_s": 3}, {"random_resized_crop": True}):
        with pytest.raises(ArgumentError, match=r"layoutkit\[augment\]"):
            Augmenter((3, 4, 4), **options)
