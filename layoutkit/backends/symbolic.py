"""Conversions in operations of JAX or PyTorch, so that the library can differentiate them.

An array that its library traces has no memory that layoutkit's kernels could read. Its conversion
is validated by shape and dtype, and expressed as unfold, compute, permute, fold and cast, which the
library compiles, maps and differentiates. Constants of a formula may be traced, too.

Operations that JAX and PyTorch name alike are here, the others in jax/ and torch/.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layout.pattern import Permutation
from ..memory import Array
from ..normalize import Traced
from ..planning.accumulate import sum_dtype
from ..spec import DType, dtype_kind, integer_bounds

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..normalize import ClippedResults, Normalization
    from ..options import ConvertOptions


class Library:
    """The access to shape and dtype of arrays; the base class is for NumPy and scipy."""

    name = "NumPy"

    def shape(self, x: Any) -> tuple[Any, ...]:
        """Return the shape; the sizes of a traced array may be symbols."""
        return tuple(x.shape)

    def dtype(self, x: Any) -> DType:
        """Return the dtype, as NumPy's."""
        return x.dtype

    def is_sparse(self, x: Any) -> bool:
        """Return True unless x is a dense array."""
        return not isinstance(x, np.ndarray)

    def from_numpy(self, array: Array) -> Any:
        """Return an array of the library that shares the memory of a NumPy array, if it can."""
        return array

    def apply(self, function: Callable[[Any, Any], Any], batch: Any) -> Any:
        """Return `function(batch, self)`; for a batch without data, its shape and dtype only."""
        return function(batch, self)


NUMPY = Library()


class ArrayNamespace(Library):
    """The operations on arrays of JAX or PyTorch; `xp` is the library's module."""

    def __init__(self) -> None:
        self.xp: Any = import_module(self.module)

    module = ""

    def is_sparse(self, x: Any) -> bool:
        """Return False: sparse arrays of the library are of other classes."""
        return False

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the library has the dtype."""
        raise NotImplementedError

    def from_numpy(self, array: Array) -> Any:
        raise NotImplementedError

    def to(self, x: Any, dtype: DType) -> Any:
        """Return x cast to a dtype, without checks."""
        raise NotImplementedError

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return an array of a shape and dtype that holds no data."""
        raise NotImplementedError

    def order(self, x: Any, order: Sequence[int]) -> Any:
        """Return x with its axes permuted."""
        raise NotImplementedError

    def rearrange(
        self, x: Any, sizes: Sequence[Any], order: Sequence[int], shape: Sequence[Any]
    ) -> Any:
        """Return x reshaped to `sizes`, permuted, and reshaped to `shape`."""
        return self.xp.reshape(self.order(self.xp.reshape(x, sizes), order), shape)

    def unfold(self, x: Any, move: Permutation, given_sizes: Collection[str] = ()) -> Any:
        """Return x with its folds unfolded; `given_sizes` names axes whose size the caller gave."""
        return self.xp.reshape(x, move.sizes)

    def fold(self, x: Any, move: Permutation) -> Any:
        """Return an unfolded x permuted and folded to the target of a move."""
        return self.xp.reshape(self.order(x, move.permutation), move.target_shape)

    def apply_move(self, x: Any, move: Permutation) -> Any:
        """Return x with a move applied."""
        return self.fold(self.unfold(x, move), move)

    def take(self, x: Any, axis: int, indices: Sequence[int]) -> Any:
        """Return the elements at validated indices of an axis."""
        return self.xp.take(x, np.array(indices), axis)

    def gather(self, x: Any, axis: int, indices: Array) -> Any:
        """Return the elements at many validated indices of an axis, which may repeat."""
        return self.xp.take(x, indices, axis)

    def constant(self, values: Array, like: Any) -> Any:
        """Return values as an array that can be combined with `like`."""
        return values

    def contiguous(self, x: Any) -> Any:
        """Return x contiguous in memory; x itself if arrays of the library have no strides."""
        return x

    def join(self, parts: Sequence[Any]) -> Any:
        """Return matrices concatenated along their columns."""
        raise NotImplementedError

    def one_hot(self, labels: Any, count: int) -> Any:
        """Return a bool for every label and class: True if the label is that class."""
        raise NotImplementedError

    def width(self, dtype: DType) -> DType:
        """Return the dtype that the library uses in place of `dtype`."""
        return dtype

    def cast_wrapping(self, x: Any, dtype: DType) -> Any:
        """Return floats as integers, truncated and wrapped, as NumPy does on most machines."""
        # NumPy casts to small integers via int32; a direct cast of the library may clip instead.
        return self.to(self.to(x, np.dtype(np.int32)) if dtype.itemsize < 4 else x, dtype)

    def cast(self, x: Any, dtype: DType, casting: str) -> Any:
        """Return x cast as `convert` does; the caller has validated the casting rule."""
        source = self.dtype(x)
        dtype = self.width(dtype)
        if source == dtype:
            return x
        if dtype_kind(source) == "c" and dtype_kind(dtype) not in "cb":
            x = x.real
            source = self.dtype(x)
        if dtype_kind(source) == "f" and dtype_kind(dtype) in "ui":
            return self._float_to_int(x, source, dtype, casting)
        if casting == "saturate" and dtype_kind(dtype) in "ui" and dtype_kind(source) in "ui":
            low, high = integer_bounds(dtype)
            source_low, source_high = integer_bounds(source)
            x = self.xp.clip(x, max(low, source_low), min(high, source_high))
        return self.to(x, dtype)

    def _float_to_int(self, x: Any, source: DType, dtype: DType, casting: str) -> Any:
        """Return floats as integers: rounded and clipped for "saturate", else wrapped."""
        low, high = integer_bounds(dtype)
        if casting != "saturate":
            return self.cast_wrapping(x, dtype)
        if source.itemsize < 4:  # float16 cannot hold the bounds
            x = self.to(x, np.dtype(np.float32))
        x = self.xp.round(x)
        x = self.xp.where(self.xp.isnan(x), self.xp.zeros_like(x), x)
        in_range = self.xp.where(x >= float(high + 1), self.xp.zeros_like(x), x)
        result = self.to(self.xp.clip(in_range, float(low), None), dtype)
        return self.xp.where(x >= float(high + 1), self.xp.full_like(result, high), result)


