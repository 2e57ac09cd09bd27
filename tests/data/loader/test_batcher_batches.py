"""Contents of batches: arrays, dtypes, layouts, labels, targets, and the owner of the memory."""

import re
import time

import numpy as np
import pytest

from layoutkit import (
    ClassView,
    DataError,
    DataView,
    DtypeError,
    ImageView,
    PatternError,
    SequenceView,
    ShapeError,
    buffers,
)
from layoutkit.data import LoaderStats, open_index, sampled_batcher
from tests.helpers.batches_of import our_threads, plain

X = np.arange(7 * 2 * 3, dtype=np.int16).reshape(7, 2, 3)


def first(source, **options):
    """Return the first batch of 4, which has to be equal without threads and with two."""
    found = []
    for number in (0, 2):
        with sampled_batcher(source, batch_size=4, num_workers=number, **options) as batches:
            found.append(next(iter(batches)))
    assert plain(found[0]) == plain(found[1])
    assert type(found[0].input) is type(found[1].input)
    assert our_threads() == []
    return found[1]


# ---- input -------------------------------------------------------------------------------


@pytest.mark.parametrize("processor", [None, lambda x, out: x, lambda x, out: x[...]])
@pytest.mark.parametrize("dtype", ["?", "u1", ">i4", "f2", "f8", "c8", "M8[s]"])
def test_arrays_come_as_they_are(dtype, processor):
    x = X.astype(dtype)
    batch = first(x, layout="bwc", processor=processor)
    assert batch.input.dtype == x.dtype.newbyteorder("=")
    np.testing.assert_array_equal(batch.input.input, x[:4])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"input_dims": (2, 3)},
        {"processor": lambda x, out: (x, np.array([1, 2], ">i4"))},
        {"processor": lambda x, out: x.astype(">u2")},
        {"processor": lambda x, out: [x, x.astype("f4")][int(x[0, 0]) % 4 == 0]},
    ],
    ids=["plain", "dims", "targets", "processor", "mixed"],
)
def test_batches_are_in_native_order(tmp_path, options):
    x, y = X.astype(">f4"), np.arange(14).reshape(7, 2).astype(">f8")
    np.savez(tmp_path / "both.npz", x=x, y=y)
    for source in ({"x": x, "y": y}, str(tmp_path / "both.npz")):
        batch = first(source, layout="bwc", **options)
        assert (batch.input.dtype.isnative, batch.target.dtype.isnative) == (True, True)
        assert batch.target.input.dtype.isnative
        np.testing.assert_array_equal(batch.input.input, X[:4])
    with sampled_batcher({"x": x, "y": y}, batch_size=4, collate="ragged") as batches:
        ragged = next(iter(batches))
    assert (ragged.input.data.dtype.isnative, ragged.target.input.dtype.isnative) == (True, True)


@pytest.mark.parametrize("get", [None, lambda record: record.array])
def test_rows_of_single_numbers(get):
    batch = first(np.arange(5.0), get=get)
    assert (batch.input.layout, batch.input.input.tolist()) == ("b", [0, 1, 2, 3])
    batch = first(np.arange(5.0), get=get, processor=lambda x, out: out.__iadd__(x), input_dims=())
    assert batch.input.input.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("layout", "kind"),
    [("bhwc", ImageView), ("bchw", ImageView), ("bwxy", DataView), ("b h w c", ImageView)],
)
def test_views_are_chosen_by_layout(layout, kind):
    batch = first(X[..., None], layout=layout)
    assert type(batch.input) is kind
    assert batch.input.layout == layout.replace(" ", "")


def test_more_views():
    assert type(first(X, layout="bwc").input) is SequenceView
    assert type(first(X[:, 0]).input) is DataView
    assert type(first(X[:, 0, 0]).input) is ClassView
    assert type(first(X[:, 0], layout="bt").input) is ClassView


def test_a_higher_rank_needs_a_layout():
    with sampled_batcher(X, batch_size=4) as batches, pytest.raises(PatternError, match="layout"):
        next(iter(batches))
    with pytest.raises(PatternError, match="layout"):
        sampled_batcher(X, batch_size=4, input_dims=(2, 3))


