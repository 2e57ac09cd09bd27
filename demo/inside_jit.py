"""Conversions inside jax.jit on the CPU: layoutkit, the operations of jax.numpy, and outside.

python demo/inside_jit.py   the times of docs/recipes/jax.md, measured in turns
"""

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from layoutkit import Converter

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
ROUNDS = 41


def normalize(x: Any) -> Any:
    """Normalize bytes in operations of jax.numpy."""
    return ((x.astype(jnp.float32) / 255 - MEAN) / STD).transpose(0, 3, 1, 2)


def planes(x: Any) -> Any:
    """Permute features in operations of jax.numpy."""
    return x.transpose(0, 3, 1, 2)


def milliseconds(call: Callable[[Any], Any], x: Any) -> float:
    """Return the duration of the second of two calls; the first one warms caches and threads."""
    call(x).block_until_ready()
    start = time.perf_counter()
    call(x).block_until_ready()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    """Check that all ways agree, and time them in turns."""
    photos = Converter("bhwc->bchw", dtype="float32", scale=1 / 255, mean=MEAN, std=STD)
    features = Converter("bhwc->bchw")
    rows: list[tuple[tuple[int, ...], Any, Any, Any]] = [
        ((1, 32, 32, 3), "uint8", photos, normalize),
        ((1, 224, 224, 3), "uint8", photos, normalize),
        ((16, 224, 224, 3), "uint8", photos, normalize),
        ((64, 224, 224, 3), "uint8", photos, normalize),
        ((8, 56, 56, 64), "float32", features, planes),
        ((64, 56, 56, 64), "float32", features, planes),
    ]
    print(f"MALLOC_MMAP_THRESHOLD_={os.environ.get('MALLOC_MMAP_THRESHOLD_', '')}")
    print("times in ms: inside jit by layoutkit, by jax.numpy; outside by layoutkit")
    for shape, dtype, converter, operations in rows:
        x = jnp.asarray(np.random.default_rng(0).integers(0, 256, shape).astype(dtype))
        ways = [jax.jit(converter), jax.jit(operations), converter]
        results = [np.asarray(way(x)) for way in ways]
        if not all(np.allclose(result, results[0], atol=1e-5) for result in results):
            raise SystemExit(f"{shape} {dtype}: the ways differ")
        times = [[milliseconds(way, x) for way in ways] for _ in range(ROUNDS)]
        inside, numpy, outside = (median(column) for column in zip(*times, strict=True))
        print(
            f"{dtype:8} {shape!s:18} {inside:8.3f} {numpy:8.3f} {outside:8.3f}"
            f"   x {numpy / inside:.1f} of jax.numpy, x {inside / outside:.1f} of outside"
        )


if __name__ == "__main__":
    main()
