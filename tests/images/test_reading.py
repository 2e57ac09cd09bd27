"""An image in a file or in bytes becomes upright RGB, or a DataError that says why not."""

import io
import struct
import subprocess
import sys
import zlib
from functools import partial
from itertools import product

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from PIL.PngImagePlugin import PngInfo

from layoutkit import ArgumentError, DataError, images
from layoutkit.images.reading import decode_pixels, upright_size
from tests.helpers.photographs import TURNED, encoded, noise, save

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


ALL = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16")
WITH_ORIENTATION = [
    ("TIFF", {}, (*ALL, "I;16B", "I", "RGBX", "LAB")),
    ("TIFF", {"big_tiff": True}, ("L", "RGB")),
    ("TIFF", {"strip_size": 100}, ("L", "RGB")),
    ("TIFF", {"compression": "tiff_lzw"}, ALL),
    ("TIFF", {"compression": "tiff_adobe_deflate"}, ("L", "RGB")),
    ("TIFF", {"compression": "packbits"}, ("L", "RGBA")),
    ("TIFF", {"compression": "jpeg"}, ("L", "RGB")),
    ("JPEG", {}, ("L", "RGB", "CMYK")),
    ("JPEG", {"progressive": True}, ("RGB",)),
    ("MPO", {}, ("L", "RGB")),
    ("PNG", {}, ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    ("WEBP", {}, ("RGB", "RGBA")),
    ("WEBP", {"lossless": True}, ("RGB",)),
    ("AVIF", {"speed": 10}, ("RGB",)),
]
WITHOUT_ORIENTATION = [
    ("BMP", {}, ("1", "L", "P", "RGB", "RGBA")),
    ("DDS", {}, ("L", "LA", "RGB", "RGBA")),
    ("GIF", {}, ("1", "L", "P", "RGB")),
    ("ICO", {"sizes": [(40, 24)]}, ("L", "RGB", "RGBA")),
    ("JPEG2000", {}, ("L", "LA", "RGB", "RGBA", "I;16")),
    ("PCX", {}, ("1", "L", "P", "RGB")),
    ("PPM", {}, ("1", "L", "RGB", "I;16")),
    ("QOI", {}, ("RGB", "RGBA")),
    ("SGI", {}, ("L", "RGB", "RGBA")),
    ("TGA", {}, ("L", "LA", "P", "RGB", "RGBA")),
    ("XBM", {}, ("1",)),
]


def stored(mode, kind, options, orientation):
    """Return a file as bytes, of 24 x 40 pixels before it is rotated."""
    pixels = noise(9, 24, 40, 3)
    if mode.startswith("I"):
        image = Image.fromarray(pixels.astype(np.uint16)[..., 0] << 8 | pixels[..., 1])
        image = image if mode == "I;16" else image.convert("I").convert(mode)
    else:
        image = Image.fromarray(pixels).convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, kind, exif=exif, **options)
    return file.getvalue()


def ways(path):
    """Yield the pixels of a file, read in every way."""
    data = path.read_bytes()
    for source in (str(path), path, data, memoryview(data), np.frombuffer(data, np.uint8)):
        yield images.read(source)
    yield images.Reader()(path)
    yield images.Reader((20, 20))(data)
    yield images.read(path, "rgba")[..., :3]


def check_all_ways(path, expected):
    """Compare the pixels and the size of a file with the expected pixels, in every way to read."""
    for found in ways(path):
        np.testing.assert_array_equal(found, expected)
    resized = images.Augmenter((3, 6, 6), dtype="uint8", resize=10)
    assert upright_size(path) == decode_pixels(path)[1:] == expected.shape[:2]
    fitted = images.Decoder((9, 12))(path)
    np.testing.assert_array_equal(fitted, images.fit(expected, (9, 12)))
    np.testing.assert_array_equal(resized(path), resized(expected))


