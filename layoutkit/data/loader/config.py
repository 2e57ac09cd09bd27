"""`LoaderConfig`, the checked configuration of a Batcher, and the parts that it consists of."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import compress, count
from typing import Any

from ..._utils import system
from ..._utils.errors import prefix_errors
from ..._utils.validation import check_int, show
from ..._utils.warnings import warn
from ...errors import DataError
from ..errors import NoSuchArgument
from ..formats import FIELD_PAIRS
from ..io.cache import DiskCache
from ..io.ram_cache import RamCache
from ..io.reader import Reader
from ..labels import check_missing
from ..samplers import Sampler
from ..sources import Index, StreamIndex, are_several, open_index
from ..sources.base import Partition
from ..sources.files import FilesIndex
from ..sources.items import ItemProcessor
from .chunk import RecordPipeline, RecordSource
from .collate import BatchStep, CollateStep, MultiCollateStep
from .distributed import Shard, parse_shard
from .epochs import EpochLength
from .jpeg_rows import RowDecoder
from .kept_records import BatcherCache, KeptRecords
from .processing import Processing, Shape, split_resizing

_MAX_WORKERS = 4  # threads by default
_MOST_WORKERS = 4096  # threads that a caller may ask for; each has a stack
CACHE_SIZE = 10 * 2**30  # bytes of files in `cache_dir`, by default
# Bases of samplers whose order depends on the batch size.
_SLICED = ("batchwise_shuffled_sequential", "random_slice")


@dataclass(frozen=True)
class LoaderConfig:
    """The checked configuration of a Batcher, or of another BatchLoop."""

    sources: tuple[RecordSource, ...]  # the first one decides the epoch, labels and targets
    pipeline: RecordPipeline  # the steps of each record
    reader: Reader  # of the bytes of files, which the loop closes
    length: EpochLength  # of an epoch, and the part of it that belongs to this process
    prefetch: int  # batches started ahead of the one yielded last
    num_workers: int  # threads; 0: the caller's thread does all work
    # Returns the shape of a row in batch k, None if the results decide.
    dims: Callable[[int], Shape | None] = lambda _: None
    factories: Any = None  # Factories of a batch's arrays; None: the loop makes the Views
    pixels: Any = None  # PixelOptions of a Batcher, which states store
    cache: BatcherCache | None = None  # keeps records in memory
    progress: bool = False  # show a progress bar
    chunk_seconds: float | None = None  # in which a thread draws records that are all expensive

    @property
    def has_one_spec(self) -> bool:
        """True if the first batch decides the shape and dtype of all records.

        Batches of one record, and batches of a sampler by length, decide for themselves.
        """
        is_by_length = any(source.sampler.plan.base == "even_sequences" for source in self.sources)
        has_equal_rows = self.pipeline.processor is None and self.sources[0].direct
        return self.length.batch_size > 1 and not is_by_length and not has_equal_rows

    @property
    def identity(self) -> dict[str, int | str]:
        """The entries of a state that must be equal for loading it."""
        plans = [source.sampler.plan for source in self.sources]
        return {
            "kind": "+".join(plan.kind for plan in plans),
            "seed": "+".join(str(plan.seed) for plan in plans) if len(plans) > 1 else plans[0].seed,
            "batch_size": self.length.batch_size,
            "partition": plans[0].partition,
        }

    @property
    def allows_other_batch_size(self) -> bool:
        """True if a state of another batch size can be loaded: the order does not depend on it."""
        plans = [source.sampler.plan for source in self.sources]
        return self.length.shard is not None and not any(plan.base in _SLICED for plan in plans)


def open_indexes(sources: Any, missing: Any) -> list[Index]:
    """Return the index of each source; raise DataError for a source that cannot be opened."""
    several = sources if are_several(sources) else [sources]
    return [_open_or_take(source, missing) for source in several]


def prepare_streams(
    indexes: Sequence[Index], shuffle: Any, shard: Any
) -> tuple[list[Index], Shard | None]:
    """Return the indexes, with the buffer and the rank of a stream, and the shard of the others.

    Each rank gets one record of every round of `world` records, as a partition of the stream.
    """
    part = parse_shard(shard)
    streams = [index for index in indexes if isinstance(index, StreamIndex)]
    if not streams:
        if shuffle is not None:
            raise NoSuchArgument(
                "shuffle= is the number of records in the buffer of a stream, but the records of "
                f'{indexes[0]!r} have numbers; give sampler="shuffle", each record once in random '
                "order"
            )
        return [*indexes], part
    if len(indexes) > 1:
        raise DataError(
            f"{streams[0]!r} is one of {len(indexes)} sources, but nothing is known of its end; "
            "join the records in the iterator, which may yield dicts of fields"
        )
    size = 0 if shuffle is None else check_int("shuffle", shuffle)
    return [streams[0].with_options(size, part and Partition(*part))], None


def find_field_names(sources: Any, fields: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return the keys of a dict of sources, one for each field; None for other sources."""
    if fields is None or not isinstance(sources, Mapping):
        return None
    is_one = len(sources) == 1 or any(x in sources for x, _ in FIELD_PAIRS)
    if is_one and not {*fields} <= {*sources}:  # a function returns the fields
        return None
    if unequal := [name for name in (*sources, *fields) if (name in sources) != (name in fields)]:
        raise DataError(
            f"sources has the keys {', '.join(map(str, sources))}, but collate= has the fields "
            f"{', '.join(fields)}; give equal keys in place of {', '.join(map(repr, unequal))}. A "
            'source with labels is a field such as {"image": {"x": paths, "y": labels}, ...}'
        )
    return (*sources,)


