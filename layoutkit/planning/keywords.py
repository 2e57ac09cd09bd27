"""The error for a keyword that a conversion, a batch or a sum does not have, with a cure.

Users bring the keywords of torchvision, albumentations, OpenCV, Pillow, NumPy, einops, DALI and
transformers: `_TOPICS` groups them, and the functions below say what a call has in their place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from .._utils.validation import as_int
from ..errors import ShapeError
from ..layout.pattern import Pattern, axis_name

_CONVERT = (
    "dtype", "scale", "mean", "std", "clip", "casting", "device", "copy", "memory", "threads",
    "pad_to", "pad_before", "fill", "center", "channels",
)  # fmt: skip
_COLLATE = (
    "offset", "flip", "crop", "fill", "channels", "resize", "antialias", "fit", "short_side",
    "pad_before", "center", "dtype", "scale", "mean", "std", "clip", "casting", "device", "memory",
    "threads",
)  # fmt: skip
KEYWORDS: dict[str, tuple[str, ...]] = {
    "convert": (*_CONVERT, "out"),
    "collate": (*_COLLATE, "indices", "out"),
    "Collator": (*_COLLATE, "seed", "key"),
    "accumulate": ("dtype", "out"),
}
_NOUNS = {"convert": "a conversion", "accumulate": "a sum"}  # others: a collation
_CALL_ARGUMENTS = ("indices", "out", "positions", "epoch")  # of a Collator

_LONG_NAMES = {"height": "h", "width": "w", "depth": "d", "time": "t", "length": "l", "batch": "b"}

# The keywords of other libraries, by what they are about. Endings of do_..., random_..., ... are
# looked up without the prefix.
_TOPICS: dict[str, str] = {
    "memory": "memory_format channels_last contiguous_format",
    "layout": "axes axis channel_axis channel_dim channels_first data_format data_layout dim dims "
    "input_data_format input_layout layout order out_layout output_layout perm permutation "
    "permute target_layout transpose",
    "formula": "alpha beta bias div255 image_mean image_std max_pixel_value mu norm normalization "
    "normalize offset_value rescale rescale_factor scale_factor scalefactor shift sigma stddev "
    "to_float to_float32",
    "colors": "bgr bgr2rgb bgr_to_rgb color color_format color_mode color_type convert_rgb "
    "image_type reverse_channels rgb rgb_to_bgr swapRB swap_channels swap_rb to_bgr to_rgb",
    "dtype": "as_type astype data_type ddepth out_dtype out_type output_dtype output_type "
    "target_dtype to torch_dtype type",
    "clip": "a_max a_min amax amin clamp clip_max clip_min clip_range lower max max_value min "
    "min_value range upper value_range vmax vmin",
    "threads": "max_workers n_jobs n_threads nthreads num_threads num_workers workers",
    "device": "cuda device_id device_ids gpu gpu_id map_location",
    "out": "dst in_place inplace out_array output output_array result",
    "saturate": "overflow round rounding rounding_mode saturate",
    "library": "as_numpy as_tensor framework numpy return_tensors tensor_type to_tensor",
    "size": "dsize height image_size img_size max_size new_shape new_size out_size output_shape "
    "output_size resize_h resize_size resize_to resize_w resize_x resize_y shape size sizes "
    "target_shape target_size width",
    "filter": "align_corners filter fx fy interp interp_method interp_type interpolation "
    "interpolation_mode mag_filter method min_filter mode reducing_gap resample resampling resize",
    "antialias": "antialias anti_aliasing anti_alias",
    "short side": "min_size resize_shorter short_side shortest_edge shorter_side smallest_max_size",
    "letterbox": "aspect_ratio fit keep_aspect_ratio keep_ratio letterbox longest_edge "
    "longest_max_size longer_side preserve_aspect_ratio resize_longer scaleup",
    "crop": "center_crop crop crop_h crop_pos_x crop_pos_y crop_size crop_w i j left offset "
    "rand_crop resized_crop roi top window",
    "flip": "flip flip_code flip_prob fliplr flipud hflip horizontal_flip mirror p probability "
    "rand_mirror vertical_flip vflip",
    "padding": "border_mode border_value bordertype cval constant_values fill_value fillcolor pad "
    "pad_mode pad_size pad_size_divisor pad_value padding padding_mode padding_value "
    "size_divisor value",
    "padded": "pad_to",
    "copy": "copy force_copy",
    "seed": "generator random_state rng seed",
    "item": "fields image_key input_key key keys",
    "samples": "indices ids index sampler samples",
}
_TOPIC_OF = {name: topic for topic, names in _TOPICS.items() for name in names.split()}
_PREFIXES = ("do_", "random_", "rand_", "apply_", "use_", "input_", "image_", "img_", "with_")

_FORMULA = "scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)"
# What conversions and collations have in place of a topic.
_COMMON = {
    "memory": 'memory= sets the layout in memory: memory="bhwc" is channels_last of bchw',
    "layout": 'the right side of the pattern is the layout of the result, as in "bhwc->bchw"',
    "formula": f"the result is (x * scale - mean) / std; give {_FORMULA}",
    "colors": "channels=(2, 1, 0) swaps red and blue",
    "dtype": 'dtype= is the dtype of the result, as in dtype="float32"',
    "clip": "clip=(lo, hi) clips x before the formula, as in clip=(0, 255)",
    "threads": "threads= is the largest number of threads, as in threads=1",
    "device": 'device= is the device of the result, as in device="cuda:0"',
    "out": "out= is an array of the shape of the result to write to",
    "saturate": 'casting="saturate" rounds half to even and clips to the range of an integer dtype',
    "library": "the result is an array of the library of x: pass a tensor to get a tensor",
}
_COLLATE_CURES = {
    "filter": 'resize= is the filter, as in h=224, w=224, resize="bilinear"',
    "antialias": "antialias=True widens the filter of resize= where samples shrink",
    "short side": "short_side= is the size of the shorter side, as in h=224, w=224, "
    'short_side=256, resize="bilinear"',
    "letterbox": 'fit="pad" keeps the aspect ratio, as in h=640, w=640, resize="bilinear", '
    'fit="pad", fill=114',
    "crop": "h=224, w=224 are the sizes of centered windows, which offset= moves, as in "
    'offset={"h": 0, "w": 0}',
    "flip": 'flip="w" mirrors all windows, and flip="random" of a Collator half of them',
    "padding": "windows larger than samples are padded with fill=, as in h=640, w=640, fill=0",
    "copy": "a batch is always new memory, or that of out=; omit it",
    "seed": 'a Collator draws: Collator(..., h=224, w=224, offset="random", seed=0)',
    "item": 'a Collator takes samples of several items: Collator(..., key="image")',
    "samples": "select samples before the call, or by indices= from one array of samples",
}


def check_sizes(
    function: str, pattern: Pattern, sizes: Mapping[str, Any], names: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the sizes by axis name; raise ShapeError for a keyword that is not an axis.

    function    "convert", "collate", "Collator" or "accumulate"
    names       the names of axes, by default those of the pattern
    """
    if names is None:
        groups = (*pattern.left.named, *pattern.right.named)
        names = {name: None for group in groups for name in group}
    for name, value in sizes.items():
        if axis_name(name) not in names or name in ("...", "1"):
            raise no_such_keyword(function, name, value, names, pattern.text)
    return {axis_name(name): size for name, size in sizes.items()}


