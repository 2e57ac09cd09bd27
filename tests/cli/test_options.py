"""Files of options: `--options` of `convert` and `batches`, and `explain --compare`."""

import json

import numpy as np
import pytest

from layoutkit import Collator, Converter
from layoutkit.cli import main
from layoutkit.data import sampled_batcher
from tests.helpers.command_batches import run_batches

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
        (CONVERTER, ["--pad-to", "h=9"], "--pad-to: --options has all options"),
        (Converter("bhw->bwh", copy=True), [], "does not apply to files"),
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


def test_random_crops_and_a_central_window_differ_in_these_only(folder, capsys):
    options = {"h": 32, "w": 32, "resize": "bilinear", "mean": (0.5, 0.4, 0.3)}
    training = Collator("hwc->bchw", crop="random", **options)
    evaluation = Collator("hwc->bchw", short_side=36, **options)
    files = [store(folder / "a.json", training), store(folder / "b.json", evaluation)]
    assert main(["explain", "--compare", *files]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["crop", "short_side"]


def test_the_configuration_of_an_image_processor_is_compared(folder, capsys):
    config = {"image_processor_type": "ViTImageProcessor", "resample": 3, "do_rescale": False}
    options = {"h": 224, "w": 224, "dtype": "float32", "mean": (0.5,) * 3, "std": (0.5,) * 3}
    collator = Collator("hwc->bchw", resize="bilinear", **options)
    files = [store(folder / "preprocessor_config.json", config), store(folder / "b.json", collator)]
    assert main(["explain", "--compare", *files]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["filter", "(resize)", "bicubic", "bilinear"]]


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


# ---- batches -------------------------------------------------------------------------------

CROPS = Collator("hwc->bchw", h=4, w=5, offset="random", dtype="float32", scale=1 / 255, seed=3)


@pytest.fixture
def images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 9, 12, 3), np.uint8)
    for number, array in enumerate(pixels):
        image.fromarray(array[: 6 + number]).save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("collator", "words", "seed"),
    [
        (CROPS, [], None),
        (Collator("hwc->bhwc", h=4, w=5, resize="bilinear"), ["--workers", 0], None),
        (
            Collator("hwc->bchw", h=4, w=5, flip="random", offset="random"),
            ["--seed", 7, "--sampler", "shuffle", "--profile"],
            7,
        ),
    ],
)
def test_batches_are_made_by_the_options_of_a_collator(
    images, tmp_path_factory, monkeypatch, capsys, collator, words, seed
):
    stored = store(tmp_path_factory.mktemp("stored") / "a.json", collator)
    actual = run_batches(monkeypatch, images, "--options", stored, "--batch-size", 2, *words)
    order = {"sampler": "shuffle"} if "--sampler" in words else {}
    with sampled_batcher(images, batch_size=2, collate=collator, seed=seed, **order) as batches:
        expected = [batch.input for batch in batches]
    np.testing.assert_array_equal(
        actual["input"], np.concatenate([view.forward_get("bhwc") for view in expected])
    )
    printed = capsys.readouterr().out
    first = expected[0].input
    assert f"first batch: {expected[0].layout} {first.shape} {first.dtype}" in printed
    assert "convert" not in printed
    assert ("if one batch is read" in printed) == ("--profile" in words)


@pytest.mark.parametrize(
    ("options", "words", "message"),
    [
        (CROPS, ["--to", "bchw"], "--to: --options has all options of the batches; omit one"),
        (CROPS, ["--size", "4x4"], "--size: --options has all options"),
        (CROPS, ["--short-side", 4], "--short-side: --options has all options"),
        (CROPS, ["--mean", 1], "--mean: --options has all options"),
        (CROPS, ["--preview", "a.png"], "--preview: --options has all options"),
        (CROPS, ["--seed", 7], "sampled_batcher has seed=7, but its Collator has seed=3"),
        (CONVERTER, [], "a.json has the options of a Converter; give those of a Collator"),
        ({**CROPS.to_dict(), "scales": 2}, [], "a.json: scales is not an option"),
        (Collator("hwc->bchw", h=4, w=5, dtype="int8"), [], "uint8 to int8"),
        (Collator("bhwc->bchw", h=4, w=5), [], "results are separate samples"),
        (Collator("hwc->bchw", h=400, w=500), [], "the result has size"),
    ],
)
def test_options_that_make_no_batches(images, tmp_path_factory, capsys, options, words, message):
    stored = store(tmp_path_factory.mktemp("stored") / "a.json", options)
    assert main(["batches", str(images), "--options", stored, *map(str, words)]) == 2
    assert message in capsys.readouterr().err
