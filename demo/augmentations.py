"""Draw the effect of each option of `images.Augmenter` on one photograph, for the gallery.

    python demo/augmentations.py [path]     by default docs/augmentations.jpg

The photograph is drawn by this script, so no download is needed. Each option has a row with its
name and some random results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from layoutkit.images import Augmenter

HEIGHT, WIDTH = 120, 160
DRAWS = 3
COLUMNS = 2
GAP = 6
CAPTION = 18
SEED = 12
PAPER, INK = (234, 237, 240), (31, 35, 40)
FIXED = ("nothing", "rotate=90, and cut")  # options that are not random

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "rand_crop=True": {"rand_crop": True, "shape": (80, 106)},
    "rand_mirror=True": {"rand_mirror": True},
    "random_resized_crop=True, min_random_area=0.2": {
        "random_resized_crop": True, "min_random_area": 0.2, "max_aspect_ratio": 0.25,
    },
    "max_rotate_angle=25": {"max_rotate_angle": 25},
    "rotate=90, and cut": {"rotate": 90, "resize": 160},
    "max_shear_ratio=0.4": {"max_shear_ratio": 0.4},
    "min_random_scale=0.5, max_random_scale=1.6": {
        "min_random_scale": 0.5, "max_random_scale": 1.6, "pad": 40,
    },
    "max_aspect_ratio=0.5": {"max_aspect_ratio": 0.5, "pad": 30},
    "pad=30, rand_crop=True": {"pad": 30, "rand_crop": True, "fill": (200, 205, 210)},
    "brightness=0.5": {"brightness": 0.5},
    "contrast=0.8": {"contrast": 0.8},
    "saturation=1": {"saturation": 1},
    "random_h=40": {"random_h": 40},
    "random_l=70": {"random_l": 70},
    "random_s=150": {"random_s": 150},
    "pca_noise=0.6": {"pca_noise": 0.6},
    "max_random_contrast=0.6, max_random_illumination=60": {
        "max_random_contrast": 0.6, "max_random_illumination": 60.0,
    },
}  # fmt: skip


def painted() -> NDArray[np.uint8]:
    """Return a landscape: uint8 (240, 320, 3), twice the size of a tile."""
    height, width = 2 * HEIGHT, 2 * WIDTH
    rng = np.random.default_rng(3)
    down = np.linspace(0, 1, height)[:, None, None]
    sky = (1 - down) * (92, 148, 214) + down * (232, 224, 205)
    image = Image.fromarray(np.broadcast_to(sky, (height, width, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.ellipse((232, 24, 276, 68), fill=(255, 236, 150))
    for base, colour, swing in ((150, (126, 146, 158), 26), (182, (88, 128, 92), 16)):
        x = np.arange(-4, width + 8, 4)
        y = base - swing * np.sin(x / 47 + base) - swing / 2 * np.sin(x / 19)
        edge = np.column_stack([x, y]).ravel().tolist()
        draw.polygon([*edge, width, height, 0, height], fill=colour)
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


def tiles(image: NDArray[np.uint8], options: dict[str, Any]) -> list[Image.Image]:
    """Return some random results of an option, each at most the size of a tile."""
    shape = options.get("shape", (HEIGHT, WIDTH))
    known = {name: value for name, value in options.items() if name != "shape"}
    augment = Augmenter((3, *shape), layout="hwc", dtype="uint8", seed=SEED, **known)
    return [Image.fromarray(augment(image, position=number)) for number in range(DRAWS)]


def sheet(path: Path) -> None:
    """Draw all options into an image file."""
    image = np.asarray(Image.fromarray(painted()).resize((WIDTH, HEIGHT), Image.Resampling.BOX))
    rows = -(-len(OPTIONS) // COLUMNS)
    across, down = DRAWS * (WIDTH + GAP) + 3 * GAP, HEIGHT + CAPTION + 2 * GAP
    page = Image.new("RGB", (COLUMNS * across, rows * down), PAPER)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(13)
    for number, (name, options) in enumerate(OPTIONS.items()):
        left, top = number // rows * across + 2 * GAP, number % rows * down + GAP
        draw.text((left, top), name, INK, font)
        for place, tile in enumerate(tiles(image, options)[: 1 if name in FIXED else DRAWS]):
            page.paste(tile, (left + place * (WIDTH + GAP), top + CAPTION))
    page.save(path, quality=75, optimize=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sheet(
        Path(arguments[0])
        if arguments
        else Path(__file__).parents[1] / "docs" / "augmentations.jpg"
    )
