"""Placements: windows that several Collators share, and the points and boxes in them."""

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import (
    ArgumentError,
    Collator,
    DtypeError,
    LayoutkitError,
    Placement,
    Placements,
    ShapeError,
    collate,
)
from layoutkit.images import placement as image_placement
from tests.helpers.arrays_of import assert_same

rng = np.random.default_rng(5)
SHAPES = [(20, 25, 3), (31, 24, 3), (22, 40, 3), (27, 27, 3)]
PHOTOS = [rng.integers(0, 256, shape).astype(np.uint8) for shape in SHAPES]
MASKS = [rng.integers(0, 9, shape[:2]).astype(np.int64) for shape in SHAPES]
SIZES = {"h": 12, "w": 10}


def stamp(shape, box):
    """Return an image of zeros with ones in a box of whole pixels."""
    image = np.zeros(shape, np.uint8)
    x1, y1, x2, y2 = box
    image[y1:y2, x1:x2] = 1
    return image


# ---- equal batches -----------------------------------------------------------------------

FITS = [
    {}, {"fit": "cover"}, {"fit": "pad"}, {"fit": "pad", "pad_before": {"h": 0}, "fill": 7},
    {"fit": "pad", "center": "floor"}, {"short_side": 14}, {"short_side": 8, "fill": 3},
    {"crop": "random"}, {"crop": {"scale": (0.2, 0.6)}}, {"crop": {"h": 9}, "offset": "random"},
    {"crop": {"h": 30, "w": 9}, "fill": [1, 2, 3], "fit": "pad"},
]  # fmt: skip
CROPS = [{}, {"offset": "random"}, {"offset": {"h": -3, "w": "random"}, "fill": [4, 5, 6]}]


def options_of_collators():
    for fit, flip, filter_ in product(FITS, [None, "random", {"h": "random", "w": True}], FILTERS):
        yield {"resize": filter_, "flip": flip, **fit}
    for crop, flip in product(CROPS, [None, "random", {"h": "random", "c": "random"}]):
        yield {"flip": flip, **crop}


FILTERS = ["nearest", "bilinear"]
CASES = list(options_of_collators())


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_placements_make_the_batch_that_would_have_drawn_them(options, dtype):
    collator = Collator("hwc->bchw", **SIZES, dtype=dtype, seed=3, **options)
    expected = collator(PHOTOS, positions=[5, 2, 9, 7], epoch=1)
    placements = collator.place(PHOTOS, positions=[5, 2, 9, 7], epoch=1)
    assert_same(collator(PHOTOS, placements=placements), expected)
    assert collator.place(SHAPES, positions=[5, 2, 9, 7], epoch=1) == placements
    order = [3, 1, 1]
    some = collator([PHOTOS[i] for i in order], placements=placements[order])
    assert_same(some, expected[order])


@pytest.mark.parametrize("resize", [None, "bilinear", "nearest"])
def test_arguments_of_a_call_are_placed(resize):
    collator = Collator("hwc->bhwc", **SIZES, resize=resize, flip="random", fill=0)
    call = {"offset": {"h": [1, 2, -3, 4]}, "flip": {"w": [True, False, True, False]}}
    if resize is not None:
        call["crop"] = {"h": [12, 13, 14, 15], "w": 9}
    placements = collator.place(PHOTOS, **call)
    assert_same(collator(PHOTOS, placements=placements), collator(PHOTOS, **call))
    own = {"resize": resize, "fill": 0}
    assert_same(collate(PHOTOS, "hwc->bhwc", placements=placements, **own, **SIZES),
                collate(PHOTOS, "hwc->bhwc", **call, **own, **SIZES))  # fmt: skip


@pytest.mark.parametrize("resize", [{}, {"resize": "area", "crop": "random"}])
@pytest.mark.parametrize("indices", [None, [4, 0, -1], []])
def test_samples_of_one_array(resize, indices):
    images = rng.integers(0, 256, (6, 20, 25, 3)).astype(np.uint8)
    options = resize or {"offset": "random"}
    collator = Collator("bhwc->bchw", **SIZES, flip="random", seed=8, **options)
    placements = collator.place(images, indices=indices)
    assert collator.place(images.shape, indices=indices) == placements
    assert len(placements) == (6 if indices is None else len(indices))
    expected = collator(images, indices=indices)
    assert_same(collator(images, indices=indices, placements=placements), expected)


