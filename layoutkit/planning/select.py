"""Select the kernel of a conversion and the role of each loop in it.

`KERNELS` is the table of all kernels. A row decides whether its kernel fits the canonical loops of
a conversion (`planning.loops`), gives each loop its role (inner, strided, outer), and has the texts
that `print(plan)` shows. `select_row` returns the first row that fits; the innermost loops of both
sides decide. The launcher of a device (`kernels/cpu/launch.py`, `kernels/cuda/launch.py`) cuts the
loops into blocks that fit its caches.

Evenly spaced channels, including a single one and one that is repeated, are a normal loop with
another stride and offset. On a GPU the loop over other channel selections has a table of source
offsets, which all kernels can read. On a CPU such selections need kernels with a channel table:
they split pixels of two, three or four channels in registers and store the selected ones, or merge
planes into pixels. If neither fits, the selected channels have to be copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from operator import attrgetter
from typing import NamedTuple

from ..layout.pattern import Permutation
from ..memory import contiguous_strides
from ..normalize import Normalization
from ..spec import DType
from .channels import ChannelSelection, as_slice
from .loops import ITEMS, CanonicalLoops, Loop, byte_strides, canonicalize_loops, find_source_pixel

MAX_OUTER = 8  # loops around a block; the caller of a kernel runs the rest


_COUNT = attrgetter("count")


def count_iterations(loops: Sequence[Loop]) -> int:
    """Return the number of iterations of nested loops."""
    return prod(map(_COUNT, loops))


@dataclass(frozen=True)
class KernelChoice:
    """A kernel and the role of each loop, outermost loops first.

    run     the loops that are contiguous in the output
    rows    the loops that are contiguous in the source, if they differ from `run`
    outer   all other loops
    """

    kernel: str
    channels: int
    run: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    source_item: int  # bytes
    target_item: int
    host_loops: tuple[Loop, ...] = ()  # outer loops that the caller runs
    order: tuple[int, ...] = ()  # channels of a pixel, or planes; (): the identity

    @property
    def nest(self) -> tuple[Loop, ...]:
        """The loops that the kernel executes, outermost first."""
        return (*self.outer, *self.rows, *self.run)

    @property
    def count(self) -> int:
        """The number of items that the loops visit."""
        return count_iterations(self.nest)


class LoopRoles(NamedTuple):
    """The role of each loop in a kernel (see `KernelChoice`), and the channels of a pixel, or 0."""

    run: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    channels: int = 0

    def choice(self, kernel: str, inner: LoopNest, order: tuple[int, ...] = ()) -> KernelChoice:
        """Return a kernel's choice with these roles; surplus outer loops go to `host_loops`."""
        outer, surplus = self.outer, len(self.outer) - MAX_OUTER
        host_loops: tuple[Loop, ...] = ()
        if surplus > 0:
            plain = [loop for loop in outer if not (loop.coef_stride or loop.offsets)]
            host_loops = tuple(plain[:surplus])
            outer = tuple(loop for loop in outer if not any(loop is h for h in host_loops))
        sides = self.run, self.rows, outer, inner.item, inner.target_item, host_loops, order
        return KernelChoice(kernel, self.channels, *sides)


@dataclass(frozen=True)
class LoopNest:
    """The input of a row of the table: canonical loops, and the item sizes of both sides."""

    loops: tuple[Loop, ...]
    item: int
    target_item: int
    pure: bool  # bits move unchanged: no cast, no formula
    on_gpu: bool = False

    @cached_property
    def last(self) -> Loop:
        """The innermost loop of the output."""
        return self.loops[-1]

    @cached_property
    def row(self) -> Loop | None:
        """The longest loop that is contiguous in the source only; None if there is none."""
        *outer, last = self.loops
        if last.dst != self.target_item or last.src == self.item:
            return None
        contiguous_loops = [loop for loop in outer if loop.src == self.item]
        return max(contiguous_loops, key=lambda loop: loop.count) if contiguous_loops else None

    def is_small_pixel(self, channels: Loop, pixels: Loop) -> bool:
        """Return True if `channels` visits all items of small pixels that the nest visits."""
        inside = [loop for loop in self.loops if loop.offsets or 0 < abs(loop.src) < pixels.src]
        if channels.count not in SMALL_CHANNEL_COUNTS or inside != [channels]:
            return False
        pixel = find_source_pixel(channels, pixels, self.item)
        return pixel is not None and pixel.items in SMALL_CHANNEL_COUNTS

    def has_short_lines(self, pixels: Loop, channels: Loop, side: str) -> bool:
        """Return True if short lines of pixels follow each other on `side`, "src" or "dst".

        On a CPU, such lines fill registers if they have LEAST_PIXELS_OF_LINES.
        """
        step = pixels.count * getattr(pixels, side)
        if self.on_gpu or pixels.count * self.item < LEAST_PIXELS_OF_LINES:
            return False
        return any(getattr(loop, side) == step for loop in self.loops if loop is not channels)

    def roles(
        self, run: Sequence[Loop], rows: Sequence[Loop] = (), *, channels: int = 0
    ) -> LoopRoles:
        """Return these roles, with all other loops as `outer`."""
        taken = set(map(id, (*run, *rows)))
        outer = [loop for loop in self.loops if id(loop) not in taken]
        return LoopRoles(tuple(run), tuple(rows), tuple(outer), channels)


