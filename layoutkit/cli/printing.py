"""Print untrusted text safely on a terminal.

A file name can contain any character but a slash: escape sequences, which a terminal executes,
newlines, after which text would look like the program's own output, and bytes that are not text.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, TextIO

# Keywords in messages of the library that have a command-line option; with or without a value.
_KEYWORD = re.compile(
    r"\b(background|casting|clip|dtype|fill|fit|max_pixels|mean|missing|mode|scale|std|from_dtype)="
    r"(?:\"([^\"]*)\"|[(\[]([^)\]]*)[)\]]|([^\s;,)]*))"
)

_COLUMNS = re.compile(r"open_index\(source, columns=\{([^}]*)\}\)")


def _columns_to_option(match: re.Match[str]) -> str:
    pairs = re.findall(r"'(\w+)': (?:'([^']*)'|None)", match.group(1))
    return "--columns " + ",".join(f"{key}={name}" for key, name in pairs)


def keywords_to_options(message: str) -> str:
    """Return a message of the library with keywords replaced by command-line options.

    >>> keywords_to_options('float32 to uint8 is not allowed; use casting="saturate"')
    'float32 to uint8 is not allowed; use --casting saturate'
    >>> keywords_to_options("mean=(0.5, 0.4) and std=2.0")
    '--mean 0.5,0.4 and --std 2.0'
    """
    message = message.replace("raise PIL.Image.MAX_IMAGE_PIXELS", "give a larger --max-pixels")

    def option(match: re.Match[str]) -> str:
        name, quoted, listed, plain = match.groups()
        value = quoted or plain or (listed or "").replace(" ", "")
        return f"--{name.replace('_', '-')} {value}".rstrip()

    message = re.sub(r"\bto_srgb(=True)?", "--to-srgb", message)
    message = _COLUMNS.sub(_columns_to_option, message)
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


def open_closed_streams() -> None:
    """Open the null device as stdin, stdout and stderr if they are closed.

    Files that are opened later would get their numbers, to which C libraries write messages.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None or getattr(stream, "closed", False):
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


class OptionalStream:
    """A stream without errors: a command does not fail because its messages cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or discard it and all later text."""
        try:
            return self._stream.write(text)
        except OSError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        """Flush the stream, or discard its text and all later text."""
        try:
            self._stream.flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
