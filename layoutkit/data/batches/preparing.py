"""What is done to the arrays of a batch before they are handed out: a Converter, if any.

A caller gives one, or the constants of a formula, which is then computed in the arrays' own layout.
"""

from __future__ import annotations

from typing import Any

from ...axes import parse_layout
from ...converter import Converter
from ...errors import DataError
from ...formulas import Formula, formula_of

__all__ = ["check_convert", "converter_in", "result_layout"]


def check_convert(convert: Any, layout: str | None, constants: dict[str, Any]) -> None:
    """Raise unless `convert` is a Converter of arrays in a layout, and the only thing to do.

    Raises DataError, and ArgumentError or ShapeError for constants that are none.
    """
    formula = formula_of(**constants)
    if convert is None:
        return
    if not isinstance(convert, Converter):
        raise DataError(f"convert is {convert!r}; give a Converter")
    if formula is not None:
        given = ", ".join(name for name, value in constants.items() if value is not None)
        raise DataError(f"convert and {given} are two answers to one question; give one")
    left = convert.task.pattern.left
    if layout is not None and str(parse_layout(layout)) != str(left):
        raise DataError(
            f'layout is {layout}, but convert takes {left} ("{convert.pattern}"); give that,'
            " or leave it out"
        )


def converter_in(layout: str, convert: Converter | None, constants: dict[str, Any]) -> Converter:
    """What converts arrays that are in a layout, of the one or of the others."""
    if convert is not None:
        return convert
    formula = formula_of(**constants) or Formula()
    return Converter(f"{layout}->{layout}", **formula.keywords())


def result_layout(converter: Converter) -> str:
    """The layout that arrays have then."""
    return str(converter.task.pattern.target)
