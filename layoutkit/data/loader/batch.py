"""`Batch`: what a Batcher hands out.

Knows what it holds; how it came about is not known here.

Views of the arrays of one batch after the other.

Knows layouts and Views; knows nothing of records.

What is done to the arrays of a batch before they are handed out: a Converter, if any.

A caller gives one, or the constants of a formula, which is then computed in the arrays' own layout.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ...converter import Converter
from ...errors import DataError, PatternError
from ...layout.parsing import parse_layout
from ...memory import Array
from ...normalize import Formula, formula_of
from ...spaces.views import view_in
from ...views import DataView
from ..records import Label, Record
from .chunk import words_of

Dropped = tuple[Record, int, BaseException | None]


class Batch:
    """Real records, in the epoch's order: `count` rows, without padding.

    A batch is a pair as well: `for x, y in batches` takes input and target apart. The memory of the
    views is the batch's own: it is not used again while anything of it is held.

    Attributes
    ----------
    input : View or None
        The records' arrays; None where there is none and no shape is known.
    target : View or None
        Labels as ranks into the index's labels, or what there is as target.
    count : int
        Rows.
    index : int64 array
        Each row's place in the epoch's order.
    item : list of Record
        Each row's record, of the first source.
    label : list
        Each row's label, None for a record without.
    dropped : list
        (record, place, error) of those left out; no error for a refusal.
    stats : dict
        Seconds in "get" and "process", summed over threads, and in "wait".
    """

    def __init__(
        self,
        input: DataView | None,  # noqa: A002  # the attribute's name
        target: DataView | None,
        index: Array,
        records: Callable[[], list[Record]],
        dropped: list[Dropped],
        stats: dict[str, float],
    ) -> None:
        self.input, self.target = input, target
        self.count = len(index)
        self.index = index
        self.dropped = dropped
        self.stats = stats
        self._records = records

    @cached_property
    def item(self) -> list[Record]:
        """Each row's record, of the first source."""
        return self._records()

    @property
    def label(self) -> list[Label | None]:
        """Each row's label, None for a record without."""
        return [record.label for record in self.item]

    def __iter__(self) -> Iterator[DataView | None]:
        return iter((self.input, self.target))

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for a queue between processes; it waits for ever for what does not pickle."""
        dropped = [(record, place, _portable(error)) for record, place, error in self.dropped]
        return {**self.__dict__, "item": self.item, "dropped": dropped, "_records": None}

    def __repr__(self) -> str:
        dropped = f", {len(self.dropped)} dropped" if self.dropped else ""
        return f"<batch of {self.count}{dropped}: {self.input!r}, {self.target!r}>"


def _portable(error: BaseException | None) -> BaseException | None:
    """The error itself, or its words where it does not go through a pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return DataError(words_of(error)) if error is not None else None
    return error


def check_convert(convert: Any, layout: str | None, constants: dict[str, Any]) -> None:
    """Raise unless `convert` is a Converter of arrays in a layout, and the only thing to do.

    Raises DataError, and ArgumentError or ShapeError for constants that are none.
    """
    formula = formula_of(**constants)
    if convert is None:
        return
    if not isinstance(convert, Converter):
        raise DataError(f"convert is {convert!r}; give a Converter")
    if formula is not None:
        given = ", ".join(name for name, value in constants.items() if value is not None)
        raise DataError(f"convert and {given} are two answers to one question; give one")
    left = convert.task.pattern.left
    if layout is not None and str(parse_layout(layout)) != str(left):
        raise DataError(
            f'layout is {layout}, but convert takes {left} ("{convert.pattern}"); give that,'
            " or leave it out"
        )


def converter_in(layout: str, convert: Converter | None, constants: dict[str, Any]) -> Converter:
    """What converts arrays that are in a layout, of the one or of the others."""
    if convert is not None:
        return convert
    formula = formula_of(**constants) or Formula()
    return Converter(f"{layout}->{layout}", **formula.keywords())


def result_layout(converter: Converter) -> str:
    """The layout that arrays have then."""
    return str(converter.task.pattern.target)


_NO_CONSTANTS: Mapping[str, Any] = MappingProxyType({})


class Viewer:
    """Views of one array after the other, chosen by axes and dtype.

    Exists because what is planned for one batch is right for the next: planning anew takes 30 us,
    and once more in every layout that is asked for.
    """

    def __init__(
        self, layout: str | None, what: str, classes: Any = None, *,
        convert: Any = None, constants: Mapping[str, Any] = _NO_CONSTANTS,
    ) -> None:  # fmt: skip
        self._layout, self._what, self._classes = layout, what, classes
        self._convert, self._constants = convert, dict(constants)
        self._converter: Converter | None = None
        self._kept: DataView | None = None  # holds no rows, so no memory of a batch
        self._kind: Any = None  # of arrays that have views like it

    def __call__(self, array: Array) -> DataView:
        """The array, by reference or as it is converted, as a new View."""
        if self._convert is not None or self._constants:
            array = self._prepared(array)
        kept, kind = self._kept, (array.dtype, array.shape[1:])
        if kept is None or kind != self._kind:
            layout = self._layout or default_layout(array.ndim, self._what)
            view: DataView = view_in(layout, array, self._classes)
            self._kept, self._kind = view.sub(0, 0), kind
            return view
        return kept.of_same_kind(array)

    def _prepared(self, array: Array) -> Array:
        """What is made of an array of the batch, whose view is then in another layout."""
        if self._converter is None:
            layout = self._layout or default_layout(array.ndim, self._what)
            self._converter = converter_in(layout, self._convert, self._constants)
            self._layout = result_layout(self._converter)
        found: Array = self._converter(array)
        return found


def default_layout(ndim: int, what: str) -> str:
    """`b` for one axis and `bf` for two; PatternError for others, which have to be named."""
    if ndim not in (1, 2):
        raise PatternError(
            f"{what} has {ndim} axes, and only one (b) and two (bf) have a layout of their own; "
            'say what they are, as in layout="bhwc"'
        )
    return "b" if ndim == 1 else "bf"
