"""The size of every axis of a pattern, from a shape and the sizes that a caller gives.

Knows letters and numbers. What does not fit is a ShapeError with the fact and the fix; `axes.py`
puts the pattern and the shape in front.
"""

from math import prod

from .errors import ShapeError
from .notation import Layout

__all__ = ["FEATURE", "fitted"]

FEATURE = "f"


def fitted(
    source: Layout, target: Layout, shape: tuple[int, ...], given: dict[str, int], meant: str
) -> dict[str, int]:
    """The size of every letter on either side, or ShapeError where shape and given do not fit.

    `meant` are the axes that `f` stands for, "" where it is an axis itself. The caller has proved
    that `shape` has one size for each axis of the source.
    """
    sizes = dict(given)
    _check_letters(source.letters + target.letters + (FEATURE if meant else ""), sizes)
    _fit(source, target, shape, sizes, meant)
    _check_dropped(source, target, sizes)
    _fill_added(source, target, sizes)
    return sizes


def _fit(
    source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int], meant: str
) -> None:
    """Add the size of every source axis to `sizes`, or raise where they do not fit."""
    feature = sizes.pop(FEATURE, None) if meant else None
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
