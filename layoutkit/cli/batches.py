"""`layoutkit batches`: convert labeled images to batches and measure the time of each stage.

Uses only the public names of `layoutkit.data`. `StageTimes` sums up the seconds of each stage.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from .._utils.errors import name_in_errors
from .._utils.files import replace_atomically
from .._utils.validation import escape_controls
from ..collator import Collator
from ..converter import Converter
from ..data import Batch, Batcher, Index, Record, mix, open_index, sampled_batcher, sampler
from ..data.formats import FORMATS, container_kind, is_image_name
from ..data.io.filesystem import has_wildcards
from ..errors import ArgumentError, DataError, LayoutkitError
from ..images import Decoder, Reader
from ..spec import ArraySpec
from ..views import ClassView
from .inputs import ImageOptions, pixel_limit, sources_label
from .outputs import check_destination
from .parser import IMAGE_SIZE
from .printing import keywords_to_options
from .streaming import check_sign


class StageTimes:
    """Counts of batches and records, and the seconds of the stages after the Batcher."""

    def __init__(self) -> None:
        self.batches = self.records = 0
        self.seconds: dict[str, float] = {}
        self.elapsed = 0.0
        self.first_batch = ""

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add the seconds of the block to a stage."""
        start = perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - start

    def add(self, batch: Batch) -> None:
        self.batches += 1
        self.records += batch.count

    def report(self, name: str, batcher: Batcher) -> None:
        """Print the counts, and the seconds of all stages as a table."""
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        records = "1 record" if self.records == 1 else f"{self.records} records"
        print(f"{escape_controls(name)}: {records} in {batches}, {batcher.dropped} left out")
        print(f"first batch: {self.first_batch}")
        print(f"{self.records / self.elapsed:,.0f} records/s in {self.elapsed:.2f} s\n")
        print(f"{'stage':16}{'seconds':>9}{'share':>8}")
        stats = batcher.stats()
        loading = {"get": stats.get, "decode": stats.process, "resize": stats.collate}
        for stage, seconds in {**loading, "wait": stats.wait, **self.seconds}.items():
            where = "   on threads" if stats.threads and stage in loading else ""
            print(f"{stage:16}{seconds:9.3f}{seconds / self.elapsed:8.0%}{where}")


_REPEATS = 16


def _print_ceiling(batcher: Batcher, converter: Converter | None) -> None:
    """Print the records per second of one batch that is read again and again."""
    records = 0
    start = perf_counter()
    for batch in batcher.repeated(_REPEATS):
        if not records:  # the batch is loaded
            start = perf_counter()
        if converter is not None:
            converter(batch.input.input)
        records += batch.count
    seconds = perf_counter() - start
    done = "" if converter is None else " and converted"
    print(f"\n{records / seconds:,.0f} records/s if one batch is read{done} again and again")


_KINDS_WITHOUT_FILES = ("items", "parts", "tensor", "zarr")


