"""Print untrusted text safely on a terminal.

A file name can contain any character but a slash: escape sequences, which a terminal executes,
newlines, after which text would look like the program's own output, and bytes that are not text.
"""

from __future__ import annotations

import re
import sys

# Keywords in messages of the library that have a command-line option; with or without a value.
_KEYWORD = re.compile(
    r"\b(casting|dtype|fill|fit|max_pixels|mean|scale|std|from_dtype)=(?:\"([^\"]*)\"|([^\s;,)]*))"
)


def escape_controls(text: object, keep: str = "") -> str:
    r"""Return text with control characters and the like escaped, except for those in `keep`.

    >>> escape_controls("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return "".join(letter if letter in keep else _escape(letter) for letter in str(text))


def keywords_to_options(message: str) -> str:
    """Return a message of the library with keywords replaced by command-line options.

    >>> keywords_to_options('float32 to uint8 is not allowed; use casting="saturate"')
    'float32 to uint8 is not allowed; use --casting saturate'
    """
    message = message.replace("raise PIL.Image.MAX_IMAGE_PIXELS", "give a larger --max-pixels")

    def option(match: re.Match[str]) -> str:
        name, quoted, plain = match.groups()
        value = quoted if quoted is not None else plain
        return f"--{name.replace('_', '-')} {value}".rstrip()

    return _KEYWORD.sub(option, message)


def format_bytes(nbytes: int) -> str:
    """Return a number of bytes in MB or kB.

    >>> format_bytes(1_234_567)
    '1.2 MB'
    """
    return f"{nbytes / 1e6:,.1f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:,.1f} kB"


def escape_unencodable_output() -> None:
    """Let stdout escape characters that its encoding lacks, as stderr always does."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _escape(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
