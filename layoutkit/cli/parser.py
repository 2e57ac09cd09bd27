"""The command-line arguments, their types and the help texts.

A type function converts the text of one argument; for invalid text it raises argparse's own error,
which names the option. Files, patterns and dtypes are validated by the code that uses them.
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
from ..planning.centering import CENTERINGS
from ..planning.keywords import KEYWORDS
from ..planning.resize import FILTERS
from ..spec import CASTINGS
from ..watch.report import MIN_BYTES
from .crop import Crop

_MAX_DIGITS = 18  # numbers of up to 18 digits fit into 64 bits
_CROP = re.compile(r"([^+]*?)(?:\+(\d+)\+(\d+)|\+?(center|centre)|\+?random:(\d+))?")


def number(text: str) -> float:
    """Return a finite number; fractions such as 1/255 are allowed."""
    numerator, slash, denominator = text.partition("/")
    try:
        value = float(numerator) / float(denominator) if slash else float(numerator)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not a finite number such as 0.5 or 1/255")
    return value


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ArgumentTypeError(f"{text!r} has too many digits")
    return int(text)


def pattern(text: str) -> str:
    """Return the pattern; raise ArgumentTypeError if the shell has cut it at `>`."""
    if text.endswith("-"):
        message = (
            f'{text!r} is half of a pattern: the shell reads ">" as a redirection, and has created '
            "a file named after the rest; write the pattern in quotes, "
            "such as 'bhwc->bchw', and remove that file"
        )
        raise ArgumentTypeError(message)
    return text


def color(text: str) -> tuple[int, ...]:
    """Return red, green and blue, integers from 0 to 255."""
    parts = text.split(",")
    if len(parts) != 3 or not all(x.isdecimal() and _int(x) <= 255 for x in parts):
        raise ArgumentTypeError(f"{text!r} is not R,G,B: three integers from 0 to 255")
    return tuple(map(int, parts))


def numbers(text: str) -> float | list[float]:
    """Return a finite number, or a list for numbers separated by commas."""
    values = [number(part) for part in text.split(",")]
    return values[0] if len(values) == 1 else values


def bounds(text: str) -> tuple[float | None, float | None]:
    """Return two bounds, whole numbers as ints; one may be omitted, such as 0, or ,255."""
    low, comma, high = text.partition(",")
    if not comma or not (low or high):
        raise ArgumentTypeError(f"{text!r} is not LOW,HIGH, such as -160,240 or 0,")
    return _bound(low), _bound(high)


def _bound(text: str) -> float | None:
    value = number(text) if text else None
    return int(value) if value is not None and value.is_integer() else value


def positive_int(text: str) -> int:
    """Return an integer above 0."""
    if not text.isdecimal() or _int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not an integer above 0")
    return _int(text)


def nonnegative_int(text: str) -> int:
    """Return an integer of 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not an integer of 0 or more")
    return _int(text)


def partition(text: str) -> tuple[int, int]:
    """Return a part and the number of parts, such as 0/4."""
    part, slash, parts = text.partition("/")
    if not slash or not part.isdecimal() or not parts.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a part such as 0/4")
    return _int(part), _int(parts)


def columns(text: str) -> dict[str, str | None]:
    """Return columns by what they are, such as image=photo,label=class; label= for no labels."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals and (name or key == "label") for key, equals, name in pairs):
        raise ArgumentTypeError(f"{text!r} is not columns such as image=photo,label=class")
    return {key: name or None for key, _, name in pairs}


def shape(text: str) -> tuple[int, ...]:
    """Return a shape, such as 64,224,224,3."""
    parts = text.strip("() ").rstrip(",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not a shape such as 64,224,224,3")
    return tuple(_int(part.strip()) for part in parts)


def size(text: str) -> tuple[str, int]:
    """Return an axis and its size, such as h=32."""
    axis, equals, length = text.partition("=")
    if not equals or not axis.isidentifier():
        raise ArgumentTypeError(f"{text!r} is not an axis and its size, such as h=32")
    return axis, positive_int(length)


def sizes(text: str) -> dict[str, int]:
    """Return sizes by axis, such as h=640,w=640; a size may be 0."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(axis.isidentifier() and length.isdecimal() for axis, _, length in pairs):
        raise ArgumentTypeError(f"{text!r} is not sizes of axes, such as h=640,w=640")
    by_axis = {axis: _int(length) for axis, _, length in pairs}
    if len(by_axis) < len(pairs):
        raise ArgumentTypeError(f"{text!r} has an axis twice; give each axis one size")
    return by_axis


