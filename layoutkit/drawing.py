"""Drawings of the memory order before and after a conversion, as text, SVG and HTML.

The memory order is shown for a small example array, as text and as SVG. Each drawing shows every
element of the example in memory order, labeled by its index along each axis. The index along one
axis (the channels, if there are any) is shown by letter or color, so that scattering and gathering
along it are easy to see.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod
from operator import mul
from string import ascii_uppercase
from textwrap import wrap
from xml.sax.saxutils import escape

from .errors import LayoutkitError
from .layout.parsing import DOTS, Layout
from .layout.pattern import Permutation, parse_pattern

# Small enough for one line, and different enough to tell the axes apart.
_EXAMPLE_SIZES = {"b": 2, "c": 3, "d": 2, "f": 4, "h": 2, "t": 3, "w": 3}
_DEFAULT_SIZE = 2
_MAX_COLUMNS = 12
_MAX_ROWS = 6
_MAX_ELEMENTS = 4096  # only some rows of them are shown; further axes get size 1

# Red, green, blue, ... that color-blind readers can tell apart, all dark enough for white text.
_COLORS = ("#c8443c", "#2e7d4f", "#2f62b5", "#7a4fa3", "#8a6420")

_CELL = 32
_GAP = 3
_RUN_GAP = 9
_ROW = 40
_MARGIN = 28
_HEAD = 38
_TITLE = 76
_LEGEND = 82
_NARROWEST = 560
_LINE = 18
_SMALL = 12
_WIDE = 0.6  # width / height of a character in most monospaced fonts

_STYLE = """
    svg { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
    .card { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .muted { fill: #59636e }
    .cell { fill: #ffffff; text-anchor: middle }
    .mark { fill: none; stroke: #1f2328; stroke-width: 2.5 }
    @media (prefers-color-scheme: dark) {
      .card { fill: #15191f; stroke: #3d444d } .ink { fill: #f0f6fc } .muted { fill: #9198a1 }
      .mark { stroke: #f0f6fc }
    }
"""


@dataclass(frozen=True)
class _Element:
    color: int  # its index along the colored axis
    label: str  # its indices along the other axes


@dataclass(frozen=True)
class _Order:
    title: str
    layout: Layout
    elements: Sequence[_Element]  # in memory order
    run: int  # consecutive elements with the same index along the second-innermost axis
    columns: int  # elements in a row of the drawing

    def rows(self) -> Iterator[Sequence[_Element]]:
        shown = self.elements[: self.columns * _MAX_ROWS]
        return (shown[start : start + self.columns] for start in range(0, len(shown), self.columns))

    @property
    def hidden(self) -> int:
        """The number of elements that the rows omit."""
        return max(0, len(self.elements) - self.columns * _MAX_ROWS)


@dataclass(frozen=True)
class _Example:
    pattern: str
    sizes: Mapping[str, int]
    colored: str
    orders: tuple[_Order, _Order]
    named_layout: Layout  # the source's layout, with every axis and its name

    @property
    def names(self) -> str:
        """The names of the indices along the colored axis, one letter each."""
        letters = "RGB" if self.colored == "c" else ascii_uppercase
        return letters[: self.sizes[self.colored]]

    @property
    def label_axes(self) -> str:
        """The axes whose indices form a label, in its order."""
        return "".join(a for a, size in self.sizes.items() if size > 1 and a != self.colored)

    def axis_names(self, axes: str) -> list[str]:
        return [self.named_layout.name(axis) for axis in axes]

    def __str__(self) -> str:
        shown = {axis: size for axis, size in self.sizes.items() if size > 1}
        names = self.axis_names("".join(shown))
        sizes = ", ".join(
            f"{name}={size}" for name, size in zip(names, shown.values(), strict=True)
        )
        return f"a small example, {sizes or 'one element'}"


# ---- text ------------------------------------------------------------------------------


def draw_text(pattern: str, sizes: Mapping[str, int] | None = None) -> str:
    """Return both memory orders of a small example, as lines of text.

    sizes : axis sizes of an array; no axis of the example is larger

    >>> print(draw_text("hc->ch"))
    a small example, h=2, c=3; each element is its c (R, G, B), then its place along h
    <BLANKLINE>
      before hc   R0 G0 B0  R1 G1 B1
      after  ch   R0 R1  G0 G1  B0 B1
    """
    example = _example(pattern, sizes or {})
    names = ", ".join(example.names)
    label_names = ", ".join(example.axis_names(example.label_axes))
    rest = f", then its place along {label_names}" if label_names else ""
    (colored,) = example.axis_names(example.colored)
    lines = [f"{example}; each element is its {colored} ({names}){rest}", ""]
    margin = max(len(str(order.layout)) for order in example.orders)
    for order in example.orders:
        head = f"  {order.title:6} {order.layout!s:{margin}}   "
        for row in order.rows():
            lines.append(head + _text_row(row, order.run, example.names))
            head = " " * len(head)
        if order.hidden:
            lines.append(f"{head}and {order.hidden} more")
    return "\n".join(lines)


def _text_row(row: Sequence[_Element], run: int, names: str) -> str:
    labels = [names[element.color] + element.label for element in row]
    return "  ".join(" ".join(labels[start : start + run]) for start in range(0, len(labels), run))


# ---- SVG -------------------------------------------------------------------------------


def draw_svg(pattern: str, sizes: Mapping[str, int] | None = None) -> str:
    """Return both memory orders as a standalone SVG document, for light and dark viewers."""
    example = _example(pattern, sizes or {})
    parts = [_heading(example)]
    bottom = _TITLE
    for order in example.orders:
        parts += _strip(order, bottom, mark=example.orders[0].elements[0].label)
        bottom += _HEAD + _ROW * len(list(order.rows())) + (_ROW // 2 if order.hidden else 0)
    width = max(_NARROWEST, *map(_width, example.orders))
    legend = _legend_lines(example, width - _legend_left(example) - _MARGIN)
    parts += _legend(example, bottom + _ROW // 2, legend)
    height = bottom + _LEGEND + _LINE * (len(legend) - 2)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" role="img">',
            f"<title>{escape(pattern)} in memory</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="card" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="12"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, style: str, size: int = 13) -> str:
    # The viewer's font is unknown; an explicit textLength makes the text fit with any font.
    text_length = f' textLength="{len(text) * size * _WIDE:g}" lengthAdjust="spacingAndGlyphs"'
    length = "" if style == "cell" else text_length  # a cell's label is short
    return (
        f'<text class="{style}" x="{x:g}" y="{y:g}" font-size="{size}"{length}>'
        f"{escape(text)}</text>"
    )


def _heading(example: _Example) -> str:
    title = " \N{RIGHTWARDS ARROW} ".join(str(order.layout) for order in example.orders)
    return _text(_MARGIN, 38, title, "ink", 20) + _text(_MARGIN, 60, str(example), "muted")


def _strip(order: _Order, top: int, mark: str) -> Iterator[str]:
    """Yield one memory order as rows of cells; cells with the label `mark` are outlined."""
    yield _text(_MARGIN, top + 24, f"{order.title}: {order.layout}", "ink")
    top += _HEAD
    for row in order.rows():
        for pos, element in enumerate(row):
            yield _cell(element, _left(pos, order.run), top, marked=element.label == mark)
        top += _ROW
    if order.hidden:
        yield _text(_MARGIN, top + 8, f"and {order.hidden} more", "muted")


def _left(pos: int, run: int) -> int:
    return _MARGIN + pos * (_CELL + _GAP) + pos // run * _RUN_GAP


def _width(order: _Order) -> int:
    return _left(order.columns - 1, order.run) + _CELL + _MARGIN


def _cell(element: _Element, x: int, y: int, *, marked: bool) -> str:
    color = _COLORS[element.color % len(_COLORS)]
    shape = f'x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="5"'
    outline = f'<rect class="mark" {shape}/>' if marked else ""
    size = min(12, 44 // max(1, len(element.label)))  # many axes make long labels
    label = _text(x + _CELL / 2, y + 20, element.label, "cell", size)
    return f'<rect {shape} fill="{color}"/>{label}{outline}'


def _legend(example: _Example, top: int, lines: Sequence[str]) -> Iterator[str]:
    for value, name in enumerate(example.names):
        x = _MARGIN + value * (_CELL + _GAP)
        yield _cell(_Element(value, name), x, top, marked=False)
    for number, text in enumerate(lines):
        yield _text(_legend_left(example), top + 13 + _LINE * number, text, "muted", _SMALL)


def _legend_left(example: _Example) -> int:
    """Return the x position of the legend's text, right of its cells."""
    return _MARGIN + len(example.names) * (_CELL + _GAP) + 10


def _legend_lines(example: _Example, width: float) -> list[str]:
    label_names = example.axis_names(example.label_axes)
    (colored,) = example.axis_names(example.colored)
    texts = [f"color: {colored}", "memory: left to right, then down"]
    if label_names:
        start = ", ".join(f"{axis}=0" for axis in label_names)
        texts[0] += f", digits: {', '.join(label_names)}"
        texts.insert(1, f"outlined: all {colored} of {start}")
    columns = int(width / (_SMALL * _WIDE))
    return [line for text in texts for line in wrap(text, columns)]


# ---- the example -----------------------------------------------------------------------


def _example(pattern: str, known: Mapping[str, int]) -> _Example:
    parsed = parse_pattern(pattern, known)
    source = parsed.source
    target = parsed.target
    sizes = _drawn_sizes(source.letters, target.letters, known)
    shown = [axis for axis, size in sizes.items() if size > 1]
    colored = "c" if "c" in shown else [*source.letters, *shown][-1]
    layouts = {"before": (parsed.left, source.letters), "after": (parsed.right, target.letters)}
    before, after = (
        _order(title, layout, letters, sizes, colored)
        for title, (layout, letters) in layouts.items()
    )
    named_layout = Layout(source.groups, source.names + target.names)
    return _Example(pattern, sizes, colored, (before, after), named_layout)


def _drawn_sizes(source: str, target: str, known: Mapping[str, int]) -> dict[str, int]:
    """Return small example sizes. An axis that only one side has is of size 1 and moves nothing."""
    sizes: dict[str, int] = {}
    for axis in source:
        default = _EXAMPLE_SIZES.get(axis, _DEFAULT_SIZE)
        size = max(1, min(default, known.get(axis, default))) if axis in target else 1
        fits = size * prod(sizes.values()) <= _MAX_ELEMENTS
        sizes[axis] = size if fits else 1
    return sizes


def _order(
    title: str, layout: Layout, letters: str, sizes: Mapping[str, int], colored: str
) -> _Order:
    axes = [axis for axis in letters if axis in sizes]
    label_axes = [axis for axis, size in sizes.items() if size > 1 and axis != colored]
    elements = []
    for index in product(*(range(sizes[axis]) for axis in axes)):
        index_by_axis = dict(zip(axes, index, strict=True))
        elements.append(
            _Element(
                index_by_axis.get(colored, 0),
                "".join(str(index_by_axis[axis]) for axis in label_axes),
            )
        )
    counts = [sizes[axis] for axis in reversed(axes) if sizes[axis] > 1] or [1]
    columns = max(count for count in accumulate(counts, mul) if count <= _MAX_COLUMNS)
    return _Order(title, layout, elements, counts[0], columns)


# ---- notebooks -------------------------------------------------------------------------


def notebook_html(text: str, pattern: str, move: Permutation | None = None) -> str:
    """Return text and the drawing of a pattern as HTML; a pattern that is not drawn as its text."""
    try:
        drawing = draw_svg(pattern, None if move is None else sizes_of(move))
    except LayoutkitError:
        return f"<pre>{escape(text)}</pre>"
    # As an image, so that its styles do not apply to the rest of the page.
    data = b64encode(drawing.encode()).decode()
    title = escape(f"{pattern} in memory", {'"': "&quot;"})
    return f'<pre>{escape(text)}</pre><img alt="{title}" src="data:image/svg+xml;base64,{data}">'


def sizes_of(move: Permutation) -> dict[str, int]:
    """Return the sizes of all axes, also by name; the axes of `...` are merged for the drawing."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    return {
        **move.named_sizes,
        **sizes,
        DOTS: prod(size for axis, size in sizes.items() if move.source.name(axis) == "..."),
    }
