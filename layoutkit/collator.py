"""`collate`: many samples into one batch in one call.

`Collator`: many samples into one batch in one pass, planned once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ._compile import batch_call_in_graph, batch_in_graph, is_followed, makers, words_of_windows
from ._utils import fork
from ._utils.cache import MAX_KEPT, PROGRAM_BYTES, Cache, remember
from ._utils.validation import kind_text
from .backends import dispatch
from .backends.collate import leader_of, plain_memory, stacked
from .backends.cupy import CudaAdapter
from .converter import Converter
from .cpu.collate import Gathering
from .cpu.window_table import Sources, of_rows, of_samples, spelled_out
from .cuda.collate import DeviceGathering
from .cuda.runtime import check_device
from .cuda.transfers import Unmade
from .errors import ArgumentError, DeviceError, LayoutkitError, ShapeError
from .memory import Array, check_writable
from .normalize import is_by_value, plain
from .planning.collate import Collation, make_windows, positions
from .spec import CPU

if TYPE_CHECKING:
    from .cuda.memory import DeviceArray
    from .layout.pattern import Pattern
    from .planning.collate import Windows
    from .planning.options import Task


class Collator:
    """A batch of windows of samples, planned once and made call after call.

    Takes what `collate` takes, except the samples and what is said of each of them.

    >>> import numpy as np
    >>> photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((30, 33, 3), np.uint8)]
    >>> collator = Collator("hwc->bchw", h=24, w=32, dtype="float32", scale=1 / 255)
    >>> collator(photos).shape
    (2, 3, 24, 32)
    >>> collator(photos, offset={"h": [0, 6]}, flip={"w": [True, False]}).shape
    (2, 3, 24, 32)

    Two that were asked for the same are equal. It may be called from several threads at once, it
    pickles, and it is a `collate_fn` of data loaders.
    """

    def __init__(
        self,
        pattern: str,
        *,
        fill: Any = None,
        channels: Sequence[int] | None = None,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
        casting: str = "same_kind",
        device: str | None = None,
        **sizes: int,
    ) -> None:
        self._asked = make_windows(
            pattern, fill=fill, channels=channels, dtype=dtype, scale=scale, mean=mean, std=std,
            clip=clip, casting=casting, device=None if device is None else check_device(device),
            **sizes,
        )  # fmt: skip
        self._start()

    def _start(self) -> None:
        self._gatherings: Cache[Gathering] = Cache()
        self._alike: Cache[Gathering] = Cache()  # by the shape of the first sample
        self._on_gpus: DeviceGathering | None = None
        self._converters: dict[Pattern, Converter] = {}
        self._is_away = self._asked.task.device not in (None, CPU)
        self.words = words_of_windows(self._asked)

    def __repr__(self) -> str:
        shown = [f'"{self.pattern}"']
        shown += [f"{name}={value!r}" for name, value in self._asked.keywords().items()]
        return f"Collator({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collator):
            return NotImplemented
        return self is other or self._asked.asked() == other._asked.asked()

    def __hash__(self) -> int:
        return hash(self._asked.asked())

    def __getstate__(self) -> dict[str, Any]:
        return {"_asked": self._asked}  # what is kept between calls is machine code

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    @property
    def pattern(self) -> str:
        """The pattern as it was given."""
        return self._asked.task.pattern.text

    @property
    def windows(self) -> Windows:
        """What was asked for, checked."""
        return self._asked

    @property
    def device(self) -> str | None:
        """Where batches are, "cpu" or "cuda:0"; None: where samples are."""
        return self._asked.task.device

    def __call__(
        self, samples: Any, *, indices: Any = None, offset: Any = None, flip: Any = None,
        out: Any = None,
    ) -> Any:  # fmt: skip
        """Make the batch of some samples; see `collate`."""
        if is_followed():
            return batch_in_graph(self, samples, indices, offset, flip, out)
        arrays = self._listed(samples, indices)
        numpy = {*map(type, arrays)} == {np.ndarray}
        if self._is_away or not numpy or not (out is None or type(out) is np.ndarray):
            return self._foreign(arrays, indices, offset, flip, out)
        return self._batch(arrays, indices, offset, flip, out)

    def plan(
        self, samples: Any, *, indices: Any = None, offset: Any = None, flip: Any = None
    ) -> Collation:
        """How the batch of some samples would be made; `print` it."""
        given = self._listed(samples, indices)
        arrays = [dispatch.as_array(array, self._name(n)) for n, array in enumerate(given)]
        sources = self._sources(arrays, indices)
        gathering = self._gathering(sources, None)
        plans = gathering.plans(sources, offset, flip)
        return Collation(gathering.frame, sources.count, tuple(plans))

    # -- samples ---------------------------------------------------------------------------

    def _listed(self, samples: Any, indices: Any) -> Sequence[Any]:
        """The samples one by one, or the one array that has them."""
        if self._asked.whole:
            return (samples,)
        if indices is not None:
            raise ArgumentError(
                f'indices= picks samples of one array, but "{self.pattern}" takes a sequence of them; '
                f"pick these, or name the axis of samples on the left"
            )
        try:
            found = samples if isinstance(samples, list | tuple) else list(samples)
        except TypeError:
            raise ArgumentError(
                f'samples is a {kind_text(samples)}; "{self.pattern}" takes a sequence of arrays'
            ) from None
        if not found:
            raise ShapeError("there are no samples; a batch has at least one")
        return found

    def _name(self, number: int) -> str:
        return "x" if self._asked.whole else f"sample {number}"

    def _sources(self, arrays: Sequence[Array], indices: Any) -> Sources:
        """Samples of NumPy as memory."""
        if not self._asked.whole:
            return of_samples(arrays)
        self._asked.check_whole(arrays[0].shape)
        axes = self._asked.completed(arrays[0].ndim - 1)
        at = axes.pattern.source.groups.index(self._asked.letter)
        return of_rows(arrays[0], at, positions(indices, arrays[0].shape[at]))

    # -- batches ---------------------------------------------------------------------------

    def _batch(
        self, arrays: Sequence[Array], indices: Any, offset: Any, flip: Any, out: Array | None
    ) -> Array:
        """The batch of samples of NumPy."""
        if out is not None and self._asked.whole:
            check_writable(arrays[0], out)
        elif out is not None and not out.flags.writeable:
            check_writable(arrays[0], out, self._name(0))
        sources = self._sources(arrays, indices)
        gathering = self._gathering(sources, out)
        then = gathering.frame.then
        if then is None:
            return gathering(sources, offset, flip, out)
        if out is not None:
            for number, array in enumerate(arrays):
                check_writable(array, out, self._name(number))
        memory = gathering(sources, offset, flip, None)
        result: Array = self._after(then)(memory, out)
        return result

    def _gathering(self, sources: Sources, out: Array | None) -> Gathering:
        """What makes batches of samples like these; raises where there are none."""
        to = None if out is None else (out.shape, out.strides, out.dtype)
        key = (sources.shape, sources.dtype, sources.count, to)
        found = self._alike.get(key)
        if found is not None:
            return found
        with fork.making:
            try:
                found = self._made(sources, key, out)
            except LayoutkitError:
                self._check_alike(sources)  # which would be said of them before
                raise
            remember(self._alike, key, found, 0)
        return found

    def _made(self, sources: Sources, key: tuple[Any, ...], out: Array | None) -> Gathering:
        axes = self._asked.completed(len(sources.shape))
        window = axes.window(self._asked, np.array([sources.shape], np.int64))
        known = (axes.sample.ndim, window, *key[1:])
        found = self._gatherings.get(known)
        if found is None:
            found = Gathering(self._asked, axes, sources.count, window, sources.dtype, out)
            remember(self._gatherings, known, found, PROGRAM_BYTES)
        return found

    def _check_alike(self, sources: Sources) -> None:
        """Raise unless samples are of one rank and dtype, and of one size where they have to be."""
        places = spelled_out(sources).places
        axes = self._asked.completed(len(sources.shape))
        if places is not None:
            axes.window(self._asked, places.sizes)

    def _batch_on_gpu(
        self, leader: CudaAdapter, samples: Sequence[Any], indices: Any, offset: Any, flip: Any,
        out: Any,
    ) -> Any:  # fmt: skip
        """The batch of samples on a GPU, of the kind of the first."""
        arrays: list[DeviceArray] = []
        for number, sample in enumerate(samples):
            adapter = dispatch.device_adapter_of(sample)
            if adapter is None:
                raise DeviceError(
                    f"sample {number} is a {kind_text(sample)} on cpu, but sample 0 is on "
                    f"{arrays[0].device}; bring all to one device first"
                )
            arrays.append(adapter.reach(sample, self._name(number)))
        target = None if out is None else dispatch.device_adapter_of(out)
        to = None if target is None else target.reach(out, "out")
        self._on_gpus = self._on_gpus or DeviceGathering(self._asked)
        made = self._on_gpus(arrays, indices, offset, flip, to, leader)
        leader.keep(arrays)
        return self._after(self._asked.task)(leader.finished(made.owner, samples[0]), out)

    def _after(self, task: Task) -> Converter:
        """What converts the memory of windows that lie as they are."""
        found = self._converters.get(task.pattern)
        return found or self._converters.setdefault(task.pattern, Converter.of_task(task))

    def _foreign(
        self, samples: Sequence[Any], indices: Any, offset: Any, flip: Any, out: Any
    ) -> Any:
        """The batch of samples of other libraries, of the kind of the first, or on a GPU."""
        plain = plain_memory(samples)
        leader, like, in_words = leader_of(samples if plain is None else samples[:1])
        if in_words:
            found = stacked(self._asked, samples, indices, offset, flip, like)
            return self._after(self._asked.task)(found, out)
        if isinstance(leader, CudaAdapter):
            return self._batch_on_gpu(leader, samples, indices, offset, flip, out)
        arrays = plain or [dispatch.as_array(x, self._name(n)) for n, x in enumerate(samples)]
        if self._is_away:
            sources = self._sources(arrays, indices)
            gathering = self._gathering(sources, None)
            frame = gathering.frame
            windows = Unmade(
                frame.shape, frame.dtype, lambda to: gathering(sources, offset, flip, to)
            )
            return dispatch.send(self._after(frame.then or self._asked.task), leader, windows, out)
        if out is None:
            return leader.leave(self._batch(arrays, indices, offset, flip, None), like)
        dispatch.refuse_out_on_gpu(out, self._name(0))
        writer = dispatch.writer_of(leader, out)
        self._batch(arrays, indices, offset, flip, writer.target(out))
        return writer.written(out)


makers["Collator"] = Collator


def collate(
    samples: Any,
    pattern: str,
    /,
    *,
    indices: Any = None,
    offset: Mapping[str, Any] | None = None,
    flip: str | Mapping[str, Any] | None = None,
    fill: Any = None,
    channels: Sequence[int] | None = None,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    **sizes: int,
) -> Any:
    """Make one batch of many samples in one pass: cut, flip, stack, convert.

    >>> import numpy as np
    >>> photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((30, 33, 3), np.uint8)]
    >>> collate(photos, "hwc->bchw", h=24, w=32).shape                # the middle of each
    (2, 3, 24, 32)
    >>> batch = collate(photos, "hwc->bchw", h=24, w=32, offset={"h": [0, 6], "w": 1},
    ...                 flip={"w": [True, False]}, dtype="float32", scale=1 / 255)
    >>> images = np.zeros((100, 32, 32, 3), np.uint8)
    >>> collate(images, "bhwc->bchw", indices=[5, 99, 7]).shape          # samples of one array
    (3, 3, 32, 32)

    Parameters
    ----------
    samples : sequence of arrays, or one array
        Arrays of one rank and dtype, of any strides, where the left side of the pattern has no
        axis `b` (in names, `batch`); where it has, one array. They are never written to.
    pattern : str
        Layout of a sample, or of all; `->`; layout of the batch, which has `b` anywhere.
    indices : list or array of int, optional
        Positions along `b` of one array, from its end where negative; repeats are allowed. All by
        default.
    offset : dict by axis, optional
        Where windows begin in their samples: an int, or one for each sample. It may be negative or
        reach beyond the sample where there is a `fill`. In the middle by default.
    flip : str or dict by axis, optional
        Axes along which windows are reversed after they were cut: `"w"`, for all samples, or
        `{"w": [True, False, ...]}`.
    fill : number, or one number a channel of a sample, optional
        What is outside of a sample, in its units: the formula is applied to it. By default a
        window that reaches outside is an error.
    channels : list of int, optional
        Channels of a sample in the order of the batch: `(2, 1, 0)` swaps red and blue, `(0, 0, 0)`
        repeats grey. The formula's constants are one for each channel of the batch.
    dtype, scale, mean, std, clip, casting, out, device
        As `convert` takes them.
    **sizes : int
        The size of windows along axes of samples, such as `h=224`, or sizes of axes that samples
        fold. Along other axes all samples have one size, which is the window's.

    Returns
    -------
    array
        `out`, or a new contiguous array of the kind of the first sample: to the bit what `convert`
        gives of the stacked windows. Nothing outside of samples is read, and no sample is held
        after the call.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        Before anything is written.
    """
    if is_followed():
        return batch_call_in_graph(
            samples, pattern, (indices, offset, flip, out), sizes, fill=fill, channels=channels,
            dtype=dtype, scale=scale, mean=mean, std=std, clip=clip, casting=casting, device=device,
        )  # fmt: skip
    if device is not None:
        device = check_device(device)  # now: "cuda" is the current one, which may change
    named = {"scale": scale, "mean": mean, "std": std, "clip": clip}
    constants = [plain(name, value) for name, value in named.items()]
    arguments = (pattern, _plain(fill), _plain(channels), dtype, *constants, casting, device)
    try:
        collator = _kept(*arguments, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, or what has no plain form
        collator = _make(arguments, sizes)
    return collator(samples, indices=indices, offset=offset, flip=flip, out=out)


def _make(arguments: tuple[Any, ...], sizes: Mapping[str, int]) -> Collator:
    pattern, fill, channels, dtype, scale, mean, std, clip, casting, device = arguments
    return Collator(
        pattern, fill=fill, channels=channels, dtype=dtype, scale=scale, mean=mean, std=std,
        clip=clip, casting=casting, device=device, **sizes,
    )  # fmt: skip


# Typed, since True == 1 == 1.0: what was refused once is refused after a call that was right.
@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(pattern: str, *others: Any, **sizes: int) -> Collator:
    """The Collator of these arguments, so that a loop plans once."""
    if not all(map(is_by_value, others)):
        raise TypeError("an array is no key")
    return _make((pattern, *others), sizes)


def _plain(value: Any) -> Any:
    """A list or an array of numbers as a key."""
    listed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(value) if listed else value
