"""`layoutkit bench`: compare conversions with other libraries and with the memory limit.

cases           prepare a row: arrays, the expected result, the variants
chart           draw the results with matplotlib
compare         `make compare`: this tree and an earlier commit in turns
compare_rows    its rows, as texts that both trees execute
compare_worker  its processes, one for each tree
device          rows, limit and peers on a GPU: CUDA graphs, events
entries         the variants of a row: layoutkit's calls and the peers' calls
files           validate output files before measuring
host            rows on the CPU, the streaming pass that is the limit, OMP_WAIT_POLICY
loaders         `--loaders`: epochs of records from files, compared with other data loaders
loader_cases    the sources of `--loaders`, and the loaders that read them
peers           the same conversions with other libraries
photos          generated JPEGs, in files of all kinds
protocol        the measuring protocol for all rows and libraries
report          the printer of all tables
results         the numbers, their summary, and the JSON files
rows            the rows of the table
run             measure all rows and report
samples         `--collate` and `--resize`: many samples into one batch
sample_cases    the samples, windows and batches of these tables
sample_peers    the same batches with other libraries
sweeps          `--random`, `--hptt57`, `--channels`, `--runs`, `--floor`: rows of many shapes
"""

from collections.abc import Sequence
from functools import partial

from ..errors import ArgumentError

__all__ = ["main"]

# Tables of other things than conversions; everything else is a sweep (see sweeps.py).
SAMPLES = ("collate", "resize")
LOADERS = "loaders"


def main(
    *,
    table: str | None = None,
    quick: bool = False,
    plot: str | None = None,
    json: str | None = None,
    device: str = "cpu",
    count: int = 0,
    seed: int = 0,
    conversion: tuple[str, Sequence[int], str, str | None] | None = None,
    only: str | None = None,
    limit: float | None = None,
) -> int:
    """Measure all rows of a table and print them; return the exit code.

    `table` is the main one by default; "collate" (batches of many samples), "resize" (batches of
    resized images), "loaders" (batches that data loaders make of files), or the name of a sweep in
    sweeps.py, where "random" has `count` rows from `seed`. `conversion` is one conversion to
    measure instead: pattern, shape, and dtypes of both sides.
    `quick` measures fewer rows for a shorter time (on two cores, less than a minute instead of
    ten). `plot` is the file of a chart, `json` a file for all numbers. `device` is "cpu" or "cuda".
    `only` is a regular expression that the names of rows have to match, and no row (of "loaders",
    no number of workers) is begun after `limit` seconds. The exit code is 0, or 1 if a conversion
    of layoutkit fails or gives a wrong result, or if a row of the sweep "floor" misses its goal.
    Raises DeviceError for "cuda" without CuPy, a driver or a GPU, and ArgumentError, before
    measuring, for files that cannot be written, an invalid HPTT library, and options that cannot
    be combined.
    """
    filters = only is not None or limit is not None
    _check(table, device, conversion is not None, filters)
    if table == LOADERS:
        if (device, plot, only) != ("cpu", None, None):
            raise ArgumentError("--loaders: can only be combined with --quick, --json and --limit")
        from .loaders import run_loaders

        return run_loaders(quick, json, limit)
    if table in SAMPLES:
        if (plot, json) != (None, None):
            raise ArgumentError(f"--{table}: can only be combined with --quick")
        from .samples import run_samples

        return run_samples(table, quick)
    from . import run

    if conversion is not None:
        return _measure_conversion(conversion, quick, plot, json, device)
    if table is None:
        setup = partial(run.main_setup, device, quick)
    else:
        setup = partial(run.sweep_setup, device, quick, table, count, seed)
    return run.run(setup, quick, plot, json, only, limit)


def _check(table: str | None, device: str, is_own: bool, filters: bool) -> None:
    """Raise ArgumentError for options that cannot be combined."""
    if is_own and (table is not None or filters):
        raise ArgumentError("PATTERN: measures one conversion; omit options that select other rows")
    if table in SAMPLES and (device != "cpu" or filters):
        raise ArgumentError(f"--{table}: can only be combined with --quick")
    if table == "floor" and device != "cpu":
        raise ArgumentError(f"--floor: its goals are for CPUs; omit --device {device}")


def _measure_conversion(
    conversion: tuple[str, Sequence[int], str, str | None],
    quick: bool,
    plot: str | None,
    json: str | None,
    device: str,
) -> int:
    from . import run
    from .sweeps import own_row

    row = own_row(*conversion)
    code = run.run(partial(run.row_setup, device, quick, row), quick, plot, json)
    if device == "cpu":
        run.show_plan(row)
    return code
