"""What a view asks a space that stands in the place of a layout (see views/forms.py).

A space of images or vectors that is only a layout and a dtype is got as that (a vector of images
through `b(hwc)`), so that it is one array with what was got by layout, and its gradients are summed
in one pass with all others. Everything else is `format_as` there and `undo_format_as` back, at the
put of a gradient. A ListView is asked component by component for a composite, and joined for all
else.
"""

from __future__ import annotations

from typing import Any

from ..cuda.runtime import check_device
from ..devices import CPU
from ..errors import BackwardError, DeviceError, LayoutkitError, SpaceError
from ..nested import each_leaf, leaves, matched, rebuilt
from ..spec import as_dtype, kind_of
from ..views import ListView
from ..views.batch import Gradient
from ..views.forms import gradient_for
from ..views.lists import nest_of
from .routes import route
from .viewing import batch_of, in_base_layout, space_of

__all__ = ["check_from", "get_from", "gradients_for"]


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
