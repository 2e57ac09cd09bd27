"""The compiled code of the thread pool: post jobs to workers and wait, without the interpreter.

A worker is a thread without Python state: it runs `serve` until the process ends. A sleeping worker
starts 40 to 200 us after it is woken, which depends on the machine and is measured by every woken
worker, and waking it takes the caller 5 us. So a worker that has finished a job spins for a while
before it sleeps; a spinning worker starts a job within 0.3 us. If all workers sleep, the caller
begins alone. It wakes them if the rest of the job takes longer than waking, or if it has run jobs
without a pause for much longer: in such a loop, woken workers stay awake for the next jobs.

The board (threadpool_state.py) is one block of 64-bit words. It has a cache line for each worker,
whose first word is the state of the worker:

    IDLE -> POSTED    by the caller, or by a worker on its behalf
    POSTED -> TAKEN   by the worker, which then draws chunks until none are left
    TAKEN -> DONE     by the worker; the caller makes it IDLE again
    POSTED -> IDLE    by the caller, if all chunks were drawn before the worker took the job

A worker that wakes too late finds its state IDLE again, so the caller never waits for a sleeping
worker, and the words of a job do not change while a worker can read them.

Before a worker sleeps, it sets its flag ASLEEP and checks its state once more. The thread that
clears this flag must release the lock of the worker once.

Linux woke workers on the CPU of the caller in 194 of 200 cases, although the other CPU was idle,
and took 2 to 4 ms to migrate them. So the waking thread first restricts a worker to other CPUs.
"""

from __future__ import annotations

from numba import uintp

from .atomics import (
    call,
    call_kernel,
    exchange_if,
    fetch_add,
    load_acquire,
    pause,
    store_release,
    ticks,
)
from .params import LINE
from .simd import i64_at, i64_put, stack
from .threadpool_state import (
    ACQUIRE,
    ALONE,
    ALONE_UNTIL,
    ASLEEP,
    AVOIDED_CPU,
    BUSY,
    CALLER_CPU,
    CODE,
    CPU_BYTES,
    CPU_WORDS,
    CPUS,
    DONE,
    DST,
    FIRST,
    GETCPU,
    GETTID,
    GRAIN,
    IDLE,
    JOIN,
    LATENCY,
    LOCK,
    NUMBER,
    PARALLEL,
    PARAMS,
    PENALTY,
    POSTED,
    READY,
    RELEASE,
    SETCPUS,
    SKIP,
    SLEEP_COUNT,
    SPIN_TICKS,
    SRC,
    TAKEN,
    TEAM,
    THREAD,
    TICKET,
    TOTAL,
    WAKE_OTHERS,
    WAKE_TICKS,
    WOKEN_AT,
)
from .walk import inline


@inline
def worker_line(board, worker):
    """Return the address of the cache line of a worker; workers are counted from 1."""
    return board + uintp((worker + FIRST - 1) * LINE)


@inline
def wake_two(board, number):
    """Wake the next two sleeping workers; each of them wakes two more."""
    count = 0
    for worker in range(number + 1, i64_at(board, TEAM)):
        line = worker_line(board, worker)
        if load_acquire(line + uintp(8 * ASLEEP)) == 1 and exchange_if(line, IDLE, POSTED):
            if exchange_if(line + uintp(8 * ASLEEP), 1, 0):
                i64_put(line, WOKEN_AT, ticks())
                avoid_caller_cpu(board, line)
                call(uintp(i64_at(board, RELEASE)), uintp(i64_at(line, LOCK)), 0, 0, 0)
            count += 1
            if count == 2:
                return


@inline
def avoid_caller_cpu(board, line):
    """Exclude the caller's CPU from the CPUs of a worker, unless it is excluded already."""
    cpu = i64_at(board, CALLER_CPU)
    if cpu < 0 or cpu == i64_at(line, AVOIDED_CPU):
        return
    i64_put(line, AVOIDED_CPU, cpu)
    allowed = stack(CPU_BYTES)
    for word in range(CPU_WORDS):
        mask = i64_at(board, CPUS + word)
        i64_put(allowed, word, mask & ~(1 << (cpu & 63)) if word == cpu >> 6 else mask)
    call(uintp(i64_at(board, SETCPUS)), uintp(i64_at(line, THREAD)), CPU_BYTES, allowed, 0)


@inline
def sleep(board, line):
    """Sleep until a thread posts a job and wakes this worker."""
    asleep = line + uintp(8 * ASLEEP)
    i64_put(line, SLEEP_COUNT, i64_at(line, SLEEP_COUNT) + 1)
    exchange_if(asleep, 0, 1)
    if load_acquire(line) != POSTED or not exchange_if(asleep, 1, 0):
        call(uintp(i64_at(board, ACQUIRE)), uintp(i64_at(line, LOCK)), 1, 0, 0)
        note_latency(board, line)


