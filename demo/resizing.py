"""Draw the ways to fit and the filters of `resize=`, for docs/resize.md.

    python demo/resizing.py [folder]     by default docs/, as resize-fits.png and resize-filters.png

The photograph and the test pattern are drawn by this script and demo/augmentations.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from augmentations import INK, PAPER, painted
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from layoutkit import collate

SIDE = 168  # of a tile
GAP = 12
CAPTION = 20
CROP = {"crop": {"h": 120, "w": 120}, "offset": {"h": 95, "w": 40}}
FITS: dict[str, dict[str, Any]] = {
    'fit="stretch"': {},
    'fit="cover"': {"fit": "cover"},
    'fit="pad", fill=114': {"fit": "pad", "fill": 114},
    "short_side=220": {"short_side": 220},
    "crop=..., offset=...": CROP,
}
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
Pixels = NDArray[np.uint8]


def rings(side: int = 512) -> Pixels:
    """Return gray rings that are finer the farther they are from the center: (side, side, 3)."""
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    wave = np.cos((x * x + y * y) * (np.pi / 2.2 / side))
    return np.repeat((127.5 + 120 * wave).round().astype(np.uint8)[..., None], 3, 2)


def detail() -> Pixels:
    """Return a small part of the photograph, with edges in several directions."""
    return painted()[132:180, 60:108]


def fits() -> list[list[tuple[str, Pixels]]]:
    """Return the captions and tiles of the ways to fit: one row."""
    photo = painted()
    size: dict[str, Any] = {"h": SIDE, "w": SIDE}
    tiles = [
        (text, collate([photo], "hwc->bhwc", resize="bilinear", **size, **options)[0])
        for text, options in FITS.items()
    ]
    return [[("the sample, 240 x 320", photo), *tiles]]


def filters() -> list[list[tuple[str, Pixels]]]:
    """Return the captions and tiles of the filters: rings shrunk in two ways, and a part grown."""
    size: dict[str, Any] = {"h": SIDE, "w": SIDE}
    return [
        [(f'"{name}"', _resized(rings(), name, True, size)) for name in FILTERS],
        [
            (f'"{name}", antialias=False', _resized(rings(), name, False, size))
            for name in ("bilinear", "bicubic")
        ],
        [(f'"{name}", enlarged', _resized(detail(), name, True, size)) for name in FILTERS],
    ]


def _resized(x: Pixels, name: str, antialias: bool, size: dict[str, Any]) -> Pixels:
    batch = collate([x], "hwc->bhwc", resize=name, antialias=antialias, **size)
    return np.asarray(batch[0])


def page(rows: list[list[tuple[str, Pixels]]]) -> Image.Image:
    """Return one image of rows of tiles with captions."""
    widths = [sum(tile.shape[1] + GAP for _, tile in row) for row in rows]
    heights = [max(tile.shape[0] for _, tile in row) + CAPTION + GAP for row in rows]
    drawn = Image.new("RGB", (max(widths) + GAP, sum(heights) + GAP), PAPER)
    draw, font = ImageDraw.Draw(drawn), ImageFont.load_default(13)
    top = GAP
    for row, height in zip(rows, heights, strict=True):
        left = GAP
        for text, tile in row:
            draw.text((left, top), text, INK, font)
            drawn.paste(Image.fromarray(tile), (left, top + CAPTION))
            left += tile.shape[1] + GAP
        top += height
    return drawn


def main(folder: Path) -> None:
    """Write both images into a folder."""
    for name, rows in (("fits", fits()), ("filters", filters())):
        page(rows).quantize(96).save(folder / f"resize-{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "docs")
