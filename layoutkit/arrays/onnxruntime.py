"""OrtValues of ONNX Runtime: read through DLPack, and written where they lie."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..memory import Array
from .containers import Container

__all__ = ["container_for"]


class OnnxRuntime(Container):
    """OrtValues on the CPU. What comes in becomes NumPy's; `out` keeps its memory."""

    def read(self, x: Any, what: str) -> Any:
        """The array that shares its memory; read-only, as DLPack has it."""
        return np.from_dlpack(x) if x.is_tensor() else super().read(x, what)

    def memory(self, out: Any) -> Array:
        """The array that shares its memory, to be written."""
        return np.asarray(_Place(out, self.arrive(out, "out")))


class _Place:
    """The memory of an OrtValue in the words of NumPy; DLPack says that it is read-only."""

    def __init__(self, owner: Any, found: Array) -> None:
        self._owner = owner  # for as long as an array has this for its base
        self.__array_interface__ = {**found.__array_interface__, "data": (owner.data_ptr(), False)}


_ADAPTER = OnnxRuntime()


def container_for(x: Any) -> Container | None:
    """The adapter of an OrtValue on the CPU; of one on a GPU None, as DLPack brings it."""
    found = isinstance(x, sys.modules["onnxruntime"].OrtValue)
    return _ADAPTER if found and x.device_name() == "cpu" else None
