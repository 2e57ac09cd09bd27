"""Axis letters, layouts and patterns: what `"bhwc->b(chw)"` means.

Three steps, each immutable and cached: text -> `Layout` and `Pattern` (read once) ->
`Move` (one for each shape and set of sizes), which says in plain tuples where every
element goes. Nothing here knows arrays, dtypes or devices, so everything is instant and
can be tested without data:

>>> move = parse_pattern("bhwc->bf").resolve((64, 32, 32, 3))
>>> str(move.target), move.target_shape
('b(hwc)', (64, 3072))

Helpers that raise ShapeError give the fact and the fix; `Pattern.resolve` puts the
pattern and the shape in front.
"""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, SupportsIndex

from .errors import ShapeError
from .notation import ARROW, Layout, parse_layout, read_sides, require_text

__all__ = ["Layout", "Move", "Pattern", "as_shape", "check_rank", "parse_layout", "parse_pattern"]

_FEATURE = "f"
_NO_SIZES: Mapping[str, SupportsIndex] = MappingProxyType({})


@dataclass(frozen=True)
class Move:
    """Where every element of one shape goes; `Pattern.resolve` makes one.

    `axes` are the letters of the source, unfolded, and `sizes` their sizes. `order` lists
    positions in `axes`, outermost first in the target; an axis that is dropped (it has
    size 1) is not in it. `target_axes` and `target_sizes` are the target's, unfolded, with
    the added axes of size 1. The whole move, in NumPy's words:

        x.reshape(sizes).transpose(permutation).reshape(target_shape)

    >>> move = parse_pattern("b(hwk)->cbwh").resolve((2, 12), {"h": 4})
    >>> move.axes, move.sizes, move.order, move.dropped
    ('bhwk', (2, 4, 3, 1), (0, 2, 1), (3,))
    >>> move.target_axes, move.target_sizes, move.target_shape
    ('cbwh', (1, 2, 3, 4), (1, 2, 3, 4))
    """

    source: Layout
    target: Layout
    axes: str
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    target_axes: str
    target_sizes: tuple[int, ...]
    source_shape: tuple[int, ...]
    target_shape: tuple[int, ...]

    @property
    def dropped(self) -> tuple[int, ...]:
        """Positions in `axes` of the axes that the target lacks, all of size 1."""
        return tuple(at for at in range(len(self.axes)) if at not in self.order)

    @property
    def permutation(self) -> tuple[int, ...]:
        """All positions in `axes`, in the order of the target and then the dropped ones."""
        return self.order + self.dropped

    @property
    def is_identity(self) -> bool:
        """Whether an array of the source is, as it lies, one of the target."""
        same = self.source_shape == self.target_shape
        return same and self.permutation == tuple(range(len(self.axes)))

    def view_of(self, x: Any) -> Any:
        """The target as a view of `x`, in the words that arrays of NumPy and CuPy share."""
        return x.reshape(self.sizes).transpose(self.permutation).reshape(self.target_shape)


@dataclass(frozen=True)
class Pattern:
    """Two layouts, from and to; `parse_pattern` makes one from text.

    `left` and `right` are as written; in `source` and `target` the `f` that only one side
    has is spelled out, in the order of the side that has the axes:

    >>> pattern = parse_pattern("bchw -> bf")
    >>> str(pattern.right), str(pattern.target)
    ('bf', 'b(chw)')

    Patterns are equal when their layouts are: `text` is kept for messages only.
    """

    left: Layout
    right: Layout
    text: str = field(compare=False)

    @property
    def source(self) -> Layout:
        """The left layout with `f` spelled out."""
        return _spell_out(self.left, self.right)[0]

    @property
    def target(self) -> Layout:
        """The right layout with `f` spelled out."""
        return _spell_out(self.left, self.right)[1]

    def reversed(self) -> "Pattern":
        """The way back, with `f` spelled out, so that no order is guessed a second time.

        >>> parse_pattern("bchw->bf").reversed().text
        'b(chw)->bchw'
        """
        return Pattern(self.target, self.source, f"{self.target}{ARROW}{self.source}")

    def resolve(
        self, shape: Iterable[SupportsIndex], sizes: Mapping[str, SupportsIndex] = _NO_SIZES
    ) -> Move:
        """What the pattern does to an array of `shape`; `sizes` are those of folded axes.

        One size of each fold may be left out. `f`, where it stands for several axes, takes
        the size of all of them together.

        >>> parse_pattern("bchw->bhwc").resolve((64, 3, 32, 28)).target_shape
        (64, 32, 28, 3)
        >>> parse_pattern("bf->bhwc").resolve((64, 3072), {"h": 32, "w": 32}).target_shape
        (64, 32, 32, 3)
        >>> parse_pattern("bf->b").resolve((64, 1)).target_shape
        (64,)

        Raises ShapeError where shape, sizes and pattern do not fit, and where an axis that
        is dropped or added is not of size 1.
        """
        try:
            # Made plain before the cache sees them: to a cache True and 1 are one key.
            plain = sorted((letter, _as_size(letter, size)) for letter, size in sizes.items())
            return _resolve(self, as_shape(shape), tuple(plain))
        except ShapeError as error:
            raise ShapeError(f'"{self.text}" on shape {shape}: {error}') from None


