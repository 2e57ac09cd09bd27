"""A contact sheet: the pictures of a batch in rows, each with its label and name below it.

Knows pixels and captions; where they come from is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..images.decode import pillow
from ..memory import Array

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MOST_PICTURES", "Caption", "contact_sheet"]

# More would be too small to look at on a screen.
MOST_PICTURES = 100

_SIDE = 160  # pixels of the longer side of a picture
_NARROWEST = 120  # a column, however narrow its pictures are: captions need some room
_GAP, _MARGIN = 12, 20
_STRIP, _LABEL, _NAME, _TITLE = 5, 15, 12, 18  # heights: a line in the label's colour, and texts
_CAPTION = _STRIP + _LABEL + _NAME + 14

_PAPER, _INK, _FAINT = "#ffffff", "#1a1a1a", "#6b6b6b"
# Colours that can be told apart by most people (Okabe and Ito 2008), without black and yellow.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")

# Pillow's own font has ASCII only; these are on most systems and have more.
_SYSTEM_FONTS = ("DejaVuSans.ttf", "Arial.ttf", "arial.ttf")


@dataclass(frozen=True)
class Caption:
    """What stands below a picture; `rank` is that of its label, -1 without one."""

    label: str
    name: str
    rank: int


def contact_sheet(pictures: Array, captions: Sequence[Caption], title: str) -> Image:
    """Draw pictures (n, height, width, 3), n at least 1; behind the first 100 the rest is left out.

    Small pictures are enlarged by a whole number, so that their pixels stay visible.
    """
    from PIL import ImageDraw

    pictures, captions = pictures[:MOST_PICTURES], captions[:MOST_PICTURES]
    cell = _cell(*pictures.shape[1:3])
    width = max(cell[0], _NARROWEST)
    columns = min(len(pictures), math.ceil(math.sqrt(1.5 * len(pictures))))
    fonts = _fonts([title, *(caption.label + caption.name for caption in captions)])
    sheet = pillow().new("RGB", _size(len(pictures), columns, (width, cell[1])), _PAPER)
    draw = ImageDraw.Draw(sheet)
    room = sheet.width - 2 * _MARGIN
    draw.text((_MARGIN, _MARGIN), _cut(title, fonts["title"], room), _INK, fonts["title"])
    for number, (pixels, caption) in enumerate(zip(pictures, captions, strict=True)):
        row, column = divmod(number, columns)
        left = _MARGIN + column * (width + _GAP)
        top = _top() + row * (cell[1] + _CAPTION + _GAP)
        sheet.paste(pillow().fromarray(pixels).resize(cell, _filter(pixels, cell)), (left, top))
        _write(draw, caption, fonts, (left, top + cell[1]), width)
    return sheet  # type: ignore[no-any-return]


def _cell(height: int, width: int) -> tuple[int, int]:
    """Width and height of a picture on the sheet."""
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
    return max(width, 3 * _SIDE), height  # the title needs some room, too


def _filter(pixels: Array, cell: tuple[int, int]) -> Any:
    resampling = pillow().Resampling
    return resampling.NEAREST if cell[0] >= pixels.shape[1] else resampling.BILINEAR


def _write(
    draw: Any, caption: Caption, fonts: dict[str, Any], place: tuple[int, int], width: int
) -> None:
    left, top = place
    if caption.rank >= 0:
        colour = _COLOURS[caption.rank % len(_COLOURS)]
        draw.rectangle((left, top, left + width - 1, top + _STRIP - 1), colour)
    top += _STRIP + 4
    draw.text((left, top), _cut(caption.label, fonts["label"], width), _INK, fonts["label"])
    top += _LABEL + 4
    draw.text((left, top), _cut(caption.name, fonts["name"], width), _FAINT, fonts["name"])


def _cut(text: str, font: Any, width: int) -> str:
    """The text, or as much of its beginning and end as there is room for."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    kept = len(text)
    shown = text
    while kept and font.getlength(shown) > width:
        kept -= 1
        shown = text[: (kept + 1) // 2] + "..." + text[len(text) - kept // 2 :]
    return shown


def _fonts(texts: Sequence[str]) -> dict[str, Any]:
    plain = all(text.isascii() for text in texts)
    sizes = {"title": _TITLE, "label": _LABEL, "name": _NAME}
    return {name: _font(size, plain) for name, size in sizes.items()}


def _font(size: int, plain: bool) -> Any:
    from PIL import ImageFont

    for name in () if plain else _SYSTEM_FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
