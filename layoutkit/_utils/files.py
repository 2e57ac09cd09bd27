"""A file that appears under its name only when it is complete.

Where the system can (Linux), the file has no name at all while it is written, so that not
even a killed process or a power cut leaves anything behind. Elsewhere it is a hidden file
beside the target, removed when the block ends in any way but success.

Knows files and the system; knows nothing of what is in them.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing", "reserve", "resolved"]

_ZEROS = bytes(1 << 20)
_TRIES = 100  # to find a name that nobody has taken

# What a file system answers that cannot create a file without a name, or cannot claim space.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EISDIR}


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the name `path` when the block ends without an exception.

    Until then, and for ever if the block raises, whatever stands at `path` stays as it was.
    A link at `path` is followed, and an existing file's permissions are kept. Whoever writes the
    same `path` meanwhile, in a thread or process or on another machine, does so undisturbed: who
    ends last has the name.
    """
    path = resolved(path)
    with _speaking_of(path):
        file, name = _create(path)
    try:
        with file:
            yield file
            with _speaking_of(path):
                _keep_mode(file, path)
                file.flush()
                # Without this a power cut after the renaming could leave a file of zeros.
                os.fsync(file.fileno())
                name = name or _linked(file, path)
        with _speaking_of(path):  # closed, since Windows renames no file that is open
            name.replace(path)
            name = None
    finally:
        if name is not None:
            name.unlink(missing_ok=True)


def resolved(path: Path) -> Path:
    """Where a path leads by all its links; OSError where they lead in a circle."""
    with suppress(RuntimeError):  # what Python before 3.13 says of a circle
        found = path.resolve()
        if not found.is_symlink():
            return found
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def reserve(file: BinaryIO, nbytes: int) -> None:
    """Claim the disk space of the whole file now, and leave the position at its start.

    Exists because a memory map over a hole reports a full disk as a bus error, which kills
    the process; with the space claimed, a full disk is an OSError before any work is done.
    """
    try:
        os.posix_fallocate(file.fileno(), 0, nbytes)
    except AttributeError:  # macOS and Windows
        _write_zeros(file, nbytes)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _write_zeros(file, nbytes)


def _write_zeros(file: BinaryIO, nbytes: int) -> None:
    whole, rest = divmod(nbytes, len(_ZEROS))
    for _ in range(whole):
        file.write(_ZEROS)
    file.write(_ZEROS[:rest])
    file.flush()
    file.seek(0)


@contextmanager
def _speaking_of(path: Path) -> Iterator[None]:
    """Of the names that an error could be about, only `path` means anything to the caller."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _create(path: Path) -> tuple[BinaryIO, Path | None]:
    """A new file beside `path`: without a name, or with one of its own."""
    # Only /proc can give the file a name later.
    if hasattr(os, "O_TMPFILE") and hasattr(os, "link") and Path("/proc/self/fd").is_dir():
        try:
            descriptor = os.open(path.parent, os.O_RDWR | os.O_TMPFILE, 0o666)
            return os.fdopen(descriptor, "r+b"), None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    for name in _names(path):
        with suppress(FileExistsError):
            return os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "r+b"), name
    raise _no_name(path)


def _linked(file: BinaryIO, path: Path) -> Path:
    """A name beside `path` for a file that has none."""
    source = f"/proc/self/fd/{file.fileno()}"
    for name in _names(path):
        with suppress(FileExistsError):
            # Python follows the link in /proc only when it is told of a folder; the path is
            # absolute, so which folder makes no difference.
            os.link(source, name, src_dir_fd=file.fileno(), follow_symlinks=True)
            return name
    raise _no_name(path)


def _names(path: Path) -> Iterator[Path]:
    """Hidden names beside `path`, by chance: a process id is that of many, in containers 1."""
    for _ in range(_TRIES):
        yield path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")


def _no_name(path: Path) -> OSError:
    return OSError(errno.EEXIST, f"{_TRIES} temporary names beside it are taken", str(path))


def _keep_mode(file: BinaryIO, path: Path) -> None:
    if hasattr(os, "fchmod"):  # Windows has no modes to keep
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
