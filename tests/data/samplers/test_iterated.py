"""Samplers of torch, and others that can only be iterated, as orders."""

import itertools
import pickle
import random

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import sampled_batcher, sampler

torch = pytest.importorskip("torch")
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

N = 12
SOURCE = np.arange(float(N))


class Drawn(Sampler):
    """Draws 7 positions with `draw`, and has neither a length nor items."""

    def __init__(self, draw):
        self.draw = draw

    def __iter__(self):
        return iter([self.draw() for _ in range(7)])


def draw_by_random():
    return random.randrange(N)


def draw_by_numpy():
    return int(np.random.randint(N))


def draw_by_torch():
    return torch.randint(N, ())


SAMPLERS = {
    "sequential": lambda: SequentialSampler(range(N)),
    "random": lambda: RandomSampler(range(N)),
    "generator": lambda: RandomSampler(range(N), generator=torch.Generator()),
    "replacement": lambda: RandomSampler(range(N), replacement=True, num_samples=20),
    "subset": lambda: SubsetRandomSampler([3, 5, 7, 9, 11]),
    "weighted": lambda: WeightedRandomSampler([1.0] * N, 30),
    "distributed": lambda: DistributedSampler(range(N), num_replicas=2, rank=1),
    **{f.__name__: lambda f=f: Drawn(f) for f in (draw_by_random, draw_by_numpy, draw_by_torch)},
}


@pytest.fixture(params=SAMPLERS)
def make(request):
    return SAMPLERS[request.param]


def batches_of(batches):
    return [batch.input.input.tolist() for batch in batches]


def test_epochs_are_functions_of_seed_and_epoch(make):
    order = sampler(make(), N, seed=1)
    epochs = [list(order) for _ in range(3)]
    random.random(), np.random.random(), torch.rand(1)
    assert [list(sampler(make(), N, seed=1, epoch=epoch)) for epoch in range(3)] == epochs
    is_random = not isinstance(make(), SequentialSampler)
    assert (epochs[0] != epochs[1]) == is_random
    if is_random and not isinstance(make(), DistributedSampler):
        assert list(sampler(make(), N, seed=2)) != epochs[0]


def test_generators_of_the_program_are_as_before(make):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    list(sampler(make(), N))
    assert states == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    )


def test_batchers_resume_in_the_middle(make):
    def batcher():
        return sampled_batcher(SOURCE, batch_size=3, sampler=make(), seed=4, num_workers=0)

    with batcher() as batches:
        next(iter(batches))
        expected = [batches_of(batches) for _ in range(2)]
        loop = iter(batches)
        first = batches_of(itertools.islice(loop, 1))
        state = batches.state_dict()
        rest = batches_of(loop)
    assert expected[0] != expected[1] or isinstance(make(), SequentialSampler)
    with batcher() as batches:
        batches.load_state_dict(state)
        assert batches_of(batches) == rest
        batches.set_epoch(2)
        assert batches_of(batches) == first + rest


def test_full_batches_and_ranks():
    with sampled_batcher(
        SOURCE, batch_size=5, sampler=SAMPLERS["random"](), drop_last=True
    ) as batches:
        assert [batch.count for batch in batches] == [5, 5]
    ranks = []
    for rank in range(2):
        with sampled_batcher(
            SOURCE, batch_size=3, sampler=SAMPLERS["random"](), shard=(rank, 2)
        ) as batches:
            ranks += [x for batch in batches_of(batches) for x in batch]
    assert sorted(ranks) == SOURCE.tolist()


def test_a_pickle_draws_the_same():
    order = sampler(SAMPLERS["random"](), N, seed=5)
    assert list(pickle.loads(pickle.dumps(order))) == list(order)


def test_a_state_of_another_sampler():
    first, second = SubsetRandomSampler([1, 2, 3, 4]), SubsetRandomSampler([1, 2, 3, 5])
    with sampled_batcher(SOURCE, batch_size=3, sampler=first) as batches:
        loop = iter(batches)
        next(loop)
        state = batches.state_dict()
    with (
        sampled_batcher(SOURCE, batch_size=3, sampler=second) as batches,
        pytest.raises(DataError, match="positions"),
    ):
        batches.load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: BatchSampler(SAMPLERS["sequential"](), 3, False),
            "yields batches of positions",
        ),
        (lambda: iter([1, 2]), "iterated only once"),
        (lambda: (i for i in range(3)), "iterated only once"),
        (lambda: Drawn(itertools.count().__next__), "yields other positions in each loop"),
        (lambda: SequentialSampler(range(N + 1)), "index 12 at position 12 is out of range"),
        (lambda: Drawn(lambda: "a"), "whole numbers"),
        (lambda: {1, 2}, "which has no order"),
    ],
)
def test_samplers_that_are_no_order(make, says):
    with pytest.raises(DataError, match=says):
        sampled_batcher(SOURCE, batch_size=2, sampler=make())


def test_a_sampler_without_an_end():
    class Endless(Sampler):
        def __init__(self):
            pass

        def __iter__(self):
            return itertools.cycle(range(N))

    with pytest.raises(DataError, match="more than 1200 positions for 12 records"):
        sampled_batcher(SOURCE, batch_size=2, sampler=Endless())
