"""The `layoutkit` command: convert files, make batches, explain plans, run benchmarks.

A command imports its dependencies only when it runs, so that `layoutkit --help` starts fast.

batches       `layoutkit batches`: read, decode and convert the batches of an epoch
contactsheet  the preview image of a batch
crop          the option --crop: a window of every image
explain       `layoutkit explain`: a plan as text, and both memory orders as text or SVG
inputs        open a source: an array file, or image files as one batch
kernels       `layoutkit warmup` and `layoutkit cache`: compile or load kernels; their folder
options       files of options, of `--options` and of `explain --compare`
outputs       write `.npy` files, local or at an fsspec URL
pack          `layoutkit pack` and `layoutkit index`: RecordIO files and their indexes
parser        the command-line arguments, their types and the help texts
printing      print untrusted text safely on a terminal
streaming     convert an array of any size, one chunk at a time
watch         `layoutkit watch`: run a program, and report its copies because of layouts
zarr          convert into a zarr store, on threads or on a dask cluster
"""

import argparse
import errno
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from types import FrameType
from typing import Any, NoReturn

from .._utils.errors import describe_error
from .._utils.validation import escape_controls
from ..errors import ArgumentError, LayoutkitError, LayoutkitWarning, PatternError
from .parser import IMAGE_SIZE, parse
from .printing import (
    OptionalStream,
    escape_unencodable_output,
    keywords_to_options,
    open_closed_streams,
)

__all__ = ["main"]


_EXIT_ERROR = 2
_EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
_EXIT_INTERRUPTED = 128 + signal.SIGINT

