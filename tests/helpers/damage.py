"""Random damage to the bytes of files, and functions that open .npy and .npz files."""

import re
import zlib

from layoutkit.data import Sample, open_index

from .record_files import masked_crc32c

# Bytes that have a meaning in headers, tables and JSON.
SPECIAL = b"()[]{},:'L-0 9\\\0\xff"


def damaged(content, chance):
    """Return content after one to five changes: other bytes, fewer or more, large numbers."""
    content = bytearray(content)
    for _ in range(chance.randint(1, 5)):
        if not content:
            break
        at, kind = chance.randrange(len(content)), chance.randrange(5)
        # Half of the changes are in the first or last 200 bytes, where headers and directories are.
        at = chance.choice([at, at % 200, len(content) - 1 - at % 200]) % len(content)
        if kind < 2:
            content[at] = chance.choice([chance.randrange(256), *SPECIAL])
        elif kind == 2:
            del content[at : at + chance.randint(1, 30)]
        elif kind == 3:
            content[at:at] = content[at : at + 8] * chance.choice([1, 2, 50])
        else:
            content[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"9999", b"\x7f\0\0\0"])
    return bytes(content)


def through_sample(path):
    """Read every field of a Sample."""
    found = Sample(path)
    for _, field in found._iter_fields():
        field()
    found()


def through_index(path):
    """Read three records of an index."""
    index = open_index(str(path))
    for number in range(min(len(index), 3)):
        index.record(number)


# ---- damage that checksums do not show -------------------------------------------------------

NUMBERS = [b"0", b"1", b"-1", b"2", b"7", b"11", b"255", b"65536", b"%d" % 2**31, b"%d" % 2**32]
NUMBERS += [b"%d" % (2**63 - 1), b"%d" % 2**63, b"%d" % 2**64, b"9" * 30, b"9" * 5000, b"1.5"]
NUMBERS += [b"1e400", b"nan", b"true", b"null", b'""', b"[]", b"{}", b"[" * 2000, b"0x1", b"1_0"]


def renumbered(content, chance):
    """Return content with one of its decimal numbers replaced by another value."""
    numbers = [*re.finditer(rb"\d+", content)]
    if not numbers:
        return content
    start, stop = chance.choice(numbers).span()
    return content[:start] + chance.choice(NUMBERS) + content[stop:]


def with_checksums(suffix, content):
    """Return content with the checksums of its format computed again."""
    return _CHECKSUMS.get(suffix, bytes)(content)


def _tar(content):
    """Set the checksum of every block that has the magic of a tar header."""
    content = bytearray(content)
    for start in range(0, len(content) - 511, 512):
        if content[start + 257 : start + 262] == b"ustar":
            content[start + 148 : start + 156] = b" " * 8
            content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + 512])
    return bytes(content)


def _tfrecord(content):
    """Set the checksums of record lengths, up to a length that reaches beyond the file."""
    content = bytearray(content)
    start = 0
    while start + 12 <= len(content):
        content[start + 8 : start + 12] = masked_crc32c(bytes(content[start : start + 8]))
        start += 16 + int.from_bytes(content[start : start + 8], "little")
    return bytes(content)


def _png(content):
    """Set the CRC-32 of every chunk."""
    content = bytearray(content)
    start = 8
    while start + 12 <= len(content):
        stop = start + 8 + int.from_bytes(content[start : start + 4], "big")
        if stop + 4 > len(content):
            break
        content[stop : stop + 4] = zlib.crc32(content[start + 4 : stop]).to_bytes(4, "big")
        start = stop + 4
    return bytes(content)


_CHECKSUMS = {".tar": _tar, ".tfrecord": _tfrecord, ".png": _png}
