"""Arrays of inference engines: OrtValues of ONNX Runtime and tensors of OpenVINO."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..memory import Array
from .base import memory_error
from .containers import Container


class OnnxRuntime(Container):
    """OrtValues on the CPU. What comes in becomes NumPy's; `out` keeps its memory."""

    def read(self, x: Any, what: str) -> Any:
        """The array that shares its memory; read-only, as DLPack has it."""
        return np.from_dlpack(x) if x.is_tensor() else super().read(x, what)

    def memory(self, out: Any) -> Array:
        """The array that shares its memory, to be written."""
        return np.asarray(_WritableInterface(out, self.arrive(out, "out")))


class _WritableInterface:
    """The memory of an OrtValue in the words of NumPy; DLPack says that it is read-only."""

    def __init__(self, owner: Any, found: Array) -> None:
        self._owner = owner  # for as long as an array has this for its base
        self.__array_interface__ = {**found.__array_interface__, "data": (owner.data_ptr(), False)}


class OpenVino(Container):
    """In and out without a copy, such as `request.get_input_tensor()` as `out`."""

    def read(self, x: Any, what: str) -> Any:
        """The array that shares its memory."""
        try:
            return x.data
        except Exception as error:  # of a tensor on another device, and of strings
            raise memory_error(what, x, f"copy it to an openvino.Tensor ({error})") from error

    def memory(self, out: Any) -> Array:
        """The array that shares its memory."""
        return self.arrive(out, "out")


_ONNXRUNTIME, _OPENVINO = OnnxRuntime(), OpenVino()


def container_for(x: Any) -> Container | None:
    """Return the adapter of an OrtValue on the CPU or an OpenVINO tensor, or None.

    An OrtValue on a GPU has no adapter here: DLPack imports it.
    """
    onnxruntime, openvino = sys.modules.get("onnxruntime"), sys.modules.get("openvino")
    if onnxruntime is not None and isinstance(x, onnxruntime.OrtValue):
        return _ONNXRUNTIME if x.device_name() == "cpu" else None
    return _OPENVINO if openvino is not None and isinstance(x, openvino.Tensor) else None
