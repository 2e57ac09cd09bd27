"""`convert` of images of different sizes, damaged or large images, and images named one by one."""

import errno
import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit.cli import (
    inputs,
    main,
)
from layoutkit.cli.parser import FIT_CHOICES, MODE_CHOICES
from layoutkit.data.recordio import read_records, unpack_image
from layoutkit.images import Decoder, fit, read
from layoutkit.images.fitting import FIT_MODES
from layoutkit.images.reading import MODES
from tests.helpers.command_batches import run_batches
from tests.helpers.photographs import encoded, make_profiles, noise, save


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write three images of different sizes into the working directory of the command."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["a", "b", "c"]):
        save(Path("photos", f"{name}.png"), noise(number, 20 + 4 * number, 30, 3))
    return Path("photos")


def _convert(*words):
    assert main(["convert", *map(str, words), "out.npy", "bhwc->bhwc", "--quiet"]) == 0
    return np.load("out.npy")


def _refused(capsys, *words):
    assert main(["convert", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not Path("out.npy").exists()
    return captured.err


# ---- one size ------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_mode", ["cover", "pad", "stretch", None])
def test_images_are_fitted_as_the_library_does(folder, fit_mode):
    words = [] if fit_mode is None else ["--fit", fit_mode]
    actual = _convert(folder, "--resize", "16x24", *words)
    names = sorted(folder.iterdir())
    expected = np.stack([fit(read(name), (16, 24), fit_mode or "stretch") for name in names])
    np.testing.assert_array_equal(actual, expected)


def test_the_shorter_side_and_the_filter_are_those_of_the_library(folder):
    words = "--resize", "16x20", "--short-side", "22", "--filter", "bicubic"
    options = {"short_side": 22, "resize": "bicubic"}
    expected = [fit(read(name), (16, 20), **options) for name in sorted(folder.iterdir())]
    np.testing.assert_array_equal(_convert(folder, *words), np.stack(expected))


@pytest.mark.parametrize(("fill", "color"), [("114", (114,) * 3), ("1,2,3", (1, 2, 3))])
def test_what_lies_beside_an_image_has_a_color(folder, fill, color):
    actual = _convert(folder / "a.png", "--resize", "60x30", "--fit", "pad", "--fill", fill)
    assert (actual[0, :20] == color).all()
    np.testing.assert_array_equal(actual[0, 20:40], noise(0, 20, 30, 3))


@pytest.mark.parametrize("skip", [["--skip-bad"], []])
def test_windows_of_images_of_any_size(folder, capsys, skip):
    message = _refused(capsys, folder, "out.npy", "bhwc->bchw", "--crop", "20x2000")
    assert "reaches beyond an image" in message
    assert ".png: " in message
    words = ["--crop", "20x24", "--flip", "--quiet", *skip]
    assert main(["convert", str(folder), "out.npy", "bhwc->bhwc", *words]) == 0
    actual = np.load("out.npy")
    for pixels, path in zip(actual, sorted(folder.glob("*.png")), strict=True):
        full = read(str(path))
        top = round((full.shape[0] - 20) / 2)
        left = round((full.shape[1] - 24) / 2)
        expected = full[top : top + 20, left : left + 24][:, ::-1]
        np.testing.assert_array_equal(pixels, expected)


def test_batches_fit_them_too(folder, monkeypatch):
    words = ["--size", "40x40", "--fit", "pad", "--fill", "9"]
    actual = run_batches(monkeypatch, folder, *words)
    expected = [fit(read(name), (40, 40), "pad", fill=9) for name, _ in actual["name"]]
    np.testing.assert_array_equal(actual["input"], expected)
    assert len(actual["input"]) == 3


def test_the_words_are_the_librarys():
    assert FIT_CHOICES == FIT_MODES
    assert MODE_CHOICES == MODES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fit", "pad"], "--fit: applies only to resized images; give --resize HxW, too"),
        (["--short-side", "9"], "--short-side: applies only to resized images; give --resize"),
        (["--filter", "area"], "--filter: applies only to resized images; give --resize HxW"),
        (["--resize", "8x8", "--short-side", "9", "--fit", "cover"], "--fit and --short-side both"),
        (["--resize", "8x8", "--filter", "cubic"], "invalid choice: 'cubic'"),
        (["--resize", "8x8", "--short-side", "5"], "short_side=5"),
        (["--fill", "9"], "--fill: applies only to resized images; give --resize HxW, too"),
        (["--resize", "8x8", "--fill", "9"], "give --fit pad, too"),
        (["--resize", "8x8", "--fit", "pad", "--fill", "300"], "an integer in 0..255"),
        (["--resize", "8x8", "--fit", "crop"], "invalid choice: 'crop'"),
        (["--max-pixels", "0"], "not an integer above 0"),
    ],
)
def test_options_that_do_not_go_together(folder, capsys, words, message):
    assert message in _refused(capsys, folder, "out.npy", "bhwc->bchw", *words)


