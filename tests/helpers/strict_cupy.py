"""A module "cupy" that takes what CuPy 14.2 takes and nothing else, on memory of the host.

Only what `layoutkit.kernels.cuda.runtime` calls is there. Types are checked as CuPy's compiled
signatures do (`intptr_t`: an int, `str`, `tuple`), so are rules that otherwise only a GPU enforces:
a stream is entered on its own device, kernels are launched on the device they were loaded for, and
argument blocks are arrays of one element. Work is done at once.
"""

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from cuda_shim import launch as execute

STREAM = 0x5000


class CUDARuntimeError(RuntimeError):
    """As CuPy's own."""


def checked(value, kind):
    """A value of exactly what a compiled signature takes."""
    assert isinstance(value, kind), f"{value!r} is no {kind}"
    assert kind is not int or not isinstance(value, bool)
    return value


def address_of(memory):
    return memory.__array_interface__["data"][0]


class Stream:
    def __init__(self, cupy, number, ptr):
        self._cupy, self.device_id, self.ptr = cupy, number, ptr

    def __enter__(self):
        number = self._cupy.now
        assert self.device_id in (-1, number), "a stream of another device than the current one"
        self._cupy.stacks[number].append(self)
        return self

    def __exit__(self, *_):
        self._cupy.stacks[self._cupy.now].pop()

    def is_capturing(self):
        assert self.ptr not in (0, 1), "the default stream may not be asked"
        return self.ptr in self._cupy.capturing

    def wait_event(self, event):
        assert isinstance(event, Event)

    def synchronize(self):
        assert self.ptr not in self._cupy.capturing, "waits while a graph is captured"


class Event:
    def __init__(self, cupy, number):
        self._cupy, self.number = cupy, number

    def record(self, stream):
        checked(stream.ptr, int)
        assert stream.device_id in (-1, self.number), "an event of another device"

    def synchronize(self):
        """Everything is done at once."""


class Array:
    """`cupy.ndarray`, which holds its memory or that of a `MemoryPointer`."""

    __module__ = "cupy"

    def __init__(self, memory, number):
        self.memory, self.shape, self.dtype = memory, memory.shape, memory.dtype
        self.strides = memory.strides
        self.data = SimpleNamespace(ptr=address_of(memory), device_id=number)


class Function:
    """`cupy.cuda.Function`: positional arguments in CuPy's order."""

    def __init__(self, cupy, code, options, name):
        assert f" {name}(const Params params" in checked(code, str)
        assert all(checked(option, str).startswith("-D") for option in checked(options, tuple))
        defines = tuple(tuple(option[2:].split("=")) for option in options)
        self._cupy, self.number = cupy, cupy.now
        self._launch = SimpleNamespace(family=name, defines=defines)

    def __call__(self, grid, block, args, shared_mem=0, stream=None):
        assert self._cupy.now == self.number, "launched on another device"
        (blocks, *ones), (threads, *others) = checked(grid, tuple), checked(block, tuple)
        assert (ones, others, shared_mem) == ([1, 1], [1, 1], 0)
        params, pointers = (checked(arg, np.ndarray) for arg in args)
        assert params.size == pointers.size == 1
        assert len(params.tobytes()) + len(pointers.tobytes()) <= 4096
        words = np.frombuffer(pointers.tobytes(), np.uint64)
        launch = SimpleNamespace(
            **vars(self._launch), grid=checked(blocks, int), block=checked(threads, int),
            params=params.tobytes(), pointers=len(words),
        )  # fmt: skip
        execute(launch, [int(word) for word in words])
        self._cupy.log.append(checked(stream.ptr, int))


def module(count=2):
    """The module; `now` is the current device, `log` the streams of launches."""
    cupy = SimpleNamespace(__version__="14.2.0", now=0, log=[], compiled=[], capturing=set())
    cupy.ndarray = Array
    null = [Stream(cupy, -1, 0) for _ in range(count)]
    cupy.stacks = [[stream] for stream in null]
    made = []

    @contextmanager
    def device(number):
        before, cupy.now = cupy.now, checked(number, int)
        try:
            yield
        finally:
            cupy.now = before

    def stream(*, non_blocking):
        assert non_blocking is True
        made.append(Stream(cupy, cupy.now, STREAM + 16 * len(made)))
        return made[-1]

    def from_external(foreign):
        version, pointer = foreign.__cuda_stream__()
        assert version == 0
        return Stream(cupy, -1, checked(pointer, int))

    stream.from_external = from_external

    def empty(shape, dtype):
        raw = np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize + 256, 0xA5, np.uint8)
        skip = -address_of(raw) % 256
        memory = raw[skip : raw.nbytes - 256 + skip].view(dtype).reshape(checked(shape, tuple))
        return Array(memory, cupy.now)

    def memcpy(to, source, size, kind, pointer):
        for value in (to, source, size, kind, pointer):
            checked(value, int)
        assert kind in (1, 2)
        ctypes.memmove(to, source, size)

    class RawModule:
        def __init__(self, *, code, options, backend):
            assert backend == "nvrtc"
            self._options = code, options

        def get_function(self, name):
            assert cupy.stacks[cupy.now][-1].ptr not in cupy.capturing
            cupy.compiled.append(name)
            return SimpleNamespace(kernel=Function(cupy, *self._options, name))

    def copyto(out, values, *, casting):
        np.copyto(out.memory, values.memory, casting=casting)

    api = SimpleNamespace(
        getDevice=lambda: cupy.now, getDeviceCount=lambda: count, memcpyAsync=memcpy,
        memcpyHostToDevice=1, memcpyDeviceToHost=2, driverGetVersion=lambda: 13000,
        getDeviceProperties=lambda number: {"name": b"Strict"},
    )  # fmt: skip
    cupy.empty, cupy.RawModule, cupy.copyto = empty, RawModule, copyto
    cupy.cuda = SimpleNamespace(
        runtime=api, Device=device, Stream=stream,
        Event=lambda *, disable_timing: Event(cupy, cupy.now),
        get_current_stream=lambda number: cupy.stacks[checked(number, int)][-1],
        alloc_pinned_memory=lambda size: bytearray(1 << (checked(size, int) - 1).bit_length()),
    )  # fmt: skip
    return cupy
