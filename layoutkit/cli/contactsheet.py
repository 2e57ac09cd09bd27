"""Contact sheets: the images of a batch in rows, each with its label and file name below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..images.reading import pillow
from ..memory import Array

if TYPE_CHECKING:
    from PIL.Image import Image

# A sheet of more images does not fit a screen at a readable size.
MAX_IMAGES = 100

# All lengths are in pixels.
_SIDE = 160  # the longer side of an image
_MIN_COLUMN_WIDTH = 120  # room for the caption of a narrow image
_GAP = 12
_MARGIN = 20
# Heights of the bar in the label's color, and of lines of text.
_BAR = 5
_LABEL = 15
_NAME = 12
_TITLE = 18
_CAPTION = _BAR + _LABEL + _NAME + 14

_BACKGROUND = "#ffffff"
_TEXT_COLOR = "#1a1a1a"
_NAME_COLOR = "#6b6b6b"
# A palette for color-blind readers (Okabe and Ito 2008), without black and yellow.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")

# Pillow's default font has only ASCII. Most systems have one of these, with more characters.
_SYSTEM_FONTS = ("DejaVuSans.ttf", "Arial.ttf", "arial.ttf")


@dataclass(frozen=True)
class Caption:
    """The text below an image; `rank` is the index of its label, or -1 without a label."""

    label: str
    name: str
    rank: int


def contact_sheet(images: Array, captions: Sequence[Caption], title: str) -> Image:
    """Return an image with the first 100 of `images`, of shape (n >= 1, height, width, channels).

    Small images are enlarged by an integer factor, so that their pixels are visible.
    """
    from PIL import ImageDraw

    images = images[:MAX_IMAGES]
    captions = captions[:MAX_IMAGES]
    cell = _cell(*images.shape[1:3])
    width = max(cell[0], _MIN_COLUMN_WIDTH)
    columns = min(len(images), math.ceil(math.sqrt(1.5 * len(images))))
    fonts = _fonts([title, *(caption.label + caption.name for caption in captions)])
    sheet = pillow().new("RGB", _size(len(images), columns, (width, cell[1])), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    text_width = sheet.width - 2 * _MARGIN
    draw.text(
        (_MARGIN, _MARGIN),
        _truncate(title, fonts["title"], text_width),
        _TEXT_COLOR,
        fonts["title"],
    )
    for index, (pixels, caption) in enumerate(zip(images, captions, strict=True)):
        row, column = divmod(index, columns)
        left = _MARGIN + column * (width + _GAP)
        top = _top() + row * (cell[1] + _CAPTION + _GAP)
        pixels = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
        sheet.paste(pillow().fromarray(pixels).resize(cell, _filter(pixels, cell)), (left, top))
        _write(draw, caption, fonts, (left, top + cell[1]), width)
    return sheet


def _cell(height: int, width: int) -> tuple[int, int]:
    longer = max(height, width)
    if longer <= _SIDE:
        factor = _SIDE // longer
        return width * factor, height * factor
    return max(1, width * _SIDE // longer), max(1, height * _SIDE // longer)


def _top() -> int:
    return _MARGIN + _TITLE + _GAP


def _size(count: int, columns: int, cell: tuple[int, int]) -> tuple[int, int]:
    rows = math.ceil(count / columns)
    width = 2 * _MARGIN + columns * (cell[0] + _GAP) - _GAP
    height = _top() + rows * (cell[1] + _CAPTION + _GAP) - _GAP + _MARGIN
    return max(width, 3 * _SIDE), height  # room for the title


def _filter(pixels: Array, cell: tuple[int, int]) -> Any:
    resampling = pillow().Resampling
    return resampling.NEAREST if cell[0] >= pixels.shape[1] else resampling.BILINEAR


def _write(
    draw: Any, caption: Caption, fonts: dict[str, Any], position: tuple[int, int], width: int
) -> None:
    left, top = position
    if caption.rank >= 0:
        color = _COLORS[caption.rank % len(_COLORS)]
        draw.rectangle((left, top, left + width - 1, top + _BAR - 1), color)
    top += _BAR + 4
    draw.text(
        (left, top), _truncate(caption.label, fonts["label"], width), _TEXT_COLOR, fonts["label"]
    )
    top += _LABEL + 4
    draw.text(
        (left, top), _truncate(caption.name, fonts["name"], width), _NAME_COLOR, fonts["name"]
    )


def _truncate(text: str, font: Any, width: int) -> str:
    """Return the text, with its middle replaced by `...` if it is wider than `width`."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    length = len(text)
    shown = text
    while length and font.getlength(shown) > width:
        length -= 1
        shown = text[: (length + 1) // 2] + "..." + text[len(text) - length // 2 :]
    return shown


def _fonts(texts: Sequence[str]) -> dict[str, Any]:
    is_ascii = all(text.isascii() for text in texts)
    sizes = {"title": _TITLE, "label": _LABEL, "name": _NAME}
    return {name: _font(size, is_ascii) for name, size in sizes.items()}


def _font(size: int, is_ascii: bool) -> Any:
    from PIL import ImageFont

    for name in () if is_ascii else _SYSTEM_FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
