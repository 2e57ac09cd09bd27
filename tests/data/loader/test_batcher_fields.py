"""Batches of records with several fields: `collate` is a dict, and fields share placements."""

import pickle

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, DataError, LayoutkitError, images
from layoutkit.data import sampled_batcher

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (13, 40, 50, 3), np.uint8)
MASKS = IMAGES[..., 0].astype(np.int16)
BOXES = [
    np.float32([[i, 2 * i, i + 9, 2 * i + 7]] * (i % 4) + [[40, 30, 50, 40]]) for i in range(13)
]
SIZES = {"h": 24, "w": 20, "resize": "nearest"}
RANDOM = Collator("hwc->bchw", crop="random", flip="random", **SIZES)
MASK = Collator("hw->bhw", fill=255, **SIZES)
FIELDS = {"image": RANDOM, "mask": MASK}
SOURCES = {"image": IMAGES, "mask": MASKS}
OPTIONS = {"batch_size": 4, "sampler": "shuffle", "seed": 3}


def make_record(number, out=None):
    """Return the fields of a record: the processor of a source of numbers."""
    n = int(number)
    return {"image": IMAGES[n], "mask": MASKS[n], "boxes": BOXES[n], "name": "not collated"}, n


def read(batches, name):
    return np.concatenate([np.asarray(batch.input[name].input) for batch in batches])


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_fields_share_the_windows_of_the_first_collator_that_draws(workers):
    fields = {"mask": MASK, "image": RANDOM}
    with sampled_batcher(SOURCES, collate=fields, num_workers=workers, **OPTIONS) as loop:
        batches = list(loop)
    assert [[*batch.input] for batch in batches] == [["mask", "image"]] * 4
    images, masks = read(batches, "image"), read(batches, "mask")
    assert masks.dtype == np.int16
    assert (images[:, 0] == masks).all()
    flips = [placement.flip[1] for batch in batches for placement in batch.placements]
    assert 0 < sum(flips) < 13


@pytest.mark.parametrize(
    ("photos", "masks", "warns"),
    [
        ("a.png b.png d.png", "a.png b.png d.png", False),
        ("a.jpg b.jpg d.jpg", "a.png c.png d.png", True),
        ("a/0.png b/0.png", "0.png 1.png", True),
        ("a.png b.png", "a_mask.png b_mask.png", False),
    ],
)
def test_files_of_two_fields_that_have_equal_names_are_in_equal_places(
    tmp_path, photos, masks, warns, recwarn
):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    sources = {"image": photos, "mask": masks}
    paths = {name: [str(tmp_path / x) for x in text.split()] for name, text in sources.items()}
    reader = {"mask": images.Reader(mode="index")}
    sampled_batcher(paths, collate=FIELDS, batch_size=2, processor=reader).close()
    messages = [str(warning.message) for warning in recwarn.list]
    assert len(messages) == warns
    assert all("record 1 is '" in text and "but '" in text for text in messages)
    assert all(str(warning.filename) == __file__ for warning in recwarn.list)


def test_batches_are_made_by_the_placements_of_the_batch():
    with sampled_batcher(SOURCES, collate=FIELDS, **OPTIONS) as loop:
        for batch in loop:
            numbers = [record.position for record in batch.item]
            images = RANDOM([IMAGES[n] for n in numbers], placements=batch.placements)
            assert (batch.input["image"].input == images).all()
            assert len(batch.placements) == batch.count


def test_the_image_is_that_of_a_batch_without_masks():
    with (
        sampled_batcher(SOURCES, collate=FIELDS, **OPTIONS) as loop,
        sampled_batcher(IMAGES, collate=RANDOM, **OPTIONS) as alone,
    ):
        for batch, other in zip(loop, alone, strict=True):
            assert (batch.input["image"].input == other.input.input).all()


def test_without_draws_the_first_collator_places_all():
    letterbox = Collator("hwc->bchw", fit="pad", fill=0, **SIZES)
    fields = {"image": letterbox, "mask": MASK}  # MASK alone would stretch
    with sampled_batcher(SOURCES, collate=fields, **OPTIONS) as loop:
        batch = next(iter(loop))
    masks = batch.input["mask"].input
    assert (masks[:, :4] == 255).all()
    assert (masks[:, 4:20] == batch.input["image"].input[:, 0, 4:20]).all()


def test_ragged_boxes_are_mapped_by_the_placements():
    fields = {**FIELDS, "boxes": "ragged"}
    with sampled_batcher(np.arange(13), processor=make_record, collate=fields, **OPTIONS) as loop:
        for batch in loop:
            for row, n in enumerate(batch.target.input.tolist()):
                assert (batch.input["boxes"][row] == BOXES[n]).all()
                boxes, kept = batch.placements[row].fit_boxes(batch.input["boxes"][row])
                expected, indices = batch.placements[row].fit_boxes(BOXES[n])
                assert (boxes == expected).all()
                assert (kept == indices).all()


