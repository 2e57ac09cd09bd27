"""The keywords of `sampled_batcher` for results of any size: `collate`, `corner` and `flip`.

Knows the arguments, and what a Collator can cut; what is drawn is known by `joining.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from ...axes import axis_name
from ...checks import as_int
from ...collator import Collator
from ...errors import ArgumentError, DataError
from .arguments import Arguments
from .joining import RANDOM, Joining

__all__ = ["check_collate", "collated_layout", "joining_of"]

_MIRRORED = ("w", "width")  # along which flip="random" turns


def joining_of(given: Arguments, seed: Any) -> Joining | None:
    """What makes batches of results, None where they are rows of one size.

    Raises
    ------
    ArgumentError
        `corner` or `flip` is not of its form, or there is nothing to draw from.
    """
    collator = given.collate
    if collator is None:
        return None
    windows = collator.windows
    axes = windows.completed(windows.task.pattern.left.ndim - 1)
    places = axes.places()
    if windows.channels is not None:
        del places["c"]
    cut = [name for name, at in places.items() if axes.windowed[at] is not None]
    corner = _corners(given.corner, [*places], cut, collator.pattern)
    return Joining(collator, corner, _flips(given.flip, [*places], collator.pattern), seed)


def check_collate(given: Arguments) -> None:
    """Raise unless a Collator takes results one by one, and nothing else says what batches are.

    Raises DataError, and ArgumentError for what is said of windows that nobody cuts.
    """
    collator = given.collate
    if collator is None:
        for name in ("corner", "flip"):
            if getattr(given, name) is not None:
                raise ArgumentError(
                    f"{name}={getattr(given, name)!r} is of the windows that a Collator cuts; give "
                    "collate=layoutkit.Collator(...), too"
                )
        return
    if not isinstance(collator, Collator):
        raise DataError(f'collate is {collator!r}; give a Collator("hwc->bchw", h=224, w=224, ...)')
    if collator.windows.whole:
        raise DataError(
            f'collate takes one array in "{collator.pattern}", but results come one by one; leave '
            "b away on the left of its pattern"
        )
    to = collator.windows.task.pattern.target
    if "b" not in to.groups or to.names or "..." in str(to):
        raise DataError(
            f'batches of collate="{collator.pattern}" are {to}, but a batch is a View, whose '
            "layout is one letter an axis, b one of its own; say so on the right of the pattern"
        )
    fixed = "it makes a batch of results of any size; leave that away"
    made = "give it to the Collator"
    fixes = {"input_dims": fixed, "batch_dims": fixed, "dtype": made, "convert": made}
    for name, fix in {**fixes, **dict.fromkeys(given.constants, made)}.items():
        if getattr(given, name) is not None:
            raise DataError(f"collate and {name} are two answers to one question; {fix}")
    layout = given.layout[0] if isinstance(given.layout, list | tuple) else given.layout
    if layout is not None and str(layout) != collated_layout(collator):
        raise DataError(
            f'layout={layout!r}, but batches of collate="{collator.pattern}" are '
            f"{collated_layout(collator)}; give that, or leave it out"
        )


def collated_layout(collator: Collator) -> str:
    """The layout of the batches of a Collator."""
    return str(collator.windows.task.pattern.target)


def _corners(given: Any, names: list[str], cut: list[str], pattern: str) -> dict[str, Any]:
    """Where windows begin, by axis; a word for all is one for each axis that has a window."""
    asked: dict[str, Any] = (
        dict.fromkeys(cut, RANDOM) if given == RANDOM else _by_axis("corner", given, names)
    )
    for name, value in asked.items():
        number = as_int(value)
        if number is not None:
            asked[name] = number
            continue
        _check_random(f"corner[{name!r}]", value, "or a whole number")
        if name not in cut:
            raise _no_window(f"corner={given!r}", pattern, [name])
        asked[name] = RANDOM
    if given == RANDOM and not asked:
        raise _no_window(f"corner={given!r}", pattern, names or ["h", "w"])
    return asked


def _flips(given: Any, names: list[str], pattern: str) -> dict[str, Any]:
    """Which axes are reversed."""
    if given == RANDOM:
        given = {name: RANDOM for name in names if name in _MIRRORED}
        if not given:
            raise ArgumentError(
                f'flip="random" turns around along w, and "{pattern}" has no such axis; name one '
                f'of {", ".join(names) or "its own"}, as in flip={{"h": "random"}}'
            )
    if isinstance(given, str) and axis_name(given) in names:
        given = {given: True}
    asked = _by_axis("flip", given, names)
    for name, value in asked.items():
        if not isinstance(value, bool | np.bool_):
            _check_random(f"flip[{name!r}]", value, "or True or False")
            asked[name] = RANDOM
    return asked


def _by_axis(what: str, given: Any, names: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, str):
        _check_random(what, given, "or a dict by axis")
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f'{what}={given!r}; it is "random", or a dict such as {{"w": "random"}}'
        )
    found = {axis_name(name): value for name, value in given.items()}
    for name in found:
        if name not in names:
            raise ArgumentError(
                f"{what}={given!r}, but {name!r} is no axis that windows are cut along; these are "
                f"{', '.join(names)}"
            )
    return found


def _check_random(what: str, value: Any, others: str) -> None:
    if isinstance(value, str) and value == RANDOM:
        return
    close = isinstance(value, str) and get_close_matches(value.lower(), [RANDOM, "rand"], 1, 0.5)
    hint = '; did you mean "random"?' if close else ""
    raise ArgumentError(f'{what} is {value!r}; it is "random", {others}{hint}')


def _no_window(what: str, pattern: str, names: list[str]) -> ArgumentError:
    sizes = ", ".join(f"{name}=224" for name in names)
    return ArgumentError(
        f'{what} draws where windows begin, but Collator("{pattern}") has no window along '
        f"{', '.join(names)}: all of it is taken; give it one, as in {sizes}"
    )
