"""Convert photographs to tensors and back (`make demo`).

Crops of the two photographs that come with scikit-learn go from uint8 `bhwc`, as decoders return
them, to normalised float32 `bchw`, then to `chwb`, and back to the original bytes. Each step is
checked against NumPy, and timed together with NumPy and, if installed, PyTorch and OpenCV; the
figure is written to demo/output/demo.png.

The other libraries run the code of `layoutkit bench`, each in its fastest way, with the same
protocol: in turns, into outputs that are allocated before the measurement.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import layoutkit
from chart import draw
from layoutkit.bench.peers import Peer, available
from layoutkit.bench.protocol import Budget, Variant, measure
from layoutkit.bench.rows import MEAN, SCALE, STD, Row

Array = NDArray[Any]
Call = Callable[[], object]

OUTPUT = Path(__file__).parent / "output" / "demo.png"
SIZES = CROPS, SIZE, _, _ = 64, 224, 224, 3
BUDGET = Budget(seconds=1.2, warm_up=0.05)
OTHERS = {"torch": "torch", "OpenCV": "opencv-python-headless"}  # module name -> name for pip

# What models for ImageNet expect: y = (x / 255 - mean) / std for each channel.
FORWARD: dict[str, Any] = {"dtype": "float32", "scale": SCALE, "mean": MEAN, "std": STD}
# The same formula solved for x, rounded and clipped to bytes: x = y * FACTOR + TERM.
FACTOR, TERM = (np.array(constants, np.float32) * 255 for constants in (STD, MEAN))
BACKWARD: dict[str, Any] = {"dtype": "uint8", "mean": -TERM / FACTOR, "std": 1 / FACTOR}


@dataclass(frozen=True)
class Step:
    """One conversion: its name, layoutkit's arguments, and a row of the benchmark.

    The row selects the code of other libraries. The last step has no row and uses `restoring`.
    """

    name: str
    pattern: str
    options: dict[str, Any]
    row: Row | None = None


def _row(kind: str, pattern: str, dtype: str) -> Row:
    source, target = pattern.split("->")
    return Row("demo", kind, (source,), target, "bhwc", SIZES, dtype, "float32")


STEPS = (
    Step(
        "uint8 bhwc -> normalised float32 bchw",
        "bhwc->bchw",
        FORWARD,
        _row("fused", "bhwc->bchw", "uint8"),
    ),
    Step("float32 bchw -> chwb", "bchw->chwb", {}, _row("move", "bchw->chwb", "float32")),
    Step("float32 chwb -> the bytes in bhwc", "chwb->bhwc", BACKWARD | {"casting": "saturate"}),
)


def main() -> int:
    """Run all steps, check them, time them, draw them."""
    say("cutting crops out of two photographs ...")
    arrays = [photographs()]
    say("converting; the first time here the kernels are compiled, which takes seconds ...")
    for step in STEPS:
        arrays.append(layoutkit.convert(arrays[-1], step.pattern, **step.options))
    if not np.array_equal(arrays[-1], arrays[0]):
        sys.exit("the round trip did not give the photographs back")
    peers = available(layoutkit.get_num_threads())
    names = " and ".join(["layoutkit", *(peer.name for peer in peers)])
    say(f"timing {names} in turns, {len(STEPS)} steps of about {BUDGET.seconds:.0f} s ...\n")
    times = [timed(STEPS[n], arrays[n], arrays[n + 1], peers) for n in range(len(STEPS))]
    print_table(times, arrays, [peer.name for peer in peers])
    say("\ndrawing ...")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    draw(OUTPUT, arrays, {step.name: row for step, row in zip(STEPS, times, strict=True)})
    say(f"figure: {OUTPUT}")
    return 0


def say(message: str) -> None:
    """Print and flush, because output that is not a terminal would be buffered."""
    print(message, flush=True)


def photographs() -> Array:
    """Return crops at random offsets (with a fixed seed) of scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    images = load_sample_images().images
    places = np.random.default_rng(7)
    crops = []
    for number in range(CROPS):
        image = images[number % len(images)]
        top, left = (places.integers(0, length - SIZE + 1) for length in image.shape[:2])
        crops.append(image[top : top + SIZE, left : left + SIZE])
    return np.stack(crops)


# ---- checked and timed -------------------------------------------------------------------


def timed(step: Step, source: Array, result: Array, peers: list[Peer]) -> dict[str, float]:
    """Return the median seconds of layoutkit and of each library that can do this step."""
    converter = layoutkit.Converter(step.pattern, **step.options)
    ours = np.empty_like(result)
    variants = [Variant("layoutkit", [lambda: converter(source, out=ours)])]
    for peer in peers:
        out = np.empty_like(result)
        call = peer.into(step.row, [source], out) if step.row else restoring(peer, source, out)
        if call is None:
            continue
        call()
        if not np.allclose(out, result, rtol=1e-5, atol=1e-5):
            sys.exit(f"{step.name}: layoutkit and {peer.name} disagree")
        variants.append(Variant(peer.name, [call], spin_seconds=peer.spin_seconds))
    times = measure(variants, BUDGET)
    return {name: times[name].median for name in times}


def restoring(peer: Peer, source: Array, out: Array) -> Call | None:
    """Return the last step in NumPy or PyTorch: in place, in one reused array of floats."""
    if peer.name == "OpenCV":
        return None
    scratch = np.empty(out.shape, np.float32)
    view = source.transpose(3, 1, 2, 0)

    def numpy() -> None:
        np.multiply(view, FACTOR, out=scratch)
        np.add(scratch, TERM, out=scratch)
        np.rint(scratch, out=scratch)
        np.clip(scratch, 0, 255, out=scratch)
        np.copyto(out, scratch, casting="unsafe")

    if peer.name == "NumPy":
        return numpy
    import torch

    floats, target, x = (torch.from_numpy(array) for array in (scratch, out, view))
    factor, term = torch.from_numpy(FACTOR), torch.from_numpy(TERM)

    def pytorch() -> None:
        torch.mul(x, factor, out=floats)
        floats.add_(term).round_().clamp_(0, 255)
        target.copy_(floats)

    return pytorch


# ---- the table ---------------------------------------------------------------------------


def print_table(times: list[dict[str, float]], arrays: list[Array], peers: list[str]) -> None:
    """Print one line for each step, and a legend."""
    print(f"{CROPS} photographs, {arrays[0].shape}; threads: {layoutkit.get_num_threads()}")
    print(f"{'':38}{'layoutkit':>22}" + "".join(f"{name:>20}" for name in peers))
    for number, (step, row) in enumerate(zip(STEPS, times, strict=True)):
        ours = row["layoutkit"]
        speed = (arrays[number].nbytes + arrays[number + 1].nbytes) / ours / 1e9
        cells = [f"{ours * 1e3:.2f} ms {speed:5.1f} GB/s"]
        print(f"{step.name:38}{cells[0]:>22}", end="")
        print("".join(f"{_beside(row.get(name), ours):>20}" for name in peers))
    print("medians, outputs reused; in brackets how many times as long as layoutkit")
    print("\neach step agrees with all of them, and the round trip gave back the very same bytes")
    absent = [package for name, package in OTHERS.items() if name not in peers]
    if absent:
        print(f"to compare with more: {sys.executable} -m pip install {' '.join(absent)}")


def _beside(seconds: float | None, ours: float) -> str:
    return f"{seconds * 1e3:.2f} ms ({seconds / ours:.1f}x)" if seconds else "-"


if __name__ == "__main__":
    sys.exit(main())