# Offsets along a gathered run are a table; a longer one would not stay in the first cache.
MAX_TABLE = 256
SHORT_AXIS = 32  # elements; a shorter axis is fused, as its last register would be partly empty
# Rows of a transpose to short runs that are stored as one; fewer ones are moved item by item. Bytes
# of 28 x 28 x 5 in patches took 0.13 of the time that many stores take (AMD EPYC, 2026-11-27), and
# patches of 7 x 7 a tenth.
LEAST_SHORT_RUNS = 16
SHORT_RUN = 64  # bytes; shorter runs are flipped, and on a GPU moved item by item
SMALL_CHANNEL_COUNTS = (2, 3, 4)  # channel counts that kernels rearrange in registers
LEAST_PIXELS = 16  # bytes of one channel in a register
LEAST_PIXELS_OF_LINES = 8  # likewise of pixels in lines that follow each other


@dataclass(frozen=True)
class KernelRow:
    """A row of the kernel table.

    fits    returns the roles of the loops, or None if the kernel does not fit
    why     the reason that a plan shows
    work    the work that a plan shows. May use times (iterations of the outer loops), run and rows
            (their items), pixels (count of the run's outermost loop) and channels
    """

    name: str
    fits: Callable[[LoopNest], LoopRoles | None]
    why: str
    work: str
    why_on_a_gpu: str = ""  # if it differs on GPUs


# ---- copy and cast -----------------------------------------------------------------------


def _contiguous(inner: LoopNest, *, pure: bool) -> LoopRoles | None:
    """Return roles if runs are contiguous on both sides and no other kernel moves short ones."""
    loops = inner.loops
    last = inner.last
    if pure != inner.pure or (last.src, last.dst) != (inner.item, inner.target_item):
        return None
    run: tuple[Loop, ...] = (last,)
    pixels = len(loops) > 1 and last.coef_stride > 0 and last.count <= MAX_TABLE
    if pixels and _gapless(loops[-2], last) and not loops[-2].coef_stride:
        run = loops[-2:]  # the coefficients repeat along the outer loop
    short = count_iterations(run) * min(inner.item, inner.target_item) < SHORT_RUN
    other_kernel = inner.on_gpu or _flip(inner) is not None
    return None if short and len(loops) > len(run) and other_kernel else inner.roles(run)


def _gapless(outer: Loop, inner: Loop) -> bool:
    return outer.src == inner.count * inner.src and outer.dst == inner.count * inner.dst


# ---- merge and split ---------------------------------------------------------------------


def _merge(inner: LoopNest) -> LoopRoles | None:
    row = inner.row
    last = inner.last
    if row is None or row.coef_stride or last.count not in SMALL_CHANNEL_COUNTS:
        return None
    packed = row is inner.loops[-2] and row.dst == last.count * inner.target_item
    is_short = row.count * inner.item < LEAST_PIXELS
    if not packed or (is_short and not inner.has_short_lines(row, last, "src")):
        return None
    return inner.roles((row, last), channels=last.count)


def _split(inner: LoopNest, direction: int) -> LoopRoles | None:
    row = inner.row
    last = inner.last
    if row is None and inner.on_gpu and direction > 0 and last.dst == inner.target_item:
        row = next((loop for loop in inner.loops[:-1] if loop.offsets), None)
    if row is None or row.count not in SMALL_CHANNEL_COUNTS:
        return None
    packed = last.src == direction * row.count * inner.item
    if inner.on_gpu and direction > 0:
        packed = inner.is_small_pixel(row, last)
    is_short = last.count * inner.item < LEAST_PIXELS
    if not packed or (is_short and not inner.has_short_lines(last, row, "dst")):
        return None
    return inner.roles((last,), (row,), channels=row.count)


