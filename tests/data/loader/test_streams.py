"""Batches of streams: iterators and functions that return one, shuffled in a buffer, resumable."""

import multiprocessing
import os
import re
import signal
import socket
import threading
import tracemalloc
from itertools import chain, count

import numpy as np
import pytest

from layoutkit import Collator, DataError
from layoutkit.data import open_index, sampled_batcher, sampler

COUNT = 23


def records(number=COUNT):
    """Yield pairs of an array and a label."""
    for i in range(number):
        yield np.full(2, i, np.float32), i % 3


def numbers_of(batch):
    return batch.input.input[:, 0].astype(int).tolist()


def read(source, epochs=1, **options):
    options = {"batch_size": 4, **options}
    with sampled_batcher(source, **options) as batches:
        return [[numbers_of(batch) for batch in batches] for _ in range(epochs)]


def flatten(batches):
    return [*chain.from_iterable(batches)]


def chunks(values, size=4):
    return [[*values[start : start + size]] for start in range(0, len(values), size)]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize(
    "make", [records, lambda: records, lambda: list(records()).__iter__], ids=["once", "f", "iter"]
)
def test_records_come_in_order_with_their_targets(make, workers):
    with sampled_batcher(make(), batch_size=4, num_workers=workers) as batches:
        found = list(batches)
    assert [numbers_of(batch) for batch in found] == chunks(range(COUNT))
    targets = [y for batch in found for y in batch.target.input.tolist()]
    assert targets == [i % 3 for i in range(COUNT)]
    assert [record.position for batch in found for record in batch.item] == [*range(COUNT)]


@pytest.mark.parametrize("size", [1, 2, 7, 22, 23, 24, 1000])
def test_a_buffer_shuffles(size):
    first, second = read(records, 2, shuffle=size, seed=5)
    for epoch in (first, second):
        assert sorted(flatten(epoch)) == [*range(COUNT)]
        for position, number in enumerate(flatten(epoch)):
            assert number < position + size
    assert (first == second) == (size == 1)
    assert read(records, 2, shuffle=size, seed=5, num_workers=0) == [first, second]
    if size > 2:
        assert read(records, shuffle=size, seed=6) != [first]
    again = read(records, 1, shuffle=size, seed=5, epoch=1)
    assert again == [second]


@pytest.mark.parametrize("place", range(13))
@pytest.mark.parametrize("shuffle", [None, 6, 100])
def test_a_loop_resumes_at_every_batch(place, shuffle):
    options = {"batch_size": 4, "shuffle": shuffle, "seed": 2}
    found, states = [], []
    with sampled_batcher(records, **options) as batches:
        states.append(batches.state_dict())
        for _ in range(2):
            for batch in batches:
                found.append(numbers_of(batch))
                states.append(batches.state_dict())
    with sampled_batcher(records, **options) as batches:
        batches.load_state_dict(states[place])
        rest = [numbers_of(batch) for _ in range(2) for batch in batches]
    assert rest[: len(found) - place] == found[place:]


def test_a_state_of_another_buffer_or_rank_is_refused():
    with sampled_batcher(records, batch_size=4, shuffle=6) as batches:
        next(iter(batches))
        state = batches.state_dict()
    for other in ({}, {"shuffle": 7}, {"shuffle": 6, "shard": (0, 2)}):
        with (
            sampled_batcher(records, batch_size=4, **other) as batches,
            pytest.raises(DataError, match="of another Batcher: partition"),
        ):
            batches.load_state_dict(state)


