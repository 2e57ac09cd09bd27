"""Batchers of all kinds with failing, slow and hanging records, threads switching all the time."""

import random
import sys
import threading
import time

import numpy as np
import pytest

from layoutkit.data import open_index, sampled_batcher, sampler
from tests.helpers.batches_of import our_threads

N = 60
X = np.arange(N * 2.0).reshape(N, 2)
INDEX = open_index(X)
KINDS = ["linear", "permutation", "batchwise_shuffled_sequential"]


@pytest.fixture(autouse=True)
def _switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Records:
    """A getter and a processor that fail, hang or are slow at chosen records."""

    def __init__(self, chance, timeout):
        self.bad = {number for number in range(N) if chance.random() < 0.2}
        self.hanging = set(chance.sample(range(N), 2)) if timeout else set()
        self.slow = {number for number in range(N) if chance.random() < 0.02}
        self.open = threading.Event()

    def get(self, record):
        if record.position in self.hanging:
            self.open.wait(10)
        if record.position in self.slow:
            time.sleep(0.001)
        if record.position in self.bad:
            raise ValueError
        return record.array

    def process(self, x, out):
        if out is None:
            return x * 2
        out[...] = x * 2
        return out

    def good(self, number):
        return number not in self.bad | self.hanging


@pytest.mark.parametrize("seed", range(60))
def test_storm(seed):
    chance = random.Random(seed)
    timeout = 0.2 if seed % 6 == 0 else None
    records = Records(chance, timeout)
    width, kind = chance.randrange(1, 12), chance.choice(KINDS)
    batches = sampled_batcher(
        INDEX,
        batch_size=width,
        sampler=kind,
        get=records.get,
        processor=records.process,
        refill=chance.random() < 0.5,
        timeout=timeout,
        input_dims=chance.choice([None, (2,)]),
        num_workers=chance.randrange(1, 5),
        prefetch=chance.randrange(5),
    )
    stop = chance.choice([None, None, 0, 2, 5])
    order = [record.position for record in sampler(kind, INDEX, batch_size=width)]
    held = []
    with batches:
        for number, batch in enumerate(batches):
            held.append(batch)
            if number == stop:
                break
        records.open.set()
    found = [record.position for batch in held for record in batch.item]
    wanted = [number for number in order if records.good(number)]
    assert found == wanted[: len(found)]
    if stop is None:
        assert (len(found), batches.dropped) == (len(wanted), N - len(wanted))
    for batch in held:
        rows = X[[record.position for record in batch.item]] * 2
        assert (batch.input is None and not batch.count) or np.array_equal(batch.input.input, rows)
    while our_threads():  # threads that hung end with their calls
        time.sleep(0.001)
