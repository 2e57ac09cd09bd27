"""Wrong calls: keywords and values of other libraries. Each error names a cure that works.

The keywords belong to torchvision, albumentations, OpenCV, Pillow, NumPy, einops, DALI,
PyTorch and transformers. Code in a cure is run.
"""

import enum
import inspect
import re

import numpy as np
import pytest

import layoutkit
from layoutkit import Collator, Converter, LayoutkitError, accumulate, collate, convert, plan
from layoutkit.data import Dataset, open_index, sampled_batcher, sampler
from layoutkit.planning.keywords import KEYWORDS

X = np.random.default_rng(0).integers(0, 256, (2, 240, 250, 3), dtype=np.uint8)
PHOTOS = [X[0], X[1][:230]]
WINDOW = {"h": 4, "w": 5}
FOREIGN = {
    "size": ["dsize", "image_size", "img_size", "new_shape", "output_size", "shape", "size"],
    "sizes": ["height", "max_size", "resize_x", "sizes", "target_size", "width"],
    "filter": ["align_corners", "filter", "fx", "fy", "interp", "interp_method", "interp_type"],
    "filters": ["interpolation", "interpolation_mode", "mag_filter", "method", "min_filter"],
    "more filters": ["mode", "reducing_gap", "resample", "anti_aliasing", "do_resize"],
    "sides": ["longest_edge", "longest_max_size", "resize_longer", "resize_shorter"],
    "more sides": ["shortest_edge", "smallest_max_size", "keep_aspect_ratio", "keep_ratio"],
    "letterbox": ["auto", "letterbox", "preserve_aspect_ratio", "scaleup", "stride"],
    "formula": ["do_normalize", "do_rescale", "image_mean", "image_std", "max_pixel_value"],
    "more formula": ["normalization", "normalize", "rescale_factor", "scalefactor", "to_float"],
    "colors": ["bgr", "bgr_to_rgb", "color_format", "color_mode", "do_convert_rgb", "image_type"],
    "more colors": ["rgb", "swapRB", "swap_rb", "to_bgr", "to_rgb"],
    "layout": ["axes", "axis", "channel_axis", "channels_first", "data_format", "dim", "dims"],
    "more layout": ["input_data_format", "layout_out", "order", "output_layout", "perm", "NHWC"],
    "memory": ["channels_last", "memory_format", "flatten", "keepdims", "squeeze", "stack"],
    "dtype": ["astype", "ddepth", "dtypes", "out_dtype", "output_dtype", "torch_dtype", "type"],
    "threads": ["max_workers", "n_jobs", "nthreads", "num_threads", "num_workers", "workers"],
    "device": ["cuda", "device_id", "gpu", "map_location", "non_blocking", "pin_memory"],
    "out": ["dst", "inplace", "out_array", "output", "result", "rounding", "saturate"],
    "library": ["framework", "numpy", "return_tensors", "to_tensor", "requires_grad"],
    "clip": ["a_max", "a_min", "clamp", "clip_max", "clip_min", "max", "min", "value_range"],
    "more clip": ["vmax"],
    "crop": ["center_crop", "crop_h", "crop_pos_x", "crop_size", "do_center_crop", "left", "top"],
    "more crop": ["rand_crop", "random_crop", "roi", "window"],
    "flip": ["flip_code", "fliplr", "hflip", "horizontal_flip", "mirror", "p", "rand_mirror"],
    "padding": ["borderType", "border_mode", "constant_values", "cval", "do_pad", "fill_value"],
    "more padding": ["fillcolor", "pad", "pad_if_needed", "pad_size_divisor", "padding", "value"],
    "padded": ["max_length", "pad_to_multiple_of", "pad_value", "padding_value"],
    "random": ["generator", "random_state", "rng", "keys", "image_key", "index", "ids"],
    "lengths": ["attention_mask", "batch_first", "pad_to_longest", "return_lengths", "return_mask"],
    "factor": ["div", "divide", "factor", "multiply", "return_placements"],
    "loop": ["batch_size", "collate_fn", "drop_last", "shuffle"],
    "color changes": ["brightness", "degrees", "gamma", "hue"],
    "unknown": ["anchor", "eps", "name", "training", "verbose", "zzz"],
}
OURS = sorted({name for names in KEYWORDS.values() for name in names} | {"seed", "key", "epoch"})
VALUES = {"size": (8, 9), "resize": (8, 9), "interpolation": 2, "crop": (3, 4)}
FUNCTIONS = {
    "plan": plan,
    "sampled_batcher": sampled_batcher,
    "open_index": open_index,
    "sampler": sampler,
}
CALLS = {
    "convert": lambda **k: convert(X, "bhwc->bchw", **k),
    "Converter": lambda **k: Converter("bhwc->bchw", **k),
    "plan": lambda **k: plan("bhwc->bchw", X.shape, "uint8", **k),
    "collate": lambda **k: collate(PHOTOS, "hwc->bchw", **{**WINDOW, **k}),
    "Collator": lambda **k: Collator("hwc->bchw", **{**WINDOW, **k}),
    "accumulate": lambda **k: accumulate([(X, "bhwc")], "bchw", **k),
}
DATA_CALLS = {
    "sampled_batcher": lambda **k: sampled_batcher(X, **{"batch_size": 2, **k}),
    "open_index": lambda **k: open_index(X, **k),
    "sampler": lambda **k: sampler("shuffle", 10, **k),
    "Dataset": lambda **k: Dataset(X, **k),
}
KEYWORD = r'[a-z_]+=(?:"[^"]*"|\([^()]*\)|\{[^{}]*\}|True|False|[\d./ ]*\d)'
CODE = re.compile(rf"{KEYWORD}(?:, {KEYWORD})*")
COLLATE = re.compile(r"collate\(.*?\)(?=$|,|;)")
NAMESPACE = {"x": X, "collate": collate, "convert": convert}


