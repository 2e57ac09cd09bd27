"""Packed batches: samples of different sizes, one after the other."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    Collator,
    DtypeError,
    LayoutkitError,
    Packed,
    ShapeError,
    collate,
    convert,
)
from layoutkit.cpu.packed import PackedProgram
from layoutkit.cpu.window_table import describe_arrays, with_addresses
from layoutkit.packing import PackedCollation
from layoutkit.planning.batch import packing
from layoutkit.planning.plan import Part

PATCHES = "(hp)(wq)c->(bhw)(cpq)"
MERGED = "(hmp)(wnq)c->(bhwmn)(cpq)"


def _make_images(shapes, dtype="uint8", seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 255, shape).astype(dtype) for shape in shapes]


def _split_patches(image, p, q):
    """Return the patches of an image (hp, wq, c) as rows of (c, p, q)."""
    height, width, channels = image.shape
    blocks = image.reshape(height // p, p, width // q, q, channels)
    return blocks.transpose(0, 2, 4, 1, 3).reshape(-1, channels * p * q)


def _assert_packs(packed, parts, sizes):
    """Assert that a packed batch has these samples, of these sizes."""
    lengths = [len(part) for part in parts]
    assert isinstance(packed, Packed)
    np.testing.assert_array_equal(packed.data, np.concatenate(parts))
    assert packed.data.dtype == parts[0].dtype
    assert packed.sizes.dtype == packed.offsets.dtype == np.int64
    assert packed.sizes.flags.writeable
    assert packed.offsets.flags.writeable
    np.testing.assert_array_equal(packed.sizes, sizes)
    np.testing.assert_array_equal(packed.offsets, np.cumsum([0, *lengths]))


def test_clips_of_different_lengths_are_joined():
    clips = [np.random.default_rng(n).random((n, 8), np.float32) for n in (3, 0, 5, 1)]
    _assert_packs(collate(clips, "tf->(bt)f"), clips, [[3], [0], [5], [1]])


def test_patches_of_images_with_formula():
    images = _make_images([(28, 42, 3), (56, 14, 3), (14, 14, 3)])
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    packed = collate(
        images, PATCHES, p=14, q=14, dtype="float32", scale=1 / 255, mean=mean, std=std
    )
    parts = [
        convert(x[None], "b(hp)(wq)c->(bhw)(cpq)", p=14, q=14, dtype="float32", scale=1 / 255,
                mean=mean, std=std)
        for x in images
    ]  # fmt: skip
    _assert_packs(packed, parts, [[2, 3], [4, 1], [1, 1]])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=6),
    st.sampled_from(["uint8", "float32", "int16", "float64", ">f4", "complex64"]),
    st.sampled_from([PATCHES, "(hp)(wq)c->(bwh)(pqc)", "(hp)(wq)c->(bh)cp(wq)"]),
    st.sampled_from([None, "h", "w"]),
    st.sampled_from([None, (2, 1, 0), (0, 2, 2), (1,)]),
    st.sampled_from(["C", "F", "sliced", "negative"]),
)
def test_samples_equal_their_own_conversions(counts, dtype, pattern, flip, channels, memory):
    if pattern.endswith("(wq)"):
        counts = [(rows, counts[0][1]) for rows, _ in counts]
        flip = flip and "h"
    images = _make_images([(2 * h, 3 * w, 3) for h, w in counts], dtype)
    if memory == "F":
        images = [np.asfortranarray(x) for x in images]
    elif memory == "sliced":
        images = [np.repeat(x, 2, 1)[:, ::2] for x in images]
    elif memory == "negative":
        images = [x[::-1].copy()[::-1] for x in images]
    packed = collate(images, pattern, p=2, q=3, flip=flip, channels=channels)
    left, right = pattern.split("->")
    parts = []
    for x in images:
        x = x if flip is None else np.flip(x, "hw".index(flip))
        x = x if channels is None else x[..., list(channels)]
        parts.append(convert(x[None], f"b{left}->{right}", p=2, q=3, copy=True))
    sizes = counts
    if "bwh" in pattern:
        sizes = [(w, h) for h, w in counts]
    elif "(bh)" in pattern:
        sizes = [(h,) for h, _ in counts]
    _assert_packs(packed, parts, sizes)


def test_axes_with_a_size_are_cropped():
    images = _make_images([(4, 9, 3), (6, 7, 3)])
    packed = collate(images, "hwc->(bh)wc", w=5, offset={"w": [0, 2]})
    _assert_packs(packed, [images[0][:, :5], images[1][:, 2:7]], [[4], [6]])


def test_windows_outside_of_samples_are_filled(monkeypatch):
    monkeypatch.setattr(PackedCollation, "_convert", None)  # converts one sample
    images = _make_images([(4, 3, 3), (6, 7, 3)])
    packed = collate(images, "hwc->(bh)wc", w=5, fill=9, offset={"w": 0})
    parts = [np.full((4, 5, 3), 9, np.uint8), images[1][:, :5]]
    parts[0][:, :3] = images[0]
    _assert_packs(packed, parts, [[4], [6]])


def test_flipped_channels_are_selected_first():
    images = _make_images([(2, 2, 3), (3, 2, 3)])
    packed = collate(images, "hwc->(bhw)c", channels=(0, 0, 1), flip="c")
    parts = [x.reshape(-1, 3)[:, [1, 0, 0]] for x in images]
    _assert_packs(packed, parts, [[2, 2], [3, 2]])


def test_batch_is_packed_unless_all_sizes_are_given():
    images = _make_images([(4, 6, 3)] * 2)
    assert isinstance(collate(images, "hwc->(bhw)c"), Packed)
    assert isinstance(collate(images, "hwc->(bf)"), Packed)
    plain = collate(images, "hwc->(bhw)c", h=4, w=6)
    np.testing.assert_array_equal(plain, np.concatenate([x.reshape(-1, 3) for x in images]))
    array = collate(np.stack(images), "bhwc->(bhw)c")
    np.testing.assert_array_equal(array, plain)


def test_split_returns_views():
    clips = [np.ones((n, 2)) for n in (2, 3)]
    packed = collate(clips, "tf->(bt)f")
    data, sizes, offsets = packed
    parts = packed.split()
    assert [len(part) for part in parts] == [2, 3]
    assert all(np.shares_memory(part, data) for part in parts)
    assert sizes.shape == (2, 1)
    assert len(offsets) == 3


def test_ignored_pixels_of_packed_images_are_omitted():
    images = _make_images([(20, 30, 3), (9, 14, 3)])
    options = {"resize": "bilinear", "ignore": 7, "dtype": "float32"}
    for x in images:
        x[:8, :9] = 7
    packed = collate(images, "hwc->(bhw)c", size=(6, 5), **options)
    parts = [collate([x], "hwc->(bhw)c", h=6, w=5, **options) for x in images]
    _assert_packs(packed, parts, [(6, 5)] * 2)
    assert (packed.data == 7).all(1).any()
    with pytest.raises(ArgumentError, match=r"ignore=-1.0, but samples are uint8"):
        collate(images, "hwc->(bhw)c", size=(6, 5), resize="area", ignore=-1.0)


# ---- out= --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [8, 11])
def test_out_may_be_longer(rows):
    clips = _make_images([(3, 4), (5, 4)], "int32")
    out = np.full((rows, 4), -1, np.int32)
    packed = collate(clips, "tf->(bt)f", out=out)
    _assert_packs(packed, clips, [[3], [5]])
    assert np.shares_memory(packed.data, out)
    assert (out[8:] == -1).all()


def test_out_may_have_any_strides():
    images = _make_images([(4, 2, 3), (2, 4, 3)])
    out = np.zeros((20, 24), np.float32)[::2, ::-2]
    packed = collate(images, "(hp)(wq)c->(bhw)(cpq)", p=2, q=2, out=out)
    _assert_packs(packed, [_split_patches(x, 2, 2).astype("f4") for x in images], [[2, 1], [1, 2]])


def test_invalid_out_is_not_written():
    clips = _make_images([(3, 4), (5, 4)], "float32")
    for out in (np.zeros((7, 4), "f4"), np.zeros((8, 5), "f4"), np.zeros((8, 4, 1), "f4")):
        with pytest.raises(ShapeError, match=r"out has shape .* batch has \(8, 4\)"):
            collate(clips, "tf->(bt)f", out=out)
        assert not out.any()
    with pytest.raises(DtypeError):
        collate(clips, "tf->(bt)f", out=np.zeros((8, 4), "u1"))
    with pytest.raises(ArgumentError, match="read-only"):
        out = np.zeros((8, 4), "f4")
        out.flags.writeable = False
        collate(clips, "tf->(bt)f", out=out)
    whole = np.zeros((8, 4), "f4")
    with pytest.raises(ArgumentError, match="shares memory with sample 1"):
        collate([clips[0], whole[3:]], "tf->(bt)f", out=whole)


def test_samples_in_the_memory_of_out():
    """Samples may lie beside `out` in one buffer, in any order, but not within it."""
    collator = Collator("tf->(bt)f")
    buffer = np.arange(24.0).reshape(12, 2)
    out = buffer[4:8]
    for samples in ([buffer[:2], buffer[10:]], [buffer[3::-1], buffer[8:8]]):
        parts = [sample.copy() for sample in samples]
        _assert_packs(collator(samples, out=out), parts, [[len(part)] for part in parts])
    before = buffer.copy()
    for sample in (buffer[4::-2], buffer[3:5], buffer[7:9, ::-1]):
        with pytest.raises(ArgumentError, match="shares memory with sample 1"):
            collator([buffer[:1], sample], out=out)
    np.testing.assert_array_equal(buffer, before)


def test_samples_of_either_byte_order_are_packed():
    clips = [np.arange(n * 2, dtype=dtype).reshape(n, 2) for n, dtype in ((3, ">i4"), (5, "<i4"))]
    expected = [clip.astype("i4") for clip in clips]
    _assert_packs(collate(clips, "tf->(bt)f"), expected, [[3], [5]])
    _assert_packs(collate(clips[::-1], "tf->(bt)f"), expected[::-1], [[5], [3]])
    with pytest.raises(DtypeError, match="sample 1 has dtype float32, but sample 0 has int32"):
        collate([expected[0], np.zeros((2, 2), np.float32)], "tf->(bt)f")


def test_moves_of_many_sizes_are_kept(monkeypatch):
    """The moves of windows are kept up to a limit, or all windows of one larger batch."""
    monkeypatch.setattr(packing, "MAX_RESOLVED", 5)
    collator = Collator(PATCHES, p=2, q=1)
    random = np.random.default_rng(3)
    for count in (1, 4, 3, 9, 2, 5, 6, 1):
        images = _make_images([(*2 * random.integers(1, 4, 1), random.integers(1, 4), 3)
                               for _ in range(count)], seed=count)  # fmt: skip
        parts = [_split_patches(x, 2, 1) for x in images]
        _assert_packs(collator(images), parts, [(len(x) // 2, x.shape[1]) for x in images])
    with pytest.raises(ShapeError, match=r"sample 7, with b=1: .*size 3"):
        collator([*_make_images([(2, n, 3) for n in range(1, 8)]), *_make_images([(3, 1, 3)])])


@pytest.mark.parametrize("sizes", [(3, 1, 3), (1, 3, 2), (2, 1, 1)])
@pytest.mark.parametrize("options", [{}, {"dtype": "float32", "scale": 2.0}])
def test_batches_differ_in_common_sizes(sizes, options):
    """A Collator has batches of several common sizes, in memory of equal strides."""
    collator = Collator("tf->(bt)f", **options)
    for size in sizes:
        clips = _make_images([(1, size), (3, size), (0, size), (2, size)])
        out = np.zeros((6, 3), options.get("dtype", "uint8"))[:, :size]
        parts = [(x * options.get("scale", 1)).astype(out.dtype) for x in clips]
        _assert_packs(collator(clips, out=out), parts, [[1], [3], [0], [2]])
        _assert_packs(collator(clips), parts, [[1], [3], [0], [2]])


def test_constants_are_checked_in_every_batch():
    collator = Collator("tf->(bt)f", dtype="float32", mean={"f": [1, 2, 3]})
    collator(_make_images([(2, 3), (1, 3)]))
    for length in (0, 2):
        with pytest.raises(ShapeError, match="mean has 3 values"):
            collator(_make_images([(length, 2)]))


@given(
    counts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6),
    options=st.sampled_from([
        (PATCHES, {"p": 2, "q": 3}), (PATCHES, {"p": 1, "q": 1, "dtype": "float32", "mean": 1.0}),
        (PATCHES, {"p": 1, "q": 1, "c": 1, "dtype": "float32", "scale": 2.0}),
        (PATCHES, {"p": 2, "q": 1, "dtype": "float64", "mean": [1, 2, 3]}),
        (PATCHES, {"p": 1, "q": 2, "channels": [2, 0]}),
        ("(hp)(wq)c->(bhwc)(pq)", {"p": 2, "q": 2}),
        ("(hp)(wq)c->(bhw)(cpq)", {"p": 1, "q": 1, "dtype": "int8", "casting": "unsafe"}),
        ("(hp)(wq)c->(bchw)(pq)", {"p": 1, "q": 1, "dtype": "float32", "std": {"c": [1, 2, 4]}}),
    ]),
    step=st.sampled_from([None, 1, 2]),  # of items of a given out
)  # fmt: skip
@example([(2, 2), (1, 1)], (PATCHES, {"p": 1, "q": 1, "c": 1, "dtype": "float32"}), 2)
def test_layouts_of_windows_do_not_depend_on_other_windows(counts, options, step):
    pattern, keywords = options
    collator = Collator(pattern, **keywords)
    p, q = keywords["p"], keywords["q"]
    shapes = np.array([(h * p, w * q, keywords.get("c", 3)) for h, w in counts])
    axes = collator.windows.find_sample_axes(3, tuple(shapes[0].tolist()))
    dtype = np.dtype(keywords.get("dtype", "uint8"))
    width = packing.lay_out_samples(collator.windows, axes, shapes, None).shape[1]
    array = np.zeros((9, width * (step or 1)), dtype)[:, :: step or 1]
    part = None if step is None else Part(array.shape, array.strides, dtype)

    def lay_out(numbers):
        program = PackedProgram(collator.windows, axes, np.dtype("uint8"), part)
        packed = packing.lay_out_samples(collator.windows, axes, shapes[numbers], None)
        return program.find_layouts(packed)

    for number, layout in enumerate(lay_out(range(len(shapes)))):
        (alone,) = lay_out([number])
        assert layout._replace(plan=alone.plan) == alone
        assert layout.plan.target.dtype == alone.plan.target.dtype


@given(
    samples=st.lists(
        st.tuples(st.permutations(range(3)), st.lists(st.integers(0, 4), min_size=3, max_size=3),
                  st.lists(st.sampled_from([1, 2, -1, -3]), min_size=3, max_size=3)),
        min_size=1, max_size=5,
    ),
    swapped=st.booleans(),
)  # fmt: skip
def test_addresses_of_samples_are_those_of_numpy(samples, swapped):
    arrays = []
    for order, sizes, steps in samples:
        whole = np.zeros([n * abs(step) for n, step in zip(sizes, steps, strict=True)], "i2")
        strided = whole[tuple(slice(None, None, step) for step in steps)]
        assert strided.shape == tuple(sizes)
        arrays.append(strided.transpose(order))
    if swapped:  # an equal dtype that is another object
        arrays.append(np.zeros((2, 2, 2), np.dtype(np.int16, metadata={"other": "object"})))
    starts, sizes, strides = with_addresses(describe_arrays(arrays)).known_addresses
    assert starts.tolist() == [x.__array_interface__["data"][0] for x in arrays]
    assert [*map(tuple, sizes.tolist())] == [x.shape for x in arrays]
    assert [*map(tuple, strides.tolist())] == [x.strides for x in arrays]
    wrong = [np.zeros((1, 1), "i2"), np.zeros((1, 1, 1), "u2")]
    for array in wrong:
        with pytest.raises(LayoutkitError, match=f"sample {len(arrays)} has"):
            with_addresses(describe_arrays([*arrays, array]))


# ---- resizing ----------------------------------------------------------------------------


@pytest.mark.budget(3)
@pytest.mark.parametrize("resize", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_resized_patches_equal_patches_of_resized_images(resize, dtype):
    images = _make_images([(37, 55, 3), (100, 31, 3), (14, 80, 3), (50, 50, 3)])
    sizes = [(28, 42), (14, 28), (56, 14), (28, 42)]
    flip = [False, True, False, True]
    options = {"resize": resize, "dtype": dtype, "mean": 3, "casting": "unsafe"}
    packed = collate(images, PATCHES, p=14, q=14, size=sizes, flip={"w": flip}, **options)
    parts = []
    for x, (height, width), flag in zip(images, sizes, flip, strict=True):
        (resized,) = collate([x], "hwc->bhwc", h=height, w=width, flip={"w": flag}, **options)
        parts.append(_split_patches(resized, 14, 14))
    _assert_packs(packed, parts, [(h // 14, w // 14) for h, w in sizes])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 3), st.integers(1, 3)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["uint8", "float32", "float64"]),
    st.sampled_from(["hwc", "chw", "F"]),
    st.sampled_from([(4, 4), (20, 3), (5, 18)]),
    st.sampled_from([None, "h", "w", "both"]),
    st.sampled_from([None, (2, 1, 0), (0, 0, 1, 2)]),
)
def test_merged_patches_of_resized_images(samples, dtype, memory, patch, flip, channels):
    p, q = patch
    images = _make_images([(height, width, 3) for height, width, _, _ in samples], dtype)
    if memory != "hwc":
        copies = {"chw": lambda x: x.transpose(2, 0, 1).copy().transpose(1, 2, 0),
                  "F": np.asfortranarray}  # fmt: skip
        images = [copies[memory](x) for x in images]
    sizes = [(2 * p * h, 2 * q * w) for _, _, h, w in samples]
    flips = {"both": {"h": True, "w": True}}.get(flip, flip)
    options = {"resize": "bicubic", "flip": flips, "channels": channels, "dtype": "float32"}
    packed = collate(images, MERGED, m=2, n=2, p=p, q=q, size=sizes, **options)
    parts = []
    for x, (height, width) in zip(images, sizes, strict=True):
        stack = collate([x], "hwc->bhwc", h=height, w=width, **options)
        parts.append(convert(stack, f"b{MERGED}", m=2, n=2, p=p, q=q))
    _assert_packs(packed, parts, [(h, w) for _, _, h, w in samples])


@pytest.mark.budget(5, all=5)
@pytest.mark.parametrize(
    "options",
    [
        {"resize": "nearest", "flip": "w", "channels": (0, 2, 1, 1)},
        {"resize": "nearest", "fill": (3, 4, 5), "crop": {"h": 40}, "offset": {"h": -2}},
        {"resize": "nearest", "ignore": 7, "fill": 9, "dtype": "float32", "scale": 0.5},
        {"resize": "area", "ignore": 7, "fill": (1, 2, 3), "flip": "c", "channels": (2, 0)},
        {"resize": "bicubic", "ignore": 7},
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float64", "int32"])
def test_one_job_moves_and_averages_all_windows(options, dtype, monkeypatch):
    if dtype == "int32" and options.get("resize") in ("area", "bicubic"):
        pytest.skip("int32 is not averaged")
    images = [x % 12 for x in _make_images([(37, 55, 3), (100, 31, 3), (14, 80, 3)], dtype)]
    sizes = [(28, 42), (56, 14), (28, 42)]
    monkeypatch.setattr(PackedCollation, "_convert", None)  # converts one sample
    stacks = [
        collate([x], "hwc->bhwc", h=h, w=w, **options)
        for x, (h, w) in zip(images, sizes, strict=True)
    ]
    packed = collate(images, "hwc->(bhw)c", size=sizes, **options)
    _assert_packs(packed, [x.reshape(-1, x.shape[-1]) for x in stacks], sizes)
    if options["resize"] != "nearest":
        packed = collate(images, PATCHES, p=14, q=14, size=sizes, **options)
        parts = [_split_patches(part, 14, 14) for (part,) in stacks]
        _assert_packs(packed, parts, [(h // 14, w // 14) for h, w in sizes])


@pytest.mark.parametrize(("shape", "height", "width"), [((150, 210), 84, 112), ((40, 50), 56, 84)])
def test_processors_of_transformers_differ_because_pillow_rounds_to_bytes(shape, height, width):
    """Resize as Qwen2-VL's processor does, by Pillow, whose rows and columns are rounded to bytes.

    With the same two roundings the patches are equal; without, they are those of Pillow's floats.
    """
    image_module = pytest.importorskip("PIL.Image")
    y, x = np.indices(shape)
    waves = [128 + 50 * np.sin(x / 9 + k) + 40 * np.cos(y / 7 - k) for k in range(3)]
    photo = np.stack(waves, -1).astype(np.uint8)
    step = 1 / 255 / 0.26  # of one level of a byte, after the formula

    def resize(channel):
        image = image_module.fromarray(channel)
        return np.asarray(image.resize((width, height), image_module.Resampling.BICUBIC))

    def patches(image, **sizes):
        formula = {"dtype": "float32", "scale": 1 / 255, "mean": 0.5, "std": 0.26}
        return collate([image], "(hp)(wq)c->(bhw)(cpq)", p=14, q=14, **formula, **sizes).data

    def resize_to_bytes(image, **sizes):
        (resized,) = collate([image], "hwc->bhwc", resize="bicubic", dtype="uint8", **sizes)
        return resized

    ours = patches(photo, resize="bicubic", size=(height, width))
    theirs = patches(resize(photo))
    columns = resize_to_bytes(photo, h=shape[0], w=width)  # Pillow resizes rows first
    rounded = patches(resize_to_bytes(columns, h=height, w=width))
    floats = [resize(photo[..., k].astype(np.float32)) for k in range(3)]
    np.testing.assert_allclose(ours, patches(np.stack(floats, -1)), rtol=0, atol=1e-4)
    assert 1e-4 < np.abs(ours - theirs).max() < 2 * step
    # Pillow's weights are integers of 22 bits: a sum that is almost halfway may round differently.
    assert (rounded != theirs).mean() < 2e-3
    assert np.abs(rounded - theirs).max() < 1.01 * step


def test_one_axis_is_resized():
    clips = _make_images([(7, 40), (9, 40), (30, 40)], "float32")
    packed = collate(clips, "tf->(bt)f", resize="bilinear", size=[[4], [9], [11]])
    parts = [
        collate([x], "tf->btf", t=t, resize="bilinear")[0]
        for x, t in zip(clips, (4, 9, 11), strict=True)
    ]
    _assert_packs(packed, parts, [[4], [9], [11]])


def test_parts_of_images_are_resized():
    images = _make_images([(37, 55, 3), (30, 31, 3)])
    crops = {"crop": {"h": [20, 30], "w": 25}, "offset": {"h": [3, 0], "w": [1, 5]}}
    packed = collate(images, PATCHES, p=7, q=7, resize="bilinear", size=(14, 21), **crops)
    stack = collate(images, "hwc->bhwc", h=14, w=21, resize="bilinear", **crops)
    _assert_packs(packed, [_split_patches(x, 7, 7) for x in stack], [[2, 3], [2, 3]])


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("(hp)(wq)c->(bhw)(cpq)", {"p": 14, "q": 14}),
        ("(hp)(wq)c->(bhw)(cpq)", {"p": 3, "q": 2}),
        ("(hp)(wq)c->(bwh)(pqc)", {"p": 33, "q": 300}),
        ("(hmp)(wnq)c->(bhwmn)(cpq)", {"m": 4, "n": 3, "p": 5, "q": 7}),
        ("(hmp)wc->(bhm)w(cp)", {"m": 5, "p": 2, "w": 300}),
        ("hwc->(bhw)c", {}),
        ("hwc->(bwh)c", {}),
        ("hwc->(bh)cw", {"w": 300}),
    ],
)
@pytest.mark.parametrize("memory", ["hwc", "chw"])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_windows_are_packed_in_blocks(pattern, sizes, memory, threads):
    """Windows that have several blocks along both axes; the last blocks overlap others."""
    images = _make_images([(60, 70, 3), (90, 50, 3), (31, 400, 3)])
    if memory == "chw":
        images = [x.transpose(2, 0, 1).copy().transpose(1, 2, 0) for x in images]
    rows = math.prod(sizes.get(x, 1) for x in "mp")
    columns = math.prod(sizes.get(x, 1) for x in "nq")
    windows = [(rows * (1 + 40 // rows), columns * (1 + 600 // columns)), (2 * rows, 3 * columns),
               (rows * (1 + 17 // rows), columns * (1 + 300 // columns))]  # fmt: skip
    if "w" in sizes:
        windows = [(height, sizes["w"]) for height, _ in windows]
    chosen = [pair[:1] if "w" in sizes else pair for pair in windows]
    options = {"resize": "bicubic", "dtype": "float32", "scale": 1 / 255, "mean": (0.1, 0.2, 0.3)}
    packed = collate(images, pattern, size=chosen, threads=threads, **sizes, **options)
    left, right = pattern.split("->")
    parts = []
    for image, (height, width) in zip(images, windows, strict=True):
        stack = collate([image], "hwc->bhwc", h=height, w=width, **options)
        parts.append(convert(stack, f"b{left}->{right}", **sizes))
    np.testing.assert_array_equal(packed.data, np.concatenate(parts))


@pytest.mark.parametrize("order", ["C", "F"])
def test_volumes_are_resized(order, monkeypatch):
    volumes = [np.asarray(x, order=order) for x in _make_images([(5, 9, 12), (8, 7, 6)], "f4")]
    sizes = [(4, 6, 9), (6, 3, 12)]
    monkeypatch.setattr(PackedCollation, "_convert", None)  # converts one sample
    packed = collate(
        volumes, "(dp)(hq)(wr)->(bdhw)(pqr)", p=2, q=3, r=3, size=sizes, resize="bilinear"
    )
    parts = []
    for x, (d, h, w) in zip(volumes, sizes, strict=True):
        stack = collate([x], "dhw->bdhw", d=d, h=h, w=w, resize="bilinear")
        parts.append(convert(stack, "b(dp)(hq)(wr)->(bdhw)(pqr)", p=2, q=3, r=3))
    _assert_packs(packed, parts, [(2, 2, 3), (3, 1, 4)])


def test_resized_axes_beside_axes_of_one_size():
    """Videos of any length, each image of which is resized to one size."""
    videos = _make_images([(2, 20, 30, 3), (3, 25, 17, 3)])
    options = {"h": 8, "w": 10, "resize": "bilinear", "dtype": "float32"}
    packed = collate(videos, "thwc->(bt)chw", size=[[2], [3]], **options)
    parts = [collate(list(x), "hwc->bchw", **options) for x in videos]
    _assert_packs(packed, parts, [[2], [3]])


def test_resized_images_in_out_of_any_strides():
    images = _make_images([(40, 30, 3), (20, 24, 3)])
    options = {"resize": "bilinear", "size": [(6, 4), (2, 8)], "p": 2, "q": 2, "dtype": "float32"}
    expected = collate(images, PATCHES, **options)
    out = np.full((24, 24), -1, np.float32)[::-2, ::-2]
    packed = collate(images, PATCHES, out=out[:, :12], **options)
    _assert_packs(packed, expected.split(), [[3, 2], [1, 4]])
    assert np.shares_memory(packed.data, out)
    assert (out[10:] == -1).all()
    with pytest.raises(DtypeError, match="int8"):
        collate(images, PATCHES, out=np.zeros((10, 12), np.int8), **options)


@pytest.mark.budget(0)
def test_resized_images_are_of_any_byte_order_and_may_be_empty():
    images = _make_images([(7, 9, 3), (8, 5, 3)], "int16")
    options = {"resize": "area", "size": [(4, 2), (2, 2)], "p": 2, "q": 2}
    swapped = collate([x.astype(">i2") for x in images], PATCHES, **options)
    np.testing.assert_array_equal(swapped.data, collate(images, PATCHES, **options).data)
    empty = collate([x[..., :0] for x in images], PATCHES, **options)
    assert empty.data.shape == (3, 0)


def test_crops_outside_of_resized_images():
    images = _make_images([(10, 12, 3), (20, 9, 3)])
    options = {"resize": "bilinear", "size": (4, 6), "p": 2, "q": 3, "crop": {"h": 8, "w": 8}}
    with pytest.raises(ShapeError, match="sample 1 has size 9 along w, but its crop of 8 goes"):
        collate(images, PATCHES, offset={"w": 3}, **options)
    filled = collate(images, PATCHES, offset={"w": 3}, fill=5, **options)
    stack = collate(
        images, "hwc->bhwc", h=4, w=6, resize="bilinear", fill=5, crop=options["crop"],
        offset={"w": 3},
    )  # fmt: skip
    _assert_packs(filled, [_split_patches(x, 2, 3) for x in stack], [[2, 2], [2, 2]])


def _choose_size(height, width, factor, min_pixels, max_pixels):
    """Return the size that Qwen2-VL's processor chooses: `smart_resize` of transformers."""
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        return tuple(
            max(factor, math.floor(side / beta / factor) * factor) for side in (height, width)
        )
    if rows * columns < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        return tuple(math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=8))
