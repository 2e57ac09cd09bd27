"""Patterns such as `"bhwc->b(chw)"`, and the permutation that one means for a shape.

Text is parsed into a `Pattern` of two `Layout`s; `Pattern.resolve` makes a `Permutation` for a
shape and axis sizes, which describes in plain tuples where every element goes. All three are
immutable and cached, and none of them needs an array:

>>> move = parse_pattern("bhwc->bf").resolve((64, 32, 32, 3))
>>> str(move.target), move.target_shape
('b(hwc)', (64, 3072))

Sizes that do not fit are a ShapeError that names the axis and the fix; `Pattern.resolve` adds the
pattern and the shape as a prefix.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, SupportsIndex, TypeAlias

from .._utils.validation import as_int, is_symbolic_int, show
from ..errors import ShapeError
from .parsing import ARROW, DOTS, ONES, STAYING, Layout, is_one, read_sides, require_text

FEATURE = "f"
# Unnamed axes: the axes in `...`, and axes of size 1.
_STAYING = "..."
_ONE = "1"

_Group: TypeAlias = tuple[str, ...]


def solve_axis_sizes(
    source: Layout, target: Layout, shape: tuple[int, ...], known: dict[str, int], features: str
) -> dict[str, int]:
    """Return the size of every letter on either side; raise ShapeError if the sizes do not fit.

    `known` has the sizes that the caller passed. `features` are the axes that `f` stands for, ""
    if `f` is an axis itself. The caller has checked that `shape` has one size for each axis of the
    source, which does not have `...`.
    """
    sizes = dict(known)
    names = tuple(map((target if features[:1] in target.letters else source).name, features))
    _check_names(source, target, (FEATURE,) if features else (), sizes)
    _solve_source(source, target, shape, sizes, names)
    _check_dropped(source, target, sizes)
    _fill_added(source, target, sizes)
    result: dict[str, int] = {}
    for layout in (target, source):
        pairs = zip(layout.letters, layout.axis_names, strict=True)
        result |= {letter: sizes.get(name, 1) for letter, name in pairs}
    for group, names, size in zip(source.groups, source.named, shape, strict=True):
        if names == (_STAYING,):
            result[group] = size
    return result


def _solve_source(
    source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int], features: _Group
) -> None:
    """Add the size of every named source axis to `sizes`, or raise if the sizes do not fit."""
    feature = sizes.pop(FEATURE, None) if features else None
    axes = list(zip(source.named, shape, strict=True))
    for group, size in axes:
        if len(group) == 1:
            _set_axis_size(group[0], size, sizes)
    for group, size in axes:
        if len(group) > 1:
            _assume_dropped(group, target, sizes)
            _assume_kept(group, target, sizes)
            _solve_fold(group, size, sizes, f"the axis ({_group_text(group)}) of size {size}")
    if feature is not None:  # All of its axes have a size by now: this only checks.
        _solve_fold(features, feature, sizes, f"f={feature}")


def _group_text(group: _Group) -> str:
    return ("" if all(len(name) == 1 for name in group) else " ").join(group)


def _set_axis_size(name: str, size: int, sizes: dict[str, int]) -> None:
    if name == _ONE and size != 1:
        raise ShapeError(
            f"an axis written as 1 has size {size}; give it a name, or an array that has size 1"
        )
    if name not in (_STAYING, _ONE) and sizes.setdefault(name, size) != size:
        raise ShapeError(
            f"{name}={sizes[name]} was given, but axis {name} has size {size}; "
            f"omit {name}=, or give an array of that size"
        )


def _solve_fold(group: _Group, total: int, sizes: dict[str, int], label: str) -> None:
    """Infer the one missing size of `group`, or check that the product of its sizes is `total`."""
    missing = [name for name in group if name not in sizes]
    if len(missing) > 1:
        raise ShapeError(
            f"{label} can be split in many ways, and one size can be inferred, not "
            f"{len(missing)}; give all but one of {', '.join(f'{name}=' for name in missing)}"
        )
    known = prod(sizes[name] for name in group if name in sizes)
    shown = ", ".join(f"{name}={sizes[name]}" for name in group if name in sizes)
    if not missing and known != total:
        raise ShapeError(f"{label} is not {shown}, which make {known}; correct one of the sizes")
    if missing and known == 0:
        raise ShapeError(f"{label} leaves {missing[0]} open beside {shown}; give {missing[0]}= too")
    if missing and total % known:
        raise ShapeError(f"{label} cannot be divided by {shown}; give sizes that divide it")
    if missing:
        sizes[missing[0]] = total // known


def _assume_dropped(group: _Group, target: Layout, sizes: dict[str, int]) -> None:
    """Set dropped axes to size 1, the only size allowed, if it cannot be inferred."""
    missing = [name for name in group if name not in sizes]
    empty = any(sizes.get(name) == 0 for name in group)
    for name in [name for name in missing if name not in target.axis_names]:
        if empty or len(missing) > 1:
            sizes[name] = 1
            missing.remove(name)


def _assume_kept(group: _Group, target: Layout, sizes: dict[str, int]) -> None:
    """Give the full size of a fold to one axis if the target has the same fold.

    The split does not matter then.
    """
    missing = [name for name in group if name not in sizes]
    if group in target.named:
        sizes.update(dict.fromkeys(missing[1:], 1))


def _fill_added(source: Layout, target: Layout, sizes: dict[str, int]) -> None:
    there = source.axis_names
    for name in target.axis_names:
        if name not in (*there, _ONE) and sizes.setdefault(name, 1) != 1:
            fold, size = _group_text(("h", name)), sizes[name]
            raise ShapeError(
                f"axis {name} is only on the right, and with {name}={size} data would have to be "
                f"invented; to divide an axis, fold it on the left, as in ({fold}); an added axis "
                f"has size 1, so omit {name}=; einops.repeat(x, "
                f'"{source.to_text()} -> {target.to_text()}", {name}={size}) repeats x'
            )


def _check_names(
    source: Layout, target: Layout, extra: tuple[str, ...], sizes: dict[str, int]
) -> None:
    axes = dict.fromkeys((*source.axis_names, *target.axis_names, *extra))
    for name in sizes:
        if name not in axes or name in (_STAYING, _ONE):
            there = ", ".join(axes)
            raise ShapeError(f"{name}={sizes[name]} is for no axis; the axes are {there}")


def _check_dropped(source: Layout, target: Layout, sizes: dict[str, int]) -> None:
    kept = target.axis_names
    for name in source.axis_names:
        if name not in (*kept, _ONE) and sizes[name] != 1:
            fact = (
                f"axis {name} of size {sizes[name]} is not on the right, so its data would be lost"
            )
            word = next((other for other in kept if _is_unmarked_fold(other, source)), None)
            if word is not None:
                raise ShapeError(
                    f"{fact}, and {word} is one axis; write ({' '.join(word)}) to fold"
                )
            added = next((other for other in kept if other not in (*source.axis_names, _ONE)), None)
            if added is not None:
                raise ShapeError(
                    f"{fact}; if it is {added}, which is only on the right, give both one name"
                )
            call = f'einops.reduce(x, "{source.to_text()} -> {target.to_text()}", "mean")'
            raise ShapeError(
                f"{fact}; only an axis of size 1 can be dropped: "
                f"add {name} to {target}; {call} averages over it"
            )


def _is_unmarked_fold(name: str, source: Layout) -> bool:
    """Return True if a new name consists of axes of the source: a fold without parentheses."""
    return len(name) > 1 and name not in source.axis_names and set(name) <= set(source.axis_names)


MAX_ELEMENTS = 1 << 58  # with 32 bytes each, 64 bits cannot hold the number of bytes

_NO_SIZES: Mapping[str, SupportsIndex] = MappingProxyType({})


@dataclass(frozen=True)
class Permutation:
    """A pattern resolved for one shape: the permutation of axes that it means.

    `axes` are the letters of the source, unfolded, and `sizes` their sizes. `order` lists
    positions in `axes`, outermost first in the target; a dropped axis (of size 1) is not in it.
    `target_axes` and `target_sizes` are the target's, unfolded, with the added axes of size 1.
    The conversion as NumPy operations:

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
        return tuple(i for i in range(len(self.axes)) if i not in self.order)

    @property
    def permutation(self) -> tuple[int, ...]:
        """The order of all axes: target axes first, then dropped ones."""
        return self.order + self.dropped

    @property
    def named_sizes(self) -> dict[str, int]:
        """The sizes of the source's axes that have names, as keywords of a conversion."""
        names = (self.source.name(letter) for letter in self.axes)
        sizes = dict(zip(names, self.sizes, strict=True))
        return {name: size for name, size in sizes.items() if name not in ("...", "1")}

    @property
    def is_identity(self) -> bool:
        """True if an array of the source already has the target's axes, in order and folded alike.

        Sizes are not compared: if they are symbols of a tracer, that would restrict them.
        """
        in_order = self.permutation == tuple(range(len(self.axes)))
        return in_order and self.source.groups == self.target.groups

    def as_view(self, x: Any) -> Any:
        """Return the target as a view of `x`, a NumPy or CuPy array."""
        return x.reshape(self.sizes).transpose(self.permutation).reshape(self.target_shape)


