"""Folders as indexes."""

import pytest

from layoutkit import DataError
from layoutkit.data import open_index


def filled(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def test_first_level_folders_are_labels(tmp_path):
    root = filled(tmp_path, "cats/cat2", "cats/cat1", "dogs/dog1", "unlabeled2", "unlabeled1")
    index = open_index(root, missing=-1)
    assert [(r.url, r.label, r.labels) for r in index] == [
        (f"{root}/cats/cat1", "cats", ("cats",)),
        (f"{root}/cats/cat2", "cats", ("cats",)),
        (f"{root}/dogs/dog1", "dogs", ("dogs",)),
        (f"{root}/unlabeled1", None, ()),
        (f"{root}/unlabeled2", None, ()),
    ]
    assert (index.kind, index.url_prefix, index.labels) == (
        "directory",
        str(root),
        ["cats", "dogs"],
    )
    assert index.item_count("cats") == 2
    assert index.item_at(0, "dogs").position == 2


def test_order_is_by_path_name_by_name(tmp_path):
    # As strings a.b/x comes before a/y, because a dot comes before a slash.
    root = filled(tmp_path, "a/y", "a.b/x", "a/b/c", "B/z", "a0", "b/2", "b/10")
    paths = [r.url.removeprefix(f"{root}/") for r in open_index(root, missing=-1)]
    assert paths == ["B/z", "a/b/c", "a/y", "a.b/x", "a0", "b/10", "b/2"]
    assert paths == sorted(paths, key=lambda path: path.split("/"))
    assert open_index(root, missing="drop").item_count("a") == 2  # all below it


def test_hidden_names_are_skipped(tmp_path):
    root = filled(tmp_path, ".git/x", "a/.DS_Store", "a/b/.c/d", ".e", "a/f", "_g")
    assert [r.url for r in open_index(f"{root}/", missing=-1)] == [f"{root}/_g", f"{root}/a/f"]


def test_links(tmp_path):
    root = filled(tmp_path / "root", "a/x")
    filled(tmp_path / "other", "y")
    (root / "b").symlink_to(tmp_path / "other")
    assert [r.label for r in open_index(root)] == ["a", "b"]
    (root / "a" / "loop").symlink_to(root)
    with pytest.raises(DataError, match="loop is a link to a folder that contains it"):
        open_index(root)


@pytest.mark.parametrize("kind", ["directory", None])
def test_no_folder(tmp_path, kind):
    with pytest.raises(DataError, match="nowhere"):
        open_index(tmp_path / "nowhere", kind=kind)


def test_a_folder_without_files_is_an_error(tmp_path):
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / ".hidden").touch()
    with pytest.raises(DataError, match="photos has no records: there are no files"):
        open_index(tmp_path / "photos")
    (tmp_path / "photos" / "cat" / "1.jpg").touch()
    assert len(open_index(tmp_path / "photos", partition=1, partitions=2)) == 0
