"""`--resize`: resize, normalize and stack images, compared with libraries that are installed.

torch resizes bytes as torchvision's transforms v2 do, then normalizes the batch in place. OpenCV
and Pillow resize each image; `cv2.LUT` and `cv2.split` normalize it and write it into the batch,
which is the fastest way that they have. torch and Pillow round bytes between rows and columns, so
their results differ from layoutkit's by some levels. DALI and kornia-rs have operators that resize
and normalize on the CPU: DALI whole images, with antialias; kornia-rs one letterbox, without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

import layoutkit

from ..buffers import empty
from ..memory import Array
from .collating import FULL, NORMALISED, OURS, QUICK, TURNS
from .host import Call, set_passive_wait_policy
from .protocol import Budget, Times, Variant, measure, paired_ratio, percentile
from .rows import MEAN, SCALE, STD

PLAIN = "layoutkit, no antialias"
TORCH = "torch"
AREA = "OpenCV INTER_AREA"
FIXED = "OpenCV"
PILLOW = "Pillow"
DALI = "DALI"
KORNIA = "kornia-rs"
FILTERS = {"bilinear": ("INTER_LINEAR", 2), "bicubic": ("INTER_CUBIC", 3)}  # OpenCV's, Pillow's


@dataclass(frozen=True)
class ResizeCase:
    """One line of the table: images of one shape, the size of the result, crops of several calls.

    A crop is (top, left, height, width) for each image. `box` is the part of the result that the
    image is scaled to: (top, left, height, width).
    """

    name: str
    images: Sequence[Array]
    size: tuple[int, int]
    to: str = "bchw"
    filter: str = "bilinear"
    normalized: bool = True
    turns: Sequence[Array | None] = (None,)
    box: tuple[int, int, int, int] | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the arguments of the Collator, without `antialias`."""
        options: dict[str, Any] = dict(zip("hw", self.size, strict=True))
        options |= {"resize": self.filter}
        if self.box is not None:
            options |= {"fit": "pad", "fill": 114}
        return options | (NORMALISED if self.normalized else {})

    def parts(self, turn: Array | None) -> Iterator[Array]:
        """Yield the crops of the images."""
        if turn is None:
            yield from self.images
            return
        for image, (top, left, height, width) in zip(self.images, turn.tolist(), strict=True):
            yield image[top : top + height, left : left + width]


def resize_cases() -> Iterator[ResizeCase]:
    """Yield all lines of the table."""
    rng = np.random.default_rng(0)
    photos = _images(rng, 64, 375, 500)
    turns = [_random_crops(rng, photos) for _ in range(TURNS)]
    yield ResizeCase("64 random crops of 500x375 -> 224x224", photos, (224, 224), turns=turns)
    frame = _images(rng, 1, 1080, 1920)
    box = (140, 0, 360, 640)
    yield ResizeCase("1080p -> 640x640, letterbox", frame, (640, 640), box=box)
    yield ResizeCase("1080p -> 224x224", frame, (224, 224))
    large = _images(rng, 1, 2160, 3840)
    yield ResizeCase("4K -> 1080p uint8 bhwc", large, (1080, 1920), "bhwc", normalized=False)
    small = _images(rng, 16, 224, 224)
    yield ResizeCase("16 images 224x224 -> 384x384, bicubic", small, (384, 384), filter="bicubic")
    video = _images(rng, 32, 720, 1280)
    yield ResizeCase("32 frames of 720p -> 224x224, bicubic", video, (224, 224), filter="bicubic")
    bands = [rng.integers(0, 4096, (512, 512, 12), np.uint16) for _ in range(8)]
    yield ResizeCase(
        "8 tiles 512x512 of 12 bands, uint16 -> 256x256", bands, (256, 256), normalized=False
    )


def _images(rng: np.random.Generator, count: int, height: int, width: int) -> list[Array]:
    return [rng.integers(0, 256, (height, width, 3), np.uint8) for _ in range(count)]


def _random_crops(rng: np.random.Generator, photos: Sequence[Array]) -> Array:
    """Return crops of a tenth of the area to all of it, as for training."""
    sizes = np.array([photo.shape[:2] for photo in photos])
    sides = np.sqrt(rng.uniform(0.1, 1, (len(photos), 1))) * np.exp(
        rng.uniform(-0.15, 0.15, (1, 2))
    )
    extents = np.maximum(1, (sizes * sides.clip(0, 1)).astype(np.int64))
    return np.hstack([rng.integers(0, sizes - extents + 1), extents])


# ---- variants ----------------------------------------------------------------------------


