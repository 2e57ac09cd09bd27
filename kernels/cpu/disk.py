"""Files that hold machine code: whole, written by us and for this very key, or a miss.

What these files hold will be executed, so a file counts only if

- its first 32 bytes are the SHA-256 of its key and its code: one that is truncated, altered, or
  moved here from another kernel, CPU or version is a miss;
- it is a regular file of one name, no link, and nobody but this user and root can have written it;
- the same holds of the folder it lies in and of all above (trust.py), as its caller has seen.

Files are written beside and renamed, so of several processes that write the same one at once
each leaves a whole file. What cannot be written is lost, which costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .trust import is_owned, say

__all__ = ["file_name", "has_any", "packed", "read", "turn", "unpacked", "write"]

DIGEST = 32  # bytes
WRITABLE_BY_OTHERS = 0o022
# Every new version of our sources, of the compiler or of the CPU leaves the old files behind.
KEEP_SECONDS = 90 * 24 * 3600
# A chosen folder may hold other files too.
OURS = re.compile(r"[a-z]+-[0-9a-f]{32}\.o(\.\w+\.tmp|\.lock)?")
# A link in the place of a kernel is an error, and a pipe does not wait for who writes to it.
SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
# A kernel takes 1 to 7 seconds, and more where many processes start: who holds its lock longer has
# been stopped, or lies on a machine that is gone.
WAIT_SECONDS = 30.0
LOOK_SECONDS = 0.02


def file_name(family: str, key: str) -> str:
    """The name of the file for `key`: text that tells all that shaped the code."""
    return f"{family}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.o"


def read(path: Path, key: str) -> bytes | None:
    """The code in `path`, or None when there is none that could be trusted."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | SAFELY), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    return unpacked(data, key)


def has_any(folder: Path, family: str) -> bool:
    """Whether a folder has kernels of a family, of whatever sources and CPU."""
    return next(folder.glob(f"{family}-*.o"), None) is not None


def unpacked(data: bytes, key: str) -> bytes | None:
    """The code in what `packed` made for this key, None where it is anything else."""
    code = data[DIGEST:]
    return code if code and data[:DIGEST] == _digest(key, code) else None


def packed(key: str, code: bytes) -> bytes:
    """What a file of `code` holds."""
    return _digest(key, code) + code


def write(path: Path, key: str, code: bytes) -> None:
    """Keep `code` in `path` if that is possible, and remove what has long been out of use."""
    try:
        handle, temporary = tempfile.mkstemp(".tmp", path.name + ".", path.parent)
    except OSError as error:
        say(path.parent, f"it cannot be written ({error.strerror})")
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed(key, code))
        Path(temporary).replace(path)
    except OSError as error:  # such as a full disk: the next process compiles again
        say(path.parent, f"it cannot be written ({error.strerror})")
    finally:
        with suppress(OSError):
            Path(temporary).unlink()  # it is not there any more if all went well
    _prune(path.parent)


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def _is_ours(found: os.stat_result) -> bool:
    """Whether it is a file that only this user or root can have written, for this folder."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or not is_owned(found):
        return False
    # Windows keeps the folder in the user's profile, closed to others.
    return not hasattr(os, "geteuid") or not found.st_mode & WRITABLE_BY_OTHERS


def _prune(folder: Path) -> None:
    """Remove kernels, and what interrupted writers left, that nobody has read for long."""
    oldest = time.time() - KEEP_SECONDS
    with suppress(OSError):  # another process removes too; the next writer goes on from here
        for path in folder.iterdir():
            if OURS.fullmatch(path.name) is None:
                continue
            found = path.lstat()
            if _is_ours(found) and max(found.st_atime, found.st_mtime) < oldest:
                path.unlink()


# ---- who compiles ------------------------------------------------------------------------


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Let processes that want the same kernel at once go one after the other.

    The first one compiles; whoever comes after it should look for the file again. The system lets a
    lock go with its owner, however that ends. Where files cannot be locked, or nothing has happened
    for WAIT_SECONDS, nobody waits.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | SAFELY, 0o600)
    except OSError:
        yield
        return
    try:
        _wait(handle, path)
        yield
    finally:
        os.close(handle)
        with suppress(OSError):
            lock.unlink()  # who waits for it finds the kernel


def _wait(handle: int, path: Path) -> None:
    """Lock a file, or see that there is nothing to wait for any more."""
    end = time.monotonic() + WAIT_SECONDS
    while not _locked(handle) and not path.exists() and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)


def _locked(handle: int) -> bool:
    """Try to lock a file; True as well where files cannot be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # such as some network file systems
        return True
    return True
