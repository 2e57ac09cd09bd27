"""`DataSpecsMapping`: nested data specs as flat ones without repetition, and data back.

Whether data specs are flat, and what a source is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.tree import each, leaves, path_text, rebuilt
from ..backends.registry import library_of
from ..errors import DataError, ShapeError, SpaceError
from .array_spaces import NullSpace
from .base import Space
from .composite import CompositeSpace
from .sparse import is_sparse
from .validation import describe


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


class DataSpecsMapping:
    """The way from nested (space, source) pairs to flat ones, each once, and back.

    Pairs are counted depth first; a pair that is equal to an earlier one is not counted again,
    and the NullSpace not at all.

    >>> from layoutkit import CompositeSpace, VectorSpace
    >>> vectors, targets = VectorSpace(3072), VectorSpace(10)
    >>> space = CompositeSpace((vectors, CompositeSpace((vectors, targets))))
    >>> mapping = DataSpecsMapping((space, ("features", ("features", "targets"))))
    >>> mapping.flatten(("features", ("features", "targets")))
    ('features', 'targets')
    >>> mapping.nest((1, 2))
    (1, (1, 2))

    Raises SpaceError or ShapeError, with the path to the place, where source and space are
    not nested alike, or are swapped.

    Attributes
    ----------
    n_unique_specs : int
        How many different pairs there are.
    spec_mapping : int, None, or a nested tuple of them
        The place of each pair in the flat order; None for NullSpace.
    specs_to_index : dict
        (space, source) -> that place.
    """

    def __init__(self, data_specs: Any) -> None:
        space, source = check_specs(data_specs)
        self.specs_to_index: dict[tuple[Space, str], int] = {}
        self.spec_mapping = self._counted(space, source)
        self.n_unique_specs = len(self.specs_to_index)

    def flatten(self, nested: Any, return_tuple: bool = False) -> Any:
        """One value for each different pair, of spaces, sources, or data nested as the specs.

        A single value comes bare, several in a tuple (spaces: in a CompositeSpace), with
        `return_tuple` always in a tuple. Where one pair is in several places, their values
        must be the same object or equal.

        Raises
        ------
        SpaceError, ShapeError
            It is not nested as the specs are.
        DataError
            Places of one pair have different values.
        """
        found: list[Any] = [None] * self.n_unique_specs
        places: dict[int, tuple[int, ...]] = {}
        self._gather(self.spec_mapping, nested, (), found, places)
        if return_tuple:
            return tuple(found)
        if len(found) == 1:
            return found[0]
        return CompositeSpace(tuple(found)) if isinstance(nested, Space) else tuple(found)

    def nest(self, flat: Any) -> Any:
        """The values of `flatten`, nested as the specs are; None in the places of NullSpace.

        A single value may come bare. A Space gives a Space.

        Raises
        ------
        SpaceError, ShapeError
            It is no tuple, list or CompositeSpace with one value for each pair.
        """
        values = self._values(flat)
        make, nothing = (CompositeSpace, NullSpace()) if isinstance(flat, Space) else (tuple, None)
        spread = [nothing if at is None else values[at] for at in leaves(self.spec_mapping)]
        return rebuilt(self.spec_mapping, spread, make)

    def _counted(self, space: Space, source: Any) -> Any:
        if isinstance(space, CompositeSpace):
            return tuple(map(self._counted, space.components, source))
        if isinstance(space, NullSpace):
            return None
        return self.specs_to_index.setdefault((space, source), len(self.specs_to_index))

    def _gather(
        self,
        mapping: Any,
        value: Any,
        path: tuple[int, ...],
        found: list[Any],
        places: dict[int, tuple[int, ...]],
    ) -> None:
        """Put the value of every place into `found`, and where it was into `places`."""
        if isinstance(mapping, tuple):
            parts = _parts(value, len(mapping))
            each(
                lambda at, inner, part: self._gather(inner, part, (*path, at), found, places),
                range(len(mapping)),
                mapping,
                parts,
            )
        elif mapping is None:
            _check_nothing(value)
        else:
            _check_single(value)
            if mapping not in places:
                found[mapping], places[mapping] = value, path
            elif not _is_same(found[mapping], value):
                first, second = path_text(places[mapping]), path_text(path)
                raise DataError(
                    f"{first} and {second} are one (space, source), but their values differ; "
                    "give the same value in both places"
                )

    def _values(self, flat: Any) -> tuple[Any, ...]:
        """One value for each pair."""
        count = self.n_unique_specs
        if isinstance(flat, CompositeSpace):
            flat = flat.components
        elif not isinstance(flat, list | tuple):
            if count != 1:
                raise SpaceError(
                    f"these specs have {count} different (space, source) pairs, so nest takes a "
                    f"tuple of as many values, not {describe(flat)}"
                )
            flat = (flat,)
        if len(flat) != count:
            raise ShapeError(
                f"these specs have {count} different (space, source) pairs, but nest was given "
                f"{len(flat)} values; give one for each"
            )
        return tuple(flat)


def _parts(value: Any, count: int) -> tuple[Any, ...]:
    """The components of a nested value of a composite of `count` spaces."""
    if isinstance(value, CompositeSpace):
        value = value.components
    if not isinstance(value, list | tuple):
        raise SpaceError(
            f"the specs have a composite of {count} components here, but the value is "
            f"{describe(value)}; nest it as the specs are"
        )
    if len(value) != count:
        raise ShapeError(
            f"the specs have a composite of {count} components here, but the value has "
            f"{len(value)}; nest it as the specs are"
        )
    return tuple(value)


def _check_single(value: Any) -> None:
    if isinstance(value, list | tuple | CompositeSpace) or _is_nothing(value):
        raise SpaceError(
            f"the specs have a single space here, but the value is {describe(value)}; nest it "
            "as the specs are"
        )


def _check_nothing(value: Any) -> None:
    if not _is_nothing(value):
        raise SpaceError(
            f"the specs have NullSpace() here, but the value is {describe(value)}; it is None, "
            "'' or NullSpace()"
        )


def _is_nothing(value: Any) -> bool:
    return value is None or isinstance(value, NullSpace) or (isinstance(value, str) and not value)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two values are one object or equal; of arrays, in dtype, shape and every element."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if library_of(a) is not None and (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    return bool((a != b).nnz == 0) if is_sparse(a) else _is_equal_elsewhere(a, b)


def _is_equal_elsewhere(a: Any, b: Any) -> bool:
    """The same of anything else, such as arrays of frameworks.

    Exists because what is traced has no values: its framework says so in errors of its own,
    and then only the same object would have been the same.
    """
    try:
        equal = a == b
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except Exception:
        return False
