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

from ..arrays import Array
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
        self._file.flush()
        if self._axis == 0:
            self._file.seek(0)
            shutil.copyfileobj(self._file, file, _WINDOW_BYTES)
            return
        for block in self._blocks():
            file.write(block.data)

    def _blocks(self) -> Iterator[Array]:
        """The joined array, some of its outermost rows at a time."""
        rows = int(np.prod(self.shape[: self._axis]))
        batches = self._mapped(rows)
        step = max(1, _WINDOW_BYTES // max(1, sum(batch[0].nbytes for batch in batches)))
        for first in range(0, rows, step):
            yield np.concatenate([batch[first : first + step] for batch in batches], axis=1)

    def _mapped(self, rows: int) -> list[Array]:
        """Each batch as a mapped array of bytes (rows, bytes in a row)."""
        mapped = np.memmap(self._file, np.uint8, "r")
        sizes = [int(np.prod(shape)) * self._dtype.itemsize for shape in self._shapes]
        parts = np.split(mapped, np.cumsum(sizes)[:-1])
        return [part.reshape(rows, -1) for part in parts]


def write_npz(file: BinaryIO, joined: JoinedBatches, arrays: dict[str, Array]) -> None:
    """Write the joined batches as `input`, and other arrays under their names, uncompressed."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("input.npy", "w", force_zip64=True) as member:
            joined.write(member)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
