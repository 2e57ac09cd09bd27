"""A file that appears under its name only when it is complete.

Where the system can (Linux), the file has no name at all while it is written, so that not
even a killed process or a power cut leaves anything behind. Elsewhere it is a hidden file
beside the target, removed when the block ends in any way but success.

Knows files and the system; knows nothing of what is in them.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing", "reserve"]

_ZEROS = bytes(1 << 20)

# What a file system answers that cannot create a file without a name, or cannot claim space.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EISDIR}


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the name `path` when the block ends without an exception.

    Until then, and for ever if the block raises, whatever stands at `path` stays as it was.
    A link at `path` is followed, and an existing file's permissions are kept.
    """
    path = path.resolve()
    name = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        file = _create(name)
    except OSError as error:
        # Of the two names only `path` means anything to the caller.
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with file:
            yield file
            _keep_mode(file, path)
            file.flush()
            # Without this a power cut after the renaming could leave a file of zeros.
            os.fsync(file.fileno())
            _give_name(file, name)
            name.replace(path)
    finally:
        name.unlink(missing_ok=True)


def reserve(file: BinaryIO, nbytes: int) -> None:
    """Claim the disk space of the whole file now, and leave the position at its start.

    Exists because a memory map over a hole reports a full disk as a bus error, which kills
    the process; with the space claimed, a full disk is an OSError before any work is done.
    """
    try:
        os.posix_fallocate(file.fileno(), 0, nbytes)
    except AttributeError:  # macOS
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


def _create(name: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        # Only /proc can give the file a name later.
        if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").is_dir():
            raise OSError(errno.EOPNOTSUPP, "unnamed files")
        descriptor = os.open(name.parent, flags | os.O_TMPFILE, 0o666)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666)
    return os.fdopen(descriptor, "r+b")


def _give_name(file: BinaryIO, name: Path) -> None:
    if os.fstat(file.fileno()).st_nlink:
        return
    source = f"/proc/self/fd/{file.fileno()}"
    # Python follows the link in /proc only when it is told of a folder; the path is absolute,
    # so which folder makes no difference.
    os.link(source, name, src_dir_fd=file.fileno(), follow_symlinks=True)


def _keep_mode(file: BinaryIO, path: Path) -> None:
    if path.exists():
        os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
