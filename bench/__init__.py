"""`layoutkit bench`: what conversions cost here, next to other libraries and the limit.

protocol      how anything is timed: one helper for all rows and devices
rows          what is measured: the table of docs/performance.md
cases         a row made ready: arrays, the right answer, variants
entries       who takes part in a row, layoutkit's own calls
host          what a row needs of the place where it runs, and the CPU's answers
limit         the streaming pass that no conversion can beat by much
peers         the same conversions with NumPy, torch and OpenCV
hptt          the same with HPTT, where the environment names its library
waiting       how OpenMP's threads wait between two operations
files         what will be written, looked at first
device        the same as host for a GPU: CUDA graphs, events
device_rows   what is measured on a GPU
device_peers  the same conversions with CuPy, and torch on the GPU
report        the table, the JSON file
chart         the picture
"""

__all__ = ["main"]


def main(
    quick: bool = False, plot: str | None = None, json: str | None = None, device: str = "cpu"
) -> int:
    """Measure all rows and print a table; return the exit code.

    `quick` measures fewer rows for a shorter time (under a minute on two cores, instead of
    under ten). `plot` names a picture file to draw, `json` a file for all numbers. `device` is
    "cpu" or "cuda". The exit code is 0, or 1 if a conversion of layoutkit gave a wrong result or
    none. Raises DeviceError for "cuda" without CuPy, a driver or a GPU, and ArgumentError, before
    anything is measured, for files that could not be written and an HPTT that is none.
    """
    from .run import run

    return run(quick=quick, plot=plot, json=json, device=device)
