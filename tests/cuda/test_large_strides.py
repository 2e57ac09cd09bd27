"""Sources and outputs with strides beyond 2**32 bytes, in memory that has few pages."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from layoutkit import Converter, accumulate, collate
from layoutkit.kernels.cuda.launch import source
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same, random_array
from tests.helpers.cuda_moves import address, by_boxes, planned, planned_in_place, planned_sum
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(3), cuda_shim.needs_compiler]

RNG = np.random.default_rng(0)
FAR = 2**32 + 192  # a stride in bytes that does not fit 32 bits
ROOM = 5 * FAR


@pytest.fixture(scope="module")
def room():
    """Reserve addresses; only the pages that are written use memory."""
    try:
        return np.zeros(ROOM + 4096, np.uint8)
    except MemoryError:
        pytest.skip("needs 20 GiB of addresses")


def far(room, shape, dtype, axis, sign=1):
    """Return an array with a stride of FAR along an axis."""
    packed = [n for at, n in enumerate(shape) if at != axis]
    steps = list(np.zeros(packed, dtype).strides)
    steps.insert(axis, sign * FAR)
    begin = (shape[axis] - 1) * FAR if sign < 0 else 0
    memory = room[begin : begin + 64].view(dtype)
    return np.lib.stride_tricks.as_strided(memory, shape, steps)


# Each kernel family, and each of its ways to step along an axis of the result.
MOVES = [
    ("bc->cb", (5, 70)), ("bc->cb", (70, 5)), ("bwc->bcw", (3, 40, 5)), ("abc->cba", (4, 33, 5)),
    ("bpc->bcp", (2, 70, 3)), ("bcp->bpc", (2, 3, 5)), ("bpc->bpc", (3, 5, 2)),
    ("abcd->cbad", (3, 2, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("keywords", [{}, {"dtype": "f4", "mean": 0.5}], ids=["move", "formula"])
@pytest.mark.parametrize(("pattern", "shape"), MOVES)
def test_outputs_that_are_far_apart(room, pattern, shape, keywords, sign):
    x = random_array(RNG, shape, "u4") % 1000
    wanted = reference_convert(x, pattern, **keywords)
    for axis, count in enumerate(wanted.shape):
        if count <= 5:
            out = far(room, wanted.shape, wanted.dtype, axis, sign)
            out[...] = 0
            run(x, pattern, out, keywords)
            assert_same(out, wanted)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("pattern", "shape"), MOVES)
def test_arrays_that_are_far_apart(room, pattern, shape, sign):
    values = random_array(RNG, shape, "u4")
    for axis, count in enumerate(shape):
        if count <= 5:
            x = far(room, shape, "u4", axis, sign)
            x[...] = values
            _, [(launch, out, (dst, src))] = planned(x, pattern)
            cuda_shim.launch(launch, [address(out) + dst, 0, address(x) + src])
            assert_same(out, reference_convert(values, pattern))


@pytest.mark.budget(0)
@pytest.mark.parametrize("pattern", ["abcd->dacb", "abcd->bdac"])
def test_boxes_of_rows_that_are_far_apart(room, pattern):
    values = random_array(RNG, (3, 2, 5, 40), "u2")
    wanted = reference_convert(values, pattern)
    for axis in (0, 1, 2):
        x = far(room, values.shape, "u2", axis)
        x[...] = values
        with by_boxes():
            _, [(made, out, (dst, src))] = planned(x, pattern)
        assert made.family == "permute"
        cuda_shim.launch(made, [address(out) + dst, 0, address(x) + src])
        assert_same(out, wanted)
        out = far(room, wanted.shape, "u2", pattern[6:].index("abc"[axis]))
        out[...] = 0
        with by_boxes():
            _, [(made, _, (dst, src))] = planned(values, pattern, out)
        assert made.family == "permute"
        cuda_shim.launch(made, [address(out) + dst, 0, address(values) + src])
        assert_same(out, wanted)


# Axes of more items than 32 bits count: runs in words of 16 bytes, 1 or 4, and pixels.
LONG = [
    ("a->a", (2**32 + 3003,), 0), ("a->a", (2**32 + 3003,), 1), ("a->a", (2**34 + 3003,), 4),
    ("ab->ba", (2, 2**32 + 67), 0),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "shape", "shift"), LONG)
def test_places_beyond_32_bits(room, pattern, shape, shift):
    """Test the last blocks only, as all blocks would take an hour."""
    behind = (ROOM - prod(shape)) // 4096 * 4096  # x may overlap out, but not the end of out
    wanted = random_array(RNG, (*shape[:-1], 2000), "u1")
    x = np.ndarray(shape, "u1", room, shift)
    out = np.ndarray(Converter(pattern).target_shape(shape), "u1", room, behind)
    x[..., -2000:], out[-2000:] = wanted, 0
    room[shift + x.size :][:16], room[behind + x.size :][:16] = 0xFF, 0
    _, [(launch, _, (dst, src))] = planned(x, pattern, out)
    later = f"(blockIdx.x + {launch.grid - 3}u)"
    text = source(launch.family).replace("blockIdx.x", later)
    pointers = [address(out) + dst, 0, address(x) + src]
    cuda_shim.launch(replace(launch, grid=3), pointers, text)
    assert_same(out[-1500:], np.ascontiguousarray(wanted[..., -1500:].T))
    assert not room[behind + x.size :][:16].any()


def run(x, pattern, out, keywords):
    plan, launches = planned(x, pattern, out, **keywords)
    assert plan.after is None
    for launch, _, (dst, src) in launches:
        constants = np.frombuffer(launch.coefficients or b"\0", np.uint8).copy()
        cuda_shim.launch(launch, [address(out) + dst, address(constants), address(x) + src])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("which", ["out", "part 0", "part 1"])
def test_sums_that_are_far_apart(room, which, axis, sign):
    shape = [40, 40, 40]
    shape[axis] = 5
    sizes = dict(zip("bwc", shape, strict=True))
    layouts = ("bwc", "cbw")
    parts = [RNG.integers(0, 99, [sizes[a] for a in of]).astype("f4") for of in layouts]
    wanted = accumulate(list(zip(parts, layouts, strict=True)), "bwc")
    out = np.zeros(wanted.shape, "f4")
    if which == "out":
        out = far(room, wanted.shape, "f4", axis, sign)
        out[...] = 0
    else:
        number = int(which[-1])
        place = layouts[number].index("bwc"[axis])
        moved = far(room, parts[number].shape, "f4", place, sign)
        moved[...] = parts[number]
        parts[number] = moved
    launch, _, arrays, (dst, *srcs) = planned_sum(
        list(zip(parts, layouts, strict=True)), "bwc", out
    )
    words = [address(out) + dst, 0]
    words += [address(a) + src for a, src in zip(arrays, srcs, strict=True)]
    cuda_shim.launch(launch, words + [0] * (launch.pointers - len(words)))
    assert_same(out, wanted)


@pytest.mark.budget(0)
@pytest.mark.parametrize("sign", [1, -1])
def test_parts_that_are_read_item_by_item_are_far_apart(room, sign):
    """Test boxes without room for the last part's own axis, whose items are read one by one."""
    letters, sizes = "abcdef", {**dict.fromkeys("abcde", 4), "f": 5}
    layouts = [letters.replace(axis, "") + axis for axis in "abcde"]
    shapes = [tuple(sizes[axis] for axis in layout) for layout in layouts]
    parts = [RNG.integers(0, 99, shape).astype("f4") for shape in shapes]
    wanted = accumulate(list(zip(parts, layouts, strict=True)), letters)
    for number, layout in enumerate(layouts):
        moved = far(room, shapes[number], "f4", layout.index("f"), sign)
        moved[...] = parts[number]
        given = [*parts[:number], moved, *parts[number + 1 :]]
        out = np.zeros(wanted.shape, "f4")
        launch, _, arrays, (dst, *srcs) = planned_sum(
            list(zip(given, layouts, strict=True)), letters, out
        )
        words = [address(out) + dst, 0]
        words += [address(a) + src for a, src in zip(arrays, srcs, strict=True)]
        cuda_shim.launch(launch, words + [0] * (launch.pointers - len(words)))
        assert_same(out, wanted)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("which", ["out", "sample"])
@pytest.mark.parametrize("options", [{}, {"resize": "bilinear"}], ids=["crop", "resize"])
def test_samples_that_are_far_apart(room, which, axis, sign, options):
    values = RNG.integers(0, 99, (5, 4, 3)).astype("f4")
    options = {"h": 3, "w": 4, **options}
    wanted = collate([values, values], "hwc->bchw", **options)
    out, x = np.zeros(wanted.shape, "f4"), values
    if which == "out":
        out = far(room, wanted.shape, "f4", axis, sign)
        out[...] = 0
    else:
        x = far(room, values.shape, "f4", axis, sign)
        x[...] = values
    launch, _, (table, _), shifts = planned_in_place(x, [x, x], "hwc->bchw", out, **options)
    cuda_shim.launch(launch, [address(out), 0, address(table), address(x) + shifts[2]])
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-3)
