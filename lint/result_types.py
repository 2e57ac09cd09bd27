"""Assertions of the types of results, which `lint/programs.py` checks; nothing runs this."""

from typing import Any, assert_type

import jax
import numpy as np
import torch

from layoutkit import Converter, convert
from layoutkit.data import sampled_batcher

Bytes = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
AnyArray = np.ndarray[tuple[Any, ...], np.dtype[Any]]


def converted(array: Bytes, tensor: torch.Tensor, traced: jax.Array, rows: list[int]) -> None:
    """Convert arrays of each library; the dtype of the result is not that of x."""
    assert_type(convert(array, "hw->wh", dtype="float32"), AnyArray)
    assert_type(convert(tensor, "hw->wh"), torch.Tensor)
    assert_type(convert(traced, "hw->wh"), jax.Array)
    assert_type(convert(rows, "b->b"), Any)
    assert_type(convert(array, "hw->wh", device="cuda"), Any)
    assert_type(convert(array, "hw->wh", out=tensor), torch.Tensor)


def called(transpose: Converter, array: Bytes, tensor: torch.Tensor, traced: jax.Array) -> None:
    """Call a Converter."""
    assert_type(transpose(array), AnyArray)
    assert_type(transpose(tensor), torch.Tensor)
    assert_type(transpose(traced), jax.Array)
    assert_type(transpose(array, tensor), torch.Tensor)


def looped(paths: list[str], labels: list[int]) -> None:
    """Loop over batches without a test for None."""
    with sampled_batcher({"x": paths, "y": labels}, batch_size=4, size=(8, 8)) as batches:
        for batch in batches:
            batch.input.forward_get("bchw", "float32")
            batch.target.one_hot()
        for x, y in batches:
            x.forward_get("bchw")
            y.one_hot()
