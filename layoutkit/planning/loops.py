"""The loops around a conversion or a sum, simplified.

An axis becomes a loop: a count, and the byte stride in each array. `canonicalize_loops`, for the
two sides of a conversion, and `fuse_loops`, for the output and the k parts of a sum, drop loops of
count 1, visit the output forwards and in its memory order, and fuse neighbours that are one loop on
all sides: `bhwc->bchw`, `bwc->bcw` and `bchw->chwb` all become one batched 2-D transpose, and
`bhwc->chwb` a 3-D reversal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar

from ..layout.pattern import Permutation

ITEMS = (1, 2, 4, 8, 16)  # bytes that kernels move at once

_Factor = tuple[int, int]  # count and byte stride of an axis


class Loop(NamedTuple):
    """A loop of a conversion: its count and the byte strides in source, output and coefficients.

    A loop over channels that are not evenly spaced has their source offsets in `offsets`, and
    `src` is 0.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed
    src: int
    dst: int
    coef_stride: int = 0
    offsets: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[int, int, int]:
        """The byte strides in source, output and coefficients, in this order."""
        return self.src, self.dst, self.coef_stride

    def continues(self, inner: Loop) -> bool:
        """Return True if this loop and the one inside it are one loop on every side."""
        if self.offsets or inner.offsets:
            return False
        count, src, dst, coef_stride, _ = inner
        return self[1:4] == (count * src, count * dst, count * coef_stride)

    @property
    def src_offsets(self) -> tuple[int, ...]:
        """The source offsets of all iterations."""
        return self.offsets or tuple([n * self.src for n in range(self.count)])

    def backward(self) -> Loop:
        """Return the loop in reverse, which also visits the coefficients in reverse."""
        return Loop(self.count, -self.src, -self.dst, self.coef_stride, self.offsets[::-1])


class SourcePixel(NamedTuple):
    """The layout of a source pixel: its number of items and the selected channels.

    order    the positions of the channels in a pixel; (): all in their order
    lowest   the bytes from the first item visited to the first one of its pixel
    """

    items: int
    order: tuple[int, ...] = ()
    lowest: int = 0

    @property
    def span(self) -> int:
        """The number of items of a pixel up to the last selected one."""
        return max(self.order) + 1 if self.order else self.items


