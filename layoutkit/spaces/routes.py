"""Which space becomes which, and by what: the table of all conversions between spaces.

    from \\ to         vector    conv2d   index   composite   sequences   null
    vector            cast      images   -       split       -           -
    conv2d            flatten   axes     -       -           -           -
    index             one-hot   -        cast    -           -           -
    composite         join      -        -       each        -           -
    vector sequence                                          cast
    index sequence                                           cast, one-hot
    null                                                                 None

A dash is never. A route is found once for each pair of spaces and kept: it holds the Converters.
Nothing here knows the classes, only their `family` and fields, so that they can use it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ..caching import MAX_KEPT
from ..errors import SpaceError
from ..nested import each, each_leaf, leaves, paths, rebuilt
from .moves import Nothing, OneHot, Rearrange, Single, ToDense, ToSparse
from .trees import Concatenate, Each, Piece, Split

__all__ = ["route"]


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
