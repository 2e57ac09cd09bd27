"""States of a Batcher hold the options of its pixels, and load only where these are equal."""

import json
import re
from itertools import islice

import numpy as np
import pytest

from layoutkit import Collator, Converter, DataError, images
from layoutkit.data import sampled_batcher

PHOTOS = np.random.default_rng(0).integers(0, 256, (8, 12, 14, 3)).astype(np.uint8)
CROPS = Collator("hwc->bchw", h=5, w=6, offset="random", mean=0.5)
SCALED = Converter("bhwc->bchw", scale=0.5)


def batcher(**options):
    return sampled_batcher(
        PHOTOS, **{"batch_size": 2, "layout": "bhwc", "num_workers": 0} | options
    )


def cropped(collate=CROPS, **options):
    return batcher(collate=collate, layout=None, **options)


def state_of(batches):
    list(islice(iter(batches), 2))
    return json.loads(json.dumps(batches.state_dict()))


def like(collator, **changes):
    return type(collator).from_dict({**collator.to_dict(), **changes})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (cropped(), cropped(num_workers=2, prefetch=5, retries=0)),
        (cropped(), cropped(like(CROPS, threads=1))),
        (cropped(), cropped(like(CROPS, memory="bhwc", device="cpu"))),
        (
            cropped(),
            cropped(Collator("h w c -> b c h w", w=6, h=5, offset="random", mean=0.5)),
        ),
        (cropped(seed=3), cropped(like(CROPS, seed=3), seed=3)),
        (cropped([CROPS, CROPS]), cropped([CROPS, CROPS], num_workers=1)),
        (batcher(convert=SCALED), batcher(convert=like(SCALED, copy=True, threads=2))),
        (batcher(), batcher(num_workers=2)),
    ],
)
def test_options_that_do_not_change_pixels_may_differ(one, other):
    state = state_of(one)
    assert all(type(value) in (int, str) for value in state.values())
    other.load_state_dict(state)
    assert {**other.state_dict(), "options": None} == {**state, "options": None}


NO_RESUME = "the batches of this state have other options: "


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (
            cropped(),
            cropped(like(CROPS, mean=0.25)),
            "constant mean of the Collator is 0.5 in the state, 0.25 here",
        ),
        (cropped(), cropped(like(CROPS, seed=9)), "seed of the Collator is 0 in the state, 9 here"),
        (
            cropped(),
            cropped(like(CROPS, sizes={"h": 4, "w": 6})),
            'sizes of the Collator is {"h": 5, "w": 6} in the state, {"h": 4, "w": 6} here',
        ),
        (
            cropped([CROPS, CROPS]),
            cropped([CROPS, like(CROPS, scale=0.5)]),
            "constant scale of the Collator 1 is 1.0 in the state, 0.5 here",
        ),
        (cropped(), batcher(), "the state has a Collator, unlike this Batcher"),
        (batcher(), cropped(), "the state has no Collator, unlike this Batcher"),
        (
            batcher(convert=SCALED),
            batcher(convert=like(SCALED, scale=2.0)),
            "constant scale of the Converter",
        ),
    ],
)
@pytest.mark.parametrize("num_batches", [0, 2])
def test_other_options_are_an_error_that_names_them(one, other, why, num_batches):
    list(islice(iter(one), num_batches))
    before = other.state_dict()
    with pytest.raises(DataError, match=re.escape(NO_RESUME) + ".*" + re.escape(why)):
        other.load_state_dict(one.state_dict())
    assert other.state_dict() == before


def test_the_fingerprint_is_the_one_of_the_step():
    plain = Collator("hwc->bchw", h=5, w=6, scale=0.5)
    assert cropped(plain).state_dict()["fingerprint"] == plain.fingerprint
    assert batcher(convert=SCALED).state_dict()["fingerprint"] == SCALED.fingerprint
    assert batcher().state_dict()["fingerprint"] == "none"


