"""`CompositeSpace`: several spaces side by side, nested at will."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from .._utils.tree import each
from ..errors import DtypeError, ShapeError, SpaceError
from .base import Space
from .validation import Leaf, describe


@dataclass(frozen=True, repr=False)
class CompositeSpace(Space):
    """Several spaces; a batch is a tuple with a batch of each, nested as the space is.

    >>> from layoutkit import CompositeSpace, IndexSpace, VectorSpace
    >>> both = CompositeSpace((VectorSpace(3072), IndexSpace(10, 1)))
    >>> both.restrict([1])
    IndexSpace(max_labels=10, dim=1, dtype="int64")

    A composite becomes a VectorSpace (its components concatenated, depth first), comes from
    one (split), and becomes another composite of equal nesting, component by component.
    """

    components: tuple[Space, ...]

    family = "composite"

    def __post_init__(self) -> None:
        given = self.components
        if not isinstance(given, list | tuple):
            raise SpaceError(f"components is a list or tuple of spaces, not {describe(given)}")
        for index, space in enumerate(given):
            if not isinstance(space, Space):
                raise SpaceError(f"component [{index}] is {space!r}; it is a Space")
        object.__setattr__(self, "components", tuple(given))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.components))
        return f"CompositeSpace(({shown}{',' * (len(self.components) == 1)}))"

    @property
    def dtype(self) -> Any:
        """The dtypes of the components: a tuple, nested as the space is."""
        return tuple(space.dtype for space in self.components)

    def get_total_dimension(self) -> int:
        """The sum over all components."""
        return sum(each(lambda space: space.get_total_dimension(), self.components))

    def get_origin(self) -> Any:
        """The origins of the components, nested as the space is."""
        return each(lambda space: space.get_origin(), self.components)

    def with_dtype(self, dtype: Any) -> CompositeSpace:
        """This space with one dtype for all components, or those of a tuple, nested as it is."""
        columns = self.components, self._each_dtype(dtype)
        return CompositeSpace(each(lambda space, one: space.with_dtype(one), *columns))

    def restrict(self, indices: Any) -> Any:
        """The space of some components, in that order; of a single one, that bare component.

        >>> from layoutkit import NullSpace, VectorSpace
        >>> CompositeSpace((NullSpace(), VectorSpace(3))).restrict([1, 0])
        CompositeSpace((VectorSpace(dim=3, dtype="float32"), NullSpace()))
        """
        chosen = [self.components[index] for index in self._indices(indices)]
        return chosen[0] if len(chosen) == 1 else CompositeSpace(tuple(chosen))

    def restrict_batch(self, batch: Any, indices: Any) -> Any:
        """The batch of `restrict(indices)`: the components themselves. Validates."""
        wanted = self._indices(indices)
        self._checked(batch)
        chosen = tuple(batch[index] for index in wanted)
        return chosen[0] if len(chosen) == 1 else chosen

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The arrays of all components, with their paths."""
        found = each(lambda space, part: space.arrays_in(part), self.components, self._parts(batch))
        return [
            leaf._replace(path=(index, *leaf.path))
            for index, leaves in enumerate(found)
            for leaf in leaves
        ]

    def _parts(self, batch: Any) -> tuple[Any, ...]:
        if not isinstance(batch, tuple):
            fix = "tuple(batch)" if isinstance(batch, list) else "a tuple nested as the space is"
            raise SpaceError(
                f"a composite of {len(self.components)} spaces takes a tuple, not "
                f"{describe(batch)}; pass {fix}"
            )
        if len(batch) != len(self.components):
            raise ShapeError(
                f"a composite of {len(self.components)} spaces takes a tuple of as many batches, "
                f"not of {len(batch)}; give one for each of {self!r}"
            )
        return batch

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        columns = self.components, self._each_dtype(dtype)
        return each(lambda space, one: space.get_origin_batch(n, one), *columns)

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """A batch of each component."""
        columns = self.components, self._each_dtype(dtype)
        return each(lambda space, one: space.symbolic_batch(n, one, library), *columns)

    def _each_dtype(self, dtype: Any) -> tuple[Any, ...]:
        """One dtype for each component: all the same, or those of a tuple."""
        if not isinstance(dtype, tuple):
            return (dtype,) * len(self.components)
        if len(dtype) != len(self.components):
            raise DtypeError(
                f"{len(dtype)} dtypes for a composite of {len(self.components)} spaces; give one "
                "for all, or a tuple nested as the space is"
            )
        return dtype

    def _indices(self, indices: Any) -> list[int]:
        if not isinstance(indices, list | tuple):
            raise ShapeError(f"restrict takes a list of indices, such as [0, 2], not {indices!r}")
        count = len(self.components)
        for index in indices:
            if isinstance(index, bool) or not hasattr(index, "__index__"):
                raise ShapeError(f"{index!r} is no index of a component; it is an int")
            if not -count <= index < count:
                raise ShapeError(f"there is no component [{index}]: the space has {count}")
        return [operator.index(index) for index in indices]
