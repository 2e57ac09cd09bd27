"""Axis letters, layouts and patterns: what `"bhwc->b(chw)"` means.

Three steps, each immutable and cached: text -> `Layout` and `Pattern` (read once) ->
`Move` (one for each shape and set of sizes), which says in plain tuples where every
element goes. Nothing here knows arrays, dtypes or devices, so everything is instant and
can be tested without data:

>>> move = parse_pattern("bhwc->bf").resolve((64, 32, 32, 3))
>>> str(move.target), move.target_shape
('b(hwc)', (64, 3072))

The size of every axis of a pattern, from a shape and the sizes that a caller gives.

Knows axes by the names that callers use, and numbers. What does not fit is a ShapeError with the
fact and the fix; `axes.py` puts the pattern and the shape in front.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, SupportsIndex, TypeAlias

from .._utils.validation import as_int, is_symbol
from ..errors import ShapeError
from .parsing import ARROW, Layout, is_one, read_sides, require_text

FEATURE = "f"
_STAYING, _ONE = "...", "1"  # what has no name: axes that stay, and those of size 1

_Group: TypeAlias = tuple[str, ...]


def fitted(
    source: Layout, target: Layout, shape: tuple[int, ...], given: dict[str, int], meant: str
) -> dict[str, int]:
    """The size of every letter on either side, or ShapeError where shape and given do not fit.

    `meant` are the axes that `f` stands for, "" where it is an axis itself. The caller has proved
    that `shape` has one size for each axis of the source, which is not open.
    """
    sizes = dict(given)
    features = tuple(map((target if meant[:1] in target.letters else source).name, meant))
    _check_names(source, target, (FEATURE,) if meant else (), sizes)
    _fit(source, target, shape, sizes, features)
    _check_dropped(source, target, sizes)
    _fill_added(source, target, sizes)
    found: dict[str, int] = {}
    for layout in (target, source):
        found |= {letter: sizes.get(layout.name(letter), 1) for letter in layout.letters}
    staying = [letter for letter in source.letters if source.name(letter) == _STAYING]
    plain = zip(source.groups, shape, strict=True)
    return found | {letter: size for letter, size in plain if letter in staying}


def _fit(
    source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int], meant: _Group
) -> None:
    """Add the size of every source axis that has a name to `sizes`, or raise if they don't fit."""
    feature = sizes.pop(FEATURE, None) if meant else None
    axes = list(zip(source.named, shape, strict=True))
    for group, size in axes:
        if len(group) == 1:
            _fit_plain(group[0], size, sizes)
    for group, size in axes:
        if len(group) > 1:
            _assume_dropped(group, target, sizes)
            _assume_kept(group, target, sizes)
            _fit_fold(group, size, sizes, f"the axis ({_shown(group)}) of size {size}")
    if feature is not None:  # All of its axes have a size by now: this only checks.
        _fit_fold(meant, feature, sizes, f"f={feature}")


def _shown(group: _Group) -> str:
    return ("" if all(len(name) == 1 for name in group) else " ").join(group)


def _fit_plain(name: str, size: int, sizes: dict[str, int]) -> None:
    if name == _ONE and size != 1:
        raise ShapeError(
            f"an axis written as 1 has size {size}; give it a name, or an array that has size 1"
        )
    if name not in (_STAYING, _ONE) and sizes.setdefault(name, size) != size:
        raise ShapeError(
            f"{name}={sizes[name]} was given, but axis {name} has size {size}; "
            f"leave {name}= out, or give an array of that size"
        )


def _fit_fold(group: _Group, total: int, sizes: dict[str, int], what: str) -> None:
    """Infer the one missing size of `group`, or check that all its sizes make `total`."""
    missing = [name for name in group if name not in sizes]
    if len(missing) > 1:
        raise ShapeError(
            f"{what} can be split in many ways, and one size can be inferred, not "
            f"{len(missing)}; give all but one of {', '.join(f'{name}=' for name in missing)}"
        )
    known = prod(sizes[name] for name in group if name in sizes)
    shown = ", ".join(f"{name}={sizes[name]}" for name in group if name in sizes)
    if not missing and known != total:
        raise ShapeError(f"{what} is not {shown}, which make {known}; correct one of the sizes")
    if missing and known == 0:
        raise ShapeError(f"{what} leaves {missing[0]} open beside {shown}; give {missing[0]}= too")
    if missing and total % known:
        raise ShapeError(f"{what} cannot be divided by {shown}; give sizes that divide it")
    if missing:
        sizes[missing[0]] = total // known


def _assume_dropped(group: _Group, target: Layout, sizes: dict[str, int]) -> None:
    """Give size 1, the only one allowed, to dropped axes while the others do not tell it."""
    missing = [name for name in group if name not in sizes]
    empty = any(sizes.get(name) == 0 for name in group)
    for name in [name for name in missing if name not in _names(target)]:
        if empty or len(missing) > 1:
            sizes[name] = 1
            missing.remove(name)


def _assume_kept(group: _Group, target: Layout, sizes: dict[str, int]) -> None:
    """Let one axis have all of a fold that the target has too: how it splits is all the same."""
    missing = [name for name in group if name not in sizes]
    if group in target.named:
        sizes.update(dict.fromkeys(missing[1:], 1))


def _fill_added(source: Layout, target: Layout, sizes: dict[str, int]) -> None:
    there = _names(source)
    for name in _names(target):
        if name not in (*there, _ONE) and sizes.setdefault(name, 1) != 1:
            call = f'einops.repeat(x, "{source.spelled()} -> {target.spelled()}", '
            raise ShapeError(
                f"axis {name} is only on the right, and with {name}={sizes[name]} data "
                f"would have to be invented; an added axis has size 1, so leave {name}= out; "
                f"{call}{name}={sizes[name]}) repeats it"
            )


def _check_names(
    source: Layout, target: Layout, more: tuple[str, ...], sizes: dict[str, int]
) -> None:
    axes = dict.fromkeys((*_names(source), *_names(target), *more))
    for name in sizes:
        if name not in axes or name in (_STAYING, _ONE):
            there = ", ".join(axes)
            raise ShapeError(f"{name}={sizes[name]} is for no axis; the axes are {there}")


def _check_dropped(source: Layout, target: Layout, sizes: dict[str, int]) -> None:
    kept = _names(target)
    for name in _names(source):
        if name not in (*kept, _ONE) and sizes[name] != 1:
            why = (
                f"axis {name} of size {sizes[name]} is not on the right, so its data would be lost"
            )
            word = next((each for each in kept if _is_run(each, source)), None)
            if word is not None:
                raise ShapeError(f"{why}, and {word} is one axis; write ({' '.join(word)}) to fold")
            call = f'einops.reduce(x, "{source.spelled()} -> {target.spelled()}", "mean")'
            raise ShapeError(
                f"{why}; only an axis of size 1 can be dropped: add {name} to {target}; {call} "
                "averages over it"
            )


def _is_run(name: str, source: Layout) -> bool:
    """Whether a new name is that of several axes of the source, which was meant as a fold."""
    return len(name) > 1 and name not in _names(source) and set(name) <= set(_names(source))


def _names(layout: Layout) -> list[str]:
    """The names of all axes in order, folded or not."""
    return [name for group in layout.named for name in group]


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
