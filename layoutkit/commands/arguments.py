"""The arguments of the command `layoutkit`: what may be said, and what it is turned into.

Knows words and numbers; files, patterns and dtypes are looked at by whoever works with them.
"""

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..errors import ArgumentError
from ..planning.task import make_task
from ..spec import CASTINGS

__all__ = ["parse", "warmup_request"]

_LONGEST_INT = 18  # digits, all of which fit into 64 bits
_NEGATIVE = re.compile(r"-[\d.]")
_SIGNED = ("--scale", "--mean", "--std")
_KEYWORDS = make_task.__kwdefaults__ or ()  # of a conversion, which are no names of sizes here


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; `command` in the result is the name of the command."""
    words = _joined(sys.argv[1:] if argv is None else argv)
    arguments, others = _parser().parse_known_args(words)
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


def _too_many(command: str, others: Sequence[str]) -> str:
    """What to say of words that no argument takes."""
    if any(word.startswith("-") for word in others) or command not in ("convert", "batches"):
        fix = f"see layoutkit {command} --help"
    elif all(_is_number(word) for word in others):
        fix = "put commas between numbers, without blanks, such as 0.5,0.5,0.5"
    else:
        fix = (
            f"{command} takes one SRC, and the shell makes several of a glob such as *.jpg: put it "
            "in quotes"
        )
    return f"unrecognized arguments: {' '.join(others)}; {fix}"


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.,]+", word))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that all mistakes are reported in one way."""
        raise ArgumentError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="layoutkit", description="Batches from any layout and dtype into any other."
    )
    parser.add_argument("--version", action="version", version=f"layoutkit {__version__}")
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for name, (summary, add_arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        add_arguments(command)
    return parser


def _add_convert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "src",
        metavar="SRC",
        help="a file of one array (.npy, .npz, ...), or a picture, a folder or a glob of pictures",
    )
    add("dst", metavar="DST", type=Path, help="the .npy file to write or replace")
    add("pattern", metavar="PATTERN", type=_pattern, help="such as 'bhwc->bchw'; pictures are bhwc")
    add("--dtype", help="dtype of the result")
    _add_formula(parser)
    _add_sizes(parser)
    add("--resize", type=_height_width, metavar="HxW", help="stretch every picture to this size")
    add("--casting", choices=CASTINGS, default="same_kind", help="which casts are allowed")
    add("--chunk", type=_positive, metavar="N", help="samples at a time (default: 16 to 64 MiB)")
    add("--quiet", action="store_true", help="no progress bar and no summary")


