"""CUDA kernels, run on the CPU under sanitizers, against the slow reference and the CPU's sums.

Each compiled variant takes a third of a second, so cases share them: sizes are whole numbers of 16
places or odd, and addresses are shifted by little, which makes words of 16 bytes or single items.
"""

import itertools

import cuda_shim
import numpy as np
import pytest
from arrays_of import BF16, LAYINGS, assert_same, laid, random_array
from cuda_moves import converted, copied, placed, planned, summed
from cuda_shim import ORDERS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutkit import accumulate
from reference import reference_convert

pytestmark = cuda_shim.needs_compiler
quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
RNG = np.random.default_rng(0)
ITEMS = {"u1": 1, "u2": 2, "u4": 4, "f8": 8, "c16": 16}


def numbers(shape, dtype):
    """Small integers, which every dtype holds."""
    return RNG.integers(0, 120, shape).astype(dtype)


def compare(x, pattern, **keywords):
    """A pure move or a cast, in all orders of threads, each with other shared memory."""
    wanted = reference_convert(x, pattern, **keywords)
    for order, poison in zip(ORDERS, (0x00, 0xA5, 0xFF), strict=True):
        how = {"order": order, "poison": poison, "seed": 3}
        assert_same(converted(x, pattern, how=how, **keywords), wanted)


# ---- pure moves --------------------------------------------------------------------------

EDGES = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


@pytest.mark.parametrize("dtype", ITEMS)
def test_tile_edges(dtype):
    """Lengths about the edges of words and tiles, on both axes of a transpose."""
    whole = random_array(RNG, (2, 257, 257), dtype)
    for n, m in [*zip(EDGES, EDGES[3:] + EDGES[:3], strict=True), (255, 17), (256, 64), (31, 257)]:
        x = copied(whole[:, :n, :m], 0)
        how = {"order": ORDERS[n % 3], "seed": m}
        assert_same(converted(x, "bnm->bmn", how=how), x.transpose(0, 2, 1).copy())


@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bchw->bhwc", "bhwc->chwb", "chwb->bchw"])
def test_images(pattern, dtype):
    sizes = dict(zip("bhwc", (17, 3, 9, 32), strict=True))
    source, _ = pattern.split("->")
    compare(copied(random_array(RNG, [sizes[a] for a in source], dtype), 0), pattern)


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize("pattern", ["bpc->bcp", "bcp->bpc"])
def test_few_channels(pattern, dtype, channels):
    """Chunks of pixels that end before, at and behind the end of the array."""
    chunk = 256 * max(1, 4 // ITEMS[dtype]) * {1: 4, 2: 4, 4: 4, 8: 2, 16: 1}[ITEMS[dtype]]
    for pixels in (16, chunk - 1, chunk, chunk + 1, 2 * chunk):
        sizes = {"b": 2, "p": pixels, "c": channels}
        source, _ = pattern.split("->")
        x = copied(random_array(RNG, [sizes[a] for a in source], dtype), 0)
        how = {"order": ORDERS[pixels % 3]}
        assert_same(converted(x, pattern, how=how), reference_convert(x, pattern))


@pytest.mark.parametrize("run", [1, 3, 4, 16, 255, 256, 257, 1023, 1024, 1025])
@pytest.mark.parametrize("dtype", ["u1", "u4", "c16"])
def test_copies_of_runs(dtype, run):
    x = copied(random_array(RNG, (3, 5, run), dtype), 0)
    compare(x, "abc->bac")
    compare(x[::-1], "abc->abc")


@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize("pattern", ["bhw->bwh", "bhw->wbh", "bhw->bhw", "bwc->bcw"])
def test_any_address(pattern, dtype):
    """Neither side is aligned on more than it is; nothing around the output is written."""
    shape = (2, 48, 3) if "c" in pattern else (2, 48, 80)
    values = random_array(RNG, shape, dtype)
    for here, there in [(0, 0), (1, 0), (0, 1), (2, 8), (4, 4), (8, 2), (0, 16), (12, 0)]:
        x = copied(values, here)
        room = placed((x.nbytes + 32,), "u1")
        out = room[there : there + x.nbytes].view(dtype)
        wanted = reference_convert(x, pattern)
        out = out.reshape(wanted.shape)
        converted(x, pattern, out)
        assert_same(out, wanted)
        assert (room[:there] == 0x77).all()
        assert (room[there + x.nbytes :] == 0x77).all()


@pytest.mark.parametrize("rank", [9, 13])
def test_many_axes_that_do_not_fuse(rank):
    letters = "abcdefghijklm"[:rank]
    x = random_array(RNG, (2,) * rank, "u2")
    target = letters[::2][::-1] + letters[1::2]
    assert_same(
        converted(x, f"{letters}->{target}"), x.transpose([letters.index(a) for a in target]).copy()
    )


def test_far_away_addresses():
    """Offsets beyond 2**31 bytes, seen from a source whose steps are that large."""
    low, high = np.zeros(2, "u4"), np.zeros(2, "u4")
    assert not np.shares_memory(low, high)
    x = np.broadcast_to(np.arange(7, dtype="u1"), (2**28 + 3, 7))
    _, ((launch, _, _),) = planned_only(x, "bc->cb")
    assert launch.grid == -(-(2**28 + 3) // 128)


def planned_only(x, pattern):
    """Launches for an output that is never touched."""
    out = np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), x.shape[::-1], (x.shape[0], 1))
    return planned(x, pattern, out)