def test_sizes_are_chosen_as_by_qwen2_vl(shapes):
    images = [np.zeros((height, width, 1), np.uint8) for height, width in shapes]
    long_images = [max(pair) > 200 * min(pair) for pair in shapes]
    options = {"multiple": 28, "min_pixels": 56 * 56, "max_pixels": 28 * 28 * 9}
    collator = Collator(PATCHES, p=14, q=14, resize="nearest", **options)
    if any(long_images):
        with pytest.raises(ShapeError, match=f"sample {long_images.index(True)} has sizes h="):
            collator(images)
        return
    expected = [_choose_size(*pair, *options.values()) for pair in shapes]
    assert (14 * collator(images).sizes).tolist() == [list(pair) for pair in expected]


# ---- options and errors ------------------------------------------------------------------


def test_collator_has_equal_options_in_all_forms():
    collator = Collator(
        PATCHES, p=14, q=14, resize="bicubic", multiple=28, max_pixels=3136, flip="random", seed=4
    )
    images = _make_images([(60, 50, 3), (30, 90, 3)])
    expected = collator(images, positions=[5, 6])
    stored = json.loads(json.dumps(collator.to_dict()))
    for other in (Collator.from_dict(stored), pickle.loads(pickle.dumps(collator))):
        assert other == collator
        assert other.fingerprint == collator.fingerprint
        np.testing.assert_array_equal(other(images, positions=[5, 6]).data, expected.data)
    fixed = Collator(PATCHES, p=14, q=14, resize="bicubic", size=(28, 56))
    assert Collator.from_dict(fixed.to_dict()) == fixed
    assert fixed.fingerprint != collator.fingerprint
    assert fixed(images).sizes.tolist() == [[2, 4]] * 2
    assert fixed(images, size=(28, 28)).sizes.tolist() == [[2, 2]] * 2


