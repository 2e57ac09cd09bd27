"""Axis letters, layouts and patterns: what `"bhwc->b(chw)"` means.

Three steps, each immutable and cached: text -> `Layout` and `Pattern` (read once) ->
`Move` (one for each shape and set of sizes), which says in plain tuples where every
element goes. Nothing here knows arrays, dtypes or devices, so everything is instant and
can be tested without data:

>>> move = parse_pattern("bhwc->bf").resolve((64, 32, 32, 3))
>>> str(move.target), move.target_shape
('b(hwc)', (64, 3072))
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, SupportsIndex

from .checks import as_int, is_symbol
from .errors import ShapeError
from .layout import Layout, is_one
from .notation import ARROW, parse_layout, read_sides, require_text
from .sizes import FEATURE, fitted

__all__ = [
    "Layout",
    "Move",
    "Pattern",
    "as_shape",
    "axis_name",
    "check_rank",
    "parse_layout",
    "parse_pattern",
]

_UNCOUNTABLE = 1 << 58  # elements; of 32 bytes each, no 64 bits count the bytes

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
    def named_sizes(self) -> dict[str, int]:
        """The sizes of the source's axes that have names, as keywords of a conversion."""
        names = (self.source.name(letter) for letter in self.axes)
        found = dict(zip(names, self.sizes, strict=True))
        return {name: size for name, size in found.items() if name not in ("...", "1")}

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

    Patterns are equal when their layouts are: `text` is kept for messages only. One with `...` is
    open: what it is to arrays of a rank, it is `completed` for.
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
        return parse_pattern(_joined(self.target, self.source))

    def __str__(self) -> str:
        return _joined(self.left, self.right)

    def completed(self, ndim: int) -> "Pattern":
        """The pattern for arrays of a rank, with an axis for each that `...` stands for.

        >>> parse_pattern("...hwc->...chw").completed(5).target.ndim
        5

        Raises ShapeError where the rank is too low.
        """
        if not self.left.is_open:
            return self
        if ndim < self.left.ndim:
            raise ShapeError(_rank_fact(self.left, ndim))
        staying = ndim - self.left.ndim
        return Pattern(self.left.completed(staying), self.right.completed(staying), self.text)

    def resolve(
        self, shape: Iterable[SupportsIndex], sizes: Mapping[str, SupportsIndex] = _NO_SIZES
    ) -> Move:
        """What the pattern does to an array of `shape`; `sizes` are those of folded axes.

        One size of each fold may be left out. `f`, where it stands for several axes, takes
        the size of all of them together.

        >>> parse_pattern("bf->bhwc").resolve((64, 3072), {"h": 32, "w": 32}).target_shape
        (64, 32, 32, 3)

        Raises ShapeError where shape, sizes and pattern do not fit, and where an axis that
        is dropped or added is not of size 1.
        """
        try:
            # Made plain before a cache sees them, to which True and 1 are one key.
            plain = sorted((axis_name(name), _as_size(name, size)) for name, size in sizes.items())
            symbols = any(map(is_symbol, (*(known := as_shape(shape)), *sizes.values())))
            resolve = _resolve.__wrapped__ if symbols else _resolve  # symbols need not hash
            return resolve(self, known, tuple(plain))
        except ShapeError as error:
            raise ShapeError(f'"{self.text}" on shape {shape}: {error}') from None


def parse_pattern(text: str) -> Pattern:
    """Read a pattern: two layouts with one `->` between them.

    >>> pattern = parse_pattern("b h w c -> b (c h w)")
    >>> str(pattern.left), str(pattern.right)
    ('bhwc', 'b(chw)')
    >>> str(parse_pattern("batch height width c -> batch c (height width)").right)
    'batch c (height width)'

    Raises PatternError, with a caret under the place, for anything else.
    """
    require_text(text, "a pattern", "bhwc->bchw")
    return _parse_pattern(text)


