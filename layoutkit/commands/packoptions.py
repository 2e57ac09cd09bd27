"""The options of `layoutkit pack` and `layoutkit index`, as `arguments.py` has those of the others.

Knows options; files are looked at by whoever works with them.
"""

import argparse
from pathlib import Path

from .values import positive, whole

__all__ = ["PIXELS", "add_index", "add_pack"]

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
