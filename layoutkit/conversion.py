"""`convert`, `Converter` and `accumulate`: the public verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .arrays import Array, address, as_numpy, check_device
from .axes import Move, Pattern, parse_pattern
from .errors import ArgumentError, DtypeError, PatternError, ShapeError
from .formulas import Formula, computed_dtype, make_formula
from .plans import Plan, Request, contiguous, make_plan
from .programs import Program, has_half
from .spec import ArraySpec, DType, as_dtype, check_cast, check_casting, check_movable, kind_of

__all__ = ["Converter", "convert", "plan"]

MAX_KEPT = 512  # programs of a Converter and converters of `convert`; then the oldest go


class Converter:
    """A conversion that is planned once and called for batch after batch.

    Takes what `convert` takes, except the array and `out`; the same rules hold.

    >>> import numpy as np
    >>> to_planes = Converter("bhwc->bchw", dtype="float32", scale=1 / 255)
    >>> to_planes(np.zeros((2, 4, 5, 3), np.uint8)).shape
    (2, 3, 4, 5)
    >>> to_planes.backward(np.ones((2, 3, 4, 5), np.float32)).shape
    (2, 4, 5, 3)

    A Converter may be called from several threads at once and takes arrays of any shape;
    plans are kept for the latest shapes.
    """

    def __init__(
        self,
        pattern: str,
        *,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        casting: str = "same_kind",
        device: str | None = None,
        copy: bool | None = None,
        **sizes: int,
    ) -> None:
        check_casting(casting)
        self._pattern = parse_pattern(pattern)
        self._dtype = None if dtype is None else as_dtype(dtype)
        if self._dtype is not None:
            check_movable(self._dtype)
        self._formula = make_formula(scale, mean, std)
        self._casting = casting
        self._device = check_device(device)
        self._copy = _checked_copy(copy)
        self._sizes = sizes
        self._programs: dict[Any, Program] = {}

    def __repr__(self) -> str:
        parts = [f'"{self._pattern.text}"']
        if self._dtype is not None:
            parts.append(f"dtype={str(self._dtype)!r}")
        if self._formula is not None:
            parts.append(f"formula={self._formula}")
        parts += [f"{letter}={size}" for letter, size in self._sizes.items()]
        return f"Converter({', '.join(parts)})"

    @property
    def pattern(self) -> str:
        """The pattern as it was given."""
        return self._pattern.text

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Convert `x`; see `convert`."""
        array = x if type(x) is np.ndarray else as_numpy(x)
        if out is None:
            program = self._programs.get((array.shape, array.strides, array.dtype))
            if program is None:
                program = self._keep(array, None)
            return program(x, array, None)
        target = out if type(out) is np.ndarray else as_numpy(out, "out")
        key = (array.shape, array.strides, array.dtype, target.shape, target.strides, target.dtype)
        program = self._programs.get(key) or self._keep(array, target)
        _check_writable(array, target)
        program(x, array, target)
        return out

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """The gradient of x, in the layout and dtype of x, for the gradient of the result.

        Parameters
        ----------
        grad : array in the result's layout
        like : x or its ArraySpec, optional
            Gives the gradient's shape and dtype (an integer x: grad's dtype). Without it the
            sizes of folded axes are those that the Converter was made with.
        out : array, optional
            Where to write the gradient.

        A conversion with a formula scales the gradient by scale / std in the same pass.

        Raises
        ------
        ShapeError
            `grad` has not the result's shape, or the sizes of a fold are not known.
        """
        array = as_numpy(grad, "grad")
        if kind_of(array.dtype) not in "fc":
            raise DtypeError(f"grad has dtype {array.dtype}; a gradient is floating")
        sizes, dtype = dict(self._sizes), array.dtype
        if like is not None:
            spec = like if isinstance(like, ArraySpec) else _spec_of(self._pattern, as_numpy(like))
            move = self._pattern.resolve(spec.shape, self._sizes)
            if array.shape != move.target_shape:
                raise ShapeError(
                    f'grad has shape {array.shape}, but "{self._pattern.text}" makes '
                    f"{move.target_shape} of {spec.shape}; pass the gradient of that result"
                )
            sizes = dict(zip(move.axes, move.sizes, strict=True))
            dtype = spec.dtype if kind_of(spec.dtype) in "fc" else array.dtype
        back = self._reverse(sizes, as_dtype(dtype) if out is None or like is not None else None)
        return back(grad, out)

    def inverse(self) -> Converter:
        """The Converter of the opposite pattern; sizes of folds are the keywords given here.

        Raises
        ------
        PatternError
            A conversion with scale, mean or std is not undone by moving elements back.
        """
        if self._formula is not None:
            raise PatternError(
                f'"{self._pattern.text}" with scale, mean or std has no inverse layout; for '
                "gradients use backward, else convert back with your own constants"
            )
        sizes = self._letters_of_source(self._sizes)
        back = self._pattern.reversed()
        return Converter(back.text, casting=self._casting, copy=self._copy, **sizes)

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The spec of the result for an x of `spec`; no array is needed.

        >>> spec = ArraySpec("bhwc", (8, 32, 32, 3), "uint8")
        >>> print(Converter("bhwc->bchw", dtype="float32").resolve(spec))
        float32 bchw (8, 3, 32, 32) on cpu
        """
        return self.plan(spec).target

    def plan(self, x: Any) -> Plan:
        """How an array or an ArraySpec (contiguous) would be converted; `print` it."""
        if not isinstance(x, ArraySpec):
            array = as_numpy(x)
            return self._plan(array.shape, array.strides, array.dtype, None)
        check_device(x.device)
        if str(self._pattern.left) != x.axes and str(self._pattern.source) != x.axes:
            raise PatternError(
                f'the spec is of layout {x.axes}, but "{self._pattern.text}" converts '
                f"{self._pattern.left}; give a spec of that layout"
            )
        return self._plan(x.shape, contiguous(x.shape, x.dtype), x.dtype, None)

    # -- planning --------------------------------------------------------------------------

    def _keep(self, array: Array, out: Array | None) -> Program:
        """Plan for arrays like these and keep the program."""
        program = Program(self._plan(array.shape, array.strides, array.dtype, out))
        key: tuple[Any, ...] = (array.shape, array.strides, array.dtype)
        if out is not None:
            key += (out.shape, out.strides, out.dtype)
        while len(self._programs) >= MAX_KEPT:
            self._programs.pop(next(iter(self._programs)), None)
        return self._programs.setdefault(key, program)

    def _plan(
        self, shape: tuple[int, ...], strides: tuple[int, ...], source: DType, out: Array | None
    ) -> Plan:
        move = self._pattern.resolve(shape, self._sizes)
        check_movable(source)
        target = self._target(source, out)
        computed = source if self._formula is None else computed_dtype(source, target)
        check_cast(computed, target, self._casting)
        if out is not None:
            _check_out(out, move, target, self._pattern)
        request = Request(
            self._pattern.text, move, source, target, strides,
            None if out is None else out.strides, self._formula, self._casting,
            may_view=out is None and self._copy is not True,
        )  # fmt: skip
        found = make_plan(request, has_half)
        if self._copy is False and found.kernel != "view":
            raise ArgumentError(
                f'copy=False, but "{self._pattern.text}" has to move bytes of a {source} array '
                f"of shape {shape} and strides {strides}; allow a copy (copy=None)"
            )
        return found

    def _target(self, source: DType, out: Array | None) -> DType:
        """The result's dtype: as asked, else out's, else x's (float32 for integers normalised)."""
        if out is not None:
            if self._dtype is not None and out.dtype.newbyteorder("=") != self._dtype:
                raise DtypeError(
                    f"out has dtype {out.dtype}, but dtype={self._dtype} was asked; make them equal"
                )
            check_movable(out.dtype)
            return out.dtype
        if self._dtype is not None:
            return self._dtype
        if self._formula is not None and kind_of(source) in "bui":
            return np.dtype(np.float32)
        return source if source.isnative else source.newbyteorder("=")

    def _reverse(self, sizes: Mapping[str, int], dtype: DType | None) -> Converter:
        """The Converter of gradients."""
        formula = self._formula.slope if self._formula is not None else None
        key = ("backward", tuple(sizes.items()), dtype)
        back = _converters.get(key + (self._pattern, formula))
        if back is None:
            sizes = self._letters_of_source(sizes)
            back = Converter(self._pattern.reversed().text, dtype=dtype, **sizes)
            back._formula = formula
            _remember(key + (self._pattern, formula), back)
        return back

    def _letters_of_source(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes that the opposite pattern can use: those of x's unfolded axes."""
        letters = self._pattern.source.letters
        return {letter: size for letter, size in sizes.items() if letter in letters}


# ---- checks ------------------------------------------------------------------------------


def _checked_copy(copy: Any) -> bool | None:
    if copy is None or copy is True or copy is False:
        return copy
    raise ArgumentError(f"copy={copy!r}; it is None, True or False")


def _check_out(out: Array, move: Move, target: DType, pattern: Pattern) -> None:
    """Raise unless `out` can take the result."""
    if out.shape != move.target_shape:
        raise ShapeError(
            f'out has shape {out.shape}, but "{pattern.text}" makes {move.target_shape} of '
            f"{move.source_shape}; give an out of that shape"
        )
    steps = sorted(zip(map(abs, out.strides), out.shape, strict=True))
    reach = out.dtype.itemsize
    for step, count in steps:
        if count > 1 and 0 not in out.shape:
            if step < reach:
                raise ArgumentError(
                    f"out of shape {out.shape} and strides {out.strides} may hold one place "
                    "twice; give an out whose elements do not overlap"
                )
            reach = step * (count - 1) + reach


def _check_writable(array: Array, out: Array) -> None:
    """Raise unless `out` may be written without touching `array`."""
    if not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    if np.may_share_memory(array, out) and _overlap(array, out):
        raise ArgumentError("out shares memory with x; give an out of its own memory")


def _overlap(array: Array, out: Array) -> bool:
    try:
        return np.shares_memory(array, out, max_work=100_000)
    except np.exceptions.TooHardError:
        return True


def _spec_of(pattern: Pattern, array: Array) -> ArraySpec:
    """The spec of an array in the pattern's source layout."""
    pattern.resolve  # the rank is checked by ArraySpec
    return ArraySpec(str(pattern.source), array.shape, array.dtype)


# ---- functions ---------------------------------------------------------------------------

_converters: dict[Any, Converter] = {}


def _remember(key: Any, converter: Converter) -> Converter:
    while len(_converters) >= MAX_KEPT:
        _converters.pop(next(iter(_converters)), None)
    return _converters.setdefault(key, converter)


def convert(
    x: Any,
    pattern: str,
    /,
    *,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    copy: bool | None = None,
    **sizes: int,
) -> Any:
    """Move an array to another layout, dtype and scale in one pass over memory.

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
    x : array
        Any strides, read-only or not; it is never written to.
    pattern : str
        Layout of x, `->`, layout of the result: one letter an axis, parentheses fold axes.
    dtype : dtype, optional
        Of the result. Default: out's, else x's (float32 for an integer x with a formula).
    scale, mean, std : number, or for mean and std one number a channel (axis `c`)
        The result is (x * scale - mean) / std, computed in float32 (float64 if x or dtype is).
    casting : "same_kind", "safe", "unsafe" or "saturate"
        What dtype changes are allowed, in NumPy's words; "saturate" rounds half to even and
        clips to the range of an integer dtype.
    out : array, optional
        Where to write: of the result's shape and dtype, any strides, not sharing memory with x.
    device : "cpu", optional
    copy : bool, optional
        None: x itself or a view of it where nothing has to move, else new memory. True: always
        new memory. False: an error where bytes would have to move.
    **sizes : int
        Sizes of axes that x folds, such as `h=32`; one of a fold may be left out.

    Returns
    -------
    array
        `out`, or a contiguous array in the asked layout. New memory comes from a pool and
        returns to it when the array and all its views are gone.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        Before anything is written.
    """
    try:
        key = (pattern, dtype, scale, mean, std, casting, device, copy, *sizes.items())
        converter = _converters.get(key)
    except TypeError:  # unhashable, such as a list of means
        mean, std = _hashable(mean), _hashable(std)
        key = (pattern, dtype, scale, mean, std, casting, device, copy, *sizes.items())
        converter = None
    if converter is None:
        converter = Converter(
            pattern, dtype=dtype, scale=scale, mean=mean, std=std, casting=casting,
            device=device, copy=copy, **sizes,
        )  # fmt: skip
        try:
            converter = _remember(key, converter)
        except TypeError:
            pass  # nothing to remember it by
    return converter(x, out)


def _hashable(values: Any) -> Any:
    if isinstance(values, list) or isinstance(values, np.ndarray) and values.ndim == 1:
        return tuple(values)
    return values


def plan(
    pattern: str,
    shape: Iterable[int],
    dtype: Any = "float32",
    *,
    to_dtype: Any = None,
    device: str | None = "cpu",
    **keywords: Any,
) -> Plan:
    """How `convert` would handle a contiguous array of `shape` and `dtype`.

    >>> found = plan("bhwc->bchw", (64, 224, 224, 3), "uint8", to_dtype="float32")
    >>> found.kernel, found.bytes_moved
    ('split', 48168960)

    `print` it to read how it will run, and why. Other keywords are those of `convert`.
    """
    converter = Converter(pattern, dtype=to_dtype, device=device, **keywords)
    spec = ArraySpec(str(converter._pattern.left), tuple(shape), as_dtype(dtype))
    return converter.plan(spec)
