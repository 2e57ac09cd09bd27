"""What happens to the arrays of a composite: each by itself, side by side, or cut apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import buffers
from ..arrays.symbolic import NUMPY, Library, Symbolic
from ..errors import DtypeError, LayoutkitError
from ..nested import each, each_leaf, leaves, path_text, placed, rebuilt
from ..spec import DType
from . import sparse
from .moves import Single

__all__ = ["Concatenate", "Each", "Piece", "Split"]


class Each:
    """A tuple becomes a tuple, component by component."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = tuple(parts)

    def judge(self, batch: Any, library: Library) -> None:
        """Judge all components before the first is converted."""
        each(lambda part, x: part.judge(x, library), self._parts, batch)

    def run(self, batch: Any, library: Library) -> Any:
        """Convert them."""
        return tuple(part.run(x, library) for part, x in zip(self._parts, batch, strict=True))


class Piece:
    """An array of a composite, and the columns of the matrix that hold it."""

    def __init__(self, path: tuple[int, ...], columns: slice, way: Single) -> None:
        self.path, self.columns, self.way = path, columns, way

    def of(self, batch: Any) -> Any:
        """The array."""
        for index in self.path:
            batch = batch[index]
        return batch

    def judge_in(self, batch: Any, library: Library) -> None:
        """Judge the array of a composite; errors say where it is."""
        try:
            self.way.judge(self.of(batch), library)
        except LayoutkitError as error:
            raise placed(error, *self.path) from None

    def judge(self, matrix: Any, library: Library) -> None:
        """Judge what is cut out of the matrix."""
        self.way.judge(matrix, library)

    def run(self, matrix: Any, library: Library) -> Any:
        """Cut the columns out of the matrix and convert them."""
        return self.way.run(matrix[:, self.columns], library)


class Concatenate:
    """Arrays become the columns of one matrix, each written to its place in one pass."""

    def __init__(self, pieces: Sequence[Piece], width: int, dtype: DType | None, csr: bool) -> None:
        self._pieces, self._width, self._dtype, self._sparse = pieces, width, dtype, csr

    def judge(self, batch: Any, library: Library) -> None:
        """Judge all arrays, and whether they agree on a dtype if the vectors' is open."""
        for piece in self._pieces:
            piece.judge_in(batch, library)
        found = [piece.way.result_dtype(piece.of(batch), library) for piece in self._pieces]
        for piece, dtype in zip(self._pieces, found, strict=True):
            if dtype != found[0]:
                raise DtypeError(
                    f"{path_text(self._pieces[0].path)} has dtype {found[0]}, but "
                    f"{path_text(piece.path)} has {dtype}, and the vectors have none of their "
                    'own; give them one: VectorSpace(dim, dtype="float32")'
                )

    def run(self, batch: Any, library: Library) -> Any:
        """Convert them to one matrix."""
        parts = [(piece, piece.of(batch)) for piece in self._pieces]
        first, x = parts[0]
        if len(parts) == 1:
            return first.way.run(x, library)
        if isinstance(library, Symbolic):
            return library.join([piece.way.run(x, library) for piece, x in parts])
        dtype = first.way.result_dtype(x, library)
        if self._sparse:
            return sparse.side_by_side([piece.way.run(x, library) for piece, x in parts], dtype)
        out = buffers.empty((first.way.rows(x), self._width), dtype)
        for piece, x in parts:
            piece.way.run(x, library, out[:, piece.columns])
        return out


class Split:
    """The columns of one matrix become arrays; `nest` is one of Pieces and Nothings."""

    def __init__(self, nest: Any) -> None:
        self._nest, self._parts = nest, leaves(nest)

    def judge(self, x: Any, library: Library) -> None:
        """Judge the dtype for every component."""
        each_leaf(lambda part: part.judge(x, library), self._nest)

    def run(self, x: Any, library: Library) -> Any:
        """Cut it apart; what is contiguous already stays where it is."""
        if library is NUMPY and sparse.is_sparse(x):
            x = x.tocsc()  # in which columns are cut out without looking at all entries
        return rebuilt(self._nest, [part.run(x, library) for part in self._parts])
