"""Collators of the configurations of image processors of transformers and of models of timm.

`preprocessor_config.json` has the attributes of an image processor; the class that it names has the
defaults of the others. timm's `resolve_data_config` returns a dict of its own keys.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._utils.errors import prefix_errors
from ._utils.validation import as_int, show, type_name
from .collator import Collator
from .errors import ArgumentError, LayoutkitError
from .normalize import find_normalization
from .planning.batch.samples import LONGEST

_HALF = [0.5, 0.5, 0.5]
_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_OPENAI = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_DEFAULTS: dict[str, Any] = {
    "do_resize": True, "resample": 2, "do_center_crop": False, "crop_size": 224,
    "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": _HALF, "image_std": _HALF,
    "do_pad": False, "pad_size": None, "data_format": "channels_first",
}  # fmt: skip
_SHORT_SIDE = {"size": {"shortest_edge": 224}, "do_center_crop": True, "resample": 3, **_OPENAI}
# The attributes of image processors that differ from _DEFAULTS, by the class name up to its suffix.
_PROCESSORS: dict[str, dict[str, Any]] = {
    "Beit": {"size": 224, "resample": 3},
    "Bit": _SHORT_SIDE,  # also of DINOv2
    "CLIP": _SHORT_SIDE,
    "DeiT": {"size": 256, "resample": 3, "do_center_crop": True},
    "Detr": {"size": {"shortest_edge": 800, "longest_edge": 1333}, "do_pad": True, **_IMAGENET},
    # `size` has areas in pixels, which min_pixels and max_pixels replace.
    "Qwen2VL": {
        "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
        "resample": 3,
        **_OPENAI,
        "min_pixels": None,
        "max_pixels": None,
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 2,
    },
    "Siglip": {"size": {"height": 224, "width": 224}, "resample": 3},
    "ViT": {"size": 224},
}
_SUFFIXES = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
_SQUARE = ("Beit", "DeiT", "ViT")  # processors for which one number is the size of both sides
_TYPE_KEYS = ("image_processor_type", "feature_extractor_type")
# Keys without influence on the pixels: of annotations and files, and steps that this library does
# in reading images (RGB) or in its call (libraries and devices).
_OTHER_KEYS = (
    *_TYPE_KEYS, "processor_class", "auto_map", "_commit_hash", "_name_or_path",
    "_valid_processor_keys", "transformers_version", "model_input_names", "do_convert_rgb",
    "default_to_square", "input_data_format", "return_tensors", "device", "disable_grouping",
    "do_reduce_labels", "reduce_labels", "do_convert_annotations", "format",
    "return_segmentation_masks", "masks_path", "max_size", "pad_and_return_pixel_mask",
)  # fmt: skip
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic")  # by their number in Pillow
_OVERSHOOTING = ("lanczos", "bicubic")  # reach values beyond the smallest and the largest pixel
_BYTES = (0, 255)  # Pillow limits resized pixels to them
_BATCHES = {"channels_first": "bchw", "channels_last": "bhwc"}

_TIMM_DEFAULTS: dict[str, Any] = {
    "interpolation": "bicubic", "mean": _IMAGENET["image_mean"], "std": _IMAGENET["image_std"],
    "crop_pct": 0.875, "crop_mode": "center",
}  # fmt: skip


def from_preprocessor_config(config: Mapping[str, Any] | str | os.PathLike[str]) -> Collator:
    """Return the Collator that computes what an image processor of transformers or timm computes.

    The Collator's samples are images (height, width, 3), bytes unless `do_rescale` is False; its
    batches have the layout of the processor's `pixel_values`. Pillow and torchvision round resized
    pixels to bytes, which the Collator does not do: results of bytes differ by about 1 of 255.

    The batches of Qwen2VL are `Packed`: `data` (patches, channels * patch_size ** 2) has each patch
    once, which the processor repeats `temporal_patch_size` times, and `sizes` are the heights and
    widths in blocks of `merge_size` patches.

    The batches of Detr are `Padded` at the bottom and on the right: `lengths` are the heights and
    widths, from which the processor makes `pixel_mask`. The processor pads with 0 after it
    normalizes; here the padding is the mean color as bytes, which becomes a value of at most 0.01.

    Parameters
    ----------
    config : dict or path
        The content or the path of preprocessor_config.json, for the processors Beit, Bit (DINOv2),
        CLIP, DeiT, Detr, Qwen2VL, Siglip and ViT; or what timm's `resolve_data_config` returns.

    Raises
    ------
    ArgumentError
        A key is unknown, the file is not JSON, or the processor does what a Collator does not.

    Examples
    --------
    >>> config = {"image_processor_type": "ViTImageProcessor", "do_rescale": False}
    >>> from_preprocessor_config({**config, "do_normalize": False})
    Collator("hwc->bchw", resize='bilinear', h=224, w=224)

    Other options are replaced in `to_dict()`:

    >>> timm = {"input_size": (3, 224, 224), "interpolation": "bicubic", "crop_pct": 0.9}
    >>> options = from_preprocessor_config(timm).to_dict()
    >>> Collator.from_dict({**options, "dtype": "bfloat16", "memory": "bhwc"}).device is None
    True
    """
    if not isinstance(config, str | os.PathLike):
        return _make_any_collator(config)
    data = read_json(Path(config), "give a preprocessor_config.json")
    with prefix_errors(f"{os.fspath(config)}: ", LayoutkitError):
        return _make_any_collator(data)


def is_preprocessor_config(data: Any) -> bool:
    """Return True for a dict of keys that name an image processor, or of timm's."""
    return isinstance(data, Mapping) and not {"input_size", *_TYPE_KEYS}.isdisjoint(data)


