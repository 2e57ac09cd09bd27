"""Values that are critical for casts, and NumPy's results for them."""

import numpy as np


def every_value(dtype):
    """Return all values of a narrow dtype, or the critical values of a wide one."""
    if dtype.kind == "b":
        return np.array([False, True] * 40)
    if dtype.kind != "c" and dtype.itemsize <= 2:
        codes = np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}")
        small = dtype.name in ("int4", "uint4", "float4_e2m1fn")
        return codes[:16].view(dtype) if small else codes.view(dtype)
    around = [s * (2.0**p + d) for s in (1, -1) for p in range(65) for d in (-1, -0.5, 0, 0.5, 1)]
    if dtype.kind in "iu":
        return np.array([v % 2 ** (8 * dtype.itemsize) for v in map(int, around)], "u8").astype(
            dtype.newbyteorder("=")
        ).astype(dtype)  # fmt: skip
    fine = np.frombuffer(np.random.default_rng(0).bytes(1 << 15), "f4")
    powers = 2.0 ** np.arange(65)
    powers = np.concatenate([powers, -powers]).astype(
        dtype if dtype.kind == "f" and dtype.itemsize >= 4 else "f4"
    )
    # The neighbors of the bounds of integers, as a bound such as 2 ** 31 - 1 is not a float32.
    around += [*np.nextafter(powers, powers.dtype.type(np.inf)).tolist()]
    around += [*np.nextafter(powers, powers.dtype.type(-np.inf)).tolist()]
    tiny = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e-45, 1e-40, 6e-8, 65519.99, 65520, 3.4e38]
    halves = np.arange(-300, 70000, 0.5)
    # The midpoints between float16 values and their neighbors, where double rounding is wrong.
    float16s = np.arange(0, 0x7C00, 7, dtype="u2").view("f2").astype("f8")
    middle = (float16s[1:] + float16s[:-1]) / 2
    ways = [middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9)]
    with np.errstate(all="ignore"):
        values = np.concatenate([around, tiny, -np.array(tiny), halves, fine, *ways])
        return values.astype(np.promote_types(dtype, "f4") if dtype.itemsize < 4 else dtype)


def thinned(values):
    """Return few enough values to cast them one by one in Python."""
    if values.size < 20000:
        return values
    return np.concatenate([values[::7], values[:2000], values[-2000:]])


def numpys(values, dtype):
    """Return the results of NumPy's casts."""
    with np.errstate(all="ignore"):
        return (values.real if values.dtype.kind == "c" and dtype.kind not in "cb" else values
                ).astype(dtype)  # fmt: skip


def assert_cast(got, wanted):
    """Compare bits, but accept any NaN for a NaN."""
    assert got.dtype == wanted.dtype
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted)
        return
    odd = got.view(f"u{got.itemsize}") != wanted.view(f"u{got.itemsize}")
    with np.errstate(invalid="ignore"):
        assert np.isnan(got[odd].astype("f8")).all()
        assert np.isnan(wanted[odd].astype("f8")).all()