def test_folded_axes_are_not_placed():
    stacks = [rng.random((8, 20 + i, 25)).astype(np.float32) for i in range(4)]
    collator = Collator("(tc)hw->bthwc", t=2, h=12, w=10, resize="bicubic", crop="random")
    placements = collator.place(stacks, positions=range(4))
    assert placements.axes == ("h", "w")
    expected = collator(stacks, positions=range(4))
    assert_same(collator(stacks, placements=placements), expected)


@pytest.mark.parametrize("options", [{"offset": "random"}, {"resize": "bilinear"}])
def test_a_plan_shows_placements(options):
    collator = Collator("hwc->bchw", **SIZES, flip="random", **options)
    samples = PHOTOS + PHOTOS[:1]
    placements = collator.place(samples, positions=range(5))
    plan = collator.plan(samples, placements=placements)
    assert plan.placements == placements
    *lines, last = [
        line[12:] for line in str(plan).splitlines() if " sample " in line or "more" in line
    ]
    assert lines == str(placements).splitlines()[:4]
    assert last == "... and 1 more"
    plan = collator.plan(samples[:4], placements=placements[:4])
    assert "  placed    sample 0: h[" in str(plan)
    assert "more" not in str(plan)
    assert plan.plans == collator.plan(samples[:4], flip={"w": placements.flips[:4, 1]}).plans


def test_a_plan_refuses_placements_of_other_samples():
    collator = Collator("hwc->bchw", **SIZES)
    placements = collator.place(SHAPES)
    with pytest.raises(ShapeError, match="placements has 4 samples, but there are 3"):
        collator.plan(PHOTOS[:3], placements=placements)
    with pytest.raises(ArgumentError, match="flip='w' and placements= both place"):
        collator.plan(PHOTOS, placements=placements, flip="w")


def test_calls_without_positions_draw_and_place_alike():
    first, second = (
        Collator("hwc->bchw", **SIZES, resize="bilinear", crop="random") for _ in range(2)
    )
    for _ in range(2):
        assert_same(first(PHOTOS, placements=first.place(PHOTOS)), second(PHOTOS))


def test_samples_of_several_items_are_placed():
    collator = Collator("hwc->bchw", **SIZES, offset="random", key="image")
    records = [{"name": str(i), "image": x} for i, x in enumerate(PHOTOS)]
    placements = collator.place(records, positions=range(4))
    expected = collator(records, positions=range(4))
    result = collator(records, placements=placements)
    assert result["name"] == expected["name"]
    assert_same(result["image"], expected["image"])


def test_the_output_and_memory_options_are_used():
    collator = Collator("hwc->bchw", **SIZES, offset="random", memory="bhwc")
    placements = collator.place(PHOTOS, positions=range(4))
    assert_same(collator(PHOTOS, placements=placements), collator(PHOTOS, positions=range(4)))
    out = np.zeros((4, 3, 12, 10), np.uint8)
    plain = Collator("hwc->bchw", **SIZES)
    assert plain(PHOTOS, placements=placements, out=out) is out
    assert_same(out, np.ascontiguousarray(collator(PHOTOS, placements=placements)))


