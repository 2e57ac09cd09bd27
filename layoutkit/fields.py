"""Collators of the fields of samples: image and mask share placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ._utils.errors import prefix_errors
from ._utils.pickling import UncachedState
from .collator import Collator, list_loaded_kernels
from .errors import ArgumentError, LayoutkitError, ShapeError
from .normalize import CHANNEL
from .planning.batch.placement import Placements
from .spec import as_dtype


@dataclass(frozen=True)
class FieldCollators(UncachedState):
    """A Collator for each of some fields of samples.

    The Collator of one field, the leader, places the samples, and the Collators of others with an
    axis of the same name follow, so that image and mask show one part of a scene.
    """

    collators: Mapping[Any, Collator]  # by field

    def __post_init__(self) -> None:
        """Raise ArgumentError for fields that cannot show one part of a sample."""
        if self.leader is None:
            return
        sizes, placed = self._find_window_sizes(self.leader), self._find_placed_axes(self.leader)
        for name in self.collators:
            if name == self.leader or not placed & self._find_axes(name):
                continue
            self._check_packed(name)
            followed = self._find_single_axes(name) | self._find_packed_axes(name)
            folded = sorted(placed & (self._find_axes(name) - followed))
            if folded:
                raise ArgumentError(
                    f"field {name} folds {folded[0]} on the left, but follows field {self.leader}, "
                    f"which places samples along {folded[0]}; reshape the samples of {name}, so "
                    f"that {folded[0]} is an axis of its own, or rename it"
                )
            own = self._find_window_sizes(name)
            for axis in sorted(sizes.keys() & own.keys()):
                if sizes[axis] != own[axis]:
                    raise ArgumentError(
                        f"field {name} has windows of {own[axis]} along {axis}, but follows field "
                        f"{self.leader}, which has {sizes[axis]}; give both one size, or rename "
                        f"{axis} in one of them"
                    )

    def _check_packed(self, name: str) -> None:
        """Raise ArgumentError if a field cannot follow as one of the two fields is packed."""
        leader = self.collators[self.leader or name].windows
        is_packed = bool(self.collators[name].windows.packed)
        if leader.packed and not is_packed:
            raise ArgumentError(
                f"field {name} has windows of one size, but follows field {self.leader}, which "
                "packs samples, whose windows differ in size; pack this field, too, as in "
                '"hwc->(bhw)c", or rename the axes of one of them'
            )
        resize = leader.resize
        is_padded = resize is not None and (resize.short_side is not None or resize.fit == "pad")
        if is_packed and (is_padded or leader.longest):
            raise ArgumentError(
                f"field {name} packs whole windows, and cannot follow field {self.leader}, whose "
                "windows are padded or cropped after they are scaled; give that field windows "
                'without short_side=, fit="pad" and "longest", or rename the axes of one of them'
            )

    @cached_property
    def leader(self) -> str | None:
        """The first field that draws, or else the first one with windows of one size, or None."""
        windows = {name: collator.windows for name, collator in self.collators.items()}
        drawn = [name for name, options in windows.items() if options.crops.is_random]
        sized = [n for n, x in windows.items() if not x.packed and self._find_window_sizes(n)]
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
        self,
        columns: Mapping[str, Sequence[Any]],
        *,
        positions: Any = None,
        epoch: int = 0,
        flip: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], Placements | None]:
        """Return the batches by field, and the placements; None if no Collator has windows.

        `columns` has the samples of each field; the others are arguments of a call, `flip` of the
        leader.
        """
        draw = {"positions": positions, "epoch": epoch}
        placements = None
        if self.leader is not None:
            with prefix_errors(f"field {self.leader}: ", LayoutkitError):
                leader = self.collators[self.leader]
                placements = leader.place(columns[self.leader], flip=flip, **draw)
        batches = {}
        for name, collator in self.collators.items():
            is_placed = placements is not None and self._follows(name, placements)
            with prefix_errors(f"field {name}: ", LayoutkitError):
                call = {"placements": placements} if is_placed else draw
                batches[name] = collator(columns[name], **call)
        return batches, placements

    def warmup(self, columns: Mapping[str, Sequence[Any]], dtypes: Mapping[str, Any]) -> list[str]:
        """Load the kernels of batches of the fields, as `Collator.warmup` does; return their names.

        columns    the samples of each field, or their shapes
        dtypes     of the samples that are shapes, by field
        """
        zeros: dict[str, Any] = {}
        for name, collator in self.collators.items():
            with prefix_errors(f"field {name}: ", LayoutkitError):
                zeros[name], _ = collator.make_zeros(columns[name], as_dtype(dtypes[name]))
        leader = None if self.leader is None else self.collators[self.leader]
        flips = [None] if leader is None else [None, *leader.vary_flips()]
        with list_loaded_kernels() as names:
            for flip in flips:  # None: drawn
                positions = range(len(next(iter(zeros.values()))))
                _, placements = self.collate(zeros, positions=positions, flip=flip)
            for name, collator in self.collators.items():
                if placements is None or not self._follows(name, placements):
                    collator.warmup(zeros[name])
        return names

    def _follows(self, name: str, placements: Placements) -> bool:
        """Return True if the samples of a field are placed as `placements` are."""
        return not {*placements.axes}.isdisjoint(self._find_axes(name))

    def _find_window_sizes(self, name: str) -> dict[str, int]:
        """Return the sizes of the windows of a field, along axes that are not folded."""
        sizes = self.collators[name].windows.convert.sizes
        own_axes = self._find_single_axes(name)
        return {axis: size for axis, size in sizes.items() if axis in own_axes}

    def _find_placed_axes(self, name: str) -> set[str]:
        """Return the names of the axes along which a field places its samples."""
        windows = self.collators[name].windows
        crops = windows.crops
        is_sized = windows.resize is not None or windows.size is not None
        packed = self._find_packed_axes(name) - {CHANNEL} if is_sized else set()
        named = {axis for axis, _ in (*crops.offset, *crops.flip)}
        return {*self._find_window_sizes(name), *windows.longest, *packed, *named}

    def _find_packed_axes(self, name: str) -> set[str]:
        """Return the names of the axes of a sample of a field that differ in a packed batch."""
        windows = self.collators[name].windows
        return {windows.convert.pattern.source.name(letter) for letter in windows.packed}

    def _find_single_axes(self, name: str) -> set[str]:
        """Return the names of the axes of a sample of a field that are not folded."""
        groups = self.collators[name].windows.convert.pattern.source.named
        return {group[0] for group in groups if len(group) == 1}

    def _find_axes(self, name: str) -> set[str]:
        """Return the names of the axes of a sample of a field."""
        windows = self.collators[name].windows
        groups = windows.convert.pattern.source.named
        return {axis for group in groups for axis in group} - {windows.letter}
