"""Common behavior of all file providers: parts, tails, orders, states, keywords, threads."""

import json
import logging
import pickle
import threading
from itertools import chain

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import CSVProvider, MNISTProvider

N = 61


@pytest.fixture(params=["csv", "idx"])
def make(request, tmp_path):
    """Return a function that makes providers in which row n is n, with the label n + 100."""
    numbers = np.arange(N)
    if request.param == "csv":
        for name, values in (("x", numbers), ("y", numbers + 100)):
            (tmp_path / name).write_text("".join(f"{value}\n" for value in values))

        def made(**how):
            kept = {"batch_size": 4, "label_csv": tmp_path / "y", **how}
            return CSVProvider(tmp_path / "x", (), **kept)

        return made
    head = bytes.fromhex("0000080100000000")[:7] + bytes([N])
    for name, values in (("x", numbers), ("y", numbers + 100)):
        (tmp_path / name).write_bytes(head + values.astype(np.uint8).tobytes())
    files = tmp_path / "x", tmp_path / "y"
    plain = {"batch_size": 4, "shuffle": False, "scale": None}
    return lambda **how: MNISTProvider(*files, **(plain | how))


def numbers(batches):
    """Return the numbers of the rows that are not padding; check their labels."""
    found = []
    for batch in batches:
        data, label = (view.input[: batch.count].tolist() for view in (batch.input, batch.target))
        assert label == [value + 100 for value in data]
        found += data
    return found


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 7, 70])
def test_parts_differ_by_one_at_most_and_none_is_lost(make, parts, shuffle):
    found = [
        numbers(make(part_index=part, num_parts=parts, shuffle=shuffle)) for part in range(parts)
    ]
    assert sorted(chain(*found)) == list(range(N))
    assert {len(part) for part in found} <= {N // parts, N // parts + 1}


def test_parts_have_orders_of_their_own(make):
    first, second = (make(part_index=p, num_parts=2, shuffle=True) for p in (0, 1))
    assert [n // 2 for n in numbers(first)][:30] != [n // 2 for n in numbers(second)]


@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
@pytest.mark.parametrize("size", [1, 4, 60, 61, 62, 130])
def test_tails(make, tail, size):
    provider = make(batch_size=size, tail=tail)
    for _ in range(2):  # every epoch begins at its first row
        batches = list(provider)
        kept = N // size * size if tail == "drop" else N
        assert numbers(batches) == list(range(kept))
        assert (len(batches), provider.unvisited) == (provider.num_batches, N - kept)
        assert {len(batch.input) for batch in batches} <= {size}
        if tail != "drop":
            filling = batches[-1].input.input[batches[-1].count :].tolist()
            wanted = [n % N if tail == "wrap" else 0 for n in range(len(filling))]
            assert filling == wanted
    assert provider.dropped == 0


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_states_resume_to_the_bit(make, shuffle, prefetch):
    how = {"shuffle": shuffle, "seed": 5, "tail": "wrap", "part_index": 1, "num_parts": 2}
    provider = make(prefetch=prefetch, **how)
    list(provider)
    for taken in (0, 1, 5, provider.num_batches):
        loop = iter(provider)
        for _ in range(taken):
            next(loop)
        state = json.loads(json.dumps(provider.state_dict()))
        other = make(**how)
        other.load_state_dict(state)
        rest = [batch.input.input.tolist() for batch in loop]
        assert [batch.input.input.tolist() for batch in other] == rest
        provider.set_epoch(1)


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"batch_size": 5}, {"tail": "drop"}, {"num_parts": 2}, {"shuffle": True}]
)
def test_states_of_others_are_refused(make, other):
    provider = make()
    next(iter(provider))
    with pytest.raises(DataError, match="of another"):
        make(**other).load_state_dict(provider.state_dict())


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_never_overwritten(make, shuffle):
    provider = make(shuffle=shuffle, prefetch=2)
    held = [list(provider) for _ in range(3)]
    assert all(sorted(numbers(epoch)) == list(range(N)) for epoch in held)


