"""The random numbers of one image: a function of seed, epoch and position only.

Philox is a counter-based generator, so threads, shards and resumed runs share no state. Each use
has its own slot among the numbers of an image: adding or removing an option does not change the
numbers of other options.
"""

from __future__ import annotations

import math
import threading

import numpy as np

from ..._utils.random import as_fractions
from ...memory import Array
from ...planning.fitting import DRAWS_PER_TRY, TRIES

_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1


class Slot:
    """The slots of the random numbers. NOISE has six slots, TRY the slots of all tries of a crop.

    HUE, LIGHTNESS and HLS_SATURATION have a second slot each, from HLS on.

    Most images need only the first four, which are one step of Philox.
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
    HLS_SATURATION = 15
    GAIN = 16
    LIFT = 17
    NOISE = 18
    TRY = 24
    HLS = TRY + TRIES * DRAWS_PER_TRY


_WORDS_PER_STEP = 4  # of Philox
_WORD_COUNT = Slot.HLS + 3
_thread_state = threading.local()


def random_words(key: tuple[int, int], position: int, first: int, count: int) -> list[int]:
    """Return random 64-bit words; `first` is a multiple of four.

    Each thread sets the state of one generator, since creating one takes several times as long. Few
    words are drawn one by one: for several at once NumPy releases the GIL, and acquiring it again
    takes longer.
    """
    if not hasattr(_thread_state, "source"):
        _thread_state.source = np.random.Philox(0)
        _thread_state.state = _thread_state.source.state
    state = _thread_state.state
    source = _thread_state.source
    state["state"]["key"][:] = key
    state["state"]["counter"][:] = (first // _WORDS_PER_STEP, position, 0, 0)
    source.state = state  # its buffer is empty, as it was when the state was saved
    if count == _WORDS_PER_STEP:
        return [source.random_raw() for _ in range(_WORDS_PER_STEP)]
    return source.random_raw(count).tolist()


class ImageRng:
    """The random numbers of the image at a position of the source, in an epoch.

    >>> rng = ImageRng(seed=0, epoch=3, position=7)
    >>> rng.uniform(Slot.SCALE, 0.5, 2.0) == ImageRng(0, 3, 7).uniform(Slot.SCALE, 0.5, 2.0)
    True
    """

    def __init__(self, seed: int, epoch: int, position: int) -> None:
        self._key = int(seed) & _WORD_MASK, int(epoch) & _WORD_MASK  # NumPy integers overflow
        self._position = position
        self._cached_words: list[int] = []

    def word(self, slot: int) -> int:
        """Return the random word of a slot, drawn for this image."""
        words = self._cached_words
        if slot >= len(words):
            count = (
                _WORDS_PER_STEP
                if not words and slot < _WORDS_PER_STEP
                else _WORD_COUNT - len(words)
            )
            words += random_words(self._key, self._position, len(words), count)
        return words[slot]

    def fraction(self, slot: int) -> float:
        """Return a float in [0, 1)."""
        return as_fractions(self.word(slot))

    def crop_draws(self, counters: Array) -> Array:
        """Return random numbers in [0, 1) for the tries of a crop; see `RandomCrop.draw`."""
        self.word(Slot.HLS - 1)
        words = np.array(self._cached_words[Slot.TRY : Slot.HLS], np.uint64)
        return as_fractions(words[counters])

    def uniform(self, slot: int, low: float, high: float) -> float:
        """Return a float in [low, high)."""
        return low + (high - low) * self.fraction(slot)

    def integer(self, slot: int, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + (self.word(slot) * (high - low + 1) >> _WORD_BITS)

    def coin(self, slot: int) -> bool:
        """Return True with probability 1/2."""
        return bool(self.word(slot) >> (_WORD_BITS - 1))

    def normal(self, slot: int) -> float:
        """Return a float of the standard normal distribution; uses two slots."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.fraction(slot)))
        return radius * math.cos(2.0 * math.pi * self.fraction(slot + 1))