def find_source_pixel(channels: Loop, pixels: Loop, item: int) -> SourcePixel | None:
    """Return the pixel whose items the iterations of `channels` are; None if they are not."""
    offsets = channels.src_offsets
    lowest = min(offsets)
    positions = [offset - lowest for offset in offsets]
    if (
        any(position % item for position in (*positions, pixels.src))
        or max(positions) >= pixels.src
    ):
        return None
    order = tuple([position // item for position in positions])
    size = pixels.src // item
    is_complete = len(order) == size and order == tuple(range(size))
    return SourcePixel(size, () if is_complete else order, lowest)


class SumLoop(NamedTuple):
    """A loop of a sum: its count, and the byte strides in the output and in each part."""

    count: int  # type: ignore[assignment]
    dst: int
    srcs: tuple[int, ...]

    def continues(self, inner: SumLoop) -> bool:
        """Return True if this loop and the one inside it are one loop on every side."""
        outer = self.dst, *self.srcs
        return outer == tuple([inner.count * step for step in (inner.dst, *inner.srcs)])

    def backward(self) -> SumLoop:
        """Return the loop in reverse."""
        return SumLoop(self.count, -self.dst, tuple(-step for step in self.srcs))


@dataclass(frozen=True)
class CanonicalLoops:
    """Loops in output order, outermost first, and the offsets of the first element visited."""

    loops: tuple[Loop, ...]
    item: int
    src_offset: int = 0
    dst_offset: int = 0
    coefs_reversed: bool = False  # coefficients are visited in reverse


@dataclass(frozen=True)
class Nest:
    """The loops of a sum in output order, and the offsets of the first element visited."""

    loops: tuple[SumLoop, ...]
    dst_offset: int
    src_offsets: tuple[int, ...]


# ---- conversions and sums ----------------------------------------------------------------

_AnyLoop = TypeVar("_AnyLoop", Loop, SumLoop)


def _fuse(loops: Sequence[_AnyLoop]) -> list[_AnyLoop]:
    """Fuse each loop with its inner neighbour if they are contiguous on every side."""
    fused: list[_AnyLoop] = []
    for loop in loops:
        if fused and fused[-1].continues(loop):
            loop = loop._replace(count=loop.count * fused.pop().count)
        fused.append(loop)
    return fused


def byte_strides(
    groups: tuple[str, ...], axes: str, sizes: Sequence[Any], strides: tuple[int, ...]
) -> tuple[Any, ...]:
    """Return the byte stride of every unfolded axis of an array whose axes are `groups` of them.

    Sizes may be NumPy arrays with an item for each of several arrays; the results are such arrays
    then.
    """
    size = dict(zip(axes, sizes, strict=True))
    steps: dict[str, Any] = {}
    for group, stride in zip(groups, strides, strict=True):
        for letter in reversed(group):
            steps[letter] = stride
            stride = stride * size[letter]
    return tuple(map(steps.__getitem__, axes))


# ---- conversions -------------------------------------------------------------------------


def canonicalize_loops(loops: Sequence[Loop], itemsize: int, *, pure: bool) -> CanonicalLoops:
    """Return the simplified form of loops in any order. `pure`: bits move unchanged.

    Examples
    --------
    bhwc -> bchw of (2, 4, 4, 3) items of 4 bytes is one batched transpose:

    >>> hw = [Loop(4, 48, 16), Loop(4, 12, 4)]
    >>> loops = [Loop(2, 192, 192), Loop(3, 4, 64), *hw]
    >>> for loop in canonicalize_loops(loops, 4, pure=True).loops:
    ...     print(loop.count, loop.src, loop.dst)
    2 192 192
    3 4 64
    16 12 4
    """
    item = itemsize
    todo = list(loops)
    if pure and itemsize not in ITEMS:
        item = max(size for size in ITEMS if itemsize % size == 0)
        todo.append(Loop(itemsize // item, item, item))
    todo = [loop for loop in todo if loop.count != 1]
    todo.sort(key=lambda loop: -abs(loop.dst))
    result = _reverse_pixels(_reverse_loops(todo, item))
    return _widen_items(result) if pure else result


def _reverse_loops(loops: list[Loop], item: int) -> CanonicalLoops:
    """Reverse loops, the innermost to visit the output forwards, others the source; fuse them."""
    result = []
    src = 0
    dst = 0
    coefs_reversed = False
    for index, loop in enumerate(loops):
        innermost = index == len(loops) - 1
        if (loop.dst if innermost or not loop.src else loop.src) < 0:
            src += (loop.count - 1) * loop.src
            dst += (loop.count - 1) * loop.dst
            coefs_reversed |= loop.coef_stride != 0
            loop = loop.backward()
        result.append(loop)
    return CanonicalLoops(tuple(_fuse(result)), item, src, dst, coefs_reversed)


def _reverse_pixels(canonical_loops: CanonicalLoops) -> CanonicalLoops:
    """Reverse a second innermost loop that visits the pixels of the output backwards.

    Kernels that reverse pixels in registers write from the first output pixel on.
    """
    if len(canonical_loops.loops) < 2:
        return canonical_loops
    *outer, loop, pixel = canonical_loops.loops
    steps = pixel.count * pixel.src, -pixel.count * pixel.dst
    if (loop.src, loop.dst) != steps or loop.dst >= 0 or loop.coef_stride or pixel.offsets:
        return canonical_loops
    return replace(
        canonical_loops,
        loops=(*outer, loop.backward(), pixel),
        src_offset=canonical_loops.src_offset + (loop.count - 1) * loop.src,
        dst_offset=canonical_loops.dst_offset + (loop.count - 1) * loop.dst,
    )


def _widen_items(canonical_loops: CanonicalLoops) -> CanonicalLoops:
    """Replace a short innermost run that is contiguous on both sides by one larger item."""
    loops, item = canonical_loops.loops, canonical_loops.item
    if len(loops) > 1 and loops[-1].src == loops[-1].dst == item:
        size = loops[-1].count * item
        if size in ITEMS:
            return replace(canonical_loops, loops=loops[:-1], item=size)
    return canonical_loops


# ---- sums --------------------------------------------------------------------------------


def fuse_loops(
    moves: Sequence[Permutation], strides: Sequence[tuple[int, ...]], out: tuple[int, ...]
) -> Nest | None:
    """Return the loops around moves to one shape, for strides of the parts and of the output.

    The output's axes are split until each piece has one stride in every part. Returns None if no
    loops fit all parts, for example if one part splits an axis of size 24 into 4 by 6 and another
    part splits it into 6 by 4.

    >>> from layoutkit.layout.pattern import parse_pattern
    >>> moves = [parse_pattern(p).resolve((2, 3, 4)) for p in ("bcw->bcw", "wcb->bcw")]
    >>> moves[1].target_shape
    (4, 3, 2)
    >>> moves = [parse_pattern("bcw->bcw").resolve((4, 3, 2)), moves[1]]
    >>> fuse_loops(moves, [(24, 8, 4), (48, 16, 4)], (24, 8, 4)).loops[0]
    SumLoop(count=4, dst=24, srcs=(24, 4))
    """
    factors = [_find_factors(move, steps) for move, steps in zip(moves, strides, strict=True)]
    loops: list[SumLoop] = []
    for axis, step in enumerate(out):
        pieces = _refine([part[axis] for part in factors])
        if pieces is None:
            return None
        inner = prod(count for count, _ in pieces)
        for count, steps in pieces:
            inner //= count
            loops.append(SumLoop(count, step * inner, steps))
    return _make_canonical_nest(loops, len(moves))


def _find_factors(move: Permutation, strides: tuple[int, ...]) -> list[list[_Factor]]:
    """Return, per target axis, the sizes and source strides of its letters, outermost first."""
    source = byte_strides(move.source.groups, move.axes, move.sizes, strides)
    step = dict(zip(move.axes, source, strict=True))
    size = dict(zip(move.target_axes, move.target_sizes, strict=True))
    return [
        [(size[letter], step.get(letter, 0)) for letter in group if size[letter] != 1]
        for group in move.target.groups
    ]


def _refine(parts: Sequence[list[_Factor]]) -> list[tuple[int, tuple[int, ...]]] | None:
    """Return the common refinement of one axis: (count, stride per part), outermost first."""
    bounds = {1}
    for factors in parts:
        inner = 1
        for count, _ in reversed(factors):
            inner *= count
            bounds.add(inner)
    edges = sorted(bounds)
    if any(high % low for low, high in pairwise(edges)):
        return None
    spans = reversed(list(pairwise(edges)))
    return [(high // low, tuple(_find_stride_at(f, low) for f in parts)) for low, high in spans]


def _find_stride_at(factors: list[_Factor], inner: int) -> int:
    """Return the byte stride in a part when its axis index grows by `inner`."""
    below = 1
    for count, step in reversed(factors):
        if inner < below * count:
            return step * (inner // below)
        below *= count
    raise RuntimeError(f"no factor of {factors} has a stride of {inner} elements")


def _make_canonical_nest(loops: list[SumLoop], parts: int) -> Nest:
    """Return the fewest loops that visit the output forwards, in its memory order."""
    dst = 0
    srcs = [0] * parts
    result = []
    for loop in loops:
        if loop.count == 1:
            continue
        if loop.dst < 0:
            dst += (loop.count - 1) * loop.dst
            srcs = [
                offset + (loop.count - 1) * s for offset, s in zip(srcs, loop.srcs, strict=True)
            ]
            loop = loop.backward()
        result.append(loop)
    result = result or [SumLoop(1, 0, (0,) * parts)]
    result.sort(key=lambda loop: -loop.dst)
    return Nest(tuple(_fuse(result)), dst, tuple(srcs))


# ---- blocks into which launchers cut the loops of a sum ----------------------------------


def smallest_stride_loop(loops: Sequence[SumLoop], part: int) -> int:
    """Return the index of the loop with the smallest stride in a part."""
    steps = [abs(loop.srcs[part]) or 1 << 62 for loop in loops]
    return min(reversed(range(len(loops))), key=steps.__getitem__)


def grow_block(box: list[int], loops: Sequence[SumLoop], axes: Sequence[int], room: int) -> None:
    """Double a block along `axes` in turn, as long as it has at most `room` elements."""
    grown = True
    while grown:
        grown = False
        for axis in axes:
            longer = min(loops[axis].count, 2 * box[axis])
            if longer > box[axis] and prod(box) // box[axis] * longer <= room:
                box[axis] = longer
                grown = True
