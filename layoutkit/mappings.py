"""`columns`: convert or collate columns of a mapping, for the `map` functions of data pipelines.

Ray Data, Hugging Face datasets, grain, WebDataset and others pass such mappings to a function of
the user.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Never

import numpy as np

from ._utils.validation import describe_type, show
from .collator import Collator
from .converter import Converter
from .errors import ArgumentError, ShapeError


class Columns:
    """A callable that converts or collates columns of mappings; `columns` makes one.

    It is a class because actors of Ray need one. Objects with equal Converters are equal, and
    pickle to the same few bytes whatever was converted before, so that caches that are keyed by a
    hash of the function find their entries.

    >>> import numpy as np
    >>> to_planes = Columns(image=Converter("bhwc->bchw"))
    >>> batch = to_planes({"image": np.zeros((2, 4, 5, 3), np.uint8), "label": [1, 0]})
    >>> batch["image"].shape, batch["label"]
    ((2, 3, 4, 5), [1, 0])
    """

    def __init__(self, **ways: Converter | Collator) -> None:
        if not ways:
            raise ArgumentError("columns() has no column; give one, as image=Converter(...)")
        for name, way in ways.items():
            if not isinstance(way, Converter | Collator):
                raise ArgumentError(
                    f'column {name} is {show(way)}; give a Converter, as Converter("bhwc->bchw"), '
                    "or a Collator"
                )
        self._converters = dict(sorted(ways.items()))  # sorted: the order does not matter

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dict with the columns converted; `batch` is not modified.

        A column is an array of any library, or a sequence of arrays: of one shape for a Converter,
        of any sizes for a Collator. Raises ArgumentError if one of the columns is missing.
        """
        if not isinstance(batch, Mapping):
            raise ArgumentError(f"a batch is a mapping of columns, not {describe_type(batch)}")
        missing = self._converters.keys() - batch.keys()
        if missing:
            raise ArgumentError(
                f"there is no column {', '.join(sorted(missing))}; the batch has "
                f"{', '.join(map(str, batch))}"
            )
        converted = {name: _convert(way, batch[name]) for name, way in self._converters.items()}
        return {**batch, **converted}

    def __repr__(self) -> str:
        arguments = (f"{name}={converter!r}" for name, converter in self._converters.items())
        return f"columns({', '.join(arguments)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and self._converters == other._converters

    def __hash__(self) -> int:
        # Equal in every process, unlike the hash of a str.
        lines = [f"{name}: {way.fingerprint}" for name, way in self._converters.items()]
        return zlib.crc32("; ".join(lines).encode(errors="surrogatepass"))

    def __reduce__(self) -> Any:
        return _rebuilt, (list(self._converters.items()),)


def columns(*more: Never, **ways: Converter | Collator) -> Columns:
    """Return a callable that converts or collates columns of a mapping and keeps the others.

    >>> columns(image=Converter("hwc->chw", dtype="float32"))
    columns(image=Converter("hwc->chw", dtype='float32'))

    Parameters
    ----------
    **ways : Converter or Collator
        The Converter of each column, by the column's name, or a Collator of arrays of any sizes.
    """
    if more:
        raise ArgumentError(
            f"columns got {show(more[0])} without a name; name the column of each conversion, "
            'as in columns(image=Converter("hwc->chw"))'
        )
    return Columns(**ways)


# The name is in pickles.
def _rebuilt(arguments: list[tuple[str, Any]]) -> Columns:
    return Columns(**dict(arguments))


def _convert(way: Converter | Collator, column: Any) -> Any:
    if isinstance(way, Collator):
        return way(column if way.windows.is_one_array else list(column))
    return way(_as_array(column))


def _as_array(column: Any) -> Any:
    """Return a column of nested lists of numbers, or of one array per row, as one array."""
    if _is_nested(column):
        try:
            return np.array(column)
        except ValueError:
            raise ShapeError(
                "the column is lists of different lengths, which do not make an array; bring its "
                "rows to one shape first"
            ) from None
    if isinstance(column, np.ndarray) and column.dtype.kind == "O":
        from .backends.containers import column_values as stacked  # late: it imports all adapters

        return stacked(column, "the column")
    return column


def _is_nested(column: Any) -> bool:
    """Return True for nested lists of numbers, which datasets returns if no format is set."""
    while isinstance(column, list) and column:
        column = column[0]
        if isinstance(column, int | float):
            return True
    return False
