"""Results of any size joined by a Collator, with windows and flips that are drawn.

What is drawn is a function of the seed, the epoch and the record's place in the whole source, and
of nothing else: neither threads nor partitions nor where a loop began make a difference.

Knows one batch's samples and places; records and threads are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...collator import Collator
from ...cpu.program import has_half
from ...errors import DtypeError, ShapeError
from ...layout.parsing import ARROW
from ...memory import Array
from ...planning.collate import make_frame, of_channels
from ...spec import DType
from ..random import drawn, key_of

__all__ = ["RANDOM", "Form", "Joining", "Places"]

RANDOM = "random"  # what is drawn for each record


class Places(NamedTuple):
    """Where records stand in their whole source: numbers and, of part files, in which file."""

    numbers: Array
    files: list[str] | None = None


class Form(NamedTuple):
    """What the samples of one batch have in common: dtype, rank, sizes along uncut axes."""

    dtype: DType
    sizes: tuple[int | None, ...]


@dataclass(frozen=True)
class Joining:
    """What makes a batch of results.

    offset, flip    by axis: "random", or what a Collator takes for all samples
    """

    collator: Collator
    offset: Mapping[str, Any]
    flip: Mapping[str, Any]
    seed: int

    @property
    def is_late(self) -> bool:
        """Whether a batch is made by whoever asks for it: GPUs have a stream for each thread."""
        return self.collator.device not in (None, "cpu")

    def form(self, x: Array, first: Form | None) -> Form:
        """The form of a sample, that of the batch's first; raises where it is no such sample.

        Raises
        ------
        ShapeError, DtypeError
            Also for the first one, if no batch can be made of it.
        """
        asked = self.collator.windows
        axes = asked.completed(x.ndim)
        shapes = np.array([x.shape], np.int64)
        window = axes.window(asked, shapes)
        sizes = of_channels(asked, axes, shapes)[0].tolist()
        uncut = zip(sizes, axes.windowed, strict=True)
        found = Form(x.dtype, tuple(size if name is None else None for size, name in uncut))
        if first is not None and found != first:
            raise _another(found, first, axes.sample.spelled(""))
        if asked.fill is None:
            for name, at in axes.places().items():
                self._check_inside(name, sizes[at], window[at])
        if first is None:
            make_frame(asked, axes, 1, window, x.dtype, None, has_half)
        return found

    def batch(self, samples: Sequence[Array], places: Places, epoch: int) -> Any:
        """The batch of samples of one form."""
        shapes = np.array([x.shape for x in samples], np.int64)
        return self.collator(samples, **self._windows(shapes, places, epoch))

    def batch_of_rows(self, array: Array, rows: Array, places: Places, epoch: int) -> Any:
        """The same of samples that are rows of one array."""
        shapes = np.broadcast_to(np.array(array.shape[1:]), (len(rows), array.ndim - 1))
        return self._of_rows(array, indices=rows, **self._windows(shapes, places, epoch))

    @cached_property
    def _of_rows(self) -> Collator:
        """What the Collator is for one array that has all samples."""
        left, right = self.collator.pattern.split(ARROW)
        blank = " " if " " in left.strip() else ""
        keywords = self.collator.windows.keywords()
        return Collator(f"b{blank}{left.strip()}{ARROW}{right}", **keywords)

    def _windows(self, shapes: Array, places: Places, epoch: int) -> dict[str, Any]:
        """Where windows begin and which are turned, for each sample, as a Collator takes it."""
        axes = self.collator.windows.completed(shapes.shape[1])
        at, sizes = axes.places(), self.collator.windows.task.sizes
        offset, flip = dict(self.offset), dict(self.flip)
        for name, value in offset.items():
            if value is RANDOM:
                spare = shapes[:, at[name]] - sizes[name]
                found = self._drawn("offset", name, epoch, places, np.abs(spare) + 1)
                offset[name] = found + np.minimum(spare, 0)
        for name, value in flip.items():
            if value is RANDOM:
                two = np.full(len(shapes), 2)
                flip[name] = self._drawn("flip", name, epoch, places, two) == 1
        return {"offset": offset or None, "flip": flip or None}

    def _drawn(self, what: str, name: str, epoch: int, places: Places, n: Array) -> Array:
        """One of 0 .. n-1 for each sample."""
        words = what, name, self.seed, epoch
        if places.files is None:
            key: Any = key_of(*words)
        else:
            keys = {file: key_of(*words, file) for file in set(places.files)}
            key = np.array([keys[file] for file in places.files], np.uint64)
        found: Array = drawn(key, places.numbers.astype(np.uint64), n.astype(np.uint64))
        return found.astype(np.int64)

    def _check_inside(self, name: str, size: int, window: int) -> None:
        begin = self.offset.get(name)
        begin = begin if isinstance(begin, int) else (size - window) // 2
        if begin < 0 or begin + window > size:
            raise ShapeError(
                f"the result has size {size} along {name}, but its window of {window} goes from "
                f"{begin} to {begin + window}; enlarge it in the processor, or give the Collator "
                "what is outside: fill=0"
            )


def _another(found: Form, first: Form, layout: str) -> Exception:
    if found.dtype != first.dtype:
        return DtypeError(
            f"the result has dtype {found.dtype}, but the first of this batch has {first.dtype}; "
            "give all one dtype"
        )
    uncut = [tuple("any" if n is None else n for n in form.sizes) for form in (found, first)]
    return ShapeError(
        f"the result has sizes {_sizes(uncut[0])} in {layout}, but the first of this batch has "
        f"{_sizes(uncut[1])}; give all one size, or the Collator a window"
    )


def _sizes(sizes: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
