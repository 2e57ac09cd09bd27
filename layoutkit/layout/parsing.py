"""`Layout`, and the parser of layouts such as `"b(hwc)"` and `"batch height width c"`.

Inside a `Layout` an axis is one character: its letter, or, for a longer name, a character of
Unicode's private use area, whose name the `Layout` has. So other modules only handle strings of
axes. Parse errors show the position in the text.

A text consists either of letters, one per axis, or of names. It consists of names if

- a side has at least two axes separated by blanks, and one outside of parentheses has several
  letters. If all others are `1` and `...`, the other side has that name as well;
- an axis inside of parentheses, separated by blanks, has a digit or `_`: `(h p1)`;
- it has a word between blanks that is the name of a size which the caller gave;
- it cannot be read as letters, both sides have the same words of several letters, and one of these
  is in a fold beside others, or all have digits.

The other side of a pattern then consists of names too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import ascii_lowercase

from .._utils.pickling import UncachedState
from .._utils.validation import show
from ..errors import PatternError, ShapeError

DOTS = "\ue000"  # `...` while the rank is unknown
# First characters of: the axes that `...` stands for; `1` on the left and right side; names.
STAYING = 0xE100
ONES = (0xE200, 0xE300)
NAMED = 0xE400


@dataclass(frozen=True)
class Layout(UncachedState):
    """The axes of an array, outermost first; `parse_layout` makes one from text.

    `groups` has one string for each axis of the array: a letter, or the letters of a fold. `names`
    has (character, name) pairs of the axes with longer names.

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
        """The rank of an array in this layout: a fold counts as one axis, `...` alone as zero."""
        return len(self.groups) - (DOTS in self.groups)

    @cached_property
    def has_ellipsis(self) -> bool:
        """True if the layout has `...`, which stands for any number of axes."""
        return DOTS in self.letters

    @cached_property
    def named(self) -> tuple[tuple[str, ...], ...]:
        """The groups as tuples of the axes' letters or names, `...` and `1`."""
        return tuple(tuple(map(self.name, group)) for group in self.groups)

    def is_permuted(self, other: "Layout") -> bool:
        """Return True if this layout has the axes of another one in another order."""
        return self.named != other.named and sorted(self.named) == sorted(other.named)

    @cached_property
    def axis_names(self) -> tuple[str, ...]:
        """The names of all axes in order, folded or not: one for each of `letters`."""
        return tuple(map(self.name, self.letters))

    def name(self, letter: str) -> str:
        """Return the name, `...` or `1` that a character of this layout stands for."""
        if letter < DOTS:
            return letter
        if ord(letter) < ONES[0]:
            return "..."
        return dict(self.names)[letter] if ord(letter) >= NAMED else "1"

    def expand_ellipsis(self, count: int) -> "Layout":
        """Return the layout with `count` axes in place of `...`."""
        staying = "".join(chr(STAYING + i) for i in range(count))
        groups: list[str] = []
        for group in self.groups:
            groups += staying if group == DOTS else [group.replace(DOTS, staying)]
        return Layout(tuple(groups), self.names)

    @cached_property
    def _text(self) -> str:
        return self.to_text(" " if self.names else "")

    def to_text(self, separator: str = " ") -> str:
        """Return the text with `separator` between axes; a blank gives the notation of einops."""
        shown = []
        for names in self.named:
            fold = separator.join(_without_repeats([name for name in names if name != "1"]))
            shown.append(names[0] if len(names) == 1 else f"({fold})")
        return separator.join(_without_repeats(shown))

    def __str__(self) -> str:
        return self._text


def _without_repeats(names: Sequence[str]) -> list[str]:
    return [name for i, name in enumerate(names) if name != "..." or "..." not in names[:i]]


def is_one(letter: str) -> bool:
    """Return True if an axis was written as `1`."""
    return ONES[0] <= ord(letter) < NAMED


ARROW = "->"

