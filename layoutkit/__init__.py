"""Batches between array layouts, dtypes and devices, in one pass at the speed of memory.

    convert(x, "bhwc->bchw", dtype="float32", mean=..., std=...)    one call
    Converter("bhwc->bchw", ...)                                    the same, planned once
    accumulate([(g1, "bchw"), (g2, "chwb")], "bhwc")                a sum of gradients
    ImageView("bhwc", photos)                                       a batch, put once and got in
                                                                    any layout and dtype

Importing this package imports NumPy and nothing else; views are loaded when the first is named.
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
    from .views import ClassView, DataView, ImageView, ListView, SequenceView

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArraySpec",
    "BackwardError",
    "ClassView",
    "Converter",
    "DataError",
    "DataView",
    "DeviceError",
    "DtypeError",
    "ImageView",
    "LayoutkitError",
    "ListView",
    "PatternError",
    "SequenceView",
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

_VIEWS = ("ClassView", "DataView", "ImageView", "ListView", "SequenceView")


def __getattr__(name: str) -> Any:
    """Load the views with the first of them: a third of what `import layoutkit` would take."""
    if name not in _VIEWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import views

    globals().update({each: getattr(views, each) for each in _VIEWS})
    return getattr(views, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
