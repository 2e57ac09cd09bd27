"""Draw the figure of docs/collate.md, windows that become a batch: `python demo/windows.py`.

The windows are those that `collate` crops; a test checks that the figure matches this file.
"""

from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[1]
FIGURE = HOME / "docs" / "collate.svg"

WINDOW = (84, 84)  # height, width
# For each sample: its size, the offset of its window, True for a flip, and the color of the sky.
SAMPLES = [
    ((120, 150), (18, 40), False, "#8ec5e8"),
    ((96, 132), (6, 12), True, "#f2b880"),
    ((130, 110), (30, 10), False, "#b9a5d6"),
]
WIDTH, HEIGHT, TOP, GAP = 720, 332, 62, 28

STYLE = """
    svg { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
    .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
    .card { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .muted { fill: #59636e }
    .window { fill: none; stroke: #d1242f; stroke-width: 2.5 } .way { stroke: #8c959f; fill: none }
    @media (prefers-color-scheme: dark) {
      .card { fill: #15191f; stroke: #3d444d } .ink { fill: #f0f6fc } .muted { fill: #9198a1 }
      .window { stroke: #ff7b72 }
    }
"""


def figure() -> str:
    """Return the SVG: samples of three sizes with their windows, and the batch."""
    title = "Windows of images of three sizes, one of them flipped, become one batch"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{title}</title>\n<style>{STYLE}</style>",
        f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>',
        _text(28, 36, "samples, and the window of each", "ink", 15),
        _text(448, 36, "the batch, made in one pass", "ink", 15),
    ]
    lines += [f"<defs>{''.join(_symbols())}</defs>"]
    x = 28.0
    for number in range(len(SAMPLES)):
        lines += _sample(number, x)
        x += SAMPLES[number][0][1] * 0.8 + 24
    lines += _batch()
    return "\n".join([*lines, "</svg>", ""])


def _symbols() -> Iterator[str]:
    """Yield each sample once: a sky, a sun, and two hills."""
    for number, ((height, width), _, _, sky) in enumerate(SAMPLES):
        hills = (
            f'<path fill="#5d9b62" d="M0 {height * 0.8:g} Q{width * 0.3:g} {height * 0.35:g} '
            f'{width * 0.62:g} {height * 0.85:g} V{height} H0z"/>'
            f'<path fill="#3f7d54" d="M{width * 0.35:g} {height} Q{width * 0.75:g} '
            f'{height * 0.4:g} {width} {height * 0.75:g} V{height}z"/>'
        )
        sun = f'<circle cx="{width * 0.42:g}" cy="{height * 0.3:g}" r="11" fill="#ffe08a"/>'
        yield (
            f'<g id="s{number}"><rect width="{width}" height="{height}" fill="{sky}"/>{sun}{hills}'
            "</g>"
        )
    height, width = WINDOW
    yield f'<clipPath id="w"><rect width="{width}" height="{height}"/></clipPath>'


def _sample(number: int, x: float) -> Iterator[str]:
    """Yield a sample, its window and its caption."""
    (height, width), (top, left), flipped, _ = SAMPLES[number]
    yield f'<g transform="translate({x:g} {TOP}) scale(.8)"><use href="#s{number}"/>'
    yield (
        f'<rect class="window" x="{left}" y="{top}" width="{WINDOW[1]}" height="{WINDOW[0]}"/></g>'
    )
    y = TOP + 130
    yield _text(x, y, f"({height}, {width}, 3)", "muted mono", 12)
    yield _text(x, y + 18, f"h={top} w={left}{' flip' if flipped else ''}", "muted mono", 12)


def _batch() -> Iterator[str]:
    """Yield the windows, stacked."""
    height, width = WINDOW
    for number, (_, (top, left), flipped, _) in enumerate(SAMPLES):
        x, y = 470 + number * 34, TOP + 6 + number * 42
        turn = f"translate({width} 0) scale(-1 1)" if flipped else ""
        yield (
            f'<g transform="translate({x} {y})"><rect class="card" x="-2" y="-2" '
            f'width="{width + 4}" height="{height + 4}"/><g clip-path="url(#w)">'
            f'<g transform="{turn} translate({-left} {-top})"><use href="#s{number}"/></g></g></g>'
        )
    yield _text(470, TOP + 6 + 2 * 42 + height + 26, f"(3, 3, {height}, {width})", "muted mono", 12)
    code = f'collate(photos, "hwc-&gt;bchw", h={height}, w={width}, offset=..., flip=..., ...)'
    yield _text(28, HEIGHT - 28, code, "ink mono", 13)


def _text(x: float, y: float, text: str, kind: str, size: int) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size}">{text}</text>'


if __name__ == "__main__":
    FIGURE.write_text(figure(), encoding="utf-8")
    print(f"written: {FIGURE.relative_to(HOME)}")
