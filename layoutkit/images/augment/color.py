"""Color changes of 8-bit pixels: each function returns new pixels from pixels and numbers.

Pixels are uint8 (height, width, channels) in RGB; a fourth channel, alpha, is not changed. Results
are rounded half to even and clipped to 0..255.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...memory import Array
from ..fitting import opencv
from .options import Options
from .random import ImageRng, Slot

_GRAY_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)  # luma weights (BT.601)
# Principal components of the colors of ImageNet, one per column, and the standard deviations.
_PCA_DEVIATIONS = np.array([55.46, 4.794, 1.148])
_PCA_COMPONENTS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
_HUE_COUNT = 180  # OpenCV's hues in 8 bits
STEP_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
_LEVELS = np.arange(256, dtype=np.float64)


def adjust_colors(pixels: Array, options: Options, rng: ImageRng) -> Array:
    """Return an image with the color changes of the options, in new memory."""
    changed = pixels[..., :3]
    alpha = pixels[..., 3:]
    steps = (
        (options.brightness, Slot.BRIGHTNESS, adjust_brightness),
        (options.contrast, Slot.CONTRAST, adjust_contrast),
        (options.saturation, Slot.SATURATION, adjust_saturation),
    )
    for step in STEP_ORDERS[rng.integer(Slot.ORDER, 0, len(STEP_ORDERS) - 1)]:
        limit, slot, adjust = steps[step]
        if limit:
            changed = adjust(changed, rng.uniform(slot, 1 - limit, 1 + limit))
    limits = options.random_h, options.random_l, options.random_s
    if any(limits):
        changed = shift_hls(changed, *random_shifts(rng, limits))
    if options.pca_noise:
        weights = [options.pca_noise * rng.normal(Slot.NOISE + 2 * i) for i in range(3)]
        changed = add_pca_noise(changed, weights)
    return np.concatenate([changed, alpha], axis=2) if alpha.size else changed


def random_shifts(rng: ImageRng, limits: Sequence[int]) -> list[int]:
    """Return changes of hue, lightness and saturation, of at most these limits.

    As MXNet draws them: extreme changes are rare, and 0 is the most frequent one.
    """
    slots = Slot.HUE, Slot.LIGHTNESS, Slot.HLS_SATURATION
    shifts = []
    for number, (slot, limit) in enumerate(zip(slots, limits, strict=True)):
        share = (rng.fraction(slot) + 4 * rng.fraction(Slot.HLS + number)) / 5
        shifts.append(int(share * 2 * limit - limit))  # rounded towards 0
    return shifts


def adjust_brightness(pixels: Array, factor: float) -> Array:
    """Multiply all values by a factor."""
    return _to_uint8(_LEVELS * factor)[pixels]


def adjust_contrast(pixels: Array, factor: float) -> Array:
    """Multiply the difference of all values from the image's mean gray by a factor."""
    means = pixels.mean(axis=(0, 1))
    gray = float(means @ _GRAY_WEIGHTS) if len(means) == 3 else float(means[0])
    return _to_uint8(_LEVELS * factor + (1 - factor) * gray)[pixels]


def adjust_saturation(pixels: Array, factor: float) -> Array:
    """Multiply the difference of each pixel from its own gray by a factor."""
    values = pixels.astype(np.float32)
    gray = values @ _GRAY_WEIGHTS
    values *= np.float32(factor)
    values += (np.float32(1 - factor) * gray)[..., None]
    return _to_uint8(values)


def shift_hls(pixels: Array, hue: int, lightness: int, saturation: int) -> Array:
    """Add integers to hue, which wraps around at 180, and to lightness and saturation."""
    cv2: Any = opencv()
    hls = cv2.cvtColor(pixels, cv2.COLOR_RGB2HLS)
    tables = [
        ((_LEVELS + hue) % _HUE_COUNT).astype(np.uint8),
        _to_uint8(_LEVELS + lightness),
        _to_uint8(_LEVELS + saturation),
    ]
    return cv2.cvtColor(_apply_tables(hls, tables), cv2.COLOR_HLS2RGB)


def add_pca_noise(pixels: Array, weights: Sequence[float]) -> Array:
    """Add one color to all pixels: a weighted sum of the principal components of natural colors."""
    color = _PCA_COMPONENTS @ (_PCA_DEVIATIONS * np.asarray(weights))
    return _apply_tables(pixels, [_to_uint8(_LEVELS + value) for value in color])


def _apply_tables(pixels: Array, tables: Sequence[Array]) -> Array:
    result = np.empty_like(pixels)
    for channel, table in enumerate(tables):
        result[..., channel] = table[pixels[..., channel]]
    return result


def _to_uint8(values: Array) -> Array:
    """Round and clip floats to uint8; overwrites `values`."""
    np.rint(values, out=values)
    return np.clip(values, 0, 255, out=values).astype(np.uint8)
