r"""The table of all conversions between spaces, and their implementations.

    from \ to         vector    array    index   composite   sequences   null
    vector            cast      images   -       split       -           -
    array             flatten   axes     -       -           -           -
    index             one-hot   -        cast    -           -           -
    composite         join      -        -       each        -           -
    vector sequence                                          cast
    index sequence                                           cast, one-hot
    null                                                                 None

An array space has a layout and sizes, such as Conv2DSpace and the spaces of other packages. A dash
means that there is no conversion. `find_conversion` looks up the conversion of a pair of spaces
once and caches it with its Converters. This module uses only the `family` and the fields of spaces,
not their classes, which import it.

A conversion is an object with two methods: `check_dtype` raises if the batch's dtype may not become
the other space's, before any array is converted, and `run` converts. ArrayConversion and its
subclasses convert a single array; TupleConversion, Concatenate and Split the arrays of a composite:
one by one, into the columns of a matrix, and out of them.
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
from .._utils.tree import (
    leaf_paths,
    leaves,
    map_indexed,
    map_leaves,
    path_text,
    unflatten,
    with_path_prefix,
)
from ..backends.indexing import one_hot
from ..backends.symbolic import NUMPY, ArrayNamespace, Library
from ..collator import Collator
from ..converter import Converter
from ..errors import DtypeError, LayoutkitError, SpaceError
from ..spec import ArraySpec, DType, check_cast, dtype_kind
from . import sparse

_SMALL = (
    2048  # bytes of a row; NumPy gathers a batch of shorter rows faster than a Collator sets up
)


class ArrayConversion:
    """A conversion of one array. `dtype` is the other space's; None keeps the input's."""

    def __init__(self, dtype: DType | None, casting: str) -> None:
        self.dtype = dtype
        self.casting = casting

    def check_dtype(self, x: Any, library: Library) -> None:
        """Raise DtypeError if the casting rule or the framework does not allow the conversion."""
        source = library.dtype(x)
        target = self.result_dtype(x, library)
        if source != target:
            check_cast(source, target, self.casting)
        if isinstance(library, ArrayNamespace):
            library.check(target)

    def result_dtype(self, x: Any, library: Library) -> DType:
        """Return the dtype of the result, which has native byte order."""
        dtype = library.dtype(x) if self.dtype is None else self.dtype
        return dtype if dtype.isnative else dtype.newbyteorder("=")

    def batch_size(self, x: Any) -> int:
        """Return the number of samples in the array."""
        return int(x.shape[0])

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Convert the array of a validated batch, into `out` (NumPy only) if it is given."""
        raise NotImplementedError


class NullConversion:
    """The conversion to NullSpace: always returns None."""

    def check_dtype(self, x: Any, library: Library) -> None:
        """Do nothing, since there is no dtype."""

    def run(self, x: Any, library: Library) -> None:
        """Return None."""


