"""A list of Collators: several inputs of the same results, such as random crops of an image."""

from collections import Counter

import numpy as np
import pytest

from layoutkit import Collator, DataError
from layoutkit.data import sampled_batcher

N = 11
SMALL = Collator("hwc->bchw", h=4, w=5, offset="random")
LARGE = Collator("hwc->bhwc", h=8, w=8, offset="random", dtype="float32", scale=1 / 255)
RESIZED = Collator("hwc->bchw", h=6, w=6, resize="bilinear", crop="random", dtype="float32")
FLIPPED = Collator("hwc->bchw", h=4, w=5, flip="random")
PAIR = [SMALL, SMALL]
DECODED = Counter()


def of_record(record):
    number = int(record.array)
    DECODED[number] += 1
    return np.random.default_rng(number).integers(0, 256, (20 + number, 30 - number, 3), np.uint8)


def batcher(**options):
    given = {"get": of_record, "batch_size": 4, "num_workers": 0}
    return sampled_batcher(np.arange(N), **given | options)


def arrays_of(batches):
    """Return the inputs of all batches, in one array for each Collator."""
    inputs = [[np.asarray(view.input) for view in batch.input] for batch in batches]
    return [np.concatenate(each) for each in zip(*inputs, strict=True)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("number", [1, 3])
def test_each_input_is_the_batch_of_its_collator(number, num_workers):
    windows = [{"h": 4, "w": 5}, {"h": 8, "w": 8, "scale": 0.5}, {"h": 6, "w": 6, "resize": "area"}]
    collators = [Collator("hwc->bchw", flip="w", **window) for window in windows[:number]]
    DECODED.clear()
    options = {"num_workers": num_workers}
    with batcher(collate=collators, **options) as batches:
        found = arrays_of(batches)
    assert set(DECODED.values()) == {1}  # every record is processed once
    for collator, array in zip(collators, found, strict=True):
        with batcher(collate=collator, **options) as batches:
            np.testing.assert_array_equal(array, np.concatenate([b.input.input for b in batches]))


def test_batches_unpack_as_views_with_layouts_of_their_own():
    with batcher(collate=(SMALL, LARGE)) as batches:
        (first, second), target = next(iter(batches))
        assert target is None
        assert repr(first) == "ImageView(bchw (4, 3, 4, 5) uint8)"
        assert repr(second) == "ImageView(bhwc (4, 8, 8, 3) float32)"
        batch = next(iter(batches))
        assert batch._repr_html_().count("<table") == 2
        assert "float32" in repr(batch)


@pytest.mark.parametrize("collator", [SMALL, FLIPPED])
def test_every_input_has_random_values_of_its_own(collator):
    with batcher(collate=collator, seed=4) as batches:
        alone = np.concatenate([batch.input.input for batch in batches])
    with batcher(collate=[collator] * 3, seed=4) as batches:
        inputs = arrays_of(batches)
        again = arrays_of(batches)
    np.testing.assert_array_equal(inputs[0], alone)
    for i in range(3):
        for j in range(i):
            assert not np.array_equal(inputs[i], inputs[j])
        assert not np.array_equal(inputs[i], again[i])  # another epoch
    with batcher(collate=[collator] * 2, seed=5) as batches:
        assert not np.array_equal(arrays_of(batches)[1], inputs[1])


def test_rows_of_an_array_and_random_crops():
    x = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), np.uint8)
    with sampled_batcher(x, batch_size=9, collate=[RESIZED, RESIZED]) as batches:
        ((first, second),) = [batch.input for batch in batches]
    with sampled_batcher(x, batch_size=9, collate=RESIZED) as batches:
        (alone,) = [batch.input for batch in batches]
    np.testing.assert_array_equal(first.input, alone.input)
    assert not np.array_equal(first.input, second.input)


def test_a_record_that_one_collator_refuses_is_dropped_from_all():
    tall = Collator("hwc->bchw", h=25, w=20)  # records 0 to 4 are less than 25 high
    with batcher(collate=[SMALL, tall]) as batches:
        found = list(batches)
    kept = [int(record.array) for batch in found for record in batch.item]
    assert kept == list(range(5, N))
    assert [[len(view.input) for view in batch.input] for batch in found if batch.count] == [
        [3, 3],
        [3, 3],
    ]
    assert found[0].input is None


def test_a_tensor_on_another_device_is_made_by_the_consumer(monkeypatch):
    from layoutkit.data.loader.collate import CollateStep

    monkeypatch.setattr(CollateStep, "is_deferred", property(lambda self: True))
    with batcher(collate=PAIR, num_workers=2, seed=1) as batches:
        deferred = arrays_of(batches)
    monkeypatch.undo()
    with batcher(collate=PAIR, num_workers=2, seed=1) as batches:
        for one, other in zip(arrays_of(batches), deferred, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("collate", "why"),
    [
        ([], "collate is an empty list; give one Collator or more"),
        ([SMALL, "ragged"], "collate is 'ragged'; give a Collator.*, a list or dict of them"),
        ([SMALL, None], "collate is None"),
        ([SMALL, Collator("bhwc->bchw", h=4, w=4)], "separate samples"),
    ],
)
def test_wrong_lists(collate, why):
    with pytest.raises(DataError, match=why):
        batcher(collate=collate)


def test_layout_is_checked_for_every_collator():
    with pytest.raises(DataError, match=r"batches of collate=.* are bhwc"):
        batcher(collate=[SMALL, LARGE], layout="bchw")
