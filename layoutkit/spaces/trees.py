"""What happens to the arrays of a composite: each by itself, side by side, or cut apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import buffers
from ..arrays.symbolic import NUMPY, Library, Symbolic
from ..errors import DtypeError
from ..spec import DType
from . import sparse
from .moves import Nothing, Single
from .places import Place, each, path_text

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


class Concatenate:
    """Arrays become the columns of one matrix, each written to its place in one pass."""

    def __init__(self, pieces: Sequence[Piece], width: int, dtype: DType | None, csr: bool) -> None:
        self._pieces, self._width, self._dtype, self._sparse = pieces, width, dtype, csr

    def judge(self, batch: Any, library: Library) -> None:
        """Judge all arrays, and whether they agree on a dtype if the vectors' is open."""
        for piece in self._pieces:
            _judge_at(piece.path, piece.way, piece.of(batch), library)
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
    """The columns of one matrix become arrays; `tree` nests Pieces, Nothings and tuples."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def judge(self, x: Any, library: Library) -> None:
        """Judge the dtype for every component."""
        self._judge(self._tree, x, library)

    def run(self, x: Any, library: Library) -> Any:
        """Cut it apart; what is contiguous already stays where it is."""
        if library is NUMPY and sparse.is_sparse(x):
            x = x.tocsc()  # in which columns are cut out without looking at all entries
        return self._cut(self._tree, x, library)

    def _judge(self, tree: Any, x: Any, library: Library) -> None:
        if isinstance(tree, tuple):
            each(lambda branch: self._judge(branch, x, library), tree)
        elif isinstance(tree, Piece):
            tree.way.judge(x, library)

    def _cut(self, tree: Any, x: Any, library: Library) -> Any:
        if isinstance(tree, tuple):
            return tuple(self._cut(branch, x, library) for branch in tree)
        if isinstance(tree, Nothing):
            return None
        return tree.way.run(x[:, tree.columns], library)


def _judge_at(path: tuple[int, ...], way: Single, x: Any, library: Library) -> None:
    """Judge an array, with its path in front of what is raised."""
    if not path:
        way.judge(x, library)
        return
    with Place(path[0]):
        _judge_at(path[1:], way, x, library)
