"""Getting and putting gradients by space: a Space in the place of a layout.

A space of images or vectors that is only a layout and a dtype is got as that (a vector of images
through `b(hwc)`), so that it is one array with what was got by layout, and its gradients are summed
in one pass with all others. Everything else is `format_as` there and `undo_format_as` back, at the
put of a gradient.

Spaces are imported by whoever passes one in, never here before that.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..arrays.libraries import library_of
from ..arrays.symbolic import Symbolic
from ..cuda.runtime import check_device
from ..devices import CPU
from ..errors import BackwardError, DeviceError, LayoutkitError, SpaceError
from ..spec import as_dtype, kind_of

if TYPE_CHECKING:
    from ..views.batch import Batch, Gradient
    from . import Space

__all__ = [
    "as_batch",
    "get",
    "get_one",
    "gradient",
    "gradient_of_one",
    "in_base_layout",
    "is_space",
    "layout_of",
    "source_of",
]


def is_space(value: Any) -> bool:
    """Whether a value is a Space."""
    module = sys.modules.get("layoutkit.spaces")
    return module is not None and isinstance(value, module.Space)


def layout_of(source: Any, other: Any) -> str | None:
    """The layout that a space comes down to, None where it is more than that.

    Raises SpaceError where batches of `source` never become batches of `other`.
    """
    from .routes import route

    route(source, other, "same_kind", False)
    if getattr(other, "sparse", False):
        return None
    if source.family == "conv2d":
        return str(other.layout) if other.family == "conv2d" else "b(hwc)"
    return "bf" if source.family == other.family == "vector" else None


def source_of(view: Any) -> Space:
    """The space, of any dtype, that a view's base is a batch of; SpaceError if there is none."""
    from .. import spaces

    batch = view._held()
    layout, shape = batch.plans.layout, batch.array.shape
    size = dict(zip(layout, shape, strict=False))
    if sorted(layout) == sorted("bhwc"):
        return spaces.Conv2DSpace((size["h"], size["w"]), size["c"], layout, None)
    if layout == "bf":
        return spaces.VectorSpace(size["f"], dtype=None)
    if layout in ("b", "bt", "tb") and view._max_labels is not None:
        return spaces.IndexSpace(view._max_labels, size.get("t", 1), None)
    if layout == "bwc" and size["b"] == 1:
        if view._max_labels is None:
            return spaces.VectorSequenceSpace(size["c"], None)
        return spaces.IndexSequenceSpace(view._max_labels, size["c"], None)
    raise SpaceError(
        f"a {type(view).__name__} in {layout} is a batch of no space; get it by layout, or put "
        "images (bhwc in any order), vectors (bf), labels with classes (b, bt) or one sequence "
        "(bwc)"
    )


def as_batch(view: Any) -> Any:
    """The base as its space has it: one sequence, or labels as a matrix (b, dim)."""
    batch = view._held()
    if batch.plans.device != CPU:
        raise DeviceError(
            f"this {type(view).__name__} is on {batch.plans.device}, where no space is got that is "
            'more than a layout and a dtype; get it with device="cpu" first'
        )
    # Frameworks' own arrays are converted in their words; of others only the memory is known.
    symbolic = isinstance(library_of(batch.input), Symbolic)
    x, layout = batch.input if symbolic else batch.array, batch.plans.layout
    if layout == "bwc":
        return x[0]
    return {"b": lambda: x[:, None], "tb": lambda: x.T}.get(layout, lambda: x)()


def get_one(view: Any, space: Any, dtype: Any, device: Any) -> Any:
    """The base of a view of one array as a batch of a space."""
    batch, source = view._held(), source_of(view)
    layout = layout_of(source, space)
    if layout is not None:
        found = batch.get(layout, space.dtype if dtype is None else dtype, device)
    else:
        found = get(batch.by_space, source, as_batch(view), space, dtype, device)
    batch.remember(space, dtype, device, found)
    return found


def gradient_of_one(view: Any, space: Any, grad: Any) -> Gradient:
    """What a gradient belongs to: what was got by that space, or its share of the base."""
    batch, source = view._held(), source_of(view)
    layout = layout_of(source, space)
    if layout is not None:
        found: Gradient = batch.check_gradient(layout, grad)
        return found
    made = gradient(batch.by_space, source, space, grad, batch.plans.gradient_dtype)
    return batch.plans.base, in_base_layout(batch, made)


def get(kept: dict[Any, Any], source: Any, base: Any, space: Any, dtype: Any, device: Any) -> Any:
    """A base of `source` as a batch of another space; made once, and `kept` by that space."""
    if check_device(device) != CPU:
        raise DeviceError(
            f"{space!r} is more than a layout and a dtype, and is made on the CPU; get it without "
            f'device= and bring it over with convert(..., device="{device}")'
        )
    other = space if dtype is None else space.with_dtype(dtype)
    found = kept.get(other)
    if found is None:
        found = kept.setdefault(other, source.format_as(base, other))
    return found


def gradient(kept: dict[Any, Any], source: Any, space: Any, grad: Any, dtype: Any) -> Any:
    """The gradient of a base of `source`, in `dtype`, for that of something in `kept`.

    Raises BackwardError where nothing was got in that space in this batch, or nothing that has a
    gradient.
    """
    plain = space.with_dtype(None)
    for other, result in kept.items():
        if other.with_dtype(None) == plain and _fits(result, grad):
            try:
                return source.with_dtype(dtype).undo_format_as(grad, plain)
            except LayoutkitError as error:
                raise BackwardError(f"a gradient put as {space!r}: {error}") from None
    raise BackwardError(
        f"a gradient was put as {space!r}, but it belongs to no getting of this batch; get what a "
        f"gradient is for before putting it (got by space: {list(kept) or 'nothing'})"
    )


def _fits(result: Any, grad: Any) -> bool:
    """Whether a gradient has the floating dtypes of a result, or the result has none."""
    if isinstance(result, tuple):
        same = isinstance(grad, tuple) and len(grad) == len(result)
        return same and all(map(_fits, result, grad))
    if result is None or not hasattr(grad, "dtype") or kind_of(grad.dtype) not in "fc":
        return result is grad
    return as_dtype(grad.dtype) == as_dtype(result.dtype) or kind_of(result.dtype) in "bui"


def in_base_layout(batch: Batch, made: Any) -> Any:
    """A gradient as the base lies: of one sequence, or of labels in a matrix."""
    layout = batch.plans.layout
    if layout == "bwc":
        return made[None]
    return {"b": lambda: made[:, 0], "tb": lambda: made.T}.get(layout, lambda: made)()
