"""Items or packed pixels of up to four channels in reverse: shuffle.py with channels as they are.

Single items are pixels of one channel.
"""

from __future__ import annotations

from .shuffle import pixels


def mover(itemsize, channels, literal, nt):
    """All pixels of a block; `literal` is the width of a vector."""
    return pixels(itemsize, int(literal), tuple(range(channels)), channels, 1, nt)
