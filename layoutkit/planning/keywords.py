"""The errors for arguments that a conversion, a batch or a sum does not have, with cures.

Users bring the keywords of torchvision, albumentations, OpenCV, Pillow, NumPy, einops, DALI and
transformers: `_TOPICS` groups them, and the functions below say what a call has in their place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypedDict

from .._utils.spelling import find_similar
from .._utils.validation import as_int, describe_type, show
from ..errors import ArgumentError, ShapeError
from ..layout.pattern import Pattern, axis_name


class WindowKeywords(TypedDict, total=False):
    """The keywords that convert whole arrays, and the stacked windows of a batch.

    Each row of these classes declares an option: the type of its argument, then the types of its
    stored value.
    """

    dtype: Annotated[Any, str]
    scale: Annotated[Any, int, float]
    mean: Annotated[Any, int, float, list, dict]
    std: Annotated[Any, int, float, list, dict]
    clip: Annotated[Any, list]
    casting: Annotated[str, str]
    device: Annotated[str | None, str]
    memory: Annotated[str | None, str]
    threads: Annotated[int | None, int]


class _SharedKeywords(WindowKeywords, total=False):
    """The keywords that conversions and batches have in common."""

    pad_before: Annotated[Mapping[str, int] | None, dict]
    fill: Annotated[Any, int, float, str, list]
    center: Annotated[str, str]
    channels: Annotated[Sequence[int] | None, list]


class ConvertKeywords(_SharedKeywords, total=False):
    """The keywords of `convert` that are options of a Converter, besides sizes of axes."""

    copy: Annotated[bool | None, bool]
    pad_to: Annotated[Mapping[str, int] | None, dict]


class CollateKeywords(_SharedKeywords, total=False):
    """The keywords of a Collator, besides sizes of axes."""

    offset: Annotated[str | Mapping[str, Any] | None, dict]
    flip: Annotated[str | Mapping[str, Any] | None, dict]
    crop: Annotated[str | Mapping[str, Any] | None, dict]
    lengths: Annotated[bool, bool]
    seed: Annotated[int | None, int]
    key: Annotated[int | str | None, int, str]
    resize: Annotated[str | None, str]
    antialias: Annotated[bool, bool]
    ignore: Annotated[float | None, int, float, str]
    fit: Annotated[str, str]
    short_side: Annotated[int | None, int]
    max_side: Annotated[int | None, int]
    size: Annotated[Sequence[int] | None, list]
    multiple: Annotated[int | None, int]
    min_pixels: Annotated[int | None, int]
    max_pixels: Annotated[int | None, int]


COLLATOR_ONLY = frozenset({"seed", "key"})  # keywords that `collate` does not have
_COLLATE = [name for name in CollateKeywords.__annotations__ if name not in COLLATOR_ONLY]
KEYWORDS: dict[str, tuple[str, ...]] = {
    "convert": (*ConvertKeywords.__annotations__, "out"),
    "collate": (*_COLLATE, "indices", "placements", "out"),
    "Collator": tuple(CollateKeywords.__annotations__),
    "accumulate": ("dtype", "out"),
}
_NOUNS = {"convert": "a conversion", "accumulate": "a sum"}  # others: a collation
_CALL_ARGUMENTS = ("indices", "placements", "out", "positions", "epoch")  # of a Collator

_LONG_NAMES = {"height": "h", "width": "w", "depth": "d", "time": "t", "length": "l", "batch": "b"}

# The keywords of other libraries, by what they are about. Endings of do_..., random_..., ... are
# looked up without the prefix.
_TOPICS: dict[str, str] = {
    "memory": "memory_format channels_last contiguous_format",
    "layout": "axes axis batch_first channel_axis channel_dim channels_first data_format "
    "data_layout dim dims expand_dims flatten input_data_format input_layout keepdims "
    "layout nchw nhwc order out_layout output_layout perm permutation "
    "permute squeeze stack target_layout transpose unsqueeze",
    "formula": "alpha beta bias image_mean image_std max_pixel_value mu norm normalization "
    "normalize offset_value rescale rescale_factor scale_factor scalefactor shift sigma stddev "
    "subtract to_float to_float32",
    "factor": "div div255 divide divisor factor multiplier multiply",
    "colors": "bgr bgr2rgb bgr_to_rgb code color color_format color_mode color_type convert_rgb "
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
    "interpolation_mode mag_filter mask_interpolation method min_filter mode reducing_gap resample "
    "resampling resize",
    "antialias": "antialias anti_aliasing anti_alias",
    "short side": "min_size resize_shorter short_side shortest_edge shorter_side smallest_max_size",
    "letterbox": "aspect_ratio auto fit keep_aspect_ratio keep_ratio letterbox longest_edge "
    "longest_max_size longer_side preserve_aspect_ratio resize_longer scaleup stride",
    "crop": "center_crop crop crop_h crop_pos_x crop_pos_y crop_size crop_w i j left offset "
    "rand_crop resized_crop roi top window",
    "flip": "flip flip_code flip_prob fliplr flipud hflip horizontal_flip mirror p probability "
    "rand_mirror vertical_flip vflip",
    "padding": "border_mode bordertype max_length pad pad_if_needed pad_mode pad_size "
    "pad_size_divisor pad_to_multiple_of padding padding_mode size_divisor",
    "fill": "border_value cval constant_values fill_value fillcolor pad_value padding_value value",
    "padded": "pad_to",
    "lengths": "attention_mask pad_sequence pad_to_longest pad_to_max padding_mask "
    "return_attention_mask return_length return_lengths return_mask return_masks",
    "placements": "return_boxes return_params return_placements return_transform return_windows",
    "copy": "copy force_copy",
    "seed": "epoch generator positions random_state rng seed",
    "augmentation": "brightness brightness_limit contrast contrast_limit degrees distortion_scale "
    "gamma gamma_limit hue rotate rotate_limit saturation scale_limit shear shear_limit "
    "shift_limit translate",
    "loop": "batch_size batch_sampler collate_fn drop_last non_blocking pin_memory "
    "prefetch prefetch_factor shuffle timeout",
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
    "factor": "scale= is the factor of x, as in scale=1 / 255",
    "colors": "channels=(2, 1, 0) swaps red and blue, and channels=(0, 1, 2) drops alpha",
    "augmentation": "layoutkit.images.Augmenter changes colors and rotates at random",
    "loop": "omit it: layoutkit.data.sampled_batcher and layoutkit.torch.feed loop over batches",
    "dtype": 'dtype= is the dtype of the result, as in dtype="float32"',
    "clip": "clip= bounds x before the formula, as in clip=(0, 255)",
    "threads": "threads= is the largest number of threads, as in threads=1",
    "device": 'device= is the device of the result, as in device="cuda:0"',
    "out": "out= is an array of the shape of the result to write to",
    "saturate": 'casting="saturate" rounds half to even and clips to the range of an integer dtype',
    "library": "the result is an array of the library of x: pass a tensor to get a tensor",
}
_COLLATE_CURES = {
    "antialias": "antialias=True widens the filter of resize= where samples shrink",
    "flip": 'flip="w" mirrors all windows, and Collator(..., flip="random") half of them',
    "placements": "place(samples) of a Collator returns the windows of a batch, and "
    "collator(samples, placements=...) repeats them",
    "copy": "a batch is always in new memory, or in out=; omit it",
    "seed": 'a Collator draws: Collator(..., h=224, w=224, offset="random", seed=0)',
    "item": 'a Collator accepts samples of several items: Collator(..., key="image")',
    "samples": "select samples before the call, or by indices= from one array of samples",
}

# Names of filters in other libraries. Theirs are uppercase, as INTER_AREA, or members of an Enum.
_FILTERS = {
    "nearest": "nearest inter_nearest nearest_exact inter_nearest_exact",
    "bilinear": "bilinear linear inter_linear inter_linear_exact triangle trilinear hamming",
    "bicubic": "bicubic cubic inter_cubic catmullrom",
    "lanczos": "lanczos lanczos3 lanczos4 inter_lanczos4 antialias",
    "area": "area inter_area box mean average",
}
_FILTER_OF = {name: ours for ours, names in _FILTERS.items() for name in names.split()}
# Numbers mean different filters in Pillow (which transformers uses) and in OpenCV.
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "area", "bilinear")
_OPENCV = ("nearest", "bilinear", "bicubic", "area", "lanczos", "bilinear", "nearest")


def collect_keywords(options: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not the defaults, as keyword arguments."""
    keywords: dict[str, Any] = {}
    for name, default in defaults.items():
        value = getattr(options, name)
        if value is None or value == default:
            continue
        keywords |= value.keywords() if hasattr(value, "keywords") else {name: value}
        if name == "fill" and len(value) == 1:
            keywords[name] = value[0]
        elif type(value) is tuple and isinstance(value[0], tuple):  # pairs of an axis and a value
            keywords[name] = dict(value)
    return keywords


