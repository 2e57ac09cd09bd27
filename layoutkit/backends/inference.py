"""Arrays of inference engines: OrtValues of ONNX Runtime and tensors of OpenVINO."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..memory import Array
from .base import make_memory_error
from .containers import Container
from .dlpack import from_dlpack


class OnnxRuntime(Container):
    """The adapter of OrtValues on the CPU. Results are NumPy's; an OrtValue as `out` is written."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the array that shares its memory; read-only, as DLPack exports it."""
        return from_dlpack(x) if x.is_tensor() else super().read(x, arg_name)

    def memory(self, out: Any) -> Array:
        """Return the writable array that shares its memory."""
        return np.asarray(_WritableInterface(out, self.to_numpy(out, "out")))


class _WritableInterface:
    """A writable `__array_interface__` of an OrtValue, which DLPack exports as read-only."""

    def __init__(self, owner: Any, array: Array) -> None:
        self._owner = owner  # kept alive by the arrays that have this as their base
        self.__array_interface__ = {**array.__array_interface__, "data": (owner.data_ptr(), False)}


class OpenVino(Container):
    """The adapter of OpenVINO tensors, read and written without a copy.

    For example, `request.get_input_tensor()` can be `out`.
    """

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the array that shares its memory."""
        try:
            return x.data
        except Exception as error:  # for a tensor on another device, and for strings
            raise make_memory_error(
                arg_name, x, f"copy it to an openvino.Tensor ({error})"
            ) from error

    def memory(self, out: Any) -> Array:
        """Return the array that shares its memory."""
        return self.to_numpy(out, "out")


_ONNXRUNTIME = OnnxRuntime()
_OPENVINO = OpenVino()


def container_for(x: Any) -> Container | None:
    """Return the adapter of an OrtValue on the CPU or an OpenVINO tensor, or None.

    An OrtValue on a GPU has no adapter here: DLPack imports it.
    """
    onnxruntime = sys.modules.get("onnxruntime")
    openvino = sys.modules.get("openvino")
    if onnxruntime is not None and isinstance(x, onnxruntime.OrtValue):
        return _ONNXRUNTIME if x.device_name() == "cpu" else None
    return _OPENVINO if openvino is not None and isinstance(x, openvino.Tensor) else None
