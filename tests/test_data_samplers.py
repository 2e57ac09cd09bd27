"""Orders: what an epoch holds, keyed permutations, and what cannot be asked for."""

import numpy as np
import pytest

from layoutkit.data.permutation import drawn, shuffled, unshuffled


def positions(n):
    return np.arange(n, dtype=np.uint64)


# ---- the permutation -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [*range(1, 600, 7), 255, 256, 257, 1023, 1024, 1025])
def test_a_permutation_takes_each_number_once_and_back(n):
    moved = shuffled(n * 17, positions(n), n)
    assert sorted(moved.tolist()) == list(range(n))
    assert unshuffled(n * 17, moved, n).tolist() == list(range(n))


@pytest.mark.parametrize("n", range(1, 65))
def test_small_permutations_too(n):
    assert sorted(shuffled(3, positions(n), n).tolist()) == list(range(n))


def test_one_number_and_an_array_of_them_agree():
    for n in (5, 10**6, 10**12, 2**62, 2**63 - 1):
        some = [0, 1, n // 2, n - 1]
        moved = shuffled(9, np.array(some, np.uint64), n).tolist()
        assert moved == [shuffled(9, at, n) for at in some]
        assert max(moved) < n
        assert [unshuffled(9, at, n) for at in moved] == some
        assert drawn(9, np.array(some, np.uint64), n).tolist() == [drawn(9, i, n) for i in some]
