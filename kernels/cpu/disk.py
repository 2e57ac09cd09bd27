"""Files that hold machine code: whole, written by us and for this very key, or a miss.

What these files hold will be executed, so a file counts only if

- its first 32 bytes are the SHA-256 of its key and its code: one that is truncated, altered, or
  moved here from another kernel, CPU or version is a miss;
- nobody but this user and root can have written it.

Files are written beside and renamed, so of several processes that write the same one at once
each leaves a whole file. What cannot be written is lost, which costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["file_name", "read", "write"]

DIGEST = 32  # bytes
# Every new version of our sources, of the compiler or of the CPU leaves the old files behind.
KEEP_SECONDS = 90 * 24 * 3600
OURS = "*-" + 32 * "[0-9a-f]" + ".o*"  # a shared folder may hold other files too
WRITABLE_BY_OTHERS = 0o022


def file_name(family: str, key: str) -> str:
    """The name of the file for `key`: text that tells all that shaped the code."""
    return f"{family}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.o"


def read(path: Path, key: str) -> bytes | None:
    """The code in `path`, or None when there is none that could be trusted."""
    try:
        with path.open("rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    code = data[DIGEST:]
    return code if code and data[:DIGEST] == _digest(key, code) else None


def write(path: Path, key: str, code: bytes) -> None:
    """Keep `code` in `path` if that is possible, and remove what has long been out of use."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(".tmp", path.name + ".", path.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_digest(key, code) + code)
        Path(temporary).replace(path)
    except OSError:
        pass  # such as a full disk: the next process compiles again
    finally:
        with suppress(OSError):
            Path(temporary).unlink()  # it is not there any more if all went well
    _prune(path.parent)


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def _is_ours(found: os.stat_result) -> bool:
    """Whether only this user or root can have written a file."""
    if not hasattr(os, "geteuid"):
        return True  # Windows keeps the folder in the user's profile, closed to others
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & WRITABLE_BY_OTHERS


def _prune(folder: Path) -> None:
    """Remove kernels, and what interrupted writers left, that nobody has read for long."""
    oldest = time.time() - KEEP_SECONDS
    with suppress(OSError):  # another process removes too; the next writer goes on from here
        for path in folder.glob(OURS):
            found = path.stat()
            if max(found.st_atime, found.st_mtime) < oldest:
                path.unlink()
