"""Draw the chart of README.md from the tables of docs/performance.md: `python demo/speed.py`.

New measurements are entered on that page; a test checks that the chart matches it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[1]
PAGE, CHART = HOME / "docs" / "performance.md", HOME / "docs" / "speed.svg"

# Name of each shown row in the tables -> its caption.
ROWS = {
    "`bhwc->bchw` uint8->float32 (64, 224, 224, 3)": "photographs to normalised float32 planes",
    "`bhwc->bchw` float32 (64, 56, 56, 64)": "a layer's float32 features, channels last to first",
    "`bhwc->chwb` float32 (64, 56, 56, 64)": "the same features, batch innermost",
    "`bchw+chwb+bhwc+bchw->bhwc` float32 (64, 56, 56, 64)": "gradients in three layouts, summed",
}
LIBRARIES = ("NumPy", "torch", "OpenCV")  # the last columns, in this order

WIDTH, LEFT, RIGHT = 720, 100, 100
TOP, BAR, GAP, HEADING, BETWEEN = 62, 14, 4, 22, 22

STYLE = """
    svg { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
    .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
    .card { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .muted { fill: #59636e }
    .ours { fill: #2f62b5 } .theirs { fill: #b8c4d0 }
    @media (prefers-color-scheme: dark) {
      .card { fill: #15191f; stroke: #3d444d } .ink { fill: #f0f6fc } .muted { fill: #9198a1 }
      .ours { fill: #5b8def } .theirs { fill: #4b5764 }
    }
"""


def chart(page: str) -> str:
    """Return the SVG of the shown rows, with the numbers on the page."""
    rows = {name: _ratios(page, name) for name in ROWS}
    longest = max(max(ratios.values()) for ratios in rows.values())
    y = TOP
    drawn: list[str] = []
    for name, ratios in rows.items():
        drawn += _group(y, name, ratios, (WIDTH - LEFT - RIGHT) / longest)
        y += HEADING + (1 + len(ratios)) * (BAR + GAP) + BETWEEN
    text = ["Time of other libraries, where layoutkit takes 1", f"shorter is better; {_day(page)}"]
    title = [_text(28, 34, text[0], "ink", 17), _text(WIDTH - 28, 34, text[1], "muted end", 12)]
    return "\n".join([*_frame(y, text[0]), *title, *drawn, "</svg>", ""])


def _ratios(page: str, name: str) -> dict[str, float]:
    """Return the time of each library in a row, relative to layoutkit."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")][-len(LIBRARIES) :]
    return {
        library: float(cell)
        for library, cell in zip(LIBRARIES, cells, strict=True)
        if re.fullmatch(r"[\d.]+", cell)
    }


def _day(page: str) -> str:
    match = re.search(r"^(\d{4}-\d\d-\d\d), `layoutkit bench", page, re.MULTILINE)
    return match[1] if match else ""


def _group(y: float, name: str, ratios: dict[str, float], scale: float) -> Iterator[str]:
    """Yield a heading and a bar for each library."""
    pattern = name.split("`")[1].replace("->", " → ")
    yield _text(28, y + 10, ROWS[name], "ink", 13)
    yield _text(WIDTH - 28, y + 10, pattern, "muted mono end", 12)
    y += HEADING
    for library, ratio in {"layoutkit": 1.0, **ratios}.items():
        kind = "ours" if library == "layoutkit" else "theirs"
        yield _text(LEFT - 8, y + 11, library, "muted end", 12)
        yield (
            f'<rect class="{kind}" x="{LEFT}" y="{y:g}" width="{ratio * scale:.1f}" '
            f'height="{BAR}" rx="2"/>'
        )
        label = "1" if library == "layoutkit" else f"{ratio:.1f} times"
        yield _text(LEFT + ratio * scale + 6, y + 11, label, "ink", 12)
        y += BAR + GAP


def _text(x: float, y: float, text: str, kind: str, size: int) -> str:
    anchor = ' text-anchor="end"' if "end" in kind.split() else ""
    name = kind.removesuffix(" end")
    return f'<text class="{name}" x="{x:.1f}" y="{y:g}" font-size="{size}"{anchor}>{text}</text>'


def _frame(height: float, title: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
    )
    yield f"<title>{title}</title>\n<style>{STYLE}</style>"
    size = f'width="{WIDTH - 2}" height="{height - 2}"'
    yield f'<rect class="card" x="1" y="1" {size} rx="12"/>'


if __name__ == "__main__":
    CHART.write_text(chart(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written: {CHART.relative_to(HOME)}")
