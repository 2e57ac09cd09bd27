"""Samplers: the table of kinds, validation of arguments, and `Sampler` itself.

To add a kind, write an Order in a module of its own and add a row to KINDS. A `Sampler` keeps the
epoch and the state; the orders compute the record at each position.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Never

import numpy as np

from ..._utils.errors import prefix_errors
from ..._utils.indexing import normalize_indices
from ..._utils.registry import Registry, describe_extension
from ..._utils.spelling import find_choice
from ..._utils.validation import check_int, describe_type, show
from ...errors import ArgumentError, DataError
from ...memory import Array
from ..errors import NoLength, reject_unknown
from ..iteration import EpochIterator, Epochs
from ..sources import Groups, Index, MixedIndex, PartsIndex, StreamIndex, group_by_code
from ..sources.base import Partition, hash_numbers
from . import labels, orders, partwise
from .iterated import IteratedSampler
from .labels import LabelTable
from .mixture import MixedOrder, Mixture, PermutedMixture
from .orders import Order, SamplingPlan, ceil_div
from .partwise import order_from_state
from .streamed import StreamOrder
from .weighted import Weighted, sum_weights


@dataclass(frozen=True)
class Kind:
    """The properties of one kind of sampler."""

    name: str  # the documented spelling
    order: type[Order]
    base: str = ""  # the kind in the hash key of random numbers; by default the name
    full: str = ""  # the name of the kind with this order and only full batches, if there is one
    even: bool = False  # omits the records that do not fill a batch
    draws: bool = False  # makes independent draws, which have no natural end
    labeled: bool = False  # chooses labels first
    weighted: bool = False  # chooses records by weight
    parts: bool = False  # accepts part files, and nothing else
    one_label: bool = False  # can be restricted to one label
    sliced: bool = False  # requires a batch size
    streams: bool = False  # accepts streams, and nothing else
    mixed: type[Order] | None = None  # the order of a mixture; None: it is not accepted
    # Of a caller or another package: called with (count, seed, epoch), returns positions of records
    function: Callable[[int, int, int], Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base or self.name)

    def make_order(self, plan: SamplingPlan, epoch: int) -> Order:
        """Return the order of an epoch."""
        order = self.mixed if isinstance(plan.material, Mixture) and self.mixed else self.order
        return order(plan, epoch)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a kind of the table by its name, so that the fields may change."""
        is_named = KINDS.rows.get(self.name) is self
        return (find_kind, (self.name,)) if is_named else super().__reduce_ex__(protocol)

    def variants(self) -> list[Kind]:
        """Return this kind and, if it exists, its kind with only full batches."""
        full = replace(self, name=self.full, full="", even=True, sliced=True, one_label=False)
        return [self, full] if self.full else [self]


_ROWS = (
    Kind("linear", orders.Linear, full="even-sequential", one_label=True, mixed=MixedOrder),
    Kind(
        "permutation",
        orders.PermutedOrder,
        full="even-shuffled-sequential",
        one_label=True,
        mixed=PermutedMixture,
    ),
    Kind(
        "batchwise-shuffled-sequential",
        orders.Batchwise,
        "batchwise_shuffled_sequential",  # hash keys keep their spelling
        "even-batchwise-shuffled-sequential",
        sliced=True,
    ),
    Kind("chunk-shuffle", orders.ChunkShuffle, "chunk_shuffle", "even-chunk-shuffle"),
    Kind("even-sequences", orders.EvenSequences, "even_sequences", even=True, sliced=True),
    Kind("uniform", orders.Uniform, draws=True, one_label=True),
    Kind("random-slice", orders.RandomSlice, "random_slice", draws=True, sliced=True),
    Kind("weighted", Weighted, draws=True, weighted=True),
    Kind("label-uniform", labels.LabelUniform, draws=True, labeled=True),
    Kind("label-permutation", labels.LabelPermutation, draws=True, labeled=True),
    Kind("stream", StreamOrder, full="even-stream", streams=True),
    Kind("part-linear", partwise.PartLinear, parts=True),
    Kind("part-linear-permutation", partwise.PartLinearPermutation, parts=True),
    Kind("part-permutation-permutation", partwise.PartPermutationPermutation, parts=True),
)


