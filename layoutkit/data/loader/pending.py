"""A batch under way: its records are drawn in chunks, and what came of them is put together.

Records are drawn by any number of threads, in chunks of any length, and it makes no difference:
a result's row, and what the shape and dtype of the batch are, depend on places in the epoch
alone.

Knows one batch; its neighbours, threads and Views are not known here.

Which results fit together: those like the first one that is kept.

Judged in the order of records, whatever the order in which they came, so that threads make no
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from ...buffers import empty
from ...errors import DataError, LayoutkitError, ShapeError
from ...memory import Array
from ...spec import DType, can_cast, check_movable
from ..records import Record
from .chunk import Chunk, Numbers, Work, name_of, words_of
from .collate import Form, Joining

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


# Takes a place in the epoch, how many records are missing, and how many came since the last one
# that was kept. Gives the records from that place on: as many, or fewer at the epoch's end.
Refill = Callable[[int, int, int], Sequence[Numbers]]


class Draft:
    """A batch under way.

    `draw`, `commit` and `salvage` are called by one thread at a time; `settle` by the one that was
    told to.

    Parameters
    ----------
    work : Work
    start : int
        The place of its first record in the epoch.
    numbers : sequence of Numbers
        The records, for each source.
    dims : tuple of int, optional
        The shape of one record, where it is known before.
    refill : Refill, optional
        Where records come from that take the place of those left out.
    epoch : int
        What is drawn for a record is another one in each.
    """

    def __init__(
        self,
        work: Work,
        start: int,
        numbers: Sequence[Numbers],
        dims: tuple[int, ...] | None,
        refill: Refill | None = None,
        epoch: int = 0,
    ) -> None:
        self.work, self.start, self.dims, self.epoch = work, start, dims, epoch
        self.numbers: list[Any] = list(numbers[:1])  # of the first source, round by round
        self.wanted = len(numbers[0])
        self.error: BaseException | None = None
        self.ready = False
        self.after: Callable[[], None] | None = None  # to be called when it is ready
        self.cancelled = False
        self.failed: dict[int, BaseException | None] = {}
        self.stats = {"get": 0.0, "process": 0.0, "wait": 0.0}
        self.input: Any = None  # an array, or what makes it in the thread that asks for it
        self.target: Array | None = None
        self._refill = refill
        self._pieces: list[Chunk] = []
        self._judged = 0
        self._dry = 0  # records since the last one that was kept
        self._judge = Judge(dims, work.dtype, work.join)
        self._whole = True  # all results are in the rows of the first round's block
        self._block: Array | None = None  # the rows of a round whose shape is known
        self._begin(0, numbers)

    # -- the records, chunk by chunk -------------------------------------------------------

    @property
    def drawn(self) -> bool:
        """Whether there is nothing left to draw for now."""
        return not self._open

    def draw(self, most: int) -> Chunk:
        """The next records that nobody has, at most so many."""
        start, stop = self._open.pop()
        if stop - start > most:
            self._open.append((start + most, stop))
            stop = start + most
        block = None if self._block is None else self._block[start:stop]
        numbers = [part[start:stop] for part in self._numbers]
        return Chunk(self.work, self._first + start, numbers, block)

    def commit(self, chunk: Chunk) -> bool:
        """Take what came of a chunk; whether it was the last one."""
        self._pieces.append(chunk)
        self._left -= chunk.count
        return not self._left

    def salvage(self, chunk: Chunk, row: int, is_late: bool) -> bool:
        """Give up on a chunk that was stopped at `row`, and let others draw the rest of it.

        Whether nothing is left to do.
        """
        end = chunk.first - self._first + chunk.count
        begin = chunk.first - self._first + row + is_late
        if begin < end:
            self._open.append((begin, end))
        self._whole = False
        if self._block is not None:  # that thread may still write into the old one
            self._block = self._new_block(len(self._block))
        return self.commit(chunk.salvaged(row, is_late))

    def settle(self) -> bool:
        """Judge the results of a round; True when the batch is complete, else draw again."""
        if self.error is not None:
            return True
        try:
            self._take_in()
            self._check_strict()
            if self._refill is not None and self._begin_again(self._refill):
                return False
            self._gather()
        except BaseException as error:
            self.error = error
        self._pieces, self._block = [], None
        return True

    def _begin(self, first: int, numbers: Sequence[Numbers]) -> None:
        """Open a round of records to draw."""
        self._first, self._numbers = first, numbers
        self._left = count = len(numbers[0])
        self._block = self._new_block(count)
        self._open = [(0, count)]

    def _new_block(self, count: int) -> Array | None:
        """Memory for so many rows; None where their shape is not known."""
        if self.dims is None or self._judge.dtype is None:
            return None
        block = empty((count, *self.dims), self._judge.dtype)
        if self.work.processor is not None and not self.work.fills:
            block[...] = np.zeros((), self._judge.dtype)  # never rows of an older batch
        return block

    def _begin_again(self, refill: Refill) -> bool:
        """Open a round of as many records as are missing; False where the batch is complete."""
        taken = self._first + len(self._numbers[0])
        missing = self.wanted - (taken - len(self.failed))
        if not missing:
            return False
        kept = [row for row in range(self._first, taken) if row not in self.failed]
        self._dry = taken - 1 - kept[-1] if kept else self._dry + taken - self._first
        numbers = refill(self.start + taken, missing, self._dry)
        if not len(numbers[0]):
            return False
        self.numbers.append(numbers[0])
        self._whole = False
        self._begin(taken, numbers)
        return True

    # -- their results ---------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """How many records of the epoch it has taken."""
        return sum(map(len, self.numbers))

    def kept(self) -> Array:
        """The rows, among all that were taken, of the records that are in the batch."""
        rows = np.arange(self.taken)
        return np.delete(rows, sorted(self.failed)) if self.failed else rows

    def chosen(self, rows: Array) -> Numbers:
        """The records in rows among all that were taken."""
        first = self.numbers[0]
        if isinstance(first, list):
            records: list[Record] = [record for part in self.numbers for record in part]
            return [records[row] for row in rows.tolist()]
        numbers: Array = first if len(self.numbers) == 1 else np.concatenate(self.numbers)
        return numbers if len(rows) == len(numbers) else numbers[rows]

    def _take_in(self) -> None:
        """Add up the chunks of a round, and let records fail that do not fit the others."""
        self._pieces.sort(key=lambda piece: piece.first)
        for piece in self._pieces[self._judged :]:
            self.stats["get"] += piece.get_seconds
            self.stats["process"] += piece.process_seconds
            self._judge.judge(piece)
            self.failed.update((piece.first + row, error) for row, error in piece.failed.items())
        # Those without any result go: a refill may need many rounds until it finds one.
        self._pieces = [piece for piece in self._pieces if len(piece.failed) < piece.count]
        self._judged = len(self._pieces)

    def _check_strict(self) -> None:
        """Raise the first failure, where records may not fail."""
        if not self.work.strict:
            return
        failures = [row for row, error in self.failed.items() if error is not None]
        if not failures:
            return
        row = min(failures)
        error = self.failed[row]
        raise DataError(f"{name_of(self.record(row))}: {words_of(error)}") from error  # type: ignore[arg-type]

    def record(self, row: int) -> Any:
        """The record of a row, among all that were taken."""
        for numbers in self.numbers:
            if row < len(numbers):
                return self.work.feeds[0].records(numbers[row : row + 1])[0]
            row -= len(numbers)
        raise DataError(f"the batch has no row {row}")

    def _gather(self) -> None:
        """Put the results together, without those left out."""
        count = self.taken - len(self.failed)
        if self.work.join is not None:
            self._collate(self.work.join)
        elif self._judge.shape is not None:
            self.input = self._joined(count)
        if isinstance(self._judge.targeted, tuple):
            shape, dtype = self._judge.targeted
            self.target = empty((count, *shape), dtype)
            at = 0
            for piece in self._pieces:
                rows = kept_rows(piece)
                found = piece.target_block
                if rows:
                    self.target[at : at + len(rows)] = (
                        [piece.targets[row] for row in rows] if found is None else found
                    )
                at += len(rows)

    def _collate(self, join: Joining) -> None:
        if not self._pieces:
            return
        feed = self.work.feeds[0]
        places = feed.places(self.chosen(self.kept()))
        if self._pieces[0].lies:
            made = partial(join.batch_of_rows, feed.source, places.numbers, places, self.epoch)
        else:
            samples = [piece.odd[row] for piece in self._pieces for row in kept_rows(piece)]
            made = partial(join.batch, samples, places, self.epoch)
        self.input = made if join.is_late else made()

    def _joined(self, count: int) -> Array:
        if self._whole and not self.failed:
            if self._block is not None:
                return self._block
            first: Any = self._pieces[0]
            if len(self._pieces) == 1 and not first.odd and first.block.dtype == self._judge.dtype:
                return first.block  # type: ignore[no-any-return]
        shape, dtype = self._judge.shape, self._judge.dtype
        joined = empty((count, *shape), dtype)  # type: ignore[misc, arg-type]  # both are known
        at = 0
        for piece in self._pieces:
            rows = kept_rows(piece)
            block: Any = piece.block
            if piece.odd:
                for place, row in enumerate(rows, at):
                    joined[place] = piece.odd[row] if row in piece.odd else block[row]
            elif rows:
                whole = len(rows) == len(block)
                joined[at : at + len(rows)] = block if whole else block[list(rows)]
            at += len(rows)
        return joined
