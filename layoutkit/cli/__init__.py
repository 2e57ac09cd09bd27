"""The command `layoutkit`: conversions of files, plans in words, timings.

Each command imports what it needs when it runs, so that `layoutkit --help` answers at once.

What the command line is made of: arguments, files in and out, and pictures of layouts.
"""

import argparse
import errno
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from ..errors import ArgumentError, LayoutkitError, PatternError
from .parser import parse, warmup_request
from .printing import accept_all_text, as_options, printable

__all__ = ["main"]


_MISTAKE = 2
_UNEXPECTED = 70  # what systems call an error of the software
_INTERRUPTED = 128 + signal.SIGINT

# What a user can do about the failures of the system.
_FIXES = {
    errno.EACCES: "choose a place that you may read and write",
    errno.EISDIR: "give the name of a file",
    errno.ENOENT: "check the path",
    errno.ENOSPC: "make room or write it elsewhere",
    errno.ENOTDIR: "check the path",
    errno.EPERM: "choose a place that you may read and write",
    errno.EROFS: "choose a place that you may read and write",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 after a mistake, 130 after Ctrl-C."""
    accept_all_text()
    try:
        arguments = parse(argv)
        with _termination_unwinds():
            code = _COMMANDS[arguments.command](arguments)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        print("layoutkit: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output (`head`, a pager) has seen enough. Python flushes once more
        # at exit and would complain, so that goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LayoutkitError, OSError, MemoryError) as error:
        # A pattern is shown over several lines, with a caret; else a newline is of a file's name.
        keep = "\n" if isinstance(error, PatternError) else ""
        words = as_options(_describe(error))
        print(f"layoutkit: error: {printable(words, keep)}", file=sys.stderr)
        return _MISTAKE
    except Exception as error:
        if os.environ.get("LAYOUTKIT_TRACEBACK"):
            raise
        print(f"layoutkit: error: {printable(_unexpected(error))}", file=sys.stderr)
        return _UNEXPECTED


def _describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; give --chunk a smaller number of samples"
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{error.filename}: "
        fix = _FIXES.get(error.errno or 0)
        return f"{place}{error.strerror}" + (f"; {fix}" if fix else "")
    return str(error)


def _unexpected(error: Exception) -> str:
    words = f"{type(error).__name__}: {error}"
    return (
        f"unexpected {words}; this is a mistake in layoutkit: please report it, with what "
        "LAYOUTKIT_TRACEBACK=1 in front of the command shows"
    )


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Let a polite kill unwind the stack, so that an unfinished file is removed."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not in the main thread: whoever runs that decides
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _formula(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("scale", "mean", "std")}


def _convert(arguments: argparse.Namespace) -> int:
    from ..data.io.zarr import is_store
    from .inputs import named, open_source
    from .outputs import check_destination, destination_of, folder_beside
    from .streaming import FileJob, convert_to_file

    options = {"dtype": arguments.dtype, **_formula(arguments)}
    if arguments.casting is not None:
        options["casting"] = arguments.casting
    if arguments.channels is not None:
        options["channels"] = arguments.channels
    job = FileJob(arguments.pattern, options, arguments.size, arguments.chunk, arguments.quiet)
    # Whatever is wrong with the pattern or the formula comes out before a file is touched.
    job.converter()
    if is_store(arguments.dst):
        return _convert_to_store(arguments, job)
    if arguments.scheduler is not None:
        raise ArgumentError(
            "--scheduler: is for chunks of a store, as one process writes a .npy; name DST "
            "something.zarr, and convert that to .npy if you need one"
        )
    destination = destination_of(arguments.dst)
    check_destination(arguments.src, destination)
    windows = {"crop": arguments.crop, "flip": arguments.flip}
    pictures = _pictures(arguments, skip_bad=arguments.skip_bad, **windows)
    with open_source(arguments.src, job, pictures, folder_beside(destination)) as source:
        convert_to_file(source, named(arguments.src), destination, job)
    return 0


def _convert_to_store(arguments: argparse.Namespace, job: Any) -> int:
    from .zarr import convert_to_store

    for name in ("chunk", "crop", "flip", "resize", "fit", "fill"):
        if getattr(arguments, name):
            raise ArgumentError(f"--{name}: is not for chunks of a store; convert to .npy first")
    if len(arguments.src) != 1:
        raise ArgumentError("one .zarr or .npy becomes a store; give one SRC")
    convert_to_store(arguments.src[0], arguments.dst, job, arguments.scheduler)
    return 0


def _pictures(arguments: argparse.Namespace, **others: Any) -> Any:
    from .inputs import Pictures

    given = arguments.resize, arguments.fit, arguments.fill
    return Pictures(*given, max_pixels=arguments.max_pixels, **others)


def _batches(arguments: argparse.Namespace) -> int:
    from .batches import BatchesRequest, make_batches

    options = {"dtype": arguments.dtype, **_formula(arguments)}
    names = ("sampler", "batch_size", "seed", "epoch", "partition", "workers", "limit")
    given = {name: getattr(arguments, name) for name in (*names, "save", "preview")}
    pictures = _pictures(arguments)
    make_batches(BatchesRequest(arguments.src, arguments.to, options, pictures, **given))
    return 0


def _pack(arguments: argparse.Namespace) -> int:
    from .pack import PackRequest, pack

    names = "list_only resize quality encoding pass_through shuffle seed parts workers max_pixels"
    given = {name: getattr(arguments, name) for name in names.split()}
    pack(PackRequest(arguments.src, arguments.dst, **given))
    return 0


def _index(arguments: argparse.Namespace) -> int:
    from .pack import make_index

    make_index(arguments.src)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from .explain import explain

    asked = {"dtype": arguments.dtype, "to_dtype": arguments.to_dtype, **_formula(arguments)}
    explain(arguments.pattern, arguments.shape, asked, arguments.size, arguments.svg)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from ..bench import main as bench

    code: int = bench(
        quick=arguments.quick,
        plot=arguments.plot,
        json=arguments.json,
        device=arguments.device,
        loop=arguments.loop,
        saved=arguments.saved,
        others=arguments.others,
        collate=arguments.collate,
    )
    return code


def _info(_: argparse.Namespace) -> int:
    from .. import show_config

    show_config()
    return 0


def _warmup(arguments: argparse.Namespace) -> int:
    from .. import warmup

    began = time.perf_counter()
    kernels = warmup(**warmup_request(arguments))
    count = f"{len(kernels)} kernel is" if len(kernels) == 1 else f"{len(kernels)} kernels are"
    print(f"{count} ready after {time.perf_counter() - began:.1f} s:")
    print(*(f"  {kernel}" for kernel in kernels), sep="\n")
    return 0


_COMMANDS = {
    "convert": _convert,
    "batches": _batches,
    "pack": _pack,
    "index": _index,
    "explain": _explain,
    "bench": _bench,
    "info": _info,
    "warmup": _warmup,
}