def _make_kind(name: str, function: Any) -> Kind:
    """Return the kind of a function; raise ArgumentError unless it accepts its arguments."""
    try:
        with suppress(ValueError):  # a builtin without a signature
            inspect.signature(function).bind(1, 0, 0)
    except TypeError as error:
        raise ArgumentError(
            f"is not a function of (count, seed, epoch) that returns positions of records: {error}"
        ) from None
    return Kind(name, orders.FunctionOrder, full=f"even-{name}", function=function)


KINDS = Registry(
    "layoutkit.samplers",
    "the sampler",
    {kind.name: kind for row in _ROWS for kind in row.variants()},
    _make_kind,
)
ALIASES = {
    "sequential": "linear",
    "shuffle": "permutation",
    "shuffled-sequential": "permutation",
    "random-uniform": "uniform",
    "label-distribution": "weighted",
}


def find_kind(name: Any) -> Kind:
    """Return the kind with this name or alias (`_` and `-` are equivalent), or of a function.

    Raises DataError for an unknown name.
    """
    if is_function(name):
        with prefix_errors("sampler= ", ArgumentError):
            return _make_kind(describe_extension(name), name)
    if not isinstance(name, str):
        raise DataError(f"sampler= is {describe_type(name)}; {_ORDERS}")
    dashed = name.replace("_", "-")
    kind: Kind | None = KINDS.find(ALIASES.get(dashed, dashed))
    if kind is None and dashed.startswith("even-"):
        plain = KINDS.find(dashed.removeprefix("even-"))
        kind = plain.variants()[-1] if plain and plain.function else None
    if kind is None:
        names = [*ALIASES, *KINDS]
        meant = find_choice(name, names)
        hint = f"did you mean {meant!r}? There are" if meant else "there are"
        raise DataError(f"no sampler is called {name!r}; {hint} {', '.join(names)}")
    return kind


_ORDERS = (
    "give the name of an order, a sampler(...), a list or array of positions of records, or a "
    "function of (count, seed, epoch) that returns them"
)


def is_function(kind: Any) -> bool:
    """Return True for a function that returns orders."""
    return callable(kind) and not hasattr(kind, "__iter__") and not isinstance(kind, type | Sampler)


def as_function(kind: Any) -> Any:
    """Return a sampler that can only be iterated as a function of an epoch, others unchanged."""
    has_items = hasattr(kind, "__getitem__") or isinstance(kind, Set | Sampler)
    return kind if has_items or not hasattr(kind, "__iter__") else IteratedSampler(kind)


def read_positions(values: Any, count: int) -> Array:
    """Return the positions of records that a caller gives as an order; repeated ones may occur.

    Raises
    ------
    DataError
        They are not whole numbers below `count`, or have no order.
    """
    if isinstance(values, Mapping) or not hasattr(values, "__iter__"):
        raise DataError(f"sampler= is {describe_type(values)}; {_ORDERS}")
    if not hasattr(values, "__getitem__"):
        raise DataError(f"sampler= is {describe_type(values)}, which has no order; give a list")
    return normalize_indices(values, count, "records", DataError)


def full_batch_kind(name: Any) -> str:
    """Return the name of the kind with the order of `name` in which all batches are full.

    >>> full_batch_kind("shuffle"), full_batch_kind("uniform")
    ('even-shuffled-sequential', 'uniform')

    Raises DataError for the kinds of part files, which do not have such a kind.
    """
    kind = find_kind(name)
    if kind.even or kind.draws:
        return kind.name
    if not kind.full:
        raise DataError(
            f"drop_last=True, but {kind.name} does not know the number of records before every "
            "part is opened; use batch.count instead"
        )
    return kind.full


# Positions are signed 64-bit integers, in states and in arrays.
_MAX_INT64 = (1 << 63) - 1


