"""Random numbers of images: reproducible, correctly distributed, and each for one use."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from layoutkit.images.augment.random import TRIES, ImageRng, Slot, random_words

MANY = 4000


def drawn(method, *arguments, seed=0, epoch=0):
    return np.array([getattr(ImageRng(seed, epoch, p), method)(*arguments) for p in range(MANY)])


def test_they_are_a_function_of_seed_epoch_and_position():
    def numbers(*key):
        return [ImageRng(*key).fraction(use) for use in range(Slot.TRY + 5 * TRIES)]

    assert numbers(1, 2, 3) == numbers(1, 2, 3)
    backward = ImageRng(1, 2, 3)
    assert [backward.fraction(use) for use in reversed(range(Slot.TRY))][::-1] == numbers(1, 2, 3)[
        : Slot.TRY
    ]
    others = [numbers(*key) for key in [(0, 2, 3), (1, 0, 3), (1, 2, 0), (-1, 2, 3), (1, 3, 2)]]
    everything = np.ravel([numbers(1, 2, 3), *others])
    assert len(set(everything)) == everything.size


def test_they_are_equal_in_every_thread():
    """Draw many words at once, so that NumPy lets other threads run."""

    def words(position):
        return random_words((1, 2), position, 0, 1 << 16)

    with ThreadPoolExecutor(8) as executor:
        found = list(executor.map(words, range(40)))
    assert found == [words(position) for position in range(40)]


def test_they_are_numpys_philox():
    """Compare with stored numbers, so that later versions draw the same images."""
    found = [ImageRng(7, 1, 5).fraction(use) for use in (Slot.TOP, Slot.MIRROR)]
    raw = np.random.Philox(key=[7, 1], counter=[0, 5, 0, 0]).random_raw(16)
    assert found == [(int(raw[use]) >> 11) / 2**53 for use in (0, 2)]
    np.testing.assert_allclose(found, GOLDEN, rtol=1e-12)


GOLDEN = (0.4460889564336221, 0.5596543449587507)


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-5, 5), (3, 3), (-180, 180)])
def test_whole_numbers_are_equally_likely(low, high):
    found = drawn("integer", Slot.LEFT, low, high)
    count = high - low + 1
    assert (found.min(), found.max()) == (low, high)
    times = np.bincount(found - low, minlength=count)
    expected = MANY / count
    assert ((times - expected) ** 2 / expected).sum() < count + 6 * np.sqrt(2 * count)


def test_fractions_are_spread_evenly():
    found = np.sort(drawn("uniform", Slot.SCALE, 2.0, 4.0))
    assert 2 <= found[0] < found[-1] < 4
    steps = 2 + 2 * np.arange(MANY) / MANY
    assert np.abs(found - steps).max() < 2 * 1.95 / np.sqrt(MANY)  # Kolmogorov-Smirnov test, 0.1 %


def test_coins():
    assert abs(drawn("coin", Slot.MIRROR).mean() - 0.5) < 3.3 * 0.5 / np.sqrt(MANY)


def test_normal_numbers():
    found = drawn("normal", Slot.NOISE)
    assert abs(found.mean()) < 3.3 / np.sqrt(MANY)
    assert abs(found.std() - 1) < 3.3 / np.sqrt(2 * MANY)
    assert abs(np.mean(np.abs(found) < 1) - 0.6827) < 0.025


def test_uses_positions_and_epochs_are_independent():
    first = drawn("fraction", Slot.TOP)
    for other in (drawn("fraction", Slot.LEFT), drawn("fraction", Slot.TOP, epoch=1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 3.3 / np.sqrt(MANY)
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 3.3 / np.sqrt(MANY)
