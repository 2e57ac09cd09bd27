"""Launches for pixels whose channels lie side by side on one side and apart on the other. Pure."""

from __future__ import annotations

import struct

from ...planning.epilogue import Epilogue
from ...planning.roles import Choice
from .packing import MAX_COUNT, axis, loops
from .sides import (
    THREADS,
    WORD,
    CudaLaunch,
    Side,
    coefficients_of,
    count_of,
    defines,
    steps_of,
    tiles_of,
    varies,
)
from .tiles import Lines, chunk, find_lines, is_few

__all__ = ["interleave", "lines"]

CHUNK = {1: 4, 2: 4, 4: 4, 8: 2, 16: 1}  # groups of pixels of a thread: at most 16 KB a block
FULL = 8  # chunks of an image, with fewer the last one's emptiness counts


# ---- interleave --------------------------------------------------------------------------


def interleave(
    choice: Choice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Few channels, exchanged in registers; None where words are not whole or chunks not full."""
    is_split = choice.kernel == "split"
    pixels, planes = (*choice.run, *choice.rows) if is_split else choice.run
    groups, group = CHUNK[source.item], max(1, 4 // source.item)
    from_steps, to_steps = steps_of([*choice.outer, planes])
    apart = min(WORD, group * (target if is_split else source).item)
    sides = (
        {"LOAD": WORD, "STORE": apart, "SPLIT": 1} if is_split else {"LOAD": apart, "STORE": WORD}
    )
    loads = source.width(from_steps[:-1] if is_split else from_steps, sides["LOAD"])
    stores = target.width(to_steps if is_split else to_steps[:-1], sides["STORE"])
    chunk = THREADS * group * groups
    few = is_few(choice.count, source.item)
    empty = pixels.count < FULL * chunk and pixels.count % chunk and not few
    if empty or (loads, stores) != (sides["LOAD"], sides["STORE"]):
        return None
    channels, coefficients = coefficients_of(epilogue)
    params = loops(choice.outer) + axis([pixels], chunk)
    params += struct.pack("4q", planes.src, planes.dst, planes.coef, channels)
    along = varies([pixels] if is_split else [pixels, planes], epilogue)
    return CudaLaunch(
        "interleave",
        defines(source, epilogue, along, CHANNELS=planes.count, GROUPS=groups, **sides),
        params,
        count_of(choice.outer) * tiles_of([pixels], chunk),
        coefficients=coefficients,
    )


# ---- lines -------------------------------------------------------------------------------


def lines(
    choice: Choice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Pixels taken apart or put together whatever their number and addresses; None: no pixels."""
    for found in find_lines((*choice.outer, *choice.rows, *choice.run), source.item, target.item):
        rows, at = (target, 2) if found.split else (source, 1)
        most = min(WORD, max(4, rows.item * max(1, 4 // source.item)))
        steps = [loop[at] for loop in (*found.outer, found.planes, *found.pixels.loops[:-1])]
        word = rows.width([*steps, *found.pixels.words(rows.item)], most)
        shifted = word < most and found.pixels.follow
        word = most if shifted else word
        many = chunk(found, (source.item, rows.item), word, shifted)
        if many and count_of(found.outer) * tiles_of(found.pixels.loops, many) < MAX_COUNT:
            sides = {"PIXELS": many, "WORD": word, "SHIFTED": int(shifted)}
            return _lines(found, source, epilogue, sides)
    return None


def _lines(
    found: Lines, source: Side, epilogue: Epilogue | None, sides: dict[str, int]
) -> CudaLaunch:
    pixels, planes, many = found.pixels.loops, found.planes, sides["PIXELS"]
    sides |= {"CHANNELS": planes.count, "PIXELS_LOOPS": len(pixels)}
    if found.split:
        sides["SPLIT"] = 1
    channels, coefficients = coefficients_of(epilogue)
    along = varies(pixels if found.split else [*pixels, planes], epilogue)
    params = loops(found.outer) + axis(pixels, many)
    return CudaLaunch(
        "lines",
        defines(source, epilogue, along, **sides),
        params + struct.pack("4q", planes.src, planes.dst, planes.coef, channels),
        count_of(found.outer) * tiles_of(pixels, many),
        coefficients=coefficients,
    )
