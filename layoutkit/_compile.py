"""Whether torch.compile follows what runs now, and what it is to put into its graph then.

It reads Python's bytecode, and would follow a conversion down to Numba's. There is one thing that
it does not follow: a function that is marked as `torch.compiler.assume_constant_result` does. That
one it calls, and keeps the answer. It is marked here without that call, since whoever has no
tensors should not have to import PyTorch.

What stands in graphs is torch's business (`arrays/torch_graph.py`), which most processes never ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .planning.collate import Windows
    from .planning.options import Task

__all__ = [
    "batch_call_in_graph",
    "batch_in_graph",
    "call_in_graph",
    "in_graph",
    "is_followed",
    "makers",
    "sum_in_graph",
    "words_of",
    "words_of_windows",
]


_Words: TypeAlias = tuple[Any, ...] | None

# By name: classes whose objects a graph makes again, and which stand below what makes the graph.
makers: dict[str, Callable[..., Any]] = {}


def is_followed() -> bool:
    """Whether the caller is only read, by torch.compile, which makes a graph of it."""
    return str(sys._getframe(1).f_globals.get("__name__")).startswith("torch._dynamo")


is_followed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def words_of(task: Task) -> tuple[Any, ...] | None:
    """A task as pattern, keywords in JSON, and the names and numbers of sizes.

    By these compiled functions are found again, whichever of equal Converters they are called with.
    None where there is no torch that could compile, and for what has no words.
    """
    return _words(str(task.pattern), task._replace(sizes={}).keywords, task)


def words_of_windows(windows: Windows) -> tuple[Any, ...] | None:
    """What is asked of a Collator, likewise."""
    task = windows.task
    unsized = windows._replace(task=task._replace(sizes={}))
    return _words(task.pattern.text, unsized.keywords, task)


def _words(pattern: str, keywords: Callable[[], dict[str, Any]], task: Task) -> _Words:
    if "torch" not in sys.modules:
        return None
    import json

    try:
        told = json.dumps(keywords())
    except TypeError:  # constants that are traced
        return None
    return pattern, told, list(task.sizes), list(task.sizes.values())


# Their imports take no lock of ours, which torch.compile could not follow.


def in_graph(asked: Any, x: Any, out: Any) -> Any:
    """`asked(x, out)` of a Converter, or of an Accumulator and its parts, in a graph."""
    from .backends.torch import graph

    return graph.put(asked, x, out)


def call_in_graph(x: Any, pattern: str, out: Any, sizes: dict[str, Any], **keywords: Any) -> Any:
    """What `convert` of these arguments is, in a graph."""
    from .backends.torch import graph

    return graph.put_call(x, pattern, out, sizes, keywords)


def batch_in_graph(asked: Any, samples: Any, *windows: Any) -> Any:
    """What a Collator makes of samples, with indices, offset, flip and out, in a graph."""
    from .backends.torch import graph

    return graph.put_batch(asked, samples, *windows)


def batch_call_in_graph(
    samples: Any, pattern: str, windows: tuple[Any, ...], sizes: dict[str, Any], **keywords: Any
) -> Any:
    """What `collate` of these arguments is, in a graph."""
    from .backends.torch import graph

    return graph.put_batch_call(samples, pattern, windows, sizes, keywords)


def sum_in_graph(parts: list[Any], out: Any, *asked: Any) -> Any:
    """What `accumulate` of these parts, layouts, layout, dtype and sizes is, in a graph."""
    from .backends.torch import graph

    return graph.put_sum(parts, out, *asked)
