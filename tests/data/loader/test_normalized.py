"""Batchers and providers that convert their rows by a Converter or a formula."""

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, DataError, ShapeError, convert
from layoutkit.data import ArrayProvider, sampled_batcher

RNG = np.random.default_rng(0)
PHOTOS = RNG.integers(0, 256, (10, 8, 6, 3)).astype(np.uint8)
SOURCE = {"x": PHOTOS, "y": np.arange(10)}
FORMULA = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406)}
PLANES = convert(PHOTOS, "bhwc->bchw", **FORMULA)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batcher_hands_out_what_a_converter_makes(num_workers):
    convert_rows = Converter("bhwc->bchw", **FORMULA)
    with sampled_batcher(
        SOURCE, batch_size=4, convert=convert_rows, num_workers=num_workers
    ) as batches:
        for _ in range(2):  # two epochs
            found = list(batches)
            assert [batch.input.layout for batch in found] == ["bchw"] * 3
            assert found[0].input.dtype == np.float32
            np.testing.assert_array_equal(
                np.concatenate([batch.input.input for batch in found]), PLANES
            )
            np.testing.assert_array_equal(
                np.concatenate([batch.target.input for batch in found]), np.arange(10)
            )


def test_the_batch_may_stand_anywhere_in_what_comes_out():
    with sampled_batcher(SOURCE, batch_size=5, convert=Converter("bhwc->chwb")) as batches:
        shapes = [batch.input.shape for batch in batches]
        rows = [len(batch.input) for batch in batches]
    assert shapes == [(3, 8, 6, 5)] * 2
    assert rows == [5, 5]


PLANAR = Converter("bhwc->bchw")


@pytest.mark.parametrize("make", [sampled_batcher, ArrayProvider])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"convert": 3}, "convert is 3; give a Converter"),
        ({"convert": PLANAR, "layout": "bchw"}, "but convert needs bhwc"),
    ],
)
def test_a_converter_that_does_not_fit(make, arguments, words):
    with pytest.raises(DataError, match=words):
        make(PHOTOS, batch_size=4, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"convert": PLANAR, "mean": 3}, DataError, "convert or mean, not both"),
        ({"layout": "bhwc", "mean": "x"}, ArgumentError, "finite real number"),
        ({"layout": "bhwc", "clip": (2, 1)}, ArgumentError, "which contains no number"),
    ],
)
def test_constants_of_a_provider_that_are_none(arguments, error, words):
    with pytest.raises(error, match=words):
        ArrayProvider(PHOTOS, batch_size=4, **arguments)


def test_rows_begin_with_their_batch():
    with pytest.raises(DataError, match="rows begin with b"):
        sampled_batcher(SOURCE, batch_size=4, convert=Converter("hwcb->bhwc"))


@pytest.mark.parametrize("pattern", ["bchw->bhwc", "n c h w -> n h w c"])
def test_decoded_images_are_converted_from_their_own_layout(tmp_path, pattern):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match=r"images are bhwc, .* begin its pattern with bhwc"):
        sampled_batcher(tmp_path, batch_size=1, size=(8, 6), convert=Converter(pattern))
    for other in ("bhwc->bchw", "byxc->bcyx", "b(hp)wc->bhwpc"):
        sampled_batcher(tmp_path, batch_size=1, size=(8, 6), convert=Converter(other)).close()


def test_a_provider_provides_what_a_converter_makes():
    provider = ArrayProvider(
        PHOTOS, np.arange(10), batch_size=4, padding=7, convert=Converter("bhwc->bchw", **FORMULA)
    )
    assert provider.provide_data == [("data", (4, 3, 8, 6))]
    assert provider.provide_label == [("label", (4,))]
    found = list(provider)
    np.testing.assert_array_equal(
        np.concatenate([batch.input.input for batch in found])[:10], PLANES
    )
    assert (found[-1].input.input[2:] == 7).all()  # the value of padding is not normalized
    target = np.zeros((4, 3, 8, 6), np.float32)
    provider.load_data(found[0], [target])
    np.testing.assert_array_equal(target, PLANES[:4])


def test_a_provider_converts_what_is_named_or_all_data():
    arrays = {"image": PHOTOS, "mask": PHOTOS[..., 0]}
    layouts = {"image": "bhwc", "mask": "bhw"}
    named = ArrayProvider(
        arrays, batch_size=10, layout=layouts, convert={"image": Converter("bhwc->bchw")}
    )
    assert named.provide_data == [("image", (10, 3, 8, 6)), ("mask", (10, 8, 6))]
    halved = ArrayProvider(arrays, np.arange(10), batch_size=10, layout=layouts, scale=0.5)
    batch = next(iter(halved))
    np.testing.assert_array_equal(halved.get(batch, "mask").input, PHOTOS[..., 0] * np.float32(0.5))
    np.testing.assert_array_equal(halved.get(batch, "label").input, np.arange(10))
    with pytest.raises(DataError, match="convert names 'images', but the arrays are"):
        ArrayProvider(arrays, layout=layouts, convert={"images": Converter("bhwc->bchw")})
    with pytest.raises(ShapeError, match="mean has 2 values"):
        ArrayProvider(PHOTOS, layout={"data": "bhwc"}, mean=[1, 2])
