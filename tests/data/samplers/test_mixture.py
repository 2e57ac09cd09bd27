"""Mixtures of sources: shares, ends of sources, shards, states, and sources that do not fit."""

import functools
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutkit import Collator, DataError
from layoutkit.data import Ragged, mix, open_index, sampled_batcher, sampler
from layoutkit.data.sources.base import SelectedIndex

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=4)
WEIGHTS = st.one_of(st.integers(1, 9), st.floats(0.01, 9), st.fractions(Fraction(1, 50), 9))


def sources_of(sizes):
    """Return arrays of numbers: source k has k * 1000, k * 1000 + 1, ..."""
    return [np.arange(size) + 1000 * k for k, size in enumerate(sizes)]


def write_image(path, seed):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 30, 3), np.uint8)
    image.fromarray(pixels).save(path)


def mixture_of(sizes, weights, on_end="stop"):
    return mix([*zip(sources_of(sizes), weights, strict=True)], on_end=on_end)


def values_of(mixture, kind="sequential", **options):
    return [int(record.array) for record in sampler(kind, mixture, **options)]


def batches_of(mixture, **options):
    with sampled_batcher(mixture, **{"batch_size": 4, "num_workers": 0, **options}) as batches:
        return [batch.input.input.tolist() for batch in batches]


def slow_order(sizes, weights, on_end):
    """Return the values of a sequential epoch, one after the other."""
    weights = [*weights]
    taken, phase = [0] * len(sizes), [0] * len(sizes)
    values = []

    def divide(count):
        numbers, rest, total = [], count, sum(weights)
        for weight in weights:
            numbers.append((2 * rest * weight + total) // (2 * total) if weight else 0)
            rest, total = rest - numbers[-1], total - weight
        return numbers

    while on_end != "repeat" or any(map(int.__lt__, taken, sizes)):
        after = divide(sum(phase) + 1)
        source = next(k for k in range(len(sizes)) if after[k] > phase[k])
        if on_end != "repeat" and taken[source] == sizes[source]:
            if on_end == "stop":
                break
            weights = [w * (n < size) for w, n, size in zip(weights, taken, sizes, strict=True)]
            phase = [0] * len(sizes)
            if not any(weights):
                break
            continue
        values.append(1000 * source + taken[source] % sizes[source])
        taken[source] += 1
        phase[source] += 1
    return values


@settings(max_examples=50, deadline=None)
@given(st.data(), SIZES, st.sampled_from(["stop", "repeat", "drop"]))
def test_the_order_is_that_of_a_slow_reference(data, sizes, on_end):
    weights = [data.draw(WEIGHTS) for _ in sizes]
    mixture = mixture_of(sizes, weights, on_end)
    expected = slow_order(sizes, mixture.shares, on_end)
    order = sampler("sequential", mixture, batch_size=1)
    assert [int(record.array) for record in order] == expected
    assert len(order) == len(expected)
    if on_end == "drop":
        assert sorted(expected) == sorted(np.concatenate(sources_of(sizes)).tolist())


@settings(max_examples=50, deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=6), st.integers(0, 10**12))
def test_shares_are_exact_in_the_long_run(weights, start):
    mixture = mixture_of([3] * len(weights), weights, "repeat")
    order = sampler("shuffle", mixture, batch_size=1, num_batches=10**15).order(0)
    sources, numbers = order.plan.material.locate(np.arange(start, start + 50, dtype=np.uint64))
    exact = [Fraction(repr(w)) if isinstance(w, float) else Fraction(w) for w in weights]
    for position, source, number in zip(range(50), sources.tolist(), numbers.tolist(), strict=True):
        share = exact[source] / sum(exact)
        rounded = sum(mixture.shares) != sum(exact) * mixture.shares[0] / exact[0]
        drift = Fraction(start + 50, 2**30) * rounded
        assert abs(number - (start + position) * share) <= Fraction(len(weights), 2) + drift + 1


def test_shuffled_sources_repeat_in_another_order():
    mixture = mixture_of([4, 20], [1, 1], "repeat")
    first, second = (values_of(mixture, "shuffle", seed=2, epoch=e, batch_size=40) for e in (0, 1))
    assert first != second
    laps = np.array([value for value in first if value < 1000][:20]).reshape(5, 4)
    assert (np.sort(laps, 1) == np.arange(4)).all()
    assert len({tuple(lap) for lap in laps.tolist()}) > 1
    assert sorted({value for value in first if value >= 1000}) == list(range(1000, 1020))


def test_epochs_that_repeat_have_any_number_of_batches():
    mixture = mixture_of([3, 5], [0.5, 0.5], "repeat")
    assert len(batches_of(mixture)) == 3  # all have ended once, rounded up to full batches
    assert [len(batch) for batch in batches_of(mixture, num_batches=50)] == [4] * 50
    with pytest.raises(DataError, match="can give 2 batches"):
        batches_of(mixture_of([3, 5], [0.5, 0.5]), num_batches=3)


