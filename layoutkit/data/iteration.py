"""One loop at a time over epochs, and a state that names a place in them.

`Epochs` is the base of everything here that is iterated epoch by epoch. What can be iterated
twice is not the same object as the loop that runs: `iter(x)` gives a new `EpochIterator`, and `x`
knows which one is the latest.

    for item in x: ...        epoch x.epoch; running to the end adds one
    next(iter(x))             a peek: the next loop begins the same epoch again
    x.set_epoch(3)            the start of epoch 3
    x.load_state_dict(d)      the place where `d = x.state_dict()` was taken

A subclass says four things: `_identity()`, what a state must agree with; `_records()`, how many
records it has; `_steps(epoch, position)`, an iterator of (item, position behind it); and
`_end(epoch)`, the last position where a state can stand. One that needs more than a position to
begin again quickly gives further integers in `_marks(position)` and takes them in `_take`.

A state can be asked for after an interrupt at any place, Ctrl-C for one. So what belongs together
is assigned in one line, without a call in between: interrupts come at calls. What else changes with
the position, as numbers that are counted, is part of it: a position may be of a class of its own
that derives from int.

Knows positions. What an item is, and what stands at a position, only its subclasses know.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, Generic, TypeVar

from .._utils.validation import as_count
from ..errors import DataError

__all__ = ["EpochIterator", "Epochs"]

T = TypeVar("T")
_LAST = (1 << 63) - 1  # positions are 64-bit integers with a sign
Steps = Callable[[int, int], Iterator[tuple[T, int]]]


class Epochs(ABC, Generic[T]):
    """What is iterated epoch by epoch, and continues where a state says."""

    def __init__(self, epoch: int) -> None:
        self._epoch = as_count("epoch", epoch)
        self._position = 0
        self._loaded = False
        # Weak, so that a loop that is broken off ends as soon as nobody holds it.
        self._latest: weakref.ref[EpochIterator[T]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the latest loop is in; after its end, the next one."""
        return self._epoch

    def __iter__(self) -> EpochIterator[T]:
        return self._begin(self._steps)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; the loop under way is over."""
        self._go(as_count("epoch", epoch), 0)

    def state_dict(self) -> dict[str, int | str]:
        """The place behind what the latest loop handed out, in a few integers and strings."""
        epoch, position = self._epoch, self._position
        place = {"epoch": epoch, "position": int(position)}
        counted = {"records": self._records()}
        return {**self._identity(), **counted, **place, **self._marks(position)}

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Let the next loop begin at the place that a state names; the one under way is over.

        Raises
        ------
        DataError
            The state is of another kind, seed, batch size or, unless it is an epoch's start,
            number of records. Nothing has changed.
        """
        epoch, position = self._checked(state)
        plain = {
            key: value if isinstance(value, str) else int(value) for key, value in state.items()
        }
        self._go(epoch, self._take(epoch, position, plain), loaded=True)

    @abstractmethod
    def _identity(self) -> dict[str, int | str]: ...

    @abstractmethod
    def _records(self) -> int: ...

    @abstractmethod
    def _steps(self, epoch: int, position: int) -> Iterator[tuple[T, int]]: ...

    @abstractmethod
    def _end(self, epoch: int) -> int | None:
        """The position behind the last item of an epoch; None where that is not known."""

    def _marks(self, position: int) -> dict[str, int]:
        """Further integers of a state."""
        return {}

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> int:
        """The position, with what `_marks` gave; DataError, and nothing changes, if it is wrong."""
        return position

    def _free(self, position: int) -> tuple[str, ...]:
        """What a state of a position may differ in."""
        # At an epoch's start, where no record counts yet, it may go on with others.
        return () if position else ("records", "partition")

    def _begin(self, steps: Steps[T]) -> EpochIterator[T]:
        """The latest loop from now on."""
        self._go(self._epoch, self._position if self._loaded else 0)
        loop = EpochIterator(self, steps(self._epoch, self._position))
        self._latest = weakref.ref(loop)
        return loop

    def _go(self, epoch: int, position: int, *, loaded: bool = False) -> None:
        """End the loop under way and go to a place."""
        loop = self._latest and self._latest()
        self._latest, self._loaded, self._epoch, self._position = None, loaded, epoch, position
        if loop:
            loop.close()

    def _checked(self, state: Any) -> tuple[int, int]:
        """Epoch and position of a state; DataError for the state of something else."""
        name, own = type(self).__name__, self.state_dict()
        if not isinstance(state, Mapping):
            raise DataError(f"a state is a dict that state_dict() gave, not {state!r}")
        if "partition" in own:  # states of earlier versions do not say which one they are of
            state = {"partition": own["partition"], **state}
        if set(state) != set(own):
            keys = sorted(state, key=str)
            raise DataError(f"this state has {keys}, but that of a {name} has {sorted(own)}")
        numbers = {k: as_count(k, state[k]) for k in ("epoch", "position", "records")}
        compared = {*self._identity(), "records"}.difference(self._free(numbers["position"]))
        differ = [k for k in own if k in compared and not _same(state[k], own[k])]
        if differ:
            wrong = ", ".join(f"{k} {state[k]!r}, not {own[k]!r}" for k in differ)
            raise DataError(
                f"this state is of another {name}: {wrong}; load it where it was made, "
                "or on an object made with the same arguments"
            )
        for mark in self._marks(0):
            as_count(mark, state[mark])
        end = self._end(numbers["epoch"])
        last = _LAST if end is None else end
        if numbers["position"] > last:
            raise DataError(f"position {numbers['position']} is behind the epoch's end, {last}")
        return numbers["epoch"], numbers["position"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}  # a copy has no loop under way


