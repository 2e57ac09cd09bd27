"""Batches of records of different sizes, packed one after the other."""

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, Packed
from layoutkit.data import sampled_batcher

SHAPES = [(28, 42, 3), (56, 14, 3), (14, 14, 3), (14, 28, 3), (42, 42, 3)]
IMAGES = [np.full(shape, number, np.uint8) for number, shape in enumerate(SHAPES)]
PATCHES = Collator("(hp)(wq)c->(bhw)(cpq)", p=14, q=14)


def _make_batcher(images, **options):
    """Return a Batcher of images that records refer to by number."""
    arguments = {"batch_size": 2, "collate": PATCHES, "num_workers": 0, **options}
    return sampled_batcher(
        np.arange(len(images)), get=lambda record: images[int(record.array)], **arguments
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_packed(num_workers):
    batches = list(_make_batcher(IMAGES, num_workers=num_workers))
    assert [batch.count for batch in batches] == [2, 2, 1]
    for batch, first in zip(batches, (0, 2, 4), strict=True):
        expected = PATCHES(IMAGES[first : first + 2])
        assert isinstance(batch.input, Packed)
        for ours, theirs in zip(batch.input, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_resized_batches_are_packed():
    resize = Collator(
        "(hp)(wq)c->(bhw)(cpq)", p=14, q=14, resize="bilinear", multiple=28, max_pixels=28 * 28
    )
    for batch in _make_batcher(IMAGES, collate=resize):
        assert (batch.input.sizes % 2 == 0).all()
        assert batch.input.sizes.sum() >= 4 * batch.count


def test_records_that_do_not_fit_the_pattern_are_dropped():
    images = [*IMAGES[:3], np.zeros((14, 15, 3), np.uint8), np.zeros((14, 14, 4), np.uint8)]
    batches = list(_make_batcher(images, batch_size=5))
    assert batches[0].count == 3
    messages = [str(error) for _, _, error in batches[0].dropped]
    assert "15 cannot be divided by q=14" in messages[0]
    assert "4" in messages[1]


def test_samples_of_an_array_are_packed():
    batches = list(sampled_batcher(np.stack([IMAGES[2]] * 3), batch_size=2, collate=PATCHES))
    assert [batch.input.offsets.tolist() for batch in batches] == [[0, 1, 2], [0, 1]]


# ---- as fields of records --------------------------------------------------------------------

TOKENS = [np.arange(number + 1) for number in range(5)]
PAD = Collator("t->bt", t="longest", fill=0, lengths=True)
FLIPPED = Collator("(hp)(wq)c->(bhw)(cpq)", p=14, q=14, flip="random", seed=1)


def _read_fields(number, out=None):
    n = int(number)
    return {"patches": IMAGES[n], "mask": IMAGES[n][..., 0], "tokens": TOKENS[n]}


def _open_fields(**collate):
    return sampled_batcher(
        range(5), batch_size=2, num_workers=0, processor=_read_fields, collate=collate
    )


@pytest.mark.parametrize("patches", [PATCHES, FLIPPED])
def test_packed_and_padded_fields(patches):
    for first, batch in zip((0, 2, 4), _open_fields(patches=patches, tokens=PAD), strict=True):
        rows = range(first, min(first + 2, 5))
        expected = patches([IMAGES[n] for n in rows], positions=rows)
        assert isinstance(batch.input["patches"], Packed)
        for ours, theirs in zip(batch.input["patches"], expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        tokens, lengths = batch.input["tokens"]
        np.testing.assert_array_equal(tokens.input, PAD([TOKENS[n] for n in rows]).data)
        assert lengths.tolist() == [n + 1 for n in rows]
        assert (batch.placements is None) == (patches is PATCHES)


def test_packed_fields_of_equal_axes():
    mask = Collator("(hp)(wq)->(bhw)(pq)", p=14, q=14)
    for batch in _open_fields(patches=PATCHES, mask=mask):
        patches, masks = batch.input["patches"], batch.input["mask"]
        np.testing.assert_array_equal(patches.data[:, : 14 * 14], masks.data)
        np.testing.assert_array_equal(patches.offsets, masks.offsets)


RANDOM_CROPS = Collator(
    "(hp)(wq)c->(bhw)(cpq)", p=7, q=7, resize="nearest", multiple=7, crop="random", flip="random"
)
CROPS = Collator("hwc->bhwc", h=14, w=7, resize="nearest", crop="random", flip="random")
SHADED = [image + np.arange(image.size, dtype=np.uint8).reshape(image.shape) for image in IMAGES]


@pytest.mark.parametrize("image", [RANDOM_CROPS, CROPS])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_packed_fields_lead_and_follow(image, num_workers):
    """The patches of a mask are at random crops of the image, with or without patches of it."""
    mask = Collator("(hp)(wq)->(bhw)(pq)", p=7, q=7, resize="nearest")
    batcher = sampled_batcher(
        range(5), batch_size=2, num_workers=num_workers, collate={"image": image, "mask": mask},
        processor=lambda n, out: {"image": SHADED[int(n)], "mask": SHADED[int(n)][..., 0]},
    )  # fmt: skip
    for first, batch in zip((0, 2, 4), batcher, strict=True):
        rows = range(first, min(first + 2, 5))
        images = [SHADED[n] for n in rows]
        assert batch.placements == image.place(images, positions=rows)
        expected = mask([x[..., 0] for x in images], placements=batch.placements)
        np.testing.assert_array_equal(batch.input["mask"].data, expected.data)
        if image is RANDOM_CROPS:
            np.testing.assert_array_equal(batch.input["image"].data[:, :49], expected.data)


def test_packed_fields_that_cannot_lead_or_follow():
    mask = Collator("hw->bhw", h=14, w=14)
    with pytest.raises(ArgumentError, match=r"field mask has windows of one size, but follows"):
        _open_fields(patches=FLIPPED, mask=mask)
    for one in (
        Collator("hw->bhw", h=14, w=14, resize="area", short_side=16),
        Collator("hw->bhw", h="longest", w="longest", flip="random"),
    ):
        with pytest.raises(ArgumentError, match=r"patches packs .* cannot follow field mask"):
            _open_fields(patches=PATCHES, mask=one)


@pytest.mark.parametrize(
    "leader",
    [
        Collator("hwc->bchw", h=14, w=14),
        Collator("hwc->bchw", flip={"h": "random"}),
        Collator("hwc->bchw", h="longest", w=14),
    ],
)
def test_a_field_does_not_fold_an_axis_of_the_leader(leader):
    mask = Collator("(hp)w->bhpw", p=2)
    with pytest.raises(ArgumentError, match=r"field mask folds h .* follows field patches"):
        _open_fields(mask=mask, patches=leader)
    _open_fields(mask=Collator("(kp)v->bkpv", p=2), patches=leader).close()
