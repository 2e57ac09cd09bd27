"""From a chosen kernel to a `CudaLaunch`: which CUDA code, its parameter block, how many blocks.

What `kernels/cpu/launch.py` is for the CPU. Pure: it needs no GPU and no CUDA library. It cuts the
loops into tiles that suit shared memory and whole sectors of device memory, and proves how many
bytes may be read and written at once. The numbers are policy; the reason stands beside each.

Every kernel has the same two arguments, both passed by value:

    Params    the bytes `CudaLaunch.params`
    Pointers  64-bit words: the output, the coefficients (0 where there are none), and the sources:
              one for a conversion, `MAX_PARTS` for a sum (0 where there are fewer)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ...planning.epilogue import Coefficients, Epilogue
from ...planning.kernels import Choice
from ...planning.loops import Loop
from .packing import MAX_COUNT, NO_LOOP, axis, loops
from .tiles import fitted, shape

__all__ = ["MAX_PARTS", "THREADS", "TURNS", "CudaLaunch", "prepare"]

MAX_PARTS = 16  # arrays that one launch adds

WORD = 16  # bytes that a thread reads or writes at once
THREADS = 256
TURNS = 4  # places that a thread of `gather` has under way
CHUNK = {1: 4, 2: 4, 4: 4, 8: 2, 16: 1}  # groups of pixels of a thread: at most 16 KB a block


@dataclass(frozen=True)
class CudaLaunch:
    """A kernel, what it is compiled with and what it is called with.

    `family` names both the file and the `extern "C"` function in it. `defines` are macros to
    compile it with. `coefficients` is what the second pointer has to point to, on the device.
    """

    family: str
    defines: tuple[tuple[str, str], ...]
    params: bytes
    grid: int
    block: int = THREADS
    pointers: int = 3
    coefficients: bytes = b""

    def __post_init__(self) -> None:
        if self.grid >= MAX_COUNT:
            raise RuntimeError(f"{self.grid} blocks of threads; a launch has less than 2**31")


def prepare(choice: Choice, epilogue: Epilogue | None, src: int, dst: int) -> CudaLaunch:
    """Cut a choice into tiles. `epilogue` None: a pure move of `choice.source_item` bytes.

    `src` and `dst` are the addresses of the first elements visited; all that matters of them is
    the power of two up to 16 that divides them. A pure move takes any; with a `epilogue` the caller
    has proved that addresses and steps are multiples of the items on their side.
    """
    if epilogue is None:
        item = _aligned(choice, src, dst)
        if item < choice.source_item:
            return _gather(_in_pieces(choice, item), _Side(item, src), _Side(item, dst), None)
    make = {"transpose": _transpose, "split": _split, "merge": _merge}.get(choice.kernel)
    source, target = _Side(choice.source_item, src), _Side(choice.target_item, dst)
    # More turns than blocks can be counted leave so little for each that there is nothing to tile.
    if make is None or _turns(choice) >= MAX_COUNT:
        nest = (*choice.outer, *choice.rows, *choice.run)
        return _gather(nest, source, target, epilogue)
    return make(choice, source, target, epilogue)


@dataclass(frozen=True)
class _Side:
    """Bytes of an item and the address of the first one."""

    item: int
    address: int

    def width(self, steps: Iterable[int], most: int = WORD) -> int:
        """The largest power of two, at most `most`, on which everything begins."""
        return gcd(self.address, most, *steps)


def _steps(nest: Iterable[Loop]) -> tuple[list[int], list[int]]:
    """The steps of loops in the source and in the output."""
    nest = list(nest)
    return [loop.src for loop in nest], [loop.dst for loop in nest]


def _aligned(choice: Choice, src: int, dst: int) -> int:
    """The bytes, at most an item, that every item of a pure move is aligned on."""
    steps = _steps((*choice.outer, *choice.rows, *choice.run))
    return gcd(choice.source_item, src, dst, *steps[0], *steps[1])


def _turns(choice: Choice) -> int:
    """Turns of the loops around a tile, those that `_fitted` puts there among them."""
    fused = (choice.rows, choice.run) if choice.kernel == "transpose" else ()
    long = [axis[0] for axis in fused if len(axis) > 1 and _count(axis) >= MAX_COUNT]
    return _count((*choice.outer, *long))


def _in_pieces(choice: Choice, item: int) -> tuple[Loop, ...]:
    """The loops of a pure move of smaller items."""
    nest = (*choice.outer, *choice.rows, *choice.run)
    return (*nest, Loop(choice.source_item // item, item, item))


def _defines(
    source: _Side, epilogue: Epilogue | None, along: bool, **others: int
) -> tuple[tuple[str, str], ...]:
    """The macros of a conversion. `along`: coefficients differ among neighbours of the output."""
    named: dict[str, object] = {"THREADS": THREADS, **others}
    if epilogue is None:
        named |= {"SOURCE": f"m{source.item}", "TARGET": f"m{source.item}"}
    else:
        named |= {"SOURCE": epilogue.source, "TARGET": epilogue.target}
        if epilogue.saturate:
            named["SATURATE"] = 1
        if epilogue.coefficients is not None:
            named |= {"COMPUTED": epilogue.computed, "COEFFICIENTS": 1 + along}
        if epilogue.clip is not None:
            named["BOUNDED"] = 1
    return tuple((name, str(value)) for name, value in sorted(named.items()))


def _coefficients(epilogue: Epilogue | None) -> tuple[int, bytes]:
    """How many pairs there are, and bounds, then all factors, then all terms, for the kernel."""
    if epilogue is None or (epilogue.coefficients is None and epilogue.clip is None):
        return 0, b""
    found = epilogue.coefficients or Coefficients((), ())
    numbers = *(epilogue.clip or ()), *found.factor, *found.term
    with np.errstate(over="ignore"):
        return len(found.factor), np.array(numbers, epilogue.clipped_in).tobytes()


def _varies(nest: Sequence[Loop], epilogue: Epilogue | None) -> bool:
    """Whether coefficients differ along one of these loops."""
    return _coefficients(epilogue)[0] > 1 and any(loop.coef for loop in nest)


# ---- transpose ---------------------------------------------------------------------------


def _transpose(
    choice: Choice, source: _Side, target: _Side, epilogue: Epilogue | None
) -> CudaLaunch:
    outer = list(choice.outer)
    rows, run = fitted(choice.rows, choice.run, outer, source.item)
    load = source.width(
        [loop.src for loop in (*outer, *run.loops, *rows.gap)] + rows.words(source.item)
    )
    store = target.width(
        [loop.dst for loop in (*outer, *rows.loops, *run.gap)] + run.words(target.item),
        _stored(source, target),
    )
    tall, wide = shape(
        rows, run, _count(outer), (source.item, target.item), (load // source.item, store // target.item)
    )
    channels, coefficients = _coefficients(epilogue)
    sides = {"TILE_ROWS": tall, "TILE_RUN": wide, "LOAD": load, "STORE": store}
    sides |= {"ROWS_LOOPS": rows.kind, "RUN_LOOPS": run.kind}
    params = loops(outer) + axis(rows.loops, tall) + axis(run.loops, wide)
    return CudaLaunch(
        "transpose",
        _defines(source, epilogue, _varies(run.loops, epilogue), **sides),
        params + struct.pack("q", channels),
        _count(outer) * _tiles(rows.loops, tall) * _tiles(run.loops, wide),
        coefficients=coefficients,
    )


def _stored(source: _Side, target: _Side) -> int:
    """The bytes written at once, at most: those of items that are read from one row of banks."""
    return max(target.item, WORD * target.item // max(source.item, target.item))


def _count(nest: Sequence[Loop]) -> int:
    return prod(loop.count for loop in nest)


def _tiles(axis: Sequence[Loop], tile: int) -> int:
    return -(-_count(axis) // tile)


# ---- split and merge ---------------------------------------------------------------------


def _split(choice: Choice, source: _Side, target: _Side, epilogue: Epilogue | None) -> CudaLaunch:
    (pixels,), (planes,) = choice.run, choice.rows
    group = max(1, 4 // source.item)
    load = source.width(_steps(choice.outer)[0])
    store = target.width((*_steps(choice.outer)[1], planes.dst), min(WORD, group * target.item))
    along = _varies([pixels], epilogue)
    return _interleave(
        choice, pixels, planes, source, epilogue, along, LOAD=load, STORE=store, SPLIT=1
    )


def _merge(choice: Choice, source: _Side, target: _Side, epilogue: Epilogue | None) -> CudaLaunch:
    pixels, planes = choice.run
    group = max(1, 4 // source.item)
    load = source.width((*_steps(choice.outer)[0], planes.src), min(WORD, group * source.item))
    store = target.width(_steps(choice.outer)[1])
    along = _varies([pixels, planes], epilogue)
    return _interleave(choice, pixels, planes, source, epilogue, along, LOAD=load, STORE=store)


def _interleave(
    choice: Choice,
    pixels: Loop,
    planes: Loop,
    source: _Side,
    epilogue: Epilogue | None,
    along: bool,
    **sides: int,
) -> CudaLaunch:
    groups = CHUNK[source.item]
    chunk = THREADS * max(1, 4 // source.item) * groups
    channels, coefficients = _coefficients(epilogue)
    params = loops(choice.outer) + axis([pixels], chunk)
    params += struct.pack("4q", planes.src, planes.dst, planes.coef, channels)
    return CudaLaunch(
        "interleave",
        _defines(source, epilogue, along, CHANNELS=planes.count, GROUPS=groups, **sides),
        params,
        _count(choice.outer) * _tiles([pixels], chunk),
        coefficients=coefficients,
    )


# ---- gather, copy and cast ---------------------------------------------------------------


def _gather(
    nest: Sequence[Loop], source: _Side, target: _Side, epilogue: Epilogue | None
) -> CudaLaunch:
    *around, inner = nest
    width = _together(around, inner, source, target)
    places = -(-inner.count // width)
    steps = (inner.src, inner.dst, inner.coef)
    todo = [*around, Loop(places, *(width * step for step in steps))]
    whole: list[Loop] = []
    room = THREADS * TURNS
    while todo and _count(whole) * todo[-1].count <= room:
        whole.insert(0, todo.pop())
    split = todo.pop() if todo else NO_LOOP
    stretch = max(1, min(split.count, room // _count(whole)))
    channels, coefficients = _coefficients(epilogue)
    params = loops(todo) + axis([split], stretch) + loops(whole)
    params += struct.pack(
        "6q", stretch, _count(whole), inner.count, places - 1, inner.coef, channels
    )
    along = width > 1 and _varies([inner], epilogue)
    return CudaLaunch(
        "gather",
        _defines(source, epilogue, along, WIDTH=width, TURNS=TURNS),
        params,
        _count(todo) * _tiles([split], stretch),
        coefficients=coefficients,
    )


def _together(around: Sequence[Loop], inner: Loop, source: _Side, target: _Side) -> int:
    """How many items a thread moves at once: neighbours on both sides, and aligned on both."""
    if (inner.src, inner.dst) != (source.item, target.item):
        return 1
    src, dst = _steps(around)
    width = min(source.width(src) // source.item, target.width(dst) // target.item)
    width = min(width, WORD // max(source.item, target.item))
    # A last place that is not full costs a little; in short runs it would be one of few.
    while width > 1 and inner.count % width and inner.count < 8 * width:
        width //= 2
    return max(1, width)