# ---- other Collators ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"crop": "random"}, {"fit": "pad"}, {"fit": "cover"}, {"short_side": 16},
        {"crop": {"h": 9, "w": 12}, "offset": "random", "fit": "pad"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("flip", [None, "random", {"h": True}])
def test_masks_follow_images(options, flip):
    """A mask that is a channel of the image has the same pixels as the image."""
    images = [np.stack([mask, mask, mask], 2).astype(np.float32) for mask in MASKS]
    images_by = Collator("hwc->bchw", **SIZES, resize="nearest", fill=99, flip=flip, **options)
    placements = images_by.place(images, positions=range(4))
    batch = images_by(images, placements=placements)
    masks_by = Collator("hw->bhw", **SIZES, resize="nearest", fill=99)
    assert_same(masks_by(MASKS, placements=placements), batch[:, 1].astype(np.int64))
    folded = Collator("hw->b(hw)", **SIZES, resize="nearest", fill=99, dtype="float64")
    assert_same(folded(MASKS, placements=placements), batch[:, 0].reshape(4, -1).astype(float))


def test_crops_follow_crops_and_unscaled_resizes():
    crops = Collator("hwc->bhwc", **SIZES, offset="random", flip="random")
    placements = crops.place(PHOTOS, positions=range(4))
    expected = crops(PHOTOS, positions=range(4))
    for filter_ in ("nearest", "bilinear", "area"):
        resized = Collator("hwc->bhwc", **SIZES, resize=filter_)
        assert_same(resized(PHOTOS, placements=placements), expected)
    resized = Collator("hwc->bhwc", **SIZES, resize="area", crop=SIZES, offset="random", seed=4)
    placements = resized.place(PHOTOS, positions=range(4))
    assert_same(crops(PHOTOS, placements=placements), resized(PHOTOS, positions=range(4)))


def test_padding_of_an_unscaled_sample_is_filled():
    letterbox = Collator("hwc->bhwc", h=40, w=40, resize="bilinear", short_side=20, fill=8)
    placements = letterbox.place(PHOTOS[:1])
    assert placements.scaled.tolist() == [[20, 25]]
    crops = Collator("hwc->bhwc", h=40, w=40, fill=8)
    assert_same(crops(PHOTOS[:1], placements=placements), letterbox(PHOTOS[:1]))


def test_clips_are_flipped_along_axes_without_a_size():
    clips = [rng.integers(0, 256, (5, 20, 25)).astype(np.uint8) for _ in range(3)]
    collator = Collator("thw->bthw", **SIZES, flip={"t": "random", "w": "random"})
    placements = collator.place(clips, positions=range(3))
    assert placements.axes == ("h", "w", "t")
    assert_same(collator(clips, placements=placements), collator(clips, positions=range(3)))
    turned = [clip.transpose(1, 2, 0) for clip in clips]
    other = Collator("hwt->bthw", **SIZES)
    assert_same(other(turned, placements=placements), collator(clips, positions=range(3)))


@pytest.mark.parametrize("resize", [None, "nearest", "bilinear"])
def test_clips_are_padded_to_the_longest(resize):
    clips = [rng.random((3 + 2 * i, 20, 25)).astype(np.float32) for i in range(3)]
    options = {"resize": resize, **SIZES} if resize else {"offset": {"h": "random"}, **SIZES}
    collator = Collator("thw->bthw", t="longest", flip={"t": "random", "w": True}, **options)
    placements = collator.place(clips, positions=range(3))
    assert_same(collator(clips, placements=placements), collator(clips, positions=range(3)))


def test_selected_channels():
    call = {"flip": {"c": [True, False, True, False]}}
    for resize in (None, "bilinear", "nearest"):
        collator = Collator("hwc->bchw", **SIZES, channels=(2, 0), resize=resize)
        placements = collator.place(PHOTOS, **call)
        assert placements.axes == ("h", "w", "c")
        assert_same(collator(PHOTOS, placements=placements), collator(PHOTOS, **call))


# ---- errors ------------------------------------------------------------------------------

DRAWN = Collator("hwc->bchw", **SIZES, resize="bilinear", crop="random").place(SHAPES)
PADDED = Collator("hwc->bchw", **SIZES, resize="bilinear", fit="pad").place(SHAPES)
CROPPED = Collator("hwc->bchw", **SIZES).place(SHAPES)
CUT = Collator("hwc->bchw", **SIZES, offset={"c": 1}, fill=0).place(SHAPES)


@pytest.mark.parametrize(
    ("options", "samples", "call", "match"),
    [
        ({}, PHOTOS, {"flip": "w"}, "flip='w' and placements= both place"),
        ({}, PHOTOS, {"crop": {"h": 3}}, "crop=.* and placements= both"),
        ({}, PHOTOS, {"placements": [1]}, "placements is a list; give what Collator.place"),
        ({}, PHOTOS[:3], {}, r"4 samples, but there are 3; .* placements\[:3\]"),
        ({"h": 11}, PHOTOS, {}, "size 11 along h, but sample 0 is placed in a window of 12"),
        ({}, PHOTOS[::-1], {}, "sample 0 has size 27 along h, but .* of size 20"),
        ({"c": 2, "resize": None}, PHOTOS, {"placements": CROPPED}, "along c, and its window 2"),
        ({"resize": None}, PHOTOS, {}, "is scaled from size .* to 12 along h, but .* not resized"),
        ({"pattern": "xwc->bxwc", "h": None, "x": 12}, PHOTOS, {}, 'of "xwc->bxwc" have no axis h'),
        ({}, PHOTOS, {"placements": PADDED}, "sample 0 of size 20 along h is padded .* fill=0"),
        ({}, PHOTOS, {"placements": CUT}, "sample 0 is cropped to size 3 along c.*give c=3"),
    ],
)  # fmt: skip
def test_placements_that_do_not_fit(options, samples, call, match):
    arguments = {"pattern": "hwc->bhwc", "resize": "bilinear", **SIZES, **options}
    sizes = {name: value for name, value in arguments.items() if value is not None}
    collator = Collator(sizes.pop("pattern"), **sizes)
    shape = len(samples), sizes.get("h", 12), 10, sizes.get("c", 3)
    out = np.full(shape, 9, np.uint8)
    with pytest.raises(LayoutkitError, match=match):
        collator(samples, **{"placements": DRAWN, **call}, out=out)
    assert (out == 9).all()


def test_a_crop_with_padding_needs_a_filter():
    resized = Collator("hwc->bhwc", h=12, w=12, resize="area", fit="pad", crop={"h": 12, "w": 6})
    placements = resized.place(SHAPES)
    assert placements.scaled.tolist() == placements.sizes.tolist()
    with pytest.raises(ArgumentError, match="cropped to size 6 along w and padded to 12"):
        Collator("hwc->bhwc", h=12, w=12, fill=0)(PHOTOS, placements=placements)


@pytest.mark.parametrize(
    ("samples", "match"),
    [
        ([(20, 25)], "hwc->bchw"),
        ([(20, 25, 3), (20, 25)], "sample 1 has 2 axes, but sample 0 has 3"),
        ([(20, 25, 3), (20.5, 25, 3)], "axis 0"),
        ([(20, -1, 3)], "axis 1"),
        ([(1 << 60, 25, 3)], "too large for any memory"),
        ([(20, 25, 3), (20, 25, 4)], "sample 1 has size 4 along c"),
        ([(8, 25, 3)], "window of 12 goes from -2"),
    ],
)
def test_shapes_that_are_not_placed(samples, match):
    with pytest.raises(LayoutkitError, match=match):
        Collator("hwc->bchw", **SIZES).place(samples)


# ---- the sequence ------------------------------------------------------------------------


def test_placements_are_an_immutable_sequence():
    assert len(DRAWN) == 4
    assert list(DRAWN) == [DRAWN[0], DRAWN[1], DRAWN[2], DRAWN[-1]]
    assert isinstance(DRAWN[np.int64(1)], Placement)
    assert DRAWN[1:3] == DRAWN[np.array([1, 2])] != DRAWN[[2, 1]]
    assert list(DRAWN[::-1]) == list(DRAWN)[::-1]
    assert len(DRAWN[[]]) == 0
    assert {DRAWN[:2], DRAWN[:2]} == {DRAWN[:2]}
    assert DRAWN != 3
    for placements in (DRAWN, DRAWN[1:], pickle.loads(pickle.dumps(DRAWN))):
        with pytest.raises(ValueError, match="read-only"):
            placements.begins[:] = 0
        with pytest.raises(AttributeError):
            placements.axes = ()
    for key, error in ((4, ShapeError), ("a", ArgumentError), ([4], ShapeError)):
        with pytest.raises(error):
            DRAWN[key]


def test_placements_are_pickled():
    again = pickle.loads(pickle.dumps(DRAWN))
    assert again == DRAWN
    assert isinstance(again, Placements)
    assert again != PADDED


def test_placements_print_a_line_for_each_sample():
    collator = Collator("hwc->bchw", h=8, w=6, resize="area", fit="pad")
    assert str(collator.place([(40, 60, 3), (16, 12, 3)], flip={"w": [True, False]})) == (
        "sample 0: h[0:40] of 40 -> 4[-2:6], w[0:60] of 60 -> 6 flipped\n"
        "sample 1: h[0:16] of 16 -> 8, w[0:12] of 12 -> 6"
    )


# ---- points and boxes --------------------------------------------------------------------

WAYS = [
    {"crop": "random"}, {"fit": "pad"}, {"fit": "cover"}, {"short_side": 40}, {"short_side": 70},
    {"crop": {"h": 30, "w": 25}, "offset": "random", "fit": "pad"},
]  # fmt: skip


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_a_box_is_where_its_pixels_are(options, seed):
    """Compare the clipped box with the pixels of a box of ones in the window."""
    collator = Collator(
        "hw->bhw", h=64, w=60, resize="nearest", fill=0,
        flip={"h": "random", "w": "random"}, seed=seed, **options,
    )  # fmt: skip
    random = np.random.default_rng(seed)
    shape = 71, 83
    for position in range(12):
        x1, x2 = np.sort(random.integers(0, 83, 2)) + [0, 1]
        y1, y2 = np.sort(random.integers(0, 71, 2)) + [0, 1]
        placements = collator.place([shape], positions=[position])
        (window,) = collator([stamp(shape, (x1, y1, x2, y2))], placements=placements)
        boxes, kept = placements[0].fit_boxes([[x1, y1, x2, y2]])
        rows, columns = np.nonzero(window)
        if not len(rows):
            assert not len(kept) or np.diff(boxes.reshape(2, 2), axis=0).min() <= 1
            continue
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        # A pixel is moved if its center is in the box.
        np.testing.assert_allclose(boxes[0], seen, rtol=0, atol=0.5 + 1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {**SIZES, "offset": "random", "flip": "random"},
        {**SIZES, "resize": "bilinear", "crop": "random", "flip": {"h": "random"}},
        {"w": 10, "flip": {"w": True}},
    ],
)
def test_the_matrix_and_the_inverse(options):
    collator = Collator("hwc->bchw", **options)
    points = rng.random((7, 2)) * 20
    for where in collator.place([(20, 25, 3), (20, 33, 3)], positions=[3, 4]):
        homogeneous = np.concatenate([points, np.ones((7, 1))], 1)
        np.testing.assert_allclose(homogeneous @ where.matrix.T, where.to_fitted(points))
        np.testing.assert_allclose(where.to_image(where.to_fitted(points)), points, atol=1e-9)
        assert where.matrix.shape == (2, 3)


