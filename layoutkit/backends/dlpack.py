"""NumPy arrays shared by DLPack, with the dtypes that NumPy's own DLPack lacks.

NumPy exchanges neither bfloat16 nor float8. Their items are exchanged as unsigned integers of the
same size: the dtype in a capsule, which belongs to its consumer, is overwritten.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..memory import Array
from ..spec import DType, as_dtype

# DLDataTypeCode, https://github.com/dmlc/dlpack, version 1.1.
_UNSIGNED = 1
_CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}
# The offset of the DLTensor in a capsule, by the name of the capsule, and of the dtype in it.
_TENSORS = {b"dltensor": 0, b"dltensor_versioned": 32}
_DTYPE = 20


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Relabeled:
    """An array whose capsules are passed to `relabel`, which may overwrite the dtype in them."""

    def __init__(self, array: Any, relabel: Callable[[_DataType], None]) -> None:
        self._array = array
        self._relabel = relabel

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        capsule = self._array.__dlpack__(**keywords)
        for name, offset in _TENSORS.items():
            if _is_valid(capsule, name):
                address = _get_pointer(capsule, name) + offset + _DTYPE
                self._relabel(_DataType.from_address(address))
        return capsule


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def from_dlpack(x: Any) -> Array:
    """Return the NumPy array that shares the memory of x.

    Raises what NumPy raises if x does not export its memory, or has a dtype that NumPy lacks.
    """
    dtypes: list[DType] = []

    def to_bits(data_type: _DataType) -> None:
        name = _NAMES.get(data_type.code)
        dtype = None if name is None else as_dtype(name)
        if dtype is not None and (data_type.bits, data_type.lanes) == (8 * dtype.itemsize, 1):
            dtypes.append(dtype)
            data_type.code = _UNSIGNED

    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError):
        array = np.from_dlpack(_Relabeled(x, to_bits))
        return array.view(dtypes[-1]) if dtypes else array


def to_dlpack(array: Array) -> Any:
    """Return an object that exports the memory of an array by `__dlpack__`, of any dtype."""
    code = _CODES.get(array.dtype.name)
    if code is None:
        return array

    def to_dtype(data_type: _DataType) -> None:
        data_type.code = code

    return _Relabeled(array.view(f"u{array.dtype.itemsize}"), to_dtype)
