"""The lock of everything that a process makes once, which a fork waits for.

A forked child has one thread. If another one imported a module or compiled a kernel at the moment
of the fork, the child inherits the locks of the import, of Numba or of LLVM in the hands of a
thread that it does not have, and its own first conversion hangs. So the first conversion of a kind
takes this lock around all that it imports and compiles, and so does a fork:

    with forks.making:
        ...

Named by its module each time, as a child gets a new lock. A function that does nothing but import
late is a `once`: it takes the lock the first time, and costs nothing afterwards.

Who waits for the lock must not hold the import of a module that may be wanted under it. So no
module takes it while it is imported (the command line aside, which no other module imports), and of
other packages only those are imported under it that know nothing of us.

Handlers run before a fork in the reverse order of their registration, so who makes something may
need none of the locks that are registered later: it would wait for the fork, and the fork for it.
Of Numba's imports `logging` and `concurrent.futures` have one, and are therefore imported here.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeVar
from weakref import WeakSet

__all__ = ["making", "once", "renew_in_children"]

Loaded = TypeVar("Loaded")

making = threading.RLock()


def once(load: Callable[[], Loaded]) -> Callable[[], Loaded]:
    """What imports late, called under the lock and once; later calls give what it gave."""

    @cache
    def loaded() -> Loaded:
        with making:
            return load()

    return loaded


class Renewable(Protocol):
    """What has locks, threads or connections, which a forked child cannot use."""

    def renew(self) -> None:
        """Begin anew."""


_renewable: WeakSet[Renewable] = WeakSet()


def renew_in_children(thing: Renewable) -> None:
    """Call `renew` of a thing in every forked child, as long as the thing is there."""
    _renewable.add(thing)


def _after_fork() -> None:
    global making
    making = threading.RLock()  # on the old one there may be waiters that do not exist here
    for thing in tuple(_renewable):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: making.acquire(),
        after_in_parent=lambda: making.release(),
        after_in_child=_after_fork,
    )
