"""`ImageRecordProvider`: batches of the images of RecordIO files, augmented on threads.

`ImageRows` makes rows of records, and `load_or_compute_mean` handles mean images.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import fields, replace
from functools import partial
from os import PathLike, fspath
from typing import Any

import numpy as np

from ..._utils.errors import describe_error
from ..._utils.validation import check_choice, check_int, check_path
from ...collator import Collator
from ...errors import DataError, LayoutkitError, PatternError
from ...images import Augmenter
from ...images.augment.options import Options
from ...layout.parsing import Layout, parse_layout
from ...memory import Array
from ..io.filesystem import exists
from ..io.image_record import extract_image, read_mean, unpack_image, write_mean
from ..io.reader import Reader
from ..io.recordio import unpack_frames
from ..labels import check_missing
from ..loader.batch import ViewFactory
from ..loader.chunk import RecordPipeline, RecordSource
from ..loader.collate import SampleSpec
from ..loader.config import LoaderConfig, parse_workers
from ..loader.epoch_pass import EpochPass, Position
from ..loader.epochs import EpochLength
from ..loader.loader import sampled_batcher
from ..loader.signature import RunSpec
from ..records import Record
from ..samplers import Sampler
from ..sources import Index, open_index
from ..sources.ranged import RangedIndex
from .arguments import file_arguments, log_opened
from .array import Field, label_field
from .base import (
    BaseProvider,
    ProviderBatch,
    pad_rows,
)


class ImageRows:
    """The data of batches: rows that an Augmenter makes from records, and batches of rows.

    The last augmentation step of each image writes its row, while its pixels are in the cache. If b
    is not the first axis of batches, that step runs once over the batch instead; if it varies
    between images, the batch needs another pass.

    dims, dtype : shape and dtype of a row
    """

    def __init__(self, name: str, layout: str, augment: Augmenter, index: RangedIndex) -> None:
        self.name = name
        self.augment = augment
        self._index = index
        self._batch_axis = parse_layout(layout).groups.index("b")
        finish = augment.finish
        shape: Any = (augment.height, augment.width, augment.channels)
        self._collator: Any = None
        self._is_late_collate = bool(self._batch_axis) and not finish.varies
        if self._is_late_collate:
            self.dims, self.dtype = shape, np.dtype(np.uint8)
            self._collator = Collator(f"bhwc->{layout}", dtype=finish.dtype, **finish.constants)
        else:
            self.dims, self.dtype = augment.shape, finish.dtype
            if self._batch_axis:
                self._collator = Collator(f"b{augment.layout}->{layout}")
        self.reader = Reader()
        self._get = index.getter(self.reader)
        self.view = ViewFactory(layout, "the data of a batch")

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a batch."""
        shape, axis = self.augment.shape, self._batch_axis
        return (*shape[:axis], rows, *shape[axis:])

    def pipeline(self, sampler: Sampler, strict: bool) -> RecordPipeline:
        """Return the pipeline of records; `process` with an epoch is its processor."""
        source = RecordSource(self._index, sampler, self._read, None)
        return RecordPipeline((source,), None, self.dtype, None, strict, writes_out=True)

    def batch(self, rows: Array, mirrored: Any, size: int) -> Array:
        """Return a batch of `size` rows, with zeros after the given rows."""
        count = len(rows)
        rows = pad_rows(rows, 0, size, 0)
        if self._collator is None:
            return rows
        flip = None
        if self._is_late_collate and mirrored is not None and mirrored.any():
            flip = {"w": np.resize(mirrored, size)}
        result: Array = self._collator(rows, flip=flip)
        result[(slice(None),) * self._batch_axis + (slice(count, None),)] = 0
        return result

    def close(self) -> None:
        """Do nothing: the provider closes the reader."""

    def _read(self, record: Record) -> tuple[Record, bytes]:
        if record.length is not None:
            url = str(record.url)
            version = self._index.file_version(url)
            data = self.reader.read(url, record.offset, record.length, version)
            image = extract_image(data)
            if image is not None:
                return record, image
        return record, self._get(record)

    def process(self, epoch: int, item: tuple[Record, bytes], out: Array) -> tuple[Array, bool]:
        """Write the row of a record; return it with its mirror flag as the target."""
        record, data = item
        try:
            cut = self.augment.cut(data, epoch, record.position or 0)
            if self._is_late_collate:
                out[...] = cut.pixels
            else:
                self.augment.finish(cut, out)
        except Exception as error:
            reason = str(error) if isinstance(error, LayoutkitError) else describe_error(error)
            raise DataError(f"{self._describe_id(record)}{reason}") from error
        return out, cut.is_mirrored

    def _describe_id(self, record: Record) -> str:
        """Return the prefix of a message with the id of a record; empty if it is unreadable."""
        try:
            url, offset = str(record.url), record.offset or 0
            data = self.reader.read(url, offset, record.length)
            header, _ = unpack_image(unpack_frames(data, url, offset))
        except (DataError, OSError):
            return ""
        return f"the image with the id {header.id}: "


