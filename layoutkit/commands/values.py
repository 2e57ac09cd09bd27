"""What the words of the command line are turned into: numbers, sizes, shapes.

A word that is none raises argparse's own error, which names the option in front of it.
"""

import math
import re
from argparse import ArgumentTypeError

from .windows import Crop

__all__ = [
    "channels",
    "crop",
    "height_width",
    "number",
    "numbers",
    "partition",
    "pattern",
    "positive",
    "shape",
    "size",
    "whole",
]

_LONGEST_INT = 18  # digits, all of which fit into 64 bits
_CROP = re.compile(r"([^+]*?)(?:\+(\d+)\+(\d+)|\+?(center|centre)|\+?random:(\d+))?")


def number(text: str) -> float:
    """A finite number, perhaps a fraction such as 1/255."""
    above, slash, below = text.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not a finite number such as 0.5 or 1/255")
    return value


def _int(text: str) -> int:
    if len(text) > _LONGEST_INT:
        raise ArgumentTypeError(f"{text!r} has too many digits")
    return int(text)


def pattern(text: str) -> str:
    """A pattern; one that the shell has cut is refused with what to do."""
    if text.endswith("-"):
        message = (
            f'{text!r} is half of a pattern, as the shell takes ">" for itself, and made a file '
            "of what stands behind it; write the pattern in quotes, such as 'bhwc->bchw', and "
            "remove that file"
        )
        raise ArgumentTypeError(message)
    return text


def numbers(text: str) -> float | list[float]:
    """A finite number, or several with commas."""
    values = [number(part) for part in text.split(",")]
    return values[0] if len(values) == 1 else values


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or _int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return _int(text)


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return _int(text)


def partition(text: str) -> tuple[int, int]:
    """A part and how many there are, such as 0/4."""
    part, slash, parts = text.partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a part such as 0/4")
    return _int(part), _int(parts)


def shape(text: str) -> tuple[int, ...]:
    """A shape, such as 64,224,224,3."""
    parts = text.strip("() ").rstrip(",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not a shape such as 64,224,224,3")
    return tuple(_int(part.strip()) for part in parts)


def size(text: str) -> tuple[str, int]:
    """An axis and its size, such as h=32."""
    axis, equals, length = text.partition("=")
    if not equals or not axis.isidentifier():
        raise ArgumentTypeError(f"{text!r} is not an axis and its size, such as h=32")
    return axis, positive(length)


def height_width(text: str) -> tuple[int, int]:
    """Height and width, such as 224x224."""
    height, cross, width = text.partition("x")
    if not cross:
        raise ArgumentTypeError(f"{text!r} is not height x width, such as 224x224")
    return positive(height), positive(width)


def crop(text: str) -> Crop:
    """A window: its size, and where it is, such as 224x224, 224x224+16+8 or 224x224+random:7."""
    found = _CROP.fullmatch(text)
    if found is None or "x" not in text:
        raise ArgumentTypeError(
            f"{text!r} is not a window such as 224x224, which is in the middle, 224x224+16+8 (from "
            "the top, from the left) or 224x224+random:7 (a seed)"
        )
    wanted, top, left, _, seed = found.groups()
    corner = None if top is None else (_int(top), _int(left))
    return Crop(height_width(wanted), corner, None if seed is None else _int(seed))


def channels(text: str) -> tuple[int, ...]:
    """Numbers of channels, such as 2,1,0."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not channels such as 2,1,0, counted from 0")
    return tuple(map(_int, parts))
