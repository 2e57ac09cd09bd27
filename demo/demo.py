"""Photographs to tensors and back: what `make demo` runs.

Crops of the two photographs that come with scikit-learn go from uint8 `bhwc`, as decoders
give them, to normalised float32 `bchw`, on to `chwb`, and back to the very bytes they were.
Each step is checked against NumPy and timed beside it; the picture is written to
demo/output/demo.png.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import layoutkit

Array = NDArray[Any]

OUTPUT = Path(__file__).parent / "output" / "demo.png"
CROPS, SIZE, ROUNDS = 64, 224, 15

# What ImageNet models expect: y = (x / 255 - MEAN) / STD for each channel.
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])
NORMALISE: dict[str, Any] = {"dtype": "float32", "scale": 1 / 255, "mean": MEAN, "std": STD}
# The same formula solved for x, rounded and clipped to bytes.
RESTORE: dict[str, Any] = {
    "dtype": "uint8",
    "mean": -MEAN / STD,
    "std": 1 / (255 * STD),
    "casting": "saturate",
}


@dataclass(frozen=True)
class Step:
    """One conversion, by layoutkit and by NumPy; both take the same array."""

    name: str
    layoutkit: Callable[[Array], Array]
    numpy: Callable[[Array], Array]


STEPS = (
    Step(
        "uint8 bhwc -> normalised float32 bchw",
        lambda x: layoutkit.convert(x, "bhwc->bchw", **NORMALISE),
        lambda x: np.ascontiguousarray(
            ((x * np.float32(1 / 255) - MEAN.astype("f4")) / STD.astype("f4")).transpose(0, 3, 1, 2)
        ),
    ),
    Step(
        "float32 bchw -> chwb",
        lambda x: layoutkit.convert(x, "bchw->chwb"),
        lambda x: np.ascontiguousarray(x.transpose(1, 2, 3, 0)),
    ),
    Step(
        "float32 chwb -> uint8 bhwc, as it was",
        lambda x: layoutkit.convert(x, "chwb->bhwc", **RESTORE),
        lambda x: np.ascontiguousarray(
            np.rint((x.transpose(3, 1, 2, 0) * STD.astype("f4") + MEAN.astype("f4")) * 255)
            .clip(0, 255)
            .astype("u1")
        ),
    ),
)


def main() -> int:
    """Run all steps, check them, time them, draw them."""
    batch = photographs()
    print(f"{len(batch)} crops of real photographs: {batch.shape} {batch.dtype}\n")
    results = [batch]
    for step in STEPS:
        results.append(step.layoutkit(results[-1]))
        check(step, results[-2], results[-1])
    if not np.array_equal(results[-1], batch):
        sys.exit("the round trip did not give the photographs back")
    print_table([measure(step, array) for step, array in zip(STEPS, results, strict=False)])
    print("\nevery step agrees with NumPy, and the round trip gave back the very same bytes")
    draw(*results)
    print(f"picture: {OUTPUT}")
    return 0


def photographs() -> Array:
    """Crops at random places (the same on every run) of scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    images = load_sample_images().images
    places = np.random.default_rng(7)
    crops = []
    for number in range(CROPS):
        image = images[number % len(images)]
        top, left = (places.integers(0, length - SIZE + 1) for length in image.shape[:2])
        crops.append(image[top : top + SIZE, left : left + SIZE])
    return np.stack(crops)


def check(step: Step, source: Array, result: Array) -> None:
    """Stop unless NumPy comes to the same values (and, where it computes, to the last digits)."""
    expected = step.numpy(source)
    same = np.array_equal(result, expected)
    close = source.dtype != result.dtype and np.allclose(result, expected, rtol=1e-6, atol=1e-6)
    if not (same or close) or result.dtype != expected.dtype:
        sys.exit(f"{step.name}: layoutkit and NumPy disagree")


def measure(step: Step, source: Array) -> tuple[str, float, float, float]:
    """The step's name, median seconds of layoutkit and NumPy, and bytes read and written.

    The two take turns, so that whatever slows the machine slows both.
    """
    times: dict[Callable[[Array], Array], list[float]] = {step.layoutkit: [], step.numpy: []}
    nbytes = source.nbytes + step.layoutkit(source).nbytes
    for _ in range(ROUNDS):
        for function, seconds in times.items():
            began = time.perf_counter()
            function(source)
            seconds.append(time.perf_counter() - began)
    ours, theirs = (statistics.median(seconds) for seconds in times.values())
    return step.name, ours, theirs, nbytes


def print_table(rows: Sequence[tuple[str, float, float, float]]) -> None:
    """Print one line for each step."""
    print(f"{'':38} {'layoutkit':>20} {'NumPy':>20} {'faster':>8}")
    for name, ours, theirs, nbytes in rows:
        columns = [f"{t * 1e3:6.2f} ms {nbytes / t / 1e9:5.1f} GB/s" for t in (ours, theirs)]
        print(f"{name:38} {columns[0]:>20} {columns[1]:>20} {theirs / ours:7.1f}x")
    print(f"medians of {ROUNDS} rounds in which the two take turns")


# ---- the picture -----------------------------------------------------------------------


def draw(batch: Array, bchw: Array, chwb: Array, back: Array) -> None:
    """Input, channels and round trip, a row each, in one PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(12, 7.6), facecolor="white", layout="constrained")
    rows: Any = figure.subfigures(3, 1, hspace=0.03)
    shown = 6
    _row(rows[0], f"input: uint8 bhwc {batch.shape}", [(crop, None, "") for crop in batch[:shown]])
    _row(rows[1], "one crop as normalised float32, a plane for each channel", _planes(bchw, chwb))
    difference = int(np.abs(batch.astype(int) - back).max())
    title = f"back again: uint8 bhwc, largest difference from the input {difference}"
    _row(rows[2], title, [(crop, None, "") for crop in back[:shown]])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT, dpi=110)


def _planes(bchw: Array, chwb: Array) -> Sequence[tuple[Array, str, str]]:
    maps = ("Reds_r", "Greens_r", "Blues_r")
    first = [(bchw[0, c], maps[c], f"bchw[0, {c}]") for c in range(3)]
    return first + [(chwb[c, :, :, 0], maps[c], f"chwb[{c}, :, :, 0]") for c in range(3)]


def _row(area: Any, title: str, panels: Sequence[tuple[Array, str | None, str]]) -> None:
    area.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color="#1f2328")
    for axes, (image, colours, label) in zip(area.subplots(1, len(panels)), panels, strict=True):
        axes.imshow(image, cmap=colours)
        axes.set_title(label, fontsize=10, family="monospace", color="#59636e")
        axes.set_axis_off()


if __name__ == "__main__":
    sys.exit(main())
