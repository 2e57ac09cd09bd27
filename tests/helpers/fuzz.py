"""Random conversions, sums and batches between guard pages, each a function of a seed.

`--kind windows` makes moves of one kind; `--kind foreign` conversions by the foreign functions of
XLA, which needs JAX.

`python -m tests.helpers.fuzz --seed 1 --moves 100000` makes them in a child process, compares them
with the slow reference byte by byte (resized values within the promised distance), including the
bytes around outputs, and names the first one that is wrong or ends the child. Each is made once
more in a thread with the smallest stack that is promised to be enough.
`--first 4711 --moves 1` repeats case 4711. `--cpu avx2` compiles kernels for a lesser CPU than this
one.
"""

import argparse
import math
import mmap
import os
import re
import signal
import sys
import traceback
import warnings
from dataclasses import dataclass, field
from itertools import pairwise

import ml_dtypes  # noqa: F401  (makes NumPy know names such as "bfloat16")
import numpy as np

import layoutkit
from layoutkit import accumulation
from layoutkit.cpu.program import supports_float16
from layoutkit.kernels.cpu import accumulate_launch, caches, compiler, launch, tiling
from layoutkit.memory import contiguous_strides
from layoutkit.threads import pool

from . import resizing
from .guarded import STACK_BYTES, guarded, run_on_stack
from .instruction_sets import named
from .reference import reference_convert

ODD = np.dtype([("a", "u1"), ("b", "<f2"), ("c", "u1", (2,))])  # five bytes
MOVED = ["u1", "i2", "f4", "f8", "c16", "bfloat16", ODD]
# (from, to, casting): every type of cast done by kernels, and some done by NumPy.
CASTS = [
    ("u1", "f4", "same_kind"), ("f4", "bfloat16", "same_kind"), ("bfloat16", "f4", "same_kind"),
    ("f8", "f4", "same_kind"), ("f4", "u1", "saturate"), ("f2", "f4", "same_kind"),
    ("u2", "i4", "same_kind"), (">f4", "f4", "same_kind"), ("i8", "u1", "unsafe"),
]  # fmt: skip
FORMULAS = [("u1", "f4"), ("u1", "bfloat16"), ("f4", "f4"), ("f8", "f8")]
ADDED = [("f4",), ("f2", "f4"), ("bfloat16",), ("f8", "f4"), ("i4",), ("u1", "i4")]
BLOCK_BYTES = {
    name: getattr(tiling, name)
    for name in ("STAGED_BYTES", "ROW_BYTES", "JOINED_BYTES", "PIECE_BYTES", "REPEAT_BYTES")
}
STREAMED_BYTES = tiling.STREAMED_BYTES
USUAL = ["bhwc", "bchw", "chwb", "bwc", "bcw", "bc"]
LETTERS = "abcdhwz"


class NewKernelError(Exception):
    """Raised if a move needs more kernels than may be compiled; another move is drawn instead."""


@dataclass
class Laid:
    """An array between guard pages."""

    shape: tuple
    dtype: object
    strides: tuple
    at_end: bool
    slack: int
    values: object = field(default=None, repr=False)

    def make(self):
        """Return (room, array); the pages hold `values`, or unexpected bytes."""
        place = {"at_end": self.at_end, "slack": self.slack}
        room, array = guarded(self.shape, self.dtype, self.strides, **place)
        room.pages[...] = 0xA5
        if self.values is not None:
            array[...] = self.values
            room.seal()
        return room, array


@dataclass
class Conversion:
    """One array, moved and perhaps cast."""

    pattern: str
    keywords: dict
    sizes: dict  # of the axes of x, by letter
    source: Laid
    out: Laid

    def run(self):
        _, x = self.source.make()
        converter = layoutkit.Converter(self.pattern, **self.keywords)
        check(self.out, lambda out: converter(x, out), self.expected)

    def expected(self):
        return self.reference(self.source.values, self.keywords)

    def reference(self, values, keywords):
        """Return the reference result for an x of these values, with these keywords."""
        keywords = dict(keywords)
        order = keywords.pop("channels", None)
        if order is None:
            return reference_convert(values, self.pattern, **keywords)
        if "c" in keywords:
            keywords["c"] = len(order)
        return reference_convert(self.selected(values, order), self.pattern, **keywords)

    def selected(self, values, order):
        """Return values like x with the selected channels only."""
        groups = groups_of(self.pattern.partition("-")[0])
        letters = "".join(groups)
        values = values.reshape([self.sizes[letter] for letter in letters])
        sizes = self.sizes | {"c": len(order)}
        return values.take(order, letters.index("c")).reshape(shape_of(groups, sizes))


