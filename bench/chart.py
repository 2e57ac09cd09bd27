"""Draw the share of the limit that each row and library reaches, with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BAR = "#9cc3d5"
GOAL = "#d1495b"
GRID = "#dddddd"
INK = "#222222"
PALE = "#777777"
PEERS = {
    "NumPy": ("o", "#b5651d"),
    "torch": ("D", "#6a3d9a"),
    "OpenCV": ("s", "#1b7837"),
    "HPTT": ("^", "#8c6d00"),
    "CuPy": ("o", "#1b7837"),
}


def draw(path: str, results: Sequence[Result], about: Mapping[str, Any]) -> None:
    """Draw a horizontal bar for each row with a limit; the suffix of `path` selects the format."""
    from matplotlib.figure import Figure

    shown = [result for result in results if result.of_limit is not None]
    positions = _bar_positions(shown)
    figure = Figure(figsize=(10, 1.2 + 0.21 * (positions[-1] + 2 if positions else 2)), dpi=150)
    axes = figure.add_subplot()
    _draw_bars(axes, shown, positions)
    _draw_peers(axes, shown, positions)
    _format_axes(axes, shown, positions)
    _add_texts(axes, about)
    figure.savefig(path, bbox_inches="tight", facecolor="white")


def _bar_positions(results: Sequence[Result]) -> list[float]:
    """Return the position of each bar from the top, with room for a heading per group."""
    positions: list[float] = []
    group = ""
    pos = -1.0
    for result in results:
        pos += 1.0 if result.row.group == group else 2.2
        group = result.row.group
        positions.append(pos)
    return positions


def _draw_bars(axes: Axes, results: Sequence[Result], positions: Sequence[float]) -> None:
    shares = [100 * (result.of_limit or 0) for result in results]
    axes.barh(positions, shares, height=0.72, color=BAR, label="layoutkit", zorder=2)
    for pos, share in zip(positions, shares, strict=True):
        text = f"{share:.0f} %"
        # The texts are in a column right of the frame, where no bar or mark can cover them.
        transform = axes.get_yaxis_transform()
        axes.text(1.012, pos, text, transform=transform, fontsize=7, color=INK, va="center")
    goals = [100 * (result.row.at_least or 0) for result in results]
    points = [(goal, pos) for goal, pos in zip(goals, positions, strict=True) if goal]
    if points:
        x_goals, y_goals = zip(*points, strict=True)
        axes.scatter(x_goals, y_goals, s=70, marker="|", color=GOAL, lw=1.8, label="goal", zorder=3)


def _draw_peers(axes: Axes, results: Sequence[Result], positions: Sequence[float]) -> None:
    for name, (marker, color) in PEERS.items():
        points = [
            (100 * share, pos)
            for result, pos in zip(results, positions, strict=True)
            if (share := result.share(name)) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=14, marker=marker, color=color, label=name, zorder=5, lw=0)


def _format_axes(axes: Axes, results: Sequence[Result], positions: Sequence[float]) -> None:
    labels = [_label(result) for result in results]
    axes.set_yticks(positions, labels, fontsize=6.5, family="monospace")
    axes.set_ylim((positions[-1] if positions else 0) + 0.8, -0.6)
    axes.set_xlim(0, max([105.0, *(102 * (result.of_limit or 0) for result in results)]))
    axes.axvline(100, color=INK, lw=0.8, zorder=1)
    axes.xaxis.grid(True, color=GRID, lw=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK)
    axes.tick_params(axis="x", labelsize=7.5)
    for side in axes.spines.values():
        side.set_visible(False)
    _add_group_names(axes, results, positions)


def _add_group_names(axes: Axes, results: Sequence[Result], positions: Sequence[float]) -> None:
    group = ""
    for result, pos in zip(results, positions, strict=True):
        if result.row.group != group:
            group = result.row.group
            axes.text(0, pos - 0.8, group, fontsize=8, weight="bold", color=INK, va="center")


def _label(result: Result) -> str:
    row = result.row
    count = len(row.sources)
    pattern = row.pattern if count == 1 else f"{count} gradients->{row.target}"
    dtypes = row.dtype if row.dtype == row.to_dtype else f"{row.dtype}->{row.to_dtype}"
    return f"{pattern} {dtypes} {'x'.join(map(str, row.sizes))}"


def _add_texts(axes: Axes, about: Mapping[str, Any]) -> None:
    """Add title and legend above the frame, and the machine and versions below it."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    cpu = f"{about['cpu']}, {about['threads']} threads"
    machine = about["gpu"]["name"] if "gpu" in about else cpu
    note = f"{about['date'][:10]}, {machine}, {versions}"
    title = "Percent of the limit (a sequential pass over the same bytes)"
    axes.set_title(title, fontsize=11, loc="left", color=INK, pad=20)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=5, fontsize=7.5, frameon=False)
    axes.annotate(
        note, (0, 0), (0, -22), "axes fraction", "offset points", fontsize=7, color=PALE, va="top"
    )
