"""Which kernel moves an array: the table of all kernels, one row each. Pure: integers in and out.

A row says when its kernel fits the canonical loops of a conversion (`planning.loops`) and what
each loop is to it, why it is chosen and what it then does, in words. `choose` takes the first row
that fits; what decides are the innermost loops of both sides.

Nothing here knows an array library, a device's registers or a thread; the launcher of a device
(`kernels/cpu/launch.py`, `kernels/cuda/launch.py`) cuts the loops into blocks that fit its caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .loops import CanonicalLoops, Loop
from .roles import Choice, InnerLoops, Roles, length

__all__ = [
    "KERNELS",
    "Choice",
    "InnerLoops",
    "KernelRow",
    "Roles",
    "choose",
    "why",
    "work",
]

# Offsets along a gathered run are a table; a longer one would not stay in the first cache.
MAX_TABLE = 256
SHORT_AXIS = 32  # places; on a shorter axis, what its last register lacks is worth fusing for
SHORT_RUN = 64  # bytes; a shorter run costs more in loop overhead than going item by item
FEW = (2, 3, 4)  # channel counts that are rearranged between whole registers
LEAST_PIXELS = 16  # bytes of one channel that make up a register


@dataclass(frozen=True)
class KernelRow:
    """A kernel: whether it fits (None: no) and the roles of the loops, and the words of a plan.

    `work` may name: times (turns of the outer loops), run and rows (items along them), pixels
    (places of the outermost loop of the run) and channels.
    """

    name: str
    fits: Callable[[InnerLoops], Roles | None]
    why: str
    work: str
    why_on_a_gpu: str = ""  # where it is another


# ---- copy and cast -----------------------------------------------------------------------


def _contiguous(inner: InnerLoops, *, pure: bool) -> Roles | None:
    """Runs are contiguous on both sides, and not very short."""
    loops, last = inner.loops, inner.last
    if pure != inner.pure or (last.src, last.dst) != (inner.item, inner.target_item):
        return None
    run: tuple[Loop, ...] = (last,)
    pixels = len(loops) > 1 and last.coef > 0 and last.count <= MAX_TABLE
    if pixels and _gapless(loops[-2], last) and not loops[-2].coef:
        run = loops[-2:]  # the coefficients repeat along it
    short = length(run) * min(inner.item, inner.target_item) < SHORT_RUN
    return None if short and len(loops) > len(run) else inner.roles(run)


def _gapless(outer: Loop, inner: Loop) -> bool:
    return outer.src == inner.count * inner.src and outer.dst == inner.count * inner.dst


# ---- merge and split ---------------------------------------------------------------------


def _merge(inner: InnerLoops) -> Roles | None:
    row, last = inner.row, inner.last
    if row is None or row.coef or last.count not in FEW:
        return None
    packed = row is inner.loops[-2] and row.dst == last.count * inner.target_item
    if not packed or row.count * inner.item < LEAST_PIXELS:
        return None
    return inner.roles((row, last), channels=last.count)


def _split(inner: InnerLoops, direction: int) -> Roles | None:
    row, last = inner.row, inner.last
    if row is None or row.count not in FEW:
        return None
    packed = last.src == direction * row.count * inner.item
    if not packed or last.count * inner.item < LEAST_PIXELS:
        return None
    return inner.roles((last,), (row,), channels=row.count)


def _flip(inner: InnerLoops) -> Roles | None:
    """Items, or pixels of few channels, that lie backward in the source."""
    last, item, target = inner.last, inner.item, inner.target_item
    if last.dst != target:
        return None
    if last.src == -item:
        return inner.roles((last,), channels=1) if last.count * item >= LEAST_PIXELS else None
    if len(inner.loops) < 2 or last.count not in FEW or last.src != item:
        return None
    pixels = inner.loops[-2]
    packed = (pixels.src, pixels.dst) == (-last.count * item, last.count * target)
    if not packed or pixels.coef or pixels.count * item < LEAST_PIXELS:
        return None
    return inner.roles((pixels, last), channels=last.count)


def _shuffle(inner: InnerLoops) -> Roles | None:
    """Never by its loops alone: see `picking.py`."""
    return None


# ---- transpose ---------------------------------------------------------------------------


def _transpose(inner: InnerLoops) -> Roles | None:
    """Two long axes, lengthened where they are too short to fill registers."""
    row, last, side = inner.row, inner.last, 16 // inner.item
    if row is None:
        return None
    rows: tuple[Loop, ...] = (row,)
    run: tuple[Loop, ...] = (last,)
    if _fills_badly(row, inner.item):
        rows = _longer_rows(inner.loops, row, last, inner.item)
    if _fills_badly(last, inner.item):
        run = _longer_run(inner.loops, last, rows)
    return inner.roles(run, rows) if min(length(rows), length(run)) >= side else None


def _fills_badly(loop: Loop, item: int) -> bool:
    """Whether a loop is short, and no whole number of cache lines long."""
    return loop.count < SHORT_AXIS and loop.count * item % 64 != 0


def _longer_rows(loops: tuple[Loop, ...], row: Loop, last: Loop, item: int) -> tuple[Loop, ...]:
    """Fuse the next loop of the source to the contiguous one."""
    for loop in loops:
        if loop is not last and loop is not row and loop.src == row.count * item:
            return (loop, row)
    return (row,)


def _longer_run(loops: tuple[Loop, ...], last: Loop, rows: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Fuse the next loop of the output to the contiguous one."""
    if len(loops) < 2 or any(loops[-2] is row for row in rows) or loops[-2].coef:
        return (last,)
    fits = loops[-2].dst == last.count * last.dst
    return (loops[-2], last) if fits else (last,)


