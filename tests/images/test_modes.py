"""What the pixels of a file become: class numbers, gray, alpha kept or over a color."""

import io
import pickle
import struct
from itertools import product

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit import (
    ArgumentError,
    Collator,
    Converter,
    DataError,
    DtypeError,
    ShapeError,
    images,
)
from layoutkit.data import sampled_batcher
from layoutkit.images.reading import find_mode
from tests.helpers.image_files import png_file
from tests.helpers.photographs import encoded, noise, save

PALETTE = noise(5, 256, 3)


def classes(count, height=11, width=13, seed=0):
    """Return class numbers, uint8 (height, width), of which the last one occurs."""
    values = np.random.default_rng(seed).integers(0, count, (height, width), np.uint8)
    values[-1, -1] = count - 1
    return values


# ---- class numbers -----------------------------------------------------------------------


@pytest.mark.parametrize("has_palette", [True, False])
@pytest.mark.parametrize("transparency", [None, b"\0\xff"])
@pytest.mark.parametrize(("bits", "interlaced"), [*product([1, 2, 4, 8], [False, True])])
def test_class_numbers_of_png_files(bits, interlaced, transparency, has_palette):
    """The last color of the palette is missing in half of the files; no number depends on it."""
    values = classes(1 << bits)
    palette = PALETTE[: 1 << bits] if has_palette else None
    data = png_file(values[..., None], bits, palette, transparency, interlaced)
    numbers = images.read(data, "index")
    np.testing.assert_array_equal(numbers, values)
    assert numbers.dtype == np.uint8
    numbers[...] = 0  # the caller owns the memory


def test_class_numbers_beyond_the_palette_are_kept():
    values = classes(256)
    data = png_file(values[..., None], 8, PALETTE[:21])
    np.testing.assert_array_equal(images.read(data, "index"), values)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("GIF", "P"), ("GIF", "L"), *product(["TIFF", "BMP", "PCX", "TGA"], ["P", "L", "1"])],
)
def test_class_numbers_of_other_formats(kind, mode):
    values = classes(2 if mode == "1" else 256)
    image = Image.fromarray(values if mode != "1" else values.astype(bool))
    if mode == "P":
        image.putpalette(PALETTE.tobytes())
    file = io.BytesIO()
    options = {"optimize": False} if kind == "GIF" else {}  # Pillow would number the colors anew
    image.save(file, kind, **options)
    np.testing.assert_array_equal(images.read(file.getvalue(), "index"), values)


def gray_tiff(values, bits, photometric):
    """Return a TIFF (height, width) of unsigned integers; photometric 0 says that 0 is white."""
    height, width = values.shape
    in_bits = np.unpackbits(values[..., None], axis=2)[..., 8 - bits :].reshape(height, -1)
    data = np.packbits(in_bits, axis=1).tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1}
    tags |= {278: height, 279: len(data)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return struct.pack("<2sHI", b"II", 42, 8 + len(data)) + data + b"\x09\0" + entries + bytes(4)


@pytest.mark.parametrize(("bits", "photometric"), [*product([1, 2, 4, 8], [0, 1])])
def test_class_numbers_of_gray_tiffs_are_as_stored(bits, photometric):
    values = classes(1 << bits)
    np.testing.assert_array_equal(
        images.read(gray_tiff(values, bits, photometric), "index"), values
    )


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_more_classes_than_bytes_hold(kind):
    values = np.array([[0, 255, 256], [999, 65534, 65535]], np.uint16)
    numbers = images.read(encoded(values, kind), "index")
    np.testing.assert_array_equal(numbers, values)
    assert numbers.dtype == np.uint16


def test_class_numbers_are_turned_upright():
    values = classes(21)
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(np.rot90(values).copy())
    image.putpalette(PALETTE.tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    np.testing.assert_array_equal(images.read(file.getvalue(), "index"), values)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encoded(noise(0, 6, 4, 3)), "RGB colors, not class numbers"),
        (encoded(noise(0, 6, 4, 4)), "RGBA colors, not class numbers"),
        (encoded(noise(0, 6, 4, 2)), "LA colors, not class numbers"),
        (encoded(noise(0, 6, 4), "JPEG"), "a JPEG image, whose values may differ"),
        (encoded(noise(0, 6, 4), "PPM"), "a PPM image, whose values may differ"),
        (encoded(noise(0, 6, 4), "TIFF", compression="jpeg"), "a TIFF image, whose values"),
        (encoded(noise(0, 6, 4, 3), "WEBP"), "a WEBP image, whose values may differ"),
    ],
)
def test_files_without_class_numbers_are_refused(data, words):
    with pytest.raises(DataError, match=words):
        images.read(data, "index")