def weights(text: str) -> dict[str, float]:
    """Return weights by label, such as cat=2,dog=1."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    if not all(label for label, _, _ in pairs):
        raise ArgumentTypeError(f"{text!r} is not labels and their weights, such as cat=2,dog=1")
    return {label: number(weight) for label, _, weight in pairs}


def height_width(text: str) -> tuple[int, int]:
    """Return height and width, such as 224x224."""
    height, cross, width = text.partition("x")
    if not cross:
        raise ArgumentTypeError(f"{text!r} is not height x width, such as 224x224")
    return positive_int(height), positive_int(width)


def crop(text: str) -> Crop:
    """Return a window: size and position, such as 224x224, 224x224+16+8 or 224x224+random:7."""
    match = _CROP.fullmatch(text)
    if match is None or "x" not in text:
        raise ArgumentTypeError(
            f"{text!r} is not a window such as 224x224, which is in the middle, 224x224+16+8 (from "
            "the top, from the left) or 224x224+random:7 (a seed)"
        )
    size_text, top, left, _, seed = match.groups()
    offset = None if top is None else (_int(top), _int(left))
    return Crop(height_width(size_text), offset, None if seed is None else _int(seed))


def channels(text: str) -> tuple[int, ...]:
    """Return channel indices, such as 2,1,0."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not channels such as 2,1,0, counted from 0")
    return tuple(map(_int, parts))


_MAX_PIXELS_HELP = "largest number of pixels of an image; default: Pillow's limit, 89 million"


