"""A fake module "cupy" on simulated GPUs, which accepts the arguments of CuPy 14.2 and no others.

The module has the functions that `layoutkit.cuda.runtime` calls, and the array methods of the
tests. Types are checked as by CuPy's compiled signatures (`intptr_t`: an int, `str`, `tuple`). So
are the rules that otherwise only a GPU enforces: a stream is entered on its device, a kernel is
launched on the device that it was loaded for, memory belongs to that device, and argument blocks
are arrays of one element.
"""

import ctypes
import sys
import threading
from contextlib import contextmanager
from math import gcd
from types import SimpleNamespace

import numpy as np

from .cuda_shim import launch as execute
from .fake_gpus import PINNED, Gpus, Mark

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class CompileException(Exception):
    """An error like CuPy's, which has no base class of CuPy."""


def checked(value, kind):
    """Return a value; raise unless a compiled signature accepts its type."""
    assert isinstance(value, kind), f"{value!r} is not a {kind}"
    assert kind is not int or not isinstance(value, bool)
    return value


def address_of(memory):
    return memory.__array_interface__["data"][0]


class Array:
    """`cupy.ndarray`: memory of a GPU that the array or another library owns."""

    __module__ = "cupy"

    def __init__(self, shape, dtype, memptr, strides):
        memory = _at(shape, np.dtype(dtype), memptr.ptr, strides)
        self._start(memory, memptr.mem.device_id, memptr.mem.owner)

    @classmethod
    def of(cls, memory, device_id, owner=None):
        """Return an array on the memory of a NumPy array."""
        (made := cls.__new__(cls))._start(memory, device_id, owner)
        return made

    def _start(self, memory, device_id, owner):
        self.memory, self.ordinal, self.owner = memory, device_id, owner
        self.shape, self.strides, self.dtype = memory.shape, memory.strides, memory.dtype
        self.ndim = memory.ndim
        self.data = SimpleNamespace(ptr=address_of(memory), device_id=device_id)

    def _like(self, memory):
        return self.of(memory, self.ordinal, self.owner)

    def reshape(self, *shape):
        shaped = self.memory.reshape(*shape)
        assert np.may_share_memory(shaped, self.memory) or not self.memory.size
        return self._like(shaped)

    def transpose(self, *order):
        return self._like(self.memory.transpose(*order))

    def __getitem__(self, index):
        found = self.memory[index]
        if np.may_share_memory(found, self.memory) or not found.size:
            return self._like(found)
        self._check_current()
        result = sys.modules["cupy"].empty(found.shape, found.dtype)
        result[...] = found
        return result

    def __setitem__(self, index, values):
        self._check_current()
        self._wait()
        self.memory[index] = getattr(values, "memory", values)

    def _wait(self):
        """Finish all work of the current stream, because NumPy copies at once."""
        queue = sys.modules["cupy"].cuda.get_current_stream(self.ordinal).queue
        for work in (queue.last, *queue.awaited):
            if work is not None:
                work.finish()

    def _check_current(self):
        here = sys.modules["cupy"].here.now
        assert here == self.ordinal, "a copy on another device than the current one"

    @property
    def real(self):
        return self._like(self.memory.real)

    @property
    def __cuda_array_interface__(self):
        return {**self.memory.__array_interface__, "stream": None}


class Stream:
    """`cupy.cuda.Stream`; `device_id` is -1 if CuPy does not know the device."""

    def __init__(self, cupy, device_id, ptr):
        self._cupy, self.device_id, self.ptr = cupy, device_id, ptr

    @property
    def queue(self):
        return self._cupy.gpus.queue(self.ptr, self._cupy.here.now)

    def __enter__(self):
        number = self._cupy.here.now
        assert self.device_id in (-1, number), "a stream of another device than the current one"
        self._cupy.here.stacks[number].append(self)
        return self

    def __exit__(self, *_):
        assert self._cupy.here.stacks[self._cupy.here.now].pop() is self

    def is_capturing(self):
        assert self.ptr not in (0, 1), "the default stream may not be asked"
        return self.queue.graph is not None

    def wait_event(self, event):
        event.mark.hold_back(self.queue)

    def synchronize(self):
        self.queue.synchronize()

    def begin_capture(self, mode=None):
        self.queue.begin_capture(relaxed=mode is None)

    def end_capture(self):
        return self.queue.end_capture()


class Event:
    """`cupy.cuda.Event`."""

    def __init__(self, cupy, *, disable_timing):
        assert disable_timing is True
        cupy.gpus.contexts.add(cupy.here.now)
        self.mark = Mark(cupy.gpus, cupy.here.now)

    def record(self, stream):
        checked(stream.ptr, int)
        self.mark.record(stream.queue)

    @property
    def done(self):
        return self.mark.done

    def synchronize(self):
        self.mark.synchronize()


# The alignments of the sources and of the output that launches were prepared for, by family,
# defines and parameters.
PREPARED = {}