def no_such_keyword(
    function: str, name: str, value: Any, axes: Collection[str], text: str
) -> ShapeError:
    """Return the error for a keyword that is neither an option nor an axis."""
    noun = _NOUNS.get(function, "a collation")
    shown = ", ".join(axis for axis in axes if axis not in ("...", "1"))
    return ShapeError(
        f"{name}={value!r} is neither a keyword of {noun} nor the size of an axis (the axes are "
        f"{shown}); {_cure(function, name, value, axes, text)}"
    )


def _cure(function: str, name: str, value: Any, axes: Collection[str], text: str) -> str:
    """Return how to correct a keyword."""
    letter = _LONG_NAMES.get(name)
    if letter in axes:
        return f"did you mean {letter}=?"
    if function == "Collator" and name in _CALL_ARGUMENTS:
        return f"{name}= is an argument of a call of the Collator: collator(samples, {name}=...)"
    topic = _topic_of(name)
    close = get_close_matches(name, KEYWORDS[function], 1, 0.7)
    if close and (topic is None or name not in _TOPIC_OF):
        return f"did you mean {close[0]}=?"
    if topic is None:
        close = get_close_matches(name, [n for n in _TOPIC_OF if len(n) > 4], 1, 0.85)
        topic = _TOPIC_OF[close[0]] if close else None
    if topic is None:
        fix = "omit it" if len(name) == 1 else "correct its name"
        return f"{fix}; the keywords are {', '.join(KEYWORDS[function])}"
    if function == "accumulate":
        return "accumulate moves and adds arrays only; apply convert to the parts or to the sum"
    cure = _COMMON.get(topic)
    return cure or (_cure_of_convert if function == "convert" else _cure_of_collate)(
        topic, value, axes, text
    )


def _topic_of(name: str) -> str | None:
    topic = _TOPIC_OF.get(name)
    for prefix in _PREFIXES if topic is None else ():
        topic = topic or _TOPIC_OF.get(name.removeprefix(prefix))
    return topic


def _cure_of_convert(topic: str, value: Any, axes: Collection[str], text: str) -> str:
    sizes = _sizes_text(value)
    samples = f'x, "{text}"' if "b" in axes and {"h", "w"} <= {*axes} else '[x], "hwc->bchw"'
    if topic in ("size", "filter", "antialias", "short side", "letterbox"):
        return (
            "convert does not resize, but collate and Collator do: "
            f'collate({samples}, {sizes}, resize="bilinear")'
        )
    if topic == "crop":
        return f"crop x by a slice, or with collate or Collator: collate({samples}, {sizes})"
    if topic == "flip":
        return f'flip x by a slice, x[::-1], or with collate: collate({samples}, flip="w")'
    if topic == "padding":
        return 'pad_to= is the size of the padded result, as in pad_to={"h": 640, "w": 640}, fill=0'
    if topic == "samples":
        return "select samples of x before the call, as in x[[0, 2]]"
    return "it is a keyword of Collator, which draws crops and flips; omit it"


def _cure_of_collate(topic: str, value: Any, axes: Collection[str], text: str) -> str:
    if topic == "padded":
        sizes = value if isinstance(value, Mapping) else {"h": 640, "w": 640}
        shown = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        return f"the windows of a batch have these sizes, with a fill: {shown}, fill=0"
    if topic == "size":
        return f"give the size of each axis, as in {_sizes_text(value)}, to crop samples; with " + (
            'resize="bilinear" they are resized to it'
        )
    return _COLLATE_CURES[topic]


def _sizes_text(value: Any) -> str:
    """Return the sizes that a keyword of another library has, by axis."""
    pair = list(value) if isinstance(value, list | tuple) else [value, value]
    # One small number is the number of a filter of Pillow or OpenCV.
    smallest = 1 if isinstance(value, list | tuple) else 8
    is_pair = len(pair) == 2 and all((as_int(size) or 0) >= smallest for size in pair)
    height, width = pair if is_pair else (224, 224)
    return f"h={height}, w={width}"