def test_dims_say_the_shape_and_float32_the_dtype():
    seen = []

    def process(x, out):
        seen.append((out.shape, out.dtype, float(np.abs(out).max())))
        out[...] = x
        return out

    junk = [buffers.empty((4, 2, 3), "float32") for _ in range(8)]
    for each in junk:
        each[...] = 7
    del junk, each
    batch = first(X, input_dims=(2, 3), layout="bwc", processor=process)
    assert batch.input.dtype == np.float32
    assert batch.input.input.tolist() == X[:4].tolist()
    assert set(seen) == {((2, 3), np.dtype("float32"), 0.0)}  # never rows of an older batch


def test_out_is_none_without_dims():
    seen = []
    first(X, layout="bwc", processor=lambda x, out: seen.append(out) or x)
    assert set(seen) == {None}


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64", "int32"])
@pytest.mark.parametrize("dims", [None, (2, 3)])
@pytest.mark.parametrize("processor", [None, lambda x, out: x])
def test_dtype_is_what_is_asked(dtype, dims, processor):
    batch = first(X, layout="bwc", dtype=dtype, input_dims=dims, processor=processor)
    assert batch.input.dtype == dtype
    assert batch.input.input.tolist() == X[:4].tolist()


@pytest.mark.parametrize("dims", [None, (2, 3)])
@pytest.mark.parametrize("processor", [None, lambda x, out: x])
def test_values_are_not_cut_off_silently(dims, processor):
    with pytest.raises(DataError, match=r"record 0 and 6 more: DtypeError: float64 to int16"):
        first(X / 2, layout="bwc", dtype="int16", input_dims=dims, processor=processor)
    halves = lambda x, out: x / 2 if x[0, 0] < 12 else x
    batch = first(X, layout="bwc", dtype="int16", input_dims=dims, processor=halves)
    assert batch.index.tolist() == [2, 3]
    assert {type(error) for *_, error in batch.dropped} == {DtypeError}


def test_the_shape_of_rows_may_differ_from_batch_to_batch():
    def process(x, out):
        out[...] = x[: len(out)]
        return out

    dims = [(2,), (3,)]
    with sampled_batcher(
        X[:, 0], batch_size=4, input_dims=dims.__getitem__, processor=process
    ) as batches:
        for _ in range(2):
            assert [b.input.input.shape for b in batches] == [(4, 2), (3, 3)]


def test_any_other_array_is_copied_into_the_row():
    for make in (
        lambda x: x,
        lambda x: x.tolist(),
        lambda x: x[::-1][::-1],
        lambda x: x.astype("f2"),
    ):
        batch = first(X, layout="bwc", input_dims=(2, 3), processor=lambda x, out, m=make: m(x))
        assert batch.input.input.tolist() == X[:4].tolist()


@pytest.mark.parametrize("make", [bytes, bytearray, lambda b: memoryview(bytes(b))])
def test_bytes_are_a_vector_of_uint8(make):
    batch = first(np.zeros(5), get=lambda record: make([record.position, 7]))
    assert batch.input.dtype == np.uint8
    assert batch.input.input.tolist() == [[k, 7] for k in range(4)]


def test_a_buffer_that_the_getter_uses_again():
    buffer = np.zeros(3)

    def get(record):
        buffer[...] = record.position
        return buffer

    with sampled_batcher(np.zeros(5), batch_size=5, get=get, num_workers=0) as batches:
        [batch] = batches
    assert batch.input.input.tolist() == [[k] * 3 for k in range(5)]


def test_most_kept_records_of_the_first_batch_say_shape_and_dtype():
    def process(x, out):
        number = int(x[0, 0]) // 6
        if number == 0:
            raise ValueError
        f4 = x.astype("f4")
        return [None, f4, x.astype("f8"), x[:1], x.astype("c8"), f4, x][number]

    for size in (7, 3):
        with sampled_batcher(X, batch_size=size, layout="bwc", processor=process) as batches:
            batch = next(iter(batches))
        assert batch.input.dtype == np.float32
        kept = [1, 2, 5, 6] if size == 7 else [1, 2]
        assert batch.index.tolist() == kept
        assert batch.input.input.tolist() == X[kept].tolist()


def test_results_that_are_no_arrays():
    for wrong in (lambda x, out: "text", lambda x, out: object(), lambda x, out: [[1], [2, 3]]):
        with pytest.raises(
            DataError, match=r"none of the 7 records can be used\. record 0 and 6 more: "
        ):
            first(X, layout="bwc", processor=wrong)


