"""Orders: contents of an epoch, keyed permutations, and invalid arguments."""

import collections
import itertools
import math
import pickle
import random

import numpy as np
import pytest

import layoutkit.data
from layoutkit import DataError, LayoutkitError
from layoutkit._utils.random import draw_below, hash64, make_key, permute_index, unpermute_index
from layoutkit.data import Record, open_index, sampled_batcher, sampler
from layoutkit.data.samplers.orders import ChunkShuffle, SamplingPlan
from tests.helpers.children import python

ONCE = ["linear", "permutation", "batchwise_shuffled_sequential"]
EVEN = ["even_sequential", "even_shuffled_sequential", "even_batchwise_shuffled_sequential"]
NAMES = {
    "sequential": "linear",
    "shuffled_sequential": "permutation",
    "random_uniform": "uniform",
}


def positions(n):
    return np.arange(n, dtype=np.uint64)


def batches_of(order):
    return [batch.tolist() for batch in order.batches()]


def labelled(y):
    return open_index({"x": np.arange(len(y)), "y": y})


def is_even_spread(counts, weights=None):
    """Return True if chi-square of the counts is less than 5 standard deviations above its mean."""
    counts = np.asarray(counts, float)
    share = np.ones(len(counts)) if weights is None else np.asarray(weights, float)
    wanted = counts.sum() * share / share.sum()
    freedom = len(counts) - 1
    return ((counts - wanted) ** 2 / wanted).sum() < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.budget(1)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 60])
