"""Every family of kernels on small arrays: quick, also under tools that slow a GPU a hundred times.

The values are compared with the CPU's and the slow reference's. Sizes are near the edges of
tiles. Some addresses allow words of 16 bytes, others only single items.
"""

import cupy
import numpy as np
import pytest

from layoutkit import Collator, accumulate, convert
from tests.helpers.arrays_of import BF16, assert_same, random_array
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.usefixtures("machine")

RNG = np.random.default_rng(0)


def at(values, shift=0):
    """Copy values to the GPU, `shift` bytes after the beginning of a new allocation."""
    raw = np.frombuffer(values.tobytes(), np.uint8)
    room = cupy.empty(raw.size + shift, np.uint8)
    room[shift:] = cupy.asarray(raw)
    room[:shift] = 0
    return cupy.ndarray(values.shape, values.dtype, room.data + shift, values.strides)


FAMILIES = {
    "transpose": [
        ("bnm->bmn", (2, 65, 33)), ("bhwc->bchw", (2, 7, 7, 64)), ("abc->cba", (5, 9, 40)),
    ],
    "interleave": [("bpc->bcp", (2, 257, 3)), ("bcp->bpc", (2, 4, 130))],
    "runs": [("abc->bac", (3, 5, 33)), ("abcd->cbad", (3, 4, 5, 21))],
    "gather": [("abc->bac", (3, 5, 3)), ("bhwc->bwch", (2, 3, 4, 2))],
}  # fmt: skip
CASES = [case for cases in FAMILIES.values() for case in cases]


# Sums come first: their kernels are the most complex, and a tool with a time limit may not reach
# the end of the file.
@pytest.mark.parametrize("dtype", ["f4", BF16, "i4"], ids=str)
@pytest.mark.parametrize("count", [2, 17])
def test_sums(dtype, count):
    shapes = {"bwc": (3, 33, 5), "cwb": (5, 33, 3)}
    parts = [(RNG.integers(0, 9, shapes[of]).astype(dtype), of) for of in [*shapes] * count][:count]
    there = [(at(part), of) for part, of in parts]
    assert_same(accumulate(there, "bcw").get(), accumulate(parts, "bcw"))


@pytest.mark.parametrize(("pattern", "shape"), CASES)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16"])
def test_moves(pattern, shape, dtype):
    x = random_array(RNG, shape, dtype)
    item = x.dtype.itemsize
    for shift in (0, item, 1):
        assert_same(convert(at(x, shift), pattern).get(), reference_convert(x, pattern))


@pytest.mark.parametrize(("pattern", "shape"), CASES)
@pytest.mark.parametrize(("source", "target"), [("u1", "f4"), ("f4", BF16), ("f4", "f2")], ids=str)
def test_casts_and_formulas(pattern, shape, source, target):
    """Test constants with which the results are exact, so that all bits are compared."""
    x = RNG.integers(0, 120, shape).astype(source)
    for keywords in ({}, {"mean": 0.5, "std": 0.25}):
        got = convert(at(x), pattern, dtype=target, **keywords).get()
        assert_same(got, reference_convert(x, pattern, dtype=np.dtype(target), **keywords))


def test_saturating_casts():
    x = np.array([[0.5, 1.5, -0.5, 2.5], [1e30, -1e30, np.nan, -np.inf]], "f4")
    for target in ("u1", "i2", "i8"):
        keywords = {"dtype": target, "casting": "saturate"}
        assert_same(convert(at(x), "bf->fb", **keywords).get(), convert(x, "bf->fb", **keywords))


def test_a_batch_goes_up_and_comes_down():
    x = RNG.integers(0, 256, (3, 20, 21, 3), np.uint8)
    for given in (x, x[:, ::2, ::-1]):
        y = convert(given, "bhwc->bchw", device="cuda", dtype="f4", scale=0.5)
        np.testing.assert_array_equal(y.get(), given.transpose(0, 3, 1, 2) * np.float32(0.5))
        back = convert(y, "bchw->bhwc", device="cpu")
        np.testing.assert_array_equal(back, given * np.float32(0.5))


@pytest.mark.parametrize("to", ["bchw", "bhwc", "chwb"])
@pytest.mark.parametrize("target", ["u1", "f4", BF16], ids=str)
@pytest.mark.parametrize("shift", [0, 1, 7])
def test_samples_are_collated(to, target, shift):
    """Test windows that begin with a sample, end with one, and are partly outside of one."""
    photos = [RNG.integers(0, 120, shape, np.uint8) for shape in [(17, 33, 3), (21, 70, 3)]]
    keywords = {"h": 17, "w": 33, "fill": (1, 2, 3), "dtype": target}
    for call in (
        {}, {"offset": {"h": [0, 4], "w": [0, 37]}}, {"offset": {"h": [-3, 9]}, "flip": "w"},
    ):  # fmt: skip
        for channels in (None, (2, 0, 1)):
            collator = Collator(f"hwc->{to}", channels=channels, **keywords)
            there = collator([at(x, shift) for x in photos], **call)
            assert_same(there.get(), collator(photos, **call))


@pytest.mark.parametrize("name", ["nearest", "bilinear", "lanczos"])
@pytest.mark.parametrize("dtype", ["u1", "f2", "f8"])
def test_samples_are_resized(name, dtype):
    photos = [RNG.integers(0, 120, shape).astype(dtype) for shape in [(40, 33, 3), (21, 70, 3)]]
    collator = Collator(
        "hwc->bchw", h=17, w=40, resize=name, fit="pad", fill=(1, 2, 3), dtype="f4", flip="w"
    )
    there = collator([at(x, x.itemsize) for x in photos])
    np.testing.assert_allclose(there.get(), collator(photos), rtol=0, atol=2e-3)
