"""Modules of higher layers that a lower layer calls, loaded on first use.

A Converter calls the adapters of arrays, and adapters of lazy, sharded or traced arrays create the
Converters of their parts, so an import in either module would be a cycle. `layoutkit/__init__.py`,
which knows all layers, registers the modules by name, and `load` imports one when it is needed
first. Most processes convert NumPy arrays only and never load the backends.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from . import fork

_names: dict[str, str] = {}
_modules: dict[str, ModuleType] = {}


def register(**modules: str) -> None:
    """Register the full names of modules under short names."""
    _names.update(modules)


def load(name: str) -> ModuleType:
    """Return the registered module, imported by the first call."""
    module = _modules.get(name)
    if module is None:
        with fork.init_lock:
            module = _modules.setdefault(name, import_module(_names[name]))
    return module