@dataclass
class ForeignCall(Conversion):
    """A conversion by the foreign function of XLA, after a call with arrays that it must refuse."""

    changed: int  # 0: the source is not as planned, 1: the output
    change: str

    def run(self):
        from .xla_frames import REFUSED, UNPLANNED, buffer_of, frame_of, handler_of

        _, x = self.source.make()
        converter = layoutkit.Converter(self.pattern, **self.keywords)
        plan = converter.plan(x)
        if not plan.is_one_pass:  # XLA calls no kernel
            return
        handler = handler_of(converter, plan)
        room, out = self.out.make()
        arrays = [x, out]
        wrong = [buffer_of(array) for array in arrays]
        array = arrays[self.changed]
        wrong[self.changed] = buffer_of(array, **UNPLANNED[self.change](array))
        assert handler(frame_of(*wrong)) == REFUSED, f"{self.change} is not refused"
        assert (room.pages == 0xA5).all(), "a refused call has written"

        def work(out):
            if out is None:
                return converter(x)
            assert handler(frame_of(buffer_of(x), buffer_of(out))) == 0
            return out

        check(self.out, work, self.expected)


@dataclass
class Sum:
    """Several arrays, added."""

    layouts: tuple
    layout: str
    parts: list
    out: Laid

    def run(self):
        arrays = [part.make()[1] for part in self.parts]
        add = accumulation.Accumulator(self.layouts, self.layout, dtype=self.out.dtype)
        check(self.out, lambda out: add(arrays, out), self.expected)

    def expected(self):
        """Return integers so small that sums do not depend on the order."""
        pairs = zip(self.parts, self.layouts, strict=True)
        return sum(
            reference_convert(part.values, f"{of}->{self.layout}", dtype="f8") for part, of in pairs
        ).astype(self.out.dtype)


@dataclass
class Batch:
    """The samples, arguments and output of a call of a Collator."""

    samples: list
    call: dict
    out: Laid

    def run(self, collator, expected, compare=None):
        rooms, samples = zip(*(sample.make() for sample in self.samples), strict=True)

        def work(out):
            batch = collator(list(samples), **self.call, out=out)
            return batch.data if isinstance(batch, layoutkit.Packed) else batch

        check(self.out, work, expected, compare)
        del rooms


@dataclass
class Windows:
    """Batches of windows, made by one Collator."""

    pattern: str
    keywords: dict
    sizes: dict  # of the cropped axes
    batches: list

    def run(self):
        collator = layoutkit.Collator(self.pattern, **self.keywords, **self.sizes)
        for batch in self.batches:
            batch.run(collator, lambda batch=batch: self.expected(batch))

    def expected(self, batch):
        keywords = dict(self.keywords)
        fill, order = keywords.pop("fill", 0), keywords.pop("channels", None)
        windows = []
        for number, sample in enumerate(batch.samples):
            x = sample.values
            letters = self.pattern.partition("-")[0]
            shape = [-1 if letter == "c" else 1 for letter in letters]
            filled = np.reshape(fill, shape if np.ndim(fill) else [1] * len(shape))
            for letter, size in self.sizes.items():
                begin = batch.call["offset"][letter][number]
                x = positions(x, begin + np.arange(size), letters.index(letter), filled)
            if order is not None:
                x = x.take(order, letters.index("c"))
            flips = batch.call.get("flip", {}).items()
            windows.append(np.flip(x, [letters.index(y) for y, flip in flips if flip[number]]))
        return reference_convert(np.stack(windows), "b" + self.pattern, **keywords)


def positions(x, indices, axis, fill):
    """Return positions along an axis; those outside of x are filled."""
    inside = (indices >= 0) & (indices < x.shape[axis])
    y = x.take(indices.clip(0, x.shape[axis] - 1), axis)
    outside = [slice(None)] * axis + [~inside]
    if not inside.all():
        y[tuple(outside)] = fill.astype(x.dtype)
    return y


