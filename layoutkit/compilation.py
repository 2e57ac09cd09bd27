"""Whether torch.compile follows what runs now.

It reads Python's bytecode, and would follow a conversion down to Numba's. There is one thing that
it does not follow: a function that is marked as `torch.compiler.assume_constant_result` does. That
one it calls, and keeps the answer. It is marked here without that call, since whoever has no
tensors should not have to import PyTorch.
"""

from __future__ import annotations

import sys

__all__ = ["is_followed"]


def is_followed() -> bool:
    """Whether the caller is only read, by torch.compile, which makes a graph of it."""
    return str(sys._getframe(1).f_globals.get("__name__")).startswith("torch._dynamo")


is_followed._dynamo_marked_constant = True  # type: ignore[attr-defined]