def find_filter_cure(value: Any) -> str:
    """Return what to give in place of a filter of another library, or of a size.

    >>> find_filter_cure("INTER_AREA"), find_filter_cure("cubic")
    ('give resize="area"', 'give resize="bicubic"')
    """
    name = getattr(value, "name", value)
    ours = find_filter(name)
    if ours is not None:
        return f'give resize="{ours}"'
    number = as_int(value)
    if number is not None and 0 <= number < len(_OPENCV):
        pillow = _PILLOW[min(number, len(_PILLOW) - 1)]
        if pillow == _OPENCV[number]:
            return f'give resize="{pillow}"'
        return f'give resize="{pillow}" for that number of Pillow, "{_OPENCV[number]}" of OpenCV'
    if number is not None or isinstance(value, list | tuple):
        return f'it is the filter: give the size too, as {format_sizes(value)}, resize="bilinear"'
    return 'give resize="bilinear", for example'


def find_filter(name: Any) -> str | None:
    """Return the filter that has a name like this one, None if there is none."""
    if not isinstance(name, str):
        return None
    plain = name.lower().replace("-", "_").rpartition(".")[2]
    similar = find_similar(plain, _FILTER_OF)
    return None if similar is None else _FILTER_OF[similar]


def check_sizes(
    function: str, pattern: Pattern, sizes: Mapping[str, Any], names: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the sizes by axis name; raise ShapeError for a keyword that is not an axis.

    function    "convert", "collate", "Collator" or "accumulate"
    names       the names of axes, by default the pattern's
    """
    if names is None:
        groups = (*pattern.left.named, *pattern.right.named)
        names = {name: None for group in groups for name in group}
    for name, value in sizes.items():
        if axis_name(name) not in names or name in ("...", "1"):
            raise make_keyword_error(function, name, value, names, pattern.text)
    return {axis_name(name): size for name, size in sizes.items()}


def refuse_positional(function: str, pattern: Any, more: Sequence[Any]) -> NoReturn:
    """Raise ArgumentError for positional arguments after the pattern.

    function    "convert", "collate", "Converter" or "Collator"
    """
    called = {"convert": "convert(x, {})", "collate": "collate(samples, {})"}
    call = called.get(function, function + "({})")
    first = more[0]
    if isinstance(pattern, str) and isinstance(first, str) and "->" not in pattern + first:
        both = call.format(f'"{pattern}->{first}"')
        raise ArgumentError(f'{function} got "{pattern}" and "{first}"; join both layouts: {both}')
    if not isinstance(pattern, str) and isinstance(first, str):
        cure = f'give the pattern first, and call the {function}: {function}("{first}")(x)'
        raise ArgumentError(f"{function} got {describe_type(pattern)} before a pattern; {cure}")
    example = call.format('pattern, dtype="float32"')
    raise ArgumentError(
        f"{function} got {show(first)} after the pattern; give options by name: {example}"
    )


def refuse_in_call(function: str, keywords: Mapping[str, Any], known: Sequence[str]) -> NoReturn:
    """Raise ArgumentError for the first keyword that a call of a Converter or Collator lacks.

    function    "Converter" or "Collator"
    known       the keywords of a call
    """
    name = next(iter(keywords))
    table = "convert" if function == "Converter" else function
    options = KEYWORDS[table]
    if similar := find_similar(name, known):
        cure = f"did you mean {similar}=?"
    elif name in options or len(name) == 1:  # a size of an axis
        cure = f"it is an option of the {function}: {function}(pattern, {name}=...)"
    else:
        text = find_topic_cure(table, name, keywords[name])
        cure = f"{text or 'it has ' + ', '.join(known)}; options are arguments of {function}(...)"
    raise ArgumentError(f"a call of a {function} has no {name}=; {cure}")


def make_keyword_error(
    function: str, name: str, value: Any, axes: Collection[str], text: str
) -> ShapeError:
    """Return the error for a keyword that is neither an option nor an axis."""
    noun = _NOUNS.get(function, "a collation")
    shown = ", ".join(axis for axis in axes if axis not in ("...", "1"))
    return ShapeError(
        f"{name}={show(value)} is neither a keyword of {noun} nor the size of an axis (the axes "
        f"are {shown}); {_find_cure(function, name, value, axes, text)}"
    )


def _find_cure(function: str, name: str, value: Any, axes: Collection[str], text: str) -> str:
    """Return how to correct a keyword."""
    letter = _LONG_NAMES.get(name)
    if letter in axes:
        return f"did you mean {letter}=?"
    if function == "Collator" and name in _CALL_ARGUMENTS:
        return f"{name}= is an argument of a call of the Collator: collator(samples, {name}=...)"
    if name == "out":
        return "out= is an argument of a call of the Converter: converter(x, out)"
    topic = _find_topic(name)
    if topic is None and (similar := find_similar(name, KEYWORDS[function])):
        return f"did you mean {similar}=?"
    if topic is None and (similar := find_similar(name, _TOPIC_OF)):
        topic = _TOPIC_OF[similar]
    if topic is None:
        return f"omit it, or give one of {', '.join(KEYWORDS[function])}"
    return _find_topic_cure(function, topic, value, axes, text)


def _find_topic_cure(
    function: str, topic: str, value: Any, axes: Collection[str], text: str
) -> str:
    """Return what a function has in place of a topic."""
    if function == "accumulate":
        return "accumulate moves and adds arrays only; apply convert to the parts or to the sum"
    if function == "convert":
        return _COMMON.get(topic) or _find_convert_cure(topic, value, axes, text)
    return _COMMON.get(topic) or _find_collate_cure(topic, value, axes)


def _find_topic(name: str) -> str | None:
    topic = _TOPIC_OF.get(name) or _TOPIC_OF.get(name.lower())
    for prefix in _PREFIXES if topic is None else ():
        topic = topic or _TOPIC_OF.get(name.removeprefix(prefix))
    return topic


def find_topic_cure(function: str, name: str, value: Any) -> str | None:
    """Return what a function has in place of a keyword of another library, None if unknown."""
    topic = _find_topic(name)
    return None if topic is None else _find_topic_cure(function, topic, value, (), "")


def _find_convert_cure(topic: str, value: Any, axes: Collection[str], text: str) -> str:
    sizes = format_sizes(value)
    samples = f'x, "{text}"' if "b" in axes and {"h", "w"} <= {*axes} else '[x], "hwc->bchw"'
    if topic in ("size", "filter", "antialias", "short side", "letterbox"):
        return (
            "convert does not resize, but collate and Collator do: "
            f'collate({samples}, {sizes}, resize="bilinear")'
        )
    if topic == "crop":
        return f"crop x by a slice, or with collate or Collator: collate({samples}, {sizes})"
    if topic == "flip":
        return f'flip x by a slice of step -1, or with collate: collate({samples}, flip="w")'
    if topic in ("padding", "fill"):
        return 'pad_to= is the size of the padded result, as in pad_to={"h": 640, "w": 640}, fill=0'
    if topic == "samples":
        return "select samples of x before the call, as in x[[0, 2]]"
    if topic == "item":
        return "x is one array, such as an item of a dict: give that item as x"
    if topic == "lengths":
        padded = f'collate({samples}, h="longest", lengths=True)'
        return f"collate pads samples to the longest one, and returns their lengths: {padded}"
    if topic == "placements":
        return f"convert has no windows, but collate has: collate({samples}, {sizes})"
    if topic == "copy":
        return "copy=True always returns new memory"
    return "omit it: convert draws nothing, but a Collator draws crops and flips by its seed="


def _find_collate_cure(topic: str, value: Any, axes: Collection[str]) -> str:
    has_images = not axes or {"h", "w"} <= {*axes}
    axis = next((name for name in axes if name not in ("b", "c", "...", "1")), "t")
    is_longest = isinstance(value, str) and value == "longest"
    if topic == "lengths" or (topic == "padding" and is_longest):
        sizes = 'h="longest", w="longest"' if has_images else f'{axis}="longest"'
        return f"{sizes}, lengths=True pads samples to the longest one, and returns their lengths"
    if topic == "fill":
        return "fill= is the value outside of samples, as in fill=0"
    if topic == "padding":
        sizes = "h=640, w=640" if has_images else f'{axis}=640, offset={{"{axis}": 0}}'
        longest = 'h="longest", w="longest"' if has_images else f'{axis}="longest"'
        return (
            f"windows larger than samples are padded with fill=, as in {sizes}, fill=0, and "
            f"{longest} pads to the longest sample"
        )
    if topic == "padded":
        padded = value if isinstance(value, Mapping) else {"h": 640, "w": 640}
        shown = ", ".join(f"{axis}={size}" for axis, size in padded.items())
        return f"the windows of a batch have these sizes, with a fill: {shown}, fill=0"
    if topic == "size":
        return (
            f"give the size of each axis, as in {format_sizes(value)}, to crop samples; with "
            + ('resize="bilinear" they are resized to it')
        )
    sizes = format_sizes(value)
    if topic == "filter":
        return f'resize= is the filter, as in {sizes}, resize="{find_filter(value) or "bilinear"}"'
    if topic == "short side":
        side = as_int(value) or 256
        return (
            "short_side= is the size of the shorter side, as in h=224, w=224, "
            f'short_side={side}, resize="bilinear"'
        )
    if topic == "letterbox":
        return f'padding keeps the aspect ratio, as in {sizes}, resize="bilinear", fit="pad"'
    if topic == "crop":
        return (
            f"{sizes} are the sizes of centered windows, which offset= moves, as in "
            'offset={"h": 0, "w": 0}'
        )
    return _COLLATE_CURES[topic]


def format_sizes(value: Any) -> str:
    """Return the sizes that a keyword of another library has, by axis.

    >>> format_sizes((10, 20)), format_sizes("random")
    ('h=10, w=20', 'h=224, w=224')
    """
    height, width = _parse_sides(value)
    return f"h={height}, w={width}"


def format_sizes_as_dict(value: Any) -> str:
    """Return the sizes that a keyword of another library has, as a dict."""
    height, width = _parse_sides(value)
    return f'{{"h": {height}, "w": {width}}}'


def _parse_sides(value: Any) -> tuple[Any, Any]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    # One small number is the number of a filter of Pillow or OpenCV.
    smallest = 1 if isinstance(value, list | tuple) else len(_OPENCV) + 1
    is_pair = len(pair) == 2 and all((as_int(size) or 0) >= smallest for size in pair)
    return pair if is_pair else (224, 224)
