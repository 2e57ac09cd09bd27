"""The casts of `numeric.cuh`: the dtypes, and values at the limits of each."""

from itertools import product

import numpy as np

from layoutkit.kernels.cuda.launch import source

from .arrays_of import BF16

DTYPES = {
    "b1": "?", "i1": "i1", "i2": "i2", "i4": "i4", "i8": "i8", "u1": "u1", "u2": "u2", "u4": "u4",
    "u8": "u8", "f2": "f2", "bf": BF16, "f4": "f4", "f8": "f8",
}  # fmt: skip
PAIRS = [(a, b) for a, b in product(DTYPES, DTYPES) if a != b]


def headers():
    """Return the includes of a kernel family, which precede its own parameters."""
    text = source("gather")
    return text[: text.index("struct Params")]


# The bounds of saturating casts, and values beside them that are rounded to a bound or past it.
BOUNDS = {
    kind: [float(bound) + half for bound in (np.iinfo(kind).min, np.iinfo(kind).max)
           for half in (-0.5, 0, 0.5, 1)]
    for kind in "bhilBHIL"
}  # fmt: skip


def edges(name):
    """Return values of a dtype near the limits of all others, and random bits."""
    dtype = np.dtype(DTYPES[name])
    if name in ("f2", "bf"):
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(0)
    if name == "b1":
        return np.array([False, True])
    random = rng.integers(0, 256, 4096 * dtype.itemsize, dtype=np.uint8).view(dtype)
    if dtype.kind == "f":
        limits = [s * (2.0**n + d) for n in (0, 7, 8, 15, 16, 31, 32, 63, 64)
                  for d in (-1, -0.5, 0, 0.5, 1, 1.5) for s in (1, -1)]  # fmt: skip
        limits += [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 6e-8, 2.9e-8, 3e-8,
                   1e-45, 1.2e-38, 3.4e38, 1e39, 1 + 2**-11, 1 + 2**-11 + 2**-40]  # fmt: skip
        with np.errstate(over="ignore"):
            near = np.array([*limits, *(n for kind in "bhilBHIL" for n in BOUNDS[kind])], "f8")
            near = near.astype(dtype)
            beside = [np.nextafter(near, dtype.type(to)) for to in (-np.inf, np.inf)]
            return np.concatenate([near, *beside, near * dtype.type(1.0000001), random])
    info = np.iinfo(dtype)
    bounds = {int(f(i)) + d for i in map(np.iinfo, "bhilBHIL") for f in (lambda i: i.min,
              lambda i: i.max) for d in (-1, 0, 1)}  # fmt: skip
    kept = [n for n in bounds if info.min <= n <= info.max]
    return np.concatenate([np.array(sorted(kept), dtype), random])


def is_made(source, target, clip):
    """Return False if C leaves a cast undefined: from float to integer without saturation."""
    return clip or DTYPES[target] == "?" or not is_float(source) or is_float(target)


def is_float(name):
    return name in ("f2", "bf", "f4", "f8")
