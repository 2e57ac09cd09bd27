"""Dropped records: their descriptions and log lines, and the error if every record fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..._utils.errors import describe_error
from ...errors import DataError
from ..formats import container_kind
from ..records import Record

Dropped = tuple[Record, int, BaseException | None]  # record, position, None if it was refused

_log = logging.getLogger("layoutkit.data")
_MAX_REASONS = 3


def describe_record(record: Any) -> str:
    """Return the text that identifies a record in messages."""
    if record.url is None:
        return f"record {record.position}"
    if record.offset is not None:
        return f"{record.url}, byte {record.offset}"
    if container_kind(record.url) is not None:  # a row of a Parquet file, which has no offset
        return f"{record.url}, record {record.position}"
    return record.url


def log_dropped(dropped: Sequence[Any]) -> None:
    """Log a line for each dropped record."""
    for record, _, error in dropped:
        why = "refused, as its result is None" if error is None else describe_error(error)
        _log.warning("left out %s: %s", describe_record(record), why)


def all_failed_error(lost: Sequence[Dropped], first: str = "") -> DataError:
    """Return an error with each reason once, and the first record that failed for it."""
    reasons: dict[str, list[str]] = {}
    for record, _, error in lost:
        if error is not None:
            reasons.setdefault(describe_error(error), []).append(describe_record(record))
    shown = [_format_reason(why, names) for why, names in list(reasons.items())[:_MAX_REASONS]]
    count = (
        "the only record cannot"
        if len(lost) == 1
        else f"none of the {first}{len(lost)} records can"
    )
    return DataError(f"{count} be used. {'. '.join(shown)}")


def _format_reason(why: str, names: Sequence[str]) -> str:
    suffix = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{suffix}: {why}"
