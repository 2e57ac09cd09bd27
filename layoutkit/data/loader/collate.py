"""Collation of results of any size: by Collators, with random crops and flips, or end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..._utils.cache import cache_put
from ..._utils.errors import prefix_errors
from ..._utils.pickling import UncachedState
from ...collator import Collator
from ...errors import DtypeError, LayoutkitError, ShapeError
from ...fields import FieldCollators
from ...layout.parsing import ARROW
from ...memory import Array
from ...normalize import CHANNEL
from ...options import CollateOptions
from ...planning.batch.arguments import HEIGHTS, WIDTHS, CropArgs
from ...planning.batch.placement import Placements, place
from ...planning.batch.random import SourcePositions
from ...planning.batch.samples import LONGEST, SampleAxes
from ...planning.batch.weights import find_read_ends
from ...spec import DType
from ..ragged import Ragged

# The names of the axes of decoded images.
_IMAGE_AXES = (HEIGHTS, WIDTHS, (CHANNEL, ""))


class SampleSpec(NamedTuple):
    """The properties that all samples of a batch share: dtype, rank, sizes of axes not cropped.

    `sizes` is None for a number, which has no axis to be joined along.
    """

    dtype: DType
    sizes: tuple[int | None, ...] | None


class BatchStep(Protocol):
    """A step that makes a batch of results, whose specs have to be equal."""

    @property
    def is_deferred(self) -> bool:
        """True if the consumer thread must make the batch."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the arrays of a sample, which is a dict; () if it is one array."""
        return ()

    def spec_key(self, x: Any) -> Any:
        """Return what `sample_spec` depends on: samples with equal keys have equal specs."""

    def sample_spec(self, x: Any, common: Any) -> Any:
        """Return the spec of a sample; raise if it differs from the `common` spec of the run."""

    def batch(self, samples: Sequence[Array], positions: SourcePositions, epoch: int) -> Any:
        """Return the batch of samples with equal specs."""

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Any:
        """Return the batch of samples that are rows of one array."""


