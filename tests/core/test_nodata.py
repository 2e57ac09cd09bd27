"""`resize=..., ignore=value`: missing pixels are omitted from averages."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layoutkit
from layoutkit import Collator, collate, convert
from layoutkit.spec import as_dtype
from tests.helpers.arrays_of import assert_same
from tests.helpers.resizing import FILTERS, along, weights

pytestmark = pytest.mark.budget(4)

RNG = np.random.default_rng(0)
NAN = float("nan")


def resize_valid(x, sizes, name, ignore, fill, *, antialias=True):
    """Return x (h, w, ...) resized along h and w without ignored pixels: the float64 reference."""
    is_valid = ~np.isnan(x) if np.isnan(ignore) else x != ignore
    total, weight = np.where(is_valid, x, 0).astype(np.float64), is_valid.astype(np.float64)
    for axis, size in enumerate(sizes):
        matrix = weights(name, antialias, x.shape[axis], size)
        total, weight = (along(matrix, values, axis) for values in (total, weight))
    least = 0.1 if name in ("bicubic", "lanczos") else 1e-9
    is_valid = weight > least
    return np.where(is_valid, total / np.where(is_valid, weight, 1), fill), np.abs(weight - least)


def make_tile(shape, ignore, dtype="float32", share=0.4):
    """Return a tile in which blocks and single pixels are missing."""
    x = RNG.integers(1, 200, shape).astype(dtype)
    x[RNG.random(shape) < share / 2] = ignore
    x[: shape[0] // 2, shape[1] // 3 :] = ignore
    return x


@st.composite
def tiles(draw):
    """Draw a tile, the value of its missing pixels, the size of the result and options."""
    dtype, ignore = draw(
        st.sampled_from(
            [("uint8", 0), ("int16", -999), ("float32", NAN), (">f4", -9999), ("float64", NAN)]
        )
    )
    sizes = draw(st.tuples(st.integers(1, 24), st.integers(1, 40)))
    shape = *draw(st.tuples(st.integers(1, 40), st.integers(1, 24))), draw(st.integers(1, 3))
    x = make_tile(shape, ignore, dtype, draw(st.sampled_from([0, 0.3, 1])))
    layout = draw(st.sampled_from(["as it is", "reversed", "in other order"]))
    if layout == "reversed":
        x = x[:, ::-1]
    elif layout == "in other order":
        x = np.asfortranarray(x)
    name = draw(st.sampled_from(FILTERS))
    antialias = name == "lanczos" or draw(st.booleans())
    return x, ignore, sizes, name, antialias, draw(st.sampled_from([None, -1]))


@pytest.mark.budget(0)
@given(tiles())
def test_results_are_averages_of_valid_pixels(tile):
    x, ignore, (h, w), name, antialias, fill = tile
    batch = collate(
        [x], "hwc->bchw", h=h, w=w, resize=name, ignore=ignore, antialias=antialias,
        fill=None if fill is None or x.dtype.kind == "u" else fill, dtype="float64",
    )  # fmt: skip
    given_fill = ignore if fill is None or x.dtype.kind == "u" else fill
    expected, margin = resize_valid(x, (h, w), name, ignore, given_fill, antialias=antialias)
    is_clear = margin > 1e-5  # elsewhere, rounding decides what is valid
    result = batch[0].transpose(1, 2, 0)
    np.testing.assert_allclose(result[is_clear], expected[is_clear], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", FILTERS)
def test_without_missing_pixels_results_are_those_without_ignore(name):
    photos = [RNG.integers(1, 256, shape, np.uint8) for shape in [(20, 30, 3), (33, 9, 3)]]
    options = {"h": 11, "w": 12, "resize": name, "dtype": "float32", "scale": 1 / 255}
    plain = collate(photos, "hwc->bchw", **options)
    batch = collate(photos, "hwc->bchw", ignore=0, **options)
    np.testing.assert_allclose(batch, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float64"])
def test_nearest_pixels_that_are_ignored_are_filled(dtype):
    labels = RNG.integers(0, 2, (20, 31)).astype(dtype)
    options = {"h": 9, "w": 8, "resize": "nearest", "flip": "w"}
    plain = collate([labels], "hw->bhw", **options)
    assert_same(collate([labels], "hw->bhw", ignore=1, **options), plain)
    filled = np.where(plain == 1, 0, plain).astype(dtype)
    assert_same(collate([labels], "hw->bhw", ignore=1, fill=0, **options), filled)


@given(
    st.sampled_from(
        [("uint8", 3), ("int64", -1), ("float16", 0), ("bfloat16", NAN), ("float32", -0.0),
         ("float64", NAN), ("float32", -9999), ("complex64", 0)]
    ),
    st.sampled_from(["hwc->bchw", "hwc->bhwc", "hwc->bwhc"]),
    st.tuples(st.integers(1, 70), st.integers(1, 90)),
    st.booleans(),
)  # fmt: skip
def test_ignored_items_are_equal_as_numbers(kind, pattern, sizes, flip):
    dtype, ignore = kind
    values = [ignore, 0, 7] if dtype in ("uint8", "int64") else [ignore, -0.0, 0, 5, np.inf, -1]
    x = RNG.choice(np.array(values), (40, 33, 3)).astype(as_dtype(dtype))
    options = {"h": sizes[0], "w": sizes[1], "resize": "nearest", "flip": {"c": flip}}
    fill = np.array([1, 2, 3], x.dtype)
    plain = collate([x], "hwc->bhwc", **options)
    is_ignored = plain != plain if np.isnan(ignore) else plain == ignore
    expected = np.where(is_ignored, fill[::-1] if flip else fill, plain)
    batch = collate([x], pattern, ignore=ignore, fill=(1, 2, 3), **options)
    assert_same(batch, convert(expected, f"bhwc->{pattern[5:]}"))


def test_crops_flips_channels_layouts_and_outputs():
    x = make_tile((30, 40, 3), -1)
    options = {"h": 10, "w": 8, "resize": "area", "ignore": -1, "fill": (5, 6, 7)}
    crop = {"crop": {"h": 20, "w": 24}, "offset": {"h": 3, "w": [1]}}
    part = np.stack(
        [resize_valid(x[3:23, 1:25, c], (10, 8), "area", -1, 5 + c)[0] for c in range(3)], -1
    )
    batch = collate([x], "hwc->bhwc", **options, **crop)
    np.testing.assert_allclose(batch[0], part, rtol=1e-5)
    mirrored = collate([x], "hwc->bhwc", flip="w", **options, **crop)
    np.testing.assert_allclose(mirrored[0], part[:, ::-1], rtol=1e-5)
    selected = collate([x], "hwc->bchw", channels=(2, 0), **options, **crop)
    np.testing.assert_allclose(selected[0], part[..., [2, 0]].transpose(2, 0, 1), rtol=1e-5)
    out = np.empty((1, 10, 8, 3), np.float32)
    assert collate([x], "hwc->bhwc", out=out, **options, **crop) is out
    assert_same(out, batch)


def test_positions_outside_of_samples_are_omitted():
    x = np.full((4, 6), 5, np.float32)
    padded = collate([x], "hw->bhw", h=6, w=6, resize="bilinear", fit="pad", ignore=-1, fill=2)
    assert padded[0, :, 0].tolist() == [2, 5, 5, 5, 5, 2]
    crop = {"crop": {"h": 8, "w": 6}, "offset": {"h": -3, "w": 0}}
    batch = collate([x], "hw->bhw", h=4, w=3, resize="area", ignore=-1, fill=2, **crop)
    assert batch[0, :, 0].tolist() == [2, 5, 5, 5]  # the second row is half outside


def test_rows_of_one_array():
    rows = np.stack([make_tile((9, 8), NAN) for _ in range(3)])
    options = {"h": 4, "w": 4, "resize": "area", "ignore": NAN}
    batch = collate(rows, "bhw->bhw", indices=[2, 0], **options)
    assert_same(batch, collate([rows[2], rows[0]], "hw->bhw", **options))


def test_a_batch_of_integers_is_rounded():
    x = np.array([[1, 2, 0, 0], [2, 2, 0, 9]], np.uint8)
    assert collate([x], "hw->bhw", h=1, w=2, resize="area", ignore=0).tolist() == [[[2, 9]]]


def test_options_are_stored_and_compared():
    collator = Collator("hw->bhw", h=4, w=4, resize="area", ignore=np.float32(NAN))
    assert collator == pickle.loads(pickle.dumps(collator))
    assert collator.to_dict()["ignore"] == "nan"
    others = [{}, {"ignore": 0}, {"ignore": NAN}, {"ignore": NAN, "fill": 0}]
    prints = [Collator("hw->bhw", h=4, w=4, resize="area", **x).fingerprint for x in others]
    assert len({*prints}) == 4
    assert collator.fingerprint == prints[2]


BAD = [
    ("uint8", {"ignore": 0}, "needs a filter"),
    ("uint8", {"resize": "area", "ignore": -9999}, "samples are uint8"),
    ("int16", {"resize": "area", "ignore": NAN}, "samples are int16"),
    ("uint8", {"resize": "area", "ignore": 1.5}, "samples are uint8"),
    ("float32", {"resize": "area", "ignore": "nodata"}, "give the number"),
    ("float32", {"resize": "area", "ignore": True}, "give the number"),
    (
        "float32",
        {"resize": "area", "ignore": NAN, "dtype": "uint8", "casting": "saturate"},
        "give fill=",
    ),
]


@pytest.mark.parametrize(("dtype", "options", "words"), BAD)
def test_what_cannot_be_ignored_is_an_error(dtype, options, words):
    with pytest.raises(layoutkit.ArgumentError, match=words):
        collate([np.ones((8, 8), dtype)], "hw->bhw", h=4, w=4, **options)


# ---- other libraries -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
def test_tensors_and_their_gradients(name):
    torch = pytest.importorskip("torch")
    x = make_tile((20, 18, 2), NAN)
    options = {"h": 7, "w": 9, "resize": name, "ignore": NAN, "fill": -1}
    expected = collate([x], "hwc->bchw", **options)
    tensor = torch.from_numpy(x.copy()).requires_grad_()
    for sample in (tensor.detach(), tensor):
        batch = collate([sample], "hwc->bchw", **options)
        np.testing.assert_allclose(batch.detach(), expected, rtol=1e-4, atol=1e-4)
    batch.sum().backward()
    assert torch.isfinite(tensor.grad).all()
    assert (tensor.grad[torch.from_numpy(np.isnan(x))] == 0).all()
    # A result is a mean of valid pixels: adding 1 to all of them adds 1 to it.
    assert tensor.grad.sum().item() == pytest.approx((expected != -1).sum(), rel=1e-3)


def test_compiled_functions_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(make_tile((20, 18), NAN))

    def shrink(x):
        return collate([x], "hw->bhw", h=7, w=9, resize="bilinear", ignore=NAN, fill=-1)

    compiled = torch.compile(shrink, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), shrink(x))


def test_arrays_of_jax_also_while_traced():
    jax = pytest.importorskip("jax")
    x = make_tile((20, 18), NAN)

    def shrink(x):
        return collate([x], "hw->bhw", h=7, w=9, resize="area", ignore=NAN, fill=-1)

    for function in (shrink, jax.jit(shrink)):
        batch = function(jax.numpy.asarray(x))
        assert isinstance(batch, jax.Array)
        np.testing.assert_allclose(np.asarray(batch), shrink(x), rtol=1e-5)
