"""Batches of many samples on a GPU, or of samples that are there."""

import numpy as np
from arrays_of import assert_same
from cuda_shim import needs_compiler
from fake_cuda import FakeArray, values_of

from layoutkit import Collator, collate

pytestmark = needs_compiler

FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}
RNG = np.random.default_rng(0)
PHOTOS = [RNG.integers(0, 256, shape, np.uint8) for shape in [(9, 11, 3), (8, 10, 3)]]
WINDOWS = {"corner": {"h": [-1, 2]}, "flip": {"w": [True, False]}}


def test_windows_are_gathered_here_and_converted_there(gpu):
    asked = {"h": 6, "w": 8, "fill": 7, **FORMULA}
    to = Collator("hwc->bchw", device="cuda", **asked)
    found = to(PHOTOS, **WINDOWS)
    assert isinstance(found, FakeArray)
    assert to.device == "cuda:0"
    assert_same(values_of(found), collate(PHOTOS, "hwc->bchw", **WINDOWS, **asked))
