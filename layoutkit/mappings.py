"""`columns`: some columns of a mapping converted, the others left alone.

That is what Ray Data, Hugging Face datasets, grain, WebDataset and others hand to a user's function
and take back. Knows mappings and Converters; the libraries are not known here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._utils.validation import kind_text
from .converter import Converter
from .errors import ArgumentError, ShapeError

__all__ = ["Columns", "columns"]


class Columns:
    """Converts columns of mappings; `columns` makes one, and a class is what actors of Ray want.

    Two of equal Converters are equal, and pickle to the same few bytes whatever was converted
    before: caches that go by a hash of the function find what they have made.

    >>> import numpy as np
    >>> to_planes = Columns(image=Converter("bhwc->bchw"))
    >>> found = to_planes({"image": np.zeros((2, 4, 5, 3), np.uint8), "label": [1, 0]})
    >>> found["image"].shape, found["label"]
    ((2, 3, 4, 5), [1, 0])
    """

    def __init__(self, **ways: Converter) -> None:
        if not ways:
            raise ArgumentError("columns() has no column; give one, as image=Converter(...)")
        for name, way in ways.items():
            if not isinstance(way, Converter):
                raise ArgumentError(
                    f'column {name} is {way!r}; give a Converter, as Converter("bhwc->bchw")'
                )
        self._ways = dict(sorted(ways.items()))  # in whatever order they were given, they are equal

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The same mapping with these columns converted; `batch` stays as it is.

        Arrays of any library, and columns of arrays of one shape. ArgumentError where one of the
        columns is not there.
        """
        if not isinstance(batch, Mapping):
            raise ArgumentError(f"a batch is a mapping of columns, not a {kind_text(batch)}")
        lacking = self._ways.keys() - batch.keys()
        if lacking:
            raise ArgumentError(
                f"there is no column {', '.join(sorted(lacking))}; the batch has "
                f"{', '.join(map(str, batch))}"
            )
        return {**batch, **{name: way(_whole(batch[name])) for name, way in self._ways.items()}}

    def __repr__(self) -> str:
        return f"columns({', '.join(f'{name}={way!r}' for name, way in self._ways.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and self._ways == other._ways

    def __hash__(self) -> int:
        # The same in every process, which the hash of text is not.
        asked = [(name, way.task) for name, way in self._ways.items()]
        words = [f"{name}: {t.pattern.left} {t.pattern.right} {t.dtype}" for name, t in asked]
        return zlib.crc32("; ".join(words).encode())

    def __reduce__(self) -> Any:
        # As it was asked: what Converters keep from call to call is no part of it.
        asked = [(name, way.pattern, way.keywords) for name, way in self._ways.items()]
        return _rebuilt, (asked,)


def columns(**ways: Converter) -> Columns:
    """What converts columns of a mapping and leaves the others alone: a function for pipelines.

    >>> columns(image=Converter("hwc->chw", dtype="float32"))
    columns(image=Converter("hwc->chw", dtype='float32'))

    Parameters
    ----------
    **ways : Converter
        One for each column, by its name.
    """
    return Columns(**ways)


def _rebuilt(asked: list[tuple[str, str, dict[str, Any]]]) -> Columns:
    return Columns(**{name: Converter(pattern, **words) for name, pattern, words in asked})


def _whole(column: Any) -> Any:
    """A column as one array: those of objects hold an array in each row, lists may hold numbers."""
    if _is_nested(column):
        try:
            return np.array(column)
        except ValueError:
            raise ShapeError(
                "the column is lists of different lengths, which are no array; bring its rows to "
                "one shape first"
            ) from None
    if isinstance(column, np.ndarray) and column.dtype.kind == "O":
        from .backends.containers import column as stacked  # late: it knows all libraries

        return stacked(column, "the column")
    return column


def _is_nested(column: Any) -> bool:
    """Whether it is lists of numbers, as datasets gives where no format is asked for."""
    while isinstance(column, list) and column:
        column = column[0]
        if isinstance(column, int | float):
            return True
    return False
