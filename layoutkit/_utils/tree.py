"""Operations on nested tuples: batches of several components, their layouts and spaces.

A *tree* is a tuple of trees, or a leaf, which is any other object. Errors raised for a leaf get its
path as a prefix: `component [1][0]: ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import LayoutkitError, ShapeError


def leaves(tree: Any) -> list[Any]:
    """Return the leaves, depth first.

    >>> leaves((1, (2, 3)))
    [1, 2, 3]
    """
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def leaf_paths(tree: Any) -> list[tuple[int, ...]]:
    """Return the index path of each leaf, in the order of `leaves`.

    >>> leaf_paths((1, (2, 3)))
    [(0,), (1, 0), (1, 1)]
    """
    if not isinstance(tree, tuple):
        return [()]
    return [(i, *path) for i, part in enumerate(tree) for path in leaf_paths(part)]


def unflatten(tree: Any, values: Iterable[Any], make: Callable[[Any], Any] = tuple) -> Any:
    """Return the tree with one value in place of each leaf; `make` joins the values of a tuple.

    >>> unflatten((1, (2, 3)), "abc"), unflatten((1, (2, 3)), (1, 2, 3), sum)
    (('a', ('b', 'c')), 6)
    """
    return _unflatten(tree, iter(values), make)


def _unflatten(tree: Any, values: Iterator[Any], make: Callable[[Any], Any]) -> Any:
    if not isinstance(tree, tuple):
        return next(values)
    return make(tuple([_unflatten(part, values, make) for part in tree]))


def match_structure(tree: Any, value: Any, arg_name: str, shared: bool = False) -> list[Any]:
    """Return one value for each leaf, from tuples or lists that are nested as `tree` is.

    With `shared`, a value that is neither a tuple nor a list applies to all leaves below.

    >>> match_structure((1, (2, 3)), ("a", ["b", "c"]), "names")
    ['a', 'b', 'c']
    >>> match_structure((1, (2, 3)), "a", "names", True)
    ['a', 'a', 'a']

    Raises ShapeError if the values are nested differently; the message calls them `arg_name`.
    """
    if not isinstance(tree, tuple):
        return [value]
    is_nest = isinstance(value, tuple | list)
    if shared and not is_nest:
        return [value] * len(leaves(tree))
    if not is_nest or len(value) != len(tree):
        actual = len(value) if is_nest else f"a {type(value).__name__}"
        raise ShapeError(
            f"{arg_name}: {actual} given for {len(tree)} components; give a sequence of "
            f"{len(tree)}, nested as the components are"
        )
    pairs = zip(tree, value, strict=True)
    return [leaf for part, item in pairs for leaf in match_structure(part, item, arg_name, shared)]


def map_indexed(function: Callable[..., Any], *columns: Iterable[Any]) -> tuple[Any, ...]:
    """Map a function over columns of equal length; errors get the index as a prefix.

    The caller has checked that all columns are as long as the first.
    """
    results: list[Any] = []
    try:
        for row in zip(*columns, strict=True):
            results.append(function(*row))
    except LayoutkitError as error:
        raise with_path_prefix(error, len(results)) from None
    return tuple(results)


def map_leaves(function: Callable[..., Any], tree: Any, *columns: Iterable[Any]) -> list[Any]:
    """Map a function over the leaves and columns of values for them; errors get the leaf's path."""
    return map_leaf_values(function, tree, leaves(tree), *columns)


def map_leaf_values(function: Callable[..., Any], tree: Any, *columns: Iterable[Any]) -> list[Any]:
    """Map a function over columns with one value per leaf; errors get the leaf's path in `tree`."""
    results: list[Any] = []
    try:
        for row in zip(*columns, strict=True):
            results.append(function(*row))
    except LayoutkitError as error:
        raise with_path_prefix(error, *leaf_paths(tree)[len(results)]) from None
    return results


def with_path_prefix(error: LayoutkitError, *path: int) -> LayoutkitError:
    """Return the error with a path prefix, joined to the path that it may have already.

    Code that raises an error does not know the path of its component; each level of the tree that
    the error passes through adds an index.

    >>> with_path_prefix(with_path_prefix(ShapeError("too wide"), 0), 1)
    ShapeError('component [1][0]: too wide')
    """
    if not path:
        return error
    inner, fact = getattr(error, "located", ((), str(error)))
    path += inner
    result = type(error)(f"component {path_text(path)}: {fact}")
    result.__dict__["located"] = (path, fact)
    return result


def path_text(path: tuple[int, ...]) -> str:
    """Return the path as an index expression, or "the batch" for the root.

    >>> path_text((1, 0)), path_text(())
    ('[1][0]', 'the batch')
    """
    return "".join(f"[{index}]" for index in path) or "the batch"