@st.composite
def moves(draw):
    """(pattern, shape): up to five axes in another order, whose product is small."""
    letters = draw(st.permutations("abchw"))[: draw(st.integers(1, 5))]
    sizes, room = {}, 1 << 13
    for letter in draw(st.permutations(letters)):
        few = [n for n in (1, 2, 3, 15, 16, 17, 33, 64, 65, 129, 1023) if n <= room]
        sizes[letter] = draw(st.sampled_from(few))
        room //= sizes[letter]
    target = draw(st.permutations(letters))
    return f"{''.join(letters)}->{''.join(target)}", tuple(sizes[a] for a in letters)


HOW = st.fixed_dictionaries(
    {"order": st.sampled_from(ORDERS), "seed": st.integers(0, 99),
     "poison": st.sampled_from([0x00, 0xA5])}
)  # fmt: skip


@quick
@given(moves(), st.sampled_from(["u1", "u2", "u4", "c16"]), st.sampled_from(LAYINGS), HOW)
def test_any_move(move, dtype, laying, how):
    pattern, shape = move
    x = laid(random_array(np.random.default_rng(how["seed"]), shape, dtype), laying)
    assert_same(converted(x, pattern, how=how), reference_convert(x, pattern))


OUTS = ("plain", "fortran", "backward", "unaligned", "pages")


@quick
@given(moves(), st.sampled_from(["u1", "f4"]), st.sampled_from(OUTS), HOW)
def test_any_output(move, dtype, laying, how):
    pattern, shape = move
    x = copied(random_array(np.random.default_rng(how["seed"]), shape, dtype), 0)
    wanted = reference_convert(x, pattern)
    out = laid(np.zeros(wanted.shape, dtype), laying)
    around = out.base.copy() if laying == "pages" else None
    plan, _ = planned(x, pattern, out)
    if plan.after is None:
        converted(x, pattern, out, how=how)
        assert_same(out, wanted)
    if around is not None:
        out[...] = 0
        np.testing.assert_array_equal(out.base, around)


# ---- casts and the formula ---------------------------------------------------------------

CASTS = [("u1", "f4"), ("f4", BF16), (BF16, "f4"), ("f4", "f2"), ("f2", "f4"), ("f8", "f4"),
         ("u1", BF16), ("i8", "f8"), ("?", "f4")]  # fmt: skip