def open_fields(sources: Mapping[str, Any], missing: Any) -> list[Index]:
    """Return the index of each source of a dict; raise DataError for one that is several."""
    indexes = []
    for name, source in sources.items():
        with prefix_errors(f"field {name}: ", DataError):
            indexes.append(_open_or_take(source, missing))
    _check_stems(dict(zip(sources, indexes, strict=True)))
    return indexes


def _check_stems(indexes: Mapping[str, Index]) -> None:
    """Warn if files of two fields that have equal names are in different places.

    Fields without a common name, such as `a.jpg` and `a_mask.png`, are not compared.
    """
    stems = {name: index.stems for name, index in indexes.items() if isinstance(index, FilesIndex)}
    (first, own), *others = stems.items() or [("", [])]
    for name, other in others:
        pairs = enumerate(zip(own, other, strict=False))
        number, pair = next((item for item in pairs if item[1][0] != item[1][1]), (0, None))
        if pair is not None and not {*own}.isdisjoint(other):
            warn(
                f"record {number} is {pair[0]!r} of the field {first}, but {pair[1]!r} of {name}, "
                "and other files have equal names; record i of all fields is one record: give "
                "lists of paths in one order"
            )


def _open_or_take(source: Any, missing: Any) -> Index:
    if not isinstance(source, Index):
        return open_index(source, missing=missing)
    if check_missing(missing) != "error":
        raise DataError(
            f"missing={show(missing)}, but the source is an Index, "
            "whose labels have been read; give it to open_index"
        )
    return source


def make_sources(
    indexes: Sequence[Index],
    samplers: Sequence[Sampler],
    getters: Sequence[Any],
    reader: Reader,
    decoders: Sequence[Any] = (),
    cache: BatcherCache | None = None,
) -> tuple[RecordSource, ...]:
    """Return the sources of records, which decode and keep them if there is a cache."""
    if cache is None:
        return tuple(
            RecordSource(index, sampler, getter, index.getter(reader))
            for index, sampler, getter in zip(indexes, samplers, getters, strict=True)
        )
    columns = zip(
        indexes, samplers, getters, map(split_resizing, decoders), cache.records, strict=True
    )
    return tuple(
        RecordSource(
            index, sampler, getter, index.getter(reader), _decode_items(index, decode), kept, resize
        )
        for index, sampler, getter, (decode, resize), kept in columns
    )


def parse_getters(get: Any, number: int) -> list[Any]:
    """Return the getters of `number` sources, None without; raise DataError if one is invalid."""
    getters = list(get) if isinstance(get, list | tuple) else [get] * number
    if len(getters) != number:
        raise DataError(f"there are {len(getters)} getters for {number} sources; give one for each")
    for getter in getters:
        if getter is not None and not callable(getter):
            raise DataError(f"get is {show(getter)}, which is not callable; give a function")
    return getters


def _decode_items(index: Index, processor: Any) -> Any:
    """Return a processor of the data of an item, which keeps the target if there is one."""
    return ItemProcessor(processor) if processor is not None and index.gives_targets else processor


# ---- A cache in memory ----------------------------------------------------------------------


def parse_cache(cache: Any, cache_bytes: Any) -> RamCache | None:
    """Return the cache; raise DataError for invalid arguments, or if there is no memory for it."""
    if isinstance(cache, RamCache):
        if cache_bytes is not None:
            raise DataError(
                f"cache_bytes={show(cache_bytes)}, but the RamCache has a limit already; omit it"
            )
        return cache
    if cache is None:
        if cache_bytes is not None:
            raise DataError(f'cache_bytes={show(cache_bytes)} limits cache="ram"; give that, too')
        return None
    if not isinstance(cache, str) or cache != "ram":
        raise DataError(
            f'cache is {show(cache)}; give cache="ram", which keeps decoded records in memory, or '
            "a RamCache that processes share; cache_dir= keeps remote files in a folder"
        )
    return RamCache(cache_bytes)


