"""A GPU that is none: memory of the host, streams that put off their work, the real kernels.

    runtime = install(monkeypatch)          layoutkit now finds two GPUs and CuPy's arrays
    x = runtime.array(values)               an array of "CuPy" on cuda:0
    values_of(y)                            what is in it, when its stream has done its work

Work that is put on a stream is done as late as a GPU could do it: when somebody waits for it, and
then only what it depends on, which is what stands before it in its stream and what events order
before it. So whatever is missing a wait reads memory too early, or has it overwritten too soon,
every time.
"""

import ctypes
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from cuda_shim import launch as execute

from layoutkit import accumulation, conversion, devices
from layoutkit.cuda import casts, transfers
from layoutkit.cuda import runtime as the_one

POISON = 0xA5


class Work:
    """Something that a stream is to do, after other things."""

    def __init__(self, name, run, after):
        self.name, self.run, self.after, self.done = name, run, after, False

    def finish(self):
        """Do it now, and before it all that it depends on."""
        waiting = [self]
        while waiting:
            work = waiting[-1]
            open_ones = [before for before in work.after if not before.done]
            if open_ones:
                waiting += open_ones
                continue
            waiting.pop()
            if not work.done:
                work.done = True
                work.run()


class Stream:
    def __init__(self, runtime, name, ptr):
        self.runtime, self.name, self.ptr = runtime, name, ptr
        self.last, self.awaited, self.capturing = None, [], False

    def put(self, name, run):
        after = [work for work in (self.last, *self.awaited) if work is not None]
        self.last, self.awaited = Work(name, run, after), []
        self.runtime.log.append((self.name, name))
        if self.runtime.eager:
            self.last.finish()

    def wait_event(self, event):
        self.awaited.append(event.work)

    def is_capturing(self):
        return self.capturing

    def synchronize(self):
        self.runtime.host_waits.append(self.name)
        for work in (self.last, *self.awaited):
            if work is not None:
                work.finish()


class Event:
    def __init__(self, runtime):
        self.runtime, self.work = runtime, None

    def record(self, stream):
        stream.put("record", lambda: None)
        self.work = stream.last

    @property
    def done(self):
        return self.work is None or self.work.done

    def synchronize(self):
        self.runtime.host_waits.append("event")
        if self.work is not None:
            self.work.finish()


class FakeArray:
    """What CuPy's array is to layoutkit, which knows it by its package."""

    __module__ = "cupy"

    def __init__(self, memory, ordinal, owner=None):
        self.memory, self.ordinal, self.owner = memory, ordinal, owner
        self.shape, self.strides, self.dtype = memory.shape, memory.strides, memory.dtype
        pointer = memory.__array_interface__["data"][0]
        self.data = SimpleNamespace(ptr=pointer, device_id=ordinal)

    def _like(self, memory):
        return FakeArray(memory, self.ordinal, self.owner)

    def reshape(self, *shape):
        shaped = self.memory.reshape(*shape)
        assert np.may_share_memory(shaped, self.memory) or not self.memory.size
        return self._like(shaped)

    def transpose(self, *order):
        return self._like(self.memory.transpose(*order))

    def __getitem__(self, index):
        return self._like(self.memory[index])

    def __setitem__(self, index, values):
        self.memory[index] = getattr(values, "memory", values)

    @property
    def real(self):
        return self._like(self.memory.real)

    @property
    def __cuda_array_interface__(self):
        return {**self.memory.__array_interface__, "stream": None}


class FakeKernel:
    def __init__(self, launched, coefficients):
        self.launch, self.coefficients = launched, coefficients


