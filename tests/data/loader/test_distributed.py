"""Ranks that share one order: equal batches, and one state that any number of ranks can load."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import Collator, DataError
from layoutkit.data import open_index, sampled_batcher, sampler

ONCE = ["linear", "shuffle", "even_shuffled_sequential", "even_batchwise_shuffled_sequential"]


def ranks(n, world, size, kind="shuffle", **keywords):
    source = {"x": np.arange(float(n)), "y": [7, 8] * (n // 2) + [7] * (n % 2)}
    return [
        sampled_batcher(
            source, batch_size=size, sampler=kind, shard=(r, world), num_workers=0, **keywords
        )
        for r in range(world)
    ]


def items(batch):
    return batch.input.forward_get("b").astype(int).tolist()


def steps(batchers, most=None):
    """Return each rank's batch as a list of items, step by step."""
    found = []
    for step in zip(*batchers, strict=True):
        found.append([items(batch) for batch in step])
        if len(found) == most:
            break
    return found


def flat(found):
    return [item for step in found for each in step for item in each]


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 6), st.sampled_from(ONCE))
def test_every_rank_gets_as_many_and_all_together_each_record_once(n, world, size, kind):
    batchers = ranks(n, world, size, kind)
    found = steps(batchers)
    assert [len(b) for b in batchers] == [len(found)] * world
    assert all(len({len(each) for each in step}) == 1 for step in found)
    assert all(len(each) == size for step in found[:-1] for each in step)
    order = list(sampler(kind, n, batch_size=size))
    together = flat(found)
    assert together == order[: len(together)]  # the common order, cut into steps
    left = n - len(together)
    assert left < (world * size if kind.startswith("even") else world)


@given(
    st.integers(1, 80), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1,
    max_size=4), st.data(),
)  # fmt: skip
def test_any_worlds_go_on_from_the_state_of_others(n, worlds, data):
    state, seen = None, []
    for world, size in worlds:
        batchers = ranks(n, world, size)
        if state is not None:
            for each in batchers:
                each.load_state_dict(json.loads(json.dumps(state)))
        count = data.draw(st.integers(1, 4))
        seen += flat(steps(batchers, count))
        if batchers[0].epoch:
            break
        states = [each.state_dict() for each in batchers]
        assert states == states[:1] * world
        state = states[0]
    order = list(sampler("shuffle", n))
    assert seen == order[: len(seen)]


def test_one_process_goes_on_from_the_state_of_many_and_back():
    three = ranks(20, 3, 2)
    before = flat(steps(three, 2))
    alone = sampled_batcher(
        {"x": np.arange(20.0), "y": [7, 8] * 10}, batch_size=2, sampler="shuffle", num_workers=0
    )
    alone.load_state_dict(three[0].state_dict())
    loop = iter(alone)
    middle = items(next(loop)) + items(next(loop))
    for each in three:
        each.load_state_dict(alone.state_dict())
    rest = flat(steps(three))
    assert before + middle + rest == list(sampler("shuffle", 20))[:19]  # a rank gets 1 of 4


def test_slices_keep_their_size():
    state = ranks(24, 2, 3, "even_batchwise_shuffled_sequential")[0]
    next(iter(state))
    other = ranks(24, 2, 2, "even_batchwise_shuffled_sequential")[0]
    with pytest.raises(DataError, match="batch_size 3, not 2"):
        other.load_state_dict(state.state_dict())


@pytest.mark.parametrize("kind", ["uniform", "random_slice", "label-uniform"])
def test_kinds_that_draw_give_every_rank_full_batches_of_one_order(kind):
    found = steps(ranks(20, 3, 2, kind))
    assert [len(each) for each in ranks(20, 3, 2, kind)] == [4, 4, 4]
    assert len(found) == 4
    assert all(len(each) == 2 for step in found for each in step)
    index = open_index({"x": np.arange(20.0), "y": [7, 8] * 10})
    order = sampler(kind, index, batch_size=2, num_batches=12)
    assert flat(found) == [record.position for record in order]


def test_num_batches_counts_those_of_one_rank():
    batchers = ranks(40, 2, 3, num_batches=4)
    assert len(batchers[0]) == 4
    assert flat(steps(batchers)) == list(sampler("shuffle", 40))[:24]
    with pytest.raises(DataError, match="batches"):
        ranks(40, 2, 3, num_batches=8)


def test_threads_prefetch_and_drops_leave_the_places_alone():
    def process(value, out=None):
        if int(value) % 3 == 0:
            raise ValueError("no")
        return value

    batchers = [
        sampled_batcher(
            {"x": np.arange(40.0)}, batch_size=4, sampler="shuffle", processor=process,
            shard=(r, 2), num_workers=2, prefetch=3,
        )
        for r in range(2)
    ]  # fmt: skip
    loops = [iter(each) for each in batchers]
    first = [items(next(loop)) for loop in loops for _ in range(2)]
    states = [each.state_dict() for each in batchers]
    assert states[0] == states[1]
    assert states[0]["position"] == 16
    rest = [items(batch) for loop in loops for batch in loop]
    seen = Counter(item for each in first + rest for item in each)
    assert seen == Counter(i for i in range(40) if i % 3)
    for each in batchers:
        each.close()


