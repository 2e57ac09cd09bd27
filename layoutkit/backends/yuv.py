"""The adapter of video frames in planes, which are converted without an array of RGB bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._utils.cache import PROGRAM_SIZE_ESTIMATE, cache_put
from ..buffers import empty
from ..converter import make_plan_for_device
from ..cpu.yuv import make_frame_program
from ..errors import ArgumentError
from ..memory import Array, check_out, check_writable, contiguous_strides, layout_key
from ..spec import CPU, DType
from ..yuv import YUVFrames
from .containers import Container
from .dispatch import adapter_for_any, write_on_cpu

if TYPE_CHECKING:
    from ..converter import Converter
    from ..planning.plan import Plan


class FramesAdapter(Container):
    """The adapter of YUVFrames."""

    converts = True

    def to_numpy(self, x: YUVFrames, arg_name: str) -> Array:
        """Return the RGB bytes, a new array."""
        return x.__array__()

    def from_numpy(self, array: Array, like: YUVFrames) -> Any:
        """Return a result as an array of the library of the planes."""
        return adapter_for_any(like.like).from_numpy(array, like.like)

    def inspect(self, x: YUVFrames, arg_name: str) -> tuple[tuple[int, ...], DType]:
        return x.shape, x.dtype

    def plan(self, converter: Converter, x: YUVFrames) -> Plan:
        """Return the plan of RGB bytes of the shape of the frames."""
        strides = contiguous_strides(x.shape, x.dtype)
        return make_plan_for_device(converter.options, x.shape, strides, x.dtype, CPU)

    def convert(self, converter: Converter, x: YUVFrames, out: Any) -> Any:
        """Convert frames in one pass, or their RGB bytes if the pattern requires that."""
        if converter.options.copy is False:
            raise ArgumentError("copy=False, but RGB is computed from planes; omit copy=")
        if converter.targets_gpu:
            return converter(self.to_numpy(x, "x"), out)
        if out is not None:
            planes = adapter_for_any(x.like)
            return write_on_cpu(planes, out, "y", lambda target: _convert(converter, x, target))
        return self.from_numpy(_convert(converter, x, None), x)


def _convert(converter: Converter, x: YUVFrames, out: Array | None) -> Array:
    options = converter.options
    planes = x.y, x.u, x.v
    shape = converter.target_shape(x.shape)
    if out is not None:
        check_out(out, shape, f'"{options.pattern.text}" on {x.shape}')
        for name, plane in zip(("y", "u", "v"), planes, strict=True):
            check_writable(plane, out, name)
    key = x.format, layout_key(*planes, out)
    entry = converter.recorded.get(key)
    if entry is None:
        program = make_frame_program(options, planes, x.format, out)
        nbytes = PROGRAM_SIZE_ESTIMATE + (program.nbytes if program else 0)
        entry = cache_put(converter.recorded, key, (program,), nbytes)
    (program,) = entry
    if program is None:
        result: Array = converter(x.__array__(), out)
        return result
    target = empty(shape, program.dtype) if out is None else out
    program(planes, target)
    return target


def adapter_for(x: Any) -> FramesAdapter | None:
    """Return the adapter of frames, or None for other objects."""
    return ADAPTER if isinstance(x, YUVFrames) else None


ADAPTER = FramesAdapter()
