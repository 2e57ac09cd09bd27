"""`size=` makes batches of images; without `size=`, bytes of images raise an error with a fix."""

from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit import ArgumentError, Collator, DataError, ShapeError
from layoutkit.data import open_index, sampled_batcher
from layoutkit.images import Decoder, Reader, fit, read
from tests.helpers.photographs import noise, save
from tests.helpers.record_files import image, tar, write_rec


@pytest.fixture
def photos(tmp_path):
    """Write five images of different sizes into folders of two labels."""
    for number in range(5):
        label = "ab"[number % 2]
        save(tmp_path / "photos" / label / f"{number}.png", noise(number, 20 + number, 30, 3))
    return tmp_path / "photos"


@pytest.mark.parametrize("how", [None, "cover", "pad", "stretch"])
def test_images_of_one_size(photos, how):
    options = {} if how is None else {"fit": how}
    with sampled_batcher(photos, batch_size=3, size=(8, 12), **options) as batches:
        found = list(batches)
    assert repr(found[0].input) == "ImageView(bhwc (3, 8, 12, 3) uint8)"
    images = np.concatenate([batch.input.forward_get("bhwc") for batch in found])
    names = [record.url for batch in found for record in batch.item]
    assert len(names) == 5
    for pixels, name in zip(images, names, strict=True):
        np.testing.assert_array_equal(pixels, fit(read(name), (8, 12), how or "cover"))
    assert [rank for batch in found for rank in batch.target.input] == [0, 0, 0, 1, 1]


TURNED = [("tif", 6, {}), ("tiff", 8, {"compression": "tiff_lzw"}), ("jpg", 5, {}), ("png", 7, {})]


def as_source(kind, folder):
    """Return a source of the files in folder/a, by name."""
    paths = sorted((folder / "a").iterdir())
    if kind == "tar":
        (folder / "t.tar").write_bytes(tar([(path.name, path.read_bytes()) for path in paths]))
        return folder / "t.tar"
    if kind == "rec":
        write_rec(folder / "t.rec", [image(path.read_bytes(), 0) for path in paths])
        return folder / "t.rec"
    if kind == "csv":
        rows = "".join(f"a/{path.name}\n" for path in paths)
        (folder / "t.csv").write_text(f"filename\n{rows}")
        return folder / "t.csv"
    return folder if kind == "folder" else paths


@pytest.mark.parametrize("kind", ["folder", "list", "csv", "tar", "rec"])
def test_every_source_gives_the_pixels_of_read(kind, tmp_path):
    for number, (suffix, orientation, options) in enumerate(TURNED):
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = tmp_path / f"a/{number}.{suffix}"
        save(path, noise(number, 20, 40, 3), exif=exif, **options)
    pixels = [read(path) for path in sorted((tmp_path / "a").iterdir())]
    assert {x.shape for x in pixels} == {(40, 20, 3)}
    source = as_source(kind, tmp_path)
    order = {"batch_size": 4, "sampler": "sequential"}
    with sampled_batcher(source, size=(8, 12), **order) as batches:
        (batch,) = batches
    expected = np.stack([fit(x, (8, 12)) for x in pixels])
    np.testing.assert_array_equal(batch.input.input, expected)
    whole = Collator("hwc->bhwc", h=40, w=20)
    with sampled_batcher(source, collate=whole, **order) as batches:
        (batch,) = batches
    np.testing.assert_array_equal(batch.input.input, np.stack(pixels))


