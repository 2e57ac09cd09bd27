"""The batches of samples.py with other libraries, each in its fastest way.

torch crops, flips and resizes each sample as torchvision's transforms v2 do, stacks, then
normalizes the batch in place. OpenCV and Pillow resize each image; `cv2.LUT` and `cv2.split`
normalize it and write it into the batch, which is the fastest way that they have. torch and Pillow
round bytes between rows and columns, so their results differ from layoutkit's by some levels.
NVIDIA DALI crops or resizes whole images, with antialias, and normalizes, on the CPU; it does not
need a GPU. kornia-rs has one fused letterbox, without antialias.

A function of PEERS returns a function that makes the batch of a turn; None for a case that the
library does not support. `batch` is layoutkit's batch of the first turn. It raises ImportError if
the library is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import layoutkit

from ..buffers import empty
from ..memory import Array
from .rows import MEAN, SCALE, STD
from .sample_cases import PATCH, Part, SampleCase, Turn

Collate = Callable[[Turn], Any]
Resize = Callable[[Array, tuple[int, int]], Array]

FILTERS = {"bilinear": ("INTER_LINEAR", 2), "bicubic": ("INTER_CUBIC", 3)}  # OpenCV's, Pillow's


def interpolate(case: SampleCase, pixels: Array, antialias: bool) -> Any:
    """Return the planes of torch for one part of a sample, (c, h, w)."""
    import torch

    planes = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    if pixels.dtype == np.uint16:  # torch cannot interpolate it
        planes = planes.float()
    options = {"mode": case.keywords["resize"], "antialias": antialias, "align_corners": False}
    return torch.nn.functional.interpolate(planes, case.image_size, **options)[0]


def collate_by_torch(case: SampleCase, batch: Array) -> Collate:
    """Return crops and flips, or torch's interpolate, per sample, then one normalization."""
    import torch

    torch.set_num_threads(layoutkit.get_num_threads())
    is_resized = "resize" in case.keywords
    layout = "bchw" if is_resized else "bhwc"
    order = [layout.index(axis) for axis in case.to]
    shape = [3 if axis == "c" else 1 for axis in case.to]
    mean, std = (torch.tensor(values).reshape(shape) for values in (MEAN, STD))

    def fit(part: Part) -> Any:
        image = (
            interpolate(case, part.pixels, True) if is_resized else torch.from_numpy(part.pixels)
        )
        if "fill" in case.keywords:
            top, bottom, left, right = part.borders
            sides = ([] if is_resized else [0, 0]) + [left, right, top, bottom]
            image = torch.nn.functional.pad(image, sides, value=case.keywords["fill"])
        return image.flip(layout.index("w") - 1) if part.is_flipped else image

    def collate(turn: Turn) -> Any:
        images = [fit(part) for part in case.parts(turn)]
        result = torch.stack(images).permute(order)
        if case.is_normalized:
            result = result.float().mul_(SCALE).sub_(mean).div_(std)
            result = result.to(getattr(torch, case.keywords["dtype"]))
        return result.contiguous()

    return collate


def pack_by_torch(case: SampleCase, sizes: Array) -> Collate:
    """Return torch's interpolate and views per image, one `cat`, then one normalization.

    `sizes` are the numbers of patches of each image.
    """
    import torch

    torch.set_num_threads(layoutkit.get_num_threads())
    area = PATCH * PATCH
    mean, std = (torch.tensor(values).repeat_interleave(area) for values in (MEAN, STD))

    def split(pixels: Array, rows: int, columns: int) -> Any:
        planes = torch.from_numpy(pixels).permute(2, 0, 1)
        if "resize" in case.keywords:
            planes = torch.nn.functional.interpolate(
                planes.contiguous()[None], (rows * PATCH, columns * PATCH),
                mode=case.keywords["resize"], antialias=True, align_corners=False,
            )[0]  # fmt: skip
        parts = planes.reshape(-1, rows, PATCH, columns, PATCH)
        return parts.permute(1, 3, 0, 2, 4).reshape(rows * columns, -1)

    def pack(turn: Turn) -> Any:
        counts = zip(case.samples, sizes.tolist(), strict=True)
        patches = torch.cat([split(pixels, *pair) for pixels, pair in counts])
        if not case.is_normalized:
            return patches
        return patches.float().mul_(SCALE).sub_(mean).div_(std)

    return pack


def _collate_by_image(case: SampleCase, batch: Array, resize: Resize | None) -> Collate | None:
    """Return OpenCV's steps per image: resize, flip, pad, and write into the batch."""
    import cv2

    cv2.setNumThreads(layoutkit.get_num_threads())
    is_blob = case.to == "bchw" and batch.dtype == np.float32
    if case.to[0] != "b" or (case.is_normalized and not is_blob):
        return None
    values = np.arange(256).reshape(256, 1, 1) * SCALE
    table = ((values - np.array(MEAN)) / np.array(STD)).astype(np.float32)
    out = empty(batch.shape, batch.dtype)
    order = ["hwc".index(axis) for axis in case.to[1:]]
    fill = case.keywords.get("fill")

    def collate(turn: Turn) -> Array:
        for (pixels, is_flipped, borders), target in zip(case.parts(turn), out, strict=True):
            image = pixels if resize is None else resize(pixels, case.image_size)
            if fill is not None:
                constant = cv2.BORDER_CONSTANT
                image = cv2.copyMakeBorder(image, *borders, constant, value=(fill, fill, fill))
            image = cv2.flip(image, 1) if is_flipped else image
            if case.is_normalized:
                cv2.split(cv2.LUT(image, table), list(target))
            else:
                np.copyto(target, image.transpose(order))
        return out

    return collate