def test_axes_that_are_not_placed_are_the_identity():
    where = Collator("hwc->bchw", w=10).place([(20, 25, 3)])[0]
    assert where == Placement((1.0, 1.0), 0.0, -8.0, (0.0, -np.inf, 10.0, np.inf))
    boxes, _ = where.fit_boxes([[0, -5, 30, 900]])
    assert boxes.tolist() == [[0, -5, 10, 900]]
    with pytest.raises(ArgumentError, match=r"along h and w, but these samples .* along l"):
        Collator("lc->bcl", l=8).place([(20, 2)])[0]


def test_names_of_axes():
    collator = Collator("height width c -> b c height width", height=10, width=12, flip="random")
    assert collator.place([(20, 24, 3)], positions=[0])[0].top == -5


def test_an_image_has_the_placement_of_a_collator():
    collator = Collator("hwc->bhwc", h=16, w=12, resize="bilinear", fit="pad")
    assert image_placement((31, 24), (16, 12), "pad") == collator.place([(31, 24, 3)])[0]


WHOLE = Placement((2.0, 0.5), top=-10.0, left=0.0, region=(0.0, 0.0, 50.0, 40.0))


@st.composite
def boxes_of_images(draw):
    corners = st.tuples(*[st.floats(-50, 150, width=32)] * 4)
    rows = draw(st.lists(corners, max_size=8))
    boxes = np.array(rows, np.float64).reshape(-1, 2, 2)
    return np.sort(boxes, 1).reshape(-1, 4)


