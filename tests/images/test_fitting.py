"""Resized images: pixels, libraries, placements, and the mapping back to the image."""

import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

Image = pytest.importorskip("PIL.Image")

from layoutkit import (
    ArgumentError,
    DataError,
    DtypeError,
    LayoutkitError,
    Placement,
    ShapeError,
    collate,
)
from layoutkit.images import Decoder, Reader, fit, placement, read
from layoutkit.images.fitting import FIT_MODES, opencv
from tests.helpers.photographs import blocks, encoded, noise

LIBRARIES = [None, "pillow", pytest.param("opencv", marks=pytest.mark.skipif(
    opencv() is None, reason="OpenCV is not installed"))]  # fmt: skip
SIDES = st.integers(1, 40)
by_each = pytest.mark.parametrize("library", LIBRARIES)


# ---- pixels --------------------------------------------------------------------------------


@by_each
@pytest.mark.parametrize("shape", [(30, 50, 3), (50, 30, 3), (16, 40)])
def test_the_shorter_side_is_scaled_and_the_center_taken(shape, library):
    image = noise(0, *shape)
    made = fit(image, (16, 12), short_side=20, library=library)
    sides = [n * 20 // min(shape[:2]) for n in shape[:2]]
    scaled = fit(image, sides, "stretch", library=library)
    top, left = (round((n - size) / 2) for n, size in zip(sides, (16, 12), strict=True))
    np.testing.assert_array_equal(made, scaled[top : top + 16, left : left + 12])
    where = placement(shape, (16, 12), short_side=20)
    assert (where.top, where.left) == (-top, -left)


def test_the_filter_is_that_of_collate():
    image = noise(1, 30, 40, 3)
    for name in ("nearest", "bicubic", "lanczos", "area"):
        expected = collate([image], "hwc->bhwc", h=9, w=50, resize=name)[0]
        np.testing.assert_array_equal(fit(image, (9, 50), "stretch", resize=name), expected)
    decoder = Decoder((16, 12), short_side=20, resize="bicubic")
    np.testing.assert_array_equal(
        decoder(image), fit(image, (16, 12), short_side=20, resize="bicubic")
    )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"short_side": 20, "how": "pad"}, "short_side=20 and how='pad' both"),
        ({"short_side": 2.5}, "short_side=2.5"),
        ({"resize": "cubic"}, 'give resize="bicubic"'),
        ({"resize": "area", "library": "pillow"}, "own bilinear one"),
    ],
)
def test_filters_and_short_sides_are_checked(options, match):
    with pytest.raises(ArgumentError, match=match):
        fit(noise(0, 8, 9, 3), (4, 4), **options)
    with pytest.raises(ArgumentError, match=match):
        Decoder((4, 4), **options)
    if "short_side" not in options:
        return
    with pytest.raises(ShapeError, match="short_side=3"):
        fit(noise(0, 8, 9, 3), (4, 4), short_side=3)


