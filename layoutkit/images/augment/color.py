"""Colours of 8-bit pixels changed: each function takes pixels and numbers, and gives new pixels.

(height, width, channels) of uint8, in red, green, blue; a fourth channel, alpha, stays as it is.
Results are rounded half to even and cut off at 0 and 255.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...memory import Array
from ..resize import opencv
from .options import Options
from .random import Draws, Use

__all__ = ["brightened", "contrasted", "noisy", "recoloured", "saturated", "shifted"]

_GREY = np.array([0.299, 0.587, 0.114], np.float32)  # what colours weigh in grey
# Of the colours of ImageNet's pictures: standard deviations along the principal components, which
# are the columns.
_DEVIATIONS = np.array([55.46, 4.794, 1.148])
_COMPONENTS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
_HUES = 180  # of OpenCV in 8 bits
_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
_LEVELS = np.arange(256, dtype=np.float64)


def recoloured(pixels: Array, options: Options, draws: Draws) -> Array:
    """What the options for colours make of a picture, in new memory."""
    changed, alpha = pixels[..., :3], pixels[..., 3:]
    steps = (
        (options.brightness, Use.BRIGHTNESS, brightened),
        (options.contrast, Use.CONTRAST, contrasted),
        (options.saturation, Use.SATURATION, saturated),
    )
    for number in _ORDERS[draws.whole(Use.ORDER, 0, len(_ORDERS) - 1)]:
        share, use, change = steps[number]
        if share:
            changed = change(changed, draws.uniform(use, 1 - share, 1 + share))
    ranges = options.random_h, options.random_l, options.random_s
    if any(ranges):
        uses = Use.HUE, Use.LIGHTNESS, Use.PURITY
        hls = [draws.whole(use, -most, most) for use, most in zip(uses, ranges, strict=True)]
        changed = shifted(changed, *hls)
    if options.pca_noise:
        numbers = [options.pca_noise * draws.normal(Use.NOISE + 2 * each) for each in range(3)]
        changed = noisy(changed, numbers)
    return np.concatenate([changed, alpha], axis=2) if alpha.size else changed


def brightened(pixels: Array, factor: float) -> Array:
    """All values times a factor."""
    return _in_8_bits(_LEVELS * factor)[pixels]


def contrasted(pixels: Array, factor: float) -> Array:
    """All values as far from the mean grey of the picture as a factor says."""
    means = pixels.mean(axis=(0, 1))
    grey = float(means @ _GREY) if len(means) == 3 else float(means[0])
    return _in_8_bits(_LEVELS * factor + (1 - factor) * grey)[pixels]


def saturated(pixels: Array, factor: float) -> Array:
    """The colours of each pixel as far from its own grey as a factor says."""
    values = pixels.astype(np.float32)
    grey = values @ _GREY
    values *= np.float32(factor)
    values += (np.float32(1 - factor) * grey)[..., None]
    return _in_8_bits(values)


def shifted(pixels: Array, hue: int, lightness: int, saturation: int) -> Array:
    """Whole numbers added to hue, which goes round at 180, and to lightness and saturation."""
    cv2: Any = opencv()
    hls = cv2.cvtColor(pixels, cv2.COLOR_RGB2HLS)
    tables = [
        ((_LEVELS + hue) % _HUES).astype(np.uint8), _in_8_bits(_LEVELS + lightness),
        _in_8_bits(_LEVELS + saturation),
    ]  # fmt: skip
    found: Array = cv2.cvtColor(_looked_up(hls, tables), cv2.COLOR_HLS2RGB)
    return found


def noisy(pixels: Array, numbers: Sequence[float]) -> Array:
    """One colour added to all pixels: so much of each principal component of natural colours."""
    colour = _COMPONENTS @ (_DEVIATIONS * np.asarray(numbers))
    return _looked_up(pixels, [_in_8_bits(_LEVELS + each) for each in colour])


def _looked_up(pixels: Array, tables: Sequence[Array]) -> Array:
    """Each channel in a table of its own."""
    found = np.empty_like(pixels)
    for channel, table in enumerate(tables):
        found[..., channel] = table[pixels[..., channel]]
    return found


def _in_8_bits(values: Array) -> Array:
    """Floats, which are used up, as uint8."""
    np.rint(values, out=values)
    found: Array = np.clip(values, 0, 255, out=values).astype(np.uint8)
    return found
