"""Many samples into one batch, in one pass: cut, flip, stack, layout, cast and formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import forks
from .arrays import adapters
from .caching import MAX_KEPT, PROGRAM_BYTES, Cache, remember
from .checks import kind_text
from .constants import is_by_value, plain
from .converter import Converter
from .cpu.collating import Gathering, Sources, of_rows, of_samples
from .cuda.runtime import check_device
from .devices import CPU
from .errors import ArgumentError, LayoutkitError, ShapeError
from .memory import Array, check_writable
from .planning.frames import Collation
from .planning.windows import make_windows, positions

if TYPE_CHECKING:
    from .axes import Pattern
    from .planning.task import Task

__all__ = ["Collator", "collate"]


class Collator:
    """A batch of windows of samples, planned once and made call after call.

    Takes what `collate` takes, except the samples and what is said of each of them.

    >>> import numpy as np
    >>> photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((30, 33, 3), np.uint8)]
    >>> collator = Collator("hwc->bchw", h=24, w=32, dtype="float32", scale=1 / 255)
    >>> collator(photos).shape
    (2, 3, 24, 32)
    >>> collator(photos, corner={"h": [0, 6]}, flip={"w": [True, False]}).shape
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
        self._alike: Cache[Gathering] = Cache()  # by the shape and strides of all samples
        self._converters: dict[Pattern, Converter] = {}
        self._is_away = self._asked.task.device not in (None, CPU)

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
    def device(self) -> str | None:
        """Where batches are, "cpu" or "cuda:0"; None: where samples are."""
        return self._asked.task.device

    def __call__(
        self, samples: Any, *, rows: Any = None, corner: Any = None, flip: Any = None,
        out: Any = None,
    ) -> Any:  # fmt: skip
        """Make the batch of some samples; see `collate`."""
        arrays = self._listed(samples, rows)
        numpy = {*map(type, arrays)} == {np.ndarray}
        if self._is_away or not numpy or not (out is None or type(out) is np.ndarray):
            return self._foreign(arrays, rows, corner, flip, out)
        return self._batch(arrays, rows, corner, flip, out)

    def plan(
        self, samples: Any, *, rows: Any = None, corner: Any = None, flip: Any = None
    ) -> Collation:
        """How the batch of some samples would be made; `print` it."""
        given = self._listed(samples, rows)
        arrays = [adapters.as_array(array, self._name(n)) for n, array in enumerate(given)]
        sources = self._sources(arrays, rows)
        gathering = self._gathering(sources, None)
        plans = gathering.plans(sources, corner, flip)
        if plans is None:
            gathering = self._gathering(sources, None, raw=True)
            plans = gathering.plans(sources, corner, flip) or []
        return Collation(gathering.frame, len(sources.addresses), tuple(plans))

    # -- samples ---------------------------------------------------------------------------

    def _listed(self, samples: Any, rows: Any) -> Sequence[Any]:
        """The samples one by one, or the one array that has them."""
        if self._asked.whole:
            return (samples,)
        if rows is not None:
            raise ArgumentError(
                f'rows= picks samples of one array, but "{self.pattern}" takes a sequence of them; '
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

    def _sources(self, arrays: Sequence[Array], rows: Any) -> Sources:
        """Samples of NumPy as memory."""
        if not self._asked.whole:
            return of_samples(arrays)
        axes = self._asked.completed(arrays[0].ndim - 1)
        at = axes.pattern.source.groups.index(self._asked.letter)
        return of_rows(arrays[0], at, positions(rows, arrays[0].shape[at]))

    # -- batches ---------------------------------------------------------------------------

    def _batch(
        self, arrays: Sequence[Array], rows: Any, corner: Any, flip: Any, out: Array | None
    ) -> Array:
        """The batch of samples of NumPy."""
        sources = self._sources(arrays, rows)
        gathering = self._gathering(sources, out)
        if out is not None:
            for number, array in enumerate(arrays):
                check_writable(array, out, self._name(number))
        if gathering.frame.then is None:
            found = gathering(sources, corner, flip, out)
            if found is not None:
                return found
            gathering = self._gathering(sources, out, raw=True)
        memory = gathering(sources, corner, flip, None)
        result: Array = self._after(gathering.frame.then)(memory, out)
        return result

    def _gathering(self, sources: Sources, out: Array | None, raw: bool = False) -> Gathering:
        """What makes batches of samples like these; raises where there are none."""
        to = None if out is None else (out.shape, out.strides, out.dtype)
        count = len(sources.addresses)
        alike = sources.alike
        key = (alike, sources.dtype, count, to, raw)
        found = None if alike is None else self._alike.get(key)
        if found is not None:
            return found
        with forks.making:
            axes = self._asked.completed(len(sources.forms[0][0]))
            window = axes.window(self._asked, sources.rows()[0])
            known = (axes.sample.ndim, window, *key[1:])
            found = self._gatherings.get(known)
            if found is None:
                found = Gathering(self._asked, axes, count, window, sources.dtype, out, raw)
                remember(self._gatherings, known, found, PROGRAM_BYTES)
            if alike is not None:
                remember(self._alike, key, found, 0)
        return found

    def _after(self, task: Task | None) -> Converter:
        """What converts the memory of windows that lie as they are."""
        if task is None:
            raise RuntimeError(f"{self.pattern}: windows as they are, and nothing to do with them")
        found = self._converters.get(task.pattern)
        return found or self._converters.setdefault(task.pattern, Converter.of_task(task))

    def _foreign(self, samples: Sequence[Any], rows: Any, corner: Any, flip: Any, out: Any) -> Any:
        """The batch of samples of other libraries, of the kind of the first, or on a GPU."""
        raise NotImplementedError


def collate(
    samples: Any,
    pattern: str,
    /,
    *,
    rows: Any = None,
    corner: Mapping[str, Any] | None = None,
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
    >>> batch = collate(photos, "hwc->bchw", h=24, w=32, corner={"h": [0, 6], "w": 1},
    ...                 flip={"w": [True, False]}, dtype="float32", scale=1 / 255)
    >>> images = np.zeros((100, 32, 32, 3), np.uint8)
    >>> collate(images, "bhwc->bchw", rows=[5, 99, 7]).shape          # samples of one array
    (3, 3, 32, 32)

    Parameters
    ----------
    samples : sequence of arrays, or one array
        Arrays of one rank and dtype, of any strides, where the left side of the pattern has no
        axis `b` (in names, `batch`); where it has, one array. They are never written to.
    pattern : str
        Layout of a sample, or of all; `->`; layout of the batch, which has `b` anywhere.
    rows : list or array of int, optional
        Positions along `b` of one array, from its end where negative; repeats are allowed. All by
        default.
    corner : dict by axis, optional
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
        collator = _make(*arguments, **sizes)
    return collator(samples, rows=rows, corner=corner, flip=flip, out=out)


def _make(
    pattern: str, fill: Any, channels: Any, dtype: Any, scale: Any, mean: Any, std: Any, clip: Any,
    casting: str, device: str | None, **sizes: int,
) -> Collator:  # fmt: skip
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
    return _make(pattern, *others, **sizes)


def _plain(value: Any) -> Any:
    """A list or an array of numbers as a key."""
    listed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(value) if listed else value