def convert_symbolic(options: ConvertOptions, x: Any, namespace: ArrayNamespace) -> Any:
    """Return the conversion of `x`; raise if its shape or dtype does not fit the options."""
    source = namespace.dtype(x)
    move, picks, target = options.infer_result(namespace.shape(x), source)
    namespace.check(target)
    x = namespace.unfold(x, move if picks is None else picks.with_all_channels(move), options.sizes)
    if picks is not None:
        x = namespace.take(x, picks.axis(move), picks.order)
    if options.formula is not None:
        x = _computed(
            x, options.formula, move, options.formula.computed_dtype(source, target), namespace
        )
    return namespace.cast(namespace.fold(x, move), target, options.casting)


def sum_symbolic(
    accumulator: Accumulator,
    parts: Sequence[Any],
    inspected: Sequence[tuple[tuple[int, ...], DType]],
    namespace: ArrayNamespace,
) -> Any:
    """Return the sum of the parts from left to right, computed in the accumulation dtype."""
    shapes, dtypes = zip(*inspected, strict=True)
    moves, result = accumulator.infer_result(shapes, dtypes)
    namespace.check(result)
    computed = sum_dtype(dtypes, result)
    given_sizes = accumulator.graph_args[3]
    terms = [
        namespace.to(namespace.fold(namespace.unfold(part, move, given_sizes), move), computed)
        for part, move in zip(parts, moves, strict=True)
    ]
    return namespace.cast(sum(terms[1:], start=terms[0]), result, "unsafe")


def _computed(
    x: Any, formula: Normalization, move: Permutation, dtype: DType, namespace: ArrayNamespace
) -> Any:
    """Return the formula applied to an unfolded x; untraced constants are prepared in float64."""
    x = _clipped(namespace.to(x, dtype), formula, dtype, namespace)
    if not formula.scales:
        return x
    line = formula.clip_results(dtype)
    if line is not None:
        return _reach_ends(x, line, namespace)
    letter = formula.letter(move)
    x_has_axis = letter is not None and letter in move.axes
    shape = [-1 if axis == letter else 1 for axis in move.axes] if x_has_axis else []
    count = move.sizes[move.axes.index(letter)] if letter is not None and x_has_axis else None
    factors, terms = (
        constant.reshape(shape if constant.ndim else [])
        for constant in _coefficients(
            x, formula, 1 if letter and count is None else count, namespace
        )
    )
    return x * factors + terms


def _reach_ends(x: Any, line: ClippedResults, namespace: ArrayNamespace) -> Any:
    """Return the results for a clipped x, which are exact at both ends, where gradients go on."""
    result = x * line.factor + line.term
    for end, is_beyond in ((line.low, result <= line.low.y), (line.high, result >= line.high.y)):
        if math.isfinite(end.x):
            result = namespace.xp.where(is_beyond, (x - end.x) * line.factor + end.y, result)
    return result


def _coefficients(
    x: Any, formula: Normalization, count: Any, namespace: ArrayNamespace
) -> tuple[Any, Any]:
    """Return factors and terms, each a scalar or an array of one number per index."""
    dtype = namespace.dtype(x)
    if not formula.is_traced:
        factors, terms = formula.coefficients(count)
        return namespace.constant(np.array(factors, dtype), x), namespace.constant(
            np.array(terms, dtype), x
        )
    mean, std = (
        namespace.to(constant.value, dtype)
        if isinstance(constant, Traced)
        else namespace.constant(np.array(constant, dtype), x)
        for constant in (formula.mean, formula.std)
    )
    return formula.scale / std, -mean / std


def _clipped(x: Any, formula: Normalization, dtype: DType, namespace: ArrayNamespace) -> Any:
    """Return x clipped; its gradient is 1 within the bounds (inclusive) and 0 outside."""
    bounds = formula.bounds(dtype)
    if bounds is None:
        return x
    low, high = (namespace.constant(np.array(bound, dtype), x) for bound in bounds)
    return namespace.xp.where(x < low, low, namespace.xp.where(x > high, high, x))
