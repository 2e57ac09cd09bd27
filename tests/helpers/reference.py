"""A slow, obviously correct `convert` with which other tests compare results.

The reference shares no code with the library: it parses the pattern itself, fetches every element
by its computed position (no reshape/transpose chain that could repeat a mistake), evaluates the
formula in long double, and saturates with Python ints. Its arguments must be valid; errors are
tested elsewhere.
"""

import math
import warnings

import ml_dtypes  # noqa: F401  (makes NumPy know names such as "bfloat16")
import numpy as np


def reference_convert(
    x, pattern, *, dtype=None, scale=None, mean=None, std=None, clip=None, casting="same_kind",
    **sizes
):  # fmt: skip
    """Return the result of `layoutkit.convert` for a NumPy array, up to rounding in the formula."""
    left, right = (_groups(side) for side in pattern.split("->"))
    left, right = _spell_f(left, right), _spell_f(right, left)
    sizes = _all_sizes(left, right, x.shape, sizes)
    letters = "".join(left)
    values = np.array(x).reshape([sizes[letter] for letter in letters])
    dtype = _result_dtype(x.dtype, dtype, scale, mean, std)
    if clip is not None:
        values = _clipped(values, clip)
    if _has_formula(scale, mean, std):
        values = _formula(values, letters, scale, mean, std)
    moved = _gather(values, letters, "".join(right), sizes)
    shape = [math.prod(sizes[letter] for letter in group) for group in right]
    return _cast(moved, dtype, casting).reshape(shape)


def reference_sum(parts, layout, computed, result, **sizes):
    """Convert (array, layout) pairs to dtype `computed` and add them from left to right."""
    moved = [reference_convert(x, f"{of}->{layout}", **sizes).astype(computed) for x, of in parts]
    total = moved[0]
    with np.errstate(all="ignore"):
        for part in moved[1:]:
            total = total + part
        return total.astype(result)


def _groups(side):
    """Split a side of a pattern: "b(hw)" becomes ["b", "hw"]."""
    groups, inside = [], False
    for char in side.replace(" ", ""):
        if char in "()":
            inside = char == "("
            groups += [""] if inside else []
        elif inside:
            groups[-1] += char
        else:
            groups.append(char)
    return groups


def _spell_f(these, others):
    """Replace an `f` that only `these` groups have by the axes that only `others` have."""
    mine, theirs = "".join(these), "".join(others)
    meant = "".join(letter for letter in theirs if letter not in mine)
    if "f" not in mine or "f" in theirs or not meant:
        return these
    return [group.replace("f", meant) for group in these]


def _all_sizes(left, right, shape, given):
    """Return the size of every letter on either side."""
    sizes = {letter: 1 for letter in "".join(right) if letter not in "".join(left)}
    for group, total in zip(left, shape, strict=True):
        kept = {letter: given[letter] for letter in group if letter in given}
        missing = [letter for letter in group if letter not in kept]
        open_axes = [letter for letter in missing if letter not in "".join(right)]
        while open_axes and (len(missing) > 1 or 0 in kept.values()):
            kept[open_axes[0]] = 1  # An axis that is dropped can only have size 1.
            missing.remove(open_axes.pop(0))
        for letter in missing:
            kept[letter] = total // math.prod(kept.values())
        sizes |= kept
    return sizes


def _gather(values, letters, wanted, sizes):
    """Fetch each element of the target from its position in the flattened source."""
    step = {
        letter: math.prod(sizes[inner] for inner in letters[at + 1 :])
        for at, letter in enumerate(letters)
    }
    at = np.indices([sizes[letter] for letter in wanted])
    position = sum(at[axis] * step.get(letter, 0) for axis, letter in enumerate(wanted))
    return values.ravel()[position]


def _has_formula(*constants):
    return any(constant is not None for constant in constants)


def _result_dtype(source, asked, scale, mean, std):
    if asked is not None:
        return np.dtype(asked)
    if _has_formula(scale, mean, std) and source.kind in "bui":
        return np.dtype("float32")
    return source.newbyteorder("=")


def _clipped(values, clip):
    """Clip in long double, which represents the values within the bounds exactly."""
    low, high = (
        np.inf * sign if at is None else at for at, sign in zip(clip, (-1, 1), strict=True)
    )
    wide = values.astype(np.longdouble)
    return np.where(wide < low, low, np.where(wide > high, high, wide))


def _formula(values, letters, scale, mean, std):
    """Return (x * scale - mean) / std; mean and std are numbers, or one per index of an axis."""
    along = [next(iter(each)) for each in (mean, std) if isinstance(each, dict)] or ["c"]
    shape = [-1 if letter == along[0] else 1 for letter in letters]

    def constant(number, absent):
        number = next(iter(number.values())) if isinstance(number, dict) else number
        number = np.asarray(absent if number is None else number, dtype=np.longdouble)
        return number.reshape(shape if along[0] in letters and number.ndim else [1] * len(letters))

    scaled = values.astype(np.longdouble) * constant(scale, 1)
    return (scaled - constant(mean, 0)) / constant(std, 1)


def _cast(values, dtype, casting):
    if casting == "saturate" and dtype.kind in "ui":
        return _saturate(values, dtype)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # Lost imaginary parts and overflow are intended.
        return values.astype(dtype)


def _saturate(values, dtype):
    """Round half to even, clip, and replace NaN by 0, in Python ints, which never overflow."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def one(value):
        if value != value:
            return 0
        if value in (math.inf, -math.inf):
            return high if value > 0 else low
        return min(max(round(value), low), high)

    real = values.real
    exact = real if real.dtype.kind in "buif" else real.astype(np.float64)  # bfloat16, float8
    rounded = [one(value) for value in exact.ravel().tolist()]
    return np.array(rounded, dtype=dtype).reshape(values.shape)
