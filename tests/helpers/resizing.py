"""The definition of resizing, in float64: a matrix of weights for each axis; and random cases."""

import re
from functools import cached_property

import numpy as np

from layoutkit import Collator

from .arrays_of import BF16, assert_same
from .reference import reference_convert

RNG = np.random.default_rng(0)
FILTERS = ["nearest", "bilinear", "bicubic", "lanczos", "area"]
LEFTS = ["hwc", "hwc", "chw", "wch", "hw", "thwc", "cthw", "ctl", "h1wc", "h(tw)c"]
NAMES = {"b": "batch", "h": "height", "w": "width", "t": "time", "l": "length", "n": "new"}
AVERAGED = ["uint8", "uint16", "int16", "float16", "float32", "float64", BF16]
MOVED = [*AVERAGED, "bool", "int64", "uint32", "complex64"]


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
        elif name == "area":  # as OpenCV enlarges: two pixels are blended from their edge on
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


def middle(room, center="round"):
    """Return the first position of a part in the middle of a whole that is larger by `room`."""
    if center == "floor":
        return abs(room) // 2 if room >= 0 else -(abs(room) // 2)
    return round(room / 2)  # half to even


def placed(length, center, *, crop=None, offset=None):
    """Return the first position and the size of a crop."""
    extent = length if crop is None else crop
    return (middle(length - extent, center) if offset is None else offset), extent