@dataclass(frozen=True)
class BatchesRequest:
    """The arguments of `layoutkit batches`."""

    sources: Sequence[str]
    to: str | None  # None: the layout of the images
    options: Mapping[str, Any]  # keywords of a Converter
    collator: Collator | None  # of --options: it makes the batches, and no Converter follows
    image_options: ImageOptions
    sampler: str | None  # None: "linear", or "weighted" if there are weights
    weights: Mapping[str, float] | None
    mix: float | Sequence[float] | None
    on_end: str | None
    batch_size: int
    seed: int | None
    epoch: int
    partition: tuple[int, int]
    columns: Mapping[str, Any] | None
    missing: str
    workers: int | None
    limit: int | None
    profile: bool
    preview: Path | None

    def converter(self) -> Converter | None:
        """Return the converter from decoded images to the requested layout and dtype."""
        layout = self.image_options.layout
        return (
            None if self.collator else Converter(f"{layout}->{self.to or layout}", **self.options)
        )

    @property
    def order(self) -> str:
        """The name of the order of the records."""
        return self.sampler or ("linear" if self.weights is None else "weighted")

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder from the bytes of a file to its pixels."""
        return self.image_options.decoder("cover") or Decoder(IMAGE_SIZE)

    @property
    def processing(self) -> dict[str, Any]:
        """The arguments of `sampled_batcher` that make batches of the bytes of images."""
        if self.collator is not None:
            reader = self.image_options.reader
            own = {} if reader == Reader() else {"processor": reader}
            return {"collate": self.collator, **own}
        dims, layout = self.decoder.input_dims, self.image_options.layout
        return {
            "processor": self.decoder, "input_dims": dims, "dtype": np.uint8, "layout": layout
        }  # fmt: skip


def run_batches(request: BatchesRequest) -> None:
    """Run through an epoch, draw the preview, and print the times.

    The arguments are validated before any data is read.
    """
    converter = request.converter()
    _check_sign(converter, request)
    if request.preview is not None:
        check_destination(request.sources, request.preview, ".png")
    with ExitStack() as stack:
        stack.enter_context(pixel_limit(request.image_options.max_pixels))
        batcher = stack.enter_context(_make_batcher(request, _open_index(request)))
        stack.enter_context(_log_dropped_records())
        _warm_up(converter, request)
        times = StageTimes()
        start = perf_counter()
        for batch in batcher:
            _process_batch(batch, converter, times, request)
        _check_not_empty(times, request)
        times.elapsed = perf_counter() - start
        times.report(sources_label(request.sources), batcher)
        if request.profile:
            _print_ceiling(batcher, converter)
    if request.preview is not None:
        print(f"written: {escape_controls(request.preview)}")


def _check_sign(converter: Converter | None, request: BatchesRequest) -> None:
    pixel = np.dtype(np.uint8)
    if converter is not None:
        images = ArraySpec(request.image_options.layout, (1, *request.decoder.input_dims), pixel)
        target = converter.infer_spec(images).dtype
    else:
        collator: Any = request.collator
        target = collator.windows.convert.target_dtype(pixel, None)
    check_sign(pixel, target, "int16 holds them")


def _open_index(request: BatchesRequest) -> Index:
    """Return the index of the images of all sources; raise ArgumentError if there are none."""
    if request.mix is None:
        if request.on_end is not None:
            raise ArgumentError("--on-end: applies only to a mixture; give --mix, too")
        if len(request.sources) > 1:
            raise ArgumentError(
                f"batches got {len(request.sources)} SRC; give one, or the share of each, as in "
                f"--mix {','.join('1' * len(request.sources))}"
            )
        return _open_source(request.sources[0], request)
    weights = [request.mix] if isinstance(request.mix, float) else request.mix
    if len(weights) != len(request.sources):
        raise ArgumentError(
            f"--mix has {len(weights)} weights for {len(request.sources)} SRC; give one for each"
        )
    opened = [_open_source(source, request) for source in request.sources]
    return mix([*zip(opened, weights, strict=True)], on_end=request.on_end or "stop")


def _open_source(source: str, request: BatchesRequest) -> Index:
    (partition, partitions) = request.partition
    has_kind = container_kind(source) is not None or is_image_name(source)
    is_glob = has_kind and (has_wildcards(source) or "{" in source)
    if "://" not in source and not is_glob and not Path(source).exists():
        raise ArgumentError(f"{source}: no such folder or file; check the path")
    if Path(source).exists() and not (Path(source).is_dir() or Path(source).is_file()):
        raise ArgumentError(f"{source}: is neither a folder nor a file; give one of these")
    index: Index = open_index(
        source,
        partition=partition,
        partitions=partitions,
        columns=request.columns,
        missing=-1 if request.missing == "-1" else request.missing,
    )
    if index.kind in _KINDS_WITHOUT_FILES:
        tables = [f".{name}" for name, row in FORMATS.rows.items() if row.delimiter]
        containers = [f".{name}" for name, row in FORMATS.rows.items() if row.is_container]
        raise ArgumentError(
            f"{source}: images come from a folder or glob, from a "
            f"{' or '.join(tables)} file that names them, or from a "
            f"{', '.join(containers)} file that has them"
        )
    if not len(index):
        where = f" in partition {partition}/{partitions}" if partitions > 1 else ""
        raise ArgumentError(f"{source}: there are no files{where}")
    return index


def _make_batcher(request: BatchesRequest, index: Index) -> Batcher:
    size = request.batch_size
    weights = None if request.weights is None else _weights_by_label(index, request.weights)
    seed = request.seed or 0
    order = sampler(request.order, index, batch_size=size, seed=seed, weights=weights)
    limit = request.limit
    epoch_batches = order.num_batches or 0
    return sampled_batcher(
        index,
        batch_size=size,
        sampler=request.order,
        weights=weights,
        num_batches=None if limit is None else min(limit, epoch_batches),
        seed=request.seed,
        epoch=request.epoch,
        **request.processing,
        num_workers=request.workers,
        progress=sys.stderr.isatty(),
    )


def _weights_by_label(index: Index, weights: Mapping[str, float]) -> dict[Any, float]:
    """Return the weights by the labels of an index, which may be numbers."""
    labels = {str(label): label for label in index.labels}
    return {labels.get(name, name): weight for name, weight in weights.items()}


def _warm_up(converter: Converter | None, request: BatchesRequest) -> None:
    """Load the kernel and allocate the memory that later batches reuse, before the clock starts."""
    if converter is not None:
        converter(np.zeros((request.batch_size, *request.decoder.input_dims), np.uint8))
    elif request.collator is not None:
        sizes = request.collator.windows.convert.sizes
        image = np.zeros((sizes.get("h", 224), sizes.get("w", 224), 3), np.uint8)
        with suppress(LayoutkitError):  # images of other sizes may fit
            request.collator([image] * request.batch_size)


def _process_batch(
    batch: Batch, converter: Converter | None, times: StageTimes, request: BatchesRequest
) -> None:
    """Convert a batch, and preview the first one if requested."""
    times.add(batch)
    if not batch.count or batch.input is None:
        return
    layout, result = batch.input.layout, batch.input.input
    if converter is not None:
        with times.timing("convert"):
            layout, result = str(converter.options.pattern.right), converter(result)
    if times.records == batch.count:
        times.first_batch = f"{layout} {result.shape} {result.dtype}"
        if request.preview is not None:
            with times.timing("preview"):
                _draw_preview(batch, request, request.preview)


def _check_not_empty(times: StageTimes, request: BatchesRequest) -> None:
    if not times.records:
        raise DataError(
            f"{sources_label(request.sources)}: the epoch of this sampler has no batches; use a "
            f"smaller --batch-size than {request.batch_size}, or another sampler"
        )


# ---- The preview -------------------------------------------------------------------------------


def _record_name(record: Record) -> str:
    """Return the file name of a record; for a container also the record's position in it."""
    name = str(record.url)
    return name if container_kind(name) is None else f"{name}#{record.position}"


