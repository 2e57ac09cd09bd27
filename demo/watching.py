"""Three programs with hidden layout copies, and the conversions that replace them, timed in turns.

python demo/watching.py            the times of docs/recipes/watch.md
layoutkit watch demo/watching.py   what `watch` finds in them
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from layoutkit import Converter

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ROUNDS = 25


def normalize(batch: Any) -> Any:
    """Normalize bytes in bhwc for a CNN."""
    x = batch.permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    return x.contiguous()


def patches(images: Any) -> Any:
    """Cut images into the patches of a vision transformer."""
    b, h, w, c = images.shape
    grid = images.reshape(b, h // 16, 16, w // 16, 16, c)
    return grid.permute(0, 1, 3, 2, 4, 5).reshape(b, h * w // 256, 256 * c).float() / 255


def letterbox(frame: Any) -> Any:
    """Place a frame in the middle of a square."""
    canvas = torch.full((1, 3, 640, 640), 114 / 255)
    canvas[0, :, 140:500] = frame.permute(2, 0, 1).float() / 255
    return canvas


def seconds(call: Callable[[Any], Any], x: Any) -> float:
    """Return the duration of a call."""
    start = time.perf_counter()
    call(x)
    return time.perf_counter() - start


def main() -> None:
    """Check that both ways agree, and time them in turns."""
    batch = torch.randint(0, 256, (64, 224, 224, 3), dtype=torch.uint8)
    frame = torch.randint(0, 256, (360, 640, 3), dtype=torch.uint8)
    programs: list[tuple[str, Any, Converter, Any]] = [
        (
            "CNN, 64 x 224 x 224 x 3",
            normalize,
            Converter("bhwc->bchw", dtype="float32", scale=1 / 255, mean=MEAN, std=STD),
            batch,
        ),
        (
            "patches, 64 x 224 x 224 x 3",
            patches,
            Converter("b(yp)(xq)c->b(yx)(pqc)", p=16, q=16, dtype="float32", scale=1 / 255),
            batch,
        ),
        (
            "letterbox, 360 x 640 x 3",
            letterbox,
            Converter("hwc->1chw", scale=1 / 255, pad_to={"h": 640, "w": 640}, fill=114),
            frame,
        ),
    ]
    for name, before, after, x in programs:
        if not torch.allclose(before(x), after(x), atol=1e-5):
            raise SystemExit(f"{name}: the two ways differ")
        times = [(seconds(before, x), seconds(after, x)) for _ in range(ROUNDS)]
        first, second = (median(column) * 1e3 for column in zip(*times, strict=True))
        print(f"{name:28} {first:7.2f} ms   {second:7.2f} ms   x {first / second:.1f}")


if __name__ == "__main__":
    main()
