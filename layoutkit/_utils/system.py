"""The functions of operating systems that not all of them have, each with its replacement.

Linux has all of them, macOS fewer and Windows fewest. Other modules call this one and do not ask
which system they run on. The functions look for what they need when they are called, so that tests
on Linux can remove it. Files in /proc and /sys are read by the modules that use their contents, and
an unreadable file is an unknown number there.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_seeking = threading.Lock()


# ---- CPUs and processes ------------------------------------------------------------------


def allowed_cpus() -> set[int] | None:
    """Return the CPUs that this process may use; None on macOS and Windows, which do not tell."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def count_cpus() -> int:
    """Return the number of CPUs that this process may use, or else of the machine."""
    return len(allowed_cpus() or ()) or os.cpu_count() or 1


def register_at_fork(**handlers: Callable[[], object]) -> None:
    """Call `os.register_at_fork`; Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**handlers)


def interrupt_calls(signal_number: int) -> None:
    """Let a signal interrupt system calls, if the system would restart them (not Windows)."""
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(signal_number, True)


# ---- users -------------------------------------------------------------------------------


def user_id() -> int | None:
    """Return the number of this user; None on Windows, where files have no owner and no mode."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def is_own_group(gid: int) -> bool:
    """Return True if a group has the name of this user and no other members."""
    try:
        import grp
        import pwd

        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except (ImportError, KeyError):  # Windows; ids without a name
        return False
    if gid == 0 or (gid, group.gr_name) != (user.pw_gid, user.pw_name):
        return False
    members = {*group.gr_mem, *(entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == gid)}
    return members <= {user.pw_name}


def has_acl(path: Path) -> bool:
    """Return True if a folder has a POSIX ACL: the group bits then include the users it names."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):  # another system; a file system without ACLs
        return False


def cache_folder() -> Path | None:
    """Return the user's folder for caches of layoutkit, or None if the home folder is unknown."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return Path(base, "layoutkit", "Cache") if base else None
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"], "layoutkit")
    try:
        return Path.home() / ".cache" / "layoutkit"
    except RuntimeError:  # the user is not in the password database
        return None


# ---- files -------------------------------------------------------------------------------


def open_flags(*names: str) -> int:
    """Return the flags of `os.open` with these names; those that the system lacks are omitted."""
    return sum(getattr(os, name, 0) for name in names)


def can_link() -> bool:
    """Return True if files can have a second name."""
    return hasattr(os, "link")


def can_open_unnamed() -> bool:
    """Return True if files can be opened without a name, and get one later by a link in /proc."""
    return hasattr(os, "O_TMPFILE") and can_link() and Path("/proc/self/fd").is_dir()


def set_mode(file: int, mode: int) -> None:
    """Set the mode of an open file; Windows has no file modes."""
    if hasattr(os, "fchmod"):
        os.fchmod(file, mode)


def allocate(file: int, size: int) -> None:
    """Reserve the disk space of a file; OSError if the disk is full or the system cannot."""
    if not hasattr(os, "posix_fallocate"):  # macOS and Windows
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    os.posix_fallocate(file, 0, size)


def read_at(file: int, size: int, start: int) -> bytes:
    """Read up to `size` bytes of an open file that other threads read, too."""
    if hasattr(os, "pread"):
        return os.pread(file, size, start)
    with _seeking:  # Windows, where no process is forked with the file
        os.lseek(file, start, os.SEEK_SET)
        return os.read(file, size)


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed; return False if another process holds the lock.

    Files that cannot be locked count as locked: on Windows, and on some network file systems.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


@contextmanager
def process_lock(file: int) -> Iterator[None]:
    """Hold the lock of a file that processes share; the system unlocks for a killed process."""
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


# ---- memory ------------------------------------------------------------------------------


def machine_memory() -> int | None:
    """Return the memory of the machine in bytes; None if the system does not tell, as Windows."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def shared_memory_file(size: int) -> int | None:
    """Return the descriptor of a new file in memory; None on macOS and Windows, which have none."""
    if not hasattr(os, "memfd_create"):
        return None
    file = os.memfd_create("layoutkit", os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    return file


def can_map_privately() -> bool:
    """Return True if memory can be mapped that a forked child does not share."""
    return hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MAP_ANONYMOUS")


def advise_huge_pages(pages: mmap.mmap, start: int, size: int) -> None:
    """Ask for huge pages in a part of a mapping; without them it is slower."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE, start, size)


def huge_page_advice() -> tuple[int, int]:
    """Return the address of C's `madvise` and its argument for huge pages, or zeros."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return 0, 0
    address = ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value
    return address or 0, mmap.MADV_HUGEPAGE
