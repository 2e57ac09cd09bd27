"""Record the copies of PyTorch operations whose only purpose is another layout.

`Recorder` is a TorchDispatchMode: it sees every operation of its thread after autograd, including
a backward pass on the CPU. A chain consists of the views, casts and arithmetic with constants
between two tensors: one conversion can replace all of them.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from .._utils.errors import describe_error
from ..memory import contiguous_strides
from .naming import ELEMENTS, is_moved, memory_order, name_conversion
from .report import Chain, Copy, Place

_torch: Any = import_module("torch")
_modes: Any = import_module("torch.utils._python_dispatch")
_weak: Any = import_module("torch.utils.weak")
_aten = _torch.ops.aten

# The operations of a formula: with a constant, or a tensor much smaller than the other.
_ARITHMETIC = {
    getattr(_aten, name + suffix) for name in ("add", "sub", "mul", "div") for suffix in ("", "_")
}
_JOINS = {_aten.stack: "stack of permuted tensors", _aten.cat: "cat of permuted tensors"}
_FEWER = 16  # an operand with 1/16 of the elements is a constant
_EXPORTS = 16  # tensors whose return from NumPy is recognized

_NOT_USER_CODE = (
    f"{Path(_torch.__file__).parent}{os.sep}",  # not torchvision
    f"{Path(__file__).parent}{os.sep}",
    "<frozen",
)
# Users cannot change files of installed packages and of Python.
_PACKAGE_FOLDERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_PYTHON_FOLDER = f"{Path(os.__file__).parent}{os.sep}"


_Timing = tuple[float, float]  # begin, seconds


@dataclass(frozen=True)
class _Origin:
    """The origin of a tensor.

    chain : Chain            casts and arithmetic since
    base : tuple             the shape of the tensor that it is a view of, in its order in memory
    copy : Copy | None       the copy that it is the result of, apart from what is in the chain
    rename : callable        for a new copy: returns the conversion if the result has this shape
    """

    chain: Chain
    base: tuple[int, ...]
    copy: Copy | None = None
    rename: Callable[[tuple[int, ...]], Any] | None = None

    def follow(self, chain: Chain) -> _Origin:
        """Return the origin of a tensor computed from this one; the copy does so in its pass."""
        if self.copy is not None:
            self.copy.chain = chain
        return replace(self, chain=chain, rename=None)


class Recorder(_modes.TorchDispatchMode):
    """A dispatch mode that appends to `copies` what it recognizes.

    errors    operations that were not recorded, and the reason, with their number
    """

    def __init__(self, min_bytes: int) -> None:
        super().__init__()
        self.copies: list[Copy] = []
        self.errors: Counter[str] = Counter()
        self._min_bytes = min_bytes
        self._origins = _weak.WeakIdKeyDictionary()  # by tensor
        self._exported: deque[tuple[int, Any, float]] = deque(maxlen=_EXPORTS)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        timing = begin, time.perf_counter() - begin
        try:
            self._see(func, args, result, timing)
        except Exception as error:  # the program is not changed by an operation that is not known
            self.errors[f"{func}: {describe_error(error)}"] += 1
        return result

    def _see(self, func: Any, args: Any, result: Any, timing: _Timing) -> None:
        """Record an operation of plain tensors."""
        first: Any = args[0] if args else None
        packet = func.overloadpacket
        if packet in _JOINS and all(map(_is_plain, [*first, result])):
            self._join(_JOINS[packet], list(first), result, timing)
        if not (_is_plain(first) and _is_plain(result)):
            return
        if packet is _aten.lift_fresh:
            self._import(result)
        elif packet is _aten._unsafe_view:
            self._fold(first, result)
        elif func.is_view:
            self._view(first, result)
            if packet is _aten.detach:
                self._exported.append((first.data_ptr(), tuple(first.shape), timing[0]))
        elif packet in (_aten.clone, _aten._to_copy):
            self._copy(packet, first, result, timing)
        elif packet is _aten.copy_:
            self._write(args[1], result, timing)
        elif packet in _ARITHMETIC and _is_formula(args, result):
            self._calculate(first, result)

    # -- origins ---------------------------------------------------------------------------

    def _origin(self, tensor: Any) -> _Origin:
        if tensor not in self._origins:
            self._origins[tensor] = _new_origin(tensor)
        return self._origins[tensor]

    def _view(self, source: Any, result: Any) -> None:
        if source.numel() == result.numel() and _num_bytes(source, result) >= self._min_bytes:
            self._origins[result] = self._origin(source)

    def _calculate(self, source: Any, result: Any) -> None:
        origin = self._origin(source)
        # An optimizer's changes of a parameter are no part of a later conversion of it.
        if source is not result or origin.copy is not None or origin.chain.casts:
            lines = origin.chain.arithmetic | {_user_place()}
            self._origins[result] = origin.follow(replace(origin.chain, arithmetic=lines))

    def _fold(self, source: Any, result: Any) -> None:
        """Fold axes of the copy that `reshape` made just before."""
        origin = self._origins.get(source)
        if origin is not None and origin.rename is not None:
            origin.copy.kind = "reshape that copies"
            origin.copy.conversion = origin.rename(tuple(result.shape))
        self._view(source, result)

    # -- copies ----------------------------------------------------------------------------

    def _copy(self, packet: Any, source: Any, result: Any, timing: _Timing) -> None:
        if source.dim() < 2 or _num_bytes(source, result) < self._min_bytes:
            return
        if source.device != result.device:
            return
        origin = self._origin(source)
        chain = replace(origin.chain, dtype=_name(result.dtype))
        if is_moved(source.shape, source.stride(), result.stride()):
            if not result.is_contiguous():
                kind = "another memory format"
            else:
                kind = "permute + contiguous" if packet is _aten.clone else "permute + to"
            copy = self._record(kind, source, result, origin.base, chain, timing)
            self._origins[result] = replace(
                _new_origin(result),
                chain=chain,
                copy=copy,
                rename=partial(
                    name_conversion,
                    origin.base,
                    tuple(source.shape),
                    source.stride(),
                    result_strides=result.stride(),
                ),
            )
        elif source.dtype != result.dtype:
            copy = self._record("cast", source, result, origin.base, chain, timing)
            copy.moves = False
            copy.is_reported = origin.copy is not None
            if copy.is_reported:
                self.copies.append(copy)
            self._origins[result] = origin.follow(replace(chain, casts=(*chain.casts, copy)))

    def _write(self, source: Any, result: Any, timing: _Timing) -> None:
        """Record `result.copy_(source)`, also of an assignment to a part of a tensor."""
        if not _is_plain(source) or source.shape != result.shape:
            return
        if _num_bytes(source, result) < self._min_bytes or source.device != result.device:
            return
        if is_moved(source.shape, source.stride(), result.stride()):
            origin = self._origin(source)
            chain = replace(origin.chain, dtype=_name(result.dtype))
            kind = "copy into a tensor"
            self._record(kind, source, result, origin.base, chain, timing).out = True

    def _join(self, kind: str, parts: list[Any], result: Any, timing: _Timing) -> None:
        first = parts[0]
        inner = result.stride()[-first.dim() :]
        if first.dim() < 2 or not is_moved(first.shape, first.stride(), inner):
            return
        if _num_bytes(result, result) < self._min_bytes:
            return
        origin = self._origin(first)
        copy = self._record(kind, first, first, origin.base, origin.chain, timing, inner)
        for part in parts[1:]:
            self._report_casts(self._origin(part).chain)
        copy.nbytes = _num_bytes(result, result)
        is_stack = kind.startswith("stack")
        if is_stack:
            left, _, right = copy.conversion.pattern.partition("->")
            batch = "b" if "b" not in left else "n"
            copy.conversion = replace(copy.conversion, pattern=f"{left}->{batch}{right}")
        copy.function = "collate" if is_stack else "convert"

    def _import(self, tensor: Any) -> None:
        """Record a tensor from NumPy that had been one before, with another order of axes."""
        shape = tuple(tensor.shape)
        for pointer, exported, begin in reversed(self._exported):
            if sorted(exported) != sorted(shape) or exported == shape:
                continue
            if pointer == tensor.data_ptr() or _num_bytes(tensor, tensor) < self._min_bytes:
                continue
            strides = contiguous_strides(exported, ELEMENTS)
            places = _positions(shape, exported)
            conversion = name_conversion(
                exported, shape, [strides[axis] for axis in places], shape, tensor.stride()
            )
            chain = Chain(_name(tensor.dtype), _name(tensor.dtype))
            nbytes = _num_bytes(tensor, tensor)
            timing = begin, time.perf_counter() - begin
            self.copies.append(
                Copy("NumPy round trip", conversion, chain, _user_place(), nbytes, *timing)
            )
            return

    def _record(
        self,
        kind: str,
        source: Any,
        result: Any,
        base: tuple[int, ...],
        chain: Chain,
        timing: _Timing,
        result_strides: Any = None,
    ) -> Copy:
        """Record a copy, with the casts before it."""
        conversion = name_conversion(
            base,
            tuple(source.shape),
            source.stride(),
            tuple(result.shape),
            result_strides or result.stride(),
        )
        nbytes = _num_bytes(source, result)
        copy = Copy(kind, conversion, chain, _user_place(), nbytes, *timing)
        if result_strides is None:
            copy.sizes = _memory_sizes(source), _memory_sizes(result)
        if kind != "cast":
            self._report_casts(chain)
            self.copies.append(copy)
        return copy

    def _report_casts(self, chain: Chain) -> None:
        """Report the casts before a copy, each once, although other copies may follow it too."""
        self.copies += [cast for cast in chain.casts if not cast.is_reported]
        for cast in chain.casts:
            cast.is_reported = True


def _is_plain(tensor: Any) -> bool:
    """Return True for a dense tensor with strides and memory of its own; not for subclasses."""
    return (
        isinstance(tensor, _torch.Tensor)
        and type(tensor).__torch_dispatch__ is _torch.Tensor.__torch_dispatch__
        and tensor.layout is _torch.strided
        and not tensor.is_nested
        and tensor.device.type != "meta"
    )


def _new_origin(tensor: Any) -> _Origin:
    return _Origin(Chain(_name(tensor.dtype), _name(tensor.dtype)), _memory_sizes(tensor))


def _memory_sizes(tensor: Any) -> tuple[int, ...]:
    """Return the sizes of the axes from the outermost in memory to the innermost."""
    shape = tuple(tensor.shape)
    return tuple(shape[axis] for axis in memory_order(shape, tensor.stride()))


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _positions(sizes: tuple[int, ...], exported: tuple[int, ...]) -> list[int]:
    """Return the axis of `exported` of each of `sizes`; equal sizes are in the same order."""
    free = list(range(len(exported)))
    axes: list[int] = []
    for size in sizes:
        axes.append(next(axis for axis in free if exported[axis] == size))
        free.remove(axes[-1])
    return axes


def _num_bytes(source: Any, result: Any) -> int:
    read = source.numel() * source.element_size()
    written = result.numel() * result.element_size()
    return int(read + written)


def _is_formula(args: Any, result: Any) -> bool:
    """Return True for arithmetic of a tensor with a number, or with a much smaller tensor."""
    if len(args) < 2 or args[0].shape != result.shape or args[0].dim() < 2:
        return False
    other = args[1]
    return not isinstance(other, _torch.Tensor) or other.numel() * _FEWER <= result.numel()


def _user_place() -> Place:
    """Return the innermost line of the user's program, or else of a library that is not torch."""
    frame: Any = sys._getframe(2)
    outer: Any = None  # the innermost frame outside of torch and layoutkit
    is_backward = False
    module = library = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_USER_CODE):
            outer = outer or frame
            if not _is_library(path):
                break
            library = _name_function(frame) or library
        is_backward |= frame.f_code.co_name == "_engine_run_backward"
        name = str(frame.f_globals.get("__name__", ""))
        module = module or (name if name.startswith("torch.") and "._" not in name else "")
        frame = frame.f_back
    if frame is None:  # a program of installed packages only
        frame, library = outer or sys._getframe(2), ""
    code = frame.f_code
    inside = "" if is_backward else library or module
    return Place(code.co_filename, frame.f_lineno, code.co_name, is_backward, inside)


def _is_library(path: str) -> bool:
    """Return True for a file of an installed package or of Python."""
    return path.startswith(_PYTHON_FOLDER) or any(name in path for name in _PACKAGE_FOLDERS)


def _name_function(frame: Any) -> str:
    """Return package and name of a function of an installed package; "" for one of Python."""
    path = frame.f_code.co_filename
    if not any(name in path for name in _PACKAGE_FOLDERS):
        return ""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return f"{package}.{frame.f_code.co_qualname}"


@contextmanager
def count_workers(counts: Counter[Place]) -> Iterator[None]:
    """Count the worker processes of the DataLoaders that are iterated in the block, by place."""
    loader = _torch.utils.data.DataLoader
    iterate = loader.__iter__

    def counted(self: Any) -> Any:
        if self.num_workers:
            place = _user_place()
            counts[place] = max(counts[place], self.num_workers)
        return iterate(self)

    loader.__iter__ = counted
    try:
        yield
    finally:
        loader.__iter__ = iterate
