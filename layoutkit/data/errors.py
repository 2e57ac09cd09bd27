"""DataErrors that are also the exceptions that Python protocols expect.

`for` and `reversed` expect an IndexError, `hasattr` an AttributeError, and `list` a TypeError from
an object without a length. A function that gets an unknown keyword raises a TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from .._utils import errors
from .._utils.errors import EMPTY, find_keyword
from ..errors import DataError


class OutOfRange(DataError, IndexError):
    """An index that is out of range."""


class NoSuchField(DataError, AttributeError):
    """A field that does not exist."""


class NoLength(DataError, TypeError):
    """A length that does not exist, or is not known yet."""


class NoSuchArgument(DataError, TypeError):
    """A keyword that a function does not accept."""


def check_has_records(count: int, source: str, found: str) -> None:
    """Raise DataError if a source has no records in any partition.

    found : what was found in place of records, and the argument that selects some
    """
    if not count:
        raise DataError(f"{source} has no records: {found}")


def no_such_argument(function: str, name: str, known: Collection[str]) -> NoSuchArgument:
    """Return the error for an unknown keyword, with the most similar known one."""
    return NoSuchArgument(f"{function} has no {name}=; {find_keyword(name, known)}")


def reject_unknown(
    function: Callable[..., Any], names: Iterable[str], cures: Mapping[str, str] = EMPTY
) -> None:
    """Raise NoSuchArgument for the first of these keywords of a function or class."""
    errors.reject_unknown(function, names, cures, NoSuchArgument)