class FakeRuntime:
    """What `layoutkit.kernels.cuda.runtime.CupyRuntime` is, on memory of the host."""

    def __init__(self, count=2):
        self.count, self.eager = count, False
        self.log, self.host_waits, self.loaded = [], [], []
        self._kept = {}  # memory by address: a pool that gives nothing back
        self._ordinal, self._made, self._known = 0, 0, set()
        self.streams = [self._stream(f"main {n}") for n in range(count)]

    def _stream(self, name):
        self._made += 1
        return Stream(self, name, 16 * self._made)

    # -- for tests -------------------------------------------------------------------------

    def array(self, values, ordinal=0):
        """An array of these values, in memory that lies as theirs does."""
        low, high = np.lib.array_utils.byte_bounds(values)
        raw = self._memory(max(1, high - low), ordinal, low % 16)
        begin = values.__array_interface__["data"][0] - low
        memory = np.ndarray(values.shape, values.dtype, raw, begin, values.strides)
        ctypes.memmove(raw.__array_interface__["data"][0], low, high - low)
        return FakeArray(memory, ordinal)

    def _memory(self, nbytes, ordinal, shift=0):
        room = np.full(nbytes + 64, POISON, np.uint8)
        skip = -room.__array_interface__["data"][0] % 16 + shift
        memory = room[skip : skip + nbytes]
        self._kept[memory.__array_interface__["data"][0]] = memory, ordinal
        return memory

    @contextmanager
    def using(self, stream, ordinal=0):
        """Make a stream the current one for a while."""
        before, self.streams[ordinal] = self.streams[ordinal], stream
        try:
            yield
        finally:
            self.streams[ordinal] = before

    def launches(self, name="kernel"):
        return sum(what == name for _, what in self.log)

    # -- what layoutkit asks for -----------------------------------------------------------

    def describe(self):
        return f"{self.count} fake GPUs"

    def current(self):
        return self._ordinal

    def device_of(self, address):
        return self._kept[address][1]

    @contextmanager
    def on(self, ordinal):
        before, self._ordinal = self._ordinal, ordinal
        try:
            yield
        finally:
            self._ordinal = before

    def stream(self, ordinal):
        return self.streams[ordinal]

    def stream_at(self, pointer):
        return next((s for s in self.foreign if s.ptr == pointer), None) or self.streams[0]

    foreign = ()

    def new_stream(self, ordinal):
        return self._stream(f"copies {ordinal}")

    def is_capturing(self, stream):
        return stream.is_capturing()

    def new_event(self, ordinal):
        return Event(self)

    def empty(self, shape, dtype, ordinal, stream=None):
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        memory = self._memory(max(1, size), ordinal)[:size]
        return FakeArray(memory.view(dtype).reshape(shape), ordinal)

    def wrap(self, address, shape, strides, dtype, ordinal, owner):
        memory, at = self._kept[address]
        assert at == ordinal
        return FakeArray(np.ndarray(shape, dtype, memory, 0, strides), ordinal, owner)

    def from_dlpack(self, x, ordinal):
        return FakeArray(np.from_dlpack(x.memory), ordinal, x)

    def pinned(self, nbytes):
        return self._memory(nbytes, -1)

    def copy_in(self, address, host, stream):
        self._copy(address, host.__array_interface__["data"][0], host.nbytes, stream, "copy in")

    def copy_out(self, host, address, stream):
        self._copy(host.__array_interface__["data"][0], address, host.nbytes, stream, "copy out")

    def _copy(self, to, source, nbytes, stream, name):
        stream.put(name, lambda: ctypes.memmove(to, source, nbytes))

    def cast_into(self, out, values, stream):
        def run():
            with np.errstate(all="ignore"):
                np.copyto(out.memory, values.memory, casting="unsafe")

        stream.put("cast", run)

    def is_loaded(self, launch, ordinal):
        return (launch.family, launch.defines, launch.coefficients, ordinal) in self._known

    def load(self, launch, ordinal):
        self._known.add((launch.family, launch.defines, launch.coefficients, ordinal))
        self.loaded.append(launch)
        constants = None
        if launch.coefficients:
            constants = self._memory(len(launch.coefficients), ordinal)
            constants[:] = np.frombuffer(launch.coefficients, np.uint8)
        return FakeKernel(launch, constants)

    def launch(self, kernel, pointers, stream):
        constants = kernel.coefficients
        words = [pointers[0], 0, *pointers[1:]]
        if constants is not None:
            words[1] = constants.__array_interface__["data"][0]
        words += [0] * (kernel.launch.pointers - len(words))
        stream.put("kernel", lambda: execute(kernel.launch, words))


def install(monkeypatch, count=2):
    """Let layoutkit find a fake runtime, and a module "cupy" with its arrays."""
    runtime = FakeRuntime(count)
    replace(monkeypatch, SimpleNamespace(ndarray=FakeArray), runtime)
    return runtime


def replace(monkeypatch, cupy, runtime):
    """Let layoutkit use this module and runtime, and nothing that was loaded on another one."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(the_one, "_runtime", runtime)
    monkeypatch.setattr(devices, "_current", runtime and runtime.current)
    for find in (conversion._kept, accumulation._kept, casts._launches, transfers._unmoved):
        find.cache_clear()


def values_of(array):
    """The values of an array on a fake GPU, after what its current stream has to do."""
    runtime = the_one.runtime()
    runtime.stream(array.ordinal).synchronize()
    return array.memory