@dataclass
class Resized:
    """Batches of resized samples, made by one Collator."""

    seed: int  # of the case
    batches: list

    def run(self):
        case = resizing.Case(self.seed)
        if case.dtype == np.float16 and not supports_float16():
            return  # refused
        for number, batch in enumerate(self.batches):
            if number:
                case.draw_again()
            expected, windows = case.expected()

            def compare(made, expected, windows=windows):
                case.compare(made, expected, windows)

            batch.run(case.collator, lambda expected=expected: expected, compare)


def check(laid, work, expected, compare=None):
    """Check that `work` writes the correct result and changes no other byte of the pages.

    With `compare`, results may differ from the expected ones, but not from each other.
    """
    room, out = laid.make()
    raw = room.pages.copy()
    work(out)  # first: it may need too many kernels
    correct = expected()
    if compare is not None:
        compare(np.array(out), correct)
        correct = np.array(out)
    room.twin(raw, out)[...] = correct
    same_bytes(raw, room.pages)
    fresh = work(None)
    assert np.array_equal(bits(fresh), bits(correct)), "a new result differs"
    room.twin(room.pages, out)[...] = fresh[::-1]
    run_on_stack(lambda: work(out), STACK_BYTES)
    same_bytes(raw, room.pages)


def same_bytes(expected, found):
    wrong = np.flatnonzero(expected != found)
    assert not wrong.size, f"{wrong.size} bytes differ, the first at {wrong[0]}"


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# ---- drawing -----------------------------------------------------------------------------


def draw(seed, number, kind=""):
    """Return (move, policy): a move, and the launcher constants that it runs with.

    kind    a key of KINDS, or "" for any kind of MIXED
    """
    rng = np.random.default_rng([seed, number])
    policy = {
        "stream": int(rng.choice([1 << 20, 256])),
        "alone": int(rng.choice([128 << 10, 0])),
        "threads": int(rng.integers(1, 4)),
    }
    drawn = str(rng.choice([*MIXED], p=[*MIXED.values()]))
    move = KINDS[kind or drawn](rng)
    policy["divisor"] = int(rng.choice([1, 2, 8]))
    return move, policy


def draw_conversion(rng):
    left, right, sizes = draw_axes(rng)
    pattern = f"{text_of(left)}->{text_of(right)}"
    shape = shape_of(left, sizes)
    given = {letter: sizes[letter] for group in left for letter in group if len(group) > 1}
    picked = draw_channels(rng, sizes)
    results = sizes | ({"c": len(picked["channels"])} if picked else {})
    source, keywords = draw_dtypes(rng, results)
    room = draw_laid(rng, shape, np.dtype(source), repeats=True)
    room.values = draw_values(rng, shape, room.dtype, keywords)
    repeat(room)
    target = np.dtype(keywords.get("dtype", source))
    out = draw_laid(rng, shape_of(right, results), target)
    return Conversion(pattern, {**keywords, **picked, **given}, sizes, room, out)


def draw_foreign(rng):
    """Return a conversion of contiguous arrays, in a dtype of XLA, at addresses as XLA's."""
    from layoutkit.backends.jax import ffi

    from .xla_frames import UNPLANNED

    left, right, sizes = draw_axes(rng)
    source, keywords = draw_dtypes(rng, sizes, moved=[*ffi.TYPE_NUMBERS], casts=CASTS[:7])
    given = {letter: sizes[letter] for group in left for letter in group if len(group) > 1}
    rooms = [
        laid_for_xla(rng, shape_of(groups, sizes), np.dtype(dtype))
        for groups, dtype in ((left, source), (right, keywords.get("dtype", source)))
    ]
    rooms[0].values = draw_values(rng, rooms[0].shape, rooms[0].dtype, keywords)
    changed, change = int(rng.integers(2)), pick(rng, [*UNPLANNED])
    pattern = f"{text_of(left)}->{text_of(right)}"
    return ForeignCall(pattern, {**keywords, **given}, sizes, *rooms, changed, change)