def row_layout(layout: str) -> str:
    """Return the layout of one image in batches of a layout."""
    parsed = parse_layout(layout)
    if "b" not in parsed.groups:
        raise PatternError(f'layout="{layout}" has no axis b of its own; name it, as in "bchw"')
    return str(Layout(tuple(group for group in parsed.groups if group != "b"), parsed.names))


def open_records(path: Any, index: Any, listed: Any, missing: str | int) -> RangedIndex:
    """Return the index of image records; "" means no file, as in MXNet."""
    options: dict[str, Any] = {"index": index, "list": listed}
    options = {name: None if isinstance(p, str) and not p else p for name, p in options.items()}
    return open_index(check_path("path", path), kind="image", missing=missing, **options)


def record_labels(name: str, index: RangedIndex, width: Any, path: Any) -> Field:
    """Return the labels of all records; raise DataError if their number per record differs."""
    requested = check_int("label_width", width, 1)
    if not len(index):
        return label_field(name, np.zeros((0, requested)[: 1 + (requested > 1)], np.float32))
    width_ = index.label_width
    if width_ != requested:
        has = "differ in how many labels they have" if width_ is None else f"have {width_} labels"
        fix = f"give label_width={width_}" if width_ else "omit labels: label_name=None"
        raise DataError(f"label_width={requested}, but the records of {fspath(path)} {has}; {fix}")
    return label_field(name, index.label_values(np.arange(len(index))))


# The time of several images. Handing over a chunk costs a tenth of an image's time, since decoders
# evict everything else from the cache.
_CHUNK_SECONDS = 8e-3
_log = logging.getLogger("layoutkit.data")
_BATCH = 64


def load_or_compute_mean(
    path: str | PathLike[str], index: Index, plain: Augmenter, workers: int
) -> Array:
    """Return the mean image in a file; if there is none, compute it from all records and write it.

    plain : Augmenter    makes uint8 (channels, height, width) of a record's bytes

    Raises
    ------
    DataError
        The file is not a mean image, or no record can be decoded.
    OSError
        The file cannot be written.
    """
    if exists(fspath(path)):
        return read_mean(path)
    _log.info("%s does not exist; it is computed from %d images", fspath(path), len(index))
    mean = _compute_mean(index, plain, workers)
    write_mean(path, mean)
    return mean


def _compute_mean(index: Index, plain: Augmenter, workers: int) -> Array:
    """Return the mean of all decodable images, as float32."""

    def decode(data: Any, out: Array) -> Array:
        return plain(data, out)

    total, count = np.zeros(plain.shape, np.uint64), 0
    options: Any = {"input_dims": plain.shape, "dtype": np.uint8, "layout": "bchw"}
    with sampled_batcher(
        index, batch_size=_BATCH, processor=decode, num_workers=workers, progress=True, **options
    ) as batches:
        for batch in batches:
            images: Any = batch.input
            total += images.input.sum(axis=0, dtype=np.uint64)
            count += batch.count
    if not count:
        raise DataError("no image can be decoded, so there is no mean image")
    return (total / count).astype(np.float32)


_RUN = RunSpec(target=SampleSpec(np.dtype(bool), ()))  # a mirror flag
_OPTIONS = {field.name: field for field in fields(Options) if field.name != "data_shape"}