@pytest.mark.parametrize("library", [None, "pillow"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_decoder_makes_the_same_rows_for_each_record_and_for_a_batch(photos, library, dtype):
    decoder = Decoder((8, 12), "pad", fill=114, library=library)
    options = {"input_dims": decoder.input_dims, "dtype": dtype, "layout": "bhwc"}
    with sampled_batcher(photos, batch_size=5, processor=decoder, **options) as batches:
        (batch,) = batches
    for pixels, record in zip(batch.input.input, batch.item, strict=True):
        assert pixels.dtype == dtype
        np.testing.assert_array_equal(pixels, decoder(record.url))


def test_pixels_of_a_getter_that_uses_its_memory_again(photos):
    pixels = np.empty((20, 30, 3), np.uint8)

    def get(record):
        pixels[...] = record.position
        return pixels

    with sampled_batcher(photos, batch_size=5, size=(8, 8), get=get) as batches:
        (batch,) = batches
    assert batch.input.input[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_all_records_refused_in_a_batch_of_images(photos):
    with sampled_batcher(
        photos, batch_size=3, size=(8, 8), get=lambda r: None if r.position < 3 else read(r.url)
    ) as batches:
        first, second = batches
    assert first.input.shape == (0, 8, 8, 3)
    assert second.input.shape == (2, 8, 8, 3)


def test_a_table_of_images(photos, tmp_path):
    (tmp_path / "list.csv").write_text("filename,label\nphotos/a/0.png,x\nphotos/b/1.png,y\n")
    with sampled_batcher(tmp_path / "list.csv", batch_size=2, size=(8, 8)) as batches:
        (batch,) = batches
    assert batch.label == ["x", "y"]
    assert batch.input.input.shape == (2, 8, 8, 3)


def test_a_damaged_one_is_left_out_and_named(photos, caplog):
    (photos / "a" / "9.jpg").write_bytes(b"not an image")
    with sampled_batcher(photos, batch_size=8, size=(8, 8)) as batches:
        (batch,) = batches
    assert (batch.count, len(batch.dropped)) == (5, 1)
    assert "left out" in caplog.text
    assert "9.jpg: DataError: cannot be read as an image" in caplog.text


def test_nothing_but_damaged_ones_is_an_error(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"not an image")
    batches = sampled_batcher(tmp_path, batch_size=2, size=(8, 8))
    words = r"none of the 3 records .*0\.jpg and 2 more: DataError"
    with batches, pytest.raises(DataError, match=words):
        list(batches)


def test_bytes_of_images_are_no_rows(photos):
    for options in ({}, {"layout": "bhwc", "input_dims": (8, 8, 3), "dtype": "uint8"}):
        with pytest.raises(DataError, match=r"0\.png is an image.*size=\(height, width\)"):
            sampled_batcher(photos, batch_size=2, **options)
    # A processor may use the bytes on purpose.
    lengths = lambda data, out: np.array([len(data)])
    with sampled_batcher(open_index(photos), batch_size=5, processor=lengths) as batches:
        (batch,) = batches
    assert batch.input.input[:, 0].tolist() == [
        Path(record.url).stat().st_size for record in batch.item
    ]


def test_pixels_that_are_decoded_already_are_fitted():
    frames = noise(0, 4, 20, 30, 3)
    with sampled_batcher(frames, batch_size=4, size=(8, 8)) as batches:
        (batch,) = batches
    np.testing.assert_array_equal(batch.input.input, [fit(frame, (8, 8)) for frame in frames])
    with (
        sampled_batcher(frames[..., :2], batch_size=4, size=(8, 8)) as batches,
        pytest.raises(DataError, match=r"none of the 4 .* shape \(20, 30, 2\)"),
    ):
        list(batches)


def test_one_source_at_a_time(photos):
    with pytest.raises(DataError, match=r"images of one source, but there are 2"):
        sampled_batcher([photos, photos], batch_size=2, size=(8, 8))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"fit": "pad"}, DataError, "give size as well"),
        ({"size": (8, 8), "fit": "crop"}, ValueError, "'cover', 'pad', 'stretch'"),
        ({"size": 8}, ShapeError, r"it must be \(height, width\)"),
        ({"size": (8, 8), "processor": Decoder((8, 8))}, DataError, "processor= contradicts"),
        ({"size": (8, 8), "input_dims": (8, 8, 3)}, DataError, "input_dims= contradicts"),
        ({"size": (8, 8), "dtype": "float32"}, DataError, "dtype= contradicts.*give convert="),
        ({"size": (8, 8), "layout": "bchw"}, DataError, r"forward_get\('bchw'\)"),
    ],
)
def test_arguments_that_do_not_go_together(photos, options, error, words):
    with pytest.raises(error, match=words):
        sampled_batcher(photos, batch_size=2, **options)