_LETTER_RULE = "an axis is one letter, a to z, and parentheses fold several into one"
_NAME_RULE = "an axis is a name of letters, digits and _, and parentheses fold several into one"
# The key is True if the text consists of names.
_AXIS = {False: re.compile(r"[a-zA-Z]"), True: re.compile(r"[a-zA-Z]\w*|_\w+", re.ASCII)}
_SPECIAL = {False: re.compile(r"\.\.\.|…|1(?!1*[02-9])"), True: re.compile(r"\.\.\.|…|1(?!\w)")}
_LONG_WORD = re.compile(r"[a-zA-Z_]\w+", re.ASCII)
_NUMBERED = re.compile(r"[a-zA-Z_]\w*[\d_]\w*", re.ASCII)
_NO_NAME = re.compile(r"(?:\.\.\.|…|1)+")
_FOLDS = re.compile(r"\(([^()]*)\)")
_BLANKS = re.compile(r"\s*")
# Unicode arrows, and arrows of dashes of any length.
_OTHER_ARROWS = re.compile("[\u2192\u21d2\u27f6\u2794]|[-=\u2013\u2014\u2212]+\\s*>|>")


def parse_layout(text: str) -> Layout:
    """Parse a layout: distinct axes, outermost first, folds in parentheses.

    >>> parse_layout("bhwc").groups
    ('b', 'h', 'w', 'c')
    >>> str(parse_layout("b (h w) (c)"))
    'b(hw)c'
    >>> str(parse_layout("batch  (height width) c"))
    'batch (height width) c'

    Single letters are case-insensitive: `NHWC` is `nhwc`. `...` stands for any number of axes, `1`
    or `()` for an unnamed axis of size 1. Raises PatternError, with a caret at the position, for
    any other text.
    """
    require_text(text, "a layout", "bhwc")
    return _parse_layout(text)


def with_batch_axis(layout: Layout) -> Layout:
    """Return the layout with the axis n, if it has no b, as the batch axis b.

    >>> str(with_batch_axis(parse_layout("NHWC")))
    'bhwc'
    """
    if "b" in layout.letters or "n" not in layout.letters:
        return layout
    return Layout(tuple(group.replace("n", "b") for group in layout.groups), layout.names)


def read_sides(text: str, sizes: frozenset[str] = frozenset()) -> tuple[Layout, Layout]:
    """Return the two layouts of a pattern's text; raise PatternError if it cannot be parsed.

    `sizes` are names of axes whose sizes the caller gave.
    """
    arrow = text.find(ARROW)
    if arrow < 0:
        raise _without_arrow(text)
    end = arrow + len(ARROW)
    second = text.find(ARROW, end)
    if second >= 0:
        raise _parse_error(text, second, 'a second "->"', 'a pattern has one: "bhwc->bchw"')
    parts = text[:arrow], text[end:]
    left, right = map(_words, parts)
    in_names = _has_names(*parts) or _has_names(*reversed(parts))
    if in_names or any(len(name) > 1 and name in left | right for name in sizes):
        return _parse_sides(text, arrow, True)
    try:
        return _parse_sides(text, arrow, False)
    except PatternError as error:
        if set(filter(_LONG_WORD.fullmatch, left)) != set(filter(_LONG_WORD.fullmatch, right)):
            raise
        in_folds = _has_word_in_fold(text, _LONG_WORD)
        if not in_folds and not all(map(_NUMBERED.fullmatch, left | right)):
            raise
        try:
            return _parse_sides(text, arrow, True)
        except PatternError:
            raise error from None


def _parse_sides(text: str, arrow: int, in_names: bool) -> tuple[Layout, Layout]:
    """Return the two layouts of a text with an arrow at a position, in names or in letters."""
    known: dict[str, str] = {}
    sides = ((0, arrow), (arrow + len(ARROW), len(text)))
    left, right = (
        _SideParser(text, *side, in_names, known, ONES[i]).parse() for i, side in enumerate(sides)
    )
    fold = next((group for group in left.groups if DOTS in group and group != DOTS), None)
    if fold is not None or left.has_ellipsis != right.has_ellipsis:
        pos = re.search(r"\.\.\.|…", text).start()  # type: ignore[union-attr]
        fact = '"..." is on one side only'
        fix = "write it on both sides, or name the axes to fold"
        if fold is not None:
            fact = '"..." inside a fold on the left'
            fix = "fold it on the right only"
        raise _parse_error(text, pos, fact, f'"..." are axes that stay in order: {fix}')
    return left, right


