"""A file in the cache: its name says which URL it is of, how long it is and what is in it.

Others may be able to write the folder. So what stands under a name is used only if it is a regular
file of this user that has the length and the digest of its name; links are never followed, and a
pipe is not waited for.

Knows one file; which there are is not known here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Any, NamedTuple

from .local import opened_file

__all__ = ["Entry", "digest", "entry_of", "fits", "is_ours", "key_of", "opened_entry"]

_NAME = re.compile(r"([0-9a-f]{64})(?:-(\d{1,18})-([0-9a-f]{32}))?\.record")
_PIECE = 1 << 20


class Entry(NamedTuple):
    """What the name of a file says; one of an earlier version says neither size nor digest."""

    key: str
    size: int
    digest: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.key}-{self.size}-{self.digest}.record"


def entry_of(name: str) -> Entry | None:
    """What the name of a file says; None for files that are not of the cache."""
    found = _NAME.fullmatch(name)
    return found and Entry(found[1], int(found[2] or -1), found[3] or "")


def key_of(url: str) -> str:
    """What stands for a URL in names."""
    return hashlib.sha256(url.encode()).hexdigest()


def digest() -> Any:
    """What takes in the bytes of a file, and then gives what stands for them in names."""
    return hashlib.blake2b(digest_size=16)


def opened_entry(path: str, entry: Entry) -> int:
    """A descriptor of an entry; OSError where it is no regular file of ours of that length."""
    file, size = opened_file(path, getattr(os, "O_NOFOLLOW", 0))
    if size == entry.size and is_ours(os.fstat(file)):
        return file
    os.close(file)
    raise OSError("it is not the file that was kept under its name")


def is_ours(state: os.stat_result) -> bool:
    """Whether a file is a regular one of this user, with no other name."""
    own = not hasattr(os, "geteuid") or state.st_uid == os.geteuid()
    return own and stat.S_ISREG(state.st_mode) and state.st_nlink <= 1


def fits(file: int, entry: Entry) -> bool:
    """Whether the bytes of an entry are those that were kept."""
    found = digest()
    while piece := os.read(file, _PIECE):
        found.update(piece)
    return bool(found.hexdigest() == entry.digest)
