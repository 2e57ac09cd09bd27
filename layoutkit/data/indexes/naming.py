"""Which files an index may name.

A table may come from anybody, and a file system of fsspec may do more than read: chains of them
unpack, cache and render templates. So a cell names what its index is made of, or what a web server
has; all else has to be asked for.

Knows names and schemes; opens nothing.
"""

from __future__ import annotations

import os
from typing import Any

from ...errors import DataError
from ..reading.urls import is_url

__all__ = ["Naming", "as_schemes"]

_LOCAL = "file"
_WEB = ("http", "https")


class Naming:
    """What the cells of an index may name.

    Parameters
    ----------
    index : str
        The path or URL of the index, whose scheme they may name.
    schemes : tuple of str
        What else they may name; "file" for local files.
    """

    def __init__(self, index: str, schemes: tuple[str, ...]) -> None:
        self._own = _scheme_of(index)
        self._allowed = tuple(dict.fromkeys((self._own, *_WEB, *schemes)))

    def check(self, name: str) -> None:
        """ValueError for the name of a file that may not be named."""
        if is_url(name):
            self._check_scheme(name, _scheme_of(name))
        elif name.startswith("/") or os.path.isabs(name):  # noqa: PTH117  # as `joined` asks
            self._check_scheme(name, _LOCAL)
        if "::" in name and (is_url(name) or self._own != _LOCAL):
            raise ValueError(f"{name!r} chains file systems (::), which an index may not")

    def check_prefix(self, prefix: str) -> None:
        """ValueError for what names may not begin with; relative to a URL, it would be local."""
        self._check_scheme(prefix, _scheme_of(prefix))
        if is_url(prefix) and "::" in prefix:
            raise ValueError(f"{prefix!r} chains file systems (::), which an index may not")

    def _check_scheme(self, name: str, scheme: str) -> None:
        if scheme in self._allowed:
            return
        what = "a local file" if scheme == _LOCAL else f"a file at {scheme}://"
        raise ValueError(
            f"{name!r} names {what}, and an index of this kind names {', '.join(self._allowed)}; "
            f"open_index(..., schemes=({scheme!r},)) allows it"
        )


def as_schemes(schemes: Any) -> tuple[str, ...]:
    """The schemes that a caller allows; DataError where they are none."""
    if not isinstance(schemes, tuple | list | set | frozenset) or not all(
        isinstance(each, str) and each and "://" not in each for each in schemes
    ):
        raise DataError(f"schemes={schemes!r}; they are a tuple of words, as in ('file', 's3')")
    return tuple(schemes)


def _scheme_of(path: str) -> str:
    """The scheme of a path or URL; of a chain, that of its end, where the files lie."""
    return path.partition("://")[0].rpartition("::")[2] if is_url(path) else _LOCAL
