"""The shape and dtype of all records of a run: the most frequent ones in its first batch.

A record that differs is dropped. `RunSpec` is part of the states of a Batcher, so that a resumed
run keeps the shape and drops the same records.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ...errors import DataError, DtypeError, LayoutkitError, ShapeError
from ...memory import Array
from ...spec import DType, as_dtype, check_supported_dtype
from .chunk import RecordChunk, can_store
from .collate import BatchStep, SampleSpec

_DTYPE = np.dtype("float32")  # if the shape of records is specified but not the dtype
_NO_TARGET = "none"
_ONE = r"[<>\w\[\]]+\((?:(?:\d+|\*)(?:,(?:\d+|\*))*)?\)"
_TEXT = re.compile(rf"((?:{_ONE}(?:\+{_ONE})*)?) -> ({_NO_TARGET}|{_ONE})")


class RunSpec(NamedTuple):
    """The shapes and dtypes that the records of a run share; None where they are unknown.

    record : SampleSpec, or a tuple of one for each Collator; None also if `input_dims` gives it
    target : SampleSpec; False if records have no target
    """

    record: Any = None
    target: SampleSpec | Literal[False] | None = None

    def to_text(self) -> str:
        """Return text from which `from_text` makes an equal object; empty if nothing is known.

        >>> RunSpec(SampleSpec(np.dtype("uint8"), (None, None, 3)), False).to_text()
        'uint8(*,*,3) -> none'
        """
        if self.target is None:
            return ""
        records = self.record or ()
        records = [records] if isinstance(records, SampleSpec) else records
        target = _NO_TARGET if self.target is False else _spec_text(self.target)
        return f"{'+'.join(map(_spec_text, records))} -> {target}"

    @classmethod
    def from_text(cls, text: Any) -> RunSpec:
        """Return the object that a text describes; raise DataError if it is not such a text."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        try:
            if match is None:
                raise ValueError
            records = [_parse_spec(part) for part in match[1].split("+") if part]
            target = None if match[2] == _NO_TARGET else _parse_spec(match[2])
        except (ValueError, DtypeError):
            example = cls(SampleSpec(_DTYPE, (32, 32, 3)), False).to_text()
            raise DataError(
                f"spec={text!r} is not the text of a state, as in {example!r}"
            ) from None
        record = tuple(records) if len(records) > 1 else next(iter(records), None)
        return cls(record, target or False)


def _spec_text(spec: SampleSpec) -> str:
    sizes = ",".join("*" if size is None else str(size) for size in spec.sizes or ())
    return f"{spec.dtype}({sizes})"


def _parse_spec(text: str) -> SampleSpec:
    dtype, _, sizes = text.removesuffix(")").partition("(")
    numbers = [None if size == "*" else int(size) for size in sizes.split(",") if size]
    try:
        return SampleSpec(np.dtype(dtype), tuple(numbers))  # keeps the byte order
    except TypeError:  # bfloat16 and others of ml_dtypes
        return SampleSpec(as_dtype(dtype), tuple(numbers))


