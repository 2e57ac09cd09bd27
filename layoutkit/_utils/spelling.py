"""The known name that a misspelled one is meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Words of other libraries -> the choices that mean this. Pillow: modes. OpenCV, CSS: fits.
_OTHER_WORDS = {
    "contain": "pad", "inside": "pad", "letterbox": "pad", "scaledown": "pad", "crop": "cover",
    "outside": "cover", "centercrop": "cover", "fill": "stretch", "squash": "stretch",
    "warp": "stretch", "clip": "saturate", "clamp": "saturate", "round": "saturate",
    "skip": "drop", "ignore": "drop", "warn": "drop", "error": "raise", "strict": "raise",
    "l": "gray", "grayscale": "gray", "grey": "gray", "p": "index", "palette": "index",
    "color": "rgb", "np": "numpy", "pt": "torch", "pytorch": "torch", "cv2": "opencv",
    "pil": "pillow",
}  # fmt: skip


def find_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs by a typo from `name`, or None.

    Case, `-` and `_` make no difference. Names with common letters, such as fill and refill, are
    not similar: a guess that is wrong costs more than the list of all names.

    >>> find_similar("Bicubik", ["bilinear", "bicubic"]), find_similar("copy", ["crop"])
    ('bicubic', None)
    """
    plain = _simplify(name)
    allowed = 1 if len(plain) < 6 else 2  # edits
    edits = {candidate: _count_edits(plain, _simplify(candidate)) for candidate in known}
    best = min(edits, key=edits.__getitem__, default="")
    return best if len(plain) > 2 and edits and edits[best] <= allowed else None


def find_choice(value: Any, choices: Iterable[str]) -> str | None:
    """Return the choice that another library calls `value`, or a typo means; None for others.

    >>> find_choice("letterbox", ["cover", "pad"]), find_choice("Cover", ["cover", "pad"])
    ('pad', 'cover')
    """
    if not isinstance(value, str):
        return None
    known = [*choices]
    other = _OTHER_WORDS.get(_simplify(value))
    return other if other in known else find_similar(value, known)


def _simplify(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _count_edits(one: str, other: str) -> int:
    """Return the number of letters to insert, omit, replace or exchange with their neighbor."""
    before: list[int] = []
    last = [*range(len(other) + 1)]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, other_letter in enumerate(other, 1):
            edits = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and one[i - 2 : i] == other[j - 2 : j][::-1]:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
        before, last = last, row
    return last[-1]
