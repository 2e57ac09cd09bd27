"""The random numbers of one picture: a function of seed, epoch and position, and of nothing else.

Philox is a hash of a counter, so there is no state that threads, parts or a resumed run could find
elsewhere. Every use has a place of its own among the numbers of a picture: an option that is added
or taken away does not change what others draw.
"""

from __future__ import annotations

import math
import threading
from enum import IntEnum
from functools import cached_property

import numpy as np

__all__ = ["TRIES", "Draws", "Use"]

TRIES = 10  # windows of random_resized_crop that are drawn before it takes the middle
_WORD = 64
_MASK = (1 << _WORD) - 1
_FRACTION = 53  # bits of a float between 0 and 1


class Use(IntEnum):
    """What a number is for, and its place. NOISE has six, and TRY five for each of its tries."""

    ANGLE = 0
    SHEAR = 1
    SCALE = 2
    ASPECT = 3
    METHOD = 4
    SIDE = 5
    TOP = 6
    LEFT = 7
    ORDER = 8
    BRIGHTNESS = 9
    CONTRAST = 10
    SATURATION = 11
    HUE = 12
    LIGHTNESS = 13
    PURITY = 14
    MIRROR = 15
    GAIN = 16
    LIFT = 17
    NOISE = 18
    TRY = 24


_COUNT = Use.TRY + 5 * TRIES


_kept = threading.local()


def _philox(key: tuple[int, int], position: int) -> np.random.Philox:
    """NumPy's generator at a place, by its state: to make one takes several times as long."""
    if not hasattr(_kept, "source"):
        _kept.source = np.random.Philox(0)
        _kept.state = _kept.source.state
    state, source = _kept.state, _kept.source
    state["state"]["key"][:] = key
    state["state"]["counter"][:] = (0, position, 0, 0)
    source.state = state  # with an empty buffer, as it was taken
    found: np.random.Philox = source
    return found


class Draws:
    """The numbers of the picture in a position of the source, in an epoch.

    >>> draws = Draws(seed=0, epoch=3, position=7)
    >>> draws.uniform(Use.SCALE, 0.5, 2.0) == Draws(0, 3, 7).uniform(Use.SCALE, 0.5, 2.0)
    True
    """

    def __init__(self, seed: int, epoch: int, position: int) -> None:
        self._key = seed & _MASK, epoch & _MASK
        self._position = position

    @cached_property
    def _words(self) -> list[int]:
        """64 random bits for each place."""
        words: list[int] = _philox(self._key, self._position).random_raw(_COUNT).tolist()
        return words

    def fraction(self, use: int) -> float:
        """A number in [0, 1)."""
        return (self._words[use] >> (_WORD - _FRACTION)) * 2.0**-_FRACTION

    def uniform(self, use: int, low: float, high: float) -> float:
        """A number between two others."""
        return low + (high - low) * self.fraction(use)

    def whole(self, use: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + (self._words[use] * (high - low + 1) >> _WORD)

    def coin(self, use: int) -> bool:
        """True half of the time."""
        return bool(self._words[use] >> (_WORD - 1))

    def normal(self, use: int) -> float:
        """A number of the normal distribution, made of the numbers of two places."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.fraction(use)))
        return radius * math.cos(2.0 * math.pi * self.fraction(use + 1))