def test_full_batches_only():
    mixture = mixture_of([5, 5], [1, 1])
    assert [len(batch) for batch in batches_of(mixture, drop_last=True)] == [4, 4]
    assert [len(batch) for batch in batches_of(mixture)] == [4, 4, 2]


@pytest.mark.parametrize("on_end", ["stop", "repeat", "drop"])
@pytest.mark.parametrize("kind", ["sequential", "shuffle"])
def test_ranks_and_threads_read_one_order(on_end, kind):
    mixture = mixture_of([12, 5, 30], [3, 1, 2], on_end)
    whole = [x for batch in batches_of(mixture, sampler=kind) for x in batch]
    assert batches_of(mixture, sampler=kind, num_workers=3, prefetch=4) == batches_of(
        mixture, sampler=kind
    )
    for world in (2, 3):
        ranks = [
            batches_of(mixture, sampler=kind, batch_size=2, shard=(rank, world))
            for rank in range(world)
        ]
        steps = zip(*ranks, strict=True)
        shared = [x for step in steps for batch in step for x in batch]
        common = min(len(shared), len(whole))
        assert shared[:common] == whole[:common]
        assert len(whole) - len(shared) < world or on_end == "repeat"


@pytest.mark.parametrize("on_end", ["stop", "repeat", "drop"])
def test_resume_from_every_batch(on_end):
    mixture = functools.partial(mixture_of, [6, 3, 8], [3, 1, 2], on_end)

    def make(index):
        return sampled_batcher(index, batch_size=3, sampler="shuffle", seed=4, num_workers=0)

    with make(mixture()) as batches:
        states, values = [batches.state_dict()], []
        for _ in range(2):
            for batch in batches:
                values.append(batch.input.input.tolist())
                states.append(batches.state_dict())
    for number, state in enumerate(states[:-1]):
        with make(mixture()) as batches:
            batches.load_state_dict(state)
            rest = [batch.input.input.tolist() for _ in range(2) for batch in batches]
            count = min(3, len(values) - number)
            assert rest[:count] == values[number : number + count]


def test_a_state_of_another_mixture():
    with sampled_batcher(mixture_of([6, 3], [3, 1]), batch_size=2, num_workers=0) as batches:
        loop = iter(batches)
        next(loop)
        state = batches.state_dict()
    for other in (
        mixture_of([6, 3], [3, 2]),
        mixture_of([6, 3], [3, 1], "drop"),
        mix([(open_index(np.arange(12))[::2], 3), (np.arange(3), 1)]),
    ):
        with (
            sampled_batcher(other, batch_size=2, num_workers=0) as batches,
            pytest.raises(DataError, match="mixture"),
        ):
            batches.load_state_dict(state)


def test_labels_targets_and_records():
    labeled = [{"x": np.arange(4), "y": list("abba")}, {"x": np.arange(2), "y": list("ba")}]
    mixture = mix([(source, 1) for source in labeled], on_end="drop")
    with sampled_batcher(mixture, batch_size=6) as batches:
        for batch in batches:
            assert batch.label == [mixture[record.position].label for record in batch.item]
            assert batch.target.input.tolist() == ["ab".index(label) for label in batch.label]
    with_targets = [
        {"x": np.arange(4), "y": np.eye(4, 2)},
        {"x": np.arange(2), "y": np.ones((2, 2))},
    ]
    mixture = mix([(source, 1) for source in with_targets], on_end="drop")
    expected = np.concatenate([source["y"] for source in with_targets])
    with sampled_batcher(mixture, batch_size=3, sampler="shuffle") as batches:
        for batch in batches:
            numbers = [record.position for record in batch.item]
            assert np.array_equal(batch.target.input, expected[numbers])