@pytest.mark.budget(4)
@pytest.mark.parametrize(("kind", "options", "modes"), WITH_ORIENTATION)
def test_files_are_upright_in_every_way_to_read_them(kind, options, modes, tmp_path):
    path = tmp_path / "a.image"
    for mode in modes:
        plain = images.read(stored(mode, kind, options, 1))
        assert plain.shape == (24, 40, 3)
        for orientation in TURNED if mode == modes[-1] else (4, 6):
            path.write_bytes(stored(mode, kind, options, orientation))
            check_all_ways(path, np.ascontiguousarray(TURNED[orientation](plain)))


@pytest.mark.parametrize(("kind", "options", "modes"), WITHOUT_ORIENTATION)
def test_files_without_an_orientation(kind, options, modes, tmp_path):
    path = tmp_path / "a.image"
    for mode in modes:
        path.write_bytes(stored(mode, kind, options, 6))
        expected = images.read(path.read_bytes())
        assert expected.shape == (24, 40, 3)
        check_all_ways(path, expected)


@pytest.mark.parametrize("kind", ["TIFF", "PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", [3, 6, 7])
def test_orientations_in_xmp(kind, orientation, tmp_path):
    """Pillow turns a TIFF by it, too, but gives the size without it."""
    xmp = f'<rdf:Description tiff:Orientation="{orientation}"/>'
    options = {"tiffinfo": {700: xmp.encode()}} if kind == "TIFF" else {"xmp": xmp.encode()}
    if kind == "PNG":
        options = {"pnginfo": PngInfo()}
        options["pnginfo"].add_itxt("XML:com.adobe.xmp", xmp)
    path = save(tmp_path / "a.image", noise(9, 24, 40, 3), format=kind, **options)
    plain = images.read(encoded(noise(9, 24, 40, 3), kind))
    check_all_ways(path, np.ascontiguousarray(TURNED[orientation](plain)))


def test_gray_alpha_and_palettes():
    gray = noise(1, 6, 4)
    three = np.repeat(gray[..., None], 3, axis=2)
    np.testing.assert_array_equal(images.read(encoded(gray)), three)
    np.testing.assert_array_equal(
        images.read(encoded(noise(2, 6, 4, 4))), noise(2, 6, 4, 4)[..., :3]
    )
    palette = noise(3, 256, 3)
    image = Image.fromarray(gray)
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG")
    np.testing.assert_array_equal(images.read(file.getvalue()), palette[gray])


@pytest.mark.parametrize("turned", [False, True])
def test_sixteen_bits_are_scaled(turned):
    values = np.linspace(0, 65535, 24).reshape(6, 4).astype(np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(np.rot90(values).copy(), exif=exif) if turned else encoded(values)
    expected = np.rint(values / 257).astype(np.uint8)
    np.testing.assert_array_equal(images.read(data)[..., 2], expected)


def png16(values):
    """Return a PNG of uint16 (height, width, channels)."""
    height, width, channels = values.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), as_bytes(values, ">")], 1)
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def tiff16(values, order="<", compressed=False, orientation=1, cmyk=False):
    """Return a TIFF of uint16 (height, width, channels)."""
    height, width, channels = values.shape
    data = as_bytes(values, order).tobytes()
    data = zlib.compress(data) if compressed else data
    photometric = 5 if cmyk else 1 if channels == 1 else 2
    tags = [
        (256, width), (257, height), (258, 16), (259, 8 if compressed else 1), (262, photometric),
        (273, 8), (274, orientation), (277, channels), (278, height), (279, len(data)),
    ]  # fmt: skip
    if channels == 4 and not cmyk:
        tags.append((338, 2))
    entries = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in tags)
    start = struct.pack(f"{order}2sHI", {"<": b"II", ">": b"MM"}[order], 42, 8 + len(data))
    return start + data + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)


