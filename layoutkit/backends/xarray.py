"""The adapter of xarray's DataArrays, which converts the array inside and keeps dims and coords.

A pattern of letters ("bhwc->bchw") refers to axes by position; letters that are the dimensions in
another order are an error. A pattern of names ("time lat lon -> lat lon time") refers to
dimensions, whatever their order in the array. An axis that a conversion only moves keeps its
dimension and coordinates. The name of a folded dimension is the joined names of its axes; the
pattern names the dimensions of an unfolded axis, and new dimensions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import describe_type
from ..errors import ArgumentError, PatternError
from ..layout.parsing import is_one
from ..memory import Array, as_numpy
from .containers import Container
from .registry import call_backend_hook

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..layout.parsing import Layout
    from ..layout.pattern import Pattern
    from ..planning.channels import ChannelSelection
    from ..planning.plan import Plan


class Xarray(Container):
    """The adapter of DataArrays, whose results are DataArrays."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the NumPy array inside; raise ArgumentError if it is in chunks."""
        _refuse_chunks(x, arg_name)
        return x.to_numpy()

    def memory(self, out: Any) -> Array:
        if not isinstance(out.data, np.ndarray):
            raise ArgumentError(
                f"out holds {describe_type(out.data)}, not a NumPy array; omit out="
            )
        return as_numpy(out.data, "out")

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        return x.transpose(*(x.dims[axis] for axis in order), transpose_coords=False)

    def is_recorded(self, x: Any) -> bool:
        return container_for(x) is not None

    def has_gradient(self, x: Any) -> bool:
        """Return False: layoutkit may read the array without its dims and coords."""
        return False

    def plan(self, converter: Converter, x: Any) -> Plan | None:
        return converter.plan(
            _inside(_ordered(x, converter.options.pattern.expand_ellipsis(x.ndim)))
        )

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        _refuse_chunks(x, "x", allow_lazy=True)
        pattern = converter.options.pattern.expand_ellipsis(x.ndim)
        x = _ordered(x, pattern)
        data = x.data
        result = converter(data, out)
        if result is data or out is not None:
            return x if out is None else out
        picks = converter.options.select_channels(x.shape)[1]
        return _named(x, result, pattern.source, pattern.target, picks)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        patterns = [converter.options.pattern for converter in accumulator.converters()]
        pairs = list(zip(parts, patterns, strict=True))
        ordered = [
            _ordered(part, pattern) if self.is_recorded(part) else part for part, pattern in pairs
        ]
        arrays = [_inside(part) if self.is_recorded(part) else part for part in ordered]
        result = accumulator(arrays, out)
        if out is not None:
            return out
        first = ordered[0]
        pattern = patterns[0].expand_ellipsis(arrays[0].ndim)
        return _named(first, result, pattern.source, pattern.target)


def _ordered(x: Any, pattern: Pattern) -> Any:
    """Return x with its dimensions in the order of a pattern of names, else x itself.

    Raises PatternError if the pattern names only some of the dimensions, or if its letters are the
    dimensions in another order.
    """
    left = pattern.left
    dims = [str(name) for name in x.dims]
    if not (left.names or pattern.right.names):
        if list(left.groups) != dims and sorted(left.groups) == sorted(dims):
            raise PatternError(
                f'"{pattern.text}" has the axes {", ".join(left.groups)}, but x has the dimensions '
                f"{', '.join(dims)}, and letters are axes by position; write {' '.join(dims)} on "
                f"the left, or pass x.transpose{(*left.groups,)}"
            )
        return x
    pattern_dims = ["_".join(names) for names in left.named if names != ("1",)]
    if "..." in pattern_dims:
        ellipsis_index = pattern_dims.index("...")
        named = {*pattern_dims}
        remaining_dims = [name for name in dims if name not in named]
        pattern_dims = (
            pattern_dims[:ellipsis_index]
            + remaining_dims
            + [name for name in pattern_dims[ellipsis_index:] if name != "..."]
        )
    if not set(pattern_dims) & set(dims):
        return x
    if sorted(pattern_dims) != sorted(dims):
        raise PatternError(
            f'"{pattern.text}" names {", ".join(pattern_dims)}, but x has the dimensions '
            f"{', '.join(dims)}; name all of them, or use letters for the axes in their order"
        )
    by_name = dict(zip(dims, x.dims, strict=True))
    order = map(by_name.get, pattern_dims)
    return x if pattern_dims == dims else x.transpose(*order, transpose_coords=False)


def _named(
    x: Any, result: Any, source: Layout, target: Layout, picks: ChannelSelection | None = None
) -> Any:
    """Return a result as a DataArray, with the dims, coords, name and attrs of x that apply."""
    names = dict(zip(source.groups, x.dims, strict=True))
    coords = x.coords.to_dataset()
    if picks is not None and picks.letter in names:
        coords = coords.isel({names[picks.letter]: list(picks.order)}, missing_dims="ignore")
    sizes_before = {**x.sizes, **coords.sizes}
    if picks is not None:
        sizes_before |= {names[g]: -1 for g in source.groups if picks.letter in g and len(g) > 1}
    dims: list[str] = []
    for group in target.groups:
        axes = [names.get(letter, target.name(letter)) for letter in group if not is_one(letter)]
        # `dim_0` is xarray's own default name.
        name = names.get(group) or "_".join(map(str, axes)) or f"dim_{len(dims)}"
        while name in dims:  # a letter may equal the name of a dimension
            name += "_"
        dims.append(name)
    sizes = dict(zip(target.groups, result.shape, strict=True))  # pad_to= changes sizes
    unchanged_dims = {
        name for group, name in names.items() if sizes.get(group) == sizes_before[name]
    }
    dropped = {name: 0 for group, name in names.items() if not set(group) & set(target.letters)}
    kept_coords = coords.isel(dropped, missing_dims="ignore")
    kept_coords = kept_coords.drop_dims(
        set(x.dims) - unchanged_dims - set(dropped), errors="ignore"
    )
    array_type = type(x)
    return array_type(result, dims=dims, coords=kept_coords.coords, name=x.name, attrs=x.attrs)


def _inside(x: Any) -> Any:
    """Return the array of a part of a sum: lazy if its library is lazy, else NumPy's."""
    return x.data if _is_lazy(x) else _ADAPTER.to_numpy(x, "x")


def _is_lazy(x: Any) -> bool:
    """Return True if the array inside is lazy and has an adapter, such as dask's."""
    return x.chunks is not None and call_backend_hook("adapter_for", x.data) is not None


def _refuse_chunks(x: Any, arg_name: str, allow_lazy: bool = False) -> None:
    if x.chunks is not None and not (allow_lazy and _is_lazy(x)):
        raise ArgumentError(
            f"{arg_name} is in chunks, whose data is read or computed later; pass "
            f"{arg_name}.compute()"
        )


_ADAPTER = Xarray()


def container_for(x: Any) -> Container | None:
    """Return the adapter of a DataArray, or None for other objects."""
    return _ADAPTER if isinstance(x, sys.modules["xarray"].DataArray) else None
