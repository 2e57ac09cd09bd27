"""Files that hold machine code: whole, written by us and for this very key, or a miss.

What these files hold will be executed, so a file counts only if

- its first 32 bytes are the SHA-256 of its key and its code: one that is truncated, altered, or
  moved here from another kernel, CPU or version is a miss;
- it is a regular file of one name, no link, and nobody but this user and root can have written it;
- the same holds of the folder it lies in and of all above (trust.py), as its caller has seen.

Files are written beside and renamed, so of several processes that write the same one at once
each leaves a whole file. What cannot be written is lost, which costs time and nothing else.

Whether code may be loaded from a folder: nobody but this user and root can change what it holds.

Who may write a folder, or one above it, may put any file there that somebody trusted has written
elsewhere for another purpose: a download, an unpacked archive. So the files alone say too little,
and every folder and link on the way is looked at, from the root down. Others may write to a folder
above ours only where Linux keeps them from renaming what they do not own (/tmp). A group that is
the user's alone is no other: Debian, Fedora and more give every user one, and many let it write to
all that the user makes.

Kernels that came with the package: objects that the build made for whole classes of CPUs.

A wheel carries the kernels that most programs want (`usual.py`), compiled for each of LEVELS that
its machine may be of, so that a first conversion waits for no compiler. Each is a file in
`objects/` beside this module; an editable installation and a checkout have none, and compile.

- An object is for a level, and serves any CPU that has all the level's features. What is compiled
  for this very CPU is preferred to it where it is on disk.
- Its key holds the spec, the sources, the level, the system and FORMAT: objects of other sources
  are a miss. It holds no version of Numba or llvmlite, as an object asks nothing of either but to
  be linked: what the builder had need not be what the user has.
- Its checksum is looked at as that of the cache's files is (disk.py), as disks and downloads fail.
  Who owns the file is not: who can write it can write the modules beside it, which Python executes
  unasked. Installers make hard links and links, and let another user own a package.
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

MAX_LINKS = 40  # as many as Linux follows

# It speaks to whoever handles "layoutkit" or all logs, and never to stderr of its own accord: a
# folder that cannot be used costs time and nothing else.
_log = logging.getLogger("layoutkit.kernels")
_log.addHandler(logging.NullHandler())
_warned: dict[Path, str] = {}


def is_trusted(folder: Path) -> bool:
    """Whether code may be loaded from a folder, which is made if need be; says once why not."""
    reason = _untrusted_reason(folder)
    if reason is not None:
        warn_once(folder, reason)
    return reason is None


def complaint(folder: Path) -> str | None:
    """What is wrong with a folder, as far as is known; None: nothing."""
    if not is_trusted(folder) or folder in _warned:
        return _warned[folder]
    return None if os.access(folder, os.W_OK) else "cannot be written"


def warn_once(folder: Path, reason: str) -> None:
    """Warn, once a folder, that it does not keep kernels."""
    if folder not in _warned:
        _warned[folder] = reason
        _log.warning(
            "kernels are not kept in %s, and every process compiles its own: %s; "
            "LAYOUTKIT_CACHE_DIR names another folder",
            folder,
            reason,
        )


def is_own_or_root(status: os.stat_result) -> bool:
    """Whether a file, folder or link belongs to this user or root; Windows does not say."""
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


def _untrusted_reason(folder: Path) -> str | None:
    try:
        status = None
        for path, status in _walk_to(folder.absolute()):
            if (reason := _unsafe_reason(path, status)) is not None:
                return reason
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    if status is None or not hasattr(os, "geteuid"):
        return None
    return _write_access_reason(
        path, status
    )  # others may not even add files: they would be taken for ours


def _walk_to(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link from the root to a folder; what is missing is made."""
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
        path.mkdir(mode=0o700, exist_ok=True)  # another process may be about to
        return path.lstat()


def _unsafe_reason(path: Path, status: os.stat_result) -> str | None:
    """Why others could change what lies below a folder or behind a link."""
    if not is_own_or_root(status):
        return f"{path} belongs to another user"
    if stat.S_ISLNK(status.st_mode):
        return None
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a folder"
    if not hasattr(os, "geteuid"):
        return None
    return None if status.st_mode & stat.S_ISVTX else _write_access_reason(path, status)


def _write_access_reason(path: Path, status: os.stat_result) -> str | None:
    """Whom a folder lets in besides this user, and what closes it."""
    group = status.st_mode & stat.S_IWGRP and not _is_private(path, status.st_gid)
    who = "g" * bool(group) + "o" * bool(status.st_mode & stat.S_IWOTH)
    return f"others may write to {path}: chmod {who}-w {path}" if who else None


def _is_private(path: Path, gid: int) -> bool:
    """Whether the group of a folder is this user's own, has their name and no other member."""
    try:
        import grp
        import pwd

        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except (ImportError, KeyError):  # Windows; numbers without a name
        return False
    if gid == 0 or (gid, group.gr_name) != (user.pw_gid, user.pw_name):
        return False
    members = {*group.gr_mem, *(entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == gid)}
    return members <= {user.pw_name} and not _has_acl(path)