def require_text(text: object, arg_name: str, example: str) -> None:
    """Raise PatternError if `text` is not a str.

    Without this check, `lru_cache` would raise its own TypeError for an unhashable argument.
    """
    if not isinstance(text, str):
        shown = "None" if text is None else f"{show(text)} ({type(text).__name__})"
        if hasattr(text, "shape"):
            shown = f"an array of shape {tuple(text.shape)}"
            if arg_name == "a pattern":
                shown += f'; write convert(x, "{example}") or Converter("{example}")(x)'
        raise PatternError(f'{arg_name} is text such as "{example}", not {shown}')


@lru_cache(maxsize=1024)
def _parse_layout(text: str) -> Layout:
    return _SideParser(text, 0, len(text), _has_names(text, text), {}, ONES[0]).parse()


def _words(side: str) -> set[str]:
    return set(re.split(r"[\s()]+", side.strip(" \t\n()")))


def _has_names(side: str, other: str) -> bool:
    """Return True if a side consists of names by its own words; see the module docstring."""
    chunks = _FOLDS.sub("()", side).split()
    long = [chunk for chunk in chunks if _LONG_WORD.fullmatch(chunk)]
    if len(chunks) > 1 and long:
        others = [chunk for chunk in chunks if not _NO_NAME.fullmatch(chunk)]
        return len(others) > 1 or long[0] in _words(other)
    return _has_word_in_fold(side, _NUMBERED)


def _has_word_in_fold(text: str, word: re.Pattern[str]) -> bool:
    """Return True if a fold of several words has one of a kind."""
    folds = (fold.split() for fold in _FOLDS.findall(text))
    return any(len(fold) > 1 and any(map(word.fullmatch, fold)) for fold in folds)


