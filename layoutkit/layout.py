"""`Layout`: the axes of an array, as text says them.

Inside, an axis is one character, so that all that follows knows strings of axes only: its letter,
or a character of Unicode's private use, of which the `Layout` knows the name.
"""

from dataclasses import dataclass
from functools import cached_property

__all__ = ["DOTS", "NAMED", "ONES", "STAYING", "Layout", "is_one"]

DOTS = "\ue000"  # `...` where the rank is not known yet
# First characters: of axes that `...` are, of `1` on either side, of names.
STAYING, ONES, NAMED = 0xE100, (0xE200, 0xE300), 0xE400


@dataclass(frozen=True)
class Layout:
    """The axes of an array, outermost first; `parse_layout` makes one from text.

    `groups` has one string for each axis of the array: a letter, or the letters of a fold. `names`
    has the pairs of those that stand for longer names.

    >>> from layoutkit.notation import parse_layout
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
