"""`Collator`: many samples into one batch in one pass, planned once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import forks
from .arrays import adapters
from .arrays.cupy import CudaAdapter
from .arrays.stacking import leader_of, plain_memory, stacked
from .caching import PROGRAM_BYTES, Cache, remember
from .checks import kind_text
from .compilation import batch_in_graph, is_followed, makers, words_of_windows
from .converter import Converter
from .cpu.collating import Gathering
from .cpu.parts import Sources, of_rows, of_samples, spelled_out
from .cuda.collating import DeviceGathering
from .cuda.runtime import check_device
from .cuda.transfers import Unmade
from .devices import CPU
from .errors import ArgumentError, DeviceError, LayoutkitError, ShapeError
from .memory import Array, check_writable
from .planning.cuts import positions
from .planning.frames import Collation
from .planning.windows import make_windows

if TYPE_CHECKING:
    from .axes import Pattern
    from .cuda.memory import DeviceArray
    from .planning.task import Task
    from .planning.windows import Windows

__all__ = ["Collator"]


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
        self, samples: Any, *, rows: Any = None, corner: Any = None, flip: Any = None,
        out: Any = None,
    ) -> Any:  # fmt: skip
        """Make the batch of some samples; see `collate`."""
        if is_followed():
            return batch_in_graph(self, samples, rows, corner, flip, out)
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
        return Collation(gathering.frame, sources.count, tuple(plans))

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
        self._asked.check_whole(arrays[0].shape)
        axes = self._asked.completed(arrays[0].ndim - 1)
        at = axes.pattern.source.groups.index(self._asked.letter)
        return of_rows(arrays[0], at, positions(rows, arrays[0].shape[at]))

    # -- batches ---------------------------------------------------------------------------

    def _batch(
        self, arrays: Sequence[Array], rows: Any, corner: Any, flip: Any, out: Array | None
    ) -> Array:
        """The batch of samples of NumPy."""
        if out is not None and self._asked.whole:
            check_writable(arrays[0], out)
        elif out is not None and not out.flags.writeable:
            check_writable(arrays[0], out, self._name(0))
        sources = self._sources(arrays, rows)
        gathering = self._gathering(sources, out)
        then = gathering.frame.then
        if then is None:
            return gathering(sources, corner, flip, out)
        if out is not None:
            for number, array in enumerate(arrays):
                check_writable(array, out, self._name(number))
        memory = gathering(sources, corner, flip, None)
        result: Array = self._after(then)(memory, out)
        return result

    def _gathering(self, sources: Sources, out: Array | None) -> Gathering:
        """What makes batches of samples like these; raises where there are none."""
        to = None if out is None else (out.shape, out.strides, out.dtype)
        key = (sources.shape, sources.dtype, sources.count, to)
        found = self._alike.get(key)
        if found is not None:
            return found
        with forks.making:
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
        self, leader: CudaAdapter, samples: Sequence[Any], rows: Any, corner: Any, flip: Any,
        out: Any,
    ) -> Any:  # fmt: skip
        """The batch of samples on a GPU, of the kind of the first."""
        arrays: list[DeviceArray] = []
        for number, sample in enumerate(samples):
            adapter = adapters.device_adapter_of(sample)
            if adapter is None:
                raise DeviceError(
                    f"sample {number} is a {kind_text(sample)} on cpu, but sample 0 is on "
                    f"{arrays[0].device}; bring all to one device first"
                )
            arrays.append(adapter.reach(sample, self._name(number)))
        target = None if out is None else adapters.device_adapter_of(out)
        to = None if target is None else target.reach(out, "out")
        self._on_gpus = self._on_gpus or DeviceGathering(self._asked)
        made = self._on_gpus(arrays, rows, corner, flip, to, leader)
        leader.keep(arrays)
        return self._after(self._asked.task)(leader.finished(made.owner, samples[0]), out)

    def _after(self, task: Task) -> Converter:
        """What converts the memory of windows that lie as they are."""
        found = self._converters.get(task.pattern)
        return found or self._converters.setdefault(task.pattern, Converter.of_task(task))

    def _foreign(self, samples: Sequence[Any], rows: Any, corner: Any, flip: Any, out: Any) -> Any:
        """The batch of samples of other libraries, of the kind of the first, or on a GPU."""
        plain = plain_memory(samples)
        leader, like, in_words = leader_of(samples if plain is None else samples[:1])
        if in_words:
            found = stacked(self._asked, samples, rows, corner, flip, like)
            return self._after(self._asked.task)(found, out)
        if isinstance(leader, CudaAdapter):
            return self._batch_on_gpu(leader, samples, rows, corner, flip, out)
        arrays = plain or [adapters.as_array(x, self._name(n)) for n, x in enumerate(samples)]
        if self._is_away:
            sources = self._sources(arrays, rows)
            gathering = self._gathering(sources, None)
            frame = gathering.frame
            windows = Unmade(
                frame.shape, frame.dtype, lambda to: gathering(sources, corner, flip, to)
            )
            return adapters.send(self._after(frame.then or self._asked.task), leader, windows, out)
        if out is None:
            return leader.leave(self._batch(arrays, rows, corner, flip, None), like)
        adapters.refuse_out_on_gpu(out, self._name(0))
        writer = adapters.writer_of(leader, out)
        self._batch(arrays, rows, corner, flip, writer.target(out))
        return writer.written(out)


makers["Collator"] = Collator
