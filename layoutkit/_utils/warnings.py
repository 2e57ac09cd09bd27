"""Warnings that name a line of the caller's program."""

from __future__ import annotations

import sys
import warnings

from ..errors import LayoutkitWarning

_PACKAGE = __package__.partition(".")[0]


def warn(message: str) -> None:
    """Issue a LayoutkitWarning at the innermost line that is not in this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_internal(frame.f_globals.get("__name__")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, LayoutkitWarning, stacklevel=level)


def _is_internal(module: object) -> bool:
    return str(module).partition(".")[0] == _PACKAGE
