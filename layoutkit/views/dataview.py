"""`SingleArrayView`: how a view of one array holds its batch, from one put to the next.

Views of views put, get and part their components through this. It knows how a batch is begun and
with which plans; not what is asked of it.

`DataView`: one array, put once and got in any layout and dtype.

It knows its batch and how batches are planned; what its kinds have besides is for them to say, and
what a form makes of it (see forms.py) for the form.

`ImageView`: pictures and volumes.

`SequenceView`: sequences of vectors.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from .._compile import is_followed
from ..backends.indexing import as_positions, normalize_slice
from ..backends.inspection import seen, unwrap_container
from ..errors import ArgumentError, DeviceError, ViewError
from ..memory import Array
from ..normalize import formula_of
from ..spec import CPU, DType
from . import batch as followed
from . import display
from .base import View, check_default_options, gradient_for, is_view_target
from .batch import BatchState, CompiledBatch
from .plans import DEFAULT_OPTIONS, ConversionCache, ConversionOptions


class SingleArrayView(View):
    """A view of one array; a kind of them says its `_named_layouts` layouts, `_cache_type` and `_copy_state`."""

    _named_layouts: ClassVar[tuple[str, ...]]
    _cache_type: ClassVar[type[ConversionCache]] = ConversionCache
    _max_labels: int | None = None
    _batch: BatchState | None
    _results: dict[Any, Any]  # of the batch, so that a get looks at once

    @property
    def batch(self) -> BatchState:
        """What is held from one put to the next: the base, its results and gradients."""
        if self._batch is None:
            raise ViewError(
                f"this {type(self).__name__} holds no batch yet; call forward_put(layout, array)"
            )
        if isinstance(self._batch, CompiledBatch) and not is_followed():
            self.begin(self.prepare(self._batch.layout, self._batch.input))
        return self._batch

    @property
    def is_empty(self) -> bool:
        """Whether nothing was put yet."""
        return self._batch is None

    def prepare(self, layout: Any, array: Any) -> BatchState:
        """The batch that a put would begin, checked; the view is as it was.

        Its plans are those of the view's last batch where they fit, else new ones.
        """
        if type(array) is np.ndarray:
            found, device = array, CPU
        elif is_followed():
            return CompiledBatch(layout, array)  # type: ignore[return-value]
        else:
            found, device = seen(array, "array")
            array = unwrap_container(array, found)
        plans = getattr(self._batch, "plans", None)
        if plans is None or not plans.fits(layout, found, device):
            plans = self._cache_type(self._named_layouts, layout, found, device)
        return BatchState(array, found, plans)

    def begin(self, batch: BatchState) -> None:
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
        view = self._new_empty() if out is None else out
        if view._batch is not None and view._batch.plans.fits(plans.layout, found, device):
            plans = view._batch.plans
        view.begin(BatchState(array, found, plans))
        view._copy_state(self)
        return view

    def _new_empty(self) -> Self:
        """An empty view of the same class, however its `__init__` is called."""
        view = type(self).__new__(type(self))
        view._clear()
        return view

    def _copy_state(self, parent: Self) -> None:
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

    def _clear(self) -> None:
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


class DataView(SingleArrayView):
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

    _named_layouts: ClassVar[tuple[str, ...]] = ("b", "bf")

    def __init__(self, layout: str | None = None, array: Any = None) -> None:
        self._clear()
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
        how, words = DEFAULT_OPTIONS, (layout, dtype, device)
        if not (scale is mean is std is clip is memory is None):
            if is_followed():
                return followed.get(
                    self._batch, layout, dtype, device,
                    scale=scale, mean=mean, std=std, clip=clip, memory=memory,
                )  # fmt: skip
            how = ConversionOptions(formula_of(scale, mean, std, clip), memory)
            words = (layout, dtype, device, how)  # type: ignore[assignment]
        try:
            return self._results[words]
        except (KeyError, TypeError):  # not asked in these words yet, or not hashable
            pass
        if is_followed():
            return followed.get(self._batch, layout, dtype, device)
        if is_view_target(layout):
            check_default_options(layout, how)
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
        return batch.gradient_sum(batch.check_sum_dtype(layout, dtype))

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
        return self.of_same_kind(self.batch.take_samples(as_positions(indices, len(self))), out)

    def sub(
        self, start: int | None, stop: int | None, out: Self | None = None, copy: bool = True
    ) -> Self:
        """A view of the samples from `start` to before `stop`, as Python slices clip them.

        It has memory of its own, or with `copy=False` is a window: what is written into its
        array is written into this one's. `out` is as for `index`. Raises ViewError, ArgumentError.
        """
        self.check_out(out)
        return self.of_same_kind(
            self.batch.part(normalize_slice(start, stop, len(self)), copy), out
        )

    # -- the base --------------------------------------------------------------------------

    def replace(self, layout: str, array: Any) -> None:
        """Make `array`, brought from `layout` to the base's layout, the base; in its own dtype.

        For preprocessing: get, compute, replace. No get is needed, and the number of samples may
        change; where the layout folds axes, their sizes are the base's. Results and gradients
        are dropped. The new base shares memory with `array` where nothing has to move.

        Raises what `forward_get` and `forward_put` do.
        """
        self.begin(self.prepare(self.layout, self.batch.to_base_layout(layout, array)))

    def flush(self) -> None:
        """Forget plans, results and gradients; the base stays and can be got at once."""
        batch = self.batch
        plans = self._cache_type(
            self._named_layouts, batch.plans.layout, batch.array, batch.plans.device
        )
        self.begin(BatchState(batch.input, batch.array, plans))

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
        return self.batch.plans.find(layout, dtype, None).converter

    def bf(self, dtype: Any = None) -> Any:
        """The Converter to `bf`: all axes but b folded into one, in the base's order."""
        return self.converter("bf", dtype)

    def b(self, dtype: Any = None) -> Any:
        """The Converter to `b`, of a base whose other axes have size 1."""
        return self.converter("b", dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({display.summary_line(self._batch, self._note())})"

    def _repr_html_(self) -> str:
        return display.html_table(type(self).__name__, self._batch, self._note())

    def _note(self) -> str:
        """What a reader should know besides the batch."""
        return ""


class ImageView(DataView):
    """A batch of pictures, `bhwc`, `bchw` or `chwb`, or of volumes, `bdhwc` or `bcdhw`.

    >>> import numpy as np
    >>> view = ImageView("bhwc", np.zeros((8, 32, 24, 3), np.uint8))
    >>> view.forward_get("bchw", "float32").shape
    (8, 3, 32, 24)
    >>> view.bchw().backward(np.ones((8, 3, 32, 24), np.float32)).shape
    (8, 32, 24, 3)

    Pictures without channels, such as `bhw`, get an axis c of size 1 where it is asked for.
    Everything else is as for `DataView`.
    """

    _named_layouts: ClassVar = ("b", "bf", "bhwc", "bchw", "chwb", "bdhwc", "bcdhw")

    def bhwc(self, dtype: Any = None) -> Any:
        """The Converter to `bhwc`, as decoders give pictures and most Python tools take them."""
        return self.converter("bhwc", dtype)

    def bchw(self, dtype: Any = None) -> Any:
        """The Converter to `bchw`, for most convolutions."""
        return self.converter("bchw", dtype)

    def chwb(self, dtype: Any = None) -> Any:
        """The Converter to `chwb`, for convolutions that run along the batch."""
        return self.converter("chwb", dtype)

    def bdhwc(self, dtype: Any = None) -> Any:
        """The Converter to `bdhwc`: volumes, channels last."""
        return self.converter("bdhwc", dtype)

    def bcdhw(self, dtype: Any = None) -> Any:
        """The Converter to `bcdhw`: volumes, channels first."""
        return self.converter("bcdhw", dtype)


class SequenceView(DataView):
    """A batch of sequences of width w with c channels: `bwc` or `bcw`.

    >>> import numpy as np
    >>> view = SequenceView("bwc", np.zeros((8, 2, 5)))     # 8 contexts of 2 words, embedded in 5
    >>> view.forward_get("bcw").shape, view.forward_get("bf").shape
    ((8, 5, 2), (8, 10))

    Everything else is as for `DataView`.

    Parameters
    ----------
    layout, array
        As for `DataView`.
    max_labels : int, optional
        What all numbers are below, where they are labels: only spaces ask. Parts have it too.
    """

    _named_layouts: ClassVar = ("b", "bf", "bwc", "bcw")

    def __init__(
        self, layout: str | None = None, array: Any = None, max_labels: int | None = None
    ) -> None:
        self._max_labels = max_labels
        super().__init__(layout, array)

    def bwc(self, dtype: Any = None) -> Any:
        """The Converter to `bwc`: the channels of one place side by side."""
        return self.converter("bwc", dtype)

    def bcw(self, dtype: Any = None) -> Any:
        """The Converter to `bcw`: the places of one channel side by side."""
        return self.converter("bcw", dtype)
