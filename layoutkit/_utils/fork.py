"""The lock around late imports and compilation, which `os.fork` waits for.

A forked child has one thread. If another thread was importing a module or compiling a kernel at the
moment of the fork, the child inherits an import lock, a Numba lock or an LLVM lock whose owner does
not exist in the child, and the child's first conversion hangs. So code that imports or compiles on
first use holds this lock, and so does a fork:

    with fork.init_lock:
        ...

Always write `fork.init_lock`, never `from fork import making`: a child gets a new lock. A function
that only imports late is decorated with `run_once`: it takes the lock the first time, and costs
nothing afterwards.

A thread that waits for the lock must not be importing a module that the owner of the lock may
import. So no module takes the lock while it is imported (except the command line, which no other
module imports), and only packages that do not import layoutkit are imported under it.

Handlers run before a fork in the reverse order of their registration. So code under the lock must
not need a lock whose fork handler is registered later: it would wait for the fork, and the fork for
it. Of Numba's imports, `logging` and `concurrent.futures` register such handlers, and are therefore
imported here.
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

Result = TypeVar("Result")

init_lock = threading.RLock()


def run_once(load: Callable[[], Result]) -> Callable[[], Result]:
    """Decorate a function to run once, under the lock; later calls return its first result."""

    @cache
    def wrapper() -> Result:
        with init_lock:
            return load()

    return wrapper


class HasForkState(Protocol):
    """An object with locks, threads or connections, which a forked child cannot use."""

    def reinit(self) -> None:
        """Replace the locks, threads or connections."""


_renewable: WeakSet[HasForkState] = WeakSet()


def reinit_after_fork(instance: HasForkState) -> None:
    """Call `reinit` of an object in every forked child, as long as the object exists."""
    _renewable.add(instance)


def _after_fork() -> None:
    global init_lock
    init_lock = threading.RLock()  # threads that wait for the old one do not exist in the child
    for instance in tuple(_renewable):
        instance.reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: init_lock.acquire(),
        after_in_parent=lambda: init_lock.release(),
        after_in_child=_after_fork,
    )
