"""Names of axes, `...`, `1` and letters of any case: their meaning in patterns and conversions."""

import pickle
import re
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    ArraySpec,
    Collator,
    Converter,
    PatternError,
    ShapeError,
    accumulate,
    convert,
    plan,
)
from layoutkit.drawing import draw_text
from layoutkit.layout.parsing import parse_layout
from layoutkit.layout.pattern import parse_pattern


def numbered(*shape):
    return np.arange(prod(shape), dtype=np.int32).reshape(shape)


# --- patterns without names -----------------------------------------------------------


def letters_of(side):
    """Return the groups of a side that is written in letters only; None if the side is invalid."""
    if not re.fullmatch(r"\s*((?:[a-z]|\((?:\s*[a-z])+\s*\))\s*)+", side):
        return None
    groups = [
        group.strip("()") for group in re.findall(r"[a-z]|\([a-z]+\)", re.sub(r"\s", "", side))
    ]
    return tuple(groups) if len(set("".join(groups))) == len("".join(groups)) else None


def is_in_names(side):
    """Return True if blanks separate axes, and one outside of folds has several letters."""
    words = re.sub(r"\([^()]*\)", "()", side).split()
    return len(words) > 1 and any(len(word) > 1 and word.isalpha() for word in words)


side = st.text(alphabet="abcdefgh()  ", min_size=1, max_size=10)


@given(side, side)
def test_what_was_valid_and_is_not_in_names_keeps_its_meaning(left, right):
    before = letters_of(left), letters_of(right)
    if None not in before and not is_in_names(left) and not is_in_names(right):
        pattern = parse_pattern(f"{left}->{right}")
        assert (pattern.left.groups, pattern.right.groups) == before
        assert (pattern.left.names, pattern.right.names) == ((), ())


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True), st.data())
def test_letters_with_folds_and_blanks_inside_of_folds(letters, data):
    groups = []
    text = ""
    for letter in letters:
        fold = data.draw(st.booleans())
        blank = " " * data.draw(st.integers(0, 2))
        groups.append(letter)
        text += f"({blank}{letter}{blank})" if fold else f"{letter}"
    assert parse_layout(text).groups == tuple(groups)


def test_words_apart_by_blanks_are_names_and_glued_ones_letters():
    assert parse_layout("batch c").named == (("batch",), ("c",))
    assert parse_layout("bat c").named == (("bat",), ("c",))
    assert parse_layout("bat(c)").groups == ("b", "a", "t", "c")
    assert parse_layout("bh(wc) d").groups == ("b", "h", "wc", "d")
    assert parse_layout("b (hw) c").groups == ("b", "hw", "c")
    assert parse_layout("bhwc").names == ()


# --- names ----------------------------------------------------------------------------


def test_names_move_as_letters_do():
    x = numbered(2, 4, 5, 3)
    long = "batch height width c -> batch c height width"
    np.testing.assert_array_equal(convert(x, long), convert(x, "bhwc->bchw"))
    folded = "batch height width c -> batch (height width c)"
    np.testing.assert_array_equal(convert(x, folded), convert(x, "bhwc->b(hwc)"))
    np.testing.assert_array_equal(
        convert(x, "batch height width c -> f batch"), convert(x, "bhwc->fb")
    )


def test_sizes_of_names_are_keywords():
    x = numbered(2, 60)
    pattern = "batch (height width c) -> batch c height width"
    expected = x.reshape(2, 3, 4, 5).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(convert(x, pattern, height=3, width=4), expected)
    back = Converter(pattern, height=3, width=4).inverse()
    np.testing.assert_array_equal(back(expected), x)
    with pytest.raises(ShapeError, match=r"all but one of height=, width=, c="):
        convert(x, pattern)
    with pytest.raises(ShapeError, match=r"\(height width c\) of size 60.*height=7"):
        convert(x, pattern, height=7, width=4)
    with pytest.raises(ShapeError, match=r"heigth=3 is neither.*batch, height, width, c"):
        convert(x, pattern, heigth=3)


def test_the_other_side_is_in_names_too():
    x = numbered(2, 3, 4)
    assert convert(x, "height width c -> (height width c)").shape == (24,)
    with pytest.raises(ShapeError, match="axis batch of size 2 is not on the right"):
        convert(x, "batch height c -> bhc")


