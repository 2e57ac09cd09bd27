"""Data specs, pairs of nested spaces and sources: checks, and flattening (`DataSpecsMapping`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.tree import leaves, map_indexed, path_text, unflatten
from .._utils.validation import check_bool, show
from ..backends.registry import library_of
from ..errors import ArgumentError, DataError, ShapeError, SpaceError
from .array_spaces import NullSpace
from .base import Space
from .composite import CompositeSpace
from .sparse import is_sparse
from .validation import describe


def is_flat_space(space: Any) -> bool:
    """Return True for a single space, or a composite of single spaces.

    >>> from layoutkit import CompositeSpace, NullSpace
    >>> is_flat_space(CompositeSpace((NullSpace(), NullSpace())))
    True
    >>> is_flat_space(CompositeSpace((CompositeSpace((NullSpace(),)),)))
    False

    Raises SpaceError if `space` is not a Space.
    """
    if not isinstance(space, Space):
        raise SpaceError(f"{describe(space)} is not a space; pass a Space such as VectorSpace(10)")
    components = space.components if isinstance(space, CompositeSpace) else ()
    return not any(isinstance(component, CompositeSpace) for component in components)


def is_flat_source(source: Any) -> bool:
    """Return True for one name, or a tuple of names.

    >>> is_flat_source("features"), is_flat_source(("features", "targets"))
    (True, True)
    >>> is_flat_source(("features", ("features", "targets")))
    False

    Raises SpaceError for anything but names and nested tuples of names.
    """
    if isinstance(source, list | tuple):
        map_indexed(is_flat_source, source)
        return all(isinstance(part, str) for part in source)
    if not isinstance(source, str):
        raise SpaceError(f"{describe(source)} is not a source, which is a str or a tuple of them")
    return True


def is_flat_specs(data_specs: Any) -> bool:
    """Return True if both the space and the source of a pair (space, source) are flat.

    Raises SpaceError or ShapeError if it is not a pair of a space and a source of equal nesting.
    """
    space, source = check_specs(data_specs)
    return is_flat_space(space) and is_flat_source(source)


def check_specs(data_specs: Any) -> tuple[Space, Any]:
    """Validate a pair (space, source) of equal nesting, and return both."""
    if not isinstance(data_specs, list | tuple) or len(data_specs) != 2:
        raise SpaceError(f"data_specs must be a pair (space, source), not {show(data_specs)}")
    space, source = data_specs
    if not isinstance(space, Space) and isinstance(source, Space):
        raise SpaceError(
            f"data_specs must be (space, source), not (source, space): swap {show(data_specs)}"
        )
    if not isinstance(space, Space):
        raise SpaceError(f"data_specs must be a pair (space, source), but {space!r} is not a Space")
    _check_source(space, source)
    return space, source


def _check_source(space: Space, source: Any) -> None:
    """Raise an error if the nesting of the source differs from the space's."""
    if isinstance(space, CompositeSpace):
        _check_sources(space, source)
    elif isinstance(source, list | tuple):
        fix = f": write {source[0]!r}" if len(source) == 1 else ""
        raise SpaceError(
            f"the source is {show(source)}, but {space!r} is a single space, whose source is one "
            f"str{fix}; only a CompositeSpace has several"
        )
    elif not isinstance(source, str):
        raise SpaceError(f"the source of {space!r} is {show(source)}; it must be a str")
    elif (source == "") != isinstance(space, NullSpace):
        raise SpaceError(
            f"the source of {space!r} is {show(source)}; '' is the source of NullSpace() only"
        )


def _check_sources(space: CompositeSpace, source: Any) -> None:
    count = len(space.components)
    if not isinstance(source, list | tuple):
        names = ", ".join([repr(source)] * count) + "," * (count == 1)
        fix = f"write ({names})" if isinstance(source, str) else "pass a tuple"
        raise SpaceError(
            f"the source is {show(source)}, but {space!r} has {count} "
            f"component{'s' * (count != 1)}, so its source must be a tuple of {count}; {fix}"
        )
    if len(source) != count:
        raise ShapeError(
            f"the source {tuple(source)!r} has {len(source)} parts, but {space!r} has {count} "
            "components; both must have equal nesting"
        )
    map_indexed(_check_source, space.components, source)


