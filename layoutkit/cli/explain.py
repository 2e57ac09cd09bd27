"""`layoutkit explain`: a plan, the memory order before and after it, and differences of options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._utils.validation import escape_controls
from ..converter import plan
from ..drawing import draw_svg, draw_text, sizes_of
from ..errors import ArgumentError
from ..options import list_differences
from .options import read_options


def explain(
    pattern: str,
    shape: tuple[int, ...] | None,
    options: Mapping[str, Any],
    sizes: Mapping[str, int],
    svg: Path | None,
) -> None:
    """Print the plan for a shape, if there is one, and a drawing that agrees with it.

    options : from_dtype, dtype and the formula, None if not passed
    sizes : the sizes of axes in folds
    """
    if svg is not None and svg.suffix.lower() != ".svg":
        raise ArgumentError(
            f"--svg: {svg} is not the name of an SVG file; name it {svg.with_suffix('.svg')}"
        )
    keywords = {name: value for name, value in options.items() if value is not None}
    if shape is None:
        for name in [*keywords, *(["size"] if sizes else [])]:
            option = f"--{name.replace('_', '-')}"
            raise ArgumentError(f"{option}: applies to a plan; give the --shape of an array, too")
        conversion_plan = None
        axes = None
    else:
        source = keywords.pop("from_dtype", "float32")
        conversion_plan = plan(pattern, shape, source, **keywords, **dict[str, Any](sizes))
        axes = sizes_of(conversion_plan.move)
    # Write the file first: a reader of the text (`head`, a pager) may close the pipe early.
    if svg is not None:
        svg.write_text(draw_svg(pattern, axes), encoding="utf-8")
    if conversion_plan is not None:
        print(conversion_plan, end="\n\n")
    print(draw_text(pattern, axes))
    if conversion_plan is None:
        print("\nWith --shape N,N,.. of an array there is a plan, too.")


def compare(first: Path, second: Path) -> None:
    """Print the options that differ between two files, or that the results are equal."""
    rows = list_differences(read_options(first), read_options(second))
    if not rows:
        print("the options are equal, and so are the results, bit for bit")
        return
    table = [("", first.name, second.name), *rows]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    for label, one, other in table:
        print(escape_controls(f"{label:<{widths[0]}}  {one:<{widths[1]}}  {other}"))
