"""Loops, states and epochs: one harness for samplers of all kinds, their batches, and Batchers."""

import copy
import itertools
import json
import pickle
import re
from itertools import product

import numpy as np
import pytest

from layoutkit import Collator, CompositeSpace, DataError, VectorSpace
from layoutkit.data import ArrayProvider, Batch, Dataset, open_index, sampled_batcher, sampler
from layoutkit.data.iteration import Epochs
from layoutkit.data.samplers.sampling import ALIASES, KINDS, find_kind
from tests.helpers.batches_of import plain as plain_batch
from tests.helpers.record_files import image, tar, tfrecords, write_rec

NAMES = [*KINDS.rows, *ALIASES]
N = 11
Y = ["a"] * 2 + ["b"] * 5 + ["c"] * 4
PHOTOS = np.random.default_rng(0).integers(0, 256, (N, 9, 8, 3)).astype(np.uint8)


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
        if find_kind(name).streams:
            return sampler(name, open_index(stream).with_options(4, None), **words)
        if name == "even-sequences":
            return sampler(name, [[0] * (i % 3) for i in range(N)], **words)
        if find_kind(name).weighted:
            words["weights"] = {"a": 1, "b": 2, "c": 0.5}
        index = open_index({"x": np.arange(N), "y": Y})
        if "chunk" in name:
            index.chunk_window = 2, 3
        return sampler(name, index, **words)

    return make


def stream():
    return iter(np.arange(N))


def lossy(x, out):
    """Return None for record 2, and raise for records 0 and 5."""
    number = int(np.ravel(x)[0])
    if number % 5 == 0:
        raise ValueError(number)
    return None if number == 2 else np.atleast_1d(x)


def part_row(data, out):
    return np.frombuffer(data, np.uint8) if data != b"2" else None


def write_sources(folder):
    """Write one byte per record, its number, in files of all kinds; return sources by name."""
    contents = [bytes([number]) for number in range(N)]
    files = [folder / "files" / f"{number:02}" for number in range(N)]
    files[0].parent.mkdir()
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    (folder / "a.csv").write_text("".join(["filename\n", *(f"{file}\n" for file in files)]))
    members = [(f"{file.name}.jpg", content) for file, content in zip(files, contents, strict=True)]
    (folder / "a.tar").write_bytes(tar(members))
    write_rec(folder / "a.rec", [image(content, 0) for content in contents])
    (folder / "a.tfrecord").write_bytes(tfrecords(contents))
    numbers = np.arange(N, dtype=np.uint8)[:, None]
    np.save(folder / "a.npy", numbers)
    names = {name: folder / f"a.{name}" for name in ("csv", "tar", "rec", "tfrecord", "npy")}
    more = {"array": numbers, "folder": files[0].parent, "list": [*map(str, files)]}
    return {**names, **more, "dict": {"x": numbers, "y": Y}, "Dataset": Dataset({"input": numbers})}


