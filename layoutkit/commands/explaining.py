"""`layoutkit explain`: a plan in words, and what it does to memory as a picture of cells."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from ..axes import Move
from ..conversion import plan
from ..errors import ArgumentError
from ..layout import DOTS
from .drawing import svg_picture, text_picture

__all__ = ["explain"]


def explain(
    pattern: str,
    shape: tuple[int, ...] | None,
    asked: Mapping[str, Any],
    sizes: Mapping[str, int],
    svg: Path | None,
) -> None:
    """Print the plan for a shape, if there is one, and a picture that agrees with it.

    asked : dtype, to_dtype and the formula, None where not given;  sizes : of axes in folds
    """
    if svg is not None and svg.suffix.lower() != ".svg":
        raise ArgumentError(
            f"--svg: {svg} is no name of an SVG file; name it {svg.with_suffix('.svg')}"
        )
    given = {name: value for name, value in asked.items() if value is not None}
    if shape is None:
        for name in [*given, *(["size"] if sizes else [])]:
            option = f"--{name.replace('_', '-')}"
            raise ArgumentError(f"{option}: is about a plan; give the --shape of an array, too")
        how, axes = None, None
    else:
        how = plan(pattern, shape, given.pop("dtype", "float32"), **given, **dict[str, Any](sizes))
        axes = _sizes(how.move)
    # The file first, as whoever reads the words (`head`, a pager) may have seen enough early.
    if svg is not None:
        svg.write_text(svg_picture(pattern, axes), encoding="utf-8")
    if how is not None:
        print(how, end="\n\n")
    print(text_picture(pattern, axes))
    if how is None:
        print("\nWith --shape N,N,.. of an array there is a plan, too.")


def _sizes(move: Move) -> dict[str, int]:
    """The sizes of all axes; those that `...` stand for are one axis in the picture."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    return {
        **sizes,
        DOTS: prod(size for axis, size in sizes.items() if move.source.name(axis) == "..."),
    }
