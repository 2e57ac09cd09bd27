"""Which library the arrays of a batch come from, and that library's words for moving them.

NumPy arrays are converted by layoutkit itself. Batches of JAX and PyTorch are *symbolic*: what
happens to them is said in their own operations, so that it can be traced, compiled and
differentiated. A library that is not in `sys.modules` has made no batch, so nothing is imported
to find that out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ..cpu.casts import integer_bounds
from ..errors import ArgumentError, DtypeError
from ..spec import DType, as_dtype, kind_of

__all__ = ["NUMPY", "Library", "Symbolic", "framework_named", "library_of"]


class Library:
    """The facts of an array: its shape and its dtype. This one is NumPy's, and scipy.sparse's."""

    name = "NumPy"

    def shape(self, x: Any) -> tuple[Any, ...]:
        """The sizes; those of a traced batch need not all be ints."""
        return tuple(x.shape)

    def dtype(self, x: Any) -> DType:
        """The dtype in NumPy's words."""
        return x.dtype  # type: ignore[no-any-return]

    def is_sparse(self, x: Any) -> bool:
        """Whether it is no dense array."""
        return not isinstance(x, np.ndarray)

    def apply(self, function: Callable[[Any, Any], Any], batch: Any) -> Any:
        """Run `function(batch, library)`."""
        return function(batch, self)


NUMPY = Library()


