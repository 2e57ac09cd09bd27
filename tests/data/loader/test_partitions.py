"""Partitions: together they have every record once, for any number, source and order."""

import collections

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index, sampler

COUNTS = [1, 2, 3, 5, 12, 13, 40]


def key(record):
    array = None if record.array is None else float(record.array)
    return record.url, record.offset, array, record.label, record.labels


@pytest.fixture(params=["csv", "directory", "parts", "tensor"])
def source(request, tmp_path):
    """Return a source of each kind, and its `kind` for open_index."""
    if request.param == "csv":
        rows = "".join(f"{i % 9},{'AB'[i % 2]},{'C' if i % 4 == 0 else ''}\n" for i in range(12))
        path = tmp_path / "index.csv"
        path.write_text("filename,label1,label2\n" + rows)
        return path, "csv"
    if request.param == "directory":
        for name in ("a/1", "a/2", "a/b/3", "c/1", "c/2", "c/3", "d/1", "x", "y", "z"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path, "directory"
    if request.param == "parts":
        for i in range(12):
            (tmp_path / f"{i:02}").write_bytes(b"x\n" * (i % 4))
        return tmp_path, "parts"
    return {"x": np.arange(13.0), "y": [3, 1, 2] * 4 + [7]}, "tensor"


def of(source, partition, partitions):
    options = {"missing": -1} if source[1] == "directory" else {}  # it has files beside folders
    return open_index(
        source[0], kind=source[1], partition=partition, partitions=partitions, **options
    )


@pytest.mark.parametrize("partitions", COUNTS)
def test_partitions_are_disjoint_and_complete(source, partitions):
    whole = [key(record) for record in of(source, 0, 1)]
    parts = [of(source, p, partitions) for p in range(partitions)]
    each = [[key(record) for record in part] for part in parts]
    assert collections.Counter(r for part in each for r in part) == collections.Counter(whole)
    assert [len(part) for part in parts] == [len(part) for part in each]
    if source[1] == "parts":
        files = of(source, 0, 1).parts
        assert [part.parts for part in parts] == [files[p::partitions] for p in range(partitions)]
    else:
        assert each == [whole[p::partitions] for p in range(partitions)]
        assert all(record.position == i for part in parts for i, record in enumerate(part))


@pytest.mark.parametrize("partitions", COUNTS)
def test_labels_are_those_of_the_whole_in_every_partition(source, partitions):
    whole = of(source, 0, 1)
    parts = [of(source, p, partitions) for p in range(partitions)]
    assert all(part.labels == whole.labels for part in parts)
    assert all(part.label_index == whole.label_index for part in parts)
    for label in whole.labels:
        assert sum(part.item_count(label) for part in parts) == whole.item_count(label)
        for part in parts:
            found = [part.item_at(i, label) for i in range(part.item_count(label))]
            assert found == [record for record in part if record.label == label]


@pytest.mark.parametrize("partitions", COUNTS)
def test_orders_of_all_partitions_cover_everything_once(source, partitions):
    kind = "part-permutation-permutation" if source[1] == "parts" else "permutation"
    whole = collections.Counter(key(record) for record in of(source, 0, 1))
    for epoch in range(2):
        seen = collections.Counter()
        for p in range(partitions):
            order = sampler(kind, of(source, p, partitions), batch_size=2, epoch=epoch)
            seen.update(key(record) for batch in order.batches() for record in batch)
        assert seen == whole


def test_another_number_of_partitions_at_the_start_of_an_epoch(source):
    kind = "part-linear-permutation" if source[1] == "parts" else "permutation"
    order = sampler(kind, of(source, 0, 2), batch_size=2, seed=5)
    list(order)
    state = order.state_dict()
    seen = collections.Counter()
    for p in range(3):
        other = sampler(kind, of(source, p, 3), batch_size=2, seed=5)
        other.load_state_dict(state)
        assert other.epoch == 1
        seen.update(key(record) for record in other)
    assert seen == collections.Counter(key(record) for record in of(source, 0, 1))


@pytest.mark.parametrize(
    ("partition", "partitions"), [(1, 1), (-1, 2), (0, 0), (0, -1), (0.0, 1), (True, 2), (0, "1")]
)
def test_partitions_that_are_none(source, partition, partitions):
    with pytest.raises(DataError, match="partition"):
        of(source, partition, partitions)
