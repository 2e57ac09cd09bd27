"""Constants of a formula: along any axis, from any array; clip; the way back to integers."""

import functools
import itertools
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    Converter,
    DtypeError,
    LayoutkitError,
    ShapeError,
    collate,
    convert,
    plan,
)
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(2)

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 9, 8, 3)).astype(np.uint8)
FLOATS = RNG.normal(size=(2, 4, 5, 3)).astype(np.float32)
SIZES = dict(zip("bhwc", IMAGES.shape, strict=True))
IMAGENET = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
PATTERNS = ("bhwc->bchw", "bhwc->bhwc", "bhwc->chwb", "bhwc->b(hwc)", "bhwc->cwhb")


def patterns(dtype, usual):
    """Return all patterns for the usual dtype, and one that only casts for other dtypes."""
    return PATTERNS if dtype == usual else PATTERNS[1:2]


# --- along an axis --------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("axis", "bhwc")
def test_mean_and_std_along_any_axis(pattern, axis):
    count = SIZES[axis]
    mean = np.linspace(-3, 90, count).tolist()
    std = np.linspace(0.5, 4, count).tolist()
    for constants in (
        {"mean": {axis: mean}},
        {"mean": {axis: mean}, "std": {axis: std}},
        {"mean": 2.0, "std": {axis: std}, "scale": 0.5},
    ):
        got = convert(IMAGES, pattern, **constants)
        np.testing.assert_allclose(
            got, reference_convert(IMAGES, pattern, **constants), rtol=2e-6, atol=1e-5
        )


@given(st.permutations("bhwc"), st.sampled_from("bhwc"), st.data())
def test_mean_along_any_axis_of_any_layout(order, axis, data):
    left = "".join(data.draw(st.permutations("bhwc")))
    right = "".join(order)
    sizes = {letter: data.draw(st.integers(1, 9)) for letter in "bhwc"}
    x = RNG.integers(0, 256, [sizes[letter] for letter in left]).astype(np.uint8)
    mean = {axis: RNG.integers(0, 9, sizes[axis]).tolist()}
    pattern = f"{left}->{right}"
    np.testing.assert_array_equal(
        convert(x, pattern, mean=mean), reference_convert(x, pattern, mean=mean)
    )


@pytest.mark.budget(4)
@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "u8"])
def test_clip_at_the_bounds_of_an_integer_dtype(dtype):
    """Test bounds at, beside and beyond the limits of the dtype; clipping alone does not round.

    Bounds that no value of the dtype fulfils are an error.
    """
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    ends = [low, low + 1, low + 2, 5, high - 2, high - 1, high]
    x = np.array(ends, dtype)
    beyond = [low - 300, low - 1, high + 1, high + 300]
    for bounds in itertools.combinations(sorted({*ends, *beyond}), 2):
        if bounds[0] > high or bounds[1] < low:
            with pytest.raises(ArgumentError, match=f"values are {low} to {high}: none is"):
                convert(x, "b->b", clip=bounds)
            continue
        wanted = [min(max(value, bounds[0]), bounds[1]) for value in ends]
        wanted = [min(max(value, low), high) for value in wanted]
        assert convert(x, "b->b", clip=bounds).tolist() == wanted, bounds


REVERSED = [(), ("h",), ("w",), ("c",)]
GAPS = [(), (..., slice(0, -1)), (slice(None), slice(None), slice(None, None, 2))]


