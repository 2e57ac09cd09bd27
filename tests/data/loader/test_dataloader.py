"""Batches within PyTorch's DataLoader, which waits for ever if an object cannot be pickled."""

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
data = torch.utils.data

SOURCE = {"x": np.arange(40, dtype=np.float32).reshape(20, 2), "y": np.arange(20) % 3}


class Parts(data.IterableDataset):
    """Batches of a partition in each worker, as a user would write it."""

    def __iter__(self):
        worker = data.get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        index = open_index(SOURCE, partition=number, partitions=workers)
        how = {"batch_size": 4, "sampler": "shuffle", "processor": _odd_fails}
        with sampled_batcher(index, **how, num_workers=1) as batches:
            yield from batches


def _odd_fails(row, out):
    if row[0] == 6:
        raise UnportableError(lambda: row)
    return row


class UnportableError(Exception):
    """An error that cannot be pickled, like many errors of C libraries."""

    def __init__(self, call):
        super().__init__("not this one")
        self.call = call


@pytest.mark.budget(1)
@pytest.mark.parametrize("start", [None, "forkserver", "spawn"])
def test_batches_come_out_of_workers(start):
    workers = {"num_workers": 2, "multiprocessing_context": start, "timeout": 120}
    loader = data.DataLoader(Parts(), batch_size=None, **(workers if start else {}))
    found, dropped = [], []
    for batch in loader:
        x, y = batch
        rows = x.forward_get("bf")
        found += rows[:, 0].tolist()
        assert y.forward_get("b").tolist() == [int(row) // 2 % 3 for row in rows[:, 0]]
        dropped += batch.dropped
    assert sorted(found) == [float(2 * n) for n in range(20) if n != 3]
    [(_, _, error)] = dropped
    assert "not this one" in str(error)


class Holds(data.Dataset):
    """A dataset that sends a Batcher of this process to workers, which is an error."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return 1

    def __getitem__(self, number):
        return number


def test_a_batcher_is_refused_before_a_worker_starts():
    with sampled_batcher(SOURCE, batch_size=4) as batches:
        how = {"num_workers": 1, "multiprocessing_context": "spawn"}
        with pytest.raises(DataError, match="call sampled_batcher in each process"):
            iter(data.DataLoader(Holds(batches), **how))