@pytest.mark.parametrize("option", [["--fit", "pad"], ["--skip-bad"], ["--max-pixels", "9"]])
def test_options_of_images_are_not_for_arrays(folder, capsys, option):
    np.save("x.npy", np.zeros((2, 3)))
    message = _refused(capsys, "x.npy", "out.npy", "bf->fb", *option)
    assert f"{option[0]}: applies to images, but x.npy is an array" in message


# ---- several sources -----------------------------------------------------------------------


def test_what_the_shell_makes_of_a_glob(folder, capsys):
    """Files that are not images are skipped, as with a glob; the order of SRC is kept."""
    Path("photos/notes.txt").write_text("not an image")
    words = [folder / "c.png", folder / "notes.txt", folder / "a.png"]
    actual = _convert(*words, "--resize", "8x8")
    expected = [fit(read(folder / name), (8, 8), "stretch") for name in ("c.png", "a.png")]
    np.testing.assert_array_equal(actual, expected)
    assert main(["convert", *map(str, words), "out.npy", "bhwc->bhwc", "--resize", "8x8"]) == 0
    assert (
        "photos/c.png and 2 more: files skipped that are not images: 1" in capsys.readouterr().err
    )


def test_options_may_stand_between_the_words(folder):
    words = ["convert", "photos/a.png", "--quiet", "photos/b.png", "--resize", "8x8", "out.npy"]
    assert main([*words, "--fit", "cover", "bhwc->bchw"]) == 0
    assert np.load("out.npy").shape == (2, 3, 8, 8)


def test_folders_and_globs_one_after_the_other(folder):
    save(Path("more/z.png"), noise(9, 8, 8, 3))
    assert len(_convert("more", "photos/[ab].png", "--resize", "8x8")) == 3


def test_several_arrays_are_refused(folder, capsys):
    np.save("x.npy", np.zeros((2, 3)))
    for words in (["x.npy", "x.npy"], ["photos/a.png", "x.npy"]):
        message = _refused(capsys, *words, "out.npy", "bhwc->bchw")
        assert "x.npy: is an array file, but several SRC must all be images" in message


def test_the_destination_is_none_of_the_sources(folder, capsys):
    os.link("photos/b.png", "b.npy")
    message = _refused(capsys, "photos/a.png", "photos/b.png", "b.npy", "bhwc->bchw")
    assert "b.npy: is the source itself" in message


def test_sub_folders_are_hinted_at(folder, capsys):
    Path("empty").mkdir()
    folder.rename("empty/inside")
    message = _refused(capsys, "empty", "out.npy", "bhwc->bchw")
    assert "empty: no images found" in message
    assert "its sub-folders contain images: give 'empty/**/*', in quotes" in message
    assert len(_convert("empty/**/*", "--resize", "8x8")) == 3
    Path("none/inside").mkdir(parents=True)
    assert "sub-folders" not in _refused_again(capsys, "none")


