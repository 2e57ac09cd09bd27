"""Draw the figure of `make demo`: memory order before and after, times, and the round trip."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

Array = NDArray[Any]

INK, PALE, GRID = "#1f2328", "#59636e", "#d0d7de"
CHANNELS = {"R": "#c8443c", "G": "#2e7d4f", "B": "#2f62b5"}
OURS, THEIRS = "#2f62b5", "#b8c4d0"
PIXELS = 8  # of the strips of memory
HEADING: dict[str, Any] = {
    "color": INK, "x": 0.012, "ha": "left", "fontsize": 15, "fontweight": "bold",
}  # fmt: skip


def draw(path: Path, arrays: Sequence[Array], times: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the four arrays of the round trip and the seconds of each step into a PNG file."""
    bars = max(len(seconds) for seconds in times.values())
    heights = (2.5, 0.9 + 0.46 * bars, 4.3)
    figure = Figure(figsize=(12, sum(heights)), facecolor="white", layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.12, h_pad=0.09)
    areas: Any = figure.subfigures(3, 1, height_ratios=heights)
    memory, speed, round_trip = areas
    _draw_memory(memory, arrays[0])
    _draw_times(speed, times, bars)
    _draw_round_trip(round_trip, arrays)
    figure.savefig(path, dpi=120)


def _draw_memory(area: Any, batch: Array) -> None:
    """Draw the first bytes of a photograph's first row in both memory orders."""
    area.suptitle(f"The first {PIXELS} pixels in memory", **HEADING)
    axes = area.subplots()
    axes.set(xlim=(-4.4, 3 * PIXELS), ylim=(3.55, -0.1))
    axes.set_axis_off()
    cells = [[("RGB"[c], batch[0, 0, p, c]) for c in range(3)] for p in range(PIXELS)]
    pixels = [f"pixel {p}" for p in range(PIXELS)]
    _draw_strip(axes, 0, ("before", "bhwc"), cells, pixels)
    planes = ["the plane of reds ...", "of greens ...", "of blues ..."]
    _draw_strip(axes, 2, ("after", "bchw"), [*zip(*cells, strict=True)], planes)


def _draw_strip(
    axes: Any,
    y: float,
    names: tuple[str, str],
    groups: Sequence[Sequence[tuple[str, int]]],
    captions: Sequence[str],
) -> None:
    """Draw the cells of groups side by side, and a caption below each group."""
    axes.text(-4.4, y + 0.42, names[0], fontsize=13, color=PALE, va="center")
    axes.text(-2.3, y + 0.42, names[1], fontsize=17, color=INK, va="center", family="monospace")
    x = 0
    centered = {"fontsize": 11, "ha": "center", "va": "center"}
    for group, caption in zip(groups, captions, strict=True):
        middle = x + len(group) / 2
        line = [x + 0.06, x + len(group) - 0.06]
        axes.plot(line, [y + 1.02] * 2, color=GRID, lw=2, solid_capstyle="butt")
        axes.text(middle, y + 1.34, caption, color=PALE, **centered)
        for channel, value in group:
            color = CHANNELS[channel]
            axes.add_patch(Rectangle((x + 0.04, y), 0.92, 0.84, facecolor=color, edgecolor="none"))
            axes.text(x + 0.5, y + 0.44, value, color="white", **centered)
            x += 1


def _draw_times(area: Any, times: Mapping[str, Mapping[str, float]], bars: int) -> None:
    """Draw the bars of each step, with equal room for `bars` bars in each."""
    area.suptitle("Time for the batch: shorter is better", **HEADING)
    for axes, (step, seconds) in zip(area.subplots(1, len(times)), times.items(), strict=True):
        for y, (name, value) in enumerate(seconds.items()):
            is_ours = name == "layoutkit"
            axes.barh(y, value, height=0.68, color=OURS if is_ours else THEIRS)
            ratio = "" if is_ours else f"   {value / seconds['layoutkit']:.1f}x"
            weight = "bold" if is_ours else "normal"
            style = {"va": "center", "fontsize": 12, "color": INK, "fontweight": weight}
            axes.text(value, y, f" {value * 1e3:.1f} ms{ratio}", **style)
        axes.set_yticks(range(len(seconds)), list(seconds), fontsize=12, color=INK)
        axes.set(xlim=(0, max(seconds.values()) * 1.8), ylim=(bars - 0.5, -0.5), xticks=[])
        axes.tick_params(length=0)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.spines["left"].set_color(GRID)
        axes.set_title(step, fontsize=12, color=PALE, loc="left", pad=8)


def _draw_round_trip(area: Any, arrays: Sequence[Array]) -> None:
    batch, planes, _, back = arrays
    difference = np.abs(batch.astype(int) - back)
    area.suptitle("The round trip", **HEADING)
    left, middle, right, last = area.subplots(1, 4, width_ratios=(3, 1.12, 3, 3))
    _draw_image(left, batch[0], "the photograph", "uint8 bhwc")
    _draw_image(middle, _color_planes(planes[0]), "in memory", "float32 bchw")
    _draw_image(right, back[0], "back again", "uint8 bhwc")
    _draw_image(last, difference[0].max(2), "the difference", f"of {len(batch)} photographs")
    last.text(112, 112, difference.max(), fontsize=44, color="white", ha="center", va="center")


def _draw_image(axes: Any, image: Array, title: str, text: str) -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
    axes.set_title(title, fontsize=13, color=INK)
    axes.text(0.5, -0.03, text, transform=axes.transAxes, ha="center", va="top", fontsize=12,
              color=PALE, family="monospace")  # fmt: skip
    axes.set_axis_off()


def _color_planes(planes: Array) -> Array:
    """Return the planes in memory order, each in its color."""
    shares = (planes - planes.min()) / (planes.max() - planes.min())
    maps = [LinearSegmentedColormap.from_list(n, ["black", n, "white"]) for n in CHANNELS.values()]
    return np.concatenate([to_color(x)[..., :3] for to_color, x in zip(maps, shares, strict=True)])
