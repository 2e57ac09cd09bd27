"""Zarr stores as indexes and Datasets: rows in order read each chunk once."""

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import Dataset, open_index, sampled_batcher, sampler
from layoutkit.data.io import zarr as zarrstores

zarr = pytest.importorskip("zarr", reason="the stores are of zarr", minversion="3.1.3")

X = np.random.default_rng(0).integers(0, 255, (22, 6, 5, 3)).astype(np.uint8)


@pytest.fixture
def store(tmp_path):
    name = tmp_path / "x.zarr"
    zarr.create_array(name, data=X, chunks=(4, 3, 5, 3), dimension_names=list("bhwc"))
    return name


@pytest.fixture
def reads(monkeypatch):
    """Return a list that receives the key of each read from zarr."""
    keys, read = [], zarrstores.ChunkedArray._read

    def counted(self, key):
        keys.append(key)
        return read(self, key)

    monkeypatch.setattr(zarrstores.ChunkedArray, "_read", counted)
    return keys


def test_an_index_gives_rows_of_the_array(store):
    index = open_index(store)
    assert (len(index), index.kind, index.labels) == (22, "zarr", [])
    np.testing.assert_array_equal(index[21].array, X[21])
    np.testing.assert_array_equal(index[-2].array, X[20])
    assert index[3].position == 3
    part = open_index(str(store), partition=1, partitions=3)
    np.testing.assert_array_equal(np.stack([record.array for record in part]), X[1::3])
    assert len(open_index(f"{store}/")) == 22
    store.rename(store.with_name("photos"))
    np.testing.assert_array_equal(open_index(store.with_name("photos"), kind="zarr")[5].array, X[5])


def test_groups_have_labels_and_pyramids_are_named_by_level(tmp_path):
    group = zarr.create_group(tmp_path / "xy.zarr")
    group.create_array("x", data=X, chunks=X.shape)
    group.create_array("y", data=np.arange(22) % 3, chunks=(5,))
    index = open_index(tmp_path / "xy.zarr")
    assert index.labels == [0, 1, 2]
    assert [record.label for record in index[:4]] == [0, 1, 2, 0]
    group.create_array("0", data=X, chunks=X.shape)
    assert len(open_index(tmp_path / "xy.zarr/0")) == 22
    with pytest.raises(DataError, match="0, x, y; an index needs x and, for labels"):
        open_index(tmp_path / "xy.zarr")
    targets = open_index({"x": X, "y": Dataset(tmp_path / "xy.zarr/x")})
    np.testing.assert_array_equal(targets.targets(np.array([3, 1])), X[[3, 1]])


def test_a_partition_has_its_own_targets(tmp_path):
    group = zarr.create_group(tmp_path / "xy.zarr")
    y = np.arange(22.0)
    group.create_array("x", data=X, chunks=(4, 3, 5, 3))
    group.create_array("y", data=y, chunks=(5,))
    index = open_index(tmp_path / "xy.zarr", partition=1, partitions=3)
    assert index.targets(np.array([0, 6, 2])).tolist() == y[1::3][[0, 6, 2]].tolist()
    batches = sampled_batcher(index, batch_size=7, num_workers=0, layout="bhwc")
    assert [batch.target.input.tolist() for batch in batches] == [y[1::3].tolist()]


def test_rows_in_order_read_each_chunk_once(store, reads):
    batches = sampled_batcher(store, batch_size=3, drop_last=False, layout="bhwc")
    with batches:
        found = [batch.input.forward_get("bhwc").copy() for batch in batches]
    np.testing.assert_array_equal(np.concatenate(found), X)
    assert len(reads) == 6  # chunks of 4 rows
    reads.clear()
    with ThreadPoolExecutor(4) as pool:
        array = zarrstores.ChunkedArray(str(store))
        rows = list(pool.map(array.__getitem__, range(22)))
    np.testing.assert_array_equal(rows, X)
    assert len(reads) == 6


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_chunk_shuffle_reads_each_chunk_once(store, monkeypatch, window, num_workers):
    fetched = []
    fetch = zarrstores.ChunkedArray.fetch

    def counted(self, numbers):
        fetched.extend(numbers)
        return fetch(self, numbers)

    monkeypatch.setattr(zarrstores.ChunkedArray, "fetch", counted)
    chunk_bytes = X[:4].nbytes
    monkeypatch.setattr(zarrstores, "CACHE_BYTES", 2 * window * chunk_bytes)
    options = {"sampler": "chunk-shuffle", "batch_size": 3, "layout": "bhwc"}
    epochs = []
    with sampled_batcher(store, num_workers=num_workers, **options) as batches:
        for _ in range(3):
            fetched.clear()
            found = [(batch.input.forward_get("bhwc").copy(), batch.item) for batch in batches]
            positions = [record.position for _, records in found for record in records]
            np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), X[positions])
            assert sorted(positions) == list(range(22))
            # The cache has room for two windows. Threads read further ahead than two windows of
            # four records, and evict what others have yet to read.
            if num_workers == 0 or window > 2:
                assert len(fetched) <= 6
            assert len({*fetched}) >= 5 or epochs
            epochs.append(positions)
            chunks = np.array(positions) // 4
            spans = [np.ptp(np.flatnonzero(chunks == chunk)) for chunk in range(6)]
            assert max(spans) < min(window, 6) * 4
    assert epochs[0] != epochs[1] != epochs[2]


