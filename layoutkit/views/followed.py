"""A batch of a view that torch.compile follows: its gettings are conversions in a graph.

What a view keeps from get to get and from batch to batch would be followed too, and is of no use in
a graph, which is made once. A view that comes out of one makes it up when it is asked next.
"""

from __future__ import annotations

from typing import Any

from ..compilation import call_in_graph

__all__ = ["FollowedBatch", "get"]


class FollowedBatch:
    """A base and its layout, which nobody has looked at yet."""

    def __init__(self, layout: str, given: Any) -> None:
        self.layout, self.input = layout, given
        self.results: dict[Any, Any] = {}


def get(batch: Any, layout: Any, dtype: Any, device: Any, **how: Any) -> Any:
    """The base in a layout and dtype, with the keywords of a formula or memory, in the graph."""
    base = batch.layout if isinstance(batch, FollowedBatch) else batch.plans.layout
    if layout is None and dtype is None and device is None and not how:
        return batch.input
    pattern = f"{base}->{base if layout is None else layout}"
    return call_in_graph(batch.input, pattern, None, {}, dtype=dtype, device=device, **how)
