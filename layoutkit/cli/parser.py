"""The arguments of the command `layoutkit`: what may be said, and with which words it is explained.

Knows options; files, patterns and dtypes are looked at by whoever works with them.

The options of `layoutkit pack` and `layoutkit index`, as `arguments.py` has those of the others.

Knows options; files are looked at by whoever works with them.

The words of the help that are no option's: how a command is called, by example.

What the words of the command line are turned into: numbers, sizes, shapes.

A word that is none raises argparse's own error, which names the option in front of it.
"""

import argparse
import math
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, NoReturn

from .. import __version__
from ..errors import ArgumentError
from ..spec import CASTINGS
from .streaming import Crop

_LONGEST_INT = 18  # digits, all of which fit into 64 bits
_CROP = re.compile(r"([^+]*?)(?:\+(\d+)\+(\d+)|\+?(center|centre)|\+?random:(\d+))?")


def number(text: str) -> float:
    """A finite number, perhaps a fraction such as 1/255."""
    above, slash, below = text.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not a finite number such as 0.5 or 1/255")
    return value


def _int(text: str) -> int:
    if len(text) > _LONGEST_INT:
        raise ArgumentTypeError(f"{text!r} has too many digits")
    return int(text)


def pattern(text: str) -> str:
    """A pattern; one that the shell has cut is refused with what to do."""
    if text.endswith("-"):
        message = (
            f'{text!r} is half of a pattern, as the shell takes ">" for itself, and made a file '
            "of what stands behind it; write the pattern in quotes, such as 'bhwc->bchw', and "
            "remove that file"
        )
        raise ArgumentTypeError(message)
    return text


def numbers(text: str) -> float | list[float]:
    """A finite number, or several with commas."""
    values = [number(part) for part in text.split(",")]
    return values[0] if len(values) == 1 else values


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or _int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return _int(text)


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return _int(text)


def partition(text: str) -> tuple[int, int]:
    """A part and how many there are, such as 0/4."""
    part, slash, parts = text.partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a part such as 0/4")
    return _int(part), _int(parts)


def shape(text: str) -> tuple[int, ...]:
    """A shape, such as 64,224,224,3."""
    parts = text.strip("() ").rstrip(",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not a shape such as 64,224,224,3")
    return tuple(_int(part.strip()) for part in parts)


def size(text: str) -> tuple[str, int]:
    """An axis and its size, such as h=32."""
    axis, equals, length = text.partition("=")
    if not equals or not axis.isidentifier():
        raise ArgumentTypeError(f"{text!r} is not an axis and its size, such as h=32")
    return axis, positive(length)


def height_width(text: str) -> tuple[int, int]:
    """Height and width, such as 224x224."""
    height, cross, width = text.partition("x")
    if not cross:
        raise ArgumentTypeError(f"{text!r} is not height x width, such as 224x224")
    return positive(height), positive(width)


def crop(text: str) -> Crop:
    """A window: its size, and where it is, such as 224x224, 224x224+16+8 or 224x224+random:7."""
    found = _CROP.fullmatch(text)
    if found is None or "x" not in text:
        raise ArgumentTypeError(
            f"{text!r} is not a window such as 224x224, which is in the middle, 224x224+16+8 (from "
            "the top, from the left) or 224x224+random:7 (a seed)"
        )
    wanted, top, left, _, seed = found.groups()
    offset = None if top is None else (_int(top), _int(left))
    return Crop(height_width(wanted), offset, None if seed is None else _int(seed))


def channels(text: str) -> tuple[int, ...]:
    """Numbers of channels, such as 2,1,0."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not channels such as 2,1,0, counted from 0")
    return tuple(map(_int, parts))


PIXELS = "take pictures of so many pixels; default: what Pillow takes, 89 million"


def add_pack(parser: argparse.ArgumentParser) -> None:
    """Those of `layoutkit pack`."""
    add = parser.add_argument
    add("src", metavar="SRC", help="a folder of labelled folders, or a .lst")
    add("dst", metavar="DST", type=Path, help="the .rec file to write or replace")
    add("--list", dest="list_only", action="store_true", help="write the .lst and nothing else")
    add("--resize", type=positive, metavar="N", help="pixels of the shorter edge, such as 256")
    add("--encoding", choices=("jpg", "png", "npy"), help="as what they are kept (default: jpg)")
    add("--quality", type=whole, metavar="N", help="of jpg 1 to 100 (default: 95), of png 0 to 9")
    add("--pass-through", action="store_true", help="keep the files of pictures as they are")
    add("--shuffle", action="store_true", help="in random order")
    add("--seed", type=whole, default=0, metavar="N", help="of the random order (default: 0)")
    add("--parts", type=positive, default=1, metavar="N", help="so many files of equal number")
    add("--workers", type=positive, metavar="N", help="threads that decode (default: up to 4)")
    add("--max-pixels", type=positive, metavar="N", help=PIXELS)


def add_index(parser: argparse.ArgumentParser) -> None:
    """The argument of `layoutkit index`."""
    parser.add_argument("src", metavar="FILE.rec", type=Path, help="its .idx is written beside it")


ABOUT_CONVERT = dedent("""
    Convert a file of an array, or pictures, into a .npy file.

      SRC      a file of one array (.npy, .npz, .safetensors, .pt), or pictures: files, a folder, or
               a glob in quotes
      DST      the .npy file to write or replace
      PATTERN  such as 'bhwc->bchw', in quotes; pictures are bhwc
""")

_EXAMPLES = {
    "": ["convert photos/ batch.npy 'bhwc->bchw' --resize 224x224", "explain 'bhwc->bchw'"],
    "convert": [
        "convert x.npy y.npy 'bhwc->bchw'",
        "convert photos/ batch.npy 'bhwc->bchw' --resize 224x224 --fit cover --dtype float32 "
        "--scale 1/255 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225",
        "convert 'photos/**/*.jpg' batch.npy 'bhwc->bchw' --resize 640x640 --fit pad --fill 114",
        "convert features.npy maps.npy 'bf->bhwc' --size h=4 --size w=5",
    ],
    "batches": [
        "batches photos/",
        "batches train.rec --preview first.png",
        "batches photos/ --sampler permutation --to bchw --dtype float32 --scale 1/255 "
        "--save photos.npz --preview photos.png",
    ],
    "pack": [
        "pack photos/ train.rec --resize 256",
        "pack photos/ train.rec --pass-through --shuffle --seed 1 --parts 8",
        "pack train.lst train.rec",
    ],
    "index": ["index train.rec"],
    "explain": [
        "explain 'bhwc->bchw'",
        "explain 'bhwc->bchw' --shape 64,224,224,3 --dtype uint8 --to-dtype float32 --scale 1/255",
    ],
    "bench": ["bench --quick", "bench --json results.json --plot results.png"],
    "info": ["info"],
    "warmup": ["warmup", "warmup 'bhwc->bchw' --shape 64,224,224,3 --dtype uint8"],
}


def examples(command: str) -> str:
    """What stands below the help of a command, and of all of them ("")."""
    lines = [f"  layoutkit {example}" for example in _EXAMPLES[command]]
    return "\n".join(["examples:", *lines])


_NEGATIVE = re.compile(r"-[\d.]")
_SIGNED = ("--scale", "--mean", "--std", "--fill")
_FITS = ("cover", "pad", "stretch")  # those of layoutkit.images, which not every command loads
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
        "cut this window out of every picture: in the middle, from a offset (+y+x, from the top "
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
    sources_label = dict(sizes)
    if len(sources_label) < len(sizes):
        raise ArgumentError("--size: the same axis twice; give each axis one size")
    return sources_label
