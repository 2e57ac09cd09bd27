"""Arguments of wrong types: one error of layoutkit, whatever the keyword and the type."""

import inspect
import itertools

import numpy as np
import pytest

from layoutkit import Collator, LayoutkitError, collate
from layoutkit.data import open_index, sampled_batcher

PHOTOS = [np.zeros((9, 10, 3), np.uint8)] * 2
VALUES = [
    [], {}, set(), (), ["image", "mask"], {"a": [1]}, [[1], [2, 3]], object(), float("nan"), -1,
    2**70, "zz", "", b"x", np.arange(3), np.array("a"), None, True, int, 1.5, {"h": [object()]},
    range(3), 1j, {"scale": (1,), "ratio": None},
]  # fmt: skip


def keywords(function, *more):
    parameters = inspect.signature(function).parameters.values()
    return [*(p.name for p in parameters if p.kind == p.KEYWORD_ONLY), *more]


def check(call):
    """Call with each value, and return the errors that are not of layoutkit."""
    wrong = []
    for value in VALUES:
        try:
            call(value)
        except (LayoutkitError, MemoryError):  # MemoryError: of a size that no machine has
            continue
        except Exception as error:
            wrong.append((value, repr(error)))
    return wrong


@pytest.mark.parametrize("name", keywords(Collator, "h", "unknown"))
@pytest.mark.parametrize("resize", [None, "bilinear"])
def test_options_of_a_collator(name, resize):
    def make(value):
        collator = Collator("hwc->bchw", **{"h": 4, "w": 4, "resize": resize, name: value})
        repr(collator)
        hash(collator)
        collator.plan(PHOTOS)

    assert check(make) == []


@pytest.mark.parametrize("name", ["indices", "offset", "flip", "crop", "out", "positions", "epoch"])
def test_arguments_of_a_call(name):
    collator = Collator("hwc->bchw", h=4, w=4)
    assert check(lambda value: collator(PHOTOS, **{name: value})) == []
    if name in keywords(collate):
        assert check(lambda v: collate(PHOTOS, "hwc->bchw", h=4, w=4, **{name: v})) == []


def test_samples_and_items():
    collator = Collator("hwc->bchw", h=4, w=4)
    assert check(collator) == []
    assert check(lambda value: collator([(photo, value) for photo in PHOTOS])) == []
    assert check(Collator) == []


@pytest.mark.parametrize("name", keywords(sampled_batcher, "unknown"))
@pytest.mark.parametrize("collated", [False, True])
def test_arguments_of_a_batcher(name, collated):
    options = {"batch_size": 2, "num_workers": 0}
    if collated:
        options["collate"] = Collator("hwc->bchw", h=4, w=4)

    def loop(value):
        source = np.zeros((5, 9, 10, 3), np.uint8)
        with sampled_batcher(source, **{**options, name: value}) as batches:
            list(itertools.islice(batches, 1))

    assert check(loop) == []


@pytest.mark.parametrize("name", keywords(open_index))
def test_arguments_of_an_index(name):
    assert check(lambda value: open_index(np.zeros((5, 3)), **{name: value})) == []
