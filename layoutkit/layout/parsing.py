"""`Layout`: the axes of an array, as text says them.

Inside, an axis is one character, so that all that follows knows strings of axes only: its letter,
or a character of Unicode's private use, of which the `Layout` knows the name.

How layouts are written: `"b(hwc)"`, `"batch height width c"` and, with an arrow, patterns.

Reads text into a `Layout`, and points at the place of whatever cannot be read. What a
pattern then does to a shape is `axes.py`.

A text is in letters, one an axis, or in names. It is in names where a side has at least two axes
apart by blanks, of which one outside of folds has several letters, or one in a fold a digit or `_`
(`(h p1)`, never letters alone); the other side is then too.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import ascii_lowercase

from ..errors import PatternError, ShapeError

DOTS = "\ue000"  # `...` where the rank is not known yet
# First characters: of axes that `...` are, of `1` on either side, of names.
STAYING, ONES, NAMED = 0xE100, (0xE200, 0xE300), 0xE400


@dataclass(frozen=True)
class Layout:
    """The axes of an array, outermost first; `parse_layout` makes one from text.

    `groups` has one string for each axis of the array: a letter, or the letters of a fold. `names`
    has the pairs of those that stand for longer names.

    >>> from layoutkit.layout.parsing import parse_layout
    >>> layout = parse_layout("b (h w c)")
    >>> layout.groups, layout.letters, layout.ndim, str(layout)
    (('b', 'hwc'), 'bhwc', 2, 'b(hwc)')
    >>> parse_layout("batch (height width) c").named
    (('batch',), ('height', 'width'), ('c',))
    """

    groups: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()

    @cached_property
    def letters(self) -> str:
        """All axis letters in order, folded or not."""
        return "".join(self.groups)

    @property
    def ndim(self) -> int:
        """The rank of an array in this layout: a fold counts as one axis, `...` as none."""
        return len(self.groups) - self.is_open

    @cached_property
    def is_open(self) -> bool:
        """Whether `...` stands for any number of axes."""
        return DOTS in self.groups

    @cached_property
    def named(self) -> tuple[tuple[str, ...], ...]:
        """The groups as callers know them: tuples of letters and names, `...` and `1`."""
        return tuple(tuple(map(self.name, group)) for group in self.groups)

    def name(self, letter: str) -> str:
        """What a caller calls the axis of a letter of this layout."""
        if letter < DOTS:
            return letter
        if ord(letter) < ONES[0]:
            return "..."
        return dict(self.names)[letter] if ord(letter) >= NAMED else "1"

    def completed(self, count: int) -> "Layout":
        """The layout in which `...` are so many axes."""
        staying = tuple(chr(STAYING + at) for at in range(count))
        at = self.groups.index(DOTS)
        return Layout(self.groups[:at] + staying + self.groups[at + 1 :], self.names)

    @cached_property
    def _text(self) -> str:
        return self.spelled(" " if self.names else "")

    def spelled(self, blank: str = " ") -> str:
        """The text with this between two axes; with a blank it is as einops writes it."""
        shown = [names[0] if len(names) == 1 else f"({blank.join(names)})" for names in self.named]
        return blank.join(
            name for at, name in enumerate(shown) if name != "..." or "..." not in shown[:at]
        )

    def __str__(self) -> str:
        return self._text


def is_one(letter: str) -> bool:
    """Whether an axis was written as `1`."""
    return ONES[0] <= ord(letter) < NAMED


ARROW = "->"

_LETTER_RULE = "an axis is one letter, a to z, and parentheses fold several into one"
_NAME_RULE = "an axis is a name of letters, digits and _, and parentheses fold several into one"
# By whether a text is in names.
_AXIS = {False: re.compile(r"[a-zA-Z]"), True: re.compile(r"[a-zA-Z]\w*|_\w+", re.ASCII)}
_SPECIAL = {False: re.compile(r"\.\.\.|…|1(?!\d)"), True: re.compile(r"\.\.\.|…|1(?!\w)")}
_LONG_WORD = re.compile(r"[a-zA-Z_]\w+", re.ASCII)
_NUMBERED = re.compile(r"[a-zA-Z_]\w*[\d_]\w*", re.ASCII)
_FOLDS = re.compile(r"\(([^()]*)\)")
_BLANKS = re.compile(r"\s*")
# Drawn ones, and those of dashes of any length.
_OTHER_ARROWS = re.compile("[\u2192\u21d2\u27f6\u2794]|[-=\u2013\u2014\u2212]+\\s*>|>")


def parse_layout(text: str) -> Layout:
    """Read a layout: distinct axes, outermost first, folds in parentheses.

    >>> parse_layout("bhwc").groups
    ('b', 'h', 'w', 'c')
    >>> str(parse_layout("b (h w) (c)"))
    'b(hw)c'
    >>> str(parse_layout("batch  (height width) c"))
    'batch (height width) c'

    Letters are of any case, `NHWC` is `nhwc`. `...` stands for any number of axes, `1` for one of
    size 1 without a name. Raises PatternError, with a caret under the place, for anything else.
    """
    require_text(text, "a layout", "bhwc")
    return _parse_layout(text)


def read_sides(text: str) -> tuple[Layout, Layout]:
    """The two layouts of a pattern's text; PatternError where it is none."""
    arrow = text.find(ARROW)
    if arrow < 0:
        raise _without_arrow(text)
    end = arrow + len(ARROW)
    second = text.find(ARROW, end)
    if second >= 0:
        raise _misread(text, second, 'a second "->"', 'a pattern has one: "bhwc->bchw"')
    sides = ((0, arrow), (end, len(text)))
    long = any(_is_long(text[slice(*side)]) for side in sides)
    known: dict[str, str] = {}
    left, right = (
        _Side(text, *side, long, known, ONES[at]).read() for at, side in enumerate(sides)
    )
    if left.is_open != right.is_open:
        at = re.search(r"\.\.\.|…", text).start()  # type: ignore[union-attr]
        fix = '"..." are axes that stay: write it on both sides, or name the axes to fold them'
        raise _misread(text, at, '"..." is on one side only', fix)
    return left, right


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
    return _Side(text, 0, len(text), _is_long(text), {}, ONES[0]).read()


