"""Compiled kernels on disk: the cache of the user, and the objects in the wheel.

*Cache files.* The process executes their content, so a file is a miss unless

- its first 32 bytes are the SHA-256 of its key and its code, which excludes files that are
  truncated, altered, or copied from another kernel, CPU or version;
- it is a regular file with one hard link, and only this user and root can have written it;
- its folder is trusted: only this user and root can change the content of the folder.

Files are written under a temporary name and renamed, so concurrent writers all leave a complete
file. If a file cannot be written, every process compiles the kernel again, which only costs time.

*Trusted folders.* A user who may write to the folder, or to one above it, could move a file there
that a trusted user has written elsewhere for another purpose (a download, an unpacked archive). So
checking the owner of a file is not enough: every folder and link is checked, from the root down.
Other users may write to a parent folder only if it is sticky (such as /tmp): Linux then prevents
them from renaming files of others. A private group of the user does not count as another user:
Debian, Fedora and others create one for every user, and often let it write to all of their files.

*Objects in the wheel.* A wheel contains the kernels that most programs need, compiled for each of
LEVELS of its machine type, so that a first conversion does not wait for a compiler. Each object is
a file in `objects/` beside this module; editable installations and checkouts do not have objects.

- An object is compiled for a level and runs on any CPU that has all features of the level. A cached
  object that was compiled for exactly this CPU is preferred.
- The key of an object contains the spec, the sources, the level, the system and FORMAT, so objects
  of other sources are a miss. It does not contain the versions of Numba and llvmlite: loading an
  object needs only a linker, so builder and user may have different versions.
- The checksum of an object is verified, as disks and downloads fail. Its owner is not checked: a
  user who can write the object can also write the modules beside it, which Python executes.
  Installers create hard links and symbolic links, and packages may belong to another user.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ..._utils import system

MAX_LINKS = 40  # symbolic links that Linux follows

# The NullHandler keeps messages off stderr unless the program configures logging: a folder that
# cannot be used only costs time.
_log = logging.getLogger("layoutkit.kernels")
_log.addHandler(logging.NullHandler())
_warned: dict[Path, str] = {}


def is_trusted(folder: Path) -> bool:
    """Return True if code may be loaded from a folder, created if missing; else warn once."""
    reason = _untrusted_reason(folder)
    if reason is not None:
        warn_once(folder, reason)
    return reason is None


def cache_problem(folder: Path) -> str | None:
    """Return the reason that kernels are not cached in a folder, or None."""
    if not is_trusted(folder) or folder in _warned:
        return _warned[folder]
    return None if os.access(folder, os.W_OK) else "cannot be written"


def warn_once(folder: Path, reason: str) -> None:
    """Log a warning that kernels are not cached in a folder, once per folder."""
    if folder not in _warned:
        _warned[folder] = reason
        _log.warning(
            "kernels are not cached in %s, so every process compiles its own: %s; "
            "LAYOUTKIT_CACHE_DIR can name another folder",
            folder,
            reason,
        )


def is_own_or_root(status: os.stat_result) -> bool:
    """Return True if this user or root owns a file, folder or link; always True on Windows."""
    user = system.user_id()
    return user is None or status.st_uid in (0, user)


def _untrusted_reason(folder: Path) -> str | None:
    try:
        status = None
        for path, status in _walk_to(folder.absolute()):
            if (reason := _unsafe_reason(path, status)) is not None:
                return reason
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    if status is None or system.user_id() is None:
        return None
    # Other users may not write to the folder itself even if it is sticky: they could add files.
    return _write_access_reason(path, status)


def _walk_to(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every folder and link from the root to a folder; create missing folders."""
    current = Path(folder.anchor)
    links = 0
    yield current, current.lstat()
    parts = list(reversed(folder.parts[1:]))
    while parts:
        name = parts.pop()
        if name == "..":
            current = current.parent
            continue
        status = _lstat_or_create(current / name)
        yield current / name, status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            target = (current / name).readlink()
            parts += reversed(target.parts[1:] if target.anchor else target.parts)
            current = Path(target.anchor) if target.anchor else current
        else:
            current = current / name


