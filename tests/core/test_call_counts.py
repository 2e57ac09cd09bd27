"""Python calls per conversion: warm calls plan nothing, and a new shape is validated once."""

import gc
import sys
from collections import Counter

import numpy as np
import pytest

from layoutkit import Collator, Converter, buffers, convert
from layoutkit.converter import FEWEST_CALLS
from layoutkit.data import ArrayProvider, sampled_batcher
from layoutkit.memory import HAS_KNOWN_HEADER


@pytest.fixture(autouse=True)
def _empty_pool():
    """Free the buffers of other tests, among which a call would look for a larger one."""
    buffers.clear()


def calls_of(function):
    """Return the Python functions that a call runs, and how often."""
    names = Counter()

    def count(frame, event, arg):
        if event == "call":
            names[frame.f_code.co_qualname] += 1

    gc.disable()  # finalizers of other tests are calls, too
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    del names["calls_of"]
    return names


def test_a_warm_conversion():
    x = np.zeros((2, 8, 9, 3), np.uint8)
    for _ in range(3):
        convert(x, "bhwc->bchw", dtype="float32", scale=0.5)
    calls = calls_of(lambda: convert(x, "bhwc->bchw", dtype="float32", scale=0.5))
    assert calls.total() <= 10, calls
    for _ in range(FEWEST_CALLS):
        convert(x, "bhwc->bchw", dtype="float32", scale=0.5)
    if HAS_KNOWN_HEADER:  # otherwise machine code cannot compare arrays
        calls = calls_of(lambda: convert(x, "bhwc->bchw", dtype="float32", scale=0.5))
        assert calls.total() <= 4, calls


@pytest.mark.skipif(not HAS_KNOWN_HEADER, reason="machine code cannot compare arrays")
def test_a_warm_conversion_on_several_threads():
    x = np.zeros((16, 24, 24, 64), np.float32)
    converter = Converter("bhwc->bchw", threads=2)
    out = converter(x)
    for _ in range(FEWEST_CALLS):
        converter(x, out=out)
    calls = calls_of(lambda: converter(x, out=out))
    assert calls.total() <= 5, calls


def test_a_new_shape_is_resolved_once():
    converter = Converter("bhwc->bchw")
    for width in (9, 10):
        converter(np.zeros((2, 8, width, 3), np.float32))
    calls = calls_of(lambda: converter(np.zeros((2, 8, 11, 3), np.float32)))
    assert calls["Pattern.resolve"] == calls["as_shape"] == 1, calls
    assert calls.total() <= 222, calls


def test_new_shapes_in_a_loop_are_prepared_once():
    converter = Converter("bhwc->chwb")
    for width in range(9, 9 + FEWEST_CALLS):
        converter(np.zeros((2, 8, width, 3), np.uint8))
    calls = calls_of(lambda: converter(np.zeros((2, 8, 200, 3), np.uint8)))
    assert calls["prepare"] == 1, calls
    assert calls.total() <= 290, calls


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 28),
        ({"offset": "random", "flip": "random"}, 57),
        ({"resize": "bilinear"}, 35),
        ({"resize": "bilinear", "crop": "random", "flip": "random"}, 112),
    ],
)
def test_a_warm_batch(options, most):
    samples = [np.zeros((8 + i, 9, 3), np.uint8) for i in range(4)]
    collator = Collator("hwc->bchw", h=4, w=5, dtype="float32", **options)
    for _ in range(3):
        collator(samples, positions=range(4))
    calls = calls_of(lambda: collator(samples, positions=range(4)))
    assert calls.total() <= most, calls
    # What has been drawn is not parsed.
    assert not {"_parse_positions", "_parse_flags", "_crop_axis"} & calls.keys()


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 60),
        ({"resize": "bilinear", "short_side": 6}, 65),
        ({"offset": "random", "flip": "random"}, 76),
        ({"resize": "bilinear", "crop": "random", "flip": "random"}, 80),
    ],
)
def test_placements_need_no_call_per_sample(options, most):
    collator = Collator("hwc->bchw", h=4, w=5, **options)
    shapes = [(8 + i % 5, 9, 3) for i in range(64)]
    for samples in (shapes, [np.zeros(shape, np.uint8) for shape in shapes]):
        collator.place(samples, positions=range(64))
        calls = calls_of(lambda x=samples: collator.place(x, positions=range(64)))
        assert calls.total() <= most, calls


def test_a_batch_of_a_provider():
    arrays = {"data": np.zeros((64, 8, 9, 3), np.uint8)}
    provider = ArrayProvider(arrays, {"label": np.arange(64)}, batch_size=8, layout="bhwc")
    batches = iter(provider)
    for _ in range(3):
        next(batches)
    calls = calls_of(lambda: next(batches))
    assert calls.total() <= 64, calls


@pytest.mark.parametrize("size", [8, 64])
def test_a_batch_of_rows(size):
    rows = {"x": np.zeros((8 * size, 64), np.float32)}
    options = {"batch_size": size, "layout": "bf", "sampler": "shuffle", "num_workers": 0}
    batches = iter(sampled_batcher(rows, **options))
    for _ in range(3):
        next(batches).input.forward_get("bf")
    calls = calls_of(lambda: next(batches).input.forward_get("bf"))
    assert calls.total() <= 120, calls


def test_a_batch_of_random_crops():
    images = {"x": np.zeros((64, 8, 9, 3), np.uint8)}
    options = {"offset": "random", "flip": "random", "dtype": "float32", "scale": 0.5}
    collator = Collator("hwc->bchw", h=4, w=5, **options)
    batches = iter(sampled_batcher(images, batch_size=8, collate=collator, num_workers=0))
    for _ in range(3):
        next(batches)
    calls = calls_of(lambda: next(batches).input.forward_get("bchw"))
    assert calls.total() <= 250, calls
    assert "Collator.check_sample" not in calls


def test_a_warm_torch_tensor_with_a_gradient_is_not_planned():
    torch = pytest.importorskip("torch")
    converter = Converter("bhwc->bchw", scale=0.5)
    x = torch.rand(2, 8, 9, 3, requires_grad=True)
    for _ in range(3):
        converter(x)
    calls = calls_of(lambda: converter(x))
    assert calls.total() <= 60, calls
    assert "Converter.plan" not in calls
    (gradient,) = torch.autograd.grad(converter(x).sum(), x)
    assert bool((gradient == 0.5).all())