def test_what_is_drawn_for_a_record_is_the_same_in_any_world():
    photos = np.random.default_rng(0).integers(0, 255, (24, 6, 7, 3)).astype(np.uint8)

    def windows(world):
        found = {}
        for r in range(world):
            batches = sampled_batcher(
                photos, batch_size=2, sampler="shuffle", shard=(r, world), num_workers=0,
                collate=Collator("hwc->bchw", h=4, w=4, offset="random"),
            )  # fmt: skip
            for batch in batches:
                rows = batch.input.forward_get("bchw")
                found |= {
                    record.position: row.tobytes()
                    for record, row in zip(batch.item, rows, strict=True)
                }
        return found

    assert windows(1) == windows(3)


@pytest.mark.parametrize(
    ("shard", "keywords", "words"),
    [
        ((2, 2), {}, "1 is the last"),
        ((0, 0), {}, "world of shard"),
        (3, {}, "it must be \\(rank, world\\)"),
        ("some", {}, "auto"),
        ((0, 2), {"refill": True}, "refill"),
        ((0, 2), {"sampler": "batchwise_shuffled_sequential"}, "even-batchwise"),
    ],
)
def test_what_cannot_be_shared_out_is_said_at_once(shard, keywords, words):
    with pytest.raises(DataError, match=words):
        sampled_batcher(np.arange(8.0), batch_size=2, shard=shard, **keywords)


def test_partitions_and_part_files_are_no_whole_source(tmp_path):
    index = open_index(np.arange(8.0), partition=0, partitions=2)
    with pytest.raises(DataError, match="complete source"):
        sampled_batcher(index, batch_size=2, shard=(0, 2))
    (tmp_path / "a").write_text("x\n")
    parts = open_index(tmp_path, kind="parts")
    with pytest.raises(DataError, match="part files"):
        sampled_batcher(parts, batch_size=2, sampler="part-linear", shard=(0, 2))


def test_auto_reads_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    batches = sampled_batcher(np.arange(8.0), batch_size=2, shard="auto", num_workers=0)
    assert [items(batch) for batch in batches] == [[2, 3], [6, 7]]
    monkeypatch.delenv("RANK")
    with pytest.raises(DataError, match="RANK=None and WORLD_SIZE=2"):
        sampled_batcher(np.arange(8.0), batch_size=2, shard="auto")
    monkeypatch.delenv("WORLD_SIZE")
    batches = sampled_batcher(np.arange(8.0), batch_size=4, shard="auto", num_workers=0)
    assert len(batches) == 2


class Stream:
    """An iterable for a DataLoader that makes the batches of its worker in the worker."""

    def __iter__(self):
        batches = sampled_batcher(np.arange(24.0), batch_size=2, shard="auto", num_workers=0)
        yield from map(items, batches)


def test_auto_counts_the_workers_of_a_dataloader(monkeypatch):
    data = pytest.importorskip("torch.utils.data")

    class Shared(Stream, data.IterableDataset):
        pass

    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        loader = data.DataLoader(Shared(), batch_size=None, num_workers=2)
        found.append(list(loader))
    # The order consists of both ranks' first batches, then of their second batches, and so on.
    assert [flat([step]) for step in zip(*found, strict=True)] == [
        list(range(k, k + 4)) for k in range(0, 24, 4)
    ]


TRAINING = """
import json, os, sys
import numpy as np, torch, torch.distributed as dist
from layoutkit.data import sampled_batcher
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
step = torch.optim.SGD(model.parameters(), 0.01)
rows = np.arange(80, dtype=np.float32).reshape(40, 2)
batches = sampled_batcher(rows, batch_size=3, sampler="shuffle", shard="auto", layout="bf")
seen = []
for batch in batches:
    x = torch.from_numpy(batch.input.forward_get("bf").copy())
    step.zero_grad(); model(x / 80).square().mean().backward(); step.step()
    seen += [int(v) // 2 for v in x[:, 0]]
    if len(seen) == 12:
        break
every = [None, None]
dist.all_gather_object(every, (seen, batches.state_dict(), float(model.module.bias)))
batches.close()
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(every, file)
dist.destroy_process_group()
# Threads of gloo remain after that, and abort the process if they need the interpreter as it ends.
os._exit(0)
"""


@pytest.mark.budget(0)
def test_two_processes_of_torchrun_train_and_four_ranks_go_on(tmp_path):
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this PyTorch has no gloo, by which processes of one machine speak")
    program, told = tmp_path / "training.py", tmp_path / "seen.json"
    program.write_text(TRAINING)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(program), str(told)], env=environment, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (first, state, bias), (second, other, same) = json.loads(told.read_text())
    assert state == other
    assert bias == same
    assert len(first) == len(second) == 12
    rows = np.arange(80, dtype=np.float32).reshape(40, 2)
    after = []
    for rank in range(4):
        batches = sampled_batcher(
            rows, batch_size=3, sampler="shuffle", shard=(rank, 4), layout="bf", num_workers=0
        )
        batches.load_state_dict(state)
        after += [int(v) // 2 for b in batches for v in b.input.forward_get("bf")[:, 0]]
    assert sorted(first + second + after) == list(range(40))