def tiff12(values, compressed):
    """Return a TIFF of gray values of 12 bits: two of them are in three bytes."""
    first, second = values[:, ::2], values[:, 1::2]
    three = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 2)
    data = three.astype(np.uint8).tobytes()
    data = zlib.compress(data) if compressed else data
    height, width = values.shape
    sizes = {256: width, 257: height, 258: 12, 278: height, 279: len(data)}
    tags = sizes | {259: 8 if compressed else 1, 262: 1, 273: 8, 277: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return struct.pack("<2sHI", b"II", 42, 8 + len(data)) + data + b"\x09\0" + entries + bytes(4)


def as_bytes(values, order):
    return values.astype(f"{order}u2").reshape(len(values), -1).view(np.uint8)


SIXTEEN_BITS = {
    "png": png16,
    "little": tiff16,
    "big": partial(tiff16, order=">"),
    "libtiff": partial(tiff16, compressed=True),
    "big, libtiff": partial(tiff16, order=">", compressed=True),
}


@pytest.mark.parametrize(
    ("kind", "channels"), [("png", 2), *product(SIXTEEN_BITS, [1, 3, 4])]
)  # Pillow reads two channels of 16 bits from PNG only
def test_sixteen_bits_are_rounded(kind, channels, tmp_path):
    edges = np.array([0, 127, 128, 129, 255, 256, 384, 385, 386, 65278, 65279, 65407, 65535])
    values = np.random.default_rng(0).choice(edges, (24, 40, channels)).astype(np.uint16)
    path = tmp_path / "a.image"
    path.write_bytes(SIXTEEN_BITS[kind](values))
    rounded = np.rint(values / 257).astype(np.uint8)
    colors = np.repeat(rounded[..., :1], 3, 2) if channels < 3 else rounded[..., :3]
    check_all_ways(path, np.ascontiguousarray(colors))
    alpha = rounded[..., channels - 1] if channels in (2, 4) else np.full((24, 40), 255)
    np.testing.assert_array_equal(images.read(path, "rgba")[..., 3], alpha)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("orientation", [1, 4, 6])
def test_sixteen_bits_are_turned(compressed, orientation, tmp_path):
    values = np.random.default_rng(0).integers(0, 1 << 16, (24, 40, 3), np.uint16)
    path = tmp_path / "a.tif"
    path.write_bytes(tiff16(values, compressed=compressed, orientation=orientation))
    expected = TURNED[orientation](np.rint(values / 257).astype(np.uint8))
    check_all_ways(path, np.ascontiguousarray(expected))


@pytest.mark.parametrize("compressed", [False, True])
def test_twelve_bits_are_rounded(compressed, tmp_path):
    values = np.random.default_rng(0).integers(0, 4096, (24, 40))
    path = tmp_path / "a.tif"
    path.write_bytes(tiff12(values, compressed))
    rounded = np.rint(values / 4095 * 255).astype(np.uint8)
    check_all_ways(path, np.repeat(rounded[..., None], 3, 2))


def test_sixteen_bits_of_cmyk_are_rounded():
    values = np.random.default_rng(0).integers(0, 1 << 16, (24, 40, 4), np.uint16)
    rounded = Image.frombytes("CMYK", (40, 24), np.rint(values / 257).astype(np.uint8).tobytes())
    found = images.read(tiff16(values, cmyk=True))
    np.testing.assert_array_equal(found, np.asarray(rounded.convert("RGB")))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4), "floats from 0 to 1"),
        (np.full((6, 4), 70000, np.int32), "from 70000 to 70000, outside 0..65535"),
        (np.full((6, 4), -1, np.int32), "from -1 to -1, outside 0..65535"),
    ],
)
def test_gray_values_without_a_white_are_refused(values, words):
    with pytest.raises(DataError, match=f"{words}.*8 or 16 bits"):
        images.read(encoded(values, "TIFF"))


@pytest.mark.parametrize("content", [b"", b"not an image", encoded(noise(0, 64, 64, 3))[:5000]])
def test_what_is_damaged_is_named(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.png: cannot be read as an image: .*repair"):
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


def test_names_of_other_libraries_lead_to_functions_of_this_one():
    for name, function in (("resize", "fit"), ("decode", "read"), ("imread", "read")):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use {function}\("):
            getattr(images, name)
    assert not hasattr(images, "spectrogram")