def has(function, name):
    """Return True if a function has a parameter of this name."""
    return function in FUNCTIONS and name in inspect.signature(FUNCTIONS[function]).parameters


def refused(call, name, value):
    """Return the message of the error of a call with a keyword; None if the call is valid."""
    try:
        call(**{name: value})
    except LayoutkitError as error:
        message = str(error)
    else:
        return None
    assert "\n" not in message
    assert f"did you mean {name}=" not in message
    return message


def check_cure(call, message):
    """Run the code after the first semicolon of a message."""
    cure = message.partition("; ")[2]
    assert cure
    cure = cure.partition("Collator(")[0]  # with an ellipsis in its arguments
    for code in COLLATE.findall(cure):
        assert len(eval(code, NAMESPACE)) == 2
    for code in CODE.findall(COLLATE.sub("", cure)):
        if "cuda" not in code:
            call(**eval(f"dict({code})"))


@pytest.mark.budget(25)
@pytest.mark.parametrize("names", FOREIGN)
@pytest.mark.parametrize("function", CALLS)
def test_a_keyword_of_another_library_is_refused_with_a_cure(function, names):
    for name in FOREIGN[names]:
        if not has(function, name):
            message = refused(CALLS[function], name, VALUES.get(name, True))
            assert message is not None, name
            check_cure(CALLS[function], message)


@pytest.mark.parametrize("function", CALLS)
def test_a_keyword_of_another_function_is_refused_with_a_cure(function):
    """Values are wrong for every function, so that a keyword of the function raises as well."""
    for name in OURS:
        message = refused(CALLS[function], name, VALUES.get(name, object()))
        assert message is not None, name
        if "neither a keyword" in message:
            check_cure(CALLS[function], message)


@pytest.mark.parametrize("function", DATA_CALLS)
def test_sources_and_loops_refuse_keywords_of_other_libraries(function):
    for name in (name for names in FOREIGN.values() for name in names):
        if not has(function, name):
            message = refused(DATA_CALLS[function], name, True)
            assert message is not None, name
            assert re.search(r"; (give|did you mean|there are) ", message), message


class InterpolationMode(enum.Enum):
    """That of torchvision."""

    BILINEAR = "bilinear"
    NEAREST_EXACT = "nearest-exact"


class Resampling(enum.IntEnum):
    """That of Pillow."""

    LANCZOS = 1
    BICUBIC = 3
    BOX = 4


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (Resampling.BICUBIC, 'resize="bicubic"'),
        (Resampling.BOX, 'resize="area"'),
        (Resampling.LANCZOS, 'resize="lanczos"'),
        (InterpolationMode.BILINEAR, 'resize="bilinear"'),
        (InterpolationMode.NEAREST_EXACT, 'resize="nearest"'),
        (3, 'resize="bicubic" for that number of Pillow, "area" of OpenCV'),
        (0, 'resize="nearest"'),
        ("INTER_CUBIC", 'resize="bicubic"'),
        ("cv2.INTER_LINEAR", 'resize="bilinear"'),
        ("box", 'resize="area"'),
        ("bicubik", 'resize="bicubic"'),
        ((24, 36), 'h=24, w=36, resize="bilinear"'),
        (224, 'h=224, w=224, resize="bilinear"'),
        (True, 'resize="bilinear"'),
        ("sharp", 'resize="bilinear"'),
    ],
)
@pytest.mark.parametrize("function", ["collate", "Collator"])
def test_filters_of_other_libraries(function, value, cure):
    message = refused(CALLS[function], "resize", value)
    assert cure in message
    check_cure(CALLS[function], message)


