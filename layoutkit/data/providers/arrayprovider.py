"""`ArrayProvider`: batches of arrays through the data provider's interface.

Knows arrays in memory; how they are copied into a caller's is known by `protocol.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checks import as_count, as_flag, as_word
from ...errors import DataError
from ...views import DataView
from ..epochs import Epochs
from ..permutation import key_of, shuffled
from . import protocol
from .fields import Field, field_of
from .protocol import Named

__all__ = ["ArrayProvider", "ProviderBatch"]

_Field = Field  # as pickles of earlier versions call it
_TAILS = ("pad", "wrap", "drop")
_MOST_ROWS = 1 << 48  # of whatever; addresses have no more bits


@dataclass(frozen=True)
class ProviderBatch:
    """A batch of a provider: `count` real rows, then padding."""

    count: int
    data: tuple[DataView, ...]
    label: tuple[DataView, ...]

    @property
    def input(self) -> DataView:
        """The first data."""
        return self.data[0]

    @property
    def target(self) -> DataView | None:
        """The first label, None where there are no labels."""
        return self.label[0] if self.label else None


class ArrayProvider(Epochs[ProviderBatch]):
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
        super().__init__(0)
        arrays, labels = _named(data, "data"), _named(label, "label")
        if convert is not None and not isinstance(convert, Mapping):
            convert = dict.fromkeys(arrays, convert)
        _check_names(arrays, labels, layout=layout, padding=padding, convert=convert)
        constants = {"scale": scale, "mean": mean, "std": std, "clip": clip}
        layouts = layout if isinstance(layout, Mapping) else dict.fromkeys(arrays, layout)
        self._data = tuple(
            field_of(*item, layouts, padding, convert, constants) for item in arrays.items()
        )
        self._label = tuple(field_of(*item, layouts, padding, convert) for item in labels.items())
        self._samples = _common(self._data + self._label)
        self._size = self._samples if batch_size is None else as_count("batch_size", batch_size, 1)
        if self._size > _MOST_ROWS:
            raise DataError(f"batch_size={self._size}; no memory holds more than {_MOST_ROWS} rows")
        self._shuffle, self._tail = as_flag("shuffle", shuffle), as_word("tail", tail, _TAILS)
        self._seed = as_count("seed", seed, None)

    @property
    def batch_size(self) -> int:
        """The rows of every batch."""
        return self._size

    @property
    def num_batches(self) -> int:
        """The batches of an epoch."""
        whole, rest = divmod(self._samples, self._size) if self._samples else (0, 0)
        return whole + (rest > 0 and self._tail != "drop")

    @property
    def unvisited(self) -> int:
        """The samples that an epoch leaves out."""
        return max(0, self._samples - self.num_batches * self._size)

    @property
    def provide_data(self) -> Named:
        """(name, shape) of the data of every batch."""
        return [(field.name, field.shape(self._size)) for field in self._data]

    @property
    def provide_label(self) -> Named:
        """(name, shape) of the labels of every batch."""
        return [(field.name, field.shape(self._size)) for field in self._label]

    def count_samples(self, batch: ProviderBatch) -> int:
        """How many rows of the batch are real; they are the first ones."""
        return batch.count

    def get_data(self, batch: ProviderBatch) -> list[DataView]:
        """The data as Views, in the order of `provide_data`."""
        return list(batch.data)

    def get_label(self, batch: ProviderBatch) -> list[DataView]:
        """The labels as Views, in the order of `provide_label`."""
        return list(batch.label)

    def get(self, batch: ProviderBatch, name: str) -> DataView:
        """The View of a name, of the data or of the labels; DataError where there is none."""
        names = [field.name for field in self._data + self._label]
        return protocol.get_named(names, batch.data + batch.label, name)

    def load_data(self, batch: ProviderBatch, targets: Sequence[Any]) -> None:
        """Copy the data into arrays: `targets[k]` takes the k-th data.

        It is an array for the whole batch, or a list of (slice, array), each of which takes the
        slice's rows along axis b, in the data's layout, padding included. Casts are "same_kind".
        Raises DataError, ShapeError and DtypeError before anything is written.
        """
        protocol.load(self.provide_data, batch.data, targets)

    def load_label(self, batch: ProviderBatch, targets: Sequence[Any]) -> None:
        """Copy the labels into arrays, as `load_data` does the data."""
        protocol.load(self.provide_label, batch.label, targets)

    def _steps(self, epoch: int, position: int) -> Iterator[tuple[ProviderBatch, int]]:
        for number in range(position, self.num_batches):
            yield self._batch(epoch, number), number + 1

    def _batch(self, epoch: int, number: int) -> ProviderBatch:
        start = number * self._size
        places = np.arange(start, start + self._size, dtype=np.uint64) % self._samples
        if self._shuffle:
            places = shuffled(key_of("provider", self._seed, epoch), places, self._samples)
        count = min(self._size, self._samples - start)
        filled = count if self._tail == "pad" else self._size
        positions = places.astype(np.intp)
        return ProviderBatch(
            count,
            tuple(field.batch(positions, filled) for field in self._data),
            tuple(field.batch(positions, filled) for field in self._label),
        )

    def _identity(self) -> dict[str, int | str]:
        kind = "permutation" if self._shuffle else "linear"
        return {"kind": kind, "seed": self._seed, "batch_size": self._size, "tail": self._tail}

    def _records(self) -> int:
        return self._samples

    def _end(self, epoch: int) -> int:
        return self.num_batches


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
