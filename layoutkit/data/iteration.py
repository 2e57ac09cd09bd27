"""Resumable iteration over epochs, with one active loop at a time.

`Epochs` is the base class of every iterable here that has epochs. The iterable and a running loop
are separate objects: `iter(x)` returns a new `EpochIterator`, and `x` knows the latest one.

    for item in x: ...        epoch x.epoch; reaching the end increments it
    next(iter(x))             a peek: the next loop starts the epoch again, unless this was its
                              last item
    x.set_epoch(3)            go to the start of epoch 3
    x.load_state_dict(d)      go to the position where `d = x.state_dict()` was taken

A subclass implements four methods: `_identity()`, the settings that a state must match;
`_records()`, the number of its records; `_steps(epoch, position)`, an iterator of (item, position
after it); and `_end(epoch)`, the last place that a state may have. If a place is not enough to
resume quickly, it returns further values from `_resume_info(position)`, which `_take` reads.

A state may be taken after an interrupt at any point, such as Ctrl-C. So attributes that belong
together are assigned in one statement, without a call in between, as interrupts occur at calls.
Other values that change with the place, such as counters, are part of the position: it is a place,
which is an int, or an object for which `_place` returns the place and `_start` the first one.
"""

from __future__ import annotations

import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, Generic, TypeVar

from .._utils.validation import check_int, show
from ..errors import DataError

T = TypeVar("T")
# A partition, and hashes of the records selected from it and of their order or weights.
_PARTITION = re.compile(r"\d{1,18} of \d{1,18}(, \w+ [0-9a-f]{16}){0,2}")
_LAST = (1 << 63) - 1  # positions are signed 64-bit integers
Steps = Callable[[int, Any], Iterator[tuple[T, Any]]]


