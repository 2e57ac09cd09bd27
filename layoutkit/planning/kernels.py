"""Which kernel moves an array, and how its loops are cut. Pure: integers in, a `Plan` out.

A conversion visits every element once. Its axes become loops of (count, source step, output
step, coefficient step); then

1. `canonical` drops loops of one, turns backward ones around, orders them by output step and
   fuses neighbours that are one loop on both sides. `bhwc->bchw`, `bwc->bcw` and `bchw->chwb`
   all become one batched 2-D transpose, and `bhwc->chwb` a 3-D reversal.
2. `choose` looks at the innermost loops of both sides and names the kernel:

    copy, cast   the same innermost loop on both sides: runs are copied or converted
    split        the source ends in 2, 3 or 4 channels that the output holds apart
    merge        the output ends in 2, 3 or 4 channels that the source holds apart
    transpose    two long loops, one contiguous on each side: register tiles
    gather       whatever is left, item by item

Nothing here knows an array library, a device's registers or a thread; the launcher of a
device (`layoutkit.kernels.cpu.launch`) cuts the loops into blocks that fit its caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

__all__ = ["Choice", "Loop", "Loops", "canonical", "choose"]

MAX_OUTER = 8  # loops around a block; the caller of a kernel runs what is beyond
ITEMS = (1, 2, 4, 8, 16)  # bytes that kernels move at once
# Offsets along a gathered run are a table; a longer one would not stay in the first cache.
MAX_TABLE = 256
SHORT_AXIS = 32  # places; on a shorter axis, what its last register lacks is worth fusing for
SHORT_RUN = 64  # bytes; a shorter run costs more in loop overhead than going item by item
FEW = (2, 3, 4)  # channel counts that are rearranged between whole registers


class Loop(NamedTuple):
    """One loop: its count and the steps in the source, the output and the coefficients."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which no loop needs
    src: int
    dst: int
    coef: int = 0


@dataclass(frozen=True)
class Loops:
    """Loops in output order, outermost first, and the offsets of the first element visited."""

    loops: tuple[Loop, ...]
    item: int
    src_offset: int = 0
    dst_offset: int = 0
    coefs_backward: bool = False  # the coefficients are met in reverse


@dataclass(frozen=True)
class Choice:
    """A kernel and the roles of the loops.

    `run`: loops that are contiguous in the output, outermost first. `rows`: loops that are
    contiguous in the source (transpose and split only). `outer`: the rest, outermost first.
    `items` are the item sizes in bytes on both sides.
    """

    kernel: str
    channels: int
    run: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    source_item: int
    target_item: int
    beyond: tuple[Loop, ...] = ()  # outer loops that are too many for a kernel

    @property
    def count(self) -> int:
        """Items that one pass over the loops visits."""
        return prod(loop.count for loop in (*self.outer, *self.rows, *self.run))


# ---- canonical loops ---------------------------------------------------------------------