def test_random_flips_reverse_images():
    images = _make_images([(4, 6, 3)] * 16)
    packed = Collator("(hp)(wq)c->(bhw)(cpq)", p=2, q=2, flip="random")(images)
    kinds = set()
    for image, patches in zip(images, packed.split(), strict=True):
        candidates = image, image[:, ::-1]
        matches = [np.array_equal(patches, _split_patches(x, 2, 2)) for x in candidates]
        assert sum(matches) == 1
        kinds.add(matches[0])
    assert kinds == {True, False}


def _make_photos(count=12):
    return _make_images([(30 + n, 45 - n, 3) for n in range(count)])


# ---- random windows ----------------------------------------------------------------------


def test_random_crops_are_those_of_windows_of_one_size():
    """Parts are drawn as for other batches, and sizes are chosen for the parts."""
    photos, drawn = _make_photos(), {"crop": "random", "flip": "random", "seed": 3}
    options = {"resize": "bicubic", "dtype": "float32", **drawn}
    packed = Collator(PATCHES, p=5, q=5, multiple=10, max_pixels=900, **options)
    batch = packed(photos, positions=range(12), epoch=1)
    placed = Collator("hwc->bchw", h=9, w=9, **options).place(photos, positions=range(12), epoch=1)
    parts, sizes = [], []
    for photo, begin, extent, flips in zip(
        photos, placed.begins, placed.sizes, placed.flips, strict=True
    ):
        part = photo[tuple(slice(n, n + m) for n, m in zip(begin, extent, strict=True))]
        h, w = _choose_size(*extent.tolist(), 10, 100, 900)
        (resized,) = collate([part], "hwc->bhwc", h=h, w=w, resize="bicubic", dtype="float32")
        resized = resized[:, ::-1] if flips[1] else resized
        parts.append(_split_patches(resized, 5, 5))
        sizes.append((h // 5, w // 5))
    _assert_packs(batch, parts, sizes)
    assert len({*sizes}) > 3
    assert len({*placed.flips[:, 1].tolist()}) == 2


@pytest.mark.parametrize("of_call", [False, True])
def test_random_windows_without_resizing(of_call):
    """Windows of `size=` pixels begin anywhere in their samples, equally often."""
    ramp = np.arange(8 * 9, dtype=np.int64).reshape(8, 9)
    sizes = [(6, 6), (4, 9)] * 600 if of_call else [(6, 6)] * 1200
    collator = Collator("(hp)(wq)->(bhw)(pq)", p=2, q=3, size=(6, 6), offset="random")
    packed = collator([ramp] * 1200, positions=range(1200), size=sizes if of_call else None)
    begins = []
    for (height, width), patches in zip(sizes, packed.split(), strict=True):
        y, x = divmod(int(patches[0, 0]), 9)
        begins.append((height, y, x))
        window = ramp[y : y + height, x : x + width]
        blocks = window.reshape(height // 2, 2, width // 3, 3).transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(patches, blocks.reshape(-1, 6))
    kinds, counts = np.unique(begins, axis=0, return_counts=True)
    assert len(kinds) == (17 if of_call else 12)  # 3 x 4, and 5 x 1
    assert (counts > 1200 / 17 / 3).all()


def test_offsets_of_crops_of_a_call_are_drawn_for_their_sizes():
    photos = _make_photos(40)
    crop = {"h": [min(x.shape[:2]) for x in photos], "w": 3}
    for pattern, sizes in ((PATCHES, {"p": 2, "q": 2, "size": (4, 4)}),
                           ("hwc->bchw", {"h": 4, "w": 4})):  # fmt: skip
        collator = Collator(pattern, resize="area", crop={"h": 3, "w": 3}, offset="random", **sizes)
        placements = collator.place(photos, crop=crop, positions=range(40))
        assert (placements.sizes[:, 0] == crop["h"]).all()
        assert not placements.outside.any()
        assert (placements.begins[:, 1] > 20).any()


RANDOM = [
    {"flip": "random", "channels": (0, 0, 2)},
    {"flip": {"h": "random", "c": "random"}},
    {"size": (20, 15), "offset": "random"},
    {"size": (40, 50), "offset": "random", "flip": "random", "fill": 7},
    {"resize": "bilinear", "multiple": 10, "crop": "random", "flip": "random"},
    {"resize": "nearest", "size": (10, 20), "crop": {"scale": (0.1, 0.2)}},
    {"resize": "area", "size": (10, 20), "crop": {"h": 12, "w": 17}, "offset": "random"},
    {"resize": "bilinear", "multiple": 5, "crop": {"h": 50}, "fill": 3},
]


@pytest.mark.parametrize("options", RANDOM, ids=str)
def test_placements_make_the_batch_that_would_have_drawn_them(options):
    photos = [x[: len(x) // 5 * 5, : x.shape[1] // 5 * 5] for x in _make_photos()]
    collator = Collator(PATCHES, p=5, q=5, dtype="float32", seed=2, **options)
    expected = collator(photos, positions=range(12))
    for samples in (photos, [x.shape for x in photos]):
        placements = collator.place(samples, positions=range(12))
        _assert_packs(collator(photos, placements=placements), expected.split(), expected.sizes)
    assert Collator.from_dict(collator.to_dict()) == collator
    assert pickle.loads(pickle.dumps(placements)) == placements
    np.testing.assert_array_equal(
        collator([photos[n] for n in (7, 2)], placements=placements[[7, 2]]).data,
        np.concatenate([expected.split()[n] for n in (7, 2)]),
    )


def test_masks_and_boxes_follow_packed_images():
    y, x = np.indices((40, 60))
    images = [np.stack([y, x, 0 * x], -1).astype(np.float32)] * 8
    draws = {"crop": {"scale": (0.2, 0.6)}, "flip": "random", "seed": 1}
    collator = Collator("hwc->(bhw)c", resize="nearest", multiple=4, **draws)
    placements = collator.place(images, positions=range(8))
    packed = collator(images, placements=placements)
    masks = Collator("hw->(bhw)", resize="nearest", size=(1, 1))
    rows = masks([image[..., 1] for image in images], placements=placements)
    np.testing.assert_array_equal(rows.data, packed.data[:, 1])
    for placement, pixels, size in zip(placements, packed.split(), packed.sizes, strict=True):
        height, width = size.tolist()
        centers = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1) + 0.5
        expected = np.floor(placement.to_image(centers))  # x, y
        np.testing.assert_array_equal(pixels.reshape(height, width, 3)[..., [1, 0]], expected)
        assert placement.region == (0, 0, width, height)
    assert str(placements[:1]).startswith("sample 0: h[")


@pytest.mark.parametrize(
    ("pattern", "options", "match"),
    [
        (PATCHES, {"offset": "random"}, r"no window along h, w; .* size=\(224, 224\)"),
        (PATCHES, {"crop": "random"}, r"give resize= as well, or .* size=\(224, 224\), offset="),
        (PATCHES, {"resize": "area", "offset": "random"}, "give the size of the crop too"),
        ("tfg->(btfg)", {"resize": "area", "crop": "random"}, r'along t, f, g; give crop=\{"t"'),
    ],
)
def test_random_windows_need_sizes(pattern, options, match):
    sizes = {"p": 5, "q": 5} if pattern == PATCHES else {}
    with pytest.raises(ArgumentError, match=match):
        Collator(pattern, **sizes, **options)


def test_random_crops_need_the_size_of_windows():
    collator = Collator(PATCHES, p=5, q=5, resize="area", crop="random")
    for use in (collator, collator.place):
        with pytest.raises(ArgumentError, match=r"needs the sizes .* give size=\(40, 40\)"):
            use(_make_photos())
    assert collator(_make_photos(), size=(5, 10)).sizes.tolist() == [[1, 2]] * 12


def _place(pattern="hwc->(bhw)c", shapes=((30, 45, 3), (31, 44, 3)), **options):
    return Collator(pattern, **options).place(shapes)


@pytest.mark.parametrize(
    ("pattern", "options", "placements", "match"),
    [
        ("hwc->(bhw)c", {}, _place(resize="area", size=(4, 4)), r"45.*|30.* to 4 .* not resized"),
        ("hwc->(bh)wc", {"w": 9}, _place(size=(4, 4)), "window of 9 along w, but .* one of 4"),
        ("hwc->(bhw)c", {}, _place("hwc->bchw", h=50, w=50, resize="area", fit="pad"), "after it"),
        ("hwc->bhwc", {"h": 4, "w": 4}, _place(size=(4, 4)), "pack these samples, too"),
        ("hwc->(bhw)c", {}, _place(size=(4, 4))[:1], "placements has 1 samples"),
        ("hwc->(bhw)c", {}, _place(shapes=((30, 45, 3),) * 2, size=(4, 4)), "31 along h, but pl"),
        ("tfc->(btf)c", {}, _place(size=(4, 4)), "no axis h of their own"),
        ("hwc->(bhw)c", {"size": (50, 50)}, _place(size=(50, 50), fill=0), "fill=0 to pad"),
    ],
)
def test_placements_that_do_not_fit(pattern, options, placements, match):
    collator = Collator(pattern, **options)
    with pytest.raises(LayoutkitError, match=match):
        collator(_make_photos(2), placements=placements)


def test_placements_replace_the_size_of_a_call():
    placements = _place(size=(4, 4))
    with pytest.raises(ArgumentError, match=r"size=\(4, 4\) and placements= both"):
        Collator("hwc->(bhw)c")(_make_photos(2), size=(4, 4), placements=placements)
    with pytest.raises(ArgumentError, match="give the size of windows by axis, as in h=4, w=4"):
        Collator("hwc->bhwc", h=4, w=4).place([(9, 9, 3)], size=(4, 4))


def test_packed_batches_follow_windows_of_one_size():
    photos = _make_photos()
    drawn = Collator("hwc->bhwc", h=10, w=15, resize="area", crop="random", flip="random")
    placements = drawn.place(photos, positions=range(12))
    batch = drawn(photos, placements=placements)
    packed = Collator(PATCHES, p=5, q=5, resize="area")(photos, placements=placements)
    _assert_packs(packed, [_split_patches(x, 5, 5) for x in batch], [(2, 3)] * 12)


def test_tensors_with_gradients_have_random_windows():
    torch = pytest.importorskip("torch")
    photos = _make_photos(4)
    for options in ({"resize": "bilinear", "multiple": 10, "crop": "random", "flip": "random"},
                    {"size": (20, 25), "offset": "random", "flip": "random"}):  # fmt: skip
        collator = Collator(PATCHES, p=5, q=5, dtype="float32", **options)
        expected = collator(photos, positions=range(4))
        tensors = [torch.from_numpy(x).float().requires_grad_() for x in photos]
        packed = collator(tensors, positions=range(4))
        np.testing.assert_allclose(packed.data.detach().numpy(), expected.data, atol=1e-4)
        np.testing.assert_array_equal(packed.offsets, expected.offsets)


def test_errors_name_the_sample_and_the_sizes():
    images = _make_images([(28, 28, 3), (28, 30, 3)])
    with pytest.raises(ShapeError, match=r"sample 1.*30.*q=14"):
        collate(images, PATCHES, p=14, q=14)
    with pytest.raises(ShapeError, match="sample 1 has size 4 along f, but sample 0 has 5"):
        collate([np.zeros((2, 5)), np.zeros((2, 4))], "tf->(bt)f")
    with pytest.raises(ShapeError, match="sample 1 has 3 axes, but sample 0 has 2"):
        collate([np.zeros((2, 5)), np.zeros((2, 4, 1))], "tf->(bt)f")
    with pytest.raises(DtypeError, match="sample 1 has dtype float32"):
        collate([np.zeros((2, 5)), np.zeros((2, 5), "f4")], "tf->(bt)f")
    with pytest.raises(ShapeError, match=r"sample 1.*30.*q=14"):
        collate(images, PATCHES, p=14, q=14, resize="bilinear", size=[(28, 28), (28, 30)])


@pytest.mark.parametrize(
    ("pattern", "sizes", "shapes", "omitted"),
    [
        ("(hp)(wq)c->(bhw)(cpq)", {"h": 2, "w": 2}, [(28, 28, 3), (14, 28, 3)], "h= and w="),
        ("(hp)(wq)c->(bhw)(cpq)", {"w": 2}, [(28, 28, 3), (14, 42, 3)], "w="),
        (
            "(hmp)(wnq)c->(bhwmn)(cpq)",
            {"h": 1, "w": 2, "m": 2, "n": 1},
            [(28, 28, 3), (56, 28, 3)],
            "h= and w=",
        ),
        ("(hp)(wq)c->(bwh)(cpq)", {"h": 1, "w": 2}, [(14, 28, 3), (14, 42, 3)], "w= and h="),
    ],
)
def test_samples_of_different_sizes_name_the_options_that_are_omitted(
    pattern, sizes, shapes, omitted
):
    samples = [np.zeros(shape, np.uint8) for shape in shapes]
    message = f"give samples of one size; omit {omitted} to pack samples of different sizes"
    with pytest.raises(ShapeError, match=f"{message}$"):
        Collator(pattern, p=14, q=14, **sizes)(samples)
    kept = {name: size for name, size in sizes.items() if f"{name}=" not in omitted}
    packed = Collator(pattern, p=14, q=14, **kept)(samples)
    assert len(packed.data) == sum(h * w // 14**2 for h, w, _ in shapes)


@pytest.mark.parametrize("sizes", [{"h": 2, "w": 2}, {}])
def test_samples_of_different_sizes_that_no_batch_packs_name_no_option(sizes):
    samples = [np.zeros((28, 28, 3), np.uint8), np.zeros((14, 28, 3), np.uint8)]
    with pytest.raises(ShapeError, match=r"give samples of one size$"):
        Collator("(hp)(wq)c->b(hw)(cpq)", p=14, q=14, **sizes)(samples)
    with pytest.raises(ShapeError, match=r"give samples of one size$"):
        Collator("h(wc)->(bc)hw", c=3)([np.zeros((4, 6)), np.zeros((4, 9))])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"resize": "bilinear"}, ArgumentError, "give size="),
        ({"resize": "bilinear", "size": 28}, ArgumentError, "2 whole numbers"),
        ({"resize": "bilinear", "size": [(28, 28)] * 3}, ShapeError, "for 2 samples"),
        ({"resize": "bilinear", "size": (0, 28)}, ShapeError, "sample 0 has size=0 along h"),
        ({"size": (30, 28)}, ShapeError, "sample 0.*30.*p=14"),
        ({"size": (42, 28)}, ShapeError, "sample 0 has size 28 along h, but its window of 42"),
        ({"size": (28, 28), "crop": {"h": 28}}, ArgumentError, "give resize= too"),
        ({"multiple": 28}, ArgumentError, "needs a filter"),
        ({"resize": "bilinear", "min_pixels": 28}, ArgumentError, "multiple="),
        ({"resize": "bilinear", "multiple": 0}, ArgumentError, "whole number"),
        ({"resize": "bilinear", "multiple": 14, "min_pixels": 9, "max_pixels": 4}, ArgumentError,
         "exchange"),
        ({"resize": "bilinear", "fit": "pad"}, ArgumentError, "fit="),
        ({"device": "cpu"}, ArgumentError, "device"),
        ({"memory": "(cpq)(bhw)"}, ArgumentError, "memory"),
    ],
)  # fmt: skip
def test_invalid_options(options, error, words):
    images = _make_images([(28, 28, 3), (28, 42, 3)])
    with pytest.raises(error, match=words):
        collate(images, PATCHES, p=14, q=14, **options)


def test_unknown_sizes_of_a_fold():
    with pytest.raises(ShapeError, match="give all but one"):
        Collator("(hp)(wq)c->(bhw)(cpq)", p=14)


def test_size_needs_a_packed_batch():
    image = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ArgumentError, match="h=4, w=4"):
        collate([image], "hwc->bhwc", size=(4, 4))
    with pytest.raises(ArgumentError, match="different sizes"):
        Collator("hwc->bhwc", h=4, w=4, resize="bilinear", size=(4, 4))


