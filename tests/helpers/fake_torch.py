"""Tensors of PyTorch on fake GPUs: torch's real code on memory of the simulated GPU.

Import this module inside the tests that need PyTorch: without PyTorch, the import skips them.
"""

import ctypes
import math
from types import SimpleNamespace

import pytest

from .fake_cupy import address_of

torch = pytest.importorskip("torch", reason="needs PyTorch")

from layoutkit.backends.torch import ops


class Cuda(torch.Tensor):
    """A tensor on a fake GPU. The CPU can read its memory, but layoutkit must not."""

    device = torch.device("cuda", 0)
    is_cuda = True


class Second(Cuda):
    """A tensor on the second fake GPU."""

    device = torch.device("cuda", 1)


KINDS = Cuda, Second


def here(x):
    """Return a CPU tensor that shares the memory of a tensor on a fake GPU."""
    assert type(x) in KINDS
    return x.detach().as_subclass(torch.Tensor)


class _StackWindows(torch.autograd.Function):
    """The operator `layoutkit::stack_windows`: torch's dispatch would drop our subclasses."""

    @staticmethod
    def forward(ctx, windows, *samples):
        ctx.windows = windows
        return ops._stack_windows([*samples], windows)

    @staticmethod
    def backward(ctx, grad):
        stacks = ops._transpose_windows(grad, ctx.windows)
        return None, *ops._windows(ctx.windows).split(stacks)


class FakeTorch:
    """PyTorch on two fake GPUs, with its own current streams or the default streams."""

    def __init__(self, gpu, monkeypatch, on_default=False):
        streams = [
            gpu.default_stream(n) if on_default else gpu.new_stream(n, "torch") for n in range(2)
        ]
        self.gpus, self._streams = gpu.gpus, streams
        self.stream = self._streams[0]
        current = [SimpleNamespace(cuda_stream=stream.ptr) for stream in self._streams]
        monkeypatch.setattr(torch.cuda, "current_stream", lambda ordinal: current[ordinal])
        self._empty = torch.empty
        monkeypatch.setattr(torch, "empty", self._empty_there)
        stack = lambda samples, windows: _StackWindows.apply(windows, *samples)
        monkeypatch.setattr(ops, "stack_windows", stack)

    def _empty_there(self, shape, *, dtype, device=None):
        if device is None or device.type == "cpu":
            return self._empty(shape, dtype=dtype)
        assert device == KINDS[device.index].device
        return self.lent(tuple(shape), dtype, device.index)

    def lent(self, shape, dtype, ordinal=0):
        """Allocate a contiguous tensor from the pool of torch's stream."""
        item = self._empty((), dtype=dtype).element_size()
        memory = self.gpus.lend(math.prod(shape) * item, ordinal, self._streams[ordinal].queue)
        return torch.from_numpy(memory).view(dtype).reshape(shape).as_subclass(KINDS[ordinal])

    def there(self, x, ordinal=0):
        """Return a leaf tensor on a fake GPU with the values and strides of a CPU tensor."""
        dense = x.detach().clone(memory_format=torch.preserve_format)
        made = self.lent((dense.numel(),), x.dtype, ordinal).as_strided(dense.shape, dense.stride())
        made.copy_(dense)
        return made.detach()

    def made(self, values):
        """Return a tensor that torch's stream will fill with the values of a NumPy array."""
        tensor, copy = self.lent(values.shape, torch.float32), values.copy()
        address, nbytes = tensor.data_ptr(), values.nbytes
        fill = lambda: ctypes.memmove(address, address_of(copy), nbytes)
        self.stream.queue.put("made", fill, [self.gpus.block_of(address)])
        return tensor

    def values_of(self, tensor):
        """Return the values of a tensor, after the work on torch's stream."""
        self.stream.synchronize()
        return here(tensor).numpy()