def test_the_channel_axis_is_named_c_among_names():
    x = numbered(2, 4, 5, 3).astype(np.uint8)
    mean = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(
        convert(x, "batch height width c -> batch c height width", mean=mean),
        convert(x, "bhwc->bchw", mean=mean),
    )


@pytest.mark.budget(0)
def test_names_in_repr_pickle_plan_specs_and_sums():
    pattern = "batch (height width) c -> batch c height width"
    converter = Converter(pattern, height=4)
    assert repr(converter) == f'Converter("{pattern}", height=4)'
    x = numbered(2, 20, 3)
    again = pickle.loads(pickle.dumps(converter))
    np.testing.assert_array_equal(again(x), converter(x))
    spec = converter.spec_of(x)
    assert spec == ArraySpec("batch (height width) c", (2, 20, 3), "int32")
    result = converter.infer_spec(spec)
    assert str(result) == "int32 batch c height width (2, 3, 4, 5) on cpu"
    assert converter.inverse().infer_spec(result) == spec
    assert "batch c height width" in str(plan(pattern, (2, 20, 3), height=4))
    assert pickle.loads(pickle.dumps(converter.plan(x))) == converter.plan(x)
    flat = Converter("batch time -> (batch time)")
    assert flat.infer_spec(flat.spec_of(numbered(2, 3))).axes == "(batch time)"
    total = accumulate(
        [(numbered(2, 3, 4), "batch time c"), (numbered(6, 4), "(batch time) c")],
        "batch time c",
        batch=2,
    )
    np.testing.assert_array_equal(total, 2 * numbered(2, 3, 4))


def test_gradients_of_names_come_back():
    converter = Converter("batch (height width) -> width height batch", height=3)
    x = numbered(2, 12).astype(np.float32)
    y = converter(x)
    np.testing.assert_array_equal(converter.backward(y), x)
    np.testing.assert_array_equal(converter.backward(y, like=x), x)


# --- letters of any case --------------------------------------------------------------


def test_upper_case_letters_are_the_same_axes():
    x = numbered(2, 4, 5, 3).astype(np.uint8)
    np.testing.assert_array_equal(convert(x, "NHWC->NCHW"), convert(x, "bhwc->bchw"))
    np.testing.assert_array_equal(
        convert(x, "NHWC -> NCHW", mean=[1, 2, 3]), convert(x, "bhwc->bchw", mean=[1, 2, 3])
    )
    flat = convert(x, "NHWC->NF")
    np.testing.assert_array_equal(convert(flat, "NF->NHWC", H=4, W=5), x)
    np.testing.assert_array_equal(
        convert(x, "N height W C -> c (W height) n"), convert(x, "bhwc->c(wh)b")
    )
    assert Converter("NHWC->NCHW").pattern == "NHWC->NCHW"


# --- axes that stay -------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (1, 2, 0)])
def test_dots_are_any_number_of_axes(lead):
    x = numbered(*lead, 4, 5, 3)
    converter = Converter("...hwc->...chw")
    y = converter(x)
    np.testing.assert_array_equal(y, np.moveaxis(x, -1, -3))
    np.testing.assert_array_equal(converter.inverse()(y), x)
    for pattern in ("... h w c -> c ... h w", "…hwc->c…hw", "… high wide c -> c … high wide"):
        np.testing.assert_array_equal(convert(x, pattern), np.moveaxis(x, -1, 0))
    grad = y.astype(np.float32)
    np.testing.assert_array_equal(converter.backward(grad, like=x), x)
    np.testing.assert_array_equal(converter.backward(grad), x)
    result = converter.infer_spec(converter.spec_of(x))
    assert result.shape == y.shape
    assert converter.inverse().infer_spec(result).shape == x.shape
    assert str(converter.plan(x)).startswith("...hwc->...chw")
    again = pickle.loads(pickle.dumps(converter))
    np.testing.assert_array_equal(again(x), y)


