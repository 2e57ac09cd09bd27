"""The exceptions that layoutkit raises, one class for each kind of mistake.

Every class derives from `LayoutkitError` and from the built-in exception that a
caller would expect, so `except ValueError` keeps working. A message says what was
asked, what was found, and what to do about it.
"""

__all__ = [
    "ArgumentError",
    "BackwardError",
    "DataError",
    "DeviceError",
    "DtypeError",
    "LayoutkitError",
    "PatternError",
    "ShapeError",
    "SpaceError",
    "ViewError",
]


class LayoutkitError(Exception):
    """Base class of everything that layoutkit raises on purpose."""


class PatternError(LayoutkitError, ValueError):
    """A layout or pattern that cannot be read, or that the other layout cannot become."""


class ShapeError(LayoutkitError, ValueError):
    """A rank, size or length that does not fit the layout."""


class DtypeError(LayoutkitError, TypeError):
    """A dtype that cannot be converted, or not under the casting rule that was asked for."""


class DeviceError(LayoutkitError, RuntimeError):
    """A device that is not there, or arrays on different devices."""


class SpaceError(LayoutkitError, TypeError):
    """Two spaces that never convert into each other."""


class ViewError(LayoutkitError, RuntimeError):
    """A View used in a state that does not allow it."""


class BackwardError(LayoutkitError, RuntimeError):
    """A gradient that does not belong to a getting of the current batch."""


class DataError(LayoutkitError, ValueError):
    """A record, label or source that is not what it should be."""


class ArgumentError(LayoutkitError, ValueError):
    """Any other argument that cannot be honoured: overlap, read-only output, thread counts."""
