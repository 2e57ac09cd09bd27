"""Where a row runs: what `cases` asks of a device, and the CPU's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..buffers import empty
from .protocol import Timer, Variant
from .rows import Row

__all__ = ["Array", "Call", "Device", "Host"]

Array = npt.NDArray[Any]  # or a device's own array, which has NumPy's methods
Call = Callable[[], object]


class Device(Protocol):
    """Makes arrays, the limit and variants of a device, and times calls there."""

    @property
    def timer(self) -> Timer | None:
        """What takes samples; None: the clock of `measure`."""

    def using(self) -> AbstractContextManager[Any]:
        """What everything runs in."""

    def about(self) -> dict[str, Any]:
        """What numbers depend on, beside the machine."""

    def array(self, values: Array) -> Array:
        """Return a copy on the device."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array on the device whose memory has been touched."""

    def on_host(self, result: Any) -> Any:
        """Return a result as an array on the host, of whatever library."""

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        """Return the limit's calls for several sets of buffers."""

    def variant(self, name: str, calls: Sequence[Call], lingers: float, replay: bool) -> Variant:
        """Make a variant of calls, one for each set. `replay`: only what the device does counts."""

    def clear(self) -> None:
        """Let go of idle memory."""


class Host:
    """The CPU: NumPy's arrays, calls as they are, the clock of `measure`."""

    timer: Timer | None = None

    def using(self) -> AbstractContextManager[Any]:
        """Needs nothing."""
        return nullcontext()

    def about(self) -> dict[str, Any]:
        """Adds nothing."""
        return {}

    def array(self, values: Array) -> Array:
        """Copy."""
        return values.copy()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Take memory from the pool and touch its pages."""
        out = empty(shape, dtype)
        out.view(np.uint8).fill(0)
        return out

    def on_host(self, result: Any) -> Any:
        """Nothing to do."""
        return result

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        """Stream through the row's own buffers."""
        from .limit import limit_pass, streaming_is_faster

        streaming = streaming_is_faster(sources[0], outs[0])
        pairs = zip(sources, outs, strict=True)
        return [limit_pass(several, out, streaming) for several, out in pairs]

    def variant(self, name: str, calls: Sequence[Call], lingers: float, replay: bool) -> Variant:
        """Take the calls as they are."""
        return Variant(name, calls, lingers)

    def clear(self) -> None:
        """The pool has its limit."""