def test_random_windows_depend_on_the_number_of_a_record_only():
    images = [np.random.default_rng(i).integers(0, 255, (9, 9, 3), np.uint8) for i in range(COUNT)]
    collate = Collator("hwc->bhwc", h=5, w=5, offset="random", flip="random", seed=3)

    def crops(source, **options):
        with sampled_batcher(source, batch_size=4, collate=collate, **options) as batches:
            return {
                r.position: x.tobytes()
                for batch in batches
                for r, x in zip(batch.item, batch.input.input, strict=True)
            }

    assert crops(lambda: iter(images)) == crops(lambda: iter(images), shuffle=9)


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_take_every_record_once_and_equally_many(world):
    for options in ({}, {"shuffle": 4}):
        ranks = [read(records, shard=(rank, world), **options)[0] for rank in range(world)]
        assert {len(flatten(rank)) for rank in ranks} == {COUNT // world}
        everything = sorted(number for rank in ranks for number in flatten(rank))
        assert everything == [*range(COUNT // world * world)]
    index = open_index(records, partition=1, partitions=world)
    assert flatten(read(index)[0]) == [*range(1, COUNT // world * world, world)]


def test_epochs_of_full_batches_and_of_a_number_of_batches():
    assert read(records, drop_last=True) == [chunks(range(20))]
    assert read(count_pairs, num_batches=3, epochs=2) == [chunks(range(12))] * 2
    with sampled_batcher(count_pairs, batch_size=4, num_batches=3) as batches:
        assert len(batches) == 3
    with pytest.raises(DataError, match="num_batches=9, but the stream ended after 23 records"):
        read(records, num_batches=9)


def count_pairs():
    for i in count():
        yield np.full(2, i, np.float32)


def test_the_length_is_unknown():
    with sampled_batcher(records, batch_size=4) as batches:
        assert batches.num_batches is None
        with pytest.raises(
            TypeError, match=r"no number of batches before it is read; .*num_batches="
        ):
            len(batches)
        assert batches
    index = open_index(records)
    with pytest.raises(TypeError, match=r"not known before it is read; .*list\(source\)"):
        len(index)
    assert repr(index) == "<stream of function>"
    with pytest.raises(DataError, match="record 3 cannot be read alone"):
        index.record(3)


def test_an_iterator_is_read_once():
    with sampled_batcher(records(), batch_size=4) as batches:
        assert len(list(batches)) == 6
        with pytest.raises(DataError, match=r"a generator, which can be read once .* a function"):
            list(batches)


def test_an_iterator_of_a_resumed_loop_is_skipped():
    with sampled_batcher(records(), batch_size=4, shuffle=5) as batches:
        loop = iter(batches)
        found = [numbers_of(next(loop)) for _ in range(2)]
        state = batches.state_dict()
        found += [numbers_of(batch) for batch in loop]
    with sampled_batcher(records(), batch_size=4, shuffle=5) as batches:
        batches.load_state_dict(state)
        assert [numbers_of(batch) for batch in batches] == found[2:]
    with sampled_batcher(records(6), batch_size=4, shuffle=5) as batches:
        batches.load_state_dict(state)
        with pytest.raises(DataError, match=r"ended after 6 records, but the loop resumes after 8"):
            next(iter(batches))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [None, 6])
@pytest.mark.parametrize("place", [0, 3, 4, 5, 10, 22])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("connection lost"), "OSError: connection lost"),
        (DataError("a line is damaged"), "DataError: a line is damaged"),
        (KeyboardInterrupt(), None),
    ],
    ids=["error", "own error", "interrupt"],
)
def test_an_iterator_that_fails_costs_no_batch(error, text, place, shuffle, workers):
    """The batches before it are yielded, the cause is kept, and the state resumes there."""
    is_failing = True

    def source():
        for number, record in enumerate(records()):
            if number == place and is_failing:
                raise error
            yield record

    options = {"batch_size": 4, "shuffle": shuffle, "seed": 2, "num_workers": workers}
    [expected] = read(records, **options)
    before = []
    with sampled_batcher(source, **options) as batches:
        with pytest.raises(DataError if text else KeyboardInterrupt) as caught:
            for batch in batches:
                before.append(numbers_of(batch))
        state = batches.state_dict()
        if text:
            assert str(caught.value) == f"record {place} of the stream could not be read: {text}"
            assert caught.value.__cause__ is error
            assert len(before) == max(0, place - (shuffle or 0) + bool(shuffle)) // 4
        assert (state["epoch"], state["position"]) == (0, 4 * len(before))
        is_failing = False
        batches.load_state_dict(state)
        assert before + [numbers_of(batch) for batch in batches] == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_ends_the_wait_for_a_record(workers):
    read_end, write_end = os.pipe()

    def wait():
        yield from records(9)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            os.read(read_end, 1)
        finally:
            timer.join()

    with sampled_batcher(wait, batch_size=4, num_workers=workers, prefetch=0) as batches:
        loop = iter(batches)
        assert [numbers_of(next(loop)) for _ in range(2)] == chunks(range(8))
        with pytest.raises(KeyboardInterrupt):
            next(loop)
        assert batches.state_dict()["position"] == 8
    for descriptor in (read_end, write_end):
        os.close(descriptor)


def fail(error):
    raise error


class Iterable:
    """An iterable without length whose iterator is the result of a function."""

    def __init__(self, function):
        self.function = function

    def __iter__(self):
        return self.function()


async def yield_numbers():
    yield 1


NO_STREAMS = {
    "empty": (
        lambda: iter([]),
        "no records: the iterator that its function returned is at its end",
    ),
    "empty iterator": (iter([]), "no records: its iterator is at its end"),
    "int": (lambda: 5, "a function that returned an int; it must return an iterator"),
    "None": (lambda: None, "a function that returned None; it must"),
    "text": (lambda: "data/train", "a function that returned a str; it must"),
    "bytes": (lambda: b"1234", "a function that returned a bytes; it must"),
    "mapping": (lambda: {"x": np.zeros((3, 2))}, "a function that returned a dict; it must"),
    "async": (yield_numbers, "a function that returned an async_generator; it must"),
    "error": (lambda: fail(OSError("refused")), "begun: OSError: refused; .*without arguments"),
    "argument": (lambda path: iter([path]), "TypeError: .* missing 1 .*; .*without arguments"),
    "bad iterable": (Iterable(lambda: fail(OSError("refused"))), "begun: OSError: refused$"),
    "no iterator": (Iterable(lambda: 5), "begun: TypeError: iter\\(\\) returned non-iterator"),
}


@pytest.mark.parametrize("name", NO_STREAMS)
def test_what_is_no_stream(name):
    source, text = NO_STREAMS[name]
    with sampled_batcher(source, batch_size=4) as batches, pytest.raises(DataError, match=text):
        next(iter(batches))


def test_a_stream_with_fewer_records_than_ranks():
    with (
        sampled_batcher(lambda: records(2), batch_size=4, shard=(0, 3)) as batches,
        pytest.raises(DataError, match="before the first one of each partition"),
    ):
        next(iter(batches))


ONCE = "a generator, which can be read once and has been; give a function"


@pytest.mark.parametrize("options", [{}, {"num_batches": 2}, {"shuffle": 5, "num_batches": 2}])
def test_a_function_must_return_a_new_iterator(options):
    generator, iterator = records(), iter([*records()])
    with sampled_batcher(lambda: generator, batch_size=4, **options) as batches:
        assert len(list(batches)) == options.get("num_batches", 6)
        with pytest.raises(DataError, match=f"a function that returned {ONCE}"):
            list(batches)
    with sampled_batcher(lambda: iterator, batch_size=4) as batches:
        list(batches)
        with pytest.raises(DataError, match="is at its end; return a new one for each epoch"):
            list(batches)


def test_two_loops_do_not_share_a_generator():
    generator = records()
    first, second = (sampled_batcher(generator, batch_size=4, num_workers=0) for _ in range(2))
    with first, second:
        loop = iter(first)
        found = [numbers_of(next(loop))]
        with pytest.raises(DataError, match=ONCE):
            next(iter(second))
        assert found + [numbers_of(batch) for batch in loop] == chunks(range(COUNT))


def test_a_generator_that_another_thread_runs():
    is_running, may_end = threading.Event(), threading.Event()

    def run():
        is_running.set()
        may_end.wait(60)
        yield np.zeros(2)

    generator = run()
    thread = threading.Thread(target=next, args=(generator,))
    thread.start()
    assert is_running.wait(60)
    with (
        sampled_batcher(generator, batch_size=4) as batches,
        pytest.raises(DataError, match=r"record 0 .* ValueError: generator already executing"),
    ):
        next(iter(batches))
    may_end.set()
    thread.join(60)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_forked_process_reads_the_stream_from_its_own_beginning(workers):
    def read_in_child(pipe, batches, loop):
        try:
            pipe.send([numbers_of(batch) for batch in loop])
        except DataError as error:
            pipe.send(str(error))
        pipe.send([numbers_of(batch) for batch in batches])

    near, far = multiprocessing.Pipe()
    with sampled_batcher(records, batch_size=4, num_workers=workers, shuffle=5) as batches:
        [expected] = read(records, shuffle=5)
        loop = iter(batches)
        assert numbers_of(next(loop)) == expected[0]
        context = multiprocessing.get_context("fork")
        child = context.Process(target=read_in_child, args=(far, batches, loop))
        child.start()
        rest = [numbers_of(batch) for batch in loop]
        assert near.poll(60)
        in_child, again = near.recv(), near.recv()
        child.join(60)
    assert rest == expected[1:]
    if workers:
        assert "began in another process" in in_child
        assert again == expected
    else:
        assert in_child == rest
        assert sorted(flatten(again)) == [*range(COUNT)]  # of the next epoch


ODD = {
    "shape": (np.zeros(3), r"ShapeError: the result has shape \(3,\) .* most of the first batch"),
    "axes": (np.zeros((2, 2)), r"ShapeError: the result has shape \(2, 2\)"),
    "dtype": (np.zeros(2, "c8"), "complex64"),
    "refused": (None, ""),
    "without target": (np.zeros(2, np.float32), "only some records have a target"),
    "no target": ((np.zeros(2), None), "the label of an item is None"),
    "three values": ((np.zeros(2), 1, 2), "a tuple of 3 values; .*: yield one or two"),
    "fields": ({"image": 1, "mask": 2}, "has the fields image, mask; give collate= a dict"),
    "text": (("x.png", 1), "the result is text"),
}


@pytest.mark.parametrize("shuffle", [None, 7])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_record_is_dropped_with_its_number(name, shuffle):
    odd, text = ODD[name]

    def source():
        for number, record in enumerate(records()):
            yield odd if number == 13 else record

    dropped, rest = [], []
    with sampled_batcher(source, batch_size=4, shuffle=shuffle) as batches:
        for batch in batches:
            dropped += batch.dropped
            rest += numbers_of(batch)
    assert sorted(rest) == [number for number in range(COUNT) if number != 13]
    [(record, _, error)] = dropped
    assert record.position == 13
    assert error is None if not text else re.search(text, f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("options", [{}, {"shuffle": 5}, {"drop_last": True}, {"refill": True}])
@pytest.mark.parametrize("count", [3, 15, 16, 17])
def test_a_state_past_the_end_of_a_stream(count, options):
    with sampled_batcher(records, batch_size=4, **options) as batches:
        loop = iter(batches)
        for _ in range(4):
            next(loop)
        state = batches.state_dict()
    with sampled_batcher(lambda: records(count), batch_size=4, **options) as batches:
        batches.load_state_dict(state)
        if count < 16:
            last = count // 4 * 4 if options.get("drop_last") else count
            text = f"ended after {last} records, but the loop resumes after 16; it must yield the"
            with pytest.raises(DataError, match=text):
                list(batches)
        else:
            sizes = [batch.count for batch in batches]
            assert sum(sizes) == (0 if options.get("drop_last") else count - 16)


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ({"image": 1}, "record 5: DataError: the result has no mask"),
        (np.zeros(3), "record 5: DataError: the result is a numpy.ndarray, but collate= is a dict"),
    ],
)
def test_a_record_of_other_fields_is_an_error_with_its_number(odd, text):
    fields = {"image": np.zeros((4, 4, 3), np.uint8), "mask": np.ones((4, 4), np.uint8)}

    def source():
        for number in range(9):
            yield odd if number == 5 else fields

    collate = {"image": Collator("hwc->bhwc", h=4, w=4), "mask": Collator("hw->bhw", h=4, w=4)}
    with sampled_batcher(source, batch_size=3, collate=collate) as batches:
        first, second, third = list(batches)
    assert (first.count, second.count, third.count) == (3, 2, 3)
    [(record, position, _)] = second.dropped
    assert record.position == position == 5
    strict = sampled_batcher(source, batch_size=3, collate=collate, on_error="raise")
    with strict as batches, pytest.raises(DataError, match=text):
        list(batches)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sampler": "shuffle"}, r"a stream is read in its own order; .*shuffle=1000"),
        ({"sampler": [1, 2]}, "shuffle=1000"),
        ({"weights": {0: 1}}, "shuffle=1000|labels"),
        ({"shuffle": -1}, "shuffle=-1; it must be a whole number"),
        ({"shuffle": True}, "shuffle=True; it must be a whole number"),
        ({"cache": "ram"}, "cache= needs the number of records"),
    ],
)
def test_options_that_need_all_records(options, text):
    with pytest.raises(DataError, match=text):
        sampled_batcher(records, batch_size=4, **options)


