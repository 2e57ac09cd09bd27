"""ICC profiles: ignored, or converted to sRGB by Pillow's ImageCms."""

import io

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from PIL import ImageCms

from layoutkit import ArgumentError, DataError
from layoutkit.images import Decoder, Reader, read
from tests.helpers.photographs import encoded, make_profiles, noise

_SRGB, _EXCHANGED = make_profiles()
COLORS = noise(0, 12, 10, 3)


def in_srgb(image, profile=_EXCHANGED):
    """Return the pixels of an image of Pillow in sRGB, an image of mode RGB, L or CMYK."""
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    intent = ImageCms.Intent(source.profile.rendering_intent)
    target = ImageCms.createProfile("sRGB")
    return np.asarray(ImageCms.profileToProfile(image, source, target, intent, "RGB"))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WebP"])
def test_colors_become_srgb(kind):
    data = encoded(COLORS, kind, icc_profile=_EXCHANGED)
    stored = read(data)
    expected = in_srgb(Image.fromarray(stored))
    assert abs(expected.astype(int) - stored).max() > 50
    np.testing.assert_array_equal(read(data, to_srgb=True), expected)
    np.testing.assert_array_equal(Reader(to_srgb=True)(data), expected)
    np.testing.assert_array_equal(Decoder((12, 10), to_srgb=True)(data), expected)
    np.testing.assert_array_equal(
        read(data, "gray", to_srgb=True)[..., 0], Image.fromarray(expected).convert("L")
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_files_without_a_profile_are_unchanged(kind):
    data = encoded(COLORS, kind)
    np.testing.assert_array_equal(read(data, to_srgb=True), read(data))


def test_alpha_is_kept():
    data = encoded(noise(1, 6, 5, 4), "PNG", icc_profile=_EXCHANGED)
    stored = read(data, "rgba")
    converted = read(data, "rgba", to_srgb=True)
    np.testing.assert_array_equal(converted[..., 3], stored[..., 3])
    np.testing.assert_array_equal(
        converted[..., :3], in_srgb(Image.fromarray(stored[..., :3].copy()))
    )
    over = read(data, background=(255, 255, 255), to_srgb=True)
    alpha = converted[..., 3:].astype(float) / 255
    expected = np.floor(converted[..., :3] * alpha + 255 * (1 - alpha) + 0.5)
    assert abs(over - expected).max() <= 1


def test_palettes_and_gray():
    palette = Image.fromarray(COLORS).quantize(8)
    file = io.BytesIO()
    palette.save(file, "PNG", icc_profile=_EXCHANGED)
    np.testing.assert_array_equal(
        read(file.getvalue(), to_srgb=True), in_srgb(palette.convert("RGB"))
    )
    gray = encoded(noise(2, 6, 5), "PNG", icc_profile=_EXCHANGED)  # Pillow's own files have these
    expected = in_srgb(Image.fromarray(read(gray)))
    np.testing.assert_array_equal(read(gray, to_srgb=True), expected)


def test_sixteen_bits_are_rounded_first():
    values = noise(3, 5, 4).astype(np.uint16) * 257
    data = encoded(values, "PNG", icc_profile=_SRGB)
    stored = read(data)
    converted = read(data, to_srgb=True)
    assert converted.dtype == np.uint8
    assert abs(converted.astype(int) - stored).max() <= 1


def test_profiles_that_do_not_fit_are_errors():
    damaged = encoded(COLORS, "PNG", icc_profile=b"no profile")
    with pytest.raises(DataError, match="ICC profile cannot be used"):
        read(damaged, to_srgb=True)
    assert read(damaged).shape == COLORS.shape
    file = io.BytesIO()
    Image.fromarray(COLORS).convert("CMYK").save(file, "JPEG", icc_profile=_EXCHANGED)
    with pytest.raises(DataError, match="it is for RGB pixels, but the file has CMYK"):
        read(file.getvalue(), to_srgb=True)


@pytest.mark.parametrize("mode", ["index", "unchanged"])
@pytest.mark.parametrize("make", [Reader, lambda **options: read(b"", **options)])
def test_stored_values_have_no_colors(mode, make):
    with pytest.raises(ArgumentError, match=f"mode='{mode}' keeps the stored values"):
        make(mode=mode, to_srgb=True)


def test_the_option_is_a_bool():
    with pytest.raises(ArgumentError, match="to_srgb='yes'; it must be True or False"):
        Reader(to_srgb="yes")