def slow_fit(where, box, clip, min_size, min_visible):
    """Return one fitted box, or None if it is dropped, by the words of the contract."""
    fitted = where.to_fitted(box).tolist()
    region = where.region
    inside = [min(max(value, region[i % 2]), region[2 + i % 2]) for i, value in enumerate(fitted)]
    width, height = inside[2] - inside[0], inside[3] - inside[1]
    area = (fitted[2] - fitted[0]) * (fitted[3] - fitted[1])
    if width <= 0 or height <= 0 or min(width, height) < min_size:
        return None
    if width * height < min_visible * area:
        return None
    return inside if clip else fitted


@given(boxes=boxes_of_images(), clip=st.booleans(), min_size=st.sampled_from([0, 1, 5.5]),
       min_visible=st.sampled_from([0, 0.3, 1]), flip=st.booleans())  # fmt: skip
def test_boxes_are_clipped_and_dropped(boxes, clip, min_size, min_visible, flip):
    where = WHOLE._replace(scale=(2.0, -0.5), left=50.0) if flip else WHOLE
    result, kept = where.fit_boxes(boxes, clip, min_size, min_visible)
    expected = [slow_fit(where, box, clip, min_size, min_visible) for box in boxes]
    assert kept.tolist() == [i for i, box in enumerate(expected) if box is not None]
    assert kept.dtype == np.int64
    assert result.tolist() == [box for box in expected if box is not None]
    assert result.shape == (len(kept), 4)