def variants(case: ResizeCase) -> list[Variant]:
    """Return all variants of a case; raise AssertionError if layoutkit's result is wrong."""
    result = [_ours(OURS, case, antialias=True), _ours(PLAIN, case, antialias=False)]
    out: Any = result[0].calls[0]()
    peers = {TORCH: _by_torch(case, out), AREA: _by_opencv(case, out, "INTER_AREA")}
    peers[FIXED] = _by_opencv(case, out, FILTERS[case.filter][0])
    if case.images[0].dtype == np.uint8:
        peers[PILLOW] = _by_pillow(case, out)
    peers |= {DALI: _by_dali(case), KORNIA: _by_kornia(case)}
    for name, function in peers.items():
        if function is not None:
            result.append(Variant(name, [_rotated(function, case)], spin_seconds=0.01))
    return result


def _rotated(function: Callable[[Array | None], Any], case: ResizeCase) -> Call:
    turns = cycle(case.turns)
    return lambda: function(next(turns))


def _ours(name: str, case: ResizeCase, *, antialias: bool) -> Variant:
    keywords = case.keywords()
    collator = layoutkit.Collator(f"hwc->{case.to}", antialias=antialias, **keywords)

    def crops(turn: Array | None) -> dict[str, Any]:
        if turn is None:
            return {}
        return {
            "offset": {"h": turn[:, 0], "w": turn[:, 1]},
            "crop": {"h": turn[:, 2], "w": turn[:, 3]},
        }

    out = collator(case.images, **crops(case.turns[0]))
    _check(case, out, antialias)
    return Variant(
        name, [_rotated(lambda turn: collator(case.images, out=out, **crops(turn)), case)]
    )


