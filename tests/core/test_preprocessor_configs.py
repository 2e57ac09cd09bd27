"""Collators of configurations of transformers and timm, beside a transcription of their steps."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import ArgumentError, Collator, collate, from_preprocessor_config
from tests.helpers.resizing import detr_size

Image = pytest.importorskip("PIL.Image")

SHAPES = [(30, 40), (25, 33), (24, 24), (10, 50), (70, 23), (24, 27), (12, 11)]
MEAN, STD = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 24, "width": 20}}
CLIP = {
    "feature_extractor_type": "CLIPFeatureExtractor",
    "size": 24,
    "crop_size": 24,
    "resample": 3,
    "image_mean": MEAN,
    "image_std": STD,
}
TIMM = {
    "input_size": (3, 24, 24),
    "interpolation": "bicubic",
    "mean": MEAN,
    "std": STD,
    "crop_pct": 0.875,
    "crop_mode": "center",
}
OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
PILLOW = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}


def make_images(dtype=np.uint8):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*shape, 3)).astype(dtype) for shape in SHAPES]


def resize(image, size, filter_number):
    """Resize by Pillow without rounding, channel by channel."""
    planes = [Image.fromarray(np.float32(image[..., c])) for c in range(image.shape[-1])]
    resized = [np.asarray(plane.resize(size[::-1], filter_number)) for plane in planes]
    return np.stack(resized, axis=-1).clip(0, 255)


def short_side_size(image, side):
    height, width = image.shape[:2]
    long = int(side * max(height, width) / min(height, width))
    return (long, side) if width <= height else (side, long)


def center_crop(image, size, halve=math.floor):
    """Pad with zeros where the image is smaller, and crop its center."""
    for axis in (0, 1):
        missing = max(size[axis] - image.shape[axis], 0)
        pads = [(missing // 2, (missing + 1) // 2) if axis == a else (0, 0) for a in range(3)]
        image = np.pad(image, pads)
    top, left = (halve((image.shape[axis] - size[axis]) / 2) for axis in (0, 1))
    return image[top : top + size[0], left : left + size[1]]


def normalize(image, scale=1 / 255, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)):
    return ((image * scale - mean) / std).transpose(2, 0, 1)


# ---- transformers --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
def test_vit_stretches(number):
    images = make_images()
    expected = [normalize(resize(image, (24, 20), number)) for image in images]
    batch = from_preprocessor_config({**VIT, "resample": number})(images)
    assert batch.dtype == np.float32
    np.testing.assert_allclose(batch, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "crop"),
    [
        (24, 24),
        ({"shortest_edge": 25}, {"height": 24, "width": 21}),
        (20, {"height": 24, "width": 21}),
    ],
)
def test_clip_scales_the_shorter_side_and_crops(size, crop):
    pair = (crop, crop) if isinstance(crop, int) else tuple(crop.values())
    side = size if isinstance(size, int) else size["shortest_edge"]
    images = make_images()
    expected = [
        normalize(center_crop(resize(x, short_side_size(x, side), 3), pair), 1 / 255, MEAN, STD)
        for x in images
    ]
    batch = from_preprocessor_config({**CLIP, "size": size, "crop_size": crop})(images)
    np.testing.assert_allclose(batch, expected, atol=2e-5)


def test_images_are_padded_to_the_crop_without_resizing():
    images = make_images()
    config = {**CLIP, "do_resize": False, "do_rescale": False, "image_mean": [1, 2, 3]}
    expected = [normalize(center_crop(x, (24, 24)), 1, (1, 2, 3), STD) for x in images]
    np.testing.assert_allclose(
        from_preprocessor_config(config)(images), expected, rtol=1e-5, atol=1e-6
    )


def test_bytes_of_pillow_are_at_most_one_away():
    images = make_images()
    config = {**VIT, "do_rescale": False, "do_normalize": False}
    batch = from_preprocessor_config(config)(images)
    theirs = [np.asarray(Image.fromarray(image).resize((20, 24), 2)) for image in images]
    assert batch.dtype == np.uint8
    assert abs(np.int16(batch) - np.array(theirs).transpose(0, 3, 1, 2)).max() <= 1


def test_attributes_that_are_null_or_absent_have_the_defaults_of_their_class():
    name = {"image_processor_type": "CLIPImageProcessorFast"}
    full = {**name, "size": {"shortest_edge": 224}, "resample": 3, "do_center_crop": True}
    empty = {**name, "size": None, "do_rescale": None, "any_other": None, "do_pad": None}
    assert from_preprocessor_config(empty) == from_preprocessor_config(full)
    assert from_preprocessor_config(full).windows.resize.filter == "bicubic"


@pytest.mark.budget(0)
def test_batches_have_the_layout_of_the_configuration():
    last = from_preprocessor_config({**VIT, "data_format": "channels_last"})
    assert last(make_images()).shape == (7, 24, 20, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rescale_offset": True, "tile": 2}, "rescale_offset, tile: no step"),
        ({"resample": 5}, "resample=5; the filters that agree"),
        ({"resample": "bicubic"}, "resample='bicubic'"),
        ({"do_resize": 1}, "do_resize=1; it must be true or false"),
        ({"size": "224"}, "size='224'; give a dict"),
        ({"size": {"shortest_edge": 24}}, "without do_center_crop keeps the aspect ratio"),
        ({"size": {"longest_edge": 24}, "do_center_crop": True}, "keeps the aspect ratio"),
        ({"do_center_crop": True, "crop_size": 20}, r"batch\[..., 2:22, 0:20\]"),
        ({"do_center_crop": True, "crop_size": {"shortest_edge": 9}}, "give its height and width"),
        ({"do_pad": True, "pad_size": {"height": 99, "width": 99}}, "set do_pad to false"),
        ({"data_format": "last"}, "data_format='last'; give one of channels_first"),
        ({"data_format": []}, r"data_format=\[\]; give one of channels_first"),
        (
            {"image_processor_type": "DetrImageProcessor", "size": None, "do_pad": False},
            "depends on its image",
        ),
        ({"image_processor_type": "SamImageProcessor"}, "the known processors are Beit, Bit"),
        ({"image_processor_type": "Qwen2VLImageProcessor"}, "give areas in pixels"),
        (
            {"image_processor_type": "Qwen2VLImageProcessor", "do_pad": True},
            "neither crops nor pads",
        ),
        ({"image_processor_type": None}, "image_processor_type is missing"),
    ],
)
def test_steps_that_a_collator_does_not_do_are_errors(change, message):
    with pytest.raises(ArgumentError, match=message):
        from_preprocessor_config({**VIT, **change})


def test_detr_scales_images_and_pads_them_by_the_mean_color():
    images = make_images()
    data, lengths = from_preprocessor_config({"image_processor_type": "DetrImageProcessor"})(images)
    formula = {"dtype": "float32", "scale": 1 / 255, "mean": (0.485, 0.456, 0.406)}
    formula["std"] = (0.229, 0.224, 0.225)
    for image, (height, width), batch in zip(images, lengths.tolist(), data, strict=True):
        assert (height, width) == detr_size(*image.shape[:2], 800, 1333)
        one = collate([image], "hwc->bchw", h=height, w=width, resize="bilinear", **formula)
        np.testing.assert_array_equal(batch[:, :height, :width], one[0])
        assert np.abs(batch[:, height:]).max(initial=0) < 0.01
        assert np.abs(batch[..., width:]).max(initial=0) < 0.01
    assert data.shape[2:] == tuple(lengths.max(0))


def test_the_advice_for_a_second_crop_works():
    images = make_images()
    config = {**VIT, "do_center_crop": False}
    expected = [normalize(center_crop(resize(x, (24, 20), 2), (20, 20))) for x in images]
    batch = from_preprocessor_config(config)(images)[..., 2:22, 0:20]
    np.testing.assert_allclose(batch, expected, atol=1e-5)


def smart_size(height, width, least, most):
    """Return the size that Qwen2-VL's processor chooses, for patches of 4 in blocks of 2."""
    sides = np.array([round(height / 8), round(width / 8)]) * 8
    if sides.prod() > most:
        return (
            np.maximum(
                np.floor(np.array([height, width]) / math.sqrt(height * width / most) / 8), 1
            )
            * 8
        )
    if sides.prod() < least:
        return np.ceil(np.array([height, width]) * math.sqrt(least / (height * width)) / 8) * 8
    return sides


