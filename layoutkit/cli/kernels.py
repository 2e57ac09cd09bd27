"""`layoutkit warmup` and `layoutkit cache`: compile or load kernels; their folder."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._utils.validation import escape_controls
from ..collator import Collator
from ..errors import ArgumentError
from ..kernels.cpu.compiler import cache_dir
from ..kernels.cpu.object_cache import CACHE_FILE
from ..options import CollateOptions
from .options import read_collator, read_options

BATCH_SIZE = 32
_OF_CONVERSIONS = (
    "pattern", "shape", "from_dtype", "dtype", "scale", "mean", "std", "clip", "casting",
)  # fmt: skip
_OF_BATCHES = ("resize", "fit", "short_side", "flip")
_NOT_IN_FILES = {"shape", "from_dtype"}  # an array is described beside its options


def load_kernels(arguments: argparse.Namespace) -> list[str]:
    """Load the kernels of the command line, or the usual ones; return their names."""
    keywords = {name: getattr(arguments, name) for name in (*_OF_CONVERSIONS, *_OF_BATCHES)}
    keywords = {name: value for name, value in keywords.items() if value is not None}
    keywords |= arguments.size
    if arguments.options is not None:
        return _load_for_file(arguments.options, keywords, arguments.batch_size)
    required = {"pattern": "PATTERN", "shape": "--shape"}
    missing = [word for name, word in required.items() if name not in keywords]
    if missing and (keywords or arguments.batch_size):
        raise ArgumentError(
            f"a kernel needs a PATTERN and a --shape: also give {' and '.join(missing)}, "
            "or nothing for the usual kernels; see layoutkit warmup --help"
        )
    if arguments.batch_size is None:
        if name := next((name for name in _OF_BATCHES if name in keywords), None):
            raise ArgumentError(f"{_option(name)}: applies to batches; give --batch-size, too")
        return _warm_up(keywords)
    return _load_for_batch(
        keywords.pop("shape"),
        keywords.pop("from_dtype", "uint8"),
        Collator(keywords.pop("pattern"), **_with_random_flip(keywords)),
        arguments.batch_size,
    )


def _load_for_file(path: Path, keywords: dict[str, Any], batch_size: int | None) -> list[str]:
    """Load the kernels of the options in a file, for an array or for samples of one shape."""
    for name in keywords.keys() - _NOT_IN_FILES:
        raise ArgumentError(f"{_option(name)}: --options has all options; omit one of the two")
    if "shape" not in keywords:
        raise ArgumentError("--options: also give --shape, of an array or of a sample")
    options = read_options(path)
    if isinstance(options, CollateOptions):
        dtype = keywords.get("from_dtype", "uint8")
        size = batch_size or BATCH_SIZE
        return _load_for_batch(keywords["shape"], dtype, read_collator(path), size)
    if batch_size is not None:
        raise ArgumentError(f"--batch-size: {path} has the options of a Converter; omit it")
    stored = {"pattern": options.pattern.text, **options.sizes, **options.keywords()}
    return _warm_up(stored | keywords)


def _warm_up(keywords: dict[str, Any]) -> list[str]:
    from .. import warmup

    return warmup(**keywords)


def _load_for_batch(shape: tuple[int, ...], dtype: str, collator: Collator, size: int) -> list[str]:
    if collator.windows.is_one_array:
        return collator.warmup(shape, dtype=dtype)
    return collator.warmup([shape] * size, dtype=dtype)


def _with_random_flip(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords of a Collator that mirrors samples at random along the axis `flip`."""
    flip = keywords.get("flip")
    return keywords if flip is None else keywords | {"flip": {flip: "random"}}


def _option(name: str) -> str:
    """Return the option of a keyword."""
    return "--" + {"resize": "filter"}.get(name, name).replace("_", "-")


def show_cache() -> None:
    """Print the folder of compiled kernels, their number and their size."""
    folder = _find_folder()
    print(f"{escape_controls(str(folder))}: {_describe(list(_cache_files(folder)))}")


def clear_cache() -> None:
    """Remove all compiled kernels, and their folder if it has no other files.

    Processes that run now keep the kernels that they have loaded.
    """
    folder = _find_folder()
    files = list(_cache_files(folder))
    text = f"{escape_controls(str(folder))}: removed {_describe(files)}"
    for path in files:
        path.unlink(missing_ok=True)  # another process may remove it, too
    with suppress(OSError):  # missing, or with files of others
        folder.rmdir()
    print(text)


def _find_folder() -> Path:
    folder = cache_dir()
    if folder is None:
        raise ArgumentError("the home folder is unknown; name a folder in LAYOUTKIT_CACHE_DIR")
    return folder


def _cache_files(folder: Path) -> Iterator[Path]:
    """Yield the files in the folder that have names of kernels; not in folders inside of it."""
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if CACHE_FILE.fullmatch(path.name))


def _describe(files: list[Path]) -> str:
    """Return the number and the size of files as text."""
    nbytes = sum(path.lstat().st_size for path in files)
    return f"{len(files)} {'kernel' if len(files) == 1 else 'kernels'}, {nbytes / 1e6:.1f} MB"
