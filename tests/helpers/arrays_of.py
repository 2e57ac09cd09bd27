"""Arrays of any dtype, strides and alignment."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
# Only newer versions of ml_dtypes have complex32.
COMPLEX32 = [ml_dtypes.complex32] if hasattr(ml_dtypes, "complex32") else []
ODD = np.dtype([("a", "u1"), ("b", "<f2"), ("c", "u1", (2,))])  # five bytes
WIDE = np.dtype([("a", "<f8"), ("b", "<c16")])  # 24 bytes
MOVED = [
    np.dtype(name)
    for name in ("?", "u1", "i2", "f2", "f4", "f8", "c8", "c16", "M8[s]", "m8[ns]", ">i4", ">f8")
] + [BF16, np.dtype(ml_dtypes.float8_e4m3fn), ODD, WIDE]
LAYINGS = ("plain", "fortran", "backward", "sliced", "unaligned", "pages", "zero", "readonly")
UNALIGNED = ("unaligned", "unaligned fortran", "unaligned sliced")


def random_array(rng, shape, dtype):
    """Return a contiguous array of random bits; bools are 0 or 1."""
    dtype = np.dtype(dtype)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    if dtype.kind == "b":
        raw &= 1
    return raw.view(dtype).reshape(shape)


def laid(values, how):
    """Return equal values with other strides; "zero" repeats the first index with stride 0."""
    if how == "fortran":
        return np.asfortranarray(values)
    if how == "backward":
        flip = (slice(None, None, -1),) * values.ndim
        return np.ascontiguousarray(values[flip])[flip]
    if how == "sliced":
        room = np.zeros([2 * n + 1 for n in values.shape], values.dtype)
        return filled(room[tuple(slice(1, None, 2) for _ in values.shape)], values)
    if how == "unaligned":
        raw = np.zeros(values.nbytes + 1, np.uint8)[1:]
        return filled(raw.view(values.dtype).reshape(values.shape), values)
    if how == "unaligned fortran":
        return laid(values.T, "unaligned").T
    if how == "unaligned sliced":
        room = laid(np.zeros([2 * n + 1 for n in values.shape], values.dtype), "unaligned")
        return filled(room[tuple(slice(1, None, 2) for _ in values.shape)], values)
    if how == "pages":
        return paged(values)
    if how == "zero":
        return np.broadcast_to(values[:1], values.shape)
    if how == "readonly":
        values.flags.writeable = False
    return values


def paged(values):
    """Return equal values, with the rows of the last axis multiples of 4 KiB apart."""
    room = -(-values.shape[-1] * values.itemsize // 4096) * 4096
    raw = np.zeros((*values.shape[:-1], room), np.uint8)
    lines = raw[..., : values.shape[-1] * values.itemsize]
    return filled(lines.view(values.dtype), values)


def filled(array, values):
    array[...] = values
    return array


def bits(array):
    """Return elements as bytes, so that NaN equals itself and 0 differs from -0."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def assert_same(got, wanted):
    """Assert that two arrays are equal in shape, dtype and every bit."""
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(bits(got), bits(wanted))
