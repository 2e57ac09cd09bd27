"""Whether code may be loaded from a folder: nobody but this user and root can change what it holds.

Who may write a folder, or one above it, may put any file there that somebody trusted has written
elsewhere for another purpose: a download, an unpacked archive. So the files alone say too little,
and every folder and link on the way is looked at, from the root down. Others may write to a folder
above ours only where Linux keeps them from renaming what they do not own (/tmp). A group that is
the user's alone is no other: Debian, Fedora and more give every user one, and many let it write to
all that the user makes.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["complaint", "is_owned", "say", "trusted"]

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
    return _opening(place, found)  # others may not even add files: they would be taken for ours


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
    return None if found.st_mode & stat.S_ISVTX else _opening(place, found)


def _opening(place: Path, found: os.stat_result) -> str | None:
    """Whom a folder lets in besides this user, and what closes it."""
    group = found.st_mode & stat.S_IWGRP and not _is_private(place, found.st_gid)
    who = "g" * bool(group) + "o" * bool(found.st_mode & stat.S_IWOTH)
    return f"others may write to {place}: chmod {who}-w {place}" if who else None


def _is_private(place: Path, gid: int) -> bool:
    """Whether the group of a folder is this user's own, has their name and no other member."""
    try:
        import grp
        import pwd

        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except (ImportError, KeyError):  # Windows; numbers without a name
        return False
    if gid == 0 or (gid, group.gr_name) != (user.pw_gid, user.pw_name):
        return False
    members = {*group.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == gid)}
    return members <= {user.pw_name} and not _has_acl(place)


def _has_acl(place: Path) -> bool:
    """Whether Linux shows an access list's users in the place of the group."""
    try:
        return "system.posix_acl_access" in os.listxattr(place)
    except (AttributeError, OSError):  # another system; a file system without lists
        return False
