"""Records of each batch: drops, refill, threads, prefetch, resuming."""

import threading

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher, sampler
from layoutkit.data.loader import pending
from tests.helpers.batches_of import expected, plain, plain_all

N = 23
X = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
Y = np.array([f"label {i % 4}" for i in range(N)])
INDEX = open_index({"x": X, "y": Y})

FINITE = [
    "linear",
    "permutation",
    "batchwise_shuffled_sequential",
    "even_sequential",
    "even_shuffled_sequential",
    "even_batchwise_shuffled_sequential",
]
DRAWING = ["uniform", "random_slice", "label-uniform", "label-permutation"]
THREADS = [(0, 2), (1, 0), (1, 1), (4, 3)]


def number_of(x):
    return int(x[0]) // 3


def processor(x, out):
    """Return None for records 2, 7, 12, ..., and raise for 0, 5, 10, ..."""
    number = number_of(x)
    if number % 5 == 0:
        raise ValueError(f"number {number}")
    if number % 5 == 2:
        return None
    return x * 2


def good(number):
    return number % 5 not in (0, 2)


def made(kind="linear", workers=0, prefetch=2, index=INDEX, **options):
    options = {"batch_size": 4, "processor": processor, "seed": 3, **options}
    return sampled_batcher(index, sampler=kind, num_workers=workers, prefetch=prefetch, **options)


@pytest.mark.parametrize("workers", THREADS)
@pytest.mark.parametrize("refill", [False, True])
@pytest.mark.parametrize("kind", ["linear", "permutation", "even_shuffled_sequential"])
def test_batches_are_those_of_the_reference(kind, refill, workers):
    order = list(sampler(kind, N, batch_size=4, seed=3))
    with made(kind, *workers, refill=refill) as batches:
        found = plain_all(batches)
        assert batches.dropped == sum(not good(number) for number in order)
    wanted = expected(order, 4, good, refill)
    assert [(b["index"], [place for _, place, _ in b["dropped"]]) for b in found] == wanted
    for batch, (kept, dropped) in zip(found, wanted, strict=True):
        positions = [order[place] for place in kept]
        assert batch["position"] == positions
        assert batch["input"] == (X[positions] * 2).tolist()
        assert batch["label"] == Y[positions].tolist()
        assert batch["target"] == [k % 4 for k in positions]
        assert batch["count"] == len(kept)
        names = [None if order[place] % 5 == 2 else "ValueError" for place in dropped]
        assert [error for *_, error in batch["dropped"]] == names


@pytest.mark.parametrize(
    "kind", ["part-linear", "part-linear-permutation", "part-permutation-permutation"]
)
@pytest.mark.parametrize("refill", [False, True])
def test_the_number_of_batches_of_part_files_is_known_at_the_end(kind, refill, tmp_path):
    for part, lines in enumerate([3, 0, 5, 1]):
        (tmp_path / f"part{part}").write_text("".join(f"{part}{line}\n" for line in range(lines)))

    def keep(data, out):
        return np.frombuffer(data, np.uint8) if data != b"21" else None

    index = open_index(tmp_path, kind="parts")
    options = {"batch_size": 2, "processor": keep, "refill": refill}
    with sampled_batcher(index, sampler=kind, **options) as batches:
        assert batches.num_batches is None
        wanted = plain_all(batches)
        assert batches.num_batches == 5
    lines = sorted(bytes(row).decode() for batch in wanted for row in batch["input"])
    assert lines == ["00", "01", "02", "20", "22", "23", "24", "30"]


@pytest.mark.parametrize("change", [{"seed": 4}, {"batch_size": 5}, {"kind": "linear"}])
def test_a_state_of_another_batcher_is_refused(change):
    with made("permutation") as batches:
        next(iter(batches))
        state = batches.state_dict()
    with made(**{"kind": "permutation", **change}) as other:
        before = other.state_dict()
        with pytest.raises(DataError, match="another"):
            other.load_state_dict(state)
        assert other.state_dict() == before


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("refill", [False, True])
def test_no_more_batches_are_begun_than_asked_for(prefetch, workers, refill):
    begun = []

    def dims(number):
        begun.append(number)
        return (3,)

    options = {"processor": None, "input_dims": dims, "refill": refill}
    with made("linear", workers, prefetch, **options) as batches:
        for handed, _ in enumerate(batches, 1):
            assert len(begun) <= handed + (prefetch if workers else 0)
            assert len(begun) >= handed
        assert begun == list(range(6))


def test_prefetch_works_while_the_caller_does_not_ask():
    done = threading.Event()

    def get(record):
        if record.position == 11:
            done.set()
        return record.array

    with made("linear", 1, 2, get=get) as batches:
        next(iter_ := iter(batches))
        assert done.wait(5)
        del iter_


@pytest.mark.parametrize("kind", ["linear", "permutation"])
@pytest.mark.parametrize(("count", "batches"), [(0, 0), (1, 1), (5, 5), (6, 6)])
def test_num_batches_stops_early(kind, count, batches):
    with made(kind, num_batches=count, processor=None) as batcher:
        assert batcher.num_batches == batches
        assert len(list(batcher)) == batches


def test_more_batches_than_there_are():
    with pytest.raises(DataError, match="6 batches"):
        made("linear", num_batches=7)


@pytest.mark.parametrize("kind", DRAWING)
@pytest.mark.parametrize(("asked", "found"), [(None, 6), (0, 0), (2, 2), (9, 9)])
def test_drawing_kinds_make_as_many_as_asked_for(kind, asked, found):
    with made(kind, num_batches=asked, refill=True) as batcher:
        assert batcher.num_batches == found
        batches = list(batcher)
    assert [batch.count for batch in batches] == [4] * found


