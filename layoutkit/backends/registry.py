"""The registry of array libraries: which module adapts the arrays of a package.

A backend module has a function `adapter_for(x)`, which returns the adapter of an array, or
`container_for(x)`, which returns the adapter of an object that holds an array; both return None for
other objects. Optional functions: `library_of(x)` and `library()` return the library's
`ArrayNamespace` (symbolic.py), `memory_of(arrays)` returns the memory of many arrays at once,
and `array_namespace(x)` the module of the functions of `x` if it is not the top-level package.

Backends are imported when the first array of their package is seen. A package that is not imported
has made no array, so it is never imported to find out. Other packages add backends
(`layoutkit.plugins`).
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from .._utils import fork
from .._utils.registry import Registry, check_has
from .._utils.validation import show
from ..errors import ArgumentError
from .symbolic import NUMPY, ArrayNamespace, Library

FRAMEWORKS = ("jax", "torch")  # frameworks of symbolic batches, and of the batches of a loader


def _accept_backend(package: str, extension: Any) -> Any:
    is_container = hasattr(extension, "container_for")
    check_has(extension, "container_for" if is_container else "adapter_for")
    return extension


# By the package that defines the class of an array: the module that adapts it.
BACKENDS = Registry(
    "layoutkit.arrays",
    "the backend",
    {
        "cupy": f"{__package__}.cupy",
        "dask": f"{__package__}.dask",
        "jax": f"{__package__}.jax",
        "jaxlib": f"{__package__}.jax",
        "layoutkit": f"{__package__}.yuv",  # YUVFrames
        "onnxruntime": f"{__package__}.inference",
        "openvino": f"{__package__}.inference",
        "pandas": f"{__package__}.dataframes",
        "polars": f"{__package__}.dataframes",
        "pyarrow": f"{__package__}.dataframes",
        "torch": f"{__package__}.torch",
        "xarray": f"{__package__}.xarray",
    },
    _accept_backend,
)
# Packages whose objects are no arrays of another library, and need no search for a backend.
_KNOWN_PACKAGES = sys.stdlib_module_names | {"__main__", "numpy", "PIL"}


def library_of(x: Any) -> Library | None:
    """Return the namespace of the library of x, or None for objects that are not known arrays."""
    sparse = sys.modules.get("scipy.sparse")
    if isinstance(x, np.ndarray) or (sparse is not None and sparse.issparse(x)):
        return NUMPY
    return call_backend_hook("library_of", x)


def call_backend_hook(hook_name: str, x: Any) -> Any:
    """Return the result of the function `hook_name` of the backend of x, or None without one."""
    hook = getattr(backend_of(x), hook_name, None)
    return None if hook is None else hook(x)


def import_framework(name: str) -> ArrayNamespace:
    """Import a framework by name and return its namespace.

    Raises
    ------
    ArgumentError
        There is no framework of that name, or it is not installed.
    """
    if not isinstance(name, str) or name not in FRAMEWORKS:
        raise ArgumentError(f'framework={show(name)}; it must be "jax" or "torch"')
    try:
        with fork.init_lock:
            library: ArrayNamespace = import_module(f".{name}", __package__).library()
        return library
    except ImportError as error:
        fix = f'pip install "layoutkit[{name}]"'
        raise ArgumentError(f"{name} is not installed, or does not load: {fix}") from error


def backend_of(x: Any) -> ModuleType | None:
    """Return the backend of the package that defines the class of x, or one of its bases."""
    try:
        return backend_by_type(type(x))  # type: ignore[arg-type]
    except TypeError:  # a class whose metaclass makes it unhashable
        return None


@lru_cache(maxsize=256)
def backend_by_type(array_type: type) -> ModuleType | None:
    """Return the backend of a class of arrays; None if its library has none."""
    for package in (str(base.__module__).partition(".")[0] for base in array_type.__mro__):
        if package in sys.modules and package not in _KNOWN_PACKAGES and package in BACKENDS:
            backend: ModuleType | None = BACKENDS.find(package)
            return backend
    return None
