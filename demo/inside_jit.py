"""Conversions inside jax.jit on the CPU: layoutkit, the operations of jax.numpy, and outside.

python demo/inside_jit.py   the times of docs/recipes/jax.md, measured in turns
"""

import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from layoutkit import Converter
from layoutkit.bench.protocol import Budget, Variant, measure
from layoutkit.bench.rows import MEAN, STD

SHAPES = [(1, 32, 32, 3), (1, 224, 224, 3), (16, 224, 224, 3), (64, 224, 224, 3)]
FEATURES = [(8, 56, 56, 64), (64, 56, 56, 64)]


def normalize(x: Any) -> Any:
    """Normalize bytes in operations of jax.numpy."""
    return ((x.astype(jnp.float32) / 255 - jnp.array(MEAN)) / jnp.array(STD)).transpose(0, 3, 1, 2)


def planes(x: Any) -> Any:
    """Permute features in operations of jax.numpy."""
    return x.transpose(0, 3, 1, 2)


def _wait(way: Any, x: Any) -> None:
    way(x).block_until_ready()


def main() -> None:
    """Check that all ways agree, and time them in turns."""
    photos = Converter("bhwc->bchw", dtype="float32", scale=1 / 255, mean=MEAN, std=STD)
    rows = [(shape, "uint8", photos, normalize) for shape in SHAPES]
    rows += [(shape, "float32", Converter("bhwc->bchw"), planes) for shape in FEATURES]
    print(f"MALLOC_MMAP_THRESHOLD_={os.environ.get('MALLOC_MMAP_THRESHOLD_', '')}")
    print("times in ms: inside jit by layoutkit, by jax.numpy; outside by layoutkit")
    for shape, dtype, converter, operations in rows:
        x = jnp.asarray(np.random.default_rng(0).integers(0, 256, shape).astype(dtype))
        inside = {"layoutkit": jax.jit(converter), "jax.numpy": jax.jit(operations)}
        ways: dict[str, Any] = {**inside, "outside": converter}
        results = [np.asarray(way(x)) for way in ways.values()]
        if not all(np.allclose(result, results[0], atol=1e-5) for result in results):
            raise SystemExit(f"{shape} {dtype}: the ways differ")
        calls = {name: partial(_wait, way, x) for name, way in ways.items()}
        variants = [Variant(name, [call]) for name, call in calls.items()]
        times = measure(variants, Budget(seconds=2.0, warm_up=0.05, max_rounds=41, sample=0.0))
        cells = "".join(f"{times[name].median * 1e3:9.3f}" for name in ways)
        print(f"{dtype:8} {shape!s:18}{cells}")


if __name__ == "__main__":
    main()