def _is_long(side: str) -> bool:
    """Whether a side is in names; see above."""
    chunks = _FOLDS.sub("()", side).split()
    if len(chunks) > 1 and any(map(_LONG_WORD.fullmatch, chunks)):
        return True
    folds = (fold.split() for fold in _FOLDS.findall(side))
    return any(len(fold) > 1 and any(map(_NUMBERED.fullmatch, fold)) for fold in folds)


class _Side:
    """A side of a text that is being read: `text[start:end]`, in names or in letters.

    `known` has the characters of names that were read, which both sides of a pattern share; `ones`
    is the first character of its axes without a name.
    """

    def __init__(
        self, text: str, start: int, end: int, long: bool, known: dict[str, str], ones: int
    ) -> None:
        self.text, self.start, self.end, self.long = text, start, end, long
        self.known, self.ones = known, ones
        self.seen: dict[str, str] = {}  # what was read of this side, and its characters

    def read(self) -> Layout:
        if not self.text[self.start : self.end].strip():
            raise _misread(self.text, self.start, "a layout without axes", "name at least one: b")
        groups: list[str] = []
        at = self.skip(self.start)
        while at < self.end:
            group, at = self.fold(at) if self.text[at] == "(" else self.axis(at)
            groups.append(group)
            at = self.skip(at)
        names = {letter: name for name, letter in self.seen.items() if ord(letter) >= NAMED}
        return Layout(tuple(groups), tuple(names.items()))

    def axis(self, at: int) -> tuple[str, int]:
        """The axis at a place, and where it ends."""
        special = _SPECIAL[self.long].match(self.text, at, self.end)
        if special is None:
            return self.named(at)
        if special[0] == "1":
            self.ones += 1
            return chr(self.ones - 1), special.end()
        if "..." in self.seen:
            raise _misread(self.text, at, 'a second "..."', "write it once on each side")
        self.seen["..."] = DOTS
        return DOTS, special.end()

    def named(self, at: int) -> tuple[str, int]:
        """The axis of a letter or a name."""
        found = _AXIS[self.long].match(self.text, at, self.end)
        if found is None:
            raise self.no_axis(at)
        name = found[0].lower() if len(found[0]) == 1 else found[0]
        if name in self.seen:
            raise self.twice(at, name)
        letter = name
        if len(name) > 1:
            letter = self.known.setdefault(name, chr(NAMED + len(self.known)))
        self.seen[name] = letter
        return letter, found.end()

    def fold(self, start: int) -> tuple[str, int]:
        """The axes of the fold that begins here, and where it ends."""
        letters, at = "", self.skip(start + 1)
        while at < self.end and self.text[at] != ")":
            if self.text[at] == "(":
                fix = "folds do not nest: write b(hwc)"
                raise _misread(self.text, at, "a fold inside a fold", fix)
            special = _SPECIAL[self.long].match(self.text, at, self.end)
            if special is not None:
                fix = "inside of folds axes have names: write b(hwc)"
                raise _misread(self.text, at, f'"{special[0]}" inside a fold', fix)
            letter, at = self.named(at)
            letters, at = letters + letter, self.skip(at)
        if at >= self.end:
            raise _misread(self.text, start, "this '(' is never closed", "write folds as b(hwc)")
        if not letters:
            fix = "name at least one, such as b(hw); an axis of size 1 is written as 1"
            raise _misread(self.text, start, "a fold without axes", fix)
        return letters, at + 1

    def skip(self, at: int) -> int:
        """The first place from here on that is no blank."""
        found = _BLANKS.match(self.text, at, self.end)
        return at if found is None else found.end()

    def twice(self, at: int, name: str) -> PatternError:
        fix = "every axis of a layout has its own " + ("name" if self.long else "letter")
        if not self.long and re.search(r"[a-zA-Z_]\w+", self.text):
            fix += (
                "; for names of several letters write blanks between all axes, with one such name "
                "outside of folds: batch (height width) c"
            )
        return _misread(self.text, at, f"axis {name!r} is there twice", fix)

    def no_axis(self, at: int) -> PatternError:
        """The error for text that is no axis and no fold."""
        char = self.text[at]
        if char == ")":
            return _misread(self.text, at, "')' without '('", "write folds as b(hwc)")
        rule = _NAME_RULE if self.long else _LETTER_RULE
        if char.isdigit():
            rule = (
                "1 is an axis of size 1, and other numbers repeat data, which einops does: "
                'einops.repeat(x, "h w -> h w c", c=3)'
            )
        return _misread(self.text, at, f"{char!r} is not an axis", rule)


def _without_arrow(text: str) -> PatternError:
    """The error for a pattern whose arrow is missing or looks otherwise."""
    other = _OTHER_ARROWS.search(text)
    if other is None:
        return _misread(text, len(text), 'there is no "->"', 'write both layouts: "bhwc->bchw"')
    fix = 'write the arrow as "->": "bhwc->bchw"'
    return _misread(text, other.start(), f'there is no "->" but {other[0]!r}', fix)


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