def make_cache(
    cache: RamCache,
    is_own: bool,
    indexes: Sequence[Index],
    getters: Sequence[Any],
    decoders: Sequence[Any],
    processing: Processing,
) -> BatcherCache:
    """Return the cache of the records of these sources; `processing` is what follows decoding.

    Raises DataError if records are in memory already, or if their number is unknown.
    """
    for index in indexes:
        if index.reads_in_order:
            raise DataError(
                f"cache= needs the number of records, which is not known before {index!r} is read; "
                "write its records to a file (layoutkit.data.recordio), or omit cache="
            )
    rows = [*zip(indexes, getters, decoders, strict=True)]
    are_kept = [getter is not None or not index.in_memory for index, getter, _ in rows]
    if not any(are_kept):
        raise DataError(
            f"cache= keeps records that are read, but those of {indexes[0]!r} are in memory; omit "
            "cache="
        )
    steps = [*processing.processors.values()]
    steps = steps if len(steps) == len(indexes) else [processing.processor] * len(indexes)
    identity = "; ".join(_describe_reading(*row) for row in compress(rows, are_kept))
    cache.use_for(identity, [*map(len, compress(indexes, are_kept))])
    numbers = count()
    records = tuple(
        KeptRecords(cache, next(numbers), len(index), step is not None) if is_kept else None
        for index, step, is_kept in zip(indexes, steps, are_kept, strict=True)
    )
    return BatcherCache(cache, records, is_own)


def _describe_reading(index: Index, getter: Any, decoder: Any) -> str:
    """Return a text that is equal in all processes for records that are read in the same way."""
    name = getattr(getter, "__qualname__", type(getter).__qualname__)
    source = f"{index.kind} {index.url_prefix} {index.selection}"
    return f"{source}, get {name}, decode {decoder if is_dataclass(decoder) else None}"


def make_pipeline(
    sources: tuple[RecordSource, ...],
    processing: Processing,
    timeout: float | None,
    strict: bool,
    workers: int,
    owns_results: bool,
) -> RecordPipeline:
    """Return the steps of each record; for items of one source, its targets are kept."""
    processor = processing.processor
    if processor is not None and len(sources) == 1 and sources[0].gives_targets:
        processor = ItemProcessor(processor)
    step = processing.make_batch_step(workers)
    return RecordPipeline(
        sources,
        processor,
        processing.dtype,
        timeout,
        strict,
        step,
        owns_results=owns_results,
        row_decoder=_make_row_decoder(processor, step, timeout),
        pin=processing.pin,
    )


def _make_row_decoder(
    processor: Any, step: BatchStep | None, timeout: float | None
) -> RowDecoder | None:
    """Return the decoder of the rows of images that are cropped, or None if none are.

    A timeout is measured for each record, which is then read and decoded in turn.
    """
    if processor is None or timeout is not None:
        return None
    if not isinstance(step, CollateStep | MultiCollateStep) or not step.crops_rows:
        return None
    from ...images import Reader as ImageReader  # lazy: few Batchers decode images

    return RowDecoder(processor, step) if type(processor) is ImageReader else None


def parse_workers(num_workers: Any, timeout: Any = None) -> tuple[int, float | None]:
    """Return the number of threads, and the timeout of a record in seconds (or None)."""
    count = min(_MAX_WORKERS, system.count_cpus()) if num_workers is None else num_workers
    workers = check_int("num_workers", count, maximum=_MOST_WORKERS)
    if timeout is None:
        return workers, None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise DataError(f"timeout={show(timeout)}; it must be a number of seconds above 0, or None")
    if not workers:
        raise DataError(
            f"timeout={timeout} needs threads, since the caller's thread cannot be interrupted; "
            "give num_workers of at least 1"
        )
    return workers, timeout


def make_reader(retries: Any, cache_dir: Any, cache_size: Any, max_record_bytes: Any) -> Reader:
    """Return the reader of the bytes of files; raise DataError for invalid arguments."""
    size = check_int("cache_size", cache_size)
    if cache_dir is None and size != CACHE_SIZE:
        raise DataError(f"cache_size={size} limits the folder cache_dir=; give that folder, too")
    if not isinstance(cache_dir, str | os.PathLike | None):
        raise DataError(f"cache_dir={show(cache_dir)}; it must be the path of a folder, or None")
    cache = None if cache_dir is None else DiskCache.at(cache_dir, size)
    most = None if max_record_bytes is None else check_int("max_record_bytes", max_record_bytes)
    return Reader(check_int("retries", retries), cache, most)
