"""`Batch`, the result of one step of a Batcher, the Views of its arrays, and `LoaderStats`.

`ViewFactory` makes the Views, or `ArrayFactory` arrays of a framework. If the caller passed
`convert=`, they convert the arrays first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..._utils.errors import describe_error
from ..._utils.validation import describe_type, show, type_name
from ...backends.items import map_items
from ...backends.symbolic import Library
from ...collator import Padded
from ...converter import Converter
from ...errors import ArgumentError, DataError, PatternError
from ...layout.parsing import parse_layout, with_batch_axis
from ...layout.pattern import check_rank
from ...memory import Array
from ...planning.batch.packing import Packed
from ...planning.batch.placement import Placements
from ...planning.batch.samples import MAX_IMAGE_CHANNELS
from ...spaces.views import view_for_layout
from ...views import DataView
from ..ragged import Ragged
from ..records import Label, Record
from .dropped import Dropped


class Batch:
    """A batch of `count` records in the epoch's order, without padding.

    A batch also unpacks as a pair: `for x, y in batches` yields input and target. The memory of its
    arrays is not reused while a reference to it exists.

    Attributes
    ----------
    input : View, Padded, Packed, tuple or dict of these, Ragged or None
        The records' arrays: Padded, whose data is a View, if a Collator has `lengths=True`; Packed,
        whose data is an array, if a Collator packs records of different sizes; a tuple or dict if
        `collate` is a list or dict; a Ragged if it is "ragged"; and None if there are no records
        and their shape is unknown. With a `framework`, its arrays in place of Views.
    target : View, array of the `framework` or None
        Labels as ranks in the index's labels, or the targets of the processor or source.
    count : int
        The number of rows.
    index : int64 array
        Each row's position in the epoch's order.
    item : list of Record
        Each row's record, of the first source.
    label : list
        Each row's label, None for a record without label.
    dropped : list
        (record, position, error) of dropped records; error is None for a refused record.
    placements : Placements or None
        If `collate` is a dict: where the windows of each row are, to map its points and boxes.
    stats : dict
        Seconds in "get" and "process", summed over threads, in "collate", and in "wait".
    """

    def __init__(
        self,
        input: Any,  # the attribute's name
        target: Any,
        index: Array,
        records: Callable[[], list[Record]],
        dropped: list[Dropped],
        stats: dict[str, float],
        placements: Placements | None,
    ) -> None:
        # Any, so that the loops of users whose batches always have both need no tests for None.
        self.input = input
        self.target = target
        self.count = len(index)
        self.index = index
        self.dropped = dropped
        self.stats = stats
        self.placements: Any = placements
        self._records = records

    @cached_property
    def item(self) -> list[Record]:
        """Each row's record, from the first source."""
        return self._records()

    @property
    def label(self) -> list[Label | None]:
        """Each row's label, None for a record without label."""
        return [record.label for record in self.item]

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """Return the batch with its tensors on another device, as `torch.Tensor.to` moves them.

        Lightning and accelerate call this. Raises ArgumentError if the batch has other arrays.
        """
        move = partial(_move, device=device, non_blocking=non_blocking)
        return self.with_arrays(map_arrays(move, self.input), map_arrays(move, self.target))

    def with_arrays(self, input: Any, target: Any) -> Batch:
        """Return a batch of the same records with another input and target."""
        batch = Batch.__new__(Batch)
        batch.__dict__.update(self.__dict__, input=input, target=target)
        return batch

    def __iter__(self) -> Iterator[Any]:
        return iter((self.input, self.target))

    def __getstate__(self) -> dict[str, Any]:
        """Return a picklable state: a queue between processes hangs on unpicklable objects."""
        dropped = [
            (record, position, _picklable(error)) for record, position, error in self.dropped
        ]
        return {**self.__dict__, "item": self.item, "dropped": dropped, "_records": None}

    def _repr_html_(self) -> str:
        x = self.input
        inputs = x if isinstance(x, tuple) else x.values() if isinstance(x, dict) else (x,)
        views = [view for view in (*inputs, self.target) if isinstance(view, DataView)]
        tables = "".join(view._repr_html_() for view in views)
        return f"<p>batch of {self.count}, {len(self.dropped)} dropped</p>{tables}"

    def __repr__(self) -> str:
        dropped = f", {len(self.dropped)} dropped" if self.dropped else ""
        return (
            f"<batch of {self.count}{dropped}: {_describe(self.input)}, {_describe(self.target)}>"
        )


