"""Images of any kind become uint8 RGB, upright, in name order, or raise a clear error."""

import sys
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit.cli import main
from layoutkit.cli.inputs import find_images
from layoutkit.errors import ArgumentError

HEIGHT = 6
WIDTH = 4


def _pixels(seed=0, *channels):
    shape = (HEIGHT, WIDTH, *channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def _save(path, array, **options):
    Image.fromarray(array).save(path, **options)


def _convert(source, tmp_path, *options):
    """Return the images as the command writes them, in bhwc."""
    target = tmp_path / "out.npy"
    code = main(["convert", str(source), str(target), "bhwc->bhwc", "--quiet", *options])
    return np.load(target) if code == 0 else code


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    return folder


# ---- decoded images ------------------------------------------------------------------------


def test_rgb_is_taken_as_it_is(tmp_path, folder):
    _save(folder / "a.png", _pixels(0, 3))
    np.testing.assert_array_equal(_convert(folder / "a.png", tmp_path), _pixels(0, 3)[None])


def test_gray_is_repeated(tmp_path, folder):
    _save(folder / "a.png", _pixels())
    expected = np.repeat(_pixels()[None, ..., None], 3, axis=3)
    np.testing.assert_array_equal(_convert(folder, tmp_path), expected)


def test_one_bit_is_black_and_white(tmp_path, folder):
    Image.fromarray(_pixels() > 127).save(folder / "a.png")
    expected = np.repeat(np.where(_pixels() > 127, 255, 0)[None, ..., None], 3, axis=3)
    np.testing.assert_array_equal(_convert(folder, tmp_path), expected)


@pytest.mark.parametrize("channels", [2, 4], ids=["gray", "rgb"])
def test_alpha_is_dropped_not_blended(tmp_path, folder, channels):
    pixels = _pixels(0, channels)
    _save(folder / "a.png", pixels)
    colors = pixels[..., :-1]
    expected = np.broadcast_to(colors, (HEIGHT, WIDTH, 3))[None]
    np.testing.assert_array_equal(_convert(folder, tmp_path), expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("transparency", [None, 3, bytes(range(256))])
def test_a_palette_is_looked_up(tmp_path, folder, transparency):
    palette = np.random.default_rng(1).integers(0, 256, (256, 3), dtype=np.uint8)
    image = Image.fromarray(_pixels())
    image.putpalette(palette.tobytes())
    options = {} if transparency is None else {"transparency": transparency}
    image.save(folder / "a.png", **options)
    with Image.open(folder / "a.png") as saved:
        assert saved.mode == "P"
    np.testing.assert_array_equal(_convert(folder, tmp_path), palette[_pixels()][None])


def test_cmyk_becomes_rgb(tmp_path, folder):
    none, full = (Image.new("L", (WIDTH, HEIGHT), value) for value in (0, 255))
    cyan = Image.merge("CMYK", (full, none, none, none))  # removes the red
    cyan.save(folder / "a.tif")
    expected = np.broadcast_to(np.array([0, 255, 255], np.uint8), (1, HEIGHT, WIDTH, 3))
    np.testing.assert_array_equal(_convert(folder, tmp_path), expected)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bit_gray_is_scaled(tmp_path, folder, suffix):
    values = np.linspace(0, 65535, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(np.uint16)
    # Older versions of Pillow write a 16-bit PGM from 32-bit pixels.
    stored = values.astype(np.int32) if suffix == "pgm" else values
    Image.fromarray(stored).save(folder / f"a.{suffix}")
    expected = np.rint(values / 257).astype(np.uint8)
    np.testing.assert_array_equal(_convert(folder, tmp_path)[0, ..., 1], expected)


def test_float_gray_has_no_range_and_is_refused(tmp_path, folder, capsys):
    Image.fromarray(np.ones((4, 4), np.float32)).save(folder / "a.tif")
    assert _convert(folder, tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"layoutkit: error: {folder}/a.tif: ")
    assert "8 or 16 bits" in error


def test_of_an_animation_the_first_image_is_taken(tmp_path, folder):
    frames = [Image.fromarray(np.full((HEIGHT, WIDTH, 3), value, np.uint8)) for value in (9, 200)]
    frames[0].save(folder / "a.png", save_all=True, append_images=frames[1:])
    assert (_convert(folder, tmp_path) == 9).all()


# The viewer's operation for each orientation, and the stored image that it makes upright.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: np.rot90(upright, 2).swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}


def _save_turned(path, upright, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(STORED[orientation](upright))
    Image.fromarray(stored).save(path, exif=exif)


@pytest.mark.parametrize("suffix", ["png", "tif"])
@pytest.mark.parametrize("channels", [(), (3,), (4,)], ids=["gray", "rgb", "rgba"])
def test_images_are_turned_upright(tmp_path, folder, channels, suffix):
    """Convert all eight orientations in one batch; four are stored rotated by 90 degrees."""
    for orientation in STORED:
        _save_turned(folder / f"{orientation}.{suffix}", _pixels(0, *channels), orientation)
    result = _convert(folder, tmp_path)
    assert result.shape == (8, HEIGHT, WIDTH, 3)
    upright = _pixels(0, *channels).reshape(HEIGHT, WIDTH, -1)
    for image in result:
        np.testing.assert_array_equal(image, np.broadcast_to(upright[..., :3], (HEIGHT, WIDTH, 3)))


def test_sixteen_bit_gray_is_turned_too(tmp_path, folder):
    values = np.linspace(0, 65535, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(np.uint16)
    _save_turned(folder / "a.png", values, 6)
    result = _convert(folder, tmp_path)[0, ..., 0]
    np.testing.assert_array_equal(result, np.rint(values / 257).astype(np.uint8))


# ---- selection and order of images ---------------------------------------------------------


def test_a_folder_in_name_order_whatever_the_chunk(tmp_path, folder):
    names = ["b.png", "a10.png", "a2.PNG", "c.bmp"]
    for seed, name in enumerate(names):
        _save(folder / name, _pixels(seed, 3))
    expected = np.stack([_pixels(names.index(name), 3) for name in sorted(names)])
    for chunk in ("1", "3", "100"):
        np.testing.assert_array_equal(_convert(folder, tmp_path, "--chunk", chunk), expected)


def test_a_glob(tmp_path, folder):
    for seed, name in enumerate(["a.png", "b.png", "other.png"]):
        _save(folder / name, _pixels(seed, 3))
    (folder / "a.txt").write_text("not an image")
    result = _convert(f"{folder}/?.*", tmp_path)
    np.testing.assert_array_equal(result, np.stack([_pixels(0, 3), _pixels(1, 3)]))


@pytest.mark.parametrize(
    ("source", "seeds"),
    [
        ("b[1].png", [1]),
        ("b*.png", [3]),
        ("b?.png", [3, 0]),
        ("[b]1.png", [0]),
        ("b*[[]*", [1, 2]),
        ("", [3, 0, 1, 2]),
    ],
)
def test_an_existing_name_is_no_glob(tmp_path, folder, source, seeds):
    odd = folder / "x[1]"
    odd.mkdir()
    for seed, name in enumerate(["b1.png", "b[1].png", "b[2].png", "b*.png"]):
        _save(odd / name, _pixels(seed, 3))
    result = _convert(f"{odd}/{source}", tmp_path)
    np.testing.assert_array_equal(result, np.stack([_pixels(seed, 3) for seed in seeds]))
    two = _convert(f"{odd}/{source}", tmp_path, "--skip-bad")
    np.testing.assert_array_equal(two, result)


def test_other_files_are_skipped_and_counted(tmp_path, folder, capsys):
    _save(folder / "a.png", _pixels(0, 3))
    (folder / "notes.txt").write_text("x")
    (folder / ".hidden.png").write_text("x")
    (folder / "nested.png").mkdir()
    files = [str(folder), str(tmp_path / "out.npy")]
    assert main(["convert", *files, "bhwc->bchw"]) == 0
    assert f"{folder}: files skipped that are not images: 2" in capsys.readouterr().err
    assert np.load(tmp_path / "out.npy").shape == (1, 3, HEIGHT, WIDTH)


def test_a_file_named_by_itself_needs_no_suffix(tmp_path, folder):
    _save(folder / "image", _pixels(0, 3), format="png")
    np.testing.assert_array_equal(_convert(folder / "image", tmp_path), _pixels(0, 3)[None])


@pytest.mark.parametrize("pattern", ["bhwc->bchw", "ab->ba"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.h5", b"\x89HDF\r\n\x1a\n" + bytes(99)),
        ("x.csv", b"1,2\n"),
        ("x.parquet", b"PAR1"),
        ("x.rec", b""),
        ("x", b"text"),
    ],
)
def test_a_file_of_another_format_names_the_supported_ones(
    tmp_path, monkeypatch, capsys, name, content, pattern
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    assert main(["convert", name, "y.npy", pattern]) == 2
    supported = f"{name}: is neither an image nor a supported array file; supported are .npy, .npz"
    assert supported in capsys.readouterr().err


def test_names_in_several_folders_go_by_path(folder):
    for name in ("b/1.png", "a/2.png", "a-b/0.png"):
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(b"")
    actual, skipped = find_images([f"{folder}/**/*.png"])
    assert [str(path.relative_to(folder)) for path in actual] == ["a/2.png", "a-b/0.png", "b/1.png"]
    assert skipped == 0


@pytest.mark.parametrize("name", ["empty", "empty/*.png", "nowhere"])
def test_no_images_is_an_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match=name.replace("*", r"\*")):
        find_images([str(tmp_path / name)])


# ---- sizes ---------------------------------------------------------------------------------


def test_the_first_odd_one_is_named_before_any_work(tmp_path, folder, capsys):
    for name in ("a.png", "b.png"):
        _save(folder / name, _pixels(0, 3))
    for name in ("c.png", "d.png"):
        _save(folder / name, _pixels(0, 3).swapaxes(0, 1).copy())
    assert _convert(folder, tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"layoutkit: error: {folder}/c.png: 4x6 (height x width)")
    assert f"{folder}/a.png is 6x4" in error
    assert "--resize HxW" in error
    assert not (tmp_path / "out.npy").exists()


def test_resize_stretches_all_to_one_size(tmp_path, folder):
    flat = {"a.png": (10, 30), "b.png": (30, 10), "c.png": (8, 12)}
    for value, (name, shape) in enumerate(flat.items()):
        _save(folder / name, np.full((*shape, 3), 50 + value, np.uint8))
    result = _convert(folder, tmp_path, "--resize", "8x12")
    assert result.shape == (3, 8, 12, 3)
    for value, image in enumerate(result):
        assert (image == 50 + value).all()


def test_resize_keeps_left_left_and_top_top(tmp_path, folder):
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 20:, 0] = 255  # right half red
    pixels[10:, :, 2] = 255  # lower half blue
    _save(folder / "a.png", pixels)
    (image,) = _convert(folder, tmp_path, "--resize", "4x4")
    assert image[0, 0].tolist() == [0, 0, 0]
    assert image[0, 3].tolist() == [255, 0, 0]
    assert image[3, 0].tolist() == [0, 0, 255]


# ---- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"not an image", None], ids=["empty", "text", "cut off"])
def test_a_damaged_image_is_named(tmp_path, folder, capsys, content):
    for name in ("a.png", "b.png"):
        _save(folder / name, np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    damaged = folder / "b.png"
    damaged.write_bytes(damaged.read_bytes()[:5000] if content is None else content)
    assert _convert(folder, tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"layoutkit: error: {folder}/b.png: cannot be read")
    assert not (tmp_path / "out.npy").exists()


def test_a_decompression_bomb_is_refused(tmp_path, folder, capsys, monkeypatch):
    _save(folder / "a.png", _pixels(0, 3))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    assert _convert(folder, tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"layoutkit: error: {folder}/a.png: ")
    assert "decompression bomb" in error


@pytest.mark.parametrize(
    "pattern", ["NHWC->NCHW", "batch height width channels -> batch channels height width"]
)
def test_their_axes_may_have_other_names(tmp_path, folder, pattern):
    _save(folder / "a.png", _pixels(0, 3))
    target = tmp_path / "out.npy"
    assert main(["convert", str(folder), str(target), pattern, "--quiet"]) == 0
    np.testing.assert_array_equal(np.load(target), _pixels(0, 3).transpose(2, 0, 1)[None])


@pytest.mark.parametrize("pattern", ["bchw->bhwc", "hwc->chw", "nhwf->nfhw", "bf->b(hwc)"])
def test_images_are_bhwc_and_nothing_else(tmp_path, folder, capsys, pattern):
    _save(folder / "a.png", _pixels(0, 3))
    assert main(["convert", str(folder), str(tmp_path / "out.npy"), pattern]) == 2
    error = capsys.readouterr().err
    assert error.startswith("layoutkit: error: ")
    assert "begin the pattern with bhwc->" in error


def test_without_pillow_the_extra_is_named(tmp_path, folder, capsys, monkeypatch):
    _save(folder / "a.png", _pixels(0, 3))
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert _convert(folder, tmp_path) == 2
    assert 'pip install "layoutkit[images]"' in capsys.readouterr().err