def laid_for_xla(rng, shape, dtype):
    """Return a contiguous array at an address of 16 bytes, as near to a guard page as possible."""
    nbytes = math.prod(shape) * dtype.itemsize
    at_end = bool(rng.random() < 0.6)
    slack = 16 * pick(rng, [0, 0, 1, 3]) + (-nbytes % 16 if at_end else 0)
    strides = contiguous_strides(tuple(shape), dtype)
    return Laid(tuple(map(int, shape)), dtype, strides, at_end, slack)


def draw_channels(rng, sizes):
    """Return the option channels=, or no option."""
    count = sizes.get("c", 0)
    if not count or count > 9 or rng.random() < 0.6:
        return {}
    order = rng.permutation(count)[: rng.integers(1, count + 1)]
    if rng.random() < 0.2:
        order = rng.integers(0, count, rng.integers(1, 6))
    return {"channels": tuple(order.tolist())}


def draw_dtypes(rng, sizes, moved=MOVED, casts=CASTS):
    """Return (dtype of x, keywords), with numbers for which results are exact in any order."""
    kind = rng.random()
    if kind < 0.5:
        return pick(rng, moved), {}
    if kind < 0.8:
        source, target, casting = pick(rng, casts)
        return source, {"dtype": target, "casting": casting}
    source, target = pick(rng, FORMULAS)
    axis = "c" if "c" in sizes and rng.random() < 0.6 else str(pick(rng, [*sizes]))
    count = sizes[axis] if rng.random() < 0.7 else None
    constants = {
        "mean": rng.integers(0, 9, count or None).tolist(),
        "std": (2.0 ** rng.integers(-2, 3, count or None)).tolist(),
    }
    if count and axis != "c":
        constants = {name: {axis: values} for name, values in constants.items()}
    keywords = {"dtype": target, **constants}
    return source, keywords | ({"scale": 0.5} if rng.random() < 0.5 else {})


def draw_axes(rng):
    """Return (groups, groups, sizes): images, or any letters with any folds."""
    if rng.random() < 0.5:
        letters = list(pick(rng, USUAL))
        target = list(rng.permutation(letters))
    else:
        letters = list(rng.permutation(list(LETTERS)))[: rng.integers(1, 7)]
        target = list(rng.permutation(letters))
    sizes = draw_sizes(rng, letters)
    return fold(rng, letters), fold(rng, target), sizes


def draw_sizes(rng, letters):
    """Return sizes, few of them large: edges of registers and lines, sometimes zero."""
    room = int(rng.choice([300, 4000, 40000], p=[0.3, 0.6, 0.1]))
    sizes = {}
    for letter in rng.permutation(letters):
        few = [1, 2, 3, 4, 5, 7, 8, 9]
        many = [15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 257]
        drawn = 3 if letter == "c" and rng.random() < 0.4 else pick(rng, few + many)
        sizes[str(letter)] = min(drawn, max(1, room))
        room //= sizes[str(letter)]
    if rng.random() < 0.02:
        sizes[letters[0]] = 0
    return sizes


def fold(rng, letters):
    """Return letters in groups of one, sometimes more."""
    cuts = [at for at in range(1, len(letters)) if rng.random() < 0.85]
    return ["".join(letters[a:b]) for a, b in pairwise([0, *cuts, len(letters)])]


def shape_of(groups, sizes):
    return [math.prod(sizes[letter] for letter in group) for group in groups]


def groups_of(text):
    return [a or b for a, b in re.findall(r"\((\w+)\)|(\w)", text)]


def text_of(groups):
    return "".join(group if len(group) == 1 else f"({group})" for group in groups)


def draw_sum(rng):
    letters = list(pick(rng, USUAL))
    sizes = draw_sizes(rng, letters)
    layout = "".join(rng.permutation(letters))
    dtypes = pick(rng, ADDED)
    layouts = []
    parts = []
    for _ in range(rng.integers(1, 4)):
        source = "".join(rng.permutation(letters))
        shape = shape_of(source, sizes)
        part = draw_laid(rng, shape, np.dtype(pick(rng, dtypes)))
        part.values = draw_values(rng, shape, part.dtype, {})
        layouts.append(source)
        parts.append(part)
    result = accumulation.promote([part.dtype for part in parts])
    return Sum(tuple(layouts), layout, parts, draw_laid(rng, shape_of(layout, sizes), result))


