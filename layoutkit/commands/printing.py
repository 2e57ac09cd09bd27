"""What goes to the terminal: text in which no file name can write to it.

A name may hold anything but a slash: escape sequences, which a terminal obeys, newlines, behind
which words look like ours, and bytes that are no text at all.
"""

from __future__ import annotations

import sys

__all__ = ["accept_all_text", "printable"]


def printable(text: object, keep: str = "") -> str:
    r"""Text without control characters and the like: escaped, but for those in `keep`.

    >>> printable("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    """
    return "".join(letter if letter in keep else _escaped(letter) for letter in str(text))


def accept_all_text() -> None:
    """Let stdout escape what its encoding lacks, as stderr always does."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
