"""Validation of integer, bool and string arguments, and type names for error messages."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import DataError, LayoutkitError
from .spelling import find_choice


def as_int(value: Any) -> int | None:
    """Return `value` as an int, or None if it is a bool or not an integer.

    >>> as_int(3), as_int(3.0), as_int(True)
    (3, None, None)
    """
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        return None


def as_fraction(value: Any) -> Fraction | None:
    """Return a number as an exact fraction, or None if it is not a finite number."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, Integral):
        return Fraction(int(value))  # a Fraction of NumPy integers overflows
    is_finite = isinstance(value, Real) and math.isfinite(value)
    return Fraction(float(value)) if is_finite else None


def is_symbolic_int(value: Any) -> bool:
    """Return True if a size is symbolic, as in batches that torch or JAX trace."""
    return type(value).__name__ in ("SymInt", "_DimExpr")


def check_int(
    name: str,
    value: Any,
    minimum: int | None = 0,
    error: type[LayoutkitError] = DataError,
    maximum: int | None = None,
) -> int:
    """Return `value` as an int; raise `error` unless it is an integer within the limits (if any).

    >>> check_int("batch_size", 0, 1)
    Traceback (most recent call last):
    ...
    layoutkit.errors.DataError: batch_size=0; it must be a whole number of at least 1
    """
    number = as_int(value)
    if number is None or (minimum is not None and number < minimum):
        bound = "" if minimum is None else f" of at least {minimum}"
        raise error(f"{name}={show(value)}; it must be a whole number{bound}")
    if maximum is not None and number > maximum:
        raise error(f"{name}={show(value)}; it must be a whole number of at most {maximum}")
    return number


def check_bool(name: str, value: Any, error: type[LayoutkitError] = DataError) -> bool:
    """Return `value`; raise `error` unless it is True or False."""
    if not isinstance(value, bool):
        raise error(f"{name}={show(value)}; it must be True or False")
    return value


def check_choice(
    name: str, value: Any, choices: Sequence[str], error: type[LayoutkitError] = DataError
) -> str:
    """Return `value`; raise `error` unless it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        meant = find_choice(value, choices)
        hint = "" if meant is None else f"; did you mean {meant!r}?"
        known = ", ".join(map(repr, choices))
        raise error(f"{name} is {show(value)}; it must be one of {known}{hint}")
    return value


def check_path(name: str, value: Any) -> str:
    """Return a path as text; raise DataError unless it is a str or PathLike."""
    if not isinstance(value, str | os.PathLike):
        raise DataError(f"{name}={show(value)}; it must be the path of a file")
    return os.fspath(value)


def show(value: Any, length: int = 80) -> str:
    """Return the repr of a value of the caller on one line of at most `length` characters."""
    return shorten(repr(value), length)


def shorten(text: str, length: int) -> str:
    """Return the text on one line, truncated to `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 3] + "..."


def with_article(noun: str) -> str:
    """Return a noun with its article: an int, a list, a uint8.

    >>> with_article("int")
    'an int'
    """
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"


def type_name(x: Any) -> str:
    """Return the qualified class name of `x`, without the module for built-in classes."""
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def describe_type(x: Any) -> str:
    """Return the class name of `x` with its article, and "None" for None.

    >>> describe_type(3), describe_type(None)
    ('an int', 'None')
    """
    return "None" if x is None else with_article(type_name(x))


def escape_controls(text: object, keep: str = "") -> str:
    r"""Return text with control characters and the like escaped, except for those in `keep`.

    >>> escape_controls("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return "".join(letter if letter in keep else _escape(letter) for letter in str(text))


def _escape(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