def _has_acl(path: Path) -> bool:
    """Whether Linux shows an access list's users in the place of the group."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):  # another system; a file system without lists
        return False


DIGEST = 32  # bytes
WRITABLE_BY_OTHERS = 0o022
# Every new version of our sources, of the compiler or of the CPU leaves the old files behind.
KEEP_SECONDS = 90 * 24 * 3600
# A chosen folder may hold other files too.
CACHE_FILE = re.compile(r"[a-z]+-[0-9a-f]{32}\.o(\.\w+\.tmp|\.lock)?")
# A link in the place of a kernel is an error, and a pipe does not wait for who writes to it.
OPEN_FLAGS = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
# A kernel takes 1 to 7 seconds, and more where many processes start: who holds its lock longer has
# been stopped, or lies on a machine that is gone.
LOCK_TIMEOUT = 30.0
POLL_SECONDS = 0.02


def file_name(family: str, key: str) -> str:
    """The name of the file for `key`: text that tells all that shaped the code."""
    return f"{family}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.o"


def read(path: Path, key: str) -> bytes | None:
    """The code in `path`, or None when there is none that could be trusted."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | OPEN_FLAGS), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    return unpack(data, key)


def has_family(folder: Path, family: str) -> bool:
    """Whether a folder has kernels of a family, of whatever sources and CPU."""
    return next(folder.glob(f"{family}-*.o"), None) is not None


def unpack(data: bytes, key: str) -> bytes | None:
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
        warn_once(path.parent, f"it cannot be written ({error.strerror})")
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed(key, code))
        Path(temporary).replace(path)
    except OSError as error:  # such as a full disk: the next process compiles again
        warn_once(path.parent, f"it cannot be written ({error.strerror})")
    finally:
        with suppress(OSError):
            Path(temporary).unlink()  # it is not there any more if all went well
    _prune(path.parent)


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def _is_ours(status: os.stat_result) -> bool:
    """Whether it is a file that only this user or root can have written, for this folder."""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or not is_own_or_root(status):
        return False
    # Windows keeps the folder in the user's profile, closed to others.
    return not hasattr(os, "geteuid") or not status.st_mode & WRITABLE_BY_OTHERS


def _prune(folder: Path) -> None:
    """Remove kernels, and what interrupted writers left, that nobody has read for long."""
    oldest = time.time() - KEEP_SECONDS
    with suppress(OSError):  # another process removes too; the next writer goes on from here
        for path in folder.iterdir():
            if CACHE_FILE.fullmatch(path.name) is None:
                continue
            status = path.lstat()
            if _is_ours(status) and max(status.st_atime, status.st_mtime) < oldest:
                path.unlink()


# ---- who compiles ------------------------------------------------------------------------


@contextmanager
def compile_lock(path: Path) -> Iterator[None]:
    """Let processes that want the same kernel at once go one after the other.

    The first one compiles; whoever comes after it should look for the file again. The system lets a
    lock go with its owner, however that ends. Where files cannot be locked, or nothing has happened
    for WAIT_SECONDS, nobody waits.
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
            lock.unlink()  # who waits for it finds the kernel


def _wait_for_lock(handle: int, path: Path) -> None:
    """Lock a file, or see that there is nothing to wait for any more."""
    end = time.monotonic() + LOCK_TIMEOUT
    while not _try_lock(handle) and not path.exists() and time.monotonic() < end:
        time.sleep(POLL_SECONDS)


def _try_lock(handle: int) -> bool:
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


FOLDER = Path(__file__).with_name("objects")
# Changes where objects have to be others though no source in this folder is: such as what the
# build does to code that it has compiled.
FORMAT = "1"

V3 = (
    "avx,avx2,bmi,bmi2,cmov,crc32,cx16,cx8,f16c,fma,fxsr,lzcnt,mmx,movbe,popcnt,sahf,"
    "sse,sse2,sse3,sse4.1,sse4.2,ssse3,xsave"
)
V4 = V3 + ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"


class Level(NamedTuple):
    """A class of CPUs: LLVM's name for the plainest of them, and what all of them can do."""

    name: str
    cpu: str
    features: str  # with commas
    machine: str
    base_level: str = ""  # a lower level that is asked next: this one has what differs from it

    def runs_on(self, features: frozenset[str]) -> bool:
        """Whether a CPU of these features can run what is compiled for this level."""
        return features.issuperset(self.features.split(","))

    @property
    def flags(self) -> str:
        """The features as LLVM reads them."""
        return ",".join("+" + feature for feature in self.features.split(","))


# The highest first. The instruction that sorts bytes of whole registers (registers.py) is in no
# level of x86-64; all AVX-512 CPUs but the first generation have it.
LEVELS = (
    Level("x86-64-v4-vbmi", "x86-64-v4", V4 + ",avx512vbmi", "x86_64", base_level="x86-64-v4"),
    Level("x86-64-v4", "x86-64-v4", V4, "x86_64"),
    Level("x86-64-v3", "x86-64-v3", V3, "x86_64"),
    Level("armv8-a", "generic", "fp-armv8,neon", "aarch64"),
)


def find(family: str, spec: str, sources: str, features: frozenset[str]) -> bytes | None:
    """The object of a kernel for the highest level that this CPU is of, None where none came along.

    `spec`: all literals as text; `sources`: the digest of what the kernel is made of.
    """
    for level in _levels(features):
        key = key_of(level, spec, sources)
        try:
            data = (FOLDER / file_name(family, key)).read_bytes()
        except OSError:
            continue
        return unpack(data, key)
    return None


def key_of(level: Level, spec: str, sources: str) -> str:
    """All that shaped an object, as text."""
    system = f"{sys.platform} {sys.maxsize}"
    return "\n".join(["shipped", FORMAT, system, sources, level.cpu, level.features, spec])


def _levels(features: frozenset[str]) -> Iterator[Level]:
    """The highest level of a CPU, and the one beside which it has few kernels."""
    level = next((level for level in LEVELS if level.runs_on(features)), None)
    while level is not None:
        yield level
        level = next((level for level in LEVELS if level.name == level.base_level), None)
