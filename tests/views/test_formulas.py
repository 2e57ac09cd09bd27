"""A formula in a get: computed in the same pass, cached, and applied to gradients."""

import re

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    BackwardError,
    ClassView,
    DataView,
    DtypeError,
    ImageView,
    ListView,
    ShapeError,
    VectorSpace,
    ViewError,
    convert,
)

RNG = np.random.default_rng(0)
PHOTOS = RNG.integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)
FORMULA = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def test_a_get_computes_what_convert_does_and_is_kept():
    view = ImageView("bhwc", PHOTOS)
    first = view.forward_get("bchw", "float32", **FORMULA)
    np.testing.assert_array_equal(first, convert(PHOTOS, "bhwc->bchw", dtype="f4", **FORMULA))
    assert view.forward_get("bchw", "float32", **FORMULA) is first
    assert view.forward_get("b c h w", np.float32, **FORMULA) is first
    lists = {name: np.array(value).tolist() for name, value in FORMULA.items()}
    arrays = {name: np.array(value) for name, value in FORMULA.items()}
    assert view.forward_get("bchw", None, **lists) is first  # float32 is the default of integers
    assert view.forward_get("bchw", "float32", **arrays) is first
    assert view.forward_get("bchw", "float32") is not first
    assert view.forward_get("bchw", "float32", **{**FORMULA, "scale": 1.0}) is not first
    again = RNG.integers(0, 256, (2, 6, 5, 3)).astype(np.uint8)
    view.forward_put("bhwc", again)  # another batch, of the same plans
    np.testing.assert_array_equal(
        view.forward_get("bchw", "float32", **FORMULA),
        convert(again, "bhwc->bchw", dtype="f4", **FORMULA),
    )


def test_clip_and_other_axes_and_the_bases_own_layout():
    view = DataView("bhwc", PHOTOS)
    clipped = view.forward_get(clip=(10, 99))
    assert clipped.dtype == np.uint8
    np.testing.assert_array_equal(clipped, PHOTOS.clip(10, 99))
    mean = {"w": [1, 2, 3, 4, 5]}
    np.testing.assert_array_equal(
        view.forward_get("bf", mean=mean), convert(PHOTOS, "bhwc->bf", mean=mean)
    )
    assert view.forward_get() is PHOTOS
    with pytest.raises(ShapeError, match="mean has 2 values"):
        view.forward_get("bchw", mean=[1, 2])
    with pytest.raises(ArgumentError, match="finite real number"):
        view.forward_get("bchw", mean="x")
    with pytest.raises(DtypeError, match=r"use convert\(view.input, .*saturate"):
        view.forward_get("bchw", "uint8", scale=2)
    assert "scale=2.0" in repr(view) or "got" in repr(view)


def test_what_a_get_says_of_itself():
    view = ImageView("bhwc", PHOTOS)
    view.forward_get("bchw", "float32", scale=0.5, clip=(0, 9))
    assert "bchw float32 scale=0.5 mean=0.0 std=1.0 clip=(0, 9)" in repr(view)


def test_gradients_are_scaled_back():
    view = ImageView("bhwc", PHOTOS)
    view.forward_get("bchw", "float32", **FORMULA)
    grad = RNG.normal(size=(4, 3, 6, 5)).astype(np.float32)
    view.backward_put("bchw", grad)
    factor = np.float32(FORMULA["scale"]) / np.float32(FORMULA["std"])
    wanted = grad.transpose(0, 2, 3, 1) * factor
    np.testing.assert_allclose(view.backward_get(), wanted, rtol=1e-5)
    view.forward_get("bf", "float32")
    flat = RNG.normal(size=(4, 90)).astype(np.float32)
    view.backward_put("bf", flat)
    np.testing.assert_allclose(
        view.backward_get(), wanted + flat.reshape(PHOTOS.shape), rtol=1e-4, atol=1e-6
    )


def test_gradients_of_several_formulas_say_which():
    view = DataView("bc", np.ones((2, 3), np.float32))
    grad = np.ones((2, 3), np.float32)
    view.forward_get("bc", scale=2)
    view.backward_put("bc", grad)  # the only thing that was got
    assert (view.backward_get() == 2).all()
    view.forward_get("bc", scale=3)
    view.forward_get("bc")
    with pytest.raises(BackwardError, match="several formulas fit; say which"):
        view.backward_put("bc", grad)
    view.backward_put("bc", grad, scale=3)
    view.backward_put("bc", grad, scale=1)
    assert (view.backward_get() == 6).all()
    with pytest.raises(BackwardError, match="no result of this batch matches it"):
        view.backward_put("bc", grad, scale=4)


def test_a_gradient_belongs_to_the_result_of_its_dtype_before_an_integer_one():
    view = DataView("bhwc", PHOTOS)
    view.forward_get("bchw")
    result = view.forward_get("bchw", "float32", scale=0.5)
    view.backward_put("bchw", np.ones_like(result))
    assert (view.backward_get() == 0.5).all()
    view.backward_put("bchw", np.ones_like(result), scale=1)  # the integer result
    assert (view.backward_get() == 1.5).all()


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_gradients_under_clip_are_zero_outside(dtype):
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    view = DataView("bwc", x)
    grad = np.ones((2, 4, 3), np.float32)
    view.forward_get("bcw", clip=(-0.5, 0.5), scale=2)
    view.backward_put("bcw", grad)
    wanted = np.where(np.abs(x) > 0.5, 0, 2).astype(dtype or "f4")
    got = view.backward_get(None, dtype)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    view.backward_put("bwc", np.ones_like(x))
    np.testing.assert_array_equal(view.backward_get(None, dtype), wanted + 1)


def test_tensors_and_arrays_of_jax():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    wanted = convert(PHOTOS, "bhwc->bchw", dtype="f4", **FORMULA)
    constants = {name: torch.tensor(value) for name, value in FORMULA.items()}
    for make in (torch.tensor, jax.numpy.asarray):
        view = ImageView("bhwc", make(PHOTOS))
        got = view.forward_get("bchw", "float32", **constants)
        assert type(got).__module__.partition(".")[0] in ("torch", "jaxlib", "jax")
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)
        assert view.forward_get("bchw", "float32", **constants) is got
        view.backward_put("bchw", make(np.ones((4, 3, 6, 5), np.float32)))
        scaled = np.asarray(view.backward_get())
        np.testing.assert_allclose(scaled[0, 0, 0], 1 / 255 / np.array(FORMULA["std"]), rtol=1e-5)


def test_windows_and_samples_have_the_same_plans():
    view = ImageView("bhwc", PHOTOS)
    for part in view.batches(2):
        got = part.forward_get("bchw", **FORMULA)
        np.testing.assert_array_equal(got, convert(part.input, "bhwc->bchw", **FORMULA))


def test_what_takes_no_formula_says_so():
    labels = ClassView("bt", np.zeros((4, 2), np.int64), 3)
    with pytest.raises(ArgumentError, match="classes accept no scale, mean, std and clip"):
        labels.forward_get("b", scale=2)
    both = ListView([ImageView("bhwc", PHOTOS), labels])
    with pytest.raises(ViewError, match=re.escape("ask one of view.components")):
        both.forward_get(("bchw", None), scale=2)
    view = DataView("bf", np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="clip and memory are for layouts"):
        view.forward_get(VectorSpace(3), scale=2)
