"""The exceptions that layoutkit raises, and the class of its warnings.

Every class derives from `LayoutkitError` and from the built-in exception that fits, so that
`except ValueError` keeps working. A message names the argument, the problem and the fix.

Functions with options, and calls of a Converter or a Collator, name a cure for arguments that they
do not have. Other methods leave these to Python, whose TypeError names the method and the argument.
"""


class LayoutkitError(Exception):
    """Base class of all exceptions of layoutkit."""


class PatternError(LayoutkitError, ValueError):
    """A layout or pattern that cannot be parsed, or layouts that cannot be converted."""


class ShapeError(LayoutkitError, ValueError):
    """A rank, size or length that does not fit the layout."""


class DtypeError(LayoutkitError, TypeError):
    """A dtype that cannot be converted, or a cast that the casting rule does not allow."""


class DeviceError(LayoutkitError, RuntimeError):
    """A device that does not exist, or arrays on different devices."""


class SpaceError(LayoutkitError, TypeError):
    """Two spaces without a conversion between them."""


class ViewError(LayoutkitError, RuntimeError):
    """An operation that the state of a view does not allow."""


class BackwardError(LayoutkitError, RuntimeError):
    """A gradient that does not belong to an array that the current batch was converted to."""


class DataError(LayoutkitError, ValueError):
    """An invalid record, label, source or option of `layoutkit.data`."""


class ArgumentError(LayoutkitError, ValueError):
    """Any other invalid argument, such as a read-only or overlapping `out`, or a thread count."""


class LayoutkitWarning(UserWarning):
    """A valid call whose result is probably not the intended one. The message names the cure."""
