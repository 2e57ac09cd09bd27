"""`ImageRecordProvider`: batches of the pictures of RecordIO files, changed at random.

Knows what is asked for; files are an Index, pictures an Augmenter's business, and threads that of
`decoded.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import fields
from os import PathLike, fspath
from typing import Any

import numpy as np

from ...checks import as_word
from ...errors import DataError
from ...pictures import Augmenter
from ...pictures.augmenting.options import Options
from ..batches.losses import handed_out
from ..batches.places import Place, place_of
from ..batches.progress import warn
from ..batches.settings import workers_of
from .base import BaseProvider, ProviderBatch
from .decoded import Decoded, Hands, Run
from .keywords import as_partition, check_names, in_our_words, say
from .means import mean_of
from .picturerows import PictureRows, labels_of, opened, row_layout

__all__ = ["ImageRecordProvider"]

_OPTIONS = {field.name: field for field in fields(Options) if field.name != "data_shape"}


class ImageRecordProvider(BaseProvider):
    """Batches of the pictures in a RecordIO file, decoded and changed at random on threads.

    >>> import io, tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from layoutkit.data.recordio import RecordWriter, pack_image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "train.rec")
    ...     with RecordWriter(path) as writer:
    ...         for number in range(3):
    ...             Image.new("RGB", (4, 4)).save(file := io.BytesIO(), "PNG")
    ...             offset = writer.write(pack_image(file.getvalue(), label=number))
    ...     with ImageRecordProvider(path, (3, 2, 2), batch_size=2, scale=1 / 255) as provider:
    ...         print(provider.provide_data, provider.provide_label)
    ...         print([(batch.count, batch.target.input.tolist()) for batch in provider])
    [('data', (2, 3, 2, 2))] [('softmax_label', (2,))]
    [(2, [0.0, 1.0]), (1, [2.0, 0.0])]

    Every batch has `batch_size` rows of which `count` are real; rows that are filled up are 0, and
    so are their labels. A record that cannot be decoded is left out, logged and counted
    (`dropped`); a batch of which nothing is left is left out, too.

    Parameters
    ----------
    path_imgrec : path or URL
        A .rec, or several by wildcards and braces.
    data_shape : (int, int, int)
        Channels, height and width of a picture, whatever the layout is.
    batch_size : int
        The rows of every batch.
    layout, dtype
        Those of the data: `bchw`, `bhwc`, `b(hwc)`, `chwb`; float32, float64, float16, bfloat16,
        or uint8 and int8, which are rounded half to even and cut off at their ends.
    path_imgidx : path, optional
        Where records begin: by default the .idx beside the .rec, where there is one.
    path_imglist : path, optional
        A .lst, whose labels replace those of the records.
    label_width : int
        Labels of a record: the label is (b,) for one, else (b, width), float32.
    shuffle, seed
        A new order each epoch, a function of `seed` and the epoch alone.
    tail : str
        "pad" fills the last batch with rows of 0, "wrap" with the epoch's first records, "drop"
        leaves it out. `round_batch=True` is "wrap", False is "pad".
    part_index, num_parts : int
        Only records part_index, part_index + num_parts, ... are here; parts differ by at most one.
    num_workers : int, optional
        Threads, by default up to 4; 0 works when it is asked (`preprocess_threads` is the same).
    prefetch : int
        Batches begun ahead (`prefetch_buffer` is the same).
    on_error : "drop" or "raise"
        A record that fails is left out, or ends the loop with a DataError.
    data_name, label_name : str
        What they are called; no labels where `label_name` is None.
    seed_aug : int, optional
        That of what is random in pictures; by default `seed`. Draws are a function of it, the epoch
        and the record's place in the file: threads, parts and resuming make no difference.
    mean_img : path or array, optional
        The mean picture, (channels, height, width). A file that is not there is computed from all
        pictures, not changed at random, and written.
    **others
        Every option of `pictures.Augmenter`; `silent` and `verbose` are whether a line is logged
        when the file is opened.

    Raises
    ------
    DataError, ArgumentError, PatternError, DtypeError, ShapeError
        A file or an argument is wrong; at once.
    TypeError
        There is no such keyword; the nearest one is named.
    """

    def __init__(
        self,
        path_imgrec: str | PathLike[str],
        data_shape: tuple[int, int, int],
        *,
        batch_size: int,
        layout: str = "bchw",
        dtype: Any = "float32",
        path_imgidx: str | PathLike[str] | None = None,
        path_imglist: str | PathLike[str] | None = None,
        label_width: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        tail: str = "pad",
        part_index: int = 0,
        num_parts: int = 1,
        num_workers: int | None = None,
        prefetch: int = 2,
        on_error: str = "drop",
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        seed_aug: int | None = None,
        mean_img: Any = None,
        **others: Any,
    ) -> None:
        options = {name: others.pop(name) for name in (*others,) if name in _OPTIONS}
        asked = {"tail": tail, "num_workers": num_workers, "prefetch": prefetch}
        verbose, said = in_our_words(ImageRecordProvider, others, **asked)
        workers, _ = workers_of(said.pop("num_workers"))
        check_names(data_name, label_name)
        partition = as_partition(part_index, num_parts)
        strict = as_word("on_error", on_error, ("drop", "raise")) == "raise"
        row = row_layout(layout)
        common = {**options, "seed": seed if seed_aug is None else seed_aug}
        augment = Augmenter(data_shape, layout=row, dtype=dtype, **common)
        index = opened(path_imgrec, path_imgidx, path_imglist)
        if isinstance(mean_img, str | PathLike):
            plain = augment.unaugmented()
            mean_img = mean_of(mean_img, index, plain, workers) if fspath(mean_img) else None
        if mean_img is not None:
            augment = Augmenter(data_shape, layout=row, dtype=dtype, mean_img=mean_img, **common)
        labels = [] if label_name is None else [labels_of(label_name, index, label_width)]
        rows: Any = PictureRows(data_name, layout, augment, index)
        super().__init__(
            [rows], labels, len(index), batch_size=batch_size, shuffle=shuffle, seed=seed,
            partition=partition, **said,
        )  # fmt: skip
        self._position: int = Place()
        self._rows: PictureRows = rows
        self._strict, self._hands = strict, Hands(workers)
        say(verbose, "%s: %d records, %d of them here", path_imgrec, len(index), self._samples)

    @property
    def dropped(self) -> int:
        """Records left out so far in the epoch that the latest loop is or was in."""
        return place_of(self._position).dropped

    def close(self) -> None:
        """End the threads and wait for them; loops are over for good."""
        self._hands.close()  # before files are, which threads may be reading
        super().close()

    def __reduce__(self) -> Any:
        raise DataError(
            "an ImageRecordProvider has threads, which cannot be copied or sent to another "
            "process; make one there, with a part_index of its own"
        )

    # -- loops -----------------------------------------------------------------------------

    def _steps(
        self, epoch: int, position: int
    ) -> Generator[tuple[ProviderBatch, int], None, Place]:
        place = place_of(position) if position else Place()
        with closing(self._made(epoch, position)) as made:
            run: Any = _Steps(made)
            batch: Any
            for batch, behind in handed_out(run, from_start=not position):
                place = Place(behind, place.batches + 1, place.dropped + len(batch.dropped))
                warn(batch.dropped)
                if batch.count:
                    yield batch, place
        return Place(0, dropped=place.dropped)

    def _made(self, epoch: int, position: int) -> Generator[tuple[ProviderBatch, int], None, None]:
        """Batches, also those of which nothing is left, and the places behind them."""
        work = self._rows.work(epoch, self._strict)
        run = Run(work, self._rows.dims, self._hands.crew(), self._prefetch)
        numbers = range(position, self.num_batches)
        asked = (self._positions(epoch, n, n + 1)[: self._asked(n)] for n in numbers)
        for number, decoded in zip(numbers, run.batches(asked), strict=True):
            yield self._batch(number, decoded), number + 1

    def _asked(self, number: int) -> int:
        """How many rows of a batch are decoded."""
        return self._size if self._tail == "wrap" else self._real(number)

    def _real(self, number: int) -> int:
        """How many rows of a batch are real, if no record fails."""
        return min(self._size, self._samples - number * self._size)

    def _batch(self, number: int, decoded: Decoded) -> ProviderBatch:
        real, start = self._real(number), number * self._size
        dropped = [
            (record, start + row, error) for record, row, error in decoded.dropped if row < real
        ]
        kept = decoded.numbers[decoded.kept]
        count = int(np.count_nonzero(decoded.kept < real))
        data = self._rows.batch(decoded.rows, decoded.targets, self._size)
        places = np.resize(kept, self._size) if len(kept) else np.zeros(self._size, np.intp)
        label = tuple(column.view(column.rows(places, len(kept))) for column in self._label)
        return ProviderBatch(count, (self._rows.view(data),), label, dropped)

    # -- states ----------------------------------------------------------------------------

    def _go(self, epoch: int, position: int, *, loaded: bool = False) -> None:
        """As any loop; what was left out is known until the next one begins to count."""
        place = position if isinstance(position, Place) else Place(position, dropped=self.dropped)
        super()._go(epoch, place, loaded=loaded)

    def _identity(self) -> dict[str, int | str]:
        return {**super()._identity(), "seed_aug": self._rows.augment.seed}

    def _marks(self, position: int) -> dict[str, int]:
        return {"dropped": place_of(position).dropped if position else 0}

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> Place:
        return Place(position, dropped=state["dropped"])


class _Steps:
    """What `handed_out` takes: batches one after the other."""

    rest = ()

    def __init__(self, steps: Iterator[tuple[ProviderBatch, int]]) -> None:
        self._steps = steps

    def next(self) -> tuple[ProviderBatch, int] | None:
        """The next batch and the place behind it; None at the end."""
        return next(self._steps, None)


def _signature() -> inspect.Signature:
    """That of the class, with the options of pictures by their names."""
    own = inspect.signature(ImageRecordProvider.__init__)
    _, *rest = own.parameters.values()
    last = rest.pop()
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, kind, default=field.default, annotation=field.type)
        for name, field in _OPTIONS.items()
        if name not in own.parameters
    ]
    return own.replace(parameters=[*rest, *more, last])


ImageRecordProvider.__signature__ = _signature()  # type: ignore[attr-defined]