@by_each
@pytest.mark.parametrize("how", FIT_MODES)
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 1), (6, 4, 3), (6, 4, 4), (6, 4, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_image_of_that_size_already_stays_as_it_is(library, how, shape, dtype):
    image = noise(0, *shape).astype(dtype)
    found = fit(image, (6, 4), how, library=library)
    np.testing.assert_array_equal(found, image)
    assert found.dtype == dtype
    assert not np.shares_memory(found, image)


@by_each
@pytest.mark.parametrize("channels", [(), (1,), (2,), (3,), (4,), (6,)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_what_shrinks_is_averaged(library, channels, dtype):
    """Shrink a slow ramp: the filters of both libraries return the middle of each block."""
    y, x = np.mgrid[:40, :60]
    ramp = 2 * y + 2 * x
    image = (ramp[..., None] + 5 * np.arange(*channels) if channels else ramp).astype(dtype)
    found = fit(image, (10, 15), "stretch", library=library)
    assert found.shape == (10, 15, *channels)
    expected = blocks(image.astype(float), 10, 15)
    assert np.abs(found.astype(float) - expected)[1:-1, 1:-1].max() <= 1


@by_each
def test_nothing_aliases(library):
    """Vertical and horizontal stripes of one pixel become gray, not wider stripes."""
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    for image in (stripes, stripes.swapaxes(0, 1)):
        found = fit(image, (16, 16), library=library)
        assert np.abs(found[2:-2, 2:-2].astype(int) - 128).max() <= 2


@by_each
def test_alpha_does_not_weigh_colors(library):
    image = np.zeros((8, 8, 4), np.uint8)
    image[:, ::2] = 200, 100, 50, 0
    image[:, 1::2] = 200, 100, 50, 255
    found = fit(image, (4, 4), library=library)
    assert (found[..., :3] == (200, 100, 50)).all()


@by_each
def test_one_side_shrinks_and_the_other_grows(library):
    image = np.repeat(np.arange(0, 240, 10, dtype=np.uint8)[:, None], 3, axis=1)  # rows differ
    found = fit(image, (6, 30), "stretch", library=library)
    expected = image[:, 0].reshape(6, 4).mean(axis=1)
    assert np.abs(found.astype(float) - expected[:, None])[1:-1].max() <= 3


@by_each
def test_cover_cuts_off_both_sides_alike(library):
    wide = np.zeros((8, 24, 3), np.uint8)
    wide[:, 8:16] = noise(0, 8, 8, 3)
    np.testing.assert_array_equal(fit(wide, (8, 8), library=library), noise(0, 8, 8, 3))
    high = wide.swapaxes(0, 1)
    np.testing.assert_array_equal(
        fit(high, (8, 8), library=library), noise(0, 8, 8, 3).swapaxes(0, 1)
    )


@by_each
def test_pad_is_a_letterbox(library):
    image = noise(1, 4, 8, 3)
    found = fit(image, (8, 8), "pad", fill=(1, 2, 3), library=library)
    np.testing.assert_array_equal(found[2:6], image)
    assert (found[:2] == (1, 2, 3)).all()
    assert (found[6:] == (1, 2, 3)).all()


@by_each
@pytest.mark.parametrize(
    "view", [lambda x: x[..., ::-1], lambda x: x[::-1], lambda x: x[:, 3:20:2]]
)
def test_views_of_arrays(library, view):
    image = view(noise(2, 30, 40, 3))
    found = fit(image, (10, 10), library=library)
    np.testing.assert_array_equal(found, fit(image.copy(), (10, 10), library=library))


@pytest.mark.skipif(opencv() is None, reason="OpenCV is not installed")
@pytest.mark.parametrize("how", FIT_MODES)
@pytest.mark.parametrize("size", [(32, 32), (64, 24), (150, 170)])
def test_the_libraries_agree_in_smooth_images(how, size):
    y, x = np.mgrid[:90, :120]
    waves = 128 + 100 * np.sin(y / 9)[..., None] * np.cos(x / [[[11]], [[7]], [[13]]]).T.swapaxes(
        0, 1
    )
    image = waves.astype(np.uint8)
    first, second = (
        fit(image, size, how, library=name).astype(int) for name in ("opencv", "pillow")
    )
    assert np.abs(first - second).max() <= 12
    assert np.abs(first - second).mean() <= 2
    assert np.abs(fit(image, size, how).astype(int) - second).max() <= 1


# ---- placements ----------------------------------------------------------------------------


@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(FIT_MODES))
def test_sizes_and_places_of_any_shape(height, width, rows, columns, how):
    image = np.full((height, width, 3), 200, np.uint8)
    fill = {"fill": 7} if how == "pad" else {}
    found = fit(image, (rows, columns), how, **fill)
    assert found.shape == (rows, columns, 3)
    where = placement(image.shape, (rows, columns), how)
    if how != "pad":
        assert (found == 200).all()
    inside = np.zeros((rows, columns), bool)
    top, left = max(0, round(where.top)), max(0, round(where.left))
    bottom = round(where.top + height * where.scale[0])
    right = round(where.left + width * where.scale[1])
    inside[top:bottom, left:right] = True
    np.testing.assert_array_equal((found == 200).all(axis=2), inside)


@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(FIT_MODES))
def test_proportions_stay_but_where_it_is_stretched(height, width, rows, columns, how):
    where = placement((height, width), (rows, columns), how)
    if how == "stretch":
        region = 0, 0, columns, rows
        assert where == Placement((rows / height, columns / width), 0, 0, region)
        return
    # Within half a pixel: of the image if it is cropped, of the result if it is padded.
    scale = (max if how == "cover" else min)(rows / height, columns / width)
    for found, side, whole in zip(where.scale, (height, width), (rows, columns), strict=True):
        shown = whole / found if how == "cover" else side * found
        wanted = whole / scale if how == "cover" else side * scale
        assert abs(shown - wanted) <= 0.5 or shown == 1


@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(FIT_MODES))
def test_points_go_there_and_back(height, width, rows, columns, how):
    where = placement((height, width), (rows, columns), how)
    boxes = np.array([[0, 0, width, height], [1, 2, 3, 4.5]])
    np.testing.assert_allclose(where.to_image(where.to_fitted(boxes)), boxes, atol=1e-9)
    np.testing.assert_allclose(
        where.to_fitted(boxes)[:, :2], where.to_fitted(boxes[:, :2]), atol=1e-9
    )


