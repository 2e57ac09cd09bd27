"""The random numbers of one picture: a function of seed, epoch and position, and of nothing else.

Philox is a hash of a counter, so there is no state that threads, parts or a resumed run could find
elsewhere. Every use has a place of its own among the numbers of a picture: an option that is added
or taken away does not change what others draw.
"""

from __future__ import annotations

import math
import threading

import numpy as np

__all__ = ["TRIES", "Draws", "Use"]

TRIES = 10  # windows of random_resized_crop that are drawn before it takes the middle
_WORD = 64
_MASK = (1 << _WORD) - 1
_FRACTION = 53  # bits of a float between 0 and 1


class Use:
    """What a number is for: its place. NOISE has six, and TRY five for each of its tries.

    The first four are what most pictures need, and one step of Philox.
    """

    TOP = 0
    LEFT = 1
    MIRROR = 2
    SIDE = 3
    ANGLE = 4
    SHEAR = 5
    SCALE = 6
    ASPECT = 7
    METHOD = 8
    ORDER = 9
    BRIGHTNESS = 10
    CONTRAST = 11
    SATURATION = 12
    HUE = 13
    LIGHTNESS = 14
    PURITY = 15
    GAIN = 16
    LIFT = 17
    NOISE = 18
    TRY = 24


_STEP = 4  # words of a step of Philox
_ALL = Use.TRY + 5 * TRIES
_kept = threading.local()


def _words(key: tuple[int, int], position: int, first: int, count: int) -> list[int]:
    """Random words of 64 bits; `first` is a multiple of four.

    By the state of one generator a thread, as to make one takes several times as long. Few words
    are asked for one by one: for several NumPy lets go of the interpreter's lock, and to have it
    back takes longer.
    """
    if not hasattr(_kept, "source"):
        _kept.source = np.random.Philox(0)
        _kept.state = _kept.source.state
    state, source = _kept.state, _kept.source
    state["state"]["key"][:] = key
    state["state"]["counter"][:] = (first // _STEP, position, 0, 0)
    source.state = state  # with an empty buffer, as it was taken
    if count == _STEP:
        return [source.random_raw() for _ in range(_STEP)]
    words: list[int] = source.random_raw(count).tolist()
    return words


class Draws:
    """The numbers of the picture in a position of the source, in an epoch.

    >>> draws = Draws(seed=0, epoch=3, position=7)
    >>> draws.uniform(Use.SCALE, 0.5, 2.0) == Draws(0, 3, 7).uniform(Use.SCALE, 0.5, 2.0)
    True
    """

    def __init__(self, seed: int, epoch: int, position: int) -> None:
        self._key = seed & _MASK, epoch & _MASK
        self._position = position
        self._found: list[int] = []

    def _word(self, use: int) -> int:
        found = self._found
        if use >= len(found):
            count = _STEP if not found and use < _STEP else _ALL - len(found)
            found += _words(self._key, self._position, len(found), count)
        return found[use]

    def fraction(self, use: int) -> float:
        """A number in [0, 1)."""
        return (self._word(use) >> (_WORD - _FRACTION)) * 2.0**-_FRACTION

    def uniform(self, use: int, low: float, high: float) -> float:
        """A number between two others."""
        return low + (high - low) * self.fraction(use)

    def whole(self, use: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + (self._word(use) * (high - low + 1) >> _WORD)

    def coin(self, use: int) -> bool:
        """True half of the time."""
        return bool(self._word(use) >> (_WORD - 1))

    def normal(self, use: int) -> float:
        """A number of the normal distribution, made of the numbers of two places."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.fraction(use)))
        return radius * math.cos(2.0 * math.pi * self.fraction(use + 1))
