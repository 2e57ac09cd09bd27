"""What a batch has to be, checked before anything is moved: kind, shape, dtype, batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.tree import path_text
from .._utils.validation import as_int, kind_text
from ..backends.registry import library_of
from ..backends.symbolic import Library
from ..errors import DtypeError, ShapeError, SpaceError
from ..spec import DType, can_cast, check_movable, kind_of


class Axis(NamedTuple):
    """What an axis of a batch means, and its size; None where any will do."""

    meaning: str
    size: int | None

    def __str__(self) -> str:
        return self.meaning if self.size is None else f"{self.meaning}={self.size}"


class Leaf(NamedTuple):
    """An array of a batch: where it is, whose it is, and how many samples it holds."""

    path: tuple[int, ...]
    library: Library
    size: Any
    is_sequence: bool = False


def checked_size(what: str, size: Any, least: int = 1) -> int:
    """The size as a plain int; ShapeError unless it is an int of at least `least`.

    >>> checked_size("dim", 3)
    3
    >>> checked_size("dim", True)
    Traceback (most recent call last):
    layoutkit.errors.ShapeError: dim=True; it is an int >= 1
    """
    value = as_int(size)
    if value is None or value < least:
        raise ShapeError(f"{what}={size!r}; it is an int >= {least}")
    return value


def check_library(space: Any, batch: Any) -> Library:
    """The library of the array; SpaceError for what is no array that a dense space holds."""
    found = library_of(batch)
    if found is None or isinstance(batch, np.ma.MaskedArray):
        raise SpaceError(f"{space!r} takes one array, not {describe(batch)}; {_fix(batch)}")
    if found.is_sparse(batch):
        raise SpaceError(
            f"{space!r} is dense, but the batch is {describe(batch)}; pass a dense array, "
            "or use VectorSpace(dim, sparse=True) with a matrix of scipy.sparse"
        )
    return found


def wrong_shape(space: Any, axes: Sequence[Axis], shape: tuple[Any, ...], hint: str) -> ShapeError:
    """The error for a shape that has other sizes, or another number of axes."""
    wrong = [
        f"axis {at} ({axis.meaning}) is {found}, not {axis.size}"
        for at, (axis, found) in enumerate(zip(axes, shape, strict=False))
        if axis.size is not None and axis.size != found
    ]
    if len(shape) != len(axes):
        wrong = [f"its rank is {len(shape)}, not {len(axes)}"]
    fix = hint or "give a batch of that shape, or say the sizes in the space"
    return ShapeError(
        f"{space!r} takes ({', '.join(map(str, axes))}), but the batch has shape "
        f"{tuple(shape)}: {', '.join(wrong)}; {fix}"
    )


def check_dtype(space: Any, found: DType, kinds: str = "") -> None:
    """DtypeError unless elements can be moved and, by same_kind, cast to the space's dtype."""
    check_movable(found)
    if kinds and kind_of(found) not in kinds:
        raise DtypeError(
            f"{space!r} holds labels, which are integers, but the batch has dtype {found}; "
            'cast it first, such as batch.astype("int64")'
        )
    if space.dtype is not None and not can_cast(found, space.dtype, "same_kind"):
        raise DtypeError(
            f"{space!r} takes what same_kind casts to {space.dtype}, but the batch has dtype "
            f'{found}; cast it first, or use space.with_dtype("{found}")'
        )


def common_library(leaves: Sequence[Leaf]) -> Library | None:
    """The library of all arrays, None where there are none; SpaceError where they differ."""
    for leaf in leaves[1:]:
        if leaf.library.name != leaves[0].library.name:
            raise SpaceError(
                f"{path_text(leaves[0].path)} is an array of {leaves[0].library.name}, but "
                f"{path_text(leaf.path)} of {leaf.library.name}; give all of one library"
            )
    return leaves[0].library if leaves else None


def common_size(leaves: Sequence[Leaf]) -> Any:
    """The batch size of all arrays, sequences aside; ShapeError where they differ."""
    counted = [leaf for leaf in leaves if not leaf.is_sequence]
    for leaf in counted[1:]:
        # What a framework has traced is not always a number, and is left to it.
        numbers = isinstance(leaf.size, int) and isinstance(counted[0].size, int)
        if numbers and leaf.size != counted[0].size:
            raise ShapeError(
                f"the batch sizes differ: {path_text(counted[0].path)} has {counted[0].size} "
                f"samples, {path_text(leaf.path)} has {leaf.size}; give as many in each"
            )
    if counted:
        return counted[0].size
    return 1 if leaves else 0


def describe(batch: Any) -> str:
    """What something is, for messages: None, a tuple, a list, a torch.Tensor."""
    if batch is None:
        return "None"
    kind = kind_text(batch)
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _fix(batch: Any) -> str:
    if isinstance(batch, tuple):
        return "a tuple is a batch of a CompositeSpace"
    if isinstance(batch, np.ma.MaskedArray):
        return "its mask would be lost: pass batch.filled(value)"
    if isinstance(batch, list | int | float | complex):
        return "pass numpy.asarray(batch)"
    return "pass a NumPy array, or an array of jax or torch"