def make_sampling_plan(
    kind: Kind,
    index: Any,
    batch_size: Any,
    num_batches: Any,
    label: Any,
    weights: Any,
    seed: Any,
    positions: Any = None,
) -> SamplingPlan:
    """Return the SamplingPlan for these arguments; `positions` are records in a caller's order.

    Raises
    ------
    DataError
        An argument is invalid, has no meaning for this kind, or cannot be satisfied.
    """
    batch = None if batch_size is None else _check_int64("batch_size", batch_size, 1)
    batches = None if num_batches is None else _check_int64("num_batches", num_batches, 0)
    _check_label_options(kind, label, weights)
    items = _select_items(kind, index, label, weights)
    selection = index.selection if isinstance(index, Index) else str(Partition(0, 1))
    if isinstance(kind.function, IteratedSampler):
        drawn = kind.function(items["count"], check_int("seed", seed, None), 0)
        selection += f", positions {hash_numbers(read_positions(drawn, items['count']))}"
    if kind.weighted:
        selection += f", weights {hash_numbers(items['material'])}"
    if positions is not None:
        if label is not None:
            raise DataError(
                f"label={show(label)} and positions both select records; give "
                f"index.members({show(label)})"
            )
        if isinstance(index, MixedIndex):
            raise DataError(
                "a mixture has an order of its own; give positions of records to its sources, as "
                "in mix([(a[positions], 0.7), (b, 0.3)])"
            )
        members = read_positions(positions, items["count"])
        items = {**items, "count": len(members), "members": members}
        selection += f", positions {hash_numbers(members)}"
    plan = SamplingPlan(
        kind.name,
        kind.base,
        check_int("seed", seed, None),
        even=kind.even,
        draws=kind.draws or (isinstance(index, MixedIndex) and index.on_end == "repeat"),
        partition=selection,
        **items,
    )
    plan = replace(plan, batch_size=_batch_size(kind, plan, batch, batches))
    plan = replace(plan, num_batches=_num_batches(plan, batches))
    check_num_batches(kind, plan)
    return plan


def _check_label_options(kind: Kind, label: Any, weights: Any) -> None:
    if label is not None and not kind.one_label:
        raise DataError(
            f"label={show(label)} means nothing for {kind.name}; linear, permutation and "
            "uniform accept it"
        )
    if weights is not None and not kind.weighted:
        raise DataError(f"weights mean nothing for {kind.name}; weighted accepts them")
    if weights is None and kind.weighted:
        raise DataError("weighted needs weights=, one number for each record, or {label: number}")


def _check_int64(name: str, value: Any, least: int) -> int:
    return check_int(name, value, least, maximum=_MAX_INT64)


def _select_items(kind: Kind, index: Any, label: Any, weights: Any) -> dict[str, Any]:
    """Return the fields of the plan about what `kind` samples from an index, number or sequence."""
    if kind.parts != isinstance(index, PartsIndex):
        accepts = "accepts part files only" if kind.parts else "does not accept part files"
        raise DataError(
            f"{kind.name} {accepts}; part-linear, part-linear-permutation and "
            "part-permutation-permutation accept part files, and nothing else"
        )
    if isinstance(index, PartsIndex):
        return {"count": len(index.parts), "material": index}
    if kind.streams != isinstance(index, StreamIndex):
        raise DataError(
            f"{kind.name} accepts a stream, which has no length, and nothing else"
            if kind.streams
            else f"{kind.name} chooses among all records, but a stream is read in its own order; "
            "sampled_batcher(..., shuffle=1000) shuffles this number of records at a time"
        )
    if isinstance(index, StreamIndex):
        return {"count": 0, "material": index}
    if isinstance(index, MixedIndex):
        if kind.mixed is None or label is not None:
            names = [name for name, row in KINDS.rows.items() if row.mixed]
            raise DataError(
                f"a mixture has an order of its own; {', '.join(names)} accept it, without label=: "
                "give weights, labels and other orders to its sources"
            )
        mixture = Mixture.of(index)
        return {"count": mixture.size, "item": index.record, "material": mixture}
    is_index = isinstance(index, Index)
    if not is_index and (kind.labeled or label is not None):
        raise DataError(f"{kind.name} needs an Index with labels, not {_describe(index)}")
    item = index.record if is_index else None
    if label is not None:
        members = index.members(label)
        return {"count": len(members), "item": item, "members": members}
    material: Any = None
    if kind.order is orders.EvenSequences:
        material = _sequence_groups(index)
    elif kind.order is orders.ChunkShuffle:
        material = _chunk_window(kind, index)
    elif kind.function is not None:
        material = kind.function
    elif kind.labeled:
        material = _label_table(kind, index)
    elif kind.weighted:
        material = sum_weights(weights, index, _num_records(index))
    return {"count": _num_records(index), "item": item, "material": material}


