"""Samples of several items, such as (image, label): the item that is collated, and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import describe_type
from ..errors import ArgumentError
from ..layout.parsing import Layout
from .containers import find_pixels_cure
from .dispatch import as_array


class Positioned(NamedTuple):
    """A sample with its position in its source, and the epoch, on which random windows depend."""

    sample: Any
    position: int
    epoch: int = 0


class ItemColumns(NamedTuple):
    """The items of samples by key, and the key of the collated ones."""

    first: Any
    columns: dict[Any, list[Any]]
    key: Any

    @property
    def collated(self) -> list[Any]:
        """The items to collate, one of each sample."""
        return self.columns[self.key]

    def joined(self, batch: Any, stack: Callable[[list[Any]], Any]) -> Any:
        """Return the batch and the stacked other items, in the structure of a sample."""
        items = {
            key: batch if key == self.key else stack(values) for key, values in self.columns.items()
        }
        return join_items(self.first, items)


def split_items(samples: Sequence[Any], key: Any, layout: Layout) -> ItemColumns | None:
    """Split samples that are tuples, lists or mappings into columns of items.

    The item to collate is at `key`, or else the first one with the rank of the layout. If
    there is none, but all items are arrays, the samples are arrays themselves: return None.
    """
    check_no_none(samples)
    first = samples[0]
    items = items_of(first)
    if key is None:
        candidates = [name for name, item in items.items() if _has_rank(item, layout)]
        if not candidates and all(hasattr(item, "shape") for item in items.values()):
            return None
        if not candidates:
            kinds = ", ".join(f"{name!r}: {_describe(item)}" for name, item in items.items())
            cure = (
                find_pixels_cure([*items.values()], "item", layout.ndim)
                or "name the item with key="
            )
            if isinstance(first, list) and _are_numbers(first):
                cure = "a list of numbers is no array: pass numpy.asarray(sample)"
            raise ArgumentError(
                f"sample 0 has no item of rank {layout.ndim}, as {layout} needs: {kinds}; {cure}"
            )
        key = candidates[0]
    if key not in items:
        raise ArgumentError(
            f"key={key!r}, but sample 0 has {', '.join(map(repr, items))}; name one of them"
        )
    columns: dict[Any, list[Any]] = {name: [] for name in items}
    for number, sample in enumerate(samples):
        own = items_of(sample) if isinstance(sample, Mapping | tuple | list) else {}
        if own.keys() != columns.keys():
            raise ArgumentError(
                f"sample {number} {_structure(sample, own)}, but sample 0 has the items "
                f"{', '.join(map(repr, columns))}; give samples of one structure"
            )
        for name, item in own.items():
            columns[name].append(item)
    for number, item in enumerate(columns[key]):
        if item is None:
            raise make_none_error(repr(key), number)
    return ItemColumns(first, columns, key)


def check_no_none(samples: Sequence[Any], function: str = "collator", test: str = "x") -> None:
    """Raise ArgumentError for a sample that is None.

    function, test    the collate_fn, and the sample in an item of it, in the text of the cure
    """
    number = next((i for i, sample in enumerate(samples) if sample is None), None)
    if number is not None:
        raise ArgumentError(
            f"sample {number} is None; omit it before the call, as with collate_fn="
            f"lambda samples: {function}([x for x in samples if {test} is not None])"
        )


def make_none_error(key: str, number: int) -> ArgumentError:
    """Return the error for an item of a sample that is None."""
    return ArgumentError(
        f"item {key} of sample {number} is None; omit samples without it before the call"
    )


def _structure(sample: Any, items: Mapping[Any, Any]) -> str:
    if not items:
        return f"is {describe_type(sample)}"
    return f"has the items {', '.join(map(repr, items))}"


def stack_values(values: list[Any], stack_arrays: Callable[[list[Any]], Any]) -> Any:
    """Stack the values of a batch if they are numbers or arrays of one shape; else list them."""
    first = values[0]
    if _are_numbers(values):
        stacked = np.array(values)
        return values if stacked.dtype.hasobject else stacked  # ints beyond 64 bits
    _check_numbers(values)
    if isinstance(first, Mapping | tuple) and first:
        if any(_keys_of(value) != _keys_of(first) for value in values):
            return values
        columns = {key: [items_of(value)[key] for value in values] for key in items_of(first)}
        items = {key: stack_values(column, stack_arrays) for key, column in columns.items()}
        return join_items(first, items)
    if all(map(_is_image, values)):
        values = [as_array(value) for value in values]
    shapes = {_shape_of(value) if _is_array(value) else None for value in values}
    return values if len(shapes) != 1 or None in shapes else stack_arrays(values)


def _is_array(value: Any) -> bool:
    """Return True for an array that can be stacked: not for a scalar, and not for text."""
    return not isinstance(value, np.generic) and getattr(
        getattr(value, "dtype", None), "kind", ""
    ) not in ("O", "S", "U")


def map_items(function: Callable[[Any], Any], sample: Any) -> Any:
    """Return a tuple, list or mapping of the function's results for the items of `sample`."""
    return join_items(sample, {key: function(item) for key, item in items_of(sample).items()})


def _are_numbers(values: list[Any]) -> bool:
    """Return True for numbers, and for scalars of one class of NumPy, such as dates."""
    if isinstance(values[0], np.generic) and len({*map(type, values)}) == 1:
        return True
    return all(isinstance(v, bool | int | float | complex | np.number | np.bool_) for v in values)


def _check_numbers(values: list[Any]) -> None:
    """Raise ArgumentError for None among numbers, such as labels."""
    numbers = [value for value in values if value is not None]
    if 0 < len(numbers) < len(values) and _are_numbers(numbers):
        number = next(i for i, value in enumerate(values) if value is None)
        raise ArgumentError(
            f"an item of sample {number} is None, but a number in other samples; give a number, "
            "such as -1 for no label, or omit the sample"
        )


def _keys_of(value: Any) -> Any:
    return items_of(value).keys() if isinstance(value, Mapping | tuple) else None


def _shape_of(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(shape)


def items_of(sample: Any) -> dict[Any, Any]:
    """Return a mapping, tuple or list as a dict of its items by key or number."""
    return dict(sample) if isinstance(sample, Mapping) else dict(enumerate(sample))


def join_items(sample: Any, items: dict[Any, Any]) -> Any:
    """Return items in the structure of a sample, such as a named tuple or an OrderedDict.

    A mapping that cannot be copied or made from a dict becomes a dict.
    """
    if isinstance(sample, Mapping):
        try:
            if not isinstance(sample, MutableMapping):
                return type(sample)(items)  # type: ignore[call-arg]
            joined = copy(sample)  # keeps its other attributes, such as a default factory
            joined.update(items)
        except TypeError:
            return items
        return joined
    if hasattr(sample, "_fields"):  # a named tuple
        return type(sample)(*items.values())
    return type(sample)(items.values())


def _is_image(item: Any) -> bool:
    return hasattr(item, "getbands")


def _has_rank(item: Any, layout: Layout) -> bool:
    if _is_image(item):
        rank = 2 + (len(item.getbands()) > 1)
    elif hasattr(item, "shape"):
        rank = len(item.shape)
    else:
        return False
    return rank == layout.ndim or (layout.has_ellipsis and rank > layout.ndim)


def _describe(item: Any) -> str:
    shape = _shape_of(item)
    name = "None" if item is None else type(item).__name__
    return name if shape is None else f"{name} {shape}"
