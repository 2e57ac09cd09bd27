"""The kernels that most programs want: what `warmup()` loads, and what wheels bring along.

They are found by planning conversions and sums, never by name, so that a change of the policy
changes what is compiled beforehand too. Every row of ROWS is planned in a small shape and in one
whose result is streamed past the caches, as those are two kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from .accumulation import Accumulator
from .conversion import plan
from .cpu.program import has_half
from .devices import CPU
from .kernels.cpu.compiler import KernelSpec, LoadedKernel
from .kernels.cpu.launch import prepare
from .kernels.cpu.sums import MAX_NEST, prepare_sum
from .kernels.cpu.words import LINE
from .planning.plan import Plan
from .planning.sums import make_sum_plan, operand
from .planning.task import make_task
from .workers import HAND_OVER

__all__ = ["image_plans", "kernels"]

NORMALISED: dict[str, Any] = {"scale": 1 / 255, "mean": (0.5,) * 3, "std": (0.25,) * 3}
PICTURES = ((8, 32, 32, 3), (64, 224, 224, 3))  # bhwc
WITH_ALPHA = ((8, 32, 32, 4), (64, 224, 224, 4))
FEATURES = ((8, 16, 16, 64), (64, 56, 56, 64))
BETWEEN = ("bhwc->bchw", "bchw->bhwc", "bchw->chwb", "chwb->bchw", "bhwc->chwb", "chwb->bhwc")
# Results from our own pool begin on cache lines. Memory of others (`out=`), and rows that are no
# whole lines, are often on 16 bytes only.
ALIGNMENTS = (LINE, 16)


class Row(NamedTuple):
    """Conversions that many programs make: patterns, shapes of their letters, dtypes."""

    patterns: tuple[str, ...]
    letters: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    keywords: dict[str, Any] = {}  # noqa: RUF012 (it is never changed)


ROWS = (
    # Photographs and their halves and floats, between all three orders of images.
    Row(BETWEEN, "bhwc", PICTURES, ("u1", "f2", "f4")),
    # Pictures with alpha, as screens and PNG files give them, to models and back.
    Row(BETWEEN[:2], "bhwc", WITH_ALPHA, ("u1", "f4")),
    # Feature maps, and with them every matrix: tiles for items of all sizes.
    Row(BETWEEN, "bhwc", FEATURES, ("u1", "f2", "f4", "f8")),
    # What a training loop does to photographs; with one number it is the same kernel.
    *(
        Row(BETWEEN[:1], "bhwc", PICTURES, ("u1",), {"to_dtype": to, **NORMALISED})
        for to in ("f4", "f2", "bfloat16")
    ),
    # The same where the model wants what the decoder gave, and where planes are planes already.
    Row(("bhwc->bhwc", "bchw->bchw"), "bhwc", PICTURES, ("u1",), {"to_dtype": "f4", **NORMALISED}),
    # And back into pictures.
    Row(
        BETWEEN[1:2],
        "bhwc",
        PICTURES,
        ("f4",),
        {"to_dtype": "u1", "casting": "saturate", "scale": 255},
    ),
    # Casts between what models compute in and what data is kept in.
    *(
        Row(("bf->bf",), "bf", ((8, 64), (4096, 4096)), dtypes, {"to_dtype": to})
        for dtypes, to in (
            (("u1", "f2", "bfloat16", "f8"), "f4"),
            (("f4",), "f2"),
            (("f4",), "bfloat16"),
            (("f4",), "f8"),
        )
    ),
    # Heads of attention: runs are copied.
    Row(("bshd->bhsd",), "bshd", ((2, 16, 4, 64), (8, 512, 16, 64)), ("f4", "f2")),
)

# Windows of photographs, as `collate` puts them into a batch.
WINDOW = (224, 224, 3)  # hwc
WINDOWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hwc->chw", {"dtype": "f4", **NORMALISED}),
    ("hwc->chw", {}),
    ("hwc->hwc", {}),
)

# Gradients of layers that took one batch in two layouts.
SUMS = tuple(
    ((first, second), result)
    for first, second, result in product(("bhwc", "bchw"), ("bhwc", "bchw"), ("bhwc", "bchw"))
)


def image_plans(device: str) -> list[Plan]:
    """Conversions of images with 3 and with many channels, and of photographs for models."""
    shapes = ((8, 16, 16, 3), (64, 224, 224, 3), *FEATURES)
    plans = [
        plan(pattern, _ordered(pattern, "bhwc", shape), dtype, device=device)
        for pattern, shape, dtype in product(BETWEEN, shapes, ("uint8", "float32"))
    ]
    for size in (8, 64):
        shape, to = (size, 224, 224, 3), np.float32
        plans.append(plan("bhwc->bchw", shape, "uint8", to_dtype=to, device=device, **NORMALISED))
    return plans


def kernels() -> list[KernelSpec]:
    """Every kernel of ROWS and SUMS for this CPU, and those of threads; compiles nothing."""
    found = [KernelSpec("workers", (part,)) for part in HAND_OVER]
    found += _of_conversions(ROWS)
    found += _of_windows()
    found += _of_sums()
    return list(dict.fromkeys(found))


def _of_conversions(rows: Iterable[Row]) -> Iterator[KernelSpec]:
    for patterns, letters, shapes, dtypes, keywords in rows:
        for pattern, shape, dtype in product(patterns, shapes, dtypes):
            found = plan(pattern, _ordered(pattern, letters, shape), dtype, **keywords)
            if found.choice is not None:
                for alignment in ALIGNMENTS:
                    yield prepare(found.choice, found.epilogue, alignment).spec


def _of_windows() -> Iterator[KernelSpec]:
    """Batches of photographs, half of them flipped."""
    yield KernelSpec("each", ("each",))
    _, width, channels = WINDOW
    for pattern, keywords in WINDOWS:
        for step in (channels, -channels):
            strides = 2 * width * channels, step, 1
            task = make_task(pattern, **keywords)
            found = task.plan(WINDOW, strides, np.dtype(np.uint8), CPU, None, has_half)
            if found.choice is not None:
                yield prepare(found.choice, found.epilogue, LINE, stream=True).spec


def _of_sums() -> list[KernelSpec]:
    asked: list[KernelSpec] = []

    def note(spec: KernelSpec) -> LoadedKernel:
        asked.append(spec)
        return LoadedKernel(spec, 0, None, "noted")

    for (layouts, layout), shape in product(SUMS, (*PICTURES[:1], FEATURES[1])):
        parts = [np.empty(_ordered(part, "bhwc", shape), np.float32) for part in layouts]
        request = Accumulator(layouts, layout).plan(parts, None)
        found = make_sum_plan(request, has_half, MAX_NEST)
        sides = [operand(dtype) for dtype in (request.computed, found.written)]
        for alignment in ALIGNMENTS:
            operands = [operand(dtype) for dtype in found.dtypes]
            prepare_sum(found.nest.loops, operands, sides[0], sides[1], alignment, note)
    return asked


def _ordered(pattern: str, letters: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape in the order of the pattern's left side."""
    sizes = dict(zip(letters, shape, strict=True))
    return tuple(sizes[letter] for letter in pattern.split("->")[0])