def test_other_axes_are_not_placed():
    sounds = [RNG.random((30, 2)).astype(np.float32) for _ in range(13)]
    fields = {"image": RANDOM, "sound": Collator("tf->bft", t=20)}
    with sampled_batcher(
        range(13),
        processor=lambda n, out: {"image": IMAGES[int(n)], "sound": sounds[int(n)]},
        collate=fields,
        batch_size=13,
    ) as loop:
        (batch,) = loop
    assert (batch.input["sound"].input == Collator("tf->bft", t=20)(sounds)).all()
    assert batch.placements.axes == ("h", "w")


def test_only_ragged_fields_have_no_placements():
    fields = {"boxes": "ragged"}
    with sampled_batcher(np.arange(13), processor=make_record, collate=fields, **OPTIONS) as loop:
        batch = next(iter(loop))
    assert batch.placements is None
    assert len(batch.input["boxes"]) == 4


@pytest.mark.parametrize("names", [["image"], ["image", "mask"]])
def test_a_resumed_loop_makes_the_same_batches(names):
    fields = {name: FIELDS[name] for name in names}
    sources = {name: SOURCES[name] for name in names}
    with sampled_batcher(sources, collate=fields, **OPTIONS) as loop:
        whole = [batch for _ in range(2) for batch in loop]
    with sampled_batcher(sources, collate=fields, **OPTIONS) as loop:
        next(iter(loop))
        state = loop.state_dict()
    with sampled_batcher(sources, collate=fields, **OPTIONS) as loop:
        loop.load_state_dict(state)
        rest = [batch for _ in range(2) for batch in loop]
    for name in names:
        assert (read(whole[1:], name) == read(rest, name)).all()


def test_a_list_of_one_collator_resumes():
    with sampled_batcher(IMAGES, collate=[RANDOM], **OPTIONS) as loop:
        batches = iter(loop)
        next(batches)
        state = loop.state_dict()
        second = next(batches).input[0].input
    with sampled_batcher(IMAGES, collate=[RANDOM], **OPTIONS) as loop:
        loop.load_state_dict(state)
        assert (next(iter(loop)).input[0].input == second).all()


def test_a_state_of_other_options_is_refused_by_the_name_of_the_field():
    with sampled_batcher(SOURCES, collate=FIELDS, **OPTIONS) as loop:
        state = loop.state_dict()
    changed = {**FIELDS, "mask": Collator("hw->bhw", fill=0, **SIZES)}
    with (
        sampled_batcher(SOURCES, collate=changed, **OPTIONS) as loop,
        pytest.raises(LayoutkitError, match="fill of the Collator mask is 255 in"),
    ):
        loop.load_state_dict(state)


def test_a_batch_can_be_pickled_and_shown():
    with sampled_batcher(SOURCES, collate=FIELDS, **OPTIONS) as loop:
        batch = next(iter(loop))
    copy = pickle.loads(pickle.dumps(batch))
    assert (copy.input["mask"].input == batch.input["mask"].input).all()
    assert copy.placements == batch.placements
    assert "'mask'" in repr(batch)
    assert batch._repr_html_().count("<table") == 2


def test_files_of_images_are_decoded(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        for n in range(5):
            image.fromarray(IMAGES[n]).save(tmp_path / name / f"{n}.png")
    sources = {name: str(tmp_path / name / "*.png") for name in ("left", "right")}
    fields = dict.fromkeys(sources, RANDOM)
    with sampled_batcher(sources, batch_size=5, collate=fields, seed=0) as loop:
        (batch,) = loop
    assert (batch.input["left"].input == batch.input["right"].input).all()
    first = RANDOM([IMAGES[0]], placements=batch.placements[:1])
    assert (batch.input["left"].input[:1] == first).all()


def test_masks_are_read_as_class_numbers(tmp_path):
    image = pytest.importorskip("PIL.Image")
    classes = IMAGES[..., 0] % 7
    for n in range(5):
        mask = image.fromarray(classes[n]).convert("L")
        mask.putpalette(RNG.integers(0, 256, 21).tolist())
        mask.save(tmp_path / f"{n}.png")
    with sampled_batcher(
        {"image": IMAGES[:5], "mask": str(tmp_path / "*.png")},
        processor={"mask": images.Reader(mode="index")},
        collate=FIELDS,
        batch_size=5,
    ) as loop:
        (batch,) = loop
    assert (batch.input["mask"].input == batch.input["image"].input[:, 0] % 7).all()


# ---- records and arguments that do not fit -------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda fields: {**fields, "mask": fields["mask"][:, 1:]},
            "field mask has size 49 along w",
        ),
        (lambda fields: {"image": fields["image"]}, "the result has no mask, which collate= names"),
        (lambda fields: fields["image"], "the result is a numpy.ndarray, but collate= is a dict"),
        (lambda fields: {**fields, "mask": fields["image"]}, "field mask: "),
        (lambda fields: {**fields, "mask": np.float32(fields["mask"])}, "field mask: the result"),
        (lambda fields: {**fields, "mask": "text"}, "field mask: the result is text"),
        (lambda fields: {**fields, "mask": None}, "field mask: "),
    ],
)
def test_records_whose_fields_do_not_fit_are_dropped_by_name(damage, message):
    def process(number, out=None):
        fields, _ = make_record(number)
        return damage(fields) if number == 5 else fields

    with sampled_batcher(np.arange(13), processor=process, collate=FIELDS, batch_size=13) as loop:
        (batch,) = loop
    assert batch.count == len(batch.placements) == 12
    ((record, _, error),) = batch.dropped
    assert record.position == 5
    assert message in str(error)


