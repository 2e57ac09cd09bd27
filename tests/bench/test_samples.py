"""`--collate` and `--resize`: equal batches of all libraries, and the printed tables."""

import numpy as np
import pytest

from layoutkit import Collator
from layoutkit.bench import main, samples
from layoutkit.bench.protocol import Budget
from layoutkit.bench.sample_cases import (
    FORMULA,
    PATCHES,
    PackedCase,
    SampleCase,
    random_crops,
    random_images,
    random_windows,
)
from layoutkit.bench.sample_peers import PEERS

RNG = np.random.default_rng(0)
PHOTOS = [random_images(RNG, 1, size, 230)[0] for size in (220, 230)]
SMALL = random_images(RNG, 3, 40, 50)
WINDOW = {"h": 224, "w": 224}
LETTERBOX = {"h": 50, "w": 50, "resize": "bilinear", "fit": "pad", "fill": 114, **FORMULA}
CUBIC = {"h": 24, "w": 24, "resize": "bicubic", **FORMULA}
HALF = {"h": 20, "w": 25, "resize": "bilinear"}
TURNS = [random_windows(RNG, PHOTOS) for _ in range(2)]
COLLATE = [
    SampleCase("filled", "bchw", PHOTOS, {**WINDOW, **FORMULA, "fill": 7}, TURNS, 0.7),
    SampleCase("bytes", "bhwc", PHOTOS, {**WINDOW, "fill": 7}, TURNS),
    SampleCase("rows", "chwb", np.stack(SMALL), {}, [{"indices": np.array([2, 0])}], most_us=12),
]
RESIZE = [
    SampleCase("crops", "bchw", SMALL, CUBIC, [random_crops(RNG, SMALL) for _ in range(2)]),
    SampleCase("letterbox", "bchw", SMALL, LETTERBOX, box=(5, 0, 40, 50)),
    SampleCase("bands", "bchw", [RNG.integers(0, 4096, (40, 50, 12), np.uint16)], HALF),
    SampleCase("bytes", "bhwc", SMALL, HALF),
    SampleCase("enlarged", "bchw", SMALL, CUBIC | {"h": 60, "w": 70}),
]


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch):
    monkeypatch.setattr(samples, "collate_cases", lambda: COLLATE)
    monkeypatch.setattr(samples, "resize_cases", lambda: RESIZE)
    monkeypatch.setattr(samples, "QUICK", Budget(0.02, 0.001, min_rounds=1, max_rounds=2))


def test_crops_are_compared_with_the_limit_and_step_by_step_code(capsys):
    assert main(table="collate", quick=True) == 0
    *_, filled, _, rows = capsys.readouterr().out.splitlines()
    assert filled.startswith("filled ")
    assert "(0.70)" in filled
    assert samples.NUMPY_AND_CONVERT in filled
    assert "(12 us)" in rows


def test_resized_batches_have_a_second_line_without_antialias(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    assert main(table="resize", quick=True) == 0
    lines = capsys.readouterr().out.splitlines()[-10:]
    assert [line.split()[0] for line in lines[::2]] == [case.name for case in RESIZE]
    assert all("torch" in line and "OpenCV INTER_AREA" in line for line in lines[::2])
    assert all(line.startswith("  without antialias") for line in lines[1::2])
    assert ["Pillow" in line for line in lines[::2]] == [True, True, False, True, True]


def test_patches_are_compared_with_torch(capsys, monkeypatch):
    pytest.importorskip("torch")
    images = [RNG.integers(0, 256, shape, np.uint8) for shape in [(28, 42, 3), (56, 14, 3)]]
    resized = PATCHES | {"resize": "bicubic", "multiple": 28}
    cases = [
        PackedCase("bytes", "(bhw)(cpq)", images, PATCHES, at_least=0.6),
        PackedCase("resized", "(bhw)(cpq)", images, resized | FORMULA),
    ]
    monkeypatch.setattr(samples, "collate_cases", lambda: cases)
    assert main(table="collate", quick=True) == 0
    *_, moved, averaged = capsys.readouterr().out.splitlines()
    assert "(0.60)" in moved
    assert moved.endswith(" torch")
    assert averaged.endswith(" torch")


@pytest.mark.budget(4)
@pytest.mark.parametrize("case", COLLATE + RESIZE, ids=lambda case: f"{case.name} {case.to}")
@pytest.mark.parametrize("name", ["torch", "Pillow", "OpenCV", "OpenCV INTER_AREA"])
def test_libraries_make_the_same_batch(case, name):
    package = {"torch": "torch", "Pillow": "PIL"}.get(name, "cv2")
    pytest.importorskip(package)
    pytest.importorskip("cv2")
    expected = Collator(case.pattern, **case.keywords)(case.samples, **case.turns[-1])
    collate = PEERS[name](case, expected)
    if collate is None:
        pytest.skip("the library does not support this batch")
    batch = np.asarray(collate(case.turns[-1]))
    assert batch.shape == expected.shape
    if case in COLLATE:
        np.testing.assert_allclose(batch, expected, atol=1e-5)
    difference = abs(np.mean(batch, dtype=float) - np.mean(expected, dtype=float))
    assert difference < 0.05 * np.std(expected)


def test_random_crops_are_inside_and_have_many_sizes():
    crops = random_crops(RNG, random_images(RNG, 64, 40, 50))
    for axis, size in (("h", 40), ("w", 50)):
        assert (crops["offset"][axis] >= 0).all()
        assert (crops["offset"][axis] + crops["crop"][axis] <= size).all()
    assert len(set(crops["crop"]["h"].tolist())) > 10


@pytest.mark.parametrize(("table", "lines"), [("collate", 3), ("resize", 5)])
def test_a_wrong_batch_is_not_timed(table, lines, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(samples, "stack_and_convert", lambda *_: np.zeros(1))
    monkeypatch.setattr(samples, "check_resized", lambda *_, **__: np.testing.assert_equal(0, 1))
    assert main(table=table, quick=True) == 1
    assert capsys.readouterr().out.count("WRONG") == lines
