"""Convert batches between array layouts, dtypes and devices in one pass at memory speed.

    convert(x, "bhwc->bchw", dtype="float32", mean=..., std=...)    one call
    Converter("bhwc->bchw", ...)                                    a conversion, planned once
    collate(photos, "hwc->bchw", h=224, w=224)                      many samples into one batch
    accumulate([(g1, "bchw"), (g2, "chwb")], "bhwc")                a sum of gradients
    ImageView("bhwc", photos)                                       a batch that is read in any
                                                                    layout and dtype
    VectorSpace, Conv2DSpace, IndexSpace, CompositeSpace, ...       input formats of models

Importing this package imports NumPy and no other library. Collators, views,
spaces, `show_config` and the subpackages are imported on first use.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

# An installed package contains kernels/ and bench/. In a checkout they are beside the package, so
# the package also imports submodules from the root of the checkout.
if not Path(__file__).with_name("kernels").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

from . import buffers
from ._utils import fork, late
from ._utils.spelling import make_attribute_error
from .accumulation import accumulate
from .converter import Converter, convert, plan
from .errors import (
    ArgumentError,
    BackwardError,
    DataError,
    DeviceError,
    DtypeError,
    LayoutkitError,
    LayoutkitWarning,
    PatternError,
    ShapeError,
    SpaceError,
    ViewError,
)
from .spec import ArraySpec
from .threads.limits import get_num_threads, set_num_threads, set_threading_layer

if TYPE_CHECKING:
    from . import data, images, plugins
    from .collator import Collator, Padded, collate
    from .config import show_config, warmup
    from .mappings import Columns, columns
    from .planning.batch.packing import Packed
    from .planning.batch.placement import Placement, Placements
    from .preprocessor_configs import from_preprocessor_config
    from .spaces import (
        ArraySpace,
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
    from .views import ClassView, DataView, ImageView, ListView, SequenceView

__version__ = "0.1.0"

# Modules that conversions call for arrays of other libraries.
late.register(
    dispatch="layoutkit.backends.dispatch",
    gradients="layoutkit.backends.gradients",
    graph="layoutkit._graph",
)

__all__ = [
    "ArgumentError",
    "ArraySpace",
    "ArraySpec",
    "BackwardError",
    "ClassView",
    "Collator",
    "Columns",
    "CompositeSpace",
    "Conv2DSpace",
    "Converter",
    "DataError",
    "DataSpecsMapping",
    "DataView",
    "DeviceError",
    "DtypeError",
    "ImageView",
    "IndexSequenceSpace",
    "IndexSpace",
    "LayoutkitError",
    "LayoutkitWarning",
    "ListView",
    "NullSpace",
    "Packed",
    "Padded",
    "PatternError",
    "Placement",
    "Placements",
    "SequenceView",
    "ShapeError",
    "Space",
    "SpaceError",
    "VectorSequenceSpace",
    "VectorSpace",
    "ViewError",
    "accumulate",
    "buffers",
    "collate",
    "columns",
    "convert",
    "data",
    "from_preprocessor_config",
    "get_num_threads",
    "images",
    "is_flat_source",
    "is_flat_space",
    "is_flat_specs",
    "plan",
    "plugins",
    "set_num_threads",
    "set_threading_layer",
    "show_config",
    "warmup",
]

# Subpackages and names that are imported on first use. Defining all these classes would take a
# third of the time that `import layoutkit` may take.
_SUBPACKAGES = ("data", "images", "plugins")
_LAZY = {
    "collator": ("Collator", "Padded", "collate"),
    "config": ("show_config", "warmup"),
    "mappings": ("Columns", "columns"),
    "planning.batch.packing": ("Packed",),
    "planning.batch.placement": ("Placement", "Placements"),
    "preprocessor_configs": ("from_preprocessor_config",),
    "spaces": (
        "ArraySpace",
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
    ),
    "views": ("ClassView", "DataView", "ImageView", "ListView", "SequenceView"),
}
# Modules that import another library, such as Keras for `layoutkit.keras.Convert`.
_INTEGRATIONS = ("keras", "sklearn", "torch")


def __getattr__(name: str) -> Any:
    if name in _INTEGRATIONS:
        return import_module(f".{name}", __name__)
    if name in _SUBPACKAGES:
        with fork.init_lock:
            return import_module(f".{name}", __name__)
    for package, names in _LAZY.items():
        if name in names:
            with fork.init_lock:
                module = import_module(f".{package}", __name__)
            globals().update({public: getattr(module, public) for public in names})
            return globals()[name]
    raise make_attribute_error(f"module {__name__!r}", name, "layoutkit")


def __dir__() -> list[str]:
    installed = [name for name in _INTEGRATIONS if find_spec(name) is not None]
    return sorted([*__all__, *installed, "errors"])
