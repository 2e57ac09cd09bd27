"""Loops, states and epochs: one harness for all kinds of samplers and their aliases."""

import copy
import itertools
import json
import pickle
from itertools import product

import numpy as np
import pytest

from layoutkit import CompositeSpace, DataError, VectorSpace
from layoutkit.data import ArrayProvider, Dataset, open_index, sampled_batcher, sampler
from layoutkit.data.iteration import Epochs
from layoutkit.data.samplers.sampling import ALIASES, KINDS

NAMES = [*KINDS, *ALIASES]
N = 11
Y = ["a"] * 2 + ["b"] * 5 + ["c"] * 4


@pytest.fixture(scope="module")
def parts_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for number, lines in enumerate([0, 1, 4, 2, 0, 4, 0]):
        (folder / f"part-{number}").write_bytes(b"".join(b"%d\n" % i for i in range(lines)))
    return folder


@pytest.fixture
def made(parts_folder):
    """Return a function that makes equal samplers of a kind."""

    def make(name, **words):
        words = {"batch_size": 3, "seed": 7, **words}
        if name.startswith("part"):
            return sampler(name, open_index(parts_folder, kind="parts"), **words)
        if name == "even-sequences":
            return sampler(name, [[0] * (i % 3) for i in range(N)], **words)
        if name == "label-distribution":
            words["weights"] = {"a": 1, "b": 2, "c": 0.5}
        index = open_index({"x": np.arange(N), "y": Y})
        if "chunk" in name:
            index.chunk_window = 2, 3
        return sampler(name, index, **words)

    return make


def plain(item):
    """Return an item, or the items of a batch, in a form that can be compared."""
    if isinstance(item, list | np.ndarray):
        return [plain(each) for each in item]
    return (item.url, item.position, item.label) if hasattr(item, "position") else int(item)


def items(loop):
    return [plain(item) for item in loop]


def over(made_sampler, batches):
    return made_sampler.batches() if batches else made_sampler


every_name = pytest.mark.parametrize("name", NAMES)
both = pytest.mark.parametrize("batches", [False, True], ids=["items", "batches"])


@every_name
@both
def test_resume_from_every_position_over_three_epochs(made, name, batches):
    whole = made(name)
    loops = over(whole, batches)
    epochs = [items(loops) for _ in range(4)]
    assert whole.epoch == 4
    for epoch, at in itertools.product(range(3), range(len(epochs[0]) + 1)):
        first = made(name, epoch=epoch)
        loop = iter(over(first, batches))
        taken = items(itertools.islice(loop, at))
        state = json.loads(json.dumps(first.state_dict()))
        assert taken == epochs[epoch][:at]
        second = made(name)
        second.load_state_dict(state)
        assert second.state_dict() == state
        assert items(over(second, batches)) == epochs[epoch][at:]
        assert items(over(second, batches)) == epochs[epoch + 1]


@every_name
@both
def test_a_state_counts_what_was_handed_out(made, name, batches):
    order = made(name)
    loop, count = iter(over(order, batches)), 0
    assert order.state_dict()["position"] == 0
    for item in loop:
        count += len(item) if batches else 1
        assert order.state_dict()["position"] == count
        assert order.state_dict()["epoch"] == 0
    assert (order.state_dict()["position"], order.epoch) == (0, 1)
    assert all(type(value) in (int, str) for value in order.state_dict().values())


@every_name
def test_a_state_of_single_items_gives_the_rest_of_its_batch(made, name):
    whole = items(made(name))
    cuts = items(made(name).batches())
    for at in range(len(whole)):
        order = made(name)
        list(itertools.islice(iter(order), at))
        again = made(name)
        again.load_state_dict(order.state_dict())
        rest = items(again.batches())
        assert list(itertools.chain(*rest)) == whole[at:]
        assert rest[1:] == (cuts[len(cuts) - len(rest) + 1 :])


@every_name
@both
def test_a_loop_broken_off_costs_nothing(made, name, batches):
    order = made(name)
    loops = over(order, batches)
    first, second = (items(over(made(name, epoch=epoch), batches)) for epoch in (0, 1))
    for _ in range(3):
        assert plain(next(iter(loops))) == first[0]
    for count, item in enumerate(loops):
        assert plain(item) == first[count]
        if count == 1:
            break
    assert (order.epoch, items(loops)) == (0, first)
    assert (order.epoch, items(loops)) == (1, second)
    order.set_epoch(0)
    assert items(loops) == first


