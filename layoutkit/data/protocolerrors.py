"""DataErrors that are also what a Python protocol waits for.

`for` and `reversed` wait for an IndexError, `hasattr` for an AttributeError, and `list` asks for
a length and takes a TypeError for "there is none". A function that is given a keyword that it has
not raises a TypeError.
"""

from __future__ import annotations

from ..errors import DataError

__all__ = ["NoLength", "NoSuchArgument", "NoSuchField", "OutOfRange"]


class OutOfRange(DataError, IndexError):  # noqa: N818 - a message begins with its name
    """A position that is not there."""


class NoSuchField(DataError, AttributeError):  # noqa: N818
    """A field that is not there."""


class NoLength(DataError, TypeError):  # noqa: N818
    """A length that does not exist, or is not known yet."""


class NoSuchArgument(DataError, TypeError):  # noqa: N818
    """A keyword that a function has not."""