# The advice that is printed with an OSError, by its errno.
_FIXES = {
    errno.EACCES: "choose a path that you may read and write",
    errno.EISDIR: "give a file name",
    errno.ENOENT: "check the path",
    errno.ENOSPC: "make room or write it elsewhere",
    errno.ENOTDIR: "check the path",
    errno.EPERM: "choose a path that you may read and write",
    errno.EROFS: "choose a path that you may read and write",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 after an error, 130 after Ctrl-C."""
    open_closed_streams()
    escape_unencodable_output()
    with redirect_stderr(OptionalStream(sys.stderr)):
        try:
            return _run(argv)
        finally:
            # Python flushes stdout at exit, too, and would change the exit code if that fails.
            OptionalStream(sys.stdout).flush()


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = parse(argv)
        with _sigterm_as_exit(), _warnings_without_lines(arguments.command):
            code = COMMANDS[arguments.command](arguments)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        print("layoutkit: interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader of the output (`head`, a pager) closed the pipe
    except (LayoutkitError, OSError, MemoryError) as error:
        # A PatternError shows a caret below the pattern; any other newline is part of a file name.
        keep = "\n" if isinstance(error, PatternError) else ""
        message = keywords_to_options(_describe(error))
        print(f"layoutkit: error: {escape_controls(message, keep)}", file=sys.stderr)
        return _EXIT_ERROR
    except Exception as error:
        if os.environ.get("LAYOUTKIT_TRACEBACK"):
            raise
        print(f"layoutkit: error: {escape_controls(_describe_unexpected(error))}", file=sys.stderr)
        return _EXIT_INTERNAL_ERROR


def _describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; give --chunk a smaller number of samples"
    if isinstance(error, OSError) and error.strerror:
        prefix = "" if error.filename is None else f"{error.filename}: "
        fix = _FIXES.get(error.errno or 0)
        return f"{prefix}{error.strerror}" + (f"; {fix}" if fix else "")
    return str(error)


def _describe_unexpected(error: Exception) -> str:
    return (
        f"unexpected {describe_error(error)}; this is a bug in layoutkit: please report it with "
        "the traceback, which the command prints if the environment has LAYOUTKIT_TRACEBACK=1"
    )


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Raise SystemExit on SIGTERM within the block, so that an unfinished file is removed."""

    def exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        previous = signal.signal(signal.SIGTERM, exit_on_signal)
    except ValueError:  # only the main thread can set signal handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _warnings_without_lines(command: str) -> Iterator[None]:
    """Print warnings of layoutkit as its errors, unless the command runs a program of the user."""
    show = warnings.showwarning

    def print_warning(message: Any, category: type[Warning], *location: Any) -> None:
        if command == "watch" or not issubclass(category, LayoutkitWarning):
            return show(message, category, *location)
        text = keywords_to_options(str(message))
        return print(f"layoutkit: warning: {escape_controls(text)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = print_warning  # type: ignore[assignment]
        yield


def _formula_options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("scale", "mean", "std", "clip")}


def _convert(arguments: argparse.Namespace) -> int:
    from ..data.io.zarr import is_store
    from .inputs import open_source, sources_label
    from .outputs import check_destination, parse_destination, staging_folder
    from .streaming import convert_to_file

    job = _file_job(arguments)
    # Reject an invalid pattern or formula before a file is opened.
    job.converter()
    if is_store(arguments.dst):
        return _convert_to_store(arguments, job)
    if arguments.scheduler is not None:
        raise ArgumentError(
            "--scheduler: applies only to zarr stores, because one process writes a .npy; omit it, "
            "or give a DST that ends in .zarr"
        )
    destination = parse_destination(arguments.dst)
    check_destination(arguments.src, destination)
    crop = arguments.crop
    if crop is not None and arguments.center is not None:
        crop = replace(crop, center=arguments.center)
    if arguments.pad_to is not None:  # which --fill and --center belong to
        if arguments.fit == "pad":
            raise ArgumentError("--pad-to and --fit pad both pad images; remove one")
        arguments.fill = arguments.center = None
    windows = {"crop": crop, "flip": arguments.flip}
    image_options = _image_options(arguments, skip_bad=arguments.skip_bad, **windows)
    with open_source(arguments.src, job, image_options, staging_folder(destination)) as source:
        convert_to_file(source, sources_label(arguments.src), destination, job)
    return 0


def _file_job(arguments: argparse.Namespace) -> Any:
    """Return the conversion of the command line, or of the file of `--options`."""
    from .streaming import FileJob

    names = ("dtype", "scale", "mean", "std", "clip", "casting", "channels")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.pad_to is not None:
        padding = ("pad_to", "pad_before", "fill", "center")
        options |= {name: getattr(arguments, name) for name in padding}
    if arguments.pad_before is not None and arguments.pad_to is None:
        raise ArgumentError("--pad-before: applies only to padded results; give --pad-to, too")
    options = {name: value for name, value in options.items() if value is not None}
    pattern, sizes = arguments.pattern, arguments.size
    if arguments.options is not None:
        from .options import read_conversion

        for name in [*options, *(["size"] if sizes else [])]:
            option = name.replace("_", "-")
            raise ArgumentError(
                f"--{option}: --options has all options of the conversion; omit one"
            )
        checked = read_conversion(arguments.options)
        pattern, options, sizes = checked.pattern.text, checked.keywords(), checked.sizes
    return FileJob(pattern, options, sizes, arguments.chunk, arguments.quiet)


def _convert_to_store(arguments: argparse.Namespace, job: Any) -> int:
    from .zarr import convert_to_store

    for name in (
        "chunk",
        "crop",
        "flip",
        "resize",
        "fit",
        "fill",
        "short_side",
        "filter",
        "center",
        "pad_to",
        "mode",
        "to_srgb",
        "background",
    ):
        if getattr(arguments, name):
            option = name.replace("_", "-")
            raise ArgumentError(f"--{option}: does not apply to zarr stores; convert to .npy first")
    if len(arguments.src) != 1:
        raise ArgumentError("a zarr store is written from one .zarr or .npy; give one SRC")
    convert_to_store(arguments.src[0], arguments.dst, job, arguments.scheduler)
    return 0


def _image_options(arguments: argparse.Namespace, **options: Any) -> Any:
    from .inputs import ImageOptions

    return ImageOptions(
        arguments.resize,
        arguments.fit,
        arguments.fill,
        arguments.short_side,
        arguments.filter,
        max_pixels=arguments.max_pixels,
        center=arguments.center,
        background=arguments.background,
        mode=arguments.mode,
        to_srgb=arguments.to_srgb,
        **options,
    )


# Options of `batches` that `--options` replaces; a preview shows images before they are converted.
_OF_BATCHES = (
    "to", "dtype", "scale", "mean", "std", "clip", "resize", "fit", "short_side", "filter", "fill",
    "center", "preview",
)  # fmt: skip


def _batches(arguments: argparse.Namespace) -> int:
    from .batches import BatchesRequest, run_batches

    collator = None if arguments.options is None else _collator_of_file(arguments)
    options = {"dtype": arguments.dtype, **_formula_options(arguments)}
    names = (
        "sampler weights mix on_end batch_size seed epoch partition columns missing workers limit "
        "profile preview"
    )
    request_options = {name: getattr(arguments, name) for name in names.split()}
    arguments.resize = arguments.resize or IMAGE_SIZE
    request = BatchesRequest(
        arguments.src, arguments.to, options, collator, _image_options(arguments),
        **request_options,
    )  # fmt: skip
    run_batches(request)
    return 0


def _collator_of_file(arguments: argparse.Namespace) -> Any:
    from .options import read_collator

    for name in _OF_BATCHES:
        if getattr(arguments, name) is not None:
            option = "size" if name == "resize" else name.replace("_", "-")
            raise ArgumentError(f"--{option}: --options has all options of the batches; omit one")
    return read_collator(arguments.options)


def _pack(arguments: argparse.Namespace) -> int:
    from .pack import PackRequest, pack

    names = (
        "root list_only resize quality encoding pass_through shuffle seed parts workers max_pixels "
        "mode to_srgb background"
    )
    request_options = {name: getattr(arguments, name) for name in names.split()}
    pack(PackRequest(arguments.src, arguments.dst, **request_options))
    return 0


def _index(arguments: argparse.Namespace) -> int:
    from .pack import write_index

    write_index(arguments.src)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from .explain import compare, explain

    if arguments.compare is not None:
        others = (
            "pattern", "shape", "from_dtype", "dtype", *_formula_options(arguments), "size", "svg",
        )  # fmt: skip
        if any(getattr(arguments, name) for name in others):
            raise ArgumentError("--compare compares two files of options; omit all other arguments")
        compare(*arguments.compare)
        return 0
    if arguments.pattern is None:
        raise ArgumentError(
            "give a PATTERN, or --compare with two files; see layoutkit explain --help"
        )
    options = {
        "from_dtype": arguments.from_dtype,
        "dtype": arguments.dtype,
        **_formula_options(arguments),
    }
    explain(arguments.pattern, arguments.shape, options, arguments.size, arguments.svg)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from ..bench import main as bench

    own = arguments.pattern, arguments.shape, arguments.from_dtype, arguments.dtype
    if any(option is not None for option in own) and None in own[:2]:
        raise ArgumentError("a conversion is measured for a PATTERN and a --shape; give both")
    return bench(
        table="random" if arguments.random else arguments.table,
        conversion=None if own[0] is None else (*own[:2], own[2] or "float32", own[3]),
        quick=arguments.quick,
        plot=arguments.plot,
        json=arguments.json,
        device=arguments.device,
        count=arguments.random or 0,
        seed=arguments.seed,
        only=arguments.only,
        limit=arguments.limit,
    )


def _watch(arguments: argparse.Namespace) -> int:
    from .watch import watch

    return watch(arguments)


def _info(_: argparse.Namespace) -> int:
    from .. import show_config

    show_config()
    return 0


def _warmup(arguments: argparse.Namespace) -> int:
    from .kernels import load_kernels

    start = time.perf_counter()
    kernels = load_kernels(arguments)
    count = f"{len(kernels)} kernel is" if len(kernels) == 1 else f"{len(kernels)} kernels are"
    print(f"{count} ready after {time.perf_counter() - start:.1f} s:")
    print(*(f"  {kernel}" for kernel in kernels), sep="\n")
    return 0


def _cache(arguments: argparse.Namespace) -> int:
    from .kernels import clear_cache, show_cache

    if arguments.action == "clear":
        clear_cache()
    else:
        show_cache()
    return 0


COMMANDS = {
    "convert": _convert,
    "batches": _batches,
    "pack": _pack,
    "index": _index,
    "explain": _explain,
    "bench": _bench,
    "watch": _watch,
    "info": _info,
    "warmup": _warmup,
    "cache": _cache,
}
