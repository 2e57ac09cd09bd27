"""What somebody who watches a loop is told: a line for each record left out, and a bar.

Knows settings and what was left out; how batches come about is not known here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from .chunks import name_of, words_of
from .settings import Settings

__all__ = ["bar_of", "warn"]

_log = logging.getLogger("layoutkit.data")


def warn(dropped: Sequence[Any]) -> None:
    """Log a line for each record that was left out."""
    for record, _, error in dropped:
        why = "refused" if error is None else words_of(error)
        _log.warning("left out %s: %s", name_of(record), why)


def bar_of(settings: Settings, total: int | None, position: int) -> Any:
    """The progress bar, or None, in a `with` block."""
    if not settings.progress:
        return nullcontext()
    from tqdm import tqdm  # loaded where a bar is shown

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread beside ours

    return Bar(total=total, initial=position, unit="record")
