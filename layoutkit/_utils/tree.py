"""Nested tuples, walked in one way: batches of several components, their layouts and spaces.

A *nest* is a tuple of nests, or a leaf, which is anything else. This knows of no array, view or
space; what is wrong with a leaf is said with its path in front: `component [1][0]: ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import LayoutkitError, ShapeError

__all__ = [
    "each",
    "each_leaf",
    "each_place",
    "leaves",
    "matched",
    "path_text",
    "paths",
    "placed",
    "rebuilt",
]


def leaves(nest: Any) -> list[Any]:
    """The leaves, depth first.

    >>> leaves((1, (2, 3)))
    [1, 2, 3]
    """
    return [leaf for part in nest for leaf in leaves(part)] if isinstance(nest, tuple) else [nest]


def paths(nest: Any) -> list[tuple[int, ...]]:
    """Where the leaves are, in their order.

    >>> paths((1, (2, 3)))
    [(0,), (1, 0), (1, 1)]
    """
    if not isinstance(nest, tuple):
        return [()]
    return [(at, *path) for at, part in enumerate(nest) for path in paths(part)]


def rebuilt(nest: Any, values: Iterable[Any], make: Callable[[Any], Any] = tuple) -> Any:
    """A value for each leaf, nested as the leaves are; `make` joins those of one tuple.

    >>> rebuilt((1, (2, 3)), "abc"), rebuilt((1, (2, 3)), (1, 2, 3), sum)
    (('a', ('b', 'c')), 6)
    """
    return _rebuilt(nest, iter(values), make)


def _rebuilt(nest: Any, values: Iterator[Any], make: Callable[[Any], Any]) -> Any:
    if not isinstance(nest, tuple):
        return next(values)
    return make(tuple([_rebuilt(part, values, make) for part in nest]))


def matched(nest: Any, value: Any, what: str, shared: bool = False) -> list[Any]:
    """A value for each leaf, of tuples or lists that nest as `nest` does.

    With `shared`, what is neither is one value for all leaves below.

    >>> matched((1, (2, 3)), ("a", ["b", "c"]), "names"), matched((1, (2, 3)), "a", "names", True)
    (['a', 'b', 'c'], ['a', 'a', 'a'])

    Raises ShapeError, in which the values are called `what`, where they nest otherwise.
    """
    if not isinstance(nest, tuple):
        return [value]
    is_nest = isinstance(value, tuple | list)
    if shared and not is_nest:
        return [value] * len(leaves(nest))
    if not is_nest or len(value) != len(nest):
        given = len(value) if is_nest else f"a {type(value).__name__}"
        raise ShapeError(
            f"{what}: {given} given for {len(nest)} components; give a sequence of {len(nest)}, "
            "nested as the components are"
        )
    pairs = zip(nest, value, strict=True)
    return [found for part, one in pairs for found in matched(part, one, what, shared)]


def each(function: Callable[..., Any], *columns: Iterable[Any]) -> tuple[Any, ...]:
    """The results of the function for the first of all columns, the second, ...; places errors.

    The caller has proved that all columns are as long as the first.
    """
    found: list[Any] = []
    try:
        for row in zip(*columns, strict=True):
            found.append(function(*row))
    except LayoutkitError as error:
        raise placed(error, len(found)) from None
    return tuple(found)


def each_leaf(function: Callable[..., Any], nest: Any, *columns: Iterable[Any]) -> list[Any]:
    """The results of the function for each leaf and its values in all columns; places errors."""
    return each_place(function, nest, leaves(nest), *columns)


def each_place(function: Callable[..., Any], nest: Any, *columns: Iterable[Any]) -> list[Any]:
    """The same of the columns alone: the nest only says where each of their values is."""
    found: list[Any] = []
    try:
        for row in zip(*columns, strict=True):
            found.append(function(*row))
    except LayoutkitError as error:
        raise placed(error, *paths(nest)[len(found)]) from None
    return found


def placed(error: LayoutkitError, *path: int) -> LayoutkitError:
    """The error with a path in front of it, joined to the one that it has already.

    Exists because only what walks a nest has to know of paths: who finds a mistake speaks of its
    own batch, and every level that the error passes adds its index.

    >>> placed(placed(ShapeError("too wide"), 0), 1)
    ShapeError('component [1][0]: too wide')
    """
    if not path:
        return error
    inner, fact = getattr(error, "located", ((), str(error)))
    path += inner
    found = type(error)(f"component {path_text(path)}: {fact}")
    found.__dict__["located"] = (path, fact)
    return found


def path_text(path: tuple[int, ...]) -> str:
    """The path as it is indexed; "the batch" for what is not in a composite.

    >>> path_text((1, 0)), path_text(())
    ('[1][0]', 'the batch')
    """
    return "".join(f"[{index}]" for index in path) or "the batch"
