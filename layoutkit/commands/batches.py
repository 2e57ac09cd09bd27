"""`layoutkit batches`: labelled photographs become batches, and the time that each stage takes.

Knows the public names of `layoutkit.data` and nothing behind them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any

import numpy as np

from ..atomic import replacing, resolved
from ..axes import parse_pattern
from ..converter import Converter
from ..data import Batch, Batcher, Index, Record, open_index, sampled_batcher, sampler
from ..data.formats import CONTAINERS, TABLES, container_of
from ..errors import ArgumentError, DataError
from ..memory import Array
from ..pictures import Decoder
from ..spec import ArraySpec
from ..views import ClassView
from .destinations import check_destination
from .images import Pictures, allowing
from .npzfiles import JoinedBatches, write_npz
from .printing import as_options, printable
from .streaming import check_sign
from .tally import Tally

__all__ = ["BatchesRequest", "make_batches"]

_SIZE = 224, 224
_KINDS = ("directory", *(suffix[1:] for suffix in TABLES), *CONTAINERS.values())
_PATTERN = set("*?[{")  # what makes a name that of several files


@dataclass(frozen=True)
class BatchesRequest:
    """What the command was asked for; `options` are a Converter's keywords."""

    source: str
    to: str
    options: Mapping[str, Any]
    pictures: Pictures
    sampler: str
    batch_size: int
    seed: int
    epoch: int
    partition: tuple[int, int]
    workers: int | None
    limit: int | None
    save: Path | None
    preview: Path | None

    def converter(self) -> Converter:
        """From decoded pictures to what was asked for."""
        return Converter(f"bhwc->{self.to}", **self.options)

    @cached_property
    def decoder(self) -> Decoder:
        """From the bytes of a file to its pixels."""
        return self.pictures.decoder("cover") or Decoder(_SIZE)

    @property
    def axis(self) -> int:
        """Where the batches' axis `b` is; ArgumentError where it is folded into another."""
        groups = parse_pattern(f"bhwc->{self.to}").target.groups
        if "b" not in groups:
            raise ArgumentError(f"--to {self.to}: batches need b as an axis of its own, as in bchw")
        return groups.index("b")


def make_batches(request: BatchesRequest) -> None:
    """Go through an epoch, write what was asked for, and print what it took.

    Nothing is read before the request is known to make sense, and files appear when they are
    complete.
    """
    converter, axis = request.converter(), request.axis
    _check_sign(converter, request)
    for path, suffix in ((request.save, ".npz"), (request.preview, ".png")):
        if path is not None:
            check_destination([request.source], path, suffix)
    with ExitStack() as stack:
        stack.enter_context(allowing(request.pictures.max_pixels))
        batcher = stack.enter_context(_batcher(request, _index(request)))
        stack.enter_context(_naming_drops())
        _warm(converter, request)
        tally = Tally(threads=request.workers != 0)
        began = perf_counter()
        with ExitStack() as files:
            saved = files.enter_context(_saving(request, axis))
            for batch in batcher:
                _take(batch, converter, saved, tally, request)
            _check_any(tally, request)
            if saved is not None:
                with tally.timing("save"):
                    files.close()
        tally.elapsed = perf_counter() - began
    tally.report(request.source, batcher.dropped)
    for path in (request.save, request.preview):
        if path is not None:
            print(f"written: {printable(path)}")


def _check_sign(converter: Converter, request: BatchesRequest) -> None:
    pictures = ArraySpec("bhwc", (1, *request.decoder.input_dims), np.dtype(np.uint8))
    check_sign(pictures.dtype, converter.resolve(pictures).dtype, "int16 holds them")


def _index(request: BatchesRequest) -> Index:
    """The photographs; an error where there are none."""
    source, (partition, partitions) = request.source, request.partition
    several = container_of(source) is not None and _PATTERN & set(source)
    if "://" not in source and not several and not Path(source).exists():
        raise ArgumentError(f"{source}: no such folder or file; check the path")
    if Path(source).exists() and not (Path(source).is_dir() or Path(source).is_file()):
        raise ArgumentError(f"{source}: is neither a folder nor a file; give one of these")
    index: Index = open_index(source, partition=partition, partitions=partitions)
    if index.kind not in _KINDS:
        raise ArgumentError(
            f"{source}: photographs come from a folder, from a {' or '.join(TABLES)} file that "
            f"names them, or from a {', '.join(CONTAINERS)} file that has them"
        )
    if not len(index):
        where = f" in partition {partition}/{partitions}" if partitions > 1 else ""
        raise ArgumentError(f"{source}: there are no files{where}")
    return index