def draw_windows(rng):
    left = str(pick(rng, ["hwc", "hwc", "chw", "wch", "hw", "thwc", "cthw", "lc"]))
    right = [*rng.permutation([*left, "b"])]
    sizes = {letter: max(1, size) for letter, size in draw_sizes(rng, [*left]).items()}
    cropped = [x for x in left if x != "c" and rng.random() < 0.8]
    picked = draw_channels(rng, sizes)
    results = sizes | ({"c": len(picked["channels"])} if picked else {})
    source, keywords = draw_dtypes(rng, results)
    has_fill = source != ODD and rng.random() < 0.4
    fill = {}
    if has_fill:
        count = sizes.get("c", 1) if rng.random() < 0.5 and "c" in sizes else None
        fill = {"fill": rng.integers(0, 60, count).tolist()}
    right = fold(rng, right)
    batches = []
    count = int(rng.integers(1, 6))
    for _ in range(rng.integers(1, 4)):
        count = int(rng.integers(1, 6)) if rng.random() < 0.3 else count
        plain = bool(rng.random() < 0.5)
        samples, call = draw_samples(rng, left, sizes, cropped, count, has_fill)
        laid = []
        for shape in samples:
            room = draw_laid(rng, shape, np.dtype(source), plain=plain)
            room.values = draw_values(rng, shape, room.dtype, keywords)
            laid.append(room)
        target = np.dtype(keywords.get("dtype", source))
        out = draw_laid(rng, shape_of(right, results | {"b": count}), target)
        batches.append(Batch(laid, call, out))
    windows = {letter: sizes[letter] for letter in cropped}
    options = {**keywords, **picked, **fill}
    return Windows(f"{left}->{text_of(right)}", options, windows, batches)


def draw_samples(rng, left, sizes, cropped, count, has_fill):
    """Return the shapes of `count` samples, and the offsets and flips of their windows."""
    shapes = [[sizes[letter] for letter in left] for _ in range(count)]
    call = {"offset": {letter: [] for letter in cropped}} if cropped else {}
    for letter in cropped:
        for shape in shapes:
            low = -4 if has_fill else 0
            size = max(1, sizes[letter] + int(rng.integers(low, 12)))
            room = size - sizes[letter]
            begin = int(rng.integers(min(low, room), max(0, room) - low + 1))
            shape[left.index(letter)] = size
            call["offset"][letter].append(begin)
    flips = {x: (rng.random(count) < 0.5).tolist() for x in left if rng.random() < 0.4}
    return shapes, call | ({"flip": flips} if flips else {})


def draw_resized(rng):
    seed = int(rng.integers(1 << 30))
    case = resizing.Case(seed)
    batches = []
    for number in range(rng.integers(1, 4)):
        if number:
            case.draw_again()
        samples = []
        plain = bool(rng.random() < 0.5)
        for x in case.samples:
            sample = draw_laid(rng, x.shape, x.dtype, plain=plain)
            sample.values = x
            samples.append(sample)
        out = draw_laid(rng, case.expected()[0].shape, case.target)
        batches.append(Batch(samples, case.call, out))
    return Resized(seed, batches)


def draw_values(rng, shape, dtype, keywords):
    """Return random bits if they are only moved, else integers that every dtype here can hold."""
    if not keywords and dtype == ODD:
        raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
        return raw.view(dtype).reshape(shape)
    return rng.integers(0, 60, shape).astype(dtype)


def draw_laid(rng, shape, dtype, repeats=False, plain=False):
    """Choose the memory layout of an array: contiguous, gaps, reversed or repeated; its end."""
    kind = rng.random()
    plain = plain or kind < 0.4
    strides = [0] * len(shape)
    step = dtype.itemsize
    # Gaps in C order are those of a slice, in which inner loops are still contiguous.
    axes = reversed(range(len(shape))) if kind < 0.7 else rng.permutation(len(shape))
    for axis in axes:
        if repeats and not plain and rng.random() < 0.1:
            continue
        step += 0 if plain else pick(rng, [0, 0, 0, dtype.itemsize, 1, 64])
        strides[axis] = step * (1 if plain else pick(rng, [1, 1, 1, -1]))
        step *= max(1, shape[axis])
    at_end = rng.random() < 0.6
    slack = pick(rng, [0, 0, 1, 3, 8, 64])
    return Laid(tuple(map(int, shape)), dtype, tuple(map(int, strides)), bool(at_end), slack)


