"""Names of devices: "cpu", and the GPUs of CUDA as "cuda" and "cuda:1".

Names are text and need no GPU, so that a plan or an ArraySpec can be made anywhere. Whether there
is such a device, and what does things on it, is for `layoutkit.cuda.runtime` to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .errors import DeviceError

__all__ = ["CPU", "canonical", "follow", "name_of", "ordinal_of"]

CPU = "cpu"

_CUDA = re.compile(r"cuda(?::(\d{1,4}))?", re.ASCII)
_current: Callable[[], int] | None = None  # asks for the current GPU, where one is in use


def canonical(device: Any) -> str:
    """The one name of a device: "cpu" or "cuda:<ordinal>"; None is the CPU.

    A `torch.device` is what it says in words. "cuda" is the current device of CuPy where it is in
    use already, else the first one. Pure otherwise: whether there is such a device is not asked.

    >>> canonical("cuda:1"), canonical("cuda"), canonical(None)
    ('cuda:1', 'cuda:0', 'cpu')

    Raises DeviceError for anything else.
    """
    if type(device).__module__ == "torch" and type(device).__name__ == "device":
        device = str(device)  # what `x.device` is
    if device is None or (isinstance(device, str) and device == CPU):
        return CPU
    found = _CUDA.fullmatch(device) if isinstance(device, str) else None
    if found is None:
        raise DeviceError(
            f'device={device!r} is no device that layoutkit knows; it is "cpu", "cuda" or one of '
            'several GPUs, such as "cuda:1"'
        )
    if found[1] is not None:
        return name_of(int(found[1]))
    return name_of(0 if _current is None else _current())


def name_of(ordinal: int) -> str:
    """The name of a GPU."""
    return f"cuda:{ordinal}"


def ordinal_of(device: str) -> int:
    """The ordinal of a GPU that has a canonical name."""
    return int(device.removeprefix("cuda:"))


def follow(current: Callable[[], int] | None) -> None:
    """Let "cuda" be the GPU that `current` names; None: the first one."""
    global _current
    _current = current
