"""Local files that stay open while many records of them are read.

To open, ask and close takes longer than to read a picture, and each is a moment in which a thread
lets go of the interpreter's lock. For containers, which are few; URLs are the Reader's as before.
"""

from __future__ import annotations

import os
import threading
import weakref

from .local import opened_file, read_at
from .reader import Reader
from .urls import local_path

__all__ = ["KeptFiles"]

_MOST = 64  # files


class KeptFiles(Reader):
    """A Reader of containers; what cannot be read at once it reads as any, which says why."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, int | None] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._files)

    def read(self, url: str, offset: int | None = None, length: int | None = None) -> bytes:
        """The bytes `url[offset : offset + length]`, as `Reader.read` gives them."""
        file = self._files[url] if url in self._files else self._opened(url)
        if file is not None and length is not None:
            try:
                data = read_at(file, length, offset or 0)
            except OSError:
                data = b""
            if len(data) == length:
                return data
        return super().read(url, offset, length)

    def close(self) -> None:
        """Let go of files and connections; what is read after is opened anew each time."""
        with self._lock:
            _close(self._files)
        super().close()

    def _opened(self, url: str) -> int | None:
        """The descriptor of a local file; None for those that the Reader opens."""
        with self._lock:
            if url not in self._files and len(self._files) < _MOST:
                local = local_path(url)
                try:
                    self._files[url] = None if local is None else opened_file(local)[0]
                except (OSError, ValueError):
                    return None
            return self._files.get(url)


def _close(files: dict[str, int | None]) -> None:
    for url, file in [*files.items()]:
        files[url] = None
        if file is not None:
            os.close(file)
