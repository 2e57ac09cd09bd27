"""What ends the way of a picture: mirrored, ((x - mean) * k + i) * scale / std, layout and dtype.

One pass over the pixels where k and i are 1 and 0 and the mean is one number a channel. Other
means, and a k and i of each picture's own, are applied to the result while it is in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...axes import parse_layout
from ...converter import Converter
from ...errors import ArgumentError, DtypeError, ShapeError
from ...memory import Array
from ...spec import as_dtype
from .options import Options

__all__ = ["Cut", "Finish", "check_layout"]

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("uint8", "int8")
# Of windows in pictures of so many widths the pass is planned, for 0.3 ms each; those of others are
# copied first, for 0.01 ms, as pictures may be of a thousand widths.
_MOST_WIDTHS = 64


class Cut(NamedTuple):
    """The part of a picture that becomes the result, and what is random about the rest of its way.

    pixels : uint8 (height, width, channels)    not yet mirrored, and not to be written to
    gain, lift : float                          k and i
    """

    pixels: Array
    is_mirrored: bool
    gain: float
    lift: float


class Finish:
    """The last step for pictures of one size, planned once.

    layout : str      of one picture: `chw`, `hwc`, `(hwc)`
    mean : array      float (channels, height, width), in place of one number a channel
    varies : bool     it is more than one formula for all pictures; else `constants` are those of a
                      conversion that does the same
    """

    def __init__(self, options: Options, layout: str, dtype: Any, mean: Array | None) -> None:
        self.dtype = _checked_dtype(dtype)
        self._options, self._layout = options, layout
        saturate = {"casting": "saturate"} if self.dtype.name in _INTEGERS else {}
        self.varies = bool(
            mean is not None or options.max_random_contrast or options.max_random_illumination
        )
        factors = [options.scale / each for each in options.std]
        found = "float64" if self.dtype.name == "float64" else "float32"
        if not self.varies:
            self.constants = saturate | _constants(options.mean, [1 / each for each in factors])
            self._pass = _pass(f"hwc->{layout}", self.dtype, **self.constants)
        else:
            means = _constants(options.mean, None) if mean is None else {}
            self._pass = Converter(f"hwc->{layout}", dtype=found, threads=1, **means)
            self._end = _pass(f"{layout}->{layout}", self.dtype, **saturate)
            self._factors = self._laid_out(factors, found)
            self._means = None if mean is None else self._mean_images(mean, found)
        self._widths: set[int] = set()
        shape = (options.height, options.width, options.channels)
        self.shape: tuple[int, ...] = self._pass.target_shape(shape)

    def __call__(self, cut: Cut, out: Array | None) -> Array:
        """What becomes of a picture's window, in `out` if it is given."""
        pixels, is_mirrored, gain, lift = cut
        if pixels.strides[0] not in self._widths:
            if len(self._widths) < _MOST_WIDTHS:
                self._widths.add(pixels.strides[0])
            else:
                pixels = np.ascontiguousarray(pixels)
        if is_mirrored:
            pixels = pixels[:, ::-1]
        if not self.varies:
            found: Array = self._pass(pixels, out=out)
            return found
        direct = self._end.task.dtype == self._pass.task.dtype
        values: Array = self._pass(pixels, out=out if direct else None)
        if self._means is not None:
            values -= self._means[is_mirrored]
        if gain != 1:
            values *= values.dtype.type(gain)
        if lift:
            values += values.dtype.type(lift)
        values *= self._factors
        return values if direct else self._end(values, out=out)

    def _laid_out(self, values: list[float], dtype: str) -> Array:
        """One number a channel, in a shape that goes with results."""
        if len(set(values)) == 1:
            return np.array(values[0], dtype)
        options, groups = self._options, parse_layout(self._layout).groups
        if "c" in groups:
            shape = [1] * len(groups)
            shape[groups.index("c")] = options.channels
            return np.array(values, dtype).reshape(shape)
        whole = np.empty((options.height, options.width, options.channels), dtype)
        whole[...] = values
        found: Array = Converter(f"hwc->{self._layout}")(whole)
        return found

    def _mean_images(self, mean: Array, dtype: str) -> tuple[Array, Array]:
        """What is subtracted of pictures, and of mirrored ones."""
        if mean.shape != self._options.data_shape:
            raise ShapeError(
                f"mean_img has shape {mean.shape}, but pictures are {self._options.data_shape}; "
                "its shape is that of data_shape"
            )
        convert = Converter(f"chw->{self._layout}", dtype=dtype)
        return convert(mean), convert(mean[:, :, ::-1])


def _pass(pattern: str, dtype: Any, **keywords: Any) -> Converter:
    """What writes a row of a batch: it is not read again before the batch is, and is one thread's
    work, as other threads have pictures of their own."""
    asked = Converter(pattern, dtype=dtype, threads=1, **keywords)
    return Converter.of_task(asked.task._replace(is_part=True))


def _constants(means: tuple[float, ...], stds: list[float] | None) -> dict[str, Any]:
    """The keywords of a formula that changes something."""
    found: dict[str, Any] = {}
    if any(means):
        found["mean"] = means
    if stds is not None and set(stds) != {1.0}:
        found["std"] = stds
    return found


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    found = as_dtype(dtype)
    if found.name not in (*_FLOATS, *_INTEGERS):
        raise DtypeError(
            f"pictures of dtype {found} are not made; there are {', '.join(_FLOATS + _INTEGERS)}"
        )
    return found


def check_layout(layout: str) -> None:
    """ArgumentError unless a layout is one of a picture: h, w and c, in any order and folds."""
    if sorted(parse_layout(layout).letters) != ["c", "h", "w"]:
        raise ArgumentError(
            f'layout={layout!r}; that of a picture has h, w and c, as "chw", "hwc" or "(hwc)"'
        )
