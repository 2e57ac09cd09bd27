"""Image files that Pillow reads but does not write: PNGs of every depth, also interlaced."""

import struct
import zlib

import numpy as np

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of PNG by channels
_PALETTE_TYPE = 3
# First row, first column, step of rows, step of columns of the passes of Adam7.
_PASSES = [
    (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)
]  # fmt: skip


def png_file(values, bits, palette=None, transparency=None, interlaced=False):
    """Return a PNG of unsigned integers (height, width, channels) with `bits` bits each.

    palette : uint8 (colors, 3); the values are then its indices
    transparency : the bytes of the chunk tRNS
    """
    height, width, channels = values.shape
    color_type = _COLOR_TYPES[channels] if palette is None else _PALETTE_TYPE
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, interlaced)
    passes = _PASSES if interlaced else [(0, 0, 1, 1)]
    parts = [values[row::rows, column::columns] for row, column, rows, columns in passes]
    data = b"".join(_rows(part, bits) for part in parts if part.size)
    chunks = [(b"IHDR", header)]
    if palette is not None:
        chunks.append((b"PLTE", palette.tobytes()))
    if transparency is not None:
        chunks.append((b"tRNS", transparency))
    chunks += [(b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def png_animation(frames):
    """Return a PNG animation of uint16 (frames, height, width, channels)."""
    count, height, width = frames.shape[:3]
    first = png_file(frames[0], 16)
    data = first[: first.index(b"IDAT") - 4]  # the header
    data += _chunk(b"acTL", struct.pack(">II", count, 0))
    order = 0
    for number, frame in enumerate(frames):
        control = struct.pack(">IIIIIHHBB", order, width, height, 0, 0, 1, 10, 0, 0)
        data += _chunk(b"fcTL", control)
        order += 1
        pixels = zlib.compress(_rows(frame, 16))
        if number:
            pixels = struct.pack(">I", order) + pixels
            order += 1
        data += _chunk(b"fdAT" if number else b"IDAT", pixels)
    return data + _chunk(b"IEND", b"")


def _rows(values, bits):
    """Return the bytes of rows, each after a byte for no filter."""
    flat = values.reshape(len(values), -1).astype(">u2")
    in_bits = np.unpackbits(flat.view(np.uint8), axis=1).reshape(*flat.shape, 16)
    packed = np.packbits(in_bits[..., 16 - bits :].reshape(len(values), -1), axis=1)
    return np.concatenate([np.zeros((len(values), 1), np.uint8), packed], 1).tobytes()


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