@pytest.mark.parametrize("empty", [[], np.empty((0, 4)), np.empty((0, 4), np.float32)])
def test_no_boxes(empty):
    boxes, kept = WHOLE.fit_boxes(empty)
    assert boxes.shape == (0, 4)
    assert boxes.dtype == (empty.dtype if hasattr(empty, "dtype") else np.float64)
    assert kept.shape == (0,)


def test_a_box_that_is_cut_off_is_not_visible_in_the_padding():
    """A crop is padded, so the padding hides pixels of the sample."""
    collator = Collator("hw->bhw", h=20, w=40, resize="area", fit="pad", crop={"w": 10}, fill=0)
    image = stamp((20, 60), (10, 0, 22, 20))
    (where,) = placements = collator.place([image])
    assert not collator([image], placements=placements).any()
    assert where.region == (15.0, 0.0, 25.0, 20.0)
    assert not len(where.fit_boxes([[10, 0, 22, 20]])[1])


@pytest.mark.parametrize(
    ("boxes", "options", "error", "match"),
    [
        ([1, 2, 3, 4], {}, ShapeError, r"an array of shape \(4,\); give an array \(n, 4\)"),
        ([[1, 2, 3]], {}, ShapeError, r"\(1, 3\)"),
        ([[[1, 2, 3, 4]]], {}, ShapeError, r"\(1, 1, 4\)"),
        ([[1, 2, 3, 4], [1]], {}, ShapeError, "boxes is list|list"),
        ([["a", "b", "c", "d"]], {}, DtypeError, "dtype <U1"),
        ([[True, False, True, True]], {}, DtypeError, "dtype bool"),
        ([[0, 0, 1, 1], [5, 0, 4, 1]], {}, ArgumentError, r"box 1 is \[5, 0, 4, 1\]; .*x1 <= x2"),
        ([[0, 5, 1, 1]], {}, ArgumentError, "y1 <= y2"),
        ([[0, 0, np.nan, 1]], {}, ArgumentError, "finite"),
        ([[0, 0, np.inf, 1]], {}, ArgumentError, "finite"),
        ([[0, 0, 1, 1]], {"min_size": -1}, ArgumentError, "min_size=-1"),
        ([[0, 0, 1, 1]], {"min_visible": 1.5}, ArgumentError, "min_visible=1.5; .* from 0 to 1"),
        ([[0, 0, 1, 1]], {"min_size": "2"}, ArgumentError, "min_size='2'"),
    ],
)  # fmt: skip
def test_boxes_that_are_refused(boxes, options, error, match):
    with pytest.raises(error, match=match):
        WHOLE.fit_boxes(boxes, **options)


