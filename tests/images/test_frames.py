"""Several frames of an animation, and pages of a TIFF: frames= of read and Reader."""

import io

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit import ArgumentError, Collator, DataError, ShapeError, images
from layoutkit.data import sampled_batcher
from tests.helpers.image_files import png_animation
from tests.helpers.photographs import TURNED, encoded, noise

COUNT = 5
FRAMES = noise(0, COUNT, 11, 13, 3)


def animation(frames, kind, **options):
    """Return an animation or a TIFF of several pages as bytes."""
    first, *others = map(Image.fromarray, frames)
    file = io.BytesIO()
    first.save(file, kind, save_all=True, append_images=others, **options)
    return file.getvalue()


KINDS = [("PNG", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"})]
if Image.registered_extensions().get(".webp") == "WEBP":
    KINDS.append(("WEBP", {"lossless": True}))


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("numbers", ["all", range(2), [0], [4, 0, 4], (-1,), np.array([1, 3])])
def test_frames_of_every_format(kind, options, numbers):
    data = animation(FRAMES, kind, **options)
    rows = list(range(COUNT)) if isinstance(numbers, str) else list(numbers)
    pixels = images.read(data, frames=numbers)
    np.testing.assert_array_equal(pixels, FRAMES[rows])
    np.testing.assert_array_equal(images.read(data), FRAMES[0])
    pixels[...] = 0  # the caller owns the memory


def test_frames_of_a_gif_are_composed():
    """A frame stores only what changed; reading composes it with the frames before."""
    colors = noise(0, 4, 3)
    numbers = np.random.default_rng(0).integers(0, 4, (COUNT, 11, 13))
    numbers[1:, 2:] = numbers[0, 2:]  # only two rows change
    data = animation(colors[numbers], "GIF")
    pixels = images.read(data, frames="all")
    np.testing.assert_array_equal(pixels, colors[numbers])
    np.testing.assert_array_equal(images.read(data, "gray", frames=[3, 1]).shape, (2, 11, 13, 1))


def test_transparent_frames_are_composed_over_a_color():
    frames = noise(0, 3, 6, 4, 4)
    data = animation(frames, "TIFF")
    np.testing.assert_array_equal(images.read(data, "rgba", frames="all"), frames)
    mixed = [images.read(encoded(frame), background=9) for frame in frames]
    np.testing.assert_array_equal(images.read(data, background=9, frames="all"), np.stack(mixed))


@pytest.mark.parametrize("mode", ["I;16", "F", "I", "L"])
def test_stacks_of_more_bits(mode):
    dtype = {"I;16": "uint16", "F": "float32", "I": "int32", "L": "uint8"}[mode]
    values = np.random.default_rng(0).integers(0, 250, (COUNT, 11, 13)).astype(dtype) * 250
    data = animation(values, "TIFF")
    pixels = images.read(data, "unchanged", frames="all")
    np.testing.assert_array_equal(pixels, values[..., None])
    assert pixels.dtype == dtype
    if mode != "F":
        np.testing.assert_array_equal(images.read(data, "index", frames="all"), values)


@pytest.mark.parametrize("dtype", ["uint16", "float64", "uint8"])
@pytest.mark.parametrize("bands", [1, 3, 7])
def test_pages_with_tifffile(dtype, bands):
    tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed")
    values = np.random.default_rng(0).integers(0, 250, (COUNT, 11, 13, bands)).astype(dtype) * 3
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for page in values:
            photometric = "rgb" if bands == 3 and dtype != "float64" else "minisblack"
            writer.write(
                page if bands > 1 else page[..., 0], photometric=photometric, metadata=None,
                planarconfig="contig" if bands > 1 else None,
            )  # fmt: skip
    data = file.getvalue()
    for numbers, rows in (("all", range(COUNT)), ([3, -5], [3, 0])):
        pixels = images.read(data, "unchanged", frames=numbers)
        np.testing.assert_array_equal(pixels, values[list(rows)])
        assert pixels.dtype == dtype
    if bands == 3 and dtype == "uint16":  # 16-bit colors of every page are rounded
        rounded = np.rint(values / 257).astype(np.uint8)
        np.testing.assert_array_equal(images.read(data, frames="all"), rounded)
    with pytest.raises(DataError, match="frame 5 does not exist: the file has 5"):
        images.read(data, "unchanged", frames=[5])


def test_pages_are_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = animation(np.stack([np.rot90(x) for x in FRAMES]), "TIFF", exif=exif)
    expected = [images.read(encoded(np.rot90(x).copy(), "TIFF", exif=exif)) for x in FRAMES[:1]]
    first = images.read(data, frames=[0])
    np.testing.assert_array_equal(first[0], expected[0])
    np.testing.assert_array_equal(first[0], TURNED[6](np.rot90(FRAMES[0])))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP"])
def test_files_of_one_image_have_one_frame(kind):
    data = encoded(FRAMES[0], kind)
    pixels = images.read(data, frames="all")
    np.testing.assert_array_equal(pixels, images.read(data)[None])
    with pytest.raises(DataError, match="frame 1 does not exist: the file has 1"):
        images.read(data, frames=range(2))


@pytest.mark.parametrize("numbers", [[COUNT], [0, -COUNT - 1], range(COUNT + 1)])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_frames_beyond_the_end(kind, options, numbers):
    with pytest.raises(DataError, match=rf'does not exist: the file has {COUNT}.*frames="all"'):
        images.read(animation(FRAMES, kind, **options), frames=numbers)


@pytest.mark.parametrize("frames", [3, "first", [], [0.5], b"all", ["a"], slice(0, 2), True])
def test_invalid_frames(frames):
    for call in (images.Reader, lambda **options: images.read(b"", **options)):
        with pytest.raises(ArgumentError, match='must be "all" or numbers of frames'):
            call(frames=frames)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_animations_of_sixteen_bits(channels):
    """Pillow composes later frames with 8 bits per color, so the low bytes are not known."""
    values = np.random.default_rng(0).integers(0, 1 << 16, (2, 6, 4, channels), np.uint16)
    data = png_animation(values)
    np.testing.assert_array_equal(images.read(data, "unchanged"), values[0])
    np.testing.assert_array_equal(images.read(data, "unchanged", frames=[0]), values[:1])
    if channels > 1:
        with pytest.raises(DataError, match=r"frame 1 is a part of an animation .* 16 bits"):
            images.read(data, frames="all")


def test_pages_of_several_sizes_are_refused():
    file = io.BytesIO()
    pages = [Image.fromarray(FRAMES[0]), Image.fromarray(FRAMES[1, :5])]
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    with pytest.raises(DataError, match=r"frame 1 is uint8 \(5, 13, 3\), but frame 0 is"):
        images.read(file.getvalue(), frames="all")
    assert images.read(file.getvalue(), frames=[1]).shape == (1, 5, 13, 3)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_all_frames_count_as_pixels(kind, options, monkeypatch):
    data = animation(FRAMES, kind, **options)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3 * 11 * 13)
    assert len(images.read(data, frames=range(3))) == 3
    with pytest.raises(DataError, match="4 images of 11x13 are 572 pixels, more than 429"):
        images.read(data, frames=range(4))
    with pytest.raises(DataError, match="decompression bomb"):
        images.read(data, frames="all")


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_truncated_animations_are_errors(kind, options):
    data = animation(FRAMES, kind, **options)
    for part in (0.1, 0.3, 0.5, 0.9):
        with pytest.raises(DataError):
            images.read(data[: int(len(data) * part)], frames="all")


def test_batches_of_frames(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(animation(FRAMES[number:], "PNG"))
    reader = images.Reader(frames=range(3))
    assert reader == images.Reader(frames=(0, 1, 2))
    collator = Collator("thwc->bcthw", t=3, h=11, w=13)
    with sampled_batcher(
        str(tmp_path), processor=reader, collate=collator, sampler="sequential", batch_size=2
    ) as batches:
        x = next(iter(batches)).input.forward_get("bcthw")
    np.testing.assert_array_equal(x, collator([FRAMES[:3], FRAMES[1:4]]))
    np.testing.assert_array_equal(reader(FRAMES[:3]), FRAMES[:3])
    with pytest.raises(ShapeError, match=r"must be uint8 \(frames, height, width, 3\)"):
        reader(FRAMES[0])
