"""`layoutkit explain`: a plan, the memory order before and after it, and differences of options."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._utils.validation import escape_controls
from ..converter import plan
from ..drawing import draw_svg, draw_text, sizes_of
from ..errors import ArgumentError
from ..options import CollateOptions, ConvertOptions
from .options import read_options

_DEFAULTS = {
    "antialias": True,
    "casting": "same_kind",
    "center": "round",
    "fit": "stretch",
    "seed": 0,
}
_LABELS = {
    "resize": "filter (resize)",
    "center": "centering (center)",
    "pattern": "order of axes (pattern)",
    "casting": "rounding (casting)",
    **{name: f"constant {name}" for name in ("scale", "mean", "std", "clip", "fill")},
}


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
    rows = _differences(read_options(first), read_options(second))
    if not rows:
        print("the options are equal, and so are the results, bit for bit")
        return
    table = [("", first.name, second.name), *rows]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    for label, one, other in table:
        print(escape_controls(f"{label:<{widths[0]}}  {one:<{widths[1]}}  {other}"))


def _differences(
    one: ConvertOptions | CollateOptions, other: ConvertOptions | CollateOptions
) -> list[tuple[str, str, str]]:
    """Return a label, and the values of both, for each option that differs."""
    forms = one.normal_form(), other.normal_form()
    stored = one.to_dict(), other.to_dict()
    names = [name for name in forms[0] | forms[1] if forms[0].get(name) != forms[1].get(name)]
    of_pattern = {"samples", "whole"}  # follow from the pattern
    names = ["pattern" if name in of_pattern else name for name in names]
    return [
        (_LABELS.get(name, name), _text(name, stored[0]), _text(name, stored[1]))
        for name in dict.fromkeys(names)
    ]


def _text(name: str, data: dict[str, Any]) -> str:
    """Return the value of an option as text."""
    value = data.get(name, _DEFAULTS.get(name))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