@pytest.mark.budget(0)
@pytest.mark.parametrize("pattern", ["bhwc->bhwc", "bhwc->bchw"])
@pytest.mark.parametrize("axis", "bhwc")
def test_constants_with_channels_reversal_and_gaps(axis, pattern):
    """Combine all options; the memory between the elements of `out` is unchanged."""
    products = itertools.product([None, (2, 1, 0), (0, 2)], REVERSED, GAPS)
    x = RNG.integers(0, 99, (2, 3, 70, 3), dtype=np.uint8)
    for order, backward, gaps in products:
        seen = x[tuple(slice(None, None, -1 if name in backward else 1) for name in "bhwc")]
        few = seen if order is None else seen[..., list(order)]
        count = few.shape["bhwc".index(axis)]
        along = np.arange(1.0, count + 1).reshape([-1 if name == axis else 1 for name in "bhwc"])
        expected = (few - along).transpose(["bhwc".index(name) for name in pattern[-4:]])
        room = np.full(shape_with_gaps(expected.shape, gaps), 777, np.float32)
        wanted = room.copy()
        wanted[gaps] = expected
        mean = {axis: along.ravel().tolist()}
        convert(seen, pattern, channels=order, mean=mean, dtype="f4", out=room[gaps])
        np.testing.assert_array_equal(room, wanted, str((order, backward, gaps)))


def shape_with_gaps(shape, gaps):
    """Return the shape of an array whose `array[gaps]` has this shape."""
    if gaps and gaps[0] is ...:
        return (*shape[:-1], shape[-1] + 1)
    return (*shape[:2], 2 * shape[2], *shape[3:]) if gaps else shape


def test_constants_along_the_axis_around_a_short_run():
    """Keep the short h of the result apart from c, beside it, along which constants vary."""
    x = RNG.normal(size=(4, 8, 64)).astype(np.float32)
    mean = np.arange(1, 5, dtype=np.float32)
    np.testing.assert_array_equal(
        convert(x, "chw->wch", mean=mean), (x - mean[:, None, None]).transpose(2, 0, 1)
    )


@pytest.mark.parametrize("gap", [0, 1])
def test_constants_of_short_rows(gap):
    """Store short rows one by one if each of them has its own constant."""
    x = RNG.integers(0, 99, (64, 128, 49 + gap), dtype=np.int16)[..., :49]
    mean = np.arange(128, dtype=np.float32)
    np.testing.assert_array_equal(convert(x, "bcw->bcw", mean=mean), x - mean[:, None])