def _flip(inner: LoopNest) -> LoopRoles | None:
    """Return roles if items, or pixels of few channels, are reversed in the source."""
    last, item, target = inner.last, inner.item, inner.target_item
    if last.dst != target:
        return None
    if last.src == -item:
        return inner.roles((last,), channels=1) if last.count * item >= LEAST_PIXELS else None
    if len(inner.loops) < 2 or last.count not in SMALL_CHANNEL_COUNTS or last.src != item:
        return None
    pixels = inner.loops[-2]
    packed = (pixels.src, pixels.dst) == (-last.count * item, last.count * target)
    if not packed or pixels.coef_stride or pixels.count * item < LEAST_PIXELS:
        return None
    return inner.roles((pixels, last), channels=last.count)


def _shuffle(inner: LoopNest) -> LoopRoles | None:
    """Return roles if a GPU reads channels of small pixels in another order, or some of them.

    On a CPU only `_shuffle_choice` selects this kernel.
    """
    if not inner.on_gpu or len(inner.loops) < 2:
        return None
    *_, pixels, last = inner.loops
    packed = (pixels.dst, last.dst) == (last.count * inner.target_item, inner.target_item)
    if not (packed and inner.is_small_pixel(last, pixels)):
        return None
    if pixels.coef_stride or pixels.count * inner.item < LEAST_PIXELS:
        return None
    return inner.roles((pixels, last), channels=last.count)


# ---- transpose ---------------------------------------------------------------------------


def _transpose(inner: LoopNest) -> LoopRoles | None:
    """Return roles for two axes, each fused with its neighbours if it is short.

    On a CPU, one of the two may be shorter than a lane.
    """
    row = inner.row
    last = inner.last
    side = 16 // inner.item
    if row is None or last.offsets:
        return None
    rows = _fuse_rows(inner, row, (last,))
    run = _fuse_run(inner, last, rows)
    if not inner.on_gpu:
        # A loop that fits both sides lengthens the run if the shorter side is then longer.
        run_first = _fuse_run(inner, last, (row,))
        rows_last = _fuse_rows(inner, row, run_first)
        if _shorter_side(rows_last, run_first) > _shorter_side(rows, run):
            rows, run = rows_last, run_first
        if count_iterations(run) < side and not _follow_each_other(rows):
            rows = (row,)  # as a block stores the short runs of many rows as one
            if row.count < LEAST_SHORT_RUNS:
                return None
    short, long = sorted((count_iterations(rows), count_iterations(run)))
    if long < side or (short < side and inner.on_gpu):
        return None
    return inner.roles(run, rows)


def _follow_each_other(rows: tuple[Loop, ...]) -> bool:
    """Return True if the rows of fused loops are evenly spaced in the output."""
    return all(outer.dst == inner.count * inner.dst for outer, inner in pairwise(rows))


def _shorter_side(rows: tuple[Loop, ...], run: tuple[Loop, ...]) -> int:
    """Return the number of iterations of the shorter side, at most SHORT_AXIS."""
    return min(count_iterations(rows), count_iterations(run), SHORT_AXIS)


def _is_short(loop: Loop, item: int) -> bool:
    """Return True if a loop is short and not a whole number of cache lines long."""
    return loop.count < SHORT_AXIS and loop.count * item % 64 != 0