def _chunk_window(kind: Kind, index: Any) -> tuple[int, int]:
    window = index.chunk_window if isinstance(index, Index) else None
    if window is None:
        what = f"a {index.kind} index" if isinstance(index, Index) else _describe(index)
        raise DataError(
            f"{kind.name} reads a source chunk by chunk, such as a zarr store, and {what} has no "
            'chunks; "shuffle" is as fast there'
        )
    if index.partition.parts > 1:
        raise DataError(
            f"{kind.name} of partition {index.partition}, which has some records of every chunk, "
            "would decode all chunks in every partition; use shard= of sampled_batcher"
        )
    return window


def _describe(index: Any) -> str:
    return f"{index!r}" if isinstance(index, int) else f"{describe_type(index)}"


def _num_records(index: Any) -> int:
    if isinstance(index, numbers.Integral):
        count = check_int("index", index)
    else:
        try:
            count = len(index)
        except DataError:
            raise
        except TypeError:
            raise DataError(
                f"{_describe(index)} is neither an Index nor a number and has no length; there is "
                "nothing to sample"
            ) from None
    return _check_int64("the number of records", count, 0)


def _label_table(kind: Kind, index: Index) -> LabelTable:
    if not index.labels:
        raise DataError(f"{kind.name} needs labels, but this {index.kind} index has none")
    table = LabelTable.of(index.groups)
    if not table.num_labels:
        raise DataError(f"{kind.name} has nothing to draw from: no label has records")
    return table


def _sequence_groups(index: Any) -> Groups:
    """Return the sequences grouped by length."""
    if isinstance(index, numbers.Integral):
        raise DataError(f"even-sequences needs sequences, whose lengths it compares, not {index!r}")
    lengths = [_sequence_length(index, number) for number in range(_num_records(index))]
    _, codes = np.unique(np.array(lengths, dtype=np.int64), return_inverse=True)
    return group_by_code(codes, int(codes.max(initial=-1)) + 1)


def _sequence_length(index: Any, number: int) -> int:
    try:
        sequence = index[number]
    except (TypeError, KeyError):
        raise DataError(
            f"even-sequences indexes the sequences, but {describe_type(index)} does not support "
            f"[{number}]; give a list"
        ) from None
    if isinstance(index, Index) and sequence.array is None:
        if sequence.length is None:
            raise DataError(
                f"even-sequences needs the length of each record, and record {number} has none"
            )
        return sequence.length
    try:
        return len(sequence.array if isinstance(index, Index) else sequence)
    except DataError:
        raise
    except TypeError:
        raise DataError(
            f"even-sequences needs sequences, but item {number} is not a sequence"
        ) from None


