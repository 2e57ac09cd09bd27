"""The quick ways of arrays on GPUs that came before, whichever library they are of.

What was checked then, of arrays of one class that say the same of themselves, is not asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from .cupy import CudaAdapter

__all__ = ["convert_again", "sum_again", "sum_key"]


def convert_again(adapter: CudaAdapter, converter: Converter, x: Any, out: Any) -> Any:
    """`converter(x, out)` where arrays like these came before; else NotImplemented."""
    programs = converter.on_gpus
    if programs is None or not adapter.is_plain(x):
        return NotImplemented
    if out is not None and not (type(out) is type(x) and adapter.is_plain(out)):
        return NotImplemented
    quick = programs.quick.get(adapter.key(x, out))
    if quick is None:
        return NotImplemented
    made = adapter.new(quick) if out is None else out
    if not quick(adapter.address(x), adapter.address(made), adapter.stream(quick.ordinal)):
        return NotImplemented
    return made if out is None else adapter.written(out)


def sum_again(
    adapter: CudaAdapter, accumulator: Accumulator, parts: Sequence[Any], out: Any
) -> Any:
    """`accumulator(parts, out)` where arrays like these came before; else NotImplemented."""
    sums = accumulator.on_gpus
    quick = None if sums is None else sums.quick.get(sum_key(adapter, parts, out))
    if quick is None or not all(map(adapter.is_plain, parts)):
        return NotImplemented
    if out is not None and not adapter.is_plain(out):
        return NotImplemented
    made = adapter.new(quick) if out is None else out
    addresses = [adapter.address(part) for part in parts]
    if not quick(addresses, adapter.address(made), adapter.stream(quick.ordinal)):
        return NotImplemented
    return made if out is None else adapter.written(out)


def sum_key(adapter: CudaAdapter, parts: Sequence[Any], out: Any) -> Any:
    """What quick ways of sums are kept by: None unless parts and out are of one class."""
    given = parts if out is None else (*parts, out)
    if {*map(type, given)} != {type(parts[0])}:
        return None
    keys = [adapter.key(each, None) for each in given]
    return None if None in keys else (out is None, *keys)