SHAPES = {
    "bwc->bcw": [(2, 33, 64), (1, 129, 65), (2, 257, 3)],
    "bcw->bwc": [(3, 3, 257), (2, 65, 17)],
    "bwc->bwc": [(2, 33, 9), (1, 5, 1025)],
}


@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
def test_casts(source, target):
    for pattern, shapes in SHAPES.items():
        for shape, order in zip(shapes, ORDERS, strict=False):
            x = copied(numbers(shape, source), 0)
            got = converted(x, pattern, dtype=target, how={"order": order})
            assert_same(got, reference_convert(x, pattern, dtype=target))


@pytest.mark.parametrize("target", ["u1", "i2", "i8"])
def test_saturating_casts(target):
    x = (RNG.standard_normal((2, 65, 33)) * 300).astype("f4")
    x[0, 0, :8] = [0.5, 1.5, -0.5, 2.5, 1e30, -1e30, np.nan, -np.inf]
    for pattern in ("bwc->bcw", "bwc->bwc"):
        keywords = {"dtype": target, "casting": "saturate"}
        assert_same(converted(x, pattern, **keywords), reference_convert(x, pattern, **keywords))


# Exact with any rounding, so that results are compared bit by bit.
MEAN, STD = [0.5, 0.25, 0.75], [0.5, 0.25, 0.125]


@pytest.mark.parametrize("target", ["f4", BF16, "f8"], ids=str)
@pytest.mark.parametrize(
    "pattern", ["bhwc->bchw", "bchw->bhwc", "bhwc->bhwc", "bhwc->chwb", "bhwc->bwhc"]
)
@pytest.mark.parametrize("channels", [3, 36])
def test_a_formula_with_coefficients_of_each_channel(pattern, target, channels):
    source, _ = pattern.split("->")
    sizes = {"b": 5, "h": 9, "w": 11, "c": channels}
    x = copied(numbers([sizes[a] for a in source], "u1"), 0)
    keywords = {"dtype": target, "mean": MEAN * (channels // 3), "std": STD * (channels // 3)}
    assert_same(converted(x, pattern, **keywords), reference_convert(x, pattern, **keywords))


@pytest.mark.parametrize("pattern", ["bwc->bcw", "bwc->bwc"])
def test_a_formula_of_backward_channels_and_one_pair(pattern):
    x = copied(numbers((2, 33, 3), "u1"), 0)[:, :, ::-1]
    for keywords in ({"mean": MEAN, "std": STD}, {"mean": 0.5, "std": 0.25}, {"scale": 0.5}):
        keywords = {"dtype": "f4", **keywords}
        assert_same(converted(x, pattern, **keywords), reference_convert(x, pattern, **keywords))


def test_a_saturating_formula():
    x = copied(numbers((2, 33, 3), "f4"), 0)
    keywords = {"dtype": "u1", "casting": "saturate", "scale": 4.0, "mean": [9.0, 100.0, 200.0]}
    assert_same(converted(x, "bwc->bcw", **keywords), reference_convert(x, "bwc->bcw", **keywords))


def test_unaligned_sides_of_a_cast():
    values = numbers((2, 48, 64), "u2")
    for here, there in [(0, 0), (2, 0), (0, 4), (2, 4), (8, 8)]:
        x = copied(values, here)
        for pattern in ("bwc->bcw", "bwc->bwc"):
            got = converted(x, pattern, dtype="f4", shift=there)
            assert_same(got, reference_convert(x, pattern, dtype="f4"))


# ---- sums --------------------------------------------------------------------------------


def spread(shape, dtype):
    """Numbers of very different sizes, so that another order of adding shows."""
    values = RNG.standard_normal(shape) * 10.0 ** RNG.integers(-3, 4, shape)
    return values.astype("f4").astype(dtype)


def compare_sums(parts, layout, **keywords):
    assert_same(summed(parts, layout, **keywords), accumulate(parts, layout, **keywords))


@pytest.mark.parametrize("layout", ["bhwc", "bchw", "chwb", "b(hwc)"])
@pytest.mark.parametrize("order", ORDERS)
def test_sums_of_many_layouts(layout, order):
    sizes = {"b": 5, "h": 6, "w": 7, "c": 33}
    parts = [(spread([sizes[a] for a in of], "f4"), of) for of in ("bhwc", "bchw", "chwb", "whcb")]
    got = summed(parts, layout, how={"order": order, "poison": 0xFF})
    assert_same(got, accumulate(parts, layout))


@pytest.mark.parametrize("result", ["f2", BF16, "f4", "f8"], ids=str)
def test_sums_of_many_dtypes(result):
    sizes = {"b": 5, "w": 42, "c": 33}
    parts = [
        (spread([sizes[a] for a in of], dtype), of)
        for of, dtype in zip(("bwc", "bcw", "cwb", "wbc"), ("f2", BF16, "f4", "f8"), strict=True)
    ]
    compare_sums(parts, "bwc", dtype=result)
    compare_sums(parts[:3], "bcw", dtype=result)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "c8", "c16"])