SOURCES = ["csv", "tar", "rec", "tfrecord", "npy", "array", "folder", "list", "dict", "Dataset"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return write_sources(tmp_path_factory.mktemp("sources"))


def as_row(data, out):
    return np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data


CROPS = Collator("hwc->bchw", h=4, w=5, offset="random", flip="random")
PARTS = {"sources": "parts", "processor": part_row}
# The keywords of Batchers, which read arange(N) and its labels if they name no sources.
BATCHERS = (
    {
        f"{kind}{', refill' * refill}": {"sampler": kind, "refill": refill, "processor": lossy}
        for kind in KINDS.rows
        if kind not in ("even-sequences", "weighted")
        and not re.match("part|.*chunk|.*stream", kind)
        for refill in (False, True)
    }
    | {
        "one of two shards": {"sampler": "shuffle", "shard": (1, 2), "processor": lossy},
        "two sources": {
            "sources": [np.arange(N), -np.arange(N)],
            "sampler": ["linear", "shuffle"],
            "processor": lambda x, y, out: (x, int(y)),
        },
        "random crops": {"sources": PHOTOS, "sampler": "shuffle", "collate": CROPS},
        "two random crops": {"sources": PHOTOS, "collate": [CROPS, CROPS]},
        "parts": {
            "sources": "parts",
            "sampler": "part-permutation-permutation",
            "processor": part_row,
        },
        "parts, refill": {
            "sources": "parts",
            "sampler": "part-linear-permutation",
            "refill": True,
            "processor": part_row,
        },
        "stream": {"sources": stream, "shuffle": 6, "processor": lossy},
        "stream, full batches": {"sources": stream, "drop_last": True},
        "stream, refill": {"sources": stream, "shuffle": 4, "refill": True, "processor": lossy},
        "stream, one of two shards": {"sources": stream, "shuffle": 3, "shard": (1, 2)},
        "rows of a shape": {"input_dims": (1,), "processor": lossy, "sampler": "shuffle"},
        "rows of a shape, refill": {"input_dims": (1,), "processor": lossy, "refill": True},
        "no records": {"processor": lambda x, out: None},
    }
    | {name: {"sources": name, "sampler": "shuffle", "processor": as_row} for name in SOURCES}
)
CASES = [
    *product(["sampler", "batches"], NAMES),
    *product(["batcher", "batcher with threads"], BATCHERS),
]


class Case:
    """One way to iterate: makes equal owners of a state, and the loops over them."""

    def __init__(self, way, name, made, sources):
        self.way, self.name, self.made, self.sources = way, name, made, sources
        self.owners = []

    def make(self, epoch=0, is_twin=False):
        """Return a new owner; the Batcher of a twin has other threads and prefetch."""
        if self.way in ("sampler", "batches"):
            return self.made(self.name, epoch=epoch)
        words = {"batch_size": 3, "seed": 7, "prefetch": 1 + 2 * is_twin, **BATCHERS[self.name]}
        source = words.pop("sources", {"x": np.arange(N), "y": Y})
        if isinstance(source, str):
            source = self.sources[source]()
        workers = 2 * ((self.way == "batcher") is is_twin)
        owner = sampled_batcher(source, num_workers=workers, epoch=epoch, **words)
        self.owners.append(owner)
        return owner

    def over(self, owner):
        return owner.batches() if self.way == "batches" else owner

    def items(self, owner):
        return [plain(item) for item in self.over(owner)]


@pytest.fixture(params=CASES, ids=" of ".join)
def case(request, made, parts_folder, sources):
    opened = {name: lambda source=source: source for name, source in sources.items()}
    opened["parts"] = lambda: open_index(parts_folder, kind="parts")
    case = Case(*request.param, made, opened)
    yield case
    for owner in case.owners:
        owner.close()


def plain(item):
    """Return an item, or the items of a batch, in a form that can be compared."""
    if isinstance(item, Batch):
        inputs = item.input if isinstance(item.input, tuple) else (item.input,)
        item.input = inputs[0]
        return [plain_batch(item), [x if x is None else x.input.tolist() for x in inputs]]
    if isinstance(item, list | np.ndarray):
        return [plain(each) for each in item]
    return (item.url, item.position, item.label) if hasattr(item, "position") else int(item)


def items(loop):
    return [plain(item) for item in loop]


every_name = pytest.mark.parametrize("name", NAMES)
both = pytest.mark.parametrize("batches", [False, True], ids=["items", "batches"])


@pytest.mark.budget(5)
def test_resume_from_every_position_over_three_epochs(case):
    whole = case.make()
    epochs = [case.items(whole) for _ in range(4)]
    assert whole.epoch == 4
    second = case.make(is_twin=True)
    for epoch in range(3):
        first = case.make(epoch=epoch)
        for at in range(len(epochs[epoch]) + 1):
            first.set_epoch(epoch)
            loop = iter(case.over(first))
            taken = items(itertools.islice(loop, at))
            state = json.loads(json.dumps(first.state_dict()))
            assert taken == epochs[epoch][:at]
            second.load_state_dict(state)
            assert second.state_dict() == state
            loop = iter(case.over(second))
            assert second.state_dict() == state
            assert items(loop) == epochs[epoch][at:]
            assert second.epoch == epoch + 1
            assert case.items(second) == epochs[epoch + 1]


def test_a_loop_broken_off_costs_nothing(case):
    owner = case.make()
    loops = case.over(owner)
    first, second = (case.items(case.make(epoch=epoch)) for epoch in (0, 1))
    for _ in range(3):
        assert plain(next(iter(loops))) == first[0]
    for count, item in enumerate(loops):
        assert plain(item) == first[count]
        if count == len(first) - 2:
            break
    assert (owner.epoch, items(loops)) == (0, first)
    assert (owner.epoch, items(loops)) == (1, second)
    owner.set_epoch(0)
    assert items(loops) == first


def test_a_loop_after_the_last_item_is_over_the_next_epoch(case):
    """Test loops that count `len` items and never ask for one more, as Lightning's Trainer."""
    owner = case.make()
    loops = case.over(owner)
    for epoch in range(3):
        expected = case.items(case.make(epoch=epoch))
        try:
            length = len(loops)
        except TypeError:  # part files that are not open yet
            length = None
        assert items(itertools.islice(iter(loops), length)) == expected
        state = owner.state_dict()
    if state["epoch"] == 2:
        again = case.make()
        again.load_state_dict(state)
        assert items(case.over(again)) == []  # the rest of the epoch of the state
        assert again.epoch == 3


def test_set_epoch_keeps_a_loop_that_is_there(case):
    owner = case.make(epoch=1)
    expected = case.items(case.make(epoch=1))
    loop = iter(case.over(owner))
    owner.set_epoch(1)
    assert items(loop) == expected
    assert owner.epoch == 2


@pytest.mark.budget(67)
@pytest.mark.parametrize("by", ["loop", "reset", "set_epoch", "load_state_dict"])
def test_something_newer_ends_the_older_loop(case, by):
    owner = case.make()
    loop = iter(case.over(owner))
    next(loop)
    newer = None
    if by == "loop":
        newer = iter(owner)
    elif by == "load_state_dict":
        owner.load_state_dict(owner.state_dict())
    elif by == "reset" and hasattr(owner, "reset"):
        owner.reset()
        assert (owner.epoch, owner.state_dict()["position"]) == (0, 0)
    else:
        owner.set_epoch(5)
    state = owner.state_dict()
    for _ in range(2):
        with pytest.raises(DataError, match=r"this loop over a \w+ is over"):
            next(loop)
    assert owner.state_dict() == state
    if newer is not None:
        next(newer)  # the newer loop goes on
        assert owner.state_dict()["position"] > 0


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_each_record_in_the_order_of_the_sampler(sources, name, workers):
    order = [*sampler("shuffle", N, seed=7)]
    options = {"batch_size": 3, "sampler": "shuffle", "seed": 7, "processor": as_row}
    with sampled_batcher(sources[name], num_workers=workers, **options) as batches:
        found = list(batches)
    assert [record.position for batch in found for record in batch.item] == order
    assert np.concatenate([batch.input.input for batch in found]).tolist() == [[n] for n in order]


@every_name
@both
def test_a_state_counts_what_was_handed_out(made, name, batches):
    order = made(name)
    loop, count = iter(order.batches() if batches else order), 0
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


@pytest.mark.parametrize("name", ["uniform", "label-uniform", "weighted", "label-permutation"])
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
