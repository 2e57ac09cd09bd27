"""Extensions that take two files: a module, and a row in the table that names it.

Each test adds a toy extension by the recipe, uses it as a user does, and removes it again.
"""

import importlib
import sys

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.cli import main
from layoutkit.data import Dataset, Record, formats, open_index, sampled_batcher, sampler
from layoutkit.data import io as reading_package
from layoutkit.data import samplers as samplers_package
from layoutkit.data.samplers.sampling import KINDS, Kind
from tests.helpers.recipes import blocks

BACKWARD = blocks("A new sampler")[0]
GRID = blocks("A new file format")[0]


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Return a function that adds a module to a package of layoutkit until the test ends."""

    def added(package, name, source):
        folder = tmp_path / "modules"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(source)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        full = f"{package.__name__}.{name}"
        module = importlib.import_module(full)
        monkeypatch.delitem(sys.modules, full)
        monkeypatch.delattr(package, name)
        return module

    return added


# ---- a sampler: samplers/backward.py, and a row in samplers/kinds.py -------------------------


@pytest.fixture
def backward(add, monkeypatch):
    names = {"backward": add(samplers_package, "backward", BACKWARD), "Kind": Kind}
    row = eval(blocks("A new sampler")[1].strip().rstrip(","), names)
    monkeypatch.setitem(KINDS, row.name, row)


@pytest.mark.usefixtures("backward")
def test_a_new_sampler():
    assert list(sampler("backward", 5)) == [4, 3, 2, 1, 0]
    order = sampler("backward", 5, batch_size=2)
    assert [batch.tolist() for batch in order.batches()] == [[4, 3], [2, 1], [0]]
    assert (order.epoch, order.num_batches, order.unvisited) == (1, 3, 0)
    source = {"x": np.arange(5.0), "y": ["a", "b", "a", "b", "a"]}
    found = [record.position for record in sampler("backward", open_index(source), label="a")]
    assert found == [4, 2, 0]
    with sampled_batcher(source, batch_size=3, sampler="backward") as batches:
        first = next(iter(batches))
        state = batches.state_dict()
        assert (first.input.input.tolist(), state["kind"]) == ([4, 3, 2], "backward")
    with sampled_batcher(source, batch_size=3, sampler="backward") as batches:
        batches.load_state_dict(state)
        assert [batch.input.input.tolist() for batch in batches] == [[1, 0]]


def test_without_its_row_there_is_no_such_sampler():
    with pytest.raises(DataError, match="no sampler is called 'backward'"):
        sampler("backward", 5)


# ---- a file format: reading/grid.py, and a row in formats.py ---------------------------------


@pytest.fixture
def grid(add, tmp_path):
    module = add(reading_package, "grid", GRID)
    rows = eval("{" + blocks("A new file format")[1] + "}", vars(module))
    formats.ARRAY_READERS.update(rows)
    (tmp_path / "x.grid").write_text("1 2\n3 4\n5 6\n")
    yield tmp_path / "x.grid"
    for suffix in rows:
        del formats.ARRAY_READERS[suffix]


def test_a_new_file_format(grid, tmp_path):
    index = open_index(grid)
    assert (index.kind, len(index), index[1].array.tolist()) == ("tensor", 3, [3, 4])
    with sampled_batcher(str(grid), batch_size=2) as batches:
        assert [batch.input.input.tolist() for batch in batches] == [[[1, 2], [3, 4]], [[5, 6]]]
    dataset = Dataset(grid)
    assert (dataset._shape(), dataset._layout(), dataset[2]().tolist()) == ((3, 2), "bf", [5, 6])
    with pytest.raises(DataError, match="read_only=False"):
        Dataset(grid, read_only=False)
    assert main(["convert", str(grid), str(tmp_path / "y.npy"), "bf->fb", "--quiet"]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [[1, 3, 5], [2, 4, 6]]


def test_a_new_file_format_at_a_url(grid):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://recipes/x.grid", "wb") as file:
        file.write(grid.read_bytes())
    assert open_index("memory://recipes/x.grid")[2] == Record(position=2)
    assert open_index("memory://recipes/x.grid")[2].array.tolist() == [5, 6]


def test_a_damaged_file_of_a_new_format_is_named(grid):
    grid.write_text("1 2\n3\n")
    for use in (open_index, Dataset):
        with pytest.raises(DataError, match=r"x\.grid cannot be read: the number of columns"):
            use(grid)


def test_without_its_row_there_is_no_such_format(tmp_path):
    (tmp_path / "x.grid").write_text("1 2\n")
    with pytest.raises(DataError, match="nothing is known of its kind"):
        open_index(tmp_path / "x.grid")
