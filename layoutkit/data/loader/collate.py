"""Collation of results of any size by a Collator, with random crops and flips.

Random values are a function of the seed, the epoch and the record's position in the whole source
only: threads, partitions and resuming make no difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...collator import Collator
from ...cpu.program import supports_float16
from ...errors import DtypeError, ShapeError
from ...layout.parsing import ARROW
from ...memory import Array
from ...planning.collate import make_batch_layout, select_channel_sizes
from ...spec import DType
from ..random import draw_below, make_key

RANDOM = "random"  # marks a value that is drawn for each record


class SourcePositions(NamedTuple):
    """Positions of records in the whole source: numbers and, for part files, file names."""

    numbers: Array
    files: list[str] | None = None


class SampleSpec(NamedTuple):
    """The properties that all samples of a batch share: dtype, rank, sizes of axes not cropped."""

    dtype: DType
    sizes: tuple[int | None, ...]


class RandomCrop(NamedTuple):
    """The crops that are drawn for resized samples.

    scale    the bounds of the crop's share of the area, which is drawn uniformly
    ratio    the bounds of its aspect ratio (width / height), whose logarithm is drawn uniformly
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class CollateStep:
    """The step that makes a batch of results.

    offset, flip    by axis: "random", or a value that the Collator accepts for all samples
    crop            the random crops of resized samples; None: whole samples
    """

    collator: Collator
    offset: Mapping[str, Any]
    flip: Mapping[str, Any]
    crop: RandomCrop | None
    seed: int

    @property
    def is_deferred(self) -> bool:
        """True if the consumer thread must make the batch: GPU streams are per thread."""
        return self.collator.device not in (None, "cpu")

    def sample_spec(self, x: Array, first: SampleSpec | None) -> SampleSpec:
        """Return the spec of a sample.

        Raises
        ------
        ShapeError, DtypeError
            The spec differs from `first`, that of the batch's first sample, or the sample cannot
            be collated.
        """
        options = self.collator.windows
        axes = options.completed(x.ndim)
        shapes = np.array([x.shape], np.int64)
        window = axes.window(options, shapes)
        sizes = select_channel_sizes(options, axes, shapes)[0].tolist()
        uncut = zip(sizes, axes.cropped_names, strict=True)
        spec = SampleSpec(x.dtype, tuple(size if name is None else None for size, name in uncut))
        if first is not None and spec != first:
            raise _mismatch_error(spec, first, axes.sample.to_text(""))
        if options.fill is None and options.resize is None:
            for name, axis in axes.places().items():
                self._check_inside(name, sizes[axis], window[axis])
        if first is None:
            make_batch_layout(options, axes, 1, window, x.dtype, None, supports_float16)
        return spec

    def batch(self, samples: Sequence[Array], positions: SourcePositions, epoch: int) -> Any:
        """Return the batch of samples with equal specs."""
        shapes = np.array([x.shape for x in samples], np.int64)
        return self.collator(samples, **self._windows(shapes, positions, epoch))

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Any:
        """Return the batch of samples that are rows of one array."""
        shapes = np.broadcast_to(np.array(array.shape[1:]), (len(rows), array.ndim - 1))
        return self._row_collator(array, indices=rows, **self._windows(shapes, positions, epoch))

    @cached_property
    def _row_collator(self) -> Collator:
        """The Collator for one array that contains all samples."""
        left, right = self.collator.pattern.split(ARROW)
        blank = " " if " " in left.strip() else ""
        keywords = self.collator.windows.keywords()
        return Collator(f"b{blank}{left.strip()}{ARROW}{right}", **keywords)

    def _windows(self, shapes: Array, positions: SourcePositions, epoch: int) -> dict[str, Any]:
        """Return the Collator's `offset`, `flip` and `crop`, with random values per sample."""
        axes = self.collator.windows.completed(shapes.shape[1])
        axes_by_name = axes.places()
        sizes = self.collator.windows.options.sizes
        offset = dict(self.offset)
        flip = dict(self.flip)
        for name, value in offset.items():
            if value is RANDOM:
                spare = shapes[:, axes_by_name[name]] - sizes[name]
                offsets = self._draw("offset", name, epoch, positions, np.abs(spare) + 1)
                offset[name] = offsets + np.minimum(spare, 0)
        for name, value in flip.items():
            if value is RANDOM:
                two = np.full(len(shapes), 2)
                flip[name] = self._draw("flip", name, epoch, positions, two) == 1
        windows = {"offset": offset or None, "flip": flip or None}
        if self.crop is not None:
            resized = [name for name in axes.cropped_names if name is not None]
            columns = [axes_by_name[name] for name in resized]
            windows |= self._draw_crops(self.crop, resized, shapes[:, columns], positions, epoch)
        return windows

    def _draw_crops(
        self,
        crop: RandomCrop,
        names: Sequence[str],
        sizes: Array,
        positions: SourcePositions,
        epoch: int,
    ) -> dict[str, Any]:
        """Return the `crop` and `offset` of a Collator that resizes height and width."""

        def uniform(purpose: str, bounds: tuple[float, float]) -> Array:
            many = np.full(len(sizes), 1 << 53)
            share = self._draw("crop", purpose, epoch, positions, many) / (1 << 53)
            drawn: Array = bounds[0] + share * (bounds[1] - bounds[0])
            return drawn

        area = uniform("area", crop.scale) * sizes.prod(1)
        ratio = np.exp(uniform("ratio", (math.log(crop.ratio[0]), math.log(crop.ratio[1]))))
        sides = np.sqrt(np.stack([area / ratio, area * ratio], 1))
        extents = np.clip(np.rint(sides).astype(np.int64), 1, sizes)
        drawn: dict[str, Any] = {"crop": {}, "offset": {}}
        for column, name in enumerate(names):
            spare = sizes[:, column] - extents[:, column]
            drawn["crop"][name] = np.ascontiguousarray(extents[:, column])
            drawn["offset"][name] = self._draw("offset", name, epoch, positions, spare + 1)
        return drawn

    def _draw(
        self, purpose: str, name: str, epoch: int, positions: SourcePositions, n: Array
    ) -> Array:
        """Draw a number from 0 .. n-1 for each sample."""
        key_parts = purpose, name, self.seed, epoch
        if positions.files is None:
            key: Any = make_key(*key_parts)
        else:
            keys = {file: make_key(*key_parts, file) for file in set(positions.files)}
            key = np.array([keys[file] for file in positions.files], np.uint64)
        values: Array = draw_below(key, positions.numbers.astype(np.uint64), n.astype(np.uint64))
        return values.astype(np.int64)

    def _check_inside(self, name: str, size: int, window: int) -> None:
        begin = self.offset.get(name)
        begin = begin if isinstance(begin, int) else (size - window) // 2
        if begin < 0 or begin + window > size:
            raise ShapeError(
                f"the result has size {size} along {name}, but its window of {window} goes from "
                f"{begin} to {begin + window}; enlarge it in the processor, or give the Collator a "
                "fill value for the outside: fill=0"
            )


def _mismatch_error(spec: SampleSpec, first: SampleSpec, layout: str) -> Exception:
    if spec.dtype != first.dtype:
        return DtypeError(
            f"the result has dtype {spec.dtype}, but the first of this batch has {first.dtype}; "
            "return one dtype for all"
        )
    uncut = [tuple("any" if n is None else n for n in s.sizes) for s in (spec, first)]
    return ShapeError(
        f"the result has sizes {_sizes(uncut[0])} in {layout}, but the first of this batch has "
        f"{_sizes(uncut[1])}; return one size for all, or give the Collator a window"
    )


def _sizes(sizes: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
