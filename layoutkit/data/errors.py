"""DataErrors that are also the exceptions that Python protocols expect.

`for` and `reversed` expect an IndexError, `hasattr` an AttributeError, and `list` a TypeError from
an object without a length. A function that gets an unknown keyword raises a TypeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from .._utils.spelling import find_similar
from ..errors import DataError

EMPTY: Mapping[str, str] = MappingProxyType({})


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
    similar = find_similar(name, known)
    hint = f"did you mean {similar}=?" if similar else f"there are {', '.join(known)}"
    return NoSuchArgument(f"{function} has no {name}=; {hint}")


def reject_unknown(
    function: Callable[..., Any], names: Iterable[str], cures: Mapping[str, str] = EMPTY
) -> None:
    """Raise NoSuchArgument for the first of these keywords of a function or class.

    cures    what to give in place of keywords of other libraries
    """
    for name in names:
        if name in cures:
            raise NoSuchArgument(f"{function.__name__} has no {name}=; {cures[name]}")
        parameters = inspect.signature(function).parameters.values()
        known = [
            parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD
        ]
        raise no_such_argument(function.__name__, name, known)
