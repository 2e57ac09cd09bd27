"""Tables by name that other packages extend: by `register`, or by the entry points of a group.

Installed packages are searched for entry points once per table, when it is first asked for a name
that none of its rows has. Only the package with that name is then imported, so a package that does
not load affects no other name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any

from ..errors import ArgumentError
from . import fork
from .errors import reason

Targets = dict[str, str]  # "module" or "module:attribute", by the package that has it


class Registry:
    """A table by name, in which `-` and `_` are equivalent, and a suffix may begin with a dot.

    Parameters
    ----------
    group : str
        The group of the entry points that extend the table.
    noun : str
        The name of a row in messages, such as "the sampler".
    rows : mapping
        The rows of layoutkit: values, or text "module:attribute" that is imported on first use.
    accept : function
        Called with the name and the extension of another package. Returns the row, or raises
        ArgumentError with a clause that says what is missing.
    """

    def __init__(
        self, group: str, noun: str, rows: Mapping[str, Any], accept: Callable[[str, Any], Any]
    ) -> None:
        self.group = group
        self.rows = dict(rows)  # of layoutkit, registered ones, and loaded entry points
        self._noun = noun
        self._accept = accept
        self._owners = dict.fromkeys(rows, "layoutkit")  # of the rows without an entry point

    def __contains__(self, name: str) -> bool:
        key = _normalize(name)
        return key in self.rows or key in self.entry_points

    def __iter__(self) -> Iterator[str]:
        """Yield all names: of layoutkit, registered ones, and of installed packages."""
        return iter(dict.fromkeys((*self.rows, *self.entry_points)))

    @cached_property
    def entry_points(self) -> dict[str, Targets]:
        """The entry points of the group by name."""
        with fork.init_lock:
            return list_entry_points(self.group)

    def find(self, name: str) -> Any:
        """Return the row of a name, or None if there is none.

        Raises
        ------
        ArgumentError
            Several packages have the name, or the package does not load, or has the wrong object.
        """
        key = _normalize(name)
        if key not in self.rows and key in self.entry_points:
            self.rows[key] = self._load(key)
        row = self.rows.get(key)
        if isinstance(row, str):
            with fork.init_lock:
                row = self.rows[key] = import_target(row)
        return row

    def register(self, name: str, extension: Any) -> None:
        """Add a row, or replace one that has the module and name of `extension`.

        Raises
        ------
        ArgumentError
            The name belongs to something else, or the extension has the wrong form.
        """
        key = _normalize(name)
        target = describe_extension(extension)
        owners = self.list_owners(key)
        if owners and not all(owner.endswith(target) for owner in owners):
            raise ArgumentError(
                f"{self._noun} {key} is of {' and '.join(owners)} already; register {target} by "
                "another name"
            )
        self.rows[key] = self._check(key, extension, target)
        self._owners[key] = target

    def list_owners(self, key: str) -> list[str]:
        """Return the texts that name layoutkit, a registered object or packages with a name."""
        own = [self._owners[key]] if key in self._owners else []
        points = sorted(self.entry_points.get(key, {}).items())
        return own + [f"{package}, {target}" for package, target in points]

    def _load(self, key: str) -> Any:
        owners = self.list_owners(key)
        if len(owners) > 1:
            raise ArgumentError(
                f"{self._noun} {key} is of {' and of '.join(owners)}; uninstall all but one package"
            )
        # Not under the lock: the package may import layoutkit.
        try:
            (target,) = self.entry_points[key].values()
            extension = import_target(target)
        except Exception as error:  # a module may raise anything
            raise ArgumentError(
                f"{self._noun} {key} of {owners[0]} does not load: {reason(error)}; repair or "
                "uninstall the package"
            ) from error
        return self._check(key, extension, owners[0])

    def _check(self, key: str, extension: Any, owner: str) -> Any:
        try:
            return self._accept(key, extension)
        except ArgumentError as error:
            raise ArgumentError(f"{self._noun} {key} of {owner} {error}") from None


def list_entry_points(group: str) -> dict[str, Targets]:
    """Return the entry points of installed packages by name."""
    from importlib.metadata import entry_points  # lazy: takes as long as `import layoutkit`

    names: dict[str, Targets] = {}
    for point in entry_points(group=group):
        package = "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        names.setdefault(_normalize(point.name), {})[package] = point.value.replace(" ", "")
    return names


def import_target(target: str) -> Any:
    """Return a module, or an attribute of one: "module:attribute"."""
    module, _, attribute = target.partition(":")
    imported = import_module(module)
    return attrgetter(attribute)(imported) if attribute else imported


def check_has(extension: Any, *methods: str) -> None:
    """Raise ArgumentError with a clause that names a missing method, the first of `methods`."""
    for name in methods:
        if not callable(getattr(extension, name, None)):
            raise ArgumentError(
                f"is {describe_extension(extension)}, which has no function {name}; it needs "
                f"{' and '.join(methods)}"
            )


def _normalize(name: str) -> str:
    return name.lstrip(".").replace("_", "-")


def describe_extension(extension: Any) -> str:
    """Return the name of a module, or "module:name" of a function, a class or an object's class."""
    if hasattr(extension, "__spec__"):
        return str(extension.__name__)
    named = extension if hasattr(extension, "__qualname__") else type(extension)
    return f"{named.__module__}:{named.__qualname__}"
