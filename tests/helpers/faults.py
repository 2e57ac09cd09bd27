"""Fault injection, as in SQLite's tests: the n-th allocation or system call of a kind fails."""

import builtins
import contextlib
import errno
import io
import mmap
import os
import threading
from unittest import mock

from layoutkit import buffers

# The error of each kind; None is a MemoryError.
KINDS = {
    "allocate": None,
    "open": errno.EMFILE,
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "fsync": errno.EIO,
    "rename": errno.EIO,
    "mmap": errno.ENOMEM,
}
_FUNCTIONS = {
    "open": ["open"],
    "read": ["read", "pread"],
    "write": ["write", "posix_fallocate"],
    "fsync": ["fsync"],
    "rename": ["replace", "rename", "link"],
}


class Faults:
    """A counter of the calls of one kind: the n-th fails, and if `lasting`, all later ones."""

    def __init__(self, kind, number, lasting=False):
        self.kind = kind
        self.number = number
        self.lasting = lasting
        self.calls = 0
        self.injected = 0
        self.lock = threading.Lock()

    def count(self, kind, *names):
        """Count a call; raise the error of its kind if it is one that fails."""
        if kind != self.kind:
            return
        with self.lock:
            self.calls += 1
            if self.calls < self.number or (self.calls > self.number and not self.lasting):
                return
            self.injected += 1
        code = KINDS[kind]
        if code is None:
            raise MemoryError("injected")
        raise OSError(code, os.strerror(code), *names)


@contextlib.contextmanager
def injected(kind, number, lasting=False):
    """Let the n-th call of a kind fail within the block; yield the Faults, which count calls."""
    faults = Faults(kind, number, lasting)
    with contextlib.ExitStack() as patches:
        for each, names in _FUNCTIONS.items():
            for name in filter(lambda name: hasattr(os, name), names):
                patches.enter_context(mock.patch.object(os, name, _counted(faults, each, name)))
        opener = _opener(faults)
        patches.enter_context(mock.patch.object(io, "open", opener))
        patches.enter_context(mock.patch.object(builtins, "open", opener))
        patches.enter_context(mock.patch.object(mmap, "mmap", _mmap_class(faults)))
        take = buffers.Pool.take
        patches.enter_context(
            mock.patch.object(
                buffers.Pool,
                "take",
                lambda pool, size: faults.count("allocate") or take(pool, size),
            )
        )
        yield faults


def _counted(faults, kind, name):
    function = getattr(os, name)

    def call(*args, **kwargs):
        # As in the operating system, only errors of paths have the names of their files.
        names = [name for name in args[:1] if kind == "open"]
        if kind == "rename":
            names = [args[0], None, args[1]]
        faults.count(kind, *names)
        return function(*args, **kwargs)

    return call


def _mmap_class(faults):
    class Mmap(mmap.mmap):
        def __new__(cls, *args, **kwargs):
            faults.count("mmap")
            return super().__new__(cls, *args, **kwargs)

    return Mmap


def _opener(faults):
    """Return `open` with files whose system calls are counted."""

    class File(io.FileIO):
        def __init__(self, file, *args):
            if not isinstance(file, int):
                faults.count("open", file)
            super().__init__(file, *args)

        def readinto(self, buffer):
            faults.count("read")
            return super().readinto(buffer)

        def read(self, size=-1):
            faults.count("read")
            return super().read(size)

        def readall(self):
            faults.count("read")
            return super().readall()

        def write(self, data):
            faults.count("write")
            return super().write(data)

    def opened(
        file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True,
        opener=None,
    ):  # fmt: skip
        raw = File(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom if "+" in mode else io.BufferedWriter
        binary = (io.BufferedReader if mode[0] == "r" and "+" not in mode else buffered)(raw)
        if "b" in mode:
            return binary
        text = io.TextIOWrapper(binary, encoding, errors, newline)
        text.mode = mode
        return text

    return opened
