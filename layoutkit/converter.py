"""`convert`, `plan` and `Converter`: conversions of layout, dtype, scale and device.

A `Converter` plans a conversion once for each shape, strides and dtype. `make_plan_for_device`
plans for the device that executes the conversion, because devices differ in float16 support.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Never, Protocol, Self, TypeVar, overload

import numpy as np

from . import _compile
from ._compile import is_compiling, make_graph_args
from ._utils import fork, late
from ._utils.cache import MAX_KEPT, PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ._utils.spelling import CuresForAttributes
from .cuda.runtime import check_device
from .errors import ArgumentError, DtypeError, LayoutkitError, ShapeError
from .layout.parsing import identity_pattern
from .layout.pattern import as_shape
from .memory import Array, as_numpy, check_writable
from .normalize import is_hashable_constant, to_hashable
from .options import ConvertOptions, format_keywords, parse_call, parse_options
from .planning.gradient import (
    ArrayInfo,
    check_shape,
    crop_gradient,
    find_clip_bounds,
    find_folded_sizes,
    make_channel_scatter,
    make_gradient_arguments,
    without_channels,
    without_folded_ellipsis,
)
from .planning.keywords import ConvertKeywords, refuse_in_call, refuse_positional
from .spec import CPU, ArraySpec, DType, as_dtype, dtype_kind

if TYPE_CHECKING:
    from .cpu.program import PaddedProgram, Program, TransposedViewProgram
    from .cuda.program import DevicePrograms
    from .planning.plan import Plan


class _Tensor(Protocol):
    """A tensor of PyTorch. Protocols, as types of a missing library would be Any."""

    @property
    def requires_grad(self) -> bool: ...


class _JAXArray(Protocol):
    """An array of JAX."""

    @property
    def is_fully_addressable(self) -> bool: ...


_T = TypeVar("_T")
_A = TypeVar("_A", bound=_Tensor | _JAXArray)


def plan_spec(options: ConvertOptions, spec: ArraySpec) -> Plan:
    """Return the plan for a contiguous array of `spec`; planning for a GPU does not need one."""
    with fork.init_lock:
        from .memory import contiguous_strides

    strides = contiguous_strides(spec.shape, spec.dtype)
    return make_plan_for_device(options, spec.shape, strides, spec.dtype, spec.device)


def make_plan_for_device(
    options: ConvertOptions,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    device: str,
    out: Any = None,
) -> Plan:
    """Return the plan of a conversion, for a GPU if x or the result is on one, else for the CPU."""
    # Imported with the first conversion, so that `import layoutkit` is fast.
    with fork.init_lock:
        if device == CPU and options.device in (None, CPU):
            from .cpu.program import supports_float16
        else:
            from .cuda.program import supports_float16
        from .planning import plan

        return plan.make_plan_for_options(
            options, shape, strides, dtype, device, out, supports_float16
        )


# Fast paths by the id of the array's class, as some classes are unhashable. A fast path may return
# NotImplemented.
FAST_PATHS: dict[int, Callable[[Converter, Any, Any], Any]] = {}
# Calls of a Converter without a new shape before it loads the kernel "direct", which takes some
# milliseconds, and prepares a job of this shape for it.
FEWEST_CALLS = 64

# Attributes that other modules of layoutkit use; `dir` does not list them.
_INTERNAL = {
    "cuda_programs", "from_options", "graph_args", "options", "infer_spec", "recorded", "spec_of",
    "targets_gpu", "with_options",
}  # fmt: skip


class Converter(CuresForAttributes):
    """A conversion that is planned once and called for batch after batch.

    A Converter accepts the arguments of `convert`, except `x` and `out`.

    >>> import numpy as np
    >>> to_planes = Converter("bhwc->bchw", dtype="float32", scale=1 / 255)
    >>> to_planes(np.zeros((2, 4, 5, 3), np.uint8)).shape
    (2, 3, 4, 5)
    >>> to_planes.backward(np.ones((2, 3, 4, 5), np.float32)).shape
    (2, 4, 5, 3)

    A Converter may be called from several threads at once and with arrays of any shape; plans of
    the latest shapes are cached. Converters with equal options compare and hash equal, so they can
    be dict keys or static arguments of `jax.jit`.
    """

    def __init__(
        self,
        pattern: str,
        *more: Never,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
        casting: str = "same_kind",
        device: str | None = None,
        copy: bool | None = None,
        memory: str | None = None,
        threads: int | None = None,
        pad_to: Mapping[str, int] | None = None,
        pad_before: Mapping[str, int] | None = None,
        fill: Any = None,
        center: str = "round",
        channels: Sequence[int] | None = None,
        **sizes: int,
    ) -> None:
        arguments = locals()
        if more:
            refuse_positional("Converter", pattern, more)
        keywords: Any = {name: arguments[name] for name in ConvertKeywords.__annotations__}
        if device is not None:
            keywords["device"] = check_device(device)
        self._init_state(parse_options(pattern, sizes, **keywords))

    @classmethod
    def from_options(cls, options: ConvertOptions) -> Self:
        """Return the Converter of checked options."""
        (converter := cls.__new__(cls))._init_state(options)
        return converter

    def _init_state(self, options: ConvertOptions) -> None:
        self._options = options
        self.targets_gpu = options.device not in (None, CPU)
        self._programs: Cache[Program | TransposedViewProgram | PaddedProgram] = Cache()
        self.cuda_programs: DevicePrograms | None = None  # set by `layoutkit.backends.dispatch`
        self.recorded: Cache[Any] = Cache()  # plans of arrays with gradients, stored by backends
        self._gradient_converters = _GradientConverters(options)
        self._derived: dict[Callable[[ConvertOptions], ConvertOptions], Converter] = {}
        self.graph_args = make_graph_args(options)
        self._calls = 0
        self._direct: Callable[[Array, Array], int] | None = None
        self._direct_new: Callable[[Array], Array | None] | None = None

    def __repr__(self) -> str:
        shown = [f'"{self.pattern}"', *format_keywords(self.keywords)]
        return f"Converter({', '.join(shown)})"

    def _repr_html_(self) -> str:
        with fork.init_lock:
            from .drawing import notebook_html

        return notebook_html(repr(self), self.pattern)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self)} - _INTERNAL - {*vars(self)})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Converter):
            return NotImplemented
        return self is other or self._options == other._options

    def __hash__(self) -> int:
        return hash(self._options)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "layoutkit.Converter", repr(self)

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        # A subclass of the user may have attributes of its own.
        names = vars(self).keys() - vars(Converter.from_options(self._options)).keys()
        return self.to_dict(), {name: vars(self)[name] for name in sorted(names)}

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        options, attributes = state
        self._init_state(ConvertOptions.from_dict(options))
        vars(self).update(attributes)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data of JSON, from which `from_dict` makes an equal object.

        Options that are the defaults are omitted. Raises ArgumentError for constants that jax or
        torch trace.

        >>> Converter("bhwc->bchw", dtype="float32", mean=(0.5, 0.25, 0.1)).to_dict()["mean"]
        [0.5, 0.25, 0.1]
        """
        return self._options.to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the Converter of options that `to_dict` returned.

        >>> data = {"kind": "converter", "version": 1, "pattern": "bhwc->bchw", "copy": True}
        >>> Converter.from_dict(data)
        Converter("bhwc->bchw", copy=True)

        Raises ArgumentError that names the key, if one is unknown or of another type, or if the
        version or the kind is another one, and the errors of the constructor.
        """
        options = ConvertOptions.from_dict(data)
        if options.device is not None:
            options = replace(options, device=check_device(options.device))
        return cls.from_options(options)

    @property
    def fingerprint(self) -> str:
        """The hexadecimal hash of all options, equal in every process and for every spelling.

        Equal fingerprints mean equal results, bit for bit.

        >>> one = Converter("bhwc->bchw", dtype="float32", mean=(0.5, 0.4))
        >>> two = Converter("N H W c -> N c H W", dtype=np.float32, mean=np.array([0.5, 0.4]))
        >>> one.fingerprint == two.fingerprint
        True
        """
        return self._options.fingerprint

    @property
    def pattern(self) -> str:
        """The text of the pattern."""
        return self._options.pattern.text

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments that are not the defaults.

        >>> Converter("bhwc->bchw", dtype="float32", scale=0.5).keywords["scale"]
        0.5
        """
        return {**self._options.keywords(), **self._options.sizes}

    @property
    def casting(self) -> str:
        """The casting rule."""
        return self._options.casting

    @property
    def device(self) -> str | None:
        """The device of results, such as "cpu" or "cuda:0"; None: the device of x."""
        return self._options.device

    # The type of a Converter does not show `device`, with which a result may be of another library.
    @overload
    def __call__(self, x: _A, out: None = None) -> _A: ...
    @overload
    def __call__(self, x: Array, out: None = None) -> Array: ...
    @overload
    def __call__(self, x: Any, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Any, out: _T) -> _T: ...

    def __call__(self, x: Any, out: Any = None, **unknown: Never) -> Any:
        """Convert `x`; see `convert`."""
        if unknown:
            refuse_in_call("Converter", unknown, ("x", "out"))
        is_numpy = isinstance(x, np.ndarray) and (out is None or isinstance(out, np.ndarray))
        if self.targets_gpu or not is_numpy:
            if is_compiling():
                return _compile.graph.insert_op(self, x, out)
            fast = FAST_PATHS.get(id(type(x)))
            if fast is not None and (result := fast(self, x, out)) is not NotImplemented:
                return result
            return late.load("dispatch").dispatch_conversion(self, x, out)
        array = x if type(x) is np.ndarray else as_numpy(x)
        if out is None:
            if self._direct_new is not None and (new := self._direct_new(x)) is not None:
                return new
            key: Any = (array.shape, array.strides, array.dtype)
            program = self._programs.get(key) or self._prepare(key, array, None)
            result = program(x, array, None)
            self._calls += 1
            if self._calls >= FEWEST_CALLS and x is array:
                self._load_direct(program, x, None)
            return result
        if self._direct is not None and self._direct(x, out):
            return out
        target = out if type(out) is np.ndarray else as_numpy(out, "out")
        key = (array.shape, array.strides, array.dtype, target.shape, target.strides, target.dtype)
        program = self._programs.get(key) or self._prepare(key, array, target)
        check_writable(array, target)
        program(x, array, target)
        self._calls += 1
        if self._calls >= FEWEST_CALLS and x is array and out is target:
            self._load_direct(program, x, out)
        return out

    def _load_direct(self, program: Any, x: Array, out: Array | None) -> None:
        """Convert arrays like these without Python from now on, if that is possible."""
        call = None
        if not self._options.is_composed:
            call = program.make_direct_new_call(x) if out is None else program.direct_call(x, out)
        if call is None:
            self._calls = 0  # tries again after FEWEST_CALLS more calls
        elif out is None:
            self._direct_new = call
        else:
            self._direct = call

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """Return the gradient of x, in the layout and dtype of x, from the gradient of the result.

        A formula scales the gradient by scale / std in the same pass. With `clip` the gradient is
        zero where x was outside of the bounds, so x is required: `like=x`.

        Parameters
        ----------
        grad : array in the result's layout
        like : x or its ArraySpec, optional
            The gradient gets the shape, dtype and device of x (for an integer x the dtype of
            `grad`). Default: folded axes have the sizes of the Converter, and the gradient is on
            the device of `grad`.
        out : array, optional
            An array to write the gradient to.

        Raises
        ------
        ShapeError
            `grad` does not have the result's shape, or the size of a folded axis is unknown.
        ArgumentError
            The Converter has a `clip`, and `like` is not an array.
        """
        clip = find_clip_bounds(self._options, like)
        grad_info = _array_info(grad, "grad")
        source = None if like is None else self._find_source_info(like)
        if self._options.padding is not None:
            with fork.init_lock:
                from .planning.plan import make_inner_options

            window = crop_gradient(self._options, grad, grad_info, source)
            return self.with_options(make_inner_options).backward(window, like=like, out=out)
        scatter = make_channel_scatter(self._options, grad_info, source)
        if scatter is None:
            result = self._gradient_converters.find(grad_info, source, out is None)(grad, out)
            return (
                result
                if clip is None
                else late.load("gradients").mask_clipped_grad(result, like, clip, out)
            )
        selected, move, selection = scatter
        selected_grad = self.with_options(without_channels)._gradient_converters.find(
            grad_info, selected, True
        )(grad)
        dtype = source[1] if source is not None and dtype_kind(source[1]) in "fc" else grad_info[1]
        result = late.load("gradients").scatter_channel_grad(selected_grad, move, selection, dtype)
        result = (
            result if clip is None else late.load("gradients").mask_clipped_grad(result, like, clip)
        )
        ndim = len(selection.shape)
        return result if out is None else Converter(identity_pattern(ndim))(result, out)

    def inverse(self, dtype: Any = None) -> Converter:
        """Return the Converter from a result y back to x: x = (y * std + mean) / scale.

        Its pattern is reversed. Its cast to `dtype` rounds and clips (`casting="saturate"`), so
        that integer images are restored exactly. The dtype of x is unknown: by default floats stay
        floats. Sizes of folded axes come from this Converter. Values outside of `clip` are not
        restored. Raises ArgumentError if scale is 0, `channels` is not a permutation, or there is
        a `pad_to`, after which the size of x is unknown.

        >>> Converter("bhwc->bchw", scale=1 / 255, mean=0.5).inverse("uint8").pattern
        'bchw->bhwc'
        """
        with fork.init_lock:
            from .planning.gradient import make_inverse_arguments

        pattern, keywords = make_inverse_arguments(self._options, dtype)
        return Converter(pattern, **keywords)

    def infer_spec(self, spec: ArraySpec) -> ArraySpec:
        """Return the spec of the result for an x of `spec`.

        >>> spec = ArraySpec("bhwc", (8, 32, 32, 3), "uint8")
        >>> print(Converter("bhwc->bchw", dtype="float32").infer_spec(spec))
        float32 bchw (8, 3, 32, 32) on cpu
        """
        return self.plan(spec).target

    def plan(self, x: Any) -> Plan:
        """Return the plan for an array or a (contiguous) ArraySpec; `print` shows it."""
        if isinstance(x, ArraySpec):
            self._options.check_spec(x)
            return plan_spec(self._options, x)
        return late.load("dispatch").plan_conversion(self, x)

    def spec_of(self, x: Any) -> ArraySpec:
        """Return the spec of an array of any library; the array may be abstract (without data)."""
        return ArraySpec.of(self._options.pattern.left, *_array_info(x, "x"))

    def target_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for an x of `shape`."""
        options = self._options
        if options.padding is not None:
            with fork.init_lock:
                from .planning.plan import resolve_padding

            return resolve_padding(options, shape).shape
        return options.select_channels(shape)[0].target_shape

    @property
    def options(self) -> ConvertOptions:
        """The checked options of this conversion."""
        return self._options

    def with_options(self, transform: Callable[[ConvertOptions], ConvertOptions]) -> Converter:
        """Return the cached Converter whose options are `transform(self.options)`."""
        cached = self._derived
        return cached.get(transform) or cached.setdefault(
            transform, Converter.from_options(transform(self._options))
        )

    def _find_source_info(self, like: Any) -> tuple[tuple[int, ...], DType, str]:
        """Return shape, dtype and device of an array, or of a spec in the layout of x."""
        if not isinstance(like, ArraySpec):
            return _array_info(like, "like")
        self._options.check_spec(like)
        return like.shape, like.dtype, like.device

    def _prepare(
        self, key: Any, array: Array, out: Array | None
    ) -> Program | TransposedViewProgram | PaddedProgram:
        """Return a new program for arrays of these shapes, strides and dtypes, and cache it."""
        with fork.init_lock:
            from .cpu.program import make_program

            self._calls = 0  # a direct call is made for one shape
            program = make_program(self._options, array, out)
            return cache_put(self._programs, key, program, PROGRAM_SIZE_ESTIMATE + program.nbytes)


_KEY_BYTES = 512  # of a cache key


class _GradientConverters:
    """The Converters of the gradients of one conversion, cached by the gradient and x."""

    def __init__(self, options: ConvertOptions) -> None:
        self._options = options
        self._made: dict[Any, Converter] = {}  # by dtype, device and the sizes of folds
        self._found: Cache[Converter] = Cache()  # by the ArrayInfo of gradient and x

    def find(self, grad: ArrayInfo, source: ArrayInfo | None, fresh: bool) -> Converter:
        """Return the Converter from a gradient like `grad` to an x like `source`.

        `fresh`: the caller gives no output, whose dtype would decide the dtype of the result.

        Raises
        ------
        DtypeError, ShapeError
            `grad` does not match the result of the conversion for such an x.
        """
        key = (grad, source, fresh)
        converter = self._found.get(key)
        return converter or cache_put(self._found, key, self._find(*key), _KEY_BYTES)

    def _find(self, grad: ArrayInfo, source: ArrayInfo | None, fresh: bool) -> Converter:
        shape, dtype, device = grad
        if dtype_kind(dtype) not in "fc":
            raise DtypeError(f"grad has dtype {dtype}; give a gradient of a floating dtype")
        options = self._options
        if source is None:
            if options.pattern.folds_ellipsis:
                raise ArgumentError(
                    f'"{options.pattern.text}" folds "...", any number of axes; pass x: '
                    "backward(grad, like=x)"
                )
            converter = self._make(options, options.sizes, as_dtype(dtype) if fresh else None, None)
            _check_folded_sizes(options, converter, shape)
            return converter
        options = without_folded_ellipsis(options, len(source[0]))
        move = options.select_channels(source[0])[0]
        check_shape(options, shape, move.target_shape, source[0])
        sizes = move.named_sizes
        target_device = None if device == source[2] else source[2]
        target_dtype = as_dtype(source[1] if dtype_kind(source[1]) in "fc" else dtype)
        return self._make(options, sizes, target_dtype, target_device)

    def _make(
        self,
        options: ConvertOptions,
        sizes: Mapping[str, int],
        dtype: DType | None,
        device: str | None,
    ) -> Converter:
        known = find_folded_sizes(options, sizes)
        key = (tuple(known.items()), dtype, device)
        back = self._made.get(key)
        if back is None:
            pattern, keywords = make_gradient_arguments(options, known, dtype, device)
            back = cache_put(self._made, key, Converter(pattern, **keywords))
        return back


def _check_folded_sizes(options: ConvertOptions, back: Converter, shape: tuple[int, ...]) -> None:
    """Raise ShapeError, with a fix, if sizes of folded axes are unknown or do not fit."""
    folds = any(len(group) > 1 for group in options.pattern.target.groups)
    try:
        back.target_shape(shape)
    except ShapeError as error:
        if not folds or len(shape) != options.pattern.target.ndim:
            raise
        raise ShapeError(f"{error} to the Converter, or pass backward(grad, like=x)") from None


def _array_info(x: Any, arg_name: str) -> tuple[tuple[int, ...], DType, str]:
    """Return shape, dtype and device of an array of any library."""
    if type(x) is np.ndarray:
        return x.shape, x.dtype, CPU
    return late.load("dispatch").inspect(x, arg_name)


# The result has the type of `out`, or without `out` and `device` the type of x, if x is an array.
# fmt: off
@overload
def convert(
    x: Any, /, pattern: str, *, out: _T, dtype: Any = None, scale: Any = None, mean: Any = None,
    std: Any = None, clip: Any = None, casting: str = ..., device: str | None = None,
    copy: bool | None = None, memory: str | None = None, threads: int | None = None,
    pad_to: Mapping[str, int] | None = None, pad_before: Mapping[str, int] | None = None,
    fill: Any = None, center: str = ..., channels: Sequence[int] | None = None, **sizes: int,
) -> _T: ...
@overload
def convert(
    x: _A, /, pattern: str, *, out: None = None, dtype: Any = None, scale: Any = None,
    mean: Any = None, std: Any = None, clip: Any = None, casting: str = ..., device: None = None,
    copy: bool | None = None, memory: str | None = None, threads: int | None = None,
    pad_to: Mapping[str, int] | None = None, pad_before: Mapping[str, int] | None = None,
    fill: Any = None, center: str = ..., channels: Sequence[int] | None = None, **sizes: int,
) -> _A: ...
@overload
def convert(
    x: Array, /, pattern: str, *, out: None = None, dtype: Any = None, scale: Any = None,
    mean: Any = None, std: Any = None, clip: Any = None, casting: str = ..., device: None = None,
    copy: bool | None = None, memory: str | None = None, threads: int | None = None,
    pad_to: Mapping[str, int] | None = None, pad_before: Mapping[str, int] | None = None,
    fill: Any = None, center: str = ..., channels: Sequence[int] | None = None, **sizes: int,
) -> Array: ...
@overload
def convert(
    x: Any, /, pattern: str, *, out: None = None, dtype: Any = None, scale: Any = None,
    mean: Any = None, std: Any = None, clip: Any = None, casting: str = ...,
    device: str | None = None, copy: bool | None = None, memory: str | None = None,
    threads: int | None = None, pad_to: Mapping[str, int] | None = None,
    pad_before: Mapping[str, int] | None = None, fill: Any = None, center: str = ...,
    channels: Sequence[int] | None = None, **sizes: int,
) -> Any: ...
# fmt: on


def convert(
    x: Any,
    /,
    pattern: str,
    *more: Never,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    copy: bool | None = None,
    memory: str | None = None,
    threads: int | None = None,
    pad_to: Mapping[str, int] | None = None,
    pad_before: Mapping[str, int] | None = None,
    fill: Any = None,
    center: str = "round",
    channels: Sequence[int] | None = None,
    **sizes: int,
) -> Any:
    """Convert an array to another layout, dtype, scale and device in one pass over memory.

    >>> import numpy as np
    >>> photos = np.zeros((8, 32, 32, 3), np.uint8)
    >>> convert(photos, "bhwc->bchw").shape                      # planes
    (8, 3, 32, 32)
    >>> convert(photos, "bhwc->bf").shape                        # flat, h slowest, c fastest
    (8, 3072)
    >>> y = convert(photos, "bhwc->bchw", dtype="float32", scale=1 / 255,
    ...             mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    >>> convert(y.reshape(8, -1), "b(chw)->bhwc", h=32, w=32).shape
    (8, 32, 32, 3)

    Parameters
    ----------
    x : array_like
        An array of any supported library with any strides, or an object that contains one. It is
        never modified.
    pattern : str
        The layout of x, `->`, the layout of the result. An axis is one letter, or one name in a
        pattern with blanks: "batch height width c -> batch c height width". Parentheses fold axes,
        `...` stands for any number of axes, which keep their order, `1` or `()` is an axis of size
        1 to remove or insert.
    dtype : dtype, optional
        The dtype of the result. Default: the dtype of `out`, else of x (float32 for an integer x
        with a formula).
    scale, mean, std : number; for mean and std also a list, array or dict
        The result is (x * scale - mean) / std, computed in float32, or in float64 if x has integers
        of at least 32 bits or float64, or dtype is float64. A list or array has one number
        per channel (axis `c`); `{"f": [...]}` has one per index of another axis, `{"b": [...]}` one
        per sample.
    clip : (lo, hi), optional
        Bounds that x is clipped to before the formula; one may be None. If `mean` and `std` are one
        number, the bounds become exactly what the formula gives, such as 0 and 1. With `clip`
        alone, an integer x keeps its dtype. At least one value of an integer dtype is between them.
    casting : "same_kind", "safe", "unsafe" or "saturate"
        The allowed dtype changes, as in NumPy. "saturate" allows all changes of real numbers: casts
        to integers round half to even and clip to the dtype's range, and others are NumPy's.
    out : array, optional
        An array of the result's shape and dtype to write to. Any strides. It must not share memory
        with x.
    device : "cpu", "cuda", an indexed GPU such as "cuda:1", or a torch.device, optional
        The device of the result. Default: the device of x.
    copy : bool, optional
        None: x itself or a view of x if possible, else new memory. True: always new memory.
        False: an error if bytes have to be copied.
    memory : str, optional
        The axes of the result in their order in new memory, outermost first. Default: the layout
        of the result. `convert(x, "bhwc->bchw", memory="bhwc")` returns PyTorch's channels_last.
    threads : int, optional
        The maximum number of threads. Default: `get_num_threads()`.
    pad_to : dict of int by axis, optional
        Sizes of the padded result along these axes, such as `{"h": 640, "w": 640}`.
    pad_before : dict of int by axis, optional
        The position of x in the padded result. Default: x is centered.
    center : "round" or "floor"
        How half of an odd padding is rounded along centered axes: to the nearest even number, or
        down.
    fill : number, or one number per channel, optional
        The value of the padding, in the units of x: the formula is applied to it. Default: 0.
    channels : list of int, optional
        Channels of x (axis `c`) in the order of the result: (2, 1, 0) swaps red and blue, (0,)
        selects one, (0, 0, 0) repeats it. Constants then have one number per channel of the
        result, and `fill` one per channel of x. Default: all channels in their order.
    **sizes : int
        Sizes of folded axes of x, such as `h=32` or `height=32`; one of each fold may be omitted.

    Returns
    -------
    array
        `out`, or a contiguous array in the target layout. It is x itself or a view of x if nothing
        has to be copied, which may depend on sizes (`bchw->bhwc` of one channel), so do not write
        to it without `copy=True`. New memory comes from a pool and returns to it when the array
        and all its views are deleted.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        An argument is invalid. Nothing has been written.
    """
    if more:
        refuse_positional("convert", pattern, more)
    values = (
        dtype, scale, mean, std, clip, casting, device, copy, memory, threads, pad_to, pad_before,
        fill, center, channels,
    )  # fmt: skip
    if type(x) is not np.ndarray and is_compiling():
        keywords = _converters.as_keywords(values)
        return _compile.graph.insert_convert(x, pattern, out, sizes, keywords)
    if device is not None:
        values = _converters.resolve_device(values)  # now, as the current GPU may change
    try:
        converter = _converters.find(pattern, *values, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, such as a list of means, or an array
        converter = _converters.find_or_make(pattern, values, sizes)
    return converter(x, out)


class ArgumentCache(Generic[_T]):
    """The Converters or Collators of equal calls of a function, so that a loop plans once.

    The key is the pattern, the values of the keywords in the order of the signature, without the
    arguments that are no options, and the sizes.
    """

    def __init__(
        self, make: Callable[..., _T], function: Callable[..., Any], no_options: Collection[str]
    ) -> None:
        self._make = make
        keywords = function.__kwdefaults__ or {}
        self._names = tuple([name for name in keywords if name not in no_options])
        # Typed, since True == 1 == 1.0: an invalid call must not get the result of a valid one.
        self.find = lru_cache(maxsize=MAX_KEPT, typed=True)(self._find)

    def as_keywords(self, values: Iterable[Any]) -> Any:
        """Return values in the order of the signature as keyword arguments."""
        return dict(zip(self._names, values, strict=True))

    def resolve_device(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Return the values with the name of the current GPU for `device="cuda"`."""
        keywords = self.as_keywords(values)
        keywords["device"] = check_device(keywords["device"])
        return tuple(keywords.values())

    def _find(self, pattern: str, /, *values: Any, **sizes: int) -> _T:
        """Raise TypeError for arrays, which are not hashed by value."""
        if not all(map(is_hashable_constant, values)):
            raise TypeError("an array cannot be a cache key")
        return self._make(pattern, **self.as_keywords(values), **sizes)

    def find_or_make(self, pattern: str, values: Iterable[Any], sizes: Mapping[str, Any]) -> _T:
        """Return the cached object of values made hashable, or a new one if that fails."""
        keywords = self.as_keywords(values)
        hashable = {
            name: to_hashable(name, value) if name in _CONSTANTS else _as_hashable(value)
            for name, value in keywords.items()
        }
        hashable["dtype"] = keywords["dtype"]  # a list is a structured dtype
        try:
            return self.find(pattern, *hashable.values(), **sizes)
        except LayoutkitError:
            raise
        except TypeError:  # such as constants that are traced
            return self._make(pattern, **hashable, **sizes)


_converters = ArgumentCache(Converter, convert, ("out",))
_CONSTANTS = ("scale", "mean", "std", "clip")


def _as_hashable(value: Any) -> Any:
    """Return a dict, list or array as a tuple, and any other value unchanged."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def plan(
    pattern: str,
    shape: Iterable[int],
    from_dtype: Any = "float32",
    *,
    dtype: Any = None,
    device: str | None = "cpu",
    **keywords: Any,
) -> Plan:
    """Return the plan of `convert` for a contiguous array of `shape` and `from_dtype`.

    >>> p = plan("bhwc->bchw", (64, 224, 224, 3), "uint8", dtype="float32")
    >>> p.kernel, p.bytes_moved
    ('split', 48168960)

    `print` shows the kernel and the reasons for its choice. `dtype`, the dtype of the result, and
    other keywords equal those in `convert`; planning for `device="cuda"` does not need a GPU.
    """
    options = parse_call(pattern, {"dtype": dtype, "device": device, **keywords})
    spec = ArraySpec.of(options.pattern.left, as_shape(shape), as_dtype(from_dtype), CPU)
    return plan_spec(options, spec)
