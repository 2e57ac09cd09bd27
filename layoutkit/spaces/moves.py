"""What happens to a single array on its way from one space to another.

Each class is one way: `judge` says whether the dtype may become the other space's, before the
first byte of the batch moves, and `run` moves it. Which one is used is for routes.py to say.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..arrays.rows import one_hot
from ..arrays.symbolic import NUMPY, Library, Symbolic
from ..axes import parse_pattern
from ..collator import Collator
from ..converter import Converter
from ..errors import DtypeError, SpaceError
from ..spec import ArraySpec, DType, check_cast, kind_of
from . import sparse

__all__ = ["Nothing", "OneHot", "Rearrange", "Single", "ToDense", "ToSparse"]

_SMALL = 2048  # bytes of a row; of such NumPy gathers a batch in less time than a table is made


class Single:
    """One way for an array. `dtype` is the other space's: None keeps what comes in."""

    def __init__(self, dtype: DType | None, casting: str) -> None:
        self.dtype, self.casting = dtype, casting

    def judge(self, x: Any, library: Library) -> None:
        """Raise DtypeError where the casting rule or the framework does not allow it."""
        source, target = library.dtype(x), self.result_dtype(x, library)
        if source != target:
            check_cast(source, target, self.casting)
        if isinstance(library, Symbolic):
            library.check(target)

    def result_dtype(self, x: Any, library: Library) -> DType:
        """The dtype of the result, which is of native byte order."""
        found = library.dtype(x) if self.dtype is None else self.dtype
        return found if found.isnative else found.newbyteorder("=")

    def rows(self, x: Any) -> int:
        """How many samples the array holds."""
        return int(x.shape[0])

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Convert the array, of a batch that has been checked and judged; `out`: NumPy only."""
        raise NotImplementedError


class Nothing:
    """None, of None or of no columns of a matrix."""

    def judge(self, x: Any, library: Library) -> None:
        """There is no dtype."""

    def run(self, x: Any, library: Library) -> None:
        """There is no array."""


class Rearrange(Single):
    """To another layout and dtype, by `convert`; symbolic arrays in their framework's words."""

    def __init__(
        self, pattern: str, dtype: DType | None, casting: str, sizes: dict[str, Any]
    ) -> None:
        super().__init__(dtype, casting)
        self._convert = Converter(pattern, dtype=dtype, casting=casting, **sizes)
        self._pattern, self._sizes = parse_pattern(pattern), sizes

    def rows(self, x: Any) -> int:
        """The size of axis b."""
        return int(x.shape[self._pattern.source.groups.index("b")])

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Convert the array, in one pass."""
        if not isinstance(library, Symbolic):
            return self._convert(x, out)
        y = self._rearranged(x, library)
        return library.contiguous(library.cast(y, self.result_dtype(x, library), self.casting))

    def of_rows(self, shape: tuple[int, ...], dtype: DType) -> Collator | None:
        """What makes of rows of an array what `run` makes of these, gathered, in one pass.

        None where nothing has to move or rows are small: to gather them is all, or quicker.
        """
        if dtype.itemsize * prod(shape[1:]) < _SMALL:
            return None
        if (
            self._convert.plan(ArraySpec(str(self._pattern.left), (2, *shape[1:]), dtype)).kernel
            == "view"
        ):
            return None
        return Collator(self._pattern.text, dtype=self.dtype, casting=self.casting, **self._sizes)

    def _rearranged(self, x: Any, library: Symbolic) -> Any:
        """Unfold, permute, fold. Sizes of plain axes may be unknown to the framework as yet."""
        source, target = self._pattern.source, self._pattern.target
        sizes = {**dict(zip(source.groups, library.shape(x), strict=True)), **self._sizes}
        unfolded = [sizes[letter] for letter in source.letters]
        order = [source.letters.index(letter) for letter in target.letters]
        folded = [prod(sizes[letter] for letter in group) for group in target.groups]
        return library.rearrange(x, unfolded, order, folded)


class ToDense(Single):
    """From scipy.sparse to an array; a matrix becomes images only on the way back from them."""

    def __init__(self, move: Rearrange) -> None:
        super().__init__(move.dtype, move.casting)
        self._move = move

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Write all entries, then convert."""
        return self._move.run(sparse.densified(x), library, out)


class ToSparse(Single):
    """To scipy.sparse, in csr format, from a matrix there or from an array."""

    def __init__(self, move: Rearrange) -> None:
        super().__init__(move.dtype, move.casting)
        self._move = move

    def judge(self, x: Any, library: Library) -> None:
        """Raise also where scipy has no such matrices."""
        _refuse_symbolic(library)
        super().judge(x, library)
        sparse.check_sparse_dtype(self.result_dtype(x, library))

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Convert, then leave out the zeros."""
        if sparse.is_sparse(x):
            return sparse.recast(x, self.dtype, self.casting)
        return sparse.sparse_of(self._move.run(x, library))


class OneHot(Single):
    """Labels to vectors: which are there (`blocks` is 1), or a block of columns for each.

    Zero and one are in every dtype of numbers, so no casting rule is asked.
    """

    def __init__(self, count: int, blocks: int, dtype: DType | None, is_sparse: bool) -> None:
        super().__init__(np.dtype(np.float32) if dtype is None else dtype, "unsafe")
        self._count, self._blocks, self._sparse = count, blocks, is_sparse

    def judge(self, x: Any, library: Library) -> None:
        """Raise where the vectors are of no dtype of numbers."""
        target = self.result_dtype(x, library)
        if kind_of(target) not in "buifc":
            raise DtypeError(f"one-hot vectors are numbers, not of dtype {target}")
        if self._sparse:
            _refuse_symbolic(library)
            sparse.check_sparse_dtype(target)
        if isinstance(library, Symbolic):
            library.check(target)

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Make the vectors; there is never an `out`."""
        if isinstance(library, Symbolic):
            return self._expression(x, library)
        width = self._count * self._blocks
        columns = np.asarray(x).astype(np.intp)
        if self._blocks > 1:
            columns += np.arange(self._blocks) * self._count
        dtype = self.result_dtype(x, library)
        if self._sparse:
            return sparse.sparse_one_hot(columns, width, dtype)
        return one_hot(columns, width, dtype)

    def _expression(self, x: Any, library: Symbolic) -> Any:
        found = library.hot(x, self._count)
        rows = library.shape(x)[0]
        if self._blocks > 1:
            found = library.xp.reshape(found, [rows, self._blocks * self._count])
        else:
            found = found.any(1)
        return library.to(found, self.result_dtype(x, library))


def _refuse_symbolic(library: Library) -> None:
    if library is not NUMPY:
        raise SpaceError(
            f"a batch of {library.name} does not become a matrix of scipy.sparse; use a "
            "VectorSpace without sparse=True"
        )