def window(
    x, sizes, name, *, antialias=True, fit="stretch", short_side=None, pad_before=None, crop=None,
    offset=None, flip=(), fill=0.0, center="round",
):  # fmt: skip
    """Return the float64 window of a sample; `sizes` and all other arguments are by axis number.

    `fill` is broadcast with the sample.
    """
    crop, offset, pad_before = crop or {}, offset or {}, pad_before or {}
    parts = {a: placed(x.shape[a], center, crop=crop.get(a), offset=offset.get(a)) for a in sizes}
    extents = {a: extent for a, (_, extent) in parts.items()}
    scaled = dict(sizes)
    firsts = dict.fromkeys(sizes, 0)
    begins = {a: begin for a, (begin, _) in parts.items()}
    if short_side is not None:
        least = min(extents.values())
        scaled = {a: extents[a] * short_side // least for a in sizes}
        for a, n in sizes.items():
            firsts[a] = middle(scaled[a] - n, center)
    elif fit == "cover":
        scale = max(n / extents[a] for a, n in sizes.items())
        for a, n in sizes.items():
            part = min(extents[a], max(1, round(n / scale)))
            begins[a] += middle(extents[a] - part, center)
            extents[a] = part
    elif fit == "pad":
        scale = min(n / extents[a] for a, n in sizes.items())
        for a, n in sizes.items():
            scaled[a] = min(n, max(1, round(extents[a] * scale)))
            firsts[a] = -pad_before.get(a, middle(n - scaled[a], center))
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


def photo(shape, dtype="uint8", rng=RNG):
    dtype = np.dtype(dtype)
    if dtype.kind in "uib":
        return rng.integers(0, 2 if dtype.kind == "b" else 250, shape).astype(dtype)
    return (rng.standard_normal(shape) * 100).astype(dtype)


def draw_pattern(rng):
    """Return a random pattern, and the axis of samples that it drops, "" if there is none.

    The right side has the axes of the left one in any order, inserts axes and folds neighbors.
    """
    left = str(rng.choice(LEFTS))
    folded = left.partition("(")[2].partition(")")[0]
    axes = [name for name in left if name.isalpha()]
    if rng.integers(2):
        rng.shuffle(axes)
    dropped = str(rng.choice(axes)) if rng.integers(6) == 0 else ""
    axes = [name for name in axes if name != dropped or name in folded]
    for name in ["b", *rng.choice(["1", "n", "q"], rng.integers(3), replace=False).tolist()]:
        axes.insert(int(rng.integers(len(axes) + 1)), name)
    first = int(rng.integers(len(axes)))
    fold = axes[first : first + int(rng.integers(2, 4))]
    if len(fold) > 1 and "1" not in fold and rng.integers(3) == 0:
        axes[first : first + len(fold)] = [f"({''.join(fold)})"]
    return f"{left}->{''.join(axes)}", dropped if dropped not in folded else ""


def spell(pattern, names):
    """Return a pattern with names in place of letters, and blanks between them."""
    words = [names.get(letter, letter) for letter in pattern.replace("->", "%")]
    text = " ".join(words).replace("( ", "(").replace(" )", ")")
    return text.replace("%", "->")


class Case:
    """A random collation, and the same one by the definition; a crop is the nearest items."""

    def __init__(self, seed, *, resizes=True):
        self.rng = rng = np.random.default_rng(seed)
        self.resizes = resizes
        self.letters, self.dropped = draw_pattern(rng)
        self.names = {} if rng.integers(4) else NAMES
        # With b first in its fold, samples of different sizes would be packed.
        self.letters = re.sub(r"->\(b(\w+)\)", r"->(\1b)", self.letters)
        self.pattern = spell(self.letters, self.names) if self.names else self.letters
        self.left, self.right = self.letters.split("->")
        names = [name for name in self.left if name.isalpha()]
        folded = [name for name in names if name in self.left.partition("(")[2].partition(")")[0]]
        able = [name for name in names if name in "hwlt" and name not in folded]
        count = int(rng.integers(1, min(3, len(able)) + 1))
        self.resized = sorted(rng.choice(able, count, replace=False).tolist())
        self.filter = str(rng.choice(FILTERS)) if resizes else "nearest"
        self.antialias = self.filter == "lanczos" or bool(rng.integers(2))
        moved = self.filter == "nearest" and bool(rng.integers(2))
        dtypes = MOVED if moved else AVERAGED
        self.dtype = np.dtype(dtypes[rng.integers(len(dtypes))])
        self.sizes = {name: int(rng.integers(1, 40)) for name in self.resized}
        self.sizes |= {name: 1 for name in self.resized if name == self.dropped}
        self.folds = {folded[0]: 2} if folded else {}
        self.axes = list(self._groups())
        self.options = {}
        self.draw_options()
        channels = 1 if self.dropped == "c" else int(rng.integers(1, 8))
        single = {"1", self.dropped}
        free = [
            channels if g == "c" else 1 if g in single else int(rng.integers(1, 9))
            for g in self.axes
        ]
        self.free = [2 * n if len(g) > 1 else n for n, g in zip(free, self.axes, strict=True)]
        self.channels = None
        if "c" in self.axes and self.dropped != "c" and rng.integers(3) == 0:
            self.channels = tuple(rng.integers(0, channels, rng.integers(1, 5)).tolist())
            self.options["channels"] = self.channels
        if self.fill is not None and "c" in self.axes and rng.integers(2):
            self.fill = rng.integers(0, 2, channels).tolist()  # also representable as bool
        self.options |= {} if self.fill is None else {"fill": self.fill}
        self.samples = [self.draw_sample() for _ in range(rng.integers(1, 5))]
        self.draw_call()
        self.draw_formula(channels)

    def _groups(self):
        text = self.left
        while text:
            group = text[1 : text.index(")")] if text[0] == "(" else text[0]
            yield group
            text = text[len(group) + 2 * (text[0] == "(") :]

    def draw_options(self):
        rng = self.rng
        self.fill = int(rng.integers(2)) if rng.integers(3) == 0 else None
        self.fitting = {} if rng.integers(2) else {"center": "floor"}
        if not self.resizes:
            return
        if len(self.resized) > 1 and rng.integers(3) == 0:
            self.fitting["fit"] = str(rng.choice(["cover", "pad"]))
        elif self.fill is not None and rng.integers(3) == 0:
            self.fitting["short_side"] = int(rng.integers(1, 60))

    def draw_sample(self):
        rng = self.rng
        least = dict.fromkeys(self.resized, 1)
        if not self.resizes and self.fill is None:
            least = {name: self.sizes[name] for name in self.resized}
        shape = [
            int(rng.integers(least[group], 60)) if group in least else n
            for group, n in zip(self.axes, self.free, strict=True)
        ]
        x = photo(shape, self.dtype, rng)
        changes = [np.asfortranarray, lambda x: np.repeat(x, 2, -1)[..., ::2]]
        changes += [lambda x: x[::-1], lambda x: x[..., ::-1]]
        change = rng.integers(8)
        return changes[change](x) if change < len(changes) else x

    def draw_call(self):
        rng = self.rng
        self.drawn = {}
        for name in [name for name in self.resized if rng.integers(3) == 0]:
            axis = self.axes.index(name)
            crops, offsets = [], []
            for x in self.samples:
                n = x.shape[axis]
                margin = 0 if self.fill is None else 4
                crop = int(rng.integers(1, n + 1 + margin)) if self.resizes else self.sizes[name]
                low, high = (0, n - crop) if self.fill is None else (1 - crop, n - 1)
                crops.append(crop)
                offsets.append(int(rng.integers(max(low, -margin), max(low, high) + 1)))
            if self.resizes:
                self.drawn.setdefault("crop", {})[name] = crops
            self.drawn.setdefault("offset", {})[name] = offsets
        flips = [name for name in self.axes if name.isalpha() and len(name) == 1]
        flips = [name for name in flips if rng.integers(3) == 0]
        if flips:
            count = len(self.samples)
            self.drawn["flip"] = {name: rng.integers(0, 2, count).astype(bool) for name in flips}

    def draw_formula(self, channels):
        rng = self.rng
        self.formula = {}
        self.target = self.dtype
        if self.dtype.kind in "bc" or rng.integers(2):
            return
        self.target = np.dtype(str(rng.choice(["float32", "float64"])))
        self.options["dtype"] = str(self.target)
        if rng.integers(2):
            count = len(self.channels) if self.channels else channels
            self.formula = {"scale": 0.5, "mean": 3.0}
            if "c" in self.axes and rng.integers(2):
                self.formula["mean"] = rng.standard_normal(count).tolist()

    @property
    def keywords(self):
        """The arguments of the Collator."""
        named = {"resize": self.filter, "antialias": self.antialias} if self.resizes else {}
        options = self.options | self.fitting | self.formula
        return named | self._spelled(self.sizes | self.folds) | options

    @property
    def call(self):
        """The arguments of a call."""
        return {name: self._spelled(by_axis) for name, by_axis in self.drawn.items()}

    def _spelled(self, by_axis):
        return {self.names.get(name, name): value for name, value in by_axis.items()}

    @cached_property
    def collator(self):
        return Collator(self.pattern, **self.keywords)

    def made(self, samples=None, **keywords):
        return self.collator(samples or self.samples, **self.call, **keywords)

    def draw_again(self):
        """Draw as many other samples for the same Collator, and the arguments of their call."""
        self.samples = [self.draw_sample() for _ in self.samples]
        self.draw_call()

    def windows(self):
        """Return the windows in float64, with the selected channels."""
        windows = []
        for number, x in enumerate(self.samples):
            own = {
                name: {self.axes.index(axis): values[number] for axis, values in by_axis.items()}
                for name, by_axis in self.drawn.items()
            }
            flips = [axis for axis, value in own.pop("flip", {}).items() if value]
            sizes = {self.axes.index(name): size for name, size in self.sizes.items()}
            own |= {} if self.resizes else {"crop": sizes}
            placed_window = window(
                x, sizes, self.filter, antialias=self.antialias, **self.fitting, **own,
                fill=self.fill_of_sample(),
            )  # fmt: skip
            if self.channels is not None:
                placed_window = placed_window.take(self.channels, self.axes.index("c"))
            windows.append(np.flip(placed_window, flips))
        return np.stack(windows)

    def fill_of_sample(self):
        """Return the fill values, along the axis of channels if there are several."""
        if not isinstance(self.fill, list):
            return self.fill or 0
        return np.reshape(self.fill, [-1 if name == "c" else 1 for name in self.axes])

    def check(self):
        """Compare a batch with the definition."""
        self.compare(self.made(), *self.expected())

    def expected(self):
        """Return the batch and the windows in float64."""
        windows = self.windows()
        return reference_convert(windows, "b" + self.letters, **self.folds, **self.formula), windows

    def check_gradients(self, direction, gradients):
        """Compare gradients of a batch with the definition, which is linear but for a constant."""
        samples = self.samples
        changes = [self.rng.standard_normal(x.shape).astype(x.dtype) for x in samples]
        self.samples = [np.zeros_like(x) for x in samples]
        start = self.expected()[0]
        self.samples = changes
        change = self.expected()[0] - start
        self.samples = samples
        pairs = zip(changes, gradients, strict=True)
        found = sum(np.vdot(np.float64(x), np.asarray(grad, np.float64)) for x, grad in pairs)
        direction = np.asarray(direction, np.float64)
        digits = 1e-2 if self.dtype.itemsize == 2 else 1e-5
        allowed = digits * (1 + np.linalg.norm(change) * np.linalg.norm(direction))
        np.testing.assert_allclose(found, np.vdot(change, direction), rtol=0, atol=allowed)

    def compare(self, made, expected, windows):
        """Compare a batch with the expected one."""
        assert made.dtype == self.target
        assert made.shape == expected.shape
        largest = max(1.0, float(np.abs(windows).max(initial=0)))
        if self.filter == "nearest" and not self.formula:
            assert_same(made, expected.astype(self.target))
        elif self.target.kind in "ui":
            info = np.iinfo(self.target)
            error = made - expected.clip(info.min, info.max)
            assert np.abs(error).max(initial=0) <= 0.5 + 1e-5 * largest
        else:
            is_double = self.dtype == self.target == np.float64
            digits = {"float16": 1e-3, "bfloat16": 8e-3}.get(str(self.target), 1e-5)
            digits = 1e-12 if is_double else digits
            error = made.astype(np.complex128) - expected
            assert np.abs(error).max(initial=0) <= digits * largest


def detr_size(height, width, side, most):
    """Return the size to which transformers' DETR processor scales an image.

    Written from the documentation of `get_size_with_aspect_ratio`, in transformers 4.57.
    """
    short, long = sorted((height, width))
    exact = None
    if long / short * side > most:
        exact = most * short / long
        side = max(1, round(exact))
    other = max(1, int((side if exact is None else exact) * long / short))
    return (side, side) if short == long else (side, other) if height < width else (other, side)
