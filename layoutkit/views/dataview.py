"""`DataView`: one array, put once and got in any layout and dtype.

It knows its batch and how batches are planned; what its kinds have besides is for them to say, and
what a form makes of it (see forms.py) for the form.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..arrays.rows import as_positions, as_window
from ..compilation import is_followed
from ..devices import CPU
from ..errors import ArgumentError, DeviceError
from ..formulas import formula_of
from ..memory import Array
from ..spec import DType
from . import display, followed
from .batch import HeldBatch
from .forms import gradient_for, is_form, refuse_how
from .getting import PLAIN, How
from .holder import Holder

__all__ = ["DataView"]


class DataView(Holder):
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

    The array is held, not copied, and never written to. Results are made once a batch and shared
    by all who ask; those that nothing has to move for share memory with the array.

    A put drops results and gradients and keeps plans. Several threads may get at once; a put
    beside them is the caller's to order. A refused call leaves the view as it was.

    Parameters
    ----------
    layout : str, optional
    array : array, optional
        Of any library. Put at once. Both or neither; without them the view is empty until the
        first put.
    """

    _own: ClassVar[tuple[str, ...]] = ("b", "bf")

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
        self.begin(self.prepare(layout, array))

    def forward_get(
        self, layout: Any = None, dtype: Any = None, device: str | None = None, *,
        scale: Any = None, mean: Any = None, std: Any = None, clip: Any = None,
        memory: str | None = None,
    ) -> Any:  # fmt: skip
        """The batch in a layout and dtype, by default the base's; made once a batch.

        With a Form such as a Space in place of the layout it is what that makes of the batch.
        `scale`, `mean`, `std`, `clip` and `memory` are those of `convert`, in the same pass.

        The base's layout and dtype give the array that was put, as it is. Everything else is
        contiguous, and shares memory with it where nothing has to move. Casts are "same_kind".

        Raises
        ------
        ViewError
            Nothing was put yet.
        PatternError, ShapeError, DtypeError, DeviceError
            The base cannot become that, or not with its sizes.
        """
        how, words = PLAIN, (layout, dtype, device)
        if not (scale is mean is std is clip is memory is None):
            if is_followed():
                return followed.get(
                    self._batch, layout, dtype, device,
                    scale=scale, mean=mean, std=std, clip=clip, memory=memory,
                )  # fmt: skip
            how = How(formula_of(scale, mean, std, clip), memory)
            words = (layout, dtype, device, how)  # type: ignore[assignment]
        try:
            return self._results[words]
        except (KeyError, TypeError):  # not asked in these words yet, or not hashable
            pass
        if is_followed():
            return followed.get(self._batch, layout, dtype, device)
        if is_form(layout):
            refuse_how(layout, how)
            found = layout.get_from(self, dtype, device)
            self.batch.remember(words, found)
            return found
        return self.batch.get(layout, dtype, device, how)

    def backward_put(
        self, layout: Any, grad: Any, *,
        scale: Any = None, mean: Any = None, std: Any = None, clip: Any = None,
    ) -> None:  # fmt: skip
        """Add the gradient of a getting of this batch, by reference; every put counts.

        It has the layout, dtype and shape of something that was got, or the base's. An integer
        getting takes any floating gradient. What was got with a formula scales it; where the same
        layout and dtype were got with several, `scale`, `mean`, `std` and `clip` say which.

        Raises
        ------
        ViewError, PatternError, ArgumentError
            Nothing was put yet; the layout cannot be read; the gradient is no array.
        BackwardError
            It belongs to nothing that was got in this batch.
        """
        self.batch.add(gradient_for(self, layout, grad, formula_of(scale, mean, std, clip)))

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
        batch = self.batch
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
        self.check_out(out)
        return self.of_same_kind(self.batch.picked(as_positions(indices, len(self))), out)

    def sub(
        self, start: int | None, stop: int | None, out: Self | None = None, copy: bool = True
    ) -> Self:
        """A view of the samples from `start` to before `stop`, as Python slices clip them.

        It has memory of its own, or with `copy=False` is a window: what is written into its
        array is written into this one's. `out` is as for `index`. Raises ViewError, ArgumentError.
        """
        self.check_out(out)
        return self.of_same_kind(self.batch.part(as_window(start, stop, len(self)), copy), out)

    # -- the base --------------------------------------------------------------------------

    def replace(self, layout: str, array: Any) -> None:
        """Make `array`, brought from `layout` to the base's layout, the base; in its own dtype.

        For preprocessing: get, compute, replace. No get is needed, and the number of samples may
        change; where the layout folds axes, their sizes are the base's. Results and gradients
        are dropped. The new base shares memory with `array` where nothing has to move.

        Raises what `forward_get` and `forward_put` do.
        """
        self.begin(self.prepare(self.layout, self.batch.brought(layout, array)))

    def flush(self) -> None:
        """Forget plans, results and gradients; the base stays and can be got at once."""
        batch = self.batch
        plans = self._planner(self._own, batch.plans.layout, batch.array, batch.plans.device)
        self.begin(HeldBatch(batch.input, batch.array, plans))

    @property
    def input(self) -> Any:
        """The base array; setting it puts another in the base's layout."""
        return self.batch.input

    @input.setter  # noqa: A003
    def input(self, array: Any) -> None:
        self.forward_put(self.layout, array)

    @property
    def layout(self) -> str:
        """The base's layout, without blanks."""
        return self.batch.plans.layout

    @property
    def dtype(self) -> DType:
        """The base's dtype."""
        return self.batch.plans.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The base's shape."""
        return tuple(self.batch.array.shape)

    @property
    def device(self) -> str:
        """Where the base is: "cpu", or a GPU such as "cuda:0"."""
        return self.batch.plans.device

    @property
    def max_labels(self) -> int | None:
        """What all labels in the base are below, where it holds labels and that is known."""
        return self._max_labels

    def __len__(self) -> int:
        return len(self.batch)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The base as a NumPy array, by NumPy's protocol: its own memory where the CPU reaches it.

        Raises
        ------
        ViewError, DeviceError
            Nothing was put yet; the base is on a GPU.
        ValueError
            `copy` is False, and another dtype needs a copy.
        """
        batch = self.batch
        if batch.plans.device != CPU:
            raise DeviceError(
                f"this {type(self).__name__} is on {batch.plans.device}, which NumPy does not "
                'reach; get it with view.forward_get(device="cpu")'
            )
        return np.array(batch.array, dtype, copy=copy)

    def converter(self, layout: str | None, dtype: Any = None) -> Any:
        """The Converter of a getting, kept from batch to batch; raises what forward_get does."""
        return self.batch.plans.find(layout, dtype, None).mover

    def bf(self, dtype: Any = None) -> Any:
        """The Converter to `bf`: all axes but b folded into one, in the base's order."""
        return self.converter("bf", dtype)

    def b(self, dtype: Any = None) -> Any:
        """The Converter to `b`, of a base whose other axes have size 1."""
        return self.converter("b", dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({display.line(self._batch, self._note())})"

    def _repr_html_(self) -> str:
        return display.table(type(self).__name__, self._batch, self._note())

    def _note(self) -> str:
        """What a reader should know besides the batch."""
        return ""
