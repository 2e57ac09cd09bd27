"""The number of files that this process has open."""

import gc
import os
from pathlib import Path

import pytest

_FOLDER = Path("/proc/self/fd")
lists_open_files = pytest.mark.skipif(not _FOLDER.is_dir(), reason="only Linux lists what is open")


def count_open_files() -> int:
    """Return the number of open files, without those that only uncollected garbage keeps open."""
    gc.collect()
    return len(os.listdir(_FOLDER))
