"""The picture of `layoutkit bench --loop`: one panel a situation, sizes across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .chart import GOAL, GRID, INK, PALE, PEERS
from .loop_results import ALL, NUMPY, ONE, TORCH, LoopResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_loop"]

_ACROSS = 4  # panels
_LINES = {ALL: ("o", "#2a7f9e"), NUMPY: PEERS["NumPy"], TORCH: PEERS["torch"]}


def draw_loop(path: str, results: Sequence[LoopResult], about: Mapping[str, Any]) -> None:
    """Draw the medians as multiples of one thread's, into a file (the suffix says which kind)."""
    from matplotlib.figure import Figure

    situations = list(dict.fromkeys(result.situation for result in results))
    down = max(1, -(-len(situations) // _ACROSS))
    figure = Figure(figsize=(3 * _ACROSS, 1.2 + 2.3 * down), dpi=150, layout="constrained")
    panels = figure.subplots(down, _ACROSS, sharex=True, sharey=True, squeeze=False).flat
    labels: dict[str, Any] = {}
    for situation, panel in zip(situations, panels, strict=False):
        _panel(panel, situation, [r for r in results if r.situation == situation])
        shown, names = panel.get_legend_handles_labels()
        labels.update(zip(names, shown, strict=True))
    for panel in panels:  # those that are left
        panel.set_axis_off()
    handles = list(labels.values())
    figure.legend(handles, list(labels), loc="outside upper right", ncols=4, frameon=False)
    figure.suptitle(_title(about), fontsize=8, color=PALE, x=0.01, ha="left")
    figure.savefig(path, facecolor="white")


def _panel(axes: Axes, situation: str, results: Sequence[LoopResult]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_title(situation, fontsize=9, loc="left", color=INK)
    axes.axhline(1, color=INK, lw=0.8, zorder=1)
    for name, (marker, colour) in _LINES.items():
        points = [(r.megabytes, q) for r in results if (q := r.ratio(name, ONE)) is not None]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, marker=marker, ms=3.5, lw=1.2, color=colour, label=name, zorder=3)
    _misses(axes, results)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.grid(True, color=GRID, lw=0.6, zorder=0)
    axes.tick_params(labelsize=7, colors=INK)
    for side in axes.spines.values():
        side.set_visible(False)


def _misses(axes: Axes, results: Sequence[LoopResult]) -> None:
    missed = [r for r in results if r.missed]
    points = [(r.megabytes, q) for r in missed if (q := r.ratio(ALL, ONE)) is not None]
    if points:
        x, y = zip(*points, strict=True)
        axes.scatter(x, y, s=60, facecolors="none", edgecolors=GOAL, label="misses", zorder=4)


def _title(about: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    machine = f"{about['cpu']}, {about['threads']} threads"
    what = "Time of one call as a multiple of one thread's (medians), by MB that are read"
    return f"{what}\n{about['date'][:10]}, {machine}, {versions}"
