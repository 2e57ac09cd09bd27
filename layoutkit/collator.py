"""`collate` and `Collator`: crop, flip, stack and convert samples into a batch in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, product
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Never, Self

import numpy as np

from . import _compile
from ._compile import is_compiling, make_graph_args
from ._utils import fork
from ._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ._utils.spelling import CuresForAttributes
from ._utils.validation import check_int, describe_type, show, type_name
from ._utils.warnings import warn
from .backends import dispatch
from .backends.collate import (
    check_ignored,
    choose_adapter,
    import_device_samples,
    stack_recorded_windows,
    view_memory,
)
from .backends.containers import find_pixels_cure
from .backends.cupy import CudaAdapter
from .backends.items import ItemColumns, Positioned, check_no_none, split_items, stack_values
from .converter import ArgumentCache, Converter
from .cpu.collate import BatchProgram, make_batch_program
from .cpu.program import supports_float16
from .cpu.window_table import (
    SampleBatch,
    check_apart,
    describe_arrays,
    describe_parts,
    with_addresses,
)
from .cuda.collate import DeviceCollateProgram
from .cuda.memory import check_same_device
from .cuda.runtime import check_device
from .cuda.transfers import DeferredArray
from .errors import ArgumentError, LayoutkitError, ShapeError
from .layout.parsing import Layout
from .layout.pattern import as_shape, axis_name, parse_pattern
from .memory import Array, check_writable, in_native_order
from .options import CollateOptions, format_keywords, parse_collate_options
from .packing import PackedCollation
from .placement import draw_values, place
from .planning.batch.arguments import RANDOM, CropArgs, DrawnByAxis, parse_per_sample
from .planning.batch.layout import Collation, make_batch_layout, stack_shapes
from .planning.batch.packing import Packed, parse_size
from .planning.batch.placement import Placements
from .planning.batch.random import (
    NO_WINDOWS,
    CropOptions,
    PreparedDraws,
    SourcePositions,
    as_positions,
)
from .planning.batch.samples import SampleAxes
from .planning.batch.weights import can_replace_ignored
from .planning.keywords import (
    COLLATOR_ONLY,
    CollateKeywords,
    check_sizes,
    format_sizes,
    refuse_in_call,
    refuse_positional,
)
from .planning.plan import (
    check_no_out,
    make_memory_order_options,
    plan_permuted_view,
)
from .spec import CPU, DType, as_dtype

if TYPE_CHECKING:
    from .backends.base import Adapter
    from .options import ConvertOptions


class Padded(NamedTuple):
    """A batch of samples of different sizes, padded at their end to one size, and the sizes.

    A mask of the positions that are not padding, for `"tf->btf"`:

    >>> import numpy as np
    >>> clips = [np.ones((3, 2)), np.ones((5, 2))]
    >>> data, lengths = collate(clips, "tf->btf", t="longest", lengths=True)
    >>> mask = np.arange(data.shape[1]) < lengths[:, None]
    >>> mask.astype(int).tolist()
    [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    """

    data: Any  # the batch, an array of the library of the samples
    # int64 (samples,), or (samples, axes) if several axes are padded, in the order of the sample.
    lengths: Any

    def __repr__(self) -> str:
        return f"<Padded batch of {len(self.lengths)} samples, {self.data.shape}>"


class Collator(CuresForAttributes):
    """A collation of samples, planned once and called for batch after batch.

    A Collator accepts the arguments of `collate`, except the ones of a single call: the samples,
    `indices` and `out`.

    `offset`, `crop` and `flip` can be given to a call or, as one value for all samples, to the
    Collator; the call's are used if both are given. A Collator can also draw them for each sample:

    offset, flip : "random", or a dict with "random" for some axes
        The start of each window is drawn uniformly, and half of the windows are flipped. "random"
        alone means all axes with a window, or a flip along w.
    crop : "random", or {"scale": (0.08, 1), "ratio": (3 / 4, 4 / 3)}
        With `resize`: parts of images, of a share of the area and an aspect ratio (width / height)
        within these bounds, drawn like torchvision's RandomResizedCrop: the share uniformly, the
        ratio by its logarithm, and the place uniformly. If ten draws are outside of the image, the
        largest central part with a ratio within the bounds is taken.
    seed : int, optional
        Random values depend on the seed, and on `positions` and `epoch` of a call. By default the
        seed of `sampled_batcher`, if that calls the Collator, else 0.

    Samples may have several items, such as (image, label): the batch then has the same structure.
    The item `key`, by default the first one of the pattern's rank, is collated; numbers and arrays
    of one shape are stacked, and other items are in a list.

    >>> import numpy as np
    >>> photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((30, 33, 3), np.uint8)]
    >>> collator = Collator("hwc->bchw", h=24, w=32, dtype="float32", scale=1 / 255)
    >>> collator(photos).shape
    (2, 3, 24, 32)
    >>> collator(photos, offset={"h": [0, 6]}, flip={"w": [True, False]}).shape
    (2, 3, 24, 32)

    Collators with equal options are equal. A Collator may be called from several threads at once,
    can be pickled, and can be the `collate_fn` of a data loader.
    """

    # The library of all batches; None: the library of the samples.
    framework: ClassVar[str | None] = None

    def __init__(
        self,
        pattern: str,
        *more: Never,
        offset: str | Mapping[str, Any] | None = None,
        flip: str | Mapping[str, Any] | None = None,
        crop: str | Mapping[str, Any] | None = None,
        seed: int | None = None,
        key: int | str | None = None,
        fill: Any = None,
        channels: Sequence[int] | None = None,
        resize: str | None = None,
        antialias: bool = True,
        ignore: float | None = None,
        fit: str = "stretch",
        short_side: int | None = None,
        max_side: int | None = None,
        size: Sequence[int] | None = None,
        multiple: int | None = None,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
        pad_before: Mapping[str, int] | None = None,
        center: str = "round",
        lengths: bool = False,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
        casting: str = "same_kind",
        device: str | None = None,
        memory: str | None = None,
        threads: int | None = None,
        **sizes: int | str,
    ) -> None:
        arguments = locals()
        if more:
            refuse_positional("Collator", pattern, more)
        keywords: Any = {name: arguments[name] for name in CollateKeywords.__annotations__}
        if device is not None:
            keywords["device"] = check_device(device)
        self._options = parse_collate_options(pattern, sizes, **keywords)
        self._init_caches()

    @classmethod
    def from_options(cls, options: CollateOptions) -> Self:
        """Return the Collator of checked options."""
        (collator := cls.__new__(cls))._options = options
        collator._init_caches()
        return collator

    def _init_caches(self) -> None:
        self._programs: Cache[BatchProgram] = Cache()  # by rank, window size and dtype
        self._programs_by_shape: Cache[BatchProgram] = Cache()  # by the first sample's shape
        self._device_program: DeviceCollateProgram | None = None
        self._converters: dict[tuple[Any, ...], Converter] = {}
        self._targets_gpu = self._options.convert.device not in (None, CPU)
        resize = self._options.resize
        self._ignores_pixels = resize is not None and resize.ignore is not None
        self._has_crops = self._options.crops != CropOptions()
        self._is_random = self._options.crops.is_random
        self._sample_axes: dict[int, SampleAxes] = {}  # by the rank of samples
        # By the rank of samples, for calls that replace none of the options.
        self._prepared_draws: dict[int, PreparedDraws] = {}
        self._calls = count()
        self._memory_collator = self._make_memory_collator()
        self._packed: PackedCollation | None = None
        if self._options.packed:
            self._packed = PackedCollation(self._options, Collator.from_options)
        self.graph_args = make_graph_args(self._options)

    def _make_memory_collator(self) -> Collator | None:
        """Return the Collator of the batch's memory, without `memory=` None."""
        convert = self._options.convert
        if convert.memory is None:
            return None
        inner = replace(self._options, convert=make_memory_order_options(convert))
        return type(self).from_options(inner)

    def __repr__(self) -> str:
        keywords = {**self._options.keywords(), **self._options.sizes}
        shown = [f'"{self.pattern}"', *format_keywords(keywords)]
        return f"Collator({', '.join(shown)})"

    def _repr_html_(self) -> str:
        with fork.init_lock:
            from .drawing import notebook_html

        return notebook_html(repr(self), self.pattern)

    def __dir__(self) -> list[str]:
        hidden = {"windows", "check_sample", "make_zeros", "vary_flips", *vars(self)}
        return sorted({*object.__dir__(self)} - hidden)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collator):
            return NotImplemented
        return self is other or self._options == other._options

    def __hash__(self) -> int:
        return hash(self._options)

    def __getstate__(self) -> dict[str, Any]:
        return self.to_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = CollateOptions.from_dict(state)
        self._init_caches()

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data of JSON, from which `from_dict` makes an equal object.

        Options that are the defaults are omitted. Raises ArgumentError for constants that jax or
        torch trace.

        >>> Collator("hwc->bchw", h=224, w=224, crop="random", resize="bilinear").to_dict()["sizes"]
        {'h': 224, 'w': 224}
        """
        return self._options.to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the Collator of options that `to_dict` returned.

        >>> data = {"kind": "collator", "version": 1, "pattern": "hwc->bchw", "sizes": {"h": 8}}
        >>> Collator.from_dict(data)
        Collator("hwc->bchw", h=8)

        Raises ArgumentError that names the key, if one is unknown or of another type, or if the
        version or the kind is another one, and the errors of the constructor.
        """
        options = CollateOptions.from_dict(data)
        if options.convert.device is not None:
            device = check_device(options.convert.device)
            options = replace(options, convert=replace(options.convert, device=device))
        return cls.from_options(options)

    @property
    def fingerprint(self) -> str:
        """The hexadecimal hash of all options, equal in every process and for every spelling.

        Equal fingerprints mean equal batches, bit for bit.

        >>> one = Collator("hwc->bchw", h=224, w=224, scale=1)
        >>> one.fingerprint == Collator("h w c -> b c h w", w=224, h=224, scale=1.0).fingerprint
        True
        """
        return self._options.fingerprint

    @property
    def pattern(self) -> str:
        """The text of the pattern."""
        return self._options.convert.pattern.text

    @property
    def windows(self) -> CollateOptions:
        """The checked options of this collation."""
        return self._options

    @property
    def device(self) -> str | None:
        """The device of batches, "cpu" or "cuda:0"; None: the device of the samples."""
        return self._options.convert.device

    def __call__(
        self,
        samples: Any,
        *more: Never,
        indices: Any = None,
        offset: Any = None,
        flip: Any = None,
        crop: Any = None,
        size: Any = None,
        placements: Placements | None = None,
        out: Any = None,
        positions: Any = None,
        epoch: int = 0,
        **unknown: Never,
    ) -> Any:
        """Return the batch of `samples`; see `collate`.

        Parameters
        ----------
        placements : Placements, optional
            What `place` of this or another Collator returned: the batch has exactly these windows.
            Sizes of windows, and of samples, must be equal along the axes of the placements.
        positions : list or array of int, optional
            The positions of the samples in their source, on which random values depend. Default:
            `indices`, or else the number of samples that this Collator has had before, and the
            name of the process unless it is the main one.
        epoch : int
            Another epoch draws other values. 0 or a larger number.
        """
        if unknown:
            refuse_in_call("Collator", unknown, _CALL_KEYWORDS)
        if more:
            raise ArgumentError(
                f"a call of a Collator got {show(more[0])} after the samples; give samples as one "
                "list, collator([a, b]), and others by name, as in indices=[0, 2]"
            )
        if is_compiling():
            if self._is_random and placements is None:
                raise _make_graph_error()
            if self._options.lengths:
                raise _make_lengths_error()
            if self._packed is not None:
                raise make_packed_graph_error()
            crops = CropArgs(offset, flip, crop, size, placements)
            return _compile.graph.insert_batch(self, samples, indices, crops, out)
        if type(epoch) is not int or epoch < 0:
            epoch = check_int("epoch", epoch, error=ArgumentError)
        crops = CropArgs(offset, flip, crop, size, placements)
        arrays = self._as_sequence(samples, indices)
        if isinstance(arrays[0], Positioned):
            arrays, positions, epoch = _split_positions(arrays)
        if isinstance(arrays[0], Mapping | tuple | list) or self._options.key is not None:
            items = self._split_items(arrays)
            if items is not None:
                batch = self._collate_arrays(items.collated, None, crops, out, positions, epoch)
                return items.joined(batch, self._stack_items)
        return self._collate_arrays(arrays, indices, crops, out, positions, epoch)

    def _split_items(self, arrays: Sequence[Any]) -> ItemColumns | None:
        """Split samples that have several items by key; return None if samples are arrays."""
        key = self._options.key
        if isinstance(arrays[0], Mapping | tuple | list) and not self._options.is_one_array:
            items = split_items(arrays, key, self._sample_layout)
            if items is not None:
                return items
        if key is not None:
            raise ArgumentError(
                f"key={key!r} names an item of a sample, but a sample is a "
                f"{type_name(arrays[0])}; omit key="
            )
        return None

    def _collate_arrays(
        self,
        arrays: Sequence[Any],
        indices: Any,
        crops: CropArgs,
        out: Any,
        positions: Any,
        epoch: int,
    ) -> Any:
        if crops.size is not None and self._packed is None:
            raise _make_size_error(self.pattern, crops.size)
        try:
            if self._has_crops and crops.placements is None:
                arrays, crops = self._find_crops(arrays, indices, crops, positions, epoch)
            if self._packed is not None:
                return self._export_packed(self._packed(arrays, crops, out))
            if self._options.longest or self._options.lengths:
                return self._collate_padded(arrays, indices, crops, out)
            return self._collate_in_memory_order(arrays, indices, crops, out)
        except ShapeError as error:
            samples = arrays if isinstance(arrays, list | tuple) else ()
            cure = find_pixels_cure(samples, "sample", self._sample_layout.ndim)
            if cure is None:
                raise
            raise ShapeError(f"{error}; {cure}") from None

    def _collate_padded(
        self, arrays: Sequence[Any], indices: Any, crops: CropArgs, out: Any
    ) -> Any:
        """Return the batch of samples that are padded to the longest one, or to their windows."""
        if out is None and not self._options.lengths:
            return self._collate_in_memory_order(arrays, indices, crops, None)
        first, all_shapes, _ = self._find_shapes(self._with_shapes(arrays), indices)
        shapes = stack_shapes(all_shapes, len(first))
        if self._options.longest and len(shapes) and hasattr(out, "ndim") and out.ndim:
            # It may be larger along its first axis.
            out = out[: self._options.find_batch_shape(shapes)[0]]
        if not self._options.lengths:
            return self._collate_in_memory_order(arrays, indices, crops, out)
        lengths = self._find_lengths(shapes, first, crops)
        batch = self._collate_in_memory_order(arrays, indices, crops, out)
        return Padded(batch, self._export_lengths(lengths))

    def _find_lengths(self, shapes: Array, first: tuple[int, ...], crops: CropArgs) -> Array:
        """Return the sizes of samples (samples, axes) in windows that begin where samples do.

        These are the axes of size "longest", and without `resize` the ones with a size and an
        offset. Raises ArgumentError if there are none, or if the padding is not at the end.
        """
        axes = self._options.find_sample_axes(len(first), first)
        columns, lengths = [*axes.longest_axes], axes.scale_padded(shapes)
        if self._options.resize is None and axes.resized and len(shapes):
            placed = place(self._options, axes, axes.window(shapes), shapes, crops)
            names = self._find_offset_axes(crops)
            sized = [axis for name, axis in axes.resized.items() if name in names]
            columns, lengths = sorted({*columns, *sized}), lengths.copy()
            for axis in sized:
                name = axes.names[axis]
                column = placed.axes.index(name)
                begins = placed.begins[:, column]
                if (begins < 0).any() or placed.flips[:, column].any():
                    raise _make_moved_error(name)
                lengths[:, axis] = np.clip(shapes[:, axis] - begins, 0, axes.sizes[name])
        if not columns:
            raise _make_centered_error(self.pattern, self._options.sizes)
        return lengths[:, columns[0] if len(columns) == 1 else columns]

    def _find_offset_axes(self, crops: CropArgs) -> set[str]:
        """Return the names of the axes whose offset the call or this Collator gives as a number."""
        offset = crops.offset
        if offset is None or isinstance(offset, DrawnByAxis):
            offset = dict(self._options.crops.offset)
        return {axis_name(name) for name, value in offset.items() if not isinstance(value, str)}

    @staticmethod
    def _export_packed(packed: Packed) -> Packed:
        return packed

    @staticmethod
    def _export_lengths(lengths: Array) -> Any:
        return lengths

    def _collate_in_memory_order(
        self, arrays: Sequence[Any], indices: Any, crops: CropArgs, out: Any
    ) -> Any:
        if self._memory_collator is None:
            return self._collate(arrays, indices, crops, out)
        convert = self._options.convert
        check_no_out(convert, out)
        batch = self._memory_collator._collate(arrays, indices, crops, None)
        return dispatch.permute_to_layout(convert, batch)

    def _collate(self, arrays: Sequence[Any], indices: Any, crops: CropArgs, out: Any) -> Any:
        is_numpy = {*map(type, arrays)} == {np.ndarray}
        if self._targets_gpu or not is_numpy or not (out is None or type(out) is np.ndarray):
            return self._collate_any_library(arrays, indices, crops, out)
        return self._batch(arrays, indices, crops, out)

    def plan(
        self,
        samples: Any,
        *,
        indices: Any = None,
        offset: Any = None,
        flip: Any = None,
        crop: Any = None,
        placements: Placements | None = None,
    ) -> Collation:
        """Return the plan for the batch of `samples`; `print` shows it, and given placements."""
        if self._packed is not None:
            raise ArgumentError(
                f'"{self.pattern}" packs samples of different sizes, whose windows have plans of '
                "their own; print the plan of one sample: give all axes sizes"
            )
        sequence = self._as_sequence(samples, indices)
        self._check_no_none(sequence)
        arrays = [dispatch.as_array(array, self._name(i)) for i, array in enumerate(sequence)]
        sources = self._describe_samples(arrays, indices)
        program = (self._memory_collator or self)._find_program(sources, None)
        args = CropArgs(offset, flip, crop, None, placements)
        if placements is None:
            args = self._find_crops(arrays, indices, args, None, 0)[1]
        plans = program.plans(sources, args)
        layout = program.layout
        if self._memory_collator is not None:
            ndim = len(sources.shape) + 1
            plan = plan_permuted_view(self._options.convert, layout.plan, ndim)
            layout = layout._replace(plan=plan)
        return Collation(layout, sources.count, tuple(plans), self._options.resize, placements)

    def check_sample(self, shape: tuple[int, ...], dtype: DType) -> None:
        """Raise what a batch of one sample of this shape and dtype would raise for its layout."""
        if self._packed is not None:
            self._packed.check_sample(shape, dtype)
            return
        axes = self._options.find_sample_axes(len(shape))
        window = axes.window(np.array([shape], np.int64))
        make_batch_layout(self._options, axes, 1, window, dtype, None, supports_float16)

    def place(
        self,
        samples: Any,
        *,
        indices: Any = None,
        offset: Any = None,
        flip: Any = None,
        crop: Any = None,
        size: Any = None,
        positions: Any = None,
        epoch: int = 0,
        **unknown: Never,
    ) -> Placements:
        """Return the placements of samples in their windows, without reading their pixels.

        A call with these placements makes the batch that the call with the arguments of `place`
        would have made. Give them to that call: without `placements=` and `positions=`, it draws
        random windows of its own. Another Collator places masks in the same windows, and each
        Placement maps the points and boxes of a sample.

        >>> import numpy as np
        >>> image, mask = np.zeros((40, 50, 3), np.uint8), np.zeros((40, 50), np.uint8)
        >>> collator = Collator("hwc->bchw", h=24, w=24, resize="bilinear", crop="random", seed=1)
        >>> placements = collator.place([image], positions=[0])
        >>> collator([image], placements=placements).shape
        (1, 3, 24, 24)
        >>> Collator("hw->bhw", h=24, w=24, resize="nearest")([mask], placements=placements).shape
        (1, 24, 24)
        >>> boxes, kept = placements[0].fit_boxes([[0, 0, 50, 40]])
        >>> boxes.tolist()
        [[0.0, 0.0, 24.0, 24.0]]

        Parameters
        ----------
        samples
            As for a call, or the shape of each sample in place of its array, as a tuple of ints: a
            list of shapes, or the shape of one array of samples.
        indices, offset, flip, crop, size, positions, epoch
            As for a call.

        Returns
        -------
        Placements
            Along the axes that have a size of windows, or are named by `offset` or `flip`. The
            placements of a packed batch place samples of other packed batches only.

        Raises the errors of a call.
        """
        if unknown:
            refuse_in_call("Collator", unknown, _PLACE_KEYWORDS)
        if is_compiling():
            raise _make_graph_error()
        if size is not None and self._packed is None:
            raise _make_size_error(self.pattern, size)
        if type(epoch) is not int or epoch < 0:
            epoch = check_int("epoch", epoch, error=ArgumentError)
        arrays = self._as_sequence(samples, indices)
        if isinstance(arrays[0], Positioned):
            arrays, positions, epoch = _split_positions(arrays)
        if not _is_shape(arrays[0]):
            if isinstance(samples, tuple):
                self._check_not_one_shape(samples)
            items = self._split_items(arrays)
            arrays = arrays if items is None else items.collated
            if {*map(type, arrays)} != {np.ndarray}:
                arrays = self._with_shapes(arrays)
        first, shapes, numbers = self._find_shapes(arrays, indices)
        table = stack_shapes(shapes, len(first))
        axes = self._sample_axes.get(len(first))
        if axes is None:
            axes = self._options.find_sample_axes(len(first), first)
            self._sample_axes[len(first)] = axes
        args = CropArgs(offset, flip, crop, size)
        own, is_random = self._select_own(args)
        if is_random:
            args = args.fill_none(self._draw(own, args, table, numbers, positions, epoch))
        else:
            args = args.fill_none(own.fixed())
        if self._packed is not None:
            placed, names = self._packed.place(table, args)
            return placed.select(dict.fromkeys(names))
        window = axes.window(table if len(table) else np.array([first], np.int64))
        placed = place(self._options, axes, window, table, args)
        return placed.select({**axes.cropped, **dict.fromkeys(args.list_axes())})

    def warmup(self, samples: Any, *, dtype: Any = "uint8") -> list[str]:
        """Compile, or load from disk, the kernels of batches, so that the first batch is fast.

        It makes batches of arrays of zeros, mirrored and not if this Collator draws flips. Neither
        the samples nor later random windows are changed.

        >>> collator = Collator("hwc->bchw", h=24, w=24, resize="bilinear", flip="random", seed=0)
        >>> _ = collator.warmup([(40, 50, 3)] * 8)
        >>> collator.warmup([(40, 50, 3)] * 8)                  # all kernels are loaded already
        []

        Parameters
        ----------
        samples
            As for a call, or the shape of each sample in place of its array, as for `place`. Small
            and large batches have different kernels, so pass as many samples as a batch has.
        dtype : dtype
            The dtype of samples that are passed as shapes.

        Returns
        -------
        list of str
            The names of the kernels that were loaded, or compiled and cached on disk for later
            processes. Kernels for GPUs are compiled, too, but not listed.

        Raises the errors of a call.
        """
        arrays, positions = self.make_zeros(samples, as_dtype(dtype))
        flips = [*self.vary_flips()]
        with list_loaded_kernels() as names:
            if len(flips) > 1 and positions is not None:
                self(arrays, positions=positions)  # loads the kernels that draw
            for flip in flips:
                self(arrays, flip=flip, positions=positions)
        return names

    def vary_flips(self) -> Iterator[dict[str, bool] | None]:
        """Yield the argument `flip` of each call of `warmup`: all values that could be drawn."""
        flips = dict(self._options.crops.flip)
        drawn = [axis for axis, value in flips.items() if value == RANDOM]
        for values in product((False, True), repeat=len(drawn)):
            yield flips | dict(zip(drawn, values, strict=True)) or None

    # -- samples ---------------------------------------------------------------------------

    def make_zeros(self, samples: Any, dtype: DType) -> tuple[Any, range | None]:
        """Return samples, zeros for those passed as shapes, and positions of separate samples."""
        is_one = self._options.is_one_array
        arrays = self._as_sequence(samples, None)
        if not is_one:
            self._check_not_one_shape(samples)
        zeros = {x: np.zeros(as_shape(x), dtype) for x in arrays if _is_shape(x)}
        arrays = [zeros[x] if _is_shape(x) else x for x in arrays]
        return (arrays[0], None) if is_one else (arrays, range(len(arrays)))

    @staticmethod
    def _stack_items(values: list[Any]) -> Any:
        return stack_values(values, lambda arrays: collate(arrays, "...->b..."))

    @property
    def _sample_layout(self) -> Layout:
        left = self._options.convert.pattern.left
        groups = tuple(group for group in left.groups if group != self._options.letter)
        return Layout(groups, left.names)

    def _as_sequence(self, samples: Any, indices: Any) -> Sequence[Any]:
        """Return the samples as a sequence, or the array that contains them in a tuple."""
        if self._options.is_one_array:
            if isinstance(samples, list | tuple):
                self._check_one_shape(samples)
            return (samples,)
        if indices is not None:
            raise ArgumentError(
                f'indices= selects samples of one array, but "{self.pattern}" needs a sequence of '
                "arrays; select these from the sequence, or name the axis of samples on the left"
            )
        is_listed = isinstance(samples, list | tuple)
        if not is_listed and isinstance(samples, Mapping | str | bytes):
            is_mapping = isinstance(samples, Mapping)
            cure = "[*samples.values()]" if is_mapping else f"[images.read({show(samples)})]"
            raise ArgumentError(
                f'samples is {describe_type(samples)}; "{self.pattern}" needs a sequence of '
                f"arrays, such as {cure}"
            )
        try:
            sequence = tuple(samples)  # an argument's __array__ may change a list
        except TypeError:
            raise ArgumentError(
                f'samples is {describe_type(samples)}; "{self.pattern}" needs a sequence of arrays'
            ) from None
        if not sequence:
            raise ShapeError("there are no samples; pass at least one")
        if not is_listed and getattr(samples, "ndim", 0) == self._sample_layout.ndim:
            self._check_not_one_sample(samples, sequence[0])
        return sequence

    def _check_one_shape(self, samples: Sequence[Any]) -> None:
        """Raise ShapeError for samples of different shapes that are to be stacked to one array."""
        shapes = [tuple(sample.shape) for sample in samples if hasattr(sample, "shape")]
        if len(shapes) == len(samples) and len({*shapes}) > 1:
            pattern = self._options.convert.pattern
            raise ShapeError(
                f'"{pattern.text}" needs one array with the axis of samples, but the samples have '
                f"different shapes, {shapes[0]} and others; omit that axis on the left, as "
                f'in "{self._sample_layout}->{pattern.right}"'
            )

    def _check_not_one_shape(self, samples: Any) -> None:
        """Raise ArgumentError for the shape of a sample in place of a list of shapes."""
        if _is_shape(samples):
            raise ArgumentError(
                f"{samples} is the shape of one sample; give the shape of each sample of a batch, "
                f"as in [{samples}] * 64"
            )

    def _check_not_one_sample(self, samples: Any, first: Any) -> None:
        """Raise ShapeError for an array of the rank of a sample that does not contain samples."""
        if getattr(first, "ndim", 0) == samples.ndim - 1 and not self._sample_layout.has_ellipsis:
            raise ShapeError(
                f"samples is one array of shape {tuple(samples.shape)}, which is one sample in "
                f"{self._sample_layout}; pass a list of samples, [x]"
            )

    def _find_crops(
        self,
        arrays: Sequence[Any],
        indices: Any,
        args: CropArgs,
        positions: Any,
        epoch: int,
    ) -> tuple[Sequence[Any], CropArgs]:
        """Return the samples, and where their windows are: by the call, or by this Collator."""
        own, is_random = self._select_own(args)
        if not is_random:
            return arrays, args.fill_none(own.fixed())
        if {*map(type, arrays)} != {np.ndarray}:
            arrays = self._with_shapes(arrays)
        first, shapes, numbers = self._find_shapes(arrays, indices)
        table = stack_shapes(shapes, len(first))
        return arrays, args.fill_none(self._draw(own, args, table, numbers, positions, epoch))

    def _select_own(self, args: CropArgs) -> tuple[CropOptions, bool]:
        """Return the options that the arguments of a call do not replace; True if some draw."""
        if args.offset is args.flip is args.crop is None:
            return self._options.crops, self._is_random
        own = self._options.crops.without(args)
        return own, own.is_random

    def _find_shapes(
        self, arrays: Sequence[Any], indices: Any
    ) -> tuple[tuple[int, ...], list[tuple[int, ...]], Array | None]:
        """Return the first sample's shape, the shapes of all samples, and the indices.

        `arrays` have shapes, or are shapes. The indices select samples of one array, perhaps none;
        they are None for separate arrays.
        """
        if {*map(type, arrays)} == {np.ndarray}:
            shapes = [x.shape for x in arrays]
        else:
            shapes = [x if type(x) is tuple else tuple(x.shape) for x in arrays]
        first, numbers = shapes[0], None
        if self._options.is_one_array:
            first = as_shape(first)
            _, axis, numbers = self._options.select_samples(first, indices)
            first = first[:axis] + first[axis + 1 :]
            shapes = [first] * len(numbers)
        return first, shapes, numbers

    def _check_no_none(self, arrays: Sequence[Any]) -> None:
        if not self._options.is_one_array:
            check_no_none(arrays)

    def _with_shapes(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the samples, as arrays if they have no shape."""
        self._check_no_none(arrays)
        return [
            x if hasattr(x, "shape") else dispatch.as_array(x, self._name(i))
            for i, x in enumerate(arrays)
        ]

    def _draw(
        self,
        own: CropOptions,
        args: CropArgs,
        shapes: Array,
        numbers: Array | None,
        positions: Any,
        epoch: int,
    ) -> CropArgs:
        """Return the options `own` as arguments of a call, with random values for each sample.

        `args` are the arguments of the call, `shapes` has a row for each sample, and `numbers` are
        the default of `positions`.
        """
        process: int | str = epoch
        if positions is not None:
            sources = as_positions(positions)
        elif numbers is not None:
            sources = SourcePositions(numbers)
        else:
            sources = SourcePositions((next(self._calls) << 32) + np.arange(len(shapes)))
            name = current_process().name
            process = epoch if name == "MainProcess" else f"{epoch} {name}"
        if len(sources.numbers) != len(shapes):
            raise ShapeError(
                f"positions has {len(sources.numbers)} values "
                f"for {len(shapes)} samples; give one for each"
            )
        ndim = shapes.shape[1]
        is_whole = own is self._options.crops
        prepared = self._prepared_draws.get(ndim) if is_whole else None
        if prepared is None:
            prepared = own.prepare(self._options.crop_axes(ndim))
        if is_whole:
            self._prepared_draws[ndim] = prepared
        windows = self._find_window_sizes(own, args, shapes)
        return prepared.draw(shapes, sources, process, draw_values, windows)

    def _find_window_sizes(
        self, own: CropOptions, args: CropArgs, shapes: Array
    ) -> Mapping[str, Array]:
        """Return the sizes from which drawn offsets follow, by axis, if the call gives them."""
        if not own.offset or (args.crop is args.size is None):
            return NO_WINDOWS
        axes, count = self._options.find_sample_axes(shapes.shape[1]), len(shapes)
        if self._options.resize is not None:
            crops = parse_per_sample("crop", args.crop, axes.cropped | axes.resizable, count)
            return {axes.names[axis]: values for axis, values in crops.items()}
        sizes = parse_size(self._options, axes, count, args.size)
        return {} if sizes is None else dict(zip(axes.resizable, sizes.T, strict=True))

    def _name(self, i: int) -> str:
        return "x" if self._options.is_one_array else f"sample {i}"

    def _describe_samples(self, arrays: Sequence[Array], indices: Any) -> SampleBatch:
        """Return the SampleBatch of NumPy arrays, which are resized in native byte order."""
        is_swapped = self._options.resize is not None and not arrays[0].dtype.isnative
        if not self._options.is_one_array:
            return describe_arrays([*map(in_native_order, arrays)] if is_swapped else arrays)
        array = arrays[0]
        _, axis, numbers = self._options.select_samples(array.shape, indices)
        if is_swapped:
            array = in_native_order(array.take(numbers, axis))
            rows = np.arange(len(numbers))
            return describe_parts(array, axis, rows)._replace(arrays=(array,))
        return describe_parts(array, axis, numbers)

    # -- batches ---------------------------------------------------------------------------

    def _batch(
        self, arrays: Sequence[Array], indices: Any, crops: CropArgs, out: Array | None
    ) -> Array:
        """Return the batch of NumPy samples."""
        if out is not None and self._options.is_one_array:
            check_writable(arrays[0], out)
        elif out is not None and not out.flags.writeable:
            check_writable(arrays[0], out, self._name(0))
        if self._ignores_pixels and not can_replace_ignored(self._options.resize, arrays[0].dtype):
            return self._collate_recorded(arrays, indices, crops, out, arrays[0])
        sources = self._describe_samples(arrays, indices)
        program = self._find_program(sources, out)
        post_conversion = program.layout.post_conversion
        if post_conversion is None:
            return program(sources, crops, out)
        if out is not None and not self._options.is_one_array:
            check_apart(with_addresses(sources), out)
        windows = program(sources, crops, None)
        return self._find_post_converter(post_conversion)(windows, out)

    def _find_program(self, sources: SampleBatch, out: Array | None) -> BatchProgram:
        """Return the cached program for a batch; raise if its samples or `out` do not fit."""
        target = None if out is None else (out.shape, out.strides, out.dtype)
        shape = self._pad_shape(sources) if self._options.longest else sources.shape
        key = (shape, sources.dtype, sources.count, target)
        program = self._programs_by_shape.get(key)
        if program is not None:
            return program
        with fork.init_lock:
            try:
                program = self._make_program(sources, key, out)
            except LayoutkitError:
                self._check_samples(sources)  # an error of a sample is raised instead
                raise
            cache_put(self._programs_by_shape, key, program, 0)
        return program

    def _pad_shape(self, sources: SampleBatch) -> tuple[int, ...]:
        """Return the shape of the first sample, padded to the longest sample."""
        shape, known = sources.shape, sources.addresses
        shapes = [x.shape for x in sources.arrays] if known is None else known.sizes.tolist()
        if {*map(len, shapes)} != {len(shape)}:
            with_addresses(sources)  # raises
        return self._options.find_sample_axes(len(shape), shape).pad_shape(shape, shapes)

    def _make_program(
        self, sources: SampleBatch, key: tuple[Any, ...], out: Array | None
    ) -> BatchProgram:
        axes = self._options.find_sample_axes(len(sources.shape), sources.shape)
        window = axes.window(np.array(key[:1], np.int64), is_padded=True)
        cure = axes.find_channels_first(sources.shape)
        if cure and window[0] > sources.shape[0]:
            warn(
                f'"{axes.pattern.text}" enlarges sample 0, of shape {sources.shape}, along '
                f"{axes.names[0]}, and keeps its {sources.shape[-1]} channels{cure}"
            )
        window_key = (axes.sample.ndim, window, *key[1:])
        program = self._programs.get(window_key)
        if program is None:
            program = make_batch_program(
                self._options, axes, sources.count, window, sources.dtype, out
            )
            nbytes = PROGRAM_SIZE_ESTIMATE + program.nbytes
            cache_put(self._programs, window_key, program, nbytes)
        return program

    def _check_samples(self, sources: SampleBatch) -> None:
        """Raise unless samples have one rank and dtype, and equal sizes along uncropped axes."""
        addresses = with_addresses(sources).addresses
        axes = self._options.find_sample_axes(len(sources.shape), sources.shape)
        if addresses is not None:
            axes.window(addresses.sizes)

    def _collate_on_gpu(
        self,
        memory: Sequence[Any] | None,
        adapters: Sequence[Adapter],
        samples: Sequence[Any],
        indices: Any,
        crops: CropArgs,
        out: Any,
    ) -> Any:
        """Return the batch of samples on a GPU, as an array of the first sample's library."""
        arrays, on_gpu = import_device_samples(memory, adapters, samples, self._name)
        leader, first = on_gpu[0], arrays[0]
        check_ignored(self._options, first.dtype)
        device = self._options.convert.device
        stays = device in (None, first.device)
        target = None
        if out is not None and stays:
            target = dispatch.device_output(leader, out, first, "x")
        elif device not in (None, CPU):
            check_same_device(first, "x", device, "device=")
        self._device_program = self._device_program or DeviceCollateProgram(self._options)
        with (
            leader.joined(arrays, on_gpu, "sample") as foreign,
            leader.kept_alive(arrays, target, foreign),
        ):
            batch = self._device_program.prepare(
                arrays, indices, crops, target, leader, may_convert=stays
            )
            batch.write(leader)
        if batch.post_conversion is None and target is not None:
            return leader.written(out)
        windows = leader.export(batch.array.owner, samples[0])
        if batch.post_conversion is None:
            return windows
        return self._find_post_converter(batch.post_conversion)(windows, out)

    def _find_post_converter(self, options: ConvertOptions) -> Converter:
        """Return the cached Converter of options, which is applied to the stacked windows."""
        key = options.pattern, options.dtype, options.casting, options.channels
        converter = self._converters.get(key)
        return converter or self._converters.setdefault(key, Converter.from_options(options))

    def _collate_recorded(
        self, samples: Sequence[Any], indices: Any, crops: CropArgs, out: Any, like: Any
    ) -> Any:
        """Return the batch, made by operations of the library of `like`."""
        if isinstance(like, np.ndarray):
            samples = [*map(in_native_order, samples)]
            like = samples[0]
        windows, options = stack_recorded_windows(self._options, samples, indices, crops, like)
        return self._find_post_converter(options)(windows, out)

    def _collate_any_library(
        self, samples: Sequence[Any], indices: Any, crops: CropArgs, out: Any
    ) -> Any:
        """Return the batch if samples or `out` are of other libraries, or the batch is on a GPU."""
        self._check_no_none(samples)
        memory = view_memory(samples)
        adapters, first, uses_library = choose_adapter(samples if memory is None else samples[:1])
        leader, like = adapters[first], samples[first]
        if uses_library:  # its own operations, which the library can trace
            is_drawn = self._is_random and crops.placements is None
            if is_drawn and getattr(leader, "is_traced", False):
                raise _make_graph_error()
            return self._collate_recorded(samples, indices, crops, out, like)
        if isinstance(leader, CudaAdapter):
            return self._collate_on_gpu(memory, adapters, samples, indices, crops, out)
        arrays = memory or [dispatch.as_array(x, self._name(i)) for i, x in enumerate(samples)]
        if self._targets_gpu and self._ignores_pixels:
            return self._collate_recorded(arrays, indices, crops, out, arrays[0])
        if self._targets_gpu:
            sources = self._describe_samples(arrays, indices)
            program = self._find_program(sources, None)
            layout = program.layout
            windows = DeferredArray(
                layout.shape, layout.dtype, lambda target: program(sources, crops, target)
            )
            return dispatch.convert_on_gpu(
                self._find_post_converter(layout.post_conversion or self._options.convert),
                leader,
                windows,
                out,
            )
        if out is None:
            return leader.from_numpy(self._batch(arrays, indices, crops, None), like)
        return dispatch.write_on_cpu(
            leader, out, self._name(0), lambda target: self._batch(arrays, indices, crops, target)
        )


def collate(
    samples: Any,
    pattern: str,
    /,
    *more: Never,
    indices: Any = None,
    offset: Mapping[str, Any] | None = None,
    flip: str | Mapping[str, Any] | None = None,
    fill: Any = None,
    channels: Sequence[int] | None = None,
    resize: str | None = None,
    crop: Mapping[str, Any] | None = None,
    placements: Placements | None = None,
    fit: str = "stretch",
    short_side: int | None = None,
    max_side: int | None = None,
    size: Any = None,
    multiple: int | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    pad_before: Mapping[str, int] | None = None,
    center: str = "round",
    antialias: bool = True,
    ignore: float | None = None,
    lengths: bool = False,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    memory: str | None = None,
    threads: int | None = None,
    **sizes: int | str,
) -> Any:
    """Return one batch of many samples: cropped, resized, flipped and converted in one pass.

    >>> import numpy as np
    >>> photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((30, 33, 3), np.uint8)]
    >>> collate(photos, "hwc->bchw", h=24, w=32).shape                # center crops
    (2, 3, 24, 32)
    >>> batch = collate(photos, "hwc->bchw", h=24, w=32, offset={"h": [0, 6], "w": 1},
    ...                 flip={"w": [True, False]}, dtype="float32", scale=1 / 255)
    >>> collate(photos, "hwc->bchw", h=24, w=32, resize="bicubic", short_side=32).shape
    (2, 3, 24, 32)
    >>> images = np.zeros((100, 32, 32, 3), np.uint8)
    >>> collate(images, "bhwc->bchw", indices=[5, 99, 7]).shape          # samples of one array
    (3, 3, 32, 32)

    Parameters
    ----------
    samples : sequence of arrays, or one array
        Arrays of one rank and dtype, with any strides; or one array, if the left side of the
        pattern has an axis `b` (or `batch` or `n`). The samples are never modified.
    pattern : str
        The layout of a sample, or of the array of samples; `->`; the layout of the batch, with an
        axis `b` anywhere.
    indices : list or array of int, optional
        Indices along `b` of one array of samples, negative ones from the end; repeats are allowed.
        Default: all.
    offset : dict by axis, optional
        The start of the windows in their samples: an int, or one per sample. With `fill` a window
        may extend outside of the sample. Default: centered, as `center` says.
    flip : str or dict by axis, optional
        Axes along which the cropped windows are reversed: `"w"`, for all samples, or
        `{"w": [True, False, ...]}`.
    fill : number, or one number per channel of a sample, optional
        The value outside of a sample, in the units of the sample: the formula is applied to it. By
        default a window that extends outside is an error.
    channels : list of int, optional
        Channels of a sample in the order of the batch: `(2, 1, 0)` swaps red and blue, `(0, 0, 0)`
        repeats gray. The formula then has one constant per channel of the batch.
    resize : "nearest", "bilinear", "bicubic", "lanczos" or "area", optional
        The filter with which samples are resized to `sizes`, before the formula is applied. By
        default they are cropped to `sizes`.
    crop : dict by axis, optional
        With `resize`: the size of the part of a sample that is resized, which begins at `offset`:
        an int, or one per sample. Default: the whole sample.
    placements : Placements, optional
        The windows of another batch, as `Collator.place` returns them, in place of `offset`,
        `flip`, `crop`, `fit`, `short_side`, `max_side`, and in packed batches `size` and
        `multiple`. Sizes of windows, and of samples, must be equal along their axes.
    fit : "stretch", "cover" or "pad"
        With `resize`: "stretch" ignores the aspect ratio; "cover" resizes the largest central part
        that has the aspect ratio of the result; "pad" scales the sample to fit inside the result,
        centered or after `pad_before`, and fills the rest (0 by default).
    short_side : int, optional
        With `resize`: scale samples so that their shorter side has this size, then crop the
        central `sizes`. Axes of size "longest", if no axis has another size, are padded to the
        largest scaled sample of the batch, and packed samples keep their scaled sizes.
    max_side : int, optional
        With `short_side`: scale samples less if their longer side would be larger than this, as
        the processor of DETR does.
    size : tuple of int, or array (samples, axes), optional
        In packed batches: the size in pixels to which samples are resized, or cropped without
        `resize`, along the axes that differ, in the order of a sample: one for all, or one per
        sample.
    multiple, min_pixels, max_pixels : int, optional
        With `resize`, in packed batches: choose the size of each image as the processor of
        Qwen2-VL does, so that both sides are multiples of `multiple`, the aspect ratio changes
        little, and the area is between `min_pixels` and `max_pixels`, if these are given.
    center : "round" or "floor"
        How half of an odd difference of sizes is rounded where a window, a crop or padding is
        centered: to the nearest even number, as in torchvision, or down, as in transformers since
        2025-09 and in ultralytics' letterbox.
    antialias : bool
        Whether the filter widens with the scale of samples that shrink, as in Pillow, or has a
        fixed width, as in OpenCV.
    ignore : number, optional
        With `resize`: the value of pixels that are omitted, such as NaN or -9999. The weights of
        the other pixels are divided by their sum. Where no pixel is valid, the result is `fill`, by
        default the ignored value. Positions outside of samples are omitted, too.
    dtype, scale, mean, std, clip, casting, out, device, memory, threads
        As for `convert`: `memory="bhwc"` of `"hwc->bchw"` returns PyTorch's channels_last.
    lengths : bool
        Return `Padded`, the batch and the sizes of the samples along axes that are padded at their
        end: the axes of size "longest", and, without `resize`, axes with a size and an `offset`,
        such as `t=200, offset={"t": 0}`, which also cuts longer samples. A negative offset or a
        flip along the latter is an error.
    **sizes : int or "longest"
        Sizes of the windows along axes of samples, such as `h=224`, or sizes of folded axes. Along
        any other axis all samples must have one size, which is also the size of the windows,
        unless the batch is packed. Of a folded axis, `h` is the size of h, such as the number of
        patches, while `size` is in pixels.
        `t="longest"` pads samples at their end to the size of the longest one, with `fill`, 0 by
        default; a flip reverses the sample only. With `resize` such an axis is not resized. `out`
        may then be larger along its first axis: the result is its beginning.

    Returns
    -------
    array, Padded or Packed
        `out`, or a new contiguous array of the first sample's library. Without `resize` it is
        bitwise equal to `convert` of the stacked windows. Resized values are computed in float32
        (float64 if samples are) and not rounded before the formula; if the result has an integer
        dtype, they are rounded to the nearest integer and limited to its range. Memory outside of
        samples is not read, and no reference to a sample is kept after the call.

        If the first axis of the batch is a fold that begins with `b` and contains axes of samples
        without a size, as in `"tf->(bt)f"`, samples may differ along these axes. The result is then
        `Packed`: the data of all samples, their sizes, and their offsets along the first axis.
        `out` may be longer than the batch, which is its beginning. A flip along a folded axis of a
        sample, such as w of `"(hp)(wq)c->(bhw)(cpq)"`, reverses the image, not its patches.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        An argument is invalid. Nothing has been written.
    """
    if more:
        refuse_positional("collate", pattern, more)
    if not COLLATOR_ONLY.isdisjoint(sizes):
        check_sizes("collate", parse_pattern(pattern, sizes), sizes)
    values = (
        fill, channels, resize, fit, short_side, max_side, multiple, min_pixels, max_pixels,
        pad_before, center, antialias, ignore, lengths, dtype, scale, mean, std, clip, casting,
        device, memory, threads,
    )  # fmt: skip
    if is_compiling():
        if size is not None:
            raise make_packed_graph_error()
        keywords = _collators.as_keywords(values)
        if lengths:
            raise _make_lengths_error()
        return _compile.graph.insert_collate(
            samples,
            pattern,
            indices,
            CropArgs(offset, flip, crop, None, placements),
            out,
            sizes,
            keywords,
        )
    if device is not None:
        values = _collators.resolve_device(values)  # now, as the current GPU may change
    try:
        collator = _collators.find(pattern, *values, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, such as a list of means, or an array
        collator = _collators.find_or_make(pattern, values, sizes)
    return collator(
        samples,
        indices=indices,
        offset=offset,
        flip=flip,
        crop=crop,
        size=size,
        placements=placements,
        out=out,
    )


def _make_collator(pattern: str, **arguments: Any) -> Collator:
    """Return a Collator; errors name the keywords of `collate`."""
    try:
        return Collator(pattern, **arguments)
    except LayoutkitError:
        keywords = CollateKeywords.__annotations__
        sizes = {name: value for name, value in arguments.items() if name not in keywords}
        check_sizes("collate", parse_pattern(pattern, sizes), sizes)
        raise


_CALL_ARGUMENTS = ("indices", "offset", "flip", "crop", "size", "placements", "out")
_CALL_KEYWORDS = (*_CALL_ARGUMENTS, "positions", "epoch")
_PLACE_KEYWORDS = tuple(n for n in _CALL_KEYWORDS if n not in ("placements", "out"))
_collators = ArgumentCache(_make_collator, collate, _CALL_ARGUMENTS)


@contextmanager
def list_loaded_kernels() -> Iterator[list[str]]:
    """Return a context manager of a list: the kernels that are loaded until its end, by name."""
    with fork.init_lock:
        from .kernels.cpu.compiler import loaded

    before = len(loaded())
    names: list[str] = []
    yield names
    names += [str(kernel.spec) for kernel in loaded()[before:]]


def _split_positions(samples: Sequence[Any]) -> tuple[list[Any], list[int], int]:
    """Return samples without their positions, the positions and the epoch."""
    check_no_none([sample.sample for sample in samples], test="x.sample")
    epochs = {sample.epoch for sample in samples}
    if len(epochs) != 1:
        raise ArgumentError(
            f"samples are of the epochs {sorted(epochs)}; call set_epoch between epochs"
        )
    return [x.sample for x in samples], [x.position for x in samples], epochs.pop()


def _is_shape(sample: Any) -> bool:
    return isinstance(sample, tuple) and all(isinstance(size, int | np.integer) for size in sample)


def _make_lengths_error() -> ArgumentError:
    return ArgumentError(
        "lengths=True makes arrays of NumPy, which a compiled function cannot return; omit it, and "
        "get the lengths from the shapes of the samples: [x.shape[0] for x in samples]"
    )


def _make_moved_error(name: str) -> ArgumentError:
    return ArgumentError(
        f"lengths=True counts the positions of samples from the start of their windows, but a "
        f"negative offset or a flip along {name} moves samples to the end; omit it, or give "
        f'{name}="longest", whose flip reverses the sample only'
    )


def _make_centered_error(pattern: str, sizes: Mapping[str, int]) -> ArgumentError:
    name, size = next(iter(sizes.items()))
    return ArgumentError(
        f'lengths=True returns the sizes along axes that are padded at their end, but "{pattern}" '
        f"has windows of {name}={size} that do not begin where samples begin; give "
        f'offset={{"{name}": 0}}, or {name}="longest"'
    )


def _make_size_error(pattern: str, size: Any) -> ArgumentError:
    return ArgumentError(
        f'size={show(size)} is for samples of different sizes, which "{pattern}" does not pack; '
        f"give the size of windows by axis, as in {format_sizes(size)}"
    )


def make_packed_graph_error() -> ArgumentError:
    """Return the error for a packed batch in a function that torch compiles."""
    return ArgumentError(
        "a packed batch has sizes that a graph of torch.compile cannot hold; make it outside of "
        "the compiled function, and pass its data and offsets"
    )


def _make_graph_error() -> ArgumentError:
    return ArgumentError(
        "this Collator draws windows for each call, and a compiled function would repeat the "
        "windows of its first call; make batches outside of the compiled function"
    )