class EpochIterator(Iterator[T]):
    """One pass over an epoch; the latest of its owner, or over."""

    def __init__(self, owner: Epochs[T], steps: Iterator[tuple[T, int]]) -> None:
        self._owner = owner
        self._steps = steps
        self._done = False

    def __next__(self) -> T:
        if self._done:
            raise StopIteration
        self._check_latest()
        owner = self._owner
        try:
            item, position = next(self._steps)
            is_latest = self._is_latest()
        except StopIteration as end:
            self._check_latest()
            self._done = True
            owner._go(owner._epoch + 1, 0 if end.value is None else end.value)
            raise
        except BaseException as error:
            if _is_busy(error):
                raise DataError(
                    f"another thread waits for the next item of this loop over a "
                    f"{type(owner).__name__}; let one thread take items and share them out"
                ) from None
            # What failed is over, and must not look like an epoch that came to its end. The
            # position stays, so a state taken now begins with what failed.
            if self._is_latest():
                owner._latest = None
            raise
        if not is_latest:
            self.close()  # whoever ended it could not, as this thread was in the steps
            self._check_latest()
        owner._position = position  # and nothing between this and the return
        return item

    def close(self) -> None:
        """End the steps, with what they hold; those that a thread is in when it comes back."""
        close = getattr(self._steps, "close", None)
        if close:
            try:
                close()
            except ValueError as error:
                if not _is_busy(error):
                    raise

    def _is_latest(self) -> bool:
        latest = self._owner._latest
        return latest is not None and latest() is self

    def _check_latest(self) -> None:
        if not self._is_latest():
            raise DataError(
                f"this loop over a {type(self._owner).__name__} is over: an error, or a newer "
                "loop, set_epoch, load_state_dict, reset or close ended it; begin a new one"
            )


def _same(given: Any, own: int | str) -> bool:
    """Whether a state says what is so here; an array says nothing."""
    return isinstance(given, str | Integral) and bool(given == own)


def _is_busy(error: BaseException) -> bool:
    """Whether a generator refused to be entered by two, seen from where it was called.

    Looking at the error costs nothing until there is one; a lock would cost every item of a
    sampler as much as the item itself. An error from inside has a frame more.
    """
    trace = error.__traceback__
    return isinstance(error, ValueError) and trace is not None and trace.tb_next is None
