"""Tensors of OpenVINO, which give their memory as `data`."""

from __future__ import annotations

import sys
from typing import Any

from ..memory import Array
from .base import out_of_reach
from .containers import Container

__all__ = ["container_for"]


class OpenVino(Container):
    """In and out without a copy, such as `request.get_input_tensor()` as `out`."""

    def read(self, x: Any, what: str) -> Any:
        """The array that shares its memory."""
        try:
            return x.data
        except Exception as error:  # of a tensor on another device, and of strings
            raise out_of_reach(what, x, f"copy it to an openvino.Tensor ({error})") from error

    def memory(self, out: Any) -> Array:
        """The array that shares its memory."""
        return self.arrive(out, "out")


_ADAPTER = OpenVino()


def container_for(x: Any) -> Container | None:
    """The adapter of a tensor; None for what is none."""
    return _ADAPTER if isinstance(x, sys.modules["openvino"].Tensor) else None
