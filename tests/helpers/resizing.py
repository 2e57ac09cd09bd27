"""The definition of resizing, in float64: a matrix of weights for each axis."""

import numpy as np

RADIUS = {"bilinear": 1, "bicubic": 2, "lanczos": 3}


def filter_values(name, antialias, x):
    """Return the filter at distances x from its center."""
    x = np.abs(x)
    if name == "bilinear":
        return np.maximum(0, 1 - x)
    if name == "lanczos":
        return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
    a = -0.5 if antialias else -0.75
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def weights(name, antialias, size, scaled):
    """Return the weights of `size` positions in each of `scaled` results."""
    matrix = np.zeros((scaled, size))
    scale = size / scaled
    for i in range(scaled):
        if name == "nearest":
            matrix[i, (2 * i + 1) * size // (2 * scaled)] = 1
        elif name == "area" and scaled < size:
            for j in range(size):
                last = min((i + 1) * size, (j + 1) * scaled)
                matrix[i, j] = max(0, last - max(i * size, j * scaled))
        elif name == "area":  # as OpenCV enlarges: the second of two pixels counts from its edge on
            low = i * size // scaled
            share = (i + 1) - (low + 1) * scaled / size
            share = share - np.floor(share + 1e-12) if share > 1e-12 else 0
            matrix[i, low] += 1 - share
            matrix[i, min(low + 1, size - 1)] += share
        else:
            center = (i + 0.5) * scale
            wide = max(scale, 1) if antialias else 1
            reach = int(np.ceil(RADIUS[name] * wide)) + 1
            taps = np.arange(int(np.floor(center)) - reach, int(np.floor(center)) + reach + 1)
            values = filter_values(name, antialias, (taps + 0.5 - center) / wide)
            if antialias:
                inside = (taps >= 0) & (taps < size)
                taps, values = taps[inside], values[inside]
            np.add.at(matrix[i], taps.clip(0, size - 1), values)
    return matrix / matrix.sum(1, keepdims=True)


def along(matrix, x, axis):
    """Return the products of a matrix with the vectors of x along an axis."""
    return np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)


def placed(length, *, crop=None, offset=None):
    """Return the first position and the size of a crop."""
    extent = length if crop is None else crop
    return ((length - extent) // 2 if offset is None else offset), extent


def window(
    x, sizes, name, *, antialias=True, fit="stretch", short_side=None, pad_before=None, crop=None,
    offset=None, flip=(), fill=0.0,
):  # fmt: skip
    """Return the float64 window of a sample; `sizes` and all other arguments are by axis number.

    `fill` is broadcast with the sample.
    """
    crop, offset, pad_before = crop or {}, offset or {}, pad_before or {}
    parts = {a: placed(x.shape[a], crop=crop.get(a), offset=offset.get(a)) for a in sizes}
    extents = {a: extent for a, (_, extent) in parts.items()}
    scaled = dict(sizes)
    firsts = dict.fromkeys(sizes, 0)
    begins = {a: begin for a, (begin, _) in parts.items()}
    if short_side is not None:
        least = min(extents.values())
        scaled = {a: extents[a] * short_side // least for a in sizes}
        for a, n in sizes.items():
            room = scaled[a] - n
            firsts[a] = round(room / 2) if room >= 0 else -(-room // 2)
    elif fit == "cover":
        scale = max(n / extents[a] for a, n in sizes.items())
        for a, n in sizes.items():
            part = min(extents[a], max(1, round(n / scale)))
            begins[a] += (extents[a] - part) // 2
            extents[a] = part
    elif fit == "pad":
        scale = min(n / extents[a] for a, n in sizes.items())
        for a, n in sizes.items():
            scaled[a] = min(n, max(1, round(extents[a] * scale)))
            firsts[a] = -pad_before.get(a, (n - scaled[a]) // 2)
    y = x.astype(np.result_type(x.dtype, np.float64) if x.dtype.kind == "c" else np.float64)
    one = [1 if a in sizes else n for a, n in enumerate(x.shape)]
    fill = np.broadcast_to(np.asarray(fill, np.float64), one)
    for a in sizes:
        y = take(y, np.arange(begins[a], begins[a] + extents[a]), a, fill)
    for a in sizes:
        y = along(weights(name, antialias, extents[a], scaled[a]), y, a)
    for a, n in sizes.items():
        y = take(y, np.arange(firsts[a], firsts[a] + n), a, fill)
    return np.flip(y, flip)


def take(x, indices, axis, fill):
    """Return positions along an axis; those outside of x are filled."""
    inside = (indices >= 0) & (indices < x.shape[axis])
    y = np.take(x, indices.clip(0, x.shape[axis] - 1), axis)
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    return np.where(inside.reshape(shape), y, fill)
