"""Operators of PyTorch that carry our kernels through graphs that others run later.

    layoutkit::convert(x, pattern, keywords, names, sizes)
    layoutkit::accumulate(parts, layouts, layout, dtype, names, sizes)

Both give new memory. They have gradients of any order, shapes of fake tensors, symbols among their
sizes included, and a rule for vmap. Keywords are JSON, so that a graph says them in words; sizes
are numbers beside their axes, since torch may hold symbols there.

Imported with the first tensor that is traced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from string import ascii_lowercase
from typing import Any

from ..._utils.cache import MAX_KEPT
from ...accumulation import Accumulator
from ...converter import Converter
from ...layout.pattern import parse_pattern
from ...normalize import Bounds
from ...planning.gradient import folded, gradient, spread_of, taken
from ...planning.options import Task, make_task
from ...spec import DType, kind_of
from ..gradients import spread as spread_out
from ..gradients import stopped
from .symbolic import library, options_from_json
from .tensors import adapter_of_memory

_torch: Any = import_module("torch")
_words = library()


# ---- one tensor --------------------------------------------------------------------------


def _convert(x: Any, pattern: str, keywords: str, names: list[str], sizes: list[int]) -> Any:
    converter = _converter(pattern, keywords, tuple(names), tuple(sizes))
    x = x.detach()
    if x.is_cpu and not converter.is_away:
        here = adapter_of_memory(x)
        y = here.leave(converter(here.arrive(x, "x")), x)
    else:
        y = converter(x)
    return y.clone() if y.data_ptr() == x.data_ptr() else y


def _fake_convert(x: Any, pattern: str, keywords: str, names: list[str], sizes: list[int]) -> Any:
    task = _task(pattern, keywords, names, sizes)
    move, target = task.judge(tuple(x.shape), _words.dtype(x))
    if task.formula is not None:  # one constant for each index, as the kernels will want it
        task.formula.coefficients(task.formula.indices(move))
    return _empty(move.target_shape, target, task.device or x.device)


def _remember_x(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.asked = inputs
    ctx.x = _TensorInfo(x)
    ctx.clip = _clip_of(_task(*ctx.asked))
    if ctx.clip is not None:
        ctx.save_for_backward(x)


def _convert_back(ctx: Any, grad: Any) -> tuple[Any, ...]:
    found = _gradient(_task(*ctx.asked), ctx.x, grad)
    if ctx.clip is not None:
        (x,) = ctx.saved_tensors
        found = stopped(found, x, ctx.clip)
    return found, None, None, None, None


def _map_convert(
    info: Any, axes: Any, x: Any, pattern: str, keywords: str, names: list[str], sizes: list[int]
) -> tuple[Any, int]:
    source, target = (
        str(side) for side in (parse_pattern(pattern).source, parse_pattern(pattern).target)
    )
    mapped = (
        f"{_with_batch_axis(source, source + target)}->{_with_batch_axis(target, source + target)}"
    )
    return convert(x.movedim(axes[0], 0), mapped, keywords, names, sizes), 0


# ---- a sum -------------------------------------------------------------------------------


def _accumulate(
    parts: list[Any],
    layouts: list[str],
    layout: str,
    dtype: str,
    names: list[str],
    sizes: list[int],
) -> Any:
    accumulator = _accumulator(tuple(layouts), layout, dtype, tuple(names), tuple(sizes))
    plain = [part.detach() for part in parts]
    if not plain[0].is_cpu:
        return accumulator(plain)
    here = adapter_of_memory(plain[0])
    return here.leave(accumulator([here.arrive(part, "a part") for part in plain]), plain[0])


def _fake_accumulate(
    parts: list[Any],
    layouts: list[str],
    layout: str,
    dtype: str,
    names: list[str],
    sizes: list[int],
) -> Any:
    accumulator = _accumulator_of(layouts, layout, dtype, names, sizes)
    facts = [(tuple(part.shape), _words.dtype(part)) for part in parts]
    moves, result = accumulator.resolve(*zip(*facts, strict=True))
    return _empty(moves[0].target_shape, result, parts[0].device)


def _remember_parts(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    parts, *ctx.asked = inputs
    ctx.parts = [_TensorInfo(part) for part in parts]


def _accumulate_back(ctx: Any, grad: Any) -> tuple[Any, ...]:
    ways = _accumulator_of(*ctx.asked).converters()
    grads = [
        _gradient(way.task, part, grad) if part.is_differentiable else None
        for way, part in zip(ways, ctx.parts, strict=True)
    ]
    # An empty list is taken for one of tensors, and wants a list of gradients.
    return grads, *([] if asked == [] else None for asked in ctx.asked)


def _map_accumulate(
    info: Any, axes: Any, parts: list[Any], layouts: list[str], layout: str, *others: Any
) -> tuple[Any, int]:
    moved = [
        part.expand(info.batch_size, *part.shape) if axis is None else part.movedim(axis, 0)
        for part, axis in zip(parts, axes[0], strict=True)
    ]
    mapped = [_with_batch_axis(each, "".join((*layouts, layout))) for each in (*layouts, layout)]
    return accumulate(moved, mapped[:-1], mapped[-1], *others), 0


# ---- what both need ----------------------------------------------------------------------


class _TensorInfo:
    """What a gradient needs to know of a tensor; of its data nothing is kept."""

    def __init__(self, x: Any) -> None:
        self.shape, self.device = tuple(x.shape), x.device
        self.dtype: DType = _words.dtype(x)
        self.is_differentiable = kind_of(self.dtype) in "fc"


def _gradient(task: Task, x: _TensorInfo, grad: Any) -> Any:
    """The gradient of x for that of the result: a conversion back."""
    if kind_of(x.dtype) != "c" and grad.is_complex():
        grad = grad.real
    spread = spread_of(task, (tuple(grad.shape), _words.dtype(grad), ""), (x.shape, x.dtype, ""))
    move, dtype = task.picked(x.shape)[0], x.dtype
    if spread is not None:
        task, dtype = taken(task), spread[0][1]
    known = folded(task, move.named_sizes)
    place = None if grad.device == x.device else str(x.device)
    pattern, keywords = gradient(task, known, dtype, place)
    words = {name: value for name, value in keywords.items() if name not in known}
    told = json.dumps({**words, "dtype": dtype.name})
    found = convert(grad.contiguous(), pattern, told, list(known), list(known.values()))
    return found if spread is None else spread_out(found, *spread[1:], x.dtype)


def _clip_of(task: Task) -> Bounds | None:
    return None if task.formula is None else task.formula.clip


def _empty(shape: tuple[Any, ...], dtype: DType, device: Any) -> Any:
    _words.check(dtype)
    return _torch.empty(shape, dtype=getattr(_torch, dtype.name), device=device)


def _task(pattern: str, keywords: str, names: Sequence[str], sizes: Sequence[int]) -> Task:
    return make_task(pattern, **options_from_json(keywords, names, sizes))


@lru_cache(maxsize=MAX_KEPT)
def _converter(
    pattern: str, keywords: str, names: tuple[str, ...], sizes: tuple[int, ...]
) -> Converter:
    return Converter(pattern, **options_from_json(keywords, names, sizes))


def _accumulator_of(
    layouts: Sequence[str], layout: str, dtype: str, names: Sequence[str], sizes: Sequence[int]
) -> Accumulator:
    known: dict[str, Any] = dict(zip(names, sizes, strict=True))
    return Accumulator(tuple(layouts), layout, dtype=dtype or None, **known)


_accumulator = lru_cache(maxsize=MAX_KEPT)(_accumulator_of)


def _with_batch_axis(layout: str, others: str) -> str:
    """The layout with one more axis in front, of a name that is in none of the others."""
    name = next(letter for letter in ascii_lowercase if letter not in others + "fc")
    return f"{name} {layout}" if " " in layout else f"{name}{layout}"


def _register_operator(
    name: str, run: Any, fake: Any, setup: Any, back: Any, mapped: Any, schema: str
) -> Any:
    operator = _torch.library.custom_op(f"layoutkit::{name}", run, mutates_args=(), schema=schema)
    operator.register_fake(fake)
    operator.register_autograd(back, setup_context=setup)
    operator.register_vmap(mapped)
    return operator


convert = _register_operator(
    "convert", _convert, _fake_convert, _remember_x, _convert_back, _map_convert,
    "(Tensor x, str pattern, str keywords, str[] names, SymInt[] sizes) -> Tensor",
)  # fmt: skip
accumulate = _register_operator(
    "accumulate", _accumulate, _fake_accumulate, _remember_parts, _accumulate_back, _map_accumulate,
    "(Tensor[] parts, str[] layouts, str layout, str dtype, str[] names, SymInt[] sizes) -> Tensor",
)  # fmt: skip
