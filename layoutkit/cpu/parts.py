"""Samples as memory: arrays of their own, or rows of one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..memory import HAS_KNOWN_HEADER, Array, address, addresses
from ..planning.windows import check_alike
from ..spec import DType

__all__ = ["Places", "Sources", "of_rows", "of_samples", "spelled_out"]


class Places(NamedTuple):
    """Addresses of samples; sizes and strides, a row for each sample or one for all."""

    starts: Array
    sizes: Array
    strides: Array


class Sources(NamedTuple):
    """Samples as memory.

    shape     of the first sample, or of all
    arrays    the samples; none where they lie in one array
    places    where they are, None where machine code will ask the arrays
    """

    dtype: DType
    shape: tuple[int, ...]
    count: int  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    arrays: Sequence[Array]
    places: Places | None


def of_samples(arrays: Sequence[Array]) -> Sources:
    """Samples that are arrays of their own."""
    first = arrays[0]
    found = Sources(first.dtype, first.shape, len(arrays), arrays, None)
    return found if HAS_KNOWN_HEADER else spelled_out(found)


def spelled_out(sources: Sources) -> Sources:
    """The same samples with their places; raises if one is of another rank or dtype."""
    if sources.places is not None:
        return sources
    arrays, rank = sources.arrays, len(sources.shape)
    check_alike([(array.shape, array.dtype) for array in arrays])
    found = ([array.shape for array in arrays], [array.strides for array in arrays])
    rows = (np.array(each, np.int64).reshape(len(arrays), rank) for each in found)
    return sources._replace(places=Places(np.array(addresses(arrays), np.int64), *rows))


def of_rows(array: Array, axis: int, rows: Array) -> Sources:
    """Samples at proven positions of one array."""
    array = np.moveaxis(array, axis, 0) if axis else array
    starts = address(array) + rows * array.strides[0]
    forms = (np.array([form[1:]], np.int64) for form in (array.shape, array.strides))
    return Sources(array.dtype, array.shape[1:], len(rows), (), Places(starts, *forms))