@pytest.mark.parametrize("cut", [30, 60, 120])
def test_truncated_class_numbers_are_an_error(cut):
    data = png_file(classes(256)[..., None], 8, PALETTE)
    with pytest.raises(DataError, match="cannot be read as an image"):
        images.read(data[: len(data) - cut], "index")


# ---- alpha -------------------------------------------------------------------------------


def over(pixels, background):
    """Return uint8 RGBA over a color, computed with floats and rounded."""
    weights = pixels[..., 3:] / 255
    return np.floor(pixels[..., :3] * weights + (1 - weights) * background + 0.5).astype(np.uint8)


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 0, 0), (1, 128, 250)])
def test_alpha_is_composed_over_a_color(background):
    value, alpha = np.meshgrid(np.arange(256), np.arange(256))
    pixels = np.stack([value, value[::-1], value[:, ::-1], alpha], 2).astype(np.uint8)
    data = encoded(pixels)
    near = images.read(data, background=background)
    np.testing.assert_array_equal(near, over(pixels, background))
    np.testing.assert_array_equal(images.read(data), pixels[..., :3])
    np.testing.assert_array_equal(images.read(data, "rgba"), pixels)


def kinds_of_transparency():
    """Yield the name of each way to store alpha, a file, and its pixels as RGBA."""
    gray, alpha = noise(0, 6, 4), noise(1, 6, 4)
    yield "gray", encoded(np.stack([gray, alpha], 2)), np.stack([gray, gray, gray, alpha], 2)
    colors = noise(2, 6, 4, 4)
    yield "color", encoded(colors), colors
    yield "webp", encoded(colors, "WEBP", lossless=True, exact=True), colors
    yield "tiff", encoded(colors, "TIFF"), colors
    values = classes(16, 6, 4)
    table = np.concatenate([PALETTE[:16], np.full((16, 1), 255, np.uint8)], 1)
    table[:3, 3] = 0, 100, 200
    yield "palette", png_file(values[..., None], 4, PALETTE[:16], b"\0\x64\xc8"), table[values]
    three = noise(3, 6, 4, 3)
    opaque = np.full((6, 4, 1), 255, np.uint8)
    opaque[2, 1] = 0
    key = struct.pack(">3H", *three[2, 1])
    yield "color key", png_file(three, 8, None, key), np.concatenate([three, opaque], 2)
    deep = np.random.default_rng(0).integers(0, 1 << 16, (6, 4, 3), np.uint16)
    rounded = np.rint(deep / 257).astype(np.uint8)
    key = struct.pack(">3H", *deep[2, 1])
    yield "16-bit color key", png_file(deep, 16, None, key), np.concatenate([rounded, opaque], 2)
    one = np.repeat(deep[..., :1], 3, 2)
    key = struct.pack(">H", deep[2, 1, 0])
    rounded = np.rint(one / 257).astype(np.uint8)
    yield (
        "16-bit gray key",
        png_file(deep[..., :1], 16, None, key),
        np.concatenate([rounded, opaque], 2),
    )