def test_an_axis_by_its_name_and_in_capitals():
    x = IMAGES[0, :, :, 0]
    wanted = x - np.arange(9, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(
        convert(x, "time band -> time band", mean={"time": range(9)}), wanted
    )
    np.testing.assert_array_equal(convert(x, "TF->TF", mean={"T": np.arange(9)}), wanted)


def test_one_constant_a_sample_in_folds_and_backward_memory():
    mean = {"b": [1, 2, 3, 4]}
    wanted = IMAGES.astype("f4") - np.arange(1, 5, dtype="f4")[:, None, None, None]
    np.testing.assert_array_equal(convert(IMAGES, "bhwc->bf", mean=mean), wanted.reshape(4, -1))
    np.testing.assert_array_equal(
        convert(IMAGES[::-1], "bhwc->bchw", mean=mean),
        (IMAGES[::-1].astype("f4") - np.arange(1, 5, dtype="f4")[:, None, None, None]).transpose(
            0, 3, 1, 2
        ),
    )
    assert "'b': (1.0, 2.0, 3.0, 4.0)" in repr(Converter("bhwc->bf", mean=mean))


@pytest.mark.budget(0)
def test_gradients_are_scaled_along_the_axis():
    std = {"w": np.linspace(0.5, 4, 5).tolist()}
    converter = Converter("bhwc->bchw", scale=2.0, std=std)
    grad = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    wanted = grad.transpose(0, 2, 3, 1) * 2 / np.array(std["w"], "f4")[:, None]
    np.testing.assert_allclose(converter.backward(grad), wanted, rtol=1e-6)
    again = pickle.loads(pickle.dumps(converter))
    np.testing.assert_array_equal(again(FLOATS), converter(FLOATS))


REFUSED = [
    ({"mean": {"q": [1]}}, ShapeError, "mean is along axis q, which neither layout has"),
    ({"mean": {"w": [1, 2]}}, ShapeError, "mean has 2 values and axis w has size 5"),
    ({"mean": {"w": [1], "h": [2]}}, ArgumentError, "a dict has one axis"),
    ({"mean": {}}, ArgumentError, "a dict has one axis"),
    ({"mean": {3: [1]}}, ArgumentError, "a dict has one axis"),
    ({"mean": {"w": [[1]]}}, ShapeError, 'mean["w"] is [[1]]'),
    ({"mean": {"w": ["a"] * 5}}, ArgumentError, "finite real number"),
    ({"mean": [1, 2, 3], "std": {"w": [1] * 5}}, ArgumentError, "mean is along axis c and std"),
    ({"std": {"w": [1, 1, 0, 1, 1]}}, ArgumentError, "would divide by zero"),
    ({"scale": [1, 2, 3]}, ArgumentError, "scale is (1, 2, 3); give a finite real number; std"),
    ({"scale": {"w": [1] * 5}}, ArgumentError, "scale is {'w': (1.0, 1.0, 1.0, 1.0, 1.0)}; give"),
    ({"clip": (3, 1)}, ArgumentError, "which contains no number"),
    ({"clip": 5}, ArgumentError, "give (lo, hi)"),
    ({"clip": (None, None)}, ArgumentError, "give (lo, hi)"),
    ({"clip": (1, 2, 3)}, ArgumentError, "give (lo, hi)"),
    ({"clip": (0, float("nan"))}, ArgumentError, "finite real number"),
    ({"clip": ("1", 2)}, ArgumentError, "finite real number"),
]


@pytest.mark.parametrize(("constants", "error", "words"), REFUSED)
def test_refused_before_anything_is_written(constants, error, words):
    out = np.full((2, 3, 4, 5), 7, np.float32)
    for _ in range(2):
        with pytest.raises(error, match=re.escape(words)):
            convert(FLOATS, "bhwc->bchw", out=out, **constants)
    assert (out == 7).all()


def test_where_there_is_no_c_the_error_names_the_dict():
    with pytest.raises(ShapeError, match=re.escape('mean={"f": [...]}')):
        convert(FLOATS[..., 0], "bhw->bwh", mean=[1, 2, 3])
    with pytest.raises(ShapeError, match="neither layout has once f is spelled out"):
        convert(FLOATS, "bhwc->bf", mean={"f": [1] * 60})


# --- objects that hold numbers --------------------------------------------------------


class Holder:
    """An object with `__array__` that hashes by identity, as tensors do."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)

    def __array__(self, dtype=None, copy=None):
        return self.values


def holders():
    """Yield objects that hold three numbers, and these numbers as a list."""
    torch = pytest.importorskip("torch")
    jnp = pytest.importorskip("jax.numpy")
    mean = np.float32(IMAGENET["mean"])
    half = mean.astype(ml_dtypes.bfloat16)
    single = mean.tolist()
    short = half.astype("f4").tolist()
    yield Holder(mean), single
    yield tuple(Holder(value) for value in mean), single
    yield list(mean), single
    yield half, short
    yield torch.tensor(mean), single
    yield torch.tensor(mean).bfloat16(), short
    yield jnp.asarray(mean), single
    yield jnp.asarray(half), short


def test_constants_of_every_array():
    for mean, numbers in holders():
        wanted = convert(FLOATS, "bhwc->bchw", mean=numbers)
        for constants in (mean, {"c": mean}):
            np.testing.assert_array_equal(
                convert(FLOATS, "bhwc->bchw", mean=constants), wanted, err_msg=repr(mean)
            )
        np.testing.assert_array_equal(Converter("bhwc->bchw", mean=mean)(FLOATS), wanted)


def test_an_array_that_changes_is_read_anew():
    held = Holder([1, 2, 3])
    before = convert(FLOATS, "bhwc->bchw", mean=held)
    held.values += 1
    np.testing.assert_allclose(before - convert(FLOATS, "bhwc->bchw", mean=held), 1, rtol=1e-5)
    parts = tuple(Holder(value) for value in (1, 2, 3))
    before = convert(FLOATS, "bhwc->bchw", mean=parts)
    parts[0].values += 1
    after = convert(FLOATS, "bhwc->bchw", mean=parts)
    np.testing.assert_allclose((before - after)[:, 0], 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["scale", "mean", "std", "clip"])
def test_a_tensor_that_changes_is_read_anew(name):
    """Read the values on every call: tensors are hashable, but by identity."""
    torch = pytest.importorskip("torch")
    low, number = torch.tensor(1.0), torch.tensor(2.0)
    constants = {name: (low, number) if name == "clip" else number}
    convert(FLOATS + 5, "bhwc->bchw", **constants)
    number += 2
    wanted = convert(FLOATS + 5, "bhwc->bchw", **{name: (1, 4) if name == "clip" else 4})
    np.testing.assert_array_equal(convert(FLOATS + 5, "bhwc->bchw", **constants), wanted)


def test_a_mean_that_requires_a_gradient_gets_it_or_is_refused():
    torch = pytest.importorskip("torch")
    mean = torch.ones(3, requires_grad=True)
    convert(torch.tensor(FLOATS), "bhwc->bchw", mean=mean).sum().backward()
    assert mean.grad.tolist() == [-40.0] * 3
    with pytest.raises(ArgumentError, match="mean is traced by torch or requires its gradient"):
        convert(FLOATS, "bhwc->bchw", mean=mean)
    with pytest.raises(ArgumentError, match="invert with numbers"):
        Converter("bhwc->bchw", mean=mean).inverse()


def test_constants_that_jax_traces_are_operands():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    mean, std = (np.array(IMAGENET[name], np.float32) for name in ("mean", "std"))

    def normalize(x, mean, std):
        return convert(x, "bhwc->bchw", scale=2.0, mean=mean, std=std, clip=(-1, 1))

    wanted = convert(FLOATS, "bhwc->bchw", scale=2.0, mean=mean, std=std, clip=(-1, 1))
    got = jax.jit(normalize)(FLOATS, mean, std)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    held = jnp.asarray(FLOATS)
    got = jax.jit(lambda m, s: normalize(held, m, s))(mean, std)  # x is not traced
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda m: normalize(held, m, std).sum())(jnp.asarray(mean))
    np.testing.assert_allclose(slope, -40 / std, rtol=1e-5)
    got = jax.jit(lambda x, m: convert(x, "bhwc->bhwc", mean=m, std=[1, 2, 4]))(FLOATS, 0.5)
    np.testing.assert_allclose(got, (FLOATS - 0.5) / np.float32([1, 2, 4]), rtol=1e-6)
    with pytest.raises(ShapeError, match="mean has 2 values and axis c has size 3"):
        jax.jit(normalize)(FLOATS, mean[:2], std)
    with pytest.raises(ArgumentError, match="mean is traced by jax or requires its gradient"):
        jax.jit(lambda m: convert(FLOATS, "bhwc->bchw", mean=m))(mean)


@pytest.mark.parametrize(
    "constants",
    [
        {"mean": {"w": list(range(8))}},
        {"std": {"b": [1, 2, 3, 4]}},
        {"clip": (10, 200)},
        {"clip": (10, 200), **IMAGENET},
        {"clip": (0.5, None), "dtype": "float32"},
    ],
)
def test_jax_computes_the_same(constants):
    jax = pytest.importorskip("jax")
    wanted = convert(IMAGES, "bhwc->bchw", **constants)
    got = jax.jit(lambda x: convert(x, "bhwc->bchw", **constants))(IMAGES)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


# --- clip -----------------------------------------------------------------------------

CLIPS = [(10, 200), (None, 99), (50, None), (-5, 1000), (7, 7)]
CLIPS_OF_FLOATS = [(3, 40), (-2.5, 17.25), (None, 0)]


@pytest.mark.budget(0)
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "i4", "i8", "u8", ">i2"])
def test_integers_that_are_only_clipped_stay_what_they_are(dtype, clip):
    x = RNG.integers(0, 120 if dtype == "i1" else 256, (3, 33, 5, 3)).astype(dtype)
    for pattern in patterns(dtype, "u1"):
        got = convert(x, pattern, clip=clip)
        wanted = reference_convert(x, pattern, clip=clip)
        assert got.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(got, wanted)


def test_integers_beyond_floats_are_clipped_exactly():
    x = np.array([2**62 + 1, 2**62 + 2, -(2**62) - 1, 5], np.int64)
    got = convert(x, "b->b", clip=(-(2**62), 2**62 + 1))
    assert got.tolist() == [2**62 + 1, 2**62 + 1, -(2**62), 5]
    assert convert(x[:2], "b->b", clip=(0, 2**62), dtype="i8").tolist() == [2**62] * 2
    assert convert(np.uint64([2**64 - 1]), "b->b", clip=(0, 2**64 - 2)).tolist() == [2**64 - 2]


CLIPPED = ["f4", ">f4", "g", "u1", "f8", "i2", "f2", ml_dtypes.bfloat16]
# Each pair needs at least one kernel. Constants: none, one per channel, one per column.
CONSTANTS = [({}, CLIPPED[:5]), (IMAGENET, CLIPPED), ({"mean": {"w": list(range(7))}}, CLIPPED[:4])]


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("source", "constants"),
    [(source, constants) for constants, sources in CONSTANTS for source in sources],
)
def test_clip_comes_before_the_formula(source, constants):
    x = (RNG.integers(0, 250, (2, 65, 7, 3)) - (0 if source == "u1" else 90)).astype(source)
    wide = "f8" if source in ("f8", "g") else "f4"
    for clip, pattern in itertools.product(CLIPS_OF_FLOATS, patterns(source, "f4")):
        keywords = {"clip": clip, "dtype": wide, **constants}
        got = convert(x, pattern, **keywords)
        wanted = reference_convert(x, pattern, **keywords)
        np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=1e-5)


@pytest.mark.budget(0)
def test_clip_of_long_runs_and_ragged_ends():
    x = RNG.normal(size=(3, 70001)).astype("f4")
    np.testing.assert_array_equal(convert(x, "bc->bc", clip=(-1, 1)), np.clip(x, -1, 1))
    np.testing.assert_array_equal(
        convert(x[:, 1:], "bc->cb", clip=(-1, 1)), np.clip(x[:, 1:], -1, 1).T
    )
    mean = RNG.normal(size=70001)
    np.testing.assert_allclose(
        convert(x, "bc->bc", clip=(-1, 1), mean=mean), np.clip(x, -1, 1) - mean, atol=1e-6
    )


def test_nan_stays_and_infinities_are_clipped():
    x = np.array([np.nan, np.inf, -np.inf, 0.5, -0.0], "f4")
    got = convert(x, "b->b", clip=(-1, 2))
    np.testing.assert_array_equal(got, np.clip(x, -1, 2))
    assert np.signbit(got[4])


def test_clip_saturates_and_rounds_as_casts_do():
    x = np.array([-300.0, -1.5, 2.5, 900], "f4")
    got = convert(x, "b->b", clip=(-1000, 254.6), dtype="u1", casting="saturate")
    assert got.tolist() == [0, 0, 2, 255]
    got = convert(np.int16([-300, 5, 900]), "b->b", clip=(-10, 600), dtype="i1", casting="saturate")
    assert got.tolist() == [-10, 5, 127]


@pytest.mark.budget(0)
def test_whole_numbers_for_integers():
    with pytest.raises(DtypeError, match=r"clip=\(0\.5, 3\) of uint8 x.*give whole numbers"):
        convert(IMAGES, "bhwc->bchw", clip=(0.5, 3))
    got = convert(IMAGES, "bhwc->bchw", clip=(0.5, 3), dtype="float32")
    np.testing.assert_array_equal(got, np.clip(IMAGES.astype("f4"), 0.5, 3).transpose(0, 3, 1, 2))
    assert convert(IMAGES, "bhwc->bchw", clip=(0, 3), scale=1).dtype == np.float32


@pytest.mark.parametrize("keywords", [{}, {"dtype": "int16"}, {"dtype": "float32"}, {"scale": 2}])
@pytest.mark.parametrize("clip", [(300, 400), (None, -1), (256, None)])
def test_bounds_that_no_value_of_an_integer_dtype_lies_between(clip, keywords):
    keywords = {"clip": clip, **keywords}
    message = r"clip=\(.*\) of uint8 x, whose values are 0 to 255: none is between the bounds"
    calls = [
        lambda: convert(IMAGES, "bhwc->bchw", **keywords),
        lambda: plan("bhwc->bchw", IMAGES.shape, "uint8", **keywords),
        lambda: Converter("bhwc->bchw", pad_to={"h": 99}, **keywords)(IMAGES),
        lambda: collate(list(IMAGES), "hwc->bchw", **keywords),
        lambda: collate(list(IMAGES), "hwc->bchw", h=2, w=2, resize="bilinear", **keywords),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=message):
            call()
    assert convert(IMAGES.astype("f4"), "bhwc->bchw", **keywords | {"dtype": "f4"}).size  # valid


def test_tracers_refuse_such_bounds():
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    converter = Converter("bhwc->bchw", clip=(300, 400), dtype="float32")
    with pytest.raises(ArgumentError, match="none is between the bounds"):
        jax.jit(converter)(jax.numpy.asarray(IMAGES))
    meta = torch.empty(IMAGES.shape, dtype=torch.uint8, device="meta")
    with pytest.raises(ArgumentError, match="none is between the bounds"):
        converter(meta)


def test_plans_and_converters_say_clip():
    text = str(plan("bhwc->bchw", IMAGES.shape, "uint8", clip=(0, 9)))
    assert "clip(x, 0, 9) in uint8, as it passes" in text
    text = str(plan("bhwc->bchw", IMAGES.shape, "uint8", clip=(0, None), scale=2))
    assert "(clip(x, 0, inf) * scale - mean) / std in float32" in text
    converter = Converter("bhwc->bchw", clip=[0, None])
    assert repr(converter) == 'Converter("bhwc->bchw", clip=(0, None))'
    again = pickle.loads(pickle.dumps(converter))
    np.testing.assert_array_equal(again(FLOATS), np.maximum(FLOATS, 0).transpose(0, 3, 1, 2))


# --- gradients under clip -------------------------------------------------------------


def clipped_gradient(grad, x, low, high, factor):
    return np.where((x < low) | (x > high), 0, grad.transpose(0, 2, 3, 1) * factor).astype("f4")


@pytest.mark.parametrize("constants", [{}, {"scale": 2.0, "std": IMAGENET["std"]}])
def test_gradients_are_zero_outside_of_the_window(constants):
    converter = Converter("bhwc->bchw", clip=(-0.5, 0.5), **constants)
    x = FLOATS.copy()
    grad = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    x[0, 0, 0] = [0.5, -0.5, 0.6]  # gradients pass at the bounds
    factor = np.float32(1) if not constants else np.float32(2) / np.float32(IMAGENET["std"])
    wanted = clipped_gradient(grad, x, -0.5, 0.5, factor)
    assert wanted[0, 0, 0].tolist()[2] == 0 != wanted[0, 0, 0].tolist()[0]
    np.testing.assert_allclose(converter.backward(grad, like=x), wanted, rtol=1e-6)
    out = np.empty_like(x)
    assert converter.backward(grad, like=x, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    tensor = torch.tensor(x, requires_grad=True)
    converter(tensor).backward(torch.tensor(grad))
    np.testing.assert_allclose(tensor.grad, wanted, rtol=1e-6)
    _, back = jax.vjp(converter, x)
    np.testing.assert_allclose(back(jax.numpy.asarray(grad))[0], wanted, rtol=1e-6)


def test_the_callers_gradient_is_not_written_into():
    grad = np.ones((2, 3), "f4")
    got = Converter("bc->bc", clip=(0, 1)).backward(grad, like=np.float32([[2, 0.5, 1]] * 2))
    assert (grad == 1).all()
    assert got.tolist() == [[0, 1, 1]] * 2


def test_gradients_under_clip_want_x():
    converter = Converter("bc->cb", clip=(0, 1))
    x = np.ones((2, 3), "f4")
    grad = np.ones((3, 2), "f4")
    out = np.full((2, 3), 7, "f4")
    for like in (None, converter.spec_of(x)):
        with pytest.raises(ArgumentError, match=r"pass backward\(grad, like=x\)"):
            converter.backward(grad, like=like, out=out)
    assert (out == 7).all()


def test_torch_notices_an_x_that_was_changed():
    torch = pytest.importorskip("torch")
    leaf = torch.ones(2, 3, requires_grad=True)
    x = leaf * 2
    y = convert(x, "bc->cb", clip=(0, 1))
    with torch.no_grad():
        x.mul_(0)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


# --- the inverse ----------------------------------------------------------------------


@pytest.mark.budget(0)
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
@pytest.mark.parametrize(
    "constants",
    [
        IMAGENET,
        {"scale": 1 / 255},
        {"mean": 3},
        {"std": -2.5},
        {"scale": 3.0, "mean": {"b": [1, 2, 3, 4]}, "std": {"b": [1, 2, 3, -4]}},
        {"mean": [1, 2, 3], "std": 4.0},
    ],
    ids=str,
)
def test_integers_come_back_exactly(dtype, constants):
    check_inverse(dtype, constants)


@pytest.mark.budget(0)
def test_integers_come_back_from_constants_along_other_axes():
    check_inverse("u1", {"mean": {"w": list(range(8))}})


def check_inverse(dtype, constants):
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max + 1, (4, 9, 8, 3)).astype(dtype)
    for pattern in patterns(dtype, "u1")[:3]:
        converter = Converter(pattern, **constants)
        back = converter.inverse(dtype)
        np.testing.assert_array_equal(back(converter(x)), x)
        floats = converter.inverse()(converter(x))
        assert floats.dtype == np.float32
        np.testing.assert_allclose(floats, x, rtol=1e-5, atol=0.05)


def test_an_inverse_rounds_and_saturates():
    normalize = Converter("bc->cb", scale=1 / 255, mean=0.5, std=0.5)
    y = np.array([[-9.0, 0.0, 0.003, 9.0]], "f4").T
    assert normalize.inverse("uint8")(y.T.copy()).tolist() == [[0], [128], [128], [255]]


def test_what_an_inverse_leaves():
    assert Converter("bhwc->bchw", clip=(0, 1)).inverse().pattern == "bchw->bhwc"
    flat = Converter("bhwc->bf", scale=2.0, h=9, w=8)
    np.testing.assert_array_equal(flat.inverse("uint8")(flat(IMAGES)), IMAGES)
    with pytest.raises(ArgumentError, match="scale is 0"):
        Converter("bc->cb", scale=0).inverse()
    plain = Converter("bhwc->bchw", dtype="float32").inverse("uint8")
    np.testing.assert_array_equal(plain(convert(IMAGES, "bhwc->bchw", dtype="f4")), IMAGES)


# --- pattern by keyword ---------------------------------------------------------------


def test_a_pattern_by_keyword():
    to_planes = functools.partial(convert, pattern="bhwc->bchw", scale=1 / 255)
    np.testing.assert_array_equal(to_planes(IMAGES), convert(IMAGES, "bhwc->bchw", scale=1 / 255))
    x = np.ones((2, 3, 1))
    assert convert(x, pattern="bhx->xbh", x=1).shape == (
        1,
        2,
        3,
    )  # x= is a size here
    with pytest.raises(TypeError, match="pattern"):
        convert(x, "bhw->bhw", pattern="bhw->bhw")
    with pytest.raises(LayoutkitError):
        convert(x, pattern=3)


@pytest.mark.parametrize("axis", ["c", "x"])
def test_one_number_along_an_axis_is_an_error(axis):
    x = np.zeros((1, 2, 2, 3), np.uint8)
    with pytest.raises(ArgumentError, match=r"one number along an axis; give mean=2, or"):
        convert(x, "bhwc->bchw", dtype="float32", mean={axis: 2})
    with pytest.raises(ArgumentError, match=r"one number along an axis; give std=2, or"):
        convert(x, "bhwc->bchw", dtype="float32", std={axis: 2})
