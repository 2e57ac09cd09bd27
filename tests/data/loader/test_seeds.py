"""The seeds of `sampled_batcher`, of its sampler and of its Collators, given in every way."""

from itertools import islice

import numpy as np
import pytest

from layoutkit import Collator, DataError
from layoutkit.data import open_index, sampled_batcher, sampler

PHOTOS = np.random.default_rng(0).integers(0, 256, (8, 12, 14, 3)).astype(np.uint8)
CROPS = {"h": 5, "w": 6, "offset": "random", "flip": "random"}


def crops_of(seed, **options):
    return Collator("hwc->bchw", **CROPS, **({} if seed is None else {"seed": seed}), **options)


def batcher(seed=None, own=None, collate=None, **options):
    given = {"batch_size": 4, "sampler": "shuffle", "num_workers": 0}
    seeds = {} if seed is None else {"seed": seed}
    return sampled_batcher(PHOTOS, collate=collate or crops_of(own), **given | seeds | options)


def images_of(batches):
    """Return the positions of all records and their pixels."""
    found = list(batches)
    positions = [record.position for batch in found for record in batch.item]
    return positions, np.concatenate([batch.input.input for batch in found])


@pytest.mark.parametrize(
    ("seed", "own", "order_seed", "crop_seed"),
    [
        (None, None, 0, 0),
        (7, None, 7, 7),
        (0, None, 0, 0),
        (None, 5, 0, 5),
        (None, 0, 0, 0),
        (7, 7, 7, 7),
        (np.int64(7), 7, 7, 7),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_seed_is_obeyed(seed, own, order_seed, crop_seed, num_workers):
    with batcher(seed, own, num_workers=num_workers) as batches:
        positions, images = images_of(batches)
    assert positions == [*sampler("shuffle", 8, seed=order_seed)]
    expected = crops_of(crop_seed)(PHOTOS[positions], positions=positions, epoch=0)
    np.testing.assert_array_equal(images, expected)


@pytest.mark.parametrize(("seed", "own"), [(7, 5), (0, 5), (7, 0)])
@pytest.mark.parametrize("is_list", [False, True])
def test_seeds_that_differ_are_an_error_with_the_call_to_give(seed, own, is_list):
    collate = crops_of(own)
    with pytest.raises(
        DataError, match=f"has seed={seed}, but its Collator has seed={own}"
    ) as info:
        batcher(seed, collate=[crops_of(None), collate] if is_list else collate)
    call = str(info.value).partition("as in sampled_batcher(..., ")[2].removesuffix(")")
    options = eval(f"dict({call})", {"Collator": Collator})
    assert options == {"seed": seed, "collate": crops_of(None)}
    images_of(batcher(**options))


def test_a_collator_that_draws_nothing_has_no_seed_to_obey():
    fixed = Collator("hwc->bchw", h=5, w=6, seed=5)
    np.testing.assert_array_equal(
        images_of(batcher(7, collate=fixed))[1],
        images_of(batcher(7, collate=Collator("hwc->bchw", h=5, w=6)))[1],
    )


def test_the_seed_of_a_sampler():
    index = open_index(PHOTOS)
    options = {"batch_size": 4, "num_workers": 0, "sampler": sampler("shuffle", index, seed=7)}
    expected = images_of(batcher(7))
    for seeds in ({}, {"seed": 7}):
        made = sampled_batcher(index, collate=crops_of(None), **options, **seeds)
        positions, images = images_of(made)
        assert positions == expected[0]
        np.testing.assert_array_equal(images, expected[1])
    with pytest.raises(DataError, match="seed=3, but the sampler has seed=7; omit one of them"):
        sampled_batcher(index, collate=crops_of(None), **options, seed=3)


def test_collators_of_a_list_with_equal_seeds_draw_equal_crops():
    with batcher(collate=[crops_of(5), crops_of(5), crops_of(None)]) as batches:
        (first, second, third), _ = next(iter(batches))
    np.testing.assert_array_equal(first.input, second.input)
    assert not np.array_equal(first.input, third.input)


@pytest.mark.parametrize(("seed", "own"), [(None, 5), (7, None), (7, 7)])
def test_a_resumed_run_draws_the_same_crops(seed, own):
    _, whole = images_of(batcher(seed, own, batch_size=2))
    first = batcher(seed, own, batch_size=2)
    list(islice(iter(first), 2))
    second = batcher(seed, own, batch_size=2, num_workers=2)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(images_of(second)[1], whole[4:])


@pytest.mark.parametrize(("seed", "own"), [(None, 5), (7, None), (7, 7)])
def test_ranks_draw_the_crops_of_one_process(seed, own):
    positions, images = images_of(batcher(seed, own))
    whole = dict(zip(positions, images, strict=True))
    for rank in (0, 1):
        with batcher(seed, own, batch_size=2, shard=(rank, 2)) as batches:
            for position, image in zip(*images_of(batches), strict=True):
                np.testing.assert_array_equal(image, whole[position])


@pytest.mark.parametrize("seed", [1.5, "1"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(DataError, match="seed="):
        batcher(seed)
