"""Epochs in which no record can be used: an error with the reasons, not empty batches."""

import itertools
import logging

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import sampled_batcher

X = np.arange(60.0).reshape(30, 2)


def failing(*numbers):
    """Return a processor that raises for these records."""

    def process(x, out):
        if int(x[0]) // 2 in numbers:
            raise ValueError("it is bad")
        return x

    return process


def counts(batches):
    return [(batch.index.tolist(), len(batch.dropped)) for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [16, 30])
def test_a_first_batch_that_is_lost_ends_the_loop(caplog, workers, size):
    seen = []

    def process(x, out):
        seen.append(x)
        raise ValueError("it is bad")

    options = {"batch_size": size, "processor": process, "prefetch": 1, "num_workers": workers}
    with sampled_batcher(X, **options) as batches:
        words = (
            rf"none of the (first )?{size} records .*record 0 and {size - 1} more: ValueError: it"
        )
        with pytest.raises(DataError, match=words):
            next(iter(batches))
        assert batches.state_dict()["position"] == 0
        assert batches.epoch == 0
    assert sum("left out record" in record.message for record in caplog.records) == size
    assert len(seen) <= 30


@pytest.mark.parametrize("workers", [0, 2])
def test_small_batches_wait_for_one_that_has_a_row(workers):
    """Empty batches are yielded once a batch has a row; 16 useless records are an error."""
    options = {"batch_size": 4, "num_workers": workers}
    with sampled_batcher(X, processor=failing(*range(9)), **options) as batches:
        found = counts(batches)
        assert (batches.dropped, batches.epoch) == (9, 1)
    assert found[:3] == [([], 4), ([], 4), ([9, 10, 11], 1)]
    assert [index for index, _ in found[3:]] == [
        list(range(k, min(k + 4, 30))) for k in range(12, 30, 4)
    ]
    batches = sampled_batcher(X, processor=failing(*range(30)), **options)
    with batches, pytest.raises(DataError, match=r"none of the first 16 records can be used"):
        next(iter(batches))


def test_records_that_fail_later_are_left_out():
    with sampled_batcher(X, batch_size=5, processor=failing(*range(5, 30))) as batches:
        assert [len(index) for index, _ in counts(batches)] == [5, 0, 0, 0, 0, 0]


def test_a_short_epoch_without_any_is_an_error_at_its_end():
    batches = sampled_batcher(X[:3], batch_size=1, processor=failing(0, 1, 2))
    with (
        batches,
        pytest.raises(DataError, match=r"none of the 3 records can be used\. record 0 and 2 more"),
    ):
        list(batches)


def test_what_a_processor_refuses_is_no_error():
    refuse = lambda x, out: None
    with sampled_batcher(X, batch_size=16, processor=refuse) as batches:
        assert counts(batches) == [([], 16), ([], 14)]


def test_with_refill_too():
    options = {"batch_size": 4, "refill": True}
    batches = sampled_batcher(X, processor=failing(*range(30)), **options)
    with batches, pytest.raises(DataError, match=r"none of the 30 records can be used"):
        list(batches)
    with sampled_batcher(X, processor=failing(*range(29)), **options) as batches:
        assert counts(batches) == [([29], 29)]


def test_drawing_gives_up_only_after_as_many_failures_as_records():
    """Failures are counted from the last record that could be used."""
    calls = itertools.count()

    def process(x, out):
        if next(calls) in (1, 2, 3):
            raise ValueError("it is bad")
        return x

    options = {"batch_size": 4, "num_batches": 1, "refill": True, "num_workers": 0}
    with sampled_batcher(X[:4], sampler="random-uniform", processor=process, **options) as batches:
        assert counts(batches) == [([0, 4, 5, 6], 3)]


def test_a_loop_that_goes_on_in_an_epoch_ends_as_it_does(caplog):
    """A resumed loop does not know whether earlier records were kept, so it may drop all others."""
    with sampled_batcher(X, batch_size=10, processor=failing(*range(10, 30))) as batches:
        loop = iter(batches)
        next(loop)
        state = batches.state_dict()
        batches.load_state_dict(state)
        assert counts(batches) == [([], 10), ([], 10)]
        assert batches.epoch == 1


def test_reasons_are_told_once_each(caplog):
    caplog.set_level(logging.CRITICAL)

    def process(x, out):
        raise (ValueError, TypeError, KeyError, OSError)[int(x[0]) // 2 % 4]("no")

    batches = sampled_batcher(X, batch_size=16, processor=process)
    with batches, pytest.raises(DataError) as caught:
        next(iter(batches))
    assert str(caught.value) == (
        "none of the first 16 records can be used. record 0 and 3 more: ValueError: no. "
        "record 1 and 3 more: TypeError: no. record 2 and 3 more: KeyError: 'no'"
    )
