"""Whether data specs are flat, and what a source is."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError, SpaceError
from ..nested import each
from .base import Space
from .checks import describe
from .composite import CompositeSpace
from .null import NullSpace

__all__ = ["check_specs", "is_flat_source", "is_flat_space", "is_flat_specs"]


def is_flat_space(space: Any) -> bool:
    """Whether it is a single space, or a composite of single spaces.

    >>> from layoutkit import CompositeSpace, NullSpace
    >>> is_flat_space(CompositeSpace((NullSpace(), NullSpace())))
    True
    >>> is_flat_space(CompositeSpace((CompositeSpace((NullSpace(),)),)))
    False

    Raises SpaceError for what is no space.
    """
    if not isinstance(space, Space):
        raise SpaceError(f"{describe(space)} is no space; pass a Space such as VectorSpace(10)")
    components = space.components if isinstance(space, CompositeSpace) else ()
    return not any(isinstance(component, CompositeSpace) for component in components)


def is_flat_source(source: Any) -> bool:
    """Whether it is one name, or a tuple of names.

    >>> is_flat_source("features"), is_flat_source(("features", "targets"))
    (True, True)
    >>> is_flat_source(("features", ("features", "targets")))
    False

    Raises SpaceError for what is neither a name nor a tuple, at any depth.
    """
    if isinstance(source, list | tuple):
        each(is_flat_source, source)
        return all(isinstance(part, str) for part in source)
    if not isinstance(source, str):
        raise SpaceError(f"{describe(source)} is no source; a source is a str, or a tuple of them")
    return True


def is_flat_specs(data_specs: Any) -> bool:
    """Whether both space and source of a pair (space, source) are flat.

    Raises SpaceError or ShapeError where the pair is none, or its nestings differ.
    """
    space, source = check_specs(data_specs)
    return is_flat_space(space) and is_flat_source(source)


def check_specs(data_specs: Any) -> tuple[Space, Any]:
    """The space and the source of a pair that has been found to be one, of equal nesting."""
    if not isinstance(data_specs, list | tuple) or len(data_specs) != 2:
        raise SpaceError(f"data_specs is a pair (space, source), not {data_specs!r}")
    space, source = data_specs
    if not isinstance(space, Space) and isinstance(source, Space):
        raise SpaceError(f"data_specs is (space, source), not (source, space): swap {data_specs!r}")
    if not isinstance(space, Space):
        raise SpaceError(f"data_specs is a pair (space, source), and {space!r} is no Space")
    _check_source(space, source)
    return space, source


def _check_source(space: Space, source: Any) -> None:
    """Raise where the source is not nested as the space is."""
    if isinstance(space, CompositeSpace):
        _check_sources(space, source)
    elif isinstance(source, list | tuple):
        fix = f": write {source[0]!r}" if len(source) == 1 else ""
        raise SpaceError(
            f"the source is {source!r}, but {space!r} is a single space, whose source is one "
            f"str{fix}; only a CompositeSpace has several"
        )
    elif not isinstance(source, str):
        raise SpaceError(f"the source of {space!r} is {source!r}; it is a str")
    elif (source == "") != isinstance(space, NullSpace):
        raise SpaceError(
            f"the source of {space!r} is {source!r}; '' is the source of NullSpace() and of "
            "nothing else"
        )


def _check_sources(space: CompositeSpace, source: Any) -> None:
    count = len(space.components)
    if not isinstance(source, list | tuple):
        wanted = ", ".join([repr(source)] * count) + "," * (count == 1)
        fix = f"write ({wanted})" if isinstance(source, str) else "give a tuple"
        raise SpaceError(
            f"the source is {source!r}, but {space!r} has {count} component{'s' * (count != 1)}, "
            f"and its source is a tuple of as many; {fix}"
        )
    if len(source) != count:
        raise ShapeError(
            f"the source {tuple(source)!r} has {len(source)} parts, but {space!r} has {count} "
            "components; nest both alike"
        )
    each(_check_source, space.components, source)