@pytest.mark.parametrize("source", ["none", "none/*", "none/notes.txt*"])
def test_a_source_without_images_is_not_passed_over(folder, capsys, source):
    """A folder without images next to one with images; other named files are skipped."""
    Path("none/inside").mkdir(parents=True)
    Path("none/notes.txt").write_text("text")
    save(Path("none/inside/d.png"), noise(4, 20, 30, 3))
    message = _refused(capsys, "photos/a.png", source, "out.npy", "bhwc->bchw")
    assert f"error: {source}: no images found" in message
    assert ("give 'none/**/*'" in message) == (source == "none")
    assert len(_convert("photos/a.png", "none/notes.txt")) == 1


@pytest.mark.parametrize("name", ["photos/a.png", "out", "out.npz"])
def test_a_destination_of_another_kind(folder, capsys, name):
    message = _refused(capsys, "photos/b.png", name, "bhwc->bchw")
    assert f"{name}: the result is a .npy file; name it {Path(name).with_suffix('.npy')}" in message


def _refused_again(capsys, name):
    assert main(["convert", name, "other.npy", "bhwc->bchw"]) == 2
    return capsys.readouterr().err


# ---- damaged images ------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["bhwc->bhwc", "bhwc->chwb"])
def test_bad_images_are_left_out_and_named(folder, capsys, pattern):
    Path("photos/aa.png").write_bytes(b"not an image")
    Path("photos/bb.png").write_bytes(encoded(noise(0, 64, 64, 3))[:4000])
    Path("photos/cc.png").symlink_to("nowhere.png")
    words = ["photos", "out.npy", pattern, "--resize", "8x8"]
    assert main(["convert", *words]) == 2
    assert "photos/aa.png: cannot be read as an image" in capsys.readouterr().err
    assert not Path("out.npy").exists()
    for quiet in ([], ["--quiet"]):
        assert main(["convert", *words, "--skip-bad", *quiet]) == 0
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if "left out" in line]
        for line, name in zip(lines, ["aa", "bb", "cc"], strict=True):
            assert line.startswith(f"layoutkit: left out photos/{name}.png: ")
    good = [fit(read(folder / f"{name}.png"), (8, 8), "stretch") for name in "abc"]
    expected = np.stack(good).transpose(["bhwc".index(axis) for axis in pattern[-4:]])
    np.testing.assert_array_equal(np.load("out.npy"), expected)
    assert sorted(os.listdir()) == ["out.npy", "photos"]


def test_a_full_disk_is_said_of_the_folder(folder, capsys, monkeypatch):
    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(inputs, "TemporaryFile", lambda **_: Full())
    message = _refused(capsys, "photos", "out.npy", "bhwc->bhwc", "--resize", "8x8", "--skip-bad")
    assert f"error: {Path.cwd()}: No space left on device; make room" in message


def test_many_of_them_in_chunks(folder):
    for number in range(150):
        data = b"bad" if number % 7 == 3 else encoded(np.full((6, 6, 3), number, np.uint8))
        Path(f"many{number:03}.png").write_bytes(data)
    actual = _convert("many*.png", "--skip-bad", "--chunk", "11")
    assert actual[:, 0, 0, 0].tolist() == [n for n in range(150) if n % 7 != 3]
    assert actual.shape[1:] == (6, 6, 3)


def test_sizes_are_those_of_the_good_ones(folder, capsys):
    for name in ("b", "c"):
        save(Path("same", f"{name}.png"), noise(1, 6, 4, 3))
    Path("same/a.png").write_bytes(b"not an image")
    assert _convert("same", "--skip-bad").shape == (2, 6, 4, 3)
    save(Path("same/d.png"), noise(1, 4, 6, 3))
    Path("out.npy").unlink()
    message = _refused(capsys, "same", "out.npy", "bhwc->bchw", "--skip-bad")
    assert "same/d.png: 4x6 (height x width), but same/b.png is 6x4" in message


