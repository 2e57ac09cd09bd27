"""Batches and Batchers sent to other processes, and states loaded into other partitions."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher, sampler

X = np.arange(24.0).reshape(6, 2, 2, 1)
SOURCE = {"x": X, "y": ["cat", "dog", "cat", "dog", "cat", "dog"]}


class Odd(Exception):  # named for what it does
    """An error that cannot be unpickled, because its arguments are incomplete."""

    def __init__(self, one, two):
        super().__init__(one)

    def __reduce__(self):
        return type(self), self.args  # explicit: libraries register reducers for other exceptions


def process(x, out):
    if x[0, 0, 0] == 4:
        raise Odd(1, 2)
    if x[0, 0, 0] == 8:
        raise ValueError(lambda: None)
    return x


def a_batch():
    with sampled_batcher(
        SOURCE, batch_size=6, layout="bhwc", processor=process, num_workers=0
    ) as batches:
        [batch] = batches
    return batch


def test_a_batch_pickles():
    batch = a_batch()
    twin = pickle.loads(pickle.dumps(batch))
    assert repr(twin) == repr(batch)
    np.testing.assert_array_equal(twin.input.forward_get("bchw"), batch.input.forward_get("bchw"))
    assert twin.target.one_hot().tolist() == batch.target.one_hot().tolist()
    assert (twin.index.tolist(), twin.label, twin.item) == ([0, 3, 4, 5], batch.label, batch.item)
    assert twin.stats == batch.stats
    assert [(record.position, place) for record, place, _ in twin.dropped] == [(1, 1), (2, 2)]
    assert [str(e).partition(": <")[0] for _, _, e in twin.dropped] == ["Odd: 1", "ValueError"]


def put_one(queue):
    queue.put(a_batch())


def test_a_batch_goes_through_a_queue():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=put_one, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60).count == 4
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_batcher_says_that_it_stays_where_it_is(send, workers):
    with sampled_batcher(X, batch_size=2, layout="bhwc", num_workers=workers) as batches:
        next(iter(batches))
        with pytest.raises(DataError, match="call sampled_batcher in each process"):
            send(batches)


def test_a_batcher_under_spawn_is_refused_in_the_parent():
    context = multiprocessing.get_context("spawn")
    with sampled_batcher(X, batch_size=2, layout="bhwc") as batches:
        child = context.Process(target=print, args=(batches,))
        with pytest.raises(DataError, match="call sampled_batcher in each process"):
            child.start()


# ---- partitions ------------------------------------------------------------------------------


def tables(tmp_path):
    (tmp_path / "x.csv").write_text("filename\n" + "".join(f"{i}\n" for i in range(8)))
    for number in range(8):
        (tmp_path / f"{number}").write_bytes(b"abc\ndef\n")
    return tmp_path / "x.csv"


@pytest.mark.parametrize("kind", ["csv", "directory", "parts", "tensor"])
@pytest.mark.parametrize("way", ["batcher", "sampler"])
def test_a_state_is_of_a_partition(tmp_path, kind, way):
    path = tables(tmp_path)
    source = {"csv": path, "tensor": np.arange(8.0)}.get(kind, tmp_path)
    if kind == "directory":
        path.unlink()

    def made(part, parts=2):
        index = open_index(source, kind=kind, partition=part, partitions=parts)
        name = "part-linear" if kind == "parts" else "permutation"
        if way == "sampler":
            return sampler(name, index, batch_size=2)
        return sampled_batcher(index, batch_size=2, sampler=name, num_workers=0)

    first = made(0)
    next(iter(first))
    loop = iter(first)
    next(loop)
    state = first.state_dict()
    assert state["partition"] == "0 of 2"
    other = made(1)
    before = other.state_dict()
    with pytest.raises(DataError, match="partition '0 of 2', not '1 of 2'"):
        other.load_state_dict(state)
    assert other.state_dict() == before
    again = made(0)
    again.load_state_dict(state)
    assert again.state_dict() == state