def alignments(addresses):
    """Return the largest power of two up to 16 that divides each address."""
    return tuple(gcd(address, 16) for address in addresses)


def note_prepared(launch, addresses):
    """Remember the addresses that a launch was prepared for; return the launch."""
    key = launch.family, launch.defines, launch.params
    PREPARED.setdefault(key, set()).add(alignments(addresses))
    return launch


class Function:
    """`cupy.cuda.Function`: positional arguments in CuPy's order."""

    def __init__(self, cupy, code, options, name):
        assert f" {name}(const Params " in checked(code, str)
        assert all(checked(option, str).startswith("-D") for option in checked(options, tuple))
        self.family, self.number = name, cupy.here.now
        self.defines = tuple(tuple(option[2:].split("=")) for option in options)
        self._cupy, self.is_loaded = cupy, False  # the driver loads a function on first use

    def __call__(self, grid, block, args, shared_mem=0, stream=None):
        cupy = self._cupy
        assert cupy.here.now == self.number, "launched on another device"
        (blocks, *ones), (threads, *others) = checked(grid, tuple), checked(block, tuple)
        assert (ones, others, shared_mem) == ([1, 1], [1, 1], 0)
        params, pointers = (checked(arg, np.ndarray) for arg in args)
        assert params.size == pointers.size == 1
        assert len(params.tobytes()) + len(pointers.tobytes()) <= 4096
        words = [int(word) for word in np.frombuffer(pointers.tobytes(), np.uint64)]
        launch = SimpleNamespace(
            family=self.family, defines=self.defines, params=params.tobytes(),
            grid=checked(blocks, int), block=checked(threads, int), pointers=len(words),
        )  # fmt: skip
        queue = cupy.gpus.queue(checked(stream.ptr, int), cupy.here.now)
        assert queue.device == self.number, "a stream of another device"
        assert self.is_loaded or queue.graph is None, "loaded while a graph is captured"
        self.is_loaded = True
        used = [cupy.gpus.block_of(word) for word in words if word]
        assert all(block is None or block.device == self.number for block in used)
        assert cupy.lenient or all(used), "memory that nobody has lent"
        self._check_aligned(launch, words)
        queue.put("kernel", lambda: execute(launch, words), [block for block in used if block])
        cupy.launched.append((queue.name, self))

    def _check_aligned(self, launch, words):
        """Raise if an address is not aligned for a kernel's words, which a CPU would accept."""
        expected = PREPARED.get((launch.family, launch.defines, launch.params))
        if expected is not None:
            sources = words[2 : 1 + len(next(iter(expected)))]
            assert alignments([*sources, words[0]]) in expected, "the kernel of other alignments"
        macros = dict(self.defines)
        for name, address in (("TARGET", words[0]), ("SOURCE", words[2])):
            dtype = macros.get(name)
            if dtype is not None:
                item = 2 if dtype == "bf" else int(dtype[1:])
                assert address % item == 0, f"{name} of {dtype} at {address:#x}"


class RawKernel:
    """`cupy.RawKernel`: a function with the attributes that the driver reports."""

    def __init__(self, function):
        self.kernel = function

    @property
    def num_regs(self):
        self.kernel.is_loaded = True
        return 32


class _Here(threading.local):
    """The current device and the current streams of a thread."""

    def __init__(self, null):
        self.now, self.stacks = 0, [[stream] for stream in null]


class _Pool:
    """`cupy.get_default_memory_pool()` or `cupy.get_default_pinned_memory_pool()`."""

    def __init__(self, cupy, device):
        self._cupy, self._device = cupy, device

    def free_all_blocks(self, stream=None):
        assert stream is None or stream.device_id == self._cupy.here.now, "of another device"
        queue = "any" if stream is None else stream.queue
        self._cupy.gpus.free_all(self._device, queue)


