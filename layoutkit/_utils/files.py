"""Atomic file writes: a file gets its name only when it is complete.

On Linux the file has no name while it is written, so that a killed process or a power cut leaves
nothing. Elsewhere it is a hidden file beside the target, removed if writing fails.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from . import system
from .errors import name_in_errors

_ZEROS = bytes(1 << 20)
_TRIES = 100  # attempts to find an unused name

# Errors of a file system that cannot create an unnamed file, or cannot reserve space.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EISDIR}

# Errors of a file system without hard links, and of a file that cannot have another one.
_NO_LINKS = _UNSUPPORTED | {errno.EPERM, errno.EACCES, errno.EMLINK, errno.EXDEV}


@contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that gets the name `path` when the block ends without an exception.

    Until then, and also if the block raises, an existing file at `path` is not changed. A link at
    `path` is followed, and an existing file's permissions are kept. Several threads, processes or
    machines may write the same `path` at the same time: the last one to finish wins.
    """
    with AtomicFiles() as files:
        yield files.open(path)


class AtomicFiles:
    """A context manager of new files, which get their names together, as `replace_atomically`.

    Every file is complete on the disk before the first one gets its name. If a name cannot be
    given, the files that had the other names get them back, unless the file system has no links.
    """

    def __init__(self) -> None:
        self._files: list[_NewFile] = []

    def open(self, path: Path) -> BinaryIO:
        """Return a new file that gets the name `path` when the block ends."""
        path = resolve_links(path)
        with name_in_errors(path, replace=True):
            self._files.append(_NewFile(path, *_create(path)))
        return self._files[-1].file

    def __enter__(self) -> AtomicFiles:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            if exc_type is None:
                for file in self._files:
                    file.flush()
                for file in self._files:
                    file.link()
                self._rename()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close and remove the files that do not have their names yet."""
        while self._files:
            self._files.pop().discard()

    def __del__(self) -> None:
        self.discard()

    def _rename(self) -> None:
        renamed: list[_NewFile] = []
        try:
            for file in self._files:
                file.rename(keep_old=file is not self._files[-1])
                renamed.append(file)
        except BaseException:
            for file in reversed(renamed):
                file.undo_rename()
            raise


@dataclass
class _NewFile:
    """A new file, its path, and its temporary name while it has one.

    old : another name of the file that had the path before, until all files have their names
    is_first : True if there was no such file
    """

    path: Path
    file: BinaryIO
    name: Path | None
    old: Path | None = None
    is_first: bool = False

    def flush(self) -> None:
        with name_in_errors(self.path, replace=True):
            _keep_mode(self.file, self.path)
            self.file.flush()
            # Without fsync a power cut after the renaming could leave a file of zeros.
            os.fsync(self.file.fileno())

    def link(self) -> None:
        """Give the file a temporary name, and close it."""
        with name_in_errors(self.path, replace=True):
            self.name = self.name or _link(self.file, self.path)
            self.file.close()  # Windows cannot rename an open file

    def rename(self, keep_old: bool) -> None:
        """Give the file its name; with `keep_old`, `undo_rename` can revert it."""
        with name_in_errors(self.path, replace=True):
            if keep_old:
                self.is_first = not self.path.exists()
                self.old = None if self.is_first else _second_name(self.path)
            if self.name is not None:
                self.name.replace(self.path)
        self.name = None

    def undo_rename(self) -> None:
        """Give the name back to the file that had it, or remove the file if none had it."""
        with suppress(OSError):
            if self.old is not None:
                self.old.replace(self.path)
                self.old = None
            elif self.is_first:
                self.path.unlink()

    def discard(self) -> None:
        """Close the file and remove its temporary names."""
        with suppress(OSError):  # its unwritten bytes are not needed
            self.file.close()
        for name in (self.name, self.old):
            if name is not None:
                with suppress(OSError):
                    name.unlink(missing_ok=True)


class _NamedErrorsFile(io.FileIO):
    """A raw file whose errors of writing contain the path that the file will have."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor, "r+b")
        self.name = str(path)  # for messages about other errors
        self._path = path

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        with name_in_errors(self._path, replace=True):
            return os.write(self.fileno(), data)


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
        system.allocate(file.fileno(), nbytes)
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


def _create(path: Path) -> tuple[BinaryIO, Path | None]:
    """Open a new file beside `path`, without a name or with a temporary one."""
    # Only a link through /proc can give the unnamed file a name later.
    if system.can_open_unnamed():
        try:
            descriptor = os.open(path.parent, os.O_RDWR | os.O_TMPFILE, 0o666)
            return _buffered(descriptor, path), None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    for name in _temporary_names(path):
        with suppress(FileExistsError):
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            return _buffered(descriptor, path), name
    raise _names_taken(path)


def _buffered(descriptor: int, path: Path) -> BinaryIO:
    return io.BufferedRandom(_NamedErrorsFile(descriptor, path))


def _second_name(path: Path) -> Path | None:
    """Link the file at `path` under a second name; return None if it cannot have one."""
    if not system.can_link():
        return None
    for name in _temporary_names(path):
        try:
            os.link(path, name)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno in _NO_LINKS:
                return None
            raise
        return name
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
    with suppress(FileNotFoundError):
        system.set_mode(file.fileno(), stat.S_IMODE(path.stat().st_mode))