class Rearrange(ArrayConversion):
    """A conversion of layout and dtype, by a Converter or by operations of a symbolic framework."""

    def __init__(
        self, pattern: str, dtype: DType | None, casting: str, sizes: dict[str, Any]
    ) -> None:
        super().__init__(dtype, casting)
        self._convert = Converter(pattern, dtype=dtype, casting=casting, **sizes)
        self._pattern = self._convert.options.pattern
        self._sizes = sizes

    def batch_size(self, x: Any) -> int:
        return int(x.shape[self._pattern.source.groups.index("b")])

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Convert the array, in one pass."""
        if not isinstance(library, ArrayNamespace):
            return self._convert(x, out)
        y = self._rearrange(x, library)
        return library.contiguous(library.cast(y, self.result_dtype(x, library), self.casting))

    def of_rows(self, shape: tuple[int, ...], dtype: DType) -> Collator | None:
        """Return a Collator that gathers rows of an array and converts them in one pass.

        Return None if the conversion is a view, so that gathering suffices, or if rows are small,
        so that gathering first is faster.
        """
        if dtype.itemsize * prod(shape[1:]) < _SMALL:
            return None
        if (
            self._convert.plan(ArraySpec(str(self._pattern.left), (2, *shape[1:]), dtype)).kernel
            == "view"
        ):
            return None
        return Collator(self._pattern.text, dtype=self.dtype, casting=self.casting, **self._sizes)

    def _rearrange(self, x: Any, library: ArrayNamespace) -> Any:
        """Unfold, permute and fold axes. Sizes of unfolded axes may be unknown while tracing."""
        source = self._pattern.source
        target = self._pattern.target
        sizes = {**dict(zip(source.groups, library.shape(x), strict=True)), **self._sizes}
        unfolded = [sizes[letter] for letter in source.letters]
        perm = [source.letters.index(letter) for letter in target.letters]
        folded = [prod(sizes[letter] for letter in group) for group in target.groups]
        return library.rearrange(x, unfolded, perm, folded)


class ToDense(ArrayConversion):
    """A conversion from scipy.sparse to an array; to images only as an inverse conversion."""

    def __init__(self, conversion: Rearrange) -> None:
        super().__init__(conversion.dtype, conversion.casting)
        self._conversion = conversion

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        return self._conversion.run(sparse.to_dense(x), library, out)


class ToSparse(ArrayConversion):
    """A conversion to scipy.sparse, in csr format, from a sparse matrix or from an array."""

    def __init__(self, conversion: Rearrange) -> None:
        super().__init__(conversion.dtype, conversion.casting)
        self._conversion = conversion

    def check_dtype(self, x: Any, library: Library) -> None:
        """Raise an error also if scipy.sparse does not support the library or dtype."""
        _check_not_symbolic(library)
        super().check_dtype(x, library)
        sparse.check_sparse_dtype(self.result_dtype(x, library))

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        if sparse.is_sparse(x):
            return sparse.cast_csr(x, self.dtype, self.casting)
        return sparse.to_csr(self._conversion.run(x, library))


class OneHot(ArrayConversion):
    """One-hot encoding: one row for all labels of a sample (`blocks` is 1), or a block per label.

    No casting rule applies, since every numeric dtype has zero and one.
    """

    def __init__(self, count: int, blocks: int, dtype: DType | None, is_sparse: bool) -> None:
        super().__init__(np.dtype(np.float32) if dtype is None else dtype, "unsafe")
        self._count = count
        self._blocks = blocks
        self._sparse = is_sparse

    def check_dtype(self, x: Any, library: Library) -> None:
        """Raise DtypeError if the dtype of the vectors is not numeric."""
        target = self.result_dtype(x, library)
        if dtype_kind(target) not in "buifc":
            raise DtypeError(
                f"one-hot vectors are numbers, not of dtype {target}; give a dtype of numbers"
            )
        if self._sparse:
            _check_not_symbolic(library)
            sparse.check_sparse_dtype(target)
        if isinstance(library, ArrayNamespace):
            library.check(target)

    def run(self, x: Any, library: Library, out: Any = None) -> Any:
        """Return the vectors; `out` is never given."""
        if isinstance(library, ArrayNamespace):
            return self._symbolic_one_hot(x, library)
        width = self._count * self._blocks
        columns = np.asarray(x).astype(np.intp)
        if self._blocks > 1:
            columns += np.arange(self._blocks) * self._count
        dtype = self.result_dtype(x, library)
        if self._sparse:
            return sparse.one_hot_csr(columns, width, dtype)
        return one_hot(columns, width, dtype)

    def _symbolic_one_hot(self, x: Any, library: ArrayNamespace) -> Any:
        encoded = library.one_hot(x, self._count)
        rows = library.shape(x)[0]
        if self._blocks > 1:
            encoded = library.xp.reshape(encoded, [rows, self._blocks * self._count])
        else:
            encoded = encoded.any(1)
        return library.to(encoded, self.result_dtype(x, library))


def _check_not_symbolic(library: Library) -> None:
    if library is not NUMPY:
        raise SpaceError(
            f"a batch of {library.name} cannot become a matrix of scipy.sparse; use a "
            "VectorSpace without sparse=True"
        )


class TupleConversion:
    """A conversion of a tuple, component by component."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = tuple(parts)

    def check_dtype(self, batch: Any, library: Library) -> None:
        """Check all components before the first is converted."""
        map_indexed(lambda part, x: part.check_dtype(x, library), self._parts, batch)

    def run(self, batch: Any, library: Library) -> Any:
        """Convert all components."""
        return tuple(part.run(x, library) for part, x in zip(self._parts, batch, strict=True))