def test_shards_share_the_order_of_chunk_shuffle(store, monkeypatch):
    monkeypatch.setattr(zarrstores, "CACHE_BYTES", 4 * X[:4].nbytes)
    options = {"sampler": "chunk-shuffle", "batch_size": 3, "layout": "bhwc", "seed": 5}

    def positions(batches):
        return [[record.position for record in batch.item] for batch in batches]

    with sampled_batcher(store, **options) as batches:
        whole = positions(batches)
    ranks = []
    for rank in range(2):
        with sampled_batcher(store, shard=(rank, 2), drop_last=True, **options) as batches:
            ranks.append(positions(batches))
    joined = [batch for pair in zip(*ranks, strict=True) for batch in pair]
    assert joined == whole[:6]


def test_chunk_shuffle_needs_chunks(store):
    with pytest.raises(DataError, match=r'tensor index has no chunks; "shuffle" is as fast'):
        sampled_batcher(X, sampler="chunk-shuffle", batch_size=3, layout="bhwc")
    with pytest.raises(DataError, match="9 has no chunks"):
        sampler("chunk-shuffle", 9)
    part = open_index(store, partition=1, partitions=3)
    with pytest.raises(DataError, match=r"partition 1 of 3.*use shard="):
        sampler("chunk-shuffle", part)


def test_few_chunks_are_kept_and_shuffled_rows_are_one_request(store, reads, monkeypatch):
    monkeypatch.setattr(zarrstores, "CACHE_BYTES", 0)
    array = zarrstores.ChunkedArray(str(store))
    order = np.array([20, 3, 9, 3, 14])
    np.testing.assert_array_equal(array.take(order), X[order])
    assert len(reads) == 1
    assert not array._cache
    np.testing.assert_array_equal(array[2:15:3], X[2:15:3])
    np.testing.assert_array_equal(array[3:6], X[3:6])
    assert len(array._cache) == 2
    np.testing.assert_array_equal(array.take(np.empty(0, np.intp)), X[:0])


@pytest.mark.parametrize(
    "key",
    [
        3,
        slice(2, 9),
        [5, 1, 5],
        (slice(None), 2),
        (4, slice(1, 3)),
        (slice(None, None, -2), 0),
        ...,
    ],
)
def test_a_dataset_selects_as_of_an_array(store, key):
    data = Dataset(store)
    assert len(data) == 22
    np.testing.assert_array_equal(data[key](), X[key])
    with pytest.raises(DataError, match="read-only"):
        data[3] = 0


def test_pickles_and_forks_open_the_store_anew(store):
    array = zarrstores.ChunkedArray(str(store))
    assert len(pickle.dumps(array)) < 300
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(open_index(store)))[4].array, X[4])
    array.take(np.array([0]))
    array.lock.acquire()  # as if another thread held it during a fork
    child = multiprocessing.get_context("fork").Process(target=_check, args=(array,))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def _check(array):
    assert array._array is None
    np.testing.assert_array_equal(array.take(np.arange(22)), X)


def test_mistakes(tmp_path, store):
    with pytest.raises(DataError, match=r"none\.zarr is not a zarr array"):
        open_index(tmp_path / "none.zarr")
    half = zarr.open_array(store)
    half.attrs["layoutkit"] = {"of": "x by y", "complete": False}
    with pytest.raises(DataError, match="is incomplete; repeat"):
        open_index(store)
    half.attrs["layoutkit"] = {"of": "x by y", "complete": True}
    index = open_index(store)
    for chunk in store.glob("c/*/*/*/*"):
        chunk.write_bytes(b"no chunk")
    with pytest.raises(DataError, match=r"x\.zarr cannot be read"):
        index[0]
