"""Draw the options of `images.Augmenter`, of `resize=`, of `placements=` and of `YUVFrames`.

`python demo/pictures.py [folder]` writes augmentations.jpg, placements.png, resize-fits.png,
resize-filters.png, resize-nodata.png and recipes/video-chroma.png, by default into docs/. The
photograph, the test pattern and the relief are drawn by this script, so no download is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from layoutkit import Collator, collate
from layoutkit.images import Augmenter, YUVFrames

Pixels = NDArray[np.uint8]
Row = list[tuple[str, list[Pixels]]]  # captions and their tiles

HEIGHT, WIDTH = 120, 160  # of an augmented photograph
SIDE = 168  # of a resized one
GAP = 12
CAPTION = 20
PAPER, INK = (234, 237, 240), (31, 35, 40)

# A caption -> the options, and the number of draws.
AUGMENTATIONS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing": ({}, 1),
    "rand_crop=True": ({"rand_crop": True, "shape": (80, 106)}, 3),
    "rand_mirror=True": ({"rand_mirror": True}, 3),
    "random_resized_crop=True, min_random_area=0.2": (
        {"random_resized_crop": True, "min_random_area": 0.2, "max_aspect_ratio": 0.25}, 3,
    ),
    "max_rotate_angle=25": ({"max_rotate_angle": 25}, 3),
    "rotate=90, and cut": ({"rotate": 90, "resize": 160}, 1),
    "max_shear_ratio=0.4": ({"max_shear_ratio": 0.4}, 3),
    "min_random_scale=0.5, max_random_scale=1.6": (
        {"min_random_scale": 0.5, "max_random_scale": 1.6, "pad": 40}, 3,
    ),
    "max_aspect_ratio=0.5": ({"max_aspect_ratio": 0.5, "pad": 30}, 3),
    "pad=30, rand_crop=True": ({"pad": 30, "rand_crop": True, "fill": (200, 205, 210)}, 3),
    "brightness=0.5": ({"brightness": 0.5}, 3),
    "contrast=0.8": ({"contrast": 0.8}, 3),
    "saturation=1": ({"saturation": 1}, 3),
    "random_h=40": ({"random_h": 40}, 3),
    "random_l=70": ({"random_l": 70}, 3),
    "random_s=150": ({"random_s": 150}, 3),
    "pca_noise=0.6": ({"pca_noise": 0.6}, 3),
    "max_random_contrast=0.6, max_random_illumination=60": (
        {"max_random_contrast": 0.6, "max_random_illumination": 60.0}, 3,
    ),
}  # fmt: skip
FITS: dict[str, dict[str, Any]] = {
    'fit="stretch"': {},
    'fit="cover"': {"fit": "cover"},
    'fit="pad", fill=114': {"fit": "pad", "fill": 114},
    "short_side=220": {"short_side": 220},
    "crop=..., offset=...": {"crop": {"h": 120, "w": 120}, "offset": {"h": 95, "w": 40}},
}
# x1, y1, x2, y2 in the photograph, and a color: the house, the tree and the sun.
THINGS = (
    ((50, 100, 143, 209), (200, 72, 54)),
    ((157, 80, 292, 213), (62, 130, 70)),
    ((232, 24, 277, 69), (238, 190, 40)),
)
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "area")


def photograph() -> Pixels:
    """Return a landscape: uint8 (240, 320, 3)."""
    height, width = 2 * HEIGHT, 2 * WIDTH
    rng = np.random.default_rng(3)
    down = np.linspace(0, 1, height)[:, None, None]
    sky = (1 - down) * (92, 148, 214) + down * (232, 224, 205)
    image = Image.fromarray(np.broadcast_to(sky, (height, width, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.ellipse((232, 24, 276, 68), fill=(255, 236, 150))
    for base, color, swing in ((150, (126, 146, 158), 26), (182, (88, 128, 92), 16)):
        x = np.arange(-4, width + 8, 4)
        y = base - swing * np.sin(x / 47 + base) - swing / 2 * np.sin(x / 19)
        edge = np.column_stack([x, y]).ravel().tolist()
        draw.polygon([*edge, width, height, 0, height], fill=color)
    draw.polygon([(0, 240), (0, 214), (320, 196), (320, 240)], fill=(150, 166, 84))
    draw.rectangle((60, 140, 132, 208), fill=(214, 196, 168))
    draw.polygon([(50, 142), (96, 100), (142, 142)], fill=(168, 62, 48))
    for left in (70, 106):
        draw.rectangle((left, 154, left + 16, 172), fill=(70, 92, 122))
    draw.rectangle((90, 176, 104, 208), fill=(104, 70, 48))
    draw.rectangle((214, 150, 224, 212), fill=(96, 72, 52))
    for _ in range(90):
        x, y = rng.normal((219, 132), (19, 17))
        green = (int(rng.integers(40, 90)), int(rng.integers(100, 150)), 60)
        draw.ellipse((x - 8, y - 8, x + 8, y + 8), fill=green)
    smooth = np.asarray(image.filter(ImageFilter.GaussianBlur(0.8))).astype(np.float64)
    return np.clip(smooth + rng.normal(0, 1.5, smooth.shape), 0, 255).astype(np.uint8)


def rings(side: int = 512) -> Pixels:
    """Return gray rings that are finer the farther they are from the center: (side, side, 3)."""
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    wave = np.cos((x * x + y * y) * (np.pi / 2.2 / side))
    return np.repeat((127.5 + 120 * wave).round().astype(np.uint8)[..., None], 3, 2)


def augmentations() -> list[Row]:
    """Return the draws of all options, in two columns."""
    photo = Image.fromarray(photograph()).resize((WIDTH, HEIGHT), Image.Resampling.BOX)
    cells: Row = []
    for name, (options, draws) in AUGMENTATIONS.items():
        keywords = {"shape": (HEIGHT, WIDTH)} | options
        shape = (3, *keywords.pop("shape"))
        augment = Augmenter(shape, layout="hwc", dtype="uint8", seed=12, **keywords)
        cells.append((name, [augment(np.asarray(photo), position=n) for n in range(draws)]))
    half = len(cells) // 2
    return [list(pair) for pair in zip(cells[:half], cells[half:], strict=True)]


def fits() -> list[Row]:
    """Return one row of the ways to fit."""
    photo = photograph()
    cells = [(text, [_resized(photo, "bilinear", **options)]) for text, options in FITS.items()]
    return [[("the sample, 240 x 320", [photo]), *cells]]


def filters() -> list[Row]:
    """Return rings shrunk with and without antialias, and an enlarged part of the photograph."""
    detail = photograph()[132:180, 60:108]  # with edges in several directions
    plain = ("bilinear", "bicubic")
    return [
        [(f'"{name}"', [_resized(rings(), name)]) for name in FILTERS],
        [(f'"{n}", antialias=False', [_resized(rings(), n, antialias=False)]) for n in plain],
        [(f'"{name}", enlarged', [_resized(detail, name)]) for name in FILTERS],
    ]


def mask() -> Pixels:
    """Return the class of each pixel of the photograph, uint8 (240, 320): 0 is the background."""
    image = Image.new("L", (2 * WIDTH, 2 * HEIGHT))
    draw = ImageDraw.Draw(image)
    draw.ellipse(THINGS[2][0], fill=3)
    draw.rectangle((60, 140, 132, 208), fill=1)
    draw.polygon([(50, 142), (96, 100), (142, 142)], fill=1)
    draw.ellipse((157, 80, 291, 168), fill=2)
    draw.rectangle((214, 150, 224, 212), fill=2)
    return np.asarray(image)


def placements() -> list[Row]:
    """Return the photograph and random crops of it, with boxes, above their masks."""
    photo, classes = photograph(), mask()
    boxes = np.array([box for box, _ in THINGS])
    size: dict[str, Any] = {"h": HEIGHT * 3 // 2, "w": HEIGHT * 3 // 2}
    crop = {"scale": (0.2, 0.7)}
    images = Collator("hwc->bhwc", resize="bilinear", crop=crop, flip="random", seed=7, **size)
    masks = Collator("hw->bhw", resize="nearest", **size)
    places = images.place([photo] * 3, positions=range(3))
    drawn = images([photo] * 3, placements=places)
    moved = masks([classes] * 3, placements=places)
    photos: Row = [("the sample and its boxes", [_boxed(photo, boxes, [0, 1, 2])])]
    colored: Row = [("its mask", [_painted(classes)])]
    for number, placement in enumerate(places):
        inside, kept = placement.fit_boxes(boxes, min_size=4, min_visible=0.25)
        photos.append((f"position {number}", [_boxed(drawn[number], inside, kept.tolist())]))
        colored.append(("", [_painted(moved[number])]))
    return [photos, colored]


def _boxed(pixels: Pixels, boxes: NDArray[Any], kept: Sequence[int]) -> Pixels:
    """Return pixels with the boxes of the things that are kept."""
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for (x1, y1, x2, y2), thing in zip(boxes.round().tolist(), kept, strict=True):
        draw.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), None, THINGS[thing][1], 3)
    return np.asarray(image)


def _painted(classes: Pixels) -> Pixels:
    colors = np.array([(250, 250, 250), *(color for _, color in THINGS)], np.uint8)
    return colors[classes]


def relief(side: int = 48) -> NDArray[np.float32]:
    """Return a tile of a satellite: (side, side, 1) heights, -9999 for missing ones."""
    y, x = np.mgrid[:side, :side] / side
    heights = 126 + 60 * np.sin(7 * x + 3 * y) + 50 * np.cos(9 * y - 4 * x * x)
    is_cloud = (x - 0.42) ** 2 + (1.6 * y - 0.75) ** 2 < 0.03
    heights[is_cloud | (x + 0.4 * y > 1.05)] = -9999
    return heights[..., None].astype(np.float32)


def nodata() -> list[Row]:
    """Return one row: a tile with missing pixels, resized without and with `ignore`."""
    tile = relief()
    plain = collate([tile], "hwc->bhwc", resize="bilinear", h=24, w=24)[0]
    ignoring = collate([tile], "hwc->bhwc", resize="bilinear", h=24, w=24, ignore=-9999)[0]
    tiles = {"the tile, -9999 in red": tile, "resize alone": plain, "ignore=-9999": ignoring}
    return [[(text, [_colored(values)]) for text, values in tiles.items()]]


def _colored(heights: NDArray[np.float32]) -> Pixels:
    """Return heights as gray pixels; missing ones are red, other negative ones blue."""
    gray = np.repeat(heights.clip(0, 255), 3, 2).astype(np.uint8)
    gray[heights[..., 0] < 0] = (66, 110, 240)
    gray[heights[..., 0] == -9999] = (214, 62, 52)
    return np.asarray(collate([gray], "hwc->bhwc", resize="nearest", h=SIDE, w=SIDE)[0])


def chroma() -> list[Row]:
    """Return the planes of a red disk on blue, and its edge with each `chroma`."""
    side = 24
    rows, columns = np.mgrid[:side, :side]
    is_red = (rows - 11.5) ** 2 + (columns - 11.5) ** 2 < 80
    y = np.where(is_red, 63, 32).astype(np.uint8)
    u, v = (
        np.where(is_red, red, blue).reshape(12, 2, 12, 2).mean((1, 3)).astype(np.uint8)
        for red, blue in ((102, 240), (240, 118))
    )
    kinds: dict[str, dict[str, Any]] = {"nearest": {}, "bilinear": {"siting": "center"}}
    edges = {
        f'chroma="{kind}"': np.asarray(YUVFrames(y, u, v, matrix="bt709", chroma=kind, **more))
        for kind, more in kinds.items()
    }
    planes = {"y": y, "u": u, "v": v}
    shown = {name: np.repeat(plane[..., None], 3, 2) for name, plane in planes.items()}
    times = SIDE // side
    return [[(text, [x.repeat(times, 0).repeat(times, 1)]) for text, x in (shown | edges).items()]]


def _resized(x: Pixels, name: str, **options: Any) -> Pixels:
    return np.asarray(collate([x], "hwc->bhwc", resize=name, h=SIDE, w=SIDE, **options)[0])


def page(rows: Sequence[Row], columns: Sequence[int] = ()) -> Image.Image:
    """Return one image of rows of tiles with captions; `columns` are the widths of the cells."""
    cells = [[sum(tile.shape[1] + GAP for tile in tiles) for _, tiles in row] for row in rows]
    widths = [list(columns) or row for row in cells]
    heights = [max(x.shape[0] for _, tiles in row for x in tiles) + CAPTION + GAP for row in rows]
    size = max(map(sum, widths)) + GAP, sum(heights) + GAP
    drawn = Image.new("RGB", size, PAPER)
    draw, font = ImageDraw.Draw(drawn), ImageFont.load_default(13)
    top = GAP
    for row, row_widths, height in zip(rows, widths, heights, strict=True):
        left = GAP
        for (text, tiles), width in zip(row, row_widths, strict=True):
            draw.text((left, top), text, INK, font)
            for number, tile in enumerate(tiles):
                x = left + number * (tile.shape[1] + GAP)
                drawn.paste(Image.fromarray(tile), (x, top + CAPTION))
            left += width
        top += height
    return drawn


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    (folder / "recipes").mkdir(exist_ok=True)
    column = 3 * (WIDTH + GAP) + GAP
    sheet = page(augmentations(), (column, column))
    sheet.save(folder / "augmentations.jpg", quality=75, optimize=True)
    pictures = {
        "placements": placements(), "resize-fits": fits(), "resize-filters": filters(),
        "resize-nodata": nodata(), "recipes/video-chroma": chroma(),
    }  # fmt: skip
    for name, rows in pictures.items():
        page(rows).quantize(96).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "docs")
