"""How layouts are written: `"b(hwc)"` and, with an arrow, `"bhwc->b(hwc)"`.

Reads text into a `Layout`, and points at the place of whatever cannot be read. What a
pattern then does to a shape is `axes.py`.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import ascii_lowercase

from .errors import PatternError, ShapeError

__all__ = ["ARROW", "Layout", "identity", "parse_layout", "read_sides", "require_text"]

ARROW = "->"

# One axis, or one fold of at least one axis, with any blanks around.
_GROUP = re.compile(r"\s*(?:([a-z])|\(((?:\s*[a-z])+)\s*\))\s*")
_BLANKS = re.compile(r"\s*")
_INSIDE_FOLD = re.compile(r"[a-z\s]*")
_LETTER_RULE = "an axis is one lower-case letter, a to z, and parentheses fold several into one"


@dataclass(frozen=True)
class Layout:
    """The axes of an array, outermost first; `parse_layout` makes one from text.

    `groups` has one string for each axis of the array: a letter, or the letters of a fold.

    >>> layout = parse_layout("b (h w c)")
    >>> layout.groups, layout.letters, layout.ndim, str(layout)
    (('b', 'hwc'), 'bhwc', 2, 'b(hwc)')
    """

    groups: tuple[str, ...]

    @cached_property
    def letters(self) -> str:
        """All axis letters in order, folded or not."""
        return "".join(self.groups)

    @property
    def ndim(self) -> int:
        """The rank of an array in this layout: a fold counts as one axis."""
        return len(self.groups)

    def __str__(self) -> str:
        return "".join(group if len(group) == 1 else f"({group})" for group in self.groups)


def parse_layout(text: str) -> Layout:
    """Read a layout: distinct lower-case letters, outermost axis first, folds in parentheses.

    >>> parse_layout("bhwc").groups
    ('b', 'h', 'w', 'c')
    >>> str(parse_layout("b (h w) (c)"))
    'b(hw)c'

    Raises PatternError, with a caret under the place, for anything else.
    """
    require_text(text, "a layout", "bhwc")
    return _parse_layout(text)


def read_sides(text: str) -> tuple[Layout, Layout]:
    """The two layouts of a pattern's text; PatternError where it is none."""
    arrow = text.find(ARROW)
    if arrow < 0:
        raise _misread(text, len(text), 'there is no "->"', 'write both layouts: "bhwc->bchw"')
    end = arrow + len(ARROW)
    second = text.find(ARROW, end)
    if second >= 0:
        raise _misread(text, second, 'a second "->"', 'a pattern has one: "bhwc->bchw"')
    return _parse_side(text, 0, arrow), _parse_side(text, end, len(text))


def require_text(text: object, what: str, example: str) -> None:
    """Raise PatternError for what is not a str.

    Exists because the caches behind the parsers would answer an unhashable argument in
    their own words.
    """
    if not isinstance(text, str):
        kind = type(text).__name__
        raise PatternError(f'{what} is text such as "{example}", not {text!r} ({kind})')


@lru_cache(maxsize=1024)
def _parse_layout(text: str) -> Layout:
    return _parse_side(text, 0, len(text))


def _parse_side(text: str, start: int, end: int) -> Layout:
    if not text[start:end].strip():
        raise _misread(text, start, "a layout without axes", "name at least one, such as b")
    groups: list[str] = []
    at = start
    while at < end:
        found = _GROUP.match(text, at, end)
        if found is None:
            raise _explain(text, at, end)
        groups.append("".join((found[1] or found[2]).split()))
        at = found.end()
    _require_distinct(text, start, end)
    return Layout(tuple(groups))


def _require_distinct(text: str, start: int, end: int) -> None:
    seen: set[str] = set()
    for at in range(start, end):
        if text[at] in seen:
            fix = "every axis of a layout has its own letter"
            raise _misread(text, at, f"axis {text[at]!r} is there twice", fix)
        if text[at].isalpha():
            seen.add(text[at])


def _explain(text: str, at: int, end: int) -> PatternError:
    """The error for text that is no axis and no fold from position `at` on."""
    at = _skip(_BLANKS, text, at, end)
    if text[at] == ")":
        return _misread(text, at, "')' without '('", "write folds as b(hwc)")
    if text[at] != "(":
        return _misread(text, at, f"{text[at]!r} is not an axis", _LETTER_RULE)
    stop = _skip(_INSIDE_FOLD, text, at + 1, end)
    if stop == end:
        return _misread(text, at, "this '(' is never closed", "write folds as b(hwc)")
    if text[stop] == ")":
        return _misread(text, at, "a fold without axes", "name at least one, such as b(hw)")
    if text[stop] == "(":
        return _misread(text, stop, "a fold inside a fold", "folds do not nest: write b(hwc)")
    return _misread(text, stop, f"{text[stop]!r} is not an axis", _LETTER_RULE)


def _skip(what: re.Pattern[str], text: str, at: int, end: int) -> int:
    found = what.match(text, at, end)
    return at if found is None else found.end()


def _misread(text: str, at: int, fact: str, fix: str) -> PatternError:
    # Tabs and line ends would move the caret away from its place.
    line = "".join(char if char.isprintable() else " " for char in text)
    return PatternError(f'cannot read "{line}": {fact}\n    {line}\n    {" " * at}^\n{fix}')


def identity(ndim: int) -> str:
    """The pattern of an array of `ndim` axes that stay where they are.

    >>> identity(3)
    'abc->abc'

    Raises ShapeError where there are more axes than letters.
    """
    if ndim > len(ascii_lowercase):
        raise ShapeError(
            f"an array of {ndim} axes has no layout, as an axis is one of 26 letters; reshape it "
            "to fewer axes first"
        )
    names = ascii_lowercase[:ndim]
    return f"{names}->{names}"
