"""The bytes of a record become pixels of one size: a processor of batches.

Knows one record at a time; batches and layouts are known to its caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import as_word
from ..errors import ArgumentError, ShapeError
from ..memory import Array
from .decoding import pillow
from .fitting import WAYS, as_size, check_library, fit
from .pixels import pixels_of

__all__ = ["Decoder"]


@dataclass(frozen=True)
class Decoder:
    """Decodes the bytes of a picture into uint8 (height, width, 3), upright, red, green, blue.

    >>> decode = Decoder((224, 224), "pad", fill=114)
    >>> decode.input_dims
    (224, 224, 3)

    Called as ``decoder(data, out=None)``, as a processor of `sampled_batcher` is; with `out` the
    pixels are written there. `data` is whatever `read` takes, or pixels (height, width, 3) that are
    decoded already and only fitted. The arguments are those of `fit`;
    JPEGs are decoded at a half, a quarter or an eighth of their size where that is still at least
    twice what is needed. Decoders are equal where their arguments are, and pickle.

    Raises what `read` and `fit` raise, and when it is made: for arguments, and where Pillow is not
    installed.
    """

    size: tuple[int, int]
    how: str = "cover"
    fill: Any = 0
    library: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_size(self.size))
        as_word("how", self.how, WAYS, ArgumentError)
        if isinstance(self.fill, list | np.ndarray):
            object.__setattr__(self, "fill", tuple(np.asarray(self.fill).tolist()))
        pillow()
        check_library(self.library)

    @property
    def input_dims(self) -> tuple[int, int, int]:
        """The shape of what it makes of a record."""
        return *self.size, 3

    def __call__(self, data: Any, out: Array | None = None) -> Array:
        """The pixels of a picture, in `out` if it is given."""
        found = fit(self._pixels(data), self.size, self.how, fill=self.fill, library=self.library)
        if out is None:
            return found
        out[...] = found
        return out

    def _pixels(self, data: Any) -> Array:
        if isinstance(data, np.ndarray) and data.ndim > 1:
            if data.ndim != 3 or data.shape[2] != 3 or data.dtype != np.uint8:
                raise ShapeError(
                    f"the picture has shape {data.shape} and {data.dtype}; pixels that are decoded "
                    "already are uint8 (height, width, 3)"
                )
            return data
        return pixels_of(data, enough=self.size).array