def parse_pattern(text: str) -> Pattern:
    """Read a pattern: two layouts with one `->` between them.

    >>> pattern = parse_pattern("b h w c -> b (c h w)")
    >>> str(pattern.left), str(pattern.right)
    ('bhwc', 'b(chw)')

    Raises PatternError, with a caret under the place, for anything else.
    """
    require_text(text, "a pattern", "bhwc->bchw")
    return _parse_pattern(text)


def as_shape(shape: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The shape as a tuple of plain ints; ShapeError where something is not a size.

    >>> as_shape([2, 3])
    (2, 3)
    """
    try:
        items = tuple(shape)
    except TypeError:
        raise ShapeError(f"a shape is a tuple of ints >= 0, not {shape!r}") from None
    return tuple(_as_size(f"axis {at}", size) for at, size in enumerate(items))


def check_rank(layout: Layout, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless the shape has one size for each axis of the layout."""
    if len(shape) != layout.ndim:
        raise ShapeError(
            f"layout {layout} has {layout.ndim} axes ({', '.join(layout.groups)}), but the shape "
            f"{shape} has {len(shape)}; give an array of rank {layout.ndim}, or another layout"
        )


@lru_cache(maxsize=1024)
def _parse_pattern(text: str) -> Pattern:
    return Pattern(*read_sides(text), text)


@lru_cache(maxsize=1024)
def _spell_out(left: Layout, right: Layout) -> tuple[Layout, Layout, str]:
    """Both layouts with `f` replaced, and the axes it stood for ("" where it is an axis)."""
    if (_FEATURE in left.letters) == (_FEATURE in right.letters):
        return left, right, ""
    on_left = _FEATURE in left.letters
    short, full = (left, right) if on_left else (right, left)
    meant = "".join(letter for letter in full.letters if letter not in short.letters)
    if not meant:  # Nothing to stand for: an axis of size 1, dropped or added.
        return left, right, ""
    spelled = Layout(tuple(group.replace(_FEATURE, meant) for group in short.groups))
    return (spelled, right, meant) if on_left else (left, spelled, meant)


@lru_cache(maxsize=4096)
def _resolve(pattern: Pattern, shape: tuple[int, ...], given: tuple[tuple[str, int], ...]) -> Move:
    source, target, meant = _spell_out(pattern.left, pattern.right)
    sizes = dict(given)
    check_rank(pattern.left, shape)
    _check_letters(source.letters + target.letters + (_FEATURE if meant else ""), sizes)
    _fit(source, target, shape, sizes, meant)
    _check_dropped(source, target, sizes)
    _fill_added(source, target, sizes)
    return _move(source, target, shape, sizes)


def _move(source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int]) -> Move:
    axes = source.letters
    return Move(
        source=source,
        target=target,
        axes=axes,
        sizes=tuple(sizes[letter] for letter in axes),
        order=tuple(axes.index(letter) for letter in target.letters if letter in axes),
        target_axes=target.letters,
        target_sizes=tuple(sizes[letter] for letter in target.letters),
        source_shape=shape,
        target_shape=tuple(prod(sizes[letter] for letter in group) for group in target.groups),
    )