def test_an_empty_batch_has_no_rows_or_no_input():
    batch = first(X, layout="bwc", processor=lambda x, out: None)
    assert (batch.count, batch.input, batch.index.tolist(), batch.item) == (0, None, [], [])
    batch = first(X, layout="bwc", processor=lambda x, out: None, input_dims=(2, 3))
    assert batch.input.input.shape == (0, 2, 3)


# ---- labels and targets ------------------------------------------------------------------


def test_labels_are_ranks_and_unlabelled_records_minus_one(tmp_path):
    path = tmp_path / "i.csv"
    path.write_text("filename,label1,label2\na,dog,cat\nb,,\nc,emu,\n")
    index = open_index(path, missing=-1)
    with sampled_batcher(index, batch_size=9, get=lambda r: np.zeros(2)) as batches:
        [batch] = batches
    assert batch.label == ["dog", "cat", None, "emu"]
    assert type(batch.target) is ClassView
    assert (batch.target.layout, batch.target.classes) == ("b", ["cat", "dog", "emu"])
    assert batch.target.input.tolist() == [1, 0, -1, 2]
    assert batch.item == [index[k] for k in range(4)]
    assert batch.index.dtype == np.int64


def test_y_that_is_no_labels_is_the_target():
    y = np.arange(14, dtype=np.float32).reshape(7, 2)
    batch = first({"x": X[:, 0], "y": y}, processor=lambda x, out: x if x[0] != 6 else None)
    assert batch.target.input.tolist() == y[[0, 2, 3]].tolist()
    batch = first({"x": X[:, 0], "y": y / 2}, layout=("bf", "bt"))
    assert batch.target.layout == "bt"


@pytest.mark.parametrize(
    ("target", "kind", "dtype"),
    [
        (lambda n: n, ClassView, "int64"),
        (lambda n: np.int8(n), ClassView, "int8"),
        (lambda n: n / 2, DataView, "float64"),
        (lambda n: [n, n], DataView, "int64"),
        (lambda n: np.array([n, 1], "f4"), DataView, "float32"),
    ],
)
def test_the_processors_targets(target, kind, dtype):
    def process(x, out):
        n = int(x[0]) // 6
        return (x, target(n)) if n != 1 else None

    batch = first({"x": X[:, 0], "y": np.arange(7)}, processor=process)
    assert type(batch.target) is kind
    assert batch.target.dtype == dtype
    assert batch.target.input.tolist() == np.array([target(n) for n in (0, 2, 3)]).tolist()


def test_targets_that_differ_fail():
    def process(x, out):
        n = int(x[0]) // 6
        return [(x, 1), x, (x, [1]), (x, 2), (x, 2.5), (x, "a"), (x, 3, 4)][n]

    for number in (0, 3):
        with sampled_batcher(
            X[:, 0], batch_size=7, processor=process, num_workers=number
        ) as batches:
            [batch] = batches
        assert (batch.index.tolist(), batch.target.input.tolist()) == ([0, 3], [1, 2])
    swapped = first(X[:, 0], processor=lambda x, out: (x, 1) if x[0] in (6, 12) else x)
    assert (swapped.index.tolist(), swapped.target) == ([0, 3], None)


def test_whether_there_are_targets_is_not_a_matter_of_threads():
    def process(x, out):
        n = int(x[0]) // 6
        return [(x, "text"), x, (x, 1), (x, np.array(["b"])), x, (x, 2), x][n]

    def slowly(x, out):  # so that every record is a chunk of its own
        time.sleep(0.003)
        return process(x, out)

    found = []
    for processor, number in ((process, 0), (process, 1), (slowly, 2)):
        with sampled_batcher(
            X[:, 0], batch_size=7, processor=processor, num_workers=number
        ) as batches:
            found.append(plain(next(iter(batches))))
    assert found[0] == found[1] == found[2]
    assert (found[0]["index"], found[0]["target"]) == ([1, 4, 6], None)


def test_a_getter_may_give_pairs_too():
    batch = first(X[:, 0], get=lambda record: (record.array, record.position % 2))
    assert batch.target.input.tolist() == [0, 1, 0, 1]