def test_cover_places_the_window_that_is_shown():
    """The scales of both axes differ, as the window has whole pixels."""
    where = placement((7, 20), (3, 4))
    assert where.scale == (3 / 7, 4 / 9)
    window = where.to_fitted([6, 0, 15, 7])
    np.testing.assert_allclose(window, [0, 0, 4, 3], atol=1e-12)
    where = placement((20, 7), (4, 3))
    window = where.to_fitted([0, 6, 7, 15])
    np.testing.assert_allclose(window, [0, 0, 3, 4], atol=1e-12)


def test_a_box_is_found_where_the_pixels_are():
    image = np.zeros((480, 640, 3), np.uint8)
    image[100:200, 320:480] = 255
    where = placement(image.shape, (320, 320), "pad")
    found = fit(image=image, size=(320, 320), how="pad")
    rows, columns = np.nonzero(found[..., 0] > 127)
    box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(where.to_image(box), [320, 100, 480, 200], atol=2)
    assert where.to_image(np.array(box, np.float32)).dtype == np.float32
    assert where.to_image(np.zeros((0, 4))).shape == (0, 4)
    assert where.to_image(np.zeros((2, 5, 2))).shape == (2, 5, 2)
    for wrong in (3, [1, 2, 3], np.zeros((2, 5))):
        with pytest.raises((ShapeError, ArgumentError)):
            where.to_image(wrong)


# ---- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (((4,), (8, 8)), ShapeError, "height, width"),
        (((0, 4, 3), (8, 8)), ShapeError, "with no size 0"),
        (((4, 4, 3), 8), ShapeError, "size is 8"),
        (((4, 4, 3), (8,)), ShapeError, r"size is \(8,\)"),
        (((4, 4, 3), (0, 8)), ShapeError, "at least 1"),
        (((4, 4, 3), (8.0, 8)), ShapeError, "at least 1"),
        (((4, 4, 3), (8, 8), "crop"), ArgumentError, "'cover', 'pad', 'stretch'"),
    ],
)
def test_mistakes(arguments, error, words):
    shape, *rest = arguments
    with pytest.raises(error, match=words):
        fit(np.zeros(shape, np.uint8), *rest)


@pytest.mark.parametrize("how", ["cover", "stretch"])
@pytest.mark.parametrize("fill", [0, 7, (1, 2, 3)])
def test_a_fill_that_is_not_used_is_refused(how, fill):
    image = noise(3, 20, 30, 3)
    with pytest.raises(ArgumentError, match='is the padding of how="pad"'):
        fit(image, (8, 8), how, fill=fill)
    with pytest.raises(ArgumentError, match='omit it, or give "pad"'):
        Decoder((8, 8), how, fill=fill)


def test_a_reader_writes_to_its_output():
    pixels = noise(3, 20, 30, 3)
    for data in (pixels, encoded(pixels)):
        out = np.zeros_like(pixels)
        assert Reader()(data, out) is out
        np.testing.assert_array_equal(out, pixels)
        with pytest.raises(ShapeError, match="give such an array"):
            Reader()(data, out[:4])


@pytest.mark.parametrize("fill", [256, -1, 0.5, (1, 2), "white", np.nan])
def test_fills_that_are_invalid(fill):
    with pytest.raises(ArgumentError, match="fill is"):
        fit(np.zeros((4, 8, 3), np.uint8), (8, 8), "pad", fill=fill)


def test_other_dtypes_and_libraries(monkeypatch):
    with pytest.raises(DtypeError, match=r"float64.*uint8 or float32"):
        fit(np.zeros((4, 4)), (8, 8))
    with pytest.raises(ArgumentError, match="'opencv', 'pillow'"):
        fit(np.zeros((4, 4), np.uint8), (8, 8), library="torch")
    monkeypatch.setattr("layoutkit.images.fitting.opencv", lambda: None)
    with pytest.raises(ArgumentError, match="pip install opencv-python-headless"):
        fit(np.zeros((4, 4), np.uint8), (8, 8), library="opencv")
    assert fit(np.zeros((4, 4), np.uint8), (8, 8)).shape == (8, 8)