@dataclass(frozen=True)
class CollateStep(BatchStep, UncachedState):
    """The step that makes a batch of results by a Collator, which draws its windows."""

    collator: Collator

    @property
    def is_deferred(self) -> bool:
        return self.collator.device not in (None, "cpu")  # GPU streams are per thread

    def spec_key(self, x: Array) -> tuple[DType, tuple[int, ...]]:
        if self.collator.windows.packed:  # any size may be one that does not fit the pattern
            return x.dtype, x.shape
        axes = self._fixed_axes.get(x.ndim)
        if axes is None:
            windows = self.collator.windows
            sample_axes = windows.find_sample_axes(x.ndim)
            names, longest = sample_axes.cropped_names, sample_axes.longest
            may_be_cut = windows.fill is None and windows.resize is None
            axes = tuple(
                axis
                for axis, name in enumerate(names)
                if name is None or name == CHANNEL or (may_be_cut and name not in longest)
            )
            self._fixed_axes[x.ndim] = axes
        shape = x.shape
        return x.dtype, tuple([shape[axis] for axis in axes])

    @cached_property
    def _fixed_axes(self) -> dict[int, tuple[int, ...]]:
        """The axes by rank whose sizes decide whether a sample can be collated."""
        return {}

    @cached_property
    def _valid_specs(self) -> dict[Any, SampleSpec]:
        """The specs of samples that can be collated, by key."""
        return {}

    def sample_spec(self, x: Array, common: SampleSpec | None) -> SampleSpec:
        """Return the spec of a sample.

        Raises
        ------
        ShapeError, DtypeError
            The spec differs from `common`, the run's, or the sample cannot be collated.
        """
        key = self.spec_key(x)
        known = self._valid_specs.get(key)
        if known is not None and common in (None, known):
            return known
        options = self.collator.windows
        axes = options.find_sample_axes(x.ndim)
        shapes = np.array([x.shape], np.int64)
        window = axes.window(shapes)
        sizes = axes.select_channels(shapes)[0].tolist()
        names = enumerate(axes.cropped_names)
        uncut = [name is None and axis not in axes.packed_axes for axis, name in names]
        fixed = zip(sizes, uncut, strict=True)
        spec = SampleSpec(x.dtype, tuple(size if is_uncut else None for size, is_uncut in fixed))
        if common is not None and spec != common:
            raise _mismatch_error(spec, common, axes.sample.to_text(""))
        if options.fill is None and options.resize is None:
            self._check_inside(options, axes, window, shapes)
        if common is None or options.packed:
            self.collator.check_sample(x.shape, x.dtype)
            cache_put(self._valid_specs, key, spec)
        return spec

    @property
    def crops_rows(self) -> bool:
        """True if windows often end above the last rows of samples, which are images (h, w, c)."""
        windows = self.collator.windows
        if windows.packed or windows.sizes.get(self._row_axis, LONGEST) == LONGEST:
            return False
        # A resized central crop ends near the last row: planning would take as long as it saves.
        return windows.resize is None or bool(windows.crops.crop)

    @cached_property
    def _row_axis(self) -> str:
        """The name of the axis of rows of images, "" if the pattern has no such axis."""
        try:
            axes = self.collator.windows.find_sample_axes(len(_IMAGE_AXES))
        except ShapeError:  # samples have another rank
            return ""
        are_images = all(name in known for name, known in zip(axes.names, _IMAGE_AXES, strict=True))
        return axes.names[0] if are_images else ""

    def find_row_ends(
        self, shapes: Sequence[tuple[int, ...]], positions: SourcePositions, epoch: int
    ) -> Array:
        """Return the number of first rows of each sample that its windows read.

        Called if `crops_rows` is True. Raises the errors of `Collator.place`.
        """
        placements = self.collator.place(shapes, positions=positions, epoch=epoch)
        column = placements.axes.index(self._row_axis)
        return find_read_ends(self.collator.windows.resize, placements, column)

    def batch(self, samples: Sequence[Array], positions: SourcePositions, epoch: int) -> Any:
        return self.collator(samples, positions=positions, epoch=epoch)

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Any:
        if self.collator.windows.packed:
            return self.batch([*array[rows]], positions, epoch)
        return self._row_collator(array, indices=rows, positions=positions, epoch=epoch)

    @cached_property
    def _row_collator(self) -> Collator:
        left, right = self.collator.pattern.split(ARROW)
        blank = " " if " " in left.strip() else ""
        pattern = f"b{blank}{left.strip()}{ARROW}{right}"
        return type(self.collator).from_dict({**self.collator.to_dict(), "pattern": pattern})

    def _check_inside(
        self, options: CollateOptions, axes: SampleAxes, window: tuple[int, ...], shapes: Array
    ) -> None:
        """Raise ShapeError if a window that is not random reaches outside of its sample."""
        offsets = self.collator.windows.crops.offset
        fixed = {name: begin for name, begin in offsets if isinstance(begin, int)}
        filled = replace(options, fill=(0,))
        placements = place(filled, axes, window, shapes, CropArgs(fixed))
        for row, axis in zip(*placements.outside.nonzero(), strict=True):
            begin, size = placements.begins[row, axis], placements.lengths[row, axis]
            name = axes.sample.named[axis][0]
            raise ShapeError(
                f"the result has size {size} along {name}, but its window of {window[axis]} goes "
                f"from {begin} to {begin + window[axis]}; enlarge it in the processor, or give the "
                "Collator a fill value for the outside: fill=0"
                f"{axes.find_channels_first(shapes[row].tolist())}"
            )


@dataclass(frozen=True)
class MultiCollateStep(BatchStep):
    """The step that makes a tuple of batches of the same results, one for each of `steps`."""

    steps: tuple[CollateStep, ...]

    @property
    def is_deferred(self) -> bool:
        return any(step.is_deferred for step in self.steps)

    @property
    def crops_rows(self) -> bool:
        """True if the windows of all steps often end above the last rows of images."""
        return all(step.crops_rows for step in self.steps)

    def find_row_ends(
        self, shapes: Sequence[tuple[int, ...]], positions: SourcePositions, epoch: int
    ) -> Array:
        """Return the number of first rows of each sample that the windows of any step read."""
        ends = [step.find_row_ends(shapes, positions, epoch) for step in self.steps]
        return np.max(ends, 0)

    def spec_key(self, x: Array) -> Any:
        return tuple([step.spec_key(x) for step in self.steps])

    def sample_spec(self, x: Array, common: Any) -> Any:
        """Return the specs of all steps; raise if one differs from the run's."""
        specs = _split_specs(common, len(self.steps))
        return tuple([step.sample_spec(x, s) for step, s in zip(self.steps, specs, strict=True)])

    def batch(self, samples: Sequence[Array], positions: SourcePositions, epoch: int) -> Any:
        return tuple([step.batch(samples, positions, epoch) for step in self.steps])

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Any:
        return tuple([step.batch_of_rows(array, rows, positions, epoch) for step in self.steps])


