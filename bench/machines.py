"""`python -m layoutkit.bench.machines`: blocks of dask, stores and ranks, on 1, 2 and 4 processes.

    blocks      one block, one thread: `convert` beside dask's own expression of the same formula,
                whose result lies as x did; and beside that expression brought into planes, which
                is what whoever stores or feeds planes needs. Graph and scheduler are in all of them
    store       `layoutkit convert` of a zarr store of bytes into one of float32, on a cluster of
                so many processes of one thread
    ranks       epochs of JPEGs by `shard=(rank, world)`, decoded and cut to one size, in so many
                processes of one thread that begin together

Medians. What is to be equal is compared before anything counts.
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
from . import feeding_images
from .host import set_passive_wait_policy
from .protocol import Budget, Variant, measure, paired_ratio

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SCALE = 1 / 255
BLOCK = (16, 512, 512, 3)
CHUNK = (16, 256, 256, 3)  # of a store
OURS = "convert"
OWN = "dask's own"
PLANES = "dask's own, in planes"


# ---- blocks ------------------------------------------------------------------------------


def expressions(x: Any, scale: float | None) -> dict[str, Any]:
    """Arrays of dask of one formula: (x * scale - mean) / std in float32, as planes."""
    mean = np.array(MEAN, np.float32)
    std = np.array(STD, np.float32)
    scaled = x.astype(np.float32) if scale is None else x.astype(np.float32) * np.float32(scale)
    own = ((scaled - mean) / std).transpose(0, 3, 1, 2)
    ours = convert(x, "bhwc->bchw", dtype="float32", scale=scale, mean=MEAN, std=STD)
    return {OURS: ours, OWN: own, PLANES: own.map_blocks(np.ascontiguousarray, dtype=own.dtype)}


def blocks(rounds: int, shape: tuple[int, ...] = BLOCK, warm_up: float = 0.5) -> None:
    """Print the times of a block, by dtype."""
    import dask.array as da

    print(f"one block of {shape}, ms: {OURS}, {OWN}, {PLANES}")
    budget = Budget(seconds=0.0, warm_up=warm_up, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    for dtype, scale in (("uint8", SCALE), ("float32", None)):
        values = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        lazy = da.from_array(values, chunks=shape)
        found = expressions(lazy, scale)
        check_blocks(values, scale, found)
        calls = {name: partial(y.compute, scheduler="sync") for name, y in found.items()}
        times = measure([Variant(name, [call]) for name, call in calls.items()], budget)
        cells = [f"{times[OURS].median * 1e3:8.1f}"]
        for name in (OWN, PLANES):
            ratio = paired_ratio(times[name], times[OURS])
            cells.append(f"{times[name].median * 1e3:8.1f} x{ratio:.1f}")
        print(f"{dtype:8}", *cells, flush=True)


def check_blocks(values: Any, scale: float | None, found: dict[str, Any]) -> None:
    """Stop unless blocks are what the whole is, to the bit, and dask's own within rounding."""
    whole = convert(values, "bhwc->bchw", dtype="float32", scale=scale, mean=MEAN, std=STD)
    ours, own = (found[name].compute(scheduler="sync") for name in (OURS, OWN))
    if not np.array_equal(ours, whole) or not np.allclose(ours, own, rtol=1e-5, atol=1e-5):
        sys.exit("a block differs from the whole")


# ---- stores ------------------------------------------------------------------------------


def store(processes: Sequence[int], rounds: int, images: int = 128) -> None:
    """Print the seconds of a store, by the number of processes."""
    import zarr
    from distributed import LocalCluster

    shape = (images, *BLOCK[1:])
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/x.zarr"
        made = zarr.create_array(source, shape=shape, chunks=CHUNK, dtype="u1", compressors=None)
        made[:] = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        print(f"store: {4 * np.prod(shape) / 1e6:,.0f} MB of float32 in chunks of {CHUNK}, seconds")
        for count in processes:
            with LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster:
                seconds = [
                    _run(source, f"{folder}/{count}-{number}.zarr", cluster.scheduler_address)
                    for number in range(rounds + 1)  # the first is a warm-up
                ]
            print(f"{count:3} {statistics.median(seconds[1:]):8.2f}", flush=True)


def _run(source: str, target: str, scheduler: str) -> float:
    """The seconds that the command says it took, of which it needs one to import what it uses."""
    command = [sys.executable, "-m", "layoutkit", "convert", source, target, "bhwc->bchw"]
    command += ["--dtype", "float32", "--scale", "1/255", "--scheduler", scheduler]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = re.search(r"chunks in ([\d.]+) s", done.stderr)
    if done.returncode or told is None:
        sys.exit(done.stderr)
    return float(told[1])


# ---- ranks -------------------------------------------------------------------------------


def ranks(processes: Sequence[int], rounds: int, count: int = 2048) -> None:
    """Print the records per second of all ranks together, by their number."""
    with tempfile.TemporaryDirectory() as folder:
        path = feeding_images.write_photos(count, Path(folder))
        print(f"ranks: {count} JPEGs, all ranks together, records a second")
        for world in processes:
            seconds = together(_epochs, world, str(path), rounds)
            print(f"{world:3} {count / statistics.median(seconds):8.0f}", flush=True)


def together(program: Callable[..., list[float]], world: int, *given: Any) -> list[float]:
    """The seconds of each round of a program in so many processes: those of the slowest."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(world)
    told = context.SimpleQueue()
    children = [
        context.Process(target=_child, args=(told, barrier, program, rank, world, *given))
        for rank in range(world)
    ]
    for child in children:
        child.start()
    found = [told.get() for _ in children]
    for child in children:
        child.join()
    if [] in found:
        sys.exit("a process failed, as it says above")
    return [max(each) for each in zip(*found, strict=True)]


def _child(told: Any, barrier: Any, program: Callable[..., list[float]], *given: Any) -> None:
    """Tell the seconds of a program; none where it fails, so that nobody waits for it."""
    seconds: list[float] = []
    try:
        seconds = program(barrier, *given)
    finally:
        if not seconds:
            barrier.abort()
        told.put(seconds)


def _epochs(barrier: Any, rank: int, world: int, path: str, rounds: int) -> list[float]:
    seconds = []
    how: dict[str, Any] = {"batch_size": 32, "sampler": "shuffle", "num_workers": 0}
    how |= {"shard": (rank, world), "size": (224, 224), "fit": "cover"}
    with sampled_batcher(path, **how) as batches:
        for turn in range(rounds + 1):  # the first is a warm-up
            barrier.wait()
            began = time.perf_counter()
            for batch in batches:
                view: Any = batch.input
                view.forward_get("bchw", "float32", scale=SCALE)
            if turn:
                seconds.append(time.perf_counter() - began)
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m layoutkit.bench.machines")
    parser.add_argument("part", choices=("blocks", "store", "ranks"))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    given = parser.parse_args(argv)
    print(set_passive_wait_policy())
    if given.part == "blocks":
        blocks(given.rounds)
    else:
        {"store": store, "ranks": ranks}[given.part](given.processes, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
