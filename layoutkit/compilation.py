"""Whether torch.compile follows what runs now, and what it is to put into its graph then.

It reads Python's bytecode, and would follow a conversion down to Numba's. There is one thing that
it does not follow: a function that is marked as `torch.compiler.assume_constant_result` does. That
one it calls, and keeps the answer. It is marked here without that call, since whoever has no
tensors should not have to import PyTorch.

What stands in graphs is torch's business (`arrays/torch_graph.py`), which most processes never ask.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["call_in_graph", "in_graph", "is_followed", "sum_in_graph"]


def is_followed() -> bool:
    """Whether the caller is only read, by torch.compile, which makes a graph of it."""
    return str(sys._getframe(1).f_globals.get("__name__")).startswith("torch._dynamo")


is_followed._dynamo_marked_constant = True  # type: ignore[attr-defined]


# Their imports take no lock of ours, which torch.compile could not follow.


def in_graph(asked: Any, x: Any, out: Any) -> Any:
    """`asked(x, out)` of a Converter, or of an Accumulator and its parts, in a graph."""
    from .arrays import torch_graph

    return torch_graph.put(asked, x, out)


def call_in_graph(x: Any, pattern: str, out: Any, sizes: dict[str, Any], **keywords: Any) -> Any:
    """What `convert` of these arguments is, in a graph."""
    from .arrays import torch_graph

    return torch_graph.put_call(x, pattern, out, sizes, keywords)


def sum_in_graph(parts: list[Any], out: Any, *asked: Any) -> Any:
    """What `accumulate` of these parts, layouts, layout, dtype and sizes is, in a graph."""
    from .arrays import torch_graph

    return torch_graph.put_sum(parts, out, *asked)
