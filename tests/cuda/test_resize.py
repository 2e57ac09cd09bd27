"""Batches of resized samples on a GPU, or copied to a GPU."""

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, DeviceError, DtypeError, ShapeError, collate
from layoutkit.kernels.cpu import compiler
from tests.helpers.arrays_of import assert_same
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import FakeArray, values_of
from tests.helpers.resizing import Case, photo

pytestmark = [pytest.mark.budget(2), needs_compiler]

PHOTOS = [photo((40, 50, 3)), photo((33, 61, 3)), photo((24, 30, 3))]
SIZES = {"h": 16, "w": 20}
FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}


@pytest.mark.budget(0, all=3)
@pytest.mark.parametrize("resizes", [True, False])
@pytest.mark.parametrize("first", range(0, 200, 5))
def test_random_collations(gpu, first, resizes):
    """Compare batches with the definition, for samples with any strides."""
    for seed in range(first, first + 5):
        case = Case(seed, resizes=resizes)
        samples = [gpu.array(x) for x in case.samples]
        try:
            made = case.made(samples)
            assert isinstance(made, FakeArray)
            case.compare(values_of(made), *case.expected())
        except Exception as error:
            raise AssertionError(f"Case({seed}) differs from the definition") from error
    gpu.check()


@pytest.mark.budget(0)
def test_float16_beside_a_cpu_without_it(gpu, monkeypatch):
    """Test that a GPU resizes the dtypes that it converts, whatever the CPU converts."""
    samples = [x.astype(np.float16) for x in PHOTOS]
    expected = collate(samples, "hwc->bchw", resize="bilinear", **SIZES)
    monkeypatch.setattr(compiler, "cpu_features", frozenset)
    with pytest.raises(DtypeError, match="does not average"):
        collate(samples, "hwc->bhwc", resize="bilinear", **SIZES)
    made = collate([gpu.array(x) for x in samples], "hwc->bchw", resize="bilinear", **SIZES)
    assert_same(values_of(made), expected)


@pytest.mark.parametrize("filter_name", ["nearest", "bilinear", "lanczos", "area"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fit": "pad", "fill": (1, 2, 3)},
        {"short_side": 22, "channels": (2, 0)},
        # All positions of the window would be inside, but not those of the crop.
        {"crop": {"h": 36}, "offset": {"h": 2}, "fill": 9, "flip": {"w": True, "c": True}},
        {"fit": "pad", "fill": (1, 2, 3), "flip": "c", "center": "floor"},
        {"crop": {"h": 9}, "offset": {"h": 90}, "fill": (1, 2, 3), "flip": "c"},
    ],
)
def test_windows_are_those_of_the_cpu(gpu, filter_name, options):
    formula = {} if "channels" in options else FORMULA
    collator = Collator("hwc->bchw", resize=filter_name, **SIZES, **options, **formula)
    expected = collator(PHOTOS)
    found = collator([gpu.array(x) for x in PHOTOS])
    tolerance = 1 if expected.dtype == np.uint8 else 1e-5 * 2 / 0.2
    np.testing.assert_allclose(values_of(found), expected, rtol=0, atol=tolerance)
    out = gpu.array(np.zeros_like(expected))
    assert collator([gpu.array(x) for x in PHOTOS], out=out) is out
    assert_same(values_of(out), values_of(found))


@pytest.mark.budget(0)
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->chwb", "chw->bhwc"])
def test_fill_values_are_flipped_with_their_channels(gpu, pattern):
    photos = [x if pattern[0] == "h" else x.transpose(2, 0, 1) for x in PHOTOS]
    calls = {"flip": {"c": [True, False, True]}}
    padded = {"h": 16, "w": 24, "fit": "pad", "fill": (1, 2, 3)}  # every sample is padded
    for name in ("nearest", "bilinear"):
        collator = Collator(pattern, resize=name, **padded, dtype="f4")
        found = collator([gpu.array(x) for x in photos], **calls)
        np.testing.assert_allclose(values_of(found), collator(photos, **calls), rtol=0, atol=1e-4)


def test_a_collator_takes_samples_of_several_dtypes(gpu):
    collator = Collator("hwc->bchw", resize="bilinear", **SIZES)
    for dtype in ("uint8", "float32", "uint8"):
        samples = [(x / 3).astype(dtype) for x in PHOTOS]
        found = values_of(collator([gpu.array(x) for x in samples]))
        expected = collator(samples)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=1 if dtype == "uint8" else 1e-4)


def test_rows_of_an_array_are_resized(gpu):
    images = np.moveaxis(np.stack([photo((20, 24, 3)) for _ in range(5)]), 0, 2)
    keywords = {**SIZES, "resize": "bicubic", "dtype": "float32", "indices": [4, 0, -1]}
    expected = collate(images, "hwbc->cbhw", **keywords)
    found = collate(gpu.array(images, 1), "hwbc->cbhw", **keywords)
    assert found.ordinal == 1
    np.testing.assert_allclose(values_of(found), expected, rtol=0, atol=3e-3)
    nothing = collate(gpu.array(images), "hwbc->cbhw", **{**keywords, "indices": []})
    assert nothing.shape == (3, 0, 16, 20)


@pytest.mark.parametrize("dtype", ["int64", "complex128", "bool", "uint32"])
def test_other_dtypes_are_moved(gpu, dtype):
    x = photo((15, 18), "uint8").astype(dtype)
    keywords = {"h": 7, "w": 30, "resize": "nearest", "fit": "pad", "fill": 1, "flip": "w"}
    found = collate([gpu.array(x)], "hw->bhw", **keywords)
    assert_same(values_of(found), collate([x], "hw->bhw", **keywords))


def test_a_result_does_not_depend_on_its_neighbors(gpu):
    collator = Collator("hwc->bchw", resize="bilinear", dtype="float32", **SIZES)
    batch = values_of(collator([gpu.array(x) for x in PHOTOS]))
    for number, x in enumerate(PHOTOS):
        assert_same(values_of(collator([gpu.array(x)]))[0], batch[number])


def test_samples_on_the_cpu_are_resized_there_and_sent(gpu):
    collator = Collator("hwc->bchw", resize="bicubic", **SIZES, **FORMULA)
    sent = Collator("hwc->bchw", resize="bicubic", device="cuda", **SIZES, **FORMULA)(PHOTOS)
    assert isinstance(sent, FakeArray)
    np.testing.assert_allclose(values_of(sent), collator(PHOTOS), rtol=0, atol=1e-5)


def test_a_shape_is_compiled_once(gpu):
    collator = Collator("hwc->bchw", resize="bilinear", crop="random", **SIZES, **FORMULA)
    there = [gpu.array(x) for x in PHOTOS]
    collator(there)
    loaded = len(gpu.loaded)
    for _ in range(3):
        collator(there)
    assert len(gpu.loaded) == loaded


def test_bad_input(gpu):
    there = [gpu.array(x) for x in PHOTOS]
    collator = Collator("hwc->bchw", resize="bilinear", **SIZES)
    with pytest.raises(ShapeError, match="give another crop or offset"):
        collator(there, crop={"h": 100})
    with pytest.raises(DtypeError, match="does not average"):
        collator([gpu.array(x.astype(np.int64)) for x in PHOTOS])
    with pytest.raises(DeviceError, match="bring both to one device"):
        collator([there[0], gpu.array(PHOTOS[1], 1)])
    with pytest.raises(ArgumentError, match="shares memory"):
        collator(there[:1], out=there[0][:16, :20].transpose(2, 0, 1).reshape(1, 3, 16, 20))
