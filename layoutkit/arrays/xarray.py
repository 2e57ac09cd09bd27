"""DataArrays of xarray: converted by the array inside, with dimensions and coordinates carried.

An axis that a conversion only moves keeps its dimension, and all coordinates of such dimensions are
the result's. The dimension of a fold has the names that it is made of; one that a fold is taken
apart into, and one that is new, has its letter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import kind_text
from ..errors import ArgumentError
from ..memory import Array, as_numpy
from .containers import Container

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..notation import Layout

__all__ = ["container_for"]


class Xarray(Container):
    """DataArray in, DataArray out."""

    def read(self, x: Any, what: str) -> Any:
        """The NumPy array inside."""
        _refuse_chunks(x, what)
        return x.to_numpy()

    def memory(self, out: Any) -> Array:
        """The memory of a DataArray that holds a NumPy array."""
        if not isinstance(out.data, np.ndarray):
            raise ArgumentError(
                f"out holds a {kind_text(out.data)}, no NumPy array; leave out= away"
            )
        return as_numpy(out.data, "out")

    def permuted(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        return x.transpose(*(x.dims[at] for at in order))

    def is_recorded(self, x: Any) -> bool:
        """Yes: names are more than memory."""
        return container_for(x) is not None

    def has_gradient(self, x: Any) -> bool:
        """No: the array can be read alone."""
        return False

    def record(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of the array inside, with names."""
        _refuse_chunks(x, "x")
        pattern, data = converter.task.pattern, x.data
        result = converter(data, out)
        if result is data or out is not None:
            return x if out is None else out
        return _named(x, result, pattern.source, pattern.target)

    def record_sum(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum of the arrays inside, with the names of the first."""
        arrays = [self.arrive(p, "x") if self.is_recorded(p) else p for p in parts]
        result = accumulator(arrays, out)
        if out is not None:
            return out
        (move, *_), _ = accumulator.resolve([a.shape for a in arrays], [a.dtype for a in arrays])
        return _named(parts[0], result, move.source, move.target)


def _named(x: Any, result: Any, source: Layout, target: Layout) -> Any:
    """A result as a DataArray that has of x what still fits."""
    names = dict(zip(source.groups, x.dims, strict=True))
    dims: list[str] = []
    for group in target.groups:
        name = names.get(group) or "_".join(str(names.get(letter, letter)) for letter in group)
        while name in dims:  # a letter that is also the name of a dimension
            name += "_"
        dims.append(name)
    sizes = dict(zip(target.groups, result.shape, strict=True))  # with into= others than those of x
    moved = {name for group, name in names.items() if sizes.get(group) == x.sizes[name]}
    dropped = {name: 0 for group, name in names.items() if not set(group) & set(target.letters)}
    kept = x.coords.to_dataset().isel(dropped, missing_dims="ignore")
    kept = kept.drop_dims(set(x.dims) - moved - set(dropped), errors="ignore")
    kind = type(x)
    return kind(result, dims=dims, coords=kept.coords, name=x.name, attrs=x.attrs)


def _refuse_chunks(x: Any, what: str) -> None:
    if x.chunks is not None:
        raise ArgumentError(
            f"{what} is in chunks, whose data is read or computed later; pass {what}.compute()"
        )


_ADAPTER = Xarray()


def container_for(x: Any) -> Container | None:
    """The adapter of a DataArray; None for what is none."""
    return _ADAPTER if isinstance(x, sys.modules["xarray"].DataArray) else None