class ImageRecordProvider(BaseProvider):
    """A provider of the images in a RecordIO file, decoded and augmented on threads.

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

    Every batch has `batch_size` rows, and `count` of them are valid; padding rows and their labels
    are 0. A record that cannot be decoded is dropped, logged and counted (`dropped`); a batch
    without valid records is omitted.

    Parameters
    ----------
    path_imgrec : path or URL
        A .rec file, or several by a pattern of wildcards and braces.
    data_shape : (int, int, int)
        Channels, height and width of an image, in this order for every layout.
    batch_size : int
        The rows of every batch.
    layout, dtype
        The layout and dtype of the data: `bchw`, `bhwc`, `b(hwc)`, `chwb`; float32, float64,
        float16, bfloat16, or uint8 and int8, for which values are rounded half to even and
        clipped to the range of the dtype.
    path_imgidx : path, optional
        The .idx file with the offsets of the records; by default the one beside the .rec, if it
        exists.
    path_imglist : path, optional
        A .lst file whose labels replace the records' labels.
    label_width : int
        The number of labels of a record: batches of labels have shape (b,) for one, else
        (b, width), and dtype float32.
    shuffle, seed
        A new order each epoch, a function of `seed` and the epoch alone.
    tail : str
        "pad" fills the last batch with rows of 0, "wrap" with the epoch's first records, "drop"
        omits it. `round_batch=True` is "wrap", False is "pad".
    part_index, num_parts : int
        Only records part_index, part_index + num_parts, ... are here; parts differ by at most one.
    num_workers : int, optional
        The number of decoding threads, by default up to 4; with 0 the caller's thread decodes each
        batch when it is requested (`preprocess_threads` is an alias).
    prefetch : int
        The number of batches that threads decode ahead (`prefetch_buffer` is an alias).
    on_error : "drop" or "raise"
        Omit a record that fails, or end the loop with a DataError.
    data_name, label_name : str
        Their names; `label_name=None` omits the labels.
    seed_aug : int, optional
        The seed of random augmentation; by default `seed`. The random numbers are a function of
        this seed, the epoch and the record's position in the file. They do not depend on threads,
        parts or resuming.
    mean_img : path or array, optional
        The mean image, (channels, height, width). If the file does not exist, it is computed from
        all images without random augmentation, and written.
    missing : "error", "drop" or -1
        The handling of records whose labels are NaN: an error, omitted and counted in `skipped`, or
        with the label -1.
    **others
        Every option of `images.Augmenter`; `silent` and `verbose` control the log line
        when the file is opened.

    Raises
    ------
    DataError, ArgumentError, PatternError, DtypeError, ShapeError
        A file cannot be read or an argument is invalid. Raised at once.
    TypeError
        A keyword is unknown; the message names the nearest one.
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
        missing: str | int = "error",
        **others: Any,
    ) -> None:
        options = {name: others.pop(name) for name in (*others,) if name in _OPTIONS}
        verbose, arguments = file_arguments(
            ImageRecordProvider, others, (data_name, label_name), (part_index, num_parts),
            tail=tail, num_workers=num_workers, prefetch=prefetch,
        )  # fmt: skip
        workers, _ = parse_workers(arguments.pop("num_workers"))
        strict = check_choice("on_error", on_error, ("drop", "raise")) == "raise"
        row = row_layout(layout)
        common = {**options, "seed": seed if seed_aug is None else seed_aug}
        augment = Augmenter(data_shape, layout=row, dtype=dtype, **common)
        check_missing(missing)
        index = open_records(
            path_imgrec, path_imgidx, path_imglist, -1 if label_name is None else missing
        )
        if isinstance(mean_img, str | PathLike):
            plain = augment.unaugmented()
            mean_img = (
                load_or_compute_mean(mean_img, index, plain, workers) if fspath(mean_img) else None
            )
        if mean_img is not None:
            augment = Augmenter(data_shape, layout=row, dtype=dtype, mean_img=mean_img, **common)
        labels = (
            []
            if label_name is None
            else [record_labels(label_name, index, label_width, path_imgrec)]
        )
        rows: Any = ImageRows(data_name, layout, augment, index)
        self._rows: ImageRows = rows
        self._strict, self._num_workers = strict, workers
        super().__init__(
            [rows], labels, len(index), batch_size=batch_size, shuffle=shuffle, seed=seed,
            **arguments,
        )  # fmt: skip
        self._skipped = index.skipped
        log_opened(
            verbose, "%s: %d records, %d of them here", path_imgrec, len(index), self._samples
        )

    def __reduce__(self) -> Any:
        raise DataError(
            "an ImageRecordProvider has threads, which cannot be copied or sent to another "
            "process; make one there, with a part_index of its own"
        )

    # -- loops -----------------------------------------------------------------------------

    def _make_config(self) -> LoaderConfig:
        pipeline = self._rows.pipeline(self._make_sampler(), self._strict)
        dims = self._rows.dims
        return LoaderConfig(
            sources=pipeline.sources,
            pipeline=pipeline,
            reader=self._rows.reader,
            length=EpochLength(self._size),
            prefetch=self._prefetch,
            num_workers=self._num_workers,
            dims=lambda _: dims,
            chunk_seconds=_CHUNK_SECONDS,
        )

    def _begin_pass(self, epoch: int, position: Position) -> EpochPass:
        process = partial(self._rows.process, epoch)
        pipeline = replace(self._config.pipeline, processor=process)
        config = replace(self._config, pipeline=pipeline)
        return EpochPass(config, self._worker_pool(), epoch, position._replace(run=_RUN))

    def _split(self, pending: Any) -> list[tuple[ProviderBatch, int]]:
        size, start, taken = self._size, pending.start, pending.num_taken
        rows = pending.kept_indices()
        num_valid = min(size, self._samples - start)  # the other rows repeat the first ones
        dropped = [item for item in pending.dropped() if item[1] < start + num_valid]
        numbers = pending.numbers[0][rows]
        label = tuple(column.view(column.rows(numbers, size)) for column in self._label)
        data = self._rows.view(self._rows.batch(pending.input, pending.target, size))
        count = int(np.count_nonzero(rows < num_valid))
        batch = ProviderBatch(count, (data,), label, dropped, pending.stats)
        return [(batch, start + taken)]

    # -- states ----------------------------------------------------------------------------

    def _identity(self) -> dict[str, int | str]:
        return {**super()._identity(), "seed_aug": self._rows.augment.seed}

    def _resume_info(self, position: Position) -> dict[str, int | str]:
        return {**super()._resume_info(position), "dropped": position.at_start().dropped}


def _signature() -> inspect.Signature:
    """Return the signature of the class, with the options of the Augmenter listed."""
    own = inspect.signature(ImageRecordProvider.__init__)
    _, *parameters = own.parameters.values()
    last = parameters.pop()
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, kind, default=field.default, annotation=field.type)
        for name, field in _OPTIONS.items()
        if name not in own.parameters
    ]
    return own.replace(parameters=[*parameters, *more, last])


ImageRecordProvider.__signature__ = _signature()  # type: ignore[attr-defined]
