"""Text and HTML representations of views, for prompts and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..converter import Converter
from ..spec import CPU
from .batch import BatchState
from .plans import Conversion

_HEAD = ("", "layout", "dtype", "shape", "kernel", "bytes moved")


def summary_line(batch: BatchState | None, note: str) -> str:
    """Return one line: the base, the other results, and the number of gradients."""
    if batch is None:
        return "; ".join(filter(None, ["empty", note]))
    base = batch.plans.base
    parts = [f"{base.layout} {batch.array.shape} {base.dtype}{_where(batch)}", note]
    conversions = [str(conversion) for conversion in batch.by_conversion if conversion is not base]
    results = ", ".join(conversions + [repr(form) for form in batch.by_target])
    parts.append(results and f"got {results}")
    count = len(batch.gradients)
    parts.append(f"{count} gradient{'s' if count > 1 else ''}" if count else "")
    return "; ".join(filter(None, parts))


def _where(batch: BatchState) -> str:
    return "" if batch.plans.device == CPU else f" on {batch.plans.device}"


def html_table(name: str, batch: BatchState | None, note: str) -> str:
    """Return a table of the base, all results and gradients, with the cost of each."""
    title = f"{name}, {note}" if note else name
    if batch is None:
        return html_section(f"{title}, empty", [])
    rows = "".join(_row("td", cells) for cells in _rows(batch))
    return html_section(title, [f"<table>{_row('th', _HEAD)}{rows}</table>"])


def html_section(title: str, parts: Iterable[str]) -> str:
    """Return HTML parts below a title."""
    return f"<div><p><b>{_escape(title)}</b></p>{''.join(parts)}</div>"


def _rows(batch: BatchState) -> Iterator[tuple[Any, ...]]:
    base = batch.plans.base
    yield ("base", *_described(base, batch.array), "-", "0")
    for conversion, result in batch.by_conversion.items():
        if conversion is not base:
            yield ("got", *_described(conversion, result), *_forward(conversion, batch))
    for target, result in batch.by_target.items():
        properties = (getattr(result, name, "-") for name in ("dtype", "shape"))
        yield ("got", repr(target), *properties, "format_as", "-")
    for conversion, grad in batch.gradients:
        yield ("gradient", conversion.layout, grad.dtype, grad.shape, *_back(conversion, grad))


def _described(conversion: Conversion, array: Any) -> tuple[Any, ...]:
    return conversion.layout, conversion.dtype, array.shape


def _forward(conversion: Conversion, batch: BatchState) -> tuple[str, str]:
    plan = conversion.converter.plan(batch.source)
    return plan.kernel, f"{plan.bytes_moved:,}"


def _back(conversion: Conversion, grad: Any) -> tuple[str, str]:
    if not isinstance(conversion.converter, Converter):
        return "column", f"{grad.nbytes:,}"
    plan = conversion.converter.inverse().plan(grad)
    return plan.kernel, f"{plan.bytes_moved:,}"


def _row(tag: str, cells: Iterable[Any]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def _escape(text: str) -> str:
    from html import escape  # Late: loads a large table, which only notebooks need.

    return escape(text)
