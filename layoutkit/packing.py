"""Collate samples of different sizes to `Packed` batches, for arrays of any library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from ._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from .backends import dispatch
from .backends.base import Adapter
from .backends.collate import (
    check_ignored,
    choose_adapter,
    find_functions,
    import_device_samples,
    make_stack_conversion,
    view_memory,
)
from .backends.cupy import CudaAdapter
from .backends.windows import choose_letters, make_keywords
from .buffers import empty
from .converter import Converter
from .cpu.packed import PackedProgram, PackedResizeProgram
from .cpu.program import supports_float16
from .cpu.window_table import SampleBatch, check_apart, describe_arrays, with_addresses
from .cuda.packed import DevicePackedProgram
from .errors import ArgumentError, ShapeError
from .memory import Array, in_native_order
from .normalize import CHANNEL
from .options import CollateOptions, parse_collate_options
from .planning.batch.arguments import CropArgs, PerSampleArgs
from .planning.batch.layout import check_same_rank_and_dtype, stack_shapes
from .planning.batch.packing import (
    Packed,
    PackedLayout,
    lay_out_samples,
    packs_constants,
    parse_packed_args,
)
from .planning.batch.placement import Placements, place_crops, place_resized_windows
from .planning.batch.samples import SampleAxes
from .planning.batch.weights import moves_items
from .planning.centering import DEFAULT_CENTERING
from .planning.plan import Part
from .planning.resize import ResizeOptions
from .spec import DType

SampleCollation = Callable[..., Any]  # a Collator


class _Steps(NamedTuple):
    """The two steps that convert one sample: its window, and the rows of the batch."""

    stack: SampleCollation  # to a stack of one window
    convert: Converter  # the stack to rows of the batch


class _Batch(NamedTuple):
    """The checked samples of a batch, of any library."""

    axes: SampleAxes
    dtype: DType
    shapes: Array  # (samples, axes) int64
    args: dict[str, PerSampleArgs]  # offset, flip and crop, by index of the axis
    layout: PackedLayout
    has_whole_samples: bool  # each window is its whole sample, with all channels


class PackedCollation:
    """The collation of samples of different sizes, by the options of a Collator.

    One job on the CPU, or one launch on a GPU, converts all samples. Samples whose operations their
    library records are converted one by one, and joined.
    """

    def __init__(
        self, options: CollateOptions, make_collator: Callable[[CollateOptions], SampleCollation]
    ) -> None:
        self._options = options
        resize = options.resize
        if resize is not None:  # each sample is resized to a size of its own
            resize = ResizeOptions(resize.filter, resize.antialias, ignore=resize.ignore)
        self._sample_options = replace(options, resize=resize, size=None, packed="")
        self._make_collator = make_collator
        self._device_program = DevicePackedProgram(options)
        # By what the samples of a batch have in common, and the memory of the batch.
        self._programs: Cache[PackedProgram] = Cache()
        self._resize_programs: Cache[PackedResizeProgram] = Cache()
        self._steps: Cache[_Steps] = Cache()  # by the shapes and dtype of a sample and its window

    def __call__(self, samples: Sequence[Any], args: CropArgs, out: Any) -> Packed:
        """Return the packed batch, with data of the library of the samples."""
        memory = view_memory(samples)
        adapters, first, is_recorded = choose_adapter(samples if memory is None else samples[:1])
        leader, like = adapters[first], samples[first]
        if is_recorded:
            inspected = [a.inspect(x, "x") for a, x in zip(adapters, samples, strict=True)]
            if out is not None:
                raise ArgumentError(
                    "out= is given, but the samples of a packed batch require a gradient or are "
                    "traced; omit it"
                )
            batch = self._check_all(inspected, args)
            return self._finish(batch, self._concatenate(batch, samples))
        if isinstance(leader, CudaAdapter):
            return self._pack_on_gpu(memory, adapters, samples, args, out)
        arrays = memory or [dispatch.as_array(x, f"sample {i}") for i, x in enumerate(samples)]
        if self._options.resize is not None:
            arrays = [*map(in_native_order, arrays)]
        sources = with_addresses(describe_arrays(arrays))
        batch = self._check(sources.dtype, sources.known_addresses.sizes, args)
        return self._finish(batch, self._pack(sources, batch, leader, like, out))

    @staticmethod
    def _finish(batch: _Batch, data: Any) -> Packed:
        return Packed(data, batch.layout.sizes, batch.layout.offsets)

    def _concatenate(self, batch: _Batch, samples: Sequence[Any]) -> Any:
        """Return the data of samples that are converted one by one."""
        parts = [self._convert(batch, i, x, None) for i, x in enumerate(samples)]
        return find_functions(parts[0]).concatenate(parts, 0)

    # -- on a GPU --------------------------------------------------------------------------

    def _pack_on_gpu(
        self,
        memory: Sequence[Any] | None,
        adapters: Sequence[Adapter],
        samples: Sequence[Any],
        args: CropArgs,
        out: Any,
    ) -> Packed:
        """Return the batch of samples on a GPU, made by one launch."""
        arrays, on_gpu = import_device_samples(memory, adapters, samples, "sample {}".format)
        leader, first = on_gpu[0], arrays[0]
        batch = self._check_all([*zip(arrays.shapes, arrays.dtypes, strict=True)], args)
        target, data, program = None, None, self._device_program
        if out is not None:
            self._check_shape(batch.layout, tuple(out.shape))
            data = out[: batch.layout.shape[0]]
            target = dispatch.device_output(leader, data, first, "sample 0")
        plan = program.find_plan(batch.axes, batch.layout, arrays, target)
        if plan is None:
            if out is not None:
                raise ArgumentError(
                    "out= is given, but the samples of this packed batch on a GPU are converted "
                    "one by one; omit it"
                )
            return self._finish(batch, self._concatenate(batch, samples))
        if target is None:
            leader.check(plan.target.dtype)
            target = leader.empty(batch.layout.shape, plan.target.dtype, first.ordinal)
        with (
            leader.joined(arrays, on_gpu, "sample") as foreign,
            leader.kept_alive(arrays, target, foreign),
        ):
            placements = self._place(batch.axes, batch.shapes, batch.args, batch.layout)
            program.prepare_windows(
                arrays, batch.axes, placements, batch.layout, plan, target
            ).write(leader)
        if out is None:
            return self._finish(batch, leader.export(target.owner, samples[0]))
        return self._finish(batch, leader.written(data))

    def place(self, shapes: Array, args: CropArgs) -> tuple[Placements, list[str]]:
        """Return the placements of samples of `shapes`, and the axes along which they are placed.

        Raises the errors of a call.
        """
        axes = self._options.find_sample_axes(shapes.shape[1])
        parsed, targets = parse_packed_args(self._options, axes, shapes, args)
        layout = lay_out_samples(self._options, axes, shapes, targets)
        sized = axes.cropped | ({} if targets is None else axes.resizable)
        names = sorted(sized, key=axes.axis_indices.__getitem__)
        return self._place(axes, shapes, parsed, layout), [*names, *args.list_axes()]

    def check_sample(self, shape: tuple[int, ...], dtype: DType) -> None:
        """Raise what a batch of one sample of this shape and dtype would raise."""
        resize = self._options.resize
        if resize is not None and self._options.size is None and resize.multiple is None:
            return  # the call has sizes, or placements
        batch = self._check_all([(shape, dtype)], self._options.crops.fixed())
        self._place(batch.axes, batch.shapes, batch.args, batch.layout)
        self._find_program(batch, None).find_layouts(batch.layout)

    def _check_all(self, inspected: list[tuple[tuple[int, ...], DType]], args: CropArgs) -> _Batch:
        """Return the checked batch of samples of these shapes and dtypes."""
        check_same_rank_and_dtype(inspected)
        first, dtype = inspected[0]
        return self._check(dtype, stack_shapes([shape for shape, _ in inspected], len(first)), args)

    def _check(self, dtype: DType, shapes: Array, args: CropArgs) -> _Batch:
        """Return the checked batch of samples of these shapes, int64 (samples, axes)."""
        check_ignored(self._options, dtype)
        axes = self._options.find_sample_axes(shapes.shape[1], tuple(shapes[0].tolist()))
        parsed, targets = parse_packed_args(self._options, axes, shapes, args)
        layout = lay_out_samples(self._options, axes, shapes, targets)
        is_part = axes.cropped or self._options.channels is not None or any(parsed.values())
        return _Batch(axes, dtype, shapes, parsed, layout, targets is None and not is_part)

    def _place(
        self,
        axes: SampleAxes,
        shapes: Array,
        args: dict[str, PerSampleArgs],
        layout: PackedLayout,
    ) -> Placements:
        """Return the placements of samples in their windows."""
        options, lengths = self._options, axes.select_channels(shapes)
        if options.resize is None:
            offsets, flips = args["offset"], args["flip"]
            return place_crops(options, axes, layout.windows, lengths, offsets, flips)
        return place_resized_windows(options, options.resize, axes, layout.windows, lengths, args)

    # -- on the CPU ------------------------------------------------------------------------

    def _pack(
        self, sources: SampleBatch, batch: _Batch, leader: Adapter, like: Any, out: Any
    ) -> Any:
        """Return the rows of all samples, in `out` or new memory."""
        if out is None:
            return leader.from_numpy(self._pack_arrays(sources, batch, None), like)
        rows = batch.layout.shape[0]
        written = dispatch.write_on_cpu(
            leader, out, "sample 0", lambda target: self._pack_arrays(sources, batch, target)
        )
        return written if len(written) == rows else written[:rows]

    def _pack_arrays(self, sources: SampleBatch, batch: _Batch, out: Array | None) -> Array:
        layout, part = batch.layout, None
        if out is not None:
            self._check_shape(layout, out.shape)
            check_apart(sources, out)
            out = out[: layout.shape[0]]
            part = Part(out.shape, out.strides, out.dtype)
        resize = self._options.resize
        if resize is not None and self._averages(resize, batch):
            return self._resize(resize, sources, batch, out, part)
        program = self._find_program(batch, part)
        layouts = program.find_layouts(layout)
        placements = None
        if not batch.has_whole_samples:
            placements = self._place(batch.axes, batch.shapes, batch.args, layout)
        if out is None:
            out = empty(layout.shape, layouts[0].plan.target.dtype)
        if program(sources, placements, layouts, layout, out):
            return out
        return self._convert_all(sources, batch, out)

    def _convert_all(self, sources: SampleBatch, batch: _Batch, out: Array) -> Array:
        """Convert samples one by one, and return `out`."""
        for i, (first, last) in enumerate(pairwise(batch.layout.offsets.tolist())):
            self._convert(batch, i, sources.arrays[i], out[first:last])
        return out

    # -- resized, on the CPU ---------------------------------------------------------------

    def _averages(self, resize: ResizeOptions, batch: _Batch) -> bool:
        """Return True if samples are averaged as floats, and all have as many constants."""
        if resize.filter == "nearest":
            return False
        if packs_constants(self._options, batch.axes):
            return False
        return not moves_items(resize, batch.dtype, supports_float16)

    def _resize(
        self,
        resize: ResizeOptions,
        sources: SampleBatch,
        batch: _Batch,
        out: Array | None,
        part: Part | None,
    ) -> Array:
        """Return the rows of resized samples, in `out` or new memory."""
        layout = batch.layout
        program = self._find_resize_program(resize, batch, part)
        placements = self._place(batch.axes, batch.shapes, batch.args, layout)
        if out is None:
            out = empty(layout.shape, program.layout.dtype)
        if out.size and not program.pack(sources, placements, layout, out):
            return self._convert_all(sources, batch, out)
        return out

    def _find_resize_program(
        self, resize: ResizeOptions, batch: _Batch, part: Part | None
    ) -> PackedResizeProgram:
        """Return the cached program of resized samples; `part` is the memory of the batch."""
        key = _make_program_key(batch, part)
        program = self._resize_programs.get(key)
        if program is None:
            if part is not None:
                part = part._replace(shape=batch.layout.moves[0].target_shape)
            window = tuple(batch.layout.windows[0].tolist())
            program = PackedResizeProgram(
                self._options, resize, batch.axes, window, batch.dtype, part
            )
            cache_put(self._resize_programs, key, program, PROGRAM_SIZE_ESTIMATE)
        return program

    def _find_program(self, batch: _Batch, part: Part | None) -> PackedProgram:
        """Return the cached program of moved samples; `part` is the memory of the batch."""
        key = _make_program_key(batch, part)
        program = self._programs.get(key)
        if program is None:
            program = PackedProgram(self._options, batch.axes, batch.dtype, part)
            cache_put(self._programs, key, program, PROGRAM_SIZE_ESTIMATE)
        return program

    @staticmethod
    def _check_shape(layout: PackedLayout, shape: tuple[int, ...]) -> None:
        """Raise unless an output of this shape has room for the batch."""
        rows, *rest = layout.shape
        if len(shape) != len(layout.shape) or [*shape[1:]] != rest or shape[0] < rows:
            raise ShapeError(
                f"out has shape {shape}, but the packed batch has {layout.shape}; give an out "
                "of that shape, or with a longer first axis"
            )

    # -- one sample ------------------------------------------------------------------------

    def _convert(self, batch: _Batch, number: int, sample: Any, out: Array | None) -> Any:
        """Return the rows of one sample, in `out` or new memory."""
        channel = batch.axes.axis_indices.get(CHANNEL)
        letters = choose_letters(batch.shapes.shape[1], channel)
        args: dict[str, Any] = {
            name: {letters[axis]: _pick(values, number) for axis, values in by_axis.items()}
            for name, by_axis in batch.args.items()
        }
        args["flip"] = {axis: bool(value) for axis, value in args["flip"].items()}
        reverses = False
        if self._options.channels is not None:  # channels are selected after the window is stacked
            reverses = args["flip"].pop("c", False)
        stack, convert = self._find_steps(batch, number, letters, reverses)
        window = stack([sample], **{name: by_axis or None for name, by_axis in args.items()})
        return convert(window) if out is None or not out.size else convert(window, out)

    def _find_steps(self, batch: _Batch, number: int, letters: str, reverses: bool) -> _Steps:
        """Return the cached steps of a sample; `reverses` reverses its selected channels."""
        shape, window = (rows[number] for rows in (batch.shapes, batch.layout.windows))
        key = shape.tobytes(), window.tobytes(), batch.dtype, reverses
        steps = self._steps.get(key)
        if steps is None:
            options, axes = self._sample_options, batch.axes
            keywords = make_keywords(options, letters, shape[None], batch.dtype)
            if options.resize is not None and options.resize.ignore is not None:
                keywords["ignore"] = options.resize.ignore
            if options.center != DEFAULT_CENTERING:
                keywords["center"] = options.center
            placed = [*axes.cropped.values(), *axes.resizable.values()]
            sizes = {letters[axis]: int(window[axis]) for axis in placed}
            shape_of_stack = shape.copy()
            shape_of_stack[placed] = window[placed]
            stacked = parse_collate_options(f"{letters}->b{letters}", sizes, **keywords)
            if reverses and options.channels is not None:
                options = replace(options, channels=options.channels[::-1])
            convert = make_stack_conversion(options, (1, *shape_of_stack.tolist()), batch.dtype)
            steps = _Steps(self._make_collator(stacked), Converter.from_options(convert))
            cache_put(self._steps, key, steps, PROGRAM_SIZE_ESTIMATE)
        return steps


def _make_program_key(batch: _Batch, part: Part | None) -> tuple[Any, ...]:
    """Return what the samples of a batch have in common; `part` is the memory of the batch."""
    window = batch.layout.windows[0].tolist()
    common = [size for axis, size in enumerate(window) if axis not in batch.axes.packed_axes]
    return *common, len(window), batch.dtype, None if part is None else (part.strides, part.dtype)


def _pick(values: Array, number: int) -> int:
    """Return the value of a sample, of one value per sample or one for all."""
    return int(values[number] if values.ndim else values)
