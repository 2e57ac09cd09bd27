"""A Batcher compared with a naive model: read, stopped, resumed, set to an epoch, recreated."""

import json

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from layoutkit.data import open_index, sampled_batcher, sampler
from tests.helpers.batches_of import expected

N = 13
INDEX = open_index(np.arange(N * 2.0).reshape(N, 2))
BAD = {2, 3, 7, 12}


def get(record):
    if record.position in BAD:
        raise ValueError("bad")
    return record.array


class BatcherMachine(RuleBasedStateMachine):
    """The model: an epoch, and the number of its batches that were yielded."""

    @initialize(
        kind=st.sampled_from(["linear", "permutation"]),
        width=st.integers(1, 6),
        refill=st.booleans(),
        workers=st.sampled_from([0, 0, 1, 2]),
        seed=st.integers(0, 3),
    )
    def begin(self, kind, width, refill, workers, seed):
        self.words = {"sampler": kind, "batch_size": width, "seed": seed}
        self.how = {"refill": refill, "num_workers": workers, "get": get}
        self.batcher = self.made()
        self.loop, self.epoch, self.at = iter(self.batcher), 0, 0

    def made(self):
        return sampled_batcher(INDEX, **self.words, **self.how)

    def teardown(self):
        if hasattr(self, "batcher"):
            self.batcher.close()

    # -- actions ---------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def read_on(self, count):
        for _ in range(count):
            batch, wanted = next(self.loop, None), self.wanted()
            if self.at == len(wanted):
                assert batch is None
                self.loop, self.epoch, self.at = iter(self.batcher), self.epoch + 1, 0
                return
            kept, dropped = wanted[self.at]
            assert [record.position for record in batch.item] == kept
            assert [record.position for record, *_ in batch.dropped] == dropped
            self.at += 1

    @rule()
    def resume_in_a_new_batcher(self):
        state = json.loads(json.dumps(self.batcher.state_dict()))
        self.batcher.close()
        self.batcher = self.made()
        self.batcher.load_state_dict(state)
        assert self.batcher.state_dict() == state
        self.loop = iter(self.batcher)

    @rule()
    def go_back_to_a_state(self):
        self.batcher.load_state_dict(self.batcher.state_dict())
        self.loop = iter(self.batcher)

    @rule(epoch=st.integers(0, 3))
    def set_epoch(self, epoch):
        self.batcher.set_epoch(epoch)
        self.loop, self.epoch, self.at = iter(self.batcher), epoch, 0

    @rule()
    def look_at_the_state(self):
        state = self.batcher.state_dict()
        assert (state["epoch"], state["batch"]) == (self.epoch, self.at)
        taken = sum(len(kept) + len(dropped) for kept, dropped in self.wanted()[: self.at])
        assert state["position"] == taken
        if self.at:  # before the first batch it describes the latest loop
            assert self.batcher.dropped == sum(len(bad) for _, bad in self.wanted()[: self.at])

    # -- the model -------------------------------------------------------------------------

    def wanted(self):
        """Return (kept, dropped) of each batch of this epoch, as positions."""
        order = sampler(self.words["sampler"], INDEX, **self.sampling(), epoch=self.epoch)
        places = [record.position for record in order]
        cut = expected(places, self.words["batch_size"], good, self.how["refill"])
        return [tuple([places[at] for at in side] for side in batch) for batch in cut]

    def sampling(self):
        return {name: self.words[name] for name in ("batch_size", "seed")}


def good(position):
    return position not in BAD


TestBatcher = BatcherMachine.TestCase
TestBatcher.settings = settings(
    stateful_step_count=20, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
