"""Misspelled arguments, impossible sizes and paths, data frames and states of NumPy's numbers."""

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import ArrayProvider, Dataset, Sample, open_index, sampler

WRONG = np.array([1, 2])
X = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("function", "wrong", "right"),
    [
        (ArrayProvider, "batchsize", "batch_size"),
        (Dataset, "layuot", "layout"),
        (Sample, "read_onyl", "read_only"),
        (open_index, "partiton", "partition"),
    ],
)
def test_an_unknown_argument_names_the_nearest_one(function, wrong, right):
    expected = f"^{function.__name__} has no {wrong}=; did you mean {right}=\\?"
    with pytest.raises(DataError, match=expected) as error:
        function(X, **{wrong: 1})
    assert isinstance(error.value, TypeError)
    with pytest.raises(DataError, match=r"^sampler has no sed=; did you mean seed=\?"):
        sampler("shuffle", 6, sed=1)


def test_a_batch_that_no_memory_holds():
    with pytest.raises(DataError, match="batch_size=4611686018427387904"):
        ArrayProvider(X, batch_size=2**62)


@pytest.mark.parametrize("path", ["a" * 5000, "a" * 5000 + ".csv", "a" * 5000 + ".npy", "a\0.csv"])
def test_names_that_no_file_can_have(path):
    with pytest.raises(DataError):
        open_index(path)


class Frame:
    """A stand-in with the attributes of a pandas DataFrame or Series that an index uses."""

    def __init__(self, values):
        self.values, self.shape, self.iloc = values, values.shape, None

    def __getitem__(self, key):
        raise KeyError(key)

    def to_numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_the_rows_of_a_data_frame_are_records():
    for source in (Frame(X), {"x": Frame(X), "y": X}):
        assert open_index(source)[5].array.tolist() == X[5].tolist()


def test_a_data_frame_of_anything_is_refused():
    for source in (Frame(X.astype(object)), {"x": Frame(X.astype(object)), "y": X}):
        with pytest.raises(DataError, match="not an array of numbers or strings"):
            open_index(source)


def test_a_series_is_its_values():
    index = open_index({"x": Frame(X[:, 0]), "y": Frame(np.array([*"abcabc"]))})
    assert (index[5].array, index[5].label) == (10, "c")


def test_a_state_of_numpys_numbers(tmp_path):
    for part in "ab":
        (tmp_path / part).write_text("1\n2\n3\n")
    index = open_index(tmp_path, kind="parts")

    def made():
        return sampler("part-permutation-permutation", index)

    order = made()
    whole, loop = list(made()), iter(order)
    for _ in range(4):
        next(loop)
    state = order.state_dict()
    numbers = {k: np.int64(v) if isinstance(v, int) else v for k, v in state.items()}
    again = made()
    again.load_state_dict(numbers)
    assert again.state_dict() == state
    assert list(again) == whole[4:]
    with pytest.raises(DataError, match="another Sampler: seed"):
        again.load_state_dict({**state, "seed": WRONG})