def _batch_size(
    kind: Kind, plan: SamplingPlan, batch: int | None, batches: int | None
) -> int | None:
    """Return the batch size, computed from the number of batches if it is not set."""
    if batch is None and batches is not None:
        if plan.draws:
            raise DataError(f"num_batches={batches} of {kind.name} needs a batch_size as well")
        count = plan.material.item_count() if kind.parts else plan.count
        batch = max(1, count // max(1, batches) if kind.even else ceil_div(count, max(1, batches)))
    if batch is None and kind.sliced:
        raise DataError(f"{kind.name} needs a batch_size, as its order is made of batches")
    if plan.draws and not plan.count:
        raise DataError(f"{kind.name} has nothing to draw from: there are no records")
    if kind.order is orders.RandomSlice and batch and batch > plan.count:
        raise DataError(
            f"batch_size={batch}, but there are {plan.count} records; give at most that number"
        )
    return batch


def _num_batches(plan: SamplingPlan, batches: int | None) -> int | None:
    """Return the number of batches: for kinds that draw, one epoch of records by default."""
    if plan.draws and plan.batch_size:
        batches = ceil_div(plan.count, plan.batch_size) if batches is None else batches
        positions = batches * plan.batch_size
        _check_int64("the number of positions, num_batches * batch_size,", positions, 0)
    return batches


def check_num_batches(kind: Kind, plan: SamplingPlan) -> None:
    """Raise if `num_batches` exceeds what the kind can make; part files may raise only later."""
    if plan.num_batches is None or plan.draws:
        return
    can = kind.make_order(replace(plan, num_batches=None), 0).num_batches
    if can is not None and plan.num_batches > can:
        raise DataError(
            f"num_batches={plan.num_batches}, but {kind.name} can give {can} batches of "
            f"{plan.batch_size}; reduce num_batches or batch_size"
        )


def sampler(
    kind: Any,
    index: Any,
    *,
    batch_size: int | None = None,
    num_batches: int | None = None,
    label: Any = None,
    weights: Any = None,
    seed: int = 0,
    epoch: int = 0,
    **unknown: Never,
) -> Sampler:
    """Return a sampler: an order of records that depends on kind, seed, epoch and position only.

    >>> list(sampler("sequential", 3))
    [0, 1, 2]
    >>> shuffled = sampler("shuffle", 10, batch_size=4)
    >>> [len(batch) for batch in shuffled.batches()]
    [4, 4, 2]
    >>> sorted(shuffled), shuffled.epoch
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 2)

    Parameters
    ----------
    kind : str, sequence of int, or function
        "sequential" (or "linear"), "shuffle" (or "permutation"), "random-uniform" (or "uniform"),
        "batchwise-shuffled-sequential", "chunk-shuffle", "random-slice", "weighted", "even-...",
        "label-...", "part-...", "stream". `_` is accepted in place of `-`. The error for an unknown
        kind lists all of them. A list, array or range of positions is the order itself, of each
        epoch. A function is called with (count, seed, epoch) and returns the positions of that
        epoch; equal arguments have to give equal positions. A torch Sampler is read once an epoch,
        with the generators that it draws from seeded for the epoch.
    index : Index, int or object with a length
        The records to sample. An Index yields Records, a number or a length yields ints.
    batch_size, num_batches : int, optional
        The size and number of the batches of an epoch. Kinds that draw at random have no natural
        end: they need both, or make as many batches as hold all records. Without either they are
        endless.
    label : optional
        Sample only records with this label.
    weights : array of (records,) numbers, or mapping from label to number, optional
        The relative probability of each record, or of each label, for "weighted" (or
        "label-distribution"): finite numbers of at least 0. Records are drawn with replacement.
    seed, epoch : int
        The random order is a function of both.

    Raises
    ------
    DataError
        An argument is invalid, has no meaning for this kind, or cannot be satisfied.
    """
    reject_unknown(sampler, unknown)
    kind = as_function(kind)
    positions = None if isinstance(kind, str) or is_function(kind) else kind
    spec = find_kind(kind if positions is None else "linear")
    plan = make_sampling_plan(spec, index, batch_size, num_batches, label, weights, seed, positions)
    return Sampler(spec, plan, epoch)


def sample_full_batches(kind: Any, index: Any, **options: Any) -> Sampler:
    """Return the sampler with the order of `kind`, a name or positions, and only full batches."""
    if isinstance(kind, str):
        return sampler(full_batch_kind(kind), index, **options)
    ordered = sampler(kind, index, **options)
    full = ordered._kind.variants()[-1]
    return Sampler(full, replace(ordered.plan, kind=full.name, even=True), ordered.epoch)


class Sampler(Epochs[Any]):
    """The order of records, epoch by epoch; created by `sampler`.

    To read ahead, call `order(epoch)`: it returns the `Order` of any epoch, which gives the record
    at any position. `plan` holds the validated options.
    """

    def __init__(self, kind: Kind, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(epoch)
        self._kind = kind
        self._plan = plan
        self._kept: tuple[int, Order] | None = None

    @property
    def batch_size(self) -> int | None:
        """The number of records in a full batch; None without batches."""
        return self._plan.batch_size

    @property
    def num_batches(self) -> int | None:
        """The number of batches in this epoch; None if endless, not batched or not yet known."""
        return self.order(self._epoch).num_batches

    @property
    def unvisited(self) -> int | None:
        """The number of records this epoch omits; None if it is random or not yet known."""
        size = self.order(self._epoch).size
        if self._plan.draws or size is None:
            return None
        count = int(self._plan.material.item_count() if self._kind.parts else self._plan.count)
        return max(0, count - size)

    def __len__(self) -> int:
        size = self.order(self._epoch).size
        if size is None:
            why = "is endless" if self._plan.draws else "has no length until every part is read"
            raise NoLength(f"{self._plan.kind} {why}; iterate over it instead")
        return size

    def batches(self) -> Batches:
        """Return an iterable over this order in batches: lists of Records, or int64 arrays.

        It shares the sampler's epoch and state. If a loop over single records stopped inside a
        batch, the remainder of that batch comes first.

        Raises
        ------
        DataError
            There is no batch size.
        """
        if self.batch_size is None:
            raise DataError("batches() needs a batch_size; give one to sampler()")
        return Batches(self)

    @property
    def plan(self) -> SamplingPlan:
        """The validated options: all that the orders need except the epoch."""
        return self._plan

    def order(self, epoch: int, marks: Mapping[str, Any] | None = None) -> Order:
        """Return the order of an epoch; `marks` of a state let part files start in the middle."""
        if self._kept and self._kept[0] == epoch and marks is None:
            return self._kept[1]
        if marks is not None and self._kind.parts:
            return order_from_state(self._kind.order, self._plan, epoch, marks)
        return self._kind.make_order(self._plan, epoch)

    def with_plan(self, **changes: Any) -> Sampler:
        """Return a sampler of this kind at epoch 0 with some fields of the plan replaced.

        Raises
        ------
        DataError
            The plan asks for more batches than the kind can make.
        """
        plan = replace(self._plan, **changes)
        check_num_batches(self._kind, plan)
        return Sampler(self._kind, plan, 0)

    def __repr__(self) -> str:
        return f"<{self._plan.kind} sampler, seed {self._plan.seed}, epoch {self._epoch}>"

    def _steps(self, epoch: int, position: int) -> Iterator[tuple[Any, int]]:
        for item in self._keep(epoch).walk(position):
            position += 1
            yield item, position

    def _batch_steps(self, epoch: int, position: int) -> Iterator[tuple[Any, int]]:
        return self._keep(epoch).batches(position)

    def _keep(self, epoch: int) -> Order:
        order = self.order(epoch)
        self._kept = epoch, order
        return order

    def _identity(self) -> dict[str, int | str]:
        return self._plan.identity

    def _records(self) -> int:
        return self._plan.count

    def _end(self, epoch: int) -> int | None:
        return self.order(epoch).size

    def _resume_info(self, position: int) -> dict[str, int]:
        return self.order(self._epoch).marks(position) if self._kind.parts else {}

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> int:
        self._kept = epoch, self.order(epoch, state)
        return position

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Earlier pickles have the name of the kind in the plan only.
        self.__dict__.update(state, _kind=state["_kind"] or find_kind(state["_plan"].kind))


class Batches:
    """The batches of a sampler, whose epoch and state it shares."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.set_epoch = sampler.set_epoch
        self.state_dict = sampler.state_dict
        self.load_state_dict = sampler.load_state_dict

    @property
    def epoch(self) -> int:
        """The sampler's epoch."""
        return self._sampler.epoch

    def __iter__(self) -> EpochIterator[Any]:
        return self._sampler._begin(self._sampler._batch_steps)

    def __len__(self) -> int:
        number = self._sampler.num_batches
        if number is None:
            raise NoLength("the number of batches is not known until every part is opened")
        return number
