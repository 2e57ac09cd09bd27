"""DataArrays of xarray: converted by the array inside, with dimensions and coordinates carried.

Letters of a pattern are the axes in their order; names in one ("time lat lon -> lat lon time") are
dimensions, in whatever order the array has them. An axis that a conversion only moves keeps its
dimension, and all coordinates of such dimensions are the result's. The dimension of a fold has the
names that it is made of; one that a fold is taken apart into, and one that is new, has its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import kind_text
from ..errors import ArgumentError, PatternError
from ..memory import Array, as_numpy
from .containers import Container
from .registry import call_backend_hook

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..layout.parsing import Layout
    from ..layout.pattern import Pattern
    from ..planning.channels import Picks
    from ..planning.plan import Plan


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

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        return x.transpose(*(x.dims[at] for at in order), transpose_coords=False)

    def is_recorded(self, x: Any) -> bool:
        """Yes: names are more than memory."""
        return container_for(x) is not None

    def has_gradient(self, x: Any) -> bool:
        """No: the array can be read alone."""
        return False

    def plan(self, converter: Converter, x: Any) -> Plan | None:
        """That of an array inside that is put off."""
        if not _is_lazy(x):
            return None
        return converter.plan(_ordered(x, converter.task.pattern.completed(x.ndim)).data)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of the array inside, with names."""
        _refuse_chunks(x, "x", lazily=True)
        pattern = converter.task.pattern.completed(x.ndim)
        x = _ordered(x, pattern)
        data = x.data
        result = converter(data, out)
        if result is data or out is not None:
            return x if out is None else out
        picks = converter.task.picked(x.shape)[1]
        return _named(x, result, pattern.source, pattern.target, picks)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum of the arrays inside, with the names of the first."""
        patterns = [converter.task.pattern for converter in accumulator.converters()]
        pairs = list(zip(parts, patterns, strict=True))
        ordered = [_ordered(p, pattern) if self.is_recorded(p) else p for p, pattern in pairs]
        arrays = [_inside(p) if self.is_recorded(p) else p for p in ordered]
        result = accumulator(arrays, out)
        if out is not None:
            return out
        first, pattern = ordered[0], patterns[0].completed(arrays[0].ndim)
        return _named(first, result, pattern.source, pattern.target)


def _ordered(x: Any, pattern: Pattern) -> Any:
    """A DataArray whose dimensions are as a pattern names them; as they are, if it has letters.

    Raises PatternError where it names some of them and others not.
    """
    left = pattern.left
    if not (left.names or pattern.right.names):
        return x
    wanted = ["_".join(names) for names in left.named if names != ("1",)]
    there = [str(name) for name in x.dims]
    if "..." in wanted:
        at, named = wanted.index("..."), {*wanted}
        staying = [name for name in there if name not in named]
        wanted = wanted[:at] + staying + [name for name in wanted[at:] if name != "..."]
    if not set(wanted) & set(there):
        return x
    if sorted(wanted) != sorted(there):
        raise PatternError(
            f'"{pattern.text}" names {", ".join(wanted)}, but x has the dimensions '
            f"{', '.join(there)}; name all of them, or use letters for the axes in their order"
        )
    by_name = dict(zip(there, x.dims, strict=True))
    order = map(by_name.get, wanted)
    return x if wanted == there else x.transpose(*order, transpose_coords=False)


def _named(x: Any, result: Any, source: Layout, target: Layout, picks: Picks | None = None) -> Any:
    """A result as a DataArray that has of x what still fits."""
    names = dict(zip(source.groups, x.dims, strict=True))
    coords = x.coords.to_dataset()
    if picks is not None and picks.letter in names:
        coords = coords.isel({names[picks.letter]: list(picks.order)}, missing_dims="ignore")
    there = {**x.sizes, **coords.sizes}
    if picks is not None:
        there |= {names[g]: -1 for g in source.groups if picks.letter in g and len(g) > 1}
    dims: list[str] = []
    for group in target.groups:
        parts = (names.get(letter, target.name(letter)) for letter in group)
        name = names.get(group) or "_".join(map(str, parts))
        if name == "1":
            name = f"dim_{len(dims)}"  # as xarray calls those without a name
        while name in dims:  # a letter that is also the name of a dimension
            name += "_"
        dims.append(name)
    sizes = dict(zip(target.groups, result.shape, strict=True))  # with into= others than those of x
    moved = {name for group, name in names.items() if sizes.get(group) == there[name]}
    dropped = {name: 0 for group, name in names.items() if not set(group) & set(target.letters)}
    kept = coords.isel(dropped, missing_dims="ignore")
    kept = kept.drop_dims(set(x.dims) - moved - set(dropped), errors="ignore")
    kind = type(x)
    return kind(result, dims=dims, coords=kept.coords, name=x.name, attrs=x.attrs)


def _inside(x: Any) -> Any:
    """The array of a part of a sum: lazy where it is dask's, else NumPy's."""
    return x.data if _is_lazy(x) else _ADAPTER.arrive(x, "x")


def _is_lazy(x: Any) -> bool:
    """Whether the array inside is one that conversions put off, as those of dask are."""
    return x.chunks is not None and call_backend_hook("adapter_for", x.data) is not None


def _refuse_chunks(x: Any, what: str, lazily: bool = False) -> None:
    if x.chunks is not None and not (lazily and _is_lazy(x)):
        raise ArgumentError(
            f"{what} is in chunks, whose data is read or computed later; pass {what}.compute()"
        )


_ADAPTER = Xarray()


def container_for(x: Any) -> Container | None:
    """The adapter of a DataArray; None for what is none."""
    return _ADAPTER if isinstance(x, sys.modules["xarray"].DataArray) else None
