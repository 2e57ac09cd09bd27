"""The correspondence of layouts, Views and Spaces; Views that get and put data by a Space.

A space of images or vectors that is equivalent to a layout and a dtype is converted as that layout
(vectors of images: `b(hwc)`). The array is then shared with calls that pass the layout, and its
gradients are summed in one pass with all others. All other spaces use `format_as`, and
`undo_format_as` when a gradient is put. A ListView is converted component by component for a
composite, and concatenated for other spaces.

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

The classes of spaces are used by their `family` and fields only; they add themselves by name to
`SPACE_CLASSES` when they are defined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._utils.tree import leaves, map_leaves, match_structure, unflatten
from .._utils.validation import show, with_article
from ..backends.inspection import inspect_array
from ..backends.registry import library_of
from ..backends.symbolic import ArrayNamespace
from ..cuda.runtime import check_device
from ..errors import ArgumentError, BackwardError, DeviceError, LayoutkitError, SpaceError
from ..layout.parsing import parse_layout, with_batch_axis
from ..spec import CPU, as_dtype, dtype_kind
from ..views import ClassView, DataView, ImageView, ListView, SequenceView
from ..views.base import gradient_for
from ..views.batch import ConversionGradient
from ..views.listview import leaf_views
from .convert import find_conversion

SPACE_CLASSES: dict[str, Any] = {}  # by name; filled by `Space` (base.py)


# -- Views of batches ----------------------------------------------------------------------------


def check_has_data(batch: Any) -> Any:
    """Return the batch; raise SpaceError if it has no data that a View could hold."""
    try:
        inspect_array(batch, "the batch")
    except (ArgumentError, DeviceError) as error:
        raise SpaceError(
            f"a View holds data, and this batch has none that it could hold: {error}; or use "
            "format_as, which needs none"
        ) from None
    return batch


def view_for_layout(layout: str, array: Any, classes: Any = None) -> DataView:
    """Return an ImageView, SequenceView, ClassView (of `classes`) or DataView, by the layout."""
    groups = sorted(with_batch_axis(parse_layout(layout)).groups)
    if {"h", "w"} <= set(groups):
        return ImageView(layout, array)
    if groups == ["b", "c", "w"]:
        return SequenceView(layout, array)
    if groups in (["b"], ["b", "t"]) and dtype_kind(array.dtype) in "ui":
        return ClassView(layout, array, classes)
    return DataView(layout, array)


# -- to Spaces -----------------------------------------------------------------------------------


def space_for_layout(layout: str, shape: tuple[Any, ...], max_labels: int | None = None) -> Any:
    """Return the space (of any dtype) of arrays in a layout, or None if there is none.

    The arrays are labels if `max_labels` is given. The size of b matters only in `bwc`.
    """
    size = dict(zip(layout, shape, strict=False))
    if sorted(layout) == sorted("bhwc"):
        return SPACE_CLASSES["Conv2DSpace"]((size["h"], size["w"]), size["c"], layout, None)
    if layout == "bwc" and size["b"] == 1:
        if max_labels is None:
            return SPACE_CLASSES["VectorSequenceSpace"](size["c"], None)
        return SPACE_CLASSES["IndexSequenceSpace"](max_labels, size["c"], None)
    if layout in ("b", "bt", "tb") and max_labels is not None:
        return SPACE_CLASSES["IndexSpace"](max_labels, size.get("t", 1), None)
    return (
        SPACE_CLASSES["VectorSpace"](size.get("f", 1), dtype=None)
        if layout in ("b", "bf")
        else None
    )


def space_of(view: Any) -> Any:
    """Return the space (of any dtype) of a view's base; raise SpaceError if there is none."""
    nest = leaf_views(view)
    return unflatten(nest, map_leaves(_space_of_view, nest), SPACE_CLASSES["CompositeSpace"])


def _space_of_view(view: DataView) -> Any:
    is_unknown = isinstance(view, ClassView) and view.max_labels is None
    space = None if is_unknown else space_for_layout(view.layout, view.shape, view.max_labels)
    if space is None:
        name = with_article(type(view).__name__)
        raise SpaceError(
            f"{name} in {view.layout} is a batch of no space; get it by layout, or "
            "put images (bhwc in any order), vectors (bf), numbers (b), labels with classes "
            "(b, bt) or one sequence (bwc)"
        )
    return space


# -- between the base of a View and the batch of its space ---------------------------------------


def base_as_batch(view: Any) -> Any:
    """Return a view's base as a batch of its space: one sequence, or labels as (b, dim)."""
    nest = leaf_views(view)
    return unflatten(nest, map_leaves(_batch_of_view, nest))


def _batch_of_view(view: DataView) -> Any:
    batch = view.batch
    if view.device != CPU:
        raise DeviceError(
            f"this {type(view).__name__} is on {view.device}, where only spaces equivalent "
            'to a layout and a dtype are supported; get it with device="cpu" first'
        )
    # Arrays of symbolic frameworks are converted by these; of others the memory is used.
    x = batch.input if isinstance(library_of(batch.input), ArrayNamespace) else batch.array
    return _BATCHES_AND_BASES[view.layout][0](x) if view.layout in _BATCHES_AND_BASES else x


def in_base_layout(view: DataView, batch: Any) -> Any:
    """Return a batch of a view's space in the layout of its base; inverts `base_as_batch`."""
    return _BATCHES_AND_BASES[view.layout][1](batch) if view.layout in _BATCHES_AND_BASES else batch


# How a batch of a space is made of a base in a layout, and a base of a batch.
_BATCHES_AND_BASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bwc": (lambda x: x[0], lambda x: x[None]),
    "b": (lambda x: x[:, None], lambda x: x[:, 0]),
    "tb": (lambda x: x.T, lambda x: x.T),
}