class Symbolic(Library):
    """What both frameworks can do to an array, as `xp`, or under names of their own."""

    def __init__(self) -> None:
        self.xp: Any = import_module(self.module)

    module = ""

    def is_sparse(self, x: Any) -> bool:
        """No: its sparse arrays are of other classes."""
        return False

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the framework has the dtype."""
        raise NotImplementedError

    def to(self, x: Any, dtype: DType) -> Any:
        """Cast without asking."""
        raise NotImplementedError

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """An array without data."""
        raise NotImplementedError

    def order(self, x: Any, order: Sequence[int]) -> Any:
        """Permute the axes."""
        raise NotImplementedError

    def rearrange(
        self, x: Any, sizes: Sequence[Any], order: Sequence[int], shape: Sequence[Any]
    ) -> Any:
        """Unfold into `sizes`, permute, fold into `shape`."""
        return self.xp.reshape(self.order(self.xp.reshape(x, sizes), order), shape)

    def contiguous(self, x: Any) -> Any:
        """In memory as the shape says, where that can be told."""
        return x

    def join(self, parts: Sequence[Any]) -> Any:
        """Matrices side by side."""
        raise NotImplementedError

    def hot(self, labels: Any, count: int) -> Any:
        """A bool for every label and class: whether it is that one."""
        raise NotImplementedError

    def width(self, dtype: DType) -> DType:
        """The dtype that the framework gives where this one is asked for."""
        return dtype

    def cut(self, x: Any, dtype: DType) -> Any:
        """Floats as integers, cut off and wrapped around, as NumPy does on most machines."""
        # Frameworks clip what is out of range, or leave it open. NumPy goes this way.
        return self.to(self.to(x, np.dtype(np.int32)) if dtype.itemsize < 4 else x, dtype)

    def cast(self, x: Any, dtype: DType, casting: str) -> Any:
        """Cast as `convert` does; the caller has checked that the rule allows it."""
        source, dtype = self.dtype(x), self.width(dtype)
        if source == dtype:
            return x
        if kind_of(source) == "c" and kind_of(dtype) not in "cb":
            x = x.real
            source = self.dtype(x)
        if kind_of(source) == "f" and kind_of(dtype) in "ui":
            return self._whole(x, source, dtype, casting)
        if casting == "saturate" and kind_of(dtype) in "ui" and kind_of(source) in "ui":
            low, high = integer_bounds(dtype)
            limits = integer_bounds(source)
            x = self.xp.clip(x, max(low, limits[0]), min(high, limits[1]))
        return self.to(x, dtype)

    def _whole(self, x: Any, source: DType, dtype: DType, casting: str) -> Any:
        """Floats as integers: rounded and clipped, or cut off and wrapped."""
        low, high = integer_bounds(dtype)
        if casting != "saturate":
            return self.cut(x, dtype)
        if source.itemsize < 4:  # The bounds are beyond float16.
            x = self.to(x, np.dtype(np.float32))
        x = self.xp.round(x)
        x = self.xp.where(self.xp.isnan(x), self.xp.zeros_like(x), x)
        inside = self.xp.where(x >= float(high + 1), self.xp.zeros_like(x), x)
        y = self.to(self.xp.clip(inside, float(low), None), dtype)
        return self.xp.where(x >= float(high + 1), self.xp.full_like(y, high), y)


class Jax(Symbolic):
    """Tracers, concrete arrays and ShapeDtypeStructs."""

    name, module = "jax", "jax.numpy"

    def __init__(self) -> None:
        super().__init__()
        self.jax: Any = import_module("jax")

    def dtype(self, x: Any) -> DType:
        return as_dtype(x.dtype)

    def check(self, dtype: DType) -> None:
        if kind_of(dtype) not in "buifc" or dtype.itemsize > (8, 16)[kind_of(dtype) == "c"]:
            raise DtypeError(f"jax has no dtype {dtype}; use a number of at most 64 bits")

    def to(self, x: Any, dtype: DType) -> Any:
        return x.astype(self.width(dtype))

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.jax.ShapeDtypeStruct(shape, self.width(dtype))

    def order(self, x: Any, order: Sequence[int]) -> Any:
        return self.xp.transpose(x, order)

    def join(self, parts: Sequence[Any]) -> Any:
        return self.xp.concatenate(parts, axis=1)

    def hot(self, labels: Any, count: int) -> Any:
        return self.to(labels, np.dtype(np.int64))[..., None] == self.xp.arange(count)

    def apply(self, function: Callable[[Any, Any], Any], batch: Any) -> Any:
        """Run it, or find the shapes of its results where a ShapeDtypeStruct stands for data."""
        abstract = self.jax.ShapeDtypeStruct
        if any(isinstance(leaf, abstract) for leaf in self.jax.tree.leaves(batch)):
            return self.jax.eval_shape(lambda traced: function(traced, self), batch)
        return function(batch, self)

    def cut(self, x: Any, dtype: DType) -> Any:
        """Floats as integers; JAX would clip negative ones to 0."""
        if kind_of(dtype) != "u" or dtype.itemsize < 4:
            return super().cut(x, dtype)
        wrapped = self.to(self.to(x, np.dtype(f"i{dtype.itemsize}")), dtype)
        return self.xp.where(x < 0, wrapped, self.to(x, dtype))

    def width(self, dtype: DType) -> DType:
        """The dtype as the settings of JAX allow it: without x64, of 32 bits."""
        found: DType = np.dtype(self.jax.dtypes.canonicalize_dtype(dtype))
        return found


class Torch(Symbolic):
    """Tensors, those of the meta device and those that require a gradient included."""

    name, module = "torch", "torch"

    def is_sparse(self, x: Any) -> bool:
        return x.layout is not self.xp.strided

    def dtype(self, x: Any) -> DType:
        return _named_dtype(str(x.dtype).removeprefix("torch."))

    def check(self, dtype: DType) -> None:
        if not isinstance(getattr(self.xp, dtype.name, None), self.xp.dtype):
            raise DtypeError(f"torch has no dtype {dtype}; use one that it has")

    def to(self, x: Any, dtype: DType) -> Any:
        return x.to(getattr(self.xp, dtype.name))

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.xp.empty(shape, dtype=getattr(self.xp, dtype.name), device="meta")

    def order(self, x: Any, order: Sequence[int]) -> Any:
        return x.permute(*order)

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()

    def join(self, parts: Sequence[Any]) -> Any:
        return self.xp.cat(list(parts), dim=1)

    def hot(self, labels: Any, count: int) -> Any:
        return labels.long()[..., None] == self.xp.arange(count, device=labels.device)


_named_dtype = lru_cache(maxsize=64)(as_dtype)
_jax = lru_cache(maxsize=1)(Jax)
_torch = lru_cache(maxsize=1)(Torch)
_FRAMEWORKS: dict[str, Callable[[], Symbolic]] = {"jax": _jax, "torch": _torch}


def library_of(x: Any) -> Library | None:
    """The library that made the array; None for what is no array of a library known here."""
    if isinstance(x, np.ndarray) or _is_a(x, "scipy.sparse", "sparray", "spmatrix"):
        return NUMPY
    if _is_a(x, "jax", "Array", "ShapeDtypeStruct"):
        return _jax()
    if _is_a(x, "torch", "Tensor"):
        return _torch()
    return None


def framework_named(name: str) -> Symbolic:
    """The library of symbolic batches of that name, imported now.

    Raises
    ------
    ArgumentError
        It has another name, or is not installed.
    """
    if not isinstance(name, str) or name not in _FRAMEWORKS:
        raise ArgumentError(f'framework={name!r}; it is "jax" or "torch"')
    try:
        return _FRAMEWORKS[name]()
    except ImportError as error:
        fix = f'pip install "layoutkit[{name}]"'
        raise ArgumentError(f"{name} is not installed, or does not load: {fix}") from error


def _is_a(x: Any, module: str, *names: str) -> bool:
    """Whether x is of a class of a module that something else has imported."""
    loaded = sys.modules.get(module)
    # While another thread is importing it, a module may not have its names yet.
    return loaded is not None and isinstance(x, tuple(getattr(loaded, n, ()) for n in names))
