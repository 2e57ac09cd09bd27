"""Draws by a weight of each record: their distribution, resuming, shards, and invalid weights."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import DataError
from layoutkit._utils.random import draw_below, make_key
from layoutkit.data import open_index, sampled_batcher, sampler

WEIGHTS = [1, 0, 2.5, 0, 6, 0.5]
SOURCE = {"x": np.arange(6.0), "y": ["a", "a", "b", "b", "b", "c"]}


def shares_of(order):
    """Return the exact share of each record in the integers from which `order` draws."""
    sums = [0, *order.plan.material.tolist()]
    return [Fraction(end - start, sums[-1]) for start, end in itertools.pairwise(sums)]


def numbers_of(batches):
    return [[record.position for record in batch.item] for batch in batches]


@given(st.lists(st.floats(0, allow_infinity=False, allow_nan=False), min_size=1, max_size=9))
def test_shares_are_those_of_the_weights(weights):
    if not any(weights):
        return
    shares = shares_of(sampler("weighted", len(weights), weights=weights))
    total = sum(map(Fraction, weights))
    for weight, share in zip(weights, shares, strict=True):
        assert abs(share - Fraction(weight) / total) < Fraction(len(weights), 2**61)
        assert weight or not share


def test_draws_are_those_of_a_slow_reference():
    order = sampler("weighted", 6, weights=WEIGHTS, seed=3, epoch=2, batch_size=500)
    shares = shares_of(order)
    total = int(order.plan.material[-1])
    for position, number in enumerate(order):
        drawn = draw_below(make_key("weighted", 3, 2), position, total)
        assert sum(shares[:number]) <= Fraction(drawn, total) < sum(shares[: number + 1])


def test_frequencies():
    order = sampler("weighted", 6, weights=WEIGHTS, batch_size=100_000)
    counts = np.bincount(list(order), minlength=6)
    expected = np.array(WEIGHTS) / sum(WEIGHTS) * len(order)
    assert not counts[[1, 3]].any()
    positive = expected > 0
    assert ((counts - expected)[positive] ** 2 / expected[positive]).sum() < 25  # 3 degrees


@pytest.mark.parametrize("convert", [list, tuple, np.array, np.float16, np.longdouble, "torch"])
def test_sequences_of_weights(convert):
    if convert == "torch":
        convert = pytest.importorskip("torch").tensor
    expected = list(sampler("weighted", 6, weights=WEIGHTS, batch_size=50))
    assert list(sampler("weighted", 6, weights=convert(WEIGHTS), batch_size=50)) == expected


@pytest.mark.parametrize("scale", [5e-324, 2.0**-1000, 0.25, 2.0**1021])
def test_powers_of_two_change_nothing(scale):
    expected = list(sampler("weighted", 3, weights=[1, 0, 4], batch_size=50))
    assert list(sampler("weighted", 3, weights=np.multiply([1, 0, 4], scale), batch_size=50)) == (
        expected
    )


def test_weights_of_labels_are_divided_among_their_records():
    index = open_index(SOURCE)
    by_label = sampler("weighted", index, weights={"a": 2, "b": 3, "c": 0})
    by_record = sampler("weighted", index, weights=[1, 1, 1, 1, 1, 0])
    assert shares_of(by_label) == shares_of(by_record)


def test_a_batcher_draws_by_weight():
    with sampled_batcher(SOURCE, batch_size=4, weights=WEIGHTS, seed=5, num_batches=20) as batches:
        drawn = numbers_of(batches)
        later = numbers_of(batches)
    order = sampler("weighted", 6, weights=WEIGHTS, seed=5, batch_size=4, num_batches=20)
    assert drawn == [batch.tolist() for batch in order.batches()]
    assert later == [batch.tolist() for batch in order.batches()] != drawn


def test_weights_of_labels_order_the_fields_of_all_sources():
    plain = {"first": SOURCE, "second": np.arange(6.0)}
    weights = {"a": 1, "b": 0, "c": 5}
    with sampled_batcher(
        [SOURCE, plain["second"]], batch_size=8, weights=weights, processor=lambda a, b: a - b
    ) as batches:
        for batch in batches:
            assert not np.asarray(batch.input.input).any()


def test_ranks_share_one_stream():
    def batches_of(rank, world, state=None):
        with sampled_batcher(
            SOURCE, batch_size=12 // world, weights=WEIGHTS, shard=(rank, world), num_batches=4
        ) as batches:
            return numbers_of(batches)

    alone = np.array(batches_of(0, 1)).ravel()
    for world in (2, 3):
        ranks = [batches_of(rank, world) for rank in range(world)]
        assert np.array_equal(np.stack(ranks, 1).ravel(), alone)


def test_a_run_resumes_only_with_its_weights():
    def batcher_of(weights):
        return sampled_batcher(SOURCE, batch_size=2, num_batches=9, weights=weights, num_workers=0)

    with batcher_of(WEIGHTS) as batches:
        loop = iter(batches)
        before = numbers_of(next(loop) for _ in range(4))
        state = batches.state_dict()
        rest = numbers_of(loop)
    with batcher_of(WEIGHTS) as batches:
        assert before + rest == numbers_of(batches)
        batches.load_state_dict(state)
        assert numbers_of(batches) == rest
    with batcher_of([1] * 6) as batches, pytest.raises(DataError, match="weights"):
        batches.load_state_dict(state)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1, 2], "weights has 2 numbers, but there are 6 records"),
        ([], "weights has 0 numbers"),
        ([1, 1, -0.5, 1, 1, 1], "the weight of record 2 is -0.5"),
        ([1, 1, 1, 1, 1, math.nan], "the weight of record 5 is nan"),
        ([math.inf, 1, 1, 1, 1, 1], "the weight of record 0 is inf"),
        ([0] * 6, "no record has a positive weight"),
        (["1"] * 6, "weights is a list; give a list or array of one number"),
        (np.ones((6, 1)), "weights is a numpy.ndarray"),
        (3, "weights is an int"),
        ("heavy", "weights is a str"),
    ],
)
def test_invalid_weights(weights, says):
    with pytest.raises(DataError, match=says):
        sampler("weighted", 6, weights=weights)
    with pytest.raises(DataError, match=says):
        sampled_batcher(SOURCE, batch_size=2, weights=weights)


def test_weights_beside_other_orders():
    index = open_index(SOURCE)
    with pytest.raises(DataError, match="weights mean nothing for permutation"):
        sampled_batcher(index, batch_size=2, sampler="shuffle", weights=WEIGHTS)
    with pytest.raises(DataError, match="does not change an existing sampler"):
        sampled_batcher(index, batch_size=2, sampler=sampler("uniform", index), weights=WEIGHTS)
    with pytest.raises(DataError, match="weighted needs weights="):
        sampled_batcher(index, batch_size=2, sampler="weighted")
    with pytest.raises(DataError, match="the source has none; give a number for each record"):
        sampled_batcher(np.arange(3.0), batch_size=2, weights={"a": 1})
