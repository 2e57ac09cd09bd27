"""`layoutkit bench`: what conversions cost here, next to NumPy, torch, OpenCV and the limit.

protocol    how anything is timed: one helper for all rows
rows        what is measured: the table of docs/performance.md
cases       a row made ready: arrays, the right answer, layoutkit's calls
limit       the streaming pass that no conversion can beat by much
peers       the same conversions with NumPy, torch and OpenCV
report      the table, the JSON file
chart       the picture
"""

__all__ = ["main"]


def main(quick: bool = False, plot: str | None = None, json: str | None = None) -> int:
    """Measure all rows and print a table; return the exit code.

    `quick` measures fewer rows for a shorter time (under a minute on two cores, instead of
    under ten). `plot` names a picture file to draw, `json` a file for all numbers. The exit
    code is 0, or 1 if a conversion of layoutkit gave a wrong result.
    """
    from .run import run

    return run(quick=quick, plot=plot, json=json)