class BatchSignature:
    """The properties that all records of a batch share: the run's, if they are known.

    record : of a record; None until one is kept, if not specified
    target : of a target; False if records have no target, None if unknown
    """

    def __init__(
        self,
        dims: tuple[int, ...] | None,
        dtype: DType | None,
        collate_step: BatchStep | None = None,
        run: RunSpec | None = None,
    ) -> None:
        self._requested_dtype = dtype
        self._collate_step = collate_step
        self._has_dims = dims is not None
        self.record, self.target = run or RunSpec()
        self.shape = dims
        self.dtype: DType | None = dtype or (None if dims is None else _DTYPE)
        if self.record is not None and collate_step is None:
            self._set_record(self.record)
        self._known_keys: set[Any] = set()  # of samples with the spec of a record

    @property
    def run(self) -> RunSpec:
        """The properties of this batch, for the other batches of the run."""
        return RunSpec(None if self._has_dims else self.record, self.target)

    def check_chunks(self, chunks: Sequence[RecordChunk]) -> None:
        """Fail the records that differ from most of these, or from the run's records."""
        if self._collate_step is None:
            self._check_rows([chunk for chunk in chunks if not chunk.is_preallocated])
        else:
            self._check_samples(chunks, self._collate_step)
        self._check_targets(chunks)

    def _set_record(self, spec: SampleSpec) -> None:
        self.record, self.shape, self.dtype = spec, spec.sizes, spec.dtype  # type: ignore[assignment]

    # -- records ---------------------------------------------------------------------------

    def _check_rows(self, chunks: Sequence[RecordChunk]) -> None:
        chunks = [chunk for chunk in chunks if len(chunk.failed) < chunk.count]
        if self.record is None and chunks:
            counts: dict[SampleSpec, int] = defaultdict(int)
            for chunk in chunks:
                if chunk.irregular:
                    for row in kept_rows(chunk):
                        counts[self._row_spec(_result(chunk, row))] += 1
                else:
                    counts[self._row_spec(chunk.block[0])] += len(kept_rows(chunk))
            self._set_record(_most_common(counts))
        for chunk in chunks:
            is_alike = not chunk.irregular and chunk.block.dtype == self.dtype
            if is_alike and self._matches(chunk.block[0]):
                continue
            for row in kept_rows(chunk):
                result = _result(chunk, row)
                if not self._matches(result):
                    chunk.failed[row] = ShapeError(
                        f"the result has shape {result.shape} and dtype {result.dtype}, but most "
                        f"of the first batch have {self.shape} and {self.dtype}; resize or convert "
                        "it in the processor"
                    )

    def _row_spec(self, result: Array) -> SampleSpec:
        return SampleSpec(self._requested_dtype or result.dtype, result.shape)

    def _matches(self, result: Array) -> bool:
        return result.shape == self.shape and can_store(result, self.dtype)  # type: ignore[arg-type]

    def _check_samples(self, chunks: Sequence[RecordChunk], collate_step: BatchStep) -> None:
        if self.record is None:
            self.record = _most_common_sample(chunks, collate_step)
        for chunk in chunks:
            for rows, x in _samples(chunk):
                try:
                    key = collate_step.spec_key(x)
                    if key not in self._known_keys:
                        collate_step.sample_spec(x, self.record)
                        self._known_keys.add(key)
                except LayoutkitError as error:
                    chunk.failed.update(dict.fromkeys(rows, error))

    # -- targets ---------------------------------------------------------------------------

    def _check_targets(self, chunks: Sequence[RecordChunk]) -> None:
        if self.target is None:
            counts: dict[Any, int] = defaultdict(int)
            for chunk in chunks:
                for spec, count in _target_specs(chunk):
                    counts[spec] += count
            self.target = _most_common(counts)
        for chunk in chunks:
            block = _stack_if_alike(_targets(chunk))
            is_alike = block is not None and self._matches_target(block[0])
            chunk.target_block = block if is_alike else None
            if not is_alike and (chunk.targets or self.target):
                self._check_each_target(chunk)

    def _check_each_target(self, chunk: RecordChunk) -> None:
        for row in kept_rows(chunk):
            if row not in chunk.targets and self.target is False:
                continue
            try:
                chunk.targets[row] = self._as_target(row, chunk)
            except (LayoutkitError, ValueError, TypeError) as error:
                chunk.failed[row] = error

    def _matches_target(self, target: Array) -> bool:
        spec = self.target
        if not spec:
            return False
        return target.shape == spec.sizes and can_store(target, spec.dtype)

    def _as_target(self, row: int, chunk: RecordChunk) -> Array:
        """Return the target of a record as an array; raise if it differs from the run's targets."""
        if self.target is False or row not in chunk.targets:
            raise DataError(
                "only some records have a target, or only some do not; return one for all or none"
            )
        target = np.asarray(chunk.targets[row])
        check_supported_dtype(target.dtype)
        if not self._matches_target(target):
            shape, dtype = self.target.sizes, self.target.dtype  # type: ignore[union-attr]
            raise ShapeError(
                f"the target has shape {target.shape} and dtype {target.dtype}, but most of the "
                f"first batch have {shape} and {dtype}; return targets of one shape"
            )
        return target


