"""Operations on tensors in PyTorch itself, so that it can trace and differentiate them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ...errors import DtypeError
from ...layout.pattern import Permutation
from ...memory import Array
from ...spec import DType, as_dtype, dtype_kind
from ..symbolic import ArrayNamespace


class Torch(ArrayNamespace):
    """The namespace of torch, also for meta tensors and tensors that require a gradient."""

    name = "torch"
    module = "torch"

    def is_sparse(self, x: Any) -> bool:
        """Return True unless the tensor is strided."""
        return x.layout is not self.xp.strided

    def dtype(self, x: Any) -> DType:
        return _named_dtype(str(x.dtype).removeprefix("torch."))

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless torch has the dtype."""
        check_whole_bytes(dtype.name)
        if not isinstance(getattr(self.xp, dtype.name, None), self.xp.dtype):
            raise DtypeError(f"torch has no dtype {dtype}; use one that it has")

    def from_numpy(self, array: Array) -> Any:
        """Return the tensor that shares the memory of `array`."""
        dtype = array.dtype
        self.check(dtype)
        if not is_ml_dtype(dtype):
            return self.xp.from_numpy(array)
        bits = self.xp.from_numpy(array.view(f"u{dtype.itemsize}"))
        return bits.view(getattr(self.xp, dtype.name))

    def to(self, x: Any, dtype: DType) -> Any:
        """Return x cast to a dtype, without checks."""
        return x.to(getattr(self.xp, dtype.name))

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.xp.empty(shape, dtype=getattr(self.xp, dtype.name), device="meta")

    def order(self, x: Any, order: Sequence[int]) -> Any:
        return x.permute(*order)

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()

    def take(self, x: Any, axis: int, indices: Sequence[int]) -> Any:
        # An index tensor is avoided: some tracers refuse a tensor that they did not make.
        return self.xp.stack([x.select(axis, index) for index in indices], axis)

    def gather(self, x: Any, axis: int, indices: Array) -> Any:
        """Return the elements at many validated indices of an axis, which may repeat."""
        return self.xp.index_select(x, axis, self.constant(indices, x))

    def join(self, parts: Sequence[Any]) -> Any:
        return self.xp.cat(list(parts), dim=1)

    def one_hot(self, labels: Any, count: int) -> Any:
        return labels.long()[..., None] == self.xp.arange(count, device=labels.device)

    def unfold(self, x: Any, move: Permutation, given_sizes: Collection[str] = ()) -> Any:
        """Return x unfolded by group; torch infers the first size not in `given_sizes`."""
        if self.is_batched_gradient(x):
            return super().unfold(x, move)
        # Then a graph does not hold a size that may differ in the next batch.
        sizes = dict(zip(move.axes, move.sizes, strict=True))
        groups = list(enumerate(move.source.groups))
        for axis, group in reversed(groups):
            if len(group) != 1:
                group_sizes = [sizes[axis] for axis in group]
                names = map(move.source.name, group)
                open_at = next((n for n, name in enumerate(names) if name not in given_sizes), None)
                if open_at is not None and 0 not in group_sizes:
                    group_sizes[open_at] = -1
                x = x.unflatten(axis, group_sizes)
        return x

    def fold(self, x: Any, move: Permutation) -> Any:
        if self.is_batched_gradient(x):
            return super().fold(x, move)
        if move.permutation != tuple(range(len(move.axes))):
            x = x.permute(move.permutation)
        for _ in move.dropped:
            x = x.squeeze(-1)
        for position, axis in enumerate(move.target_axes):
            if axis not in move.axes:
                x = x.unsqueeze(position)
        for position, group in enumerate(move.target.groups):
            if len(group) != 1:
                x = x.flatten(position, position + len(group) - 1)
        return x

    def is_batched_gradient(self, x: Any) -> bool:
        """Return True for a gradient of is_grads_batched=True, which can be reshaped only."""
        return bool(self.xp._C._functorch.is_legacy_batchedtensor(x))

    def view(self, x: Any, move: Permutation, given_sizes: Collection[str]) -> Any:
        """Return a view of x with a move applied if no element has to move, else None."""
        if move.is_identity:
            return x if x.is_contiguous() else None
        unfolded = self.unfold(x, move, given_sizes)
        return (
            self.fold(unfolded, move)
            if unfolded.permute(move.permutation).is_contiguous()
            else None
        )

    def constant(self, values: Array, like: Any) -> Any:
        dtype = getattr(self.xp, values.dtype.name)
        with pause_jit_trace():
            return self.xp.tensor(values.tolist(), dtype=dtype, device=like.device)


def is_ml_dtype(dtype: DType) -> bool:
    """Return True for a float dtype of ml_dtypes, whose bits are exchanged with torch."""
    return dtype.type.__module__ == "ml_dtypes" and dtype_kind(dtype) == "f"


@contextmanager
def pause_jit_trace() -> Iterator[None]:
    """Hide operations that are not part of the computation from torch.jit.trace."""
    torch_c = library().xp._C
    state = torch_c._get_tracing_state()
    torch_c._set_tracing_state(None)
    try:
        yield
    finally:
        torch_c._set_tracing_state(state)


@lru_cache(maxsize=1)
def library() -> Torch:
    """Return the namespace of torch; raise ImportError if torch is not installed."""
    return Torch()


# Dtypes of torch for packed elements, such as uint4 and float4_e2m1fn_x2. NumPy's dtypes of these
# names have one element per byte.
_PACKED = re.compile(r"u?int[1-7]|.*x\d")


def check_whole_bytes(name: str) -> None:
    """Raise DtypeError if the elements of a dtype of torch are packed into bytes."""
    if _PACKED.fullmatch(name):
        raise DtypeError(
            f"elements of torch.{name} are packed into bytes and cannot be moved one by one; pass "
            "x.view(torch.uint8), or a dtype= of whole bytes"
        )


@lru_cache(maxsize=64)
def _named_dtype(name: str) -> DType:
    check_whole_bytes(name)
    return as_dtype(name)
