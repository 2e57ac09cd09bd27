"""`CompositeSpace`: several spaces side by side, nested at will."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._utils.indexing import normalize_index
from .._utils.tree import map_indexed
from .._utils.validation import show
from ..errors import DtypeError, ShapeError, SpaceError
from ..views import ListView
from .base import Space
from .validation import Leaf, describe


@dataclass(frozen=True, repr=False)
class CompositeSpace(Space):
    """A tuple of spaces; a batch is a tuple with a batch of each, nested like the space.

    >>> from layoutkit import CompositeSpace, IndexSpace, VectorSpace
    >>> both = CompositeSpace((VectorSpace(3072), IndexSpace(10, 1)))
    >>> both.restrict([1])
    IndexSpace(max_labels=10, dim=1, dtype="int64")

    A composite converts to a VectorSpace (its components concatenated, depth first) and from one
    (split), and to another composite of equal nesting, component by component.
    """

    components: tuple[Space, ...]

    family = "composite"

    def _make_view(self, batch: Any) -> ListView | None:
        all_views = map_indexed(lambda space, x: space._make_view(x), self.components, batch)
        views = [view for view in all_views if view is not None]
        return ListView(views) if views else None

    def __post_init__(self) -> None:
        components = self.components
        if not isinstance(components, list | tuple):
            raise SpaceError(
                f"components must be a list or tuple of spaces, not {describe(components)}"
            )
        for index, space in enumerate(components):
            if not isinstance(space, Space):
                raise SpaceError(f"component [{index}] is {space!r}; it must be a Space")
        object.__setattr__(self, "components", tuple(components))

    def __repr__(self) -> str:
        components = ", ".join(map(repr, self.components))
        return f"CompositeSpace(({components}{',' * (len(self.components) == 1)}))"

    @property
    def dtype(self) -> Any:
        """The dtypes of the components: a tuple, nested like the space."""
        return tuple(space.dtype for space in self.components)

    def get_total_dimension(self) -> int:
        return sum(map_indexed(lambda space: space.get_total_dimension(), self.components))

    def get_origin(self) -> Any:
        return map_indexed(lambda space: space.get_origin(), self.components)

    def with_dtype(self, dtype: Any) -> CompositeSpace:
        columns = self.components, self._component_dtypes(dtype)
        return CompositeSpace(
            map_indexed(lambda space, part_dtype: space.with_dtype(part_dtype), *columns)
        )

    def restrict(self, indices: Any) -> Any:
        """Return the space of the components at some indices; a single component is not wrapped.

        >>> from layoutkit import NullSpace, VectorSpace
        >>> CompositeSpace((NullSpace(), VectorSpace(3))).restrict([1, 0])
        CompositeSpace((VectorSpace(dim=3, dtype="float32"), NullSpace()))
        """
        chosen = [self.components[index] for index in self._indices(indices)]
        return chosen[0] if len(chosen) == 1 else CompositeSpace(tuple(chosen))

    def restrict_batch(self, batch: Any, indices: Any) -> Any:
        """Validate the batch and return its components for `restrict(indices)`, not copied."""
        positions = self._indices(indices)
        self._validated_leaves(batch)
        chosen = tuple(batch[index] for index in positions)
        return chosen[0] if len(chosen) == 1 else chosen

    def arrays_in(self, batch: Any) -> list[Leaf]:
        parts = map_indexed(
            lambda space, part: space.arrays_in(part), self.components, self._parts(batch)
        )
        return [
            leaf._replace(path=(index, *leaf.path))
            for index, leaves in enumerate(parts)
            for leaf in leaves
        ]

    def _parts(self, batch: Any) -> tuple[Any, ...]:
        if not isinstance(batch, tuple):
            fix = "tuple(batch)" if isinstance(batch, list) else "a tuple nested like the space"
            raise SpaceError(
                f"a composite of {len(self.components)} spaces needs a tuple, not "
                f"{describe(batch)}; pass {fix}"
            )
        if len(batch) != len(self.components):
            raise ShapeError(
                f"a composite of {len(self.components)} spaces needs a tuple of that many batches, "
                f"not of {len(batch)}; pass one for each of {self!r}"
            )
        return batch

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        columns = self.components, self._component_dtypes(dtype)
        return map_indexed(
            lambda space, part_dtype: space.get_origin_batch(n, part_dtype), *columns
        )

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        columns = self.components, self._component_dtypes(dtype)
        return map_indexed(
            lambda space, part_dtype: space.symbolic_batch(n, part_dtype, library), *columns
        )

    def _component_dtypes(self, dtype: Any) -> tuple[Any, ...]:
        if not isinstance(dtype, tuple):
            return (dtype,) * len(self.components)
        if len(dtype) != len(self.components):
            raise DtypeError(
                f"{len(dtype)} dtypes for a composite of {len(self.components)} spaces; pass one "
                "for all, or a tuple nested like the space"
            )
        return dtype

    def _indices(self, indices: Any) -> list[int]:
        if not isinstance(indices, list | tuple):
            raise ShapeError(
                f"restrict needs a list of indices, such as [0, 2], not {show(indices)}"
            )
        count = len(self.components)
        return [normalize_index(index, count, "components", ShapeError) for index in indices]
