"""Views of one array: `DataView`, `ImageView` (images and volumes) and `SequenceView`.

`SingleArrayView` holds the current batch; other modules put, get and slice the components of a
ListView through it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from .._compile import is_compiling
from .._utils.indexing import normalize_indices, normalize_slice
from ..backends.inspection import inspect_array, unwrap_container
from ..errors import ArgumentError, DeviceError, ViewError
from ..memory import Array
from ..normalize import find_normalization
from ..spec import CPU, DType
from . import batch as followed
from . import display
from .base import View, check_default_options, gradient_for, is_view_target
from .batch import BatchState, CompiledBatch
from .plans import DEFAULT_OPTIONS, ConversionCache, ConversionOptions


class SingleArrayView(View):
    """A view of one array. Subclasses set `_named_layouts`, `_cache_type` and `_copy_state`."""

    _named_layouts: ClassVar[tuple[str, ...]]
    _cache_type: ClassVar[type[ConversionCache]] = ConversionCache
    _max_labels: int | None = None
    _batch: BatchState | None
    _results: dict[Any, Any]  # the batch's results, for a fast lookup

    @property
    def batch(self) -> BatchState:
        """The state of the current batch: the base, its results and gradients."""
        if self._batch is None:
            raise ViewError(
                f"this {type(self).__name__} holds no batch yet; call forward_put(layout, array)"
            )
        if isinstance(self._batch, CompiledBatch) and not is_compiling():
            self.begin(self.prepare(self._batch.layout, self._batch.input))
        return self._batch

    @property
    def is_empty(self) -> bool:
        """True if nothing was put yet."""
        return self._batch is None

    def prepare(self, layout: Any, array: Any) -> BatchState:
        """Return the validated batch that a put would begin; the view is not changed.

        It uses the plans of the view's last batch if they fit, else new ones.
        """
        if type(array) is np.ndarray:
            plain = array
            device = CPU
        elif is_compiling():
            return CompiledBatch(layout, array)  # type: ignore[return-value]
        else:
            plain, device = inspect_array(array, "array")
            array = unwrap_container(array, plain)
        plans = getattr(self._batch, "plans", None)
        if plans is None or not plans.fits(layout, plain, device):
            plans = self._cache_type(self._named_layouts, layout, plain, device)
        return BatchState(array, plain, plans)

    def begin(self, batch: BatchState) -> None:
        """Begin a batch that was prepared. Cannot fail."""
        self._batch = batch
        self._results = batch.results

    def with_samples(self, array: Any, out: Self | None = None) -> Self:
        """Return a view of this class and layout of `array`, samples in this view's layout.

        The view has this one's other state (classes) and shares its plans, or keeps `out` and its
        plans, so that nothing is planned again. `__init__` is not called. `out`, if given, was
        accepted by `check_out` and begins a new batch.
        """
        is_ndarray = type(array) is np.ndarray
        plans = self.batch.plans
        (info, device) = (array, CPU) if is_ndarray else inspect_array(array, "samples")
        view = self._new_empty() if out is None else out
        if view._batch is not None and view._batch.plans.fits(plans.layout, info, device):
            plans = view._batch.plans
        view.begin(BatchState(array, info, plans))
        view._copy_state(self)
        return view

    def _new_empty(self) -> Self:
        """Return an empty view of this class, whatever the arguments of its `__init__`."""
        view = type(self).__new__(type(self))
        view._clear()
        return view

    def _copy_state(self, parent: Self) -> None:
        """Copy subclass state (such as classes) from `parent`."""
        self._max_labels = parent._max_labels

    def check_out(self, out: Any) -> None:
        """Raise ViewError unless samples of this view can be put into `out`; None is allowed."""
        if out is None:
            return
        if type(out) is not type(self) or out is self:
            description = "the view itself" if out is self else f"a {type(out).__name__}"
            raise ViewError(f"out is {description}; give another {type(self).__name__}, or none")
        if not out.is_empty and out.layout != self.layout:
            raise ViewError(
                f"out is in layout {out.layout}, this view in {self.layout}; give one in the same "
                "layout, or an empty one"
            )

    def _clear(self) -> None:
        self._batch = None
        self._results = {}

    def __getstate__(self) -> dict[str, Any]:
        # Results and gradients are not copied or pickled: a copy begins a new batch.
        base = None if self._batch is None else (self.layout, self.input)
        return {**self.__dict__, "_batch": None, "_results": {}, "base": base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        base = state.pop("base")
        self.__dict__.update(state)
        if base is not None:
            self.forward_put(*base)


class DataView(SingleArrayView):
    """An array, put once and got in any layout and dtype; its gradients are summed.

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

    The array is held, not copied, and never written to. Results are made once a batch and shared by
    all callers; a result whose elements need not move is a view of the array.

    A put drops results and gradients and keeps plans. Several threads may get at the same time; the
    caller must synchronize a put with them. A call that raises leaves the view unchanged.

    Parameters
    ----------
    layout : str, optional
    array : array, optional
        Of any library. Begins the first batch. Give both or neither; without them the view is
        empty until the first put.
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
        """Begin a batch: hold `array`, which has the layout `layout`, by reference.

        Raises
        ------
        PatternError, ShapeError, DtypeError, ArgumentError
            The layout is invalid or its axis b is missing or folded; the rank differs; the dtype is
            not supported; the argument is not an array.
        """
        self.begin(self.prepare(layout, array))

    def forward_get(
        self,
        layout: Any = None,
        dtype: Any = None,
        device: str | None = None,
        *,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
        memory: str | None = None,
    ) -> Any:
        """Return the batch in a layout and dtype, by default the base's; made once a batch.

        With a ViewTarget, such as a Space, in place of the layout, return the batch in that.
        `scale`, `mean`, `std`, `clip` and `memory` work as in `convert`, in the same pass.

        The base's layout and dtype return the array that was put. All other results are
        contiguous, and views of it if no element has to move. Casts are "same_kind".

        Raises
        ------
        ViewError
            Nothing was put yet.
        PatternError, ShapeError, DtypeError, DeviceError
            The base cannot become that, or not with its sizes.
        """
        options = DEFAULT_OPTIONS
        request = (layout, dtype, device)
        if not (scale is mean is std is clip is memory is None):
            if is_compiling():
                return followed.get(
                    self._batch,
                    layout,
                    dtype,
                    device,
                    scale=scale,
                    mean=mean,
                    std=std,
                    clip=clip,
                    memory=memory,
                )
            options = ConversionOptions(find_normalization(scale, mean, std, clip), memory)
            request = (layout, dtype, device, options)  # type: ignore[assignment]
        try:
            return self._results[request]
        except (KeyError, TypeError):  # not requested with these arguments yet, or not hashable
            pass
        if is_compiling():
            return followed.get(self._batch, layout, dtype, device)
        if is_view_target(layout):
            check_default_options(layout, options)
            result = layout.get_from(self, dtype, device)
            self.batch.remember(request, result)
            return result
        return self.batch.get(layout, dtype, device, options)

    def backward_put(
        self,
        layout: Any,
        grad: Any,
        *,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
    ) -> None:
        """Add the gradient of a result of this batch, by reference; every put counts.

        It has the layout, dtype and shape of a result, or of the base. An integer result accepts
        any floating gradient, unless another result has its dtype. The formula of a result scales
        its gradient; if one layout and dtype were got with several formulas, `scale`, `mean`, `std`
        and `clip` select one.

        Raises
        ------
        ViewError, PatternError, ArgumentError
            Nothing was put yet; the layout is invalid; the gradient is not an array.
        BackwardError
            It belongs to no result of this batch.
        """
        self.batch.add(gradient_for(self, layout, grad, find_normalization(scale, mean, std, clip)))

    def backward_get(self, layout: str | None = None, dtype: Any = None) -> Any:
        """Return the sum of all gradients in the base's layout; cached until another is put.

        Its dtype is `dtype`, else the base's if that is floating, else the promoted dtype of the
        gradients. It may share memory with a gradient that was put: do not write to it.

        Raises
        ------
        ViewError, BackwardError
            Nothing was put yet; no gradient was put; `layout` is not the base's.
        DtypeError
            `dtype` is not floating, or cannot hold the sum.
        """
        batch = self.batch
        return batch.gradient_sum(batch.check_sum_dtype(layout, dtype))

    # -- samples ---------------------------------------------------------------------------

    def index(self, indices: Any, out: Self | None = None) -> Self:
        """Return a view of copies of the samples at `indices`, in their order.

        Indices are ints as in Python: from 0, negative from the end; repeats are allowed. `out` is
        another view of this class, empty or in this layout, which begins a new batch and is
        returned; the array that it held is released, not written.

        Raises
        ------
        ViewError, ShapeError, ArgumentError
            `out` is another class of view, or this view; an index is out of range; not ints.
        """
        self.check_out(out)
        return self.with_samples(
            self.batch.take_samples(normalize_indices(indices, len(self), "samples")), out
        )

    def sub(
        self, start: int | None, stop: int | None, out: Self | None = None, copy: bool = True
    ) -> Self:
        """Return a view of the samples from `start` to before `stop`, as Python slices clip them.

        It is a copy, or with `copy=False` a window: writing to its array writes to this view's.
        `out` is as for `index`. Raises ViewError, ArgumentError.
        """
        self.check_out(out)
        return self.with_samples(
            self.batch.part(normalize_slice(slice(start, stop), len(self)), copy), out
        )

    # -- the base --------------------------------------------------------------------------

    def replace(self, layout: str, array: Any) -> None:
        """Make `array`, converted from `layout` to the base's layout, the base; its dtype is kept.

        For preprocessing: get, compute, replace. The number of samples may change; if the layout
        folds axes, their sizes are the base's. Results and gradients are dropped. The new base
        shares memory with `array` if no element has to move.

        Raises the errors of `forward_get` and `forward_put`.
        """
        self.begin(self.prepare(self.layout, self.batch.to_base_layout(layout, array)))

    def flush(self) -> None:
        """Drop plans, results and gradients; the base is kept."""
        batch = self.batch
        plans = self._cache_type(
            self._named_layouts, batch.plans.layout, batch.array, batch.plans.device
        )
        self.begin(BatchState(batch.input, batch.array, plans))

    @property
    def input(self) -> Any:
        """The base array; setting it puts another in the base's layout."""
        return self.batch.input

    @input.setter
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
    def ndim(self) -> int:
        """The number of axes of the base."""
        return len(self.batch.array.shape)

    @property
    def device(self) -> str:
        """The device of the base: "cpu", or a GPU such as "cuda:0"."""
        return self.batch.plans.device

    @property
    def max_labels(self) -> int | None:
        """The upper bound (exclusive) of all labels in the base, or None if there is none."""
        return self._max_labels

    def __len__(self) -> int:
        return len(self.batch)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the base as a NumPy array, by NumPy's protocol; a view if it is on the CPU.

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
        """Return the cached Converter to a layout and dtype; raises the errors of `forward_get`."""
        return self.batch.plans.find(layout, dtype, None).converter

    def bf(self, dtype: Any = None) -> Any:
        """Return the Converter to `bf`: all axes but b folded into one, in the base's order."""
        return self.converter("bf", dtype)

    def b(self, dtype: Any = None) -> Any:
        """Return the Converter to `b`, for a base whose other axes have size 1."""
        return self.converter("b", dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({display.summary_line(self._batch, self._note())})"

    def _repr_html_(self) -> str:
        return display.html_table(type(self).__name__, self._batch, self._note())

    def _note(self) -> str:
        """Return the text shown after the batch in the representation."""
        return ""


class ImageView(DataView):
    """A batch of images, `bhwc`, `bchw` or `chwb`, or of volumes, `bdhwc` or `bcdhw`.

    >>> import numpy as np
    >>> view = ImageView("bhwc", np.zeros((8, 32, 24, 3), np.uint8))
    >>> view.forward_get("bchw", "float32").shape
    (8, 3, 32, 24)
    >>> view.bchw().backward(np.ones((8, 3, 32, 24), np.float32)).shape
    (8, 32, 24, 3)

    Images without channels, such as `bhw`, get an axis c of size 1 in layouts with c. Everything
    else is as for `DataView`.
    """

    _named_layouts: ClassVar = ("b", "bf", "bhwc", "bchw", "chwb", "bdhwc", "bcdhw")

    def bhwc(self, dtype: Any = None) -> Any:
        """Return the Converter to `bhwc`, the layout of decoders and most Python tools."""
        return self.converter("bhwc", dtype)

    def bchw(self, dtype: Any = None) -> Any:
        """Return the Converter to `bchw`, for most convolutions."""
        return self.converter("bchw", dtype)

    def chwb(self, dtype: Any = None) -> Any:
        """Return the Converter to `chwb`, for convolutions that run along the batch."""
        return self.converter("chwb", dtype)

    def bdhwc(self, dtype: Any = None) -> Any:
        """Return the Converter to `bdhwc`: volumes, channels last."""
        return self.converter("bdhwc", dtype)

    def bcdhw(self, dtype: Any = None) -> Any:
        """Return the Converter to `bcdhw`: volumes, channels first."""
        return self.converter("bcdhw", dtype)


class SequenceView(DataView):
    """A batch of sequences of length w with c channels: `bwc` or `bcw`.

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
        The exclusive upper bound of the values if they are labels; used only by spaces. Views of
        samples keep it.
    """

    _named_layouts: ClassVar = ("b", "bf", "bwc", "bcw")

    def __init__(
        self, layout: str | None = None, array: Any = None, max_labels: int | None = None
    ) -> None:
        self._max_labels = max_labels
        super().__init__(layout, array)

    def bwc(self, dtype: Any = None) -> Any:
        """Return the Converter to `bwc`: the channels of one step side by side."""
        return self.converter("bwc", dtype)

    def bcw(self, dtype: Any = None) -> Any:
        """Return the Converter to `bcw`: the steps of one channel side by side."""
        return self.converter("bcw", dtype)
