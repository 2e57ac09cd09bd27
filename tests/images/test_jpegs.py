"""JPEGs decoded by simplejpeg and by Pillow: equal bit for bit, with equal errors."""

import io

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")

from layoutkit import DataError
from layoutkit.images import Decoder, Reader, read, reading
from layoutkit.images.reading import CHANNELS, ReadOptions, decode_pixels
from tests.helpers.photographs import encoded, noise

KINDS = [
    {},
    {"subsampling": 0},
    {"subsampling": 1},
    {"progressive": True},
    {"keep_rgb": True},
    {"restart_marker_rows": 1},
    {"icc_profile": b"\xff\xe1 is no segment here"},
    {"comment": b"words"},
]


def smooth(height, width):
    """Return a smooth image, so that JPEGs of it are not only noise."""
    return np.array(Image.fromarray(noise(height, 4, 5, 3)).resize((width, height)))


def slowly(monkeypatch, *arguments, **keywords):
    """Decode an image with Pillow."""
    with monkeypatch.context() as patch:
        patch.setattr(reading, "simplejpeg_module", lambda: None)
        return decode_pixels(*arguments, **keywords)


@pytest.fixture
def quick(monkeypatch):
    """Return a function that tells whether simplejpeg decoded the last image."""
    made = []

    def decoded(*arguments, really=reading.decode_jpeg):
        made.append(really(*arguments))
        return made[-1]

    monkeypatch.setattr(reading, "decode_jpeg", decoded)
    return lambda: bool(made) and made.pop() is not None


@pytest.mark.parametrize("mode", ["gray", "rgb"])
@pytest.mark.parametrize("options", KINDS)
def test_the_same_bits(options, mode, quick, monkeypatch):
    for height, width in [(33, 47), (1, 1), (8, 9), (101, 16)]:
        data = encoded(smooth(height, width), "JPEG", quality=87, **options)
        found = decode_pixels(data, ReadOptions(mode))
        assert quick()
        expected = slowly(monkeypatch, data, ReadOptions(mode))
        assert found.array.shape == (height, width, CHANNELS[mode])
        assert found[1:] == expected[1:] == (height, width)
        np.testing.assert_array_equal(found.array, expected.array)


@pytest.mark.parametrize("kind", [lambda x: x, bytes, bytearray, memoryview, "path", str])
@pytest.mark.parametrize("reads", [read, Reader(), Reader((9, 9)), Decoder((30, 40)).decode])
def test_everything_reads_with_simplejpeg(kind, reads, quick, tmp_path):
    data = encoded(smooth(33, 47), "JPEG")
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    source = path if kind == "path" else str(path) if kind is str else kind(data)
    np.testing.assert_array_equal(reads(source), decode_pixels(data).array)
    assert quick()
    assert quick()


@pytest.mark.parametrize("mode", ["gray", "rgb"])
def test_gray_files(mode, quick, monkeypatch):
    data = encoded(smooth(20, 30)[..., 0], "JPEG")
    found = decode_pixels(data, ReadOptions(mode)).array
    assert quick()
    np.testing.assert_array_equal(found, slowly(monkeypatch, data, ReadOptions(mode)).array)


@pytest.mark.parametrize("size", [(101, 143), (160, 160), (49, 400)])
@pytest.mark.parametrize("min_size", [(5, 5), (12, 12), (24, 30), (40, 40), (200, 200)])
def test_at_a_fraction_of_its_size(size, min_size, quick, monkeypatch):
    data = encoded(smooth(*size), "JPEG")
    found = decode_pixels(data, min_size=min_size)
    assert quick()
    expected = slowly(monkeypatch, data, min_size=min_size)
    np.testing.assert_array_equal(found.array, expected.array)
    assert found[1:] == size
    spare = min(side // (2 * each) for side, each in zip(size, min_size, strict=True))
    shrink = max(each for each in (1, 2, 4, 8) if each == 1 or each <= spare)
    assert found.array.shape[:2] == tuple(-(-side // shrink) for side in size)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_images(orientation, quick, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(smooth(40, 60), "JPEG", exif=exif)
    found = decode_pixels(data, min_size=(15, 9))
    assert quick() == (orientation == 1)
    expected = slowly(monkeypatch, data, min_size=(15, 9))
    np.testing.assert_array_equal(found.array, expected.array)
    # Only upright images of 60 rows have twice the rows that are needed.
    size, shape = ((60, 40), (30, 20, 3)) if orientation >= 5 else ((40, 60), (40, 60, 3))
    assert (found[1:], expected[1:], found.array.shape) == (size, size, shape)


def test_xmp_turns_images_as_pillow_reads_it(monkeypatch):
    file = io.BytesIO()
    xmp = b'<rdf:Description tiff:Orientation="8"/>'
    Image.fromarray(smooth(40, 60)).save(file, "JPEG", xmp=xmp)
    found = decode_pixels(file.getvalue()).array
    np.testing.assert_array_equal(found, slowly(monkeypatch, file.getvalue()).array)


def test_what_is_pillows(quick):
    cmyk = io.BytesIO()
    Image.fromarray(smooth(9, 8)).convert("CMYK").save(cmyk, "JPEG")
    for data in (cmyk.getvalue(), encoded(noise(0, 5, 6, 3))):
        np.testing.assert_array_equal(decode_pixels(data).array, read(data))
        assert not quick()


def test_alpha():
    four = noise(1, 5, 6, 4)
    np.testing.assert_array_equal(decode_pixels(encoded(four), ReadOptions("rgba")).array, four)
    opaque = decode_pixels(encoded(four[..., :3]), ReadOptions("rgba")).array
    np.testing.assert_array_equal(opaque[..., :3], four[..., :3])
    assert (opaque[..., 3] == 255).all()


@pytest.mark.parametrize("cut", [0, 1, 3, 20, 200, 400])
def test_damaged_files_fail_as_with_pillow(cut):
    data = encoded(smooth(40, 60), "JPEG")
    assert len(data) > 500
    with pytest.raises(DataError, match="cannot be read as an image"):
        decode_pixels(data[:cut])


def test_damage_that_pillow_forgives(monkeypatch):
    data = bytearray(encoded(noise(2, 64, 64, 3), "JPEG", quality=95))
    data[-300:-280] = bytes(20)
    found = decode_pixels(bytes(data)).array
    np.testing.assert_array_equal(found, slowly(monkeypatch, bytes(data)).array)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_too_many_pixels_are_refused_before_they_are_decoded(kind, monkeypatch):
    data = encoded(smooth(40, 60), kind)
    monkeypatch.setattr(reading, "decode_jpeg", None)
    monkeypatch.setattr(Image.Image, "convert", None)
    with pytest.raises(DataError, match=r"2,400 pixels, more than 2,399.*raise max_pixels"):
        decode_pixels(data, max_pixels=2399)
    with monkeypatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 2399)
        with pytest.raises(DataError, match=r"raise PIL\.Image\.MAX_IMAGE_PIXELS"):
            decode_pixels(data)
