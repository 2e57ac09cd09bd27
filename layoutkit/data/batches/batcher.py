"""`sampled_batcher`: records got, processed and put together, batch after batch.

Knows epochs, states and threads' lives. What a batch is made of is known by `passes.py` and the
modules below it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import fields
from typing import Any, Never

from ...converter import Converter
from ...errors import DataError
from ..epochs import EpochIterator, Epochs
from ..protocolerrors import NoLength
from ..reading.reader import Reader
from .arguments import Arguments
from .asked import check_names
from .batch import Batch
from .crew import Crew
from .losses import handed_out
from .passes import Pass
from .places import Place, place_of
from .progress import bar_of, warn
from .settings import Settings, settings_of

__all__ = ["Batcher", "sampled_batcher"]


def sampled_batcher(
    sources: Any,
    *,
    batch_size: int,
    sampler: Any = "linear",
    num_batches: int | None = None,
    drop_last: bool = False,
    seed: int = 0,
    epoch: int = 0,
    get: Any = None,
    processor: Callable[..., Any] | None = None,
    size: tuple[int, int] | None = None,
    fit: str | None = None,
    input_dims: Any = None,
    batch_dims: Callable[[int], Any] | None = None,
    dtype: Any = None,
    layout: Any = None,
    convert: Converter | None = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    on_error: str = "drop",
    refill: bool = False,
    timeout: float | None = None,
    retries: int = 3,
    prefetch: int = 2,
    num_workers: int | None = None,
    progress: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int = 10 * 2**30,
    max_record_bytes: int | None = None,
    **others: Never,
) -> Batcher:
    """Batches of the records of an index, got and processed on threads ahead of time.

    >>> import numpy as np
    >>> source = {"x": np.arange(10.0).reshape(5, 2), "y": ["cat", "dog", "cat", "dog", "cat"]}
    >>> with sampled_batcher(source, batch_size=2) as batches:
    ...     for x, y in batches:
    ...         print(y.input, x.forward_get("bf").tolist())
    [0 1] [[0.0, 1.0], [2.0, 3.0]]
    [0 1] [[4.0, 5.0], [6.0, 7.0]]
    [0] [[8.0, 9.0]]

    Parameters
    ----------
    sources : Index, what open_index takes, or a list of these
        The first one says how many records there are, and has their labels and targets.
    batch_size : int
        Records in a batch.
    sampler : str, Sampler, or a list with one for each source
        The order of the records: "linear", "shuffle" and others, see `sampler`. Other sources need
        as many records as the first, or a kind that draws.
    num_batches : int, optional
        Batches in an epoch, if not all.
    drop_last : bool
        Leave out the records at an epoch's end that fill no batch, as the kinds `even_...` do.
    seed, epoch : int
        Another seed or epoch, another order.
    get : callable, or a list with one for each source
        Reads a Record. By default its array, or the bytes of its file.
    processor : callable, optional
        Called as ``processor(*results, out=out)`` with a result of each source. Returns the
        record's array, or (array, target), or None to refuse the record. `out` is the row of the
        batch to fill, where the shape of a record is given, else None. Bytes are a vector of uint8.
    size : (int, int), optional
        Height and width of pictures: files are decoded into uint8 `bhwc` by a `pictures.Decoder`.
    fit : "cover", "pad" or "stretch", optional
        How pictures become that size, as `pictures.fit` says; by default "cover".
    input_dims : tuple of int, optional
        The shape of one record.
    batch_dims : callable, optional
        Gives the shape of a record in batch k of the epoch.
    dtype : dtype, optional
        By default float32 where the shape is given, else that of a batch's first record.
    layout : str or (str, str), optional
        Of the rows and so of the batch's input, or of input and target; by default `b` and `bf`.
    convert : Converter, optional
        Makes the batch's input of the rows: ``Converter("bhwc->bchw", scale=1 / 255)``.
    scale, mean, std, clip : optional
        In place of `convert`, the formula of its keywords, in the layout of the rows.
    on_error : "drop" or "raise"
        A record that fails is left out and reported, or ends the loop with a DataError. Where none
        can be used, the loop ends with one in any case.
    refill : bool
        Take further records of the epoch in place of those left out.
    timeout : float, optional
        Seconds that a record may take.
    retries : int
        How often remote files are tried again.
    prefetch : int
        Batches begun ahead of the one handed out last.
    num_workers : int, optional
        Threads, by default up to 4; 0 works in the caller's own, when it asks.
    progress : bool
        Show a progress bar with records per second and drops.
    cache_dir, cache_size
        A folder for whole remote files, and the bytes it may hold.
    max_record_bytes : int, optional
        The bytes that are read of a record; one with more fails. By default as many as the index
        says, and 1 GiB where it says nothing.

    Raises
    ------
    DataError, ShapeError, DtypeError, PatternError
        An argument is wrong, there is none of that name (and it may have another one in other
        libraries), or sources do not fit together.
    """
    check_names(others, [field.name for field in fields(Arguments)])
    given = Arguments(
        sources=sources, batch_size=batch_size, sampler=sampler, num_batches=num_batches,
        drop_last=drop_last, seed=seed, get=get, processor=processor, size=size, fit=fit,
        input_dims=input_dims, batch_dims=batch_dims, dtype=dtype, layout=layout, convert=convert,
        scale=scale, mean=mean, std=std, clip=clip, on_error=on_error, refill=refill,
        timeout=timeout, retries=retries, prefetch=prefetch, num_workers=num_workers,
        progress=progress, cache_dir=cache_dir, cache_size=cache_size,
        max_record_bytes=max_record_bytes,
    )  # fmt: skip
    return Batcher(settings_of(given), epoch)


class Batcher(Epochs[Batch]):
    """Batches, epoch by epoch; made by `sampled_batcher`.

    `for batch in batcher` is an epoch of `len(batcher)` batches, or fewer with `refill`, and
    `state_dict()` names the place behind the batch handed out last. Threads start with the first
    loop and end with `close()`, or the `with` block.
    """

    def __init__(self, settings: Settings, epoch: int) -> None:
        super().__init__(epoch)
        self._settings = settings
        self._crew: Crew | None = None
        self._closed = False
        self._position: int = Place()
        weakref.finalize(self, Reader.close, settings.reader)

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch, at most where `refill`; None while there are parts to open."""
        limit = self._settings.limit
        return self._settings.feeds[0].order(self._epoch).num_batches if limit is None else limit

    def __len__(self) -> int:
        number = self.num_batches
        if number is None:
            raise NoLength("the number of batches is not known until every part is opened")
        return number

    def __repr__(self) -> str:
        name, size, number = type(self).__name__, self._settings.batch_size, self.num_batches
        batches = "batches" if number is None else f"{number} batches"
        return f"<{name} of {batches} of {size}, epoch {self._epoch}>"

    def __bool__(self) -> bool:
        return True  # also where an epoch has no batches

    @property
    def dropped(self) -> int:
        """Records left out so far in the epoch that the latest loop is or was in."""
        return place_of(self._position).dropped

    def reset(self) -> None:
        """Go back to the start of this epoch; the loop under way is over."""
        self.set_epoch(self._epoch)

    def close(self) -> None:
        """End the threads and wait for them; loops are over for good.

        A call that does not return cannot be stopped: its thread is not waited for any longer
        than some seconds, and ends when the call does.
        """
        self._closed = True
        self._settings.reader.close()
        if self._crew is not None:
            self._crew.end()
        self._go(self._epoch, self._position)
        if self._crew is not None:
            self._crew.close()

    def __reduce__(self) -> Any:
        raise DataError(
            "a Batcher has threads and connections, which cannot be copied or sent to another "
            "process; call sampled_batcher there, with a partition of open_index for each process"
        )

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> EpochIterator[Batch]:
        if self._closed:
            raise DataError("this Batcher is closed; make a new one with sampled_batcher")
        return super().__iter__()

    def _go(self, epoch: int, position: int, *, loaded: bool = False) -> None:
        """As any loop; what was left out is known until the next one begins to count."""
        place = position if isinstance(position, Place) else Place(position, dropped=self.dropped)
        super()._go(epoch, place, loaded=loaded)

    def _steps(self, epoch: int, position: int) -> Generator[tuple[Batch, int], None, Place]:
        place = place_of(position) if position else Place()
        marks = {**self._marks(place), "position": position} if position else {}
        run = Pass(self._settings, self._hands(), epoch, position, marks)
        with run, bar_of(self._settings, run.size, position) as bar:
            for batch, behind in handed_out(run, from_start=not position):
                before, place = place, place.behind(batch, behind, run.orders[0])
                # Whatever may be interrupted comes first: the state is that before this batch yet.
                warn(batch.dropped)
                if bar is not None:
                    bar.update(place - before)
                    bar.set_postfix(dropped=place.dropped, refresh=False)
                yield batch, place
            warn(run.rest)
        return Place(0, dropped=place.dropped + len(run.rest))

    def _hands(self) -> Crew | None:
        """The threads, started if there are none in this process; None without threads."""
        settings = self._settings
        if settings.num_workers == 0:
            return None
        if self._crew is None or not self._crew.serves:
            crew = Crew(settings.num_workers, settings.work.timeout)
            weakref.finalize(self, Crew.end, crew)
            self._crew = crew
            crew.begin()
        return self._crew

    def _identity(self) -> dict[str, int | str]:
        return self._settings.identity

    def _records(self) -> int:
        return int(self._settings.feeds[0].sampler.plan.count)

    def _end(self, epoch: int) -> int | None:
        settings = self._settings
        if settings.limit is None:
            return settings.feeds[0].order(epoch).size
        return None if settings.refill else settings.limit * settings.batch_size

    def _marks(self, position: int) -> dict[str, int]:
        place = place_of(position) if position else Place()
        counted = {"batch": place.batches, "dropped": place.dropped}
        return {**counted, **self._part_marks(place)}

    def _part_marks(self, place: Place) -> dict[str, int]:
        """What lets a place in part files be found without opening those before it."""
        if not self._settings.feeds[0].in_parts:
            return {}
        return {"part": 0, "part_start": 0} if place.order is None else place.order.marks(place)

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> Place:
        feed = self._settings.feeds[0]
        order = feed.order(epoch, state) if feed.in_parts else None  # wrong marks are found now
        return Place(position, state["batch"], state["dropped"], order)
