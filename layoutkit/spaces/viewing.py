"""The one table of layouts, Views and Spaces: which stand for the same batches.

    layout                             View            Space
    b, h, w, c in any order            ImageView       Conv2DSpace
    others with h and w                ImageView       none
    bf                                 DataView        VectorSpace
    b, of no labels                    DataView        VectorSpace(1)
    b, bt, tb, of integers             ClassView       IndexSpace, where max_labels is known
    bwc, of one sequence               SequenceView    VectorSequenceSpace, with max_labels
                                                       IndexSequenceSpace
    others of b, w and c               SequenceView    none
    any other                          DataView        none
    several, nested                    ListView        CompositeSpace
    none                               None            NullSpace

It knows Views and, by `family` and fields, the kinds of spaces, which enter themselves as they are
defined; not how one space becomes another (routes.py), nor what a view asks a space (asking.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.access import seen
from ..arrays.libraries import library_of
from ..arrays.symbolic import Symbolic
from ..devices import CPU
from ..errors import ArgumentError, DeviceError, SpaceError
from ..nested import each, each_leaf, rebuilt
from ..notation import parse_layout
from ..spec import kind_of
from ..views import ClassView, DataView, ImageView, ListView, SequenceView
from ..views.lists import nest_of
from . import sparse

__all__ = ["KINDS", "batch_of", "in_base_layout", "space_in", "space_of", "view_in", "view_of"]

KINDS: dict[str, Any] = {}  # by `family`: the classes of spaces, entered by `Space` (base.py)


# -- to Views ------------------------------------------------------------------------------------


def view_of(space: Any, batch: Any) -> Any:
    """The View that holds a batch of a space, by reference; None where there is no data.

    The caller has checked the batch. Raises SpaceError for one without data, such as a traced one.
    """
    if space.family == "null":
        return None
    if space.family == "composite":
        found = each(view_of, space.components, batch)
        held = [view for view in found if view is not None]
        return ListView(held) if held else None
    if space.family not in _VIEWS:
        raise SpaceError(f"no View holds batches of {space!r}; a row in viewing.py would say which")
    return _VIEWS[space.family](space, batch if getattr(space, "sparse", False) else _data(batch))


_VIEWS: dict[str, Callable[[Any, Any], DataView]] = {
    "vector": lambda space, x: DataView("bf", sparse.densified(x) if space.sparse else x),
    "conv2d": lambda space, x: ImageView(space.layout, x),
    "index": lambda space, x: ClassView("bt", x, space.max_labels),
    "vector sequence": lambda space, x: SequenceView("bwc", x[None]),
    "index sequence": lambda space, x: SequenceView("bwc", x[None], space.max_labels),
}


def _data(batch: Any) -> Any:
    """The batch; SpaceError where it has no data that a View could hold."""
    try:
        seen(batch, "the batch")
    except (ArgumentError, DeviceError) as error:
        raise SpaceError(
            f"a View holds data, and here is none that it could hold: {error}; or use format_as, "
            "which needs none"
        ) from None
    return batch


def view_in(layout: str, array: Any, classes: Any = None) -> DataView:
    """The View that fits a layout: of images, sequences, labels of `classes`, or anything else."""
    groups = sorted(parse_layout(layout).groups)
    if {"h", "w"} <= set(groups):
        return ImageView(layout, array)
    if groups == ["b", "c", "w"]:
        return SequenceView(layout, array)
    if groups in (["b"], ["b", "t"]) and kind_of(array.dtype) in "ui":
        return ClassView(layout, array, classes)
    return DataView(layout, array)


# -- to Spaces -----------------------------------------------------------------------------------


def space_in(layout: str, shape: tuple[Any, ...], max_labels: int | None = None) -> Any:
    """The space, of any dtype, of arrays in a layout; None where there is none.

    They are labels where `max_labels` is given. Of the sizes that of b counts only in `bwc`.
    """
    size = dict(zip(layout, shape, strict=False))
    if sorted(layout) == sorted("bhwc"):
        return KINDS["conv2d"]((size["h"], size["w"]), size["c"], layout, None)
    if layout == "bwc" and size["b"] == 1:
        if max_labels is None:
            return KINDS["vector sequence"](size["c"], None)
        return KINDS["index sequence"](max_labels, size["c"], None)
    if layout in ("b", "bt", "tb") and max_labels is not None:
        return KINDS["index"](max_labels, size.get("t", 1), None)
    return KINDS["vector"](size.get("f", 1), dtype=None) if layout in ("b", "bf") else None


def space_of(view: Any) -> Any:
    """The space, of any dtype, that a view's base is a batch of; SpaceError if there is none."""
    nest = nest_of(view)
    return rebuilt(nest, each_leaf(_space_of_one, nest), KINDS["composite"])


def _space_of_one(view: DataView) -> Any:
    unknown = isinstance(view, ClassView) and view.max_labels is None
    found = None if unknown else space_in(view.layout, view.shape, view.max_labels)
    if found is None:
        raise SpaceError(
            f"a {type(view).__name__} in {view.layout} is a batch of no space; get it by layout, "
            "or put images (bhwc in any order), vectors (bf), numbers (b), labels with classes "
            "(b, bt) or one sequence (bwc)"
        )
    return found


# -- between the base of a View and the batch of its space ---------------------------------------


def batch_of(view: Any) -> Any:
    """A view's base as a batch of its space: one sequence, or labels as a matrix (b, dim)."""
    nest = nest_of(view)
    return rebuilt(nest, each_leaf(_batch_of_one, nest))


def _batch_of_one(view: DataView) -> Any:
    held = view.batch
    if view.device != CPU:
        raise DeviceError(
            f"this {type(view).__name__} is on {view.device}, where no space is got that is "
            'more than a layout and a dtype; get it with device="cpu" first'
        )
    # Frameworks' own arrays are converted in their words; of others only the memory is known.
    x = held.input if isinstance(library_of(held.input), Symbolic) else held.array
    return _AS_BATCH[view.layout](x) if view.layout in _AS_BATCH else x


def in_base_layout(view: DataView, made: Any) -> Any:
    """A batch of a view's space as its base lies: the way back from `batch_of`."""
    return _AS_BASE[view.layout](made) if view.layout in _AS_BASE else made


_AS_BATCH: dict[str, Callable[[Any], Any]] = {
    "bwc": lambda x: x[0],
    "b": lambda x: x[:, None],
    "tb": lambda x: x.T,
}
_AS_BASE: dict[str, Callable[[Any], Any]] = {
    "bwc": lambda x: x[None],
    "b": lambda x: x[:, 0],
    "tb": lambda x: x.T,
}
