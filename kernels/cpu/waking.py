"""How workers go to sleep and how they are woken: flags, locks, and which CPU they wake on.

Before a worker sleeps it says so (ASLEEP), and looks once more; who takes that flag down has to
release its lock, once.

Linux woke workers on the caller's own CPU 194 times of 200, though the other one was idle, and took
2 to 4 ms to move them: so before it is woken, a worker is restricted to the other CPUs.
"""

from __future__ import annotations

from numba import uintp

from .atomics import call, exchange_if, load_acquire
from .board import (
    ACQUIRE,
    ASLEEP,
    AVOIDED,
    CALLER,
    CPU_BYTES,
    CPU_WORDS,
    CPUS,
    FIRST,
    GETCPU,
    GETTID,
    IDLE,
    LOCK,
    NAPS,
    POSTED,
    RELEASE,
    SETCPUS,
    TEAM,
    THREAD,
)
from .simd import i64_at, i64_put, stack
from .walk import inline
from .words import LINE


@inline
def line_of(board, worker):
    """The line of a worker; they count from 1, the caller is 0."""
    return board + uintp((worker + FIRST - 1) * LINE)


@inline
def rouse(board, number):
    """Wake the next two of those who sleep; they do the same, so that many wake in a short time."""
    woken = 0
    for worker in range(number + 1, i64_at(board, TEAM)):
        line = line_of(board, worker)
        if load_acquire(line + uintp(8 * ASLEEP)) == 1 and exchange_if(line, IDLE, POSTED):
            if exchange_if(line + uintp(8 * ASLEEP), 1, 0):
                steer(board, line)
                call(uintp(i64_at(board, RELEASE)), uintp(i64_at(line, LOCK)), 0, 0, 0)
            woken += 1
            if woken == 2:
                return


@inline
def steer(board, line):
    """Let a worker run on all CPUs but the caller's, if that is not so already."""
    cpu = i64_at(board, CALLER)
    if cpu < 0 or cpu == i64_at(line, AVOIDED):
        return
    i64_put(line, AVOIDED, cpu)
    others = stack(CPU_BYTES)
    for word in range(CPU_WORDS):
        mask = i64_at(board, CPUS + word)
        i64_put(others, word, mask & ~(1 << (cpu & 63)) if word == cpu >> 6 else mask)
    call(uintp(i64_at(board, SETCPUS)), uintp(i64_at(line, THREAD)), CPU_BYTES, others, 0)


@inline
def sleep(board, line):
    """Wait until somebody posts a job and wakes this worker."""
    asleep = line + uintp(8 * ASLEEP)
    i64_put(line, NAPS, i64_at(line, NAPS) + 1)
    exchange_if(asleep, 0, 1)
    if load_acquire(line) != POSTED or not exchange_if(asleep, 1, 0):
        call(uintp(i64_at(board, ACQUIRE)), uintp(i64_at(line, LOCK)), 1, 0, 0)


@inline
def note_caller(board):
    """Write down which CPU the caller is on, -1 where that cannot be told or kept."""
    known = (
        i64_at(board, GETCPU) != 0 and i64_at(board, SETCPUS) != 0 and i64_at(board, GETTID) != 0
    )
    i64_put(board, CALLER, call(uintp(i64_at(board, GETCPU)), 0, 0, 0, 0) if known else -1)