@pytest.mark.parametrize(
    ("sources", "change", "message"),
    [
        (IMAGES, {}, "collate= names the fields image, mask; give a dict of sources"),
        ({**SOURCES, "y": [0] * 13}, {}, "give equal keys in place of 'y'. A source"),
        (
            {"image": IMAGES, "masks": MASKS},
            {},
            "has the keys image, masks, .* equal keys in place of 'masks', 'mask'",
        ),
        ({**SOURCES, "mask": MASKS[:9]}, {}, "but the field mask gives 9; the numbers must be"),
        ({**SOURCES, "mask": [MASKS, MASKS]}, {}, "field mask: the source is a list of sources"),
        (SOURCES, {"collate": None}, "for a batch of each, give collate={'image': Collator"),
        (SOURCES, {"processor": {"masks": np.array}}, "processor has 'masks'"),
        (IMAGES, {"processor": {"mask": np.array}}, "give a dict of sources"),
        (SOURCES, {"collate": {}}, "collate is an empty dict"),
        (SOURCES, {"collate": {"image": RANDOM, 1: MASK}}, "collate has the key 1"),
        (SOURCES, {"collate": {**FIELDS, "mask": "hw->bhw"}}, "field mask: collate is 'hw->bhw'"),
        (SOURCES, {"size": (8, 8)}, "size= decodes images into one array"),
        (SOURCES, {"dtype": "float32"}, "pass either collate or dtype"),
    ],
)
def test_arguments_that_do_not_fit_fields_are_errors(sources, change, message):
    with pytest.raises(LayoutkitError, match=message):
        sampled_batcher(sources, **{"collate": FIELDS, **OPTIONS, **change})


def test_windows_of_other_sizes_are_an_error_that_names_the_field():
    fields = {**FIELDS, "mask": Collator("hw->bhw", h=24, w=24, resize="nearest")}
    with pytest.raises(ArgumentError, match="field mask has windows of 24 along w, but follows"):
        sampled_batcher(SOURCES, collate=fields, **OPTIONS)


def test_images_that_a_pattern_does_not_fit_are_an_error_before_the_first_batch(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
        pillow.fromarray(IMAGES[0] if name == "images" else np.uint8(MASKS[0])).save(
            tmp_path / name / "0.png"
        )
    sources = {"image": str(tmp_path / "images"), "mask": str(tmp_path / "masks")}
    options = {"collate": FIELDS, "batch_size": 1}
    cure = r'field mask: .*2 axes.*processor={"mask": images.Reader\(mode="index"\)}'
    with pytest.raises(DataError, match=cure):
        sampled_batcher(sources, **options)
    with pytest.raises(DataError, match=r'^"hw->bhw" .*processor=images.Reader\(mode="index"\)'):
        sampled_batcher(sources["mask"], batch_size=1, collate=[RANDOM, MASK])
    with sampled_batcher(
        sources, processor={"mask": images.Reader(mode="index")}, **options
    ) as loop:
        batch = next(iter(loop))
    assert (batch.input["image"].input[:, 0] == batch.input["mask"].input).all()


@pytest.mark.parametrize("collate", [[RANDOM, MASK], RANDOM, "ragged"])
def test_several_sources_without_fields_name_the_dicts(collate):
    with pytest.raises(DataError, match=r"2 sources .* two dicts, {'image'.* of sources"):
        sampled_batcher([IMAGES, MASKS], batch_size=2, collate=collate)