def _fit(
    source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int], meant: str
) -> None:
    """Add the size of every source axis to `sizes`, or raise where they do not fit."""
    feature = sizes.pop(_FEATURE, None) if meant else None
    axes = list(zip(source.groups, shape, strict=True))
    for letter, size in axes:
        if len(letter) == 1:
            _fit_plain(letter, size, sizes)
    for group, size in axes:
        if len(group) > 1:
            _assume_dropped(group, target, sizes)
            _assume_kept(group, target, sizes)
            _fit_fold(group, size, sizes, f"the axis ({group}) of size {size}")
    if feature is not None:  # All of its axes have a size by now: this only checks.
        _fit_fold(meant, feature, sizes, f"f={feature}")


def _fit_plain(letter: str, size: int, sizes: dict[str, int]) -> None:
    if sizes.setdefault(letter, size) != size:
        raise ShapeError(
            f"{letter}={sizes[letter]} was given, but axis {letter} has size {size}; "
            f"leave {letter}= out, or give an array of that size"
        )


def _fit_fold(group: str, total: int, sizes: dict[str, int], what: str) -> None:
    """Infer the one missing size of `group`, or check that all its sizes make `total`."""
    missing = [letter for letter in group if letter not in sizes]
    if len(missing) > 1:
        raise ShapeError(
            f"{what} can be split in many ways, and one size can be inferred, not "
            f"{len(missing)}; give all but one of {', '.join(f'{name}=' for name in missing)}"
        )
    known = prod(sizes[letter] for letter in group if letter in sizes)
    shown = ", ".join(f"{letter}={sizes[letter]}" for letter in group if letter in sizes)
    if not missing and known != total:
        raise ShapeError(f"{what} is not {shown}, which make {known}; correct one of the sizes")
    if missing and known == 0:
        raise ShapeError(f"{what} leaves {missing[0]} open beside {shown}; give {missing[0]}= too")
    if missing and total % known:
        raise ShapeError(f"{what} cannot be divided by {shown}; give sizes that divide it")
    if missing:
        sizes[missing[0]] = total // known


def _assume_dropped(group: str, target: Layout, sizes: dict[str, int]) -> None:
    """Give size 1, the only one allowed, to dropped axes while the others do not tell it."""
    missing = [letter for letter in group if letter not in sizes]
    empty = any(sizes.get(letter) == 0 for letter in group)
    for letter in [letter for letter in missing if letter not in target.letters]:
        if empty or len(missing) > 1:
            sizes[letter] = 1
            missing.remove(letter)


def _assume_kept(group: str, target: Layout, sizes: dict[str, int]) -> None:
    """Let one axis have all of a fold that the target has too: how it splits is all the same."""
    missing = [letter for letter in group if letter not in sizes]
    if group in target.groups:
        sizes.update(dict.fromkeys(missing[1:], 1))


def _fill_added(source: Layout, target: Layout, sizes: dict[str, int]) -> None:
    for letter in target.letters:
        if letter not in source.letters and sizes.setdefault(letter, 1) != 1:
            raise ShapeError(
                f"axis {letter} is only on the right, and with {letter}={sizes[letter]} data "
                f"would have to be invented; an added axis has size 1, so leave {letter}= out"
            )


def _check_letters(letters: str, sizes: dict[str, int]) -> None:
    for letter in sizes:
        if len(letter) != 1 or letter not in letters:
            there = ", ".join(dict.fromkeys(letters))
            raise ShapeError(f"{letter}={sizes[letter]} is for no axis; the axes are {there}")


def _check_dropped(source: Layout, target: Layout, sizes: dict[str, int]) -> None:
    for letter in source.letters:
        if letter not in target.letters and sizes[letter] != 1:
            raise ShapeError(
                f"axis {letter} of size {sizes[letter]} is not on the right, so its data would "
                f"be lost; only an axis of size 1 can be dropped: add {letter} to {target}"
            )


def _as_size(name: object, size: SupportsIndex) -> int:
    try:
        # bool is an int to Python, but nobody means it as a size.
        value = -1 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        value = -1
    if value < 0:
        raise ShapeError(f"{name} is {size!r}; a size is an int >= 0")
    return value