def kept_rows(chunk: RecordChunk) -> Sequence[int]:
    """Return the rows of a chunk that did not fail."""
    if not chunk.failed:
        return range(chunk.count)
    return [row for row in range(chunk.count) if row not in chunk.failed]


def _result(chunk: RecordChunk, row: int) -> Array:
    irregular = chunk.irregular.get(row)
    return chunk.block[row, ...] if irregular is None else irregular


def _samples(chunk: RecordChunk) -> Iterator[tuple[Sequence[int], Array]]:
    """Yield the results of a chunk that are collated, with their rows.

    All rows of one array have the same spec, so the first result represents them.
    """
    rows = kept_rows(chunk)
    if chunk.is_from_source:
        array, first = chunk.pipeline.sources[0].index.array_rows(chunk.numbers[0][:1])  # type: ignore[arg-type]
        yield rows, array[first[0]]
    else:
        yield from (((row,), chunk.irregular[row]) for row in rows)


def _most_common(counts: Mapping[Any, int]) -> Any:
    """Return the element that was counted most often, the first of several; None without any."""
    return max(counts, key=counts.__getitem__, default=None)


def _most_common_sample(chunks: Sequence[RecordChunk], collate_step: BatchStep) -> Any:
    """Return the spec of most samples; None if none can be collated."""
    specs: dict[Any, Any] = {}  # by key
    counts: dict[Any, int] = defaultdict(int)
    for chunk in chunks:
        for rows, x in _samples(chunk):
            try:
                key = collate_step.spec_key(x)
                if key not in specs:
                    specs[key] = collate_step.sample_spec(x, None)
                counts[specs[key]] += len(rows)
            except LayoutkitError:  # raised again when the sample is checked
                continue
    return _most_common(counts)


def _targets(chunk: RecordChunk) -> list[Any]:
    return [chunk.targets.get(row) for row in kept_rows(chunk)] if chunk.targets else []


def _target_specs(chunk: RecordChunk) -> Iterator[tuple[SampleSpec | Literal[False], int]]:
    """Yield specs of a chunk's targets, False for none, and the number of targets of each.

    Targets that are no arrays are omitted.
    """
    rows = kept_rows(chunk)
    if rows and not chunk.targets:
        yield False, len(rows)
        return
    block = _stack_if_alike(_targets(chunk))
    if block is not None:
        yield SampleSpec(block.dtype, block.shape[1:]), len(block)
        return
    for row in rows:
        if row not in chunk.targets:
            yield False, 1
            continue
        try:
            target = np.asarray(chunk.targets[row])
            check_supported_dtype(target.dtype)
        except (LayoutkitError, ValueError, TypeError):
            continue
        yield SampleSpec(target.dtype, target.shape), 1


def _stack_if_alike(values: list[Any]) -> Array | None:
    """Return the values as one array, if each alone is an array of the same shape and dtype.

    Return None otherwise, if they are not numbers, or if this quick check cannot decide.
    """
    types = set(map(type, values))
    cls = next(iter(types), None)
    is_numeric = cls is np.ndarray or (cls and issubclass(cls, int | float | np.number))
    if len(types) != 1 or not is_numeric:
        return None
    if cls is np.ndarray and len({(value.shape, value.dtype) for value in values}) > 1:
        return None
    array = np.array(values)
    same = array.dtype == np.asarray(values[0]).dtype
    return (
        array if same and not array.dtype.hasobject else None
    )  # object dtype: ints beyond 64 bits
