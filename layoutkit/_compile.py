"""Support of torch.compile: detect tracing, and insert calls into the graph as operators.

torch.compile traces Python bytecode and would trace a conversion down to Numba. It does not trace a
function that is marked by `torch.compiler.assume_constant_result`, but calls it and uses the result
as a constant. `is_compiling` is marked without that decorator, so that PyTorch is not imported.
"""

from __future__ import annotations

import sys
from typing import Any

from ._utils import late
from .errors import ArgumentError
from .options import CollateOptions, ConvertOptions, split_sizes

# The module `_graph`, whose functions insert calls. Set when torch.compile traces, as torch's
# compiler modules take seconds to import.
graph: Any = None


def is_compiling() -> bool:
    """Return True, and set `graph`, if torch.compile is tracing the caller."""
    global graph
    if not str(sys._getframe(1).f_globals.get("__name__")).startswith("torch._dynamo"):
        return False
    graph = late.load("graph")
    return True


is_compiling._dynamo_marked_constant = True  # type: ignore[attr-defined]


def make_graph_args(options: ConvertOptions | CollateOptions) -> tuple[Any, ...] | None:
    """Return the arguments of the operator in a graph, so equal options share compiled functions.

    None if torch is not imported, or if the options have traced constants.
    """
    if "torch" not in sys.modules:
        return None
    try:
        return split_sizes(options.to_dict())
    except ArgumentError:
        return None
