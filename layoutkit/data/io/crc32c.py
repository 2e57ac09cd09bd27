"""CRC-32C, as TFRecord files have it of lengths and of data.

A library computes that of data, where one is installed; of the 8 bytes of a length, so few that it
is done here, too.

Knows checksums; what they are of is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

__all__ = ["library", "masked", "masked_of_length"]

_POLYNOMIAL = 0x82F63B78


def masked(checksum: int) -> int:
    """A checksum as it is stored, so that one of data with checksums in it is no worse."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1)
def library() -> Callable[[bytes], int] | None:
    """The checksum of bytes by an installed library; None where there is none."""
    found: Callable[[bytes], int]
    with suppress(ImportError):
        import google_crc32c

        found = google_crc32c.value
        return found
    with suppress(ImportError):
        import crc32c

        found = crc32c.crc32c
        return found
    return None


def masked_of_length(length: int) -> int:
    """The stored checksum of a length, 8 bytes."""
    data = struct.pack("<Q", length)
    known = library()
    if known is not None:
        return masked(known(data))
    table, checksum = _table(), 0xFFFFFFFF
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return masked(checksum ^ 0xFFFFFFFF)


@lru_cache(1)
def _table() -> list[int]:
    """The checksums of single bytes."""
    found = []
    for byte in range(256):
        checksum = byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (_POLYNOMIAL if checksum & 1 else 0)
        found.append(checksum)
    return found