def test_load_into_slices(make):
    provider = make(tail="pad")
    batch = list(provider)[-1]
    left, right, label = np.zeros(1), np.zeros(3), np.zeros(4)
    provider.load_data(batch, [[(slice(0, 1), left), (slice(1, 4), right)]])
    provider.load_label(batch, [label])
    assert (left.tolist(), right.tolist(), label.tolist()) == ([60], [0] * 3, [160, 0, 0, 0])


# ---- loops and files ---------------------------------------------------------------------


def test_close_is_for_good_and_ends_threads(make):
    with make(prefetch=2) as provider:
        loop = iter(provider)
        next(loop)
        assert any("layoutkit-data" in thread.name for thread in threading.enumerate())
    assert not any("layoutkit-data" in thread.name for thread in threading.enumerate())
    with pytest.raises(DataError, match="is over"):
        next(loop)
    with pytest.raises(DataError, match="is closed; make a new one"):
        iter(provider)
    provider.close()


def test_a_peek_costs_nothing_and_reset_goes_back(make):
    provider = make(prefetch=1)
    next(iter(provider))
    assert numbers(provider) == list(range(N))
    loop = iter(provider)
    next(loop)
    provider.reset()
    assert provider.epoch == 1
    assert numbers(provider) == list(range(N))


def test_pickles_go_on(make):
    provider = make(shuffle=True)
    loop = iter(provider)
    next(loop)
    copy = pickle.loads(pickle.dumps(provider))
    copy.load_state_dict(provider.state_dict())
    assert numbers(copy) == numbers(loop)


# ---- keywords ----------------------------------------------------------------------------


def test_the_keywords_of_mxnet(make):
    assert list(make(round_batch=True))[-1].input.input.tolist() == [60, 0, 1, 2]
    assert list(make(round_batch=False))[-1].input.input.tolist() == [60, 0, 0, 0]
    assert numbers(make(prefetch_buffer=4)) == list(range(N))
    make(round_batch=True, tail="wrap", silent=True, verbose=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batchsize": 3}, r"Provider has no batchsize=; did you mean batch_size=\?"),
        ({"round_batches": True}, r"no round_batches=; did you mean round_batch=\?"),
        ({"suffle": True}, r"no suffle=; did you mean shuffle=\?"),
        ({"preprocess_threads": 4}, "no preprocess_threads="),
    ],
)
def test_an_unknown_keyword_names_the_nearest(make, wrong, message):
    with pytest.raises(TypeError, match=message):
        make(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"round_batch": False, "tail": "wrap"}, "tail='wrap' and round_batch=False contradict"),
        ({"prefetch": 1, "prefetch_buffer": 4}, "prefetch=1 and prefetch_buffer=4 contradict"),
        ({"silent": True, "verbose": True}, "silent=True and verbose=True contradict"),
        ({"round_batch": 1}, "round_batch=1; it must be True or False"),
        ({"silent": None}, "silent=None; it must be True or False"),
        ({"tail": "padding"}, "tail is 'padding'"),
        ({"part_index": 2, "num_parts": 2}, "part_index=2; with num_parts=2 the last part is 1"),
        ({"num_parts": 0}, "num_parts=0; it must be a whole number of at least 1"),
        ({"label_name": 3}, "label_name=3; a name must be a str"),
        ({"data_name": "y", "label_name": "y"}, "'y' is both data and label"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"shuffle": "yes"}, "shuffle='yes'"),
    ],
)
def test_wrong_values_are_refused_at_once(make, wrong, message):
    with pytest.raises(DataError, match=message):
        make(**wrong)


def test_silent_and_verbose_are_whether_a_line_is_logged(make, caplog):
    with caplog.at_level(logging.INFO, "layoutkit.data"):
        make(silent=True)
        make(verbose=False)
        assert not caplog.messages
        make(num_parts=2)
    (line,) = caplog.messages
    assert "61" in line
    assert "31 of them here" in line
