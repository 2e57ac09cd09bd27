"""The kernels that place samples, compared with the definitions in NumPy, to the last bit."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layoutkit import LayoutkitError
from layoutkit.options import parse_collate_options
from layoutkit.placement import draw_values, place
from layoutkit.planning.batch import placement as definition
from layoutkit.planning.batch.arguments import CropArgs
from layoutkit.planning.batch.random import SourcePositions

SIDES = st.integers(1, 40) | st.integers(1, 5000)
SHAPES = st.lists(st.tuples(SIDES, SIDES, st.just(3)), min_size=1, max_size=20)
BOUNDS = st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted)
RATIOS = st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)).map(sorted)
RANDOM_CROPS = st.just("random") | st.fixed_dictionaries({}, optional={
    "scale": BOUNDS, "ratio": RATIOS,
})  # fmt: skip
CROPS = st.fixed_dictionaries({}, optional={
    "offset": st.sampled_from(["random", {"h": -3, "w": "random"}, {"w": 4}]),
})  # fmt: skip
RESIZES = st.fixed_dictionaries({"resize": st.just("bilinear")}, optional={
    "short_side": st.integers(1, 60),
}) | st.fixed_dictionaries({"resize": st.just("nearest")}, optional={
    "fit": st.sampled_from(["stretch", "cover", "pad"]),
    "crop": RANDOM_CROPS,
}) | st.fixed_dictionaries({
    "resize": st.just("area"),
    "fit": st.sampled_from(["stretch", "cover", "pad"]),
    "crop": st.sampled_from([{"h": 5}, {"h": 9, "w": 30}]),
}, optional={"offset": st.just("random")})  # fmt: skip
COMMON = st.fixed_dictionaries({}, optional={
    "center": st.just("floor"), "fill": st.just(0), "channels": st.just((2, 0)),
    "flip": st.sampled_from(["random", "w", {"h": "random", "w": True}]),
    "seed": st.integers(-9, 1 << 70),
})  # fmt: skip


def outcome_of(function, *args):
    """Return the placements, or the error and its text."""
    try:
        return function(*args)
    except LayoutkitError as error:
        return type(error), str(error)


def assert_one_result(options, shapes, call, positions, epoch=0):
    """Draw values and place samples by both implementations."""
    options = parse_collate_options("hwc->bhwc", {"h": 16, "w": 9}, **options)
    table = np.array(shapes, np.int64)
    args = options.crops.fixed()
    if options.crops.is_random:
        prepared = options.crops.prepare(options.crop_axes(3))
        stage = table, positions, epoch
        args = prepared.draw(*stage, draw_values)
        for mine, values in zip(args, prepared.draw(*stage), strict=True):
            assert (mine or {}).keys() == (values or {}).keys()
            for name in values or {}:
                np.testing.assert_array_equal(mine[name], values[name])
    axes = options.find_sample_axes(3)
    window = axes.window(table)
    case = options, axes, window, table, CropArgs(**call).fill_none(args)
    assert outcome_of(place, *case) == outcome_of(definition.place, *case)


@given(st.data(), CROPS | RESIZES, COMMON, SHAPES)
def test_kernels_have_the_results_of_numpy(data, options, common, shapes):
    integers = st.integers(-(1 << 62), 1 << 62)
    positions = data.draw(st.lists(integers, min_size=len(shapes), max_size=len(shapes)))
    numbers = np.array(positions)
    files = data.draw(st.none() | st.just([f"{position % 3}.csv" for position in positions]))
    spread = np.repeat(numbers, 2)[::2]  # with gaps between its elements
    assert_one_result({**options, **common}, shapes, {}, SourcePositions(spread, files))


NUMBERS = st.integers(-6, 60)


@given(st.data(), CROPS | RESIZES, COMMON, SHAPES)
def test_arguments_of_a_call_have_the_results_of_numpy(data, options, common, shapes):
    numbers = NUMBERS | st.lists(NUMBERS, min_size=len(shapes), max_size=len(shapes))
    by_axis = st.dictionaries(st.sampled_from("hw"), numbers, min_size=1)
    names = ["offset", "crop"] if "resize" in options else ["offset"]
    call = {name: data.draw(by_axis) for name in data.draw(st.sets(st.sampled_from(names)))}
    positions = SourcePositions(np.arange(len(shapes)))
    assert_one_result({**options, **common}, shapes, call, positions)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2000)), min_size=1, max_size=9), RATIOS)
@example([(0, 0)], [0.5, 2])
@example([(1, 1 << 30), (1 << 30, 1)], [1, 1])
def test_crops_that_do_not_fit_have_the_results_of_numpy(sides, ratio):
    options = {"resize": "bilinear", "crop": {"ratio": tuple(ratio)}}
    shapes = [(*pair, 3) for pair in sides]
    assert_one_result(options, shapes, {}, SourcePositions(np.arange(len(sides))))


@pytest.mark.parametrize("offset", [-(1 << 62), 1 << 62])
@pytest.mark.parametrize("options", [{}, {"resize": "nearest", "crop": {"h": 3}}])
def test_offsets_far_outside_have_the_results_of_numpy(options, offset):
    call = {"offset": {"h": np.array([offset, 1])}}
    shapes = [(20, 9, 3), (30, 12, 3)]
    assert_one_result({"fill": 1, **options}, shapes, call, SourcePositions(np.arange(2)))