WRONG_VALUES = [
    ({"crop": (10, 11)}, "h=10, w=11"),
    ({"crop": (10, 11), "resize": "bilinear"}, '{"h": 10, "w": 11}'),
    ({"flip": True}, "an axis"),
    ({"flip": ("h", "w")}, '"w"'),
    ({"offset": (1, 2)}, "a dict"),
    ({"fill": "white"}, "give a number"),
    ({"channels": "bgr"}, "(2, 1, 0)"),
    ({"fit": "letterbox", "resize": "bilinear"}, "'pad'"),
    ({"short_side": (8, 9), "resize": "bilinear"}, "a whole number"),
    ({"mean": "imagenet"}, "mean=(0.485, 0.456, 0.406)"),
    ({"scale": (1, 2)}, "std accepts several"),
    ({"clip": 255}, "give (lo, hi)"),
    ({"dtype": "fp16"}, '"float16"'),
    ({"casting": "round"}, "'saturate'"),
    ({"device": "gpu"}, '"cuda"'),
    ({"memory": "channels_last"}, 'memory="bhwc"'),
    ({"memory": "NHWC"}, 'did you mean memory="bhwc"?'),
    ({"threads": "auto"}, "a whole number"),
    ({"pad_before": 3}, 'give resize="bilinear"'),
    ({"fit": "pad"}, 'give resize="bilinear"'),
    ({"h": "24"}, "a size is an int"),
]


@pytest.mark.parametrize(("keywords", "cure"), WRONG_VALUES)
@pytest.mark.parametrize("function", ["collate", "Collator"])
def test_values_of_other_libraries(function, keywords, cure):
    """A size may be wrong until the call, because a traced one is a symbol."""
    with pytest.raises(LayoutkitError, match=re.escape(cure)):
        made = CALLS[function](**keywords)
        made(PHOTOS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("random", "shuffle"), ("RandomSampler", "shuffle"), ("WeightedRandomSampler", "weighted")],
)
def test_orders_of_other_libraries(name, meant):
    with pytest.raises(layoutkit.DataError, match=f"did you mean '{meant}'"):
        sampler(name, 10, batch_size=2)


def test_objects_in_place_of_names_of_orders():
    with pytest.raises(
        layoutkit.DataError, match="sampler= is an object; give the name of an order"
    ):
        sampled_batcher(X, batch_size=2, sampler=object())


def test_objects_in_place_of_samples():
    collator = Collator("hwc->bchw", **WINDOW)
    with pytest.raises(layoutkit.ArgumentError, match=r"such as \[\*samples.values\(\)\]"):
        collator({"a": X[0]})
    with pytest.raises(layoutkit.ArgumentError, match="sample 1 is None"):
        collator([(X[0], 1), None])
    with pytest.raises(layoutkit.ArgumentError, match=r'part 0 is a numpy.ndarray.*\(x, "bhwc"\)'):
        accumulate([X], "bhwc")
    for samples in (PHOTOS, [{"image": x} for x in PHOTOS]):
        with pytest.raises(layoutkit.ArgumentError, match="key="):
            Collator("hwc->bchw", **WINDOW, key="x")(samples)
    with pytest.raises(layoutkit.ArgumentError, match="the name or number of one item"):
        Collator("hwc->bchw", key=["image", "mask"])


def test_objects_in_place_of_arrays():
    with pytest.raises(layoutkit.ArgumentError, match=r"one of its values, such as x\['a'\]"):
        convert({"a": X}, "bhwc->bchw")
    with pytest.raises(layoutkit.ArgumentError, match="sample 1 is None"):
        collate([X[0], None], "hwc->bchw", **WINDOW)


def test_an_axis_that_is_only_on_the_right_divides_one_that_is_folded_on_the_left():
    with pytest.raises(layoutkit.ShapeError, match=r"fold it on the left, as in \(hp\)"):
        Collator("hwc->b(hw)(pqc)", h=2, w=2, p=2, q=2)(PHOTOS)
    patches = Collator("(hp)(wq)c->b(hw)(pqc)", h=120, w=125, p=2, q=2)(X[:1])
    assert patches.shape == (1, 120 * 125, 12)


@pytest.mark.parametrize("name", ["b", "batch", "n"])
def test_names_of_the_axis_of_samples(name):
    pattern = f"h w c -> {name} c h w"
    np.testing.assert_array_equal(collate([*X], pattern), X.transpose(0, 3, 1, 2))


def test_n_is_an_axis_of_a_sample_beside_b():
    np.testing.assert_array_equal(collate([*X], "nwc->bncw").shape, (2, 240, 3, 250))


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda: sampled_batcher(X, batch_size=2, fill=0), "refill"),
        (lambda: sampled_batcher(X, batch_size=2, copy=True), "crop"),
        (lambda: open_index(X, weights=[1]), "did you mean"),
        (lambda: sampler("round-robin", 10, batch_size=2), "did you mean"),
    ],
)
def test_a_name_that_is_no_typo_has_no_guess(call, wrong):
    with pytest.raises(layoutkit.DataError) as caught:
        call()
    assert wrong not in str(caught.value)


def test_an_output_that_is_a_tensor_beside_samples_that_are_arrays():
    torch = pytest.importorskip("torch")
    out = torch.zeros(2, 3, 4, 5, dtype=torch.uint8)
    for call in (
        lambda out: collate(PHOTOS, "hwc->bchw", out=out, **WINDOW),
        lambda out: convert(X[:, :4, :5], "bhwc->bchw", out=out),
    ):
        with pytest.raises(layoutkit.ArgumentError, match=r"pass out\.numpy\(\)"):
            call(out)
        call(out.numpy())
        assert out.any()
        out.zero_()