class _Cuda(SimpleNamespace):
    """`cupy.cuda` of the fake module."""

    def __init__(self, cupy):
        self.cupy, self.gpus = cupy, cupy.gpus
        Stream_ = lambda *, non_blocking: self._stream(non_blocking)  # noqa: N806
        Stream_.from_external = self._external
        super().__init__(
            Stream=Stream_, runtime=self._runtime(),
            Event=lambda *, disable_timing: Event(cupy, disable_timing=disable_timing),
            compiler=SimpleNamespace(CompileException=CompileException),
        )  # fmt: skip

    def _runtime(self):
        return SimpleNamespace(
            getDevice=lambda: self.cupy.here.now, getDeviceCount=lambda: self.gpus.count,
            driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 13000,
            getDeviceProperties=lambda number: {"name": b"Fake"}, memcpyAsync=self._copy,
            memcpyHostToDevice=HOST_TO_DEVICE, memcpyDeviceToHost=DEVICE_TO_HOST,
            pointerGetAttributes=lambda address: SimpleNamespace(
                device=self.gpus.block_of(checked(address, int)).device
            ),
        )  # fmt: skip

    @contextmanager
    def Device(self, number):
        here = self.cupy.here
        before, here.now = here.now, checked(number, int)
        try:
            yield
        finally:
            here.now = before

    def get_current_stream(self, number):
        return self.cupy.here.stacks[checked(number, int)][-1]

    def alloc_pinned_memory(self, size):
        size = 1 << (checked(size, int) - 1).bit_length()
        self.gpus.contexts.add(self.cupy.here.now)
        return self.gpus.lend(size, PINNED)

    def UnownedMemory(self, ptr, size, owner, device_id):
        return SimpleNamespace(ptr=checked(ptr, int), owner=owner, device_id=device_id)

    def MemoryPointer(self, memory, offset):
        return SimpleNamespace(mem=memory, ptr=memory.ptr + offset)

    def _stream(self, non_blocking):
        assert non_blocking is True
        number = self.cupy.here.now
        queue = self.gpus.new_queue(number, f"copies {number}")
        return Stream(self.cupy, number, queue.pointer)

    def _external(self, foreign):
        version, pointer = foreign.__cuda_stream__()
        assert version == 0
        return Stream(self.cupy, -1, checked(pointer, int))

    def _copy(self, to, source, size, kind, pointer):
        for value in (to, source, size, kind, pointer):
            checked(value, int)
        self.gpus.contexts.add(self.cupy.here.now)
        queue = self.gpus.queue(pointer, self.cupy.here.now)
        blocks = [self.gpus.block_of(address, size) for address in (to, source)]
        wanted = (queue.device, PINNED) if kind == HOST_TO_DEVICE else (PINNED, queue.device)
        assert tuple(block and block.device for block in blocks) == wanted or self.cupy.lenient
        name = "copy in" if kind == HOST_TO_DEVICE else "copy out"
        used = [block for block in blocks if block]
        queue.put(name, lambda: ctypes.memmove(to, source, size), used)


def module(count=2):
    """Return the module; `here.now` is the current device, `launched` the streams and functions."""
    cupy = SimpleNamespace(__version__="14.2.0", gpus=Gpus(count), compiled=[], launched=[])
    cupy.lenient = False  # True accepts memory that the fake has not allocated
    cupy.here = _Here([Stream(cupy, -1, 0) for _ in range(count)])
    cupy.cuda = _Cuda(cupy)

    def empty(shape, dtype):
        nbytes = int(np.prod(checked(shape, tuple), dtype=object)) * np.dtype(dtype).itemsize
        number = cupy.here.now
        stream = cupy.cuda.get_current_stream(number)
        cupy.gpus.contexts.add(number)
        memory = cupy.gpus.lend(nbytes, number, stream.queue)
        return Array.of(memory.view(dtype).reshape(shape), number)

    def from_dlpack(x):
        stream = cupy.cuda.get_current_stream(cupy.here.now)
        assert x.ordinal == cupy.here.now, "an array of another device than the current one"
        x.__dlpack__(stream=stream.ptr or 1)
        return Array.of(x.memory, x.ordinal, x)

    class RawModule:
        """`cupy.RawModule`, which compiles in `get_function`."""

        def __init__(self, *, code, options, backend):
            assert backend == "nvrtc"
            self._options = code, options

        def get_function(self, name):
            assert not cupy.gpus.graphs, "compiled while a graph is captured"
            cupy.gpus.contexts.add(cupy.here.now)
            function = Function(cupy, *self._options, name)
            cupy.compiled.append(function)
            return RawKernel(function)

    def copyto(out, values, *, casting):
        assert out.ordinal == values.ordinal == cupy.here.now
        assert all(a.data.ptr % a.dtype.itemsize == 0 for a in (out, values)), "misaligned address"
        sides = [(a.shape, a.dtype, a.data.ptr, a.strides) for a in (out, values)]
        used = [cupy.gpus.block_of(a.data.ptr) for a in (out, values) if a.memory.size]

        def run():
            to, source = (_at(*side) for side in sides)
            with np.errstate(all="ignore"):
                np.copyto(to, source, casting=casting)

        queue = cupy.cuda.get_current_stream(cupy.here.now).queue
        queue.put("cast", run, [block for block in used if block])

    cupy.ndarray, cupy.empty, cupy.from_dlpack = Array, empty, from_dlpack
    cupy.RawModule, cupy.copyto = RawModule, copyto
    cupy.get_default_memory_pool = lambda: _Pool(cupy, 0)
    cupy.get_default_pinned_memory_pool = lambda: _Pool(cupy, PINNED)
    return cupy


def _at(shape, dtype, address, strides):
    """Return an array on the memory at an address, which the array does not own."""
    interface = {
        "version": 3, "shape": shape, "strides": strides, "data": (address, False),
        "typestr": f"|V{dtype.itemsize}",
    }  # fmt: skip
    return np.asarray(SimpleNamespace(__array_interface__=interface)).view(dtype)
