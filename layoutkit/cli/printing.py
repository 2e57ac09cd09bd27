"""What goes to the terminal: text in which no file name can write to it.

A name may hold anything but a slash: escape sequences, which a terminal obeys, newlines, behind
which words look like ours, and bytes that are no text at all.
"""

from __future__ import annotations

import re
import sys

# Keywords of the library that are options, as its messages write them: with a value or without.
_KEYWORD = re.compile(
    r"\b(casting|dtype|fill|fit|max_pixels|mean|scale|std|to_dtype)=(?:\"([^\"]*)\"|([^\s;,)]*))"
)


def escape_controls(text: object, keep: str = "") -> str:
    r"""Text without control characters and the like: escaped, but for those in `keep`.

    >>> printable("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return "".join(letter if letter in keep else _escaped(letter) for letter in str(text))


def keywords_to_options(message: str) -> str:
    """A message of the library in the words of the command line.

    >>> as_options('float32 to uint8 is not allowed; use casting="saturate"')
    'float32 to uint8 is not allowed; use --casting saturate'
    """
    message = message.replace("raise PIL.Image.MAX_IMAGE_PIXELS", "give a larger --max-pixels")

    def option(found: re.Match[str]) -> str:
        name, quoted, plain = found.groups()
        value = quoted if quoted is not None else plain
        return f"--{name.replace('_', '-')} {value}".rstrip()

    return _KEYWORD.sub(option, message)


def format_bytes(nbytes: int) -> str:
    """A number of bytes, as people read it.

    >>> amount(1_234_567)
    '1.2 MB'
    """
    return f"{nbytes / 1e6:,.1f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:,.1f} kB"


def escape_unencodable_output() -> None:
    """Let stdout escape what its encoding lacks, as stderr always does."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