def collate_by_opencv(case: SampleCase, batch: Array, method: str = "") -> Collate | None:
    """Return cv2.resize per image, by default with the filter of the case, or no resize."""
    import cv2

    name = case.keywords.get("resize")
    if name is None:
        return None if method else _collate_by_image(case, batch, None)
    flags = getattr(cv2, method or FILTERS[name][0])

    def resize(pixels: Array, size: tuple[int, int]) -> Array:
        return np.asarray(cv2.resize(pixels, size[::-1], interpolation=flags))

    return _collate_by_image(case, batch, resize)


def collate_by_area(case: SampleCase, batch: Array) -> Collate | None:
    """Return cv2.resize with the filter of OpenCV that antialiases."""
    return collate_by_opencv(case, batch, "INTER_AREA")


def collate_by_pillow(case: SampleCase, batch: Array) -> Collate | None:
    """Return Pillow's resize per image."""
    from PIL import Image

    if "resize" not in case.keywords or case.samples[0].dtype != np.uint8:
        return None
    method = Image.Resampling(FILTERS[case.keywords["resize"]][1])

    def resize(pixels: Array, size: tuple[int, int]) -> Array:
        image = Image.fromarray(np.ascontiguousarray(pixels))
        return np.asarray(image.resize(size[::-1], method))

    return _collate_by_image(case, batch, resize)


def collate_by_dali(case: SampleCase, batch: Array) -> Collate | None:
    """Return DALI's crop_mirror_normalize of windows, or after its resize of whole images."""
    from nvidia.dali import types

    dtype = {"float32": types.FLOAT, "uint8": types.UINT8}.get(str(batch.dtype))
    is_cropped = "offset" in case.turns[0]
    if dtype is None or case.to not in ("bchw", "bhwc") or "fill" in case.keywords:
        return None
    if is_cropped == ("resize" in case.keywords) or case.samples[0].dtype != np.uint8:
        return None
    pipe = _dali_pipeline(case, dtype)

    def collate(turn: Turn) -> Any:
        pipe.feed_input("images", list(case.samples))
        if is_cropped:
            for name, axis, dim in ("y", "h", 0), ("x", "w", 1):
                margins = [sample.shape[dim] - case.size[dim] for sample in case.samples]
                positions = turn["offset"][axis] / np.maximum(margins, 1)
                pipe.feed_input(name, list(positions.astype(np.float32)))
            pipe.feed_input("flip", list(turn["flip"]["w"].astype(np.int32)))
        return pipe.run()

    if is_cropped:
        (result,) = collate(case.turns[0])
        np.testing.assert_allclose(result.as_array().astype("f8"), batch.astype("f8"), atol=1e-5)
    return collate


def _dali_pipeline(case: SampleCase, dtype: Any) -> Any:
    """Build the pipeline, with the inputs "images" and, for windows, "x", "y" and "flip"."""
    from nvidia.dali import Pipeline, fn, types

    synchronous = {"prefetch_queue_depth": 1, "exec_async": False, "exec_pipelined": False}
    threads = layoutkit.get_num_threads()
    sizes = {"batch_size": len(case.samples), "num_threads": threads, "device_id": None}
    pipe: Any = Pipeline(**sizes, **synchronous)
    options: dict[str, Any] = {"dtype": dtype, "output_layout": case.to[1:].upper()}
    if case.is_normalized:
        options["mean"], options["std"] = (np.divide(v, SCALE).tolist() for v in (MEAN, STD))
    with pipe:
        images = fn.external_source(name="images", no_copy=True, layout="HWC")
        if "resize" in case.keywords:
            kinds = {"bilinear": types.INTERP_TRIANGULAR, "bicubic": types.INTERP_CUBIC}
            height, width = case.size
            shape = {"resize_y": height, "resize_x": width}
            kind = kinds[case.keywords["resize"]]
            images = fn.resize(images, **shape, interp_type=kind, antialias=True)
        else:
            options |= {"crop": case.size, "mirror": fn.external_source(name="flip")}
            options |= {f"crop_pos_{name}": fn.external_source(name=name) for name in "xy"}
        pipe.set_outputs(fn.crop_mirror_normalize(images, **options))
    pipe.build()
    return pipe


def collate_by_kornia(case: SampleCase, batch: Array) -> Collate | None:
    """Return the fused letterbox of kornia-rs, for one image."""
    from kornia_rs import Preprocessor

    if case.box is None or len(case.samples) > 1:
        return None
    letterbox = Preprocessor(mode="letterbox", mean=tuple(MEAN), std=tuple(STD), pad_value=114)
    height, width = case.samples[0].shape[:2]
    pixels = case.samples[0].ravel()
    return lambda _: letterbox.run(pixels, width, height, *case.size)


PEERS: dict[str, Callable[[SampleCase, Array], Collate | None]] = {
    "torch": collate_by_torch,
    "Pillow": collate_by_pillow,
    "OpenCV INTER_AREA": collate_by_area,
    "OpenCV": collate_by_opencv,
    "DALI": collate_by_dali,
    "kornia-rs": collate_by_kornia,
}
WITHOUT_ANTIALIAS = ("OpenCV", "kornia-rs")  # of resized batches
