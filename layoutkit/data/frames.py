"""Tables and columns of pandas, polars and those like them, as arrays.

Knows them by what they have; none of these libraries is imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import kind_text
from ..errors import DataError
from ..memory import Array

__all__ = ["is_frame", "rows_of"]


def is_frame(value: Any) -> bool:
    """Whether a value is a table or column, whose own [0] is a column, a table or the label 0."""
    named = any(hasattr(value, name) for name in ("iloc", "get_column", "to_frame"))
    return named and hasattr(value, "to_numpy")


def rows_of(frame: Any, name: str) -> Array:
    """Its rows; DataError for a table of anything but numbers. `name` is what messages call it."""
    array = np.asarray(frame.to_numpy())
    if array.ndim > 1 and array.dtype == object:
        raise DataError(
            f"{name} is a {kind_text(frame)} whose columns are not all numbers, so that a row is "
            'no array; give {"x": frame[columns], "y": frame[column]}'
        )
    return array
