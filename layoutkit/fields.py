"""Collators of the fields of samples that are dicts: image and mask share placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ._utils.errors import prefix_errors
from ._utils.pickling import UncachedState
from .collator import Collator
from .errors import LayoutkitError, ShapeError
from .normalize import CHANNEL
from .planning.batch.placement import Placements


@dataclass(frozen=True)
class FieldCollators(UncachedState):
    """A Collator for each of some fields of samples.

    The Collator of one field, the leader, places the samples, and the Collators of others with an
    axis of the same name follow, so that image and mask show one part of a scene.
    """

    collators: Mapping[str, Collator]  # by field

    @cached_property
    def leader(self) -> str | None:
        """The first field that draws, or else the first one with windows; None if there is none."""
        windows = {name: collator.windows for name, collator in self.collators.items()}
        drawn = [name for name, options in windows.items() if options.crops.is_random]
        sized = [
            n for n, options in windows.items() if options.convert.sizes and not options.packed
        ]
        return next(iter(drawn + sized), None)

    def check_sizes(self, sample: Mapping[str, Any]) -> None:
        """Raise ShapeError unless all fields of a sample have the leader's sizes."""
        if self.leader is None:
            return
        sizes = self._find_sizes(self.leader, sample)
        for name in self.collators:
            own = self._find_sizes(name, sample)
            for axis in sizes.keys() & own.keys():
                if axis != CHANNEL and sizes[axis] != own[axis]:
                    raise ShapeError(
                        f"field {name} has size {own[axis]} along {axis}, but {self.leader}, "
                        f"which shares its window, has {sizes[axis]}; give both one size"
                    )

    def _find_sizes(self, name: str, sample: Mapping[str, Any]) -> dict[str, int]:
        """Return the sizes of a field by axis."""
        shape = sample[name].shape
        with prefix_errors(f"field {name}: ", LayoutkitError):
            axes = self.collators[name].windows.find_sample_axes(len(shape))
        return {axis: shape[index] for axis, index in axes.axis_indices.items()}

    def collate(
        self, columns: Mapping[str, Sequence[Any]], *, positions: Any = None, epoch: int = 0
    ) -> tuple[dict[str, Any], Placements | None]:
        """Return the batches by field, and the placements; None if no Collator has windows.

        `columns` has the samples of each field; `positions` and `epoch` are arguments of a call.
        """
        draw = {"positions": positions, "epoch": epoch}
        placements = None
        if self.leader is not None:
            with prefix_errors(f"field {self.leader}: ", LayoutkitError):
                placements = self.collators[self.leader].place(columns[self.leader], **draw)
        batches = {}
        for name, collator in self.collators.items():
            is_placed = placements is not None and self._has_axis_of(name, placements.axes)
            with prefix_errors(f"field {name}: ", LayoutkitError):
                call = {"placements": placements} if is_placed else draw
                batches[name] = collator(columns[name], **call)
        return batches, placements

    def _has_axis_of(self, name: str, axes: Sequence[str]) -> bool:
        source = self.collators[name].windows.convert.pattern.source
        return not {*axes}.isdisjoint(axis for group in source.named for axis in group)