def as_shape(shape: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The shape as a tuple of plain ints; ShapeError where something is not a size.

    >>> as_shape([2, 3])
    (2, 3)
    """
    if getattr(shape, "ndim", 1) != 1:
        raise ShapeError("a shape is a tuple of ints >= 0, not an array of them; give its .shape")
    try:
        items = tuple(shape)
    except TypeError:
        raise ShapeError(f"a shape is a tuple of ints >= 0, not {shape!r}") from None
    return tuple(_as_size(f"axis {at}", size) for at, size in enumerate(items))


def check_rank(layout: Layout, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless the shape has one size for each axis of the layout."""
    if len(shape) != layout.ndim and not (layout.is_open and len(shape) > layout.ndim):
        raise ShapeError(_rank_fact(layout, len(shape), f"the shape {shape}"))


def _rank_fact(layout: Layout, ndim: int, what: str = "the array") -> str:
    """Why an array of a rank has not a layout, and what would help."""
    least = "at least " if layout.is_open else ""
    axes = ", ".join((" " if layout.names else "").join(names) for names in layout.named)
    blanks = ""
    if layout.names:
        blanks = "; with blanks between axes each word is one, without them each letter"
    return (
        f"layout {layout} has {least}{layout.ndim} axes ({axes}), but {what} has {ndim}; give an "
        f"array of rank {layout.ndim}{' or more' if least else ''}, or another layout{blanks}"
    )


def axis_name(name: str) -> str:
    """A keyword of a size as the axis that it is of: letters are of any case."""
    return name.lower() if isinstance(name, str) and len(name) == 1 else name


def _joined(left: Layout, right: Layout) -> str:
    """The text of a pattern; both sides are in names where one is."""
    blank = " " if left.names or right.names else ""
    return ARROW.join((left.spelled(blank), right.spelled(blank)))


@lru_cache(maxsize=1024)
def _parse_pattern(text: str) -> Pattern:
    return Pattern(*read_sides(text), text)


@lru_cache(maxsize=1024)
def _spell_out(left: Layout, right: Layout) -> tuple[Layout, Layout, str]:
    """Both layouts with `f` replaced, and the axes it stood for ("" where it is an axis)."""
    if (FEATURE in left.letters) == (FEATURE in right.letters):
        return left, right, ""
    on_left = FEATURE in left.letters
    short, full = (left, right) if on_left else (right, left)
    lacking = (letter for letter in full.letters if letter not in short.letters)
    meant = "".join(letter for letter in lacking if not is_one(letter))
    if not meant:  # Nothing to stand for: an axis of size 1, dropped or added.
        return left, right, ""
    names = short.names + tuple(pair for pair in full.names if pair[0] in meant)
    spelled = Layout(tuple(group.replace(FEATURE, meant) for group in short.groups), names)
    return (spelled, right, meant) if on_left else (left, spelled, meant)


@lru_cache(maxsize=4096)
def _resolve(pattern: Pattern, shape: tuple[int, ...], given: tuple[tuple[str, int], ...]) -> Move:
    check_rank(pattern.left, shape)
    pattern = pattern.completed(len(shape))
    source, target, meant = _spell_out(pattern.left, pattern.right)
    sizes = fitted(source, target, shape, dict(given), meant)
    _check_countable(sizes)
    return _move(source, target, shape, sizes)


def _check_countable(sizes: Mapping[str, int]) -> None:
    """Raise where no array could have these sizes, though there is nothing in it.

    Exists because NumPy counts the elements along the other axes of an empty array as well.
    """
    if 0 in sizes.values() and prod(size or 1 for size in sizes.values()) >= _UNCOUNTABLE:
        letter, size = max(sizes.items(), key=lambda item: item[1])
        raise ShapeError(f"{letter} is {size}, beside which no array counts; give its true size")


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


def _as_size(name: object, size: SupportsIndex) -> int:
    if is_symbol(size):
        return size  # type: ignore[return-value]  # it computes as an int does
    value = as_int(size)
    if value is None or value < 0:
        traced = "; make a traced one static" if hasattr(size, "aval") else ""
        raise ShapeError(f"{name} is {size!r}; a size is an int >= 0{traced}")
    return value
