"""Which results fit together: those like the first one that is kept.

Judged in the order of records, whatever the order in which they came, so that threads make no
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ...errors import DataError, LayoutkitError, ShapeError
from ...memory import Array
from ...spec import DType, can_cast, check_movable
from .chunks import Chunk
from .joining import Form, Joining

__all__ = ["Judge", "kept_rows"]

_DTYPE = np.dtype("float32")  # of records whose shape is given and whose dtype is not


class Judge:
    """What the records of one batch have in common.

    shape, dtype : of a record; None until the first one is kept, where they were not given
    targeted     : shape and dtype of a target; False where records have none, None until then
    """

    def __init__(
        self, dims: tuple[int, ...] | None, dtype: DType | None, join: Joining | None = None
    ) -> None:
        self._given = dtype
        self.shape = dims
        self.dtype: DType | None = dtype or (None if dims is None else _DTYPE)
        self._join = join
        self._form: Form | None = None  # of what is joined
        self._seen: set[tuple[tuple[int, ...], DType]] = set()  # that are of this form
        self.targeted: tuple[tuple[int, ...], DType] | Literal[False] | None = None

    def judge(self, piece: Chunk) -> None:
        """Let those records fail whose shape, dtype or target is another."""
        if self._join is None:
            self._look_at_shapes(piece)
        else:
            self._look_at_forms(piece, self._join)
        self._look_at_targets(piece)

    def _look_at_shapes(self, piece: Chunk) -> None:
        if piece.known or len(piece.failed) == piece.count:
            return
        block: Any = piece.block
        if self.shape is None:
            row = next(row for row in range(piece.count) if row not in piece.failed)
            first = piece.odd.get(row, block[row])
            self.shape, self.dtype = first.shape, self._given or first.dtype
        if not piece.odd and self._fits(block[0]):
            return
        for row in range(piece.count):
            if row not in piece.failed and not self._fits(result := piece.odd.get(row, block[row])):
                piece.failed[row] = ShapeError(
                    f"the result has shape {result.shape} and dtype {result.dtype}, but the first "
                    f"of this batch has {self.shape} and {self.dtype}; resize it in the processor"
                )

    def _fits(self, result: Array) -> bool:
        same = result.shape == self.shape
        return same and can_cast(result.dtype, self.dtype, "same_kind")  # type: ignore[arg-type]

    def _look_at_forms(self, piece: Chunk, join: Joining) -> None:
        source = piece.work.feeds[0].source if piece.lies else None
        for row in kept_rows(piece):
            x = piece.odd[row] if source is None else source[0]
            if (x.shape, x.dtype) in self._seen:
                continue
            try:
                self._form = join.form(x, self._form)
                self._seen.add((x.shape, x.dtype))
            except LayoutkitError as error:
                piece.failed[row] = error

    def _look_at_targets(self, piece: Chunk) -> None:
        kept = kept_rows(piece)
        if not piece.targets and not isinstance(self.targeted, tuple):
            self.targeted = False if kept else self.targeted
            return
        piece.target_block = _alike([piece.targets.get(row) for row in kept])
        if piece.target_block is not None and self._takes(piece.target_block[0]):
            return
        piece.target_block = None
        for row in kept:
            if row not in piece.targets and not self.targeted:
                self.targeted = False
                continue
            try:
                piece.targets[row] = self._as_target(row, piece)
            except (LayoutkitError, ValueError, TypeError) as error:
                piece.failed[row] = error

    def _takes(self, target: Array) -> bool:
        """Whether a target is like that of the batch's first; the first one is."""
        if self.targeted is None:
            self.targeted = target.shape, target.dtype
        if self.targeted is False:
            return False
        shape, dtype = self.targeted
        return target.shape == shape and can_cast(target.dtype, dtype, "same_kind")

    def _as_target(self, row: int, piece: Chunk) -> Array:
        """The target of a record as an array, like that of the batch's first."""
        if self.targeted is False or row not in piece.targets:
            raise DataError("this record has a target and others have none; give all or none")
        target = np.asarray(piece.targets[row])
        check_movable(target.dtype)
        if not self._takes(target):
            raise ShapeError(
                f"the target has shape {target.shape} and dtype {target.dtype}, but the first of "
                f"this batch has other ones: {self.targeted}"
            )
        return target


def kept_rows(piece: Chunk) -> Sequence[int]:
    """The rows of a chunk that nothing was wrong with."""
    if not piece.failed:
        return range(piece.count)
    return [row for row in range(piece.count) if row not in piece.failed]


def _alike(values: list[Any]) -> Array | None:
    """The values as one array, where each alone would be an array of the same shape and dtype.

    None also where they are not numbers, and where nobody has looked close enough to say so.
    """
    kinds = set(map(type, values))
    one = next(iter(kinds), None)
    plain = one is np.ndarray or (one and issubclass(one, int | float | np.number))
    if len(kinds) != 1 or not plain:
        return None
    if one is np.ndarray and len({(value.shape, value.dtype) for value in values}) > 1:
        return None
    found = np.array(values)
    same = found.dtype == np.asarray(values[0]).dtype
    return found if same and not found.dtype.hasobject else None  # objects: ints beyond 64 bits
