"""`pad_to=`, `pad_before=` and `fill=`: a result that is larger than x."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layoutkit
from layoutkit import ArgumentError, ArraySpec, Converter, DtypeError, collate, convert

RNG = np.random.default_rng(0)
PHOTOS = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
IMAGENET = {
    "dtype": "float32",
    "scale": 1 / 255,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
PATTERNS = ["bhwc->bchw", "bhwc->bhwc", "bhwc->chwb", "bhwc->b(hwc)", "bhwc->bf", "bhwc->(bh)cw"]


def larger(x, sizes, pad_before, fill):
    """Return x (bhwc) padded by NumPy: the reference."""
    shape = [sizes.get(axis, n) for axis, n in zip("bhwc", x.shape, strict=True)]
    begins = [
        pad_before.get(axis, round((full - n) / 2))
        for axis, n, full in zip("bhwc", x.shape, shape, strict=True)
    ]
    made = np.empty(shape, x.dtype)
    made[...] = fill
    made[tuple(slice(at, at + n) for at, n in zip(begins, x.shape, strict=True))] = x
    return made


@given(st.data())
def test_it_is_the_conversion_of_a_larger_x(data):
    pattern = data.draw(st.sampled_from(PATTERNS))
    axes = data.draw(st.sets(st.sampled_from("bhw"), min_size=1))
    more = {axis: data.draw(st.integers(0, 9)) for axis in axes}
    sizes = {axis: PHOTOS.shape["bhwc".index(axis)] + n for axis, n in more.items()}
    pad_before = {
        a: data.draw(st.integers(0, n)) for a, n in more.items() if data.draw(st.booleans())
    }
    fill = data.draw(st.sampled_from([0, 114, (1, 2, 3)]))
    keywords = data.draw(st.sampled_from([{}, {"dtype": "float64"}, IMAGENET]))
    expected = convert(larger(PHOTOS, sizes, pad_before, fill), pattern, **keywords)
    asked = {"pad_to": sizes, "pad_before": pad_before, "fill": fill, **keywords}
    found = convert(PHOTOS, pattern, **asked)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    out = np.full_like(expected, 7)[..., ::-1]
    assert convert(PHOTOS, pattern, out=out, **asked) is out
    np.testing.assert_array_equal(out, expected)


def test_the_rest_is_zero_and_x_in_the_middle_unless_said():
    found = convert(np.ones((2, 3), np.float32), "hw->hw", pad_to={"h": 5, "w": 3})
    np.testing.assert_array_equal(found[:, 0], [0, 0, 1, 1, 0])


def test_frames_go_through_one_output():
    to = Converter("hwc->chw", pad_to={"h": 8, "w": 8}, fill=114, **IMAGENET)
    out = np.empty((3, 8, 8), np.float32)
    for shape in [(8, 5, 3), (4, 8, 3), (8, 8, 3)]:
        frame = RNG.integers(0, 256, shape, np.uint8)
        assert to(frame, out=out) is out
        canvas = larger(frame[None], {"h": 8, "w": 8}, {}, 114)[0]
        np.testing.assert_array_equal(out, convert(canvas, "hwc->chw", **IMAGENET))


def test_a_larger_result_is_new_even_where_nothing_moves():
    found = convert(PHOTOS, "bhwc->bhwc", pad_to={"h": 4})
    assert not np.shares_memory(found, PHOTOS)
    np.testing.assert_array_equal(found, PHOTOS)


def test_memory_order_and_size_together():
    found = convert(PHOTOS, "bhwc->bchw", pad_to={"h": 6}, fill=9, memory="bhwc")
    expected = larger(PHOTOS, {"h": 6}, {}, 9).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(found, expected)
    assert found.transpose(0, 2, 3, 1).flags.c_contiguous


@pytest.mark.parametrize("pattern", PATTERNS)
def test_gradients_are_those_of_the_window(pattern):
    asked = {"pad_to": {"h": 6, "w": 9}, "pad_before": {"w": 1}}
    to, x = Converter(pattern, **asked, **IMAGENET), PHOTOS.astype(np.float32)
    grad = RNG.standard_normal(to.target_shape(x.shape), np.float32)
    canvas = larger(x, asked["pad_to"], asked["pad_before"], 0)
    whole = Converter(pattern, **IMAGENET).backward(grad, like=canvas)
    np.testing.assert_array_equal(to.backward(grad, like=x), whole[:, 1:5, 1:6])
    out = np.empty_like(x)
    assert to.backward(grad, like=x, out=out) is out
    np.testing.assert_array_equal(out, whole[:, 1:5, 1:6])


def test_a_gradient_alone_does_not_say_how_large_x_was():
    to = Converter("hw->wh", pad_to={"h": 4})
    with pytest.raises(layoutkit.ArgumentError, match="like=x"):
        to.backward(np.zeros((3, 4), np.float32))
    with pytest.raises(layoutkit.ShapeError, match="grad has shape"):
        to.backward(np.zeros((3, 3), np.float32), like=np.zeros((3, 3)))


def test_a_converter_says_and_pickles_it():
    to = Converter("hwc->chw", pad_to={"w": 640, "h": 640}, pad_before={"h": 0}, fill=(1, 2, 3))
    same = Converter("hwc->chw", pad_to={"h": 640, "w": 640}, pad_before={"h": 0}, fill=[1, 2, 3])
    assert (to, hash(to)) == (same, hash(same))
    assert eval(repr(to), {"Converter": Converter}) == to
    assert to != Converter("hwc->chw", pad_to={"h": 640, "w": 640}, fill=(1, 2, 3))
    spec = to.infer_spec(ArraySpec("hwc", (480, 640, 3), "uint8"))
    assert spec.shape == to.target_shape((480, 640, 3)) == (3, 640, 640)
    plan = to.plan(np.zeros((480, 640, 3), np.uint8))
    assert plan.bytes_moved == 480 * 640 * 3 + 640 * 640 * 3
    assert "into      [0:3, 0:480, 0:640] of (3, 640, 640)" in str(plan)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"pad_to": 640}, layoutkit.ArgumentError, "dict of whole numbers by axis"),
        ({"pad_to": {}}, layoutkit.ArgumentError, "pad_to names no axis"),
        ({"pad_to": {"h": 6.5}}, layoutkit.ArgumentError, "dict of whole numbers"),
        ({"pad_to": {"h": -1}}, layoutkit.ArgumentError, "dict of whole numbers"),
        ({"pad_to": {"h": 3}}, layoutkit.ShapeError, "x has 4 along h; crop it"),
        ({"pad_to": {"q": 9}}, layoutkit.ShapeError, "the axes are b, c, h, w"),
        ({"pad_to": {"h": 9}, "pad_before": {"h": 6}}, layoutkit.ShapeError, "give at most 5"),
        ({"pad_to": {"h": 9}, "pad_before": {"w": 0}}, layoutkit.ArgumentError, "pad_to does not"),
        (
            {"pad_to": {"h": 9}, "fill": 256},
            layoutkit.DtypeError,
            "fill=256 cannot be represented in uint8",
        ),
        (
            {"pad_to": {"h": 9}, "fill": 0.5},
            layoutkit.DtypeError,
            "fill=0.5 cannot be represented in uint8",
        ),
        ({"pad_to": {"h": 9}, "fill": (1, 2)}, layoutkit.ShapeError, "axis c has size 3"),
        ({"pad_to": {"h": 9}, "fill": "gray"}, layoutkit.ArgumentError, "a number, or a flat list"),
        ({"fill": 114}, layoutkit.ArgumentError, "give it too"),
        ({"pad_before": {"h": 0}}, layoutkit.ArgumentError, "give it too"),
        ({"pad_to": {"h": 9}, "copy": False}, layoutkit.ArgumentError, "copy=False"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(keywords, error, words):
    out = np.zeros((2, 3, 9, 5), np.uint8)
    with pytest.raises(error, match=words):
        convert(PHOTOS, "bhwc->bchw", out=out, **keywords)
    assert not out.any()


def test_an_output_has_the_larger_shape_and_its_own_memory():
    with pytest.raises(layoutkit.ShapeError, match=r"makes \(2, 3, 9, 5\)"):
        convert(PHOTOS, "bhwc->bchw", pad_to={"h": 9}, out=np.zeros((2, 3, 4, 5), np.uint8))
    memory = np.zeros(1000, np.uint8)
    x, out = memory[:12].reshape(3, 4), memory[10:34].reshape(4, 6)
    with pytest.raises(layoutkit.ArgumentError, match="shares memory"):
        convert(x, "hw->hw", pad_to={"h": 4, "w": 6}, out=out)


def test_tensors_and_arrays_of_jax_are_made_larger():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    to = Converter("bhwc->b(hwc)", pad_to={"h": 6, "w": 9}, fill=(1, 2, 3), **IMAGENET)
    expected = to(PHOTOS)
    np.testing.assert_array_equal(to(torch.from_numpy(PHOTOS)).numpy(), expected)
    np.testing.assert_array_equal(to(jax.numpy.asarray(PHOTOS)), expected)
    np.testing.assert_allclose(jax.jit(to)(jax.numpy.asarray(PHOTOS)), expected, rtol=1e-5)
    x = torch.from_numpy(PHOTOS).float().requires_grad_()
    to(x).sum().backward()
    grad = to.backward(np.ones_like(expected), like=PHOTOS.astype(np.float32))
    np.testing.assert_array_equal(x.grad.numpy(), grad)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("i8", 2**53 + 1),
        ("i8", 2**63 - 1),
        ("i8", -(2**63)),
        ("u8", 2**64 - 1),
        ("u8", np.uint64(2**64 - 1)),
        ("f4", 0.25),
        ("?", True),
    ],
)
def test_fill_values_are_exact(dtype, fill):
    x = np.ones(2, dtype)
    padded = convert(x, "b->b", pad_to={"b": 3}, pad_before={"b": 0}, fill=fill)
    assert padded.dtype == x.dtype
    assert padded.tolist() == [*x.tolist(), fill]
    assert collate([x], "w->bw", w=4, offset={"w": 0}, fill=fill)[0, 3] == padded[2]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("i8", 2**63), ("u8", -1), ("u8", 2**64), ("i8", 0.5), ("i4", np.nan), ("u1", np.inf)],
)
def test_fill_values_beyond_the_dtype_are_refused(dtype, fill):
    with pytest.raises(DtypeError, match="cannot be represented"):
        convert(np.ones(2, dtype), "b->b", pad_to={"b": 3}, fill=fill)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ms]", "i4,f4"])
def test_times_and_structs_are_padded_with_zeros(dtype):
    x = np.frombuffer(bytes(range(48)), "u1")[: 2 * np.dtype(dtype).itemsize].view(dtype)
    for fill in ({}, {"fill": 0}):
        padded = convert(x, "b->b", pad_to={"b": 3}, pad_before={"b": 0}, **fill)
        assert padded.tobytes() == x.tobytes() + bytes(x.itemsize)
    with pytest.raises(DtypeError, match="fill=3 cannot be represented"):
        convert(x, "b->b", pad_to={"b": 3}, fill=3)


@pytest.mark.parametrize("fill", [10**400, "x", [[1]], [], [10**400, 1], {}])
def test_fill_is_a_number_or_several(fill):
    with pytest.raises(ArgumentError, match="give a number, or a flat list"):
        convert(np.ones(2), "b->b", pad_to={"b": 3}, fill=fill)