def _add_batches(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("src", metavar="SRC", help="a folder of labelled folders, or a .csv or .tsv of pictures")
    add("--sampler", default="linear", metavar="KIND", help="their order (default: linear)")
    add("--batch-size", type=_positive, default=32, metavar="N", help="default: 32")
    add("--to", default="bhwc", metavar="LAYOUT", help="such as bchw (default: bhwc)")
    add("--dtype", help="dtype of the batches")
    _add_formula(parser)
    size_help = "scale and cut every picture to this size (default: 224x224)"
    add(
        "--size",
        dest="resize",
        type=_height_width,
        default=(224, 224),
        metavar="HxW",
        help=size_help,
    )
    add("--seed", type=_whole, default=0, metavar="N", help="of a random order (default: 0)")
    add("--epoch", type=_whole, default=0, metavar="N", help="which one (default: 0)")
    add("--workers", type=_whole, metavar="N", help="threads that decode (default: up to 4)")
    part_help = "one part of P, such as 0/4; p counts from 0"
    add("--partition", type=_partition, default=(0, 1), metavar="p/P", help=part_help)
    add("--limit", type=_positive, metavar="N", help="end after so many batches")
    add("--save", type=Path, metavar="FILE.npz", help="write the batches into this file")
    add("--preview", type=Path, metavar="FILE.png", help="draw the first batch into this file")


def _add_explain(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pattern", metavar="PATTERN", type=_pattern, help="such as 'bhwc->bchw'")
    add("--shape", type=_shape, required=True, metavar="N,N,..", help="shape of the source")
    add("--dtype", default="float32", help="dtype of the source (default: float32)")
    add("--to-dtype", help="dtype of the result")
    _add_formula(parser)
    _add_sizes(parser)
    add("--svg", type=Path, metavar="FILE", help="also draw both memory orders into this file")


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="what to measure on")
    add("--loop", action="store_true", help="in a loop, beside other work, on one and all threads")
    add("--quick", action="store_true", help="fewer rows and shorter runs")
    add("--plot", metavar="FILE", help="also draw the results into this file")
    add("--json", metavar="FILE", help="also write the results into this file")
    from_help = "measure nothing: print the table of a --loop --json file, in Markdown"
    add("--from", dest="saved", metavar="FILE", help=from_help)


def _add_warmup(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pattern", metavar="PATTERN", type=_pattern, nargs="?", help="such as 'bhwc->bchw'")
    add("--shape", type=_shape, metavar="N,N,..", help="shape of the source")
    add("--dtype", help="dtype of the source (default: float32)")
    add("--to-dtype", help="dtype of the result")
    _add_formula(parser)
    _add_sizes(parser)
    add("--casting", choices=CASTINGS, help="which casts are allowed (default: same_kind)")


def warmup_request(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `warmup()`: those that were given."""
    names = ("pattern", "shape", "dtype", "to_dtype", "scale", "mean", "std", "casting")
    given: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None} | arguments.size
    if given and not given.keys() >= {"pattern", "shape"}:
        raise ArgumentError(
            "warmup takes PATTERN and --shape, and then what else there is, or nothing for the "
            "usual kernels; see layoutkit warmup --help"
        )
    return given


def _add_nothing(_: argparse.ArgumentParser) -> None:
    """Exists because `info` takes no arguments."""


_COMMANDS = {
    "convert": ("convert a file of an array, or pictures, into a .npy file", _add_convert),
    "batches": ("make batches of labelled photographs, and time each stage", _add_batches),
    "explain": ("say in words and pictures how a conversion runs", _add_explain),
    "bench": ("time conversions side by side with other libraries", _add_bench),
    "info": ("show versions, processor, threads and caches", _add_nothing),
    "warmup": ("compile kernels now, the usual or your own, for later processes", _add_warmup),
}


def _add_formula(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("formula", "y = (x * scale - mean) / std").add_argument
    add("--scale", type=_number, metavar="N", help="such as 1/255")
    add("--mean", type=_numbers, metavar="N,N,..", help="one number, or one per channel")
    add("--std", type=_numbers, metavar="N,N,..", help="one number, or one per channel")


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    help_text = "size of an axis inside a fold, such as h=32; once for each axis"
    parser.add_argument(
        "--size", type=_size, action="append", default=[], metavar="AXIS=N", help=help_text
    )


def _number(text: str) -> float:
    above, slash, below = text.partition("/")
    try:
        number = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        number = math.nan
    if not math.isfinite(number):
        message = f"{text!r} is not a finite number such as 0.5 or 1/255"
        raise argparse.ArgumentTypeError(message)
    return number


def _int(text: str) -> int:
    if len(text) > _LONGEST_INT:
        raise argparse.ArgumentTypeError(f"{text!r} has too many digits")
    return int(text)


def _pattern(text: str) -> str:
    if text.endswith("-"):
        message = (
            f'{text!r} is half of a pattern, as the shell takes ">" for itself; write it in '
            f"quotes, such as 'bhwc->bchw'"
        )
        raise argparse.ArgumentTypeError(message)
    return text


def _numbers(text: str) -> float | list[float]:
    numbers = [_number(part) for part in text.split(",")]
    return numbers[0] if len(numbers) == 1 else numbers


def _positive(text: str) -> int:
    if not text.isdecimal() or _int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return _int(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return _int(text)


def _partition(text: str) -> tuple[int, int]:
    number, slash, partitions = text.partition("/")
    if not slash or not number.isdecimal() or not partitions.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a part such as 0/4")
    return _int(number), _int(partitions)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.strip("() ").rstrip(",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 64,224,224,3")
    return tuple(_int(part.strip()) for part in parts)


def _size(text: str) -> tuple[str, int]:
    axis, equals, size = text.partition("=")
    if not equals or not axis.isidentifier() or axis in _KEYWORDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an axis and its size, such as h=32")
    return axis, _positive(size)


def _distinct(sizes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(sizes)
    if len(named) < len(sizes):
        raise ArgumentError("--size: the same axis twice; give each axis one size")
    return named


def _height_width(text: str) -> tuple[int, int]:
    height, cross, width = text.partition("x")
    if not cross:
        raise argparse.ArgumentTypeError(f"{text!r} is not height x width, such as 224x224")
    return _positive(height), _positive(width)
