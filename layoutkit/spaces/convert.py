r"""Which space becomes which, and by what: the table of all conversions between spaces.

    from \ to         vector    conv2d   index   composite   sequences   null
    vector            cast      images   -       split       -           -
    conv2d            flatten   axes     -       -           -           -
    index             one-hot   -        cast    -           -           -
    composite         join      -        -       each        -           -
    vector sequence                                          cast
    index sequence                                           cast, one-hot
    null                                                                 None

A dash is never. A route is found once for each pair of spaces and kept: it holds the Converters.
Nothing here knows the classes, only their `family` and fields, so that they can use it.

What happens to a single array on its way from one space to another.

Each class is one way: `judge` says whether the dtype may become the other space's, before the
first byte of the batch moves, and `run` moves it. Which one is used is for routes.py to say.

What happens to the arrays of a composite: each by itself, side by side, or cut apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from .. import buffers
from .._utils.cache import MAX_KEPT
from .._utils.tree import each, each_leaf, leaves, path_text, paths, placed, rebuilt
from ..backends.indexing import one_hot
from ..backends.symbolic import NUMPY, Library, Symbolic
from ..collator import Collator
from ..converter import Converter
from ..errors import DtypeError, LayoutkitError, SpaceError
from ..layout.pattern import parse_pattern
from ..spec import ArraySpec, DType, check_cast, kind_of
from . import sparse

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


@lru_cache(maxsize=MAX_KEPT)
def route(space: Any, other: Any, casting: str, undoing: bool) -> Any:
    """The conversion of batches of `space` to batches of `other`; SpaceError where there is none.

    `undoing` also allows what only takes back a conversion: sparse vectors become images.
    """
    find = _TABLE.get((space.family, other.family))
    if find is None:
        raise _never(space, other, _WHY.get((space.family, other.family), _WHY_NOT))
    return find(space, other, casting, undoing)


def _vector_to_vector(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    _same_total(space, other)
    move = Rearrange("bf->bf", other.dtype, casting, {})
    if other.sparse:
        return ToSparse(move)
    return ToDense(move) if space.sparse else move


def _vector_to_conv2d(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    _same_total(space, other)
    move = Rearrange(f"b(hwc)->{other.layout}", other.dtype, casting, other.sizes)
    if not space.sparse:
        return move
    if not undoing:
        raise _never(space, other, "make it dense first, with VectorSpace(dim)")
    return ToDense(move)


def _conv2d_to_vector(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    _same_total(space, other)
    move = Rearrange(f"{space.layout}->b(hwc)", other.dtype, casting, {})
    return ToSparse(move) if other.sparse else move


def _conv2d_to_conv2d(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    if space.sizes != other.sizes:
        raise _never(space, other, "images keep their rows, columns and channels; use those")
    return Rearrange(f"{space.layout}->{other.layout}", other.dtype, casting, {})


def _labels_to_labels(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    if (space.max_labels, space.dim) != (other.max_labels, other.dim):
        raise _never(space, other, "labels keep their max_labels and dim; use those")
    return Rearrange("bf->bf", other.dtype, casting, {})


def _labels_to_vectors(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    count, dim = space.max_labels, space.dim
    if other.dim not in (count, dim * count):
        wide = f"{count} (which labels are there)"
        wide += f" or {dim * count} (a block for each label)" if dim > 1 else ""
        raise _never(space, other, f"one-hot vectors of these labels have dim {wide}")
    blocks = 1 if other.dim == count else dim
    return OneHot(count, blocks, other.dtype, getattr(other, "sparse", False))


def _vectors_to_vectors(space: Any, other: Any, casting: str, undoing: bool) -> Single:
    if space.dim != other.dim:
        raise _never(space, other, "the dims have to be equal")
    return Rearrange("bf->bf", other.dtype, casting, {})


def _composite_to_vector(space: Any, other: Any, casting: str, undoing: bool) -> Concatenate:
    nest = _nest(space)
    columns = _columns(nest)
    _same_total(space, other)
    pieces = [
        Piece(path, part, route(leaf, _columns_of(other, leaf), casting, undoing))
        for path, part, leaf in zip(paths(nest), columns, leaves(nest), strict=True)
        if part is not None
    ]
    return Concatenate(pieces, other.dim, other.dtype, other.sparse)


def _vector_to_composite(space: Any, other: Any, casting: str, undoing: bool) -> Split:
    nest = _nest(other)
    columns = _columns(nest)
    _same_total(space, other)

    def piece(leaf: Any, path: tuple[int, ...], part: slice | None) -> Piece | Nothing:
        if part is None:
            return Nothing()
        return Piece(path, part, route(_columns_of(space, leaf), leaf, casting, undoing))

    return Split(rebuilt(nest, each_leaf(piece, nest, paths(nest), columns)))


def _composite_to_composite(space: Any, other: Any, casting: str, undoing: bool) -> Each:
    ours, theirs = space.components, other.components
    if len(ours) != len(theirs):
        counts = f"{len(ours)} components are not {len(theirs)}"
        raise _never(space, other, f"{counts}; composites of equal nesting convert")
    return Each(each(lambda a, b: _component(a, b, casting, undoing), ours, theirs))


def _component(space: Any, other: Any, casting: str, undoing: bool) -> Any:
    if (space.family == "composite") != (other.family == "composite"):
        raise _never(space, other, "inside a composite, only one of equal nesting converts")
    return route(space, other, casting, undoing)


def _null_to_null(space: Any, other: Any, casting: str, undoing: bool) -> Nothing:
    return Nothing()


_TABLE: dict[tuple[str, str], Callable[[Any, Any, str, bool], Any]] = {
    ("vector", "vector"): _vector_to_vector,
    ("vector", "conv2d"): _vector_to_conv2d,
    ("vector", "composite"): _vector_to_composite,
    ("conv2d", "vector"): _conv2d_to_vector,
    ("conv2d", "conv2d"): _conv2d_to_conv2d,
    ("index", "index"): _labels_to_labels,
    ("index", "vector"): _labels_to_vectors,
    ("vector sequence", "vector sequence"): _vectors_to_vectors,
    ("index sequence", "index sequence"): _labels_to_labels,
    ("index sequence", "vector sequence"): _labels_to_vectors,
    ("composite", "vector"): _composite_to_vector,
    ("composite", "composite"): _composite_to_composite,
    ("null", "null"): _null_to_null,
}

_WHY_NOT = "use a space of the same kind"
_NO_LABELS = "vectors do not say which labels they came from; keep the labels themselves"
_NESTING = "composites become vectors, or composites of equal nesting"
_WHY = {
    ("vector", "index"): _NO_LABELS,
    ("conv2d", "index"): _NO_LABELS,
    ("vector sequence", "index sequence"): _NO_LABELS,
    ("index", "conv2d"): "go through a VectorSpace of one-hot vectors",
    ("composite", "conv2d"): f"{_NESTING}; go through a VectorSpace",
    ("composite", "index"): _NESTING,
    ("conv2d", "composite"): "go through a VectorSpace, which is split into components",
    ("index", "composite"): "a composite holds one-hot vectors only beside other components",
}


def _nest(space: Any) -> Any:
    """The single spaces of a composite, in nested tuples."""
    return tuple(map(_nest, space.components)) if space.family == "composite" else space


def _columns(nest: Any) -> list[slice | None]:
    """The columns that each space has in a vector, None for NullSpace.

    Raises SpaceError for what is no part of a vector.
    """
    widths = each_leaf(_width, nest)
    ends = list(accumulate(widths))
    return [
        slice(end - width, end) if width else None for end, width in zip(ends, widths, strict=True)
    ]


def _width(space: Any) -> int:
    if space.family not in ("vector", "conv2d", "null"):
        raise SpaceError(
            f"{space!r} is no part of a vector; make vectors of it first, with a composite of "
            "equal nesting that has a VectorSpace in this place"
        )
    return int(space.get_total_dimension())


def _columns_of(vector: Any, leaf: Any) -> Any:
    """The space of the columns of a vector that hold a leaf."""
    return type(vector)(leaf.get_total_dimension(), vector.sparse, vector.dtype)


def _same_total(space: Any, other: Any) -> None:
    ours, theirs = space.get_total_dimension(), other.get_total_dimension()
    if ours != theirs:
        counts = f"a sample has {ours} numbers in the one and {theirs} in the other"
        raise _never(space, other, f"{counts}; they have to be equal")


def _never(space: Any, other: Any, why: str) -> SpaceError:
    return SpaceError(f"{space!r} does not convert into {other!r}: {why}")