@inline
def note_latency(board, line):
    """Let the expected time of waking, at first 0, follow the time that waking this worker took."""
    taken = min(ticks() - i64_at(line, WOKEN_AT), i64_at(board, WAKE_TICKS))
    expected = i64_at(board, LATENCY)
    i64_put(board, LATENCY, expected + (taken - expected) // SAMPLES if expected else taken)


@inline
def note_caller(board):
    """Store the caller's CPU, or -1 if it is unknown or affinity cannot be set."""
    known = (
        i64_at(board, GETCPU) != 0 and i64_at(board, SETCPUS) != 0 and i64_at(board, GETTID) != 0
    )
    i64_put(board, CALLER_CPU, call(uintp(i64_at(board, GETCPU)), 0, 0, 0, 0) if known else -1)


PROBE = 8  # the caller runs 1 / PROBE of a job alone, to estimate the time of the rest
SAMPLES = 4  # a measured time of waking moves the estimate by 1 / SAMPLES of the difference
SHORT_SPIN = 8  # after a long wait, a worker spins for 1 / SHORT_SPIN of the usual time
LOOP_LATENCIES = 4  # times of waking that jobs without a pause run alone before workers are woken
MOST_SKIPPED = 63  # maximum jobs in a row without workers, after workers delayed several jobs


@inline
def draw_chunk(board):
    """Take a chunk of the job; return its first and end unit, both TOTAL if no unit is left.

    A chunk has GRAIN units, and fewer towards the end of the job, so that threads do not wait long
    for the last chunk.
    """
    total = i64_at(board, TOTAL)
    left = total - load_acquire(board)
    size = max(1, min(i64_at(board, GRAIN), left // (2 * i64_at(board, TEAM))))
    lo = min(fetch_add(board, size), total)
    return lo, min(lo + size, total)


@inline
def run_chunk(board, lo, hi):
    """Run the kernel of the job on the units lo to hi."""
    code = uintp(i64_at(board, CODE))
    params = uintp(i64_at(board, PARAMS))
    call_kernel(code, params, uintp(i64_at(board, SRC)), uintp(i64_at(board, DST)), lo, hi)


@inline
def run_chunks(board):
    """Draw chunks until none are left."""
    lo, hi = draw_chunk(board)
    while lo < hi:
        run_chunk(board, lo, hi)
        lo, hi = draw_chunk(board)


def serve(line, unused_src, unused_dst, unused_lo, unused_hi):
    """Run a worker: take jobs posted to its cache line until the process ends."""
    number = i64_at(line, NUMBER)
    board = line - uintp((number + FIRST - 1) * LINE)
    if i64_at(board, GETTID):
        i64_put(line, THREAD, call(uintp(i64_at(board, GETTID)), 0, 0, 0, 0))
    spin = i64_at(board, SPIN_TICKS)
    spin_ticks = spin
    while True:
        idle = ticks()
        while not (load_acquire(line) == POSTED and exchange_if(line, POSTED, TAKEN)):
            pause()
            if ticks() - idle > spin_ticks:
                sleep(board, line)
                spin_ticks = spin
        # After a long wait, another long wait is likely, so the worker spins for a shorter time.
        spin_ticks = spin if ticks() - idle < spin else spin // SHORT_SPIN
        if i64_at(board, WAKE_OTHERS):
            wake_two(board, number)
        run_chunks(board)
        store_release(line, DONE)


@inline
def post_job(board, job, src, dst, team):
    """Write a job to the board, with no unit taken yet."""
    i64_put(board, CODE, i64_at(job, 0))
    i64_put(board, PARAMS, i64_at(job, 1))
    i64_put(board, SRC, src)
    i64_put(board, DST, dst)
    i64_put(board, TOTAL, i64_at(job, 2))
    i64_put(board, GRAIN, i64_at(job, 3))
    i64_put(board, TEAM, team)
    i64_put(board, WAKE_OTHERS, 0)
    i64_put(board, TICKET, 0)
    store_release(board, 0)


@inline
def run_alone(job, src, dst, lo, hi):
    """Run the units lo to hi of a job on this thread, without the board."""
    call_kernel(uintp(i64_at(job, 0)), uintp(i64_at(job, 1)), src, dst, lo, hi)


@inline
def time_alone(board, now):
    """Return the ticks that jobs up to now have run on the caller alone, without a pause."""
    pause_ticks = now - i64_at(board, ALONE_UNTIL)
    return i64_at(board, ALONE) if pause_ticks < i64_at(board, SPIN_TICKS) // SHORT_SPIN else 0


@inline
def run_shared(board, job, src, dst, workers):
    """Run a job with up to `workers` workers."""
    total = i64_at(job, 2)
    urgent = i64_at(job, 4)
    post_job(board, job, src, dst, workers + 1)
    awake = 0
    for worker in range(1, workers + 1):
        line = worker_line(board, worker)
        if load_acquire(line + uintp(8 * ASLEEP)) == 0:
            store_release(line, POSTED)
            awake += 1
    start_ticks = ticks()
    if awake == 0 and not urgent:
        alone = time_alone(board, start_ticks)
        first = total // PROBE + 1
        run_alone(job, src, dst, 0, first)
        rest = (ticks() - start_ticks) * (total - first) // first
        latency = i64_at(board, LATENCY)
        if rest < latency + latency // 2 and alone + rest < LOOP_LATENCIES * latency:
            run_alone(job, src, dst, first, total)
            end_ticks = ticks()
            i64_put(board, ALONE, alone + end_ticks - start_ticks)
            i64_put(board, ALONE_UNTIL, end_ticks)
            return
        store_release(board, first)
        urgent = 1
    elif awake < workers and not urgent:
        lo, hi = draw_chunk(board)
        run_chunk(board, lo, hi)
        left = (total - hi) // (awake + 1)  # units of each awake thread
        latency = i64_at(board, LATENCY)
        urgent = (ticks() - start_ticks) * left > (latency + latency // 2) * (hi - lo)
    if urgent and awake < workers:
        note_caller(board)
        i64_put(board, WAKE_OTHERS, 1)
        wake_two(board, 0)
    run_chunks(board)
    worked = ticks()
    for worker in range(1, workers + 1):
        line = worker_line(board, worker)
        if load_acquire(line) != IDLE and not exchange_if(line, POSTED, IDLE):
            while load_acquire(line) != DONE:
                pause()
            store_release(line, IDLE)
    # The caller must wait for a worker that was preempted while it ran a chunk. After a long wait,
    # the next jobs run without workers: 1 job, then 3, 7, ...
    waited = ticks() - worked
    if waited > max((worked - start_ticks) // 4, i64_at(board, SPIN_TICKS) // SHORT_SPIN):
        penalty = min(2 * i64_at(board, PENALTY) + 1, MOST_SKIPPED)
        i64_put(board, PENALTY, penalty)
        i64_put(board, SKIP, penalty)
    else:
        i64_put(board, PENALTY, 0)


def run(job, src, dst, board_address, threads):
    """Run a job on up to `threads` threads, or on this thread if another caller uses the board.

    `job` has the words CODE, PARAMS, TOTAL, GRAIN, and a flag to wake all workers immediately.
    """
    board = uintp(board_address)
    total = i64_at(job, 2)
    workers = min(min(threads - 1, i64_at(board, READY)), total - 1)
    if workers < 1 or not exchange_if(board + uintp(8 * BUSY), 0, 1):
        run_alone(job, src, dst, 0, total)
        return
    skip = i64_at(board, SKIP)
    if skip > 0:
        i64_put(board, SKIP, skip - 1)
        store_release(board + uintp(8 * BUSY), 0)
        run_alone(job, src, dst, 0, total)
        return
    run_shared(board, job, src, dst, workers)
    store_release(board + uintp(8 * BUSY), 0)


def lend(job, src, dst, board_address, threads):
    """Run a job on up to `threads` threads of another runtime, which starts `join` in each."""
    board = uintp(board_address)
    if not exchange_if(board + uintp(8 * BUSY), 0, 1):
        run_alone(job, src, dst, 0, i64_at(job, 2))
        return
    post_job(board, job, src, dst, threads)
    call(uintp(i64_at(board, PARALLEL)), uintp(i64_at(board, JOIN)), board, 0, 0)
    store_release(board + uintp(8 * BUSY), 0)


def join(board, unused_src, unused_dst, unused_lo, unused_hi):
    """Run chunks on a thread of another runtime; only the first TEAM threads do so."""
    if fetch_add(board + uintp(8 * TICKET), 1) < i64_at(board, TEAM):
        run_chunks(board)


def clock(params, word, unused_dst, unused_lo, unused_hi):
    """Store the current time in ticks."""
    i64_put(word, 0, ticks())


ENTRY_POINTS = {function.__name__: function for function in (serve, run, lend, join, clock)}


def build(role):
    """Return the entry point of a role, a function with the signature of a kernel."""
    return ENTRY_POINTS[role]
