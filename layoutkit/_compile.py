"""Support of torch.compile: detect tracing, and insert conversions into the graph as operators.

torch.compile traces Python bytecode and would trace a conversion down to Numba. It does not trace a
function that is marked by `torch.compiler.assume_constant_result`, but calls it and uses the result
as a constant. `is_compiling` is marked without that decorator, so that PyTorch is not imported.

The graph operations are in `backends/torch/graph.py`, imported only under torch.compile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .options import CollateOptions, ConvertOptions

_GraphArgs: TypeAlias = tuple[Any, ...] | None

# Classes by name whose objects a graph recreates. They register themselves, because the modules
# that make graphs cannot import them.
CONSTRUCTORS: dict[str, Callable[..., Any]] = {}


def is_compiling() -> bool:
    """Return True if torch.compile is tracing the caller."""
    return str(sys._getframe(1).f_globals.get("__name__")).startswith("torch._dynamo")


is_compiling._dynamo_marked_constant = True  # type: ignore[attr-defined]


def graph_args_of(options: ConvertOptions) -> tuple[Any, ...] | None:
    """Return the pattern, the keywords as JSON, and the names and values of sizes of a conversion.

    They are the arguments of the operator in a graph, so equal Converters share compiled functions.
    None if torch is not imported or if the keywords are not JSON-serializable.
    """
    return _graph_args(str(options.pattern), replace(options, sizes={}).keywords, options)


def graph_args_of_collator(windows: CollateOptions) -> tuple[Any, ...] | None:
    """Return the pattern, keywords as JSON, and sizes of a Collator; see `graph_args_of`."""
    options = windows.convert
    unsized = replace(windows, convert=replace(options, sizes={}))
    return _graph_args(options.pattern.text, unsized.keywords, options)


def _graph_args(
    pattern: str, keywords: Callable[[], dict[str, Any]], options: ConvertOptions
) -> _GraphArgs:
    if "torch" not in sys.modules:
        return None
    import json

    try:
        keywords_json = json.dumps(keywords())
    except TypeError:  # traced constants
        return None
    return pattern, keywords_json, list(options.sizes), list(options.sizes.values())


# The imports below do not acquire `fork.init_lock`, because torch.compile cannot trace a lock.


def in_graph(converter: Any, x: Any, out: Any) -> Any:
    """Insert the call `converter(x, out)` of a Converter or an Accumulator into the graph."""
    from .backends.torch import graph

    return graph.insert_op(converter, x, out)


def insert_convert(x: Any, pattern: str, out: Any, sizes: dict[str, Any], **keywords: Any) -> Any:
    """Insert a call of `convert` into the graph."""
    from .backends.torch import graph

    return graph.insert_convert_call(x, pattern, out, sizes, keywords)


def batch_in_graph(collator: Any, samples: Any, *windows: Any) -> Any:
    """Insert a call of a Collator, with indices, offset, flip, crop and out, into the graph."""
    from .backends.torch import graph

    return graph.insert_collation(collator, samples, *windows)


def batch_call_in_graph(
    samples: Any, pattern: str, windows: tuple[Any, ...], sizes: dict[str, Any], **keywords: Any
) -> Any:
    """Insert a call of `collate` into the graph."""
    from .backends.torch import graph

    return graph.insert_collate_call(samples, pattern, windows, sizes, keywords)


def sum_in_graph(parts: list[Any], out: Any, *options: Any) -> Any:
    """Insert a call of `accumulate`, with layouts, layout, dtype and sizes, into the graph."""
    from .backends.torch import graph

    return graph.insert_accumulate_call(parts, out, *options)
