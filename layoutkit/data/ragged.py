"""`Ragged`: arrays that differ in length, in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import buffers
from .._utils.indexing import normalize_index
from ..backends.dispatch import as_array
from ..errors import ShapeError
from ..memory import Array
from ..spec import as_dtype
from .errors import OutOfRange


@dataclass(frozen=True, eq=False)
class Ragged:
    """Arrays that differ in length, joined along their first axis.

    A sequence: `ragged[i]` is a view of array i, and `len(ragged)` their number.

    Attributes
    ----------
    data : array
        All arrays, one after the other.
    offsets : int64 array
        Array i is `data[offsets[i] : offsets[i + 1]]`; there is one offset more than arrays.
    """

    data: Array
    offsets: Array

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Ragged:
        """Return arrays of one dtype, equal but for their first axes, joined in native order.

        Raises ShapeError if there are none or two do not fit together, ArgumentError for others.
        """
        arrays = [as_array(array, "an array of Ragged.of") for array in arrays]
        kinds = {(array.dtype, array.ndim, array.shape[1:]) for array in arrays}
        if len(kinds) != 1 or not arrays[0].ndim:
            shapes = ", ".join(f"{x.dtype} {x.shape}" for x in arrays[:9])
            raise ShapeError(
                f"the arrays to join are {shapes or 'none'}; give arrays of one dtype whose shapes "
                "differ in the first axis only"
            )
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        first = arrays[0]
        data = buffers.empty((int(offsets[-1]), *first.shape[1:]), as_dtype(first.dtype))
        np.concatenate(arrays, out=data)
        return cls(data, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Array:
        number = normalize_index(i, len(self), "arrays", OutOfRange)
        return self.data[self.offsets[number] : self.offsets[number + 1]]

    def __repr__(self) -> str:
        return f"<Ragged of {len(self)} arrays, {self.data.dtype} {self.data.shape}>"
