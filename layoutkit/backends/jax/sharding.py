"""The adapter of JAX arrays sharded over several CPU devices, converted shard by shard.

Arrays may be sharded along axes that a conversion only moves, as it usually moves b. Along other
axes a shard needs data of other shards, which only XLA can exchange between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...converter import Converter
from ...errors import ArgumentError, ShapeError
from ...normalize import CHANNEL
from ...options import ConvertOptions
from ..base import Adapter, make_device_error

if TYPE_CHECKING:
    from ...accumulation import Accumulator

_FIX = "run the conversion under jax.jit, or shard x along b only"


class ShardedAdapter(Adapter):
    """The adapter of arrays on several devices; `namespace` is the ArrayNamespace of JAX."""

    def __init__(self, namespace: Any) -> None:
        self.namespace = namespace

    def to_numpy(self, x: Any, arg_name: str) -> Any:
        """Raise DeviceError: the array has memory on several devices."""
        names = ", ".join(sorted(map(str, x.devices())))
        fix = f'pass jax.device_put({arg_name}, jax.devices("cpu")[0])'
        raise make_device_error(arg_name, f"several devices ({names})", fix)

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], Any]:
        return self.namespace.shape(x), self.namespace.dtype(x)

    def is_recorded(self, x: Any) -> bool:
        """Return True: the memory of x is on several devices."""
        return True

    def has_gradient(self, x: Any) -> bool:
        """Return False: the array is sharded, not traced."""
        return False

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """Convert every shard on its device; the result is sharded along the same axes."""
        if out is not None:
            raise ArgumentError("out= is given, but arrays of jax are immutable; omit out=")
        if converter.targets_gpu:
            raise ArgumentError("x is sharded over several devices; omit device=")
        jax = self.namespace.jax
        target = converter.plan(converter.spec_of(x)).target
        if not isinstance(x.sharding, jax.sharding.NamedSharding):
            raise ArgumentError(f"x is sharded by {x.sharding}, which names no axes; {_FIX}")
        spec = result_axes(converter.options, _mesh_axes(x))
        sharding = jax.sharding.NamedSharding(x.sharding.mesh, jax.sharding.PartitionSpec(*spec))
        shard_converter = _shard_converter(converter, _mesh_axes(x))
        shards = [shard_converter(shard.data) for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(target.shape, sharding, shards)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """Raise ArgumentError: the parts may be sharded differently."""
        raise ArgumentError(f"part 0 of a sum is sharded over several devices; {_FIX}")


def _mesh_axes(x: Any) -> list[Any]:
    """Return the mesh axis for each axis of x, or None for axes that are not sharded."""
    mesh_axes = [None if entry == () else entry for entry in x.sharding.spec]
    return mesh_axes + [None] * (x.ndim - len(mesh_axes))


def result_axes(options: ConvertOptions, mesh_axes: list[Any]) -> list[Any]:
    """Return the mesh axis for each axis of the result; raise if a shard needs other shards."""
    pattern = options.pattern.expand_ellipsis(len(mesh_axes))
    source = pattern.source.groups
    target = pattern.target.groups
    pairs = zip(source, mesh_axes, strict=True)
    sharded = {group: mesh_axis for group, mesh_axis in pairs if mesh_axis is not None}
    unsharded_axes = set() if options.padding is None else set(dict(options.padding.sizes))
    if options.formula is not None and options.formula.per_channel:
        unsharded_axes.add(options.formula.axis)
    if options.channels is not None:
        unsharded_axes.add(CHANNEL)
    for group in sharded:
        names = " ".join(map(pattern.source.name, group))
        if group not in target or len(group) > 1 or names in unsharded_axes:
            raise ShapeError(
                f'x is sharded along axis {names}, but "{options.pattern.text}" does not only move '
                f"this axis, so a shard needs data of other shards; {_FIX}"
            )
    return [sharded.get(group) for group in target]


def _shard_converter(converter: Converter, mesh_axes: list[Any]) -> Converter:
    """Return the Converter of a shard, without the sizes of sharded axes, which are global."""
    named = converter.options.pattern.expand_ellipsis(len(mesh_axes)).source.named
    pairs = zip(named, mesh_axes, strict=True)
    sharded_names = {name for (name, *_), mesh_axis in pairs if mesh_axis is not None} & set(
        converter.options.sizes
    )
    if not sharded_names:
        return converter
    options = converter.options
    sizes = {name: size for name, size in options.sizes.items() if name not in sharded_names}
    return Converter.from_options(replace(options, sizes=sizes))