@pytest.mark.parametrize("pixels", ["size", "min_pixels"])
def test_qwen_cuts_images_of_all_sizes_into_patches(pixels):
    least, most = 600, 1000
    edges = {"size": {"shortest_edge": least, "longest_edge": most}}
    names = edges if pixels == "size" else {"min_pixels": least, "max_pixels": most}
    config = {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4, **names}
    patches, grids = [], []
    for image in make_images():
        height, width = map(int, smart_size(*image.shape[:2], least, most))
        planes = normalize(resize(image, (height, width), 3), mean=OPENAI_MEAN, std=OPENAI_STD)
        blocks = planes.reshape(3, height // 8, 2, 4, width // 8, 2, 4)
        patches.append(blocks.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3 * 4 * 4))
        grids.append([height // 4, width // 4])
    packed = from_preprocessor_config(config)(make_images())
    np.testing.assert_allclose(packed.data, np.concatenate(patches), atol=2e-5)
    assert (packed.sizes * 2).tolist() == grids


# ---- timm ----------------------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_timm_crops_the_center(interpolation):
    images = make_images()
    number = PILLOW[interpolation]
    side = math.floor(24 / 0.875)
    expected = [
        normalize(
            center_crop(resize(x, short_side_size(x, side), number), (24, 24), round),
            1 / 255,
            MEAN,
            STD,
        )
        for x in images
    ]
    batch = from_preprocessor_config({**TIMM, "interpolation": interpolation})(images)
    np.testing.assert_allclose(batch, expected, atol=2e-5)


def test_timm_squashes():
    images = make_images()
    config = {**TIMM, "input_size": (3, 24, 17), "crop_mode": "squash", "crop_pct": 1.0}
    expected = [normalize(resize(x, (24, 17), 3), 1 / 255, MEAN, STD) for x in images]
    np.testing.assert_allclose(from_preprocessor_config(config)(images), expected, atol=2e-5)


@given(height=st.integers(1, 300), width=st.integers(1, 300))
def test_timm_adds_borders_as_wide_as_its_transform(height, width):
    config = {**TIMM, "input_size": (3, 24, 17), "crop_mode": "border", "crop_pct": 1.0}
    white = np.full((height, width, 3), 255, np.uint8)
    ratio = max(height / 24, width / 17)
    inner = max(round(height / ratio), 1), max(round(width / ratio), 1)
    expected = np.empty((24, 17, 3))
    expected[:] = [round(255 * mean) for mean in MEAN]
    top, left = (24 - inner[0]) // 2, (17 - inner[1]) // 2
    expected[top : top + inner[0], left : left + inner[1]] = 255
    batch = from_preprocessor_config(config)([white])
    np.testing.assert_allclose(batch[0], normalize(expected, 1 / 255, MEAN, STD), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_input_size": (3, 9, 9)}, "test_input_size: no step"),
        ({"interpolation": "random"}, "interpolation='random'"),
        ({"input_size": 224}, "give channels, height and width"),
        ({"input_size": (3, "24", "24")}, "give channels, height and width"),
        ({"input_size": (3, 24.0, 24.0)}, "give channels, height and width"),
        ({"input_size": None}, "image_processor_type is missing"),
        ({"crop_mode": "border", "crop_pct": 1, "mean": "x"}, "mean is 'x'"),
        ({"crop_mode": "border", "crop_pct": 1, "mean": [math.nan] * 3}, "finite"),
        ({"crop_pct": 0}, "give a share above 0"),
        ({"crop_mode": "squash"}, 'does what "center" does for a square'),
        ({"crop_mode": "border"}, '"squash" and "border" with crop_pct=1'),
        ({"input_size": (3, 24, 20)}, r"input_size=\(3, 24, 20\)"),
    ],
)
def test_other_transforms_of_timm_are_errors(change, message):
    with pytest.raises(ArgumentError, match=message):
        from_preprocessor_config({**TIMM, **change})


# ---- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [VIT, CLIP, TIMM])
def test_a_file_is_read_as_its_content(tmp_path, config):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(config))
    collator = from_preprocessor_config(str(path))
    assert collator.fingerprint == from_preprocessor_config(config).fingerprint
    assert Collator.from_dict(json.loads(json.dumps(collator.to_dict()))) == collator


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, json.dumps({**VIT, "resample": 9})])
def test_errors_name_the_file(tmp_path, text):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=r"preprocessor_config\.json"):
        from_preprocessor_config(path)


def test_a_file_that_names_a_file_is_an_error(tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(str(path)))
    with pytest.raises(
        ArgumentError, match=r"^\S+json: config is a value of type str; give a dict"
    ):
        from_preprocessor_config(path)


def test_one_mean_for_all_channels_is_a_border():
    config = {**TIMM, "crop_mode": "border", "crop_pct": 1}
    one, three = (from_preprocessor_config({**config, "mean": m}) for m in (0.5, [0.5] * 3))
    image = np.full((20, 10, 3), 9, np.uint8)
    np.testing.assert_array_equal(one([image]), three([image]))


def test_other_types_are_errors():
    with pytest.raises(ArgumentError, match="config is a value of type int"):
        from_preprocessor_config(3)
