"""The known name that a misspelled one is meant to be."""

from __future__ import annotations

from collections.abc import Iterable


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
