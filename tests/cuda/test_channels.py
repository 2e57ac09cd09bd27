"""Channel selections on a GPU: every kernel selects while it reads x, in any order."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutkit import plan
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same, random_array
from tests.helpers.cuda_moves import copied, placed, planned, prepared
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), cuda_shim.needs_compiler]

RNG = np.random.default_rng(0)
FORMULA = {"dtype": "f4", "scale": 0.5}


def selected(x, pattern, order, **keywords):
    """Return the result for a copy of the selected channels."""
    axis = pattern.partition("->")[0].index("c")
    return reference_convert(np.take(x, order, axis), pattern, **keywords)


def check(x, pattern, order, family=None, *, shift=0, **keywords):
    """Convert with the kernels of a GPU and compare; `family`: the kernel that must run."""
    found, launches = planned(x, pattern, channels=order, **keywords)
    assert not found.selects_first
    assert family in (None, *(launch.family for launch, _, _ in launches))
    wanted = selected(x, pattern, order, **keywords)
    assert_same(prepared(x, pattern, channels=order, shift=shift, **keywords)(), wanted)


@pytest.mark.parametrize("pixels", [4095, 4096, 4097, 8192])  # around the chunks of a block
@pytest.mark.parametrize(
    ("pattern", "count", "order"),
    [
        ("bwc->bwc", 3, (2, 1, 0)),
        ("bwc->bwc", 4, (0, 1, 2)),
        ("bwc->bwc", 4, (3, 0, 2)),
        ("bwc->bwc", 3, (2, 0, 1)),
        ("bwc->bwc", 2, (0, 1, 1, 0)),
        ("bwc->bcw", 4, (0, 1, 2)),
        ("bwc->bcw", 4, (3, 0, 1, 2)),
        ("bwc->bcw", 3, (1, 1, 0)),
        ("bcw->bwc", 5, (4, 0, 1)),
    ],
)
def test_pixels_of_few_channels(pattern, count, order, pixels):
    shape = (1, pixels, count) if pattern.startswith("bwc") else (1, count, pixels)
    x = copied(random_array(RNG, shape, "u1"), 0)
    family = "interleave" if pixels % 4 == 0 or pattern == "bwc->bwc" else "lines"
    check(x, pattern, order, family)
    per_channel = {"mean": [float(n) for n in range(len(order))], "dtype": "f4"}
    check(x, pattern, order, family, **per_channel)


@pytest.mark.budget(0)
@pytest.mark.parametrize("view", ["whole", "first three", "backward"])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->bhwc", "bhwc->chwb"])
def test_nothing_is_read_beyond_the_last_channel(pattern, view):
    """Test arrays whose memory ends with their last channel."""
    x = copied(random_array(RNG, (2, 64, 128, 4), "u1"), 0)
    x = {"whole": x, "first three": x[..., :3], "backward": x[..., 3:0:-1]}[view]
    for order in [(2, 1, 0), (1, 0, 2), (0, 1), (2, 0, 1, 1)]:
        check(x, pattern, order)


@pytest.mark.budget(0)
@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("order", [(3, 7, 5), (6, 1), (5, 4, 3, 0, 9)])
def test_some_channels_of_large_pixels(order, shift):
    x = copied(random_array(RNG, (2, 45, 47, 12), "u1"), shift)
    check(x, "bhwc->bchw", order, "lines", shift=shift)
    check(x, "bhwc->bchw", order, "lines", **FORMULA)
    check(x, "bhwc->bhwc", order, "gather", shift=shift)


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("pattern", "shape", "family"),
    [
        ("bchw->bchw", (2, 7, 5, 640), "gather"),  # planes of whole words
        ("bchw->bchw", (2, 7, 3, 43), "runs"),
        ("bchw->cbhw", (2, 7, 3, 43), "runs"),
        ("bchw->bcwh", (2, 7, 80, 96), "transpose"),
        ("bchw->bhwc", (2, 7, 33, 31), "lines"),
    ],
)
@pytest.mark.parametrize("order", [(1, 0, 3), (4, 4, 6, 0), (2, 5, 6, 1, 0)])
def test_planes_in_any_order(pattern, shape, family, order):
    x = copied(random_array(RNG, shape, "u1"), 0)
    check(x, pattern, order, family)
    check(x[:, ::-1], pattern, order)
    check(x, pattern, order, **FORMULA)


@pytest.mark.parametrize(
    ("pattern", "shape", "family"),
    [
        ("bchw->bcwh", (2, 7, 640, 3), "lines"),
        ("bchw->bcwh", (2, 7, 3, 640), "interleave"),
        ("bchw->bcwh", (2, 7, 641, 6), "lines"),
        ("bchw->bcwh", (2, 7, 3, 641), "lines"),
        ("bchw->cbwh", (2, 7, 6, 641), "lines"),
    ],
)
def test_channels_around_other_planes(pattern, shape, family):
    """Test kernels whose planes are another axis than the selected channels."""
    x = copied(random_array(RNG, shape, "u1"), 0)
    check(x, pattern, (1, 0, 3), family)
    check(x, pattern, (1, 0, 3), **FORMULA)


@pytest.mark.budget(0)
@pytest.mark.parametrize("pattern", ["bchw->bhwc", "bhwc->bchw", "bhwc->bhwc"])
def test_many_channels_in_any_order(pattern):
    order = tuple(RNG.permutation(40)[:16].tolist())
    x = copied(random_array(RNG, (3, 40, 9, 7) if pattern[1] == "c" else (3, 9, 7, 40), "i2"), 0)
    check(x, pattern, order, "lines" if pattern[1] == "c" else "gather")
    check(x, pattern, order, mean=list(range(16)), **FORMULA)


_sizes = st.sampled_from([1, 2, 3, 5, 16, 33, 64, 130])


@pytest.mark.budget(0)
@given(
    pattern=st.sampled_from(
        ["bhwc->bchw", "bhwc->bhwc", "bchw->bhwc", "bchw->bchw", "bhwc->chwb", "chwb->bhwc",
         "chwb->chwb", "bhwc->hbcw", "bchw->whcb"]
    ),
    sizes=st.tuples(_sizes, _sizes, _sizes),
    order=st.lists(st.integers(0, 8), min_size=2, max_size=6),
    spare=st.integers(0, 3),
    dtype=st.sampled_from(["u1", "i2", "f4", "f8", "c16"]),
    shift=st.sampled_from([0, 0, 1]),
    formula=st.booleans(),
)  # fmt: skip
@settings(derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_random_selections(pattern, sizes, order, spare, dtype, shift, formula):
    count = dict(zip("bhw", sizes, strict=True)) | {"c": max(order) + 1 + spare}
    while np.prod(list(count.values())) > 100_000:
        count["h"] = max(1, count["h"] // 4)
        count["w"] = max(1, count["w"] // 2)
    shape = [count[axis] for axis in pattern[:4]]
    x = copied(random_array(RNG, shape, dtype), shift * np.dtype(dtype).itemsize)
    keywords = FORMULA if formula and dtype in ("u1", "i2", "f4") else {}
    check(x, pattern, tuple(order), **keywords)


@pytest.mark.parametrize(
    ("pattern", "shape", "order", "kernel"),
    [
        ("bhwc->bchw", (64, 224, 224, 4), (0, 2, 1), "split"),
        ("bhwc->bchw", (64, 224, 224, 4), (0, 1, 2), "split"),
        ("bhwc->bhwc", (64, 224, 224, 4), (3, 0, 1, 2), "shuffle"),
        ("bhwc->bhwc", (64, 224, 224, 3), (2, 1, 0), "shuffle"),
        ("bchw->bhwc", (64, 3, 224, 224), (1, 2, 0), "merge"),
        ("bhwc->bchw", (64, 90, 90, 12), (5, 1, 2), "gather"),
    ],
)
def test_plans_for_a_gpu_never_copy_channels_first(pattern, shape, order, kernel):
    found = plan(pattern, shape, "uint8", channels=order, device="cuda")
    assert found.kernel == kernel
    assert "before" not in str(found)
    assert found.is_one_pass


def test_pixels_of_which_other_loops_visit_the_rest_are_read_once():
    """Test pixels with two of their four items in the inner loop, and two in an outer one."""
    found = plan("uvwx->wuxv", (5760, 959, 2, 2), "int16", device="cuda")
    assert found.kernel not in ("split", "shuffle")


def test_a_selection_is_compiled_once_for_all_images():
    """Test that the macros depend on the order only, not on the number of images."""
    first, second = (
        planned(placed((n, 64, 64, 4), "u1"), "bhwc->bchw", channels=(3, 0, 1))[1][0][0]
        for n in (64, 65)
    )
    assert dict(first.defines)["ORDER"] == "3,0,1"
    assert first.defines == second.defines
