"""Draw the figure of `make demo`: memory order before and after, times, and the round trip."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

Array = NDArray[Any]

INK, PALE, GRID = "#1f2328", "#59636e", "#d0d7de"
CHANNELS = {"R": "#c8443c", "G": "#2e7d4f", "B": "#2f62b5"}
BARS = {"layoutkit": "#2f62b5", "NumPy": "#b8c4d0", "torch": "#b8c4d0", "OpenCV": "#b8c4d0"}
PIXELS = 8  # of the strips of memory
HEADING: dict[str, Any] = {"x": 0.012, "ha": "left", "fontsize": 15, "fontweight": "bold"}


def draw(path: Path, arrays: Sequence[Array], times: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the four arrays of the round trip and the seconds of each step into a PNG file."""
    bars = max(len(seconds) for seconds in times.values())
    heights = (2.5, 0.9 + 0.46 * bars, 4.3)
    figure = plt.figure(figsize=(12, sum(heights)), facecolor="white", layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.12, h_pad=0.09)
    parts: Any = figure.subfigures(3, 1, height_ratios=heights)
    _memory(parts[0], arrays[0])
    _bars(parts[1], times, bars)
    _round_trip(parts[2], arrays)
    figure.savefig(path, dpi=120)
    plt.close(figure)


# ---- memory order ------------------------------------------------------------------------


def _memory(area: Any, batch: Array) -> None:
    """Draw the first bytes of a photograph's first row in memory order."""
    area.suptitle(f"The first {PIXELS} pixels in memory", color=INK, **HEADING)
    pixels = batch[0, 0, :PIXELS]
    before = [("RGB"[c], pixels[p, c]) for p in range(PIXELS) for c in range(3)]
    after = [("RGB"[c], pixels[p, c]) for c in range(3) for p in range(PIXELS)]
    pixel_names = [f"pixel {p}" for p in range(PIXELS)]
    axes = area.subplots()
    axes.set_xlim(-4.4, 3 * PIXELS)
    axes.set_ylim(3.55, -0.1)
    axes.set_axis_off()
    _strip(axes, 0, "before", "bhwc", before, pixel_names, 3)
    planes = ["the plane of reds ...", "of greens ...", "of blues ..."]
    _strip(axes, 2, "after", "bchw", after, planes, PIXELS)


def _strip(
    axes: Any,
    y: float,
    when: str,
    layout: str,
    cells: Sequence[tuple[str, int]],
    groups: Sequence[str],
    length: int,
) -> None:
    axes.text(-4.4, y + 0.42, when, fontsize=13, color=PALE, va="center")
    axes.text(-2.3, y + 0.42, layout, fontsize=17, color=INK, va="center", family="monospace")
    for x, (channel, value) in enumerate(cells):
        colour = CHANNELS[channel]
        axes.add_patch(Rectangle((x + 0.04, y), 0.92, 0.84, facecolor=colour, edgecolor="none"))
        axes.text(x + 0.5, y + 0.44, value, fontsize=11, color="white", ha="center", va="center")
    for number, group in enumerate(groups):
        left, right = number * length + 0.06, (number + 1) * length - 0.06
        axes.plot([left, right], [y + 1.02] * 2, color=GRID, lw=2, solid_capstyle="butt")
        middle = (left + right) / 2
        axes.text(middle, y + 1.34, group, fontsize=11, color=PALE, ha="center", va="center")


# ---- time --------------------------------------------------------------------------------


def _bars(area: Any, times: Mapping[str, Mapping[str, float]], most: int) -> None:
    """Draw the bars of each step, with equal room for `most` bars in each."""
    area.suptitle("Time for the batch: shorter is better", color=INK, **HEADING)
    for axes, (step, seconds) in zip(area.subplots(1, len(times)), times.items(), strict=True):
        _step(axes, step, seconds)
        axes.set_ylim(most - 0.5, -0.5)


def _step(axes: Any, step: str, seconds: Mapping[str, float]) -> None:
    ours, longest = seconds["layoutkit"], max(seconds.values())
    for place, (name, value) in enumerate(seconds.items()):
        is_ours = name == "layoutkit"
        axes.barh(place, value, height=0.68, color=BARS[name])
        label = f" {value * 1e3:.1f} ms" + ("" if is_ours else f"   {value / ours:.1f}x")
        weight = "bold" if is_ours else "normal"
        axes.text(value, place, label, va="center", fontsize=12, color=INK, fontweight=weight)
    axes.set_yticks(range(len(seconds)), list(seconds), fontsize=12, color=INK)
    axes.set_xlim(0, longest * 1.8)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GRID)
    axes.set_title(step, fontsize=12, color=PALE, loc="left", pad=8)


# ---- the round trip ----------------------------------------------------------------------


def _round_trip(area: Any, arrays: Sequence[Array]) -> None:
    batch, planes, _, back = arrays
    difference = np.abs(batch.astype(int) - back)
    area.suptitle("The round trip", color=INK, **HEADING)
    left, middle, right, nothing = area.subplots(1, 4, width_ratios=(3, 1.12, 3, 3))
    _show_image(left, batch[0], "the photograph", "uint8 bhwc")
    _planes(middle, planes[0])
    _show_image(right, back[0], "back again", "uint8 bhwc")
    _show_image(
        nothing, difference[0].max(2), "the difference", f"of {len(batch)} photographs", "gray"
    )
    nothing.text(112, 112, difference.max(), fontsize=44, color="white", ha="center", va="center")


def _show_image(axes: Any, image: Array, title: str, text: str, colours: str | None = None) -> None:
    axes.imshow(image, cmap=colours, vmin=0, vmax=255)
    axes.set_title(title, fontsize=13, color=INK)
    axes.text(0.5, -0.03, text, transform=axes.transAxes, ha="center", va="top", fontsize=12,
              color=PALE, family="monospace")  # fmt: skip
    axes.set_axis_off()


def _planes(axes: Any, planes: Array) -> None:
    """Draw the planes in memory order, each in its color."""
    low, high = planes.min(), planes.max()
    maps = [LinearSegmentedColormap.from_list(n, ["black", n, "white"]) for n in CHANNELS.values()]
    shares = (planes - low) / (high - low)
    coloured = [colours(share)[..., :3] for colours, share in zip(maps, shares, strict=True)]
    axes.imshow(np.concatenate(coloured), interpolation="antialiased")
    axes.set_title("in memory", fontsize=13, color=INK)
    axes.text(0.5, -0.03, "float32 bchw", transform=axes.transAxes, ha="center", va="top",
              fontsize=12, color=PALE, family="monospace")  # fmt: skip
    axes.set_axis_off()