class VectorPart:
    """An array of a composite, the columns of the matrix that hold it, and its conversion."""

    def __init__(self, path: tuple[int, ...], columns: slice, conversion: ArrayConversion) -> None:
        self.path = path
        self.columns = columns
        self.conversion = conversion

    def array_in(self, batch: Any) -> Any:
        """Return the array in a batch of the composite."""
        for index in self.path:
            batch = batch[index]
        return batch

    def check_dtype_in(self, batch: Any, library: Library) -> None:
        """Check the array in a batch of the composite; errors contain its path."""
        try:
            self.conversion.check_dtype(self.array_in(batch), library)
        except LayoutkitError as error:
            raise with_path_prefix(error, *self.path) from None

    def check_dtype(self, matrix: Any, library: Library) -> None:
        """Check the conversion of the matrix's columns."""
        self.conversion.check_dtype(matrix, library)

    def run(self, matrix: Any, library: Library) -> Any:
        """Convert the columns of the matrix."""
        return self.conversion.run(matrix[:, self.columns], library)


class Concatenate:
    """A conversion of arrays to the columns of one matrix, each written in one pass."""

    def __init__(
        self, vector_parts: Sequence[VectorPart], width: int, dtype: DType | None, is_sparse: bool
    ) -> None:
        self._parts = vector_parts
        self._width = width
        self._dtype = dtype
        self._sparse = is_sparse

    def check_dtype(self, batch: Any, library: Library) -> None:
        """Check all arrays, and that they have one dtype if the vectors' dtype is None."""
        for part in self._parts:
            part.check_dtype_in(batch, library)
        dtypes = [
            part.conversion.result_dtype(part.array_in(batch), library) for part in self._parts
        ]
        for part, dtype in zip(self._parts, dtypes, strict=True):
            if dtype != dtypes[0]:
                raise DtypeError(
                    f"{path_text(self._parts[0].path)} has dtype {dtypes[0]}, but "
                    f"{path_text(part.path)} has {dtype}, and the VectorSpace does not have a "
                    'dtype; give it one: VectorSpace(dim, dtype="float32")'
                )

    def run(self, batch: Any, library: Library) -> Any:
        """Convert the arrays to one matrix."""
        parts = [(part, part.array_in(batch)) for part in self._parts]
        first, x = parts[0]
        if len(parts) == 1:
            return first.conversion.run(x, library)
        if isinstance(library, ArrayNamespace):
            return library.join([part.conversion.run(x, library) for part, x in parts])
        dtype = first.conversion.result_dtype(x, library)
        if self._sparse:
            return sparse.hstack([part.conversion.run(x, library) for part, x in parts], dtype)
        out = buffers.empty((first.conversion.batch_size(x), self._width), dtype)
        for part, x in parts:
            part.conversion.run(x, library, out[:, part.columns])
        return out


class Split:
    """A conversion of the columns of one matrix to arrays.

    nest : nested tuples of VectorPart and NullConversion
    """

    def __init__(self, nest: Any) -> None:
        self._leaf_spaces = nest
        self._parts = leaves(nest)

    def check_dtype(self, x: Any, library: Library) -> None:
        """Check the conversion of every component."""
        map_leaves(lambda part: part.check_dtype(x, library), self._leaf_spaces)

    def run(self, x: Any, library: Library) -> Any:
        """Convert the columns; components that need no conversion are views of the matrix."""
        if library is NUMPY and sparse.is_sparse(x):
            x = x.tocsc()  # a csc matrix slices columns without a scan of all entries
        return unflatten(self._leaf_spaces, [part.run(x, library) for part in self._parts])


