"""Modules under the names that they had when pickles of earlier versions were made.

A pickle says of each class in which module it lay. What has moved since is found through a module
of the old name that knows nothing itself, and imports the new one when it is asked for a class.
Nothing but pickles uses the old names.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["renamed"]


def renamed(package: str, old: str, new: str) -> None:
    """Let pickles find under `old` what lies in module `new` of a package."""
    name = f"{package}.{old}"
    sys.modules[name] = _Renamed(name, f"{package}.{new}")


class _Renamed(ModuleType):
    """A module that has another name now."""

    def __init__(self, name: str, now: str) -> None:
        super().__init__(name)
        self._now = now

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by whoever looks through all modules
            raise AttributeError(name)
        return getattr(import_module(self._now), name)