# ---- libraries ---------------------------------------------------------------------------

LIBRARY_OPTIONS = [
    {"resize": "bilinear", "crop": "random", "flip": "random"},
    {"resize": "bicubic", "fit": "pad", "fill": 5, "flip": {"h": True}},
    {"resize": "area", "short_side": 20},
    {"resize": "nearest", "crop": "random", "channels": (2, 0)},
    {"offset": {"h": -2, "w": "random"}, "fill": [1, 2, 3], "flip": {"c": "random"}},
]


@pytest.mark.parametrize("options", LIBRARY_OPTIONS, ids=str)
def test_tensors_with_gradients(options):
    torch = pytest.importorskip("torch")
    collator = Collator("hwc->bchw", **SIZES, scale=0.5, seed=1, dtype="float32", **options)
    results = []
    placements = collator.place(PHOTOS, positions=range(4))
    for call in ({"positions": range(4)}, {"placements": placements}):
        samples = [torch.from_numpy(x).float().requires_grad_() for x in PHOTOS]
        batch = collator(samples, **call)
        weights = torch.arange(batch.numel()).reshape(batch.shape) % 7 / 8
        results.append([batch, *torch.autograd.grad((batch * weights).sum(), samples)])
    for drawn, placed in zip(*results, strict=True):
        assert_same(placed.detach().numpy(), drawn.detach().numpy())


def test_a_compiled_function_has_the_windows_of_its_placements():
    torch = pytest.importorskip("torch")
    collator = Collator("hwc->bchw", **SIZES, resize="bilinear", crop="random", seed=1)
    samples = [torch.from_numpy(x).float() for x in PHOTOS]
    compiled = torch.compile(
        lambda samples, placements: collator(samples, placements=placements) * 2, fullgraph=True
    )
    for position in range(4):  # an object that is deleted may leave its address to the next one
        placements = collator.place(PHOTOS, positions=[position] * 4)
        expected = collator(samples, placements=placements) * 2
        assert_same(compiled(samples, placements).numpy(), expected.numpy())
        del placements
    with pytest.raises(Exception, match="placements is a list"):
        torch.compile(lambda x: collator(x, placements=[1]))(samples)


@pytest.mark.parametrize("options", LIBRARY_OPTIONS, ids=str)
def test_traced_arrays(options):
    jax = pytest.importorskip("jax")
    collator = Collator("hwc->bchw", **SIZES, dtype="float32", seed=1, **options)
    samples = [x.astype(np.float32) for x in PHOTOS]
    placements = collator.place(samples, positions=range(4))
    traced = jax.jit(lambda *x: collator(list(x), placements=placements))(*samples)
    expected = collator(samples, placements=placements)
    np.testing.assert_allclose(np.asarray(traced), expected, rtol=1e-5, atol=1e-4)


def test_workers_of_torch_accept_placements():
    torch = pytest.importorskip("torch")
    import layoutkit.torch

    collator = layoutkit.torch.Collator("hwc->bchw", **SIZES, resize="area", crop="random")
    records = [(x, i) for i, x in enumerate(PHOTOS)]
    placements = collator.place(records, positions=range(4))
    batch, labels = collator(records, placements=placements)
    expected, _ = collator(records, positions=range(4))
    assert torch.equal(batch, expected)
    assert labels.tolist() == [0, 1, 2, 3]
