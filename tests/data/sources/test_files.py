"""Lists of files as sources."""

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL.Image")

from layoutkit import Collator, DataError
from layoutkit.data import open_index, sampled_batcher
from layoutkit.images import read
from tests.helpers.photographs import noise, save

COUNT = 5
PATHS = [f"photos/{number}.png" for number in range(COUNT)]
LABELS = ["b", "a", "b", "c", "a"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Write images of different sizes into the working directory."""
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate(PATHS):
        save(Path(path), noise(number, 20 + number, 30 - number, 3))
    Path("photos/notes.txt").write_text("no image")


def frame(**columns):
    return pytest.importorskip("pandas").DataFrame(columns)


@pytest.mark.parametrize(
    "source",
    [PATHS, tuple(PATHS), [Path(p) for p in PATHS], "photos/*.png", "**/*.png", np.array(PATHS)],
)
def test_files_without_labels(source):
    index = open_index(source)
    assert index.kind == "files"
    assert [record.url for record in index] == PATHS
    assert index.labels == []
    with sampled_batcher(source, batch_size=3, size=(8, 9), sampler="sequential") as batches:
        assert [(x.shape, y) for x, y in batches] == [((3, 8, 9, 3), None), ((2, 8, 9, 3), None)]


@pytest.mark.parametrize("path", ["photos/1.png", Path("photos/1.png")])
def test_one_file(path):
    assert [record.url for record in open_index(path)] == ["photos/1.png"]


NAMES = ["a1", "a[1]", "a[!2]", "b*", "bc", "c?", "cd"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        *((f"odd[1]/{name}.png", [name]) for name in NAMES),
        ("odd[1]/a[0-9].png", ["a1"]),
        ("odd[1]/b?.png", ["b*", "bc"]),
        ("odd[1]/*.png", sorted(NAMES)),
        ("*/a*1*.png", ["a1", "a[1]"]),
        ("**/c*.png", ["c?", "cd"]),
        ("./odd[1]//a1*.png", ["a1"]),
        ("odd[[]1]/a[[]1].png", ["a[1]"]),
    ],
)
@pytest.mark.parametrize("kind", [os.path.abspath, Path])
def test_what_exists_is_meant_and_no_pattern(source, names, kind):
    for number, name in enumerate(NAMES):
        save(Path(f"odd[1]/{name}.png"), noise(number, 8, 9, 3))
        save(Path(f"odd1/d{name}.png"), noise(number, 8, 9, 3))
    assert [Path(record.url).stem for record in open_index(kind(source))] == names
    with sampled_batcher(kind(source), batch_size=9, size=(8, 9), sampler="sequential") as batches:
        expected = [noise(NAMES.index(name), 8, 9, 3) for name in names]
        np.testing.assert_array_equal(next(iter(batches)).input.input, expected)


@pytest.mark.parametrize("source", ["a[1].png", "odd[1]/x*.png", "none[1]/*.png"])
def test_a_pattern_that_matches_nothing(source):
    with pytest.raises(DataError, match="names no file"):
        open_index(source)


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"x": PATHS, "y": LABELS},
        lambda: {"x": np.array(PATHS), "y": np.array(LABELS)},
        lambda: frame(filename=PATHS, label=LABELS),
        lambda: frame(size=range(COUNT), path=PATHS, label=LABELS),
    ],
)
def test_files_with_labels(make):
    index = open_index(make())
    assert index.labels == ["a", "b", "c"]
    assert [(record.url, record.label) for record in index] == list(zip(PATHS, LABELS, strict=True))
    part = open_index(make(), partition=1, partitions=2)
    assert [record.label for record in part] == LABELS[1::2]
    with sampled_batcher(make(), batch_size=COUNT, size=(8, 9), sampler="sequential") as batches:
        batch = next(iter(batches))
    assert batch.target.forward_get("b").tolist() == [1, 0, 1, 2, 0]


def test_files_with_targets():
    targets = np.random.default_rng(0).random((COUNT, 2))
    source = {"x": PATHS, "y": targets}
    with sampled_batcher(source, batch_size=COUNT, size=(8, 9), sampler="sequential") as batches:
        batch = next(iter(batches))
    np.testing.assert_array_equal(batch.target.forward_get("bf"), targets)


def test_a_collator_takes_the_images_of_a_list():
    collator = Collator("hwc->bchw", h=8, w=9, resize="area")
    with sampled_batcher(PATHS, batch_size=COUNT, collate=collator, sampler="sequential") as made:
        batch = next(iter(made))
    expected = collator([read(path) for path in PATHS])
    np.testing.assert_array_equal(batch.input.forward_get("bchw"), expected)


def test_an_index_of_a_list_has_one_file_per_record():
    np.save("a.npy", np.zeros((2, 3)))
    np.save("b.npy", np.ones((2, 3)))
    lists = (["a.npy", "b.npy"], ["photos"], [np.zeros(2)], ["photos", "photos/notes.txt"])
    for several in lists:
        with pytest.raises(DataError, match="a list of sources, and an index has one: open each"):
            open_index(several)
    texts = open_index({"x": ["some words", "other words"], "y": [0, 1]})
    assert texts.kind == "tensor"
    files = open_index(["a.npy", "b.npy"], kind="files")
    assert [record.url for record in files] == ["a.npy", "b.npy"]
    assert open_index([str(Path("photos/notes.txt"))])[0].url == "photos/notes.txt"


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ({"x": PATHS, "y": LABELS[1:]}, "x has 5 records and y 4; give one label per record"),
        ({"x": PATHS, "z": LABELS}, "has x, z; an index needs x"),
        ("photos/*.jpg", r"photos/\*.jpg names no file"),
        ("photos/9.png", "there is no such file"),
        ([*PATHS, 7], "file 5 is 7; give the path of a file"),
    ],
)
def test_bad_lists(source, match):
    with pytest.raises(DataError, match=match):
        open_index(source)


def test_a_file_that_is_not_there_is_reported():
    with sampled_batcher([*PATHS, "photos/9.png"], batch_size=9, size=(8, 8)) as batches:
        (batch,) = batches
        assert batch.count == COUNT
        assert batches.dropped == 1
