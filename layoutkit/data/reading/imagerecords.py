"""Image records: a header with labels and an id, and then the bytes of a picture's file.

Knows the header; the picture is bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...checks import kind_text
from ...errors import DataError
from .recordframes import HEAD, MAGIC

__all__ = ["HEADER", "ImageHeader", "as_bytes", "pack_image", "unpack_image", "whole_picture"]

_HEADER = struct.Struct("<IfQQ")
HEADER = _HEADER.size
_FRAME = struct.Struct("<III")  # magic, flag of parts and length, flag of labels


class ImageHeader(NamedTuple):
    """What an image record says of its picture.

    flag : int             how many labels follow the header; 0 where the one label stands in it
    labels : tuple         floats, at least one
    id, id2 : int          numbers of the picture; id2 is 0 in all known files
    """

    flag: int
    labels: tuple[float, ...]
    id: int
    id2: int


def pack_image(data: Any, label: Any, id: int = 0, id2: int = 0) -> bytes:  # noqa: A002
    """The payload of an image record.

    >>> pack_image(b"....", 3.0, id=7).hex(" ", 4)
    '00000000 00004040 07000000 00000000 00000000 00000000 2e2e2e2e'

    Parameters
    ----------
    data : bytes
        A picture's file, as it is; b"" for a record that only has labels.
    label : number or sequence of numbers
        One label, or several. They are kept as float32.
    id, id2 : int
        0 .. 2^64 - 1.

    Raises
    ------
    DataError
        A label is no number, or one that float32 does not hold; an id is out of range.
    """
    labels = _labels(label)
    alone = np.ndim(label) == 0
    try:
        header = _HEADER.pack(0 if alone else len(labels), labels[0] if alone else 0.0, id, id2)
    except struct.error:
        raise DataError(f"id={id!r}, id2={id2!r}; each is a whole number, 0 .. 2^64 - 1") from None
    more = b"" if alone else struct.pack(f"<{len(labels)}f", *labels)
    return b"".join((header, more, as_bytes("data", data)))


def as_bytes(name: str, value: Any) -> bytes:
    """What is bytes, as bytes; DataError for numbers, text and the like."""
    if isinstance(value, bytes):
        return value
    try:
        return memoryview(value).cast("B").tobytes()
    except TypeError:
        raise DataError(f"{name} is a {kind_text(value)}; it is bytes") from None


def unpack_image(payload: bytes) -> tuple[ImageHeader, bytes]:
    """(ImageHeader, the picture's bytes) of an image record; DataError where it is none.

    >>> unpack_image(pack_image(b"...", [1, 0.5]))
    (ImageHeader(flag=2, labels=(1.0, 0.5), id=0, id2=0), b'...')
    """
    if len(payload) < HEADER:
        raise DataError(f"it is no image record: {len(payload)} bytes, and a header has {HEADER}")
    flag, label, number, more = _HEADER.unpack_from(payload)
    end = HEADER + 4 * flag
    if end > len(payload):
        raise DataError(f"it is no image record: {len(payload)} bytes cannot have {flag} labels")
    labels = struct.unpack_from(f"<{flag}f", payload, HEADER) if flag else (label,)
    return ImageHeader(flag, labels, number, more), payload[end:]


def whole_picture(frame: bytes) -> bytes | None:
    """The picture in the one frame of an image record, copied once; None for all else.

    What `unframed` and `unpack_image` give, without the look for another record inside, which takes
    longer than the copy: decoders leave aside what is behind a picture.
    """
    if len(frame) < _FRAME.size:
        return None
    magic, length, flag = _FRAME.unpack_from(frame)
    end, start = HEAD + length, HEAD + HEADER + 4 * flag
    if magic != MAGIC or end + -length % 4 != len(frame) or start > end:
        return None
    return frame[start:end]


def _labels(label: Any) -> list[float]:
    given = list(label) if isinstance(label, Sequence | np.ndarray) and np.ndim(label) else [label]
    try:
        labels = [float(each) for each in given]
        if isinstance(label, str | bytes) or not labels:
            raise TypeError
        with np.errstate(over="raise"):
            kept = np.array(labels).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"label={label!r}; it is a number, or some numbers") from None
    except FloatingPointError:
        raise DataError(f"label={label!r}, which float32 does not hold") from None
    for number, value in zip(given, kept.tolist(), strict=True):
        if isinstance(number, int | np.integer) and value != number:
            raise DataError(
                f"label={number!r}, of which float32, as labels are kept, makes {value:.0f}"
            )
    return labels