def _batcher(request: BatchesRequest, index: Index) -> Batcher:
    size = request.batch_size
    order = sampler(request.sampler, index, batch_size=size, seed=request.seed)
    limit, whole = request.limit, order.num_batches or 0
    return sampled_batcher(
        index,
        batch_size=size,
        sampler=request.sampler,
        num_batches=None if limit is None else min(limit, whole),
        seed=request.seed,
        epoch=request.epoch,
        processor=request.decoder,
        input_dims=request.decoder.input_dims,
        dtype=np.uint8,
        layout="bhwc",
        num_workers=request.workers,
        progress=sys.stderr.isatty(),
    )


def _warm(converter: Converter, request: BatchesRequest) -> None:
    """Load the kernel and its memory, which later batches use again, before the clock starts."""
    converter(np.zeros((request.batch_size, *request.decoder.input_dims), np.uint8))


def _take(
    batch: Batch, converter: Converter, saved: _Saved | None, tally: Tally, request: BatchesRequest
) -> None:
    """Convert a batch and write what is to be written of it."""
    tally.add(batch)
    if not batch.count or batch.input is None:
        return
    with tally.timing("convert"):
        result = converter(batch.input.forward_get("bhwc"))
    if tally.records == batch.count:
        tally.first_batch = f"{request.to} {result.shape} {result.dtype}"
        if request.preview is not None:
            with tally.timing("preview"):
                _preview(batch, request, request.preview)
    if saved is not None:
        with tally.timing("save"):
            saved.add(batch, result)


def _check_any(tally: Tally, request: BatchesRequest) -> None:
    if not tally.records:
        raise DataError(
            f"{request.source}: the epoch of this sampler has no batches; take a smaller "
            f"--batch-size than {request.batch_size}, or another sampler"
        )


# ---- Files -----------------------------------------------------------------------------------


class _Saved:
    """What `--save` writes: the batches joined, and their targets and names."""

    def __init__(self, joined: JoinedBatches) -> None:
        self._joined = joined
        self._targets: list[Array] = []
        self._names: list[str] = []
        self._classes: list[Any] = []

    def add(self, batch: Batch, result: Array) -> None:
        self._joined.add(result)
        self._names += [_name(record) for record in batch.item]
        if batch.target is not None:
            self._targets.append(batch.target.input)
            self._classes = list(getattr(batch.target, "classes", None) or ())

    def write(self, file: Any) -> None:
        arrays = {"name": np.array(self._names)}
        if self._targets:
            arrays["target"] = np.concatenate(self._targets)
            if self._classes:
                arrays["classes"] = np.array(self._classes)
        write_npz(file, self._joined, arrays)


def _name(record: Record) -> str:
    """The file of a record; in a container, its number there, too."""
    name = str(record.url)
    return name if container_of(name) is None else f"{name}#{record.position}"


def _label(record: Record) -> str:
    if record.label is not None:
        return str(record.label)
    return ", ".join(f"{each:g}" for each in record.labels) or "(no label)"


@contextmanager
def _saving(request: BatchesRequest, axis: int) -> Iterator[_Saved | None]:
    """What takes the batches that are saved; the file is there when the block has ended well."""
    path = request.save
    if path is None:
        yield None
        return
    folder = resolved(path).parent
    with _becoming(path), replacing(path) as file, TemporaryFile(dir=folder) as waiting:
        saved = _Saved(JoinedBatches(waiting, axis))
        yield saved
        saved.write(file)


@contextmanager
def _becoming(path: Path) -> Iterator[None]:
    """Name `path` in errors of a file without a name, which cannot say what it was to become."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error


def _preview(batch: Batch, request: BatchesRequest, path: Path) -> None:
    """Draw the pictures of a batch as they were decoded, before layout and formula."""
    # Here, as few ask for a picture of a batch.
    from .contactsheet import MOST_PICTURES, Caption, contact_sheet

    classes = isinstance(batch.target, ClassView)
    ranks = batch.target.input.tolist() if classes else [-1] * batch.count  # type: ignore[union-attr]
    names = [_name(record).rpartition("/")[2] for record in batch.item]
    labels = [_label(record) for record in batch.item]
    captions = [Caption(*parts) for parts in zip(labels, names, ranks, strict=True)]
    shown = min(batch.count, MOST_PICTURES)
    of = f" of {batch.count}" if shown < batch.count else ""
    title = f"{request.source}: {shown}{of} pictures, {request.sampler}, epoch {request.epoch}"
    sheet = contact_sheet(batch.input.input, captions, title)  # type: ignore[union-attr]
    with _becoming(path), replacing(path) as file:
        sheet.save(file, "PNG")


# ---- What is said ----------------------------------------------------------------------------


class _Lines(logging.Handler):
    """Warnings as lines on stderr that leave a progress bar whole."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm  # not needed to refuse a request

        words = printable(as_options(record.getMessage()))
        tqdm.write(f"layoutkit: {words}", file=sys.stderr)


@contextmanager
def _naming_drops() -> Iterator[None]:
    """Let stderr have a line for each record that is left out."""
    log, handler = logging.getLogger("layoutkit.data"), _Lines()
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(handler)