class Epochs(ABC, Generic[T]):
    """An iterable of items, epoch by epoch, that resumes from a state."""

    # Keys that a state has only if their value is known.
    _extra_keys: tuple[str, ...] = ()

    def __init__(self, epoch: int, position: Any = 0) -> None:
        self._epoch = check_int("epoch", epoch)
        self._position = position
        self._loaded = False
        # A weak reference, so that an abandoned loop ends as soon as it is unreferenced.
        self._latest: weakref.ref[EpochIterator[T]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the latest loop; after its end, the next epoch."""
        return self._epoch

    def __iter__(self) -> EpochIterator[T]:
        return self._begin(self._steps)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; ends the active loop, unless it is there already."""
        number = check_int("epoch", epoch)
        is_there = number == self._epoch and not self._place(self._position)
        if is_there and self._latest is not None and self._latest():
            return  # a hook of a trainer that is called when its loop has begun
        self._seek(number, self._start())

    def state_dict(self) -> dict[str, int | str]:
        """Return the position after the latest loop's last item, as a few integers and strings."""
        epoch = self._epoch
        position = self._position
        place = {"epoch": epoch, "position": self._place(position)}
        records = {"records": self._records()}
        return {**self._identity(), **records, **place, **self._resume_info(position)}

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Let the next loop begin at the position of a state; ends the active loop.

        Raises
        ------
        DataError
            The state has another kind, seed, batch size or, unless it is an epoch's start, another
            number of records. Nothing has changed.
        """
        epoch, place = self._check_state(state)
        plain = {
            key: value if isinstance(value, str) else int(value) for key, value in state.items()
        }
        self._seek(epoch, self._take(epoch, place, plain), loaded=True)

    @abstractmethod
    def _identity(self) -> dict[str, int | str]: ...

    @abstractmethod
    def _records(self) -> int: ...

    @abstractmethod
    def _steps(self, epoch: int, position: Any) -> Iterator[tuple[T, Any]]: ...

    @abstractmethod
    def _end(self, epoch: int) -> int | None:
        """Return the place after the last item of an epoch; None if it is unknown."""

    def _is_complete(self) -> bool:
        """Return True if the latest loop returned the last item of its epoch."""
        end = self._end(self._epoch)
        return end is not None and int(self.state_dict()["position"]) >= end > 0

    def _start(self) -> Any:
        return 0

    def _place(self, position: Any) -> int:
        """Return the number of records of the epoch before a position."""
        return int(position)

    def _resume_info(self, position: Any) -> Mapping[str, int | str]:
        """Return further integers and texts of a state, or its `position` in other units."""
        return {}

    def _take(self, epoch: int, place: int, state: Mapping[str, Any]) -> Any:
        """Return the position, with the values of `_resume_info`; raise DataError if invalid."""
        return place

    def _free(self, place: int) -> tuple[str, ...]:
        """Return the keys of a state that may differ at a place."""
        # At the start of an epoch the number of records and the partition may change.
        return () if place else ("records", "partition")

    def _begin(self, steps: Steps[T]) -> EpochIterator[T]:
        """Begin a new loop, which is the latest from now on.

        After the last item of an epoch it is a loop over the next one, also if the caller counted
        the items and did not ask for another one, which would have ended the epoch.
        """
        if self._loaded:
            self._seek(self._epoch, self._position)
        else:
            self._seek(self._epoch + self._is_complete(), self._start())
        loop = EpochIterator(self, steps(self._epoch, self._position))
        self._latest = weakref.ref(loop)
        return loop

    def _seek(self, epoch: int, position: Any, *, loaded: bool = False) -> None:
        """End the active loop and go to a position."""
        loop = self._latest and self._latest()
        # One statement: see the module's docstring.
        self._latest = None
        self._loaded = loaded
        self._epoch = epoch
        self._position = position
        if loop:
            loop.close()

    def _check_state(self, state: Any) -> tuple[int, int]:
        """Return epoch and place of a state; DataError if it does not match this object."""
        name = type(self).__name__
        own = self.state_dict()
        if not isinstance(state, Mapping):
            raise DataError(f"a state is a dict that state_dict() gave, not {show(state)}")
        optional = {*self._extra_keys}
        if set(state) | optional != set(own) | optional:
            keys = sorted(state, key=str)
            raise DataError(f"this state has {keys}, but a state of a {name} has {sorted(own)}")
        numbers = {k: check_int(k, state[k]) for k in ("epoch", "position", "records")}
        compared = {*self._identity(), "records"}.difference(self._free(numbers["position"]))
        differ = [k for k in own if k in compared and not _is_equal(state[k], own[k])]
        if differ:
            wrong = ", ".join(f"{k} {state[k]!r}, not {own[k]!r}" for k in differ)
            raise DataError(
                f"this state is of another {name}: {wrong}; load it where it was made, "
                "or on an object made with the same arguments"
            )
        for key in state.keys() - compared - {"partition"}:
            if key in self._extra_keys or isinstance(own[key], str):
                _check_text(key, state[key])
            else:
                check_int(key, state[key])
        if "partition" in own and not _PARTITION.fullmatch(str(state["partition"])):
            raise DataError(f"partition={state['partition']!r}; it must be text such as '0 of 1'")
        end = self._end(numbers["epoch"])
        last = _LAST if end is None else end
        if numbers["position"] > last:
            raise DataError(f"position {numbers['position']} is past the end of the epoch, {last}")
        return numbers["epoch"], numbers["position"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}  # a copy has no loop under way


class EpochIterator(Iterator[T]):
    """One pass over an epoch: the latest loop of its owner, or one that has ended."""

    def __init__(self, owner: Epochs[T], steps: Iterator[tuple[T, Any]]) -> None:
        self._owner = owner
        self._steps = steps
        self._done = False

    def __next__(self) -> T:
        if self._done:
            raise StopIteration
        if not self._is_latest():
            raise self._ended_error()
        owner = self._owner
        try:
            item, position = next(self._steps)
            is_latest = self._is_latest()
        except StopIteration as end:
            if not self._is_latest():
                raise self._ended_error() from None
            self._done = True
            owner._seek(owner._epoch + 1, owner._start() if end.value is None else end.value)
            raise
        except BaseException as error:
            if _is_busy(error):
                raise DataError(
                    f"another thread waits for the next item of this loop over a "
                    f"{type(owner).__name__}; let one thread read items and distribute them"
                ) from None
            # A loop that failed has ended, and must not look like an epoch that is complete. The
            # position is kept, so a state taken now begins with the item that failed.
            if self._is_latest():
                owner._latest = None
            raise
        if not is_latest:
            self.close()  # the thread that ended the loop could not: this one was in the steps
            raise self._ended_error()
        owner._position = position  # no statement may come between this one and the return
        return item

    def close(self) -> None:
        """Close the steps and their resources; a thread that runs in them closes them later."""
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

    def _ended_error(self) -> DataError:
        return DataError(
            f"this loop over a {type(self._owner).__name__} is over: an error, or a newer "
            "loop, set_epoch, load_state_dict, reset or close ended it; begin a new one"
        )


def _is_equal(value: Any, own: int | str) -> bool:
    """Return True if a value of a state equals this object's; False for arrays."""
    return isinstance(value, str | Integral) and bool(value == own)


def _check_text(key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise DataError(
            f"{key}={show(value)} of a state is not text; load what state_dict() returned"
        )


def _is_busy(error: BaseException) -> bool:
    """Return True for Python's error that a generator is already executing, at its caller.

    Inspecting the error is free as long as there is none; a lock would cost as much per item as
    the item of a sampler itself. An error raised inside the generator has one more frame.
    """
    trace = error.__traceback__
    return isinstance(error, ValueError) and trace is not None and trace.tb_next is None
