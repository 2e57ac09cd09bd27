"""`layoutkit batches`: labelled photographs become batches, and the time that each stage takes.

Knows the public names of `layoutkit.data` and nothing behind them.

Where the time of making batches goes.

Knows the clock and the stats of batches; knows nothing of what is done in a stage.

A `.npz` file of batches joined along their batch axis, written as they come.

How many samples there will be is known at the end only, and an array's file begins with its
shape. So batches wait in a file without a name beside the result, and are copied into their
place when the last one is there. No more than a batch is ever in memory.
"""

from __future__ import annotations

import logging
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np

from .._utils.files import replacing, resolved
from ..converter import Converter
from ..data import Batch, Batcher, Index, Record, open_index, sampled_batcher, sampler
from ..data.formats import CONTAINERS, TABLES, container_of
from ..errors import ArgumentError, DataError
from ..images import Decoder
from ..layout.pattern import parse_pattern
from ..memory import Array
from ..spec import ArraySpec
from ..views import ClassView
from .inputs import Pictures, allowing
from .outputs import check_destination, npy_header
from .printing import as_options, printable
from .streaming import check_sign


class Tally:
    """What came, and the seconds that each stage took.

    threads : bool      records are got and decoded on threads, beside the other stages; their
                        seconds are summed up, and can be more than have passed
    """

    def __init__(self, threads: bool) -> None:
        self.threads = threads
        self.batches = self.records = 0
        self.seconds = {"get": 0.0, "decode, resize": 0.0, "wait": 0.0, "convert": 0.0}
        self.elapsed = 0.0
        self.first_batch = ""

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Count the seconds of the block."""
        began = perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - began

    def add(self, batch: Batch) -> None:
        """Count a batch, with what its stats say."""
        get, process, wait = (batch.stats[name] for name in ("get", "process", "wait"))
        self.batches += 1
        self.records += batch.count
        self.seconds["get"] += get
        self.seconds["decode, resize"] += process
        # Without threads, whoever waits for a batch makes it.
        self.seconds["wait"] += wait if self.threads else max(0.0, wait - get - process)

    def report(self, name: str, dropped: int) -> None:
        """Print it as a table."""
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        records = "1 record" if self.records == 1 else f"{self.records} records"
        print(f"{printable(name)}: {records} in {batches}, {dropped} left out")
        print(f"first batch: {self.first_batch}")
        print(f"{self.records / self.elapsed:,.0f} records/s in {self.elapsed:.2f} s\n")
        print(f"{'stage':16}{'seconds':>9}{'share':>8}")
        for stage, seconds in self.seconds.items():
            beside = self.threads and stage in ("get", "decode, resize")
            where = "   on threads" if beside else ""
            print(f"{stage:16}{seconds:9.3f}{seconds / self.elapsed:8.0%}{where}")


# How much is rearranged at once where the batch axis is not the first one.
_WINDOW_BYTES = 64 << 20


class JoinedBatches:
    """Batches of one dtype, whose shapes differ along one axis only.

    Parameters
    ----------
    file : file
        Where the batches wait, from its beginning on; it needs room for all of them.
    axis : int
        The axis along which they are joined.
    """

    def __init__(self, file: BinaryIO, axis: int) -> None:
        self._file, self._axis = file, axis
        self._shapes: list[tuple[int, ...]] = []
        self._dtype = np.dtype(np.uint8)

    def add(self, batch: Array) -> None:
        """Append a contiguous batch; DtypeError for a dtype that files have no name for."""
        if not self._shapes:
            npy_header(batch.shape, batch.dtype)
            self._dtype = batch.dtype
        self._shapes.append(batch.shape)
        self._file.write(batch.reshape(-1).view(np.uint8).data)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all batches together."""
        first, axis = self._shapes[0], self._axis
        return (*first[:axis], sum(shape[axis] for shape in self._shapes), *first[axis + 1 :])

    def write(self, file: Any) -> None:
        """Write all batches as one array in the `.npy` format."""
        file.write(npy_header(self.shape, self._dtype))
        if self._axis == 0:
            self._file.seek(0)
            shutil.copyfileobj(self._file, file, _WINDOW_BYTES)
            return
        for block in self._blocks():
            file.write(block.data)

    def _blocks(self) -> Iterator[Array]:
        """The joined array, some of its outermost rows at a time."""
        rows = int(np.prod(self.shape[: self._axis]))
        sizes = [int(np.prod(shape)) * self._dtype.itemsize for shape in self._shapes]
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        step = max(1, _WINDOW_BYTES * rows // max(1, sum(sizes)))
        for first in range(0, rows, step):
            count = min(step, rows - first)
            parts = zip(starts, [size // rows for size in sizes], strict=True)
            block = [self._rows(start + first * width, count, width) for start, width in parts]
            yield np.concatenate(block, axis=1)

    def _rows(self, start: int, count: int, width: int) -> Array:
        """Bytes of one batch, in rows. Read, as what is mapped would count as our memory."""
        self._file.seek(start)
        return np.frombuffer(self._file.read(count * width), np.uint8).reshape(count, width)


def write_npz(file: BinaryIO, joined: JoinedBatches, arrays: dict[str, Array]) -> None:
    """Write the joined batches as `input`, and other arrays under their names, uncompressed."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("input.npy", "w", force_zip64=True) as member:
            joined.write(member)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


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