@pytest.mark.parametrize("words", [[], ["--resize", "8x8"]])
def test_nothing_but_bad_ones_is_an_error(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        Path(f"{name}.png").write_bytes(b"not an image")
    message = _refused(capsys, "a.png", "b.png", "out.npy", "bhwc->bchw", "--skip-bad", *words)
    assert message.count("left out") == 2
    assert "none of 2 images can be read; see the messages above" in message


def test_an_image_that_has_no_white(folder, capsys):
    save(Path("photos/d.tif"), np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4))
    message = _refused(capsys, "photos", "out.npy", "bhwc->bchw", "--resize", "8x8")
    assert "photos/d.tif: its gray values are floats from 0 to 1" in message


# ---- large images --------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [500, 200])
def test_large_images_are_taken_on_purpose(folder, capsys, monkeypatch, limit):
    """Test sizes above Pillow's limit (Pillow warns) and above twice the limit (Pillow raises)."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = _refused(capsys, "photos/a.png", "out.npy", "bhwc->bchw")
        assert "decompression bomb; give a larger --max-pixels if you trust it" in message
        actual = _convert("photos/a.png", "--max-pixels", "600")
    np.testing.assert_array_equal(actual, noise(0, 20, 30, 3)[None])
    assert limit == Image.MAX_IMAGE_PIXELS
    Path("out.npy").unlink()
    assert "600 pixels, more than 599" in _refused(
        capsys, "photos/a.png", "out.npy", "bhwc->bchw", "--max-pixels", "599"
    )


def test_batches_take_them_too(folder, capsys, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 650)
    assert main(["batches", "photos", "--size", "8x8", "--workers", "0"]) == 0
    captured = capsys.readouterr()
    assert "1 record in 1 batch, 2 left out" in captured.out
    assert captured.err.count("give a larger --max-pixels") == 2
    assert main(["batches", "photos", "--size", "8x8", "--max-pixels", "1000"]) == 0
    assert "3 records in 1 batch, 0 left out" in capsys.readouterr().out


# ---- a background ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--resize", "8x9"), ("--crop", "5x5+center")])
def test_images_with_alpha_are_put_over_a_background(folder, words):
    for path in folder.iterdir():
        save(path, noise(3, 20, 30, 4))
    over = np.stack([read(path, background=(9, 200, 0)) for path in sorted(folder.iterdir())])
    actual = _convert(folder, *words, "--background", "9,200,0")
    for path, pixels in zip(sorted(folder.iterdir()), over, strict=True):
        save(path, pixels)
    np.testing.assert_array_equal(actual, _convert(folder, *words))
    np.testing.assert_array_equal(actual if not words else over, over)


@pytest.mark.parametrize("text", ["255", "1,2", "1,2,256", "-1,0,0", "a,b,c", "1,2,3,4", "1.5,0,0"])
def test_a_background_is_three_bytes(folder, capsys, text):
    words = folder, "out.npy", "bhwc->bhwc", f"--background={text}"
    assert "three integers from 0 to 255" in _refused(capsys, *words)


def test_a_background_is_for_images(folder, capsys):
    np.save("a.npy", np.zeros((2, 3, 4, 3), np.uint8))
    words = "a.npy", "out.npy", "bhwc->bhwc", "--background", "1,2,3"
    assert "--background: applies to images" in _refused(capsys, *words)


def test_batches_over_a_background(folder, capsys):
    for path in folder.iterdir():
        save(path, np.zeros((20, 30, 4), np.uint8))
    words = "--size", "20x30", "--background", "10,20,30", "--preview", "sheet.png"
    assert main(["batches", str(folder), *words]) == 0
    colors = np.asarray(Image.open("sheet.png").convert("RGB")).reshape(-1, 3)
    assert (colors == (10, 20, 30)).all(axis=1).sum() >= 3 * 20 * 30 // 4


# ---- modes -----------------------------------------------------------------------------------


@pytest.fixture
def masks(folder):
    """Write three palette images of classes; each palette has the colors of other classes."""
    for number, name in enumerate(["a", "b", "c"]):
        mask = Image.fromarray(noise(number, 20, 30, 1)[..., 0] % 5, "P")
        mask.putpalette(noise(9 + number, 256 * 3, 1, 1).tobytes())
        Path("masks", name).mkdir(parents=True)
        mask.save(Path("masks", name, "0.png"))
    return Path("masks")


@pytest.mark.parametrize("words", [[], ["--resize", "8x9"], ["--crop", "5x6+1+2"], ["--skip-bad"]])
@pytest.mark.parametrize("mode", MODES)
def test_pixels_are_what_the_mode_says(masks, mode, words):
    layout = "bhw" if mode == "index" else "bhwc"
    paths = sorted(masks.glob("*/*.png"))
    expected = np.stack([read(path, mode) for path in paths])
    if "--resize" in words:
        if mode == "unchanged":
            return
        resize = "nearest" if mode == "index" else "bilinear"
        decoder = Decoder((8, 9), "stretch", mode=mode, resize=resize)
        expected = np.stack([decoder(path.read_bytes()) for path in paths])
    if "--crop" in words:
        expected = expected[:, 1:6, 2:8]
    options = ["--mode", mode, "--quiet", *words]
    assert main(["convert", "masks/**/*.png", "out.npy", f"{layout}->{layout}", *options]) == 0
    actual = np.load("out.npy")
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == expected.dtype


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bhwc->bchw", "--mode", "index"], "begin the pattern with bhw->"),
        (["bhw->bwh", "--mode", "index", "--resize", "8x8", "--filter", "area"],
         "--filter area: would average class numbers; give --filter nearest"),
        (["bhw->bwh", "--mode", "index", "--to-srgb"], "--to-srgb converts colors"),
        (["bhw->bwh", "--mode", "index", "--background", "1,2,3"], "--background 1,2,3 replaces"),
        (["bhwc->bchw", "--mode", "unchanged", "--resize", "8x8"], "give another --mode"),
        (["bhwc->bchw", "--mode", "unchanged"], "1 channels of uint8, but the first image has 3"),
    ],
)  # fmt: skip
def test_modes_that_do_not_fit_are_refused(masks, capsys, words, message):
    save(Path("masks", "a", "9.png"), noise(1, 20, 30, 1)[..., 0])
    assert message in _refused(capsys, "masks/**/*.png", "out.npy", *words)


def test_batches_and_packed_files_have_the_pixels_of_the_mode(masks, monkeypatch, capsys):
    expected = np.stack([read(path, "index") for path in sorted(masks.glob("*/*.png"))])
    words = "--size", "20x30", "--mode", "index"
    sheet = "--preview", "sheet.png"
    actual = run_batches(monkeypatch, masks, *words, *sheet)
    np.testing.assert_array_equal(actual["input"], expected)
    gray = run_batches(monkeypatch, masks, "--size", "20x30", "--mode", "gray", *sheet)
    assert gray["input"].shape == (3, 20, 30, 1)
    assert main(["pack", str(masks), "a.rec", "--mode", "index"]) == 2
    assert "jpg does not hold such pixels; give --encoding png or npy" in capsys.readouterr().err
    assert main(["pack", str(masks), "a.rec", "--mode", "index", "--encoding", "png"]) == 0
    packed = [unpack_image(record)[1] for record in read_records("a.rec")]
    np.testing.assert_array_equal([read(bytes(data), "index") for data in packed], expected)


def test_colors_are_converted_from_profiles(folder):
    profile = make_profiles()[1]
    for path in folder.iterdir():
        Image.open(path).save(path, icc_profile=profile)
    words = "photos/a.png", "out.npy", "bhwc->bhwc", "--quiet", "--to-srgb"
    assert main(["convert", *words]) == 0
    np.testing.assert_array_equal(np.load("out.npy")[0], read("photos/a.png", to_srgb=True))
