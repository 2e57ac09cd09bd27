"""`DataView`: one array, put once and got in any layout and dtype."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..arrays.access import seen
from ..arrays.rows import as_positions, as_window
from ..devices import CPU
from ..errors import ArgumentError, ViewError
from ..spaces import viewing as spaces
from ..spec import DType
from . import display
from .base import View
from .batch import Batch, Gradient
from .gettings import Gettings

__all__ = ["DataView"]


class DataView(View):
    """An array, put once and got in any layout and dtype; gradients come back summed.

    >>> import numpy as np
    >>> view = DataView("bhwc", np.zeros((8, 3, 3, 1)))
    >>> view.forward_get("bf").shape                     # for a dense layer
    (8, 9)
    >>> view.forward_get("bchw", "float32").shape        # for a convolution
    (8, 1, 3, 3)
    >>> view.backward_put("bf", np.ones((8, 9)))
    >>> view.backward_put("bchw", np.ones((8, 1, 3, 3), np.float32))
    >>> view.backward_get().shape, float(view.backward_get().max())
    ((8, 3, 3, 1), 2.0)

    Parameters
    ----------
    layout : str, optional
    array : array, optional
        Of any library. Put at once. Both or neither; without them the view is empty until the
        first put.

    The array is held, not copied, and never written to. Results are made once a batch and shared
    by all who ask; those that nothing has to move for share memory with the array.

    A put drops results and gradients and keeps plans. Several threads may get at once; a put
    beside them is the caller's to order. A refused call leaves the view as it was.
    """

    _own: ClassVar[tuple[str, ...]] = ("b", "bf")
    _max_labels: int | None = None  # what labels are below, where it is known
    _planner: ClassVar[type[Gettings]] = Gettings

    def __init__(self, layout: str | None = None, array: Any = None) -> None:
        self._empty()
        if (layout is None) != (array is None):
            missing = "array" if array is None else "layout"
            raise ArgumentError(f"{missing} is missing; give a layout and an array, or neither")
        if layout is not None:
            self.forward_put(layout, array)

    # -- forward and backward --------------------------------------------------------------

    def forward_put(self, layout: str, array: Any) -> None:
        """Begin a batch: hold `array`, which lies in `layout`, by reference.

        Raises
        ------
        PatternError, ShapeError, DtypeError, ArgumentError
            The layout cannot be read or has no axis b of its own; the rank is another; elements
            cannot be moved; it is no array.
        """
        self._begin(self._checked(layout, array))

    def forward_get(self, layout: Any = None, dtype: Any = None, device: str | None = None) -> Any:
        """The batch in a layout and dtype, by default the base's; made once a batch.

        With a Space in place of the layout it is what the space's `format_as` would make.

        The base's layout and dtype give the array that was put, as it is. Everything else is
        contiguous, and shares memory with it where nothing has to move. Casts are "same_kind".

        Raises
        ------
        ViewError
            Nothing was put yet.
        PatternError, ShapeError, DtypeError, DeviceError
            The base cannot become that, or not with its sizes.
        """
        try:
            return self._results[layout, dtype, device]
        except (KeyError, TypeError):  # not asked in these words yet, or not hashable
            pass
        if spaces.is_space(layout):
            return spaces.get_one(self, layout, dtype, device)
        return self._held().get(layout, dtype, device)

    def backward_put(self, layout: Any, grad: Any) -> None:
        """Add the gradient of a getting of this batch, by reference; every put counts.

        It has the layout, dtype and shape of something that was got, or the base's. An integer
        getting takes any floating gradient.

        Raises
        ------
        ViewError, PatternError, ArgumentError
            Nothing was put yet; the layout cannot be read; the gradient is no array.
        BackwardError
            It belongs to nothing that was got in this batch.
        """
        self._held().add(self._checked_gradient(layout, grad))

    def backward_get(self, layout: str | None = None, dtype: Any = None) -> Any:
        """The sum of all gradients, in the base's layout; the same array until another comes.

        Its dtype is `dtype`, else the base's if that is floating, else what the gradients
        promote to. It may share memory with a gradient that was put: read it, don't write.

        Raises
        ------
        ViewError, BackwardError
            Nothing was put yet; no gradient was; another layout than the base's is asked.
        DtypeError
            `dtype` is not floating, or does not hold the sum.
        """
        batch = self._held()
        return batch.total(batch.check_total(layout, dtype))

    # -- samples ---------------------------------------------------------------------------

    def index(self, indices: Any, out: Self | None = None) -> Self:
        """A view of the samples at `indices`, in their order, with memory of its own.

        Indices are ints as in Python: from 0, negative from the end; repeats are allowed. With
        `out`, that view is put anew and returned: one of the same class, in the same layout or
        empty. What it held before is let go, not written.

        Raises
        ------
        ViewError, ShapeError, ArgumentError
            `out` is another kind of view, or this one; an index is out of range; no ints.
        """
        self._check_out(out)
        return self._fill(out, self._held().picked(as_positions(indices, len(self))))

    def sub(
        self, start: int | None, stop: int | None, out: Self | None = None, copy: bool = True
    ) -> Self:
        """A view of the samples from `start` to before `stop`, as Python slices clip them.

        It has memory of its own, or with `copy=False` is a window: what is written into its
        array is written into this one's. `out` is as for `index`. Raises ViewError, ArgumentError.
        """
        self._check_out(out)
        return self._fill(out, self._held().part(as_window(start, stop, len(self)), copy))

    def _check_out(self, out: Any) -> None:
        """Raise ViewError unless a part of this view can be put into `out`."""
        layout = self._held().plans.layout
        if out is None:
            return
        if type(out) is not type(self) or out is self:
            what = "the view itself" if out is self else f"a {type(out).__name__}"
            raise ViewError(f"out is {what}; give another {type(self).__name__}, or none")
        if out._batch is not None and out._batch.plans.layout != layout:
            raise ViewError(
                f"out is in layout {out._batch.plans.layout}, this view in {layout}; give one in "
                "the same layout, or an empty one"
            )

    def _fill(self, out: Self | None, samples: Any) -> Self:
        """A part of this view's samples in `out`, or in a new view."""
        plans, (array, device) = self._held().plans, seen(samples, "samples")
        view = self._sibling() if out is None else out
        if view._batch is not None and view._batch.plans.fits(plans.layout, array, device):
            plans = view._batch.plans
        view._begin(Batch(samples, array, plans))
        view._inherit(self)
        return view

    def _sibling(self) -> Self:
        """An empty view of the same class, however its `__init__` is called."""
        view = type(self).__new__(type(self))
        view._empty()
        return view

    def _inherit(self, parent: Self) -> None:
        """Take on what a part of `parent` has besides samples."""

    # -- the base --------------------------------------------------------------------------

    def replace(self, layout: str, array: Any) -> None:
        """Make `array`, brought from `layout` to the base's layout, the base; in its own dtype.

        For preprocessing: get, compute, replace. No get is needed, and the number of samples may
        change; where the layout folds axes, their sizes are the base's. Results and gradients
        are dropped. The new base shares memory with `array` where nothing has to move.

        Raises what `forward_get` and `forward_put` do.
        """
        self._begin(self._replacement(layout, array))

    def flush(self) -> None:
        """Forget plans, results and gradients; the base stays and can be got at once."""
        batch = self._held()
        plans = self._planner(self._own, batch.plans.layout, batch.array, batch.plans.device)
        self._begin(Batch(batch.input, batch.array, plans))

    @property
    def input(self) -> Any:
        """The base array; setting it puts another in the base's layout."""
        return self._held().input

    @input.setter  # noqa: A003
    def input(self, array: Any) -> None:
        self.forward_put(self.layout, array)

    @property
    def layout(self) -> str:
        """The base's layout, without blanks."""
        return self._held().plans.layout

    @property
    def dtype(self) -> DType:
        """The base's dtype."""
        return self._held().plans.dtype

    @property
    def device(self) -> str:
        """Where the base is: "cpu", or a GPU such as "cuda:0"."""
        return self._held().plans.device

    def __len__(self) -> int:
        batch = self._held()
        return int(batch.array.shape[batch.plans.batch_axis])

    def converter(self, layout: str | None, dtype: Any = None) -> Any:
        """The Converter of a getting, kept from batch to batch; raises what forward_get does."""
        return self._held().plans.find(layout, dtype, None).mover

    def bf(self, dtype: Any = None) -> Any:
        """The Converter to `bf`: all axes but b folded into one, in the base's order."""
        return self.converter("bf", dtype)

    def b(self, dtype: Any = None) -> Any:
        """The Converter to `b`, of a base whose other axes have size 1."""
        return self.converter("b", dtype)

    # -- inside ----------------------------------------------------------------------------

    def _empty(self) -> None:
        self._batch: Batch | None = None
        self._results: dict[Any, Any] = {}

    def _begin(self, batch: Batch) -> None:
        """Begin a batch that was checked. Cannot fail."""
        self._batch = batch
        self._results = batch.results

    def _held(self) -> Batch:
        if self._batch is None:
            raise ViewError(
                f"this {type(self).__name__} holds no batch yet; call forward_put(layout, array)"
            )
        return self._batch

    def _check_get(self, layout: Any, dtype: Any, device: Any) -> None:
        """Raise what a get would, before anything is made."""
        if spaces.is_space(layout):
            spaces.layout_of(spaces.source_of(self), layout)
        else:
            self._held().plans.find(layout, dtype, device)

    def _checked_gradient(self, layout: Any, grad: Any) -> Gradient:
        if spaces.is_space(layout):
            return spaces.gradient_of_one(self, layout, grad)
        return self._held().check_gradient(layout, grad)

    def _checked(self, layout: Any, array: Any) -> Batch:
        found, device = (array, CPU) if type(array) is np.ndarray else seen(array, "array")
        plans = None if self._batch is None else self._batch.plans
        if plans is None or not plans.fits(layout, found, device):
            plans = self._planner(self._own, layout, found, device)
        return Batch(array, found, plans)

    def _replacement(self, layout: Any, array: Any) -> Batch:
        plans, (found, _) = self._held().plans, seen(array, "array")
        back = plans.back(layout)
        plain = found if isinstance(array, np.ndarray) else array
        return self._checked(plans.layout, array if back is None else back(plain))

    def __getstate__(self) -> dict[str, Any]:
        # Results and gradients are one view's: copies, also in other processes, begin anew.
        base = None if self._batch is None else (self.layout, self.input)
        return {**self.__dict__, "_batch": None, "_results": {}, "base": base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        base = state.pop("base")
        self.__dict__.update(state)
        if base is not None:
            self.forward_put(*base)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({display.line(self._batch, self._note())})"

    def _repr_html_(self) -> str:
        return display.table(type(self).__name__, self._batch, self._note())

    def _note(self) -> str:
        """What a reader should know besides the batch."""
        return ""
