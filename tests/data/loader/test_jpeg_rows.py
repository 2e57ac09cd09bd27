"""JPEGs of which only the rows that a Collator reads are decoded: the same batches and errors."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")

from layoutkit import Collator
from layoutkit.data import sampled_batcher
from layoutkit.images import Reader
from layoutkit.images.reading import UprightJpeg
from layoutkit.planning.batch.weights import find_read_ends
from layoutkit.planning.resize import FILTERS
from tests.helpers.photographs import encoded, noise

SIZES = {"h": 24, "w": 32}
CROPS = {
    "random": {**SIZES, "resize": "bilinear", "crop": "random", "flip": "random"},
    "lanczos": {**SIZES, "resize": "lanczos", "crop": "random", "flip": {"h": "random"}},
    "fixed": {**SIZES, "resize": "area", "crop": {"h": 50, "w": 50}, "offset": {"h": 3, "w": 0}},
    "cover": {**SIZES, "resize": "bicubic", "fit": "cover", "crop": "random"},
    "window": {**SIZES, "offset": "random"},
    "filled": {"h": 90, "w": 40, "fill": 7},
}
UNUSED = {
    "stretch": {**SIZES, "resize": "bilinear"},
    "longest": {"h": "longest", "w": "longest", "fill": 0},
    "columns": {"w": 32, "offset": "random", "h": "longest", "fill": 0},
}


@pytest.fixture
def rows(monkeypatch):
    """Return a list of decoded rows and heights, and set all other rows to other values."""
    seen = []

    def decode(self, rows=None, really=UprightJpeg.decode):
        array = really(self, rows)
        if rows is not None and array is not None:
            seen.append((rows, len(array)))
            array = array.copy()
            array[rows:] = 255 - array[rows:]
        return array

    monkeypatch.setattr(UprightJpeg, "decode", decode)
    return seen


@pytest.fixture
def photos(tmp_path):
    """Write images of all kinds, and return their folder."""
    rng = np.random.default_rng(0)
    for number in range(24):
        height, width = rng.integers(60, 150, 2).tolist()
        image = Image.fromarray(noise(number, 6, 5, 3)).resize((width, height))
        options = [{"subsampling": number % 3}, {"progressive": True}][number % 4 == 3]
        image.save(tmp_path / f"{number:02}.jpg", quality=90, **options)
    Image.fromarray(noise(1, 80, 70)).save(tmp_path / "gray.jpg")
    image.save(tmp_path / "lossless.png")
    image.convert("CMYK").save(tmp_path / "cmyk.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "rotated.jpg", exif=exif)
    return tmp_path


def decode_all(data):
    """Decode a whole image: a function that is no Reader."""
    return Reader()(data)


def read_epochs(source, **options):
    """Return the batches of two epochs, the positions of dropped records and their reasons."""
    batches = []
    with sampled_batcher(source, batch_size=6, sampler="shuffle", seed=3, **options) as loader:
        for _ in range(2):
            for batch in loader:
                inputs = batch.input if isinstance(batch.input, tuple) else (batch.input,)
                arrays = [np.array(x.forward_get("bhwc")) for x in inputs]
                dropped = [(position, str(error)) for _, position, error in batch.dropped]
                batches.append((arrays, dropped))
    return batches


def assert_equal(batches, others):
    assert len(batches) == len(others)
    for (arrays, dropped), (expected, missing) in zip(batches, others, strict=True):
        assert dropped == missing
        for array, other in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", CROPS)
def test_batches_are_those_of_whole_images(name, workers, photos, rows):
    collator = Collator("hwc->bhwc", **CROPS[name])
    batches = read_epochs(photos, collate=collator, num_workers=workers)
    if not workers:  # one chunk for each batch
        assert len(rows) == 2 * 19  # 18 of the JPEGs are not progressive, and one is gray
    assert any(decoded < height for decoded, height in rows)
    assert_equal(batches, read_epochs(photos, collate=collator, processor=decode_all))


def test_several_crops_share_the_rows(photos, rows):
    collators = [Collator("hwc->bhwc", **CROPS[name]) for name in ("random", "window")]
    batches = read_epochs(photos, collate=collators)
    assert any(decoded < height for decoded, height in rows)
    assert_equal(batches, read_epochs(photos, collate=collators, processor=decode_all))


@pytest.mark.parametrize("name", UNUSED)
def test_whole_images_are_decoded_if_all_rows_are_read(name, photos, rows):
    collator = Collator("hwc->bhwc", **UNUSED[name])
    batches = read_epochs(photos, collate=collator)
    assert not rows
    assert_equal(batches, read_epochs(photos, collate=collator, processor=decode_all))


def test_a_collator_of_whole_images_beside_one_of_crops(photos, rows):
    collators = [
        Collator("hwc->bhwc", **options) for options in (CROPS["random"], UNUSED["stretch"])
    ]
    read_epochs(photos, collate=collators)
    assert not rows


def test_scaled_images(photos, rows):
    collator = Collator("hwc->bhwc", **CROPS["random"])
    options = {"collate": collator, "processor": Reader((12, 16))}
    batches = read_epochs(photos, **options)
    assert any(decoded < height < 60 for decoded, height in rows)
    expected = read_epochs(photos, collate=collator, processor=lambda data: Reader((12, 16))(data))
    assert_equal(batches, expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("refill", [False, True])
def test_failing_records_are_reported_as_before(workers, refill, photos, rows):
    (photos / "text.jpg").write_bytes(b"no image")
    whole = (photos / "00.jpg").read_bytes()
    (photos / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "small.jpg").write_bytes(encoded(noise(0, 8, 8, 3), "JPEG"))  # outside of the window
    collator = Collator("hwc->bhwc", **CROPS["window"])
    options = {"collate": collator, "refill": refill}
    batches = read_epochs(photos, num_workers=workers, **options)
    assert sum(len(dropped) for _, dropped in batches) == 2 * 3
    assert rows
    assert_equal(batches, read_epochs(photos, processor=decode_all, **options))


def test_errors_of_a_getter(photos, rows):
    def get(record):
        if record.position % 5 == 0:
            raise OSError("offline")
        return None if record.position % 5 == 1 else Path(record.url).read_bytes()

    options = {"collate": Collator("hwc->bhwc", **CROPS["random"]), "get": get}
    batches = read_epochs(photos, processor=Reader(), **options)
    assert rows
    assert_equal(batches, read_epochs(photos, processor=decode_all, **options))


def test_a_cache_keeps_whole_images(photos, rows):
    collator = Collator("hwc->bhwc", **CROPS["random"])
    batches = read_epochs(photos, collate=collator, cache="ram", cache_bytes="16 MiB")
    assert not rows
    assert_equal(batches, read_epochs(photos, collate=collator))


def test_a_timeout_is_for_each_record(photos, rows):
    collator = Collator("hwc->bhwc", **CROPS["random"])
    batches = read_epochs(photos, collate=collator, timeout=60, num_workers=1)
    assert not rows
    assert_equal(batches, read_epochs(photos, collate=collator))


@given(
    length=st.integers(1, 60),
    window=st.integers(1, 40),
    resize=st.sampled_from([None, *FILTERS]),
    antialias=st.booleans(),
    data=st.data(),
)
def test_positions_after_the_end_are_not_read(length, window, resize, antialias, data):
    options, call = {"h": window, "fill": 0}, {}
    if resize is None:
        call["offset"] = {"h": data.draw(st.integers(-50, 70))}
    else:
        options |= {"w": 1, "resize": resize}
        options["antialias"] = antialias or resize == "lanczos"
        size = data.draw(st.integers(1, length))
        fit = data.draw(st.sampled_from(["stretch", "cover", "pad"]))
        options["fit"] = fit
        call["crop"] = {"h": size, "w": 1}
        call["offset"] = {"h": data.draw(st.integers(0, length - size)), "w": 0}
    call["flip"] = {"h": data.draw(st.booleans())}
    collator = Collator("hwc->bhwc", **options)
    placements = collator.place([(length, 1, 1)], **call)
    column = placements.axes.index("h")
    (end,) = find_read_ends(collator.windows.resize, placements, column).tolist()
    sample = noise(length, length, 1, 1)
    changed = sample.copy()
    changed[end:] ^= 0xFF
    np.testing.assert_array_equal(collator([changed], **call), collator([sample], **call))


def test_windows_of_one_image_are_not_planned(photos, rows):
    collator = Collator("hwc->bhwc", **CROPS["random"])
    with sampled_batcher(photos, batch_size=1, collate=collator, num_workers=0) as batches:
        assert len(list(batches)) == 28
    assert not rows
