"""Extensions by other packages: file formats, samplers, array libraries and image decoders.

    register("samplers", "backward", function)     an extension in this process
    list_plugins()                                 the extensions of installed packages

`Adapter` and `Container` are the base classes of adapters of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._utils.registry import Registry, import_target
from ._utils.validation import check_choice
from .backends.base import Adapter
from .backends.containers import Container
from .backends.registry import backend_by_type
from .errors import ArgumentError

__all__ = ["Adapter", "Container", "Plugin", "list_plugins", "register"]

_TABLES = {
    "formats": "layoutkit.data.formats:FORMATS",
    "samplers": "layoutkit.data.samplers.sampling:KINDS",
    "arrays": "layoutkit.backends.registry:BACKENDS",
    "decoders": "layoutkit.images.suffixes:DECODERS",
}


class Plugin(NamedTuple):
    """An extension of an installed package."""

    table: str  # "formats", "samplers", "arrays" or "decoders"
    name: str
    package: str  # with its version
    target: str  # "module" or "module:attribute"
    problem: str  # the reason why it cannot be used, or ""


def register(table: str, name: str, extension: Any) -> None:
    """Add an extension to a table of layoutkit, in this process.

    >>> import numpy as np
    >>> from layoutkit.data import sampler
    >>> def backward(count, seed, epoch):
    ...     return np.arange(count)[::-1]
    >>> register("samplers", "backward", backward)
    >>> list(sampler("backward", 4))
    [3, 2, 1, 0]

    A package registers its extensions for every process by entry points, without a call: in
    pyproject.toml ``[project.entry-points."layoutkit.samplers"]`` with ``backward =
    "package.module:backward"``, and other tables accordingly. They are imported when their name is
    first used.

    Parameters
    ----------
    table : "formats", "samplers", "arrays" or "decoders"
    name : str
        The suffix of files or images in small letters, such as "grid"; the kind of a sampler, in
        which `_` and `-` are equivalent; or the package that defines the class of arrays.
    extension : object
        For "formats", a function of a path or URL, which returns what `open_index` accepts: an
        array, a mapping of x and y, an Index, or an object with a length and ``[i]``.

        For "samplers", a function of (count, seed, epoch), which returns positions of records: the
        order of that epoch, always the same for equal arguments.

        For "arrays", a module or another object with a function ``adapter_for(x)``, which returns
        the `Adapter` of an array, or with ``container_for(x)``, which returns the `Container` of
        an object that holds an array; both return None for other objects.

        For "decoders", an object or module with two functions of the bytes of a file:
        ``accepts(data)``, and ``decode(data)``, which returns upright pixels: uint8 or uint16
        (height, width) or (height, width, 1 to 4 channels), or int32 or float32 (height, width),
        which are copied. It is asked for files that Pillow does not decode, by several threads at
        once. `layoutkit.images.read` says how 16 bits become 8.

    Raises
    ------
    ArgumentError
        The name belongs to layoutkit, to another package or to an extension of another name, or
        the extension does not have the form that the table needs.
    """
    check_choice("table", table, tuple(_TABLES), ArgumentError)
    _find_table(table).register(name, extension)
    backend_by_type.cache_clear()  # of classes that had no backend


def list_plugins() -> list[Plugin]:
    """Import the extensions of all installed packages, and return them by table and name.

    `layoutkit info` prints them, also those that do not load.
    """
    return [
        Plugin(table, name, package, target, _find_problem(_find_table(table), name))
        for table in _TABLES
        for name, targets in sorted(_find_table(table).entry_points.items())
        for package, target in targets.items()
    ]


def _find_table(name: str) -> Registry:
    table: Registry = import_target(_TABLES[name])
    return table


def _find_problem(table: Registry, name: str) -> str:
    first, *others = table.list_owners(name)
    if first == "layoutkit" and others:
        return "layoutkit has the name itself, and ignores this one"
    try:
        table.find(name)
    except ArgumentError as error:
        return str(error)
    return ""