@dataclass
class LoaderStats:
    """The time of a loop over the batches of a Batcher, by what it was spent on, in seconds.

    `print` shows the shares. `get`, `process` and `collate` are summed over the threads, which work
    beside the loop, so they may exceed `elapsed`. With num_workers=0 they are part of it.

    Attributes
    ----------
    records, batches : int
        The records and batches so far.
    elapsed : float
        From the start of the loop to its latest batch, or to its end.
    get, process, collate : float
        Reading records, the processor (or decoding images), and making batches of the results.
    wait : float
        Waiting for a batch, without the work of the loop's own thread on it.
    consumer : float
        Working with batches outside of the Batcher.
    threads : int
        The number of worker threads.
    cache_hits : int
        With `cache=`: the number of records that the loop read from the cache, of all sources; with
        `cache=`, decoding is a part of `get`.
    cache_records, cache_bytes, cache_limit : int
        The number of records in the cache, the bytes that it occupies, and its limit of them.
    """

    records: int = 0
    batches: int = 0
    elapsed: float = 0.0
    get: float = 0.0
    process: float = 0.0
    collate: float = 0.0
    wait: float = 0.0
    consumer: float = 0.0
    threads: int = 0
    cache_hits: int = 0
    cache_records: int = 0
    cache_bytes: int = 0
    cache_limit: int = 0

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.elapsed if self.elapsed else 0.0

    @property
    def ceiling(self) -> float:
        """Records per second if batches took no time; `Batcher.repeated` measures it."""
        return self.records / self.consumer if self.consumer else 0.0

    def add(self, records: int, seconds: dict[str, float], waited: float) -> None:
        """Count a batch, the seconds of its stages, and those until it was there."""
        self.records += records
        self.batches += 1
        self.get += seconds["get"]
        self.process += seconds["process"]
        self.collate += seconds["collate"]
        own = 0.0 if self.threads else seconds["get"] + seconds["process"] + seconds["collate"]
        self.wait += max(0.0, waited - own)

    def __str__(self) -> str:
        where = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        beside = f"   on {where}" if self.threads else ""
        rows = [
            ("get", self.get, beside),
            ("process", self.process, beside),
            ("collate", self.collate, beside),
            ("wait", self.wait, ""),
            ("consumer", self.consumer, ""),
        ]
        lines = [
            f"{self.records:,} records in {self.batches:,} batches, {self.elapsed:.2f} s, "
            f"{self.rate:,.0f} records/s; {self.ceiling:,.0f} if batches took no time",
            f"{'stage':16}{'seconds':>9}{'share':>8}",
        ]
        elapsed = self.elapsed or 1.0
        for name, seconds, note in rows:
            lines.append(f"{name:16}{seconds:9.3f}{seconds / elapsed:8.0%}{note}")
        if self.cache_limit:
            lines.append(
                f"cache: {self.cache_hits:,} hits; {self.cache_records:,} records in "
                f"{self.cache_bytes:,} of {self.cache_limit:,} bytes"
            )
        return "\n".join(lines)


def map_arrays(function: Callable[[Any], Any], x: Any) -> Any:
    """Return the input or target of a batch with the results of a function in place of arrays.

    The function is also called with Views. Sizes and offsets of Packed and Ragged are unchanged.
    """
    if x is None:
        return None
    if isinstance(x, Packed):
        return x._replace(data=function(x.data))
    if isinstance(x, Ragged):
        return replace(x, data=function(x.data))
    if isinstance(x, dict | tuple):
        return map_items(partial(map_arrays, function), x)
    return function(x)


def _move(x: Any, device: Any, non_blocking: bool) -> Any:
    if not hasattr(x, "to"):
        raise ArgumentError(
            f"the batch has {describe_type(x)}, which is not a tensor; give "
            'sampled_batcher framework="torch"'
        )
    return x.to(device, non_blocking=non_blocking)


def _describe(x: Any) -> str:
    """Return the class, shape and dtype of an array, and the text of other objects."""
    if isinstance(x, DataView) or not hasattr(x, "shape"):
        return repr(x)
    return f"{type_name(x)} {tuple(x.shape)} {x.dtype}"