@pytest.mark.parametrize("kind", ["rows", "windows", "ragged", "other sizes"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_records_of_one_source_are_read_together(kind, workers, monkeypatch):
    arrays = [np.arange(n * 60).reshape(n, 5, 4, 3).astype(np.uint8) for n in (9, 6)]
    if kind == "other sizes":
        arrays[1] = arrays[1].reshape(6, 4, 5, 3)
    crops = Collator("hwc->bchw", h=3, w=2, offset="random")
    collate = {"rows": None, "ragged": "ragged"}.get(kind, crops)
    options = {"batch_size": 4, "sampler": "shuffle", "collate": collate, "num_workers": workers}
    options["layout"] = "bhwc" if kind == "rows" else None

    def read(**more):
        sources = [(open_index(array)[::-1], len(array)) for array in arrays]
        with sampled_batcher(mix(sources, on_end="drop"), **options, **more) as batches:
            inputs = [batch.input for batch in batches]
        get = (lambda x: x.data) if kind == "ragged" else (lambda x: x.forward_get("bchw"))
        return [*map(get, inputs)]

    one_by_one = read(processor=np.copy)
    singles, sizes = [], []
    name = "records" if kind == "other sizes" else "rows"
    one, many = SelectedIndex.record, getattr(SelectedIndex, name)
    monkeypatch.setattr(SelectedIndex, "record", lambda x, n: singles.append(n) or one(x, n))
    monkeypatch.setattr(SelectedIndex, name, lambda x, n: sizes.append(len(n)) or many(x, n))
    for batch, expected in zip(read(), one_by_one, strict=True):
        assert np.array_equal(batch, expected)
    assert len(singles) <= 1  # the first record is looked at before the loop
    assert workers or max(sizes) > 1  # threads may read single records


def test_items_and_their_targets():
    class Squares:
        def __init__(self, first):
            self.first = first

        def __len__(self):
            return 5

        def __getitem__(self, i):
            return np.float32([self.first + i]), (self.first + i) ** 2

    mixture = mix([(Squares(0), 1), (Squares(10), 1)], on_end="drop")
    with sampled_batcher(mixture, batch_size=10) as batches:
        for batch in batches:
            assert sorted(batch.target.input) == [i**2 for i in (*range(5), *range(10, 15))]


def test_images_with_crops(tmp_path):
    for folder, count in (("a", 3), ("b", 2)):
        for number in range(count):
            (tmp_path / folder).mkdir(exist_ok=True)
            write_image(tmp_path / folder / f"{number}.png", number)
    mixture = mix([(f"{tmp_path}/a/*.png", 1), (f"{tmp_path}/b/*.png", 1)], on_end="drop")
    crops = Collator("hwc->bchw", h=6, w=7, offset="random", seed=1)
    with sampled_batcher(mixture, batch_size=5, collate=crops) as batches:
        for batch in batches:
            assert batch.input.input.shape == (5, 3, 6, 7)
    places = mixture.places(np.arange(5))
    assert len({*places.tolist()}) == 5


def test_fields_of_records():
    arrays = [source[:, None] for source in sources_of([4, 6])]
    mixtures = {"first": mix([(a, 1) for a in arrays]), "second": mix([(-a, 1) for a in arrays])}
    step = Collator("c->bc")
    with sampled_batcher(
        mixtures, batch_size=4, sampler="shuffle", collate={"first": step, "second": step}
    ) as batches:
        for batch in batches:
            first, second = (batch.input[name].input for name in ("first", "second"))
            assert np.array_equal(first, -second)


# ---- Sources that do not fit -----------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["drop", "raise"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_sources_of_other_shapes_are_an_error_before_the_first_batch(on_error, num_workers):
    mixture = mix([(np.zeros((9, 2)), 1000), (np.zeros((4, 3)), 1)])
    with (
        sampled_batcher(
            mixture, batch_size=2, on_error=on_error, num_workers=num_workers
        ) as batches,
        pytest.raises(DataError, match=r"source 1 of the mixture.*shape \(3,\).*\(2,\)"),
    ):
        next(iter(batches))


def test_sources_of_other_fields():
    def fields(record):
        return {"x": record.array} if record.position < 4 else {"y": record.array}

    mixture = mix([(np.zeros((4, 2)), 1), (np.zeros((4, 2)), 1)])
    with (
        sampled_batcher(mixture, batch_size=2, get=fields, collate={"x": "ragged"}) as batches,
        pytest.raises(DataError, match=r"source 1 of the mixture.*the result has no x"),
    ):
        next(iter(batches))


def test_a_few_records_that_fail_are_dropped():
    def refuse(x):
        if x == 1000:
            raise ValueError("damaged")
        return x

    mixture = mixture_of([4, 4], [1, 1], "drop")
    with sampled_batcher(mixture, batch_size=8, processor=refuse) as batches:
        for batch in batches:
            assert batch.count == 7
            assert batch.dropped[0][0].position == 4


def test_images_beside_arrays(tmp_path):
    write_image(tmp_path / "0.png", 0)
    mixture = mix([(f"{tmp_path}/*.png", 1), (np.zeros(4), 1)])
    with (
        sampled_batcher(mixture, batch_size=2, size=(4, 4)) as batches,
        pytest.raises(DataError, match="source 1 of the mixture"),
    ):
        next(iter(batches))


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([], "there are no sources"),
        ("photos", "sources is a str; give a list of pairs"),
        ({"photos": 1}, "sources is a dict; give a list of pairs"),
        ([np.zeros(3)], "source 0 is no pair"),
        ([(np.zeros(3), 1), (np.zeros(3), 0)], "the weight of source 1 is 0"),
        ([(np.zeros(3), -1)], "the weight of source 0 is -1"),
        ([(np.zeros(3), float("nan"))], "the weight of source 0 is nan"),
        ([(np.zeros(3), "1")], "the weight of source 0 is '1'"),
        ([(open_index(np.zeros(3))[:0], 1)], "source 0 has no records"),
        ([(mix([(np.zeros(3), 1)]), 1)], "source 0 is a mixture"),
        ([({"x": [1], "y": ["a"]}, 1), ({"x": [1], "y": ["b"]}, 1)], r"classes=\['a', 'b'\]"),
        ([({"x": [1], "y": ["a"]}, 1), (np.ones(1), 1)], "give labels to all sources or to none"),
        (
            [({"x": [1], "y": [[0.5, 1]]}, 1), ({"x": [1], "y": [[0.5]]}, 1)],
            r"targets float64 \(2,\), but source 1 has targets float64 \(1,\)",
        ),
    ],
)
def test_invalid_sources(pairs, says):
    with pytest.raises(DataError, match=says):
        mix(pairs)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: mix([(np.zeros(3), 1)], on_end="first"), "on_end is 'first'; it must be one of"),
        (lambda m: mix([(np.zeros(3), 1)], onend="drop"), "did you mean on_end=?"),
        (lambda m: sampler("uniform", m), "linear, even-sequential, permutation"),
        (lambda m: sampled_batcher(m, batch_size=2, weights=[1] * 7), "an order of its own"),
        (lambda m: sampler([0, 1], m), "give positions of records to its sources"),
        (lambda m: sampler("linear", m, label="a"), "without label="),
        (lambda m: m[:2], "cannot be divided"),
        (lambda m: m.split(0.5), "cannot be divided"),
        (lambda m: m.folds(2), "cannot be divided"),
    ],
)
def test_what_a_mixture_does_not_support(call, says):
    with pytest.raises(DataError, match=says):
        call(mixture_of([3, 4], [1, 2]))