@dataclass(frozen=True)
class Pattern:
    """The layouts of a source and a target; `parse_pattern` makes one from text.

    `left` and `right` are as written. If only one side has `f`, then `source` and `target` have
    the axes that it stands for, in the order of the other side:

    >>> pattern = parse_pattern("bchw -> bf")
    >>> str(pattern.right), str(pattern.target)
    ('bf', 'b(chw)')

    Patterns are equal if their layouts are: `text` is kept for messages only. A pattern with `...`
    is first replaced by axes, by `expand_ellipsis`.
    """

    left: Layout
    right: Layout
    text: str = field(compare=False)

    @property
    def source(self) -> Layout:
        """The left layout with `f` replaced by its axes."""
        return _expand_feature(self.left, self.right)[0]

    @property
    def target(self) -> Layout:
        """The right layout with `f` replaced by its axes."""
        return _expand_feature(self.left, self.right)[1]

    def reversed(self) -> "Pattern":
        """Return the pattern from target to source, with `f` replaced by its axes in order.

        >>> parse_pattern("bchw->bf").reversed().text
        'b(chw)->bchw'
        """
        names = (name for _, name in (*self.target.names, *self.source.names))
        return parse_pattern(_joined(self.target, self.source), names)

    def __str__(self) -> str:
        return _joined(self.left, self.right)

    def expand_ellipsis(self, ndim: int) -> "Pattern":
        """Return the pattern for arrays of rank `ndim`, with axes in place of `...`.

        >>> parse_pattern("...hwc->...chw").expand_ellipsis(5).target.ndim
        5

        Raises ShapeError if the rank is too low.
        """
        if not self.left.has_ellipsis:
            return self
        if ndim < self.left.ndim:
            raise ShapeError(_rank_fact(self.left, ndim))
        staying = ndim - self.left.ndim
        return Pattern(
            self.left.expand_ellipsis(staying), self.right.expand_ellipsis(staying), self.text
        )

    @property
    def folds_ellipsis(self) -> bool:
        """True if `...` is inside a fold on the right."""
        return self.right.has_ellipsis and DOTS not in self.right.groups

    def with_named_ellipsis(self, ndim: int) -> "Pattern":
        """Return the pattern for arrays of rank `ndim`, with names `_0`, `_1`, ... for `...`.

        >>> print(parse_pattern("b...->(b...)").with_named_ellipsis(3))
        b _0 _1->(b _0 _1)
        """
        names = [f"_{i}" for i in range(ndim - self.left.ndim)]
        text = f"{self.left.to_text()}{ARROW}{self.right.to_text()}"
        return parse_pattern(text.replace("...", " ".join(names)), names)

    def with_outer_axis(self) -> "Pattern":
        """Return the pattern for arrays with one more axis, the first on both sides.

        The pattern must have no `...`; in errors and texts, the new axis belongs to it.

        >>> parse_pattern("hwc->f").with_outer_axis().resolve((8, 2, 4, 3)).target_shape
        (8, 24)
        """
        used = self.left.letters + self.right.letters
        axis = next(chr(code) for code in range(STAYING, ONES[0]) if chr(code) not in used)
        left, right = (Layout((axis, *s.groups), s.names) for s in (self.source, self.target))
        return Pattern(left, right, self.text)

    def resolve(
        self, shape: Iterable[SupportsIndex], sizes: Mapping[str, SupportsIndex] = _NO_SIZES
    ) -> Permutation:
        """Return the `Permutation` for an array of `shape`; `sizes` has sizes of folded axes.

        One size of each fold may be omitted. If `f` stands for several axes, its size is the
        product of their sizes.

        >>> parse_pattern("bf->bhwc").resolve((64, 3072), {"h": 32, "w": 32}).target_shape
        (64, 32, 32, 3)

        Raises ShapeError if shape, sizes and pattern do not fit, or if a dropped or added axis
        does not have size 1.
        """
        try:
            # Checked before the cache, which does not distinguish True from 1.
            items = sorted((axis_name(name), as_size(name, size)) for name, size in sizes.items())
            checked = as_shape(shape)
            all_sizes = (*checked, *sizes.values())
            symbolic = {*map(type, all_sizes)} != {int} and any(map(is_symbolic_int, all_sizes))
            resolve = _resolve.__wrapped__ if symbolic else _resolve  # symbols may be unhashable
            return resolve(self, checked, tuple(items))
        except ShapeError as error:
            raise ShapeError(f'"{self.text}" on shape {shape}: {error}') from None