# ---- memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("processor", [None, lambda x, out: x * 1, lambda x, out: x])
def test_held_batches_stay_and_the_source_too(workers, processor):
    x = np.random.default_rng(0).random((64, 5))
    before = x.copy()
    with sampled_batcher(x, batch_size=4, num_workers=workers, processor=processor) as batches:
        held = [batch for _ in range(3) for batch in batches]
    for number, batch in enumerate(held):
        start = number % 16 * 4
        np.testing.assert_array_equal(batch.input.input, before[start : start + 4])
        batch.input.input[...] = -1
    np.testing.assert_array_equal(x, before)


def test_memory_is_used_again_when_nobody_holds_it():
    x = np.zeros((64, 1000))
    with sampled_batcher(x, batch_size=8, processor=lambda x, out: x, num_workers=1) as batches:
        for _ in batches:
            pass
        misses = buffers.stats()["misses"]
        for _ in range(3):
            for _ in batches:
                pass
        assert buffers.stats()["misses"] <= misses + 4  # of 24 batches; some overlap under load


def test_plans_of_views_are_kept_from_batch_to_batch():
    with sampled_batcher(X, batch_size=2, layout="bwc") as batches:
        views = [batch.input for batch in batches]
    assert len({id(view.converter("bcw", "float32")) for view in views}) == 1
    assert [view.forward_get("bcw").shape for view in views] == [(2, 3, 2)] * 3 + [(1, 3, 2)]


