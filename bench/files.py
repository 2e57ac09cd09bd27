"""The files that a benchmark will write, looked at before it measures for minutes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from ..errors import ArgumentError


def check_files(plot: str | None, json: str | None) -> None:
    """Refuse files that could not be written in the end.

    Raises
    ------
    ArgumentError
        No folder of that name, or one that may not be written to; a suffix that is no picture's;
        no matplotlib for a picture; one file for both.
    """
    if json is not None:
        _check_place("--json", json)
    if plot is not None:
        _check_place("--plot", plot)
        _check_picture(plot)
    if plot is not None and json is not None and _same(plot, json):
        raise ArgumentError(f"--plot: {plot} is the file of --json too; give each one its own")


def _check_place(option: str, name: str) -> None:
    path = Path(name)
    folder = path.absolute().parent
    if path.is_dir():
        raise ArgumentError(f"{option}: {name or '.'} is a folder; give the name of a file in it")
    if not folder.is_dir():
        raise ArgumentError(f"{option}: there is no folder {folder}; create it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        place = name if path.exists() else f"the folder {folder}"
        raise ArgumentError(f"{option}: {place} is write-protected; choose another place")


def _check_picture(name: str) -> None:
    if find_spec("matplotlib") is None:
        raise ArgumentError(
            '--plot: needs matplotlib, which is not installed; pip install "layoutkit[plot]", or '
            "leave it out"
        )
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    suffix = Path(name).suffix.removeprefix(".").lower()
    if suffix and suffix not in kinds:  # without one matplotlib adds .png
        raise ArgumentError(
            f"--plot: {name} has no suffix of a picture; give it one of .png, .svg and .pdf"
        )


def _same(first: str, second: str) -> bool:
    return Path(first).resolve() == Path(second).resolve()
