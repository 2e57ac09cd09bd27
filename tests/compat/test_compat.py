"""Files of each release are read by this version, with the results of the version that wrote them.

`write.py` writes them. The tests compare with results that are computed here, or stored as text.
"""

import importlib
import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import layoutkit
from layoutkit.data import open_index
from layoutkit.data.io.reader import Reader
from layoutkit.data.recordio import RecordWriter, read_records
from tests.compat import write

HERE = Path(__file__).parent
FOLDERS = sorted(
    (path for path in HERE.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)),
    key=lambda path: [int(number) for number in path.name.split(".")],
)

every_version = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def unpickled(folder, name):
    return pickle.loads((folder / f"{name}.pickle").read_bytes())


def test_this_version_has_a_folder_with_every_file():
    folder = write.folder_of(layoutkit.__version__)
    names = {f"{name}.pickle" for name in write.make_objects()}
    names |= {"batcher.json", "names.json", "records.rec", "records.idx"}
    assert {path.name for path in folder.iterdir()} == names


@every_version
def test_a_converter(folder):
    converter = unpickled(folder, "converter")
    assert converter == write.make_objects()["converter"]
    expected = (write.PIXELS.astype("f4") * np.float32(0.5) - np.float32([1, 2, 3])).transpose(
        0, 3, 1, 2
    )
    np.testing.assert_array_equal(converter(write.PIXELS), expected)


@every_version
def test_a_collator(folder):
    result = unpickled(folder, "collator")([*write.PIXELS], offset={"h": [1, 0], "w": [2, 1]})
    windows = [write.PIXELS[0, 1:3, 2:5], write.PIXELS[1, :2, 1:4]]
    np.testing.assert_array_equal(result, np.stack(windows).transpose(0, 3, 1, 2))
    assert result.dtype == "float32"


@every_version
def test_views(folder):
    view = unpickled(folder, "view")
    assert type(view) is layoutkit.ImageView
    np.testing.assert_array_equal(view.forward_get("bchw"), write.PIXELS.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(view.input, write.PIXELS)
    labels = unpickled(folder, "class_view")
    assert list(labels.classes) == list("abc")
    np.testing.assert_array_equal(labels.one_hot("int8"), np.eye(3, dtype="int8")[[2, 0, 1]])


@every_version
def test_spaces(folder):
    now = write.make_objects()
    space, conv_space = unpickled(folder, "space"), unpickled(folder, "conv_space")
    assert (space, conv_space) == (now["space"], now["conv_space"])
    x = write.PIXELS.astype("f4")
    flat = conv_space.format_as(x, layoutkit.VectorSpace(60))
    np.testing.assert_array_equal(flat, x.reshape(2, 60))


@every_version
def test_an_index_and_its_sampler(folder):
    index = unpickled(folder, "index")
    assert (len(index), index.labels) == (write.RECORDS, ["label 0", "label 1", "label 2"])
    assert [record.label for record in index] == write.source()["y"]
    assert [int(record.array) for record in index] == list(range(write.RECORDS))
    again, new = unpickled(folder, "sampler"), write.open_sampler()
    assert again.state_dict() == new.state_dict()
    first = [[record.position for record in loop] for loop in (again, new)]
    assert first[0] == first[1]
    assert len(first[0]) > write.RECORDS / 2


@every_version
def test_the_state_of_a_batcher_resumes_with_the_same_records(folder):
    stored = json.loads((folder / "batcher.json").read_text())
    batcher = write.open_batcher()
    batcher.load_state_dict(stored["state"])
    rest = write.positions_of(batcher, batcher)
    assert rest == stored["rest"]
    assert len(rest) == 10  # four batches of this epoch, six of the next


@every_version
def test_a_record_file_with_its_index(folder, tmp_path):
    assert list(read_records(folder / "records.rec")) == write.PAYLOADS
    index = open_index(folder / "records.rec")
    get = index.getter(Reader())
    assert [get(record) for record in index] == write.IMAGES
    with RecordWriter(tmp_path / "records.rec") as writer:
        for payload in write.PAYLOADS:
            writer.write(payload)
    for name in ("records.rec", "records.idx"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@every_version
def test_a_changed_index_is_used(folder, tmp_path):
    """The .idx decides which records there are, so the test above has read the stored .idx."""
    shutil.copy(folder / "records.rec", tmp_path)
    lines = (folder / "records.idx").read_text().splitlines(keepends=True)
    (tmp_path / "records.idx").write_text("".join(lines[2:]))
    index = open_index(tmp_path / "records.rec")
    get = index.getter(Reader())
    assert [get(record) for record in index] == write.IMAGES[2:]


@pytest.mark.parametrize("folder", FOLDERS[-3:], ids=lambda folder: folder.name)
def test_public_names_of_three_minor_releases_are_there(folder):
    names = json.loads((folder / "names.json").read_text())
    assert len(names) > 50
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


NAMES = """
import importlib, layoutkit.data, layoutkit.data.recordio, layoutkit.images
for module in (layoutkit, layoutkit.data, layoutkit.data.recordio, layoutkit.images):
    for name in module.__all__:
        getattr(module, name)
"""


def test_no_public_name_warns():
    """Test in a new process, because a module warns at its first use only."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", NAMES],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DeprecationWarning" not in done.stderr
