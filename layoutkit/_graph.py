"""The operations that torch.compile inserts into its graph in place of a call of layoutkit.

torch.compile follows Python bytecode up to the functions `insert_...`. It does not follow the
functions `_convert`, `_accumulate` and `_collate`: the graph holds calls of them, which run with
fake tensors when the graph is compiled, and dispatch there (`backends/torch/tracing.py`). Their
arguments are strings, numbers and tensors, which a graph can hold.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np

from .accumulation import Accumulator
from .collator import Collator, make_packed_graph_error
from .converter import Converter
from .options import (
    ConvertOptions,
    join_sizes,
    parse_call,
    parse_collate_options,
    split_sizes,
)
from .planning.batch.placement import placements_as_lists, placements_from_lists
from .planning.batch.samples import LONGEST
from .spec import as_dtype

_torch: Any = import_module("torch")


def insert_op(obj: Any, x: Any, out: Any) -> Any:
    """Insert `obj(x, out)` into the graph, of a Converter, or of an Accumulator and its parts."""
    if isinstance(obj, Accumulator):
        return _accumulate(x, out, *obj.graph_args)
    options, names, sizes = _stored(obj) if obj.graph_args is None else obj.graph_args
    return _convert(x, out, options, names, sizes, {})


def insert_convert(x: Any, pattern: str, out: Any, sizes: dict[str, Any], keywords: Any) -> Any:
    """Insert a call of `convert` into the graph; sizes may be symbols."""
    traced_constants = {
        name: _torch.as_tensor(constant)
        for name, constant in keywords.items()
        if isinstance(constant, _torch.Tensor | np.ndarray)
    }
    others = {name: value for name, value in keywords.items() if name not in traced_constants}
    options = _options_of_convert(pattern, tuple(sizes), **others)
    return _convert(x, out, options, list(sizes), list(sizes.values()), traced_constants)


def insert_batch(collator: Any, samples: Any, indices: Any, crops: Any, out: Any) -> Any:
    """Insert the call of a Collator into the graph."""
    options: Any = _stored(collator) if collator.graph_args is None else collator.graph_args
    return _insert_call(samples, indices, crops, out, *options)


def insert_collate(
    samples: Any, pattern: str, indices: Any, crops: Any, out: Any, sizes: Any, keywords: Any
) -> Any:
    """Insert a call of `collate` into the graph."""
    names, values = list(sizes), list(sizes.values())
    padded = tuple(name for name, size in sizes.items() if isinstance(size, str))
    options = _options_of_collate(pattern, tuple(sizes), padded, **keywords)
    return _insert_call(samples, indices, crops, out, options, names, values)


def _insert_call(samples: Any, indices: Any, crops: Any, out: Any, *options: Any) -> Any:
    offset, flip, crop, _, placements = crops
    text = None if placements is None else _stored_placements(placements)
    batch = _collate(samples, indices, offset, flip, crop, text, out, *options)
    return _match_samples(samples, batch)


def _match_samples(samples: Any, batch: Any) -> Any:
    """Return a batch as a NumPy array if the samples are; in a graph both are tensors."""
    first = samples[0] if isinstance(samples, list | tuple) else samples
    return batch.numpy() if isinstance(first, np.ndarray) else batch


def insert_accumulate(
    parts: list[Any], out: Any, layouts: Any, layout: str, dtype: Any, sizes: dict[str, Any]
) -> Any:
    """Insert a call of `accumulate` into the graph."""
    name = "" if dtype is None else _dtype_name(dtype)
    return _accumulate(parts, out, list(layouts), layout, name, list(sizes), list(sizes.values()))


def _dtype_name(dtype: Any) -> str:
    return as_dtype(dtype).name


def _stored(obj: Any) -> tuple[str, list[str], list[int]]:
    """Return the arguments of a Converter or Collator made before torch was imported."""
    return split_sizes(obj.to_dict())


def _stored_placements(placements: Any) -> str:
    return json.dumps(placements_as_lists(placements))


def _options_of_convert(pattern: str, names: tuple[str, ...], **keywords: Any) -> str:
    options = parse_call(pattern, {**dict.fromkeys(names, 1), **keywords})
    return split_sizes(options.to_dict())[0]


def _options_of_collate(
    pattern: str, names: tuple[str, ...], padded: tuple[str, ...], **keywords: Any
) -> str:
    sizes: dict[str, Any] = {**dict.fromkeys(names, 1), **dict.fromkeys(padded, LONGEST)}
    options = parse_collate_options(pattern, sizes, **keywords)
    if options.packed:
        raise make_packed_graph_error()
    return split_sizes(options.to_dict())[0]


def _collate(
    samples: Any,
    indices: Any,
    offset: Any,
    flip: Any,
    crop: Any,
    placements: str | None,
    out: Any,
    options: str,
    names: list[str],
    sizes: list[int],
) -> Any:
    collator = Collator.from_dict(join_sizes(options, names, map(_make_concrete, sizes)))
    placed = None if placements is None else placements_from_lists(json.loads(placements))
    return collator(
        samples,
        indices=_make_concrete(indices),
        offset=_make_concrete_by_axis(offset),
        flip=flip,
        crop=_make_concrete_by_axis(crop),
        placements=placed,
        out=out,
    )


def _make_concrete_by_axis(sizes: Any) -> Any:
    return {axis: _make_concrete(value) for axis, value in sizes.items()} if sizes else None


def _make_concrete(value: Any) -> Any:
    """Return symbols as their current numbers: the graph is specialized to these windows."""
    if isinstance(value, list | tuple):
        return [_make_concrete(item) for item in value]
    return int(value) if isinstance(value, _torch.SymInt) else value


def _convert(
    x: Any,
    out: Any,
    options: str,
    names: list[str],
    sizes: list[int],
    constants: dict[str, Any],
) -> Any:
    data = join_sizes(options, names, sizes)
    if not constants:
        return Converter.from_dict(data)(x, out)
    checked = ConvertOptions.from_dict(data)
    keywords: dict[str, Any] = {**checked.keywords(), **checked.sizes, **constants}
    return Converter(checked.pattern.text, **keywords)(x, out)


def _accumulate(parts: list[Any], out: Any, *graph_args: Any) -> Any:
    return Accumulator.from_graph_args(*graph_args)(parts, out)


_stored, _stored_placements, _options_of_convert, _options_of_collate, _dtype_name = map(
    _torch.compiler.assume_constant_result,
    (_stored, _stored_placements, _options_of_convert, _options_of_collate, _dtype_name),
)
_convert, _accumulate, _collate = map(
    _torch.compiler.allow_in_graph, (_convert, _accumulate, _collate)
)
