"""A process of `make compare` that times rows with one tree: `compare_worker.py TREE DESCRIPTOR`.

Processes of both trees execute this file of the newer tree, so it imports no other module of the
benchmark. Rows are texts of Python, as for timeit (see compare_rows.py), and arrive through a pipe.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import cycle, product
from math import prod
from multiprocessing.connection import Connection
from typing import Any

import ml_dtypes  # noqa: F401  # registers bfloat16
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

COPY_BYTES = 32 << 20  # more than the second-level caches
SLEEP = 0.005  # seconds, after which the workers of all thread pools sleep


def make_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Return an array that repeats 65,536 random integers from 0 to 126."""
    values = np.random.default_rng(0).integers(0, 127, 1 << 16).astype(dtype)
    return np.resize(values, shape)


def make_new_images(count: int, dtype: str) -> Iterator[Array]:
    """Yield images (count, h, w, 3) of more sizes than any cache has entries."""
    memory = make_array((count * 72 * 72 * 3,), dtype)
    for sizes in cycle(product(range(8, 72), repeat=2)):
        shape = (count, *sizes, 3)
        yield memory[: prod(shape)].reshape(shape)


class Worker:
    """The current row of a process."""

    def __init__(self, tree: str) -> None:
        self._names = {"array": make_array, "new_images": make_new_images, "cycle": cycle}
        self._names |= {"tree": tree, "sys": sys}
        self._call: Callable[[], object] = object
        self._target, self._source = (np.ones(COPY_BYTES, np.uint8) for _ in range(2))

    def open(self, setup: str, call: str, values: Mapping[str, Any]) -> None:
        """Release the row before; make the arrays of a row, and call it twice to compile it."""
        import layoutkit

        self._call = object
        gc.collect()
        names = {**self._names, **values, "lk": layoutkit}
        exec(setup, names)
        self._call = eval(f"lambda: {call}", names)
        self._call()
        self._call()

    def time(self, repeats: int, between: str) -> float:
        """Return the seconds of all calls, after an untimed "call" or other "work"."""
        if between == "work":
            np.copyto(self._target, self._source)
            time.sleep(SLEEP)
        else:
            self._call()
        call = self._call
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return time.perf_counter() - start


def main(tree: str, descriptor: str) -> None:
    """Answer messages (method, arguments) with (result, error) until the other side closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C the parent ends this process
    sys.path[0] = tree
    gc.disable()  # it could run inside a sample
    worker = Worker(tree)
    connection = Connection(int(descriptor))
    with suppress(EOFError, OSError):
        while True:
            method, arguments = connection.recv()
            try:
                connection.send((getattr(worker, method)(*arguments), None))
            # Any error of any tree: it becomes a line of the report.
            except Exception as error:
                connection.send((None, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
