"""Checks of a batch before it is converted: type, shape, dtype and batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.tree import path_text
from .._utils.validation import type_name
from ..backends.registry import library_of
from ..backends.symbolic import Library
from ..errors import DtypeError, ShapeError, SpaceError
from ..spec import DType, can_cast, check_supported_dtype, dtype_kind


class Axis(NamedTuple):
    """The meaning of an axis of a batch, and its size (None: any)."""

    meaning: str
    size: int | None

    def __str__(self) -> str:
        return self.meaning if self.size is None else f"{self.meaning}={self.size}"


class Leaf(NamedTuple):
    """An array of a batch: its path in the nested tuples, its library and its number of samples."""

    path: tuple[int, ...]
    library: Library
    size: Any
    is_sequence: bool = False


def check_library(space: Any, batch: Any) -> Library:
    """Return the library of the array; raise SpaceError if a dense space cannot hold `batch`."""
    library = library_of(batch)
    if library is None or isinstance(batch, np.ma.MaskedArray):
        raise SpaceError(
            f"{space!r} needs one array, not {describe(batch)}; {_hint_for_batch(batch)}"
        )
    if library.is_sparse(batch):
        raise SpaceError(
            f"{space!r} is dense, but the batch is {describe(batch)}; pass a dense array, "
            "or use VectorSpace(dim, sparse=True) with a matrix of scipy.sparse"
        )
    return library


def shape_error(space: Any, axes: Sequence[Axis], shape: tuple[Any, ...], hint: str) -> ShapeError:
    """Return the error for a shape with wrong sizes or a wrong number of axes."""
    mismatches = [
        f"axis {index} ({axis.meaning}) is {size}, not {axis.size}"
        for index, (axis, size) in enumerate(zip(axes, shape, strict=False))
        if axis.size is not None and axis.size != size
    ]
    if len(shape) != len(axes):
        mismatches = [f"its rank is {len(shape)}, not {len(axes)}"]
    fix = hint or "pass a batch of that shape, or create the space with other sizes"
    return ShapeError(
        f"{space!r} accepts ({', '.join(map(str, axes))}), but the batch has shape "
        f"{tuple(shape)}: {', '.join(mismatches)}; {fix}"
    )


def check_dtype(space: Any, dtype: DType, kinds: str = "") -> None:
    """Raise DtypeError unless elements of the dtype can be moved and cast (same_kind)."""
    check_supported_dtype(dtype)
    if kinds and dtype_kind(dtype) not in kinds:
        raise DtypeError(
            f"{space!r} holds labels, which are integers, but the batch has dtype {dtype}; "
            'cast it first, such as batch.astype("int64")'
        )
    if space.dtype is not None and not can_cast(dtype, space.dtype, "same_kind"):
        raise DtypeError(
            f"{space!r} accepts dtypes that same_kind casts to {space.dtype}, but the batch has "
            f'dtype {dtype}; cast it first, or use space.with_dtype("{dtype}")'
        )


def common_library(leaves: Sequence[Leaf]) -> Library | None:
    """Return the library of all arrays (None without arrays); raise SpaceError if they differ."""
    for leaf in leaves[1:]:
        if leaf.library.name != leaves[0].library.name:
            raise SpaceError(
                f"{path_text(leaves[0].path)} is an array of {leaves[0].library.name}, but "
                f"{path_text(leaf.path)} of {leaf.library.name}; all must be of one library"
            )
    return leaves[0].library if leaves else None


def common_size(leaves: Sequence[Leaf]) -> Any:
    """Return the batch size of all arrays but sequences; raise ShapeError if they differ."""
    counted = [leaf for leaf in leaves if not leaf.is_sequence]
    for leaf in counted[1:]:
        # A traced size may be symbolic; the framework checks it.
        numbers = isinstance(leaf.size, int) and isinstance(counted[0].size, int)
        if numbers and leaf.size != counted[0].size:
            raise ShapeError(
                f"the batch sizes differ: {path_text(counted[0].path)} has {counted[0].size} "
                f"samples, {path_text(leaf.path)} has {leaf.size}; pass equally many in each"
            )
    if counted:
        return counted[0].size
    return 1 if leaves else 0


def describe(batch: Any) -> str:
    """Describe the type of an object for messages: None, a tuple, a list, a torch.Tensor."""
    if batch is None:
        return "None"
    kind = type_name(batch)
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _hint_for_batch(batch: Any) -> str:
    if isinstance(batch, tuple):
        return "a tuple is a batch of a CompositeSpace"
    if isinstance(batch, np.ma.MaskedArray):
        return "its mask would be lost: pass batch.filled(value)"
    if isinstance(batch, list | int | float | complex):
        return "pass numpy.asarray(batch)"
    return "pass a NumPy array, or an array of jax or torch"
