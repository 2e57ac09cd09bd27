"""The plan of one conversion: its stages, its kernel and the reason for that kernel.

A conversion runs in up to four stages. Nearly all conversions have only the kernel's:

    picked    NumPy copies the selected channels, if no kernel can select them while it reads x
    before    NumPy casts the source to the dtype in which a formula is computed, if kernels do
              not support the source's dtype (float8, long double, other byte orders)
    kernel    one pass over memory: layout, cast and formula
    after     NumPy casts the kernel's result if C leaves the value undefined (float to integer,
              unsafe), if kernels do not support a dtype, or if the caller's output cannot be
              written in contiguous runs

Two options are planned as a conversion and one more step:

    memory=    the result is a view of new memory in another layout
    pad_to=    x is converted into a region of the result, and the regions around it are filled
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._utils import fork
from ..errors import ArgumentError, ShapeError
from ..layout.parsing import Layout
from ..layout.pattern import Pattern, Permutation
from ..memory import Array, check_out, contiguous_strides
from ..normalize import CHANNEL, Normalization, computed_dtype
from ..spec import CPU, ArraySpec, DType, as_dtype, dtype_kind
from .channels import ChannelSelection
from .epilogue import Coefficients, Epilogue, is_supported_dtype, kernel_dtype_name
from .loops import CanonicalLoops, byte_strides
from .padding import PaddedRegion
from .select import (
    KernelChoice,
    TransposeProblem,
    describe_work,
    explain_kernel,
    select_kernel_for_channels,
)

if TYPE_CHECKING:
    from ..options import ConvertOptions


@dataclass(frozen=True)
class Request:
    """Everything that decides a plan: the options, and the memory layout of both sides."""

    pattern: str
    move: Permutation
    source: DType
    target: DType
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...] | None  # None: new contiguous memory
    formula: Normalization | None
    casting: str
    may_view: bool
    devices: tuple[str, str] = (CPU, CPU)  # of x and of the result
    picks: ChannelSelection | None = None  # None: the identity

    @property
    def saturates(self) -> bool:
        """True if casts to integers saturate."""
        return self.casting == "saturate"


@dataclass(frozen=True, repr=False)
class Plan:
    """The steps of a conversion; `print(plan)` describes them.

    Attributes
    ----------
    kernel : str
        "view", "empty", "copy", "cast", "split", "merge", "flip", "flipsplit", "transpose" or
        "gather".
    bytes_moved : int
        Bytes read and written, 0 for a view.
    source, target : ArraySpec
        The input and the result.
    """

    pattern: str
    move: Permutation
    source: ArraySpec
    target: ArraySpec
    kernel: str
    bytes_moved: int
    before: DType | None = None
    after: DType | None = None
    loops: CanonicalLoops | None = None
    choice: KernelChoice | None = None
    epilogue: Epilogue | None = None  # None for a pure move
    saturate: bool = False
    formula: Normalization | None = None
    memory: str | None = None  # the layout in memory, if it is not the result's
    place: PaddedRegion | None = None  # the region of x in a padded result
    picks: ChannelSelection | None = None  # the channel selection
    selects_first: bool = False  # the selected channels are copied first

    def __str__(self) -> str:
        lines = [f"{self.pattern}: {self.source} -> {self.target}"]
        reason = explain_kernel(self.kernel, on_a_gpu=self.devices != (CPU, CPU))
        lines.append(f"  kernel    {self.kernel}: {reason}")
        lines += [f"  {name:<9} {text}" for name, text in self._details()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        with fork.init_lock:
            from ..drawing import notebook_html

        return notebook_html(str(self), self.pattern, self.move)

    @property
    def devices(self) -> tuple[str, str]:
        """The devices of x and of the result."""
        return self.source.device, self.target.device

    @property
    def is_one_pass(self) -> bool:
        """True if the conversion is a single launch of the kernel."""
        staged = self.before is not None or self.after is not None or self.selects_first
        return self.choice is not None and not staged and not self.choice.host_loops

    def launches(self) -> Iterator[tuple[int, int]]:
        """Yield the (source, output) byte offset of every launch of the kernel.

        Several launches are needed if there are more loops than a kernel can run.
        """
        if self.loops is None or self.choice is None:
            return
        beyond = self.choice.host_loops
        for indices in product(*(range(loop.count) for loop in beyond)):
            iterations = list(zip(indices, beyond, strict=True))
            yield (
                self.loops.src_offset + sum(index * loop.src for index, loop in iterations),
                self.loops.dst_offset + sum(index * loop.dst for index, loop in iterations),
            )

    def _details(self) -> list[tuple[str, str]]:
        details = []
        library = "NumPy" if self.devices == (CPU, CPU) else "the array's library"
        if self.devices[0] == CPU != self.devices[1]:
            details.append(("upload", f"{self.source.nbytes:,} bytes, converted on the device"))
        if self.picks is not None:
            details.append(("channels", f"{self.picks.order} of {self.picks.count}"))
        if self.selects_first:
            details.append(("before", f"{library} copies these channels"))
        if self.before is not None:
            details.append(("before", f"{library} casts x to {self.before}"))
        if self.choice is not None:
            details.append(("work", describe_work(self.choice)))
        if self.formula is not None:
            details.append(("formula", f"{self._formula(self.formula)}, as it passes"))
        elif self.epilogue is not None and self.epilogue.source != self.epilogue.target:
            details.append(("cast", "as it passes" + (", saturating" if self.saturate else "")))
        if self.after is not None:
            details.append(("after", f"{library} writes the {self.after} result to the output"))
        if self.place is not None:
            details.append(("into", f"{self.place}, filled around x"))
        if self.memory is not None:
            details.append(("stored as", f"{self.memory}, contiguous; the result is a view of it"))
        details.append(("memory", _format_memory(self)))
        if self.devices[0] != CPU == self.devices[1]:
            details.append(("download", f"{self.target.nbytes:,} bytes, after the conversion"))
        return details

    def _formula(self, formula: Normalization) -> str:
        dtypes = self.before or self.source.dtype, self.after or self.target.dtype
        x = "x" if formula.clip is None else "clip(x, {}, {})".format(*formula.clip)
        if formula.preserves_dtype(*dtypes):
            return f"{x} in {dtypes[0]}"
        shown = f"({x} * scale - mean) / std" if formula.scales else x
        return f"{shown} in {computed_dtype(*dtypes)}"


def _format_memory(plan: Plan) -> str:
    if plan.bytes_moved == 0:
        return "nothing is read or written"
    written = plan.target.nbytes
    return f"{plan.bytes_moved - written:,} bytes read, {written:,} written"


# ---- making a plan -----------------------------------------------------------------------


def make_plan(request: Request, has_half: Callable[[], bool]) -> Plan:
    """Plan a checked conversion. `has_half` returns whether kernels support float16."""
    move = request.move
    picks = request.picks
    shape = move.source_shape if picks is None else picks.shape
    source = ArraySpec.unchecked(move.source, shape, request.source, request.devices[0])
    target = ArraySpec.unchecked(move.target, move.target_shape, request.target, request.devices[1])
    plain = Plan(
        request.pattern, move, source, target, "view", 0,
        formula=request.formula, picks=picks,
    )  # fmt: skip
    if request.may_view and _is_contiguous(request):
        return plain
    # Before the check for size 0, so that constants of a wrong length always raise an error.
    formula = request.formula
    coefficients = None
    if formula is not None and not formula.preserves_dtype(request.source, request.target):
        coefficients = Coefficients(*formula.coefficients(formula.indices(move)))
    if 0 in move.target_shape:
        return replace(plain, kernel="empty")
    before, kernel_source, kernel_target, after = _stages(request, has_half)
    strides = request.source_strides if before is None else contiguous_strides(shape, before)
    out = None if after is not None else request.target_strides
    out = contiguous_strides(move.target_shape, kernel_target) if out is None else out
    on_gpu = request.devices != (CPU, CPU)
    sides = TransposeProblem(
        move, picks, formula, strides, out, kernel_source, kernel_target, on_gpu
    )
    loops, choice, selects_first = select_kernel_for_channels(sides)
    epilogue = None
    if kernel_source != kernel_target or formula is not None:
        names = kernel_dtype_name(kernel_source), kernel_dtype_name(kernel_target)
        epilogue = Epilogue(*names, request.saturates, _reverse_for_loops(coefficients, loops))
        if formula is not None and formula.clip is not None:
            epilogue = _add_clip(epilogue, formula)
    return replace(
        plain,
        kernel=choice.kernel,
        bytes_moved=source.nbytes + target.nbytes,
        before=before,
        after=after,
        loops=loops,
        choice=choice,
        epilogue=epilogue,
        saturate=request.saturates,
        selects_first=selects_first,
    )


def _add_clip(epilogue: Epilogue, formula: Normalization) -> Epilogue:
    """Return the epilogue with bounds of x, or of the results if the formula has one factor."""
    dtype = as_dtype(epilogue.clip_dtype)
    line = None if epilogue.coefficients is None else formula.clip_results(dtype)
    if line is None:
        return replace(epilogue, clip=formula.bounds(dtype))
    coefficients = Coefficients((line.factor,), (line.term,))
    bounds = line.low.y, line.high.y
    return replace(epilogue, coefficients=coefficients, clip=bounds, clips_results=True)


def _reverse_for_loops(
    coefficients: Coefficients | None, loops: CanonicalLoops
) -> Coefficients | None:
    if coefficients is None or not loops.coefs_reversed:
        return coefficients
    return Coefficients(coefficients.factor[::-1], coefficients.term[::-1])


def _is_contiguous(request: Request) -> bool:
    """Return True if the memory of x already holds the result."""
    move = request.move
    if request.source != request.target or request.formula is not None:
        return False
    if 0 in move.sizes:
        return True
    steps = byte_strides(move.source.groups, move.axes, move.sizes, request.source_strides)
    expected = request.source.itemsize
    for axis in reversed(move.order):
        if move.sizes[axis] != 1:
            if steps[axis] != expected:
                return False
            expected *= move.sizes[axis]
    return True


def _stages(
    request: Request, has_half: Callable[[], bool]
) -> tuple[DType | None, DType, DType, DType | None]:
    """Return (before, the kernel's two dtypes, after); see the module's docstring."""
    source, target, formula = request.source, request.target, request.formula
    if source == target and formula is None:
        return None, source, target, None
    computed = source if formula is None else formula.computed_dtype(source, target)
    # Constants that float32 cannot represent need float64, whatever the two dtypes are.
    exact = formula is None or formula.preserves_dtype(source, target)
    exact = exact or computed == computed_dtype(source, target)
    start = source if exact and is_supported_dtype(source, has_half) else computed
    before = None if start == source else start
    if not is_supported_dtype(start, has_half) or not _can_cast(
        computed, target, request, has_half
    ):
        return before, start, computed, computed
    strided = request.target_strides is not None and not _writes_runs(request)
    return before, start, target, target if strided else None


def _writes_runs(request: Request) -> bool:
    """Return True if the caller's output can be written in contiguous runs."""
    move = request.move
    strides = request.target_strides or ()
    steps = byte_strides(move.target.groups, move.target_axes, move.target_sizes, strides)
    long = [abs(s) for s, n in zip(steps, move.target_sizes, strict=True) if n != 1]
    return not long or min(long) == request.target.itemsize


def _can_cast(source: DType, target: DType, request: Request, has_half: Callable[[], bool]) -> bool:
    """Return True if a kernel computes NumPy's values (or the saturated ones) for this cast."""
    if not is_supported_dtype(target, has_half) or dtype_kind(source) == "c":
        return False
    to_integer = dtype_kind(source) == "f" and dtype_kind(target) in "ui"
    return not to_integer or request.saturates


SupportsFloat16 = Callable[[], bool]


class PaddedSource(NamedTuple):
    """A padded x: the sizes of x, the padded sizes, the region of x, and the fill values."""

    sizes: tuple[int, ...]
    full: tuple[int, ...]
    window: tuple[slice, ...]
    fill: Array  # of size 1 along every axis but c


class Part(NamedTuple):
    """The shape, strides and dtype of a part of an output."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType


def make_single_plan(
    options: ConvertOptions,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    source: DType,
    device: str,
    out: Any,
    has_half: SupportsFloat16,
) -> Plan:
    """Return the plan of a conversion without `memory=` and `pad_to=`.

    `out` is an object with a shape, strides and a dtype, or None for new memory. `has_half`
    returns whether the device that executes the plan supports float16.

    Raises an error if such an array cannot be converted.
    """
    move, picks, target = options.infer_result(shape, source, out)
    if out is not None:
        check_out(out, move.target_shape, f'"{options.pattern.text}" on {shape}')
    devices = device, options.device or device
    can_view = picks is None and devices[0] == devices[1]
    request = Request(
        options.pattern.text,
        move,
        source,
        target,
        strides,
        None if out is None else out.strides,
        options.formula,
        options.casting,
        may_view=out is None and options.copy is not True and can_view,
        devices=devices,
        picks=picks,
    )
    plan = make_plan(request, has_half)
    if options.copy is False and plan.kernel != "view":
        options.refuse_copy(shape, strides, source, devices)
    return plan


def make_plan_for_options(
    options: ConvertOptions,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    source: DType,
    device: str,
    out: Any,
    has_half: SupportsFloat16,
) -> Plan:
    """Return the plan of any conversion, with `memory=` and `pad_to=` described as a part of it.

    The arguments equal those in `make_single_plan`.
    """
    if options.memory is not None:
        check_no_out(options, out)
        inner = make_memory_order_options(options)
        plan = make_plan_for_options(inner, shape, strides, source, device, None, has_half)
        return plan_permuted_view(options, plan, len(shape))
    if options.padding is not None:
        plan, region = plan_inner_region(options, shape, strides, source, device, out, has_half)
        result_shape = region.shape
        filled_bytes = (prod(region.shape) - plan.target.size) * plan.target.dtype.itemsize
        plan = replace(plan, place=region, bytes_moved=plan.bytes_moved + filled_bytes)
    else:
        return make_single_plan(options, shape, strides, source, device, out, has_half)
    return _with_target(plan, options, len(shape), result_shape)


def _with_target(plan: Plan, options: ConvertOptions, ndim: int, shape: tuple[int, ...]) -> Plan:
    """Return the plan of one step of a conversion as the plan of all of it; x has rank `ndim`."""
    layout = options.pattern.expand_ellipsis(ndim).target
    target = ArraySpec.unchecked(layout, shape, plan.target.dtype, plan.target.device)
    return replace(plan, pattern=options.pattern.text, target=target)


# ---- memory= -----------------------------------------------------------------------------


def make_memory_order_options(options: ConvertOptions) -> ConvertOptions:
    """Return the conversion to the memory order; the result is a transposed view of it."""
    if options.memory is None:
        raise RuntimeError(f"{options.pattern.text}: there is no memory=")
    pattern = Pattern(options.pattern.left, options.memory, options.pattern.text)
    return replace(options, pattern=pattern, memory=None)


def plan_permuted_view(options: ConvertOptions, plan: Plan, ndim: int) -> Plan:
    """Return the plan of a result that is a view of the memory that `plan` fills."""
    shape = plan.target.shape
    order = memory_permutation(options, len(shape))
    viewed = _with_target(plan, options, ndim, tuple(shape[axis] for axis in order))
    return replace(viewed, memory=str(options.memory))


def memory_permutation(options: ConvertOptions, ndim: int) -> tuple[int, ...]:
    """Return the permutation from the memory's axes to the axes of a result of this rank."""
    right = options.pattern.right
    memory = options.memory or options.pattern.right
    if right.has_ellipsis:
        staying = ndim - right.ndim
        right, memory = right.expand_ellipsis(staying), memory.expand_ellipsis(staying)
    return tuple(map(memory.groups.index, right.groups))


def check_no_out(options: ConvertOptions, out: Any) -> None:
    """Raise ArgumentError if `out=` is combined with `memory=`."""
    if out is not None:
        raise ArgumentError(
            f'memory="{options.memory}" sets the layout of new memory, and out= has its own; '
            "remove one of them"
        )


# ---- pad_to= -----------------------------------------------------------------------------


def plan_inner_region(
    options: ConvertOptions,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    source: DType,
    device: str,
    out: Any,
    has_half: SupportsFloat16,
) -> tuple[Plan, PaddedRegion]:
    """Return the plan that converts x into its region of a padded result, and that region.

    Folded axes of the result are split, because a region of a folded axis has no strides.
    """
    region = resolve_padding(options, shape)
    dtype = options.target_dtype(source, out)
    if out is None:
        steps = contiguous_strides(region.full, dtype)
    else:
        check_out(out, region.shape, f'"{options.pattern.text}" on {shape} with pad_to=')
        steps = unfold_strides(options, region, len(shape), out.strides)
    sizes = tuple(part.stop - part.start for part in region.window)
    inner_out = Part(sizes, steps, dtype)
    return make_single_plan(
        make_inner_options(options), shape, strides, source, device, inner_out, has_half
    ), region


def unfold_strides(
    options: ConvertOptions, region: PaddedRegion, ndim: int, strides: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the strides of a padded result of an x of this rank after its folds are split."""
    target = options.pattern.expand_ellipsis(ndim).target
    return byte_strides(target.groups, target.letters, region.full, strides)


def make_inner_options(options: ConvertOptions) -> ConvertOptions:
    """Return the conversion of x without padding, to a result in which every letter is an axis."""
    target = options.pattern.target
    unfolded = Layout(tuple(target.letters), target.names)
    pattern = Pattern(options.pattern.source, unfolded, options.pattern.text)
    return replace(options, pattern=pattern, padding=None, copy=None)


def make_padded_source_options(options: ConvertOptions) -> ConvertOptions:
    """Return the conversion of a padded x in which every letter is an axis."""
    source = options.pattern.source
    unfolded = Layout(tuple(source.letters), source.names)
    pattern = Pattern(unfolded, options.pattern.target, options.pattern.text)
    return replace(options, pattern=pattern, padding=None, sizes={})


def make_options_after_take(options: ConvertOptions) -> ConvertOptions:
    """Return the conversion of the selected channels only, in the order of the selection.

    Every letter is an axis of its source.
    """
    order = options.channels or ()
    padding = options.padding
    if padding is not None and len(padding.fill) > 1:
        padding = replace(padding, fill=tuple(padding.fill[channel] for channel in order))
    return replace(make_padded_source_options(options), channels=None, padding=padding)


def find_padded_source(
    options: ConvertOptions, shape: tuple[int, ...], dtype: DType
) -> PaddedSource:
    """Return the padded x that GPU adapters and other libraries allocate and convert."""
    region = resolve_padding(options, shape)
    move = options.select_channels(shape)[0]
    if options.padding is None:
        raise RuntimeError(f"{options.pattern.text}: there is no pad_to=")
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    pixel = options.padding.pixel(dtype, sizes.get(CHANNEL))
    fill_shape = [len(pixel) if axis == CHANNEL else 1 for axis in move.axes]
    regions_by_axis = dict(zip(move.target_axes, region.window, strict=True))
    region_in_source = tuple(
        regions_by_axis.get(axis, slice(0, size)) for axis, size in sizes.items()
    )
    full_by_axis = dict(zip(move.target_axes, region.full, strict=True))
    full = tuple(full_by_axis.get(axis, size) for axis, size in sizes.items())
    return PaddedSource(move.sizes, full, region_in_source, pixel.reshape(fill_shape))


def fill_conversion(
    options: ConvertOptions, shape: tuple[int, ...], dtype: DType
) -> tuple[ConvertOptions, Array]:
    """Return the conversion of the fill values, and its input: as small an array as possible."""
    padding = options.padding
    region = resolve_padding(options, shape)
    move, picks = options.select_channels(shape)
    if padding is None:
        raise RuntimeError(f"{options.pattern.text}: there is no pad_to=")
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    sizes |= dict(zip(move.target_axes, region.full, strict=True))
    pixel = padding.pixel(dtype, sizes.get(CHANNEL) if picks is None else picks.count)
    if picks is not None and len(pixel) > 1:
        pixel = pixel[list(picks.order)]
    coefficient_axis = None if options.formula is None else options.formula.letter(move)
    wide = (
        {coefficient_axis} if options.formula is not None and options.formula.per_channel else set()
    )
    counts = [
        n if axis in wide or (axis == CHANNEL and len(pixel) > 1) else 1
        for axis, n in sizes.items()
    ]
    fill_shape = [len(pixel) if letter == CHANNEL else 1 for letter in sizes]
    array = np.array(np.broadcast_to(pixel.reshape(fill_shape), counts))
    names = move.source.names + move.target.names
    layouts = Layout(tuple(sizes), names), Layout(tuple(move.target_axes), names)
    pattern = Pattern(*layouts, options.pattern.text)
    return replace(
        options, pattern=pattern, padding=None, copy=True, sizes={}, channels=None
    ), array


def resolve_padding(options: ConvertOptions, shape: tuple[int, ...]) -> PaddedRegion:
    """Return the region of the result that an x of `shape` fills."""
    if options.padding is None:
        raise RuntimeError(f"{options.pattern.text}: there is no pad_to=")
    move = options.select_channels(shape)[0]
    try:
        return options.padding.place(move)
    except ShapeError as error:
        raise ShapeError(f'"{options.pattern.text}" on shape {shape}: {error}') from None
