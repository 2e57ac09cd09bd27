"""Equality of Converters: those with equal options are equal and have equal hashes."""

import copy
import pickle

import numpy as np
import pytest

from layoutkit import Converter

FORMULA = {"scale": 1 / 255, "mean": (0.5, 0.4, 0.3), "std": [0.5, 0.25, 0.125]}
SAME = [
    (Converter("bhwc->bchw"), Converter("b h w c -> b c h w")),
    (Converter("bhwc->bchw", dtype="f4"), Converter("bhwc->bchw", dtype=np.float32)),
    (Converter("b(hw)c->bchw", h=3, w=2), Converter("b(hw)c->bchw", w=2, h=3)),
    (Converter("bc->cb", **FORMULA), Converter("bc->cb", **{**FORMULA, "std": np.r_[4, 2, 1] / 8})),
]
OTHERS = [
    Converter("bc->cb"),
    Converter("bc->bc"),
    Converter("bc->cb", dtype="float32"),
    # To NumPy, float64 == None is True.
    Converter("bc->cb", dtype="float64"),
    Converter("bc->cb", scale=2),
    Converter("bc->cb", scale=2, mean=1),
    Converter("bc->cb", casting="saturate"),
    Converter("bc->cb", device="cpu"),
    Converter("bc->cb", copy=True),
    Converter("bc->cb", copy=False),
    Converter("bc->cb", c=1),
    Converter("bc->cb", c=2),
    Converter("bc->cb", b=1),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_what_asks_for_the_same_is_one_key(one, other):
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1


def test_what_asks_for_something_else_is_another():
    assert len(set(OTHERS)) == len(OTHERS)
    for one in OTHERS:
        assert [other for other in OTHERS if one == other] == [one]
    assert Converter("bc->cb") != "bc->cb"
    assert Converter("bc->cb") != None  # noqa: E711


@pytest.mark.parametrize("made", [pickle.loads, copy.deepcopy, copy.copy])
def test_copies_are_equal_after_use_too(made):
    converter = Converter("b(hw)c->bchw", dtype="f4", h=2, **FORMULA)
    x = np.ones((1, 6, 3), "u1")
    converter.backward(converter(x), like=x)
    again = made(pickle.dumps(converter) if made is pickle.loads else converter)
    assert again == converter
    assert hash(again) == hash(converter)
    np.testing.assert_array_equal(again(x), converter(x))
