"""A Sampler: the order of records, epoch by epoch.

Knows epochs and states; which record stands in which place is known by the orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...errors import DataError
from ..epochs import EpochIterator, Epochs
from ..protocolerrors import NoLength
from .kinds import Kind, kind_of
from .order import Order, SamplingPlan
from .partwise import from_marks
from .validation import check_turns, plan_of

__all__ = ["Sampler", "sampler"]


def sampler(
    kind: str,
    index: Any,
    *,
    batch_size: int | None = None,
    num_batches: int | None = None,
    label: Any = None,
    weights: Mapping[Any, float] | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> Sampler:
    """In which order records come: a pure function of kind, seed, epoch and position.

    >>> list(sampler("linear", 3))
    [0, 1, 2]
    >>> shuffled = sampler("permutation", 10, batch_size=4)
    >>> [len(batch) for batch in shuffled.batches()]
    [4, 4, 2]
    >>> sorted(shuffled), shuffled.epoch
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 2)

    Parameters
    ----------
    kind : str
        linear, permutation, uniform, batchwise_shuffled_sequential, random_slice, even_...,
        label-..., part-...; an unknown one raises an error that lists them.
    index : Index, int or anything with a length
        What is sampled: an Index gives Records, a number or a length gives ints.
    batch_size, num_batches : int, optional
        Of an epoch. Kinds that draw at random have no end of their own: they need both, or take
        as many batches as hold all records. Without either they are endless.
    label : optional
        Sample records with this label only.
    weights : mapping from label to number
        For label-distribution: how likely each label is, in any unit.
    seed, epoch : int
        Another seed or epoch, another order.

    Raises
    ------
    DataError
        An argument is wrong, means nothing for this kind, or asks for what cannot be had.
    """
    chosen = kind_of(kind)
    plan = plan_of(chosen, index, batch_size, num_batches, label, weights, seed)
    return Sampler(chosen, plan, epoch)


class Sampler(Epochs[Any]):
    """The order of records, epoch by epoch; made by `sampler`.

    For those who read ahead, `order(epoch)` is the order of any epoch, an `Order` that gives the
    record of any place, and `plan` is what was asked for.
    """

    def __init__(self, kind: Kind, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(epoch)
        self._kind = kind
        self._plan = plan
        self._kept: tuple[int, Order] | None = None

    @property
    def batch_size(self) -> int | None:
        """Records in a full batch; None when there are no batches."""
        return self._plan.batch_size

    @property
    def num_batches(self) -> int | None:
        """Batches in this epoch; None when endless, without batch size, or not known yet."""
        return self.order(self._epoch).num_batches

    @property
    def unvisited(self) -> int | None:
        """How many records this epoch leaves out; None where that is chance, or not known yet."""
        size = self.order(self._epoch).size
        if self._plan.draws or size is None:
            return None
        return (
            int(self._plan.material.item_count() if self._kind.parts else self._plan.count) - size
        )

    def __len__(self) -> int:
        size = self.order(self._epoch).size
        if size is None:
            why = "is endless" if self._plan.draws else "has no length until every part is opened"
            raise NoLength(f"{self._plan.kind} {why}; its items can be iterated")
        return size

    def batches(self) -> Batches:
        """The same order in batches: lists of Records, or int64 arrays of numbers.

        An iterable with the sampler's own epoch and state; a place inside a batch, which a loop
        over single records can leave, gives the rest of that batch first.

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
        """What this sampler was asked for, checked: all that its orders need besides the epoch."""
        return self._plan

    def order(self, epoch: int, marks: Mapping[str, Any] | None = None) -> Order:
        """The order of an epoch; `marks` of a state let that of part files start in the middle."""
        if self._kept and self._kept[0] == epoch and marks is None:
            return self._kept[1]
        if marks is not None and self._kind.parts:
            return from_marks(self._kind.order, self._plan, epoch, marks)
        return self._kind.order(self._plan, epoch)

    def with_plan(self, **changes: Any) -> Sampler:
        """A sampler of the same kind at epoch 0, whose plan differs in some fields.

        Raises
        ------
        DataError
            The batches that it asks for cannot be had.
        """
        plan = replace(self._plan, **changes)
        check_turns(self._kind, plan)
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

    def _marks(self, position: int) -> dict[str, int]:
        return self.order(self._epoch).marks(position) if self._kind.parts else {}

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> int:
        self._kept = epoch, self.order(epoch, state)
        return position

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": None}


class Batches:
    """A sampler's order in batches; its epoch and state are the sampler's."""

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
