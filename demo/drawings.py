"""Draw speed.svg, collate.svg, padded.svg and packed.svg of docs: `python demo/drawings.py`.

The chart of README.md has numbers from two tables of docs/performance.md. The figure of
docs/collate.md has the windows that `collate` crops and the batch that they become, the figures
of docs/sizes.md a padded and a packed batch. A test checks that all are up to date.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

HOME = Path(__file__).parents[1]
WIDTH = 720

STYLE = """
    svg { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
    .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
    .card { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .muted { fill: #59636e }
    .ours { fill: #2f62b5 } .theirs { fill: #b8c4d0 }
    .window { fill: none; stroke: #d1242f; stroke-width: 2.5 }
    @media (prefers-color-scheme: dark) {
      .card { fill: #15191f; stroke: #3d444d } .ink { fill: #f0f6fc } .muted { fill: #9198a1 }
      .ours { fill: #5b8def } .theirs { fill: #4b5764 } .window { stroke: #ff7b72 }
    }
"""


def _svg(title: str, height: float, parts: Iterator[str]) -> str:
    """Return a card with a title for screen readers."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" role="img">',
        f"<title>{title}</title>\n<style>{STYLE}</style>",
        f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{height - 2:g}" rx="12"/>',
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


def _text(x: float, y: float, text: str, style: str, size: int) -> str:
    anchor = ' text-anchor="end"' if style.endswith(" end") else ""
    name = style.removesuffix(" end")
    return f'<text class="{name}" x="{x:g}" y="{y:g}" font-size="{size}"{anchor}>{text}</text>'


# ---- speed compared with other libraries ---------------------------------------------------

# For each table of docs/performance.md with shown rows: its columns of other libraries.
MAIN = {-3: "NumPy", -2: "torch", -1: "OpenCV"}
RESIZES = {2: "torch", 3: "Pillow", 4: "OpenCV"}
# First cell of each shown row -> its caption, and the columns of its table.
ROWS = {
    "64 random crops of 500x375 to 224x224": (
        "64 photographs, randomly cropped, resized and normalized into a batch", RESIZES,
    ),
    "`bhwc->bchw` uint8->float32 (64, 224, 224, 3)": (
        "64 decoded photographs to normalized float32 channels", MAIN,
    ),
    "`bhwc->bchw` float32 (64, 56, 56, 64)": (
        "float32 features of a layer, channels last to channels first", MAIN,
    ),
    "`bhwc->chwb` float32 (64, 56, 56, 64)": ("these features to batch last", MAIN),
    "`bchw+chwb+bhwc+bchw->bhwc` float32 (64, 56, 56, 64)": (
        "the sum of four gradients in three layouts", MAIN,
    ),
}  # fmt: skip
LEFT, TOP, BAR, GAP, HEADING, BETWEEN = 100, 80, 14, 4, 22, 22


def chart(page: str) -> str:
    """Return the SVG of the shown rows, with the numbers on the page."""
    rows = {caption: _ratios(page, name, columns) for name, (caption, columns) in ROWS.items()}
    bars = sum(1 + len(ratios) for ratios in rows.values())
    height = TOP + len(rows) * (HEADING + BETWEEN) + bars * (BAR + GAP)
    return _svg(_speedup(rows), height, _chart(page, rows))


def _speedup(rows: dict[str, dict[str, float]]) -> str:
    ratios = [ratio for row in rows.values() for ratio in row.values()]
    libraries = "NumPy, torch, Pillow and OpenCV"
    return f"layoutkit is {min(ratios):.1f} to {max(ratios):.0f} times as fast as {libraries}"


def _chart(page: str, rows: dict[str, dict[str, float]]) -> Iterator[str]:
    measured = r"^([\d-]+), `layoutkit bench --json.* on (.*?) \("
    day, cpu = re.findall(measured, page, re.MULTILINE)[0]
    yield _text(28, 34, _speedup(rows), "ink", 17)
    yield _text(
        28, 54, "time of each library, relative to layoutkit: shorter is better", "muted", 12
    )
    yield _text(WIDTH - 28, 54, f"{cpu}, 2 threads, {day}", "muted end", 12)
    scale = (WIDTH - 2 * LEFT) / max(max(ratios.values()) for ratios in rows.values())
    y = TOP
    for caption, ratios in rows.items():
        yield _text(28, y + 10, caption, "ink", 13)
        y += HEADING
        for library, ratio in {"layoutkit": 1.0, **ratios}.items():
            is_ours = library == "layoutkit"
            yield _text(LEFT - 8, y + 11, library, "muted end", 12)
            yield (
                f'<rect class="{"ours" if is_ours else "theirs"}" x="{LEFT}" y="{y:g}" '
                f'width="{ratio * scale:.1f}" height="{BAR}" rx="2"/>'
            )
            label = "1" if is_ours else f"{ratio:.1f} times"
            yield _text(round(LEFT + ratio * scale + 6, 1), y + 11, label, "ink", 12)
            y += BAR + GAP
        y += BETWEEN


def _ratios(page: str, name: str, columns: dict[int, str]) -> dict[str, float]:
    """Return the time of each library in a row, relative to layoutkit."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return {
        library: float(cells[column])
        for column, library in columns.items()
        if re.fullmatch(r"[\d.]+", cells[column])
    }


# ---- windows that become a batch -----------------------------------------------------------

WINDOW = (84, 84)  # height, width
# For each sample: its size, the offset of its window, True for a flip, and the color of the sky.
SAMPLES = [
    ((120, 150), (18, 40), False, "#8ec5e8"),
    ((96, 132), (6, 12), True, "#f2b880"),
    ((130, 110), (30, 10), False, "#b9a5d6"),
]


def figure() -> str:
    """Return the SVG: samples of three sizes with their windows, and the batch."""
    title = "Windows of images of three sizes, one of them flipped, become one batch"
    return _svg(title, 332, _figure())


def _figure() -> Iterator[str]:
    yield _text(28, 36, "samples, and the window of each", "ink", 15)
    yield _text(448, 36, "the batch, made in one pass", "ink", 15)
    height, width = WINDOW
    clip = f'<clipPath id="w"><rect width="{width}" height="{height}"/></clipPath>'
    samples = [
        _landscape(f"s{number}", *size, sky) for number, (size, _, _, sky) in enumerate(SAMPLES)
    ]
    yield f"<defs>{''.join(samples)}{clip}</defs>"
    x = 28.0
    for number, (size, (top, left), is_flipped, _) in enumerate(SAMPLES):
        window = f'<rect class="window" x="{left}" y="{top}" width="{width}" height="{height}"/>'
        yield f'<g transform="translate({x:g} 62) scale(.8)"><use href="#s{number}"/>{window}</g>'
        yield _text(x, 192, f"({size[0]}, {size[1]}, 3)", "muted mono", 12)
        yield _text(x, 210, f"h={top} w={left}{' flip' * is_flipped}", "muted mono", 12)
        flip = f"translate({width} 0) scale(-1 1)" * is_flipped
        yield (
            f'<g transform="translate({470 + number * 34} {68 + number * 42})"><rect class="card" '
            f'x="-2" y="-2" width="{width + 4}" height="{height + 4}"/><g clip-path="url(#w)">'
            f'<g transform="{flip} translate({-left} {-top})"><use href="#s{number}"/></g></g></g>'
        )
        x += size[1] * 0.8 + 24
    yield _text(470, 178 + height, f"(3, 3, {height}, {width})", "muted mono", 12)
    code = f'collate(photos, "hwc-&gt;bchw", h={height}, w={width}, offset=..., flip=..., ...)'
    yield _text(28, 304, code, "ink mono", 13)


def _landscape(name: str, height: int, width: int, sky: str) -> str:
    """Return an image: a sky, a sun, and two hills."""
    return (
        f'<g id="{name}"><rect width="{width}" height="{height}" fill="{sky}"/>'
        f'<circle cx="{width * 0.42:g}" cy="{height * 0.3:g}" r="11" fill="#ffe08a"/>'
        f'<path fill="#5d9b62" d="M0 {height * 0.8:g} Q{width * 0.3:g} {height * 0.35:g} '
        f'{width * 0.62:g} {height * 0.85:g} V{height} H0z"/>'
        f'<path fill="#3f7d54" d="M{width * 0.35:g} {height} Q{width * 0.75:g} '
        f'{height * 0.4:g} {width} {height * 0.75:g} V{height}z"/></g>'
    )


# ---- samples that are padded ---------------------------------------------------------------

CLIPS = [(9, "#8ec5e8"), (16, "#f2b880"), (5, "#b9a5d6")]  # for each: its length, and its color
CELL = 15


def padded_figure() -> str:
    """Return the SVG: samples of three lengths, and the batch with padding after each."""
    return _svg(
        "Samples of three lengths, padded to the longest, and their lengths", 200, _padded()
    )


def _padded() -> Iterator[str]:
    longest = max(length for length, _ in CLIPS)
    yield _text(28, 36, "samples", "ink", 15)
    yield _text(330, 36, "data", "ink", 15)
    yield _text(610, 36, "lengths", "ink", 15)
    for number, (length, color) in enumerate(CLIPS):
        y = 58 + 30 * number
        yield from _cells(28, y, length, f'fill="{color}"')
        yield from _cells(330, y, longest, 'class="theirs" fill-opacity="0.35"')
        yield from _cells(330, y, length, f'fill="{color}"')
        yield _text(625, y + 15, str(length), "ink mono", 13)
    code = 'data, lengths = collate(samples, "t-&gt;bt", t="longest", lengths=True)'
    yield _text(28, 178, code, "ink mono", 13)


def _cells(x: float, y: float, count: int, style: str) -> Iterator[str]:
    for number in range(count):
        yield (
            f'<rect {style} x="{x + CELL * number:g}" y="{y:g}" width="{CELL - 1}" height="20"/>'
        )


# ---- images that are packed as patches -----------------------------------------------------

GRIDS = [(4, 3, "#8ec5e8"), (2, 5, "#f2b880")]  # for each image: its patches, and its sky
PATCH, TILE = 28, 13  # the side of a patch in its image, and in the batch


def packed_figure() -> str:
    """Return the SVG: images of two sizes, and the batch of their patches."""
    title = "The patches of images of two sizes follow each other in the batch"
    return _svg(title, 258, _packed())


def _packed() -> Iterator[str]:
    yield _text(28, 36, "images", "ink", 15)
    yield _text(330, 36, "data: a row for each patch", "ink", 15)
    images = [
        _landscape(f"p{number}", PATCH * rows, PATCH * columns, sky)
        for number, (rows, columns, sky) in enumerate(GRIDS)
    ]
    yield f"<defs>{''.join(images)}</defs>"
    x, offset = 28, 0
    for number, (rows, columns, _) in enumerate(GRIDS):
        for index in range(rows * columns):
            row, column = divmod(index, columns)
            yield _patch(number, row, column, x + 30 * column, 56 + 30 * row, PATCH)
            yield _patch(number, row, column, 330 + 16 * (offset + index), 56, TILE)
        yield _text(x, 74 + 30 * rows, f"{rows} x {columns} patches", "muted", 12)
        yield _text(330 + 16 * offset, 88, str(offset), "muted mono", 12)
        x, offset = x + 30 * columns + 24, offset + rows * columns
    yield _text(330 + 16 * offset, 88, str(offset), "muted mono", 12)
    sizes = [[rows, columns] for rows, columns, _ in GRIDS]
    yield _text(330, 124, f"sizes = {sizes}", "ink mono", 13)
    yield _text(330, 146, f"offsets = {[0, *_offsets()]}", "ink mono", 13)
    code = 'collate(images, "(hp)(wq)c-&gt;(bhw)(cpq)", p=14, q=14, dtype="float32", ...)'
    yield _text(28, 234, code, "ink mono", 13)


def _offsets() -> Iterator[int]:
    """Return the number of patches up to the end of each image."""
    return accumulate(rows * columns for rows, columns, _ in GRIDS)


def _patch(number: int, row: int, column: int, x: int, y: int, side: int) -> str:
    """Return a patch of an image, drawn with this side."""
    return (
        f'<svg x="{x}" y="{y}" width="{side}" height="{side}" '
        f'viewBox="{PATCH * column} {PATCH * row} {PATCH} {PATCH}"><use href="#p{number}"/></svg>'
    )


if __name__ == "__main__":
    docs = HOME / "docs"
    table = (docs / "performance.md").read_text(encoding="utf-8")
    (docs / "speed.svg").write_text(chart(table), encoding="utf-8")
    (docs / "collate.svg").write_text(figure(), encoding="utf-8")
    (docs / "padded.svg").write_text(padded_figure(), encoding="utf-8")
    (docs / "packed.svg").write_text(packed_figure(), encoding="utf-8")