def test_the_error_for_an_unknown_fit_names_the_argument_of_the_caller():
    with pytest.raises(ArgumentError, match=r"^fit is 'covr'; it must be one"):
        sampled_batcher("photos/*.jpg", size=(8, 8), batch_size=2, fit="covr")


def write_16_bits(folder):
    """Write a gray image of 16 bits, and return its values."""
    values = (np.arange(30, dtype=np.uint16) * 2000).reshape(5, 6)
    Image.fromarray(values).save(folder / "a.png")
    return values


NARROW = {
    "rows": {"processor": Reader(mode="unchanged")},
    "out": {"processor": Reader(mode="unchanged"), "input_dims": (5, 6, 1)},
    "numbers": {"processor": Reader(mode="index")},
    "decoder": {"processor": Decoder((5, 6), resize="nearest", mode="index")},
    "decoder, out": {
        "processor": Decoder((5, 6), resize="nearest", mode="index"),
        "input_dims": (5, 6),
    },
}


@pytest.mark.parametrize("name", NARROW)
def test_values_of_16_bits_never_become_bytes_by_themselves(name, tmp_path):
    write_16_bits(tmp_path)
    layout = "bhw" if NARROW[name]["processor"].mode == "index" else "bhwc"
    with (
        sampled_batcher(
            tmp_path, batch_size=1, dtype="uint8", layout=layout, **NARROW[name]
        ) as batches,
        pytest.raises(DataError, match="uint16"),
    ):
        next(iter(batches))


@pytest.mark.parametrize("dtype", ["uint16", "float32", "int64"])
@pytest.mark.parametrize("options", [{}, {"input_dims": (5, 6, 1)}])
def test_values_of_16_bits_in_wider_rows(dtype, options, tmp_path):
    values = write_16_bits(tmp_path)
    reader = Reader(mode="unchanged")
    with sampled_batcher(
        tmp_path, batch_size=1, processor=reader, dtype=dtype, layout="bhwc", **options
    ) as batches:
        (batch,) = batches
    result = batch.input.forward_get("bhwc")
    assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result)[0, ..., 0], values)


def test_values_of_16_bits_are_rounded_for_colors_and_gray(tmp_path):
    values = write_16_bits(tmp_path)
    expected = np.rint(values / 257)
    for options in (
        {"size": (5, 6)},
        {"processor": Decoder((5, 6), mode="gray"), "input_dims": (5, 6, 1), "dtype": "uint8"},
        {"processor": Reader(mode="gray"), "dtype": "uint8"},
        {"collate": Collator("hwc->bhwc", h=5, w=6)},
    ):
        layout = {} if "collate" in options else {"layout": "bhwc"}
        with sampled_batcher(tmp_path, batch_size=1, **options, **layout) as batches:
            (batch,) = batches
        pixels = np.asarray(batch.input.forward_get("bhwc"))
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels[0, ..., 0], expected)


def test_one_image_of_more_bits_among_others(tmp_path):
    write_16_bits(tmp_path)
    for number in range(3):
        Image.fromarray(np.zeros((5, 6), np.uint8)).save(tmp_path / f"b{number}.png")
    with sampled_batcher(
        tmp_path, processor=Reader(mode="unchanged"), layout="bhwc", batch_size=4, num_workers=1
    ) as batches:
        (batch,) = batches
    assert batch.input.shape == (3, 5, 6, 1)
    ((_, _, error),) = batch.dropped
    assert "dtype uint16, but most of the first batch have" in str(error)
