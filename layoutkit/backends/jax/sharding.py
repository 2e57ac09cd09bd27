"""Arrays of JAX that lie in shards on several devices of the CPU: converted shard by shard.

That is right along axes that a conversion only moves, as b mostly is. Along others a shard alone is
not enough, and only XLA could say who sends what to whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...converter import Converter
from ...errors import ArgumentError, ShapeError
from ...normalize import CHANNEL
from ...planning.options import Task
from ..base import Adapter, device_error

if TYPE_CHECKING:
    from ...accumulation import Accumulator

_FIX = "run it under jax.jit, or put x in shards along b alone"


class ShardedAdapter(Adapter):
    """Arrays on several devices. `words` are JAX's."""

    def __init__(self, words: Any) -> None:
        self.words = words

    def arrive(self, x: Any, what: str) -> Any:
        """Raise: there is no one memory."""
        names = ", ".join(sorted(map(str, x.devices())))
        fix = f'pass jax.device_put({what}, jax.devices("cpu")[0])'
        raise device_error(what, f"several devices ({names})", fix)

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the whole."""
        return self.words.shape(x), self.words.dtype(x)

    def is_recorded(self, x: Any) -> bool:
        """Yes: its memory is in parts."""
        return True

    def has_gradient(self, x: Any) -> bool:
        """No, it is only elsewhere."""
        return False

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of every shard on its device, in shards along the same axes."""
        if out is not None:
            raise ArgumentError("out= is given, but arrays of jax are immutable; leave out= away")
        if converter.is_away:
            raise ArgumentError("x is in shards on several devices; leave device= away")
        jax, target = self.words.jax, converter.plan(converter.spec_of(x)).target
        if not isinstance(x.sharding, jax.sharding.NamedSharding):
            raise ArgumentError(f"x is in shards by {x.sharding}, which names no axes; {_FIX}")
        spec = _result_axes(converter.task, _mesh_axes(x))
        sharding = jax.sharding.NamedSharding(x.sharding.mesh, jax.sharding.PartitionSpec(*spec))
        each = _shard_converter(converter, _mesh_axes(x))
        shards = [each(shard.data) for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(target.shape, sharding, shards)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """Raise: the parts may be in other shards."""
        raise ArgumentError(f"part 0 of a sum is in shards on several devices; {_FIX}")


def _mesh_axes(x: Any) -> list[Any]:
    """What the mesh has for each axis of an array; None where the axis is in one piece."""
    found = [None if each == () else each for each in x.sharding.spec]
    return found + [None] * (x.ndim - len(found))


def _result_axes(task: Task, axes: list[Any]) -> list[Any]:
    """The same for the axes of the result; ShapeError where shards do not suffice."""
    pattern = task.pattern.completed(len(axes))
    source, target = pattern.source.groups, pattern.target.groups
    sharded = {group: axis for group, axis in zip(source, axes, strict=True) if axis is not None}
    whole = set() if task.canvas is None else set(dict(task.canvas.sizes))
    if task.formula is not None and task.formula.per_channel:
        whole.add(task.formula.axis)
    if task.channels is not None:
        whole.add(CHANNEL)
    for group in sharded:
        names = " ".join(map(pattern.source.name, group))
        if group not in target or len(group) > 1 or names in whole:
            raise ShapeError(
                f'x is in shards along axis {names}, which "{task.pattern.text}" does not move as '
                f"a whole, so that a shard alone is not enough; {_FIX}"
            )
    return [sharded.get(group) for group in target]


def _shard_converter(converter: Converter, axes: list[Any]) -> Converter:
    """The Converter of a shard, whose sizes along the axes are others than those of the whole."""
    named = converter.task.pattern.completed(len(axes)).source.named
    pairs = zip(named, axes, strict=True)
    cut = {name for (name, *_), axis in pairs if axis is not None} & set(converter.task.sizes)
    if not cut:
        return converter
    keywords = {k: v for k, v in converter.task.keywords().items() if k not in cut}
    return Converter(converter.pattern, **keywords)
