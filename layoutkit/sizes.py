"""The size of every axis of a pattern, from a shape and the sizes that a caller gives.

Knows axes by the names that callers use, and numbers. What does not fit is a ShapeError with the
fact and the fix; `axes.py` puts the pattern and the shape in front.
"""

from math import prod
from typing import TypeAlias

from .errors import ShapeError
from .layout import Layout

__all__ = ["FEATURE", "fitted"]

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