def _check(case: ResizeCase, out: Array, antialias: bool) -> None:
    """Raise AssertionError unless a batch equals torch's in float32, if torch is installed."""
    try:
        import torch
    except ImportError:
        return
    part = np.ascontiguousarray(next(case.parts(case.turns[0])))
    size = case.size if case.box is None else case.box[2:]
    planes = torch.from_numpy(part.astype(np.float32)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(
        planes, size, mode=case.filter, antialias=antialias, align_corners=False
    )[0].numpy()
    first = out[0] if case.to == "bchw" else out[0].transpose(2, 0, 1)
    if case.box is not None:
        top, left, height, width = case.box
        first = first[:, top : top + height, left : left + width]
    if case.normalized:
        resized = (resized * SCALE - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    tolerance = 1e-3 if case.normalized else 0.51
    np.testing.assert_allclose(first, resized, atol=tolerance)


def _by_torch(case: ResizeCase, out: Array) -> Callable[[Array | None], Any] | None:
    """Return a function with torch's interpolate per image, then one normalization."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(layoutkit.get_num_threads())
    size = case.size if case.box is None else case.box[2:]
    batch = torch.empty((len(case.images), 3, *case.size))
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (MEAN, STD))

    def run(turn: Array | None) -> Any:
        resized = []
        for part in case.parts(turn):
            if part.dtype == np.uint16:  # torch cannot interpolate it
                part = part.astype(np.float32)
            planes = torch.from_numpy(part).permute(2, 0, 1)[None]
            resized.append(
                torch.nn.functional.interpolate(
                    planes, size, mode=case.filter, antialias=True, align_corners=False
                )
            )
        if not case.normalized:
            return torch.cat(resized)
        target = batch
        if case.box is not None:
            top, left, height, width = case.box
            batch.fill_(114)
            target = batch[:, :, top : top + height, left : left + width]
        target.copy_(torch.cat(resized))
        return batch.mul_(SCALE).sub_(mean).div_(std)

    return run


def _writer(case: ResizeCase, out: Array) -> Callable[[Array, Array], Any] | None:
    """Return a function that normalizes an image by a table and writes it to a batch."""
    try:
        import cv2
    except ImportError:
        return None
    if not case.normalized:
        order = (2, 0, 1) if case.to == "bchw" else (0, 1, 2)
        return lambda image, target: np.copyto(target, image.transpose(order))
    values = np.arange(256).reshape(256, 1, 1) * SCALE
    table = ((values - np.array(MEAN)) / np.array(STD)).astype(np.float32)
    return lambda image, planes: cv2.split(cv2.LUT(image, table), list(planes))


def _by_opencv(case: ResizeCase, out: Array, method: str) -> Callable[[Array | None], Any] | None:
    """Return a function with cv2.resize per image, or None without OpenCV."""
    write = _writer(case, out)
    if write is None:
        return None
    import cv2

    cv2.setNumThreads(layoutkit.get_num_threads())
    return _by_image(
        case,
        out,
        write,
        lambda x, size: cv2.resize(x, size[::-1], interpolation=getattr(cv2, method)),
    )


def _by_pillow(case: ResizeCase, out: Array) -> Callable[[Array | None], Any] | None:
    """Return a function with Pillow's resize per image, or None without Pillow or OpenCV."""
    write = _writer(case, out)
    try:
        from PIL import Image
    except ImportError:
        return None
    if write is None:
        return None
    method = FILTERS[case.filter][1]
    return _by_image(
        case,
        out,
        write,
        lambda x, size: np.asarray(
            Image.fromarray(np.ascontiguousarray(x)).resize(size[::-1], Image.Resampling(method))
        ),
    )


def _by_dali(case: ResizeCase) -> Callable[[Array | None], Any] | None:
    """Return a function with DALI's operators of whole images, or None without DALI."""
    try:
        from nvidia.dali import Pipeline, fn, types
    except ImportError:
        return None
    if not case.normalized or case.box is not None or len(case.turns) > 1:
        return None
    height, width = case.size
    kind = types.INTERP_TRIANGULAR if case.filter == "bilinear" else types.INTERP_CUBIC

    built = Pipeline(
        batch_size=len(case.images),
        num_threads=layoutkit.get_num_threads(),
        device_id=None,
        prefetch_queue_depth=1,
        exec_async=False,
        exec_pipelined=False,
    )
    mean, std = (np.multiply(values, 1 / SCALE).tolist() for values in (MEAN, STD))
    with built:
        images = fn.external_source(name="images", no_copy=True, layout="HWC")
        size = {"resize_x": width, "resize_y": height}
        resized = fn.resize(images, **size, interp_type=kind, antialias=True)
        planes = {"dtype": types.FLOAT, "output_layout": "CHW"}
        built.set_outputs(fn.crop_mirror_normalize(resized, **planes, mean=mean, std=std))
    built.build()

    def run(_: Array | None) -> Any:
        built.feed_input("images", list(case.images))
        return built.run()

    return run


def _by_kornia(case: ResizeCase) -> Callable[[Array | None], Any] | None:
    """Return a function with the fused letterbox of kornia-rs for one image, or None without it."""
    try:
        from kornia_rs import Preprocessor
    except ImportError:
        return None
    if case.box is None or len(case.images) > 1:
        return None
    letterbox = Preprocessor(mode="letterbox", mean=tuple(MEAN), std=tuple(STD), pad_value=114)
    height, width = case.images[0].shape[:2]
    pixels = case.images[0].ravel()
    return lambda _: letterbox.run(pixels, width, height, *case.size)


def _by_image(
    case: ResizeCase,
    out: Array,
    write: Callable[[Array, Array], Any],
    resize: Callable[[Array, tuple[int, int]], Array],
) -> Callable[[Array | None], Any]:
    batch = empty(out.shape, out.dtype)
    canvas = np.full((*case.size, 3), 114, np.uint8)

    def run(turn: Array | None) -> Any:
        for part, target in zip(case.parts(turn), batch, strict=True):
            if case.box is None:
                write(resize(part, case.size), target)
                continue
            top, left, height, width = case.box
            canvas[top : top + height, left : left + width] = resize(part, (height, width))
            write(canvas, target)
        return batch

    return run


# ---- the table ---------------------------------------------------------------------------


def run_resize(quick: bool) -> int:
    """Measure all lines and print them; return 1 if a batch of layoutkit is wrong."""
    print(
        f"{set_passive_wait_policy()}\n{layoutkit.get_num_threads()} threads; ratios are paired\n"
    )
    print(f"{'work':<48}{'p50 us':>10}{'p99':>10}  times faster than")
    exit_code = 0
    for case in resize_cases():
        try:
            candidates = variants(case)
        except AssertionError:
            print(f"{case.name:<48}  WRONG")
            exit_code = 1
            continue
        for line in _lines(case, candidates, QUICK if quick else FULL):
            print(line, flush=True)
    return exit_code


def _lines(case: ResizeCase, candidates: list[Variant], budget: Budget) -> Iterator[str]:
    times = measure(candidates, budget)
    for ours, rivals in ((OURS, (TORCH, PILLOW, AREA, DALI)), (PLAIN, (FIXED, KORNIA))):
        name = case.name if ours == OURS else "  without antialias"
        ratios = [
            f"{paired_ratio(times[rival], times[ours]):.1f} {rival}"
            for rival in rivals
            if rival in times
        ]
        yield f"{name:<48}{_microseconds(times[ours])}  {', '.join(ratios)}"


def _microseconds(times: Times) -> str:
    high = percentile(times.rounds.values(), 99)
    return f"{times.median * 1e6:>10.0f}{high * 1e6:>10.0f}"
