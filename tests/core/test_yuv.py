"""Video frames in planes: exact colors, any pattern, strides and sizes, and errors."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    Converter,
    DtypeError,
    ShapeError,
    accumulate,
    collate,
    convert,
    plan,
)
from layoutkit.images import YUVFrames
from layoutkit.planning.yuv import FrameFormat
from tests.helpers.yuv import exact_rgb, float_rgb

STANDARDS = [(m, r) for m in ("bt601", "bt709") for r in ("limited", "full")]
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.1, 0.3)}


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def planes_of(*shape, seed=0):
    *leading, h, w = shape
    half = (*leading, -(-h // 2), -(-w // 2))
    return noise(*shape, seed=seed), noise(*half, seed=seed + 1), noise(*half, seed=seed + 2)


def frames_of(*shape):
    y, u, v = planes_of(*shape)
    return YUVFrames(y, u, v, matrix="bt601"), exact_rgb(y, u, v, "bt601", "limited")


@pytest.mark.parametrize(("matrix", "color_range"), STANDARDS)
def test_every_color_is_rounded_as_its_exact_sum(matrix, color_range, request):
    # A pair of u and v is used by four values of y, so 64 frames of 512 x 512 have all colors.
    step = 1 if request.config.getoption("--all") else 8
    u, v = np.meshgrid(*[np.arange(256, dtype=np.uint8)] * 2)
    corners = np.tile(np.arange(4, dtype=np.uint8).reshape(2, 2), (256, 256))
    for first in range(0, 256, 4 * step):
        y = corners + np.uint8(first)
        rgb = np.asarray(YUVFrames(y, u, v, matrix=matrix, color_range=color_range))
        np.testing.assert_array_equal(rgb, exact_rgb(y, u, v, matrix, color_range))


@pytest.mark.parametrize(("matrix", "color_range"), STANDARDS)
def test_colors_are_within_a_half_of_sums_in_float64(matrix, color_range):
    y, u, v = planes_of(3, 17, 90)
    rgb = np.asarray(YUVFrames(y, u, v, matrix=matrix, color_range=color_range))
    sums = float_rgb(y, u, v, matrix, color_range).clip(0, 255)
    assert np.abs(rgb - sums).max() <= 0.5 + 1e-9


def with_bits(planes, ten_bits):
    """Return 8-bit planes, or planes of ten bits whose other bits are noise, and the samples."""
    if ten_bits is None:
        return planes, planes
    spare = [noise(*plane.shape, seed=9).astype(np.uint16) for plane in planes]
    samples = [plane * np.uint16(4) + (more & 3) for plane, more in zip(planes, spare, strict=True)]
    shift, rest = (0, 10) if ten_bits == "low" else (6, 0)
    pairs = zip(samples, spare, strict=True)
    return [(x << shift) | ((more & 63) << rest) for x, more in pairs], samples


FORMATS = [
    (ten_bits, siting)
    for ten_bits in (None, "low", "high")
    for siting in (None, "left", "center", "topleft")
][1:]


@pytest.mark.budget(24)
@pytest.mark.parametrize(("ten_bits", "siting"), FORMATS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 17), (2, 7, 70), (1, 90, 31), (33, 64)])
@pytest.mark.parametrize("pairs", [False, True])
def test_wide_colors_are_within_their_rounding_of_float64(ten_bits, siting, shape, pairs):
    chroma = "nearest" if siting is None else "bilinear"
    planes, samples = with_bits(planes_of(*shape, seed=5), ten_bits)
    for matrix, color_range in STANDARDS:
        frames = YUVFrames(
            planes[0],
            *([np.stack(planes[1:], -1)] if pairs else planes[1:]),
            matrix=matrix,
            color_range=color_range,
            ten_bits=ten_bits,
            chroma=chroma,
            siting=siting,
        )
        bits = 8 if ten_bits is None else 10
        sums = float_rgb(*samples, matrix, color_range, bits, siting).clip(0, 255)
        rgb = np.asarray(frames)
        assert np.abs(rgb - sums).max() <= 0.5 + 2**-19
        pattern = "...hwc->...chw"
        np.testing.assert_array_equal(
            convert(frames, pattern, **FORMULA), convert(rgb, pattern, **FORMULA)
        )


@given(
    h=st.integers(1, 40), w=st.integers(1, 150), seed=st.integers(0, 99),
    cut=st.tuples(st.integers(1, 3), st.integers(1, 3)), way=st.sampled_from([1, -1]),
    form=st.sampled_from(FORMATS),
)  # fmt: skip
def test_wide_planes_of_any_sizes_and_strides(h, w, seed, cut, way, form):
    ten_bits, siting = form
    planes, samples = with_bits(planes_of(2, h, w, seed=seed), ten_bits)
    placed = []
    for plane in planes:  # every second or third item, reversed, in memory of the right size
        *_, rows, columns = plane.shape
        memory = np.zeros((2, cut[0] * rows, cut[1] * (columns - 1) + 1), plane.dtype)
        view = memory[:, :: way * cut[0], :: way * cut[1]]
        view[...] = plane
        placed.append(view)
    chroma = "nearest" if siting is None else "bilinear"
    frames = YUVFrames(*placed, matrix="bt709", ten_bits=ten_bits, chroma=chroma, siting=siting)
    bits = 8 if ten_bits is None else 10
    sums = float_rgb(*samples, "bt709", "limited", bits, siting).clip(0, 255)
    assert np.abs(np.asarray(frames) - sums).max() <= 0.5 + 2**-19


def test_neutral_colors_of_ten_bits_are_gray():
    gray = np.arange(64, 941, dtype=np.uint16).reshape(1, -1)
    neutral = np.full((1, 439), 512, np.uint16)
    rgb = np.asarray(YUVFrames(gray, neutral, neutral, matrix="bt709", ten_bits="low"))
    exact = (2 * 255 * (gray[0].astype(int) - 64) + 876) // (2 * 876)  # halves are rounded up
    np.testing.assert_array_equal(rgb[0, :, 0], exact)
    assert (rgb == rgb[..., :1]).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("options", [{"chroma": "bilinear"}, {"ten_bits": "high"}])
def test_bands_of_large_frames_are_independent(threads, options):
    planes = planes_of(3, 500, 1001)
    if "ten_bits" in options:
        planes = [plane.astype(np.uint16) << 8 for plane in planes]
    frames = YUVFrames(*planes, matrix="bt601", **options)
    rgb = np.concatenate(
        [np.asarray(YUVFrames(*(p[n] for p in planes), matrix="bt601", **options))[None]
         for n in range(3)]
    )  # fmt: skip
    siting = "left" if "chroma" in options else None
    sums = float_rgb(*planes, "bt601", "limited", siting=siting)
    if siting is not None:
        assert np.abs(rgb - sums.clip(0, 255)).max() <= 0.5 + 2**-19
    np.testing.assert_array_equal(
        convert(frames, "bhwc->bchw", threads=threads, **FORMULA),
        convert(rgb, "bhwc->bchw", **FORMULA),
    )


def test_black_white_and_gray_are_themselves():
    gray = np.arange(16, 236, dtype=np.uint8).reshape(2, 110)
    neutral = np.full((1, 55), 128, np.uint8)
    for matrix in ("bt601", "bt709"):
        rgb = np.asarray(YUVFrames(gray, neutral, neutral, matrix=matrix))
        assert rgb[[0, -1], [0, -1]].tolist() == [[0, 0, 0], [255, 255, 255]]
        assert (rgb == rgb[..., :1]).all()
        full = YUVFrames(gray, neutral, neutral, matrix=matrix, color_range="full")
        np.testing.assert_array_equal(np.asarray(full), np.stack([gray] * 3, -1))


PATTERNS = [
    "bthwc->bcthw", "bthwc->(bt)chw", "bthwc->(bt)hwc", "bthwc->cthwb", "bthwc->b(tc)hw",
    "bthwc->bt(hw)c", "bthwc->bt(hwc)", "bthwc->bthcw", "bthwc->wtbhc", "...hwc->...chw",
    # In two passes.
    "bthwc->bt(chw)", "bthwc->bt(wh)c", "bthwc->(ct)bhw", "bthwc->(hb)tcw", "bt(hp)wc->bthw(pc)",
]  # fmt: skip


@pytest.mark.budget(1)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "keywords",
    [{}, FORMULA, {"dtype": "float16", "scale": 0.5, "channels": (2, 1, 0)}, {"channels": (1,)}],
)
def test_conversions_equal_those_of_rgb_bytes(pattern, keywords):
    frames, rgb = frames_of(2, 3, 10, 70)
    keywords = dict(keywords, p=2) if "p" in pattern else keywords
    if keywords.get("channels") == (1,) and "mean" in keywords:
        return
    expected = convert(rgb, pattern, **keywords)
    np.testing.assert_array_equal(convert(frames, pattern, **keywords), expected)
    out = np.zeros((*expected.shape, 2), expected.dtype)[..., 0]
    assert convert(frames, pattern, out=out, **keywords) is out
    np.testing.assert_array_equal(out, expected)


@given(
    h=st.integers(1, 40), w=st.integers(1, 150), count=st.integers(0, 3), seed=st.integers(0, 99),
    cut=st.tuples(st.integers(1, 3), st.integers(1, 3)), turn=st.booleans(), pairs=st.booleans(),
    pattern=st.sampled_from(["bhwc->bchw", "bhwc->bhwc", "bhwc->chwb", "bhwc->b(hw)c"]),
)  # fmt: skip
def test_planes_of_any_sizes_and_strides(h, w, count, seed, cut, turn, pairs, pattern):
    """Rows with padding, every second or third item, and reversed rows and columns."""
    way = -1 if turn else 1
    y = noise(count, cut[0] * h, cut[1] * w + 5, seed=seed)[:, :: way * cut[0], : cut[1] * w]
    y = y[..., :: way * cut[1]]
    half = -(-h // 2), -(-w // 2)
    if pairs:
        uv = noise(count, half[0], half[1] + 1, 2, seed=seed + 1)[:, ::way, :-1]
        u, v = uv[..., 0], uv[..., 1]
        frames = YUVFrames(y, uv, matrix="bt709")
    else:
        u, v = (noise(count, *half[::-1], seed=seed + k).swapaxes(1, 2) for k in (1, 2))
        frames = YUVFrames(y, u, v, matrix="bt709")
    expected = convert(exact_rgb(y, u, v, "bt709", "limited"), pattern, **FORMULA)
    np.testing.assert_array_equal(convert(frames, pattern, **FORMULA), expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_frames_on_several_threads_are_equal(threads):
    frames, rgb = frames_of(3, 500, 1001)
    expected = convert(rgb, "bhwc->bchw", **FORMULA)
    np.testing.assert_array_equal(
        convert(frames, "bhwc->bchw", threads=threads, **FORMULA), expected
    )


def test_a_converter_is_planned_for_its_planes():
    to_planes = Converter("bhwc->bchw", **FORMULA)
    for shape in [(2, 8, 6), (1, 8, 6), (2, 7, 6), (2, 8, 6)]:
        frames, rgb = frames_of(*shape)
        np.testing.assert_array_equal(to_planes(frames), to_planes(rgb))
    mirrored = YUVFrames(frames.y[..., ::-1], frames.u, frames.v, matrix="bt709")
    expected = exact_rgb(mirrored.y, mirrored.u, mirrored.v, "bt709", "limited")
    np.testing.assert_array_equal(to_planes(mirrored), to_planes(expected))


def test_buffers_have_the_colors_below_the_brightness():
    y, u, v = planes_of(4, 6, 10)
    i420 = np.concatenate([plane.reshape(4, -1) for plane in (y, u, v)], 1).reshape(4, 9, 10)
    nv12 = np.concatenate([y, np.stack([u, v], -1).reshape(4, 3, 10)], 1)
    expected = exact_rgb(y, u, v, "bt709", "full")
    for name, buffer in (("i420", i420), ("nv12", nv12), ("nv12", nv12[:, :, ::1])):
        frames = YUVFrames.from_buffer(buffer, name, matrix="bt709", color_range="full")
        assert all(np.shares_memory(x, buffer) for x in (frames.y, frames.u, frames.v))
        np.testing.assert_array_equal(np.asarray(frames), expected)
    for name, buffer, ten_bits in (("i010", i420, "low"), ("p010", nv12, "high")):
        wide = buffer.astype(np.uint16) << (2 if ten_bits == "low" else 8)
        frames = YUVFrames.from_buffer(wide, name, matrix="bt709", color_range="limited")
        assert np.shares_memory(frames.u, wide)
        assert frames.format == FrameFormat("bt709", "limited", ten_bits)
        sums = float_rgb(y, u, v, "bt709", "limited").clip(0, 255)
        assert np.abs(np.asarray(frames) - sums).max() <= 0.5 + 2**-19
    padded = np.zeros((4, 9, 16), np.uint8)
    padded[..., :10] = nv12
    frames = YUVFrames.from_buffer(padded[..., :10], "nv12", matrix="bt709", color_range="full")
    np.testing.assert_array_equal(np.asarray(frames), expected)


def test_frames_are_samples_parts_and_arrays():
    frames, rgb = frames_of(9, 12)
    assert (frames.shape, frames.ndim, len(frames), frames.dtype) == ((9, 12, 3), 3, 9, rgb.dtype)
    window = {"h": 4, "w": 4}
    collated = collate([frames, frames], "hwc->bchw", **window)
    np.testing.assert_array_equal(collated, collate([rgb, rgb], "hwc->bchw", **window))
    total = accumulate([(frames, "hwc"), (rgb, "hwc")], "chw")
    np.testing.assert_array_equal(total, accumulate([(rgb, "hwc"), (rgb, "hwc")], "chw"))
    assert (
        plan("hwc->chw", frames.shape, "uint8").target == Converter("hwc->chw").plan(frames).target
    )
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(frames))), rgb)
    padded = {"pad_to": {"h": 16}, "fill": 7}
    np.testing.assert_array_equal(
        convert(frames, "hwc->chw", **padded), convert(rgb, "hwc->chw", **padded)
    )
    with pytest.raises(ValueError, match="always new memory"):
        np.array(frames, copy=False)


def test_results_are_of_the_library_of_the_planes():
    torch = pytest.importorskip("torch")
    y, u, v = planes_of(2, 8, 6)
    frames = YUVFrames(*map(torch.from_numpy, (y, u, v)), matrix="bt601")
    x = convert(frames, "bhwc->bchw", **FORMULA)
    assert isinstance(x, torch.Tensor)
    expected = convert(exact_rgb(y, u, v, "bt601", "limited"), "bhwc->bchw", **FORMULA)
    np.testing.assert_array_equal(x.numpy(), expected)
    out = torch.empty_like(x)
    assert convert(frames, "bhwc->bchw", out=out, **FORMULA) is out
    np.testing.assert_array_equal(out.numpy(), expected)


def make(*planes, **keywords):
    return YUVFrames(*planes, **{"matrix": "bt601", **keywords})


Y, U, V = planes_of(2, 5, 7)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make(Y, U, V, matrix="bt2020"), ArgumentError, 'it must be "bt601" or "bt709"'),
        (lambda: make(Y, U, V, color_range="tv"), ArgumentError, '"limited" or "full"'),
        (lambda: make(Y, U, V, matrix=["bt601"]), ArgumentError, '"bt601" or "bt709"'),
        (
            lambda: make(Y, U, V[:, :2]),
            ShapeError,
            r"v has shape \(2, 2, 4\), but y .* \(2, 3, 4\)",
        ),
        (lambda: make(Y, U[:1], V), ShapeError, "u has shape"),
        (lambda: make(Y, U), ShapeError, r"uv has shape \(2, 3, 4\), but .* \(2, 3, 8\)"),
        (lambda: make(Y[0, 0], U), ShapeError, r"give planes \(..., h, w\)"),
        (lambda: make(Y.astype("u2"), U, V), DtypeError, "y is uint16; give planes of 8 bits"),
        (lambda: make(Y, U.astype("f4"), V), DtypeError, "u is float32"),
        (lambda: make("a.mp4", U, V), ArgumentError, "y is a str"),
        (lambda: make(Y, U, V, ten_bits="low"), DtypeError, "y is uint8; give .* as uint16"),
        (lambda: make(Y, U, V, ten_bits=10), ArgumentError, 'ten_bits=10; .* "low" or "high"'),
        (lambda: make(Y, U, V, chroma="cubic"), ArgumentError, '"nearest" or "bilinear"'),
        (lambda: make(Y, U, V, siting="left"), ArgumentError, 'give chroma="bilinear"'),
        (
            lambda: make(Y, U, V, chroma="bilinear", siting="top"),
            ArgumentError,
            'it must be "left" or "center" or "topleft"',
        ),
        (
            lambda: YUVFrames.from_buffer(Y, "nv12", matrix="bt601"),
            ShapeError,
            "give planes of odd",
        ),
        (
            lambda: YUVFrames.from_buffer(Y, "nv21", matrix="bt601"),
            ArgumentError,
            '"nv12" or "i420"',
        ),
        (
            lambda: YUVFrames.from_buffer(noise(6, 8)[:, :4], "i420", matrix="bt601"),
            ArgumentError,
            "ascontiguousarray",
        ),
    ],
)
def test_wrong_planes_are_one_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_wrong_outputs_are_one_error_before_anything_is_written():
    frames, _ = frames_of(2, 6, 8)
    read_only = np.zeros((2, 3, 6, 8), np.uint8)
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="out is read-only"):
        convert(frames, "bhwc->bchw", out=read_only)
    with pytest.raises(ShapeError, match=r"makes \(2, 3, 6, 8\); give that shape"):
        convert(frames, "bhwc->bchw", out=np.zeros((2, 3, 6, 9), np.uint8))
    memory = np.zeros(4 * 4 * 3, np.uint8)
    shared = make(memory[:16].reshape(4, 4), memory[16:24].reshape(2, 4))
    with pytest.raises(ArgumentError, match="out shares memory with y"):
        convert(shared, "hwc->hwc", out=memory.reshape(4, 4, 3))
    with pytest.raises(ArgumentError, match="omit copy="):
        convert(frames, "bhwc->bchw", copy=False)
    with pytest.raises(ShapeError):
        convert(frames, "hwc->chw")
    with pytest.raises(DtypeError):
        convert(frames, "bhwc->bchw", dtype="int8", casting="safe")
