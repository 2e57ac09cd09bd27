"""What a view asks a space that stands in the place of a layout (see views/forms.py).

A space of images or vectors that is only a layout and a dtype is got as that (a vector of images
through `b(hwc)`), so that it is one array with what was got by layout, and its gradients are summed
in one pass with all others. Everything else is `format_as` there and `undo_format_as` back, at the
put of a gradient. A ListView is asked component by component for a composite, and joined for all
else.

The one table of layouts, Views and Spaces: which stand for the same batches.

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

from .._utils.tree import each, each_leaf, leaves, matched, rebuilt
from ..backends.inspection import seen
from ..backends.registry import library_of
from ..backends.symbolic import Symbolic
from ..cuda.runtime import check_device
from ..errors import ArgumentError, BackwardError, DeviceError, LayoutkitError, SpaceError
from ..layout.parsing import parse_layout
from ..spec import CPU, as_dtype, kind_of
from ..views import ClassView, DataView, ImageView, ListView, SequenceView
from ..views.base import gradient_for
from ..views.batch import Gradient
from ..views.listview import nest_of
from . import sparse
from .convert import route

SPACE_CLASSES: dict[
    str, Any
] = {}  # by `family`: the classes of spaces, entered by `Space` (base.py)


# -- to Views ------------------------------------------------------------------------------------


def make_view(space: Any, batch: Any) -> Any:
    """The View that holds a batch of a space, by reference; None where there is no data.

    The caller has checked the batch. Raises SpaceError for one without data, such as a traced one.
    """
    if space.family == "null":
        return None
    if space.family == "composite":
        found = each(make_view, space.components, batch)
        held = [view for view in found if view is not None]
        return ListView(held) if held else None
    if space.family not in _VIEWS:
        raise SpaceError(f"no View holds batches of {space!r}; a row in viewing.py would say which")
    return _VIEWS[space.family](space, batch if getattr(space, "sparse", False) else _data(batch))


_VIEWS: dict[str, Callable[[Any, Any], DataView]] = {
    "vector": lambda space, x: DataView("bf", sparse.to_dense(x) if space.sparse else x),
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
        return SPACE_CLASSES["conv2d"]((size["h"], size["w"]), size["c"], layout, None)
    if layout == "bwc" and size["b"] == 1:
        if max_labels is None:
            return SPACE_CLASSES["vector sequence"](size["c"], None)
        return SPACE_CLASSES["index sequence"](max_labels, size["c"], None)
    if layout in ("b", "bt", "tb") and max_labels is not None:
        return SPACE_CLASSES["index"](max_labels, size.get("t", 1), None)
    return SPACE_CLASSES["vector"](size.get("f", 1), dtype=None) if layout in ("b", "bf") else None


def space_of(view: Any) -> Any:
    """The space, of any dtype, that a view's base is a batch of; SpaceError if there is none."""
    nest = nest_of(view)
    return rebuilt(nest, each_leaf(_space_of_one, nest), SPACE_CLASSES["composite"])


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


def check_from(space: Any, view: Any, dtype: Any, device: Any) -> None:
    """Raise what getting a view of one array by a space would, before anything is made."""
    layout = _layout_of(space_of(view), space)
    if layout is not None:
        view.batch.plans.find(layout, space.dtype if dtype is None else dtype, device)


def get_from(space: Any, view: Any, dtype: Any, device: Any) -> Any:
    """The base of a view as a batch of a space."""
    if _is_by_component(space, view):
        return _filled(space, view.forward_get(_asked(space, view), dtype, device))
    source = space_of(view)
    layout = _layout_of(source, space)
    if layout is not None:
        return view.batch.get(layout, space.dtype if dtype is None else dtype, device)
    if check_device(device) != CPU:
        raise DeviceError(
            f"{space!r} is more than a layout and a dtype, and is made on the CPU; get it without "
            f'device= and bring it over with convert(..., device="{device}")'
        )
    other = space if dtype is None else space.with_dtype(dtype)
    got = view.batch.by_form
    if other not in got:
        got.setdefault(other, source.format_as(batch_of(view), other))
    return got[other]


