"""Who waits at a terminal for the first compilation is told what for, once a process."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["LONG_SECONDS", "compiled"]

LONG_SECONDS = 0.3  # below it nobody has noticed anything

_said = False


def compiled(seconds: float, folder: Path | None) -> None:
    """Say on a terminal that a kernel was compiled, and whether that was the last time."""
    global _said
    if _said or seconds <= LONG_SECONDS or not _is_terminal():
        return
    _said = True
    kept = "not kept, `layoutkit info` says why" if folder is None else f"kept in {_short(folder)}"
    with suppress(OSError, ValueError):  # a terminal that is gone; nobody waits at it
        text = f"layoutkit: compiled a kernel for this CPU, once ({seconds:.1f} s); {kept}"
        print(text, file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    """Whether stderr is one; programs without a console have none, or put there what they like."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # None; a closed file
        return False


def _short(folder: Path) -> str:
    """A folder as a shell would show it."""
    try:
        return f"~/{folder.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):  # elsewhere; no home
        return str(folder)