@lru_cache(maxsize=MAX_KEPT)
def find_conversion(space: Any, other: Any, casting: str, inverse: bool) -> Any:
    """Return the conversion from `space` to `other`; raise SpaceError if there is none.

    `inverse` also allows conversions that only undo another one: sparse vectors to images.
    """
    make = _TABLE.get((space.family, other.family))
    if make is None:
        raise _conversion_error(
            space, other, _HINTS.get((space.family, other.family), _DEFAULT_HINT)
        )
    return make(space, other, casting, inverse)


def _vector_to_vector(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    _check_same_total(space, other)
    conversion = Rearrange("bf->bf", other.dtype, casting, {})
    if other.sparse:
        return ToSparse(conversion)
    return ToDense(conversion) if space.sparse else conversion


def _vector_to_array(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    _check_same_total(space, other)
    conversion = Rearrange(
        f"{other.flat_layout}->{other.layout}", other.dtype, casting, other.sizes
    )
    if not space.sparse:
        return conversion
    if not inverse:
        raise _conversion_error(space, other, "make it dense first, with VectorSpace(dim)")
    return ToDense(conversion)


def _array_to_vector(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    _check_same_total(space, other)
    conversion = Rearrange(f"{space.layout}->{space.flat_layout}", other.dtype, casting, {})
    return ToSparse(conversion) if other.sparse else conversion


def _array_to_array(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    if space.sizes != other.sizes:
        raise _conversion_error(
            space, other, f"the sizes are {space.sizes} and {other.sizes}; they have to be equal"
        )
    return Rearrange(f"{space.layout}->{other.layout}", other.dtype, casting, {})


def _labels_to_labels(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    if (space.max_labels, space.dim) != (other.max_labels, other.dim):
        raise _conversion_error(space, other, "labels keep their max_labels and dim; use those")
    return Rearrange("bf->bf", other.dtype, casting, {})


def _labels_to_vectors(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    count = space.max_labels
    dim = space.dim
    if other.dim not in (count, dim * count):
        dims = f"{count} (which labels are there)"
        dims += f" or {dim * count} (a block for each label)" if dim > 1 else ""
        raise _conversion_error(space, other, f"one-hot vectors of these labels have dim {dims}")
    blocks = 1 if other.dim == count else dim
    return OneHot(count, blocks, other.dtype, getattr(other, "sparse", False))


def _vectors_to_vectors(space: Any, other: Any, casting: str, inverse: bool) -> ArrayConversion:
    if space.dim != other.dim:
        raise _conversion_error(space, other, "the dims have to be equal")
    return Rearrange("bf->bf", other.dtype, casting, {})


def _composite_to_vector(space: Any, other: Any, casting: str, inverse: bool) -> Concatenate:
    nest = _leaf_spaces(space)
    columns = _columns_of_leaves(nest)
    _check_same_total(space, other)
    vector_parts = [
        VectorPart(
            path, part, find_conversion(leaf, _vector_space_for(other, leaf), casting, inverse)
        )
        for path, part, leaf in zip(leaf_paths(nest), columns, leaves(nest), strict=True)
        if part is not None
    ]
    return Concatenate(vector_parts, other.dim, other.dtype, other.sparse)


def _vector_to_composite(space: Any, other: Any, casting: str, inverse: bool) -> Split:
    nest = _leaf_spaces(other)
    columns = _columns_of_leaves(nest)
    _check_same_total(space, other)

    def vector_part(
        leaf: Any, path: tuple[int, ...], part: slice | None
    ) -> VectorPart | NullConversion:
        if part is None:
            return NullConversion()
        return VectorPart(
            path, part, find_conversion(_vector_space_for(space, leaf), leaf, casting, inverse)
        )

    return Split(unflatten(nest, map_leaves(vector_part, nest, leaf_paths(nest), columns)))


def _composite_to_composite(space: Any, other: Any, casting: str, inverse: bool) -> TupleConversion:
    sources = space.components
    targets = other.components
    if len(sources) != len(targets):
        counts = f"{len(sources)} components are not {len(targets)}"
        raise _conversion_error(space, other, f"{counts}; composites of equal nesting convert")
    return TupleConversion(
        map_indexed(lambda a, b: _component_conversion(a, b, casting, inverse), sources, targets)
    )


def _component_conversion(space: Any, other: Any, casting: str, inverse: bool) -> Any:
    if (space.family == "composite") != (other.family == "composite"):
        raise _conversion_error(
            space, other, "inside a composite, only one of equal nesting converts"
        )
    return find_conversion(space, other, casting, inverse)


def _null_to_null(space: Any, other: Any, casting: str, inverse: bool) -> NullConversion:
    return NullConversion()


_TABLE: dict[tuple[str, str], Callable[[Any, Any, str, bool], Any]] = {
    ("vector", "vector"): _vector_to_vector,
    ("vector", "array"): _vector_to_array,
    ("vector", "composite"): _vector_to_composite,
    ("array", "vector"): _array_to_vector,
    ("array", "array"): _array_to_array,
    ("index", "index"): _labels_to_labels,
    ("index", "vector"): _labels_to_vectors,
    ("vector sequence", "vector sequence"): _vectors_to_vectors,
    ("index sequence", "index sequence"): _labels_to_labels,
    ("index sequence", "vector sequence"): _labels_to_vectors,
    ("composite", "vector"): _composite_to_vector,
    ("composite", "composite"): _composite_to_composite,
    ("null", "null"): _null_to_null,
}

_DEFAULT_HINT = "use a space of the same kind"
_LABELS_HINT = "vectors do not say which labels they came from; keep the labels themselves"
_NESTING_HINT = "composites become vectors, or composites of equal nesting"
_HINTS = {
    ("vector", "index"): _LABELS_HINT,
    ("array", "index"): _LABELS_HINT,
    ("vector sequence", "index sequence"): _LABELS_HINT,
    ("index", "array"): "go through a VectorSpace of one-hot vectors",
    ("composite", "array"): f"{_NESTING_HINT}; go through a VectorSpace",
    ("composite", "index"): _NESTING_HINT,
    ("array", "composite"): "go through a VectorSpace, which is split into components",
    ("index", "composite"): "a composite holds one-hot vectors only beside other components",
}


def _leaf_spaces(space: Any) -> Any:
    """Return the single spaces of a composite, in nested tuples."""
    return tuple(map(_leaf_spaces, space.components)) if space.family == "composite" else space


def _columns_of_leaves(nest: Any) -> list[slice | None]:
    """Return the columns of each space in a vector, None for NullSpace.

    Raises SpaceError for a space that cannot be part of a vector.
    """
    widths = map_leaves(_vector_width, nest)
    ends = list(accumulate(widths))
    return [
        slice(end - width, end) if width else None for end, width in zip(ends, widths, strict=True)
    ]


def _vector_width(space: Any) -> int:
    if space.family not in ("vector", "array", "null"):
        raise SpaceError(
            f"{space!r} cannot be part of a vector; convert it to vectors first, with a composite "
            "of equal nesting that has a VectorSpace in this position"
        )
    return int(space.get_total_dimension())


def _vector_space_for(vector: Any, leaf: Any) -> Any:
    return type(vector)(leaf.get_total_dimension(), vector.sparse, vector.dtype)


def _check_same_total(space: Any, other: Any) -> None:
    source_size = space.get_total_dimension()
    target_size = other.get_total_dimension()
    if source_size != target_size:
        counts = f"a sample has {source_size} numbers in the first and {target_size} in the second"
        raise _conversion_error(space, other, f"{counts}; they have to be equal")


def _conversion_error(space: Any, other: Any, reason: str) -> SpaceError:
    return SpaceError(f"{space!r} does not convert into {other!r}: {reason}")
