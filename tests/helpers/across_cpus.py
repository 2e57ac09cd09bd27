"""Random conversions on several instruction sets, each a function of a seed and its number.

`python -m tests.helpers.across_cpus --seed 1 --moves 200` runs the same conversions in one process
for each instruction set that this CPU has, and compares the results: moves and casts are identical,
formulas differ by one rounding at most.
"""

import argparse
import sys
import warnings
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np

import layoutkit

from . import fuzz
from .children import finish, start
from .instruction_sets import lacking, named

CPUS = ("sse2", "avx2", "avx512")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--kernels", type=int, default=40, help="at most so many are compiled")
    asked = parser.parse_args()
    cpus = [name for name in CPUS if not lacking(name)]
    with TemporaryDirectory() as folder:
        made = results(cpus, Path(folder), asked.seed, asked.moves, asked.kernels)
    wrong = {pair: reason for pair, reason in compared(made, asked.seed) if reason}
    for (number, cpu), reason in wrong.items():
        print(
            f"{cpu}, number {number} of seed {asked.seed}: {reason}\n  {drawn(asked.seed, number)}"
        )
    print(f"{[len(each) for each in made.values()]} conversions on {cpus}: {len(wrong)} differ")
    return 1 if wrong else 0


def drawn(seed, number):
    """Return a conversion: those with even numbers have a formula with any constants."""
    rng = np.random.default_rng([seed, number])
    for move in (fuzz.draw_conversion(rng) for _ in count()):
        if ("mean" in move.keywords) == (number % 2 == 0):
            break
    room, keywords = move.source, move.keywords
    if "mean" in keywords:
        size = np.shape(keywords["mean"])
        keywords["mean"] = rng.normal(0, 20, size).tolist()
        keywords["std"] = rng.uniform(0.1, 50, size).tolist()
        keywords["scale"] = float(rng.uniform(0.001, 2))
    room.values = values(rng, room.shape, room.dtype)
    fuzz.repeat(room)
    return move


def values(rng, shape, dtype):
    """Return any integers, or floats of many magnitudes; any bits of other dtypes."""
    if dtype.kind == "f" or dtype == ml_dtypes.bfloat16:
        return (rng.normal(0, 1, shape) * 2.0 ** rng.integers(-20, 14, shape)).astype(dtype)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


# ---- one process for each instruction set ----------------------------------------------------

CODE = """
import sys
sys.path.insert(0, {root!r})
from tests.helpers import across_cpus
across_cpus.run({out!r}, {seed}, {moves}, {kernels})
"""


def results(cpus, folder, seed, moves, kernels):
    """Return {number: result} by instruction set."""
    options = {"seed": seed, "moves": moves, "kernels": kernels}
    root = str(Path(__file__).parents[2])
    started = {}
    for cpu in cpus:
        code = CODE.format(root=root, out=str(folder / f"{cpu}.npz"), **options)
        started[cpu] = start(code, **named(cpu))
    made = {}
    for cpu, process in started.items():
        finish(process)
        with np.load(folder / f"{cpu}.npz") as file:
            made[cpu] = {int(number): file[number] for number in file}
    return made


def run(out, seed, moves, kernels):
    """Run conversions until `moves` have kernels; write the bytes of their results."""
    warnings.simplefilter("ignore", layoutkit.LayoutkitWarning)  # of random constants
    fuzz.bound(kernels)
    np.savez(out, **dict(islice(_converted(seed, 4 * moves), moves)))


def _converted(seed, numbers):
    for number in range(numbers):
        move = drawn(seed, number)
        _, x = move.source.make()
        try:
            y = layoutkit.Converter(move.pattern, **move.keywords)(x)
        except fuzz.NewKernelError:
            continue
        yield str(number), fuzz.bits(y)


def compared(made, seed):
    """Yield ((number, instruction set), what is wrong or ""), compared with the first set."""
    (_, first), *others = made.items()
    for cpu, found in others:
        for number in sorted(first.keys() & found.keys()):
            yield (number, cpu), difference(drawn(seed, number), first[number], found[number])


def difference(move, one, other):
    """Return how two results of a conversion differ, "" if they may differ so."""
    if np.array_equal(one, other):
        return ""
    if "mean" not in move.keywords:
        return f"{np.count_nonzero(one != other)} bytes differ"
    dtype = np.dtype(move.keywords["dtype"])
    one, other = (each.view(dtype).astype("f8") for each in (one, other))
    kept = {key: value for key, value in move.keywords.items() if key != "mean"}
    zeros = np.zeros(np.shape(move.keywords["mean"])).tolist()
    magnitudes = np.abs(move.source.values.astype("f8"))
    product = move.reference(magnitudes, {**kept, "dtype": "f8", "mean": zeros})
    largest = np.maximum(np.abs(one), np.abs(other))
    computed = np.float64 if dtype == np.float64 else np.float32
    inner = steps(np.maximum(product.reshape(-1), largest), computed)
    outer = steps(largest, dtype)
    allowed = np.where(inner < outer, outer, inner if dtype == computed else inner + outer)
    excess = np.abs(one - other) / allowed
    return f"{excess.max():.2f} roundings apart" if excess.max() > 1 else ""


def steps(magnitudes, dtype):
    """Return the distance between neighboring numbers of a float dtype at some magnitudes."""
    info = ml_dtypes.finfo(dtype)
    exponents = np.frexp(np.maximum(magnitudes, float(info.smallest_normal)))[1] - 1
    return np.ldexp(float(info.eps), exponents)


if __name__ == "__main__":
    sys.exit(main())