def repeat(room):
    """Repeat the first value along axes of stride 0."""
    for axis, stride in enumerate(room.strides):
        if stride == 0 and room.shape[axis]:
            first = room.values.take([0], axis)
            room.values = np.broadcast_to(first, room.values.shape)


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


KINDS = {
    "conversions": draw_conversion,
    "sums": draw_sum,
    "windows": draw_windows,
    "resized": draw_resized,
    "foreign": draw_foreign,
}
MIXED = {"conversions": 0.5, "sums": 0.1, "windows": 0.25, "resized": 0.15}


MANY = ("engine", "resize")  # families of kernels, one for each combination of dtypes and options
MOST_SKIPPED = 1000  # moves, one after another, that need more kernels than are allowed


# ---- running -----------------------------------------------------------------------------


def run(seed, first, moves, kernels, kind="", at=lambda number: None):
    """Run moves until one fails, which is raised; return the number of drawn moves."""
    # Random formulas have small constants.
    warnings.simplefilter("ignore", layoutkit.LayoutkitWarning)
    bound(kernels)
    number = last = first
    made = 0
    while made < moves:
        at(number)
        if once(seed, number, kind):
            made, last = made + 1, number
        assert number - last < MOST_SKIPPED, f"no {kind} move in {MOST_SKIPPED} needs few kernels"
        number += 1
    return number - first


def once(seed, number, kind=""):
    """Run a move; return False if it needs too many kernels."""
    move, policy = draw(seed, number, kind)
    launch.STREAM_BYTES = accumulate_launch.STREAM_BYTES = policy["stream"]
    tiling.STREAMED_BYTES = dict.fromkeys(STREAMED_BYTES, 64) if number % 2 else STREAMED_BYTES
    for constant, nbytes in BLOCK_BYTES.items():  # smaller blocks, so that small arrays have many
        setattr(tiling, constant, nbytes // policy["divisor"])
    launch.l2_cache_bytes = caches.l2_cache_bytes if policy["divisor"] == 1 else lambda: 0
    pool.KEEP_GIL_BYTES = pool.SERIAL_BYTES = policy["alone"]
    layoutkit.set_num_threads(policy["threads"])
    try:
        move.run()
    except NewKernelError:
        return False
    except Exception as error:
        raise AssertionError(f"{name(seed, number, kind)}: {error!r}") from error
    return True


def bound(kernels):
    """Limit the number of kernels of the families of MANY that can be loaded."""
    load = compiler._load

    def bounded(spec):
        count = sum(kernel.spec.family in MANY for kernel in compiler.loaded())
        if count >= kernels and spec.family in MANY:
            raise NewKernelError(str(spec))
        return load(spec)

    compiler._load = bounded


def name(seed, number, kind):
    """Describe a move and how to reproduce it."""
    option = f"--kind {kind} " if kind else ""
    return f"{option}--seed {seed} --first {number} --moves 1: {draw(seed, number, kind)}"


def hunt(seed, first, moves, kernels, kind=""):
    """Run moves in a child process; return the description of a failure, "" if there is none."""
    told = mmap.mmap(-1, 8)  # shared with the child: the current move
    place = np.frombuffer(told, np.int64)
    child = os.fork()
    if not child:
        wrong = 1
        try:
            run(seed, first, moves, kernels, kind, lambda number: place.fill(number))
            wrong = 0
        except AssertionError as error:
            print(error, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(wrong)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        killed = signal.Signals(os.WTERMSIG(status)).name
        return f"{killed} in {name(seed, int(place[0]), kind)}"
    return "wrong" if status else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--moves", type=int, default=2000)
    parser.add_argument("--kernels", type=int, default=1000, help="at most so many are compiled")
    parser.add_argument("--kind", default="", choices=["", *KINDS])
    parser.add_argument("--cpu", default="", help="sse2, sse4, avx2 or avx512")
    asked = parser.parse_args()
    if asked.cpu:
        os.environ.update(named(asked.cpu))  # read with the first kernel
    wrong = hunt(asked.seed, asked.first, asked.moves, asked.kernels, asked.kind)
    print(wrong or f"{asked.moves} moves of seed {asked.seed}: all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
