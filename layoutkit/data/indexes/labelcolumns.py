"""Labels of any kind, one thing a record, as the columns of an index.

Knows whole numbers, words, and numbers of which a record may have several; where they come from
only the kinds of index know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...memory import Array
from ..records import Label
from .numberlabels import NumberLabels

__all__ = ["Labelled", "labelled"]


_EXACT = 1 << 24  # up to which float32 has every integer


class Labelled(NamedTuple):
    """What an index keeps of labels, as `Columns` has them."""

    names: Sequence[Label] = ()
    codes: Array | None = None
    numbers: NumberLabels | None = None


def labelled(values: Sequence[Any]) -> Labelled:
    """The columns of labels: of each record a whole number, a word, numbers, or None for none.

    Raises ValueError with the place of the first that is another kind of thing than those before.
    """
    known: str | None = None
    for place, value in enumerate(values):
        kind = _kind(value)
        if kind is None and value is not None:
            raise ValueError(place, f"{value!r} is no label; it is a number, a word, or numbers")
        if kind is not None and known not in (None, kind):
            raise ValueError(place, f"{value!r} is no {known}, as the labels before it are")
        known = known or kind
    if known is None:
        return Labelled()
    if known == "number":
        numbers = _numbers(values)
        if numbers is not None:
            return Labelled(*numbers.classes(), numbers)
    names = sorted({value for value in values if value is not None})
    ranks = {name: rank for rank, name in enumerate(names)}
    codes = [-1 if value is None else ranks[value] for value in values]
    return Labelled(names, np.array(codes, np.int32))


def _numbers(values: Sequence[Any]) -> NumberLabels | None:
    """Of records that have one number or several; None for integers that float32 cannot hold."""
    rows = [() if v is None else v if isinstance(v, list) else (v,) for v in values]
    flat = [number for row in rows for number in row]
    if all(isinstance(v, int | None) for v in values) and any(abs(v) > _EXACT for v in flat):
        return None
    return NumberLabels(np.array([*map(len, rows)], np.int64), np.array(flat, np.float32))


def _kind(value: Any) -> str | None:
    """ "word", or "number"; None for what is neither."""
    if isinstance(value, str):
        return "word"
    several = value if isinstance(value, list) else [value]
    plain = all(isinstance(each, int | float) for each in several)
    return "number" if plain and several else None
