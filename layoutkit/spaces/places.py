"""Where in a nested structure something went wrong: `component [1][0]: ...`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from ..errors import LayoutkitError

__all__ = ["Place", "each", "path_text"]


class Place:
    """Puts the index of a component in front of what is raised inside; nests.

    Exists so that only what walks a tree has to know of paths: a space that finds a mistake
    speaks of its own batch, and every level that the error passes adds its index.

    >>> from layoutkit import ShapeError
    >>> with Place(1), Place(0):
    ...     raise ShapeError("too wide")
    Traceback (most recent call last):
    layoutkit.errors.ShapeError: component [1][0]: too wide
    """

    __slots__ = ("_index",)

    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, LayoutkitError):
            return
        path, fact = getattr(error, "located", ("", str(error)))
        path = f"[{self._index}]{path}"
        found = type(error)(f"component {path}: {fact}")
        found.__dict__["located"] = (path, fact)
        raise found from None


def each(function: Callable[..., Any], *columns: Iterable[Any]) -> tuple[Any, ...]:
    """The results of the function for the first of all columns, the second, ...; places errors.

    The caller has proved that all columns are as long as the first.
    """
    found = []
    for index, row in enumerate(zip(*columns, strict=True)):
        with Place(index):
            found.append(function(*row))
    return tuple(found)


def path_text(path: tuple[int, ...]) -> str:
    """The path as it is indexed; "the batch" for what is not in a composite.

    >>> path_text((1, 0)), path_text(())
    ('[1][0]', 'the batch')
    """
    return "".join(f"[{index}]" for index in path) or "the batch"
