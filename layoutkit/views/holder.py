"""`Holder`: how a view of one array holds its batch, from one put to the next.

Views of views put, get and part their components through this. It knows how a batch is begun and
with which plans; not what is asked of it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..arrays.access import based, seen
from ..compilation import is_followed
from ..devices import CPU
from ..errors import ViewError
from .base import View
from .batch import HeldBatch
from .followed import FollowedBatch
from .gettings import Gettings

__all__ = ["Holder"]


class Holder(View):
    """A view of one array; a kind of them says its `_own` layouts, `_planner` and `_inherit`."""

    _own: ClassVar[tuple[str, ...]]
    _planner: ClassVar[type[Gettings]] = Gettings
    _max_labels: int | None = None
    _batch: HeldBatch | None
    _results: dict[Any, Any]  # of the batch, so that a get looks at once

    @property
    def batch(self) -> HeldBatch:
        """What is held from one put to the next: the base, its results and gradients."""
        if self._batch is None:
            raise ViewError(
                f"this {type(self).__name__} holds no batch yet; call forward_put(layout, array)"
            )
        if isinstance(self._batch, FollowedBatch) and not is_followed():
            self.begin(self.prepare(self._batch.layout, self._batch.input))
        return self._batch

    @property
    def is_empty(self) -> bool:
        """Whether nothing was put yet."""
        return self._batch is None

    def prepare(self, layout: Any, array: Any) -> HeldBatch:
        """The batch that a put would begin, checked; the view is as it was.

        Its plans are those of the view's last batch where they fit, else new ones.
        """
        if type(array) is np.ndarray:
            found, device = array, CPU
        elif is_followed():
            return FollowedBatch(layout, array)  # type: ignore[return-value]
        else:
            found, device = seen(array, "array")
            array = based(array, found)
        plans = getattr(self._batch, "plans", None)
        if plans is None or not plans.fits(layout, found, device):
            plans = self._planner(self._own, layout, found, device)
        return HeldBatch(array, found, plans)

    def begin(self, batch: HeldBatch) -> None:
        """Begin a batch that was prepared. Cannot fail."""
        self._batch = batch
        self._results = batch.results

    def of_same_kind(self, array: Any, out: Self | None = None) -> Self:
        """A view of this class, in this layout, of `array`: samples as this view holds them.

        It has what this view has besides samples (classes) and shares its plans, or keeps those of
        `out`, so that nothing is planned anew. `__init__` is not called. `out`, which `check_out`
        let pass, is put anew.
        """
        plain = type(array) is np.ndarray
        plans, (found, device) = self.batch.plans, (array, CPU) if plain else seen(array, "samples")
        view = self._blank() if out is None else out
        if view._batch is not None and view._batch.plans.fits(plans.layout, found, device):
            plans = view._batch.plans
        view.begin(HeldBatch(array, found, plans))
        view._inherit(self)
        return view

    def _blank(self) -> Self:
        """An empty view of the same class, however its `__init__` is called."""
        view = type(self).__new__(type(self))
        view._empty()
        return view

    def _inherit(self, parent: Self) -> None:
        """Take on what samples of `parent` have besides."""
        self._max_labels = parent._max_labels

    def check_out(self, out: Any) -> None:
        """Raise ViewError unless samples of this view can be put into `out`; None is a new view."""
        if out is None:
            return
        if type(out) is not type(self) or out is self:
            what = "the view itself" if out is self else f"a {type(out).__name__}"
            raise ViewError(f"out is {what}; give another {type(self).__name__}, or none")
        if not out.is_empty and out.layout != self.layout:
            raise ViewError(
                f"out is in layout {out.layout}, this view in {self.layout}; give one in the same "
                "layout, or an empty one"
            )

    def _empty(self) -> None:
        self._batch, self._results = None, {}

    def __getstate__(self) -> dict[str, Any]:
        # Results and gradients are one view's: copies, also in other processes, begin anew.
        base = None if self._batch is None else (self.layout, self.input)
        return {**self.__dict__, "_batch": None, "_results": {}, "base": base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        base = state.pop("base")
        self.__dict__.update(state)
        if base is not None:
            self.forward_put(*base)
