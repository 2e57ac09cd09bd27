"""`ArrayProvider`: batches of arrays through the data provider's interface.

Knows arrays in memory; how they are copied into a caller's is known by `protocol.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DataError
from .base import BaseProvider, ProviderBatch
from .fields import Field, field_of

# As pickles of earlier versions call it, which look for batches here, too.
__all__ = ["ArrayProvider", "ProviderBatch"]

_Field = Field


class ArrayProvider(BaseProvider):
    """Batches of `batch_size` rows from arrays, each an epoch's next samples.

    >>> import numpy as np
    >>> provider = ArrayProvider(np.arange(10.0).reshape(5, 2), np.arange(5), batch_size=2)
    >>> provider.provide_data, provider.provide_label
    ([('data', (2, 2))], [('label', (2,))])
    >>> for batch in provider:
    ...     print(batch.count, provider.get(batch, "label").input)
    2 [0 1]
    2 [2 3]
    1 [4 0]

    `for batch in provider` is an epoch, and `state_dict()` is a place in it: see the guide on
    order and resuming.

    Parameters
    ----------
    data, label : array or mapping of name -> array
        All with the same number of samples along axis b; of any dtype. Arrays alone are called
        "data" and "label". They are held by reference, and batches are copies.
    batch_size : int, optional
        By default all samples.
    shuffle : bool
        A new order each epoch, the same for all arrays, a function of `seed` and the epoch alone.
    padding : number or mapping of name -> number
        What fills the last batch with `tail="pad"`.
    tail : str
        What happens where samples run out: "pad" fills up, "wrap" takes the epoch's first samples
        again, "drop" leaves the short batch out (`unvisited` samples).
    layout : str or mapping of name -> str, optional
        That of the data; by default `b` and `bf`.
    convert : Converter or mapping of name -> Converter, optional
        Makes what is provided of a batch: of all data, or of the arrays that are named.
    scale, mean, std, clip : optional
        In place of `convert`, the formula of its keywords, of all data in their layouts.

    Raises
    ------
    DataError, PatternError, ShapeError, DtypeError, ArgumentError
        Numbers of samples differ, or a name, tail or layout is none; at once.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        padding: Any = 0,
        tail: str = "pad",
        layout: Any = None,
        convert: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
    ) -> None:
        arrays, labels = _named(data, "data"), _named(label, "label")
        if convert is not None and not isinstance(convert, Mapping):
            convert = dict.fromkeys(arrays, convert)
        _check_names(arrays, labels, layout=layout, padding=padding, convert=convert)
        constants = {"scale": scale, "mean": mean, "std": std, "clip": clip}
        layouts = layout if isinstance(layout, Mapping) else dict.fromkeys(arrays, layout)
        fields = [field_of(*item, layouts, padding, convert, constants) for item in arrays.items()]
        targets = [field_of(*item, layouts, padding, convert) for item in labels.items()]
        super().__init__(
            fields, targets, _common(fields + targets),
            batch_size=batch_size, shuffle=shuffle, seed=seed, tail=tail,
        )  # fmt: skip


def _named(arrays: Any, name: str) -> dict[str, Any]:
    """Arrays by name; an array alone has the name it is given."""
    if arrays is None and name == "label":
        return {}
    if not isinstance(arrays, Mapping):
        return {name: arrays}
    wrong = [each for each in arrays if not isinstance(each, str)]
    if wrong or (name == "data" and not arrays):
        raise DataError(
            f"{name} has the names {list(arrays)!r}; give at least one, all of them str"
        )
    return dict(arrays)


def _check_names(data: Mapping[str, Any], label: Mapping[str, Any], **options: Any) -> None:
    """DataError for a name that is both data and label, and for options of no array."""
    both = sorted(data.keys() & label.keys())
    if both:
        raise DataError(f"{both[0]!r} is both data and label; give them different names")
    for what, option in options.items():
        unknown = (
            [n for n in option if n not in data and n not in label]
            if isinstance(option, Mapping)
            else []
        )
        if unknown:
            there = ", ".join(map(repr, [*data, *label]))
            raise DataError(f"{what} speaks of {unknown[0]!r}; there are {there}")


def _common(fields: Sequence[Field]) -> int:
    """The number of samples, which is the same for all."""
    first = fields[0]
    for field in fields:
        if field.samples != first.samples:
            raise DataError(
                f"{first.name} has {first.samples} samples, but {field.name} has {field.samples} "
                "along axis b; give as many of each"
            )
    return first.samples
