"""Keywords that `sampled_batcher` does not have: the error shows what to give instead."""

import re

import numpy as np
import pytest

from layoutkit import Collator, Converter, DataError
from layoutkit.data import sampled_batcher

PHOTOS = np.random.default_rng(0).integers(0, 256, (6, 12, 14, 3)).astype(np.uint8)
ROWS = np.arange(12.0).reshape(6, 2)
SMALL = Collator("hwc->bchw", h=6, w=7)
VIEW = Collator("hwc->bchw", h=6, w=7, resize="bilinear", fill=3)


def grow(number):
    return (number + 1,)


def fill(data, out):
    out[...] = data[0]
    return out


def cure_of(source, call, removed):
    """Return the code that the error for removed keywords shows, after a check of the rest."""
    with pytest.raises(TypeError) as raised:
        sampled_batcher(source, batch_size=2, **call, **removed)
    assert isinstance(raised.value, DataError)
    first = next(iter(removed))
    begin = f"sampled_batcher has no {first}=; give "
    assert str(raised.value).startswith(begin)
    return str(raised.value).removeprefix(begin).partition(", which")[0]


def batches_of(source, **options):
    with sampled_batcher(source, batch_size=2, seed=4, num_workers=0, **options) as batches:
        inputs = [batch.input for batch in batches]
    return [
        np.asarray(view.input) for x in inputs for view in (x if isinstance(x, tuple) else (x,))
    ]


CURES = [
    (ROWS, {}, {"scale": 0.5}, {"convert": Converter("bf->bf", scale=0.5)}),
    (ROWS[:, 0], {}, {"mean": np.float32(3)}, {"convert": Converter("b->b", mean=3)}),
    (
        PHOTOS,
        {"layout": "bhwc"},
        {"scale": 1 / 255, "mean": (0.1, 0.2, 0.3), "std": np.array([1.0, 2.0, 3.0])},
        {"convert": Converter("bhwc->bhwc", scale=1 / 255, mean=(0.1, 0.2, 0.3), std=(1, 2, 3))},
    ),
    (
        {"x": PHOTOS, "y": range(6)},
        {"layout": ("nhwc", "n")},
        {"clip": [10, 99]},
        {"convert": Converter("bhwc->bhwc", clip=(10, 99)), "layout": (None, "b")},
    ),
    (
        PHOTOS,
        {"convert": Converter("bhwc->bchw", dtype="float64")},
        {"mean": {"w": [*range(14)]}},
        {"convert": Converter("bhwc->bchw", dtype="float64", mean={"w": [*range(14)]})},
    ),
    (
        PHOTOS,
        {"size": (6, 7)},
        {"scale": 0.5},
        {"size": (6, 7), "convert": Converter("bhwc->bhwc", scale=0.5)},
    ),
    (
        ROWS,
        {"input_dims": 2},
        {"scale": 2},
        {"input_dims": 2, "convert": Converter("bf->bf", scale=2)},
    ),
    (
        PHOTOS,
        {"collate": SMALL},
        {"offset": "random", "flip": {"w": True}, "scale": 0.5},
        {"collate": Collator("hwc->bchw", h=6, w=7, offset="random", flip="w", scale=0.5)},
    ),
    (
        PHOTOS,
        {"collate": [SMALL, VIEW]},
        {"flip": "random"},
        {
            "collate": [
                Collator("hwc->bchw", h=6, w=7, flip="random"),
                Collator("hwc->bchw", h=6, w=7, resize="bilinear", fill=3, flip="random"),
            ]
        },
    ),
    (
        PHOTOS,
        {"collate": VIEW},
        {"crop": {"scale": (0.3, 1), "ratio": (1, 1)}},
        {
            "collate": Collator(
                "hwc->bchw",
                h=6,
                w=7,
                resize="bilinear",
                fill=3,
                crop={"scale": (0.3, 1), "ratio": (1, 1)},
            )
        },
    ),
    (
        PHOTOS,
        {"size": (6, 7)},
        {"crop": "random"},
        {
            "size": (6, 7),
            "collate": Collator("hwc->bchw", h=6, w=7, resize="bilinear", crop="random"),
        },
    ),
]


@pytest.mark.parametrize(("source", "call", "removed", "expected"), CURES)
def test_what_a_step_says_is_shown_with_the_values_of_the_caller(source, call, removed, expected):
    code = cure_of(source, call, removed)
    cure = eval(f"dict({code})", {"Collator": Collator, "Converter": Converter})
    found = batches_of(source, **{**call, **cure})
    wanted = batches_of(source, **expected)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_an_example_has_the_usual_size():
    assert cure_of(PHOTOS, {}, {"offset": {"h": 0}}) == (
        'collate=Collator("hwc->bchw", h=224, w=224, offset={"h": 0})'
    )


def test_a_function_of_the_shape_of_rows_is_the_shape():
    code = cure_of(ROWS, {"processor": fill}, {"batch_dims": grow})
    cure = eval(f"dict({code})", {"grow": grow})
    shapes = [x.shape for x in batches_of(ROWS, processor=fill, **cure)]
    assert shapes == [(2, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize("wrong", [{"collate": print}, {"size": 8}, {"convert": 3}])
def test_other_arguments_may_be_wrong_too(wrong):
    assert cure_of(PHOTOS, wrong, {"crop": "random"}).startswith('collate=Collator("hwc->bchw", h=')
    with pytest.raises(DataError, match=r"has no batch_dims=; give input_dims=\.\.\., which"):
        sampled_batcher(ROWS, batch_size=2, batch_dims=lambda number: (2,))


def test_ragged_results_are_converted_by_the_processor():
    assert re.match("a processor that converts", cure_of(ROWS, {"collate": "ragged"}, {"scale": 2}))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("collate_fn", "processor="),
        ("workers", "num_workers="),
        ("drop_remainder", "drop_last=True"),
        ("num_shards", "shard=(rank, world)"),
        ("rand_mirror", 'flip="random")'),
        ("input_dim", "did you mean input_dims=?"),
        ("whatsoever", "there are sources, batch_size, missing"),
    ],
)
def test_arguments_of_others_are_translated(name, says):
    with pytest.raises(DataError) as found:
        sampled_batcher(ROWS, batch_size=2, **{name: True})
    assert f"has no {name}=; " in str(found.value)
    assert says in str(found.value)
