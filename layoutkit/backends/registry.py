"""The registry of array libraries: which module of this package adapts the arrays of a package.

A backend module has a function `adapter_for(x)`, which returns the adapter of an array, or
`container_for(x)`, which returns the adapter of an object that holds an array; both return None for
other objects. Optional functions: `library_of(x)` and `library()` return the library's
`ArrayNamespace` (symbolic.py), and `memory_of(arrays)` returns the memory of many arrays at once.

Backends are imported when the first array of their package is seen. A package that is not imported
has made no array, so it is never imported to find out.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from .._utils import fork
from ..errors import ArgumentError
from .symbolic import NUMPY, Library, Symbolic

_FRAMEWORKS = ("jax", "torch")  # whose words batches of spaces can be said in
# By the package that defines the class of an array: the module of this package that adapts it.
BACKENDS = {
    "cubed": "cubed",
    "cupy": "cupy",
    "dask": "dask",
    "jax": "jax",
    "jaxlib": "jax",
    "onnxruntime": "inference",
    "openvino": "inference",
    "pandas": "dataframes",
    "polars": "dataframes",
    "pyarrow": "dataframes",
    "torch": "torch",
    "xarray": "xarray",
}


def library_of(x: Any) -> Library | None:
    """The library that made the array; None for what is no array of a library known here."""
    sparse = sys.modules.get("scipy.sparse")
    if isinstance(x, np.ndarray) or (sparse is not None and sparse.issparse(x)):
        return NUMPY
    found: Library | None = call_backend_hook("library_of", x)
    return found


def call_backend_hook(question: str, x: Any) -> Any:
    """What the file of the library of x answers about it; None where there is none to ask."""
    answer = getattr(backend_of(x), question, None)
    return None if answer is None else answer(x)


def framework_named(name: str) -> Symbolic:
    """The library of symbolic batches of that name, imported now.

    Raises
    ------
    ArgumentError
        It has another name, or is not installed.
    """
    if not isinstance(name, str) or name not in _FRAMEWORKS:
        raise ArgumentError(f'framework={name!r}; it is "jax" or "torch"')
    try:
        with fork.making:
            found: Symbolic = import_module(f".{name}", __package__).library()
        return found
    except ImportError as error:
        fix = f'pip install "layoutkit[{name}]"'
        raise ArgumentError(f"{name} is not installed, or does not load: {fix}") from error


def backend_of(x: Any) -> ModuleType | None:
    """Return the backend of the package that the class of x, or one of its bases, is from."""
    try:
        return _backend_of(type(x))  # type: ignore[arg-type]
    except TypeError:  # a class whose metaclass makes it unhashable
        return None


@lru_cache(maxsize=256)
def _backend_of(array_type: type) -> ModuleType | None:
    for package in (str(base.__module__).partition(".")[0] for base in array_type.__mro__):
        if package in sys.modules and package in BACKENDS:
            with fork.making:
                return import_module(f".{BACKENDS[package]}", __package__)
    return None