@pytest.mark.budget(0)
def test_dots_with_folds_formulas_and_sums():
    x = numbered(2, 7, 12, 3).astype(np.uint8)
    unfold = Converter("...(hw)c->...chw", h=3)
    expected = np.moveaxis(x.reshape(2, 7, 3, 4, 3), -1, 2)
    np.testing.assert_array_equal(unfold(x), expected)
    np.testing.assert_array_equal(unfold.backward(expected.astype("f4"), like=x), x)
    normal = convert(x, "...c->c...", mean=[1, 2, 3])
    np.testing.assert_array_equal(normal, np.moveaxis(x - np.float32([1, 2, 3]), -1, 0))
    total = accumulate([(x, "b...c"), (np.moveaxis(x, -1, 1), "bc...")], "...bc")
    np.testing.assert_array_equal(total, np.moveaxis(2 * x, 0, 2))
    assert convert(x, "...f->...f") is x


def test_dots_want_a_rank():
    with pytest.raises(ShapeError, match=r"at least 3 axes \(\.\.\., h, w, c\).*rank 3 or more"):
        convert(numbered(2, 3), "...hwc->...chw")


# --- axes of size 1 -------------------------------------------------------------------


def test_ones_are_dropped_and_added():
    x = numbered(2, 1, 4, 1)
    assert convert(x, "b1h1->bh").shape == (2, 4)
    assert convert(x, "b 1 h 1 -> 1 b h").shape == (1, 2, 4)
    y = convert(numbered(2, 4), "bh->1b1h1")
    assert y.shape == (1, 2, 1, 4, 1)
    np.testing.assert_array_equal(Converter("bh->1b1h1").inverse()(y), numbered(2, 4))
    assert convert(numbered(2, 3, 4), "bhw->b1f").shape == (2, 1, 12)
    assert convert(numbered(2, 12), "bf->b1hw", h=3).shape == (2, 1, 3, 4)
    assert convert(numbered(1, 4), "1 height -> height 1").shape == (4, 1)
    grad = np.ones((2, 4), np.float32)
    assert Converter("b1h1->bh").backward(grad, like=x).shape == x.shape
    with pytest.raises(ShapeError, match="an axis written as 1 has size 3"):
        convert(numbered(2, 3), "b1->b")


# --- drawings -------------------------------------------------------------------------


def test_examples_are_drawn_with_names():
    text = draw_text("batch height c -> batch c height")
    assert "batch=2, height=2, c=3; each element is its c (R, G, B)" in text
    assert "its place along batch, height" in text
    assert "after  batch c height   R00 R01  G00 G01" in text
    assert "...=2, h=2, w=3" in draw_text("...hw->...wh")
    assert "before b1hc   R00 G00 B00" in draw_text("b1hc->bch")


# --- differences from einops ----------------------------------------------------------


def test_patterns_that_reduce_or_repeat_say_which_call_does_it():
    with pytest.raises(ShapeError, match=r'einops\.reduce\(x, "b h w c -> b c", "mean"\)'):
        convert(numbered(2, 4, 5, 3), "bhwc->bc")
    with pytest.raises(ShapeError, match=r"and hw is one axis; write \(h w\) to fold"):
        convert(numbered(2, 4, 5, 3), "b h w c -> b c hw")
    with pytest.raises(ShapeError, match=r'einops\.repeat\(x, "h w -> h w c", c=3\)'):
        convert(numbered(4, 5), "hw->hwc", c=3)
    with pytest.raises(PatternError, match=r"einops\.repeat"):
        convert(numbered(4, 5), "h w -> h w 3")


# --- patterns of einops ---------------------------------------------------------------