@every_name
@pytest.mark.parametrize("by", ["loop", "batches", "set_epoch", "load_state_dict"])
def test_something_newer_ends_the_older_loop(made, name, by):
    order = made(name)
    loop = iter(order)
    next(loop)
    if by == "loop":
        newer = iter(order)
    elif by == "batches":
        newer = iter(order.batches())
    elif by == "set_epoch":
        order.set_epoch(5)
    else:
        order.load_state_dict(order.state_dict())
    state = order.state_dict()
    for _ in range(2):
        with pytest.raises(DataError, match="this loop over a Sampler is over"):
            next(loop)
    assert order.state_dict() == state
    if by in ("loop", "batches"):
        next(newer)  # the newer loop goes on
        assert order.state_dict()["position"] > 0


def test_a_loop_that_came_to_its_end_stays_there(made):
    order = made("linear")
    loop = iter(order)
    assert len(list(loop)) == N
    assert list(loop) == []
    assert order.epoch == 1
    next(iter(order))
    assert list(loop) == []


def test_the_loaded_place_is_for_one_loop(made):
    order = made("linear")
    order.load_state_dict({**order.state_dict(), "epoch": 2, "position": 9})
    assert (order.epoch, order.state_dict()["position"]) == (2, 9)
    assert [r.position for r in itertools.islice(iter(order), 1)] == [9]
    assert len(list(order)) == N
    assert order.epoch == 3


def test_a_state_behind_the_last_item_leaves_nothing_of_its_epoch(made):
    order = made("permutation")
    list(itertools.islice(iter(order), N))
    assert (order.epoch, order.state_dict()["position"]) == (0, N)
    order.load_state_dict(order.state_dict())
    assert list(order) == []
    assert order.epoch == 1


@pytest.mark.parametrize(
    "name", ["uniform", "label-uniform", "label-distribution", "label-permutation"]
)
def test_endless_loops_resume_too(made, name):
    order = made(name, batch_size=None)
    loop = iter(order)
    whole = items(itertools.islice(loop, 2000))
    assert order.state_dict()["position"] == 2000
    for at in (0, 1, 511, 512, 513, 1999):
        order.load_state_dict({**order.state_dict(), "position": at})
        assert items(itertools.islice(iter(order), 2000 - at)) == whole[at:]


# ---- states that do not fit ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "linear"}, "kind 'linear', not 'permutation'"),
        ({"seed": 8}, "seed 8, not 7"),
        ({"batch_size": 4}, "batch_size 4, not 3"),
        ({"records": 12}, "records 12, not 11"),
        ({"position": 12}, "past the end of the epoch, 11"),
        ({"position": -1}, "position=-1"),
        ({"position": 1.0}, r"position=1\.0"),
        ({"epoch": -1}, "epoch=-1"),
        ({"epoch": "1"}, "epoch='1'"),
        ({"epoch": True}, "epoch=True"),
        ({"records": None}, "records=None"),
        ({"more": 1}, "more"),
        (None, "position"),
        ([], "a state is a dict"),
    ],
)
def test_a_wrong_state_changes_nothing(made, change, says):
    order = made("permutation")
    loop = iter(order)
    taken = [next(loop) for _ in range(4)]
    state = order.state_dict()
    wrong = change
    if change is None:
        wrong = {key: value for key, value in state.items() if key != "position"}
    elif isinstance(change, dict):
        wrong = {**state, **change}
    with pytest.raises(DataError, match=says):
        order.load_state_dict(wrong)
    assert order.state_dict() == state
    assert items(taken + list(loop)) == items(made("permutation"))


@pytest.mark.parametrize("marks", [{"part": 8}, {"part_start": 9}, {"part": -1}, {"part": "0"}])
def test_wrong_marks_change_nothing(made, marks):
    order = made("part-permutation-permutation")
    loop = iter(order)
    taken = [next(loop) for _ in range(4)]
    state = order.state_dict()
    with pytest.raises(DataError, match="part"):
        order.load_state_dict({**state, **marks})
    assert order.state_dict() == state
    assert items(taken + list(loop)) == items(made("part-permutation-permutation"))


