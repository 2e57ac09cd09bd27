"""An image in a file or in bytes becomes upright RGB, or a DataError that says why not."""

import io
import subprocess
import sys

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from photographs import encoded, noise, save

from layoutkit import ArgumentError, DataError, images
from layoutkit.images.decode import upright_size

PIXELS = noise(0, 6, 4, 3)


@pytest.mark.parametrize("of", [str, lambda path: path, lambda path: path.read_bytes()])
def test_files_and_bytes(tmp_path, of):
    found = images.read(of(save(tmp_path / "a.png", PIXELS)))
    np.testing.assert_array_equal(found, PIXELS)
    assert found.dtype == np.uint8
    found[...] = 0  # the caller owns the memory


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda x: np.frombuffer(x, np.uint8)])
def test_everything_that_holds_bytes(kind):
    np.testing.assert_array_equal(images.read(kind(encoded(PIXELS))), PIXELS)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.swapaxes(0, 1),
        6: lambda x: np.rot90(x, 1),
        7: lambda x: np.rot90(x, 2).swapaxes(0, 1),
        8: lambda x: np.rot90(x, -1),
    }[orientation](PIXELS)
    data = encoded(np.ascontiguousarray(stored), exif=exif)
    np.testing.assert_array_equal(images.read(data), PIXELS)
    assert upright_size(data) == PIXELS.shape[:2]


def test_grey_alpha_and_palettes():
    grey = noise(1, 6, 4)
    three = np.repeat(grey[..., None], 3, axis=2)
    np.testing.assert_array_equal(images.read(encoded(grey)), three)
    np.testing.assert_array_equal(
        images.read(encoded(noise(2, 6, 4, 4))), noise(2, 6, 4, 4)[..., :3]
    )
    palette = noise(3, 256, 3)
    image = Image.fromarray(grey)
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG")
    np.testing.assert_array_equal(images.read(file.getvalue()), palette[grey])


@pytest.mark.parametrize("turned", [False, True])
def test_sixteen_bits_are_scaled(turned):
    values = np.linspace(0, 65535, 24).reshape(6, 4).astype(np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(np.rot90(values).copy(), exif=exif) if turned else encoded(values)
    expected = np.rint(values / 257).astype(np.uint8)
    np.testing.assert_array_equal(images.read(data)[..., 2], expected)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4), "floats from 0 to 1"),
        (np.full((6, 4), 70000, np.int32), "from 70000 to 70000, outside 0..65535"),
        (np.full((6, 4), -1, np.int32), "from -1 to -1, outside 0..65535"),
    ],
)
def test_grey_values_without_a_white_are_refused(values, words):
    with pytest.raises(DataError, match=f"{words}.*8 or 16 bits"):
        images.read(encoded(values, "TIFF"))


@pytest.mark.parametrize("content", [b"", b"not an image", encoded(noise(0, 64, 64, 3))[:5000]])
def test_what_is_damaged_is_named(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.png: cannot be read as an image \(.*repair"):
        images.read(path)
    with pytest.raises(DataError, match=r"^cannot be read as an image"):
        images.read(content)


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        images.read(tmp_path / "none.png")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("limit", [20, 8])
def test_a_bomb_is_not_decoded(monkeypatch, limit):
    """Test sizes above Pillow's limit (Pillow warns) and above twice the limit (Pillow raises)."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(DataError, match="decompression bomb"):
        images.read(encoded(PIXELS))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert images.read(encoded(PIXELS)).shape == (6, 4, 3)


@pytest.mark.parametrize("source", [3, None, [1, 2], PIXELS, np.zeros(4, np.int64)])
def test_what_is_neither_a_path_nor_bytes(source):
    with pytest.raises(ArgumentError, match="bytes"):
        images.read(source)


def test_what_holds_an_image_is_said_how_to_pass():
    with pytest.raises(ArgumentError, match=r"decoded already: pass it to images\.fit or convert"):
        images.read(Image.new("L", (2, 3)))
    with pytest.raises(ArgumentError, match=r"pass the result of its read\(\)"):
        images.read(io.BytesIO())


def test_a_url_is_no_path():
    with pytest.raises(ArgumentError, match=r"is a URL; .*sampled_batcher"):
        images.read("https://example.org/a.jpg")


def test_without_pillow_the_extra_is_named(monkeypatch, tmp_path):
    data = encoded(PIXELS)
    monkeypatch.setitem(sys.modules, "PIL", None)
    for call in (lambda: images.read(data), lambda: images.Decoder((8, 8))):
        with pytest.raises(ArgumentError, match=r'pip install "layoutkit\[images\]"'):
            call()


def test_it_is_imported_without_pillow_and_opencv():
    code = "import sys, layoutkit.images; print({'PIL', 'cv2'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