def check_from(space: Any, view: Any, dtype: Any, device: Any) -> None:
    """Raise the errors of `get_from` for a view of one array, before anything is converted."""
    layout = _plain_layout(space_of(view), space)
    if layout is not None:
        view.batch.plans.find(layout, space.dtype if dtype is None else dtype, device)


def get_from(space: Any, view: Any, dtype: Any, device: Any) -> Any:
    """Return the base of a view as a batch of a space."""
    if _converts_by_component(space, view):
        return _insert_nulls(space, view.forward_get(_component_spaces(space, view), dtype, device))
    source = space_of(view)
    layout = _plain_layout(source, space)
    if layout is not None:
        return view.batch.get(layout, space.dtype if dtype is None else dtype, device)
    if check_device(device) != CPU:
        raise DeviceError(
            f"{space!r} has no equivalent layout and dtype, so it is made on the CPU; get it "
            f'without device= and transfer it with convert(..., device="{device}")'
        )
    other = space if dtype is None else space.with_dtype(dtype)
    cache = view.batch.by_target
    if other not in cache:
        cache.setdefault(other, source.format_as(base_as_batch(view), other))
    return cache[other]


def gradients_for(space: Any, view: Any, grad: Any) -> list[ConversionGradient]:
    """Return the gradients of each array of a view for a gradient put by a space."""
    nest = leaf_views(view)
    if _converts_by_component(space, view):
        grads = match_structure(nest, _drop_nulls(space, grad), "gradients")
        return map_leaves(gradient_for, nest, leaves(_component_spaces(space, view)), grads)
    source = space_of(view)
    layout = _plain_layout(source, space)
    if layout is not None:
        return [view.batch.check_gradient(layout, grad)]
    dtypes = unflatten(nest, [leaf.batch.plans.gradient_dtype for leaf in leaves(nest)])
    grads = _undo_gradient(view.batch.by_target, source.with_dtype(dtypes), space, grad)
    pairs = zip(leaves(nest), leaves(grads), strict=True)
    return [(leaf.batch.plans.base, in_base_layout(leaf, part)) for leaf, part in pairs]


def _plain_layout(source: Any, other: Any) -> str | None:
    """Return the layout that is equivalent to a space, or None if there is none.

    Raises SpaceError if there is no conversion from `source` to `other`.
    """
    find_conversion(source, other, "same_kind", False)
    if getattr(other, "sparse", False):
        return None
    if source.family == "array":
        return str(other.layout if other.family == "array" else source.flat_layout)
    return "bf" if source.family == other.family == "vector" else None


def _undo_gradient(got: dict[Any, Any], source: Any, space: Any, grad: Any) -> Any:
    """Return the gradient of a batch of `source` for the gradient of a result in `space`.

    Raises BackwardError if no result in that space was got from this batch, or none that has a
    gradient.
    """
    plain = space.with_dtype(None)
    for other, result in got.items():
        if other.with_dtype(None) == plain and _has_matching_dtypes(result, grad):
            try:
                return source.undo_format_as(grad, plain)
            except LayoutkitError as error:
                raise BackwardError(f"a gradient put as {space!r}: {error}") from None
    raise BackwardError(
        f"a gradient was put as {space!r}, but no result of this batch matches it; this "
        f"batch has returned {list(got) or 'nothing'} as Spaces; call forward_get for the Space "
        "that the gradient belongs to first"
    )


def _has_matching_dtypes(result: Any, grad: Any) -> bool:
    """Return True if a gradient has the floating dtypes of a result, or the result has none."""
    if isinstance(result, tuple):
        same = isinstance(grad, tuple) and len(grad) == len(result)
        return same and all(map(_has_matching_dtypes, result, grad))
    if result is None or not hasattr(grad, "dtype") or dtype_kind(grad.dtype) not in "fc":
        return result is grad
    return as_dtype(grad.dtype) == as_dtype(result.dtype) or dtype_kind(result.dtype) in "bui"


# -- composites of ListViews, in which a NullSpace has no component --------------------------------


def _converts_by_component(space: Any, view: Any) -> bool:
    return space.family == "composite" and isinstance(view, ListView)


def _component_spaces(composite: Any, view: ListView) -> tuple[Any, ...]:
    parts = [part for part in composite.components if not _is_null(part)]
    if len(parts) != len(view.components):
        raise SpaceError(
            f"{composite!r} has {len(parts)} components with data, the ListView "
            f"{len(view.components)}; pass a composite with the nesting of the views"
        )
    return tuple(map(_check_component, parts, view.components))


def _check_component(part: Any, view: Any) -> Any:
    if (part.family == "composite") != isinstance(view, ListView):
        raise SpaceError(
            f"{show(part)} does not match a {type(view).__name__}; "
            "pass a composite with the nesting of the views"
        )
    return _component_spaces(part, view) if part.family == "composite" else part


def _is_null(space: Any) -> bool:
    if space.family == "composite":
        return all(map(_is_null, space.components))
    return bool(space.family == "null")


def _insert_nulls(composite: Any, results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the results of components with data, and (nested) None for the other components."""
    remaining = iter(results)

    def fill(part: Any) -> Any:
        result = () if _is_null(part) else next(remaining)
        if part.family == "composite":
            return _insert_nulls(part, result)
        return result if part.family != "null" else None

    return tuple(map(fill, composite.components))


def _drop_nulls(composite: Any, values: Any) -> Any:
    """Return the values of components with data; `values` itself if its length is wrong."""
    parts = composite.components
    if not isinstance(values, tuple | list) or len(values) != len(parts):
        return values
    return [
        _drop_nulls(part, value) if part.family == "composite" else value
        for part, value in zip(parts, values, strict=True)
        if not _is_null(part)
    ]