class DataSpecsMapping:
    """A mapping between nested (space, source) pairs and the flat tuple of unique pairs.

    Pairs are numbered depth first; a pair that is equal to an earlier one gets its index, and
    NullSpace gets none.

    >>> from layoutkit import CompositeSpace, VectorSpace
    >>> vectors, targets = VectorSpace(3072), VectorSpace(10)
    >>> space = CompositeSpace((vectors, CompositeSpace((vectors, targets))))
    >>> mapping = DataSpecsMapping((space, ("features", ("features", "targets"))))
    >>> mapping.flatten(("features", ("features", "targets")))
    ('features', 'targets')
    >>> mapping.nest((1, 2))
    (1, (1, 2))

    Raises SpaceError or ShapeError, with the path in the nesting, if the nestings of source and
    space differ, or if they are swapped.

    Attributes
    ----------
    n_unique_specs : int
        The number of unique pairs.
    spec_mapping : int, None, or a nested tuple of them
        The index of each pair in the flat order; None for NullSpace.
    specs_to_index : dict
        (space, source) -> that index.
    """

    def __init__(self, data_specs: Any) -> None:
        space, source = check_specs(data_specs)
        self.specs_to_index: dict[tuple[Space, str], int] = {}
        self.spec_mapping = self._register(space, source)
        self.n_unique_specs = len(self.specs_to_index)

    def flatten(self, nested: Any, return_tuple: bool = False) -> Any:
        """Return one value for each unique pair, from nested spaces, sources or data.

        The result is a tuple (of spaces: a CompositeSpace), or a bare value if there is one unique
        pair; with `return_tuple`, always a tuple. If one pair occurs several times, its values must
        be the same object or equal.

        Raises
        ------
        SpaceError, ShapeError
            The nesting differs from the specs'.
        DataError
            One pair has different values.
        """
        check_bool("return_tuple", return_tuple, ArgumentError)
        values: list[Any] = [None] * self.n_unique_specs
        first_paths: dict[int, tuple[int, ...]] = {}
        self._gather(self.spec_mapping, nested, (), values, first_paths)
        if return_tuple:
            return tuple(values)
        if len(values) == 1:
            return values[0]
        return CompositeSpace(tuple(values)) if isinstance(nested, Space) else tuple(values)

    def nest(self, flat: Any) -> Any:
        """Return the values of `flatten`, nested like the specs; None for NullSpace.

        A single value need not be in a tuple. A Space gives a Space.

        Raises
        ------
        SpaceError, ShapeError
            `flat` is not a tuple, list or CompositeSpace with one value for each pair.
        """
        values = self._flat_values(flat)
        make, null = (CompositeSpace, NullSpace()) if isinstance(flat, Space) else (tuple, None)
        repeated = [null if i is None else values[i] for i in leaves(self.spec_mapping)]
        return unflatten(self.spec_mapping, repeated, make)

    def _register(self, space: Space, source: Any) -> Any:
        if isinstance(space, CompositeSpace):
            return tuple(map(self._register, space.components, source))
        if isinstance(space, NullSpace):
            return None
        return self.specs_to_index.setdefault((space, source), len(self.specs_to_index))

    def _gather(
        self,
        mapping: Any,
        value: Any,
        path: tuple[int, ...],
        values: list[Any],
        first_paths: dict[int, tuple[int, ...]],
    ) -> None:
        """Put the value of each unique pair into `values`, and its path into `first_paths`."""
        if isinstance(mapping, tuple):
            parts = _components_of(value, len(mapping))
            map_indexed(
                lambda i, inner, part: self._gather(inner, part, (*path, i), values, first_paths),
                range(len(mapping)),
                mapping,
                parts,
            )
        elif mapping is None:
            _check_nothing(value)
        else:
            _check_single(value)
            if mapping not in first_paths:
                values[mapping] = value
                first_paths[mapping] = path
            elif not _is_equal(values[mapping], value):
                first = path_text(first_paths[mapping])
                second = path_text(path)
                raise DataError(
                    f"{first} and {second} are one (space, source), but their values differ; "
                    "pass the same value for both"
                )

    def _flat_values(self, flat: Any) -> tuple[Any, ...]:
        count = self.n_unique_specs
        if isinstance(flat, CompositeSpace):
            flat = flat.components
        elif not isinstance(flat, list | tuple):
            if count != 1:
                raise SpaceError(
                    f"these specs have {count} different (space, source) pairs, so nest needs a "
                    f"tuple of {count} values, not {describe(flat)}"
                )
            flat = (flat,)
        if len(flat) != count:
            raise ShapeError(
                f"these specs have {count} different (space, source) pairs, but nest was given "
                f"{len(flat)} values; pass one for each"
            )
        return tuple(flat)


def _components_of(value: Any, count: int) -> tuple[Any, ...]:
    """Return the components of a nested value of a composite of `count` spaces."""
    if isinstance(value, CompositeSpace):
        value = value.components
    if not isinstance(value, list | tuple):
        raise SpaceError(
            f"the specs have a composite of {count} components here, but the value is "
            f"{describe(value)}; nest it like the specs"
        )
    if len(value) != count:
        raise ShapeError(
            f"the specs have a composite of {count} components here, but the value has "
            f"{len(value)}; nest it like the specs"
        )
    return tuple(value)


def _check_single(value: Any) -> None:
    if isinstance(value, list | tuple | CompositeSpace) or _is_nothing(value):
        raise SpaceError(
            "the specs have a single space here, "
            f"but the value is {describe(value)}; nest it like the specs"
        )


def _check_nothing(value: Any) -> None:
    if not _is_nothing(value):
        raise SpaceError(
            f"the specs have NullSpace() here, but the value is {describe(value)}; it must be "
            "None, '' or NullSpace()"
        )


def _is_nothing(value: Any) -> bool:
    return value is None or isinstance(value, NullSpace) or (isinstance(value, str) and not value)


def _is_equal(a: Any, b: Any) -> bool:
    """Return True if two values are identical or equal (arrays: dtype, shape, all elements)."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if library_of(a) is not None and (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    return bool((a != b).nnz == 0) if is_sparse(a) else _is_equal_by_framework(a, b)


def _is_equal_by_framework(a: Any, b: Any) -> bool:
    """Return True if two values of other types, such as arrays of frameworks, compare equal.

    Traced arrays have no values and their framework raises an error: only identical objects are
    equal then.
    """
    try:
        equal = a == b
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except Exception:
        return False
