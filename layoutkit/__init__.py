"""Batches between array layouts, dtypes and devices, in one pass at the speed of memory.

    convert(x, "bhwc->bchw", dtype="float32", mean=..., std=...)    one call
    Converter("bhwc->bchw", ...)                                    the same, planned once
    accumulate([(g1, "bchw"), (g2, "chwb")], "bhwc")                a sum of gradients

Importing this package imports NumPy and nothing else.
"""

from . import buffers
from .accumulation import accumulate
from .configuration import show_config, warmup
from .conversion import convert, plan
from .converter import Converter
from .errors import (
    ArgumentError,
    BackwardError,
    DataError,
    DeviceError,
    DtypeError,
    LayoutkitError,
    PatternError,
    ShapeError,
    SpaceError,
    ViewError,
)
from .spec import ArraySpec
from .threads import get_num_threads, set_num_threads

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArraySpec",
    "BackwardError",
    "Converter",
    "DataError",
    "DeviceError",
    "DtypeError",
    "LayoutkitError",
    "PatternError",
    "ShapeError",
    "SpaceError",
    "ViewError",
    "accumulate",
    "buffers",
    "convert",
    "get_num_threads",
    "plan",
    "set_num_threads",
    "show_config",
    "warmup",
]
