"""Files of options: `layoutkit convert --options` and `layoutkit explain --compare`."""

import json

import numpy as np
import pytest

from layoutkit import Collator, Converter
from layoutkit.cli import main

PHOTOS = np.arange(2 * 4 * 60, dtype=np.uint8).reshape(2, 4, 60)
CONVERTER = Converter(
    "bh(wc)->bchw", c=3, dtype="float32", scale=1 / 255, mean=(0.1, 0.2, 0.3), channels=(2, 1, 0)
)


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "x.npy", PHOTOS)
    return tmp_path


def store(path, options):
    path.write_text(json.dumps(options if isinstance(options, dict) else options.to_dict()))
    return str(path)


def test_a_file_is_converted_by_the_options_of_a_converter(folder):
    stored = store(folder / "a.json", CONVERTER)
    files = [str(folder / "x.npy"), str(folder / "y.npy")]
    assert main(["convert", *files, "--options", stored, "--quiet", "--chunk", "1"]) == 0
    assert np.load(files[1]).tobytes() == CONVERTER(PHOTOS).tobytes()


@pytest.mark.parametrize(
    ("options", "words", "message"),
    [
        (CONVERTER, ["bhwc->bchw"], "--options has the pattern; omit PATTERN"),
        (CONVERTER, ["--dtype", "uint8"], "--dtype: --options has all options"),
        (CONVERTER, ["--size", "h=2"], "--size: --options has all options"),
        (Converter("bhw->bwh", pad_to={"h": 9}), [], "does not apply to files"),
        (Converter("bhw->bwh", mean={"b": [1, 2]}), [], "does not apply to files"),
        (Collator("hw->bhw", h=2), [], "has the options of a Collator"),
        ({**CONVERTER.to_dict(), "scales": 2}, [], "a.json: scales is not an option"),
        ({**CONVERTER.to_dict(), "version": 9}, [], "a.json: version is 9"),
        ({**CONVERTER.to_dict(), "pattern": "bh->"}, [], "a.json: cannot read"),
    ],
)
def test_options_that_do_not_apply_are_refused(folder, capsys, options, words, message):
    stored = store(folder / "a.json", options)
    files = [str(folder / "x.npy"), str(folder / "y.npy")]
    assert main(["convert", *files, *words, "--options", stored]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "y.npy").exists()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "\udcff"])
def test_other_files_are_refused(folder, capsys, text):
    (folder / "a.json").write_text(text, errors="surrogateescape")
    assert main(["explain", "--compare", *[str(folder / "a.json")] * 2]) == 2
    assert "a.json" in capsys.readouterr().err


def test_differences_are_listed(folder, capsys):
    sizes = {"h": 224, "w": 224}
    one = Collator("hwc->bchw", resize="bicubic", mean=(0.5, 0.4, 0.3), **sizes)
    other = Collator(
        "hwc->bhwc",
        resize="bilinear",
        antialias=False,
        center="floor",
        casting="saturate",
        mean=(0.5, 0.4, 0.25),
        **sizes,
    )
    files = [store(folder / "a.json", one), store(folder / "b.json", other)]
    assert main(["explain", "--compare", *files]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    table = {row[0].strip(): [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}
    assert table == {
        "": ["a.json", "b.json"],
        "filter (resize)": ["bicubic", "bilinear"],
        "antialias": ["true", "false"],
        "centering (center)": ["round", "floor"],
        "rounding (casting)": ["same_kind", "saturate"],
        "order of axes (pattern)": ["hwc->bchw", "hwc->bhwc"],
        "constant mean": ["[0.5, 0.4, 0.3]", "[0.5, 0.4, 0.25]"],
    }


def test_other_spellings_are_no_difference(folder, capsys):
    one = Converter("bhwc->bchw", dtype="float32", scale=2)
    other = Converter("N H W c -> N c H W", dtype=np.float32, scale=2.0)
    files = [store(folder / "a.json", one), store(folder / "b.json", other)]
    assert main(["explain", "--compare", *files]) == 0
    assert "the options are equal" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["bhwc->bchw"], ["--shape", "1,2"], ["--scale", "2"]])
def test_nothing_else_is_explained_beside_a_comparison(folder, capsys, words):
    stored = store(folder / "a.json", CONVERTER)
    assert main(["explain", *words, "--compare", stored, stored]) == 2
    assert "omit all other arguments" in capsys.readouterr().err
