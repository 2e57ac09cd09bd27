"""A `.npz` file of batches joined along their batch axis, written as they come.

How many samples there will be is known at the end only, and an array's file begins with its
shape. So batches wait in a file without a name beside the result, and are copied into their
place when the last one is there. No more than a batch is ever in memory.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ..memory import Array
from .npyfiles import npy_header

__all__ = ["JoinedBatches", "write_npz"]

# How much is rearranged at once where the batch axis is not the first one.
_WINDOW_BYTES = 64 << 20


class JoinedBatches:
    """Batches of one dtype, whose shapes differ along one axis only.

    Parameters
    ----------
    file : file
        Where the batches wait, from its beginning on; it needs room for all of them.
    axis : int
        The axis along which they are joined.
    """

    def __init__(self, file: BinaryIO, axis: int) -> None:
        self._file, self._axis = file, axis
        self._shapes: list[tuple[int, ...]] = []
        self._dtype = np.dtype(np.uint8)

    def add(self, batch: Array) -> None:
        """Append a contiguous batch; DtypeError for a dtype that files have no name for."""
        if not self._shapes:
            npy_header(batch.shape, batch.dtype)
            self._dtype = batch.dtype
        self._shapes.append(batch.shape)
        self._file.write(batch.reshape(-1).view(np.uint8).data)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all batches together."""
        first, axis = self._shapes[0], self._axis
        return (*first[:axis], sum(shape[axis] for shape in self._shapes), *first[axis + 1 :])

    def write(self, file: Any) -> None:
        """Write all batches as one array in the `.npy` format."""
        file.write(npy_header(self.shape, self._dtype))
        if self._axis == 0:
            self._file.seek(0)
            shutil.copyfileobj(self._file, file, _WINDOW_BYTES)
            return
        for block in self._blocks():
            file.write(block.data)

    def _blocks(self) -> Iterator[Array]:
        """The joined array, some of its outermost rows at a time."""
        rows = int(np.prod(self.shape[: self._axis]))
        sizes = [int(np.prod(shape)) * self._dtype.itemsize for shape in self._shapes]
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        step = max(1, _WINDOW_BYTES * rows // max(1, sum(sizes)))
        for first in range(0, rows, step):
            count = min(step, rows - first)
            parts = zip(starts, [size // rows for size in sizes], strict=True)
            block = [self._rows(start + first * width, count, width) for start, width in parts]
            yield np.concatenate(block, axis=1)

    def _rows(self, start: int, count: int, width: int) -> Array:
        """Bytes of one batch, in rows. Read, as what is mapped would count as our memory."""
        self._file.seek(start)
        return np.frombuffer(self._file.read(count * width), np.uint8).reshape(count, width)


def write_npz(file: BinaryIO, joined: JoinedBatches, arrays: dict[str, Array]) -> None:
    """Write the joined batches as `input`, and other arrays under their names, uncompressed."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("input.npy", "w", force_zip64=True) as member:
            joined.write(member)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
