"""Find the adapter of an array, and dispatch conversions and sums of arrays that are not NumPy's.

`registry.py` maps an array's package to the module with its adapter. Arrays of unregistered
libraries are imported by `__dlpack__` or `__cuda_array_interface__`, and objects that contain an
array (`containers.py`) are tried last. Adapters only import and export arrays;
`dispatch_conversion` and `dispatch_sum` select the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import describe_type
from ..converter import make_plan_for_device
from ..cuda.accumulate import DeviceSums
from ..cuda.memory import DeviceArray, check_same_device
from ..cuda.program import DevicePrograms
from ..cuda.transfers import DeferredArray, download, upload
from ..errors import ArgumentError, DeviceError, ShapeError
from ..memory import Array
from ..planning.plan import (
    check_no_out,
    find_padded_source,
    make_options_after_take,
    make_padded_source_options,
    memory_permutation,
)
from ..planning.plan import make_memory_order_options as in_memory_order
from ..spec import CPU, DType, device_ordinal
from .base import NUMPY, Adapter
from .containers import ListAdapter, array_protocol_adapter, find_pixels_cure
from .cupy import CUPY, CudaAdapter, ForeignAdapter, sum_key
from .gradients import take_channels
from .registry import call_backend_hook

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..options import ConvertOptions
    from ..planning.plan import Plan


_CUDA = (2, 13)  # DLPack device types of GPU memory: CUDA and CUDA managed
_dlpack_adapter = Adapter()
_foreign_adapter = ForeignAdapter()


def get_adapter(x: Any) -> Adapter | None:
    """Return the adapter of an array, or None for NumPy arrays and for other objects."""
    if isinstance(x, np.ndarray):
        return None
    return call_backend_hook("adapter_for", x) or _find_adapter_by_protocol(x)


def adapter_for_any(x: Any) -> Adapter:
    """Return the adapter of any array or object that contains an array.

    For an unsupported object it is NumPy's adapter, whose methods raise the error.
    """
    if isinstance(x, np.ndarray):
        return NUMPY
    adapter: Adapter | None = call_backend_hook("adapter_for", x) or call_backend_hook(
        "container_for", x
    )
    return (
        adapter
        or _find_adapter_by_protocol(x)
        or array_protocol_adapter(x)
        or (_list_adapter if _list_adapter.holds(x) else NUMPY)
    )


def _find_adapter_by_protocol(x: Any) -> Adapter | None:
    """Return the adapter of an array that supports DLPack or the CUDA array interface."""
    array_type = type(x)
    if hasattr(array_type, "__dlpack__") and hasattr(array_type, "__dlpack_device__"):
        return _foreign_adapter if int(x.__dlpack_device__()[0]) in _CUDA else _dlpack_adapter
    return _foreign_adapter if hasattr(array_type, "__cuda_array_interface__") else None


def get_device_adapter(x: Any) -> CudaAdapter | None:
    """Return the adapter of an array on a GPU, or None for other arrays."""
    adapter = get_adapter(x)
    return adapter if isinstance(adapter, CudaAdapter) else None


_list_adapter = ListAdapter(adapter_for_any)


def as_array(x: Any, arg_name: str = "x") -> Array:
    """Return the NumPy array that shares the memory of x, or that the container x holds."""
    return adapter_for_any(x).to_numpy(x, arg_name)


def inspect(x: Any, arg_name: str = "x") -> tuple[tuple[int, ...], DType, str]:
    """Return shape, dtype and device of an array of any library, traced or not."""
    adapter = adapter_for_any(x)
    return *adapter.inspect(x, arg_name), adapter.device(x, arg_name)


def find_array_layout(
    x: Any, arg_name: str = "x"
) -> tuple[tuple[int, ...], tuple[int, ...], DType, str]:
    """Return shape, strides, dtype and device of an array of any library."""
    adapter = get_device_adapter(x)
    if adapter is not None:
        return adapter.device_array(x, arg_name).plan_args
    array = as_array(x, arg_name)
    return array.shape, array.strides, array.dtype, CPU


# ---- conversions -------------------------------------------------------------------------


def plan_conversion(converter: Converter, x: Any) -> Plan:
    """Return the plan of a conversion of an array of any library."""
    return adapter_for_any(x).plan(converter, x) or make_plan_for_device(
        converter.options, *find_array_layout(x)
    )


def dispatch_conversion(converter: Converter, x: Any, out: Any) -> Any:
    """Return `converter(x, out)` if x or out is not a NumPy array, or a GPU converts.

    `memory=`, and channels and padding that the kernels do not handle, are separate steps around a
    simpler conversion. The library of x records the simpler conversion (for a gradient or a trace),
    or it runs on a GPU, from a GPU to the CPU, from the CPU to a GPU, or on the CPU.
    """
    adapter = adapter_for_any(x)
    if out is None:
        converter = adapter.narrowed(converter, x)
    options = converter.options
    if options.memory is not None:
        return _convert_in_memory_order(converter, x, out)
    if adapter.pads_input or converter.targets_gpu:
        stays_on_gpu = isinstance(adapter, CudaAdapter) and converter.device != CPU
        pads = stays_on_gpu and not adapter.is_recorded(x)
        selected = take_channels(options, adapter, x, pads=pads)
        if selected is not None:
            converter = converter.with_options(make_options_after_take)
            x = selected
        if options.padding is not None and not pads:
            return _convert_padded(converter, adapter, x, out)
        if selected is not None:
            return converter(x, out)
    has_traced_constants = (
        options.formula is not None and options.formula.is_traced and adapter.traces_constants
    )
    if has_traced_constants or adapter.is_recorded(x):
        return adapter.convert_recorded(converter, x, out)
    if adapter.converts:
        return adapter.convert(converter, x, out)
    if isinstance(adapter, CudaAdapter):
        if converter.device == CPU:
            return _convert_to_cpu(converter, adapter, x, out)
        return _convert_on_gpu(converter, adapter, x, out)
    if converter.targets_gpu:
        return convert_on_gpu(converter, adapter, adapter.to_numpy(x, "x"), out)
    try:
        return _convert_on_cpu(converter, adapter, x, out)
    except ShapeError as error:
        if cure := find_pixels_cure([x], "x", options.pattern.left.ndim):
            raise ShapeError(f"{error}; {cure}") from None
        raise


def _device_programs(converter: Converter) -> DevicePrograms:
    """Return the GPU programs of a Converter, which the first call creates."""
    if converter.cuda_programs is None:
        converter.cuda_programs = DevicePrograms(converter.options)
    return converter.cuda_programs


def _convert_padded(converter: Converter, adapter: Adapter, x: Any, out: Any) -> Any:
    padding = find_padded_source(converter.options, *adapter.inspect(x, "x"))
    padded = adapter.padded(x, padding)
    return converter.with_options(make_padded_source_options)(padded, out)


def _convert_in_memory_order(converter: Converter, x: Any, out: Any) -> Any:
    """Convert to axes in the order of `memory=`, and return a permuted view of that result."""
    check_no_out(converter.options, out)
    return permute_to_layout(converter.options, converter.with_options(in_memory_order)(x))


def permute_to_layout(options: ConvertOptions, result: Any) -> Any:
    """Return a view, in the layout of the pattern, of a result in the order of `memory=`."""
    return adapter_for_any(result).permute(result, memory_permutation(options, result.ndim))


def _convert_on_cpu(converter: Converter, adapter: Adapter, x: Any, out: Any) -> Any:
    array = adapter.to_numpy(x, "x")
    if out is not None:
        return write_on_cpu(adapter, out, "x", lambda target: converter(array, target))
    result = converter(array)
    return adapter.unchanged_result(x, array) if result is array else adapter.from_numpy(result, x)


def _convert_on_gpu(converter: Converter, adapter: CudaAdapter, x: Any, out: Any) -> Any:
    array = adapter.device_array(x, "x")
    if converter.device is not None:
        check_same_device(array, "x", converter.device, "device=")
    target = device_output(adapter, out, array, "x")
    programs = _device_programs(converter)
    with adapter.kept_alive([array], target):
        result = programs.run(array, target, adapter)
    programs.cache_fast_path(adapter.cache_key(x, out), array, target)
    if target is not None:
        return adapter.written(out)
    return (
        adapter.unchanged_result(x, result) if result is array.owner else adapter.export(result, x)
    )


def convert_on_gpu(
    converter: Converter, adapter: Adapter, array: Array | DeferredArray, out: Any
) -> Any:
    """Convert an array on the CPU, or a deferred one, on a GPU."""
    gpu_adapter = adapter.cuda_adapter() or CUPY
    result_device = DeviceArray(
        0, (), (), array.dtype, device_ordinal(converter.device or CPU), None
    )
    target = device_output(gpu_adapter, out, result_device, "the result")
    result = upload(_device_programs(converter), array, target, gpu_adapter)
    return gpu_adapter.export(result, None) if target is None else gpu_adapter.written(out)


def _convert_to_cpu(converter: Converter, adapter: CudaAdapter, x: Any, out: Any) -> Any:
    array = adapter.device_array(x, "x")
    programs, cpu_adapter = _device_programs(converter), adapter.cpu_adapter()
    if out is None:
        return cpu_adapter.from_numpy(download(programs, array, None, adapter), x)
    return write_on_cpu(
        cpu_adapter, out, None, lambda target: download(programs, array, target, adapter)
    )


def device_output(
    adapter: CudaAdapter, out: Any, first: DeviceArray, name: str
) -> DeviceArray | None:
    """Return the memory of the caller's output, or None if there is no output."""
    return None if out is None else adapter.device_output(out, get_device_adapter(out), first, name)


