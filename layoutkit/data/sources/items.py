"""Map-style Datasets, of PyTorch, Hugging Face and the like: objects with a length and `[i]`.

Items are read one by one when their batch is made, and never to find their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..._utils.validation import describe_type, show, type_name
from ...backends.dispatch import as_array, get_adapter
from ...errors import DataError
from ..errors import check_has_records
from ..formats import FIELD_PAIRS, is_dataframe
from ..io.reader import Reader
from ..labels import check_columns, find_columns, is_missing
from ..ragged import Ragged
from ..records import Record
from .base import Index, Partition


class ItemsIndex(Index):
    """The items of an object with a length and `[i]`; their labels are known when they are read.

    The names of classes are known before if the object has them.
    """

    gives_targets = True

    def __init__(
        self,
        source: Any,
        kind: str,
        partition: Partition,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        count = len(source)
        check_has_records(count, f"the {type_name(source)}", "its length is 0")
        self._source = source
        self._columns = check_columns(columns)
        self.target_classes = _find_classes(source, self._columns)
        self._partition = partition
        self._count = partition.count(count)
        super().__init__(kind, None, (), None)

    def __len__(self) -> int:
        return self._count

    def record(self, number: int) -> Record:
        """Return the record of an item, which is not read."""
        return Record(position=number)

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads an item: an array or bytes, or (these, target)."""
        return self._read

    def _read(self, record: Record) -> Any:
        return split_item(self._source[self._partition.place(record.position)], self._columns)


class ItemProcessor:
    """A processor of the first of a pair (data, target), which keeps the target."""

    def __init__(self, processor: Callable[..., Any]) -> None:
        self._processor = processor

    def __call__(self, item: Any, out: Any) -> Any:
        """Return the result of the processor, with the target if there is one."""
        if type(item) is not tuple:
            return self._processor(item, out=out)
        data, target = item
        result = self._processor(data, out=out)
        return result if result is None or type(result) is tuple else (result, target)


def is_item_source(source: Any) -> bool:
    """Return True for an object with a length and `[i]`, neither an array nor Python's own."""
    if isinstance(source, Mapping | Ragged) or is_dataframe(source) or get_adapter(source):
        return False
    if hasattr(source, "_iter_fields") or hasattr(source, "dtype") or hasattr(source, "__array__"):
        return False
    is_own = type(source).__module__ not in ("builtins", "array", "collections")
    return is_own and all(hasattr(source, name) for name in ("__len__", "__getitem__"))


def reject_iterables(source: Any) -> None:
    """Raise DataError for an object that lacks a length, or `[i]`, as a DataLoader does."""
    if hasattr(source, "__array__") or isinstance(source, set):
        return
    kind = describe_type(source)
    if hasattr(source, "__getitem__") and not hasattr(source, "__len__"):
        raise DataError(
            f"the source is {kind}, which has [i], but no length; give its class a method "
            "__len__ that returns the number of records"
        )
    if not hasattr(source, "__iter__") or hasattr(source, "__getitem__"):
        return
    if hasattr(source, "dataset"):
        raise DataError(
            f"the source is {kind}, which makes batches of its own; give its records, the "
            "attribute dataset: sampled_batcher(loader.dataset, batch_size=32)"
        )
    raise DataError(
        f"the source is {kind}, which can only be iterated; an index needs a length and [i]: give "
        "lambda: iter(source), a stream that is read in order, or the numbers of its records and a "
        "function that reads one: sampled_batcher({'x': numbers}, get=lambda record: ...)"
    )


_FIELDS = (
    "for a batch of each field, give get=lambda record: source[record.position] and a dict of "
    "Collators as collate="
)
_SELECT = "select them with get=lambda record: source[record.position][:2]"


def split_item(item: Any, columns: Mapping[str, Any], cure: str = _SELECT) -> Any:
    """Return the data of an item, or (data, target) if it has a label.

    Raises
    ------
    DataError
        The item has neither one nor two values, or its label is missing or text.
    """
    if isinstance(item, Mapping):
        pair = _pair_of(item, columns)
    elif isinstance(item, tuple | list):
        pair = tuple(item)
    else:
        pair = (item,)
    if len(pair) not in (1, 2):
        raise DataError(
            f"an item is {describe_type(item)} of {len(pair)} values; an index needs data, or data "
            f"and a label: {cure}"
        )
    data = _pixels(pair[0])
    if len(pair) == 1:
        return data
    target = as_array(pair[1], "the label") if get_adapter(pair[1]) else pair[1]
    value = target.item() if getattr(target, "shape", None) == () else target
    if isinstance(value, str) or (not hasattr(value, "shape") and is_missing(value)):
        cure = "number the classes in the source"
        if not isinstance(value, str) or not value:
            cure = "give a number, such as -1 for no label, or leave out the item"
        raise DataError(
            f"the label of an item is {show(value)}; items are read one by one, so labels have to "
            f"be numbers: {cure}"
        )
    return data, target


def _find_classes(source: Any, columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of classes, of a ClassLabel of Hugging Face or `classes` of torchvision."""
    features = getattr(source, "features", None)
    names = getattr(source, "classes", None)
    if isinstance(features, Mapping):
        with suppress(DataError):  # raised for an item, which `get` may read in another way
            names = getattr(_pair_of(features, columns)[-1], "names", None)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)


def _pair_of(item: Mapping[str, Any], columns: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the data and the label of an item by the names of its fields."""
    names = [*item]
    if not columns:
        for x, y in FIELD_PAIRS:
            if x in names and {*names} <= {x, y}:
                return tuple(item[name] for name in (x, y) if name in names)
    try:
        positions = find_columns(names, columns, "an item")
    except DataError as error:
        raise DataError(f"{error}; {_FIELDS}") from None
    places = (positions.image, *positions.labels)
    return tuple(item[names[place]] for place in places)


def _pixels(data: Any) -> Any:
    """Return the data of an item; an image of Pillow as an array of upright RGB."""
    if not (hasattr(data, "getexif") and hasattr(data, "convert")):
        return data
    from ...images.reading import pixels_of  # lazy, as few items are images of Pillow

    return pixels_of(data)
