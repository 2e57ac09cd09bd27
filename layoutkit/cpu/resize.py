"""Collate resized samples on the CPU with one job: resample, convert and stack in one pass.

The kernels of `kernels/cpu/resize.py` resample blocks of result rows into a scratch area of each
thread, and call the kernel that converts a block. The roles of the axes of a sample
(`planning/batch/layout.py`) follow from the order of its memory. The crops are copied first if the
elements of a column are not contiguous, if crops reach outside of samples, or if the resized axes
are not in the order of the pattern, in which values are summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np

from .._utils import fork
from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_clear, cache_put, cache_replace
from ..buffers import add_clear_hook, empty, empty_with_address
from ..kernels.cpu import resize_params as t
from ..kernels.cpu.caches import l2_cache_bytes
from ..kernels.cpu.params import LANE, LINE
from ..memory import Array, check_writable, data_pointer
from ..normalize import CHANNEL
from ..options import CollateOptions
from ..placement import place
from ..planning.batch.arguments import CropArgs
from ..planning.batch.blocks import Blocks, divide_window
from ..planning.batch.layout import AxisRoles, assign_roles, fill_array_of, make_batch_layout
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import (
    check_fill,
    choose_summed_dtype,
    count_halving_taps,
    find_ignored,
    moves_items,
    options_of_floats,
)
from ..planning.epilogue import kernel_dtype_name
from ..planning.plan import Part, Plan
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import RESAMPLING_COST, TapTables, make_tap_tables
from ..threads.limits import get_num_threads
from ..threads.pool import Job
from .program import copy_array, supports_float16
from .window_table import SampleBatch, is_streamed, with_addresses

if TYPE_CHECKING:
    from ..kernels.cpu.resize_launch import BlockLaunch

COLUMN_SHARE = 4  # source columns are transposed into 1 / COLUMN_SHARE of the L2 cache at a time
# Taps are gathered if a crop has this many columns per tap. With 1.25 and 1.5 columns, gathering
# took 0.92 to 1.23 of the time, with 2 columns 0.75 to 1.07, with 3 and 4 columns 0.64 to 1.0
# (bytes of 1 and 3 channels, bilinear and bicubic, one thread, AMD EPYC, 2026-11-27).
GATHER_RATIO = 2
MIN_CHUNKS = 16  # chunks per thread, so that threads end at about the same time


class PlacedSamples(NamedTuple):
    """The samples of a batch. Each letter of the pattern is an axis, so a fold has several."""

    order: str  # the axes in the order of memory
    channels: int  # the number of channels of every sample
    selects: bool  # True: samples have all channels; the kernel selects some
    starts: Array  # (samples,) int64, addresses
    lengths: Array  # (samples, axes) int64
    strides: Array  # (samples, axes) int64, bytes
    placements: Placements
    flips_fill: Array  # (samples,) bool: channels, and so fill values, are flipped
    copies: tuple[Array, ...] = ()  # the copied samples, if any
    windows: Any = None  # the GradientWindows, if the samples are gradients


class _AxisOrder(NamedTuple):
    """The properties of an order of the axes in memory."""

    roles: AxisRoles
    packed: list[int]  # the axes that must be contiguous, innermost first: `inner` and columns
    inner: list[int]  # the axes within a column, innermost first
    is_sorted: bool  # True if the resized axes are in the order of the pattern


class BlockedLaunch(NamedTuple):
    """The blocks of windows of one size, and the launch that writes them."""

    launch: BlockLaunch
    params: Array  # of the launch
    places: Array  # of the blocks, as in `Blocks`
    columns: list[int | None]  # of placements, for the slots of the launch; None: one position

    @property
    def units(self) -> int:
        """The number of units of work of a window."""
        return self.launch.repeats * len(self.places)


class _Run(NamedTuple):
    """A job for samples of certain sizes, strides and crops, at any addresses."""

    # Sizes, strides, alignment and threads; None: crops or flips differ from call to call.
    key: tuple[Any, ...] | None
    job: Job
    # The block of areas and the call block (resize_params.py), with the bytes from each sample to
    # its crop in place of addresses.
    words: Array
    shape: tuple[int, ...]  # of the table of samples at the end of the call block
    starts: Array | None  # addresses of copied samples; None: samples are not copied
    keep: tuple[Any, ...]  # objects whose memory the call block refers to

    @property
    def nbytes(self) -> int:
        """The size of the memory that the run keeps."""
        return self.words.nbytes + sum(x.nbytes for x in self.keep if isinstance(x, np.ndarray))

    def __call__(self, sources: SampleBatch, dst: int) -> None:
        """Resample and convert a batch into the memory at `dst`."""
        starts = self.starts
        if starts is None and sources.addresses is not None:
            starts = sources.addresses.starts
        words = self.words.copy()
        address = data_pointer(words)
        areas, words[0] = empty_with_address((int(words[1] * words[2]),), np.dtype(np.uint8))
        head = len(words) - prod(self.shape) - t.CALL
        words[head + t.C_AREAS] = address
        words[head + t.CALL :].reshape(self.shape)[:, 0] += starts
        self.job.run(address + 8 * head, dst)
        del areas  # kept alive until the job has run


class ResizeProgram:
    """The program that collates samples of one rank, window size and dtype, averaged as floats.

    Several threads may call it at once: a call changes only caches.
    """

    nbytes = 0  # of memory that the program keeps for all batches

    def __init__(
        self,
        options: CollateOptions,
        resize: ResizeOptions,
        axes: SampleAxes,
        count: int,
        window: tuple[int, ...],
        source: DType,
        out: Array | Part | None,
    ) -> None:
        self._options = options
        self._resize = resize
        self._axes = axes
        self._source = source
        self._count = count
        if moves_items(resize, source, supports_float16):  # raises for dtypes without averages
            raise RuntimeError(f"samples of dtype {source} are moved, not averaged")
        checked = make_batch_layout(options, axes, count, window, source, out, supports_float16)
        to_target = options_of_floats(options.convert, checked.plan.target.dtype)
        floats = replace(options, convert=to_target)
        self._summed = choose_summed_dtype(source)
        batch = axes, count, window, self._summed, out, supports_float16
        self.layout = make_batch_layout(floats, *batch)
        self._is_empty = 0 in self.layout.shape
        self._ignored = find_ignored(resize, source)
        if self._ignored is not None:
            check_fill(fill_array_of(options, axes, window, source), checked.plan.target.dtype)
        self._gathered_bytes = t.gathered_bytes(source.itemsize)
        self._index_axes(window)
        self._orders: dict[str, _AxisOrder] = {}
        # By the size of a window, the memory of the batch, and the memory order of samples.
        self._launches: Cache[BlockedLaunch] = Cache()
        self._block_launches: Cache[BlockLaunch] = Cache()  # by the sizes and strides of a block
        self.last_run: Cache[_Run] = Cache()
        with fork.init_lock:
            _programs.add(self)

    def _index_axes(self, window: tuple[int, ...]) -> None:
        """Set the sizes of windows by letter, and the letters and columns of resized axes.

        A folded axis along which samples are resized has one letter, its first one.
        """
        convert = self.layout.options
        move = convert.pattern.resolve(window, convert.sizes)
        sizes = dict(zip(move.axes, move.sizes, strict=True))
        resized = {*self._axes.cropped.values(), *self._axes.packed_axes}
        groups = enumerate(move.source.groups)
        self._folds = {group[0]: group for axis, group in groups if axis in self._axes.packed_axes}
        self._groups = tuple(
            group[:1] if group == self._folds.get(group[0]) else group
            for group in move.source.groups
        )
        # The move omits axes named `1`.
        self._sizes = {letter: sizes.get(letter, 1) for letter in "".join(self._groups)}
        self._resized = "".join(x for axis, x in enumerate(self._groups) if axis in resized)
        self._channel = "".join(x for x in self._sizes if move.source.name(x) == CHANNEL)
        formula = convert.formula
        constants_axis = formula.axis if formula is not None and formula.per_channel else CHANNEL
        self._single = self._channel + "".join(
            x for x in self._sizes if move.source.name(x) == constants_axis
        )
        self._letters = "".join(self._sizes)
        self._resized_columns = tuple(map(self._letters.index, self._resized))
        parts = [(axis, i) for axis, group in enumerate(self._groups) for i in range(len(group))]
        self._columns = [axis for axis, _ in parts]  # index of the axis that contains each letter
        steps = [prod(self._sizes[x] for x in self._groups[axis][i + 1 :]) for axis, i in parts]
        self._steps = np.array(steps, np.int64)  # positions of its axis per position of a letter

    def __call__(self, sources: SampleBatch, crops: CropArgs, out: Array | None) -> Array:
        if self._count == 0:
            return empty(self.layout.shape, self.layout.dtype) if out is None else out
        sources = with_addresses(sources)
        if out is None:
            out, dst = empty_with_address(self.layout.shape, self.layout.dtype)
        else:
            dst = data_pointer(out)
            for number, array in enumerate(sources.arrays):
                check_writable(array, out, f"sample {number}")
        run = self._prepare_run(sources, crops, dst)
        if run is not None:
            run(sources, dst)
        return out

    def plans(self, sources: SampleBatch, crops: CropArgs) -> list[Plan]:
        """Return the plan of the conversion of a block of rows."""
        if self._count == 0:
            return []
        sources = with_addresses(sources)
        samples = self._place_samples(sources, crops)
        return [] if self._is_empty else [self._find_window_launch(samples, LINE).launch.plan]

    # -- samples ---------------------------------------------------------------------------

    def _place_samples(self, sources: SampleBatch, args: CropArgs) -> PlacedSamples:
        """Return the checked samples, or copies of their crops, with placements."""
        starts, lengths, strides = sources.known_addresses
        if len(lengths) != len(starts):
            shape = (len(starts), len(self._groups))
            lengths, strides = (np.broadcast_to(rows, shape) for rows in (lengths, strides))
        placements = self._place(lengths, args).along(
            self._columns, tuple(self._sizes.values()), self._resized_columns
        )
        strides = strides[:, self._columns] * self._steps
        sizes = placements.lengths
        channels = self._sizes.get(self._channel, 1)
        selects = self._options.channels is not None
        if selects:
            column = self._letters.index(self._channel)
            sizes = sizes.copy()
            sizes[:, column] = lengths[:, self._columns[column]]
            channels = int(sizes[0, column])
        order = self._find_order(strides[0], sizes[0])
        channel = [*map(self._letters.index, self._channel)]
        flips_fill = np.logical_or.reduce(placements.flips[:, channel], 1)
        samples = PlacedSamples(
            order, channels, selects, starts, sizes, strides, placements, flips_fill
        )
        return self._copy_crops(samples) if self._must_copy(samples) else samples

    def _place(self, lengths: Array, args: CropArgs) -> Placements:
        """Return the placements of samples of checked sizes."""
        self._axes.check(lengths, self.layout.window)
        return place(self._options, self._axes, self.layout.window, lengths, args)

    def _find_order(self, strides: Array, lengths: Array) -> str:
        """Return the axes in the order of memory; axes of size 1 keep their positions."""
        steps = np.abs(strides) * (lengths != 1)
        (moving,) = steps.nonzero()
        letters = [*self._letters]
        longest_first = moving[(-steps[moving]).argsort(kind="stable")]
        for index, axis in zip(moving, longest_first, strict=True):
            letters[index] = self._letters[axis]
        return "".join(letters)

    def _analyze_order(self, order: str) -> _AxisOrder:
        """Return the cached analysis of an order of the axes."""
        analyzed = self._orders.get(order)
        if analyzed is None:
            roles = assign_roles(order, self._resized, self._sizes, self._single, t.VECTOR)
            packed = [self._letters.index(x) for x in reversed(roles.columns + roles.inner)]
            is_sorted = "".join(x for x in order if x in self._resized) == self._resized
            analyzed = _AxisOrder(roles, packed, packed[: len(roles.inner)], is_sorted)
            self._orders[order] = analyzed
        return analyzed

    def _must_copy(self, samples: PlacedSamples) -> bool:
        """Return True if the kernels cannot read the samples in their own memory."""
        if self._is_empty:
            return False
        order = self._analyze_order(samples.order)
        if not order.is_sorted or np.logical_or.reduce(samples.placements.outside, None):
            return True
        lengths = samples.lengths[:, order.packed]
        steps = np.empty(lengths.shape, np.int64)
        steps[:, 0] = self._source.itemsize
        steps[:, 1:] = self._source.itemsize * lengths[:, :-1].cumprod(1)
        must_copy = (samples.strides[:, order.packed] != steps) & (lengths != 1)
        must_copy[:, : len(order.inner)] |= samples.placements.flips[:, order.inner]
        if np.logical_or.reduce(must_copy, None):
            return True
        if not samples.selects:
            return False
        axis = self._letters.index(self._channel)
        is_inner = axis in order.inner
        return bool(not is_inner or (samples.lengths[:, axis] != samples.channels).any())

    def _copy_crops(self, samples: PlacedSamples) -> PlacedSamples:
        """Return samples that are copies of the crops, with the selected channels only."""
        copies = tuple(self._copy_crop(samples, number) for number in range(len(samples.starts)))
        placements = samples.placements
        is_resized = np.array([x in self._resized for x in self._letters])
        lengths = np.array([copy.shape for copy in copies], np.int64)
        return samples._replace(
            order=self._letters,
            channels=self._sizes.get(self._channel, 1),
            selects=False,
            starts=np.array([data_pointer(copy) for copy in copies], np.int64),
            lengths=lengths,
            strides=np.array([copy.strides for copy in copies], np.int64),
            placements=replace(
                placements,
                lengths=lengths,
                begins=np.zeros_like(placements.begins),
                flips=placements.flips & is_resized,
            ),
            copies=copies,
        )

    def _copy_crop(self, samples: PlacedSamples, number: int) -> Array:
        """Return a copy of a crop, filled outside of the sample, flipped along axes not resized."""
        channels = self._options.channels
        placements = samples.placements
        rows = samples.lengths, samples.strides, placements.begins, placements.sizes
        lengths, strides, begins, sizes = (row[number].tolist() for row in rows)
        x = view_memory(int(samples.starts[number]), lengths, strides, self._source)
        if channels is not None:
            x = x.take(list(channels), self._letters.index(self._channel))
        copy = empty(tuple(sizes), self._source)
        inside, part = [], []
        for begin, size, length in zip(begins, sizes, x.shape, strict=True):
            first = min(size, max(0, -begin))
            last = max(first, min(size, length - begin))
            inside.append(slice(first, last))
            part.append(slice(begin + first, begin + last))
        if any(s != slice(0, size) for s, size in zip(inside, sizes, strict=True)):
            copy[...] = self._outside_pixel(samples.flips_fill[number])
        flips = placements.flips[number].tolist()
        axes = [a for a, y in enumerate(self._letters) if flips[a] and y not in self._resized]
        copy_array(np.flip(x[tuple(part)], tuple(axes)), copy[tuple(inside)])
        return copy

    def _fill(self) -> Array:
        """Return the fill values in the dtype of samples: one, or one per channel of a window."""
        return fill_array_of(self._options, self._axes, self.layout.window, self._source)

    def _outside_pixel(self, is_flipped: bool) -> Array:
        """Return the values of a sample outside of it, with its axes.

        They are the fill values, reversed for flipped channels, or ignored.
        """
        if self._resize.ignore is not None:
            return np.array(self._resize.ignore).astype(self._source)
        fill = self._fill()
        along = [-1 if x == self._channel else 1 for x in self._sizes]
        return (fill[::-1] if is_flipped else fill).reshape(along if len(fill) > 1 else 1)

    # -- execution -------------------------------------------------------------------------

    def _find_window_launch(self, samples: PlacedSamples, alignment: int) -> BlockedLaunch:
        """Return the cached launch of the windows, for outputs of an alignment."""
        targets = "".join(self.layout.options.pattern.target.groups)
        steps = dict(zip(targets, self.layout.sample_region.strides, strict=True))
        nbytes = prod(self.layout.shape) * self.layout.dtype.itemsize
        return self._find_launch(samples, self._sizes, steps, alignment, is_streamed(nbytes))

    def _find_launch(
        self,
        samples: PlacedSamples,
        window: Mapping[str, int],
        steps: Mapping[str, int],
        alignment: int,
        stream: bool,
    ) -> BlockedLaunch:
        """Return the cached launch of windows.

        window    their size, by letter
        steps     the strides in the output, by letter
        alignment    a power of two that divides the addresses of windows in the output
        stream    True if the batch is written past the caches
        """
        order = samples.order, samples.channels, samples.selects
        key = *window.items(), *steps.values(), alignment, stream, order
        blocked = self._launches.get(key)
        if blocked is None:
            roles = self._analyze_order(samples.order).roles
            is_packed = bool(self._folds)
            blocks = divide_window(roles, self._folds, window, steps, t.VECTOR, is_packed)
            alignment = gcd(alignment, *blocks.places[:, 2].tolist())
            launch = self._find_block_launch(samples, blocks, steps, alignment, stream)
            columns = [self._letters.index(x) if x else None for x in launch.slots]
            params = np.frombuffer(launch.params, np.int64)
            blocked = BlockedLaunch(launch, params, blocks.places, columns)
            cache_put(self._launches, key, blocked, PROGRAM_SIZE_ESTIMATE)
        return blocked

    def _find_block_launch(
        self,
        samples: PlacedSamples,
        blocks: Blocks,
        steps: Mapping[str, int],
        alignment: int,
        stream: bool,
    ) -> BlockLaunch:
        """Return the cached launch of blocks, which windows of several sizes may have."""
        used_steps = {x: step for x, step in steps.items() if blocks.sizes.get(x) != 1}
        order = samples.order, samples.channels, samples.selects
        outer = tuple((*fold, steps.get(x)) for x, fold in blocks.outer.items())
        key = *blocks.sizes.items(), *used_steps.items(), *outer, alignment, stream, order
        launch = self._block_launches.get(key)
        if launch is None:
            is_used = self._options.fills or self._ignored is not None
            fill = self._fill() if is_used else np.zeros(1, self._source)
            with fork.init_lock:
                from ..kernels.cpu.resize_launch import prepare_blocks

                launch = prepare_blocks(
                    self.layout,
                    self._sizes,
                    self._analyze_order(samples.order).roles,
                    blocks,
                    steps,
                    self._options.channels if samples.selects else None,
                    samples.channels,
                    fill.astype(self._summed),
                    self._ignored,
                    kernel_dtype_name(self._source),
                    alignment,
                    stream,
                    supports_float16,
                )
            cache_put(self._block_launches, key, launch, PROGRAM_SIZE_ESTIMATE)
        return launch

    def _prepare_run(self, sources: SampleBatch, crops: CropArgs, dst: int) -> _Run | None:
        """Return the run of a batch, or None for one without elements.

        The last run is reused for samples of the same sizes and strides.
        """
        bits = dst | LINE
        alignment = bits & -bits
        threads = self._options.convert.threads or get_num_threads()
        addresses = sources.addresses
        key = self._make_crop_key(crops)
        if addresses is not None and key is not None:
            key = addresses.sizes.tobytes(), addresses.strides.tobytes(), alignment, threads, key
            last = self.last_run.get(None)
            if last is not None and last.key == key:
                return last
        samples = self._place_samples(sources, crops)
        if self._is_empty:
            return None
        run = self._make_run(self._find_window_launch(samples, alignment), samples, key, threads)
        if key is not None and not samples.copies:
            cache_replace(self.last_run, None, run, run.nbytes)
        return run

    def _make_crop_key(self, crops: CropArgs) -> Any:
        """Return the cache key of the arguments of a call; None: do not cache its run."""
        x = crops
        return () if x.offset is x.flip is x.crop is x.placements is None else None

    def _make_run(
        self, found: BlockedLaunch, samples: PlacedSamples, key: Any, threads: int
    ) -> _Run:
        """Return the run of a batch."""
        launch, _, places, columns = found
        placements = samples.placements
        taps = self._make_tap_tables(columns, samples)
        units = found.units * self._count
        threads = min(threads, units)
        table, room, areas = self._fill_samples(launch, samples, columns, taps, threads)
        words = np.zeros(len(areas) + t.CALL + table.size, np.int64)
        words[: len(areas)] = areas
        address = data_pointer(places)
        head = 0, room, found.units, len(places), address, *taps.counts[-2:, 0]
        words[len(areas) : len(areas) + t.CALL] = head
        words[len(areas) + t.CALL :] = table.ravel()
        nbytes = int(np.add.reduce(np.multiply.reduce(placements.sizes, 1))) * self._source.itemsize
        nbytes += prod(self.layout.shape) * self.layout.dtype.itemsize
        grain = max(1, units // (MIN_CHUNKS * threads))
        kernel = launch.kernel
        if launch.can_halve:
            kernel = launch.find_kernel(count_halving_taps(self._resize, placements, columns))
        return _Run(
            key,
            Job(kernel, launch.params, units, grain, nbytes * RESAMPLING_COST, threads),
            words,
            table.shape,
            samples.starts if samples.copies else None,
            (launch, places, taps.memory, *samples.copies),
        )

    def _fill_samples(
        self,
        launch: BlockLaunch,
        samples: PlacedSamples,
        columns: list[int | None],
        taps: TapTables,
        threads: int,
    ) -> tuple[Array, int, list[int]]:
        """Return the rows of samples of a call block, C_ROOM, and the words of a block of areas.

        In place of the address of a sample is the offset of its crop, and in place of the address
        of the first area is 0.
        """
        *outer_taps, row_taps, column_taps = taps.longest
        placements, last = samples.placements, columns[-1]
        crops = taps.counts[-1] if last is None else placements.sizes[:, last]
        table = np.zeros((len(samples.lengths), t.SAMPLE + 2 * len(columns)), np.int64)
        table[:, 0] = np.add.reduce(placements.begins * samples.strides, 1)
        table[:, 1] = samples.flips_fill * launch.flipped_fill
        table[:, t.CROPPED] = crops
        if column_taps * launch.inner * self._source.itemsize <= LANE:
            most = column_taps * taps.counts[-1]
            table[:, t.GATHERED] = (crops >= GATHER_RATIO * most) * column_taps
        for slot, column in enumerate(columns):
            table[:, t.SAMPLE + 2 * slot] = taps.addresses[slot]
            if column is not None:
                table[:, t.SAMPLE + 2 * slot + 1] = samples.strides[:, column]
        # A column of size 1 may have any stride.
        table[:, -1] = launch.inner * self._source.itemsize
        limit = l2_cache_bytes() // COLUMN_SHARE // launch.column_bytes
        least = column_taps * launch.inner + t.VECTOR
        room = max(least, min(int(np.maximum.reduce(crops)) * launch.inner, limit))
        area_bytes = room * launch.column_bytes + launch.area_bytes
        area_bytes += t.TAP * prod(outer_taps) + launch.line // t.VECTOR * row_taps
        area_bytes += row_taps * self._gathered_bytes
        return table, room, [0, -(-area_bytes // LINE) * LINE, threads, *[0] * threads]

    def _make_tap_tables(self, columns: list[int | None], samples: PlacedSamples) -> TapTables:
        """Return the tap tables of a batch; see `make_tap_tables`."""
        threads = self._options.convert.threads
        return make_tap_tables(self._resize, samples.placements, columns, self._summed, threads)


_programs: WeakSet[ResizeProgram] = WeakSet()


def _clear_runs() -> None:
    with fork.init_lock:
        for program in _programs:
            cache_clear(program.last_run)


add_clear_hook(_clear_runs)


class _Memory:
    """Memory at an address, as NumPy's array interface describes it."""

    def __init__(self, **fields: Any) -> None:
        self.__array_interface__ = {"version": 3, **fields}


def view_memory(address: int, shape: list[int], strides: list[int], dtype: DType) -> Array:
    """Return an array of the memory at an address, which the caller keeps alive."""
    item = f"|V{dtype.itemsize}"
    memory = _Memory(data=(address, True), shape=tuple(shape), strides=tuple(strides), typestr=item)
    return np.asarray(memory).view(dtype)
