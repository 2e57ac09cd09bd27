"""`layoutkit bench`: compare conversions with other libraries and with the memory limit.

cases           prepare a row: arrays, the expected result, the variants
chart           draw the results with matplotlib
collating       `--collate`: many samples into one batch
device          rows, limit and peers on a GPU: CUDA graphs, events
entries         the variants of a row: layoutkit's calls and the peers' calls
feeding         `python -m layoutkit.bench.feeding`: records per second against torch's DataLoader
feeding_mnist   epochs of images of MNIST's size
files           validate output files before measuring
host            rows on the CPU, the streaming pass that is the limit, OMP_WAIT_POLICY
loaders         `--loaders`: JPEGs from files to batches, compared with other data loaders
loader_records  the part of `--loaders` about raw records
loop            `--loop`: a conversion between other operations of a program
machines        `python -m layoutkit.bench.machines`: dask, stores and ranks on several processes
peers           the same conversions with other libraries
photos          generated JPEGs, in files of all kinds
protocol        the measuring protocol for all rows and libraries
report          the tables, printed and in Markdown
resizing        `--resize`: images of one size, normalized and stacked
results         the numbers, their summary, and the JSON files
rows            the rows of the table
run             measure all rows and report
sweeps          `--random`, `--hptt57`, `--channels`, `--runs`, `--floor`: rows of many shapes
"""

from collections.abc import Sequence

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
    resize: bool = False,
    loaders: bool = False,
    sweep: str | None = None,
    count: int = 0,
    seed: int = 0,
    conversion: tuple[str, Sequence[int], str, str | None] | None = None,
    only: str | None = None,
    limit: float | None = None,
) -> int:
    """Measure all rows and print a table; return the exit code.

    `quick` measures fewer rows for a shorter time (on two cores, less than a minute instead of
    ten). `plot` is the file of a chart, `json` a file for all numbers. `device` is "cpu" or "cuda".
    `others` also measures compilers and training pipelines. `loop` measures conversions between
    other operations instead; `collate` measures batches of many samples instead, `resize` batches
    of resized images, and `loaders` batches that data loaders make of files. `sweep` names a set
    of rows in sweeps.py to measure instead; "random" has `count` rows from `seed`.
    `conversion` is one conversion to measure instead: pattern, shape, and dtypes of both sides.
    `only` is a regular expression that the names of rows have to match, and no row is begun after
    `limit` seconds.
    `saved` is a JSON file written with `loop`: its table is printed in Markdown, and nothing is
    measured. The exit code is 0, or 1 if a conversion of layoutkit fails or gives a wrong result,
    or if a row of the sweep "floor" misses its goal. Raises DeviceError
    for "cuda" without CuPy, a driver or a GPU, and ArgumentError, before measuring, for files that
    cannot be written, an invalid HPTT library, and options that cannot be combined.
    """
    _check(quick, json, device, loop, saved, others)
    if (only is not None or limit is not None) and (loop or saved is not None or conversion):
        raise ArgumentError("--only and --limit: apply to tables of rows; omit them")
    if conversion is not None:
        if sweep is not None:
            raise ArgumentError(f"--{sweep}: measures rows of its own; omit it, or the PATTERN")
        sweep = "own"
    table = _one_table(collate, resize, loaders)
    if sweep == "floor" and device != "cpu":
        raise ArgumentError(f"--floor: its goals are for CPUs; omit --device {device}")
    if sweep is not None and (saved or loop or others or table):
        raise ArgumentError(
            f"{'PATTERN' if conversion else f'--{sweep}'}: measures rows of its own; combine it "
            "only with --quick, --device, --json, --plot, --seed, --only and --limit"
        )
    if table is not None:
        _check_one_table(table, (plot, json, device, loop, saved, others, only, limit))
        return _print_table(table, quick)
    if saved is not None:
        from .report import show_saved

        return show_saved(saved, plot)
    if loop:
        from .loop import run_loop

        return run_loop(quick=quick, plot=plot, json=json)
    from .run import Sweep, run
    from .sweeps import own_row

    own = None if conversion is None else own_row(*conversion)
    rows = None if sweep is None else Sweep(sweep, count, seed, own)
    return run(quick, plot, json, device, others, rows, only, limit)


def _check(
    quick: bool, json: str | None, device: str, loop: bool, saved: str | None, others: bool
) -> None:
    """Raise ArgumentError for options that would be ignored."""
    if others and (loop or saved is not None or device != "cpu"):
        raise ArgumentError(
            "--others: applies to the rows of the CPU; omit --loop, --from and --device"
        )
    if loop and device != "cpu":
        raise ArgumentError(f"--loop: measures on the CPU; omit --device {device}")
    if saved is not None and (quick or json is not None or loop or device != "cpu"):
        raise ArgumentError("--from: measures nothing; omit --loop, --quick, --json and --device")


def _one_table(collate: bool, resize: bool, loaders: bool) -> str | None:
    """Return the option for a table of its own; raise ArgumentError for several."""
    options = {"--collate": collate, "--resize": resize, "--loaders": loaders}
    tables = [name for name, is_requested in options.items() if is_requested]
    if len(tables) > 1:
        raise ArgumentError(f"{tables[0]}: prints one table; omit {tables[1]}")
    return tables[0] if tables else None


def _check_one_table(option: str, others: tuple[object, ...]) -> None:
    """Raise ArgumentError for options that a table of its own does not support."""
    if others != (None, None, "cpu", False, None, False, None, None):
        raise ArgumentError(f"{option}: prints one table; it can only be combined with --quick")


def _print_table(option: str, quick: bool) -> int:
    if option == "--collate":
        from .collating import run_collate

        return run_collate(quick)
    if option == "--resize":
        from .resizing import run_resize

        return run_resize(quick)
    from .loaders import run_loaders

    return run_loaders(quick)
