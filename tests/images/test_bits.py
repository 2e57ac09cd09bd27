"""Every bit and band of a file: mode="unchanged" with Pillow and, for other TIFFs, tifffile."""

import io
import sys

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit import ArgumentError, Collator, DataError, ShapeError, images
from layoutkit.data import sampled_batcher
from tests.helpers.image_files import png_file
from tests.helpers.photographs import TURNED, encoded, noise

RANDOM = np.random.default_rng(0)
SHAPE = (11, 13)


def whole(dtype, *shape):
    """Return random values of an integer or float dtype, with its extremes."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return RANDOM.normal(0, 1000, shape).astype(dtype)
    limits = np.iinfo(dtype)
    values = RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    values.flat[:2] = limits.min, limits.max
    return values


def check_unchanged(data, values, **options):
    """Compare the pixels of a file with the values saved in it: shape, dtype and bits."""
    pixels = images.read(data, "unchanged", **options)
    np.testing.assert_array_equal(pixels, values)
    assert pixels.dtype == values.dtype
    assert pixels.dtype.isnative
    pixels[...] = 0  # the caller owns the memory


# ---- Pillow ------------------------------------------------------------------------------


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("bits", [8, 16])
def test_png_files(bits, channels, interlaced):
    values = whole(f"uint{bits}", *SHAPE, channels)
    check_unchanged(png_file(values, bits, interlaced=interlaced), values)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32"])
@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate"])
def test_gray_tiffs_of_pillow(dtype, compression):
    values = whole(dtype, *SHAPE)
    check_unchanged(encoded(values, "TIFF", compression=compression), values[..., None])


def test_palettes_become_colors():
    values = whole("uint8", *SHAPE, 1)
    palette = noise(1, 256, 3)
    check_unchanged(png_file(values, 8, palette), palette[values[..., 0]])
    table = np.concatenate([palette, np.full((256, 1), 255, np.uint8)], 1)
    table[:2, 3] = 0, 9
    check_unchanged(png_file(values, 8, palette, b"\0\x09"), table[values[..., 0]])


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_bits_become_eight(bits):
    values = RANDOM.integers(0, 1 << bits, (*SHAPE, 1), np.uint8)
    check_unchanged(png_file(values, bits), values * np.uint8(255 // ((1 << bits) - 1)))


def test_a_color_key_is_no_channel():
    values = whole("uint16", *SHAPE, 3)
    check_unchanged(png_file(values, 16, None, values[2, 1].astype(">u2").tobytes()), values)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpegs(mode):
    file = io.BytesIO()
    Image.fromarray(noise(0, 20, 30, 3)).convert(mode).save(file, "JPEG")
    with Image.open(file) as image:
        expected = np.asarray(image).reshape(20, 30, -1)
    check_unchanged(file.getvalue(), expected)


def test_floats_are_not_reduced_but_read():
    data = encoded(whole("float32", *SHAPE), "TIFF")
    with pytest.raises(DataError, match=r'read the values with .*mode="unchanged"'):
        images.read(data)


def test_decoders_need_a_known_shape():
    with pytest.raises(ArgumentError, match=r'processor=Reader\(mode="unchanged"\)'):
        images.Decoder((4, 4), mode="unchanged")


def test_readers_of_decoded_pixels():
    reader = images.Reader(mode="unchanged")
    values = whole("uint16", *SHAPE, 7)
    np.testing.assert_array_equal(reader(values), values)
    with pytest.raises(ShapeError, match=r"must be \(height, width, channels\)"):
        reader(values[..., 0])


def test_batches_of_depth_maps(tmp_path):
    """16-bit millimeters to float32 meters, resized: nothing is rounded to 8 bits on the way."""
    depths = [whole("uint16", 20 + i, 30, 1) for i in range(3)]
    for number, depth in enumerate(depths):
        (tmp_path / f"{number}.png").write_bytes(png_file(depth, 16))
    collator = Collator("hwc->bchw", h=10, w=12, resize="bilinear", dtype="float32", scale=1 / 1000)
    reader = images.Reader(mode="unchanged")
    with sampled_batcher(
        str(tmp_path), processor=reader, collate=collator, sampler="sequential", batch_size=3
    ) as batches:
        x = next(iter(batches)).input.forward_get("bchw")
    np.testing.assert_array_equal(x, collator(depths))


# ---- tifffile ----------------------------------------------------------------------------


@pytest.fixture
def tifffile():
    """Return the module tifffile, or skip the test."""
    return pytest.importorskip("tifffile", reason="tifffile is not installed")


BANDS = {"photometric": "minisblack", "planarconfig": "contig"}  # not pages of one band


def tiff_file(tifffile, values, **options):
    """Return a TIFF as bytes."""
    file = io.BytesIO()
    tifffile.imwrite(file, values, **options)
    return file.getvalue()


DTYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bands", [1, 2, 3, 4, 5, 13])
def test_tiffs_of_every_dtype_and_number_of_bands(tifffile, dtype, bands):
    values = whole(dtype, *SHAPE, bands)
    for options in (
        {},
        {"bigtiff": True, "byteorder": ">"},
        {"planarconfig": "separate"},
        {"compression": "zlib"},
        {"tile": (16, 16)},
    ):
        planes = np.moveaxis(values, 2, 0) if "planarconfig" in options else values
        photometric = "rgb" if bands in (3, 4) and values.dtype.kind == "u" else "minisblack"
        layout = {"planarconfig": "contig", "photometric": photometric, "metadata": None}
        if bands == 1:
            layout.pop("planarconfig")
            options = {k: value for k, value in options.items() if k != "planarconfig"}
            planes = values[..., 0]
        check_unchanged(tiff_file(tifffile, planes, **layout | options), values)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("dtype", "bands"), [("uint16", 6), ("float64", 1), ("uint16", 3)])
def test_tiffs_are_turned_upright(tifffile, orientation, dtype, bands):
    values = whole(dtype, *SHAPE, bands)
    tags = [(274, 3, 1, orientation, True)]
    layout = BANDS if bands > 1 else {}
    stored = values[..., 0] if bands == 1 else values
    data = tiff_file(tifffile, stored, extratags=tags, metadata=None, **layout)
    check_unchanged(data, TURNED[orientation](values))


def test_bands_are_batched_and_selected(tifffile, tmp_path):
    values = [whole("uint16", *SHAPE, 13) for _ in range(2)]
    for number, bands in enumerate(values):
        path = tmp_path / f"{number}.tif"
        path.write_bytes(tiff_file(tifffile, bands, **BANDS))
    collator = Collator("hwc->bchw", h=11, w=13, channels=(3, 2, 1))
    with sampled_batcher(
        str(tmp_path), processor=images.Reader(mode="unchanged"), collate=collator,
        sampler="sequential", batch_size=2,
    ) as batches:  # fmt: skip
        x = next(iter(batches)).input.forward_get("bchw")
    np.testing.assert_array_equal(x, collator(values))


def test_other_modes_name_the_mode_that_reads_bands(tifffile):
    data = tiff_file(tifffile, whole("uint16", *SHAPE, 6), **BANDS)
    for mode in ("rgb", "gray", "index"):
        with pytest.raises(DataError, match='mode="unchanged" may read this TIFF'):
            images.read(data, mode)


def test_without_tifffile_the_extra_is_named(tifffile, monkeypatch):
    data = tiff_file(tifffile, whole("float64", *SHAPE))
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(ArgumentError, match=r'pip install "layoutkit\[tiff\]"'):
        images.read(data, "unchanged")
    check_unchanged(encoded(noise(0, 6, 4), "TIFF"), noise(0, 6, 4, 1))


def test_a_tiff_bomb_is_not_decoded(tifffile, monkeypatch):
    data = tiff_file(tifffile, np.zeros((20, 30, 9)), **BANDS, compression="zlib")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3 * 600)
    assert images.read(data, "unchanged").shape == (20, 30, 9)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3 * 600 - 1)
    with pytest.raises(DataError, match=r"3 images of 20x30 are 1,800 pixels.*bomb"):
        images.read(data, "unchanged")


def test_sizes_that_a_tiff_only_claims_are_refused(tifffile):
    data = bytearray(tiff_file(tifffile, whole("uint16", *SHAPE, 6), **BANDS))
    with tifffile.TiffFile(io.BytesIO(data)) as tiff:
        tag = tiff.pages[0].tags["ImageLength"]
    data[tag.valueoffset : tag.valueoffset + tag.valuebytecount] = b"\xff" * tag.valuebytecount
    with pytest.raises(DataError, match="decompression bomb"):
        images.read(bytes(data), "unchanged")


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # of Pillow
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_damaged_tiffs_are_errors(tifffile, compression, tmp_path):
    """Cut files, and files with any byte of the header or of the tags replaced."""
    values = whole("uint16", *SHAPE, 6)
    whole_file = tiff_file(tifffile, values, **BANDS, compression=compression, rowsperstrip=4)
    for size in {*range(0, len(whole_file) - 1, 97), 3, 7, 8, 9}:
        with pytest.raises(DataError):
            images.read(whole_file[:size], "unchanged")
    errors = 0
    for position in range(min(len(whole_file), 300)):
        damaged = bytearray(whole_file)
        damaged[position] ^= 0xFF
        try:
            images.read(bytes(damaged), "unchanged")
        except DataError:
            errors += 1
    assert errors > 20
