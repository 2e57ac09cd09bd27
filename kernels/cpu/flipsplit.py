"""Packed pixels in reverse to one row for each channel: split.py with lines from their ends.

The source begins at the last pixel of a line, which is the first of the output.
"""

from __future__ import annotations

from .split import of_lines


def mover(itemsize, channels, literal, nt):
    """All pixels of a block; `literal` is the width of a vector."""
    return of_lines(itemsize, channels, int(literal), nt, 1)
