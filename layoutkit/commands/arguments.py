"""The arguments of the command `layoutkit`: what may be said, and with which words it is explained.

Knows options; files, patterns and dtypes are looked at by whoever works with them.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..errors import ArgumentError
from ..spec import CASTINGS
from .examples import ABOUT_CONVERT, examples
from .packoptions import PIXELS, add_index, add_pack
from .values import (
    channels,
    crop,
    height_width,
    number,
    numbers,
    partition,
    pattern,
    positive,
    shape,
    size,
    whole,
)

__all__ = ["parse", "warmup_request"]

_NEGATIVE = re.compile(r"-[\d.]")
_SIGNED = ("--scale", "--mean", "--std", "--fill")
_FITS = ("cover", "pad", "stretch")  # those of layoutkit.pictures, which not every command loads
_DTYPES = "bool, uint8 to uint64, int8 to int64, float16, float32, float64, complex64, complex128"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; `command` in the result is the name of the command.

    Without any word it prints the help and ends, as it does with --help.
    """
    words = _joined(sys.argv[1:] if argv is None else argv)
    arguments, others = _parser().parse_known_args(words or ["--help"])
    if "words" in arguments:
        others = _take_words(arguments, others)
    if others:
        raise ArgumentError(_too_many(arguments.command, others))
    if "size" in arguments:
        arguments.size = _distinct(arguments.size)
    return arguments


def _joined(words: Sequence[str]) -> list[str]:
    """The words, negative numbers joined to their option: argparse takes -0.5,1 for another one."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _SIGNED and _NEGATIVE.match(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _take_words(arguments: argparse.Namespace, others: list[str]) -> list[str]:
    """Set SRC, DST and PATTERN of `convert`; what is left over of the words behind options.

    argparse gives all words before the first option to the first argument that takes several.
    """
    if any(word.startswith("-") and word != "-" for word in others):
        return others
    words = arguments.words + others
    if stray := [word for word in words if _is_number(word) and not Path(word).exists()]:
        return stray
    missing = ("SRC", "DST", "PATTERN")[len(words) :]
    if missing:
        raise ArgumentError(
            f"the following arguments are required: {', '.join(missing)}; see layoutkit convert "
            "--help"
        )
    *arguments.src, arguments.dst, arguments.pattern = words
    if "->" not in words[-1] and any("->" in word for word in words):
        raise ArgumentError("PATTERN comes last: layoutkit convert SRC DST PATTERN")
    try:
        pattern(words[-1])
    except argparse.ArgumentTypeError as error:
        raise ArgumentError(f"argument PATTERN: {error}") from None
    return []


def _too_many(command: str, others: Sequence[str]) -> str:
    """What to say of words that no argument takes."""
    if any(word.startswith("-") for word in others) or command not in ("convert", "batches"):
        fix = f"see layoutkit {command} --help"
    elif all(_is_number(word) for word in others):
        fix = "put commas between numbers, without blanks, such as 0.5,0.5,0.5"
    else:
        fix = f"{command} takes one SRC: a folder, or a table of files"
    return f"unrecognized arguments: {' '.join(others)}; {fix}"


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.,]+", word))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that all mistakes are reported in one way."""
        raise ArgumentError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="layoutkit",
        description="Batches from any layout and dtype into any other.",
        epilog=examples(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"layoutkit {__version__}")
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for name, (summary, add_arguments) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_arguments(command)
    return parser


def _add_convert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "layoutkit convert SRC [SRC ...] DST PATTERN [options]"
    parser.description = ABOUT_CONVERT
    add("words", nargs="*", help=argparse.SUPPRESS)
    add("--dtype", help=f"dtype of the result: {_DTYPES}")
    _add_formula(parser)
    _add_sizes(parser)
    _add_windows(parser)
    skip = _add_pictures(parser, "stretch", "--resize").add_argument
    skip("--skip-bad", action="store_true", help="leave out what cannot be read, and say so")
    casting_help = "which casts are allowed (default: same_kind, but no change of sign)"
    add("--casting", choices=CASTINGS, help=casting_help)
    add("--chunk", type=positive, metavar="N", help="samples at a time (default: 16 to 64 MiB)")
    add("--quiet", action="store_true", help="no progress bar and no summary")
    add("--scheduler", metavar="URL", help="of dask, that converts into a .zarr; default: threads")


