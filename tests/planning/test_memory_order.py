"""`memory=`: the order in which new memory holds the axes of the result."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layoutkit
from layoutkit import ArraySpec, Converter, convert

RNG = np.random.default_rng(0)
PHOTOS = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)


@given(st.permutations("bhwc"), st.permutations("bhwc"), st.permutations("bhwc"), st.data())
def test_values_are_the_patterns_and_memory_is_as_asked(source, target, memory, data):
    source, target, memory = map("".join, (source, target, memory))
    x = data.draw(st.sampled_from([PHOTOS, PHOTOS[:, ::-1], PHOTOS[:, :, ::2]]))
    found = convert(x, f"{source}->{target}", dtype="float32", memory=memory)
    np.testing.assert_array_equal(found, convert(x, f"{source}->{target}", dtype="float32"))
    in_memory = found.transpose([target.index(axis) for axis in memory])
    assert in_memory.flags.c_contiguous


def test_nothing_moves_where_x_lies_so():
    found = convert(PHOTOS, "bhwc->bchw", memory="bhwc")
    assert np.shares_memory(found, PHOTOS)
    assert found.shape == (2, 3, 4, 5)


def test_folds_are_whole_axes():
    found = convert(PHOTOS, "bhwc->b(hw)c", memory="bc(hw)")
    np.testing.assert_array_equal(found, PHOTOS.reshape(2, 20, 3))
    assert found.strides == (60, 1, 20)


def test_a_converter_says_and_pickles_it():
    to = Converter("bhwc->bchw", memory="bhwc", dtype="float32")
    assert repr(to) == "Converter(\"bhwc->bchw\", dtype='float32', memory='bhwc')"
    assert eval(repr(to), {"Converter": Converter}) == to
    assert to != Converter("bhwc->bchw", dtype="float32")
    spec = to.infer_spec(ArraySpec("bhwc", (2, 4, 5, 3), "uint8"))
    assert (spec.axes, spec.shape) == ("bchw", (2, 3, 4, 5))
    assert to.target_shape((2, 4, 5, 3)) == (2, 3, 4, 5)
    assert "stored as bhwc" in str(to.plan(PHOTOS))


def test_gradients_come_back_from_any_order():
    to = Converter("bhwc->bchw", memory="bhwc", scale=2.0)
    grad = RNG.standard_normal((2, 3, 4, 5), np.float32)
    expected = Converter("bhwc->bchw", scale=2.0).backward(grad, like=PHOTOS)
    np.testing.assert_array_equal(to.backward(grad, like=PHOTOS), expected)


@pytest.mark.parametrize("memory", ["channels_last", "channels_last_3d"])
def test_words_of_pytorch_are_told_in_letters(memory):
    with pytest.raises(
        layoutkit.PatternError, match=f"memory='{memory}' is a PyTorch memory format.*\"bhwc\""
    ):
        convert(np.zeros((2, 4, 5, 3)), "bhwc->bchw", memory=memory)


@pytest.mark.parametrize("memory", ["bhw", "bhwcd", "bchwx", "b(hw)c"])
def test_it_names_the_axes_of_the_result(memory):
    with pytest.raises(layoutkit.PatternError, match="is not an order of the axes of bchw"):
        convert(PHOTOS, "bhwc->bchw", memory=memory)


def test_an_out_lies_as_it_lies():
    out = np.zeros((2, 3, 4, 5), np.uint8)
    with pytest.raises(layoutkit.ArgumentError, match="remove one of them"):
        convert(PHOTOS, "bhwc->bchw", memory="bhwc", out=out)
    assert not out.any()


def test_tensors_have_the_memory_format():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(PHOTOS).float().requires_grad_()
    found = convert(x, "bhwc->bchw", memory="bhwc", scale=3.0)
    assert found.is_contiguous(memory_format=torch.channels_last)
    found.sum().backward()
    assert (x.grad == 3.0).all()
    with torch.no_grad():
        plain = convert(x, "bhwc->bchw", memory="bhwc", scale=3.0)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, found)


def test_arrays_of_jax_lie_as_xla_says():
    jax = pytest.importorskip("jax")
    with pytest.raises(layoutkit.ArgumentError, match="which XLA chooses"):
        convert(jax.numpy.asarray(PHOTOS), "bhwc->bchw", memory="bhwc")
    with pytest.raises(layoutkit.ArgumentError, match="which XLA chooses"):
        jax.jit(Converter("bhwc->bchw", memory="bhwc"))(jax.numpy.asarray(PHOTOS))


def test_views_give_it_too():
    view = layoutkit.ImageView("bhwc", PHOTOS)
    found = view.forward_get("bchw", "float32", scale=0.5, memory="bhwc")
    np.testing.assert_array_equal(found, convert(PHOTOS, "bhwc->bchw", scale=0.5))
    assert found.transpose(0, 2, 3, 1).flags.c_contiguous
    assert view.forward_get("b c h w", np.float32, scale=0.5, memory="bhwc") is found
    assert view.forward_get("bchw", "float32", scale=0.5).flags.c_contiguous
    assert "memory=bhwc" in str(view)
    view.backward_put("bchw", np.ones_like(found))
    assert (view.backward_get() == 0.5).all()
    with pytest.raises(layoutkit.PatternError, match="not an order of the axes"):
        view.forward_get("bchw", memory="bhw")