def test_a_drawing_kind_that_finds_none_gives_up():
    batches = made("uniform", 2, processor=lambda x, out: None, refill=True)
    with batches, pytest.raises(DataError, match="none of"):
        next(iter(batches))


def test_refill_of_an_epoch_without_any_good_record(caplog):
    with made("linear", 2, processor=lambda x, out: None, refill=True) as batches:
        assert list(batches) == []
        assert (batches.dropped, batches.epoch) == (N, 1)
    assert len(caplog.records) == N


def test_what_follows_the_last_full_batch_is_reported(caplog):
    def refuse_tail(x, out):
        return x if number_of(x) < 4 else None

    with made("linear", refill=True, processor=refuse_tail) as batches:
        assert [batch.count for batch in batches] == [4]
        assert batches.dropped == N - 4
    assert len(caplog.records) == N - 4


def test_nobody_can_draw_from_a_refill_before_its_rows_are_there(monkeypatch):
    real, settle, under_way, offered = pending.empty, pending.PendingBatch.finalize, [], []

    def looking(shape, dtype):
        offered.extend(not batch.is_fully_drawn for batch in under_way)
        return real(shape, dtype)

    monkeypatch.setattr(pending, "empty", looking)
    monkeypatch.setattr(
        pending.PendingBatch, "finalize", lambda d: under_way.append(d) or settle(d)
    )
    with made("linear", refill=True, input_dims=(3,)) as batches:
        assert next(iter(batches)).count == 4
    assert offered
    assert not any(offered)


# ---- several sources ---------------------------------------------------------------------


def pair(a, b, out):
    return np.concatenate([a, [-1.0] if b is None else b[:1]])


@pytest.mark.parametrize("workers", [0, 3])
def test_sources_go_side_by_side(workers):
    other = open_index(-X)
    options = {"batch_size": 4, "processor": pair, "num_workers": workers}
    with sampled_batcher([INDEX, other], sampler=["linear", "permutation"], **options) as batches:
        found = [row for batch in batches for row in batch.input.input.tolist()]
        kinds = batches.state_dict()["kind"]
    order = list(sampler("permutation", N, batch_size=4))
    assert found == [[*X[i].tolist(), -X[k, 0]] for i, k in enumerate(order)]
    assert kinds == "linear+permutation"


def test_other_sources_may_draw():
    index = open_index(np.ones((2, 3)))
    with sampled_batcher(
        [INDEX, index], batch_size=4, sampler=["linear", "uniform"], processor=pair
    ) as batches:
        assert sum(batch.count for batch in batches) == N


@pytest.mark.parametrize("n", [N - 1, N + 1])
def test_sources_of_other_lengths(n):
    with pytest.raises(DataError, match=f"23 .* {n}.* source 1 needs a sampler that draws"):
        sampled_batcher([INDEX, np.ones((n, 3))], batch_size=4, processor=pair)


def test_part_files_of_other_lengths_are_found_on_the_way(tmp_path):
    for name, count in (("a", 5), ("b", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text("12\n" * count)
    indexes = [open_index(tmp_path / name, kind="parts") for name in "ab"]
    with sampled_batcher(
        indexes, batch_size=2, sampler="part-linear", processor=lambda a, b, out: a, num_workers=1
    ) as batches:
        loop = iter(batches)
        assert next(loop).count == 2
        with pytest.raises(DataError, match="source 1 ends after 3"):
            next(loop)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_of_another_source_is_none(workers):
    def fail(record):
        if record.position % 2:
            raise OSError("no")
        return record.array

    options = {"batch_size": 4, "processor": pair, "get": [None, fail], "num_workers": workers}
    with sampled_batcher([INDEX, INDEX], **options) as batches:
        rows = [row for batch in batches for row in batch.input.input.tolist()]
    assert [row[3] for row in rows] == [-1.0 if i % 2 else X[i, 0] for i in range(N)]
    batches = sampled_batcher([INDEX, INDEX], on_error="raise", **options)
    with batches, pytest.raises(DataError, match="record 1"):
        next(iter(batches))


def test_a_failure_of_the_first_source_drops_the_record():
    def fail(record):
        if record.position == 3:
            raise OSError("no")
        return record.array if record.position != 1 else None

    with sampled_batcher([INDEX, INDEX], batch_size=4, processor=pair, get=[fail, None]) as batches:
        batch = next(iter(batches))
    assert plain(batch)["dropped"] == [(1, 1, None), (3, 3, "OSError")]


# ---- samplers of the caller -------------------------------------------------------------


def test_a_sampler_is_used_as_a_copy():
    weights = {label: k for k, label in enumerate(INDEX.labels)}
    mine = sampler("label-distribution", INDEX, weights=weights, seed=9)
    with made(mine, processor=None, seed=None) as batches:
        found = plain_all(batches)
        assert batches.num_batches == 6
    order = sampler(
        "label-distribution", INDEX, weights=weights, seed=9, num_batches=6, batch_size=4
    )
    assert [p for batch in found for p in batch["position"]] == [r.position for r in order]
    assert mine.epoch == 0


def test_a_sampler_of_one_label():
    mine = sampler("permutation", INDEX, label="label 1", batch_size=4)
    with made(mine, 2, processor=None, seed=None) as batches:
        assert {label for batch in batches for label in batch.label} == {"label 1"}
        assert batches.num_batches == 2


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (sampler("linear", INDEX, batch_size=3), "batch_size"),
        (sampler("linear", open_index(X)), "another index"),
        (sampler("linear", N), "another index"),
    ],
)
def test_a_sampler_that_does_not_fit(mine, words):
    with pytest.raises(DataError, match=words):
        made(mine)