class _SideParser:
    """The parser of one side of a text: `text[start:end]`, in names or in letters.

    `known` maps names to their characters and is shared by both sides of a pattern; `ones` is the
    character of the side's first axis that is written as `1`.
    """

    def __init__(
        self, text: str, start: int, end: int, in_names: bool, known: dict[str, str], ones: int
    ) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.in_names = in_names
        self.known = known
        self.ones = ones
        self.seen: dict[str, str] = {}  # names and letters of this side, and their characters

    def parse(self) -> Layout:
        if not self.text[self.start : self.end].strip():
            raise _parse_error(
                self.text, self.start, "a layout without axes", "name at least one: b"
            )
        groups: list[str] = []
        pos = self.skip_blanks(self.start)
        while pos < self.end:
            group, pos = self.parse_fold(pos) if self.text[pos] == "(" else self.parse_axis(pos)
            groups.append(group)
            pos = self.skip_blanks(pos)
        names = {letter: name for name, letter in self.seen.items() if ord(letter) >= NAMED}
        return Layout(tuple(groups), tuple(names.items()))

    def parse_axis(self, pos: int) -> tuple[str, int]:
        special = self.special(pos)
        if special == "":
            return self.parse_named(pos)
        if special == "1":
            return self.next_one(), pos + 1
        if "..." in self.seen:
            raise _parse_error(self.text, pos, 'a second "..."', "write it once on each side")
        self.seen["..."] = DOTS
        return DOTS, pos + len(special)

    def special(self, pos: int) -> str:
        """Return the `...` or `1` at a position, "" if there is neither."""
        match = _SPECIAL[self.in_names].match(self.text, pos, self.end)
        return "" if match is None else match[0]

    def next_one(self) -> str:
        """Return the character of another axis of size 1."""
        self.ones += 1
        return chr(self.ones - 1)

    def parse_named(self, pos: int) -> tuple[str, int]:
        """Return the character of the letter or name at a position, and the position after it."""
        match = _AXIS[self.in_names].match(self.text, pos, self.end)
        if match is None:
            raise self.invalid_axis(pos)
        name = match[0].lower() if len(match[0]) == 1 else match[0]
        if name in self.seen:
            raise self.duplicate_axis(pos, name)
        letter = name
        if len(name) > 1:
            letter = self.known.setdefault(name, chr(NAMED + len(self.known)))
        self.seen[name] = letter
        return letter, match.end()

    def parse_fold(self, start: int) -> tuple[str, int]:
        """Return the axes of the fold that begins at `start`, and the position after it."""
        letters = ""
        pos = self.skip_blanks(start + 1)
        while pos < self.end and self.text[pos] != ")":
            if self.text[pos] == "(":
                fix = "folds do not nest: write b(hwc)"
                raise _parse_error(self.text, pos, "a fold inside a fold", fix)
            if self.special(pos) == "1":  # a factor of 1
                pos = self.skip_blanks(pos + 1)
                continue
            letter, pos = self.parse_axis(pos)
            letters += letter
            pos = self.skip_blanks(pos)
        if pos >= self.end:
            raise _parse_error(
                self.text, start, "this '(' is never closed", "write folds as b(hwc)"
            )
        # With an axis of size 1, `...` is a fold, also if it stands for one axis or for none.
        return letters if letters not in ("", DOTS) else letters + self.next_one(), pos + 1

    def skip_blanks(self, pos: int) -> int:
        match = _BLANKS.match(self.text, pos, self.end)
        return pos if match is None else match.end()

    def duplicate_axis(self, pos: int, name: str) -> PatternError:
        fix = "every axis of a layout has its own " + ("name" if self.in_names else "letter")
        if not self.in_names and re.search(r"[a-zA-Z_]\w+", self.text):
            fix += (
                "; for names of several letters write blanks between all axes, with one such name "
                "outside of folds: batch (height width) c"
            )
        return _parse_error(self.text, pos, f"axis {name!r} occurs twice", fix)

    def invalid_axis(self, pos: int) -> PatternError:
        """Return the error for text that is neither an axis nor a fold."""
        char = self.text[pos]
        if self.text.startswith(ARROW, pos):
            right = self.text[pos + len(ARROW) :].strip()
            fix = f'give a layout, which is one side of a pattern, such as "{right}"'
            return _parse_error(self.text, pos, f'"{ARROW}" in a layout', fix)
        if char == ")":
            return _parse_error(self.text, pos, "')' without '('", "write folds as b(hwc)")
        rule = _NAME_RULE if self.in_names else _LETTER_RULE
        if char.isdigit():
            rule = (
                "1 is an axis of size 1, and other numbers repeat data, which einops does: "
                'einops.repeat(x, "h w -> h w c", c=3)'
            )
        return _parse_error(self.text, pos, f"{char!r} is not an axis", rule)


def _without_arrow(text: str) -> PatternError:
    """Return the error for a pattern whose arrow is missing or written differently."""
    other = _OTHER_ARROWS.search(text)
    if other is None:
        return _parse_error(text, len(text), 'there is no "->"', 'write both layouts: "bhwc->bchw"')
    fix = 'write the arrow as "->": "bhwc->bchw"'
    return _parse_error(text, other.start(), f'there is no "->" but {other[0]!r}', fix)


def _parse_error(text: str, pos: int, fact: str, fix: str) -> PatternError:
    # Tabs and line ends would misplace the caret.
    line = "".join(char if char.isprintable() else " " for char in text)
    return PatternError(f'cannot read "{line}": {fact}\n    {line}\n    {" " * pos}^\n{fix}')


def identity_pattern(ndim: int) -> str:
    """Return the pattern that keeps the order of `ndim` axes.

    >>> identity_pattern(3)
    'abc->abc'

    Raises ShapeError if there are more axes than letters.
    """
    if ndim > len(ascii_lowercase):
        raise ShapeError(
            f"an array of {ndim} axes has no layout, as an axis is one of 26 letters; reshape it "
            "to fewer axes first"
        )
    names = ascii_lowercase[:ndim]
    return f"{names}->{names}"
