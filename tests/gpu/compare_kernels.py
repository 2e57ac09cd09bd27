"""Time conversions by each kernel that can execute them, beside its estimated speed.

    python tests/gpu/compare_kernels.py [--random 64] [--seed N] [--only REGEX] [--json FILE]

A line has the kernel that layoutkit selects, its measured and its estimated share of a copy's
speed, and the shares of other kernels. The constants of the estimates in kernels/cuda/policy.py
were fitted to such measurements; fit them again for another GPU.

A conversion is captured as a CUDA graph and replayed `ROUNDS` times, each time after a copy of as
many bytes; the share is the median of their ratio. Results without a formula are compared with
CuPy's.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from layoutkit import convert, converter
from layoutkit.bench.device import device_rows, open_cuda
from layoutkit.cuda import program
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.kernels.cuda import launch
from layoutkit.spec import as_dtype
from tests.helpers.any_shapes import coverage_rows

ROUNDS = 9
SECONDS = 1.2e-3  # of a sample
MAKERS = {
    "transpose": launch.make_transpose_any,
    "lines": launch.make_lines,
    "permute": launch.make_permute,
}


@contextmanager
def only(name):
    """Plan with one kernel only; "" selects the fastest, as always. Yield the launches."""
    launches = []
    load = CupyRuntime.load

    def note(runtime, prepared, ordinal):
        launches.append(prepared)
        return load(runtime, prepared, ordinal)

    with patch.object(CupyRuntime, "load", note):
        for find in (converter._converters.find, program._launches):
            find.cache_clear()
        if not name:
            yield launches
            return
        makers = dict.fromkeys([*launch.MAKERS, "copy", "cast"], (MAKERS[name],))
        if name == "transpose":
            makers["transpose"] = (launch.make_transpose,)
        without_runs = patch.object(launch, "_runs", lambda *arguments: None)
        with patch.object(launch, "MAKERS", makers), without_runs:
            yield launches


def random_values(cupy, shape, dtype):
    """Return finite values of any dtype, made on the GPU."""
    words = cupy.random.randint(0, 1 << 16, int(np.prod(shape)), np.uint32)
    return words.astype(as_dtype(dtype)).reshape(shape)


def compare(device, row):
    """Return the measured and estimated share of the selected kernel, and of the others."""
    cupy = device.cupy
    x = random_values(cupy, row.shape(row.sources[0]), row.dtype)
    out = device.empty(row.result_shape, as_dtype(row.to_dtype))
    expected = cupy.ascontiguousarray(x.transpose(row.order(row.sources[0])))
    copy = device.limits(row, [[x]], [out])[0]
    count = ceil(SECONDS / min(device.timer([copy]) for _ in range(3)))
    calls, facts = {}, {}
    for name in ("", *MAKERS):
        with only(name) as launches:
            call = partial(convert, x, row.pattern, out=out, copy=True, **row.keywords)
            out.fill(0)
            call()
            key = [(each.family, each.defines, each.params) for each in launches]
            if not launches or key in [other for other, _ in facts.values()]:
                continue
            if row.is_exact and not bool((out == expected.astype(row.to_dtype)).all()):
                raise ValueError(f"{row.name} by {launches[0].family}: wrong result")
            facts[name] = key, launches[0]
            calls[name] = device.variant(name, [call] * count, 0.0, replay=True).calls[0]
    shares = {name: [] for name in calls}
    for _ in range(ROUNDS):
        limit = device.timer([copy] * count)
        for name, replay in calls.items():
            shares[name].append(limit / device.timer([replay]))
    return {
        name or "selected": {
            "kernel": facts[name][1].family,
            "share": round(median(shares[name]), 3),
            "estimate": round(facts[name][1].share, 3),
        }
        for name in calls
    }


def rows_of(options):
    """Return the rows to measure: the benchmark's, or random ones."""
    rows = coverage_rows(options.random, options.seed) if options.random else device_rows()
    return [row for row in rows if row.kind in ("move", "fused") and row.group != "huge"]


def main():
    """Measure the rows and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="N", help="N rows of any shape instead")
    parser.add_argument("--seed", type=int, default=0, help="of the random rows")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose names match")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers")
    options = parser.parse_args()
    device = open_cuda()
    results = {}
    for row in rows_of(options):
        if not re.search(options.only, row.name):
            continue
        with device.using():
            results[row.name] = compare(device, row)
        device.clear()
        (_, chosen), *others = results[row.name].items()
        text = f"{chosen['kernel']} {chosen['share']:.2f} ({chosen['estimate']:.2f})"
        text += "".join(f", {n} {one['share']:.2f} ({one['estimate']:.2f})" for n, one in others)
        print(f"{row.name}: {text}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