def _record_label(record: Record) -> str:
    if record.label is not None:
        return str(record.label)
    return ", ".join(f"{label:g}" for label in record.labels) or "(no label)"


def _draw_preview(batch: Batch, request: BatchesRequest, path: Path) -> None:
    """Draw the images of a batch as they were decoded, before layout and formula."""
    # Imported here because most runs have no preview.
    from .contactsheet import MAX_IMAGES, Caption, contact_sheet

    classes = isinstance(batch.target, ClassView)
    ranks = batch.target.input.tolist() if classes else [-1] * batch.count
    names = [_record_name(record).rpartition("/")[2] for record in batch.item]
    labels = [_record_label(record) for record in batch.item]
    captions = [Caption(*parts) for parts in zip(labels, names, ranks, strict=True)]
    shown = min(batch.count, MAX_IMAGES)
    total = f" of {batch.count}" if shown < batch.count else ""
    name = sources_label(request.sources)
    title = f"{name}: {shown}{total} images, {request.order}, epoch {request.epoch}"
    sheet = contact_sheet(batch.input.input, captions, title)
    with name_in_errors(path), replace_atomically(path) as file:
        sheet.save(file, "PNG")


# ---- Messages --------------------------------------------------------------------------------


class _StderrHandler(logging.Handler):
    """A logging handler that prints warnings on stderr without breaking a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm  # slow import, not needed to reject invalid arguments

        message = escape_controls(keywords_to_options(record.getMessage()))
        tqdm.write(f"layoutkit: {message}", file=sys.stderr)


@contextmanager
def _log_dropped_records() -> Iterator[None]:
    """Print a line on stderr for each record that is dropped."""
    log = logging.getLogger("layoutkit.data")
    handler = _StderrHandler()
    previous = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = previous
        log.removeHandler(handler)