def write_on_cpu(
    adapter: Adapter, out: Any, arg_name: str | None, write: Callable[[Array], object]
) -> Any:
    """Write to the memory of `out`, and return it; see `_check_out_not_on_gpu` for `arg_name`."""
    _check_out_not_on_gpu(out, arg_name)
    out_adapter = adapter_for_any(out)
    writer = out_adapter if out_adapter.is_container else adapter
    write(writer.target(out))
    return writer.written(out)


def _check_out_not_on_gpu(out: Any, name: str | None) -> None:
    """Raise DeviceError if `out` is on a GPU, but the result is computed on the CPU.

    name    of the argument that is on the CPU; None: the caller passed device="cpu"
    """
    adapter = get_device_adapter(out)
    if adapter is None:
        return
    device = adapter.device(out, "out")
    if name is None:
        raise DeviceError(
            f'device="cpu", but out is on {device}; omit device=, or give an out on the CPU'
        )
    raise DeviceError(
        f'{name} is on cpu, but out is on {device}; convert {name} with device="{device}", or give '
        "an out on the CPU"
    )


# ---- sums --------------------------------------------------------------------------------


def dispatch_sum(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """Return a sum of arrays of any library.

    The result is of the library of the first traced part, or of part 0 if no part is traced.
    """
    adapters = [adapter_for_any(part) for part in parts]
    traced = [adapter for adapter in adapters if adapter.is_traced]
    leader = traced[0] if traced else adapters[0]
    if not traced:
        _check_devices(parts, adapters)
    if any(map(leader.is_recorded, parts)):
        return leader.sum_recorded(accumulator, parts, out)
    arrays = [
        _read_memory_without_gradient(*pair)
        for pair in enumerate(zip(parts, adapters, strict=True))
    ]
    if isinstance(leader, CudaAdapter):
        return _sum_on_gpu(accumulator, adapters, arrays, parts, out)
    return _sum_on_cpu(accumulator, leader, arrays, parts[0], out)


def _sum_on_cpu(
    accumulator: Accumulator, adapter: Adapter, arrays: list[Any], like: Any, out: Any
) -> Any:
    if out is not None:
        return write_on_cpu(adapter, out, "part 0", lambda target: accumulator(arrays, target))
    return adapter.from_numpy(accumulator(arrays), like)


def _sum_on_gpu(
    accumulator: Accumulator,
    adapters: Sequence[Any],
    arrays: list[Any],
    parts: Sequence[Any],
    out: Any,
) -> Any:
    adapter: CudaAdapter = adapters[0]
    target = device_output(adapter, out, arrays[0], "part 0")
    if accumulator.cuda_programs is None:
        accumulator.cuda_programs = DeviceSums(accumulator.plan)
    with (
        adapter.joined(arrays, adapters) as foreign,
        adapter.kept_alive(arrays, target, foreign),
    ):
        result = accumulator.cuda_programs.run(arrays, target, adapter)
    key = sum_key(adapter, parts, out)
    if key is not None:
        accumulator.cuda_programs.cache_fast_path(key, arrays, target)
    return adapter.export(result, parts[0]) if target is None else adapter.written(out)


def _check_devices(parts: Sequence[Any], adapters: Sequence[Adapter]) -> None:
    """Raise DeviceError unless all parts are on one device."""
    if not any(isinstance(adapter, CudaAdapter) for adapter in adapters):
        return
    pairs = enumerate(zip(parts, adapters, strict=True))
    devices = [adapter.device(part, f"part {n}") for n, (part, adapter) in pairs]
    for number, device in enumerate(devices):
        if device != devices[0]:
            raise DeviceError(
                f"part 0 is on {devices[0]}, but part {number}, {describe_type(parts[number])}, is "
                f"on {device}; bring all to one device first, for example with convert(..., "
                f'device="{devices[0]}")'
            )


def _read_memory_without_gradient(number: int, pair: tuple[Any, Adapter]) -> Any:
    """Return the memory of a part of a sum; raise ArgumentError if the part has a gradient."""
    part, adapter = pair
    if adapter.has_gradient(part):
        raise ArgumentError(
            f"part {number} requires a gradient, but the sum is not a torch tensor, because part "
            f"0 is not; pass a tensor as part 0, or pass part {number}.detach()"
        )
    if isinstance(adapter, CudaAdapter):
        return adapter.device_array(part, f"part {number}")
    return adapter.to_numpy(part, f"part {number}")
