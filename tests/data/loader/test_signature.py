"""The shape and dtype of a run: the most frequent ones in its first batch."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from layoutkit import Collator, DataError
from layoutkit.data import sampled_batcher
from layoutkit.data.loader.collate import SampleSpec
from layoutkit.data.loader.signature import BatchSignature, RunSpec
from tests.helpers.record_files import tar

COUNT = 13
PLAIN = np.ones((4, 5, 3), np.uint8)
ODD = {
    "channels": np.ones((4, 5, 4), np.uint8),
    "rank": np.ones((4, 5), np.uint8),
    "dtype": np.ones((4, 5, 3), np.complex64),
    "size": np.ones((4, 6, 3), np.uint8),
}
COLLATES = {
    "rows": None,
    "ragged": "ragged",
    "plain": Collator("hwc->bchw"),
    "window": Collator("hwc->bchw", h=3, w=4),
    "several": [Collator("hwc->bchw"), Collator("hwc->bhwc", h=3, w=4)],
}


def batches_of(odd, collate=None, batch_size=4, target=None, **options):
    """Return a Batcher of `COUNT` plain results, but for those in the dict `odd`."""

    def process(number, out):
        value = odd.get(int(number), PLAIN)
        return value if target is None else (value, target(int(number)))

    return sampled_batcher(
        np.arange(COUNT),
        batch_size=batch_size,
        processor=process,
        collate=collate,
        layout="bhwc" if collate is None else None,
        **{"num_workers": 0, **options},
    )


def kept(batches):
    return [batch.index.tolist() for batch in batches]


def expected(odd, batch_size=4, count=COUNT):
    starts = range(0, count, batch_size)
    return [
        [n for n in range(start, min(start + batch_size, count)) if n not in odd]
        for start in starts
    ]


@pytest.mark.parametrize("places", [[0], [3], [0, 5, 7, 12], [8, 9, 10, 11]])
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("collate", COLLATES)
def test_only_odd_records_are_dropped(collate, kind, places):
    odd = dict.fromkeys(places, ODD[kind])
    with batches_of(odd, COLLATES[collate]) as batches:
        found = list(batches)
    if (collate, kind) == ("window", "size"):  # which accepts any size
        assert kept(found) == expected([])
        return
    assert kept(found) == expected(places)
    dropped = [item for batch in found for item in batch.dropped]
    assert [record.position for record, _, _ in dropped] == places
    assert all("most of the first batch" in str(e) or "axes" in str(e) for *_, e in dropped)
    assert batches.dropped == len(places)


@pytest.mark.parametrize("odd_first", [[0], [0, 1], [0, 1, 2], [1, 2]])
def test_the_majority_decides_and_of_equal_numbers_the_earliest(odd_first):
    """Test a first batch of 4 with 1, 2 and 3 odd results."""
    odd = dict.fromkeys(odd_first, ODD["size"])
    with batches_of(odd) as batches:
        found = list(batches)
    plain_wins = len(odd_first) < 2 or (len(odd_first) == 2 and 0 not in odd_first)
    assert kept(found) == (expected(odd_first) if plain_wins else [odd_first, [], [], []])


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("refill", [False, True])
def test_every_number_of_threads_decides_alike(workers, refill):
    odd = dict.fromkeys([0, 1, 6, 7, 8, 9], ODD["channels"]) | {2: ODD["size"]}
    with batches_of(odd, batch_size=5, num_workers=workers, refill=refill) as batches:
        found = kept(batches)
    first = [0, 1] if not refill else [0, 1, 6, 7, 8]
    assert found[0] == first
    assert all(index in (0, 1, 6, 7, 8, 9) for each in found for index in each)


def test_records_are_counted_not_the_tasks_that_read_them():
    """Test a task whose results are all alike, and one with odd results."""

    def chunk(count, irregular):
        block = np.stack([PLAIN] * count)
        return SimpleNamespace(
            count=count,
            block=block,
            irregular=irregular,
            failed={},
            targets={},
            is_preallocated=False,
        )

    chunks = [chunk(6, {}), chunk(4, dict.fromkeys([1, 2, 3], ODD["size"]))]
    signature = BatchSignature(None, None)
    signature.check_chunks(chunks)
    assert signature.shape == PLAIN.shape
    assert [[*chunk.failed] for chunk in chunks] == [[], [1, 2, 3]]


@pytest.mark.parametrize("odd_places", [[0], [1, 3], [0, 2]])
@pytest.mark.parametrize("kind", ["number", "shape", "none"])
def test_most_targets_of_the_first_batch_decide(odd_places, kind):
    other = {"number": 2.5 + 1j, "shape": [1, 2]}

    def process(number, out):
        number = int(number)
        if number not in odd_places:
            return PLAIN, number
        return PLAIN if kind == "none" else (PLAIN, other[kind])

    options = {"batch_size": 5, "processor": process, "layout": "bhwc", "num_workers": 0}
    with sampled_batcher(np.arange(COUNT), **options) as batches:
        found = list(batches)
    assert kept(found) == expected(odd_places, 5)
    assert [batch.target.input.tolist() for batch in found] == kept(found)


@pytest.mark.parametrize("collate", COLLATES)
@pytest.mark.parametrize("target", [None, float])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_resumed_run_gives_the_batches_of_an_uninterrupted_one(collate, target, shuffled):
    """Test all batches of two epochs; the first batch after each state consists of odd records."""
    odd = dict.fromkeys(range(4, COUNT), ODD["channels"])
    options = {"sampler": "shuffle" if shuffled else "linear", "seed": 3, "target": target}
    options["batch_size"] = 4
    with batches_of(odd, COLLATES[collate], **options) as batches:
        states, rest = [], []
        for epoch in range(2):
            states.append((epoch, batches.state_dict()))
            for batch in batches:
                states.append((epoch, batches.state_dict()))
                rest.append((len(states) - 1, batch.index.tolist(), batch.count))
    for number, (epoch, state) in enumerate(states):
        with batches_of(odd, COLLATES[collate], **options) as again:
            again.load_state_dict(json.loads(json.dumps(state)))
            found = [(b.index.tolist(), b.count) for e in range(epoch, 2) for b in again]
        assert found == [(index, count) for place, index, count in rest if place > number]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("target", [None, float])
def test_all_ranks_decide_as_rank_0(world, target):
    """Test ranks whose own first batches have another majority."""
    odd = dict.fromkeys(range(2, 2 * world), ODD["channels"])
    for rank in range(world):
        options = {"batch_size": 2, "shard": (rank, world), "target": target}
        with batches_of(odd, **options) as batches:
            found = list(batches)
            state = batches.state_dict()
        assert {tuple(b.input.input.shape[1:]) for b in found if b.count} <= {(4, 5, 3)}
        assert sum(b.count for b in found) == sum(
            n not in odd for step in range(0, COUNT - world + 1, 2 * world)
            for n in range(COUNT)[step + 2 * rank : step + 2 * rank + 2]
        )  # fmt: skip
        assert state["spec"].startswith("uint8(4,5,3) -> ")


def test_batches_of_one_and_batches_by_length_decide_for_themselves(tmp_path):
    with batches_of({3: ODD["size"]}, batch_size=1) as batches:
        assert [batch.count for batch in batches] == [1] * COUNT
    (tmp_path / "a.tar").write_bytes(tar([(f"{n}.npy", bytes(2 + n % 2)) for n in range(6)]))
    with sampled_batcher(
        tmp_path / "a.tar",
        batch_size=3,
        sampler="even-sequences",
        processor=lambda data, out: np.frombuffer(data, np.uint8),
    ) as batches:
        assert sorted(batch.input.input.shape for batch in batches) == [(3, 2), (3, 3)]


def encoded(mode):
    file = io.BytesIO()
    Image.new(mode, (6, 5)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("first", [0, 2])
def test_an_image_with_alpha_among_others_is_the_only_one_dropped(tmp_path, caplog, first):
    """Test the decoder of a user, which keeps alpha."""
    modes = ["RGB"] * 6
    modes[first] = "RGBA"
    members = [(f"{n}.png", encoded(mode)) for n, mode in enumerate(modes)]
    (tmp_path / "a.tar").write_bytes(tar(members))

    def decode(data, out):
        return np.array(Image.open(io.BytesIO(data)))

    collate = Collator("hwc->bchw", h=4, w=4, resize="bilinear")
    source = str(tmp_path / "a.tar")
    with sampled_batcher(source, batch_size=3, processor=decode, collate=collate) as batches:
        assert sum(batch.count for batch in batches) == 5
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "a.tar, byte" in lines[0]


SPECS = [
    RunSpec(),
    RunSpec(None, False),
    RunSpec(SampleSpec(np.dtype("uint8"), ()), SampleSpec(np.dtype(">f4"), (3,))),
    RunSpec(SampleSpec(np.dtype("M8[s]"), (None, 0, 12)), SampleSpec(np.dtype("bool"), ())),
    RunSpec((SampleSpec(np.dtype("f2"), (None,)), SampleSpec(np.dtype(">i2"), (1, 2))), False),
]


@pytest.mark.parametrize("spec", SPECS)
def test_the_text_of_a_state_is_read_again(spec):
    text = spec.to_text()
    assert RunSpec.from_text(text) == spec if text else spec.target is None


@pytest.mark.parametrize("text", ["", "x", "uint8(3)", "uint8(3) -> ", "u9(3) -> none", " -> a", 3])
def test_a_text_that_is_not_of_a_state_is_refused(text):
    with pytest.raises(DataError, match="is not the text of a state"):
        RunSpec.from_text(text)
