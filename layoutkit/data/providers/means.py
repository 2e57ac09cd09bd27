"""The mean picture of a source: read from its file, or computed once and written there."""

from __future__ import annotations

import logging
from os import PathLike, fspath
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ...pictures import Augmenter
from ..batches.sampled import sampled_batcher
from ..indexes import Index
from ..reading.meanfiles import read_mean, write_mean
from ..reading.urls import exists

__all__ = ["mean_of"]

_log = logging.getLogger("layoutkit.data")
_BATCH = 64


def mean_of(path: str | PathLike[str], index: Index, plain: Augmenter, workers: int) -> Array:
    """The mean picture in a file; where there is none, that of all records, which is written there.

    plain : Augmenter    makes uint8 (channels, height, width) of a record's bytes

    Raises
    ------
    DataError
        The file is none of a mean picture, or no record can be decoded.
    OSError
        It cannot be written.
    """
    if exists(fspath(path)):
        return read_mean(path)
    _log.info("%s is not there; it is computed from %d pictures", fspath(path), len(index))
    mean = _computed(index, plain, workers)
    write_mean(path, mean)
    return mean


def _computed(index: Index, plain: Augmenter, workers: int) -> Array:
    """The mean of what can be decoded, as float32."""

    def decode(data: Any, out: Array) -> Array:
        return plain(data, out)

    total, count = np.zeros(plain.shape, np.uint64), 0
    how: Any = {"input_dims": plain.shape, "dtype": np.uint8, "layout": "bchw"}
    with sampled_batcher(
        index, batch_size=_BATCH, processor=decode, num_workers=workers, progress=True, **how
    ) as batches:
        for batch in batches:
            pictures: Any = batch.input
            total += pictures.input.sum(axis=0, dtype=np.uint64)
            count += batch.count
    if not count:
        raise DataError("a mean picture needs a picture, and there is none")
    found: Array = (total / count).astype(np.float32)
    return found
