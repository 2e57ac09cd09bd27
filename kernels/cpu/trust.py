"""Whether code may be loaded from a folder: nobody but this user and root can change what it holds.

Who may write a folder, or one above it, may put any file there that somebody trusted has written
elsewhere for another purpose: a download, an unpacked archive. So the files alone say too little,
and every folder and link on the way is looked at, from the root down. Others may write to a folder
above ours only where Linux keeps them from renaming what they do not own (/tmp).
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["complaint", "is_owned", "say", "trusted"]

WRITABLE_BY_OTHERS = 0o022
MOST_LINKS = 40  # as many as Linux follows

# It speaks to whoever handles "layoutkit" or all logs, and never to stderr of its own accord: a
# folder that cannot be used costs time and nothing else.
_log = logging.getLogger("layoutkit.kernels")
_log.addHandler(logging.NullHandler())
_said: dict[Path, str] = {}


def trusted(folder: Path) -> bool:
    """Whether code may be loaded from a folder, which is made if need be; says once why not."""
    why = _why_not(folder)
    if why is not None:
        say(folder, why)
    return why is None


def complaint(folder: Path) -> str | None:
    """What is wrong with a folder, as far as is known; None: nothing."""
    if not trusted(folder) or folder in _said:
        return _said[folder]
    return None if os.access(folder, os.W_OK) else "cannot be written"


def say(folder: Path, why: str) -> None:
    """Warn, once a folder, that it does not keep kernels."""
    if folder not in _said:
        _said[folder] = why
        _log.warning(
            "kernels are not kept in %s, and every process compiles its own: %s; "
            "LAYOUTKIT_CACHE_DIR names another folder",
            folder,
            why,
        )


def is_owned(found: os.stat_result) -> bool:
    """Whether a file, folder or link belongs to this user or root; Windows does not say."""
    return not hasattr(os, "geteuid") or found.st_uid in (0, os.geteuid())


def _why_not(folder: Path) -> str | None:
    try:
        found = None
        for place, found in _way_to(folder.absolute()):
            if (why := _weakness(place, found)) is not None:
                return why
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    if found is None or not hasattr(os, "geteuid"):
        return None
    # Others may not even add files: in the end they would be taken for ours.
    return f"others may write to {place}" if found.st_mode & WRITABLE_BY_OTHERS else None


def _way_to(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link from the root to a folder; what is missing is made."""
    at, links = Path(folder.anchor), 0
    yield at, at.lstat()
    parts = list(reversed(folder.parts[1:]))
    while parts:
        name = parts.pop()
        if name == "..":
            at = at.parent
            continue
        found = _made(at / name)
        yield at / name, found
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            target = (at / name).readlink()
            parts += reversed(target.parts[1:] if target.anchor else target.parts)
            at = Path(target.anchor) if target.anchor else at
        else:
            at = at / name


def _made(place: Path) -> os.stat_result:
    try:
        return place.lstat()
    except FileNotFoundError:
        place.mkdir(mode=0o700, exist_ok=True)  # another process may be about to
        return place.lstat()


def _weakness(place: Path, found: os.stat_result) -> str | None:
    """Why others could change what lies below a folder or behind a link."""
    if not is_owned(found):
        return f"{place} belongs to another user"
    if stat.S_ISLNK(found.st_mode):
        return None
    if not stat.S_ISDIR(found.st_mode):
        return f"{place} is no folder"
    if not hasattr(os, "geteuid"):
        return None
    open_to_others = found.st_mode & WRITABLE_BY_OTHERS and not found.st_mode & stat.S_ISVTX
    return f"others may write to {place}" if open_to_others else None
