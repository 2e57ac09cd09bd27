"""CRC-32C checksums of the lengths and the data in TFRecord files.

Checksums of data need an installed library; checksums of 8-byte lengths are also computed here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

_POLYNOMIAL = 0x82F63B78


def masked(checksum: int) -> int:
    """Return a checksum in the masked form that is stored, safe for data with embedded CRCs."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1)
def library() -> Callable[[bytes], int] | None:
    """Return the CRC-32C function of an installed library; None if there is none."""
    crc: Callable[[bytes], int]
    with suppress(ImportError):
        import google_crc32c

        crc = google_crc32c.value
        return crc
    with suppress(ImportError):
        import crc32c

        crc = crc32c.crc32c
        return crc
    return None


def masked_of_length(length: int) -> int:
    """Return the stored (masked) checksum of a length, which is 8 bytes."""
    data = struct.pack("<Q", length)
    crc = library()
    if crc is not None:
        return masked(crc(data))
    table = _table()
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return masked(checksum ^ 0xFFFFFFFF)


@lru_cache(1)
def _table() -> list[int]:
    """Return the checksums of the 256 single bytes."""
    checksums = []
    for byte in range(256):
        checksum = byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (_POLYNOMIAL if checksum & 1 else 0)
        checksums.append(checksum)
    return checksums
