"""How a result on the CPU becomes an array of JAX, which shares its memory.

`jax.device_put` does that for whatever it is given, and takes 35 us to find out what that is. Here
it is known, and the function of jaxlib that it ends in takes 4. It is no public one, so it is tried
once, on an array of a few bytes; where it is not there or does something else, `jax.device_put` is
called instead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..memory import Array, address

__all__ = ["Placer"]

_ALIGNMENT = 64  # bytes; what begins elsewhere JAX copies


class Placer:
    """Makes arrays of JAX of NumPy arrays, as `jax.device_put(array, device)` does, and sooner.

    Like results of JAX's own operations, they are committed to a device where `like` is.
    """

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._sharding = lru_cache(maxsize=64)(jax.sharding.SingleDeviceSharding)
        self._put = self._found()

    def __call__(self, array: Array, like: Any) -> Any:
        """The array of JAX on the device of `like`; its dtype is one that JAX has as it is."""
        (device,) = like.devices()
        committed = bool(getattr(like, "committed", True))
        if self._put is not None and self._is_plain(array.dtype):
            return self._placed(array, device, committed)
        where = device if committed else None
        return self._jax.device_put(array, where, may_alias=True)

    def _placed(self, array: Array, device: Any, committed: bool) -> Any:
        shaped = self._jax.core.ShapedArray(array.shape, array.dtype)
        return self._put(shaped, self._sharding(device), [array], [device], committed)

    def _is_plain(self, dtype: np.dtype[Any]) -> bool:
        """Whether JAX has the dtype whatever its settings are."""
        return dtype.itemsize < 8 or dtype.name == "complex64"

    def _found(self) -> Any:
        """The function of jaxlib, if it does what it is taken for."""
        try:
            from jaxlib.xla_client import batched_device_put

            self._put = batched_device_put
            memory = np.zeros(2 * _ALIGNMENT, np.uint8)
            start = -address(memory) % _ALIGNMENT
            probe = memory[start : start + 16].view(np.float32).reshape(2, 2)
            probe[:] = [[1, 2], [3, 4]]
            device = self._jax.local_devices(backend="cpu")[0]
            made = self._placed(probe, device, False)
            same = made.unsafe_buffer_pointer() == address(probe) and made.devices() == {device}
            right = same and isinstance(made, self._jax.Array) and not made.committed
            return batched_device_put if right and (np.asarray(made) == probe).all() else None
        except Exception:  # whatever another version of jaxlib makes of it
            return None
