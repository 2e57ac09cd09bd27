"""`layoutkit bench --from`: the table and the picture of results that were saved."""

from __future__ import annotations

import sys

from .files import check_files
from .loop_report import markdown
from .loop_results import load

__all__ = ["show"]


def show(path: str, plot: str | None) -> int:
    """Print the table in Markdown, and draw the picture; ArgumentError for other files."""
    check_files(plot, None)
    results, about = load(path)
    sys.stdout.write(markdown(results, about))
    if plot is not None:
        from .loop_chart import draw_loop

        draw_loop(plot, results, about)
    return 0
