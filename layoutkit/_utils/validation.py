"""What arguments have to be, found in one way, and what messages call what was given instead.

Knows the numbers of Python and NumPy, and this project's errors. Knows nothing of layouts, arrays
and devices: what a number means is the business of whoever asks for it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError, LayoutkitError

__all__ = ["as_count", "as_flag", "as_int", "as_word", "is_symbol", "kind_text"]


def as_int(value: Any) -> int | None:
    """The int that a value is; None for bools, and for all that is no whole number.

    >>> as_int(3), as_int(3.0), as_int(True)
    (3, None, None)
    """
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        return None


def is_symbol(value: Any) -> bool:
    """Whether a size stands for any number, of a batch that torch or JAX traces for all sizes."""
    return type(value).__name__ in ("SymInt", "_DimExpr")


def as_count(
    name: str, value: Any, least: int | None = 0, error: type[LayoutkitError] = DataError
) -> int:
    """`value` as an int; `error` unless it is a whole number of at least `least` (None: any).

    >>> as_count("batch_size", 0, 1)
    Traceback (most recent call last):
    ...
    layoutkit.errors.DataError: batch_size=0; it is a whole number of at least 1
    """
    number = as_int(value)
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise error(f"{name}={value!r}; it is a whole number{bound}")
    return number


def as_flag(name: str, value: Any, error: type[LayoutkitError] = DataError) -> bool:
    """`value`; `error` unless it is True or False."""
    if not isinstance(value, bool):
        raise error(f"{name}={value!r}; it is True or False")
    return value


def as_word(
    name: str, value: Any, words: Sequence[str], error: type[LayoutkitError] = DataError
) -> str:
    """`value`; `error` unless it is one of some words."""
    if not isinstance(value, str) or value not in words:
        raise error(f"{name} is {value!r}; it is one of {', '.join(map(repr, words))}")
    return value


def kind_text(x: Any) -> str:
    """The class of `x`, as messages name it: that of a built-in without its module."""
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
