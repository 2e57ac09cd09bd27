"""Batches of results that differ in length: `collate="ragged"`."""

import pickle

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, Converter, DataError, LayoutkitError
from layoutkit.data import Ragged, open_index, sampled_batcher
from layoutkit.data.recordio import RecordWriter

LENGTHS = [3, 0, 5, 1, 4, 2, 7]


def tokens(record):
    return np.arange(LENGTHS[int(record.array)], dtype=np.int32) + 10 * int(record.array)


def batcher(get=tokens, **options):
    given = {"batch_size": 3, "collate": "ragged", **options}
    return sampled_batcher({"x": np.arange(7), "y": list("abcabca")}, get=get, **given)


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_results_are_joined_in_order(num_workers):
    with batcher(num_workers=num_workers) as batches:
        found = list(batches)
    assert [len(batch.input) for batch in found] == [3, 3, 1]
    arrays = [array for batch in found for array in batch.input]
    assert [len(array) for array in arrays] == LENGTHS
    for number, array in enumerate(arrays):
        assert array.dtype == np.int32
        assert (array == 10 * number + np.arange(len(array))).all()
    first = found[0]
    assert first.input.offsets.tolist() == [0, 3, 3, 8]
    assert first.input.data.tolist() == [0, 1, 2, 20, 21, 22, 23, 24]
    assert first.target.input.tolist() == [0, 1, 2]
    x, y = first
    assert (x, y) == (first.input, first.target)
    assert "ClassView" in first._repr_html_()


@pytest.mark.parametrize("kind", ["raw", "image"])
def test_records_of_a_file_are_their_bytes(kind, tmp_path):
    from layoutkit.data.recordio import pack_image

    payloads = [bytes([n]) * (n % 5 * 100 + 1) for n in range(20)]
    with RecordWriter(tmp_path / "a.rec") as writer:
        for payload in payloads:
            writer.write(pack_image(payload, 1) if kind == "image" else payload)
    index = open_index(tmp_path / "a.rec", kind=kind)
    with sampled_batcher(index, batch_size=8, sampler="shuffle", collate="ragged") as batches:
        for batch in batches:
            for data, record in zip(batch.input, batch.item, strict=True):
                assert bytes(data) == payloads[record.position]


def test_memory_of_a_getter_may_be_used_again():
    buffer = np.zeros(7, np.int32)

    def get(record):
        part = buffer[: LENGTHS[int(record.array)]]
        part[...] = int(record.array)
        return part

    with batcher(get, num_workers=1) as batches:
        for batch in batches:
            for array, record in zip(batch.input, batch.item, strict=True):
                assert (array == int(record.array)).all()


def test_matrices_and_rows_of_an_array():
    def pairs(record):
        return np.ones((LENGTHS[int(record.array)], 2))

    with batcher(pairs, batch_size=7) as batches:
        (batch,) = batches
    assert batch.input.data.shape == (sum(LENGTHS), 2)
    rows = np.arange(12).reshape(4, 3)
    with sampled_batcher(rows, batch_size=4, collate="ragged") as batches:
        (batch,) = batches
    assert batch.input.offsets.tolist() == [0, 3, 6, 9, 12]
    np.testing.assert_array_equal(batch.input.data, np.arange(12))


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (np.zeros(2), "dtype float64, but most of the first batch have int32"),
        (np.zeros((2, 2), np.int32), r"shape \(2, 2\), but most of the first batch have \(any\)"),
        (np.int32(1), "a number, which has no length"),
    ],
)
def test_results_that_do_not_fit_are_dropped(odd, words):
    def get(record):
        return odd if int(record.array) == 1 else tokens(record)

    with batcher(get, on_error="raise") as batches, pytest.raises(DataError, match=words):
        next(iter(batches))
    with batcher(get) as batches:
        batch = next(iter(batches))
    assert (len(batch.input), len(batch.dropped)) == (2, 1)


def test_none_of_a_batch():
    with batcher(lambda r: None if int(r.array) < 3 else tokens(r)) as batches:
        assert next(iter(batches)).input is None


def test_a_ragged_is_a_sequence():
    arrays = [np.arange(2), np.arange(0), np.arange(3)]
    ragged = Ragged.of(arrays)
    assert len(ragged) == 3
    assert [array.tolist() for array in ragged] == [[0, 1], [], [0, 1, 2]]
    assert ragged[-1].tolist() == [0, 1, 2]
    assert repr(ragged) == "<Ragged of 3 arrays, int64 (5,)>"
    assert pickle.loads(pickle.dumps(ragged)).data.tolist() == ragged.data.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"size": (8, 8)},
        {"input_dims": 3},
        {"dtype": "int64"},
        {"convert": Converter("b->b")},
        {"collate": "rugged"},
        {"collate": Collator},
    ],
)
def test_what_cannot_be_is_said_at_once(options):
    words = "give a Collator" if "collate" in options else 'collate="ragged" joins results'
    with pytest.raises(DataError, match=words):
        batcher(**options)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_collator_pads_ragged_arrays(num_workers):
    arrays = [np.full((n, 2), n, np.float32) for n in LENGTHS]
    source = {"x": Ragged.of(arrays), "y": list("abcabca")}
    pad = Collator("tf->btf", t="longest", lengths=True, dtype="float64")
    options = {"batch_size": 3, "collate": pad, "num_workers": num_workers}
    with sampled_batcher(source, **options) as batches:
        found = list(batches)
    assert [batch.input.lengths.tolist() for batch in found] == [[3, 0, 5], [1, 4, 2], [7]]
    for number, batch in enumerate(found):
        view, lengths = batch.input
        expected = pad(arrays[3 * number : 3 * number + 3])
        assert np.array_equal(view.forward_get("bft"), expected.data.swapaxes(1, 2))
        assert np.array_equal(lengths, expected.lengths)
        assert batch.target.input.tolist() == [0, 1, 2][: batch.count]
        assert repr(lengths) not in repr(batch)  # a batch prints on one line


def test_a_list_of_collators_may_pad():
    arrays = Ragged.of([np.arange(n) for n in LENGTHS])
    pad, cut = Collator("t->bt", t="longest", lengths=True), Collator("t->bt", t=2, fill=-1)
    with sampled_batcher(arrays, batch_size=7, collate=[pad, cut]) as batches:
        (padded, windows), _ = next(iter(batches))
    assert padded.lengths.tolist() == LENGTHS
    assert padded.data.shape == (7, 7)
    assert windows.shape == (7, 2)


def test_records_and_partitions_of_a_ragged_source():
    ragged = Ragged.of([np.arange(n) for n in LENGTHS])
    index = open_index(ragged, partition=1, partitions=3)
    assert [record.array.tolist() for record in index] == [[], [0, 1, 2, 3]]
    assert np.shares_memory(index[1].array, ragged.data)
    with pytest.raises(DataError, match="x has 7 records and y 2"):
        open_index({"x": ragged, "y": ["a", "b"]})


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [np.int64(3)],
        [np.zeros(2), np.array(3.0)],
        [np.zeros(2), np.zeros(2, int)],
        [np.zeros((2, 3)), np.zeros((2, 4))],
    ],
)
def test_arrays_that_cannot_be_joined(arrays):
    with pytest.raises(LayoutkitError, match=r"the arrays to join are|not a NumPy array"):
        Ragged.of(arrays)


def test_lists_are_not_joined():
    with pytest.raises(ArgumentError, match=r"a list, not a NumPy array; pass numpy\.asarray"):
        Ragged.of([[1, 2], [3]])