def test_at_the_start_of_an_epoch_the_number_of_records_may_differ():
    state = sampler("permutation", 100, batch_size=4, epoch=3).state_dict()
    order = sampler("permutation", 25, batch_size=4)
    order.load_state_dict(state)
    assert (order.epoch, list(order)) == (3, list(sampler("permutation", 25, epoch=3)))
    with pytest.raises(DataError, match="records 100, not 25"):
        order.load_state_dict({**state, "position": 1})


@pytest.mark.parametrize("epoch", [-1, 1.5, None, "1"])
def test_a_wrong_epoch_changes_nothing(made, epoch):
    order = made("linear")
    loop = iter(order)
    next(loop)
    with pytest.raises(DataError, match="epoch="):
        order.set_epoch(epoch)
    assert len(list(loop)) == N - 1


# ---- copies, and references to loops ---------------------------------------------------------


@every_name
def test_copies_are_independent_and_samplers_pickle(made, name):
    order = made(name)
    loop = iter(order)
    first = plain(next(loop))
    for twin in (copy.copy(order), pickle.loads(pickle.dumps(order))):
        assert items(twin) == items(made(name))
    assert [first, *items(loop)] == items(made(name))


def test_a_loop_that_nobody_holds_ends_at_once():
    ended = []

    class Counted(Epochs):
        def _identity(self):
            return {}

        def _records(self):
            return 3

        def _end(self, epoch):
            return 3

        def _steps(self, epoch, position):
            try:
                for i in range(position, 3):
                    yield i, i + 1
            finally:
                ended.append(epoch)

    counted = Counted(0)
    for item in counted:
        if item == 1:
            break
    del item
    assert ended == [0]
    loop = iter(counted)
    next(loop)
    counted.set_epoch(4)  # the loop still exists, but is over
    assert ended == [0, 0]
    assert list(counted) == [0, 1, 2]
    assert ended == [0, 0, 4]


def test_an_error_is_no_end_of_the_epoch():
    class Reading(Epochs):
        def _identity(self):
            return {}

        def _records(self):
            return 2

        def _end(self, epoch):
            return 2

        def _steps(self, epoch, position):
            yield "fine", 1
            raise OSError("gone")

    reading = Reading(0)
    loop = iter(reading)
    next(loop)
    with pytest.raises(OSError, match="gone"):
        next(loop)
    with pytest.raises(DataError, match="is over"):
        next(loop)
    assert (reading.epoch, reading.state_dict()["position"]) == (0, 1)


def test_positions_that_no_endless_order_has():
    endless = sampler("uniform", 10)
    state = endless.state_dict()
    endless.load_state_dict({**state, "position": 2**63 - 1})
    assert next(iter(endless)) in range(10)
    with pytest.raises(DataError, match="past the end of the epoch"):
        endless.load_state_dict({**state, "position": 2**63})


def test_an_empty_state_has_no_keys():
    batcher = sampled_batcher({"x": np.zeros((4, 2))}, batch_size=2)
    with pytest.raises(DataError, match=r"this state has \[\], but a state of a Batcher has"):
        batcher.load_state_dict({})


# ---- states of wrong types ----------------------------------------------------------------

WRONG = [[], {}, None, float("nan"), 1.5, -1, "x", b"x", True, np.arange(2), 2**70, object()]


def resumables():
    """Return an object of each class that has a state, in the middle of an epoch."""
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    options = {"batch_size": 2, "num_workers": 0}
    yield sampled_batcher(x, **options, shard=(0, 2))
    yield sampled_batcher(x, **options, processor=lambda row, out: (row, 1.0))
    yield sampler("shuffle", x, batch_size=2)
    yield ArrayProvider(x, y, batch_size=2)
    specs = CompositeSpace((VectorSpace(2), VectorSpace(6))), ("input", "target")
    yield Dataset({"input": x, "target": y}).iterator(specs, batch_size=2)


def test_a_state_with_a_value_of_a_wrong_type_is_one_error():
    """Test every key of every state, at the start and in the middle of an epoch."""
    raw = []
    for made in resumables():
        states = [made.state_dict()]
        next(iter(made))
        states.append(made.state_dict())
        for state, key, value in product(states, states[1], WRONG):
            before = made.state_dict()
            try:
                made.load_state_dict({**state, key: value})
            except DataError:
                assert made.state_dict() == before
            except Exception as error:
                raw.append((type(made).__name__, key, value, repr(error)))
    assert raw == []
