"""Objects that are indexed like arrays and record the keys that they are indexed with."""

import numpy as np


class Like:
    """A read-only object with shape, dtype and `[]` only."""

    def __init__(self, array):
        self.array = array
        self.asked = []

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return self.array.dtype

    def __getitem__(self, key):
        self.asked.append(key)
        return self.array[key].copy()

    @property
    def elements_read(self):
        return sum(self.array[key].size for key in self.asked)


class WritableLike(Like):
    def __setitem__(self, key, value):
        assert isinstance(value, np.ndarray)
        assert value.shape == self.array[key].shape
        self.array[key] = value


class StrictLike(WritableLike):
    """An object that accepts the keys that files accept: ints, forward slices, one sorted list."""

    def __getitem__(self, key):
        check_strict(key)
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        check_strict(key)
        super().__setitem__(key, value)


def check_strict(key):
    parts = key if isinstance(key, tuple) else (key,)
    lists = [part for part in parts if isinstance(part, np.ndarray)]
    assert len(lists) <= 1
    assert all(np.all(np.diff(part) > 0) and np.all(part >= 0) for part in lists)
    assert not (lists and any(isinstance(part, int) for part in parts))
    for part in parts:
        if isinstance(part, slice):
            assert part.step is None or part.step > 0
            assert min(part.start, part.stop) >= 0
        elif not isinstance(part, np.ndarray):
            assert type(part) is int
            assert part >= 0
