"""Gradients and inverses: backward, inverse and resolve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutkit import ArgumentError, ArraySpec, Converter, DtypeError, PatternError, ShapeError
from tests.helpers.arrays_of import BF16

X = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype("f4")
PATTERNS = ["bhwc->bchw", "bhwc->bf", "bhwc->b(chw)", "bhwc->chwb", "bhwc->cbf", "bhwc->thbwc"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_there_and_back(pattern):
    converter = Converter(pattern, h=4, w=5)
    y = converter(X)
    for back in (converter.backward(y), converter.backward(y, like=X), converter.inverse()(y)):
        np.testing.assert_array_equal(back, X)
    spec = ArraySpec("bhwc", X.shape, "f8")
    assert Converter(pattern).backward(y, like=spec).dtype == np.float64


@pytest.mark.budget(0)
@settings(derandomize=True, database=None)
@given(
    st.permutations("bhwc"), st.integers(0, 3), st.lists(st.integers(1, 5), min_size=4, max_size=4)
)
def test_inner_products_are_kept(target, fold, shape):
    """Check the definition of the gradient, <A x, g> = <x, A' g>, for a move with a scale."""
    text = "".join(target)
    text = text[:fold] + f"({text[fold:]})" if 4 - fold > 1 else text
    x = np.random.default_rng(1).integers(-9, 9, shape).astype("f4")
    converter = Converter(f"bhwc->{text}", scale=0.5, mean=7, std=0.25)
    y = converter(x)
    grad = np.random.default_rng(2).integers(-9, 9, y.shape).astype("f4")
    back = converter.backward(grad, like=x)
    assert ((y + 28) * grad).sum() == (x * back).sum()


def test_a_channels_gradient_is_scaled_by_its_own_std():
    std = np.array([1, 2, 4], "f4")
    converter = Converter("bhwc->bchw", scale=3, mean=[5, 6, 7], std=std)
    grad = np.ones((2, 3, 4, 5), "f4")
    np.testing.assert_array_equal(converter.backward(grad), np.broadcast_to(3 / std, (2, 4, 5, 3)))


@pytest.mark.parametrize(
    ("like", "grad", "wanted"),
    [
        ("u1", "f4", "f4"),
        ("?", "f2", "f2"),
        ("f2", "f4", "f2"),
        ("f8", "f4", "f8"),
        (BF16, "f4", BF16),
        ("c8", "c8", "c8"),
        (">f4", "f8", "f4"),
    ],
)
def test_dtype_of_the_gradient(like, grad, wanted):
    x = np.zeros((2, 3), like)
    back = Converter("bc->cb").backward(np.ones((3, 2), grad), like=x)
    assert back.dtype == np.dtype(wanted)
    assert Converter("bc->cb", dtype="f4").backward(np.ones((3, 2), grad)).dtype == np.dtype(grad)


def test_out_takes_the_gradient():
    out = np.zeros((2, 3), "f8")
    converter, grad = Converter("bc->cb"), np.ones((3, 2), "f4")
    assert converter.backward(grad).dtype == grad.dtype  # which the next call does not keep
    assert converter.backward(grad, out=out) is out
    assert (out == 1).all()
    with pytest.raises(DtypeError, match="out has dtype float64"):
        converter.backward(grad, like=np.zeros((2, 3), "f4"), out=out)


def test_copy_holds_for_gradients_too():
    grad = np.ones((2, 3), "f4")
    assert np.shares_memory(Converter("bc->(bc)", c=3).backward(grad.reshape(6)), grad)
    own = Converter("bc->(bc)", c=3, copy=True).backward(grad.reshape(6))
    assert not np.shares_memory(own, grad)
    with pytest.raises(ArgumentError, match="copy=False"):
        Converter("bc->cb", copy=False).backward(grad)


def test_gradients_that_do_not_fit():
    converter = Converter("bhwc->bf")
    with pytest.raises(ShapeError, match=r"h=, w=, c= to the Converter, or .*like=x\)"):
        converter.backward(np.ones((2, 60), "f4"))
    with pytest.raises(ShapeError, match=r"give an array of rank 2, or another layout$"):
        converter.backward(np.ones(60, "f4"))
    with pytest.raises(ShapeError, match=r"grad has shape \(2, 59\)"):
        converter.backward(np.ones((2, 59), "f4"), like=X)
    with pytest.raises(ShapeError, match="rank"):
        converter.backward(np.ones((2, 60), "f4"), like=X[0])
    for dtype in ("i4", "?", "M8[s]", "O"):
        with pytest.raises(DtypeError, match="give a gradient of a floating dtype"):
            converter.backward(np.ones((2, 60)).astype(dtype), like=X)
    with pytest.raises(ArgumentError, match="grad is a list"):
        converter.backward([1.0], like=X)
    with pytest.raises(ArgumentError, match="like is a list"):
        converter.backward(np.ones((2, 60)), like=[1.0])
    with pytest.raises(DtypeError, match="complex64 to float32"):
        converter.backward(np.ones((2, 60), "c8"), like=X)