def test_stats_tell_the_stages_apart():
    def slow(x, out):
        time.sleep(0.025)
        return x

    stats = first(X[:, 0], processor=slow).stats
    assert stats["process"] >= 0.1 > stats["get"]
    stats = first(X[:, 0], get=lambda record: slow(record.array, None)).stats
    assert stats["get"] >= 0.1 > stats["process"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stats_of_a_loop_add_up(num_workers):
    def get(record):
        time.sleep(0.004)
        return record.array

    with sampled_batcher(X[:, 0], batch_size=4, get=get, num_workers=num_workers) as batches:
        assert batches.stats() == LoaderStats(threads=num_workers)
        for _ in batches:
            time.sleep(0.03)
        number = len(batches)
        stats = batches.stats()
        assert (stats.records, stats.batches) == (len(X), number)
        assert stats.get >= 0.004 * len(X)
        assert stats.elapsed >= stats.consumer >= 0.03 * number
        own = stats.get + stats.process + stats.collate if num_workers == 0 else 0
        total = own + stats.wait + stats.consumer
        # Other processes may have this CPU for some ms between two stages.
        assert stats.elapsed * 0.9 - 0.03 <= total <= stats.elapsed * 1.001
        assert stats.rate < stats.ceiling == stats.records / stats.consumer
        first, head, *rows = str(stats).splitlines()
        assert first.startswith(f"{len(X)} records in {number} batches")
        assert head.split() == ["stage", "seconds", "share"]
        assert [row.split()[0] for row in rows] == ["get", "process", "collate", "wait", "consumer"]
        next(iter(batches))
        assert batches.stats().batches == 1  # counts the latest loop only
        assert stats.batches == number


def test_one_batch_is_repeated():
    read = []

    def get(record):
        read.append(record.position)
        return record.array

    with sampled_batcher(X[:, 0], batch_size=4, get=get, num_workers=0) as batches:
        list(batches)
        epoch = batches.epoch
        read.clear()
        repeated = list(batches.repeated())
        assert len(repeated) == len(batches)
        assert all(batch is repeated[0] for batch in repeated)
        assert read == [0, 1, 2, 3]
        assert len(list(batches.repeated(3))) == 3
        assert batches.epoch == epoch
        assert next(iter(batches)).count == 4
        with pytest.raises(DataError, match="count"):
            list(batches.repeated(-1))


def test_the_progress_bar_counts_records_and_drops(capfd):
    with sampled_batcher(
        X[:, 0], batch_size=4, progress=True, processor=lambda x, out: x if x[0] else None
    ) as batches:
        list(batches)
    shown = capfd.readouterr().err
    assert re.search(r"7/7", shown)
    assert "record/s" in shown
    assert "dropped=1" in shown
    with sampled_batcher(X[:, 0], batch_size=4) as batches:
        list(batches)
    assert capfd.readouterr().err == ""


# ---- arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"batch_size": 0}, DataError, "batch_size"),
        ({"batch_size": 2.5}, DataError, "batch_size"),
        ({"num_batches": -1}, DataError, "num_batches"),
        ({"sampler": "nosuch"}, DataError, "nosuch"),
        ({"sampler": ["linear", "linear"]}, DataError, "2 samplers"),
        ({"seed": "a"}, DataError, "seed"),
        ({"epoch": -1}, DataError, "epoch"),
        ({"get": 3}, DataError, "get"),
        ({"get": [None, None]}, DataError, "2 getters"),
        ({"processor": "f"}, DataError, "processor"),
        ({"input_dims": (-1,)}, ShapeError, "-1"),
        ({"input_dims": "ab"}, ShapeError, "a"),
        ({"dtype": "nosuch"}, DtypeError, "nosuch"),
        ({"dtype": object}, DtypeError, "object"),
        ({"layout": "fb"}, DataError, "b"),
        ({"layout": "b*"}, PatternError, "b*"),
        ({"layout": ("b", "b", "b")}, DataError, "3"),
        ({"layout": "bhwc", "input_dims": 3}, ShapeError, "bhwc"),
        ({"on_error": "ignore"}, DataError, "ignore"),
        ({"refill": 1}, DataError, "refill"),
        ({"timeout": 0}, DataError, "timeout"),
        ({"timeout": True}, DataError, "timeout"),
        ({"timeout": 1, "num_workers": 0}, DataError, "num_workers"),
        ({"retries": -1}, DataError, "retries"),
        ({"prefetch": None}, DataError, "prefetch"),
        ({"num_workers": -1}, DataError, "num_workers"),
        ({"cache_dir": 3}, DataError, "cache_dir=3"),
        ({"cache_size": "1G"}, DataError, "cache_size"),
        ({"cache_size": 5}, DataError, "cache_size=5 limits the folder cache_dir="),
        ({"layout": "bf", "collate": "ragged"}, DataError, "layout='bf' has no effect"),
        ({"progress": "yes"}, DataError, "progress"),
        ({"sampler": "even_sequences", "refill": True}, DataError, "refill"),
        ({"processor": None, "sources": [X, X]}, DataError, "processor"),
        ({"sources": []}, DataError, "the list is empty"),
        ({"sources": "/no/such/file.csv"}, DataError, "file.csv"),
        ({"nosuch": 1}, TypeError, "nosuch"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(options, error, words):
    given = {"sources": X[:, 0], "batch_size": 4, **options}
    with pytest.raises(error, match=re.escape(words)):
        sampled_batcher(given.pop("sources"), **given)
    assert our_threads() == []


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize(
    "rows",
    [
        ["filename", "a", "/b", "c://d", "e"],
        ["filename,label", "a,x", "b,", "c,y", "d,x"],
        ["filename,label1,label2,offset,length", "a,x,y,1,2", "b,,,,", "c,y,,3,", "d,,x,,4"],
    ],
)
def test_many_records_at_once_are_those_one_by_one(tmp_path, rows, partition):
    (tmp_path / "i.csv").write_text("\n".join(rows))
    indexes = [
        open_index(
            tmp_path / "i.csv", partition=partition, partitions=2, schemes=["c"], missing=-1
        ),
        open_index({"x": X, "y": np.arange(7) % 3}, partition=partition, partitions=2),
        open_index(X[:, 0, 0], partition=partition, partitions=2),
    ]
    for index in indexes:
        numbers = np.arange(len(index))[::-1]
        found, wanted = index.records(numbers), [index[k] for k in numbers]
        assert found == wanted
        assert [list(map(type, record)) for record in found] == [
            list(map(type, record)) for record in wanted
        ]
        arrays = [(a.array, b.array) for a, b in zip(found, wanted, strict=True)]
        assert all(np.array_equal(a, b) for a, b in arrays if a is not None)


def test_records_are_frozen_and_equal_by_place():
    record = open_index(X)[1]
    with pytest.raises(AttributeError):
        record.position = 3
    assert record == record._replace(array=None)
    assert record != record._replace(position=2)
    assert hash(record) == hash(record._replace(array=None))
