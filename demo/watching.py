"""Three programs with hidden layout copies, and the conversions that replace them, timed in turns.

python demo/watching.py            the times of docs/recipes/watch.md
layoutkit watch demo/watching.py   what `watch` finds in them
"""

from functools import partial
from typing import Any

import torch

from layoutkit import Converter
from layoutkit.bench.protocol import Budget, Variant, measure
from layoutkit.bench.rows import MEAN, STD

BUDGET = Budget(seconds=2.0, warm_up=0.05, min_rounds=25, max_rounds=25, sample=0.0)


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


SCALE = 1 / 255
PADDED: dict[str, Any] = {"pad_to": {"h": 640, "w": 640}, "fill": 114}
PROGRAMS: list[tuple[Any, Converter, tuple[int, ...]]] = [
    (
        normalize,
        Converter("bhwc->bchw", dtype="float32", scale=SCALE, mean=MEAN, std=STD),
        (64, 224, 224, 3),
    ),
    (
        patches,
        Converter("b(yp)(xq)c->b(yx)(pqc)", p=16, q=16, dtype="float32", scale=SCALE),
        (64, 224, 224, 3),
    ),
    (letterbox, Converter("hwc->1chw", scale=SCALE, **PADDED), (360, 640, 3)),
]


def main() -> None:
    """Check that both ways agree, and time them in turns."""
    for before, after, shape in PROGRAMS:
        x = torch.randint(0, 256, shape, dtype=torch.uint8)
        if not torch.allclose(before(x), after(x), atol=1e-5):
            raise SystemExit(f"{before.__name__}: the two ways differ")
        calls = {"before": partial(before, x), "after": partial(after, x)}
        times = measure([Variant(name, [call]) for name, call in calls.items()], BUDGET)
        first, second = (times[name].median * 1e3 for name in calls)
        print(
            f"{before.__name__} {shape}: {first:.2f} ms   {second:.2f} ms   x {first / second:.1f}"
        )


if __name__ == "__main__":
    main()
