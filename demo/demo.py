"""Convert photographs to tensors and back (`make demo`).

Crops of the two photographs that come with scikit-learn go from uint8 `bhwc`, as decoders return
them, to normalized float32 `bchw`, then to `chwb`, and back to the original bytes. Each step is
checked against NumPy, and timed together with NumPy and, if installed, PyTorch and OpenCV; the
figure is written to demo/output/demo.png.

The other libraries run the code of `layoutkit bench`, each in its fastest way, with the same
protocol: in turns, into outputs that are allocated before the measurement.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import layoutkit
from chart import draw
from layoutkit.bench.peers import Peer, available
from layoutkit.bench.protocol import Budget, Variant, measure
from layoutkit.bench.report import Column, Table
from layoutkit.bench.rows import MEAN, SCALE, STD, Row

Array = NDArray[Any]
Call = Callable[[], object]

OUTPUT = Path(__file__).parent / "output" / "demo.png"
SIZES = CROPS, SIZE, _, _ = 64, 224, 224, 3
BUDGET = Budget(seconds=1.2, warm_up=0.05)
PACKAGES = {"torch": "torch", "OpenCV": "opencv-python-headless"}  # names of libraries for pip

# What models for ImageNet expect: y = (x / 255 - mean) / std for each channel.
FORWARD: dict[str, Any] = {"dtype": "float32", "scale": SCALE, "mean": MEAN, "std": STD}
# The same formula solved for x, rounded and clipped to bytes: x = y * FACTOR + TERM.
FACTOR, TERM = (np.array(constants, np.float32) * 255 for constants in (STD, MEAN))
BACKWARD: dict[str, Any] = {"dtype": "uint8", "mean": -TERM / FACTOR, "std": 1 / FACTOR}


class Step(NamedTuple):
    """One conversion, and the row of the benchmark that selects the code of other libraries."""

    name: str
    pattern: str
    options: dict[str, Any]
    row: Row | None  # None: `restore`


def _row(kind: str, source: str, target: str, dtype: str) -> Row:
    return Row("demo", kind, (source,), target, "bhwc", SIZES, dtype, "float32")


STEPS = (
    Step("uint8 bhwc -> normalized float32 bchw", "bhwc->bchw", FORWARD,
         _row("fused", "bhwc", "bchw", "uint8")),
    Step("float32 bchw -> chwb", "bchw->chwb", {}, _row("move", "bchw", "chwb", "float32")),
    Step("float32 chwb -> the bytes in bhwc", "chwb->bhwc", BACKWARD | {"casting": "saturate"},
         None),
)  # fmt: skip


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


# Output that is not a terminal would be buffered.
say = partial(print, flush=True)


def photographs() -> Array:
    """Return crops at random offsets (with a fixed seed) of scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    images = load_sample_images().images
    random = np.random.default_rng(7)
    crops = []
    for number in range(CROPS):
        image = images[number % len(images)]
        top, left = (random.integers(0, length - SIZE + 1) for length in image.shape[:2])
        crops.append(image[top : top + SIZE, left : left + SIZE])
    return np.stack(crops)


def timed(step: Step, source: Array, result: Array, peers: Sequence[Peer]) -> dict[str, float]:
    """Return the median seconds of layoutkit and of each library that can do this step."""
    converter = layoutkit.Converter(step.pattern, **step.options)
    variants = [Variant("layoutkit", [partial(converter, source, np.empty_like(result))])]
    for peer in peers:
        out = np.empty_like(result)
        call = peer.into(step.row, [source], out) if step.row else restore(peer, source, out)
        if call is None:
            continue
        call()
        if not np.allclose(out, result, rtol=1e-5, atol=1e-5):
            sys.exit(f"{step.name}: layoutkit and {peer.name} disagree")
        variants.append(Variant(peer.name, [call], spin_seconds=peer.spin_seconds))
    return {name: times.median for name, times in measure(variants, BUDGET).items()}


def restore(peer: Peer, source: Array, out: Array) -> Call | None:
    """Return the last step in NumPy or PyTorch: in place, in one reused array of floats."""
    floats = np.empty(out.shape, np.float32)
    view = source.transpose(3, 1, 2, 0)
    if peer.name == "NumPy":

        def by_numpy() -> None:
            np.multiply(view, FACTOR, out=floats)
            np.add(floats, TERM, out=floats)
            np.rint(floats, out=floats)
            np.clip(floats, 0, 255, out=floats)
            np.copyto(out, floats, casting="unsafe")

        return by_numpy
    if peer.name != "torch":
        return None
    import torch

    scratch, target, x, factor, term = map(torch.from_numpy, (floats, out, view, FACTOR, TERM))

    def by_torch() -> None:
        torch.mul(x, factor, out=scratch)
        scratch.add_(term).round_().clamp_(0, 255)
        target.copy_(scratch)

    return by_torch


def print_table(times: list[dict[str, float]], arrays: list[Array], peers: list[str]) -> None:
    """Print one line for each step, and a legend."""
    columns = [Column("layoutkit", 22, _ours)]
    columns += [Column(name, 20, partial(_relative, name)) for name in peers]
    table = Table(38, columns)
    table.write_line(
        f"{CROPS} photographs, {arrays[0].shape}; threads: {layoutkit.get_num_threads()}"
    )
    table.write_headings("")
    for number, (step, seconds) in enumerate(zip(STEPS, times, strict=True)):
        nbytes = arrays[number].nbytes + arrays[number + 1].nbytes
        table.write_row(step.name, (seconds, nbytes))
    say("medians, outputs reused; in brackets how many times as long as layoutkit")
    say("\neach step agrees with all of them, and the round trip gave back the very same bytes")
    absent = [package for name, package in PACKAGES.items() if name not in peers]
    if absent:
        say(f"to compare with more: {sys.executable} -m pip install {' '.join(absent)}")


def _ours(item: tuple[dict[str, float], int]) -> str:
    seconds, nbytes = item[0]["layoutkit"], item[1]
    return f"{seconds * 1e3:.2f} ms {nbytes / seconds / 1e9:5.1f} GB/s"


def _relative(name: str, item: tuple[dict[str, float], int]) -> str | None:
    times = item[0]
    if name not in times:
        return None
    return f"{times[name] * 1e3:.2f} ms ({times[name] / times['layoutkit']:.1f}x)"


if __name__ == "__main__":
    sys.exit(main())
