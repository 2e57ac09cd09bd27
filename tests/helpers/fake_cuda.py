"""A GPU that is none, under the real runtime: memory of the host, deferred streams, real kernels.

    gpu = install(monkeypatch)              layoutkit now finds two GPUs and CuPy's arrays
    x = gpu.array(values)                   an array of "CuPy" on cuda:0
    values_of(y)                            what is in it, when its stream has done its work
    gpu.check()                             raises where memory was given back too early

`fake_gpus` is the hardware, `fake_cupy` the module "cupy" on it, and what asks that module is
layoutkit's own runtime.
"""

import ctypes
import sys
from collections import deque
from contextlib import contextmanager

import fake_cupy
import numpy as np

from layoutkit import accumulation, collator, converter, spec
from layoutkit.cuda import accumulate, driver, program, streams, transfers
from layoutkit.cuda import runtime as the_one
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.kernels.cuda import launch as kernel_launch

__all__ = ["FakeArray", "install", "replace", "values_of"]

FakeArray = fake_cupy.Array


class FakeGpu:
    """What tests do with the machine."""

    def __init__(self, cupy, runtime):
        self.cupy, self.gpus, self.runtime = cupy, cupy.gpus, runtime
        self.log, self.host_waits = self.gpus.log, self.gpus.host_waits

    @property
    def eager(self):
        """Whether work is done at once, as where threads or other libraries do some of it."""
        return self.gpus.eager

    @eager.setter
    def eager(self, value):
        self.gpus.eager = value

    def __setitem__(self, index, values):
        self.memory[index] = getattr(values, "memory", values)

    @property
    def loaded(self):
        """The functions that were compiled, with `family` and `defines`."""
        return self.cupy.compiled

    def array(self, values, ordinal=0):
        """An array of these values, in memory that lies as theirs does."""
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
        """Makes a device the current one."""
        return self.cupy.cuda.Device(ordinal)

    def stream(self, ordinal):
        """What is done on the current stream of a device."""
        with self.on(ordinal):
            return self.cupy.cuda.get_current_stream(ordinal).queue

    def new_stream(self, ordinal=0, name="other"):
        """A stream of a device."""
        return fake_cupy.Stream(self.cupy, ordinal, self.gpus.new_queue(ordinal, name).pointer)

    def default_stream(self, ordinal=0):
        """The default stream of a device, whatever the current stream is."""
        return fake_cupy.Stream(self.cupy, ordinal, 0)

    def numbered_stream(self, pointer, ordinal=0):
        """The stream of a device with a pointer that CUDA defines: 1 and 2 are default streams."""
        return fake_cupy.Stream(self.cupy, ordinal, pointer)

    @contextmanager
    def using(self, stream, ordinal=0):
        """Make a stream the current one for a while."""
        with self.on(ordinal), stream:
            yield

    @contextmanager
    def capturing(self, ordinal=0, mode=None):
        """Capture a stream, which is the current one meanwhile; a list that gets the graph."""
        stream, graph = self.new_stream(ordinal, "captured"), []
        with self.using(stream, ordinal):
            stream.begin_capture(mode)
            try:
                yield graph
            finally:
                graph.append(stream.end_capture())

    def launches(self, name="kernel"):
        """How often something was put on a stream."""
        return sum(what == name for _, what in self.log)

    def check(self):
        """Raise what was found when memory was given back."""
        self.gpus.check()


def install(monkeypatch, count=2):
    """Let layoutkit find a machine with so many GPUs, and a module "cupy" with its arrays."""
    cupy = fake_cupy.module(count)
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # already for the runtime to find
    monkeypatch.setattr(driver, "_exchange", cupy.gpus.exchange)
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
    """Let layoutkit use this module and runtime, and nothing that was loaded on another one."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(the_one, "_runtime", runtime)
    monkeypatch.setattr(spec, "_current", runtime and runtime.current)
    monkeypatch.setattr(streams, "_kept_alive", deque())
    monkeypatch.setattr(streams, "_captured", [])
    monkeypatch.setattr(transfers, "_staging_by_gpu", {})
    kept = (converter._cached, accumulation._cached, collator._cached)
    for find in (*kept, program._launches, transfers._identity_programs):
        find.cache_clear()


def values_of(array):
    """The values of an array on a fake GPU, after what its current stream has to do."""
    cupy = the_one.runtime().cupy
    with cupy.cuda.Device(array.ordinal):
        cupy.cuda.get_current_stream(array.ordinal).queue.synchronize()
    return array.memory
