"""Tensors of PyTorch on fake GPUs: torch's real code on memory that the fake lends.

Import it inside of what needs PyTorch: without it, those tests are skipped.
"""

import ctypes
import math
from types import SimpleNamespace

import pytest
from fake_cupy import address_of

torch = pytest.importorskip("torch", reason="needs PyTorch")


class Cuda(torch.Tensor):
    """A tensor in memory of a fake GPU, which the CPU could read but is not to."""

    device = torch.device("cuda", 0)
    is_cuda = True


class Second(Cuda):
    """The same on the second GPU."""

    device = torch.device("cuda", 1)


KINDS = Cuda, Second


def here(x):
    """The plain tensor that shares the memory of one on a fake GPU."""
    assert type(x) in KINDS
    return x.detach().as_subclass(torch.Tensor)


class FakeTorch:
    """Torch on two fake GPUs, with current streams of its own, or the default ones."""

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

    def _empty_there(self, shape, *, dtype, device=None):
        if device is None or device.type == "cpu":
            return self._empty(shape, dtype=dtype)
        assert device == KINDS[device.index].device
        return self.lent(tuple(shape), dtype, device.index)

    def lent(self, shape, dtype, ordinal=0):
        """A contiguous tensor of the pool of torch's stream."""
        item = self._empty((), dtype=dtype).element_size()
        memory = self.gpus.lend(math.prod(shape) * item, ordinal, self._streams[ordinal].queue)
        return torch.from_numpy(memory).view(dtype).reshape(shape).as_subclass(KINDS[ordinal])

    def there(self, x, ordinal=0):
        """A leaf with the values of a tensor on the CPU, which lies as that does."""
        dense = x.detach().clone(memory_format=torch.preserve_format)
        made = self.lent((dense.numel(),), x.dtype, ordinal).as_strided(dense.shape, dense.stride())
        made.copy_(dense)
        return made.detach()

    def made(self, values):
        """A tensor that has the values of a NumPy array when torch's stream has made it."""
        tensor, copy = self.lent(values.shape, torch.float32), values.copy()
        address, nbytes = tensor.data_ptr(), values.nbytes
        fill = lambda: ctypes.memmove(address, address_of(copy), nbytes)  # noqa: E731
        self.stream.queue.put("made", fill, [self.gpus.block_of(address)])
        return tensor

    def values_of(self, tensor):
        """Its values, when torch's stream has done its work."""
        self.stream.synchronize()
        return here(tensor).numpy()
