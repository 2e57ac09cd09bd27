"""The drawings show NumPy's memory order for any pattern, and are valid SVG."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from layoutkit.drawing import draw_svg, draw_text

PATTERNS = ["bhwc->bchw", "bhwc->chwb", "chwb->bhwc", "bf->bhwc", "bchw->b(hwc)", "bwt->btw"]
SIZES = {"b": 2, "h": 2, "w": 3, "c": 3, "t": 3}
SPELLED = {"bf->bhwc": ("bhwc", "bhwc"), "bchw->b(hwc)": ("bchw", "bhwc")}


def _orders(pattern):
    """Return the labels of the elements before and after, as NumPy moves them."""
    left, right = SPELLED.get(pattern) or pattern.split("->")
    colored = "c" if "c" in left else left[-1]
    letters = "RGB" if colored == "c" else "ABC"
    shape = [SIZES[axis] for axis in left]
    elements = np.empty(shape, object)
    for place in np.ndindex(*shape):
        at = dict(zip(left, place, strict=True))
        rest = "".join(str(at[axis]) for axis in left if axis != colored)
        elements[place] = letters[at[colored]] + rest
    moved = elements.transpose([left.index(axis) for axis in right])
    return list(elements.ravel()), list(moved.ravel())


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_text_shows_both_memory_orders(pattern):
    before, after = draw_text(pattern).split("\n\n")[1].split("  after ")
    name = re.compile(r"\b[A-Z]\d+\b")
    assert (name.findall(before), name.findall(after)) == _orders(pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_svg_shows_both_memory_orders(pattern):
    root = ET.fromstring(draw_svg(pattern))
    space = "{http://www.w3.org/2000/svg}"
    labels = [t.text for t in root.iter(f"{space}text") if t.get("class") == "cell"]
    before, after = _orders(pattern)
    count = len(before)
    assert labels[:count] == [name[1:] for name in before]
    assert labels[count : 2 * count] == [name[1:] for name in after]
    assert labels[2 * count :] == sorted(
        {name[0] for name in before}, key=("RGB" if "c" in pattern else "ABC").find
    )


def test_colors_in_the_svg_follow_the_channels():
    cells = re.findall(r'<rect x="\d+" y="\d+" [^>]* fill="(#\w+)"/>', draw_svg("bhwc->bchw"))
    red, green, blue = cells[:3]
    assert len({red, green, blue}) == 3
    assert cells[:36] == [red, green, blue] * 12
    assert cells[36:72] == ([red] * 6 + [green] * 6 + [blue] * 6) * 2


def test_the_svg_is_readable_on_dark_ground():
    figure = draw_svg("bhwc->bchw")
    assert "prefers-color-scheme: dark" in figure
    assert '<rect class="card"' in figure


@pytest.mark.parametrize(
    "pattern", ["b->t", "bf->b", "b->bt", "bdhwc->bcdhw", "abcdeghi->ihgedcba"]
)
def test_odd_patterns_have_figures_too(pattern):
    assert "before" in draw_text(pattern)
    ET.fromstring(draw_svg(pattern))


def test_a_long_example_says_how_much_is_left_out():
    assert "and 18 more" in draw_text("bdhwc->bcdhw")
    assert max(map(len, draw_text("bdhwc->bcdhw").splitlines()[1:])) < 100


@pytest.mark.parametrize("pattern", [*PATTERNS, "bcdhw->bdhwc", "abcdeghi->ihgedcba"])
def test_no_text_is_wider_than_the_card_whatever_the_font(pattern):
    root = ET.fromstring(draw_svg(pattern))
    width = float(root.get("width"))
    height = float(root.get("height"))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if text.get("class") != "cell":
            right = float(text.get("x")) + float(text.get("textLength"))
            assert right <= width - 20, text.text
            assert text.get("lengthAdjust") == "spacingAndGlyphs"
            # Only slightly squeezed or stretched: a character is 0.5 to 0.7 as wide as high.
            letter = float(text.get("textLength")) / len(text.text)
            assert 0.5 <= letter / float(text.get("font-size")) <= 0.7
        assert float(text.get("y")) < height - 10


def test_axes_are_called_what_the_pattern_calls_them():
    pattern = "batch height width c -> batch (c height width)"
    text = draw_text(pattern)
    assert text.startswith("a small example, batch=2, height=2, width=2, c=3; ")
    assert "its place along batch, height, width\n" in text
    assert "outlined: all c of batch=0, height=0," in draw_svg(pattern)
    assert draw_text("b...c->bc...").startswith("a small example, b=2, ...=2, c=3;")
    assert draw_text("NHWC->NCHW").startswith("a small example, n=2, h=2, w=3, c=3;")


def test_an_example_is_no_larger_than_the_array():
    text = draw_text("bhwc->bchw", {"b": 1, "h": 64, "w": 2, "c": 1})
    assert text.startswith("a small example, h=2, w=2;")
    assert "c=3" not in draw_svg("bhwc->bchw", {"c": 1})
    assert draw_text("bhwc->bchw", {"b": 0}).startswith("a small example, h=2")
