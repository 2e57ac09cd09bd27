"""Valid calls whose results are probably not the intended ones: one warning with the cure."""

import warnings

import numpy as np
import pytest

from layoutkit import Collator, Converter, LayoutkitWarning, collate, convert
from layoutkit.cli import main
from layoutkit.data import sampled_batcher

PHOTOS = np.random.default_rng(0).integers(0, 256, (4, 8, 9, 3), dtype=np.uint8)
STD = (0.229, 0.224, 0.225)


def caught(call, *args, **keywords):
    """Return the warnings of layoutkit from a call."""
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        call(*args, **keywords)
    return [record for record in records if record.category is LayoutkitWarning]


def loop(**keywords):
    convert = Converter("bhwc->bhwc", **keywords)
    with sampled_batcher(PHOTOS, batch_size=2, num_workers=0, convert=convert) as batches:
        for batch in batches:
            batch.input.forward_get("bchw", "float32")


# The means differ, because each formula warns once.
CALLS = [
    (0.11, lambda **k: convert(PHOTOS, "bhwc->bchw", **k)),
    (0.12, lambda **k: Converter("bhwc->bchw", dtype="float16", **k)(PHOTOS)),
    (0.13, lambda **k: collate([*PHOTOS], "hwc->bchw", **k)),
    (0.14, lambda **k: Collator("hwc->bchw", h=4, w=4, resize="bilinear", **k)([*PHOTOS])),
    (0.15, loop),
]


@pytest.mark.parametrize(("mean", "call"), CALLS)
def test_bytes_with_constants_below_one_and_no_scale_warn_once(mean, call):
    [record] = caught(call, mean=(mean, 0.4, 0.4), std=STD)
    assert record.filename == __file__
    assert str(record.message).endswith("give scale=1/255 as well")
    assert "255 becomes 1137; " in str(record.message)
    assert not caught(call, mean=(mean, 0.4, 0.4), std=STD)


@pytest.mark.parametrize("mean", [(123.7, 116.3, 103.5), 2.01])
def test_a_scale_beside_means_of_bytes_warns(mean):
    [record] = caught(convert, PHOTOS, "bhwc->bchw", scale=1 / 255, mean=mean, std=0.5)
    assert str(record.message).endswith("of values from 0 to 255, omit scale=")


def test_another_shape_does_not_warn_again():
    converter = Converter("bhwc->bchw", mean=0.16, std=0.2)
    assert len(caught(converter, PHOTOS)) == 1
    assert not caught(converter, PHOTOS[:, :3])


@pytest.mark.parametrize(
    "keywords",
    [
        {"mean": 0.21, "std": STD, "scale": 1 / 255},
        {"mean": (0.22, 128.0, 0.4)},
        {"mean": (0.22, 128.0, 128.0), "scale": 1 / 255},
        {"mean": 2, "scale": 1 / 255},
        {"mean": 0.23, "std": 58.0},
        {"mean": 0, "std": 1},
        {"std": 255.0},
        {"clip": (0, 100)},
        {"scale": 1 / 255},
    ],
)
def test_other_formulas_of_bytes_do_not_warn(keywords):
    assert not caught(convert, PHOTOS, "bhwc->bchw", **keywords)


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtype", ["float32", "uint16", "int8"])
def test_other_dtypes_do_not_warn(dtype):
    assert not caught(convert, PHOTOS.astype(dtype), "bhwc->bchw", mean=0.24, std=STD)


def test_std_alone_warns():
    [record] = caught(convert, PHOTOS, "bhwc->bchw", std=0.25)
    assert "255 becomes 1020" in str(record.message)


@pytest.mark.filterwarnings("default::layoutkit.LayoutkitWarning")
def test_the_command_line_names_its_options(tmp_path, capsys):
    source, target = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(source, PHOTOS)
    options = ["--mean", "0.26,0.4,0.4", "--std", "0.2", "--quiet"]
    assert main(["convert", str(source), str(target), "bhwc->bchw", *options]) == 0
    error = capsys.readouterr().err
    assert error.startswith("layoutkit: warning: uint8 x with --mean 0.26,0.4,0.4, --std 0.2")
    assert error.endswith("give --scale 1/255 as well\n")