def _add_batches(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("src", metavar="SRC", help="a labelled folder, a table, .rec, .tar, .parquet or .tfrecord")
    add("--sampler", default="linear", metavar="KIND", help="their order (default: linear)")
    add("--batch-size", type=positive, default=32, metavar="N", help="default: 32")
    add("--to", default="bhwc", metavar="LAYOUT", help="such as bchw (default: bhwc)")
    add("--dtype", help=f"dtype of the batches: {_DTYPES}")
    _add_formula(parser)
    _add_pictures(parser, "cover", "--size", (224, 224))
    add("--seed", type=whole, default=0, metavar="N", help="of a random order (default: 0)")
    add("--epoch", type=whole, default=0, metavar="N", help="which one (default: 0)")
    add("--workers", type=whole, metavar="N", help="threads that decode (default: up to 4)")
    part_help = "one part of P, such as 0/4; p counts from 0"
    add("--partition", type=partition, default=(0, 1), metavar="p/P", help=part_help)
    add("--limit", type=positive, metavar="N", help="end after so many batches")
    add("--save", type=Path, metavar="FILE.npz", help="write the batches into this file")
    add("--preview", type=Path, metavar="FILE.png", help="draw the first batch into this file")


def _add_pictures(
    parser: argparse.ArgumentParser, how: str, option: str, size: tuple[int, int] | None = None
) -> "argparse._ArgumentGroup":
    group = parser.add_argument_group("pictures")
    add = group.add_argument
    default = "" if size is None else f" (default: {size[0]}x{size[1]})"
    size_help = f"bring every picture to this size{default}"
    add(option, dest="resize", type=height_width, default=size, metavar="HxW", help=size_help)
    fit_help = (
        "cover the size and cut off what juts out, lie inside of it and fill the rest, or stretch "
        f"(default: {how})"
    )
    add("--fit", choices=_FITS, help=fit_help)
    add("--fill", type=numbers, metavar="N,N,..", help="what --fit pad fills with (default: 0)")
    add("--max-pixels", type=positive, metavar="N", help=PIXELS)
    return group


def _add_explain(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pattern", metavar="PATTERN", type=pattern, help="such as 'bhwc->bchw'")
    shape_help = "shape of the source; without it there is no plan, but a small example"
    add("--shape", type=shape, metavar="N,N,..", help=shape_help)
    add("--dtype", help="dtype of the source (default: float32)")
    add(
        "--to-dtype",
        metavar="DTYPE",
        help=f"dtype of the result: {_DTYPES}, bfloat16, float8_e4m3fn, ...",
    )
    _add_formula(parser)
    _add_sizes(parser)
    add("--svg", type=Path, metavar="FILE.svg", help="also draw both memory orders into this file")


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="what to measure on")
    add("--loop", action="store_true", help="in a loop, beside other work, on one and all threads")
    others_help = "also beside XLA jit, torch.compile, timm and albumentations, where installed"
    add("--others", action="store_true", help=others_help)
    add("--collate", action="store_true", help="many samples into one batch, instead")
    add("--quick", action="store_true", help="fewer rows and shorter runs")
    add("--plot", metavar="FILE", help="also draw the results into this file")
    add("--json", metavar="FILE", help="also write the results into this file")
    from_help = "measure nothing: print the table of a --loop --json file, in Markdown"
    add("--from", dest="saved", metavar="FILE", help=from_help)


def _add_warmup(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pattern", metavar="PATTERN", type=pattern, nargs="?", help="such as 'bhwc->bchw'")
    add("--shape", type=shape, metavar="N,N,..", help="shape of the source")
    add("--dtype", help="dtype of the source (default: float32)")
    add("--to-dtype", metavar="DTYPE", help="dtype of the result")
    _add_formula(parser)
    _add_sizes(parser)
    add("--casting", choices=CASTINGS, help="which casts are allowed (default: same_kind)")


def warmup_request(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `warmup()`: those that were given."""
    names = ("pattern", "shape", "dtype", "to_dtype", "scale", "mean", "std", "casting")
    given: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None} | arguments.size
    needed = {"pattern": "PATTERN", "shape": "--shape"}
    lacks = [word for name, word in needed.items() if name not in given]
    if given and lacks:
        raise ArgumentError(
            f"a kernel of your own is that of a PATTERN and a --shape: give {' and '.join(lacks)}, "
            "too, or nothing for the usual kernels; see layoutkit warmup --help"
        )
    return given


def _add_nothing(_: argparse.ArgumentParser) -> None:
    """Exists because `info` takes no arguments."""


_COMMANDS = {
    "convert": ("convert a file of an array, or pictures, into a .npy file", _add_convert),
    "batches": ("make batches of labelled photographs, and time each stage", _add_batches),
    "pack": ("pack labelled pictures into a RecordIO file, with .idx and .lst", add_pack),
    "index": ("write the .idx of a RecordIO file", add_index),
    "explain": ("say in words and pictures how a conversion runs", _add_explain),
    "bench": ("time conversions side by side with other libraries", _add_bench),
    "info": ("show versions, processor, threads and caches", _add_nothing),
    "warmup": ("compile kernels now, the usual or your own, for later processes", _add_warmup),
}


def _add_formula(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("formula", "y = (x * scale - mean) / std").add_argument
    add("--scale", type=number, metavar="N", help="such as 1/255")
    add("--mean", type=numbers, metavar="N,N,..", help="one number, or one per channel")
    add("--std", type=numbers, metavar="N,N,..", help="one number, or one per channel")


def _add_windows(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("windows").add_argument
    crop_help = (
        "cut this window out of every picture: in the middle, from a corner (+y+x, from the top "
        "and the left), or where a seed says (+random:N), for each picture elsewhere"
    )
    add("--crop", type=crop, metavar="HxW[+y+x]", help=crop_help)
    add("--flip", action="store_true", help="mirror every picture, left to right")
    channels_help = "channels in the order of the result, such as 2,1,0; --mean is one for each"
    add("--channels", type=channels, metavar="N,N,..", help=channels_help)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    help_text = "size of an axis inside a fold, such as h=32 or height=32; once for each"
    parser.add_argument(
        "--size", type=size, action="append", default=[], metavar="AXIS=N", help=help_text
    )


def _distinct(sizes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(sizes)
    if len(named) < len(sizes):
        raise ArgumentError("--size: the same axis twice; give each axis one size")
    return named