# The pattern, the shape of x, the sizes, and the result as x.reshape(.).transpose(.).reshape(.).
EINOPS = [
    # transpositions
    ("h w c -> w h c", (4, 6, 3), {}, (4, 6, 3), (1, 0, 2), (6, 4, 3)),
    ("b c h w -> h w b c", (2, 3, 4, 5), {}, (2, 3, 4, 5), (2, 3, 0, 1), (4, 5, 2, 3)),
    ("b1 sound b2 letter -> b1 b2 sound letter", (2, 3, 4, 5), {}, (2, 3, 4, 5), (0, 2, 1, 3),
     (2, 4, 3, 5)),
    ("i0 -> i0", (5,), {}, (5,), (0,), (5,)),
    ("i0 i1 i2 -> i2 i0 i1", (2, 3, 4), {}, (2, 3, 4), (2, 0, 1), (4, 2, 3)),
    ("a b c d e f -> (f e) d (c b a)", (1, 2, 3, 2, 1, 2), {}, (1, 2, 3, 2, 1, 2),
     (5, 4, 3, 2, 1, 0), (2, 2, 6)),
    ("batch height width channel -> batch channel height width", (2, 4, 6, 3), {}, (2, 4, 6, 3),
     (0, 3, 1, 2), (2, 3, 4, 6)),
    # folds
    ("b h w c -> (b h) w c", (2, 4, 6, 3), {}, (2, 4, 6, 3), (0, 1, 2, 3), (8, 6, 3)),
    ("b h w c -> h (b w) c", (2, 4, 6, 3), {}, (2, 4, 6, 3), (1, 0, 2, 3), (4, 12, 3)),
    ("b h w c -> h (w b) c", (2, 4, 6, 3), {}, (2, 4, 6, 3), (1, 2, 0, 3), (4, 12, 3)),
    ("b c h w -> b (c h w)", (2, 3, 4, 5), {}, (2, 3, 4, 5), (0, 1, 2, 3), (2, 60)),
    ("b h w c -> (b h w c)", (2, 3, 4, 5), {}, (2, 3, 4, 5), (0, 1, 2, 3), (120,)),
    ("(a b c d e f) -> a b c d e f", (24,), {"a": 1, "b": 2, "c": 3, "d": 1, "e": 2},
     (1, 2, 3, 1, 2, 2), (0, 1, 2, 3, 4, 5), (1, 2, 3, 1, 2, 2)),
    ("(f d) c (e b) a -> a b c d e f", (4, 3, 6, 1), {"f": 2, "b": 3}, (2, 2, 3, 2, 3, 1),
     (5, 4, 2, 1, 3, 0), (1, 3, 3, 2, 2, 2)),
    # folds of names
    ("(b1 b2) h w c -> b1 b2 h w c", (6, 4, 5, 3), {"b1": 2}, (2, 3, 4, 5, 3), (0, 1, 2, 3, 4),
     (2, 3, 4, 5, 3)),
    ("(b1 b2) h w c -> (b2 h) (b1 w) c", (6, 4, 5, 3), {"b1": 2}, (2, 3, 4, 5, 3),
     (1, 2, 0, 3, 4), (12, 10, 3)),
    ("(b1 b2) h w c -> h (b2 b1 w) c", (6, 4, 5, 3), {"b1": 2}, (2, 3, 4, 5, 3), (2, 1, 0, 3, 4),
     (4, 30, 3)),
    ("b h (w w2) c -> (h w2) (b w) c", (2, 4, 6, 3), {"w2": 2}, (2, 4, 3, 2, 3), (1, 3, 0, 2, 4),
     (8, 6, 3)),
    ("b (c h1 w1) h w -> b c (h h1) (w w1)", (2, 12, 4, 5), {"h1": 2, "w1": 2},
     (2, 3, 2, 2, 4, 5), (0, 1, 4, 2, 5, 3), (2, 3, 8, 10)),
    ("b c (h h1) (w w1) -> b (h1 w1 c) h w", (2, 3, 8, 6), {"h1": 2, "w1": 3},
     (2, 3, 4, 2, 2, 3), (0, 3, 5, 1, 2, 4), (2, 18, 4, 2)),
    ("b (g1 g2 c) h w -> b (g2 g1 c) h w", (2, 12, 3, 2), {"g1": 2, "g2": 3}, (2, 2, 3, 2, 3, 2),
     (0, 2, 1, 3, 4, 5), (2, 12, 3, 2)),
    ("b (split c) h w -> split b c h w", (2, 6, 4, 5), {"split": 2}, (2, 2, 3, 4, 5),
     (1, 0, 2, 3, 4), (2, 2, 3, 4, 5)),
    ("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", (2, 3, 4, 6), {"p1": 2, "p2": 3},
     (2, 3, 2, 2, 2, 3), (0, 2, 4, 3, 5, 1), (2, 4, 18)),
    ("batch (heads dim) time -> batch heads time dim", (2, 12, 5), {"heads": 3}, (2, 3, 4, 5),
     (0, 1, 3, 2), (2, 3, 5, 4)),
    ("b n (qkv h d) -> qkv b h n d", (2, 5, 24), {"qkv": 3, "h": 4}, (2, 5, 3, 4, 2),
     (2, 0, 3, 1, 4), (3, 2, 4, 5, 2)),
    # names in folds only
    ("b c (h hs) (w ws) -> (hs ws b) c h w", (2, 3, 4, 6), {"hs": 2, "ws": 3},
     (2, 3, 2, 2, 2, 3), (3, 5, 0, 1, 2, 4), (12, 3, 2, 2)),
    ("b c (h hs) (w ws) -> (hs ws b) c h w", (2, 3, 4, 6), {"h": 2, "w": 2},
     (2, 3, 2, 2, 2, 3), (3, 5, 0, 1, 2, 4), (12, 3, 2, 2)),
    ("(hs ws b) c h w -> b c (h hs) (w ws)", (12, 3, 2, 2), {"hs": 2, "ws": 3},
     (2, 3, 2, 3, 2, 2), (2, 3, 4, 0, 5, 1), (2, 3, 4, 6)),
    ("b t (head k) -> (head b) t k", (2, 5, 12), {"head": 3}, (2, 5, 3, 4), (2, 0, 1, 3),
     (6, 5, 4)),
    ("(head b) t v -> b t (head v)", (6, 5, 4), {"head": 3}, (3, 2, 5, 4), (1, 2, 0, 3),
     (2, 5, 12)),
    ("(b block) c -> b (block c)", (6, 5), {"block": 3}, (6, 5), (0, 1), (2, 15)),
    # axes of size 1
    ("b h w c -> b 1 h w 1 c", (2, 4, 5, 3), {}, (2, 4, 5, 3), (0, 1, 2, 3), (2, 1, 4, 5, 1, 3)),
    ("b c -> b c () ()", (2, 3), {}, (2, 3), (0, 1), (2, 3, 1, 1)),
    ("b c () () -> c b", (2, 3, 1, 1), {}, (2, 3), (1, 0), (3, 2)),
    ("b 1 h w -> h w b 1", (2, 1, 4, 5), {}, (2, 4, 5), (1, 2, 0), (4, 5, 2, 1)),
    ("a b -> b (a 1) ()", (2, 3), {}, (2, 3), (1, 0), (3, 2, 1)),
    ("(1 a 1) (b 1) -> (1 b a)", (2, 3), {}, (2, 3), (1, 0), (6,)),
    ("(1) a (1 1) -> a ( ) (1)", (1, 2, 1), {}, (2,), (0,), (2, 1, 1)),
    ("xyz->1 1 zyx", (2, 3, 4), {}, (2, 3, 4), (2, 1, 0), (1, 1, 4, 3, 2)),
    ("gthw->(hwg)(1t)", (1, 2, 4, 6), {}, (1, 2, 4, 6), (2, 3, 0, 1), (24, 2)),
    # axes that stay
    ("...->...", (2, 3, 4, 5, 6), {}, (720,), (0,), (2, 3, 4, 5, 6)),
    ("a b c d e ...-> ... a b c d e", (2, 3, 1, 1, 2), {}, (12,), (0,), (2, 3, 1, 1, 2)),
    ("a b c d e ...-> a ... b c d e", (2, 3, 1, 1, 2, 4), {}, (2, 6, 4), (0, 2, 1),
     (2, 4, 3, 1, 1, 2)),
    ("a ... c d e -> a (...) c d e", (2, 3, 4, 5, 6), {}, (720,), (0,), (2, 3, 4, 5, 6)),
    ("a ... c d e -> a (...) c d e", (2, 4, 5, 6), {}, (240,), (0,), (2, 1, 4, 5, 6)),
    ("a b ... -> (a b) ...", (2, 3, 4, 5), {}, (120,), (0,), (6, 4, 5)),
    ("... c d e -> ... (c d) e", (2, 3, 4, 5, 6), {}, (720,), (0,), (2, 3, 20, 6)),
    ("... -> (...)", (2, 3, 4), {}, (24,), (0,), (24,)),
    ("... -> (...)", (), {}, (1,), (0,), (1,)),
    ("a b ... -> b (...) a", (2, 3, 4, 5), {}, (2, 3, 20), (1, 2, 0), (3, 20, 2)),
    ("a b ... e -> b (a ...) e", (2, 3, 4, 5, 6), {}, (2, 3, 20, 6), (1, 0, 2, 3), (3, 40, 6)),
    ("a b c d ... -> a b c ... d", (2, 1, 3, 4, 5), {}, (6, 4, 5), (0, 2, 1), (2, 1, 3, 5, 4)),
    ("... h w -> ... w h", (2, 3, 4, 5), {}, (6, 4, 5), (0, 2, 1), (2, 3, 5, 4)),
    ("b ... c -> b c ...", (2, 3, 4, 5), {}, (2, 12, 5), (0, 2, 1), (2, 5, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "shape", "sizes", "unfolded", "order", "result"), EINOPS)
def test_patterns_of_einops(pattern, shape, sizes, unfolded, order, result):
    x = numbered(*shape).astype(np.float32)
    y = convert(x, pattern, **sizes)
    np.testing.assert_array_equal(y, x.reshape(unfolded).transpose(order).reshape(result))
    converter = Converter(pattern, **sizes)
    if shape:  # the reverse of a pattern for an array without axes has none
        np.testing.assert_array_equal(converter.backward(y, like=x), x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(converter))(x), y)
    if not converter.options.pattern.folds_ellipsis:
        known = {**converter.options.pattern.resolve(shape, sizes).named_sizes, **sizes}
        np.testing.assert_array_equal(Converter(pattern, **known).inverse()(y), x)