def _lstat_or_create(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except FileNotFoundError:
        path.mkdir(mode=0o700, exist_ok=True)  # another process may create it too
        return path.lstat()


def _unsafe_reason(path: Path, status: os.stat_result) -> str | None:
    """Return the reason if other users could replace what a path leads to, else None."""
    if not is_own_or_root(status):
        return f"{path} belongs to another user"
    if stat.S_ISLNK(status.st_mode):
        return None
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a folder"
    if system.user_id() is None:
        return None
    return None if status.st_mode & stat.S_ISVTX else _write_access_reason(path, status)


def _write_access_reason(path: Path, status: os.stat_result) -> str | None:
    """Return a message that tells the fix if other users may write to a folder, else None."""
    group = status.st_mode & stat.S_IWGRP and not _is_private(path, status.st_gid)
    classes = "g" * bool(group) + "o" * bool(status.st_mode & stat.S_IWOTH)
    return f"other users may write to {path}: run chmod {classes}-w {path}" if classes else None


def _is_private(path: Path, gid: int) -> bool:
    """Return True if the group of a folder is this user only."""
    return system.is_own_group(gid) and not system.has_acl(path)


DIGEST = 32  # bytes
WRITABLE_BY_OTHERS = 0o022
# New versions of the sources or the compiler, or another CPU, leave unused files.
KEEP_SECONDS = 90 * 24 * 3600
# Other files in a folder that the user chose are not removed.
CACHE_FILE = re.compile(r"[a-z]+-[0-9a-f]{32}\.o(\.\w+\.tmp|\.lock)?")
# With these flags, opening a link is an error, and opening a pipe does not wait for a writer.
OPEN_FLAGS = system.open_flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
# Compiling a kernel takes 1 to 7 seconds, and more if many processes start at once. A process that
# holds the lock for longer is stopped, or its machine is down.
LOCK_TIMEOUT = 30.0
POLL_SECONDS = 0.02


def file_name(family: str, key: str) -> str:
    """Return the file name for `key`, the text of everything that determines the code."""
    return f"{family}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.o"


def read(path: Path, key: str) -> bytes | None:
    """Return the code in `path`; None if the file is missing, damaged or not trusted."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | OPEN_FLAGS), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    return unpack(data, key)


def has_family(folder: Path, family: str) -> bool:
    """Return True if a folder has any kernel of a family, for any sources and CPU."""
    return next(folder.glob(f"{family}-*.o"), None) is not None


def unpack(data: bytes, key: str) -> bytes | None:
    """Return the code in data that `pack` returned for this key, None for any other data."""
    code = data[DIGEST:]
    return code if code and data[:DIGEST] == _digest(key, code) else None


def pack(key: str, code: bytes) -> bytes:
    """Return the content of the file for `code`."""
    return _digest(key, code) + code


def write(path: Path, key: str, code: bytes) -> None:
    """Write `code` to `path` if possible, and remove files that have long been unused."""
    try:
        handle, temporary = tempfile.mkstemp(".tmp", path.name + ".", path.parent)
    except OSError as error:
        warn_once(path.parent, f"it cannot be written ({error.strerror})")
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pack(key, code))
        Path(temporary).replace(path)
    except OSError as error:  # such as a full disk
        warn_once(path.parent, f"it cannot be written ({error.strerror})")
    finally:
        with suppress(OSError):
            Path(temporary).unlink()  # missing after success
    _prune(path.parent)


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def _is_ours(status: os.stat_result) -> bool:
    """Return True for a regular file with one link that only this user or root can write."""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or not is_own_or_root(status):
        return False
    # On Windows the folder is in the user's profile, which other users cannot access.
    return system.user_id() is None or not status.st_mode & WRITABLE_BY_OTHERS


def _prune(folder: Path) -> None:
    """Remove kernels and temporary files that were last used KEEP_SECONDS ago or earlier."""
    cutoff = time.time() - KEEP_SECONDS
    with suppress(OSError):  # such as a file that another process removed
        for path in folder.iterdir():
            if CACHE_FILE.fullmatch(path.name) is None:
                continue
            status = path.lstat()
            if _is_ours(status) and max(status.st_atime, status.st_mtime) < cutoff:
                path.unlink()


# ---- one compilation at a time -----------------------------------------------------------


@contextmanager
def compile_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a kernel within the block, so that only one process compiles the kernel.

    A process that had to wait should look for the file again. The system releases the lock when
    its owner ends, even by a crash. A process does not wait if files cannot be locked, and stops
    waiting after LOCK_TIMEOUT seconds.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
    except OSError:
        yield
        return
    try:
        _wait_for_lock(handle, path)
        yield
    finally:
        os.close(handle)
        with suppress(OSError):
            lock.unlink()  # waiting processes find the kernel file


def _wait_for_lock(handle: int, path: Path) -> None:
    """Lock a file; return without the lock if `path` appears or LOCK_TIMEOUT expires first."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    while not system.try_lock(handle) and not path.exists() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


FOLDER = Path(__file__).with_name("objects")
# Increment this if objects change but no source in this folder does, for example if the build
# processes compiled code differently.
FORMAT = "1"

V3 = (
    "avx,avx2,bmi,bmi2,cmov,crc32,cx16,cx8,f16c,fma,fxsr,lzcnt,mmx,movbe,popcnt,sahf,"
    "sse,sse2,sse3,sse4.1,sse4.2,ssse3,xsave"
)
V4 = V3 + ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"


class Level(NamedTuple):
    """A level of CPUs: LLVM's name of its baseline CPU, and the features that all of them have."""

    name: str
    cpu: str
    features: str  # separated by commas
    machine: str
    base_level: str = ""  # the level to try next; objects equal to its objects are not stored

    def runs_on(self, features: frozenset[str]) -> bool:
        """Return True if a CPU with these features can run objects of this level."""
        return features.issuperset(self.features.split(","))

    @property
    def flags(self) -> str:
        """The features in LLVM's syntax."""
        return ",".join("+" + feature for feature in self.features.split(","))


# Highest level first. The instruction that shuffles bytes across a register (avx512vbmi) is in
# no level of x86-64; all AVX-512 CPUs but the first generation have it.
LEVELS = (
    Level("x86-64-v4-vbmi", "x86-64-v4", V4 + ",avx512vbmi", "x86_64", base_level="x86-64-v4"),
    Level("x86-64-v4", "x86-64-v4", V4, "x86_64"),
    Level("x86-64-v3", "x86-64-v3", V3, "x86_64"),
    Level("armv8-a", "generic", "fp-armv8,neon", "aarch64"),
)


def find(family: str, spec: str, sources: str, features: frozenset[str]) -> bytes | None:
    """Return the code of a kernel in the wheel for the highest level of this CPU, or None.

    `spec`: all literals as text; `sources`: the digest of the kernel's sources.
    """
    for level in _levels(features):
        key = object_key(level, spec, sources)
        try:
            data = (FOLDER / file_name(family, key)).read_bytes()
        except OSError:
            continue
        return unpack(data, key)
    return None


def describe_shipped(features: frozenset[str]) -> str:
    """Return the number of compiled kernels in this installation, and the level of this CPU."""
    try:
        count = sum(1 for _ in FOLDER.iterdir())
    except OSError:
        count = 0
    level = next((level.name for level in LEVELS if level.runs_on(features)), "no level")
    return f"{count:,} compiled for {level} and below" if count else "none compiled"


def object_key(level: Level, spec: str, sources: str) -> str:
    """Return the key of an object: the text of everything that determines its code."""
    platform = f"{sys.platform} {sys.maxsize}"
    return "\n".join(["shipped", FORMAT, platform, sources, level.cpu, level.features, spec])


def _levels(features: frozenset[str]) -> Iterator[Level]:
    """Yield the highest level of a CPU, then its base levels."""
    current = next((level for level in LEVELS if level.runs_on(features)), None)
    while current is not None:
        yield current
        current = next((level for level in LEVELS if level.name == current.base_level), None)