def _picklable(error: BaseException | None) -> BaseException | None:
    """Return the error, or a DataError with its text if the error cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return DataError(describe_error(error)) if error is not None else None
    return error


def check_convert(convert: Any, layout: str | None) -> None:
    """Raise DataError unless `convert` is a Converter of arrays in `layout`, if there is one."""
    if not isinstance(convert, Converter):
        raise DataError(f"convert is {show(convert)}; give a Converter")
    left = convert.options.pattern.left
    if layout is not None and with_batch_axis(parse_layout(layout)) != with_batch_axis(left):
        raise DataError(
            f'layout is {layout}, but convert needs {left} ("{convert.pattern}"); give '
            f"layout={str(left)!r}, or omit it"
        )


def result_layout(converter: Converter) -> str:
    """Return the layout of the Converter's results."""
    return str(with_batch_axis(converter.options.pattern.target))


class ViewFactory:
    """A factory of Views, whose class depends on the layout and dtype of the array.

    It reuses the plans of the previous batch: planning takes 30 us for a new View, and again for
    each layout that the caller requests.
    """

    def __init__(
        self,
        layout: str | None,
        arg_name: str,
        classes: Any = None,
        *,
        convert: Converter | None = None,
    ) -> None:
        self.result_layout = layout if convert is None else result_layout(convert)
        self._arg_name = arg_name
        self._classes = classes
        self._convert = convert
        # A View without rows, so that it does not keep the memory of a batch alive.
        self._template: DataView | None = None
        self._template_key: Any = None  # dtype and record shape of arrays that the template fits

    def __call__(self, array: Array | Padded | Packed | Ragged) -> Any:
        """Return a View of the array, without copying it, or of the converted array.

        Of a Padded, its data is replaced by a View. A Packed, whose rows are no records, and a
        Ragged are returned unchanged.
        """
        if isinstance(array, Padded):
            return array._replace(data=self(array.data))
        if isinstance(array, Packed | Ragged):
            return array
        if self._convert is not None:
            array = self._convert(array)
        template = self._template
        key = array.dtype, array.shape[1:]
        if template is None or key != self._template_key:
            layout = self.result_layout or default_layout(array.shape, self._arg_name)
            view: DataView = view_for_layout(layout, array, self._classes)
            self._template = view.sub(0, 0)
            self._template_key = key
            return view
        return template.with_samples(array)


@dataclass(frozen=True)
class ArrayFactory:
    """A factory of arrays of a framework."""

    library: Library
    layout: str | None = None  # of arrays before the conversion
    convert: Converter | None = None
    is_pinned: bool = False  # True: tensors of torch are in page-locked memory

    @property
    def result_layout(self) -> str | None:
        """The layout of the arrays of a batch, after the conversion; None: it is not known."""
        return self.layout if self.convert is None else result_layout(self.convert)

    def __call__(self, array: Any) -> Any:
        """Return the arrays of a batch in the library, without copying them, or converted.

        Raises ShapeError if an array does not have the rank of the layout.
        """
        if self.layout is not None and hasattr(array, "ndim"):
            check_rank(parse_layout(self.layout), array.shape)
        return map_arrays(self._make_array, array)

    def _make_array(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):  # others are of the framework already
            array = self.library.from_numpy(array)
        array = array if self.convert is None else self.convert(array)
        return pin_array(self.library, array) if self.is_pinned else array


def pin_array(library: Library, array: Any) -> Any:
    """Return an array as a tensor of torch in page-locked memory; other objects as they are.

    torch reuses this memory after the copies to a GPU that have begun are complete. A tensor that
    is there already is returned unchanged.
    """
    if isinstance(array, np.ndarray):
        array = library.from_numpy(array)
    is_on_cpu = getattr(getattr(array, "device", None), "type", None) == "cpu"
    return array.pin_memory() if is_on_cpu else array


TARGET = "the target of a batch"  # its name in messages
_EXAMPLES = {3: "bhw", 4: "bhwc", 5: "bthwc"}  # layouts by the number of axes


def default_layout(shape: Sequence[int], arg_name: str) -> str:
    """Return `b` for a shape of one axis and `bf` for two; raise PatternError for more axes."""
    if len(shape) not in (1, 2):
        channels_first = len(shape) == 4 and shape[1] <= MAX_IMAGE_CHANNELS < shape[3]
        layout = "bchw" if channels_first else _EXAMPLES.get(len(shape), "bhwc")
        option, fields = f'layout="{layout}"', ""
        if arg_name == TARGET:
            option = f'layout=(None, "{layout}")'
            fields = (
                "; a mask that is cropped and resized like its image is a field, as in "
                "collate={'image': Collator(...), 'mask': Collator(...)}"
            )
        raise PatternError(
            f"{arg_name} has {len(shape)} axes, but only one (b) and two (bf) have a default "
            f"layout; name the axes, as in {option}{fields}"
        )
    return "b" if len(shape) == 1 else "bf"
