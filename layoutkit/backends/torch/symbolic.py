"""What is said of tensors in PyTorch's own words, so that it can be traced and differentiated."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import DtypeError
from ...layout.pattern import Move
from ...memory import Array
from ...spec import DType, as_dtype
from ..symbolic import Symbolic

if TYPE_CHECKING:
    from ...planning.options import Task


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

    def take(self, x: Any, axis: int, places: Sequence[int]) -> Any:
        # Without an array of places, which some that trace would not let beside theirs.
        return self.xp.stack([x.select(axis, place) for place in places], axis)

    def join(self, parts: Sequence[Any]) -> Any:
        return self.xp.cat(list(parts), dim=1)

    def hot(self, labels: Any, count: int) -> Any:
        return labels.long()[..., None] == self.xp.arange(count, device=labels.device)

    def unfold(self, x: Any, move: Move, given: Collection[str] = ()) -> Any:
        """Folds opened one by one; the first size that was not given is left to torch."""
        # So a graph holds no size that the next batch may not have.
        sizes = dict(zip(move.axes, move.sizes, strict=True))
        groups = list(enumerate(move.source.groups))
        for at, group in reversed(groups):
            if len(group) != 1:
                inside = [sizes[axis] for axis in group]
                names = map(move.source.name, group)
                open_at = next((n for n, name in enumerate(names) if name not in given), None)
                if open_at is not None and 0 not in inside:
                    inside[open_at] = -1
                x = x.unflatten(at, inside)
        return x

    def fold(self, x: Any, move: Move) -> Any:
        """Permuted, with axes dropped and added, and folded one by one."""
        if move.permutation != tuple(range(len(move.axes))):
            x = x.permute(move.permutation)
        for _ in move.dropped:
            x = x.squeeze(-1)
        for at, axis in enumerate(move.target_axes):
            if axis not in move.axes:
                x = x.unsqueeze(at)
        for at, group in enumerate(move.target.groups):
            if len(group) != 1:
                x = x.flatten(at, at + len(group) - 1)
        return x

    def view(self, x: Any, move: Move, given: Collection[str]) -> Any:
        """What a move makes of a tensor where nothing has to move, else None."""
        if move.is_identity:
            return x if x.is_contiguous() else None
        y = self.unfold(x, move, given)
        return self.fold(y, move) if y.permute(move.permutation).is_contiguous() else None

    def constant(self, values: Array, like: Any) -> Any:
        kind = getattr(self.xp, values.dtype.name)
        with pause_jit_trace():
            return self.xp.tensor(values.tolist(), dtype=kind, device=like.device)


@contextmanager
def pause_jit_trace() -> Iterator[None]:
    """Let torch.jit.trace not see what is no part of the computation."""
    jit = library().xp._C
    state = jit._get_tracing_state()
    jit._set_tracing_state(None)
    try:
        yield
    finally:
        jit._set_tracing_state(state)


@lru_cache(maxsize=1)
def library() -> Torch:
    """Torch's words; ImportError where it is not installed."""
    return Torch()


def told(task: Task) -> str:
    """The keywords of a task but for sizes, as an operator takes them."""
    return json.dumps(task._replace(sizes={}).keywords())


def options_from_json(told: str, names: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """The keywords of a task, sizes included, from those of an operator."""
    return {**json.loads(told), **dict(zip(names, sizes, strict=True))}


_named_dtype = lru_cache(maxsize=64)(as_dtype)