# ---- decoders ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", FIT_MODES)
def test_a_decoder_reads_and_fits(how):
    data = encoded(noise(3, 20, 30, 3))
    fill = {"fill": 9} if how == "pad" else {}
    decoder = Decoder([8, 12], how, **fill)
    expected = fit(noise(3, 20, 30, 3), (8, 12), how, **fill)
    np.testing.assert_array_equal(decoder(data), expected)
    out = np.zeros((8, 12, 3), np.uint8)
    assert decoder(data, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert decoder.input_dims == (8, 12, 3)


def test_decoders_are_values():
    one = Decoder((8, 8), "pad", fill=[1, 2, 3])
    assert (
        one == Decoder((8, 8), "pad", fill=np.array([1, 2, 3])) == pickle.loads(pickle.dumps(one))
    )
    assert len({one, Decoder((8, 8), "pad", fill=(1, 2, 3)), Decoder((8, 8))}) == 2


@pytest.mark.parametrize("how", FIT_MODES)
def test_a_large_jpeg_is_near_the_one_decoded_whole(how):
    """A large JPEG is decoded at a fraction of its size, which changes only the last bits."""
    y, x = np.mgrid[:480, :640]
    waves = np.stack([128 + 100 * np.sin(y / 40), 128 + 100 * np.cos(x / 50), (x + y) / 5], axis=2)
    data = encoded(waves.astype(np.uint8), "JPEG", quality=95)
    found, whole = Decoder((48, 48), how)(data), fit(read(data), (48, 48), how)
    assert np.abs(found.astype(int) - whole).max() <= 6


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((8,), ShapeError),
        (((8, 8), "crop"), ArgumentError),
        (((8, 8), "pad", 0, "x"), ArgumentError),
    ],
)
def test_a_decoder_refuses_when_it_is_made(arguments, error):
    with pytest.raises(error):
        Decoder(*arguments)


@by_each
def test_a_loop_writes_into_its_own_buffer(library):
    image = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    frame = np.full((2, 16, 16, 3), 7, np.uint8)
    result = fit(image, (16, 16), "pad", fill=114, library=library, out=frame[0])
    assert result.base is frame
    np.testing.assert_array_equal(frame[0], fit(image, (16, 16), "pad", fill=114, library=library))
    assert (frame[1] == 7).all()
    for wrong in (np.zeros((16, 15, 3), np.uint8), np.zeros((16, 16, 3), np.float32)):
        before = wrong.copy()
        with pytest.raises(LayoutkitError, match="out"):
            fit(image, (16, 16), "pad", library=library, out=wrong)
        np.testing.assert_array_equal(wrong, before)


@pytest.mark.parametrize(
    ("height", "width", "factor"),
    [(47, 64, 1), (48, 63, 1), (48, 64, 2), (95, 200, 2), (191, 256, 4), (192, 256, 8)],
)
def test_a_reader_decodes_at_a_part_of_the_size_that_is_twice_as_large(height, width, factor):
    data = encoded(noise(0, height, width, 3), "JPEG")
    pixels = Reader((12, 16))(data)
    assert pixels.shape == (-(-height // factor), -(-width // factor), 3)
    with Image.open(io.BytesIO(data)) as image:
        image.draft(None, (width // factor, height // factor))
        np.testing.assert_array_equal(pixels, np.asarray(image.convert("RGB")))
    np.testing.assert_array_equal(Reader()(data), read(data))


def test_a_reader_returns_new_memory_and_checks_its_arguments():
    pixels = noise(0, 4, 5, 3)
    copy = Reader((2, 2))(pixels)
    np.testing.assert_array_equal(copy, pixels)
    assert not np.shares_memory(copy, pixels)
    assert pickle.loads(pickle.dumps(Reader([2, 3]))) == Reader((2, 3)) != Reader()
    with pytest.raises(ShapeError, match=r"min_size is 0; it must be \(height, width\)"):
        Reader(0)
    with pytest.raises(ShapeError, match="decoded pixels must be uint8"):
        Reader()(pixels[..., :2])
    with pytest.raises(DataError, match="cannot be read as an image"):
        Reader((2, 2))(b"\xff\xd8\xff")


# ---- the filters of Pillow ---------------------------------------------------------------

PILLOW = {"bilinear": 2, "bicubic": 3, "lanczos": 1}


@pytest.mark.parametrize("kind", ["noise", "edges", "photograph"])
@pytest.mark.parametrize("name", PILLOW)
def test_bytes_are_as_near_to_pillows_as_the_docstring_says(name, kind):
    """Pillow resizes floats without limits between its passes."""
    rng = np.random.default_rng(5)
    far = 0
    for h, w, height, width in rng.integers(1, 60, (12, 4)).tolist():
        pixels = rng.integers(0, 256, (h, w), np.uint8)
        if kind == "edges":
            pixels = pixels // 128 * 255
        elif kind == "photograph":
            small = Image.fromarray(pixels[: -(-h // 6), : -(-w // 6)].copy())
            pixels = np.array(small.resize((w, h), 3))
        found = fit(pixels, (height, width), "stretch", resize=name).astype(int)
        image = Image.fromarray(pixels)
        exact = np.asarray(image.convert("F").resize((width, height), PILLOW[name]))
        assert abs(found - exact.clip(0, 255)).max() < 0.501
        far = max(far, abs(found - np.asarray(image.resize((width, height), PILLOW[name]))).max())
    limit = 1 if name == "bilinear" else 5 if kind == "photograph" else 70
    assert far <= limit