def _make_any_collator(config: Any) -> Collator:
    """Return the Collator of a configuration of transformers or timm."""
    if not isinstance(config, Mapping):
        raise ArgumentError(
            f"config is a value of type {type_name(config)}; give a dict, or the path of "
            "preprocessor_config.json"
        )
    is_of_timm = config.get("input_size") is not None
    return (_make_timm_collator if is_of_timm else _make_collator)(config)


def read_json(path: Path, fix: str) -> Any:
    """Return the data of a JSON file; raise ArgumentError, which ends with `fix`, for others."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {error}; {fix}") from None


def _select_set(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are not None, which is written for a default."""
    return {key: value for key, value in config.items() if value is not None}


def _check_keys(config: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = [str(key) for key in config if key not in known]
    if unknown:
        raise ArgumentError(
            f"{', '.join(unknown)}: no step of a Collator is known for this key; remove it if it "
            f"does not change pixels. The known keys are {', '.join(known)}"
        )


# ---- transformers ------------------------------------------------------------------------


def _make_collator(config: Mapping[str, Any]) -> Collator:
    """Return the Collator of an image processor of transformers."""
    name = _find_processor(config)
    attributes = _select_set(config)
    defaults = {**_DEFAULTS, **_PROCESSORS[name]}
    _check_keys(attributes, (*defaults, *_OTHER_KEYS))
    values = {**defaults, **attributes}
    for key, value in values.items():
        if key.startswith("do_") and type(value) is not bool:
            raise ArgumentError(f"{key}={show(value)}; it must be true or false")
    if "patch_size" in values:
        return _make_patch_collator(values)
    size = _read_size("size", values["size"], name in _SQUARE)
    crop = _read_size("crop_size", values["crop_size"], True) if values["do_center_crop"] else None
    keywords = _choose_windows(size if values["do_resize"] else None, crop, values)
    if values["do_pad"] and values["pad_size"] is not None:
        raise ArgumentError(
            f"pad_size={values['pad_size']}: a Collator pads before it normalizes; set do_pad to "
            "false and pad its batches"
        )
    if values["do_resize"]:
        keywords["resize"] = _find_filter(values["resample"])
    if values["data_format"] not in tuple(_BATCHES):
        raise ArgumentError(
            f"data_format={values['data_format']!r}; give one of {', '.join(_BATCHES)}"
        )
    pattern = f"hwc->{_BATCHES[values['data_format']]}"
    return Collator(pattern, **keywords, **_make_formula(values, keywords.get("resize")))


def _find_processor(config: Mapping[str, Any]) -> str:
    """Return the name in _PROCESSORS of the class that a configuration names."""
    class_name = next((config[key] for key in _TYPE_KEYS if config.get(key)), None)
    for name in _PROCESSORS:
        if class_name in [name + suffix for suffix in _SUFFIXES]:
            return name
    known = ", ".join(_PROCESSORS)
    if class_name is None:
        raise ArgumentError(
            "image_processor_type is missing, on which defaults depend; add it, such as "
            f'"ViTImageProcessor". The known processors are {known}, and dicts of timm'
        )
    raise ArgumentError(
        f"image_processor_type is {show(class_name)}; the known processors are "
        f"{known}; give the type of one that does the same steps"
    )


def _make_patch_collator(values: Mapping[str, Any]) -> Collator:
    """Return the Collator of a processor that cuts images into patches, block by block."""
    if values["do_center_crop"] or values["do_pad"]:
        raise ArgumentError("this processor neither crops nor pads; remove do_center_crop, do_pad")
    patch, merge = values["patch_size"], values["merge_size"]
    options: dict[str, Any] = {"p": patch, "q": patch, "m": merge, "n": merge}
    if values["do_resize"]:
        size = _read_size("size", values["size"], False)
        if size.keys() != {"shortest_edge", "longest_edge"}:
            raise ArgumentError(
                f"size={size}; give areas in pixels, as in "
                '{"shortest_edge": 3136, "longest_edge": 1003520}'
            )
        options |= {
            "resize": _find_filter(values["resample"]),
            "multiple": patch * merge,
            "min_pixels": values["min_pixels"] or size["shortest_edge"],
            "max_pixels": values["max_pixels"] or size["longest_edge"],
        }
    formula = _make_formula(values, options.get("resize"))
    return Collator("(hmp)(wnq)c->(bhwmn)(cpq)", **options, **formula)


def _read_size(key: str, value: Any, is_square: bool) -> dict[str, int]:
    """Return a size by the names of its sides; one number is the shorter side, or both sides."""
    if isinstance(value, list | tuple) and len(value) == 2:
        value = dict(zip(("height", "width"), value, strict=True))
    elif as_int(value) is not None:
        value = {"height": value, "width": value} if is_square else {"shortest_edge": value}
    if not isinstance(value, Mapping) or not all(as_int(side) for side in value.values()):
        raise ArgumentError(
            f'{key}={show(value)}; give a dict such as {{"height": 224, "width": 224}}'
        )
    return {side: int(number) for side, number in value.items()}


def _choose_windows(
    size: dict[str, int] | None, crop: dict[str, int] | None, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keywords of the sizes and the center of windows.

    size    to which images are resized, None if they are not
    crop    of the center that is cropped, None if none is
    values  all attributes of the processor
    """
    if crop is not None and crop.keys() != {"height", "width"}:
        raise ArgumentError(f"crop_size={crop}; give its height and width")
    if size is None:
        return {} if crop is None else {**_as_window(crop), "center": "floor", "fill": 0}
    if size.keys() == {"height", "width"}:
        if crop not in (None, size):
            raise _make_second_crop_error(size, crop)
        return _as_window(size)
    if size.keys() == {"shortest_edge", "longest_edge"} and crop is None and values["do_pad"]:
        sides = {"short_side": size["shortest_edge"], "max_side": size["longest_edge"]}
        return {"h": LONGEST, "w": LONGEST, **sides, "lengths": True, "fill": _find_fill(values)}
    if size.keys() != {"shortest_edge"} or crop is None:
        raise ArgumentError(
            f"size={size}{'' if crop else ' without do_center_crop'} keeps the aspect ratio, so "
            "the size of a result depends on its image, and images of different sizes are no "
            'array; give "size" a "height" and a "width", "shortest_edge" alone with '
            'do_center_crop, or "shortest_edge" and "longest_edge" with do_pad'
        )
    side = size["shortest_edge"]
    padding = {"fill": 0} if side < max(crop.values()) else {}
    return {**_as_window(crop), "short_side": side, "center": "floor", **padding}


def _find_fill(values: Mapping[str, Any]) -> Any:
    """Return the pixel that becomes 0 in a batch, or the nearest whole one if it is rescaled."""
    if not values["do_normalize"]:
        return 0
    mean: Any = find_normalization(mean=values["image_mean"]).mean  # type: ignore[union-attr]
    pixel = np.ravel(mean)
    if values["do_rescale"]:
        pixel = np.rint(pixel / values["rescale_factor"])
    return pixel.tolist()


def _as_window(size: Mapping[str, int]) -> dict[str, int]:
    return {"h": size["height"], "w": size["width"]}


def _make_second_crop_error(size: Mapping[str, int], crop: Mapping[str, int]) -> ArgumentError:
    top, left = ((size[side] - crop[side]) // 2 for side in ("height", "width"))
    bottom, right = top + crop["height"], left + crop["width"]
    cure = f"and crop its batches, batch[..., {top}:{bottom}, {left}:{right}]"
    return ArgumentError(
        f"images are stretched to size={size} and then cropped to crop_size={crop}, which a "
        f"Collator does not do; set do_center_crop to false, {cure}"
    )


def _find_filter(number: Any) -> str:
    """Return the filter that has this number in Pillow."""
    index = as_int(number)
    if index is None or not 0 <= index < len(_FILTERS):
        known = ", ".join(f"{i} ({name})" for i, name in enumerate(_FILTERS))
        raise ArgumentError(
            f"resample={show(number)}; the filters that agree with Pillow's are {known}"
        )
    return _FILTERS[index]


def _make_formula(values: Mapping[str, Any], resize: str | None) -> dict[str, Any]:
    """Return the keywords of the formula, of the attributes of a processor."""
    formula: dict[str, Any] = {}
    if values["do_rescale"]:
        formula["scale"] = values["rescale_factor"]
    if values["do_normalize"]:
        formula |= {"mean": values["image_mean"], "std": values["image_std"]}
    if formula:
        formula["dtype"] = "float32"
    if values["do_rescale"] and resize in _OVERSHOOTING:
        formula["clip"] = _BYTES
    return formula


# ---- timm --------------------------------------------------------------------------------


def _make_timm_collator(config: Mapping[str, Any]) -> Collator:
    """Return the Collator of timm's transform for evaluation."""
    _check_keys(config, ("input_size", *_TIMM_DEFAULTS))
    values = {**_TIMM_DEFAULTS, **_select_set(config)}
    resize = values["interpolation"]
    if resize not in _FILTERS:
        raise ArgumentError(
            f"interpolation={show(resize)}; the filters that agree with Pillow's are "
            f"{', '.join(_FILTERS)}"
        )
    formula = {"scale": 1 / 255, "mean": values["mean"], "std": values["std"]}
    if resize in _OVERSHOOTING:
        formula["clip"] = _BYTES
    windows = _choose_timm_windows(values)
    return Collator("hwc->bchw", **windows, resize=resize, dtype="float32", **formula)


def _choose_timm_windows(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of the size of windows, and of the part of an image that they show."""
    input_size, crop_pct, mode = (values[key] for key in ("input_size", "crop_pct", "crop_mode"))
    is_list = isinstance(input_size, list | tuple) and len(input_size) == 3
    if not is_list or None in map(as_int, input_size):
        raise ArgumentError(f"input_size={show(input_size)}; give channels, height and width")
    if not isinstance(crop_pct, int | float) or not 0 < crop_pct <= 1:
        raise ArgumentError(f"crop_pct={show(crop_pct)}; give a share above 0 and up to 1")
    _, height, width = input_size
    window = {"h": height, "w": width}
    if mode == "center" and height == width:
        return {**window, "short_side": math.floor(height / crop_pct)}
    if mode == "squash" and crop_pct == 1:
        return window
    if mode == "border" and crop_pct == 1:
        mean: Any = find_normalization(mean=values["mean"]).mean  # type: ignore[union-attr]
        fill = [round(255 * number) for number in np.ravel(mean).tolist()]
        return {**window, "fit": "pad", "fill": fill, "center": "floor"}
    raise ArgumentError(
        f"crop_mode={show(mode)} with crop_pct={crop_pct} and input_size={input_size}: a Collator "
        'does what "center" does for a square, and "squash" and "border" with crop_pct=1; change '
        "one of these keys, which changes results"
    )