def test_inverse():
    assert Converter("bchw->bf", h=4, w=5).inverse().pattern == "b(chw)->bchw"
    assert Converter("bf->bhwc", h=4, w=5).inverse()(X).shape == (2, 60)
    assert Converter("bhwcq->bhwc").inverse()(X).shape == (2, 4, 5, 3, 1)
    assert Converter("bhwc->bchw").inverse().inverse()(X).shape == (2, 3, 4, 5)
    with pytest.raises(ArgumentError, match="scale is 0"):
        Converter("bhwc->bchw", scale=0).inverse()
    with pytest.raises(ShapeError, match="give all but one"):
        Converter("bhwc->bf").inverse()(np.ones((2, 60)))
    with pytest.raises(ArgumentError, match=r"pad_to=\{'h': 9\} makes one size.*no inverse"):
        Converter("hwc->chw", pad_to={"h": 9}).inverse()
    saturating = Converter("b->b", dtype="u1", casting="saturate").inverse()
    assert "saturate" in repr(saturating)
    assert not np.shares_memory(Converter("b->b", copy=True).inverse()(X[0, 0, 0]), X)


def test_resolve_says_what_a_call_makes():
    for keywords in ({}, {"dtype": "f8"}, {"mean": [1, 2, 3]}):
        for pattern in PATTERNS:
            converter = Converter(pattern, **keywords)
            for x in (X[:0], X[:1, :2, :2]):
                spec = converter.infer_spec(ArraySpec("b h w c", x.shape, x.dtype))
                y = converter(x)
                assert (spec.shape, spec.dtype, spec.device) == (y.shape, y.dtype, "cpu")
                assert converter.target_shape(x.shape) == y.shape
    assert Converter("bchw->bf").infer_spec(ArraySpec("bchw", (2, 3, 4, 5), "u1")).axes == "b(chw)"
    spec = Converter("bf->bhwc", h=4, w=5).infer_spec(ArraySpec("bf", (2, 60), "u1"))
    assert spec == ArraySpec("bhwc", (2, 4, 5, 3), "u1")


def test_a_spec_of_another_layout_is_refused():
    converter = Converter("bhwc->bchw")
    for use in (converter.plan, lambda spec: converter.backward(np.ones((2, 3, 4, 5)), like=spec)):
        with pytest.raises(PatternError, match="the spec is of layout wbhc"):
            use(ArraySpec("wbhc", (2, 4, 5, 3), "f4"))


def test_another_batch_size_needs_no_other_converter(monkeypatch):
    to_rows = Converter("bhwc->bf", dtype="f4")
    made = []
    init = Converter.__init__
    monkeypatch.setattr(Converter, "__init__", lambda *a, **k: made.append(a) or init(*a, **k))
    for size in (8, 3, 8, 5):
        x = np.ones((size, 4, 5, 3))
        back = to_rows.backward(np.ones((size, 60), "f4"), like=x)
        assert (back.shape, back.dtype) == (x.shape, x.dtype)
    assert len(made) == 1
    to_rows.backward(np.ones((8, 60), "f4"), like=np.ones((8, 5, 4, 3)))  # another sample shape
    assert len(made) == 2
    with pytest.raises(ShapeError, match="pass the gradient of that result"):
        to_rows.backward(np.ones((8, 60), "f4"), like=np.ones((7, 4, 5, 3)))


@pytest.mark.budget(2)
@pytest.mark.parametrize("channels", [(2, 0), (1,), (0, 0, 1), (2, 1, 0), (2, 1, 0, 1)])
@pytest.mark.parametrize(
    ("pattern", "shape", "sizes"),
    [
        ("w(hc)->whc", (5, 12), {"c": 3}),
        ("w(hc)->whc", (5, 12), {"h": 4}),
        ("(wc)h->c(hw)", (6, 3), {"c": 3}),
        ("b(hwc)->bchw", (2, 24), {"h": 2, "c": 3}),
    ],
)
def test_gradients_of_selected_channels_of_a_folded_axis(pattern, shape, sizes, channels):
    converter = Converter(pattern, channels=channels, **sizes)
    x = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    y = converter(x)
    grad = np.random.default_rng(0).integers(-9, 9, y.shape).astype("f8")
    expected = np.zeros(x.size)
    np.add.at(expected, y.ravel().astype(int), grad.ravel())  # the values of y are positions in x
    result = converter.backward(grad, like=x)
    np.testing.assert_array_equal(result, expected.reshape(shape))


def test_gradients_of_repeated_channels_of_integers_are_floats():
    x = np.zeros((2, 3, 4), "i8")
    grad = np.full((2, 3, 3), 0.25, "f4")
    result = Converter("bwc->bcw", channels=(0, 0, 3), dtype="float32").backward(grad, like=x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result[0, 0], [0.5, 0, 0, 0.25])
