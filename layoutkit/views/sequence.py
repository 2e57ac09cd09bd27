"""`SequenceView`: sequences of vectors."""

from typing import Any, ClassVar

from .dataview import DataView

__all__ = ["SequenceView"]


class SequenceView(DataView):
    """A batch of sequences of width w with c channels: `bwc` or `bcw`.

    >>> import numpy as np
    >>> view = SequenceView("bwc", np.zeros((8, 2, 5)))     # 8 contexts of 2 words, embedded in 5
    >>> view.forward_get("bcw").shape, view.forward_get("bf").shape
    ((8, 5, 2), (8, 10))

    Everything else is as for `DataView`.

    Parameters
    ----------
    layout, array
        As for `DataView`.
    max_labels : int, optional
        What all numbers are below, where they are labels: only spaces ask. Parts have it too.
    """

    _own: ClassVar = ("b", "bf", "bwc", "bcw")

    def __init__(
        self, layout: str | None = None, array: Any = None, max_labels: int | None = None
    ) -> None:
        self._max_labels = max_labels
        super().__init__(layout, array)

    def bwc(self, dtype: Any = None) -> Any:
        """The Converter to `bwc`: the channels of one place side by side."""
        return self.converter("bwc", dtype)

    def bcw(self, dtype: Any = None) -> Any:
        """The Converter to `bcw`: the places of one channel side by side."""
        return self.converter("bcw", dtype)