def canonical(loops: Sequence[Loop], itemsize: int, *, pure: bool) -> Loops:
    """Bring loops (in any order) to their shortest form. `pure`: bits move unchanged.

    Examples
    --------
    bhwc -> bchw of (2, 4, 4, 3) items of 4 bytes is one batched transpose:

    >>> hw = [Loop(4, 48, 16), Loop(4, 12, 4)]
    >>> for loop in canonical([Loop(2, 192, 192), Loop(3, 4, 64), *hw], 4, pure=True).loops:
    ...     print(tuple(loop))
    (2, 192, 192, 0)
    (3, 4, 64, 0)
    (16, 12, 4, 0)
    """
    item = itemsize
    todo = list(loops)
    if pure and itemsize not in ITEMS:
        item = max(size for size in ITEMS if itemsize % size == 0)
        todo.append(Loop(itemsize // item, item, item))
    todo = [loop for loop in todo if loop.count != 1]
    todo.sort(key=lambda loop: -abs(loop.dst))
    turned = _turn(todo, item)
    fused = _fuse(turned.loops)
    if pure:
        fused, item = _widen(fused, item)
    return replace(turned, loops=tuple(fused), item=item)


def _turn(loops: list[Loop], item: int) -> Loops:
    """Walk the output forwards; except the innermost, rather walk the source forwards."""
    turned, src, dst, coefs_backward = [], 0, 0, False
    for place, loop in enumerate(loops):
        innermost = place == len(loops) - 1
        backward = loop.dst < 0 if innermost or not loop.src else loop.src < 0
        if backward:
            src += (loop.count - 1) * loop.src
            dst += (loop.count - 1) * loop.dst
            coefs_backward |= loop.coef != 0
            loop = Loop(loop.count, -loop.src, -loop.dst, loop.coef)
        turned.append(loop)
    return Loops(tuple(turned), item, src, dst, coefs_backward)


def _fuse(loops: Sequence[Loop]) -> list[Loop]:
    """Join each loop with its inner neighbour where both sides step on without a gap."""
    fused: list[Loop] = []
    for loop in loops:
        if fused and _continues(fused[-1], loop):
            loop = loop._replace(count=loop.count * fused.pop().count)
        fused.append(loop)
    return fused


def _continues(outer: Loop, inner: Loop) -> bool:
    steps = zip(outer[1:], inner[1:], strict=True)
    return all(a == inner.count * b for a, b in steps)


def _widen(loops: list[Loop], item: int) -> tuple[list[Loop], int]:
    """A short innermost run that is contiguous on both sides is one larger item."""
    if len(loops) > 1 and loops[-1].src == loops[-1].dst == item:
        size = loops[-1].count * item
        if size in ITEMS:
            return loops[:-1], size
    return loops, item


# ---- the choice of a kernel --------------------------------------------------------------


def choose(plan: Loops, target_item: int, *, pure: bool) -> Choice:
    """Name the kernel for canonical loops and give every loop its role."""
    loops, item = plan.loops, plan.item
    target_item = item if pure else target_item
    if not loops:
        loops = (Loop(1, item, target_item),)
    inner = loops[-1]
    kernel, channels, run, rows = _roles(loops, item, target_item)
    if kernel == "copy" and not pure:
        kernel = "cast"
    if kernel == "gather" and inner.dst == target_item:
        run = _gather_run(loops)
    taken = [*run, *rows]
    outer = [loop for loop in loops if not any(loop is t for t in taken)]
    if kernel == "gather":
        outer = _near_last(outer)
    beyond = [loop for loop in outer if not loop.coef][: max(0, len(outer) - MAX_OUTER)]
    outer = [loop for loop in outer if not any(loop is b for b in beyond)]
    return Choice(kernel, channels, run, rows, tuple(outer), item, target_item, tuple(beyond))


Roles = tuple[str, int, tuple[Loop, ...], tuple[Loop, ...]]


def _roles(loops: tuple[Loop, ...], item: int, target_item: int) -> Roles:
    """(kernel, channels, run, rows) for the innermost loops of both sides."""
    inner = loops[-1]
    if inner.dst != target_item:
        return "gather", 0, (inner,), ()
    if inner.src == item:
        return _contiguous(loops, item, target_item)
    candidates = [loop for loop in loops[:-1] if loop.src == item]
    if not candidates:
        return "gather", 0, (inner,), ()
    row = max(candidates, key=lambda loop: loop.count)
    packed = row is loops[-2] and row.dst == inner.count * target_item
    if inner.count in FEW and packed and row.count * item >= 16 and not row.coef:
        return "merge", inner.count, (row, inner), ()
    packed = inner.src == row.count * item
    if row.count in FEW and packed and inner.count * item >= 16:
        return "split", row.count, (inner,), (row,)
    return _two_long(loops, row, item)


def _contiguous(loops: tuple[Loop, ...], item: int, target_item: int) -> Roles:
    """Runs are contiguous on both sides: copy or cast them, unless they are very short."""
    inner = loops[-1]
    run: tuple[Loop, ...] = (inner,)
    pixels = len(loops) > 1 and inner.coef > 0 and inner.count <= MAX_TABLE
    if pixels and _gapless(loops[-2], inner) and not loops[-2].coef:
        run = loops[-2:]  # the coefficients repeat along it
    short = prod(loop.count for loop in run) * min(item, target_item) < SHORT_RUN
    return ("gather" if short and len(loops) > len(run) else "copy"), 0, run, ()


def _gapless(outer: Loop, inner: Loop) -> bool:
    return outer.src == inner.count * inner.src and outer.dst == inner.count * inner.dst


def _two_long(loops: tuple[Loop, ...], row: Loop, item: int) -> Roles:
    """A transpose, its axes lengthened where they are too short to fill registers."""
    side = 16 // item
    inner = loops[-1]
    rows: tuple[Loop, ...] = (row,)
    run: tuple[Loop, ...] = (inner,)
    if _fills_badly(row, item):
        rows = _longer_rows(loops, row, inner, item)
    if _fills_badly(inner, item):
        run = _longer_run(loops, inner, rows)
    if _length(rows) < side or _length(run) < side:
        return "gather", 0, (inner,), ()
    return "transpose", 0, run, rows


def _longer_rows(loops: tuple[Loop, ...], row: Loop, inner: Loop, item: int) -> tuple[Loop, ...]:
    """Fuse the next loop of the source to the contiguous one."""
    for loop in loops:
        if loop is not inner and loop is not row and loop.src == row.count * item:
            return (loop, row)
    return (row,)


def _fills_badly(loop: Loop, item: int) -> bool:
    """Whether a loop is short, and no whole number of cache lines long."""
    return loop.count < SHORT_AXIS and loop.count * item % 64 != 0


def _longer_run(loops: tuple[Loop, ...], inner: Loop, rows: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Fuse the next loop of the output to the contiguous one."""
    if len(loops) < 2 or any(loops[-2] is row for row in rows) or loops[-2].coef:
        return (inner,)
    fits = loops[-2].dst == inner.count * inner.dst
    return (loops[-2], inner) if fits else (inner,)


def _length(loops: tuple[Loop, ...]) -> int:
    return prod(loop.count for loop in loops)


def _gather_run(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The longest contiguous run of the output whose period fits a table."""
    run = [loops[-1]]
    for loop in reversed(loops[:-1]):
        gapless = loop.dst == run[0].count * run[0].dst
        if not gapless or loop.coef or _length(tuple(run)) > MAX_TABLE:
            break
        run.insert(0, loop)
    return tuple(run)


def _near_last(outer: list[Loop]) -> list[Loop]:
    """Put the loop with the smallest source step innermost: its turns share cache lines."""
    if not outer:
        return outer
    near = min(outer, key=lambda loop: abs(loop.src) or 1 << 62)
    return [loop for loop in outer if loop is not near] + [near]