def test_a_state_without_a_fingerprint_is_refused():
    state = state_of(cropped())
    del state["fingerprint"]
    with pytest.raises(DataError, match=r"this state has .* but a state of a Batcher has"):
        cropped().load_state_dict(state)


def test_a_state_of_another_version():
    batches = cropped()
    state = {**state_of(batches), "fingerprint": "0"}
    with pytest.raises(DataError, match="they are equal, but another version of layoutkit"):
        batches.load_state_dict(state)
    later = state["options"].replace('"version": 1', '"version": 2')
    with pytest.raises(
        DataError, match="the Collator of the state cannot be compared: version is 2"
    ):
        batches.load_state_dict({**state, "options": later})


@pytest.mark.parametrize("options", ["", "[]", "{", "[" * 100_000, '{"Collator": 1}'])
def test_damaged_options(options):
    batches = cropped()
    with pytest.raises(DataError, match=r"damaged|cannot be compared"):
        batches.load_state_dict({**state_of(batches), "fingerprint": "0", "options": options})


@pytest.mark.parametrize("size", [(5, 6), (9, 9)])
def test_the_size_of_images_is_an_option(tmp_path, size):
    image = pytest.importorskip("PIL.Image")
    for i in range(4):
        image.fromarray(PHOTOS[i]).save(tmp_path / f"{i}.png")
    options = {"batch_size": 2, "num_workers": 0}
    for more in ({}, {"collate": Collator("hwc->bchw", h=4, w=4)}):
        first = sampled_batcher(tmp_path, size=(5, 6), **options, **more)
        second = sampled_batcher(tmp_path, size=size, **options, **more)
        if size == (5, 6):
            second.load_state_dict(state_of(first))
        else:
            with pytest.raises(
                DataError,
                match=r"size of the (Reader|Decoder) is \[5, 6\] in the state, \[9, 9\] here",
            ):
                second.load_state_dict(state_of(first))


@pytest.fixture
def files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for i in range(4):
        image.fromarray(PHOTOS[i, ..., 0]).save(tmp_path / f"{i}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"mode": "gray"}, {}, "mode of the Reader is 'gray' in the state, 'rgb' here"),
        ({}, {"background": 9}, "background of the Reader is None in the state, [9, 9, 9] here"),
        ({"frames": "all"}, {"frames": [0]}, "frames of the Reader is 'all' in the state, [0]"),
        ({"min_size": (5, 6)}, {}, "min_size of the Reader is [5, 6] in the state, None here"),
    ],
)
def test_the_options_of_a_reader_are_compared(files, one, other, why):
    first, second, equal = (
        sampled_batcher(
            files, batch_size=2, num_workers=0, collate="ragged", processor=images.Reader(**options)
        )
        for options in (one, other, one)
    )
    state = state_of(first)
    equal.load_state_dict(state)
    with pytest.raises(DataError, match=re.escape(NO_RESUME + why)):
        second.load_state_dict(state)


def test_the_readers_of_fields_are_compared(files):
    def open_fields(mode):
        return sampled_batcher(
            {"image": files, "mask": files},
            batch_size=2,
            num_workers=0,
            processor={"mask": images.Reader(mode=mode)},
            collate={"image": "ragged", "mask": "ragged"},
        )

    state = state_of(open_fields("index"))
    open_fields("index").load_state_dict(state)
    with pytest.raises(DataError, match="mode of the Reader mask is 'index' in the state, 'rgb'"):
        open_fields("rgb").load_state_dict(state)


@pytest.mark.parametrize("library", [None, "pillow"])
def test_the_options_of_a_decoder_are_compared(files, library):
    def decode(size, fill):
        return sampled_batcher(
            files,
            batch_size=2,
            num_workers=0,
            collate="ragged",
            processor=images.Decoder(size, "pad", fill=fill, library=library),
        )

    state = state_of(decode((5, 6), 3))
    decode((5, 6), np.uint8(3)).load_state_dict(state)
    with pytest.raises(DataError, match=r"size of the Decoder is \[5, 6\] .*; fill of the Decoder"):
        decode((6, 6), 4).load_state_dict(state)