def test_a_stream_is_the_only_source_and_the_only_one_with_a_buffer():
    with pytest.raises(DataError, match="is one of 2 sources"):
        sampled_batcher([records, np.zeros((9, 2))], batch_size=4, processor=np.add)
    with pytest.raises(TypeError, match='give sampler="shuffle"'):
        sampled_batcher({"x": np.zeros((9, 2))}, batch_size=4, shuffle=5)
    with pytest.raises(DataError, match="accepts a stream"):
        sampler("stream", 5)


def test_a_sampler_reads_a_stream():
    order = sampler("stream", open_index(records), batch_size=10)
    assert [record.position for record in order] == [*range(COUNT)]
    assert [len(batch) for batch in order.batches()] == [10, 10, 3]
    with pytest.raises(TypeError, match="has no length"):
        len(order)


def test_a_generator_is_closed_at_the_end_of_a_loop():
    closed = []

    def source():
        try:
            yield from records()
        finally:
            closed.append(True)

    with sampled_batcher(source, batch_size=4) as batches:
        for batch in batches:
            if batch.index[0] == 4:
                break
        del batch
        list(batches)
    assert closed == [True, True]


@pytest.mark.budget(0)
def test_memory_is_flat_over_many_records_and_epochs():
    def source():
        for i in range(2000):
            yield np.full(500, i, np.float64)

    with sampled_batcher(source, batch_size=50, shuffle=100, num_workers=0) as batches:
        peaks = []
        tracemalloc.start()
        for _ in range(20):
            tracemalloc.reset_peak()
            for _ in batches:
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 400 * 4000 + (1 << 20)
    assert max(peaks[10:]) < 1.2 * max(peaks[:10])