def parse_pattern(text: str, sizes: Iterable[str] = ()) -> Pattern:
    """Parse a pattern: two layouts with one `->` between them.

    `sizes` are names of axes whose sizes the caller gave. If one of several letters is a word of
    the pattern, the pattern consists of names.

    >>> pattern = parse_pattern("b h w c -> b (c h w)")
    >>> str(pattern.left), str(pattern.right)
    ('bhwc', 'b(chw)')
    >>> str(parse_pattern("batch height width c -> batch c (height width)").right)
    'batch c (height width)'
    >>> str(parse_pattern("b (head d) -> (d head b)", {"head": 8}).right)
    '(d head b)'

    Raises PatternError, with a caret at the position, for any other text.
    """
    require_text(text, "a pattern", "bhwc->bchw")
    return _parse_pattern(text, frozenset(name for name in sizes if len(name) > 1))


def as_shape(shape: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return the shape as a tuple of ints; raise ShapeError if an item is not a size.

    >>> as_shape([2, 3])
    (2, 3)
    """
    if getattr(shape, "ndim", 1) != 1:
        raise ShapeError("a shape is a tuple of ints >= 0, not an array of them; give its .shape")
    try:
        items = tuple(shape)
    except TypeError:
        raise ShapeError(f"a shape is a tuple of ints >= 0, not {show(shape)}") from None
    plain = tuple([size for size in items if type(size) is int and size >= 0])
    if len(plain) == len(items):
        return plain
    return tuple([as_size(f"axis {axis}", size) for axis, size in enumerate(items)])


def check_rank(layout: Layout, shape: tuple[int, ...] | int) -> None:
    """Raise ShapeError unless a shape, or a rank, has one size for each axis of the layout."""
    ndim = shape if isinstance(shape, int) else len(shape)
    if ndim != layout.ndim and not (layout.has_ellipsis and ndim > layout.ndim):
        label = "the array" if isinstance(shape, int) else f"the shape {show(shape)}"
        raise ShapeError(_rank_fact(layout, ndim, label))


def _rank_fact(layout: Layout, ndim: int, label: str = "the array") -> str:
    least = "at least " if layout.has_ellipsis else ""
    axes = ", ".join((" " if layout.names else "").join(names) for names in layout.named)
    blanks = ""
    if layout.names:
        blanks = "; with blanks between axes each word is one, without them each letter"
    return (
        f"layout {layout} has {least}{layout.ndim} axes ({axes}), but {label} has {ndim}; give an "
        f"array of rank {layout.ndim}{' or more' if least else ''}, or another layout{blanks}"
    )


def axis_name(name: str) -> str:
    """Return the axis of a size keyword: single letters are case-insensitive."""
    return name.lower() if isinstance(name, str) and len(name) == 1 else name


def _joined(left: Layout, right: Layout) -> str:
    """Return the text of a pattern; both sides are in names if one is."""
    blank = " " if left.names or right.names else ""
    return ARROW.join((left.to_text(blank), right.to_text(blank)))


@lru_cache(maxsize=1024)
def _parse_pattern(text: str, names: frozenset[str]) -> Pattern:
    return Pattern(*read_sides(text, names), text)


@lru_cache(maxsize=1024)
def _expand_feature(left: Layout, right: Layout) -> tuple[Layout, Layout, str]:
    """Return both layouts with `f` replaced, and the axes that it stands for ("" if none)."""
    if (FEATURE in left.letters) == (FEATURE in right.letters):
        return left, right, ""
    on_left = FEATURE in left.letters
    with_feature, full = (left, right) if on_left else (right, left)
    lacking = (letter for letter in full.letters if letter not in with_feature.letters)
    features = "".join(letter for letter in lacking if not is_one(letter))
    if not features:  # `f` is an axis of size 1, dropped or added.
        return left, right, ""
    names = with_feature.names + tuple(pair for pair in full.names if pair[0] in features)
    expanded = Layout(
        tuple(group.replace(FEATURE, features) for group in with_feature.groups), names
    )
    return (expanded, right, features) if on_left else (left, expanded, features)


@lru_cache(maxsize=4096)
def _resolve(
    pattern: Pattern, shape: tuple[int, ...], sizes_key: tuple[tuple[str, int], ...]
) -> Permutation:
    check_rank(pattern.left, shape)
    pattern = pattern.expand_ellipsis(len(shape))
    source, target, features = _expand_feature(pattern.left, pattern.right)
    sizes = solve_axis_sizes(source, target, shape, dict(sizes_key), features)
    _check_countable(sizes)
    if max(len(sizes), target.ndim) > MAX_NDIM:
        raise ShapeError(
            f"there are {max(len(sizes), target.ndim)} axes, and NumPy allows {MAX_NDIM}; omit some"
        )
    return _move(source, target, shape, sizes)


MAX_NDIM = 64  # of a NumPy array


def _check_countable(sizes: Mapping[str, int]) -> None:
    """Raise if the sizes of an empty array are larger than NumPy allows.

    NumPy multiplies the sizes of the other axes of an empty array as well.
    """
    if 0 in sizes.values() and prod(size or 1 for size in sizes.values()) >= MAX_ELEMENTS:
        letter, size = max(sizes.items(), key=lambda item: item[1])
        raise ShapeError(f"{letter} is {size}, too large for any array; give its true size")


def _move(
    source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int]
) -> Permutation:
    axes = source.letters
    return Permutation(
        source=source,
        target=target,
        axes=axes,
        sizes=tuple(map(sizes.__getitem__, axes)),
        order=tuple([axes.index(letter) for letter in target.letters if letter in axes]),
        target_axes=target.letters,
        target_sizes=tuple(map(sizes.__getitem__, target.letters)),
        source_shape=shape,
        target_shape=tuple([prod(map(sizes.__getitem__, group)) for group in target.groups]),
    )


def as_size(name: object, size: SupportsIndex) -> int:
    """Return a size as an int, a symbolic one unchanged; raise ShapeError for other values."""
    if (type(size) is int and size >= 0) or is_symbolic_int(size):
        return size  # type: ignore[return-value]  # it computes as an int does
    value = as_int(size)
    if value is None or value < 0:
        traced = "; make a traced one static" if hasattr(size, "aval") else ""
        raise ShapeError(f"{name} is {show(size)}; a size is an int >= 0{traced}")
    return value
