"""Validate the output files of a benchmark before it measures for minutes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from ..errors import ArgumentError


def check_files(plot: str | None, json: str | None) -> None:
    """Raise for files that cannot be written.

    Raises
    ------
    ArgumentError
        The folder does not exist or is write-protected; the suffix belongs to no chart format;
        matplotlib is not installed; both files are the same.
    """
    if json is not None:
        _check_writable("--json", json)
    if plot is not None:
        _check_writable("--plot", plot)
        _check_chart_format(plot)
    if plot is not None and json is not None and _is_same_file(plot, json):
        raise ArgumentError(f"--plot: {plot} is the file of --json too; give each one its own")


def _check_writable(option: str, name: str) -> None:
    path = Path(name)
    folder = path.absolute().parent
    if path.is_dir():
        raise ArgumentError(f"{option}: {name or '.'} is a folder; give the name of a file in it")
    if not folder.is_dir():
        raise ArgumentError(f"{option}: there is no folder {folder}; create it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        place = name if path.exists() else f"the folder {folder}"
        raise ArgumentError(f"{option}: {place} is write-protected; choose another place")


def _check_chart_format(name: str) -> None:
    if find_spec("matplotlib") is None:
        raise ArgumentError(
            '--plot: needs matplotlib, which is not installed; pip install "layoutkit[plot]", or '
            "omit --plot"
        )
    from matplotlib.backend_bases import FigureCanvasBase

    formats = FigureCanvasBase.get_supported_filetypes()
    suffix = Path(name).suffix.removeprefix(".").lower()
    if suffix and suffix not in formats:  # without one matplotlib adds .png
        raise ArgumentError(
            f"--plot: {name} does not have the suffix of an image format; use .png, .svg or .pdf"
        )


def _is_same_file(first: str, second: str) -> bool:
    return Path(first).resolve() == Path(second).resolve()
