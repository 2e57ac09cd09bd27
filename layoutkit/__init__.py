"""Batches between array layouts, dtypes and devices, in one pass at the speed of memory.

    convert(x, "bhwc->bchw", dtype="float32", mean=..., std=...)    one call
    Converter("bhwc->bchw", ...)                                    the same, planned once
    accumulate([(g1, "bchw"), (g2, "chwb")], "bhwc")                a sum of gradients

    VectorSpace, Conv2DSpace, IndexSpace, CompositeSpace, ...       what a model asks for

Importing this package imports NumPy and nothing else; spaces are loaded with the first one.
"""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from .spaces import (
        CompositeSpace,
        Conv2DSpace,
        DataSpecsMapping,
        IndexSequenceSpace,
        IndexSpace,
        NullSpace,
        Space,
        VectorSequenceSpace,
        VectorSpace,
        is_flat_source,
        is_flat_space,
        is_flat_specs,
    )

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArraySpec",
    "BackwardError",
    "CompositeSpace",
    "Conv2DSpace",
    "Converter",
    "DataError",
    "DataSpecsMapping",
    "DeviceError",
    "DtypeError",
    "IndexSequenceSpace",
    "IndexSpace",
    "LayoutkitError",
    "NullSpace",
    "PatternError",
    "ShapeError",
    "Space",
    "SpaceError",
    "VectorSequenceSpace",
    "VectorSpace",
    "ViewError",
    "accumulate",
    "buffers",
    "convert",
    "get_num_threads",
    "is_flat_source",
    "is_flat_space",
    "is_flat_specs",
    "plan",
    "set_num_threads",
    "show_config",
    "warmup",
]

_SPACES = frozenset(
    {
        "CompositeSpace",
        "Conv2DSpace",
        "DataSpecsMapping",
        "IndexSequenceSpace",
        "IndexSpace",
        "NullSpace",
        "Space",
        "VectorSequenceSpace",
        "VectorSpace",
        "is_flat_source",
        "is_flat_space",
        "is_flat_specs",
    }
)


def __getattr__(name: str) -> Any:
    """Load the spaces when the first of their names is used.

    Exists because to define a dozen frozen classes takes longer than all other imports may.
    """
    if name not in _SPACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import spaces

    globals().update({each: getattr(spaces, each) for each in _SPACES})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
