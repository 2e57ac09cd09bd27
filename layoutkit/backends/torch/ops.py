"""Custom torch operators that run layoutkit's kernels in traced graphs.

    layoutkit::convert(x, options, names, sizes)
    layoutkit::accumulate(parts, layouts, layout, dtype, names, sizes)
    layoutkit::stack_windows(samples, windows)
    layoutkit::stack_windows_transposed(grad, windows)

All allocate their results, and have gradients of any order and a fake implementation. The first
two accept symbolic sizes and have a vmap rule. `options` and `windows` (backends/windows.py) are
JSON, because a graph holds only plain values. `names` and `sizes` are axes and their sizes,
separate from `options` because torch may pass symbols as sizes.

This module is imported for the first traced tensor.
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
from ...cuda.memory import DeviceArrays
from ...layout.pattern import parse_pattern
from ...normalize import Bounds
from ...options import ConvertOptions, join_sizes, parse_call, split_sizes
from ...planning.gradient import (
    find_folded_sizes,
    make_channel_scatter,
    make_gradient_arguments,
    without_channels,
    without_folded_ellipsis,
)
from ...spec import DType, as_dtype, dtype_kind
from ..collate import SymbolicWindows
from ..dispatch import adapter_for_any
from ..gradients import mask_clipped_grad, scatter_channel_grad
from ..windows import Windows
from .symbolic import library
from .tensors import cuda_adapter, find_concrete_adapter

_torch: Any = import_module("torch")
_namespace = library()


# ---- one tensor --------------------------------------------------------------------------


def _convert(x: Any, options: str, names: list[str], sizes: list[int]) -> Any:
    converter = _converter(options, tuple(names), tuple(sizes))
    x = x.detach()
    if x.is_cpu and not converter.targets_gpu:
        adapter = find_concrete_adapter(x)
        result = adapter.from_numpy(converter(adapter.to_numpy(x, "x")), x)
    else:
        result = converter(x)
    return result.clone() if result.data_ptr() == x.data_ptr() else result


def _fake_convert(x: Any, options: str, names: list[str], sizes: list[int]) -> Any:
    checked = _options_of(options, names, sizes)
    move, _, target = checked.infer_result(tuple(x.shape), _namespace.dtype(x))
    if checked.formula is not None:  # raises unless there is one constant per index
        checked.formula.coefficients(checked.formula.indices(move))
    return _empty(move.target_shape, target, checked.device or x.device)


def _remember_x(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.arguments = inputs
    ctx.x = _TensorInfo(x)
    ctx.clip = _clip_of(_options_of(*ctx.arguments))
    if ctx.clip is not None:
        ctx.save_for_backward(x)


def _convert_back(ctx: Any, grad: Any) -> tuple[Any, ...]:
    grad_x = _gradient(_options_of(*ctx.arguments), ctx.x, grad)
    if ctx.clip is not None:
        (x,) = ctx.saved_tensors
        grad_x = mask_clipped_grad(grad_x, x, ctx.clip)
    return grad_x, None, None, None


def _map_convert(
    info: Any, axes: Any, x: Any, options: str, names: list[str], sizes: list[int]
) -> tuple[Any, int]:
    data = json.loads(options)
    pattern = parse_pattern(data["pattern"], names)
    source = str(pattern.source)
    target = str(pattern.target)
    batch_pattern = (
        f"{_with_batch_axis(source, source + target)}->{_with_batch_axis(target, source + target)}"
    )
    mapped = json.dumps({**data, "pattern": batch_pattern})
    return convert(x.movedim(axes[0], 0), mapped, names, sizes), 0


# ---- a sum -------------------------------------------------------------------------------


def _accumulate(parts: list[Any], *graph_args: Any) -> Any:
    accumulator = _accumulator(*(tuple(x) if isinstance(x, list) else x for x in graph_args))
    detached = [part.detach() for part in parts]
    if not detached[0].is_cpu:
        return accumulator(detached)
    adapter = find_concrete_adapter(detached[0])
    return adapter.from_numpy(
        accumulator([adapter.to_numpy(part, "a part") for part in detached]), detached[0]
    )


def _fake_accumulate(parts: list[Any], *graph_args: Any) -> Any:
    accumulator = Accumulator.from_graph_args(*graph_args)
    inspected = [(tuple(part.shape), _namespace.dtype(part)) for part in parts]
    moves, result = accumulator.infer_result(*zip(*inspected, strict=True))
    return _empty(moves[0].target_shape, result, parts[0].device)


def _remember_parts(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    parts, *ctx.arguments = inputs
    ctx.parts = [_TensorInfo(part) for part in parts]


def _accumulate_back(ctx: Any, grad: Any) -> tuple[Any, ...]:
    converters = Accumulator.from_graph_args(*ctx.arguments).converters()
    grads = [
        _gradient(converter.options, part, grad) if part.is_differentiable else None
        for converter, part in zip(converters, ctx.parts, strict=True)
    ]
    # torch treats an empty list as a list of tensors, and expects a list of gradients.
    return grads, *([] if argument == [] else None for argument in ctx.arguments)


def _map_accumulate(
    info: Any, axes: Any, parts: list[Any], layouts: list[str], layout: str, *rest: Any
) -> tuple[Any, int]:
    moved = [
        part.expand(info.batch_size, *part.shape) if axis is None else part.movedim(axis, 0)
        for part, axis in zip(parts, axes[0], strict=True)
    ]
    used_letters = "".join((*layouts, layout))
    batch_layouts = [_with_batch_axis(name, used_letters) for name in layouts]
    batch_layout = _with_batch_axis(layout, used_letters)
    return accumulate(moved, batch_layouts, batch_layout, *rest), 0


# ---- windows of samples ------------------------------------------------------------------


def _stack_windows(samples: list[Any], windows: str) -> Any:
    detached = [x.detach() for x in samples]
    adapter = find_concrete_adapter(detached[0])
    if detached[0].is_cuda:
        return _stack_windows_on_gpu(detached, _windows(windows))
    arrays = [adapter.to_numpy(x, f"sample {n}") for n, x in enumerate(detached)]
    return adapter.from_numpy(_windows(windows).stack(arrays), detached[0])


def _stack_windows_on_gpu(samples: list[Any], windows: Windows) -> Any:
    adapter, axis = cuda_adapter(), windows.axis
    parts = samples if axis is None else samples[0].unbind(axis)
    arrays = [adapter.device_array(x, f"sample {n}") for n, x in enumerate(parts)]
    return windows.stack_on_gpu(DeviceArrays.of(arrays), adapter).owner


def _fake_stack_windows(samples: list[Any], windows: str) -> Any:
    result = _windows(windows)
    return _empty(result.shape, result.window_dtype, samples[0].device)


def _remember_windows(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    samples, ctx.windows = inputs
    ctx.is_differentiable = [x.is_floating_point() for x in samples]


def _stack_windows_back(ctx: Any, grad: Any) -> tuple[Any, ...]:
    windows = _windows(ctx.windows)
    if _namespace.is_batched_gradient(grad):
        parts = _symbolic_gradients(windows, grad)
    else:
        parts = windows.split(stack_windows_transposed(grad, ctx.windows))
    needed = zip(ctx.is_differentiable, parts, strict=True)
    return [part if is_differentiable else None for is_differentiable, part in needed], None


def _transpose_windows(grad: Any, windows: str) -> list[Any]:
    if grad.is_cuda:
        return _transpose_windows_on_gpu(grad.detach(), _windows(windows))
    adapter = find_concrete_adapter(grad)
    stacks = _windows(windows).transposed(adapter.to_numpy(grad.detach(), "grad"))
    return [adapter.from_numpy(stack, grad) for stack in stacks]


def _transpose_windows_on_gpu(grad: Any, windows: Windows) -> list[Any]:
    if not grad.numel():
        return [_torch.zeros_like(x) for x in _fake_transpose_windows(grad, windows.text)]
    adapter = cuda_adapter()
    stacks = windows.transposed_on_gpu(adapter.device_array(grad, "grad"), adapter)
    return [stack.owner.movedim(0, windows.axis or 0) for stack in stacks]


def _fake_transpose_windows(grad: Any, windows: str) -> list[Any]:
    dtype = as_dtype(_windows(windows).dtype)
    return [_empty(shape, dtype, grad.device) for shape in _windows(windows).stack_shapes]


def _remember_transposed(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.windows = inputs


def _transpose_windows_back(ctx: Any, grads: list[Any]) -> tuple[Any, ...]:
    windows = _windows(ctx.windows).without_fill()
    samples = windows.split(grads)
    if any(map(_namespace.is_batched_gradient, samples)):
        return _symbolic_windows(windows, samples), None
    return stack_windows(samples, windows.text), None


def _symbolic_windows(windows: Windows, samples: list[Any]) -> Any:
    """Return the stacked windows in torch operations, which accept batched gradients."""
    adapter = adapter_for_any(samples[0])
    return SymbolicWindows(windows, as_dtype(windows.dtype), adapter, samples[0]).stack(samples)


def _symbolic_gradients(windows: Windows, grad: Any) -> Sequence[Any]:
    """Return the gradients of samples in torch operations."""
    keeps_graph = _torch.is_grad_enabled()
    dtype = getattr(_torch, windows.dtype)
    samples = [
        _torch.zeros(shape, dtype=dtype, device=grad.device, requires_grad=True)
        for shape in (windows.shapes if windows.axis is None else windows.stack_shapes)
    ]
    with _torch.enable_grad():
        stack = _symbolic_windows(windows, samples)
    return _torch.autograd.grad(stack, samples, grad, create_graph=keeps_graph)


@lru_cache(maxsize=MAX_KEPT)
def _windows(text: str) -> Windows:
    return Windows.from_text(text)


# ---- common to both ----------------------------------------------------------------------


class _TensorInfo:
    """The properties of a tensor that its gradient depends on, without its data."""

    def __init__(self, x: Any) -> None:
        self.shape = tuple(x.shape)
        self.device = x.device
        self.dtype: DType = _namespace.dtype(x)
        self.is_differentiable = dtype_kind(self.dtype) in "fc"


def _gradient(options: ConvertOptions, x: _TensorInfo, grad: Any) -> Any:
    """Return the gradient of x, for the gradient of the result, by the reverse conversion."""
    if dtype_kind(x.dtype) != "c" and grad.is_complex():
        grad = grad.real
    options = without_folded_ellipsis(options, len(x.shape))
    selection = make_channel_scatter(
        options, (tuple(grad.shape), _namespace.dtype(grad), ""), (x.shape, x.dtype, "")
    )
    move = options.select_channels(x.shape)[0]
    dtype = x.dtype
    if selection is not None:
        options = without_channels(options)
        dtype = selection[0][1]
    axis_sizes = find_folded_sizes(options, move.named_sizes)
    device = None if grad.device == x.device else str(x.device)
    pattern, keywords = make_gradient_arguments(options, axis_sizes, dtype, device)
    back = parse_call(pattern, {**keywords, "dtype": dtype})
    grad_x = convert(grad.contiguous(), *split_sizes(back.to_dict()))
    return grad_x if selection is None else scatter_channel_grad(grad_x, *selection[1:], x.dtype)


def _clip_of(options: ConvertOptions) -> Bounds | None:
    return None if options.formula is None else options.formula.clip


def _empty(shape: tuple[Any, ...], dtype: DType, device: Any) -> Any:
    _namespace.check(dtype)
    return _torch.empty(shape, dtype=getattr(_torch, dtype.name), device=device)


def _options_of(options: str, names: Sequence[str], sizes: Sequence[int]) -> ConvertOptions:
    return ConvertOptions.from_dict(join_sizes(options, names, sizes))


@lru_cache(maxsize=MAX_KEPT)
def _converter(options: str, names: tuple[str, ...], sizes: tuple[int, ...]) -> Converter:
    return Converter.from_dict(join_sizes(options, names, sizes))


_accumulator = lru_cache(maxsize=MAX_KEPT)(Accumulator.from_graph_args)


def _with_batch_axis(layout: str, used_letters: str) -> str:
    """Return the layout with a new first axis, named by a letter not in `used_letters`."""
    name = next(letter for letter in ascii_lowercase if letter not in used_letters + "fc")
    return f"{name} {layout}" if " " in layout else f"{name}{layout}"


def _register_operator(
    name: str, run: Any, fake: Any, setup: Any, back: Any, mapped: Any, schema: str
) -> Any:
    operator = _torch.library.custom_op(f"layoutkit::{name}", run, mutates_args=(), schema=schema)
    operator.register_fake(fake)
    operator.register_autograd(back, setup_context=setup)
    if mapped is not None:
        operator.register_vmap(mapped)
    return operator


convert = _register_operator(
    "convert",
    _convert,
    _fake_convert,
    _remember_x,
    _convert_back,
    _map_convert,
    "(Tensor x, str options, str[] names, SymInt[] sizes) -> Tensor",
)
accumulate = _register_operator(
    "accumulate",
    _accumulate,
    _fake_accumulate,
    _remember_parts,
    _accumulate_back,
    _map_accumulate,
    "(Tensor[] parts, str[] layouts, str layout, str dtype, str[] names, SymInt[] sizes) -> Tensor",
)
stack_windows = _register_operator(
    "stack_windows",
    _stack_windows,
    _fake_stack_windows,
    _remember_windows,
    _stack_windows_back,
    None,
    "(Tensor[] samples, str windows) -> Tensor",
)
stack_windows_transposed = _register_operator(
    "stack_windows_transposed",
    _transpose_windows,
    _fake_transpose_windows,
    _remember_transposed,
    _transpose_windows_back,
    None,
    "(Tensor grad, str windows) -> Tensor[]",
)