def _fuse_rows(inner: LoopNest, row: Loop, run: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Fuse the contiguous loop of the source with the next ones, until they are not short."""
    rows: tuple[Loop, ...] = (row,)
    if not _is_short(row, inner.item):
        return rows
    while (count := count_iterations(rows)) < SHORT_AXIS and (len(rows) == 1 or not inner.on_gpu):
        taken = (*rows, *run)
        following = (loop for loop in inner.loops if loop.src == count * inner.item)
        loop = next((loop for loop in following if not any(loop is t for t in taken)), None)
        if loop is None:
            break
        rows = (loop, *rows)
    return rows


def _fuse_run(inner: LoopNest, last: Loop, rows: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Fuse the contiguous loop of the output with the next ones, until they are not short."""
    run: tuple[Loop, ...] = (last,)
    if not _is_short(last, inner.item):
        return run
    for loop in reversed(inner.loops[:-1]):
        count = count_iterations(run)
        taken = any(loop is row for row in rows) or loop.coef_stride or loop.offsets
        if taken or loop.dst != count * last.dst or count >= SHORT_AXIS:
            break
        if inner.on_gpu and len(run) == 2:
            break
        run = (loop, *run)
    return run


# ---- gather ------------------------------------------------------------------------------


def _gather(inner: LoopNest) -> LoopRoles:
    """Return roles for any loops, with the longest run whose period fits a table."""
    run = [inner.last]
    if inner.last.dst == inner.target_item:
        for loop in reversed(inner.loops[:-1]):
            gapless = loop.dst == run[0].count * run[0].dst
            if not gapless or loop.coef_stride or count_iterations(run) > MAX_TABLE:
                break
            run.insert(0, loop)
    roles = inner.roles(run)
    return roles._replace(outer=_put_smallest_stride_last(roles.outer))


def _put_smallest_stride_last(outer: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Put the loop with the smallest source stride innermost: its iterations share cache lines."""
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
        "shuffle",
        _shuffle,
        "channels of pixels are taken in another order, side by side on both sides: whole "
        "registers are shuffled",
        "{times} x {pixels} pixels of {channels} channels",
        "channels of pixels are taken in another order, side by side on both sides",
    ),
    KernelRow(
        "flip",
        _flip,
        "x is reversed along the innermost axes: whole registers are reversed",
        "{times} x {pixels} pixels of {channels} channels, reversed",
        "x is reversed along the innermost axes: item by item",
    ),
    KernelRow(
        "flipsplit",
        partial(_split, direction=-1),
        "few channels, side by side in x, which is reversed, and apart in the result: whole "
        "registers are sorted",
        "{times} x {pixels} pixels of {channels} channels, reversed and split",
        "few channels, side by side in x, which is reversed, and apart in the result: item by item",
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

# The names of plans without a kernel, and their reasons.
_NO_KERNEL = {
    "view": "nothing has to move: the result shares the memory of x",
    "empty": "the array has no elements",
}


def select_row(
    canonical_loops: CanonicalLoops, target_item: int, *, pure: bool, on_gpu: bool = False
) -> KernelChoice:
    """Return the kernel for canonical loops, with a role for every loop."""
    target_item = canonical_loops.item if pure else target_item
    loops = canonical_loops.loops or (Loop(1, canonical_loops.item, target_item),)
    inner = LoopNest(loops, canonical_loops.item, target_item, pure, on_gpu)
    for row in KERNELS:
        roles = row.fits(inner)
        if roles is not None:
            return roles.choice(row.name, inner)
    raise AssertionError("the last row of the table fits all loops")


def explain_kernel(kernel: str, *, on_a_gpu: bool) -> str:
    """Return the reason for a plan's kernel, or for having none ("view", "empty")."""
    if kernel in _NO_KERNEL:
        return _NO_KERNEL[kernel]
    row = _find_kernel_row(kernel)
    return row.why_on_a_gpu or row.why if on_a_gpu else row.why


def describe_work(choice: KernelChoice) -> str:
    """Return the work line of a plan: the number of iterations and the work of each."""
    size = choice.source_item
    done = _find_kernel_row(choice.kernel).work.format(
        times=count_iterations(choice.outer),
        run=count_iterations(choice.run),
        rows=count_iterations(choice.rows),
        pixels=choice.run[0].count,
        channels=choice.channels,
    )
    return f"{done}, {size} byte{'s' if size > 1 else ''} each"


def _find_kernel_row(kernel: str) -> KernelRow:
    return next(row for row in KERNELS if row.name == kernel)


_FAR = 1 << 60  # bytes

Found = tuple[CanonicalLoops, KernelChoice]


class TransposeProblem(NamedTuple):
    """The move, dtypes and strides of a conversion whose kernel is to be selected.

    picks            the channel selection; None: the identity
    strides, out     the strides of x and of the result
    source, target   the dtypes that the kernel reads and writes
    on_gpu           whether the kernel runs on a GPU
    """

    move: Permutation
    picks: ChannelSelection | None
    formula: Normalization | None
    strides: tuple[int, ...]
    out: tuple[int, ...]
    source: DType
    target: DType
    on_gpu: bool

    @property
    def pure(self) -> bool:
        """True if bits move unchanged."""
        return self.source == self.target and self.formula is None

    def select_kernel(self, loops: Sequence[Loop]) -> Found:
        """Return the simplified loops and the kernel for them."""
        canonical_loops = canonicalize_loops(loops, self.source.itemsize, pure=self.pure)
        choice = select_row(
            canonical_loops, self.target.itemsize, pure=self.pure, on_gpu=self.on_gpu
        )
        return canonical_loops, choice

    def loops(self) -> list[Loop]:
        """Return one loop per unfolded axis, in source order, ignoring the channel selection."""
        move = self.move
        sizes = move.sizes if self.picks is None else self.picks.with_all_channels(move).sizes
        source_steps = byte_strides(move.source.groups, move.axes, sizes, self.strides)
        steps = byte_strides(move.target.groups, move.target_axes, move.target_sizes, self.out)
        target_steps = dict(zip(move.target_axes, steps, strict=True))
        per_channel = self.formula is not None and self.formula.per_channel
        channel = self.formula.letter(move) if self.formula is not None and per_channel else None
        return [
            Loop(count, step, target_steps.get(letter, 0), int(letter == channel))
            for letter, count, step in zip(move.axes, move.sizes, source_steps, strict=True)
        ]


def select_kernel_for_channels(
    sides: TransposeProblem,
) -> tuple[CanonicalLoops, KernelChoice, bool]:
    """Return the loops and the kernel, and whether channels must be copied before it runs."""
    if sides.picks is None:
        return *sides.select_kernel(sides.loops()), False
    select_kernel_for_channels = _select_channels(sides, sides.picks)
    if select_kernel_for_channels is not None:
        return *select_kernel_for_channels, False
    dense = contiguous_strides(sides.move.source_shape, sides.source)
    copied = sides._replace(picks=None, strides=dense)
    return *copied.select_kernel(copied.loops()), True


def _select_channels(sides: TransposeProblem, picks: ChannelSelection) -> Found | None:
    """Return loops and kernel for selected channels; None if no kernel can select them."""
    by_table = not sides.on_gpu
    loops = sides.loops()
    axis = picks.axis(sides.move)
    spacing = as_slice(picks.order)
    loop = loops[axis]
    fits_table = picks.count in SMALL_CHANNEL_COUNTS and len(set(picks.order)) == len(picks.order)

    def tried(changed: Loop) -> Found:
        return sides.select_kernel([*loops[:axis], changed, *loops[axis + 1 :]])

    if by_table and fits_table and loop.src == sides.source.itemsize:
        is_single = len(picks.order) == 1  # a single plane has no stride: any would do
        all_channels = loop._replace(count=picks.count, dst=_FAR if is_single else loop.dst)
        canonical_loops, choice = tried(all_channels)
        if choice.kernel in ("split", "flipsplit") and choice.rows == (all_channels,):
            return canonical_loops, replace(choice, rows=(loop._replace(src=0),), order=picks.order)
    if by_table and loop.src == sides.source.itemsize in ITEMS:
        outer_loops = [*loops[:axis], *loops[axis + 1 :]]
        canonical_loops = canonicalize_loops(outer_loops, sides.source.itemsize, pure=False)
        shuffled = _shuffle_choice(
            canonical_loops, loop, picks.count, picks.order, sides.target.itemsize
        )
        if shuffled is not None:
            return canonical_loops, shuffled
    if spacing is not None:
        canonical_loops, choice = tried(loop._replace(src=loop.src * spacing[1]))
        return replace(
            canonical_loops, src_offset=canonical_loops.src_offset + spacing[0] * loop.src
        ), choice
    if sides.on_gpu:
        offsets = tuple([channel * loop.src for channel in picks.order])
        return tried(loop._replace(src=0, offsets=offsets))
    if by_table:
        canonical_loops, choice = tried(loop)
        if choice.kernel == "merge" and choice.run[-1] == loop:
            return canonical_loops, replace(choice, order=picks.order)
    return None


def _shuffle_choice(
    canonical_loops: CanonicalLoops,
    pixel: Loop,
    count: int,
    order: tuple[int, ...],
    target_item: int,
) -> KernelChoice | None:
    """Return the shuffle kernel, which selects channels `order` of pixels of `count` channels.

    `canonical_loops` are the loops around pixels, `pixel` is the loop of the selected channels.
    Returns None if the kernel does not fit.
    """
    item = pixel.src
    if (
        not canonical_loops.loops
        or pixel.dst != target_item
        or count > SMALL_CHANNEL_COUNTS[-1]
        or len(order) not in SMALL_CHANNEL_COUNTS
    ):
        return None
    last = canonical_loops.loops[-1]
    packed = abs(last.src) == count * item and last.dst == len(order) * target_item
    if not packed or last.coef_stride or last.count * item < LEAST_PIXELS:
        return None
    inner = LoopNest((*canonical_loops.loops, pixel), item, target_item, False)
    roles = inner.roles((last, pixel), channels=len(order))
    return roles.choice("shuffle", inner, order)
