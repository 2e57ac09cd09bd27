"""`layoutkit bench`: what conversions cost here, next to other libraries and the limit.

protocol      how anything is timed: one helper for all rows and devices
rows          what is measured: the table of docs/performance.md
cases         a row made ready: arrays, the right answer, variants
entries       who takes part in a row, layoutkit's own calls
host          what a row needs of the place where it runs, and the CPU's answers
limit         the streaming pass that no conversion can beat by much
peers         the same conversions with NumPy, torch and OpenCV
others        `--others`: with compilers and pipelines of training
hptt          the same with HPTT, where the environment names its library
waiting       how OpenMP's threads wait between two operations
files         what will be written, looked at first
device        the same as host for a GPU: CUDA graphs, events
device_rows   what is measured on a GPU
device_peers  the same conversions with CuPy, and torch on the GPU
report        the table, the JSON file
chart         the picture
loop          `--loop`: the same conversion between other things that a program does
situations    what those are
loop_results  what came of it: medians, their ratios, what misses; saved and read again
loop_report   its table, and the one of docs/performance.md from saved results
loop_chart    its picture
collating     `--collate`: many samples into one batch
saved         `--from`: table and picture of saved results
"""

from ..errors import ArgumentError

__all__ = ["main"]


def main(
    quick: bool = False,
    plot: str | None = None,
    json: str | None = None,
    device: str = "cpu",
    loop: bool = False,
    saved: str | None = None,
    others: bool = False,
    collate: bool = False,
) -> int:
    """Measure all rows and print a table; return the exit code.

    `quick` measures fewer rows for a shorter time (under a minute on two cores, instead of
    under ten). `plot` names a picture file to draw, `json` a file for all numbers. `device` is
    "cpu" or "cuda". `others` also measures compilers and pipelines of training. `loop` measures one
    conversion in a loop, beside other work, instead; `collate` batches of many samples. `saved` is
    a JSON file of `loop`: nothing is measured, and its table is printed in Markdown. The exit code
    is 0, or 1 if a conversion of layoutkit gave a wrong result or none. Raises DeviceError for
    "cuda" without CuPy, a driver or a GPU, and ArgumentError, before anything is measured, for
    files that could not be written, an HPTT that is none, and options that do not go together.
    """
    _check(quick, json, device, loop, saved, others)
    if collate:
        _check_collate(plot, json, device, loop, saved, others)
        from .collating import run_collate

        return run_collate(quick)
    if saved is not None:
        from .report import show

        return show(saved, plot)
    if loop:
        from .loop import run_loop

        return run_loop(quick=quick, plot=plot, json=json)
    from .run import run

    return run(quick=quick, plot=plot, json=json, device=device, with_others=others)


def _check(
    quick: bool, json: str | None, device: str, loop: bool, saved: str | None, others: bool
) -> None:
    """Refuse what would be ignored."""
    if others and (loop or saved is not None or device != "cpu"):
        raise ArgumentError(
            "--others: goes with the rows of the CPU; leave out --loop, --from and --device"
        )
    if loop and device != "cpu":
        raise ArgumentError(f"--loop: measures on the CPU; leave out --device {device}")
    if saved is not None and (quick or json is not None or loop or device != "cpu"):
        raise ArgumentError(
            "--from: measures nothing; leave out --loop, --quick, --json and --device"
        )


def _check_collate(
    plot: str | None, json: str | None, device: str, loop: bool, saved: str | None, others: bool
) -> None:
    """Refuse what a table of batches has not."""
    if (plot, json, device, loop, saved, others) != (None, None, "cpu", False, None, False):
        raise ArgumentError("--collate: prints one table; of the other options it takes --quick")
