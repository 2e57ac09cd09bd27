"""The operations that torch.compile inserts into its graph in place of a conversion.

torch.compile follows Python bytecode up to `insert_op`, `insert_convert_call` and
`insert_accumulate_call`. It does not follow the functions below (`_convert`, `_accumulate`,
`_collate`): the graph holds calls of them, which run with fake tensors when the graph is compiled,
and dispatch there (`tracing.py`). Their arguments are strings, numbers and tensors, which a graph
can hold.

Imported only under torch.compile, as torch's compiler modules take seconds to import.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from ..._compile import CONSTRUCTORS, graph_args_of_collator
from ...accumulation import Accumulator
from ...converter import Converter
from ...options import parse_collate_options, parse_options
from ...spec import as_dtype
from .symbolic import options_from_json, options_json

_torch: Any = import_module("torch")


def insert_op(obj: Any, x: Any, out: Any) -> Any:
    """Insert `obj(x, out)` into the graph, of a Converter, or of an Accumulator and its parts."""
    arguments: Any = _converter_arguments(obj) if obj.graph_args is None else obj.graph_args
    if isinstance(obj, Accumulator):
        return _accumulate(x, out, *arguments)
    pattern, keywords, names, sizes = arguments
    return _convert(x, out, pattern, keywords, names, sizes, {})


def insert_convert_call(
    x: Any, pattern: str, out: Any, sizes: dict[str, Any], keywords: Any
) -> Any:
    """Insert a call of `convert` into the graph; sizes may be symbols."""
    traced_constants = {
        name: _torch.as_tensor(constant)
        for name, constant in keywords.items()
        if isinstance(constant, _torch.Tensor | np.ndarray)
    }
    options = _call_arguments(
        pattern, **{name: value for name, value in keywords.items() if name not in traced_constants}
    )
    return _convert(x, out, *options, list(sizes), list(sizes.values()), traced_constants)


def insert_collation(
    collator: Any, samples: Any, indices: Any, offset: Any, flip: Any, crop: Any, out: Any
) -> Any:
    """Insert the call of a Collator into the graph."""
    options: Any = (
        _collator_arguments(collator) if collator.graph_args is None else collator.graph_args
    )
    return _like_samples(samples, _collate(samples, indices, offset, flip, crop, out, *options))


def insert_collate_call(samples: Any, pattern: str, windows: Any, sizes: Any, keywords: Any) -> Any:
    """Insert a call of `collate` into the graph."""
    options = _collate_options_json(pattern, tuple(sizes), **keywords)
    indices, offset, flip, crop, out = windows
    values = list(sizes.values())
    batch = _collate(
        samples, indices, offset, flip, crop, out, pattern, options, list(sizes), values
    )
    return _like_samples(samples, batch)


def _like_samples(samples: Any, batch: Any) -> Any:
    """Return a batch as a NumPy array if the samples are; in a graph both are tensors."""
    first = samples[0] if isinstance(samples, list | tuple) else samples
    return batch.numpy() if isinstance(first, np.ndarray) else batch


def insert_accumulate_call(
    parts: list[Any], out: Any, layouts: Any, layout: str, dtype: Any, sizes: dict[str, Any]
) -> Any:
    """Insert a call of `accumulate` into the graph."""
    name = "" if dtype is None else _dtype_name(dtype)
    return _accumulate(parts, out, list(layouts), layout, name, list(sizes), list(sizes.values()))


def _dtype_name(dtype: Any) -> str:
    return as_dtype(dtype).name


def _call_arguments(pattern: str, **keywords: Any) -> tuple[str, str]:
    return pattern, options_json(parse_options(pattern, **keywords))


def _converter_arguments(converter: Any) -> tuple[Any, ...]:
    """Return the graph arguments of a Converter made before torch was imported."""
    options = converter.options
    return (
        str(options.pattern),
        options_json(options),
        list(options.sizes),
        list(options.sizes.values()),
    )


def _collator_arguments(collator: Any) -> Any:
    return graph_args_of_collator(collator.windows)


def _collate_options_json(pattern: str, names: tuple[str, ...], **keywords: Any) -> str:
    sizes: dict[str, Any] = dict.fromkeys(names, 1)
    windows = parse_collate_options(pattern, **keywords, **sizes)
    return json.dumps(replace(windows, convert=replace(windows.convert, sizes={})).keywords())


def _collate(
    samples: Any,
    indices: Any,
    offset: Any,
    flip: Any,
    crop: Any,
    out: Any,
    pattern: str,
    keywords: str,
    names: list[str],
    sizes: list[int],
) -> Any:
    options = options_from_json(keywords, names, [*map(_concrete_sizes, sizes)])
    crops = {"offset": _concrete_by_axis(offset), "crop": _concrete_by_axis(crop)}
    return CONSTRUCTORS["Collator"](pattern, **options)(
        samples, indices=_concrete_sizes(indices), **crops, flip=flip, out=out
    )


def _concrete_by_axis(sizes: Any) -> Any:
    return {axis: _concrete_sizes(value) for axis, value in sizes.items()} if sizes else None


def _concrete_sizes(value: Any) -> Any:
    """Return symbols as their current numbers: the graph is specialized to these windows."""
    if isinstance(value, list | tuple):
        return [_concrete_sizes(item) for item in value]
    return int(value) if isinstance(value, _torch.SymInt) else value


def _convert(
    x: Any,
    out: Any,
    pattern: str,
    keywords: str,
    names: list[str],
    sizes: list[int],
    constants: dict[str, Any],
) -> Any:
    return Converter(pattern, **{**options_from_json(keywords, names, sizes), **constants})(x, out)


def _accumulate(
    parts: list[Any],
    out: Any,
    layouts: list[str],
    layout: str,
    dtype: str,
    names: list[str],
    sizes: list[int],
) -> Any:
    axis_sizes: dict[str, Any] = dict(zip(names, sizes, strict=True))
    return Accumulator(tuple(layouts), layout, dtype=dtype or None, **axis_sizes)(parts, out)


_converter_arguments, _call_arguments, _dtype_name, _collator_arguments, _collate_options_json = (
    map(
        _torch.compiler.assume_constant_result,
        (
            _converter_arguments,
            _call_arguments,
            _dtype_name,
            _collator_arguments,
            _collate_options_json,
        ),
    )
)
_convert, _accumulate, _collate = map(
    _torch.compiler.allow_in_graph, (_convert, _accumulate, _collate)
)
