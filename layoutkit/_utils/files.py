"""Atomic file writes: a file gets its name only when it is complete.

On Linux the file has no name while it is written, so that a killed process or a power cut leaves
nothing behind. Elsewhere it is a hidden file beside the target, removed if writing fails.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_ZEROS = bytes(1 << 20)
_TRIES = 100  # attempts to find an unused name

# Errors of a file system that cannot create an unnamed file, or cannot reserve space.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EISDIR}


@contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the name `path` when the block ends without an exception.

    Until then, and also if the block raises, an existing file at `path` is not changed. A link at
    `path` is followed, and an existing file's permissions are kept. Several threads, processes or
    machines may write the same `path` at the same time: the last one to finish wins.
    """
    path = resolve_links(path)
    with _errors_name(path):
        file, name = _create(path)
    try:
        with file:
            yield file
            with _errors_name(path):
                _keep_mode(file, path)
                file.flush()
                # Without fsync a power cut after the renaming could leave a file of zeros.
                os.fsync(file.fileno())
                name = name or _link(file, path)
        with _errors_name(path):  # closed first: Windows cannot rename an open file
            name.replace(path)
            name = None
    finally:
        if name is not None:
            name.unlink(missing_ok=True)


def resolve_links(path: Path) -> Path:
    """Return the path with all links followed; raise OSError if the links form a cycle."""
    with suppress(RuntimeError):  # raised for a cycle before Python 3.13
        target = path.resolve()
        if not target.is_symlink():
            return target
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def reserve_space(file: BinaryIO, nbytes: int) -> None:
    """Reserve the disk space of the whole file now, and leave the position at its start.

    A memory map over a hole reports a full disk as a bus error, which kills the process. With
    reserved space, a full disk is an OSError before any work is done.
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
    full_blocks, rest = divmod(nbytes, len(_ZEROS))
    for _ in range(full_blocks):
        file.write(_ZEROS)
    file.write(_ZEROS[:rest])
    file.flush()
    file.seek(0)


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Raise any OSError again with `path`, instead of a temporary name, as its file name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _create(path: Path) -> tuple[BinaryIO, Path | None]:
    """Open a new file beside `path`, without a name or with a temporary one."""
    # Only a link through /proc can give the unnamed file a name later.
    if hasattr(os, "O_TMPFILE") and hasattr(os, "link") and Path("/proc/self/fd").is_dir():
        try:
            descriptor = os.open(path.parent, os.O_RDWR | os.O_TMPFILE, 0o666)
            return os.fdopen(descriptor, "r+b"), None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    for name in _temporary_names(path):
        with suppress(FileExistsError):
            return os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "r+b"), name
    raise _names_taken(path)


def _link(file: BinaryIO, path: Path) -> Path:
    """Link an unnamed file under a temporary name beside `path`, and return that name."""
    source = f"/proc/self/fd/{file.fileno()}"
    for name in _temporary_names(path):
        with suppress(FileExistsError):
            # Python follows the link in /proc only if src_dir_fd is passed. The path is
            # absolute, so the value is ignored.
            os.link(source, name, src_dir_fd=file.fileno(), follow_symlinks=True)
            return name
    raise _names_taken(path)


def _temporary_names(path: Path) -> Iterator[Path]:
    """Yield random hidden names beside `path`. (Process ids are not unique: containers have 1.)"""
    for _ in range(_TRIES):
        yield path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")


def _names_taken(path: Path) -> OSError:
    return OSError(errno.EEXIST, f"{_TRIES} temporary names beside it are taken", str(path))


def _keep_mode(file: BinaryIO, path: Path) -> None:
    if hasattr(os, "fchmod"):  # Windows has no file modes
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
