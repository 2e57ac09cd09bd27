"""The files that a path with wildcards or braces means.

Knows names; opens nothing.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from ...errors import DataError
from ..reading.urls import is_url, joined, listed, local_path

__all__ = ["shards_of"]

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
_MOST = 10_000_000  # files that braces may mean


def shards_of(path: str) -> list[str]:
    """The files that a path or URL means: in the order of its braces, those of `*` by name.

    `part-{000..119}.tar`, `{train,test}.tar`, `parts/*.tar`. A path that is a file is that file.

    Raises DataError where there are none.
    """
    local = local_path(path)
    if local is not None and Path(local).exists():
        return [path]
    return [file for name in _expanded(path) for file in _matching(name)]


def _expanded(path: str) -> list[str]:
    """The names that braces stand for, the last braces changing fastest."""
    texts = _BRACES.split(path)
    choices = [[*_choices(text)] if place % 2 else [text] for place, text in enumerate(texts)]
    count = 1
    for each in choices:
        count *= len(each)
    if count > _MOST:
        raise DataError(f"{path} names {count} files, and the most is {_MOST}")
    return ["".join(parts) for parts in product(*choices)]


def _choices(text: str) -> Iterator[str]:
    """What one pair of braces may be; without `..` and commas it is what it says."""
    span = _RANGE.fullmatch(text)
    if span is None:
        yield from text.split(",") if "," in text else ["{" + text + "}"]
        return
    first, last = int(span[1]), int(span[2])
    if abs(last - first) >= _MOST:
        raise DataError(f"{{{text}}} names {abs(last - first) + 1} files, and the most is {_MOST}")
    width = max(map(len, span.groups())) if "0" in (span[1][0], span[2][0]) else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"


def _matching(path: str) -> list[str]:
    """The files whose names fit, sorted; a path without wildcards is itself."""
    name = path.rpartition("/")[2]
    if is_url(path) and not path.startswith("file://"):
        if not set("*[") & set(name):  # a question mark begins the query of a URL
            return [path]
        folder = path.rpartition("/")[0]
        found = [joined(folder, each) for each in listed(folder) if fnmatchcase(each, name)]
    else:
        if not set("*?[") & set(path):
            return [path]
        found = sorted(glob.glob(path.removeprefix("file://")))  # noqa: PTH207  # absolute ones, too
    if not found:
        raise DataError(f"{path} names no file; check the path")
    return found
