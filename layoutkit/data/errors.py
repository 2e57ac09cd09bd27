"""DataErrors that are also what a Python protocol waits for.

`for` and `reversed` wait for an IndexError, `hasattr` for an AttributeError, and `list` asks for
a length and takes a TypeError for "there is none". A function that is given a keyword that it has
not raises a TypeError.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from ..errors import DataError

__all__ = ["NoLength", "NoSuchArgument", "NoSuchField", "OutOfRange", "no_such_argument"]


class OutOfRange(DataError, IndexError):  # noqa: N818 - a message begins with its name
    """A position that is not there."""


class NoSuchField(DataError, AttributeError):  # noqa: N818
    """A field that is not there."""


class NoLength(DataError, TypeError):  # noqa: N818
    """A length that does not exist, or is not known yet."""


class NoSuchArgument(DataError, TypeError):  # noqa: N818
    """A keyword that a function has not."""


def no_such_argument(function: str, name: str, known: Collection[str]) -> NoSuchArgument:
    """The error for a keyword that is not known, with the nearest one that is."""
    close = get_close_matches(name, known, 1)
    meant = f"did you mean {close[0]}=?" if close else f"there are {', '.join(known)}"
    return NoSuchArgument(f"{function} has no {name}=; {meant}")