@pytest.mark.parametrize(
    ("data", "pixels"),
    [pytest.param(data, pixels, id=name) for name, data, pixels in kinds_of_transparency()],
)
def test_every_kind_of_transparency(data, pixels):
    color = (250, 128, 3)
    np.testing.assert_array_equal(images.read(data, "rgba"), pixels)
    np.testing.assert_array_equal(images.read(data, background=color), over(pixels, color))
    np.testing.assert_array_equal(images.read(data), pixels[..., :3])
    np.testing.assert_array_equal(images.read(data, background=255), over(pixels, (255, 255, 255)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_background_does_not_change_opaque_files(kind):
    data = encoded(noise(0, 20, 30, 3), kind)
    np.testing.assert_array_equal(images.read(data, background=7), images.read(data))
    assert (images.read(data, "rgba")[..., 3] == 255).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_gray_is_weighted_as_pillow_does(kind):
    data = encoded(noise(0, 20, 30, 3), kind)
    gray = images.read(data, "gray")
    np.testing.assert_array_equal(gray[..., 0], Image.fromarray(images.read(data)).convert("L"))
    assert gray.shape == (20, 30, 1)
    four = noise(1, 6, 4, 4)
    mixed = Image.fromarray(over(four, (9, 9, 9))).convert("L")
    np.testing.assert_array_equal(images.read(encoded(four), "gray", background=9)[..., 0], mixed)


@pytest.mark.parametrize(
    "background",
    ["white", b"abc", 256, -1, (1, 2), (0.5, 0, 0), [[1, 2, 3]], [1, [2]], [], True, np.nan],
)
def test_invalid_backgrounds(background):
    with pytest.raises(ArgumentError, match=r"an integer in 0\.\.255, or three of them"):
        images.read(encoded(noise(0, 2, 2, 3)), background=background)


@pytest.mark.parametrize("mode", ["index", "rgba"])
def test_a_background_needs_a_mode_that_drops_alpha(mode):
    for call in (images.Reader, lambda **options: images.read(b"", **options)):
        with pytest.raises(ArgumentError, match="omit background"):
            call(mode=mode, background=0)


def test_unknown_modes():
    for call in (images.Reader, lambda **options: images.Decoder((2, 2), **options)):
        with pytest.raises(ArgumentError, match="mode is 'L'; it must be one of 'rgb'"):
            call(mode="L")


# ---- Reader, Decoder and batches ---------------------------------------------------------


@pytest.mark.parametrize(("mode", "shape"), [("rgb", (3,)), ("rgba", (4,)), ("gray", (1,))])
def test_decoders_of_every_mode(mode, shape):
    data = encoded(noise(0, 20, 30, 4))
    decoder = images.Decoder((10, 12), mode=mode)
    assert decoder.input_dims == (10, 12, *shape)
    fitted = images.fit(images.read(data, mode), (10, 12))
    np.testing.assert_array_equal(decoder(data), fitted)
    np.testing.assert_array_equal(decoder.collator()([decoder.reader(data)])[0], fitted)
    np.testing.assert_array_equal(decoder(images.read(data, mode)), fitted)
    with pytest.raises(ShapeError, match=r"must be uint8 \(height, width, "):
        decoder(np.zeros((6, 4, 2), np.uint8))


def test_decoders_of_class_numbers():
    values = classes(21)
    data = png_file(values[..., None], 8, PALETTE)
    decoder = images.Decoder((22, 26), resize="nearest", mode="index")
    assert decoder.input_dims == (22, 26)
    np.testing.assert_array_equal(decoder(data), values.repeat(2, 0).repeat(2, 1))
    np.testing.assert_array_equal(decoder(values), decoder(data))
    with pytest.raises(ArgumentError, match='give resize="nearest"'):
        images.Decoder((22, 26), mode="index")
    with pytest.raises(ShapeError, match=r"must be \(height, width\)"):
        decoder(np.zeros((6, 4, 3), np.uint8))


def test_more_classes_than_a_decoder_resizes():
    values = np.arange(200, 350).astype(np.uint16).reshape(10, 15)
    data = encoded(values, "PNG")
    decoder = images.Decoder((20, 30), resize="nearest", mode="index")
    with pytest.raises(DtypeError, match="class numbers are uint16") as caught:
        decoder(data)
    assert 'Collator("hw->bhw", h=20, w=30, resize="nearest")' in str(caught.value)
    collator = Collator("hw->bhw", h=20, w=30, resize="nearest")
    resized = collator([images.Reader(mode="index")(data)])
    np.testing.assert_array_equal(resized[0], values.repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize("read", [images.Reader(), images.Decoder((4, 5), library="pillow")])
def test_out_has_to_be_writable(read):
    out = np.zeros((4, 5, 3), np.uint8)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="out is read-only"):
        read(encoded(noise(0, 4, 5, 3)), out=out)


def test_readers_compare_and_pickle():
    reader = images.Reader(background=255)
    assert reader == images.Reader(background=(255, 255, 255)) != images.Reader()
    assert pickle.loads(pickle.dumps(reader)) == reader
    decoder = images.Decoder((4, 4), background=[1, 2, 3])
    assert decoder == images.Decoder((4, 4), background=(1, 2, 3))
    assert decoder.reader == images.Reader((4, 4), background=(1, 2, 3))


@pytest.fixture
def masks(tmp_path):
    """Return the folder and the class numbers of four masks."""
    numbers = [classes(21, seed=seed) for seed in range(4)]
    for number, values in enumerate(numbers):
        data = png_file(values[..., None], 8, PALETTE)
        (tmp_path / f"{number}.png").write_bytes(data)
    return tmp_path, np.stack(numbers)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_class_numbers(masks, workers):
    folder, numbers = masks
    whole = Collator("hw->bhw", h=11, w=13)
    decoder = images.Decoder((11, 13), resize="nearest", mode="index")
    rows = {"input_dims": (11, 13), "dtype": "uint8", "layout": "bhw"}
    for options in (
        {"collate": whole, "processor": images.Reader(mode="index")},
        {"collate": whole, "processor": decoder},
        {"processor": decoder, **rows},
    ):
        with sampled_batcher(
            str(folder), sampler="sequential", batch_size=4, num_workers=workers, **options
        ) as batches:
            x = next(iter(batches)).input.forward_get("bhw")
        np.testing.assert_array_equal(x, numbers)


def test_batches_over_a_color(tmp_path):
    pixels = noise(0, 6, 4, 4)
    save(tmp_path / "a.png", pixels)
    expected = over(pixels, (255, 255, 255))
    decoder = images.Decoder((6, 4), background=255)
    rows = {"input_dims": (6, 4, 3), "dtype": "uint8", "layout": "bhwc"}
    collated = {"collate": Collator("hwc->bhwc", h=6, w=4)}
    for options in ({"processor": decoder, **rows}, {"processor": decoder.reader, **collated}):
        with sampled_batcher(str(tmp_path), batch_size=1, **options) as batches:
            x = next(iter(batches)).input.forward_get("bhwc")
        np.testing.assert_array_equal(x[0], expected)


# ---- keywords of other libraries -------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "value", "mode"),
    [
        ("gray", True, "gray"), ("grayscale", False, "rgb"), ("as_gray", True, "gray"),
        ("channels", 1, "gray"), ("num_channels", 4, "rgba"), ("color", False, "gray"),
        ("color_mode", "grayscale", "gray"), ("pilmode", "RGB", "rgb"),
    ],
)  # fmt: skip
def test_keywords_of_other_libraries_name_the_mode(tmp_path, keyword, value, mode):
    Image.fromarray(noise(2, 9, 8, 3)).save(tmp_path / "0.png")
    words = {keyword: value}
    for make in (
        lambda **k: images.read(tmp_path / "0.png", **k),
        images.Reader,
        lambda **k: images.Decoder((4, 5), **k),
    ):
        with pytest.raises(ArgumentError, match=f'has no {keyword}=; give mode="{mode}"$'):
            make(**words)
        make(mode=mode)  # the cure
    for size in ({}, {"size": (4, 5)}):
        with pytest.raises(DataError, match=f"has no {keyword}=; give processor=images") as error:
            sampled_batcher(str(tmp_path), batch_size=1, **size, **words)
        code = str(error.value).partition("processor=")[2].removesuffix(" in place of size=")
        step = eval(code, {"images": images})
        assert step.mode == mode
        if size:
            with sampled_batcher(str(tmp_path), batch_size=1, processor=step) as batches:
                assert next(iter(batches)).input.shape == (1, *step.input_dims)


def test_unknown_keywords_of_images_name_the_known_ones():
    with pytest.raises(ArgumentError, match="did you mean background="):
        images.read(b"", backgrund=0)
    with pytest.raises(ArgumentError, match="Reader has no size=; there are min_size, mode,"):
        images.Reader(size=(4, 5))
    assert find_mode("channels", 2) is None
    assert find_mode("mode", "gray") is None


def test_rows_of_a_decoder_need_no_further_description(tmp_path):
    save(tmp_path / "0.png", classes(9))
    for mode, resize, layout in (("index", "nearest", "bhw"), ("rgba", "area", "bhwc")):
        decoder = images.Decoder((4, 5), mode=mode, resize=resize)
        with sampled_batcher(str(tmp_path), batch_size=1, processor=decoder) as batches:
            x = next(iter(batches)).input
        assert x.layout == layout
        np.testing.assert_array_equal(x.input[0], decoder(tmp_path / "0.png"))
    to_planes = Converter("byxc->bcyx")  # has names of its own for the axes
    with sampled_batcher(
        str(tmp_path), batch_size=1, processor=decoder, convert=to_planes
    ) as batches:
        assert next(iter(batches)).input.shape == (1, 4, 4, 5)
