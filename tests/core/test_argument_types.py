"""Arguments of wrong types: one error of layoutkit, whatever the keyword and the type."""

import inspect
import itertools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from layoutkit import (
    ArraySpec,
    Collator,
    Converter,
    LayoutkitError,
    accumulate,
    collate,
    convert,
    plan,
)
from layoutkit.data import ArrayProvider, Dataset, open_index, sampled_batcher

PHOTOS = [np.zeros((9, 10, 3), np.uint8)] * 2
X = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
PAIR = np.ones((2, 3))


class Strange:
    """An object that is neither a number, nor text, nor a sequence."""


VALUES = [
    None, True, -1, 2**31, 2**63, 2**70, 10**400, 1.5, float("nan"), 1j, "", "zz", b"x", (), [],
    [1, 2, 3], [[1]], [[1], [2, 3]], [None], (1, 2), ["image", "mask"], {}, set(), {1}, {"c": 1},
    {"a": [1]}, {"h": 2**63}, {"h": 1.5}, {"h": None}, {"h": [object()]}, {"c": [1, 2, 3]}, {1: 2},
    {"scale": (1,), "ratio": None}, int, Strange(), np.array(1), np.arange(3),
    np.array([]), np.array([[1.0]]), np.array("a"), np.array(["a"]), np.array([None]),
    np.array(1 + 2j), np.float32("nan"), np.datetime64("2000"), np.void(b"abc"),
    np.ma.array([1, 2], mask=[0, 1]), Fraction(1, 3), Decimal("NaN"), range(3), slice(1), ...,
    memoryview(b"abc"), np.dtype("O"),
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


PADDED = {"pad_to": {"h": 9, "w": 9}}
OTHERS = {"pad_before": PADDED, "fill": PADDED, "center": PADDED}


@pytest.mark.parametrize("name", keywords(Converter, "out", "h"))
def test_options_of_a_conversion(name):
    def run(value):
        options = {**OTHERS.get(name, {}), name: value}
        convert(X, "bhwc->bchw", **options)
        if name != "out":
            plan("bhwc->bchw", X.shape, "u1", **options)
            Converter("bhwc->bchw", **options)

    assert check(run) == []


@pytest.mark.budget(7)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("name", keywords(Collator, "h", "unknown"))
@pytest.mark.parametrize("resize", [None, "bilinear"])
def test_options_of_a_collator(name, resize):
    def run(value):
        collator = Collator("hwc->bchw", **{"h": 4, "w": 4, "resize": resize, name: value})
        repr(collator)
        hash(collator)
        collator.plan(PHOTOS)
        collator(PHOTOS, positions=[0, 1])

    assert check(run) == []


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("name", ["indices", "offset", "flip", "crop", "out", "positions", "epoch"])
@pytest.mark.parametrize("resize", [None, "bilinear"])
def test_arguments_of_a_call(name, resize):
    options = {"h": 4, "w": 4, "resize": resize}
    collator = Collator("hwc->bchw", **options)
    assert check(lambda value: collator(PHOTOS, **{name: value})) == []
    if name in keywords(collate):
        assert check(lambda v: collate(PHOTOS, "hwc->bchw", **options, **{name: v})) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda v: convert(v, "bhwc->bchw"),
        lambda v: convert(X, v),
        lambda v: plan("bc->cb", v),
        lambda v: plan("bc->cb", (2, v)),
        lambda v: plan("bc->cb", (2, 3), v),
        lambda v: accumulate(v, "bc"),
        lambda v: accumulate([v], "bc"),
        lambda v: accumulate([(v, "bc")], "bc"),
        lambda v: accumulate([(PAIR, v)], "bc"),
        lambda v: accumulate([(PAIR, "bc")], v),
        lambda v: accumulate([(PAIR, "bc")], "bc", dtype=v),
        lambda v: accumulate([(PAIR, "bc")], "bc", out=v),
        lambda v: accumulate([(np.ones((2, 6)), "b(ch)")], "bch", c=v),
        lambda v: ArraySpec(v, (2, 3), "f4"),
        lambda v: ArraySpec("bc", v, "f4"),
        lambda v: ArraySpec("bc", (2, 3), v),
        lambda v: Converter("bc->cb").backward(v),
        lambda v: Converter("bc->cb").backward(np.ones((3, 2), "f4"), like=v),
        lambda v: Converter("bc->cb").inverse(v),
        lambda v: collate(v, "hwc->bchw"),
        lambda v: collate([X[0], v], "hwc->bchw"),
        lambda v: collate(X, "bhwc->bchw", indices=v),
        lambda v: Collator("hwc->bchw", h=4, w=4)([(photo, v) for photo in PHOTOS]),
        Collator,
    ],
)
def test_positional_arguments(call):
    assert check(call) == []


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


@pytest.mark.parametrize(
    ("function", "name"),
    [(open_index, n) for n in keywords(open_index)] + [(Dataset, n) for n in keywords(Dataset)],
)
def test_arguments_of_sources(function, name):
    assert check(lambda value: function(np.zeros((5, 3)), **{name: value})) == []


@pytest.mark.parametrize("name", ["layout", "tail", "shuffle", "seed", "batch_size", "padding"])
def test_arguments_of_a_provider(name):
    call = lambda value: ArrayProvider(PAIR, **{"batch_size": 2, name: value})
    assert check(call) == []