def gradients_for(space: Any, view: Any, grad: Any) -> list[Gradient]:
    """What a gradient of what was got by a space is to each array of a view."""
    nest = nest_of(view)
    if _is_by_component(space, view):
        grads = matched(nest, _without_null(space, grad), "gradients")
        return each_leaf(gradient_for, nest, leaves(_asked(space, view)), grads)
    source = space_of(view)
    layout = _layout_of(source, space)
    if layout is not None:
        return [view.batch.check_gradient(layout, grad)]
    dtypes = rebuilt(nest, [leaf.batch.plans.gradient_dtype for leaf in leaves(nest)])
    made = _undone(view.batch.by_form, source.with_dtype(dtypes), space, grad)
    pairs = zip(leaves(nest), leaves(made), strict=True)
    return [(leaf.batch.plans.base, in_base_layout(leaf, part)) for leaf, part in pairs]


def _layout_of(source: Any, other: Any) -> str | None:
    """The layout that a space comes down to, None where it is more than that.

    Raises SpaceError where batches of `source` never become batches of `other`.
    """
    route(source, other, "same_kind", False)
    if getattr(other, "sparse", False):
        return None
    if source.family == "conv2d":
        return str(other.layout) if other.family == "conv2d" else "b(hwc)"
    return "bf" if source.family == other.family == "vector" else None


def _undone(got: dict[Any, Any], source: Any, space: Any, grad: Any) -> Any:
    """The gradient of a batch of `source` for that of something that was got of it by space.

    Raises BackwardError where nothing was got in that space in this batch, or nothing that has a
    gradient.
    """
    plain = space.with_dtype(None)
    for other, result in got.items():
        if other.with_dtype(None) == plain and _fits(result, grad):
            try:
                return source.undo_format_as(grad, plain)
            except LayoutkitError as error:
                raise BackwardError(f"a gradient put as {space!r}: {error}") from None
    raise BackwardError(
        f"a gradient was put as {space!r}, but it belongs to no getting of this batch; get what a "
        f"gradient is for before putting it (got by space: {list(got) or 'nothing'})"
    )


def _fits(result: Any, grad: Any) -> bool:
    """Whether a gradient has the floating dtypes of a result, or the result has none."""
    if isinstance(result, tuple):
        same = isinstance(grad, tuple) and len(grad) == len(result)
        return same and all(map(_fits, result, grad))
    if result is None or not hasattr(grad, "dtype") or kind_of(grad.dtype) not in "fc":
        return result is grad
    return as_dtype(grad.dtype) == as_dtype(result.dtype) or kind_of(result.dtype) in "bui"


# -- composites of ListViews, in which a NullSpace has no component --------------------------------


def _is_by_component(space: Any, view: Any) -> bool:
    return space.family == "composite" and isinstance(view, ListView)


def _asked(composite: Any, view: ListView) -> tuple[Any, ...]:
    """The spaces of a composite for the components of a ListView, nested as they are."""
    found = [part for part in composite.components if not _is_null(part)]
    if len(found) != len(view.components):
        raise SpaceError(
            f"{composite!r} has {len(found)} components with data, the ListView "
            f"{len(view.components)}; give a composite that nests as the views do"
        )
    return tuple(map(_asked_of, found, view.components))


def _asked_of(part: Any, view: Any) -> Any:
    if (part.family == "composite") != isinstance(view, ListView):
        raise SpaceError(
            f"{part!r} is asked of a {type(view).__name__}; give a composite that nests as the "
            "views do"
        )
    return _asked(part, view) if part.family == "composite" else part


def _is_null(space: Any) -> bool:
    if space.family == "composite":
        return all(map(_is_null, space.components))
    return bool(space.family == "null")


def _filled(composite: Any, results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Results of the components with data, and None (nested) for the others."""
    rest = iter(results)

    def fill(part: Any) -> Any:
        found = () if _is_null(part) else next(rest)
        if part.family == "composite":
            return _filled(part, found)
        return found if part.family != "null" else None

    return tuple(map(fill, composite.components))


def _without_null(composite: Any, values: Any) -> Any:
    """Values of the components with data; what is no tuple of the right length is left as it is."""
    parts = composite.components
    if not isinstance(values, tuple | list) or len(values) != len(parts):
        return values
    return [
        _without_null(part, value) if part.family == "composite" else value
        for part, value in zip(parts, values, strict=True)
        if not _is_null(part)
    ]