@pytest.mark.parametrize("width", [1, 2, 3, 50])
def test_chunk_shuffle_visits_the_chunks_of_a_window_once(rows, width):
    """Test all numbers of rows, so that the last chunk may be short, in any window."""
    for count in [*range(40), 1000]:
        for epoch in range(3):
            plan = SamplingPlan(
                "chunk-shuffle", "chunk_shuffle", 1, count, 4, None, None, None, False, False,
                (rows, width),
            )  # fmt: skip
            order = ChunkShuffle(plan, epoch)
            numbers = order.numbers_in(0, count)
            assert sorted(numbers.tolist()) == list(range(count))
            for place in range(0, min(count, 40), 13):
                assert order._compute(place, place + 1) == numbers[place]
            for chunk in range(-(-count // rows)):
                places = np.flatnonzero(numbers // rows == chunk)
                assert np.ptp(places) < rows * width


# ---- keyed numbers: a slow reference, written from the description --------------------------

MASK = 2**64 - 1


def slow_hash(key, position):
    x = (key + position * 0x9E3779B97F4A7C15) % 2**64
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % 2**64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def slow_permutation(key, position, n):
    """Permute by a Feistel network of twenty rounds on a rectangle, until the result is below n."""
    rows = (math.isqrt(n) + 1) // 2 * 2
    columns = math.ceil(n / rows)
    while True:
        row, column = divmod(position, columns)
        for turn in range(20):
            place = row if turn % 2 else column
            bits = slow_hash(slow_hash(key, turn), place) // 2**32
            if turn % 2:
                column = (column + bits * columns // 2**32) % columns
            else:
                row = (row + bits * rows // 2**32) % rows
        position = row * columns + column
        if position < n:
            return position


def test_the_hash_is_that_of_splitmix64():
    # The first numbers of the published generator for the state 0: its step comes first.
    wanted = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [hash64(0, position) for position in (1, 2, 3)] == wanted
    assert hash64(0, np.array([1, 2, 3], np.uint64)).tolist() == wanted


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100, 1000, 10**6, 10**12])
def test_the_permutation_is_that_of_the_slow_reference(n):
    some = sorted({0, n // 3, n // 2, n - 1})
    assert [permute_index(7, at, n) for at in some] == [slow_permutation(7, at, n) for at in some]


def test_orders_never_change_between_versions():
    key = int.from_bytes(
        __import__("hashlib").blake2b(b"permutation/5/2", digest_size=8).digest(), "little"
    )
    assert make_key("permutation", 5, 2) == key
    assert make_key("offset", "\udcff.tar") != make_key("offset", "\udcfe.tar")  # not UTF-8
    order = sampler("permutation", 10, seed=5, epoch=2)
    assert list(order) == [slow_permutation(key, at, 10) for at in range(10)]
    assert list(sampler("permutation", 10)) == [9, 2, 8, 3, 5, 4, 1, 0, 7, 6]
    pinned = {
        "uniform": [9, 6, 6, 8, 8, 7, 1, 4, 7, 0, 2, 5],
        "random_slice": [3, 4, 5, 6, 1, 2, 3, 4, 6, 7, 8, 9],
        "batchwise_shuffled_sequential": [8, 9, 0, 1, 2, 3, 4, 5, 6, 7],
    }
    for kind, numbers in pinned.items():
        assert list(sampler(kind, 10, batch_size=4)) == numbers


def test_draws_are_those_of_the_slow_reference_and_unbiased():
    n = 3 * 2**61  # a quarter of all hashes is drawn again
    key, again = 11, 0
    for position in range(200):
        bits = slow_hash(key, position)
        while bits < 2**64 % n:
            bits, again = slow_hash(key, bits), again + 1
        assert draw_below(key, position, n) == bits % n
    assert again > 20
    array = draw_below(key, positions(200), n)
    assert array.tolist() == [draw_below(key, at, n) for at in range(200)]
    assert is_even_spread(np.bincount(draw_below(1, positions(30_000), 7), minlength=7))


# ---- the permutation -----------------------------------------------------------------------


@pytest.mark.budget(0)
def test_a_permutation_takes_each_number_once_and_back():
    for n in (*range(601), 1023, 1024, 1025, 4999):
        moved = permute_index(n * 17, positions(n), n)
        assert sorted(moved.tolist()) == list(range(n)), n
        assert unpermute_index(n * 17, moved, n).tolist() == list(range(n)), n


def test_one_number_and_an_array_of_them_agree():
    for n in (5, 10**6, 10**12, 2**62, 2**63 - 1):
        some = [0, 1, n // 2, n - 1]
        moved = permute_index(9, np.array(some, np.uint64), n).tolist()
        assert moved == [permute_index(9, at, n) for at in some]
        assert max(moved) < n
        assert [unpermute_index(9, at, n) for at in moved] == some
        assert draw_below(9, np.array(some, np.uint64), n).tolist() == [
            draw_below(9, i, n) for i in some
        ]


def test_keys_and_lengths_can_be_arrays():
    keys, lengths = hash64(5, positions(50)), positions(50) % 9 + 1
    at = positions(50) % lengths
    wanted = [
        permute_index(*one)
        for one in zip(keys.tolist(), at.tolist(), lengths.tolist(), strict=True)
    ]
    assert permute_index(keys, at, lengths).tolist() == wanted


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_orders_of_a_few_come_equally_often(n):
    orders, keys = math.factorial(n), hash64(1, positions(50 * math.factorial(n)))
    moved = [permute_index(keys, np.full(len(keys), at, np.uint64), n) for at in range(n)]
    seen = collections.Counter(zip(*(numbers.tolist() for numbers in moved), strict=True))
    assert len(seen) == orders
    assert is_even_spread(list(seen.values()))


@pytest.mark.parametrize("n", [9, 100, 10**12])
def test_a_position_goes_anywhere_equally_often(n):
    for position in (0, n // 2, n - 1):
        keys = hash64(2, positions(4500))
        moved = permute_index(keys, np.full(len(keys), position, np.uint64), n)
        assert is_even_spread(np.bincount((moved * 9 // n).astype(int), minlength=9))


def test_neighbours_are_not_kept_together():
    moved = permute_index(3, positions(10_000), 10_000).astype(np.int64)
    assert np.count_nonzero(np.abs(np.diff(moved)) == 1) < 12  # 2 are expected by chance
    assert abs(np.corrcoef(moved[:-1], moved[1:])[0, 1]) < 0.04


def test_a_huge_one_starts_at_once():
    order = sampler("permutation", 10**12, batch_size=5)
    assert len(order) == 10**12
    first = next(iter(order.batches()))
    assert len(set(first.tolist())) == 5
    order.load_state_dict({**order.state_dict(), "position": 10**12 - 2})
    assert len(list(iter(order))) == 2


# ---- contents of an epoch -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*ONCE, *EVEN])
@pytest.mark.parametrize("b", [1, 2, 3, 4, 9, 10, 11])
@pytest.mark.parametrize("n", [0, 1, 9, 10])
def test_each_record_once_in_batches_of_the_right_sizes(kind, b, n):
    order = sampler(kind, n, batch_size=b, seed=b)
    for _ in range(3):
        length, number, unvisited = len(order), order.num_batches, order.unvisited
        batches = batches_of(order)
        flat = list(itertools.chain(*batches))
        assert len(set(flat)) == len(flat) == length == n - unvisited
        assert len(batches) == number == len(order.batches())
        sizes = sorted(map(len, batches), reverse=True)
        full = [b] * (n // b)
        assert sizes == full + ([n % b] if n % b and kind not in EVEN else [])
        if kind not in EVEN:
            assert sorted(flat) == list(range(n))
        if "batchwise" in kind:
            slices = [list(range(n))[at : at + b] for at in range(0, n, b)]
            assert all(batch in slices for batch in batches)
        elif kind != "even_batchwise_shuffled_sequential":
            assert all(len(batch) == b for batch in batches[:-1])


def test_linear_is_in_order():
    assert batches_of(sampler("linear", 10, batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(sampler("sequential", range(5))) == list(range(5))


def test_the_short_batch_may_come_anywhere():
    order = sampler("batchwise_shuffled_sequential", 10, batch_size=4)
    places = {[len(b) for b in order.batches()].index(2) for _ in range(60)}
    assert places == {0, 1, 2}


def test_even_kinds_are_the_others_less_what_fills_no_batch():
    for kind, even in zip(ONCE, EVEN, strict=True):
        for epoch in range(20):
            both = [batches_of(sampler(k, 11, batch_size=4, epoch=epoch)) for k in (kind, even)]
            assert [batch for batch in both[0] if len(batch) == 4] == both[1]


def test_random_slices_are_runs_of_neighbours():
    order = sampler("random_slice", 10, batch_size=4, num_batches=2000)
    batches = batches_of(order)
    assert len(batches) == 2000
    assert all(batch == list(range(batch[0], batch[0] + 4)) for batch in batches)
    assert is_even_spread(np.bincount([batch[0] for batch in batches], minlength=7))
    assert batches_of(sampler("random_slice", 4, batch_size=4)) == [[0, 1, 2, 3]]


def test_uniform_draws_are_even_and_independent():
    order = sampler("uniform", 5, batch_size=100, num_batches=100)
    numbers = list(order)
    assert is_even_spread(np.bincount(numbers))
    pairs = collections.Counter(itertools.pairwise(numbers))
    assert is_even_spread([pairs[pair] for pair in itertools.product(range(5), repeat=2)])


def test_drawing_kinds_without_an_end():
    for kind, index in (("uniform", 3), ("label-uniform", labelled([1, 2]))):
        order = sampler(kind, index)
        assert len(list(itertools.islice(order, 2000))) == 2000
        assert order.num_batches is None
        with pytest.raises(DataError, match="endless") as caught:
            len(order)
        assert isinstance(caught.value, TypeError)
    assert sampler("uniform", 10, batch_size=4).num_batches == 3
    assert len(sampler("uniform", 10, batch_size=4)) == 12
    assert sampler("uniform", 3, batch_size=7).num_batches == 1
    assert list(sampler("uniform", 3, batch_size=7, num_batches=0)) == []


@pytest.mark.parametrize("kind", ["permutation", "uniform", "batchwise_shuffled_sequential"])
def test_seeds_and_epochs_give_other_orders(kind):
    def order(**words):
        return tuple(sampler(kind, 1000, batch_size=10, **words))

    seen = {order(seed=seed, epoch=epoch) for seed in (-1, 0, 1, 2**80) for epoch in range(3)}
    assert len(seen) == 12
    assert order(seed=3) == order(seed=np.int64(3)) == order(seed=3)
    again = sampler(kind, 1000, batch_size=10, seed=1)
    assert (tuple(again), tuple(again)) == (order(seed=1), order(seed=1, epoch=1))


def test_no_global_random_state_is_read_or_moved():
    def all_orders():
        index = labelled([1, 2, 2, 3])
        for kind in ("permutation", "uniform", "random_slice", "label-permutation"):
            yield list(itertools.islice(sampler(kind, index, batch_size=2), 8))

    random.seed(1)
    np.random.seed(1)
    before, first = (random.getstate(), np.random.get_state()[1].tolist()), list(all_orders())
    assert before == (random.getstate(), np.random.get_state()[1].tolist())
    random.seed(2)
    np.random.seed(2)
    assert list(all_orders()) == first


PAIRS = [*NAMES.items(), *((kind, kind) for kind in [*ONCE, *EVEN, "uniform", "random_slice"])]


@pytest.mark.parametrize(("other", "kind"), PAIRS)
def test_other_names_and_both_separators_name_one_kind(other, kind):
    """Names with `-` and with `_`, and other names of a kind, give equal orders and states."""
    dashed = sampler(other.replace("_", "-"), 10, batch_size=3, seed=2)
    underscored = sampler(kind.replace("-", "_"), 10, batch_size=3, seed=2)
    assert batches_of(dashed) == batches_of(underscored)
    underscored.load_state_dict(dashed.state_dict())


def test_errors_list_names_with_dashes():
    with pytest.raises(DataError, match=r"'no_such'; there are sequential, [a-z, -]*$"):
        sampler("no_such", 3)


# ---- labels --------------------------------------------------------------------------------

Y = ["a"] * 1 + ["b"] * 3 + ["c"] * 8


def test_one_label_only():
    index = labelled(Y)
    for kind in ("linear", "sequential", "permutation", "shuffled_sequential"):
        order = sampler(kind, index, label="c", batch_size=3)
        assert sorted(r.position for r in order) == list(range(4, 12))
        assert (len(order), order.num_batches, order.unvisited) == (8, 3, 0)
    drawn_ = sampler("uniform", index, label="b", batch_size=3, num_batches=200)
    assert is_even_spread(np.bincount([r.position - 1 for r in drawn_]))
    here = open_index({"x": np.arange(12), "y": Y}, partition=1, partitions=12)
    assert list(sampler("linear", here, label="c")) == []
    with pytest.raises(DataError, match="nothing to draw from"):
        sampler("uniform", here, label="c")


def test_label_uniform_takes_labels_equally_often():
    order = sampler("label-uniform", labelled(Y), batch_size=100, num_batches=60)
    records = list(order)
    counts = collections.Counter(r.label for r in records)
    assert is_even_spread([counts[x] for x in "abc"])
    rows = collections.Counter(r.position for r in records if r.label == "c")
    assert is_even_spread([rows[i] for i in range(4, 12)])


def test_label_distribution_takes_labels_by_weight():
    weights = {"a": 1, "b": 0, "c": 3.0}
    order = sampler("label-distribution", labelled(Y), weights=weights, batch_size=40_000)
    counts = collections.Counter(r.label for r in order)
    assert counts["b"] == 0
    assert is_even_spread([counts["a"], counts["c"]], [1, 3])


def test_weights_of_a_defaultdict_are_only_read():
    weights = collections.defaultdict(lambda: 1, {"a": 0})
    order = sampler("label-distribution", labelled(Y), weights=weights, batch_size=200)
    assert {r.label for r in order} == {"b", "c"}
    assert dict(weights) == {"a": 0}


def test_label_permutation_takes_every_label_once_in_a_cycle():
    order = sampler("label-permutation", labelled(Y), batch_size=3, num_batches=48)
    records = list(order)
    cycles = [records[at : at + 3] for at in range(0, 144, 3)]
    assert all(sorted(r.label for r in cycle) == ["a", "b", "c"] for cycle in cycles)
    assert len({tuple(r.label for r in cycle) for cycle in cycles}) == 6
    for label, count in (("a", 1), ("b", 3), ("c", 8)):
        rows = [r.position for r in records if r.label == label]
        laps = [rows[at : at + count] for at in range(0, 48, count)]
        assert all(len(set(lap)) == count for lap in laps)
        assert len({tuple(lap) for lap in laps}) > 1 or label == "a"


@pytest.mark.parametrize("kind", ["label-uniform", "label-permutation", "label-distribution"])
def test_labels_that_are_empty_in_this_partition_are_left_out(kind):
    weights = dict.fromkeys("abc", 1) if kind == "label-distribution" else None
    whole = {"x": np.arange(12), "y": Y}
    index = open_index(whole, partition=1, partitions=4)  # records 1, 5 and 9: b, c, c
    order = sampler(kind, index, weights=weights, batch_size=100)
    assert {r.label for r in order} == {"b", "c"}
    empty = open_index(whole, partition=12, partitions=13)
    with pytest.raises(DataError, match="nothing to draw from"):
        sampler(kind, empty, weights=weights)


def test_only_weights_of_labels_that_are_here_count():
    index = open_index({"x": np.arange(12), "y": Y}, partition=1, partitions=4)
    with pytest.raises(DataError, match="nothing to draw from"):
        sampler("label-distribution", index, weights={"a": 1, "b": 0, "c": 0})


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (None, "needs weights"),
        ([1, 2, 3], "weights has 3 numbers, but there are 12 records"),
        ({"a": 1, "b": 1}, "no weight for label 'c'"),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "weights has 'd'"),
        ({"a": 0, "b": 0, "c": 0}, "every weight is 0"),
        ({"a": -1, "b": 1, "c": 1}, "the weight of 'a' is -1"),
        ({"a": math.nan, "b": 1, "c": 1}, "the weight of 'a' is nan"),
        ({"a": 1, "b": math.inf, "c": 1}, "the weight of 'b' is inf"),
        ({"a": 1, "b": "1", "c": 1}, "the weight of 'b' is '1'"),
    ],
)
def test_wrong_weights(weights, says):
    with pytest.raises(DataError, match=says):
        sampler("label-distribution", labelled(Y), weights=weights)


# ---- sequences -----------------------------------------------------------------------------


def test_even_sequences_have_one_length_in_a_batch():
    sequences = [[0] * length for length in (1, 1, 1, 1, 1, 4, 4, 2, 2, 2)]
    order = sampler("even_sequences", sequences, batch_size=2)
    first_lengths, epochs = set(), set()
    for _ in range(40):
        batches = batches_of(order)
        lengths = [{len(sequences[i]) for i in batch} for batch in batches]
        assert all(len(each) == 1 for each in lengths)
        assert sorted(itertools.chain(*batches)) == list(range(10))
        turns = [next(iter(each)) for each in lengths]
        assert sorted(turns[:3]) == [1, 2, 4]  # the lengths take turns
        assert turns[3:] == [x for x in turns[:3] if x != 4] + [1]
        first_lengths.add(turns[0])
        epochs.add(str(batches))
    assert first_lengths == {1, 2, 4}
    assert len(epochs) == 40
    assert (len(order), order.num_batches, order.unvisited) == (10, 6, 0)
    few = sampler("even_sequences", sequences, batch_size=2, num_batches=2)
    assert len(batches_of(few)) == 2
    assert list(sampler("even_sequences", [], batch_size=2)) == []


def test_even_sequences_of_an_index(tmp_path):
    path = tmp_path / "i.csv"
    path.write_text("filename,length\na,3\nb,5\nc,3\n")
    order = sampler("even_sequences", open_index(path), batch_size=2)
    assert sorted(tuple(r.length for r in batch) for batch in order.batches()) == [(3, 3), (5,)]
    path.write_text("filename,length\na,3\nb,\n")
    with pytest.raises(DataError, match="record 1 has none"):
        sampler("even_sequences", open_index(path), batch_size=2)
    of_arrays = sampler("even_sequences", open_index(np.zeros((3, 2))), batch_size=2)
    assert sorted(len(batch) for batch in of_arrays.batches()) == [1, 2]


# ---- sampled records, and the number of batches ----------------------------------------------


def test_an_index_gives_records_and_a_length_gives_numbers():
    index = labelled(Y)
    order = sampler("permutation", index, batch_size=5)
    assert all(isinstance(r, Record) for r in order)
    assert all(isinstance(batch, list) for batch in order.batches())
    numbers = sampler("permutation", np.zeros((12, 2)), batch_size=5)
    assert all(type(i) is int for i in numbers)
    assert next(iter(numbers.batches())).dtype == np.int64
    order.set_epoch(0), numbers.set_epoch(0)
    assert [r.position for r in order] == list(numbers)


def test_batches_are_the_callers():
    order = sampler("permutation", 10, batch_size=5)
    whole = list(sampler("permutation", 10))
    for batch in order.batches():
        batch[:] = -1
    order.set_epoch(0)
    assert [i for batch in order.batches() for i in batch.tolist()] == whole


@pytest.mark.parametrize(
    ("kind", "n", "m", "sizes"),
    [
        ("linear", 10, 3, [4, 4, 2]),
        ("permutation", 10, 5, [2] * 5),
        ("even_sequential", 10, 3, [3, 3, 3]),
        ("even_sequential", 10, 7, [1] * 7),
        ("linear", 10, 0, []),
        ("batchwise_shuffled_sequential", 9, 3, [3, 3, 3]),
    ],
)
def test_the_number_of_batches_alone(kind, n, m, sizes):
    order = sampler(kind, n, num_batches=m)
    assert [len(batch) for batch in order.batches()] == sizes
    assert (order.num_batches, order.unvisited) == (m, n - sum(sizes))


@pytest.mark.parametrize("kind", [*ONCE, *EVEN])
def test_fewer_batches_stop_early(kind):
    whole = batches_of(sampler(kind, 11, batch_size=2, seed=1))
    for m in range(len(whole) + 1):
        order = sampler(kind, 11, batch_size=2, num_batches=m, seed=1)
        visited = sum(map(len, whole[:m]))
        assert (len(order), order.num_batches, order.unvisited) == (visited, m, 11 - visited)
        assert batches_of(order) == whole[:m]
        order.set_epoch(0)
        assert list(order) == list(itertools.chain(*whole[:m]))
    with pytest.raises(DataError, match=f"can give {len(whole)} batches of 2"):
        sampler(kind, 11, batch_size=2, num_batches=len(whole) + 1)


@pytest.mark.parametrize(
    ("kind", "n", "words", "says"),
    [
        ("linear", 10, {"num_batches": 7}, "can give 5 batches of 2"),
        ("linear", 10, {"batch_size": 0}, "batch_size=0"),
        ("linear", 10, {"batch_size": 2.0}, r"batch_size=2\.0"),
        ("linear", 10, {"batch_size": True}, "batch_size=True"),
        ("linear", 10, {"batch_size": 2**64}, "at most"),
        ("linear", 10, {"batch_size": 2, "num_batches": -1}, "num_batches=-1"),
        ("linear", 10, {"epoch": -1}, "epoch=-1"),
        ("linear", 10, {"seed": 0.5}, r"seed=0\.5"),
        ("linear", -1, {}, "-1"),
        ("linear", 2**63, {}, "at most"),
        ("linear", None, {}, "None is neither an Index"),
        ("linear", 10, {"label": 1}, "needs an Index"),
        ("linear", 10, {"weights": {}}, "weights mean nothing for linear"),
        ("even_sequential", 10, {"label": 1}, "label=1 means nothing for even-sequential"),
        ("label-uniform", 10, {}, "needs an Index with labels"),
        ("uniform", 10, {"num_batches": 2}, "needs a batch_size"),
        ("uniform", 0, {}, "nothing to draw from"),
        ("uniform", 10, {"batch_size": 2**40, "num_batches": 2**40}, "at most"),
        ("random_slice", 3, {"batch_size": 4}, "batch_size=4, but there are 3"),
        ("random_slice", 3, {}, "needs a batch_size"),
        ("batchwise_shuffled_sequential", 3, {}, "needs a batch_size"),
        ("even_sequential", 3, {}, "needs a batch_size"),
        ("even_sequences", 3, {"batch_size": 1}, "needs sequences"),
        ("even_sequences", [1, 2], {"batch_size": 1}, "item 0 is not a sequence"),
        ("part-linear", 3, {}, "accepts part files only"),
        (
            "Linear",
            3,
            {},
            "no sampler is called 'Linear'; did you mean 'linear'\\? There are sequential",
        ),
        (None, 3, {}, "is None; give the name of an order"),
    ],
)
def test_what_cannot_be_asked_for(kind, n, words, says):
    with pytest.raises(DataError, match=says):
        sampler(kind, n, **words)


def test_more_of_that():
    with pytest.raises(DataError, match="this tensor index has none"):
        sampler("label-uniform", open_index(np.zeros(3)))
    with pytest.raises(DataError, match="no label 'd'"):
        sampler("linear", labelled(Y), label="d")
    with pytest.raises(DataError, match="needs a batch_size"):
        sampler("permutation", 3).batches()
    with pytest.raises(TypeError):
        sampler("linear", 3, shuffle=True)


@pytest.mark.parametrize("kind", ["linear", "uniform", "label-uniform"])
def test_part_files_take_no_other_kind(tmp_path, kind):
    (tmp_path / "part").touch()
    with pytest.raises(DataError, match="does not accept part files"):
        sampler(kind, open_index(tmp_path, kind="parts"))


# ---- imports --------------------------------------------------------------------------------


def test_names_are_loaded_when_they_are_named():
    loaded = python(
        "import sys, layoutkit\n"
        "before = 'layoutkit.data' in sys.modules\n"
        "import layoutkit.data\n"
        "print(before, [name for name in sys.modules if name.startswith('layoutkit.data.')])\n"
        "layoutkit.data.sampler, layoutkit.data.open_index\n"
        "print([n for n in ('fsspec', 'safetensors', 'torch', 'numba') if n in sys.modules])\n"
    )
    assert loaded.split("\n") == ["False []", "[]", ""]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        layoutkit.data.nothing  # noqa: B018
    assert {"Index", "Record", "sampler"} <= set(dir(layoutkit.data))


# ---- any position without the positions before it --------------------------------------------


@pytest.mark.parametrize("kind", [*ONCE, *EVEN, "uniform", "random_slice"])
def test_an_order_gives_any_place(kind):
    made = sampler(kind, 2000, batch_size=300, seed=2)
    order, whole = made.order(0), list(made)
    for place in (0, 1, 299, 300, 511, 512, 513, 1500, len(whole) - 1, 3):
        assert order.at(place) == whole[place]
    for start, stop in ((0, 5), (3, 3), (5, 3), (500, 530), (1, 1500), (1790, 5000), (5000, 6000)):
        assert order.between(start, stop).tolist() == whole[start:stop]
    made.set_epoch(0)
    place = 0
    for batch in made.batches():
        assert all(order.cut(place + i) == place + len(batch) for i in range(len(batch)))
        place += len(batch)


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "f2", "f4", "f8", "g"])
def test_weights_of_any_dtype_are_as_python_numbers(dtype):
    index = labelled(["a", "b", "c"])
    given = {"batch_size": 60, "seed": 3}
    weights = dict(zip("abc", np.array([200, 100, 1], dtype), strict=True))
    plain = {label: int(weight) for label, weight in weights.items()}
    expected = list(sampler("label-distribution", index, weights=plain, **given))
    assert list(sampler("label-distribution", index, weights=weights, **given)) == expected


@pytest.mark.parametrize("huge", [10**400, np.int64(2**62)])
def test_huge_weights(huge):
    weights = {"a": huge, "b": huge, "c": 0}
    order = sampler("label-distribution", labelled(["a", "b", "c"]), weights=weights, batch_size=64)
    assert {record.label for record in order} == {"a", "b"}


def test_a_bool_is_no_seed():
    with pytest.raises(DataError, match="seed=True; it must be a whole number"):
        sampler("permutation", 5, seed=True)


@pytest.mark.parametrize("unordered", [{1, 2}, {"a": [1]}])
def test_even_sequences_of_what_has_no_order(unordered):
    with pytest.raises(DataError, match="give a list"):
        sampler("even_sequences", unordered, batch_size=2)


# ---- functions of (count, seed, epoch) -------------------------------------------------------


def rotate(count, seed, epoch):
    """Return all positions, from another one on in each epoch."""
    return np.roll(np.arange(count), -seed - epoch)


def draw_twice(count, seed, epoch):
    return [*range(count)] * 2


def test_a_function_is_an_order_of_each_epoch():
    order = sampler(rotate, 5, batch_size=2, seed=1)
    assert [list(order), [batch.tolist() for batch in order.batches()]] == [
        [1, 2, 3, 4, 0],
        [[2, 3], [4, 0], [1]],
    ]
    assert (order.epoch, order.num_batches, order.unvisited) == (2, 3, 0)
    assert list(pickle.loads(pickle.dumps(order))) == [3, 4, 0, 1, 2]
    assert sampler(draw_twice, 3, batch_size=4).num_batches == 2
    assert sampler(draw_twice, 3).unvisited == 0


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loop_in_the_order_of_a_function_resumes(drop_last):
    def open_batches(seed=2):
        return sampled_batcher(
            {"x": np.arange(7.0)}, batch_size=2, sampler=rotate, seed=seed, drop_last=drop_last
        )

    with open_batches() as batches:
        epochs = [[b.input.input.tolist() for b in batches] for _ in range(2)]
        assert epochs[1][:2] == [[3, 4], [5, 6]]
        assert [len(batch) for batch in epochs[0]] == [2, 2, 2] + [1] * (not drop_last)
    with open_batches() as batches:
        for _, __ in zip(range(2), batches, strict=False):
            state = batches.state_dict()
    assert state["kind"].endswith("test_samplers:rotate")
    with open_batches() as batches:
        batches.load_state_dict(state)
        assert [b.input.input.tolist() for b in batches] == epochs[0][2:]
    with open_batches(seed=3) as batches, pytest.raises(DataError, match="seed"):
        batches.load_state_dict(state)


WRONG_FUNCTIONS = [
    (lambda count, seed, epoch: [7], "index 7 at position 0 is out of range: there are 5 records"),
    (lambda count, seed, epoch: "abc", "give one list or array of whole numbers"),
    (lambda count: [0], "sampler= is not a function of .count, seed, epoch.*too many positional"),
]


@pytest.mark.parametrize(("function", "says"), WRONG_FUNCTIONS)
def test_a_function_that_returns_no_positions(function, says):
    with pytest.raises(LayoutkitError, match=says):
        list(sampler(function, 5))