def test_sums_of_integers_and_complex_numbers(dtype):
    sizes = {"b": 5, "w": 42, "c": 17}
    parts = [(numbers([sizes[a] for a in of], dtype), of) for of in ("bwc", "cwb", "bcw")]
    compare_sums(parts, "bcw")


@pytest.mark.parametrize("count", [2, 15, 16])
def test_sums_of_many_parts(count):
    parts = [(spread((33, 65), "f4"), "bc") for _ in range(count - 1)]
    compare_sums([*parts, (spread((65, 33), "f4"), "cb")], "bc")


@pytest.mark.parametrize("size", [1, 31, 32, 33, 255, 256, 257])
def test_sums_about_the_edges_of_boxes(size):
    compare_sums([(spread((size, 70), "f4"), "bc"), (spread((70, size), "f4"), "cb")], "bc")


@pytest.mark.parametrize("laying", LAYINGS)
def test_sums_of_any_strides(laying):
    parts = [(laid(spread((5, 6, 33), "f4"), laying), "bwc"), (spread((33, 6, 5), "f4"), "cwb")]
    compare_sums(parts, "wbc")
    out = laid(np.zeros((6, 5, 33), "f4"), "pages" if laying == "pages" else "backward")
    summed(parts, "wbc", out=out)
    assert_same(out, accumulate(parts, "wbc"))


# ---- no access is unordered --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "u4"])
@pytest.mark.parametrize("pattern", ["bwc->bcw", "bcw->bwc"])
def test_threads_do_not_race(pattern, dtype):
    """Transposes, and few channels, with two blocks one after the other."""
    for shape in ((1, 33, 140), (2, 3, 40), (2, 40, 3)):
        x = copied(random_array(RNG, shape, dtype), 0)
        got = converted(x, pattern, how={"mode": "threads", "order": "random"})
        assert_same(got, reference_convert(x, pattern))


def test_threads_of_a_sum_do_not_race():
    parts = [(spread((40, 70), "f4"), "bc"), (spread((70, 40), "f4"), "cb")]
    assert_same(summed(parts, "bc", how={"mode": "threads"}), accumulate(parts, "bc"))


def test_every_family_has_run():
    """What the tests above mean to choose is what they choose."""
    chosen = {
        pattern: planned(copied(numbers(shape, "u4"), 0), pattern)[1][0][0].family
        for pattern, shape in [("bc->cb", (65, 65)), ("bpc->bcp", (2, 65, 3)), ("ba->ba", (3, 65))]
    }
    assert chosen == {"bc->cb": "transpose", "bpc->bcp": "interleave", "ba->ba": "gather"}
    assert [name for name, _ in itertools.groupby(chosen.values())] == list(chosen.values())
