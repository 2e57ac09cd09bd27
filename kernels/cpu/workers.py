"""Handing work to a thread and waiting for it, without the interpreter or the kernel's futex.

Waking a sleeping thread takes 40 us or more. A worker that has just finished therefore looks
for its next job in a loop for a moment, and a hand-over to it takes a third of a microsecond.

The board is one block of 64-bit words. Its first line describes the job; every worker has a
line of its own behind it, whose first word is its state:

    IDLE -> POSTED    by the caller
    POSTED -> TAKEN   by the worker, which then draws chunks until none are left
    TAKEN -> DONE     by the worker; the caller makes it IDLE again
    POSTED -> IDLE    by the caller, when all chunks were drawn before the worker looked

A worker that wakes too late finds its line IDLE again, so nobody ever waits for a sleeper, and
the job's words do not change while anybody can still read them.
"""

from __future__ import annotations

from numba import uintp

from .simd import (
    call_kernel,
    exchange_if,
    fetch_add,
    i64_at,
    load_acquire,
    pause,
    store_release,
)
from .walk import inline
from .words import LINE

NEXT, CODE, PARAMS, SRC, DST, TOTAL, GRAIN = range(7)
IDLE, POSTED, TAKEN, DONE = range(4)
ASLEEP = 4  # word of a worker's line: 1 from when it stops looking until it looks again


@inline
def draw_chunks(board):
    """Run chunks of the job on the board until none are left."""
    total, grain = i64_at(board, TOTAL), i64_at(board, GRAIN)
    code, params = uintp(i64_at(board, CODE)), uintp(i64_at(board, PARAMS))
    src, dst = uintp(i64_at(board, SRC)), uintp(i64_at(board, DST))
    lo = fetch_add(board, grain)
    while lo < total:
        call_kernel(code, params, src, dst, lo, min(lo + grain, total))
        lo = fetch_add(board, grain)


def build(role):
    """The two sides of the hand-over, "serve" and "run", with a kernel's signature."""
    if role == "serve":

        def serve(params, board, line, spins, unused):
            """Take jobs from `line` until `spins` looks in a row have found none."""
            looks = 0
            while looks < spins:
                if load_acquire(line) == POSTED and exchange_if(line, POSTED, TAKEN):
                    draw_chunks(board)
                    store_release(line, DONE)
                    looks = 0
                pause()
                looks += 1
            # Said here and not by the caller of this code, which first waits for the interpreter's
            # lock: whoever posts in the meantime must know that nobody looks any more.
            store_release(line + uintp(8 * ASLEEP), 1)

        return serve

    def run(params, board, unused, workers, more):
        """Post the job on the board to `workers` workers, work too, and wait for who took it."""
        store_release(board, 0)
        for w in range(1, workers + 1):
            store_release(board + uintp(w * LINE), POSTED)
        draw_chunks(board)
        for w in range(1, workers + 1):
            line = board + uintp(w * LINE)
            if not exchange_if(line, POSTED, IDLE):
                while load_acquire(line) != DONE:
                    pause()
                store_release(line, IDLE)

    return run
