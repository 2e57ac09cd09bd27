"""The first rows of JPEGs: bit for bit the rows of the whole image, with the same errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")

from layoutkit import DataError
from layoutkit.images import Reader, reading
from layoutkit.images.reading import decode_jpeg, open_jpeg, read_jpeg_header
from tests.helpers.photographs import encoded, noise


def smooth(height, width, channels=3):
    """Return a smooth image, so that JPEGs of it are not only noise."""
    small = noise(height, 4, 5, channels).squeeze()
    return np.array(Image.fromarray(small).resize((width, height)))


@pytest.fixture
def heights(monkeypatch):
    """Return a list of the heights of the JPEGs that simplejpeg decodes."""
    module, seen = reading.simplejpeg_module(), []

    class Spy:
        def decode_jpeg(self, data, *arguments, **keywords):
            seen.append(read_jpeg_header(data).height)
            return module.decode_jpeg(data, *arguments, **keywords)

    monkeypatch.setattr(reading, "simplejpeg_module", Spy)
    return seen


@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 70)),
    rows=st.integers(1, 90),
    shrink=st.sampled_from([1, 2, 4, 8]),
    channels=st.sampled_from([1, 3]),
    options=st.fixed_dictionaries(
        {"quality": st.integers(5, 100)},
        optional={
            "subsampling": st.sampled_from([0, 1, 2]),
            "progressive": st.just(True),
            "optimize": st.just(True),
            "keep_rgb": st.just(True),
            "restart_marker_blocks": st.integers(1, 5),
            "restart_marker_rows": st.just(1),
        },
    ),
)
def test_first_rows_have_the_bits_of_the_whole_image(size, rows, shrink, channels, options):
    if "keep_rgb" in options:
        options = options | {"subsampling": 0}
    data = encoded(smooth(*size, channels), "JPEG", **options)
    header = read_jpeg_header(data)
    expected = decode_jpeg(data, header, shrink)
    result = decode_jpeg(data, header, shrink, rows)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result[:rows], expected[:rows])


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"subsampling": 0}, 56),  # blocks of 8 rows
        ({"subsampling": 1}, 56),
        ({"subsampling": 2}, 64),  # the colors of 16 rows are in one block
        ({"progressive": True}, 200),
        ({"restart_marker_rows": 1}, 200),
    ],
)
def test_only_the_blocks_of_these_rows_are_decoded(options, end, heights):
    data = encoded(smooth(200, 60), "JPEG", **options)
    open_jpeg(data, 3, None).decode(50)
    assert heights == [end]


def test_other_modes_and_formats_are_decoded_entirely():
    jpeg = encoded(smooth(60, 40), "JPEG")
    assert Reader().open_jpeg(jpeg).shape == (60, 40, 3)
    assert Reader(mode="gray").open_jpeg(jpeg).shape == (60, 40, 1)
    assert Reader((10, 10)).open_jpeg(jpeg).shape == (30, 20, 3)
    for other in (Reader(mode="unchanged"), Reader(mode="rgba"), Reader(frames="all")):
        assert other.open_jpeg(jpeg) is None
    exif = Image.Exif()
    exif[0x0112] = 6
    rotated = encoded(smooth(60, 40), "JPEG", exif=exif)
    for data in (encoded(smooth(60, 40)), rotated, memoryview(jpeg), b"", jpeg[:30]):
        assert Reader().open_jpeg(data) is None


@pytest.mark.parametrize("channels", [1, 3])
def test_gray_files_and_results(channels):
    for stored in (1, 3):
        data = encoded(smooth(90, 40, stored), "JPEG")
        expected = open_jpeg(data, channels, None).decode()
        result = open_jpeg(data, channels, None).decode(20)
        assert result.shape == (90, 40, channels)
        np.testing.assert_array_equal(result[:20], expected[:20])


def scan_of(data):
    """Return the index of the first byte of the pixels."""
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def test_damage_in_the_rows_is_an_error():
    data = encoded(smooth(400, 60), "JPEG", subsampling=2)
    start = scan_of(data)
    marker = data[: start + 40] + b"\xff\xd9" + data[start + 42 :]
    extra = data[: start + 40] + b"\xff\xe5" + data[start + 42 :]
    truncated = data[: start + 40]
    for damaged in (marker, extra, truncated):
        assert open_jpeg(damaged, 3, None).decode(100) is None
        assert open_jpeg(damaged, 3, None).decode() is None
        with pytest.raises(DataError):
            Reader()(truncated)


def test_a_truncated_file_is_an_error_for_all_rows():
    data = encoded(smooth(400, 60), "JPEG")
    for end in (len(data) - 2, len(data) - 40):
        assert open_jpeg(data[:end], 3, None).decode(20) is None


def test_damage_after_the_rows_is_not_seen():
    data = encoded(smooth(400, 60), "JPEG")
    damaged = data[:-100] + bytes(98) + data[-2:]
    assert open_jpeg(damaged, 3, None).decode() is None
    expected = open_jpeg(data, 3, None).decode()
    np.testing.assert_array_equal(open_jpeg(damaged, 3, None).decode(20)[:20], expected[:20])


def test_bytes_after_the_image_are_no_damage():
    data = encoded(smooth(400, 60), "JPEG") + b"more bytes \xff\xd9"
    expected = open_jpeg(data, 3, None).decode()
    result = open_jpeg(data, 3, None).decode(20)
    np.testing.assert_array_equal(result[:20], expected[:20])


def test_too_many_pixels(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="60x40 are 2,400 pixels, more than 100"):
        Reader().open_jpeg(encoded(smooth(60, 40), "JPEG"))