def test_tensors_are_packed():
    torch = pytest.importorskip("torch")
    clips = _make_images([(3, 4), (5, 4)], "float32")
    packed = collate([torch.from_numpy(x) for x in clips], "tf->(bt)f")
    assert isinstance(packed.data, torch.Tensor)
    _assert_packs(packed._replace(data=packed.data.numpy()), clips, [[3], [5]])
    jagged = torch.nested.nested_tensor_from_jagged(packed.data, torch.from_numpy(packed.offsets))
    assert [len(part) for part in jagged.unbind()] == [3, 5]
    out = torch.zeros((9, 4))
    assert collate([torch.from_numpy(x) for x in clips], "tf->(bt)f", out=out).data.shape == (8, 4)
    np.testing.assert_array_equal(out[:8], np.concatenate(clips))


@pytest.mark.parametrize("resize", [None, "bilinear"])
def test_gradients_of_tensors(resize):
    torch = pytest.importorskip("torch")
    images = [torch.from_numpy(x) for x in _make_images([(4, 6, 3), (8, 2, 3)], "float32")]
    for x in images:
        x.requires_grad_()
    options = {"p": 2, "q": 2, "resize": resize, "size": resize and [(2, 4), (4, 2)]}
    packed = collate(images, PATCHES, scale=3, flip="w", **options)
    weights = torch.arange(packed.data.numel(), dtype=torch.float32).reshape(packed.data.shape)
    grads = torch.autograd.grad((packed.data * weights).sum(), images)
    for image, grad, rows, size in zip(
        images, grads, torch.tensor_split(weights, packed.offsets[1:-1].tolist()),
        packed.sizes.tolist(), strict=True,
    ):  # fmt: skip
        height, width = (2 * side for side in size)
        x = image.detach().requires_grad_()
        stack = collate([x], "hwc->bhwc", h=height, w=width, scale=3, flip="w", resize=resize)
        patches = stack[0].reshape(height // 2, 2, width // 2, 2, 3).permute(0, 2, 4, 1, 3)
        (patches.reshape(len(rows), -1) * rows).sum().backward()
        torch.testing.assert_close(grad, x.grad)


@pytest.mark.parametrize("resize", ["nearest", "area"])
def test_tensors_with_gradients_have_ignored_pixels(resize):
    torch = pytest.importorskip("torch")
    images = [x % 4 for x in _make_images([(8, 12, 3), (16, 4, 3)], "float32")]
    options = {"p": 2, "q": 2, "resize": resize, "size": [(2, 4), (4, 2)], "ignore": 2, "fill": -1}
    packed = collate(images, PATCHES, **options)
    tensors = [torch.from_numpy(x).requires_grad_() for x in images]
    np.testing.assert_allclose(
        collate(tensors, PATCHES, **options).data.detach(), packed.data, rtol=1e-6
    )


def test_compiled_functions_refuse_packed_batches():
    torch = pytest.importorskip("torch")
    clips = [torch.zeros((n, 2)) for n in (2, 3)]
    function = torch.compile(lambda x: collate(x, "tf->(bt)f").data, backend="eager")
    with pytest.raises(Exception, match="outside of the compiled function"):
        function(clips)


def test_jax_arrays_are_packed():
    jax = pytest.importorskip("jax")
    clips = _make_images([(3, 4), (5, 4)], "float32")
    arrays = [jax.numpy.asarray(x) for x in clips]
    packed = collate(arrays, "tf->(bt)f")
    assert isinstance(packed.data, jax.Array)
    expected = np.concatenate(clips)
    np.testing.assert_array_equal(packed.data, expected)
    traced = jax.jit(lambda x: collate(x, "tf->(bt)f", scale=2).data)(arrays)
    np.testing.assert_array_equal(traced, 2 * expected)


def test_torch_collator_returns_tensors():
    torch = pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    clips = _make_images([(3, 4), (5, 4)], "float32")
    loader = torch.utils.data.DataLoader(clips, 2, collate_fn=TorchCollator("tf->(bt)f"))
    (packed,) = loader
    assert isinstance(packed.data, torch.Tensor)
    _assert_packs(packed._replace(data=packed.data.numpy()), clips, [[3], [5]])


def test_no_memory_holds_the_batch():
    huge = np.broadcast_to(np.zeros(1, np.uint8), (1 << 57,))
    with pytest.raises(ShapeError, match="no memory holds"):
        collate([huge] * 4, "t->(bt)")


@pytest.mark.parametrize("resize", [{}, {"resize": "bilinear"}])
def test_channels_alone_are_not_packed(resize):
    images = _make_images([(7, 9, 3), (8, 9, 3)])
    batch = collate(images, "hwc->(bc)hw", h=4, w=5, **resize)
    expected = collate(images, "hwc->bchw", h=4, w=5, **resize)
    np.testing.assert_array_equal(batch, expected.reshape(6, 4, 5))
