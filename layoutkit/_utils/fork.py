"""The lock for late imports and compilation; `os.fork` waits for it.

A forked child has one thread. If another thread was importing a module or compiling a kernel at the
moment of the fork, the child inherits an import lock, a Numba lock or an LLVM lock whose owner does
not exist in the child, and the child's first conversion hangs. So code that imports or compiles on
first use holds `init_lock`, and `os.fork` acquires it first:

    with fork.init_lock:
        ...

Always write `fork.init_lock`, never `from fork import init_lock`: a forked child replaces the lock.
A function that only imports modules is decorated with `run_once`, which acquires the lock in the
first call only.

A thread that waits for the lock must not be importing a module that the owner of the lock may
import. So no module acquires the lock while it is imported (except the command line, which no other
module imports), and other packages are imported under the lock only if they do not import
layoutkit.

Python runs the handlers before a fork in the reverse order of their registration. So code under the
lock must not need a lock whose handler is registered later than the one below: the fork would hold
that lock and wait for `init_lock`, a deadlock. Numba imports `logging` and `concurrent.futures`,
which register such handlers; this module imports both first.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Protocol, TypeVar
from weakref import WeakSet

from . import system

Result = TypeVar("Result")

init_lock = threading.RLock()


def run_once(load: Callable[[], Result]) -> Callable[[], Result]:
    """Decorate `load` to run once, under the lock; later calls return its first result."""

    results: list[Result] = []

    @cache  # threads that call at the same time may all run the cached function
    @wraps(load)
    def wrapper() -> Result:
        with init_lock:
            if not results:
                results.append(load())
            return results[0]

    return wrapper


class HasForkState(Protocol):
    """An object with locks, threads or connections, which a forked child cannot use."""

    def reinit(self) -> None:
        """Replace the locks, threads or connections."""


_instances: WeakSet[HasForkState] = WeakSet()


def reinit_after_fork(instance: HasForkState) -> None:
    """Call `instance.reinit()` in every forked child, as long as the instance exists."""
    _instances.add(instance)


def _after_fork() -> None:
    global init_lock
    init_lock = threading.RLock()  # threads that wait for the old lock do not exist in the child
    for instance in tuple(_instances):
        instance.reinit()


system.register_at_fork(
    before=lambda: init_lock.acquire(),
    after_in_parent=lambda: init_lock.release(),
    after_in_child=_after_fork,
)
