"""`_minibatches`: a Dataset of Datasets; the last one may be short."""

import numpy as np
import pytest

from layoutkit import DataError, ShapeError
from layoutkit.data import Dataset, Sample
from tests.helpers.array_likes import Like


def dataset(n=10):
    x, y, z = np.arange(2.0 * n).reshape(n, 2), np.arange(n), np.arange(n - 1)
    return Dataset({"x": x, "y": y, "z": z}, meta={"y": {"classes": n}}), x, y


@pytest.mark.parametrize("n", [9, 10, 11, 1, 4, 5])
@pytest.mark.parametrize("size", [1, 5, 20])
def test_each_is_a_run_of_samples(n, size):
    d, x, _ = dataset(n)
    mb = d._minibatches(size)
    count = -(-n // size)
    assert type(mb) is Dataset
    assert (len(mb), mb._length(), mb._shape()) == (count, count, (count, size, 2))
    assert len(list(mb)) == count
    for k, batch in enumerate(mb):
        assert type(batch) is Dataset
        assert batch == d[k * size : (k + 1) * size] == mb[k] == mb[k - count]
        assert (batch() == x[k * size : (k + 1) * size]).all()
        assert [name for name, _ in batch._iter_fields()] == ["x", "y"]
        assert batch.y == d.y[k * size : (k + 1) * size]
        assert (batch.y._meta(), batch._layout()) == ({"classes": n}, "bf")
    for key in (count, -count - 1, [count]):
        with pytest.raises(DataError):
            mb[key]


def test_fields_are_mini_batches_of_the_fields():
    d, _, y = dataset()
    mb = d._minibatches(4)
    assert [name for name, _ in mb._iter_fields()] == ["x", "y", "z"]
    assert (mb.y._shape(), mb.z._shape()) == ((3, 4), (3, 4))
    assert [batch().tolist() for batch in mb.y] == [y[:4].tolist(), y[4:8].tolist(), [8, 9]]
    assert mb.z[2]().tolist() == [8]
    assert (mb.x._width(), mb.x._shape()[2]) == (4, 2)


def test_all_at_once_only_when_none_is_short():
    d, x, _ = dataset()
    assert np.shares_memory(d._minibatches(5)(), x)
    assert (d._minibatches(5)() == x.reshape(2, 5, 2)).all()
    with pytest.raises(DataError, match="fewer than 4"):
        d._minibatches(4)()
    with pytest.raises(DataError, match="fewer than 4"):
        d._minibatches(4)._write(0)
    assert (d._minibatches(4)[:2]() == x[:8].reshape(2, 4, 2)).all()
    assert Dataset(np.zeros((0, 3)))._minibatches(2)().shape == (0, 2, 3)


def test_selections_of_mini_batches():
    d, x, _ = dataset()
    mb = d._minibatches(4)
    shuffled = mb[[2, 0]]
    assert type(shuffled) is Dataset
    assert [batch.y().tolist() for batch in shuffled] == [[8, 9], [0, 1, 2, 3]]
    assert [len(batch) for batch in mb[::-1]] == [2, 4, 4]
    assert len(mb[mb.y._shape()[0] == np.arange(3)]) == 0
    assert mb[1, 2] == mb[1][2] == d[6]
    assert mb[1, 1:3] == d[5:7]
    assert mb[2, 1, 0]() == x[9, 0]
    assert (mb[:2, 1:3]() == x[:8].reshape(2, 4, 2)[:, 1:3]).all()
    with pytest.raises(DataError):
        mb[:, 0]
    with pytest.raises(DataError):
        mb[2, 2]()
    assert mb._layout() is None
    assert mb[:2]._layout() is None


def test_mini_batches_write_through():
    d, x, y = dataset()
    mb = d._minibatches(5)
    mb[0] = 0
    mb[1].y += 100
    mb.y[0][2:] *= 2
    mb[:, 4] = np.array([[7], [8]])
    assert x[:4].tolist() == [[0, 0]] * 4
    assert x[[4, 9]].tolist() == [[7, 7], [8, 8]]
    assert y.tolist() == [0, 1, 4, 6, 8, 105, 106, 107, 108, 109]
    mb._write(np.arange(10).reshape(2, 5, 1))
    mb += 1
    mb[[1, 0]][0] -= 1
    assert x[:, 0].tolist() == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    mb()[0, 0] = -1
    assert x[0].tolist() == [-1, -1]


def test_mini_batches_of_another_size_are_other_data():
    """Mini-batches can be assigned to themselves, but not to mini-batches of another size."""
    x = np.arange(24)
    four, six = (Dataset(x)._minibatches(size)[:2] for size in (4, 6))
    four[:] = four
    with pytest.raises(ShapeError):
        four[:] = six
    assert x.tolist() == list(range(24))


def test_mini_batches_of_other_data():
    like = Like(np.arange(10.0))
    batch = Dataset(like)._minibatches(4)[1]
    assert like.asked == []
    assert batch().tolist() == [4, 5, 6, 7]
    assert like.elements_read == 4
    rows = [np.arange(n) for n in range(5)]
    mb = Dataset(rows)._minibatches(2)
    assert [[len(row) for row in batch()] for batch in mb] == [[0, 1], [2, 3], [4]]
    of_batches = Dataset(np.arange(10))._minibatches(2)._minibatches(3)
    assert len(of_batches) == 2
    assert [batch().tolist() for batch in of_batches[1]] == [[6, 7], [8, 9]]


@pytest.mark.parametrize("size", [0, -1, 2.0, None, True, "3"])
def test_wrong_sizes(size):
    with pytest.raises(DataError):
        dataset()[0]._minibatches(size)


def test_samples_have_no_mini_batches():
    with pytest.raises(DataError):
        Sample(np.ones(4))._minibatches(2)
    with pytest.raises(ShapeError):
        Dataset(np.ones(4))._minibatches(2)._write(np.ones(3))