def _split_specs(common: Any, count: int) -> tuple[SampleSpec | None, ...]:
    """Return the spec for each of several steps; states hold the spec of a single step alone."""
    if isinstance(common, SampleSpec):
        return (common,)
    return common or (None,) * count


class FieldBatch(NamedTuple):
    """The batches of the fields of records, and the placements that they share."""

    arrays: dict[str, Any]  # an array or a Ragged by field
    placements: Placements | None  # None if no field has windows


@dataclass(frozen=True)
class FieldsStep(BatchStep, UncachedState):
    """The step that makes a batch of each field of the results, which are dicts of arrays."""

    steps: Mapping[str, CollateStep | RaggedStep]  # by field

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.steps,)

    @property
    def is_deferred(self) -> bool:
        return any(step.is_deferred for step in self.steps.values())

    @cached_property
    def _collators(self) -> FieldCollators:
        steps = self.steps.items()
        return FieldCollators({n: step.collator for n, step in steps if type(step) is CollateStep})

    def spec_key(self, x: Mapping[str, Array]) -> Any:
        """Return the keys of all fields; raise ShapeError if sizes of placed axes differ."""
        self._collators.check_sizes(x)
        return tuple([step.spec_key(x[name]) for name, step in self.steps.items()])

    def sample_spec(self, x: Mapping[str, Array], common: Any) -> Any:
        """Return the specs of all fields; raise if one differs from the run's."""
        specs = _split_specs(common, len(self.steps))
        result = []
        for (name, step), spec in zip(self.steps.items(), specs, strict=True):
            with prefix_errors(f"field {name}: ", LayoutkitError):
                result.append(step.sample_spec(x[name], spec))
        return tuple(result)

    def batch(self, samples: Sequence[Any], positions: SourcePositions, epoch: int) -> FieldBatch:
        columns = {name: [sample[name] for sample in samples] for name in self.steps}
        arrays, placements = self._collators.collate(columns, positions=positions, epoch=epoch)
        for name in columns.keys() - arrays.keys():
            arrays[name] = self.steps[name].batch(columns[name], positions, epoch)
        return FieldBatch({name: arrays[name] for name in self.steps}, placements)

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Any:
        """Never called: the rows of one array are no dicts."""
        raise NotImplementedError


RAGGED = "ragged"


class RaggedStep(BatchStep):
    """The step that joins results, which differ in length, to a Ragged."""

    @property
    def is_deferred(self) -> bool:
        """False: any thread can join arrays."""
        return False

    def spec_key(self, x: Array) -> SampleSpec:
        """Return the spec of a sample, without checks."""
        return SampleSpec(x.dtype, x.shape[1:] if x.ndim else None)

    def sample_spec(self, x: Array, common: SampleSpec | None) -> SampleSpec:
        """Return the spec of a sample.

        Raises
        ------
        ShapeError, DtypeError
            The sample has no axis, or its spec differs from `common`, the run's.
        """
        spec = self.spec_key(x)
        if spec.sizes is None:
            raise ShapeError("the result is a number, which has no length; return an array")
        if common is not None and spec.dtype != common.dtype:
            raise _dtype_error(spec, common)
        if common is not None and spec.sizes != common.sizes:
            shape = ("any", *(common.sizes or ()))
            raise ShapeError(
                f"the result has shape {x.shape}, but most of the first batch have {_sizes(shape)}"
                "; return arrays that differ in the first axis only"
            )
        return spec

    def batch(self, samples: Sequence[Array], positions: SourcePositions, epoch: int) -> Ragged:
        return Ragged.of(samples)

    def batch_of_rows(
        self, array: Array, rows: Array, positions: SourcePositions, epoch: int
    ) -> Ragged:
        return Ragged.of(list(array[rows]))


def _mismatch_error(spec: SampleSpec, common: SampleSpec, layout: str) -> Exception:
    if spec.dtype != common.dtype:
        return _dtype_error(spec, common)
    uncut = [tuple("any" if n is None else n for n in s.sizes or ()) for s in (spec, common)]
    return ShapeError(
        f"the result has sizes {_sizes(uncut[0])} in {layout}, but most of the first batch have "
        f"{_sizes(uncut[1])}; return one size for all, or give the Collator a window"
    )


def _dtype_error(spec: SampleSpec, common: SampleSpec) -> DtypeError:
    return DtypeError(
        f"the result has dtype {spec.dtype}, but most of the first batch have {common.dtype}; "
        "return one dtype for all"
    )


def _sizes(sizes: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
