"""Impossible requests raise one clear error of layoutkit, never an error of NumPy."""

import numpy as np
import pytest

import layoutkit
from layoutkit import (
    ArgumentError,
    CompositeSpace,
    Conv2DSpace,
    IndexSpace,
    ListView,
    ShapeError,
    VectorSpace,
    accumulate,
    convert,
)

EMPTY = np.zeros((0, 3), np.float32)
HUGE = np.broadcast_to(np.uint8(1), (1 << 31, 1 << 31))


@pytest.mark.parametrize("pattern", ["(hb)c->bhc", "(hb)c->hbc", "(hb)c->cbh", "(hb)c->c(bh)"])
@pytest.mark.parametrize("size", [1 << 58, 1 << 62, 1 << 63, 1 << 70])
def test_sizes_beside_nothing(pattern, size):
    """NumPy limits the other axes of an empty array: "array is too big", or "Maximum allowed"."""
    for run in (
        lambda: convert(EMPTY, pattern, h=size, b=0),
        lambda: layoutkit.plan(pattern, (0, 3), h=size, b=0),
        lambda: layoutkit.Converter(pattern, h=size, b=0)(EMPTY),
        lambda: accumulate([(EMPTY, "(hb)c")], pattern.split("->")[1], h=size, b=0),
    ):
        with pytest.raises(ShapeError, match=f"h is {size}, too large for any array"):
            run()
    assert convert(EMPTY, pattern, h=1 << 40, b=0).size == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_results_beyond_any_memory(dtype):
    for run in (
        lambda: convert(HUGE, "ab->ba", dtype=dtype, copy=True),
        lambda: accumulate([(HUGE, "ab"), (HUGE, "ba")], "ba", dtype="int64"),
        lambda: IndexSpace(1 << 62, 1).format_as(np.zeros((3, 1), int), VectorSpace(1 << 62)),
    ):
        with pytest.raises(MemoryError, match=r"cannot allocate \d+ bytes"):
            run()


@pytest.mark.parametrize(
    "space",
    [VectorSpace(1 << 62), VectorSpace(1 << 70), Conv2DSpace((1 << 31, 1 << 31), 4, "bchw")]
    + [CompositeSpace((VectorSpace(3), VectorSpace(1 << 62))), VectorSpace(1 << 62, sparse=True)],
    ids=str,
)
def test_origins_beyond_any_memory(space):
    for run in (space.get_origin, lambda: space.get_origin_batch(8)):
        with pytest.raises(ShapeError, match="does not fit into memory; ask for"):
            run()


@pytest.mark.parametrize("nothing", [np.array(0.0), np.float32(1), 3, None])
def test_arrays_that_are_no_sequence(nothing):
    with pytest.raises(ArgumentError, match="give "):
        accumulate(nothing, "b")
    with pytest.raises(ArgumentError, match="give a list of views"):
        ListView(nothing)


@pytest.mark.parametrize("copy", [np.array([1, 2]), np.array(1), [1, 2], 1, "no"], ids=repr)
def test_copy_is_a_flag(copy):
    for run in (convert, lambda x, pattern, copy: layoutkit.Converter(pattern, copy=copy)(x)):
        with pytest.raises(ArgumentError, match="it must be None, True or False"):
            run(EMPTY, "bc->cb", copy=copy)
