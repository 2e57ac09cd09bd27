"""Record files for tests, written by slow and simple code that follows the formats' definitions."""

import io
import struct
import tarfile

from layoutkit import DataError
from layoutkit.data.io.reader import Reader

MAGIC = bytes.fromhex("0a23d7ce")


def contents(index):
    """Return the content of each record; None for a DataError that names its URL, or its text."""
    get, found = index.getter(Reader()), []
    for record in index:
        try:
            found.append(get(record))
        except DataError as error:
            found.append(None if record.url in str(error) else str(error))
    return found


def frames(payload):
    """Return a record of RecordIO: its payload is split at every aligned MAGIC."""
    parts, part = [], b""
    for start in range(0, len(payload), 4):
        word = payload[start : start + 4]
        if word == MAGIC:
            parts.append(part)
            part = b""
        else:
            part += word
    parts.append(part)
    out = b""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        flag = (0 if last else 1) if number == 0 else (3 if last else 2)
        out += MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + bytes(-len(part) % 4)
    return out


def image(data, label, number=0):
    """Return the payload of an image record with one label or a list of labels."""
    if isinstance(label, list):
        head = struct.pack("<IfQQ", len(label), 0, number, 0)
        return head + struct.pack(f"<{len(label)}f", *label) + data
    return struct.pack("<IfQQ", 0, label, number, 0) + data


def write_rec(path, payloads, index=True):
    """Write a RecordIO file and its .idx; return the offsets."""
    offsets, data = [], b""
    for payload in payloads:
        offsets.append(len(data))
        data += frames(payload)
    path.write_bytes(data)
    if index:
        lines = (f"{key}\t{offset}\n" for key, offset in enumerate(offsets))
        path.with_suffix(".idx").write_text("".join(lines))
    return offsets


def tar(members, **options):
    """Return a tar archive of (name, bytes) pairs as bytes."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", **options) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def crc32c(data):
    """Return the CRC-32C, computed bit by bit."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def masked_crc32c(data):
    """Return the checksum of TFRecord as bytes."""
    checksum = crc32c(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecords(payloads):
    """Return a TFRecord file as bytes."""
    heads = [struct.pack("<Q", len(payload)) for payload in payloads]
    pairs = zip(heads, payloads, strict=True)
    return b"".join(head + masked_crc32c(head) + data + masked_crc32c(data) for head, data in pairs)