def test_a_folded_ellipsis_has_no_reverse_without_x():
    fold = Converter("a ... -> a (...)")
    with pytest.raises(ArgumentError, match=r"any number of axes.*name these axes"):
        fold.inverse()
    with pytest.raises(ArgumentError, match=r"pass x: backward\(grad, like=x\)"):
        fold.backward(np.ones((2, 3), "f4"))
    x = numbered(2, 3, 4).astype("f4")
    np.testing.assert_array_equal(fold.backward(fold(x), like=fold.spec_of(x)), x)
    assert str(fold.plan(x).target) == "float32 a(...) (2, 12) on cpu"
    assert fold.infer_spec(fold.spec_of(x)) == ArraySpec("a(...)", (2, 12), "f4")
    assert convert(x, "a...->a(...)", memory="(...)a").strides == (4, 8)
    padded = convert(x, "a...->a(...)", pad_to={"a": 3})
    np.testing.assert_array_equal(padded, np.pad(x.reshape(2, 12), ((0, 1), (0, 0))))


def test_names_in_folds_only_everywhere():
    """Test the names that only the sizes show to be names."""
    pattern, sizes = "b t (head k)->(head b) t k", {"head": 3}
    x = numbered(2, 5, 12).astype("f4")
    wanted = x.reshape(2, 5, 3, 4).transpose(2, 0, 1, 3).reshape(6, 5, 4)
    np.testing.assert_array_equal(
        accumulate([(x, "b t (head k)")], "(head b) t k", **sizes), wanted
    )
    rows = Collator("t (head k)->(head b) t k", **sizes)
    np.testing.assert_array_equal(rows([*x]), wanted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows))([*x]), wanted)
    assert "(head b) t k" in str(plan(pattern, x.shape, **sizes))
    assert "head=2" in draw_text(pattern, sizes)
    assert eval(repr(Converter(pattern, **sizes)), {"Converter": Converter}).pattern == pattern
    with pytest.raises(ShapeError, match=r"the axis \(head k\) of size 12 is not head=5, k=5"):
        convert(x, pattern, head=5, k=5)


@pytest.mark.parametrize(("pattern", "shape", "sizes"), [row[:3] for row in EINOPS])
def test_values_are_those_of_einops(pattern, shape, sizes):
    einops = pytest.importorskip("einops", reason="einops is compared with where it is installed")
    if pattern not in ("xyz->1 1 zyx", "gthw->(hwg)(1t)"):  # letters
        x = numbered(*shape)
        wanted = einops.rearrange(x, pattern, **sizes)
        np.testing.assert_array_equal(convert(x, pattern, **sizes), wanted)
