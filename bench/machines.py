"""Benchmarks of dask blocks, zarr stores and ranks: `python -m layoutkit.bench.machines PART`.

    blocks      one dask block in one thread: `convert`, the formula as dask operations, whose
                result keeps the memory order of x, and these operations with a copy into contiguous
                planes. Times include graph and scheduler
    store       `layoutkit convert` of a zarr store of uint8 to one of float32, on a cluster of N
                processes with one thread each
    ranks       epochs of JPEGs with `shard=(rank, world)`, decoded and cropped to one size, in N
                processes of one thread that start each epoch together

Times are medians. The results for blocks are compared before the measurement.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..converter import convert
from ..data import sampled_batcher
from . import photos
from .host import set_passive_wait_policy
from .protocol import Budget, Variant, measure, paired_ratio

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SCALE = 1 / 255
BLOCK = (16, 512, 512, 3)
CHUNK = (16, 256, 256, 3)  # chunk of a store
OURS = "convert"
DASK = "dask's own"
DASK_PLANES = "dask's own, in planes"


# ---- blocks ------------------------------------------------------------------------------


def make_expressions(x: Any, scale: float | None) -> dict[str, Any]:
    """Return dask arrays of (x * scale - mean) / std in float32, as planes."""
    mean = np.array(MEAN, np.float32)
    std = np.array(STD, np.float32)
    scaled = x.astype(np.float32) if scale is None else x.astype(np.float32) * np.float32(scale)
    dask_result = ((scaled - mean) / std).transpose(0, 3, 1, 2)
    layoutkit_result = convert(x, "bhwc->bchw", dtype="float32", scale=scale, mean=MEAN, std=STD)
    return {
        OURS: layoutkit_result,
        DASK: dask_result,
        DASK_PLANES: dask_result.map_blocks(np.ascontiguousarray, dtype=dask_result.dtype),
    }


def print_blocks(rounds: int, shape: tuple[int, ...] = BLOCK, warm_up: float = 0.5) -> None:
    """Print the times of one block for each dtype."""
    import dask.array as da

    print(f"one block of {shape}, ms: {OURS}, {DASK}, {DASK_PLANES}")
    budget = Budget(seconds=0.0, warm_up=warm_up, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    for dtype, scale in (("uint8", SCALE), ("float32", None)):
        values = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        lazy = da.from_array(values, chunks=shape)
        by_name = make_expressions(lazy, scale)
        check_blocks(values, scale, by_name)
        calls = {name: partial(y.compute, scheduler="sync") for name, y in by_name.items()}
        times = measure([Variant(name, [call]) for name, call in calls.items()], budget)
        cells = [f"{times[OURS].median * 1e3:8.1f}"]
        for name in (DASK, DASK_PLANES):
            ratio = paired_ratio(times[name], times[OURS])
            cells.append(f"{times[name].median * 1e3:8.1f} x{ratio:.1f}")
        print(f"{dtype:8}", *cells, flush=True)


def check_blocks(values: Any, scale: float | None, by_name: dict[str, Any]) -> None:
    """Exit unless layoutkit's block equals the converted array, and dask's up to rounding."""
    expected = convert(values, "bhwc->bchw", dtype="float32", scale=scale, mean=MEAN, std=STD)
    layoutkit_result, dask_result = (
        by_name[name].compute(scheduler="sync") for name in (OURS, DASK)
    )
    if not np.array_equal(layoutkit_result, expected) or not np.allclose(
        layoutkit_result, dask_result, rtol=1e-5, atol=1e-5
    ):
        sys.exit("a converted block differs from the converted array or from dask's result")


# ---- stores ------------------------------------------------------------------------------


def print_store(processes: Sequence[int], rounds: int, images: int = 128) -> None:
    """Print the seconds to convert a store for each number of processes."""
    import zarr
    from distributed import LocalCluster

    shape = (images, *BLOCK[1:])
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/x.zarr"
        store = zarr.create_array(source, shape=shape, chunks=CHUNK, dtype="u1", compressors=None)
        store[:] = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        print(f"store: {4 * np.prod(shape) / 1e6:,.0f} MB of float32 in chunks of {CHUNK}, seconds")
        for count in processes:
            with LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster:
                seconds = [
                    _run_convert(
                        source, f"{folder}/{count}-{number}.zarr", cluster.scheduler_address
                    )
                    for number in range(rounds + 1)  # the first is a warm-up
                ]
            print(f"{count:3} {statistics.median(seconds[1:]):8.2f}", flush=True)


def _run_convert(source: str, target: str, scheduler: str) -> float:
    """Run `layoutkit convert`; return the seconds it prints: two are imports and the connection."""
    command = [sys.executable, "-m", "layoutkit", "convert", source, target, "bhwc->bchw"]
    command += ["--dtype", "float32", "--scale", "1/255", "--scheduler", scheduler]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r"chunks in ([\d.]+) s", process.stderr)
    if process.returncode or match is None:
        sys.exit(process.stderr)
    return float(match[1])


# ---- ranks -------------------------------------------------------------------------------


def print_ranks(processes: Sequence[int], rounds: int, count: int = 2048) -> None:
    """Print the records per second of all ranks together for each number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        path = photos.write_rec(list(photos.make_jpegs(count)), Path(folder))
        print(f"ranks: {count} JPEGs, all ranks together, records a second")
        for world in processes:
            seconds = run_ranks(_epochs, world, str(path), rounds)
            print(f"{world:3} {count / statistics.median(seconds):8.0f}", flush=True)


def run_ranks(program: Callable[..., list[float]], world: int, *arguments: Any) -> list[float]:
    """Run a program in `world` processes; return the seconds of the slowest rank per round."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(world)
    results = context.SimpleQueue()
    children = [
        context.Process(target=_run_rank, args=(results, barrier, program, rank, world, *arguments))
        for rank in range(world)
    ]
    for child in children:
        child.start()
    seconds_by_rank = [results.get() for _ in children]
    for child in children:
        child.join()
    if [] in seconds_by_rank:
        sys.exit("a process failed; see its error above")
    return [max(round_seconds) for round_seconds in zip(*seconds_by_rank, strict=True)]


def _run_rank(
    results: Any, barrier: Any, program: Callable[..., list[float]], *arguments: Any
) -> None:
    """Put the seconds of each round of a program in `results`; an empty list if it fails."""
    seconds: list[float] = []
    try:
        seconds = program(barrier, *arguments)
    finally:
        if not seconds:
            barrier.abort()  # the other ranks would wait for this one
        results.put(seconds)


def _epochs(barrier: Any, rank: int, world: int, path: str, rounds: int) -> list[float]:
    seconds = []
    options: dict[str, Any] = {"batch_size": 32, "sampler": "shuffle", "num_workers": 0}
    options |= {"shard": (rank, world), "size": (224, 224), "fit": "cover"}
    with sampled_batcher(path, **options) as batches:
        for epoch in range(rounds + 1):  # the first is a warm-up
            barrier.wait()
            start = time.perf_counter()
            for batch in batches:
                view: Any = batch.input
                view.forward_get("bchw", "float32", scale=SCALE)
            if epoch:
                seconds.append(time.perf_counter() - start)
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Print the measurements of the selected part."""
    parser = argparse.ArgumentParser(prog="python -m layoutkit.bench.machines")
    parser.add_argument("part", choices=("blocks", "store", "ranks"))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    options = parser.parse_args(argv)
    print(set_passive_wait_policy())
    if options.part == "blocks":
        print_blocks(options.rounds)
    else:
        {"store": print_store, "ranks": print_ranks}[options.part](
            options.processes, options.rounds
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
