"""Tables and columns of pandas, polars and those like them, as arrays of rows.

Knows them by what they have, and that labels may be words; `arrays/` knows what else columns hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.adapters import as_array
from ..errors import DataError, LayoutkitError
from ..memory import Array

__all__ = ["is_frame", "rows_of"]


def is_frame(value: Any) -> bool:
    """Whether a value is a table or column, whose own [0] is a column, a table or the label 0."""
    named = any(hasattr(value, name) for name in ("iloc", "get_column", "to_frame"))
    return named and hasattr(value, "to_numpy")


def rows_of(frame: Any, name: str) -> Array:
    """Its rows, by place; DataError for what is neither numbers nor a column of strings.

    `name` is what messages call it.
    """
    if len(frame.shape) == 1:
        words = np.asarray(frame.to_numpy())
        if words.dtype.kind in "OUT" and all(isinstance(word, str) for word in words):
            return words
    try:
        return as_array(frame, name)
    except LayoutkitError as error:
        raise DataError(str(error)) from error