def test_part_files_are_no_source(tmp_path):
    (tmp_path / "part-0").write_text("1\n")
    with pytest.raises(DataError, match=r"source 0 is .* part files>, whose number"):
        mix([(open_index(tmp_path, kind="parts"), 1)])


def test_samples_of_many_sizes_fit():
    ragged = [Ragged.of([np.zeros(n) for n in sizes]) for sizes in ((1, 2, 3), (4, 5))]
    mixture = mix([(source, 1) for source in ragged], on_end="drop")
    with sampled_batcher(mixture, batch_size=5, collate="ragged") as batches:
        assert [sorted(map(len, batch.input)) for batch in batches] == [[1, 2, 3, 4, 5]]


@pytest.mark.budget(1)
@pytest.mark.parametrize("on_end", ["stop", "repeat", "drop"])
def test_a_mixture_of_decoded_records_is_cached_and_resumes(tmp_path, on_end):
    for number in range(9):
        write_image(tmp_path / f"{number}.png", number)
    sources = [(f"{tmp_path}/[01234].png", 2), (f"{tmp_path}/[5678].png", 1)]
    options = {"batch_size": 2, "sampler": "shuffle", "seed": 6}
    options["collate"] = Collator("hwc->bchw", h=8, w=9, resize="bilinear", crop="random")

    def make(**more):
        return sampled_batcher(mix(sources, on_end=on_end), **options, **more)

    with make() as batches:
        states, values = [batches.state_dict()], []
        for _ in range(3):
            for batch in batches:
                values.append(batch.input.input.tobytes())
                states.append(batches.state_dict())
    for more in ({}, {"cache": "ram"}, {"cache": "ram", "cache_bytes": 16_000}):
        for number, state in enumerate(states[:-1:2]):
            with make(**more) as batches:
                batches.load_state_dict(state)
                rest = [batch.input.input.tobytes() for _ in range(3) for batch in batches]
            assert rest[: len(values) - 2 * number] == values[2 * number :]


@pytest.mark.budget(0)
def test_memory_of_a_cached_mixture_is_flat_over_20_epochs():
    sources = [({"x": range(start, start + 200)}, 1) for start in (0, 200)]

    def get(record):
        return np.full(2000, record.position, np.float64)

    options = {"batch_size": 20, "sampler": "shuffle", "num_workers": 0, "get": get}
    with sampled_batcher(
        mix(sources, on_end="drop"), cache="ram", cache_bytes="2 MiB", **options
    ) as batches:
        peaks = []
        tracemalloc.start()
        for _ in range(20):
            tracemalloc.reset_peak()
            assert sum(batch.count for batch in batches) == 400
            peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert batches.stats().cache_bytes <= 2 << 20
    assert max(peaks[10:]) < 1.2 * max(peaks[:10])
    assert max(peaks[1:]) < 400 * 16_000 / 2