def test_records_of_a_socket_are_batches_as_soon_as_they_are_there():
    near, far = socket.socketpair()
    seen = threading.Semaphore(0)

    def send():
        for i in range(3):
            far.sendall(bytes(range(8 * i, 8 * i + 8)))
            assert seen.acquire(timeout=60)
        far.close()

    def receive():
        with near.makefile("rb") as file:
            while len(data := file.read(2)) == 2:
                yield np.frombuffer(data, np.uint8)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    found = []
    with sampled_batcher(receive, batch_size=4, prefetch=0) as batches:
        for batch in batches:
            found.append(numbers_of(batch))
            seen.release()
    near.close()
    thread.join(60)
    assert found == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18, 20, 22]]


def write_numbers(descriptor, extra):
    with os.fdopen(descriptor, "wb") as pipe:
        for i in range(50):
            pipe.write(np.full(3, i, "<f4").tobytes())
        pipe.write(bytes(extra))


def connect():
    """Return the descriptors of two connected sockets."""
    return [end.detach() for end in socket.socketpair()]


@pytest.mark.parametrize("extra", [0, 1, 11])
@pytest.mark.parametrize("open_ends", [os.pipe, connect])
def test_records_of_a_process_through_a_pipe(open_ends, extra):
    """A pipe that is closed in the middle of a record is an error after the batches before it."""
    read_end, write_end = open_ends()
    context = multiprocessing.get_context("fork")
    child = context.Process(target=write_numbers, args=(write_end, extra))
    child.start()
    os.close(write_end)

    def source():
        with os.fdopen(read_end, "rb") as pipe:
            while data := pipe.read(12):
                yield np.frombuffer(data, "<f4").reshape(3)

    found = []
    with sampled_batcher(source(), batch_size=10) as batches:
        if extra:
            with pytest.raises(DataError, match="record 50 of the stream could not be read: Value"):
                found += map(numbers_of, batches)
        else:
            found += map(numbers_of, batches)
    assert found == chunks(range(50), 10)
    child.join(60)
    assert child.exitcode == 0