def add_pack(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `layoutkit pack`."""
    add = parser.add_argument
    add("src", metavar="SRC", help="a folder of labeled folders, or a .lst")
    add("dst", metavar="DST", type=Path, help="the .rec file to write or replace")
    add("--root", type=Path, metavar="DIR", help="the folder of the paths in SRC, a .lst")
    add("--list", dest="list_only", action="store_true", help="write the .lst and nothing else")
    add("--resize", type=positive_int, metavar="N", help="pixels of the shorter edge, such as 256")
    add(
        "--encoding",
        type=lambda text: text.removeprefix("."),  # im2rec has a dot
        choices=("jpg", "png", "npy"),
        help="format of the packed images (default: jpg)",
    )
    add(
        "--quality",
        type=nonnegative_int,
        metavar="N",
        help="for jpg 1 to 100 (default: 95), for png 0 to 9",
    )
    add("--pass-through", action="store_true", help="pack the image files unchanged")
    add("--shuffle", action="store_true", help="shuffle the images")
    add(
        "--seed",
        type=nonnegative_int,
        default=0,
        metavar="N",
        help="seed of --shuffle (default: 0)",
    )
    add(
        "--parts",
        "--chunks",
        type=positive_int,
        default=1,
        metavar="N",
        help="split into N files of equal size",
    )
    workers_help = "threads that decode (default: up to 4)"
    add("--workers", "--num-thread", type=positive_int, metavar="N", help=workers_help)
    _add_decoding(add)


def add_index(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `layoutkit index`."""
    parser.add_argument(
        "src",
        metavar="FILE.rec",
        type=Path,
        help="the file to index; its .idx is written beside it",
    )


_CONVERT_DESCRIPTION = dedent("""
    Convert the file of an array, or images, into a .npy file.

      SRC      a file of one array (.npy, .npz, .safetensors, .pt), or images: files, a folder, or
               a glob in quotes
      DST      the .npy file to write or replace
      PATTERN  such as 'bhwc->bchw', in quotes; images are bhwc
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
        "--preview photos.png",
    ],
    "pack": [
        "pack photos/ train.rec --resize 256",
        "pack photos/ train.rec --pass-through --shuffle --seed 1 --parts 8",
        "pack train.lst train.rec",
    ],
    "index": ["index train.rec"],
    "explain": [
        "explain 'bhwc->bchw'",
        "explain 'bhwc->bchw' --shape 64,224,224,3 "
        "--from-dtype uint8 --dtype float32 --scale 1/255",
        "explain --compare training.json serving.json",
    ],
    "bench": ["bench --quick", "bench --json results.json --plot results.png"],
    "watch": ["watch train.py --epochs 1", "watch --html copies.html train.py"],
    "info": ["info"],
    "warmup": [
        "warmup",
        "warmup 'bhwc->bchw' --shape 64,224,224,3 --from-dtype uint8",
        "warmup 'hwc->bchw' --shape 375,500,3 --batch-size 64 --size h=224 --size w=224 "
        "--filter bilinear --dtype float32 --scale 1/255",
        "warmup --options collator.json --shape 375,500,3 --batch-size 64",
    ],
    "cache": ["cache", "cache clear"],
}


def format_examples(command: str) -> str:
    """Return the examples at the end of a command's help; "" is the main help."""
    lines = [f"  layoutkit {example}" for example in _EXAMPLES[command]]
    return "\n".join(["examples:", *lines])


_NEGATIVE = re.compile(r"-[\d.]")
_SIGNED_OPTIONS = ("--scale", "--mean", "--std", "--clip", "--fill")
FIT_CHOICES = (
    "cover",
    "pad",
    "stretch",
)  # as in layoutkit.images, which not every command imports
MODE_CHOICES = ("rgb", "rgba", "gray", "index", "unchanged")
_DTYPES = "bool, uint8 to uint64, int8 to int64, float16, float32, float64, complex64, complex128"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; `command` in the result is the name of the command.

    Without arguments it prints the help and exits, as with --help.
    """
    words = _join_negative_numbers(sys.argv[1:] if argv is None else argv)
    arguments, unknown = _parser().parse_known_args(words or ["--help"])
    if "positionals" in arguments:
        unknown = _assign_positionals(arguments, unknown)
    if unknown:
        raise ArgumentError(_unrecognized_message(arguments.command, unknown))
    if "size" in arguments:
        arguments.size = _distinct_sizes(arguments.size)
    return arguments


def _join_negative_numbers(words: Sequence[str]) -> list[str]:
    """Join negative numbers to their option; argparse would read -0.5,1 as an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _SIGNED_OPTIONS and _NEGATIVE.match(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _assign_positionals(arguments: argparse.Namespace, rest: list[str]) -> list[str]:
    """Set SRC, DST and PATTERN of `convert`; return the unrecognized words.

    argparse assigns all words before the first option to the first argument that accepts several.
    """
    if any(word.startswith("-") and word != "-" for word in rest):
        return rest
    words = arguments.positionals + rest
    if numbers := [word for word in words if _is_number(word) and not Path(word).exists()]:
        return numbers
    names = ("SRC", "DST") if arguments.options is not None else ("SRC", "DST", "PATTERN")
    missing = names[len(words) :]
    if missing:
        raise ArgumentError(
            "the following arguments are required: "
            f"{', '.join(missing)}; see layoutkit convert --help"
        )
    if arguments.options is not None:
        if "->" in words[-1]:
            raise ArgumentError("--options has the pattern; omit PATTERN")
        words.append("")
    *arguments.src, arguments.dst, arguments.pattern = words
    if not words[-1]:
        return []
    if "->" not in words[-1] and any("->" in word for word in words):
        raise ArgumentError(
            f"PATTERN comes last: layoutkit convert SRC DST PATTERN; {words[-1]!r} follows it, and "
            "is the value of no option (--flip, for example, has none)"
        )
    try:
        pattern(words[-1])
    except argparse.ArgumentTypeError as error:
        raise ArgumentError(f"argument PATTERN: {error}") from None
    return []


# Keywords of functions that no command has -> the call in Python.
_PYTHON_ONLY = {
    "antialias": "layoutkit.collate(images, PATTERN, resize=..., antialias=...)",
    "frames": 'layoutkit.images.read(file, frames="all")',
    "library": "layoutkit.images.fit(image, size, library=...)",
    "refill": "layoutkit.data.sampled_batcher(SRC, refill=...)",
    "shard": "layoutkit.data.sampled_batcher(SRC, shard=...)",
} | {
    name: f"layoutkit.convert(x, PATTERN, {name}=...)"
    for name in KEYWORDS["convert"]
    if name != "memory"
}


def _unrecognized_message(command: str, unknown: Sequence[str]) -> str:
    """Return the error message for words that no argument accepts."""
    words = [word.partition("=")[0] for word in unknown if word.startswith("--")]
    names = [word.removeprefix("--").replace("-", "_") for word in words]
    name = next((name for name in names if name in _PYTHON_ONLY), None)
    if "memory" in names:
        fix = "an array file is in C order: give that order as the right side of PATTERN"
    elif command == "batches" and "shuffle" in names:
        fix = "give --sampler shuffle"
    elif name is not None:
        fix = f"{name}= is for Python only, as in {_PYTHON_ONLY[name]}"
    elif command in ("convert", "batches") and all(_is_number(word) for word in unknown):
        fix = "separate numbers by commas, without spaces, such as 0.5,0.5,0.5"
    else:
        fix = f"see layoutkit {command} --help"
    return f"unrecognized arguments: {' '.join(unknown)}; {fix}"


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.,]+", text))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise ArgumentError instead of exiting, so that `main` reports all errors."""
        raise ArgumentError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="layoutkit",
        description="Batches from any layout and dtype into any other.",
        epilog=format_examples(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"layoutkit {__version__}")
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for name, (summary, add_arguments) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=format_examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add_arguments(command)
    return parser


def _add_convert(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "layoutkit convert SRC [SRC ...] DST PATTERN [options]"
    parser.description = _CONVERT_DESCRIPTION
    add("positionals", nargs="*", help=argparse.SUPPRESS)
    add("--dtype", help=f"dtype of the result: {_DTYPES}")
    _add_formula(parser)
    _add_sizes(parser)
    _add_windows(parser)
    _add_padding(parser)
    options_help = "the pattern and all options of the conversion: Converter.to_dict() as JSON"
    add("--options", type=Path, metavar="FILE.json", help=options_help)
    skip = _add_image_options(parser, "stretch", "--resize").add_argument
    skip("--skip-bad", action="store_true", help="skip images that cannot be read, with a message")
    casting_help = "which casts are allowed (default: same_kind, but no change of sign)"
    add("--casting", choices=CASTINGS, help=casting_help)
    add("--chunk", type=positive_int, metavar="N", help="samples at a time (default: 16 to 64 MiB)")
    add("--quiet", action="store_true", help="no progress bar and no summary")
    add("--scheduler", metavar="URL", help="dask scheduler for a .zarr DST (default: threads)")


IMAGE_SIZE = 224, 224  # of `batches`, by default


def _add_batches(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    source_help = "a labeled folder, a table, .rec, .tar, .parquet or .tfrecord; several with --mix"
    add("src", metavar="SRC", nargs="+", help=source_help)
    order_help = "order of the records (default: linear; with --weights: weighted)"
    add("--sampler", metavar="KIND", help=order_help)
    weights_help = "relative probability of the records of each label; they may be drawn repeatedly"
    add("--weights", type=weights, metavar="LABEL=W,..", help=weights_help)
    mix_help = "read several SRC in turn, in shares by these weights, one for each SRC"
    add("--mix", type=numbers, metavar="W,W,..", help=mix_help)
    end_help = "with --mix, when a SRC has no more records (default: stop)"
    add("--on-end", choices=("stop", "repeat", "drop"), help=end_help)
    add("--batch-size", type=positive_int, default=32, metavar="N", help="default: 32")
    layout_help = "layout of the batches, such as bchw (default: bhwc)"
    add("--to", metavar="LAYOUT", help=layout_help)
    add("--dtype", help=f"dtype of the batches: {_DTYPES}")
    _add_formula(parser)
    options_help = "all options of the batches: Collator.to_dict() as JSON"
    add("--options", type=Path, metavar="FILE.json", help=options_help)
    _add_image_options(parser, "cover", "--size", IMAGE_SIZE)
    seed_help = "seed of a random order, and of random crops (default: 0)"
    add("--seed", type=nonnegative_int, metavar="N", help=seed_help)
    epoch_help = "number of the epoch (default: 0)"
    add("--epoch", type=nonnegative_int, default=0, metavar="N", help=epoch_help)
    workers_help = "threads that decode (default: up to 4)"
    add("--workers", type=nonnegative_int, metavar="N", help=workers_help)
    part_help = "read one of P parts, such as 0/4; p counts from 0"
    add("--partition", type=partition, default=(0, 1), metavar="p/P", help=part_help)
    columns_help = "columns of images and labels, as in image=photo,label=class (label= for none)"
    add("--columns", type=columns, metavar="image=NAME,label=NAME", help=columns_help)
    missing_help = "drop images without a label, or give them the target -1 (default: an error)"
    add("--missing", choices=("drop", "-1"), default="error", help=missing_help)
    add("--limit", type=positive_int, metavar="N", help="stop after N batches")
    profile_help = "also measure the speed of one batch that is read again and again"
    add("--profile", action="store_true", help=profile_help)
    add("--preview", type=Path, metavar="FILE.png", help="draw the first batch into this file")


def _add_decoding(add: Any) -> None:
    """Add the options of `layoutkit.images.read`, for each command that decodes images."""
    mode_help = "what pixels are (default: rgb); index: class numbers, layout bhw"
    add("--mode", choices=MODE_CHOICES, help=mode_help)
    srgb_help = "convert colors from the ICC profiles of the files to sRGB"
    add("--to-srgb", action="store_true", help=srgb_help)
    background_help = "color under transparent pixels, such as 255,255,255 (default: drop alpha)"
    add("--background", type=color, metavar="R,G,B", help=background_help)
    add("--max-pixels", type=positive_int, metavar="N", help=_MAX_PIXELS_HELP)


def _add_image_options(
    parser: argparse.ArgumentParser,
    default_fit: str,
    option: str,
    size: tuple[int, int] | None = None,
) -> "argparse._ArgumentGroup":
    group = parser.add_argument_group("images")
    add = group.add_argument
    default = "" if size is None else f" (default: {size[0]}x{size[1]})"
    size_help = f"resize every image to this size{default}"
    add(option, dest="resize", type=height_width, metavar="HxW", help=size_help)
    fit_help = (
        "cover: crop what exceeds the size; pad: fit inside it and fill the rest; or stretch "
        f"(default: {default_fit})"
    )
    add("--fit", choices=FIT_CHOICES, help=fit_help)
    short_help = "scale the shorter side to N, and crop the center"
    add("--short-side", type=positive_int, metavar="N", help=short_help)
    add("--filter", choices=FILTERS, help="filter that resizes (default: bilinear)")
    fill_help = "fill value of --fit pad, or of --pad-to (default: 0)"
    add("--fill", type=numbers, metavar="N,N,..", help=fill_help)
    center_help = "how half of an odd difference of sizes is rounded (default: round, half to even)"
    add("--center", choices=CENTERINGS, help=center_help)
    _add_decoding(add)
    return group


def _add_explain(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pattern", metavar="PATTERN", type=pattern, nargs="?", help="such as 'bhwc->bchw'")
    shape_help = "shape of the source; without it only a small example is shown"
    add("--shape", type=shape, metavar="N,N,..", help=shape_help)
    add("--from-dtype", metavar="DTYPE", help="dtype of the source (default: float32)")
    add(
        "--dtype",
        help=f"dtype of the result: {_DTYPES}, bfloat16, float8_e4m3fn, ...",
    )
    _add_formula(parser)
    _add_sizes(parser)
    add("--svg", type=Path, metavar="FILE.svg", help="also draw both memory orders into this file")
    compare_help = "list the differences of two files of options, as to_dict() returns them"
    add("--compare", type=Path, nargs=2, metavar=("A.json", "B.json"), help=compare_help)


_TABLES = {
    "collate": "collating many samples into one batch",
    "resize": "resizing images into one batch",
    "loaders": "batches of generated files, beside other data loaders",
    "hptt57": "the 57 permutations of HPTT's benchmark",
    "channels": "bhwc to bchw and back for 2 to 64 channels",
    "runs": "moves of contiguous runs of 8 to 4,096 bytes",
    "floor": "rows that must reach a share of the limit",
}


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    pattern_help = "measure this conversion only, such as 'bhwc->bchw'"
    add("pattern", metavar="PATTERN", type=pattern, nargs="?", help=pattern_help)
    add("--shape", type=shape, metavar="N,N,..", help="shape of the source of PATTERN")
    add("--from-dtype", metavar="DTYPE", help="dtype of the source (default: float32)")
    add("--dtype", help="dtype of the result (default: the source's)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="device to measure on")
    tables = parser.add_mutually_exclusive_group()
    random_help = "measure N random moves and casts instead, which no kernel was tuned for"
    tables.add_argument("--random", type=positive_int, metavar="N", help=random_help)
    for name, subject in _TABLES.items():
        text = f"measure {subject} instead"
        tables.add_argument(f"--{name}", dest="table", action="store_const", const=name, help=text)
    add("--seed", type=int, default=0, metavar="N", help="seed of --random (default: 0)")
    add("--quick", action="store_true", help="fewer rows and shorter runs")
    add("--only", metavar="REGEX", help="measure only the rows whose names match")
    add("--limit", type=positive_int, metavar="SECONDS", help="begin no row after this time")
    add("--plot", metavar="FILE", help="also draw the results into this file")
    add("--json", metavar="FILE", help="also write the results into this file")


def _add_watch(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", metavar="FILE", help="also write the table as JSON")
    add("--html", metavar="FILE", help="also write a page with the table and a timeline")
    bytes_help = f"omit copies that read and write fewer bytes (default: {MIN_BYTES})"
    add("--min-bytes", type=nonnegative_int, default=MIN_BYTES, metavar="N", help=bytes_help)
    add("script", metavar="SCRIPT", help="a Python file")
    arguments_help = "arguments of the script"
    remainder = add("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help=arguments_help)
    remainder.required = False  # argparse of Python 3.11 would name it if SCRIPT is missing


def _add_warmup(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pattern", metavar="PATTERN", type=pattern, nargs="?", help="such as 'bhwc->bchw'")
    add("--shape", type=shape, metavar="N,N,..", help="shape of the source, or of a sample")
    from_help = "dtype of the source (default: float32; of the samples of a batch: uint8)"
    add("--from-dtype", metavar="DTYPE", help=from_help)
    add("--dtype", help="dtype of the result")
    _add_formula(parser)
    _add_sizes(parser)
    add("--casting", choices=CASTINGS, help="which casts are allowed (default: same_kind)")
    options_help = "all options: Converter.to_dict() or Collator.to_dict() as JSON"
    add("--options", type=Path, metavar="FILE.json", help=options_help)
    batch = parser.add_argument_group("batches").add_argument
    batch_help = "collate this number of samples (default with the options of a Collator: 32)"
    batch("--batch-size", type=positive_int, metavar="N", help=batch_help)
    resize_help = "filter that resizes samples to the sizes (default: samples are cropped)"
    batch("--filter", choices=FILTERS, dest="resize", help=resize_help)
    batch("--fit", choices=FIT_CHOICES, help="with --filter (default: stretch)")
    short_help = "with --filter: scale the shorter side to N, and crop the center"
    batch("--short-side", type=positive_int, metavar="N", help=short_help)
    batch("--flip", metavar="AXIS", help="axis along which random samples are mirrored, such as w")


def _add_cache(parser: argparse.ArgumentParser) -> None:
    action_help = "show: print the folder and its size (default); clear: remove all kernels"
    parser.add_argument("action", choices=("show", "clear"), nargs="?", help=action_help)


def _add_no_arguments(_: argparse.ArgumentParser) -> None:
    """Add nothing, because `info` has no arguments."""


COMMANDS = {
    "convert": ("convert the file of an array, or images, into a .npy file", _add_convert),
    "batches": ("make batches of labeled images, and time each stage", _add_batches),
    "pack": ("pack labeled images into a RecordIO file, with .idx and .lst", add_pack),
    "index": ("write the .idx of a RecordIO file", add_index),
    "explain": ("show the plan and the memory orders of a conversion", _add_explain),
    "bench": ("benchmark conversions against other libraries", _add_bench),
    "watch": ("run a PyTorch program and list its copies because of layouts", _add_watch),
    "info": ("show versions, processor, threads and caches", _add_no_arguments),
    "warmup": ("compile the usual kernels, or your own, for later processes", _add_warmup),
    "cache": ("show the folder of compiled kernels and its size, or clear it", _add_cache),
}


def _add_formula(parser: argparse.ArgumentParser) -> None:
    formula = "y = (clip(x) * scale - mean) / std"
    add = parser.add_argument_group("formula", formula).add_argument
    add("--scale", type=number, metavar="N", help="such as 1/255")
    add("--mean", type=numbers, metavar="N,N,..", help="one number, or one per channel")
    add("--std", type=numbers, metavar="N,N,..", help="one number, or one per channel")
    clip_help = "bounds of x; one may be omitted, as in 0,"
    add("--clip", type=bounds, metavar="LOW,HIGH", help=clip_help)


def _add_windows(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("windows").add_argument
    crop_help = (
        "crop every image to this window: in the middle, at an offset (+y+x, from the top and the "
        "left), or at a random position for each image (+random:N, a seed)"
    )
    add("--crop", type=crop, metavar="HxW[+y+x]", help=crop_help)
    add("--flip", action="store_true", help="mirror every image left to right")
    channels_help = (
        "channel indices in the order of the result, such as 2,1,0; --mean has one value for each"
    )
    add("--channels", type=channels, metavar="N,N,..", help=channels_help)


def _add_padding(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("padding, with --fill and --center").add_argument
    to_help = "pad the result to these sizes, such as h=640,w=640"
    add("--pad-to", type=sizes, metavar="AXIS=N,..", help=to_help)
    before_help = "padding before the source, such as h=0,w=0 (default: in the middle)"
    add("--pad-before", type=sizes, metavar="AXIS=N,..", help=before_help)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    help_text = "size of an axis inside a fold, such as h=32 or height=32; repeatable"
    parser.add_argument(
        "--size", type=size, action="append", default=[], metavar="AXIS=N", help=help_text
    )


def _distinct_sizes(sizes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    by_axis = dict(sizes)
    if len(by_axis) < len(sizes):
        raise ArgumentError("--size: the same axis twice; give each axis one size")
    return by_axis
