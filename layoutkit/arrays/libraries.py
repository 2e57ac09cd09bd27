"""Which file of this folder knows the arrays of a class: the one named after their package.

Arrays of classes of package `torch` are the business of `torch.py`, so a new library is one new
file, with a function `adapter_for(x)`: the adapter of an array, or None for what is none. Where its
arrays can be said in words of their own (`symbolic.py`), it has `library_of(x)` and `library()`
too. `memory_of(arrays)` is a quick way to the memory of many. A library whose objects only
hold an array (`containers.py`) has `container_for(x)`.

A library that is not imported has made no array, so none is imported to find one out.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from .. import forks
from ..errors import ArgumentError
from .symbolic import NUMPY, Library, Symbolic

__all__ = ["asked", "file_of", "framework_named", "library_of"]

_FRAMEWORKS = ("jax", "torch")  # whose words batches of spaces can be said in
_ALIASES = {"jaxlib": "jax"}  # packages whose classes are another package's arrays


def library_of(x: Any) -> Library | None:
    """The library that made the array; None for what is no array of a library known here."""
    sparse = sys.modules.get("scipy.sparse")
    if isinstance(x, np.ndarray) or (sparse is not None and sparse.issparse(x)):
        return NUMPY
    found: Library | None = asked("library_of", x)
    return found


def asked(question: str, x: Any) -> Any:
    """What the file of the library of x answers about it; None where there is none to ask."""
    answer = getattr(file_of(x), question, None)
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
        with forks.making:
            found: Symbolic = import_module(f".{name}", __package__).library()
        return found
    except ImportError as error:
        fix = f'pip install "layoutkit[{name}]"'
        raise ArgumentError(f"{name} is not installed, or does not load: {fix}") from error


def file_of(x: Any) -> ModuleType | None:
    """The module of this folder that is named after the package of the class of x, or of a base."""
    try:
        return _file_of(type(x))  # type: ignore[arg-type]
    except TypeError:  # a class whose metaclass makes it unhashable
        return None


@lru_cache(maxsize=256)
def _file_of(kind: type) -> ModuleType | None:
    for package in (str(each.__module__).partition(".")[0] for each in kind.__mro__):
        name = f"{__package__}.{_ALIASES.get(package, package)}"
        if package in sys.modules and find_spec(name) is not None:
            with forks.making:
                found = import_module(name)
            # Not one of the other rooms of this folder.
            if hasattr(found, "adapter_for") or hasattr(found, "container_for"):
                return found
    return None
