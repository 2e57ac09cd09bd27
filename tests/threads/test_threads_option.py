"""`threads=`: the number of threads that one Converter may use."""

import numpy as np
import pytest

import layoutkit
from layoutkit import Converter
from layoutkit.threads import pool
from layoutkit.threads.pool import LARGE_BYTES, SERIAL_BYTES


@pytest.fixture
def asked(monkeypatch):
    """Return a list that receives the number of threads of each job."""
    found = []

    class Pool(pool.Pool):
        def load(self):
            super().load()
            run = self._run
            lend = self._lend
            self._run = lambda *call: (found.append(call[-1]), run(*call))
            self._lend = lambda *call: (found.append(call[-1]), lend(*call))

    monkeypatch.setattr(pool, "pool", Pool())
    return found


@pytest.mark.parametrize("nbytes", [SERIAL_BYTES, LARGE_BYTES])
def test_a_converter_uses_as_many_as_it_was_given(asked, nbytes):
    x = np.zeros((64, nbytes // 128), np.uint8)
    before = layoutkit.get_num_threads()
    Converter("hw->wh", threads=3)(x)
    Converter("hw->wh")(x)
    assert asked == [3, before]
    assert layoutkit.get_num_threads() == before


def test_one_thread_is_the_caller(asked):
    Converter("hw->wh", threads=1)(np.zeros((2048, 4096), np.uint8))
    assert asked == []


@pytest.mark.parametrize("threads", [0, -1, 257, 1.0, True, "2"])
def test_it_is_a_number_of_threads(threads):
    with pytest.raises(layoutkit.ArgumentError, match=r"a whole number of at (least 1|most 256)$"):
        Converter("hw->wh", threads=threads)


def test_it_is_part_of_what_was_asked():
    to = Converter("hw->wh", threads=2)
    assert repr(to) == 'Converter("hw->wh", threads=2)'
    assert to == Converter("hw->wh", threads=2) != Converter("hw->wh")
    assert to.backward(np.ones((3, 4), np.float32)).shape == (4, 3)
