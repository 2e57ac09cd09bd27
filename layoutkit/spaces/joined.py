"""ListViews by space: component by component, or all components joined in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import SpaceError
from . import viewing as spaces

if TYPE_CHECKING:
    from ..views.lists import ListView

__all__ = ["get", "put"]


def get(view: ListView, space: Any, dtype: Any, device: Any) -> Any:
    """The batch of a ListView as a batch of a space."""
    if space.family == "composite":
        wanted = each_component(space, view)
        return filled(space, view.forward_get(wanted, dtype, device))
    base = view._nested(spaces.as_batch(leaf) for leaf in view._leaves)
    return spaces.get(kept(view), source_of(view), base, space, dtype, device)


def put(view: ListView, space: Any, grad: Any) -> None:
    """Add the gradient of what was got by a space, taken apart for the components."""
    if space.family == "composite":
        return view.backward_put(each_component(space, view), without_null(space, grad))
    dtypes = view._nested(leaf._held().plans.gradient_dtype for leaf in view._leaves)
    made = spaces.gradient(kept(view), source_of(view), space, grad, dtypes)
    held = [leaf._held() for leaf in view._leaves]
    parts = zip(held, view._arrays(made), strict=True)
    view._add([(batch.plans.base, spaces.in_base_layout(batch, part)) for batch, part in parts])
    return None


def source_of(view: ListView) -> Any:
    """The CompositeSpace that the bases are a batch of."""
    found = view._each(lambda leaf, _: spaces.source_of(leaf), view._leaves)
    return composite_of(view._nested(found))


def kept(view: ListView) -> dict[Any, Any]:
    """What was got of all components joined, as long as they hold the same batches."""
    batches = [leaf._batch for leaf in view._leaves]
    before, results = view._joined
    if list(map(id, before)) != list(map(id, batches)):
        results = {}
        view._joined = batches, results
    return results


def composite_of(parts: Any) -> Any:
    """The CompositeSpace of spaces in nested tuples."""
    from .. import spaces

    return spaces.CompositeSpace(
        tuple(composite_of(part) if isinstance(part, tuple) else part for part in parts)
    )


def each_component(composite: Any, view: Any) -> list[Any]:
    """The spaces of a composite for the components of a ListView; NullSpaces have none there."""
    found = [part for part in composite.components if not _is_null(part)]
    if len(found) != len(view.components):
        raise SpaceError(
            f"{composite!r} has {len(found)} components with data, the ListView "
            f"{len(view.components)}; give a composite that nests as the views do"
        )
    pairs = zip(found, view.components, strict=True)
    return [_of_component(part, inner) for part, inner in pairs]


def _of_component(part: Any, view: Any) -> Any:
    if (part.family == "composite") != hasattr(view, "components"):
        raise SpaceError(
            f"{part!r} is asked of a {type(view).__name__}; give a composite that nests as the "
            "views do"
        )
    return each_component(part, view) if part.family == "composite" else part


def _is_null(space: Any) -> bool:
    if space.family == "composite":
        return all(map(_is_null, space.components))
    return bool(space.family == "null")


def filled(composite: Any, results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Results of the components with data, and None (nested) for the others."""
    rest = iter(results)

    def fill(part: Any) -> Any:
        if not _is_null(part):
            found = next(rest)
            return filled(part, found) if part.family == "composite" else found
        return filled(part, ()) if part.family == "composite" else None

    return tuple(map(fill, composite.components))


def without_null(composite: Any, values: Any) -> Any:
    """Values of the components with data; what is no tuple of the right length is left as it is."""
    parts = composite.components
    if not isinstance(values, tuple | list) or len(values) != len(parts):
        return values
    return [
        without_null(part, value) if part.family == "composite" else value
        for part, value in zip(parts, values, strict=True)
        if not _is_null(part)
    ]