# ---- gather ------------------------------------------------------------------------------


def _gather(inner: InnerLoops) -> Roles:
    """Always fits. The run is the longest one of the output whose period fits a table."""
    run = [inner.last]
    if inner.last.dst == inner.target_item:
        for loop in reversed(inner.loops[:-1]):
            gapless = loop.dst == run[0].count * run[0].dst
            if not gapless or loop.coef or length(run) > MAX_TABLE:
                break
            run.insert(0, loop)
    roles = inner.roles(run)
    return roles._replace(outer=_near_last(roles.outer))


def _near_last(outer: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Put the loop with the smallest source step innermost: its turns share cache lines."""
    if not outer:
        return outer
    near = min(outer, key=lambda loop: abs(loop.src) or 1 << 62)
    return (*(loop for loop in outer if loop is not near), near)


# ---- the table ---------------------------------------------------------------------------

_RUNS = "{times} x a run of {run} items"

KERNELS = [
    KernelRow(
        "copy",
        partial(_contiguous, pure=True),
        "both sides are contiguous along the same axes: runs are copied",
        _RUNS,
    ),
    KernelRow(
        "cast",
        partial(_contiguous, pure=False),
        "both sides are contiguous along the same axes: runs are converted as they pass",
        _RUNS,
    ),
    KernelRow(
        "merge",
        _merge,
        "few channels, apart in x and side by side in the result: whole registers are sorted",
        "{times} x {pixels} pixels of {channels} channels, put together",
        "few channels, apart in x and side by side in the result: pixels are put together",
    ),
    KernelRow(
        "split",
        partial(_split, direction=1),
        "few channels, side by side in x and apart in the result: whole registers are sorted",
        "{times} x {pixels} pixels of {channels} channels, taken apart",
        "few channels, side by side in x and apart in the result: pixels are taken apart",
    ),
    KernelRow(
        "flip",
        _flip,
        "x lies backward along the innermost axes: whole registers are turned around",
        "{times} x {pixels} pixels of {channels} channels, turned around",
        "x lies backward along the innermost axes: item by item",
    ),
    KernelRow(
        "shuffle",
        _shuffle,
        "channels of pixels are taken in another order, side by side on both sides: whole "
        "registers are shuffled",
        "{times} x {pixels} pixels of {channels} channels",
        "channels of pixels are taken in another order, side by side on both sides: item by item",
    ),
    KernelRow(
        "flipsplit",
        partial(_split, direction=-1),
        "few channels, side by side in x, which lies backward, and apart in the result: whole "
        "registers are sorted",
        "{times} x {pixels} pixels of {channels} channels, turned around and taken apart",
        "few channels, side by side in x, which lies backward, and apart in the result: item by "
        "item",
    ),
    KernelRow(
        "transpose",
        _transpose,
        "the contiguous axis changes: register tiles, whole cache lines on both sides",
        "{times} x a 2-D transpose of {rows} by {run} items",
        "the contiguous axis changes: tiles in shared memory, whole rows on both sides",
    ),
    KernelRow(
        "gather", _gather, "no axis is long and contiguous on either side: item by item", _RUNS
    ),
]

# What plans without a kernel are called, and why they need none.
_NO_KERNEL = {
    "view": "nothing has to move: the result shares the memory of x",
    "empty": "the array has no elements",
}


def choose(found: CanonicalLoops, target_item: int, *, pure: bool) -> Choice:
    """Name the kernel for canonical loops and give every loop its role."""
    target_item = found.item if pure else target_item
    loops = found.loops or (Loop(1, found.item, target_item),)
    inner = InnerLoops(loops, found.item, target_item, pure)
    fitting = ((row.name, row.fits(inner)) for row in KERNELS)
    name, roles = next((name, roles) for name, roles in fitting if roles is not None)
    return roles.choice(name, inner)


def why(kernel: str, *, on_a_gpu: bool) -> str:
    """Why a plan has this kernel, or none ("view", "empty"), in words."""
    if kernel in _NO_KERNEL:
        return _NO_KERNEL[kernel]
    row = _row(kernel)
    return row.why_on_a_gpu or row.why if on_a_gpu else row.why


def work(choice: Choice) -> str:
    """The loops in words: how many times what is done."""
    size = choice.source_item
    done = _row(choice.kernel).work.format(
        times=length(choice.outer), run=length(choice.run), rows=length(choice.rows),
        pixels=choice.run[0].count, channels=choice.channels,
    )  # fmt: skip
    return f"{done}, {size} byte{'s' if size > 1 else ''} each"


def _row(kernel: str) -> KernelRow:
    return next(row for row in KERNELS if row.name == kernel)
