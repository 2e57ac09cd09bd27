"""Forms: what may stand in the place of a layout and knows itself how a batch is brought into it.

A layout is text, and a view reads it. Anything else that a view is asked for is a `Form`, and the
view asks IT: this knows of no form but its methods, and nothing of what forms are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from ..errors import ArgumentError
from .getting import PLAIN, How

if TYPE_CHECKING:
    from .base import View
    from .batch import Gradient

__all__ = ["Form", "check_get", "gradient_for", "is_form", "refuse_how"]


class Form(Protocol):
    """What a view can be got in, and takes gradients of, besides its layouts."""

    def check_from(self, view: View, dtype: Any, device: Any) -> None:
        """Raise what `get_from` would, before anything is made."""

    def get_from(self, view: View, dtype: Any, device: Any) -> Any:
        """The view's batch in this form; made once a batch."""

    def gradients_for(self, view: View, grad: Any) -> list[Gradient]:
        """What a gradient in this form is to each array of the view; raises if it is to none."""


def is_form(layout: Any) -> TypeGuard[Form]:
    """Whether what stands in the place of a layout is a form."""
    # Text is asked for most. Of the type, since a class of forms has these names too and is none.
    return not isinstance(layout, str) and hasattr(type(layout), "gradients_for")


def refuse_how(form: Form, how: How) -> None:
    """Raise ArgumentError where of a form more is asked than that."""
    if how != PLAIN:
        raise ArgumentError(
            f"scale, mean, std, clip and memory are for layouts, and {form!r} is none; get the "
            "layout with them and put that into a view of its own"
        )


def check_get(view: Any, layout: Any, dtype: Any, device: Any) -> None:
    """Raise what a get from a view of one array would, before anything is made."""
    if is_form(layout):
        layout.check_from(view, dtype, device)
    else:
        view.batch.plans.find(layout, dtype, device)


def gradient_for(view: Any, layout: Any, grad: Any, formula: Any = None) -> Gradient:
    """The gradient of a view of one array, checked."""
    if not is_form(layout):
        return view.batch.check_gradient(layout, grad, formula)  # type: ignore[no-any-return]
    refuse_how(layout, How(formula))
    [found] = layout.gradients_for(view, grad)
    return found
