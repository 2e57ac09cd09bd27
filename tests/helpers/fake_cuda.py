"""A simulated GPU under the real runtime: memory of the host, deferred streams, real kernels.

    gpu = install(monkeypatch)              layoutkit now finds two GPUs and CuPy's arrays
    x = gpu.array(values)                   an array of "CuPy" on cuda:0
    values_of(y)                            the values of an array after its stream's work
    gpu.check()                             raises if memory was freed too early

`fake_gpus` simulates the hardware and `fake_cupy` the module "cupy". The runtime that calls this
module is layoutkit's own.
"""

import ctypes
import sys
from collections import deque
from contextlib import contextmanager

import numpy as np

from layoutkit import accumulation, collator, converter, spec
from layoutkit.cuda import accumulate, driver, program, streams, transfers
from layoutkit.cuda import runtime as the_one
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.kernels.cuda import launch as kernel_launch

from . import fake_cupy

__all__ = ["FakeArray", "install", "replace", "values_of"]

FakeArray = fake_cupy.Array


class FakeGpu:
    """The simulated machine, as tests use it."""

    def __init__(self, cupy, runtime):
        self.cupy, self.gpus, self.runtime = cupy, cupy.gpus, runtime
        self.log, self.host_waits = self.gpus.log, self.gpus.host_waits

    @property
    def eager(self):
        """True if work runs at once, for tests with several threads or with other libraries."""
        return self.gpus.eager

    @eager.setter
    def eager(self, value):
        self.gpus.eager = value

    def __setitem__(self, index, values):
        self.memory[index] = getattr(values, "memory", values)

    @property
    def loaded(self):
        """The compiled functions, which have a `family` and `defines`."""
        return self.cupy.compiled

    def array(self, values, ordinal=0):
        """Return an array with the same values, strides and alignment on a GPU."""
        low, high = np.lib.array_utils.byte_bounds(values)
        nbytes, queue = max(1, high - low), self.stream(ordinal)
        raw = self.gpus.lend(nbytes, ordinal, queue, low % 16)
        self.gpus.settle(raw)
        memory = np.ndarray(
            values.shape, values.dtype, raw, fake_cupy.address_of(values) - low, values.strides
        )
        ctypes.memmove(fake_cupy.address_of(raw), low, high - low)
        return FakeArray.of(memory, ordinal)

    def on(self, ordinal):
        """Return a context in which a device is the current one."""
        return self.cupy.cuda.Device(ordinal)

    def stream(self, ordinal):
        """Return the hardware stream of the current stream of a device."""
        with self.on(ordinal):
            return self.cupy.cuda.get_current_stream(ordinal).queue

    def new_stream(self, ordinal=0, name="other"):
        """Return a new stream of a device."""
        return fake_cupy.Stream(self.cupy, ordinal, self.gpus.new_queue(ordinal, name).pointer)

    def default_stream(self, ordinal=0):
        """Return the default stream of a device, also if another stream is current."""
        return fake_cupy.Stream(self.cupy, ordinal, 0)

    def numbered_stream(self, pointer, ordinal=0):
        """Return the stream of a pointer that CUDA defines: 1 and 2 are default streams."""
        return fake_cupy.Stream(self.cupy, ordinal, pointer)

    @contextmanager
    def using(self, stream, ordinal=0):
        """Make a stream the current one within the block."""
        with self.on(ordinal), stream:
            yield

    @contextmanager
    def capturing(self, ordinal=0, mode=None):
        """Capture a new stream, current within the block; yield a list that gets the graph."""
        stream, graph = self.new_stream(ordinal, "captured"), []
        with self.using(stream, ordinal):
            stream.begin_capture(mode)
            try:
                yield graph
            finally:
                graph.append(stream.end_capture())

    def launches(self, name="kernel"):
        """Return how often work of this name was put on a stream."""
        return sum(what == name for _, what in self.log)

    def check(self):
        """Raise the violations that were found when memory was freed."""
        self.gpus.check()


def install(monkeypatch, count=2):
    """Make layoutkit find `count` simulated GPUs and a module "cupy"; return a FakeGpu."""
    cupy = fake_cupy.module(count)
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # before the runtime imports it
    monkeypatch.setattr(driver, "exchange_capture_mode", cupy.gpus.exchange)
    runtime = CupyRuntime()
    replace(monkeypatch, cupy, runtime)
    prepare, prepare_sum = kernel_launch.prepare, accumulate.prepare_sum
    monkeypatch.setattr(
        kernel_launch,
        "prepare",
        lambda choice, epilogue, src, dst: fake_cupy.note_prepared(
            prepare(choice, epilogue, src, dst), (src, dst)
        ),
    )
    monkeypatch.setattr(
        accumulate,
        "prepare_sum",
        lambda loops, parts, computed, target, addresses: fake_cupy.note_prepared(
            prepare_sum(loops, parts, computed, target, addresses), addresses
        ),
    )
    return FakeGpu(cupy, runtime)


def replace(monkeypatch, cupy, runtime):
    """Make layoutkit use this module and runtime, and clear everything cached for another one."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(the_one, "process_runtime", runtime)
    monkeypatch.setattr(spec, "current_gpu", runtime and runtime.current)
    monkeypatch.setattr(streams, "kept_alive", deque())
    monkeypatch.setattr(streams, "captured", [])
    monkeypatch.setattr(transfers, "staging_by_gpu", {})
    kept = (converter._converters.find, accumulation._cached, collator._collators.find)
    for find in (*kept, program._launches, transfers.find_identity_programs):
        find.cache_clear()


def values_of(array):
    """Return the values of an array on a fake GPU, after the work on its current stream."""
    cupy = the_one.runtime().cupy
    with cupy.cuda.Device(array.ordinal):
        cupy.cuda.get_current_stream(array.ordinal).queue.synchronize()
    return array.memory
