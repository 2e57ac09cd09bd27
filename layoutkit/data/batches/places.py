"""Where a Batcher is: a position, and the numbers that move with it.

Knows what is counted; what is handed out is not known here.
"""

from __future__ import annotations

from ..samplers.order import Order
from .batch import Batch

__all__ = ["Place", "place_of"]


class Place(int):
    """A position in an epoch, and what was counted up to it: one object, so that they agree.

    batches : int    handed out in this epoch
    dropped : int    records left out
    order : Order    of part files: it knows where the file begins that the position is in
    """

    batches: int
    dropped: int
    order: Order | None

    def __new__(  # noqa: D102  # the class says it
        cls, position: int = 0, batches: int = 0, dropped: int = 0, order: Order | None = None
    ) -> Place:
        place = super().__new__(cls, position)
        place.batches, place.dropped, place.order = batches, dropped, order
        return place

    def behind(self, batch: Batch, position: int, order: Order) -> Place:
        """The place behind one more batch."""
        return Place(position, self.batches + 1, self.dropped + len(batch.dropped), order)


def place_of(position: int) -> Place:
    """The place that a position of a Batcher is; a Place, but for a moment while it is made."""
    return position if isinstance(position, Place) else Place(position)
